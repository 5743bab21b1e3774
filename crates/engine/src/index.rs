//! Where each fragment lies: run -> event -> the event's fragments, in memory; and which events wait for a filter.
//!
//! The events of a run lie in pages of up to [`PAGE_EVENTS`], sorted by event number; a page that fills at its end is followed by a new one, so
//! that pages of a run that arrives in order are full. Two neighbours never have fewer than half a page together, and a page has at most a
//! third more places than events: so a fragment takes at most 64 bytes, whatever the events look like and in whatever order they come and go
//! (and a run 1 KiB; see [`Index::bytes`]). An event with one fragment holds it in place; the fragments of a larger one lie in one piece of
//! memory, sorted by source. Of an event that was written as one record, the index has that one place, however many fragments are in it. An event
//! is dropped in one step.

mod event;
mod page;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Bound;

use forebay_types::memory::{allocated_bytes, tree_bytes};
use forebay_types::{EventId, EventKey, RunId, SourceId};

use crate::lease::{Offers, Tick};
use crate::planted::{Planted, planted};
pub(crate) use event::{EventEntry, EventFlags, FragmentEntry};
use page::{MERGED_EVENTS_MAX, Page};

/// What is known of a run.
#[derive(Clone, Copy, Debug, Default)]
struct RunCounts {
    events: u64,
    undecided: u64,
}

/// A run and its events that are here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunSummary {
    pub(crate) run: RunId,
    pub(crate) events: u64,
    /// Of these, not accepted.
    pub(crate) undecided: u64,
    pub(crate) first: EventId,
    pub(crate) last: EventId,
}

/// The index of a lane.
#[derive(Default)]
pub(crate) struct Index {
    pages: Vec<Page>,
    /// The numbers of the pages, by run and first event.
    order: BTreeMap<(RunId, EventId), u32>,
    offers: Offers,
    runs: BTreeMap<RunId, RunCounts>,
    events: u64,
    undecided: u64,
    fragments: u64,
    /// Of these, in accepted events of several records, each of which could be one.
    joinable_fragments: u64,
    /// Memory of the pages' entries and of their lists of fragments.
    heap_bytes: usize,
    /// The page that was looked up last: most often it is the next one too.
    recent: Cell<usize>,
    /// No event that is not accepted is smaller.
    floor: Cell<EventKey>,
}

impl Index {
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// Events that are not accepted.
    pub(crate) fn undecided(&self) -> u64 {
        self.undecided
    }

    pub(crate) fn fragments(&self) -> u64 {
        self.fragments
    }

    /// Fragments of accepted events that have several records.
    pub(crate) fn joinable_fragments(&self) -> u64 {
        self.joinable_fragments
    }

    pub(crate) fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// Memory in use, what the allocator and half empty nodes take included; never less than it is.
    pub(crate) fn bytes(&self) -> usize {
        self.heap_bytes
            + allocated_bytes(self.pages.capacity() * size_of::<Page>())
            + tree_bytes(self.order.len(), size_of::<(RunId, EventId)>() + size_of::<u32>())
            + tree_bytes(self.runs.len(), size_of::<RunId>() + size_of::<RunCounts>())
            + self.offers.bytes()
    }

