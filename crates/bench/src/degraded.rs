//! Reads from the drives with all drives there, and with as many missing as the parity allows.

use std::path::Path;
use std::time::{Duration, Instant};

use fastrand::Rng;
use forebay_engine::{Admission, Fetch, Put, Reply, Token};
use forebay_store::{LaneRunner, StoreConfig};
use forebay_types::{DriveNumber, FragmentId, ReadOutcome, crc32c};
use serde_json::{Value, json};

use crate::engine::{Bench, crash};
use crate::measure::median;

/// Data and parity shards.
const WIDTHS: [(u8, u8); 2] = [(5, 1), (8, 2)];
const RUN: u32 = 1;
const FRAGMENT_BYTES: u64 = 10 << 10;
const SOURCES: u64 = 100;
/// So many fragments are asked for at once.
const DEPTH: usize = 64;
/// One read of so many at random is compared byte by byte, outside of what is timed.
const COMPARED: u64 = 10;

/// The order in which fragments are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// As they were put: what a filter or a recorder does.
    Put,
    /// Any of them next, each once.
    Random,
}

const ORDERS: [(&str, Order); 2] = [("in_order", Order::Put), ("at_random", Order::Random)];

/// Bytes a second in each order.
struct Rates {
    healthy: [f64; 2],
    degraded: [f64; 2],
}

/// Both widths, each `rounds` times on a new store.
pub fn degraded(directory: &Path, rounds: usize, payload_bytes: u64) -> Value {
    let rows: Vec<Value> = WIDTHS.iter().map(|width| one_width(directory, *width, rounds, payload_bytes)).collect();
    json!({
        "benchmark": "degraded",
        "fragment_bytes": FRAGMENT_BYTES,
        "payload_bytes": payload_bytes,
        "reads_at_once": DEPTH,
        "cache_bytes": 0,
        "rounds": rounds,
        "widths": rows,
    })
}

fn one_width(directory: &Path, (data, parity): (u8, u8), rounds: usize, payload_bytes: u64) -> Value {
    let all: Vec<Rates> = (0..rounds.max(1)).map(|_| one(directory, (data, parity), payload_bytes)).collect();
    let mut row = json!({ "width": format!("{data}+{parity}"), "drives_missing": parity });
    for (at, (name, _)) in ORDERS.iter().enumerate() {
        let ratios: Vec<f64> = all.iter().map(|rates| rates.degraded[at] / rates.healthy[at]).collect();
        let healthy = median(all.iter().map(|rates| rates.healthy[at]).collect());
        let degraded = median(all.iter().map(|rates| rates.degraded[at]).collect());
        let ratio = median(ratios.clone());
        eprintln!(
            "{data}+{parity} {name}: healthy {:.2} GB/s, {parity} missing {:.2} GB/s, ratio {ratio:.2}",
            healthy / 1e9,
            degraded / 1e9
        );
        row[*name] = json!({
            "healthy_bytes_per_s": healthy,
            "degraded_bytes_per_s": degraded,
            "ratio": ratio,
            "ratios": ratios,
        });
    }
    row
}

fn one(directory: &Path, (data, parity): (u8, u8), payload_bytes: u64) -> Rates {
    let drive_bytes = (payload_bytes / u64::from(data) * 3 / 2).next_multiple_of(1 << 20) + (256 << 20);
    let bench = Bench::of_width(directory, drive_bytes, (data, parity));
    let config =
        StoreConfig { cache_bytes: 0, drive_timeout_ms: Some(60_000), scrub_period_s: 0, ..StoreConfig::default() };
    let (mut runner, rest) = bench.open(&config);
    let sums = put_all(&mut runner, payload_bytes / FRAGMENT_BYTES);
    crash(runner, rest);
    // After a restart nothing is in memory.
    let (mut runner, rest) = bench.open(&config);
    let healthy = read_in_all_orders(&mut runner, &sums);
    let before = runner.lane().status().counters.fragments_read_degraded;
    assert_eq!(before, 0, "all drives are there, and parity was needed");
    for drive in 0..u16::from(parity) {
        rest.control.fail_drive(DriveNumber(drive)).expect("it may go");
    }
    while runner.lane().status().failures_left != Some(0) {
        runner.wait(Duration::from_millis(1));
    }
    let degraded = read_in_all_orders(&mut runner, &sums);
    let counters = runner.lane().status().counters;
    assert!(counters.fragments_read_degraded > 0, "drives are missing, and parity was not needed: {counters:?}");
    crash(runner, rest);
    Rates { healthy, degraded }
}

