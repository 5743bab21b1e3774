//! Puts at full rate into a store that is more or less full: what making room costs, and what writers notice of it.
//!
//! Two loads, each at every occupancy, in a store that is emptied between them: what the machine gives anew is slower at first. In both a tenth of the events,
//! chosen at random, survive.
//! - *survivors*: that much of the room is taken, all but the survivors of it is deleted, in random order, and then it is measured: what is taken is
//!   nine tenths dead, everywhere. New events go the same way soon after they came.
//! - *backlog*: that much of the room is alive and stays so: for each event that comes, one of those that do not survive is deleted, any of them.

mod served;

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use fastrand::Rng;
use forebay_engine::{Admission, LaneStatus, Put, Reply, Token};
use forebay_store::{LaneRunner, StoreConfig};
use forebay_types::{EventKey, FragmentId, PutOutcome, crc32c};
use serde_json::{Value, json};

use crate::engine::{Bench, DATA, PARITY, crash};
use crate::measure::median;

const RUN: u32 = 1;
const FRAGMENT_BYTES: u64 = 10 << 10;
/// Fragments of an event; they are put together, and one answer is waited for.
const SOURCES: u64 = 10;
const EVENT_BYTES: u64 = SOURCES * FRAGMENT_BYTES;
/// One event of so many survives.
const SURVIVES: u64 = 10;
const PERCENTS: [u64; 10] = [10, 20, 30, 40, 50, 60, 70, 80, 90, 95];

/// So large that a measurement takes a second.
const DRIVE_BYTES: u64 = 1792 << 20;
/// Small, so that a small store has as many segments as a large one of large ones.
const SLOT_BYTES: u64 = 2 << 20;

/// So much of the room is written in a measurement, in percent, unless that takes longer than [`TIME_MAX`].
const WRITTEN_PERCENT: u64 = 40;
const TIME_MAX: Duration = Duration::from_secs(8);
/// So many events live for a while before they are deleted, in the first load.
const YOUNG: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Survivors,
    Backlog,
}

/// What one measurement came to.
struct Row {
    percent: u64,
    /// At its beginning: room that was not free, and payload that was alive, in percent of the room.
    taken_percent: f64,
    alive_percent: f64,
    bytes_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// Payload that was copied to make room, and bytes written to drives, for each byte that was put.
    copied: f64,
    media: f64,
    /// The part of the time in which puts were refused.
    refused: f64,
}

/// Of all occupancies in process more rounds take very long.
const ROUNDS_MAX: usize = 5;

/// Both loads at all occupancies, and the first through a server at two of them, each `rounds` times; all occupancies at most [`ROUNDS_MAX`] times.
pub fn occupancy(directory: &Path, rounds: usize) -> Value {
    let served = served::served(directory, rounds);
    let rounds = rounds.min(ROUNDS_MAX);
    let mut result = json!({
        "benchmark": "occupancy",
        "width": format!("{DATA}+{PARITY}"),
        "fragment_bytes": FRAGMENT_BYTES,
        "fragments_of_an_event": SOURCES,
        "survivors_percent": 100 / SURVIVES,
        "rounds": rounds,
    });
    result["served"] = served;
    for (name, load) in [("survivors", Load::Survivors), ("backlog", Load::Backlog)] {
        eprintln!("{name}: occupied %, taken %, alive %, GB/s, p50 ms, p99 ms, copied, on media, refused");
        // All occupancies in each round: a machine that is faster for a while is so for all of them.
        let bench = Bench::with_slots(directory, DRIVE_BYTES, SLOT_BYTES);
        bench.touch_drives();
        let (runner, rest) = bench.open(&config());
        let mut asked = Asked::new(runner);
        let round = |_| PERCENTS.map(|percent| measure(&mut asked, load, percent));
        let all: Vec<[Row; PERCENTS.len()]> = (0..rounds.max(1)).map(round).collect();
        crash(asked.runner, rest);
        let ratios: Vec<f64> = all.iter().map(|round| rate_at(round, 90) / rate_at(round, 20)).collect();
        let ratio = median(ratios.clone());
        eprintln!("{name}: 90 % to 20 %: {ratio:.2}, median of {ratios:.2?}");
        let rows: Vec<Value> = (0..PERCENTS.len()).map(|at| told(&medians(&all, at))).collect();
        result[name] = json!({ "ratio_90_to_20": ratio, "ratios": ratios, "rows": rows });
    }
    result
}

fn rate_at(round: &[Row], percent: u64) -> f64 {
    round.iter().find(|row| row.percent == percent).expect("it is among them").bytes_per_s
}

