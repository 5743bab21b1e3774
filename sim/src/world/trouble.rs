//! What befalls a store: faults that come by the clock, drives that are away, strangers at a start.

use std::time::Duration;

use forebay_engine::{Lane, OpenError, StoredEvent};
use forebay_format::DriveState;
use forebay_types::{DriveNumber, EventKey, FragmentId};

use super::World;
use crate::faults::Fault;
use crate::opening::newest_superblock;
use crate::server::Process;

/// A lane with no more segments free wants those that come free.
const SEGMENTS_FREE_FEW: u64 = 6;
/// More fragments are not read at once.
const FRAGMENTS_FEW: usize = 120;

/// A jump looks to a lane like a step of up to 0.1 s: many within the time of one operation would make a drive look dead that is not.
const BETWEEN_JUMPS: Duration = Duration::from_millis(500);

impl World {
    pub(super) fn befall(&mut self) {
        if self.now >= self.scenario.drives_fail_from && !self.calm {
            self.drives.begin_to_fail();
        }
        if self.crash_is_due() {
            self.plan_crash();
            self.end_somehow();
        }
        if self.fenced_end.is_some_and(|at| at <= self.now) {
            self.end_process();
        }
        if self.next_fault.is_some_and(|at| at <= self.now) {
            self.fault();
            self.plan_fault();
        }
    }

    pub(super) fn plan_fault(&mut self) {
        let millis = 1..self.scenario.fault_millis * 2;
        self.next_fault = Some(self.now + self.random.millis(millis));
    }

    pub(super) fn choose_who_is_away(&mut self) {
        self.away.clear();
        if self.calm || !self.drives.may_fail() {
            return;
        }
        for number in self.drives.numbers() {
            if !self.drives.is_victim(number) {
                continue;
            }
            if self.scenario.knows(Fault::DriveReturns) && self.random.per_mille(300) {
                self.counts.fire_and_meet(Fault::DriveReturns);
                self.drives.spoil(number);
                self.away.insert(number);
            } else if self.scenario.knows(Fault::EmptyDrive) && self.random.per_mille(20) {
                self.counts.fire_and_meet(Fault::EmptyDrive);
                self.drives.empty(number);
            }
        }
    }

    /// Whether it was alive.
    pub(crate) fn victim_dies(&mut self, victim: DriveNumber) -> bool {
        let is_alive = !self.drives.is_dead(victim);
        if is_alive {
            self.trace.note(self.now, &[7, u64::from(victim.0)], || format!("drive {victim} dies"));
            self.drives.kill(victim, self.now);
        }
        is_alive
    }

    fn fault(&mut self) {
        if self.scenario.knows(Fault::EmptiedDuringRead) && self.random.per_mille(300) {
            return self.empty_during_read();
        }
        if self.scenario.pool && self.random.per_mille(400) {
            return self.trouble_pool();
        }
        match self.random.below(5) {
            0 if self.scenario.knows(Fault::DriveDies) && self.drives.may_fail() && self.random.per_mille(400) => {
                if let Some(victim) = self.drives.some_victim()
                    && self.victim_dies(victim)
                    && self.random.per_mille(400)
                {
                    self.crash_soon(40);
                }
            }
            1 if self.scenario.knows(Fault::ClockJump) && self.now >= self.jumped_at + BETWEEN_JUMPS => {
                if let Some(process) = &mut self.process {
                    self.jumped_at = self.now;
                    self.counts.fire_and_meet(Fault::ClockJump);
                    let by = self.random.millis(100..20_000);
                    self.trace.note(self.now, &[8], || format!("the server's clock jumps by {by:?}"));
                    process.jump(by);
                    let to = self.model.calendar.set(self.now);
                    self.trace.note(self.now, &[], || format!("and its calendar is set to {} ms", to.0));
                }
            }
            2 if self.scenario.knows(Fault::FullStore) => {
                // Nobody decides: what is written stays.
                self.counts.fire(Fault::FullStore);
                self.filters_rest_until = self.now + self.random.millis(100..4000);
            }
            3 | 4 if self.drives.may_fail() => self.operate(),
            _ => {}
        }
    }

    /// The cluster blocks for a while, or takes the store from its server.
    fn trouble_pool(&mut self) {
        match self.random.below(2) {
            0 if self.scenario.knows(Fault::PoolBlocks) => {
                let for_so_long = self.random.millis(100..8000);
                self.trace.note(self.now, &[17], || format!("the pool blocks for {for_so_long:?}"));
                self.drives.block(self.now + for_so_long);
            }
            1 if self.scenario.knows(Fault::Fenced) && self.process.is_some() && self.fenced_end.is_none() => {
                self.trace.note(self.now, &[18], || "the server is fenced".to_owned());
                self.drives.fence();
                self.fenced_end = Some(self.now + self.random.micros(1..20_000));
            }
            _ => {}
        }
    }

