//! Who stays a member when drives fail while the list is written.

use forebay_format::{FORMAT_VERSION, Geometry};
use forebay_types::StoreUuid;

use super::*;

const DRIVES: u16 = 6;

/// A control part of 4+1 on six drives, and the drives that take no more writes.
struct Driven {
    control: Control,
    dead: BTreeSet<DriveNumber>,
    /// What was written, in order: generation, format version and whether it is clean.
    written: Vec<(u64, u16, bool)>,
}

/// How a store of version 1, stopped in order or not, starts with all of its drives.
fn plan(clean: bool) -> OpenPlan {
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
        format_version: 1,
        program: ProgramVersion::OWN,
        store: StoreUuid::from_bytes([7; 16]),
        drive: uuid(0),
        number: DriveNumber(0),
        generation: 2,
        membership: 1,
        epoch: 1,
        nonce: 1,
        clean,
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
    OpenPlan {
        drives: superblock.drives.iter().map(info).collect(),
        numbers: (0..DRIVES).map(|number| Some(DriveNumber(number))).collect(),
        absent_members: Vec::new(),
        warnings: Vec::new(),
        superblock,
    }
}

impl Driven {
    fn new(control: Control) -> Driven {
        Driven { control, dead: BTreeSet::new(), written: Vec::new() }
    }

    fn started() -> Driven {
        let mut driven = Driven::new(Control::start(&plan(true), 5, 1));
        driven.run();
        assert!(driven.control.is_started());
        driven
    }

    /// Until nothing is on its way.
    fn run(&mut self) {
        while let Some((id, operation)) = self.control.next_operation() {
            let Operation::Write { drive, buffer, .. } = operation else { panic!("it reads nothing") };
            let superblock = Superblock::decode(&buffer).expect("it writes superblocks");
            self.written.push((superblock.generation, superblock.format_version, superblock.clean));
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

#[test]
fn a_start_leaves_a_store_in_its_version() {
    let driven = Driven::started();
    assert_eq!(driven.control.superblock().format_version, 1);
    assert!(driven.written.iter().all(|(_, version, _)| *version == 1), "{:?}", driven.written);
}

#[test]
fn an_upgrade_confirms_what_was_found_and_writes_the_new_version_once() {
    for clean in [true, false] {
        let mut driven = Driven::new(Control::upgrade(&plan(clean), 5));
        driven.run();
        let of = |generation, version| vec![(generation, version, clean); usize::from(DRIVES)];
        assert_eq!(driven.written, [of(2, 1), of(3, FORMAT_VERSION)].concat(), "as clean as it was");
        let superblock = driven.control.superblock();
        assert!(driven.control.is_started() && superblock.has_files());
        assert_eq!((superblock.epoch, superblock.nonce, superblock.history.len()), (2, 5, 2), "a start of its own");
    }
}

#[test]
fn an_upgrade_goes_on_without_a_drive_that_refuses_it_and_not_without_too_many() {
    let mut driven = Driven::new(Control::upgrade(&plan(true), 5));
    driven.dead.insert(DriveNumber(4));
    driven.run();
    let superblock = driven.control.superblock();
    assert_eq!((superblock.format_version, superblock.clean), (FORMAT_VERSION, true));
    assert_eq!((driven.control.is_started(), driven.members()), (true, vec![0, 1, 2, 3, 5]));

    let mut driven = Driven::new(Control::upgrade(&plan(true), 5));
    driven.dead.extend([DriveNumber(4), DriveNumber(5)]);
    driven.run();
    assert!(!driven.control.is_started() && driven.control.no_quorum().is_some());
    assert_eq!(driven.control.superblock().format_version, 1, "what is durable");
}
