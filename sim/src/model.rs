//! What must hold, whatever happens. Clients tell it what they ask and what they are answered; it panics at the first answer that
//! breaks a promise.

mod recorded;
mod told;
mod trace;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_types::{
    DecideOutcome, EventKey, FragmentId, PutOutcome, ReadOutcome, RunId, SourceId, StreamName, Time, Verdict,
};

use crate::calendar::Calendar;
use crate::census::{Known, KnownFragment};
use crate::random::Random;

pub(crate) use recorded::Listing;

/// Which of the contents that a writer gives an id.
pub(crate) type Variant = u8;

/// The run whose fragments fill a store.
pub(crate) const LARGE: RunId = RunId(2);

/// The bytes of an id.
pub(crate) fn payload(id: FragmentId, variant: Variant) -> Vec<u8> {
    let mut random = Random::new(id.event.0 << 20 ^ u64::from(id.run.0) << 50 ^ u64::from(id.source.0) << 8);
    let bytes = match random.below(100) {
        _ if id.run == LARGE => random.below(30_000),
        0..5 => 0,
        5 => random.within(20_000..59_999),
        6..60 => random.below(400),
        _ => random.below(2500),
    };
    let mut random = Random::new(random.next() ^ u64::from(variant));
    let mut payload = Vec::with_capacity(bytes as usize + 8);
    while payload.len() < bytes as usize {
        payload.extend_from_slice(&random.next().to_le_bytes());
    }
    payload.truncate(bytes as usize);
    payload.extend((variant > 0).then_some(variant));
    payload
}

#[derive(Debug, Default)]
struct Fragment {
    asked: BTreeSet<Variant>,
    /// Acknowledged, or seen by a reader.
    durable: Option<Variant>,
    /// When it was first asked for, and whether some writer was told that it is stored.
    asked_at: Option<Time>,
    acknowledged: bool,
}

#[derive(Debug, Default)]
struct Event {
    fragments: BTreeMap<SourceId, Fragment>,
    end_asked: bool,
    over: bool,
    accept_asked: BTreeSet<StreamName>,
    accepted: BTreeSet<StreamName>,
    release_asked: BTreeSet<StreamName>,
    released: BTreeSet<StreamName>,
    /// The moment at which it was first known to be decided, to be over, to be released by a stream.
    decided_at: Option<Moment>,
    over_at: Option<Moment>,
    released_at: BTreeMap<StreamName, Moment>,
}

/// Orders what became known: one more with each answer.
pub(crate) type Moment = u64;

impl Event {
    fn may_be_over(&self) -> bool {
        // It is over when all of its streams released it; which these are may not be known yet.
        let by_all = !self.release_asked.is_empty() && self.accepted.is_subset(&self.release_asked);
        self.over || self.end_asked || by_all
    }

    /// Whether it waits for a stream, whatever happens.
    fn waits_for(&self, stream: &StreamName) -> bool {
        self.accepted.contains(stream) && !self.release_asked.contains(stream) && !self.may_be_over()
    }

    fn has_durable(&self) -> bool {
        self.fragments.values().any(|fragment| fragment.durable.is_some())
    }

    fn release(&mut self, stream: &StreamName) {
        self.released.insert(stream.clone());
        self.over |= !self.accepted.is_empty() && self.accepted.is_subset(&self.released);
    }
}

/// What was known of an event when something was asked: an answer is about then, or later.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    durable: BTreeMap<SourceId, Variant>,
    over: bool,
}

/// A lease as a filter knows it, in the server's time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseTime {
    pub(crate) process: u64,
    pub(crate) asked: Time,
    pub(crate) received: Time,
    pub(crate) duration: Duration,
}

/// Counts of what was asked and answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Puts that came to an end.
    pub puts: u64,
    /// Of these, acknowledged as durable.
    pub puts_durable: u64,
    /// Of these, late.
    pub puts_late: u64,
    /// Fragments read.
    pub reads: u64,
    /// Of these, unavailable for then.
    pub reads_unavailable: u64,
    /// Decisions and deletions.
    pub decisions: u64,
    /// Releases.
    pub releases: u64,
    /// Events leased.
    pub leases: u64,
    /// Events traced.
    pub traces: u64,
    /// What clients of files were answered.
    pub files: u64,
    /// Events of which those who look on were told.
    pub told: u64,
}

impl Answers {
    /// All of them.
    pub fn operations(&self) -> u64 {
        self.puts + self.reads + self.decisions + self.releases + self.leases + self.traces + self.files + self.told
    }

