//! A client of fragments and events: what it is, and fragments in and out.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Mutex;
use std::time::Duration;

use ::forebay_client::{Client, ClientError, PutResult};
use forebay_types::{FragmentId, ReadOutcome, crc32c};

use crate::call::{free, run};
use crate::config::forebay_config;
use crate::failure::Failure;
use crate::fetched::{forebay_event_key, forebay_fragment_id, forebay_fragments};
use crate::raw::{bytes, fill, give, give_handle, given, items, lock, room};
use crate::text::{forebay_text, give_text};

/// A client of one server. Any thread may use it, and each call waits for the one before: threads that are to work at the same time have one each.
pub struct forebay_client(pub(crate) Mutex<Held>);

pub(crate) struct Held {
    pub(crate) client: Client,
    /// Results that there was no room for.
    results: VecDeque<PutResult>,
}

/// What became of a put.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct forebay_put_result {
    /// The fragment.
    pub id: forebay_fragment_id,
    /// One of `FOREBAY_PUT_...`: what the server last said; unavailable when it never answered. With durable and late alone the writer may forget the fragment.
    pub outcome: i32,
    /// Whether the server said so of every attempt. If not, the fragment may or may not be stored; putting it again is safe.
    pub answered: bool,
    /// From the call of put to the answer.
    pub latency_ns: u64,
}

fn result_of(result: PutResult) -> forebay_put_result {
    forebay_put_result {
        id: result.id.into(),
        outcome: i32::from(result.outcome.code()),
        answered: result.answered,
        latency_ns: u64::try_from(result.latency.as_nanos()).unwrap_or(u64::MAX),
    }
}

/// Uses the client of a handle.
pub(crate) fn with<T>(
    client: Option<&forebay_client>,
    call: impl FnOnce(&mut Held) -> Result<T, Failure>,
) -> Result<T, Failure> {
    call(&mut *lock(&given(client, "the client")?.0)?)
}

/// Connects and greets, trying again until the deadline.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_client_connect(
    config: Option<&forebay_config>,
    client: Option<&mut MaybeUninit<*mut forebay_client>>,
) -> i32 {
    run(|| {
        give_handle(client, || {
            let client = Client::connect(given(config, "the config")?.of_next_client())?;
            Ok(forebay_client(Mutex::new(Held { client, results: VecDeque::new() })))
        })
    })
}

/// Ends the connections and frees the client; null is nothing to free. Puts that were not answered may or may not be stored.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_client_free(client: Option<Box<forebay_client>>) {
    free(client);
}

/// Waits for a sign of life of the server.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_client_ping(client: Option<&forebay_client>) -> i32 {
    run(|| with(client, |held| Ok(held.client.ping()?)))
}

/// The state of the server, as one JSON object.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_client_status(
    client: Option<&forebay_client>,
    json: Option<&mut MaybeUninit<*mut forebay_text>>,
) -> i32 {
    run(|| give_text(json, || with(client, |held| Ok(held.client.status()?.into_bytes()))))
}

/// All that the store knows of an event, as one JSON object; also of one that is over, or that was never seen.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_client_trace(
    client: Option<&forebay_client>,
    key: forebay_event_key,
    json: Option<&mut MaybeUninit<*mut forebay_text>>,
) -> i32 {
    run(|| give_text(json, || with(client, |held| Ok(held.client.trace(key.into())?.into_bytes()))))
}

/// Puts a fragment: its bytes are copied, summed and sent with others, and the call waits when too many are on their way. `expected`: how many fragments the event should
/// have; 0 when not known. What becomes of it is told by `forebay_client_take_put_results`, exactly once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_client_put(
    client: Option<&forebay_client>,
    id: forebay_fragment_id,
    expected: u16,
    payload: *const c_void,
    payload_bytes: usize,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let payload = unsafe { bytes(payload, payload_bytes, "the payload") }?;
        put(client, id, expected, payload, crc32c(payload))
    })
}

/// The same for a caller who has the CRC32C already. Bytes that do not have it are refused (`FOREBAY_PUT_CHECKSUM_MISMATCH`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_client_put_with_crc32c(
    client: Option<&forebay_client>,
    id: forebay_fragment_id,
    expected: u16,
    payload: *const c_void,
    payload_bytes: usize,
    crc32c: u32,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        put(client, id, expected, unsafe { bytes(payload, payload_bytes, "the payload") }?, crc32c)
    })
}

