//! What a lane finds when it starts: the newest checkpoint, the tables of the segments that it lists, and the segments of its window that were
//! opened since. Never all the data.
//!
//! The order in which records are met does not matter: a finished event stays finished whatever is met after it (see [`crate::finished`]).

mod checkpoint;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use forebay_format::{
    CheckpointBody, DecisionSet, FlushEntry, FlushHeader, PlannedSegment, RECORD_INCOMPLETE, RecordKind, SegmentState,
    SegmentTable, ShardPlace, TABLE_ENTRY_BYTES, TableEntry,
};
use forebay_types::limits::BLOCK_BYTES;
use forebay_types::{DriveNumber, DriveUuid, EventKey, WallTime};

use checkpoint::{confirm_checkpoint, newest_checkpoint};

use crate::accepted::{AcceptedEvents, StreamSet};
use crate::api::{DriveInfo, LaneConfig};
use crate::ends::{Ends, EventEnd};
use crate::finished::Finished;
use crate::index::{EventEntry, FragmentEntry, Index};
use crate::io::Io;
use crate::lane::decided_events;
use crate::planted::{Planted, planted};
use crate::read::{ReadSegment, ReadShard, Reader, RowsError, agreed, votes};
use crate::segments::{FlushSpan, SEGMENT_COUNTER_MASK, Segment, SegmentIndex, Segments};
use crate::survey::{Findings, FlushFate, FlushFound, Found, Listed};

/// The task number of recovery.
pub(crate) const RECOVERY_TASK: usize = usize::MAX;

/// What recovery found.
pub(crate) struct Recovered {
    pub(crate) index: Index,
    pub(crate) segments: Segments,
    pub(crate) finished: Finished,
    pub(crate) ends: Ends,
    pub(crate) accepted: AcceptedEvents,
    /// Accepted events that the checkpoint keeps.
    pub(crate) carried: BTreeMap<EventKey, DecisionSet>,
    pub(crate) checkpoint_sequence: u64,
    pub(crate) next_record_sequence: u64,
    pub(crate) next_segment_counter: u64,
    /// Segments that were being written: they are closed before anything is served.
    pub(crate) unclosed: Vec<(SegmentIndex, Vec<u8>)>,
    /// Records that are not at their full width, in the order in which they were written first: they are appended again before anything
    /// is served.
    pub(crate) torn: Vec<TornRecord>,
    pub(crate) flushes_possibly_lost: u64,
    pub(crate) flushes_lost: u64,
    pub(crate) segments_unreadable: u64,
    pub(crate) findings: Findings,
}

/// A record of a torn flush.
pub(crate) struct TornRecord {
    sequence: u64,
    pub(crate) entry: TableEntry,
    pub(crate) payload: Vec<u8>,
}

/// Why a lane cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryError {
    /// No checkpoint can be read.
    #[error(
        "lane {lane}: none of the {drives} drives that answer holds a checkpoint that can be read. Nothing was written. Add \
         the missing drives to the command; `forebay init` was perhaps cut short"
    )]
    NoCheckpoint {
        /// The lane.
        lane: u16,
        /// Drives that were asked.
        drives: usize,
    },
    /// A checkpoint names what the superblock does not.
    #[error(
        "lane {lane}: the newest checkpoint (number {sequence}) contradicts the superblock: {what}. Nothing was written"
    )]
    Contradiction {
        /// The lane.
        lane: u16,
        /// The checkpoint.
        sequence: u64,
        /// What does not fit.
        what: String,
    },
}

pub(crate) struct Recovery {
    io: Io,
    config: LaneConfig,
    found: Recovered,
}

