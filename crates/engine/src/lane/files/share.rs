//! Bytes of files that are in memory, handed on where they lie.

use std::ops::Range;

use forebay_types::{Crc32c, FileNumber, ReadOutcome, crc32c_of_both};

use super::Lane;
use super::read::record_of;
use crate::files::{Extent, File};
use crate::shared::SharedBytes;

/// What is made of more records than one in so many bytes is copied: to keep track of that many pieces, and to hand them to the system, takes longer.
const RECORD_BYTES_MIN: u64 = 4 << 10;

/// Bytes of a file as they lie in memory.
pub struct SharedRange {
    /// One behind the other.
    pub pieces: Vec<SharedBytes>,
    /// Of all of them.
    pub bytes: usize,
    /// Their CRC32C.
    pub crc: u32,
}

/// What was shared so far.
#[derive(Default)]
struct Sharing {
    pieces: Vec<SharedBytes>,
    bytes: u64,
    crc: u32,
}

impl Lane {
    /// Bytes of a file from `start` on, as many as [`Lane::read_file`] gives, without a copy of them. `None` when they are not in memory that nothing else is written to,
    /// all of them and sound and in few pieces, or when there is something else to say of the file: then that method has it.
    pub fn share_file(&mut self, file: FileNumber, start: u64, bytes: u32) -> Option<SharedRange> {
        if self.outcome_of_hidden_file(file) != ReadOutcome::NotFound {
            return None;
        }
        let bytes = u64::from(self.bytes_there(file, start, bytes).ok()?);
        let shared = self.share_range(file, start..start + bytes)?;
        self.is_asked();
        self.counters.file_bytes_read += bytes;
        self.counters.file_bytes_read_cached += bytes;
        Some(shared)
    }

    fn share_range(&self, file: FileNumber, range: Range<u64>) -> Option<SharedRange> {
        // Nothing is summed that is copied, and summed, after all.
        let known = self.files.get(file)?;
        if !self.is_shareable(known, &range) {
            return None;
        }
        let mut sharing = Sharing::default();
        for (start, extent) in known.in_range(range.clone()) {
            let (_, extent) = extent.part(start, &range).expect("it meets the range");
            if !self.share_part(&extent, &mut sharing) {
                return None;
            }
        }
        let Sharing { pieces, bytes, crc } = sharing;
        assert_eq!(bytes, range.end - range.start, "its records follow each other");
        Some(SharedRange { pieces, bytes: bytes as usize, crc })
    }

    /// Whether a range is made of few records, one behind the other, which are in memory that nothing else is written to.
    fn is_shareable(&self, known: &File, range: &Range<u64>) -> bool {
        let (mut end, mut least_bytes) = (range.start, 0);
        for (start, extent) in known.in_range(range.clone()) {
            let (start, extent) = extent.part(start, range).expect("it meets the range");
            least_bytes += RECORD_BYTES_MIN;
            // What was never written is nowhere in memory.
            if start != end || extent.is_hole() || least_bytes > range.end - range.start {
                return false;
            }
            let place = self.span_of(&record_of(&extent));
            if !place.is_some_and(|(span, record)| self.cache.can_share(extent.segment, span.flush, &record)) {
                return false;
            }
            end = start + u64::from(extent.bytes);
        }
        end == range.end
    }

    /// What is wanted of a record, once all of it was compared with its sum: the sum of what is wanted comes of the same look at it.
    fn share_part(&self, extent: &Extent, sharing: &mut Sharing) -> bool {
        let Some((span, record)) = self.span_of(&record_of(extent)) else { return false };
        let from = record.start + u64::from(extent.skip);
        let wanted = from..from + u64::from(extent.bytes);
        let mut of_record = 0;
        for (part, is_wanted) in
            [(record.start..wanted.start, false), (wanted.clone(), true), (wanted.end..record.end, false)]
        {
            let before = sharing.pieces.len();
            if part.is_empty() {
                continue;
            }
            let bytes = part.end - part.start;
            if !self.cache.share(extent.segment, span.flush, part, &mut sharing.pieces) {
                return false;
            }
            let mut sum = Crc32c::default();
            sharing.pieces[before..].iter().for_each(|piece| sum.update(piece));
            let sum = sum.finish();
            of_record = crc32c_of_both(of_record, sum, bytes);
            if is_wanted {
                sharing.crc = crc32c_of_both(sharing.crc, sum, bytes);
                sharing.bytes += bytes;
            } else {
                sharing.pieces.truncate(before);
            }
        }
        of_record == extent.crc
    }
}
