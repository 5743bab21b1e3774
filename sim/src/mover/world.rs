//! The world of a mover: one seed, virtual time.

mod events;
mod registering;
mod setup;
mod source;
mod trouble;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use forebay_client::AcceptedPage;
use forebay_mover::custody::{
    Answer, Change, Changed, Consignment, ConsignmentId, DeliveryState, Failure, SourceAnswer, Step,
};
use forebay_mover::machine::{Done, JobId, Mover, Record, Task};
use forebay_mover::recipe::Recipe;
use forebay_mover::{Name, Sums, sidecar};
use forebay_types::{EventKey, RunId, Time};

use super::journal::Journal;
use super::places::{Destination, Original, Owner, Source};
use super::registry::Registry;
use super::runs::Runs;
use super::{MoverFault, MoverTotals};
use crate::random::Random;
use setup::Setup;

/// After so long nothing goes wrong any more.
const TROUBLE: Duration = Duration::from_secs(150);
/// Then everything is over after so long.
const CALM: Duration = Duration::from_secs(900);
/// A person looks so often, when all is calm.
const PERSON_EVERY: Duration = Duration::from_secs(5);
const FILES_MAX: u64 = 14;
const RECHECK_AFTER: Duration = Duration::from_secs(5);
const PROOF_LASTS: Duration = Duration::from_secs(20);
/// So much later a file may be released: the source may not let it go at once, and movers are killed.
const RELEASED_AFTER: Duration = Duration::from_secs(15);

/// What the world does by itself.
enum Event {
    Appears(usize, Name),
    Written(usize, Name),
    Away(usize),
    /// An event is put together, is decided, is spoiled.
    Put(usize, EventKey),
    Decided(usize, EventKey),
    Spoiled(usize, EventKey, MoverFault),
    /// The stream is defined anew; a run is started, or closed.
    Defined,
    RunStarts(usize, RunId),
    RunCloses(usize, RunId),
    /// Somebody puts a file where one of ours is to be; with the same bytes.
    Foreign(usize, Name, bool),
    /// A destination loses what it has under a name, or it rots.
    Spoils(usize, Name, bool),
    /// A step of which nobody knew whether it was done.
    Late(usize, ConsignmentId, Step, Vec<u8>),
    RegistryAway,
    /// A registration of which nobody knew whether it was done.
    RegisteredLate(ConsignmentId, String, Arc<str>),
    Kill,
    /// The last route, of a stream that appears.
    RouteComes,
}

struct Running {
    route: usize,
    task: Task,
    done_at: Time,
    /// What was accepted when it was asked for, if that is what is told.
    page: Option<AcceptedPage>,
}

pub(super) struct World {
    now: Time,
    random: Random,
    told: bool,
    /// Of each route.
    sources: Vec<Source>,
    destinations: Vec<Destination>,
    registry: Registry,
    runs: Runs,
    setup: Setup,
    /// Routes that the mover knows; the last one may come later.
    routes_known: usize,
    journal: Journal,
    mover: Mover,
    running: BTreeMap<JobId, Running>,
    events: BTreeMap<(Time, u64), Event>,
    events_made: u64,
    faults: BTreeSet<MoverFault>,
    spoiled: BTreeMap<(usize, Name), MoverFault>,
    may_lie_about: BTreeSet<(usize, Name)>,
    kill_now: bool,
    names: BTreeMap<ConsignmentId, Name>,
    totals: MoverTotals,
}

impl World {
    pub(super) fn new(seed: u64, told: bool) -> World {
        let mut random = Random::new(seed ^ 0x6D6F_7665);
        let setup = Setup::of(&mut random);
        let known = random.within(200..1001);
        let faults = MoverFault::ALL.into_iter().filter(|_| random.per_mille(known)).collect();
        let (journal, now) = (Journal::default(), Time(1_000_000_000));
        // Of a stream of its own: what it chooses moves nothing else.
        let mut comes = Random::new(seed.rotate_left(23));
        let comes_later = setup.stream.is_some() && comes.per_mille(300);
        let routes_known = setup.routes - usize::from(comes_later);
        let mut world = World {
            now,
            mover: setup.start(routes_known, &journal, &Runs::default(), now),
            routes_known,
            random,
            told,
            sources: (0..setup.routes).map(|_| Source::default()).collect(),
            destinations: setup.required.iter().map(|_| Destination::default()).collect(),
            registry: Registry::default(),
            runs: Runs::default(),
            setup,
            journal,
            running: BTreeMap::new(),
            events: BTreeMap::new(),
            events_made: 0,
            faults,
            spoiled: BTreeMap::new(),
            may_lie_about: BTreeSet::new(),
            kill_now: false,
            names: BTreeMap::new(),
            totals: MoverTotals { starts: 1, ..MoverTotals::default() },
        };
        world.plan();
        if comes_later {
            world.at(comes.millis(0..TROUBLE.as_millis() as u64 / 2), Event::RouteComes);
        }
        world
    }

