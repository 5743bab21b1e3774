//! A store in the pools of a real Ceph cluster: made, served, and taken over from a server that is killed, or stands still.
#![cfg(feature = "rados")]

#[path = "../../../tests/peers/ceph.rs"]
mod ceph;
mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use ceph::Ceph;
use common::owners::{FREE, assert_has, id, put, take_over_under_load};
use common::pools::{MEDIA, init, serve, serve_at, standby, standby_at};
use common::{forebay, noise};
use forebay_client::{Client, ClientConfig};
use forebay_types::{EventId, RunId};
use rustix::process::{Pid, Signal, kill_process};

/// Tests that do something to the cluster have it alone.
static CLUSTER: std::sync::RwLock<()> = std::sync::RwLock::new(());

fn doctor(name: &str) -> common::Ran {
    forebay(["doctor", "--media", MEDIA, "--name", name, "--json"])
}

#[test]
fn a_store_in_pools_is_made_once_served_by_one_and_found_again() {
    let Some(_ceph) = Ceph::shared() else { return };
    let _together = CLUSTER.read();
    forebay(["serve", "--media", MEDIA, "--name", "none"]).expect(2).says("holds no store");
    let made = init("plain").expect(0).json();
    assert_eq!((made["data_shards"].as_u64(), made["parity_shards"].as_u64()), (Some(1), Some(0)));
    init("plain").expect(2).says("holds a store. Nothing was written");
    let server = serve("plain");
    let mut client = server.client("test");
    put(&mut client, 0..500);
    server.run_with(&["file", "cp", "-", "forebay:/b.raw"], &noise(7, 3_000_000)).expect(0);
    let second = serve_at(FREE, "plain", &[]).err().expect("there is one that serves it");
    second.expect(3).says("which lives. Nothing was changed");
    assert!(server.terminate().expect(0).stderr.contains("marked clean"));
    let server = serve("plain");
    let mut client = server.client("test");
    assert_has(&mut client, 0..500);
    for event in 0..400 {
        client.delete(&[forebay_types::EventKey { run: RunId(1), event: EventId(event) }]).expect("deleted");
    }
    assert_has(&mut client, 400..500);
    doctor("plain").expect(3).says("which lives");
    server.terminate().expect(0);
    let found = doctor("plain").expect(0).json();
    assert_eq!((&found["verdict"], &found["readable"]["fragments"]), (&"whole".into(), &100.into()), "{found}");
    assert_eq!(found["drives"][0]["state"], "member", "{found}");
    forebay(["init", "--media", MEDIA, "--name", "plain", "--drive-bytes", "1GiB", "--force"]).expect(0);
    let server = serve("plain");
    assert!(server.client("test").get(id(450)).is_err(), "--force destroys what was there");
}

#[test]
fn a_standby_takes_over_from_a_server_that_is_killed_under_load() {
    let Some(_ceph) = Ceph::shared() else { return };
    let _together = CLUSTER.read();
    init("killed").expect(0);
    let server = take_over_under_load(serve("killed"), |server, other| {
        let next = standby_at(other, "killed", &[]);
        server.send_kill();
        next
    });
    server.terminate().expect(0);
}

#[test]
fn a_server_that_stood_still_while_it_was_replaced_answers_nobody_and_writes_nothing() {
    let Some(_ceph) = Ceph::shared() else { return };
    let _together = CLUSTER.read();
    init("still").expect(0);
    let mut old = serve("still");
    old.collect_log();
    let mut client = old.client("test");
    put(&mut client, 0..100);
    assert_has(&mut client, 0..100);
    let config = ClientConfig::new(old.address.clone(), "asks").deadline(Some(Duration::from_secs(5)));
    let mut client = Client::connect(config).expect("connected");
    old.freeze();
    // Asked while it stands still, of what it has in memory; and told to delete something.
    let address = old.address.clone();
    let asks = std::thread::spawn(move || client.get(id(7)).map(|_| ()));
    let mut raw = TcpStream::connect(&address).expect("the kernel takes it");
    raw.write_all(b"nonsense").expect("sent");
    let new = standby("still").join().expect("it serves");
    let mut client = new.client("test");
    assert_has(&mut client, 0..100);
    client.delete(&[forebay_types::EventKey { run: RunId(1), event: EventId(7) }]).expect("deleted");
    client.put(id(1000), 1, b"new").and_then(|()| client.flush()).expect("stored");
    kill_process(Pid::from_raw(old.pid().cast_signed()).expect("a process"), Signal::CONT).expect("a signal");
    let ran = old.wait();
    ran.expect(3).says("ANOTHER SERVER HAS TAKEN THE STORE OVER");
    let mut told = Vec::new();
    let _ = raw.read_to_end(&mut told);
    assert!(told.is_empty(), "it told {told:?}");
    let asked = asks.join().expect("no panic");
    assert!(asked.is_err(), "it answered what it was asked while it stood still");
    // What the new one has is as it was.
    assert!(client.get(id(7)).is_err());
    assert_eq!(client.get(id(1000)).expect("there"), b"new");
    assert_has(&mut client, (0..100).filter(|event| *event != 7));
    new.terminate().expect(0);
}

