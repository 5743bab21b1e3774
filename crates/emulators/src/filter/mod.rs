//! The event filter: readers lease events, read them, verify them, and decide.
//!
//! Each reader has two threads with a connection each: one leases and reads the next events while the
//! other puts the last ones together, verifies and decides them.
//!
//! What becomes of an event:
//!
//! | what was read | decision |
//! | --- | --- |
//! | all of it, as it was written | by the [`Choice`]: into streams, or rejected |
//! | some sources are missing, and it was offered so because it waited long enough, or nobody knows how many it should have | by the [`Choice`], marked incomplete |
//! | some sources are missing otherwise | none: the lease runs out, and it is offered again |
//! | some of it cannot be read for now | none: the lease runs out, and it is offered again |
//! | fragments are lost | into the stream `debug`, marked incomplete |
//! | it is not what was written (structure, checksum, hash) | into the stream `debug` |
//! | another filter decided it in the meantime | none |
//!
//! The store decides an event that was offered too often without a decision: it goes into `debug`.
//!
//! With [`Steps`] the event's frame and some sources are read first, and a part of the events that will be
//! rejected is rejected after that: their other bytes are never read.

mod decider;
mod judge;
mod reader;
mod steps;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use forebay_client::{Class, Client, ClientConfig};
use forebay_types::{EventKey, RunId};

use crate::choice::{Choice, ChoiceError, StreamRule};
use crate::event_set::EventSet;
use crate::histogram::Histogram;
use crate::ledger::HashLedger;
use crate::reports::Reports;
use crate::store::{FilterStore, StoreError};

use decider::Decider;
use reader::Reader;
pub use steps::{StepSources, Steps};

/// The stream of events that need a person to look at them.
pub const DEBUG_STREAM: &str = "debug";

/// How long a client tries before the filter looks whether it is to stop.
const CLIENT_DEADLINE: Duration = Duration::from_secs(5);

/// When the filter ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Until {
    /// When it is stopped.
    Stopped,
    /// When the input is finished ([`FilterControl::input_is_finished`]) and no event was undecided for so
    /// long.
    Idle(Duration),
    /// When about so many events are decided; those under way are finished.
    Events(u64),
}

/// What the filter is told.
#[derive(Clone, Debug)]
pub struct FilterConfig {
    /// The server, `HOST:PORT`.
    pub address: String,
    /// How many readers, each with two connections (default 2).
    pub readers: usize,
    /// Names the filter to the store, the same after a restart; readers use it and the numbers behind it.
    pub filter_id: u64,
    /// Only events of this run.
    pub run: Option<RunId>,
    /// Decides, together with the event, what is accepted; filters with the same seed and streams agree.
    pub seed: u64,
    /// The streams.
    pub streams: Vec<StreamRule>,
    /// Read in steps; `None`: whole events.
    pub steps: Option<Steps>,
    /// When it ends.
    pub until: Until,
    /// After so long without a decision an event goes to another filter (default 30 s).
    pub lease: Duration,
    /// Events that are leased at once (default 64).
    pub batch_events: u32,
    /// Bytes that are read at once (default 32 MiB); one event alone may be larger.
    pub batch_bytes: u64,
    /// The hashes of the events as they were written.
    pub ledger: Option<Arc<HashLedger>>,
}

impl FilterConfig {
    /// The defaults: a tenth of the events into the stream `physics`.
    pub fn new(address: impl Into<String>) -> Self {
        let physics = StreamRule { name: "physics".parse().expect("a good name"), fraction: 0.1 };
        FilterConfig {
            address: address.into(),
            readers: 2,
            filter_id: u64::from(std::process::id()) << 32,
            run: None,
            seed: 1,
            streams: vec![physics],
            steps: None,
            until: Until::Stopped,
            lease: Duration::from_secs(30),
            batch_events: 64,
            batch_bytes: 32 << 20,
            ledger: None,
        }
    }
}

/// What a running filter can be told.
#[derive(Debug, Default)]
pub struct FilterControl {
    stop: AtomicBool,
    input_finished: AtomicBool,
}

impl FilterControl {
    /// Decide what was read, then end.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// No new events will come: [`Until::Idle`] may end.
    pub fn input_is_finished(&self) {
        self.input_finished.store(true, Relaxed);
    }
}

/// What a running filter tells. The numbers only grow.
#[derive(Debug, Default)]
pub struct FilterProgress {
    /// Events that were read, also in part; an event that is offered twice counts twice.
    pub events_read: AtomicU64,
    /// Bytes of their fragments.
    pub bytes_read: AtomicU64,
    /// Events whose decision is durable, each once: accepted and rejected.
    pub events_built: AtomicU64,
    /// Of these, accepted into at least one stream.
    pub accepted: AtomicU64,
    /// Of these, rejected.
    pub rejected: AtomicU64,
    /// Of the rejected, those rejected after the first step.
    pub rejected_early: AtomicU64,
    /// Of the decided, those marked incomplete, lost ones included.
    pub incomplete: AtomicU64,
    /// Of the decided, those that are not what was written.
    pub mismatched: AtomicU64,
    /// Of the decided, those with lost fragments.
    pub lost: AtomicU64,
    /// Of the decided, those that the ledger does not know.
    pub not_in_ledger: AtomicU64,
    /// Times that an event was left to be offered again: unavailable, or incomplete before its time.
    pub left: AtomicU64,
    /// Decisions that were not taken: decided otherwise before, or refused.
    pub undecided: AtomicU64,
    /// Acceptances that came after the event was accepted, shipped and freed, or deleted.
    pub decided_before: AtomicU64,
    /// From the call of decide to its answer, for each batch.
    pub decide_latency: Histogram,
    /// What went wrong, with ids.
    pub reports: Reports,
    /// Events that are not what was written, or have lost fragments, with ids.
    pub damage: Reports,
    decided: Mutex<EventSet>,
}

