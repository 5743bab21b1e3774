//! Memory that O_DIRECT takes: whole blocks at a block's alignment, by type.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use forebay_types::limits::BLOCK_BYTES;

/// Bytes from which on a piece of memory is asked of the system alone, and goes back to it when it is let go.
#[cfg(target_env = "gnu")]
const APART_BYTES: i32 = 128 << 10;

/// Has large pieces of memory go back to the system when they are let go; for the whole process.
///
/// Glibc begins so, but puts ever larger pieces into its heap as such pieces come and go; buffers and cached flushes of many sizes then
/// leave holes there that nobody can use: a server was seen to hold three times what it had.
pub fn return_large_memory() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: the call sets a number of the allocator, which keeps its own order of threads.
        let taken = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, APART_BYTES) };
        debug_assert_eq!(taken, 1, "the allocator knows this setting");
    }
}

/// A zeroed, owned piece of memory: its address and its length are multiples of [`BLOCK_BYTES`].
pub struct AlignedBuffer {
    memory: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the buffer owns its memory alone; a shared reference only reads.
unsafe impl Send for AlignedBuffer {}
// SAFETY: as above; there is no interior mutability.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// `bytes` zeroed bytes, rounded up to whole blocks, at least one.
    pub fn zeroed(bytes: usize) -> Self {
        let bytes = bytes.next_multiple_of(BLOCK_BYTES).max(BLOCK_BYTES);
        let layout = Self::layout(bytes);
        // SAFETY: the layout has a size of at least one block.
        let memory = unsafe { alloc_zeroed(layout) };
        let memory = NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout));
        AlignedBuffer { memory, bytes }
    }

    /// `contents`, followed by zeros up to the end of the block.
    pub fn copied(contents: &[u8]) -> Self {
        let mut buffer = Self::zeroed(contents.len());
        buffer[..contents.len()].copy_from_slice(contents);
        buffer
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, BLOCK_BYTES).expect("a buffer fits in the address space")
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this layout, and given up here alone.
        unsafe { dealloc(self.memory.as_ptr(), Self::layout(self.bytes)) }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `bytes` bytes are allocated, initialised, and borrowed as long as `self` is.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.bytes) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.bytes) }
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_and_length_are_whole_blocks_and_the_rest_is_zero() {
        let buffer = AlignedBuffer::copied(&[7; 5000]);
        assert_eq!(buffer.len(), 2 * BLOCK_BYTES);
        assert_eq!(buffer.as_ptr() as usize % BLOCK_BYTES, 0);
        assert!(buffer[..5000].iter().all(|&b| b == 7) && buffer[5000..].iter().all(|&b| b == 0));
        assert_eq!(AlignedBuffer::zeroed(0).len(), BLOCK_BYTES);
    }
}
