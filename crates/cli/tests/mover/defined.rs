//! `forebay move --from stream:NAME` by the definition of the stream and the end of the run: where files go, what is in them, and when they are over.

use crate::common;

use std::collections::BTreeMap;
use std::process::Stdio;

use common::buffer::{Buffer, decide};
use common::forebay;
use common::running::{Running, files_below, until};
use forebay_rawdata::{EventReader, Format, Generator, split};
use forebay_types::{EventKey, RunId, SourceId};

impl Buffer {
    fn ask(&self, arguments: &[&str]) {
        forebay([arguments, &["--server", &self.server.address]].concat()).expect(0);
    }

    fn define(&self, stream: &str, to: &str, more: &[&str]) {
        let to = self.path(to).display().to_string();
        self.ask(&[&["stream", "define", stream, "--destination", &to], more].concat());
    }

    /// The options of a mover that goes by the definition of a stream.
    fn by_definition(&self, stream: &str, more: &[&str]) -> Vec<String> {
        let (from, journal) = (format!("stream:{stream}"), self.path("journal.sqlite").display().to_string());
        let arguments = ["move", "--from", &from, "--server", &self.server.address, "--journal", &journal];
        arguments.iter().chain(&["--recheck-after", "0.1"]).chain(more).map(|text| (*text).to_owned()).collect()
    }

    fn names(&self, directory: &str) -> Vec<String> {
        files_below(&self.path(directory)).into_keys().filter(|name| !name.contains("/.")).collect()
    }
}

/// The events of files, and their numbers.
fn events_in(files: &BTreeMap<String, Vec<u8>>, format: Format) -> Vec<(EventKey, Vec<u8>)> {
    let events = files.values().flat_map(|bytes| EventReader::new(format, bytes.as_slice()));
    events.map(|event| event.expect("whole")).map(|event| (event.key, event.bytes)).collect()
}

#[test]
fn files_go_where_the_definition_says_that_their_run_was_started_with() {
    let mut buffer = Buffer::new();
    buffer.define("physics", "first", &[]);
    buffer.ask(&["run", "declare", "7", "--sources", "0-4294967295"]);
    buffer.ask(&["run", "start", "7"]);
    buffer.define("physics", "second", &[]);
    buffer.ask(&["run", "declare", "8", "--sources", "0-4294967295"]);
    buffer.ask(&["run", "start", "8"]);
    let mut client = buffer.server.client("filter");
    for run in [7, 8] {
        let keys = buffer.put(&mut Generator::new(Format::Mdf, 3, RunId(run)), 20);
        decide(&mut client, &keys, &["physics"]);
    }
    forebay(buffer.by_definition("physics", &["--once"])).expect(0);
    assert_eq!(buffer.names("first"), ["physics/run000007-00001.mdf"]);
    assert_eq!(buffer.names("second"), ["physics/run000008-00001.mdf"]);
    // One that is defined while the mover runs is made ready, too; and a file is over with its run, whatever it waits for.
    let waits = ["--merge-wait", "100000", "--order-wait", "0"];
    let mover = Running::start(buffer.by_definition("physics", &waits), Stdio::null());
    buffer.define("physics", "third", &[]);
    buffer.ask(&["run", "declare", "9", "--sources", "0-4294967295"]);
    buffer.ask(&["run", "start", "9"]);
    let keys = buffer.put(&mut Generator::new(Format::Mdf, 3, RunId(9)), 20);
    decide(&mut client, &keys, &["physics"]);
    buffer.ask(&["run", "stop", "9", "--events", "20"]);
    buffer.ask(&["run", "close", "9"]);
    until(|| buffer.path("third").exists() && !buffer.names("third").is_empty());
    assert_eq!(buffer.names("third"), ["physics/run000009-00001.mdf"]);
    assert_eq!(mover.terminate(), Some(0));
}

