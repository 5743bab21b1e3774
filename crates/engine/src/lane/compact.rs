//! Making room: what lives in segments with little alive is written once more elsewhere, and their slots come free.
//!
//! What it costs is what lives in a segment; what it brings is a segment's slots. So the segment with least alive comes first, and the less room
//! is left, the more may live in it. While there is plenty of room nothing is moved: most events die by themselves. What came slowly lies in a flush of its own
//! each, and takes many times its size: copies of it wait for each other until a flush is full.
//!
//! An accepted event is written as one record, wherever its fragments lie ([`super::join`]); anything else as records of the same kinds.
//! A copy is a record as any other. Until it is durable the index has the old place, where the bytes still are; then, if the event still lives,
//! the new one. A copy that is lost with a drive or in a crash is not missed, and of two that are found one counts. Deletions count whatever
//! is met after them, so that no copy outranks a later one.

mod append;
mod live;
mod worth;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use forebay_format::{
    FileRecord, RECORD_INCOMPLETE, RecordKind, SegmentId, SegmentTable, TABLE_ENTRY_BYTES, TableEntry,
};
use forebay_types::{EventKey, Time};

use super::background::Stepped;
use super::files::live_record;
use super::join::Joining;
use super::write::Waiter;
use super::{Lane, State};
use crate::api::CompactionStatus;
use crate::flush::NewRecord;
use crate::index::FragmentEntry;
use crate::planted::{Planted, planted};
use crate::recovery::spans_of;
use crate::segments::{FlushSpan, SegmentIndex};
pub(super) use live::Live;
use live::LiveRecord;
use worth::{Chosen, FREE_PERCENT_SCARCE};

/// Segments are compared so often when none was worth it,
const LOOK: Duration = Duration::from_millis(200);

/// and so often when room is scarce.
const LOOK_SCARCE: Duration = Duration::from_millis(20);

/// What is done at once: parts of segments that are read, and segments that are emptied. With more than one of these the first reads of the next do not wait for
/// the last of the one before.
#[derive(Clone, Copy)]
struct AtOnce {
    parts: usize,
    segments: usize,
}

/// When nobody asks for anything, or room is short,
const AT_ONCE: AtOnce = AtOnce { parts: 4, segments: 3 };

/// and beside requests, with at least so much of the lane free, in percent. More would make more room than is written to, which writers would pay for, and what is
/// moved later has died in part.
const AT_ONCE_BESIDE: [(u64, AtOnce); 2] =
    [(12, AtOnce { parts: 1, segments: 1 }), (10, AtOnce { parts: 2, segments: 1 })];

/// The table of a whole segment is read at once when it is not larger than this; else those of its flushes are, one by one.
const TABLES_BYTES_MAX: usize = 4 << 20;

/// The records of a flush, or of all flushes of a segment.
pub(super) enum Tables {
    Flush(FlushSpan, Vec<TableEntry>),
    Segment(SegmentTable),
}

/// What a copy stands for, for the time when it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyOf {
    /// A fragment, or the acceptance of an event that has releases: the records there are needed until the copy of those is durable too.
    Part(SegmentIndex),
    /// All that is left of what this segment says of an event.
    Rest(SegmentIndex),
    /// Every record of the fragments of its event, wherever it is.
    Event,
    /// A part of what a file is: its version says what it stands for.
    File,
}

/// A segment that is emptied.
struct Compacting {
    segment: SegmentIndex,
    id: SegmentId,
    /// What is still to be read of it, in this order.
    left: VecDeque<ToRead>,
    /// Something of it was written once more, or will be with the event that it belongs to.
    has_copies: bool,
}

/// A part of a segment that is emptied.
enum ToRead {
    /// The table of a flush; of all of them when none is named.
    Table(Option<FlushSpan>),
    /// Records of a flush that lived when its table was read.
    Records(FlushSpan, Vec<TableEntry>),
    /// One that was not what its sum says when it was to be copied.
    Damaged(FlushSpan, TableEntry),
}

