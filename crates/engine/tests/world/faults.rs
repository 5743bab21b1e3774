//! Crashes, stops, drives that die or rot.

use super::*;

impl World {
    pub fn crash(&mut self) {
        let Some((lane, mut media)) = self.lane.take() else { return };
        let status = lane.status();
        self.totals.stored_with_less_parity += status.counters.fragments_stored_less_parity;
        self.totals.segments_rebuilt += status.rebuild.segments_rebuilt;
        self.totals.fragments_moved += status.compaction.fragments_moved;
        self.totals.pieces_moved += status.compaction.pieces_moved;
        self.totals.events_joined += status.compaction.events_joined;
        self.totals.mended += status.drive_health.iter().map(|drive| drive.mended).sum::<u64>();
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
        self.forget_what_is_made_up_for();
        let faults = self.missed().count() + usize::from(self.corrupted.is_some_and(|c| !self.lost.contains(&c)));
        // Of a store that goes on with fewer drives than it was made with, no more may die than writing can do without.
        let members = self.infos.iter().filter(|info| info.member && !self.lost.contains(&info.number)).count();
        let needed = usize::from(self.shape.data_min) + usize::from(self.shape.parity_min);
        if faults >= self.shape.losses || members <= needed {
            return;
        }
        let drive = self.any_drive();
        if self.lost.contains(&drive) || !self.info(drive).member {
            return;
        }
        self.totals.drives_lost += 1;
        self.lost.push(drive);
        self.drives.fail_drive(drive);
    }

    fn any_drive(&mut self) -> DriveNumber {
        let at = self.random.below(self.infos.len() as u64) as usize;
        self.infos[at].number
    }

    /// Drives that are lost and of which the lane still misses something.
    pub(super) fn missed(&self) -> impl Iterator<Item = &DriveNumber> {
        self.lost.iter().filter(|drive| !self.made_up_for.contains(drive))
    }

    /// What lay on lost drives lies elsewhere when as many drives may fail as may at first.
    pub(super) fn forget_what_is_made_up_for(&mut self) {
        let parity = self.shape.parity;
        let whole = self.lane().status().failures_left.is_none_or(|left| left >= parity);
        let known = self.lost.iter().all(|lost| self.infos.iter().any(|info| info.number == *lost && !info.member));
        let no_noise = self.corrupted.is_none_or(|drive| self.lost.contains(&drive));
        if whole && known && no_noise && self.leaving.is_empty() && self.lane().is_serving() {
            self.totals.drives_made_up_for += self.missed().count() as u64;
            self.made_up_for = self.lost.iter().copied().collect();
        }
    }

    /// A new drive comes to the store for one that is lost.
    pub(super) fn replace_a_drive(&mut self) {
        let out = self.infos.iter().filter(|info| !info.member).count();
        let replaced = self.infos.len() - usize::from(self.shape.drives);
        if !self.leaving.is_empty() || replaced >= out || self.infos.len() >= 60 {
            return;
        }
        let number = DriveNumber(self.infos.len() as u16);
        self.drives.insert(number, self.setup.drive_bytes);
        let uuid = DriveUuid::from_bytes([number.0 as u8 + 1; 16]);
        let slots = self.infos[0].slots;
        self.infos.push(DriveInfo { number, uuid, slots, member: true, present: true });
        self.totals.drives_replaced += 1;
        let drives = Membership::Drives(self.infos.clone());
        self.lane().membership(&drives);
    }

    /// Part of what a drive holds turns into noise; the same drive each time, and it counts as lost.
    pub(super) fn corrupt_a_drive(&mut self) {
        self.forget_what_is_made_up_for();
        if self.missed().count() + 1 > self.shape.losses {
            return;
        }
        let any = self.any_drive();
        let drive = self.corrupted.unwrap_or(any);
        if self.lost.contains(&drive) || !self.info(drive).member {
            return;
        }
        self.corrupted = Some(drive);
        self.totals.drives_corrupted += 1;
        let start = self.random.below(self.setup.drive_bytes / 4096) * 4096;
        let end = (start + (1 + self.random.below(64)) * 4096).min(self.setup.drive_bytes);
        self.drives.corrupt(drive, start..end, self.random.0);
    }
}
