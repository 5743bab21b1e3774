//! A drive that hangs: it is given up after a time, told, and the others are looked at without it.

use std::ffi::OsStr;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::common::{Drives, scratch, told_within};
use crate::look::{drive_states, drives_of, payload, shards, stopped};
use crate::mount::{ALL, Mounted, Requests};

/// Far more than a look takes that gives a drive up: whoever takes so long waits for ever.
const FOR_EVER: Duration = Duration::from_secs(90);

/// It tells what it is, and nothing else: checkpoints begin here.
const BEHIND_SUPERBLOCKS: Range<u64> = 128 << 10..u64::MAX;

/// What is told of drives one of which hangs at these bytes; `None` where there is no FUSE.
fn told(drives: &Drives, hanging: (usize, Range<u64>), options: &[&str], exit: i32) -> Option<Value> {
    let mounted = Mounted::files(&drives.paths, 1, Requests::Asynchronous)?;
    mounted.hang_at(hanging.0, hanging.1);
    let paths = mounted.paths();
    let words = ["doctor", "--json", "--drive-timeout", "2"].into_iter().chain(options.iter().copied());
    let words: Vec<&OsStr> = words.map(OsStr::new).chain(paths.iter().map(|path| path.as_os_str())).collect();
    let told = told_within(&words, FOR_EVER, || mounted.hang_no_more());
    let (report, ended) = told.expect("a drive that hangs is waited for no longer than was said");
    assert_eq!(ended, exit, "{report}");
    Some(report)
}

fn silent_reason(report: &Value, drive: usize) -> &str {
    assert_eq!(drive_states(report)[drive], "silent", "{report}");
    report["drives"][drive]["reason"].as_str().expect("words")
}

/// One of five is silent, and all that is stored can be read from the four others.
fn made_up_for(report: &Value, drive: usize) {
    let reason = silent_reason(report, drive);
    assert!(reason.contains("did not answer for ") && reason.contains("--drive-timeout"), "{reason}");
    assert_eq!((&report["verdict"], &report["readable"]["fragments_readable"]), (&"repairable".into(), &5.into()));
    let missing: Vec<_> = report["drives_missing"].as_array().expect("a list").iter().map(|d| &d["number"]).collect();
    assert_eq!((missing, &report["start"]["members_taken_out"]), (vec![&drive.into()], &serde_json::json!([drive])));
    assert!(report["warnings"].to_string().contains("did not answer for "), "{report}");
    let of_it: Vec<_> = shards(report).into_iter().filter(|shard| shard["drive"] == drive).collect();
    assert!(!of_it.is_empty() && of_it.iter().all(|shard| shard["state"] == "missing"), "{of_it:?}");
    assert!(shards(report).iter().all(|shard| shard["state"] != "damaged"), "{report}");
}

#[test]
fn a_drive_that_hangs_when_it_is_opened_is_given_up() {
    let drives = stopped(5);
    if let Some(report) = told(&drives, (3, ALL), &[], 0) {
        made_up_for(&report, 3);
    }
}

#[test]
fn a_drive_that_hangs_while_the_lanes_recover_is_given_up() {
    let drives = stopped(5);
    if let Some(report) = told(&drives, (2, BEHIND_SUPERBLOCKS), &[], 0) {
        made_up_for(&report, 2);
    }
}

#[test]
fn a_drive_that_hangs_when_its_units_are_read_is_given_up() {
    let drives = stopped(5);
    let (drive, at) = drives_of(&drives, 3)[0];
    if let Some(report) = told(&drives, (drive, at..at + 1), &[], 0) {
        made_up_for(&report, drive);
    }
}

#[test]
fn what_is_missing_besides_a_drive_that_hangs_is_out_of_reach_and_not_lost() {
    let mut drives = stopped(5);
    let hanging = 3;
    drives.paths.remove(0);
    let Some(report) = told(&drives, (hanging - 1, BEHIND_SUPERBLOCKS), &[], 1) else { return };
    assert_eq!((&report["verdict"], &report["readable"]["fragments_lost"]), (&"out-of-reach".into(), &0.into()));
    assert_eq!(report["lanes"][0]["unreadable"], Value::Null, "{report}");
    silent_reason(&report, hanging - 1);
    assert!(report["start"]["refused"].to_string().contains("4 are needed for writing"), "{report}");
}

#[test]
fn an_export_goes_on_without_a_drive_that_hangs() {
    let drives = stopped(5);
    let (drive, at) = drives_of(&drives, 3)[0];
    let directory = scratch();
    let into = directory.path().join("rescue");
    let options = ["--quick", "--export", &into.display().to_string()];
    // With --quick it is the export that reads the units first.
    let Some(report) = told(&drives, (drive, at..at + 1), &options, 0) else { return };
    silent_reason(&report, drive);
    assert_eq!((&report["export"]["fragments"], &report["export"]["fragments_missing"]), (&5.into(), &0.into()));
    let exported = |event: u64| fs::read(file_of(&into, event)).expect("it was exported");
    assert!((0..5).all(|event| exported(event) == payload(event)));
}

fn file_of(directory: &Path, event: u64) -> std::path::PathBuf {
    directory.join(format!("run00000001/event{event:012}/00000001.bin"))
}