/// A segment of which everything was read. It looks as if it still had what its copies stand for, until these are durable.
struct Emptied {
    id: SegmentId,
    /// So many copies were appended until then, since the start.
    copies: u64,
}

impl Compaction {
    fn reading(&self) -> usize {
        self.reading.values().sum()
    }

    fn current(&mut self, segment: SegmentIndex) -> Option<&mut Compacting> {
        self.current.iter_mut().find(|current| current.segment == segment)
    }

    /// A record of a file was moved.
    pub(super) fn piece_is_moved(&mut self) {
        self.status.pieces_moved += 1;
    }
}

/// What is moved.
#[derive(Default)]
pub(super) struct Compaction {
    /// The first of them first.
    current: Vec<Compacting>,
    /// How many parts of each segment are read now, also of those that were left meanwhile.
    reading: BTreeMap<SegmentIndex, usize>,
    /// What was read and is not written yet, for which segment.
    ready: VecDeque<(SegmentIndex, SegmentId, Live)>,
    /// In the order in which they were read.
    emptied: VecDeque<Emptied>,
    /// Copies that were appended, and those that are durable of them, which become so in their order.
    copies: u64,
    copies_durable: u64,
    pub(super) joining: Joining,
    looked_at: Option<Time>,
    /// None was worth it at the last look, with so many segments free for copies.
    none_worth_with: Option<usize>,
    chosen: Chosen,
    /// Segments of which something cannot be read.
    stuck: BTreeSet<SegmentId>,
    status: CompactionStatus,
}

impl Lane {
    /// Whether more copies follow those that fill a flush: nobody waits for them, and a flush of few takes as much room as what they are to free.
    pub(super) fn more_copies_follow(&self) -> bool {
        let compaction = &self.background.compaction;
        !compaction.current.is_empty() && matches!(self.state, State::Serving)
    }

    pub(super) fn has_to_compact(&self) -> bool {
        let compaction = &self.background.compaction;
        let waits = compaction.reading() > 0 || !compaction.joining.is_idle() || !compaction.ready.is_empty();
        !compaction.current.is_empty() && !waits
    }

    /// When segments are compared next.
    pub(super) fn next_compaction(&self) -> Option<Time> {
        self.background.compaction.current.is_empty().then(|| self.next_look())
    }

    fn next_look(&self) -> Time {
        let scarce = self.width().is_some_and(|width| self.space(width).percent_free() < FREE_PERCENT_SCARCE);
        let look = if scarce { LOOK_SCARCE } else { LOOK };
        self.background.compaction.looked_at.map_or(self.now, |at| at + look)
    }

    /// Starts to read the next event, or the next flush, of a segment that is emptied; whether there was one.
    pub(super) fn compact_on(&mut self) -> bool {
        let at_once = self.at_once();
        let compaction = &self.background.compaction;
        if compaction.reading() >= at_once.parts || !compaction.ready.is_empty() {
            return false;
        }
        if self.join_on() {
            return true;
        }
        if !self.background.compaction.joining.is_idle() {
            return false;
        }
        self.end_compacting();
        let mut current = self.background.compaction.current.iter();
        let segment = current.find(|current| !current.left.is_empty()).map(|current| current.segment);
        match segment {
            Some(segment) => self.read_on(segment),
            None if self.background.compaction.current.len() < at_once.segments => self.begin_compacting(),
            None => false,
        }
    }

    /// Starts to read the next part of a segment; whether anything changed.
    fn read_on(&mut self, segment: SegmentIndex) -> bool {
        let current = self.background.compaction.current(segment).expect("it is emptied");
        let (id, next) = (current.id, current.left.pop_front());
        if self.segments.find(segment).is_none_or(|s| s.id != id || s.live_records == 0) {
            self.stop_compacting(segment);
            return true;
        }
        match next {
            Some(ToRead::Records(span, records)) => self.read_records(segment, span, records),
            Some(ToRead::Damaged(span, entry)) => self.read_damaged(segment, span, entry),
            Some(ToRead::Table(of)) => self.read_table(segment, of),
            None => return false,
        }
        true
    }

