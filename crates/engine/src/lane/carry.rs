//! Decisions that a checkpoint alone makes durable.
//!
//! As long as there are free segments a decision is a record in a flush, and an acceptance or a release that does not finish its event keeps that
//! record's segment alive. When none may be opened the decision waits for the next checkpoint, which takes all that wait: those that
//! finish their event stand in the finished sets, the others in the sections of decisions, where they need no segment. They are answered,
//! and take effect, when that checkpoint is durable on every member; a checkpoint that was not is written again with them.
//!
//! While space is scarce a checkpoint also takes in the decisions that alone keep a segment alive; the next one leaves that segment out.

use std::collections::{BTreeMap, BTreeSet};

use forebay_format::{DECISION_SETS_MAX, DecidedRange, DecidedRun, DecisionSet, FinishedRun, RecordKind, TableEntry};
use forebay_types::memory::tree_bytes;
use forebay_types::{DecideOutcome, EventKey};

use super::Lane;
use crate::accepted::StreamSet;
use crate::api::{Reply, Token};
use crate::index::EventFlags;
use crate::segments::{SegmentIndex, SegmentState};

/// What a decision makes of its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Finishes,
    Keeps(DecisionSet),
}

/// A decision that waits for a checkpoint.
struct Waiting {
    token: Token,
    record: TableEntry,
    effect: Effect,
}

/// An event whose records a checkpoint replaces.
struct Moving {
    key: EventKey,
    set: DecisionSet,
    /// So many of its records, the first ones, are in the set.
    records: usize,
}

/// What checkpoints know of accepted events without the help of records.
#[derive(Default)]
pub(super) struct Carried {
    /// As the newest durable checkpoint has it.
    events: BTreeMap<EventKey, DecisionSet>,
    /// How many events have each set, or will when the checkpoint is durable that takes them.
    sets: BTreeMap<DecisionSet, usize>,
    /// For the next checkpoint.
    waiting: Vec<Waiting>,
    /// In the checkpoint that is on its way.
    writing: Vec<Waiting>,
    /// Ascending.
    moving: Vec<Moving>,
}

impl Carried {
    pub(super) fn new(events: BTreeMap<EventKey, DecisionSet>) -> Self {
        let mut sets = BTreeMap::new();
        for set in events.values() {
            *sets.entry(*set).or_default() += 1;
        }
        Carried { events, sets, ..Carried::default() }
    }

    /// Memory in use, never less than it is.
    pub(super) fn bytes(&self) -> usize {
        tree_bytes(self.events.len(), size_of::<(EventKey, DecisionSet)>())
            + tree_bytes(self.sets.len(), size_of::<(DecisionSet, usize)>())
    }

    /// Whether a checkpoint that is on its way takes an event's records in.
    pub(super) fn is_moving(&self, key: EventKey) -> bool {
        self.moving.binary_search_by_key(&key, |moving| moving.key).is_ok()
    }

    /// Whether no decision waits for a checkpoint.
    pub(super) fn is_quiet(&self) -> bool {
        self.waiting.is_empty() && self.writing.is_empty()
    }

    /// Takes a place for a set; `false` when there are too many different ones.
    fn reserve(&mut self, set: DecisionSet) -> bool {
        let room = self.sets.len() < DECISION_SETS_MAX || self.sets.contains_key(&set);
        if room {
            *self.sets.entry(set).or_default() += 1;
        }
        room
    }

    fn give_back(&mut self, set: DecisionSet) {
        let count = self.sets.get_mut(&set).expect("a set is given back as often as it was taken");
        *count -= 1;
        if *count == 0 {
            self.sets.remove(&set);
        }
    }

    /// A durable checkpoint has the event; the place for its set was taken before.
    fn enter(&mut self, key: EventKey, set: DecisionSet) {
        if let Some(before) = self.events.insert(key, set) {
            self.give_back(before);
        }
    }

    /// The event is over.
    pub(super) fn remove(&mut self, key: EventKey) {
        if let Some(set) = self.events.remove(&key) {
            self.give_back(set);
        }
    }

