//! Reads a file of a store in order, in requests of a MiB, and prints what that took: `read_file HOST:PORT PATH`. What others are compared with.
#![expect(clippy::disallowed_methods, reason = "a program that measures: clock and files")]

use std::time::Instant;

use forebay_client::ClientConfig;
use forebay_client::files::{Files, ReadOptions};

const REQUEST_BYTES: usize = 1 << 20;

/// How long this thread, which does all, was on a processor, ns.
fn on_processor_ns() -> u64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells it");
    told.split(' ').next().and_then(|first| first.parse().ok()).expect("a number comes first")
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, path] = &arguments[..] else { return Err("usage: read_file HOST:PORT PATH".into()) };
    let files = Files::connect(ClientConfig::new(address, "read_file"))?;
    let mut file = files.open_read(path, &ReadOptions::default())?;
    let mut block = vec![0; REQUEST_BYTES];
    let (begin, before_ns, mut bytes) = (Instant::now(), on_processor_ns(), 0);
    loop {
        match file.read(&mut block)? {
            0 => break,
            count => bytes += count,
        }
    }
    let (seconds, cpu_seconds) = (begin.elapsed().as_secs_f64(), (on_processor_ns() - before_ns) as f64 / 1e9);
    println!("{{\"bytes\":{bytes},\"seconds\":{seconds},\"cpu_seconds\":{cpu_seconds}}}");
    Ok(())
}
