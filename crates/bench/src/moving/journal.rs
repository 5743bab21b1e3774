//! How many transitions a second are durable, and how many files a second are moved.

use std::fs;
use std::path::Path;
use std::time::Instant;

use forebay_mover::Name;
use forebay_mover::custody::{Change, Changed, ConsignmentId, Part, PartIdentity, Stage, Standing, What};
use forebay_mover::journal::Journal;
use forebay_mover::machine::{Record, RouteIndex};
use forebay_mover::recipe::{Form, Recipe};
use forebay_types::WallTime;
use serde_json::{Value, json};

use super::program::{Mover, take_back};
use crate::measure::median;

/// Transitions that are committed together.
const BATCHES: [u64; 3] = [1, 16, 256];
/// How long each is measured, seconds.
const SECONDS: f64 = 1.0;
/// The events that are to be recorded, a second, and the files that they come in.
const EVENTS_PER_S: f64 = 10_000.0;
const FILE_BYTES: f64 = 5e9;
const EVENT_BYTES: [f64; 2] = [1e6, 10_240.0];

/// The journal alone, and the mover with many small files, in memory and on a disk.
pub fn journal(directory: &Path, disk: &Path, pairs: usize, files: usize) -> Value {
    let mut rows = Vec::new();
    for (place, at) in [("memory", directory), ("disk", disk)] {
        let batches: Vec<Value> = BATCHES.iter().map(|batch| commits(at, *batch, pairs)).collect();
        let moved = small_files(directory, at, pairs, files);
        let row = json!({ "journal_on": place, "commits": batches, "small_files": moved });
        eprintln!("journal: {row}");
        rows.push(row);
    }
    let transitions = rows[0]["small_files"]["transitions_per_file"].as_f64().expect("a number");
    let needed: Vec<Value> = EVENT_BYTES
        .iter()
        .map(|bytes| {
            let files_per_s = EVENTS_PER_S * bytes / FILE_BYTES;
            json!({ "event_bytes": bytes, "files_per_s": files_per_s, "transitions_per_s": files_per_s * transitions })
        })
        .collect();
    json!({ "places": rows, "needed_for_10000_events_per_s_in_files_of_5_gb": needed })
}

/// New files are written to a journal and one step of each, so many transitions to a commit.
fn commits(at: &Path, batch: u64, pairs: usize) -> Value {
    let run = || {
        let at = tempfile::TempDir::new_in(at).expect("a directory can be made");
        let mut journal = Journal::open(&at.path().join("journal.sqlite")).expect("it can be made");
        let (begin, mut written, mut id) = (Instant::now(), 0, 0);
        while begin.elapsed().as_secs_f64() < SECONDS {
            let mut records = Vec::new();
            while (records.len() as u64) < batch {
                // Each file is found, and withdrawn.
                records.push(if written % 2 == 0 { planned(id) } else { withdrawn(id) });
                id += written % 2;
                written += 1;
            }
            let transitions = journal.write(&records, &["daq".to_owned()], WallTime(1)).expect("there is room");
            assert_eq!(transitions.len() as u64, batch);
        }
        written as f64 / begin.elapsed().as_secs_f64()
    };
    let all: Vec<f64> = (0..pairs).map(|_| run()).collect();
    json!({ "transitions_per_commit": batch, "transitions_per_s": median(all.clone()), "all": all })
}

fn planned(id: u64) -> Record {
    let name: Name = format!("run7/file{id}").parse().expect("a name");
    let identity = PartIdentity { bytes: 1, modified_ns: 1, inode: id };
    let parts = vec![Part { name: name.clone(), identity, changed_ns: 1 }];
    Record::Planned {
        id: ConsignmentId(id),
        route: RouteIndex(0),
        name,
        recipe: Recipe::of_files(Form::Concatenated, parts, None),
        series: None,
        settings: 0,
        priority: 0,
        deliveries: vec![("/archive".to_owned(), What::File, true)],
    }
}

fn withdrawn(id: u64) -> Record {
    let standing = |stage| Box::new(Standing { stage, ..Standing::default() });
    let of = Changed::Standing { from: standing(Stage::Found), to: standing(Stage::Withdrawn) };
    Record::Change(Change { consignment: ConsignmentId(id), of, why: String::new() })
}

/// From one directory in memory to another, with the journal elsewhere.
fn small_files(directory: &Path, journal: &Path, pairs: usize, files: usize) -> Value {
    let at = tempfile::TempDir::new_in(directory).expect("a directory can be made");
    let journal = tempfile::TempDir::new_in(journal).expect("a directory can be made");
    let (from, to) = (at.path().join("daq"), at.path().join("archive"));
    for number in 0..files {
        let path = from.join(format!("run{}/file{number:06}.dat", number / 1000));
        fs::create_dir_all(path.parent().expect("it has one")).expect("made");
        fs::write(path, super::noise(number as u64, 1000)).expect("there is room");
    }
    let mut all: Vec<[f64; 3]> = Vec::new();
    for _ in 0..pairs {
        let mover = Mover {
            directory: journal.path(),
            from: from.display().to_string(),
            to: to.display().to_string(),
            options: vec!["--streams".to_owned(), "8".to_owned()],
            environment: Vec::new(),
        };
        let ran = mover.once();
        fs::remove_dir_all(&to).expect("removed");
        take_back(&from);
        let transitions = ran.transitions as f64;
        all.push([files as f64 / ran.seconds, transitions / ran.seconds, transitions / files as f64]);
    }
    let of = |at: usize| median(all.iter().map(|run| run[at]).collect());
    json!({
        "files": files,
        "file_bytes": 1000,
        "files_per_s": of(0),
        "transitions_per_s": of(1),
        "transitions_per_file": of(2),
        "all_files_per_s": all.iter().map(|run| run[0]).collect::<Vec<f64>>(),
    })
}
