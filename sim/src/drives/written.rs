//! What was written, as it should lie on the drives: with that it can be told from their bytes what is lost, whoever may have forgotten it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use forebay_format::{
    CHECKPOINTS_OFFSET, CheckpointHeader, EventFragment, FlushHeader, RecordKind, SUPERBLOCK_BYTES, SegmentId,
    Superblock, TableEntry, decode_event_directory, event_directory_bytes,
};
use forebay_media::AlignedBuffer;
use forebay_types::SourceId;
use forebay_types::limits::BLOCK_BYTES;

/// A flush as its lane wanted it.
pub(crate) struct FlushWritten {
    /// One of its headers: what all of them agree on.
    pub(crate) header: FlushHeader,
    /// Its records; empty until every data shard was handed over that holds their table.
    pub(crate) records: Vec<TableEntry>,
    /// What the records of whole events hold, by where they begin.
    pub(crate) directories: BTreeMap<u32, Vec<EventFragment>>,
    data: BTreeMap<u8, Arc<AlignedBuffer>>,
    is_known: bool,
}

/// Everything of interest that was handed to drives.
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) flushes: BTreeMap<(SegmentId, u32), FlushWritten>,
    /// By segment and digest: a segment may be closed again.
    pub(crate) closings: BTreeMap<(SegmentId, u128), FlushHeader>,
    /// Of each lane, start and number of the newest checkpoint that some drive took whole.
    pub(crate) checkpoints: BTreeMap<u16, (u64, u64)>,
    /// The newest superblock that some drive took.
    pub(crate) generation: u64,
}

impl Written {
    /// A write into a slot is handed over.
    pub(super) fn handed_over(&mut self, buffer: &Arc<AlignedBuffer>, bytes: usize) {
        if let Ok(header) = FlushHeader::decode(&buffer[bytes - BLOCK_BYTES..bytes])
            && header.is_closing()
        {
            self.closings.insert((header.segment, header.digest), header);
            return;
        }
        let Ok(header) = FlushHeader::decode(&buffer[..bytes]) else { return };
        if header.is_closing() {
            // Made anew on another drive.
            return;
        }
        let (shard, key) = (header.shard, (header.segment, header.flush));
        let known = self.flushes.entry(key).or_insert_with(|| {
            let records = header.inline_table(buffer).and_then(|table| header.decode_table(table).ok());
            let (directories, data) = (BTreeMap::new(), BTreeMap::new());
            FlushWritten { header, records: records.unwrap_or_default(), directories, data, is_known: false }
        });
        if !known.is_known && shard < known.header.data_shards {
            known.data.insert(shard, Arc::clone(buffer));
            known.is_known = known.take().is_some();
            if known.is_known {
                known.data.clear();
            }
        }
    }

    /// A write before the slots was carried out.
    pub(super) fn carried_out(&mut self, offset: u64, bytes: &[u8]) {
        if offset >= CHECKPOINTS_OFFSET {
            if let Ok(header) = CheckpointHeader::decode(bytes) {
                let newest = self.checkpoints.entry(header.lane).or_default();
                *newest = (*newest).max((header.epoch, header.sequence));
            }
        } else if bytes.len() >= SUPERBLOCK_BYTES
            && let Ok(superblock) = Superblock::decode(&bytes[..SUPERBLOCK_BYTES])
        {
            self.generation = self.generation.max(superblock.generation);
        }
    }
}

impl FlushWritten {
    /// Takes what lies in the data, when all of that was handed over: the table, and what whole events hold.
    fn take(&mut self) -> Option<()> {
        if self.records.is_empty() {
            let start = self.header.table_offset_bytes;
            let table = self.data_in(start..start + u64::from(self.header.table_bytes))?;
            self.records = self.header.decode_table(&table).unwrap_or_default();
        }
        let mut directories = BTreeMap::new();
        for whole in self.records.iter().filter(|record| record.kind == RecordKind::Event) {
            let bytes = self.data_in(directory_range(whole))?;
            let fragments = decode_event_directory(&bytes, u64::from(whole.bytes)).expect("as the lane wrote it");
            directories.insert(whole.offset_units, fragments);
        }
        self.directories = directories;
        Some(())
    }

    fn data_in(&self, range: Range<u64>) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        for extent in self.header.geometry().locate(range) {
            let shard = self.data.get(&extent.shard)?;
            let start = self.header.header_bytes as usize + extent.offset_in_shard_bytes as usize;
            bytes.extend_from_slice(&shard[start..start + extent.bytes]);
        }
        Some(bytes)
    }

    /// The fragments that a record holds: source, and where in the data of the flush lies what must be read for each. Of a record that is
    /// none, the source 0 and nothing.
    pub(crate) fn fragments_of(&self, record: &TableEntry) -> Vec<(SourceId, Vec<Range<u64>>)> {
        if record.kind != RecordKind::Event {
            let ranges = if record.bytes > 0 { vec![record.payload_range()] } else { Vec::new() };
            return vec![(record.source, ranges)];
        }
        let head = directory_range(record);
        let mut at = head.end;
        let fragment = |fragment: &EventFragment| {
            let range = at..at + u64::from(fragment.bytes);
            at = range.end;
            let needed = [head.clone(), range].into_iter().filter(|range| !range.is_empty()).collect();
            (fragment.source, needed)
        };
        self.directories.get(&record.offset_units).into_iter().flatten().map(fragment).collect()
    }
}

/// Where the directory of a whole event lies.
fn directory_range(whole: &TableEntry) -> Range<u64> {
    let start = whole.payload_range().start;
    start..start + event_directory_bytes(whole.source.0 as usize) as u64
}
