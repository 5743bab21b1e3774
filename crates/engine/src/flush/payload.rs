//! The bytes of records that are added to a flush: where they come from, and how they get to their place.

use std::ops::Range;

use forebay_format::RecordKind;
use forebay_types::{Adler32, Crc32c, crc32c};

use super::OpenFlush;
use crate::planted::{Planted, planted};

/// Bytes are summed in parts of up to this size, or of a unit that they fill.
const PIECE_BYTES: usize = 16 << 10;

/// Where the bytes of a record come from.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// They are copied, piece by piece.
    Pieces(&'a [&'a [u8]]),
    /// So many are where [`OpenFlush::next_place`] said.
    Placed(usize),
}

/// The bytes of a record that is to be added.
pub(crate) struct Payload<'a> {
    source: Source<'a>,
    /// What they are added to, too, while they are in the processor's cache. Of what was not added anything may be in it.
    adler32: Option<&'a mut Adler32>,
}

impl<'a> Payload<'a> {
    pub(crate) const NONE: Payload<'static> = Payload { source: Source::Pieces(&[]), adler32: None };

    /// Bytes that lie in pieces.
    pub(crate) fn of(pieces: &'a [&'a [u8]]) -> Self {
        Payload { source: Source::Pieces(pieces), adler32: None }
    }

    /// So many bytes that are where they belong.
    pub(crate) fn placed(bytes: usize) -> Self {
        Payload { source: Source::Placed(bytes), adler32: None }
    }

    pub(crate) fn summed_in(self, adler32: Option<&'a mut Adler32>) -> Self {
        Payload { adler32, ..self }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self.source {
            Source::Pieces(pieces) => pieces.iter().map(|piece| piece.len()).sum(),
            Source::Placed(bytes) => bytes,
        }
    }

    /// Whether its bytes lie behind the last record, and nowhere else.
    pub(crate) fn is_placed(&self) -> bool {
        matches!(self.source, Source::Placed(_))
    }
}

/// The payload has another checksum than its record. It was not added; the flush is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChecksumMismatch;

/// Bytes of the data that lie together and are summed at once.
struct Part {
    shard: usize,
    /// In the shard's buffer.
    range: Range<usize>,
    /// They are a whole unit.
    is_unit: bool,
}

impl Part {
    fn len(&self) -> usize {
        self.range.len()
    }
}

impl OpenFlush {
    /// Where the payload of the next record will lie, part by part. Nobody counts what is put there before it is added.
    ///
    /// # Panics
    /// When it has no room.
    pub(crate) fn next_place(&mut self, payload_bytes: usize) -> Vec<&mut [u8]> {
        assert!(self.takes(RecordKind::Piece, payload_bytes), "{payload_bytes} bytes have no room");
        if planted(Planted::PlaceEncoded) {
            self.encode_full_rows(self.data_bytes + payload_bytes);
        }
        let (mut parts, mut at) = (Vec::new(), self.data_bytes);
        let end = at + payload_bytes;
        while at < end {
            let bytes = (self.place.unit_bytes as usize - at % self.place.unit_bytes as usize).min(end - at);
            parts.push((self.place_of(at), bytes));
            at += bytes;
        }
        let mut rests: Vec<(usize, &mut [u8])> = self.buffers.iter_mut().map(|buffer| (0, &mut buffer[..])).collect();
        let part_of = |((shard, offset), bytes): ((usize, usize), usize)| {
            // The parts of a shard lie one behind the other.
            let (rest_at, rest) = &mut rests[shard];
            let (part, after) = std::mem::take(rest)[offset - *rest_at..].split_at_mut(bytes);
            (*rest_at, *rest) = (offset + bytes, after);
            part
        };
        parts.into_iter().map(part_of).collect()
    }

    /// Has bytes at the end of the data, which stays where it was, if they have this sum.
    pub(super) fn take_checked(&mut self, payload: &mut Payload<'_>, crc: u32) -> Result<(), ChecksumMismatch> {
        let rows = self.rows_encoded;
        if self.take_in(payload) == crc {
            return Ok(());
        }
        self.rows_encoded = rows;
        self.unit_crcs.truncate(rows * self.place.shards.len());
        self.known_crcs.fill(None);
        Err(ChecksumMismatch)
    }

    /// Has bytes at the end of the data, which stays where it was, and returns their sum. All that is to be done with a byte is done while it is in the processor's cache:
    /// it is copied, summed, and encoded when its row is full.
    pub(super) fn take_in(&mut self, payload: &mut Payload<'_>) -> u32 {
        let (mut crc, mut at) = (Crc32c::default(), self.data_bytes);
        match payload.source {
            Source::Pieces(pieces) => {
                for mut rest in pieces.iter().copied() {
                    while !rest.is_empty() {
                        let part = self.part_at(at, rest.len());
                        let (copied, after) = rest.split_at(part.len());
                        self.buffers[part.shard][part.range.clone()].copy_from_slice(copied);
                        self.sum_part(at, &part, &mut crc, &mut payload.adler32);
                        (at, rest) = (at + part.len(), after);
                    }
                }
            }
            Source::Placed(bytes) => {
                let end = at + bytes;
                while at < end {
                    let part = self.part_at(at, end - at);
                    self.sum_part(at, &part, &mut crc, &mut payload.adler32);
                    at += part.len();
                }
            }
        }
        crc.finish()
    }

    /// The part of data of so many bytes behind `at` that is summed at once.
    fn part_at(&self, at: usize, bytes: usize) -> Part {
        let unit = self.place.unit_bytes as usize;
        let left = unit - at % unit;
        let is_unit = left == unit && bytes >= unit;
        let length = if is_unit { unit } else { left.min(PIECE_BYTES).min(bytes) };
        let (shard, offset) = self.place_of(at);
        Part { shard, range: offset..offset + length, is_unit }
    }

    /// Sums a part where it lies, and encodes the row that it fills.
    fn sum_part(&mut self, at: usize, part: &Part, crc: &mut Crc32c, adler32: &mut Option<&mut Adler32>) {
        let bytes = &self.buffers[part.shard][part.range.clone()];
        let of_unit = part.is_unit.then(|| crc32c(bytes));
        match of_unit {
            Some(of_unit) => crc.update_summed(of_unit, bytes.len() as u64),
            None => crc.update(bytes),
        }
        if let Some(adler32) = adler32 {
            adler32.update(bytes);
        }
        self.known_crcs[part.shard] = of_unit;
        self.encode_full_rows(at + part.len());
    }
}