/// Reads what is there.
pub(crate) async fn recover(io: Io, config: LaneConfig) -> Result<Recovered, RecoveryError> {
    let (taken, bytes, body) = newest_checkpoint(&io, &config).await?;
    let sequence = taken.sequence;
    if !config.read_only && !planted(Planted::CheckpointNotConfirmed) {
        confirm_checkpoint(&io, &config, taken, &bytes).await;
    }
    drop(bytes);
    let lanes = config.geometry.lanes;
    let found = Recovered {
        index: Index::default(),
        segments: Segments::default(),
        finished: Finished::from_checkpoint(lanes, &body.finished),
        ends: Ends::new(lanes, config.index_bytes),
        accepted: AcceptedEvents::from_checkpoint(&body.streams),
        carried: decided_events(&body.decision_sets, &body.decided),
        checkpoint_sequence: sequence,
        next_record_sequence: body.next_record_sequence,
        next_segment_counter: body.next_segment_counter,
        unclosed: Vec::new(),
        torn: Vec::new(),
        flushes_possibly_lost: 0,
        flushes_lost: 0,
        segments_unreadable: 0,
        findings: Findings { checkpoint: Some(taken), segments: Vec::new() },
    };
    let mut recovery = Recovery { io, config, found };
    recovery.check_places(sequence, &body)?;
    recovery.take_decided();
    for entry in &body.live {
        let plan = PlannedSegment {
            id: entry.id,
            data_shards: entry.data_shards,
            parity_shards: entry.parity_shards,
            unit_bytes: entry.unit_bytes,
            shards: entry.shards.clone(),
        };
        recovery.found.findings.begin(&plan, entry.state.into(), entry.flushes);
        recovery.segment(&plan, entry.state, entry.flushes).await;
    }
    let planned = if planted(Planted::PlannedNotLookedAt) { &[][..] } else { &body.planned };
    for plan in planned {
        recovery.found.findings.begin(plan, Listed::Planned, 0);
        recovery.segment(plan, SegmentState::Open, 0).await;
    }
    recovery.settle();
    Ok(recovery.found)
}

impl Recovery {
    fn drive(&self, number: DriveNumber) -> Option<&DriveInfo> {
        self.config.drives.iter().find(|d| d.number == number)
    }

    /// Every shard that the checkpoint names must lie in a slot of this lane on a drive of this store, and no slot twice.
    fn check_places(&self, sequence: u64, body: &CheckpointBody) -> Result<(), RecoveryError> {
        let lane = self.config.lane;
        let wrong = |what: String| Err(RecoveryError::Contradiction { lane, sequence, what });
        let mut seen = BTreeSet::new();
        let live = body.live.iter().flat_map(|s| &s.shards);
        for place in live.chain(body.planned.iter().flat_map(|s| &s.shards)) {
            let Some(drive) = self.drive(place.drive) else {
                return wrong(format!("drive {} is not in the superblock", place.drive));
            };
            if place.slot >= drive.slots || self.config.geometry.layout(drive.slots).lane_of_slot(place.slot) != lane {
                return wrong(format!("slot {} of drive {} is not one of this lane's", place.slot, place.drive));
            }
            if !seen.insert((place.drive, place.slot)) {
                return wrong(format!("slot {} of drive {} is in two segments", place.slot, place.drive));
            }
        }
        Ok(())
    }

    fn reader(&self, plan: &PlannedSegment) -> Reader {
        Reader { io: self.io.clone(), task: RECOVERY_TASK, segment: read_segment(&self.config, plan, |d| d.present) }
    }

    /// Takes in what the checkpoint says of accepted events.
    fn take_decided(&mut self) {
        let found = &mut self.found;
        for (key, set) in &found.carried {
            found.accepted.accept(*key, StreamSet::from_bits(set.accepted), set.incomplete, None);
            found.accepted.release(*key, StreamSet::from_bits(set.released), None);
        }
    }

    /// Takes in one segment, of which `flushes` flushes are known to be durable.
    async fn segment(&mut self, plan: &PlannedSegment, state: SegmentState, flushes: u32) {
        let reader = self.reader(plan);
        if state != SegmentState::Walk
            && let Some((table, written)) = reader.closing_table().await
        {
            self.found.findings.found(Found::Table);
            let spans = spans_of(&table);
            let index = self.add(plan, SegmentState::Closed, spans.clone(), written);
            self.take_records(index, spans.iter(), table.records.into_iter());
            return;
        }
        let limit = (state != SegmentState::Open).then_some(flushes);
        let walked = self.walk(&reader, limit, flushes).await;
        self.found.findings.walked(walked.fates, walked.without_header);
        self.found.flushes_possibly_lost += walked.possibly_lost;
        self.found.flushes_lost += walked.lost;
        if walked.flushes.is_empty() && walked.torn.is_empty() {
            if state == SegmentState::Closed || (state == SegmentState::Walk && flushes > 0) {
                self.unreadable(plan, state);
            }
            return;
        }
        self.found.findings.found(Found::Walked);
        self.found.torn.extend(walked.torn);
        let (spans, tables): (Vec<FlushSpan>, Vec<Vec<u8>>) = walked.flushes.into_iter().unzip();
        let index = self.add(plan, SegmentState::Walk, spans.clone(), walked.written);
        let table = tables.concat();
        self.take_records(index, spans.iter(), decode_table(&table));
        self.found.unclosed.push((index, table));
    }

