//! Decides what an operator is told of a mover: which alarms are raised, how fast everything goes, how long what waits takes and how long the space lasts.
//!
//! A machine: it gets the time and what was seen ([`Observation`]), and makes of it what is told ([`Report`]). It has no clock and asks nobody.

mod alarm;
mod clocks;
mod observation;
mod rates;
mod report;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_telemetry::alarm::{Alarms, Change, Raised, Wanted};
use forebay_types::Time;

use crate::machine::{Amount, Survey};

pub use alarm::MoverAlarm;
pub use clocks::{Clocks, RouteClocks};
pub use observation::{Observation, SeenDestination, SeenJournal, SeenRoute, Space, Told};
use rates::{RouteMeter, SentMeter};
pub use report::{DestinationReport, JournalReport, Rates, Report, RouteReport, RouteTally, SpaceReport};
use rules::{Judgement, RouteRules};

/// What a person decides about alarms.
#[derive(Clone, Copy, Debug)]
pub struct MonitorConfig {
    /// A destination that is away for so long, a source that cannot be looked at, or registering that fails, is an alarm; what takes its time is after a
    /// multiple of that.
    pub alarm_after: Duration,
}

/// The machine.
#[derive(Debug)]
pub struct Monitor {
    config: MonitorConfig,
    raised: Raised<MoverAlarm>,
    routes: BTreeMap<String, (RouteMeter, RouteRules)>,
    destinations: BTreeMap<String, SentMeter>,
}

impl Monitor {
    /// One that has seen nothing.
    pub fn new(config: MonitorConfig) -> Monitor {
        Monitor { config, raised: Raised::default(), routes: BTreeMap::new(), destinations: BTreeMap::new() }
    }

    /// Takes a look in; what it makes of it, and which alarms came or went by it.
    pub fn observe(&mut self, now: Time, seen: &Observation) -> (Report, Vec<Change<MoverAlarm>>) {
        self.routes.retain(|name, _| seen.routes.iter().any(|route| route.name == *name));
        self.destinations.retain(|address, _| seen.destinations.iter().any(|to| to.address == *address));
        let mut judgement = Judgement { now, config: &self.config, raised: &self.raised, wanted: Wanted::new() };
        let mut routes = Vec::new();
        for route in &seen.routes {
            let (meter, rules) = self.routes.entry(route.name.clone()).or_default();
            let report = report_of(now, route, meter);
            judgement.of_route(rules, route, &report);
            routes.push(report);
        }
        judgement.of_all(seen);
        let wanted = judgement.wanted;
        let changes = self.raised.set(now, wanted);
        let destinations = seen.destinations.iter().map(|destination| self.destination(now, destination, seen));
        let report = Report {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            unix_ms: seen.unix_ms,
            uptime_s: seen.uptime.as_secs_f64(),
            streams_running: seen.routes.iter().map(|route| route.survey.streams_running).sum(),
            streams_max: seen.streams_max,
            jobs_stalled: seen.jobs_stalled,
            journal: JournalReport {
                transitions: seen.journal.transitions,
                commit_age_s: seconds(seen.journal.commit_age),
                free_bytes: seen.journal.free_bytes,
            },
            destinations: destinations.collect(),
            routes,
            alarms: self.raised.all(now, |alarm| alarm.info().command),
            ..Report::default()
        };
        (report, changes)
    }

    fn destination(&mut self, now: Time, seen: &SeenDestination, all: &Observation) -> DestinationReport {
        let sent = all.routes.iter().filter_map(|route| route.tally.sent_bytes.get(&seen.address)).sum();
        let meter = self.destinations.entry(seen.address.clone()).or_default();
        let place = &seen.survey.place;
        DestinationReport {
            address: seen.address.clone(),
            states: named(&seen.survey.states),
            waiting: seen.survey.waiting,
            away: place.away,
            failing_s: seconds(place.failing_for),
            next_try_s: seconds(place.next_try_in),
            streams_running: place.streams_running,
            streams_max: place.streams_max,
            sent_bytes_per_s: meter.rate(now, sent),
            failures: seen.failures.iter().map(|(what, count)| ((*what).to_owned(), *count)).collect(),
            last_words: seen.last_words.as_ref().map(|(words, _)| words.clone()),
            last_words_s: seconds(seen.last_words.as_ref().map(|(_, ago)| *ago)),
        }
    }
}

fn report_of(now: Time, seen: &SeenRoute, meter: &mut RouteMeter) -> RouteReport {
    let survey = &seen.survey;
    let rates = meter.rates(now, &seen.tally);
    let space = seen.space.as_ref().map(|space| SpaceReport {
        free_bytes: space.free_bytes,
        capacity_bytes: space.capacity_bytes,
        full_in_s: meter.full_in_s(now, space),
    });
    RouteReport {
        name: seen.name.clone(),
        from: seen.from.clone(),
        states: named(&survey.states),
        waiting: Amount::sum(survey.states.values()),
        oldest_s: seconds(seen.oldest),
        oldest_unproven_s: seconds(seen.oldest_unproven),
        totals: seen.tally.clone(),
        to_send_bytes: survey.to_send_bytes,
        backlog_s: backlog_s(seen, &rates),
        rates,
        looked_s: seconds(seen.looked),
        failing_s: seconds(survey.failing_for),
        failing_words: seen.failing_words.clone().filter(|_| survey.failing_for.is_some()),
        left_alone: survey.left_alone,
        left_alone_names: seen.left_alone_names.clone(),
        blocked: survey.blocked,
        refusals: survey.refusals.clone(),
        held_s: seconds(seen.held),
        tape_s: seconds(seen.tape),
        streams_running: survey.streams_running,
        streams_max: survey.streams_max,
        registering_fails_s: seconds(survey.registry.failing_for),
        space,
    }
}

/// Time until all that waits is proven: what is to be sent at the rate of the last minute, then the wait between both proofs.
fn backlog_s(seen: &SeenRoute, rates: &Rates) -> Option<f64> {
    let survey = &seen.survey;
    survey.oldest_unproven?;
    let recheck_s = seen.recheck_after.as_secs_f64();
    match survey.to_send_bytes {
        0 => Some(recheck_s),
        _ if rates.sent_bytes <= 0.0 => None,
        bytes => Some(bytes as f64 / rates.sent_bytes + recheck_s),
    }
}

fn named(states: &BTreeMap<&'static str, Amount>) -> BTreeMap<String, Amount> {
    states.iter().map(|(state, amount)| ((*state).to_owned(), *amount)).collect()
}

fn seconds(time: Option<Duration>) -> Option<f64> {
    time.map(|time| time.as_secs_f64())
}

/// How long ago a moment of the calendar was, in the eyes of whoever looks now.
pub fn ago(unix_ms: u64, then_unix_ms: i64) -> Duration {
    Duration::from_millis(unix_ms.saturating_sub(u64::try_from(then_unix_ms).unwrap_or(0)))
}

impl RouteClocks {
    /// When what a survey calls the oldest that is not proven was found.
    pub fn unproven_since(&self, survey: &Survey, route: usize) -> Option<i64> {
        let id = survey.routes[route].oldest_unproven?;
        self.found.get(&i64::try_from(id.0).ok()?).copied()
    }
}
