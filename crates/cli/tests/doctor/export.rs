//! What a store that starts no more still gives.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use forebay_rawdata::{Container, EventReader, Format, Generator};
use forebay_types::{RunId, crc32c};
use serde_json::Value;

use crate::common::{Drives, faser_file};
use crate::look::{doctor, drives_of, overwrite, payload, stopped};

fn export(exit: i32, directory: &Path, paths: &[PathBuf]) -> Value {
    let name = directory.display().to_string();
    doctor(&["--json", "--export", &name], paths).expect(exit).json()
}

fn index(directory: &Path) -> Value {
    assert!(!directory.join("index.json.part").exists(), "it is whole");
    serde_json::from_slice(&fs::read(directory.join("index.json")).expect("an index")).expect("JSON")
}

/// Every file of the index, compared with its size and sum; how many there are.
fn compare(directory: &Path, index: &Value) -> usize {
    let events = index["events"].as_array().expect("events");
    let fragments: Vec<&Value> = events.iter().flat_map(|e| e["fragments"].as_array().expect("fragments")).collect();
    for fragment in &fragments {
        let bytes = fs::read(directory.join(fragment["file"].as_str().expect("a name"))).expect("read");
        let crc = format!("{:08x}", crc32c(&bytes));
        assert_eq!((&fragment["bytes"], &fragment["crc32c"]), (&bytes.len().into(), &crc.into()), "{fragment}");
    }
    fragments.len()
}

#[test]
fn four_of_five_drives_give_every_fragment_byte_for_byte() {
    let drives = stopped(6);
    let server = drives.serve();
    server.put("1/7/0xFF", b"").expect(0);
    server.run(&["delete", "1/0"]).expect(0);
    server.terminate().expect(0);
    for missing in 0..5 {
        let paths: Vec<PathBuf> =
            drives.paths.iter().enumerate().filter(|(n, _)| *n != missing).map(|(_, p)| p.clone()).collect();
        let directory = drives.directory.path().join(format!("export{missing}/new"));
        let report = export(0, &directory, &paths);
        assert_eq!((&report["export"]["fragments"], &report["export"]["fragments_missing"]), (&6.into(), &0.into()));
        for event in 1..6 {
            let file = directory.join(format!("run00000001/event{event:012}/00000001.bin"));
            assert_eq!(fs::read(file).expect("exported"), payload(event), "event {event} without drive {missing}");
        }
        assert_eq!(fs::read(directory.join("run00000001/event000000000007/000000ff.bin")).expect("exported"), b"");
        assert!(!directory.join("run00000001/event000000000000").exists(), "what was deleted stays deleted");
        assert_eq!(compare(&directory, &index(&directory)), 6);
    }
}

#[test]
fn whole_events_are_put_together_and_accepted_ones_name_their_streams() {
    let drives = Drives::five();
    let (bytes, starts) = faser_file();
    let input = drives.directory.path().join("input.raw");
    fs::write(&input, &bytes).expect("written");
    let server = drives.serve();
    server.run(&["readout", "--input", &input.display().to_string()]).expect(0);
    server.run(&["filter", "--stream", "physics=1.0", "--events", "4"]).expect(0);
    server.kill();
    let directory = drives.directory.path().join("export");
    let report = export(0, &directory, &drives.paths[1..]);
    assert_eq!(report["export"]["events_joined"], starts.len(), "{report}");
    assert!(fs::read(directory.join("run00000077.raw")).expect("exported") == bytes, "the file as it was read");
    let index = index(&directory);
    let events = index["events"].as_array().expect("events");
    let accepted = events.iter().filter(|event| event["state"] == "accepted").count() as u64;
    assert_eq!(report["lanes"][0]["contents"]["events_accepted"].as_u64(), Some(accepted));
    assert!(accepted > 0, "{report}");
    for event in events {
        let streams = if event["state"] == "accepted" { serde_json::json!(["physics"]) } else { serde_json::json!([]) };
        let (at, size) = (event["joined"]["offset_bytes"].as_u64(), event["joined"]["bytes"].as_u64());
        let (at, size) = (at.expect("a number") as usize, size.expect("a number") as usize);
        let crc = format!("{:08x}", crc32c(&bytes[at..at + size]));
        assert_eq!((&event["streams"], &event["joined"]["crc32c"]), (&streams, &crc.into()));
        assert!(starts.contains(&at));
    }
}

