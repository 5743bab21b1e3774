//! Looking on while events arrive: what is asked of each lane, and what its answers come to.
//!
//! [`crate::Client::subscribe`] asks over its sockets; whoever has other connections, as a simulator has, asks over those.

use std::collections::VecDeque;
use std::time::Duration;

use forebay_protocol::{Subscribe, SubscribeReply, ToldEvent};
use forebay_types::{Cursor, EventKey, Fraction, ReadOutcome, RunId, StreamName};

use crate::answer::FetchedEvent;
use crate::client::unexpected;
use crate::session::{Answer, Request};
use crate::spread::Round;

/// Events that are asked of a lane at once: what is told and not read yet becomes old meanwhile.
const EVENTS_AT_ONCE: u32 = 256;

/// Bytes of events that are read at once; one event may have more.
const READ_BYTES: u64 = 8 << 20;

/// What became of the events of a subscription so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionCounts {
    /// Events that were wanted and told.
    pub told: u64,
    /// Of these, those that were read.
    pub read: u64,
    /// Events that were wanted and were over before they could be told, or read.
    pub gone: u64,
    /// Events that were told and could not be read, as their drives do not answer or as they are lost.
    pub unreadable: u64,
    /// Events that a lane forgot before it was asked, of all runs, wanted or not.
    pub dropped: u64,
    /// How often it was seen that the server had been started anew. What happened before that and was not told is not counted.
    pub restarts: u64,
}

/// Somebody who looks on.
#[derive(Debug)]
pub struct Subscription {
    run: Option<RunId>,
    stream: Option<StreamName>,
    fraction: Fraction,
    /// How far it has come in each lane.
    places: Vec<Option<Cursor>>,
    /// Events that were told and that nobody has taken.
    waiting: VecDeque<ToldEvent>,
    /// When it is worth to ask again.
    retry_after: Duration,
    /// The newest start that was seen.
    start: u64,
    counts: SubscriptionCounts,
}

impl Subscription {
    /// One that looks on at a store with so many lanes, from the first answers on: at events of one run or of all, when they are accepted into a stream or
    /// as soon as filters may have them, and of these at so many.
    pub fn new(run: Option<RunId>, stream: Option<StreamName>, fraction: Fraction, lanes: u16) -> Subscription {
        Subscription {
            run,
            stream,
            fraction,
            places: vec![None; usize::from(lanes)],
            waiting: VecDeque::new(),
            retry_after: Duration::ZERO,
            start: 0,
            counts: SubscriptionCounts::default(),
        }
    }

    /// What to ask of each lane.
    pub fn requests(&self) -> Round {
        let request = |after: &Option<Cursor>| Subscribe {
            max: EVENTS_AT_ONCE,
            fraction: self.fraction,
            run: self.run,
            after: *after,
            stream: self.stream.clone(),
        };
        (0..).zip(&self.places).map(|(lane, after)| (lane, Request::Subscribe(request(after)))).collect()
    }

    /// Takes the answers in. When a lane has none nothing is lost: it is asked for the same again.
    ///
    /// # Panics
    /// When these are no answers to the requests.
    pub fn answered(&mut self, answers: Vec<Answer>) {
        let replies = answers.into_iter().map(|answer| match answer {
            Answer::Told(reply) => reply,
            other => unexpected(&other),
        });
        let replies: Vec<SubscribeReply> = replies.collect();
        let retries = replies.iter().map(|reply| reply.retry_after_ms);
        self.retry_after = Duration::from_millis(retries.min().unwrap_or(0).into());
        for (place, reply) in self.places.iter_mut().zip(replies) {
            *place = Some(reply.next);
            if reply.restarted && reply.next.start > self.start {
                self.counts.restarts += 1;
            }
            self.start = self.start.max(reply.next.start);
            self.counts.told += reply.events.len() as u64;
            self.counts.gone += u64::from(reply.gone);
            self.counts.dropped += reply.dropped;
            self.waiting.extend(reply.events);
        }
    }

    /// What became of everything so far.
    pub fn counts(&self) -> SubscriptionCounts {
        self.counts
    }

    /// When it is worth to ask again.
    pub fn retry_after(&self) -> Duration {
        self.retry_after
    }

    /// Whether events wait to be taken.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// All events that wait.
    pub fn take_told(&mut self) -> Vec<ToldEvent> {
        self.waiting.drain(..).collect()
    }

