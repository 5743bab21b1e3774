//! Whoever asks after everything when more was lost than parity makes up for, and compares the answers with what the drives' bytes say.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use forebay_client::{Answer, Class, FetchedEvent, Request, SessionEvent};
use forebay_protocol::{Accepted, Delete, Get, GetEvent};
use forebay_types::placement::lane_of;
use forebay_types::{DecideOutcome, EventKey, FragmentId, ReadOutcome, SourceId, StreamName, Time};

use crate::links::Links;
use crate::model::{Variant, payload};
use crate::scenario::Scenario;
use crate::truth::{Fate, Truth};

/// Ids in a request.
const BATCH: usize = 40;

/// What is known of a fragment.
pub(crate) struct KnownFragment {
    pub(crate) asked: BTreeSet<Variant>,
    pub(crate) durable: Option<Variant>,
    /// It was acknowledged, and nobody asked for its event to end.
    pub(crate) promised: bool,
}

/// What was promised when the worst came.
pub(crate) struct Known {
    pub(crate) fragments: BTreeMap<FragmentId, KnownFragment>,
    pub(crate) events: BTreeSet<EventKey>,
    pub(crate) over: BTreeSet<EventKey>,
    pub(crate) accepted: Vec<(EventKey, StreamName)>,
}

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    Fragments(Vec<FragmentId>),
    Events(Vec<EventKey>),
    Delete(Vec<EventKey>),
    Accepted(StreamName, Option<EventKey>),
}

/// What was answered.
#[derive(Default)]
pub(crate) struct Answered {
    pub(crate) fragments: BTreeMap<FragmentId, (ReadOutcome, Vec<u8>)>,
    pub(crate) events: BTreeMap<EventKey, FetchedEvent>,
    pub(crate) deleted: BTreeMap<EventKey, DecideOutcome>,
    pub(crate) accepted: BTreeSet<(EventKey, StreamName)>,
}

/// A client that asks its questions one after the other.
pub(crate) struct Asker {
    links: Links,
    left: Vec<VecDeque<Question>>,
    asked: BTreeMap<(usize, u64), Question>,
    pub(crate) answered: Answered,
}

impl Asker {
    pub(crate) fn new(scenario: &Scenario, seed: u64, now: Time) -> Asker {
        Asker {
            links: Links::new(scenario.lanes, Class::Mover, "asker", None, seed, now),
            left: vec![VecDeque::new(); usize::from(scenario.lanes)],
            asked: BTreeMap::new(),
            answered: Answered::default(),
        }
    }

    fn lane(&self, key: EventKey) -> usize {
        usize::from(lane_of(key, self.left.len() as u16))
    }

    /// Asks for all of these.
    pub(crate) fn fragments(&mut self, ids: impl Iterator<Item = FragmentId>) {
        let mut by_lane: BTreeMap<usize, Vec<FragmentId>> = BTreeMap::new();
        ids.for_each(|id| by_lane.entry(self.lane(id.key())).or_default().push(id));
        for (lane, ids) in by_lane {
            self.left[lane].extend(ids.chunks(BATCH).map(|ids| Question::Fragments(ids.to_vec())));
        }
    }

    /// Asks a question about each of these.
    pub(crate) fn about_events(&mut self, keys: &BTreeSet<EventKey>, question: impl Fn(Vec<EventKey>) -> Question) {
        let mut by_lane: BTreeMap<usize, Vec<EventKey>> = BTreeMap::new();
        keys.iter().for_each(|key| by_lane.entry(self.lane(*key)).or_default().push(*key));
        for (lane, keys) in by_lane {
            self.left[lane].extend(keys.chunks(BATCH).map(|keys| question(keys.to_vec())));
        }
    }

    /// Asks for the lists of these streams.
    pub(crate) fn accepted(&mut self, streams: &BTreeSet<StreamName>) {
        for lane in &mut self.left {
            lane.extend(streams.iter().map(|stream| Question::Accepted(stream.clone(), None)));
        }
    }

    pub(crate) fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    pub(crate) fn next_at(&self) -> Option<Time> {
        self.links.next_deadline()
    }

    pub(crate) fn is_done(&self) -> bool {
        self.asked.is_empty() && self.left.iter().all(VecDeque::is_empty)
    }

    pub(crate) fn act(&mut self, now: Time) {
        for lane in 0..self.left.len() {
            while let Some(event) = self.links.lanes[lane].take_event() {
                match event {
                    SessionEvent::Answer { request, answer } => {
                        let question = self.asked.remove(&(lane, request)).expect("it was asked");
                        self.take(lane, question, answer);
                    }
                    SessionEvent::Failed { request, .. } => {
                        self.left[lane].extend(self.asked.remove(&(lane, request)));
                    }
                    SessionEvent::Greeted(_) | SessionEvent::PutsFailed { .. } => {}
                }
            }
            let busy = self.asked.keys().any(|(of, _)| *of == lane);
            if let Some(question) = if busy { None } else { self.left[lane].pop_front() } {
                let request = match question.clone() {
                    Question::Fragments(ids) => Request::Get(Get { ids }),
                    Question::Events(events) => Request::GetEvent(GetEvent { events, sources: None }),
                    Question::Delete(events) => Request::Delete(Delete { events }),
                    Question::Accepted(stream, after) => Request::Accepted(Accepted { stream, after, max: 500 }),
                };
                let number = self.links.lanes[lane].asked().ask(now, request).expect("sessions go on");
                self.asked.insert((lane, number), question);
            }
        }
    }

