//! Bytes of files that are in memory, handed on where they lie.

use std::ops::Range;

use forebay_types::{Crc32c, FileNumber, ReadOutcome, crc32c_of_both};

use super::Lane;
use super::read::record_of;
use crate::files::Extent;
use crate::shared::SharedBytes;

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
    /// Bytes of a file from `start` on, as many as [`Lane::read_file`] gives, without a copy of them. `None` when they are not in memory as they were written, all
    /// of them and sound, or when there is something else to say of the file: then that method has it.
    pub fn share_file(&mut self, file: FileNumber, start: u64, bytes: u32) -> Option<SharedRange> {
        if self.outcome_of_unknown_file(file) != ReadOutcome::NotFound {
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
        let mut sharing = Sharing::default();
        for (start, extent) in self.files.get(file)?.in_range(range.clone()) {
            let (start, extent) = extent.part(start, &range).expect("it meets the range");
            // What was never written is nowhere in memory.
            let follows = start == range.start + sharing.bytes && !extent.is_hole();
            if !follows || !self.share_part(&extent, &mut sharing) {
                return None;
            }
        }
        let Sharing { pieces, bytes, crc } = sharing;
        (bytes == range.end - range.start).then_some(SharedRange { pieces, bytes: bytes as usize, crc })
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