    fn at_once(&self) -> AtOnce {
        if !self.has_requests() {
            return AT_ONCE;
        }
        let free = self.width().map_or(0, |width| self.space(width).percent_free());
        let beside = AT_ONCE_BESIDE.iter().find(|(at_least, _)| free >= *at_least);
        beside.map_or(AT_ONCE, |(_, at_once)| *at_once)
    }

    /// A part of a segment is read from now on.
    fn is_read(&mut self, segment: SegmentIndex) {
        *self.background.compaction.reading.entry(segment).or_default() += 1;
    }

    /// And not any more.
    fn was_read(&mut self, segment: SegmentIndex) {
        let reading = &mut self.background.compaction.reading;
        let parts = reading.get_mut(&segment).expect("its step came back");
        *parts -= 1;
        if *parts == 0 {
            reading.remove(&segment);
        }
    }

    fn read_table(&mut self, segment: SegmentIndex, of: Option<FlushSpan>) {
        self.is_read(segment);
        self.start_step(segment, move |reader| async move {
            let tables = match of {
                Some(span) => reader.table(span).await.map(|table| Tables::Flush(span, table)),
                None => reader.closing_table().await.map(|closing| Tables::Segment(closing.table)),
            };
            Stepped::Tabled(of, tables)
        });
    }

    /// Ends with the segments of which everything was read, and written once more.
    fn end_compacting(&mut self) {
        let Compaction { current, reading, .. } = &mut self.background.compaction;
        let is_over = |current: &mut Compacting| current.left.is_empty() && !reading.contains_key(&current.segment);
        let over: Vec<Compacting> = current.extract_if(.., is_over).collect();
        for Compacting { segment, id, has_copies, .. } in over {
            let lives = self.segments.find(segment).is_some_and(|known| known.id == id && known.live_records > 0);
            let compaction = &mut self.background.compaction;
            if lives && !has_copies {
                // Nothing of it could be copied: what still lives there is what drives that are away hold elsewhere.
                compaction.stuck.insert(id);
            } else if compaction.copies > compaction.copies_durable {
                compaction.emptied.push_back(Emptied { id, copies: compaction.copies });
            }
        }
    }

    /// So many more copies are durable: segments of which all are do not look as if they had anything more.
    pub(super) fn copies_are_durable(&mut self, copies: usize) {
        let compaction = &mut self.background.compaction;
        compaction.copies_durable += copies as u64;
        assert!(compaction.copies_durable <= compaction.copies, "what is durable was appended");
        while compaction.emptied.front().is_some_and(|emptied| emptied.copies <= compaction.copies_durable) {
            compaction.emptied.pop_front();
        }
    }

    /// Copies that are not durable are not written again: their segments are looked at anew.
    pub(super) fn copies_are_dropped(&mut self) {
        let compaction = &mut self.background.compaction;
        compaction.copies_durable = compaction.copies;
        compaction.emptied.clear();
    }

    /// Leaves a segment that was being emptied.
    fn stop_compacting(&mut self, segment: SegmentIndex) {
        let compaction = &mut self.background.compaction;
        compaction.current.retain(|current| current.segment != segment);
        compaction.joining.forget();
    }

    fn begin_compacting(&mut self) -> bool {
        if self.next_look() > self.now {
            return false;
        }
        self.background.compaction.looked_at = Some(self.now);
        let worth = self.segment_worth();
        self.background.compaction.none_worth_with = worth.is_none().then(|| self.free_for_copies());
        let Some(segment) = worth else { return false };
        let known = self.segments.get(segment);
        let records: usize = known.flushes.iter().map(|span| span.record_count as usize).sum();
        let left = match known.has_closing_flush() && records * TABLE_ENTRY_BYTES <= TABLES_BYTES_MAX {
            true => VecDeque::from([ToRead::Table(None)]),
            false => known.flushes.iter().map(|span| ToRead::Table(Some(*span))).collect(),
        };
        let id = known.id;
        let compaction = &mut self.background.compaction;
        if compaction.emptied.is_empty() && compaction.current.is_empty() {
            compaction.joining.forget();
        }
        compaction.current.push(Compacting { segment, id, left, has_copies: false });
        compaction.looked_at = None;
        true
    }

