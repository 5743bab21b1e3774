//! Memory of a server under load, against what it may have: its cache, its index, and 64 MiB.

use std::path::Path;

use serde_json::{Value, json};

use crate::process::{DATA, Drives, PARITY};
use crate::requests::{payload, put_all, read_all, status};

const CACHE_BYTES: u64 = 256 << 20;

/// What a server may have beside cache and index.
const REST_BYTES: u64 = 64 << 20;

/// Bytes that are put: several times the cache.
const BYTES: u64 = 2 << 30;

/// Lanes and bytes of a fragment.
const SHAPES: [(u16, usize); 5] = [(1, 10 << 10), (2, 10 << 10), (8, 10 << 10), (2, 1 << 10), (2, 256 << 10)];

/// Fills and reads stores of several shapes.
pub fn resident(directory: &Path) -> Value {
    let rows: Vec<Value> = SHAPES.iter().map(|(lanes, bytes)| measure(directory, *lanes, *bytes)).collect();
    json!({"benchmark": "memory", "width": format!("{DATA}+{PARITY}"), "cache_bytes_configured": CACHE_BYTES, "shapes": rows})
}

fn measure(directory: &Path, lanes: u16, fragment_bytes: usize) -> Value {
    let drives = Drives::new(directory, 1 << 30, lanes);
    let server = drives.serve(CACHE_BYTES);
    let mut client = server.client();
    let count = BYTES / fragment_bytes as u64;
    put_all(&mut client, 1, count, &payload(fragment_bytes));
    read_all(&mut client, 1, count.min(20_000), fragment_bytes);
    let (resident, peak) = server.resident_bytes();
    let index = index_bytes(&status(&mut client));
    let row = json!({
        "lanes": lanes,
        "fragment_bytes": fragment_bytes,
        "fragments": count,
        "index_bytes": index,
        "index_bytes_per_fragment": index as f64 / count as f64,
        "resident_bytes": resident,
        "resident_bytes_peak": peak,
        "allowed_bytes": CACHE_BYTES + index + REST_BYTES,
        "peak_is_allowed": peak <= CACHE_BYTES + index + REST_BYTES,
    });
    eprintln!("{row}");
    row
}

/// What the lanes together say that their indexes hold.
fn index_bytes(status: &Value) -> u64 {
    let lanes = status["lanes"].as_array().expect("the status has lanes");
    lanes.iter().map(|lane| lane["index_bytes"].as_u64().expect("a lane says what its index holds")).sum()
}
