//! The machine, with the answers of a store given by hand.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use bytes::Bytes;
use forebay_client::{Answer, Blocks, Request};
use forebay_protocol::{FileInfo, FileReply, NameChange, Node, NodeReply};
use forebay_types::{
    Attributes, FileNumber, FileOutcome, NameOutcome, NodeKind, NodeView, ReadOutcome, SetAttributes, Time,
};
use fuser::{Errno, INodeNo};

use crate::attributes::Known;
use crate::calls::{Opened, Set};
use crate::machine::{Machine, MachineConfig, Reply};

const ROOT: FileNumber = FileNumber(1000);
const FILE: FileNumber = FileNumber(7);
const PATIENCE: Duration = Duration::from_secs(60);
const SEAL_AFTER: Duration = Duration::from_secs(30);

fn node(number: FileNumber, kind: NodeKind) -> Node {
    let attributes = Attributes { mode: 0o644, ..Attributes::default() };
    Node { number, parent: ROOT, view: NodeView { kind, attributes, links: 1, device: 0, target: Vec::new() } }
}

fn info(length: u64) -> Answer {
    let outcome = if length == 0 { ReadOutcome::NotFound } else { ReadOutcome::Found };
    let info = FileInfo { outcome, sealed: false, is_written: false, sums: None, length, written_unix_ns: 0 };
    Answer::FileInfos(vec![info])
}

fn file(outcome: FileOutcome) -> Answer {
    Answer::File(FileReply { outcome, start: 0 })
}

fn name(outcome: NameOutcome) -> Answer {
    Answer::Node(NodeReply { outcome, node: None })
}

/// A reply, and where what it was given comes out.
fn reply<T: Send + 'static>() -> (Reply<T>, Receiver<Result<T, Errno>>) {
    let (gives, given) = channel();
    (Box::new(move |result| gives.send(result).expect("somebody looks")), given)
}

struct World {
    machine: Machine,
    asked: Vec<(u64, Request)>,
}

impl World {
    fn new() -> World {
        let config = MachineConfig {
            lanes: 1,
            root: ROOT,
            client: 5,
            piece_bytes_max: 1 << 20,
            patience: PATIENCE,
            seal_after: SEAL_AFTER,
        };
        let machine = Machine::new(config, 1, &node(ROOT, NodeKind::Directory), Blocks::new(1 << 20, 4));
        World { machine, asked: Vec::new() }
    }

    /// What was asked and not answered, by name.
    fn asks(&mut self) -> Vec<&'static str> {
        while let Some((number, _, request)) = self.machine.next_request() {
            self.asked.push((number, request));
        }
        self.asked.iter().map(|(_, request)| request.name()).collect()
    }

    /// Answers the first request of this name.
    #[track_caller]
    fn answer(&mut self, name: &str, answer: Answer) -> Request {
        self.asks();
        let place = self.asked.iter().position(|(_, request)| request.name() == name);
        let (number, request) = self.asked.remove(place.unwrap_or_else(|| panic!("{name} was asked")));
        self.machine.answered(number, Ok(answer));
        request
    }

    fn passes(&mut self, time: Duration) {
        let now = self.machine.now + time;
        self.machine.set_now(now, 0, 1);
        self.machine.tick();
    }

    fn opened(&mut self, write: bool) -> u64 {
        let (gives, opened) = reply::<Opened>();
        let inode = self.machine.inode(FILE);
        self.machine.open(inode, write, gives);
        if self.asks().contains(&"FileOpen") {
            self.answer("FileOpen", file(FileOutcome::Done));
        }
        self.answer("FileStat", info(0));
        opened.recv().expect("replied").expect("opened").handle
    }

    fn write(&mut self, handle: u64, bytes: &'static [u8]) -> Receiver<Result<u32, Errno>> {
        let (gives, written) = reply();
        self.machine.write(handle, Some(0), Bytes::from_static(bytes), false, gives);
        written
    }

    fn append(&mut self, handle: u64, bytes: &'static [u8]) -> Receiver<Result<u32, Errno>> {
        let (gives, written) = reply();
        self.machine.write(handle, None, Bytes::from_static(bytes), false, gives);
        written
    }

    fn flush(&mut self, handle: u64) -> Receiver<Result<(), Errno>> {
        let (gives, flushed) = reply();
        self.machine.flush(handle, gives);
        flushed
    }
}

#[test]
fn numbers_of_the_store_and_of_the_kernel_are_told_apart() {
    let machine = World::new().machine;
    assert_eq!((machine.inode(ROOT), machine.number(INodeNo::ROOT)), (INodeNo::ROOT, ROOT));
    for number in [1, 2, 999, 1001, u64::MAX - 1] {
        let inode = machine.inode(FileNumber(number));
        assert!(inode != INodeNo::ROOT && inode.0 != 0 && machine.number(inode) == FileNumber(number));
    }
}

