//! Subscribe: events told to those who look on.

use forebay_types::limits::{BATCH_RECORDS_MAX, STREAM_NAME_BYTES_MAX};
use forebay_types::{Cursor, EventKey, Fraction, RunId, StreamName};

use super::Message;
use super::hand_out::{EVENT_BYTES, put_event, read_event};
use crate::error::FrameError;
use crate::kind::Kind;
use crate::wire::{Reader, Write};

/// Asks what happened to events of the connection's lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribe {
    /// At most so many events; the server gives no more than it likes.
    pub max: u32,
    /// So many of all events.
    pub fraction: Fraction,
    /// Of this run only.
    pub run: Option<RunId>,
    /// What happened behind this; `None`: nothing but where what happens from now on begins.
    pub after: Option<Cursor>,
    /// Events when they are accepted into this stream; `None`: as soon as filters may have them.
    pub stream: Option<StreamName>,
}

impl Message for Subscribe {
    const KIND: Kind = Kind::Subscribe;

    fn write_table(&self, table: &mut Vec<u8>) {
        let (after, stream) = (self.after.unwrap_or_default(), self.stream.as_ref().map_or("", StreamName::as_str));
        table.put_u32(self.max);
        table.put_u32(self.fraction.millionths());
        table.put_u16(u16::from(self.run.is_some()) | u16::from(self.after.is_some()) << 1);
        table.put_u16(stream.len() as u16);
        table.put_u32(self.run.unwrap_or_default().0);
        table.put_u64(after.start);
        table.put_u64(after.sequence);
        table.extend_from_slice(stream.as_bytes());
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let (max, millionths) = (reader.u32()?, reader.u32()?);
        let Some(fraction) = Fraction::from_millionths(millionths) else {
            return reader.bad("millionths of all events", millionths);
        };
        let flags = reader.u16()?;
        let name_bytes = usize::from(reader.u16()?).min(STREAM_NAME_BYTES_MAX + 1);
        let run = RunId(reader.u32()?);
        let after = Cursor { start: reader.u64()?, sequence: reader.u64()? };
        let stream = if name_bytes > 0 { Some(reader.stream(name_bytes)?) } else { None };
        Ok(Subscribe {
            max,
            fraction,
            run: (flags & 1 != 0).then_some(run),
            after: (flags & 2 != 0).then_some(after),
            stream,
        })
    }
}

/// An event that was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToldEvent {
    /// The event.
    pub key: EventKey,
    /// Its fragments, as they were when the answer was made.
    pub fragments: u32,
    /// Bytes of its fragments.
    pub bytes: u64,
    /// Whether some of its fragments were missing when it happened, or it was not known how many it has.
    pub incomplete: bool,
}

/// What happened to events, in that order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscribeReply {
    /// The events.
    pub events: Vec<ToldEvent>,
    /// To be asked behind the next time.
    pub next: Cursor,
    /// The server was started anew since: what happened before that and was not told is not known, and not counted.
    pub restarted: bool,
    /// Events, of all runs and whether they were wanted or not, that the lane forgot before it was asked.
    pub dropped: u64,
    /// Events that were wanted and were over when the answer was made.
    pub gone: u32,
    /// When it is worth to ask again; 0: there is more already.
    pub retry_after_ms: u32,
}

impl Message for SubscribeReply {
    const KIND: Kind = Kind::SubscribeReply;

    fn write_table(&self, table: &mut Vec<u8>) {
        assert!(self.events.len() <= BATCH_RECORDS_MAX, "{} events exceed a batch", self.events.len());
        table.put_count(self.events.len());
        table.put_u32(u32::from(self.restarted));
        table.put_u64(self.next.start);
        table.put_u64(self.next.sequence);
        table.put_u64(self.dropped);
        table.put_u32(self.gone);
        table.put_u32(self.retry_after_ms);
        for event in &self.events {
            let ToldEvent { key, fragments, bytes, incomplete } = *event;
            put_event(table, key, fragments, bytes, incomplete);
        }
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let count = reader.count("events", BATCH_RECORDS_MAX)?;
        let restarted = reader.u32()? & 1 != 0;
        let next = Cursor { start: reader.u64()?, sequence: reader.u64()? };
        let (dropped, gone, retry_after_ms) = (reader.u64()?, reader.u32()?, reader.u32()?);
        let events = reader.list(count, EVENT_BYTES, |entry| {
            let (key, fragments, bytes, incomplete) = read_event(entry)?;
            Ok(ToldEvent { key, fragments, bytes, incomplete })
        })?;
        Ok(SubscribeReply { events, next, restarted, dropped, gone, retry_after_ms })
    }
}
