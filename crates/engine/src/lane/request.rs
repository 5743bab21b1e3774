//! What a lane does when it is asked.

use std::time::Duration;

use forebay_format::{RECORD_INCOMPLETE, RecordKind};
use forebay_types::{DecideOutcome, EventKey, PutOutcome, RunId, RunPuts, StreamName, Verdict, crc32c};

use super::write::{Purpose, Refusal, Waiter};
use super::{Lane, State};
use crate::accepted::StreamSet;
use crate::api::{Admission, LeasedEvent, Put, Token};
use crate::flush::{NewRecord, Payload};
use crate::index::{EventEntry, EventFlags, FragmentEntry};
use crate::lease::Tick;
use crate::planted::{Planted, planted};
use crate::segments::{FlushSpan, SegmentIndex};

/// Where events go that no filter could decide.
pub const DEBUG_STREAM: &str = "debug";

/// Pages of the index whose timers one step looks at: about 256 KiB.
const PAGES_PER_STEP: usize = 48;

impl Lane {
    /// Stores a fragment. When admitted, one record of `token` is answered later.
    pub fn put(&mut self, token: Token, put: &Put, payload: &[u8]) -> Admission<PutOutcome> {
        match self.state {
            State::Serving => {}
            State::ReadOnly => return Admission::Done(PutOutcome::ReadOnly),
            State::Unavailable(_) | State::Stopping | State::Stopped => {
                return Admission::Done(PutOutcome::Unavailable);
            }
            State::Recovering(_) | State::Preparing => return Admission::Busy,
        }
        if self.config.has_files && put.id.run == RunId::FILES {
            return Admission::Done(PutOutcome::KeptRun);
        }
        if payload.len() > self.config.geometry.fragment_bytes_max as usize {
            return Admission::Done(PutOutcome::TooLarge);
        }
        self.is_asked();
        if self.writer.frozen || !self.writer.replay.is_empty() {
            return Admission::Busy;
        }
        let puts = self.puts_of(put.id.run);
        if puts == RunPuts::Discarded {
            return Admission::Done(PutOutcome::RunDiscarded);
        }
        if let Some(admission) = self.put_known(token, put, payload) {
            return admission;
        }
        match puts {
            RunPuts::Taken => {}
            RunPuts::Wait => return Admission::Busy,
            RunPuts::Closed | RunPuts::Discarded => return Admission::Done(PutOutcome::RunClosed),
        }
        if self.index_is_full(|| self.index.event(put.id.key()).is_some()) {
            self.counters.puts_index_full += 1;
            return Admission::Done(PutOutcome::IndexFull);
        }
        let record = NewRecord {
            kind: RecordKind::Fragment,
            flags: 0,
            expected: put.expected,
            run: put.id.run,
            event: put.id.event,
            source: put.id.source.0,
            crc: put.crc,
            extra: 0,
        };
        match self.append(Purpose::Fragment, record, Payload::of(&[payload]), Waiter::Put(token)) {
            Ok((segment, position)) => {
                self.enter_fragment(&record, segment, position, payload.len());
                if planted(Planted::ToldBeforeDurable)
                    && self.index.event(put.id.key()).is_some_and(|e| e.is_complete())
                {
                    self.tell_offered(put.id.key(), false);
                }
                Admission::Pending
            }
            Err(Refusal::Busy) if self.is_blocked() => Admission::Done(PutOutcome::Unavailable),
            Err(Refusal::Busy) => Admission::Busy,
            Err(refusal) => Admission::Done(self.count_refusal(refusal)),
        }
    }

    fn count_refusal(&mut self, refusal: Refusal) -> PutOutcome {
        match refusal {
            Refusal::ChecksumMismatch => {
                self.counters.puts_damaged += 1;
                PutOutcome::ChecksumMismatch
            }
            Refusal::NoSpace => {
                self.counters.puts_no_space += 1;
                PutOutcome::NoSpace
            }
            Refusal::Unavailable | Refusal::Busy => PutOutcome::Unavailable,
        }
    }

    /// The answer for a fragment that is here already, or whose event is decided.
    fn put_known(&mut self, token: Token, put: &Put, payload: &[u8]) -> Option<Admission<PutOutcome>> {
        let key = put.id.key();
        let Some(event) = self.index.event(key) else {
            if !self.finished.contains(key) || planted(Planted::LatePutRevives) {
                return None;
            }
            return Some(Admission::Done(self.late(put, payload)));
        };
        if let Some(known) = event.fragment(put.id.source) {
            let same = known.bytes as usize == payload.len() && known.crc == put.crc;
            let (segment, position) = (known.segment, known.position);
            if crc32c(payload) != put.crc {
                return Some(Admission::Done(self.count_refusal(Refusal::ChecksumMismatch)));
            }
            if !same && !planted(Planted::ConflictAcknowledged) {
                self.counters.puts_conflict += 1;
                return Some(Admission::Done(PutOutcome::Conflict));
            }
            self.counters.puts_repeated += 1;
            return Some(self.wait_for(token, segment, position));
        }
        if event.flags.has(EventFlags::DECIDING) {
            return Some(Admission::Busy);
        }
        let is_over = event.flags.has(EventFlags::ACCEPTED) || event.whole().is_some();
        is_over.then(|| Admission::Done(self.late(put, payload)))
    }

