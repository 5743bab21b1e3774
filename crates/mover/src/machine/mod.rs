//! All routes of a mover as one machine: it decides what is moved, in which order, and when it is over.
//!
//! The driver, again and again: writes [`Mover::take_records`] to the journal, durably; starts each [`Mover::next_job`]; tells [`Mover::done`] of those that
//! ended; waits until one does, or until [`Mover::due`]. Jobs run at the same time, never two of one delivery. A driver that is killed starts with a
//! machine made of what the journal has then; so there is one way to go on after trouble, and the tests take it between any two steps.

mod config;
mod event_files;
mod events;
mod flow;
mod merge;
mod plan;
mod planning;
mod route;
mod survey;
mod terms;

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_client::AcceptedPage;
use forebay_types::{EventKey, RunId, Time};

use crate::custody::{
    Answer, Change, Changed, Consignment, ConsignmentId, Failure, Policy, Series, SourceAnswer, SourceStep, Stage,
    Step, What,
};
use crate::events::{Examined, Making, OfRun};
use crate::name::Name;
use crate::planted::{Planted, planted};
use crate::recipe::Recipe;
use crate::sidecar;
use crate::sums::Sums;

pub use config::{DestinationConfig, DestinationIndex, MoverConfig, RouteConfig, RouteIndex};
pub use events::StreamConfig;
use flow::{Flow, Key, Place, Weight};
use merge::Numbering;
pub use merge::{Merge, Template, TemplateError};
pub use plan::{Kind, LeftAlone, Scanned, Seen};
use planning::names_of;
use route::Beginning;
pub use survey::{Amount, DestinationSurvey, PlaceSurvey, RouteSurvey, Survey};
pub use terms::Defined;

/// What must be durable before the next job is begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A new consignment.
    Planned {
        /// Its number.
        id: ConsignmentId,
        /// Of which route.
        route: RouteIndex,
        /// Its name.
        name: Name,
        /// What it is made of, and how.
        recipe: Arc<Recipe>,
        /// Of which series its name is, if it is of one. No later name of that has a number below.
        series: Option<Series>,
        /// Stands for the settings of its route that decide about its bytes.
        settings: u64,
        /// Added to that of its route.
        priority: u16,
        /// Its destinations, what goes there, and whether they are required.
        deliveries: Vec<(String, What, bool)>,
    },
    /// A consignment has another name of its series. What changes of its deliveries with that is written together with this.
    Renamed {
        /// Its number.
        id: ConsignmentId,
        /// Of which route.
        route: RouteIndex,
        /// Its new name.
        name: Name,
        /// The series, with the new number.
        series: Series,
        /// Why, in words for people.
        why: String,
    },
    /// What changed of one.
    Change(Change),
}

/// The number of a job; one that was not done when a mover ended is never done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// Something that a driver does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its number.
    pub id: JobId,
    /// Of which route.
    pub route: RouteIndex,
    /// What is to be done.
    pub task: Task,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Look at what the source has: [`Done::Scanned`].
    Scan,
    /// Ask the store for accepted events: [`Done::Listed`].
    List {
        /// Behind this one.
        after: Option<EventKey>,
        /// At most so many.
        max: u32,
    },
    /// Read events, and say what becomes of each: [`Done::Examined`].
    Examine {
        /// Which, of one run.
        events: Vec<EventKey>,
        /// How they are put together.
        making: Making,
    },
    /// Ask the store for what it has of a run and of the stream in it: [`Done::OfRun`].
    OfRun {
        /// Which.
        run: RunId,
    },
    /// Something at the source: [`Done::Source`].
    Source {
        /// For which consignment.
        consignment: ConsignmentId,
        /// What.
        step: SourceStep,
        /// What it is made of, and how.
        recipe: Arc<Recipe>,
        /// What they come to, once they were checked.
        content: Option<Sums>,
    },
    /// Something at a destination: [`Done::Destination`].
    Destination {
        /// For which consignment.
        consignment: ConsignmentId,
        /// Where.
        destination: DestinationIndex,
        /// What.
        step: Step,
        /// What the file is made of, and how.
        recipe: Arc<Recipe>,
        /// What it comes to.
        content: Option<Sums>,
        /// What is sent in its place, where that is its sidecar.
        sidecar: Option<Arc<str>>,
    },
    /// To be registered: [`Done::Registered`].
    Register {
        /// Which consignment.
        consignment: ConsignmentId,
        /// The key by which a second time is known for what it is.
        key: String,
        /// What is registered: the text of its sidecar.
        text: Arc<str>,
    },
}

