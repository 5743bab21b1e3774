//! A flush while it fills: records get to their place on the shards, rows are encoded and their units
//! summed while they are hot in the processor's cache.

mod payload;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use forebay_erasure::Codec;
use forebay_format::{
    FLUSH_INLINE_TABLE, FileChange, FileRecord, FlushHeader, RecordKind, RowGeometry, SegmentId, ShardPlace,
    TABLE_ENTRY_BYTES, TableEntry, header_bytes_for, space_for_inline_table,
};
use forebay_media::AlignedBuffer;
use forebay_types::limits::{BLOCK_BYTES, PIECE_BYTES_MAX};
use forebay_types::{DriveUuid, EventId, EventKey, RunId, StoreUuid, WallTime, crc32c, crc32c_of_both};

use crate::planted::{Planted, planted};
use crate::segments::POSITION_BYTES;

pub(crate) use payload::{ChecksumMismatch, Payload};

/// What a flush lies in.
#[derive(Clone, Debug)]
pub(crate) struct FlushPlace {
    pub(crate) store: StoreUuid,
    pub(crate) lane: u16,
    pub(crate) segment: SegmentId,
    pub(crate) flush: u32,
    /// Of its header, from the slot's start.
    pub(crate) offset_bytes: u64,
    pub(crate) data_shards: u8,
    pub(crate) parity_shards: u8,
    pub(crate) unit_bytes: u32,
    /// What it takes of each drive is a multiple of this; more than a block with one data shard alone.
    pub(crate) multiple_bytes: usize,
    pub(crate) shards: Vec<ShardPlace>,
    pub(crate) first_sequence: u64,
}

/// A record that is to be added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewRecord {
    pub(crate) kind: RecordKind,
    pub(crate) flags: u8,
    pub(crate) expected: u16,
    pub(crate) run: RunId,
    pub(crate) event: EventId,
    pub(crate) source: u32,
    /// For a fragment, the checksum that the payload must have. Acceptances and releases have no payload; the upper half
    /// of their streams stands here.
    pub(crate) crc: u32,
    /// What stands in the place of the payload's length, when there is none.
    pub(crate) extra: u32,
}

impl NewRecord {
    /// The record once more that a table has.
    pub(crate) fn of(entry: &TableEntry) -> NewRecord {
        NewRecord {
            kind: entry.kind,
            flags: entry.flags,
            expected: entry.expected,
            run: entry.run,
            event: entry.event,
            source: entry.source.0,
            crc: entry.crc,
            extra: if entry.kind.has_payload() { 0 } else { entry.bytes },
        }
    }

    /// The event that it speaks of, or the file as one.
    pub(crate) fn key(&self) -> EventKey {
        self.without_payload().key()
    }

    /// The record as a table has it, when it has no payload.
    pub(crate) fn without_payload(&self) -> TableEntry {
        TableEntry {
            kind: self.kind,
            flags: self.flags,
            expected: self.expected,
            run: self.run,
            event: self.event,
            source: forebay_types::SourceId(self.source),
            bytes: self.extra,
            crc: self.crc,
            offset_units: 0,
        }
    }
}

/// A flush that takes records.
pub(crate) struct OpenFlush {
    pub(crate) place: FlushPlace,
    header_bytes: usize,
    rows_max: usize,
    buffers: Vec<AlignedBuffer>,
    data_bytes: usize,
    rows_encoded: usize,
    /// Row by row, shard by shard.
    unit_crcs: Vec<u32>,
    /// Of the row that fills, by data shard: the sums of units that one payload filled, which were computed for the sum of that.
    known_crcs: Vec<Option<u32>>,
    table: Vec<u8>,
    record_count: u32,
    runs: (RunId, RunId),
    events: (EventId, EventId),
}

/// A flush that is ready to be written.
pub(crate) struct SealedFlush {
    /// One buffer a shard: header, then units.
    pub(crate) buffers: Vec<Arc<AlignedBuffer>>,
    /// Bytes of each buffer to write.
    pub(crate) shard_bytes: usize,
    pub(crate) header_bytes: usize,
    /// Record data and, when it is not in the header, the table.
    pub(crate) data_bytes: usize,
    pub(crate) record_count: u32,
    pub(crate) table: Vec<u8>,
}

impl SealedFlush {
    /// The payload of one of its records.
    pub(crate) fn payload(&self, geometry: RowGeometry, entry: &TableEntry) -> Vec<u8> {
        let mut payload = Vec::with_capacity(entry.bytes as usize);
        gather(&self.buffers, self.header_bytes, geometry, entry.payload_range(), &mut payload);
        payload
    }
}

