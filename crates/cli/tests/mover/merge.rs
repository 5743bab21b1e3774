//! `forebay move --merge`: small files become larger ones.

use crate::common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use common::running::files_below;
use common::{Ran, forebay, noise, scratch};
use forebay_rawdata::{Container, EventReader, Format, Generator};
use forebay_types::{EventId, RunId};

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().expect("it has one")).expect("made");
    fs::write(path, bytes).expect("written");
}

fn merge(place: &Path, more: &[&str]) -> Ran {
    let path = |name: &str| place.join(name).display().to_string();
    let (from, to, journal) = (path("daq"), path("archive"), path("journal.sqlite"));
    let arguments =
        ["move", "--from", &from, "--to", &to, "--journal", &journal, "--once", "--recheck-after", "0.1", "--json"];
    forebay([&arguments, more].concat())
}

/// Files of `events` events each, numbered through.
fn event_files(place: &Path, format: Format, run: u32, files: u64, events: u64) -> Vec<u8> {
    let mut generator = Generator::new(format, u64::from(run), RunId(run)).starting_at(EventId(1));
    let mut whole = Vec::new();
    for number in 0..files {
        let bytes: Vec<u8> = (0..events).flat_map(|_| generator.next_event().bytes).collect();
        write(&place.join(format!("daq/run{run}/part{number:04}.{}", format.extension())), &bytes);
        whole.extend(bytes);
    }
    whole
}

#[test]
fn events_of_a_run_lie_behind_each_other_in_order_and_nothing_is_in_two_files() {
    let place = scratch();
    let faser = event_files(place.path(), Format::Faser, 1920, 30, 3);
    let mdf = event_files(place.path(), Format::Mdf, 7, 5, 1);
    let json = merge(place.path(), &["--merge", "500kB"]).expect(0).json();
    assert_eq!(json["left_files"], 0, "{json}");
    let there = files_below(&place.path().join("archive"));
    for (run, format, expected) in [(1920, Format::Faser, faser), (7, Format::Mdf, mdf)] {
        let prefix = format!("run{run}/run{run:06}-");
        let merged: Vec<(&String, &Vec<u8>)> = there.iter().filter(|(name, _)| name.starts_with(&prefix)).collect();
        assert!(
            merged.len() >= 2 && merged.iter().all(|(_, bytes)| bytes.len() <= 500_000),
            "{merged:?}",
            merged = there.keys()
        );
        let all: Vec<u8> = merged.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect();
        assert!(all == expected, "{run}: other bytes");
        for (name, bytes) in merged {
            assert!(EventReader::new(format, bytes.as_slice()).all(|event| event.is_ok()), "{name}");
        }
    }
    let left = files_below(&place.path().join("daq"));
    assert!(left.keys().all(|name| name.ends_with(".copied")) && left.len() == 35, "{:?}", left.keys());
    // What comes later gets the next numbers, by another start too.
    let later = event_files(place.path(), Format::Faser, 1920, 1, 1);
    merge(place.path(), &["--merge", "500kB"]).expect(0);
    let after = files_below(&place.path().join("archive"));
    let new: Vec<&String> = after.keys().filter(|name| !there.contains_key(*name)).collect();
    assert_eq!(new.len(), 1, "{new:?}");
    assert!(after[new[0]] == later && after.iter().filter(|(name, _)| *name != new[0]).eq(there.iter()));
}

