//! Opening a store after its server was killed.

use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use crate::measure::median;
use crate::process::{DATA, Drives, PARITY};
use crate::requests::{id, payload, put_all, status};

/// What a store holds when its server is killed.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Fragments.
    pub fragments: u64,
    /// Bytes of each.
    pub fragment_bytes: usize,
}

/// A million fragments of a read-out unit, and ten million that are as small as they come.
const SHAPES: [Shape; 2] =
    [Shape { fragments: 1_000_000, fragment_bytes: 10 << 10 }, Shape { fragments: 10_000_000, fragment_bytes: 256 }];

/// What the table of records holds of a fragment, and room for headers, in bytes.
const RECORD_BYTES: u64 = 64;

/// From the start of the process until a fragment was read, after SIGKILL with puts under way: for one shape, or for those above.
pub fn recovery(directory: &Path, times: usize, only: Option<Shape>) -> Value {
    let shapes = only.map_or(SHAPES.to_vec(), |shape| vec![shape]);
    let rows: Vec<Value> = shapes.into_iter().map(|shape| measure(directory, times, shape)).collect();
    json!({ "benchmark": "recovery", "width": format!("{DATA}+{PARITY}"), "times": times, "shapes": rows })
}

fn measure(directory: &Path, times: usize, shape: Shape) -> Value {
    let Shape { fragments, fragment_bytes } = shape;
    let capacity = fragments * (fragment_bytes as u64 + RECORD_BYTES);
    let drive_bytes = (capacity / u64::from(DATA) * 5 / 4).next_multiple_of(1 << 20) + (512 << 20);
    let drives = Drives::new(directory, drive_bytes, 1);
    let payload = payload(fragment_bytes);
    let server = drives.serve(256 << 20);
    let mut client = server.client();
    put_all(&mut client, 1, fragments, &payload);
    let stored_bytes = media_bytes_written(&status(&mut client));
    drop((client, server));
    let (mut seconds, mut index_bytes) = (Vec::new(), 0);
    for time in 0..times {
        let start = Instant::now();
        let server = drives.serve(256 << 20);
        let mut client = server.client();
        let bytes = client.get(id(1, fragments - 1)).expect("what was acknowledged is there");
        seconds.push(start.elapsed().as_secs_f64());
        assert_eq!(bytes, payload);
        let status = status(&mut client);
        let lane = &status["lanes"][0];
        index_bytes = lane["index_bytes"].as_u64().expect("a lane says what its index holds");
        let found = lane["fragments"].as_u64().expect("a lane says how many fragments it has");
        assert!(found >= fragments, "{found} of {fragments} fragments are there");
        // Puts are under way when it is killed.
        let run = time as u32 + 2;
        for number in 0..2000 {
            client.put_bytes(id(run, number), 0, &payload).expect("the server takes it");
        }
        drop(server);
    }
    let typical = median(seconds.clone());
    let per_tb = typical / (stored_bytes as f64 / 1e12);
    eprintln!("{fragments} of {fragment_bytes} bytes: {typical:.2} s, {per_tb:.1} s per TB of drive");
    json!({
        "fragments": fragments,
        "fragment_bytes": fragment_bytes,
        "stored_bytes": stored_bytes,
        "seconds_median": typical,
        "seconds_per_tb_of_drive": per_tb,
        "seconds": seconds,
        "index_bytes_per_fragment": index_bytes as f64 / fragments as f64,
    })
}

/// All that lies on the drives, parity, tables and headers included, as nothing was deleted.
fn media_bytes_written(status: &Value) -> u64 {
    status["lanes"][0]["counters"]["media_bytes_written"].as_u64().expect("a lane says what it has written")
}
