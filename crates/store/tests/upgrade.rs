//! Stores of version 1 that get version 2: all at once, also when the upgrade falls at any of its writes, or not at all.

mod common;

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use common::*;
use forebay_engine::{Admission, FileAdmission, FileWrite, WriteAt, WriterNumber};
use forebay_format::{FORMAT_VERSION, SUPERBLOCK_BYTES, SUPERBLOCK_STRIDE_BYTES, Superblock};
use forebay_store::{StoreConfig, UpgradeError, UpgradeReport, upgrade};
use forebay_types::{
    DriveNumber, EventKey, FileNumber, FileOutcome, FragmentId, PutOutcome, ReadOutcome, SourceId, crc32c,
};

const PLACES: [u64; 2] = [0, SUPERBLOCK_STRIDE_BYTES];
const FILE: FileNumber = FileNumber(5);

/// The bytes of both places for a superblock.
type Places = [Vec<u8>; 2];

fn places(path: &Path) -> Places {
    let drive = std::fs::File::open(path).expect("a drive");
    PLACES.map(|place| {
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        drive.read_exact_at(&mut bytes, place).expect("read");
        bytes
    })
}

fn put_places(path: &Path, places: &Places) {
    let drive = std::fs::File::options().write(true).open(path).expect("a drive");
    for (bytes, place) in places.iter().zip(PLACES) {
        drive.write_all_at(bytes, place).expect("written");
    }
}

/// The newest superblock of a drive.
fn newest(path: &Path) -> Superblock {
    let found = places(path).map(|bytes| Superblock::decode(&bytes));
    found.into_iter().flatten().max_by_key(|superblock| superblock.generation).expect("a superblock")
}

/// As a program that knows version 1 alone would have made it: the versions differ in nothing else before there are files.
fn of_version_1(store: &TestStore) {
    for path in &store.paths {
        let older = places(path).map(|bytes| {
            let superblock = Superblock::decode(&bytes).expect("a new store has both");
            Superblock { format_version: 1, ..superblock }.encode()
        });
        put_places(path, &older);
    }
}

fn store_of_version_1(drives: usize, data: u8) -> TestStore {
    let store = TestStore::with(drives, data, 1, |options| options.drive_bytes = Some(16 << 20));
    of_version_1(&store);
    store
}

fn config() -> StoreConfig {
    StoreConfig { drive_timeout_ms: Some(30_000), cache_bytes: 1 << 20, ..StoreConfig::default() }
}

fn upgraded(paths: &[PathBuf]) -> UpgradeReport {
    upgrade(paths, &config(), true, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"))
}

/// Why it is not, and that nothing is written then.
fn refused(paths: &[PathBuf]) -> UpgradeError {
    let before: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).expect("a drive")).collect();
    let error = upgrade(paths, &config(), true, &mut |_| {}).expect_err("it must not be upgraded");
    let after: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).expect("a drive")).collect();
    assert!(before == after, "an upgrade that is refused writes nothing");
    error
}

fn id(event: u64) -> FragmentId {
    FragmentId::new(1, event, 3)
}

/// Events 0 to 9 are stored, 0 is over.
fn fill(lane: &mut TestLane) {
    for event in 0..10 {
        assert_eq!(lane.put(id(event), 1, &payload(id(event), 3000)), PutOutcome::Durable);
    }
    assert!(lane.delete(id(0).key()).is_done());
}

fn verify(lane: &mut TestLane) {
    assert_eq!(lane.get(id(0)).0, ReadOutcome::Deleted);
    for event in 1..10 {
        assert_eq!(lane.get(id(event)), (ReadOutcome::Found, payload(id(event), 3000)), "{event}");
    }
}

/// Whether a file can be written and read.
fn takes_a_file(lane: &mut TestLane) -> bool {
    let writer = WriterNumber(1);
    match lane.lane().open_file(FILE, writer, true) {
        Admission::Done(FileOutcome::Done) => {}
        Admission::Done(FileOutcome::NoFiles) => return false,
        other => panic!("{other:?}"),
    }
    let write =
        FileWrite { file: FILE, at: WriteAt::End, crc: crc32c(b"bytes"), writer, appends: false, may_take_last: false };
    let token = forebay_engine::Token(1 << 40);
    lane.until("a write", |lane| match lane.write_file(token, &write, b"bytes") {
        FileAdmission::Busy => false,
        admission => {
            assert_eq!(admission, FileAdmission::Pending { start: 0 });
            true
        }
    });
    lane.until("the answer", |lane| lane.next_reply().is_some());
    lane.lane().file(FILE).is_some_and(|file| file.length == 5)
}

