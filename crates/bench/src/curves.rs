//! Puts, reads from memory and from the drives, and deletions, over sizes of fragments.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::iperf;
use crate::measure::{measured, median};
use crate::process::{DATA, Drives, PARITY, Server};
use crate::requests::{delete_all, payload, percentiles, put_all, read_all};

/// Sizes of fragments, in KiB.
const SIZES_KIB: [usize; 5] = [1, 4, 10, 64, 256];

/// Reads from the drives are of so many fragments at most.
const DRIVE_READS_MAX: u64 = 20_000;

/// One kind of request, measured several times.
#[derive(Default)]
struct Curve {
    bytes_per_s: Vec<f64>,
    per_s: Vec<f64>,
    client_cpu: Vec<f64>,
    server_cpu: Vec<f64>,
    latencies: Vec<f64>,
}

impl Curve {
    /// `count` fragments of `bytes` each.
    fn measure(&mut self, server: &Server, count: u64, bytes: usize, work: impl FnOnce() -> Vec<f64>) {
        let before = server.cpu_seconds();
        let (latencies, cost) = measured(work);
        let gb = (count * bytes as u64) as f64 / 1e9;
        self.server_cpu.push((server.cpu_seconds() - before) / gb);
        self.client_cpu.push(cost.cpu_seconds / gb);
        self.bytes_per_s.push(gb * 1e9 / cost.seconds);
        self.per_s.push(count as f64 / cost.seconds);
        self.latencies.extend(latencies);
    }

    fn report(self) -> Value {
        json!({
            "bytes_per_s": median(self.bytes_per_s.clone()),
            "fragments_per_s": median(self.per_s),
            "latency": percentiles(self.latencies),
            "client_cpu_seconds_per_gb": median(self.client_cpu),
            "server_cpu_seconds_per_gb": median(self.server_cpu),
            "all_bytes_per_s": self.bytes_per_s,
        })
    }
}

/// Each size `times` times, in turn, so that a slow minute hits all of them.
pub fn curves(directory: &Path, times: usize) -> Value {
    let mut curves: BTreeMap<(usize, &str), Curve> = BTreeMap::new();
    let mut baselines = Vec::new();
    for time in 0..times {
        baselines.push(iperf::bytes_per_s(2));
        for kib in SIZES_KIB {
            measure(directory, kib, &mut curves);
            eprintln!("{} of {times}: {kib} KiB", time + 1);
        }
    }
    let mut sizes: BTreeMap<usize, serde_json::Map<String, Value>> = BTreeMap::new();
    for ((kib, what), curve) in curves {
        sizes.entry(kib).or_default().insert(what.to_owned(), curve.report());
    }
    let sizes: Vec<Value> = sizes
        .into_iter()
        .map(|(kib, mut row)| {
            row.insert("fragment_bytes".to_owned(), json!(kib << 10));
            Value::Object(row)
        })
        .collect();
    json!({
        "benchmark": "curves",
        "width": format!("{DATA}+{PARITY}"),
        "times": times,
        "fragments_of_an_event": crate::requests::SOURCES,
        "latency_of": "put: one fragment; get: a request of 64 fragments; delete: a request of 64 events",
        "iperf3_bytes_per_s": median(baselines),
        "sizes": sizes,
    })
}

fn measure<'a>(directory: &Path, kib: usize, curves: &mut BTreeMap<(usize, &'a str), Curve>) {
    let bytes = kib << 10;
    let count = (512u64 << 20).min(200_000 * bytes as u64) / bytes as u64;
    let payload = payload(bytes);
    let mut curve = |what: &'a str, server: &Server, count: u64, work: &mut dyn FnMut() -> Vec<f64>| {
        curves.entry((kib, what)).or_default().measure(server, count, bytes, work);
    };
    let drives = Drives::new(directory, 640 << 20, 1);
    let server = drives.serve(1 << 30);
    let mut client = server.client();
    curve("put", &server, count, &mut || put_all(&mut client, 1, count, &payload));
    curve("get_cached", &server, count, &mut || read_all(&mut client, 1, count, bytes));
    drop((client, server));
    // After a restart nothing is in memory, and nothing is kept there.
    let server = drives.serve(0);
    let mut client = server.client();
    let reads = count.min(DRIVE_READS_MAX);
    curve("get_drives", &server, reads, &mut || read_all(&mut client, 1, reads, bytes));
    curve("delete", &server, count, &mut || delete_all(&mut client, 1, count));
}
