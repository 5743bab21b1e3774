//! Reads events whole, or some sources first.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use forebay_client::{FetchedEvent, LeasedEvent};
use forebay_rawdata::sources;
use forebay_types::{EventKey, ReadOutcome, SourceId};

use crate::choice::Choice;
use crate::store::{FilterStore, StoreError};

/// How events are read in steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    /// What is read first.
    pub first: StepSources,
    /// The fraction of the events to be rejected that is rejected after the first step, 0 to 1.
    pub early_fraction: f64,
}

/// The sources of the first step; the event's frame is always read with them.
#[derive(Clone, Debug, PartialEq)]
pub enum StepSources {
    /// These, as far as the event has them.
    Listed(Vec<SourceId>),
    /// So much of the event's sources, 0 to 1, the first of its frame. The frame is read before them.
    Share(f64),
}

/// An event that was read.
pub(super) struct ReadEvent {
    pub(super) leased: LeasedEvent,
    pub(super) event: FetchedEvent,
    /// Only the first step was read: it is rejected.
    pub(super) early: bool,
}

/// Reads `leased`, in steps when there are any. An event that is offered incomplete is read whole.
pub(super) fn read(
    store: &mut impl FilterStore,
    leased: &[LeasedEvent],
    steps: Option<&Steps>,
    choice: &Choice,
) -> Result<Vec<ReadEvent>, StoreError> {
    let (stepwise, whole): (Vec<&LeasedEvent>, Vec<&LeasedEvent>) =
        leased.iter().partition(|event| steps.is_some() && !event.incomplete);
    let mut read = Vec::with_capacity(leased.len());
    if let Some(steps) = steps.filter(|_| !stepwise.is_empty()) {
        read = in_steps(store, &stepwise, steps, choice)?;
    }
    if !whole.is_empty() {
        let keys: Vec<EventKey> = whole.iter().map(|event| event.key).collect();
        let events = store.get_events(&keys, None)?;
        let pairs = whole.into_iter().zip(events);
        read.extend(pairs.map(|(leased, event)| ReadEvent { leased: *leased, event, early: false }));
    }
    Ok(read)
}

fn in_steps(
    store: &mut impl FilterStore,
    leased: &[&LeasedEvent],
    steps: &Steps,
    choice: &Choice,
) -> Result<Vec<ReadEvent>, StoreError> {
    let keys: Vec<EventKey> = leased.iter().map(|event| event.key).collect();
    let mut first = BTreeSet::from([SourceId::EVENT_FRAME]);
    if let StepSources::Listed(listed) = &steps.first {
        first.extend(listed);
    }
    let first: Vec<SourceId> = first.into_iter().collect();
    let events = store.get_events(&keys, Some(&first))?;
    let mut read: Vec<ReadEvent> = leased
        .iter()
        .zip(events)
        .map(|(leased, mut event)| {
            // Listed sources that the event does not have are not missing.
            event.fragments.retain(|fragment| fragment.outcome != ReadOutcome::NotFound);
            ReadEvent { leased: **leased, early: choice.rejects_early(event.key), event }
        })
        .collect();
    if let StepSources::Share(share) = steps.first {
        fetch_more(store, &mut read, |_, sources| {
            let count = (sources.len() as f64 * share.clamp(0.0, 1.0)).ceil() as usize;
            sources[..count.min(sources.len())].to_vec()
        })?;
    }
    fetch_more(store, &mut read, |event, sources| if event.early { Vec::new() } else { sources.to_vec() })?;
    fetch_strays(store, &mut read)?;
    Ok(read)
}

/// Fetches, of the sources that an event's frame names, those that `wanted` picks and that are not there.
/// Events that want the same are asked for together.
fn fetch_more(
    store: &mut impl FilterStore,
    events: &mut [ReadEvent],
    wanted: impl Fn(&ReadEvent, &[SourceId]) -> Vec<SourceId>,
) -> Result<(), StoreError> {
    let mut groups: BTreeMap<Vec<SourceId>, Vec<usize>> = BTreeMap::new();
    for (place, read) in events.iter().enumerate() {
        let Some(named) = sources_of(&read.event) else { continue };
        let there: BTreeSet<SourceId> = read.event.fragments.iter().map(|fragment| fragment.source).collect();
        let mut missing = wanted(read, &named);
        missing.retain(|source| !there.contains(source));
        missing.sort_unstable();
        if !missing.is_empty() {
            groups.entry(missing).or_default().push(place);
        }
    }
    for (sources, places) in groups {
        let keys: Vec<EventKey> = places.iter().map(|place| events[*place].event.key).collect();
        for (place, more) in places.into_iter().zip(store.get_events(&keys, Some(&sources))?) {
            let event = &mut events[place].event;
            if event.outcome == ReadOutcome::Found {
                event.outcome = more.outcome;
            }
            event.state = more.state;
            event.fragments.extend(more.fragments.into_iter().filter(|f| f.outcome != ReadOutcome::NotFound));
        }
    }
    Ok(())
}

/// Reads events whole that have fragments which their frame does not name: they are judged as those that were
/// read whole at once.
fn fetch_strays(store: &mut impl FilterStore, events: &mut [ReadEvent]) -> Result<(), StoreError> {
    let has_more = |read: &ReadEvent| !read.early && read.event.stored as usize > read.event.fragments.len();
    let strays: Vec<&mut ReadEvent> = events.iter_mut().filter(|read| has_more(read)).collect();
    if strays.is_empty() {
        return Ok(());
    }
    let keys: Vec<EventKey> = strays.iter().map(|read| read.event.key).collect();
    for (stray, event) in strays.into_iter().zip(store.get_events(&keys, None)?) {
        stray.event = event;
    }
    Ok(())
}

/// The sources that the event's frame names, when it is there and good.
fn sources_of(event: &FetchedEvent) -> Option<Vec<SourceId>> {
    let frame = event.fragments.iter().find(|fragment| fragment.source == SourceId::EVENT_FRAME)?;
    (frame.outcome == ReadOutcome::Found).then(|| sources(&frame.payload).ok()).flatten()
}