#[test]
fn a_mover_with_a_new_journal_passes_what_an_earlier_one_left_and_touches_none_of_it() {
    const OLD: u64 = 300;
    let place = scratch();
    let faser = event_files(place.path(), Format::Faser, 1920, 12, 2);
    let mdf = event_files(place.path(), Format::Mdf, 7, 1, 1);
    for number in 1..=OLD {
        write(&place.path().join(format!("archive/run1920/run001920-{number:05}.raw")), b"of an earlier mover");
    }
    // One whose file somebody took away.
    write(&place.path().join("archive/run7/run000007-00001.mdf.json"), b"{}");
    let before = files_below(&place.path().join("archive"));
    let json = merge(place.path(), &["--merge", "100kB", "--sidecar"]).expect(0).json();
    assert_eq!(json["left_files"], 0, "{json}");
    let after = files_below(&place.path().join("archive"));
    assert!(before.iter().all(|(name, bytes)| after[name] == *bytes), "nothing that was there is touched");
    let new = |ending: &str| -> Vec<(&String, &Vec<u8>)> {
        after.iter().filter(|(name, _)| name.ends_with(ending) && !before.contains_key(*name)).collect()
    };
    assert_eq!(new(".mdf"), [(&"run7/run000007-00002.mdf".to_owned(), &mdf)], "the next number");
    assert_eq!(new("-00002.mdf.json").len(), 1, "its sidecar follows it");
    // Which of them has which number nobody promises.
    let place_of = |bytes: &[u8]| faser.windows(bytes.len()).position(|window| window == bytes).expect("a piece of it");
    let mut pieces: Vec<(usize, &Vec<u8>)> =
        new(".raw").into_iter().map(|(_, bytes)| (place_of(bytes), bytes)).collect();
    pieces.sort_unstable();
    assert!(pieces.iter().flat_map(|(_, bytes)| bytes.iter()).eq(&faser), "all of it, once");
    let journal = place.path().join("journal.sqlite").display().to_string();
    let shown = forebay(["move", "show", "run7/run000007-00002.mdf", "--journal", &journal]);
    let shown = String::from_utf8(shown.expect(0).stdout).expect("text");
    assert!(shown.contains("another file has the name of its sidecar") && shown.contains("renamed"), "{shown}");
    let log = fs::read_to_string(place.path().join("journal.sqlite.audit.jsonl")).expect("a log");
    let count = |what: &str| log.lines().filter(|line| line.contains(what)).count();
    assert_eq!(count("quarantined"), 0);
    let (files, renamed) = (pieces.len(), count("renamed"));
    assert!(files >= 3 && renamed <= 1 + 10 * files, "{files} files, {renamed} new names");
}

#[test]
fn what_is_around_events_is_there_once() {
    let place = scratch();
    let run = RunId(91668);
    let mut generator = Generator::new(Format::Besiii, 3, run).starting_at(EventId(1));
    let mut expected = Vec::new();
    for number in 0..7u32 {
        let container = Container::new(Format::Besiii, run, number);
        let (mut file, mut event_bytes) = (container.head(), 0);
        for sequence in 0..3 {
            let event = generator.next_event().bytes;
            file.extend(container.before_event(sequence, event.len() as u64));
            file.extend_from_slice(&event);
            event_bytes += event.len() as u64;
            expected.push(event);
        }
        file.extend(container.tail(3, event_bytes));
        write(&place.path().join(format!("daq/part{number}.raw")), &file);
    }
    let json = merge(place.path(), &["--merge", "1GB"]).expect(0).json();
    assert_eq!(json["left_files"], 0, "{json}");
    let there = files_below(&place.path().join("archive"));
    let (name, merged) = there.first_key_value().expect("one");
    assert_eq!((name.as_str(), there.len()), ("run091668-00001.raw", 1));
    let events = EventReader::new(Format::Besiii, merged.as_slice()).map(|event| event.expect("sound").bytes);
    assert!(events.collect::<Vec<_>>() == expected);
    // It is what its head and its events say.
    let container = Container::new(Format::Besiii, run, 0);
    let event_bytes = expected.iter().map(|event| event.len() as u64).sum();
    assert_eq!(merged.len() as u64, container.file_bytes(21, event_bytes));
    assert!(merged.ends_with(&container.tail(21, event_bytes)) && merged.starts_with(&container.head()));
}

#[test]
fn other_files_go_into_archives_that_tar_reads() {
    let place = scratch();
    let deep = format!("{}/{}", "d".repeat(120), "ü".repeat(60));
    let mut expected = BTreeMap::new();
    for number in 0..200u64 {
        let name = match number % 4 {
            0 => format!("run 7/file{number:03}"),
            1 => format!("run 7/file{number:03}.json"),
            2 => format!("run 7/{deep}/file{number:03}"),
            _ => format!("file{number:03}.dat"),
        };
        let bytes = noise(number, (number * 37 % 1500) as usize);
        write(&place.path().join("daq").join(&name), &bytes);
        expected.insert(name, bytes);
    }
    let json = merge(place.path(), &["--merge", "10kB", "--remove"]).expect(0).json();
    assert_eq!(json["left_files"], 0, "{json}");
    let there = files_below(&place.path().join("archive"));
    assert!(there.len() > 6 && there.keys().all(|name| name.ends_with(".tar")), "{:?}", there.keys());
    let out = place.path().join("out");
    fs::create_dir(&out).expect("made");
    for name in there.keys() {
        let archive = place.path().join("archive").join(name);
        let ran = Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&out).status().expect("tar runs");
        assert!(ran.success(), "{name}");
    }
    assert!(files_below(&out) == expected);
    assert!(files_below(&place.path().join("daq")).is_empty());
}

