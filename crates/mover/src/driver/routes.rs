//! Routes: those that come later, and what is counted by them.

use forebay_types::RunId;

use super::lookout::{Looked, watch_spaces};
use super::{Driver, MoverError, Outcome, Route};
use crate::endpoint::Origin;
use crate::journal::Journal;
use crate::machine::RouteIndex;

impl Outcome {
    /// Adds what was done before.
    pub fn add(&mut self, earlier: &Outcome) {
        self.counts.add(&earlier.counts);
        for (route, counts) in &earlier.by_route {
            self.by_route.entry(route.clone()).or_default().add(counts);
        }
    }
}

impl Driver<'_> {
    /// Routes that came since the last look.
    pub(super) fn take_routes(&mut self, journal: &Journal) -> Result<(), MoverError> {
        while let Some(route) = self.config.more_routes.as_ref().and_then(|more| more.try_recv().ok()) {
            let events = journal.at_work()?.events.into_iter().filter(|(name, ..)| *name == route.config.name);
            let events: Vec<(RunId, u64)> = events.map(|(_, run, events)| (run, events)).collect();
            self.machine.add_route(route.config.clone(), &events);
            self.routes.push(route.config.name.clone());
            self.looked.push(Looked::default());
            self.spaces.extend(watch_spaces(std::iter::once(&route.space)));
            self.added.push(route);
        }
        Ok(())
    }

    pub(super) fn route(&self, RouteIndex(at): RouteIndex) -> &Route {
        self.config.routes.get(at).unwrap_or_else(|| &self.added[at - self.config.routes.len()])
    }

    /// All of them, also those that came later.
    pub(super) fn all_routes(&self) -> impl Iterator<Item = &Route> {
        self.config.routes.iter().chain(&self.added)
    }

    /// Counts what the sources of all routes found lost.
    pub(super) fn count_losses(&mut self) {
        let lost = |route: &Route| match &route.origin {
            Origin::Events(source) => source.fragments_lost(),
            Origin::Files(_) => 0,
        };
        let fragments_lost = self.all_routes().map(lost).sum();
        self.counts.fragments_lost = fragments_lost;
    }
}
