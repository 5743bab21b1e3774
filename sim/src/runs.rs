//! A run control with its readout and filter: it declares runs, starts, stops, closes, holds and discards them, in any order, right or wrong, puts events of theirs, decides,
//! releases and deletes them, and looks at what is there. `known.rs` has what must hold.

mod known;

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_client::{Answer, Class, Request, SessionError, SessionEvent};
use forebay_protocol::{
    ChangeRun, DefineStream, Delete, GetEvent, Release, RunList, Runs, StreamList, decide_from_verdicts,
};
use forebay_types::placement::lane_of;
use forebay_types::{
    EventKey, FragmentId, PutOutcome, RunChange, RunId, RunRecord, RunRequest, RunState, SourceId, StreamDefinition,
    StreamName, StreamRequest, StreamVersion, Time, Verdict, crc32c,
};
use serde::Deserialize;

use crate::files::UsesFiles;
use crate::links::Links;
use crate::model::payload;
use crate::random::Random;
use crate::scenario::{EVENT_STEP, Scenario};
use known::{Event, Run, Streams};

/// The first run of the first client: no writer has one of these.
const FIRST_RUN: u32 = 100;
/// Runs of one client at the most.
const RUNS_MAX: u32 = 6;
/// Events of a run at the most.
const EVENTS_MAX: u64 = 400;
/// Between two looks at what lanes know, when nothing else is to be done.
const ASKED_AGAIN: Duration = Duration::from_millis(100);
/// Requests, and puts, that are on their way at once.
const ASKED_MAX: usize = 10;
/// The sources that runs are declared with.
const SOURCES: &str = "0-15,32";

/// What was asked.
enum Asked {
    /// Something that is to be done with a run, under this token.
    Change {
        run: RunId,
        what: RunChange,
        token: u64,
    },
    /// A run is looked at.
    Look(RunId),
    Define {
        prescale: u32,
    },
    LookAtStreams,
    Decide {
        key: EventKey,
        verdict: Verdict,
    },
    /// A release or a deletion; whether the run was held for certain.
    Free {
        key: EventKey,
        was_held: bool,
    },
    /// A read of an event that was over for certain, or not.
    Read {
        key: EventKey,
        was_over: bool,
    },
    /// What a lane knows of runs, and which of these were closed for certain.
    Counts(BTreeMap<RunId, u64>),
}

#[derive(Deserialize)]
struct RunsPage {
    runs: Vec<RunRecord>,
}

#[derive(Deserialize)]
struct StreamsPage {
    streams: Vec<StreamVersion>,
}

pub(crate) struct RunControl {
    links: Links,
    random: Random,
    number: u64,
    next_at: Time,
    pace_micros: u64,
    token: u64,
    runs: BTreeMap<RunId, Run>,
    streams: Streams,
    /// Something of the books is on its way, and nothing else of them is asked.
    is_booking: bool,
    asked: BTreeMap<(usize, u64), Asked>,
    /// Puts on their way, and whether their run was closed for certain when they were asked.
    puts: BTreeMap<FragmentId, bool>,
    /// What each lane said last that it knows of each run: events, and of these over.
    counts: BTreeMap<usize, BTreeMap<RunId, (u64, u64)>>,
    wants_crash: bool,
    ends: bool,
    operations: u64,
}

/// The clients of a scenario that control runs. What they choose moves nothing of what others do.
pub(crate) fn clients(seed: u64, scenario: &Scenario, now: Time) -> Vec<Box<dyn UsesFiles>> {
    if !scenario.runs {
        return Vec::new();
    }
    let mut random = Random::new(seed.rotate_left(37));
    let count = random.within(1..4);
    (0..count).map(|number| Box::new(RunControl::new(number, scenario, random.fork(), now)) as _).collect()
}

