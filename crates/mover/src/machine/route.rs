//! What a route begins with: files of a source, or accepted events.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use forebay_types::{RunId, Time};

use super::events::{EventPlan, Look};
use super::plan::Plan;
use super::terms::Refusal;
use super::{RouteConfig, Task};
use crate::name::Name;
use crate::recipe::Recipe;

#[derive(Debug)]
pub(super) enum Beginning {
    Files(Box<Plan>),
    Events(Box<EventPlan>),
}

impl Beginning {
    pub(super) fn new(route: &RouteConfig, once: bool) -> Beginning {
        match &route.events {
            None => Beginning::Files(Box::new(Plan::new(route.settle, route.merge.clone(), once))),
            Some(stream) => {
                let merge = route.merge.clone().expect("events are always put into files of a size");
                Beginning::Events(Box::new(EventPlan::new(stream, merge, route.scan_every, once)))
            }
        }
    }

    /// What is to be looked at now.
    pub(super) fn next(&mut self, now: Time) -> Option<Task> {
        if self.due().is_none_or(|due| due > now) {
            return None;
        }
        match self {
            Beginning::Files(plan) => {
                (plan.scanning, plan.scan_began) = (true, now);
                Some(Task::Scan)
            }
            Beginning::Events(plan) => plan.next(now).map(|look| match look {
                Look::List { after, max } => Task::List { after, max },
                Look::OfRun { run } => Task::OfRun { run },
                Look::Examine { events, making } => Task::Examine { events, making },
            }),
        }
    }

    /// When something is to be looked at, if nobody does.
    pub(super) fn due(&self) -> Option<Time> {
        match self {
            Beginning::Files(plan) => plan.due(),
            Beginning::Events(plan) => plan.due(),
        }
    }

    /// What this is made of is in a consignment.
    pub(super) fn take(&mut self, recipe: &Arc<Recipe>) {
        match self {
            Beginning::Files(plan) => plan.take(recipe.parts()),
            Beginning::Events(plan) => plan.take(recipe),
        }
    }

    /// It is in none any more; `again`: it is to be moved as it is then.
    pub(super) fn over(&mut self, recipe: &Arc<Recipe>, again: bool) {
        match self {
            Beginning::Files(plan) => plan.over(recipe.parts(), again),
            Beginning::Events(plan) => plan.over(recipe, again),
        }
    }

    /// So many events of a run are in consignments that the journal has.
    pub(super) fn count(&mut self, run: RunId, events: u64) {
        if let Beginning::Events(plan) = self {
            plan.count(run, events);
        }
    }

    /// Runs whose events are left in the store, and why.
    pub(super) fn refusals(&self) -> Vec<(RunId, &Refusal)> {
        match self {
            Beginning::Files(_) => Vec::new(),
            Beginning::Events(plan) => plan.refusals().collect(),
        }
    }

    /// Since when looking fails.
    pub(super) fn failing_since(&self) -> Option<Time> {
        match self {
            Beginning::Files(plan) => plan.failing_since,
            Beginning::Events(plan) => plan.failing_since(),
        }
    }

    /// Whether all that is there is in a consignment, but for what waits for another of its name.
    pub(super) fn has_all_but_blocked(&self) -> bool {
        match self {
            Beginning::Files(plan) => plan.has_all_but_blocked(),
            Beginning::Events(plan) => plan.has_all(),
        }
    }

    /// Files with data that the last look left alone.
    pub(super) fn left_alone(&self) -> usize {
        match self {
            Beginning::Files(plan) => plan.left_alone,
            Beginning::Events(_) => 0,
        }
    }

    /// Files that wait for another of their name.
    pub(super) fn blocked(&self) -> usize {
        match self {
            Beginning::Files(plan) => plan.blocked.len(),
            Beginning::Events(_) => 0,
        }
    }

    /// These wait for another of their name.
    pub(super) fn block(&mut self, names: BTreeSet<Name>) {
        match self {
            Beginning::Files(plan) => plan.blocked = names,
            Beginning::Events(_) => assert!(names.is_empty(), "files of events have names that nothing has"),
        }
    }
}

impl Plan {
    fn due(&self) -> Option<Time> {
        let is_over = self.once && self.has_all_wanted();
        (!self.scanning && !is_over).then_some(self.scan_at)
    }

    /// A look came to its end. A large source is not looked at all the time.
    pub(super) fn looked(&mut self, every: Duration, now: Time) {
        self.scanning = false;
        self.scan_at = now + every.max(now.since(self.scan_began) * 10);
    }
}
