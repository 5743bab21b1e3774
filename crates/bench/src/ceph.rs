//! A store in the pools of a Ceph cluster beside `rados bench` on the same pool and beside files on CephFS of the same cluster; and how long it takes until another server has the store
//! of one that died. The cluster is started for it: all on this machine, its drives in memory.

mod cluster;
mod files;
mod objects;
mod rates;
mod store;
mod takeover;

use std::path::Path;

use serde_json::{Value, json};

use crate::many_writers;
use crate::measure::load_average;
use cluster::Cluster;
use store::Store;

/// What is measured, and with what.
#[derive(Clone, Copy, Debug)]
pub struct Ceph<'a> {
    /// Drives of the cluster, of 8+2.
    pub drives: usize,
    /// Bytes of each of them.
    pub drive_bytes: u64,
    /// Bytes of each measurement of rates.
    pub payload_bytes: u64,
    /// The most fragments that a store has when it is taken over.
    pub fragments: u64,
    /// One part alone, by its name in the result.
    pub only: Option<&'a str>,
}

/// Of the slots whose rates are measured: their bytes, and how many objects of the same size `rados bench` has on their way at once. Of the first as many as it has when nobody says anything.
const OBJECTS: [(u64, usize); 2] = [(4 << 20, 16), (64 << 20, 4)];
/// Slow writers beside fast readers.
const SLOW_WRITERS: usize = 1000;
/// Seconds of each phase of these.
const SLOW_SECONDS: f64 = 5.0;
/// Less than what the readers read: what they read comes from the pool.
const SLOW_CACHE_BYTES: u64 = 64 << 20;

/// Everything.
pub fn ceph(directory: &Path, rounds: usize, options: Ceph<'_>) -> Value {
    let Ceph { drives, drive_bytes, payload_bytes, fragments, only } = options;
    let load = load_average();
    let start = || Cluster::start(directory, drives, drive_bytes);
    let mut result = json!({
        "benchmark": "ceph",
        "drives": drives,
        "pool": cluster::WIDTH,
        "payload_bytes": payload_bytes,
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "load_average_before": load,
    });
    let mut part = |name: &str, measure: &dyn Fn() -> Value| {
        if only.is_none_or(|only| only == name) {
            result[name] = measure();
        }
    };
    part("rates", &|| {
        OBJECTS.map(|(bytes, at_once)| rates::rates(start, rounds, payload_bytes, bytes, at_once)).to_vec().into()
    });
    part("slow_writers", &|| {
        let cluster = start();
        let store = Store::make(&cluster, "slow", None);
        let server = store.serve(SLOW_CACHE_BYTES, &[]).wait();
        many_writers::beside(&server, rounds, SLOW_WRITERS, SLOW_SECONDS)
    });
    part("takeover", &|| takeover::takeovers(&start(), fragments));
    result
}