/// Appends a range of a flush's data to `into`, from the buffers of its shards.
pub(crate) fn gather(
    shards: &[Arc<AlignedBuffer>],
    header_bytes: usize,
    geometry: RowGeometry,
    range: Range<u64>,
    into: &mut Vec<u8>,
) {
    pieces(shards, header_bytes, geometry, range).for_each(|piece| into.extend_from_slice(piece));
}

/// A range of a flush's data, piece by piece as it lies in the buffers of its shards.
pub(crate) fn pieces(
    shards: &[Arc<AlignedBuffer>],
    header_bytes: usize,
    geometry: RowGeometry,
    range: Range<u64>,
) -> impl Iterator<Item = &[u8]> {
    places(header_bytes, geometry, range).map(move |(shard, place)| &shards[shard][place])
}

/// The places of these pieces: the shard, and where in its buffer.
pub(crate) fn places(
    header_bytes: usize,
    geometry: RowGeometry,
    range: Range<u64>,
) -> impl Iterator<Item = (usize, Range<usize>)> {
    geometry.locate(range).map(move |extent| {
        let start = header_bytes + extent.offset_in_shard_bytes as usize;
        (usize::from(extent.shard), start..start + extent.bytes)
    })
}

/// Bytes of the buffers of a flush that holds `data_bytes` bytes of data.
pub(crate) fn flush_buffer_bytes(data_shards: u8, shards: usize, unit_bytes: u32, data_bytes: usize) -> usize {
    let row_bytes = usize::from(data_shards) * unit_bytes as usize;
    let rows = data_bytes.div_ceil(row_bytes).max(1);
    header_bytes_for(shards, rows) + rows * unit_bytes as usize
}

impl OpenFlush {
    /// A flush on `buffers`, one a shard, all of one size.
    pub(crate) fn new(place: FlushPlace, buffers: Vec<AlignedBuffer>) -> Self {
        assert_eq!(buffers.len(), place.shards.len(), "one buffer a shard");
        let unit = place.unit_bytes as usize;
        let mut rows_max = (buffers[0].len() - BLOCK_BYTES) / unit;
        while header_bytes_for(buffers.len(), rows_max) + rows_max * unit > buffers[0].len() {
            rows_max -= 1;
        }
        assert!(rows_max > 0, "a flush has room for a row");
        let is_whole = place.multiple_bytes == BLOCK_BYTES || place.data_shards == 1;
        assert!(
            is_whole,
            "{} bytes: what is added to {} data shards is in blocks",
            place.multiple_bytes, place.data_shards
        );
        let flush = OpenFlush {
            header_bytes: header_bytes_for(buffers.len(), rows_max),
            rows_max,
            buffers,
            data_bytes: 0,
            rows_encoded: 0,
            unit_crcs: Vec::with_capacity(rows_max * place.shards.len()),
            known_crcs: vec![None; place.data_shards.into()],
            table: Vec::new(),
            record_count: 0,
            runs: (RunId(u32::MAX), RunId(0)),
            events: (EventId(u64::MAX), EventId(0)),
            place,
        };
        assert!(flush.capacity_bytes() > 0, "a flush of whole multiples has room for a record");
        flush
    }

    fn row_bytes(&self) -> usize {
        usize::from(self.place.data_shards) * self.place.unit_bytes as usize
    }

    /// Data that the flush can take, its table included.
    pub(crate) fn capacity_bytes(&self) -> usize {
        let most = self.rows_max * self.row_bytes();
        if self.place.multiple_bytes == BLOCK_BYTES {
            return most;
        }
        let end = self.header_bytes + most;
        (end - end % self.place.multiple_bytes).saturating_sub(self.header_bytes)
    }

    /// Data with the zeros behind them that make the flush as long as it must be.
    fn filled_up(&self, data_bytes: usize) -> usize {
        if self.place.multiple_bytes == BLOCK_BYTES {
            return data_bytes;
        }
        (self.header_bytes + data_bytes).next_multiple_of(self.place.multiple_bytes) - self.header_bytes
    }

    /// Whether a record without payload goes into it.
    pub(crate) fn has_room(&self) -> bool {
        self.data_bytes + self.table.len() + TABLE_ENTRY_BYTES <= self.capacity_bytes()
    }

    pub(crate) fn record_count(&self) -> u32 {
        self.record_count
    }

    /// Bytes that it would take with a further record.
    pub(crate) fn shard_bytes_with(&self, payload_bytes: usize) -> u64 {
        let table = self.table.len() + TABLE_ENTRY_BYTES;
        let data = self.data_bytes + room(true, payload_bytes) + table;
        self.header_bytes as u64 + self.geometry(self.filled_up(data)).shard_bytes()
    }

