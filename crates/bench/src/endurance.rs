//! Memory of a server over an hour of puts, reads and deletions at a steady occupancy: what is lost there never comes back.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fastrand::Rng;
use forebay_client::Client;
use forebay_types::{EventKey, FragmentId, ReadOutcome};
use serde_json::{Value, json};

use crate::process::{DATA, Drives, PARITY, Server};
use crate::requests::{payload, status};

const LANES: u16 = 2;
const DRIVE_BYTES: u64 = 1 << 30;
const CACHE_BYTES: u64 = 256 << 20;
/// So much of the room is alive, in percent.
const OCCUPIED_PERCENT: u64 = 60;
const SOURCES: u64 = 16;
/// Fragments have from half to one and a half of one of these bytes; the small ones come more often.
const SIZES: [u64; 10] = [256, 256, 256, 1 << 10, 1 << 10, 1 << 10, 10 << 10, 10 << 10, 10 << 10, 64 << 10];
const SIZE_MAX: usize = 96 << 10;
/// Events that are put, and fragments that are read, before others are deleted.
const BATCH: usize = 64;
const SAMPLE_EVERY: Duration = Duration::from_secs(10);
/// A run of the detector is this long: what a server remembers of those that are over must not add up.
const RUN_EVERY: Duration = Duration::from_secs(60);

/// A client of a server, and what is stored.
struct Load {
    client: Client,
    random: Rng,
    /// What all payloads are parts of.
    bytes: Bytes,
    /// Events that are stored, and the bytes of each.
    alive: Vec<(EventKey, u64)>,
    alive_bytes: u64,
    next: EventKey,
    bytes_put: u64,
    bytes_read: u64,
    events_deleted: u64,
}

/// For so many minutes; what is told is the memory at the end of them against that after a sixth of them.
pub fn endurance(directory: &Path, minutes: f64) -> Value {
    let drives = Drives::new(directory, DRIVE_BYTES, LANES);
    let server = drives.serve(CACHE_BYTES);
    let mut load = Load::new(server.client());
    let goal = load.totals()["capacity_bytes"].as_u64().expect("lanes say it") * OCCUPIED_PERCENT / 100;
    while load.alive_bytes < goal {
        load.put();
    }
    let whole = Duration::from_secs_f64(minutes * 60.0);
    let (begin, mut samples) = (Instant::now(), vec![load.sample(&server, Duration::ZERO)]);
    while begin.elapsed() < whole {
        let next = SAMPLE_EVERY * samples.len() as u32;
        while begin.elapsed() < next.min(whole) {
            load.next_run(begin.elapsed());
            load.put();
            load.read();
            load.delete_down_to(goal);
        }
        samples.push(load.sample(&server, begin.elapsed()));
    }
    let of = |sample: &Value, what: &str| sample[what].as_f64().expect("a sample has it");
    let sixth = whole.as_secs_f64() / 6.0;
    let early = samples.iter().find(|sample| of(sample, "seconds") >= sixth).expect("the last is later");
    let last = samples.last().expect("there is one");
    let ratio = of(last, "resident_bytes") / of(early, "resident_bytes");
    eprintln!("resident memory at the end, of that after a sixth of the time: {ratio:.3}");
    json!({
        "benchmark": "endurance",
        "width": format!("{DATA}+{PARITY}"),
        "lanes": LANES,
        "cache_bytes_configured": CACHE_BYTES,
        "occupied_percent": OCCUPIED_PERCENT,
        "minutes": minutes,
        "resident_bytes_after_a_sixth": early["resident_bytes"],
        "resident_bytes_at_the_end": last["resident_bytes"],
        "ratio": ratio,
        "payload_bytes_put": load.bytes_put,
        "payload_bytes_read": load.bytes_read,
        "events_deleted": load.events_deleted,
        "samples": samples,
    })
}

impl Load {
    fn new(client: Client) -> Self {
        Load {
            client,
            random: Rng::with_seed(1),
            bytes: payload(4 * SIZE_MAX),
            alive: Vec::new(),
            alive_bytes: 0,
            next: EventKey::new(1, 0),
            bytes_put: 0,
            bytes_read: 0,
            events_deleted: 0,
        }
    }