    fn late(&mut self, put: &Put, payload: &[u8]) -> PutOutcome {
        if crc32c(payload) != put.crc {
            return self.count_refusal(Refusal::ChecksumMismatch);
        }
        self.counters.puts_late += 1;
        self.late_puts.note(put.id, payload.len(), self.wall);
        PutOutcome::Late
    }

    /// A fragment that was put before is acknowledged once more when it is durable.
    fn wait_for(&mut self, token: Token, segment: SegmentIndex, position: u32) -> Admission<PutOutcome> {
        let durable = position < self.segments.get(segment).durable_position;
        if durable || planted(Planted::RepeatAcknowledged) {
            return Admission::Done(PutOutcome::Durable);
        }
        let holds = |span: &FlushSpan| (span.position..span.position + span.positions()).contains(&position);
        let flight = self.writer.in_flight.iter_mut().find(|f| f.segment == segment && holds(&f.span));
        let repeated = match (flight, &mut self.writer.filling) {
            (Some(flight), _) => &mut flight.repeated,
            (None, Some(filling)) => &mut filling.repeated,
            (None, None) => return Admission::Busy,
        };
        repeated.push(token);
        Admission::Pending
    }

    /// Whether a further fragment, or piece of a file, would break a bound: of memory, or of what a checkpoint can hold when every event and file here has left a
    /// range of its own behind.
    pub(super) fn index_is_full(&self, is_known: impl FnOnce() -> bool) -> bool {
        if self.index_bytes() >= self.config.index_bytes {
            return true;
        }
        // A run has a head among the finished events and one among the decisions.
        let runs = self.finished.run_count() + 2 * self.index.run_count();
        let ranges = (self.finished.ranges() + runs + self.files.len()) as u64 + self.index.events();
        ranges >= self.ranges_max() && !is_known()
    }

    fn enter_fragment(&mut self, record: &NewRecord, segment: SegmentIndex, position: u32, bytes: usize) {
        let bytes = u32::try_from(bytes).expect("a payload fits a flush");
        let key = record.key();
        let source = forebay_types::SourceId(record.source);
        let fragment = FragmentEntry { source, segment, position, bytes, crc: record.crc };
        self.index.insert(key, record.expected, fragment);
        self.segments.revive(segment, bytes);
        self.fragment_bytes += u64::from(bytes);
    }

    /// A fragment was written once more: the index follows it.
    pub(super) fn move_fragment(
        &mut self,
        key: EventKey,
        record: &NewRecord,
        old: Option<SegmentIndex>,
        segment: SegmentIndex,
        position: u32,
        bytes: usize,
    ) {
        let source = forebay_types::SourceId(record.source);
        if self.index.event(key).is_some_and(|event| event.whole().is_some()) {
            // Its one record cannot be read now. The segment of that stays, for the drives that come back.
            self.index.remove(key);
            self.hidden.add_event(forebay_types::ReadOutcome::Unavailable, key);
            self.events_held += 1;
        }
        let Some(entry) = self.index.event_mut(key).and_then(|event| event.fragment_mut(source)) else {
            assert!(old.is_none(), "a fragment on its way stays in the index");
            self.enter_fragment(record, segment, position, bytes);
            if let Some(accepted) = self.accepted.get(key).filter(|accepted| !accepted.streams.is_empty()) {
                self.index.accept(key, accepted.incomplete);
            }
            return;
        };
        let moved = *entry;
        (entry.segment, entry.position) = (segment, position);
        self.segments.revive(segment, moved.bytes);
        self.segments.bury(moved.segment, moved.bytes);
    }

