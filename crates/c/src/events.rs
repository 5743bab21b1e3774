//! Events: read, leased, decided, listed, released.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::time::Duration;

use ::forebay_client::Decision;
use forebay_types::limits::STREAMS_MAX;
use forebay_types::{DecideOutcome, EventKey, RunId, SourceId, StreamName, Verdict};

use crate::call::run;
use crate::client::{forebay_client, with};
use crate::failure::Failure;
use crate::fetched::{forebay_event_key, forebay_events};
use crate::raw::{fill, give_handle, given, items, room, text};

/// An event that is leased to a filter, or accepted.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct forebay_listed_event {
    /// What names it.
    pub key: forebay_event_key,
    /// Bytes of its fragments.
    pub bytes: u64,
    /// Fragments that are stored.
    pub fragments: u32,
    /// Of a leased one: fragments that it should have, as its writers said; 0 when not known.
    pub expected: u16,
    /// Of a leased one: how often it was leased, this time included.
    pub attempt: u16,
    /// Whether it is given, or was decided, without all of its fragments.
    pub incomplete: bool,
}

/// What is told with leased events.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct forebay_lease {
    /// How many events there are.
    pub count: usize,
    /// Events without a decision, leased or not.
    pub undecided: u64,
    /// When it is worth to ask again for those that are missing; 0 when there are as many as were asked for.
    pub retry_after_ms: u64,
}

/// What is told with accepted events.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct forebay_accepted {
    /// How many events there are.
    pub count: usize,
    /// Whether there are more behind the last one now.
    pub more: bool,
    /// Whether there is an undecided event.
    pub has_undecided_floor: bool,
    /// The smallest undecided event: none below it that is there now will still be accepted.
    pub undecided_floor: forebay_event_key,
}

/// The word of a filter on an event.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct forebay_decision {
    /// The event.
    pub key: forebay_event_key,
    /// The streams into which it is accepted, texts that end with a zero byte; null with `streams_count` 0: it is rejected.
    pub streams: *const *const c_char,
    /// How many; at most 64.
    pub streams_count: usize,
    /// Whether it was decided without all of its fragments.
    pub incomplete: bool,
}

/// Reads whole events, over all lanes at once, or (`sources` not null) some sources of them. What is read is checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_client_get_events(
    client: Option<&forebay_client>,
    keys: *const forebay_event_key,
    count: usize,
    sources: *const u32,
    sources_count: usize,
    events: Option<&mut MaybeUninit<*mut forebay_events>>,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let keys = keys_of(unsafe { items(keys, count, "the list of events") }?);
        // SAFETY: as above.
        let numbers = unsafe { items(sources, sources_count, "the list of sources") }?;
        let numbers: Vec<SourceId> = numbers.iter().map(|source| SourceId(*source)).collect();
        let asked = (!sources.is_null()).then_some(numbers.as_slice());
        give_handle(events, || with(client, |held| Ok(forebay_events(held.client.get_events(&keys, asked)?))))
    })
}

/// Leases up to `max` undecided events, of a run or (`run` null) of all: nobody else is given them for `duration_ms`, 100 ms to an hour. `filter`: any number, another one for
/// each filter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_client_lease(
    client: Option<&forebay_client>,
    duration_ms: u64,
    filter: u64,
    run_number: Option<&u32>,
    events: *mut forebay_listed_event,
    max: u32,
    lease: Option<&mut MaybeUninit<forebay_lease>>,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let room = unsafe { room(events, max as usize, "the place for events") }?;
        let lease = given(lease, "the place for the lease")?;
        let (duration, run) = (Duration::from_millis(duration_ms), run_number.map(|run| RunId(*run)));
        let leased = with(client, |held| Ok(held.client.lease(max, duration, filter, run)?))?;
        let listed = leased.events.into_iter().map(|event| forebay_listed_event {
            key: event.key.into(),
            bytes: event.bytes,
            fragments: event.fragments,
            expected: event.expected,
            attempt: event.attempt,
            incomplete: event.incomplete,
        });
        let retry_after_ms = u64::try_from(leased.retry_after.as_millis()).unwrap_or(u64::MAX);
        lease.write(forebay_lease { count: fill(room, listed), undecided: leased.undecided, retry_after_ms });
        Ok(())
    })
}

