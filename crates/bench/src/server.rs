//! A server on loopback, client and server on the same processors, beside iperf3.

use std::path::Path;

use serde_json::{Value, json};

use crate::measure::{measured, median};
use crate::process::{DATA, Drives, PARITY};
use crate::requests::{delete_all, payload, put_all};
use crate::{bare, iperf};

/// Bytes that each measurement puts.
const BYTES: u64 = 2 << 30;

/// Puts of 10 KiB beside iperf3, and beside a path that does nothing but what must be done.
pub fn throughput(directory: &Path, pairs: usize) -> Value {
    let bytes = 10 << 10;
    let count = BYTES / bytes as u64;
    let gb = (count * bytes as u64) as f64 / 1e9;
    let drives = Drives::new(directory, 1 << 30, 1);
    let server = drives.serve(256 << 20);
    let mut client = server.client();
    let payload = payload(bytes);
    let (mut rates, mut baselines, mut ratios) = (vec![], vec![], vec![]);
    let (mut bare_rates, mut bare_ratios, mut client_cpu, mut server_cpu) = (vec![], vec![], vec![], vec![]);
    for pair in 0..pairs {
        let baseline = iperf::bytes_per_s(2);
        let run = pair as u32 + 1;
        let before = server.cpu_seconds();
        let (_, cost) = measured(|| put_all(&mut client, run, count, &payload));
        server_cpu.push((server.cpu_seconds() - before) / gb);
        client_cpu.push(cost.cpu_seconds / gb);
        let rate = gb * 1e9 / cost.seconds;
        delete_all(&mut client, run, count);
        let bare = bare::bytes_per_s(directory, usize::from(DATA), usize::from(PARITY), bytes, count);
        rates.push(rate);
        ratios.push(rate / baseline);
        baselines.push(baseline);
        bare_rates.push(bare);
        bare_ratios.push(rate / bare);
        let (rate, bare, baseline) = (rate / 1e9, bare / 1e9, baseline / 1e9);
        eprintln!("pair {}: {rate:.2} GB/s, bare path {bare:.2} GB/s, iperf3 {baseline:.2} GB/s", pair + 1);
    }
    json!({
        "benchmark": "server",
        "width": format!("{DATA}+{PARITY}"),
        "fragment_bytes": bytes,
        "pairs": pairs,
        "payload_bytes_per_s": median(rates.clone()),
        "iperf3_bytes_per_s": median(baselines.clone()),
        "bare_path_bytes_per_s": median(bare_rates.clone()),
        "ratio_to_iperf3": median(ratios.clone()),
        "ratio_to_bare_path": median(bare_ratios.clone()),
        "client_cpu_seconds_per_gb": median(client_cpu.clone()),
        "server_cpu_seconds_per_gb": median(server_cpu.clone()),
        "all": {
            "payload_bytes_per_s": rates,
            "iperf3_bytes_per_s": baselines,
            "bare_path_bytes_per_s": bare_rates,
            "ratio_to_iperf3": ratios,
            "ratio_to_bare_path": bare_ratios,
            "client_cpu_seconds_per_gb": client_cpu,
            "server_cpu_seconds_per_gb": server_cpu,
        },
    })
}
