//! The header that stands before each flush on each drive.

use forebay_types::limits::BLOCK_BYTES;
use forebay_types::{DriveUuid, EventId, RunId, StoreUuid, WallTime, crc32c};
use xxhash_rust::xxh3::Xxh3;

use crate::FormatError;
use crate::error::{ensure, within};
use crate::field::{FLAGS_REQUIRED, Kind, Stored, check_width, header_layout, layout, only_known, prefix};
use crate::geometry::RowGeometry;
use crate::record::{TABLE_ENTRY_BYTES, TableEntry};
use crate::segment::{SegmentId, ShardPlace, check_places, shard_place};
use crate::version::LAYOUT_VERSION;

/// Flag: this is the closing flush of its segment; its data are the table of the whole segment.
pub const FLUSH_CLOSING: u32 = 1;

/// Flag: the table of records lies in the header itself.
pub const FLUSH_INLINE_TABLE: u32 = 2;

/// Flag kept for compaction: the table is followed by the sequence of each record. Not yet written, and
/// refused when read.
pub const FLUSH_TABLE_HAS_SEQUENCES: u32 = 4;

/// Bytes of the longest header.
pub const FLUSH_HEADER_BYTES_MAX: usize = 1 << 20;

const WHAT: &str = "flush header";

pub(crate) const KIND: Kind = Kind { what: WHAT, magic: *b"FBFLUSH1", flags_known: FLUSH_CLOSING | FLUSH_INLINE_TABLE };

const UNIT_CRC_BYTES: usize = <u32 as Stored>::BYTES;

header_layout!(
    /// The fixed part.
    flush, 256 {
        OFFSET_BYTES: u64 = 56;
        SEGMENT: [u8; 16] = 64;
        FLUSH: u32 = 80;
        LANE: u16 = 84;
        SHARD: u8 = 86;
        DATA_SHARDS: u8 = 87;
        PARITY_SHARDS: u8 = 88;
        ROOM_2: [u8; 3] = 89;
        DURABLE_FLUSHES: u32 = 92;
        UNIT_BYTES: u32 = 96;
        ROWS: u32 = 100;
        LAST_UNIT_BYTES: u32 = 104;
        RECORD_COUNT: u32 = 108;
        UNITS_OFFSET_BYTES: u64 = 112;
        DATA_BYTES: u64 = 120;
        TABLE_OFFSET_BYTES: u64 = 128;
        TABLE_BYTES: u32 = 136;
        TABLE_CRC: u32 = 140;
        FIRST_SEQUENCE: u64 = 144;
        RUN_MIN: u32 = 152;
        RUN_MAX: u32 = 156;
        EVENT_MIN: u64 = 160;
        EVENT_MAX: u64 = 168;
        DIGEST: u128 = 176;
        WRITTEN_UNIX_MS: u64 = 192;
        ROOM_3: [u8; 56] = 200;
    }
);

/// Bytes of a header for a flush of this size, in whole blocks, without a table in it.
pub fn header_bytes_for(shards: usize, rows: usize) -> usize {
    table_offset_in_header(shards, rows).next_multiple_of(BLOCK_BYTES)
}

/// Bytes that a header of `header_bytes` leaves for a table.
pub fn space_for_inline_table(header_bytes: usize, shards: usize, rows: usize) -> usize {
    header_bytes.saturating_sub(table_offset_in_header(shards, rows))
}

fn table_offset_in_header(shards: usize, rows: usize) -> usize {
    flush::BYTES + shards * (shard_place::BYTES + rows * UNIT_CRC_BYTES)
}

