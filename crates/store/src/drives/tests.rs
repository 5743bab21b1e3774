use std::path::PathBuf;

use forebay_media::{Access, DirectIo, OpenDriveError};

use super::*;
use crate::config::StoreConfig;
use crate::init::{InitOptions, init};
use crate::open::open;

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

#[test]
fn a_drive_that_did_not_join_is_let_go_of_and_may_be_tried_again() {
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
    let (new, number) = (directory.path().join("new"), DriveNumber(5));
    let switch = control.0.switch.as_ref().expect("faults can be made");
    switch.fail(number);
    control.replace_drive(DriveNumber(1), &new, false, Vec::new()).expect("it begins");
    let (state, _, reason) = outcome(&control);
    assert_eq!(state, "failed");
    assert!(reason.expect("words").contains("is not a member"));
    lane.turn();
    assert!(is_free(&new), "a drive that is no part of the store is nobody's");
    switch.mend(number);
    control.replace_drive(DriveNumber(1), &new, false, Vec::new()).expect("it begins");
    let (state, joined, reason) = outcome(&control);
    assert_eq!((state, joined), ("done", Some(5)), "{reason:?}");
    assert!(!is_free(&new));
}
