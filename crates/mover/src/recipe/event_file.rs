//! Files of a format that has something before, between and behind its events, as one such file.

use std::cell::RefCell;
use std::rc::Rc;

use forebay_rawdata::{Container, EventReader, Format};
use forebay_types::RunId;

use super::reader::{ContentReader, Failed};
use crate::about::Events;
use crate::custody::{Part, SourceAnswer};
use crate::endpoint::{Content, Source};

/// The events of all parts between the head of the first one and a tail that counts them all; one event at a time. Each is checked as it is read, and all are of one run.
pub(super) struct EventFile<'a> {
    source: &'a dyn Source,
    parts: &'a [Part],
    format: Format,
    /// The part that is read, and those behind it.
    part: usize,
    reader: Option<(EventReader<PartReader<'a>>, Failed)>,
    /// What is around the events: that of the first part.
    container: Option<Container>,
    run: Option<RunId>,
    noted: Option<Rc<RefCell<Events>>>,
    events: u64,
    event_bytes: u64,
    block: Vec<u8>,
    is_over: bool,
}

type PartReader<'a> = ContentReader<Box<dyn Content + 'a>>;

impl<'a> EventFile<'a> {
    pub(super) fn new(source: &'a dyn Source, parts: &'a [Part], format: Format) -> EventFile<'a> {
        EventFile {
            source,
            parts,
            format,
            part: 0,
            reader: None,
            container: None,
            run: None,
            noted: None,
            events: 0,
            event_bytes: 0,
            block: Vec::new(),
            is_over: false,
        }
    }

    /// Notes each event there.
    pub(super) fn noting(self, events: &Rc<RefCell<Events>>) -> EventFile<'a> {
        EventFile { noted: Some(Rc::clone(events)), ..self }
    }

    /// The next event of any part.
    fn next_event(&mut self) -> Result<Option<Vec<u8>>, SourceAnswer> {
        while let Some(part) = self.parts.get(self.part) {
            let (reader, failed) = match &mut self.reader {
                Some(reader) => reader,
                none => {
                    let bytes = ContentReader::new(self.source.open(part)?);
                    let failed = bytes.failed();
                    none.insert((EventReader::new(self.format, bytes), failed))
                }
            };
            match reader.next() {
                Some(Ok(event)) if *self.run.get_or_insert(event.key.run) != event.key.run => {
                    return Err(SourceAnswer::Damaged(format!(
                        "{} has an event of run {} behind some of run {}, and a file never mixes runs. Take it out of here, then retry",
                        part.name,
                        event.key.run,
                        self.run.expect("it was set")
                    )));
                }
                Some(Ok(event)) => {
                    if self.container.is_none() {
                        self.container = Some(reader.container().cloned().unwrap_or(Container::Plain));
                    }
                    if let Some(noted) = &self.noted {
                        noted.borrow_mut().note(event.key);
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
