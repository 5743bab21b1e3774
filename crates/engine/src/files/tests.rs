use std::collections::BTreeSet;

use forebay_format::{SegmentId, SegmentState};
use forebay_types::{Time, WallTime};
use proptest::prelude::*;

use super::*;
use crate::segments::Segment;

const FILE: FileNumber = FileNumber(7);

fn segments(count: u64) -> (Segments, Vec<SegmentIndex>) {
    let mut segments = Segments::default();
    let segment = |counter| Segment {
        id: SegmentId { epoch: 1, nonce: 2, counter },
        state: SegmentState::Closed,
        data_shards: 2,
        parity_shards: 1,
        unit_bytes: 4096,
        shards: Vec::new(),
        flushes: Vec::new(),
        durable_position: 0,
        durable_flushes: 0,
        live_records: 0,
        live_bytes: 0,
        pins: 0,
        writing: false,
        written: WallTime::default(),
        misses_below: 0,
        scrub_at: Time::default(),
        scrub_round: 0,
        is_packed: false,
    };
    let indices = (0..count).map(|counter| segments.add(segment(counter))).collect();
    (segments, indices)
}

/// A lane's file with a segment for each record, so that what lives shows, beside the versions of its bytes.
struct World {
    files: Files,
    segments: Segments,
    places: Vec<SegmentIndex>,
    records: Vec<FileRecord>,
    /// The version that gave each byte, 0 for zeros.
    bytes: Vec<u32>,
}

impl World {
    fn new() -> World {
        let (segments, places) = segments(400);
        let files = Files { is_settled: true, ..Files::default() };
        World { files, segments, places, records: Vec::new(), bytes: Vec::new() }
    }

    fn change(&mut self, change: FileChange) -> u32 {
        let version = self.files.get(FILE).map_or(0, File::version) + 1;
        let record = FileRecord { file: FILE, version, change };
        let place = self.place(self.records.len());
        self.files.take(&record, place, |_, _| true, &mut self.segments);
        self.records.push(record);
        version
    }

    fn place(&self, at: usize) -> RecordPlace {
        RecordPlace { segment: self.places[at], position: at as u32, written_unix_ns: 1000 + at as i64 }
    }

    fn write(&mut self, start: usize, bytes: usize, appended: bool) {
        let piece = FileChange::Piece { start: start as u64, bytes: bytes as u32, crc: 0, appended };
        let version = self.change(piece);
        self.bytes.resize(self.bytes.len().max(start + bytes), 0);
        self.bytes[start..start + bytes].fill(version);
    }

    fn append(&mut self, bytes: usize) {
        self.write(self.bytes.len(), bytes, true);
    }

    /// As the lane does it: what would show again becomes holes first.
    fn truncate(&mut self, length: usize) {
        let file = self.files.get(FILE);
        let gaps = file.map_or(Vec::new(), |file| file.uncovered(file.stated_length()..length as u64));
        for hole in gaps.into_iter().flat_map(holes) {
            self.change(hole);
        }
        self.change(FileChange::State { length: length as u64, written_unix_ns: 5, sealed: false });
        self.bytes.resize(length, 0);
    }

    fn live(&self) -> Vec<usize> {
        (0..self.records.len()).filter(|at| self.segments.get(self.places[*at]).live_records > 0).collect()
    }
}

/// The version that gives each byte, as the files have it.
fn bytes_of(files: &Files) -> Vec<u32> {
    let Some(file) = files.get(FILE) else { return Vec::new() };
    let mut bytes = vec![0; file.length() as usize];
    for (start, extent) in file.in_range(0..u64::MAX) {
        if !extent.is_hole() {
            bytes[start as usize..][..extent.bytes as usize].fill(extent.version);
        }
    }
    bytes
}

/// What a start finds that meets these records in this order.
fn started(world: &World, met: &[usize], may_cut: bool) -> (Files, Segments, Vec<FileRecord>) {
    let (mut segments, places) = segments(400);
    let mut files = Files::default();
    for at in met {
        let place = RecordPlace { segment: places[*at], ..world.place(*at) };
        files.take(&world.records[*at], place, |_, known| places[*at] > known, &mut segments);
    }
    let mends = files.settle(|_| may_cut);
    for (nth, mend) in mends.iter().enumerate() {
        let place = RecordPlace { segment: places[world.records.len() + nth], ..world.place(0) };
        files.take(mend, place, |_, _| true, &mut segments);
    }
    (files, segments, mends)
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize, usize),
    Append(usize),
    Truncate(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..120usize, 1..40usize).prop_map(|(start, bytes)| Step::Write(start, bytes)),
        3 => (1..30usize).prop_map(Step::Append),
        2 => (0..150usize).prop_map(Step::Truncate),
    ];
    prop::collection::vec(step, 1..40)
}