    pub(crate) fn add(&mut self, other: &Answers) {
        self.puts += other.puts;
        self.puts_durable += other.puts_durable;
        self.puts_late += other.puts_late;
        self.reads += other.reads;
        self.reads_unavailable += other.reads_unavailable;
        self.decisions += other.decisions;
        self.releases += other.releases;
        self.leases += other.leases;
        self.traces += other.traces;
        self.files += other.files;
        self.told += other.told;
    }
}

/// The model.
pub(crate) struct Model {
    events: BTreeMap<EventKey, Event>,
    /// Events that are not over.
    open: BTreeSet<EventKey>,
    moment: Moment,
    leases: BTreeMap<EventKey, LeaseTime>,
    pub(crate) answers: Answers,
    /// Nothing is wrong any more: nothing may be unavailable.
    pub(crate) calm: bool,
    /// Somebody reads what is asked and answered.
    told: bool,
    /// What the server's machine took for the time.
    pub(crate) calendar: Calendar,
}

impl Model {
    pub(crate) fn new(told: bool, calendar: Calendar) -> Model {
        Model {
            events: BTreeMap::new(),
            open: BTreeSet::new(),
            moment: Moment::default(),
            leases: BTreeMap::new(),
            answers: Answers::default(),
            calm: false,
            told,
            calendar,
        }
    }

    pub(crate) fn tell(&self, what: impl FnOnce() -> String) {
        if self.told {
            println!("{:>12} {}", "", what());
        }
    }

    /// What is known now was known at this moment.
    pub(crate) fn moment(&self) -> Moment {
        self.moment
    }

    fn event(&mut self, key: EventKey) -> &mut Event {
        self.events.entry(key).or_insert_with(|| {
            self.open.insert(key);
            Event::default()
        })
    }

    /// Notes when what is known of an event became known.
    fn note(&mut self, key: EventKey) {
        self.moment += 1;
        let moment = self.moment;
        let event = self.events.get_mut(&key).expect("it was asked");
        if event.over || !event.accepted.is_empty() {
            event.decided_at.get_or_insert(moment);
        }
        for stream in &event.released {
            event.released_at.entry(stream.clone()).or_insert(moment);
        }
        if event.over {
            event.over_at.get_or_insert(moment);
            self.open.remove(&key);
        }
    }

    fn open(&self) -> impl Iterator<Item = (&EventKey, &Event)> {
        self.open.iter().map(|key| (key, &self.events[key]))
    }

    pub(crate) fn snapshot(&self, key: EventKey) -> Snapshot {
        let Some(event) = self.events.get(&key) else { return Snapshot::default() };
        let durable = |(source, fragment): (&SourceId, &Fragment)| fragment.durable.map(|variant| (*source, variant));
        Snapshot { durable: event.fragments.iter().filter_map(durable).collect(), over: event.over }
    }

    // ---- puts ----

    pub(crate) fn put_asked(&mut self, now: Time, id: FragmentId, variant: Variant) {
        self.tell(|| format!("put {id} content {variant}"));
        let fragment = self.event(id.key()).fragments.entry(id.source).or_default();
        fragment.asked.insert(variant);
        fragment.asked_at.get_or_insert(now);
    }

    /// `before`: what was known when this put was first asked.
    pub(crate) fn put_answered(&mut self, id: FragmentId, variant: Variant, before: &Snapshot, outcome: PutOutcome) {
        self.tell(|| format!("put {id} content {variant}: {outcome:?}"));
        self.answers.puts += 1;
        let event = self.events.get_mut(&id.key()).expect("it was asked");
        let decided = event.may_be_over() || !event.accept_asked.is_empty();
        let fragment = event.fragments.get_mut(&id.source).expect("it was asked");
        match outcome {
            PutOutcome::Durable => {
                assert!(!before.over, "{id} was stored in an event that was over");
                let known = *fragment.durable.get_or_insert(variant);
                assert_eq!(known, variant, "{id} was acknowledged with two contents");
                fragment.acknowledged = true;
                self.answers.puts_durable += 1;
            }
            PutOutcome::Late => {
                assert!(decided, "{id} is late for an event that nobody decided");
                self.answers.puts_late += 1;
            }
            PutOutcome::Conflict => {
                let others = fragment.asked.iter().any(|asked| *asked != variant);
                assert!(others, "{id} conflicts with a content that nobody put");
                assert!(fragment.durable != Some(variant), "{id} conflicts with itself");
            }
            PutOutcome::NoSpace | PutOutcome::Unavailable | PutOutcome::IndexFull => {}
            PutOutcome::ChecksumMismatch
            | PutOutcome::TooLarge
            | PutOutcome::ReadOnly
            | PutOutcome::KeptRun
            | PutOutcome::RunClosed
            | PutOutcome::RunDiscarded => {
                panic!("a put of {id} came to {outcome:?}")
            }
        }
    }

