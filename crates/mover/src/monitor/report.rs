//! What a mover tells of itself: to whoever asks for its state or its metrics. Times are seconds, sizes bytes.
//!
//! It is written beside the journal as JSON, so that another process sees it. Whoever reads it does not trust it: what a mover of another version does not
//! tell is nothing or zero.

use std::collections::BTreeMap;

use forebay_telemetry::alarm::RaisedAlarm;
use serde::{Deserialize, Serialize};

use crate::machine::Amount;

/// Everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Of the mover.
    pub version: String,
    /// The machine that it runs on.
    pub machine: String,
    /// Its process there.
    pub process: u32,
    /// When this was so, in milliseconds since 1970.
    pub unix_ms: u64,
    /// It ended in order.
    pub ended: bool,
    /// Time since it started.
    pub uptime_s: f64,
    /// Files that are read or sent now.
    pub streams_running: usize,
    /// And how many may be.
    pub streams_max: usize,
    /// Steps that were given up, as nothing moved in them.
    pub jobs_stalled: u64,
    /// Its journal.
    pub journal: JournalReport,
    /// By name.
    pub routes: Vec<RouteReport>,
    /// By address.
    pub destinations: Vec<DestinationReport>,
    /// What is wrong, by code.
    pub alarms: Vec<RaisedAlarm>,
}

/// A journal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JournalReport {
    /// Transitions that were written since the start.
    pub transitions: u64,
    /// Time since the last was.
    pub commit_age_s: Option<f64>,
    /// What its file system takes still.
    pub free_bytes: Option<u64>,
}

/// A route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteReport {
    /// Its name.
    pub name: String,
    /// Where from.
    pub from: String,
    /// Files that are not over, by how far they are.
    pub states: BTreeMap<String, Amount>,
    /// All of these.
    pub waiting: Amount,
    /// How long the oldest of them, and the oldest that is not proven, has been known.
    pub oldest_s: Option<f64>,
    /// See `oldest_s`.
    pub oldest_unproven_s: Option<f64>,
    /// Since the start.
    pub totals: RouteTally,
    /// A second, over the last minute.
    pub rates: Rates,
    /// Bytes that are to be sent to required destinations still.
    pub to_send_bytes: u64,
    /// Time until all that waits is proven, at the rate of the last minute; nothing while nothing is sent, or nothing waits.
    pub backlog_s: Option<f64>,
    /// Time since the source was last looked at.
    pub looked_s: Option<f64>,
    /// Since when it gives no answer, and what is said of that.
    pub failing_s: Option<f64>,
    /// See `failing_s`.
    pub failing_words: Option<String>,
    /// Files with data that are left alone.
    pub left_alone: usize,
    /// The first of all that is, with why.
    pub left_alone_names: Vec<String>,
    /// Files that wait for another of their name.
    pub blocked: usize,
    /// Runs whose events are left in the store, and why.
    pub refusals: Vec<(u32, String)>,
    /// For how long a person has held the first that is held.
    pub held_s: Option<f64>,
    /// For how long the first that waits for tape has waited.
    pub tape_s: Option<f64>,
    /// Files that are read or sent now.
    pub streams_running: usize,
    /// And how many may be.
    pub streams_max: usize,
    /// Since when files cannot be registered.
    pub registering_fails_s: Option<f64>,
    /// What the source lies on.
    pub space: Option<SpaceReport>,
}

/// What was counted of a route since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteTally {
    /// Files that were found.
    pub found: Amount,
    /// Bytes that were sent, also in vain, by destination.
    pub sent_bytes: BTreeMap<String, u64>,
    /// Files that were proven; one that is asked for once more counts again.
    pub proven: Amount,
    /// Files that the source let go.
    pub released: Amount,
    /// Files that changed before they were anywhere.
    pub withdrawn: u64,
    /// Times that a file was quarantined, as a whole or at a destination.
    pub quarantined: u64,
}

/// What a second brings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rates {
    /// Files.
    pub found_files: f64,
    /// Bytes.
    pub found_bytes: f64,
    /// Bytes.
    pub sent_bytes: f64,
    /// Files.
    pub proven_files: f64,
    /// Bytes.
    pub proven_bytes: f64,
    /// Files.
    pub released_files: f64,
    /// Bytes.
    pub released_bytes: f64,
}

/// The space of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpaceReport {
    /// What it takes still.
    pub free_bytes: u64,
    /// What it takes when it is empty.
    pub capacity_bytes: u64,
    /// Time until it is full: as a store tells it, else at the rate of the last minutes; nothing while it does not fill.
    pub full_in_s: Option<f64>,
}

/// A destination.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DestinationReport {
    /// Its address.
    pub address: String,
    /// Files on their way there, by how far they are there.
    pub states: BTreeMap<String, Amount>,
    /// Those for which something is to be done there.
    pub waiting: Amount,
    /// Whether it counts as away: one step at a time is tried there.
    pub away: bool,
    /// How long ago the first of the failures in a row was.
    pub failing_s: Option<f64>,
    /// When it is tried again.
    pub next_try_s: Option<f64>,
    /// Files that are sent there now.
    pub streams_running: usize,
    /// And how many may be.
    pub streams_max: usize,
    /// Bytes a second, over the last minute.
    pub sent_bytes_per_s: f64,
    /// Since the start, by what they were: `refused`, `not-now`, `unknown`.
    pub failures: BTreeMap<String, u64>,
    /// What it said when it last failed.
    pub last_words: Option<String>,
    /// How long ago that was.
    pub last_words_s: Option<f64>,
}