    /// Records the filter's word on an event. When admitted, a [`crate::Reply::Decided`] follows.
    pub fn decide(
        &mut self,
        token: Token,
        key: EventKey,
        verdict: &Verdict,
        incomplete: bool,
    ) -> Admission<DecideOutcome> {
        if let Some(admission) = self.not_serving() {
            return admission;
        }
        let accepts = matches!(verdict, Verdict::Accept(_));
        if self.finished.contains(key) {
            return Admission::Done(if accepts { DecideOutcome::Conflict } else { DecideOutcome::AlreadyDone });
        }
        if let Some(accepted) = self.accepted.get(key) {
            let same = match verdict {
                Verdict::Reject => false,
                Verdict::Accept(names) => self.known_streams(names) == Some(accepted.streams),
            };
            return Admission::Done(if same { DecideOutcome::AlreadyDone } else { DecideOutcome::Conflict });
        }
        if self.index.event(key).is_none() {
            // Before its streams get numbers: there are few, and they are given for ever.
            return Admission::Done(DecideOutcome::NotFound);
        }
        let streams = match verdict {
            Verdict::Reject => StreamSet::default(),
            Verdict::Accept(names) => match self.stream_set(names) {
                Ok(streams) => streams,
                Err(admission) => return admission,
            },
        };
        let kind = match accepts {
            true => RecordKind::Accept,
            false => RecordKind::Reject,
        };
        let flags = if incomplete { RECORD_INCOMPLETE } else { 0 };
        self.decision(token, key, kind, flags, streams)
    }

    /// Deletes an event, decided or not. When admitted, a [`crate::Reply::Decided`] follows.
    pub fn delete(&mut self, token: Token, key: EventKey) -> Admission<DecideOutcome> {
        if let Some(admission) = self.not_serving() {
            return admission;
        }
        if self.finished.contains(key) {
            return Admission::Done(DecideOutcome::AlreadyDone);
        }
        if self.is_held(key.run) && self.index.event(key).is_some() {
            return Admission::Done(DecideOutcome::Held);
        }
        self.decision(token, key, RecordKind::Delete, 0, StreamSet::default())
    }

    /// A stream has its copy of an accepted event elsewhere. When admitted, a [`crate::Reply::Decided`] follows.
    pub fn release(&mut self, token: Token, key: EventKey, stream: &StreamName) -> Admission<DecideOutcome> {
        if let Some(admission) = self.not_serving() {
            return admission;
        }
        if self.finished.contains(key) {
            return Admission::Done(DecideOutcome::AlreadyDone);
        }
        let (Some(stream), Some(accepted)) = (self.accepted.stream(stream), self.accepted.get(key)) else {
            return Admission::Done(DecideOutcome::NotFound);
        };
        if !accepted.streams.contains(stream) {
            return Admission::Done(DecideOutcome::NotFound);
        }
        if accepted.released.contains(stream) {
            return Admission::Done(DecideOutcome::AlreadyDone);
        }
        if self.is_held(key.run) {
            return Admission::Done(DecideOutcome::Held);
        }
        self.decision(token, key, RecordKind::Release, 0, StreamSet::one(stream))
    }

    fn not_serving(&self) -> Option<Admission<DecideOutcome>> {
        match self.state {
            State::Serving if self.writer.frozen || !self.writer.replay.is_empty() => Some(Admission::Busy),
            State::Serving => None,
            State::ReadOnly => Some(Admission::Done(DecideOutcome::ReadOnly)),
            State::Unavailable(_) | State::Stopping | State::Stopped => {
                Some(Admission::Done(DecideOutcome::Unavailable))
            }
            State::Recovering(_) | State::Preparing => Some(Admission::Busy),
        }
    }

    /// The numbers of streams that all have one.
    fn known_streams(&self, names: &[StreamName]) -> Option<StreamSet> {
        let mut set = StreamSet::default();
        for name in names {
            set.insert(self.accepted.stream(name)?);
        }
        Some(set)
    }

    /// The numbers of streams. A new name must stand in a durable checkpoint before a record uses its number.
    fn stream_set(&mut self, names: &[StreamName]) -> Result<StreamSet, Admission<DecideOutcome>> {
        let mut set = StreamSet::default();
        for name in names {
            let Some(stream) = self.accepted.intern(name) else {
                return Err(Admission::Done(DecideOutcome::TooManyStreams));
            };
            set.insert(stream);
        }
        let unnamed = self.accepted.names().len() > self.checkpointer.durable_streams;
        if unnamed && !planted(Planted::StreamUnnamed) {
            self.checkpointer.wanted = true;
            return Err(Admission::Busy);
        }
        if names.is_empty() { Err(Admission::Done(DecideOutcome::NotFound)) } else { Ok(set) }
    }

