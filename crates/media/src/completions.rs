//! Completions that come from other threads.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use crate::Completion;

/// What other threads have finished, for the one that uses a media.
pub struct CompletionQueue {
    completions: Mutex<Vec<Completion>>,
    /// Readable exactly while there are completions.
    event: OwnedFd,
}

impl CompletionQueue {
    /// An empty one.
    ///
    /// # Errors
    /// When the process may have no more descriptors.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(CompletionQueue { completions: Mutex::default(), event })
    }

    /// Something has finished.
    ///
    /// # Panics
    /// When the kernel refuses to count to one.
    pub fn push(&self, completion: Completion) {
        let mut completions = self.locked();
        if completions.is_empty() {
            // Any number but zero makes it readable; this one is the same in every byte order.
            rustix::io::write(&self.event, &[1; 8]).expect("an eventfd that was read takes one more");
        }
        completions.push(completion);
    }

    /// Appends what has finished to `into`; how much that is.
    ///
    /// # Panics
    /// When the kernel forgot what it counted.
    pub fn take(&self, into: &mut Vec<Completion>) -> usize {
        let mut completions = self.locked();
        let taken = completions.len();
        if taken > 0 {
            rustix::io::read(&self.event, &mut [0; 8]).expect("the eventfd was written before");
            into.append(&mut completions);
        }
        taken
    }

    /// Readable exactly while there is something to take.
    pub fn ready(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// A panic of a thread leaves nothing half done behind this lock.
    fn locked(&self) -> MutexGuard<'_, Vec<Completion>> {
        self.completions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
