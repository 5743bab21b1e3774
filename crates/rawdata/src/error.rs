//! What can be wrong with a file, an event, a frame or a set of pieces.

use std::io;

use forebay_types::{RunId, SourceId};

use crate::EVENT_BYTES_MAX;
use crate::event::Format;

/// A file that cannot be read further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.words())]
pub struct InputError {
    /// Where in the file the event starts, in bytes.
    pub event_offset: u64,
    /// How many good events lie before it in the file.
    pub events_before: u64,
    /// What is wrong with it.
    pub problem: Problem,
}

impl InputError {
    /// Whether the file cannot even be opened, for a reason of its name: nothing says that it is damaged.
    pub fn is_not_opened(&self) -> bool {
        let reasons = [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied, io::ErrorKind::IsADirectory];
        matches!(&self.problem, Problem::Io { kind, .. } if reasons.contains(kind))
    }

    fn words(&self) -> String {
        let InputError { event_offset, events_before, problem } = self;
        if let (true, Problem::Io { message, .. }) = (self.is_not_opened(), problem) {
            return format!(
                "it cannot be opened: {message}. Nothing of it was taken. Check the name and the permissions, then take this file"
            );
        }
        format!(
            "event at byte {event_offset}: {problem}. The {events_before} good events before it are kept; nothing from this byte on was \
             taken. {}",
            problem.advice()
        )
    }
}

/// What is wrong with an event. Places (`at`) are bytes from the start of the event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The operating system refused the file or a read of it.
    #[error("reading failed: {message}")]
    Io {
        /// The kind of failure.
        kind: io::ErrorKind,
        /// The operating system's words.
        message: String,
    },
    /// The first bytes are those of no known format.
    #[error(
        "expected a FASER raw event (byte 0xBB) or an LHCb MDF record (its size three times), \
         found {} bytes that start with {found:02x?}", .found.len()
    )]
    UnknownFormat {
        /// The first bytes, at most twelve.
        found: Vec<u8>,
    },
    /// The file ends within the event.
    #[error("expected {expected} bytes, found {found}: the file ends within the event")]
    Truncated {
        /// Bytes of the event, or of its header when not even that is there.
        expected: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// The event says that it is larger than any event may be.
    #[error("its header gives {found} bytes, expected at most {expected}")]
    TooLarge {
        /// The limit in bytes.
        expected: u64,
        /// The size that the header gives.
        found: u64,
    },
    /// The event says that it is smaller than its own header.
    #[error("its header gives {found} bytes, expected at least the {expected} of the header itself")]
    TooSmall {
        /// The smallest possible size in bytes.
        expected: u64,
        /// The size that the header gives.
        found: u64,
    },
    /// The bytes given are not as many as the header says.
    #[error("expected the {expected} bytes that its header gives, found {found}")]
    Length {
        /// The size that the header gives.
        expected: u64,
        /// The bytes that are there.
        found: u64,
    },
    /// A marker is not there.
    #[error("expected the {what} marker {expected:#x} at byte {at} of the event, found {found:#x}")]
    Marker {
        /// Of what the marker is.
        what: &'static str,
        /// Where it should be.
        at: u64,
        /// The marker.
        expected: u32,
        /// What is there instead.
        found: u32,
    },
    /// A version that this program does not know.
    #[error("expected {what} version {expected} at byte {at} of the event, found {found:#x}")]
    Version {
        /// Of what the version is.
        what: &'static str,
        /// Where it is.
        at: u64,
        /// The known ones.
        expected: &'static str,
        /// What is there.
        found: u32,
    },
    /// A header or bank that is shorter than its fields.
    #[error("expected a {what} of at least {expected} bytes at byte {at} of the event, found {found}")]
    Short {
        /// What is too short.
        what: &'static str,
        /// Where it starts.
        at: u64,
        /// The smallest possible size.
        expected: u64,
        /// The size it gives, or the bytes that are left for it.
        found: u64,
    },
    /// A fragment or bank that reaches beyond the end of its event.
    #[error("the {what} at byte {at} of the event needs {expected} bytes, the event has {found} left")]
    Overrun {
        /// What is too long.
        what: &'static str,
        /// Where it starts.
        at: u64,
        /// Bytes that it says it has.
        expected: u64,
        /// Bytes that are left.
        found: u64,
    },
    /// A fragment follows the last one that the header counts.
    #[error("expected {expected} fragments as its header counts, found another one at byte {at} of the event")]
    FragmentCount {
        /// The count of the header.
        expected: u64,
        /// Where the additional fragment starts.
        at: u64,
    },
    /// The three copies of the record size differ.
    #[error("expected three equal copies of the record size, found {}, {} and {}", .found[0], .found[1], .found[2])]
    SizeCopies {
        /// The copies.
        found: [u32; 3],
    },
    /// The bytes do not have the checksum that the header gives.
    #[error("expected the checksum {expected:#010x} of its header, found {found:#010x}")]
    Checksum {
        /// The checksum in the header.
        expected: u32,
        /// The checksum of the bytes.
        found: u32,
    },
    /// A payload of an unknown kind.
    #[error("expected data type 1 (banks) or 2 (MEP), found {found}")]
    DataType {
        /// The data type in the header.
        found: u8,
    },
    /// The compressed payload does not inflate to what it says.
    #[error("its compressed payload: expected {expected} bytes, {detail} after {found}")]
    Inflate {
        /// The raw size that the payload gives.
        expected: u64,
        /// How many bytes came out.
        found: u64,
        /// What happened then.
        detail: &'static str,
    },
    /// A bank within a compressed payload is damaged: its places are bytes of the inflated payload.
    #[error("in its payload of {raw_bytes} bytes, inflated: {}", in_payload(.problem))]
    InPayload {
        /// The size of the payload, inflated.
        raw_bytes: u64,
        /// What is wrong.
        problem: Box<Problem>,
    },
    /// The event's number cannot be found.
    #[error("its event number is unknown: {0}")]
    EventNumber(#[from] NumberUnknown),
    /// The event's run cannot be found.
    #[error("its run is unknown: a header of version 2 has none, and there is no ODIN bank of a known version")]
    Run,
}

/// The words of a problem whose places are in the inflated payload.
fn in_payload(problem: &Problem) -> String {
    problem.to_string().replace("of the event", "of it").replace("the event has", "it has")
}

/// Why the number of an MDF event cannot be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberUnknown {
    /// The payload is a multi-event packet, not banks.
    #[error("the payload is of data type 2 (MEP), which has no banks of its own")]
    Mep,
    /// There is no ODIN bank.
    #[error("expected an ODIN bank (type 16), found none")]
    NoOdin,
    /// The ODIN bank is of a version whose layout is not known.
    #[error("expected an ODIN bank of version 2 to 6, found version {found}")]
    OdinVersion {
        /// Its version.
        found: u8,
    },
    /// The ODIN bank is too short to hold the number.
    #[error("expected an ODIN bank with at least {expected} bytes of body, found {found}")]
    OdinShort {
        /// Bytes that the fields need.
        expected: u64,
        /// Bytes of its body.
        found: u64,
    },
    /// The payload is compressed by something other than zlib.
    #[error("expected a zlib payload (5a 4c 08), found {found:02x?}")]
    Compression {
        /// The first bytes of the payload.
        found: [u8; 3],
    },
}

