//! The readout: events of files or of a generator become fragments that several writers put.
//!
//! - **Inputs** are written one after the other, as runs follow each other. With a number of events given,
//!   each input gets an equal share of them: its events are multiplied, or cut off, to fill it.
//! - **Runs**: an input keeps its run number when it is free, that is neither used by an earlier input nor
//!   known to the server; otherwise it gets the next free one. With `keep_runs` it keeps it in any case, and
//!   writing the same again changes nothing. Two readouts that start at the same moment may choose alike.
//! - **Numbers**: the first pass over an input keeps the numbers of its events, as far as they are not
//!   taken; every other event gets the next number above the largest one used in its run. They are
//!   rewritten in the events' bytes where the format has them.
//! - **Writers**: a source, and the event's frame as one more, belongs to the writer that had the fewest bytes
//!   when the source was first seen, the large sources of an event first. Each writer has a client of its own.
//! - **Rate**: event number i is due at i / rate, whatever became of the ones before it; late ones follow
//!   at once. Memory is bounded: when the store pushes back, writers wait, then the producers do.
//! - **Damage**: the good events before a damaged one are written; the input is not multiplied then.

mod assignment;
mod input;
mod numbers;
mod producer;
mod sequence;
mod writer;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use forebay_client::{Class, Client, ClientConfig};
use forebay_rawdata::{Format, InputError};
use forebay_types::{PutOutcome, RunId};

use crate::histogram::Histogram;
use crate::ledger::{HashLedger, LedgerError, LedgerFile};
use crate::reports::Reports;
use crate::store::{ReadoutStore, StoreError};

use assignment::Assignment;
pub use input::{Generated, Input};
use numbers::Runs;
use producer::Producer;
use sequence::Sequence;
use writer::Writer;

/// The time between two notices of what is waited for.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// Batches that wait for a writer.
const BATCHES_WAITING: usize = 4;

/// What the readout is told.
#[derive(Clone, Debug)]
pub struct ReadoutConfig {
    /// The server, `HOST:PORT`.
    pub address: String,
    /// What is written, one after the other.
    pub inputs: Vec<Input>,
    /// How many events are written; `None`: every input once.
    pub events: Option<u64>,
    /// How many writers, each with a connection (default 4).
    pub writers: usize,
    /// How many threads read, renumber, hash and split events (default 1).
    pub producers: usize,
    /// Events per second; `None`: flat out.
    pub rate: Option<f64>,
    /// Keep run numbers that the server knows already.
    pub keep_runs: bool,
    /// A file to which the hash of every event is added.
    pub ledger_path: Option<PathBuf>,
    /// A ledger in memory for the same.
    pub ledger: Option<Arc<HashLedger>>,
    /// Input that is kept in memory instead of being read again for each pass, in bytes (default 256 MiB).
    pub cache_bytes: u64,
    /// How long a fragment is tried before it is given up, and with it the readout (default: for ever).
    pub deadline: Option<Duration>,
}

impl ReadoutConfig {
    /// The defaults.
    pub fn new(address: impl Into<String>, inputs: Vec<Input>) -> Self {
        ReadoutConfig {
            address: address.into(),
            inputs,
            events: None,
            writers: 4,
            producers: 1,
            rate: None,
            keep_runs: false,
            ledger_path: None,
            ledger: None,
            cache_bytes: 256 << 20,
            deadline: None,
        }
    }
}

