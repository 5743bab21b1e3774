//! What operators do with drives: they put new ones in, and take old ones out of use.

use forebay_types::{DriveNumber, DriveUuid};

use crate::faults::Fault;
use crate::truth::lanes_that_name;
use crate::world::World;

/// As many drives as a store has had when operators replace no more; those that are needed in the end are put in all the same.
const DRIVES_REPLACED_MAX: usize = 60;

/// So often, when an operator looks at the drives, a sound one is taken out of use.
const SOUND_RETIRED_PER_MILLE: u64 = 500;

/// So often all victims die then.
const VICTIMS_DIE_PER_MILLE: u64 = 400;

/// A replacement under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replacing {
    old: DriveNumber,
    new: DriveNumber,
}

impl World {
    /// An operator looks at the drives.
    pub(crate) fn operate(&mut self) {
        let serves = self.process.as_ref().is_some_and(|process| process.is_serving());
        if !serves || self.replacing.is_some() {
            return;
        }
        if self.random.per_mille(SOUND_RETIRED_PER_MILLE) && self.scenario.knows(Fault::SoundRetired) {
            return self.take_sound_out();
        }
        let Some(drive) = self.drives.some_victim() else { return };
        let member = self.members.0.contains(&drive);
        let spoiled = self.drives.is_spoiled(drive);
        let may_replace = self.may_replace();
        match self.random.below(6) {
            0 if member && self.scenario.knows(Fault::Retired) => self.take_out(Fault::Retired, drive),
            1 if member && self.scenario.knows(Fault::GivenUp) => self.take_out(Fault::GivenUp, drive),
            _ if may_replace && self.scenario.knows(Fault::Replaced) && (spoiled || !member) => self.replace(drive),
            _ => {}
        }
    }

    fn may_replace(&mut self) -> bool {
        let control = self.process.as_mut().expect("it serves").control();
        control.drives().len() < DRIVES_REPLACED_MAX
    }

    /// Takes a drive out of use that is none of the victims, if there are more members than a segment has shards.
    fn take_sound_out(&mut self) {
        let process = self.process.as_mut().expect("it serves");
        let members = process.members();
        let shards = usize::from(self.scenario.shape.data) + usize::from(self.scenario.shape.parity);
        let sound: Vec<DriveNumber> = members
            .iter()
            .copied()
            .filter(|drive| !self.drives.is_victim(*drive) && !self.drives.is_spoiled(*drive))
            .collect();
        let Some(drive) = self.random.one_of(&sound).copied() else { return };
        let control = process.control();
        if members.len() > shards && control.waiting_for().is_empty() && control.retire_drive(drive).is_ok() {
            self.trace.note(self.now, &[17, u64::from(drive.0)], || format!("{}: {drive}", Fault::SoundRetired));
            self.counts.fire_and_meet(Fault::SoundRetired);
            // What lies on it is needed most when all that may fail does.
            if self.random.per_mille(VICTIMS_DIE_PER_MILLE)
                && self.scenario.knows(Fault::DriveDies)
                && self.drives.may_fail()
            {
                for victim in self.drives.victims() {
                    self.victim_dies(victim);
                }
            }
        }
    }

    /// Takes a drive out of use; whether the store allows it.
    fn take_out(&mut self, how: Fault, drive: DriveNumber) {
        let control = self.process.as_mut().expect("it serves").control();
        if !control.waiting_for().is_empty() {
            // Whoever carries commands out is busy.
            return;
        }
        let done = match how {
            Fault::Retired => control.retire_drive(drive),
            _ => control.give_drive_up(drive),
        };
        if done.is_ok() {
            self.trace.note(self.now, &[10, u64::from(drive.0)], || format!("{how}: {drive}"));
            self.drives.spoil(drive);
            self.counts.fire_and_meet(how);
        }
    }

    fn replace(&mut self, old: DriveNumber) {
        if let Some(new) = self.add() {
            self.trace.note(self.now, &[11, u64::from(old.0)], || format!("drive {new} is put in for {old}"));
            self.counts.fire(Fault::Replaced);
            self.replacing = Some(Replacing { old, new });
        }
    }

    /// Puts one more drive in, if none is being put in.
    pub(crate) fn put_in(&mut self) {
        let Some(process) = self.process.as_mut().filter(|process| process.is_serving()) else { return };
        match self.spare.map(|new| (new, process.control().has_joined(new))) {
            Some((_, None)) => return,
            Some((new, Some(false))) => self.drives.remove(new, new),
            Some((_, Some(true))) | None => {}
        }
        self.spare = self.add();
        if let Some(new) = self.spare {
            self.trace.note(self.now, &[14, u64::from(new.0)], || format!("drive {new} is put in"));
        }
    }

    /// Puts an empty drive in.
    fn add(&mut self) -> Option<DriveNumber> {
        let bytes = self.scenario.drive_bytes;
        let uuid =
            DriveUuid::from_random_bytes(self.random.next().to_le_bytes().repeat(2).try_into().expect("16 bytes"));
        let control = self.process.as_mut().expect("it serves").control();
        let slots = control.drives()[0].slots;
        let new = control.add_drive(uuid, slots, bytes).ok()?;
        self.drives.add(new, bytes);
        Some(new)
    }

    /// Goes on with a replacement: the old drive is taken out when the new one is in, and carried away when nothing needs it any more.
    pub(crate) fn go_on_replacing(&mut self) {
        let Some(Replacing { old, new }) = self.replacing else { return };
        let Some(process) = self.process.as_mut().filter(|process| process.is_serving()) else { return };
        match process.control().has_joined(new) {
            None => return,
            Some(false) => {
                // It was put in and the server fell before anybody knew: once more, with another one.
                self.drives.remove(new, new);
                self.replacing = None;
                return;
            }
            Some(true) => {}
        }
        let members = process.members();
        if members.contains(&old) {
            // As often as it takes, when whoever carries commands out is not busy.
            if process.control().waiting_for().is_empty() && process.control().retire_drive(old).is_ok() {
                self.drives.spoil(old);
            }
            return;
        }
        if !process.status().iter().all(|lane| lane.rebuild.is_whole) {
            return;
        }
        let superblock = process.control().superblock().clone();
        let naming = lanes_that_name(&self.drives, &members, &superblock, old);
        assert!(naming.is_empty(), "nothing is said to lie on drive {old}; checkpoints of lanes {naming:?} name it");
        process.control().drive_failed(old);
        let sound: Vec<DriveNumber> = members.into_iter().filter(|drive| !self.drives.is_victim(*drive)).collect();
        let Some(heir) = self.random.one_of(&sound).copied() else { return };
        self.trace.note(self.now, &[12, u64::from(old.0)], || format!("drive {old} is carried away; {heir} is next"));
        self.drives.remove(old, heir);
        self.counts.meet(Fault::Replaced);
        self.replacing = None;
        if self.random.per_mille(300) {
            // Nothing needs it any more, whatever happens now.
            self.crash_soon(2);
        }
    }
}
