//! What records streams: the machines of the product's recorder, one for each stream, with connections to the pretended server and directories
//! that lose on a power cut what was not synced. The process with all of its machines dies at any step and starts again from what it left.

use std::time::Duration;

use forebay_client::spread::{ListAccepted, ReadEvents, Round, Telling, release_of};
use forebay_client::{AcceptedPage, Answer, Class, FetchedEvent, SessionEvent};
use forebay_mover::events::{Making, assemble};
use forebay_recorder::FileName;
use forebay_recorder::journal::Line;
use forebay_recorder::machine::{Fetched, Machine, MachineConfig, ReadBack, Reply, Step};
use forebay_types::{EventKey, StreamName, Time};

use crate::destination::Destination;
use crate::faults::{Fault, FaultCounts};
use crate::filter::check_event;
use crate::links::Links;
use crate::model::{Listing, Model, Snapshot};
use crate::random::Random;
use crate::scenario::Scenario;
use crate::store::STORE;

/// As long a client tries before the recorder is told that there is no answer.
const DEADLINE: Duration = Duration::from_secs(5);

/// What is asked of the store: requests to several lanes.
struct Call {
    what: What,
    /// Lane and number of each request, with the place of its answer.
    asked: Vec<(usize, u64)>,
    answers: Vec<Option<Answer>>,
    /// One of them has no answer.
    failed: bool,
    /// The next round of a telling begins then.
    again_at: Option<Time>,
}

enum What {
    List { list: ListAccepted, listing: Listing },
    Fetch { events: Vec<EventKey>, before: Vec<Snapshot> },
    Release { events: Vec<EventKey>, telling: Telling },
}

/// The recorder of one stream.
struct OfStream {
    stream: StreamName,
    config: MachineConfig,
    directory: Destination,
    machine: Option<Machine>,
    call: Option<Call>,
    /// The bytes of the events fetched last.
    fetched: Vec<Vec<u8>>,
    /// The step under way is over then, or what is waited for.
    until: Time,
    /// The file that was read back last: the one whose events are released.
    file: Option<FileName>,
}

/// A process that records some streams.
pub(crate) struct Recorder {
    links: Links,
    lanes: u16,
    streams: Vec<OfStream>,
    random: Random,
    /// It dies in so many steps in a thousand, and how often the power goes with it.
    dies: u64,
    power_goes: u64,
    rots: u64,
    dies_at: Option<Time>,
    /// It is dead, and starts again then.
    starts_at: Option<Time>,
}

fn config(stream: &StreamName, random: &mut Random) -> MachineConfig {
    MachineConfig {
        stream: stream.clone(),
        store: STORE,
        file_bytes: random.within(10_000..300_000),
        close_after: random.millis(50..500),
        order_wait: random.millis(0..300) * u32::from(random.per_mille(700)),
        poll: random.millis(2..30),
        fetch_bytes: random.within(20_000..200_000),
        once: false,
        patience: Duration::MAX,
        mismatches_max: u32::MAX,
    }
}

impl Recorder {
    pub(crate) fn new(streams: Vec<StreamName>, scenario: &Scenario, mut random: Random, now: Time) -> Recorder {
        let links = Links::new(scenario.lanes, Class::Mover, "recorder", Some(DEADLINE), random.next(), now);
        let of_stream = |stream: StreamName| OfStream {
            config: config(&stream, &mut random),
            stream,
            directory: Destination::default(),
            machine: None,
            call: None,
            fetched: Vec::new(),
            until: now,
            file: None,
        };
        let streams = streams.into_iter().map(of_stream).collect();
        let (dies, loses) = (scenario.knows(Fault::RecorderDies), scenario.knows(Fault::DestinationLoses));
        Recorder {
            links,
            lanes: scenario.lanes,
            streams,
            random,
            dies: if dies || loses { 8 } else { 0 },
            power_goes: if loses && dies { 500 } else { 1000 * u64::from(loses) },
            rots: if scenario.knows(Fault::DestinationRots) { 30 } else { 0 },
            dies_at: None,
            starts_at: Some(now),
        }
    }

