//! Who moves what is in a directory of a store, or in a stream: one at a time, told by a link that is renewed as long as its mover lives.
//!
//! A link, as it needs no room for bytes: a store that is full is what a mover is for.
#![expect(
    clippy::disallowed_methods,
    reason = "a lease needs a clock and a thread; nothing is decided by them but that it is lost"
)]

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use forebay_client::ClientError;
use forebay_client::files::{FileError, Files, Owner};
use forebay_types::{NodeKind, SetAttributes};

/// It is renewed so often.
const RENEWED_EVERY: Duration = Duration::from_secs(2);
/// Another mover's that was not renewed for so long is over.
const LASTS: Duration = Duration::from_secs(15);

/// Why a directory of a store cannot be moved from.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// No server answers.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// What the store says.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another mover has it.
    #[error(
        "another mover has {what} ({whose}): its lease was renewed within {} s. This one did nothing. Wait for it, or stop it first; a lease of one that is dead ends by itself", LASTS.as_secs()
    )]
    Taken {
        /// Of what of the store.
        what: String,
        /// Whose lease it is.
        whose: String,
    },
}

/// A lease that is renewed until it is dropped.
pub(crate) struct Lease {
    state: Arc<State>,
    /// The thread, and what ends it when it is dropped.
    renewing: Option<(Sender<()>, JoinHandle<()>)>,
}

struct State {
    what: String,
    link: String,
    target: String,
    /// Somebody else has the directory.
    is_lost: AtomicBool,
    renewed: Mutex<Instant>,
}

impl Lease {
    /// Takes the lease that is this link, of `what` in words; one of the same token is of a mover that was killed. Another one's is waited for until it is over.
    pub(crate) fn take(renewer: Files, files: &Files, link: &str, what: &str, token: u64) -> Result<Lease, LeaseError> {
        // Its own number, so that no lease is taken for another one of the same mover.
        let number = getrandom::u64().map_err(|error| ClientError::System {
            address: what.to_owned(),
            source: std::io::Error::other(format!("no random numbers: {error}")),
        })?;
        let whom = format!("{token:016x}, process {},", std::process::id());
        let target = format!("{whom} {number:016x}");
        if let Some((whose, seen)) = look(files, link)? {
            let is_alive_here = whose.starts_with(&whom);
            if is_alive_here || whose.split(',').next() != target.split(',').next() {
                wait_until_over(files, what, link, &(whose, seen))?;
            }
            match files.remove(link) {
                // Refused as it was done before the server was started anew.
                Ok(()) | Err(FileError::NotFound { .. } | FileError::ChangeUnknown { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let owner = Owner { mode: 0o777, owner: 0, group: 0 };
        match files.symlink(target.as_bytes(), link, &owner) {
            Ok(_) => {}
            // Who asked twice, as the server was started anew meanwhile, may meet what it made itself.
            Err(FileError::Exists { .. } | FileError::ChangeUnknown { .. }) => {
                let whose = look(files, link)?.map_or("gone already".to_owned(), |(whose, _)| whose);
                if whose != target {
                    return Err(LeaseError::Taken { what: what.to_owned(), whose });
                }
            }
            Err(error) => return Err(error.into()),
        }
        let (what, link) = (what.to_owned(), link.to_owned());
        let (is_lost, renewed) = (AtomicBool::new(false), Mutex::new(Instant::now()));
        let state = Arc::new(State { what, link, target, is_lost, renewed });
        let (end, ended) = channel();
        let of_thread = Arc::clone(&state);
        let thread = std::thread::Builder::new().name("mover lease".to_owned());
        let thread = thread.spawn(move || {
            while ended.recv_timeout(RENEWED_EVERY) == Err(RecvTimeoutError::Timeout) {
                of_thread.renew(&renewer);
            }
            of_thread.give_back(&renewer);
        });
        let thread = thread.map_err(|source| ClientError::System { address: state.what.clone(), source })?;
        Ok(Lease { state, renewing: Some((end, thread)) })
    }

    /// Whether it is still held. One that could not be renewed for a while may be another's: nothing is done then until it is known.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.state.is_lost.load(Relaxed) {
            return Err(format!(
                "another mover has {} now; this one does nothing more there. Stop one of the two",
                self.state.what
            ));
        }
        let renewed = self.state.renewed.lock().unwrap_or_else(PoisonError::into_inner).elapsed();
        if renewed > LASTS / 2 {
            return Err(format!("the lease of {} could not be renewed for {} s", self.state.what, renewed.as_secs()));
        }
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.renewing.take() {
            drop(end);
            // It gives the lease back, unless the server is away.
            drop(thread.join());
        }
    }
}

impl State {
    fn renew(&self, files: &Files) {
        match look(files, &self.link) {
            Ok(Some((target, _))) if target == self.target => {
                self.is_lost.store(false, Relaxed);
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as i64;
                let set = SetAttributes { written_unix_ns: Some(now), ..SetAttributes::default() };
                if files.set_link(&self.link, &set).is_ok() {
                    *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
                }
            }
            // Somebody took the link away: nobody else has it.
            Ok(None) => {
                let owner = Owner { mode: 0o777, owner: 0, group: 0 };
                match files.symlink(self.target.as_bytes(), &self.link, &owner) {
                    Ok(_) => self.is_lost.store(false, Relaxed),
                    Err(FileError::Exists { .. }) => self.is_lost.store(true, Relaxed),
                    // Whether it is there is seen with the next look.
                    Err(_) => {}
                }
            }
            // Until that one is over.
            Ok(Some(_)) => self.is_lost.store(true, Relaxed),
            // The server is away: others cannot take it, either.
            Err(_) => {}
        }
    }

    fn give_back(&self, files: &Files) {
        if look(files, &self.link).is_ok_and(|found| found.is_some_and(|(target, _)| target == self.target)) {
            drop(files.remove(&self.link));
        }
    }
}

/// Whose lease there is, and when it was renewed last.
fn look(files: &Files, link: &str) -> Result<Option<(String, i64)>, FileError> {
    match files.lookup_link(link) {
        Ok(node) if node.view.kind != NodeKind::Link => Err(FileError::Exists { path: link.to_owned() }),
        Ok(node) => {
            let whose = String::from_utf8_lossy(&node.view.target).into_owned();
            Ok(Some((whose, node.view.attributes.written_unix_ns)))
        }
        Err(FileError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Clocks of two machines differ: what counts is that it does not change while this one waits.
fn wait_until_over(files: &Files, what: &str, link: &str, seen: &(String, i64)) -> Result<(), LeaseError> {
    let until = Instant::now() + LASTS;
    while Instant::now() < until {
        std::thread::sleep(Duration::from_secs(1));
        match look(files, link)? {
            Some(now) if now != *seen => {
                return Err(LeaseError::Taken { what: what.to_owned(), whose: now.0 });
            }
            Some(_) => {}
            None => return Ok(()),
        }
    }
    Ok(())
}
