//! What a run control knows of its runs, and what must hold of them whatever happens.

use std::collections::BTreeMap;

use forebay_types::{
    DecideOutcome, EventKey, FragmentId, PutOutcome, ReadOutcome, RunChange, RunId, RunRecord, RunState, StreamName,
    StreamVersion, Verdict, is_prescaled_in,
};

/// The stream of a run control.
pub(super) struct Streams {
    pub(super) name: StreamName,
    /// Of each version, from 1 on.
    pub(super) prescales: Vec<u32>,
    /// Nobody knows whether the newest definition was taken.
    pub(super) is_in_doubt: bool,
}

impl Streams {
    pub(super) fn new(name: StreamName) -> Streams {
        Streams { name, prescales: Vec::new(), is_in_doubt: false }
    }

    pub(super) fn defined(&mut self, prescale: u32, version: &StreamVersion) {
        assert_eq!((version.version as usize, version.definition.prescale), (self.prescales.len() + 1, prescale));
        self.prescales.push(prescale);
    }

    pub(super) fn seen(&mut self, versions: &[StreamVersion]) {
        let prescales: Vec<u32> = versions.iter().map(|version| version.definition.prescale).collect();
        assert!(prescales.starts_with(&self.prescales), "versions were {:?} and are {prescales:?}", self.prescales);
        (self.prescales, self.is_in_doubt) = (prescales, false);
    }
}

/// An event of a run.
#[derive(Debug, Default)]
pub(super) struct Event {
    /// It was acknowledged.
    pub(super) is_durable: bool,
    /// It was refused, as its run takes nothing any more.
    is_refused: bool,
    pub(super) decision_asked: bool,
    /// How many are kept in the stream of the run, when that was known as its decision was asked.
    pub(super) prescale: Option<u32>,
    /// Whether it is kept, once its decision was answered and that is certain.
    pub(super) is_kept: Option<bool>,
    /// Somebody asked that it goes, and that may be done.
    free_asked: bool,
    /// Somebody asked that while it was held; it may be done when the hold ends.
    free_tried: bool,
}

impl Event {
    pub(super) fn decided(&mut self, key: EventKey, verdict: &Verdict, outcome: DecideOutcome) {
        let accepts = matches!(verdict, Verdict::Accept(_));
        match outcome {
            DecideOutcome::Done | DecideOutcome::AlreadyDone => {
                self.is_kept = match (accepts, self.prescale) {
                    (false, _) => Some(false),
                    (true, Some(prescale)) => Some(is_prescaled_in(key.event, prescale)),
                    (true, None) => None,
                };
            }
            // Its run was discarded meanwhile, or it was decided by a copy of this that came earlier.
            DecideOutcome::Conflict | DecideOutcome::NotFound => self.is_kept = None,
            DecideOutcome::NoSpace | DecideOutcome::Unavailable => self.decision_asked = false,
            DecideOutcome::Held | DecideOutcome::ReadOnly | DecideOutcome::TooManyStreams => {
                panic!("the decision on {key} came to {outcome:?}")
            }
        }
    }
}

/// A run.
#[derive(Default)]
pub(super) struct Run {
    /// As it was told last.
    record: Option<RunRecord>,
    /// Changes that were given up since, and may be made, now or later; and the one that is on its way.
    perhaps: Vec<RunChange>,
    on_its_way: Option<RunChange>,
    /// It was asked for: from then on it may be discarded, or closed.
    discard_asked: bool,
    close_asked: bool,
    pub(super) events: BTreeMap<u64, Event>,
}

impl Run {
    pub(super) fn state(&self) -> Option<RunState> {
        self.record.as_ref().map(|record| record.state)
    }

    pub(super) fn changes(&self) -> u32 {
        self.record.as_ref().map_or(0, |record| record.changes)
    }

    pub(super) fn is_in_doubt(&self) -> bool {
        !self.perhaps.is_empty()
    }

    pub(super) fn is_held(&self) -> bool {
        self.record.as_ref().is_some_and(RunRecord::is_held)
    }

