//! How long acknowledgements take when puts come at half of the full rate: with all drives, beside subscribers, when a drive is lost and
//! after that, and while what it held is made anew.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use forebay_client::{ChangeDrive, Class, Client, ClientConfig, DriveChange, PutResult};
use forebay_types::{DriveNumber, EventKey, Fraction, RunId};
use serde_json::{Value, json};

use crate::measure::median;
use crate::process::{DATA, Drives, PARITY, Server};
use crate::requests::{SOURCES, id, payload, put_all, status};

const FRAGMENT_BYTES: u64 = 10 << 10;
/// What is put is deleted when so many bytes came after it, so that a measurement may be as long as one likes.
const KEPT_BYTES: u64 = 512 << 20;
const KEPT_EVENTS: u64 = KEPT_BYTES / (FRAGMENT_BYTES * SOURCES);
/// Events of one deletion.
const BATCH: u64 = 64;
/// Before it counts.
const WARM_UP: Duration = Duration::from_secs(1);
const LOST: DriveNumber = DriveNumber(2);
/// Subscribers that look at nothing of what they are told, beside one that reads a tenth of the events.
const IDLE_SUBSCRIBERS: usize = 8;
/// `losing` begins with the loss itself, `degraded` is long after it.
const STATES: [&str; 5] = ["healthy", "subscribed", "losing", "degraded", "rebuilding"];

/// What counts of a load.
#[derive(Clone, Copy)]
struct Window {
    from: Instant,
    to: Instant,
}

/// A load in one state.
struct Measured {
    bytes_per_s: f64,
    /// From when each put was due until its acknowledgement, ascending.
    latencies_ms: Vec<f64>,
    seconds: f64,
}

/// The full rate, and each state at half of it.
struct Round {
    full_bytes_per_s: f64,
    states: [Measured; STATES.len()],
}

/// Each round is a new store that holds `payload_bytes` all the while; each state is measured for `seconds`, the rebuild until it is over.
pub fn acknowledgements(directory: &Path, rounds: usize, seconds: u64, payload_bytes: u64) -> Value {
    let longest = Duration::from_secs(seconds);
    let rounds: Vec<Round> = (0..rounds.max(1)).map(|_| round(directory, longest, payload_bytes)).collect();
    let full: Vec<f64> = rounds.iter().map(|round| round.full_bytes_per_s).collect();
    let mut result = json!({
        "benchmark": "acknowledgements",
        "width": format!("{DATA}+{PARITY}"),
        "fragment_bytes": FRAGMENT_BYTES,
        "stored_bytes": payload_bytes,
        "rounds": rounds.len(),
        "full_bytes_per_s": median(full),
    });
    for (at, name) in STATES.iter().enumerate() {
        let each: Vec<&Measured> = rounds.iter().map(|round| &round.states[at]).collect();
        result[*name] = told(name, &each);
    }
    result
}

/// Medians over the rounds, and the longest of all.
fn told(name: &str, rounds: &[&Measured]) -> Value {
    let part = |measured: &Measured, part: f64| {
        let latencies = &measured.latencies_ms;
        latencies[((latencies.len() - 1) as f64 * part) as usize]
    };
    let of = |at: f64| -> Vec<f64> { rounds.iter().map(|measured| part(measured, at)).collect() };
    let (p50, p99, max) = (median(of(0.50)), median(of(0.99)), of(1.0).into_iter().fold(0.0, f64::max));
    let rate = median(rounds.iter().map(|measured| measured.bytes_per_s).collect());
    eprintln!("{name}: {:.2} GB/s, p50 {p50:.2} ms, p99 {p99:.2} ms, max {max:.1} ms", rate / 1e9);
    json!({
        "payload_bytes_per_s": rate,
        "seconds": rounds.iter().map(|measured| measured.seconds).collect::<Vec<_>>(),
        "puts": rounds.iter().map(|measured| measured.latencies_ms.len()).collect::<Vec<_>>(),
        "p50_ms": p50,
        "p99_ms": p99,
        "max_ms": max,
        "all_p99_ms": of(0.99),
    })
}