#[test]
fn whole_events_of_besiii_make_a_file_of_their_format() {
    let drives = Drives::five();
    let server = drives.serve();
    server.run(&["readout", "--generate", "besiii", "--run", "5", "--seed", "3", "--events", "4"]).expect(0);
    server.kill();
    let directory = drives.directory.path().join("export");
    export(0, &directory, &drives.paths);
    let bytes = fs::read(directory.join("run00000005.besiii")).expect("exported");
    let mut reader = EventReader::new(Format::Besiii, bytes.as_slice());
    let events: Vec<_> = reader.by_ref().map(|event| event.expect("a good event")).collect();
    assert_eq!(reader.container(), Some(&Container::new(Format::Besiii, RunId(5), 0)));
    let mut generator = Generator::new(Format::Besiii, 3, RunId(5));
    let index = index(&directory);
    let lines = index["events"].as_array().expect("events");
    assert_eq!((events.len(), lines.len()), (4, 4));
    for (event, line) in events.iter().zip(lines) {
        assert!(*event == generator.next_event(), "event {}", event.key);
        let at = line["joined"]["offset_bytes"].as_u64().expect("a number") as usize;
        assert!(bytes[at..].starts_with(&event.bytes), "{line}");
    }
}

#[test]
fn without_too_many_drives_what_is_there_is_exported_and_the_rest_is_listed() {
    let drives = Drives::five();
    let server = drives.serve();
    for event in 0..4 {
        server.put(&format!("1/{event}/1"), &payload(event)).expect(0);
        // Small enough for the first unit of its row alone, whose drive is left.
        server.put(&format!("1/{event}/2"), &payload(event)[..500]).expect(0);
    }
    server.terminate().expect(0);
    let gone: Vec<usize> = drives_of(&drives, 2).iter().skip(1).take(2).map(|(drive, _)| *drive).collect();
    let left: Vec<PathBuf> = (0..5).filter(|n| !gone.contains(n)).map(|n| drives.paths[n].clone()).collect();
    let directory = drives.directory.path().join("export");
    let report = export(1, &directory, &left);
    let index = index(&directory);
    let (exported, missing) = (compare(&directory, &index), index["fragments_missing"].as_u64().expect("a number"));
    let known = report["readable"]["fragments"].as_u64().expect("a number");
    assert!(missing > 0 && exported as u64 + missing == known, "{report}");
    assert!(report["error"].as_str().expect("words").contains("cannot be read"), "{report}");
    let listed: u64 = index["events"]
        .as_array()
        .expect("events")
        .iter()
        .map(|event| {
            event["missing"].as_array().expect("a list").iter().filter(|m| m["outcome"] == "unavailable").count() as u64
        })
        .sum();
    assert_eq!(listed, missing);
    assert_eq!(index["unknown"], report["readable"]["unknown"]);
    // Some of it came out, and what came out is right.
    assert!(exported > 0, "{report}");
}

#[test]
fn an_export_meets_what_a_quick_look_does_not_see() {
    let drives = stopped(3);
    for (drive, at) in &drives_of(&drives, 1)[..2] {
        overwrite(&drives.paths[*drive], *at, b"rot");
    }
    assert_eq!(doctor(&["--quick", "--json"], &drives.paths).expect(0).json()["verdict"], "whole");
    let directory = drives.directory.path().join("export");
    let name = directory.display().to_string();
    let report = doctor(&["--quick", "--json", "--export", &name], &drives.paths).expect(1).json();
    assert_eq!((&report["verdict"], &report["export"]["fragments_lost"]), (&"lost".into(), &1.into()));
    let index = index(&directory);
    assert_eq!((compare(&directory, &index), &index["events"][1]["missing"][0]["outcome"]), (2, &"lost".into()));
}

