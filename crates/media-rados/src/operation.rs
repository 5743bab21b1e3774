//! Operations on one object: done at once, or started and told of later.

use std::ffi::{CStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};

use crate::cluster::{Pool, c_string};
use crate::error::{RadosError, check};
use crate::sys;

/// What is called with what became of an operation, in a thread of the library. It must not wait for the library.
type Then = Box<dyn FnOnce(i32) + Send>;

/// Steps on one object that are done together or not at all.
pub(crate) struct Steps {
    raw: sys::WriteOperation,
    flags: i32,
}

impl Steps {
    pub(crate) fn new() -> Self {
        // SAFETY: it takes nothing, and what it gives is released when this is dropped.
        Steps { raw: unsafe { sys::rados_create_write_op() }, flags: 0 }
    }

    /// Done also when the pool is full, for what frees or must not wait.
    pub(crate) fn although_full(mut self, flag: i32) -> Self {
        self.flags |= flag;
        self
    }

    /// The object is made; fails with `EEXIST` when it is there.
    pub(crate) fn create_new(self) -> Self {
        // SAFETY: the steps are ours.
        unsafe { sys::rados_write_op_create(self.raw, sys::CREATE_EXCLUSIVE, null()) };
        self
    }

    /// Fails with `ECANCELED` unless an attribute has this value.
    pub(crate) fn compare(self, attribute: &str, value: &[u8]) -> Self {
        self.compare_by(attribute, sys::COMPARE_EQUAL, value)
    }

    /// Fails with `ECANCELED` when an attribute has a greater value than this one, byte for byte. One that is not there is less than any.
    pub(crate) fn compare_no_less(self, attribute: &str, value: &[u8]) -> Self {
        self.compare_by(attribute, sys::COMPARE_NO_LESS, value)
    }

    fn compare_by(self, attribute: &str, comparison: u8, value: &[u8]) -> Self {
        let name = c_string(attribute);
        // SAFETY: the steps are ours; the library copies name and value.
        unsafe {
            sys::rados_write_op_cmpxattr(self.raw, name.as_ptr(), comparison, value.as_ptr().cast(), value.len());
        }
        self
    }

    /// Calls a method of Ceph's class `lock` on the object; fails as that does.
    pub(crate) fn call_lock(self, method: &CStr, input: &[u8]) -> Self {
        let input_at = input.as_ptr().cast();
        // SAFETY: the steps are ours; the library copies names and input, and is told no place for a result of this step alone.
        unsafe {
            sys::rados_write_op_exec(self.raw, c"lock".as_ptr(), method.as_ptr(), input_at, input.len(), null_mut());
        }
        self
    }

    pub(crate) fn set(self, attribute: &str, value: &[u8]) -> Self {
        let name = c_string(attribute);
        // SAFETY: as above.
        unsafe { sys::rados_write_op_setxattr(self.raw, name.as_ptr(), value.as_ptr().cast(), value.len()) };
        self
    }

    pub(crate) fn write(self, bytes: &[u8], offset: u64) -> Self {
        // SAFETY: as above.
        unsafe { sys::rados_write_op_write(self.raw, bytes.as_ptr().cast(), bytes.len(), offset) };
        self
    }

    pub(crate) fn remove(self) -> Self {
        // SAFETY: the steps are ours.
        unsafe { sys::rados_write_op_remove(self.raw) };
        self
    }

    /// Does them, and waits for it.
    pub(crate) fn run(self, pool: &Pool, object: &str) -> Result<(), RadosError> {
        let name = c_string(object);
        // SAFETY: steps and pool are alive.
        let done = unsafe { sys::rados_write_op_operate(self.raw, pool.raw(), name.as_ptr(), null_mut(), self.flags) };
        check(done, || format!("a change of {object} in pool {}", pool.name())).map(drop)
    }

    /// Starts them.
    pub(crate) fn start(self, pool: &Pool, object: &str, then: Then) {
        let name = c_string(object);
        start_with(then, |completion| {
            // SAFETY: steps, pool and completion are alive; the library holds what it needs of them.
            unsafe {
                sys::rados_aio_write_op_operate(self.raw, pool.raw(), completion, name.as_ptr(), null_mut(), self.flags)
            }
        });
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        // SAFETY: made in `new`; what was started holds what it needs.
        unsafe { sys::rados_release_write_op(self.raw) };
    }
}

/// Starts a read of up to `bytes` bytes to `into`.
///
/// # Safety
/// `bytes` bytes at `into` may be written to until `then` was called, and are nobody else's until then.
pub(crate) unsafe fn start_read(pool: &Pool, object: &str, offset: u64, (into, bytes): (*mut u8, usize), then: Then) {
    let name = c_string(object);
    start_with(then, |completion| {
        // SAFETY: pool and completion are alive, the memory as the caller says.
        unsafe { sys::rados_aio_read(pool.raw(), name.as_ptr(), completion, into.cast(), bytes, offset) }
    });
}

/// Starts something with a completion that calls `then`; also when it does not start.
fn start_with(then: Then, start: impl FnOnce(sys::Completion) -> i32) {
    let argument = Box::into_raw(Box::new(then));
    let mut completion = null_mut();
    // SAFETY: `finished` takes the argument back, once.
    let made = unsafe { sys::rados_aio_create_completion2(argument.cast(), Some(finished), &raw mut completion) };
    assert_eq!(made, 0, "the library has no reason to refuse a completion");
    let started = start(completion);
    // SAFETY: the library holds the completion of what was started by itself; of what was not, nobody else has the argument.
    unsafe {
        if started < 0 {
            let then = Box::from_raw(argument);
            // As all that is told: from another thread, since whoever starts may hold what `then` asks for.
            std::thread::spawn(move || then(started));
        }
        sys::rados_aio_release(completion);
    }
}

/// # Safety
/// `argument` comes from `start_with`, and this is called once with it.
unsafe extern "C" fn finished(completion: sys::Completion, argument: *mut c_void) {
    // SAFETY: as the caller promises.
    let then = unsafe { Box::from_raw(argument.cast::<Then>()) };
    // SAFETY: the completion lives during its callback.
    let returned = unsafe { sys::rados_aio_get_return_value(completion) };
    if catch_unwind(AssertUnwindSafe(|| then(returned))).is_err() {
        // An operation that nobody is told of hangs for ever; and nothing may unwind into the library.
        std::process::abort();
    }
}
