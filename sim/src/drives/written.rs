//! What was written, as it should lie on the drives: with that it can be told from their bytes what is lost, whoever may have forgotten it.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_format::{
    CHECKPOINTS_OFFSET, CheckpointHeader, FlushHeader, SUPERBLOCK_BYTES, SegmentId, Superblock, TableEntry,
};
use forebay_media::AlignedBuffer;
use forebay_types::limits::BLOCK_BYTES;

/// A flush as its lane wanted it.
pub(crate) struct FlushWritten {
    /// One of its headers: what all of them agree on.
    pub(crate) header: FlushHeader,
    /// Its records; empty until every data shard was handed over that holds their table.
    pub(crate) records: Vec<TableEntry>,
    data: BTreeMap<u8, Arc<AlignedBuffer>>,
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
            FlushWritten { header, records: records.unwrap_or_default(), data: BTreeMap::new() }
        });
        if known.records.is_empty() && shard < known.header.data_shards {
            known.data.insert(shard, Arc::clone(buffer));
            known.take_table();
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
    /// The table lies in the data: it is taken when all of it was handed over.
    fn take_table(&mut self) {
        let header = &self.header;
        let range = header.table_offset_bytes..header.table_offset_bytes + u64::from(header.table_bytes);
        let mut table = Vec::new();
        for extent in header.geometry().locate(range) {
            let Some(shard) = self.data.get(&extent.shard) else { return };
            let start = header.header_bytes as usize + extent.offset_in_shard_bytes as usize;
            table.extend_from_slice(&shard[start..start + extent.bytes]);
        }
        self.records = header.decode_table(&table).unwrap_or_default();
        self.data.clear();
    }
}
