//! What a BESIII file holds besides events. All fields are words of four bytes.
//!
//! ```text
//! start     0x1234aaaa | 8 words | version, 2 | file number | date | time | data blocks at most | MiB at most
//! names     0x1234aabb | length | application, padded to words | length | tag, padded to words
//! run       0x1234bbbb | 9 words | run | events at most | recording | trigger type | detector mask | beam type | energy
//! each event, before it:
//! separator 0x1234cccc | 4 words | block number | bytes of the event
//! end       0x1234dddd | 10 words | date | time | events in file | MiB in file | events in run | MiB in run
//!           | status | 0x1234eeee
//! ```
//!
//! Dates are the decimal digits DDMMYYYY and times HHMMSS, of the clock at the experiment. In the recorded file both limits of
//! the start record are what was configured (no limit of blocks, 2008 MiB): nothing before the end depends on what the file
//! comes to. The block number there counts on from file to file of a run and is not the event number, which is out of order.

use forebay_types::RunId;

use crate::bytes::u32_at;
use crate::error::Problem;

pub(crate) const FILE_MARKER: u32 = 0x1234_aaaa;
const NAMES_MARKER: u32 = 0x1234_aabb;
const RUN_MARKER: u32 = 0x1234_bbbb;
const SEPARATOR_MARKER: u32 = 0x1234_cccc;
const END_MARKER: u32 = 0x1234_dddd;
const END_MARKER_LAST: u32 = 0x1234_eeee;
const VERSION: u32 = 2;

const START_BYTES: usize = 32;
const RUN_BYTES: usize = 36;
pub(crate) const SEPARATOR_BYTES: usize = 16;
pub(crate) const END_BYTES: usize = 40;
/// The longest name that is read.
const NAME_BYTES_MAX: u32 = 1 << 12;

/// A name padded to words, as it is in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaddedText {
    length: u32,
    padded: Vec<u8>,
}

impl PaddedText {
    /// `text`, padded with spaces as in recorded files.
    ///
    /// # Panics
    /// When it has more than 4096 bytes.
    pub fn new(text: &str) -> PaddedText {
        let length = u32::try_from(text.len()).ok().filter(|length| *length <= NAME_BYTES_MAX);
        let length = length.expect("a name of at most 4096 bytes");
        let mut padded = text.as_bytes().to_vec();
        padded.resize(text.len().next_multiple_of(4), b' ');
        PaddedText { length, padded }
    }

    /// The bytes of the name, without padding.
    pub fn bytes(&self) -> &[u8] {
        &self.padded[..self.length as usize]
    }

    /// The bytes in a file of a name of `length` bytes whose length is at `at`.
    fn end(at: usize, length: u32) -> Result<usize, Problem> {
        if length > NAME_BYTES_MAX {
            return Err(Problem::NameLength { at: at as u64, expected: NAME_BYTES_MAX, found: length });
        }
        Ok(at + 4 + length.next_multiple_of(4) as usize)
    }

    fn parse(bytes: &[u8], at: usize) -> Result<(PaddedText, usize), Problem> {
        let length = u32_at(bytes, at);
        let end = PaddedText::end(at, length)?;
        Ok((PaddedText { length, padded: bytes[at + 4..end].to_vec() }, end))
    }

    fn encode(&self, into: &mut Vec<u8>) {
        words(into, &[self.length]);
        into.extend_from_slice(&self.padded);
    }
}

/// The first record of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartRecord {
    /// Which file of the run.
    pub file_number: u32,
    /// When it was begun: DDMMYYYY, 0 when it is not said.
    pub date: u32,
    /// When it was begun: HHMMSS.
    pub time: u32,
    /// The most data blocks (events) that were to be written to it; 0 for any number.
    pub blocks_max: u32,
    /// The most MiB that were to be written to it; 0 for any number.
    pub mebibytes_max: u32,
}

/// The parameters of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunRecord {
    /// The run. Events name theirs themselves.
    pub run: RunId,
    /// The most events of the run; 0 for any number.
    pub events_max: u32,
    /// Whether the run is recorded.
    pub recording: u32,
    /// The trigger type.
    pub trigger_type: u32,
    /// The detectors that take part.
    pub detector_mask: u32,
    /// The type of the beam.
    pub beam_type: u32,
    /// The energy of the beam, in the experiment's unit.
    pub beam_energy: u32,
}