impl Problem {
    /// What a person should do now.
    pub fn advice(&self) -> &'static str {
        match self {
            Problem::Io { .. } => {
                "Look at the drive that the file is on; when it can be read again, take this file once more."
            }
            Problem::UnknownFormat { .. } => "Check that this is the right file: Forebay reads FASER raw and LHCb MDF.",
            Problem::Truncated { .. } => {
                "Compare the file's size with that of its origin and copy it again; if the origin is cut too, its \
                 last event is gone."
            }
            Problem::Version { .. } | Problem::DataType { .. } | Problem::TooLarge { .. } => {
                "If the file's checksum is that of its origin, the file is of a kind that this version of Forebay \
                 does not read; otherwise copy it again."
            }
            Problem::EventNumber(_) | Problem::Run => {
                "The event's bytes are well-formed, but it cannot be told from others: leave this file out, or \
                 put its events by other numbers."
            }
            _ => "Compare the file's checksum with that of its origin and copy it again.",
        }
    }

    /// The same, of a payload that was inflated to `raw_bytes`.
    pub(crate) fn in_payload(self, raw_bytes: usize) -> Problem {
        Problem::InPayload { raw_bytes: raw_bytes as u64, problem: Box::new(self) }
    }

    pub(crate) fn io(error: &io::Error) -> Problem {
        Problem::Io { kind: error.kind(), message: error.to_string() }
    }
}

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
}
