//! What a lane tells of what lies on its drives.

use std::ops::Range;

use forebay_media::MemoryMedia;
use forebay_types::limits::BLOCK_BYTES;
use forebay_types::{DriveNumber, EventKey};

use super::{Driven, Lane};
use crate::api::{LaneConfig, Token};
use crate::check::{FlushCheck, HeaderCheck};
use crate::lane::{Looked, StoredSegment};
use crate::segments::SegmentState;
use crate::survey::{CheckpointState, FlushFate, Found, Listed, SegmentFound};

/// A lane with so many fragments, each in a flush of its own.
fn with_fragments(count: u64) -> Driven {
    let mut driven = Driven::new(|config| config.cache_bytes = 0);
    for event in 0..count {
        driven.put(EventKey::new(1, event), 1, 1, 20_000);
    }
    driven
}

/// The lane after a crash, for reading alone.
pub(super) fn reopened(mut driven: Driven, change: impl FnOnce(&mut LaneConfig)) -> Driven {
    let mut config = driven.lane.config.clone();
    config.read_only = true;
    change(&mut config);
    driven.media = MemoryMedia::new(&driven.drives);
    driven.lane = Lane::new(config, driven.now);
    while !driven.lane.is_serving() {
        driven.turn();
    }
    driven
}

fn segment(driven: &Driven) -> StoredSegment {
    let segments = driven.lane.stored_segments();
    assert_eq!(segments.len(), 1, "one segment was filled");
    segments[0].clone()
}

fn check(driven: &mut Driven, flush: Option<u32>) -> FlushCheck {
    let segment = segment(driven);
    assert!(driven.lane.check_flush(Token(9), segment.handle, flush, true));
    match looked(driven) {
        Looked::Flush(check) => check,
        other => panic!("{other:?}"),
    }
}

fn looked(driven: &mut Driven) -> Looked {
    loop {
        if let Some((token, looked)) = driven.lane.next_looked() {
            assert_eq!(token, Token(9));
            return looked;
        }
        driven.turn();
    }
}

/// The bytes of a flush's units on the drive that holds `shard`.
fn units(driven: &mut Driven, flush: u32, shard: usize) -> (DriveNumber, Range<u64>) {
    let check = check(driven, Some(flush));
    let shard = &check.shards[shard];
    let start = shard.header_offset_bytes + shard.header_bytes;
    (shard.place.drive, start..start + u64::from(check.rows) * 4096)
}

fn found(driven: &Driven) -> &SegmentFound {
    let mut opened = driven.lane.findings().segments.iter().filter(|segment| segment.found != Found::Empty);
    let first = opened.next().expect("a segment was opened");
    assert!(opened.next().is_none(), "one alone");
    first
}

fn fates(driven: &Driven) -> Vec<FlushFate> {
    found(driven).flushes.iter().map(|flush| flush.fate).collect()
}

#[test]
fn a_flush_that_lies_as_it_was_written_is_right_and_damage_is_named_where_it_lies() {
    let mut driven = with_fragments(3);
    let whole = check(&mut driven, Some(1));
    assert!(whole.is_right() && whole.is_readable() && whole.headers == 3 && whole.rows > 2, "{whole:?}");
    let (drive, range) = units(&mut driven, 1, 2);
    driven.drives.corrupt(drive, range.start + 4096..range.start + 3 * 4096, 7);
    let damaged = check(&mut driven, Some(1));
    assert!(!damaged.is_right() && damaged.is_readable(), "{damaged:?}");
    let wrong = &damaged.shards[2].units;
    assert_eq!((wrong.len(), wrong[0].rows.clone(), wrong[0].offset_bytes), (1, 1..3, range.start + 4096));
    assert_eq!((wrong[0].bytes, wrong[0].unreadable), (2 * 4096, false));
    assert!(damaged.shards[..2].iter().all(|shard| shard.units.is_empty()));

    // A second drive, in one of the two rows: that one is lost.
    let (other, range) = units(&mut driven, 1, 0);
    driven.drives.corrupt(other, range.start + 2 * 4096..range.start + 3 * 4096, 8);
    let lost = check(&mut driven, Some(1));
    assert_eq!((lost.rows_lost, lost.rows_unavailable, lost.is_readable()), (1, 0, false));
    assert!(check(&mut driven, Some(0)).is_right() && check(&mut driven, Some(2)).is_right());
    // The header alone.
    let header = whole.shards[1].header_offset_bytes;
    driven.drives.corrupt(whole.shards[1].place.drive, header..header + 4096, 9);
    let headless = check(&mut driven, Some(1));
    assert_eq!((headless.headers, headless.shards[1].header), (2, HeaderCheck::Wrong));
    assert!(headless.shards[1].units.is_empty(), "its units have the sums of the others' header");
}

