//! What can be wrong with a file and its events.

use std::io;

/// A file that cannot be read further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.words())]
pub struct InputError {
    /// Where in the file the event starts, in bytes; or the record, when it is one that belongs to no event.
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
        let InputError { events_before, problem, .. } = self;
        if let (true, Problem::Io { message, .. }) = (self.is_not_opened(), problem) {
            return format!(
                "it cannot be opened: {message}. Nothing of it was taken. Check the name and the permissions, then take this file"
            );
        }
        format!(
            "{}: {problem}. The {events_before} good events before it are kept; nothing from this byte on was taken. {}",
            self.place(),
            problem.advice()
        )
    }

    /// Where in the file the damage is: `event at byte 92`, or `byte 92` when it is in no event.
    pub fn place(&self) -> String {
        let between = matches!(self.problem, Problem::Record { .. } | Problem::NoTail | Problem::AfterTail);
        format!("{}byte {}", if between { "" } else { "event at " }, self.event_offset)
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
        "expected a FASER raw event (byte 0xBB), an LHCb MDF record (its size three times) or a BESIII file (0x1234aaaa), \
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
    /// An element within another one that reaches beyond the end of that.
    #[error("the {what} at byte {at} of the event needs {expected} bytes, what it lies in has {found} left")]
    Nested {
        /// What is too long.
        what: &'static str,
        /// Where it starts.
        at: u64,
        /// Bytes that it says it has.
        expected: u64,
        /// Bytes that are left.
        found: u64,
    },
    /// A header whose length is not that of the words that it counts.
    #[error(
        "the header of the {what} at byte {at} of the event counts {expected} words or more, found {found} as its length"
    )]
    HeaderWords {
        /// Of what the header is.
        what: &'static str,
        /// Where it starts.
        at: u64,
        /// Words of its fields, and of the status and specific words that it counts.
        expected: u64,
        /// Words that it says it has.
        found: u64,
    },
    /// A ROD whose counts do not add up.
    #[error(
        "expected a ROD of {expected} words at byte {at} of the event, as its ROB holds, found that its counts give {found}"
    )]
    RodWords {
        /// Where it starts.
        at: u64,
        /// Words that its ROB has for it.
        expected: u64,
        /// Words of its header, data, status and trailer.
        found: u64,
    },
    /// A record of another length than such records have.
    #[error("expected {expected} words of {what} at byte {at} of the event, found {found}")]
    RecordWords {
        /// What the record is.
        what: &'static str,
        /// Where it starts.
        at: u64,
        /// Its length in words.
        expected: u32,
        /// The length that it gives.
        found: u32,
    },
    /// A name that is longer than any should be.
    #[error("expected a name of at most {expected} bytes at byte {at} of the event, found {found}")]
    NameLength {
        /// Where its length is.
        at: u64,
        /// The longest that is read.
        expected: u32,
        /// The length that it gives.
        found: u32,
    },
    /// An event of another size than the separator before it says.
    #[error("expected an event of {expected} bytes as the data separator before it gives, found one of {found}")]
    BlockBytes {
        /// The size in the separator.
        expected: u64,
        /// The size in the event's header.
        found: u64,
    },
    /// The tail of the file counts other events than there are.
    #[error("expected {expected} events as the tail of the file counts, found {found}")]
    TailEvents {
        /// The count of the tail.
        expected: u32,
        /// Events that were read, modulo 2^32.
        found: u32,
    },
    /// A record of the file that belongs to no event is damaged; its places are bytes of that record.
    #[error("in the {record} that starts there: {}", in_record(.problem))]
    Record {
        /// Which record.
        record: &'static str,
        /// What is wrong.
        problem: Box<Problem>,
    },
    /// The file ends behind an event, without its tail.
    #[error("expected a data separator or the tail of the file, found the end of the file")]
    NoTail,
    /// Something follows the tail of the file.
    #[error("expected the end of the file behind its tail, found more bytes")]
    AfterTail,
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

/// The words of a problem whose places are in a record.
fn in_record(problem: &Problem) -> String {
    problem.to_string().replace("of the event", "of it").replace("within the event", "within it")
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
            Problem::UnknownFormat { .. } => {
                "Check that this is the right file: Forebay reads FASER raw, LHCb MDF and BESIII raw."
            }
            Problem::Truncated { .. } => {
                "Compare the file's size with that of its origin and copy it again; if the origin is cut too, its \
                 last event is gone."
            }
            Problem::NoTail => {
                "Compare the file's size with that of its origin and copy it again; if the origin has no tail either, \
                 its writer was stopped, and what it had not written is gone."
            }
            Problem::Record { problem, .. } => problem.advice(),
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

    /// The same, in a record that belongs to no event.
    pub(crate) fn in_record(self, record: &'static str) -> Problem {
        Problem::Record { record, problem: Box::new(self) }
    }

    pub(crate) fn io(error: &io::Error) -> Problem {
        Problem::Io { kind: error.kind(), message: error.to_string() }
    }
}