    fn add(
        &mut self,
        plan: &PlannedSegment,
        state: SegmentState,
        spans: Vec<FlushSpan>,
        written: WallTime,
    ) -> SegmentIndex {
        if let Some(last) = spans.last() {
            let next = last.first_sequence + u64::from(last.record_count);
            self.found.next_record_sequence = self.found.next_record_sequence.max(next);
        }
        let counter = plan.id.counter & SEGMENT_COUNTER_MASK;
        self.found.next_segment_counter = self.found.next_segment_counter.max(counter);
        self.found.segments.add(Segment {
            id: plan.id,
            state,
            data_shards: plan.data_shards,
            parity_shards: plan.parity_shards,
            unit_bytes: plan.unit_bytes,
            shards: plan.shards.clone(),
            durable_position: u32::MAX,
            durable_flushes: spans.last().map_or(0, |last| last.flush + 1),
            flushes: spans,
            live_records: 0,
            live_bytes: 0,
            pins: 0,
            writing: false,
            written,
            scrub_at: forebay_types::Time::default(),
            scrub_round: 0,
        })
    }

    /// A segment that should be there and cannot be read: it stays, so that nothing reuses its slots and drives that come back may help.
    fn unreadable(&mut self, plan: &PlannedSegment, state: SegmentState) {
        let index = self.add(plan, state, Vec::new(), WallTime::default());
        self.found.segments.revive(index, 0);
        self.found.segments_unreadable += 1;
        self.found.findings.found(Found::Unreadable);
    }

    /// Follows the flushes of a segment from its start: `limit` of them, or as many as there are. The first `durable` are known to be.
    async fn walk(&self, reader: &Reader, limit: Option<u32>, durable: u32) -> Walked {
        let mut walked = Walked::default();
        let mut headers = Vec::new();
        let (mut offset, mut position, mut known_durable) = (0, 0, durable);
        let geometry = &self.config.geometry;
        while limit.is_none_or(|limit| headers.len() < limit as usize)
            && offset + (BLOCK_BYTES as u64) < geometry.slot_bytes
        {
            let flush = headers.len() as u32;
            let Some((header, votes)) = self.flush_header(reader, flush, offset).await else { break };
            // `Reader::headers` saw to it that the flush lies in its slot.
            let end = header.units_offset_bytes + header.geometry().shard_bytes();
            let span = FlushSpan {
                flush,
                offset_bytes: offset,
                header_bytes: header.header_bytes,
                record_count: header.record_count,
                position,
                data_bytes: header.data_bytes,
                first_sequence: header.first_sequence,
            };
            known_durable = known_durable.max(header.durable_flushes);
            walked.written = header.written;
            (offset, position) = (end, position + span.positions());
            headers.push((span, header, votes));
        }
        let known_durable = limit.unwrap_or(known_durable);
        // Flushes that were acknowledged and of which no drive that answers holds a header any more.
        walked.without_header = u64::from(known_durable).saturating_sub(headers.len() as u64);
        let all_answer = reader.segment.shards.iter().all(|shard| shard.answers);
        *(if all_answer { &mut walked.lost } else { &mut walked.possibly_lost }) += walked.without_header;
        for (span, header, votes) in headers {
            let (on_all, durable) = (votes == reader.segment.shards.len(), span.flush < known_durable);
            let fate = self.judge(reader, span, &header, durable, on_all, &mut walked).await;
            walked.fates.push(FlushFound::new(&header, span.offset_bytes, durable, fate));
        }
        walked
    }

    /// The header of a flush and on how many drives it is. The first block of each says how long it is.
    async fn flush_header(&self, reader: &Reader, flush: u32, offset: u64) -> Option<(FlushHeader, usize)> {
        let room = self.config.geometry.slot_bytes.saturating_sub(offset);
        let mut lengths: Vec<usize> = reader.header_lengths(offset).await;
        lengths.retain(|bytes| *bytes as u64 <= room);
        lengths.sort_unstable();
        lengths.dedup();
        for bytes in lengths {
            let headers = reader.headers(Some(flush), offset, bytes).await;
            if let Some(header) = agreed(&headers) {
                return Some((header.clone(), votes(&headers, header.digest)));
            }
        }
        None
    }

