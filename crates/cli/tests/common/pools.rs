//! Stores in the pools of a cluster.

use std::path::PathBuf;

use forebay_client::Client;
use forebay_types::{EventId, FragmentId, ReadOutcome, RunId, SourceId};

use super::{Ran, Server, forebay, noise};

pub const MEDIA: &str = "rados:ec,meta";
pub const FREE: &str = "127.0.0.1:0";
/// Short, so that a test is.
pub const DEAD_AFTER: &str = "2";

const OPTIONS: [&str; 7] = ["--drive-bytes", "1GiB", "--lanes", "2", "--slot-bytes", "4MiB", "--json"];

pub fn init(name: &str) -> Ran {
    init_with(name, &[])
}

pub fn init_with(name: &str, more: &[&str]) -> Ran {
    forebay(["init", "--media", MEDIA, "--name", name].iter().chain(&OPTIONS).chain(more))
}

pub fn serve_at(listen: &str, name: &str, more: &[&str]) -> Result<Server, Ran> {
    let options = [&["--media", MEDIA, "--name", name, "--dead-after", DEAD_AFTER], more].concat();
    Server::start_at(listen, &options, &[] as &[PathBuf])
}

pub fn serve(name: &str) -> Server {
    serve_at(FREE, name, &[]).unwrap_or_else(|ran| panic!("{ran:?}"))
}

/// A standby that has begun to wait; whoever joins it has it when it serves.
pub fn standby(name: &str) -> std::thread::JoinHandle<Server> {
    standby_at(FREE, name, &[])
}

pub fn standby_at(listen: &str, name: &str, more: &[&str]) -> std::thread::JoinHandle<Server> {
    let (listen, name) = (listen.to_owned(), name.to_owned());
    let more: Vec<String> = more.iter().map(|word| (*word).to_owned()).collect();
    std::thread::spawn(move || {
        let options: Vec<&str> = ["--standby"].into_iter().chain(more.iter().map(String::as_str)).collect();
        serve_at(&listen, &name, &options).unwrap_or_else(|ran| panic!("{ran:?}"))
    })
}

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
