//! What the paths lead to that an operator names, before anything is opened.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

use forebay_media::{DriveIdentity, first_equal};

use crate::open::OpenStoreError;
use crate::superblocks::OPEN_PATIENCE_MIN;

/// What a path leads to.
struct Found {
    identity: Option<DriveIdentity>,
    is_directory: bool,
}

/// Refuses paths that cannot be meant. What does not say within [`OPEN_PATIENCE_MIN`] what it is passes: whoever opens it gives it up.
///
/// # Errors
/// [`OpenStoreError::Directory`] and [`OpenStoreError::Twice`].
pub(crate) fn check_paths(paths: &[PathBuf]) -> Result<(), OpenStoreError> {
    let asked: Vec<Receiver<Found>> = paths.iter().map(|path| ask(path)).collect();
    let until = Instant::now() + OPEN_PATIENCE_MIN;
    let answer = |asked: Receiver<_>| asked.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
    let found: Vec<Option<Found>> = asked.into_iter().map(answer).collect();
    if let Some(at) = found.iter().position(|found| found.as_ref().is_some_and(|found| found.is_directory)) {
        return Err(OpenStoreError::Directory { path: paths[at].clone() });
    }
    let identities: Vec<_> = found.into_iter().map(|found| found?.identity).collect();
    match first_equal(paths, &identities) {
        Some((first, second)) => Err(OpenStoreError::Twice { first: first.to_owned(), second: second.to_owned() }),
        None => Ok(()),
    }
}

/// Asks in a thread of its own, which is left to itself when the path leads to something that hangs.
fn ask(path: &Path) -> Receiver<Found> {
    let (answer, answered) = sync_channel(1);
    let path = path.to_owned();
    let ask = move || {
        // Nobody may wait any more.
        let _ = answer.send(Found { identity: DriveIdentity::of(&path).ok(), is_directory: path.is_dir() });
    };
    // Without a thread there is no answer.
    drop(std::thread::Builder::new().name("forebay-open".to_owned()).spawn(ask));
    answered
}
