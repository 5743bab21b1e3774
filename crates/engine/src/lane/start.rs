//! Starting and stopping a lane.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Poll;

use forebay_format::{FileRecord, RecordKind, SegmentState, TableEntry};
use forebay_types::{DriveNumber, EventKey, Time, WallTime};

use super::background::Background;
use super::carry::Carried;
use super::checkpoint::Checkpointer;
use super::losses::KnownLosses;
use super::subscribe::Happened;
use super::survey::Survey;
use super::trace::LatePuts;
use super::write::{OpenSegment, Replay, Waiter, Writer};
use super::{Lane, State};
use crate::accepted::{AcceptedEvents, StreamSet};
use crate::api::{LaneConfig, LaneCounters, LaneEvent, Token};
use crate::cache::Cache;
use crate::ends::Ends;
use crate::files::{File, OpenFiles};
use crate::finished::Finished;
use crate::flush::{NewRecord, flush_buffer_bytes};
use crate::index::{EventEntry, Index};
use crate::io::Io;
use crate::planted::{Planted, planted};
use crate::pool::BufferPool;
use crate::recovery::{RECOVERY_TASK, Recovered, recover};
use crate::rows::RecentRows;
use crate::segments::{SegmentIndex, Segments};
use crate::slots::Slots;
use crate::task::{Tasks, poll_once};

impl Lane {
    /// A lane that begins by finding out what is there.
    pub fn new(config: LaneConfig, now: Time) -> Lane {
        Lane::begin(config, Io::default(), now)
    }

    fn begin(config: LaneConfig, io: Io, now: Time) -> Lane {
        let geometry = config.geometry;
        let shards = usize::from(geometry.data_shards) + usize::from(geometry.parity_shards);
        // With room for a table of some records: what is written in pieces of just a part of a flush would not fit otherwise.
        let data_bytes = config.flush_bytes * usize::from(geometry.data_shards) + config.flush_multiple_bytes;
        let buffer_bytes = flush_buffer_bytes(geometry.data_shards, shards, geometry.unit_bytes, data_bytes);
        let recovery = Box::pin(recover(io.clone(), config.clone()));
        let mut lane = Lane {
            state: State::Recovering(recovery),
            io,
            now,
            wall: WallTime::default(),
            drive_time: Time::default(),
            index: Index::default(),
            files: Default::default(),
            open_files: OpenFiles::new(config.index_bytes),
            summing: Default::default(),
            segments: Segments::default(),
            finished: Finished::new(geometry.lanes),
            ends: Ends::new(geometry.lanes, config.index_bytes),
            accepted: AcceptedEvents::from_checkpoint(&[]),
            carried: Carried::default(),
            slots: Slots::new(config.lane, geometry.lanes).telling(config.tells_freed),
            cache: Cache::default(),
            pool: BufferPool::new(buffer_bytes),
            writer: Writer::default(),
            checkpointer: Checkpointer::default(),
            tasks: Tasks::default(),
            reading: BTreeMap::new(),
            reading_files: BTreeMap::new(),
            rows: RecentRows::new(config.cache_bytes, usize::from(geometry.data_shards) * geometry.unit_bytes as usize),
            rows_awaited: BTreeMap::new(),
            replies: Default::default(),
            events: Default::default(),
            failing: BTreeSet::new(),
            failed_reads: BTreeMap::new(),
            recovered: false,
            next_sequence: 0,
            next_segment_counter: 0,
            fragment_bytes: 0,
            flushes_possibly_lost: 0,
            flushes_unavailable: 0,
            flushes_lost: 0,
            segments_unreadable: 0,
            hidden: Default::default(),
            events_held: 0,
            survey: Survey::default(),
            losses: KnownLosses::new(config.index_bytes),
            late_puts: LatePuts::default(),
            run_rules: BTreeMap::new(),
            happened: Happened::new(config.told_events),
            background: Background::default(),
            counters: LaneCounters::default(),
            config,
        };
        lane.recover_on();
        lane
    }

    /// A drive that recovery counted on failed, and that is durable: recovery begins anew without it. What this one wrote again counts only if its checkpoint
    /// is on a drive that is left, and that checkpoint lists it; what it left out is kept in mind. Nothing of it is on its way any more, so nothing can
    /// land on what the next one writes.
    pub(super) fn start_over(&mut self) {
        self.io.forget_task(RECOVERY_TASK);
        let mut config = self.config.clone();
        for drive in &mut config.drives {
            drive.present &= !self.failing.contains(&drive.number);
        }
        let begun = Lane::begin(config, self.io.clone(), self.now);
        let mut old = std::mem::replace(self, begun);
        (self.drive_time, self.failing, self.events) = (old.drive_time, old.failing, old.events);
        (self.counters, self.next_segment_counter) = (old.counters, old.next_segment_counter);
        self.wall = old.wall;
        // It is told them once for each start of the server.
        self.run_rules = old.run_rules;
        self.losses.hidden_before = old.hidden;
        self.losses.hidden_before.extend(std::mem::take(&mut old.losses.hidden_before));
        self.losses.left_out = old.losses.perhaps_acknowledged();
    }

