//! What becomes of accepted events, and what is told of them.

use std::time::Duration;

use forebay_client::AcceptedPage;
use forebay_mover::custody::{Change, Changed, Stage, What};
use forebay_mover::events::{EventKind, Examined};
use forebay_mover::machine::{Done, Record, Task};
use forebay_types::{EventKey, RunId};

use super::super::MoverFault;
use super::{Event, World};

/// Pages are small, so that there are some.
const PAGE_EVENTS: usize = 7;

impl World {
    /// One that is not of events.
    pub(super) fn route_of_files(&mut self) -> Option<usize> {
        let routes = self.sources.len() - usize::from(self.setup.stream.is_some());
        (routes > 0).then(|| self.random.below(routes as u64) as usize)
    }

    /// Events come about in order, are decided a while later, and some of them go wrong.
    pub(super) fn plan_events(&mut self, until_ms: u64) {
        let route = self.sources.len() - 1;
        let runs = self.random.within(1..4);
        self.plan_runs(runs, until_ms);
        for number in 0..self.random.within(2..60) {
            let key = EventKey::new(self.random.below(runs) as u32 + 1, number * 2 + self.random.below(2));
            let at = self.random.millis(0..until_ms * 2 / 3);
            self.at(at, Event::Put(route, key));
            let late = self.random.per_mille(100);
            let decided = at + if late { Duration::from_secs(20) } else { self.random.millis(1..3000) };
            self.at(decided, Event::Decided(route, key));
            if self.random.per_mille(150) {
                let faults = [MoverFault::EventLost, MoverFault::EventDeleted, MoverFault::EventUnavailable];
                let fault = faults[self.random.below(3) as usize];
                let after = self.random.millis(0..20_000);
                self.at(decided + after, Event::Spoiled(route, key, fault));
            }
        }
        for to in 0..self.destinations.len() {
            if self.random.per_mille(150) {
                // One that a file of them is to have.
                let (run, numbers) = (self.random.within(1..3), self.foreign_numbers());
                let name = |number| format!("physics/run{run:06}-{number:05}.mdf").parse().expect("a name");
                self.plan_foreign_names(to, numbers.map(name).collect(), false, until_ms);
            }
        }
    }

    /// Streams are defined, runs start, and close when all of their events are decided.
    fn plan_runs(&mut self, runs: u64, until_ms: u64) {
        if !self.setup.is_defined {
            return;
        }
        self.runs.define(&mut self.random, self.destinations.len());
        for _ in 0..self.random.below(3) {
            let at = self.random.millis(0..until_ms);
            self.at(at, Event::Defined);
        }
        let route = self.sources.len() - 1;
        for run in (1..=runs as u32).map(RunId) {
            // A run of which nobody says that it is over waits for the time of its files.
            if self.setup.waits_for_runs || self.random.per_mille(700) {
                let late = self.random.per_mille(300);
                let at = if late { self.random.millis(0..until_ms / 2) } else { Duration::ZERO };
                self.at(at, Event::RunStarts(route, run));
                let at = self.random.millis(until_ms * 4 / 5 + 2000..until_ms * 9 / 10);
                self.at(at, Event::RunCloses(route, run));
            }
        }
    }

