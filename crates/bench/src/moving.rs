//! The mover: beside `xrdcp`, merging, its journal, very many small files, events of a stream; and a destination that was away.

pub mod backlog;
mod journal;
mod many;
mod merging;
pub mod program;
mod stream;
mod throughput;
#[path = "../../destinations/tests/common/xrootd.rs"]
pub mod xrootd;

use std::path::Path;

use serde_json::{Value, json};

use crate::measure::load_average;

/// What is measured of the mover, and how much of it.
#[derive(Clone, Copy, Debug)]
pub struct Moving<'a> {
    /// Bytes of each measurement of rates.
    pub payload_bytes: u64,
    /// Files of one event each.
    pub small_files: usize,
    /// Files of the large source.
    pub source_files: usize,
    /// A directory on a disk, for the journal.
    pub disk: &'a Path,
    /// One part alone, by its name in the result.
    pub only: Option<&'a str>,
}

/// Everything but the backlog.
pub fn moving(directory: &Path, pairs: usize, options: Moving<'_>) -> Value {
    let Moving { payload_bytes, small_files, source_files, disk, only } = options;
    let mut result = json!({
        "benchmark": "move",
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "load_average_before": load_average(),
    });
    let mut part = |name: &str, measure: &dyn Fn() -> Value| {
        if only.is_none_or(|only| only == name) {
            result[name] = measure();
        }
    };
    part("throughput", &|| throughput::throughput(directory, pairs, payload_bytes));
    part("merging", &|| merging::merging(directory, pairs, payload_bytes));
    part("sums", &|| merging::sums(directory, pairs, payload_bytes));
    part("journal", &|| journal::journal(directory, disk, pairs.min(5), small_files / 5));
    part("small_files", &|| many::small(directory, pairs.min(5), small_files));
    part("stream", &|| stream::stream(directory, pairs.min(5), small_files * 5));
    part("large_source", &|| many::large_source(directory, pairs.min(5), source_files));
    result["load_average_after"] = load_average().into();
    result
}

/// Bytes that no other seed gives.
pub fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; count];
    random.fill(&mut bytes);
    bytes
}
