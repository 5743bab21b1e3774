//! The read-out, the filter and the recorder as commands of their own.

mod common;

use std::fs;
use std::path::Path;

use common::{Drives, Server, scratch};
use serde_json::Value;

fn number(object: &Value, key: &str) -> u64 {
    object[key].as_u64().unwrap_or_else(|| panic!("{key} is a number in {object}"))
}

fn readout(server: &Server, ledger: &Path) -> Value {
    let ledger = ledger.display().to_string();
    let words =
        ["readout", "--json", "--generate", "faser", "--generate", "mdf", "--events", "60", "--ledger", &ledger];
    server.run(&words).expect(0).json()
}

#[test]
fn events_go_from_the_read_out_into_files() {
    let drives = Drives::five();
    let server = drives.serve();
    let directory = scratch();
    let (ledger, out) = (directory.path().join("hashes"), directory.path().join("out"));
    let written = readout(&server, &ledger);
    assert_eq!((number(&written, "events"), number(&written, "errors")), (60, 0));
    assert_eq!(number(&written, "fragments_written"), number(&written, "fragments_acknowledged"));
    assert_eq!(fs::read_to_string(&ledger).expect("read").lines().count(), 60);

    let hashes = ledger.display().to_string();
    let streams = ["--stream", "physics=0.5", "--stream", "calibration=0.3"];
    let filter = ["filter", "--json", "--until-idle", "0.2", "--ledger", &hashes, "--steps", "25%"];
    let filtered = server.run(&[&filter[..], &streams].concat()).expect(0).json();
    assert_eq!(number(&filtered, "events_built"), 60);
    assert_eq!(number(&filtered, "events_accepted") + number(&filtered, "events_rejected"), 60);
    assert_eq!((number(&filtered, "mismatched"), number(&filtered, "not_in_ledger")), (0, 0));

    let name = out.display().to_string();
    let recorded = server.run(&["record", "--json", "--out", &name, "--once"]).expect(0).json();
    assert!(number(&recorded, "events_shipped") >= number(&filtered, "events_accepted"), "{recorded}");
    assert!(number(&recorded["streams"]["physics"], "events_shipped") > 0, "{recorded}");
    assert!(out.join("physics").is_dir() && out.join("calibration").is_dir());
    let status = server.status();
    assert_eq!((number(&status["totals"], "events_accepted"), number(&status["totals"], "events_undecided")), (0, 0));

    let again = server.run(&["record", "--json", "--out", &name, "--once"]).expect(0).json();
    assert_eq!(number(&again, "events_shipped"), 0, "nothing comes twice");
}

#[test]
fn a_directory_that_cannot_be_written_is_said_and_nothing_is_released() {
    let drives = Drives::five();
    let server = drives.serve();
    let directory = scratch();
    readout(&server, &directory.path().join("hashes"));
    server.run(&["filter", "--until-idle", "0.2", "--stream", "physics=1"]).expect(0);
    // No permissions keep the superuser out; below /proc nobody makes a directory.
    let refused = server.run(&["record", "--once", "--out", "/proc/forebay"]).expect(2);
    refused.says("/proc/forebay").says("the store still holds them");
    let file = directory.path().join("file");
    fs::write(&file, b"").expect("written");
    server.run(&["record", "--json", "--once", "--out", &file.display().to_string()]).expect(2).json();
    assert_eq!(number(&server.status()["totals"], "events_accepted"), 60);
}

#[test]
fn a_damaged_file_is_named_with_the_byte_and_its_good_events_are_written() {
    let drives = Drives::five();
    let server = drives.serve();
    let directory = scratch();
    let path = directory.path().join("damaged.raw");
    let (bytes, offset) = common::damaged_file();
    fs::write(&path, bytes).expect("written");
    let ran = server.run(&["readout", "--json", "--input", &path.display().to_string()]).expect(1);
    ran.says(&format!("event at byte {offset}")).says("expected").says("found");
    let object = ran.json();
    assert_eq!((number(&object, "events"), number(&object, "exit")), (7, 1));
    assert_eq!(number(&object, "fragments_written"), number(&object, "fragments_acknowledged"));
    assert_eq!(number(&server.status()["totals"], "events_undecided"), 7);
    server.run(&["readout", "--input", "/nonexistent/file"]).expect(2).says("/nonexistent/file");
}
