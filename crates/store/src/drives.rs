//! What operators do with the drives of a store that runs: giving one up, taking one out of use, putting a new one in.

mod owner;
mod replacement;

use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use forebay_media::DriveFile;
use forebay_types::{DriveNumber, DriveUuid};

use crate::control::{ControlHandle, Shared};
pub use replacement::Replacement;

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
}

#[cfg(test)]
mod tests;
