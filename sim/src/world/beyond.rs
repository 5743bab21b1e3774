//! The second mode: more is lost at once than parity makes up for. Then nothing else may be lost, and what is must be said.
//!
//! A store has run for a while as in the first mode when the worst comes. What its drives still hold is looked at (`truth.rs`); then the store
//! is opened for reading, started, looked at as a whole, killed and started again, emptied, and started once more, and asked after everything each time. Drives
//! that are away come back at the second start, and bring all that the first one knew to be missing.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_engine::{LaneStatus, Loss, LostPart, OpenError, OpenRequest, plan_open};
use forebay_format::DriveState;
use forebay_types::{DriveNumber, FragmentId, ReadOutcome, Time};

use super::{Totals, World};
use crate::autopsy;
use crate::census::{Answered, Asker, Known, Question};
use crate::faults::Fault;
use crate::opening::found_drives;
use crate::server::Process;
use crate::truth::Truth;

/// A start that is not over after so long goes nowhere.
const START_MAX: Duration = Duration::from_secs(120);
/// So long whoever asks waits for all answers.
const ANSWERS_MAX: Duration = Duration::from_secs(300);
/// So long everything is looked at, at most.
const SCRUB_MAX: Duration = Duration::from_secs(300);
/// So long what a start begins in the background goes on before it is looked at again.
const BACKGROUND: Duration = Duration::from_secs(15);

/// So long the worst waits for the moment at which something lies in two places.
const COPIES_MAX: Duration = Duration::from_secs(3);

const KINDS: [Fault; 3] = [Fault::RotBeyond, Fault::OverwrittenBeyond, Fault::LostBeyond];

impl World {
    /// Whether the worst comes now.
    pub(super) fn worst_is_due(&self) -> bool {
        let Some(after) = self.scenario.beyond_after_events else { return false };
        let newest = self.writers.iter().map(crate::writer::Writer::next_event).max().unwrap_or(0);
        self.calm || newest >= after
    }

    /// The worst comes, and its end.
    pub(super) fn beyond(mut self) -> Totals {
        self.calm = true;
        (self.next_crash, self.next_fault, self.replacing) = (None, None, None);
        self.drives.calm();
        self.network.calm();
        let kinds = self.choose_kinds();
        if self.random.per_mille(500) {
            self.wait_for_copies();
        }
        let known = self.model.known();
        if kinds.contains(&Fault::LostBeyond) {
            self.lose_one_by_one(&known);
        }
        self.kill();
        self.damage(&kinds);
        let present: BTreeSet<DriveNumber> =
            found_drives(&mut self.drives, &self.away).iter().map(|found| found.superblock.number).collect();
        let found = found_drives(&mut self.drives, &self.away);
        let Some(newest) = found.iter().max_by_key(|found| found.superblock.generation) else {
            let refused = self.start_after_the_worst();
            assert!(matches!(refused, Some(OpenError::NoDrives)), "no drive is left: {refused:?}");
            return self.worst_is_over(&kinds, true);
        };
        let truth = Truth::of(&self.drives, &present, &newest.superblock.clone());
        let with_all = self.truth_with_all();
        let (lost, silent) = truth.lost();
        self.trace.note(self.now, &[15, lost, silent], || {
            format!("{kinds:?} without {:?}: {lost} records cannot be read, {silent} of them in silence", self.away)
        });
        autopsy::look_beyond(&mut self.drives, &self.scenario, &self.away, &known, &truth);
        let refused = self.start_after_the_worst();
        let met = lost > 0 || refused.is_some() || truth.lanes.iter().any(|lane| lane.is_gone || lane.is_old);
        if refused.is_none() {
            self.live_on(&known, &truth, with_all.as_ref());
        }
        self.worst_is_over(&kinds, met)
    }

    /// What there would be with the drives that are away; `None` when none is.
    fn truth_with_all(&mut self) -> Option<Truth> {
        if self.away.is_empty() {
            return None;
        }
        let found = found_drives(&mut self.drives, &BTreeSet::new());
        let present = found.iter().map(|found| found.superblock.number).collect();
        let newest = found.iter().max_by_key(|found| found.superblock.generation)?.superblock.clone();
        Some(Truth::of(&self.drives, &present, &newest))
    }

