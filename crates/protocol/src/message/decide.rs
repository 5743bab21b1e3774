//! Delete, Decide, Release, and the reply to all three.

use forebay_types::limits::{BATCH_RECORDS_MAX, STREAM_NAME_BYTES_MAX, STREAMS_MAX};
use forebay_types::{DecideOutcome, EventKey, StreamName, Verdict};

use super::Message;
use crate::error::FrameError;
use crate::kind::Kind;
use crate::wire::{Reader, Write};

const DECIDE_ENTRY_BYTES: usize = 24;
const REJECT: u8 = 0;
const ACCEPT: u8 = 1;
const INCOMPLETE: u8 = 1;

/// Events to drop, whatever was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// Which; at most [`BATCH_RECORDS_MAX`].
    pub events: Vec<EventKey>,
}

impl Message for Delete {
    const KIND: Kind = Kind::Delete;

    fn write_table(&self, table: &mut Vec<u8>) {
        assert!(self.events.len() <= BATCH_RECORDS_MAX, "{} events exceed a batch", self.events.len());
        table.put_count(self.events.len());
        table.put_u32(0);
        self.events.iter().for_each(|key| table.put_key(*key));
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let count = reader.count("events", BATCH_RECORDS_MAX)?;
        reader.u32()?;
        Ok(Delete { events: reader.list(count, 16, |entry| entry.key())? })
    }
}

/// The filter's word on events. The names of streams are sent once; each decision has a bit for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decide {
    /// The streams that the entries speak of, at most [`STREAMS_MAX`].
    pub streams: Vec<StreamName>,
    /// The decisions, at most [`BATCH_RECORDS_MAX`].
    pub entries: Vec<DecideEntry>,
}

/// One decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecideEntry {
    /// The event.
    pub key: EventKey,
    /// Bit i: accepted into stream i of [`Decide::streams`]. No bit: rejected.
    pub streams: u64,
    /// Whether the filter decided without all fragments.
    pub incomplete: bool,
}

impl DecideEntry {
    /// Whether the event is accepted.
    pub const fn accepts(&self) -> bool {
        self.streams != 0
    }
}

impl Decide {
    /// The streams of an entry.
    pub fn streams_of(&self, entry: &DecideEntry) -> impl Iterator<Item = &StreamName> {
        let bits = entry.streams;
        self.streams.iter().enumerate().filter(move |(i, _)| bits >> i & 1 == 1).map(|(_, name)| name)
    }

    /// The verdict of an entry.
    pub fn verdict(&self, entry: &DecideEntry) -> Verdict {
        match entry.accepts() {
            true => Verdict::Accept(self.streams_of(entry).cloned().collect()),
            false => Verdict::Reject,
        }
    }
}

/// A Decide of as many of `decisions` as one request takes, from the first on, and how many these are:
/// at most [`BATCH_RECORDS_MAX`] decisions and [`STREAMS_MAX`] streams. An acceptance into no stream
/// at all has no place on the wire: the index of such a decision comes back as the error.
pub fn decide_from_verdicts<'a>(
    decisions: impl IntoIterator<Item = (EventKey, &'a Verdict, bool)>,
) -> Result<(Decide, usize), usize> {
    let mut decide = Decide { streams: Vec::new(), entries: Vec::new() };
    for (index, (key, verdict, incomplete)) in decisions.into_iter().enumerate().take(BATCH_RECORDS_MAX) {
        let mut streams = 0;
        if let Verdict::Accept(names) = verdict {
            if names.is_empty() {
                return Err(index);
            }
            let known = decide.streams.len();
            for name in names {
                let at = decide.streams.iter().position(|known| known == name).unwrap_or_else(|| {
                    decide.streams.push(name.clone());
                    decide.streams.len() - 1
                });
                streams |= 1u64.checked_shl(at as u32).unwrap_or(0);
            }
            if decide.streams.len() > STREAMS_MAX {
                decide.streams.truncate(known);
                return if index == 0 { Err(index) } else { Ok((decide, index)) };
            }
        }
        decide.entries.push(DecideEntry { key, streams, incomplete });
    }
    let taken = decide.entries.len();
    Ok((decide, taken))
}

