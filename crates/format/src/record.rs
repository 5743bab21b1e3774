//! Records: their entries in the tables.

use std::ops::Range;

use forebay_types::limits::FRAGMENT_BYTES_MAX;
use forebay_types::{EventId, EventKey, RunId, SourceId};

use crate::FormatError;
use crate::error::{ensure, within};
use crate::event::event_directory_bytes;
use crate::field::{layout, only_known};
use crate::file::check_file_entry;

/// Bytes of an entry of a table.
pub const TABLE_ENTRY_BYTES: usize = table_entry::BYTES;

/// Payloads begin at multiples of this in the data of their flush.
pub const PAYLOAD_ALIGNMENT_BYTES: u64 = 8;

/// Flag of an entry: the event was decided although fragments were missing.
pub const RECORD_INCOMPLETE: u8 = 1;

layout!(
    /// One record in a table.
    table_entry, 32 {
        KIND: u8 = 0;
        FLAGS: u8 = 1;
        EXPECTED: u16 = 2;
        RUN: u32 = 4;
        EVENT: u64 = 8;
        SOURCE: u32 = 16;
        PAYLOAD_BYTES: u32 = 20;
        PAYLOAD_CRC: u32 = 24;
        OFFSET_UNITS: u32 = 28;
    }
);

/// Flag of an entry: the piece of a file was written where the file ended.
pub const RECORD_APPENDED: u8 = 2;

/// Flag of an entry: the file is sealed.
pub const RECORD_SEALED: u8 = 4;

/// What a record is. The numbers are stored and never given another meaning.
///
/// Only fragments, events and pieces of files have a payload. What the entry of a file says is read by
/// [`FileRecord::of`](crate::FileRecord::of). An acceptance and a release speak of a set of streams: 64 bits, bit n
/// for the stream with number n, which is its place in
/// [`CheckpointBody::streams`](crate::CheckpointBody::streams). The set lies in the entry itself; see
/// [`TableEntry::source`] and [`TableEntry::crc`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RecordKind {
    /// The bytes of one source for one event.
    Fragment = 1,
    /// The event filter does not want the event.
    Reject = 2,
    /// The event filter wants the event, for a set of streams.
    Accept = 3,
    /// An operator deleted the event.
    Delete = 4,
    /// Streams are done with the event; the set says which.
    Release = 5,
    /// All fragments of an event, in one payload: a directory
    /// ([`decode_event_directory`](crate::decode_event_directory)), then their bytes.
    Event = 6,
    /// Bytes of a file.
    Piece = 7,
    /// A range of a file that holds zeros.
    Hole = 8,
    /// How long a file is, when it was written, whether it is sealed.
    State = 9,
    /// The sums of a sealed file.
    Sums = 10,
    /// A file is over.
    End = 11,
}

impl RecordKind {
    /// Every kind.
    pub const ALL: [RecordKind; 11] = [
        RecordKind::Fragment,
        RecordKind::Reject,
        RecordKind::Accept,
        RecordKind::Delete,
        RecordKind::Release,
        RecordKind::Event,
        RecordKind::Piece,
        RecordKind::Hole,
        RecordKind::State,
        RecordKind::Sums,
        RecordKind::End,
    ];

    /// Whether records of this kind have bytes of their own.
    pub const fn has_payload(self) -> bool {
        matches!(self, RecordKind::Fragment | RecordKind::Event | RecordKind::Piece)
    }

    /// Whether records of this kind say how a file is: an end is no such.
    pub const fn is_of_file(self) -> bool {
        matches!(self, RecordKind::Piece | RecordKind::Hole | RecordKind::State | RecordKind::Sums)
    }

    /// The flags that a record of this kind may have. Records of events were never held to fewer than all that there were.
    const fn flags(self) -> u8 {
        match self {
            RecordKind::Piece => RECORD_APPENDED,
            RecordKind::State => RECORD_SEALED,
            RecordKind::Hole | RecordKind::Sums | RecordKind::End => 0,
            _ => RECORD_INCOMPLETE,
        }
    }

    /// The kind with this number.
    ///
    /// # Errors
    /// [`FormatError::UnknownRecordKind`].
    pub fn from_number(number: u8) -> Result<Self, FormatError> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number).ok_or(FormatError::UnknownRecordKind { found: number })
    }
}

