//! Crashes, stops, drives that die or rot.

use super::*;

impl World {
    pub fn crash(&mut self) {
        let Some((lane, mut media)) = self.lane.take() else { return };
        self.totals.stored_with_less_parity += lane.status().counters.fragments_stored_less_parity;
        drop(lane);
        self.totals.crashes += 1;
        let mut random = Random(self.random.next());
        let mut torn = 0;
        media.crash(|_| match random.below(4) {
            0 => KeepPart::Whole,
            1 => KeepPart::Nothing,
            2 => {
                torn += 1;
                KeepPart::First { blocks: 1 + random.below(3) as usize }
            }
            _ => {
                torn += 1;
                KeepPart::Some { seed: random.next() }
            }
        });
        self.totals.torn_writes += torn;
    }

    pub(super) fn stop(&mut self) {
        self.totals.stops += 1;
        self.lane().stop();
        let mut turns = 0;
        while !self.lane().is_stopped() {
            self.turn();
            turns += 1;
            assert!(turns < 100_000, "the lane does not stop: {:?}", self.lane().status());
        }
        assert_eq!(self.stopped_whole.take(), Some(true), "a stop of a sound lane is whole");
        self.lane = None;
        self.start(false);
    }

    /// A drive dies for good, as long as parity allows it.
    pub(super) fn lose_a_drive(&mut self) {
        let faults = self.lost.len() + usize::from(self.corrupted.is_some_and(|c| !self.lost.contains(&c)));
        if faults >= self.shape.losses {
            return;
        }
        let drive = DriveNumber(self.random.below(u64::from(self.shape.drives)) as u16);
        if self.lost.contains(&drive) {
            return;
        }
        self.totals.drives_lost += 1;
        self.lost.push(drive);
        self.drives.fail_drive(drive);
    }

    /// Part of what a drive holds turns into noise; the same drive each time, and it counts as lost.
    pub(super) fn corrupt_a_drive(&mut self) {
        let others = self.lost.iter().filter(|d| Some(**d) != self.corrupted).count();
        if others + 1 > self.shape.losses || self.lost.len() + 1 > self.shape.losses {
            return;
        }
        let drive = self.corrupted.unwrap_or(DriveNumber(self.random.below(u64::from(self.shape.drives)) as u16));
        if self.lost.contains(&drive) {
            return;
        }
        self.corrupted = Some(drive);
        self.totals.drives_corrupted += 1;
        let start = self.random.below(self.setup.drive_bytes / 4096) * 4096;
        let end = (start + (1 + self.random.below(64)) * 4096).min(self.setup.drive_bytes);
        self.drives.corrupt(drive, start..end, self.random.0);
    }
}