impl Message for Decide {
    const KIND: Kind = Kind::Decide;

    fn write_table(&self, table: &mut Vec<u8>) {
        assert!(self.entries.len() <= BATCH_RECORDS_MAX, "{} decisions exceed a batch", self.entries.len());
        assert!(self.streams.len() <= STREAMS_MAX, "{} streams exceed a store's", self.streams.len());
        table.put_count(self.entries.len());
        table.put_count(self.streams.len());
        for entry in &self.entries {
            table.put_u32(entry.key.run.0);
            table.put_u8(if entry.accepts() { ACCEPT } else { REJECT });
            table.put_u8(if entry.incomplete { INCOMPLETE } else { 0 });
            table.put_u16(0);
            table.put_u64(entry.key.event.0);
            table.put_u64(entry.streams);
        }
        for name in &self.streams {
            table.put_u8(name.as_str().len() as u8);
            table.extend_from_slice(name.as_str().as_bytes());
        }
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let count = reader.count("decisions", BATCH_RECORDS_MAX)?;
        let names = reader.count("streams", STREAMS_MAX)?;
        let known = if names == 64 { u64::MAX } else { (1 << names) - 1 };
        let entries = reader.list(count, DECIDE_ENTRY_BYTES, |entry| {
            let run = entry.u32()?;
            let (verdict, flags) = (entry.u8()?, entry.u8()?);
            entry.u16()?;
            let key = EventKey::new(run, entry.u64()?);
            let streams = entry.u64()?;
            let sound = match verdict {
                REJECT => streams == 0,
                ACCEPT => streams != 0 && streams & !known == 0,
                _ => return entry.bad("verdict", verdict),
            };
            if !sound {
                return entry.bad("streams of a decision", streams);
            }
            Ok(DecideEntry { key, streams, incomplete: flags & INCOMPLETE != 0 })
        })?;
        let mut streams = Vec::with_capacity(names);
        for _ in 0..names {
            let bytes = usize::from(reader.u8()?);
            streams.push(reader.stream(bytes)?);
        }
        Ok(Decide { streams, entries })
    }
}

/// A stream has these events safely elsewhere: its claim on them ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The stream.
    pub stream: StreamName,
    /// Which; at most [`BATCH_RECORDS_MAX`].
    pub events: Vec<EventKey>,
}

impl Message for Release {
    const KIND: Kind = Kind::Release;

    fn write_table(&self, table: &mut Vec<u8>) {
        assert!(self.events.len() <= BATCH_RECORDS_MAX, "{} events exceed a batch", self.events.len());
        table.put_count(self.events.len());
        table.put_count(self.stream.as_str().len());
        self.events.iter().for_each(|key| table.put_key(*key));
        table.extend_from_slice(self.stream.as_str().as_bytes());
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let count = reader.count("events", BATCH_RECORDS_MAX)?;
        let name_bytes = reader.count("bytes of a stream's name", STREAM_NAME_BYTES_MAX)?;
        let events = reader.list(count, 16, |entry| entry.key())?;
        Ok(Release { stream: reader.stream(name_bytes)?, events })
    }
}

/// What became of each event of a Delete, Decide or Release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecideReply {
    /// One for each event, in their order.
    pub outcomes: Vec<DecideOutcome>,
}

impl Message for DecideReply {
    const KIND: Kind = Kind::DecideReply;

    fn write_table(&self, table: &mut Vec<u8>) {
        assert!(self.outcomes.len() <= BATCH_RECORDS_MAX, "a reply answers one batch");
        table.put_count(self.outcomes.len());
        table.put_u32(0);
        table.extend(self.outcomes.iter().map(|outcome| outcome.code()));
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let count = reader.count("outcomes", BATCH_RECORDS_MAX)?;
        reader.u32()?;
        let outcomes = reader.list(count, 1, |entry| {
            let code = entry.u8()?;
            entry.coded("outcome", code, DecideOutcome::from_code(code))
        })?;
        Ok(DecideReply { outcomes })
    }
}