/// What a running readout tells. The numbers only grow.
#[derive(Debug, Default)]
pub struct ReadoutProgress {
    /// Events whose fragments went to the writers.
    pub events_started: AtomicU64,
    /// Events that cannot be written: no fragments can be made of them, or one that the store does not take.
    pub events_refused: AtomicU64,
    /// Fragments put, each id once.
    pub fragments_written: AtomicU64,
    /// Bytes of these.
    pub bytes_written: AtomicU64,
    /// Fragments that the store answers for; those that came late included.
    pub fragments_acknowledged: AtomicU64,
    /// Of these, dropped because their event was decided before.
    pub late: AtomicU64,
    /// Fragments whose id holds other content.
    pub conflicts: AtomicU64,
    /// Fragments that are not stored, conflicts included.
    pub errors: AtomicU64,
    /// Of these, those that the store will not take later either.
    refused: AtomicU64,
    /// Fragments without an answer when it was stopped.
    pub abandoned: AtomicU64,
    /// From put to acknowledgement.
    pub latency: Histogram,
    /// The runs that were written so far.
    runs: Mutex<Vec<RunId>>,
    /// What went wrong, with ids.
    pub reports: Reports,
}

impl ReadoutProgress {
    /// Fragments that were put and that nothing became of yet.
    pub fn fragments_waiting(&self) -> u64 {
        let settled = [&self.fragments_acknowledged, &self.errors, &self.abandoned].map(|count| count.load(Relaxed));
        self.fragments_written.load(Relaxed).saturating_sub(settled.iter().sum())
    }

    /// The runs that were written so far, in their order.
    pub fn runs(&self) -> Vec<RunId> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add_run(&self, run: RunId) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if !runs.contains(&run) {
            runs.push(run);
        }
    }
}

/// Why a readout did not write everything. What was written is counted in its [`ReadoutProgress`].
#[derive(Debug, thiserror::Error)]
pub enum ReadoutError {
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The ledger file cannot be written.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// An option that leaves nothing to be done, or far too much.
    #[error("{option} is {found}; nothing was written. Give {expected}")]
    Option {
        /// The option.
        option: &'static str,
        /// What was given.
        found: u64,
        /// What can be given.
        expected: &'static str,
    },
    /// There is nothing to write.
    #[error("no input is given; nothing was written. Name a file, or ask for generated events")]
    NoInput,
    /// A rate that is none.
    #[error("{rate} is no rate; nothing was written. Give events per second above 0")]
    Rate {
        /// What was given.
        rate: f64,
    },
    /// All run numbers are taken.
    #[error("all run numbers that a {format} event can hold are taken; the events of run {run} were not written")]
    NoFreeRun {
        /// The format.
        format: Format,
        /// The run of the input.
        run: RunId,
    },
    /// The largest event number of a run is used.
    #[error("run {run} has no event numbers left above the largest one; writing ended there")]
    NoFreeEvent {
        /// The run.
        run: RunId,
    },
    /// An input is damaged.
    #[error("{input}: {source}{}", also(.others))]
    Damaged {
        /// Which: the first that is damaged, else the first that could not be opened.
        input: String,
        /// Where, and how.
        source: InputError,
        /// The others.
        others: Vec<String>,
    },
    /// Some fragments or events are not stored.
    #[error(
        "{fragments} fragments and {events} events are not known to be stored; the first: {first}. What was acknowledged is stored. {}",
        what_to_do(*.retryable)
    )]
    NotStored {
        /// All of them may be stored later, without anything being repaired.
        retryable: bool,
        /// Fragments.
        fragments: u64,
        /// Events of which no fragment was put.
        events: u64,
        /// The first of them.
        first: String,
    },
}

fn also(others: &[String]) -> String {
    if others.is_empty() {
        String::new()
    } else {
        format!(" (others cannot be read whole either: {})", others.join(", "))
    }
}

const fn what_to_do(retryable: bool) -> &'static str {
    if retryable {
        "When the store takes fragments again (forebay status), write the same again with --keep-runs, which stores nothing twice"
    } else {
        "See what the reason asks for, then write these again"
    }
}

impl ReadoutError {
    /// Whether the same may succeed later without anything being repaired: exit code 3 instead of 1.
    pub fn is_retryable(&self) -> bool {
        match self {
            ReadoutError::Store(error) => error.retryable,
            ReadoutError::NotStored { retryable, .. } => *retryable,
            ReadoutError::Ledger(error) => error.is_retryable(),
            _ => false,
        }
    }