    pub(crate) fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    /// From now on nothing happens to it.
    pub(crate) fn calm(&mut self) {
        (self.dies, self.rots, self.dies_at) = (0, 0, None);
    }

    pub(crate) fn next_at(&self) -> Option<Time> {
        if self.starts_at.is_some() {
            return self.starts_at;
        }
        let streams = self.streams.iter().filter_map(|of| match &of.call {
            Some(call) => call.again_at,
            None => Some(of.until),
        });
        streams.chain(self.dies_at).chain(self.links.next_deadline()).min()
    }

    pub(crate) fn act(&mut self, now: Time, model: &mut Model, counts: &mut FaultCounts) {
        if self.starts_at.is_some_and(|at| at <= now) {
            self.starts_at = None;
            self.streams.iter_mut().for_each(|of| of.start(now));
        }
        self.take_answers(now, model);
        if self.starts_at.is_some() {
            return;
        }
        if self.dies_at.is_some_and(|at| at <= now) {
            return self.die(now, counts);
        }
        for place in 0..self.streams.len() {
            let of = &mut self.streams[place];
            if of.call.as_ref().is_some_and(|call| call.again_at.is_some_and(|at| at <= now)) {
                let round = of.next_round();
                self.ask(place, now, round, model);
            }
            if self.streams[place].call.is_none()
                && self.streams[place].until <= now
                && self.step(place, now, model, counts)
            {
                return;
            }
        }
    }

    /// Does the next step of a stream; whether the recorder died in it.
    fn step(&mut self, place: usize, now: Time, model: &mut Model, counts: &mut FaultCounts) -> bool {
        let dies = self.random.per_mille(self.dies);
        let of = &mut self.streams[place];
        let step = of.machine.as_mut().expect("it runs").next(now);
        let round = match &step {
            Step::Wait { until } => {
                of.until = *until;
                return false;
            }
            Step::Finish => panic!("the recorder of {} ended: {:?}", of.stream, of.machine.as_ref().map(Machine::end)),
            Step::List { .. } | Step::Fetch { .. } | Step::Release { .. } => of.call(&step, now, self.lanes, model),
            _ if dies => {
                of.directory.take_in_part(&step, &mut of.fetched, &mut self.random);
                self.die(now, counts);
                return true;
            }
            _ => {
                of.take(&step, now, self.rots, &mut self.random, counts);
                return false;
            }
        };
        self.ask(place, now, round, model);
        self.dies_at = dies.then(|| now + self.random.micros(0..4000));
        false
    }

    fn ask(&mut self, place: usize, now: Time, round: Round, model: &mut Model) {
        let links = &mut self.links;
        let asked: Vec<(usize, u64)> = round
            .into_iter()
            .map(|(lane, request)| {
                let lane = usize::from(lane);
                (lane, links.lanes[lane].asked().ask(now, request).expect("sessions go on"))
            })
            .collect();
        let of = &mut self.streams[place];
        let call = of.call.as_mut().expect("it is a call that asks");
        call.answers = asked.iter().map(|_| None).collect();
        call.asked = asked;
        if call.asked.is_empty() {
            of.is_answered(now, self.lanes, model);
        }
    }

    fn take_answers(&mut self, now: Time, model: &mut Model) {
        for lane in 0..usize::from(self.lanes) {
            while let Some(event) = self.links.lanes[lane].take_event() {
                let (request, answer) = match event {
                    SessionEvent::Answer { request, answer } => (request, Some(answer)),
                    SessionEvent::Failed { request, .. } => (request, None),
                    SessionEvent::Greeted(_) | SessionEvent::PutsFailed { .. } => continue,
                };
                let of = self.streams.iter_mut().find(|of| of.has_asked(lane, request));
                of.expect("an answer to something that was asked")
                    .answer(lane, request, answer, now, self.lanes, model);
            }
        }
    }

