//! Stores in the pools of a Ceph cluster of twelve hosts, coded 8+2: what happens to them when two of the hosts are lost, when servers die under load, when standbys
//! die in the middle of a takeover, and when what was fenced comes back to life.
//!
//! The moments are seeded: `FOREBAY_KILL_SEED` chooses others, `FOREBAY_KILL_ROUNDS` how many standbys die.
#![cfg(feature = "rados")]

#[path = "../../../tests/peers/ceph.rs"]
mod ceph;
mod common;
#[path = "rados_hosts/events.rs"]
mod events;
#[path = "rados_hosts/fenced.rs"]
mod fenced;
#[path = "rados_hosts/lost.rs"]
mod lost;
#[path = "kill_drives/path.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod path;
#[path = "rados_hosts/steps.rs"]
mod steps;

use std::process::Command;

/// Tests that take hosts away have the cluster alone.
static CLUSTER: std::sync::RwLock<()> = std::sync::RwLock::new(());

/// What `ceph` or `rados` say to a question.
fn ask(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().expect("it runs");
    assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn ask_json(program: &str, words: &[&str]) -> serde_json::Value {
    let text = ask(program, words);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{program} {words:?}: {error}: {text}"))
}

/// The objects of a store in a pool.
fn objects(pool: &str, name: &str) -> Vec<String> {
    ask("rados", &["-p", pool, "-N", name, "ls"]).lines().map(str::to_owned).collect()
}
