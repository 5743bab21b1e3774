//! What slots lie on: the contract between the engine, which decides, and the drives, which keep.
//!
//! # The contract
//!
//! A [`Media`] gives one lane its own way to a set of drives. It is a queue: [`Media::submit`] takes an
//! operation, [`Media::completions`] gives back what finished, in any order. It never blocks in `submit`
//! and never decides: no retry, no time-out, no re-ordering rule beyond the following.
//!
//! - **A completed write is durable.** When a write completes without error its bytes survive a crash of the
//!   process, of the machine, and a power cut (`RWF_DSYNC`, or a write followed by `fdatasync` before it is
//!   reported). A write that did not complete, or that failed, may have left any mixture of old and new
//!   bytes in its range, and nothing outside of it.
//! - **All or an error.** A completion without error has moved every byte; short transfers are continued
//!   or reported as [`MediaError::Short`].
//! - **Offsets, lengths and memory are multiples of [`BLOCK_BYTES`]**: the type of the buffer sees to the memory,
//!   `submit` asserts the rest, which only a mistake of ours can break.
//! - **Nothing past the end.** An operation that does not lie within the drive as a whole moves nothing and completes
//!   with [`MediaError::Short`].
//! - **No order.** Two operations in flight may reach the drive in either order. Whoever needs an order waits for
//!   the first to complete.
//! - **Buffers are shared, not copied.** A write holds its buffer by reference count, so that the engine still has the
//!   bytes when a drive never answers. A read owns its buffer and hands it back.
//! - **A drive that is not there** (its path could not be opened) is a drive whose operations complete with
//!   [`MediaError::Absent`].
//! - **One thread.** A media is created where it likes and then used by one thread: the kernel takes operations back
//!   when the thread that started them ends.
//! - **Dropping** a media waits for what the drives have begun, within bounds; what never started is forgotten. Memory
//!   that a drive may still write to is never given back.
//!
//! # What there is
//!
//! [`open_media`] chooses between [`UringMedia`] and [`PoolMedia`] over opened [`DriveFile`]s; [`MemoryMedia`] keeps
//! its drives in memory, for tests. [`inspect`](inspect()) says what a path holds before a store is made on it, and
//! [`create_zeroed`] and [`overwrite_zeroed`] make a file to be a drive. Nothing here knows what the bytes on a drive mean.
//!
//! [`MeteredMedia`] counts and times what goes through it, drive by drive; [`PatientMedia`] gives a drive up that does not answer.
//!
//! Every implementation runs the same suite, [`conformance`]. One in another crate takes operations as [`Request`]s, checked, and finishes them through a
//! [`CompletionQueue`].

mod buffer;
mod completions;
pub mod conformance;
mod drives;
mod fault;
mod file_system;
mod identity;
mod inspect;
mod licence;
mod memory;
mod meter;
mod open;
mod patient;
mod pool;
mod prepare;
mod ready;
mod remote;
mod request;
mod signatures;
mod uring;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

pub use buffer::{AlignedBuffer, return_large_memory};
pub use completions::CompletionQueue;
pub use drives::{Access, DirectIo, DriveFile, DriveKind, OpenDriveError};
pub use fault::{FaultSwitch, FaultyMedia};
use forebay_types::DriveNumber;
pub use forebay_types::limits::BLOCK_BYTES;
pub use identity::{DriveIdentity, first_equal, given_twice};
pub use inspect::{Contents, InspectError, Inspection, MAGIC_BYTES, inspect};
pub use licence::Licence;
pub use memory::{Choose, Delivery, KeepPart, MemoryDrives, MemoryMedia, PendingOperation};
pub use meter::{DriveCounts, DriveMeters, MeteredMedia, SLOW_OPERATION};
pub use open::{Backend, MediaConfig, OpenMediaError, open_media};
pub use patient::{PatientMedia, SilentDrives};
pub use pool::PoolMedia;
pub use prepare::{MadeFile, PrepareError, create_zeroed, overwrite_zeroed};
pub use ready::wait_for;
pub use remote::{RemoteDrive, RemoteReport};
pub use request::{Memory, Request, Transfer};
pub use uring::UringMedia;

/// Names an operation in its completion. The engine chooses it and uses none twice while it is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u64);

/// What the engine asks of a drive.
#[derive(Debug)]
pub enum Operation {
    /// Write the first `bytes` bytes of `buffer` at `offset_bytes`, durably.
    Write {
        /// The drive.
        drive: DriveNumber,
        /// Where on the drive, in bytes from its start.
        offset_bytes: u64,
        /// What to write; not changed while the operation is in flight.
        buffer: Arc<AlignedBuffer>,
        /// How much of it, at least one block.
        bytes: usize,
    },
    /// Read `bytes` bytes at `offset_bytes` into the start of `buffer`.
    Read {
        /// The drive.
        drive: DriveNumber,
        /// Where on the drive, in bytes from its start.
        offset_bytes: u64,
        /// Where to; handed back in the completion.
        buffer: AlignedBuffer,
        /// How much, at least one block and at most the buffer's length.
        bytes: usize,
    },
}