#[test]
fn what_is_damaged_holds_nothing_else_back_and_runs_are_not_mixed() {
    let place = scratch();
    let whole = event_files(place.path(), Format::Faser, 5, 4, 2);
    // The first event of one file is damaged; another one has a later event of another run.
    write(&place.path().join("daq/run5/part0009.raw"), &[&whole[..44], [0; 5000].as_slice()].concat());
    let json = merge(place.path(), &["--merge", "1GB"]).expect(1).json();
    assert_eq!((&json["left_files"], &json["left"][0]["name"]), (&1.into(), &"run5/part0009.raw".into()), "{json}");
    assert!(files_below(&place.path().join("archive"))["run5/run000005-00001.raw"] == whole);
    fs::remove_file(place.path().join("daq/run5/part0009.raw")).expect("removed");
    let mut other = Generator::new(Format::Faser, 1, RunId(6)).next_event().bytes;
    let mut mixed = Generator::new(Format::Faser, 1, RunId(5)).starting_at(EventId(100)).next_event().bytes;
    mixed.append(&mut other);
    write(&place.path().join("daq/run5/part0010.raw"), &mixed);
    write(&place.path().join("daq/run5/part0011.raw"), &mixed[..0]);
    let fine = Generator::new(Format::Faser, 1, RunId(5)).starting_at(EventId(200)).next_event().bytes;
    write(&place.path().join("daq/run5/part0012.raw"), &fine);
    let json = merge(place.path(), &["--merge", "1GB"]).expect(1).json();
    let words = json["left"][1]["words"].as_str().expect("words");
    assert!(words.contains("never mixes runs") && words.contains("part0010.raw"), "{json}");
    // A file of the merge is found by the names of its parts, too.
    let journal = place.path().join("journal.sqlite").display().to_string();
    let shown = forebay(["move", "show", "run5/part0012.raw", "--journal", &journal, "--json"]).expect(0).json();
    assert_eq!(shown["files"][0]["file"]["name"], "run5/run000005-00002.raw", "{shown}");
    // Out of the way, the others go on without it.
    fs::remove_file(place.path().join("daq/run5/part0010.raw")).expect("removed");
    forebay(["move", "retry", "--all", "--journal", &journal]).expect(0);
    let json = merge(place.path(), &["--merge", "1GB"]).expect(0).json();
    assert_eq!(json["left_files"], 0, "{json}");
    let there = files_below(&place.path().join("archive"));
    assert!(there.get("run5/run000005-00003.raw") == Some(&fine), "{:?}", there.keys());
}

#[test]
fn what_ends_early_is_named_and_is_not_made_up_of_the_next() {
    let place = scratch();
    event_files(place.path(), Format::Faser, 5, 6, 2);
    let short = place.path().join("daq/run5/part0002.raw");
    let bytes = fs::read(&short).expect("read");
    fs::write(&short, &bytes[..bytes.len() - 30]).expect("written");
    let json = merge(place.path(), &["--merge", "1GB"]).expect(1).json();
    let words = json["left"][0]["words"].as_str().expect("words");
    assert!(words.contains("run5/part0002.raw") && words.contains("the file ends within the event"), "{json}");
}

#[test]
fn a_template_says_what_merged_files_are_called() {
    let place = scratch();
    event_files(place.path(), Format::Faser, 1920, 3, 1);
    let template = ["--merge", "1GB", "--name", "tape/{run}/{sequence}.{extension}"];
    merge(place.path(), &template).expect(0);
    assert!(place.path().join("archive/tape/001920/00001.raw").exists());
    merge(place.path(), &["--merge", "1GB", "--name", "same.raw"]).expect(2).says("two files would have one name");
    merge(place.path(), &["--name", "{sequence}"]).expect(2);
}
