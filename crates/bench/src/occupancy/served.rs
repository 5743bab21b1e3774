//! The load *survivors* as writers meet it: through a server, on loopback.

use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fastrand::Rng;
use forebay_client::{Client, PutResult};
use forebay_types::{EventKey, FragmentId};
use serde_json::{Value, json};

use super::{DRIVE_BYTES, EVENT_BYTES, FRAGMENT_BYTES, RUN, SLOT_BYTES, SOURCES, SURVIVES, WRITTEN_PERCENT, YOUNG};
use crate::measure::median;
use crate::process::{Drives, Server};
use crate::requests::{payload, percentiles, status};

const PERCENTS: [u64; 2] = [20, 90];
/// Little, so that what is copied comes from the drives.
const CACHE_BYTES: u64 = 16 << 20;
/// Events that are deleted by one request while others are put, and before, where it must not take so long that room is made meanwhile.
const BATCH: usize = 32;
const BATCH_BEFORE: usize = 4096;
/// Requests that wait until others are answered.
const BATCHES_WAITING: usize = 8;

/// What one measurement came to.
struct Row {
    /// Room that was not free at the beginning, in percent.
    taken_percent: f64,
    bytes_per_s: f64,
    latencies: Value,
    copied: f64,
    /// Of the server.
    cpu_seconds_per_gb: f64,
}

/// At 20 % and at 90 %, by turns, `rounds` times.
pub(super) fn served(directory: &Path, rounds: usize) -> Value {
    let drives = Drives::with_slots(directory, DRIVE_BYTES, 1, Some(SLOT_BYTES));
    let server = drives.serve(CACHE_BYTES);
    let mut writer = Writer::new(&server);
    // Once around, so that every place of the files was written to before anything is measured.
    let capacity = writer.number("capacity_bytes");
    writer.put_events(capacity * 95 / 100 / EVENT_BYTES);
    let mut all: Vec<[Row; 2]> = Vec::new();
    for _ in 0..rounds.max(1) {
        let pair = PERCENTS.map(|percent| measure(&server, &mut writer, percent));
        let [low, high] = [0, 1].map(|at| pair[at].bytes_per_s / 1e9);
        let [low_taken, high_taken] = [0, 1].map(|at| pair[at].taken_percent);
        eprintln!("through a server: {low:.2} GB/s at {low_taken:.1} %, {high:.2} at {high_taken:.1} %");
        all.push(pair);
    }
    let ratios: Vec<f64> = all.iter().map(|[low, high]| high.bytes_per_s / low.bytes_per_s).collect();
    let ratio = median(ratios.clone());
    eprintln!("through a server: 90 % to 20 %: {ratio:.2}, median of {ratios:.2?}");
    let rows = [0, 1].map(|at| {
        let of = |value: fn(&Row) -> f64| median(all.iter().map(|pair| value(&pair[at])).collect());
        json!({
            "occupied_percent": PERCENTS[at],
            "taken_percent": of(|row| row.taken_percent),
            "payload_bytes_per_s": of(|row| row.bytes_per_s),
            "acknowledged_in_the_last_round": all[all.len() - 1][at].latencies,
            "copied_per_payload_byte": of(|row| row.copied),
            "server_cpu_seconds_per_gb": of(|row| row.cpu_seconds_per_gb),
        })
    });
    json!({ "ratio_90_to_20": ratio, "ratios": ratios, "rows": rows })
}

fn measure(server: &Server, writer: &mut Writer, percent: u64) -> Row {
    writer.delete_all();
    let capacity = writer.number("capacity_bytes");
    let moved = |lane: Value| lane["compaction"]["bytes_moved"].as_u64().expect("lanes say it");
    writer.put_events(capacity * percent / 100 / EVENT_BYTES);
    writer.delete_down_to(0, BATCH_BEFORE);
    writer.until_deleted();
    writer.latencies.clear();
    let taken = capacity - writer.number("free_bytes");
    let (copied, cpu, begin) = (moved(writer.lane()), server.cpu_seconds(), Instant::now());
    let events = capacity * WRITTEN_PERCENT / 100 / EVENT_BYTES;
    writer.put_events_and_delete(events);
    let (seconds, bytes) = (begin.elapsed().as_secs_f64(), (events * EVENT_BYTES) as f64);
    Row {
        taken_percent: taken as f64 * 100.0 / capacity as f64,
        bytes_per_s: bytes / seconds,
        latencies: percentiles(std::mem::take(&mut writer.latencies)),
        copied: (moved(writer.lane()) - copied) as f64 / bytes,
        cpu_seconds_per_gb: (server.cpu_seconds() - cpu) / (bytes / 1e9),
    }
}