/// How a job went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// What the source has, or why nobody can tell.
    Scanned(Result<Scanned, String>),
    /// What is accepted, or why nobody can tell.
    Listed(Result<AcceptedPage, String>),
    /// What the store has of a run, or why nobody can tell.
    OfRun(Result<Box<OfRun>, String>),
    /// What became of events, in their order, or why none was read.
    Examined(Result<Vec<Examined>, String>),
    /// The answer of the source.
    Source(SourceAnswer),
    /// The answer of a destination.
    Destination(Answer),
    /// Whether it is registered.
    Registered(Result<(), Failure>),
}

/// How a mover ended that was to move once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Consignments that need a person.
    pub quarantined: usize,
    /// Those that a person holds.
    pub held: usize,
    /// Files that are left alone though they hold data: their names cannot be given at a destination.
    pub left_alone: usize,
    /// Files that wait for another one of their name, at one of their destinations, to be over.
    pub blocked: usize,
    /// Those that were given up for now, and routes whose source gave no answer.
    pub failing: usize,
}

/// What runs.
#[derive(Debug)]
enum Running {
    /// At what a route begins with.
    Look(RouteIndex),
    Of(Key, Option<Step>),
}

/// What a journal kept for a start.
#[derive(Debug, Default)]
pub struct Kept {
    /// The consignments that are not over.
    pub consignments: Vec<(RouteIndex, Consignment)>,
    /// The series of names, and the first number that none of each has.
    pub series: Vec<(String, u64)>,
    /// The first number that no consignment had.
    pub next_consignment: u64,
    /// How many events of a run are, or were, in consignments of a route.
    pub events: Vec<(RouteIndex, RunId, u64)>,
}

/// All routes as one machine.
#[derive(Debug)]
pub struct Mover {
    config: MoverConfig,
    beginnings: Vec<Beginning>,
    consignments: BTreeMap<ConsignmentId, (RouteIndex, Consignment)>,
    /// What has which name at which destination: never two.
    names: BTreeMap<(String, Name), ConsignmentId>,
    numbering: Numbering,
    flow: Flow,
    running: BTreeMap<JobId, Running>,
    records: Vec<Record>,
    next_consignment: u64,
    next_job: u64,
}

impl Mover {
    /// A mover that goes on with what the journal kept. Each delivery has its destination among those of the configuration.
    pub fn new(config: MoverConfig, kept: Kept, now: Time) -> Mover {
        let Kept { consignments: kept, series, next_consignment, events } = kept;
        let mut mover = Mover {
            beginnings: config.routes.iter().map(|route| Beginning::new(route, config.once)).collect(),
            flow: Flow::new(&config),
            config,
            consignments: BTreeMap::new(),
            names: BTreeMap::new(),
            numbering: Numbering::default(),
            running: BTreeMap::new(),
            records: Vec::new(),
            next_consignment,
            next_job: 0,
        };
        for (series, next) in series {
            mover.numbering.go_on_with(series, next);
        }
        for (route, run, events) in events {
            mover.beginnings[route.0].count(run, events);
        }
        for (route, mut consignment) in kept {
            mover.configure(route, &mut consignment);
            let changes = consignment.start(now, &mover.config.routes[route.0].policy);
            mover.records.extend(changes.into_iter().map(Record::Change));
            let id = consignment.id;
            assert!(id.0 < mover.next_consignment, "{id} is one that the journal has");
            if !consignment.stage().is_over() {
                mover.beginnings[route.0].take(&consignment.recipe);
            }
            mover.insert(id, route, consignment);
            mover.settle(id, now);
        }
        mover
    }