    /// Tables are here: what lives by them is read next.
    pub(super) fn flushes_are_tabled(&mut self, segment: SegmentIndex, of: Option<FlushSpan>, tables: Option<Tables>) {
        self.was_read(segment);
        let living = |span: FlushSpan, table: &[TableEntry]| {
            let lives = |entry: &&TableEntry| self.lives_in(segment, &span, entry);
            let living: Vec<TableEntry> = table.iter().filter(lives).copied().collect();
            (!living.is_empty()).then_some(ToRead::Records(span, living))
        };
        let next: Vec<ToRead> = match (tables, of) {
            (Some(Tables::Flush(span, table)), _) => living(span, &table).into_iter().collect(),
            (Some(Tables::Segment(table)), _) => {
                let flushes = spans_of(&table).into_iter().zip(table.by_flush());
                flushes.filter_map(|(span, (_, table))| living(span, table)).collect()
            }
            // What a closing flush says stands in the tables of the others, too.
            (None, None) => self.segments.get(segment).flushes.iter().map(|span| ToRead::Table(Some(*span))).collect(),
            (None, Some(_)) => return self.cannot_compact(segment),
        };
        // It may have been left meanwhile.
        if let Some(current) = self.background.compaction.current(segment) {
            next.into_iter().rev().for_each(|next| current.left.push_front(next));
        }
    }

    /// Reads what lives of these records of a flush.
    fn read_records(&mut self, segment: SegmentIndex, span: FlushSpan, table: Vec<TableEntry>) {
        let (mut records, mut decided, mut of_files) = (Vec::new(), BTreeSet::new(), Vec::new());
        let may_join = self.has_room_to_join();
        for entry in table {
            match entry.kind {
                _ if !self.lives_in(segment, &span, &entry) => {}
                RecordKind::Fragment if may_join && self.will_be_joined(segment, &entry) => {}
                RecordKind::Fragment | RecordKind::Event | RecordKind::Piece => records.push(entry),
                kind if kind.is_of_file() => of_files.extend(live_record(&entry)),
                _ => drop(decided.insert(entry.key())),
            }
        }
        if records.is_empty() && decided.is_empty() && of_files.is_empty() {
            return;
        }
        self.is_read(segment);
        let decisions = |key: EventKey| [Live::Acceptance(key), Live::Releases(key)];
        let decided: Vec<Live> = decided.into_iter().flat_map(decisions).collect();
        self.start_step(segment, move |reader| async move {
            let ranges: Vec<_> = records.iter().map(TableEntry::payload_range).collect();
            let payloads = reader.unchecked(span, &ranges).await;
            let mut live = Vec::with_capacity(records.len());
            for (entry, read) in records.into_iter().zip(payloads) {
                // Parts of a piece get other sums than it has.
                let may_wait = read.is_some() && entry.kind != RecordKind::Piece;
                live.push(if may_wait {
                    Live::Record(LiveRecord { span, entry, payload: read, is_checked: false })
                } else {
                    reader.checked_record(span, entry, read).await
                });
            }
            live.extend(decided.into_iter().chain(of_files));
            Stepped::Lives(live)
        });
    }

    /// Reads a record once more, from whatever drives have it.
    fn read_damaged(&mut self, segment: SegmentIndex, span: FlushSpan, entry: TableEntry) {
        if !self.lives_in(segment, &span, &entry) {
            return;
        }
        self.is_read(segment);
        self.start_step(segment, move |reader| async move {
            Stepped::Lives(vec![reader.checked_record(span, entry, None).await])
        });
    }

