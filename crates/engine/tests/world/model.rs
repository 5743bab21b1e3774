//! What must hold, whatever happens.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::{EventFragment, Reply, Token};
use forebay_types::{DecideOutcome, EventKey, FragmentId, PutOutcome, ReadOutcome, SourceId, StreamName, Time, crc32c};

use super::{Totals, is_answer};

/// What a decision does to an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decided {
    Accepted(Vec<StreamName>),
    Released(StreamName),
    Gone,
}

/// What is known of a fragment.
#[derive(Clone, Debug, Default)]
struct Fragment {
    /// Acknowledged with this content.
    durable: Option<Vec<u8>>,
    /// Asked for and not answered, or not answered before a crash: any of these may be there.
    possible: Vec<Vec<u8>>,
}

/// What is known of an event.
#[derive(Clone, Debug, Default)]
struct Event {
    fragments: BTreeMap<SourceId, Fragment>,
    accepted: Option<BTreeSet<StreamName>>,
    released: BTreeSet<StreamName>,
    gone: bool,
    /// Decisions that may have taken effect.
    possible: Vec<Decided>,
}

impl Event {
    fn may_be_gone(&self) -> bool {
        self.gone || self.possible.iter().any(|d| matches!(d, Decided::Gone | Decided::Released(_)))
    }

    fn apply(&mut self, decided: Decided) {
        match decided {
            Decided::Accepted(streams) => self.accepted = Some(streams.into_iter().collect()),
            Decided::Released(stream) => {
                self.released.insert(stream);
                let all = self.accepted.as_ref().is_some_and(|streams| streams.is_subset(&self.released));
                self.gone |= all;
            }
            Decided::Gone => self.gone = true,
        }
    }
}

#[derive(Debug)]
enum Pending {
    Put(FragmentId, Vec<u8>),
    Decision(EventKey, Decided),
    Read(FragmentId),
    ReadEvent(EventKey),
}

/// The model.
#[derive(Default)]
pub struct Model {
    events: BTreeMap<EventKey, Event>,
    pending: BTreeMap<Token, Pending>,
    leases: BTreeMap<EventKey, Time>,
    pub newest_event: u64,
    watched: Option<(Token, Option<ReadOutcome>)>,
}

impl Model {
    /// A fragment keeps the size that it had when it was first put.
    pub fn size_of(&self, id: FragmentId, bytes: usize) -> usize {
        let fragment = self.events.get(&id.key()).and_then(|e| e.fragments.get(&id.source));
        let known = fragment.and_then(|f| f.durable.as_ref().or(f.possible.first()));
        known.map_or(bytes, Vec::len)
    }

    /// Nobody waits for anything.
    pub fn is_answered(&self) -> bool {
        self.pending.is_empty()
    }

    fn fragment(&mut self, id: FragmentId) -> &mut Fragment {
        self.events.entry(id.key()).or_default().fragments.entry(id.source).or_default()
    }

    pub fn put_pending(&mut self, token: Token, id: FragmentId, payload: &[u8]) {
        self.fragment(id).possible.push(payload.to_vec());
        self.pending.insert(token, Pending::Put(id, payload.to_vec()));
    }

    fn stored(&mut self, id: FragmentId, payload: Vec<u8>) {
        let fragment = self.fragment(id);
        if let Some(durable) = &fragment.durable {
            assert!(*durable == payload, "{id} was acknowledged with two contents");
        }
        fragment.durable = Some(payload);
    }

    pub fn put_done(&mut self, id: FragmentId, payload: &[u8], outcome: PutOutcome, totals: &mut Totals) -> bool {
        match outcome {
            PutOutcome::Durable => {
                let event = self.events.entry(id.key()).or_default();
                assert!(!event.gone, "{id} was put into an event that is over");
                self.stored(id, payload.to_vec());
            }
            PutOutcome::Late => {
                let event = self.events.entry(id.key()).or_default();
                let decided = event.may_be_gone() || event.accepted.is_some() || !event.possible.is_empty();
                assert!(decided, "{id} is late for an event that nobody decided");
            }
            PutOutcome::Conflict => {
                let fragment = self.fragment(id);
                let other = |content: &Vec<u8>| content != payload;
                assert!(
                    fragment.durable.as_ref().is_some_and(other) || fragment.possible.iter().any(other),
                    "{id} conflicts with nothing"
                );
            }
            PutOutcome::NoSpace | PutOutcome::IndexFull => totals.puts_refused += 1,
            outcome => panic!("a put of {id} came to {outcome:?}"),
        }
        true
    }

    pub fn decision_pending(&mut self, token: Token, key: EventKey, decided: Decided) {
        self.events.entry(key).or_default().possible.push(decided.clone());
        self.pending.insert(token, Pending::Decision(key, decided));
    }

