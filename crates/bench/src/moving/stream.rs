//! Accepted events of a store's stream, beside the same events as a file of a directory.

use std::fs;
use std::path::{Path, PathBuf};

use forebay_client::{Client, Decision};
use forebay_rawdata::{Format, Generator, split};
use forebay_types::{EventKey, RunId, Verdict};
use serde_json::{Value, json};

use super::program::{Mover, take_back};
use crate::files::LANES;
use crate::measure::median;
use crate::process::{Drives, Server};

const DRIVE_BYTES: u64 = 3 << 30;
/// What waits longest is read from the drives.
const CACHE_BYTES: u64 = 256 << 20;
const DECIDED_AT_ONCE: usize = 1000;
/// More than there is: a run becomes one file.
const MERGED: &str = "5GB";

/// Events a second into one file of their format, with all proofs, until the store has forgotten them.
pub fn stream(directory: &Path, pairs: usize, events: usize) -> Value {
    let at = tempfile::TempDir::new_in(directory).expect("a directory can be made");
    let drives = Drives::new(at.path(), DRIVE_BYTES, LANES);
    let server = drives.serve(CACHE_BYTES);
    let (daq, archive) = (at.path().join("daq"), at.path().join("archive"));
    fs::create_dir(&daq).expect("made");
    let mover = |from: String, options: &[&str]| Mover {
        directory: at.path(),
        from,
        to: archive.display().to_string(),
        options: options.iter().map(|word| (*word).to_owned()).collect(),
        environment: Vec::new(),
    };
    let address = server.address();
    let mut bytes = 0;
    let mut all: Vec<[f64; 5]> = Vec::new();
    for run in 0..pairs {
        let whole = accept(&server, RunId(run as u32 + 1), events);
        bytes = whole.len();
        let moved = mover("stream:physics".to_owned(), &["--server", &address, "--merge", MERGED]).once();
        check(&archive.join("physics"), &whole);
        fs::remove_dir_all(&archive).expect("removed");
        fs::write(daq.join("run.raw"), &whole).expect("there is room");
        let as_file = mover(daq.display().to_string(), &[]).once();
        fs::remove_dir_all(&archive).expect("removed");
        take_back(&daq);
        let per_s = |seconds: f64| events as f64 / seconds;
        let ratio = as_file.seconds / moved.seconds;
        all.push([
            per_s(moved.seconds),
            per_s(moved.sending_seconds),
            ratio,
            moved.cpu_seconds,
            moved.resident_bytes_peak as f64,
        ]);
    }
    let values = |at: usize| all.iter().map(|run| run[at]).collect::<Vec<f64>>();
    let of = |at: usize| median(values(at));
    let row = json!({
        "events": events,
        "event_bytes": bytes / events,
        "events_per_s": of(0),
        "sending_events_per_s": of(1),
        "to_one_file_of_a_directory": of(2),
        "cpu_seconds_per_gb": of(3) / (bytes as f64 / 1e9),
        "resident_bytes_peak": of(4) as u64,
        "in_order_and_whole": true,
        "all": { "events_per_s": values(0), "to_one_file_of_a_directory": values(2) },
    });
    eprintln!("stream: {row}");
    row
}

/// Puts events of a run, and accepts them; all their bytes.
fn accept(server: &Server, run: RunId, events: usize) -> Vec<u8> {
    let mut client = server.client();
    let mut generator = Generator::new(Format::Faser, 1, run);
    let (mut whole, mut keys) = (Vec::new(), Vec::new());
    for _ in 0..events {
        let event = generator.next_event();
        let pieces = split(&event).expect("a generated event");
        for piece in &pieces {
            client.put(event.key.fragment(piece.source), pieces.len() as u16, &piece.bytes).expect("taken");
        }
        keys.push(event.key);
        whole.extend(event.bytes);
    }
    client.flush().expect("all is answered");
    keys.chunks(DECIDED_AT_ONCE).for_each(|keys| decide(&mut client, keys));
    whole
}

fn decide(client: &mut Client, keys: &[EventKey]) {
    let verdict = Verdict::Accept(vec!["physics".parse().expect("a name")]);
    let decision = |key: &EventKey| Decision { key: *key, verdict: verdict.clone(), incomplete: false };
    let decisions: Vec<Decision> = keys.iter().map(decision).collect();
    let outcomes = client.decide(&decisions).expect("answered");
    assert!(outcomes.iter().all(|outcome| outcome.is_done()), "an event was not accepted");
}

/// One file, of all bytes in order.
fn check(at: &Path, whole: &[u8]) {
    let paths: Vec<PathBuf> = fs::read_dir(at).expect("listed").map(|entry| entry.expect("listed").path()).collect();
    assert_eq!(paths.len(), 1, "{paths:?}");
    assert!(fs::read(&paths[0]).expect("read") == whole, "what was merged is something else");
}
