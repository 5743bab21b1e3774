//! Reading from the drives: the bytes that are wanted ([`crate::direct`]), or, when they are not to be had or not right, whole rows from all drives,
//! each unit checked by its sum and the missing ones computed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;

use forebay_format::{FlushHeader, SegmentId, SegmentTable, ShardPlace, TableEntry};
use forebay_media::AlignedBuffer;
use forebay_types::limits::BLOCK_BYTES;
use forebay_types::{DriveNumber, DriveUuid, ReadOutcome, StoreUuid, WallTime, crc32c};

use crate::direct::Unchecked;
use crate::flush::codec;
use crate::io::Io;
use crate::planted::{Planted, planted};
use crate::recovery::decode_table;
use crate::segments::FlushSpan;
use crate::units::{Unit, Units, bytes_in, bytes_of};

/// Where a shard lies and whether its drive answers.
#[derive(Clone, Debug)]
pub(crate) struct ReadShard {
    pub(crate) place: ShardPlace,
    pub(crate) drive: DriveUuid,
    /// Of the slot, on the drive.
    pub(crate) slot_offset_bytes: u64,
    pub(crate) answers: bool,
}

/// A segment as a reader needs it.
#[derive(Clone, Debug)]
pub(crate) struct ReadSegment {
    pub(crate) store: StoreUuid,
    pub(crate) id: SegmentId,
    pub(crate) data_shards: u8,
    pub(crate) parity_shards: u8,
    pub(crate) unit_bytes: u32,
    pub(crate) slot_bytes: u64,
    /// Bytes that background work reads from each drive at once.
    pub(crate) step_bytes: u32,
    /// Bytes of each drive that it reads though nobody wants them, rather than beginning anew behind them.
    pub(crate) read_through_bytes: u32,
    pub(crate) shards: Vec<ReadShard>,
    /// Reads of headers that failed: what is missing then may well be there.
    pub(crate) headers_failed: Cell<usize>,
    /// Drives on which units were damaged that made a row unreadable.
    pub(crate) damaged: RefCell<BTreeSet<DriveNumber>>,
}

/// A way to the drives for one task.
#[derive(Clone)]
pub(crate) struct Reader {
    pub(crate) io: Io,
    pub(crate) task: usize,
    pub(crate) segment: ReadSegment,
}

/// What a read came to.
#[derive(Debug)]
pub(crate) struct ReadReport {
    pub(crate) outcome: ReadOutcome,
    pub(crate) payload: Vec<u8>,
    /// Whether parity helped.
    pub(crate) degraded: bool,
    /// Units that were found damaged, by drive.
    pub(crate) damaged: Vec<DriveNumber>,
}

impl ReadReport {
    /// Without bytes.
    pub(crate) fn of(outcome: ReadOutcome) -> ReadReport {
        ReadReport { outcome, payload: Vec::new(), degraded: false, damaged: Vec::new() }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.outcome == ReadOutcome::Lost
    }
}

/// One row of a flush.
#[derive(Debug)]
pub(crate) struct Row {
    /// Its data, without padding.
    pub(crate) data: Vec<u8>,
    /// Whether every unit was compared with its sum, and put right where it had to be.
    pub(crate) checked: bool,
    /// Units that were put right, by drive.
    pub(crate) damaged: Vec<DriveNumber>,
}

/// What the closing flush of a segment says.
pub(crate) struct ClosingTable {
    pub(crate) table: SegmentTable,
    /// When the last flush before it was written.
    pub(crate) written: WallTime,
    /// It is on every drive of the segment, and right there.
    pub(crate) is_whole: bool,
}

/// Rows that were read whole.
pub(crate) struct Rows {
    /// The data of the rows, padding included.
    pub(crate) data: Vec<u8>,
    pub(crate) damaged: Vec<DriveNumber>,
    /// Shards of which every unit was there and right.
    pub(crate) whole_shards: usize,
}

/// Why rows could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowsError {
    /// Drives that do not answer could help; so many do not.
    Unavailable { silent: usize },
    /// Too many units are damaged.
    Lost,
}

impl Reader {
    fn shards(&self) -> usize {
        self.segment.shards.len()
    }

    /// Reads `range` of the data of a flush, whose sum must be `crc`.
    pub(crate) async fn record(&self, span: FlushSpan, range: Range<u64>, crc: u32) -> ReadReport {
        if let Some(Unchecked { bytes: payload, computed: degraded }) = self.direct(span, range.clone()).await
            && crc32c(&payload) == crc
        {
            return ReadReport { outcome: ReadOutcome::Found, payload, degraded, damaged: Vec::new() };
        }
        self.repaired(span, range, |payload| crc32c(payload) == crc).await
    }

