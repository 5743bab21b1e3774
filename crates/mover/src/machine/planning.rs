//! What a look at a source found becomes consignments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_types::Time;

use super::events::EventPlan;
use super::merge::Naming;
use super::plan::{Planned, Scanned};
use super::route::Beginning;
use super::{DestinationIndex, Mover, Record, RouteIndex};
use crate::custody::{Change, Consignment, ConsignmentId, Delivery, SourceAnswer, What};
use crate::name::Name;
use crate::planted::{Planted, planted};
use crate::recipe::ZSTD_ENDING;
use crate::sidecar;

impl Mover {
    pub(super) fn scanned(&mut self, route: RouteIndex, scanned: Result<Scanned, String>, now: Time) {
        let scan_every = self.config.routes[route.0].scan_every;
        self.looked(route, now, |beginning, naming| {
            let Beginning::Files(plan) = beginning else { panic!("a route of events has no files") };
            plan.looked(scan_every, now);
            plan.scanned(scanned, naming, now)
        });
    }

    pub(super) fn looked_at_events(
        &mut self,
        route: RouteIndex,
        now: Time,
        look: impl FnOnce(&mut EventPlan, &mut Naming) -> Vec<Planned>,
    ) {
        self.looked(route, now, |beginning, naming| {
            let Beginning::Events(plan) = beginning else { panic!("a route of files has no events") };
            look(plan, naming)
        });
    }

    fn looked(&mut self, route: RouteIndex, now: Time, look: impl FnOnce(&mut Beginning, &mut Naming) -> Vec<Planned>) {
        let destinations = self.destinations_of(route);
        let config = &self.config.routes[route.0];
        let (has_zstd, has_sidecar) = (config.zstd.is_some(), config.sidecar);
        // All that a file of this name takes there.
        let is_taken = |name: &Name| {
            let compressed = name.with_ending(ZSTD_ENDING).ok().filter(|_| has_zstd);
            let name = compressed.as_ref().unwrap_or(name);
            let sidecar = sidecar::name_of(name).ok().filter(|_| has_sidecar);
            [Some(name), sidecar.as_ref()].into_iter().flatten().any(|name| has_name(&self.names, &destinations, name))
        };
        let mut naming = Naming { series: &mut self.numbering, is_taken: &is_taken };
        let planned = look(&mut self.beginnings[route.0], &mut naming);
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
        let (zstd, sidecar) = (config.zstd, config.sidecar);
        let mut blocked = BTreeSet::new();
        for Planned { name, recipe, series, content, terms, objection } in planned {
            let config = &self.config.routes[route.0];
            let settings = config.settings(terms.as_deref());
            let defined = config.defined(terms.as_deref());
            let defined = defined.map(|to| [(self.config.destinations[to.0].address.clone(), true)]);
            let destinations = defined.as_ref().map_or(destinations, |to| to.as_slice());
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
            let (of_name, made) = (Arc::clone(&recipe), made.collect());
            let mut consignment = Consignment::new(id, name.clone(), of_name, settings, made, series.clone());
            consignment.priority = terms.map_or(0, |terms| terms.priority);
            let priority = consignment.priority;
            // What has one of its names at one of them now is over first: then it is there, and is not ours to replace.
            let is_taken = consignment.names().any(|name| has_name(&self.names, destinations, name));
            if is_taken && !planted(Planted::NameGivenTwice) {
                assert!(
                    recipe.events().is_none(),
                    "{name} was given though it is taken, and its events are planned once"
                );
                blocked.extend(recipe.parts().iter().map(|part| part.name.clone()));
                continue;
            }
            self.next_consignment += 1;
            self.beginnings[route.0].take(&recipe);
            self.records.push(Record::Planned { id, route, name, recipe, series, settings, priority, deliveries });
            self.configure(route, &mut consignment);
            let policy = &self.config.routes[route.0].policy;
            // What was looked at need not be read once more before it is sent.
            let looked = objection.map(SourceAnswer::Damaged).or(content.map(SourceAnswer::Whole));
            let checked = looked.map(|looked| consignment.source_answer(looked, now, policy));
            self.records.extend(checked.into_iter().flatten().map(Record::Change));
            self.insert(id, route, consignment);
            self.settle(id, now);
        }
        self.beginnings[route.0].block(blocked);
    }

    /// Gives a consignment another name that somebody else's file kept from its own, if nothing of it is anywhere under that.
    pub(super) fn give_another_name(&mut self, id: ConsignmentId, now: Time) {
        // It may be over by now.
        let Some((route, before)) = self.consignments.get(&id).filter(|(_, of)| of.wants_another_name()) else {
            return;
        };
        let (route, before) = (*route, before.clone());
        let given = before.series().filter(|_| before.may_be_renamed()).and_then(|series| {
            let is_taken = |name: &Name| {
                let sidecar = sidecar::name_of(name).ok().filter(|_| before.names().count() > 1);
                let has = |name: &Name| {
                    before.deliveries.iter().any(|delivery| {
                        let holder = self.names.get(&(delivery.destination.clone(), name.clone()));
                        holder.is_some_and(|holder| *holder != id)
                    })
                };
                [Some(name), sidecar.as_ref()].into_iter().flatten().any(has)
            };
            let name_of = |number: u64| series.renumbered(&before.name, number);
            self.numbering.give_another(&series.names, series.number, name_of, &is_taken)
        });
        let (_, consignment) = self.consignments.get_mut(&id).expect("it is there");
        let changes = match given {
            None => consignment.keep_name(now, &self.config.routes[route.0].policy),
            Some((name, number)) => {
                let changes = consignment.rename(name.clone(), number, now);
                let series = consignment.series().cloned().expect("it is of one");
                self.records.push(Record::Renamed { id, route, name, series, why: words_of(&changes) });
                changes
            }
        };
        let after = consignment.clone();
        for key in names_of(&before) {
            self.names.remove(&key);
        }
        self.names.extend(names_of(&after).into_iter().map(|key| (key, id)));
        self.records.extend(changes.into_iter().map(Record::Change));
        self.settle(id, now);
    }