    /// Drives that are away come back, or not; whether they did.
    fn bring_back(&mut self) -> bool {
        let back = !self.away.is_empty() && self.scenario.knows(Fault::BackBeyond);
        if back {
            let away = std::mem::take(&mut self.away);
            self.trace.note(self.now, &[18], || format!("drives {away:?} come back"));
            self.counts.fire(Fault::BackBeyond);
        }
        back
    }

    fn choose_kinds(&mut self) -> BTreeSet<Fault> {
        let known: Vec<Fault> = KINDS.into_iter().filter(|kind| self.scenario.knows(*kind)).collect();
        let known = if known.is_empty() { KINDS.to_vec() } else { known };
        let first = *self.random.one_of(&known).expect("there is one");
        let more = known.into_iter().filter(|_| self.random.per_mille(250)).collect::<Vec<_>>();
        more.into_iter().chain([first]).collect()
    }

    /// Until a segment is being emptied of which something was copied, or not for long.
    fn wait_for_copies(&mut self) {
        let moved = |world: &World| -> u64 {
            let lanes = world.process.as_ref().map(Process::status).unwrap_or_default();
            let running = lanes.iter().filter(|lane| lane.compaction.is_running);
            running.map(|lane| lane.compaction.bytes_moved).sum()
        };
        let (before, until) = (moved(self), self.now + COPIES_MAX);
        while self.now < until && moved(self) <= before {
            self.step();
        }
    }

    fn more_than_parity(&mut self) -> Vec<DriveNumber> {
        let (parity, drives) = (u64::from(self.scenario.shape.parity), self.drives.numbers().len() as u64);
        let count = if self.random.per_mille(600) { parity + 1 } else { self.random.within(parity + 1..drives + 1) };
        self.drives.some_of_the_living(count as usize)
    }

    /// Drives die under the server, each when the one before is out; or are not there at the next start.
    fn lose_one_by_one(&mut self, known: &Known) {
        if self.process.is_none() || self.random.per_mille(500) {
            let gone = if self.random.per_mille(800) { self.run_without_some() } else { self.more_than_parity() };
            self.away = gone.into_iter().collect();
            return;
        }
        let gone = self.more_than_parity();
        for drive in gone {
            self.drives.kill(drive, self.now);
            self.ask_while_they_die(known);
        }
    }

    /// The server runs for a while without as many drives as parity makes up for, and takes them out of use; gives these and one more.
    fn run_without_some(&mut self) -> Vec<DriveNumber> {
        let parity = usize::from(self.scenario.shape.parity);
        let gone = self.drives.some_of_the_living(parity + 1);
        self.kill();
        self.away = gone.iter().copied().take(parity).collect();
        if self.start_after_the_worst().is_none() {
            let time = self.random.millis(20..4000);
            self.pass(time);
        }
        gone
    }

    fn damage(&mut self, kinds: &BTreeSet<Fault>) {
        let everywhere = self.random.per_mille(200);
        if kinds.contains(&Fault::RotBeyond) {
            let drives = self.more_than_parity();
            self.drives.rot_much(&drives, everywhere);
        }
        if kinds.contains(&Fault::OverwrittenBeyond) {
            let drives = self.more_than_parity();
            self.drives.overwrite_much(&drives, everywhere);
        }
    }

    fn kill(&mut self) {
        self.process = None;
        self.asker = None;
        self.drives.crash();
        self.network.server_is_gone(self.now);
        self.start_at = Time(u64::MAX);
    }

    /// What is read meanwhile is right, or it is said that it cannot be read.
    fn ask_while_they_die(&mut self, known: &Known) {
        let mut asker = self.asker();
        asker.fragments(known.fragments.keys().copied());
        self.asker = Some(asker);
        let until = self.now + self.random.millis(20..4000);
        while self.now < until && !self.asker.as_ref().is_some_and(Asker::is_done) {
            self.step();
        }
        let answered = self.asker.take().expect("it was put there").answered;
        self.model.answers.reads += answered.fragments.len() as u64;
        for (id, (outcome, bytes)) in &answered.fragments {
            known.check_content(*id, *outcome, bytes, "while drives die");
            let promised = known.fragments[id].promised;
            let said = !matches!(outcome, ReadOutcome::NotFound | ReadOutcome::Deleted);
            assert!(said || !promised, "while drives die: {id} is lost, and that is not said: {outcome:?}");
        }
    }

