//! All streams at once: a thread, a connection and a machine for each.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this module starts the threads and holds the lock of the directory"
)]

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use forebay_client::{Class, Client, ClientConfig};
use forebay_types::StreamName;

use crate::config::{Mode, RecorderConfig, RecorderControl, RecorderProgress};
use crate::directory::{DirectoryError, lock, make_directory};
use crate::driver::StreamRecorder;
use crate::error::RecorderError;
use crate::names::JOURNAL_NAME;
use crate::store::{AcceptedStore, StoreError};

/// The time between two looks for new streams.
const LOOK: Duration = Duration::from_millis(500);
/// The time between two looks at the control and at the threads.
const TURN: Duration = Duration::from_millis(20);
/// How long a client tries before the recorder looks whether it is to stop.
const CLIENT_DEADLINE: Duration = Duration::from_secs(5);

/// Records until the mode or the control says that it is over.
///
/// # Errors
/// The first reason for which a stream, and then all, ended before that. What was released is recorded
/// and verified; everything else is still in the store.
pub fn run(
    config: &RecorderConfig,
    control: &RecorderControl,
    progress: &RecorderProgress,
) -> Result<(), RecorderError> {
    let connect = || {
        let client = ClientConfig::new(&config.address, "record").class(Class::Mover).deadline(Some(CLIENT_DEADLINE));
        Ok(Client::connect(client)?)
    };
    run_with(config, control, progress, connect)
}

/// As [`run`], on stores that `connect` gives: one for each stream and one more.
///
/// # Errors
/// As [`run`].
pub fn run_with<S: AcceptedStore>(
    config: &RecorderConfig,
    control: &RecorderControl,
    progress: &RecorderProgress,
    connect: impl Fn() -> Result<S, StoreError> + Sync,
) -> Result<(), RecorderError> {
    for (option, value) in [("file-bytes", config.file_bytes), ("fetch-bytes", config.fetch_bytes)] {
        if value == 0 {
            return Err(RecorderError::Zero { option });
        }
    }
    let _lock = lock_directory(&config.directory)?;
    let failure = Mutex::new(None);
    let fail = |error: RecorderError| {
        failure.lock().expect("no thread panics with it").get_or_insert(error);
        control.stop();
    };
    let mut begun = BTreeSet::new();
    thread::scope(|scope| {
        let mut threads: Vec<thread::ScopedJoinHandle<'_, ()>> = Vec::new();
        let mut store = None;
        let mut trouble = Trouble::new(config, control);
        loop {
            let ending = is_ending(config, control);
            let (connect, fail) = (&connect, &fail);
            let mut looked = false;
            match streams(config, &mut store, connect) {
                Ok(names) => {
                    trouble.is_over();
                    let before = begun.len();
                    for stream in names.into_iter().filter(|name| begun.insert(name.clone())) {
                        threads.push(scope.spawn(move || {
                            let ended = record_stream(stream, config, control, progress, connect);
                            ended.unwrap_or_else(fail);
                        }));
                    }
                    looked = begun.len() == before;
                }
                Err(error) => {
                    // It is asked for again, in case it cannot be used any more.
                    store = None;
                    if let Err(error) = trouble.comes(error) {
                        fail(error);
                    }
                }
            }
            let all_over = || threads.iter().all(|thread| thread.is_finished());
            if control.is_stopping() || ending && looked && all_over() {
                break;
            }
            // Before the end a thread ends only with an error, which stops all, or by a panic, which must not go unnoticed.
            if !is_ending(config, control) && threads.iter().any(|thread| thread.is_finished()) {
                control.stop();
                break;
            }
            for _ in 0..LOOK.as_millis() / TURN.as_millis() {
                if control.is_stopping() || ending && all_over() || ending != is_ending(config, control) {
                    break;
                }
                thread::sleep(TURN);
            }
        }
    });
    if let Some(error) = failure.into_inner().expect("no thread panics with it") {
        return Err(error);
    }
    for name in config.streams.iter().flatten().filter(|name| !begun.contains(*name)) {
        tracing::warn!("the server knows no stream {name}: no event was ever accepted into it");
    }
    match progress.all.counts().fragments_lost {
        0 => Ok(()),
        fragments => Err(RecorderError::Lost { fragments, first: progress.losses.first() }),
    }
}

fn is_ending(config: &RecorderConfig, control: &RecorderControl) -> bool {
    config.mode == Mode::Once || control.is_draining()
}

/// Records one stream on a connection of its own.
fn record_stream<S: AcceptedStore>(
    stream: StreamName,
    config: &RecorderConfig,
    control: &RecorderControl,
    progress: &RecorderProgress,
    connect: &impl Fn() -> Result<S, StoreError>,
) -> Result<(), RecorderError> {
    let mut trouble = Trouble::new(config, control);
    let mut store = loop {
        match connect() {
            Ok(store) => break store,
            Err(error) => trouble.comes(error.into())?,
        }
        if control.is_stopping() {
            return Ok(());
        }
        thread::sleep(TURN);
    };
    StreamRecorder { stream, config, control, progress }.run(&mut store)
}

/// What keeps the recorder from going on, and may pass.
struct Trouble<'a> {
    config: &'a RecorderConfig,
    control: &'a RecorderControl,
    since: Option<Instant>,
}

impl<'a> Trouble<'a> {
    fn new(config: &'a RecorderConfig, control: &'a RecorderControl) -> Self {
        Trouble { config, control, since: None }
    }

    fn is_over(&mut self) {
        self.since = None;
    }

    /// The error again when it is not to be waited for: it does not pass by itself, or the recorder is to end
    /// and waited long enough.
    fn comes(&mut self, error: RecorderError) -> Result<(), RecorderError> {
        let ending = is_ending(self.config, self.control);
        let passes = match &error {
            RecorderError::Store(error) => error.retryable,
            RecorderError::Directory(error) => !ending && error.may_pass(),
            _ => false,
        };
        let first = self.since.is_none();
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        if !passes || ending && waited >= self.config.patience {
            return Err(error);
        }
        if first {
            tracing::warn!("{error}");
        }
        Ok(())
    }
}

/// The streams that there is something to do for: those that the server knows, and those that an earlier
/// start may have left unfinished.
fn streams<S: AcceptedStore>(
    config: &RecorderConfig,
    store: &mut Option<S>,
    connect: &impl Fn() -> Result<S, StoreError>,
) -> Result<Vec<StreamName>, RecorderError> {
    let store = match store {
        Some(store) => store,
        none => none.insert(connect()?),
    };
    let mut names: BTreeSet<StreamName> = store.streams()?.into_iter().collect();
    names.extend(begun_before(&config.directory)?);
    names.retain(|name| config.streams.as_ref().is_none_or(|wanted| wanted.contains(name)));
    Ok(names.into_iter().collect())
}

fn begun_before(directory: &Path) -> Result<Vec<StreamName>, RecorderError> {
    let list = || {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name().into_string().ok().and_then(|name| name.parse::<StreamName>().ok());
            names.extend(name.filter(|_| entry.path().join(JOURNAL_NAME).is_file()));
        }
        Ok(names)
    };
    list().map_err(|source| {
        RecorderError::Directory(DirectoryError::Io { action: "list", path: directory.to_owned(), source })
    })
}

/// Locks the directory against other recorders, until the file is dropped.
fn lock_directory(directory: &Path) -> Result<File, DirectoryError> {
    make_directory(directory)?;
    let failed = |source| DirectoryError::Io { action: "open", path: directory.to_owned(), source };
    let handle = File::open(directory).map_err(failed)?;
    lock(&handle, directory)?;
    Ok(handle)
}
