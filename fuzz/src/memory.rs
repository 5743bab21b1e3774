//! How much memory a decoder takes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Counts what is held, and the most that ever was.
struct Counting;

static HELD_BYTES: AtomicUsize = AtomicUsize::new(0);
static MOST_BYTES: AtomicUsize = AtomicUsize::new(0);

fn took(bytes: usize) {
    let held = HELD_BYTES.fetch_add(bytes, Relaxed).wrapping_add(bytes);
    MOST_BYTES.fetch_max(held, Relaxed);
}

// SAFETY: all requests go to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // Old and new may be there at once.
        took(bytes);
        HELD_BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `pointer` came from the system's allocator with this layout, and the caller keeps the rest of the contract.
        unsafe { System.realloc(pointer, layout, bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD_BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `pointer` came from the system's allocator with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Does `work`, which at no time may hold more than `bytes_max` bytes beyond what was held before.
///
/// # Panics
/// When it held more.
pub fn bounded<R>(bytes_max: usize, work: impl FnOnce() -> R) -> R {
    let before = HELD_BYTES.load(Relaxed);
    MOST_BYTES.store(before, Relaxed);
    let result = work();
    let most = MOST_BYTES.load(Relaxed).saturating_sub(before);
    assert!(most <= bytes_max, "{most} bytes of memory were held at once; {bytes_max} are enough");
    result
}