/// Tells decisions. `outcomes` has room for as many as there are decisions, and is filled in their order with `FOREBAY_DECIDE_...`. What could not be made durable for now is told again
/// until the deadline; telling the same twice is safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_client_decide(
    client: Option<&forebay_client>,
    decisions: *const forebay_decision,
    count: usize,
    outcomes: *mut i32,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let decisions = unsafe { items(decisions, count, "the list of decisions") }?;
        // SAFETY: as above; of each of the decisions the caller says the same.
        let told: Result<Vec<Decision>, Failure> =
            decisions.iter().map(|decision| unsafe { decision_of(decision) }).collect();
        let told = told?;
        // SAFETY: as above.
        let room = unsafe { room(outcomes, count, "the place for outcomes") }?;
        give_outcomes(room, with(client, |held| Ok(held.client.decide(&told)?))?)
    })
}

/// Drops events, whatever was decided. The outcomes are as those of `forebay_client_decide`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_client_delete(
    client: Option<&forebay_client>,
    keys: *const forebay_event_key,
    count: usize,
    outcomes: *mut i32,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let keys = keys_of(unsafe { items(keys, count, "the list of events") }?);
        // SAFETY: as above.
        let room = unsafe { room(outcomes, count, "the place for outcomes") }?;
        give_outcomes(room, with(client, |held| Ok(held.client.delete(&keys)?))?)
    })
}

/// Gives accepted events of a stream that it has not released, behind `after` (null: from the first one on), at most `max`, ascending.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_client_accepted(
    client: Option<&forebay_client>,
    stream: *const c_char,
    after: Option<&forebay_event_key>,
    events: *mut forebay_listed_event,
    max: u32,
    accepted: Option<&mut MaybeUninit<forebay_accepted>>,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let (stream, room) = unsafe { (stream_of(stream)?, room(events, max as usize, "the place for events")?) };
        let accepted = given(accepted, "the place for what is told with them")?;
        let after = after.map(|key| EventKey::from(*key));
        let page = with(client, |held| Ok(held.client.accepted(&stream, after, max)?))?;
        let listed = page.events.into_iter().map(|event| forebay_listed_event {
            key: event.key.into(),
            bytes: event.bytes,
            fragments: event.fragments,
            expected: 0,
            attempt: 0,
            incomplete: event.incomplete,
        });
        let (floor, count) = (page.undecided_floor, fill(room, listed));
        let undecided_floor = floor.unwrap_or_default().into();
        accepted.write(forebay_accepted {
            count,
            more: page.more,
            has_undecided_floor: floor.is_some(),
            undecided_floor,
        });
        Ok(())
    })
}

/// Says that a stream has these events safely elsewhere. The outcomes are as those of `forebay_client_decide`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_client_release(
    client: Option<&forebay_client>,
    stream: *const c_char,
    keys: *const forebay_event_key,
    count: usize,
    outcomes: *mut i32,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let (stream, keys) = unsafe { (stream_of(stream)?, keys_of(items(keys, count, "the list of events")?)) };
        // SAFETY: as above.
        let room = unsafe { room(outcomes, count, "the place for outcomes") }?;
        give_outcomes(room, with(client, |held| Ok(held.client.release(&stream, &keys)?))?)
    })
}

fn keys_of(keys: &[forebay_event_key]) -> Vec<EventKey> {
    keys.iter().map(|key| EventKey::from(*key)).collect()
}

fn give_outcomes(room: &mut [MaybeUninit<i32>], outcomes: Vec<DecideOutcome>) -> Result<(), Failure> {
    fill(room, outcomes.into_iter().map(|outcome| i32::from(outcome.code())));
    Ok(())
}

/// The name of a stream.
///
/// # Safety
/// That of `raw`.
pub(crate) unsafe fn stream_of(name: *const c_char) -> Result<StreamName, Failure> {
    // SAFETY: the caller says the same.
    let name = unsafe { text(name, "the name of a stream") }?;
    name.parse().map_err(|error: forebay_types::StreamNameError| Failure::invalid(error.to_string()))
}

/// # Safety
/// That of `raw`.
unsafe fn decision_of(decision: &forebay_decision) -> Result<Decision, Failure> {
    let count = decision.streams_count;
    if count > STREAMS_MAX {
        return Err(Failure::invalid(format!("an acceptance into {count} streams, more than {STREAMS_MAX}")));
    }
    // SAFETY: the caller says the same.
    let streams = unsafe { items(decision.streams, count, "the list of streams") }?;
    // SAFETY: as above.
    let streams: Result<Vec<StreamName>, Failure> = streams.iter().map(|name| unsafe { stream_of(*name) }).collect();
    let verdict = Some(streams?).filter(|streams| !streams.is_empty()).map_or(Verdict::Reject, Verdict::Accept);
    Ok(Decision { key: decision.key.into(), verdict, incomplete: decision.incomplete })
}