#[test]
fn a_check_of_what_is_not_there_is_refused_and_one_under_way_pins_its_segment() {
    let mut driven = with_fragments(1);
    let stored = segment(&driven);
    assert!(!driven.lane.check_flush(Token(9), stored.handle, Some(77), true));
    assert!(!driven.lane.check_flush(Token(9), stored.handle, None, true), "it is not closed");
    assert!(driven.lane.check_flush(Token(9), stored.handle, Some(0), true));
    let index = driven.lane.segments.iter().next().expect("one").0;
    assert_eq!(driven.lane.segments.get(index).pins, 1);
    let Looked::Flush(check) = looked(&mut driven) else { panic!("a flush was asked for") };
    assert!(check.is_right());
    assert_eq!(driven.lane.segments.get(index).pins, 0);
}

#[test]
fn a_drive_that_is_not_there_is_told_from_one_that_is_damaged() {
    let mut driven = reopened(with_fragments(2), |config| config.drives[1].present = false);
    let one = check(&mut driven, Some(0));
    let absent = one.shards.iter().filter(|shard| shard.header == HeaderCheck::Absent).count();
    assert!(absent == 1 && one.is_right() && one.is_readable(), "{one:?}");
    let mut driven = reopened(driven, |config| config.drives[2].present = false);
    let two = check(&mut driven, Some(0));
    assert_eq!((two.rows_unavailable, two.rows_lost), (two.rows, 0));
    // A drive that gives nothing is not a damaged one either.
    let mut driven = reopened(driven, |config| config.drives.iter_mut().for_each(|drive| drive.present = true));
    driven.lane.keep_drives_that_fail_reads();
    driven.drives.fail_drive(DriveNumber(0));
    let failing = check(&mut driven, Some(0));
    let shard = failing.shards.iter().find(|shard| shard.place.drive == DriveNumber(0)).expect("it has one");
    assert!(shard.header == HeaderCheck::Unreadable && shard.units.iter().all(|units| units.unreadable), "{shard:?}");
    assert!(failing.is_readable() && !failing.is_right());
}

#[test]
fn after_a_crash_each_flush_is_told_with_its_fate() {
    let mut driven = with_fragments(3);
    let (drive, last) = units(&mut driven, 2, 1);
    let (other, same) = units(&mut driven, 2, 0);
    let (first_drive, first) = units(&mut driven, 0, 1);
    let (second_drive, second) = units(&mut driven, 0, 0);
    let driven = reopened(driven, |_| {});
    assert_eq!((found(&driven).listed, found(&driven).found), (Listed::Planned, Found::Walked));
    assert_eq!(fates(&driven), [FlushFate::Stays; 3]);
    assert!(driven.lane.findings().checkpoint.is_some());
    driven.drives.corrupt(drive, last, 3);
    let driven = reopened(driven, |_| {});
    assert_eq!(fates(&driven), [FlushFate::Stays, FlushFate::Stays, FlushFate::Torn]);
    assert_eq!(driven.lane.stored_events(EventKey::default(), 10).len(), 3, "what is torn is read where it is");
    driven.drives.corrupt(other, same, 4);
    let driven = reopened(driven, |_| {});
    assert_eq!(fates(&driven), [FlushFate::Stays, FlushFate::Stays, FlushFate::Discarded]);
    // With a drive missing, nobody knows.
    let driven = reopened(driven, |config| config.drives.iter_mut().for_each(|d| d.present = d.number != drive));
    assert_eq!(fates(&driven)[2], FlushFate::Unavailable);
    // The first one is known to be durable by the headers behind it; its table lies in its header.
    driven.drives.corrupt(first_drive, first, 5);
    driven.drives.corrupt(second_drive, second, 6);
    let driven = reopened(driven, |config| config.drives.iter_mut().for_each(|d| d.present = true));
    assert_eq!(fates(&driven)[0], FlushFate::Stays, "its records are known, its payloads are lost");
    let flush = found(&driven).flushes[0];
    assert!(flush.durable && flush.events == (forebay_types::EventId(0), forebay_types::EventId(0)), "{flush:?}");
}