#[test]
fn a_new_store_has_files_and_one_of_version_1_has_none() {
    let store = TestStore::with(3, 2, 1, |options| options.drive_bytes = Some(16 << 20));
    let kept = FILE.key().fragment(SourceId(1));
    let mut lane = store.open();
    assert!(lane.info().has_files && takes_a_file(&mut lane));
    assert_eq!(lane.put(kept, 1, b"bytes"), PutOutcome::KeptRun);
    drop(lane);
    let old = store_of_version_1(3, 2);
    let mut lane = old.open();
    assert!(!lane.info().has_files && !takes_a_file(&mut lane));
    assert_eq!(lane.put(kept, 1, b"bytes"), PutOutcome::Durable);
    lane.stop();
    assert!(old.paths.iter().all(|path| newest(path).format_version == 1), "a start is no upgrade");
}

#[test]
fn an_upgraded_store_has_what_it_had_and_takes_files() {
    for is_stopped in [true, false] {
        let store = store_of_version_1(4, 2);
        let mut lane = store.open();
        fill(&mut lane);
        if is_stopped {
            lane.stop()
        } else {
            drop(lane)
        }
        let report = upgraded(&store.paths);
        assert_eq!((report.before, report.after, report.written), (1, FORMAT_VERSION, true));
        assert_eq!((report.members.len(), report.left_out.len()), (4, 0));
        for path in &store.paths {
            let superblock = newest(path);
            assert_eq!((superblock.format_version, superblock.clean), (FORMAT_VERSION, is_stopped), "{superblock:?}");
        }
        let before: Vec<Places> = store.paths.iter().map(|path| places(path)).collect();
        assert!(!upgraded(&store.paths).written, "once");
        assert!(before == store.paths.iter().map(|path| places(path)).collect::<Vec<_>>());
        let mut lane = store.open();
        assert_eq!(lane.control().status().started_clean, is_stopped);
        verify(&mut lane);
        assert!(takes_a_file(&mut lane));
        lane.stop();
        verify(&mut store.open());
    }
}

#[test]
fn a_dry_run_says_what_would_be_done_and_writes_nothing() {
    let store = store_of_version_1(3, 2);
    fill(&mut store.open());
    let before: Vec<Vec<u8>> = store.paths.iter().map(|path| std::fs::read(path).expect("a drive")).collect();
    let report = upgrade(&store.paths, &config(), false, &mut |_| {}).expect("it could be done");
    assert_eq!((report.before, report.after, report.written), (1, FORMAT_VERSION, false));
    assert!(before == store.paths.iter().map(|path| std::fs::read(path).expect("a drive")).collect::<Vec<_>>());
}

/// A write that was cut off, within what it changes: all of that lies in one sector here, which drives write whole or not at all.
fn torn(before: &[u8], after: &[u8]) -> Vec<u8> {
    let torn = [&after[..100], &before[100..]].concat();
    assert!(Superblock::decode(&torn).is_err());
    torn
}

/// An upgrade writes each drive's places in turn, the one that was found once more and then the other. It may fall after any of these writes, and in any of them; and drives
/// may have taken theirs in any order.
#[test]
fn an_upgrade_that_falls_anywhere_leaves_a_store_of_one_version_and_can_be_run_again() {
    let store = store_of_version_1(3, 2);
    let mut lane = store.open();
    fill(&mut lane);
    drop(lane);
    let before: Vec<Places> = store.paths.iter().map(|path| places(path)).collect();
    upgraded(&store.paths);
    let after: Vec<Places> = store.paths.iter().map(|path| places(path)).collect();
    let confirmed = (newest_place(&before[0]), newest_place(&after[0]));
    assert_eq!(confirmed.0, 1 - confirmed.1, "what was found stays until the new one is there");
    assert!(before.iter().zip(&after).all(|(before, after)| before[confirmed.0] == after[confirmed.0]));
    let written = confirmed.1;

    let mut versions = BTreeSet::new();
    // Of each drive: not written, torn, written.
    for state in 0..3u32.pow(3) {
        for again in [false, true] {
            for (drive, path) in store.paths.iter().enumerate() {
                let mut places = before[drive].clone();
                places[written] = match state / 3u32.pow(drive as u32) % 3 {
                    0 => before[drive][written].clone(),
                    1 => torn(&before[drive][written], &after[drive][written]),
                    _ => after[drive][written].clone(),
                };
                put_places(path, &places);
            }
            let is_new = store.paths.iter().any(|path| newest(path).format_version == FORMAT_VERSION);
            versions.insert(is_new);
            if again {
                let report = upgraded(&store.paths);
                let everywhere = state == 3u32.pow(3) - 1;
                assert_eq!((report.before == FORMAT_VERSION, report.written), (is_new, !everywhere), "state {state}");
                assert!(store.paths.iter().all(|path| newest(path).format_version == FORMAT_VERSION), "state {state}");
            }
            // What it writes is written over by the next state: its superblocks alone tell these apart.
            let read_only = |config: &mut StoreConfig| config.read_only = true;
            let mut lane = store.open_paths(&store.paths, read_only);
            assert_eq!(lane.info().has_files, is_new || again, "state {state}");
            verify(&mut lane);
        }
    }
    assert_eq!(versions.len(), 2, "both were met");

    // And a server that starts in between makes of it what most drives have not yet.
    put_places(&store.paths[0], &after[0]);
    for drive in [1, 2] {
        put_places(&store.paths[drive], &before[drive]);
    }
    let mut lane = store.open();
    verify(&mut lane);
    assert!(lane.info().has_files && takes_a_file(&mut lane));
    lane.stop();
    assert!(store.paths.iter().all(|path| newest(path).format_version == FORMAT_VERSION));
    assert!(!upgraded(&store.paths).written);
}