    /// Goes on with recovery.
    pub(super) fn recover_on(&mut self) {
        if self.writer.frozen {
            // It will begin anew.
            return;
        }
        let State::Recovering(task) = &mut self.state else { return };
        match poll_once(task) {
            Poll::Pending => {}
            Poll::Ready(Err(error)) => {
                let reason = error.to_string();
                self.state = State::Unavailable(reason.clone());
                self.events.push_back(LaneEvent::Failed { reason });
            }
            Poll::Ready(Ok(recovered)) => {
                self.io.forget_task(RECOVERY_TASK);
                self.take_over(recovered);
            }
        }
    }

    fn take_over(&mut self, recovered: Recovered) {
        let mut used: BTreeMap<DriveNumber, BTreeSet<u32>> = BTreeMap::new();
        for (_, segment) in recovered.segments.iter() {
            for place in &segment.shards {
                used.entry(place.drive).or_default().insert(place.slot);
            }
        }
        for drive in self.config.drives.iter().filter(|d| d.member && d.present) {
            let used = used.remove(&drive.number).unwrap_or_default();
            self.slots.add_drive(drive.number, drive.slots, &used);
        }
        self.index = recovered.index;
        self.files = recovered.files;
        self.segments = recovered.segments;
        self.finished = recovered.finished;
        self.ends = recovered.ends;
        self.checkpointer.durable_streams = recovered.accepted.names().len();
        self.accepted = recovered.accepted;
        let unfinished = |(key, _): &(_, _)| self.accepted.get(*key).is_some();
        self.carried = Carried::new(recovered.carried.into_iter().filter(unfinished).collect());
        self.checkpointer.sequence = recovered.checkpoint_sequence;
        self.next_sequence = recovered.next_record_sequence;
        self.next_segment_counter = self.next_segment_counter.max(recovered.next_segment_counter);
        self.flushes_possibly_lost = recovered.flushes_possibly_lost;
        self.flushes_unavailable = recovered.flushes_unavailable;
        self.flushes_lost = recovered.flushes_lost;
        self.segments_unreadable = recovered.segments_unreadable;
        self.hidden = recovered.hidden;
        self.events_held = recovered.events_held;
        self.fragment_bytes = self.segments.live_bytes() - self.files.piece_bytes();
        self.queue_events();
        self.note_found(&recovered.findings);
        self.note_left_out(&recovered.findings);
        if self.config.read_only {
            self.survey.findings = recovered.findings;
            self.settle_files();
            (self.state, self.recovered) = (State::ReadOnly, true);
            self.events.push_back(LaneEvent::Serving);
            return;
        }
        for (index, table) in recovered.unclosed {
            let segment = self.segments.get_mut(index);
            segment.writing = true;
            let records = segment.flushes.iter().map(|s| s.record_count as usize).sum();
            let flushes = segment.durable_flushes;
            self.writer.retired.push(OpenSegment {
                index,
                offset_bytes: 0,
                table,
                records,
                flushes,
                is_kept: false,
                is_borrowed: false,
            });
        }
        self.writer.replay.extend(recovered.torn.into_iter().map(|torn| Replay {
            record: NewRecord::of(&torn.entry),
            payload: torn.payload,
            old: None,
            waiter: Waiter::Put(Token::NONE),
            repeated: Vec::new(),
        }));
        self.drop_needless_replays();
        self.look_for_missing_shards();
        self.spread_scrubs();
        self.state = State::Preparing;
        if self.width().is_none() {
            self.lack_drives();
        }
    }

