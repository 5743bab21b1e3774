//! The baseline of everything that goes over the network: iperf3 over loopback.

use std::net::TcpListener;
use std::process::{Command, Stdio};

/// Bytes a second that iperf3 moves over loopback in writes of 128 KiB.
///
/// # Panics
/// When iperf3 is missing or fails: a benchmark without its baseline says nothing.
pub fn bytes_per_s(seconds: u32) -> f64 {
    bytes_per_s_of(seconds, 1)
}

/// The same in so many streams at once.
pub fn bytes_per_s_of(seconds: u32, streams: usize) -> f64 {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port().to_string();
    let mut server = Command::new("iperf3")
        .args(["-s", "-1", "-B", "127.0.0.1", "-p", &port])
        .stdout(Stdio::null())
        .spawn()
        .expect("needs iperf3: `make deps` installs it");
    let (seconds, streams) = (seconds.to_string(), streams.to_string());
    let mut report = serde_json::Value::Null;
    for _ in 0..50 {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let output = Command::new("iperf3")
            .args(["-c", "127.0.0.1", "-p", &port, "-l", "128K", "-t", &seconds, "-P", &streams, "-J"])
            .output()
            .expect("needs iperf3: `make deps` installs it");
        report = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if output.status.success() {
            break;
        }
    }
    server.wait().expect("the server of iperf3 ends after one client");
    report["end"]["sum_received"]["bits_per_second"].as_f64().expect("iperf3 says how fast it was") / 8.0
}