    /// Time goes by, and nobody asks for anything.
    fn pass(&mut self, time: Duration) {
        let nobody = self.asker();
        self.asker = Some(nobody);
        let until = self.now + time;
        while self.now < until {
            self.step();
        }
        self.asker = None;
    }

    /// A start; why it is refused, if it is.
    fn start_after_the_worst(&mut self) -> Option<OpenError> {
        let nonce = self.random.next();
        self.processes += 1;
        self.failed = None;
        match Process::start(&mut self.drives, &self.scenario, &self.away, None, nonce) {
            Ok(process) => {
                self.trace.note(self.now, &[9, self.processes], || format!("start {}", self.processes));
                self.process = Some(process);
                None
            }
            Err(error) => {
                self.check_refusal(&error);
                Some(error)
            }
        }
    }

    /// A start is refused for want of members alone, and names those that it wants.
    fn check_refusal(&mut self, error: &OpenError) {
        let found = found_drives(&mut self.drives, &self.away);
        match error {
            OpenError::NoDrives => assert!(found.is_empty(), "drives are there: {error}"),
            OpenError::TooFewMembers { found: members_found, missing, .. } => {
                let plan = plan_open(&found, OpenRequest { read_only: true }).expect("it can be opened for reading");
                let list = plan.absent_members.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                assert_eq!(*missing, list, "what is missing is named");
                let members = plan.superblock.drives.iter().filter(|entry| entry.state == DriveState::Member).count();
                assert_eq!(*members_found, members - plan.absent_members.len(), "{error}");
            }
            other => panic!("the store does not start: {other}"),
        }
    }

    /// Until the server serves; whether it does.
    fn await_serving(&mut self, truth: &Truth) -> bool {
        let nobody = self.asker();
        self.asker = Some(nobody);
        let until = self.now + START_MAX;
        while !self.process.as_ref().is_some_and(Process::is_serving) {
            if let Some(reason) = &self.failed {
                // Members that died since they wrote their superblocks are found to be gone only now.
                let members = self.members.0.len();
                let living = self.members.0.iter().filter(|drive| !self.drives.is_dead(**drive)).count();
                let few = living < members || living < usize::from(self.scenario.shape.parity) + 1;
                let gone = truth.lanes.iter().any(|lane| lane.is_gone);
                assert!(gone || few, "it does not start, and every lane has a checkpoint: {reason}");
                return false;
            }
            assert!(self.now < until, "it does not come to serve: {:?}", self.process.as_ref().map(Process::status));
            self.step();
        }
        true
    }

    /// Everything that is known is asked for. `back`: what the drives hold with those that have come back since.
    fn census(&mut self, known: &Known, truth: &Truth, back: Option<&Truth>, when: &str) -> Answered {
        let mut asker = self.asker();
        asker.fragments(known.fragments.keys().copied());
        asker.about_events(&known.events, Question::Events);
        asker.accepted(&known.streams());
        let asker = self.hear(asker);
        let answered = asker.answered;
        self.model.answers.reads += (answered.fragments.len() + answered.events.len()) as u64;
        known.compare(&answered, truth, when);
        self.compare_counts(truth, back, when);
        answered
    }

    fn asker(&mut self) -> Asker {
        let seed = self.random.next();
        Asker::new(&self.scenario, seed, self.now)
    }

    fn hear(&mut self, asker: Asker) -> Asker {
        self.asker = Some(asker);
        let until = self.now + ANSWERS_MAX;
        while !self.asker.as_ref().is_some_and(Asker::is_done) {
            assert!(self.now < until, "not all is answered: {:?}", self.process.as_ref().map(Process::status));
            self.step();
        }
        self.asker.take().expect("it was put there")
    }

    /// What the lanes say is lost is lost, and where something is they say so.
    fn compare_counts(&self, truth: &Truth, back: Option<&Truth>, when: &str) {
        let status = self.process.as_ref().expect("it serves").status();
        let back = back.map_or(&truth.lanes, |back| &back.lanes);
        let lanes = status.iter().zip(truth.lanes.iter().zip(back));
        for (lane, (truth, back)) in lanes.filter(|(_, (truth, _))| !truth.is_gone && !truth.is_old) {
            let said =
                lane.flushes_lost + lane.flushes_possibly_lost + lane.flushes_unavailable + lane.segments_unreadable;
            let missing = &truth.flushes_missing;
            let still = missing.iter().any(|flush| back.flushes_missing.contains(flush));
            assert!(said > 0 || !still, "{when}: {missing:?} are lost, and that is not said: {lane:?}");
            let silent = lane.flushes_lost + lane.segments_unreadable;
            assert!(silent == 0 || !missing.is_empty(), "{when}: nothing is lost, and that is said: {lane:?}");
        }
    }

