//! What is kept of runs and streams, as bytes: a key and a value for each run, and for each version of a stream. `docs/format.md` draws them.

use forebay_types::limits::{
    DESTINATION_BYTES_MAX, FORMAT_BYTES_MAX, PERSON_BYTES_MAX, REASON_BYTES_MAX, SOURCE_RANGES_MAX,
    STREAM_NAME_BYTES_MAX, STREAMS_MAX,
};
use forebay_types::{
    BlockRule, RunCounts, RunHold, RunId, RunRecord, RunState, RunStep, RunStream, SourceFragments, SourceId,
    SourceSet, StreamDefinition, StreamName, StreamSources, StreamVersion,
};

/// The longest key and value together.
pub const RECORD_BYTES_MAX: usize = 40 << 10;

const STEP_BYTES_MAX: usize = 12 + PERSON_BYTES_MAX + REASON_BYTES_MAX;
const _: () = assert!(
    80 + 7 * STEP_BYTES_MAX + SOURCE_RANGES_MAX * (8 + 16) + STREAMS_MAX * (5 + STREAM_NAME_BYTES_MAX)
        <= RECORD_BYTES_MAX
);

/// What the records of this version begin with.
const LAYOUT: u8 = 1;

mod key {
    pub(super) const RUN: u8 = 1;
    pub(super) const STREAM: u8 = 2;
}

/// Something that is to be kept: from then on this is the value of that key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

/// Why a record cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A newer version wrote it.
    #[error(
        "a record of runs and streams is of kind {kind} and layout {layout}, which this version does not know: a newer one wrote it"
    )]
    Newer {
        /// Its kind.
        kind: u8,
        /// Its layout.
        layout: u8,
    },
    /// It means nothing.
    #[error("a record of runs and streams cannot be understood: {what} at its byte {at}")]
    Malformed {
        /// What is wrong.
        what: &'static str,
        /// Where.
        at: usize,
    },
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// Of a run, and by which request it was changed last.
    Run(Box<RunRecord>, u64),
    /// Of a version of a stream, and by which request it was defined.
    Stream(Box<StreamVersion>, u64),
}

// ---- writing ----

fn text(into: &mut Vec<u8>, text: &str) {
    into.extend((text.len() as u16).to_le_bytes());
    into.extend(text.as_bytes());
}

fn step(into: &mut Vec<u8>, step: &RunStep) {
    into.extend(step.at_unix_ns.to_le_bytes());
    text(into, &step.by);
    text(into, &step.reason);
}

fn sources(into: &mut Vec<u8>, sources: &SourceSet) {
    into.extend((sources.ranges().len() as u16).to_le_bytes());
    for (first, last) in sources.ranges() {
        into.extend(first.0.to_le_bytes());
        into.extend(last.0.to_le_bytes());
    }
}

/// The steps that a run may lack, in the order in which they are written.
fn steps(run: &RunRecord) -> [Option<&RunStep>; 6] {
    let RunRecord { started, stopped, closed, discarded, hold, .. } = run;
    let (begun, ended) = (hold.as_ref().map(|hold| &hold.begun), hold.as_ref().and_then(|hold| hold.ended.as_ref()));
    [started.as_ref(), stopped.as_ref(), closed.as_ref(), discarded.as_ref(), begun, ended]
}

pub(crate) fn encode_run(run: &RunRecord, token: u64) -> Kept {
    let mut key = vec![key::RUN];
    key.extend(run.run.0.to_le_bytes());
    let steps = steps(run);
    let mut present = steps.iter().enumerate().fold(0, |bits, (place, step)| bits | u8::from(step.is_some()) << place);
    present |= u8::from(run.expected_events.is_some()) << 6 | u8::from(run.counted.is_some()) << 7;
    let mut value = vec![LAYOUT, run.state.code(), present];
    value.extend(run.changes.to_le_bytes());
    value.extend(token.to_le_bytes());
    step(&mut value, &run.declared);
    steps.into_iter().flatten().for_each(|of| step(&mut value, of));
    if let Some(events) = run.expected_events {
        value.extend(events.to_le_bytes());
    }
    if let Some(RunCounts { events, undecided, finished }) = run.counted {
        [events, undecided, finished].iter().for_each(|count| value.extend(count.to_le_bytes()));
    }
    sources(&mut value, &run.sources);
    value.extend((run.expected_fragments.len() as u16).to_le_bytes());
    for of in &run.expected_fragments {
        value.extend(of.first.0.to_le_bytes());
        value.extend(of.last.0.to_le_bytes());
        value.extend(of.fragments.to_le_bytes());
    }
    value.extend((run.streams.len() as u16).to_le_bytes());
    for stream in &run.streams {
        value.extend(stream.version.to_le_bytes());
        text(&mut value, stream.name.as_str());
    }
    Kept { key, value }.checked()
}