/// The header of one flush on one drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushHeader {
    /// [`FLUSH_CLOSING`], [`FLUSH_INLINE_TABLE`].
    pub flags: u32,
    /// Bytes of this header: whole blocks.
    pub header_bytes: u32,
    /// The store.
    pub store: StoreUuid,
    /// The drive that this header lies on.
    pub drive: DriveUuid,
    /// Where this header begins on that drive.
    pub offset_bytes: u64,
    /// The lane.
    pub lane: u16,
    /// The segment.
    pub segment: SegmentId,
    /// Number of the flush in its segment, from 0.
    pub flush: u32,
    /// Which shard this drive holds; parity follows data.
    pub shard: u8,
    /// Data shards.
    pub data_shards: u8,
    /// Parity shards.
    pub parity_shards: u8,
    /// Where the first unit begins in the slot.
    pub units_offset_bytes: u64,
    /// Bytes of a unit.
    pub unit_bytes: u32,
    /// Rows.
    pub rows: u32,
    /// Bytes of the last row's units.
    pub last_unit_bytes: u32,
    /// Bytes of data: payloads and, when it is not in the header, the table.
    pub data_bytes: u64,
    /// Where the table begins in the data; 0 when it is in the header.
    pub table_offset_bytes: u64,
    /// Bytes of the table.
    pub table_bytes: u32,
    /// CRC32C of the table.
    pub table_crc: u32,
    /// Records of the flush; of the whole segment in a closing flush.
    pub record_count: u32,
    /// Smallest run of its records; 0 when there are none.
    pub run_min: RunId,
    /// Largest run of its records.
    pub run_max: RunId,
    /// Smallest event of its records.
    pub event_min: EventId,
    /// Largest event of its records.
    pub event_max: EventId,
    /// Record `i` has sequence `first_sequence + i`.
    pub first_sequence: u64,
    /// Flushes of this segment that were known durable when this header was made.
    pub durable_flushes: u32,
    /// Where all shards were written, this one included. After a rebuild the checkpoint's list counts.
    pub shards: Vec<ShardPlace>,
    /// CRC32C of every unit: `[shard * rows + row]`.
    pub unit_crcs: Vec<u32>,
    /// When it was written, for people. Zero in what versions wrote that did not say it, and when the clock was not known.
    pub written: WallTime,
    /// What all shards must agree on; see [`FlushHeader::compute_digest`].
    pub digest: u128,
}

impl FlushHeader {
    /// How the data lie in units.
    pub fn geometry(&self) -> RowGeometry {
        RowGeometry { data_shards: self.data_shards, unit_bytes: self.unit_bytes, data_bytes: self.data_bytes }
    }

    /// Whether this is the closing flush of its segment.
    pub fn is_closing(&self) -> bool {
        self.flags & FLUSH_CLOSING != 0
    }

    /// Whether the table of records lies in the header.
    pub fn has_inline_table(&self) -> bool {
        self.flags & FLUSH_INLINE_TABLE != 0
    }

    /// Data and parity shards together.
    pub fn shard_count(&self) -> usize {
        usize::from(self.data_shards) + usize::from(self.parity_shards)
    }

    /// The 128-bit XXH3 of all that shards must share to be combined: flags, segment, flush number,
    /// lane, widths, rows, data, table, records, sequence, the places of all shards and the CRCs of all
    /// units. Not the drive, the offset, the shard's number and what was durable, which differ, and not the time, which
    /// is for people.
    pub fn compute_digest(&self) -> u128 {
        let mut shared = [0; digest::BYTES];
        digest::FLAGS.put(&mut shared, self.flags & FLAGS_REQUIRED);
        digest::LANE.put(&mut shared, self.lane);
        digest::DATA_SHARDS.put(&mut shared, self.data_shards);
        digest::PARITY_SHARDS.put(&mut shared, self.parity_shards);
        self.segment.put(&mut shared[digest::SEGMENT.offset()..][..16]);
        digest::FLUSH.put(&mut shared, self.flush);
        digest::UNIT_BYTES.put(&mut shared, self.unit_bytes);
        digest::ROWS.put(&mut shared, self.rows);
        digest::LAST_UNIT_BYTES.put(&mut shared, self.last_unit_bytes);
        digest::DATA_BYTES.put(&mut shared, self.data_bytes);
        digest::TABLE_OFFSET_BYTES.put(&mut shared, self.table_offset_bytes);
        digest::TABLE_BYTES.put(&mut shared, self.table_bytes);
        digest::TABLE_CRC.put(&mut shared, self.table_crc);
        digest::FIRST_SEQUENCE.put(&mut shared, self.first_sequence);
        digest::RECORD_COUNT.put(&mut shared, self.record_count);
        digest::SHARD_COUNT.put(&mut shared, self.shards.len() as u32);
        let mut hash = Xxh3::new();
        hash.update(&shared);
        for place in &self.shards {
            let mut bytes = [0; shard_place::BYTES];
            place.put(&mut bytes);
            hash.update(&bytes);
        }
        // In pieces: for 320 units, four bytes at a time took 1.9 us and this 0.3 us.
        for crcs in self.unit_crcs.chunks(64) {
            let mut bytes = [0; 64 * UNIT_CRC_BYTES];
            for (bytes, crc) in bytes.chunks_exact_mut(UNIT_CRC_BYTES).zip(crcs) {
                crc.store(bytes);
            }
            hash.update(&bytes[..crcs.len() * UNIT_CRC_BYTES]);
        }
        hash.digest128()
    }