    pub(crate) fn runs(&self) -> impl Iterator<Item = RunSummary> + '_ {
        self.runs.iter().filter_map(|(&run, counts)| {
            let mut pages = self.order.range((run, EventId(0))..=(run, EventId(u64::MAX)));
            let first = pages.next()?;
            let last = pages.next_back().unwrap_or(first);
            let events = |page: &u32| &self.pages[*page as usize].events;
            Some(RunSummary {
                run,
                events: counts.events,
                undecided: counts.undecided,
                first: events(first.1).first()?.event,
                last: events(last.1).last()?.event,
            })
        })
    }

    /// The last page that begins at or before an event.
    fn page_of(&self, key: EventKey) -> Option<usize> {
        let recent = self.recent.get();
        if self.pages.get(recent).is_some_and(|page| page.spans(key)) {
            return Some(recent);
        }
        let (&(run, _), &page) = self.order.range(..=(key.run, key.event)).next_back()?;
        (run == key.run).then(|| {
            self.recent.set(page as usize);
            page as usize
        })
    }

    /// The page of an event and its place there.
    fn locate(&self, key: EventKey) -> Option<(usize, usize)> {
        let page = self.page_of(key)?;
        Some((page, self.pages[page].position(key.event).ok()?))
    }

    pub(crate) fn event(&self, key: EventKey) -> Option<&EventEntry> {
        let (page, at) = self.locate(key)?;
        Some(&self.pages[page].events[at])
    }

    /// The event, to change what the index does not count.
    pub(crate) fn event_mut(&mut self, key: EventKey) -> Option<&mut EventEntry> {
        let (page, at) = self.locate(key)?;
        Some(&mut self.pages[page].events[at])
    }

    /// Adds a fragment. Returns whether its event is new.
    ///
    /// # Panics
    /// When the fragment is there.
    pub(crate) fn insert(&mut self, key: EventKey, expected: u16, fragment: FragmentEntry) -> bool {
        self.fragments += 1;
        let page = self.page_of(key);
        if let Some(number) = page
            && let Ok(at) = self.pages[number].position(key.event)
        {
            let event = &mut self.pages[number].events[at];
            let before = (event.heap_bytes(), joinable(event));
            event.add(fragment, expected);
            self.heap_bytes = self.heap_bytes + event.heap_bytes() - before.0;
            self.joinable_fragments = self.joinable_fragments + joinable(event) - before.1;
            return false;
        }
        let number = self.page_for(key, page);
        let at = self.pages[number].position(key.event).expect_err("looked for just now");
        self.change(number, |page| page.add(at, EventEntry::new(key.event, expected, fragment)));
        self.events += 1;
        self.undecided += 1;
        let run = self.runs.entry(key.run).or_default();
        (run.events, run.undecided) = (run.events + 1, run.undecided + 1);
        self.floor.set(self.floor.get().min(key));
        true
    }

    /// All fragments of an event are in one record from now on. Gives the records that held them before: none when the event is new.
    pub(crate) fn join(&mut self, key: EventKey, expected: u16, whole: FragmentEntry) -> Vec<FragmentEntry> {
        let Some(event) = self.event_mut(key) else {
            self.insert(key, expected, whole);
            self.fragments -= 1;
            self.fragments += u64::from(whole.source.0);
            self.event_mut(key).expect("inserted just now").join(whole);
            return Vec::new();
        };
        let before = (event.heap_bytes(), event.fragment_count() as u64, joinable(event));
        let records = event.records().to_vec();
        event.join(whole);
        self.heap_bytes -= before.0;
        self.fragments = self.fragments - before.1 + u64::from(whole.source.0);
        self.joinable_fragments -= before.2;
        records
    }

    /// A page with room where a new event belongs; `before` is the last one that begins before it.
    fn page_for(&mut self, key: EventKey, before: Option<usize>) -> usize {
        match before {
            Some(number) if !self.pages[number].is_full() => number,
            Some(number) if self.pages[number].spans(key) => {
                self.unlist(number);
                let page = &mut self.pages[number];
                self.heap_bytes -= page.bytes();
                let upper = page.split();
                self.heap_bytes += page.bytes();
                let middle = upper.first;
                self.list(number);
                let upper = self.push_page(upper);
                if key.event > middle { upper } else { number }
            }
            _ => self.page_before_next(key),
        }
    }

    /// What lies before `key` is full, or nothing does: the page behind it takes it in, or one of its own.
    fn page_before_next(&mut self, key: EventKey) -> usize {
        let behind = (Bound::Excluded((key.run, key.event)), Bound::Unbounded);
        if let Some((&(run, _), &number)) = self.order.range(behind).next()
            && run == key.run
            && !self.pages[number as usize].is_full()
        {
            let number = number as usize;
            self.unlist(number);
            self.pages[number].first = key.event;
            self.list(number);
            return number;
        }
        self.push_page(Page::new(key))
    }

    fn push_page(&mut self, page: Page) -> usize {
        let (number, places) = (self.pages.len(), self.pages.capacity());
        if number == places {
            self.pages.reserve_exact(places / 4 + 1);
        }
        self.heap_bytes += page.bytes();
        self.pages.push(page);
        self.list(number);
        number
    }

    /// Takes a page out; the last one gets its number.
    fn pop_page(&mut self, number: usize) -> Page {
        let last = self.pages.len() - 1;
        self.unlist(number);
        if number != last {
            self.unlist(last);
        }
        let page = self.pages.swap_remove(number);
        if number != last {
            self.list(number);
        }
        if self.pages.capacity() > self.pages.len() + self.pages.len() / 2 {
            self.pages.shrink_to(self.pages.len() + self.pages.len() / 8);
        }
        self.heap_bytes -= page.bytes();
        page
    }

    fn list(&mut self, number: usize) {
        let page = &self.pages[number];
        let at = u32::try_from(number).expect("memory holds fewer pages");
        let before = self.order.insert((page.run, page.first), at);
        assert!(before.is_none(), "a page has a name of its own");
        self.offers.set_ready(EventKey { run: page.run, event: page.first }, page.ready > 0);
        self.offers.set_timer(at, None, page.timer);
    }

    fn unlist(&mut self, number: usize) {
        let page = &self.pages[number];
        self.order.remove(&(page.run, page.first));
        self.offers.set_ready(EventKey { run: page.run, event: page.first }, false);
        self.offers.set_timer(number as u32, page.timer, None);
    }

    /// Changes a page, and what stands of it elsewhere.
    fn change<R>(&mut self, number: usize, change: impl FnOnce(&mut Page) -> R) -> R {
        let page = &mut self.pages[number];
        let (bytes, ready, timer) = (page.bytes(), page.ready > 0, page.timer);
        let result = change(page);
        self.heap_bytes = self.heap_bytes + page.bytes() - bytes;
        if ready != (page.ready > 0) {
            self.offers.set_ready(EventKey { run: page.run, event: page.first }, !ready);
        }
        self.offers.set_timer(number as u32, timer, page.timer);
        result
    }

    /// Changes an event, and what its page knows of it.
    fn update<R>(&mut self, key: EventKey, change: impl FnOnce(&mut EventEntry) -> R) -> Option<R> {
        let (number, at) = self.locate(key)?;
        Some(self.change(number, |page| page.update(at, change)))
    }

    /// Removes an event whole.
    pub(crate) fn remove(&mut self, key: EventKey) -> Option<EventEntry> {
        let (number, at) = self.locate(key)?;
        let entry = self.change(number, |page| page.take(at));
        self.heap_bytes -= entry.heap_bytes();
        self.events -= 1;
        self.fragments -= entry.fragment_count() as u64;
        self.runs.get_mut(&key.run).expect("a run is known as long as it has events").events -= 1;
        self.joinable_fragments -= joinable(&entry);
        if !entry.flags.has(EventFlags::ACCEPTED) {
            self.one_less_undecided(key.run);
        }
        if self.runs[&key.run].events == 0 {
            self.runs.remove(&key.run);
        }
        if self.pages[number].events.is_empty() {
            let _empty = self.pop_page(number);
        } else if self.pages[number].events.len() < MERGED_EVENTS_MAX {
            self.merge(number);
        }
        Some(entry)
    }

    fn one_less_undecided(&mut self, run: RunId) {
        self.undecided -= 1;
        self.runs.get_mut(&run).expect("a run is known as long as it has events").undecided -= 1;
    }

    /// Joins a page with its neighbours when they have few events together.
    fn merge(&mut self, number: usize) {
        let name = (self.pages[number].run, self.pages[number].first);
        let next = self.order.range((Bound::Excluded(name), Bound::Unbounded)).next().map(|(next, _)| *next);
        let previous = self.order.range(..name).next_back().map(|(previous, _)| *previous);
        for (lower, upper) in [(Some(name), next), (previous, Some(name))] {
            let (Some(lower), Some(upper)) = (lower, upper) else { continue };
            let (Some(&a), Some(&b)) = (self.order.get(&lower), self.order.get(&upper)) else { continue };
            let events = self.pages[a as usize].events.len() + self.pages[b as usize].events.len();
            if lower.0 != upper.0 || events > MERGED_EVENTS_MAX {
                continue;
            }
            let taken = self.pop_page(b as usize);
            let lower = self.order[&lower] as usize;
            self.change(lower, |page| page.append(taken));
        }
    }

    /// Takes one fragment away again, and its event when that was its only one.
    pub(crate) fn remove_fragment(&mut self, key: EventKey, source: SourceId) -> Option<FragmentEntry> {
        let event = self.event_mut(key)?;
        let removed = *event.fragment(source)?;
        if event.records().len() == 1 {
            self.remove(key);
            return Some(removed);
        }
        let before = (event.heap_bytes(), joinable(event));
        event.take(source);
        let after = (event.heap_bytes(), joinable(event));
        self.heap_bytes = self.heap_bytes + after.0 - before.0;
        self.joinable_fragments = self.joinable_fragments + after.1 - before.1;
        self.fragments -= 1;
        Some(removed)
    }

    /// The events from `from` on, ascending.
    pub(crate) fn events_from(&self, from: EventKey) -> impl Iterator<Item = (EventKey, &EventEntry)> + '_ {
        self.pages_from(from).flat_map(move |page| {
            let events = page.events.iter().map(|e| (EventKey { run: page.run, event: e.event }, e));
            events.skip_while(move |(key, _)| *key < from)
        })
    }

    /// The pages that may hold events from `from` on, ascending.
    fn pages_from(&self, from: EventKey) -> impl Iterator<Item = &Page> + '_ {
        let start = self.order.range(..=(from.run, from.event)).next_back();
        let start = start.map_or((from.run, from.event), |(name, _)| *name);
        self.order.range(start..).map(|(_, page)| &self.pages[*page as usize])
    }

    /// The smallest event that is not accepted.
    pub(crate) fn undecided_floor(&self) -> Option<EventKey> {
        let pages = self.pages_from(self.floor.get()).filter(|page| page.undecided > 0);
        let floor = pages
            .flat_map(|page| page.events.iter().map(|e| (EventKey { run: page.run, event: e.event }, e)))
            .find(|(_, e)| !e.flags.has(EventFlags::ACCEPTED))
            .map(|(key, _)| key);
        self.floor.set(floor.unwrap_or(EventKey::new(u32::MAX, u64::MAX)));
        floor
    }

    /// The event is accepted, durably: no filter gets it any more.
    pub(crate) fn accept(&mut self, key: EventKey, incomplete: bool) {
        let accepted = self.update(key, |event| {
            let new = !event.flags.has(EventFlags::ACCEPTED);
            for flag in [EventFlags::DECIDING, EventFlags::LEASED, EventFlags::READY, EventFlags::TIMED] {
                event.flags.put(flag, false);
            }
            event.flags.put(EventFlags::ACCEPTED, true);
            event.flags.put(EventFlags::INCOMPLETE, incomplete);
            new.then(|| joinable(event))
        });
        if let Some(Some(joinable)) = accepted {
            self.joinable_fragments += joinable;
            self.one_less_undecided(key.run);
        }
    }

    /// The event may be leased from now on, by whoever asks next.
    pub(crate) fn offer(&mut self, key: EventKey) {
        self.update(key, |event| {
            event.flags.put(EventFlags::READY, true);
            event.flags.put(EventFlags::LEASED, false);
            event.flags.put(EventFlags::TIMED, false);
        });
    }

    /// [`Index::take_due`] gives the event when `timer` has come.
    pub(crate) fn wait(&mut self, key: EventKey, timer: Tick) {
        self.update(key, |event| event.start_timer(timer));
    }

    /// Leases the first event of a run that may be, until `ends`.
    pub(crate) fn lease(&mut self, run: RunId, ends: Tick) -> Option<(EventKey, &EventEntry)> {
        let key = loop {
            let first = self.offers.first_ready(run)?;
            let number = self.order[&(first.run, first.event)] as usize;
            let page = &self.pages[number].events;
            let at = page.iter().position(|e| e.flags.has(EventFlags::READY)).expect("the page has one");
            let event = page[at].event;
            let leased = self.change(number, |page| {
                page.update(at, |event| {
                    event.flags.put(EventFlags::READY, planted(Planted::LeaseTwice));
                    let free = !event.flags.has(EventFlags::DECIDING);
                    if free {
                        event.flags.put(EventFlags::LEASED, true);
                        event.start_timer(ends);
                        event.attempts = event.attempts.saturating_add(1);
                    }
                    free
                })
            });
            if leased {
                break EventKey { run, event };
            }
        };
        self.event(key).map(|event| (key, event))
    }

    /// A run with events that may be leased; each run has its turn.
    pub(crate) fn next_ready_run(&mut self) -> Option<RunId> {
        self.offers.next_ready_run()
    }

    /// Takes the events of a page whose timers are over; their timers run no more. False when there is no such page.
    pub(crate) fn take_due(&mut self, now: Tick, into: &mut Vec<EventKey>) -> bool {
        let Some((_, number)) = self.offers.first_timer().filter(|(timer, _)| *timer <= now) else { return false };
        self.change(number as usize, |page| page.take_due(now, into));
        true
    }

    /// When the first timer is over, at the earliest.
    pub(crate) fn next_timer(&self) -> Option<Tick> {
        self.offers.first_timer().map(|(timer, _)| timer)
    }
}

/// Fragments of an accepted event of several records.
fn joinable(event: &EventEntry) -> u64 {
    let several = event.flags.has(EventFlags::ACCEPTED) && event.records().len() > 1;
    if several { event.records().len() as u64 } else { 0 }
}
