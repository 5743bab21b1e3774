//! What went wrong, as C is told it: a code, a number of POSIX, and the words of the Rust client.

use forebay_client::files::FileError;
use forebay_client::{ClientError, ErrorCode};
use forebay_types::ReadOutcome;

use crate::code::*;

/// What went wrong.
pub(crate) struct Failure {
    pub(crate) code: i32,
    pub(crate) errno: i32,
    pub(crate) is_retryable: bool,
    /// What happened, what it means for the data, and what to do.
    pub(crate) message: String,
}

impl Failure {
    /// What was given cannot be meant.
    pub(crate) fn invalid(what: impl Into<String>) -> Failure {
        let message = format!("{}; nothing was asked or changed. Correct the call", what.into());
        Failure { code: FOREBAY_INVALID, errno: libc::EINVAL, is_retryable: false, message }
    }

    /// A mistake of ours.
    pub(crate) fn internal(what: &str) -> Failure {
        let message = format!(
            "a mistake inside the library: {what}. What was not acknowledged may or may not be stored; free the handle, make another one, and please report \
             this"
        );
        Failure { code: FOREBAY_INTERNAL, errno: libc::EIO, is_retryable: false, message }
    }

    /// Something of a file that is not known.
    pub(crate) fn of_path(code: i32, errno: i32, is_retryable: bool, message: String) -> Failure {
        Failure { code, errno, is_retryable, message }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        let (code, errno) = of_client(&error);
        Failure { code, errno, is_retryable: error.is_retryable(), message: error.to_string() }
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Failure {
        let (code, errno) = of_file(&error);
        Failure { code, errno, is_retryable: error.is_retryable(), message: error.to_string() }
    }
}

fn of_client(error: &ClientError) -> (i32, i32) {
    match error {
        ClientError::Address { .. } => (FOREBAY_NO_SERVER, libc::EHOSTUNREACH),
        ClientError::NobodyListens { .. } => (FOREBAY_NO_SERVER, libc::ECONNREFUSED),
        ClientError::Deadline { .. } | ClientError::PutsUnanswered { .. } => (FOREBAY_TIMED_OUT, libc::ETIMEDOUT),
        ClientError::PutsRefused { reason, .. } => of_client(reason),
        ClientError::Refused { code: ErrorCode::ReadOnly, .. } => (FOREBAY_READ_ONLY, libc::EROFS),
        ClientError::Refused { code: ErrorCode::TooLarge, .. } => (FOREBAY_TOO_LARGE, libc::EMSGSIZE),
        ClientError::Refused { retryable: true, .. } => (FOREBAY_REFUSED, libc::EAGAIN),
        ClientError::Refused { .. } => (FOREBAY_REFUSED, libc::EACCES),
        ClientError::Protocol { .. } | ClientError::Broken { .. } => (FOREBAY_PROTOCOL, libc::EPROTO),
        ClientError::OtherStore { .. } => (FOREBAY_OTHER_STORE, libc::ESTALE),
        ClientError::Read { outcome, .. } => of_read(*outcome),
        ClientError::Damaged { .. } => (FOREBAY_DAMAGED, libc::EIO),
        ClientError::Unknown { .. } => (FOREBAY_UNKNOWN, libc::EIO),
        ClientError::TooLarge { .. } => (FOREBAY_TOO_LARGE, libc::EMSGSIZE),
        ClientError::Streams { .. } => (FOREBAY_INVALID, libc::EINVAL),
        ClientError::System { source, .. } => (FOREBAY_SYSTEM, source.raw_os_error().unwrap_or(libc::EIO)),
    }
}

/// Of what could not be read.
fn of_read(outcome: ReadOutcome) -> (i32, i32) {
    match outcome {
        ReadOutcome::Found | ReadOutcome::NotFound => (FOREBAY_NOT_FOUND, libc::ENOENT),
        ReadOutcome::Deleted => (FOREBAY_REMOVED, libc::ESTALE),
        ReadOutcome::Unavailable => (FOREBAY_UNAVAILABLE, libc::EIO),
        ReadOutcome::Lost => (FOREBAY_LOST, libc::EIO),
    }
}

fn of_file(error: &FileError) -> (i32, i32) {
    match error {
        FileError::NotFound { .. } => (FOREBAY_NOT_FOUND, libc::ENOENT),
        FileError::Exists { .. } => (FOREBAY_EXISTS, libc::EEXIST),
        FileError::NotDirectory { .. } => (FOREBAY_NOT_DIRECTORY, libc::ENOTDIR),
        FileError::IsDirectory { .. } => (FOREBAY_IS_DIRECTORY, libc::EISDIR),
        FileError::NotFile { .. } => (FOREBAY_NOT_FILE, libc::EINVAL),
        FileError::NotEmpty { .. } => (FOREBAY_NOT_EMPTY, libc::ENOTEMPTY),
        FileError::BadName { .. } | FileError::IntoItself { .. } => (FOREBAY_BAD_NAME, libc::EINVAL),
        FileError::TooLong { .. } => (FOREBAY_TOO_LONG, libc::ENAMETOOLONG),
        FileError::LinkLoop { .. } => (FOREBAY_LINK_LOOP, libc::ELOOP),
        FileError::TooManyLinks { .. } => (FOREBAY_TOO_MANY, libc::EMLINK),
        FileError::TooManyChanges { .. } => (FOREBAY_TOO_MANY, libc::EFBIG),
        FileError::NoNumbers { .. } | FileError::NoSpace { .. } | FileError::IndexFull { .. } => {
            (FOREBAY_NO_SPACE, libc::ENOSPC)
        }
        FileError::Unavailable { .. } | FileError::OutOfReach { .. } => (FOREBAY_UNAVAILABLE, libc::EIO),
        FileError::Damaged { .. } => (FOREBAY_DAMAGED, libc::EIO),
        FileError::NotOpen { .. } | FileError::Closed { .. } => (FOREBAY_CLOSED, libc::EBADF),
        FileError::Conflict { .. } => (FOREBAY_CONFLICT, libc::EBUSY),
        FileError::Sealed { .. } => (FOREBAY_SEALED, libc::EPERM),
        FileError::Removed { .. } => (FOREBAY_REMOVED, libc::ESTALE),
        FileError::TooLarge { .. } => (FOREBAY_TOO_LARGE, libc::EFBIG),
        FileError::NoFiles { .. } => (FOREBAY_NO_FILES, libc::ENOSYS),
        FileError::ReadOnly { .. } => (FOREBAY_READ_ONLY, libc::EROFS),
        FileError::Lost { .. } => (FOREBAY_LOST, libc::EIO),
        FileError::AppendUnknown { .. } | FileError::ChangeUnknown { .. } => (FOREBAY_UNKNOWN, libc::EIO),
        FileError::Client { error, .. } => of_client(error),
    }
}
