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
use std::time::Duration;

use forebay_client::{Class, Client, ClientConfig};
use forebay_types::StreamName;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::config::{Mode, RecorderConfig, RecorderControl, RecorderProgress};
use crate::directory::{DirectoryError, make_directory};
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
    let _lock = lock(&config.directory)?;
    let failure = Mutex::new(None);
    let fail = |error: RecorderError| {
        failure.lock().expect("no thread panics with it").get_or_insert(error);
        control.stop();
    };
    thread::scope(|scope| {
        let mut begun = BTreeSet::new();
        let mut threads: Vec<thread::ScopedJoinHandle<'_, ()>> = Vec::new();
        let mut store = None;
        loop {
            let ending = config.mode == Mode::Once || control.is_draining();
            let (connect, fail) = (&connect, &fail);
            let mut new = 0;
            match streams(config, &mut store, connect) {
                Ok(names) => {
                    for stream in names.into_iter().filter(|name| begun.insert(name.clone())) {
                        new += 1;
                        threads.push(scope.spawn(move || {
                            let recorder = StreamRecorder { stream, config, control, progress };
                            let ended = connect().map_err(RecorderError::Store).and_then(|mut s| recorder.run(&mut s));
                            ended.unwrap_or_else(fail);
                        }));
                    }
                }
                Err(RecorderError::Store(error)) if error.retryable && !ending => tracing::warn!("{error}"),
                Err(error) => fail(error),
            }
            if control.is_stopping() || ending && new == 0 && threads.iter().all(|thread| thread.is_finished()) {
                break;
            }
            // Before the end a thread ends only with an error, which stops all, or by a panic, which must not go unnoticed.
            if !ending && threads.iter().any(|thread| thread.is_finished()) && !control.is_draining() {
                control.stop();
                break;
            }
            for _ in 0..LOOK.as_millis() / TURN.as_millis() {
                let all_over = ending && threads.iter().all(|thread| thread.is_finished());
                if control.is_stopping() || all_over || control.is_draining() != (ending && config.mode != Mode::Once) {
                    break;
                }
                thread::sleep(TURN);
            }
        }
    });
    match failure.into_inner().expect("no thread panics with it") {
        Some(error) => Err(error),
        None => Ok(()),
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
fn lock(directory: &Path) -> Result<File, RecorderError> {
    make_directory(directory)?;
    let failed = |source| RecorderError::Lock { directory: directory.to_owned(), source };
    let handle = File::open(directory).map_err(failed)?;
    match flock(&handle, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(handle),
        Err(Errno::WOULDBLOCK) => Err(RecorderError::Locked { directory: directory.to_owned() }),
        Err(error) => Err(failed(error.into())),
    }
}