/// An operation that came to its end.
#[derive(Debug)]
pub struct Completion {
    /// The operation.
    pub id: OperationId,
    /// Whether all of its bytes moved (and, for a write, are durable).
    pub result: Result<(), MediaError>,
    /// The buffer of a read.
    pub buffer: Option<AlignedBuffer>,
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MediaError {
    /// The operating system refused or failed it.
    #[error("{operation} of {bytes} bytes at byte {offset_bytes} failed: {message} (os error {errno})")]
    Os {
        /// "read" or "write".
        operation: &'static str,
        /// Where on the drive.
        offset_bytes: u64,
        /// How much.
        bytes: usize,
        /// The error number.
        errno: i32,
        /// The same in words.
        message: String,
    },
    /// The drive ended before the operation did. Nothing was moved when this was known beforehand.
    #[error("the drive ended after {moved} of {bytes} bytes at byte {offset_bytes}")]
    Short {
        /// Where on the drive.
        offset_bytes: u64,
        /// How much was asked for.
        bytes: usize,
        /// How much there was.
        moved: usize,
    },
    /// The drive is not there.
    #[error("the drive is absent")]
    Absent,
    /// A fault that was switched on for a test or the demo.
    #[error("injected fault")]
    Injected,
    /// It did not answer, and is waited for no longer.
    #[error("the drive did not answer for {limit_ms} ms and was given up")]
    Silent {
        /// How long it was waited for.
        limit_ms: u64,
    },
}

/// A lane's way to its drives. See the crate's documentation for what an implementation promises.
pub trait Media {
    /// The size of a drive in bytes (whole blocks); `None` when the drive is absent.
    fn drive_bytes(&self, drive: DriveNumber) -> Option<u64>;

    /// Makes a further drive known, before the first operation on it.
    ///
    /// # Errors
    /// When the process may have no more threads or descriptors; the drive is absent then.
    fn add_drive(&mut self, drive: DriveNumber, file: Arc<DriveFile>) -> io::Result<()>;

    /// Forgets a drive that [`Media::add_drive`] made known: it is absent from now on, and its file is let go of when what has begun on it has come
    /// back. What has not begun completes with [`MediaError::Absent`]. A further drive may get its number.
    fn remove_drive(&mut self, drive: DriveNumber);

    /// Takes an operation. It may start at once or with the next [`Media::kick`].
    fn submit(&mut self, id: OperationId, operation: Operation);

    /// What lies in this range is needed no more, until it is written again: a hint, which is followed at once or not at all. A read there gives
    /// the old bytes or zeros. Drives keep what lies on them.
    fn discard(&mut self, drive: DriveNumber, offset_bytes: u64, bytes: u64) {
        let _ = (drive, offset_bytes, bytes);
    }

    /// Whether what the drives stand on has no room, though they have slots: nothing new is taken in then. Drives that are no others' never have that.
    fn is_full(&self) -> bool {
        false
    }

    /// Starts everything that was submitted.
    fn kick(&mut self);

    /// Appends what has finished to `into`, without waiting.
    fn completions(&mut self, into: &mut Vec<Completion>);

    /// Like [`Media::completions`], but waits until something has finished or `timeout` has passed.
    fn wait(&mut self, timeout: Duration, into: &mut Vec<Completion>);

    /// Operations submitted and not yet handed back.
    fn in_flight(&self) -> usize;

    /// A descriptor that becomes readable when something may have finished, for an event loop. `None` when
    /// everything finishes inside of `submit` or `kick`.
    fn ready(&self) -> Option<BorrowedFd<'_>>;
}

impl<M: Media + ?Sized> Media for Box<M> {
    fn drive_bytes(&self, drive: DriveNumber) -> Option<u64> {
        (**self).drive_bytes(drive)
    }

    fn add_drive(&mut self, drive: DriveNumber, file: Arc<DriveFile>) -> io::Result<()> {
        (**self).add_drive(drive, file)
    }

    fn remove_drive(&mut self, drive: DriveNumber) {
        (**self).remove_drive(drive);
    }

    fn submit(&mut self, id: OperationId, operation: Operation) {
        (**self).submit(id, operation);
    }

    fn discard(&mut self, drive: DriveNumber, offset_bytes: u64, bytes: u64) {
        (**self).discard(drive, offset_bytes, bytes);
    }

    fn is_full(&self) -> bool {
        (**self).is_full()
    }

    fn kick(&mut self) {
        (**self).kick();
    }

    fn completions(&mut self, into: &mut Vec<Completion>) {
        (**self).completions(into);
    }

    fn wait(&mut self, timeout: Duration, into: &mut Vec<Completion>) {
        (**self).wait(timeout, into);
    }

    fn in_flight(&self) -> usize {
        (**self).in_flight()
    }

    fn ready(&self) -> Option<BorrowedFd<'_>> {
        (**self).ready()
    }
}