pub(crate) fn encode_stream(stream: &StreamVersion, token: u64) -> Kept {
    let mut key = vec![key::STREAM];
    key.extend(stream.version.to_le_bytes());
    key.extend(stream.name.as_str().as_bytes());
    let StreamDefinition { sources: of, prescale, format, priority, destination, block } = &stream.definition;
    let (rule, length) = match *block {
        BlockRule::Run => (0, 0),
        BlockRule::Events(events) => (1, events),
        BlockRule::Seconds(seconds) => (2, seconds),
    };
    let mut value = vec![LAYOUT, rule];
    value.extend(priority.to_le_bytes());
    value.extend(prescale.to_le_bytes());
    value.extend(length.to_le_bytes());
    value.extend(token.to_le_bytes());
    value.extend(stream.at_unix_ns.to_le_bytes());
    text(&mut value, &stream.by);
    text(&mut value, format);
    text(&mut value, destination);
    match of {
        // Nobody defines a stream without sources.
        StreamSources::All => sources(&mut value, &SourceSet::default()),
        StreamSources::Part(of) => sources(&mut value, of),
    }
    Kept { key, value }.checked()
}

impl Kept {
    fn checked(self) -> Kept {
        assert!(self.key.len() + self.value.len() <= RECORD_BYTES_MAX, "what goes into the books is bounded");
        self
    }
}

// ---- reading ----

struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    fn malformed<T>(&self, what: &'static str) -> Result<T, RecordError> {
        Err(RecordError::Malformed { what, at: self.at })
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], RecordError> {
        match self.bytes.get(self.at..).and_then(|rest| rest.get(..count)) {
            Some(taken) => {
                self.at += count;
                Ok(taken)
            }
            None => self.malformed("a field that is not all there"),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn u8(&mut self) -> Result<u8, RecordError> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Result<u16, RecordError> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, RecordError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, RecordError> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self, most: usize) -> Result<String, RecordError> {
        let bytes = usize::from(self.u16()?);
        if bytes > most {
            return self.malformed("a text that is too long");
        }
        match std::str::from_utf8(self.take(bytes)?) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => self.malformed("a text that is none"),
        }
    }

    fn stream(&mut self) -> Result<StreamName, RecordError> {
        let name = self.text(STREAM_NAME_BYTES_MAX)?;
        name.parse().or_else(|_| self.malformed("a name that no stream has"))
    }

    fn step(&mut self) -> Result<RunStep, RecordError> {
        let at_unix_ns = i64::from_le_bytes(self.array()?);
        Ok(RunStep { at_unix_ns, by: self.text(PERSON_BYTES_MAX)?, reason: self.text(REASON_BYTES_MAX)? })
    }

    fn sources(&mut self) -> Result<SourceSet, RecordError> {
        let count = usize::from(self.u16()?);
        let mut ranges = Vec::new();
        for _ in 0..count.min(SOURCE_RANGES_MAX + 1) {
            ranges.push((SourceId(self.u32()?), SourceId(self.u32()?)));
        }
        SourceSet::from_ranges(&ranges).map_or_else(|| self.malformed("sources that are none"), Ok)
    }

    fn ends(&self) -> Result<(), RecordError> {
        if self.at == self.bytes.len() { Ok(()) } else { self.malformed("more than a record has") }
    }
}

