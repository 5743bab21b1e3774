//! Requests for files against the pretended lane.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_protocol::{
    Changer, Class, ErrorCode, FileClose, FileOpen, FileRead, FileReadReply, FileReply, FileSeal, FileSet, FileStat,
    FileStatReply, FileWrite, Kind, Opener,
};
use forebay_server::limits::OPENING_KEPT;
use forebay_server::{FilesMessage, ServiceConfig};
use forebay_types::{FileNumber, FileOutcome, ReadOutcome, crc32c};

use crate::fake::{FRAGMENT_BYTES_MAX, Received, Will, World, config};

const FILE: FileNumber = FileNumber(1 << 21);

pub fn by(opening: u32) -> Opener {
    Opener { client: 77, opening }
}

/// Who changes the file as the next one: nothing before that is waited for.
fn changer(opener: Opener) -> Changer {
    static CHANGES: AtomicU64 = AtomicU64::new(1);
    let change = CHANGES.fetch_add(1, Ordering::Relaxed);
    Changer { opener, change, waits_from: change }
}

fn write(opening: u32, start: Option<u64>, payload: &[u8]) -> Vec<u8> {
    write_as(changer(by(opening)), start, payload)
}

fn write_as(by: Changer, start: Option<u64>, payload: &[u8]) -> Vec<u8> {
    let write = FileWrite { file: FILE, by, start, bytes: payload.len() as u32, crc: crc32c(payload), appends: false };
    let mut bytes = Vec::new();
    write.encode(100 + u64::from(by.opener.opening), payload, &mut bytes);
    bytes
}

/// The answers, when the lane has said all that it has to say.
fn settled(world: &mut World, id: u64) -> Vec<Received> {
    for _ in 0..4 {
        world.turn(true);
        world.lane.settle();
    }
    world.turn(true);
    world.take(id)
}

fn outcome(frames: &[Received]) -> (FileOutcome, u64) {
    assert_eq!(frames.len(), 1, "{frames:?}");
    let reply: FileReply = frames[0].message();
    (reply.outcome, reply.start)
}

fn opened(world: &mut World, class: Class, opening: u32) -> u64 {
    let id = world.connect(class);
    world.ask(id, 2, &FileOpen { file: FILE, by: by(opening), write: true });
    assert_eq!(outcome(&settled(world, id)).0, FileOutcome::Done);
    id
}

fn read(world: &mut World, id: u64, start: u64, bytes: u32) -> (ReadOutcome, Vec<u8>) {
    world.ask(id, 9, &FileRead { file: FILE, start, bytes });
    let frames = settled(world, id);
    assert_eq!((frames.len(), frames[0].kind, frames[0].more), (1, Kind::FileReadReply, false));
    let (reply, payload) = FileReadReply::decode(&frames[0].table, &frames[0].payload).expect("sound");
    assert_eq!(reply.crc, crc32c(payload));
    (reply.outcome, payload.to_vec())
}

#[test]
fn what_is_written_is_answered_when_it_is_durable_and_read_as_it_was() {
    let mut world = World::new(config());
    let id = opened(&mut world, Class::Readout, 1);
    let payload: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
    world.peers.get_mut(&id).expect("open").pieces.extend([1, 31, 40, 1, 7000, 64_000, 0]);
    world.send(id, &write(1, Some(10), &payload));
    (0..20).for_each(|_| world.turn(true));
    assert_eq!(world.take(id).len(), 0, "it is not durable");
    assert_eq!(outcome(&settled(&mut world, id)), (FileOutcome::Done, 10));
    world.send(id, &write(1, None, b"tail"));
    assert_eq!(outcome(&settled(&mut world, id)), (FileOutcome::Done, 200_010));
    for later in [false, true] {
        world.lane.reads_files_later = later;
        let (found, bytes) = read(&mut world, id, 5, 300_000);
        assert_eq!((found, &bytes[..5], &bytes[5..200_005]), (ReadOutcome::Found, &[0; 5][..], &payload[..]));
        assert_eq!(&bytes[200_005..], b"tail");
        assert_eq!(read(&mut world, id, 1 << 30, 10), (ReadOutcome::Found, Vec::new()), "behind the end is nothing");
    }
    world.ask(id, 3, &FileSet { file: FILE, by: Some(changer(by(1))), length: Some(3), written_unix_ns: Some(5) });
    assert_eq!(outcome(&settled(&mut world, id)).0, FileOutcome::Done);
    for _ in 0..2 {
        // The second time it is sealed already.
        world.ask(id, 4, &FileSeal { file: FILE, by: None, unless_written: false });
        assert_eq!(outcome(&settled(&mut world, id)).0, FileOutcome::Done);
    }
    world.ask(id, 5, &FileStat { files: vec![FILE, FileNumber(FILE.0 + 1)] });
    let files = settled(&mut world, id)[0].message::<FileStatReply>().files;
    let known = (files[0].outcome, files[0].length, files[0].sealed, files[0].is_written, files[0].written_unix_ns);
    assert_eq!(known, (ReadOutcome::Found, 3, true, true, 5));
    assert_eq!(files[0].sums, Some((crc32c(&[0; 3]), 1)));
    assert_eq!((files[1].outcome, files[1].length), (ReadOutcome::NotFound, 0));
}