    /// Writes the header over `block`, which is `header_bytes` long. Allocates nothing.
    ///
    /// # Panics
    /// When [`FlushHeader::decode`] would refuse the result, or `inline_table` is not the table that the
    /// fields speak of: a flush that recovery could not read must never be acknowledged.
    pub fn encode_into(&self, inline_table: Option<&[u8]>, block: &mut [u8]) {
        use flush as field;
        if let Err(error) = self.check() {
            panic!("a flush header that could not be read must not be written: {error}");
        }
        assert_eq!(block.len(), self.header_bytes as usize, "bytes of the header");
        assert_eq!(inline_table.is_some(), self.has_inline_table(), "the flag says where the table is");
        field::STORE.put(block, self.store);
        field::DRIVE.put(block, self.drive);
        field::OFFSET_BYTES.put(block, self.offset_bytes);
        self.segment.put(&mut block[field::SEGMENT.offset()..][..16]);
        field::FLUSH.put(block, self.flush);
        field::LANE.put(block, self.lane);
        field::SHARD.put(block, self.shard);
        field::DATA_SHARDS.put(block, self.data_shards);
        field::PARITY_SHARDS.put(block, self.parity_shards);
        field::ROOM_2.put(block, [0; 3]);
        field::DURABLE_FLUSHES.put(block, self.durable_flushes);
        field::UNIT_BYTES.put(block, self.unit_bytes);
        field::ROWS.put(block, self.rows);
        field::LAST_UNIT_BYTES.put(block, self.last_unit_bytes);
        field::RECORD_COUNT.put(block, self.record_count);
        field::UNITS_OFFSET_BYTES.put(block, self.units_offset_bytes);
        field::DATA_BYTES.put(block, self.data_bytes);
        field::TABLE_OFFSET_BYTES.put(block, self.table_offset_bytes);
        field::TABLE_BYTES.put(block, self.table_bytes);
        field::TABLE_CRC.put(block, self.table_crc);
        field::FIRST_SEQUENCE.put(block, self.first_sequence);
        field::RUN_MIN.put(block, self.run_min.0);
        field::RUN_MAX.put(block, self.run_max.0);
        field::EVENT_MIN.put(block, self.event_min.0);
        field::EVENT_MAX.put(block, self.event_max.0);
        field::DIGEST.put(block, self.digest);
        field::WRITTEN_UNIX_MS.put(block, self.written.0);
        field::ROOM_3.put(block, [0; 56]);
        let (places, rest) = block[flush::BYTES..].split_at_mut(self.shards.len() * shard_place::BYTES);
        for (bytes, place) in places.chunks_exact_mut(shard_place::BYTES).zip(&self.shards) {
            place.put(bytes);
        }
        let (crcs, rest) = rest.split_at_mut(self.unit_crcs.len() * UNIT_CRC_BYTES);
        for (bytes, crc) in crcs.chunks_exact_mut(UNIT_CRC_BYTES).zip(&self.unit_crcs) {
            crc.store(bytes);
        }
        let table = inline_table.unwrap_or_default();
        if self.has_inline_table() {
            assert_eq!(table.len(), self.table_bytes as usize, "bytes of the table");
            assert_eq!(crc32c(table), self.table_crc, "CRC of the table");
        }
        let (space, rest) = rest.split_at_mut(table.len());
        space.copy_from_slice(table);
        rest.fill(0);
        prefix::ROOM.put(block, [0; 2]);
        KIND.seal(block, LAYOUT_VERSION, self.flags);
    }

    /// Reads from the first block of a header how long the whole is. Nothing but magic, version and
    /// the length's limits is checked.
    ///
    /// # Errors
    /// [`FormatError`] when there is no header that this version reads.
    pub fn peek_header_bytes(first_block: &[u8]) -> Result<usize, FormatError> {
        KIND.header_bytes(first_block, FLUSH_HEADER_BYTES_MAX)
    }