    /// The process ends, sometimes with its machine.
    fn die(&mut self, now: Time, counts: &mut FaultCounts) {
        let power_goes = self.random.per_mille(self.power_goes);
        counts.fire(if power_goes { Fault::DestinationLoses } else { Fault::RecorderDies });
        let (mut lost, mut unfinished) = (false, false);
        for of in &mut self.streams {
            (of.machine, of.call) = (None, None);
            of.fetched.clear();
            of.directory.writer_dies(&mut self.random);
            lost |= power_goes && of.directory.power_cut(&mut self.random);
            unfinished |= of.directory.has_unfinished();
        }
        if power_goes && lost {
            counts.meet(Fault::DestinationLoses);
        } else if !power_goes && unfinished {
            counts.meet(Fault::RecorderDies);
        }
        self.links.hang_up(now);
        (self.dies_at, self.starts_at) = (None, Some(now + self.random.millis(1..200)));
    }

    /// Whether something that was begun is to be finished; of events that were deleted meanwhile, too.
    pub(crate) fn has_unfinished(&self) -> bool {
        self.streams.iter().any(|of| of.directory.has_unfinished())
    }

    /// Every event that was accepted into a stream is in one complete file of it.
    pub(crate) fn check_all_recorded(&self, model: &Model) {
        for of in &self.streams {
            let files = of.directory.complete_files();
            let events: Vec<_> = files.iter().flat_map(|file| of.directory.announced(*file)).collect();
            events.iter().for_each(|(key, parts)| model.recorded(*key, &of.stream, parts));
            model.all_is_recorded(&of.stream, events.iter().map(|(key, _)| *key));
        }
    }
}

impl OfStream {
    fn start(&mut self, now: Time) {
        let found = self.directory.open();
        let machine = Machine::new(self.config.clone(), found);
        self.machine = Some(machine.unwrap_or_else(|error| panic!("a start in our own directory: {error}")));
        (self.until, self.file) = (now, None);
    }

    fn complete(&mut self, now: Time, reply: Reply) {
        self.machine.as_mut().expect("it runs").complete(now, reply);
    }

    /// Does a step of the directory, which takes a while.
    fn take(&mut self, step: &Step, now: Time, rots: u64, random: &mut Random, counts: &mut FaultCounts) {
        let reply = self.directory.take(step, &mut self.fetched);
        match (step, &reply) {
            (Step::Sync { file }, _) if random.per_mille(rots) => {
                self.directory.rot(*file, random);
                counts.fire(Fault::DestinationRots);
            }
            (Step::ReadBack { file, .. }, reply) => {
                self.file = Some(*file);
                if matches!(reply, Reply::ReadBack(ReadBack::Missing)) {
                    panic!("{file} was written and announced, and is gone");
                }
            }
            (Step::Journal { line }, _) if matches!(**line, Line::Withdrawn(_)) => counts.meet(Fault::DestinationRots),
            _ => {}
        }
        self.complete(now, reply);
        self.until = now + random.micros(20..2500);
    }

    // ---- calls ----

    fn call(&mut self, step: &Step, now: Time, lanes: u16, model: &mut Model) -> Round {
        let (what, round) = match step {
            Step::List { after, max } => {
                let list = ListAccepted::new(*max);
                let listing = model.listing(&self.stream, *after);
                (What::List { list, listing }, list.requests(&self.stream, *after, lanes))
            }
            Step::Fetch { events } => {
                let events: Vec<EventKey> = events.iter().map(|event| event.key).collect();
                let before = events.iter().map(|key| model.snapshot(*key)).collect();
                let round = ReadEvents::new(&events, None, lanes).requests();
                (What::Fetch { events, before }, round)
            }
            Step::Release { events } => {
                self.check_recorded(events, model);
                events.iter().for_each(|key| model.release_asked(*key, &self.stream));
                let mut telling = Telling::new(events.iter().copied(), lanes, Some(now + DEADLINE));
                let round = telling.requests(release_of(&self.stream, events));
                (What::Release { events: events.clone(), telling }, round)
            }
            _ => unreachable!("no call: {step:?}"),
        };
        self.call = Some(Call { what, asked: Vec::new(), answers: Vec::new(), failed: false, again_at: None });
        round
    }