impl RunControl {
    fn new(number: u64, scenario: &Scenario, mut random: Random, now: Time) -> RunControl {
        let deadline = Some(random.millis(1000..6000));
        let name = format!("run control {number}");
        let links = Links::new(scenario.lanes, Class::Readout, &name, deadline, random.next(), now);
        let stream: StreamName = format!("prescaled-{number}").parse().expect("a name");
        RunControl {
            links,
            random,
            number,
            next_at: now,
            pace_micros: scenario.pace_micros,
            token: number << 32,
            runs: BTreeMap::new(),
            streams: Streams::new(stream),
            is_booking: false,
            asked: BTreeMap::new(),
            puts: BTreeMap::new(),
            counts: BTreeMap::new(),
            wants_crash: false,
            ends: false,
            operations: 0,
        }
    }

    fn ask(&mut self, now: Time, lane: usize, request: Request, asked: Asked) {
        let number = self.links.lanes[lane].asked().ask(now, request).expect("sessions go on");
        self.asked.insert((lane, number), asked);
    }

    fn ask_event(&mut self, now: Time, key: EventKey, request: Request, asked: Asked) {
        let lane = usize::from(lane_of(key, self.links.lanes.len() as u16));
        self.ask(now, lane, request, asked);
    }

    // ---- books ----

    fn change(&mut self, now: Time, run: RunId, what: RunChange) {
        self.token += 1;
        let token = self.token;
        let known = self.runs.entry(run).or_default();
        known.asked(&what);
        let changes = known.changes();
        let (by, reason) = (token.to_string(), "as it comes".to_owned());
        let request = RunRequest { run, changes, token, by, reason, what: what.clone() };
        self.is_booking = true;
        self.wants_crash |= self.random.per_mille(150);
        self.ask(now, 0, Request::ChangeRun(ChangeRun(request)), Asked::Change { run, what, token });
    }

    fn look(&mut self, now: Time, run: RunId) {
        self.is_booking = true;
        self.ask(now, 0, Request::RunList(RunList { after: Some(RunId(run.0 - 1)), max: 1 }), Asked::Look(run));
    }

    fn define(&mut self, now: Time) {
        self.token += 1;
        self.is_booking = true;
        if self.streams.is_in_doubt {
            let stream = Some(self.streams.name.clone());
            return self.ask(now, 0, Request::StreamList(StreamList { stream }), Asked::LookAtStreams);
        }
        let prescale = self.random.within(1..5) as u32;
        let request = StreamRequest {
            name: self.streams.name.clone(),
            version: self.streams.prescales.len() as u32,
            token: self.token,
            by: String::new(),
            definition: StreamDefinition { prescale, ..StreamDefinition::default() },
        };
        self.ask(now, 0, Request::DefineStream(DefineStream(request)), Asked::Define { prescale });
    }

    /// Something is done with a run, most often what comes next.
    fn book(&mut self, now: Time) {
        let number = self.runs.len() as u32;
        let is_new = number == 0 || number < RUNS_MAX && self.random.per_mille(60);
        if is_new && !self.ends {
            let run = RunId(FIRST_RUN * (self.number as u32 + 1) + number);
            return self.change(now, run, RunChange::Declare { sources: SOURCES.parse().expect("sources") });
        }
        let runs: Vec<RunId> = self.runs.keys().copied().collect();
        let Some(run) = self.random.one_of(&runs).copied() else { return };
        if self.ends {
            return self.end_one(now);
        }
        if self.runs[&run].is_in_doubt() && self.random.per_mille(600) {
            return self.look(now, run);
        }
        let what = match self.random.below(100) {
            0..5 => return self.define(now),
            5..12 => RunChange::Declare { sources: SOURCES.parse().expect("sources") },
            12..30 => RunChange::Start,
            30..45 => self.stop(run),
            45..62 => RunChange::Close { accept_difference: self.random.per_mille(300) },
            62..74 => RunChange::Hold,
            74..82 => RunChange::EndHold,
            82..91 => RunChange::Discard,
            _ => return self.look(now, run),
        };
        self.change(now, run, what);
    }

