//! Who stays a member when drives fail while the list is written.

use forebay_format::{FORMAT_VERSION, Geometry};
use forebay_types::StoreUuid;

use super::*;

const DRIVES: u16 = 6;

/// A control part of 4+1 on six drives, and the drives that take no more writes.
struct Driven {
    control: Control,
    dead: BTreeSet<DriveNumber>,
}

impl Driven {
    fn started() -> Driven {
        let geometry = Geometry {
            lanes: 1,
            data_shards: 4,
            parity_shards: 1,
            data_shards_min: 3,
            unit_bytes: 4096,
            slot_bytes: 1 << 20,
            checkpoint_bytes: 256 << 10,
            fragment_bytes_max: 60_000,
        };
        let uuid = |number: u16| DriveUuid::from_bytes([number as u8 + 1; 16]);
        let entry = |number: u16| DriveEntry {
            uuid: uuid(number),
            number: DriveNumber(number),
            state: DriveState::Member,
            slots: 30,
            changed: 1,
            bytes: 32 << 20,
        };
        let superblock = Superblock {
            format_version: FORMAT_VERSION,
            program: ProgramVersion::OWN,
            store: StoreUuid::from_bytes([7; 16]),
            drive: uuid(0),
            number: DriveNumber(0),
            generation: 2,
            membership: 1,
            epoch: 1,
            nonce: 1,
            clean: true,
            created_unix_s: 1,
            geometry,
            history: vec![Start { epoch: 1, nonce: 1 }],
            drives: (0..DRIVES).map(entry).collect(),
        };
        let info = |entry: &DriveEntry| DriveInfo {
            number: entry.number,
            uuid: entry.uuid,
            slots: entry.slots,
            member: true,
            present: true,
        };
        let plan = OpenPlan {
            drives: superblock.drives.iter().map(info).collect(),
            numbers: (0..DRIVES).map(|number| Some(DriveNumber(number))).collect(),
            absent_members: Vec::new(),
            warnings: Vec::new(),
            superblock,
        };
        let mut driven = Driven { control: Control::start(&plan, 5, 1), dead: BTreeSet::new() };
        driven.run();
        assert!(driven.control.is_started());
        driven
    }

    /// Until nothing is on its way.
    fn run(&mut self) {
        while let Some((id, operation)) = self.control.next_operation() {
            let Operation::Write { drive, .. } = operation else { panic!("it reads nothing") };
            let result = if self.dead.contains(&drive) { Err(forebay_media::MediaError::Absent) } else { Ok(()) };
            self.control.complete(&Completion { id, result, buffer: None });
        }
    }

    fn members(&self) -> Vec<u16> {
        members(self.control.superblock()).into_iter().map(|drive| drive.0).collect()
    }
}

#[test]
fn a_drive_that_an_operator_takes_out_stays_when_another_turns_out_to_be_dead() {
    let mut driven = Driven::started();
    driven.dead.insert(DriveNumber(4));
    driven.control.retire_drive(DriveNumber(5)).expect("nobody knows of the other yet");
    driven.run();
    assert_eq!((driven.control.no_quorum(), driven.members()), (None, vec![0, 1, 2, 3, 5]));
    // The list without the dead one is durable by now: the next may leave.
    driven.control.retire_drive(DriveNumber(5)).expect("enough are left for writing");
    driven.run();
    assert_eq!((driven.control.no_quorum(), driven.members()), (None, vec![0, 1, 2, 3]));
}

#[test]
fn nothing_is_written_any_more_when_more_are_dead_than_may_be() {
    let mut driven = Driven::started();
    driven.dead.extend([DriveNumber(3), DriveNumber(4)]);
    driven.control.retire_drive(DriveNumber(5)).expect("nobody knows of the others yet");
    driven.run();
    assert!(driven.control.no_quorum().is_some_and(|reason| reason.starts_with("4 of 6 member drives are left")));
}