    /// It started: it is asked, works, falls, starts, is emptied, falls and starts.
    fn live_on(&mut self, known: &Known, truth: &Truth, with_all: Option<&Truth>) {
        if !self.await_serving(truth) {
            return;
        }
        if self.scenario.scrubbed_before_asked {
            self.scrub_names_all(known, truth);
        }
        self.census(known, truth, None, "after the start");
        self.pass(BACKGROUND);
        self.census(known, truth, None, "after a while");
        self.kill();
        let back = self.bring_back();
        if self.start_after_the_worst().is_some() || !self.await_serving(truth) {
            return;
        }
        let with_all = with_all.filter(|_| back);
        let answered = self.census(known, truth, with_all, "after the second start");
        if let Some(with_all) = with_all
            && known.compare_back(&answered, truth, with_all) > 0
        {
            self.counts.meet(Fault::BackBeyond);
        }
        self.empty(known);
        self.assert_empty(known, "when all is deleted");
        self.kill();
        if self.start_after_the_worst().is_some() || !self.await_serving(truth) {
            return;
        }
        self.assert_empty(known, "after the last start");
    }

    /// When everything was looked at, each fragment that cannot be read any more is listed before anybody asks for it, and none that can.
    fn scrub_names_all(&mut self, known: &Known, truth: &Truth) {
        self.process.as_mut().expect("it serves").scrub_all();
        let nobody = self.asker();
        self.asker = Some(nobody);
        let until = self.now + SCRUB_MAX;
        // A lane that can write nothing looks at nothing.
        let looks = |lane: &LaneStatus| lane.width.is_some() && lane.scrub.segments_asked > 0;
        while self.process.as_ref().expect("it serves").status().iter().any(looks) {
            assert!(self.now < until, "no end of a scrub: {:?}", self.process.as_ref().map(Process::status));
            self.step();
        }
        self.asker = None;
        if self.process.as_ref().expect("it serves").status().iter().any(|lane| lane.scrub.segments_asked > 0) {
            return;
        }
        let listed = self.lost_one_by_one();
        let answered = self.census(known, truth, None, "after a scrub");
        for id in &listed {
            let outcome = answered.fragments.get(id).map(|(outcome, _)| *outcome);
            assert_ne!(outcome, Some(ReadOutcome::Found), "{id} is listed as lost, and can be read");
        }
        assert_eq!(self.lost_one_by_one(), listed, "readers met what a scrub had not listed");
    }

    /// The fragments that are listed as lost.
    fn lost_one_by_one(&mut self) -> BTreeSet<FragmentId> {
        let losses = self.process.as_mut().expect("it serves").losses();
        let fragment = |loss: &Loss| match loss.part {
            LostPart::Fragment { id, .. } => Some(id),
            _ => None,
        };
        losses.iter().filter_map(fragment).collect()
    }

    /// Everything is deleted.
    fn empty(&mut self, known: &Known) {
        let mut asker = self.asker();
        asker.about_events(&known.events, Question::Delete);
        let asker = self.hear(asker);
        self.model.answers.decisions += asker.answered.deleted.len() as u64;
        self.pass(Duration::from_secs(5));
    }

    /// Nothing that was deleted is there, or comes back.
    fn assert_empty(&mut self, known: &Known, when: &str) {
        let mut asker = self.asker();
        asker.about_events(&known.events, Question::Events);
        let asker = self.hear(asker);
        self.model.answers.reads += asker.answered.events.len() as u64;
        for (key, event) in asker.answered.events {
            assert_ne!(event.outcome, ReadOutcome::Found, "{when}: {key} was deleted");
        }
        for lane in self.process.as_ref().expect("it serves").status() {
            assert_eq!((lane.events, lane.fragments), (0, 0), "{when}: something is left: {lane:?}");
        }
    }

    fn worst_is_over(mut self, kinds: &BTreeSet<Fault>, met: bool) -> Totals {
        for kind in kinds {
            self.counts.fire(*kind);
            if met {
                self.counts.meet(*kind);
            }
        }
        self.totals()
    }
}
