//! Writing behind.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use forebay_client::files::{WriteBehind, WriteConfig, WriteFailure};
use forebay_client::{Answer, Blocks, Request, SessionError};
use forebay_protocol::{FileInfo, FileReply, FileWrite, Opener};
use forebay_types::{FileOutcome, ReadOutcome, Time, crc32c};
use proptest::prelude::*;

use super::FILE;

const PIECE: usize = 64;
const UNANSWERED: usize = 256;

fn opener(opening: u32) -> Opener {
    Opener { client: 5, opening }
}

fn blocks() -> Blocks {
    Blocks::new(1 << 20, 4)
}

fn write_config() -> WriteConfig {
    WriteConfig {
        file: FILE,
        opener: opener(1),
        append: false,
        piece_bytes_max: PIECE,
        unanswered_bytes_max: UNANSWERED,
        patience: Some(Duration::from_secs(10)),
        seed: 1,
    }
}

/// A store with one file, and a writer of it.
struct World {
    machine: WriteBehind,
    now: Time,
    opening: u32,
    /// Who may write, as the store knows it.
    open: Option<Opener>,
    stored: Vec<u8>,
    in_flight: BTreeMap<u64, Request>,
    /// The smallest change that is waited for, as far as the store knows.
    waits_from: u64,
    /// What the store was asked before.
    copies: Vec<Request>,
    failures: Vec<WriteFailure>,
    most_unanswered: usize,
}

fn done(start: u64) -> Result<Answer, SessionError> {
    said(FileOutcome::Done, start)
}

fn said(outcome: FileOutcome, start: u64) -> Result<Answer, SessionError> {
    Ok(Answer::File(FileReply { outcome, start }))
}

impl World {
    fn new(config: WriteConfig) -> World {
        World {
            open: Some(config.opener),
            machine: WriteBehind::new(config, blocks()),
            now: Time(0),
            opening: 1,
            stored: Vec::new(),
            in_flight: BTreeMap::new(),
            waits_from: 0,
            copies: Vec::new(),
            failures: Vec::new(),
            most_unanswered: 0,
        }
    }

