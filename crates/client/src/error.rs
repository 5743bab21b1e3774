//! What can go wrong for a caller.

use std::io;
use std::time::Duration;

use forebay_protocol::{ErrorCode, FrameError};
use forebay_types::{EventKey, FragmentId, ReadOutcome, StoreUuid};

use crate::session::Part;

/// What happened, what it means for the data, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address cannot be resolved.
    #[error("{address:?} is no address of a server: {source}; nothing was sent. Give HOST:PORT, as in 127.0.0.1:7420")]
    Address {
        /// What was given.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// Nothing listens where a server should.
    #[error(
        "nothing listens at {address}: no server runs there. Nothing was asked or changed. Start it (`forebay serve`), name another one \
         (--server HOST:PORT), or look at the drives of a stopped one (`forebay doctor`)"
    )]
    NobodyListens {
        /// The server.
        address: String,
    },
    /// No answer before the deadline.
    #[error(
        "no answer from {address} within {waited:.1?}: {last}. {} See whether the server runs and what its log says",
        after_silence(request)
    )]
    Deadline {
        /// The server.
        address: String,
        /// What was asked.
        request: &'static str,
        /// How long it was tried.
        waited: Duration,
        /// What went wrong last.
        last: String,
    },
    /// Some puts were given up at their deadline without an answer; their results say which.
    #[error(
        "{puts} puts got no answer from {address} before their deadline: {last}. These fragments may or may not be stored; \
         keep them and put them again, which is safe"
    )]
    PutsUnanswered {
        /// The server.
        address: String,
        /// How many.
        puts: usize,
        /// What went wrong last.
        last: String,
    },
    /// Some puts were not taken; their results say which.
    #[error(
        "{puts} puts were not stored: {reason}. Keep these fragments, see to the reason, and put them again, which is safe"
    )]
    PutsRefused {
        /// How many.
        puts: usize,
        /// Why the first of them was not.
        reason: Box<ClientError>,
    },
    /// The server refused.
    #[error("{address} refuses: {sentence}")]
    Refused {
        /// The server.
        address: String,
        /// What was asked.
        request: &'static str,
        /// The server's number for it.
        code: ErrorCode,
        /// Whether the server expects the same request to succeed later.
        retryable: bool,
        /// The server's words.
        sentence: String,
    },
    /// What answers does not speak the protocol.
    #[error(
        "{address} does not answer as a Forebay server does: {error}. Nothing it said was believed; check host and port, and that client and server are of versions that fit"
    )]
    Protocol {
        /// The server.
        address: String,
        /// What was wrong.
        error: FrameError,
    },
    /// What answers speaks the protocol but breaks its rules.
    #[error(
        "{address} broke the protocol: {what}. Nothing it said in that answer was believed; please report this with the server's log"
    )]
    Broken {
        /// The server.
        address: String,
        /// How.
        what: String,
    },
    /// Another store came up behind the same address.
    #[error(
        "behind {address} is now store {found} instead of {expected}; nothing was sent to it, what the first one acknowledged \
         is still there. Connect anew if the change is meant"
    )]
    OtherStore {
        /// The server.
        address: String,
        /// The store that this client began with.
        expected: StoreUuid,
        /// The store that greeted now.
        found: StoreUuid,
    },
    /// A fragment could not be read.
    #[error("fragment {id} could not be read: {outcome}; {}", advice(*outcome))]
    Read {
        /// The fragment.
        id: FragmentId,
        /// What the server said.
        outcome: ReadOutcome,
    },
    /// Something came repeatedly with bytes that are not its own.
    #[error(
        "{part} came {times} times with the wrong bytes: CRC32C {found:#010x} instead of {expected:#010x}. They were not used; \
         the stored bytes may still be good: look at the network and at the server's memory"
    )]
    Damaged {
        /// What came.
        part: Part,
        /// How often it was tried.
        times: u32,
        /// What its writer computed.
        expected: u32,
        /// What came last.
        found: u32,
    },
    /// The connection was lost before the answer to something came that must not be done twice.
    #[error(
        "nobody knows whether {address} did what was asked ({request}): {last}. It is done once or not at all, and is not asked again, as \
         it might be done twice. Look what is there before you repeat it"
    )]
    Unknown {
        /// The server.
        address: String,
        /// What was asked.
        request: &'static str,
        /// What went wrong.
        last: String,
    },
    /// A fragment that this store does not take.
    #[error(
        "fragment {id} has {bytes} bytes; this store takes at most {max}. It was not sent; cut it, or use a store with larger slots"
    )]
    TooLarge {
        /// The fragment.
        id: FragmentId,
        /// Its bytes.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// A decision that cannot be said.
    #[error(
        "the decision on event {key} accepts it into {streams} streams; an acceptance names 1 to 64. No decision of this call was sent"
    )]
    Streams {
        /// The event.
        key: EventKey,
        /// How many it names.
        streams: usize,
    },
    /// The operating system refused a socket.
    #[error(
        "the system refused what a connection to {address} needs: {source}. What was not acknowledged may or may not be stored; putting it \
         again is safe. See how many files this process may have open (`ulimit -n`)"
    )]
    System {
        /// The server.
        address: String,
        /// Its words.
        source: io::Error,
    },
}

impl ClientError {
    /// Whether the same call may succeed later.
    pub const fn is_retryable(&self) -> bool {
        match self {
            ClientError::NobodyListens { .. }
            | ClientError::Deadline { .. }
            | ClientError::PutsUnanswered { .. }
            | ClientError::System { .. } => true,
            ClientError::Refused { retryable, .. } => *retryable,
            ClientError::PutsRefused { reason, .. } => reason.is_retryable(),
            ClientError::Read { outcome, .. } => matches!(outcome, ReadOutcome::Unavailable),
            _ => false,
        }
    }
}

/// What it means that a request has no answer.
fn after_silence(request: &str) -> &'static str {
    match request {
        "Put" | "Delete" | "Decide" | "Release" => {
            "What was not acknowledged may or may not be stored; repeating the call is safe."
        }
        "FileWrite" | "FileSet" | "FileSeal" | "ChangeName" => {
            "What was asked of files and names and not answered may or may not be done; see what is there."
        }
        "ChangeRun" | "DefineStream" => {
            "What was asked may or may not be done; `forebay run show` and `forebay stream show` tell once the server answers."
        }
        "ChangeDrive" | "InjectFault" => {
            "What was asked may or may not be done; `forebay drive list` shows it once the server answers."
        }
        _ => "Nothing that is stored was changed by it; repeating the call is safe.",
    }
}

/// What a reader can do about it.
const fn advice(outcome: ReadOutcome) -> &'static str {
    match outcome {
        ReadOutcome::Found => "nothing is wrong with it",
        ReadOutcome::NotFound => "it was never acknowledged by this server: check run, event and source",
        ReadOutcome::Deleted => "its bytes are gone, as was asked; there is nothing to do",
        ReadOutcome::Unavailable => "its bytes still exist: try again when the drives are back (`forebay status`)",
        ReadOutcome::Lost => {
            "this store cannot give its bytes any more: `forebay lost` says why and what else is; look for another copy"
        }
    }
}