    fn take(&mut self, lane: usize, question: Question, answer: Answer) {
        let answered = &mut self.answered;
        match (question, answer) {
            (Question::Fragments(ids), Answer::Fragments(found)) => {
                answered.fragments.extend(ids.into_iter().zip(found))
            }
            (Question::Events(_), Answer::Events(events)) => {
                answered.events.extend(events.into_iter().map(|event| (event.key, event)));
            }
            (Question::Delete(keys), Answer::Decided(outcomes)) => {
                answered.deleted.extend(keys.into_iter().zip(outcomes))
            }
            (Question::Accepted(stream, _), Answer::Accepted(page)) => {
                let last = page.events.last().map(|event| event.key);
                answered.accepted.extend(page.events.iter().map(|event| (event.key, stream.clone())));
                if page.more {
                    self.left[lane].push_back(Question::Accepted(stream, last));
                }
            }
            _ => panic!("an answer to something else"),
        }
    }
}

impl Known {
    pub(crate) fn streams(&self) -> BTreeSet<StreamName> {
        self.accepted.iter().map(|(_, stream)| stream.clone()).collect()
    }

    /// Whether an answer about a fragment is one that may be given; `when` says which look this is.
    pub(crate) fn check(&self, id: FragmentId, outcome: ReadOutcome, bytes: &[u8], truth: &Truth, when: &str) {
        let known = &self.fragments[&id];
        let (is_over, lane) = (self.over.contains(&id.key()), truth.lane(id.key()));
        if outcome == ReadOutcome::Found {
            self.check_content(id, outcome, bytes, when);
            let back = is_over && self.stays_over(id.key(), truth);
            assert!(!back, "{when}: {id} is back, and everything that was written of its end can be read");
            return;
        }
        if lane.is_gone || lane.is_old || !known.promised {
            return;
        }
        let fate = truth.fragment(id);
        assert_ne!(outcome, ReadOutcome::Deleted, "{when}: {id} is deleted and nobody asked for it");
        let where_it_is = || truth.tell(id.key());
        assert!(fate != Fate::Readable, "{when}: {id} has good shards enough, and is {outcome:?}: {}", where_it_is());
        let told = matches!(outcome, ReadOutcome::Lost | ReadOutcome::Unavailable);
        assert!(
            told || fate == Fate::Silent,
            "{when}: {id} is lost, and that is not said: {outcome:?}: {}",
            where_it_is()
        );
    }

    /// What was known to be missing, and lies on drives that have come back, is there again; gives how many fragments that are.
    pub(crate) fn compare_back(&self, answered: &Answered, without: &Truth, with_all: &Truth) -> usize {
        let comes_back = |id: &&FragmentId| {
            let lane = without.lane(id.key());
            let known = !lane.is_gone && !lane.is_old && self.fragments[*id].promised;
            known && without.fragment(**id) == Fate::Told && with_all.fragment(**id) == Fate::Readable
        };
        let back: Vec<&FragmentId> = self.fragments.keys().filter(comes_back).collect();
        for id in &back {
            let (outcome, _) = &answered.fragments[*id];
            let where_it_is = || with_all.tell(id.key());
            assert_eq!(*outcome, ReadOutcome::Found, "{id} was on drives that have come back: {}", where_it_is());
        }
        back.len()
    }

    /// An event that is read as a whole gives what its fragments give one by one, but for those of which nobody knows any more that they were
    /// its: whoever asks for the event is not told of them.
    fn compare_event(&self, event: &FetchedEvent, truth: &Truth, when: &str) {
        let of_event = event.key.fragment(SourceId(0))..=event.key.fragment(SourceId(u32::MAX));
        for (id, _) in self.fragments.range(of_event) {
            let came = event.fragments.iter().find(|fragment| fragment.source == id.source);
            let untold = if event.outcome == ReadOutcome::Found { ReadOutcome::Lost } else { event.outcome };
            match came {
                Some(fragment) => self.check(*id, fragment.outcome, &fragment.payload, truth, when),
                None => self.check(*id, untold, &[], truth, when),
            }
        }
    }

    /// What is found is what was put.
    pub(crate) fn check_content(&self, id: FragmentId, outcome: ReadOutcome, bytes: &[u8], when: &str) {
        if outcome == ReadOutcome::Found {
            let known = &self.fragments[&id];
            let content = known.asked.iter().copied().find(|variant| payload(id, *variant) == bytes);
            let content = content.unwrap_or_else(|| panic!("{when}: {id}: bytes that nobody put"));
            assert!(known.durable.is_none_or(|durable| durable == content), "{when}: {id}: other bytes than before");
        }
    }

    /// Whether an event that is over must stay so, whatever else is lost.
    pub(crate) fn stays_over(&self, key: EventKey, truth: &Truth) -> bool {
        let lane = truth.lane(key);
        !lane.is_gone && !lane.is_old && (truth.is_finished(key) || !truth.is_hurt(key))
    }

    /// Compares what a server answered.
    pub(crate) fn compare(&self, answered: &Answered, truth: &Truth, when: &str) {
        for (id, (outcome, bytes)) in &answered.fragments {
            self.check(*id, *outcome, bytes, truth, when);
        }
        for (key, event) in &answered.events {
            if self.over.contains(key) && self.stays_over(*key, truth) {
                assert_eq!(event.outcome, ReadOutcome::Deleted, "{when}: {key} is over");
            }
            self.compare_event(event, truth, &format!("{when}, with its event"));
        }
        for (key, stream) in &self.accepted {
            let listed = answered.accepted.contains(&(*key, stream.clone()));
            assert!(listed || truth.is_hurt(*key), "{when}: {key} is accepted into {stream} and is not listed");
        }
    }
}
