//! An event filter: leases events, reads them whole, compares them with what was written, decides. The choice depends on the event alone.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_client::{Answer, Class, FetchedEvent, Request, SessionEvent};
use forebay_protocol::{Decide, GetEvent, Lease, LeaseReply, decide_from_verdicts};
use forebay_types::{DecideOutcome, EventKey, ReadOutcome, RunId, SourceId, StreamName, Time, Verdict};

use crate::faults::{Fault, FaultCounts};
use crate::links::Links;
use crate::model::{LeaseTime, Model, Moment, Snapshot};
use crate::random::Random;
use crate::scenario::{EVENT_STEP, Scenario};

pub(crate) const STREAMS: [&str; 9] =
    ["physics", "calibration", "express", "cosmics", "minimum-bias", "jets", "muons", "delayed", "luminosity"];

/// One stream more is used after so many events.
const EVENTS_PER_STREAM: u64 = 30;

pub(crate) fn stream(name: &str) -> StreamName {
    name.parse().expect("a name")
}

/// What every filter decides on an event.
fn verdict(key: EventKey) -> Verdict {
    let mut random = Random::new(key.event.0 ^ 0x5EED);
    if random.per_mille(600) {
        return Verdict::Reject;
    }
    let known = (key.event.0 / EVENT_STEP / EVENTS_PER_STREAM + 1).min(STREAMS.len() as u64);
    let newest = random.within(0..known.min(3)) + known - known.min(3);
    let chosen = |n: u64, random: &mut Random| n == newest && random.per_mille(700) || random.per_mille(1000 / known);
    let streams: Vec<StreamName> =
        (0..known).filter(|n| chosen(*n, &mut random)).map(|n| stream(STREAMS[n as usize])).collect();
    if streams.is_empty() { Verdict::Reject } else { Verdict::Accept(streams) }
}

/// The server as its clients can know it: which process, if any, and its clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerTime {
    pub(crate) process: Option<u64>,
    pub(crate) clock: Time,
}

enum State {
    Idle { until: Time },
    Leasing { request: u64, asked: ServerTime, moment: Moment },
    Reading { request: u64, events: Vec<(EventKey, Snapshot)> },
    Deciding { request: u64, events: Vec<(EventKey, Snapshot)> },
}

pub(crate) struct Filter {
    links: Links,
    number: u64,
    random: Random,
    lease: Duration,
    states: Vec<State>,
    silent: bool,
    /// Of other runs somebody else decides.
    run: Option<RunId>,
}

impl Filter {
    pub(crate) fn new(number: usize, scenario: &Scenario, mut random: Random, now: Time) -> Filter {
        let name = format!("filter {number}");
        let links = Links::new(scenario.lanes, Class::Filter, &name, Some(Duration::from_secs(8)), random.next(), now);
        Filter {
            links,
            number: number as u64,
            random,
            lease: scenario.lease,
            states: (0..scenario.lanes).map(|_| State::Idle { until: now }).collect(),
            silent: scenario.knows(Fault::SilentFilter),
            run: scenario.runs.then(|| scenario.run()),
        }
    }

    pub(crate) fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    pub(crate) fn calm(&mut self) {
        self.silent = false;
    }

    pub(crate) fn next_at(&self) -> Option<Time> {
        let idle = self.states.iter().filter_map(|state| match state {
            State::Idle { until } => Some(*until),
            _ => None,
        });
        idle.chain(self.links.next_deadline()).min()
    }

    pub(crate) fn act(&mut self, now: Time, server: ServerTime, model: &mut Model, counts: &mut FaultCounts) {
        for lane in 0..self.states.len() {
            while let Some(event) = self.links.lanes[lane].take_event() {
                self.take(lane, now, server, event, model, counts);
            }
            if let State::Idle { until } = self.states[lane]
                && until <= now
            {
                self.ask_for_events(lane, now, server, model);
            }
        }
    }

    fn ask_for_events(&mut self, lane: usize, now: Time, server: ServerTime, model: &Model) {
        let lease = Lease {
            max_events: self.random.within(1..20) as u32,
            duration_ms: self.lease.as_millis() as u32,
            filter: self.number,
            run: self.run,
        };
        let request = self.ask(lane, now, Request::Lease(lease));
        self.states[lane] = State::Leasing { request, asked: server, moment: model.moment() };
    }

    fn ask(&mut self, lane: usize, now: Time, request: Request) -> u64 {
        self.links.lanes[lane].asked().ask(now, request).expect("sessions go on")
    }

