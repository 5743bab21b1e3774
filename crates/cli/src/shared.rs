//! Stores of files that several machines mount: owning, serving and taking them over.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use forebay_ownership::{FenceCommand, FilesOwnership, Holder, NotOwned, OwnerFileError, Progress, SharedFiles};
use forebay_takeover::{Patience, Timing};

use crate::failure::Failure;

/// A fencing command that has not ended after so many times the time without a pulse is killed.
const COMMAND_PATIENCE: u32 = 10;

/// How a store that other servers reach, too, is kept from being written by two.
#[derive(Debug, Args)]
pub struct FenceOptions {
    /// The drives are files that other servers mount too: show by a pulse that this server lives, and take the store from one that is dead when these words for a
    /// shell, which must end it, ended with exit code 0 (FOREBAY_OWNER_HOST, FOREBAY_OWNER_PID and others say whom: docs/ceph.md). All servers of a store need it
    /// [default: none, nobody else has the drives]
    #[arg(long, value_name = "COMMAND", conflicts_with = "media")]
    fence_command: Option<String>,
}

impl FenceOptions {
    /// The words for the shell.
    pub fn command(&self) -> Option<&str> {
        self.fence_command.as_deref()
    }
}

/// A store of shared files, and how its owner is fenced.
pub struct Place {
    files: SharedFiles,
    command: FenceCommand,
    timing: Timing,
}

impl Place {
    /// Finds the drives.
    ///
    /// # Errors
    /// One is not there, or no file.
    pub fn find(drives: &[PathBuf], command: &str, dead_after: Option<Duration>) -> Result<Place, Failure> {
        let files = SharedFiles::find(drives).map_err(failure)?;
        let timing = dead_after.map_or(Ok(Timing::default()), Timing::new).map_err(Failure::usage)?;
        let command = FenceCommand::new(command.to_owned(), timing.dead_after() * COMMAND_PATIENCE);
        Ok(Place { files, command, timing })
    }

