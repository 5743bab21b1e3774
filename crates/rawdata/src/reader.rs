//! The events of a file, one after the other.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use forebay_types::{EventId, EventKey};

use crate::besiii::{BesiiiFile, END_BYTES, EndRecord, SEPARATOR_BYTES, Separator, head_bytes};
use crate::container::Container;
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
///
/// What a BESIII file holds around its events is read and checked too: it must start with a file header, and end with a tail that
/// counts the events before it.
pub struct EventReader<R: Read> {
    format: Format,
    reader: R,
    offset: u64,
    events: u64,
    by_position: Option<bool>,
    ended: bool,
    container: Option<Container>,
}

impl<R: Read> EventReader<R> {
    /// Reads events of `format` from where `reader` stands. Offsets in errors count from there.
    pub fn new(format: Format, reader: R) -> Self {
        EventReader { format, reader, offset: 0, events: 0, by_position: None, ended: false, container: None }
    }

    /// The format of the events.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Where reading goes on, in bytes: behind the last event; after an error, where what is damaged starts.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether events are numbered by their position; false before the first one.
    pub fn numbers_by_position(&self) -> bool {
        self.by_position == Some(true)
    }

    /// What the file holds besides events: all of it at the end of the file, before that what was read so far; `None` before
    /// the first event.
    pub fn container(&self) -> Option<&Container> {
        self.container.as_ref()
    }

    fn read_event(&mut self) -> Result<Option<RawEvent>, Problem> {
        let said_bytes = match self.before_event()? {
            Before::Event { said_bytes } => said_bytes,
            Before::End => return Ok(None),
        };
        let mut bytes = Vec::new();
        self.fill(&mut bytes, self.format.prefix_bytes() as u64)?;
        if bytes.is_empty() && said_bytes.is_none() {
            return Ok(None);
        }
        let found = bytes.len() as u64;
        let prefix_bytes = self.format.prefix_bytes() as u64;
        if found < prefix_bytes {
            return Err(Problem::Truncated { expected: prefix_bytes, found });
        }
        let expected = self.format.event_bytes(&bytes)?;
        if let Some(said_bytes) = said_bytes.filter(|said_bytes| *said_bytes != expected) {
            return Err(Problem::BlockBytes { expected: said_bytes, found: expected });
        }
        self.fill(&mut bytes, expected)?;
        let found = bytes.len() as u64;
        if found < expected {
            return Err(Problem::Truncated { expected, found });
        }
        let info = inspect_event(self.format, &bytes)?;
        let key = EventKey { run: info.run, event: self.number(&info)? };
        Ok(Some(RawEvent { format: self.format, key, bytes }))
    }

    /// Reads what stands before the next event. What is behind it is where an error is.
    fn before_event(&mut self) -> Result<Before, Problem> {
        if self.format != Format::Besiii {
            self.container = Some(Container::Plain);
            return Ok(Before::Event { said_bytes: None });
        }
        if self.container.is_none() {
            let file = self.read_head().map_err(|problem| problem.in_record("file header"))?;
            self.container = Some(Container::Besiii(Box::new(file)));
        }
        let mut bytes = Vec::new();
        self.fill(&mut bytes, SEPARATOR_BYTES as u64)?;
        if bytes.is_empty() {
            return Err(Problem::NoTail);
        }
        let separator = whole(&bytes, SEPARATOR_BYTES).and_then(Separator::parse);
        match separator.map_err(|problem| problem.in_record("data separator"))? {
            Separator::Event { number, event_bytes } => {
                if let (0, Some(Container::Besiii(file))) = (self.events, &mut self.container) {
                    file.first_block = number;
                }
                self.offset += bytes.len() as u64;
                Ok(Before::Event { said_bytes: Some(event_bytes) })
            }
            Separator::End => {
                self.read_tail(bytes).map_err(|problem| problem.in_record("tail of the file"))?;
                let mut more = Vec::new();
                self.fill(&mut more, 1)?;
                if more.is_empty() { Ok(Before::End) } else { Err(Problem::AfterTail) }
            }
        }
    }

    fn read_head(&mut self) -> Result<BesiiiFile, Problem> {
        let mut bytes = Vec::new();
        loop {
            let needed = head_bytes(&bytes)?;
            if needed == bytes.len() {
                break;
            }
            self.fill(&mut bytes, needed as u64)?;
            whole(&bytes, needed)?;
        }
        let file = BesiiiFile::parse(&bytes)?;
        self.offset += bytes.len() as u64;
        Ok(file)
    }

    /// Reads the tail of which `bytes` are the first.
    fn read_tail(&mut self, mut bytes: Vec<u8>) -> Result<(), Problem> {
        self.fill(&mut bytes, END_BYTES as u64)?;
        let end = EndRecord::parse(whole(&bytes, END_BYTES)?)?;
        let (expected, found) = (end.events_in_file, self.events as u32);
        if expected != found {
            return Err(Problem::TailEvents { expected, found });
        }
        if let Some(Container::Besiii(file)) = &mut self.container {
            file.end = end.before();
        }
        self.offset += bytes.len() as u64;
        Ok(())
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

/// What stands where an event may start.
enum Before {
    /// An event may follow; how many bytes a separator said that it has.
    Event { said_bytes: Option<u64> },
    /// The end of the file.
    End,
}

/// All of `bytes`, which must be as many as `expected`.
fn whole(bytes: &[u8], expected: usize) -> Result<&[u8], Problem> {
    let (expected, found) = (expected as u64, bytes.len() as u64);
    if found < expected { Err(Problem::Truncated { expected, found }) } else { Ok(bytes) }
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
