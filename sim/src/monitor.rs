//! Someone who reads what they like, deletes now and then, and sometimes puts what does not belong there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_client::{Answer, Class, Request, SessionEvent};
use forebay_protocol::{Delete, Get, GetEvent, Trace};
use forebay_types::placement::lane_of;
use forebay_types::{EventKey, FragmentId, ReadOutcome, RunId, SourceId, Time, Verdict, crc32c};

use crate::faults::{Fault, FaultCounts};
use crate::filter::check_event;
use crate::links::Links;
use crate::model::{Model, Moment, Snapshot, payload};
use crate::random::Random;
use crate::scenario::{EVENT_STEP, Scenario};

/// So much is asked at once.
const ASKED_MAX: usize = 20;

/// Fragments in one request.
const IDS_AT_ONCE: usize = 16;

/// A content that does not belong to the id.
const OTHER: u8 = 1;

enum Asked {
    Fragments(Vec<(FragmentId, Snapshot)>),
    Events(Vec<(EventKey, Snapshot)>),
    Delete(EventKey, Snapshot),
    Trace(EventKey, Snapshot, Moment),
}

pub(crate) struct Monitor {
    links: Links,
    random: Random,
    sources: u32,
    expected: u16,
    next_at: Time,
    run: RunId,
    asked: BTreeMap<(usize, u64), Asked>,
    puts: BTreeMap<FragmentId, Snapshot>,
    other_content: bool,
    pub(crate) deletes: bool,
    /// What is deleted while reads of it take their time, and until when they do.
    emptied: Option<(BTreeSet<EventKey>, Time)>,
}

impl Monitor {
    pub(crate) fn new(scenario: &Scenario, mut random: Random, now: Time) -> Monitor {
        let deadline = Some(Duration::from_secs(6));
        Monitor {
            links: Links::new(scenario.lanes, Class::Monitor, "monitor", deadline, random.next(), now),
            random,
            sources: scenario.sources(),
            expected: scenario.sources() as u16,
            next_at: now,
            run: scenario.run(),
            asked: BTreeMap::new(),
            puts: BTreeMap::new(),
            other_content: scenario.knows(Fault::OtherContent),
            deletes: true,
            emptied: None,
        }
    }

    pub(crate) fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    pub(crate) fn calm(&mut self) {
        (self.other_content, self.deletes) = (false, false);
    }

    pub(crate) fn next_at(&self) -> Option<Time> {
        [Some(self.next_at), self.links.next_deadline()].into_iter().flatten().min()
    }

    pub(crate) fn act(&mut self, now: Time, newest: u64, model: &mut Model, counts: &mut FaultCounts) {
        self.take_answers(now, model, counts);
        if now < self.next_at {
            return;
        }
        self.next_at = now + self.random.micros(100..6000);
        if self.asked.len() > ASKED_MAX {
            return;
        }
        let key = self.some_key(newest);
        let lane = usize::from(lane_of(key, self.links.lanes.len() as u16));
        match self.random.below(100) {
            0..55 => self.get(lane, now, key, model),
            // What is read is deleted meanwhile.
            55..60 => {
                self.get(lane, now, key, model);
                if self.deletes {
                    self.delete(lane, now, key, model);
                }
            }
            60..90 => {
                let before = model.snapshot(key);
                self.ask(lane, now, Request::GetEvent(GetEvent { events: vec![key], sources: None }), || {
                    Asked::Events(vec![(key, before)])
                });
            }
            90..93 if self.deletes => self.delete(lane, now, key, model),
            93..96 if self.other_content => {
                counts.fire_and_meet(Fault::OtherContent);
                self.put_other(lane, now, key, model);
            }
            _ => {
                let (before, moment) = (model.snapshot(key), model.moment());
                self.ask(lane, now, Request::Trace(Trace { key }), || Asked::Trace(key, before, moment));
            }
        }
    }

    fn some_key(&mut self, newest: u64) -> EventKey {
        let back = if self.random.per_mille(500) { self.random.below(20) } else { self.random.below(newest + 1) };
        EventKey::new(self.run.0, newest.saturating_sub(back) * EVENT_STEP + u64::from(self.random.per_mille(20)))
    }

    fn ask(&mut self, lane: usize, now: Time, request: Request, asked: impl FnOnce() -> Asked) {
        let number = self.links.lanes[lane].asked().ask(now, request).expect("sessions go on");
        self.asked.insert((lane, number), asked());
    }

