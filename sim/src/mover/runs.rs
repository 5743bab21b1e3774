//! Runs and definitions of the stream, as the store has them, and what follows from them for each file that is planned.

use std::collections::{BTreeMap, BTreeSet};

use forebay_mover::custody::ConsignmentId;
use forebay_mover::events::{Blocks, EventKind, Events, Making, OfRun, Terms};
use forebay_types::{
    BlockRule, EventKey, RunId, RunRecord, RunState, RunStep, RunStream, SourceSet, StreamDefinition, StreamSources,
    StreamVersion, Time,
};

use crate::random::Random;

#[derive(Debug, Default)]
pub(super) struct Runs {
    versions: Vec<StreamVersion>,
    records: BTreeMap<RunId, RunRecord>,
    /// Runs of which the mover was told what was counted, since it was started.
    told: BTreeSet<RunId>,
    /// Runs that were started before the first of their events: all of these go by one definition.
    in_order: BTreeSet<RunId>,
    /// Events that are in consignments, of those that were not withdrawn.
    planned: BTreeMap<ConsignmentId, (RunId, u64)>,
    /// With which a run had more events than it has, though that was known.
    too_many: BTreeSet<ConsignmentId>,
    /// What a person said to try again.
    retried: BTreeSet<ConsignmentId>,
}

impl Runs {
    pub(super) fn define(&mut self, random: &mut Random, destinations: usize) {
        let definition = StreamDefinition {
            sources: if random.per_mille(700) { StreamSources::All } else { "1-3".parse().expect("sources") },
            format: if random.per_mille(200) { "mdf" } else { "" }.to_owned(),
            priority: random.below(3) as u16,
            destination: format!("destination {}", random.below(destinations as u64)),
            block: match random.below(3) {
                0 => BlockRule::Run,
                1 => BlockRule::Events(random.within(5..60)),
                _ => BlockRule::Seconds(random.within(5..60)),
            },
            ..StreamDefinition::default()
        };
        let (name, version) = ("physics".parse().expect("a name"), self.versions.len() as u32 + 1);
        self.versions.push(StreamVersion { name, version, at_unix_ns: 0, by: String::new(), definition });
    }

    /// What definitions say of where events go.
    pub(super) fn destinations(&self) -> BTreeSet<&str> {
        self.versions.iter().map(|version| version.definition.destination.as_str()).collect()
    }

    /// `has_events`: some of it were there before.
    pub(super) fn start(&mut self, run: RunId, has_events: bool, now: Time) {
        if !has_events {
            self.in_order.insert(run);
        }
        let step = RunStep { at_unix_ns: now.0 as i64, ..RunStep::default() };
        let stream =
            self.versions.last().map(|newest| RunStream { name: newest.name.clone(), version: newest.version });
        let declared = RunRecord::declared(run, SourceSet::default(), step.clone());
        let (state, started, streams) = (RunState::Running, Some(step), stream.into_iter().collect());
        let record = RunRecord { state, changes: 2, started, streams, ..declared };
        self.records.insert(run, record);
    }

    /// All of it is there.
    pub(super) fn close(&mut self, run: RunId, events: u64) {
        if let Some(record) = self.records.get_mut(&run) {
            (record.state, record.expected_events) = (RunState::Closed, Some(events));
        }
    }

    /// What a mover is told.
    pub(super) fn tell(&mut self, run: RunId) -> OfRun {
        let of_run = self.of_run(run);
        if of_run.run.as_ref().is_some_and(|run| run.expected_events.is_some()) {
            self.told.insert(run);
        }
        of_run
    }

    /// A mover starts, and knows nothing of them.
    pub(super) fn forgotten(&mut self) {
        self.told.clear();
    }

    fn of_run(&self, run: RunId) -> OfRun {
        let record = self.records.get(&run);
        let stream = match record.and_then(|record| record.streams.first()) {
            Some(of_run) => self.versions.iter().find(|version| version.version == of_run.version),
            None if record.is_some() => None,
            None => self.versions.last(),
        };
        OfRun { run: record.cloned(), stream: stream.cloned() }
    }

    /// What a file of events must be, when it is planned; whether its run has more events than are known of then. `taken`: when each event was.
    pub(super) fn planned(
        &mut self,
        id: ConsignmentId,
        events: &Events,
        (to, by_definition): (&[&str], bool),
        taken: impl Fn(EventKey) -> Option<u64>,
    ) -> bool {
        let of_run = self.of_run(events.run);
        let was_never_started = of_run.run.is_none() && self.versions.len() <= 1;
        let is_fixed = self.in_order.contains(&events.run) || was_never_started;
        let terms = Terms::of(&of_run, None).expect("its format is known");
        if is_fixed {
            let Terms { making, destination, blocks, .. } = &terms;
            assert_eq!(events.making, *making, "consignment {id} is made by another definition than that of its run");
            assert!(!by_definition || to == [destination], "consignment {id} goes to {to:?}, and not to {destination}");
            let block = |key: EventKey| blocks.of(key.event, taken(key));
            assert!(
                *blocks == Blocks::Run || events.keys().all(|key| block(key) == events.block),
                "consignment {id} has events of other blocks than {:?}",
                events.block
            );
        }
        self.planned.insert(id, (events.run, events.list.len()));
        let of_this_run = self.planned.values().filter(|(run, _)| *run == events.run);
        let all: u64 = of_this_run.map(|(_, events)| events).sum();
        if self.told.contains(&events.run) && terms.events.is_some_and(|counted| all > counted) {
            self.too_many.insert(id);
        }
        self.too_many.contains(&id)
    }

    pub(super) fn withdrawn(&mut self, id: ConsignmentId) {
        self.planned.remove(&id);
    }

    pub(super) fn retried(&mut self, id: ConsignmentId) {
        self.retried.insert(id);
    }

    /// What must be true of a file that is let go.
    pub(super) fn released(&self, id: ConsignmentId) {
        assert!(
            !self.too_many.contains(&id) || self.retried.contains(&id),
            "consignment {id} is released, with which its run has more events than were counted, and nobody looked at it"
        );
    }
}

/// What an event becomes, as it is wanted: its own kind, or parts.
pub(super) fn kind_of(kind: EventKind, making: &Making) -> EventKind {
    if making.kind.is_none_or(|wanted| wanted == kind) { kind } else { EventKind::Parts }
}

/// What is taken of an event's bytes.
pub(super) fn taken_of(bytes: &[u8], making: &Making) -> Vec<u8> {
    match making.sources {
        StreamSources::All => bytes.to_vec(),
        StreamSources::Part(_) => bytes[..bytes.len().div_ceil(2)].to_vec(),
    }
}
