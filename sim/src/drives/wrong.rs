//! What goes wrong with an operation, and how long it takes.

use std::ops::Range;
use std::time::Duration;

use forebay_format::CHECKPOINTS_OFFSET;
use forebay_types::DriveNumber;
use forebay_types::limits::BLOCK_BYTES;

use super::{BLOCK, Drives, Fate};
use crate::faults::Fault;

/// Of a thousand operations on a victim so many go wrong in each of the ways that are switched on.
const WRONG_PER_MILLE: u64 = 4;
/// Of a thousand operations so many take a hundred times as long as usual.
const LATE_PER_MILLE: u64 = 40;
/// Of a thousand of these, so many take much longer still, and no drive is given up for it.
const LATEST_PER_MILLE: u64 = 200;
pub(super) const LATEST_MILLIS: Range<u64> = 50..450;
/// So long an operation takes that hangs: some come back while their drive is not given up yet, most long after.
const HANG_MILLIS: Range<u64> = 400..20_000;

impl Drives {
    fn wrong(&mut self, fault: Fault, drive: DriveNumber) -> bool {
        let wrong = self.may_fail
            && self.enabled.contains(&fault)
            && self.victims.contains(&drive)
            && self.random.per_mille(WRONG_PER_MILLE);
        if wrong {
            self.spoil(drive);
        }
        wrong
    }

    pub(super) fn latency(&mut self, drive: DriveNumber, offset: u64) -> Duration {
        if self.wrong(Fault::Hang, drive) {
            self.counts.fire_and_meet(Fault::Hang);
            return self.random.millis(HANG_MILLIS);
        }
        let usual = self.random.micros(20..250);
        if self.enabled.contains(&Fault::SlowCheckpoints) && offset >= CHECKPOINTS_OFFSET && offset < self.slots_offset
        {
            self.counts.fire_and_meet(Fault::SlowCheckpoints);
            return usual * 500;
        }
        let late = self.enabled.contains(&Fault::LateOperation) && self.random.per_mille(LATE_PER_MILLE);
        if late {
            self.counts.fire_and_meet(Fault::LateOperation);
            if self.random.per_mille(LATEST_PER_MILLE) {
                return self.random.millis(LATEST_MILLIS);
            }
        } else if self.drives[&drive].slow {
            self.counts.fire_and_meet(Fault::SlowDrive);
        }
        if late || self.drives[&drive].slow { usual * 100 } else { usual }
    }

    pub(super) fn fate_of_write(&mut self, drive: DriveNumber, bytes: usize) -> Fate {
        if self.wrong(Fault::FailedWrite, drive) {
            self.counts.fire(Fault::FailedWrite);
            Fate::Failed
        } else if self.wrong(Fault::LostWrite, drive) {
            self.counts.fire(Fault::LostWrite);
            Fate::Lost
        } else if self.wrong(Fault::MisplacedWrite, drive) {
            self.counts.fire(Fault::MisplacedWrite);
            Fate::Misplaced(self.some_place(drive, bytes))
        } else {
            Fate::Right
        }
    }

    pub(super) fn fate_of_read(&mut self, drive: DriveNumber, offset: u64, bytes: usize) -> Fate {
        let blocks = offset / BLOCK..(offset + bytes as u64) / BLOCK;
        if self.wrong(Fault::LatentError, drive) {
            self.counts.fire(Fault::LatentError);
            let block = self.random.within(blocks);
            self.drives.get_mut(&drive).expect("a drive of the store").unreadable.insert(block);
        } else if self.wrong(Fault::BitRot, drive) {
            // Half of it where it is met at once.
            let block = if self.random.per_mille(500) {
                self.random.within(blocks)
            } else {
                self.some_place(drive, BLOCK_BYTES) / BLOCK
            };
            self.rot(drive, block);
        }
        if self.wrong(Fault::MisplacedRead, drive) {
            self.counts.fire_and_meet(Fault::MisplacedRead);
            Fate::Misplaced(self.some_place(drive, bytes))
        } else if self.wrong(Fault::ShortRead, drive) {
            self.counts.fire_and_meet(Fault::ShortRead);
            Fate::Short
        } else {
            Fate::Right
        }
    }

    fn rot(&mut self, drive: DriveNumber, block: u64) {
        self.counts.fire(Fault::BitRot);
        let (at, bit) = (block * BLOCK + self.random.below(BLOCK), self.random.below(8));
        let drive = self.drives.get_mut(&drive).expect("a drive of the store");
        drive.contents[at as usize] ^= 1 << bit;
        drive.damaged.entry(block).or_insert(Fault::BitRot);
    }

    fn some_place(&mut self, drive: DriveNumber, bytes: usize) -> u64 {
        let blocks = (self.drives[&drive].contents.len() - bytes) as u64 / BLOCK;
        self.random.below(blocks + 1) * BLOCK
    }
}
