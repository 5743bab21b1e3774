//! Every call: nothing unwinds out of it, and what went wrong is kept for the thread.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::code::{FOREBAY_DONE, name_of};
use crate::failure::Failure;

/// The version of the ABI: a program that was compiled for another one cannot use this library. What is added does not change it.
pub const FOREBAY_ABI_VERSION: u32 = 0;

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version has no zero byte in it"),
};

/// The failure that is told, with its words as C reads them.
struct Last {
    failure: Failure,
    message: CString,
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// Does what a function of the library does: its code, with the words kept for this thread when it failed.
pub(crate) fn run(call: impl FnOnce() -> Result<(), Failure>) -> i32 {
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => return FOREBAY_DONE,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::internal(words_of(panic.as_ref())),
    };
    let code = failure.code;
    // What has a zero in it is an address or a name that somebody gave.
    let message = CString::new(failure.message.replace('\0', "\\0")).unwrap_or_default();
    // A thread that is ending has no place for it any more, and nobody who asks.
    let _ = LAST.try_with(|last| *last.borrow_mut() = Some(Last { failure, message }));
    code
}

/// Looks at what a handle has; null, and what is broken, has none of it.
pub(crate) fn look<H, T>(handle: Option<&H>, none: T, at: impl FnOnce(&H) -> T) -> T {
    match handle.map(|handle| catch_unwind(AssertUnwindSafe(|| at(handle)))) {
        Some(Ok(found)) => found,
        _ => none,
    }
}

/// Frees a handle.
pub(crate) fn free<H>(handle: Option<Box<H>>) {
    // It is free though something went wrong on the way, and nobody could be told.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(handle)));
}

fn words_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it says no more")
}

fn last<T>(none: T, at: impl FnOnce(&Last) -> T) -> T {
    LAST.try_with(|last| last.borrow().as_ref().map(at)).ok().flatten().unwrap_or(none)
}

/// The version of the ABI of the library that runs; it must be `FOREBAY_ABI_VERSION` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_abi_version() -> u32 {
    FOREBAY_ABI_VERSION
}

/// The version of the library that runs, as in "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn forebay_version() -> *const c_char {
    VERSION.as_ptr()
}

/// The name of a code, as in "FOREBAY_NOT_FOUND"; of a number that is none, "FOREBAY_UNKNOWN_CODE".
#[unsafe(no_mangle)]
pub extern "C" fn forebay_code_name(code: i32) -> *const c_char {
    name_of(code).as_ptr()
}

/// What happened in the last call of this thread that failed, what it means for the data, and what to do. Empty when none failed. It is there until another call of this thread
/// fails.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_last_error() -> *const c_char {
    last(c"".as_ptr(), |last| last.message.as_ptr())
}

/// The code of that call; `FOREBAY_DONE` when none failed.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_last_code() -> i32 {
    last(FOREBAY_DONE, |last| last.failure.code)
}

/// The number of POSIX for it, as in `errno.h`; 0 when none failed.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_last_errno() -> i32 {
    last(0, |last| last.failure.errno)
}

/// Whether that call may be made again as it was, and may succeed then.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_last_is_retryable() -> bool {
    last(false, |last| last.failure.is_retryable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::FOREBAY_INTERNAL;

    #[test]
    fn a_mistake_of_ours_is_a_code_and_nothing_unwinds() {
        assert_eq!(run(|| panic!("planted, {}", 7)), FOREBAY_INTERNAL);
        // SAFETY: it ends with a zero, and no call fails meanwhile.
        let words = unsafe { CStr::from_ptr(forebay_last_error()) }.to_string_lossy().into_owned();
        assert!(words.contains("planted, 7") && words.contains("may or may not be stored"), "{words}");
        assert_eq!((forebay_last_code(), forebay_last_errno()), (FOREBAY_INTERNAL, libc::EIO));
        struct Bad;
        impl Drop for Bad {
            fn drop(&mut self) {
                panic!("planted");
            }
        }
        free(Some(Box::new(Bad)));
        assert_eq!(look(Some(&7), 3, |_| panic!("planted")), 3);
        assert_eq!(run(|| Ok(())), FOREBAY_DONE);
    }
}
