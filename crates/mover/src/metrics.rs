//! What a mover serves at `/metrics`: every number once, with its name, what it is, and where it comes from. `docs/metrics.md` is held against it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_telemetry::metrics::{ALARM_LABELS, Sample, alarms, one, perhaps, sample};
use forebay_telemetry::metrics_table;

use crate::machine::Amount;
use crate::monitor::{DestinationReport, MoverAlarm, Report, RouteReport};

/// What metrics are made of.
struct Seen {
    report: Arc<Report>,
    age: Duration,
}

/// The metrics of a look that lies so far back, in the text format of OpenMetrics, which Prometheus reads.
pub fn text(report: Arc<Report>, age: Duration) -> String {
    forebay_telemetry::metrics::text(METRICS, Seen { report, age })
}

fn routes(seen: &Seen, of: impl Fn(&RouteReport) -> Option<f64>) -> Vec<Sample> {
    seen.report.routes.iter().filter_map(|route| Some(sample(&route.name, of(route)?))).collect()
}

fn counts(seen: &Seen, of: impl Fn(&RouteReport) -> u64) -> Vec<Sample> {
    routes(seen, |route| Some(of(route) as f64))
}

fn destinations(seen: &Seen, of: impl Fn(&DestinationReport) -> Option<f64>) -> Vec<Sample> {
    seen.report.destinations.iter().filter_map(|to| Some(sample(&to.address, of(to)?))).collect()
}

fn two(one: &str, other: &str, value: u64) -> Sample {
    Sample { labels: vec![one.to_owned(), other.to_owned()], value: value as f64 }
}

fn by_state<'a>(name: &'a str, states: &'a BTreeMap<String, Amount>, of: fn(&Amount) -> u64) -> Vec<Sample> {
    states.iter().map(|(state, amount)| two(name, state, of(amount))).collect()
}

fn route_states(seen: &Seen, of: fn(&Amount) -> u64) -> Vec<Sample> {
    seen.report.routes.iter().flat_map(|route| by_state(&route.name, &route.states, of)).collect()
}

fn destination_states(seen: &Seen, of: fn(&Amount) -> u64) -> Vec<Sample> {
    seen.report.destinations.iter().flat_map(|to| by_state(&to.address, &to.states, of)).collect()
}

fn sent(seen: &Seen) -> Vec<Sample> {
    let of = |route: &RouteReport| -> Vec<Sample> {
        route.totals.sent_bytes.iter().map(|(to, bytes)| two(&route.name, to, *bytes)).collect()
    };
    seen.report.routes.iter().flat_map(of).collect()
}

fn failures(seen: &Seen) -> Vec<Sample> {
    let of = |to: &DestinationReport| -> Vec<Sample> {
        to.failures.iter().map(|(failure, count)| two(&to.address, failure, *count)).collect()
    };
    seen.report.destinations.iter().flat_map(of).collect()
}

const ROUTE: &[&str] = &["route"];
const ROUTE_STATE: &[&str] = &["route", "state"];
const DESTINATION: &[&str] = &["destination"];
const DESTINATION_STATE: &[&str] = &["destination", "state"];