    // ---- reads ----

    pub(crate) fn read(&mut self, id: FragmentId, before: &Snapshot, outcome: ReadOutcome, bytes: &[u8]) {
        self.tell(|| format!("read {id}: {outcome:?}, {} bytes", bytes.len()));
        self.answers.reads += 1;
        let calm = self.calm;
        let event = self.event(id.key());
        let may_be_over = event.may_be_over();
        match outcome {
            ReadOutcome::Found => {
                assert!(!before.over, "{id} was read after its event was over");
                let fragment = event.fragments.entry(id.source).or_default();
                let right = fragment.asked.iter().copied().find(|variant| payload(id, *variant) == bytes);
                let right = right.unwrap_or_else(|| panic!("{id}: bytes that nobody put"));
                let known = *fragment.durable.get_or_insert(right);
                assert_eq!(known, right, "{id}: other bytes than were acknowledged or seen before");
            }
            ReadOutcome::NotFound => {
                assert!(!before.over, "{id}: it is forgotten that its event is over");
                let was_there = before.durable.contains_key(&id.source);
                assert!(!was_there || may_be_over, "{id} was acknowledged and is not found");
            }
            ReadOutcome::Deleted => {
                assert!(may_be_over, "{id} is deleted and nobody asked for it");
                event.over = true;
                self.note(id.key());
            }
            ReadOutcome::Unavailable => {
                assert!(!calm, "{id} is unavailable and nothing is wrong");
                self.answers.reads_unavailable += 1;
            }
            ReadOutcome::Lost => panic!("{id} is lost and no more went wrong than parity makes up for"),
        }
    }

    /// An event was read whole: `found` are its fragments.
    pub(crate) fn event_read(
        &mut self,
        key: EventKey,
        before: &Snapshot,
        outcome: ReadOutcome,
        found: &BTreeSet<SourceId>,
    ) {
        self.tell(|| format!("event {key}: {outcome:?}, {} fragments", found.len()));
        let calm = self.calm;
        let event = self.event(key);
        match outcome {
            ReadOutcome::Found => {
                for source in before.durable.keys() {
                    assert!(found.contains(source), "{key}: source {source} was acknowledged and is not there");
                }
            }
            ReadOutcome::NotFound => {
                assert!(!before.over, "{key}: it is forgotten that it is over");
                let known = before.durable.is_empty() || event.may_be_over();
                assert!(known, "{key} was acknowledged and is not found");
            }
            ReadOutcome::Deleted => {
                assert!(event.may_be_over(), "{key} is deleted and nobody asked for it");
                event.over = true;
                self.note(key);
            }
            ReadOutcome::Unavailable => assert!(!calm, "{key} is unavailable and nothing is wrong"),
            ReadOutcome::Lost => panic!("{key} is lost"),
        }
    }

    // ---- leases and decisions ----

    /// `asked`: the moment at which the lease was asked for.
    pub(crate) fn leased(&mut self, key: EventKey, asked: Moment, lease: LeaseTime) {
        self.tell(|| format!("lease {key}: {lease:?}"));
        self.answers.leases += 1;
        let decided = self.events.get(&key).and_then(|event| event.decided_at);
        assert!(decided.is_none_or(|at| at > asked), "{key} was leased after it was decided");
        let Some(known) = self.leases.insert(key, lease) else { return };
        // Both by one process: whichever was given first had not ended when the other one was given.
        let overlap = |first: LeaseTime, second: LeaseTime| second.received < first.asked + first.duration;
        let twice = known.process == lease.process && overlap(known, lease) && overlap(lease, known);
        assert!(!twice, "{key} was leased twice: {known:?} and {lease:?}");
    }

    pub(crate) fn decision_asked(&mut self, key: EventKey, verdict: &Verdict) {
        self.tell(|| format!("decide {key}: {verdict:?}"));
        let event = self.event(key);
        match verdict {
            Verdict::Reject => event.end_asked = true,
            Verdict::Accept(streams) => event.accept_asked.extend(streams.iter().cloned()),
        }
    }

