//! Lease and Accepted: events handed out to filters and to movers.

use forebay_types::limits::{BATCH_RECORDS_MAX, STREAM_NAME_BYTES_MAX};
use forebay_types::{EventKey, RunId, StreamName};

use super::Message;
use crate::error::FrameError;
use crate::kind::Kind;
use crate::wire::{Reader, Write};

/// Bytes of a [`LeasedEvent`] on the wire.
pub(crate) const LEASED_EVENT_BYTES: usize = 32;

/// Bytes of an event that is listed or told, as [`put_event`] writes it.
pub(crate) const EVENT_BYTES: usize = 32;

/// What is said of an event that is listed or told.
pub(super) fn put_event(table: &mut Vec<u8>, key: EventKey, fragments: u32, bytes: u64, incomplete: bool) {
    table.put_u32(key.run.0);
    table.put_u32(fragments);
    table.put_u64(key.event.0);
    table.put_u64(bytes);
    table.put_u32(u32::from(incomplete));
    table.put_u32(0);
}

/// The same read: the event, its fragments, their bytes, and whether some are missing.
pub(super) fn read_event(entry: &mut Reader<'_>) -> Result<(EventKey, u32, u64, bool), FrameError> {
    let (run, fragments) = (entry.u32()?, entry.u32()?);
    let key = EventKey::new(run, entry.u64()?);
    Ok((key, fragments, entry.u64()?, entry.u32()? & 1 != 0))
}

/// Asks for undecided events of the connection's lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// At most so many; the server gives no more than [`BATCH_RECORDS_MAX`]. 0 asks for
    /// [`LeaseReply::undecided`] alone.
    pub max_events: u32,
    /// After so long without a decision an event goes to another filter.
    pub duration_ms: u32,
    /// The filter, the same after a restart of it.
    pub filter: u64,
    /// Of this run only.
    pub run: Option<RunId>,
}

impl Message for Lease {
    const KIND: Kind = Kind::Lease;

    fn write_table(&self, table: &mut Vec<u8>) {
        table.put_u32(self.max_events);
        table.put_u32(self.duration_ms);
        table.put_u64(self.filter);
        table.put_u32(u32::from(self.run.is_some()));
        table.put_u32(self.run.unwrap_or_default().0);
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let (max_events, duration_ms, filter) = (reader.u32()?, reader.u32()?, reader.u64()?);
        let has_run = reader.u32()? & 1 != 0;
        let run = RunId(reader.u32()?);
        Ok(Lease { max_events, duration_ms, filter, run: has_run.then_some(run) })
    }
}

/// An event that a filter may decide now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasedEvent {
    /// The event.
    pub key: EventKey,
    /// Fragments that are stored.
    pub fragments: u32,
    /// Fragments that it should have, as its writers said; 0 when not known.
    pub expected: u16,
    /// How often it was leased, this time included.
    pub attempt: u16,
    /// Bytes of its fragments.
    pub bytes: u64,
    /// Whether it is handed out without all its fragments, or without it being known how many those are, because it waited long enough.
    pub incomplete: bool,
}

/// Events leased to a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseReply {
    /// The events.
    pub events: Vec<LeasedEvent>,
    /// Events of this lane (and run, if one was asked for) that are not decided, leased or not.
    pub undecided: u64,
    /// When it is worth to ask again if there were too few.
    pub retry_after_ms: u32,
}

impl Message for LeaseReply {
    const KIND: Kind = Kind::LeaseReply;

    fn write_table(&self, table: &mut Vec<u8>) {
        assert!(self.events.len() <= BATCH_RECORDS_MAX, "{} events exceed a batch", self.events.len());
        table.put_count(self.events.len());
        table.put_u32(self.retry_after_ms);
        table.put_u64(self.undecided);
        for event in &self.events {
            table.put_u32(event.key.run.0);
            table.put_u32(event.fragments);
            table.put_u64(event.key.event.0);
            table.put_u64(event.bytes);
            table.put_u16(event.expected);
            table.put_u16(event.attempt);
            table.put_u32(u32::from(event.incomplete));
        }
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let count = reader.count("events", BATCH_RECORDS_MAX)?;
        let (retry_after_ms, undecided) = (reader.u32()?, reader.u64()?);
        let events = reader.list(count, LEASED_EVENT_BYTES, |entry| {
            let (run, fragments) = (entry.u32()?, entry.u32()?);
            let key = EventKey::new(run, entry.u64()?);
            let bytes = entry.u64()?;
            let (expected, attempt) = (entry.u16()?, entry.u16()?);
            let incomplete = entry.u32()? & 1 != 0;
            Ok(LeasedEvent { key, fragments, expected, attempt, bytes, incomplete })
        })?;
        Ok(LeaseReply { events, undecided, retry_after_ms })
    }
}

/// Asks for accepted events of a stream that it has not released, of the connection's lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The stream.
    pub stream: StreamName,
    /// Only events behind this one.
    pub after: Option<EventKey>,
    /// At most so many; the server gives no more than [`BATCH_RECORDS_MAX`].
    pub max: u32,
}

impl Message for Accepted {
    const KIND: Kind = Kind::Accepted;

    fn write_table(&self, table: &mut Vec<u8>) {
        table.put_u32(self.max);
        table.put_u8(u8::from(self.after.is_some()));
        table.put_u8(self.stream.as_str().len() as u8);
        table.put_u16(0);
        table.put_key(self.after.unwrap_or_default());
        table.extend_from_slice(self.stream.as_str().as_bytes());
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let max = reader.u32()?;
        let has_after = reader.u8()? & 1 != 0;
        let name_bytes = usize::from(reader.u8()?).min(STREAM_NAME_BYTES_MAX + 1);
        reader.u16()?;
        let after = reader.key()?;
        Ok(Accepted { stream: reader.stream(name_bytes)?, after: has_after.then_some(after), max })
    }
}

/// An accepted event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedEvent {
    /// The event.
    pub key: EventKey,
    /// Its fragments.
    pub fragments: u32,
    /// Bytes of its fragments.
    pub bytes: u64,
    /// Whether it was decided without all fragments.
    pub incomplete: bool,
}

/// Accepted events of a stream, ascending by run and event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedReply {
    /// The events.
    pub events: Vec<AcceptedEvent>,
    /// Whether there are more behind the last one now.
    pub more: bool,
    /// The smallest undecided event of this lane: no event below it that is here now will still be
    /// accepted. `None`: the lane holds no undecided event.
    pub undecided_floor: Option<EventKey>,
}

impl Message for AcceptedReply {
    const KIND: Kind = Kind::AcceptedReply;

    fn write_table(&self, table: &mut Vec<u8>) {
        assert!(self.events.len() <= BATCH_RECORDS_MAX, "{} events exceed a batch", self.events.len());
        table.put_count(self.events.len());
        table.put_u32(u32::from(self.more) | u32::from(self.undecided_floor.is_some()) << 1);
        table.put_key(self.undecided_floor.unwrap_or_default());
        for event in &self.events {
            let AcceptedEvent { key, fragments, bytes, incomplete } = *event;
            put_event(table, key, fragments, bytes, incomplete);
        }
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let count = reader.count("events", BATCH_RECORDS_MAX)?;
        let flags = reader.u32()?;
        let floor = reader.key()?;
        let events = reader.list(count, EVENT_BYTES, |entry| {
            let (key, fragments, bytes, incomplete) = read_event(entry)?;
            Ok(AcceptedEvent { key, fragments, bytes, incomplete })
        })?;
        Ok(AcceptedReply { events, more: flags & 1 != 0, undecided_floor: (flags & 2 != 0).then_some(floor) })
    }
}
