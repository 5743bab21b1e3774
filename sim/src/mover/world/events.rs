//! What becomes of accepted events, and what is told of them.

use std::time::Duration;

use forebay_client::AcceptedPage;
use forebay_mover::events::{EventKind, Examined};
use forebay_mover::machine::{Done, Task};
use forebay_types::EventKey;

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

    pub(super) fn happens_to_an_event(&mut self, event: &Event) {
        match *event {
            Event::Put(route, key) => {
                let bytes: Vec<u8> = (0..self.random.within(1..40)).map(|_| self.random.next() as u8).collect();
                let kind = if self.random.per_mille(700) { EventKind::Mdf } else { EventKind::Besiii };
                let is_kept = self.random.per_mille(400);
                self.sources[route].stream.put(key, kind, bytes, is_kept);
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
            return if matches!(task, Task::List { .. }) {
                Done::Listed(Err(words))
            } else {
                Done::Examined(Err(words))
            };
        }
        match task {
            Task::List { after, .. } => Done::Listed(Ok(page.unwrap_or_else(|| self.page(route, *after)))),
            Task::Examine { events } => {
                let examined = self.sources[route].stream.examine(events, self.now);
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
