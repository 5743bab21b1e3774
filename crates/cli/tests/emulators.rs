//! The read-out, the filter and the recorder as commands of their own.

mod common;

use std::fs;
use std::path::Path;

use common::{Drives, Server, scratch, test_data};
use forebay_rawdata::{Container, EventReader, Format, Generator, RawEvent};
use forebay_types::{EventId, RunId};
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
    let journal = directory.path().join("record.sqlite").display().to_string();
    let record = ["record", "--json", "--out", &name, "--once", "--journal", &journal];
    let recorded = server.run(&record).expect(0).json();
    assert!(number(&recorded, "released_events") >= number(&filtered, "events_accepted"), "{recorded}");
    let of_streams = recorded["routes"].as_object().expect("routes");
    assert_eq!(of_streams.len(), 2, "{recorded}");
    assert!(of_streams.values().all(|of| number(of, "released_events") > 0), "{recorded}");
    assert!(out.join("physics").is_dir() && out.join("calibration").is_dir());
    let status = server.status();
    assert_eq!((number(&status["totals"], "events_accepted"), number(&status["totals"], "events_undecided")), (0, 0));

    let again = server.run(&record).expect(0).json();
    assert_eq!(number(&again, "released_events"), 0, "nothing comes twice");
}

/// A file with these events in this container.
fn write_file(container: &Container, events: &[RawEvent]) -> Vec<u8> {
    let mut file = container.head();
    for (event, sequence) in events.iter().zip(0..) {
        file.extend(container.before_event(sequence, event.bytes.len() as u64));
        file.extend(&event.bytes);
    }
    let event_bytes = events.iter().map(|event| event.bytes.len() as u64).sum();
    file.extend(container.tail(events.len() as u64, event_bytes));
    file
}

fn read_file(bytes: &[u8]) -> (Vec<RawEvent>, Container) {
    let mut reader = EventReader::new(Format::Besiii, bytes);
    let events = reader.by_ref().collect::<Result<_, _>>().expect("good events");
    (events, reader.container().expect("a file with events").clone())
}

/// The events of the file come out of the store, in their order, in a file whose head, separators and tail are the recorder's; in those of the
/// file they are that file again, in order.
fn besiii_through_the_store(bytes: &[u8]) {
    let drives = Drives::five();
    let server = drives.serve();
    let directory = scratch();
    let (input, out) = (directory.path().join("besiii.raw"), directory.path().join("out"));
    fs::write(&input, bytes).expect("written");
    let written = server.run(&["readout", "--json", "--input", &input.display().to_string()]).expect(0).json();
    let (mut events, original) = read_file(bytes);
    assert_eq!(number(&written, "events"), events.len() as u64);
    assert_eq!(number(&written, "fragments_acknowledged"), events.len() as u64 * 43);
    server.run(&["filter", "--until-idle", "0.2", "--stream", "physics=1"]).expect(0);
    let journal = directory.path().join("record.sqlite").display().to_string();
    server.run(&["record", "--once", "--out", &out.display().to_string(), "--journal", &journal]).expect(0);

    events.sort_by_key(|event| event.key);
    let run = events[0].key.run;
    let recorded = fs::read(out.join(format!("physics/run{:06}-00001.besiii", run.0))).expect("recorded");
    assert!(recorded == write_file(&Container::new(Format::Besiii, run, 1), &events), "every byte is as expected");
    let (from_store, _) = read_file(&recorded);
    assert!(from_store == events, "every event is byte for byte what was read");
    assert!(write_file(&original, &from_store) == write_file(&original, &events));
    let sidecar = fs::read(out.join(format!("physics/run{:06}-00001.besiii.json", run.0))).expect("a sidecar");
    let sidecar: Value = serde_json::from_slice(&sidecar).expect("JSON");
    assert_eq!((&sidecar["format"], number(&sidecar, "bytes")), (&"besiii".into(), recorded.len() as u64));
}

#[test]
fn besiii_events_come_out_in_order_in_a_file_of_their_format() {
    let mut generator = Generator::new(Format::Besiii, 3, RunId(91)).starting_at(EventId(100));
    let mut events: Vec<RawEvent> = (0..7).map(|_| generator.next_event()).collect();
    events.swap(1, 5);
    besiii_through_the_store(&write_file(&Container::new(Format::Besiii, RunId(91), 4), &events));
    let Some(data) = test_data() else { return };
    let bytes = fs::read(data.join("besiii/test_raw_data.raw")).expect("a recorded file");
    let (events, container) = read_file(&bytes);
    assert!(write_file(&container, &events) == bytes, "its records are written as they were read");
    besiii_through_the_store(&bytes);
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
    refused.says("/proc/forebay").says("nothing was recorded");
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