    pub fn decision_done(&mut self, key: EventKey, decided: Decided, outcome: DecideOutcome) {
        let event = self.events.entry(key).or_default();
        match outcome {
            DecideOutcome::AlreadyDone => match &decided {
                Decided::Gone => assert!(event.may_be_gone(), "{key} is gone and nobody asked for it"),
                Decided::Released(stream) => {
                    let known = event.released.contains(stream) || event.may_be_gone();
                    assert!(known, "{stream} released {key} and nobody asked for it");
                    if !event.gone && !event.released.contains(stream) {
                        event.apply(decided);
                    }
                }
                Decided::Accepted(_) => {
                    assert!(event.accepted.is_some() || event.possible.contains(&decided), "{key} was never accepted");
                }
            },
            DecideOutcome::Conflict => {
                let decided_before = event.accepted.is_some() || event.may_be_gone() || !event.possible.is_empty();
                assert!(decided_before, "{key} was never decided");
            }
            DecideOutcome::NotFound => {
                let durable = event.fragments.values().any(|f| f.durable.is_some());
                let released = matches!(decided, Decided::Released(_));
                assert!(!durable || event.may_be_gone() || released, "{key} was acknowledged and is not found");
                if let (Decided::Released(stream), Some(streams)) = (&decided, &event.accepted) {
                    assert!(!streams.contains(stream), "{key} was accepted into {stream}");
                }
            }
            outcome => panic!("a decision on {key} came to {outcome:?}"),
        }
    }

    pub fn read_pending(&mut self, token: Token, id: FragmentId) {
        self.pending.insert(token, Pending::Read(id));
    }

    pub fn reply(&mut self, reply: Reply, reads_fail: bool, totals: &mut Totals) {
        match reply {
            Reply::Stored { token, records } => {
                assert_eq!(records, 1);
                let Some(Pending::Put(id, payload)) = self.pending.remove(&token) else {
                    panic!("{token:?} is no put")
                };
                totals.puts_durable += 1;
                self.stored(id, payload);
            }
            Reply::Refused { token, outcome, .. } => {
                assert_eq!(outcome, PutOutcome::Unavailable);
                let refused = self.pending.remove(&token);
                assert!(matches!(refused, Some(Pending::Put(..))), "{token:?} is no put");
            }
            Reply::Decided { token, outcome } => {
                let Some(Pending::Decision(key, decided)) = self.pending.remove(&token) else {
                    panic!("{token:?} is no decision")
                };
                assert_eq!(outcome, DecideOutcome::Done);
                totals.decisions += 1;
                let event = self.events.entry(key).or_default();
                event.possible.retain(|possible| *possible != decided);
                assert!(!event.gone, "{key} was over before {decided:?}");
                event.apply(decided);
                if self.events[&key].gone || self.events[&key].accepted.is_some() {
                    self.leases.remove(&key);
                }
            }
            Reply::ReadEvent { token, outcome, parts, payload } => {
                let Some(Pending::ReadEvent(key)) = self.pending.remove(&token) else { panic!("{token:?} is no read") };
                if !(reads_fail && outcome == ReadOutcome::Unavailable) {
                    assert!(
                        reads_fail || parts.iter().all(|part| part.outcome == ReadOutcome::Found),
                        "{key}: {parts:?}"
                    );
                    let found = parts.iter().filter(|part| part.outcome == ReadOutcome::Found);
                    let fragments: Vec<EventFragment> = found.map(|part| part.fragment).collect();
                    if fragments.len() == parts.len() {
                        self.check_event(key, outcome, &fragments, &payload);
                    }
                }
            }
            Reply::Traced { .. } | Reply::ReadFile { .. } => unreachable!("nobody asked"),
            Reply::Read { token, outcome, .. } if self.watched == Some((token, None)) => {
                self.watched = Some((token, Some(outcome)));
            }
            Reply::Read { token, outcome, payload, .. } => {
                let Some(Pending::Read(id)) = self.pending.remove(&token) else { panic!("{token:?} is no read") };
                if !(reads_fail && outcome == ReadOutcome::Unavailable) {
                    self.check_read(id, outcome, &payload);
                }
            }
        }
    }

    /// The outcome of a read is asked for with [`Model::watched_read`].
    pub fn watch_read(&mut self, token: Token) {
        self.watched = Some((token, None));
    }

    pub fn watched_read(&self) -> Option<ReadOutcome> {
        self.watched.and_then(|(_, outcome)| outcome)
    }

    /// Whatever was not answered may have happened.
    pub fn after_crash(&mut self) {
        self.pending.clear();
        self.leases.clear();
    }

