//! Formats and events, and what can be asked of an event of any format.

use std::fmt;

use forebay_types::{EventId, EventKey, RunId, SourceId};

use crate::bytes::{u16_at, u32_at};
use crate::error::{InputError, NumberUnknown, Problem, RenumberError};
use crate::{EVENT_BYTES_MAX, besiii, faser, mdf};

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// FASER raw: a header, then fragments.
    Faser,
    /// LHCb MDF: a header, then raw banks, compressed or not.
    Mdf,
    /// BESIII raw: headers of event, sub-detectors and ROSes around ROBs, in a file with a header, separators and a tail.
    Besiii,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 3] = [Format::Faser, Format::Mdf, Format::Besiii];

    /// How names of files of this format end, without the dot. (BESIII itself ends them in `.raw`, as FASER does.)
    pub const fn extension(self) -> &'static str {
        match self {
            Format::Faser => "raw",
            Format::Mdf => "mdf",
            Format::Besiii => "besiii",
        }
    }

    /// The name that commands take and messages print.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Faser => "faser",
            Format::Mdf => "mdf",
            Format::Besiii => "besiii",
        }
    }

    /// The largest run number that the format holds.
    pub const fn run_max(self) -> RunId {
        match self {
            Format::Faser => RunId(faser::RUN_MAX),
            Format::Mdf | Format::Besiii => RunId(u32::MAX),
        }
    }

    /// The largest event number that the format holds.
    pub const fn event_max(self) -> EventId {
        match self {
            Format::Faser | Format::Mdf => EventId(u64::MAX),
            Format::Besiii => EventId(besiii::EVENT_MAX),
        }
    }

    /// The format of a file that starts with these bytes. Twelve are enough; fewer are no format.
    pub fn detect(first_bytes: &[u8]) -> Option<Format> {
        if first_bytes.len() < 12 {
            return None;
        }
        // The sizes first: a record of MDF may well start with FASER's marker, 0xBB.
        let size = u32_at(first_bytes, 0);
        if size == u32_at(first_bytes, 4) && size == u32_at(first_bytes, 8) && size >= mdf::HEADER_BYTES_MIN as u32 {
            return Some(Format::Mdf);
        }
        if size == besiii::FILE_MARKER {
            return Some(Format::Besiii);
        }
        let header_bytes = usize::from(u16_at(first_bytes, 6));
        (first_bytes[0] == faser::EVENT_MARKER && header_bytes >= faser::HEADER_BYTES).then_some(Format::Faser)
    }

    /// Bytes at the start of an event that hold its size.
    pub(crate) const fn prefix_bytes(self) -> usize {
        match self {
            Format::Faser => faser::HEADER_BYTES,
            Format::Mdf => mdf::HEADER_BYTES_MIN,
            Format::Besiii => besiii::HEADER_BYTES_MIN,
        }
    }

    /// The size of the event that starts with these bytes, at most [`EVENT_BYTES_MAX`] and at least
    /// [`Format::prefix_bytes`].
    pub(crate) fn event_bytes(self, prefix: &[u8]) -> Result<u64, Problem> {
        let bytes = match self {
            Format::Faser => faser::Header::parse(prefix)?.event_bytes(),
            Format::Mdf => mdf::Header::parse(prefix)?.record_bytes,
            Format::Besiii => besiii::event_bytes(prefix)?,
        };
        if bytes > EVENT_BYTES_MAX {
            return Err(Problem::TooLarge { expected: EVENT_BYTES_MAX, found: bytes });
        }
        Ok(bytes)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One event as it is in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawEvent {
    /// Its format.
    pub format: Format,
    /// Its run and number; the bytes may hold others, see [`renumber`].
    pub key: EventKey,
    /// Exactly the bytes in the file.
    pub bytes: Vec<u8>,
}

/// What the bytes of a well-formed event say of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventInfo {
    /// Its run.
    pub run: RunId,
    /// Its number, or why it cannot be found.
    pub event: Result<EventId, NumberUnknown>,
    /// Its fragments (FASER), raw banks (MDF, after inflating) or ROBs (BESIII); 0 when they cannot be seen.
    pub fragments: usize,
    /// Whether the event stays one piece: its payload is compressed, or no banks.
    pub whole: bool,
    /// When it was taken, in microseconds since 1970, where its bytes say that.
    pub taken_unix_us: Option<u64>,
}

