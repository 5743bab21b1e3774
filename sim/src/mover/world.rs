//! The world of a mover: one seed, virtual time.

mod events;
mod trouble;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use forebay_client::AcceptedPage;
use forebay_mover::custody::{Answer, ConsignmentId, Part, Policy, SourceAnswer, SourceStep, Step};
use forebay_mover::machine::{
    DestinationConfig, DestinationIndex, Done, JobId, Merge, Mover, MoverConfig, Record, RouteConfig, StreamConfig,
    Task,
};
use forebay_mover::recipe::Recipe;
use forebay_mover::{Name, Sums};
use forebay_types::{EventKey, Time};

use super::journal::Journal;
use super::places::{Destination, Original, Owner, Source};
use super::{MoverFault, MoverTotals};
use crate::random::Random;

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
    /// Somebody puts a file where one of ours is to be; with the same bytes.
    Foreign(usize, Name, bool),
    /// A destination loses what it has under a name, or it rots.
    Spoils(usize, Name, bool),
    /// A step of which nobody knew whether it was done.
    Late(usize, ConsignmentId, Step, Vec<u8>),
    Kill,
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
    required: Vec<bool>,
    journal: Journal,
    mover: Mover,
    running: BTreeMap<JobId, Running>,
    events: BTreeMap<(Time, u64), Event>,
    events_made: u64,
    faults: BTreeSet<MoverFault>,
    spoiled: BTreeMap<(usize, Name), MoverFault>,
    may_lie_about: BTreeSet<(usize, Name)>,
    kill_now: bool,
    settle: Duration,
    merge: Option<Merge>,
    /// The last route is one of events.
    stream: Option<(StreamConfig, Merge)>,
    names: BTreeMap<ConsignmentId, Name>,
    totals: MoverTotals,
}

impl World {
    pub(super) fn new(seed: u64, told: bool) -> World {
        let mut random = Random::new(seed ^ 0x6D6F_7665);
        let destinations = random.within(1..4) as usize;
        let mut required: Vec<bool> = (0..destinations).map(|_| random.per_mille(800)).collect();
        required[0] = true;
        let known = random.within(200..1001);
        let faults = MoverFault::ALL.into_iter().filter(|_| random.per_mille(known)).collect();
        let settle = random.millis(0..3000);
        let merge = random.per_mille(400).then(|| Merge {
            bytes: if random.per_mille(500) { random.within(20..200) } else { random.within(2000..8000) },
            wait: random.millis(0..20_000),
            name: None,
        });
        let stream = random.per_mille(400).then(|| {
            let bytes = if random.per_mille(700) { random.within(20..400) } else { random.within(2000..8000) };
            let order_wait = random.millis(0..10_000);
            (
                StreamConfig { stream: "physics".parse().expect("a name"), order_wait },
                Merge { bytes, wait: random.millis(0..20_000), name: None },
            )
        });
        let routes = if random.per_mille(300) { 2 } else { 1 };
        let (journal, now) = (Journal::default(), Time(1_000_000_000));
        let mut world = World {
            now,
            mover: start(&journal, &required, routes, stream.as_ref(), settle, merge.clone(), now),
            random,
            told,
            sources: (0..routes).map(|_| Source::default()).collect(),
            destinations: (0..destinations).map(|_| Destination::default()).collect(),
            required,
            journal,
            running: BTreeMap::new(),
            events: BTreeMap::new(),
            events_made: 0,
            faults,
            spoiled: BTreeMap::new(),
            may_lie_about: BTreeSet::new(),
            kill_now: false,
            settle,
            merge,
            stream,
            names: BTreeMap::new(),
            totals: MoverTotals { starts: 1, ..MoverTotals::default() },
        };
        world.plan();
        world
    }