/// The last record of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndRecord {
    /// When the file was closed: DDMMYYYY, 0 when it is not said.
    pub date: u32,
    /// When the file was closed: HHMMSS.
    pub time: u32,
    /// Events of the file.
    pub events_in_file: u32,
    /// Whole MiB of the events of the file.
    pub mebibytes_in_file: u32,
    /// Events of the run up to the end of this file.
    pub events_in_run: u32,
    /// Whole MiB of the events of the run up to the end of this file.
    pub mebibytes_in_run: u32,
    /// Not 0 in the last file of a run, as the experiment's software says.
    pub status: u32,
}

impl EndRecord {
    /// Reads an end record of [`END_BYTES`].
    pub(crate) fn parse(bytes: &[u8]) -> Result<EndRecord, Problem> {
        check_record(bytes, 0, "file tail", END_MARKER, END_BYTES)?;
        let found = u32_at(bytes, 36);
        if found != END_MARKER_LAST {
            return Err(Problem::Marker { what: "end of file", at: 36, expected: END_MARKER_LAST, found });
        }
        let [date, time, events_in_file, mebibytes_in_file, events_in_run, mebibytes_in_run, status] =
            [8, 12, 16, 20, 24, 28, 32].map(|at| u32_at(bytes, at));
        Ok(EndRecord { date, time, events_in_file, mebibytes_in_file, events_in_run, mebibytes_in_run, status })
    }

    fn encode(&self) -> Vec<u8> {
        let EndRecord { date, time, events_in_file, mebibytes_in_file, events_in_run, mebibytes_in_run, status } =
            *self;
        let counts = [events_in_file, mebibytes_in_file, events_in_run, mebibytes_in_run];
        let mut bytes = Vec::with_capacity(END_BYTES);
        words(&mut bytes, &[END_MARKER, END_BYTES as u32 / 4, date, time]);
        words(&mut bytes, &counts);
        words(&mut bytes, &[status, END_MARKER_LAST]);
        bytes
    }

    /// The record of a file of so many events, which follows one that this record says all of.
    fn after(&self, events: u64, event_bytes: u64) -> EndRecord {
        let events_in_file = u32::try_from(events).unwrap_or(u32::MAX);
        let mebibytes_in_file = u32::try_from(event_bytes >> 20).unwrap_or(u32::MAX);
        EndRecord {
            events_in_file,
            mebibytes_in_file,
            events_in_run: self.events_in_run.wrapping_add(events_in_file),
            mebibytes_in_run: self.mebibytes_in_run.wrapping_add(mebibytes_in_file),
            ..*self
        }
    }

    /// What [`EndRecord::after`] makes this record of.
    pub(crate) fn before(&self) -> EndRecord {
        EndRecord {
            events_in_file: 0,
            mebibytes_in_file: 0,
            events_in_run: self.events_in_run.wrapping_sub(self.events_in_file),
            mebibytes_in_run: self.mebibytes_in_run.wrapping_sub(self.mebibytes_in_file),
            ..*self
        }
    }
}

/// Everything in a BESIII file that is no event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BesiiiFile {
    /// The first record.
    pub start: StartRecord,
    /// The name of what wrote the file.
    pub application: PaddedText,
    /// What the writer was told to call its events.
    pub tag: PaddedText,
    /// The parameters of the run.
    pub run: RunRecord,
    /// The number of the first data block; the others count on.
    pub first_block: u32,
    /// What the end record says besides what this file holds: its counts are those of earlier files of the run.
    pub end: EndRecord,
}

impl BesiiiFile {
    /// A file that Forebay makes: of `run`, with nothing said of times, limits and beams, blocks counted from 1.
    pub fn new(run: RunId, file_number: u32) -> BesiiiFile {
        BesiiiFile {
            start: StartRecord { file_number, ..StartRecord::default() },
            application: PaddedText::new("forebay"),
            tag: PaddedText::new("All"),
            run: RunRecord { run, ..RunRecord::default() },
            first_block: 1,
            end: EndRecord::default(),
        }
    }

    /// Reads the records before the first event, whole as [`head_bytes`] says.
    pub(crate) fn parse(bytes: &[u8]) -> Result<BesiiiFile, Problem> {
        let [file_number, date, time, blocks_max, mebibytes_max] = [12, 16, 20, 24, 28].map(|at| u32_at(bytes, at));
        let start = StartRecord { file_number, date, time, blocks_max, mebibytes_max };
        let (application, at) = PaddedText::parse(bytes, START_BYTES + 4)?;
        let (tag, at) = PaddedText::parse(bytes, at)?;
        check_record(bytes, at, "run parameters", RUN_MARKER, RUN_BYTES)?;
        let [run, events_max, recording, trigger_type, detector_mask, beam_type, beam_energy] =
            [8, 12, 16, 20, 24, 28, 32].map(|offset| u32_at(bytes, at + offset));
        let run = RunId(run);
        let run = RunRecord { run, events_max, recording, trigger_type, detector_mask, beam_type, beam_energy };
        Ok(BesiiiFile { start, application, tag, run, first_block: 1, end: EndRecord::default() })
    }

