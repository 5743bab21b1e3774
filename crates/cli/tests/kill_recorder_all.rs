//! kill -9 of the recorder at random moments: in the end each accepted event stands in exactly one file of each of its streams, byte for
//! byte, and the store has released it. That is judged here and by a program that shares nothing with the recorder (`tools/judge-custody.py`).
//!
//! The moments are seeded; `FOREBAY_KILL_SEED` chooses others. The short form has 6 kills, the long one (`FOREBAY_TEST_ALL`) 50.

mod common;

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::judge::{self, Judge};
use common::{Drives, Server};
use forebay_client::{Client, ClientConfig, Decision};
use forebay_emulators::{EventHash, HashLedger, check_files};
use forebay_rawdata::{Format, Generator, split};
use forebay_types::{EventKey, RunId, StreamName, Verdict};

/// Events that are accepted whenever the recorder has none left.
const BATCH: u64 = 150;

fn stream(name: &str) -> StreamName {
    name.parse().expect("a name")
}

/// Every event goes into `physics`, every third into `calibration` too.
fn accept_events(client: &mut Client, generator: &mut Generator, ledger: &HashLedger, judge: &Judge) -> Vec<EventKey> {
    let (mut keys, mut calibration, mut physics) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..BATCH {
        let event = generator.next_event();
        ledger.insert(event.key, EventHash::of(&event.bytes));
        let pieces = split(&event).expect("a generated event");
        for piece in &pieces {
            let id = event.key.fragment(piece.source);
            client.put(id, pieces.len() as u16, &piece.bytes).expect("taken");
        }
        keys.push(event.key);
        if event.key.event.0.is_multiple_of(3) {
            calibration.extend_from_slice(&event.bytes);
        }
        physics.extend(event.bytes);
    }
    judge.note(&format!("physics/from-{}.raw", keys[0].event), &physics);
    judge.note(&format!("calibration/from-{}.raw", keys[0].event), &calibration);
    client.flush().expect("all is answered");
    let decision = |key: &EventKey| {
        let mut streams = vec![stream("physics")];
        if key.event.0.is_multiple_of(3) {
            streams.push(stream("calibration"));
        }
        Decision { key: *key, verdict: Verdict::Accept(streams), incomplete: false }
    };
    let decisions: Vec<Decision> = keys.iter().map(decision).collect();
    let outcomes = client.decide(&decisions).expect("answered");
    assert!(outcomes.iter().all(|outcome| outcome.is_done()), "{outcomes:?}");
    keys
}

/// Runs a recorder; kills it after `kill_after`. Whether it ended by itself before.
fn record(server: &Server, directory: &Path, kill_after: Option<Duration>) -> bool {
    let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args([
            "record",
            "--server",
            &server.address,
            "--once",
            "--file-bytes",
            "200kB",
            "--close-after",
            "0.05",
            "--out",
        ])
        .arg(directory)
        .arg("--journal")
        .arg(directory.with_extension("sqlite"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the recorder starts");
    if let Some(after) = kill_after {
        std::thread::sleep(after);
        child.kill().expect("ours to kill");
    }
    let status = child.wait().expect("it ends");
    // An end with an error of its own is neither a kill (signal 9) nor a success.
    let killed = kill_after.is_some() && status.signal() == Some(9);
    assert!(killed || status.success(), "the recorder ended with {status}");
    !killed
}

#[test]
fn each_accepted_event_is_recorded_once_whenever_the_recorder_dies() {
    if !judge::is_here() {
        return;
    }
    let kills_wanted = if std::env::var_os("FOREBAY_TEST_ALL").is_some() { 50 } else { 6 };
    let mut state: u64 = std::env::var("FOREBAY_KILL_SEED").map_or(1, |seed| seed.parse().expect("a seed"));
    let drives = Drives::five();
    let server = drives.serve();
    let out = drives.directory.path().join("files");
    let mut client = Client::connect(ClientConfig::new(server.address.clone(), "test")).expect("the server answers");
    let mut generator = Generator::new(Format::Faser, 7, RunId(1920));
    let ledger = HashLedger::default();
    let judge = Judge::of_events(drives.directory.path().join("put"), &server.address, std::slice::from_ref(&out));
    let mut accepted = accept_events(&mut client, &mut generator, &ledger, &judge);
    let (mut kills, mut endings) = (0, 0);
    while kills < kills_wanted {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let after = Duration::from_micros(10_000 + (state >> 33) % 1_500_000);
        if record(&server, &out, Some(after)) {
            endings += 1;
            accepted.extend(accept_events(&mut client, &mut generator, &ledger, &judge));
        } else {
            kills += 1;
        }
        judge.judge(false);
    }
    record(&server, &out, None);
    judge.judge(true);
    let report = check_files(&out, &ledger).expect("the files can be read");
    assert!(report.is_good(), "{:?} {:?}", report.total(), report.reports);
    let calibration = accepted.iter().filter(|key| key.event.0.is_multiple_of(3)).count() as u64;
    let shipped = |name: &str| report.streams.get(&stream(name)).map_or(0, |s| s.identical);
    assert_eq!((shipped("physics"), shipped("calibration")), (accepted.len() as u64, calibration));
    for (name, left) in client.streams().expect("answered").into_iter().map(|s| (s.name, s.accepted)) {
        assert_eq!(left, 0, "{name} has released all of its events");
    }
    println!("kills {kills}, endings {endings}, accepted {}, shipped {}", accepted.len(), report.total().identical);
    assert!(kills > 0 && !accepted.is_empty());
}