impl FilterProgress {
    /// Whether the decision is the first that is seen to be durable. A decision that is told again, after
    /// a cut or by another filter, is answered alike.
    fn is_first(&self, key: EventKey) -> bool {
        self.decided.lock().unwrap_or_else(PoisonError::into_inner).insert(key)
    }
}

/// Why a filter ended before it should have.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An option that leaves nothing to be done, or far too much.
    #[error("{option} is {found}; nothing was decided. Give {expected}")]
    Option {
        /// The option.
        option: &'static str,
        /// What was given.
        found: u64,
        /// What can be given.
        expected: &'static str,
    },
    /// The streams or fractions make no sense.
    #[error("{0}; nothing was decided")]
    Choice(#[from] ChoiceError),
    /// Some events are not what was written.
    #[error(
        "{mismatched} events are not what was written and {lost} have lost fragments; they are in the stream {DEBUG_STREAM}. The first: {first}"
    )]
    Damaged {
        /// How many differ.
        mismatched: u64,
        /// How many have lost fragments.
        lost: u64,
        /// The first of them.
        first: String,
    },
}

impl FilterError {
    /// Whether the same may succeed later without anything being repaired: exit code 3 instead of 1.
    pub const fn is_retryable(&self) -> bool {
        match self {
            FilterError::Store(error) => error.retryable,
            FilterError::Option { .. } | FilterError::Choice(_) | FilterError::Damaged { .. } => false,
        }
    }

    /// Whether something must be asked for in another way, and no data is damaged: exit code 2 instead of 1.
    pub const fn is_usage(&self) -> bool {
        matches!(self, FilterError::Option { .. } | FilterError::Choice(_))
    }
}

/// What the threads share.
struct Shared<'a> {
    config: &'a FilterConfig,
    choice: Choice,
    control: &'a FilterControl,
    progress: &'a FilterProgress,
    failed: AtomicBool,
    failure: Mutex<Option<FilterError>>,
    /// The end has come by itself.
    over: AtomicBool,
}

impl Shared<'_> {
    fn is_over(&self) -> bool {
        self.over.load(Relaxed) || self.is_stopping()
    }

    fn is_stopping(&self) -> bool {
        self.control.stop.load(Relaxed) || self.failed.load(Relaxed)
    }

    fn fail(&self, error: FilterError) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.failed.store(true, Relaxed);
    }
}

/// Filters until it is over.
///
/// # Errors
/// See [`FilterError`]; [`FilterError::Damaged`] comes at the end, when everything else is decided.
pub fn run(config: &FilterConfig, control: &FilterControl, progress: &FilterProgress) -> Result<(), FilterError> {
    run_with(config, control, progress, |number| {
        let client = ClientConfig::new(&config.address, format!("filter {number}")).class(Class::Filter);
        let seed = client.seed.wrapping_add(number as u64);
        Ok(Client::connect(ClientConfig { deadline: Some(CLIENT_DEADLINE), seed, ..client })?)
    })
}

/// Readers, each with two threads and connections.
const READERS_MAX: usize = 1024;

fn check(config: &FilterConfig) -> Result<(), FilterError> {
    let wrong = |option, found, expected| Err(FilterError::Option { option, found, expected });
    if !(1..=READERS_MAX).contains(&config.readers) {
        return wrong("readers", config.readers as u64, "1 to 1024");
    }
    if config.batch_events == 0 {
        return wrong("batch-events", 0, "at least 1");
    }
    if config.batch_bytes == 0 {
        return wrong("batch-bytes", 0, "at least 1");
    }
    if config.lease.is_zero() {
        return wrong("lease", 0, "a time above 0 that is long enough to read and decide a batch");
    }
    Ok(())
}

/// As [`run`], on stores that `connect` gives: two for each reader.
///
/// # Errors
/// As [`run`].
pub fn run_with<S: FilterStore>(
    config: &FilterConfig,
    control: &FilterControl,
    progress: &FilterProgress,
    connect: impl Fn(usize) -> Result<S, StoreError> + Sync,
) -> Result<(), FilterError> {
    check(config)?;
    let early_fraction = config.steps.as_ref().map_or(0.0, |steps| steps.early_fraction);
    let choice = Choice::new(config.seed, &config.streams, early_fraction)?;
    let shared = Shared {
        config,
        choice,
        control,
        progress,
        failed: AtomicBool::new(false),
        failure: Mutex::new(None),
        over: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        for number in 0..config.readers {
            // One batch is decided while the next one is read.
            let (sender, receiver) = sync_channel(0);
            let (shared, connect) = (&shared, &connect);
            scope.spawn(move || match connect(2 * number) {
                Ok(store) => Reader::new(shared, store, number as u64, sender).run(),
                Err(error) => shared.fail(error.into()),
            });
            scope.spawn(move || match connect(2 * number + 1) {
                Ok(store) => Decider::new(shared, store).run(&receiver),
                Err(error) => shared.fail(error.into()),
            });
        }
    });
    if let Some(error) = shared.failure.into_inner().expect("no thread panics with it") {
        return Err(error);
    }
    let (mismatched, lost) = (progress.mismatched.load(Relaxed), progress.lost.load(Relaxed));
    if mismatched + lost > 0 {
        let first = progress.damage.first().into_iter().next().unwrap_or_default();
        return Err(FilterError::Damaged { mismatched, lost, first });
    }
    Ok(())
}
