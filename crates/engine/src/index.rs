//! Where each fragment lies: run -> event -> the event's fragments, in memory.
//!
//! The events of a run lie in pages of up to [`PAGE_EVENTS`], sorted by event number; a page that fills at its end is followed
//! by a new one, so that pages of a run that arrives in order are full. An event with one fragment holds it in place; the
//! fragments of a larger one lie in one piece of memory that grows by a quarter. An event is dropped in one step.

use std::collections::BTreeMap;

use forebay_types::{EventId, EventKey, RunId, SourceId};
use thin_vec::ThinVec;

use crate::segments::SegmentIndex;

/// Events in a full page.
const PAGE_EVENTS: usize = 128;

/// Bytes of memory that an allocation costs beside its contents, as measured with the system's allocator.
const ALLOCATION_BYTES: usize = 8;

/// Memory of a page: its entries, and its own place among the pages.
const PAGE_BYTES: usize = PAGE_EVENTS * size_of::<EventEntry>() + 64;

/// One fragment: 20 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FragmentEntry {
    pub(crate) source: SourceId,
    pub(crate) segment: SegmentIndex,
    /// Where it begins in the segment's data, in units of 8 bytes.
    pub(crate) position: u32,
    pub(crate) bytes: u32,
    pub(crate) crc: u32,
}

const _: () = assert!(size_of::<FragmentEntry>() == 20);
const _: () = assert!(size_of::<EventEntry>() == 40);

/// The fragments of an event.
#[derive(Clone, Debug)]
enum Fragments {
    One(FragmentEntry),
    Many(ThinVec<FragmentEntry>),
}

/// What is known of an event beside its fragments, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventFlags(u8);

impl EventFlags {
    /// A decision, deletion or release is on its way to the drives.
    pub(crate) const DECIDING: EventFlags = EventFlags(1);
    /// Accepted, durably.
    pub(crate) const ACCEPTED: EventFlags = EventFlags(2);
    /// Known to the queue of events that are offered when they have waited long enough.
    pub(crate) const QUEUED: EventFlags = EventFlags(4);
    /// Leased to a filter.
    pub(crate) const LEASED: EventFlags = EventFlags(8);
    /// Accepted without some of its sources.
    pub(crate) const INCOMPLETE: EventFlags = EventFlags(16);
    /// Known to the queue of complete events.
    pub(crate) const READY: EventFlags = EventFlags(32);

    pub(crate) fn has(self, flag: EventFlags) -> bool {
        self.0 & flag.0 != 0
    }

    pub(crate) fn set(&mut self, flag: EventFlags, on: bool) {
        if on { self.0 |= flag.0 } else { self.0 &= !flag.0 }
    }
}

/// One event.
#[derive(Clone, Debug)]
pub(crate) struct EventEntry {
    pub(crate) event: EventId,
    fragments: Fragments,
    /// Fragments that the event should have; 0 when nobody said.
    pub(crate) expected: u16,
    pub(crate) flags: EventFlags,
    /// How often it was leased.
    pub(crate) attempts: u8,
}

impl EventEntry {
    pub(crate) fn fragments(&self) -> &[FragmentEntry] {
        match &self.fragments {
            Fragments::One(one) => std::slice::from_ref(one),
            Fragments::Many(many) => many,
        }
    }

    pub(crate) fn fragment(&self, source: SourceId) -> Option<&FragmentEntry> {
        self.fragments().iter().find(|f| f.source == source)
    }

    pub(crate) fn fragment_mut(&mut self, source: SourceId) -> Option<&mut FragmentEntry> {
        let fragments = match &mut self.fragments {
            Fragments::One(one) => std::slice::from_mut(one),
            Fragments::Many(many) => many.as_mut_slice(),
        };
        fragments.iter_mut().find(|f| f.source == source)
    }

    /// Whether as many fragments are here as the event should have.
    pub(crate) fn is_complete(&self) -> bool {
        self.expected > 0 && self.fragments().len() >= usize::from(self.expected)
    }

    fn heap_bytes(&self) -> usize {
        match &self.fragments {
            Fragments::One(_) => 0,
            Fragments::Many(many) => 16 + many.capacity() * size_of::<FragmentEntry>() + ALLOCATION_BYTES,
        }
    }

    fn push(&mut self, fragment: FragmentEntry) {
        match &mut self.fragments {
            Fragments::One(one) => {
                let mut many = ThinVec::with_capacity(2);
                many.push(*one);
                many.push(fragment);
                self.fragments = Fragments::Many(many);
            }
            Fragments::Many(many) => {
                if many.len() == many.capacity() {
                    many.reserve_exact((many.len() / 4).max(2));
                }
                many.push(fragment);
            }
        }
    }
}