    fn plan(&mut self) {
        let until = TROUBLE.as_millis() as u64;
        for number in 0..self.random.within(2..FILES_MAX) {
            let directory = if self.random.per_mille(300) { "run7/" } else { "" };
            let extension = if number % 2 == 0 { ".raw" } else { "" };
            let name: Name = format!("{directory}file{number}{extension}").parse().expect("a name");
            let at = self.random.millis(0..until * 2 / 3);
            let Some(route) = self.route_of_files() else { break };
            if self.stream.is_none() && self.sources.len() > 1 && self.random.per_mille(400) {
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
                    let (mut name, mut twin) = (name.clone(), self.random.per_mille(300));
                    if self.merge.is_some() && self.random.per_mille(800) {
                        // One that a merged file is to have.
                        let file = if self.random.per_mille(500) { "files-00001.tar" } else { "run000000-00002.raw" };
                        (name, twin) = (format!("{directory}{file}").parse().expect("a name"), false);
                    }
                    let when = self.random.millis(0..until);
                    self.at(when, Event::Foreign(to, name, twin));
                }
            }
        }
        if self.stream.is_some() {
            self.plan_events(until);
        }
        for to in 0..self.destinations.len() {
            for _ in 0..self.random.below(4) {
                let at = self.random.millis(0..until);
                self.at(at, Event::Away(to));
            }
        }
        for _ in 0..self.random.below(25) {
            let at = self.random.millis(0..until);
            self.at(at, Event::Kill);
        }
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
        for (to, destination) in self.destinations.iter().enumerate() {
            let left: Vec<&Name> =
                destination.temporaries().filter(|name| !self.may_lie_about.contains(&(to, (*name).clone()))).collect();
            assert!(left.is_empty(), "{left:?} lie about at destination {to}");
            for (name, id) in destination.of_the_mover() {
                assert!(
                    name.file().starts_with('.') || self.journal.is_released(id),
                    "{name} is at destination {to}, and its consignment {id} was withdrawn: what is in it is in another file, too"
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

    /// Does what he is told to: what is in the way goes, what is damaged is made anew, and all is tried again.
    fn person(&mut self) {
        let stuck: Vec<_> = self.mover.consignments().filter(|(_, consignment)| consignment.needs_a_person()).collect();
        let stuck: Vec<(usize, ConsignmentId, Name, Arc<Recipe>)> = stuck
            .into_iter()
            .map(|(route, stuck)| (route.0, stuck.id, stuck.name.clone(), Arc::clone(&stuck.recipe)))
            .collect();
        for (route, id, name, recipe) in stuck {
            let made = self.sources[route].make(&recipe, self.now).ok();
            // Who tries again without doing what he was told to must do no harm.
            let does_it = self.random.per_mille(600);
            for destination in self.destinations.iter_mut().filter(|_| does_it) {
                let right = made.as_ref().is_some_and(|made| destination.bytes(&name) == Some(made));
                if destination.has(&name) && !right {
                    destination.clear(&name);
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
            self.mover.retry(id, self.now);
        }
    }

    /// Until the next thing happens.
    fn step(&mut self, until: Time) {
        if !self.commit() {
            return;
        }
        while let Some(job) = self.mover.next_job(self.now) {
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
                Record::Change(change) => format!("commit {}: {:?}", change.consignment, change.of),
            });
            if let Record::Planned { id, name, .. } = record {
                self.names.insert(*id, name.clone());
            }
            self.journal.write(record);
        }
        true
    }

    fn kill(&mut self) {
        self.tell(|| "killed".to_owned());
        // What ran is done, or half done, or not.
        for (_, Running { route, task, .. }) in std::mem::take(&mut self.running) {
            let Task::Destination { consignment, destination, step, recipe, .. } = task else { continue };
            match self.random.below(3) {
                0 => drop(self.does(route, destination.0, consignment, &step, &recipe)),
                1 => {
                    if let (Step::Send { temporary, .. }, Ok(original)) =
                        (&step, self.sources[route].make(&recipe, self.now))
                    {
                        let half = original[..original.len() / 2].to_vec();
                        self.destinations[destination.0].put(temporary, half, Owner::Mover(consignment));
                    }
                }
                _ => {}
            }
        }
        self.now = self.now + self.random.millis(1..5000);
        let (routes, stream) = (self.sources.len(), self.stream.as_ref());
        self.mover = start(&self.journal, &self.required, routes, stream, self.settle, self.merge.clone(), self.now);
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
            Event::Put(..) | Event::Decided(..) | Event::Spoiled(..) => self.happens_to_an_event(&event),
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
                    self.spoiled.insert((to, name), if drop { MoverFault::Dropped } else { MoverFault::Rotten });
                }
            }
            Event::Late(to, id, step, bytes) => {
                self.tell(|| format!("late, at {to}: {step:?}"));
                self.destinations[to].does(id, &step, Some(&bytes), RECHECK_AFTER, self.now);
                if let Step::Send { temporary, .. } = step {
                    // It comes after it was taken away, perhaps: nobody can know.
                    self.may_lie_about.insert((to, temporary));
                }
                self.totals.meet(MoverFault::DoneLate);
            }
            Event::Kill => self.kill_now = true,
        }
    }

