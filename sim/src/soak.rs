//! Seeds on all processors, their totals in a file that the next run goes on with.
#![expect(
    clippy::disallowed_methods,
    reason = "this drives: it has threads, files and a clock, and what is played knows nothing of them"
)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use forebay_sim::{Answers, Fault, Play, Totals, try_play};
use serde_json::{Map, Value, json};

/// The file is written so often.
const SAVE_EVERY: Duration = Duration::from_secs(10);

/// Of so many seeds one is played in the second mode.
const BEYOND_EVERY: u64 = 5;

/// Of so many seeds in one clients write files; it is never one of the second mode.
const FILES_EVERY: u64 = 5;
const FILES_FROM: u64 = 3;

/// Of so many seeds in one somebody looks on; it is one of neither.
const SUBSCRIBERS_EVERY: u64 = 5;
const SUBSCRIBERS_FROM: u64 = 2;

/// Of so many seeds in one clients append and cut with much on its way at once; it is one of none of these.
const APPENDS_EVERY: u64 = 5;
const APPENDS_FROM: u64 = 4;

/// Of so many seeds in one clients fill lanes; it may be one of any of these but the first.
const FULL_EVERY: u64 = 7;
const FULL_FROM: u64 = 1;

/// Of so many seeds in one clients control runs; it may be one of any of these but the first.
const RUNS_EVERY: u64 = 6;
const RUNS_FROM: u64 = 2;

/// Of so many seeds in one the store stands on a pool; it may be one of any of these but the first.
const POOL_EVERY: u64 = 11;
const POOL_FROM: u64 = 5;

/// How a seed of a soak is played.
fn play_of(seed: u64, options: &Play) -> Play {
    let beyond = options.beyond || seed.is_multiple_of(BEYOND_EVERY);
    let files = options.files || seed % FILES_EVERY == FILES_FROM;
    let subscribers = options.subscribers || seed % SUBSCRIBERS_EVERY == SUBSCRIBERS_FROM;
    let appends = options.appends || seed % APPENDS_EVERY == APPENDS_FROM;
    let full = options.full || seed % FULL_EVERY == FULL_FROM;
    let runs = options.runs || seed % RUNS_EVERY == RUNS_FROM;
    let pool = options.pool || seed % POOL_EVERY == POOL_FROM;
    let (files, appends, subscribers) = (files && !beyond, appends && !beyond, subscribers && !beyond);
    let (full, runs, pool) = (full && !beyond, runs && !beyond, pool && !beyond);
    Play { seed, beyond, files, appends, subscribers, full, runs, pool, ..options.clone() }
}

/// Seeds that are known to fail, each with what is known of it.
const OPEN_FINDINGS: &str = include_str!("../open-findings.txt");

/// Failures that the file lists.
const FAILURES_MAX: usize = 200;

/// What was played so far.
#[derive(Default)]
struct Record {
    /// All seeds below were played.
    next_seed: u64,
    /// Of those above, these were too.
    beyond: BTreeSet<u64>,
    seeds: u64,
    totals: Totals,
    failed: Vec<Value>,
}

/// Plays seeds until the time is over, or somebody interrupts.
pub(crate) fn soak(file: &Path, seconds: Option<u64>, threads: Option<usize>, options: &Play) -> ExitCode {
    let mut record = match Record::load(file, options.seed) {
        Ok(record) => record,
        Err(what) => {
            eprintln!("{}: {what}; nothing was played", file.display());
            return ExitCode::FAILURE;
        }
    };
    std::panic::set_hook(Box::new(|_| {}));
    let over = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&over)).expect("signals can be taken");
    }
    let threads = threads.or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1);
    let (first, failed_before, begin) = (record.seeds, record.failed.len(), Instant::now());
    let next = AtomicU64::new(record.next_seed);
    let done_before = record.beyond.clone();
    let mut saved = Instant::now();
    std::thread::scope(|scope| {
        let (results, received) = channel();
        for _ in 0..threads {
            let (results, next, over, done) = (results.clone(), &next, &over, &done_before);
            scope.spawn(move || play_seeds(next, done, over, options, &results));
        }
        drop(results);
        for (play, result) in received {
            record.take(&play, result);
            if seconds.is_some_and(|seconds| begin.elapsed().as_secs() >= seconds) {
                over.store(true, Ordering::Relaxed);
            }
            if saved.elapsed() >= SAVE_EVERY {
                record.save(file);
                saved = Instant::now();
            }
        }
    });
    record.save(file);
    println!("{} seeds in {} s on {threads} threads", record.seeds - first, begin.elapsed().as_secs());
    record.tell(file, record.failed.len() - failed_before)
}

fn play_seeds(
    next: &AtomicU64,
    done: &BTreeSet<u64>,
    over: &AtomicBool,
    options: &Play,
    results: &Sender<(Play, Result<Totals, String>)>,
) {
    while !over.load(Ordering::Relaxed) {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if done.contains(&seed) {
            continue;
        }
        let play = play_of(seed, options);
        let result = try_play(&play, None);
        results.send((play, result)).expect("results are received to the end");
    }
}

