//! What a file of events holds besides them.

use forebay_types::RunId;

use crate::besiii::{BesiiiFile, END_BYTES, SEPARATOR_BYTES};
use crate::event::Format;

/// What stands in a file before, between and after its events. Nothing in a head or before an event depends on what comes
/// later, and all sizes are known in advance, so that whoever puts events together to a file can write it from its beginning
/// to its end, or compute any part of it.
///
/// ```
/// use forebay_rawdata::{Container, EventReader, Format, Generator};
/// use forebay_types::RunId;
///
/// let events = Generator::new(Format::Besiii, 1, RunId(7)).next_event().bytes;
/// let container = Container::new(Format::Besiii, RunId(7), 0);
/// let bytes = events.len() as u64;
/// let file = [container.head(), container.before_event(0, bytes), events, container.tail(1, bytes)].concat();
/// assert_eq!(file.len() as u64, container.file_bytes(1, bytes));
/// assert_eq!(EventReader::new(Format::Besiii, file.as_slice()).filter(Result::is_ok).count(), 1);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Container {
    /// Nothing: FASER raw and MDF are events back to back.
    Plain,
    /// A file header, a data separator before each event, a tail.
    Besiii(Box<BesiiiFile>),
}

impl Container {
    /// That of a new file of events of one run; `file_number` counts the files of the run.
    pub fn new(format: Format, run: RunId, file_number: u32) -> Container {
        match format {
            Format::Faser | Format::Mdf => Container::Plain,
            Format::Besiii => Container::Besiii(Box::new(BesiiiFile::new(run, file_number))),
        }
    }

    /// What the file starts with.
    pub fn head(&self) -> Vec<u8> {
        match self {
            Container::Plain => Vec::new(),
            Container::Besiii(file) => file.head(),
        }
    }

    /// What stands before an event of so many bytes, behind `sequence` other events of the file.
    ///
    /// # Panics
    /// When the event has 4 GiB or more, which is more than [`EVENT_BYTES_MAX`](crate::EVENT_BYTES_MAX).
    pub fn before_event(&self, sequence: u64, event_bytes: u64) -> Vec<u8> {
        match self {
            Container::Plain => Vec::new(),
            Container::Besiii(file) => file.separator(sequence, event_bytes),
        }
    }

    /// What the file ends with when it holds so many events, of so many bytes in all (themselves, without what stands between them).
    pub fn tail(&self, events: u64, event_bytes: u64) -> Vec<u8> {
        match self {
            Container::Plain => Vec::new(),
            Container::Besiii(file) => file.tail(events, event_bytes),
        }
    }

    /// Bytes of [`Container::head`].
    pub fn head_bytes(&self) -> u64 {
        match self {
            Container::Plain => 0,
            Container::Besiii(file) => file.head_bytes() as u64,
        }
    }

    /// Bytes of [`Container::before_event`], the same for every event.
    pub const fn before_event_bytes(&self) -> u64 {
        match self {
            Container::Plain => 0,
            Container::Besiii(_) => SEPARATOR_BYTES as u64,
        }
    }

    /// Bytes of [`Container::tail`].
    pub const fn tail_bytes(&self) -> u64 {
        match self {
            Container::Plain => 0,
            Container::Besiii(_) => END_BYTES as u64,
        }
    }

    /// Bytes of a file of so many events, of so many bytes in all.
    pub fn file_bytes(&self, events: u64, event_bytes: u64) -> u64 {
        let between = self.before_event_bytes().saturating_mul(events);
        (self.head_bytes() + self.tail_bytes()).saturating_add(between).saturating_add(event_bytes)
    }

    /// Where an event starts in the file, behind `events` others of so many bytes in all.
    pub fn event_offset(&self, events: u64, event_bytes: u64) -> u64 {
        let before = self.before_event_bytes().saturating_mul(events.saturating_add(1));
        self.head_bytes().saturating_add(before).saturating_add(event_bytes)
    }
}