    /// Whether a record of a flush is one that counts.
    fn lives_in(&self, segment: SegmentIndex, span: &FlushSpan, entry: &TableEntry) -> bool {
        let key = entry.key();
        match entry.kind {
            RecordKind::Fragment => {
                let known = self.index.event(key).and_then(|event| event.fragment(entry.source));
                known.is_some_and(|known| {
                    known.segment == segment && known.position == span.position.saturating_add(entry.offset_units)
                })
            }
            RecordKind::Event => self.index.event(key).and_then(|event| event.whole()).is_some_and(|known| {
                known.segment == segment && known.position == span.position.saturating_add(entry.offset_units)
            }),
            RecordKind::Accept | RecordKind::Release => {
                self.accepted.get(key).is_some_and(|accepted| accepted.records().any(|at| at == segment))
            }
            RecordKind::Reject | RecordKind::Delete | RecordKind::End => false,
            RecordKind::Piece | RecordKind::Hole | RecordKind::State | RecordKind::Sums => {
                let record = FileRecord::of(entry).expect("its kind is of a file");
                let position = span.position.saturating_add(entry.offset_units);
                self.files.get(record.file).is_some_and(|file| file.lives_in(segment, position, &record))
            }
        }
    }

    /// What lives of a flush is here: it is written as soon as there is room.
    pub(super) fn flush_lives(&mut self, segment: SegmentIndex, live: Vec<Live>) {
        self.was_read(segment);
        if live.iter().any(|live| matches!(live, Live::Record(LiveRecord { payload: None, .. }))) {
            return self.cannot_compact(segment);
        }
        for live in live {
            match live {
                Live::Record(LiveRecord { entry, payload: Some(payload), .. }) if entry.kind == RecordKind::Piece => {
                    self.parts_to_copy(segment, &entry, &payload)
                        .into_iter()
                        .for_each(|live| self.copy_soon(segment, live));
                }
                live => self.copy_soon(segment, live),
            }
        }
        self.write_copies();
    }

    /// Something of a segment that is emptied was written once more, or will be.
    pub(super) fn has_copies(&mut self, segment: SegmentIndex) {
        if let Some(current) = self.background.compaction.current(segment) {
            current.has_copies = true;
        }
    }

    /// Something was read of a segment that is emptied.
    pub(super) fn copy_soon(&mut self, segment: SegmentIndex, live: Live) {
        if let Some(id) = self.segments.find(segment).map(|known| known.id) {
            self.background.compaction.ready.push_back((segment, id, live));
        }
    }

    /// A segment, of which something cannot be read, stays where it is, until the drives are others.
    pub(super) fn cannot_compact(&mut self, segment: SegmentIndex) {
        if let Some(id) = self.segments.find(segment).map(|known| known.id) {
            self.background.compaction.stuck.insert(id);
        }
        if self.background.compaction.current(segment).is_some() {
            self.stop_compacting(segment);
        }
    }

    pub(super) fn compaction_may_try_all_again(&mut self) {
        self.background.compaction.stuck.clear();
    }

    /// What could not be read of a segment may be possible to read now.
    pub(super) fn compaction_may_try_again(&mut self, segment: SegmentId) {
        self.background.compaction.stuck.remove(&segment);
    }

    /// What was read is not what was written: it is made from what the other drives have, unless that was tried.
    fn is_damaged(&mut self, segment: SegmentIndex, live: Live) {
        match (live, self.background.compaction.current(segment)) {
            (Live::Record(LiveRecord { span, entry, is_checked: false, .. }), Some(current)) => {
                current.left.push_front(ToRead::Damaged(span, entry));
            }
            _ => self.cannot_compact(segment),
        }
    }