    /// It was answered that it is held, and nobody asked for the end of that.
    pub(super) fn is_held_for_certain(&self) -> bool {
        let may_end = |change: &RunChange| matches!(change, RunChange::EndHold);
        self.is_held() && !self.perhaps.iter().chain(&self.on_its_way).any(may_end)
    }

    /// It takes nothing any more, for certain.
    pub(super) fn is_closed(&self) -> bool {
        self.state().is_some_and(|state| state >= RunState::Closed)
    }

    /// What it was closed with, when it was.
    pub(super) fn counted(&self) -> Option<u64> {
        self.record.as_ref()?.counted.map(|counts| counts.events)
    }

    pub(super) fn takes_events(&self) -> bool {
        self.record.is_some()
    }

    pub(super) fn durable(&self) -> u64 {
        self.events.values().filter(|event| event.is_durable).count() as u64
    }

    /// How many events its stream keeps, when that is certain.
    pub(super) fn prescale(&self, streams: &Streams) -> Option<u32> {
        let record = self.record.as_ref()?;
        if record.started.is_none() {
            let may_start = |change: &RunChange| matches!(change, RunChange::Start);
            return (!self.perhaps.iter().chain(&self.on_its_way).any(may_start)).then_some(1);
        }
        match record.streams.iter().find(|stream| stream.name == streams.name) {
            Some(stream) => streams.prescales.get(stream.version as usize - 1).copied(),
            None => Some(1),
        }
    }

    // ---- changes ----

    pub(super) fn asked(&mut self, what: &RunChange) {
        self.on_its_way = Some(what.clone());
        match what {
            RunChange::Discard => self.discard_asked = true,
            RunChange::Close { .. } => self.close_asked = true,
            RunChange::EndHold => {
                // What was refused as it was held may come once more.
                self.events.values_mut().for_each(|event| event.free_asked |= event.free_tried);
            }
            _ => {}
        }
    }

    /// Whether it may be done, as far as is known.
    fn is_legal(&self, what: &RunChange) -> bool {
        use RunState::{Closed, Declared, Running, Stopped};
        let (state, is_held) = (self.state(), self.is_held());
        match what {
            RunChange::Declare { .. } => state.is_none(),
            RunChange::Start => state == Some(Declared),
            RunChange::Stop { .. } => state == Some(Running),
            RunChange::Close { .. } => state == Some(Stopped),
            RunChange::Hold => matches!(state, Some(Declared | Running | Stopped | Closed)) && !is_held,
            RunChange::EndHold => is_held,
            RunChange::Discard => matches!(state, Some(Declared | Stopped | Closed)) && !is_held,
        }
    }

    /// What was asked is done: the run as it is told.
    pub(super) fn changed(&mut self, what: &RunChange, token: u64, record: RunRecord) {
        assert!(self.is_legal(what), "{what:?} was done with {:?}", self.record);
        assert_eq!(record.changes, self.changes() + 1, "{what:?}: {record:?}");
        let step = match what {
            RunChange::Declare { .. } => Some(&record.declared),
            RunChange::Start => record.started.as_ref(),
            RunChange::Stop { .. } => record.stopped.as_ref(),
            RunChange::Close { .. } => record.closed.as_ref(),
            RunChange::Hold => record.hold.as_ref().map(|hold| &hold.begun),
            RunChange::EndHold => record.hold.as_ref().and_then(|hold| hold.ended.as_ref()),
            RunChange::Discard => record.discarded.as_ref(),
        };
        assert_eq!(
            step.map(|step| step.by.clone()),
            Some(token.to_string()),
            "{what:?} was done by another request: {record:?}"
        );
        if let RunChange::Close { accept_difference } = what {
            let counts = record.counted.expect("a run that was closed was counted");
            let agree = record.expected_events == Some(counts.events) && counts.undecided == 0;
            assert!(agree || *accept_difference, "it was closed over a difference: {record:?}");
            let all = self.events.values().filter(|event| !event.is_refused).count() as u64;
            // What was taken while it was being closed is counted, too.
            let least = self.durable();
            assert!((least..=all).contains(&counts.events), "{least} to {all} events, closed with {counts:?}");
        }
        self.on_its_way = None;
        // It was made as the run was: what was given up before was not, and is not any more.
        self.perhaps.clear();
        self.seen(Some(record));
    }

