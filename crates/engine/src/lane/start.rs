//! Starting and stopping a lane.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Poll;

use forebay_format::{RecordKind, SegmentState};
use forebay_types::{DriveNumber, Time};

use super::checkpoint::Checkpointer;
use super::write::{OpenSegment, Replay, Waiter, Writer};
use super::{Lane, State};
use crate::accepted::AcceptedEvents;
use crate::api::{LaneConfig, LaneCounters, LaneEvent, Token};
use crate::cache::Cache;
use crate::finished::Finished;
use crate::flush::{NewRecord, flush_buffer_bytes};
use crate::index::{EventFlags, Index};
use crate::io::Io;
use crate::pool::BufferPool;
use crate::recovery::{RECOVERY_TASK, Recovered, recover};
use crate::rows::RecentRows;
use crate::segments::Segments;
use crate::slots::Slots;
use crate::task::{Tasks, poll_once};

impl Lane {
    /// A lane that begins by finding out what is there.
    pub fn new(config: LaneConfig, now: Time) -> Lane {
        let io = Io::default();
        let geometry = config.geometry;
        let shards = usize::from(geometry.data_shards) + usize::from(geometry.parity_shards);
        let data_bytes = config.flush_bytes * usize::from(geometry.data_shards);
        let buffer_bytes = flush_buffer_bytes(geometry.data_shards, shards, geometry.unit_bytes, data_bytes);
        let recovery = Box::pin(recover(io.clone(), config.clone()));
        let mut lane = Lane {
            state: State::Recovering(recovery),
            io,
            now,
            drive_time: Time::default(),
            index: Index::default(),
            segments: Segments::default(),
            finished: Finished::new(geometry.lanes),
            accepted: AcceptedEvents::from_checkpoint(&[]),
            slots: Slots::new(config.lane, geometry.lanes),
            cache: Cache::default(),
            pool: BufferPool::new(buffer_bytes, shards, config.flush_depth + 1),
            last_trim: now,
            writer: Writer::default(),
            checkpointer: Checkpointer::default(),
            tasks: Tasks::default(),
            reading: BTreeMap::new(),
            rows: RecentRows::new(config.cache_bytes, usize::from(geometry.data_shards) * geometry.unit_bytes as usize),
            rows_awaited: BTreeMap::new(),
            replies: Default::default(),
            events: Default::default(),
            failing: BTreeSet::new(),
            recovered: false,
            next_sequence: 0,
            next_segment_counter: 0,
            fragment_bytes: 0,
            flushes_possibly_lost: 0,
            flushes_lost: 0,
            segments_unreadable: 0,
            counters: LaneCounters::default(),
            config,
        };
        lane.recover_on();
        lane
    }

    /// Goes on with recovery.
    pub(super) fn recover_on(&mut self) {
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
        self.segments = recovered.segments;
        self.finished = recovered.finished;
        self.checkpointer.durable_streams = recovered.accepted.names().len();
        self.accepted = recovered.accepted;
        self.checkpointer.sequence = recovered.checkpoint_sequence;
        self.next_sequence = recovered.next_record_sequence;
        self.next_segment_counter = recovered.next_segment_counter;
        self.flushes_possibly_lost = recovered.flushes_possibly_lost;
        self.flushes_lost = recovered.flushes_lost;
        self.segments_unreadable = recovered.segments_unreadable;
        self.fragment_bytes = self.segments.iter().map(|(_, s)| s.live_bytes).sum();
        self.queue_events();
        if self.config.read_only {
            (self.state, self.recovered) = (State::ReadOnly, true);
            self.events.push_back(LaneEvent::Serving);
            return;
        }
        for (index, table) in recovered.unclosed {
            let segment = self.segments.get_mut(index);
            // Until what is torn is appended again, the next start must find it here once more.
            (segment.state, segment.writing) = (SegmentState::Open, true);
            let records = segment.flushes.iter().map(|s| s.record_count as usize).sum();
            let flushes = u32::try_from(segment.flushes.len()).expect("a segment has few flushes");
            self.writer.retired.push(OpenSegment { index, offset_bytes: 0, table, records, flushes });
        }
        self.writer.replay.extend(recovered.torn.into_iter().map(|(entry, payload)| Replay {
            record: NewRecord {
                kind: entry.kind,
                flags: entry.flags,
                expected: entry.expected,
                run: entry.run,
                event: entry.event,
                source: entry.source.0,
                crc: entry.crc,
            },
            payload,
            old: None,
            waiter: Waiter::Put(Token::NONE),
            repeated: Vec::new(),
        }));
        self.drop_needless_replays();
        self.checkpointer.wanted = true;
        self.state = State::Preparing;
    }

    /// Of what is torn, only that is appended again which is not here already and still counts.
    fn drop_needless_replays(&mut self) {
        let replay = std::mem::take(&mut self.writer.replay);
        let needed = |replay: &Replay| {
            let key = forebay_types::EventKey { run: replay.record.run, event: replay.record.event };
            let source = forebay_types::SourceId(replay.record.source);
            match replay.record.kind {
                _ if self.finished.contains(key) => false,
                RecordKind::Fragment => self.index.event(key).is_none_or(|e| e.fragment(source).is_none()),
                RecordKind::Accept => self.accepted.get(key).is_none(),
                RecordKind::Release | RecordKind::Reject | RecordKind::Delete => true,
            }
        };
        self.writer.replay = replay.into_iter().filter(needed).collect();
    }

    /// Undecided events are offered to filters anew.
    fn queue_events(&mut self) {
        let undecided: Vec<_> = self
            .index
            .events_from(forebay_types::EventKey::default())
            .filter(|(_, e)| !e.flags.has(EventFlags::ACCEPTED))
            .map(|(key, _)| key)
            .collect();
        for key in undecided {
            self.offer(key);
        }
    }

    /// Goes from preparing to serving, and from stopping to stopped, when nothing is left to do.
    pub(super) fn advance_state(&mut self) {
        if !self.is_quiet() || !self.writer.retired.is_empty() || !self.writer.closing.is_empty() {
            return;
        }
        match self.state {
            State::Preparing if self.checkpointer.written > 0 && self.checkpointer.is_idle() => {
                (self.state, self.recovered) = (State::Serving, true);
                self.events.push_back(LaneEvent::Serving);
            }
            State::Stopping if !self.checkpointer.last_wanted => {
                self.checkpointer.last_wanted = true;
                self.checkpointer.wanted = true;
                self.checkpoint_if_needed();
            }
            State::Stopping if self.checkpointer.is_idle() => {
                self.stopped(true);
            }
            _ => {}
        }
    }

    /// Whether no record is on its way.
    fn is_quiet(&self) -> bool {
        self.writer.replay.is_empty()
            && self.writer.filling.is_none()
            && self.writer.in_flight.is_empty()
            && !self.writer.frozen
    }

    /// A closing flush hides the torn flushes of its segment: after an unclean stop it is written only when what they held is
    /// durable elsewhere.
    pub(super) fn may_close(&self) -> bool {
        !matches!(self.state, State::Preparing) || self.checkpointer.written > 0 && self.is_quiet()
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
