//! Sealing: some time after a file was closed by the last who wrote to it, it never changes again.

use std::time::Duration;

use forebay_types::FileNumber;
use fuser::Errno;

use crate::file::outcome_of;
use crate::machine::Machine;
use crate::{errors, requests};

/// What could not be sealed is tried again after so long, at the earliest.
const AGAIN: Duration = Duration::from_secs(10);

impl Machine {
    /// Nobody has the file open for writing any more.
    pub(crate) fn seal_later(&mut self, number: FileNumber) {
        self.seal_after(number, self.config.seal_after);
    }

    fn seal_after(&mut self, number: FileNumber, after: Duration) {
        let due = self.now + after;
        self.to_seal.insert(number, due);
        self.later(after, move |machine| {
            // Opened for writing since, or closed again, which has a time of its own.
            if machine.to_seal.get(&number) == Some(&due) {
                machine.to_seal.remove(&number);
                machine.seal(number);
            }
        });
    }

    /// Seals a file unless somebody writes to it, which the server decides.
    fn seal(&mut self, number: FileNumber) {
        // Being opened, which the server may refuse.
        if self.files.get(&number).is_some_and(|file| file.writers > 0) {
            return self.seal_again(number);
        }
        let lane = self.lane(number);
        self.sealing += 1;
        self.ask_or_fail(lane, requests::seal(number), move |machine, answer| {
            machine.sealing -= 1;
            match answer.map(outcome_of).and_then(errors::of_file) {
                // Busy: who has it open for writing has it now.
                Ok(()) | Err(Errno::ESTALE | Errno::EPERM | Errno::EROFS | Errno::EBUSY) => {}
                Err(_) => machine.seal_again(number),
            }
        });
    }

    fn seal_again(&mut self, number: FileNumber) {
        if !self.is_ending {
            self.seal_after(number, self.config.seal_after.max(AGAIN));
        }
    }

    /// The mount ends: what waits to be sealed is sealed now, as nobody would do it later.
    pub(crate) fn seal_all(&mut self) {
        let waiting = std::mem::take(&mut self.to_seal);
        waiting.into_keys().for_each(|number| self.seal(number));
    }
}