    /// Whether something must be asked for in another way, and no data is damaged: exit code 2 instead of 1.
    pub fn is_usage(&self) -> bool {
        match self {
            ReadoutError::Store(_) | ReadoutError::NotStored { .. } => false,
            ReadoutError::Damaged { source, .. } => source.is_not_opened(),
            ReadoutError::Ledger(error) => !error.is_retryable(),
            ReadoutError::Option { .. } | ReadoutError::NoInput | ReadoutError::Rate { .. } => true,
            ReadoutError::NoFreeRun { .. } | ReadoutError::NoFreeEvent { .. } => true,
        }
    }
}

/// What the threads share.
struct Shared<'a> {
    config: &'a ReadoutConfig,
    progress: &'a ReadoutProgress,
    stop: &'a AtomicBool,
    /// A thread cannot go on.
    failed: AtomicBool,
    /// A fragment was tried until its deadline.
    given_up: AtomicBool,
    /// When it was last told what is waited for.
    told: Mutex<Instant>,
    failure: Mutex<Option<ReadoutError>>,
    sequence: Mutex<Sequence>,
    assignment: Mutex<Assignment>,
    ledger: Mutex<Option<LedgerFile>>,
    fragment_bytes_max: u64,
    start: Instant,
}

impl Shared<'_> {
    fn is_over(&self) -> bool {
        self.stop.load(Relaxed) || self.failed.load(Relaxed) || self.given_up.load(Relaxed)
    }

    fn tell_what_is_waited_for(&self, last: Option<PutOutcome>) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.elapsed() < TELL_EVERY {
            return;
        }
        *told = Instant::now();
        let waiting = self.progress.fragments_waiting();
        match last {
            Some(PutOutcome::NoSpace) => tracing::warn!(
                "the store is full: retrying, {waiting} fragments are waiting. Decide, ship or delete events to make room"
            ),
            Some(last) => {
                tracing::warn!("the store takes nothing now ({last}): retrying, {waiting} fragments are waiting")
            }
            None => tracing::warn!("the store gives no answer: retrying, {waiting} fragments are waiting"),
        }
    }

    fn abandon(&self, fragments: u64, last: Option<PutOutcome>) {
        self.progress.abandoned.fetch_add(fragments, Relaxed);
        self.progress.reports.add(|| {
            let said = last.map_or_else(
                || "the store had given no answer".to_owned(),
                |last| format!("the store last said: {last}"),
            );
            format!("{fragments} fragments were under way when the readout was stopped; {said}")
        });
    }

    fn fail(&self, error: ReadoutError) {
        tracing::debug!("the readout ends: {error}");
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.failed.store(true, Relaxed);
    }
}

/// Writes until everything is written, or `stop` is set.
///
/// While a store is full or silent, what is waited for is logged every few seconds. After `stop`, what is
/// under way is waited for a second at most.
///
/// # Errors
/// See [`ReadoutError`].
pub fn run(config: &ReadoutConfig, stop: &AtomicBool, progress: &ReadoutProgress) -> Result<(), ReadoutError> {
    run_with(config, stop, progress, |writer| {
        let client = ClientConfig::new(&config.address, format!("readout {writer}")).class(Class::Readout);
        let seed = client.seed.wrapping_add(writer as u64);
        Ok(Client::connect(ClientConfig { deadline: config.deadline, seed, ..client })?)
    })
}