    /// Asks what there is to ask.
    fn pump(&mut self) {
        self.failures.extend(self.machine.take_failure());
        if self.machine.wants_opening() {
            self.opening += 1;
            self.machine.open_as(opener(self.opening));
        }
        while let Some((number, request)) = self.machine.next_request(self.now) {
            assert!(self.in_flight.insert(number, request).is_none());
        }
        self.most_unanswered = self.most_unanswered.max(self.machine.unanswered_bytes());
        let mut ranges: Vec<(u64, u64)> =
            self.writes().map(|write| (write.start.unwrap_or(0), write.bytes.into())).collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "they overlap: {ranges:?}");
    }

    fn writes(&self) -> impl Iterator<Item = &FileWrite> {
        self.in_flight.values().filter_map(|request| match request {
            Request::FileWrite(write, _) => Some(write),
            _ => None,
        })
    }

    /// What the store does with a request, and where.
    fn take(&mut self, request: &Request) -> (FileOutcome, u64) {
        match request {
            Request::FileOpen(open) => {
                (self.open, self.waits_from) = (Some(open.by), 0);
                (FileOutcome::Done, 0)
            }
            Request::FileWrite(write, bytes) => {
                assert_eq!((write.bytes as usize, write.crc), (bytes.len(), crc32c(bytes)));
                assert!(write.by.waits_from <= write.by.change);
                if self.open != Some(write.by.opener) || write.by.change < self.waits_from {
                    return (FileOutcome::NotOpen, 0);
                }
                self.waits_from = self.waits_from.max(write.by.waits_from);
                let start = write.start.unwrap_or(self.stored.len() as u64);
                let (at, end) = (start as usize, start as usize + bytes.len());
                self.stored.resize(self.stored.len().max(end), 0);
                self.stored[at..end].copy_from_slice(bytes);
                (FileOutcome::Done, start)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Answers one of those in flight; `refuse`: with this, and nothing is done.
    fn answer(&mut self, which: usize, refuse: Option<FileOutcome>) {
        let Some(number) = self.in_flight.keys().nth(which % self.in_flight.len().max(1)).copied() else { return };
        let request = self.in_flight.remove(&number).expect("just found");
        self.copies.push(request.clone());
        let (outcome, start) = refuse.map_or_else(|| self.take(&request), |outcome| (outcome, 0));
        self.machine.answered(self.now, number, said(outcome, start));
        self.pump();
    }

    /// All is written in the end.
    fn settle(&mut self) {
        self.machine.end_piece();
        for _ in 0..10_000 {
            self.pump();
            if self.machine.is_idle() && self.in_flight.is_empty() {
                return;
            }
            if self.in_flight.is_empty() {
                self.now = self.machine.next_due(self.now).expect("what is not asked now is asked then");
            } else {
                self.answer(0, None);
            }
        }
        panic!("it does not come to rest");
    }

    /// Has all of these taken, with answers as they are needed.
    fn write(&mut self, mut offset: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let taken = match offset % 2 {
                0 => self.machine.offer(offset, bytes),
                _ => self.machine.offer_shared(offset, &Bytes::copy_from_slice(bytes)),
            };
            let taken = taken.expect("no file is too long here");
            self.pump();
            if taken == 0 {
                match self.in_flight.is_empty() {
                    true => self.now = self.machine.next_due(self.now).unwrap_or(self.now),
                    false => self.answer(1, None),
                }
                self.pump();
            }
            offset += taken as u64;
            bytes = &bytes[taken..];
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, usize),
    EndPiece,
    Answer(usize),
    Refuse(usize, FileOutcome),
    /// The store is started anew: nobody has anything open, and of what is in flight some was done.
    Restart(u32),
    /// A copy of what the store was asked before arrives late.
    Copy(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let refusal = proptest::sample::select(vec![
        FileOutcome::NoSpace,
        FileOutcome::Unavailable,
        FileOutcome::IndexFull,
        FileOutcome::ChecksumMismatch,
    ]);
    prop_oneof![
        8 => (0u64..600, 1usize..200).prop_map(|(offset, bytes)| Step::Write(offset, bytes)),
        2 => Just(Step::EndPiece),
        6 => (0usize..9).prop_map(Step::Answer),
        2 => (0usize..9, refusal).prop_map(|(which, outcome)| Step::Refuse(which, outcome)),
        1 => any::<u32>().prop_map(Step::Restart),
        4 => (0usize..9).prop_map(Step::Copy),
        2 => (0u64..3000).prop_map(Step::Wait),
    ]
}

proptest! {
    /// In whatever order answers come, whatever is refused or comes twice, and however often the store is started anew: the file is what was written, in the order in which it was.
    #[test]
    fn the_file_is_what_was_written(steps in prop::collection::vec(step(), 0..120)) {
        let mut world = World::new(write_config());
        let mut expected: Vec<u8> = Vec::new();
        for (number, step) in steps.iter().enumerate() {
            match *step {
                Step::Write(offset, bytes) => {
                    let bytes: Vec<u8> = (0..bytes).map(|i| (i * 7 + number * 31 + 1) as u8).collect();
                    let (at, end) = (offset as usize, offset as usize + bytes.len());
                    expected.resize(expected.len().max(end), 0);
                    expected[at..end].copy_from_slice(&bytes);
                    world.write(offset, &bytes);
                }
                Step::EndPiece => world.machine.end_piece(),
                Step::Answer(which) => world.answer(which, None),
                Step::Refuse(which, outcome) => world.answer(which, Some(outcome)),
                Step::Restart(which) => {
                    let requests: Vec<Request> = world.in_flight.values().cloned().collect();
                    let done = requests.iter().enumerate().filter(|(place, _)| which >> (place % 32) & 1 == 1);
                    for (_, request) in done {
                        world.take(request);
                    }
                    world.open = None;
                }
                Step::Copy(ago) => {
                    let copy = world.copies.iter().rev().filter(|copy| matches!(copy, Request::FileWrite(..))).nth(ago);
                    if let Some(copy) = copy.cloned() {
                        world.take(&copy);
                    }
                }
                Step::Wait(ms) => world.now = world.now + Duration::from_millis(ms),
            }
            world.pump();
        }
        world.settle();
        prop_assert_eq!(&world.stored, &expected);
        prop_assert!(world.most_unanswered <= UNANSWERED + 2 * PIECE, "{} bytes", world.most_unanswered);
        let only_told = world.failures.iter().all(|failure| matches!(failure, WriteFailure::Refused { .. }));
        prop_assert!(only_told, "{:?}", world.failures);
        prop_assert!(world.machine.end() as usize == expected.len());
    }
}

#[test]
fn small_writes_are_one_piece_and_overlapping_ones_wait() {
    let mut world = World::new(write_config());
    for at in 0..40 {
        assert_eq!(world.machine.offer(at, b"x"), Ok(1));
    }
    world.pump();
    assert!(world.in_flight.is_empty(), "a piece that is not full stays");
    world.machine.end_piece();
    world.pump();
    assert_eq!(world.writes().map(|write| (write.start, write.bytes)).collect::<Vec<_>>(), [(Some(0), 40)]);
    // Beside it, and over it.
    assert_eq!(world.machine.offer(40, b"beside"), Ok(6));
    assert_eq!(world.machine.offer(39, b"over"), Ok(0));
    assert_eq!(world.machine.offer(0, &[0; PIECE]), Ok(0));
    world.pump();
    assert_eq!(world.in_flight.len(), 2, "what was beside has left, as something else is written");
    world.answer(0, None);
    assert_eq!(world.machine.offer(30, b"over"), Ok(4));
    // What fills may still be written over.
    assert_eq!(world.machine.offer(31, b"VE"), Ok(2));
    world.settle();
    assert_eq!(&world.stored[28..], b"xxoVErxxxxxxbeside");
}

#[test]
fn the_store_without_room_is_asked_with_one_piece_and_told_when_patience_ends() {
    let mut world = World::new(write_config());
    world.write(0, &[7; UNANSWERED]);
    assert_eq!(world.in_flight.len(), 4);
    for _ in 0..4 {
        world.answer(0, Some(FileOutcome::NoSpace));
    }
    let mut tries = 0;
    while world.failures.is_empty() {
        assert!(world.in_flight.len() <= 1, "one piece looks whether there is room");
        match world.in_flight.is_empty() {
            true => world.now = world.machine.next_due(world.now).expect("it is tried again"),
            false => {
                tries += 1;
                world.answer(0, Some(FileOutcome::NoSpace));
            }
        }
        world.pump();
    }
    assert_eq!(world.now, Time(10_000_000_000));
    assert!((5..40).contains(&tries), "{tries} tries");
    let [WriteFailure::Refused { outcome: FileOutcome::NoSpace, start: Some(0), bytes: 64 }] = world.failures[..]
    else {
        panic!("{:?}", world.failures);
    };
    assert_eq!(world.machine.unanswered_bytes(), UNANSWERED, "all is kept");
    world.settle();
    assert_eq!(world.stored, [7; UNANSWERED]);
    assert_eq!((world.machine.acknowledged_bytes(), world.failures.len()), (UNANSWERED as u64, 1));
}

#[test]
fn what_is_refused_for_good_ends_it() {
    for outcome in [FileOutcome::Conflict, FileOutcome::Sealed, FileOutcome::Removed, FileOutcome::ReadOnly] {
        let mut world = World::new(write_config());
        world.write(100, b"some bytes");
        world.machine.end_piece();
        world.pump();
        world.answer(0, Some(outcome));
        let failure = WriteFailure::Refused { outcome, start: Some(100), bytes: 10 };
        assert_eq!(world.machine.take_failure(), Some(failure.clone()));
        assert_eq!(world.machine.take_failure(), Some(failure), "it stays");
        assert_eq!(world.machine.next_request(world.now + Duration::from_secs(100)), None);
    }
}

#[test]
fn a_writer_that_is_not_known_opens_again_with_a_higher_number() {
    let mut world = World::new(write_config());
    world.write(0, &[7; 2 * PIECE]);
    world.open = None;
    world.answer(1, None);
    world.answer(0, None);
    let open: Vec<&Request> = world.in_flight.values().collect();
    let [Request::FileOpen(open)] = open[..] else { panic!("{open:?}") };
    assert_eq!((open.by, open.write), (opener(2), true));
    world.settle();
    assert_eq!(world.stored, [7; 2 * PIECE]);
    // One that is never known waits longer and longer, and is told.
    let mut world = World::new(write_config());
    world.write(0, &[7; PIECE]);
    let mut openings = 0;
    while world.failures.is_empty() {
        match world.in_flight.first_key_value().map(|(_, request)| request.clone()) {
            None => world.now = world.machine.next_due(world.now).expect("it is tried again"),
            Some(Request::FileOpen(_)) => {
                openings += 1;
                world.answer(0, None);
            }
            Some(_) => world.answer(0, Some(FileOutcome::NotOpen)),
        }
        world.pump();
    }
    assert!(matches!(world.failures[0], WriteFailure::Refused { outcome: FileOutcome::NotOpen, .. }));
    assert!((5..50).contains(&openings), "{openings} openings");
}

#[test]
fn a_write_without_an_answer_is_kept_and_an_append_is_not() {
    let deadline =
        || Err(SessionError::Deadline { request: "FileWrite", waited: Duration::from_secs(9), last: "cut".to_owned() });
    let mut world = World::new(write_config());
    world.write(0, &[7; PIECE]);
    let number = *world.in_flight.first_key_value().expect("it left").0;
    world.in_flight.clear();
    world.machine.answered(world.now, number, deadline());
    assert!(matches!(world.machine.take_failure(), Some(WriteFailure::Session(SessionError::Deadline { .. }))));
    world.settle();
    assert_eq!(world.stored, [7; PIECE]);

    let mut world = World::new(WriteConfig { append: true, ..write_config() });
    for part in [&b"one "[..], b"two ", b"three "] {
        world.write(0, part);
        world.machine.end_piece();
        world.pump();
    }
    assert_eq!(world.in_flight.len(), 1, "appends go one after the other");
    let number = *world.in_flight.first_key_value().expect("it left").0;
    world.in_flight.clear();
    world.machine.answered(world.now, number, deadline());
    let unknown = world.machine.take_failure();
    assert_eq!(unknown, Some(WriteFailure::AppendUnknown { bytes: 4, last: "cut".to_owned() }));
    world.settle();
    assert_eq!(world.stored, b"two three ");
    assert_eq!((world.machine.end(), world.machine.acknowledged_bytes()), (10, 10));
}

/// What the server of a file with these bytes does with pieces that are appended at their places, when it remembers nothing of them.
fn take_appends(world: &mut World, stored: &mut Vec<u8>) {
    for _ in 0..100 {
        let Some((number, request)) = world.in_flight.pop_first() else {
            let Some(due) = world.machine.next_due(world.now) else { return };
            world.now = due;
            world.pump();
            continue;
        };
        let is_alone = world.in_flight.is_empty();
        let answer = match request {
            Request::FileOpen(_) => done(0),
            Request::FileWrite(write, _) if write.start < Some(stored.len() as u64) => said(FileOutcome::Conflict, 0),
            Request::FileWrite(write, bytes) => {
                assert!(write.appends);
                stored.resize(write.start.expect("a place") as usize, 0);
                stored.extend_from_slice(&bytes);
                done(write.start.expect("a place"))
            }
            Request::FileRead(read) if is_alone => {
                let (start, end) = (read.start as usize, (read.start + u64::from(read.bytes)) as usize);
                let found = stored[start.min(stored.len())..end.min(stored.len())].to_vec();
                Ok(Answer::FileBytes(ReadOutcome::Found, found.into()))
            }
            Request::FileStat(_) if is_alone => {
                let length = stored.len() as u64;
                let (outcome, sums) = (ReadOutcome::Found, None);
                let (sealed, is_written, written_unix_ns) = (false, true, 0);
                Ok(Answer::FileInfos(vec![FileInfo { outcome, sealed, is_written, sums, length, written_unix_ns }]))
            }
            other => panic!("{other:?}"),
        };
        world.machine.answered(world.now, number, answer);
        world.pump();
    }
    panic!("it does not come to rest");
}

/// Three pieces that are appended behind 100 bytes, the last of which were appended before, and have no answer; and the file with them.
fn appended() -> (World, Vec<u8>) {
    let mut world = World::new(write_config());
    world.machine.set_appends(true);
    let bytes: Vec<u8> = (0..4 * PIECE).map(|byte| 1 + byte as u8 % 250).collect();
    let start = 100 - PIECE;
    world.stored = vec![0; start];
    world.write(start as u64, &bytes);
    assert_eq!(world.in_flight.len(), 1, "the first one finds its place");
    world.answer(0, None);
    assert_eq!(world.in_flight.len(), 3);
    (world, [&vec![0; start], &bytes[..]].concat())
}

/// It says that nobody has the file open.
fn server_starts(world: &mut World) {
    while let Some((number, _)) = world.in_flight.pop_first() {
        world.machine.answered(world.now, number, said(FileOutcome::NotOpen, 0));
    }
    world.pump();
}

fn failure_of(world: &mut World) -> Option<WriteFailure> {
    world.failures.pop().or_else(|| world.machine.take_failure())
}

fn conflict_at(start: u64) -> Option<WriteFailure> {
    Some(WriteFailure::Refused { outcome: FileOutcome::Conflict, start: Some(start), bytes: PIECE as u64 })
}

#[test]
fn of_what_was_appended_to_a_server_that_ended_is_asked_again_what_is_not_there() {
    for server_ends in [server_starts, |world: &mut World| world.machine.server_was_away()] {
        for there in 0..=3 {
            let (mut world, whole) = appended();
            server_ends(&mut world);
            let mut stored = whole[..100 + there * PIECE].to_vec();
            take_appends(&mut world, &mut stored);
            assert_eq!((failure_of(&mut world), world.machine.is_idle()), (None, true), "{there} of them are there");
            assert!(stored == whole && world.machine.acknowledged_bytes() == 4 * PIECE as u64);
            world.write(100, &[7; PIECE]);
            assert_eq!(world.in_flight.len(), 1, "nothing is waited for any more");
        }
        // Another machine has appended meanwhile: of what comes later nobody knows whether it is there.
        let (mut world, mut stored) = appended();
        server_ends(&mut world);
        stored.truncate(100 + PIECE);
        stored.extend_from_slice(b"of another");
        take_appends(&mut world, &mut stored);
        assert_eq!(failure_of(&mut world), conflict_at(100 + PIECE as u64));
        assert_eq!(world.machine.acknowledged_bytes(), 3 * PIECE as u64);
    }
}

#[test]
fn what_is_appended_goes_behind_what_another_appended_meanwhile() {
    let (mut world, whole) = appended();
    world.machine.offer(100 + 3 * PIECE as u64, b"and more").expect("not too long");
    // The same bytes, which are of another all the same.
    let mut stored = [&whole[..], b"of another"].concat();
    take_appends(&mut world, &mut stored);
    world.machine.end_piece();
    world.pump();
    take_appends(&mut world, &mut stored);
    assert_eq!((failure_of(&mut world), world.machine.is_idle()), (None, true));
    assert_eq!(stored, [&whole[..], b"of another", &whole[100..], b"and more"].concat());
    assert_eq!(world.machine.end(), stored.len() as u64);

    // Unless some of it lies behind that already.
    let (mut world, mut stored) = appended();
    stored.truncate(110);
    take_appends(&mut world, &mut stored);
    assert_eq!(failure_of(&mut world), conflict_at(100));

    // Or something is written in the place to which it would go.
    let (mut world, whole) = appended();
    world.machine.set_appends(false);
    let elsewhere = whole.len() as u64 + 20;
    world.machine.offer(elsewhere, b"elsewhere").expect("not too long");
    take_appends(&mut world, &mut [&whole[..], b"of another"].concat());
    assert_eq!(failure_of(&mut world), conflict_at(100));
}

#[test]
fn what_is_appended_stays_together() {
    let mut world = World::new(WriteConfig { append: true, ..write_config() });
    let mut lines = Vec::new();
    for number in 0..50 {
        let line = format!("line {number} of a log that grows\n");
        world.write(0, line.as_bytes());
        lines.push(line);
        let (before, others) = (world.stored.len(), number % 3 == 0);
        world.answer(0, None);
        if others && world.stored.len() > before {
            world.stored.extend_from_slice(b"OTHERS\n");
        }
    }
    world.settle();
    let text = String::from_utf8(world.stored).expect("whole lines");
    let found: Vec<&str> = text.split_inclusive('\n').filter(|line| *line != "OTHERS\n").collect();
    assert_eq!(found, lines);
}

#[test]
fn nothing_is_written_beyond_the_longest_file() {
    let mut machine = WriteBehind::new(write_config(), blocks());
    let most = forebay_types::limits::FILE_BYTES_MAX;
    assert_eq!(machine.offer(most - 3, b"some"), Err(FileOutcome::TooLarge));
    assert_eq!(machine.offer(u64::MAX, b"some"), Err(FileOutcome::TooLarge));
    assert_eq!(machine.offer(most - 4, b"some"), Ok(4));
    let nobody = machine.next_request(Time(0));
    assert_eq!(nobody, None);
    machine.answered(Time(0), 99, done(0)); // of a request that nobody made
}
