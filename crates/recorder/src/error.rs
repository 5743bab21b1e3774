//! Why a recorder ends without having recorded everything.

use std::io;
use std::path::PathBuf;

use forebay_types::StreamName;

use crate::directory::DirectoryError;
use crate::machine::{MachineError, StartError};
use crate::store::StoreError;

/// What happened, what it means for the data, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum RecorderError {
    /// Another recorder works there.
    #[error(
        "another recorder works in {}; two would record events twice, so this one did nothing. Stop the other one or use another directory",
        .directory.display()
    )]
    Locked {
        /// The directory.
        directory: PathBuf,
    },
    /// The directory cannot be locked.
    #[error(
        "cannot lock {}: {source}; nothing was recorded or released. Use a directory on a file system with locks (flock)",
        .directory.display()
    )]
    Lock {
        /// The directory.
        directory: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A directory cannot be read or written.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// A directory that the recorder does not touch.
    #[error("{}: {source}", .path.display())]
    Start {
        /// The directory of the stream.
        path: PathBuf,
        /// Why not.
        source: StartError,
    },
    /// A stream was given up.
    #[error("stream {stream}: {source}")]
    Stream {
        /// The stream.
        stream: StreamName,
        /// Why.
        source: MachineError,
    },
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RecorderError {
    /// Whether the same may succeed later without anything being repaired: exit code 3 instead of 1.
    pub const fn is_retryable(&self) -> bool {
        match self {
            RecorderError::Locked { .. } => true,
            RecorderError::Stream { source, .. } => source.is_retryable(),
            RecorderError::Store(error) => error.retryable,
            RecorderError::Directory(_) | RecorderError::Lock { .. } | RecorderError::Start { .. } => false,
        }
    }
}
