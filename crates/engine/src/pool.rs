//! Buffers of flushes, used again: the system is not asked for memory at full rate.

use std::sync::Arc;

use forebay_media::AlignedBuffer;

/// Buffers of one size.
pub(crate) struct BufferPool {
    buffer_bytes: usize,
    kept_max: usize,
    free: Vec<AlignedBuffer>,
}

impl BufferPool {
    pub(crate) fn new(buffer_bytes: usize, kept_max: usize) -> Self {
        BufferPool { buffer_bytes, kept_max, free: Vec::new() }
    }

    /// A buffer of at least `bytes` bytes, with whatever it held before.
    pub(crate) fn take(&mut self, bytes: usize) -> AlignedBuffer {
        if bytes > self.buffer_bytes {
            return AlignedBuffer::zeroed(bytes);
        }
        self.free.pop().unwrap_or_else(|| AlignedBuffer::zeroed(self.buffer_bytes))
    }

    pub(crate) fn give_back(&mut self, buffer: AlignedBuffer) {
        if buffer.len() == self.buffer_bytes && self.free.len() < self.kept_max {
            self.free.push(buffer);
        }
    }

    /// Gives back what nobody else holds any more.
    pub(crate) fn give_back_shared(&mut self, buffers: impl IntoIterator<Item = Arc<AlignedBuffer>>) {
        for buffer in buffers {
            if let Ok(buffer) = Arc::try_unwrap(buffer) {
                self.give_back(buffer);
            }
        }
    }
}
