//! What records streams: lists its accepted events, reads them, releases them.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_client::{Answer, Class, Request, SessionEvent};
use forebay_protocol::{Accepted, AcceptedReply, GetEvent, Release};
use forebay_types::placement::lane_of;
use forebay_types::{EventKey, StreamName, Time};

use crate::filter::check_event;
use crate::links::Links;
use crate::model::{Model, Moment, Snapshot};
use crate::random::Random;
use crate::scenario::Scenario;

enum State {
    Idle { until: Time },
    Listing { request: u64, must: BTreeSet<EventKey>, moment: Moment },
    Reading { request: u64, events: Vec<(EventKey, Snapshot)> },
    Releasing { request: u64, events: Vec<EventKey> },
}

pub(crate) struct Recorder {
    links: Links,
    streams: Vec<StreamName>,
    /// Which of them each lane is asked for.
    turns: Vec<usize>,
    random: Random,
    states: Vec<State>,
}

impl Recorder {
    pub(crate) fn new(streams: Vec<StreamName>, scenario: &Scenario, mut random: Random, now: Time) -> Recorder {
        let deadline = Some(Duration::from_secs(8));
        let links = Links::new(scenario.lanes, Class::Mover, "recorder", deadline, random.next(), now);
        let states: Vec<State> = (0..scenario.lanes).map(|_| State::Idle { until: now }).collect();
        let turns = vec![0; states.len()];
        Recorder { links, streams, turns, random, states }
    }

    pub(crate) fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    pub(crate) fn next_at(&self) -> Option<Time> {
        let idle = self.states.iter().filter_map(|state| match state {
            State::Idle { until } => Some(*until),
            _ => None,
        });
        idle.chain(self.links.next_deadline()).min()
    }

    pub(crate) fn act(&mut self, now: Time, model: &mut Model) {
        for lane in 0..self.states.len() {
            while let Some(event) = self.links.lanes[lane].take_event() {
                match event {
                    SessionEvent::Answer { request, answer } => self.take(lane, now, request, answer, model),
                    SessionEvent::Failed { .. } => self.rest(lane, now),
                    SessionEvent::Greeted(_) | SessionEvent::PutsFailed { .. } => {}
                }
            }
            if let State::Idle { until } = self.states[lane]
                && until <= now
            {
                self.list(lane, now, model);
            }
        }
    }

    fn rest(&mut self, lane: usize, now: Time) {
        self.states[lane] = State::Idle { until: now + self.random.millis(1..30) };
    }

    /// The one that is worked on.
    fn stream(&self, lane: usize) -> StreamName {
        self.streams[self.turns[lane]].clone()
    }

    fn ask(&mut self, lane: usize, now: Time, request: Request) -> u64 {
        self.links.lanes[lane].asked().ask(now, request).expect("sessions go on")
    }

    fn list(&mut self, lane: usize, now: Time, model: &Model) {
        let max = self.random.within(1..30) as u32;
        self.turns[lane] = (self.turns[lane] + 1) % self.streams.len();
        let stream = self.stream(lane);
        let request = Request::Accepted(Accepted { stream: stream.clone(), after: None, max });
        let lanes = self.states.len() as u16;
        let must = model.must_be_listed(&stream, |key| usize::from(lane_of(key, lanes)) == lane);
        let request = self.ask(lane, now, request);
        self.states[lane] = State::Listing { request, must, moment: model.moment() };
    }

    fn take(&mut self, lane: usize, now: Time, request: u64, answer: Answer, model: &mut Model) {
        let state = std::mem::replace(&mut self.states[lane], State::Idle { until: now });
        match (state, answer) {
            (State::Listing { request: asked, must, moment }, Answer::Accepted(page)) if asked == request => {
                self.listed(lane, now, &must, moment, &page, model);
            }
            (State::Reading { request: asked, events }, Answer::Events(read)) if asked == request => {
                let good = events.iter().zip(&read).filter(|((_, before), event)| check_event(event, before, model));
                let good: Vec<EventKey> = good.map(|((key, _), _)| *key).collect();
                self.release(lane, now, good, model);
            }
            (State::Releasing { request: asked, events }, Answer::Decided(outcomes)) if asked == request => {
                let stream = self.stream(lane);
                for (key, outcome) in events.iter().zip(outcomes) {
                    model.release_answered(*key, &stream, outcome);
                }
                self.rest(lane, now);
            }
            _ => panic!("an answer to nothing that was asked"),
        }
    }

    fn listed(
        &mut self,
        lane: usize,
        now: Time,
        must: &BTreeSet<EventKey>,
        moment: Moment,
        page: &AcceptedReply,
        model: &mut Model,
    ) {
        let stream = self.stream(lane);
        let listed: Vec<EventKey> = page.events.iter().map(|event| event.key).collect();
        assert!(listed.is_sorted(), "the list of {} is not in order", stream);
        let until = if page.more { listed.last().copied() } else { None };
        for key in must.iter().filter(|key| until.is_none_or(|until| **key <= until)) {
            let listed = listed.contains(key) || !model.must_be_listed_still(*key);
            assert!(listed, "{key} is accepted into {} and is not listed", stream);
        }
        for key in &listed {
            model.listed(*key, &stream, moment);
        }
        if listed.is_empty() {
            return self.rest(lane, now);
        }
        let events: Vec<(EventKey, Snapshot)> = listed.iter().map(|key| (*key, model.snapshot(*key))).collect();
        let request = self.ask(lane, now, Request::GetEvent(GetEvent { events: listed, sources: None }));
        self.states[lane] = State::Reading { request, events };
    }

    fn release(&mut self, lane: usize, now: Time, events: Vec<EventKey>, model: &mut Model) {
        if events.is_empty() {
            return self.rest(lane, now);
        }
        let stream = self.stream(lane);
        events.iter().for_each(|key| model.release_asked(*key, &stream));
        let release = Release { stream, events: events.clone() };
        let request = self.ask(lane, now, Request::Release(release));
        self.states[lane] = State::Releasing { request, events };
    }
}
