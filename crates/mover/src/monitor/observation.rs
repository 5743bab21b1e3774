//! What the monitor looks at: plain numbers, gathered by whoever drives it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::report::RouteTally;
use crate::machine::{DestinationSurvey, RouteSurvey};

/// A look at a mover.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// When, in milliseconds since 1970.
    pub unix_ms: u64,
    /// For how long it has run.
    pub uptime: Duration,
    /// Files that are read or sent at once at most.
    pub streams_max: usize,
    /// Steps that were given up.
    pub jobs_stalled: u64,
    /// Its journal.
    pub journal: SeenJournal,
    /// Its routes.
    pub routes: Vec<SeenRoute>,
    /// Its destinations.
    pub destinations: Vec<SeenDestination>,
}

/// A journal.
#[derive(Clone, Debug, Default)]
pub struct SeenJournal {
    /// Transitions that were written since the start.
    pub transitions: u64,
    /// Time since the last was.
    pub commit_age: Option<Duration>,
    /// What its file system takes still.
    pub free_bytes: Option<u64>,
    /// Why nothing can be written beside it.
    pub failure: Option<String>,
}

/// A route.
#[derive(Clone, Debug, Default)]
pub struct SeenRoute {
    /// Its name.
    pub name: String,
    /// Where from.
    pub from: String,
    /// The time between its two proofs.
    pub recheck_after: Duration,
    /// How its files are.
    pub survey: RouteSurvey,
    /// What was counted.
    pub tally: RouteTally,
    /// How long the oldest file that is not over, and the oldest that is not proven, has been known.
    pub oldest: Option<Duration>,
    /// See `oldest`.
    pub oldest_unproven: Option<Duration>,
    /// For how long a person has held the first that is held, and the first that waits for tape has waited.
    pub held: Option<Duration>,
    /// See `held`.
    pub tape: Option<Duration>,
    /// Time since the source was last looked at.
    pub looked: Option<Duration>,
    /// Why it could not be.
    pub failing_words: Option<String>,
    /// The first names that are left alone, with why.
    pub left_alone_names: Vec<String>,
    /// The space of the source, where it is known.
    pub space: Option<Space>,
}

/// The space of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Space {
    /// What it takes still.
    pub free_bytes: u64,
    /// What it takes when it is empty.
    pub capacity_bytes: u64,
    /// When it is full, where whoever keeps it says so.
    pub told: Told,
}

/// What a source says of when it is full.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Told {
    /// It says nothing of it: that is found from what it takes still.
    #[default]
    Nothing,
    /// It does not fill.
    NotFilling,
    /// It is full in so many seconds.
    FullIn(f64),
}

/// A destination.
#[derive(Clone, Debug, Default)]
pub struct SeenDestination {
    /// Its address.
    pub address: String,
    /// How it is.
    pub survey: DestinationSurvey,
    /// Failures since the start, by what they were.
    pub failures: BTreeMap<&'static str, u64>,
    /// What it said when it last failed, and how long ago.
    pub last_words: Option<(String, Duration)>,
}