/// Puts by one client while another one deletes.
struct Writer {
    client: Client,
    deletes: Option<SyncSender<Vec<EventKey>>>,
    deleter: Option<JoinHandle<()>>,
    random: Rng,
    payload: Bytes,
    next_event: u64,
    /// Fragments of an event that are not acknowledged.
    waiting: HashMap<EventKey, u64>,
    /// Stored events that do not survive, those that do, and those that are to be deleted by the next request.
    doomed: Vec<EventKey>,
    survivors: Vec<EventKey>,
    batch: Vec<EventKey>,
    latencies: Vec<f64>,
}

impl Writer {
    fn new(server: &Server) -> Writer {
        let (deletes, asked) = sync_channel(BATCHES_WAITING);
        let deleter = server.client();
        Writer {
            client: server.client(),
            deletes: Some(deletes),
            deleter: Some(std::thread::spawn(move || delete(deleter, &asked))),
            random: Rng::with_seed(1),
            payload: payload(FRAGMENT_BYTES as usize),
            next_event: 0,
            waiting: HashMap::new(),
            doomed: Vec::new(),
            survivors: Vec::new(),
            batch: Vec::new(),
            latencies: Vec::new(),
        }
    }

    fn lane(&mut self) -> Value {
        status(&mut self.client)["lanes"][0].take()
    }

    fn number(&mut self, name: &str) -> u64 {
        self.lane()[name].as_u64().expect("lanes say it")
    }

    fn put_events(&mut self, events: u64) {
        (0..events).for_each(|_| self.put_event());
        self.until_answered();
    }

    fn put_events_and_delete(&mut self, events: u64) {
        for _ in 0..events {
            self.put_event();
            self.delete_down_to(YOUNG, BATCH);
        }
        self.until_answered();
    }

    fn put_event(&mut self) {
        let key = EventKey::new(RUN, self.next_event);
        self.next_event += 1;
        for source in 0..SOURCES {
            let id = FragmentId::new(RUN, key.event.0, source as u32);
            self.client.put_bytes(id, SOURCES as u16, &self.payload).expect("the server takes it");
        }
        self.waiting.insert(key, SOURCES);
        if key.event.0 % 16 == 15 {
            self.take_results();
        }
    }

    fn until_answered(&mut self) {
        self.client.flush().expect("all is answered");
        self.take_results();
    }

    fn take_results(&mut self) {
        let mut results: Vec<PutResult> = Vec::new();
        self.client.take_put_results(&mut results);
        for result in results {
            assert!(result.outcome.is_acknowledged(), "{} came to {}", result.id, result.outcome);
            self.latencies.push(result.latency.as_secs_f64() * 1e3);
            let key = result.id.key();
            let left = self.waiting.get_mut(&key).expect("it was put");
            *left -= 1;
            if *left == 0 {
                self.waiting.remove(&key);
                let survives = self.random.u64(..SURVIVES) == 0;
                if survives { &mut self.survivors } else { &mut self.doomed }.push(key);
            }
        }
    }

    /// Deletes events that do not survive, any of them, until so many are left.
    fn delete_down_to(&mut self, left: usize, batch: usize) {
        while self.doomed.len() > left {
            let at = self.random.usize(..self.doomed.len());
            self.batch.push(self.doomed.swap_remove(at));
            if self.batch.len() == batch || left == 0 && self.doomed.is_empty() {
                let deletes = self.deletes.as_ref().expect("until this is dropped");
                deletes.send(std::mem::take(&mut self.batch)).expect("the other client goes on");
            }
        }
    }

    /// Empties the store.
    fn delete_all(&mut self) {
        self.doomed.append(&mut self.survivors);
        self.delete_down_to(0, BATCH_BEFORE);
        self.until_deleted();
        // What was written last lies in a segment that is not closed yet.
        while self.number("free_bytes") * 10 < self.number("capacity_bytes") * 9 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Until all deletions count: they do when they are durable.
    fn until_deleted(&mut self) {
        while self.number("events") > self.survivors.len() as u64 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.deletes.take());
        if let Some(deleter) = self.deleter.take() {
            let over = deleter.join();
            assert!(over.is_ok() || std::thread::panicking(), "the client that deletes failed");
        }
    }
}

fn delete(mut client: Client, asked: &Receiver<Vec<EventKey>>) {
    while let Ok(events) = asked.recv() {
        for outcome in client.delete(&events).expect("the server answers") {
            assert!(outcome.is_done(), "{outcome}");
        }
    }
}
