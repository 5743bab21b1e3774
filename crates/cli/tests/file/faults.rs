//! Clients and servers that are killed, a store that is full, and several writers.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use super::common::noise;
use super::store::{Running, Store, place, word};

/// More than the store holds.
const TOO_MUCH_BYTES: usize = 160 << 20;

/// On their way at most, and a piece that fills.
const UNANSWERED_BYTES: usize = 17 << 20;

fn send(running: &Running, signal: Signal) {
    kill_process(Pid::from_child(&running.0), signal).expect("ours to end");
}

/// A copy from stdin of which some is acknowledged; how much.
fn begin_copy(store: &Store, path: &str, bytes: &[u8]) -> (Running, u64) {
    let mut copy = store.begin(&["file", "cp", "-", &format!("forebay:{path}")]);
    copy.write(bytes);
    let acknowledged = store.until_acknowledged(path, bytes.len() as u64 - (1 << 20));
    (copy, acknowledged)
}

#[test]
fn what_a_killed_client_had_acknowledged_is_read_sealed_or_removed() {
    let store = Store::start();
    let bytes = noise(1, 5 << 20);
    for path in ["/sealed", "/removed"] {
        let (mut copy, acknowledged) = begin_copy(&store, path, &bytes);
        copy.0.kill().expect("killed");
        copy.0.wait().expect("it ends");
        let known = store.stat(path);
        assert!(known["state"] != "sealed" && known["bytes"].as_u64() >= Some(acknowledged), "{known}");
        let read = store.cat(path);
        assert!(read.len() as u64 >= acknowledged && bytes.starts_with(&read));
    }
    store.file(&["cp", "forebay:/sealed", "/dev/null"]).expect(0).says("1 file in the store not sealed");
    store.file(&["seal", "/sealed"]).expect(0);
    let known = store.stat("/sealed");
    let read = store.cat("/sealed");
    assert_eq!((&known["state"], known["bytes"].as_u64()), (&"sealed".into(), Some(read.len() as u64)));
    assert_eq!(known["crc32c"].as_str().map(str::len), Some(8));
    store.file(&["rm", "/removed"]).expect(0);
    assert_eq!(store.list(&["/"]), ["sealed"]);
}

#[test]
fn who_is_interrupted_leaves_nothing_half() {
    let store = Store::start();
    let bytes = noise(2, 3 << 20);
    store.put("/taken", b"as it was");
    let (copy, _) = begin_copy(&store, "/new", &bytes);
    send(&copy, Signal::INT);
    copy.end().expect(3).says("interrupted");
    assert_eq!(store.list(&["/"]), ["taken"]);
    // One that was to take the place of another.
    let mut copy = store.begin(&["file", "cp", "--force", "-", "forebay:/taken"]);
    copy.write(&bytes);
    while store.list(&["/"]).len() < 2 {}
    send(&copy, Signal::TERM);
    copy.end().expect(3).says("interrupted");
    assert_eq!((store.list(&["/"]).len(), store.cat("/taken")), (1, b"as it was".to_vec()));
}

#[test]
fn a_full_store_says_so_keeps_what_it_has_and_goes_on_when_there_is_room() {
    let store = Store::start_small();
    let bytes = noise(3, TOO_MUCH_BYTES);
    store.put("/before", &bytes[..3 << 20]);
    let ran = store.file_with(&["cp", "--timeout", "1", "-", "forebay:/large"], &bytes).expect(3);
    ran.says("forebay:/large: the store is full").says("in a file that is not sealed");
    let known = store.stat("/large");
    assert!(known["state"] != "sealed" && known["bytes"].as_u64() > Some(40 << 20), "{known}");
    assert!(store.cat("/before") == bytes[..3 << 20]);
    // Of what was on its way together some may have been taken behind what was refused; nothing is missing of what was acknowledged before.
    let read = store.cat("/large");
    let acknowledged = read.len() - UNANSWERED_BYTES;
    assert!(read[..acknowledged] == bytes[..acknowledged]);
    assert!(read.iter().zip(&bytes).all(|(read, written)| read == written || *read == 0));
    // One that was to take the place of another leaves that as it is.
    let ran = store.file_with(&["cp", "--force", "--timeout", "1", "-", "forebay:/before"], &bytes).expect(3);
    ran.says("forebay:/before: ").says("the store is full");
    assert!(store.cat("/before") == bytes[..3 << 20]);
    store.file(&["rm", "/large"]).expect(0);
    store.put("/after", &bytes[..20 << 20]);
    assert!(store.cat("/after") == bytes[..20 << 20]);
    assert_eq!(store.list(&["/"]), ["after", "before"]);
}

#[test]
fn a_copy_goes_on_when_the_server_is_killed_and_started_again() {
    let (mut store, local) = (Store::start(), place());
    let bytes = noise(4, 24 << 20);
    let mut copy = store.begin(&["file", "cp", "--json", "-", "forebay:/raw"]);
    for part in bytes.chunks(6 << 20) {
        copy.write(part);
        store.until_acknowledged("/raw", 1);
        store.restart();
    }
    let copied = copy.end().expect(0).json();
    assert_eq!((&copied["bytes"], &copied["failed"]), (&bytes.len().into(), &0.into()));
    // Of a file that was not written under one start, all is read for the sums.
    while store.stat("/raw")["adler32"].is_null() {}
    assert_eq!(copied["adler32"], store.stat("/raw")["adler32"]);
    assert!(store.cat("/raw") == bytes);
    // Out of it.
    let path = local.path().join("raw");
    let copy = store.begin(&["file", "cp", "forebay:/raw", word(&path)]);
    // It has begun when the file is there that becomes the copy.
    while fs::read_dir(local.path()).expect("a directory").next().is_none() {}
    store.restart();
    copy.end().expect(0);
    assert!(fs::read(&path).expect("there") == bytes);
}

#[test]
fn of_two_copies_to_one_name_one_is_whole() {
    let store = Store::start();
    let contents = [noise(5, 3 << 20), noise(6, 3 << 20)];
    let (mut first, _) = begin_copy(&store, "/file", &contents[0][..2 << 20]);
    store.file_with(&["cp", "-", "forebay:/file"], &contents[1]).expect(2).says("the name is taken");
    first.write(&contents[0][2 << 20..]);
    first.end().expect(0);
    assert!(store.cat("/file") == contents[0]);
    let mut copies = [(); 2].map(|()| store.begin(&["file", "cp", "--force", "-", "forebay:/file"]));
    for (copy, content) in copies.iter_mut().zip(&contents) {
        copy.write(content);
    }
    for copy in copies {
        copy.end().expect(0);
    }
    assert!(contents.contains(&store.cat("/file")));
    assert_eq!(store.list(&["/"]), ["file"]);
}
