//! When and how processes end, and what is looked at then.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_types::{DriveNumber, Time};

use super::World;
use crate::autopsy::{self, Promised};
use crate::faults::Fault;

/// A crash waits so long for the moment at which it hurts.
const WAITS: Duration = Duration::from_millis(400);

/// And so long for a rebuild to end, or for a start to have read what there is.
const WAITS_LONG: Duration = Duration::from_secs(4);

/// The moment that a crash waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CrashWhen {
    AtOnce,
    /// Something is being written.
    Writing,
    /// A checkpoint or a superblock is.
    Checkpoint,
    /// A checkpoint of a lane is, which after a start comes behind what the control part writes.
    LaneCheckpoint,
    /// It is on some drives, and on its way to others.
    CheckpointInPart,
    /// All is protected by what the lanes say: at once when they say so already, else when a rebuild ended and all that it made counts.
    Protected,
}

impl CrashWhen {
    fn waits(self) -> Duration {
        match self {
            Self::Protected | Self::LaneCheckpoint => WAITS_LONG,
            _ => WAITS,
        }
    }
}

impl World {
    pub(super) fn plan_crash(&mut self) {
        let crashes = [Fault::Crash, Fault::CrashInRecovery, Fault::Stop].iter().any(|f| self.scenario.knows(*f));
        let millis = 1..self.scenario.crash_millis * 2;
        self.next_crash = crashes.then(|| self.now + self.random.millis(millis));
        self.crash_when = match self.random.below(12) {
            0..3 => CrashWhen::AtOnce,
            3..6 => CrashWhen::Writing,
            6..8 => CrashWhen::Checkpoint,
            8..10 => CrashWhen::CheckpointInPart,
            _ => CrashWhen::Protected,
        };
    }

    /// A crash comes soon, whatever was planned: what happened just now is not over yet.
    pub(crate) fn crash_soon(&mut self, millis: u64) {
        if self.next_crash.is_some() {
            self.next_crash = Some(self.now + self.random.micros(1..millis * 1000));
            self.crash_when = CrashWhen::AtOnce;
        }
    }

    /// Whether a crash that was planned comes now.
    pub(super) fn crash_is_due(&self) -> bool {
        let Some(at) = self.next_crash.filter(|at| *at <= self.now) else { return false };
        let right = match self.crash_when {
            CrashWhen::AtOnce => true,
            CrashWhen::Writing => self.drives.writes_on_their_way(),
            CrashWhen::Checkpoint => self.drives.checkpoints_on_their_way(),
            CrashWhen::LaneCheckpoint => self.drives.lane_checkpoints_on_their_way(),
            CrashWhen::CheckpointInPart => !self.drives.ahead().is_empty(),
            CrashWhen::Protected => self.process.as_ref().is_some_and(|process| self.is_protected(process)),
        };
        right || self.now >= at + self.crash_when.waits()
    }

    /// When it comes if nothing happens: while it waits, what it waits for is what happens.
    pub(super) fn crash_comes_at(&self) -> Option<Time> {
        self.next_crash.map(|at| if at > self.now { at } else { at + self.crash_when.waits() })
    }

    pub(super) fn end_somehow(&mut self) {
        let Some(process) = &mut self.process else { return };
        let serving = process.is_serving();
        if !serving && !self.crash_hits_start && self.random.per_mille(700) {
            return;
        }
        if serving && self.scenario.knows(Fault::Stop) && self.random.per_mille(200) {
            self.counts.fire(Fault::Stop);
            process.stop();
            return;
        }
        let fault = if serving { Fault::Crash } else { Fault::CrashInRecovery };
        if self.scenario.knows(fault) {
            self.counts.fire_and_meet(fault);
            self.trace.note(self.now, &[6], || format!("{fault}"));
            self.end_process();
        }
    }