    pub fn check_read(&mut self, id: FragmentId, outcome: ReadOutcome, payload: &[u8]) {
        assert!(is_answer(outcome), "{id}: {outcome:?}");
        let event = self.events.entry(id.key()).or_default();
        let gone = event.gone;
        let may_be_gone = event.may_be_gone();
        let fragment = event.fragments.entry(id.source).or_default();
        match outcome {
            ReadOutcome::Found => {
                // A read that was under way when the event ended may still give its bytes.
                let right =
                    fragment.durable.as_deref() == Some(payload) || fragment.possible.iter().any(|p| p == payload);
                assert!(right, "{id}: bytes that nobody put");
                if let Some(durable) = &fragment.durable {
                    assert!(durable == payload, "{id}: other bytes than were acknowledged");
                }
            }
            ReadOutcome::NotFound => {
                assert!(fragment.durable.is_none() || gone || may_be_gone, "{id} was acknowledged and is not found");
            }
            _ => assert!(gone || may_be_gone, "{id} is deleted and nobody asked for it"),
        }
    }

    pub fn read_event_pending(&mut self, token: Token, key: EventKey) {
        self.pending.insert(token, Pending::ReadEvent(key));
    }

    /// A whole event that is one record: each of its fragments is there, and no other.
    pub fn check_event(&mut self, key: EventKey, outcome: ReadOutcome, fragments: &[EventFragment], payload: &[u8]) {
        if outcome != ReadOutcome::Found {
            let sources: Vec<SourceId> = self.events.entry(key).or_default().fragments.keys().copied().collect();
            sources.into_iter().for_each(|source| self.check_read(key.fragment(source), outcome, &[]));
            return;
        }
        let mut rest = payload;
        for fragment in fragments {
            let (bytes, behind) = rest.split_at(fragment.bytes as usize);
            rest = behind;
            assert_eq!(crc32c(bytes), fragment.crc, "{key}: {}", fragment.source);
            self.check_read(key.fragment(fragment.source), outcome, bytes);
        }
        assert!(rest.is_empty(), "{key}: bytes that belong to no fragment");
        let durable = self.events[&key].fragments.iter().filter(|(_, fragment)| fragment.durable.is_some());
        for (source, _) in durable {
            assert!(
                fragments.iter().any(|f| f.source == *source),
                "{source} of {key} was acknowledged and is not in it"
            );
        }
    }

    pub fn leased(&mut self, key: EventKey, now: Time) {
        let event = self.events.get(&key);
        assert!(event.is_some_and(|e| !e.gone && e.accepted.is_none()), "{key} is leased and decided");
        if let Some(until) = self.leases.insert(key, now + std::time::Duration::from_micros(200)) {
            assert!(until <= now, "{key} is leased twice");
        }
    }

    pub fn undecided(&self) -> Vec<EventKey> {
        let undecided = |(_, e): &(&EventKey, &Event)| !e.gone && e.accepted.is_none();
        self.events.iter().filter(undecided).map(|(key, _)| *key).collect()
    }

    pub fn accepted(&self) -> Vec<EventKey> {
        let accepted = |(_, e): &(&EventKey, &Event)| !e.gone && e.accepted.is_some();
        self.events.iter().filter(accepted).map(|(key, _)| *key).collect()
    }

    /// The event is deleted without anybody being told.
    pub fn deleted(&mut self, key: EventKey) {
        self.events.entry(key).or_default().possible.push(Decided::Gone);
    }

    /// Whether something of the event was acknowledged.
    pub fn is_durable(&self, key: EventKey) -> bool {
        self.events.get(&key).is_some_and(|e| e.fragments.values().any(|f| f.durable.is_some()))
    }

    pub fn unfinished(&self) -> Vec<EventKey> {
        self.events.iter().filter(|(_, e)| !e.gone).map(|(key, _)| *key).collect()
    }

    pub fn some_accepted(&self, choice: u64) -> Option<(EventKey, StreamName)> {
        let accepted: Vec<(EventKey, StreamName)> = self
            .events
            .iter()
            .filter(|(_, e)| !e.gone)
            .flat_map(|(key, e)| e.accepted.iter().flatten().map(|stream| (*key, stream.clone())))
            .collect();
        (!accepted.is_empty()).then(|| accepted[(choice % accepted.len() as u64) as usize].clone())
    }

    pub fn everything_put(&self) -> Vec<FragmentId> {
        self.events.iter().flat_map(|(key, e)| e.fragments.keys().map(|source| key.fragment(*source))).collect()
    }

    pub fn assert_all_read(&self) {
        assert!(self.pending.is_empty(), "every request is answered: {:?}", self.pending.iter().next());
    }

    /// Events that must be listed for each stream; those of which a decision may or may not have happened are left out with
    /// their stream.
    pub fn accepted_events(&self) -> BTreeMap<StreamName, Vec<EventKey>> {
        let mut streams: BTreeMap<StreamName, Vec<EventKey>> = BTreeMap::new();
        let unsure = self.events.values().any(|e| !e.possible.is_empty());
        if unsure {
            return streams;
        }
        for (key, event) in self.events.iter().filter(|(_, e)| !e.gone) {
            for stream in event.accepted.iter().flatten().filter(|s| !event.released.contains(*s)) {
                streams.entry(stream.clone()).or_default().push(*key);
            }
        }
        streams
    }
}