#[test]
fn writing_waits_for_nothing_and_what_is_on_its_way_counts() {
    let mut world = World::new();
    let handle = world.opened(true);
    assert_eq!(world.write(handle, b"0123456789").recv().expect("replied"), Ok(10));
    let (gives, known) = reply::<Known>();
    let inode = world.machine.inode(FILE);
    world.machine.get_attributes(inode, gives);
    // The store does not know of the bytes yet, and the write is answered before it says so.
    world.answer("FileWrite", file(FileOutcome::Done));
    world.answer(
        "NameLookup",
        Answer::Node(NodeReply { outcome: NameOutcome::Done, node: Some(node(FILE, NodeKind::File)) }),
    );
    world.answer("FileStat", info(0));
    assert_eq!(known.recv().expect("replied").expect("known").attributes.size, 10);
}

#[test]
fn a_read_waits_until_what_was_written_is_there() {
    let mut world = World::new();
    let (writer, reader) = (world.opened(true), world.opened(false));
    world.write(writer, b"bytes").recv().expect("replied").expect("taken");
    let (gives, read) = reply::<Bytes>();
    world.machine.read(reader, 0, 5, gives);
    assert_eq!(world.asks(), ["FileWrite"]);
    world.answer("FileWrite", file(FileOutcome::Done));
    world.answer("FileRead", Answer::FileBytes(ReadOutcome::Found, Bytes::from_static(b"bytes")));
    assert_eq!(read.recv().expect("replied").expect("read"), &b"bytes"[..]);
}

#[test]
fn what_is_appended_goes_where_the_store_says_that_the_file_ends() {
    let mut world = World::new();
    let (gives, opened) = reply::<Opened>();
    let inode = world.machine.inode(FILE);
    world.machine.open(inode, true, gives);
    world.answer("FileOpen", file(FileOutcome::Done));
    world.answer("FileStat", info(700));
    let handle = opened.recv().expect("replied").expect("opened").handle;
    let goes_to = |world: &mut World, outcome| match world.answer("FileWrite", file(outcome)) {
        Request::FileWrite(write, _) if write.appends => write.start,
        other => panic!("{other:?}"),
    };
    for (start, told) in [(700, None), (705, Some(705)), (800, Some(800))] {
        let appended = world.append(handle, b"bytes");
        // Before each that goes out alone: another machine may have appended since, and closed the file.
        if let Some(told) = told {
            world.answer("FileStat", info(told));
        }
        appended.recv().expect("replied").expect("taken");
        assert_eq!(goes_to(&mut world, FileOutcome::Done), Some(start));
    }
    // Another machine has appended at this moment.
    let appended = world.append(handle, b"bytes");
    world.answer("FileStat", info(805));
    appended.recv().expect("replied").expect("taken");
    assert_eq!(goes_to(&mut world, FileOutcome::Conflict), Some(805));
    world.append(handle, b"more").recv().expect("replied").expect("taken");
    world.answer("FileStat", info(820));
    world.passes(Duration::from_secs(1));
    assert_eq!(goes_to(&mut world, FileOutcome::Done), Some(820));
    // What is refused is nowhere, and what comes next is not written behind where it would be.
    assert_eq!(goes_to(&mut world, FileOutcome::TooLarge), Some(825));
    world.answer("FileOpen", file(FileOutcome::Done));
    assert_eq!(world.append(handle, b"bytes").recv().expect("replied"), Err(Errno::EFBIG));
    let appended = [world.append(handle, b"more"), world.append(handle, b"and more")];
    assert_eq!(world.asks(), ["FileStat"]);
    world.answer("FileStat", info(900));
    for appended in appended {
        appended.recv().expect("replied").expect("taken");
    }
    let Request::FileWrite(write, bytes) = world.answer("FileWrite", file(FileOutcome::Done)) else {
        panic!("a write")
    };
    assert_eq!((write.start, write.appends), (Some(900), true));
    assert!(b"moreand more".starts_with(&bytes[..]));
}

#[test]
fn what_failed_is_told_once_and_another_opening_goes_on() {
    let mut world = World::new();
    let handle = world.opened(true);
    world.write(handle, b"first").recv().expect("replied").expect("taken");
    let flushed = world.flush(handle);
    let Request::FileWrite(first, _) = world.answer("FileWrite", file(FileOutcome::Conflict)) else {
        panic!("a write")
    };
    assert_eq!(flushed.recv().expect("replied"), Err(Errno::EBUSY));
    world.answer("FileOpen", file(FileOutcome::Done));
    world.write(handle, b"second").recv().expect("replied").expect("taken");
    let Request::FileWrite(second, _) = world.answer("FileWrite", file(FileOutcome::Done)) else { panic!("a write") };
    let (first, second) = (first.by.opener, second.by.opener);
    assert!(second.client == first.client && second.opening > first.opening);
    let flushed = world.flush(handle);
    world.answer("FileSet", file(FileOutcome::Done));
    assert_eq!(flushed.recv().expect("replied"), Ok(()));
}

