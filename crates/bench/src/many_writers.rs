//! Many slow writers beside a few fast readers: as in a farm of processes that each append to a file of their own, while others read what is whole.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use forebay_client::files::{ReadOptions, WriteOptions};
use serde_json::{Value, json};

use crate::files::{CACHE_BYTES, DATA, DRIVE_BYTES, LANES, PARITY, REQUEST_BYTES, connect};
use crate::measure::median;
use crate::open_files;
use crate::process::{Drives, Server};
use crate::requests::percentiles;

/// What a writer appends at once, and waits for.
const APPEND_BYTES: usize = 32_000;
/// From one append of a writer to its next.
const APPEND_EVERY: Duration = Duration::from_secs(1);
const READERS: usize = 4;
const READ_FILE_BYTES: usize = 128 << 20;
/// A client has a connection to the server and one to each lane, and what it waits by.
const FILES_PER_CLIENT: usize = 2 + LANES as usize;

/// What one phase gave.
struct Phase {
    read_bytes_per_s: f64,
    written_bytes_per_s: f64,
    append_latencies_ms: Vec<f64>,
    server_cpu_per_s: f64,
}

/// What those that read and write in a phase have in common.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    latencies_ms: Mutex<Vec<f64>>,
}

fn make_read_files(server: &Server) {
    let files = connect(server);
    let block: Vec<u8> = (0..REQUEST_BYTES).map(|at| (at * 7 + at / 251) as u8).collect();
    for reader in 0..READERS {
        let mut file = files.create(format!("/read{reader}"), &WriteOptions::default()).expect("made");
        for _ in 0..READ_FILE_BYTES / REQUEST_BYTES {
            file.write(&block).expect("there is room");
        }
        file.close().expect("durable");
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Reads a file again and again.
    fn read(&self, server: &Server, reader: usize) {
        let files = connect(server);
        let mut file = files.open_read(format!("/read{reader}"), &ReadOptions::default()).expect("it is there");
        let mut block = vec![0; REQUEST_BYTES];
        while !self.is_over() {
            match file.read(&mut block).expect("it is read") {
                0 => file.set_position(0),
                found => drop(self.bytes_read.fetch_add(found as u64, Ordering::Relaxed)),
            }
        }
    }

    /// Appends to a file of its own, each time after so long.
    fn write(&self, server: &Server, writer: usize, writers: usize, ready: &Barrier) {
        let files = connect(server);
        let path = format!("/written{writer}");
        let mut file = files.create(&path, &WriteOptions::default()).expect("made");
        let bytes = vec![writer as u8; APPEND_BYTES];
        ready.wait();
        // Each at a moment of its own.
        let mut due = Instant::now() + APPEND_EVERY.mul_f64(writer as f64 / writers as f64);
        let mut latencies_ms = Vec::new();
        while !self.is_over() {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            file.write(&bytes).and_then(|()| file.sync()).expect("there is room");
            latencies_ms.push(due.elapsed().as_secs_f64() * 1e3);
            self.bytes_written.fetch_add(APPEND_BYTES as u64, Ordering::Relaxed);
            due += APPEND_EVERY;
        }
        file.close().expect("durable");
        files.remove(&path).expect("it was made");
        self.latencies_ms.lock().expect("nobody panics with it").append(&mut latencies_ms);
    }
}

/// Readers, and so many writers beside them, for so long.
fn phase(server: &Server, writers: usize, seconds: f64) -> Phase {
    let (shared, ready) = (Shared::default(), Barrier::new(writers + 1));
    let (mut read_bytes_per_s, mut written_bytes_per_s, mut server_cpu_per_s) = (0.0, 0.0, 0.0);
    std::thread::scope(|scope| {
        let (shared, ready) = (&shared, &ready);
        for writer in 0..writers {
            scope.spawn(move || shared.write(server, writer, writers, ready));
        }
        ready.wait();
        for reader in 0..READERS {
            scope.spawn(move || shared.read(server, reader));
        }
        // How they begin is not counted.
        std::thread::sleep(APPEND_EVERY);
        let now = || (shared.bytes_read.load(Ordering::Relaxed), shared.bytes_written.load(Ordering::Relaxed));
        let (begin, before, cpu) = (Instant::now(), now(), server.cpu_seconds());
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let (took, after) = (begin.elapsed().as_secs_f64(), now());
        server_cpu_per_s = (server.cpu_seconds() - cpu) / took;
        (read_bytes_per_s, written_bytes_per_s) =
            ((after.0 - before.0) as f64 / took, (after.1 - before.1) as f64 / took);
        shared.stop.store(true, Ordering::Relaxed);
    });
    let append_latencies_ms = shared.latencies_ms.into_inner().expect("nobody panicked with it");
    Phase { read_bytes_per_s, written_bytes_per_s, append_latencies_ms, server_cpu_per_s }
}

/// Readers without and with so many writers, in turn.
pub fn many_writers(directory: &Path, pairs: usize, writers: usize, seconds: f64) -> Value {
    let drives = Drives::of_width(directory, (DATA, PARITY), DRIVE_BYTES, LANES);
    let server = drives.serve(CACHE_BYTES);
    let mut result = beside(&server, pairs, writers, seconds);
    result["benchmark"] = "many-writers".into();
    result["width"] = format!("{DATA}+{PARITY}").into();
    result
}

/// The same of a server of two lanes that has room for what they read and write.
pub fn beside(server: &Server, pairs: usize, writers: usize, seconds: f64) -> Value {
    open_files::raise((writers + READERS) * FILES_PER_CLIENT);
    make_read_files(server);
    // The first phase pays for the memory of all.
    phase(server, writers, 1.0);
    let mut latencies_ms = Vec::new();
    let rounds: Vec<(Phase, Phase)> = (0..pairs)
        .map(|pair| {
            let alone = phase(server, 0, seconds);
            let mut beside = phase(server, writers, seconds);
            latencies_ms.append(&mut beside.append_latencies_ms);
            eprintln!(
                "pair {pair}: reads {:.2} GB/s alone, {:.2} beside {writers} writers of {:.1} MB/s in all; server {:.2} and {:.2} cores",
                alone.read_bytes_per_s / 1e9,
                beside.read_bytes_per_s / 1e9,
                beside.written_bytes_per_s / 1e6,
                alone.server_cpu_per_s,
                beside.server_cpu_per_s
            );
            (alone, beside)
        })
        .collect();
    let of = |of: fn(&(Phase, Phase)) -> f64| median(rounds.iter().map(of).collect());
    let ratios: Vec<f64> =
        rounds.iter().map(|(alone, beside)| beside.read_bytes_per_s / alone.read_bytes_per_s).collect();
    json!({
        "writers": writers,
        "append_bytes": APPEND_BYTES,
        "readers": READERS,
        "pairs": pairs,
        "seconds": seconds,
        "read_alone_bytes_per_s": of(|(alone, _)| alone.read_bytes_per_s),
        "read_beside_bytes_per_s": of(|(_, beside)| beside.read_bytes_per_s),
        "written_beside_bytes_per_s": of(|(_, beside)| beside.written_bytes_per_s),
        "read_beside_to_alone": { "median": median(ratios.clone()), "pairs": ratios },
        "append_latency": percentiles(latencies_ms),
        "server_cpu_per_s_alone": of(|(alone, _)| alone.server_cpu_per_s),
        "server_cpu_per_s_beside": of(|(_, beside)| beside.server_cpu_per_s),
    })
}