    fn plan(&mut self) {
        let until = TROUBLE.as_millis() as u64;
        for number in 0..self.random.within(2..FILES_MAX) {
            let directory = if self.random.per_mille(300) { "run7/" } else { "" };
            let mut extension = if number % 2 == 0 { ".raw" } else { "" };
            if self.setup.sidecar && self.random.per_mille(60) {
                // One that has the name of another's sidecar.
                extension = ".json";
            }
            let name: Name = format!("{directory}file{number}{extension}").parse().expect("a name");
            let at = self.random.millis(0..until * 2 / 3);
            let Some(route) = self.route_of_files() else { break };
            if self.setup.stream.is_none() && self.sources.len() > 1 && self.random.per_mille(400) {
                // Of the same name, from elsewhere, to the same destinations.
                let after = self.random.millis(0..20_000);
                self.at(at + after, Event::Appears(1 - route, name.clone()));
            }
            self.at(at, Event::Appears(route, name.clone()));
            if self.random.per_mille(200) {
                // A later file of the same name.
                let after = self.random.millis(20_000..60_000);
                self.at(at + after, Event::Appears(route, name.clone()));
            }
            if self.random.per_mille(250) {
                let after = self.random.millis(0..30_000);
                self.at(at + after, Event::Written(route, name.clone()));
            }
            for to in 0..self.destinations.len() {
                if self.random.per_mille(80) {
                    self.plan_foreign(to, &name, directory, until);
                }
            }
        }
        if self.setup.stream.is_some() {
            self.plan_events(until);
        }
        for to in 0..self.destinations.len() {
            for _ in 0..self.random.below(4) {
                let at = self.random.millis(0..until);
                self.at(at, Event::Away(to));
            }
        }
        for _ in 0..self.random.below(4) {
            let at = self.random.millis(0..until);
            self.at(at, Event::RegistryAway);
        }
        for _ in 0..self.random.below(25) {
            let at = self.random.millis(0..until);
            self.at(at, Event::Kill);
        }
    }

    /// Somebody has files at a destination under names that ours are to have: one of a file of the source, or some of a series of merged ones.
    fn plan_foreign(&mut self, to: usize, name: &Name, directory: &str, until_ms: u64) {
        let of_a_series = self.setup.merge.is_some() && self.random.per_mille(800);
        let names = if of_a_series {
            let (stem, ending) = if self.random.per_mille(500) { ("files", "tar") } else { ("run000000", "raw") };
            let numbers = self.foreign_numbers();
            numbers.map(|number| format!("{directory}{stem}-{number:05}.{ending}").parse().expect("a name")).collect()
        } else {
            vec![name.clone()]
        };
        self.plan_foreign_names(to, names, !of_a_series, until_ms);
    }

    /// That no file is quarantined for somebody else's that has its name, where it could have another one.
    fn is_no_name_in_the_way(&self, change: &Change) {
        let Changed::Delivery { to, .. } = &change.of else { return };
        let is_for_its_name =
            to.state == DeliveryState::Quarantined && to.words.starts_with("another file has its name");
        // Where a destination refuses to take away what was sent there, or to say what has a name, nobody knows enough.
        if !is_for_its_name || !self.journal.is_of_a_series(change.consignment) || self.knows(MoverFault::Refusal) {
            return;
        }
        // Where a renaming was begun of which nobody knows what became, it may be ours.
        let is_known =
            self.totals.starts == 1 && !self.knows(MoverFault::NoAnswer) && !self.knows(MoverFault::DoneLate);
        if self.journal.was_sent(change.consignment) && !is_known {
            return;
        }
        let name = &self.names[&change.consignment];
        let had_it = self.destinations.iter().any(|destination| destination.was_given(name));
        assert!(had_it, "{name} is quarantined as somebody else's file has its name, and no destination ever had it");
    }

    fn at(&mut self, after: Duration, event: Event) {
        self.events_made += 1;
        self.events.insert((self.now + after, self.events_made), event);
    }

    fn tell(&mut self, words: impl FnOnce() -> String) {
        self.totals.trace = (self.totals.trace ^ self.now.0).wrapping_mul(0x0100_0000_01B3).rotate_left(11);
        if self.told {
            println!("{:12.6} {}", self.now.0 as f64 / 1e9, words());
        }
    }

