//! Buffers of flushes, used again: the system is not asked for memory at full rate.

use std::sync::{Arc, Weak};

use forebay_media::AlignedBuffer;

/// Buffers of one size. How many are kept is bounded by the lane's budget, in which they count (`lane/memory.rs`).
pub(crate) struct BufferPool {
    buffer_bytes: usize,
    free: Vec<AlignedBuffer>,
    /// Those that were given back while somebody else had them: a reader that is still sent what is in them.
    lent: Vec<Weak<AlignedBuffer>>,
}

impl BufferPool {
    pub(crate) fn new(buffer_bytes: usize) -> Self {
        BufferPool { buffer_bytes, free: Vec::new(), lent: Vec::new() }
    }

    /// Memory of the buffers that are free.
    pub(crate) fn bytes(&self) -> usize {
        self.free.len() * self.buffer_bytes
    }

    /// Memory of the buffers that nobody has any more but whom they were lent to.
    pub(crate) fn lent_bytes(&self) -> usize {
        let buffers = self.lent.iter().filter_map(Weak::upgrade);
        buffers.map(|buffer| buffer.len()).sum()
    }

    pub(crate) fn free_buffers(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// A buffer of the pool's size, with whatever it held before.
    pub(crate) fn take_one(&mut self) -> AlignedBuffer {
        self.free.pop().unwrap_or_else(|| AlignedBuffer::zeroed(self.buffer_bytes))
    }

    /// A buffer of at least `bytes` bytes, with whatever it held before.
    pub(crate) fn take(&mut self, bytes: usize) -> AlignedBuffer {
        if bytes > self.buffer_bytes {
            return AlignedBuffer::zeroed(bytes);
        }
        self.take_one()
    }

    pub(crate) fn give_back(&mut self, buffer: AlignedBuffer) {
        if buffer.len() == self.buffer_bytes {
            self.free.push(buffer);
        }
    }

    /// Gives back what nobody else holds any more; what somebody does counts as lent until it is let go of.
    pub(crate) fn give_back_shared(&mut self, buffers: impl IntoIterator<Item = Arc<AlignedBuffer>>) {
        self.lent.retain(|buffer| buffer.strong_count() > 0);
        for buffer in buffers {
            match Arc::try_unwrap(buffer) {
                Ok(buffer) => self.give_back(buffer),
                Err(held) => self.lent.push(Arc::downgrade(&held)),
            }
        }
    }

    /// Lets go of one free buffer.
    pub(crate) fn drop_one(&mut self) -> bool {
        self.free.pop().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_the_pools_size_come_back_as_they_are() {
        let mut pool = BufferPool::new(8192);
        let mut taken: Vec<_> = (0..6).map(|_| pool.take(5000)).collect();
        let held = Arc::new(taken.pop().expect("six were taken"));
        let first = taken[0].as_ptr();
        taken.into_iter().rev().for_each(|buffer| pool.give_back(buffer));
        pool.give_back(AlignedBuffer::zeroed(16384));
        pool.give_back_shared([Arc::clone(&held)]);
        assert_eq!(pool.bytes(), 5 * 8192, "another size is not of use, nor is what somebody holds");
        assert_eq!(pool.lent_bytes(), 8192);
        drop(held);
        assert_eq!(pool.lent_bytes(), 0);
        assert_eq!(pool.take(8192).as_ptr(), first);
        assert!((0..4).all(|_| pool.drop_one()) && !pool.drop_one());
        assert_eq!(pool.take(8193).len(), 12288);
    }
}
