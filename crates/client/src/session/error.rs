//! Why a session gives something up.

use std::fmt;
use std::time::Duration;

use forebay_protocol::{ErrorReply, FrameError};
use forebay_types::{FileNumber, FragmentId, StoreUuid};

/// Why a request, or the session as a whole, was given up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// No answer before the deadline.
    #[error("no answer to {request} within {waited:.1?}: {last}")]
    Deadline {
        /// What was asked.
        request: &'static str,
        /// How long it was tried.
        waited: Duration,
        /// What went wrong last.
        last: String,
    },
    /// The server refused for good.
    #[error("the server refused {request} ({}): {}", reply.code, reply.sentence)]
    Refused {
        /// What was asked.
        request: &'static str,
        /// Its words.
        reply: ErrorReply,
    },
    /// What answers does not speak the protocol.
    #[error("{0}")]
    Protocol(#[from] FrameError),
    /// What answers breaks the rules of the protocol.
    #[error("{0}")]
    Broken(String),
    /// Another store came up behind the same address.
    #[error("store {found} answers instead of {expected}")]
    OtherStore {
        /// The store that this session began with.
        expected: StoreUuid,
        /// The store that greeted now.
        found: StoreUuid,
    },
    /// Something came repeatedly with bytes that are not its own.
    #[error("{part} came {times} times with CRC32C {found:#010x} instead of {expected:#010x}")]
    Damaged {
        /// What came.
        part: Part,
        /// How often.
        times: u32,
        /// What its writer computed.
        expected: u32,
        /// What came last.
        found: u32,
    },
    /// The connection was lost before the answer came, the request must not be made twice, and the server that it went to remembers nothing of it: nobody knows whether it was done.
    #[error("nobody knows whether {request} was done: {last}")]
    Unknown {
        /// What was asked.
        request: &'static str,
        /// What went wrong.
        last: String,
    },
}

/// Bytes that are read as a whole and have a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A fragment.
    Fragment(FragmentId),
    /// What was read of a file from there on.
    File {
        /// The file.
        file: FileNumber,
        /// Where the bytes begin.
        start: u64,
    },
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Fragment(id) => write!(f, "fragment {id}"),
            Part::File { file, start } => write!(f, "file number {file} from byte {start} on"),
        }
    }
}