    fn knows(&self, fault: MoverFault) -> bool {
        self.faults.contains(&fault)
    }

    /// Whether it happens now.
    fn fires(&mut self, fault: MoverFault, per_mille: u64) -> bool {
        let fires = self.random.per_mille(per_mille) && self.knows(fault);
        if fires {
            self.totals.fire(fault);
        }
        fires
    }

    pub(super) fn run(mut self) -> MoverTotals {
        let calm_at = self.now + TROUBLE;
        while self.now < calm_at {
            self.step(calm_at);
            self.look();
        }
        self.faults.clear();
        self.tell(|| "nothing goes wrong any more".to_owned());
        let (until, mut person_at) = (self.now + CALM, self.now);
        while !self.is_over() {
            assert!(self.now < until, "{CALM:?} after the last fault not all is moved: {:?}", self.mover);
            if self.now >= person_at {
                self.person();
                person_at = self.now + PERSON_EVERY;
            }
            self.step(person_at);
        }
        self.commit();
        self.look();
        for (to, destination) in self.destinations.iter().enumerate() {
            let left: Vec<&Name> =
                destination.temporaries().filter(|name| !self.may_lie_about.contains(&(to, (*name).clone()))).collect();
            assert!(left.is_empty(), "{left:?} lie about at destination {to}");
            for (name, id) in destination.of_the_mover() {
                assert!(
                    name.file().starts_with('.') || self.journal.is_released(id) && self.journal.is_name_of(name, id),
                    "{name} is at destination {to}, and its consignment {id} was withdrawn or has another name: what is in it is in another file, too"
                );
            }
        }
        self.totals
    }

    fn is_over(&self) -> bool {
        self.events.is_empty()
            && self.sources.iter().all(|source| source.files.is_empty() && source.stream.is_empty())
            && self.mover.consignments().next().is_none()
    }

    /// That whoever watches is told of every file that is not over, and of each that needs somebody.
    fn look(&self) {
        let survey = self.mover.survey(self.now);
        for (at, route) in survey.routes.iter().enumerate() {
            let of_route = |of: &Consignment| !of.stage().is_over();
            let files = || self.mover.consignments().filter(|(route, of)| route.0 == at && of_route(of));
            let told: u64 = route.states.values().map(|amount| amount.files).sum();
            assert_eq!(told, files().count() as u64, "files of route {at} are told by their states");
            let stuck = files().filter(|(_, of)| of.needs_a_person() && !of.is_held()).count() as u64;
            assert!(route.quarantined >= stuck, "{stuck} files need somebody, and {} are told", route.quarantined);
        }
        for place in survey.destinations.iter().map(|destination| &destination.place) {
            assert!(place.streams_running <= place.streams_max && place.away == (place.failures >= 3), "{place:?}");
            assert_eq!(place.failures > 0, place.failing_for.is_some(), "{place:?}");
        }
    }

    /// Does what he is told to: what is in the way goes, what is damaged is made anew, and all is tried again.
    fn person(&mut self) {
        self.look();
        let stuck = self.mover.consignments().filter(|(_, consignment)| consignment.needs_a_person());
        let stuck: Vec<(usize, Consignment)> = stuck.map(|(route, stuck)| (route.0, stuck.clone())).collect();
        for (route, stuck) in stuck {
            let (id, text, content) = (stuck.id, stuck.sidecar(setup::TOKEN), stuck.content().copied());
            let Consignment { name, recipe, .. } = stuck;
            let made = self.sources[route].make(&recipe, self.now).ok();
            // Who tries again without doing what he was told to must do no harm.
            let does_it = self.random.per_mille(600);
            let file = (name.clone(), made.clone());
            let sidecar = (
                sidecar::name_of(&name).expect("it has room"),
                // One that says what the source had once is of no use.
                text.filter(|_| made.as_deref().map(Sums::of) == content).map(String::into_bytes),
            );
            for destination in self.destinations.iter_mut().filter(|_| does_it) {
                for (name, right) in [&file, &sidecar].into_iter().take(if self.setup.sidecar { 2 } else { 1 }) {
                    if destination.has(name) && destination.bytes(name) != right.as_deref() {
                        destination.clear(name);
                    }
                }
            }
            for part in recipe.parts() {
                if let Some(Original { bytes, identity, damaged, .. }) =
                    self.sources[route].files.get(&part.name).cloned()
                    && (damaged || identity != part.identity)
                {
                    self.sources[route].add(part.name.clone(), bytes, true, false, self.now);
                }
            }
            self.tell(|| format!("a person looks after {name}"));
            self.runs.retried(id);
            self.mover.retry(id, self.now);
        }
    }

