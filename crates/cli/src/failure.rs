//! How a command ends when it does not end well, and with which exit code.

use std::path::Path;
use std::{fmt, io};

use forebay_client::files::FileError;
use forebay_client::{ClientError, ErrorCode};
use forebay_types::{DecideOutcome, PutOutcome, ReadOutcome};

/// The exit codes; scripts rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Data are lost, damaged, mismatched, or not what was asked for.
    Data,
    /// The command cannot be done as it was given.
    Usage,
    /// The same command may succeed later.
    Retry,
    /// That of a command which was run.
    Of(u8),
}

impl Exit {
    /// The number.
    pub fn code(self) -> u8 {
        match self {
            Exit::Data => 1,
            Exit::Usage => 2,
            Exit::Retry => 3,
            Exit::Of(code) => code,
        }
    }
}

/// A command that failed: what happened, what it means for the data, what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// For a person.
    pub message: String,
    /// The one object of `--json` was written already.
    pub told_json: bool,
}

impl Failure {
    /// Data are lost, damaged or mismatched.
    pub fn data(message: impl fmt::Display) -> Failure {
        Failure { exit: Exit::Data, message: message.to_string(), told_json: false }
    }

    /// The command cannot be done as it was given.
    pub fn usage(message: impl fmt::Display) -> Failure {
        Failure { exit: Exit::Usage, message: message.to_string(), told_json: false }
    }

    /// The same command may succeed later.
    pub fn retry(message: impl fmt::Display) -> Failure {
        Failure { exit: Exit::Retry, message: message.to_string(), told_json: false }
    }

    /// The object that stands for it on stdout with `--json`.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({ "error": self.message, "exit": self.exit.code() })
    }

    /// A put that was not acknowledged.
    pub fn put(id: impl fmt::Display, outcome: PutOutcome) -> Failure {
        let message = format!("fragment {id} was not stored: {outcome}");
        match outcome {
            PutOutcome::TooLarge
            | PutOutcome::ReadOnly
            | PutOutcome::KeptRun
            | PutOutcome::RunClosed
            | PutOutcome::RunDiscarded => Failure::usage(message),
            outcome if outcome.is_retryable() => Failure::retry(message),
            _ => Failure::data(message),
        }
    }

    /// A deletion or decision that was not done.
    pub fn decide(what: impl fmt::Display, outcome: DecideOutcome) -> Failure {
        let message = format!("{what}: {outcome}");
        match outcome {
            DecideOutcome::NoSpace | DecideOutcome::Unavailable | DecideOutcome::Held => Failure::retry(message),
            DecideOutcome::ReadOnly | DecideOutcome::TooManyStreams => Failure::usage(message),
            _ => Failure::data(message),
        }
    }

    /// A file that cannot be read or written.
    pub fn file(action: &str, path: &Path, error: &io::Error, meaning: &str) -> Failure {
        // The name of a temporary file, which tempfile adds, helps nobody.
        let error_text = error.to_string();
        let plain = error_text.split(" at path ").next().unwrap_or_default();
        let message = format!("cannot {action} {}: {plain}; {meaning}", path.display());
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::Interrupted => {
                Failure::retry(message)
            }
            _ => Failure::usage(message),
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        let message = error.to_string();
        let error = if let ClientError::PutsRefused { reason, .. } = error { *reason } else { error };
        match &error {
            // A name that does not resolve now may do so later; text without a port never will.
            ClientError::Address { source, .. } if source.kind() != io::ErrorKind::InvalidInput => {
                Failure::retry(message)
            }
            ClientError::Address { .. } | ClientError::Streams { .. } | ClientError::TooLarge { .. } => {
                Failure::usage(message)
            }
            error if error.is_retryable() => Failure::retry(message),
            ClientError::Read { outcome: ReadOutcome::Unavailable, .. } => Failure::retry(message),
            ClientError::Refused {
                code: ErrorCode::ReadOnly | ErrorCode::Refused | ErrorCode::Version | ErrorCode::UnknownKind,
                ..
            }
            | ClientError::Protocol { .. } => Failure::usage(message),
            _ => Failure::data(message),
        }
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Failure {
        let message = error.to_string();
        match error {
            FileError::Client { error, .. } => Failure { message, ..Failure::from(error) },
            error if error.is_retryable() => Failure::retry(message),
            FileError::NotFound { .. }
            | FileError::Removed { .. }
            | FileError::Lost { .. }
            | FileError::AppendUnknown { .. }
            | FileError::ChangeUnknown { .. } => Failure::data(message),
            _ => Failure::usage(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_succeed_later_ends_with_3_and_what_is_lost_with_1() {
        let exit = |outcome| Failure::put("1/2/3", outcome).exit;
        assert_eq!(exit(PutOutcome::NoSpace), Exit::Retry);
        assert_eq!(exit(PutOutcome::Conflict), Exit::Data);
        assert_eq!(exit(PutOutcome::ReadOnly), Exit::Usage);
        assert_eq!(exit(PutOutcome::KeptRun), Exit::Usage);
        let exit =
            |outcome| Failure::from(ClientError::Read { id: forebay_types::FragmentId::new(1, 2, 3), outcome }).exit;
        assert_eq!(exit(ReadOutcome::Lost), Exit::Data);
        assert_eq!(exit(ReadOutcome::Deleted), Exit::Data);
        assert_eq!(exit(ReadOutcome::NotFound), Exit::Data);
        assert_eq!(exit(ReadOutcome::Unavailable), Exit::Retry);
    }

    #[test]
    fn a_name_that_is_taken_ends_with_2_one_that_is_not_there_with_1_and_a_full_store_with_3() {
        let path = || "/a".to_owned();
        let exit = |error: FileError| Failure::from(error).exit;
        assert_eq!(exit(FileError::Exists { path: path() }), Exit::Usage);
        assert_eq!(exit(FileError::NotFound { path: path() }), Exit::Data);
        assert_eq!(exit(FileError::Lost { path: path(), offset: 0 }), Exit::Data);
        assert_eq!(exit(FileError::NoSpace { path: path(), acknowledged: None }), Exit::Retry);
        assert_eq!(exit(FileError::OutOfReach { path: path(), offset: 0 }), Exit::Retry);
        let nobody = ClientError::NobodyListens { address: "here:1".to_owned() };
        let failure = Failure::from(FileError::Client { path: path(), error: nobody });
        assert_eq!((failure.exit, failure.message.starts_with("/a: ")), (Exit::Retry, true));
    }

    #[test]
    fn the_object_of_a_failure_has_its_words_and_its_code() {
        let json = Failure::retry("later").json();
        assert_eq!(json, serde_json::json!({"error": "later", "exit": 3}));
    }
}
