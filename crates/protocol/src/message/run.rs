//! Runs and streams as objects of the store: ChangeRun, RunList, DefineStream, StreamList. Their books lie in lane 0.

use forebay_types::limits::{
    DESTINATION_BYTES_MAX, FORMAT_BYTES_MAX, PERSON_BYTES_MAX, REASON_BYTES_MAX, SOURCE_RANGES_MAX,
    STREAM_NAME_BYTES_MAX,
};
use forebay_types::{
    BlockRule, RunChange, RunId, RunRequest, SourceFragments, SourceId, SourceSet, StreamDefinition, StreamName,
    StreamRequest, StreamSources,
};

use super::Message;
use crate::error::FrameError;
use crate::kind::Kind;
use crate::wire::{Reader, Write, cut};

/// A text that is too long is sent with a little more than it may have, so that the answer can say so.
const MORE: usize = 4;

/// Does something with a run. Answered with the run as it is then, as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRun(pub RunRequest);

/// Defines a stream. Answered with the version that this is, as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefineStream(pub StreamRequest);

/// Asks for runs that were declared, ascending. Answered with some of them, and whether there are more, as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunList {
    /// Only those behind this one.
    pub after: Option<RunId>,
    /// At most so many; the server gives no more than it likes.
    pub max: u32,
}

/// Asks for definitions of streams. Answered with them as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamList {
    /// All versions of this one, the oldest first; `None`: the newest version of each.
    pub stream: Option<StreamName>,
}

impl Message for ChangeRun {
    const KIND: Kind = Kind::ChangeRun;

    fn write_table(&self, table: &mut Vec<u8>) {
        let RunRequest { run, changes, token, by, reason, what } = &self.0;
        let (by, reason) = (cut(by, PERSON_BYTES_MAX + MORE), cut(reason, REASON_BYTES_MAX + MORE));
        let none = (None, SourceSet::default(), &[][..], false);
        let (events, sources, fragments, accept) = match what {
            RunChange::Declare { sources } => (None, sources.clone(), &[][..], false),
            RunChange::Stop { events, fragments } => (*events, SourceSet::default(), &fragments[..], false),
            RunChange::Close { accept_difference } => (None, SourceSet::default(), &[][..], *accept_difference),
            RunChange::Start | RunChange::Hold | RunChange::EndHold | RunChange::Discard => none,
        };
        table.put_u32(run.0);
        table.put_u32(*changes);
        table.put_u64(*token);
        table.put_u64(events.unwrap_or(0));
        table.put_u8(what.code());
        table.put_u8(u8::from(events.is_some()) | u8::from(accept) << 1);
        table.put_u16(by.len() as u16);
        table.put_u16(reason.len() as u16);
        table.put_u16(0);
        table.put_count(sources.ranges().len());
        table.put_count(fragments.len());
        put_sources(table, &sources);
        for of in fragments {
            table.put_u32(of.first.0);
            table.put_u32(of.last.0);
            table.put_u64(of.fragments);
        }
        table.extend_from_slice(by.as_bytes());
        table.extend_from_slice(reason.as_bytes());
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let (run, changes, token, events) = (RunId(reader.u32()?), reader.u32()?, reader.u64()?, reader.u64()?);
        let (what, flags) = (reader.u8()?, reader.u8()?);
        let (by_bytes, reason_bytes) = (usize::from(reader.u16()?), usize::from(reader.u16()?));
        reader.u16()?;
        let ranges = reader.count("ranges of sources", SOURCE_RANGES_MAX)?;
        let counted = reader.count("ranges of counted sources", SOURCE_RANGES_MAX)?;
        let sources = read_sources(&mut reader, ranges)?;
        let fragments = reader.list(counted, 16, |entry| {
            let (first, last) = (SourceId(entry.u32()?), SourceId(entry.u32()?));
            Ok(SourceFragments { first, last, fragments: entry.u64()? })
        })?;
        if !SourceFragments::are_sound(&fragments) {
            return reader.bad("order of counted sources", counted as u64);
        }
        let what = match what {
            1 => RunChange::Declare { sources },
            2 => RunChange::Start,
            3 => RunChange::Stop { events: (flags & 1 != 0).then_some(events), fragments },
            4 => RunChange::Close { accept_difference: flags & 2 != 0 },
            5 => RunChange::Hold,
            6 => RunChange::EndHold,
            7 => RunChange::Discard,
            _ => return reader.bad("change of a run", what),
        };
        let by = reader.text("name of a person", by_bytes, PERSON_BYTES_MAX + MORE)?.to_owned();
        let reason = reader.text("reason", reason_bytes, REASON_BYTES_MAX + MORE)?.to_owned();
        Ok(ChangeRun(RunRequest { run, changes, token, by, reason, what }))
    }
}

