//! `forebay doctor`: what it says of drives of every kind, and that it writes to none of them.

#[path = "../common/mod.rs"]
mod common;
mod export;
mod look;
mod verdicts;
