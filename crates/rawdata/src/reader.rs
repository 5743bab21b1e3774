//! The events of a file, one after the other.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use forebay_types::{EventId, EventKey};

use crate::error::{InputError, Problem};
use crate::event::{EventInfo, Format, RawEvent, inspect_event};

/// Bytes that are allocated before the first byte of an event has come; what an event says of its size
/// is believed only as its bytes arrive.
const RESERVE_BYTES_MAX: u64 = 1 << 20;
const BUFFER_BYTES: usize = 1 << 20;

/// Reads events, checks each as [`inspect`](crate::inspect) does, and ends for good after an error.
///
/// The key is the run and number that the event's bytes hold. When the *first* event holds no number
/// (an MDF file with an unknown ODIN bank, say) all events of the file are numbered by their position,
/// from 0; a later event without a number is an error.
pub struct EventReader<R: Read> {
    format: Format,
    reader: R,
    offset: u64,
    events: u64,
    by_position: Option<bool>,
    ended: bool,
}

impl<R: Read> EventReader<R> {
    /// Reads events of `format` from where `reader` stands. Offsets in errors count from there.
    pub fn new(format: Format, reader: R) -> Self {
        EventReader { format, reader, offset: 0, events: 0, by_position: None, ended: false }
    }

    /// The format of the events.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Where the next event starts, in bytes; after an error, where the damaged one does.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether events are numbered by their position; false before the first one.
    pub fn numbers_by_position(&self) -> bool {
        self.by_position == Some(true)
    }

    fn read_event(&mut self) -> Result<Option<RawEvent>, Problem> {
        let mut bytes = Vec::new();
        self.fill(&mut bytes, self.format.prefix_bytes() as u64)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let found = bytes.len() as u64;
        let prefix_bytes = self.format.prefix_bytes() as u64;
        if found < prefix_bytes {
            return Err(Problem::Truncated { expected: prefix_bytes, found });
        }
        let expected = self.format.event_bytes(&bytes)?;
        self.fill(&mut bytes, expected)?;
        let found = bytes.len() as u64;
        if found < expected {
            return Err(Problem::Truncated { expected, found });
        }
        let info = inspect_event(self.format, &bytes)?;
        let key = EventKey { run: info.run, event: self.number(&info)? };
        Ok(Some(RawEvent { format: self.format, key, bytes }))
    }

    /// Reads until `bytes` holds `wanted` bytes or the input ends.
    fn fill(&mut self, bytes: &mut Vec<u8>, wanted: u64) -> Result<(), Problem> {
        let missing = wanted - bytes.len() as u64;
        bytes.reserve(missing.min(RESERVE_BYTES_MAX) as usize);
        self.reader.by_ref().take(missing).read_to_end(bytes).map_err(|error| Problem::io(&error))?;
        Ok(())
    }

    fn number(&mut self, info: &EventInfo) -> Result<EventId, Problem> {
        if *self.by_position.get_or_insert(info.event.is_err()) {
            return Ok(EventId(self.events));
        }
        Ok(info.event?)
    }
}

impl<R: Read> Iterator for EventReader<R> {
    type Item = Result<RawEvent, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        match self.read_event() {
            Ok(Some(event)) => {
                self.offset += event.bytes.len() as u64;
                self.events += 1;
                Some(Ok(event))
            }
            Ok(None) => {
                self.ended = true;
                None
            }
            Err(problem) => {
                self.ended = true;
                Some(Err(InputError { event_offset: self.offset, events_before: self.events, problem }))
            }
        }
    }
}

impl<R: Read> std::iter::FusedIterator for EventReader<R> {}

/// Opens a file and finds out its format from its first bytes; the name does not matter.
///
/// # Errors
/// A file that cannot be opened or read, or that is of no known format; an empty one is of none. The error
/// does not name the file.
pub fn open(path: &Path) -> Result<EventReader<BufReader<File>>, InputError> {
    let failed = |problem| InputError { event_offset: 0, events_before: 0, problem };
    let io = |error: std::io::Error| failed(Problem::io(&error));
    let mut file = File::open(path).map_err(io)?;
    if file.metadata().map_err(io)?.is_dir() {
        return Err(io(ErrorKind::IsADirectory.into()));
    }
    let mut first = Vec::new();
    file.by_ref().take(12).read_to_end(&mut first).map_err(io)?;
    file.seek(SeekFrom::Start(0)).map_err(io)?;
    let format = Format::detect(&first).ok_or_else(|| failed(Problem::UnknownFormat { found: first }))?;
    Ok(EventReader::new(format, BufReader::with_capacity(BUFFER_BYTES, file)))
}