#[derive(Default)]
struct RunIndex {
    pages: BTreeMap<u64, Vec<EventEntry>>,
    events: u64,
}

/// The index of a lane.
#[derive(Default)]
pub(crate) struct Index {
    runs: BTreeMap<RunId, RunIndex>,
    events: u64,
    fragments: u64,
    bytes: usize,
}

impl Index {
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    pub(crate) fn fragments(&self) -> u64 {
        self.fragments
    }

    pub(crate) fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// Memory in use.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn runs(&self) -> impl Iterator<Item = (RunId, u64, EventId, EventId)> + '_ {
        self.runs.iter().filter_map(|(run, index)| {
            let first = index.pages.values().next()?.first()?.event;
            let last = index.pages.values().next_back()?.last()?.event;
            Some((*run, index.events, first, last))
        })
    }

    pub(crate) fn event(&self, key: EventKey) -> Option<&EventEntry> {
        let (_, page) = self.runs.get(&key.run)?.pages.range(..=key.event.0).next_back()?;
        let at = page.binary_search_by_key(&key.event, |e| e.event).ok()?;
        Some(&page[at])
    }

    pub(crate) fn event_mut(&mut self, key: EventKey) -> Option<&mut EventEntry> {
        let (_, page) = self.runs.get_mut(&key.run)?.pages.range_mut(..=key.event.0).next_back()?;
        let at = page.binary_search_by_key(&key.event, |e| e.event).ok()?;
        Some(&mut page[at])
    }

    /// Adds a fragment that is not there yet. Returns whether its event is new.
    ///
    /// # Panics
    /// In debug builds, when the fragment is there.
    pub(crate) fn insert(&mut self, key: EventKey, expected: u16, fragment: FragmentEntry) -> bool {
        self.fragments += 1;
        let run = self.runs.entry(key.run).or_default();
        let first = match run.pages.range(..=key.event.0).next_back() {
            Some((first, page)) => page_for(*first, page, key.event.0),
            None => {
                // Smaller than all: the first page takes it in and gets a new name.
                if let Some(page) = run.pages.first_entry().filter(|page| page.get().len() < PAGE_EVENTS) {
                    let page = page.remove();
                    run.pages.insert(key.event.0, page);
                }
                key.event.0
            }
        };
        let page = run.pages.entry(first).or_insert_with(|| {
            self.bytes += PAGE_BYTES;
            Vec::with_capacity(PAGE_EVENTS)
        });
        match page.binary_search_by_key(&key.event, |e| e.event) {
            Ok(at) => {
                let event = &mut page[at];
                debug_assert!(event.fragment(fragment.source).is_none(), "{key} has this source already");
                let before = event.heap_bytes();
                event.push(fragment);
                self.bytes += event.heap_bytes() - before;
                event.expected = event.expected.max(expected);
                false
            }
            Err(at) => {
                let entry = EventEntry {
                    event: key.event,
                    fragments: Fragments::One(fragment),
                    expected,
                    flags: EventFlags::default(),
                    attempts: 0,
                };
                if page.len() < PAGE_EVENTS {
                    page.insert(at, entry);
                } else {
                    // Full in the middle: the upper half becomes a page of its own.
                    let mut upper = Vec::with_capacity(PAGE_EVENTS);
                    upper.extend(page.drain(PAGE_EVENTS / 2..));
                    match at.checked_sub(PAGE_EVENTS / 2) {
                        Some(at) if at > 0 => upper.insert(at, entry),
                        _ => page.insert(at, entry),
                    }
                    run.pages.insert(upper[0].event.0, upper);
                    self.bytes += PAGE_BYTES;
                }
                self.events += 1;
                run.events += 1;
                true
            }
        }
    }

    /// Removes an event whole.
    pub(crate) fn remove(&mut self, key: EventKey) -> Option<EventEntry> {
        let run = self.runs.get_mut(&key.run)?;
        let (&first, page) = run.pages.range_mut(..=key.event.0).next_back()?;
        let at = page.binary_search_by_key(&key.event, |e| e.event).ok()?;
        let entry = page.remove(at);
        if page.is_empty() {
            run.pages.remove(&first);
            self.bytes -= PAGE_BYTES;
        }
        self.bytes -= entry.heap_bytes();
        self.events -= 1;
        self.fragments -= entry.fragments().len() as u64;
        run.events -= 1;
        if run.events == 0 {
            self.runs.remove(&key.run);
        }
        Some(entry)
    }

    /// Takes one fragment away again, and its event when that was its only one.
    pub(crate) fn remove_fragment(&mut self, key: EventKey, source: SourceId) -> Option<FragmentEntry> {
        let event = self.event_mut(key)?;
        let removed = *event.fragment(source)?;
        if event.fragments().len() == 1 {
            self.remove(key);
            return Some(removed);
        }
        if let Fragments::Many(many) = &mut event.fragments {
            many.retain(|f| f.source != source);
        }
        self.fragments -= 1;
        Some(removed)
    }

    /// The events from `from` on, ascending.
    pub(crate) fn events_from(&self, from: EventKey) -> impl Iterator<Item = (EventKey, &EventEntry)> + '_ {
        self.runs.range(from.run..).flat_map(move |(&run, index)| {
            let least = if run == from.run { from.event.0 } else { 0 };
            let start = index.pages.range(..=least).next_back().map_or(least, |(first, _)| *first);
            index
                .pages
                .range(start..)
                .flat_map(|(_, page)| page.iter())
                .skip_while(move |e| e.event.0 < least)
                .map(move |e| (EventKey { run, event: e.event }, e))
        })
    }
}

