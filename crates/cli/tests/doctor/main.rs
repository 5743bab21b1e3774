//! `forebay doctor`: what it says of drives of every kind, and that it writes to none of them.

#[path = "../common/mod.rs"]
mod common;
mod export;
mod files;
mod hanging;
mod look;
#[path = "../power_cut/mount.rs"]
mod mount;
mod verdicts;
#[path = "../power_cut/volatile.rs"]
mod volatile;
