//! What others say of files, in a `.json` beside them or of their run, is held against what is there before anything is sent.

use crate::common;

use common::buffer::Buffer;
use common::place::Place;
use common::running::files_below;
use common::{forebay, noise};
use forebay_client::ClientConfig;
use forebay_client::files::{Files, Owner, WriteOptions};
use forebay_rawdata::{Format, Generator};
use forebay_types::{Adler32, RunId};

/// Events of a run behind each other.
fn events(count: usize) -> Vec<u8> {
    let mut generator = Generator::new(Format::Faser, 5, RunId(7));
    (0..count).flat_map(|_| generator.next_event().bytes).collect()
}

#[test]
fn a_json_beside_a_file_is_right_or_the_file_stays() {
    let place = Place::new();
    let (raw, other) = (events(5), noise(1, 1000));
    let mut sum = Adler32::default();
    sum.update(&other);
    place.write("daq/right.raw", &raw);
    place.write("daq/right.json", format!(r#"{{"size":{},"events":5,"run":7}}"#, raw.len()).as_bytes());
    place.write("daq/sum.dat", &other);
    place.write("daq/sum.dat.json", format!(r#"{{"bytes":1000,"adler32":"{:08x}"}}"#, sum.finish()).as_bytes());
    // Of the raw data, and not of what lies beside them.
    place.write("daq/right.log", b"a log");
    place.write("daq/mark.dat", b"anything");
    place.write("daq/mark.dat.json", b"done");
    let wrong = [
        ("count.raw", r#"{"events":6}"#, "says 6 events, and there are 5"),
        ("run.raw", r#"{"run":8}"#, "says run 8, and its events are of run 7"),
        ("size.raw", r#"{"bytes":7}"#, "a size of 7 bytes"),
        ("sum.raw", r#"{"adler32":"0x1"}"#, "the Adler-32 00000001"),
    ];
    for (name, said, _) in wrong {
        place.write(&format!("daq/{name}"), &raw);
        place.write(&format!("daq/{name}.json"), said.as_bytes());
    }
    let once = || forebay(place.arguments(&["--once", "--recheck-after", "0.1"]));
    let ran = once().expect(1);
    for (name, _, words) in wrong {
        ran.says(words);
        assert!(place.path(&format!("daq/{name}")).exists(), "{name} is at its source");
        assert_eq!(place.read(&format!("archive/{name}")), None, "{name}");
    }
    for name in ["right.raw", "right.json", "right.log", "sum.dat", "mark.dat"] {
        assert!(place.read(&format!("archive/{name}")).is_some(), "{name}");
    }
    // Each `.json` is a file, too, and was moved; a person who tries again answers for what it said.
    forebay(["move", "retry", "--all", "--journal", &place.text("journal.sqlite")]).expect(0);
    once().expect(0);
    for (name, ..) in wrong {
        assert_eq!(place.read(&format!("archive/{name}")).as_deref(), Some(raw.as_slice()), "{name}");
    }
}

#[test]
fn a_sealed_file_with_more_events_than_its_run_has_is_not_sent() {
    let buffer = Buffer::new();
    let server = ["--server", &buffer.server.address];
    forebay([&["run", "declare", "7", "--sources", "0-15"], &server[..]].concat()).expect(0);
    forebay([&["run", "start", "7"], &server[..]].concat()).expect(0);
    forebay([&["run", "stop", "7", "--events", "4"], &server[..]].concat()).expect(0);
    let files = Files::connect(ClientConfig::new(&buffer.server.address, "test")).expect("connected");
    files.make_directories("/daq", &Owner { mode: 0o755, owner: 0, group: 0 }).expect("made");
    for (name, count) in [("/daq/four.raw", 4), ("/daq/five.raw", 5)] {
        let mut file = files.create(name, &WriteOptions { seal: true, ..WriteOptions::default() }).expect("made");
        file.write(&events(count)).expect("written");
        file.close().expect("closed");
    }
    let (to, journal) =
        (buffer.path("archive").display().to_string(), buffer.path("files.sqlite").display().to_string());
    let arguments =
        ["move", "--from", "forebay:/daq", "--to", &to, "--journal", &journal, "--once", "--recheck-after", "0.1"];
    forebay([&arguments, &server[..]].concat()).expect(1).says("run 7 has 4 events").says("here are 5 of it");
    assert!(files_below(&buffer.path("archive")).contains_key("four.raw"));
    assert!(!buffer.path("archive/five.raw").exists());
}