    /// What the configuration says of it now, rather than when it was planned.
    pub(super) fn configure(&self, route: RouteIndex, consignment: &mut Consignment) {
        let config = &self.config.routes[route.0];
        consignment.registers = config.register;
        let is_as_it_was = consignment.recipe.is_one_file();
        for delivery in &mut consignment.deliveries {
            let mut destinations = self.config.destinations.iter();
            let at = destinations.position(|destination| destination.address == delivery.destination);
            delivery.until_tape = at.is_some_and(|at| self.config.destinations[at].until_tape);
            let is_fetched = at.is_some_and(|at| config.pulls.contains(&DestinationIndex(at)));
            delivery.pulls = is_fetched && is_as_it_was && delivery.what == What::File;
        }
    }
}

/// Why what changed.
fn words_of(changes: &[Change]) -> String {
    changes.first().map(|change| change.why.clone()).unwrap_or_default()
}

/// Whether something that is not over has a name at one of the destinations.
fn has_name(names: &BTreeMap<(String, Name), ConsignmentId>, destinations: &[(String, bool)], name: &Name) -> bool {
    destinations.iter().any(|(to, _)| names.contains_key(&(to.clone(), name.clone())))
}

/// What it has at each destination: the name of its file, and that of its sidecar.
pub(super) fn names_of(consignment: &Consignment) -> Vec<(String, Name)> {
    let at =
        |delivery: &Delivery| consignment.names().map(|name| (delivery.destination.clone(), name.clone())).collect();
    let files = consignment.deliveries.iter().filter(|delivery| delivery.what == What::File);
    files.flat_map(|delivery| -> Vec<(String, Name)> { at(delivery) }).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use forebay_client::{AcceptedEvent, AcceptedPage};
    use forebay_types::{EventKey, StoreUuid};

    use super::super::{
        DestinationConfig, Done, Kept, Kind, Merge, MoverConfig, RouteConfig, Seen, StreamConfig, Task,
    };
    use super::*;
    use crate::custody::{PartIdentity, Policy};
    use crate::events::{EventKind, Examined};
    use crate::sums::Sums;

    fn route(name: &str, events: Option<StreamConfig>) -> RouteConfig {
        RouteConfig {
            name: name.to_owned(),
            destinations: vec![(DestinationIndex(0), true)],
            pulls: Vec::new(),
            policy: Policy::default(),
            settle: Duration::ZERO,
            merge: events.is_some().then_some(Merge { bytes: 1 << 20, wait: Duration::ZERO, name: None }),
            zstd: None,
            sidecar: events.is_some(),
            register: false,
            events,
            scan_every: Duration::from_secs(1),
            priority: 0,
            streams_max: 4,
        }
    }

    /// What the source has: a file that is called as the sidecar of the stream's first file is to be, and an event.
    fn answer(task: &Task) -> Option<Done> {
        let key = EventKey::new(7, 1);
        Some(match task {
            Task::Scan => {
                let name = "physics/run000007-00001.mdf.json".parse().expect("a name");
                let identity = PartIdentity { bytes: 5, modified_ns: 1, inode: 1 };
                let untouched = Duration::ZERO;
                let seen = Seen { name, identity, changed_ns: 1, untouched, announced: true, kind: Kind::File };
                Done::Scanned(Ok(Scanned { files: vec![seen], left_alone: Vec::new() }))
            }
            Task::List { .. } => {
                let events = vec![AcceptedEvent { key, fragments: 1, bytes: 3, incomplete: false }];
                Done::Listed(Ok(AcceptedPage { events, more: false, undecided_floor: None }))
            }
            Task::OfRun { .. } => Done::OfRun(Ok(Box::default())),
            Task::Examine { .. } => {
                let (kind, sums) = (EventKind::Mdf, Sums::of(b"abc"));
                let (numbered, incomplete, taken_unix_us) = (true, false, None);
                Done::Examined(Ok(vec![Examined::Event { kind, numbered, incomplete, taken_unix_us, sums }]))
            }
            _ => return None,
        })
    }

    #[test]
    fn events_whose_files_first_name_is_taken_by_their_sidecar_are_planned_under_the_next() {
        let store = StoreUuid::from_bytes([7; 16]);
        let (stream, order_wait) = ("physics".parse().expect("a name"), Duration::ZERO);
        let stream = StreamConfig { store, stream, order_wait, kind: None, defined: None };
        let destination = DestinationConfig { address: "/archive".to_owned(), streams_max: 4, until_tape: false };
        let config = MoverConfig {
            routes: vec![route("daq", None), route("stream", Some(stream))],
            destinations: vec![destination],
            streams_max: 4,
            once: true,
            patience: Duration::ZERO,
            token: 1,
        };
        let mut mover = Mover::new(config, Kept { next_consignment: 1, ..Kept::default() }, Time(0));
        let (mut names, mut now) = (Vec::new(), Time(0));
        while now < Time(10_000_000_000) {
            for record in mover.take_records() {
                if let Record::Planned { name, .. } = record {
                    names.push(name.to_string());
                }
            }
            match mover.next_job(now) {
                // What is sent takes its time.
                Some(job) => drop(answer(&job.task).map(|done| mover.done(job.id, done, now))),
                None => now = now + Duration::from_millis(500),
            }
        }
        assert_eq!(names, ["physics/run000007-00001.mdf.json", "physics/run000007-00002.mdf"]);
        assert!(mover.beginnings.iter().all(Beginning::has_all_but_blocked));
    }
}