    /// What is to be released is in the file that was read back, and that file is durable, announced, and as it was put.
    fn check_recorded(&self, events: &[EventKey], model: &Model) {
        let file = self.file.expect("a file is read back before its events are released");
        let recorded = self.directory.announced(file);
        for key in events {
            let found = recorded.iter().find(|(recorded, _)| recorded == key);
            let (_, parts) = found.unwrap_or_else(|| panic!("{key} is released and is not in {file}"));
            model.recorded(*key, &self.stream, parts);
        }
    }

    fn next_round(&mut self) -> Round {
        let call = self.call.as_mut().expect("it is under way");
        call.again_at = None;
        let What::Release { events, telling } = &mut call.what else { unreachable!("only what is told is told again") };
        telling.requests(release_of(&self.stream, events))
    }

    fn has_asked(&self, lane: usize, request: u64) -> bool {
        self.call.as_ref().is_some_and(|call| call.asked.contains(&(lane, request)))
    }

    fn answer(&mut self, lane: usize, request: u64, answer: Option<Answer>, now: Time, lanes: u16, model: &mut Model) {
        let call = self.call.as_mut().expect("it was asked");
        let place = call.asked.iter().position(|asked| *asked == (lane, request)).expect("it was asked");
        call.asked[place] = (usize::MAX, 0);
        call.failed |= answer.is_none();
        call.answers[place] = answer;
        if call.asked.iter().all(|(lane, _)| *lane == usize::MAX) {
            self.is_answered(now, lanes, model);
        }
    }

    /// All requests of the round have come to something.
    fn is_answered(&mut self, now: Time, lanes: u16, model: &mut Model) {
        let mut call = self.call.take().expect("it was asked");
        if call.failed {
            return self.complete(now, Reply::Busy { message: "no answer".to_owned() });
        }
        let answers: Vec<Answer> = call.answers.drain(..).flatten().collect();
        let reply = match &mut call.what {
            What::List { list, listing } => self.listed(list.answered(answers), listing, model),
            What::Fetch { events, before } => {
                let read = ReadEvents::new(events, None, lanes).answered(answers);
                self.fetched(&read, before, model)
            }
            What::Release { telling, .. } => {
                if let Some(pause) = telling.answered(now, answers) {
                    call.again_at = Some(now + pause);
                    self.call = Some(call);
                    return;
                }
                let What::Release { events, telling } = call.what else { unreachable!("looked at just now") };
                let outcomes = telling.outcomes();
                for (key, outcome) in events.iter().zip(&outcomes) {
                    model.release_answered(*key, &self.stream, *outcome);
                }
                Reply::Released(outcomes)
            }
        };
        self.complete(now, reply);
        self.until = now;
    }

    fn listed(&self, page: AcceptedPage, listing: &Listing, model: &Model) -> Reply {
        let keys: Vec<EventKey> = page.events.iter().map(|event| event.key).collect();
        model.listed(&self.stream, listing, &keys, page.more);
        Reply::Page(page)
    }

    fn fetched(&mut self, read: &[FetchedEvent], before: &[Snapshot], model: &mut Model) -> Reply {
        let mut fetched = Vec::new();
        self.fetched.clear();
        for (event, before) in read.iter().zip(before) {
            check_event(event, before, model);
            let assembled = assemble(event, &Making::default());
            fetched.push(Fetched::from(&assembled));
            self.fetched.push(assembled.into_bytes());
        }
        Reply::Fetched(fetched)
    }
}
