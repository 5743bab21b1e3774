//! An operation as the implementations carry it: checked, and with how far it has come.

use std::io;
use std::sync::Arc;

use forebay_types::DriveNumber;

use crate::{AlignedBuffer, BLOCK_BYTES, Completion, MediaError, Operation, OperationId};

/// Where a transfer goes and how far it has come.
#[derive(Clone, Debug)]
pub struct Transfer {
    operation: &'static str,
    /// Where on the drive.
    pub offset_bytes: u64,
    /// How much.
    pub bytes: usize,
    /// Whole blocks that have been moved.
    pub moved: usize,
}

impl Transfer {
    /// One of which nothing was moved.
    ///
    /// # Panics
    /// When it is not in whole blocks, is empty, or is longer than its buffer: mistakes of the engine.
    pub fn new(operation: &'static str, offset_bytes: u64, bytes: usize, buffer: &AlignedBuffer) -> Self {
        assert!(bytes > 0 && bytes.is_multiple_of(BLOCK_BYTES), "{operation} of {bytes} bytes: not whole blocks");
        assert!(
            offset_bytes.is_multiple_of(BLOCK_BYTES as u64),
            "{operation} at byte {offset_bytes}: not the start of a block"
        );
        assert!(bytes <= buffer.len(), "{operation} of {bytes} bytes: more than the buffer's {}", buffer.len());
        Transfer { operation, offset_bytes, bytes, moved: 0 }
    }

    /// Whether the whole of it lies on a drive of this size.
    ///
    /// # Errors
    /// [`MediaError::Short`].
    pub fn check(&self, drive_bytes: u64) -> Result<(), MediaError> {
        let there = drive_bytes.saturating_sub(self.offset_bytes);
        if there >= self.bytes as u64 { Ok(()) } else { Err(self.short(there as usize)) }
    }

    fn short(&self, moved: usize) -> MediaError {
        MediaError::Short { offset_bytes: self.offset_bytes, bytes: self.bytes, moved }
    }

    /// The operating system failed it. The words are without the number that the system's text ends with.
    pub fn os_error(&self, errno: i32) -> MediaError {
        let text = io::Error::from_raw_os_error(errno).to_string();
        let message = text.split(" (os error").next().unwrap_or_default().to_owned();
        let &Transfer { operation, offset_bytes, bytes, .. } = self;
        MediaError::Os { operation, offset_bytes, bytes, errno, message }
    }

    /// Takes the result of one system call: `None` when there is more to move.
    pub fn advance(&mut self, result: Result<usize, i32>) -> Option<Result<(), MediaError>> {
        match result {
            Err(errno) if errno == rustix::io::Errno::INTR.raw_os_error() => None,
            Err(errno) => Some(Err(self.os_error(errno))),
            Ok(bytes) => {
                let moved = self.moved + bytes;
                // A part of a block cannot be continued with O_DIRECT: the block is moved again.
                let whole = moved - moved % BLOCK_BYTES;
                if moved >= self.bytes {
                    Some(Ok(()))
                } else if whole > self.moved {
                    self.moved = whole;
                    None
                } else {
                    Some(Err(self.short(moved)))
                }
            }
        }
    }
}

/// The memory of an operation.
pub enum Memory {
    /// Written from; shared with the engine.
    Write(Arc<AlignedBuffer>),
    /// Read into; handed back.
    Read(AlignedBuffer),
}

/// An operation whose alignment and lengths have been checked.
pub struct Request {
    /// Its id.
    pub id: OperationId,
    /// The drive that it goes to.
    pub drive: DriveNumber,
    /// Where on the drive, and how far it has come.
    pub transfer: Transfer,
    /// From where, or where to.
    pub memory: Memory,
}

impl Request {
    /// Of what the engine asks for.
    ///
    /// # Panics
    /// As [`Transfer::new`].
    pub fn new(id: OperationId, operation: Operation) -> Self {
        match operation {
            Operation::Write { drive, offset_bytes, buffer, bytes } => {
                let transfer = Transfer::new("write", offset_bytes, bytes, &buffer);
                Request { id, drive, transfer, memory: Memory::Write(buffer) }
            }
            Operation::Read { drive, offset_bytes, buffer, bytes } => {
                let transfer = Transfer::new("read", offset_bytes, bytes, &buffer);
                Request { id, drive, transfer, memory: Memory::Read(buffer) }
            }
        }
    }

    /// Ends it.
    pub fn complete(self, result: Result<(), MediaError>) -> Completion {
        let buffer = match self.memory {
            Memory::Write(_) => None,
            Memory::Read(buffer) => Some(buffer),
        };
        Completion { id: self.id, result, buffer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: usize) -> Transfer {
        Transfer::new("read", 8192, bytes, &AlignedBuffer::zeroed(bytes))
    }

    #[test]
    fn short_transfers_go_on_at_a_whole_block_and_end_where_nothing_moves() {
        let mut transfer = read(3 * BLOCK_BYTES);
        assert_eq!(transfer.advance(Err(4)), None, "EINTR");
        assert_eq!(transfer.advance(Ok(BLOCK_BYTES + 5)), None);
        assert_eq!(transfer.moved, BLOCK_BYTES);
        assert_eq!(transfer.advance(Ok(7)), Some(Err(transfer.short(BLOCK_BYTES + 7))));
        assert_eq!(transfer.advance(Ok(0)), Some(Err(transfer.short(BLOCK_BYTES))));
        assert_eq!(transfer.advance(Ok(2 * BLOCK_BYTES)), Some(Ok(())));
    }

    #[test]
    fn errors_name_the_operation_once_with_its_numbers() {
        let error = read(BLOCK_BYTES).advance(Err(5)).expect("over").expect_err("EIO");
        let text = "read of 4096 bytes at byte 8192 failed: Input/output error (os error 5)";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn the_end_of_the_drive_is_known_without_overflow() {
        let mut transfer = read(2 * BLOCK_BYTES);
        assert_eq!(transfer.check(16384), Ok(()));
        assert_eq!(transfer.check(12288), Err(transfer.short(4096)));
        assert_eq!(transfer.check(0), Err(transfer.short(0)));
        transfer.offset_bytes = u64::MAX - 4095;
        assert_eq!(transfer.check(u64::MAX), Err(transfer.short(4095)));
    }

    #[test]
    #[should_panic(expected = "not whole blocks")]
    fn parts_of_blocks_are_refused_at_once() {
        let buffer = AlignedBuffer::zeroed(1);
        let operation = Operation::Read { drive: DriveNumber(0), offset_bytes: 0, buffer, bytes: 100 };
        Request::new(OperationId(1), operation);
    }
}