    /// The data of a row: unchecked, or, when that is not to be had, as [`Reader::checked_row`].
    pub(crate) async fn row(&self, span: FlushSpan, row: u32, range: Range<u64>) -> Option<Row> {
        match self.direct(span, range.clone()).await {
            Some(Unchecked { bytes: data, .. }) => Some(Row { data, checked: false, damaged: Vec::new() }),
            None => self.checked_row(span, row, range).await,
        }
    }

    /// The data of a row from all drives, each unit checked, and computed where it is missing or damaged.
    pub(crate) async fn checked_row(&self, span: FlushSpan, row: u32, range: Range<u64>) -> Option<Row> {
        let headers = self.headers(Some(span.flush), span.offset_bytes, span.header_bytes as usize).await;
        let header = agreed(&headers).filter(|header| row < header.rows)?;
        let Rows { mut data, damaged, .. } = self.rows(header, row..row + 1).await.ok()?;
        data.truncate((range.end - range.start) as usize);
        Some(Row { data, checked: true, damaged })
    }

    /// The bytes from whole rows, if that makes them right.
    pub(crate) async fn repaired(
        &self,
        span: FlushSpan,
        range: Range<u64>,
        is_right: impl Fn(&[u8]) -> bool,
    ) -> ReadReport {
        let failed = |outcome| {
            let damaged = self.segment.damaged.take().into_iter().collect();
            ReadReport { outcome, payload: Vec::new(), degraded: true, damaged }
        };
        let headers = self.headers(Some(span.flush), span.offset_bytes, span.header_bytes as usize).await;
        let Some(header) = agreed(&headers) else {
            let absent = self.segment.shards.iter().filter(|s| !s.answers).count() + self.segment.headers_failed.get();
            return failed(if absent > 0 { ReadOutcome::Unavailable } else { ReadOutcome::Lost });
        };
        let geometry = self.geometry(header.data_bytes);
        if range.end > header.data_bytes {
            return failed(ReadOutcome::Lost);
        }
        let mut rows = geometry.locate(range.clone()).map(|extent| extent.row);
        let Some(first) = rows.next() else { return failed(ReadOutcome::Lost) };
        let last = rows.last().unwrap_or(first);
        match self.rows(header, first..last + 1).await {
            Ok(rows) => {
                let base = u64::from(first) * u64::from(self.segment.data_shards) * u64::from(header.unit_bytes);
                let payload = rows.data[(range.start - base) as usize..(range.end - base) as usize].to_vec();
                let right = is_right(&payload);
                let outcome = if right { ReadOutcome::Found } else { ReadOutcome::Lost };
                let payload = if right { payload } else { Vec::new() };
                ReadReport { outcome, payload, degraded: true, damaged: rows.damaged }
            }
            Err(RowsError::Unavailable { .. }) => failed(ReadOutcome::Unavailable),
            Err(RowsError::Lost) => failed(ReadOutcome::Lost),
        }
    }

    /// The records of a flush; `None` when its table cannot be read.
    pub(crate) async fn table(&self, span: FlushSpan) -> Option<Vec<TableEntry>> {
        let headers = self.headers(Some(span.flush), span.offset_bytes, span.header_bytes as usize).await;
        let header = agreed(&headers)?.clone();
        drop(headers);
        let table = self.flush_table(span, &header).await?;
        Some(decode_table(&table).collect())
    }

    /// The table of a flush without reading its data.
    pub(crate) async fn flush_table(&self, span: FlushSpan, header: &FlushHeader) -> Option<Vec<u8>> {
        if header.has_inline_table() {
            let headers = self.headers(Some(span.flush), span.offset_bytes, span.header_bytes as usize).await;
            return inline_table(&headers, header);
        }
        let range = header.table_offset_bytes..header.table_offset_bytes + u64::from(header.table_bytes);
        if range.end > header.data_bytes {
            return None;
        }
        let report = self.record(span, range, header.table_crc).await;
        let found = report.outcome == ReadOutcome::Found;
        (found && header.decode_table(&report.payload).is_ok()).then_some(report.payload)
    }