/// What is known of a seed that fails, played as it is.
fn open_finding(play: &Play) -> Option<&'static str> {
    let known = OPEN_FINDINGS.lines().filter_map(|line| line.split_once(" | "));
    let is_as_it_is = *play == play_of(play.seed, &Play::default());
    let mut of_it = known.filter(|(seed, _)| is_as_it_is && seed.parse() == Ok(play.seed));
    of_it.next().map(|(_, finding)| finding)
}

impl Record {
    fn take(&mut self, play: &Play, result: Result<Totals, String>) {
        self.seeds += 1;
        self.beyond.insert(play.seed);
        while self.beyond.remove(&self.next_seed) {
            self.next_seed += 1;
        }
        match result {
            Ok(totals) => self.totals.add(&totals),
            Err(what) => {
                super::tell_failure(play, &what);
                if let Some(finding) = open_finding(play) {
                    println!("seed {} is known to fail: {finding}", play.seed);
                } else if self.failed.len() < FAILURES_MAX {
                    self.failed.push(json!({ "play": play.to_string(), "what": what }));
                }
            }
        }
    }

    /// Says what there is by now; fails when a seed failed, or a fault never happened or was never met.
    fn tell(&self, file: &Path, failed_now: usize) -> ExitCode {
        super::tell_totals(self.seeds, self.failed.len() as u64, &self.totals);
        for failed in &self.failed {
            println!("failed: forebay-sim {} --trace: {}", text(failed, "play"), text(failed, "what"));
        }
        let missing = self.totals.faults.missing();
        for fault in &missing {
            println!("{fault} never happened, or was never met");
        }
        println!("the totals are in {}", file.display());
        ExitCode::from(u8::from(failed_now > 0 || !missing.is_empty()))
    }

    /// What the file says; when there is none yet, nothing was played, and the first seed is `seed`.
    fn load(file: &Path, seed: u64) -> Result<Record, String> {
        let bytes = match std::fs::read(file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Record { next_seed: seed, ..Record::default() });
            }
            Err(error) => return Err(error.to_string()),
        };
        let value: Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        let mut record = Record {
            next_seed: number(&value, "next_seed"),
            seeds: number(&value, "seeds"),
            failed: value["failed"].as_array().cloned().unwrap_or_default(),
            ..Record::default()
        };
        record.beyond.extend(value["beyond"].as_array().into_iter().flatten().filter_map(Value::as_u64));
        let totals = &mut record.totals;
        (totals.media_operations, totals.starts) = (number(&value, "media_operations"), number(&value, "starts"));
        totals.seconds = number(&value, "virtual_seconds");
        for (sum, of_file) in totals.pressed.iter_mut().zip(value["pressed"].as_array().into_iter().flatten()) {
            *sum = of_file.as_u64().unwrap_or(0);
        }
        let answers = &value["answers"];
        totals.answers = Answers {
            puts: number(answers, "puts"),
            puts_durable: number(answers, "puts_durable"),
            puts_late: number(answers, "puts_late"),
            reads: number(answers, "reads"),
            reads_unavailable: number(answers, "reads_unavailable"),
            decisions: number(answers, "decisions"),
            releases: number(answers, "releases"),
            leases: number(answers, "leases"),
            traces: number(answers, "traces"),
            files: number(answers, "files"),
            told: number(answers, "told"),
        };
        for fault in Fault::ALL {
            let counts = &value["faults"][fault.option()];
            totals.faults.set(*fault, number(counts, "fired"), number(counts, "met"));
        }
        Ok(record)
    }

    /// Writes the file anew; whatever ends this, either the old one or the new one is there.
    fn save(&self, file: &Path) {
        let answers = self.totals.answers;
        let mut faults = Map::new();
        for fault in Fault::ALL {
            let (fired, met) = (self.totals.faults.fired(*fault), self.totals.faults.met(*fault));
            faults.insert(fault.option(), json!({ "fired": fired, "met": met }));
        }
        let value = json!({
            "next_seed": self.next_seed,
            "beyond": self.beyond,
            "seeds": self.seeds,
            "operations": answers.operations(),
            "media_operations": self.totals.media_operations,
            "starts": self.totals.starts,
            "virtual_seconds": self.totals.seconds,
            "pressed": self.totals.pressed,
            "answers": {
                "puts": answers.puts,
                "puts_durable": answers.puts_durable,
                "puts_late": answers.puts_late,
                "reads": answers.reads,
                "reads_unavailable": answers.reads_unavailable,
                "decisions": answers.decisions,
                "releases": answers.releases,
                "leases": answers.leases,
                "traces": answers.traces,
                "files": answers.files,
                "told": answers.told,
            },
            "faults": faults,
            "failed": self.failed,
        });
        let mut new = file.as_os_str().to_owned();
        new.push(".new");
        let written = std::fs::write(&new, format!("{value:#}\n")).and_then(|()| std::fs::rename(&new, file));
        if let Err(error) = written {
            eprintln!("{}: {error}; the totals of this run are not kept", file.display());
        }
    }
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or(0)
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}