    pub(super) fn end_process(&mut self) {
        self.fenced_end = None;
        let process = self.process.take();
        let protected = process.as_ref().is_some_and(|process| self.is_protected(process));
        let mut ahead = self.drives.ahead();
        if !process.is_some_and(|process| process.is_serving()) {
            // A start that did not come to its end has to have left it so that what it found counts with and without them.
            ahead.append(&mut self.ahead);
        }
        self.ahead.clone_from(&ahead);
        self.drives.crash();
        self.look_at_what_is_left(&ahead, protected);
        self.network.server_is_gone(self.now);
        self.start_at = self.now + self.random.millis(1..400);
        self.choose_who_is_away();
        if self.calm {
            return;
        }
        self.plan_crash();
        // A start is often hit itself, most of all when it finds something on some drives alone.
        let often = if ahead.is_empty() { 200 } else { 600 };
        self.crash_hits_start = self.scenario.knows(Fault::CrashInRecovery) && self.random.per_mille(often);
        if self.crash_hits_start {
            self.next_crash = Some(self.start_at + self.random.micros(50..8000));
            self.crash_when = match self.random.below(4) {
                0 => CrashWhen::AtOnce,
                1 => CrashWhen::Writing,
                // What a start writes by what it took goes over what whoever does not find that would take.
                _ => CrashWhen::LaneCheckpoint,
            };
        }
    }

    /// What was promised is there without any drives that may be gone; most of all without those of `ahead`, which had something that others
    /// had not yet.
    fn look_at_what_is_left(&mut self, ahead: &BTreeSet<DriveNumber>, protected: bool) {
        // Whatever was acknowledged: with all drives that something happened to, and others, as many as there are parities.
        let gone = self.some_more(self.drives.spoiled(), ahead);
        let promised = Promised {
            fragments: self.model.must_be_there(Time(0)),
            over: self.model.must_be_over(),
            accepted: self.model.must_be_accepted(),
            files: self.file_clients.iter().flat_map(|client| client.promised()).collect(),
            everything: true,
        };
        autopsy::look(&mut self.drives, &self.scenario, &gone, &promised);
        self.look_at_what_is_new(ahead, protected);
    }

    /// What was first put since the last drive was lost, or died, and acknowledged, stands as many losses more as there are parities; so does everything
    /// when the lanes said that all is `protected`.
    fn look_at_what_is_new(&mut self, ahead: &BTreeSet<DriveNumber>, protected: bool) {
        let (members, since) = self.members.clone();
        let (mut since, mut lost) = (since, BTreeSet::new());
        for drive in self.drives.numbers() {
            let died = self.drives.died_at(drive).filter(|_| !protected);
            if died.is_some() || !members.contains(&drive) {
                lost.insert(drive);
            }
            since = since.max(died.unwrap_or_default());
        }
        if protected {
            since = Time(0);
        }
        let spoiled: BTreeSet<DriveNumber> =
            self.drives.spoiled().into_iter().filter(|drive| !lost.contains(drive)).collect();
        let more = self.some_more_of(spoiled, ahead, |drive| !lost.contains(&drive));
        let gone = more.into_iter().chain(lost).collect();
        let fragments = self.model.must_be_there(since);
        let promised =
            Promised { fragments, over: Vec::new(), accepted: Vec::new(), files: Vec::new(), everything: false };
        autopsy::look(&mut self.drives, &self.scenario, &gone, &promised);
    }

    fn some_more(&mut self, drives: BTreeSet<DriveNumber>, ahead: &BTreeSet<DriveNumber>) -> BTreeSet<DriveNumber> {
        self.some_more_of(drives, ahead, |_| true)
    }

    /// These drives and some more of the members, as many in all as there are parities.
    fn some_more_of(
        &mut self,
        mut drives: BTreeSet<DriveNumber>,
        ahead: &BTreeSet<DriveNumber>,
        may: impl Fn(DriveNumber) -> bool,
    ) -> BTreeSet<DriveNumber> {
        let wanted = usize::from(self.scenario.shape.parity);
        let of = |drives: &BTreeSet<DriveNumber>, from: &BTreeSet<DriveNumber>| -> Vec<DriveNumber> {
            from.iter().copied().filter(|drive| may(*drive) && !drives.contains(drive)).collect()
        };
        let members = self.members.0.clone();
        let ahead: BTreeSet<DriveNumber> = ahead.intersection(&members).copied().collect();
        let hurts = self.random.per_mille(600);
        while drives.len() < wanted {
            let first = if hurts { of(&drives, &ahead) } else { Vec::new() };
            let left = if first.is_empty() { of(&drives, &members) } else { first };
            let Some(one) = self.random.one_of(&left) else { break };
            drives.insert(*one);
        }
        drives
    }
}
