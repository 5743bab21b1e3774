//! The state of lanes and of the server, as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_engine::{DriveHealth, LaneStatus};
use forebay_store::{ControlStatus, DriveCounts};
use forebay_types::{DriveNumber, RunRecord, RunState, StreamName};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::monitor::Findings;
use crate::pressure::Pressure;
use crate::rates::Rates;

/// Connections by what their clients are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ClassCounts {
    pub(crate) readout: usize,
    pub(crate) filter: usize,
    pub(crate) mover: usize,
    pub(crate) monitor: usize,
}

/// A stream, as a lane sees it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StreamReport {
    pub(crate) name: StreamName,
    /// Accepted events that it has not released.
    pub(crate) events_waiting: u64,
    /// Releases that its recorder told since the start.
    pub(crate) events_released: u64,
}

/// What subscribers of a lane were told since the start, each counted for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ToldCounts {
    /// Events that they were told of.
    pub(crate) events: u64,
    /// Events that they wanted and that were over.
    pub(crate) gone: u64,
    /// Events that were forgotten before they looked, wanted or not.
    pub(crate) dropped: u64,
}

/// The names of the store, as far as a lane has them.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct NamesReport {
    pub(crate) names: u64,
    pub(crate) names_bytes: u64,
    pub(crate) names_bytes_max: u64,
}

/// So many runs of a kind are named.
const RUNS_NAMED_MAX: usize = 16;

/// The runs of the store, all in lane 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct RunsReport {
    pub(crate) declared: u64,
    pub(crate) running: u64,
    pub(crate) stopped: u64,
    pub(crate) closed: u64,
    pub(crate) discarded: u64,
    /// Of all of these, those that somebody holds.
    pub(crate) held: u64,
    /// The first of those that run, are stopped and not closed, and are held.
    pub(crate) running_runs: Vec<u32>,
    pub(crate) stopped_runs: Vec<u32>,
    pub(crate) held_runs: Vec<u32>,
}

impl RunsReport {
    /// Of these.
    pub(crate) fn of<'a>(runs: impl Iterator<Item = &'a RunRecord>) -> RunsReport {
        let mut report = RunsReport::default();
        let note = |count: &mut u64, named: Option<&mut Vec<u32>>, run: &RunRecord| {
            *count += 1;
            if let Some(named) = named.filter(|named| named.len() < RUNS_NAMED_MAX) {
                named.push(run.run.0);
            }
        };
        for run in runs {
            match run.state {
                RunState::Declared => note(&mut report.declared, None, run),
                RunState::Running => note(&mut report.running, Some(&mut report.running_runs), run),
                RunState::Stopped => note(&mut report.stopped, Some(&mut report.stopped_runs), run),
                RunState::Closed => note(&mut report.closed, None, run),
                RunState::Discarded => note(&mut report.discarded, None, run),
            }
            if run.is_held() {
                note(&mut report.held, Some(&mut report.held_runs), run);
            }
        }
        report
    }
}

impl From<[usize; 4]> for ClassCounts {
    fn from([readout, filter, mover, monitor]: [usize; 4]) -> Self {
        ClassCounts { readout, filter, mover, monitor }
    }
}