    fn foreign(&mut self, to: usize, name: Name, twin: bool) {
        let fault = if twin { MoverFault::ForeignTwin } else { MoverFault::Foreign };
        let other = vec![99; self.sources[0].files.get(&name).map_or(5, |file| file.bytes.len())];
        let bytes = self.sources[0].files.get(&name).filter(|_| twin).map_or(other, |file| file.bytes.clone());
        if self.destinations[to].is_free(&name) && self.fires(fault, 1000) {
            self.tell(|| format!("somebody puts {name} at {to}"));
            self.spoiled.insert((to, name.clone()), fault);
            self.destinations[to].put(&name, bytes, Owner::Somebody);
        }
    }

    fn done(&mut self, route: usize, task: &Task, page: Option<AcceptedPage>) -> Done {
        self.totals.steps += 1;
        match task {
            Task::Scan => Done::Scanned(Ok(self.sources[route].scan(self.now))),
            Task::List { .. } | Task::Examine { .. } => self.look_at_events(route, task, page),
            Task::Source { step, recipe, consignment, content } => {
                Done::Source(self.source_does(route, *consignment, *step, recipe, *content))
            }
            Task::Destination { consignment, destination, step, recipe, .. } => {
                let answer = self.destination_does(route, *consignment, *destination, step, recipe);
                Done::Destination(answer)
            }
        }
    }

    fn source_does(
        &mut self,
        route: usize,
        id: ConsignmentId,
        step: SourceStep,
        recipe: &Recipe,
        content: Option<Sums>,
    ) -> SourceAnswer {
        if self.fires(MoverFault::SourceUnreadable, 40) {
            self.totals.meet(MoverFault::SourceUnreadable);
            return SourceAnswer::NotNow("cannot be read".to_owned());
        }
        match step {
            SourceStep::Check => self.check(route, recipe),
            SourceStep::Release => self.release(route, id, recipe, content),
        }
    }

    fn check(&mut self, route: usize, recipe: &Recipe) -> SourceAnswer {
        let made = self.sources[route].make(recipe, self.now);
        let is_damaged = |part: &Part| self.sources[route].find(part).is_ok_and(|original| original.damaged);
        match made {
            Ok(_) if recipe.parts().iter().any(is_damaged) => {
                self.totals.meet(MoverFault::SourceDamaged);
                SourceAnswer::Damaged("damaged".to_owned())
            }
            Ok(bytes) => SourceAnswer::Whole(Sums::of(&bytes)),
            Err(changed) => {
                self.met_changed(recipe, &changed);
                changed
            }
        }
    }

    fn met_changed(&mut self, recipe: &Recipe, answer: &SourceAnswer) {
        let unavailable = matches!(answer, SourceAnswer::NotNow(_));
        self.totals.meet(match recipe.events() {
            Some(_) if unavailable => MoverFault::EventUnavailable,
            Some(_) => MoverFault::EventLost,
            None => MoverFault::SourceWritten,
        });
    }

