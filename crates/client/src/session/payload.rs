//! The bytes of puts: copied together into memory that is used again, or shared with the caller.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::chunks::Chunks;

/// Shorter payloads are copied even when they could be shared: a piece of its own costs more than that.
const SHARED_BYTES_MIN: usize = 2 << 10;

/// Chunks that were filled and are kept, to be filled again.
const CHUNKS_MAX: usize = 40;

/// The bytes of a put, or that are written to a file.
#[derive(Clone, Copy, Debug)]
pub enum PutBytes<'a> {
    /// They are copied.
    Copied(&'a [u8]),
    /// They are shared until they have their result.
    Shared(&'a Bytes),
}

impl<'a> From<&'a [u8]> for PutBytes<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        PutBytes::Copied(bytes)
    }
}

impl<'a> From<&'a Bytes> for PutBytes<'a> {
    fn from(bytes: &'a Bytes) -> Self {
        PutBytes::Shared(bytes)
    }
}

impl PutBytes<'_> {
    pub(crate) fn len(self) -> usize {
        match self {
            PutBytes::Copied(bytes) => bytes.len(),
            PutBytes::Shared(bytes) => bytes.len(),
        }
    }
}

/// Payloads one behind the other. Each lies within one piece.
#[derive(Debug, Default)]
pub(super) struct Payload {
    pieces: Vec<Bytes>,
    bytes: usize,
}

impl Payload {
    /// Bytes that are shared, whatever their number.
    pub(super) fn of(bytes: Bytes) -> Payload {
        Payload { bytes: bytes.len(), pieces: if bytes.is_empty() { Vec::new() } else { vec![bytes] } }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    pub(super) fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// The payloads of these lengths, in order, not copied.
    pub(super) fn split(&self, lengths: impl Iterator<Item = usize>) -> impl Iterator<Item = Bytes> {
        let (mut piece, mut at) = (0, 0);
        lengths.map(move |length| {
            while piece < self.pieces.len() && at + length > self.pieces[piece].len() {
                assert_eq!(at, self.pieces[piece].len(), "a payload lies within one piece");
                (piece, at) = (piece + 1, 0);
            }
            let Range { start, end } = at..at + length;
            at = end;
            self.pieces.get(piece).map_or_else(Bytes::new, |bytes| bytes.slice(start..end))
        })
    }
}

/// A payload that grows.
pub(super) struct Filling {
    payload: Payload,
    chunk: Chunk,
    chunk_bytes: usize,
    filled: Chunks,
}

/// Where copies go.
#[derive(Default)]
struct Chunk {
    /// What was copied and is not yet a piece, and the room behind it.
    rest: BytesMut,
    bytes: usize,
}

impl Filling {
    /// Copies go into chunks of so many bytes.
    pub(super) fn new(chunk_bytes: usize) -> Self {
        Filling {
            payload: Payload::default(),
            chunk: Chunk::default(),
            chunk_bytes,
            filled: Chunks::new(chunk_bytes, CHUNKS_MAX),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.payload.bytes
    }

    /// Appends a payload.
    pub(super) fn add(&mut self, source: PutBytes<'_>) {
        match source {
            PutBytes::Shared(bytes) if bytes.len() >= SHARED_BYTES_MIN => {
                self.end_piece();
                self.payload.pieces.push(bytes.clone());
            }
            PutBytes::Shared(bytes) => self.copy(bytes),
            PutBytes::Copied(bytes) => self.copy(bytes),
        }
        self.payload.bytes += source.len();
    }

    fn copy(&mut self, bytes: &[u8]) {
        if self.chunk.rest.capacity() - self.chunk.rest.len() < bytes.len() {
            self.end_piece();
            self.next_chunk(bytes.len());
        }
        self.chunk.rest.extend_from_slice(bytes);
    }

    fn end_piece(&mut self) {
        if !self.chunk.rest.is_empty() {
            self.payload.pieces.push(self.chunk.rest.split().freeze());
        }
    }

    /// A chunk with room for `bytes`. Larger ones than usual are not kept.
    fn next_chunk(&mut self, bytes: usize) {
        let room = bytes.max(self.chunk_bytes);
        let next = Chunk { rest: self.filled.take(room), bytes: room };
        let before = std::mem::replace(&mut self.chunk, next);
        if before.bytes == self.chunk_bytes {
            self.filled.keep(before.rest);
        }
    }

    /// Takes what there is; it begins anew.
    pub(super) fn take(&mut self) -> Payload {
        self.end_piece();
        std::mem::take(&mut self.payload)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes_of(payload: &Payload) -> Vec<u8> {
        payload.pieces().iter().flatten().copied().collect()
    }

    proptest! {
        /// Whatever is copied, shared, held and let go: each payload comes out as it went in.
        #[test]
        fn payloads_come_out_as_they_went_in(
            batches in prop::collection::vec((prop::collection::vec((0usize..9000, any::<bool>()), 0..12), any::<bool>()), 1..12)
        ) {
            let mut filling = Filling::new(8 << 10);
            let mut held = Vec::new();
            for (number, (payloads, hold)) in batches.into_iter().enumerate() {
                let payloads: Vec<(Bytes, bool)> =
                    payloads.into_iter().enumerate().map(|(i, (n, share))| (Bytes::from(vec![(number * 31 + i) as u8; n]), share)).collect();
                for (payload, share) in &payloads {
                    filling.add(if *share { PutBytes::Shared(payload) } else { PutBytes::Copied(payload) });
                }
                prop_assert_eq!(filling.len(), payloads.iter().map(|(payload, _)| payload.len()).sum::<usize>());
                let taken = filling.take();
                prop_assert_eq!(filling.len(), 0);
                held.push((taken, payloads));
                if !hold {
                    held.clear();
                }
                for (taken, payloads) in &held {
                    let expected: Vec<u8> = payloads.iter().flat_map(|(payload, _)| payload.iter().copied()).collect();
                    prop_assert_eq!(&bytes_of(taken), &expected);
                    let split: Vec<Bytes> = taken.split(payloads.iter().map(|(payload, _)| payload.len())).collect();
                    prop_assert!(split.iter().zip(payloads).all(|(split, (payload, _))| split == payload));
                }
            }
        }
    }

    #[test]
    fn memory_is_used_again() {
        let mut filling = Filling::new(4 << 10);
        let mut places = std::collections::BTreeSet::new();
        for _ in 0..100 {
            filling.add(PutBytes::Copied(&[7; 4096]));
            places.insert(filling.take().pieces()[0].as_ptr() as usize);
        }
        assert!(places.len() <= 3, "{} chunks were made for one batch at a time", places.len());
    }

    #[test]
    fn what_is_shared_is_not_copied() {
        let payload = Bytes::from(vec![7; SHARED_BYTES_MIN]);
        let mut filling = Filling::new(4 << 10);
        filling.add(PutBytes::Copied(b"before"));
        filling.add(PutBytes::Shared(&payload));
        let taken = filling.take();
        assert_eq!(taken.pieces()[1].as_ptr(), payload.as_ptr());
        assert_eq!(taken.len(), 6 + payload.len());
    }
}
