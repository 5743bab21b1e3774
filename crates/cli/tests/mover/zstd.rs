//! `forebay move --zstd`: what arrives is smaller, and stock `zstd` reads it.

use crate::common;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use common::noise;
use common::place::{Place, adler32};
use common::running::{Running, files_below, until};
use forebay_rawdata::{Format, Generator};
use forebay_types::{EventId, RunId};
use serde_json::json;

/// Where there is no `zstd` the test says so.
fn place() -> Option<Place> {
    let runs = Command::new("zstd").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !runs {
        println!("skipped: needs zstd");
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must have zstd");
    }
    runs.then(Place::new)
}

/// What stock `zstd` makes of it.
fn unpacked(path: &Path) -> Vec<u8> {
    let output = Command::new("zstd").arg("-dc").arg(path).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn events(format: Format, run: u32, first: u64, count: u64) -> Vec<u8> {
    let mut generator = Generator::new(format, first, RunId(run)).starting_at(EventId(first));
    (0..count).flat_map(|_| generator.next_event().bytes).collect()
}

fn text(bytes: usize) -> Vec<u8> {
    noise(1, bytes).into_iter().map(|byte| b'a' + (byte & 7)).collect()
}

#[test]
fn what_arrives_is_smaller_and_any_zstd_reads_it() {
    let Some(place) = place() else { return };
    let files = [
        ("empty", Vec::new()),
        ("small", b"bytes".to_vec()),
        ("text", text(9_000_000)),
        ("a frame", text(4 << 20)),
        ("noise", noise(2, 5_000_001)),
        ("run7/a.raw", events(Format::Faser, 7, 1, 20)),
    ];
    for (name, bytes) in &files {
        place.write(&format!("daq/{name}"), bytes);
    }
    let json = place.once(&["--zstd", "--sidecar"]).expect(0).json();
    assert_eq!((&json["released"], &json["left_files"]), (&files.len().into(), &0.into()), "{json}");
    assert_eq!(files_below(&place.path("archive")).len(), 2 * files.len(), "nothing besides");
    for (name, bytes) in &files {
        let path = place.path(&format!("archive/{name}.zst"));
        let stored = fs::read(&path).expect("there");
        assert!(unpacked(&path) == *bytes, "{name}");
        let said = place.sidecar(&format!("{name}.zst"));
        assert_eq!((&said["bytes"], &said["adler32"]), (&json!(stored.len()), &json!(adler32(&stored))), "{name}");
        assert_eq!(
            (&said["uncompressed_bytes"], &said["compression"]),
            (&json!(bytes.len()), &json!("zstd")),
            "{name}"
        );
        assert_eq!(
            (&said["uncompressed_adler32"], &said["parts"][0]["adler32"]),
            (&json!(adler32(bytes)), &json!(adler32(bytes)))
        );
        assert!(place.path(&format!("daq/{name}.copied")).exists());
    }
    assert!(fs::metadata(place.path("archive/text.zst")).expect("there").len() < 4_500_000);
    assert_eq!(place.sidecar("run7/a.raw.zst")["events"], 20);
    // A damaged one is told by whoever reads it.
    let mut stored = fs::read(place.path("archive/noise.zst")).expect("there");
    let middle = stored.len() / 2;
    stored[middle] ^= 1;
    place.write("damaged.zst", &stored);
    let damaged = Command::new("zstd").arg("-dqc").arg(place.path("damaged.zst")).output().expect("it runs");
    assert!(!damaged.status.success());
}

#[test]
fn frames_stand_alone_where_the_table_says() {
    let Some(place) = place() else { return };
    let bytes = text(11_000_000);
    place.write("daq/a", &bytes);
    place.once(&["--zstd", "1"]).expect(0);
    let stored = fs::read(place.path("archive/a.zst")).expect("there");
    let at = |at: usize| u32::from_le_bytes(stored[at..at + 4].try_into().expect("four")) as usize;
    let frames = at(stored.len() - 9);
    assert_eq!((frames, at(stored.len() - 4)), (3, 0x8F92_EAB1));
    let table = stored.len() - 9 - 8 * frames;
    // The second alone, as one that reads a part of it does.
    let (first, second) = (at(table), at(table + 8));
    let mut zstd =
        Command::new("zstd").arg("-dc").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut stdin = zstd.stdin.take().expect("a pipe");
    let frame = stored[first..first + second].to_vec();
    let feeding = std::thread::spawn(move || stdin.write_all(&frame).expect("it listens"));
    let output = zstd.wait_with_output().expect("it ends");
    feeding.join().expect("it was fed");
    assert!(output.status.success() && output.stdout == bytes[4 << 20..8 << 20]);
}

#[test]
fn merged_files_are_compressed_as_they_are_merged() {
    let Some(place) = place() else { return };
    let faser: Vec<Vec<u8>> = (0..5).map(|number| events(Format::Faser, 7, 10 * number, 3)).collect();
    for (number, bytes) in faser.iter().enumerate() {
        place.write(&format!("daq/run7/part{number}.raw"), bytes);
        place.write(&format!("daq/small/part{number}"), &text(1000));
    }
    place.once(&["--zstd=19", "--sidecar", "--merge", "5MB"]).expect(0);
    assert!(unpacked(&place.path("archive/run7/run000007-00001.raw.zst")) == faser.concat());
    let archive = unpacked(&place.path("archive/small/files-00001.tar.zst"));
    let said = place.sidecar("small/files-00001.tar.zst");
    for part in said["parts"].as_array().expect("parts") {
        let at = part["at"].as_u64().expect("a place") as usize;
        assert!(archive[at..].starts_with(&text(1000)), "where it lies in what is not compressed: {part}");
    }
}

#[test]
fn how_it_is_compressed_is_decided_once() {
    let Some(place) = place() else { return };
    let bytes = text(60_000_000);
    place.write("daq/a", &bytes);
    let mut mover = Running::start(place.arguments(&["--settle", "0", "--zstd", "3"]), Stdio::null());
    until(|| {
        place.path("archive").exists() && files_below(&place.path("archive")).keys().any(|name| name.starts_with('.'))
    });
    mover.kill();
    // Started again otherwise: what is planned stays, and what comes is as it is now.
    place.write("daq/b", b"bytes");
    place.once(&[]).expect(0);
    let there: Vec<String> = files_below(&place.path("archive")).into_keys().collect();
    assert_eq!(there, ["a.zst", "b"]);
    assert!(unpacked(&place.path("archive/a.zst")) == bytes);
    // A name that has no room for the ending.
    let long = "n".repeat(252);
    place.write(&format!("daq/{long}"), b"bytes");
    place.once(&["--zstd", "--remove"]).expect(1).says("no room");
    assert!(place.path(&format!("daq/{long}")).exists());
    for level in ["0", "20", "x"] {
        place.once(&["--zstd", level]).expect(2);
    }
}