fn round(directory: &Path, longest: Duration, payload_bytes: u64) -> Round {
    // Half full: what is measured is not how room is made.
    let drive_bytes = ((payload_bytes + KEPT_BYTES) / u64::from(DATA) * 2).next_multiple_of(1 << 20) + (256 << 20);
    let drives = Drives::new(directory, drive_bytes, 1);
    let server = drives.serve(256 << 20);
    put_all(&mut server.client(), 1, payload_bytes / FRAGMENT_BYTES, &payload(FRAGMENT_BYTES as usize));
    let full = load(&server, 2, None, |_| counting(longest)).bytes_per_s;
    let half = Some(full / 2.0);
    let healthy = load(&server, 3, half, |_| counting(longest));
    let subscribed = load_beside_subscribers(&server, 7, half, longest);
    let losing = load(&server, 4, half, |client| {
        thread::sleep(WARM_UP);
        let from = Instant::now();
        change(client, DriveChange::Fail { force: false });
        thread::sleep(longest);
        Window { from, to: Instant::now() }
    });
    let degraded = load(&server, 5, half, |_| counting(longest));
    let path = drives.further("replacement").to_str().expect("a path of this benchmark is text").to_owned();
    let rebuilding = load(&server, 6, half, |client| {
        change(client, DriveChange::Replace { path, force: false });
        while_rebuilt(client, longest)
    });
    let round = Round { full_bytes_per_s: full, states: [healthy, subscribed, losing, degraded, rebuilding] };
    let p99 = round.states.each_ref().map(|state| state.latencies_ms[state.latencies_ms.len() * 99 / 100]);
    eprintln!("full rate {:.2} GB/s; at half of it, p99 in ms of {STATES:?}: {p99:.2?}", full / 1e9);
    round
}

fn counting(longest: Duration) -> Window {
    thread::sleep(WARM_UP);
    let from = Instant::now();
    thread::sleep(longest);
    Window { from, to: Instant::now() }
}

/// Beside those who look on, whom nothing waits for.
fn load_beside_subscribers(server: &Server, run: u32, rate: Option<f64>, longest: Duration) -> Measured {
    let config = || ClientConfig::new(server.address(), "monitor").class(Class::Monitor);
    let subscribe = |fraction| {
        let mut client = Client::connect(config()).expect("the server answers");
        let subscription = client.subscribe(Some(RunId(run)), None, fraction).expect("the server answers");
        (client, subscription)
    };
    let idle: Vec<_> = (0..IDLE_SUBSCRIBERS).map(|_| subscribe(Fraction::ALL)).collect();
    let (mut client, mut subscription) = subscribe(Fraction::from_millionths(100_000).expect("a part of all"));
    let ended = AtomicBool::new(false);
    let measured = thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                client.next_events(&mut subscription, Duration::from_millis(50)).expect("the server answers");
            }
        });
        let measured = load(server, run, rate, |_| counting(longest));
        ended.store(true, Ordering::Relaxed);
        measured
    });
    drop(idle);
    let counts = subscription.counts();
    assert!(counts.read > 0, "nothing was read: {counts:?}");
    eprintln!("a subscriber to a tenth of the events: {counts:?}");
    measured
}

fn change(client: &mut Client, change: DriveChange) {
    client.change_drive(ChangeDrive { drive: LOST, change }).expect("the server does it");
}

/// From when the new drive is a member until all is made anew on it, or `longest` has passed.
fn while_rebuilt(client: &mut Client, longest: Duration) -> Window {
    loop {
        let state = status(client)["replacement"]["state"].as_str().expect("one was begun").to_owned();
        assert_ne!(state, "failed", "the new drive cannot be put in");
        if state == "done" {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    let from = Instant::now();
    while from.elapsed() < longest && status(client)["lanes"][0]["rebuild"]["is_whole"] == false {
        thread::sleep(Duration::from_millis(20));
    }
    Window { from, to: Instant::now() }
}

/// Puts at a rate, or flat out, and deletes behind that, until `watch` comes back with what counts of it.
fn load(server: &Server, run: u32, rate: Option<f64>, watch: impl FnOnce(&mut Client) -> Window) -> Measured {
    let (ended, events) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let puts = scope.spawn(|| put_until(server, run, rate, &ended, &events));
        let deletions = scope.spawn(|| delete_behind(server, run, &ended, &events));
        let window = watch(&mut server.client());
        ended.store(true, Ordering::Relaxed);
        let all = puts.join().expect("all puts are acknowledged");
        // What came last goes too: each load begins alike.
        let deleted = deletions.join().expect("what was put can be deleted");
        delete(&mut server.client(), run, deleted..events.load(Ordering::Relaxed));
        measured(all, window)
    })
}

