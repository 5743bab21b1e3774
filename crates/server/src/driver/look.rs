//! Looking at the whole server: asks the lanes, and tells the monitor what they say.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use forebay_store::{ControlHandle, DriveMeters};
use forebay_telemetry::http::Last;
use forebay_types::{DriveNumber, Time};

use super::inbox::{Inbox, Message};
use super::smart::SmartReports;
use crate::config::ServerConfig;
use crate::limits::QUERY_TIMEOUT;
use crate::monitor::limits::LOOK_EVERY;
use crate::monitor::{KnownOfDrives, Monitor, Observation};
use crate::status::{LaneReport, Snapshot};

/// How often it is looked when a lane does not answer.
const LOOK_LATE_EVERY: Duration = Duration::from_secs(10);

/// The last look, for whoever does not want to disturb anybody.
pub(crate) type LastLook = Last<Snapshot>;

/// Looks at the server. It belongs to one thread.
pub(crate) struct Looker {
    lanes: Vec<Arc<Inbox>>,
    pub(super) store: ControlHandle,
    meters: DriveMeters,
    smart: SmartReports,
    config: Arc<ServerConfig>,
    started: Instant,
    stopping: Arc<AtomicBool>,
    monitor: RefCell<Monitor>,
    last: LastLook,
    /// When it is to look again though nobody asks.
    due: Cell<Instant>,
    /// A lane did not answer in time in this turn: nobody else waits for it.
    is_late: Cell<bool>,
}

/// What a [`Looker`] is made of.
pub(crate) struct LookerParts {
    pub(crate) lanes: Vec<Arc<Inbox>>,
    pub(crate) store: ControlHandle,
    pub(crate) meters: DriveMeters,
    pub(crate) smart: SmartReports,
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) stopping: Arc<AtomicBool>,
    pub(crate) last: LastLook,
}

impl Looker {
    pub(crate) fn new(parts: LookerParts) -> Looker {
        let LookerParts { lanes, store, meters, smart, config, stopping, last } = parts;
        let monitor = Monitor::new(config.monitor());
        Looker {
            lanes,
            store,
            meters,
            smart,
            config,
            started: Instant::now(),
            stopping,
            monitor: RefCell::new(monitor),
            last,
            due: Cell::new(Instant::now()),
            is_late: Cell::new(false),
        }
    }

    /// After how long it is to look though nobody asks.
    pub(crate) fn due_in(&self) -> Duration {
        self.due.get().saturating_duration_since(Instant::now())
    }

    /// Lanes are waited for again.
    pub(crate) fn begin_turn(&self) {
        self.is_late.set(false);
    }

    /// Looks, with these connections that belong to no lane.
    pub(crate) fn look(&self, control_connections: [usize; 4]) -> Arc<Snapshot> {
        let mut lanes: Vec<Option<LaneReport>> = self.lanes.iter().map(|_| None).collect();
        for report in self.ask() {
            let lane = usize::from(report.lane());
            lanes[lane] = Some(report);
        }
        let (control, uptime) = (self.store.status(), self.started.elapsed());
        let known = KnownOfDrives {
            counts: self.meters.counts().into_iter().map(|(drive, counts)| (drive.0, counts)).collect(),
            smart: self.smart.get(),
            rated_bytes: self.config.rated_bytes(control.drives.iter().map(|drive| drive.number)),
        };
        let stopping = self.stopping.load(Ordering::Relaxed);
        let seen = Observation::of(&control, &lanes, &known, uptime, stopping);
        let now = Time(u64::try_from(uptime.as_nanos()).unwrap_or(u64::MAX));
        let mut monitor = self.monitor.borrow_mut();
        for change in monitor.observe(now, &seen) {
            forebay_telemetry::alarm::log(&change, change.alarm.command(seen.read_only));
        }
        let findings = monitor.findings().clone();
        let snapshot =
            Snapshot { uptime, stopping, control, control_connections, lanes, counts: known.counts, findings };
        let snapshot = Arc::new(snapshot);
        self.last.set(&snapshot);
        // Who waits for a lane that does not answer serves nobody else meanwhile.
        let every = if self.is_late.get() { LOOK_LATE_EVERY } else { LOOK_EVERY };
        self.due.set(Instant::now() + every);
        snapshot
    }

    /// Has the lanes look at everything that is stored. What is asked of them later finds them at it.
    pub(super) fn scrub(&self) {
        self.lanes.iter().for_each(|lane| lane.send(Message::Scrub));
    }

    /// Drives that do not answer and may be all that brings back what is out of reach: nobody is to overwrite them.
    pub(super) fn drives_to_keep(&self) -> Vec<DriveNumber> {
        let control = self.store.status();
        let away = control.drives.iter().filter(|drive| matches!(drive.state, "absent" | "failed" | "gone"));
        let away: Vec<DriveNumber> = away.map(|drive| DriveNumber(drive.number)).collect();
        let Ok(reports) = self.ask_all() else { return away };
        reports.iter().flat_map(|report| report.drives_to_keep(&away, control.parity_shards)).collect()
    }

    /// What every lane tells, or which of them does not answer.
    pub(super) fn ask_all(&self) -> Result<Vec<LaneReport>, Vec<usize>> {
        let told = self.ask();
        let silent =
            (0..self.lanes.len()).filter(|lane| !told.iter().any(|report| usize::from(report.lane()) == *lane));
        let silent: Vec<usize> = silent.collect();
        if silent.is_empty() { Ok(told) } else { Err(silent) }
    }

    /// What the lanes tell that answer in time.
    fn ask(&self) -> Vec<LaneReport> {
        let lanes = self.lanes.len();
        let mut told = Vec::with_capacity(lanes);
        if self.is_late.get() {
            return told;
        }
        let (sender, receiver) = sync_channel(lanes);
        for lane in &self.lanes {
            lane.send(Message::Query(sender.clone()));
        }
        drop(sender);
        let until = Instant::now() + QUERY_TIMEOUT;
        while told.len() < lanes {
            match receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(one) => told.push(one),
                Err(error) => {
                    // A lane that has ended is no reason to wait less for the others.
                    self.is_late.set(error == RecvTimeoutError::Timeout);
                    break;
                }
            }
        }
        told
    }
}