    /// The record that is to be written for something that lived in `old`, if it still does.
    fn copy_of(&self, old: SegmentIndex, live: &Live) -> Option<(NewRecord, CopyOf)> {
        let (key, is_release) = match live {
            Live::Event(key, payload) => return self.record_of_event(*key, payload),
            Live::File(record, _) => return self.copy_of_file_record(old, record),
            Live::Record(live) => {
                let event = self.index.event(live.entry.key())?;
                let (known, copy) = match live.entry.kind {
                    RecordKind::Event => (event.whole()?, CopyOf::Event),
                    _ => (event.fragment(live.entry.source)?, CopyOf::Part(old)),
                };
                return (known.segment == old).then_some((live.record(), copy));
            }
            Live::Acceptance(key) => (*key, false),
            Live::Releases(key) => (*key, true),
        };
        let accepted = self.accepted.get(key).filter(|accepted| accepted.records().any(|segment| segment == old))?;
        let streams = if is_release { accepted.released } else { accepted.streams };
        if streams.is_empty() {
            return None;
        }
        let (source, crc) = streams.to_record();
        let flags = if accepted.incomplete && !is_release { RECORD_INCOMPLETE } else { 0 };
        let kind = if is_release { RecordKind::Release } else { RecordKind::Accept };
        let record = NewRecord { kind, flags, expected: 0, run: key.run, event: key.event, source, crc, extra: 0 };
        let rest = is_release || accepted.released.is_empty() || accepted.streams.is_empty();
        Some((record, if rest { CopyOf::Rest(old) } else { CopyOf::Part(old) }))
    }

    /// A copy is durable: if its event still lives, it counts from now on and the old place does not.
    pub(super) fn copy_counts(&mut self, copy: CopyOf, new: SegmentIndex, position: u32, entry: &TableEntry) {
        let key = entry.key();
        assert_ne!(copy, CopyOf::File, "copies of records of files count by another way");
        let (CopyOf::Part(old) | CopyOf::Rest(old)) = copy else {
            if self.index.event(key).is_some() {
                self.event_counts(new, position, entry);
                self.background.compaction.status.events_joined += 1;
            }
            return;
        };
        if entry.kind != RecordKind::Fragment {
            if self.carried.is_moving(key) {
                // A checkpoint that is on its way takes the records that there were when it was begun.
                return;
            }
            if let Some(gone) = self.accepted.copy_record(key, old, new, matches!(copy, CopyOf::Rest(_))) {
                self.segments.revive(new, 0);
                (0..gone).for_each(|_| self.segments.bury(old, 0));
            }
            return;
        }
        if planted(Planted::CopyRevives) && self.index.event(key).is_none() {
            let (source, bytes, crc) = (entry.source, entry.bytes, entry.crc);
            let fragment = FragmentEntry { source, segment: new, position, bytes, crc };
            self.index.insert(key, entry.expected, fragment);
            self.segments.revive(new, entry.bytes);
            self.fragment_bytes += u64::from(entry.bytes);
        }
        let Some(event) = self.index.event_mut(key) else { return };
        let Some(fragment) = event.fragment_mut(entry.source).filter(|fragment| fragment.segment == old) else {
            return;
        };
        (fragment.segment, fragment.position) = (new, position);
        self.segments.revive(new, entry.bytes);
        self.segments.bury(old, entry.bytes);
        self.background.compaction.status.fragments_moved += 1;
    }

    /// What was moved.
    pub(super) fn compaction_status(&self) -> CompactionStatus {
        let compaction = &self.background.compaction;
        CompactionStatus {
            segments_stuck: self.segments.iter().filter(|(_, segment)| compaction.stuck.contains(&segment.id)).count()
                as u64,
            is_running: !compaction.current.is_empty(),
            ..compaction.status.clone()
        }
    }
}

/// The records of a flush that are copies, and of what.
pub(super) fn copied_from(waiters: &[(Waiter, u32)]) -> BTreeMap<usize, CopyOf> {
    let mut copies = BTreeMap::new();
    let mut at = 0;
    for (waiter, records) in waiters {
        if let Waiter::Copy(copy) = waiter {
            copies.extend((at..at + *records as usize).map(|record| (record, *copy)));
        }
        at += *records as usize;
    }
    copies
}
