//! How everything is at one moment, for whoever watches.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_types::Time;
use serde::{Deserialize, Serialize};

use super::flow::Place;
use super::{DestinationIndex, Mover, RouteIndex};
use crate::custody::{Consignment, ConsignmentId, Delivery, DeliveryState, Stage, What};
use crate::name::Name;

/// So many files, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Amount {
    /// How many.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Amount {
    /// One more.
    pub fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// The same of several.
    pub fn sum<'a>(of: impl IntoIterator<Item = &'a Amount>) -> Amount {
        of.into_iter().fold(Amount::default(), |sum, one| Amount {
            files: sum.files + one.files,
            bytes: sum.bytes.saturating_add(one.bytes),
        })
    }
}

/// How a place answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaceSurvey {
    /// Files that are sent there now.
    pub streams_running: usize,
    /// And how many may be.
    pub streams_max: usize,
    /// Failures in a row that say something of the whole place.
    pub failures: u32,
    /// Whether it counts as away: one step at a time is tried.
    pub away: bool,
    /// How long ago the first of these failures was.
    pub failing_for: Option<Duration>,
    /// When it is tried again, where it is away and nothing runs there.
    pub next_try_in: Option<Duration>,
}

/// How a route is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteSurvey {
    /// Files that are not over, by how far they are.
    pub states: BTreeMap<&'static str, Amount>,
    /// The oldest that is not over, and the oldest that is not proven.
    pub oldest: Option<ConsignmentId>,
    /// See `oldest`.
    pub oldest_unproven: Option<ConsignmentId>,
    /// Bytes that are to be sent to required destinations still.
    pub to_send_bytes: u64,
    /// The first that is quarantined, at any of its destinations, and what was said of it.
    pub first_quarantined: Option<(String, String)>,
    /// How many are.
    pub quarantined: u64,
    /// Since when its source gives no answer.
    pub failing_for: Option<Duration>,
    /// Files with data that the last look at the source left alone.
    pub left_alone: usize,
    /// Files that wait for another of their name.
    pub blocked: usize,
    /// Runs whose events are left in the store, and why.
    pub refusals: Vec<(u32, String)>,
    /// Files that are read or sent now.
    pub streams_running: usize,
    /// And how many may be.
    pub streams_max: usize,
    /// Files that are proven, and not registered.
    pub unregistered: u64,
    /// How what registers them answers.
    pub registry: PlaceSurvey,
}

/// How a destination is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DestinationSurvey {
    /// Files on their way there that are not over, by how far they are there.
    pub states: BTreeMap<&'static str, Amount>,
    /// Of these, those that something is to be done for there, or waits for another try.
    pub waiting: Amount,
    /// How it answers.
    pub place: PlaceSurvey,
}

/// How everything is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// By the places of routes in the configuration.
    pub routes: Vec<RouteSurvey>,
    /// By the places of destinations there.
    pub destinations: Vec<DestinationSurvey>,
}

impl Consignment {
    /// How far it is, and what was said of it, as people are told: as far as the required delivery that is least far.
    pub fn standing_in_words(&self) -> (&'static str, String) {
        let required = self.deliveries.iter().filter(|delivery| delivery.required);
        let least = required.min_by_key(|delivery| delivery.state().as_far_as(delivery.what));
        match (self.stage(), least) {
            _ if self.is_held() => ("held", self.words().to_owned()),
            (Stage::Delivering, Some(delivery)) => {
                (delivery.state().as_far_as(delivery.what).name(), words_of(delivery))
            }
            (stage, _) => (stage.name(), self.words().to_owned()),
        }
    }

    /// How long it is until all that asks its required destinations once more is due, when nothing else is left to be done there.
    pub fn asked_again_in(&self, now: Time) -> Option<Duration> {
        let required = || (0..self.deliveries.len()).filter(|place| self.deliveries[*place].required);
        let is_verified = |place: usize| self.deliveries[place].state() >= DeliveryState::Verified;
        let due = required().filter_map(|place| self.delivery_due(place)).max()?;
        required().all(is_verified).then(|| due.since(now))
    }
}