    /// What must be durable before the next job is begun.
    pub fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    /// The next job, if one may begin now.
    pub fn next_job(&mut self, now: Time) -> Option<Job> {
        assert!(self.records.is_empty(), "a job may rely on what is not durable");
        let looks = self.beginnings.iter_mut().enumerate();
        let look = looks.filter_map(|(route, beginning)| Some((RouteIndex(route), beginning.next(now)?))).next();
        if let Some((route, task)) = look {
            let id = self.begin(Running::Look(route));
            return Some(Job { id, route, task });
        }
        let (key, weight) = self.flow.next(now)?;
        let (task, step) = self.task(key);
        let route = self.consignments[&key.consignment].0;
        let channel = self.flow.begin(key, weight);
        debug_assert!(channel, "it was free");
        let id = self.begin(Running::Of(key, step));
        Some(Job { id, route, task })
    }

    /// What is due of a consignment, at its source or at one of its destinations.
    fn task(&self, key: Key) -> (Task, Option<Step>) {
        let (route, of) = &self.consignments[&key.consignment];
        let (consignment, recipe, content) = (of.id, Arc::clone(&of.recipe), of.content().copied());
        let token = self.config.token;
        let text = || of.sidecar(token).map(Arc::<str>::from);
        match key.place {
            None if of.registers_now() => {
                let mut key = sidecar::key_of(token, consignment);
                if planted(Planted::KeyOfTheAttempt) {
                    key += &format!("-{}", self.next_job);
                }
                (Task::Register { consignment, key, text: text().expect("it was checked before it was proven") }, None)
            }
            None => {
                let step = of.source_step().expect("it is due");
                (Task::Source { consignment, step, recipe, content }, None)
            }
            Some(place) => {
                let step = of.delivery_step(place, token).expect("it is due");
                let destination = self.destination(*route, of, place).expect("it is due");
                let is_sidecar = of.deliveries[place].what == What::Sidecar && matches!(step, Step::Send { .. });
                let sidecar = if is_sidecar { text() } else { None };
                (
                    Task::Destination { consignment, destination, step: step.clone(), recipe, content, sidecar },
                    Some(step),
                )
            }
        }
    }

    /// A job is done.
    pub fn done(&mut self, job: JobId, done: Done, now: Time) {
        match (self.running.remove(&job).expect("a job is done once"), done) {
            (Running::Look(route), Done::Scanned(scanned)) => self.scanned(route, scanned, now),
            (Running::Look(route), Done::Listed(page)) => {
                self.looked_at_events(route, now, |plan, naming| plan.listed(page, naming, now));
            }
            (Running::Look(route), Done::OfRun(of_run)) => {
                self.looked_at_events(route, now, |plan, naming| plan.of_run(of_run, naming, now));
            }
            (Running::Look(route), Done::Examined(examined)) => {
                self.looked_at_events(route, now, |plan, naming| plan.examined(examined, naming, now));
            }
            (Running::Of(key, None), Done::Source(answer)) => {
                self.flow.end(key, None, now);
                let policy = self.policy(key.consignment);
                let (_, consignment) = self.consignments.get_mut(&key.consignment).expect("it is there");
                let changes = consignment.source_answer(answer, now, &policy);
                self.changed(key.consignment, changes, now);
            }
            (Running::Of(key, None), Done::Registered(answer)) => {
                self.flow.end(key, Some(answer.as_ref().is_err_and(Failure::is_of_the_destination)), now);
                let policy = self.policy(key.consignment);
                let (_, consignment) = self.consignments.get_mut(&key.consignment).expect("it is there");
                let changes = consignment.registered(answer, now, &policy);
                self.changed(key.consignment, changes, now);
            }
            (Running::Of(key @ Key { place: Some(place), .. }, Some(step)), Done::Destination(answer)) => {
                let failed = match &answer {
                    Answer::Failed(failure) => Some(failure.is_of_the_destination()),
                    Answer::Source(_) => None,
                    _ => Some(false),
                };
                self.flow.end(key, failed, now);
                let policy = self.policy(key.consignment);
                let token = self.config.token;
                let (_, consignment) = self.consignments.get_mut(&key.consignment).expect("it is there");
                let changes = consignment.delivery_answer(place, &step, token, answer, now, &policy);
                self.changed(key.consignment, changes, now);
                self.give_another_name(key.consignment, now);
            }
            (running, done) => panic!("{done:?} is no end of {running:?}"),
        }
    }