fn fragment(number: u64) -> FragmentId {
    FragmentId::new(RUN, number / SOURCES, (number % SOURCES) as u32)
}

/// The bytes of a fragment: no other has the same.
fn payload(number: u64, into: &mut [u8]) {
    for (at, word) in into.chunks_exact_mut(8).enumerate() {
        let mixed = ((number << 20) | at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        word.copy_from_slice(&mixed.to_le_bytes());
    }
}

/// Puts so many fragments; the CRC32C of each.
fn put_all(runner: &mut LaneRunner, count: u64) -> Vec<u32> {
    let mut bytes = vec![0; FRAGMENT_BYTES as usize];
    let (mut sums, mut stored) = (Vec::new(), 0);
    for number in 0..count {
        payload(number, &mut bytes);
        let put = Put { id: fragment(number), expected: SOURCES as u16, crc: crc32c(&bytes) };
        sums.push(put.crc);
        loop {
            match runner.lane().put(Token(number), &put, &bytes) {
                Admission::Pending => break,
                Admission::Busy => stored += wait_stored(runner),
                Admission::Done(outcome) => panic!("{} came to {outcome:?}", put.id),
            }
        }
        if number % 128 == 127 {
            runner.turn();
        }
    }
    while stored < count {
        stored += wait_stored(runner);
    }
    sums
}

fn wait_stored(runner: &mut LaneRunner) -> u64 {
    runner.wait(Duration::from_millis(1));
    let mut stored = 0;
    while let Some(reply) = runner.lane().next_reply() {
        match reply {
            Reply::Stored { records, .. } => stored += u64::from(records),
            other => panic!("{other:?}"),
        }
    }
    stored
}

/// Reads everything in each order; bytes a second.
fn read_in_all_orders(runner: &mut LaneRunner, sums: &[u32]) -> [f64; 2] {
    let shuffled = shuffled(sums.len() as u64);
    let compared: Vec<u64> = shuffled.iter().copied().filter(|number| number % COMPARED == 0).collect();
    let mut expected = vec![0; FRAGMENT_BYTES as usize];
    read(runner, sums, &compared, |number, bytes| {
        payload(number, &mut expected);
        assert!(bytes == expected, "{} has other bytes than were put", fragment(number));
    });
    ORDERS.map(|(_, order)| {
        let numbers = if order == Order::Put { (0..sums.len() as u64).collect() } else { shuffled.clone() };
        let begin = Instant::now();
        read(runner, sums, &numbers, |_, _| {});
        (numbers.len() as u64 * FRAGMENT_BYTES) as f64 / begin.elapsed().as_secs_f64()
    })
}

/// Each number once, in an order that is the same in each run.
fn shuffled(count: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count).collect();
    Rng::with_seed(1).shuffle(&mut numbers);
    numbers
}

/// Reads these, [`DEPTH`] at once; the sum of each, which the lane computes of the bytes that it hands out, must be that of what was put.
fn read(runner: &mut LaneRunner, sums: &[u32], numbers: &[u64], mut look: impl FnMut(u64, &[u8])) {
    let (mut next, mut waiting, mut bytes) = (0, 0, Vec::new());
    let mut check = |number: u64, outcome: ReadOutcome, crc: u32, bytes: &[u8]| {
        let id = fragment(number);
        assert!(outcome == ReadOutcome::Found && bytes.len() as u64 == FRAGMENT_BYTES, "{id}: {outcome}");
        assert_eq!(crc, sums[number as usize], "{id} has another sum than what was put");
        look(number, bytes);
    };
    while next < numbers.len() || waiting > 0 {
        while next < numbers.len() && waiting < DEPTH {
            let number = numbers[next];
            next += 1;
            bytes.clear();
            match runner.lane().get(Token(number), fragment(number), &mut bytes) {
                Fetch::Pending { .. } => waiting += 1,
                Fetch::Done(outcome, crc) => check(number, outcome, crc, &bytes),
            }
        }
        runner.turn();
        let mut answered = false;
        while let Some(reply) = runner.lane().next_reply() {
            let Reply::Read { token, outcome, payload, crc } = reply else { panic!("{reply:?}") };
            (waiting, answered) = (waiting - 1, true);
            check(token.0, outcome, crc, &payload);
        }
        if !answered && waiting > 0 {
            // What comes meanwhile is taken in the next round.
            runner.wait(Duration::from_millis(1));
        }
    }
}
