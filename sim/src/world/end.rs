//! How a run ends: nothing goes wrong any more, and everything must come right by itself.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_engine::{LOOK_AFTER, LaneStatus, LossKind, RebuildStatus};
use forebay_server::Pressure;
use forebay_types::{DriveNumber, Time};

use super::{Totals, World};
use crate::faults::Fault;
use crate::recorder::Recorder;
use crate::server::Process;

/// So long after the last fault everything that is stored stands as many losses again as it should.
const PROTECTED_AFTER: Duration = Duration::from_secs(120);

/// So long after it died a drive is no member any more, whether or not it was written to.
const NOTICED_AFTER: Duration = LOOK_AFTER.saturating_mul(2);

/// What the status of all lanes is asked for is looked at so often, and not at each step.
const STATUS_EVERY: Duration = Duration::from_millis(1);

/// When a store has said for so long that what it lacks is space, an operator puts a drive in, as the status asks for; and another one later, up to as
/// many as may have been taken out with none in their place.
const SPACE_AFTER: Duration = Duration::from_secs(60);
const ENLARGED_MAX: u8 = 3;

/// So long a recorder may take to close a file.
const CLOSED_AFTER: Duration = Duration::from_secs(20);

/// So many segments of a lane the journal and the snapshot of names, and the file that all share, may keep at the end.
const FILES_SEGMENTS_MAX: u64 = 3;

/// All lanes of a process with these members said after the last fault that they are whole.
pub(super) struct Whole {
    process: u64,
    members: BTreeSet<DriveNumber>,
    /// The drives that each lane writes to.
    written: Vec<Vec<u16>>,
    looked_at: Time,
}

fn written(lanes: &[LaneStatus]) -> Vec<Vec<u16>> {
    lanes.iter().map(|lane| lane.drives_written.clone()).collect()
}

impl World {
    /// After the last fault the store returns to full protection by itself, given as many drives as a segment has shards. So that there is
    /// something to protect, nothing is decided or released until then.
    pub(super) fn await_protection(&mut self, since: Time) {
        let shape = self.scenario.shape;
        if self.members.0.len() < usize::from(shape.data) + usize::from(shape.parity) {
            self.put_in();
        }
        if self.now < self.status_due {
            return;
        }
        self.status_due = self.now + STATUS_EVERY;
        let Some(process) = self.process.as_ref().filter(|process| process.is_serving()) else { return };
        let (members, status) = (process.members().len(), process.status());
        let lacks_space = status.iter().any(|lane| lane.rebuild.waits_for == Some("space"));
        let since = self.enlarged_at.map_or(since, |at| at.max(since));
        if lacks_space && self.now >= since + SPACE_AFTER && self.enlarged < ENLARGED_MAX {
            self.enlarged += 1;
            self.enlarged_at = Some(self.now);
            return self.put_in();
        }
        let is_wide = members >= usize::from(shape.data) + usize::from(shape.parity);
        if is_wide && self.is_protected(process) && self.dead_member().is_none() {
            self.trace.note(self.now, &[13], || "everything is protected again".to_owned());
            self.mending_since = None;
            let members = self.members.0.clone();
            self.whole =
                Some(Whole { process: self.processes, members, written: written(&status), looked_at: self.now });
            return;
        }
        assert!(
            self.now < since + PROTECTED_AFTER,
            "{PROTECTED_AFTER:?} after the last fault not everything is protected, with {members} members: {status:?}"
        );
    }

    /// A store that is whole stays so, and says so, while no drive comes or goes: who looks at any moment is not told otherwise.
    pub(super) fn assert_stays_whole(&mut self) {
        let Some(whole) = self.whole.as_mut().filter(|whole| self.now >= whole.looked_at + STATUS_EVERY) else {
            return;
        };
        whole.looked_at = self.now;
        let process = self.process.as_ref().filter(|process| process.is_serving());
        let lanes = process.map(Process::status).unwrap_or_default();
        // What hung since before the last fault may still cost a lane a drive, and one that is stopped in order says nothing any more.
        let is_as_then = lanes.iter().all(|lane| lane.state == "serving") && written(&lanes) == whole.written;
        if whole.process != self.processes || whole.members != self.members.0 || !is_as_then {
            self.whole = None;
            return;
        }
        for lane in &lanes {
            let RebuildStatus { is_whole, shards_missing, bytes_left, .. } = lane.rebuild;
            assert!(is_whole, "it was whole, no drive came or went, and it says that it is not: {lane:?}");
            assert_eq!((shards_missing, bytes_left), (0, 0), "it is whole, and something is missing: {lane:?}");
        }
    }

    pub(super) fn end(mut self) -> Totals {
        self.model.calm = true;
        self.wait_for_unknown_events();
        self.wait_for_recorders();
        self.wait_for_space();
        self.model.assert_all_is_over();
        self.recorders.iter().for_each(|recorder| recorder.check_all_recorded(&self.model));
        let process = self.process.as_ref().expect("it serves");
        for lane in &process.status() {
            let left = (lane.events, lane.fragments, lane.flushes_lost, lane.segments_unreadable);
            assert_eq!(left, (0, 0, 0, 0), "something is left: {:?} of {lane:?}", process.stored_events());
        }
        let losses = self.process.as_mut().expect("it serves").losses();
        let out_of_reach = losses.iter().filter(|loss| loss.kind == LossKind::Unavailable).count();
        assert_eq!(out_of_reach, 0, "every drive that is needed is there: {losses:?}");
        self.wait_for_the_dead();
        self.lose_one_unused();
        let process = self.process.as_ref().expect("it serves");
        for drive in self.drives.refused_before(self.now) {
            assert!(!process.is_member(drive), "drive {drive} refuses writes, and is a member still");
        }
        self.totals()
    }