    /// The table of the segment from its closing flush.
    pub(crate) async fn closing_table(&self) -> Option<ClosingTable> {
        let segment = &self.segment;
        let headers = self.headers(None, segment.slot_bytes - BLOCK_BYTES as u64, BLOCK_BYTES).await;
        let header = agreed(&headers)?;
        let rows = self.rows(header, 0..header.rows).await.ok()?;
        let table = rows.data.get(..header.data_bytes as usize)?;
        header.check_table_crc(table).ok()?;
        let table = SegmentTable::decode(table).ok()?;
        table.check_in_slot(segment.slot_bytes, segment.data_shards, segment.unit_bytes).ok()?;
        let is_whole = votes(&headers, header.digest) == self.shards() && rows.whole_shards == self.shards();
        Some(ClosingTable { table, written: header.written, is_whole })
    }

    /// How long the headers at a place are, as far as their first blocks can be read.
    pub(crate) async fn header_lengths(&self, offset_bytes: u64) -> Vec<usize> {
        let blocks = self.first_blocks(offset_bytes).await;
        blocks.iter().filter_map(|block| FlushHeader::peek_header_bytes(block).ok()).collect()
    }

    /// The numbers of the flushes that headers at a place speak of, as far as their first blocks can be read.
    pub(crate) async fn flush_numbers(&self, offset_bytes: u64) -> Vec<u32> {
        let blocks = self.first_blocks(offset_bytes).await;
        let mut numbers: Vec<u32> = blocks.iter().filter_map(|block| FlushHeader::peek_flush(block).ok()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    async fn first_blocks(&self, offset_bytes: u64) -> Vec<AlignedBuffer> {
        let answering = self.segment.shards.iter().filter(|shard| shard.answers);
        let ids: Vec<_> = answering
            .map(|shard| {
                self.io.read(self.task, shard.place.drive, shard.slot_offset_bytes + offset_bytes, BLOCK_BYTES)
            })
            .collect();
        let mut blocks = Vec::with_capacity(ids.len());
        for id in ids {
            blocks.extend(self.io.result(id).await.ok());
        }
        blocks
    }

    /// The header of a flush, or of the closing flush when `flush` is `None`, from every drive that answers, where it is
    /// valid and the right one.
    pub(crate) async fn headers(
        &self,
        flush: Option<u32>,
        offset_bytes: u64,
        header_bytes: usize,
    ) -> Vec<Option<(FlushHeader, AlignedBuffer)>> {
        let ids: Vec<_> = (0..self.shards())
            .map(|shard| {
                let shard = &self.segment.shards[shard];
                let offset = shard.slot_offset_bytes + offset_bytes;
                shard.answers.then(|| self.io.read(self.task, shard.place.drive, offset, header_bytes))
            })
            .collect();
        let mut headers = Vec::with_capacity(ids.len());
        for (shard, id) in ids.into_iter().enumerate() {
            let Some(id) = id else {
                headers.push(None);
                continue;
            };
            let header = match self.io.result(id).await {
                Ok(buffer) => self.check_header(shard, flush, offset_bytes, buffer),
                Err(_) => {
                    self.segment.headers_failed.update(|failed| failed + 1);
                    None
                }
            };
            headers.push(header);
        }
        headers
    }

    /// Whether the header that lies at a place belongs there.
    pub(crate) fn check_header(
        &self,
        shard: usize,
        flush: Option<u32>,
        offset_bytes: u64,
        buffer: AlignedBuffer,
    ) -> Option<(FlushHeader, AlignedBuffer)> {
        let header = FlushHeader::decode(&buffer).ok()?;
        let place = &self.segment.shards[shard];
        let right = header.store == self.segment.store
            && header.drive == place.drive
            && header.offset_bytes == place.slot_offset_bytes + offset_bytes
            && (header.segment == self.segment.id
                || planted(Planted::OldHeaderBelieved)
                || planted(Planted::GenerationsCombined))
            && flush.map_or(header.is_closing(), |flush| header.flush == flush && !header.is_closing())
            && usize::from(header.shard) == shard
            && header.data_shards == self.segment.data_shards
            && header.parity_shards == self.segment.parity_shards
            && (header.is_closing() || header.unit_bytes == self.segment.unit_bytes)
            && header.check_in_slot(place.slot_offset_bytes, self.segment.slot_bytes).is_ok();
        right.then_some((header, buffer))
    }

    /// Reads rows from all drives that answer, checks every unit and computes what is missing.
    pub(crate) async fn rows(&self, header: &FlushHeader, rows: Range<u32>) -> Result<Rows, RowsError> {
        if rows.is_empty() {
            return Ok(Rows { data: Vec::new(), damaged: Vec::new(), whole_shards: self.shards() });
        }
        let reads: Vec<_> = (0..self.shards()).map(|shard| self.start_units(header, shard, rows.clone())).collect();
        let mut shards = Vec::with_capacity(reads.len());
        for (shard, read) in reads.into_iter().enumerate() {
            shards.push(match read {
                Some(read) => Some(self.units(read, header, shard, rows.clone()).await),
                None => None,
            });
        }
        let assembled = self.assemble(header, rows, &shards);
        shards.into_iter().flatten().for_each(|units| self.io.give_back(units.bytes));
        assembled
    }

    fn assemble(&self, header: &FlushHeader, rows: Range<u32>, shards: &[Option<Units>]) -> Result<Rows, RowsError> {
        let k = usize::from(header.data_shards);
        let unchecked = planted(Planted::UnitsUnchecked) || planted(Planted::GenerationsCombined);
        let is_right = |unit: Unit| unit == Unit::Right || unchecked && unit == Unit::Wrong;
        let drives_with = |is_meant: &dyn Fn(&Units) -> bool| -> Vec<DriveNumber> {
            let with = shards.iter().zip(&self.segment.shards);
            let with = with.filter(|(units, _)| units.as_ref().is_some_and(is_meant));
            with.map(|(_, shard)| shard.place.drive).collect()
        };
        let mut data = Vec::with_capacity(k * bytes_of(header, &rows));
        for (at, row) in rows.clone().enumerate() {
            let bytes = bytes_in(header, &rows, row);
            let right = |units: &&Units| is_right(units.found[at]);
            let units = shards.iter().map(|units| Some(&units.as_ref().filter(right)?.bytes[bytes.clone()]));
            let units: Vec<Option<&[u8]>> = units.collect();
            let right = units.iter().flatten().count();
            if right < k {
                let is_wrong = |units: &Units| units.found[..=at].contains(&Unit::Wrong);
                self.segment.damaged.borrow_mut().extend(drives_with(&is_wrong));
                let is_silent =
                    |units: &Option<Units>| units.as_ref().is_none_or(|units| units.found[at] == Unit::Unreadable);
                let silent = shards.iter().filter(|units| is_silent(units)).count();
                return Err(if right + silent >= k { RowsError::Unavailable { silent } } else { RowsError::Lost });
            }
            append_row(&mut data, &units, k, bytes.len(), header);
        }
        let is_wrong = |units: &Units| units.found.iter().any(|unit| *unit == Unit::Wrong && !is_right(*unit));
        let is_whole = |units: &Units| units.found.iter().all(|unit| is_right(*unit));
        Ok(Rows { data, damaged: drives_with(&is_wrong), whole_shards: drives_with(&is_whole).len() })
    }
}

/// Appends the data units of a row, computing those that are not there.
fn append_row(data: &mut Vec<u8>, units: &[Option<&[u8]>], k: usize, unit_bytes: usize, header: &FlushHeader) {
    let before = data.len();
    for unit in &units[..k] {
        match unit {
            Some(unit) => data.extend_from_slice(unit),
            None => data.resize(data.len() + unit_bytes, 0),
        }
    }
    let row = data[before..].chunks_exact_mut(unit_bytes).enumerate();
    let (missing, mut computed): (Vec<_>, Vec<_>) = row.filter(|(shard, _)| units[*shard].is_none()).unzip();
    codec(header.data_shards, header.parity_shards)
        .reconstruct(units, &missing, &mut computed)
        .expect("k units were counted");
}

/// The header on which most drives agree: shards combine only with equal digests.
pub(crate) fn agreed(headers: &[Option<(FlushHeader, AlignedBuffer)>]) -> Option<&FlushHeader> {
    let count = |h: &&FlushHeader| if planted(Planted::GenerationsCombined) { 0 } else { votes(headers, h.digest) };
    headers.iter().flatten().map(|(h, _)| h).max_by_key(count)
}

/// The table that lies in one of the headers with this header's digest.
pub(crate) fn inline_table(headers: &[Option<(FlushHeader, AlignedBuffer)>], header: &FlushHeader) -> Option<Vec<u8>> {
    headers.iter().flatten().filter(|(h, _)| h.digest == header.digest).find_map(|(h, bytes)| {
        let table = h.inline_table(bytes).filter(|table| header.decode_table(table).is_ok());
        table.map(<[u8]>::to_vec)
    })
}

/// How many drives hold a header with this digest.
pub(crate) fn votes(headers: &[Option<(FlushHeader, AlignedBuffer)>], digest: u128) -> usize {
    headers.iter().flatten().filter(|(h, _)| h.digest == digest).count()
}