    /// Decides what becomes of a flush of a segment that was not closed. `header_on_all`: every drive holds its header.
    async fn judge(
        &self,
        reader: &Reader,
        span: FlushSpan,
        header: &FlushHeader,
        durable: bool,
        header_on_all: bool,
        walked: &mut Walked,
    ) -> FlushFate {
        if durable && let Some(table) = reader.flush_table(span, header).await {
            walked.flushes.push((span, table));
            return FlushFate::Stays;
        }
        match reader.rows(header, 0..header.rows).await {
            Ok(rows) => {
                let table = match header.has_inline_table() {
                    true => reader.flush_table(span, header).await,
                    false => table_in(&rows.data, header),
                };
                let Some(table) = table else {
                    walked.torn_on |= !durable;
                    walked.lost += 1;
                    return FlushFate::Lost;
                };
                let whole = header_on_all && rows.whole_shards == reader.segment.shards.len();
                let stays = whole && !walked.torn_on || durable || planted(Planted::TornStays);
                // What stays is the segment's beginning, so that a checkpoint can say how much that is.
                walked.torn_on |= !stays;
                // Where nothing can be written again, it is read where it is.
                if stays || self.config.read_only {
                    walked.flushes.push((span, table));
                } else if !planted(Planted::TornDropped) {
                    walked.torn.extend(records_of(span.first_sequence, &table, &rows.data));
                }
                if stays { FlushFate::Stays } else { FlushFate::Torn }
            }
            Err(RowsError::Lost) if durable => {
                walked.lost += 1;
                FlushFate::Lost
            }
            Err(RowsError::Unavailable) => {
                walked.torn_on |= !durable;
                walked.possibly_lost += 1;
                FlushFate::Unavailable
            }
            // Too few shards were written before the stop, and every drive answers: it was never acknowledged.
            Err(RowsError::Lost) => {
                walked.torn_on = true;
                FlushFate::Discarded
            }
        }
    }

    /// Enters the records of a segment.
    fn take_records<'a>(
        &mut self,
        index: SegmentIndex,
        flushes: impl Iterator<Item = &'a FlushSpan>,
        mut entries: impl Iterator<Item = TableEntry>,
    ) {
        for span in flushes {
            for entry in entries.by_ref().take(span.record_count as usize) {
                self.take_record(index, &entry, span.position);
            }
        }
    }

    fn take_record(&mut self, index: SegmentIndex, entry: &TableEntry, position: u32) {
        let key = entry.key();
        let found = &mut self.found;
        let place = FragmentEntry {
            source: entry.source,
            segment: index,
            position: position.saturating_add(entry.offset_units),
            bytes: entry.bytes,
            crc: entry.crc,
        };
        match entry.kind {
            RecordKind::Reject | RecordKind::Delete if planted(Planted::RejectionUnheeded) => {}
            RecordKind::Reject => self.finish(key, EventEnd::Rejected),
            RecordKind::Delete => self.finish(key, EventEnd::Deleted),
            _ if found.finished.contains(key) => {}
            RecordKind::Fragment => {
                let is_here = |e: &EventEntry| e.whole().is_some() || e.fragment(entry.source).is_some();
                if !found.index.event(key).is_some_and(is_here) {
                    found.index.insert(key, entry.expected, place);
                    found.segments.revive(index, entry.bytes);
                }
            }
            RecordKind::Event => {
                if found.index.event(key).is_none_or(|e| e.whole().is_none()) {
                    let gone = found.index.join(key, entry.expected, place);
                    gone.iter().for_each(|record| found.segments.bury(record.segment, record.bytes));
                    found.segments.revive(index, entry.bytes);
                }
            }
            RecordKind::Accept => {
                let incomplete = entry.flags & RECORD_INCOMPLETE != 0;
                if found.accepted.accept(key, StreamSet::of_record(entry), incomplete, Some(index)) {
                    found.segments.revive(index, 0);
                }
            }
            RecordKind::Release => {
                if found.accepted.release(key, StreamSet::of_record(entry), Some(index)) {
                    found.segments.revive(index, 0);
                }
            }
        }
    }

    fn finish(&mut self, key: EventKey, end: EventEnd) {
        let found = &mut self.found;
        found.finished.insert(key);
        found.ends.insert(key, end);
        bury_event(key, &mut found.index, &mut found.accepted, &mut found.segments);
    }

    /// What only all tables together tell.
    fn settle(&mut self) {
        self.found.torn.sort_by_key(|torn| torn.sequence);
        for key in self.found.accepted.all_released() {
            self.finish(key, EventEnd::Released);
        }
        for (key, incomplete) in self.found.accepted.keys() {
            self.found.index.accept(key, incomplete);
        }
    }
}

