//! Neighbouring events of a run in one piece of memory, and what can be said of them together.

use forebay_types::memory::allocated_bytes;
use forebay_types::{EventId, EventKey, RunId};

use super::event::{EventEntry, EventFlags};
use crate::lease::Tick;

/// Events in a full page.
pub(super) const PAGE_EVENTS: usize = 128;

/// A page and its neighbour that have no more events than this together become one.
pub(super) const MERGED_EVENTS_MAX: usize = PAGE_EVENTS / 2;

/// Places that a page has at least.
const PLACES_MIN: usize = 4;

pub(super) struct Page {
    pub(super) run: RunId,
    /// The page's name among those of its run: no event of it is smaller.
    pub(super) first: EventId,
    /// Ascending.
    pub(super) events: Vec<EventEntry>,
    /// Events that may be leased.
    pub(super) ready: u16,
    /// Events that are not accepted.
    pub(super) undecided: u16,
    /// No timer of its events is over before.
    pub(super) timer: Option<Tick>,
}

impl Page {
    pub(super) fn new(first: EventKey) -> Self {
        Page { run: first.run, first: first.event, events: Vec::new(), ready: 0, undecided: 0, timer: None }
    }

    /// Whether an event, if it is anywhere, is here.
    pub(super) fn spans(&self, key: EventKey) -> bool {
        let last = self.events.last();
        self.run == key.run && self.first <= key.event && last.is_some_and(|last| key.event <= last.event)
    }

    pub(super) fn position(&self, event: EventId) -> Result<usize, usize> {
        match self.events.last() {
            Some(last) if last.event < event => Err(self.events.len()),
            _ => self.events.binary_search_by_key(&event, |e| e.event),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.events.len() == PAGE_EVENTS
    }

    /// Memory of its entries.
    pub(super) fn bytes(&self) -> usize {
        allocated_bytes(self.events.capacity() * size_of::<EventEntry>())
    }

    /// Adds an event where it belongs; the page is not full.
    pub(super) fn add(&mut self, at: usize, entry: EventEntry) {
        let len = self.events.len();
        if len == self.events.capacity() {
            let places = (len + len / 4).max(len + 1).clamp(PLACES_MIN, PAGE_EVENTS);
            self.events.reserve_exact(places - len);
        }
        self.count(entry.flags, true);
        self.timed(entry.flags, entry.timer);
        self.events.insert(at, entry);
    }

    pub(super) fn take(&mut self, at: usize) -> EventEntry {
        let entry = self.events.remove(at);
        self.count(entry.flags, false);
        self.shrink();
        entry
    }

    /// Gives memory back when a quarter of the places and more is empty.
    fn shrink(&mut self) {
        let (len, places) = (self.events.len(), self.events.capacity());
        if places > PLACES_MIN && places * 3 > len * 4 {
            self.events.shrink_to((len + len / 8).max(PLACES_MIN));
        }
    }

    /// Its upper half, as a page of its own.
    pub(super) fn split(&mut self) -> Page {
        let half = self.events.len() / 2;
        let events = self.events.split_off(half);
        let first = EventKey { run: self.run, event: events[0].event };
        let mut upper = Page { events, ..Page::new(first) };
        for page in [self, &mut upper] {
            page.shrink();
            page.sum_up();
        }
        upper
    }

    /// Takes in the page that follows it.
    pub(super) fn append(&mut self, mut next: Page) {
        self.events.reserve_exact(next.events.len());
        self.events.append(&mut next.events);
        self.shrink();
        self.sum_up();
    }

    /// Counts anew.
    fn sum_up(&mut self) {
        (self.ready, self.undecided, self.timer) = (0, 0, None);
        let events = std::mem::take(&mut self.events);
        for event in &events {
            self.count(event.flags, true);
            self.timed(event.flags, event.timer);
        }
        self.events = events;
    }

    fn count(&mut self, flags: EventFlags, here: bool) {
        let ready = u16::from(flags.has(EventFlags::READY));
        let undecided = u16::from(!flags.has(EventFlags::ACCEPTED));
        if here {
            (self.ready, self.undecided) = (self.ready + ready, self.undecided + undecided);
        } else {
            (self.ready, self.undecided) = (self.ready - ready, self.undecided - undecided);
        }
    }

    /// Changes an event.
    pub(super) fn update<R>(&mut self, at: usize, change: impl FnOnce(&mut EventEntry) -> R) -> R {
        let event = &mut self.events[at];
        let before = event.flags;
        let result = change(event);
        let (after, timer) = (event.flags, event.timer);
        self.count(before, false);
        self.count(after, true);
        self.timed(after, timer);
        result
    }

    /// Takes the events whose timers are over; their timers run no more.
    pub(super) fn take_due(&mut self, now: Tick, into: &mut Vec<EventKey>) {
        for event in &mut self.events {
            if event.flags.has(EventFlags::TIMED) && event.timer <= now {
                event.flags.put(EventFlags::TIMED, false);
                into.push(EventKey { run: self.run, event: event.event });
            }
        }
        self.sum_up();
    }

    /// The timer of an event of the page may be the first.
    fn timed(&mut self, flags: EventFlags, timer: Tick) {
        if flags.has(EventFlags::TIMED) && self.timer.is_none_or(|first| timer < first) {
            self.timer = Some(timer);
        }
    }
}