fn put(
    client: Option<&forebay_client>,
    id: forebay_fragment_id,
    expected: u16,
    payload: &[u8],
    crc: u32,
) -> Result<(), Failure> {
    with(client, |held| Ok(held.client.put_with_crc(id.into(), expected, payload, crc)?))
}

/// The CRC32C of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_crc32c(
    data: *const c_void,
    data_bytes: usize,
    crc: Option<&mut MaybeUninit<u32>>,
) -> i32 {
    // SAFETY: the caller keeps to the rule of `raw`.
    run(|| give(crc, crc32c(unsafe { bytes(data, data_bytes, "the data") }?)))
}

/// Sends what is batched and waits until every put has its result. It fails when puts were refused as a whole or not answered since the last flush; they have results then, too.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_client_flush(client: Option<&forebay_client>) -> i32 {
    run(|| with(client, |held| Ok(held.client.flush()?)))
}

/// Gives the results that are there, at most `max`, without waiting; the others are kept. Who puts rarely calls it now and then: what is batched leaves while a call runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_client_take_put_results(
    client: Option<&forebay_client>,
    results: *mut forebay_put_result,
    max: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let room = unsafe { room(results, max, "the results") }?;
        take_results(client, room, count, None)
    })
}

/// The same, but it waits up to `longest_ms` until there is one, or until no put is without its result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_client_wait_put_results(
    client: Option<&forebay_client>,
    longest_ms: u64,
    results: *mut forebay_put_result,
    max: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let room = unsafe { room(results, max, "the results") }?;
        take_results(client, room, count, Some(Duration::from_millis(longest_ms)))
    })
}

fn take_results(
    client: Option<&forebay_client>,
    room: &mut [MaybeUninit<forebay_put_result>],
    count: Option<&mut MaybeUninit<usize>>,
    longest: Option<Duration>,
) -> Result<(), Failure> {
    let count = given(count, "the place for the count")?;
    with(client, |held| {
        let mut came = Vec::new();
        match longest.filter(|_| held.results.is_empty()) {
            Some(longest) => held.client.wait_put_results(longest, &mut came)?,
            None => held.client.take_put_results(&mut came),
        }
        held.results.extend(came);
        let taken = room.len().min(held.results.len());
        count.write(fill(room, held.results.drain(..taken).map(result_of)));
        Ok(())
    })
}

/// Puts without a result.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_client_pending_puts(
    client: Option<&forebay_client>,
    count: Option<&mut MaybeUninit<usize>>,
) -> i32 {
    run(|| with(client, |held| give(count, held.client.pending_puts())))
}

/// Reads a fragment, and checks it. It fails when there is no such fragment for now or for ever.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_client_get(
    client: Option<&forebay_client>,
    id: forebay_fragment_id,
    fragments: Option<&mut MaybeUninit<*mut forebay_fragments>>,
) -> i32 {
    run(|| {
        give_handle(fragments, || {
            let found = get(client, vec![id.into()])?;
            match found.first() {
                Some((id, outcome, _)) if *outcome != ReadOutcome::Found => {
                    Err(ClientError::Read { id: *id, outcome: *outcome }.into())
                }
                _ => Ok(forebay_fragments(found)),
            }
        })
    })
}

/// Reads fragments, over all lanes at once, and checks them. Each has an outcome of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_client_get_many(
    client: Option<&forebay_client>,
    ids: *const forebay_fragment_id,
    count: usize,
    fragments: Option<&mut MaybeUninit<*mut forebay_fragments>>,
) -> i32 {
    run(|| {
        // SAFETY: the caller keeps to the rule of `raw`.
        let ids = unsafe { items(ids, count, "the list of fragments") }?;
        let ids = ids.iter().map(|id| FragmentId::from(*id)).collect();
        give_handle(fragments, || get(client, ids).map(forebay_fragments))
    })
}

fn get(
    client: Option<&forebay_client>,
    ids: Vec<FragmentId>,
) -> Result<Vec<(FragmentId, ReadOutcome, Vec<u8>)>, Failure> {
    let found = with(client, |held| Ok(held.client.get_many(&ids)?))?;
    Ok(ids.into_iter().zip(found).map(|(id, (outcome, bytes))| (id, outcome, bytes)).collect())
}