/// The state of a lane and of what is connected to it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LaneReport {
    #[serde(flatten)]
    pub(crate) status: LaneStatus,
    /// Seconds until it is full at the rates of the last minute; absent when it does not fill.
    pub(crate) time_left_s: Option<f64>,
    /// Seconds until all that can be made anew is, at the rate of the last minute.
    pub(crate) rebuild_left_s: Option<f64>,
    pub(crate) rates: Rates,
    /// Whose reads from the drives are slowed.
    pub(crate) pressure: Pressure,
    /// How long writers are asked to wait after each put.
    pub(crate) put_wait_ms: u32,
    /// Answers to puts that asked for that, since the start.
    pub(crate) put_replies_busy: u64,
    pub(crate) connections: ClassCounts,
    /// Events that were lent to filters since the start.
    pub(crate) events_leased: u64,
    pub(crate) told: ToldCounts,
    pub(crate) streams: Vec<StreamReport>,
    /// Files that clients have open, each counted for each client.
    pub(crate) files_open: usize,
    /// Names of files and of all else that has one, their memory, and what that may become: all in lane 0.
    #[serde(flatten)]
    pub(crate) names: NamesReport,
    /// Runs that were declared: all in lane 0.
    pub(crate) runs: RunsReport,
    /// Memory of what arrived and is not taken, and what it may become.
    pub(crate) staging_bytes: usize,
    pub(crate) staging_bytes_max: usize,
    /// Answers that wait for their clients.
    pub(crate) reply_bytes: usize,
}

impl LaneReport {
    /// The number of the lane.
    pub(crate) fn lane(&self) -> u16 {
        self.status.lane
    }

    /// Whether the lane has found out what it holds.
    pub(crate) fn knows_what_is_stored(&self) -> bool {
        !matches!(self.status.state, "recovering" | "stopped")
    }

    /// Whether something that is stored comes out of reach without this drive.
    pub(crate) fn needs_drive(&self, drive: DriveNumber) -> bool {
        let lives_there = |health: &DriveHealth| health.drive == drive.0 && health.segments_alive > 0;
        self.status.failures_left == Some(0) && self.status.drive_health.iter().any(lives_there)
    }

    /// Of the drives that are `away`, those that may be all that brings back what is out of reach: all when it is known that something is
    /// missing, or not known what is stored; else those on which something lives, when they are more than parity makes up for.
    pub(crate) fn drives_to_keep(&self, away: &[DriveNumber], parity_shards: u8) -> Vec<DriveNumber> {
        let status = &self.status;
        let flushes = status.flushes_lost + status.flushes_possibly_lost + status.flushes_unavailable;
        let missed = flushes + status.segments_unreadable;
        if status.state != "serving" || missed + status.fragments_known_lost > 0 {
            return away.to_vec();
        }
        let lives_there = |drive: &&DriveNumber| {
            status.drive_health.iter().any(|health| health.drive == drive.0 && health.segments_alive > 0)
        };
        let needed: Vec<DriveNumber> = away.iter().filter(lives_there).copied().collect();
        if needed.len() > usize::from(parity_shards) { needed } else { Vec::new() }
    }

    /// The answer to Status on a connection of the lane.
    pub(crate) fn to_json(&self) -> String {
        let mut report = object(self);
        report.insert("server".to_owned(), json!(crate::SERVER_NAME));
        Value::Object(report).to_string()
    }
}

/// The whole server at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) uptime: Duration,
    pub(crate) stopping: bool,
    pub(crate) control: ControlStatus,
    /// Connections that belong to no lane.
    pub(crate) control_connections: [usize; 4],
    /// A lane that gave no report in time is `None`.
    pub(crate) lanes: Vec<Option<LaneReport>>,
    /// By the number of the drive.
    pub(crate) counts: BTreeMap<u16, DriveCounts>,
    pub(crate) findings: Findings,
}

impl Snapshot {
    /// Connections of all lanes and of none.
    pub(crate) fn connections(&self) -> ClassCounts {
        let mut connections = self.control_connections;
        for report in self.lanes.iter().flatten() {
            let ClassCounts { readout, filter, mover, monitor } = report.connections;
            for (sum, count) in connections.iter_mut().zip([readout, filter, mover, monitor]) {
                *sum += count;
            }
        }
        connections.into()
    }

    /// Units that were found damaged on a drive.
    pub(crate) fn units_damaged(&self, drive: u16) -> u64 {
        let on = |report: &LaneReport| report.status.counters.units_damaged_by_drive.get(&drive).copied();
        self.lanes.iter().flatten().filter_map(on).sum()
    }