    fn get(&mut self, lane: usize, now: Time, key: EventKey, model: &Model) {
        let count = self.random.within(1..4);
        let sources = u64::from(self.sources) + 1;
        let ids: Vec<FragmentId> =
            (0..count).map(|_| key.fragment(SourceId(self.random.below(sources) as u32))).collect();
        let known = ids.iter().map(|id| (*id, model.snapshot(id.key()))).collect();
        self.ask(lane, now, Request::Get(Get { ids }), || Asked::Fragments(known));
    }

    fn delete(&mut self, lane: usize, now: Time, key: EventKey, model: &mut Model) {
        let before = model.snapshot(key);
        model.decision_asked(key, &Verdict::Reject);
        self.ask(lane, now, Request::Delete(Delete { events: vec![key] }), || Asked::Delete(key, before));
    }

    /// Reads these fragments, of one lane, and deletes their events at once.
    pub(crate) fn read_and_delete(
        &mut self,
        now: Time,
        until: Time,
        fragments: Vec<FragmentId>,
        keys: &[EventKey],
        model: &mut Model,
    ) {
        let lane = usize::from(lane_of(keys[0], self.links.lanes.len() as u16));
        for ids in fragments.chunks(IDS_AT_ONCE) {
            let known = ids.iter().map(|id| (*id, model.snapshot(id.key()))).collect();
            self.ask(lane, now, Request::Get(Get { ids: ids.to_vec() }), || Asked::Fragments(known));
        }
        keys.iter().for_each(|key| self.delete(lane, now, *key, model));
        self.emptied = Some((keys.iter().copied().collect(), until));
    }

    fn put_other(&mut self, lane: usize, now: Time, key: EventKey, model: &mut Model) {
        let id = key.fragment(SourceId(self.random.below(u64::from(self.sources)) as u32));
        if self.puts.contains_key(&id) {
            return;
        }
        self.puts.insert(id, model.snapshot(key));
        model.put_asked(now, id, OTHER);
        let bytes = payload(id, OTHER);
        let session = self.links.lanes[lane].asked();
        session.put(now, id, self.expected, bytes.as_slice(), crc32c(&bytes)).expect("sessions go on");
    }

    fn take_answers(&mut self, now: Time, model: &mut Model, counts: &mut FaultCounts) {
        let mut results = Vec::new();
        for lane in 0..self.links.lanes.len() {
            while let Some(event) = self.links.lanes[lane].take_event() {
                match event {
                    SessionEvent::Answer { request, answer } => {
                        let asked = self.asked.remove(&(lane, request)).expect("it was asked");
                        if let (Asked::Delete(key, _), Some((emptied, until))) = (&asked, &mut self.emptied)
                            && emptied.remove(key)
                            && emptied.is_empty()
                            && now < *until
                        {
                            counts.meet(Fault::EmptiedDuringRead);
                        }
                        take_answer(asked, answer, model);
                    }
                    SessionEvent::Failed { request, .. } => drop(self.asked.remove(&(lane, request))),
                    SessionEvent::Greeted(_) | SessionEvent::PutsFailed { .. } => {}
                }
            }
            self.links.lanes[lane].take_put_results(&mut results);
        }
        for result in results {
            let before = self.puts.remove(&result.id).expect("it was put");
            model.put_answered(result.id, OTHER, &before, result.outcome);
        }
    }
}

fn take_answer(asked: Asked, answer: Answer, model: &mut Model) {
    match (asked, answer) {
        (Asked::Fragments(ids), Answer::Fragments(found)) => {
            for ((id, before), (outcome, bytes)) in ids.iter().zip(found) {
                model.read(*id, before, outcome, &bytes);
            }
        }
        (Asked::Events(events), Answer::Events(read)) => {
            for ((_, before), event) in events.iter().zip(&read) {
                let whole = check_event(event, before, model);
                assert!(!whole || event.outcome == ReadOutcome::Found);
            }
        }
        (Asked::Delete(key, before), Answer::Decided(outcomes)) => {
            model.decision_answered(key, &Verdict::Reject, &before, outcomes[0]);
        }
        (Asked::Trace(key, before, moment), Answer::Status(json)) => {
            let trace = serde_json::from_str(&json).expect("a trace is JSON");
            model.traced(key, &before, moment, &trace);
        }
        _ => panic!("an answer to something else"),
    }
}
