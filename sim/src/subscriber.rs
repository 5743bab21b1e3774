//! Somebody who looks on: is told of events as they arrive or are accepted, reads some of them, and now and then looks away for so long that much is
//! forgotten meanwhile. What it is told did happen, and what happened is told or counted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_client::{Answer, Class, Request, SessionEvent, Subscription};
use forebay_protocol::{GetEvent, SubscribeReply};
use forebay_types::placement::lane_of;
use forebay_types::{Cursor, EventKey, Fraction, StreamName, Time};

use crate::filter::{STREAMS, check_event, stream};
use crate::links::Links;
use crate::model::{Model, Moment, Snapshot};
use crate::random::Random;
use crate::scenario::Scenario;

/// As many look on at the most.
pub(crate) const SUBSCRIBERS_MAX: u64 = 3;

/// Reads that are on their way at once.
const READS_MAX: usize = 8;

/// What was told of one lane since its newest start that was seen.
#[derive(Default)]
struct LaneSeen {
    place: Option<Cursor>,
    /// When the subscriber knew of that start.
    since: Time,
    told: BTreeSet<EventKey>,
    /// Events that were told to be gone or dropped.
    missed: u64,
}

/// What was asked of all lanes at once.
struct Round {
    asked: Vec<(usize, u64)>,
    answers: Vec<Option<Answer>>,
    failed: bool,
    moment: Moment,
    /// Of each lane, events that must be told by now, or counted.
    owed: Vec<Vec<EventKey>>,
}

pub(crate) struct Subscriber {
    links: Links,
    random: Random,
    subscription: Subscription,
    stream: Option<StreamName>,
    fraction: Fraction,
    sources: usize,
    lanes: Vec<LaneSeen>,
    round: Option<Round>,
    reads: BTreeMap<(usize, u64), (EventKey, Snapshot)>,
    next_at: Time,
}

impl Subscriber {
    pub(crate) fn new(number: u64, scenario: &Scenario, mut random: Random, now: Time) -> Subscriber {
        let deadline = Some(random.millis(1000..6000));
        let name = format!("subscriber {number}");
        let links = Links::new(scenario.lanes, Class::Monitor, &name, deadline, random.next(), now);
        // The first sees everything: its books can be closed.
        let of_stream = number > 0 && random.per_mille(600);
        let stream = of_stream.then(|| stream(STREAMS[random.below(STREAMS.len() as u64) as usize]));
        let millionths = if number == 0 { 1_000_000 } else { random.within(100_000..1_000_001) as u32 };
        let fraction = Fraction::from_millionths(millionths).expect("a part");
        Subscriber {
            links,
            subscription: Subscription::new(Some(scenario.run()), stream.clone(), fraction, scenario.lanes),
            random,
            stream,
            fraction,
            sources: scenario.sources() as usize,
            lanes: (0..scenario.lanes).map(|_| LaneSeen::default()).collect(),
            round: None,
            reads: BTreeMap::new(),
            next_at: now,
        }
    }

    pub(crate) fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    pub(crate) fn next_at(&self) -> Option<Time> {
        let own = self.round.is_none().then_some(self.next_at);
        [own, self.links.next_deadline()].into_iter().flatten().min()
    }

    pub(crate) fn act(&mut self, now: Time, model: &mut Model) {
        for lane in 0..self.lanes.len() {
            while let Some(event) = self.links.lanes[lane].take_event() {
                match event {
                    SessionEvent::Answer { request, answer } => self.answered(lane, request, Some(answer), model),
                    SessionEvent::Failed { request, .. } => self.answered(lane, request, None, model),
                    SessionEvent::Greeted(_) | SessionEvent::PutsFailed { .. } => {}
                }
            }
        }
        if self.round.as_ref().is_some_and(|round| round.asked.is_empty()) {
            self.end_round(now, model);
        }
        if self.round.is_none() && self.next_at <= now {
            self.ask(now, model);
        }
    }

    fn ask(&mut self, now: Time, model: &Model) {
        let owed = (0..self.lanes.len()).map(|lane| self.owed(lane, model)).collect();
        let requests = self.subscription.requests();
        let answers = requests.iter().map(|_| None).collect();
        let asked = requests.into_iter().map(|(lane, request)| {
            let lane = usize::from(lane);
            (lane, self.links.lanes[lane].asked().ask(now, request).expect("sessions go on"))
        });
        let asked = asked.collect();
        self.round = Some(Round { asked, answers, failed: false, moment: model.moment(), owed });
    }

