//! How a file is written, and why something was not.

use std::time::Duration;

use forebay_protocol::Opener;
use forebay_types::{FileNumber, FileOutcome};

use crate::session::SessionError;

/// How a file is written.
#[derive(Clone, Debug)]
pub struct WriteConfig {
    /// The file.
    pub file: FileNumber,
    /// Who has opened it, for writing.
    pub opener: Opener,
    /// The server chooses the place of all that is written: where the file ends then. Pieces go one after the other.
    pub append: bool,
    /// Bytes of a piece, at most.
    pub piece_bytes_max: usize,
    /// So many bytes without an answer, and one piece that fills.
    pub unanswered_bytes_max: usize,
    /// How long what the store refuses for now is tried again before that is told; `None`: for ever.
    pub patience: Option<Duration>,
    /// Seeds the jitter of waits.
    pub seed: u64,
}

/// Why something was not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteFailure {
    /// The store refused bytes. What may succeed later is kept, and sent when the machine is asked to go on.
    Refused {
        /// Why.
        outcome: FileOutcome,
        /// Where they begin; what was appended has none.
        start: Option<u64>,
        /// How many.
        bytes: u64,
    },
    /// The server gave no answer, or none that can be believed. What may be sent again is kept.
    Session(SessionError),
    /// These bytes were appended or not, and are kept no more.
    AppendUnknown {
        /// How many.
        bytes: u64,
        /// What went wrong.
        last: String,
    },
}