    fn decision(
        &mut self,
        token: Token,
        key: EventKey,
        kind: RecordKind,
        flags: u8,
        streams: StreamSet,
    ) -> Admission<DecideOutcome> {
        let Some(event) = self.index.event(key) else { return Admission::Done(DecideOutcome::NotFound) };
        if event.flags.has(EventFlags::DECIDING) {
            return Admission::Busy;
        }
        if !self.is_durable(event) {
            // What is decided is durable: the answer waits for the fragments on their way.
            return Admission::Busy;
        }
        let (source, crc) = streams.to_record();
        let record = NewRecord { kind, flags, expected: 0, run: key.run, event: key.event, source, crc, extra: 0 };
        match self.append(Purpose::Decision, record, Payload::NONE, Waiter::Decision(token)) {
            Ok(_) => {}
            Err(Refusal::NoSpace) if self.decide_by_checkpoint(token, record.without_payload()) => {}
            Err(Refusal::NoSpace) => return Admission::Done(DecideOutcome::NoSpace),
            Err(Refusal::Busy) => return Admission::Busy,
            Err(_) => return Admission::Done(DecideOutcome::Unavailable),
        }
        let event = self.index.event_mut(key).expect("looked up above");
        event.flags.set(EventFlags::DECIDING, true);
        Admission::Pending
    }

    /// Offers events to a filter for `duration`, which is rounded up by at most 67 ms: the smallest of a run first, each run in its turn.
    pub fn lease(
        &mut self,
        max_events: usize,
        duration: Duration,
        run: Option<forebay_types::RunId>,
        into: &mut Vec<LeasedEvent>,
    ) {
        if !matches!(self.state, State::Serving) {
            return;
        }
        match run {
            Some(run) => self.lease_of_run(max_events, duration, run, into),
            None => {
                while into.len() < max_events
                    && let Some(run) = self.index.next_ready_run()
                {
                    self.lease_of_run(max_events, duration, run, into);
                }
            }
        }
    }

    fn lease_of_run(
        &mut self,
        max_events: usize,
        duration: Duration,
        run: forebay_types::RunId,
        into: &mut Vec<LeasedEvent>,
    ) {
        let ends = Tick::not_before(self.now + duration);
        while into.len() < max_events
            && let Some((key, event)) = self.index.lease(run, ends)
        {
            into.push(LeasedEvent {
                key,
                fragments: event.fragment_count() as u32,
                expected: event.expected,
                bytes: event.bytes(),
                // Of whom nobody said how many fragments it has, it waited as long as one with a fragment missing.
                incomplete: !event.is_complete(),
                attempt: u16::from(event.attempts),
            });
        }
    }

    /// Events that have waited long enough for their missing fragments are offered without them; those that were leased and not decided go to
    /// another filter, and after too many to a stream of their own.
    pub(super) fn expire_leases(&mut self) {
        if !matches!(self.state, State::Serving) {
            return;
        }
        let now = Tick::not_behind(self.now);
        let mut due = Vec::new();
        for _ in 0..PAGES_PER_STEP {
            if !self.index.take_due(now, &mut due) {
                break;
            }
        }
        for key in due {
            self.timer_is_over(key);
        }
    }

    fn timer_is_over(&mut self, key: EventKey) {
        let event = self.index.event(key).expect("a timer belongs to an event");
        let (leased, deciding) = (event.flags.has(EventFlags::LEASED), event.flags.has(EventFlags::DECIDING));
        let (complete, attempts) = (event.is_complete(), u16::from(event.attempts));
        if !leased {
            // One whose last fragments are on their way is offered when they are durable.
            if !complete || self.is_durable(event) {
                self.index.offer(key);
                self.tell_offered(key, !complete);
            }
            return;
        }
        if deciding {
            return;
        }
        self.counters.leases_expired += 1;
        if attempts >= self.config.lease_attempts_max.min(u16::from(u8::MAX)) {
            let incomplete = event.expected > 0 && !complete;
            let debug = DEBUG_STREAM.parse().expect("a name of a stream");
            let admission = self.decide(Token::NONE, key, &Verdict::Accept(vec![debug]), incomplete);
            if is_settled(admission) {
                return;
            }
        }
        self.index.offer(key);
    }

    /// Whether all fragments of an event are durable.
    pub(super) fn is_durable(&self, event: &EventEntry) -> bool {
        let mut known = None;
        // What comes last is most often what is not durable yet, and neighbours lie in one segment.
        event.records().iter().rev().all(|fragment| {
            let durable = match known {
                Some((segment, durable)) if segment == fragment.segment => durable,
                _ => self.segments.get(fragment.segment).durable_position,
            };
            known = Some((fragment.segment, durable));
            fragment.position < durable
        })
    }
}

/// Whether a decision that nobody waits for is made, or not needed. Else it must be tried again: the event would be forgotten.
fn is_settled(admission: Admission<DecideOutcome>) -> bool {
    use DecideOutcome::{AlreadyDone, Conflict, Done, NotFound};
    matches!(admission, Admission::Pending | Admission::Done(Done | AlreadyDone | Conflict | NotFound))
}