    fn geometry(&self, data_bytes: usize) -> RowGeometry {
        RowGeometry {
            data_shards: self.place.data_shards,
            unit_bytes: self.place.unit_bytes,
            data_bytes: data_bytes as u64,
        }
    }

    fn table_is_inline(&self, table_bytes: usize, data_bytes: usize) -> bool {
        let rows = self.geometry(data_bytes).rows() as usize;
        table_bytes <= space_for_inline_table(self.header_bytes, self.place.shards.len(), rows)
    }

    /// Whether a record has room whose payload, if it has one, is of so many bytes.
    pub(crate) fn takes(&self, kind: RecordKind, payload_bytes: usize) -> bool {
        let end = self.data_bytes + room(kind.has_payload(), payload_bytes);
        end + self.table.len() + TABLE_ENTRY_BYTES <= self.capacity_bytes()
    }

    /// Puts a payload in its place, checking its sum, and returns its position in the flush.
    ///
    /// # Panics
    /// When it has no room ([`OpenFlush::takes`]).
    pub(crate) fn add(&mut self, record: NewRecord, payload: &mut Payload<'_>) -> Result<u32, ChecksumMismatch> {
        let payload_bytes = payload.bytes();
        assert!(self.takes(record.kind, payload_bytes), "{payload_bytes} bytes have no room");
        let end = self.data_bytes + room(record.kind.has_payload(), payload_bytes);
        if record.kind.has_payload() {
            // Nothing counts the bytes of another sum: the next record overwrites them.
            self.take_checked(payload, record.crc)?;
        }
        let position = u32::try_from(self.data_bytes as u64 / POSITION_BYTES).expect("a flush is small");
        let entry = record.without_payload();
        let of_payload = u32::try_from(payload_bytes).expect("a payload fits a flush");
        let bytes = if record.kind.has_payload() { of_payload } else { entry.bytes };
        let entry = TableEntry { bytes, offset_units: position, ..entry };
        let mut bytes = [0; TABLE_ENTRY_BYTES];
        entry.encode_into(&mut bytes);
        self.table.extend_from_slice(&bytes);
        self.record_count += 1;
        let EventKey { run, event } = entry.key();
        self.runs = (self.runs.0.min(run), self.runs.1.max(run));
        self.events = (self.events.0.min(event), self.events.1.max(event));
        self.zero(self.data_bytes + payload_bytes, end);
        self.data_bytes = end;
        self.encode_full_rows(self.data_bytes);
        Ok(position)
    }

    /// Adds bytes to the piece of a file that was added last, if they follow it there and in this flush; whether they did. It has the version then that
    /// they would have had.
    pub(crate) fn extend_piece(
        &mut self,
        record: &FileRecord,
        payload: &mut Payload<'_>,
    ) -> Result<bool, ChecksumMismatch> {
        let Some((entry, joined)) = self.joined_with_last(record) else { return Ok(false) };
        let Some(data_bytes) = self.data_bytes_with(&entry, payload.bytes()) else { return Ok(false) };
        let FileChange::Piece { crc, .. } = record.change else { return Ok(false) };
        let before = self.data_bytes;
        self.data_bytes = entry.payload_range().end as usize;
        if let Err(error) = self.take_checked(payload, crc) {
            // The bytes are not counted; what is rounded up behind the piece is zeros again.
            self.zero(self.data_bytes, before);
            self.data_bytes = before;
            return Err(error);
        }
        self.zero(self.data_bytes + payload.bytes(), data_bytes);
        self.data_bytes = data_bytes;
        let at = self.table.len() - TABLE_ENTRY_BYTES;
        let place = self.table[at..].first_chunk_mut().expect("an entry is there");
        TableEntry { offset_units: entry.offset_units, ..joined.entry() }.encode_into(place);
        self.encode_full_rows(self.data_bytes);
        Ok(true)
    }

    /// The last entry, if it is the piece before this one, and what both are together.
    fn joined_with_last(&self, record: &FileRecord) -> Option<(TableEntry, FileRecord)> {
        let last = self.table.last_chunk::<TABLE_ENTRY_BYTES>()?;
        let entry = TableEntry::decode(last).expect("it is our own");
        let known = FileRecord::of(&entry)?;
        let (
            FileChange::Piece { start, bytes, crc, appended },
            FileChange::Piece { start: next, bytes: more, crc: of_more, .. },
        ) = (known.change, record.change)
        else {
            return None;
        };
        let all = bytes + more;
        let follows = known.file == record.file
            && known.version.checked_add(1) == Some(record.version)
            && start + u64::from(bytes) == next
            && all <= PIECE_BYTES_MAX as u32;
        let change = FileChange::Piece { start, bytes: all, crc: crc32c_of_both(crc, of_more, more.into()), appended };
        follows.then_some((entry, FileRecord { change, ..*record }))
    }

