//! `forebay record`, the mover with a route for each stream: also for those that come later, and never twice at once.

mod common;

use std::path::PathBuf;
use std::process::Stdio;

use common::running::{Running, until};
use common::{Drives, Server, forebay, scratch};
use forebay_client::Decision;
use forebay_mover::find::{find_event, sidecars};
use forebay_rawdata::{Format, Generator, split};
use forebay_types::{EventKey, RunId, StreamName, Verdict};

struct Store {
    _drives: Drives,
    server: Server,
    place: tempfile::TempDir,
}

impl Store {
    fn new() -> Store {
        let drives = Drives::five();
        let server = drives.serve();
        Store { _drives: drives, server, place: scratch() }
    }

    /// Accepts events; without some of their fragments where only so many of each are put.
    fn accept(&self, generator: &mut Generator, count: usize, streams: &[&str], fragments: usize) -> Vec<EventKey> {
        let mut client = self.server.client("test");
        let mut keys = Vec::new();
        for _ in 0..count {
            let event = generator.next_event();
            let pieces = split(&event).expect("a generated event");
            for piece in pieces.iter().rev().take(fragments) {
                client.put(event.key.fragment(piece.source), pieces.len() as u16, &piece.bytes).expect("taken");
            }
            keys.push(event.key);
        }
        client.flush().expect("answered");
        let streams: Vec<StreamName> = streams.iter().map(|stream| stream.parse().expect("a name")).collect();
        let incomplete = fragments < usize::MAX;
        let decision = |key: &EventKey| Decision { key: *key, verdict: Verdict::Accept(streams.clone()), incomplete };
        let outcomes = client.decide(&keys.iter().map(decision).collect::<Vec<_>>()).expect("answered");
        assert!(outcomes.iter().all(|outcome| outcome.is_done()), "{outcomes:?}");
        keys
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn arguments(&self, command: &[&str], journal: &str) -> Vec<String> {
        let journal = self.path(journal).display().to_string();
        let more = ["--server", &self.server.address, "--journal", &journal];
        command.iter().chain(&more).map(|word| (*word).to_owned()).collect()
    }

    /// Streams and events of the files there.
    fn recorded(&self, directory: &str) -> Vec<(String, EventKey)> {
        let path = self.path(directory);
        let Ok(all) = sidecars(&path) else { return Vec::new() };
        let mut recorded = Vec::new();
        for sidecar in all {
            let (path, sidecar) = sidecar.expect("a sidecar");
            assert!(path.with_extension("").is_file(), "{path:?} has its file");
            let stream = sidecar.stream.as_ref().expect("of a stream").to_string();
            recorded.extend(sidecar.keys().map(|key| (stream.clone(), key)));
        }
        recorded.sort_unstable();
        recorded
    }

    fn left(&self) -> u64 {
        self.server.client("test").streams().expect("answered").iter().map(|stream| stream.accepted).sum()
    }
}

fn of(streams: &[(&str, &[EventKey])]) -> Vec<(String, EventKey)> {
    let of =
        |(stream, keys): &(&str, &[EventKey])| keys.iter().map(|key| ((*stream).to_owned(), *key)).collect::<Vec<_>>();
    let mut all: Vec<(String, EventKey)> = streams.iter().flat_map(of).collect();
    all.sort_unstable();
    all
}

#[test]
fn a_stream_that_appears_gets_its_files_without_a_restart() {
    let store = Store::new();
    let mut generator = Generator::new(Format::Mdf, 3, RunId(7));
    let out = store.path("files").display().to_string();
    let record = store.arguments(&["record", "--out", &out, "--close-after", "0.1"], "record.sqlite");
    // There is none yet.
    let recorder = Running::start(record.clone(), Stdio::null());
    let first = store.accept(&mut generator, 12, &["physics"], usize::MAX);
    until(|| store.recorded("files") == of(&[("physics", &first)]));
    let second = store.accept(&mut generator, 9, &["physics", "express"], usize::MAX);
    let both: Vec<EventKey> = first.iter().chain(&second).copied().collect();
    let all = of(&[("physics", &both), ("express", &second)]);
    until(|| store.recorded("files") == all && store.left() == 0);
    // Nobody else records there, nor these streams elsewhere.
    forebay(record.iter().map(String::as_str).chain(["--once"])).expect(3).says("another mover works with the journal");
    let elsewhere = store.path("other").display().to_string();
    let other = store.arguments(&["record", "--out", &elsewhere, "--once"], "other.sqlite");
    forebay(other.iter().map(String::as_str)).expect(3).says("another mover has stream");
    assert_eq!(recorder.terminate(), Some(0));
    // What comes while it is away it finds when it is there again, and counts by stream.
    let third = store.accept(&mut generator, 5, &["late"], usize::MAX);
    let told = forebay(record.iter().map(String::as_str).chain(["--once", "--json"])).expect(0).json();
    assert_eq!((&told["released"], &told["released_events"]), (&1.into(), &5.into()), "{told}");
    let route = told["routes"].as_object().expect("routes").keys().next().expect("one").clone();
    assert!(route.starts_with("stream:late ("), "{route}");
    assert_eq!(store.recorded("files"), of(&[("physics", &both), ("express", &second), ("late", &third)]));
}

#[test]
fn one_stream_alone_and_then_all_share_names_and_a_journal() {
    let store = Store::new();
    let mut generator = Generator::new(Format::Faser, 3, RunId(7));
    let keys = store.accept(&mut generator, 10, &["physics", "express"], usize::MAX);
    let out = store.path("files").display().to_string();
    let record = |more: &[&str]| {
        let words = [&["record", "--out", &out, "--once"], more].concat();
        forebay(store.arguments(&words, "record.sqlite")).expect(0);
    };
    record(&["--stream", "physics"]);
    assert_eq!(store.recorded("files"), of(&[("physics", &keys)]));
    let more = store.accept(&mut generator, 10, &["physics"], usize::MAX);
    record(&[]);
    let physics: Vec<EventKey> = keys.iter().chain(&more).copied().collect();
    assert_eq!(store.recorded("files"), of(&[("physics", &physics), ("express", &keys)]));
    assert!(store.path("files/physics/run000007-00002.raw").is_file());
}

#[test]
fn what_lacks_fragments_is_marked_and_what_makes_no_event_is_kept_in_parts() {
    let store = Store::new();
    // The frame is put first, if anything is; of the second kind there is no frame.
    let incomplete = store.accept(&mut Generator::new(Format::Faser, 3, RunId(7)), 4, &["physics"], 3);
    let mut client = store.server.client("test");
    let stray = EventKey::new(9, 1);
    client.put(stray.fragment(forebay_types::SourceId(5)), 0, b"alone").expect("taken");
    client.flush().expect("answered");
    let verdict = Verdict::Accept(vec!["physics".parse().expect("a name")]);
    client.decide(&[Decision { key: stray, verdict, incomplete: true }]).expect("answered");
    let out = store.path("files").display().to_string();
    let told =
        forebay(store.arguments(&["record", "--json", "--out", &out, "--once"], "record.sqlite")).expect(0).json();
    assert_eq!((&told["released_events"], &told["fragments_lost"]), (&5.into(), &0.into()), "{told}");
    for key in incomplete.iter().chain([&stray]) {
        let found = find_event(&store.path("files"), *key).expect("read");
        assert_eq!((found.files.len(), found.problems.len()), (1, 0), "{found:?}");
        assert!(found.files[0].is_incomplete && found.files[0].place.is_some(), "{found:?}");
    }
    assert!(store.path("files/physics/run000009-00001.parts").is_file());
}

#[test]
fn a_file_of_routes_may_name_every_stream_or_some() {
    let store = Store::new();
    let mut generator = Generator::new(Format::Mdf, 3, RunId(7));
    let keys = store.accept(&mut generator, 10, &["physics", "express", "debug"], usize::MAX);
    let config = store.path("move.toml");
    let write = |from: &str, more: &str| {
        let text = format!(
            "[destination.archive]\naddress = \"{}\"\n[route.raw]\nfrom = \"{from}\"\nserver = \"{}\"\nto = [\"archive\"]\n\
             recheck-after-s = 0\nsidecar = true\n{more}",
            store.path("archive").display(),
            store.server.address
        );
        std::fs::write(&config, text).expect("written");
    };
    let path = config.display().to_string();
    let moved = |exit: i32| {
        let journal = store.path("move.sqlite").display().to_string();
        forebay(["move", "--config", &path, "--once", "--json", "--journal", &journal]).expect(exit)
    };
    write("stream:physics,express", "");
    let told = moved(0).json();
    let names: Vec<&String> = told["routes"].as_object().expect("routes").keys().collect();
    assert_eq!(names, ["raw/express", "raw/physics"]);
    let server = &store.server.address;
    write("stream:*", &format!("[route.twice]\nfrom = \"stream:debug\"\nserver = \"{server}\"\nto = [\"archive\"]\n"));
    moved(2).says("is moved by two routes");
    write("stream:*", "");
    assert_eq!(moved(0).json()["released_events"], 10);
    assert_eq!(store.recorded("archive"), of(&[("physics", &keys), ("express", &keys), ("debug", &keys)]));
}

#[test]
fn directories_that_cannot_be_recorded_to_are_refused() {
    let store = Store::new();
    store.accept(&mut Generator::new(Format::Mdf, 3, RunId(7)), 3, &["physics"], usize::MAX);
    let out = store.path("files").display().to_string();
    let refused = |more: &[&str], words: &str| {
        let arguments = [&["record", "--out", &out, "--once"], more].concat();
        forebay(store.arguments(&arguments, "record.sqlite")).expect(2).says(words);
    };
    refused(&["--file-bytes", "0"], "Give at least 1");
    let old = store.path("files/physics/.forebay-record.journal");
    std::fs::create_dir_all(old.parent().expect("a directory")).expect("made");
    std::fs::write(&old, b"").expect("written");
    refused(&[], "earlier version");
    std::fs::remove_file(&old).expect("removed");
    let inside = store.path("files/record.sqlite").display().to_string();
    forebay(["record", "--once", "--server", &store.server.address, "--out", &out, "--journal", &inside])
        .expect(2)
        .says("would lie in");
    assert_eq!(store.left(), 3);
}
