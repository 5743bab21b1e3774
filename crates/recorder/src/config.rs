//! What the recorder is told, what it can be asked while it runs, and what it tells.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay_types::StreamName;

use crate::read_back::ReadMode;
use crate::sidecar::Sidecar;

/// When the recorder ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// When nothing accepted is left. A directory that cannot be written ends it too.
    Once,
    /// When it is asked to. While a directory cannot be written it keeps trying.
    Continuous,
}

/// What is called for every file that is complete, verified, announced and released.
pub type FileHook = Arc<dyn Fn(&ShippedFile) + Send + Sync>;

/// What the recorder is told.
#[derive(Clone)]
pub struct RecorderConfig {
    /// The server, `HOST:PORT`.
    pub address: String,
    /// Where the directories of the streams are, or are made.
    pub directory: PathBuf,
    /// The streams; `None`: all that the server knows, also those that come later.
    pub streams: Option<Vec<StreamName>>,
    /// When it ends.
    pub mode: Mode,
    /// A file is closed before it would grow larger, in bytes (default 1 GiB); one event alone may be larger.
    pub file_bytes: u64,
    /// A file that gets no event for so long is closed (default 30 s).
    pub close_after: Duration,
    /// An event that is not decided holds accepted ones with larger numbers back for so long at most
    /// (default 10 s), so that files come out in order.
    pub order_wait: Duration,
    /// The time between two looks at what is accepted (default 100 ms).
    pub poll: Duration,
    /// Bytes that each stream fetches at once, and so about its memory (default 32 MiB).
    pub fetch_bytes: u64,
    /// With [`Mode::Once`]: how long the server may be silent, or events unreadable, before it is given
    /// up (default 30 s).
    pub patience: Duration,
    /// How many files in a row may come back other than they were written (default 3).
    pub mismatches_max: u32,
    /// With [`Mode::Continuous`]: the wait before a directory that cannot be used is tried again (default 5 s).
    pub retry: Duration,
    /// Called for every file.
    pub hook: Option<FileHook>,
}

impl RecorderConfig {
    /// The defaults, for all streams, [`Mode::Continuous`].
    pub fn new(address: impl Into<String>, directory: impl Into<PathBuf>) -> Self {
        RecorderConfig {
            address: address.into(),
            directory: directory.into(),
            streams: None,
            mode: Mode::Continuous,
            file_bytes: 1 << 30,
            close_after: Duration::from_secs(30),
            order_wait: Duration::from_secs(10),
            poll: Duration::from_millis(100),
            fetch_bytes: 32 << 20,
            patience: Duration::from_secs(30),
            mismatches_max: 3,
            retry: Duration::from_secs(5),
            hook: None,
        }
    }
}

/// What a running recorder can be asked.
#[derive(Debug, Default)]
pub struct RecorderControl {
    stop: AtomicBool,
    drain: AtomicBool,
}

impl RecorderControl {
    /// Finish the files that are open, then end.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Record what is accepted, then end.
    pub fn drain(&self) {
        self.drain.store(true, Relaxed);
    }

    /// Whether it was asked to stop.
    pub fn is_stopping(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Whether it was asked to end when nothing is left.
    pub fn is_draining(&self) -> bool {
        self.drain.load(Relaxed)
    }
}

/// Counts since the start; they only grow.
#[derive(Debug, Default)]
pub struct Counters {
    /// Events that are in a verified, announced file and released.
    pub events_shipped: AtomicU64,
    /// The bytes of these files.
    pub bytes_shipped: AtomicU64,
    /// These files.
    pub files: AtomicU64,
    /// Of the events, those that lack fragments.
    pub events_incomplete: AtomicU64,
    /// Of the events, those that could not be put together and are in `.parts` files.
    pub events_in_parts: AtomicU64,
    /// Fragments of shipped events that the store had lost.
    pub fragments_lost: AtomicU64,
    /// Files that did not come back as they were written.
    pub mismatched: AtomicU64,
    /// Times that a directory could not be written, or the store gave no answer.
    pub troubles: AtomicU64,
}

/// The counts of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// See [`Counters::events_shipped`].
    pub events_shipped: u64,
    /// See [`Counters::bytes_shipped`].
    pub bytes_shipped: u64,
    /// See [`Counters::files`].
    pub files: u64,
    /// See [`Counters::events_incomplete`].
    pub events_incomplete: u64,
    /// See [`Counters::events_in_parts`].
    pub events_in_parts: u64,
    /// See [`Counters::fragments_lost`].
    pub fragments_lost: u64,
    /// See [`Counters::mismatched`].
    pub mismatched: u64,
    /// See [`Counters::troubles`].
    pub troubles: u64,
}

impl Counters {
    /// The counts now.
    pub fn counts(&self) -> Counts {
        Counts {
            events_shipped: self.events_shipped.load(Relaxed),
            bytes_shipped: self.bytes_shipped.load(Relaxed),
            files: self.files.load(Relaxed),
            events_incomplete: self.events_incomplete.load(Relaxed),
            events_in_parts: self.events_in_parts.load(Relaxed),
            fragments_lost: self.fragments_lost.load(Relaxed),
            mismatched: self.mismatched.load(Relaxed),
            troubles: self.troubles.load(Relaxed),
        }
    }
}

/// Words about the first losses; each is logged.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    count: AtomicU64,
    first: Mutex<Option<String>>,
}

impl Losses {
    /// So many are logged.
    const LOGGED: u64 = 16;

    pub(crate) fn add(&self, words: impl FnOnce() -> String) {
        let before = self.count.fetch_add(1, Relaxed);
        if before < Self::LOGGED {
            let words = words();
            tracing::error!("{words}");
            self.first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(words);
        } else if before == Self::LOGGED {
            tracing::error!("fragments of more events are lost; they are counted, and not named here any more");
        }
    }

    pub(crate) fn first(&self) -> String {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default()
    }
}

/// What a running recorder tells: counts over all streams and for each.
#[derive(Debug, Default)]
pub struct RecorderProgress {
    /// Over all streams.
    pub all: Counters,
    /// Events that were read and of which the store had lost fragments.
    pub(crate) losses: Losses,
    streams: Mutex<BTreeMap<StreamName, Arc<Counters>>>,
}

impl RecorderProgress {
    /// The counters of a stream.
    pub fn stream(&self, name: &StreamName) -> Arc<Counters> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(streams.entry(name.clone()).or_default())
    }

    /// The counts of each stream now.
    pub fn streams(&self) -> BTreeMap<StreamName, Counts> {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.iter().map(|(name, counters)| (name.clone(), counters.counts())).collect()
    }
}

/// A file that is complete, verified, announced, and whose events are released.
#[derive(Clone, Debug)]
pub struct ShippedFile {
    /// The stream.
    pub stream: StreamName,
    /// Where it is; whoever takes announced files may have moved it.
    pub path: PathBuf,
    /// What it holds.
    pub sidecar: Sidecar,
    /// How the page cache was kept out when it was read back; `None`: it was announced by an earlier
    /// start and taken away before this one.
    pub read_mode: Option<ReadMode>,
}