    /// What the data take when the last record gets so many bytes more; `None` when it cannot.
    fn data_bytes_with(&self, last: &TableEntry, payload_bytes: usize) -> Option<usize> {
        let end = last.payload_range().end as usize;
        let data_bytes = (end + payload_bytes).next_multiple_of(POSITION_BYTES as usize);
        let fits = data_bytes + self.table.len() <= self.capacity_bytes();
        // The row in which it ends may be encoded, with the zeros behind it.
        let is_open = self.rows_encoded * self.row_bytes() <= end;
        (fits && is_open).then_some(data_bytes)
    }

    fn zero(&mut self, from: usize, to: usize) {
        let unit = self.place.unit_bytes as usize;
        let mut at = from;
        while at < to {
            let run = (unit - at % unit).min(to - at);
            let (shard, offset) = self.place_of(at);
            self.buffers[shard][offset..offset + run].fill(0);
            at += run;
        }
    }

    /// Shard and offset in its buffer of a byte of the data, in rows of full units.
    fn place_of(&self, at: usize) -> (usize, usize) {
        let unit = self.place.unit_bytes as usize;
        let row = at / self.row_bytes();
        let shard = at / unit % usize::from(self.place.data_shards);
        (shard, self.header_bytes + row * unit + at % unit)
    }

    /// Encodes the rows that data of so many bytes fill.
    fn encode_full_rows(&mut self, data_bytes: usize) {
        let unit = self.place.unit_bytes as usize;
        while (self.rows_encoded + 1) * self.row_bytes() <= data_bytes {
            self.encode_row(self.rows_encoded * unit, unit);
        }
    }

    /// Encodes and sums the row whose units begin at `offset` after the header.
    fn encode_row(&mut self, offset: usize, unit_bytes: usize) {
        let range = self.header_bytes + offset..self.header_bytes + offset + unit_bytes;
        let (data, parity) = self.buffers.split_at_mut(usize::from(self.place.data_shards));
        let data: Vec<&[u8]> = data.iter().map(|buffer| &buffer[range.clone()]).collect();
        let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(|buffer| &mut buffer[range.clone()]).collect();
        codec(self.place.data_shards, self.place.parity_shards).encode(&data, &mut parity);
        let known = self.known_crcs.iter_mut().map(Option::take);
        self.unit_crcs.extend(data.iter().zip(known).map(|(unit, known)| known.unwrap_or_else(|| crc32c(unit))));
        self.unit_crcs.extend(parity.iter().map(|unit| crc32c(unit)));
        self.rows_encoded += 1;
    }

    /// The payload of one of its records.
    pub(crate) fn payload(&self, entry: &TableEntry) -> Vec<u8> {
        let unit = self.place.unit_bytes as usize;
        let (mut at, end) = (entry.payload_range().start as usize, entry.payload_range().end as usize);
        let mut payload = Vec::with_capacity(end - at);
        while at < end {
            let bytes = (unit - at % unit).min(end - at);
            let (shard, offset) = self.place_of(at);
            payload.extend_from_slice(&self.buffers[shard][offset..offset + bytes]);
            at += bytes;
        }
        payload
    }

    pub(crate) fn table(&self) -> &[u8] {
        &self.table
    }

