//! What operators do with the drives of a store that runs: giving one up, taking one out of use, putting a new one in.

mod owner;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use forebay_media::{DriveFile, DriveIdentity};
use forebay_types::{DriveNumber, DriveUuid};
use serde::Serialize;

use crate::control::{ControlHandle, ControlStatus, DriveStatus, Shared};
use crate::init::{InitError, InitProgress, prepare_drive};

/// The control part answers within what drives may take.
const ANSWER: Duration = Duration::from_secs(60);

/// What the control part is to do.
pub(crate) enum Command {
    Fail(DriveNumber),
    Retire(DriveNumber),
    Add { uuid: DriveUuid, file: DriveFile, slots: u32 },
}

/// A command and who waits for it.
pub(crate) struct Ordered {
    pub(crate) command: Command,
    pub(crate) answer: SyncSender<Result<DriveNumber, String>>,
}

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
}

/// Why a drive was not replaced.
struct NotReplaced {
    reason: String,
    is_retryable: bool,
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

impl Replacement {
    fn is_over(&self) -> bool {
        matches!(self.state, "done" | "failed")
    }
}

impl ControlHandle {
    /// Gives a drive up: nothing is written to it or read from it any more, as if it had failed.
    ///
    /// # Errors
    /// Why not, in words; nothing was changed then.
    pub fn fail_drive(&self, drive: DriveNumber) -> Result<(), String> {
        self.0.check_known(drive)?;
        self.0.carry_out(Command::Fail(drive)).map(drop)
    }

    /// Takes a drive out of use: nothing is written to it any more, what lies on it is made anew on others as far as there are some, and
    /// it is read until then.
    ///
    /// # Errors
    /// As [`ControlHandle::fail_drive`].
    pub fn retire_drive(&self, drive: DriveNumber) -> Result<(), String> {
        self.0.check_known(drive)?;
        self.0.carry_out(Command::Retire(drive)).map(drop)
    }

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
        let mut begun = Err("another drive is being replaced; nothing was changed. Wait until that is over".to_owned());
        shared.update(|status| begun = begin(status, drive, path));
        let size = begun?;
        let path = path.to_owned();
        let run = move || {
            let checked = shared.check_owner(&path, force, &kept);
            let done = checked.and_then(|()| replace(&shared, drive, &path, size, force));
            shared.replacement(|replacement| match done {
                Ok(number) => (replacement.state, replacement.number) = ("done", Some(number.0)),
                Err(NotReplaced { reason, is_retryable }) => {
                    (replacement.state, replacement.reason) = ("failed", Some(reason));
                    replacement.is_retryable = is_retryable;
                }
            });
        };
        let thread = std::thread::Builder::new().name("forebay-replace".to_owned());
        thread.spawn(run).map(drop).map_err(|error| format!("no thread can be started: {error}; nothing was changed"))
    }
}

/// Enters a replacement; gives the slots and bytes that the new drive must have.
fn begin(status: &mut ControlStatus, drive: DriveNumber, path: &Path) -> Result<(u32, u64), String> {
    if status.replacement.as_ref().is_some_and(|replacement| !replacement.is_over()) {
        return Err("another drive is being replaced; nothing was changed. Wait until that is over".to_owned());
    }
    // However it is spelled; what lies there now need not be what was opened there.
    let identity = DriveIdentity::of(path).ok();
    let path = path.display().to_string();
    let is_open = |d: &&DriveStatus| d.state != "absent" && d.identity.is_some() && d.identity == identity;
    if let Some(used) = status.drives.iter().find(is_open) {
        let or = if used.state == "member" { "" } else { ", or start the server without it first" };
        return Err(format!(
            "{path} is drive {} of this store, which this server has open; nothing was changed. Name another one{or}",
            used.number
        ));
    }
    let old = status.drives.iter().find(|d| d.number == drive.0).expect("looked for just now");
    if let Some(by) = old.replaced_by {
        return Err(format!(
            "drive {drive} was replaced by drive {by} already; nothing was changed. Name the drive that is to be replaced now"
        ));
    }
    let size = (old.slots, old.bytes);
    status.replacement = Some(Replacement {
        drive: drive.0,
        path,
        state: "looking",
        done_bytes: 0,
        total_bytes: 0,
        number: None,
        reason: None,
        is_retryable: false,
    });
    Ok(size)
}

fn replace(
    shared: &Arc<Shared>,
    drive: DriveNumber,
    path: &Path,
    (slots, bytes): (u32, u64),
    force: bool,
) -> Result<DriveNumber, NotReplaced> {
    let mut progress = |progress: InitProgress| {
        let (state, done_bytes, total_bytes) = match progress {
            InitProgress::Looking { read_bytes, total_bytes } => ("looking", read_bytes, total_bytes),
            InitProgress::Zeroing { written_bytes, total_bytes } => ("zeroing", written_bytes, total_bytes),
        };
        shared.replacement(|replacement| {
            (replacement.state, replacement.done_bytes, replacement.total_bytes) = (state, done_bytes, total_bytes);
        });
    };
    let (geometry, media) = (shared.geometry, shared.media);
    let made = prepare_drive(path, (slots, bytes), &geometry, force, &media, &mut progress)?;
    shared.replacement(|replacement| replacement.state = "joining");
    let number = shared.carry_out(Command::Add { uuid: made.uuid, file: made.file, slots })?;
    let is_member = shared.status().drives.iter().any(|d| d.number == drive.0 && d.state == "member");
    if is_member {
        let retired = shared.carry_out(Command::Retire(drive));
        retired.map_err(|reason| format!("drive {number} is a member now, and drive {drive} stays one: {reason}"))?;
    }
    shared.update(|status| {
        let replaced = status.drives.iter_mut().find(|d| d.number == drive.0);
        replaced.expect("a drive stays in the list").replaced_by = Some(number.0);
    });
    tracing::info!(%drive, %number, path = %path.display(), "a drive was replaced: what the old one held is made anew");
    Ok(number)
}

impl Shared {
    fn check_known(&self, drive: DriveNumber) -> Result<(), String> {
        if self.read_only {
            return Err("the store is open for reading alone; nothing was changed".to_owned());
        }
        let known = self.status().drives.iter().any(|d| d.number == drive.0);
        known.then_some(()).ok_or_else(|| {
            format!("the store has no drive {drive}; nothing was changed. `forebay drive list` shows those that it has")
        })
    }

    fn carry_out(&self, command: Command) -> Result<DriveNumber, String> {
        let (answer, answered) = sync_channel(1);
        self.order(Ordered { command, answer });
        let late = "the drives take long to be told: look at `forebay status` for what became of it";
        answered.recv_timeout(ANSWER).unwrap_or_else(|_| Err(late.to_owned()))
    }

    fn replacement(&self, change: impl FnOnce(&mut Replacement)) {
        self.update(|status| {
            if let Some(replacement) = &mut status.replacement {
                change(replacement)
            }
        });
    }
}

#[cfg(test)]
mod tests;