    /// What the lanes say together.
    fn totals(&mut self) -> Value {
        status(&mut self.client)["totals"].take()
    }

    fn next_run(&mut self, elapsed: Duration) {
        let run = 1 + (elapsed.as_secs() / RUN_EVERY.as_secs()) as u32;
        if run != self.next.run.0 {
            self.next = EventKey::new(run, 0);
        }
    }

    /// The bytes of a fragment, which its id alone decides.
    fn payload(&self, id: FragmentId) -> Bytes {
        let mut random = Rng::with_seed((u64::from(id.run.0) << 48) | (id.event.0 << 8) | u64::from(id.source.0));
        let size = SIZES[random.u64(..SIZES.len() as u64) as usize];
        let bytes = (size / 2 + random.u64(..size)) as usize;
        let at = random.usize(..self.bytes.len() - bytes);
        self.bytes.slice(at..at + bytes)
    }

    /// Puts events until all are acknowledged.
    fn put(&mut self) {
        for _ in 0..BATCH {
            let key = self.next;
            self.next = EventKey::new(key.run.0, key.event.0 + 1);
            let mut event_bytes = 0;
            for source in 0..SOURCES {
                let id = FragmentId::new(key.run.0, key.event.0, source as u32);
                let payload = self.payload(id);
                self.client.put_bytes(id, SOURCES as u16, &payload).expect("the server takes it");
                event_bytes += payload.len() as u64;
            }
            self.alive.push((key, event_bytes));
            self.alive_bytes += event_bytes;
            self.bytes_put += event_bytes;
        }
        self.client.flush().expect("all is answered");
        let mut results = Vec::new();
        self.client.take_put_results(&mut results);
        for result in results {
            assert!(result.outcome.is_acknowledged(), "{} came to {}", result.id, result.outcome);
        }
    }

    /// Reads fragments of any events, and compares them with what was put.
    fn read(&mut self) {
        let ids: Vec<FragmentId> = (0..BATCH).map(|_| self.any_fragment()).collect();
        let answers = self.client.get_many(&ids).expect("the server answers");
        for (id, (outcome, bytes)) in ids.into_iter().zip(answers) {
            assert!(outcome == ReadOutcome::Found && bytes == self.payload(id), "{id}: {outcome}, or other bytes");
            self.bytes_read += bytes.len() as u64;
        }
    }

    fn any_fragment(&mut self) -> FragmentId {
        let (key, _) = self.alive[self.random.u64(..self.alive.len() as u64) as usize];
        FragmentId::new(key.run.0, key.event.0, self.random.u64(..SOURCES) as u32)
    }

    /// Deletes any events until so many bytes are left.
    fn delete_down_to(&mut self, goal: u64) {
        let mut events = Vec::new();
        while self.alive_bytes > goal {
            let (key, bytes) = self.alive.swap_remove(self.random.u64(..self.alive.len() as u64) as usize);
            self.alive_bytes -= bytes;
            events.push(key);
        }
        for batch in events.chunks(BATCH) {
            for outcome in self.client.delete(batch).expect("the server answers") {
                assert!(outcome.is_done(), "{outcome}");
            }
        }
        self.events_deleted += events.len() as u64;
    }

    fn sample(&mut self, server: &Server, elapsed: Duration) -> Value {
        let totals = self.totals();
        let number = |name: &str| totals[name].as_u64().expect("lanes say it");
        let sample = json!({
            "seconds": elapsed.as_secs_f64(),
            "resident_bytes": server.resident_bytes().0,
            "memory_bytes_told": number("memory_bytes"),
            "index_bytes": number("index_bytes"),
            "fragments": number("fragments"),
            "occupied_percent": number("fragment_bytes") as f64 * 100.0 / number("capacity_bytes") as f64,
            "payload_bytes_put": self.bytes_put,
        });
        eprintln!("{sample}");
        sample
    }
}