/// One record of a table: what it is, and where its payload lies in the data of its flush.
///
/// The fields have the meanings here for fragments and what is decided on events; of a record of a file
/// [`FileRecord::of`](crate::FileRecord::of) reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// What it is.
    pub kind: RecordKind,
    /// [`RECORD_INCOMPLETE`], or for files [`RECORD_APPENDED`] or [`RECORD_SEALED`], or nothing.
    pub flags: u8,
    /// Fragments that the event should have; 0 when not known, and in all records but fragments and events.
    pub expected: u16,
    /// The run.
    pub run: RunId,
    /// The event.
    pub event: EventId,
    /// The source of a fragment; of an acceptance or a release the lower half of its set of streams; of an event
    /// how many fragments are in it; 0 for other records.
    pub source: SourceId,
    /// Bytes of the payload; 0 for all records but fragments and events.
    pub bytes: u32,
    /// CRC32C of the payload of a fragment or an event; of an acceptance or a release the upper half of its set of streams; 0
    /// for other records.
    pub crc: u32,
    /// Where the payload begins in the data of its flush, in units of 8 bytes; without one, where it would.
    pub offset_units: u32,
}

impl TableEntry {
    /// The event that the record speaks of; a file as [`FileNumber::key`](forebay_types::FileNumber::key) gives it.
    pub const fn key(&self) -> EventKey {
        let run = if self.kind.is_of_file() { RunId::FILES } else { self.run };
        EventKey { run, event: self.event }
    }

    /// Where the payload lies in the data of its flush; nothing lies there when there is none.
    pub const fn payload_range(&self) -> Range<u64> {
        let start = self.offset_units as u64 * PAYLOAD_ALIGNMENT_BYTES;
        let bytes = if self.kind.has_payload() { self.bytes as u64 } else { 0 };
        start..start + bytes
    }

    /// Writes the entry.
    pub fn encode_into(&self, entry: &mut [u8; TABLE_ENTRY_BYTES]) {
        use table_entry as field;
        field::KIND.put(entry, self.kind as u8);
        field::FLAGS.put(entry, self.flags);
        field::EXPECTED.put(entry, self.expected);
        field::RUN.put(entry, self.run.0);
        field::EVENT.put(entry, self.event.0);
        field::SOURCE.put(entry, self.source.0);
        field::PAYLOAD_BYTES.put(entry, self.bytes);
        field::PAYLOAD_CRC.put(entry, self.crc);
        field::OFFSET_UNITS.put(entry, self.offset_units);
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// [`FormatError::UnknownRecordKind`], [`FormatError::UnknownFlags`], [`FormatError::Limit`] for a
    /// payload that no store takes, [`FormatError::Inconsistent`] for an event that cannot have its directory.
    pub fn decode(entry: &[u8; TABLE_ENTRY_BYTES]) -> Result<TableEntry, FormatError> {
        use table_entry as field;
        let kind = RecordKind::from_number(field::KIND.get(entry))?;
        let flags = field::FLAGS.get(entry);
        only_known("record", u32::from(flags), u32::from(kind.flags()))?;
        let bytes = field::PAYLOAD_BYTES.get(entry);
        if kind.is_of_file() {
            check_file_entry(kind, entry)?;
        } else {
            within("length of a record's payload", u64::from(bytes), FRAGMENT_BYTES_MAX as u64)?;
        }
        let fragments = field::SOURCE.get(entry);
        if kind == RecordKind::Event {
            let (directory, bytes) = (event_directory_bytes(fragments as usize) as u64, u64::from(bytes));
            ensure(fragments >= 1, "record", "an event that is one record has fragments", fragments, 1u32)?;
            ensure(directory <= bytes, "record", "the directory of an event is in its record", directory, bytes)?;
        }
        Ok(TableEntry {
            kind,
            flags,
            expected: field::EXPECTED.get(entry),
            run: RunId(field::RUN.get(entry)),
            event: EventId(field::EVENT.get(entry)),
            source: SourceId(field::SOURCE.get(entry)),
            bytes,
            crc: field::PAYLOAD_CRC.get(entry),
            offset_units: field::OFFSET_UNITS.get(entry),
        })
    }

    /// `Ok` when the payload lies in `data_bytes` of data.
    pub(crate) fn check_in(&self, data_bytes: u64) -> Result<(), FormatError> {
        let end = self.payload_range().end;
        ensure(end <= data_bytes, "table of records", "a payload lies in the data of its flush", end, data_bytes)
    }
}
