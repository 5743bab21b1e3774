//! `forebay file` and `forebay tail`, with a real server.

mod bytes;
#[path = "../common/mod.rs"]
mod common;
mod copy;
mod faults;
mod local;
mod look;
mod names;
mod scale;
mod store;
mod writers;
