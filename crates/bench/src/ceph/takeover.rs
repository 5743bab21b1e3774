//! From the death of a server to the first put that its successor acknowledges, and where that time goes.

use std::time::Instant;

use forebay_client::{Client, ClientConfig};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::store::Store;
use crate::requests::{SOURCES, id, payload, put_all};

/// Bytes of a fragment: what a start costs goes by their number.
const FRAGMENT_BYTES: usize = 1 << 10;
const CACHE_BYTES: u64 = 64 << 20;
/// Seconds after which a server that shows no life counts as dead.
const DEAD_AFTER: &str = "3";
const STEPS: [(&str, &str); 3] = [
    ("until_dead_s", "shows no life"),
    ("until_listed_s", "objects are listed"),
    ("until_owned_s", "the store is this server's"),
];

/// Of stores with more and more fragments, up to so many.
pub fn takeovers(cluster: &Cluster, most: u64) -> Value {
    let counts = [0, most / 100, most / 10, most];
    let measure = |count: u64| {
        let row = takeover(cluster, count);
        eprintln!("{row}");
        row
    };
    let rows = counts.map(measure).to_vec();
    json!({ "dead_after_s": DEAD_AFTER.parse::<u64>().expect("a number"), "fragment_bytes": FRAGMENT_BYTES, "stores": rows })
}

fn takeover(cluster: &Cluster, count: u64) -> Value {
    let store = Store::make(cluster, &format!("takeover-{count}"), None);
    let options = ["--dead-after", DEAD_AFTER];
    let server = store.serve(CACHE_BYTES, &options).wait();
    put_all(&mut server.client(), 1, count, &payload(FRAGMENT_BYTES));
    let standby = store.serve(CACHE_BYTES, &[&options[..], &["--standby"]].concat());
    // What the standby does first takes less than a pulse.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let died = Instant::now();
    drop(server);
    let next = standby.wait();
    let serves = died.elapsed().as_secs_f64();
    let config = ClientConfig::new(next.address(), "bench");
    let mut client = Client::connect(config).expect("it serves");
    client.put_bytes(id(2, 0), SOURCES as u16, &payload(FRAGMENT_BYTES)).expect("taken");
    client.flush().expect("durable");
    let acknowledged = died.elapsed().as_secs_f64();
    let mut row = json!({ "fragments": count, "until_served_s": serves, "until_acknowledged_s": acknowledged });
    for (name, words) in STEPS {
        let at = next.said(words).unwrap_or_else(|| panic!("its log does not say {words:?}"));
        row[name] = at.duration_since(died).as_secs_f64().into();
    }
    if count > 0 {
        let all = client.get_many(&[id(1, 0), id(1, count - 1)]).expect("it answers");
        assert!(all.iter().all(|(_, payload)| payload.len() == FRAGMENT_BYTES), "something is missing");
    }
    row
}