/// The page in which `event` belongs, given the last page that begins at or before it: a page that is full and lies
/// wholly before `event` is followed by a new one.
fn page_for(first: u64, page: &[EventEntry], event: u64) -> u64 {
    let beyond = page.last().is_some_and(|last| last.event.0 < event);
    if page.len() >= PAGE_EVENTS && beyond { event } else { first }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn entry(source: u32, position: u32) -> FragmentEntry {
        FragmentEntry { source: SourceId(source), segment: SegmentIndex(1), position, bytes: 10, crc: 7 }
    }

    proptest! {
        #[test]
        fn it_holds_what_a_map_holds(steps in prop::collection::vec((0u8..10, 0u32..3, 0u64..400, 0u32..6), 1..900)) {
            let mut index = Index::default();
            let mut model: BTreeMap<EventKey, BTreeMap<u32, u32>> = BTreeMap::new();
            for (position, (kind, run, event, source)) in steps.into_iter().enumerate() {
                let key = EventKey::new(run, event);
                let position = position as u32;
                match kind {
                    0 => {
                        let removed = index.remove(key).map(|e| e.fragments().len());
                        prop_assert_eq!(removed, model.remove(&key).map(|e| e.len()));
                    }
                    1 => {
                        let removed = index.remove_fragment(key, SourceId(source)).map(|f| f.position);
                        let expected = model.get_mut(&key).and_then(|e| e.remove(&source));
                        if model.get(&key).is_some_and(|e| e.is_empty()) { model.remove(&key); }
                        prop_assert_eq!(removed, expected);
                    }
                    _ => if !model.get(&key).is_some_and(|e| e.contains_key(&source)) {
                        let new = !model.contains_key(&key);
                        prop_assert_eq!(index.insert(key, 0, entry(source, position)), new);
                        model.entry(key).or_default().insert(source, position);
                    }
                }
            }
            prop_assert_eq!(index.events(), model.len() as u64);
            prop_assert_eq!(index.fragments(), model.values().map(|e| e.len() as u64).sum::<u64>());
            let listed: Vec<_> = index.events_from(EventKey::default()).map(|(key, _)| key).collect();
            prop_assert_eq!(listed, model.keys().copied().collect::<Vec<_>>());
            let from = EventKey::new(1, 200);
            let listed: Vec<_> = index.events_from(from).map(|(key, _)| key).collect();
            prop_assert_eq!(listed, model.range(from..).map(|(k, _)| *k).collect::<Vec<_>>());
            for (key, fragments) in &model {
                let event = index.event(*key).expect("in the model");
                for (source, position) in fragments {
                    prop_assert_eq!(event.fragment(SourceId(*source)).map(|f| f.position), Some(*position));
                }
            }
            for key in model.keys() { index.remove(*key); }
            prop_assert_eq!(index.bytes(), 0);
        }
    }

    #[test]
    fn events_in_order_cost_at_most_64_bytes_a_fragment() {
        for sources in [1u32, 2, 3, 11, 100] {
            let mut index = Index::default();
            for event in 0..10_000 {
                for source in 0..sources {
                    index.insert(EventKey::new(1, event), 0, entry(source, 0));
                }
            }
            let cost = index.bytes() as f64 / index.fragments() as f64;
            assert!(cost <= 64.0, "{cost} bytes a fragment at {sources} sources an event");
        }
    }
}