fn measured(all: Vec<(Instant, f64)>, window: Window) -> Measured {
    let counts = |(due, _): &(Instant, f64)| *due >= window.from && *due < window.to;
    let mut latencies_ms: Vec<f64> = all.into_iter().filter(counts).map(|(_, latency)| latency).collect();
    assert!(!latencies_ms.is_empty(), "it was over before anything was put: store more");
    latencies_ms.sort_by(f64::total_cmp);
    let seconds = (window.to - window.from).as_secs_f64();
    Measured { bytes_per_s: (latencies_ms.len() as u64 * FRAGMENT_BYTES) as f64 / seconds, latencies_ms, seconds }
}

/// When each put was due, and how long after that it was acknowledged, in milliseconds: a writer that must wait is late for all that follow, and
/// that counts.
fn put_until(
    server: &Server,
    run: u32,
    rate: Option<f64>,
    ended: &AtomicBool,
    events: &AtomicU64,
) -> Vec<(Instant, f64)> {
    let mut client = server.client();
    let payload = payload(FRAGMENT_BYTES as usize);
    let gap = rate.map(|rate| FRAGMENT_BYTES as f64 / rate);
    let begin = Instant::now();
    let (mut puts, mut results) = (Vec::new(), Vec::new());
    while !ended.load(Ordering::Relaxed) {
        let number = puts.len() as u64;
        let now = Instant::now();
        let due = gap.map_or(now, |gap| begin + Duration::from_secs_f64(gap * number as f64));
        if due > now {
            client.wait_put_results(due - now, &mut results).expect("the system waits");
            count(&mut results, &mut puts);
            continue;
        }
        puts.push((due, (now - due).as_secs_f64() * 1e3));
        client.put_bytes(id(run, number), SOURCES as u16, &payload).expect("the server takes it");
        if number % 512 == 511 {
            client.take_put_results(&mut results);
            count(&mut results, &mut puts);
        }
        events.store((number + 1).div_ceil(SOURCES), Ordering::Relaxed);
    }
    client.flush().expect("all is answered");
    client.take_put_results(&mut results);
    count(&mut results, &mut puts);
    puts
}

/// Adds what is told of puts to how late they were.
fn count(results: &mut Vec<PutResult>, puts: &mut [(Instant, f64)]) {
    for result in results.drain(..) {
        assert!(result.outcome.is_acknowledged(), "{} came to {}", result.id, result.outcome);
        let number = result.id.event.0 * SOURCES + u64::from(result.id.source.0);
        puts[number as usize].1 += result.latency.as_secs_f64() * 1e3;
    }
}

/// Deletes what was put before the last [`KEPT_EVENTS`]; how many events that were.
fn delete_behind(server: &Server, run: u32, ended: &AtomicBool, events: &AtomicU64) -> u64 {
    let mut client = server.client();
    let mut deleted = 0;
    while !ended.load(Ordering::Relaxed) {
        if deleted + BATCH + KEPT_EVENTS < events.load(Ordering::Relaxed) {
            delete(&mut client, run, deleted..deleted + BATCH);
            deleted += BATCH;
        } else {
            thread::sleep(Duration::from_millis(1));
        }
    }
    deleted
}

fn delete(client: &mut Client, run: u32, events: std::ops::Range<u64>) {
    let events: Vec<EventKey> = events.map(|event| EventKey::new(run, event)).collect();
    for batch in events.chunks(BATCH as usize) {
        for outcome in client.delete(batch).expect("the server answers") {
            assert!(outcome.is_done(), "{outcome}");
        }
    }
}
