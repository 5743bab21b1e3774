//! Records: their entries in the tables, and the small payloads of decisions.

use std::ops::Range;

use forebay_types::limits::{FRAGMENT_BYTES_MAX, STREAM_NAME_BYTES_MAX, STREAMS_MAX};
use forebay_types::{EventId, EventKey, FragmentId, RunId, SourceId, StreamName};

use crate::FormatError;
use crate::error::{ensure, within};
use crate::field::{layout, only_known};

/// Bytes of an entry of a table.
pub const TABLE_ENTRY_BYTES: usize = table_entry::BYTES;

/// Payloads begin at multiples of this in the data of their flush.
pub const PAYLOAD_ALIGNMENT_BYTES: u64 = 8;

/// Flag of an entry: the event was decided although fragments were missing.
pub const RECORD_INCOMPLETE: u8 = 1;

/// Bytes of the longest payload of a decision: every stream with the longest name.
pub const STREAMS_BYTES_MAX: usize = 1 + STREAMS_MAX * (1 + STREAM_NAME_BYTES_MAX);

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

/// What a record is. The numbers are stored and never given another meaning; 6 and up are kept for
/// files, the name space and events that were written as one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RecordKind {
    /// The bytes of one source for one event.
    Fragment = 1,
    /// The event filter does not want the event.
    Reject = 2,
    /// The event filter wants the event; the payload names the streams.
    Accept = 3,
    /// An operator deleted the event.
    Delete = 4,
    /// A stream is done with the event; the payload names it.
    Release = 5,
}

impl RecordKind {
    /// Every kind.
    pub const ALL: [RecordKind; 5] =
        [RecordKind::Fragment, RecordKind::Reject, RecordKind::Accept, RecordKind::Delete, RecordKind::Release];

    /// The kind with this number.
    ///
    /// # Errors
    /// [`FormatError::UnknownRecordKind`].
    pub fn from_number(number: u8) -> Result<Self, FormatError> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number).ok_or(FormatError::UnknownRecordKind { found: number })
    }
}

/// One record of a table: what it is, and where its payload lies in the data of its flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// What it is.
    pub kind: RecordKind,
    /// [`RECORD_INCOMPLETE`] or nothing.
    pub flags: u8,
    /// Fragments that the event should have; 0 when not known.
    pub expected: u16,
    /// The run.
    pub run: RunId,
    /// The event.
    pub event: EventId,
    /// The source of a fragment; 0 for other records.
    pub source: SourceId,
    /// Bytes of the payload.
    pub bytes: u32,
    /// CRC32C of the payload.
    pub crc: u32,
    /// Where the payload begins in the data of its flush, in units of 8 bytes.
    pub offset_units: u32,
}

impl TableEntry {
    /// The event that the record speaks of.
    pub const fn key(&self) -> EventKey {
        EventKey { run: self.run, event: self.event }
    }

    /// The fragment's id.
    pub const fn fragment(&self) -> FragmentId {
        FragmentId { run: self.run, event: self.event, source: self.source }
    }

    /// Where the payload lies in the data of its flush.
    pub const fn payload_range(&self) -> Range<u64> {
        let start = self.offset_units as u64 * PAYLOAD_ALIGNMENT_BYTES;
        start..start + self.bytes as u64
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
    /// payload that no store takes.
    pub fn decode(entry: &[u8; TABLE_ENTRY_BYTES]) -> Result<TableEntry, FormatError> {
        use table_entry as field;
        let kind = RecordKind::from_number(field::KIND.get(entry))?;
        let flags = field::FLAGS.get(entry);
        only_known("record", u32::from(flags), u32::from(RECORD_INCOMPLETE))?;
        let bytes = field::PAYLOAD_BYTES.get(entry);
        within("length of a record's payload", u64::from(bytes), FRAGMENT_BYTES_MAX as u64)?;
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

/// The payload of an accept (its streams) or a release (one stream).
///
/// # Panics
/// When there is no stream or more than [`STREAMS_MAX`].
pub fn encode_streams(streams: &[StreamName]) -> Vec<u8> {
    assert!((1..=STREAMS_MAX).contains(&streams.len()), "{} streams", streams.len());
    let mut payload = vec![streams.len() as u8];
    for stream in streams {
        let name = stream.as_str().as_bytes();
        payload.push(u8::try_from(name.len()).expect("names of streams are at most 64 bytes"));
        payload.extend_from_slice(name);
    }
    payload
}

/// Reads what [`encode_streams`] wrote.
///
/// # Errors
/// [`FormatError`] when bytes are missing or left over, there is no stream or more than
/// [`STREAMS_MAX`], or a name is none.
pub fn decode_streams(payload: &[u8]) -> Result<Vec<StreamName>, FormatError> {
    const WHAT: &str = "list of streams";
    let truncated =
        |needed: usize| FormatError::Truncated { what: WHAT, needed: needed as u64, available: payload.len() as u64 };
    let (&count, mut rest) = payload.split_first().ok_or(truncated(1))?;
    ensure(count >= 1, WHAT, "there is at least one stream", count, 1u8)?;
    within("number of streams", u64::from(count), STREAMS_MAX as u64)?;
    let mut streams = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        let (&length, after) = rest.split_first().ok_or(truncated(payload.len() + 1))?;
        let length = usize::from(length);
        within("length of a stream's name", length as u64, STREAM_NAME_BYTES_MAX as u64)?;
        if after.len() < length {
            return Err(truncated(payload.len() - after.len() + length));
        }
        let (name, after) = after.split_at(length);
        streams.push(String::from_utf8_lossy(name).parse()?);
        rest = after;
    }
    ensure(rest.is_empty(), WHAT, "it ends after its last name", rest.len() as u64, 0u8)?;
    Ok(streams)
}

const _: () = assert!(STREAMS_MAX <= u8::MAX as usize);
