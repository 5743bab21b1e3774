//! The table of a whole segment: the data of its closing flush.

use forebay_types::limits::BLOCK_BYTES;

use crate::FormatError;
use crate::error::{ensure, within};
use crate::field::{check_width, layout, only_known};
use crate::geometry::RowGeometry;
use crate::record::{TABLE_ENTRY_BYTES, TableEntry};
use crate::version::{self, LAYOUT_VERSION, ProgramVersion};

const WHAT: &str = "table of a segment";

layout!(
    /// Before the entries.
    segment_table, 16 {
        VERSION: u16 = 0;
        FLAGS: u16 = 2;
        FLUSH_COUNT: u32 = 4;
        RECORD_COUNT: u32 = 8;
        ROOM: [u8; 4] = 12;
    }
);

layout!(
    /// One flush of the segment.
    flush_entry, 40 {
        OFFSET_BYTES: u64 = 0;
        DATA_BYTES: u64 = 8;
        FIRST_SEQUENCE: u64 = 16;
        FLUSH: u32 = 24;
        HEADER_BYTES: u32 = 28;
        RECORD_COUNT: u32 = 32;
        FLAGS: u32 = 36;
    }
);

/// One flush in the table of its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushEntry {
    /// Its number in the segment.
    pub flush: u32,
    /// Where its header begins in the slot.
    pub offset_bytes: u64,
    /// Bytes of its header; its units follow.
    pub header_bytes: u32,
    /// Bytes of its data.
    pub data_bytes: u64,
    /// Its records.
    pub record_count: u32,
    /// Sequence of its first record.
    pub first_sequence: u64,
}

/// Every flush and every record of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentTable {
    /// Its flushes by number, without the closing one.
    pub flushes: Vec<FlushEntry>,
    /// Their records, flush by flush.
    pub records: Vec<TableEntry>,
}

impl SegmentTable {
    /// Bytes of the encoded table of this many flushes and records.
    pub fn encoded_bytes(flushes: usize, records: usize) -> usize {
        segment_table::BYTES + flushes * flush_entry::BYTES + records * TABLE_ENTRY_BYTES
    }

    /// The table's bytes.
    ///
    /// # Panics
    /// When [`SegmentTable::decode`] would refuse the result.
    pub fn encode(&self) -> Vec<u8> {
        if let Err(error) = self.check() {
            panic!("a table that could not be read must not be written: {error}");
        }
        let mut bytes = vec![0; Self::encoded_bytes(self.flushes.len(), self.records.len())];
        let (head, rest) = bytes.split_at_mut(segment_table::BYTES);
        segment_table::VERSION.put(head, LAYOUT_VERSION);
        segment_table::FLUSH_COUNT.put(head, self.flushes.len() as u32);
        segment_table::RECORD_COUNT.put(head, self.records.len() as u32);
        let (flushes, records) = rest.split_at_mut(self.flushes.len() * flush_entry::BYTES);
        for (entry, flush) in flushes.chunks_exact_mut(flush_entry::BYTES).zip(&self.flushes) {
            flush.put(entry);
        }
        for (entry, record) in records.as_chunks_mut::<TABLE_ENTRY_BYTES>().0.iter_mut().zip(&self.records) {
            record.encode_into(entry);
        }
        bytes
    }

    /// Reads a table; `bytes` is exactly it. Its CRC is in the header of the closing flush and is
    /// checked by [`FlushHeader::check_table_crc`](crate::FlushHeader::check_table_crc).
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn decode(bytes: &[u8]) -> Result<SegmentTable, FormatError> {
        let available = bytes.len() as u64;
        let truncated = |needed| FormatError::Truncated { what: WHAT, needed, available };
        let Some((head, rest)) = bytes.split_at_checked(segment_table::BYTES) else {
            return Err(truncated(segment_table::BYTES as u64));
        };
        let found = segment_table::VERSION.get(head);
        if !version::is_read(found) {
            return Err(FormatError::Version { what: WHAT, found, program: ProgramVersion::default() });
        }
        only_known(WHAT, u32::from(segment_table::FLAGS.get(head)), 0)?;
        let flush_count = u64::from(segment_table::FLUSH_COUNT.get(head));
        let record_count = u64::from(segment_table::RECORD_COUNT.get(head));
        let flush_bytes = flush_count * flush_entry::BYTES as u64;
        let needed = (segment_table::BYTES as u64) + flush_bytes + record_count * TABLE_ENTRY_BYTES as u64;
        if needed > available {
            return Err(truncated(needed));
        }
        ensure(needed == available, WHAT, "it ends after its last record", available, needed)?;
        let (flushes, entries) = rest.split_at(flush_bytes as usize);
        let flushes = flushes.chunks_exact(flush_entry::BYTES).map(FlushEntry::get).collect::<Result<_, _>>()?;
        let entries = entries.as_chunks::<TABLE_ENTRY_BYTES>().0;
        let mut records = Vec::with_capacity(entries.len());
        for entry in entries {
            records.push(TableEntry::decode(entry)?);
        }
        let table = SegmentTable { flushes, records };
        table.check()?;
        Ok(table)
    }

