//! The state of lanes and of the server, as JSON.

use forebay_engine::{DriveHealth, LaneStatus};
use forebay_store::ControlStatus;
use forebay_types::DriveNumber;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::rates::Rates;

/// Connections by what their clients are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ClassCounts {
    readout: usize,
    filter: usize,
    mover: usize,
    monitor: usize,
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
    pub(crate) rates: Rates,
    pub(crate) connections: ClassCounts,
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

    /// Whether something that is stored comes out of reach without this drive.
    pub(crate) fn needs_drive(&self, drive: DriveNumber) -> bool {
        let lives_there = |health: &DriveHealth| health.drive == drive.0 && health.segments_alive > 0;
        self.status.failures_left == Some(0) && self.status.drive_health.iter().any(lives_there)
    }

    /// The answer to Status on a connection of the lane.
    pub(crate) fn to_json(&self) -> String {
        let mut report = object(self);
        report.insert("server".to_owned(), json!(crate::SERVER_NAME));
        Value::Object(report).to_string()
    }
}

/// The answer to Status on a control connection. A lane that gave no report in time is `None`.
pub(crate) fn server_status(
    uptime_s: f64,
    stopping: bool,
    control: &ControlStatus,
    control_connections: [usize; 4],
    lanes: &[Option<LaneReport>],
) -> String {
    let mut totals = Map::new();
    let mut connections = control_connections;
    for report in lanes.iter().flatten() {
        add_numbers(&mut totals, &object(report));
        let ClassCounts { readout, filter, mover, monitor } = report.connections;
        for (sum, count) in connections.iter_mut().zip([readout, filter, mover, monitor]) {
            *sum += count;
        }
    }
    // Of these the sum means nothing.
    for key in ["lane", "failures_left", "connections", "time_left_s"] {
        totals.remove(key);
    }
    // Events go to all lanes alike, so the store is full when the first of them is.
    let time_left_s = lanes.iter().flatten().filter_map(|report| report.time_left_s).min_by(f64::total_cmp);
    totals.insert("time_left_s".to_owned(), json!(time_left_s));
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
    let mut status = object(control);
    let more = json!({
        "server": crate::SERVER_NAME,
        "uptime_s": uptime_s,
        "state": server_state(stopping, lanes),
        "lanes": described,
        "totals": totals,
        "connections": ClassCounts::from(connections),
        "staging_bytes": staging_bytes,
    });
    if let Value::Object(more) = more {
        status.extend(more);
    }
    Value::Object(status).to_string()
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
