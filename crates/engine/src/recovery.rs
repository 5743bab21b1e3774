//! What a lane finds when it starts: the newest checkpoint, the tables of the segments that it lists, and the segments of its window that were
//! opened since. Never all the data.
//!
//! The order in which records are met does not matter: a finished event stays finished whatever is met after it (see [`crate::finished`]).

mod checkpoint;
mod walk;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use forebay_format::{
    CheckpointBody, DecisionSet, FileRecord, FlushEntry, PlannedSegment, RECORD_INCOMPLETE, RecordKind, SegmentState,
    SegmentTable, ShardPlace, TABLE_ENTRY_BYTES, TableEntry,
};
use forebay_types::{DriveNumber, DriveUuid, EventKey, FileNumber, ReadOutcome, WallTime};

use checkpoint::{confirm_checkpoint, newest_checkpoint};

use crate::accepted::{AcceptedEvents, StreamSet};
use crate::api::{DriveInfo, LaneConfig};
use crate::ends::{Ends, EventEnd};
use crate::files::{Files, RecordPlace, unix_ns};
use crate::finished::Finished;
use crate::hidden::Hidden;
use crate::index::{EventEntry, FragmentEntry, Index};
use crate::io::Io;
use crate::lane::decided_events;
use crate::planted::{Planted, planted};
use crate::read::{ReadSegment, ReadShard, Reader};
use crate::segments::{FlushSpan, SEGMENT_COUNTER_MASK, Segment, SegmentIndex, Segments};
use crate::survey::{Findings, Found, Listed};

/// The task number of recovery.
pub(crate) const RECOVERY_TASK: usize = usize::MAX;

