//! The judge of kills (`tools/judge-custody.py`) finds what it is there for: a judge that cannot condemn says nothing.

mod common;

use std::fs;
use std::path::Path;

use common::buffer::{Buffer, decide};
use common::judge::{self, Judge};
use common::scratch;
use forebay_rawdata::{Format, Generator};
use forebay_types::RunId;

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().expect("it has one")).and_then(|()| fs::write(path, bytes)).expect("written");
}

#[test]
fn files_that_are_let_go_and_not_whole_are_found() {
    if !judge::is_here() {
        return;
    }
    let place = scratch();
    let at = |name: &str| place.path().join(name);
    let judge = Judge::of_files(at("put"), &at("daq"), &[at("first"), at("second")]);
    judge.note("run1/a.dat", b"what it is");
    judge.note("run1/b.dat", b"another");
    // On its way: the source has both.
    write(&at("daq/run1/a.dat"), b"what it is");
    write(&at("daq/run1/b.dat"), b"another");
    assert_eq!(judge.judge(false)["let_go"], 0);
    judge.condemns(true, "run1/a.dat was not let go of");
    // One is let go of, and is at both.
    fs::rename(at("daq/run1/a.dat"), at("daq/run1/a.dat.copied")).expect("renamed");
    judge.condemns(false, "run1/a.dat was let go of and is not whole at");
    write(&at("first/run1/a.dat"), b"what it is");
    judge.condemns(false, "is not whole at");
    write(&at("second/run1/a.dat"), b"what it was");
    judge.condemns(false, "is not whole at");
    write(&at("second/run1/a.dat"), b"what it is");
    assert_eq!(judge.judge(false)["let_go"], 1);
    // Then the other.
    for destination in ["first", "second"] {
        write(&at(destination).join("run1/b.dat"), b"another");
    }
    fs::rename(at("daq/run1/b.dat"), at("daq/run1/b.dat.copied")).expect("renamed");
    assert_eq!(judge.judge(true)["let_go"], 2);
    write(&at("first/run1/.forebay-1-1.part"), b"half");
    assert_eq!(judge.judge(false)["let_go"], 2);
    judge.condemns(true, "lies about");
    fs::remove_file(at("first/run1/.forebay-1-1.part")).expect("removed");
    write(&at("first/run1/c.dat"), b"whose?");
    judge.condemns(false, "nobody put it");
    fs::remove_file(at("first/run1/c.dat")).expect("removed");
    fs::remove_file(at("daq/run1/b.dat.copied")).expect("removed");
    judge.condemns(false, "its renamed original is gone");
}

#[test]
fn events_that_are_forgotten_and_not_whole_are_found() {
    if !judge::is_here() {
        return;
    }
    let mut buffer = Buffer::new();
    let keys = buffer.put(&mut Generator::new(Format::Faser, 5, RunId(1920)), 30);
    let mut client = buffer.server.client("filter");
    let judge = Judge::of_events(buffer.path("put"), &buffer.server.address, &[buffer.path("archive")]);
    let bytes: Vec<u8> = keys.iter().flat_map(|key| &buffer.events[key]).copied().collect();
    judge.note("physics/all.raw", &bytes);
    decide(&mut client, &keys, &["physics"]);
    assert_eq!(judge.judge(false)["read_from_store"], 12);
    judge.condemns(true, "the store has forgotten 0 events of 30");
    // As a mover would that lets go early.
    client.delete(&keys[3..4]).expect("answered");
    judge.condemns(false, "the store has forgotten 1 events, and 0 are whole");
    buffer.once(&["--merge", "100kB"]).expect(0);
    judge.condemns(true, &format!("{} of physics is not at", keys[3]));
    let name = fs::read_dir(buffer.path("archive/physics")).expect("listed").flatten().next().expect("one").path();
    let bytes = fs::read(&name).expect("read");
    write(&buffer.path("archive/physics/again.raw"), &bytes);
    judge.condemns(false, "is below physics twice");
    write(&buffer.path("archive/physics/again.raw"), &bytes[..bytes.len() - 1]);
    judge.condemns(false, "ends within the event");
    fs::remove_file(buffer.path("archive/physics/again.raw")).expect("removed");
    let mut turned = bytes;
    let last = turned.len() - 1;
    turned[last] ^= 1;
    write(&name, &turned);
    judge.condemns(false, "is not what was put");
}
