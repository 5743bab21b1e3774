//! A new drive is put in for another one: it is looked at, filled with zeros and brought to the store by a thread of its own, which may hang with that drive.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_media::DriveIdentity;
use forebay_types::DriveNumber;
use serde::Serialize;

use super::Command;
use crate::control::{ControlHandle, ControlStatus, DriveStatus, Shared};
use crate::init::{AddedDrive, InitError, InitProgress, prepare_drive};

/// A drive that takes the place of another one, for an operator.
#[derive(Clone, Debug, Serialize)]
pub struct Replacement {
    /// The number of the one that it replaces.
    pub drive: u16,
    /// Where the new one is.
    pub path: String,
    /// One of `looking` (at what it holds), `zeroing`, `joining`, `done`, `failed`.
    pub state: &'static str,
    /// Bytes looked at, or written.
    pub done_bytes: u64,
    /// Bytes that will be.
    pub total_bytes: u64,
    /// The number of the new one, when it is a member.
    pub number: Option<u16>,
    /// Why it failed.
    pub reason: Option<String>,
    /// Whether the same may succeed later, when it failed: the drive was in use, or something did not answer.
    pub is_retryable: bool,
    /// Counts the replacements since the start.
    #[serde(skip)]
    attempt: u64,
    /// When the new drive last did something.
    #[serde(skip)]
    answered: Instant,
}

impl Replacement {
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, "done" | "failed")
    }

    /// The drive alone is waited for.
    fn is_up_to_the_drive(&self) -> bool {
        matches!(self.state, "looking" | "zeroing")
    }
}

/// Why a drive was not replaced.
pub(super) struct NotReplaced {
    pub(super) reason: String,
    pub(super) is_retryable: bool,
}

impl NotReplaced {
    fn for_good(reason: String) -> NotReplaced {
        NotReplaced { reason, is_retryable: false }
    }
}

impl From<InitError> for NotReplaced {
    fn from(error: InitError) -> NotReplaced {
        NotReplaced { reason: error.to_string(), is_retryable: error.is_retryable() }
    }
}

/// The control part refused what was asked of it before, or a drive did not answer.
impl From<String> for NotReplaced {
    fn from(reason: String) -> NotReplaced {
        NotReplaced { reason, is_retryable: true }
    }
}

impl ControlHandle {
    /// Begins to put a new drive in for `drive`, which is taken out of use as [`ControlHandle::retire_drive`] does when it is still a member.
    /// How far it is stands in [`ControlStatus::replacement`]. A file that is not there yet gets the size of the drive that it replaces;
    /// what `path` holds is destroyed only with `force`, and drives of this store that are in `kept` not even then.
    ///
    /// # Errors
    /// As [`ControlHandle::fail_drive`]; what comes later is told by the state.
    pub fn replace_drive(
        &self,
        drive: DriveNumber,
        path: &Path,
        force: bool,
        kept: Vec<DriveNumber>,
    ) -> Result<(), String> {
        let shared = self.0.clone();
        shared.check_known(drive)?;
        let mut begun = Err(String::new());
        shared.update(|status| begun = begin(status, drive, path));
        let (attempt, size) = begun?;
        let attempt = Attempt { shared, attempt, drive, path: path.to_owned(), size, force };
        let thread = std::thread::Builder::new().name("forebay-replace".to_owned());
        let run = thread.spawn(move || attempt.run(&kept));
        run.map(drop).map_err(|error| format!("no thread can be started: {error}; nothing was changed"))
    }
}

/// Enters a replacement; gives its number, and the slots and bytes that the new drive must have. What the path leads to is not looked at here: it
/// may hang, and everybody waits for the state.
fn begin(status: &mut ControlStatus, drive: DriveNumber, path: &Path) -> Result<(u64, (u32, u64)), String> {
    if status.replacement.as_ref().is_some_and(|replacement| !replacement.is_over()) {
        return Err("another drive is being replaced; nothing was changed. Wait until that is over".to_owned());
    }
    let old = status.drives.iter().find(|d| d.number == drive.0).expect("looked for just now");
    if let Some(by) = old.replaced_by {
        return Err(format!(
            "drive {drive} was replaced by drive {by} already; nothing was changed. Name the drive that is to be replaced now"
        ));
    }
    let size = (old.slots, old.bytes);
    let attempt = status.replacement.as_ref().map_or(0, |before| before.attempt + 1);
    status.replacement = Some(Replacement {
        drive: drive.0,
        path: path.display().to_string(),
        state: "looking",
        done_bytes: 0,
        total_bytes: 0,
        number: None,
        reason: None,
        is_retryable: false,
        attempt,
        answered: Instant::now(),
    });
    Ok((attempt, size))
}

/// One replacement, in its thread.
struct Attempt {
    shared: Arc<Shared>,
    attempt: u64,
    drive: DriveNumber,
    path: PathBuf,
    /// Slots and bytes that the new drive must have.
    size: (u32, u64),
    force: bool,
}