    fn stop(&mut self, run: RunId) -> RunChange {
        let right = self.runs[&run].durable();
        let events = if self.random.per_mille(800) { Some(right) } else { Some(right + 1) };
        RunChange::Stop { events: events.filter(|_| self.random.per_mille(900)), fragments: Vec::new() }
    }

    /// All comes to its end: each run is discarded, whatever that takes.
    fn end_one(&mut self, now: Time) {
        let left = self.runs.iter().find(|(_, run)| run.state() != Some(RunState::Discarded));
        let Some((run, known)) = left else { return };
        let (run, state, is_held) = (*run, known.state(), known.is_held());
        if known.is_in_doubt() && self.random.per_mille(500) {
            return self.look(now, run);
        }
        let what = match state {
            None => RunChange::Declare { sources: SOURCES.parse().expect("sources") },
            _ if is_held => RunChange::EndHold,
            Some(RunState::Running) => RunChange::Stop { events: None, fragments: Vec::new() },
            Some(_) => RunChange::Discard,
        };
        self.change(now, run, what);
    }

    // ---- events ----

    fn put(&mut self, now: Time) {
        let declared: Vec<RunId> =
            self.runs.iter().filter(|(_, run)| run.takes_events()).map(|(run, _)| *run).collect();
        let Some(run) = self.random.one_of(&declared).copied() else { return };
        let known = self.runs.get_mut(&run).expect("listed just now");
        let event = known.events.len() as u64 * EVENT_STEP;
        if known.events.len() as u64 >= EVENTS_MAX {
            return;
        }
        known.events.insert(event, Event::default());
        let is_closed = known.is_closed();
        let id = EventKey::new(run.0, event).fragment(SourceId(0));
        self.puts.insert(id, is_closed);
        self.hand_over(now, id);
    }

    fn hand_over(&mut self, now: Time, id: FragmentId) {
        let lane = usize::from(lane_of(id.key(), self.links.lanes.len() as u16));
        let bytes = payload(id, 0);
        let session = self.links.lanes[lane].asked();
        session.put(now, id, 1, bytes.as_slice(), crc32c(&bytes)).expect("sessions go on");
    }

    fn take_put_results(&mut self, now: Time) {
        let mut results = Vec::new();
        self.links.lanes.iter_mut().for_each(|link| link.take_put_results(&mut results));
        for result in results {
            self.operations += 1;
            let id = result.id;
            let was_closed = self.puts[&id];
            let run = self.runs.get_mut(&id.run).expect("it was asked");
            let is_over = run.put_answered(id, was_closed, result.outcome);
            if is_over {
                self.puts.remove(&id);
            } else {
                assert!(
                    !matches!(result.outcome, PutOutcome::Conflict | PutOutcome::TooLarge),
                    "{id}: {:?}",
                    result.outcome
                );
                self.hand_over(now, id);
            }
        }
    }

    /// An event of a run, which its filter wants.
    fn one_event(&mut self, is_wanted: impl Fn(&Event) -> bool) -> Option<EventKey> {
        let of = |(run, known): (&RunId, &Run)| {
            let run = *run;
            known
                .events
                .iter()
                .filter(|(_, event)| is_wanted(event))
                .map(move |(event, _)| EventKey::new(run.0, *event))
                .collect()
        };
        let events: Vec<Vec<EventKey>> =
            self.runs.iter().map(of).filter(|events: &Vec<EventKey>| !events.is_empty()).collect();
        let of_run = self.random.one_of(&events)?.clone();
        self.random.one_of(&of_run).copied()
    }

    fn event_mut(&mut self, key: EventKey) -> &mut Event {
        let run = self.runs.get_mut(&key.run).expect("it was asked");
        run.events.get_mut(&key.event.0).expect("it was asked")
    }