/// The medians of all rounds at one occupancy.
fn medians(all: &[[Row; PERCENTS.len()]], at: usize) -> Row {
    let percent = PERCENTS[at];
    let of = |value: fn(&Row) -> f64| median(all.iter().map(|round| value(&round[at])).collect());
    let row = Row {
        percent,
        taken_percent: of(|row| row.taken_percent),
        alive_percent: of(|row| row.alive_percent),
        bytes_per_s: of(|row| row.bytes_per_s),
        p50_ms: of(|row| row.p50_ms),
        p99_ms: of(|row| row.p99_ms),
        copied: of(|row| row.copied),
        media: of(|row| row.media),
        refused: of(|row| row.refused),
    };
    let Row { taken_percent, alive_percent, bytes_per_s, p50_ms, p99_ms, copied, media, refused, .. } = row;
    let rate = bytes_per_s / 1e9;
    eprintln!(
        "{percent:>3} {taken_percent:>6.1} {alive_percent:>6.1} {rate:>6.2} {p50_ms:>8.2} {p99_ms:>8.2} {copied:>6.2} {media:>6.2} {refused:>5.2}"
    );
    row
}

fn told(row: &Row) -> Value {
    json!({
        "occupied_percent": row.percent,
        "taken_percent": row.taken_percent,
        "alive_percent": row.alive_percent,
        "payload_bytes_per_s": row.bytes_per_s,
        "acknowledged_p50_ms": row.p50_ms,
        "acknowledged_p99_ms": row.p99_ms,
        "copied_per_payload_byte": row.copied,
        "media_bytes_per_payload_byte": row.media,
        "refused_share_of_time": row.refused,
    })
}

fn config() -> StoreConfig {
    StoreConfig {
        drive_timeout_ms: Some(60_000),
        scrub_period_s: 0,
        // What is copied comes from the drives.
        cache_bytes: 16 << 20,
        ..StoreConfig::default()
    }
}

fn measure(asked: &mut Asked, load: Load, percent: u64) -> Row {
    asked.delete_all();
    let capacity = asked.status().capacity_bytes;
    asked.fill(capacity * percent / 100);
    asked.until_answered();
    if load == Load::Survivors {
        asked.delete_down_to(0);
    }
    asked.until_answered();
    asked.until_deleted();
    let before = asked.status();
    let doomed_max = if load == Load::Survivors { YOUNG } else { asked.doomed.len() };
    let survivors = asked.survivors.len();
    asked.begin();
    let begin = Instant::now();
    let mut written = 0;
    while written < capacity * WRITTEN_PERCENT / 100 && begin.elapsed() < TIME_MAX {
        asked.put_event(begin + TIME_MAX);
        written += EVENT_BYTES;
        // What survives is more of what is alive: as much less of the others is, so that all together stays.
        let gone = if load == Load::Survivors { 0 } else { asked.survivors.len() - survivors };
        asked.delete_down_to(doomed_max.saturating_sub(gone));
    }
    asked.until_answered();
    let (seconds, after) = (begin.elapsed().as_secs_f64(), asked.status());
    asked.row(percent, (&before, &after), seconds)
}

/// A lane and what it was asked.
struct Asked {
    runner: LaneRunner,
    random: Rng,
    payload: Vec<u8>,
    crc: u32,
    next_event: u64,
    /// Stored events that do not survive, and are not deleted yet.
    doomed: Vec<u64>,
    /// Those that do.
    survivors: Vec<u64>,
    /// Since the measurement began: events that were stored, how long each took, and how long puts were refused.
    stored: u64,
    latencies: Vec<f64>,
    refused: Duration,
    /// Fragments of an event that are not acknowledged, and since when it was put.
    waiting: HashMap<u64, (u64, Instant)>,
}

impl Asked {
    fn new(runner: LaneRunner) -> Asked {
        let payload: Vec<u8> = (0..FRAGMENT_BYTES).map(|i| (i * 131 + i / 251) as u8).collect();
        let crc = crc32c(&payload);
        Asked {
            runner,
            random: Rng::with_seed(1),
            payload,
            crc,
            next_event: 0,
            doomed: Vec::new(),
            survivors: Vec::new(),
            stored: 0,
            latencies: Vec::new(),
            refused: Duration::ZERO,
            waiting: HashMap::new(),
        }
    }

    fn status(&mut self) -> LaneStatus {
        self.runner.lane().status()
    }

    /// Puts events until so much payload is there, or no more fits.
    fn fill(&mut self, bytes: u64) {
        for _ in 0..bytes / EVENT_BYTES {
            if !self.put_event(Instant::now()) {
                return;
            }
        }
    }