    /// Every flush with its records.
    ///
    /// # Panics
    /// When flushes have more records than there are: a table that was decoded is checked.
    pub fn by_flush(&self) -> impl Iterator<Item = (&FlushEntry, &[TableEntry])> {
        let mut rest = self.records.as_slice();
        self.flushes.iter().map(move |flush| {
            let (records, after) = rest.split_at(flush.record_count as usize);
            rest = after;
            (flush, records)
        })
    }

    /// `Ok` when every flush lies in a slot of `slot_bytes`, none over the next, in a segment with this
    /// many data shards and units of `unit_bytes`.
    ///
    /// # Errors
    /// [`FormatError::Inconsistent`].
    pub fn check_in_slot(&self, slot_bytes: u64, data_shards: u8, unit_bytes: u32) -> Result<(), FormatError> {
        check_width(WHAT, data_shards, 0, unit_bytes)?;
        let mut free_from = 0;
        for flush in &self.flushes {
            let (begin, block) = (flush.offset_bytes, BLOCK_BYTES as u64);
            let header_bytes = u64::from(flush.header_bytes);
            let blocks = begin.is_multiple_of(block) && header_bytes.is_multiple_of(block) && header_bytes > 0;
            ensure(blocks, WHAT, "headers are whole blocks at blocks", begin, header_bytes)?;
            ensure(begin >= free_from, WHAT, "flushes do not overlap", begin, free_from)?;
            let geometry = RowGeometry { data_shards, unit_bytes, data_bytes: flush.data_bytes };
            let end = geometry
                .checked_shard_bytes()
                .and_then(|shard_bytes| begin.checked_add(header_bytes)?.checked_add(shard_bytes));
            free_from = end.unwrap_or(u64::MAX);
            let fits = end.is_some_and(|end| end <= slot_bytes);
            ensure(fits, WHAT, "flushes lie in their slot", free_from, slot_bytes)?;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), FormatError> {
        within("flushes of a segment", self.flushes.len() as u64, u64::from(u32::MAX))?;
        within("records of a segment", self.records.len() as u64, u64::from(u32::MAX))?;
        let records: u64 = self.flushes.iter().map(|flush| u64::from(flush.record_count)).sum();
        let listed = self.records.len() as u64;
        ensure(records == listed, WHAT, "each record belongs to a flush", listed, records)?;
        for pair in self.flushes.windows(2) {
            let ascending = pair[0].flush < pair[1].flush;
            ensure(ascending, WHAT, "flushes are in their order", pair[1].flush, pair[0].flush)?;
        }
        for (flush, records) in self.by_flush() {
            let last = flush.first_sequence.checked_add(u64::from(flush.record_count));
            ensure(last.is_some(), WHAT, "sequences do not run over", flush.first_sequence, flush.record_count)?;
            records.iter().try_for_each(|record| record.check_in(flush.data_bytes))?;
        }
        Ok(())
    }
}

impl FlushEntry {
    fn put(&self, entry: &mut [u8]) {
        use flush_entry as field;
        field::OFFSET_BYTES.put(entry, self.offset_bytes);
        field::DATA_BYTES.put(entry, self.data_bytes);
        field::FIRST_SEQUENCE.put(entry, self.first_sequence);
        field::FLUSH.put(entry, self.flush);
        field::HEADER_BYTES.put(entry, self.header_bytes);
        field::RECORD_COUNT.put(entry, self.record_count);
        field::FLAGS.put(entry, 0);
    }

    fn get(entry: &[u8]) -> Result<Self, FormatError> {
        use flush_entry as field;
        only_known("flush in the table of a segment", field::FLAGS.get(entry), 0)?;
        Ok(FlushEntry {
            flush: field::FLUSH.get(entry),
            offset_bytes: field::OFFSET_BYTES.get(entry),
            header_bytes: field::HEADER_BYTES.get(entry),
            data_bytes: field::DATA_BYTES.get(entry),
            record_count: field::RECORD_COUNT.get(entry),
            first_sequence: field::FIRST_SEQUENCE.get(entry),
        })
    }
}