    pub(super) fn refused(&mut self, run: RunId, what: &RunChange, why: &str) {
        self.on_its_way = None;
        let is_for_now = why.contains("store is full") || why.contains("is used up");
        let differs = matches!(what, RunChange::Close { .. }) && why.contains("was not closed");
        let may = !self.is_legal(what) || self.is_in_doubt() || is_for_now || differs;
        assert!(may, "{what:?} of run {run} was refused: {why}");
    }

    pub(super) fn gave_up(&mut self, what: &RunChange) {
        self.on_its_way = None;
        self.perhaps.push(what.clone());
    }

    /// The run as it is told: what was told before is so still.
    pub(super) fn seen(&mut self, record: Option<RunRecord>) {
        let Some(known) = &self.record else {
            self.record = record;
            return;
        };
        let Some(record) = record else { panic!("{known:?} is forgotten") };
        assert!(record.changes >= known.changes && record.state >= known.state, "{known:?}, then {record:?}");
        if record.changes == known.changes {
            assert_eq!(&record, known);
        }
        assert_eq!(record.declared, known.declared, "a number was used twice");
        let steps = [
            (&known.started, &record.started),
            (&known.stopped, &record.stopped),
            (&known.closed, &record.closed),
            (&known.discarded, &record.discarded),
        ];
        for (before, now) in steps {
            assert!(before.is_none() || before == now, "{known:?}, then {record:?}");
        }
        self.record = Some(record);
    }

    // ---- events ----

    /// A put was answered; whether that is its end.
    pub(super) fn put_answered(&mut self, id: FragmentId, was_closed: bool, outcome: PutOutcome) -> bool {
        let (may_be_closed, may_be_discarded) = (self.close_asked, self.discard_asked);
        let event = self.events.get_mut(&id.event.0).expect("it was asked");
        match outcome {
            PutOutcome::Durable => {
                assert!(!was_closed, "{id} was taken after its run was closed");
                event.is_durable = true;
                // It was on its way while the run was closed: then it was waited for, and counted.
                let (durable, counted) = (self.durable(), self.counted());
                assert!(
                    counted.is_none_or(|counted| durable <= counted),
                    "{id} is not counted: {durable} of {counted:?}"
                );
            }
            PutOutcome::RunClosed => {
                assert!(may_be_closed && !event.is_durable, "{id}: nobody closed its run, or it was there");
                event.is_refused = true;
            }
            PutOutcome::RunDiscarded => {
                assert!(may_be_discarded, "{id}: nobody discarded its run");
                event.is_refused = true;
            }
            PutOutcome::Late => assert!(may_be_discarded, "{id} is late, and nobody decided it"),
            _ => return false,
        }
        true
    }

    pub(super) fn free_asked(&mut self, event: u64, is_held: bool) {
        let event = self.events.get_mut(&event).expect("it is known");
        if is_held { event.free_tried = true } else { event.free_asked = true }
    }

    pub(super) fn freed(&mut self, key: EventKey, was_held: bool, outcome: DecideOutcome) {
        let is_held = was_held && self.is_held_for_certain();
        let event = self.events.get_mut(&key.event.0).expect("it was asked");
        if outcome == DecideOutcome::Unavailable || event.free_asked {
            return;
        }
        assert!(!is_held || outcome == DecideOutcome::Held, "{key} is held, and its release came to {outcome:?}");
        if outcome != DecideOutcome::Held {
            event.free_asked = true;
        }
    }

    /// An event was read: `was_over` when it was known to be over as it was asked.
    pub(super) fn read(&self, key: EventKey, was_over: bool, outcome: ReadOutcome) {
        let event = &self.events[&key.event.0];
        assert!(!was_over || outcome != ReadOutcome::Found, "{key} is over, and was read");
        let may_be_over = event.free_asked || self.discard_asked || event.decision_asked && event.is_kept != Some(true);
        let is_there = matches!(outcome, ReadOutcome::Found | ReadOutcome::Unavailable);
        assert!(may_be_over || is_there, "{key} is {outcome:?}, and nobody asked for it: {event:?}");
    }
}
