//! Memory that is read into, and given on without a copy.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// What is read at once.
pub const CHUNK_BYTES: usize = 1 << 20;

/// Chunks that were given on, each of which is used again when nobody else has it any more.
#[derive(Default)]
pub struct Chunks {
    given: VecDeque<Bytes>,
}

impl Chunks {
    /// A chunk, with whatever it held before.
    pub fn take(&mut self) -> BytesMut {
        // The one that was given on first comes back first, or soon after.
        let oldest = self.given.pop_front_if(|chunk| chunk.is_unique());
        oldest.and_then(|chunk| chunk.try_into_mut().ok()).unwrap_or_else(|| BytesMut::zeroed(CHUNK_BYTES))
    }

    /// What is to be given on of a chunk: so many bytes.
    pub fn give_on(&mut self, chunk: BytesMut, bytes: usize) -> Bytes {
        let chunk = chunk.freeze();
        let given = chunk.slice(..bytes);
        self.given.push_back(chunk);
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_used_again_when_nobody_has_it() {
        let mut chunks = Chunks::default();
        let mut first = chunks.take();
        first[..3].copy_from_slice(b"abc");
        let place = first.as_ptr();
        let held = chunks.give_on(first, 3);
        let second = chunks.take();
        assert!(second.as_ptr() != place && second.len() == CHUNK_BYTES);
        assert_eq!(held, b"abc"[..]);
        drop(chunks.give_on(second, 0));
        drop(held);
        let again = chunks.take();
        assert!(again.as_ptr() == place && again.len() == CHUNK_BYTES, "the whole of it");
    }
}
