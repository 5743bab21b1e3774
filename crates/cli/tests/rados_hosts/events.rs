//! Servers that are killed under load, with a standby: the path of the events goes on, given the addresses of both.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use forebay_client::{Client, ClientConfig, Decision, EventState};
use forebay_types::{EventKey, SourceId, StreamName, Verdict};
use serde_json::Value;

use crate::CLUSTER;
use crate::ceph::Ceph;
use crate::common::owners::{free_address, payload};
use crate::common::pools::{init, serve_at, standby_at};
use crate::common::running::until;
use crate::common::scratch;
use crate::path::EventPath;

/// Of the run that the test leases itself.
const EVENTS: u64 = 120;
const LEASED: usize = 80;
const DECIDED: usize = 50;

/// No event is taken for incomplete, and none goes to `debug` since its filter's server died often.
const PATIENT: &str = "[store]\nincomplete-after-ms = 86400000\nlease-attempts-max = 255\n";

fn config_in(directory: &Path) -> String {
    let path = directory.join("forebay.toml");
    std::fs::write(&path, PATIENT).expect("written");
    path.display().to_string()
}

fn key(event: u64) -> EventKey {
    EventKey::new(7, event)
}

fn connect(servers: &str) -> Client {
    Client::connect(ClientConfig::new(servers, "test").deadline(None)).expect("connected")
}

/// So many events, each leased once; they stay leased.
fn lease(client: &mut Client, count: usize) -> Vec<EventKey> {
    let mut leased = Vec::new();
    while leased.len() < count {
        let wanted = (count - leased.len()) as u32;
        let lease = client.lease(wanted, Duration::from_secs(3600), 1, None).expect("answered");
        leased.extend(lease.events.iter().map(|event| event.key));
        if lease.events.is_empty() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let once: BTreeSet<EventKey> = leased.iter().copied().collect();
    assert_eq!(once.len(), leased.len(), "an event that is leased was given out again");
    leased
}

/// Every second one is accepted.
fn verdict(key: EventKey) -> Verdict {
    let stream: StreamName = "physics".parse().expect("a name");
    if key.event.0.is_multiple_of(2) { Verdict::Accept(vec![stream]) } else { Verdict::Reject }
}

fn decide(client: &mut Client, keys: &[EventKey]) {
    let decision = |key: &EventKey| Decision { key: *key, verdict: verdict(*key), incomplete: false };
    let decisions: Vec<Decision> = keys.iter().map(decision).collect();
    let outcomes = client.decide(&decisions).expect("answered");
    assert!(outcomes.iter().all(|outcome| outcome.is_done()), "{outcomes:?}");
}

/// What was decided is so still, and what was not is offered.
#[track_caller]
fn expect_states(client: &mut Client, decided: &BTreeSet<EventKey>) {
    let keys: Vec<EventKey> = (0..EVENTS).map(key).collect();
    for event in client.get_events(&keys, Some(&[SourceId(3)])).expect("answered") {
        let expected = match (decided.contains(&event.key), verdict(event.key)) {
            (false, _) => EventState::Undecided,
            (true, Verdict::Reject) => EventState::Finished,
            (true, Verdict::Accept(_)) => EventState::Accepted,
        };
        assert_eq!(event.state, expected, "{}", event.key);
    }
}

fn status(client: &mut Client) -> Value {
    serde_json::from_str(&client.status().expect("answered")).expect("JSON")
}

fn events_released(client: &mut Client) -> u64 {
    let status = status(client);
    let streams = status["streams"].as_array().cloned().unwrap_or_default();
    streams.iter().filter_map(|stream| stream["events_released"].as_u64()).sum()
}

#[test]
fn a_server_that_is_killed_loses_no_decision_and_gives_every_event_out_once() {
    let Some(_ceph) = Ceph::of_hosts() else { return };
    let _together = CLUSTER.read();
    init("events").expect(0);
    let directory = scratch();
    let config = config_in(directory.path());
    let more = ["--config", config.as_str()];
    let (first, second) = (free_address(), free_address());
    let servers = format!("{first},{second}");
    let mut server = serve_at(&first, "events", &more).unwrap_or_else(|ran| panic!("{ran:?}"));
    let next = standby_at(&second, "events", &more);
    let mut client = connect(&servers);
    for event in 0..EVENTS {
        client.put(key(event).fragment(SourceId(3)), 1, &payload(event)).expect("taken");
    }
    client.flush().expect("stored");
    let leased = lease(&mut client, LEASED);
    let mut decided: BTreeSet<EventKey> = leased[..DECIDED].iter().copied().collect();
    decide(&mut client, &leased[..DECIDED]);
    server.send_kill();
    server = next.join().expect("it serves");
    // The same client goes on.
    expect_states(&mut client, &decided);
    let rest = lease(&mut client, EVENTS as usize - DECIDED);
    assert!(rest.iter().all(|key| !decided.contains(key)), "what was decided was given out again");
    decide(&mut client, &rest);
    decided.extend(rest);
    expect_states(&mut client, &decided);
    let stream: StreamName = "physics".parse().expect("a name");
    let accepted: Vec<EventKey> = (0..EVENTS).step_by(2).map(key).collect();
    let released = client.release(&stream, &accepted).expect("answered");
    assert!(released.iter().all(|outcome| outcome.is_done()), "{released:?}");
    server.terminate().expect(0);
}

#[test]
fn readout_filter_and_recorder_go_on_at_the_standby() {
    let Some(_ceph) = Ceph::of_hosts() else { return };
    let _together = CLUSTER.read();
    init("path").expect(0);
    let directory = scratch();
    let config = config_in(directory.path());
    let more = ["--config", config.as_str()];
    let addresses = [free_address(), free_address()];
    let servers = addresses.join(",");
    let mut server = serve_at(&addresses[0], "path", &more).unwrap_or_else(|ran| panic!("{ran:?}"));
    let mut path = EventPath::start(&servers, directory.path().join("out"));
    let mut client = connect(&servers);
    for kill in 1..=2 {
        let next = standby_at(&addresses[kill % 2], "path", &more);
        let before = events_released(&mut client);
        until(|| {
            path.keep_going();
            events_released(&mut client) >= before + 20
        });
        server.send_kill();
        server = next.join().expect("it serves");
    }
    until(|| {
        path.keep_recording();
        let ended = path.readout_has_ended();
        let sums = status(&mut client)["totals"].clone();
        ended && sums["events_undecided"] == 0 && sums["events_accepted"] == 0
    });
    path.expect_finished(&mut client);
    let shipped = path.finish();
    println!("{shipped:?}");
    assert!(shipped.accepted > 0 && shipped.events > shipped.accepted);
    server.terminate().expect(0);
}
