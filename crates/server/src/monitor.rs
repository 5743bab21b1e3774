//! Decides what an operator is told: which alarms are raised, how long data have waited, how fast drives are and wear.
//!
//! A machine: it gets the time and what was seen ([`Observation`]), and holds what it makes of it ([`Monitor::findings`]). It has no clock and asks
//! nobody; `driver/control.rs` looks at the server once a second, and whenever somebody asks for the state.

mod clients;
mod cluster;
mod drives;
mod history;
pub(crate) mod limits;
mod losses;
mod observation;
mod protection;
mod space;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_telemetry::alarm::{Change, Raised, RaisedAlarm};
use forebay_telemetry::words::{human, list};
use forebay_types::Time;

use crate::alarm::Alarm;
pub(crate) use drives::DriveFinding;
pub(crate) use observation::{KnownOfDrives, Observation};
#[cfg(test)]
pub(crate) use observation::{SeenCluster, SeenDrive, SeenLane, SeenLosses, SeenStream};

/// What a person decides about alarms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MonitorConfig {
    /// Undecided events without any word of a filter for so long: the filters are silent.
    pub(crate) filter_silent: Duration,
    /// Accepted events of a stream of which none is released for so long: its recorder is stuck.
    pub(crate) recorder_stuck: Duration,
}

/// What the monitor makes of what it saw.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    /// By code.
    pub(crate) alarms: Vec<RaisedAlarm>,
    /// The oldest event without a decision has waited for at least so long; absent when there is none.
    pub(crate) oldest_undecided: Option<Duration>,
    /// The same of accepted events that are not shipped.
    pub(crate) oldest_accepted: Option<Duration>,
    /// By the number of the drive.
    pub(crate) drives: BTreeMap<u16, DriveFinding>,
}

/// The machine.
pub(crate) struct Monitor {
    protection: protection::Protection,
    space: space::Space,
    clients: clients::Clients,
    drives: drives::Drives,
    cluster: cluster::Cluster,
    raised: Raised<Alarm>,
    findings: Findings,
}

/// Alarms that are to be raised now.
type Wanted = forebay_telemetry::alarm::Wanted<Alarm>;

impl Monitor {
    pub(crate) fn new(config: MonitorConfig) -> Self {
        Monitor {
            protection: protection::Protection::default(),
            space: space::Space::default(),
            clients: clients::Clients::new(config),
            drives: drives::Drives::default(),
            cluster: cluster::Cluster::default(),
            raised: Raised::default(),
            findings: Findings::default(),
        }
    }

    /// Takes a look in; what changed by it.
    pub(crate) fn observe(&mut self, now: Time, seen: &Observation) -> Vec<Change<Alarm>> {
        let mut wanted = Wanted::new();
        self.protection.judge(now, seen, &mut wanted);
        self.space.judge(now, seen, &mut wanted);
        self.clients.judge(now, seen, &mut wanted);
        self.drives.judge(now, seen, &mut wanted);
        self.cluster.judge(seen, &mut wanted);
        let changes = self.raised.set(now, wanted);
        self.findings = Findings {
            alarms: self.raised.all(now, |alarm| alarm.command(seen.read_only)),
            oldest_undecided: self.clients.oldest_undecided(),
            oldest_accepted: self.clients.oldest_accepted(),
            drives: self.drives.findings().clone(),
        };
        changes
    }

    /// What it makes of the last look.
    pub(crate) fn findings(&self) -> &Findings {
        &self.findings
    }
}