    pub(crate) fn head(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.head_bytes());
        let StartRecord { file_number, date, time, blocks_max, mebibytes_max } = self.start;
        words(&mut bytes, &[FILE_MARKER, START_BYTES as u32 / 4, VERSION, file_number]);
        words(&mut bytes, &[date, time, blocks_max, mebibytes_max, NAMES_MARKER]);
        self.application.encode(&mut bytes);
        self.tag.encode(&mut bytes);
        let RunRecord { run, events_max, recording, trigger_type, detector_mask, beam_type, beam_energy } = self.run;
        words(&mut bytes, &[RUN_MARKER, RUN_BYTES as u32 / 4, run.0, events_max, recording]);
        words(&mut bytes, &[trigger_type, detector_mask, beam_type, beam_energy]);
        bytes
    }

    pub(crate) fn head_bytes(&self) -> usize {
        START_BYTES + 12 + self.application.padded.len() + self.tag.padded.len() + RUN_BYTES
    }

    pub(crate) fn separator(&self, sequence: u64, event_bytes: u64) -> Vec<u8> {
        let number = self.first_block.wrapping_add(sequence as u32);
        let event_bytes = u32::try_from(event_bytes).expect("an event has at most 512 MiB");
        let mut bytes = Vec::with_capacity(SEPARATOR_BYTES);
        words(&mut bytes, &[SEPARATOR_MARKER, SEPARATOR_BYTES as u32 / 4, number, event_bytes]);
        bytes
    }

    pub(crate) fn tail(&self, events: u64, event_bytes: u64) -> Vec<u8> {
        self.end.after(events, event_bytes).encode()
    }
}

/// How many bytes of the records before the first event must be there for the next step, given those that are there. When it is
/// as many, they are all there.
pub(crate) fn head_bytes(bytes: &[u8]) -> Result<usize, Problem> {
    let needed = START_BYTES + 8;
    if bytes.len() < needed {
        return Ok(needed);
    }
    check_record(bytes, 0, "file", FILE_MARKER, START_BYTES)?;
    if u32_at(bytes, 8) != VERSION {
        return Err(Problem::Version { what: "file", at: 8, expected: "2", found: u32_at(bytes, 8) });
    }
    let found = u32_at(bytes, START_BYTES);
    if found != NAMES_MARKER {
        let (what, at) = ("file names", START_BYTES as u64);
        return Err(Problem::Marker { what, at, expected: NAMES_MARKER, found });
    }
    let tag = PaddedText::end(START_BYTES + 4, u32_at(bytes, START_BYTES + 4))?;
    if bytes.len() < tag + 4 {
        return Ok(tag + 4);
    }
    Ok(PaddedText::end(tag, u32_at(bytes, tag))? + RUN_BYTES)
}

/// What stands where an event may follow.
pub(crate) enum Separator {
    /// A data separator.
    Event {
        /// The number of the block.
        number: u32,
        /// The bytes of the event.
        event_bytes: u64,
    },
    /// The start of an end record.
    End,
}

impl Separator {
    /// Reads [`SEPARATOR_BYTES`].
    pub(crate) fn parse(bytes: &[u8]) -> Result<Separator, Problem> {
        if u32_at(bytes, 0) == END_MARKER {
            return Ok(Separator::End);
        }
        check_record(bytes, 0, "data separator", SEPARATOR_MARKER, SEPARATOR_BYTES)?;
        Ok(Separator::Event { number: u32_at(bytes, 8), event_bytes: u32_at(bytes, 12).into() })
    }
}

fn check_record(bytes: &[u8], at: usize, what: &'static str, marker: u32, size: usize) -> Result<(), Problem> {
    let (place, found) = (at as u64, u32_at(bytes, at));
    if found != marker {
        return Err(Problem::Marker { what, at: place, expected: marker, found });
    }
    let (expected, found) = (size as u32 / 4, u32_at(bytes, at + 4));
    if found != expected {
        return Err(Problem::RecordWords { what, at: place, expected, found });
    }
    Ok(())
}

fn words(into: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| into.extend_from_slice(&word.to_le_bytes()));
}