fn play(steps: &[Step]) -> World {
    let mut world = World::new();
    for step in steps {
        match *step {
            Step::Write(start, bytes) => world.write(start, bytes, false),
            Step::Append(bytes) => world.append(bytes),
            Step::Truncate(length) => world.truncate(length),
        }
    }
    world
}

proptest! {
    #[test]
    fn files_are_what_was_written(steps in steps()) {
        let world = play(&steps);
        prop_assert_eq!(bytes_of(&world.files), world.bytes.clone());
        let file = world.files.get(FILE).expect("it was written");
        let live: u64 = world.places.iter().map(|place| world.segments.get(*place).live_records).sum();
        let extents: Vec<_> = file.in_range(0..u64::MAX).collect();
        let states = u64::from(file.state().is_some());
        prop_assert_eq!(live, extents.len() as u64 + states);
        prop_assert_eq!(world.files.extents, extents.len() as u64);
        let pieces: u64 = extents.iter().filter(|(_, e)| !e.is_hole()).map(|(_, e)| u64::from(e.bytes)).sum();
        let live_bytes: u64 = world.places.iter().map(|place| world.segments.get(*place).live_bytes).sum();
        prop_assert_eq!((live_bytes, world.files.piece_bytes()), (pieces, pieces));
        prop_assert!(extents.windows(2).all(|pair| pair[0].0 + u64::from(pair[0].1.bytes) <= pair[1].0));
    }

    /// Records that nothing needs any more may be gone or not, and all are met in any order.
    #[test]
    fn a_start_finds_the_same_whatever_dead_records_it_meets(steps in steps(), order in any::<u64>(), may_cut: bool) {
        let world = play(&steps);
        let live: BTreeSet<usize> = world.live().into_iter().collect();
        let hash = |at: usize| (order ^ at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let mut met: Vec<usize> = (0..world.records.len()).filter(|at| live.contains(at) || hash(*at) % 2 == 0).collect();
        met.sort_by_key(|at| hash(*at) >> 8);
        let (files, segments, mends) = started(&world, &met, may_cut);
        prop_assert_eq!(bytes_of(&files), world.bytes.clone());
        prop_assert_eq!(mends, vec![], "nothing is missing");
        let places = &world.places[..world.records.len()];
        let lived: Vec<u64> = places.iter().map(|place| world.segments.get(*place).live_records).collect();
        let found: Vec<u64> = places.iter().map(|place| segments.get(*place).live_records).collect();
        prop_assert_eq!(found, lived);
    }

    /// A copy of what lives is as good as what it was made of, and of the two one counts.
    #[test]
    fn copies_change_nothing(steps in steps(), from in 0..150u64, bytes in 1..60u64) {
        let mut world = play(&steps);
        let file = world.files.get(FILE).expect("it was written");
        let extents: Vec<_> = file.in_range(from..from + bytes).collect();
        let copied = extents.iter().map(|(start, e)| {
            let (bytes, version) = (e.bytes, e.version);
            let change = match e.is_hole() {
                true => FileChange::Hole { start: *start, bytes },
                false => FileChange::Piece { start: *start, bytes, crc: 9, appended: false },
            };
            FileRecord { file: FILE, version, change }
        });
        let before = file.version();
        let count = extents.len();
        for copy in copied.collect::<Vec<_>>() {
            let place = world.place(world.records.len());
            world.files.take(&copy, place, |_, _| true, &mut world.segments);
            world.records.push(copy);
        }
        prop_assert_eq!(bytes_of(&world.files), world.bytes.clone());
        prop_assert_eq!(world.files.get(FILE).expect("it is there").version(), before);
        let live = world.live();
        prop_assert!((world.records.len() - count..world.records.len()).all(|at| live.contains(&at)));
        let all: Vec<usize> = (0..world.records.len()).rev().collect();
        let (files, _, mends) = started(&world, &all, true);
        prop_assert_eq!((bytes_of(&files), mends), (world.bytes.clone(), vec![]));
    }
}

#[test]
fn an_end_takes_all_that_lives_along() {
    let mut world = play(&[Step::Append(10), Step::Truncate(5), Step::Truncate(20), Step::Write(2, 2)]);
    let (length, written_unix_ns, sealed) = (20, 77, true);
    let version = world.change(FileChange::State { length, written_unix_ns, sealed });
    let sums = FileRecord { file: FILE, version, change: FileChange::Sums { crc: 1, adler32: 2 } };
    let place = world.place(world.records.len());
    world.files.take(&sums, place, |_, _| true, &mut world.segments);
    let file = world.files.get(FILE).expect("it is there");
    assert_eq!(file.sums(), Some(Sums { crc: 1, adler32: 2 }));
    assert!(file.is_sealed() && file.written_unix_ns() == 77);
    assert!(world.files.end(FILE, &mut world.segments));
    assert!(!world.files.end(FILE, &mut world.segments));
    assert!(world.places.iter().all(|place| world.segments.get(*place).live_records == 0));
    assert_eq!((world.files.len(), world.files.extents, world.files.heap_bytes), (0, 0, 0));
}

#[test]
fn what_was_appended_behind_something_that_is_missing_is_cut_and_stays_so() {
    let mut world = World::new();
    world.append(10);
    world.append(10);
    world.append(10);
    world.append(5);
    // The second one did not reach the drives, and nobody was told that the others did.
    let (files, _, mends) = started(&world, &[0, 2, 3], true);
    assert_eq!(bytes_of(&files), vec![1; 10]);
    assert_eq!(mends.len(), 1);
    // It is unknown whether it was acknowledged: nothing is cut.
    let (files, _, mends) = started(&world, &[0, 2, 3], false);
    assert_eq!((bytes_of(&files).len(), mends.len()), (35, 0));
    // What the next start makes of it, when other bytes came in its place.
    let (file, version) = (FILE, mends_version(&world));
    world.records.push(FileRecord {
        file,
        version,
        change: FileChange::State { length: 10, written_unix_ns: 5, sealed: false },
    });
    let piece = FileChange::Piece { start: 10, bytes: 12, crc: 0, appended: true };
    world.records.push(FileRecord { file, version: version + 1, change: piece });
    let (files, _, mends) = started(&world, &[0, 2, 3, 4, 5], true);
    assert_eq!(bytes_of(&files), [vec![1; 10], vec![version + 1; 12]].concat());
    assert_eq!(mends, vec![]);
}

fn mends_version(world: &World) -> u32 {
    world.files.get(FILE).expect("it was written").version() + 1
}

#[test]
fn what_was_written_at_its_place_stays_where_appends_are_cut() {
    let mut world = World::new();
    world.append(10);
    world.append(10);
    world.append(10);
    world.write(50, 5, false);
    world.append(5);
    let (files, _, mends) = started(&world, &[0, 2, 3, 4], true);
    let expected = [vec![1; 10], vec![0; 40], vec![4; 5], vec![5; 5]].concat();
    assert_eq!(bytes_of(&files), expected, "an append behind what is there counts");
    assert_eq!(mends.len(), 2, "a hole and a state: {mends:?}");
    // Behind a length that was set there may be nothing.
    let world = play(&[Step::Append(10), Step::Truncate(30), Step::Append(5)]);
    let (files, _, mends) = started(&world, &[0, 1, 2], true);
    assert_eq!((bytes_of(&files), mends), (world.bytes.clone(), vec![]));
}

#[test]
fn a_hole_that_a_crash_took_is_made_up_for() {
    let mut world = World::new();
    world.append(20);
    world.truncate(5);
    world.truncate(15);
    assert!(matches!(world.records[2].change, FileChange::Hole { start: 5, bytes: 10 }), "{:?}", world.records);
    for order in [[0, 1, 3], [3, 1, 0], [0, 3, 1], [1, 3, 0], [1, 0, 3], [3, 0, 1]] {
        let (files, segments, mends) = started(&world, &order, true);
        assert_eq!(bytes_of(&files), world.bytes, "{order:?}");
        assert_eq!(mends.len(), 1, "{order:?}: {mends:?}");
        assert_eq!(segments.get(world.places[1]).live_records, 0, "the state before is not needed any more");
        // The hole that was made in its place says the same without that state.
        let mut with_mend = World { records: world.records.clone(), ..World::new() };
        with_mend.records.push(mends[0]);
        assert_eq!(bytes_of(&started(&with_mend, &[0, 3, 4], true).0), world.bytes);
    }
}

#[test]
fn when_it_was_written_is_what_its_newest_change_says() {
    let mut world = World::new();
    world.append(3);
    let written = |world: &World| world.files.get(FILE).expect("it is there").written_unix_ns();
    assert_eq!(written(&world), 1000);
    world.truncate(3);
    assert_eq!(written(&world), 5);
    world.append(3);
    assert_eq!(written(&world), 1002);
    let (files, ..) = started(&world, &[2, 1, 0], true);
    assert_eq!(files.get(FILE).expect("it is there").written_unix_ns(), 1002);
}

/// One piece and a seal are most files; some have many pieces.
#[test]
fn memory_is_told_as_it_is() {
    let (mut segments, places) = segments(1);
    let place = RecordPlace { segment: places[0], position: 7, written_unix_ns: 1 };
    let mut files = Files::default();
    let mut take = |files: &mut Files, number, version, change| {
        let record = FileRecord { file: FileNumber(number), version, change };
        files.take(&record, place, |_, _| true, &mut segments);
    };
    let piece = |start| FileChange::Piece { start, bytes: 4096, crc: 3, appended: true };
    let ((), held) = crate::measured::allocated_in(|| {
        for number in 0..10_000 {
            take(&mut files, number, 1, piece(0));
            take(&mut files, number, 2, FileChange::State { length: 4096, written_unix_ns: 5, sealed: true });
            take(&mut files, number, 2, FileChange::Sums { crc: 1, adler32: 2 });
        }
    });
    assert!(held >= 10_000 * 80 && held <= files.bytes() as i64, "{held} of {}", files.bytes());
    // With what names take beside their own bytes (`crates/names`) these are the 200 of docs/files.md.
    assert!(files.bytes() <= 10_000 * 90, "{} bytes a file", files.bytes() / 10_000);
    println!("{} bytes a file, {} are told", held / 10_000, files.bytes() / 10_000);
    let ((), more) = crate::measured::allocated_in(|| {
        (1..5000).for_each(|at| take(&mut files, 20_000, at as u32, piece(at * 4096)));
    });
    println!("{} bytes a further piece", more / 5000);
    assert!(held + more <= files.bytes() as i64);
    let before = files.bytes();
    let ((), less) = crate::measured::allocated_in(|| {
        for number in (0..10_000).filter(|number| number % 7 != 0) {
            files.end(FileNumber(number), &mut segments);
        }
    });
    assert!(files.bytes() < before / 2 && held + more + less <= files.bytes() as i64);
}

#[test]
fn what_a_torn_record_says_is_here_when_all_of_it_is_and_can_be_read() {
    let mut world = World::new();
    world.write(0, 100, false);
    world.write(50, 100, false);
    let (first, second) = (world.places[0], world.places[1]);
    let piece = |version, start, bytes| FileRecord {
        file: FILE,
        version,
        change: FileChange::Piece { start, bytes, crc: 0, appended: false },
    };
    let says = |world: &World, record: &FileRecord, lost: &[SegmentIndex]| {
        world.files.get(FILE).expect("it was written to").says(record, |segment| !lost.contains(&segment))
    };
    assert!(says(&world, &piece(1, 0, 100), &[]), "a copy; the second half was written over");
    assert!(says(&world, &piece(2, 50, 100), &[first]), "what lies elsewhere does not matter");
    assert!(!says(&world, &piece(1, 0, 100), &[second]) && !says(&world, &piece(1, 0, 100), &[first]));
    assert!(!says(&world, &piece(3, 0, 100), &[]), "newer than what is here");
    assert!(!says(&world, &piece(1, 0, 200), &[]), "nothing is here of a part of it");
    let state = |version| FileRecord {
        file: FILE,
        version,
        change: FileChange::State { length: 150, written_unix_ns: 9, sealed: true },
    };
    let sums = FileRecord { change: FileChange::Sums { crc: 1, adler32: 2 }, ..state(4) };
    assert!(!says(&world, &state(3), &[]) && !says(&world, &sums, &[]));
    world.change(state(3).change);
    world.change(sums.change);
    assert!(says(&world, &state(3), &[]) && says(&world, &sums, &[]));
    assert!(!says(&world, &state(2), &[]), "an older one cut what came before it");
    let other = FileRecord { change: FileChange::Sums { crc: 1, adler32: 3 }, ..sums };
    assert!(!says(&world, &other, &[]) && !says(&world, &sums, &[world.places[3]]));
}
