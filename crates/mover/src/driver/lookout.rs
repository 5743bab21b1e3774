//! Looks at the mover now and then, counts, and tells what its monitor makes of that: to whoever asks this process, and in a file beside the journal to
//! every other. It decides nothing.
//!
//! A file rather than a row of the journal: what it says is over in a moment, so it need not be durable, and each commit of a journal is. Whoever reads it sees one
//! whole report, as it is renamed over the last.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_telemetry::alarm::Alarms;
use forebay_telemetry::http::Last;
use forebay_types::{Time, WallTime};

use super::DestinationConfig;
use super::space::SpaceWatch;
use crate::audit::Transition;
use crate::custody::Failure;
use crate::endpoint::HasSpace;
use crate::journal::Journal;
use crate::machine::{Mover, RouteConfig};
use crate::monitor::{
    Clocks, Monitor, MonitorConfig, Observation, Report, RouteTally, SeenDestination, SeenJournal, SeenRoute, ago,
};
use crate::status;

/// It is looked so often,
const EVERY: Duration = Duration::from_secs(1);
/// and at most in this part of the time: who has many files on their way has other things to do.
const PART_MAX: u32 = 20;
/// Other processes are told so often.
const WRITTEN_EVERY: Duration = Duration::from_secs(2);

/// What was counted of a destination.
#[derive(Debug, Default)]
struct DestinationTally {
    failures: BTreeMap<&'static str, u64>,
    last_words: Option<(String, Instant)>,
}

/// Looks and counts for as long as a mover lives, also over a new configuration.
#[derive(Debug)]
pub struct Lookout {
    monitor: Monitor,
    last: Last<Report>,
    start: Instant,
    due: Instant,
    written: Option<Instant>,
    failure: Option<String>,
    routes: BTreeMap<String, RouteTally>,
    destinations: BTreeMap<String, DestinationTally>,
    transitions: u64,
    committed: Option<Instant>,
    stalled: u64,
    clocks: Clocks,
}

/// What a look at a source found, for the next look at all.
#[derive(Clone, Debug, Default)]
pub(super) struct Looked {
    pub(super) at: Option<Time>,
    pub(super) failing_words: Option<String>,
    pub(super) left_alone: Vec<String>,
}

/// What is looked at.
pub(super) struct Sight<'a> {
    pub(super) machine: &'a Mover,
    pub(super) routes: Vec<(&'a RouteConfig, &'a str)>,
    pub(super) destinations: Vec<&'a DestinationConfig>,
    pub(super) streams_max: usize,
    pub(super) looked: &'a [Looked],
    pub(super) spaces: &'a [Option<SpaceWatch>],
    /// By the jobs that send now: of which route, to which destination, and how many bytes.
    pub(super) sending: Vec<(usize, String, u64)>,
    pub(super) journal: &'a Path,
    pub(super) now: Time,
    pub(super) wall_time: WallTime,
}

impl Lookout {
    /// One that has seen nothing.
    pub fn new(config: MonitorConfig) -> Lookout {
        let now = Instant::now();
        Lookout {
            monitor: Monitor::new(config),
            last: Last::default(),
            start: now,
            due: now,
            written: None,
            failure: None,
            routes: BTreeMap::new(),
            destinations: BTreeMap::new(),
            transitions: 0,
            committed: None,
            stalled: 0,
            clocks: Clocks::default(),
        }
    }

    /// What is told, for whoever does not want to disturb anybody.
    pub fn last(&self) -> Last<Report> {
        self.last.clone()
    }

    pub(super) fn begin(&mut self, journal: &Journal) -> Result<(), crate::journal::JournalError> {
        self.clocks = journal.clocks()?;
        // Others are told at once that it runs.
        (self.due, self.written) = (Instant::now(), None);
        Ok(())
    }

    pub(super) fn found(&mut self, route: &str, bytes: u64) {
        self.routes.entry(route.to_owned()).or_default().found.add(bytes);
    }

    /// These are durable.
    pub(super) fn committed(&mut self, transitions: &[Transition]) {
        self.committed = Some(Instant::now());
        self.transitions += transitions.len() as u64;
        for transition in transitions {
            self.clocks.note(transition);
            let tally = self.routes.entry(transition.route.clone()).or_default();
            let bytes = u64::try_from(transition.bytes.unwrap_or(0)).unwrap_or(0);
            match (&transition.destination, transition.after.as_str()) {
                (_, "quarantined") => tally.quarantined += 1,
                (None, "proven") => tally.proven.add(bytes),
                (None, "released") => tally.released.add(bytes),
                (None, "withdrawn") => tally.withdrawn += 1,
                _ => {}
            }
        }
    }

