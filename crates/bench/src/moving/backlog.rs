//! A destination that is away until the source is full to a high mark, and comes back: what waits then, and how fast and in which order it goes.

mod curve;
mod source;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Child;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::program::Mover;
use super::xrootd::XRootDServer;
pub use curve::drawn;
use source::{DirectoryFiles, Files, StoreFiles, number_of};

/// Bytes of a file of the readout.
const FILE_BYTES: u64 = 8_000_000;
/// What waits at the first start, for the rate before.
const PREFILLED_BYTES: u64 = 1_000_000_000;
const SAMPLED_EVERY: Duration = Duration::from_millis(100);
/// So many of the samples are kept.
const KEPT_EVERY: usize = 10;
/// The time between what is over and what is next, to be seen in the curve.
const REST: Duration = Duration::from_secs(5);
const STREAMS: usize = 4;
/// Files that may have gone before an older one: those that streams were at when the server fell, and those they are at.
const OVERTAKEN_MAX: usize = 2 * STREAMS;

/// How the readout writes, and how long the destination is away.
#[derive(Clone, Copy, Debug)]
pub struct Backlog {
    /// What the readout writes a second.
    pub bytes_per_s: u64,
    /// The destination comes back when so much waits.
    pub high_mark_bytes: u64,
}

/// What was there at a moment.
#[derive(Clone, Copy, Debug)]
struct Sample {
    seconds: f64,
    waiting_bytes: u64,
    released_bytes: u64,
    oldest_seconds: f64,
}

/// Files of a directory, and sealed files of a store.
pub fn backlog(directory: &Path, options: Backlog) -> Value {
    let from_directory = one(directory, "directory", DirectoryFiles::make(directory), options);
    let from_store = one(directory, "store", StoreFiles::make(directory), options);
    json!({
        "benchmark": "backlog",
        "readout_bytes_per_s": options.bytes_per_s,
        "file_bytes": FILE_BYTES,
        "high_mark_bytes": options.high_mark_bytes,
        "streams": STREAMS,
        "recheck_after_seconds": 1,
        "cases": [from_directory, from_store],
    })
}

/// Written by the readout, and when.
#[derive(Default)]
struct Written {
    at: Mutex<Vec<Instant>>,
    stop: AtomicBool,
}

impl Written {
    fn write(&self, files: &dyn Files, bytes: &[u8]) {
        let mut at = self.at.lock().expect("nobody panics with it");
        files.write(at.len() as u64, bytes);
        at.push(Instant::now());
    }
}

struct World<'a> {
    files: &'a dyn Files,
    written: &'a Written,
    begin: Instant,
    samples: Vec<Sample>,
    mover: Child,
}

impl World<'_> {
    /// Looks again and again, until it is so.
    fn sample_until(&mut self, is_so: impl Fn(&Sample) -> bool) {
        loop {
            assert!(self.mover.try_wait().expect("it can be asked").is_none(), "the mover ended");
            let there = self.files.there();
            let at = self.written.at.lock().expect("nobody panics with it");
            let waiting_bytes = there.len() as u64 * FILE_BYTES;
            let oldest = there.first().and_then(|number| at.get(*number as usize));
            let sample = Sample {
                seconds: self.begin.elapsed().as_secs_f64(),
                waiting_bytes,
                released_bytes: (at.len() as u64 * FILE_BYTES).saturating_sub(waiting_bytes),
                oldest_seconds: oldest.map_or(0.0, |at| at.elapsed().as_secs_f64()),
            };
            drop(at);
            self.samples.push(sample);
            if is_so(&sample) {
                return;
            }
            std::thread::sleep(SAMPLED_EVERY);
        }
    }

    fn rest(&mut self) {
        let until = self.begin.elapsed().as_secs_f64() + REST.as_secs_f64();
        self.sample_until(|sample| sample.seconds >= until);
    }

    /// Released a second while what waits goes from nine tenths of the most to two.
    fn drained_bytes_per_s(&self, from: usize) -> f64 {
        let samples = &self.samples[from..];
        let most = samples.iter().map(|sample| sample.waiting_bytes).max().unwrap_or(0);
        let peak = samples.iter().rposition(|sample| sample.waiting_bytes >= most / 10 * 9).unwrap_or(0);
        let end = samples[peak..].iter().find(|sample| sample.waiting_bytes <= most / 10 * 2);
        let (peak, end) = (samples[peak], end.expect("it was waited for"));
        (end.released_bytes - peak.released_bytes) as f64 / (end.seconds - peak.seconds)
    }
}