/// Which of two places holds the newest.
fn newest_place(places: &Places) -> usize {
    let generation = |bytes: &Vec<u8>| Superblock::decode(bytes).expect("whole").generation;
    usize::from(generation(&places[1]) > generation(&places[0]))
}

#[test]
fn a_store_that_knows_the_run_of_files_is_not_upgraded() {
    let kept = EventKey::new(u32::MAX, 9);
    let store = store_of_version_1(3, 2);
    let mut lane = store.open();
    fill(&mut lane);
    assert_eq!(lane.put(kept.fragment(SourceId(1)), 1, b"bytes"), PutOutcome::Durable);
    lane.stop();
    let error = refused(&store.paths);
    assert!(matches!(error, UpgradeError::KeptRun { lane: 0, stored: 1, finished: 0, version: 1 }), "{error:?}");
    let mut lane = store.open();
    assert!(lane.delete(kept).is_done());
    drop(lane);
    let error = refused(&store.paths);
    assert!(matches!(error, UpgradeError::KeptRun { lane: 0, stored: 0, finished: 1, version: 1 }), "{error:?}");
    let words = error.to_string();
    for said in ["run 4294967295", "Nothing was written", "format version 1", "`forebay init`"] {
        assert!(words.contains(said), "{words}");
    }
    verify(&mut store.open());
}

#[test]
fn members_that_are_missing_are_taken_out_and_too_many_are_an_error() {
    let store = store_of_version_1(4, 2);
    let mut lane = store.open();
    fill(&mut lane);
    lane.stop();
    let error = refused(&store.paths[2..]).to_string();
    assert!(error.starts_with("only 2 of the 4 members"), "{error}");
    let report = upgraded(&store.paths[1..]);
    assert_eq!((report.members.len(), report.left_out), (3, vec![DriveNumber(0)]));
    assert!(report.warnings[0].starts_with("drive 0 is a member and was not found"), "{:?}", report.warnings);
    // It comes back, of the old version: what the others say counts.
    let mut lane = store.open();
    assert!(lane.info().has_files);
    verify(&mut lane);
    drop(lane);
    let report = upgraded(&store.paths);
    assert!(!report.written, "what was taken out is asked nothing: {report:?}");
}

#[test]
fn what_cannot_be_read_keeps_a_store_from_being_upgraded() {
    let store = store_of_version_1(3, 2);
    let mut lane = store.open();
    fill(&mut lane);
    lane.stop();
    // Everything but superblocks and checkpoints, on all drives: each header has the table of its flush.
    for path in &store.paths {
        let superblock = newest(path);
        let slots_begin = superblock.geometry.layout(superblock.drives[0].slots).slots_offset();
        let drive = std::fs::File::options().write(true).open(path).expect("a drive");
        let bytes = drive.metadata().expect("a drive").len() - slots_begin;
        drive.write_all_at(&vec![0xA5; bytes as usize], slots_begin).expect("written");
    }
    let error = refused(&store.paths);
    assert!(matches!(error, UpgradeError::Hidden { lane: 0, version: 1, .. }), "{error:?}");
    assert!(error.to_string().contains("run 4294967295"), "{error}");
}

#[test]
fn a_store_that_is_served_is_not_upgraded() {
    let store = store_of_version_1(3, 2);
    let _lane = store.open();
    let error = upgrade(&store.paths, &config(), true, &mut |_| {}).expect_err("in use").to_string();
    assert!(error.contains("in use"), "{error}");
}
