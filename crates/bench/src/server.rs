//! A server on loopback, client and server on the same processors, beside iperf3.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use forebay_client::{Client, ClientConfig, PutResult};
use forebay_store::{InitOptions, init};
use forebay_types::{EventKey, FragmentId};
use serde_json::{Value, json};

use crate::iperf;
use crate::measure::{measured, median};

const DATA: u8 = 5;
const PARITY: u8 = 1;
/// Sources of an event.
const SOURCES: u64 = 64;
/// Fragments of one request of a reader.
const READ_BATCH: usize = 64;

struct Server {
    child: Child,
    address: String,
    _directory: tempfile::TempDir,
}

impl Server {
    fn start(directory: &Path, drive_bytes: u64, cache_bytes: u64) -> Self {
        let directory = tempfile::TempDir::new_in(directory).expect("a directory can be made");
        let paths: Vec<PathBuf> = (0..DATA + PARITY).map(|n| directory.path().join(format!("drive{n}"))).collect();
        let mut options = InitOptions::new(DATA, PARITY);
        options.drive_bytes = Some(drive_bytes);
        options.lanes = Some(1);
        init(&paths, &options, &mut |_| {}).expect("a store can be made");
        let config = directory.path().join("forebay.toml");
        let text = format!("[store]\ncache-bytes = {cache_bytes}\ndrive-timeout-ms = 60000\n");
        std::fs::write(&config, text).expect("the configuration can be written");
        let ready = directory.path().join("ready");
        let binary = std::env::current_exe().expect("this program has a path").with_file_name("forebay");
        let mut child = Command::new(&binary)
            .args(["serve", "--listen", "127.0.0.1:0", "--ready-file"])
            .arg(&ready)
            .arg("--config")
            .arg(&config)
            .args(&paths)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("needs {}: `cargo build --release` makes it ({error})", binary.display()));
        let mut log = BufReader::new(child.stderr.take().expect("piped"));
        // Someone must read the log, or the server would wait.
        std::thread::spawn(move || {
            let mut line = String::new();
            while log.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                line.clear();
            }
        });
        let start = Instant::now();
        let address = loop {
            match std::fs::read_to_string(&ready) {
                Ok(address) if !address.trim().is_empty() => break address.trim().to_owned(),
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
            assert!(start.elapsed() < Duration::from_secs(60), "the server is not ready");
        };
        Server { child, address, _directory: directory }
    }

    fn client(&self) -> Client {
        Client::connect(ClientConfig::new(self.address.clone(), "bench")).expect("the server answers")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn id(run: u32, number: u64) -> FragmentId {
    FragmentId::new(run, number / SOURCES, (number % SOURCES) as u32)
}

fn payload(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 131 + i / 251) as u8).collect()
}

/// Puts `count` fragments flat out; their latencies in milliseconds.
fn put_all(client: &mut Client, run: u32, count: u64, payload: &[u8]) -> Vec<f64> {
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
        client.put(id(run, number), SOURCES as u16, payload).expect("the server takes it");
        if number % 512 == 511 {
            take(client, &mut results);
        }
    }
    client.flush().expect("all is answered");
    take(client, &mut results);
    latencies
}

fn delete_all(client: &mut Client, run: u32, count: u64) {
    let events: Vec<EventKey> = (0..count.div_ceil(SOURCES)).map(|event| EventKey::new(run, event)).collect();
    for outcome in client.delete(&events).expect("the server answers") {
        assert!(outcome.is_done(), "{outcome}");
    }
}

fn read_all(client: &mut Client, run: u32, count: u64, bytes: usize) -> Vec<f64> {
    let ids: Vec<FragmentId> = (0..count).map(|number| id(run, number)).collect();
    let mut latencies = Vec::new();
    for batch in ids.chunks(READ_BATCH) {
        let start = Instant::now();
        for (outcome, payload) in client.get_many(batch).expect("the server answers") {
            assert!(outcome == forebay_types::ReadOutcome::Found && payload.len() == bytes, "{outcome}");
        }
        latencies.push(start.elapsed().as_secs_f64() * 1e3);
    }
    latencies
}

