//! Memory that is filled, shared and filled again when nobody refers to it any more: fresh memory of such sizes costs page faults.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Fewer bytes have memory of their own.
const COPY_BYTES_MIN: usize = 256 << 10;

/// Chunks of memory. The one filled longest ago is looked at first.
#[derive(Debug)]
pub struct Chunks {
    chunk_bytes: usize,
    kept_max: usize,
    filled: VecDeque<BytesMut>,
}

impl Chunks {
    /// Chunks of so many bytes, of which at most so many are kept.
    pub fn new(chunk_bytes: usize, kept_max: usize) -> Chunks {
        Chunks { chunk_bytes, kept_max, filled: VecDeque::new() }
    }

    /// A chunk, or more for more `bytes`: the oldest one when it is free again.
    pub(crate) fn take(&mut self, bytes: usize) -> BytesMut {
        let room = bytes.max(self.chunk_bytes);
        if let Some(mut oldest) = self.filled.pop_front() {
            if oldest.try_reclaim(room) {
                return oldest;
            }
            if self.filled.len() < self.kept_max {
                self.filled.push_front(oldest);
            }
        }
        BytesMut::with_capacity(room)
    }

    /// Keeps what is left of a chunk whose bytes were split off.
    pub(crate) fn keep(&mut self, rest: BytesMut) {
        if self.filled.len() < self.kept_max {
            self.filled.push_back(rest);
        }
    }

    /// Copies bytes into a chunk of their own. Few of them, or more than a chunk has, get memory that is not kept.
    pub fn copy(&mut self, bytes: &[u8]) -> Bytes {
        if bytes.len() < COPY_BYTES_MIN || bytes.len() > self.chunk_bytes {
            return Bytes::copy_from_slice(bytes);
        }
        let mut chunk = self.take(bytes.len());
        chunk.extend_from_slice(bytes);
        let copy = chunk.split().freeze();
        self.keep(chunk);
        copy
    }

    /// Gives the memory back of all but `count`.
    pub fn shrink(&mut self, count: usize) {
        self.filled.truncate(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_answers_is_used_again_when_nobody_has_them_and_is_bounded() {
        let (mut chunks, bytes) = (Chunks::new(1 << 20, 4), vec![7; COPY_BYTES_MIN]);
        let mut places = std::collections::BTreeSet::new();
        for _ in 0..100 {
            let copy = chunks.copy(&bytes);
            assert_eq!(copy, bytes);
            places.insert(copy.as_ptr() as usize);
        }
        assert_eq!(places.len(), 1, "one answer at a time needs one chunk");
        let held: Vec<Bytes> = (0..20).map(|_| chunks.copy(&bytes)).collect();
        assert!(held.iter().all(|copy| *copy == bytes), "what somebody holds stays as it is");
        assert!(chunks.filled.len() <= 4);
        chunks.shrink(1);
        assert_eq!(chunks.filled.len(), 1);
    }
}