    /// Comes to own the store; nothing when it was stopped before.
    ///
    /// # Errors
    /// Its owner lives.
    pub fn own(
        self,
        patience: Patience,
        address: SocketAddr,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Option<FilesOwnership>, Failure> {
        let mut told = Told::default();
        self.keep(patience, address, is_stopped, &mut |progress| told.tell(&progress))
    }

    /// Takes the store from whoever has it, and leaves it to the next server; nothing when it was stopped before.
    ///
    /// # Errors
    /// The fencing command does not succeed, or the owner file cannot be written.
    pub fn take_over(mut self, is_stopped: &dyn Fn() -> bool) -> Result<Option<()>, Failure> {
        // As long as the owner believes that it may answer.
        let known = self.files.dead_after().map_err(failure)?;
        self.timing = known.map_or(Ok(self.timing), Timing::new).map_err(Failure::usage)?;
        let not_fenced = std::cell::RefCell::new(None);
        let is_over = || is_stopped() || not_fenced.borrow().is_some();
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut told = Told::default();
        let ownership = self.keep(Patience::None, nowhere, &is_over, &mut |progress| {
            told.tell(&progress);
            if let Progress::NotFenced(holder, error) = progress {
                *not_fenced.borrow_mut() =
                    Some(format!("{error}: {holder} still has the store, and nothing was taken"));
            }
        })?;
        match (ownership, not_fenced.into_inner()) {
            (Some(ownership), _) => ownership.give_back().map(Some).map_err(failure),
            (None, Some(why)) => Err(Failure::retry(why)),
            (None, None) => Ok(None),
        }
    }

    fn keep(
        self,
        patience: Patience,
        address: SocketAddr,
        is_stopped: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<Option<FilesOwnership>, Failure> {
        let drive = self.files.drive().display().to_string();
        let kept = self.files.own((self.timing, patience), (address, &self.command), is_stopped, tell, lost);
        match kept {
            Ok(ownership) => {
                tracing::info!("the store on {drive} is this server's");
                Ok(Some(ownership))
            }
            Err(NotOwned::Stopped) => Ok(None),
            Err(NotOwned::Alive(holder)) => Err(Failure::retry(format!(
                "the store is served by {holder}, which lives. Nothing was changed. Stop that server; or start this one with --standby, and it takes over \
                 when the other is gone; or, when it must go now, `forebay takeover`"
            ))),
        }
    }
}

/// A drive that says nothing for so long is given up by whoever opens it, too.
const DRIVE_PATIENCE: Duration = Duration::from_secs(10);

/// Refuses drives that several servers share to one that would not know of the others.
///
/// # Errors
/// They are shared.
pub fn refuse_without_fence(drives: &[PathBuf]) -> Result<(), Failure> {
    let Some((file, holder)) = SharedFiles::last_owner(drives, DRIVE_PATIENCE) else { return Ok(()) };
    let owner = match holder {
        Ok(Some(holder)) => format!("the last one, {holder}, has not given it back"),
        Ok(None) => "none has it now".to_owned(),
        Err(error) => error.to_string(),
    };
    let file = file.display();
    Err(Failure::usage(format!(
        "{file} says that several servers share this store: {owner}. Nothing was started. Give --fence-command, as its other servers do; or, when \
         this is its only server from now on and no other one runs, remove {file}"
    )))
}

fn failure(error: OwnerFileError) -> Failure {
    match error {
        OwnerFileError::NotAFile { .. } => Failure::usage(error),
        OwnerFileError::Io { .. } | OwnerFileError::Record { .. } | OwnerFileError::NoLocks { .. } => {
            Failure::retry(error)
        }
    }
}

/// Nothing may be answered any more.
fn lost() {
    tracing::error!(
        "ANOTHER SERVER HAS TAKEN THE STORE OVER, or the file system has shut this machine out: this server ends at once. What it acknowledged is there, and the \
         other serves it; what it did not acknowledge its clients send again. Find out why this one was taken for dead (was it stopped, or cut off?), then start \
         it again with --standby"
    );
    signal_hook::low_level::exit(3);
}

/// What was told of a takeover: once, however often it happens.
#[derive(Default)]
struct Told {
    waiting: Option<Holder>,
    problem: Option<String>,
}

impl Told {
    fn tell(&mut self, progress: &Progress) {
        match progress {
            Progress::Waiting(holder) => {
                if self.waiting.as_ref() != Some(holder) {
                    tracing::info!("another server has the store, {holder}: its pulse is watched");
                    self.waiting = Some(holder.clone());
                }
            }
            Progress::Gone(holder) => {
                tracing::warn!("the server that had the store, {holder}, ran on this machine and is gone: it is taken over");
            }
            Progress::Fencing(holder) => {
                if self.problem.is_none() {
                    tracing::warn!("the server that has the store, {holder}, is to be replaced: the fencing command is run");
                }
            }
            Progress::Fenced(holder) => {
                self.problem = None;
                tracing::warn!("{holder} is fenced, as the fencing command says: the store is taken over");
            }
            Progress::NotFenced(holder, error) => self.problem(format!(
                "{error}: nothing is taken, and nobody serves the store unless {holder} comes back. The command is run again, after a while; mend what keeps it \
                 from succeeding"
            )),
            Progress::StillLocked(holder) => self.problem(format!(
                "the fencing command said that {holder} is fenced, and the file system still keeps its lock: nothing is taken before that is gone. It goes when \
                 the process ends, or the file system shuts its machine out (CephFS: `ceph tell mds.* client evict`, or some minutes)"
            )),
            Progress::FencedLives(holder) => self.problem(format!(
                "THE FENCING COMMAND SAID THAT {holder} IS FENCED, AND IT LIVES: nothing is taken. Mend the command: it must end with exit code 0 only when that \
                 server has ended, or can write no more"
            )),
            Progress::WaitsLonger(holder, dead_after) => self.problem(format!(
                "{holder} counts as dead after {} s: nothing is taken before it is waited so long. Start this server with the same --dead-after",
                dead_after.as_secs_f64()
            )),
            Progress::Failed(error) => self.problem(format!("{error}; it is tried again")),
        }
    }

    fn problem(&mut self, words: String) {
        if self.problem.as_ref() != Some(&words) {
            tracing::warn!("{words}");
            self.problem = Some(words);
        }
    }
}
