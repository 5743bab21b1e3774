//! What a driver tells of how it goes: to its log, to the lookout, and to whoever shows it on a terminal.

use std::sync::Arc;
use std::time::Duration;

use forebay_types::Time;

use super::job::Watch;
use super::lookout::Sight;
use super::{Counts, Driver, wall_time};
use crate::custody::{Answer, Failure, SourceStep, Step};
use crate::machine::{DestinationIndex, Done, Job, JobId, LeftAlone, RouteIndex, Scanned, Task};

/// What fails at a destination is told of so often at most.
const FAILURES_TOLD_EVERY: Duration = Duration::from_secs(300);
/// Of so many things that are left alone it is remembered that they were told of.
const TOLD_ALONE_MAX: usize = 10_000;
/// So many names that are left alone are told of each route.
const LEFT_ALONE_TOLD_MAX: usize = 20;

/// A file that is read or sent now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Tells it from all others of this mover.
    pub id: JobId,
    /// Its name.
    pub name: String,
    /// Where it is sent; nothing while it is checked at its source.
    pub to: Option<String>,
    /// Bytes that went through.
    pub bytes: u64,
    /// How many there are, about.
    pub bytes_total: u64,
}

/// How far a mover is.
pub struct Progress<'a, 'b>(pub(super) &'a Driver<'b>);

impl Progress<'_, '_> {
    /// How much was done.
    pub fn counts(&self) -> &Counts {
        &self.0.counts
    }

    /// What is read or sent now.
    pub fn transfers(&self) -> Vec<Transfer> {
        self.0.jobs.iter().filter_map(|(id, (job, watch))| self.0.transfer(*id, job, watch)).collect()
    }
}

/// Where something fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Failing {
    Destination(DestinationIndex),
    Registry(RouteIndex),
}

impl Driver<'_> {
    /// What is told of it by the lookout.
    pub(super) fn count(&mut self, job: &Job, watch: &Watch, done: &Done) {
        if let Some(to) = self.sends(job) {
            self.lookout.sent(&self.routes[job.route.0], &self.config.targets[to].config.address, watch.bytes());
        }
        if let (Task::Destination { destination, .. }, Done::Destination(Answer::Failed(failure))) = (&job.task, done) {
            self.lookout.failed(&self.config.targets[destination.0].config.address, failure);
        }
    }

    /// Where a job sends a file, if it does.
    fn sends(&self, job: &Job) -> Option<usize> {
        match &job.task {
            Task::Destination { destination, step: Step::Send { .. }, sidecar: None, .. } => Some(destination.0),
            _ => None,
        }
    }

    fn transfer(&self, id: JobId, job: &Job, watch: &Watch) -> Option<Transfer> {
        let (consignment, recipe, content) = match &job.task {
            Task::Source { consignment, step: SourceStep::Check, recipe, .. } => (*consignment, recipe, None),
            Task::Destination { consignment, recipe, content, .. } if self.sends(job).is_some() => {
                (*consignment, recipe, content.as_ref())
            }
            _ => return None,
        };
        Some(Transfer {
            id,
            name: self.machine.name_of(consignment)?.to_string(),
            to: self.sends(job).map(|to| self.config.targets[to].config.address.clone()),
            bytes: watch.bytes(),
            bytes_total: content.map_or_else(|| recipe.bytes(), |sums| sums.bytes),
        })
    }

    /// Looks at everything, for whoever watches.
    pub(super) fn look(&mut self, ended: bool) {
        let sends = |(job, watch): &(Job, Arc<Watch>)| {
            let to = self.config.targets[self.sends(job)?].config.address.clone();
            Some((job.route.0, to, watch.bytes()))
        };
        let sending = self.jobs.values().filter_map(sends).collect();
        let now = self.now();
        let sight = Sight {
            machine: &self.machine,
            routes: self.config.routes.iter().map(|route| (&route.config, route.from.as_str())).collect(),
            destinations: self.config.targets.iter().map(|target| &target.config).collect(),
            streams_max: self.config.streams_max,
            looked: &self.looked,
            spaces: &self.spaces,
            sending,
            journal: &self.journal,
            now,
            wall_time: wall_time(),
        };
        self.lookout.look(&sight, ended);
    }

    /// Tells what fails at a destination, or where files are registered, and is tried again, now and then.
    pub(super) fn tell_failure(&mut self, at: Failing, failure: &Failure) {
        let now = self.now();
        let is_due = self.failures_told.get(&at).is_none_or(|told| now.since(*told) >= FAILURES_TOLD_EVERY);
        if !is_due || !failure.is_of_the_destination() {
            return;
        }
        self.failures_told.insert(at, now);
        let words = failure.words();
        match at {
            Failing::Destination(DestinationIndex(at)) => {
                let address = &self.config.targets[at].config.address;
                tracing::warn!(
                    "{address}: {words}. It is tried again, each time later; what is not proven there stays at the source"
                );
            }
            Failing::Registry(RouteIndex(at)) => {
                let route = &self.routes[at];
                tracing::warn!(
                    "files of route {route} cannot be registered: {words}. It is tried again, each time later; what is not registered stays at the source"
                );
            }
        }
    }

    /// Tells what is wrong with a source, once.
    pub(super) fn tell_looked(&mut self, route: RouteIndex, failed: Option<&String>) {
        let name = &self.routes[route.0];
        let looked = &mut self.looked[route.0];
        looked.failing_words = failed.cloned();
        if failed.is_none() {
            looked.at = Some(Time(0) + self.start.elapsed());
        }
        match failed {
            Some(words) => {
                if self.scan_fails.insert(route) {
                    tracing::warn!(
                        "the source of route {name} cannot be looked at: {words}. What is on its way goes on, and it is tried again"
                    );
                }
            }
            None => {
                if self.scan_fails.remove(&route) {
                    tracing::info!("the source of route {name} can be looked at again");
                }
            }
        }
    }

    /// Tells what is left alone, once.
    pub(super) fn tell_left_alone(&mut self, route: RouteIndex, scanned: &Scanned) {
        let left_alone = scanned.left_alone.iter().filter(|left| left.is_data).take(LEFT_ALONE_TOLD_MAX);
        self.looked[route.0].left_alone = left_alone.map(|left| format!("{:?}: {}", left.name, left.why)).collect();
        for LeftAlone { name, why, .. } in &scanned.left_alone {
            if self.told_alone.len() < TOLD_ALONE_MAX && self.told_alone.insert(name.clone()) {
                tracing::warn!("{name:?} is left alone: {why}");
            }
        }
    }

    /// Tells which events are left in the store, once.
    pub(super) fn tell_refusals(&mut self) {
        for (_, _, words) in self.machine.refusals() {
            if self.told_alone.len() < TOLD_ALONE_MAX && self.told_alone.insert(words.to_owned()) {
                tracing::warn!("{words}");
            }
        }
    }
}
