//! Very many small files: merged into few and not, and a source that is large to look at.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use forebay_mover::endpoint::{Moved, Source};
use forebay_mover::local::{DirectorySource, Disposal, Locks};
use forebay_rawdata::{Format, Generator};
use forebay_types::{EventId, RunId};
use serde_json::{Value, json};

use super::program::{Mover, take_back};
use crate::measure::median;
use crate::process::resident_bytes_of;

/// Single events, merged into files of so much.
const MERGED: &str = "20MB";

/// Many files of an event each, merged and as they are; order and bytes are compared.
pub fn small(directory: &Path, pairs: usize, files: usize) -> Value {
    let at = tempfile::TempDir::new_in(directory).expect("a directory can be made");
    let (from, to) = (at.path().join("daq"), at.path().join("archive"));
    fs::create_dir(&from).expect("made");
    let mut generator = Generator::new(Format::Faser, 1, RunId(7)).starting_at(EventId(1));
    let mut whole = Vec::new();
    for number in 0..files {
        let event = generator.next_event().bytes;
        fs::write(from.join(format!("event{number:07}.raw")), &event).expect("there is room");
        whole.extend(event);
    }
    let mut all: Vec<[f64; 4]> = Vec::new();
    let mut count = 0;
    for _ in 0..pairs {
        let mover = |options: &[&str]| {
            let mover = Mover {
                directory: at.path(),
                from: from.display().to_string(),
                to: to.display().to_string(),
                options: options.iter().map(|word| (*word).to_owned()).collect(),
                environment: Vec::new(),
            };
            let ran = mover.once();
            take_back(&from);
            ran
        };
        let as_they_are = mover(&[]);
        fs::remove_dir_all(&to).expect("removed");
        let merged = mover(&["--merge", MERGED]);
        count = check(&to, &whole);
        fs::remove_dir_all(&to).expect("removed");
        let per_s = |seconds: f64| files as f64 / seconds;
        all.push([
            per_s(as_they_are.seconds),
            per_s(merged.seconds),
            as_they_are.resident_bytes_peak as f64,
            merged.resident_bytes_peak as f64,
        ]);
    }
    let of = |at: usize| median(all.iter().map(|run| run[at]).collect());
    let row = json!({
        "files": files,
        "bytes": whole.len(),
        "files_per_s": of(0),
        "resident_bytes_peak": of(2) as u64,
        "merged_into_files": count,
        "merged_files_per_s": of(1),
        "merged_resident_bytes_peak": of(3) as u64,
        "merged_in_order_and_whole": true,
    });
    eprintln!("small files: {row}");
    row
}

/// The merged files in order of their names are all bytes in order; how many files these are.
fn check(at: &Path, whole: &[u8]) -> usize {
    let mut paths: Vec<_> = fs::read_dir(at).expect("listed").map(|entry| entry.expect("listed").path()).collect();
    // What it is known again by.
    paths.retain(|path| !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")));
    paths.sort();
    let merged: Vec<u8> = paths.iter().flat_map(|path| fs::read(path).expect("read")).collect();
    assert!(merged == whole, "other bytes, or in another order");
    paths.len()
}

struct Unwatched;

impl Moved for Unwatched {
    fn moved(&self, _: u64) -> bool {
        true
    }
}

/// A look at a source of so many files, and the memory of a mover that has one.
pub fn large_source(directory: &Path, pairs: usize, files: usize) -> Value {
    const OF_A_DIRECTORY: usize = 1000;
    /// A mover that has begun to let files go has planned as many as it ever has on their way.
    const WATCHED: Duration = Duration::from_secs(60);
    let at = tempfile::TempDir::new_in(directory).expect("a directory can be made");
    let from = at.path().join("daq");
    for number in 0..files {
        let below = from.join(format!("run{:04}", number / OF_A_DIRECTORY));
        if number % OF_A_DIRECTORY == 0 {
            fs::create_dir_all(&below).expect("made");
        }
        fs::File::create(below.join(format!("file{number:07}.dat"))).expect("there is room");
    }
    let source = DirectorySource::open(&from, Disposal::Rename, &mut Locks::default()).expect("nobody else has it");
    let look = || {
        let begin = Instant::now();
        assert_eq!(source.scan(&Unwatched).expect("it can be looked at").files.len(), files);
        begin.elapsed().as_secs_f64()
    };
    let looks: Vec<f64> = (0..pairs).map(|_| look()).collect();
    drop(source);
    let watched = |settle: &str| {
        let mover = Mover {
            directory: at.path(),
            from: from.display().to_string(),
            to: at.path().join("archive").display().to_string(),
            options: ["--settle", settle, "--recheck-after", "0"].map(str::to_owned).to_vec(),
            environment: Vec::new(),
        };
        let mut child = mover.start();
        let (begin, mut peak) = (Instant::now(), 0);
        while begin.elapsed() < WATCHED {
            peak = resident_bytes_of(child.id()).expect("it runs").1;
            std::thread::sleep(Duration::from_millis(100));
        }
        child.kill().expect("ours to kill");
        child.wait().expect("it ends");
        (peak, mover.audit().iter().filter(|line| line["after"] == "released").count())
    };
    let (waiting_peak, _) = watched("3600");
    let (moving_peak, released) = watched("0");
    let row = json!({
        "files": files,
        "look_seconds": median(looks.clone()),
        "all_look_seconds": looks,
        "resident_bytes_peak_while_none_is_complete": waiting_peak,
        "resident_bytes_peak_while_they_are_moved": moving_peak,
        "watched_seconds": WATCHED.as_secs(),
        "released_meanwhile": released,
    });
    eprintln!("large source: {row}");
    row
}
