//! Calls that concern events of several lanes, as machines: which requests they make of which lane, and what the answers come to.
//!
//! [`crate::Client`] asks over its sockets; whoever has other connections, as a simulator has, asks over those. All requests of a round are asked at
//! once, and their answers are handed back in the order of the requests. When one of them has no answer the call has none.

use std::time::Duration;

use forebay_protocol::{Accepted, GetEvent, Release};
use forebay_types::limits::BATCH_RECORDS_MAX;
use forebay_types::placement::lane_of;
use forebay_types::{DecideOutcome, EventKey, SourceId, StreamName, Time};

use crate::answer::{AcceptedPage, FetchedEvent};
use crate::client::scatter::{merge_accepted, scatter};
use crate::client::unexpected;
use crate::session::{Answer, Request};

/// The waits before what could not be made durable for now is told again; they double between these.
const RETELL_MIN: Duration = Duration::from_millis(50);
const RETELL_MAX: Duration = Duration::from_secs(2);

/// Requests, each with its lane.
pub type Round = Vec<(u16, Request)>;

/// Reads whole events, or some sources of them.
#[derive(Debug)]
pub struct ReadEvents<'a> {
    events: &'a [EventKey],
    sources: Option<&'a [SourceId]>,
    parts: Vec<(u16, Vec<usize>)>,
}

impl<'a> ReadEvents<'a> {
    /// To read `events` of a store with so many lanes.
    pub fn new(events: &'a [EventKey], sources: Option<&'a [SourceId]>, lanes: u16) -> ReadEvents<'a> {
        ReadEvents { events, sources, parts: scatter(events.len(), |place| lane_of(events[place], lanes)) }
    }

    /// More sources than a request names: all are asked for, and those not wanted left out.
    fn named(&self) -> Option<&'a [SourceId]> {
        self.sources.filter(|sources| sources.len() <= BATCH_RECORDS_MAX)
    }

    /// What to ask.
    pub fn requests(&self) -> Round {
        let request = |places: &[usize]| {
            let events = places.iter().map(|place| self.events[*place]).collect();
            Request::GetEvent(GetEvent { events, sources: self.named().map(<[_]>::to_vec) })
        };
        self.parts.iter().map(|(lane, places)| (*lane, request(places))).collect()
    }

    /// The events, in the order in which they were given.
    ///
    /// # Panics
    /// When these are no answers to the requests.
    pub fn answered(&self, answers: Vec<Answer>) -> Vec<FetchedEvent> {
        let mut fetched: Vec<Option<FetchedEvent>> = vec![None; self.events.len()];
        for ((_, places), answer) in self.parts.iter().zip(answers) {
            let Answer::Events(events) = answer else { unexpected(&answer) };
            for (place, mut event) in places.iter().zip(events) {
                if let (Some(sources), None) = (self.sources, self.named()) {
                    event.fragments.retain(|fragment| sources.contains(&fragment.source));
                }
                fetched[*place] = Some(event);
            }
        }
        fetched.into_iter().map(|event| event.expect("each event lies in one lane")).collect()
    }
}

/// Lists accepted events of a stream.
#[derive(Clone, Copy, Debug)]
pub struct ListAccepted {
    max: u32,
}

impl ListAccepted {
    /// To list at most so many.
    pub fn new(max: u32) -> ListAccepted {
        ListAccepted { max: max.min(BATCH_RECORDS_MAX as u32) }
    }

    /// What to ask of a store with so many lanes: for those behind `after`.
    pub fn requests(self, stream: &StreamName, after: Option<EventKey>, lanes: u16) -> Round {
        let request = || Request::Accepted(Accepted { stream: stream.clone(), after, max: self.max });
        (0..lanes).map(|lane| (lane, request())).collect()
    }

    /// The page.
    ///
    /// # Panics
    /// When these are no answers to the requests.
    pub fn answered(self, answers: Vec<Answer>) -> AcceptedPage {
        let replies = answers.into_iter().map(|answer| match answer {
            Answer::Accepted(reply) => reply,
            other => unexpected(&other),
        });
        merge_accepted(replies.collect(), self.max)
    }
}

/// Tells something about each of some events (a decision, a deletion, a release), and tells again what could not be made durable for now.
#[derive(Debug)]
pub struct Telling {
    /// Of each event.
    lanes: Vec<u16>,
    outcomes: Vec<DecideOutcome>,
    left: Vec<usize>,
    /// The places of the events of each request of the round.
    asked: Vec<Vec<usize>>,
    pause: Duration,
    until: Option<Time>,
}

impl Telling {
    /// To tell of events of a store with so many lanes, again until then.
    pub fn new(events: impl Iterator<Item = EventKey>, lanes: u16, until: Option<Time>) -> Telling {
        let lanes: Vec<u16> = events.map(|event| lane_of(event, lanes)).collect();
        let (outcomes, left) = (vec![DecideOutcome::Unavailable; lanes.len()], (0..lanes.len()).collect());
        Telling { lanes, outcomes, left, asked: Vec::new(), pause: RETELL_MIN, until }
    }