    fn rest(&mut self, lane: usize, now: Time, millis: std::ops::Range<u64>) {
        self.states[lane] = State::Idle { until: now + self.random.millis(millis) };
    }

    fn take(
        &mut self,
        lane: usize,
        now: Time,
        server: ServerTime,
        event: SessionEvent,
        model: &mut Model,
        counts: &mut FaultCounts,
    ) {
        let SessionEvent::Answer { request, answer } = event else {
            if matches!(event, SessionEvent::Failed { .. }) {
                self.rest(lane, now, 1..50);
            }
            return;
        };
        let state = std::mem::replace(&mut self.states[lane], State::Idle { until: now });
        match (state, answer) {
            (State::Leasing { request: asked_for, asked, moment }, Answer::Lease(reply)) if asked_for == request => {
                self.leased(lane, now, (asked, server), moment, &reply, model, counts);
            }
            (State::Reading { request: asked_for, events }, Answer::Events(read)) if asked_for == request => {
                self.read(lane, now, events, &read, model);
            }
            (State::Deciding { request: asked_for, events }, Answer::Decided(outcomes)) if asked_for == request => {
                self.decided(lane, now, &events, &outcomes, model);
            }
            _ => panic!("an answer to nothing that was asked"),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "what is known of a lease, and where it goes")]
    fn leased(
        &mut self,
        lane: usize,
        now: Time,
        (asked, received): (ServerTime, ServerTime),
        moment: Moment,
        reply: &LeaseReply,
        model: &mut Model,
        counts: &mut FaultCounts,
    ) {
        for event in &reply.events {
            // What arrives when its process is gone says nothing of the leases of another one.
            if let Some(process) = asked.process.filter(|_| asked.process == received.process) {
                let lease = LeaseTime { process, asked: asked.clock, received: received.clock, duration: self.lease };
                model.leased(event.key, moment, lease);
            }
        }
        if reply.events.is_empty() {
            return self.rest(lane, now, 1..30);
        }
        if self.silent && self.random.per_mille(30) {
            counts.fire_and_meet(Fault::SilentFilter);
            return self.rest(lane, now, 100..6000);
        }
        let events: Vec<(EventKey, Snapshot)> =
            reply.events.iter().map(|event| (event.key, model.snapshot(event.key))).collect();
        let wanted = GetEvent { events: events.iter().map(|(key, _)| *key).collect(), sources: None };
        let request = self.ask(lane, now, Request::GetEvent(wanted));
        self.states[lane] = State::Reading { request, events };
    }

    fn read(
        &mut self,
        lane: usize,
        now: Time,
        events: Vec<(EventKey, Snapshot)>,
        read: &[FetchedEvent],
        model: &mut Model,
    ) {
        let mut good = Vec::new();
        for ((key, before), event) in events.into_iter().zip(read) {
            assert_eq!(key, event.key, "answers come in the order of what was asked");
            if check_event(event, &before, model) {
                good.push((key, verdict(key)));
            }
        }
        if good.is_empty() {
            return self.rest(lane, now, 1..30);
        }
        let decisions = good.iter().map(|(key, verdict)| (*key, verdict, false));
        let (decide, taken): (Decide, usize) = decide_from_verdicts(decisions).expect("verdicts name streams");
        assert_eq!(taken, good.len(), "a few events fit a batch");
        let events = good.iter().map(|(key, _)| (*key, model.snapshot(*key))).collect();
        good.iter().for_each(|(key, verdict)| model.decision_asked(*key, verdict));
        let request = self.ask(lane, now, Request::Decide(decide));
        self.states[lane] = State::Deciding { request, events };
    }

    fn decided(
        &mut self,
        lane: usize,
        now: Time,
        events: &[(EventKey, Snapshot)],
        outcomes: &[DecideOutcome],
        model: &mut Model,
    ) {
        for ((key, before), outcome) in events.iter().zip(outcomes) {
            model.decision_answered(*key, &verdict(*key), before, *outcome);
        }
        self.rest(lane, now, 0..5);
    }
}

/// Compares an event that was read; whether all of it that is there could be read.
pub(crate) fn check_event(event: &FetchedEvent, before: &Snapshot, model: &mut Model) -> bool {
    let there: BTreeSet<SourceId> = event.fragments.iter().map(|fragment| fragment.source).collect();
    model.event_read(event.key, before, event.outcome, &there);
    for fragment in &event.fragments {
        model.read(event.key.fragment(fragment.source), before, fragment.outcome, &fragment.payload);
    }
    event.outcome == ReadOutcome::Found && event.fragments.iter().all(|fragment| fragment.outcome == ReadOutcome::Found)
}
