//! What a connection is to be sent.

use std::collections::VecDeque;

use forebay_engine::SharedBytes;

use crate::limits::{CHUNK_BYTES, SPARE_CHUNK_BYTES_MAX, SPARE_CHUNKS_BYTES_MAX};

/// Memory of chunks, used again: a fresh one would be touched page by page.
#[derive(Default)]
pub(crate) struct Chunks {
    spare: Vec<Vec<u8>>,
    bytes: usize,
}

impl Chunks {
    fn take(&mut self) -> Vec<u8> {
        let chunk = self.spare.pop().unwrap_or_default();
        self.bytes -= chunk.capacity();
        chunk
    }

    fn give_back(&mut self, mut chunk: Vec<u8>) {
        let bytes = chunk.capacity();
        if bytes <= SPARE_CHUNK_BYTES_MAX && self.bytes + bytes <= SPARE_CHUNKS_BYTES_MAX {
            self.bytes += bytes;
            chunk.clear();
            self.spare.push(chunk);
        }
    }
}

/// A chunk that frames are added to.
pub(crate) struct Chunk {
    pub(crate) bytes: Vec<u8>,
    before: usize,
}

/// Bytes that follow each other in memory.
enum Stretch {
    Own(Vec<u8>),
    /// The lane's.
    Shared(SharedBytes),
}

impl Stretch {
    fn bytes(&self) -> &[u8] {
        match self {
            Stretch::Own(chunk) => chunk,
            Stretch::Shared(bytes) => bytes,
        }
    }
}

/// Frames on their way out, in chunks. Holds next to no memory while there are none.
#[derive(Default)]
pub(crate) struct Outgoing {
    chunks: VecDeque<Stretch>,
    /// Bytes of the first chunk that were sent.
    sent: usize,
    bytes: usize,
}

impl Outgoing {
    /// Bytes that were not sent.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Takes out the chunk that the next frame goes to, which may hold other frames already; [`Outgoing::put_chunk`] puts it back.
    pub(crate) fn take_chunk(&mut self, chunks: &mut Chunks) -> Chunk {
        let last = self.chunks.pop_back_if(|last| matches!(last, Stretch::Own(chunk) if chunk.len() < CHUNK_BYTES));
        let bytes = match last {
            Some(Stretch::Own(chunk)) => chunk,
            _ => chunks.take(),
        };
        Chunk { before: bytes.len(), bytes }
    }

    /// Puts a chunk back, to which frames were added.
    pub(crate) fn put_chunk(&mut self, chunk: Chunk, chunks: &mut Chunks) {
        self.bytes += chunk.bytes.len() - chunk.before;
        match chunk.bytes.is_empty() {
            true => chunks.give_back(chunk.bytes),
            false => self.chunks.push_back(Stretch::Own(chunk.bytes)),
        }
    }

    /// Appends what `write` appends.
    pub(crate) fn append(&mut self, chunks: &mut Chunks, write: impl FnOnce(&mut Vec<u8>)) {
        let mut chunk = self.take_chunk(chunks);
        write(&mut chunk.bytes);
        self.put_chunk(chunk, chunks);
    }

    /// Appends bytes that lie in memory of their own.
    pub(crate) fn push(&mut self, bytes: Vec<u8>) {
        self.bytes += bytes.len();
        self.chunks.push_back(Stretch::Own(bytes));
    }

    /// Appends bytes that lie in the lane's memory, and stay there for as long.
    pub(crate) fn push_shared(&mut self, bytes: SharedBytes) {
        self.bytes += bytes.len();
        self.chunks.push_back(Stretch::Shared(bytes));
    }

    /// All bytes, in order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let mut sent = self.sent;
        let pieces = self.chunks.iter().map(move |chunk| &chunk.bytes()[std::mem::take(&mut sent)..]);
        pieces.filter(|piece| !piece.is_empty())
    }

    /// That the first `bytes` were sent.
    pub(crate) fn advance(&mut self, bytes: usize, chunks: &mut Chunks) {
        assert!(bytes <= self.bytes, "{bytes} of {} bytes cannot have been sent", self.bytes);
        self.bytes -= bytes;
        self.sent += bytes;
        while let Some(first) = self.chunks.pop_front_if(|first| self.sent >= first.bytes().len()) {
            self.sent -= first.bytes().len();
            if let Stretch::Own(chunk) = first {
                chunks.give_back(chunk);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_in_order_however_they_are_sent() {
        for step in [1, 7, 1000, 70_000] {
            let (mut out, mut chunks) = (Outgoing::default(), Chunks::default());
            let mut expected = Vec::new();
            for round in 0..20u8 {
                let piece = vec![round; 1 + usize::from(round) * 9_001];
                expected.extend_from_slice(&piece);
                match round % 4 {
                    0 => out.push(piece),
                    1 => {
                        let (first, second) = piece.split_at(piece.len() / 3);
                        out.push_shared(SharedBytes::copy_of(first));
                        out.push_shared(SharedBytes::copy_of(second));
                    }
                    _ => out.append(&mut chunks, |chunk| chunk.extend_from_slice(&piece)),
                }
            }
            let mut sent = Vec::new();
            while !out.is_empty() {
                let piece = out.pieces().next().expect("bytes lie in pieces");
                let length = step.min(piece.len());
                sent.extend_from_slice(&piece[..length]);
                out.advance(length, &mut chunks);
            }
            assert!(out.is_empty() && out.chunks.is_empty());
            assert_eq!(sent, expected, "in steps of {step}");
        }
    }

    #[test]
    fn memory_of_chunks_is_used_again_and_bounded() {
        let mut chunks = Chunks::default();
        for _ in 0..20 {
            chunks.give_back(Vec::with_capacity(1 << 20));
        }
        assert_eq!((chunks.spare.len(), chunks.bytes), (SPARE_CHUNKS_BYTES_MAX >> 20, chunks.spare.len() << 20));
        let kept = chunks.spare.len();
        chunks.give_back(Vec::with_capacity(SPARE_CHUNK_BYTES_MAX + 1));
        (0..kept).for_each(|_| assert!(chunks.take().capacity() >= 1 << 20));
        assert_eq!((chunks.take().capacity(), chunks.bytes), (0, 0));
    }
}