#[test]
fn both_places_of_a_checkpoint_are_told() {
    let mut driven = with_fragments(1);
    driven.lane.check_checkpoints(Token(9));
    let Looked::Checkpoints(places) = looked(&mut driven) else { panic!("places were asked for") };
    assert_eq!(places.len(), 6, "two on each drive");
    let mut sequences: Vec<u64> = places
        .iter()
        .map(|place| match place.state {
            CheckpointState::Whole { sequence, .. } => sequence,
            ref other => panic!("{other:?}"),
        })
        .collect();
    sequences.sort_unstable();
    sequences.dedup();
    assert_eq!(sequences.len(), 2, "the newest and the one before");
    driven.drives.corrupt(places[3].drive, places[3].offset_bytes + 4096..places[3].offset_bytes + 8192, 1);
    let newest = sequences[1];
    let mut driven = reopened(driven, |_| {});
    assert_eq!(driven.lane.findings().checkpoint.map(|taken| taken.sequence), Some(newest));
    driven.lane.check_checkpoints(Token(9));
    let Looked::Checkpoints(after) = looked(&mut driven) else { panic!("places were asked for") };
    assert!(matches!(after[3].state, CheckpointState::Damaged(_)), "{:?}", after[3]);
    assert_eq!(after.iter().filter(|place| matches!(place.state, CheckpointState::Whole { .. })).count(), 5);
}

#[test]
fn a_closing_flush_that_a_stop_left_on_some_drives_alone_is_written_again() {
    const TORN: DriveNumber = DriveNumber(1);
    let mut driven = with_fragments(0);
    let mut event = 0;
    let closed =
        |driven: &Driven| driven.lane.segments.iter().any(|(_, segment)| segment.state == SegmentState::Closed);
    while !closed(&driven) {
        event += 1;
        driven.put(EventKey::new(1, event), 1, 1, 50_000);
    }
    let config = driven.lane.config.clone();
    let slot_bytes = config.geometry.slot_bytes;
    let of_closing = |driven: &mut Driven| {
        let stored = driven.lane.stored_segments().into_iter().min_by_key(|segment| segment.id).expect("one at least");
        assert!(driven.lane.check_flush(Token(9), stored.handle, None, true), "it is closed");
        match looked(driven) {
            Looked::Flush(check) => check,
            other => panic!("{other:?}"),
        }
    };
    let shard = of_closing(&mut driven).shards.into_iter().find(|shard| shard.place.drive == TORN).expect("on all");
    let unit =
        shard.header_offset_bytes + BLOCK_BYTES as u64 - slot_bytes..shard.header_offset_bytes + BLOCK_BYTES as u64;
    driven.drives.corrupt(TORN, unit.end - 3 * BLOCK_BYTES as u64..unit.end, 1);
    assert!(!of_closing(&mut driven).is_right());
    driven.media = MemoryMedia::new(&driven.drives);
    driven.lane = Lane::new(LaneConfig { epoch: config.epoch + 1, ..config }, driven.now);
    while !driven.lane.is_serving() {
        driven.turn();
    }
    (0..20).for_each(|_| driven.turn());
    assert!(of_closing(&mut driven).is_right());
}
