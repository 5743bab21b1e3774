//! Opening a store after its server was killed.

use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use crate::measure::median;
use crate::process::{DATA, Drives, PARITY};
use crate::requests::{id, payload, put_all};

/// From the start of the process until a fragment was read, after SIGKILL with puts under way.
pub fn recovery(directory: &Path, times: usize, fragments: u64, fragment_bytes: usize) -> Value {
    let capacity = fragments * fragment_bytes as u64;
    let drives =
        Drives::new(directory, (capacity / u64::from(DATA) * 5 / 4).next_multiple_of(1 << 20) + (512 << 20), 1);
    let payload = payload(fragment_bytes);
    let server = drives.serve(256 << 20);
    put_all(&mut server.client(), 1, fragments, &payload);
    drop(server);
    let (mut seconds, mut index_bytes) = (Vec::new(), 0);
    for time in 0..times {
        let start = Instant::now();
        let server = drives.serve(256 << 20);
        let mut client = server.client();
        let bytes = client.get(id(1, fragments - 1)).expect("what was acknowledged is there");
        seconds.push(start.elapsed().as_secs_f64());
        assert_eq!(bytes, payload);
        let status: Value = serde_json::from_str(&client.status().expect("the server answers")).expect("JSON");
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
    json!({
        "benchmark": "recovery",
        "width": format!("{DATA}+{PARITY}"),
        "fragments": fragments,
        "fragment_bytes": fragment_bytes,
        "seconds_median": median(seconds.clone()),
        "seconds": seconds,
        "index_bytes_per_fragment": index_bytes as f64 / fragments as f64,
    })
}
