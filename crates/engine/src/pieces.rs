//! Bytes as they lie in the buffers that they were read into: what is only written again needs no place of its own.

use std::ops::Range;
use std::rc::Rc;

use forebay_media::AlignedBuffer;
use forebay_types::Crc32c;
use smallvec::SmallVec;

use crate::io::Io;

/// What a read of a drive filled. It is used again when nobody has a piece of it any more.
pub(crate) struct ReadBuffer {
    io: Io,
    buffer: Option<AlignedBuffer>,
}

impl ReadBuffer {
    pub(crate) fn new(io: Io, buffer: AlignedBuffer) -> Rc<ReadBuffer> {
        Rc::new(ReadBuffer { io, buffer: Some(buffer) })
    }
}

impl AsRef<[u8]> for ReadBuffer {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_ref().expect("it goes back when this is dropped")
    }
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        self.io.give_back(self.buffer.take().expect("nothing else takes it"));
    }
}

/// A part of a buffer.
#[derive(Clone)]
struct Piece {
    of: Rc<dyn AsRef<[u8]>>,
    range: Range<usize>,
}

/// Bytes that lie in pieces, one behind the other. Those of a record are few as a rule, and there are as many records as are copied: they take no memory of their own.
#[derive(Clone, Default)]
pub(crate) struct Pieces(SmallVec<[Piece; 2]>);

impl Pieces {
    pub(crate) fn push(&mut self, of: Rc<dyn AsRef<[u8]>>, range: Range<usize>) {
        debug_assert!(range.end <= (*of).as_ref().len());
        self.0.push(Piece { of, range });
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|piece| &(*piece.of).as_ref()[piece.range.clone()])
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|piece| piece.range.len()).sum()
    }

    pub(crate) fn crc32c(&self) -> u32 {
        let mut crc = Crc32c::default();
        self.iter().for_each(|piece| crc.update(piece));
        crc.finish()
    }

    pub(crate) fn append_to(&self, into: &mut Vec<u8>) {
        self.iter().for_each(|piece| into.extend_from_slice(piece));
    }

    /// A part of them; `None` when not all of it is there.
    pub(crate) fn slice(&self, range: Range<usize>) -> Option<Pieces> {
        let (mut part, mut at) = (Pieces::default(), 0);
        for Piece { of, range: all } in &self.0 {
            let from = range.start.clamp(at, at + all.len()) - at;
            let to = range.end.clamp(at, at + all.len()) - at;
            if from < to {
                part.push(Rc::clone(of), all.start + from..all.start + to);
            }
            at += all.len();
            if range.end <= at {
                return Some(part);
            }
        }
        (range.end <= at).then_some(part)
    }
}

impl From<Vec<u8>> for Pieces {
    fn from(bytes: Vec<u8>) -> Pieces {
        let mut pieces = Pieces::default();
        let all = 0..bytes.len();
        if !bytes.is_empty() {
            pieces.push(Rc::new(bytes), all);
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use forebay_types::crc32c;

    use super::*;

    impl Pieces {
        pub(crate) fn to_vec(&self) -> Vec<u8> {
            let mut bytes = Vec::with_capacity(self.bytes());
            self.append_to(&mut bytes);
            bytes
        }
    }

    #[test]
    fn a_part_is_that_of_the_bytes_wherever_they_lie() {
        let all: Vec<u8> = (0..=99).collect();
        let (first, second) = (Rc::new(all.clone()), Rc::new(all.clone()));
        let mut pieces = Pieces::default();
        for (of, range) in [(&first, 0..10), (&second, 10..40), (&first, 40..41), (&second, 41..100)] {
            pieces.push(Rc::<Vec<u8>>::clone(of), range);
        }
        assert_eq!((pieces.to_vec(), pieces.crc32c()), (all.clone(), crc32c(&all)));
        for start in 0..=100 {
            for end in start..=100 {
                assert_eq!(pieces.slice(start..end).expect("it is there").to_vec(), all[start..end]);
            }
        }
        assert!(pieces.slice(90..101).is_none());
    }

    #[test]
    fn a_buffer_is_used_again_when_the_last_piece_is_gone() {
        let io = Io::default();
        let buffer = AlignedBuffer::zeroed(4096);
        let place = buffer.as_ptr();
        let mut pieces = Pieces::default();
        pieces.push(ReadBuffer::new(io.clone(), buffer), 0..100);
        let part = pieces.slice(10..20).expect("it is there");
        drop(pieces);
        assert_ne!(io.buffer(4096).as_ptr(), place, "a piece of it is there");
        drop(part);
        assert_eq!(io.buffer(4096).as_ptr(), place);
    }
}