    /// Reads from the first block of a header which flush it speaks of, as [`FlushHeader::peek_header_bytes`] reads how long it is.
    ///
    /// # Errors
    /// [`FormatError`] when there is no header that this version reads.
    pub fn peek_flush(first_block: &[u8]) -> Result<u32, FormatError> {
        FlushHeader::peek_header_bytes(first_block)?;
        let cut =
            FormatError::Truncated { what: WHAT, needed: flush::BYTES as u64, available: first_block.len() as u64 };
        first_block.get(..flush::BYTES).map(|block| flush::FLUSH.get(block)).ok_or(cut)
    }

    /// Reads a header from the start of `bytes`, which may be longer.
    ///
    /// # Errors
    /// [`FormatError`]; [`FormatError::Truncated`] says how many bytes to read when there are too few.
    pub fn decode(bytes: &[u8]) -> Result<FlushHeader, FormatError> {
        use flush as field;
        let (block, flags) = KIND.open(bytes, FLUSH_HEADER_BYTES_MAX)?;
        let (data_shards, parity_shards) = (field::DATA_SHARDS.get(block), field::PARITY_SHARDS.get(block));
        let unit_bytes = field::UNIT_BYTES.get(block);
        check_width(WHAT, data_shards, parity_shards, unit_bytes)?;
        let shard_count = usize::from(data_shards) + usize::from(parity_shards);
        let rows = field::ROWS.get(block);
        let rows_max = (block.len() - flush::BYTES) / UNIT_CRC_BYTES;
        within("rows of a flush", u64::from(rows), rows_max as u64)?;
        check_fits(block.len(), shard_count, rows, 0)?;
        let (places, rest) = block[flush::BYTES..].split_at(shard_count * shard_place::BYTES);
        let crcs = &rest[..shard_count * rows as usize * UNIT_CRC_BYTES];
        let header = FlushHeader {
            flags,
            header_bytes: field::HEADER_BYTES.get(block),
            store: field::STORE.get(block),
            drive: field::DRIVE.get(block),
            offset_bytes: field::OFFSET_BYTES.get(block),
            lane: field::LANE.get(block),
            segment: SegmentId::get(&field::SEGMENT.get(block)),
            flush: field::FLUSH.get(block),
            shard: field::SHARD.get(block),
            data_shards,
            parity_shards,
            units_offset_bytes: field::UNITS_OFFSET_BYTES.get(block),
            unit_bytes,
            rows,
            last_unit_bytes: field::LAST_UNIT_BYTES.get(block),
            data_bytes: field::DATA_BYTES.get(block),
            table_offset_bytes: field::TABLE_OFFSET_BYTES.get(block),
            table_bytes: field::TABLE_BYTES.get(block),
            table_crc: field::TABLE_CRC.get(block),
            record_count: field::RECORD_COUNT.get(block),
            run_min: RunId(field::RUN_MIN.get(block)),
            run_max: RunId(field::RUN_MAX.get(block)),
            event_min: EventId(field::EVENT_MIN.get(block)),
            event_max: EventId(field::EVENT_MAX.get(block)),
            first_sequence: field::FIRST_SEQUENCE.get(block),
            durable_flushes: field::DURABLE_FLUSHES.get(block),
            shards: places.chunks_exact(shard_place::BYTES).map(ShardPlace::get).collect(),
            unit_crcs: crcs.chunks_exact(UNIT_CRC_BYTES).map(u32::load).collect(),
            written: WallTime(field::WRITTEN_UNIX_MS.get(block)),
            digest: field::DIGEST.get(block),
        };
        header.check()?;
        if let Some(table) = header.inline_table(block) {
            header.check_table_crc(table)?;
        }
        Ok(header)
    }