/// Removes an event and all that it keeps alive.
pub(crate) fn bury_event(
    key: EventKey,
    index: &mut Index,
    accepted: &mut AcceptedEvents,
    segments: &mut Segments,
) -> Option<EventEntry> {
    if let Some(accepted) = accepted.remove(key) {
        for segment in accepted.records() {
            segments.bury(segment, 0);
        }
    }
    let event = index.remove(key)?;
    for record in event.records() {
        segments.bury(record.segment, record.bytes);
    }
    Some(event)
}

/// What following a segment's flushes gave.
#[derive(Default)]
struct Walked {
    /// Flushes that stay where they are, with their tables.
    flushes: Vec<(FlushSpan, Vec<u8>)>,
    torn: Vec<TornRecord>,
    /// A flush that does not stay was met: none after it does, unless it is known to be durable.
    torn_on: bool,
    possibly_lost: u64,
    lost: u64,
    /// Of these, flushes of which no drive that answers holds a header.
    without_header: u64,
    /// What becomes of each flush that was met.
    fates: Vec<FlushFound>,
    /// When the last of them was written.
    written: WallTime,
}

/// A segment as a task reads it.
pub(crate) fn read_segment(
    config: &LaneConfig,
    plan: &PlannedSegment,
    answers: impl Fn(&DriveInfo) -> bool,
) -> ReadSegment {
    let shard = |place: &ShardPlace| {
        let drive = config.drives.iter().find(|d| d.number == place.drive);
        ReadShard {
            place: *place,
            drive: drive.map_or(DriveUuid::default(), |d| d.uuid),
            slot_offset_bytes: drive.map_or(0, |d| config.geometry.layout(d.slots).slot_offset(place.slot)),
            answers: drive.is_some_and(&answers),
        }
    };
    ReadSegment {
        store: config.store,
        id: plan.id,
        data_shards: plan.data_shards,
        parity_shards: plan.parity_shards,
        unit_bytes: plan.unit_bytes,
        slot_bytes: config.geometry.slot_bytes,
        step_bytes: config.background_read_bytes,
        shards: plan.shards.iter().map(shard).collect(),
        headers_failed: Cell::new(0),
        damaged: RefCell::default(),
    }
}

/// The flushes that a closing table lists.
fn spans_of(table: &SegmentTable) -> Vec<FlushSpan> {
    let mut position = 0;
    let span = |flush: &FlushEntry| {
        let span = FlushSpan {
            flush: flush.flush,
            offset_bytes: flush.offset_bytes,
            header_bytes: flush.header_bytes,
            record_count: flush.record_count,
            position,
            data_bytes: flush.data_bytes,
            first_sequence: flush.first_sequence,
        };
        position += span.positions();
        span
    };
    table.flushes.iter().map(span).collect()
}

/// The entries of a table that was checked when it was read, or is our own.
pub(crate) fn decode_table(table: &[u8]) -> impl Iterator<Item = TableEntry> + '_ {
    let (entries, _) = table.as_chunks::<TABLE_ENTRY_BYTES>();
    entries.iter().map(|entry| TableEntry::decode(entry).expect("the table was checked"))
}

/// The table that lies in the data of a flush.
fn table_in(data: &[u8], header: &FlushHeader) -> Option<Vec<u8>> {
    let start = usize::try_from(header.table_offset_bytes).ok()?;
    let table = data.get(start..start.checked_add(header.table_bytes as usize)?)?;
    // A record of a kind that is not known makes the whole unreadable: better said than passed over.
    header.decode_table(table).ok().map(|_| table.to_vec())
}

/// Each record of a flush with its payload, as far as it is right.
fn records_of(first_sequence: u64, table: &[u8], data: &[u8]) -> Vec<TornRecord> {
    let record = |(sequence, entry): (u64, TableEntry)| {
        let range = entry.payload_range();
        let payload = data.get(range.start as usize..range.end as usize)?.to_vec();
        Some(TornRecord { sequence, entry, payload })
    };
    (first_sequence..).zip(decode_table(table)).filter_map(record).collect()
}
