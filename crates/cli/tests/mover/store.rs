//! `forebay move --from forebay:/…`: sealed files of a store.

use crate::common;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;

use common::running::{Running, files_below, until};
use common::{Drives, Ran, Server, forebay, noise, scratch};
use forebay_client::ClientConfig;
use forebay_client::files::{Files, Owner, WriteOptions};
use forebay_rawdata::{Format, Generator};
use forebay_types::RunId;

struct Buffer {
    drives: Drives,
    server: Server,
    place: tempfile::TempDir,
}

impl Buffer {
    fn new() -> Buffer {
        let drives = Drives::five();
        let server = drives.serve();
        Buffer { drives, server, place: scratch() }
    }

    fn files(&self) -> Files {
        Files::connect(ClientConfig::new(&self.server.address, "test")).expect("connected")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn arguments(&self, journal: &str, more: &[&str]) -> Vec<String> {
        let text = |name: &str| self.path(name).display().to_string();
        let arguments = ["move", "--from", "forebay:/daq", "--server", &self.server.address, "--to", &text("archive")];
        let arguments = arguments.into_iter().chain(["--journal"]).map(str::to_owned).chain([text(journal)]);
        arguments.chain(more.iter().map(|more| (*more).to_owned())).collect()
    }

    fn once(&self, more: &[&str]) -> Ran {
        forebay(self.arguments("journal.sqlite", &[&["--once", "--recheck-after", "0.1", "--json"], more].concat()))
    }

    fn start(&self, journal: &str) -> Running {
        Running::start(self.arguments(journal, &["--recheck-after", "0.1"]), Stdio::null())
    }
}

fn put(files: &Files, path: &str, bytes: &[u8], seal: bool) {
    let directory = path.rsplit_once('/').expect("it has one").0;
    files.make_directories(directory, &Owner { mode: 0o755, owner: 0, group: 0 }).expect("made");
    let mut file = files.create(path, &WriteOptions { seal, ..WriteOptions::default() }).expect("made");
    file.write(bytes).expect("written");
    file.close().expect("closed");
}

#[test]
fn sealed_files_are_moved_and_their_names_taken_away() {
    let buffer = Buffer::new();
    let files = buffer.files();
    let mut expected = BTreeMap::new();
    for (number, name) in ["a.dat", "run 7/ü.dat", "run 7/deep/er/b", "empty"].into_iter().enumerate() {
        let bytes = noise(number as u64, if name == "empty" { 0 } else { 3_000_001 });
        put(&files, &format!("/daq/{name}"), &bytes, true);
        expected.insert(name.to_owned(), bytes);
    }
    put(&files, "/daq/open.dat", b"not sealed", false);
    put(&files, "/elsewhere/c.dat", b"not below", true);
    let json = buffer.once(&[]).expect(0).json();
    assert_eq!((&json["found"], &json["released"], &json["left_files"]), (&4.into(), &4.into(), &0.into()), "{json}");
    assert!(files_below(&buffer.path("archive")) == expected);
    for name in expected.keys() {
        assert!(files.stat(format!("/daq/{name}")).is_err(), "{name} is still there");
    }
    assert!(files.stat("/daq/open.dat").is_ok() && files.stat("/elsewhere/c.dat").is_ok());
    assert!(files.stat("/daq/.forebay-move").is_err() && files.lookup_link("/daq/.forebay-move").is_err());
    // Sealed, it is complete.
    files.seal("/daq/open.dat").expect("sealed");
    buffer.once(&[]).expect(0);
    assert_eq!(files_below(&buffer.path("archive"))["open.dat"], b"not sealed");
}

#[test]
fn events_of_the_store_are_merged() {
    let buffer = Buffer::new();
    let files = buffer.files();
    let mut generator = Generator::new(Format::Faser, 9, RunId(1920));
    let mut whole = Vec::new();
    for number in 0..20 {
        let bytes: Vec<u8> = (0..3).flat_map(|_| generator.next_event().bytes).collect();
        put(&files, &format!("/daq/run1920/part{number:03}.raw"), &bytes, true);
        whole.extend(bytes);
    }
    buffer.once(&["--merge", "500kB"]).expect(0);
    let there = files_below(&buffer.path("archive"));
    assert!(there.len() > 1 && there.keys().all(|name| name.starts_with("run1920/run001920-")), "{:?}", there.keys());
    assert!(there.into_values().flatten().collect::<Vec<u8>>() == whole);
}

#[test]
fn a_second_mover_is_refused_and_one_that_was_killed_goes_on() {
    let mut buffer = Buffer::new();
    let files = buffer.files();
    put(&files, "/daq/a", b"one", true);
    let mut first = buffer.start("journal.sqlite");
    let archived = |name: &str, buffer: &Buffer| buffer.path("archive").join(name).exists();
    until(|| archived("a", &buffer));
    // Another journal, so another mover.
    let second = forebay(buffer.arguments("other.sqlite", &["--once"]));
    second.expect(3).says("another mover has /daq");
    first.kill();
    // With the same journal it goes on at once; and it survives a restart of the server.
    put(&files, "/daq/b", b"two", true);
    buffer.once(&[]).expect(0);
    assert!(archived("b", &buffer));
    let third = buffer.start("journal.sqlite");
    // It is there when it has its lease.
    until(|| files.lookup_link("/daq/.forebay-move").is_ok());
    let paths = buffer.drives.paths.clone();
    buffer.server.send_kill();
    buffer.server.replace_killed(&[], &paths);
    put(&buffer.files(), "/daq/c", b"three", true);
    until(|| archived("c", &buffer) && buffer.files().stat("/daq/c").is_err());
    drop(third);
}

#[test]
fn what_cannot_be_moved_from_is_said() {
    let buffer = Buffer::new();
    buffer.once(&[]).expect(2).says("there is no such file or directory");
    buffer.once(&["--remove"]).expect(2).says("always removed");
    let text = buffer.path("archive").display().to_string();
    let away = ["move", "--from", "forebay:/daq", "--server", "127.0.0.1:1", "--to", &text, "--once"];
    forebay(away).expect(3);
    forebay(["move", "--from", "forebay://host/daq", "--to", &text, "--once"]).expect(2).says("one slash");
}
