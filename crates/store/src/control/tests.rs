use forebay_engine::{FoundDrive, LOOK_AFTER, OpenRequest, plan_open};
use forebay_format::{DriveEntry, DriveState, FORMAT_VERSION, Geometry, ProgramVersion, Start, Superblock};
use forebay_media::{Completion, FaultyMedia, MemoryDrives, MemoryMedia, Operation};

use super::*;

const DRIVES: u16 = 5;

fn superblock_of(number: u16) -> Superblock {
    let entry = |number: u16| DriveEntry {
        uuid: DriveUuid::from_random_bytes([number as u8 + 1; 16]),
        number: DriveNumber(number),
        state: DriveState::Member,
        slots: 8,
        changed: 0,
        bytes: 16 << 20,
    };
    let geometry = Geometry {
        lanes: 1,
        data_shards: 4,
        parity_shards: 1,
        data_shards_min: 2,
        unit_bytes: 32 << 10,
        slot_bytes: 1 << 20,
        checkpoint_bytes: 256 << 10,
        fragment_bytes_max: 1 << 20,
    };
    Superblock {
        format_version: FORMAT_VERSION,
        program: ProgramVersion::default(),
        store: StoreUuid::from_random_bytes([9; 16]),
        drive: entry(number).uuid,
        number: DriveNumber(number),
        generation: 2,
        membership: 1,
        epoch: 1,
        nonce: 7,
        clean: true,
        created_unix_s: 0,
        geometry,
        history: vec![Start { epoch: 1, nonce: 7 }],
        drives: (0..DRIVES).map(entry).collect(),
    }
}

/// Whom the control part writes to, all of it being done.
fn written_to(control: &mut Control) -> Vec<u16> {
    let operations: Vec<_> = std::iter::from_fn(|| control.next_operation()).collect();
    let mut drives = Vec::new();
    for (id, operation) in operations {
        let Operation::Write { drive, .. } = operation else { panic!("only superblocks are written: {operation:?}") };
        drives.push(drive.0);
        control.complete(&Completion { id, result: Ok(()), buffer: None });
    }
    drives
}

#[test]
fn a_list_is_on_the_drive_that_joins_by_it_before_any_other_has_it() {
    let found: Vec<FoundDrive> =
        (0..DRIVES).map(|n| FoundDrive { path: format!("d{n}"), superblock: superblock_of(n) }).collect();
    let mut control = Control::start(&plan_open(&found, OpenRequest::default()).expect("a store"), 8, 1);
    let all: Vec<u16> = (0..DRIVES).collect();
    assert_eq!((written_to(&mut control), written_to(&mut control)), (all.clone(), all.clone()), "confirmed and begun");
    let new = control.add_drive(DriveUuid::from_random_bytes([99; 16]), 8, 16 << 20).expect("it is taken");
    assert_eq!((written_to(&mut control), control.has_joined(new)), (vec![new.0], None));
    assert_eq!((written_to(&mut control), control.has_joined(new)), (all, Some(true)));
}

#[test]
fn a_drive_may_leave_as_long_as_new_data_get_the_parity_that_is_asked_for() {
    let leaves = |parity_min: u8| {
        let mut superblocks: Vec<Superblock> = (0..DRIVES).map(superblock_of).collect();
        superblocks.iter_mut().for_each(|superblock| superblock.geometry.data_shards_min = 4);
        let named = |superblock: Superblock| FoundDrive { path: format!("d{}", superblock.number), superblock };
        let found: Vec<FoundDrive> = superblocks.into_iter().map(named).collect();
        let plan = plan_open(&found, OpenRequest::default()).expect("a store");
        let mut control = Control::start(&plan, 8, parity_min);
        for _begun in 0..2 {
            written_to(&mut control);
        }
        control.retire_drive(DriveNumber(1))
    };
    let refused = leaves(1).expect_err("4+1 is the least, and there are five drives");
    assert!(refused.contains("4 of 5 members would be left and 5 are needed"), "{refused}");
    assert_eq!(leaves(0), Ok(()));
}

/// A start while some drives are silent: how it went, and the members that drive 0 then names.
fn start_without(silent: &[u16]) -> (Result<(), String>, usize) {
    let found: Vec<FoundDrive> =
        (0..DRIVES).map(|n| FoundDrive { path: format!("d{n}"), superblock: superblock_of(n) }).collect();
    let plan = plan_open(&found, OpenRequest::default()).expect("a store");
    let drives = MemoryDrives::new(DRIVES, 16 << 20);
    silent.iter().for_each(|n| drives.hold(DriveNumber(*n)));
    let config = StoreConfig { drive_timeout_ms: Some(2), ..StoreConfig::default() };
    let media = Box::new(MemoryMedia::new(&drives));
    let control = Some(Control::start(&plan, 8, 1));
    let thread = ControlThread::new(control, media, Vec::new(), &plan, &Ground::Drives(Vec::new()), &config, None);
    let started = thread.start_store().map(|_| ());
    silent.iter().for_each(|n| drives.release(DriveNumber(*n)));
    let contents = drives.contents(DriveNumber(0));
    let places = [0, forebay_format::SUPERBLOCK_STRIDE_BYTES as usize];
    let written = places.iter().filter_map(|place| Superblock::decode(&contents[*place..]).ok());
    let newest = written.max_by_key(|superblock| superblock.generation).expect("the start was written");
    let program = if started.is_ok() { ProgramVersion::OWN } else { ProgramVersion::default() };
    assert_eq!((newest.program, newest.format_version), (program, FORMAT_VERSION), "whoever starts it says so");
    (started, newest.drives.iter().filter(|drive| drive.state == DriveState::Member).count())
}

