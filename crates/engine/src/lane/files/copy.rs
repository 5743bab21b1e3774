//! What compaction moves of files: parts of pieces that count, holes, states and sums, each with its version.

use forebay_format::{FileChange, FileRecord, TableEntry};

use super::Lane;
use crate::flush::NewRecord;
use crate::lane::compact::{CopyOf, Live};
use crate::pieces::Pieces;
use crate::planted::{Planted, planted};
use crate::segments::SegmentIndex;

/// What is to be copied of a record without payload.
pub(in crate::lane) fn live_record(entry: &TableEntry) -> Option<Live> {
    FileRecord::of(entry).map(|record| Live::File(record, Pieces::default()))
}

impl Lane {
    /// A piece was read: the parts of it that count.
    pub(in crate::lane) fn parts_to_copy(
        &self,
        segment: SegmentIndex,
        entry: &TableEntry,
        payload: &Pieces,
    ) -> Vec<Live> {
        let record = FileRecord::of(entry).expect("it is a piece");
        let FileChange::Piece { start: of_record, .. } = record.change else { unreachable!("it is a piece") };
        let Some(file) = self.files.get(record.file) else { return Vec::new() };
        let payload_bytes = payload.bytes();
        let payload_end = of_record + payload_bytes as u64;
        let parts = file.in_range(of_record..payload_end);
        let counts = parts
            .filter(|(_, extent)| !extent.is_hole() && extent.segment == segment && extent.version == record.version);
        let part = |(start, extent): (u64, crate::files::Extent)| {
            let at = extent.skip as usize;
            let bytes = payload.slice(at..at + extent.bytes as usize)?;
            let crc = if bytes.bytes() == payload_bytes { extent.crc } else { bytes.crc32c() };
            let change = FileChange::Piece { start, bytes: extent.bytes, crc, appended: false };
            Some(Live::File(FileRecord { change, ..record }, bytes))
        };
        counts.filter(|(_, extent)| extent.payload_bytes() as usize == payload_bytes).filter_map(part).collect()
    }

    /// The record that is to be written for one that lived in `old`, if anything of it still does.
    pub(in crate::lane) fn copy_of_file_record(
        &self,
        old: SegmentIndex,
        record: &FileRecord,
    ) -> Option<(NewRecord, CopyOf)> {
        let file = self.files.get(record.file)?;
        let lives = match record.change {
            FileChange::Piece { start, bytes, .. } => file
                .in_range(start..start + u64::from(bytes))
                .any(|(_, extent)| (extent.segment, extent.version, extent.is_hole()) == (old, record.version, false)),
            _ => file.lives_in(old, 0, record),
        };
        let version = record.version + if planted(Planted::CopyOutranksWrite) { 2 } else { 0 };
        lives.then(|| (NewRecord::of(&FileRecord { version, ..*record }.entry()), CopyOf::File))
    }
}