    pub(crate) fn decision_answered(
        &mut self,
        key: EventKey,
        verdict: &Verdict,
        before: &Snapshot,
        outcome: DecideOutcome,
    ) {
        self.tell(|| format!("decide {key}: {verdict:?}: {outcome:?}"));
        self.answers.decisions += 1;
        let event = self.events.get_mut(&key).expect("it was asked");
        match (outcome, verdict) {
            (DecideOutcome::Done | DecideOutcome::AlreadyDone, Verdict::Reject) => event.over = true,
            (DecideOutcome::Done, Verdict::Accept(streams)) => {
                assert!(!before.over, "{key} was accepted after it was over");
                event.accepted = streams.iter().cloned().collect();
                let released = event.released.clone();
                released.iter().for_each(|stream| event.release(stream));
            }
            (DecideOutcome::AlreadyDone, Verdict::Accept(streams)) => {
                if !event.over {
                    event.accepted = streams.iter().cloned().collect();
                }
            }
            (DecideOutcome::Conflict, Verdict::Reject) => {
                assert!(!event.accept_asked.is_empty(), "{key}: a conflict with nothing");
            }
            (DecideOutcome::Conflict, Verdict::Accept(_)) => {
                assert!(event.may_be_over(), "{key}: a conflict with nothing")
            }
            (DecideOutcome::NotFound, _) => {
                assert!(before.durable.is_empty() || event.may_be_over(), "{key} was acknowledged and is not found");
            }
            (DecideOutcome::NoSpace | DecideOutcome::Unavailable, _) => {}
            (DecideOutcome::ReadOnly | DecideOutcome::TooManyStreams | DecideOutcome::Held, _) => {
                panic!("a decision on {key} came to {outcome:?}")
            }
        }
        self.note(key);
    }

    pub(crate) fn release_asked(&mut self, key: EventKey, stream: &StreamName) {
        self.tell(|| format!("release {key} by {stream}"));
        self.event(key).release_asked.insert(stream.clone());
    }

    pub(crate) fn release_answered(&mut self, key: EventKey, stream: &StreamName, outcome: DecideOutcome) {
        self.tell(|| format!("release {key} by {stream}: {outcome:?}"));
        self.answers.releases += 1;
        let event = self.events.get_mut(&key).expect("it was asked");
        match outcome {
            DecideOutcome::Done | DecideOutcome::AlreadyDone => event.release(stream),
            DecideOutcome::NotFound => assert!(event.may_be_over(), "{key} is accepted into {stream} and is not found"),
            DecideOutcome::NoSpace | DecideOutcome::Unavailable => {}
            _ => panic!("a release of {key} came to {outcome:?}"),
        }
        self.note(key);
    }

    /// Fragments that were first asked for since then and must be there whatever happens now, with their bytes: acknowledged, and nobody asked for
    /// their event to end.
    pub(crate) fn must_be_there(&self, since: Time) -> Vec<(FragmentId, Vec<u8>)> {
        let events = self.open().filter(|(_, event)| !event.may_be_over());
        let fragments =
            events.flat_map(|(key, event)| event.fragments.iter().map(|(source, f)| (key.fragment(*source), f)));
        let there = fragments.filter(|(_, f)| f.acknowledged && f.asked_at.is_some_and(|at| at >= since));
        there.filter_map(|(id, fragment)| Some((id, payload(id, fragment.durable?)))).collect()
    }

    /// Events that wait for a stream, whatever happens now.
    pub(crate) fn must_be_accepted(&self) -> Vec<(EventKey, StreamName)> {
        let streams = |(key, event): (&EventKey, &Event)| {
            let waited_for = event.accepted.iter().filter(|stream| event.waits_for(stream));
            waited_for.map(|stream| (*key, stream.clone())).collect::<Vec<_>>()
        };
        self.open().flat_map(streams).collect()
    }

    /// Events that are over, whatever happens now.
    pub(crate) fn must_be_over(&self) -> Vec<EventKey> {
        self.events.iter().filter(|(_, event)| event.over).map(|(key, _)| *key).collect()
    }

    /// Everything that is known, for whoever asks after all of it.
    pub(crate) fn known(&self) -> Known {
        let mut known = Known {
            fragments: BTreeMap::new(),
            events: self.events.keys().copied().collect(),
            over: self.must_be_over().into_iter().collect(),
            accepted: self.must_be_accepted(),
        };
        for (key, event) in &self.events {
            for (source, fragment) in &event.fragments {
                let of_it = KnownFragment {
                    asked: fragment.asked.clone(),
                    durable: fragment.durable,
                    promised: fragment.acknowledged && !event.may_be_over(),
                };
                known.fragments.insert(key.fragment(*source), of_it);
            }
        }
        known
    }

    // ---- the end ----

    /// Everything came to its end: what was acknowledged is over, by somebody's word.
    pub(crate) fn assert_all_is_over(&self) {
        for (key, event) in &self.events {
            assert!(event.over || !event.has_durable(), "{key} is not over: {event:?}");
        }
    }

    pub(crate) fn unfinished(&self) -> usize {
        self.open().filter(|(_, event)| event.has_durable()).count()
    }
}