/// A store that was started, and a switch for its drives.
fn started() -> (ControlThread, FaultSwitch) {
    let found: Vec<FoundDrive> =
        (0..DRIVES).map(|n| FoundDrive { path: format!("d{n}"), superblock: superblock_of(n) }).collect();
    let plan = plan_open(&found, OpenRequest::default()).expect("a store");
    let (drives, switch) = (MemoryDrives::new(DRIVES, 16 << 20), FaultSwitch::new());
    let media = Box::new(FaultyMedia::new(MemoryMedia::new(&drives), switch.clone()));
    let control = Some(Control::start(&plan, 8, 1));
    let config = StoreConfig::default();
    let thread = ControlThread::new(control, media, Vec::new(), &plan, &Ground::Drives(Vec::new()), &config, None);
    let (thread, _) = thread.start_store().expect("all drives are well");
    assert_eq!(thread.shared.status().drives_failed, 0);
    (thread, switch)
}

/// A store of which one drive fails after the start; nothing is written then but what this does.
fn when_one_fails(then: impl Fn(&mut ControlThread)) -> ControlStatus {
    let (mut thread, switch) = started();
    switch.fail(DriveNumber(2));
    then(&mut thread);
    thread.run_operations();
    thread.shared.status().clone()
}

fn states(status: &ControlStatus) -> Vec<&str> {
    status.drives.iter().map(|drive| drive.state).collect()
}

#[test]
fn a_drive_that_refuses_a_superblock_is_told_to_have_failed() {
    // The lane only reads.
    let status =
        when_one_fails(|thread| thread.lane_event(0, LaneEvent::DamageFound { drive: DriveNumber(2), places: 1 }));
    assert_eq!((states(&status), status.drives_failed), (vec!["member", "member", "failed", "member", "member"], 1));
    assert_eq!(status.drives[2].reason.as_deref(), Some("it refused a superblock"));
}

#[test]
fn a_drive_that_fails_is_noticed_when_nobody_writes() {
    let look = |thread: &mut ControlThread, at: Duration| {
        let now = Time(0) + at;
        thread.control.as_mut().expect("it is open for writing").look_at_drives(now);
    };
    let early = when_one_fails(|thread| {
        look(thread, Duration::ZERO);
        look(thread, LOOK_AFTER - Duration::from_millis(1));
    });
    assert_eq!(states(&early), ["member"; 5]);
    let status = when_one_fails(|thread| {
        look(thread, Duration::ZERO);
        look(thread, LOOK_AFTER);
    });
    assert_eq!((states(&status), status.drives_failed), (vec!["member", "member", "failed", "member", "member"], 1));
}

#[test]
fn a_silent_drive_is_taken_out_by_the_start() {
    assert_eq!(start_without(&[3]), (Ok(()), 4));
    assert_eq!(start_without(&[]), (Ok(()), 5));
}

#[test]
fn when_more_are_silent_than_may_be_missing_the_start_ends_and_none_is_taken_out() {
    let (started, members) = start_without(&[1, 3]);
    let why = started.expect_err("no quorum");
    assert!(why.starts_with("3 of 5 member drives are left and 4 are needed"), "{why}");
    assert_eq!(members, 5);
}

#[test]
fn a_drive_that_is_taken_out_of_use_is_not_told_to_have_failed() {
    let (mut thread, _switch) = started();
    assert_eq!(thread.carry_out(Command::Retire(DriveNumber(3))), Ok(DriveNumber(3)));
    let status = thread.shared.status().clone();
    assert_eq!((states(&status), status.drives_failed), (vec!["member", "member", "member", "retired", "member"], 0));
    assert_eq!(status.drives[3].reason.as_deref(), Some("an operator takes it out of use"));
}

#[test]
fn a_drive_that_is_taken_out_of_use_stays_a_member_when_another_is_dead_and_who_asked_is_told() {
    let status = when_one_fails(|thread| {
        let refused = thread.carry_out(Command::Retire(DriveNumber(3))).expect_err("one of both");
        assert!(refused.contains("drive 3 stays a member") && refused.contains("`forebay drive list`"), "{refused}");
    });
    assert_eq!((states(&status), status.drives_failed), (vec!["member", "member", "failed", "member", "member"], 1));
    assert_eq!(status.drives[3].reason, None);
}