metrics_table! { METRICS: Seen;
    "forebay_mover_info" Gauge &["version"], "1, with the version of the mover" => |seen| vec![sample(&seen.report.version, 1.0)];
    "forebay_mover_uptime_seconds" Gauge &[], "Time since the mover started" => |seen| one(seen.report.uptime_s);
    "forebay_mover_look_age_seconds" Gauge &[], "Age of everything told here: the mover looks at itself once a second" => |seen| one(seen.age.as_secs_f64());
    "forebay_alarm" Gauge ALARM_LABELS, "1 while the alarm is raised; docs/runbook.md says what to do" => |seen| alarms::<MoverAlarm>(&seen.report.alarms);

    "forebay_mover_files" Gauge ROUTE_STATE, "Files that the source has not let go, by how far they are" => |seen| route_states(seen, |amount| amount.files);
    "forebay_mover_bytes" Gauge ROUTE_STATE, "Their bytes" => |seen| route_states(seen, |amount| amount.bytes);
    "forebay_mover_oldest_seconds" Gauge ROUTE, "Time since the oldest file that the source has not let go was found; absent when there is none" => |seen| routes(seen, |route| route.oldest_s);
    "forebay_mover_oldest_unproven_seconds" Gauge ROUTE, "The same of the oldest that is not proven" => |seen| routes(seen, |route| route.oldest_unproven_s);
    "forebay_mover_held_seconds" Gauge ROUTE, "For how long a person has held the first file that is held" => |seen| routes(seen, |route| route.held_s);
    "forebay_mover_tape_wait_seconds" Gauge ROUTE, "For how long the first file that waits for tape has waited" => |seen| routes(seen, |route| route.tape_s);
    "forebay_mover_to_send_bytes" Gauge ROUTE, "Bytes that are to be sent to required destinations still" => |seen| counts(seen, |route| route.to_send_bytes);
    "forebay_mover_backlog_seconds" Gauge ROUTE, "Time until all that waits is proven, at the rate of the last minute; absent while nothing is sent, or nothing waits" => |seen| routes(seen, |route| route.backlog_s);
    "forebay_mover_streams_running" Gauge ROUTE, "Files of the route that are read or sent now" => |seen| counts(seen, |route| route.streams_running as u64);
    "forebay_mover_streams_max" Gauge ROUTE, "And how many may be" => |seen| counts(seen, |route| route.streams_max as u64);

    "forebay_mover_files_found" Counter ROUTE, "Files that were found" => |seen| counts(seen, |route| route.totals.found.files);
    "forebay_mover_found_bytes" Counter ROUTE, "Their bytes" => |seen| counts(seen, |route| route.totals.found.bytes);
    "forebay_mover_sent_bytes" Counter &["route", "destination"], "Bytes that were sent, also in vain" => sent;
    "forebay_mover_files_proven" Counter ROUTE, "Files that all required destinations proved; one that is asked for once more counts again" => |seen| counts(seen, |route| route.totals.proven.files);
    "forebay_mover_proven_bytes" Counter ROUTE, "Their bytes" => |seen| counts(seen, |route| route.totals.proven.bytes);
    "forebay_mover_files_released" Counter ROUTE, "Files that the source let go" => |seen| counts(seen, |route| route.totals.released.files);
    "forebay_mover_released_bytes" Counter ROUTE, "Their bytes" => |seen| counts(seen, |route| route.totals.released.bytes);
    "forebay_mover_files_withdrawn" Counter ROUTE, "Files that changed before they were anywhere, and are found again" => |seen| counts(seen, |route| route.totals.withdrawn);
    "forebay_mover_files_quarantined" Counter ROUTE, "Times that a file was quarantined, as a whole or at a destination" => |seen| counts(seen, |route| route.totals.quarantined);

    "forebay_mover_source_look_age_seconds" Gauge ROUTE, "Time since the source was last looked at" => |seen| routes(seen, |route| route.looked_s);
    "forebay_mover_source_failing_seconds" Gauge ROUTE, "For how long the source has given no answer; absent while it does" => |seen| routes(seen, |route| route.failing_s);
    "forebay_mover_left_alone" Gauge ROUTE, "Names with data that are left alone, as they need somebody" => |seen| counts(seen, |route| route.left_alone as u64);
    "forebay_mover_blocked" Gauge ROUTE, "Files that wait for another of their name to be over" => |seen| counts(seen, |route| route.blocked as u64);
    "forebay_mover_runs_refused" Gauge ROUTE, "Runs whose events are left in the store, as the definition of their stream cannot be gone by" => |seen| counts(seen, |route| route.refusals.len() as u64);
    "forebay_mover_source_free_bytes" Gauge ROUTE, "What the source's store or file system takes still" => |seen| routes(seen, |route| Some(route.space?.free_bytes as f64));
    "forebay_mover_source_capacity_bytes" Gauge ROUTE, "What it takes when it is empty" => |seen| routes(seen, |route| Some(route.space?.capacity_bytes as f64));
    "forebay_mover_source_time_to_full_seconds" Gauge ROUTE, "Time until it is full: as a store tells it, else at the rate of the last five minutes; absent while it does not fill" => |seen| routes(seen, |route| route.space?.full_in_s);
    "forebay_mover_registering_failing_seconds" Gauge ROUTE, "For how long files could not be registered; absent while they can" => |seen| routes(seen, |route| route.registering_fails_s);

    "forebay_mover_deliveries" Gauge DESTINATION_STATE, "Files on their way to the destination that their source has not let go, by how far they are there" => |seen| destination_states(seen, |amount| amount.files);
    "forebay_mover_delivery_bytes" Gauge DESTINATION_STATE, "Their bytes" => |seen| destination_states(seen, |amount| amount.bytes);
    "forebay_mover_destination_away" Gauge DESTINATION, "1 while the destination counts as away, after three failures in a row: one step at a time is tried" => |seen| destinations(seen, |to| Some(f64::from(u8::from(to.away))));
    "forebay_mover_destination_failing_seconds" Gauge DESTINATION, "Time since the first of the failures in a row; absent while there is none" => |seen| destinations(seen, |to| to.failing_s);
    "forebay_mover_destination_next_try_seconds" Gauge DESTINATION, "When a destination that is away is tried again" => |seen| destinations(seen, |to| to.next_try_s);
    "forebay_mover_destination_streams_running" Gauge DESTINATION, "Files that are sent there now" => |seen| destinations(seen, |to| Some(to.streams_running as f64));
    "forebay_mover_destination_streams_max" Gauge DESTINATION, "And how many may be" => |seen| destinations(seen, |to| Some(to.streams_max as f64));
    "forebay_mover_destination_failures" Counter &["destination", "failure"], "Steps that failed there: refused, not-now (away, full, slow) or unknown (cut, silent)" => failures;

    "forebay_mover_jobs_stalled" Counter &[], "Steps that were given up, as nothing moved in them" => |seen| one(seen.report.jobs_stalled as f64);
    "forebay_mover_journal_transitions" Counter &[], "Transitions that were written to the journal" => |seen| one(seen.report.journal.transitions as f64);
    "forebay_mover_journal_commit_age_seconds" Gauge &[], "Time since the last of them was durable; absent before the first" => |seen| perhaps(seen.report.journal.commit_age_s);
    "forebay_mover_journal_free_bytes" Gauge &[], "What the journal's file system takes still" => |seen| perhaps(seen.report.journal.free_bytes.map(|bytes| bytes as f64));
}

