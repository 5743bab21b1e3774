//! What records streams: the product's mover, with a route for each stream, connections to the pretended server and a directory that forgets and turns what was
//! not let go yet. The process dies at any step and starts again from what its journal has.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_client::spread::{ListAccepted, ReadEvents, Round, Telling, release_of};
use forebay_client::{AcceptedPage, Answer, Class, FetchedEvent, SessionEvent};
use forebay_mover::about::Checked;
use forebay_mover::custody::{Consignment, Policy, SourceAnswer, SourceStep, Step};
use forebay_mover::endpoint::Content;
use forebay_mover::events::{Assembled, EventContent, Events, Examined, Making, assemble};
use forebay_mover::machine::{
    DestinationConfig, DestinationIndex, Done, Job, JobId, Merge, Mover, MoverConfig, RouteConfig, StreamConfig, Task,
};
use forebay_mover::{Name, Sums};
use forebay_types::{DecideOutcome, EventKey, StreamName, Time};

use crate::destination::Destination;
use crate::faults::{Fault, FaultCounts};
use crate::filter::check_event;
use crate::links::Links;
use crate::model::{Listing, Model, Snapshot};
use crate::mover::Journal;
use crate::random::Random;
use crate::scenario::Scenario;
use crate::store::STORE;

/// As long a client tries before the mover is told that there is no answer.
const DEADLINE: Duration = Duration::from_secs(5);
/// A mover that waits for nothing else looks again after so long.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// A person looks after what needs one so often.
const PERSON_EVERY: Duration = Duration::from_millis(500);
/// The number of the journal.
const TOKEN: u64 = 7;

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

/// A job that runs.
struct Work {
    job: Job,
    doing: Doing,
}

enum Doing {
    /// Something in the directory, which is done then.
    Until(Time),
    /// The store is asked.
    Asks(Box<Call>),
}

/// A process that records some streams.
pub(crate) struct Recorder {
    links: Links,
    lanes: u16,
    streams: Vec<StreamName>,
    config: MoverConfig,
    journal: Journal,
    mover: Option<Mover>,
    works: BTreeMap<JobId, Work>,
    directory: Destination,
    random: Random,
    /// It dies in so many steps in a thousand, and how often the power goes with it.
    dies: u64,
    power_goes: u64,
    rots: u64,
    dies_at: Option<Time>,
    /// It is dead, and starts again then.
    starts_at: Option<Time>,
    looks_at: Time,
    person_at: Time,
}

fn route(stream: &StreamName, policy: Policy, random: &mut Random) -> RouteConfig {
    let (bytes, wait) = (random.within(10_000..300_000), random.millis(50..500));
    let order_wait = random.millis(0..300) * u32::from(random.per_mille(700));
    RouteConfig {
        name: stream.to_string(),
        destinations: vec![(DestinationIndex(0), true)],
        policy,
        settle: Duration::ZERO,
        merge: Some(Merge { bytes, wait, name: None }),
        events: Some(StreamConfig { store: STORE, stream: stream.clone(), order_wait, kind: None, defined: None }),
        zstd: None,
        sidecar: true,
        register: false,
        pulls: Vec::new(),
        scan_every: random.millis(2..30),
        priority: 0,
        streams_max: 2,
    }
}