#[test]
fn who_closes_waits_and_the_file_is_sealed_later_unless_it_is_opened_again() {
    let mut world = World::new();
    let handle = world.opened(true);
    world.write(handle, b"bytes").recv().expect("replied").expect("taken");
    let flushed = world.flush(handle);
    assert!(flushed.try_recv().is_err(), "nothing is durable yet");
    world.answer("FileWrite", file(FileOutcome::Done));
    world.answer("FileSet", file(FileOutcome::Done));
    assert_eq!(flushed.recv().expect("replied"), Ok(()));
    world.machine.release(handle, true);
    world.answer("FileClose", file(FileOutcome::Done));
    world.passes(SEAL_AFTER / 2);
    let again = world.opened(true);
    world.passes(SEAL_AFTER);
    assert!(!world.asks().contains(&"FileSeal"), "somebody writes to it");
    world.machine.release(again, true);
    world.passes(SEAL_AFTER);
    let Request::FileSeal(seal) = world.answer("FileSeal", file(FileOutcome::Conflict)) else { panic!("a seal") };
    assert!(seal.unless_written && seal.by.is_none(), "the server knows who writes to it");
    world.passes(SEAL_AFTER * 10);
    assert!(!world.asks().contains(&"FileSeal"), "another client writes to it, or did last");
}

#[test]
fn while_the_store_has_no_room_a_change_of_a_name_is_tried_again_as_long_as_patience_lasts() {
    let mut world = World::new();
    let (gives, removed) = reply::<()>();
    world.machine.remove(INodeNo::ROOT, b"name".to_vec(), gives);
    let Request::ChangeName(first) = world.answer("ChangeName", name(NameOutcome::NoSpace)) else { panic!("a change") };
    assert!(matches!(first.what, NameChange::Remove { .. }) && removed.try_recv().is_err());
    world.passes(Duration::from_secs(1));
    let Request::ChangeName(second) = world.answer("ChangeName", name(NameOutcome::NoSpace)) else {
        panic!("a change")
    };
    assert!(second.change > first.change && second.waits_from == second.change);
    world.passes(PATIENCE);
    world.answer("ChangeName", name(NameOutcome::NoSpace));
    assert_eq!(removed.recv().expect("replied"), Err(Errno::ENOSPC));
}

#[test]
fn a_length_is_set_by_whoever_has_the_file_open_and_behind_what_was_written() {
    let mut world = World::new();
    let handle = world.opened(true);
    world.write(handle, b"bytes").recv().expect("replied").expect("taken");
    let (gives, set) = reply::<Known>();
    let inode = world.machine.inode(FILE);
    world.machine.set(inode, Set { length: Some(2), attributes: SetAttributes::default() }, gives);
    world.answer("FileWrite", file(FileOutcome::Done));
    world.answer("FileStat", info(5));
    let Request::FileSet(cut) = world.answer("FileSet", file(FileOutcome::Done)) else { panic!("a length") };
    assert!(cut.length == Some(2) && cut.by.is_some());
    world.answer(
        "NameLookup",
        Answer::Node(NodeReply { outcome: NameOutcome::Done, node: Some(node(FILE, NodeKind::File)) }),
    );
    world.answer("FileStat", info(2));
    assert_eq!(set.recv().expect("replied").expect("set").attributes.size, 2);
    assert!(!world.asks().contains(&"FileClose"), "it was open before");
}

#[test]
fn the_root_is_told_from_memory_when_the_store_is_silent() {
    let mut world = World::new();
    let (gives, known) = reply::<Known>();
    world.machine.get_attributes(INodeNo::ROOT, gives);
    assert_eq!(world.asks(), ["NameLookup"]);
    world.passes(Duration::from_secs(1));
    assert_eq!(known.recv().expect("replied").expect("known").attributes.ino, INodeNo::ROOT);
}

#[test]
fn a_mount_that_ends_closes_and_seals_what_is_open() {
    let mut world = World::new();
    let handle = world.opened(true);
    world.write(handle, b"bytes").recv().expect("replied").expect("taken");
    world.machine.end();
    assert!(!world.machine.is_settled());
    world.answer("FileWrite", file(FileOutcome::Done));
    world.answer("FileSet", file(FileOutcome::Done));
    world.answer("FileClose", file(FileOutcome::Done));
    world.passes(Duration::from_millis(1));
    world.answer("FileSeal", file(FileOutcome::Done));
    assert!(world.machine.is_over() && world.machine.now > Time::default());
}