/// Reads a record.
pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<Record, RecordError> {
    let mut key = Fields { bytes: key, at: 0 };
    let mut value = Fields { bytes: value, at: 0 };
    let (kind, layout) = (key.u8()?, value.u8()?);
    let record = match (kind, layout) {
        (key::RUN, LAYOUT) => decode_run(RunId(key.u32()?), &mut value)?,
        (key::STREAM, LAYOUT) => {
            let (version, name) = (key.u32()?, key.take(key.bytes.len() - key.at)?);
            let name = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
            let Some(name) = name else { return key.malformed("a name that no stream has") };
            if version == 0 {
                return key.malformed("version 0 of a stream");
            }
            decode_stream(name, version, &mut value)?
        }
        (kind, layout) => return Err(RecordError::Newer { kind, layout }),
    };
    key.ends()?;
    value.ends()?;
    Ok(record)
}

fn decode_run(run: RunId, fields: &mut Fields<'_>) -> Result<Record, RecordError> {
    let Some(state) = RunState::from_code(fields.u8()?) else { return fields.malformed("a state that is not known") };
    let present = fields.u8()?;
    let has = |place: u8| present & 1 << place != 0;
    let (changes, token) = (fields.u32()?, fields.u64()?);
    let declared = fields.step()?;
    let mut step = |place| if has(place) { fields.step().map(Some) } else { Ok(None) };
    let (started, stopped, closed, discarded) = (step(0)?, step(1)?, step(2)?, step(3)?);
    let (begun, ended) = (step(4)?, step(5)?);
    let hold = match (begun, ended) {
        (Some(begun), ended) => Some(RunHold { begun, ended }),
        (None, None) => None,
        (None, Some(_)) => return fields.malformed("a hold that ended and never began"),
    };
    let expected_events = if has(6) { Some(fields.u64()?) } else { None };
    let counted = if has(7) {
        Some(RunCounts { events: fields.u64()?, undecided: fields.u64()?, finished: fields.u64()? })
    } else {
        None
    };
    let sources = fields.sources()?;
    let mut expected_fragments = Vec::new();
    for _ in 0..usize::from(fields.u16()?).min(SOURCE_RANGES_MAX + 1) {
        let (first, last) = (SourceId(fields.u32()?), SourceId(fields.u32()?));
        expected_fragments.push(SourceFragments { first, last, fragments: fields.u64()? });
    }
    if !SourceFragments::are_sound(&expected_fragments) {
        return fields.malformed("fragments by source that are none");
    }
    let mut streams = Vec::new();
    let count = usize::from(fields.u16()?);
    if count > STREAMS_MAX {
        return fields.malformed("more streams than there may be");
    }
    for _ in 0..count {
        let version = fields.u32()?;
        streams.push(RunStream { version, name: fields.stream()? });
    }
    let run = RunRecord {
        run,
        state,
        changes,
        sources,
        declared,
        started,
        stopped,
        closed,
        discarded,
        hold,
        expected_events,
        expected_fragments,
        counted,
        streams,
    };
    Ok(Record::Run(Box::new(run), token))
}

fn decode_stream(name: StreamName, version: u32, fields: &mut Fields<'_>) -> Result<Record, RecordError> {
    let (rule, priority, prescale, length) = (fields.u8()?, fields.u16()?, fields.u32()?, fields.u64()?);
    let block = match rule {
        0 => BlockRule::Run,
        1 => BlockRule::Events(length),
        2 => BlockRule::Seconds(length),
        _ => return fields.malformed("a rule for luminosity blocks that is not known"),
    };
    let token = fields.u64()?;
    let at_unix_ns = i64::from_le_bytes(fields.array()?);
    let by = fields.text(PERSON_BYTES_MAX)?;
    let (format, destination) = (fields.text(FORMAT_BYTES_MAX)?, fields.text(DESTINATION_BYTES_MAX)?);
    let part = fields.sources()?;
    let sources = if part.is_empty() { StreamSources::All } else { StreamSources::Part(part) };
    let definition = StreamDefinition { sources, prescale, format, priority, destination, block };
    if definition.check().is_err() {
        return fields.malformed("a definition that means nothing");
    }
    Ok(Record::Stream(Box::new(StreamVersion { name, version, at_unix_ns, by, definition }), token))
}