    /// Until the next thing happens.
    fn step(&mut self, until: Time) {
        if !self.commit() {
            return;
        }
        // As its driver: what is under way comes to its end first.
        let begins_anew = self.mover.wants_destinations();
        if begins_anew && self.running.is_empty() {
            self.tell(|| "begun anew, with other destinations".to_owned());
            return self.start();
        }
        while let Some(job) = self.mover.next_job(self.now).filter(|_| !begins_anew) {
            self.tell(|| format!("begin {:?}", job.task));
            let done_at = self.now + self.random.micros(100..300_000);
            let route = job.route.0;
            let page = match &job.task {
                Task::List { after, .. } if self.random.per_mille(500) => Some(self.page(route, *after)),
                _ => None,
            };
            self.running.insert(job.id, Running { route, task: job.task, done_at, page });
        }
        let jobs = self.running.iter().map(|(id, running)| (running.done_at, *id)).min();
        let event = self.events.first_key_value().map(|(at, _)| *at);
        let due = self.mover.due().map(|due| due.max(self.now + Duration::from_micros(1)));
        let next = [jobs.map(|(at, _)| at), event.map(|(at, _)| at), due].into_iter().flatten().min();
        self.now = next.unwrap_or(until).min(until).max(self.now);
        if let Some(key) = event.filter(|(at, _)| *at <= self.now) {
            let event = self.events.remove(&key).expect("it is the first");
            return self.happens(event);
        }
        if let Some((_, id)) = jobs.filter(|(at, _)| *at <= self.now) {
            let Running { route, task, page, .. } = self.running.remove(&id).expect("it runs");
            let done = self.done(route, &task, page);
            self.tell(|| format!("done {task:?}: {done:?}"));
            self.mover.done(id, done, self.now);
        }
    }

    /// Makes durable what the machine decided; whether it was not killed before.
    fn commit(&mut self) -> bool {
        let records = self.mover.take_records();
        let killed = if std::mem::take(&mut self.kill_now) && self.knows(MoverFault::Kill) {
            self.totals.fire(MoverFault::Kill);
            Some(MoverFault::Kill)
        } else {
            (!records.is_empty() && self.fires(MoverFault::KillBeforeCommit, 30))
                .then_some(MoverFault::KillBeforeCommit)
        };
        if let Some(fault) = killed {
            self.kill();
            self.totals.meet(fault);
            return false;
        }
        for record in &records {
            self.tell(|| match record {
                Record::Planned { id, name, .. } => format!("commit {id}: {name} is planned"),
                Record::Renamed { id, name, .. } => format!("commit {id}: it is called {name}"),
                Record::Change(change) => format!("commit {}: {:?}", change.consignment, change.of),
            });
            self.journal.write(record);
            match record {
                Record::Planned { id, name, .. } | Record::Renamed { id, name, .. } => {
                    self.names.insert(*id, name.clone());
                }
                Record::Change(change) => self.is_no_name_in_the_way(change),
            }
            self.follows_runs(record);
        }
        true
    }

    fn kill(&mut self) {
        self.tell(|| "killed".to_owned());
        // What ran is done, or half done, or not.
        for (_, Running { route, task, .. }) in std::mem::take(&mut self.running) {
            if let Task::Register { consignment, key, text } = &task
                && self.random.per_mille(500)
            {
                self.registry.register(*consignment, key, text);
            }
            let Task::Destination { consignment, destination, step, recipe, sidecar, .. } = task else { continue };
            let sidecar = sidecar.as_deref();
            match self.random.below(3) {
                0 => drop(self.does(route, destination.0, consignment, &step, &recipe, sidecar)),
                1 => {
                    if let (Step::Send { temporary, .. } | Step::Pull { temporary, .. }, Ok(original)) =
                        (&step, self.sent(route, &recipe, sidecar))
                    {
                        let half = original[..original.len() / 2].to_vec();
                        self.destinations[destination.0].put(temporary, half, Owner::Mover(consignment));
                    }
                }
                _ => {}
            }
        }
        self.now = self.now + self.random.millis(1..5000);
        self.start();
    }

