//! What the benchmarks ask of a server.

use std::time::Instant;

use bytes::Bytes;
use forebay_client::{Client, PutResult};
use forebay_types::{EventKey, FragmentId, ReadOutcome};
use serde_json::{Value, json};

/// Sources of an event.
pub const SOURCES: u64 = 64;

/// Fragments of one request of a reader, events of one deletion.
const BATCH: usize = 64;

/// The fragment of that number.
pub fn id(run: u32, number: u64) -> FragmentId {
    FragmentId::new(run, number / SOURCES, (number % SOURCES) as u32)
}

/// A payload that does not repeat soon.
pub fn payload(bytes: usize) -> Bytes {
    (0..bytes).map(|i| (i * 131 + i / 251) as u8).collect()
}

/// Puts `count` fragments flat out; their latencies in milliseconds.
pub fn put_all(client: &mut Client, run: u32, count: u64, payload: &Bytes) -> Vec<f64> {
    let mut results: Vec<PutResult> = Vec::new();
    let mut latencies = Vec::with_capacity(count as usize);
    let mut take = |client: &mut Client, results: &mut Vec<PutResult>| {
        client.take_put_results(results);
        for result in results.drain(..) {
            assert!(result.outcome.is_acknowledged(), "{} came to {}", result.id, result.outcome);
            latencies.push(result.latency.as_secs_f64() * 1e3);
        }
    };
    for number in 0..count {
        client.put_bytes(id(run, number), SOURCES as u16, payload).expect("the server takes it");
        if number % 512 == 511 {
            take(client, &mut results);
        }
    }
    client.flush().expect("all is answered");
    take(client, &mut results);
    latencies
}

/// Deletes the events of `count` fragments; the latencies of the requests in milliseconds.
pub fn delete_all(client: &mut Client, run: u32, count: u64) -> Vec<f64> {
    let events: Vec<EventKey> = (0..count.div_ceil(SOURCES)).map(|event| EventKey::new(run, event)).collect();
    let delete = |batch: &[EventKey]| {
        let start = Instant::now();
        for outcome in client.delete(batch).expect("the server answers") {
            assert!(outcome.is_done(), "{outcome}");
        }
        start.elapsed().as_secs_f64() * 1e3
    };
    events.chunks(BATCH).map(delete).collect()
}

/// Reads `count` fragments; the latencies of the requests in milliseconds.
pub fn read_all(client: &mut Client, run: u32, count: u64, bytes: usize) -> Vec<f64> {
    let ids: Vec<FragmentId> = (0..count).map(|number| id(run, number)).collect();
    let read = |batch: &[FragmentId]| {
        let start = Instant::now();
        for (outcome, payload) in client.get_many(batch).expect("the server answers") {
            assert!(outcome == ReadOutcome::Found && payload.len() == bytes, "{outcome}");
        }
        start.elapsed().as_secs_f64() * 1e3
    };
    ids.chunks(BATCH).map(read).collect()
}

/// Half, 95 % and 99 % of the latencies are not longer than these.
pub fn percentiles(mut latencies: Vec<f64>) -> Value {
    latencies.sort_by(f64::total_cmp);
    let at = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize];
    json!({"p50_ms": at(0.50), "p95_ms": at(0.95), "p99_ms": at(0.99)})
}

/// The state of the server.
pub fn status(client: &mut Client) -> Value {
    serde_json::from_str(&client.status().expect("the server answers")).expect("the status is JSON")
}