    /// A fragment whose put came to nothing, as far as anybody knows, may have become durable in a crash: when it is the only one of its event nobody looks
    /// for it, and a filter meets it when the event counts as incomplete.
    fn wait_for_unknown_events(&mut self) {
        let until = self.now + self.scenario.incomplete_after + CLOSED_AFTER;
        let is_there = |process: &Process| process.status().iter().any(|lane| lane.events > 0);
        while self.now < until && self.process.as_ref().is_some_and(is_there) {
            self.step();
        }
    }

    /// Who still closes a file, of which all events were deleted meanwhile, gets to its end.
    fn wait_for_recorders(&mut self) {
        let until = self.now + CLOSED_AFTER;
        while self.now < until && self.recorders.iter().any(Recorder::has_unfinished) {
            self.step();
        }
    }

    /// A member that is dead, and nobody noticed it.
    fn dead_member(&self) -> Option<DriveNumber> {
        let members = self.process.as_ref().expect("it serves").members();
        members.into_iter().find(|drive| self.drives.is_dead(*drive))
    }

    /// A drive that died is noticed though nobody writes to it.
    fn wait_for_the_dead(&mut self) {
        let until = self.now + NOTICED_AFTER;
        while let Some(drive) = self.dead_member() {
            assert!(self.now < until, "drive {drive} is dead for {NOTICED_AFTER:?}, and is a member still");
            self.step();
        }
    }

    /// A drive that hung before is given up, or answers.
    fn wait_for_what_hangs(&mut self) {
        let until = self.now + NOTICED_AFTER;
        let hangs = |world: &World| {
            let members = world.process.as_ref().expect("it serves").members();
            members.into_iter().any(|drive| world.drives.hangs(drive, world.now))
        };
        while hangs(self) {
            assert!(self.now < until, "a drive answers nothing for {NOTICED_AFTER:?}, and is a member still");
            self.step();
        }
    }

    /// A drive more dies when nothing is stored any more and nobody asks for anything, if there is one to spare.
    fn lose_one_unused(&mut self) {
        self.wait_for_what_hangs();
        let shape = self.scenario.shape;
        let members: Vec<DriveNumber> = self.process.as_ref().expect("it serves").members().into_iter().collect();
        let spare = members.len() > usize::from(shape.data) + usize::from(shape.parity);
        if let Some(drive) = self.random.one_of(&members).copied().filter(|_| spare)
            && self.scenario.knows(Fault::DriveDies)
        {
            self.trace.note(self.now, &[7, u64::from(drive.0)], || format!("drive {drive} dies, and nobody uses it"));
            self.drives.kill(drive, self.now);
            self.whole = None;
            self.wait_for_the_dead();
        }
    }

    pub(super) fn totals(self) -> Totals {
        let mut faults = self.counts;
        faults.add(&self.drives.counts);
        faults.add(&self.network.counts);
        Totals {
            answers: self.model.answers,
            faults,
            media_operations: self.drives.operations,
            starts: self.processes,
            seconds: self.now.0 / 1_000_000_000,
            pressed: self.pressed,
            trace: self.trace.hash(),
        }
    }

    /// Whether every lane says that all that it has stands as many losses as it should.
    pub(super) fn is_protected(&self, process: &Process) -> bool {
        let parity = self.scenario.shape.parity;
        let stands = |lane: &LaneStatus| lane.rebuild.is_whole && lane.failures_left.is_none_or(|left| left >= parity);
        process.is_serving() && process.status().iter().all(stands)
    }

    /// All space comes back, if need be after a stop in order.
    fn wait_for_space(&mut self) {
        // The journal of names and the file that all share stay, wherever their pieces lie.
        let keeps_files = !self.file_clients.is_empty();
        let is_back = |process: &Process| {
            let status = process.status();
            let is_free = |lane: &LaneStatus| keeps_files || lane.slots_free == lane.slots_total;
            // Of a small lane they are much.
            let is_calm = |(lane, step): (&LaneStatus, &Pressure)| {
                *step == Pressure::None || keeps_files && lane.segments <= FILES_SEGMENTS_MAX
            };
            !status.is_empty()
                && status.iter().all(|lane| is_free(lane) && lane.state == "serving")
                && status.iter().zip(&process.pressure()).all(is_calm)
        };
        for attempt in 0..3 {
            let until = self.now + Duration::from_secs(20);
            while self.now < until {
                if self.now >= self.status_due {
                    self.status_due = self.now + STATUS_EVERY;
                    if self.process.as_ref().is_some_and(is_back) {
                        return;
                    }
                }
                self.step();
            }
            // It may have come back after the last look, before a step over a long time.
            if self.process.as_ref().is_some_and(is_back) {
                return;
            }
            if attempt < 2
                && let Some(process) = &mut self.process
            {
                process.stop();
            }
        }
        panic!("space does not come back: {:?}", self.process.as_ref().map(Process::status));
    }
}