    /// A person says that a consignment shall be tried again.
    pub fn retry(&mut self, id: ConsignmentId, now: Time) {
        self.by_a_person(id, now, |consignment| consignment.retry(now));
    }

    /// A person says that nothing more is to be done with a consignment, or that it goes on.
    pub fn hold(&mut self, id: ConsignmentId, held: bool, why: &str, now: Time) {
        self.by_a_person(id, now, |consignment| consignment.hold(held, why));
    }

    /// A person answers for a consignment: its source lets it go, proven or not.
    pub fn let_go(&mut self, id: ConsignmentId, why: &str, now: Time) {
        self.by_a_person(id, now, |consignment| consignment.let_go(now, why));
    }

    fn by_a_person(&mut self, id: ConsignmentId, now: Time, change: impl FnOnce(&mut Consignment) -> Vec<Change>) {
        // It may be over meanwhile.
        if let Some((_, consignment)) = self.consignments.get_mut(&id) {
            let changes = change(consignment);
            self.changed(id, changes, now);
        }
    }

    /// When the driver should ask again though no job ended.
    pub fn due(&self) -> Option<Time> {
        self.beginnings.iter().filter_map(Beginning::due).chain(self.flow.due()).min()
    }

    /// What the source of a route takes still: what comes from one that is nearly full goes before all else.
    pub fn see_space(&mut self, route: RouteIndex, free_bytes: u64, capacity_bytes: u64) {
        self.flow.see_space(route, free_bytes, capacity_bytes);
    }

    /// The consignments that are known, ascending.
    pub fn consignments(&self) -> impl Iterator<Item = (RouteIndex, &Consignment)> {
        self.consignments.values().map(|(route, consignment)| (*route, consignment))
    }

    /// Runs whose events are left in the store, and why.
    pub fn refusals(&self) -> impl Iterator<Item = (RouteIndex, RunId, &str)> {
        let of_route = |(route, beginning)| {
            let beginning: &Beginning = beginning;
            let refusals = beginning.refusals().into_iter();
            refusals.map(move |(run, refusal)| (RouteIndex(route), run, refusal.words.as_str()))
        };
        self.beginnings.iter().enumerate().flat_map(of_route)
    }

    /// Whether events are to go where no destination was made ready: it is to be begun anew, with those that their streams are defined with now.
    pub fn wants_destinations(&self) -> bool {
        let wants = |beginning: &Beginning| beginning.refusals().iter().any(|(_, refusal)| refusal.wants_destination);
        self.beginnings.iter().any(wants)
    }