    pub(super) fn happens_to_an_event(&mut self, event: &Event) {
        match *event {
            Event::Put(route, key) => {
                let bytes: Vec<u8> = (0..self.random.within(1..40)).map(|_| self.random.next() as u8).collect();
                let kind = if self.random.per_mille(700) { EventKind::Mdf } else { EventKind::Besiii };
                let is_kept = self.random.per_mille(400);
                let taken = self.random.per_mille(800).then_some(self.now.0 / 1000);
                self.sources[route].stream.put(key, kind, (bytes, taken), is_kept);
            }
            Event::Decided(route, key) => {
                let is_accepted = self.random.per_mille(700);
                self.tell(|| format!("{key} is decided, accepted: {is_accepted}"));
                self.sources[route].stream.decide(key, is_accepted);
            }
            Event::Spoiled(route, key, fault) => {
                if self.sources[route].stream.has(key) && self.fires(fault, 1000) {
                    self.tell(|| format!("{key}: {fault}"));
                    let (keeps_kind, after) = (self.random.per_mille(500), self.random.millis(0..15_000));
                    let stream = &mut self.sources[route].stream;
                    match fault {
                        MoverFault::EventLost => stream.lose(key, keeps_kind),
                        MoverFault::EventDeleted => stream.delete(key),
                        _ => stream.hide(key, self.now + after),
                    }
                }
            }
            Event::Defined => {
                if self.fires(MoverFault::DefinedAnew, 1000) {
                    self.tell(|| "the stream is defined anew".to_owned());
                    self.runs.define(&mut self.random, self.destinations.len());
                    self.totals.meet(MoverFault::DefinedAnew);
                }
            }
            Event::RunStarts(route, run) => {
                let has_events = self.sources[route].stream.of_run(run) > 0;
                self.runs.start(run, has_events, self.now);
            }
            Event::RunCloses(route, run) => {
                let events = self.sources[route].stream.of_run(run);
                let too_few = events > 2 && self.fires(MoverFault::RunMiscounted, 400);
                let counted = if too_few { self.random.within(1..events / 2 + 1) } else { events };
                self.tell(|| format!("run {run} closes, counted {counted} of {events} events"));
                self.runs.close(run, counted);
            }
            _ => unreachable!("it is of something else"),
        }
    }

    pub(super) fn page(&self, route: usize, after: Option<EventKey>) -> AcceptedPage {
        self.sources[route].stream.list(after, PAGE_EVENTS)
    }

    /// `page`: what was accepted when it was asked for, if that is what is told.
    pub(super) fn look_at_events(&mut self, route: usize, task: &Task, page: Option<AcceptedPage>) -> Done {
        if self.fires(MoverFault::SourceUnreadable, 40) {
            self.totals.meet(MoverFault::SourceUnreadable);
            let words = "no answer".to_owned();
            return match task {
                Task::List { .. } => Done::Listed(Err(words)),
                Task::OfRun { .. } => Done::OfRun(Err(words)),
                _ => Done::Examined(Err(words)),
            };
        }
        match task {
            Task::List { after, .. } => Done::Listed(Ok(page.unwrap_or_else(|| self.page(route, *after)))),
            Task::OfRun { run } => Done::OfRun(Ok(Box::new(self.runs.tell(*run)))),
            Task::Examine { events, making } => {
                let examined = self.sources[route].stream.examine(events, making, self.now);
                for what in &examined {
                    match what {
                        Examined::Unavailable => self.totals.meet(MoverFault::EventUnavailable),
                        Examined::Gone => self.totals.meet(MoverFault::EventDeleted),
                        Examined::Event { incomplete: true, .. } => self.totals.meet(MoverFault::EventLost),
                        Examined::Event { .. } => {}
                    }
                }
                Done::Examined(Ok(examined))
            }
            _ => unreachable!("it looks at no events"),
        }
    }
}

impl World {
    /// What must be so of what was decided, by the definitions of the stream.
    pub(super) fn follows_runs(&mut self, record: &Record) {
        match record {
            Record::Planned { id, route, recipe, deliveries, .. } => {
                let Some(events) = recipe.events() else { return };
                let to: Vec<&str> =
                    deliveries.iter().filter(|(_, what, _)| *what == What::File).map(|(to, ..)| to.as_str()).collect();
                let stream = &self.sources[route.0].stream;
                let by_definition = self.setup.goes_by_definition;
                if self.runs.planned(*id, events, (&to, by_definition), |key| stream.taken(key)) {
                    self.totals.meet(MoverFault::RunMiscounted);
                }
            }
            Record::Change(Change { consignment, of: Changed::Standing { to, .. }, .. })
                if to.stage == Stage::Withdrawn =>
            {
                self.runs.withdrawn(*consignment);
            }
            Record::Renamed { .. } | Record::Change(_) => {}
        }
    }
}