    /// Of what is torn, only that is appended again which is not here already and still counts; of two copies, which crashes in a row
    /// leave, one.
    fn drop_needless_replays(&mut self) {
        let replay = std::mem::take(&mut self.writer.replay);
        let (mut seen, mut seen_of_files) = (BTreeSet::new(), BTreeSet::new());
        let whole = |replay: &&Replay| replay.record.kind == RecordKind::Event;
        let whole: BTreeSet<EventKey> = replay.iter().filter(whole).map(|replay| replay.record.key()).collect();
        let counts_not = |segment| self.is_out_of_reach(segment) && !planted(Planted::UnreadablePlaceCounts);
        let mut needed = |replay: &Replay| {
            let record = replay.record.without_payload();
            let (key, streams) = (record.key(), StreamSet::of_record(&record));
            let counts = match record.kind {
                _ if self.finished.contains(key) => false,
                RecordKind::Fragment => {
                    let place =
                        |event: &EventEntry| event.whole().or(event.fragment(record.source)).map(|at| at.segment);
                    let known = self.index.event(key).and_then(place);
                    !whole.contains(&key) && known.is_none_or(counts_not)
                }
                RecordKind::Event => {
                    let known = self.index.event(key).and_then(|event| event.whole()).map(|whole| whole.segment);
                    known.is_none_or(counts_not)
                }
                RecordKind::Accept => self.accepted.get(key).is_none_or(|a| a.streams.is_empty()),
                // An acceptance that is torn as well stands before its releases.
                RecordKind::Release => match self.accepted.get(key) {
                    Some(accepted) => !accepted.released.covers(streams),
                    None => seen.contains(&(key, RecordKind::Accept as u8, 0)),
                },
                RecordKind::Reject | RecordKind::Delete | RecordKind::End => true,
                // Its version says what it counts beside what is here. Copies say what is.
                RecordKind::Piece | RecordKind::Hole | RecordKind::State | RecordKind::Sums => {
                    let bytes = if record.kind.has_payload() { replay.payload.len() as u32 } else { record.bytes };
                    let entry = TableEntry { bytes, ..record };
                    let of_file = FileRecord::of(&entry).expect("its kind is of a file");
                    let says = |file: &File| file.says(&of_file, |segment| !counts_not(segment));
                    let place = (record.expected, record.source);
                    return !self.files.get(of_file.file).is_some_and(says)
                        && seen_of_files.insert((key, record.kind, record.run, place));
                }
            };
            let of = match record.kind {
                RecordKind::Fragment => u64::from(record.source.0),
                RecordKind::Release => streams.bits(),
                _ => 0,
            };
            counts && seen.insert((key, record.kind as u8, of))
        };
        self.writer.replay = replay.into_iter().filter(|replay| needed(replay)).collect();
    }

    /// Fewer drives of a segment answer than its data need.
    fn is_out_of_reach(&self, segment: SegmentIndex) -> bool {
        let segment = self.segments.get(segment);
        segment.shards.iter().filter(|place| self.answers(place.drive)).count() < usize::from(segment.data_shards)
    }

    /// Undecided events are offered to filters anew.
    fn queue_events(&mut self) {
        let mut from = Some(forebay_types::EventKey::default());
        // Some at a time: there may be many millions.
        while let Some(first) = from {
            let mut events = self.index.events_from(first);
            let keys: Vec<_> = events.by_ref().take(4096).map(|(key, _)| key).collect();
            from = events.next().map(|(key, _)| key);
            drop(events);
            for key in keys {
                // Whoever looked on was told before, or not at all: what happens is told, not what is there.
                self.offer(key);
            }
        }
    }

    /// Goes from preparing to serving, and from stopping to stopped, when nothing is left to do.
    pub(super) fn advance_state(&mut self) {
        if !self.is_quiet() {
            return;
        }
        let closed = self.writer.retired.is_empty() && self.writer.closing.is_empty();
        match self.state {
            State::Preparing if !self.files.is_settled() => {
                // No drive answers what was not asked: what follows goes on at once.
                self.settle_files();
                self.replay();
                self.advance_state();
            }
            State::Preparing if self.checkpointer.written == 0 => {
                self.checkpointer.wanted |= self.checkpointer.is_idle();
                self.checkpoint_if_needed();
            }
            State::Preparing if self.checkpointer.is_idle() => {
                (self.state, self.recovered) = (State::Serving, true);
                self.events.push_back(LaneEvent::Serving);
            }
            State::Stopping if closed && !self.checkpointer.last_wanted => {
                self.checkpointer.last_wanted = true;
                self.checkpointer.wanted = true;
                self.checkpoint_if_needed();
            }
            State::Stopping if closed && self.checkpointer.is_idle() => {
                self.stopped(true);
            }
            _ => {}
        }
    }

    /// Whether no record is on its way, and no decision.
    pub(super) fn is_quiet(&self) -> bool {
        self.writer.replay.is_empty()
            && self.writer.filling.is_none()
            && self.writer.in_flight.is_empty()
            && self.carried.is_quiet()
            && !self.writer.frozen
    }

    /// Segments of earlier starts in which nothing lives, now that what was torn is durable elsewhere, need no closing.
    pub(super) fn forget_emptied(&mut self) {
        let mut retired = std::mem::take(&mut self.writer.retired);
        retired.retain(|open| {
            let segment = self.segments.get_mut(open.index);
            segment.writing = segment.live_records > 0;
            if !segment.writing {
                segment.state = SegmentState::Walk;
            }
            segment.writing
        });
        self.writer.retired = retired;
    }

    /// Refuses what comes from now on, makes durable what came before, closes and ends. What is not recovered yet is left to the
    /// next start. To be called once or more.
    pub fn stop(&mut self) {
        match self.state {
            State::Serving => {
                self.state = State::Stopping;
                self.retire_segment();
                self.slots.forget_plans();
            }
            State::Stopping | State::Stopped => {}
            State::ReadOnly => self.stopped(true),
            State::Recovering(_) | State::Preparing | State::Unavailable(_) => self.stopped(false),
        }
    }

    pub(super) fn stopped(&mut self, whole: bool) {
        self.state = State::Stopped;
        self.events.push_back(LaneEvent::Stopped { whole });
    }
}