    /// Jobs that run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// With `once`: how it ended, when everything that was there is over, or nothing more can be done.
    pub fn end(&self, now: Time) -> Option<End> {
        // Whatever runs ends, or is taken for hanging; and to look at all consignments takes a while.
        if !self.config.once || !self.records.is_empty() || !self.running.is_empty() {
            return None;
        }
        let mut end = End { left_alone: self.beginnings.iter().map(Beginning::left_alone).sum(), ..End::default() };
        for beginning in &self.beginnings {
            match beginning.failing_since() {
                Some(since) if now.since(since) >= self.config.patience => end.failing += 1,
                Some(_) => return None,
                None if !beginning.has_all_but_blocked() => return None,
                None => {}
            }
        }
        for (_, consignment) in self.consignments.values() {
            let failing = consignment.failing_since().is_some_and(|since| now.since(since) >= self.config.patience);
            if consignment.is_held() {
                end.held += 1;
            } else if consignment.rests() {
                end.quarantined += 1;
            } else if failing && !consignment.stage().is_over() {
                end.failing += 1;
            } else if !consignment.is_over() && !failing {
                return None;
            }
        }
        let blocked: usize = self.beginnings.iter().map(Beginning::blocked).sum();
        // Whoever has the name is over, and the next look plans them; or needs a person first.
        if blocked > 0 && end.quarantined + end.held + end.failing == 0 {
            return None;
        }
        end.blocked = blocked;
        Some(end)
    }

    fn insert(&mut self, id: ConsignmentId, route: RouteIndex, consignment: Consignment) {
        for key in names_of(&consignment) {
            self.names.insert(key, id);
        }
        self.consignments.insert(id, (route, consignment));
    }

    fn changed(&mut self, id: ConsignmentId, changes: Vec<Change>, now: Time) {
        let (route, consignment) = &self.consignments[&id];
        for change in &changes {
            if let Changed::Standing { from, to } = &change.of
                && from.stage != to.stage
                && to.stage.is_over()
            {
                self.beginnings[route.0].over(&consignment.recipe, to.stage == Stage::Withdrawn);
            }
        }
        self.records.extend(changes.into_iter().map(Record::Change));
        self.settle(id, now);
    }

    /// Everything that follows from how far a consignment is now.
    fn settle(&mut self, id: ConsignmentId, now: Time) {
        let (route, consignment) = &self.consignments[&id];
        let route = *route;
        let priority = self.config.routes[route.0].priority.saturating_add(consignment.priority.into());
        let key = |place| Key { consignment: id, place };
        let at = if consignment.registers_now() { Place::Registry(route) } else { Place::Source(route) };
        let source_weight = Weight::of_source(consignment.source_step());
        self.flow.set(key(None), route, at, priority, consignment.source_due(), source_weight, now);
        for place in 0..consignment.deliveries.len() {
            let destination = self.destination(route, consignment, place);
            // One that no route has any more waits until one does.
            let due = destination.and(consignment.delivery_due(place));
            let at = destination.map_or(Place::Source(route), Place::Destination);
            let what = consignment.deliveries[place].what;
            let weight = Weight::of(consignment.delivery_step(place, self.config.token).as_ref(), what);
            self.flow.set(key(Some(place)), route, at, priority, due, weight, now);
        }
        if self.consignments[&id].1.is_over() && !self.flow.runs(id) {
            self.flow.forget(id);
            let (_, consignment) = self.consignments.remove(&id).expect("it is there");
            for key in names_of(&consignment) {
                if self.names.get(&key) == Some(&id) {
                    self.names.remove(&key);
                }
            }
        }
    }

    fn destination(&self, route: RouteIndex, consignment: &Consignment, place: usize) -> Option<DestinationIndex> {
        let address = &consignment.deliveries[place].destination;
        let mut destinations = self.config.routes[route.0].destinations.iter();
        destinations.find(|(index, _)| self.config.destinations[index.0].address == *address).map(|(index, _)| *index)
    }

    fn policy(&self, id: ConsignmentId) -> Policy {
        self.config.routes[self.consignments[&id].0.0].policy
    }

    fn begin(&mut self, running: Running) -> JobId {
        self.next_job += 1;
        self.running.insert(JobId(self.next_job), running);
        JobId(self.next_job)
    }
}