#[cfg(test)]
mod tests {
    use forebay_telemetry::metrics::{Metric, check_table, rows};

    use super::*;

    const PAGE: &str = include_str!("../../../docs/metrics.md");

    #[test]
    fn the_page_has_each_metric_in_its_order_and_nothing_else() {
        let wanted: Vec<String> = METRICS.iter().map(Metric::row).collect();
        assert_eq!(rows(PAGE, "The mover"), wanted, "the table of docs/metrics.md should be:\n{}", wanted.join("\n"));
    }

    #[test]
    fn names_are_those_of_prometheus_with_units_at_their_end() {
        check_table(METRICS).unwrap_or_else(|wrong| panic!("{wrong}"));
    }

    #[test]
    fn what_is_not_known_is_not_told() {
        let route = RouteReport { name: "daq".to_owned(), oldest_s: Some(7.5), ..RouteReport::default() };
        let report = Report { routes: vec![route], ..Report::default() };
        let told = text(Arc::new(report), Duration::from_secs(1));
        assert!(told.contains("forebay_mover_oldest_seconds{route=\"daq\"} 7.5\n"), "{told}");
        assert!(
            !told.contains("forebay_mover_backlog_seconds{") && !told.contains("\nforebay_mover_journal_free_bytes "),
            "{told}"
        );
        assert!(
            told.contains("forebay_alarm{code=\"FB-511\",name=\"no-mover\",severity=\"critical\"} 0.0\n"),
            "{told}"
        );
    }
}