/// Checks one whole event, without what its file holds around it: structure, lengths, MDF checksum; and says what its bytes
/// say of it.
///
/// # Errors
/// The first thing that is wrong, with `event_offset` 0.
pub fn inspect(format: Format, bytes: &[u8]) -> Result<EventInfo, InputError> {
    inspect_event(format, bytes).map_err(|problem| InputError { event_offset: 0, events_before: 0, problem })
}

/// Checks one whole event as [`inspect`] does, and gives the run and number *that its bytes hold*. After
/// [`renumber`] these are the event's key, except for an event that only got another key.
///
/// # Errors
/// What [`inspect`] gives, and [`Problem::EventNumber`] when the bytes hold no number.
pub fn verify(format: Format, bytes: &[u8]) -> Result<EventKey, InputError> {
    let info = inspect(format, bytes)?;
    match info.event {
        Ok(event) => Ok(EventKey { run: info.run, event }),
        Err(unknown) => Err(InputError { event_offset: 0, events_before: 0, problem: unknown.into() }),
    }
}

pub(crate) fn inspect_event(format: Format, bytes: &[u8]) -> Result<EventInfo, Problem> {
    check_length(format, bytes)?;
    match format {
        Format::Faser => faser::inspect(bytes),
        Format::Mdf => mdf::inspect(bytes),
        Format::Besiii => besiii::inspect(bytes),
    }
}

/// Checks that these are as many bytes as the header at their start says.
pub(crate) fn check_length(format: Format, bytes: &[u8]) -> Result<(), Problem> {
    let found = bytes.len() as u64;
    let prefix = format.prefix_bytes() as u64;
    if found < prefix {
        return Err(Problem::Truncated { expected: prefix, found });
    }
    match format.event_bytes(bytes)? {
        expected if expected == found => Ok(()),
        expected => Err(Problem::Length { expected, found }),
    }
}

/// Whether a fragment of this source holds the number of its event: without it, what is left of the event cannot be told from others.
pub const fn holds_number(format: Format, source: SourceId) -> bool {
    match format {
        Format::Mdf => source.0 >> 16 == mdf::ODIN as u32,
        Format::Faser | Format::Besiii => false,
    }
}

/// Gives the event another run and number, in its key and, where the format has them, in its bytes.
///
/// | format | rewritten |
/// | --- | --- |
/// | FASER | event header: run, event id, event counter (in recorded files always equal to the event id); every fragment header: event id |
/// | MDF | header: run (versions 1 and 3); first ODIN bank (versions 2 to 6): run and event number; the checksum, unless it was 0 |
/// | BESIII | event header: event number, run, and the L1 id where it equals the event number, as in recorded files |
/// | compressed (FASER, MDF), MDF without a known ODIN bank, MEP | nothing but `key` |
///
/// Payloads of FASER fragments and the ROSes and ROBs of BESIII are left alone, although some repeat the number in their own
/// way.
///
/// # Errors
/// A damaged event, or a run or number that the format cannot hold; the event is then unchanged.
pub fn renumber(event: &mut RawEvent, run: RunId, number: EventId) -> Result<(), RenumberError> {
    match event.format {
        Format::Faser => faser::renumber(&mut event.bytes, run, number)?,
        Format::Mdf => mdf::renumber(&mut event.bytes, run, number)?,
        Format::Besiii => besiii::renumber(&mut event.bytes, run, number)?,
    }
    event.key = EventKey { run, event: number };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_of_mdf_win_over_the_marker_of_faser() {
        let mdf = [0xBB, 1, 0, 0].repeat(3);
        assert_eq!(Format::detect(&mdf), Some(Format::Mdf));
        let faser = [0xBB, 0, 0, 0, 1, 0, 44, 0, 0, 0, 0, 0];
        assert_eq!(Format::detect(&faser), Some(Format::Faser));
        assert_eq!(Format::detect(&[0xAA, 0xAA, 0x34, 0x12, 8, 0, 0, 0, 2, 0, 0, 0]), Some(Format::Besiii));
        assert_eq!(Format::detect(&faser[..11]), None);
        assert_eq!(Format::detect(&[0; 12]), None);
    }
}