    /// Those of the events that wait which are to be read next.
    pub fn take_for_reading(&mut self) -> Vec<EventKey> {
        let (mut keys, mut bytes) = (Vec::new(), 0u64);
        while let Some(event) = self.waiting.front()
            && (keys.is_empty() || bytes.saturating_add(event.bytes) <= READ_BYTES)
        {
            bytes = bytes.saturating_add(event.bytes);
            keys.push(event.key);
            self.waiting.pop_front();
        }
        keys
    }

    /// So many events had no answer when they were read.
    pub fn was_not_read(&mut self, events: usize) {
        self.counts.unreadable += events as u64;
    }

    /// Those of the events that were read which are there.
    pub fn was_read(&mut self, events: Vec<FetchedEvent>) -> Vec<FetchedEvent> {
        let is_there = |event: &FetchedEvent| {
            match event.outcome {
                ReadOutcome::Found => self.counts.read += 1,
                ReadOutcome::Deleted => self.counts.gone += 1,
                ReadOutcome::NotFound | ReadOutcome::Unavailable | ReadOutcome::Lost => self.counts.unreadable += 1,
            }
            event.outcome == ReadOutcome::Found
        };
        events.into_iter().filter(is_there).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(events: std::ops::Range<u64>, start: u64, sequence: u64, retry_after_ms: u32) -> SubscribeReply {
        let event = |n| ToldEvent { key: EventKey::new(1, n), fragments: 1, bytes: 5 << 20, incomplete: false };
        SubscribeReply {
            events: events.map(event).collect(),
            next: Cursor { start, sequence },
            restarted: false,
            dropped: 0,
            gone: 0,
            retry_after_ms,
        }
    }

    fn subscription(lanes: u16) -> Subscription {
        Subscription::new(Some(RunId(1)), None, Fraction::ALL, lanes)
    }

    fn places(subscription: &Subscription) -> Vec<Option<Cursor>> {
        let requests = subscription.requests().into_iter().enumerate();
        requests
            .map(|(at, (lane, request))| match request {
                Request::Subscribe(subscribe) if usize::from(lane) == at => subscribe.after,
                other => panic!("{other:?} of lane {lane}"),
            })
            .collect()
    }

    #[test]
    fn each_lane_is_asked_behind_its_own_place() {
        let mut subscription = subscription(2);
        assert_eq!(places(&subscription), [None, None]);
        subscription.answered(vec![Answer::Told(reply(0..0, 4, 7, 50)), Answer::Told(reply(0..3, 4, 90, 0))]);
        let place = |sequence| Some(Cursor { start: 4, sequence });
        assert_eq!(places(&subscription), [place(7), place(90)]);
        assert_eq!((subscription.counts().told, subscription.retry_after()), (3, Duration::ZERO));
        // Who had no answer asks for the same again.
        assert_eq!(places(&subscription), [place(7), place(90)]);
    }

    #[test]
    fn what_is_missed_is_counted_and_a_restart_once_for_all_lanes() {
        let mut subscription = subscription(2);
        subscription.answered(vec![Answer::Told(reply(0..0, 4, 0, 50)), Answer::Told(reply(0..0, 4, 0, 50))]);
        let missed = SubscribeReply { restarted: true, dropped: 10, gone: 2, ..reply(0..1, 5, 11, 50) };
        subscription.answered(vec![Answer::Told(missed.clone()), Answer::Told(missed)]);
        let counts = subscription.counts();
        assert_eq!((counts.told, counts.dropped, counts.gone, counts.restarts), (2, 20, 4, 1));
    }

    #[test]
    fn events_are_read_some_at_once_and_those_that_are_over_are_gone() {
        let mut subscription = subscription(1);
        subscription.answered(vec![Answer::Told(reply(0..3, 4, 3, 50))]);
        assert_eq!(subscription.take_for_reading().len(), 1, "5 MiB each");
        assert_eq!(subscription.take_told().len(), 2);
        assert!(!subscription.has_waiting());
        let fetched = |outcome| FetchedEvent {
            key: EventKey::new(1, 1),
            outcome,
            state: forebay_protocol::EventState::Undecided,
            expected: 1,
            stored: 1,
            fragments: Vec::new(),
        };
        let outcomes = [ReadOutcome::Found, ReadOutcome::Deleted, ReadOutcome::Unavailable, ReadOutcome::Found];
        assert_eq!(subscription.was_read(outcomes.map(fetched).to_vec()).len(), 2);
        let counts = subscription.counts();
        assert_eq!((counts.read, counts.gone, counts.unreadable), (2, 1, 1));
    }
}