#[test]
fn nothing_that_is_there_is_overwritten() {
    let drives = stopped(1);
    let directory = drives.directory.path().join("export");
    fs::create_dir(&directory).expect("made");
    let mine = directory.join("run00000001.raw");
    fs::write(&mine, b"mine").expect("written");
    let name = directory.display().to_string();
    doctor(&["--export", &name], &drives.paths).expect(2).says("is not empty").says("overwrites nothing");
    assert_eq!(
        (fs::read(&mine).expect("read"), fs::read_dir(&directory).expect("read").count()),
        (b"mine".to_vec(), 1)
    );
    let file = mine.display().to_string();
    doctor(&["--export", &file], &drives.paths).expect(2).says("run00000001.raw is not a directory");
    fs::remove_file(&mine).expect("removed");
    let report = export(0, &directory, &drives.paths);
    assert_eq!(report["export"]["fragments"], 1);
    doctor(&["--export", &name], &drives.paths).expect(2).says("is not empty");
}

/// Runs the doctor with a directory of so few bytes that an export does not fit into it, and gives what it said and, as text, what it left.
/// `None` where a user may not mount.
fn export_into(room: &str, drives: &Drives) -> Option<(Value, String)> {
    let directory = drives.directory.path().join(format!("full{room}"));
    fs::create_dir(&directory).expect("made");
    // A mount of its own, which ends with the shell.
    let script = r#"mount -t tmpfs -o size="$1" none "$2" || exit 77
        program=$3; shift 3; "$program" doctor --json --export "$DIR" "$@"; echo "exit $?"
        cat "$DIR/index.json.part"; echo; find "$DIR" -name '*.bin' -size -20000c -o -name '*.bin.part' -o -name index.json"#;
    let mut shell = Command::new("unshare");
    shell.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", room]);
    shell.arg(&directory).arg(env!("CARGO_BIN_EXE_forebay")).args(&drives.paths).env("DIR", &directory);
    let output = shell.output().ok()?;
    let (told, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let Some((object, left)) = told.split_once('\n') else {
        println!("skipped: needs the right to mount in a user namespace: {log}");
        return None;
    };
    Some((serde_json::from_str(object).unwrap_or_else(|error| panic!("{error}: {told} {log}")), left.to_owned()))
}

#[test]
fn an_export_into_a_full_disk_leaves_whole_files_and_an_index_of_them() {
    let drives = stopped(8);
    for (room, most) in [("65536", 3), ("81920", 4)] {
        let Some((report, left)) = export_into(room, &drives) else { return };
        let (mut lines, export) = (left.lines(), &report["export"]);
        assert_eq!((lines.next(), &report["exit"], &report["verdict"]), (Some("exit 3"), &3.into(), &"whole".into()));
        let (fragments, stopped) = (export["fragments"].as_u64().expect("a number"), &export["stopped"]);
        assert!((1..=most).contains(&fragments) && *stopped == true, "{report}");
        let error = report["error"].as_str().expect("words");
        let words = format!("{fragments} fragment");
        assert!(error.contains("No space left") && error.contains(&words) && error.contains("are safe"), "{error}");
        // What is in the index is all that is there, and whole.
        let listed: Vec<Value> =
            lines.clone().skip(1).map_while(|line| serde_json::from_str(line.trim_end_matches(',')).ok()).collect();
        let whole = listed.iter().filter(|event| event["fragments"][0]["bytes"] == 20_000).count() as u64;
        assert_eq!(whole, fragments, "{left}");
        let last = listed.last().expect("a line");
        assert_eq!(last["missing"][0]["outcome"], "not-written", "{left}");
        assert!(!lines.any(|line| line.starts_with('/')), "nothing is cut off: {left}");
    }
}
