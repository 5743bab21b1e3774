//! Making the shards of a lost drive anew.

mod served;

use std::path::Path;
use std::time::{Duration, Instant};

use forebay_engine::RebuildStatus;
use forebay_store::{LaneRunner, StoreConfig};
use forebay_types::DriveNumber;
use serde_json::{Value, json};

use crate::engine::{Bench, DATA, OpenedStoreRest, PARITY, crash, put_all};
use crate::fio;
use crate::measure::median;

const FRAGMENT_BYTES: u64 = 10 << 10;

/// How one round went, in bytes a second.
struct Round {
    /// Read and written by a rebuild that nothing disturbs.
    alone: f64,
    fio: f64,
    /// Payload put while nothing is rebuilt, and while something is.
    puts_alone: f64,
    puts_beside: f64,
    /// Read and written by the rebuild meanwhile.
    beside: f64,
}

/// A drive is lost and replaced twice: once while nothing else happens, once under puts at full rate.
pub fn rebuild(directory: &Path, rounds: usize, payload_bytes: u64) -> Value {
    let mut all: Vec<Round> = Vec::new();
    for round in 0..rounds {
        all.push(one(directory, payload_bytes));
        let Round { alone, fio, puts_alone, puts_beside, beside } = all[round];
        eprintln!(
            "round {}: rebuild {:.2} GB/s, fio {:.2} GB/s; beside puts {:.2} GB/s; puts {:.2} GB/s, beside rebuild {:.2} GB/s",
            round + 1,
            alone / 1e9,
            fio / 1e9,
            beside / 1e9,
            puts_alone / 1e9,
            puts_beside / 1e9
        );
    }
    let of = |value: fn(&Round) -> f64| median(all.iter().map(value).collect());
    let served = served::served(directory, rounds, payload_bytes);
    json!({
        "benchmark": "rebuild",
        "width": format!("{DATA}+{PARITY}"),
        "fragment_bytes": FRAGMENT_BYTES,
        "payload_bytes": payload_bytes,
        "rounds": rounds,
        "rebuild_percent": StoreConfig::default().rebuild_percent,
        "rebuild_bytes_per_s": of(|round| round.alone),
        "fio_same_mix_bytes_per_s": of(|round| round.fio),
        "ratio_to_fio": of(|round| round.alone / round.fio),
        "puts_beside_rebuild_ratio": of(|round| round.puts_beside / round.puts_alone),
        "rebuild_beside_puts_ratio": of(|round| round.beside / round.alone),
        "served": served,
    })
}

fn one(directory: &Path, payload_bytes: u64) -> Round {
    let drive_bytes = (payload_bytes / u64::from(DATA) * 3).next_multiple_of(1 << 20) + (256 << 20);
    let bench = Bench::new(directory, drive_bytes);
    let config = StoreConfig { drive_timeout_ms: Some(60_000), scrub_period_s: 0, ..StoreConfig::default() };
    let (mut runner, rest) = bench.open(&config);
    let payload: Vec<u8> = (0..FRAGMENT_BYTES).map(|i| (i * 131 + i / 251) as u8).collect();
    let count = payload_bytes / FRAGMENT_BYTES;
    let part = count * 2 / 3;
    put_all(&mut runner, 1, count, &payload, |_| None);
    let puts_alone = timed(|| put_all(&mut runner, 2, part, &payload, |_| None), part * FRAGMENT_BYTES);

    replace(&mut runner, &rest, 2, &bench.further("first"));
    let before = status(&mut runner);
    let begin = Instant::now();
    until_whole(&mut runner);
    let after = status(&mut runner);
    let alone = moved(&before, &after) / begin.elapsed().as_secs_f64();
    let baseline = bench.further("baseline");
    let bytes = moved(&before, &after) as u64;
    forebay_media::create_zeroed(&baseline, bytes.next_multiple_of(1 << 20), &mut |_| {}).expect("a file can be made");
    let fio = fio::mixed_bytes_per_s(&baseline, bytes, DATA);
    std::fs::remove_file(&baseline).expect("the baseline's file can go");

    replace(&mut runner, &rest, 3, &bench.further("second"));
    let before = status(&mut runner);
    let begin = Instant::now();
    let puts_beside = timed(|| put_all(&mut runner, 3, part, &payload, |_| None), part * FRAGMENT_BYTES);
    let (seconds, now) = (begin.elapsed().as_secs_f64(), status(&mut runner));
    assert!(!now.is_whole, "the rebuild was over before the puts were: store more");
    let beside = moved(&before, &now) / seconds;
    crash(runner, rest);
    Round { alone, fio, puts_alone, puts_beside, beside }
}

fn timed(run: impl FnOnce(), bytes: u64) -> f64 {
    let begin = Instant::now();
    run();
    bytes as f64 / begin.elapsed().as_secs_f64()
}

fn status(runner: &mut LaneRunner) -> RebuildStatus {
    runner.lane().status().rebuild
}

fn moved(before: &RebuildStatus, after: &RebuildStatus) -> f64 {
    let of = |status: &RebuildStatus| status.bytes_read + status.bytes_written;
    (of(after) - of(before)) as f64
}

/// Gives a drive up and puts an empty one in; comes back when its rebuild may begin.
fn replace(runner: &mut LaneRunner, rest: &OpenedStoreRest, drive: u16, path: &Path) {
    rest.control.fail_drive(DriveNumber(drive)).expect("it may go");
    rest.control.replace_drive(DriveNumber(drive), path, false, Vec::new()).expect("another may come");
    // The lane rests meanwhile: it hears of both only then.
    let over = |status: &forebay_store::ControlStatus| {
        status.replacement.as_ref().is_some_and(|replacement| matches!(replacement.state, "done" | "failed"))
    };
    assert!(rest.control.wait_until(Duration::from_secs(600), over), "a drive is made");
    let replacement = rest.control.status().replacement;
    assert!(replacement.as_ref().is_some_and(|replacement| replacement.state == "done"), "{replacement:?}");
    while status(runner).is_whole {
        runner.wait(Duration::from_millis(1));
    }
}

fn until_whole(runner: &mut LaneRunner) {
    while !status(runner).is_whole {
        let wait = runner.next_wakeup().unwrap_or(Duration::from_millis(1)).min(Duration::from_millis(1));
        runner.wait(wait);
    }
}