    pub(super) fn sent(&mut self, route: &str, destination: &str, bytes: u64) {
        let tally = self.routes.entry(route.to_owned()).or_default();
        *tally.sent_bytes.entry(destination.to_owned()).or_default() += bytes;
    }

    pub(super) fn failed(&mut self, destination: &str, failure: &Failure) {
        let what = match failure {
            Failure::Refused(_) => "refused",
            Failure::NotNow(_) => "not-now",
            Failure::Unknown(_) => "unknown",
        };
        let tally = self.destinations.entry(destination.to_owned()).or_default();
        *tally.failures.entry(what).or_default() += 1;
        tally.last_words = Some((failure.words().to_owned(), Instant::now()));
    }

    pub(super) fn stalled(&mut self) {
        self.stalled += 1;
    }

    pub(super) fn is_due(&self) -> bool {
        self.due <= Instant::now()
    }

    /// Looks, and tells.
    pub(super) fn look(&mut self, sight: &Sight, ended: bool) {
        let began = Instant::now();
        let seen = self.observation(sight);
        let now = Time(0) + self.start.elapsed();
        let (mut report, changes) = self.monitor.observe(now, &seen);
        for change in changes {
            forebay_telemetry::alarm::log(&change, change.alarm.info().command);
        }
        (report.machine, report.process, report.ended) = (status::machine(), std::process::id(), ended);
        let report = Arc::new(report);
        self.last.set(&report);
        if ended || self.written.is_none_or(|written| written.elapsed() >= WRITTEN_EVERY) {
            self.written = Some(Instant::now());
            self.failure = status::write(sight.journal, &report).err().map(|error| error.to_string());
        }
        self.due = Instant::now() + EVERY.max(began.elapsed() * PART_MAX);
    }

    fn observation(&self, sight: &Sight) -> Observation {
        let survey = sight.machine.survey(sight.now);
        let unix_ms = sight.wall_time.0;
        let free = rustix::fs::statvfs(sight.journal.parent().unwrap_or(Path::new("/"))).ok();
        let journal = SeenJournal {
            transitions: self.transitions,
            commit_age: self.committed.map(|at| at.elapsed()),
            free_bytes: free.map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize)),
            failure: self.failure.clone(),
        };
        let since = |at: Option<i64>| at.map(|at| ago(unix_ms, at));
        let route = |(at, (config, from)): (usize, &(&RouteConfig, &str))| {
            let clocks = self.clocks.0.get(&config.name);
            let looked = &sight.looked[at];
            let mut tally = self.routes.get(&config.name).cloned().unwrap_or_default();
            for (_, to, bytes) in sight.sending.iter().filter(|(route, ..)| *route == at) {
                *tally.sent_bytes.entry(to.clone()).or_default() += bytes;
            }
            SeenRoute {
                name: config.name.clone(),
                from: (*from).to_owned(),
                recheck_after: config.policy.recheck_after,
                oldest: since(clocks.and_then(|clocks| clocks.oldest())),
                oldest_unproven: since(clocks.and_then(|clocks| clocks.unproven_since(&survey, at))),
                held: since(clocks.and_then(|clocks| clocks.held_since())),
                tape: since(clocks.and_then(|clocks| clocks.tape_since())),
                survey: survey.routes[at].clone(),
                tally,
                looked: looked.at.map(|then| sight.now.since(then)),
                failing_words: looked.failing_words.clone(),
                left_alone_names: looked.left_alone.clone(),
                space: sight.spaces[at].as_ref().and_then(SpaceWatch::last),
            }
        };
        let destination = |(at, config): (usize, &&DestinationConfig)| {
            let tally = self.destinations.get(&config.address);
            let last_words = tally.and_then(|tally| tally.last_words.as_ref());
            SeenDestination {
                address: config.address.clone(),
                survey: survey.destinations[at].clone(),
                failures: tally.map(|tally| tally.failures.clone()).unwrap_or_default(),
                last_words: last_words.map(|(words, at)| (words.clone(), at.elapsed())),
            }
        };
        Observation {
            unix_ms,
            uptime: self.start.elapsed(),
            streams_max: sight.streams_max,
            jobs_stalled: self.stalled,
            journal,
            routes: sight.routes.iter().enumerate().map(route).collect(),
            destinations: sight.destinations.iter().enumerate().map(destination).collect(),
        }
    }
}

/// Those that look at the space of each source.
pub(super) fn watch_spaces<'a>(spaces: impl Iterator<Item = &'a Option<Arc<dyn HasSpace>>>) -> Vec<Option<SpaceWatch>> {
    spaces.map(|space| space.as_ref().map(|space| SpaceWatch::start(Arc::clone(space)))).collect()
}
