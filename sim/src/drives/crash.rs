//! What the end of a process leaves of what was on its way.

use forebay_types::limits::BLOCK_BYTES;

use super::{BLOCK, Drives, Fate, Memory, Unsynced};
use crate::faults::Fault;
use crate::random::Random;

/// What a crash leaves of what was on its way.
enum Tear {
    /// Nothing at all.
    Nothing,
    /// Everything on each second drive, nothing on the others.
    ByDrive(u64),
    /// Of each write some blocks and not the others: nothing that was on its way is whole anywhere.
    InPart,
    /// Of each write something else, in one of so many ways.
    EachItsOwn(u64),
}

impl Tear {
    /// `checkpoint`: one is on its way, of which a part hurts most.
    fn some(random: &mut Random, torn: bool, checkpoint: bool) -> Tear {
        if torn && checkpoint && random.per_mille(400) {
            return Tear::InPart;
        }
        match random.below(10) {
            0..3 => Tear::Nothing,
            3 => Tear::ByDrive(random.below(2)),
            4 if torn => Tear::InPart,
            _ => Tear::EachItsOwn(if torn { 4 } else { 2 }),
        }
    }
}

impl Drives {
    /// The process is gone: of each write on its way any blocks may be there, and nothing comes back.
    pub(crate) fn crash(&mut self) {
        self.due.clear();
        let checkpoint = self.lane_checkpoints_on_their_way();
        self.rounds.clear();
        self.held = None;
        // Nobody is left who could take them out.
        self.drives.values_mut().for_each(|drive| drive.refused_at = None);
        let tear = Tear::some(&mut self.random, self.enabled.contains(&Fault::TornWrite), checkpoint);
        for Unsynced { drive, offset, before, .. } in self.unsynced.iter_mut().flat_map(std::mem::take).rev() {
            let contents = &mut self.drives.get_mut(&drive).expect("a drive of the store").contents;
            contents[offset as usize..offset as usize + before.len()].copy_from_slice(&before);
        }
        for operation in std::mem::take(&mut self.in_flight).into_values() {
            let Memory::Write(buffer) = &operation.memory else { continue };
            if let (Some(pool), Some(target)) = (&mut self.pool, operation.target) {
                let late = self.enabled.contains(&Fault::LateOfFenced);
                let comes = pool.leave(target, &buffer[..operation.bytes], (self.now, late), &mut self.random);
                if comes {
                    self.counts.fire(Fault::LateOfFenced);
                }
                continue;
            }
            if self.drives[&operation.drive].dead {
                continue;
            }
            let blocks = operation.bytes / BLOCK_BYTES;
            let how = match &tear {
                Tear::Nothing => 1,
                Tear::ByDrive(has) => u64::from(operation.drive.0 as u64 & 1 != *has),
                Tear::InPart => 2,
                Tear::EachItsOwn(ways) => self.random.below(*ways),
            };
            let first = match &tear {
                Tear::InPart if blocks > 1 => self.random.within(1..blocks as u64) as usize,
                _ => self.random.below(blocks as u64 + 1) as usize,
            };
            let mut written = 0;
            for block in 0..blocks {
                let there = match how {
                    0 => true,
                    1 => false,
                    2 => block < first,
                    _ => self.random.per_mille(500),
                };
                if there {
                    written += 1;
                    let part = &buffer[block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES];
                    self.write(operation.drive, operation.offset + block as u64 * BLOCK, part, Fate::Right);
                }
            }
            if written > 0 && written < blocks {
                self.counts.fire(Fault::TornWrite);
                let drive = self.drives.get_mut(&operation.drive).expect("a drive of the store");
                let first = operation.offset / BLOCK;
                drive.damaged.extend((first..first + blocks as u64).map(|block| (block, Fault::TornWrite)));
            }
        }
        if let Some(pool) = &mut self.pool {
            let left = pool.owner_is_gone(&mut self.random);
            (0..left).for_each(|_| self.counts.fire(Fault::LateOfFenced));
        }
        // What another owner would find now.
        self.own_anew(self.now);
    }
}