fn one(directory: &Path, name: &str, files: impl Files, options: Backlog) -> Value {
    let mut server = XRootDServer::start().expect("needs xrootd-server: `make deps` installs it");
    let at = tempfile::TempDir::new_in(directory).expect("a directory can be made");
    let (written, bytes) = (Written::default(), super::noise(1, FILE_BYTES as usize));
    (0..PREFILLED_BYTES / FILE_BYTES).for_each(|_| written.write(&files, &bytes));
    let more = ["--settle", "0", "--recheck-after", "1", "--streams", &STREAMS.to_string()].map(str::to_owned);
    let mover = Mover {
        directory: at.path(),
        from: files.from(),
        to: server.address("raw"),
        options: files.options().into_iter().chain(more).collect(),
        environment: Vec::new(),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let every = Duration::from_secs_f64(FILE_BYTES as f64 / options.bytes_per_s as f64);
            let mut due = Instant::now();
            while !written.stop.load(Relaxed) {
                written.write(&files, &bytes);
                due += every;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        });
        let (child, begin) = (mover.start(), Instant::now());
        let mut world = World { files: &files, written: &written, begin, samples: Vec::new(), mover: child };
        world.sample_until(|sample| sample.waiting_bytes <= PREFILLED_BYTES / 10 * 2);
        let before = world.drained_bytes_per_s(0);
        world.rest();
        let away = world.begin.elapsed().as_secs_f64();
        server.kill();
        world.sample_until(|sample| sample.waiting_bytes >= options.high_mark_bytes);
        server.begin();
        let (back, back_ms, from) = (world.begin.elapsed().as_secs_f64(), unix_ms(), world.samples.len());
        world.sample_until(|sample| sample.waiting_bytes <= options.high_mark_bytes / 10 * 2);
        let after = world.drained_bytes_per_s(from);
        world.rest();
        written.stop.store(true, Relaxed);
        world.mover.kill().expect("ours to kill");
        world.mover.wait().expect("it ends");
        let (first_ms, overtaken) = order_of(&mover.audit(), back_ms);
        assert!(overtaken <= OVERTAKEN_MAX, "{overtaken} newer files went before an older one");
        let row = json!({
            "from": name,
            "away_seconds": back - away,
            "waiting_bytes_most": world.samples.iter().map(|sample| sample.waiting_bytes).max(),
            "oldest_seconds_most": world.samples.iter().map(|sample| sample.oldest_seconds).fold(0.0, f64::max),
            "from_back_to_first_byte_seconds": first_ms as f64 / 1e3,
            "drained_before_bytes_per_s": before,
            "drained_after_bytes_per_s": after,
            "after_to_before": after / before,
            "sent_before_an_older_one_most": overtaken,
        });
        eprintln!("backlog: {row}");
        let mut kept = row;
        kept["away"] = json!([away, back]);
        kept["samples"] = samples(&world.samples);
        kept
    })
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is right").as_millis() as u64
}

/// How long after this moment sending began, and how many files at most began before one that is older.
fn order_of(log: &[Value], since_ms: u64) -> (u64, usize) {
    let mut first: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
    for line in log {
        let at_ms = line["unix_ms"].as_u64().expect("a time");
        if line["after"] == "sending" && at_ms >= since_ms {
            let number = number_of(line["name"].as_str().expect("a name")).expect("ours");
            let order = first.len();
            first.entry(number).or_insert((at_ms, order));
        }
    }
    let begun = first.values().map(|(at_ms, _)| *at_ms).min().expect("something was sent");
    // What is newer, and was sent before.
    let orders: Vec<usize> = first.values().map(|(_, order)| *order).collect();
    let overtaken = |at: usize| orders[at + 1..].iter().filter(|later| **later < orders[at]).count();
    (begun - since_ms, (0..orders.len()).map(overtaken).max().unwrap_or(0))
}

/// Seconds, bytes that wait, bytes a second that were released since the last one, seconds of the oldest.
fn samples(all: &[Sample]) -> Value {
    let kept: Vec<&Sample> = all.iter().step_by(KEPT_EVERY).collect();
    let row = |pair: &[&Sample]| {
        let (before, now) = (pair[0], pair[1]);
        let rate = now.released_bytes.saturating_sub(before.released_bytes) as f64 / (now.seconds - before.seconds);
        json!([(now.seconds * 10.0).round() / 10.0, now.waiting_bytes, rate as u64, now.oldest_seconds.round()])
    };
    Value::Array(kept.windows(2).map(row).collect())
}
