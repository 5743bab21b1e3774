//! Stores that one server has and another takes over, whatever they stand on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use forebay_client::{Client, ClientConfig};
use forebay_types::{EventId, FragmentId, ReadOutcome, RunId, SourceId};

use super::running::until;
use super::{Server, noise};

pub const FREE: &str = "127.0.0.1:0";
/// Short, so that a test is.
pub const DEAD_AFTER: &str = "2";

/// Where nobody listens now.
pub fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("it has one").to_string()
}

pub fn id(event: u64) -> FragmentId {
    FragmentId { run: RunId(1), event: EventId(event), source: SourceId(3) }
}

pub fn payload(event: u64) -> Vec<u8> {
    noise(event, 1000 + (event as usize * 37) % 20_000)
}

pub fn put(client: &mut Client, events: impl Iterator<Item = u64>) {
    for event in events {
        client.put(id(event), 1, &payload(event)).expect("taken");
    }
    client.flush().expect("stored");
}

#[track_caller]
pub fn assert_has(client: &mut Client, events: impl Iterator<Item = u64>) {
    let events: Vec<u64> = events.collect();
    for batch in events.chunks(200) {
        let ids: Vec<FragmentId> = batch.iter().map(|event| id(*event)).collect();
        for (event, (outcome, bytes)) in batch.iter().zip(client.get_many(&ids).expect("answered")) {
            assert_eq!(outcome, ReadOutcome::Found, "event {event} was acknowledged");
            assert!(bytes == payload(*event), "event {event} has other bytes than were put");
        }
    }
}

/// Writes to whichever of both serves while the first is ended and replaced; what was acknowledged is there at the second, which is given. `replace` ends the first, and has the second
/// listen at that address.
pub fn take_over_under_load(
    mut first: Server,
    replace: impl FnOnce(&mut Server, &str) -> JoinHandle<Server>,
) -> Server {
    let other = free_address();
    let (acknowledged, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let servers = format!("{},{other}", first.address);
    let until_events = |events: u64| until(|| acknowledged.load(Ordering::Acquire) >= events);
    let server = std::thread::scope(|scope| {
        // Knows both, and is told nothing.
        scope.spawn(|| {
            let mut client = Client::connect(ClientConfig::new(servers, "writer").deadline(None)).expect("connected");
            for event in 0.. {
                client.put(id(event), 1, &payload(event)).and_then(|()| client.flush()).expect("stored");
                acknowledged.store(event + 1, Ordering::Release);
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        until_events(100);
        let next = replace(&mut first, &other).join().expect("it serves");
        until_events(acknowledged.load(Ordering::Acquire) + 100);
        stop.store(true, Ordering::Relaxed);
        next
    });
    assert_has(&mut server.client("reader"), 0..acknowledged.load(Ordering::Acquire));
    server
}