    fn start(&mut self) {
        self.runs.forgotten();
        self.mover = self.setup.start(self.routes_known, &self.journal, &self.runs, self.now);
        self.totals.starts += 1;
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Appears(route, name) if self.sources[route].files.contains_key(&name) => {
                let after = self.random.millis(1000..20_000);
                self.at(after, Event::Appears(route, name));
            }
            Event::Appears(route, name) => {
                let bytes: Vec<u8> = (0..self.random.within(0..60)).map(|_| self.random.next() as u8).collect();
                let damaged = self.fires(MoverFault::SourceDamaged, 60);
                let announced = self.random.per_mille(500);
                self.tell(|| format!("{name} appears"));
                self.sources[route].add(name, bytes, announced, damaged, self.now);
            }
            Event::Written(route, name) => {
                if self.sources[route].files.contains_key(&name) && self.fires(MoverFault::SourceWritten, 1000) {
                    self.tell(|| format!("{name} is written"));
                    self.sources[route].write(&name, self.now);
                }
            }
            Event::Put(..)
            | Event::Decided(..)
            | Event::Spoiled(..)
            | Event::Defined
            | Event::RunStarts(..)
            | Event::RunCloses(..) => self.happens_to_an_event(&event),
            Event::Away(to) => {
                if self.fires(MoverFault::Away, 1000) {
                    self.destinations[to].away_until = self.now + self.random.millis(100..25_000);
                    self.tell(|| format!("destination {to} is away"));
                }
            }
            Event::Foreign(to, name, twin) => self.foreign(to, name, twin),
            Event::Spoils(to, name, drop) => {
                if self.now.0 < TROUBLE.as_nanos() as u64 && self.destinations[to].spoil(&name, drop) {
                    self.tell(|| format!("destination {to} spoils {name}, dropped: {drop}"));
                    self.is_spoiled(to, &name, if drop { MoverFault::Dropped } else { MoverFault::Rotten });
                }
            }
            Event::Late(to, id, step, bytes) => {
                self.tell(|| format!("late, at {to}: {step:?}"));
                self.destinations[to].does(id, &step, Some(&bytes), RECHECK_AFTER, self.now);
                if let Step::Send { temporary, .. } | Step::Pull { temporary, .. } = step {
                    // It comes after it was taken away, perhaps: nobody can know.
                    self.may_lie_about.insert((to, temporary));
                }
                self.totals.meet(MoverFault::DoneLate);
            }
            Event::RegistryAway => {
                if self.fires(MoverFault::RegistryAway, 1000) {
                    self.registry.away_until = self.now + self.random.millis(100..25_000);
                }
            }
            Event::RegisteredLate(id, key, text) => {
                self.tell(|| format!("late: {key} is registered"));
                self.registry.register(id, &key, &text);
                self.totals.meet(MoverFault::RegisteredLate);
            }
            Event::Kill => self.kill_now = true,
            Event::RouteComes => {
                self.tell(|| "a stream appears".to_owned());
                self.mover.add_route(self.setup.route(self.routes_known, &self.runs), &[]);
                self.routes_known += 1;
            }
        }
    }

    fn done(&mut self, route: usize, task: &Task, page: Option<AcceptedPage>) -> Done {
        self.totals.steps += 1;
        match task {
            Task::Scan => Done::Scanned(Ok(self.sources[route].scan(self.now))),
            Task::List { .. } | Task::OfRun { .. } | Task::Examine { .. } => self.look_at_events(route, task, page),
            Task::Source { step, recipe, consignment, content } => {
                Done::Source(self.source_does(route, *consignment, *step, recipe, *content))
            }
            Task::Register { consignment, key, text } => {
                Done::Registered(self.registers(route, *consignment, key, text))
            }
            Task::Destination { consignment, destination, step, recipe, sidecar, .. } => {
                let answer = self.destination_does(route, *consignment, *destination, step, recipe, sidecar.as_deref());
                Done::Destination(answer)
            }
        }
    }

    /// What is sent: a sidecar, or what the source has.
    fn sent(&self, route: usize, recipe: &Recipe, sidecar: Option<&str>) -> Result<Vec<u8>, SourceAnswer> {
        sidecar.map_or_else(|| self.sources[route].make(recipe, self.now), |text| Ok(text.as_bytes().to_vec()))
    }

    fn does(
        &mut self,
        route: usize,
        to: usize,
        id: ConsignmentId,
        step: &Step,
        recipe: &Recipe,
        sidecar: Option<&str>,
    ) -> Answer {
        let content = match step {
            Step::Send { .. } => match self.sent(route, recipe, sidecar) {
                Ok(bytes) => Some(bytes),
                Err(changed) => {
                    self.met_changed(recipe, &changed);
                    return Answer::Source(changed);
                }
            },
            // Whoever fetches it gets what has the name now, whatever was found.
            Step::Pull { .. } => match self.sources[route].files.get(&recipe.parts()[0].name) {
                Some(file) => Some(file.bytes.clone()),
                None => return Answer::Failed(Failure::Refused("the door has no such file".to_owned())),
            },
            _ => None,
        };
        self.destinations[to].does(id, step, content.as_deref(), RECHECK_AFTER, self.now)
    }
}