/// As [`run`], on stores that `connect` gives: one for each writer, and one to ask for runs before.
///
/// # Errors
/// As [`run`].
pub fn run_with<S: ReadoutStore>(
    config: &ReadoutConfig,
    stop: &AtomicBool,
    progress: &ReadoutProgress,
    connect: impl Fn(usize) -> Result<S, StoreError> + Sync,
) -> Result<(), ReadoutError> {
    check(config)?;
    let writers = config.writers;
    let mut store = connect(0)?;
    let known = store.runs()?.into_iter().map(|run| run.run).collect();
    let fragment_bytes_max = store.fragment_bytes_max();
    drop(store);
    let runs = Runs::new(known, config.keep_runs);
    let shared = Shared {
        config,
        progress,
        stop,
        failed: AtomicBool::new(false),
        given_up: AtomicBool::new(false),
        told: Mutex::new(Instant::now()),
        failure: Mutex::new(None),
        sequence: Mutex::new(Sequence::new(config, runs)),
        assignment: Mutex::new(Assignment::new(writers)),
        ledger: Mutex::new(config.ledger_path.as_deref().map(LedgerFile::open).transpose()?),
        fragment_bytes_max,
        start: Instant::now(),
    };
    thread::scope(|scope| {
        let mut senders = Vec::new();
        for writer in 0..writers {
            let (sender, receiver) = sync_channel(BATCHES_WAITING);
            senders.push(sender);
            let (shared, connect) = (&shared, &connect);
            scope.spawn(move || match connect(writer) {
                Ok(store) => Writer::new(shared, store).run(&receiver),
                Err(error) => shared.fail(error.into()),
            });
        }
        for _ in 0..config.producers {
            let (shared, senders) = (&shared, senders.clone());
            scope.spawn(move || Producer::new(shared, senders).run());
        }
        // The writers end when the last producer has dropped its senders.
    });
    finish(shared)
}

/// Threads of a kind: each has a connection, or works at events.
const THREADS_MAX: usize = 1024;

fn check(config: &ReadoutConfig) -> Result<(), ReadoutError> {
    if config.inputs.is_empty() {
        return Err(ReadoutError::NoInput);
    }
    if let Some(rate) = config.rate.filter(|rate| !(rate.is_finite() && *rate > 0.0)) {
        return Err(ReadoutError::Rate { rate });
    }
    for (option, threads) in [("writers", config.writers), ("producers", config.producers)] {
        if !(1..=THREADS_MAX).contains(&threads) {
            return Err(ReadoutError::Option { option, found: threads as u64, expected: "1 to 1024" });
        }
    }
    for input in &config.inputs {
        let Input::Generated(generated) = input else { continue };
        if generated.events == 0 {
            return Err(ReadoutError::Option { option: "generate-events", found: 0, expected: "at least 1" });
        }
        if generated.run > generated.format.run_max() {
            let (found, expected) =
                (u64::from(generated.run.0), "a run that the format holds, for FASER up to 16777215");
            return Err(ReadoutError::Option { option: "run", found, expected });
        }
    }
    if config.deadline.is_some_and(|deadline| deadline.is_zero()) {
        return Err(ReadoutError::Option { option: "deadline", found: 0, expected: "a time above 0" });
    }
    Ok(())
}

fn finish(shared: Shared<'_>) -> Result<(), ReadoutError> {
    let poison = "no thread panics with it";
    if let Some(ledger) = shared.ledger.into_inner().expect(poison).as_mut() {
        ledger.flush()?;
    }
    if let Some(error) = shared.failure.into_inner().expect(poison) {
        return Err(error);
    }
    let mut damaged = shared.sequence.into_inner().expect(poison).into_damaged();
    // What is damaged is worse than what is not there.
    let worst = damaged.iter().position(|(_, error)| !error.is_not_opened()).unwrap_or(0);
    if !damaged.is_empty() {
        let (input, source) = damaged.remove(worst);
        let others = damaged.into_iter().map(|(input, _)| input).collect();
        return Err(ReadoutError::Damaged { input, source, others });
    }
    let count = |counter: &AtomicU64| counter.load(Relaxed);
    let progress = shared.progress;
    let fragments = count(&progress.errors) + count(&progress.abandoned);
    let events = count(&progress.events_refused);
    if fragments + events > 0 {
        let retryable = count(&progress.refused) + events == 0;
        let first = progress.reports.first().into_iter().next().unwrap_or_default();
        return Err(ReadoutError::NotStored { retryable, fragments, events, first });
    }
    Ok(())
}