    /// The table that lies in this header, whose bytes are at the start of `bytes`; `None` when the
    /// table lies in the data or `bytes` are too few.
    pub fn inline_table<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        if !self.has_inline_table() {
            return None;
        }
        let start = table_offset_in_header(self.shard_count(), self.rows as usize);
        bytes.get(start..start + self.table_bytes as usize)
    }

    /// Reads the flush's table of records and checks it against this header: CRC, length, and that
    /// every payload lies in the data. Not for closing flushes, whose table is a
    /// [`SegmentTable`](crate::SegmentTable).
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn decode_table(&self, table: &[u8]) -> Result<Vec<TableEntry>, FormatError> {
        self.check_table_crc(table)?;
        let (entries, rest) = table.as_chunks::<TABLE_ENTRY_BYTES>();
        ensure(rest.is_empty(), "table of records", "it is whole entries", table.len() as u64, self.table_bytes)?;
        let found = entries.len() as u64;
        ensure(
            found == u64::from(self.record_count),
            "table of records",
            "it has all records",
            found,
            self.record_count,
        )?;
        let decode = |entry| {
            let entry = TableEntry::decode(entry)?;
            entry.check_in(self.data_bytes)?;
            Ok(entry)
        };
        entries.iter().map(decode).collect()
    }

    /// `Ok` when `table` is the table that the header speaks of.
    ///
    /// # Errors
    /// [`FormatError::Truncated`] and [`FormatError::Crc`].
    pub fn check_table_crc(&self, table: &[u8]) -> Result<(), FormatError> {
        let (needed, available) = (u64::from(self.table_bytes), table.len() as u64);
        if needed != available {
            return Err(FormatError::Truncated { what: "table of records", needed, available });
        }
        let (expected, found) = (self.table_crc, crc32c(table));
        if expected == found { Ok(()) } else { Err(FormatError::Crc { what: "table of records", expected, found }) }
    }

    /// `Ok` when header and units lie in the slot as they must: inside it, the units right behind the
    /// header, or, for a closing flush, right before it at the slot's end.
    ///
    /// # Errors
    /// [`FormatError::Inconsistent`].
    pub fn check_in_slot(&self, slot_offset: u64, slot_bytes: u64) -> Result<(), FormatError> {
        let (begin, header_bytes) = (self.offset_bytes, u64::from(self.header_bytes));
        let in_slot = |from: u64, bytes: u64| from.checked_add(bytes).is_some_and(|end| end <= slot_bytes);
        let at = begin.checked_sub(slot_offset).filter(|at| in_slot(*at, header_bytes));
        ensure(at.is_some(), WHAT, "it lies in its slot", begin, slot_offset)?;
        let at = at.unwrap_or_default();
        let shard_bytes = self.geometry().shard_bytes();
        let units = self.units_offset_bytes;
        let units_end = units.saturating_add(shard_bytes);
        if self.is_closing() {
            let last = slot_bytes - header_bytes;
            ensure(at == last, WHAT, "a closing header is the last block of its slot", at, last)?;
            return ensure(units_end == at, WHAT, "a closing unit lies right before its header", units_end, at);
        }
        ensure(units == at + header_bytes, WHAT, "units follow their header", units, at + header_bytes)?;
        ensure(in_slot(units, shard_bytes), WHAT, "its units lie in its slot", units_end, slot_bytes)
    }

    fn check(&self) -> Result<(), FormatError> {
        only_known(WHAT, self.flags & FLAGS_REQUIRED, KIND.flags_known)?;
        check_width(WHAT, self.data_shards, self.parity_shards, self.unit_bytes)?;
        let shard_count = self.shard_count();
        let shard = usize::from(self.shard);
        ensure(shard < shard_count, WHAT, "the shard is one of them", self.shard, shard_count as u64)?;
        let header_bytes = self.header_bytes as usize;
        let blocks = header_bytes > 0 && header_bytes.is_multiple_of(BLOCK_BYTES);
        ensure(blocks, WHAT, "it is whole blocks", self.header_bytes, BLOCK_BYTES as u64)?;
        within("length of a header", u64::from(self.header_bytes), FLUSH_HEADER_BYTES_MAX as u64)?;
        let in_header = if self.has_inline_table() { self.table_bytes } else { 0 };
        check_fits(header_bytes, shard_count, self.rows, in_header)?;
        check_places(WHAT, &self.shards, shard_count)?;
        let (crcs, units) = (self.unit_crcs.len() as u64, shard_count as u64 * u64::from(self.rows));
        ensure(crcs == units, WHAT, "each unit has its CRC", crcs, units)?;
        self.check_rows()?;
        self.check_table_place()?;
        self.check_records()?;
        let (expected, found) = (self.digest, self.compute_digest());
        if expected == found { Ok(()) } else { Err(FormatError::Digest { expected, found }) }
    }

    fn check_rows(&self) -> Result<(), FormatError> {
        let geometry = self.geometry();
        let rows = geometry.checked_rows().map_or(u64::MAX, u64::from);
        ensure(u64::from(self.rows) == rows, WHAT, "its rows hold its data", self.rows, rows)?;
        let last = geometry.last_unit_bytes();
        let fits = self.last_unit_bytes == last;
        ensure(fits, WHAT, "the last row is as short as its data allow", self.last_unit_bytes, last)?;
        let blocks = self.units_offset_bytes.is_multiple_of(BLOCK_BYTES as u64);
        ensure(blocks, WHAT, "units begin at a block", self.units_offset_bytes, BLOCK_BYTES as u64)
    }

    fn check_table_place(&self) -> Result<(), FormatError> {
        let (table, data) = (u64::from(self.table_bytes), self.data_bytes);
        if self.is_closing() {
            ensure(!self.has_inline_table(), WHAT, "a closing flush has its table as data", self.flags, FLUSH_CLOSING)?;
            let whole = self.table_offset_bytes == 0 && table == data;
            ensure(whole, WHAT, "the data of a closing flush are its table", data, table)?;
            ensure(self.rows == 1, WHAT, "a closing flush is one row", self.rows, 1u8)?;
            let (unit, last) = (self.unit_bytes, self.last_unit_bytes);
            ensure(unit == last, WHAT, "the unit of a closing flush is as short as its data allow", unit, last)?;
            let block = BLOCK_BYTES as u64;
            return ensure(
                u64::from(self.header_bytes) == block,
                WHAT,
                "a closing flush has a header of one block",
                self.header_bytes,
                block,
            );
        }
        let records = u64::from(self.record_count) * TABLE_ENTRY_BYTES as u64;
        ensure(table == records, WHAT, "the table has an entry for each record", table, records)?;
        if self.has_inline_table() {
            return ensure(
                self.table_offset_bytes == 0,
                WHAT,
                "a table in the header has no place in the data",
                self.table_offset_bytes,
                0u8,
            );
        }
        let end = self.table_offset_bytes.saturating_add(table);
        ensure(end <= data, WHAT, "the table lies in the data", end, data)
    }

    fn check_records(&self) -> Result<(), FormatError> {
        let runs = self.run_min <= self.run_max;
        ensure(runs, WHAT, "runs go from the smallest to the largest", self.run_min.0, self.run_max.0)?;
        let events = self.event_min <= self.event_max;
        ensure(events, WHAT, "events go from the smallest to the largest", self.event_min.0, self.event_max.0)?;
        let last = self.first_sequence.checked_add(u64::from(self.record_count));
        ensure(last.is_some(), WHAT, "sequences do not run over", self.first_sequence, self.record_count)
    }
}

