//! Files of a format that has something before, between and behind its events, as one such file.

use std::cell::RefCell;
use std::io::{self, Read};
use std::rc::Rc;

use forebay_rawdata::{Container, EventReader, Format};

use super::Recipe;
use crate::custody::SourceAnswer;
use crate::endpoint::{Content, Source};

/// The events of all parts between the head of the first one and a tail that counts them all; one event at a time.
pub(crate) struct EventFile<'a> {
    source: &'a dyn Source,
    recipe: &'a Recipe,
    format: Format,
    /// The part that is read, and those behind it.
    part: usize,
    reader: Option<(EventReader<PartReader<'a>>, Failed)>,
    /// What is around the events: that of the first part.
    container: Option<Container>,
    events: u64,
    event_bytes: u64,
    block: Vec<u8>,
    is_over: bool,
}

/// Why a part could not be read: the readers of events wrap errors.
type Failed = Rc<RefCell<Option<SourceAnswer>>>;

impl<'a> EventFile<'a> {
    pub(crate) fn new(source: &'a dyn Source, recipe: &'a Recipe, format: Format) -> EventFile<'a> {
        EventFile {
            source,
            recipe,
            format,
            part: 0,
            reader: None,
            container: None,
            events: 0,
            event_bytes: 0,
            block: Vec::new(),
            is_over: false,
        }
    }

    /// The next event of any part.
    fn next_event(&mut self) -> Result<Option<Vec<u8>>, SourceAnswer> {
        while let Some(part) = self.recipe.parts.get(self.part) {
            let (reader, failed) = match &mut self.reader {
                Some(reader) => reader,
                none => {
                    let failed = Failed::default();
                    let content = self.source.open(part)?;
                    let bytes = PartReader { content, given_bytes: 0, failed: Rc::clone(&failed) };
                    none.insert((EventReader::new(self.format, bytes), failed))
                }
            };
            match reader.next() {
                Some(Ok(event)) => {
                    if self.container.is_none() {
                        self.container = Some(reader.container().cloned().unwrap_or(Container::Plain));
                    }
                    return Ok(Some(event.bytes));
                }
                Some(Err(error)) => {
                    let damage = || {
                        SourceAnswer::Damaged(format!("{}: {} is damaged: {}", part.name, error.place(), error.problem))
                    };
                    return Err(failed.borrow_mut().take().unwrap_or_else(damage));
                }
                None => (self.reader, self.part) = (None, self.part + 1),
            }
        }
        Ok(None)
    }
}

impl Content for EventFile<'_> {
    fn refill(&mut self) -> Result<bool, SourceAnswer> {
        self.block.clear();
        if self.is_over {
            return Ok(false);
        }
        let event = self.next_event()?;
        let container = self.container.as_ref().unwrap_or(&Container::Plain);
        if let Some(event) = event {
            if self.events == 0 {
                self.block = container.head();
            }
            self.block.extend(container.before_event(self.events, event.len() as u64));
            self.block.extend_from_slice(&event);
            self.events += 1;
            self.event_bytes += event.len() as u64;
        } else {
            self.is_over = true;
            self.block = container.tail(self.events, self.event_bytes);
        }
        Ok(!self.block.is_empty())
    }

    fn block(&self) -> &[u8] {
        &self.block
    }
}

/// The bytes of a part, as readers of events want them.
struct PartReader<'a> {
    content: Box<dyn Content + 'a>,
    /// Of the block.
    given_bytes: usize,
    failed: Failed,
}

impl Read for PartReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.given_bytes == self.content.block().len() {
            self.given_bytes = 0;
            match self.content.refill() {
                Ok(true) => {}
                Ok(false) => return Ok(0),
                Err(answer) => {
                    *self.failed.borrow_mut() = Some(answer);
                    return Err(io::ErrorKind::Other.into());
                }
            }
        }
        let rest = &self.content.block()[self.given_bytes..];
        let bytes = into.len().min(rest.len());
        into[..bytes].copy_from_slice(&rest[..bytes]);
        self.given_bytes += bytes;
        Ok(bytes)
    }
}