    /// Memory of its buffers.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.len()).sum()
    }

    /// Gives the buffers back; whatever was added is forgotten.
    pub(crate) fn into_buffers(self) -> Vec<AlignedBuffer> {
        self.buffers
    }

    /// Ends the flush: the table is put where it belongs, the last row shrinks, headers are written.
    pub(crate) fn seal(
        mut self,
        durable_flushes: u32,
        written: WallTime,
        drive: impl Fn(usize) -> (DriveUuid, u64),
    ) -> SealedFlush {
        let record_bytes = self.data_bytes;
        let inline = self.table_is_inline(self.table.len(), self.filled_up(self.data_bytes));
        if !inline {
            let table = std::mem::take(&mut self.table);
            self.take_in(&mut Payload::of(&[&table]));
            self.table = table;
            self.data_bytes += self.table.len();
            self.encode_full_rows(self.data_bytes);
        }
        let data_bytes = self.filled_up(self.data_bytes);
        self.zero(self.data_bytes, data_bytes);
        self.data_bytes = data_bytes;
        self.encode_full_rows(self.data_bytes);
        self.finish_last_row();
        let geometry = self.geometry(self.data_bytes);
        let rows = geometry.rows() as usize;
        assert_eq!(rows, self.rows_encoded, "every row is encoded");
        let mut header = FlushHeader {
            flags: if inline { FLUSH_INLINE_TABLE } else { 0 },
            header_bytes: u32::try_from(self.header_bytes).expect("headers are small"),
            store: self.place.store,
            drive: DriveUuid::default(),
            offset_bytes: 0,
            lane: self.place.lane,
            segment: self.place.segment,
            flush: self.place.flush,
            shard: 0,
            data_shards: self.place.data_shards,
            parity_shards: self.place.parity_shards,
            units_offset_bytes: self.place.offset_bytes + self.header_bytes as u64,
            unit_bytes: self.place.unit_bytes,
            rows: u32::try_from(rows).expect("few rows"),
            last_unit_bytes: geometry.last_unit_bytes(),
            data_bytes: self.data_bytes as u64,
            table_offset_bytes: if inline { 0 } else { record_bytes as u64 },
            table_bytes: u32::try_from(self.table.len()).expect("a table is small"),
            table_crc: crc32c(&self.table),
            record_count: self.record_count,
            run_min: self.runs.0,
            run_max: self.runs.1,
            event_min: self.events.0,
            event_max: self.events.1,
            first_sequence: self.place.first_sequence,
            durable_flushes,
            shards: self.place.shards.clone(),
            unit_crcs: self.crcs_by_shard(rows),
            written,
            digest: 0,
        };
        header.digest = header.compute_digest();
        let table = inline.then_some(&self.table[..]);
        for (shard, buffer) in self.buffers.iter_mut().enumerate() {
            (header.drive, header.offset_bytes) = drive(shard);
            header.shard = shard as u8;
            header.encode_into(table, &mut buffer[..self.header_bytes]);
        }
        SealedFlush {
            buffers: self.buffers.into_iter().map(Arc::new).collect(),
            shard_bytes: self.header_bytes + geometry.shard_bytes() as usize,
            header_bytes: self.header_bytes,
            data_bytes: self.data_bytes,
            record_count: self.record_count,
            table: self.table,
        }
    }

    /// The last row was filled as if it had full units: spreads it over the shorter ones.
    fn finish_last_row(&mut self) {
        let row_bytes = self.row_bytes();
        assert!(self.rows_encoded * row_bytes <= self.data_bytes, "no row is encoded before it is full");
        let rest = self.data_bytes - self.rows_encoded * row_bytes;
        if rest == 0 {
            return;
        }
        assert!(rest < row_bytes, "full rows are encoded as they fill");
        let unit = self.place.unit_bytes as usize;
        let short = self.geometry(self.data_bytes).last_unit_bytes() as usize;
        let start = self.header_bytes + self.rows_encoded * unit;
        let mut row = Vec::with_capacity(short * usize::from(self.place.data_shards));
        for shard in 0..usize::from(self.place.data_shards) {
            let bytes = rest.saturating_sub(shard * unit).min(unit);
            row.extend_from_slice(&self.buffers[shard][start..start + bytes]);
        }
        row.resize(short * usize::from(self.place.data_shards), 0);
        for (shard, bytes) in row.chunks(short).enumerate() {
            self.buffers[shard][start..start + short].copy_from_slice(bytes);
        }
        // The units are others now.
        if !planted(Planted::UnitSumsStale) {
            self.known_crcs.fill(None);
        }
        self.encode_row(self.rows_encoded * unit, short);
    }

    /// The sums in the order of the header: shard by shard.
    fn crcs_by_shard(&self, rows: usize) -> Vec<u32> {
        let shards = self.place.shards.len();
        (0..shards).flat_map(|shard| (0..rows).map(move |row| self.unit_crcs[row * shards + shard])).collect()
    }
}

/// Bytes of data that a record takes. An empty fragment takes a place too: its position says whether it is durable.
fn room(is_fragment: bool, payload_bytes: usize) -> usize {
    payload_bytes.max(usize::from(is_fragment)).next_multiple_of(POSITION_BYTES as usize)
}

/// The codec of a width; made once for each thread and width.
pub(crate) fn codec(data: u8, parity: u8) -> std::rc::Rc<Codec> {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::rc::Rc;
    thread_local! {
        static CODECS: RefCell<BTreeMap<(u8, u8), Rc<Codec>>> = const { RefCell::new(BTreeMap::new()) };
    }
    CODECS.with_borrow_mut(|codecs| {
        let make = || Rc::new(Codec::new(data, parity).expect("the width of a segment was checked"));
        codecs.entry((data, parity)).or_insert_with(make).clone()
    })
}