impl Recorder {
    pub(crate) fn new(streams: Vec<StreamName>, scenario: &Scenario, mut random: Random, now: Time) -> Recorder {
        let links = Links::new(scenario.lanes, Class::Mover, "recorder", Some(DEADLINE), random.next(), now);
        let policy = Policy {
            recheck_after: random.millis(0..50) * u32::from(random.per_mille(500)),
            strikes_max: u32::MAX,
            backoff_min: Duration::from_millis(10),
            backoff_max: Duration::from_millis(500),
            ..Policy::default()
        };
        let config = MoverConfig {
            routes: streams.iter().map(|stream| route(stream, policy, &mut random)).collect(),
            destinations: vec![DestinationConfig { address: "files".to_owned(), streams_max: 2, until_tape: false }],
            streams_max: 4,
            once: false,
            patience: Duration::MAX,
            token: TOKEN,
        };
        let (dies, loses) = (scenario.knows(Fault::RecorderDies), scenario.knows(Fault::DestinationLoses));
        Recorder {
            links,
            lanes: scenario.lanes,
            streams,
            config,
            journal: Journal::default(),
            mover: None,
            works: BTreeMap::new(),
            directory: Destination::default(),
            random,
            dies: if dies || loses { 8 } else { 0 },
            power_goes: if loses && dies { 500 } else { 1000 * u64::from(loses) },
            rots: if scenario.knows(Fault::DestinationRots) { 30 } else { 0 },
            dies_at: None,
            starts_at: Some(now),
            looks_at: now,
            person_at: now,
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
        let works = self.works.values().filter_map(|work| match &work.doing {
            Doing::Until(at) => Some(*at),
            Doing::Asks(call) => call.again_at,
        });
        // What is due and may not begin begins when something else ends.
        let due = self.mover.as_ref().and_then(Mover::due).map(|due| due.max(self.looks_at + LOOK_AGAIN));
        works.chain(due).chain(self.dies_at).chain(self.links.next_deadline()).min()
    }

    pub(crate) fn act(&mut self, now: Time, model: &mut Model, counts: &mut FaultCounts) {
        if self.starts_at.is_some_and(|at| at <= now) {
            self.starts_at = None;
            model.tell(|| format!("a recorder starts that goes on with {:?}", self.journal.at_work()));
            self.mover = Some(Mover::new(self.config.clone(), self.journal.at_work(), now));
        }
        self.take_answers(now, model, counts);
        if self.starts_at.is_some() {
            return;
        }
        if self.dies_at.is_some_and(|at| at <= now) {
            return self.die(now, counts);
        }
        self.looks_at = now;
        self.look_after(now);
        let works: Vec<JobId> = self.works.keys().copied().collect();
        for id in works {
            match &self.works[&id].doing {
                Doing::Until(at) if *at <= now => self.is_done_in_the_directory(id, now, counts),
                Doing::Asks(call) if call.again_at.is_some_and(|at| at <= now) => {
                    let round = self.next_round(id);
                    self.ask(id, now, round, model, counts);
                }
                _ => {}
            }
        }
        while self.commit(now, counts) {
            let Some(job) = self.mover.as_mut().expect("it runs").next_job(now) else { return };
            if self.random.per_mille(self.dies) {
                self.dies_at = Some(now + self.random.micros(0..4000));
            }
            self.begin(job, now, model, counts);
        }
    }

    /// What was decided becomes durable; whether it did not die before.
    fn commit(&mut self, now: Time, counts: &mut FaultCounts) -> bool {
        let records = self.mover.as_mut().expect("it runs").take_records();
        if !records.is_empty() && self.random.per_mille(self.dies) {
            self.die(now, counts);
            return false;
        }
        records.iter().for_each(|record| self.journal.write(record));
        true
    }

    /// A person takes away what has the name of a file whose events are to be recorded anew, and has it tried again.
    fn look_after(&mut self, now: Time) {
        if self.person_at > now {
            return;
        }
        self.person_at = now + PERSON_EVERY;
        let mover = self.mover.as_mut().expect("it runs");
        let stuck = mover.consignments().filter(|(_, consignment)| consignment.needs_a_person());
        let stuck: Vec<Consignment> = stuck.map(|(_, consignment)| consignment.clone()).collect();
        for consignment in stuck {
            consignment.names().for_each(|name| self.directory.remove(name));
            mover.retry(consignment.id, now);
        }
    }

    fn begin(&mut self, job: Job, now: Time, model: &mut Model, counts: &mut FaultCounts) {
        let (id, stream) = (job.id, self.streams[job.route.0].clone());
        model.tell(|| format!("the recorder of {stream} begins {:?}", job.task));
        let (what, round) = match &job.task {
            Task::List { after, max } => {
                let list = ListAccepted::new(*max);
                let listing = model.listing(&stream, *after);
                let round = list.requests(&stream, *after, self.lanes);
                (What::List { list, listing }, round)
            }
            Task::Examine { events, .. } => self.fetch(events.clone(), model),
            // Nobody declared runs, or defined streams.
            Task::OfRun { .. } => {
                let done = Done::OfRun(Ok(Box::default()));
                self.mover.as_mut().expect("it runs").done(id, done, now);
                return;
            }
            Task::Destination { step: Step::Send { .. }, sidecar: None, recipe, .. }
            | Task::Source { step: SourceStep::Check, recipe, .. } => {
                self.fetch(recipe.events().expect("a stream has events").keys().collect(), model)
            }
            Task::Source { step: SourceStep::Release, recipe, consignment, .. } => {
                let mover = self.mover.as_ref().expect("it runs");
                let (_, of) = mover.consignments().find(|(_, of)| of.id == *consignment).expect("it is known");
                let (name, events) = (of.name.clone(), recipe.events().expect("a stream has events"));
                let events: Vec<EventKey> = events.keys().collect();
                self.check_recorded(&name, &stream, &events, model);
                self.directory.keep(&name);
                events.iter().for_each(|key| model.release_asked(*key, &stream));
                let mut telling = Telling::new(events.iter().copied(), self.lanes, Some(now + DEADLINE));
                let round = telling.requests(release_of(&stream, &events));
                (What::Release { events, telling }, round)
            }
            Task::Destination { .. } => {
                let doing = Doing::Until(now + self.random.micros(20..2500));
                self.works.insert(id, Work { job, doing });
                return;
            }
            Task::Scan | Task::Register { .. } => unreachable!("routes of streams that nobody registers"),
        };
        let call = Call { what, asked: Vec::new(), answers: Vec::new(), failed: false, again_at: None };
        self.works.insert(id, Work { job, doing: Doing::Asks(Box::new(call)) });
        self.ask(id, now, round, model, counts);
    }

    fn fetch(&self, events: Vec<EventKey>, model: &Model) -> (What, Round) {
        let before = events.iter().map(|key| model.snapshot(*key)).collect();
        let round = ReadEvents::new(&events, None, self.lanes).requests();
        (What::Fetch { events, before }, round)
    }

    /// What is to be let go is in a file that is there, announced, and as it was put.
    fn check_recorded(&self, name: &Name, stream: &StreamName, events: &[EventKey], model: &Model) {
        let recorded = self.directory.announced(name);
        assert!(recorded.iter().map(|(key, _)| key).eq(events), "{name} does not hold what is let go");
        recorded.iter().for_each(|(key, parts)| model.recorded(*key, stream, parts));
    }

    fn is_done_in_the_directory(&mut self, id: JobId, now: Time, counts: &mut FaultCounts) {
        let Work { job, .. } = self.works.remove(&id).expect("it runs");
        let Task::Destination { step, sidecar, .. } = job.task else { unreachable!("it is of the directory") };
        let answer = self.does(&step, sidecar.as_deref().unwrap_or_default().as_bytes(), counts);
        self.done(id, answer, now);
    }

    fn does(&mut self, step: &Step, bytes: &[u8], counts: &mut FaultCounts) -> Done {
        let (answer, is_rotten) = self.directory.does(step, bytes);
        if is_rotten {
            counts.meet(Fault::DestinationRots);
        }
        if let Step::Send { temporary, .. } = step
            && self.random.per_mille(self.rots)
        {
            self.directory.rot(temporary, &mut self.random);
            counts.fire(Fault::DestinationRots);
        }
        Done::Destination(answer)
    }

    fn done(&mut self, id: JobId, done: Done, now: Time) {
        self.mover.as_mut().expect("it runs").done(id, done, now);
    }

    /// The process ends, sometimes with its machine. What ran is done, or half done, or not.
    fn die(&mut self, now: Time, counts: &mut FaultCounts) {
        let power_goes = self.random.per_mille(self.power_goes);
        counts.fire(if power_goes { Fault::DestinationLoses } else { Fault::RecorderDies });
        let unfinished = self.has_unfinished();
        self.mover = None;
        for (_, Work { job, doing }) in std::mem::take(&mut self.works) {
            let (Task::Destination { step, sidecar, .. }, Doing::Until(_)) = (job.task, doing) else { continue };
            let bytes = sidecar.as_deref().unwrap_or_default().as_bytes();
            match (&step, self.random.below(3)) {
                (Step::Send { temporary, .. }, 1) => {
                    self.directory.send_in_part(temporary, bytes, &mut self.random);
                }
                (_, 0) => drop(self.directory.does(&step, bytes)),
                _ => {}
            }
        }
        let lost = power_goes && self.directory.power_cut(&mut self.random);
        if lost {
            counts.meet(Fault::DestinationLoses);
        } else if !power_goes && unfinished {
            counts.meet(Fault::RecorderDies);
        }
        self.links.hang_up(now);
        (self.dies_at, self.starts_at) = (None, Some(now + self.random.millis(1..200)));
    }

    /// Whether something that was begun is to be finished; of events that were deleted meanwhile, too.
    pub(crate) fn has_unfinished(&self) -> bool {
        match &self.mover {
            Some(mover) => mover.consignments().next().is_some(),
            None => !self.journal.at_work().consignments.is_empty(),
        }
    }

    /// Every event that was accepted into a stream is in one complete file of it.
    pub(crate) fn check_all_recorded(&self, model: &Model) {
        for stream in &self.streams {
            let files = self.directory.complete_files(stream);
            let events: Vec<_> = files.iter().flat_map(|file| self.directory.announced(file)).collect();
            events.iter().for_each(|(key, parts)| model.recorded(*key, stream, parts));
            model.all_is_recorded(stream, events.iter().map(|(key, _)| *key));
        }
    }

    // ---- calls ----

    fn call(&mut self, id: JobId) -> &mut Call {
        match &mut self.works.get_mut(&id).expect("it runs").doing {
            Doing::Asks(call) => call,
            Doing::Until(_) => unreachable!("it asks the store"),
        }
    }

    fn ask(&mut self, id: JobId, now: Time, round: Round, model: &mut Model, counts: &mut FaultCounts) {
        let links = &mut self.links;
        let asked: Vec<(usize, u64)> = round
            .into_iter()
            .map(|(lane, request)| {
                let lane = usize::from(lane);
                (lane, links.lanes[lane].asked().ask(now, request).expect("sessions go on"))
            })
            .collect();
        let is_answered = asked.is_empty();
        let call = self.call(id);
        call.answers = asked.iter().map(|_| None).collect();
        call.asked = asked;
        if is_answered {
            self.is_answered(id, now, model, counts);
        }
    }

    fn next_round(&mut self, id: JobId) -> Round {
        let stream = self.streams[self.works[&id].job.route.0].clone();
        let call = self.call(id);
        call.again_at = None;
        let What::Release { events, telling } = &mut call.what else { unreachable!("only what is told is told again") };
        telling.requests(release_of(&stream, events))
    }

    fn take_answers(&mut self, now: Time, model: &mut Model, counts: &mut FaultCounts) {
        for lane in 0..usize::from(self.lanes) {
            while let Some(event) = self.links.lanes[lane].take_event() {
                let (request, answer) = match event {
                    SessionEvent::Answer { request, answer } => (request, Some(answer)),
                    SessionEvent::Failed { request, .. } => (request, None),
                    SessionEvent::Greeted(_) | SessionEvent::PutsFailed { .. } => continue,
                };
                let has_asked = |work: &Work| match &work.doing {
                    Doing::Asks(call) => call.asked.contains(&(lane, request)),
                    Doing::Until(_) => false,
                };
                let id = self.works.iter().find(|(_, work)| has_asked(work)).map(|(id, _)| *id);
                self.answer(
                    id.expect("an answer to something that was asked"),
                    (lane, request),
                    answer,
                    now,
                    model,
                    counts,
                );
            }
        }
    }

    fn answer(
        &mut self,
        id: JobId,
        asked: (usize, u64),
        answer: Option<Answer>,
        now: Time,
        model: &mut Model,
        counts: &mut FaultCounts,
    ) {
        let call = self.call(id);
        let place = call.asked.iter().position(|of| *of == asked).expect("it was asked");
        call.asked[place] = (usize::MAX, 0);
        call.failed |= answer.is_none();
        call.answers[place] = answer;
        if call.asked.iter().all(|(lane, _)| *lane == usize::MAX) {
            self.is_answered(id, now, model, counts);
        }
    }

    /// All requests of the round have come to something.
    fn is_answered(&mut self, id: JobId, now: Time, model: &mut Model, counts: &mut FaultCounts) {
        let Some(Work { job, doing: Doing::Asks(call) }) = self.works.remove(&id) else {
            unreachable!("it asks the store")
        };
        let mut call = *call;
        let stream = &self.streams[job.route.0];
        if call.failed {
            return self.done(id, no_answer(&job.task), now);
        }
        let answers: Vec<Answer> = call.answers.drain(..).flatten().collect();
        let done = match call.what {
            What::List { list, listing } => {
                let page: AcceptedPage = list.answered(answers);
                let keys: Vec<EventKey> = page.events.iter().map(|event| event.key).collect();
                model.listed(stream, &listing, &keys, page.more);
                Done::Listed(Ok(page))
            }
            What::Fetch { events, before } => {
                let read = ReadEvents::new(&events, None, self.lanes).answered(answers);
                for (event, before) in read.iter().zip(&before) {
                    check_event(event, before, model);
                }
                self.was_read(&job.task, read, counts)
            }
            What::Release { events, mut telling } => {
                if let Some(pause) = telling.answered(now, answers) {
                    let again = (What::Release { events, telling }, Some(now + pause));
                    let call = Call {
                        what: again.0,
                        asked: Vec::new(),
                        answers: Vec::new(),
                        failed: false,
                        again_at: again.1,
                    };
                    self.works.insert(id, Work { job, doing: Doing::Asks(Box::new(call)) });
                    return;
                }
                let outcomes = telling.outcomes();
                for (key, outcome) in events.iter().zip(&outcomes) {
                    model.release_answered(*key, stream, *outcome);
                }
                let is_gone =
                    |outcome: &DecideOutcome| matches!(outcome, DecideOutcome::NotFound | DecideOutcome::Conflict);
                let kept = outcomes.iter().find(|outcome| !outcome.is_done() && !is_gone(outcome));
                Done::Source(kept.map_or(SourceAnswer::Released, |outcome| {
                    SourceAnswer::NotNow(format!("the store does not release events: {outcome}"))
                }))
            }
        };
        self.done(id, done, now);
    }

    /// What becomes of events that were read.
    fn was_read(&mut self, task: &Task, read: Vec<FetchedEvent>, counts: &mut FaultCounts) -> Done {
        match task {
            Task::Examine { .. } => Done::Examined(Ok(read.iter().map(examined).collect())),
            Task::Source { recipe, .. } => {
                let events = recipe.events().expect("a stream has events");
                Done::Source(match file_of(events, read) {
                    Ok(bytes) => SourceAnswer::Whole(Checked { sums: Sums::of(&bytes), about: events.about() }),
                    Err(answer) => answer,
                })
            }
            Task::Destination { step, recipe, .. } => {
                match file_of(recipe.events().expect("a stream has events"), read) {
                    Ok(bytes) => self.does(step, &bytes, counts),
                    Err(answer) => Done::Destination(forebay_mover::custody::Answer::Source(answer)),
                }
            }
            Task::List { .. } | Task::OfRun { .. } | Task::Scan | Task::Register { .. } => {
                unreachable!("it reads no events")
            }
        }
    }
}

fn examined(event: &FetchedEvent) -> Examined {
    match assemble(event, &Making::default()) {
        Assembled::Event(event) => Examined::Event {
            taken_unix_us: event.taken_unix_us,
            kind: event.kind,
            numbered: event.numbered,
            incomplete: event.incomplete,
            sums: Sums::of(&event.bytes),
        },
        Assembled::Gone => Examined::Gone,
        Assembled::Unavailable => Examined::Unavailable,
    }
}

/// The file of these events, as it is sent.
fn file_of(events: &Events, read: Vec<FetchedEvent>) -> Result<Vec<u8>, SourceAnswer> {
    let mut read: BTreeMap<EventKey, FetchedEvent> = read.into_iter().map(|event| (event.key, event)).collect();
    let fetch = |keys: &[EventKey]| Ok(keys.iter().map(|key| read.remove(key).expect("it was read")).collect());
    let mut content = EventContent::new(events, fetch);
    let mut file = Vec::new();
    while let Some(block) = content.next_block()? {
        file.extend_from_slice(block);
    }
    Ok(file)
}

/// The store said nothing.
fn no_answer(task: &Task) -> Done {
    let words = "no answer".to_owned();
    match task {
        Task::List { .. } => Done::Listed(Err(words)),
        Task::Examine { .. } => Done::Examined(Err(words)),
        Task::Source { .. } => Done::Source(SourceAnswer::NotNow(words)),
        Task::Destination { .. } => {
            Done::Destination(forebay_mover::custody::Answer::Source(SourceAnswer::NotNow(words)))
        }
        Task::OfRun { .. } | Task::Scan | Task::Register { .. } => unreachable!("they ask nothing of the store"),
    }
}