    /// The sections of decisions with what is on its way.
    fn to_checkpoint(&self) -> (Vec<DecisionSet>, Vec<DecidedRun>) {
        let changed: BTreeMap<EventKey, Option<DecisionSet>> = self
            .moving
            .iter()
            .map(|moving| (moving.key, Some(moving.set)))
            .chain(self.writing.iter().map(|waiting| match waiting.effect {
                Effect::Finishes => (waiting.record.key(), None),
                Effect::Keeps(set) => (waiting.record.key(), Some(set)),
            }))
            .collect();
        let stay = self.events.iter().filter(|(key, _)| !changed.contains_key(key)).map(|(key, set)| (*key, *set));
        let mut events: Vec<(EventKey, DecisionSet)> =
            stay.chain(changed.iter().filter_map(|(key, set)| set.map(|set| (*key, set)))).collect();
        events.sort_unstable_by_key(|(key, _)| *key);
        let sets: BTreeSet<DecisionSet> = events.iter().map(|(_, set)| *set).collect();
        let sets: Vec<DecisionSet> = sets.into_iter().collect();
        let mut runs: Vec<DecidedRun> = Vec::new();
        for (key, set) in events {
            let set = sets.binary_search(&set).expect("collected just now") as u32;
            if runs.last().is_none_or(|run| run.run != key.run) {
                runs.push(DecidedRun { run: key.run, ranges: Vec::new() });
            }
            let ranges = &mut runs.last_mut().expect("pushed just now").ranges;
            match ranges.last_mut() {
                Some(last)
                    if last.set == set
                        && last.length < u32::MAX
                        && last.first + u64::from(last.length) == key.event.0 =>
                {
                    last.length += 1;
                }
                _ => ranges.push(DecidedRange { first: key.event.0, length: 1, set }),
            }
        }
        (sets, runs)
    }
}

/// The events of the sections of decisions.
pub(crate) fn decided_events(sets: &[DecisionSet], runs: &[DecidedRun]) -> BTreeMap<EventKey, DecisionSet> {
    let ranges = runs.iter().flat_map(|run| run.ranges.iter().map(|range| (run.run, range)));
    let events = ranges.flat_map(|(run, range)| {
        let set = sets[range.set as usize];
        (0..u64::from(range.length)).map(move |nth| (EventKey::new(run.0, range.first + nth), set))
    });
    events.collect()
}

impl Lane {
    /// Has the next checkpoint make a decision durable; `false` when it can not take one more of this kind.
    pub(super) fn decide_by_checkpoint(&mut self, token: Token, record: TableEntry) -> bool {
        let effect = self.effect_of(&record);
        if let Effect::Keeps(set) = effect
            && !self.carried.reserve(set)
        {
            return false;
        }
        self.carried.waiting.push(Waiting { token, record, effect });
        self.checkpointer.wanted = true;
        true
    }

    fn effect_of(&self, record: &TableEntry) -> Effect {
        let streams = StreamSet::of_record(record);
        match record.kind {
            RecordKind::Reject | RecordKind::Delete | RecordKind::End => Effect::Finishes,
            RecordKind::Accept => Effect::Keeps(DecisionSet {
                accepted: streams.bits(),
                released: 0,
                incomplete: record.flags & forebay_format::RECORD_INCOMPLETE != 0,
            }),
            RecordKind::Release => {
                let accepted = self.accepted.get(record.key()).expect("only what is accepted is released");
                let mut set = accepted.decision_set();
                set.released |= streams.bits() & set.accepted;
                if set.released == set.accepted { Effect::Finishes } else { Effect::Keeps(set) }
            }
            _ => unreachable!("neither a payload nor what a file is is a decision"),
        }
    }

