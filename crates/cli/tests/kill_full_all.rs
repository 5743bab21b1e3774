//! kill -9 of the server of a store that is full of files, again and again, while clients go on: they write until there is no room, over what they wrote, and remove.
//! Room is made all the time then, with what is kept back for it, and each crash comes amid copies.
//!
//! What must hold: each client reads what it wrote, byte for byte, and nothing of what it removed; a full store refuses what is written, and never what removes; when
//! all is removed there is room for as much as at first.
//!
//! All is seeded (`FOREBAY_KILL_SEED`), but for the moments at which clients meet; `FOREBAY_KILL_ROUNDS` is the number of kills. The short form has 6, the long one
//! (`FOREBAY_TEST_ALL`) 40.

mod common;
#[path = "kill_full/filler.rs"]
mod filler;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::load::{Random, from_environment, long_form};
use common::{Drives, Server, forebay, scratch};
use filler::{Filler, Totals, whole};
use forebay_client::files::Files;

/// Clients at a time.
const FILLERS: u64 = 4;

/// What one lane of 32 MiB a drive holds besides what it keeps back.
const HELD_BYTES: u64 = 60 << 20;

/// A store of one lane, as small as one can be.
fn small_drives() -> Drives {
    let directory = scratch();
    let paths: Vec<PathBuf> = (0..5).map(|number| directory.path().join(format!("drive{number}"))).collect();
    let options =
        ["init", "--data", "4", "--parity", "1", "--slot-bytes", "1MiB", "--lanes", "1", "--drive-bytes", "32MiB"];
    forebay(options.map(OsStr::new).into_iter().chain(paths.iter().map(|path| path.as_os_str()))).expect(0);
    Drives { directory, paths }
}

/// Kills the server, now and then also in the middle of its next start, and starts it again at the same address.
fn kill(server: &mut Server, drives: &Drives, random: &mut Random, kills_at_start: &mut u64) {
    server.send_kill();
    while random.percent(30) {
        let after = Duration::from_millis(random.below(60));
        Server::start_and_kill(&server.address, &[], &drives.paths, after);
        *kills_at_start += 1;
    }
    server.replace_killed(&[], &drives.paths);
    server.collect_log();
}

/// Waits until the store refuses what is written, or for so long.
fn until_full(refused: &AtomicU64, before: u64, at_most: Duration) {
    let start = Instant::now();
    while refused.load(Ordering::SeqCst) == before && start.elapsed() < at_most {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_full_store_of_files_survives_kills_and_stays_usable() {
    let rounds = from_environment("FOREBAY_KILL_ROUNDS").unwrap_or(if long_form() { 40 } else { 6 });
    let seed = from_environment("FOREBAY_KILL_SEED").unwrap_or(1);
    println!("seed {seed}, {rounds} rounds");
    let (drives, mut random, mut kills_at_start) = (small_drives(), Random(seed), 0);
    let mut server = drives.serve();
    server.collect_log();
    let (is_over, refused, starts) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let mut fillers: Vec<Filler> = (0..FILLERS).map(|number| Filler::begin(&server.address, number, seed)).collect();
    let mut totals = Totals::default();
    std::thread::scope(|scope| {
        let running: Vec<_> =
            fillers.iter_mut().map(|filler| scope.spawn(|| filler.run(&is_over, &refused, &starts))).collect();
        for _ in 0..rounds {
            // Half of the kills come while the store is full.
            let before = refused.load(Ordering::SeqCst);
            if random.percent(50) {
                until_full(&refused, before, Duration::from_secs(20));
            }
            std::thread::sleep(Duration::from_millis(random.below(1500)));
            if running.iter().any(|thread| thread.is_finished()) {
                break;
            }
            kill(&mut server, &drives, &mut random, &mut kills_at_start);
            starts.fetch_add(1, Ordering::SeqCst);
        }
        is_over.store(true, Ordering::SeqCst);
        running.into_iter().for_each(|thread| totals.add(&thread.join().expect("what it saw is right")));
    });
    println!("kills {rounds}, in a start {kills_at_start}, {totals:?}");
    for filler in &mut fillers {
        filler.verify();
        filler.remove_all();
    }
    server.run(&["file", "ls", "/"]).expect(0);
    let files = Files::new(server.client("last")).expect("a client");
    for number in 0..HELD_BYTES >> 20 {
        whole(&files, &format!("/last{number}"), &common::noise(number, 1 << 20));
    }
    assert!(totals.refused > 0 && totals.removed > 0 && totals.written > 0 && totals.overwritten > 0, "{totals:?}");
}
