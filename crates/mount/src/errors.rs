//! What programs are told: the numbers of errors.

use forebay_client::files::{ReadFailure, WriteFailure};
use forebay_client::{ErrorCode, SessionError};
use forebay_types::{FileOutcome, NameOutcome, ReadOutcome};
use fuser::Errno;

/// Of a request without an answer that can be used.
pub(crate) fn of_session(error: &SessionError) -> Errno {
    match error {
        SessionError::Refused { reply, .. } if reply.code == ErrorCode::ReadOnly => Errno::EROFS,
        _ => Errno::EIO,
    }
}

/// Of a name; what was done is no error.
pub(crate) fn of_name(outcome: NameOutcome) -> Result<(), Errno> {
    Err(match outcome {
        NameOutcome::Done => return Ok(()),
        NameOutcome::NotFound => Errno::ENOENT,
        NameOutcome::Exists => Errno::EEXIST,
        NameOutcome::NotDirectory => Errno::ENOTDIR,
        NameOutcome::IsDirectory => Errno::EISDIR,
        NameOutcome::NotEmpty => Errno::ENOTEMPTY,
        NameOutcome::BadName | NameOutcome::IntoItself => Errno::EINVAL,
        NameOutcome::TooLong => Errno::ENAMETOOLONG,
        NameOutcome::TooManyLinks => Errno::EMLINK,
        NameOutcome::NoNumbers | NameOutcome::NoSpace | NameOutcome::IndexFull => Errno::ENOSPC,
        NameOutcome::ReadOnly => Errno::EROFS,
        NameOutcome::Unavailable | NameOutcome::Stale => Errno::EIO,
    })
}

/// Of a change of a file; what was done is no error.
pub(crate) fn of_file(outcome: FileOutcome) -> Result<(), Errno> {
    Err(match outcome {
        FileOutcome::Done => return Ok(()),
        FileOutcome::Removed => Errno::ESTALE,
        FileOutcome::Sealed => Errno::EPERM,
        FileOutcome::Conflict => Errno::EBUSY,
        FileOutcome::NoSpace | FileOutcome::IndexFull => Errno::ENOSPC,
        FileOutcome::TooLarge => Errno::EFBIG,
        FileOutcome::ReadOnly => Errno::EROFS,
        FileOutcome::NoFiles => Errno::ENOSYS,
        FileOutcome::ChecksumMismatch
        | FileOutcome::Unavailable
        | FileOutcome::NotOpen
        | FileOutcome::TooManyChanges => Errno::EIO,
    })
}

/// Of a read, or of what is known of a file; what was never written to holds nothing, which is no error.
pub(crate) fn of_read(outcome: ReadOutcome) -> Result<(), Errno> {
    match outcome {
        ReadOutcome::Found | ReadOutcome::NotFound => Ok(()),
        ReadOutcome::Deleted => Err(Errno::ESTALE),
        ReadOutcome::Unavailable | ReadOutcome::Lost => Err(Errno::EIO),
    }
}

/// Of bytes that could not be read ahead.
pub(crate) fn of_read_failure(failure: &ReadFailure) -> Errno {
    match failure {
        ReadFailure::Outcome(outcome) => of_read(*outcome).err().unwrap_or(Errno::EIO),
        ReadFailure::Session(error) => of_session(error),
    }
}

/// Of bytes that could not be written behind.
pub(crate) fn of_write_failure(failure: &WriteFailure) -> Errno {
    match failure {
        WriteFailure::Refused { outcome, .. } => of_file(*outcome).err().unwrap_or(Errno::EIO),
        WriteFailure::Session(error) => of_session(error),
        WriteFailure::AppendUnknown { .. } => Errno::EIO,
    }
}

/// Whether the same may be done later.
pub(crate) fn may_change(outcome: FileOutcome) -> bool {
    matches!(outcome, FileOutcome::NoSpace | FileOutcome::Unavailable | FileOutcome::IndexFull)
}

/// The same of names.
pub(crate) fn name_may_change(outcome: NameOutcome) -> bool {
    matches!(outcome, NameOutcome::NoSpace | NameOutcome::Unavailable | NameOutcome::IndexFull)
}