impl Message for DefineStream {
    const KIND: Kind = Kind::DefineStream;

    fn write_table(&self, table: &mut Vec<u8>) {
        let StreamRequest { name, version, token, by, definition } = &self.0;
        let StreamDefinition { sources, prescale, format, priority, destination, block } = definition;
        let (by, format) = (cut(by, PERSON_BYTES_MAX + MORE), cut(format, FORMAT_BYTES_MAX + MORE));
        let destination = cut(destination, DESTINATION_BYTES_MAX + MORE);
        let (rule, length) = match *block {
            BlockRule::Run => (0, 0),
            BlockRule::Events(events) => (1, events),
            BlockRule::Seconds(seconds) => (2, seconds),
        };
        let all = SourceSet::default();
        let (is_part, part) = match sources {
            StreamSources::All => (false, &all),
            StreamSources::Part(part) => (true, part),
        };
        table.put_u64(*token);
        table.put_u32(*version);
        table.put_u32(*prescale);
        table.put_u64(length);
        table.put_u16(*priority);
        table.put_u8(rule);
        table.put_u8(u8::from(is_part));
        table.put_count(part.ranges().len());
        for text in [name.as_str(), by, format, destination] {
            table.put_u16(text.len() as u16);
        }
        put_sources(table, part);
        for text in [name.as_str(), by, format, destination] {
            table.extend_from_slice(text.as_bytes());
        }
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let (token, version, prescale, length) = (reader.u64()?, reader.u32()?, reader.u32()?, reader.u64()?);
        let (priority, rule, flags) = (reader.u16()?, reader.u8()?, reader.u8()?);
        let ranges = reader.count("ranges of sources", SOURCE_RANGES_MAX)?;
        let mut lengths = [0; 4];
        for length in &mut lengths {
            *length = usize::from(reader.u16()?);
        }
        let [name_bytes, by_bytes, format_bytes, destination_bytes] = lengths;
        let part = read_sources(&mut reader, ranges)?;
        let block = match rule {
            0 => BlockRule::Run,
            1 => BlockRule::Events(length),
            2 => BlockRule::Seconds(length),
            _ => return reader.bad("rule for luminosity blocks", rule),
        };
        let name = reader.stream(name_bytes)?;
        let by = reader.text("name of a person", by_bytes, PERSON_BYTES_MAX + MORE)?.to_owned();
        let format = reader.text("format", format_bytes, FORMAT_BYTES_MAX + MORE)?.to_owned();
        let destination = reader.text("destination", destination_bytes, DESTINATION_BYTES_MAX + MORE)?.to_owned();
        let sources = if flags & 1 != 0 { StreamSources::Part(part) } else { StreamSources::All };
        let definition = StreamDefinition { sources, prescale, format, priority, destination, block };
        Ok(DefineStream(StreamRequest { name, version, token, by, definition }))
    }
}

impl Message for RunList {
    const KIND: Kind = Kind::RunList;

    fn write_table(&self, table: &mut Vec<u8>) {
        table.put_u32(u32::from(self.after.is_some()));
        table.put_u32(self.after.unwrap_or_default().0);
        table.put_u32(self.max);
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let (flags, run, max) = (reader.u32()?, RunId(reader.u32()?), reader.u32()?);
        Ok(RunList { after: (flags & 1 != 0).then_some(run), max })
    }
}

impl Message for StreamList {
    const KIND: Kind = Kind::StreamList;

    fn write_table(&self, table: &mut Vec<u8>) {
        let name = self.stream.as_ref().map_or("", StreamName::as_str);
        table.put_u32(name.len() as u32);
        table.extend_from_slice(name.as_bytes());
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let bytes = reader.count("bytes of the name of a stream", STREAM_NAME_BYTES_MAX)?;
        Ok(StreamList { stream: if bytes > 0 { Some(reader.stream(bytes)?) } else { None } })
    }
}

fn put_sources(table: &mut Vec<u8>, sources: &SourceSet) {
    for (first, last) in sources.ranges() {
        table.put_u32(first.0);
        table.put_u32(last.0);
    }
}

fn read_sources(reader: &mut Reader<'_>, count: usize) -> Result<SourceSet, FrameError> {
    let ranges = reader.list(count, 8, |entry| Ok((SourceId(entry.u32()?), SourceId(entry.u32()?))))?;
    match SourceSet::from_ranges(&ranges) {
        Some(sources) => Ok(sources),
        None => reader.bad("order of sources", count as u64),
    }
}
