//! Decides what an operator is told: which alarms are raised, how long data have waited, how fast drives are and wear.
//!
//! A machine: it gets the time and what was seen ([`Observation`]), and holds what it makes of it ([`Monitor::findings`]). It has no clock and asks
//! nobody; `driver/control.rs` looks at the server once a second, and whenever somebody asks for the state.

mod clients;
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

use forebay_types::Time;
use serde::Serialize;

use crate::alarm::{Alarm, Effect, Severity};
pub(crate) use drives::DriveFinding;
pub(crate) use observation::{KnownOfDrives, Observation};
#[cfg(test)]
pub(crate) use observation::{SeenDrive, SeenLane, SeenLosses, SeenStream};

/// What a person decides about alarms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MonitorConfig {
    /// Undecided events without any word of a filter for so long: the filters are silent.
    pub(crate) filter_silent: Duration,
    /// Accepted events of a stream of which none is released for so long: its recorder is stuck.
    pub(crate) recorder_stuck: Duration,
}

/// An alarm that is raised.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RaisedAlarm {
    pub(crate) code: &'static str,
    pub(crate) name: &'static str,
    pub(crate) severity: Severity,
    pub(crate) effect: Effect,
    /// What is so, with its numbers.
    pub(crate) words: String,
    /// What to type first.
    pub(crate) command: &'static str,
    /// Where it is told what to do.
    pub(crate) runbook: String,
    /// For how long it has been raised.
    pub(crate) raised_s: f64,
}

/// An alarm that came or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) alarm: Alarm,
    /// What it says when it came.
    pub(crate) words: Option<String>,
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
    /// Since when, and what was said last.
    raised: BTreeMap<Alarm, (Time, String)>,
    findings: Findings,
}

/// Alarms that are to be raised now.
type Wanted = BTreeMap<Alarm, String>;

impl Monitor {
    pub(crate) fn new(config: MonitorConfig) -> Self {
        Monitor {
            protection: protection::Protection::default(),
            space: space::Space::default(),
            clients: clients::Clients::new(config),
            drives: drives::Drives::default(),
            raised: BTreeMap::new(),
            findings: Findings::default(),
        }
    }

    /// Takes a look in; what changed by it.
    pub(crate) fn observe(&mut self, now: Time, seen: &Observation) -> Vec<Change> {
        let mut wanted = Wanted::new();
        self.protection.judge(now, seen, &mut wanted);
        self.space.judge(now, seen, &mut wanted);
        self.clients.judge(now, seen, &mut wanted);
        self.drives.judge(now, seen, &mut wanted);
        let changes = self.changes(now, wanted);
        self.findings = Findings {
            alarms: self.raised_at(now, seen.read_only),
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

    fn changes(&mut self, now: Time, mut wanted: Wanted) -> Vec<Change> {
        let mut changes = Vec::new();
        self.raised.retain(|alarm, (_, words)| match wanted.remove(alarm) {
            Some(new) => {
                *words = new;
                true
            }
            None => {
                changes.push(Change { alarm: *alarm, words: None });
                false
            }
        });
        for (alarm, words) in wanted {
            changes.push(Change { alarm, words: Some(words.clone()) });
            self.raised.insert(alarm, (now, words));
        }
        changes
    }

    fn raised_at(&self, now: Time, read_only: bool) -> Vec<RaisedAlarm> {
        let raised = |(alarm, (since, words)): (&Alarm, &(Time, String))| {
            let info = alarm.info();
            RaisedAlarm {
                code: info.code,
                name: info.name,
                severity: info.severity,
                effect: info.effect,
                words: words.clone(),
                command: alarm.command(read_only),
                runbook: alarm.runbook(),
                raised_s: now.since(*since).as_secs_f64(),
            }
        };
        self.raised.iter().map(raised).collect()
    }
}

/// Lanes, drives or streams in words.
fn list<T: ToString>(one: &str, many: &str, what: impl IntoIterator<Item = T>) -> String {
    let what: Vec<String> = what.into_iter().map(|one| one.to_string()).collect();
    match &what[..] {
        [only] => format!("{one} {only}"),
        all => format!("{many} {}", all.join(", ")),
    }
}

/// A time in the words of an operator.
fn human(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}