#[test]
fn what_has_arrived_whole_is_read_to_its_place() {
    let mut world = World::new(config());
    let id = opened(&mut world, Class::Readout, 1);
    let payload: Vec<u8> = (0..200_000u32).map(|i| (i / 7) as u8).collect();
    // The first bytes came with the request; another request follows, one below what is worth it, and an append.
    let first = write(1, Some(0), &payload);
    let again = write(1, Some(200_000), &payload);
    world.send(id, &[first, again, write(1, Some(400_000), b"short"), write(1, None, &payload)].concat());
    assert_eq!(settled(&mut world, id).len(), 4);
    assert_eq!(world.lane.placed_writes, 2, "not the short one, nor the append");
    let (found, bytes) = read(&mut world, id, 0, 700_000);
    assert_eq!((found, bytes.len()), (ReadOutcome::Found, 600_005));
    assert!(bytes == [&payload[..], &payload, b"short", &payload].concat());
    // Of what the lane has no place for nothing is lost: it is asked in the usual way.
    for (will, expected) in [(Will::BeBusy, FileOutcome::Done), (Will::Refuse, FileOutcome::Conflict)] {
        world.lane.will.push_back(will);
        world.send(id, &write(1, Some(0), &payload));
        assert_eq!(outcome(&settled(&mut world, id)).0, expected);
    }
    assert_eq!(world.lane.placed_writes, 2);
    let mut damaged = write(1, Some(0), &payload);
    *damaged.last_mut().expect("there are bytes") ^= 1;
    world.send(id, &damaged);
    assert_eq!(outcome(&settled(&mut world, id)).0, FileOutcome::ChecksumMismatch);
    // The opening is not the one that it was: it has its place, and is not taken.
    world.send(id, &write(9, Some(0), &payload));
    assert_eq!(outcome(&settled(&mut world, id)).0, FileOutcome::NotOpen);
    assert_eq!(world.lane.placed_writes, 3);
    world.send(id, &write(1, Some(5), b"goes on"));
    assert_eq!(outcome(&settled(&mut world, id)).0, FileOutcome::Done);
}

#[test]
fn of_a_write_whose_client_vanishes_in_the_middle_nothing_is_taken() {
    let mut world = World::new(config());
    let whole = opened(&mut world, Class::Readout, 1);
    world.send(whole, &write(1, Some(0), &[1; 50_000]));
    assert_eq!(outcome(&settled(&mut world, whole)).0, FileOutcome::Done);
    let bytes = write(1, Some(20_000), &[2; 60_000]).len();
    let header = bytes - 60_000;
    for cut in [1, header - 1, header, header + 1, bytes - 1] {
        let (vanishes, offers) = (world.connect(Class::Readout), world.lane.offers);
        world.send(vanishes, &write(1, Some(20_000), &[2; 60_000])[..cut]);
        (0..5).for_each(|_| world.turn(true));
        world.service.close(vanishes);
        world.peers.remove(&vanishes);
        (0..5).for_each(|_| world.turn(true));
        assert_eq!((world.lane.offers, world.service.staging_bytes()), (offers, 0), "cut after {cut} bytes");
        let found = read(&mut world, whole, 0, 100_000);
        assert_eq!(found, (ReadOutcome::Found, vec![1; 50_000]), "cut after {cut} bytes");
    }
    // The writer goes on by another connection.
    world.send(whole, &write(1, Some(20_000), &[2; 60_000]));
    assert_eq!(outcome(&settled(&mut world, whole)).0, FileOutcome::Done);
    assert_eq!(read(&mut world, whole, 0, 100_000).1, [[1; 20_000].as_slice(), &[2; 60_000]].concat());
}