    /// What a checkpoint that is made now says of finished and of accepted events.
    pub(super) fn decisions_for_checkpoint(&mut self) -> (Vec<FinishedRun>, Vec<DecisionSet>, Vec<DecidedRun>) {
        assert!(self.carried.writing.is_empty() && self.carried.moving.is_empty(), "one checkpoint is on its way");
        self.carried.writing = std::mem::take(&mut self.carried.waiting);
        if self.width().is_some_and(|width| self.space(width).is_scarce()) {
            self.move_decisions();
        }
        let (sets, runs) = self.carried.to_checkpoint();
        let finishes = |waiting: &&Waiting| waiting.effect == Effect::Finishes;
        let mut over = self.carried.writing.iter().filter(finishes).map(|waiting| waiting.record.key()).peekable();
        if over.peek().is_none() {
            return (self.finished.to_checkpoint(), sets, runs);
        }
        let mut finished = self.finished.clone();
        over.for_each(|key| finished.insert(key));
        (finished.to_checkpoint(), sets, runs)
    }

    /// Looks for segments that only decisions keep alive, and lets the checkpoint take these in.
    fn move_decisions(&mut self) {
        let candidate = |s: &crate::segments::Segment| {
            !s.writing && s.state != SegmentState::Open && s.live_records > 0 && s.live_bytes == 0
        };
        let mut segments: BTreeMap<SegmentIndex, u64> =
            self.segments.iter().filter(|(_, s)| candidate(s)).map(|(index, _)| (index, 0)).collect();
        if segments.is_empty() {
            return;
        }
        for segment in self.accepted.iter().flat_map(|(_, accepted)| accepted.records()) {
            segments.entry(segment).and_modify(|records| *records += 1);
        }
        segments.retain(|index, records| *records == self.segments.get(*index).live_records);
        for (key, accepted) in self.accepted.iter() {
            let deciding = self.index.event(key).is_some_and(|event| event.flags.has(EventFlags::DECIDING));
            let held = accepted.records().any(|segment| segments.contains_key(&segment));
            if held && !deciding && !accepted.streams.is_empty() {
                let set = accepted.decision_set();
                if !self.carried.reserve(set) {
                    return;
                }
                self.carried.moving.push(Moving { key, set, records: accepted.records().count() });
            }
        }
    }

    /// The checkpoint is durable: what it decided takes effect.
    pub(super) fn checkpoint_decisions_are_durable(&mut self) {
        for Moving { key, set, records } in std::mem::take(&mut self.carried.moving) {
            if self.accepted.get(key).is_none() {
                // It was finished since.
                self.carried.give_back(set);
                continue;
            }
            self.carried.enter(key, set);
            self.bury_decisions(key, records);
        }
        for Waiting { token, record, effect } in std::mem::take(&mut self.carried.writing) {
            self.record_is_durable(None, &record, false);
            if let Effect::Keeps(set) = effect {
                self.carried.enter(record.key(), set);
                self.bury_decisions(record.key(), usize::MAX);
            }
            if token != Token::NONE {
                self.replies.push_back(Reply::Decided { token, outcome: DecideOutcome::Done });
            }
        }
    }

    fn bury_decisions(&mut self, key: EventKey, records: usize) {
        for segment in self.accepted.take_records(key, records) {
            self.segments.bury(segment, 0);
        }
    }

    /// The checkpoint did not become durable everywhere: the next one takes its decisions.
    pub(super) fn checkpoint_decisions_failed(&mut self) {
        let mut waiting = std::mem::take(&mut self.carried.writing);
        waiting.append(&mut self.carried.waiting);
        self.carried.waiting = waiting;
        for moving in std::mem::take(&mut self.carried.moving) {
            self.carried.give_back(moving.set);
        }
    }

    /// There will be no further checkpoint: whoever waits for one is told so.
    pub(super) fn refuse_checkpoint_decisions(&mut self) {
        self.checkpoint_decisions_failed();
        for Waiting { token, record, .. } in std::mem::take(&mut self.carried.waiting) {
            if let Some(event) = self.index.event_mut(record.key()) {
                event.flags.set(EventFlags::DECIDING, false);
            }
            if token != Token::NONE {
                self.replies.push_back(Reply::Decided { token, outcome: DecideOutcome::Unavailable });
            }
        }
    }
}
