//! What a look at a source found becomes consignments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_types::Time;

use super::events::EventPlan;
use super::merge::Naming;
use super::plan::{Planned, Scanned};
use super::route::Beginning;
use super::{DestinationIndex, Mover, Record, RouteIndex};
use crate::custody::{Consignment, ConsignmentId, Delivery, SourceAnswer, What};
use crate::name::Name;
use crate::planted::{Planted, planted};
use crate::recipe::ZSTD_ENDING;

impl Mover {
    pub(super) fn scanned(&mut self, route: RouteIndex, scanned: Result<Scanned, String>, now: Time) {
        let destinations = self.destinations_of(route);
        let zstd = self.config.routes[route.0].zstd.is_some();
        let is_taken = |name: &Name| {
            let compressed = name.with_ending(ZSTD_ENDING).ok().filter(|_| zstd);
            has_name(&self.names, &destinations, compressed.as_ref().unwrap_or(name))
        };
        let mut naming = Naming { series: &mut self.series, is_taken: &is_taken };
        let Beginning::Files(plan) = &mut self.beginnings[route.0] else { panic!("a route of events has no files") };
        plan.looked(self.config.routes[route.0].scan_every, now);
        let planned = plan.scanned(scanned, &mut naming, now);
        self.plan(route, planned, &destinations, now);
    }

    pub(super) fn looked_at_events(
        &mut self,
        route: RouteIndex,
        now: Time,
        look: impl FnOnce(&mut EventPlan, &mut Naming) -> Vec<Planned>,
    ) {
        let destinations = self.destinations_of(route);
        let zstd = self.config.routes[route.0].zstd.is_some();
        let is_taken = |name: &Name| {
            let compressed = name.with_ending(ZSTD_ENDING).ok().filter(|_| zstd);
            has_name(&self.names, &destinations, compressed.as_ref().unwrap_or(name))
        };
        let mut naming = Naming { series: &mut self.series, is_taken: &is_taken };
        let Beginning::Events(plan) = &mut self.beginnings[route.0] else { panic!("a route of files has no events") };
        let planned = look(plan, &mut naming);
        self.plan(route, planned, &destinations, now);
    }

    /// The addresses to which a route leads, and whether they are required.
    fn destinations_of(&self, route: RouteIndex) -> Vec<(String, bool)> {
        let address = |(destination, required): &(DestinationIndex, bool)| {
            (self.config.destinations[destination.0].address.clone(), *required)
        };
        self.config.routes[route.0].destinations.iter().map(address).collect()
    }

    fn plan(&mut self, route: RouteIndex, planned: Vec<Planned>, destinations: &[(String, bool)], now: Time) {
        let config = &self.config.routes[route.0];
        let (zstd, sidecar, settings) = (config.zstd, config.sidecar, config.settings());
        let mut blocked = BTreeSet::new();
        for Planned { name, recipe, series, content } in planned {
            // What it comes to was seen before it is compressed.
            let content = content.filter(|_| zstd.is_none());
            let (name, recipe) =
                zstd.map_or((name.clone(), Arc::clone(&recipe)), |level| recipe.compressed(&name, level));
            let id = ConsignmentId(self.next_consignment);
            let of =
                |what: What| destinations.iter().map(move |(address, required)| (address.clone(), what, *required));
            let deliveries: Vec<(String, What, bool)> =
                of(What::File).chain(of(What::Sidecar).filter(|_| sidecar)).collect();
            let made = deliveries.iter().map(|(address, what, required)| Delivery::new(address, *what, *required));
            let mut consignment = Consignment::new(id, name.clone(), Arc::clone(&recipe), settings, made.collect());
            // What has one of its names at one of them now is over first: then it is there, and is not ours to replace.
            let is_taken = consignment.names().any(|name| has_name(&self.names, destinations, name));
            if is_taken && !planted(Planted::NameGivenTwice) {
                blocked.extend(recipe.parts().iter().map(|part| part.name.clone()));
                continue;
            }
            self.next_consignment += 1;
            self.beginnings[route.0].take(&recipe);
            self.records.push(Record::Planned { id, route, name, recipe, series, settings, deliveries });
            self.configure(route, &mut consignment);
            let policy = &self.config.routes[route.0].policy;
            // What was looked at need not be read once more before it is sent.
            let checked = content.map(|checked| consignment.source_answer(SourceAnswer::Whole(checked), now, policy));
            self.records.extend(checked.into_iter().flatten().map(Record::Change));
            self.insert(id, route, consignment);
            self.settle(id, now);
        }
        self.beginnings[route.0].block(blocked);
    }

    /// What the configuration says of it now, rather than when it was planned.
    pub(super) fn configure(&self, route: RouteIndex, consignment: &mut Consignment) {
        consignment.registers = self.config.routes[route.0].register;
        for delivery in &mut consignment.deliveries {
            let mut destinations = self.config.destinations.iter();
            let destination = destinations.find(|destination| destination.address == delivery.destination);
            delivery.until_tape = destination.is_some_and(|destination| destination.until_tape);
        }
    }
}

/// Whether something that is not over has a name at one of the destinations.
fn has_name(names: &BTreeMap<(String, Name), ConsignmentId>, destinations: &[(String, bool)], name: &Name) -> bool {
    destinations.iter().any(|(to, _)| names.contains_key(&(to.clone(), name.clone())))
}
