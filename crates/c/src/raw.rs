//! What C gives, made into what Rust works with: all that has to be believed is believed here.
//!
//! Handles and places for results come as `Option<&T>` and `Option<&mut MaybeUninit<T>>`, which C sees as pointers that may be null. Bytes, texts and arrays come
//! as pointers, with a length or with a zero at the end.
//!
//! # Safety
//! One rule for every function of this library that is `unsafe`: a pointer that is not null points to as many items as is said with it (a text: ends with a zero byte), and
//! nobody changes or frees them while the call runs.

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::slice;
use std::sync::{Mutex, MutexGuard};

use crate::failure::Failure;

/// More than this is no length of anything that a program has in memory.
const BYTES_MAX: usize = isize::MAX as usize;

/// A handle, or anything else that must not be null.
pub(crate) fn given<T>(pointer: Option<T>, what: &str) -> Result<T, Failure> {
    pointer.ok_or_else(|| Failure::invalid(format!("{what} is null")))
}

/// Puts a result where the caller wants it.
pub(crate) fn give<T>(place: Option<&mut MaybeUninit<T>>, value: T) -> Result<(), Failure> {
    given(place, "a place for a result")?.write(value);
    Ok(())
}

/// Makes a handle, and puts it where the caller wants it; where no place is nothing is made.
pub(crate) fn give_handle<T>(
    place: Option<&mut MaybeUninit<*mut T>>,
    make: impl FnOnce() -> Result<T, Failure>,
) -> Result<(), Failure> {
    let place = given(place, "the place for a handle")?;
    // Whoever looks at it after a failure, or frees it, finds nothing.
    place.write(std::ptr::null_mut());
    place.write(Box::into_raw(Box::new(make()?)));
    Ok(())
}

/// Uses what a handle has; not after a mistake of ours left it half changed.
pub(crate) fn lock<T>(held: &Mutex<T>) -> Result<MutexGuard<'_, T>, Failure> {
    held.lock().map_err(|_| Failure::internal("a call before this one ended by a mistake inside the library"))
}

fn checked<T>(is_null: bool, count: usize, what: &str) -> Result<(), Failure> {
    if is_null && count > 0 {
        return Err(Failure::invalid(format!("{what} is null and has {count} items")));
    }
    if count > BYTES_MAX / size_of::<T>().max(1) {
        return Err(Failure::invalid(format!("{what} has {count} items, more than there can be")));
    }
    Ok(())
}

/// An array; null is one of no items.
///
/// # Safety
/// That of the module.
pub(crate) unsafe fn items<'a, T>(pointer: *const T, count: usize, what: &str) -> Result<&'a [T], Failure> {
    checked::<T>(pointer.is_null(), count, what)?;
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: it is not null, no longer than can be, and the caller says that so many items are there.
    Ok(unsafe { slice::from_raw_parts(pointer, count) })
}

/// An array for results; null is one of no items.
///
/// # Safety
/// That of the module, and nobody reads them while the call runs.
pub(crate) unsafe fn room<'a, T>(
    pointer: *mut T,
    count: usize,
    what: &str,
) -> Result<&'a mut [MaybeUninit<T>], Failure> {
    checked::<T>(pointer.is_null(), count, what)?;
    if count == 0 {
        return Ok(&mut []);
    }
    // SAFETY: it is not null, no longer than can be, the caller says that there is room for so many, and nothing is read from it.
    Ok(unsafe { slice::from_raw_parts_mut(pointer.cast(), count) })
}

/// Bytes; null is none.
///
/// # Safety
/// That of the module.
pub(crate) unsafe fn bytes<'a>(pointer: *const c_void, count: usize, what: &str) -> Result<&'a [u8], Failure> {
    // SAFETY: the caller says the same.
    unsafe { items(pointer.cast(), count, what) }
}

/// A path: any bytes, at least one.
///
/// # Safety
/// That of the module.
pub(crate) unsafe fn path<'a>(pointer: *const c_char, count: usize) -> Result<&'a [u8], Failure> {
    // SAFETY: the caller says the same.
    let path = unsafe { items(pointer.cast(), count, "the path") }?;
    if path.is_empty() { Err(Failure::invalid("the path is empty".to_owned())) } else { Ok(path) }
}

/// Room for bytes that are read, and only written to. What memory of C holds that nobody wrote to is some value, and no rule of Rust is broken by it.
///
/// # Safety
/// That of [`room`].
pub(crate) unsafe fn buffer<'a>(pointer: *mut c_void, count: usize) -> Result<&'a mut [u8], Failure> {
    checked::<u8>(pointer.is_null(), count, "the buffer")?;
    if count == 0 {
        return Ok(&mut []);
    }
    // SAFETY: it is not null, no longer than can be, and the caller says that there is room for so many and that it is nobody else's now.
    Ok(unsafe { slice::from_raw_parts_mut(pointer.cast(), count) })
}

/// A text that ends with a zero byte.
///
/// # Safety
/// That of the module.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(Failure::invalid(format!("{what} is null")));
    }
    // SAFETY: it is not null, and the caller says that it ends with a zero byte.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::invalid(format!("{what} is not UTF-8")))
}

/// Fills the first places of an array; how many.
pub(crate) fn fill<T>(room: &mut [MaybeUninit<T>], items: impl IntoIterator<Item = T>) -> usize {
    let mut count = 0;
    for (place, item) in room.iter_mut().zip(items) {
        place.write(item);
        count += 1;
    }
    count
}
