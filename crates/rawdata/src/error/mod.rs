//! What can be wrong with a file, an event, a frame or a set of pieces.

mod problem;

use forebay_types::{EventId, RunId, SourceId};

use crate::EVENT_BYTES_MAX;
use crate::event::Format;

pub use problem::{InputError, NumberUnknown, Problem};

/// An event that cannot be split into fragments.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// The event is damaged.
    #[error("{0}. The event was not split and none of it is stored. {advice}", advice = .0.advice())]
    Event(#[from] Problem),
    /// A read-out unit has the number that stands for the frame.
    #[error(
        "the fragment at byte {at} of the event has source 0xFFFFFFFF, which stands for the event's frame. The \
         event was not split and none of it is stored. Give that read-out unit another source id."
    )]
    ReservedSource {
        /// Where in the event the fragment starts.
        at: u64,
    },
}

/// Bytes that are no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Too few bytes.
    #[error("expected at least {expected} bytes of frame, found {found}")]
    Short {
        /// Bytes that are needed.
        expected: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// It does not start as a frame does.
    #[error("expected the frame marker {expected:02x?}, found {found:02x?}")]
    Magic {
        /// The marker.
        expected: [u8; 4],
        /// What is there instead.
        found: [u8; 4],
    },
    /// A version, format number or flag that this program does not know.
    #[error("expected {what} {expected}, found {found}: written by a newer Forebay, or damaged")]
    Unknown {
        /// Which field.
        what: &'static str,
        /// What is known.
        expected: &'static str,
        /// What is there.
        found: u32,
    },
    /// The entries do not account for the loose bytes.
    #[error("its entries account for {expected} loose bytes, found {found}")]
    Loose {
        /// The sum over the entries.
        expected: u64,
        /// Bytes after the entries.
        found: u64,
    },
    /// The event would be larger than any event may be.
    #[error("its event would have {found} bytes, expected at most {EVENT_BYTES_MAX}")]
    TooLarge {
        /// The sum of all entries in bytes.
        found: u64,
    },
}

/// Pieces that make no event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The frame is not among the pieces.
    #[error(
        "the event's frame (source 0xFFFFFFFF) is not among its {pieces} pieces; without it the order of the \
         others is not known"
    )]
    NoFrame {
        /// How many pieces there are.
        pieces: usize,
    },
    /// The frame is damaged.
    #[error("the event's frame is damaged: {0}")]
    Frame(#[from] FrameError),
    /// Sources that the frame names are not among the pieces.
    #[error("{} of the event's sources are missing, the first is {}", .sources.len(), .sources.first().map_or(0, |s| s.0))]
    Missing {
        /// All of them, in the order of the event.
        sources: Vec<SourceId>,
    },
    /// The same source twice.
    #[error("source {source_id} is there twice")]
    Duplicate {
        /// The source.
        source_id: SourceId,
    },
    /// A source that the frame does not name.
    #[error("source {source_id} is not of this event: its frame does not name it")]
    Unexpected {
        /// The source.
        source_id: SourceId,
    },
    /// A piece that is longer or shorter than the frame says.
    #[error("source {source_id}: expected {expected} bytes as the frame says, found {found}")]
    Length {
        /// The source.
        source_id: SourceId,
        /// Bytes that the frame gives.
        expected: u64,
        /// Bytes of the piece.
        found: u64,
    },
    /// What remains without the missing sources is no event.
    #[error("what remains without the missing sources is no well-formed {format} event: {problem}")]
    Remainder {
        /// The format of the event.
        format: Format,
        /// What is wrong with it.
        problem: Problem,
    },
}

/// An event that cannot be given other numbers. The event is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenumberError {
    /// The event is damaged.
    #[error("{0}. The event was not renumbered. {advice}", advice = .0.advice())]
    Event(#[from] Problem),
    /// The format's field for the run is too small.
    #[error("run {run} does not fit into the {format} format, whose largest is {largest}; choose a smaller run number")]
    RunTooLarge {
        /// The run asked for.
        run: RunId,
        /// The format of the event.
        format: Format,
        /// The largest run of the format.
        largest: u32,
    },
    /// The format's field for the event number is too small.
    #[error(
        "event number {event} does not fit into the {format} format, whose largest is {largest}; choose a smaller number"
    )]
    EventTooLarge {
        /// The number asked for.
        event: EventId,
        /// The format of the event.
        format: Format,
        /// The largest number of the format.
        largest: u64,
    },
}
