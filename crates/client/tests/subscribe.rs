//! Looking on, through a client and a tiny server on loopback.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "the peer has threads and sockets")]

mod peer;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_client::{Client, ClientConfig, Subscription};
use forebay_types::{EventKey, Fraction, RunId, SourceId};
use peer::{Peer, State};

const LONG: Duration = Duration::from_secs(20);

fn start() -> (Peer, Client) {
    let peer = Peer::start(Arc::new(Mutex::new(State::default())), "127.0.0.1:0");
    let client = connect(&peer);
    (peer, client)
}

fn connect(peer: &Peer) -> Client {
    Client::connect(ClientConfig::new(peer.address.to_string(), "test")).expect("the server runs")
}

fn put(client: &mut Client, run: u32, events: impl IntoIterator<Item = u64>) {
    for event in events {
        let id = EventKey::new(run, event).fragment(SourceId(1));
        client.put(id, 1, format!("event {event}").as_bytes()).expect("taken");
    }
    client.flush().expect("stored");
}

/// The next so many events, read.
fn read(client: &mut Client, subscription: &mut Subscription, count: usize) -> BTreeSet<u64> {
    let mut seen = BTreeSet::new();
    while seen.len() < count {
        for event in client.next_events(subscription, LONG).expect("answered") {
            assert_eq!(event.fragments[0].payload, format!("event {}", event.key.event).as_bytes());
            assert!(seen.insert(event.key.event.0), "once");
        }
    }
    seen
}

#[test]
fn events_of_all_lanes_are_told_and_read() {
    let (peer, mut client) = start();
    put(&mut client, 1, 0..100);
    let mut subscription = client.subscribe(Some(RunId(1)), None, Fraction::ALL).expect("answered");
    assert!(client.next_told(&mut subscription, Duration::ZERO).expect("answered").is_empty(), "from now on");
    let mut writer = connect(&peer);
    put(&mut writer, 1, 1000..2000);
    put(&mut writer, 2, 0..50);
    assert_eq!(read(&mut client, &mut subscription, 1000), (1000..2000).collect());
    let counts = subscription.counts();
    assert_eq!((counts.told, counts.read, counts.gone, counts.dropped), (1000, 1000, 0, 0));
    peer.stop();
}

#[test]
fn a_fraction_is_the_same_for_everybody() {
    let (peer, mut client) = start();
    let fraction: Fraction = "0.1".parse().expect("a part");
    let mut subscription = client.subscribe(None, None, fraction).expect("answered");
    let mut again = client.subscribe(None, None, fraction).expect("answered");
    put(&mut client, 7, 0..2000);
    let wanted: BTreeSet<u64> = (0..2000).filter(|event| fraction.has(EventKey::new(7, *event))).collect();
    assert_eq!(read(&mut client, &mut subscription, wanted.len()), wanted);
    assert_eq!(read(&mut client, &mut again, wanted.len()), wanted);
    peer.stop();
}

#[test]
fn who_is_slow_is_told_how_much_was_dropped() {
    let (peer, mut client) = start();
    let mut subscription = client.subscribe(None, None, Fraction::ALL).expect("answered");
    peer.state.lock().expect("state").told_max = Some(10);
    put(&mut client, 1, 0..1000);
    read(&mut client, &mut subscription, 30);
    let counts = subscription.counts();
    assert_eq!((counts.told, counts.dropped), (30, 970), "all that happened is accounted for");
    peer.stop();
}

#[test]
fn a_restart_is_seen_and_looking_on_goes_on() {
    let (peer, mut client) = start();
    let mut subscription = client.subscribe(None, None, Fraction::ALL).expect("answered");
    put(&mut client, 1, 0..50);
    let (state, address) = peer.stop();
    let peer = Peer::start(state, &address);
    put(&mut client, 1, 1000..1100);
    assert_eq!(read(&mut client, &mut subscription, 100), (1000..1100).collect());
    let counts = subscription.counts();
    assert_eq!((counts.told, counts.restarts, counts.dropped), (100, 1, 0));
    peer.stop();
}