    /// Of the units that were found damaged on a drive, those that were written again.
    pub(crate) fn units_mended(&self, drive: u16) -> u64 {
        self.health(drive).map(|health| health.mended).sum()
    }

    /// Segments that have a shard on a drive; `None` as long as a lane has not said what it holds.
    pub(crate) fn segments_alive(&self, drive: u16) -> Option<u64> {
        let known = self.lanes.iter().all(|lane| lane.as_ref().is_some_and(LaneReport::knows_what_is_stored));
        known.then(|| self.health(drive).map(|health| health.segments_alive).sum())
    }

    fn health(&self, drive: u16) -> impl Iterator<Item = &DriveHealth> + '_ {
        let health = self.lanes.iter().flatten().flat_map(|lane| &lane.status.drive_health);
        health.filter(move |health| health.drive == drive)
    }

    /// Bytes that were written to a drive for each byte of payload that became durable, both since the start.
    pub(crate) fn written_per_payload_byte(&self, drive: u16) -> Option<f64> {
        let payload: u64 = self.lanes.iter().flatten().map(|lane| lane.status.counters.payload_bytes_stored()).sum();
        let written = self.counts.get(&drive)?.bytes_written;
        (payload > 0).then(|| written as f64 / payload as f64)
    }
}

/// The answer to Status on a control connection.
pub(crate) fn server_status(snapshot: &Snapshot) -> String {
    let Snapshot { uptime, stopping, control, lanes, findings, .. } = snapshot;
    let mut totals = Map::new();
    for report in lanes.iter().flatten() {
        add_numbers(&mut totals, &object(report));
    }
    // Of these the sum means nothing.
    for key in ["lane", "failures_left", "connections", "runs", "time_left_s", "rebuild_left_s", "put_wait_ms"] {
        totals.remove(key);
    }
    // Events go to all lanes alike, so the store is full when the first of them is.
    let time_left_s = lanes.iter().flatten().filter_map(|report| report.time_left_s).min_by(f64::total_cmp);
    totals.insert("time_left_s".to_owned(), json!(time_left_s));
    // Events go to all lanes alike, so a client meets the fullest.
    let pressure = lanes.iter().flatten().map(|report| report.pressure).max().unwrap_or_default();
    totals.insert("pressure".to_owned(), json!(pressure));
    let put_wait_ms = lanes.iter().flatten().map(|report| report.put_wait_ms).max();
    totals.insert("put_wait_ms".to_owned(), json!(put_wait_ms));
    // Lanes rebuild side by side; of one that waits nobody knows how long.
    let waits = lanes.iter().flatten().any(|report| report.status.rebuild.waits_for.is_some());
    let slowest = lanes.iter().flatten().filter_map(|report| report.rebuild_left_s).max_by(f64::total_cmp);
    let rebuild_left_s = slowest.filter(|_| !waits);
    totals.insert("rebuild_left_s".to_owned(), json!(rebuild_left_s));
    let failures_left = lanes.iter().flatten().filter_map(|report| report.status.failures_left).min();
    totals.insert("failures_left".to_owned(), json!(failures_left));
    let staging_bytes: usize = lanes.iter().flatten().map(|report| report.staging_bytes).sum();
    let described: Vec<Value> = lanes
        .iter()
        .enumerate()
        .map(|(lane, report)| match report {
            Some(report) => Value::Object(object(report)),
            None => json!({ "lane": lane, "state": "not answering" }),
        })
        .collect();
    let seconds = |age: Option<Duration>| age.map(|age| age.as_secs_f64());
    totals.insert("oldest_undecided_s".to_owned(), json!(seconds(findings.oldest_undecided)));
    totals.insert("oldest_accepted_s".to_owned(), json!(seconds(findings.oldest_accepted)));
    let mut status = object(control);
    let more = json!({
        "server": crate::SERVER_NAME,
        "uptime_s": uptime.as_secs_f64(),
        "state": server_state(*stopping, lanes),
        "alarms": findings.alarms,
        "drives": drives(snapshot),
        "lanes": described,
        "totals": totals,
        "streams": streams(lanes),
        "runs": lanes.first().and_then(Option::as_ref).map(|lane| &lane.runs),
        "connections": snapshot.connections(),
        "staging_bytes": staging_bytes,
    });
    if let Value::Object(more) = more {
        status.extend(more);
    }
    Value::Object(status).to_string()
}