    /// Events of a lane that must have been told in this start, and were not yet.
    fn owed(&self, lane: usize, model: &Model) -> Vec<EventKey> {
        let seen = &self.lanes[lane];
        if self.stream.is_some() || seen.place.is_none() {
            return Vec::new();
        }
        let lanes = self.lanes.len() as u16;
        let is_wanted = |key: &EventKey| usize::from(lane_of(*key, lanes)) == lane && self.fraction.has(*key);
        let completed = model.completed_since(seen.since, self.sources);
        completed.filter(is_wanted).filter(|key| !seen.told.contains(key)).collect()
    }

    fn answered(&mut self, lane: usize, request: u64, answer: Option<Answer>, model: &mut Model) {
        if let Some((_, before)) = self.reads.remove(&(lane, request)) {
            if let Some(Answer::Events(read)) = answer {
                for event in &read {
                    check_event(event, &before, model);
                }
                self.subscription.was_read(read);
            }
            return;
        }
        let round = self.round.as_mut().expect("it was asked");
        let at = round.asked.iter().position(|asked| *asked == (lane, request)).expect("it was asked");
        round.asked.remove(at);
        round.failed |= answer.is_none();
        round.answers[lane] = answer;
    }

    /// All lanes have answered, or one does not.
    fn end_round(&mut self, now: Time, model: &mut Model) {
        let round = self.round.take().expect("looked at just now");
        self.next_at = now + self.random.micros(100..3000);
        if round.failed {
            // It is asked for the same again.
            return;
        }
        let answers: Vec<Answer> = round.answers.into_iter().flatten().collect();
        for (lane, (answer, owed)) in answers.iter().zip(round.owed).enumerate() {
            let Answer::Told(reply) = answer else { panic!("an answer to something else") };
            self.take(lane, now, reply, round.moment, &owed, model);
        }
        self.subscription.answered(answers);
        let told = self.subscription.take_told();
        for event in told {
            if self.reads.len() < READS_MAX && self.random.per_mille(300) {
                self.read(now, event.key, model);
            }
        }
        self.next_at = now + self.pause();
    }

    /// Mostly it looks as often as it should; sometimes it looks away.
    fn pause(&mut self) -> Duration {
        match self.random.below(100) {
            0..5 => self.random.millis(500..4000),
            5..30 => self.random.millis(50..200),
            _ => self.subscription.retry_after() + self.random.micros(0..2000),
        }
    }

    fn take(
        &mut self,
        lane: usize,
        now: Time,
        reply: &SubscribeReply,
        asked: Moment,
        owed: &[EventKey],
        model: &mut Model,
    ) {
        let seen = &mut self.lanes[lane];
        let same_start = seen.place.is_some_and(|place| place.start == reply.next.start);
        if let Some(place) = seen.place {
            let is_later = (place.start, place.sequence) <= (reply.next.start, reply.next.sequence);
            assert!(is_later, "what happened goes back from {place:?} to {:?}", reply.next);
            assert_eq!(reply.restarted, !same_start, "{place:?}, then {:?}", reply.next);
        }
        if !same_start {
            *seen = LaneSeen { since: now, ..LaneSeen::default() };
        }
        seen.place = Some(reply.next);
        seen.missed += reply.dropped + u64::from(reply.gone);
        for event in &reply.events {
            let key = event.key;
            seen.told.insert(key);
            assert!(self.fraction.has(key), "{key} was told, and is none of {}", self.fraction);
            match &self.stream {
                None => model.told(key, asked, event.incomplete, self.sources),
                Some(stream) => model.told_accepted(key, asked, stream),
            }
        }
        if same_start && reply.retry_after_ms > 0 {
            let untold: Vec<&EventKey> = owed.iter().filter(|key| !seen.told.contains(key)).collect();
            assert!(
                untold.len() as u64 <= seen.missed,
                "{} events became complete and were not told, {} were counted; the first is {:?}",
                untold.len(),
                seen.missed,
                untold.first()
            );
        }
    }

    fn read(&mut self, now: Time, key: EventKey, model: &Model) {
        let lane = usize::from(lane_of(key, self.lanes.len() as u16));
        let request = Request::GetEvent(GetEvent { events: vec![key], sources: None });
        let number = self.links.lanes[lane].asked().ask(now, request).expect("sessions go on");
        self.reads.insert((lane, number), (key, model.snapshot(key)));
    }
}