impl Attempt {
    fn run(&self, kept: &[DriveNumber]) {
        let done = self.replace(kept);
        let was_waited_for = self.tell(|replacement| match done {
            Ok(number) => (replacement.state, replacement.number) = ("done", Some(number.0)),
            Err(NotReplaced { reason, is_retryable }) => {
                (replacement.state, replacement.reason) = ("failed", Some(reason));
                replacement.is_retryable = is_retryable;
            }
        });
        if !was_waited_for {
            let path = self.path.display();
            tracing::info!(%path, "a new drive answers that was given up: it is not put in, and may have been written to");
        }
    }

    fn replace(&self, kept: &[DriveNumber]) -> Result<DriveNumber, NotReplaced> {
        let (shared, drive, path) = (&self.shared, self.drive, &self.path);
        self.check_free()?;
        shared.check_owner(path, self.force, kept)?;
        let made = self.prepare()?;
        if !self.tell(|replacement| replacement.state = "joining") {
            return Err(NotReplaced::for_good("it was given up".to_owned()));
        }
        let number = shared.carry_out(Command::Add { uuid: made.uuid, file: made.file, slots: self.size.0 })?;
        let is_member = shared.status().drives.iter().any(|d| d.number == drive.0 && d.state == "member");
        if is_member {
            let retired = shared.carry_out(Command::Retire(drive));
            retired
                .map_err(|reason| format!("drive {number} is a member now, and drive {drive} stays one: {reason}"))?;
        }
        shared.update(|status| {
            let replaced = status.drives.iter_mut().find(|d| d.number == drive.0);
            replaced.expect("a drive stays in the list").replaced_by = Some(number.0);
        });
        tracing::info!(%drive, %number, path = %path.display(), "a drive was replaced: what the old one held is made anew");
        Ok(number)
    }

    /// Refuses what this server has open, however it is spelled; what lies there now need not be what was opened there.
    fn check_free(&self) -> Result<(), NotReplaced> {
        let identity = DriveIdentity::of(&self.path).ok();
        let is_open = |d: &&DriveStatus| d.state != "absent" && d.identity.is_some() && d.identity == identity;
        let status = self.shared.status();
        let Some(used) = status.drives.iter().find(is_open) else { return Ok(()) };
        let or = if used.state == "member" { "" } else { ", or start the server without it first" };
        Err(NotReplaced::for_good(format!(
            "it is drive {} of this store, which this server has open; nothing was changed. Name another one{or}",
            used.number
        )))
    }

    fn prepare(&self) -> Result<AddedDrive, InitError> {
        let mut progress = |progress: InitProgress| {
            let (state, done_bytes, total_bytes) = match progress {
                InitProgress::Looking { read_bytes, total_bytes } => ("looking", read_bytes, total_bytes),
                InitProgress::Zeroing { written_bytes, total_bytes } => ("zeroing", written_bytes, total_bytes),
            };
            self.tell(|replacement| {
                (replacement.state, replacement.done_bytes, replacement.total_bytes) = (state, done_bytes, total_bytes);
            });
        };
        let (geometry, media) = (&self.shared.geometry, &self.shared.media);
        let is_wanted = || self.tell(|_| ());
        prepare_drive(&self.path, self.size, geometry, self.force, media, &is_wanted, &mut progress)
    }

    /// Tells how far it is. Whether anybody waits for it still: a drive that hung is given up meanwhile.
    fn tell(&self, change: impl FnOnce(&mut Replacement)) -> bool {
        let mut is_waited_for = false;
        self.shared.update(|status| {
            let own = status.replacement.as_mut().filter(|found| found.attempt == self.attempt && !found.is_over());
            if let Some(replacement) = own {
                change(replacement);
                replacement.answered = Instant::now();
                is_waited_for = true;
            }
        });
        is_waited_for
    }
}

impl Shared {
    /// Gives a new drive up that has done nothing for so long, so that another one may be named.
    pub(crate) fn give_up_replacement(&self, limit: Duration) {
        let is_late =
            |replacement: &Replacement| replacement.is_up_to_the_drive() && replacement.answered.elapsed() > limit;
        if !self.status().replacement.as_ref().is_some_and(is_late) {
            return;
        }
        self.update(|status| {
            let Some(replacement) = status.replacement.as_mut().filter(|replacement| is_late(replacement)) else { return };
            let reason = format!(
                "it has not answered for {} s, hangs, and was given up. It is no part of the store, and nothing that is stored was touched. See to it and to \
                 its cabling (`dmesg` tells what the system knows of it), or name another one",
                limit.as_secs()
            );
            let path = &replacement.path;
            tracing::error!(path, "a new drive was not put in: {reason}");
            (replacement.state, replacement.reason, replacement.is_retryable) = ("failed", Some(reason), true);
        });
    }
}
