//! Buffers of flushes, used again: the system is not asked for memory at full rate. What was not needed for a while is given back to it.

use std::sync::Arc;

use forebay_media::AlignedBuffer;

/// Buffers of one size.
pub(crate) struct BufferPool {
    buffer_bytes: usize,
    /// Buffers that a flush takes.
    flush_buffers: usize,
    kept_max: usize,
    free: Vec<AlignedBuffer>,
    /// The fewest that were free since [`BufferPool::trim`]: nobody needed them.
    idle: usize,
}

impl BufferPool {
    /// For flushes of `flush_buffers` buffers, of which up to `flushes` are under way.
    pub(crate) fn new(buffer_bytes: usize, flush_buffers: usize, flushes: usize) -> Self {
        BufferPool { buffer_bytes, flush_buffers, kept_max: flush_buffers * flushes, free: Vec::new(), idle: 0 }
    }

    /// Memory of the buffers that are free.
    pub(crate) fn bytes(&self) -> usize {
        self.free.len() * self.buffer_bytes
    }

    pub(crate) fn free_buffers(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// A buffer of at least `bytes` bytes, with whatever it held before.
    pub(crate) fn take(&mut self, bytes: usize) -> AlignedBuffer {
        if bytes > self.buffer_bytes {
            return AlignedBuffer::zeroed(bytes);
        }
        let buffer = self.free.pop();
        self.idle = self.idle.min(self.free.len());
        buffer.unwrap_or_else(|| AlignedBuffer::zeroed(self.buffer_bytes))
    }

    pub(crate) fn give_back(&mut self, buffer: AlignedBuffer) {
        self.keep(buffer, self.kept_max);
    }

    fn keep(&mut self, buffer: AlignedBuffer, kept_max: usize) {
        if buffer.len() == self.buffer_bytes && self.free.len() < kept_max {
            self.free.push(buffer);
        }
    }

    /// Gives back what nobody else holds any more.
    pub(crate) fn give_back_shared(&mut self, buffers: impl IntoIterator<Item = Arc<AlignedBuffer>>) {
        buffers.into_iter().filter_map(Arc::into_inner).for_each(|buffer| self.keep(buffer, self.kept_max));
    }

    /// Gives back what had to make room: as many stay as the next flush takes.
    pub(crate) fn give_back_dropped(&mut self, buffers: impl IntoIterator<Item = Arc<AlignedBuffer>>) {
        buffers.into_iter().filter_map(Arc::into_inner).for_each(|buffer| self.keep(buffer, self.flush_buffers));
    }

    /// To be called now and then: lets go of what nobody needed since the last time.
    pub(crate) fn trim(&mut self) {
        self.free.truncate(self.free.len() - self.idle);
        self.free.shrink_to_fit();
        self.idle = self.free.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_needs_is_let_go_and_what_is_needed_is_kept() {
        let mut pool = BufferPool::new(8192, 2, 3);
        let taken: Vec<_> = (0..8).map(|_| pool.take(5000)).collect();
        taken.into_iter().for_each(|buffer| pool.give_back(buffer));
        assert_eq!(pool.bytes(), 6 * 8192, "as many as flushes under way take");
        pool.give_back_dropped([Arc::new(AlignedBuffer::zeroed(8192))]);
        assert_eq!(pool.bytes(), 6 * 8192);
        pool.trim();
        let buffer = pool.take(5000);
        pool.give_back(buffer);
        pool.trim();
        assert_eq!(pool.bytes(), 8192, "one was needed");
        pool.trim();
        assert_eq!(pool.bytes(), 0);
    }
}