    fn use_an_event(&mut self, now: Time) {
        match self.random.below(100) {
            0..45 => {
                let Some(key) = self.one_event(|event| event.is_durable && !event.decision_asked) else { return };
                let accepts = self.random.per_mille(700);
                let verdict = if accepts { Verdict::Accept(vec![self.streams.name.clone()]) } else { Verdict::Reject };
                let prescale = self.runs[&key.run].prescale(&self.streams);
                let event = self.event_mut(key);
                event.decision_asked = true;
                event.prescale = prescale;
                let (decide, _) = decide_from_verdicts([(key, &verdict, false)]).expect("one decision");
                self.ask_event(now, key, Request::Decide(decide), Asked::Decide { key, verdict });
            }
            45..65 => {
                let Some(key) = self.one_event(|event| event.is_kept == Some(true)) else { return };
                let run = self.runs.get_mut(&key.run).expect("it has the event");
                let was_held = run.is_held_for_certain();
                run.free_asked(key.event.0, was_held);
                let stream = self.streams.name.clone();
                let request = if self.random.per_mille(600) {
                    Request::Release(Release { stream, events: vec![key] })
                } else {
                    Request::Delete(Delete { events: vec![key] })
                };
                self.ask_event(now, key, request, Asked::Free { key, was_held });
            }
            65..95 => {
                let Some(key) = self.one_event(|event| event.is_durable) else { return };
                let was_over = self.event_mut(key).is_kept == Some(false);
                let request = Request::GetEvent(GetEvent { events: vec![key], sources: None });
                self.ask_event(now, key, request, Asked::Read { key, was_over });
            }
            _ => self.count(now),
        }
    }

    /// What a lane knows of the runs.
    fn count(&mut self, now: Time) {
        let lane = self.random.below(self.links.lanes.len() as u64) as usize;
        let closed = self.runs.iter().filter_map(|(run, known)| Some((*run, known.counted()?))).collect();
        self.ask(now, lane, Request::Runs(Runs), Asked::Counts(closed));
    }

    // ---- answers ----

    fn take_answers(&mut self) {
        for lane in 0..self.links.lanes.len() {
            while let Some(event) = self.links.lanes[lane].take_event() {
                let (request, answer) = match event {
                    SessionEvent::Answer { request, answer } => (request, Ok(answer)),
                    SessionEvent::Failed { request, error } => (request, Err(error)),
                    SessionEvent::Greeted(_) | SessionEvent::PutsFailed { .. } => continue,
                };
                let asked = self.asked.remove(&(lane, request)).expect("it was asked");
                self.operations += u64::from(answer.is_ok());
                self.take(lane, asked, answer);
            }
        }
    }

    fn take(&mut self, lane: usize, asked: Asked, answer: Result<Answer, SessionError>) {
        match (asked, answer) {
            (Asked::Change { run, what, token }, answer) => {
                self.is_booking = false;
                // What a discard leaves to be deleted is gone within some milliseconds.
                let is_discarded = what == RunChange::Discard && answer.is_ok();
                self.wants_crash |= is_discarded && self.random.per_mille(500);
                let known = self.runs.get_mut(&run).expect("it was asked");
                match answer {
                    Ok(Answer::Status(json)) => known.changed(&what, token, read(&json)),
                    Ok(other) => panic!("{other:?}"),
                    Err(SessionError::Refused { reply, .. }) => known.refused(run, &what, &reply.sentence),
                    Err(_) => known.gave_up(&what),
                }
            }
            (Asked::Look(run), answer) => {
                self.is_booking = false;
                if let Ok(Answer::Status(json)) = answer {
                    let page: RunsPage = read(&json);
                    let found = page.runs.into_iter().find(|found| found.run == run);
                    self.runs.get_mut(&run).expect("it was asked").seen(found);
                }
            }
            (Asked::Define { prescale }, answer) => {
                self.is_booking = false;
                match answer {
                    Ok(Answer::Status(json)) => self.streams.defined(prescale, &read(&json)),
                    _ => self.streams.is_in_doubt = true,
                }
            }
            (Asked::LookAtStreams, answer) => {
                self.is_booking = false;
                if let Ok(Answer::Status(json)) = answer {
                    let page: StreamsPage = read(&json);
                    self.streams.seen(&page.streams);
                }
            }
            (Asked::Decide { key, verdict }, Ok(Answer::Decided(outcomes))) => {
                // It was certain only when that is so still.
                let prescale = self.runs[&key.run].prescale(&self.streams);
                let event = self.event_mut(key);
                event.prescale = event.prescale.filter(|before| prescale == Some(*before));
                event.decided(key, &verdict, outcomes[0]);
            }
            (Asked::Free { key, was_held }, Ok(Answer::Decided(outcomes))) => {
                let run = self.runs.get_mut(&key.run).expect("it was asked");
                run.freed(key, was_held, outcomes[0]);
            }
            (Asked::Read { key, was_over }, Ok(Answer::Events(read))) => {
                self.runs[&key.run].read(key, was_over, read[0].outcome);
            }
            (Asked::Counts(closed), Ok(Answer::Runs(infos))) => {
                let of = infos.iter().map(|info| (info.run, (info.events, info.finished))).collect();
                self.counts.insert(lane, of);
                for (run, counted) in closed {
                    let (events, _) = self.counted(run);
                    assert!(events <= counted, "run {run} was closed with {counted} events, and {events} are known");
                }
            }
            (_, Ok(other)) => panic!("an answer to nothing that was asked: {other:?}"),
            (Asked::Decide { .. } | Asked::Free { .. } | Asked::Read { .. } | Asked::Counts(_), Err(_)) => {}
        }
    }