/// What the control part says of each drive, with what was counted and found out of it.
fn drives(snapshot: &Snapshot) -> Vec<Value> {
    let described = snapshot.control.drives.iter().map(|drive| {
        let mut described = object(drive);
        described.extend(object(&snapshot.counts.get(&drive.number).copied().unwrap_or_default()));
        described.extend(object(&snapshot.findings.drives.get(&drive.number).cloned().unwrap_or_default()));
        described.insert("units_damaged".to_owned(), json!(snapshot.units_damaged(drive.number)));
        described.insert("units_mended".to_owned(), json!(snapshot.units_mended(drive.number)));
        described.insert("segments_alive".to_owned(), json!(snapshot.segments_alive(drive.number)));
        let ratio = snapshot.written_per_payload_byte(drive.number);
        described.insert("written_per_payload_byte".to_owned(), json!(ratio));
        Value::Object(described)
    });
    described.collect()
}

/// The streams of all lanes together.
fn streams(lanes: &[Option<LaneReport>]) -> Vec<StreamReport> {
    let mut streams: BTreeMap<String, StreamReport> = BTreeMap::new();
    for one in lanes.iter().flatten().flat_map(|lane| &lane.streams) {
        let sum = streams.entry(one.name.to_string()).or_insert_with(|| StreamReport {
            events_waiting: 0,
            events_released: 0,
            name: one.name.clone(),
        });
        sum.events_waiting += one.events_waiting;
        sum.events_released += one.events_released;
    }
    streams.into_values().collect()
}

/// One word for all lanes: the one that an operator must know first.
fn server_state(stopping: bool, lanes: &[Option<LaneReport>]) -> &'static str {
    let worst_first = ["unavailable", "recovering", "stopping", "stopped", "read-only"];
    if stopping {
        return "stopping";
    }
    if lanes.iter().any(Option::is_none) {
        return "not answering";
    }
    let states = || lanes.iter().flatten().map(|report| report.status.state);
    worst_first.into_iter().find(|state| states().any(|other| other == *state)).unwrap_or("serving")
}

/// What is told to people, as one JSON object.
pub(crate) fn to_json(value: &impl Serialize) -> String {
    Value::Object(object(value)).to_string()
}

fn object(value: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(object)) => object,
        _ => unreachable!("reports are structs of numbers, texts and lists"),
    }
}

/// Adds every number of `values`, and of the objects in it, to the one of the same name.
fn add_numbers(sums: &mut Map<String, Value>, values: &Map<String, Value>) {
    for (key, value) in values {
        match value {
            Value::Number(number) => {
                let before = sums.get(key).and_then(Value::as_u64).unwrap_or(0);
                sums.insert(key.clone(), json!(before.saturating_add(number.as_u64().unwrap_or(0))));
            }
            Value::Object(inner) => {
                let sum = sums.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(sum) = sum {
                    add_numbers(sum, inner);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A lane of which nothing but its state is told.
    pub(crate) fn report(status: LaneStatus) -> LaneReport {
        LaneReport {
            status,
            time_left_s: None,
            rebuild_left_s: None,
            rates: Rates::default(),
            pressure: Pressure::default(),
            put_wait_ms: 0,
            put_replies_busy: 0,
            connections: ClassCounts::default(),
            events_leased: 0,
            told: ToldCounts::default(),
            streams: Vec::new(),
            files_open: 0,
            names: NamesReport::default(),
            runs: RunsReport::default(),
            staging_bytes: 0,
            staging_bytes_max: 0,
            reply_bytes: 0,
        }
    }
}
