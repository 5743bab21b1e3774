//! More than parity makes up for.

use std::ops::Range;

use forebay_types::DriveNumber;

use super::{BLOCK, Drives};

/// So many blocks of a thousand rot, in one of these ways.
const ROT_PER_MILLE: [u64; 4] = [2, 20, 150, 600];

impl Drives {
    /// From now on it is kept what is written.
    pub(crate) fn keep_what_is_written(&mut self) {
        self.written = Some(Box::default());
    }

    /// Of the drives that nobody carried away and that live, so many, by chance.
    pub(crate) fn some_of_the_living(&mut self, count: usize) -> Vec<DriveNumber> {
        let mut living: Vec<DriveNumber> = self.numbers().into_iter().filter(|drive| !self.is_dead(*drive)).collect();
        while living.len() > count {
            let one = self.random.below(living.len() as u64) as usize;
            living.remove(one);
        }
        living
    }

    /// Blocks of these drives rot, in the slots and, if so, before them.
    pub(crate) fn rot_much(&mut self, drives: &[DriveNumber], everywhere: bool) {
        let per_mille = *self.random.one_of(&ROT_PER_MILLE).expect("there are some");
        for number in drives {
            let drive = self.drives.get_mut(number).expect("a drive of the store");
            let first = if everywhere { 0 } else { self.slots_offset / BLOCK };
            for block in first..drive.contents.len() as u64 / BLOCK {
                if self.random.per_mille(per_mille) {
                    let at = block * BLOCK + self.random.below(BLOCK);
                    drive.contents[at as usize] ^= 1 << self.random.below(8);
                }
            }
        }
    }

    /// A part of each of these drives is overwritten with noise or zeros; `everywhere`: superblocks and checkpoints may be, too.
    pub(crate) fn overwrite_much(&mut self, drives: &[DriveNumber], everywhere: bool) {
        for number in drives {
            let drive = self.drives.get_mut(number).expect("a drive of the store");
            let first = if everywhere { 0 } else { self.slots_offset / BLOCK };
            let last = drive.contents.len() as u64 / BLOCK;
            let from = self.random.within(first..last);
            let from = if self.random.per_mille(300) { first } else { from };
            let blocks: Range<u64> = from..self.random.within(from..last) + 1;
            let noise = self.random.per_mille(700);
            for at in (blocks.start * BLOCK..blocks.end * BLOCK).step_by(8) {
                let word = if noise { self.random.next() } else { 0 };
                drive.contents[at as usize..at as usize + 8].copy_from_slice(&word.to_le_bytes());
            }
        }
    }

    /// What lies on a drive that answers, as far as it can be read; nothing is met by that.
    pub(crate) fn bytes_at(&self, drive: DriveNumber, range: Range<u64>) -> Option<&[u8]> {
        let drive = self.drives.get(&drive).filter(|drive| !drive.dead)?;
        let blocks = range.start / BLOCK..range.end.div_ceil(BLOCK);
        if drive.unreadable.range(blocks).next().is_some() {
            return None;
        }
        drive.contents.get(range.start as usize..range.end as usize)
    }
}