#[test]
fn an_operator_takes_a_store_from_a_server_that_lives() {
    let Some(_ceph) = Ceph::shared() else { return };
    let _together = CLUSTER.read();
    init("by-hand").expect(0);
    let mut old = serve("by-hand");
    old.collect_log();
    old.put("1/7/3", b"hello").expect(0);
    let told = forebay(["takeover", "--media", MEDIA, "--name", "by-hand", "--json"]).expect(0).json();
    assert_eq!(told["name"], "by-hand");
    old.wait().expect(3).says("ANOTHER SERVER HAS TAKEN THE STORE OVER");
    let new = serve("by-hand");
    assert_eq!(new.get("1/7/3").expect(0).stdout, b"hello");
    new.terminate().expect(0);
}

/// Sends a signal to daemons of the cluster.
fn signal(ceph: &Ceph, daemons: &[&str], signal: Signal) {
    for daemon in daemons {
        kill_process(Pid::from_raw(ceph.process(daemon)).expect("a process"), signal).expect("it runs");
    }
}

#[test]
fn a_pool_that_blocks_costs_nothing_but_the_time() {
    let Some(ceph) = Ceph::shared() else { return };
    let _alone = CLUSTER.write();
    init("blocked").expect(0);
    let server = serve("blocked");
    let mut client = server.client("patient");
    put(&mut client, 0..100);
    // Two of three: nothing can be written, neither what is stored nor the pulse.
    signal(ceph, &["osd.0", "osd.1"], Signal::STOP);
    let writes = std::thread::spawn(move || {
        // Stored when the pool goes on.
        put(&mut client, 100..200);
        client
    });
    let config = ClientConfig::new(server.address.clone(), "in a hurry").deadline(Some(Duration::from_secs(8)));
    let hurried = Client::connect(config)
        .and_then(|mut client| client.put(id(9_000_000), 1, b"now").and_then(|()| client.flush()));
    assert!(hurried.is_err(), "it was told that something is stored which cannot be");
    signal(ceph, &["osd.0", "osd.1"], Signal::CONT);
    let mut client = writes.join().expect("no panic");
    assert_has(&mut client, 0..200);
    server.terminate().expect(0);
    let server = serve("blocked");
    assert_has(&mut server.client("reader"), 0..200);
}

#[test]
fn a_pool_that_is_full_is_no_space_and_loses_nothing() {
    let Some(_ceph) = Ceph::shared() else { return };
    let _alone = CLUSTER.write();
    init("full").expect(0);
    let server = serve("full");
    let mut client = server.client("writer");
    put(&mut client, 0..100);
    // All that counts as full beyond what the drives use of themselves.
    full_ratio("0.001");
    // What comes before the server knows it is stored.
    let mut events = 9_000_000..;
    let mut more = || server.put(&format!("1/{}/3", events.next().expect("endless")), b"more");
    common::running::until(|| more().stderr.contains("no space"));
    assert_has(&mut client, 0..100);
    full_ratio("0.95");
    common::running::until(|| more().exit == 0);
    for event in 0..90 {
        client.delete(&[forebay_types::EventKey { run: RunId(1), event: EventId(event) }]).expect("deleted");
    }
    assert_has(&mut client, 90..100);
    // The alarm of the full store goes on for a while.
    let status = server.run(&["status", "--json"]).json();
    assert_eq!(status["alarms"][0]["name"], "full", "{status}");
    assert!(status["cluster"]["available_bytes"].as_u64().is_some(), "{status}");
    server.terminate().expect(0);
}

fn full_ratio(ratio: &str) {
    let output = std::process::Command::new("ceph").args(["osd", "set-full-ratio", ratio]).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