    /// All parts are looked at before any is let go.
    fn release(&mut self, route: usize, id: ConsignmentId, recipe: &Recipe, content: Option<Sums>) -> SourceAnswer {
        let of_ours = |part: &&Part| {
            self.sources[route].files.get(&part.name).is_some_and(|file| file.identity.inode == part.identity.inode)
        };
        let left: Vec<&Part> = recipe.parts().iter().filter(of_ours).collect();
        for part in &left {
            if let Err(changed) = self.sources[route].find(part) {
                return changed;
            }
        }
        let name = self.names[&id].clone();
        let left: Vec<Part> = left.into_iter().cloned().collect();
        // What events lost since they were sent is at the destinations.
        let made = self.sources[route].make(recipe, self.now).map(|made| Sums::of(&made)).ok();
        if let Some(made) = recipe.events().map_or(made, |_| content) {
            for (to, destination) in self.destinations.iter().enumerate() {
                let since = self.now - (PROOF_LASTS + RELEASED_AFTER);
                assert!(
                    destination.is_proven(&name, &made, since) || !self.required[to],
                    "{name} is released by consignment {id}, and destination {to} has not proven it"
                );
            }
        }
        let keys: Vec<EventKey> = recipe.events().into_iter().flat_map(|events| events.keys()).collect();
        let count = left.len().max(keys.len());
        // Killed, or hindered, between two of them.
        let stops_at = if count > 1 && self.fires(MoverFault::HalfReleased, 200) {
            self.random.below(count as u64) as usize
        } else {
            count
        };
        self.totals.released += self.sources[route].stream.release(keys.into_iter().take(stops_at));
        for part in left.iter().take(stops_at) {
            self.sources[route].files.remove(&part.name);
            self.totals.released += 1;
        }
        if stops_at < count {
            self.totals.meet(MoverFault::HalfReleased);
            SourceAnswer::NotNow("half of it is let go".to_owned())
        } else {
            SourceAnswer::Released
        }
    }

    fn does(&mut self, route: usize, to: usize, id: ConsignmentId, step: &Step, recipe: &Recipe) -> Answer {
        let content = if matches!(step, Step::Send { .. }) {
            match self.sources[route].make(recipe, self.now) {
                Ok(bytes) => Some(bytes),
                Err(changed) => {
                    self.met_changed(recipe, &changed);
                    return Answer::Source(changed);
                }
            }
        } else {
            None
        };
        self.destinations[to].does(id, step, content.as_deref(), RECHECK_AFTER, self.now)
    }
}

fn start(
    journal: &Journal,
    required: &[bool],
    routes: usize,
    stream: Option<&(StreamConfig, Merge)>,
    settle: Duration,
    merge: Option<Merge>,
    now: Time,
) -> Mover {
    let destination = |to| DestinationConfig { address: format!("destination {to}"), streams_max: 2 };
    let policy = Policy {
        recheck_after: RECHECK_AFTER,
        proof_lasts: PROOF_LASTS,
        strikes_max: 3,
        backoff_min: Duration::from_millis(200),
        backoff_max: Duration::from_secs(10),
    };
    let route = |number| RouteConfig {
        name: format!("route {number}"),
        destinations: required.iter().enumerate().map(|(to, required)| (DestinationIndex(to), *required)).collect(),
        policy,
        settle,
        merge: stream.filter(|_| number + 1 == routes).map(|(_, merge)| merge.clone()).or(merge.clone()),
        events: stream.filter(|_| number + 1 == routes).map(|(stream, _)| stream.clone()),
        scan_every: Duration::from_secs(1),
        priority: 0,
        streams_max: 3,
    };
    let config = MoverConfig {
        routes: (0..routes).map(route).collect(),
        destinations: (0..required.len()).map(destination).collect(),
        streams_max: 4,
        once: false,
        patience: Duration::from_secs(60),
        token: 7,
    };
    Mover::new(config, journal.at_work(), now)
}