    /// Events of a run that lanes said last to know, and of these over.
    fn counted(&self, run: RunId) -> (u64, u64) {
        let of = self.counts.values().filter_map(|counts| counts.get(&run));
        of.fold((0, 0), |(events, over), (of_lane, over_there)| (events + of_lane, over + over_there))
    }

    /// Nothing is left of any run, as far as the lanes said.
    fn all_is_gone(&self) -> bool {
        let is_gone = |run: RunId| {
            let (events, over) = self.counted(run);
            events == over
        };
        self.counts.len() == self.links.lanes.len()
            && self.runs.iter().all(|(run, known)| known.state() == Some(RunState::Discarded) && is_gone(*run))
    }
}

fn read<T: for<'a> Deserialize<'a>>(json: &str) -> T {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

impl UsesFiles for RunControl {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    fn next_at(&self) -> Option<Time> {
        let own = (!self.is_done() && self.asked.len() < ASKED_MAX).then_some(self.next_at);
        [own, self.links.next_deadline()].into_iter().flatten().min()
    }

    fn end(&mut self) {
        self.ends = true;
    }

    fn is_done(&self) -> bool {
        self.ends && self.asked.is_empty() && self.puts.is_empty() && self.all_is_gone()
    }

    fn act(&mut self, now: Time) {
        self.wants_crash = false;
        self.take_put_results(now);
        self.take_answers();
        if now < self.next_at || self.asked.len() >= ASKED_MAX || self.is_done() {
            return;
        }
        self.next_at = now + self.random.micros(0..2 * self.pace_micros);
        if !self.is_booking && self.random.per_mille(if self.ends { 700 } else { 150 }) {
            return self.book(now);
        }
        if self.ends {
            // What is left is deleted by the lanes: they are asked again later, so that a run that waits for it in vain is over soon.
            self.next_at = now + ASKED_AGAIN;
            return self.count(now);
        }
        if self.puts.len() < ASKED_MAX && self.random.per_mille(500) { self.put(now) } else { self.use_an_event(now) }
    }

    fn operations(&self) -> u64 {
        self.operations
    }

    fn where_it_is(&self) -> String {
        let states: Vec<String> = self
            .runs
            .iter()
            .map(|(run, known)| format!("{run} {:?} {:?}", known.state(), self.counted(*run)))
            .collect();
        format!("{}, {} puts, {} requests", states.join(", "), self.puts.len(), self.asked.len())
    }

    fn wants_crash(&self) -> bool {
        self.wants_crash
    }
}
