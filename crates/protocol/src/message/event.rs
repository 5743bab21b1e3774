//! GetEvent and its replies.

use forebay_types::limits::BATCH_RECORDS_MAX;
use forebay_types::{EventKey, ReadOutcome, SourceId};

use super::Message;
use super::fragments::{Entry, Fragments, put_found, read_found};
use crate::error::FrameError;
use crate::frame::encode_frame;
use crate::kind::{EventState, Kind};
use crate::wire::{Reader, Write};

const LINE_BYTES: usize = 16;
const SOURCE_ENTRY_BYTES: usize = 24;
const ALL_SOURCES: u32 = 1;

/// Events to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetEvent {
    /// Which; at most [`BATCH_RECORDS_MAX`].
    pub events: Vec<EventKey>,
    /// The sources whose fragments are wanted, at most [`BATCH_RECORDS_MAX`]; `None`: all.
    pub sources: Option<Vec<SourceId>>,
}

impl Message for GetEvent {
    const KIND: Kind = Kind::GetEvent;

    fn write_table(&self, table: &mut Vec<u8>) {
        let sources = self.sources.as_deref().unwrap_or_default();
        assert!(self.events.len().max(sources.len()) <= BATCH_RECORDS_MAX, "a list exceeds a batch");
        table.put_count(self.events.len());
        table.put_count(sources.len());
        table.put_u32(if self.sources.is_none() { ALL_SOURCES } else { 0 });
        table.put_u32(0);
        self.events.iter().for_each(|key| table.put_key(*key));
        sources.iter().for_each(|source| table.put_u32(source.0));
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let events = reader.count("events", BATCH_RECORDS_MAX)?;
        let sources = reader.count("sources", BATCH_RECORDS_MAX)?;
        let all = reader.u32()? & ALL_SOURCES != 0;
        reader.u32()?;
        let events = reader.list(events, 16, |entry| entry.key())?;
        let sources = reader.list(sources, 4, |entry| entry.u32().map(SourceId))?;
        Ok(GetEvent { events, sources: (!all).then_some(sources) })
    }
}

/// What is known of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventLine {
    /// The place of the event in the request.
    pub index: u32,
    /// Found when the event is known and not finished; its fragments have outcomes of their own.
    pub outcome: ReadOutcome,
    /// How far it is.
    pub state: EventState,
    /// How many fragments it should have, as its writers said; 0 when not known.
    pub expected: u16,
    /// How many fragments of it are stored, whatever sources were asked for.
    pub fragments: u32,
}

/// What was found of one fragment of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceEntry {
    /// The place of the event in the request.
    pub index: u32,
    /// The source.
    pub source: SourceId,
    /// What the read found; only [`ReadOutcome::Found`] comes with bytes.
    pub outcome: ReadOutcome,
    /// Its bytes in the payload.
    pub bytes: u32,
    /// The CRC32C that its writer computed.
    pub crc: u32,
}

impl EventLine {
    fn write(&self, table: &mut Vec<u8>) {
        table.put_u32(self.index);
        table.put_u8(self.outcome.code());
        table.put_u8(self.state.code());
        table.put_u16(self.expected);
        table.put_u32(self.fragments);
        table.put_u32(0);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        let index = reader.u32()?;
        let (outcome, state) = (reader.u8()?, reader.u8()?);
        let outcome = reader.coded("outcome", outcome, ReadOutcome::from_code(outcome))?;
        let state = reader.coded("state", state, EventState::from_code(state))?;
        Ok(EventLine { index, outcome, state, expected: reader.u16()?, fragments: reader.u32()? })
    }
}

impl SourceEntry {
    fn write(&self, table: &mut Vec<u8>) {
        table.put_u32(self.index);
        table.put_u32(self.source.0);
        put_found(table, self.outcome, self.bytes, self.crc);
        table.put_u32(0);
    }
}

impl Entry for SourceEntry {
    const KIND: Kind = Kind::GetEventReply;
    const BYTES: usize = SOURCE_ENTRY_BYTES;

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (index, source) = (reader.u32()?, SourceId(reader.u32()?));
        let (outcome, bytes, crc) = read_found(reader)?;
        Ok(SourceEntry { index, source, outcome, bytes, crc })
    }

    fn payload_bytes(&self) -> u32 {
        self.bytes
    }
}

/// Events that were read, borrowed from their frame.
///
/// Over all frames of a request (all but the last have [`crate::FLAG_MORE`]) each event has exactly one
/// line, and its fragments come in any frames, each fragment whole and once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetEventReply<'a> {
    lines: &'a [u8],
    fragments: Fragments<'a, SourceEntry>,
}

impl<'a> GetEventReply<'a> {
    /// The kind of its frames.
    pub const KIND: Kind = Kind::GetEventReply;

    /// Reads it from the table and payload of a frame. Checksums are not verified here.
    pub fn decode(table: &'a [u8], payload: &'a [u8]) -> Result<Self, FrameError> {
        let message = Self::KIND.name();
        let mut reader = Reader::new(table, message);
        let lines = reader.count("events", BATCH_RECORDS_MAX)?;
        let count = reader.count("fragments", BATCH_RECORDS_MAX)?;
        let lines = reader.entries(lines, LINE_BYTES)?;
        for line in lines.chunks_exact(LINE_BYTES) {
            EventLine::read(&mut Reader::new(line, message))?;
        }
        Ok(GetEventReply { lines, fragments: Fragments::decode(&mut reader, count, payload)? })
    }

    /// The lines of events in this frame.
    pub fn lines(&self) -> impl ExactSizeIterator<Item = EventLine> + use<'a> {
        self.lines
            .chunks_exact(LINE_BYTES)
            .map(|line| EventLine::read(&mut Reader::new(line, Self::KIND.name())).expect("checked by decode"))
    }

    /// The fragments in this frame, each with its bytes.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (SourceEntry, &'a [u8])> + use<'a> {
        self.fragments.entries()
    }
}

/// The table of a reply to GetEvent, for [`crate::encode_head`]; the payloads follow in the order of
/// `entries`.
pub fn get_event_table(lines: &[EventLine], entries: &[SourceEntry]) -> Vec<u8> {
    assert!(lines.len().max(entries.len()) <= BATCH_RECORDS_MAX, "a list exceeds a batch");
    let mut table = Vec::with_capacity(8 + lines.len() * LINE_BYTES + entries.len() * SOURCE_ENTRY_BYTES);
    table.put_count(lines.len());
    table.put_count(entries.len());
    lines.iter().for_each(|line| line.write(&mut table));
    entries.iter().for_each(|entry| entry.write(&mut table));
    table
}

/// Appends a reply to GetEvent to `into`; `payloads` has the bytes of each entry, in whatever pieces.
pub fn encode_get_event_reply(
    request: u64,
    flags: u16,
    lines: &[EventLine],
    entries: &[SourceEntry],
    payloads: &[&[u8]],
    into: &mut Vec<u8>,
) {
    encode_frame(Kind::GetEventReply, flags, request, &get_event_table(lines, entries), payloads, into);
}

const _: () =
    assert!(8 + BATCH_RECORDS_MAX * (LINE_BYTES + SOURCE_ENTRY_BYTES) <= crate::limits::FRAME_TABLE_BYTES_MAX);
