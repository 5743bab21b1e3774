//! An allocator that counts, for tests of what memory costs.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use forebay_types::memory::allocated_bytes;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

fn count(bytes: usize, sign: i64) {
    HELD.with(|held| held.set(held.get() + sign * allocated_bytes(bytes) as i64));
}

// SAFETY: every call goes to the system's allocator as it is; counting neither allocates nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(layout.size(), -1);
        count(bytes, 1);
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `work` gives, and the bytes that this thread holds more after it.
pub(crate) fn allocated_in<T>(work: impl FnOnce() -> T) -> (T, i64) {
    let before = HELD.get();
    let result = work();
    (result, HELD.get() - before)
}