fn words_of(delivery: &Delivery) -> String {
    let words = &delivery.row().words;
    if words.is_empty() { String::new() } else { format!("{}: {words}", delivery.destination) }
}

impl Mover {
    /// The name of a consignment, as long as it is known.
    pub fn name_of(&self, id: ConsignmentId) -> Option<&Name> {
        self.consignments.get(&id).map(|(_, consignment)| &consignment.name)
    }

    /// How everything is. It looks at each file that is not over.
    pub fn survey(&self, now: Time) -> Survey {
        let routes = self.beginnings.iter().enumerate().map(|(at, beginning)| {
            let (streams_running, streams_max) = self.flow.streams(RouteIndex(at));
            RouteSurvey {
                failing_for: beginning.failing_since().map(|since| now.since(since)),
                left_alone: beginning.left_alone(),
                blocked: beginning.blocked(),
                refusals: beginning
                    .refusals()
                    .into_iter()
                    .map(|(run, refusal)| (run.0, refusal.words.clone()))
                    .collect(),
                streams_running,
                streams_max,
                registry: self.flow.at(Place::Registry(RouteIndex(at)), now),
                ..RouteSurvey::default()
            }
        });
        let destinations = (0..self.config.destinations.len()).map(|at| DestinationSurvey {
            place: self.flow.at(Place::Destination(DestinationIndex(at)), now),
            ..DestinationSurvey::default()
        });
        let mut survey = Survey { routes: routes.collect(), destinations: destinations.collect() };
        for (route, consignment) in self.consignments.values() {
            if !consignment.stage().is_over() {
                survey.routes[route.0].note(consignment);
                self.note_deliveries(&mut survey.destinations, *route, consignment);
            }
        }
        survey
    }

    fn note_deliveries(&self, destinations: &mut [DestinationSurvey], route: RouteIndex, consignment: &Consignment) {
        // A file and its sidecar wait as one.
        let mut waits_at = Vec::new();
        for (place, delivery) in consignment.deliveries.iter().enumerate() {
            let Some(at) = self.destination(route, consignment, place) else { continue };
            let survey = &mut destinations[at.0];
            if delivery.what == What::File {
                survey.states.entry(delivery.state().name()).or_default().add(bytes_of(consignment));
            }
            if consignment.delivery_due(place).is_some() && !waits_at.contains(&at) {
                waits_at.push(at);
                survey.waiting.add(bytes_of(consignment));
            }
        }
    }
}

impl RouteSurvey {
    fn note(&mut self, consignment: &Consignment) {
        let (state, words) = consignment.standing_in_words();
        let bytes = bytes_of(consignment);
        self.states.entry(state).or_default().add(bytes);
        self.oldest.get_or_insert(consignment.id);
        let is_quarantined = |delivery: &&Delivery| delivery.state() == DeliveryState::Quarantined;
        let quarantined = consignment.deliveries.iter().find(is_quarantined);
        if consignment.stage() == Stage::Quarantined || quarantined.is_some() {
            self.quarantined += 1;
            let words = quarantined.map_or(words, words_of);
            self.first_quarantined.get_or_insert_with(|| (consignment.name.to_string(), words));
        }
        if consignment.stage() == Stage::Proven {
            self.unregistered += u64::from(consignment.registers_now());
            return;
        }
        self.oldest_unproven.get_or_insert(consignment.id);
        if consignment.is_held() {
            return;
        }
        let is_to_be_sent = |delivery: &&Delivery| {
            delivery.required && delivery.what == What::File && delivery.state() <= DeliveryState::Sending
        };
        let to_send = consignment.deliveries.iter().filter(is_to_be_sent).count() as u64;
        self.to_send_bytes = self.to_send_bytes.saturating_add(bytes.saturating_mul(to_send));
    }
}

/// What it comes to, or its parts do before that is known.
fn bytes_of(consignment: &Consignment) -> u64 {
    consignment.content().map_or_else(|| consignment.bytes(), |sums| sums.bytes)
}