    /// Of the fullest lane, the segment with least alive is read, and while its drives take their time all of it is deleted: its slots are wanted.
    fn empty_during_read(&mut self) {
        let Some(process) = self.process.as_ref().filter(|process| process.is_serving()) else { return };
        let free = |lane: &&Lane| lane.status().segments_free;
        let Some(lane) = process.lanes().min_by_key(free) else { return };
        if lane.status().segments_free > SEGMENTS_FREE_FEW {
            return;
        }
        let segments = lane.stored_segments().into_iter().filter(|segment| segment.closed && segment.live_bytes > 0);
        let Some(segment) = segments.min_by_key(|segment| segment.live_records) else { return };
        let mut events = lane.stored_events(EventKey::default(), usize::MAX);
        // Of other runs somebody else decides.
        let run = self.scenario.run();
        events.retain(|event| {
            event.key.run == run && event.fragments.iter().any(|fragment| fragment.segment == segment.handle)
        });
        let ids = |event: &StoredEvent| {
            let here = event.fragments.iter().filter(|fragment| fragment.segment == segment.handle);
            here.map(|fragment| event.key.fragment(fragment.source)).collect::<Vec<_>>()
        };
        let fragments: Vec<FragmentId> = events.iter().flat_map(ids).collect();
        let keys: Vec<EventKey> = events.iter().map(|event| event.key).collect();
        let number = lane.status().lane;
        if fragments.is_empty() || fragments.len() > FRAGMENTS_FEW {
            return;
        }
        self.trace.note(self.now, &[16, keys.len() as u64], || format!("{keys:?} are read and deleted"));
        self.counts.fire(Fault::EmptiedDuringRead);
        let until = self.now + self.random.millis(150..800);
        self.drives.hold_reads(number, self.now + Duration::from_millis(3), until);
        self.monitor.read_and_delete(self.now, until, fragments, &keys, &mut self.model);
    }

    pub(super) fn start(&mut self) {
        self.processes += 1;
        let nonce = self.random.next();
        for stranger in [Fault::ForeignDrive, Fault::Clone, Fault::TooFewDrives] {
            let can = stranger != Fault::TooFewDrives || self.away.is_empty() && self.all_are_members();
            if self.scenario.knows(stranger) && can && !self.calm && self.random.per_mille(100) {
                self.counts.fire(stranger);
                self.refuse(stranger, nonce);
            }
        }
        self.drives.own_anew(self.now);
        let process = Process::start(&mut self.drives, &self.scenario, &self.away, None, nonce);
        let process = process.unwrap_or_else(|error| panic!("the store does not start: {error}"));
        self.trace.note(self.now, &[9, self.processes], || format!("start {} without {:?}", self.processes, self.away));
        self.process = Some(process);
    }

    /// Nobody was taken out, so that half of the drives are half of the members.
    fn all_are_members(&mut self) -> bool {
        let numbers = self.drives.numbers();
        numbers.len() == usize::from(self.scenario.shape.drives)
            && numbers.into_iter().all(|drive| {
                let superblock = newest_superblock(&mut self.drives, drive);
                superblock.is_some_and(|s| s.drives.iter().all(|entry| entry.state == DriveState::Member))
            })
    }

    /// With a drive among them that does not belong there nothing starts.
    fn refuse(&mut self, stranger: Fault, nonce: u64) {
        let mut without = self.away.clone();
        if stranger == Fault::TooFewDrives {
            // One more is away than there may be.
            let drives = self.drives.numbers();
            let first = self.random.below(drives.len() as u64) as usize;
            let gone = (0..drives.len()).map(|n| drives[(first + n) % drives.len()]);
            without = gone.take(drives.len() / 2 + drives.len() % 2).collect();
        }
        let refused = Process::start(&mut self.drives, &self.scenario, &without, Some(stranger), nonce).err();
        let right = match refused {
            Some(OpenError::ForeignDrive { .. }) => stranger == Fault::ForeignDrive,
            Some(OpenError::DuplicateDrive { .. }) => stranger == Fault::Clone,
            Some(OpenError::TooFewMembers { .. } | OpenError::NoDrives) => stranger == Fault::TooFewDrives,
            _ => false,
        };
        assert!(right, "{stranger}: {refused:?}");
        self.counts.meet(stranger);
    }
}