    /// What was counted so far does not belong to the measurement.
    fn begin(&mut self) {
        (self.stored, self.refused) = (0, Duration::ZERO);
        self.latencies.clear();
    }

    /// Puts the next event; refused fragments are put again until `give_up`. Whether all of it was taken.
    fn put_event(&mut self, give_up: Instant) -> bool {
        let event = self.next_event;
        self.next_event += 1;
        self.waiting.insert(event, (SOURCES, Instant::now()));
        for source in 0..SOURCES {
            let id = FragmentId::new(RUN, event, source as u32);
            let put = Put { id, expected: SOURCES as u16, crc: self.crc };
            loop {
                match self.runner.lane().put(Token(event), &put, &self.payload) {
                    Admission::Pending => break,
                    Admission::Busy => self.wait(),
                    Admission::Done(PutOutcome::NoSpace) => {
                        let begin = Instant::now();
                        if begin >= give_up {
                            self.waiting.remove(&event);
                            self.doomed.push(event);
                            return false;
                        }
                        self.wait();
                        self.refused += begin.elapsed();
                    }
                    Admission::Done(outcome) => panic!("{id} came to {outcome:?}"),
                }
            }
        }
        if event % 16 == 15 {
            self.runner.turn();
            self.take_replies();
        }
        true
    }

    /// Deletes events that do not survive, any of them, until so many are left.
    fn delete_down_to(&mut self, left: usize) {
        while self.doomed.len() > left {
            let at = self.random.u64(..self.doomed.len() as u64) as usize;
            let event = self.doomed.swap_remove(at);
            while let Admission::Busy = self.runner.lane().delete(Token::NONE, EventKey::new(RUN, event)) {
                self.wait();
            }
        }
    }

    /// Empties the store.
    fn delete_all(&mut self) {
        self.doomed.append(&mut self.survivors);
        self.delete_down_to(0);
        self.until_deleted();
        // What was written last lies in a segment that is not closed yet.
        while self.status().free_bytes * 10 < self.status().capacity_bytes * 9 {
            self.wait();
        }
    }

    fn until_answered(&mut self) {
        while !self.waiting.is_empty() {
            self.wait();
        }
    }

    /// Until all deletions count: they do when they are durable.
    fn until_deleted(&mut self) {
        let alive = (self.survivors.len() + self.doomed.len()) as u64;
        while self.status().events > alive {
            self.wait();
        }
    }

    fn wait(&mut self) {
        let most = Duration::from_millis(1);
        let wait = self.runner.next_wakeup().map_or(most, |wait| wait.min(most));
        self.runner.wait(wait);
        self.take_replies();
    }

    fn take_replies(&mut self) {
        while let Some(reply) = self.runner.lane().next_reply() {
            match reply {
                Reply::Stored { token, records } => self.stored(token.0, u64::from(records)),
                Reply::Decided { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn stored(&mut self, event: u64, records: u64) {
        // Of one that was given up nobody waits for the rest.
        let Some((left, since)) = self.waiting.get_mut(&event) else { return };
        *left -= records;
        if *left == 0 {
            self.latencies.push(since.elapsed().as_secs_f64() * 1e3);
            self.stored += 1;
            self.waiting.remove(&event);
            let survives = self.random.u64(..SURVIVES) == 0;
            if survives { &mut self.survivors } else { &mut self.doomed }.push(event);
        }
    }

    fn row(&mut self, percent: u64, (before, after): (&LaneStatus, &LaneStatus), seconds: f64) -> Row {
        self.latencies.sort_by(f64::total_cmp);
        let part = |per_mille: usize| {
            let at = self.latencies.len() * per_mille / 1000;
            self.latencies.get(at.min(self.latencies.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
        };
        let bytes = (self.stored * EVENT_BYTES) as f64;
        let share = |part: u64, all: u64| part as f64 * 100.0 / all.max(1) as f64;
        let media = after.counters.media_bytes_written - before.counters.media_bytes_written;
        Row {
            percent,
            taken_percent: 100.0 - share(before.free_bytes, before.capacity_bytes),
            alive_percent: share(before.fragment_bytes, before.capacity_bytes),
            bytes_per_s: bytes / seconds,
            p50_ms: part(500),
            p99_ms: part(990),
            copied: (after.compaction.bytes_moved - before.compaction.bytes_moved) as f64 / bytes,
            media: media as f64 / bytes,
            refused: self.refused.as_secs_f64() / seconds,
        }
    }
}
