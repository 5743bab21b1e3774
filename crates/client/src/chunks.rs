//! Memory that is filled, shared and filled again when nobody refers to it any more: fresh memory of such sizes costs page faults.

use std::collections::VecDeque;

use bytes::BytesMut;

/// Chunks of memory. The one filled longest ago is looked at first.
#[derive(Debug)]
pub(crate) struct Chunks {
    chunk_bytes: usize,
    kept_max: usize,
    filled: VecDeque<BytesMut>,
}

impl Chunks {
    /// Chunks of so many bytes, of which at most so many are kept.
    pub(crate) fn new(chunk_bytes: usize, kept_max: usize) -> Chunks {
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
}