#[test]
fn what_the_lane_shares_is_sent_as_it_lies() {
    let mut world = World::new(config());
    let id = opened(&mut world, Class::Readout, 1);
    let payload: Vec<u8> = (0..900_000u32).map(|i| (i % 251) as u8).collect();
    for part in payload.chunks(FRAGMENT_BYTES_MAX as usize) {
        world.send(id, &write(1, None, part));
        settled(&mut world, id);
    }
    world.ask(id, 4, &FileSeal { file: FILE, by: None, unless_written: false });
    assert_eq!(outcome(&settled(&mut world, id)).0, FileOutcome::Done);
    // Of a socket that takes little at a time, between answers that are copied.
    world.peers.get_mut(&id).expect("open").pieces.extend([1, 31, 40, 1, 7000, 64_000, 0]);
    for (start, bytes) in [(0, 1_000_000), (5, 10), (17, 70_000), (890_000, 100_000), (3, 65_535)] {
        let (outcome, read) = read(&mut world, id, start, bytes);
        let (from, to) = (start as usize, 900_000.min(start as usize + bytes as usize));
        assert!(outcome == ReadOutcome::Found && read == payload[from..to], "{bytes} from {start}");
    }
    assert!(world.lane.shared > 0, "the lane was asked for what it has");
}

#[test]
fn only_the_newest_opening_writes() {
    let mut world = World::new(config());
    let first = opened(&mut world, Class::Readout, 1);
    let second = opened(&mut world, Class::Readout, 2);
    world.send(first, &write(1, Some(0), b"late"));
    assert_eq!(outcome(&settled(&mut world, first)).0, FileOutcome::NotOpen);
    world.ask(first, 2, &FileOpen { file: FILE, by: by(1), write: true });
    assert_eq!(outcome(&settled(&mut world, first)).0, FileOutcome::NotOpen);
    world.send(second, &write(2, Some(0), b"new"));
    assert_eq!(outcome(&settled(&mut world, second)).0, FileOutcome::Done);
    for by in [by(1), Opener { client: 3, opening: 1 }] {
        let by = changer(by);
        world.ask(first, 3, &FileSet { file: FILE, by: Some(by), length: Some(0), written_unix_ns: None });
        assert_eq!(outcome(&settled(&mut world, first)).0, FileOutcome::NotOpen);
        world.ask(first, 3, &FileSeal { file: FILE, by: Some(by), unless_written: false });
        assert_eq!(outcome(&settled(&mut world, first)).0, FileOutcome::NotOpen);
    }
    // Who opened for reading does not write.
    let reader = Opener { client: 78, opening: 1 };
    world.ask(first, 3, &FileOpen { file: FILE, by: reader, write: false });
    assert_eq!(outcome(&settled(&mut world, first)).0, FileOutcome::Done);
    let mut bytes = Vec::new();
    FileWrite { file: FILE, by: changer(reader), start: Some(0), bytes: 1, crc: crc32c(b"x"), appends: false }
        .encode(9, b"x", &mut bytes);
    world.send(first, &bytes);
    assert_eq!(outcome(&settled(&mut world, first)).0, FileOutcome::NotOpen);
    // Nobody has the number of the server itself.
    world.ask(first, 4, &FileOpen { file: FILE, by: Opener { client: 0, opening: 1 }, write: true });
    assert_eq!(outcome(&settled(&mut world, first)).0, FileOutcome::NotOpen);
}

#[test]
fn who_wants_it_so_seals_only_what_nobody_writes() {
    let mut world = World::new(config());
    let writer = opened(&mut world, Class::Readout, 1);
    let other = world.connect(Class::Mover);
    let seal = |world: &mut World, unless_written| {
        world.ask(other, 3, &FileSeal { file: FILE, by: None, unless_written });
        outcome(&settled(world, other)).0
    };
    assert_eq!(seal(&mut world, true), FileOutcome::Conflict);
    world.send(writer, &write(1, None, b"not sealed"));
    assert_eq!(outcome(&settled(&mut world, writer)).0, FileOutcome::Done);
    // Who has it open for reading is in nobody's way.
    world.ask(writer, 4, &FileOpen { file: FILE, by: by(2), write: false });
    assert_eq!(outcome(&settled(&mut world, writer)).0, FileOutcome::Done);
    assert_eq!(seal(&mut world, true), FileOutcome::Done);
    assert_eq!((seal(&mut world, true), seal(&mut world, false)), (FileOutcome::Done, FileOutcome::Done), "repeated");
}