/// What recovery found.
pub(crate) struct Recovered {
    pub(crate) index: Index,
    pub(crate) files: Files,
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
    /// Flushes that need drives that do not answer: perhaps acknowledged, and acknowledged.
    pub(crate) flushes_possibly_lost: u64,
    pub(crate) flushes_unavailable: u64,
    pub(crate) flushes_lost: u64,
    pub(crate) segments_unreadable: u64,
    /// Whole events that cannot be read now, and count by fragments that lie elsewhere.
    pub(crate) events_held: u64,
    pub(crate) hidden: Hidden,
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
        files: Files::default(),
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
        flushes_unavailable: 0,
        flushes_lost: 0,
        segments_unreadable: 0,
        events_held: 0,
        hidden: Hidden::default(),
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
            && let Some(closing) = reader.closing_table().await
        {
            self.found.findings.found(Found::Table);
            let spans = spans_of(&closing.table);
            // The stop may have come while it was being closed. What is missing of that would be of no flush that anything can be mended from.
            let is_torn = state == SegmentState::Open && !closing.is_whole;
            let state = if is_torn { SegmentState::Walk } else { SegmentState::Closed };
            let index = self.add(plan, state, spans.clone(), closing.written, 0);
            if is_torn {
                self.found.unclosed.push((index, encode_table(&closing.table.records)));
            }
            self.take_records(index, spans.iter(), closing.table.records.into_iter());
            return;
        }
        let limit = (state != SegmentState::Open).then_some(flushes);
        let walked = self.walk(&reader, limit, flushes).await;
        self.found.findings.walked(walked.fates, walked.without_header);
        self.found.hidden.extend(walked.hidden);
        let misses_below = if planted(Planted::LossClosedOver) { 0 } else { walked.misses_below };
        // A closing flush that drives had which are away tells more than is left: each start looks for it, until nothing is missing.
        let may_be_closed = state != SegmentState::Walk && !planted(Planted::ClosingForgotten);
        let missing_as = if may_be_closed { SegmentState::Closed } else { SegmentState::Walk };
        self.found.flushes_possibly_lost += walked.possibly_lost;
        self.found.flushes_unavailable += walked.unavailable;
        self.found.flushes_lost += walked.lost;
        if walked.flushes.is_empty() && walked.torn.is_empty() {
            let had_some = state == SegmentState::Closed || (state == SegmentState::Walk && flushes > 0);
            if (had_some || misses_below > 0) && !planted(Planted::UnreadableFreed) {
                self.unreadable(plan, missing_as, misses_below.max(flushes));
            }
            return;
        }
        self.found.findings.found(Found::Walked);
        self.found.torn.extend(walked.torn);
        let (spans, tables): (Vec<FlushSpan>, Vec<Vec<u8>>) = walked.flushes.into_iter().unzip();
        let state = if misses_below > 0 { missing_as } else { SegmentState::Walk };
        let index = self.add(plan, state, spans.clone(), walked.written, misses_below);
        let table = tables.concat();
        self.take_records(index, spans.iter(), decode_table(&table));
        if misses_below == 0 {
            // A closing flush would hide what is missing.
            self.found.unclosed.push((index, table));
        }
    }

    fn add(
        &mut self,
        plan: &PlannedSegment,
        state: SegmentState,
        spans: Vec<FlushSpan>,
        written: WallTime,
        misses_below: u32,
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
            misses_below,
            scrub_at: forebay_types::Time::default(),
            scrub_round: 0,
            is_packed: false,
        })
    }

    /// A segment that should be there and cannot be read: it stays, so that nothing reuses its slots and drives that come back may help.
    fn unreadable(&mut self, plan: &PlannedSegment, state: SegmentState, flushes: u32) {
        let index = self.add(plan, state, Vec::new(), WallTime::default(), flushes);
        self.found.segments.revive(index, 0);
        self.found.segments_unreadable += 1;
        self.found.findings.found(Found::Unreadable);
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
            RecordKind::Piece | RecordKind::Hole | RecordKind::State | RecordKind::Sums
                if !found.finished.contains(key) =>
            {
                self.take_record_of_file(index, entry, place.position);
            }
            RecordKind::End => {
                found.finished.insert(key);
                found.files.end(FileNumber(key.event.0), &mut found.segments);
            }
            RecordKind::Reject => self.finish(key, EventEnd::Rejected),
            RecordKind::Delete => self.finish(key, EventEnd::Deleted),
            _ if found.finished.contains(key) => {}
            RecordKind::Fragment => {
                match self
                    .found
                    .index
                    .event(key)
                    .map(|event| (event.whole().copied(), event.fragment(entry.source).copied()))
                {
                    Some((Some(whole), _)) => {
                        if !self.displaces(whole.segment, index) {
                            return;
                        }
                        // All of the event cannot be read now: what of it lies elsewhere can.
                        self.displace(key, whole.segment);
                    }
                    Some((None, Some(known))) => return self.prefer(known.segment, index, entry, place),
                    _ => {}
                }
                self.found.index.insert(key, entry.expected, place);
                self.found.segments.revive(index, entry.bytes);
            }
            RecordKind::Event => {
                let known = self.found.index.event(key);
                let holders: Vec<SegmentIndex> =
                    known.map_or(Vec::new(), |event| event.records().iter().map(|record| record.segment).collect());
                let is_whole = known.is_some_and(|event| event.whole().is_some());
                if is_whole && !self.succeeds(holders[0], index) {
                    return;
                }
                if !is_whole && holders.iter().any(|holder| self.displaces(index, *holder)) {
                    // Its fragments can be read where they lay before, as far as they are there.
                    self.hold(key, index, entry.bytes);
                    return;
                }
                let gone = self.found.index.join(key, entry.expected, place);
                gone.iter().for_each(|record| self.found.segments.bury(record.segment, record.bytes));
                self.found.segments.revive(index, entry.bytes);
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
            RecordKind::Piece | RecordKind::Hole | RecordKind::State | RecordKind::Sums => {}
        }
    }

    fn take_record_of_file(&mut self, index: SegmentIndex, entry: &TableEntry, position: u32) {
        let record = FileRecord::of(entry).expect("its kind is of a file");
        let written_unix_ns = unix_ns(self.found.segments.get(index).written);
        let place = RecordPlace { segment: index, position, written_unix_ns };
        let mut files = std::mem::take(&mut self.found.files);
        let mut segments = std::mem::take(&mut self.found.segments);
        let prefers = |segments: &Segments, known| self.succeeds_among(segments, known, index);
        files.take(&record, place, prefers, &mut segments);
        (self.found.files, self.found.segments) = (files, segments);
    }

    /// Shards of a segment that answer beyond those that its data need; negative when too few do.
    fn to_spare(&self, segments: &Segments, index: SegmentIndex) -> isize {
        let segment = segments.get(index);
        let answers = |place: &&ShardPlace| self.drive(place.drive).is_some_and(|drive| drive.present);
        segment.shards.iter().filter(answers).count() as isize - isize::from(i16::from(segment.data_shards))
    }

    /// Of two places that compaction leaves for a while, the other counts whatever was written first: fewer of the shards are missing there that its
    /// data need.
    fn displaces(&self, known: SegmentIndex, other: SegmentIndex) -> bool {
        self.displaces_among(&self.found.segments, known, other)
    }

    fn displaces_among(&self, segments: &Segments, known: SegmentIndex, other: SegmentIndex) -> bool {
        let lacks = |index| self.to_spare(segments, index).min(0);
        lacks(other) > lacks(known) && !planted(Planted::UnreadablePlaceCounts)
    }

    /// Of two places of the same record the other counts: the copy, as before the crash, when the lane may have said of it that all is protected and
    /// nothing needs the drives any more that hold the place that it was copied from. Unless the copy cannot be read now.
    fn succeeds(&self, known: SegmentIndex, other: SegmentIndex) -> bool {
        self.succeeds_among(&self.found.segments, known, other)
    }

    fn succeeds_among(&self, segments: &Segments, known: SegmentIndex, other: SegmentIndex) -> bool {
        let id = |index| segments.get(index).id;
        let displaces = |known, other| self.displaces_among(segments, known, other);
        displaces(known, other) || id(other) > id(known) && !displaces(other, known)
    }

    /// A fragment lies in two segments, one of which compaction was about to empty.
    fn prefer(&mut self, known: SegmentIndex, other: SegmentIndex, entry: &TableEntry, place: FragmentEntry) {
        if !self.succeeds(known, other) {
            return;
        }
        let found = &mut self.found;
        let event = found.index.event_mut(entry.key()).expect("looked up by whoever calls");
        *event.fragment_mut(entry.source).expect("as before") = place;
        found.segments.revive(other, entry.bytes);
        found.segments.bury(known, entry.bytes);
    }

    /// The record of a whole event cannot be read now, and its fragments count where they lay before, as far as they still do. What is not among
    /// them is there when the drives come back: until then nothing is written of the event, and the record's segment stays.
    fn displace(&mut self, key: EventKey, segment: SegmentIndex) {
        let event = self.found.index.remove(key).expect("looked up by whoever calls");
        let bytes = u32::try_from(event.record_bytes()).expect("one record");
        self.found.segments.bury(segment, bytes);
        self.hold(key, segment, bytes);
    }

    fn hold(&mut self, key: EventKey, segment: SegmentIndex, bytes: u32) {
        self.found.segments.revive(segment, bytes);
        self.found.hidden.add_event(ReadOutcome::Unavailable, key);
        self.found.events_held += 1;
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
        read_through_bytes: config.read_through_bytes,
        shards: plan.shards.iter().map(shard).collect(),
        headers_failed: Cell::new(0),
        damaged: RefCell::default(),
    }
}

/// The flushes that a closing table lists.
pub(crate) fn spans_of(table: &SegmentTable) -> Vec<FlushSpan> {
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

fn encode_table(entries: &[TableEntry]) -> Vec<u8> {
    let mut table = vec![0; entries.len() * TABLE_ENTRY_BYTES];
    let (places, _) = table.as_chunks_mut::<TABLE_ENTRY_BYTES>();
    entries.iter().zip(places).for_each(|(entry, place)| entry.encode_into(place));
    table
}

/// The entries of a table that was checked when it was read, or is our own.
pub(crate) fn decode_table(table: &[u8]) -> impl Iterator<Item = TableEntry> + '_ {
    let (entries, _) = table.as_chunks::<TABLE_ENTRY_BYTES>();
    entries.iter().map(|entry| TableEntry::decode(entry).expect("the table was checked"))
}