fn percentiles(mut latencies: Vec<f64>) -> Value {
    latencies.sort_by(f64::total_cmp);
    let at = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize];
    json!({"p50_ms": at(0.50), "p95_ms": at(0.95), "p99_ms": at(0.99)})
}

/// Puts of 10 KiB beside iperf3.
pub fn throughput(directory: &Path, pairs: usize) -> Value {
    let bytes = 10 << 10;
    let count = (1u64 << 30) / bytes as u64;
    let server = Server::start(directory, 768 << 20, 256 << 20);
    let mut client = server.client();
    let payload = payload(bytes);
    let (mut rates, mut baselines, mut ratios, mut cpu) = (vec![], vec![], vec![], vec![]);
    for pair in 0..pairs {
        let baseline = iperf::bytes_per_s(2);
        let run = pair as u32 + 1;
        let (_, cost) = measured(|| put_all(&mut client, run, count, &payload));
        let rate = (count * bytes as u64) as f64 / cost.seconds;
        delete_all(&mut client, run, count);
        rates.push(rate);
        ratios.push(rate / baseline);
        baselines.push(baseline);
        cpu.push(cost.cpu_seconds / (count * bytes as u64) as f64 * 1e9);
        eprintln!("pair {}: {:.2} GB/s, iperf3 {:.2} GB/s", pair + 1, rate / 1e9, baseline / 1e9);
    }
    json!({
        "benchmark": "server",
        "width": format!("{DATA}+{PARITY}"),
        "fragment_bytes": bytes,
        "pairs": pairs,
        "payload_bytes_per_s": median(rates.clone()),
        "iperf3_bytes_per_s": median(baselines.clone()),
        "ratio_to_iperf3": median(ratios.clone()),
        "client_cpu_seconds_per_gb": median(cpu.clone()),
        "all": {
            "payload_bytes_per_s": rates,
            "iperf3_bytes_per_s": baselines,
            "ratio_to_iperf3": ratios,
            "client_cpu_seconds_per_gb": cpu,
        },
    })
}

/// Puts, reads from memory and from the drives, and deletions, over sizes of fragments.
pub fn curves(directory: &Path) -> Value {
    let mut rows = Vec::new();
    for kib in [1usize, 4, 10, 64, 256] {
        let bytes = kib << 10;
        let total = (512u64 << 20).min(200_000 * bytes as u64);
        let count = total / bytes as u64;
        let payload = payload(bytes);
        let server = Server::start(directory, 640 << 20, 1 << 30);
        let mut client = server.client();
        let gb = (count * bytes as u64) as f64 / 1e9;
        let (put_latencies, put) = measured(|| put_all(&mut client, 1, count, &payload));
        let (cached_latencies, cached) = measured(|| read_all(&mut client, 1, count, bytes));
        let ((), delete) = measured(|| delete_all(&mut client, 1, count));
        drop((client, server));
        let server = Server::start(directory, 640 << 20, 0);
        let mut client = server.client();
        put_all(&mut client, 1, count, &payload);
        let reads = count.min(20_000);
        let read_gb = (reads * bytes as u64) as f64 / 1e9;
        let (drive_latencies, drives) = measured(|| read_all(&mut client, 1, reads, bytes));
        rows.push(json!({
            "fragment_bytes": bytes,
            "put_bytes_per_s": gb * 1e9 / put.seconds,
            "put_latency": percentiles(put_latencies),
            "put_client_cpu_seconds_per_gb": put.cpu_seconds / gb,
            "get_cached_bytes_per_s": gb * 1e9 / cached.seconds,
            "get_cached_latency_of_64": percentiles(cached_latencies),
            "get_client_cpu_seconds_per_gb": cached.cpu_seconds / gb,
            "get_drives_bytes_per_s": read_gb * 1e9 / drives.seconds,
            "get_drives_latency_of_64": percentiles(drive_latencies),
            "delete_fragments_per_s": count as f64 / delete.seconds,
        }));
        eprintln!("{}", rows[rows.len() - 1]);
    }
    json!({"benchmark": "curves", "width": format!("{DATA}+{PARITY}"), "iperf3_bytes_per_s": iperf::bytes_per_s(2), "sizes": rows})
}