#[test]
fn a_copy_of_what_was_answered_changes_nothing_of_what_came_after_it() {
    let mut world = World::new(config());
    let id = opened(&mut world, Class::Readout, 1);
    let by = |change, waits_from| Changer { opener: by(1), change, waits_from };
    let old = write_as(by(1, 1), Some(0), b"old bytes");
    let cut = FileSet { file: FILE, by: Some(by(2, 2)), length: Some(0), written_unix_ns: None };
    let append = write_as(by(4, 4), None, b" and more");
    let done = |world: &mut World| assert_eq!(outcome(&settled(world, id)).0, FileOutcome::Done);
    world.send(id, &old);
    done(&mut world);
    world.ask(id, 3, &cut);
    done(&mut world);
    world.send(id, &write_as(by(3, 3), Some(0), b"new bytes"));
    done(&mut world);
    world.send(id, &append);
    done(&mut world);
    world.send(id, &old);
    assert_eq!(outcome(&settled(&mut world, id)).0, FileOutcome::NotOpen);
    world.ask(id, 3, &cut);
    assert_eq!(outcome(&settled(&mut world, id)).0, FileOutcome::NotOpen);
    world.send(id, &append);
    assert_eq!(
        outcome(&settled(&mut world, id)),
        (FileOutcome::Done, 9),
        "an append is taken once, and answered as before"
    );
    // Nobody says how long a file is who does not have it open.
    world.ask(id, 3, &FileSet { file: FILE, by: None, length: Some(0), written_unix_ns: None });
    assert_eq!(outcome(&settled(&mut world, id)).0, FileOutcome::NotOpen);
    world.ask(id, 3, &FileSet { file: FILE, by: None, length: None, written_unix_ns: Some(5) });
    done(&mut world);
    assert_eq!(read(&mut world, id, 0, 100), (ReadOutcome::Found, b"new bytes and more".to_vec()));
}

#[test]
fn a_copy_of_an_append_that_was_refused_is_not_taken() {
    let mut world = World::new(config());
    let id = opened(&mut world, Class::Readout, 1);
    let refused = write(1, None, b"again under another number");
    world.lane.will.push_back(Will::BeFull);
    world.send(id, &refused);
    assert_eq!(outcome(&settled(&mut world, id)).0, FileOutcome::NoSpace);
    world.send(id, &refused);
    assert_eq!(outcome(&settled(&mut world, id)).0, FileOutcome::NoSpace, "though there is room now");
    world.send(id, &write(1, None, b"once"));
    assert_eq!(outcome(&settled(&mut world, id)), (FileOutcome::Done, 0));
    assert_eq!(read(&mut world, id, 0, 100), (ReadOutcome::Found, b"once".to_vec()));
}

#[test]
fn an_append_whose_answer_was_lost_is_answered_when_it_is_asked_again() {
    for is_durable_before in [false, true] {
        let mut world = World::new(config());
        let id = opened(&mut world, Class::Readout, 1);
        let append = write(1, None, b"once");
        world.send(id, &append);
        (0..4).for_each(|_| world.turn(true));
        if is_durable_before {
            world.lane.settle();
            world.turn(true);
        }
        assert_eq!(world.take(id).len(), usize::from(is_durable_before));
        world.service.close(id);
        world.peers.remove(&id);
        let again = world.connect(Class::Readout);
        world.send(again, &append);
        (0..4).for_each(|_| world.turn(true));
        assert_eq!(world.take(again).len(), usize::from(is_durable_before), "it is answered when it is durable");
        if !is_durable_before {
            assert_eq!(outcome(&settled(&mut world, again)), (FileOutcome::Done, 0));
        }
        world.send(again, &append);
        assert_eq!(outcome(&settled(&mut world, again)), (FileOutcome::Done, 0));
        // What is asked behind it is done behind it.
        world.send(again, &write(1, None, b", and on"));
        assert_eq!(outcome(&settled(&mut world, again)), (FileOutcome::Done, 4));
        world.send(again, &append);
        assert_eq!(outcome(&settled(&mut world, again)).0, FileOutcome::NotOpen, "its writer has said that it knows");
        assert_eq!(read(&mut world, again, 0, 100), (ReadOutcome::Found, b"once, and on".to_vec()));
    }
}

#[test]
fn a_writer_that_does_not_come_back_is_taken_for_dead_after_a_while() {
    let mut world = World::new(config());
    let id = opened(&mut world, Class::Readout, 1);
    world.service.close(id);
    world.peers.remove(&id);
    world.now = world.now + OPENING_KEPT / 2;
    world.turn(true);
    assert_eq!(world.lane.files[&FILE].writers.len(), 1);
    // It comes back in time, with a write alone.
    let again = world.connect(Class::Readout);
    world.send(again, &write(1, Some(0), b"back"));
    assert_eq!(outcome(&settled(&mut world, again)).0, FileOutcome::Done);
    world.service.close(again);
    world.peers.remove(&again);
    world.now = world.now + OPENING_KEPT - Duration::from_secs(1);
    world.turn(true);
    assert_eq!(world.lane.files[&FILE].writers.len(), 1);
    world.now = world.now + Duration::from_secs(1);
    world.turn(true);
    assert_eq!(world.lane.files[&FILE].writers.len(), 0);
}