#[test]
fn a_calibration_stream_has_its_sources_and_its_blocks() {
    let mut buffer = Buffer::new();
    let event = Generator::new(Format::Faser, 5, RunId(1920)).next_event();
    let sources: Vec<SourceId> = split(&event).expect("an event").into_iter().map(|piece| piece.source).collect();
    let wanted = sources.iter().find(|source| **source != SourceId::EVENT_FRAME).expect("it has some");
    buffer.define("calibration", "tape", &["--sources", &wanted.0.to_string(), "--block", "10"]);
    let keys = buffer.put(&mut Generator::new(Format::Faser, 5, RunId(1920)), 25);
    decide(&mut buffer.server.client("filter"), &keys, &["calibration"]);
    forebay(buffer.by_definition("calibration", &["--once", "--sidecar"])).expect(0);
    let files = files_below(&buffer.path("tape"));
    let blocks: BTreeMap<u64, usize> =
        keys.iter().map(|key| key.event.0 / 10 + 1).fold(BTreeMap::new(), |mut blocks, block| {
            *blocks.entry(block).or_default() += 1;
            blocks
        });
    let raw: BTreeMap<String, Vec<u8>> = files.into_iter().filter(|(name, _)| name.ends_with(".raw")).collect();
    let names: Vec<String> =
        (1..).zip(&blocks).map(|(n, (b, _))| format!("calibration/run001920-block{b:05}-{n:05}.raw")).collect();
    assert!(raw.keys().eq(&names), "{:?}, {names:?}", raw.keys());
    let events = events_in(&raw, Format::Faser);
    assert!(events.iter().map(|(key, _)| key).eq(&keys));
    for (key, bytes) in &events {
        let whole = &buffer.events[key];
        assert!(bytes.len() < whole.len(), "{key} has all of its sources");
    }
    let sidecar = files_below(&buffer.path("tape")).remove(&format!("{}.json", names[0])).expect("it has one");
    let sidecar: serde_json::Value = serde_json::from_slice(&sidecar).expect("JSON");
    assert_eq!((&sidecar["sources"], &sidecar["block"]), (&wanted.0.to_string().into(), &1.into()), "{sidecar}");
    assert_eq!(sidecar["incomplete_ranges"], serde_json::Value::Null, "what is not wanted is not missing: {sidecar}");
}

#[test]
fn what_nothing_can_be_moved_by_stays_in_the_store_and_is_told() {
    let mut buffer = Buffer::new();
    let keys = buffer.put(&mut Generator::new(Format::Besiii, 5, RunId(7)), 5);
    decide(&mut buffer.server.client("filter"), &keys, &["physics"]);
    let once = ["--once", "--patience", "0.5"];
    forebay(buffer.by_definition("physics", &once)).expect(3).says("nobody said where events of stream physics go");
    buffer.define("physics", "tape", &["--format", "hdf5"]);
    forebay(buffer.by_definition("physics", &once)).expect(3).says("hdf5").says("it may be faser, mdf, besiii, plain");
    forebay(buffer.by_definition("physics", &["--once", "--format", "zip"])).expect(2).says("is no format");
    let said = [&once[..], &["--format", "plain"]].concat();
    forebay(buffer.by_definition("physics", &said)).expect(0);
    let files = files_below(&buffer.path("tape"));
    let plain: Vec<u8> = keys
        .iter()
        .flat_map(|key| {
            let event =
                forebay_rawdata::RawEvent { format: Format::Besiii, key: *key, bytes: buffer.events[key].clone() };
            let mut pieces = split(&event).expect("an event");
            pieces.sort_by_key(|piece| piece.source);
            pieces.into_iter().filter(|piece| piece.source != SourceId::EVENT_FRAME).flat_map(|piece| piece.bytes)
        })
        .collect();
    assert!(files["physics/run000007-00001.dat"] == plain, "{:?}", files.keys());
}

#[test]
fn a_run_with_more_events_than_were_counted_is_not_sent_before_a_person_looked() {
    let mut buffer = Buffer::new();
    buffer.define("physics", "tape", &[]);
    buffer.ask(&["run", "declare", "7", "--sources", "0-4294967295"]);
    buffer.ask(&["run", "start", "7"]);
    let keys = buffer.put(&mut Generator::new(Format::Mdf, 5, RunId(7)), 12);
    decide(&mut buffer.server.client("filter"), &keys, &["physics"]);
    buffer.ask(&["run", "stop", "7", "--events", "10"]);
    let ran = forebay(buffer.by_definition("physics", &["--once"])).expect(1);
    ran.says("run 7 has 10 events").says("stream physics would have 12");
    assert!(!buffer.path("tape/physics/run000007-00001.mdf").exists());
    let journal = buffer.path("journal.sqlite").display().to_string();
    forebay(["move", "retry", "--all", "--journal", &journal]).expect(0);
    forebay(buffer.by_definition("physics", &["--once"])).expect(0);
    assert_eq!(events_in(&files_below(&buffer.path("tape")), Format::Mdf).len(), 12);
}

#[test]
fn every_stream_goes_where_it_is_defined_to_go() {
    let mut buffer = Buffer::new();
    buffer.define("physics", "tape", &[]);
    buffer.define("express", "disk", &["--priority", "9"]);
    let keys = buffer.put(&mut Generator::new(Format::Mdf, 5, RunId(7)), 12);
    let mut client = buffer.server.client("filter");
    decide(&mut client, &keys[..5], &["express", "physics"]);
    decide(&mut client, &keys[5..], &["physics"]);
    forebay(buffer.by_definition("*", &["--once"])).expect(0);
    assert_eq!(buffer.names("tape"), ["physics/run000007-00001.mdf"]);
    assert_eq!(buffer.names("disk"), ["express/run000007-00001.mdf"]);
    let numbers = |directory: &str| events_in(&files_below(&buffer.path(directory)), Format::Mdf).len();
    assert_eq!((numbers("tape"), numbers("disk")), (12, 5));
}
