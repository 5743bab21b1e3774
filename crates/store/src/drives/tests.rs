use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_format::{DriveEntry, Superblock};
use forebay_media::{Access, DirectIo, OpenDriveError};

use super::*;
use crate::config::StoreConfig;
use crate::control::ControlStatus;
use crate::init::{InitOptions, init};
use crate::open::open;
use crate::runner::LaneRunner;

/// Longer than anything takes: only a hang comes here.
const HANG: Duration = Duration::from_secs(60);

/// Waits until the replacement that was begun last is over: its state, the number of the new drive, and why it failed.
fn outcome(control: &ControlHandle) -> (&'static str, Option<u16>, Option<String>) {
    let over = |status: &ControlStatus| status.replacement.as_ref().is_some_and(Replacement::is_over);
    assert!(control.wait_until(HANG, over), "it never ends");
    let replacement = control.status().replacement.expect("one was begun");
    (replacement.state, replacement.number, replacement.reason)
}

/// Whether nobody has the drive. The kernel lets go of it a moment after the last operation.
fn is_free(path: &Path) -> bool {
    (0..100).any(|_| match DriveFile::open(path, DirectIo::Auto, Access::Exclusive) {
        Err(OpenDriveError::InUse { .. }) => {
            std::thread::sleep(Duration::from_millis(20));
            false
        }
        opened => opened.is_ok(),
    })
}

/// A store of five drives that serves, with all that is kept of it.
struct Served {
    directory: tempfile::TempDir,
    paths: Vec<PathBuf>,
    control: ControlHandle,
    lane: LaneRunner,
}

impl Served {
    fn new() -> Served {
        let directory = tempfile::tempdir().expect("a directory");
        let paths: Vec<PathBuf> = (0..5).map(|n| directory.path().join(format!("drive{n}"))).collect();
        let mut options = InitOptions::new(4, 1);
        (options.drive_bytes, options.lanes) = (Some(16 << 20), Some(1));
        init(&paths, &options, &mut |_| {}).expect("a store can be made");
        let config = StoreConfig { fault_injection: true, ..StoreConfig::default() };
        let opened = open(&paths, &config).expect("it opens");
        let control = opened.control;
        let mut lane = opened.runners.into_iter().next().expect("one").start();
        while !lane.lane().is_serving() {
            lane.wait(Duration::from_millis(5));
        }
        Served { directory, paths, control, lane }
    }

    fn replace(&self, path: &Path, force: bool) -> (&'static str, Option<u16>, Option<String>) {
        self.control.replace_drive(DriveNumber(1), path, force, Vec::new()).expect("it begins");
        outcome(&self.control)
    }
}

#[test]
fn a_drive_that_did_not_join_is_let_go_of_and_may_be_tried_again() {
    let mut store = Served::new();
    let (new, number) = (store.directory.path().join("new"), DriveNumber(5));
    let switch = store.control.0.switch.clone().expect("faults can be made");
    switch.fail(number);
    let (state, _, reason) = store.replace(&new, false);
    assert_eq!(state, "failed");
    assert!(reason.expect("words").contains("is not a member"));
    store.lane.turn();
    assert!(is_free(&new), "a drive that is no part of the store is nobody's");
    switch.mend(number);
    let (state, joined, reason) = store.replace(&new, false);
    assert_eq!((state, joined), ("done", Some(5)), "{reason:?}");
    assert!(!is_free(&new));
}

#[test]
fn what_a_drive_holds_that_did_not_join_is_named_and_written_over_by_force() {
    let store = Served::new();
    // As if the store had stopped between the superblock of the new drive and those of the others.
    let bytes = std::fs::read(&store.paths[1]).expect("read");
    let mut superblock = Superblock::decode(&bytes).expect("the first place has one");
    let new =
        DriveEntry { uuid: DriveUuid::from_random_bytes([5; 16]), number: DriveNumber(5), ..superblock.drives[1] };
    superblock.drives.push(new);
    (superblock.drive, superblock.number) = (new.uuid, new.number);
    let path = store.directory.path().join("new");
    let begun: Vec<u8> = superblock.encode().into_iter().chain(std::iter::repeat(0)).take(bytes.len()).collect();
    std::fs::write(&path, begun).expect("written");
    let (state, _, reason) = store.replace(&path, false);
    assert_eq!(state, "failed");
    let reason = reason.expect("words");
    assert!(reason.contains("did not become a member") && reason.contains("--force"), "{reason}");
    assert_eq!(store.replace(&path, true), ("done", Some(5), None));
}
