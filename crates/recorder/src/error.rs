//! Why a recorder ends without having recorded everything.

use std::path::PathBuf;

use forebay_types::StreamName;

use crate::directory::DirectoryError;
use crate::machine::{MachineError, StartError};
use crate::store::StoreError;

/// What happened, what it means for the data, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum RecorderError {
    /// An option that leaves nothing to be done with.
    #[error("{option} is 0; nothing was recorded or released. Give at least 1")]
    Zero {
        /// The option.
        option: &'static str,
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
        source: Box<MachineError>,
    },
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store had lost some of what it had accepted. Everything else is recorded.
    #[error(
        "{fragments} fragments of accepted events are lost in the store: their events are recorded without them, marked incomplete in the \
         .json of their file, and released. The first: {first}. Look at the drives of the store (forebay status)"
    )]
    Lost {
        /// How many.
        fragments: u64,
        /// The first event, in words.
        first: String,
    },
}

impl RecorderError {
    /// Whether the same may succeed later without anything being repaired: exit code 3 instead of 1.
    pub fn is_retryable(&self) -> bool {
        match self {
            RecorderError::Directory(error) => error.is_retryable(),
            RecorderError::Stream { source, .. } => source.is_retryable(),
            RecorderError::Store(error) => error.retryable,
            RecorderError::Zero { .. } | RecorderError::Start { .. } | RecorderError::Lost { .. } => false,
        }
    }
}
