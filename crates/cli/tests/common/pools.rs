//! Stores in the pools of a cluster.

use std::path::PathBuf;

use super::owners::{DEAD_AFTER, FREE};
use super::{Ran, Server, forebay};

pub const MEDIA: &str = "rados:ec,meta";

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