#[test]
fn a_server_that_only_reads_is_done_with_who_does_not_come_back_too() {
    let mut world = World::new(ServiceConfig { read_only: true, ..config() });
    let id = world.connect(Class::Monitor);
    world.ask(id, 2, &FileOpen { file: FILE, by: by(1), write: false });
    assert_eq!(outcome(&settled(&mut world, id)).0, FileOutcome::Done);
    world.service.close(id);
    world.turn(false);
    let due = world.service.next_retry().expect("the client may come back");
    assert_eq!(due, world.now + OPENING_KEPT);
    world.now = due;
    world.turn(false);
    assert_eq!(world.service.next_retry(), None, "nothing is left to be done, at no time");
}

#[test]
fn what_the_lane_refuses_is_said() {
    let mut world = World::new(config());
    let id = opened(&mut world, Class::Readout, 1);
    for (will, expected) in [(Will::Refuse, FileOutcome::Conflict), (Will::BeFull, FileOutcome::NoSpace)] {
        world.lane.will.push_back(will);
        world.send(id, &write(1, Some(0), b"bytes"));
        assert_eq!(outcome(&settled(&mut world, id)), (expected, 0));
    }
    world.lane.will.extend([Will::BeBusy, Will::BeBusy, Will::Take]);
    world.send(id, &write(1, Some(0), b"bytes"));
    assert_eq!(outcome(&settled(&mut world, id)).0, FileOutcome::Done, "a busy lane is asked again");
    let mut damaged = write(1, Some(0), b"bytes");
    *damaged.last_mut().expect("bytes") ^= 1;
    world.send(id, &damaged);
    assert_eq!(outcome(&settled(&mut world, id)).0, FileOutcome::ChecksumMismatch);
    // More than is taken at once is skipped, and what comes behind it is served.
    world.send(id, &write(1, Some(0), &vec![1; FRAGMENT_BYTES_MAX as usize + 1]));
    world.send(id, &write(1, Some(0), b"next"));
    (0..50).for_each(|_| world.turn(true));
    let frames = settled(&mut world, id);
    let outcomes: Vec<FileOutcome> = frames.iter().map(|frame| frame.message::<FileReply>().outcome).collect();
    assert_eq!(outcomes, [FileOutcome::TooLarge, FileOutcome::Done]);
    world.ask(id, 6, &FileClose { file: FILE, by: by(1) });
    assert_eq!(outcome(&settled(&mut world, id)).0, FileOutcome::Done);
    world.send(id, &write(1, Some(0), b"closed"));
    assert_eq!(outcome(&settled(&mut world, id)).0, FileOutcome::NotOpen);
}

#[test]
fn numbers_of_other_lanes_and_of_the_names_are_refused() {
    let mut world = World::new(config());
    let id = world.connect(Class::Monitor);
    world.ask(id, 2, &FileRead { file: FileNumber(1), start: 0, bytes: 1 });
    assert_eq!(settled(&mut world, id)[0].error().code, ErrorCode::Refused);
    let mut world = World::new(ServiceConfig { has_files: false, ..config() });
    let id = world.connect(Class::Monitor);
    world.ask(id, 2, &FileSeal { file: FILE, by: None, unless_written: false });
    let error = settled(&mut world, id)[0].error();
    assert!(error.code == ErrorCode::Refused && error.sentence.contains("upgrade"), "{}", error.sentence);
}

#[test]
fn what_has_no_name_ends_when_nobody_has_it_open() {
    let mut world = World::new(config());
    let id = opened(&mut world, Class::Readout, 1);
    world.send(id, &write(1, Some(0), b"bytes"));
    settled(&mut world, id);
    world.service.message(FilesMessage::Unnamed(FILE), &mut world.lane);
    assert_eq!(settled(&mut world, id).len(), 0);
    assert_eq!(read(&mut world, id, 0, 10).1, b"bytes", "who has it open reads it on");
    world.ask(id, 6, &FileClose { file: FILE, by: by(1) });
    settled(&mut world, id);
    assert!(world.lane.ended.contains(&FILE));
    assert_eq!(read(&mut world, id, 0, 10), (ReadOutcome::Deleted, Vec::new()));
    world.ask(id, 7, &FileOpen { file: FILE, by: by(2), write: false });
    assert_eq!(outcome(&settled(&mut world, id)).0, FileOutcome::Removed);
}