/// `Ok` when places, CRCs and `table_bytes` of table fit into a header.
fn check_fits(header_bytes: usize, shards: usize, rows: u32, table_bytes: u32) -> Result<(), FormatError> {
    let shards = shards as u64;
    let units = shards * u64::from(rows) * UNIT_CRC_BYTES as u64;
    let needed = flush::BYTES as u64 + shards * shard_place::BYTES as u64 + units + u64::from(table_bytes);
    let available = header_bytes as u64;
    if needed <= available { Ok(()) } else { Err(FormatError::Truncated { what: WHAT, needed, available }) }
}

layout!(
    /// What the digest is computed over, before the places of the shards and the CRCs of the units.
    digest, 88 {
        FLAGS: u32 = 0;
        LANE: u16 = 4;
        DATA_SHARDS: u8 = 6;
        PARITY_SHARDS: u8 = 7;
        SEGMENT: [u8; 16] = 8;
        FLUSH: u32 = 24;
        UNIT_BYTES: u32 = 28;
        ROWS: u32 = 32;
        LAST_UNIT_BYTES: u32 = 36;
        DATA_BYTES: u64 = 40;
        TABLE_OFFSET_BYTES: u64 = 48;
        FIRST_SEQUENCE: u64 = 56;
        TABLE_BYTES: u32 = 64;
        TABLE_CRC: u32 = 68;
        RECORD_COUNT: u32 = 72;
        SHARD_COUNT: u32 = 76;
        ROOM: [u8; 8] = 80;
    }
);

/// The longest header of a closing flush: one block must hold it at any width.
const _: () =
    assert!(flush::BYTES + forebay_types::limits::SHARDS_MAX * (shard_place::BYTES + UNIT_CRC_BYTES) <= BLOCK_BYTES);
