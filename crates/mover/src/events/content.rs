//! The bytes of a file of events, made of what the store has, block by block.

use forebay_client::FetchedEvent;
use forebay_rawdata::Container;
use forebay_types::EventKey;

use super::{Assembled, Events, assemble};
use crate::custody::SourceAnswer;
use crate::endpoint::Content;

/// About so many bytes of events are asked for at once; one event alone may be larger.
const FETCH_BYTES: u64 = 4 << 20;
/// No more events at once.
const FETCH_EVENTS_MAX: u64 = 512;

/// Reads events, in their order.
type Fetch<'a> = dyn FnMut(&[EventKey]) -> Result<Vec<FetchedEvent>, SourceAnswer> + 'a;

/// A file of events. Each is put together as it was when it was examined, or the file is none.
pub struct EventContent<'a> {
    events: &'a Events,
    container: Container,
    keys: Box<dyn Iterator<Item = EventKey> + 'a>,
    fetch: Box<Fetch<'a>>,
    given_events: u64,
    given_bytes: u64,
    block: Vec<u8>,
    is_over: bool,
}

impl<'a> EventContent<'a> {
    /// Nothing is read yet. `fetch` reads events, and answers in their order.
    pub fn new(
        events: &'a Events,
        fetch: impl FnMut(&[EventKey]) -> Result<Vec<FetchedEvent>, SourceAnswer> + 'a,
    ) -> EventContent<'a> {
        EventContent {
            events,
            container: events.container(),
            keys: Box::new(events.keys()),
            fetch: Box::new(fetch),
            given_events: 0,
            given_bytes: 0,
            block: Vec::new(),
            is_over: false,
        }
    }

    fn append(&mut self, event: &FetchedEvent) -> Result<(), SourceAnswer> {
        let key = event.key;
        let changed = |what: &str| {
            SourceAnswer::Changed(format!(
                "event {key} {what} since it was planned to be in a file of {}",
                self.events.kind.name()
            ))
        };
        let bytes = match assemble(event, &self.events.making) {
            Assembled::Event(event) if (event.kind, event.numbered) != (self.events.kind, self.events.numbered) => {
                return Err(changed("lost some of what it is made of"));
            }
            Assembled::Event(event) => event.bytes,
            Assembled::Gone => return Err(changed("was taken out of the store")),
            Assembled::Unavailable => {
                return Err(SourceAnswer::NotNow(format!(
                    "event {key} cannot be read for now: too few of the drives that hold it answer"
                )));
            }
        };
        self.block.extend(self.container.before_event(self.given_events, bytes.len() as u64));
        self.block.extend_from_slice(&bytes);
        self.given_events += 1;
        self.given_bytes += bytes.len() as u64;
        Ok(())
    }
}

impl Content for EventContent<'_> {
    fn refill(&mut self) -> Result<bool, SourceAnswer> {
        self.block.clear();
        if self.is_over {
            return Ok(false);
        }
        let average = self.events.event_bytes / self.events.list.len().max(1);
        let count = (FETCH_BYTES / average.max(1)).clamp(1, FETCH_EVENTS_MAX);
        let keys: Vec<EventKey> = self.keys.by_ref().take(count as usize).collect();
        if keys.is_empty() {
            self.is_over = true;
            if self.given_bytes != self.events.event_bytes {
                return Err(SourceAnswer::Changed(format!(
                    "its {} events come to {} bytes now, and came to {} when they were planned",
                    self.given_events, self.given_bytes, self.events.event_bytes
                )));
            }
            self.block = self.container.tail(self.given_events, self.given_bytes);
            return Ok(!self.block.is_empty());
        }
        if self.given_events == 0 {
            self.block = self.container.head();
        }
        let fetched = (self.fetch)(&keys)?;
        assert!(fetched.iter().map(|event| event.key).eq(keys), "events are read in their order");
        fetched.iter().try_for_each(|event| self.append(event))?;
        Ok(true)
    }

    fn block(&self) -> &[u8] {
        &self.block
    }
}