    /// The next round; none when there is nothing to tell. `request` makes a request of the first so many of some places.
    pub fn requests(&mut self, request: impl Fn(&[usize]) -> (Request, usize)) -> Round {
        self.asked.clear();
        let mut requests = Vec::new();
        for (lane, part) in scatter(self.left.len(), |index| self.lanes[self.left[index]]) {
            let mut places: Vec<usize> = part.into_iter().map(|index| self.left[index]).collect();
            while !places.is_empty() {
                let (request, taken) = request(&places);
                requests.push((lane, request));
                let behind = places.split_off(taken);
                self.asked.push(std::mem::replace(&mut places, behind));
            }
        }
        requests
    }

    /// The answers to a round; how long to wait before the next one, if there is one.
    ///
    /// # Panics
    /// When these are no answers to the requests.
    pub fn answered(&mut self, now: Time, answers: Vec<Answer>) -> Option<Duration> {
        for (places, answer) in self.asked.drain(..).zip(answers) {
            let Answer::Decided(decided) = answer else { unexpected(&answer) };
            for (place, outcome) in places.into_iter().zip(decided) {
                self.outcomes[place] = outcome;
            }
        }
        let outcomes = &self.outcomes;
        self.left.retain(|place| matches!(outcomes[*place], DecideOutcome::NoSpace | DecideOutcome::Unavailable));
        if self.left.is_empty() || self.until.is_some_and(|until| now + self.pause >= until) {
            return None;
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(RETELL_MAX);
        Some(pause)
    }

    /// What was last answered of each event, in their order.
    pub fn outcomes(self) -> Vec<DecideOutcome> {
        self.outcomes
    }
}

/// Makes the requests of a [`Telling`] that says that `stream` has `events` safely elsewhere.
pub fn release_of<'a>(
    stream: &'a StreamName,
    events: &'a [EventKey],
) -> impl Fn(&[usize]) -> (Request, usize) + use<'a> {
    move |places| {
        let events = places.iter().map(|place| events[*place]).collect();
        (Request::Release(Release { stream: stream.clone(), events }), places.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Vec<EventKey> {
        (0..9).map(|n| EventKey::new(1, n * 100)).collect()
    }

    fn answer(requests: &Round, outcome: impl Fn(EventKey) -> DecideOutcome) -> Vec<Answer> {
        let decided = |(_, request): &(u16, Request)| match request {
            Request::Release(release) => Answer::Decided(release.events.iter().map(|key| outcome(*key)).collect()),
            other => panic!("{other:?}"),
        };
        requests.iter().map(decided).collect()
    }

    #[test]
    fn what_could_not_be_made_durable_is_told_again_and_nothing_else() {
        let (events, stream) = (keys(), "physics".parse().expect("a name"));
        let mut telling = Telling::new(events.iter().copied(), 3, Some(Time(1_000_000_000)));
        let first = telling.requests(release_of(&stream, &events));
        assert!(first.iter().all(|(lane, request)| match request {
            Request::Release(release) => release.events.iter().all(|key| lane_of(*key, 3) == *lane),
            _ => false,
        }));
        let full = |key: EventKey| key.event.0.is_multiple_of(200);
        let pause = telling.answered(
            Time(0),
            answer(&first, |key| match full(key) {
                true => DecideOutcome::NoSpace,
                false => DecideOutcome::Done,
            }),
        );
        assert_eq!(pause, Some(RETELL_MIN));
        let again = telling.requests(release_of(&stream, &events));
        let mut told = Vec::new();
        let pause = telling.answered(Time(0), answer(&again, |_| DecideOutcome::AlreadyDone));
        again.iter().for_each(|(_, request)| match request {
            Request::Release(release) => told.extend(release.events.clone()),
            other => panic!("{other:?}"),
        });
        told.sort_unstable();
        assert_eq!(told, events.iter().copied().filter(|key| full(*key)).collect::<Vec<_>>());
        assert_eq!(pause, None);
        let expected = events.iter().map(|key| match full(*key) {
            true => DecideOutcome::AlreadyDone,
            false => DecideOutcome::Done,
        });
        assert_eq!(telling.outcomes(), expected.collect::<Vec<_>>());
    }

    #[test]
    fn it_ends_at_the_deadline_with_what_was_last_said() {
        let (events, stream) = (keys(), "physics".parse().expect("a name"));
        let mut telling = Telling::new(events.iter().copied(), 1, Some(Time(200_000_000)));
        let mut now = Time(0);
        let mut rounds = 0;
        loop {
            rounds += 1;
            let requests = telling.requests(release_of(&stream, &events));
            match telling.answered(now, answer(&requests, |_| DecideOutcome::NoSpace)) {
                Some(pause) => now = now + pause,
                None => break,
            }
        }
        assert_eq!((rounds, now), (3, Time(150_000_000)));
        assert!(telling.outcomes().iter().all(|outcome| *outcome == DecideOutcome::NoSpace));
    }
}
