//! What was read: fragments, and events with theirs.

use std::mem::MaybeUninit;

use forebay_client::{FetchedEvent, FetchedFragment};
use forebay_types::{EventKey, FragmentId, ReadOutcome};

use crate::call::{free, look, run};
use crate::failure::Failure;
use crate::raw::{give, given};

/// What names a fragment.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct forebay_fragment_id {
    /// The run.
    pub run: u32,
    /// The source.
    pub source: u32,
    /// The event.
    pub event: u64,
}

/// What names an event.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct forebay_event_key {
    /// The run.
    pub run: u32,
    /// The event.
    pub event: u64,
}

/// A fragment that was read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct forebay_fragment {
    /// What names it.
    pub id: forebay_fragment_id,
    /// One of `FOREBAY_READ_...`.
    pub outcome: i32,
    /// Its bytes, checked; they are there until what they were read with is freed.
    pub bytes: *const u8,
    /// How many; 0 unless found.
    pub bytes_count: usize,
}

/// An event that was read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct forebay_event {
    /// What names it.
    pub key: forebay_event_key,
    /// One of `FOREBAY_READ_...`: found when the server knows it and has not finished it. Its fragments have outcomes of their own.
    pub outcome: i32,
    /// How far it is, one of `FOREBAY_EVENT_...`.
    pub state: i32,
    /// How many fragments it should have, as its writers said; 0 when not known.
    pub expected: u32,
    /// How many fragments of it are stored, whatever sources were asked for.
    pub stored: u32,
    /// How many fragments were read, ascending by source.
    pub fragments: usize,
}

/// Fragments that were read, in the order in which they were asked for.
pub struct forebay_fragments(pub(crate) Vec<(FragmentId, ReadOutcome, Vec<u8>)>);

/// Events that were read, in the order in which they were asked for or told.
pub struct forebay_events(pub(crate) Vec<FetchedEvent>);

impl From<forebay_fragment_id> for FragmentId {
    fn from(id: forebay_fragment_id) -> FragmentId {
        FragmentId::new(id.run, id.event, id.source)
    }
}

impl From<FragmentId> for forebay_fragment_id {
    fn from(id: FragmentId) -> forebay_fragment_id {
        forebay_fragment_id { run: id.run.0, source: id.source.0, event: id.event.0 }
    }
}

impl From<forebay_event_key> for EventKey {
    fn from(key: forebay_event_key) -> EventKey {
        EventKey::new(key.run, key.event)
    }
}

impl From<EventKey> for forebay_event_key {
    fn from(key: EventKey) -> forebay_event_key {
        forebay_event_key { run: key.run.0, event: key.event.0 }
    }
}

fn fragment_of(id: FragmentId, outcome: ReadOutcome, bytes: &[u8]) -> forebay_fragment {
    let outcome = i32::from(outcome.code());
    forebay_fragment { id: id.into(), outcome, bytes: bytes.as_ptr(), bytes_count: bytes.len() }
}

fn at<'a, T>(items: &'a [T], index: usize, what: &str) -> Result<&'a T, Failure> {
    let count = items.len();
    items.get(index).ok_or_else(|| Failure::invalid(format!("there is no {what} {index} among {count}")))
}

/// How many fragments there are.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_fragments_count(fragments: Option<&forebay_fragments>) -> usize {
    look(fragments, 0, |fragments| fragments.0.len())
}

/// One of them, from 0 on.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_fragments_at(
    fragments: Option<&forebay_fragments>,
    index: usize,
    fragment: Option<&mut MaybeUninit<forebay_fragment>>,
) -> i32 {
    run(|| {
        let (id, outcome, bytes) = at(&given(fragments, "the fragments")?.0, index, "fragment")?;
        give(fragment, fragment_of(*id, *outcome, bytes))
    })
}

/// Frees them, and their bytes; null is nothing to free.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_fragments_free(fragments: Option<Box<forebay_fragments>>) {
    free(fragments);
}

/// How many events there are.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_events_count(events: Option<&forebay_events>) -> usize {
    look(events, 0, |events| events.0.len())
}

/// One of them, from 0 on.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_events_at(
    events: Option<&forebay_events>,
    index: usize,
    event: Option<&mut MaybeUninit<forebay_event>>,
) -> i32 {
    run(|| {
        let found = at(&given(events, "the events")?.0, index, "event")?;
        let told = forebay_event {
            key: found.key.into(),
            outcome: i32::from(found.outcome.code()),
            state: i32::from(found.state.code()),
            expected: u32::from(found.expected),
            stored: found.stored,
            fragments: found.fragments.len(),
        };
        give(event, told)
    })
}

/// A fragment of one of them, both from 0 on.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_events_fragment(
    events: Option<&forebay_events>,
    index: usize,
    fragment_index: usize,
    fragment: Option<&mut MaybeUninit<forebay_fragment>>,
) -> i32 {
    run(|| {
        let event = at(&given(events, "the events")?.0, index, "event")?;
        let found = at(&event.fragments, fragment_index, "fragment")?;
        let FetchedFragment { source, outcome, payload } = found;
        give(fragment, fragment_of(event.key.fragment(*source), *outcome, payload))
    })
}

/// Frees them, and their bytes; null is nothing to free.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_events_free(events: Option<Box<forebay_events>>) {
    free(events);
}
