//! Reading what a drive has damaged, or takes along.

use std::time::Duration;

use forebay_media::MemoryMedia;
use forebay_types::{DriveNumber, EventKey, ReadOutcome, SourceId, crc32c};

use super::{DRIVE_BYTES, DRIVES, Driven, Lane};
use crate::api::{Admission, DriveInfo, Fetch, LaneEvent, Membership, Put, Reply, Token};

const SOURCES: u32 = 300;
const TIMEOUT: Duration = Duration::from_secs(10);

fn payload(source: u32) -> Vec<u8> {
    vec![source as u8; 40]
}

/// Puts a fragment of each source and waits until all are stored; gives the bytes of their payloads.
fn put_all(driven: &mut Driven, key: EventKey, sources: u32, payload: impl Fn(u32) -> Vec<u8>) -> u64 {
    let mut bytes = 0;
    for source in 0..sources {
        let payload = payload(source);
        bytes += payload.len() as u64;
        let put = Put { id: key.fragment(SourceId(source)), expected: sources as u16, crc: crc32c(&payload) };
        assert_eq!(driven.lane.put(Token(1), &put, &payload), Admission::Pending);
    }
    let mut stored = 0;
    while stored < sources {
        let Reply::Stored { records, .. } = driven.reply() else { panic!("a put was refused") };
        stored += records;
    }
    bytes
}

#[test]
fn a_damaged_row_is_put_right_once_for_all_of_its_fragments() {
    let mut found = 0;
    for damaged in 0..3 {
        let mut driven = Driven::new(|config| config.cache_bytes = 0);
        let key = EventKey::new(1, 1);
        put_all(&mut driven, key, SOURCES, payload);
        driven.drives.corrupt(DriveNumber(damaged), 0..DRIVE_BYTES, 1);
        driven.reads = 0;
        for source in 0..SOURCES {
            assert_eq!(driven.read(key, source), (ReadOutcome::Found, payload(source)), "source {source}");
        }
        // 300 fragments lie in two flushes with a few rows: each row is read twice at most, the second time with the headers.
        assert!(driven.reads < 60, "{} reads with drive {damaged} damaged", driven.reads);
        let counters = driven.lane.status().counters;
        assert!(counters.units_damaged < 8 && counters.fragments_lost == 0, "{counters:?}");
        // A drive whose header is damaged gives no units at all.
        let named = (damaged, counters.units_damaged);
        assert!(counters.units_damaged == 0 || counters.units_damaged_by_drive.into_iter().eq([named]));
        found += counters.units_damaged;
    }
    assert!(found > 0);
}

#[test]
fn what_a_missing_drive_holds_is_computed_from_the_same_places_of_the_others() {
    // In rows of two units: a fragment lies in one unit, in two of a row, or over the end of a row.
    const LARGE: u32 = 20;
    const ROW_BYTES: u64 = 64 << 10;
    let large = |source: u32| -> Vec<u8> { (0..10_000 + source * 7).map(|at| (at * 31 + source) as u8).collect() };
    for away in 0..DRIVES {
        let mut driven = Driven::new(|config| {
            config.cache_bytes = 0;
            config.geometry.unit_bytes = 32 << 10;
            config.flush_bytes = 256 << 10;
        });
        let key = EventKey::new(1, 1);
        let bytes = put_all(&mut driven, key, LARGE, large);
        let mut drives = driven.lane.config.drives.clone();
        (drives[usize::from(away)].member, drives[usize::from(away)].present) = (false, false);
        driven.lane.membership(&Membership::Drives(drives));
        driven.turn();
        driven.reads = 0;
        for source in 0..LARGE {
            assert_eq!(driven.read(key, source), (ReadOutcome::Found, large(source)), "source {source}");
        }
        // Each row once from two drives, and once more at its end for the fragment that goes on in the next; no headers.
        let rows = bytes / ROW_BYTES + 2;
        assert!((1..=rows * 4).contains(&driven.reads), "{} reads of {rows} rows without drive {away}", driven.reads);
        let counters = driven.lane.status().counters;
        assert!(counters.fragments_read_degraded > 0 && counters.units_damaged == 0, "{counters:?}");
    }
}

#[test]
fn a_drive_is_needed_as_long_as_a_checkpoint_names_an_emptied_segment_there() {
    const OUT: DriveNumber = DriveNumber(0);
    fn on_it(driven: &Driven) -> (bool, u64) {
        let status = driven.lane.status();
        let segments =
            status.drive_health.iter().find(|health| health.drive == OUT.0).map(|health| health.segments_alive);
        (status.rebuild.is_whole, segments.unwrap_or_default())
    }
    let mut driven = Driven::new(|_| {});
    let key = EventKey::new(1, 1);
    driven.put(key, 0, 1, 20_000);
    let index = driven.lane.segments.iter().next().expect("one").0;
    let mut drives = driven.lane.config.drives.clone();
    drives[usize::from(OUT.0)].member = false;
    driven.lane.membership(&Membership::Drives(drives));
    (0..20).for_each(|_| driven.turn());
    // As a read that is under way.
    driven.lane.segments.get_mut(index).pins += 1;
    driven.delete(key);
    (0..20).for_each(|_| driven.turn());
    assert_eq!((driven.lane.status().fragments, on_it(&driven)), (0, (false, 1)));
    driven.lane.segments.get_mut(index).pins -= 1;
    // Not quiet: nobody needs the room.
    let more = EventKey::new(1, 2);
    (0..40).for_each(|source| driven.put(more, source, 40, 100));
    assert_eq!(on_it(&driven), (true, 0));
    let gone = |drive: &mut DriveInfo| drive.present = drive.number != OUT && drive.number != DriveNumber(1);
    let driven = super::survey::reopened(driven, |config| config.drives.iter_mut().for_each(gone));
    assert_eq!((driven.lane.status().segments_unreadable, driven.lane.status().flushes_possibly_lost), (0, 0));
}

#[test]
fn bad_sectors_of_several_drives_take_nothing_along_that_lies_in_other_rows() {
    for read_only in [false, true] {
        let mut driven = Driven::new(|config| config.cache_bytes = 0);
        let key = EventKey::new(1, 1);
        driven.put(key, 1, 1, 50_000);
        if read_only {
            driven = super::survey::reopened(driven, |config| config.read_only = true);
        }
        let (_, segment) = driven.lane.segments.iter().next().expect("one");
        let (flush, unit) = (segment.flushes[0], u64::from(segment.unit_bytes));
        let shards = segment.shards.clone();
        // Each drive has a bad sector in a row of its own.
        for (row, place) in shards.iter().enumerate() {
            let units = driven.lane.slot_offset(*place) + flush.offset_bytes + u64::from(flush.header_bytes);
            let bad = units + row as u64 * unit;
            driven.drives.spoil(place.drive, bad..bad + 1);
        }
        let (outcome, payload) = driven.read(key, 1);
        assert_eq!((outcome, payload == vec![1; 50_000]), (ReadOutcome::Found, true), "read-only: {read_only}");
        assert_eq!(driven.lane.status().counters.fragments_lost, 0);
    }
}

/// What a read comes to, and how long it takes, of a record of many rows while a drive does not answer.
fn read_beside_a_silent_drive(mut driven: Driven, key: EventKey, silent: DriveNumber) -> (ReadOutcome, bool, Duration) {
    driven.drives.hold(silent);
    let (mut into, began) = (Vec::new(), driven.now);
    assert!(matches!(driven.lane.get(Token(9), key.fragment(SourceId(1)), &mut into), Fetch::Pending { .. }));
    loop {
        driven.pass(Duration::from_millis(50));
        if let Some(Reply::Read { outcome, payload, .. }) = driven.lane.next_reply() {
            return (outcome, payload == vec![1; 50_000], driven.now.since(began));
        }
    }
}

#[test]
fn a_read_waits_once_for_a_drive_that_does_not_answer() {
    for silent in (0..DRIVES).map(DriveNumber) {
        let mut driven = Driven::new(|config| (config.cache_bytes, config.drive_timeout) = (0, TIMEOUT));
        let key = EventKey::new(1, 1);
        driven.put(key, 1, 1, 50_000);
        // One bad place more: the direct way is of no use.
        let (_, segment) = driven.lane.segments.iter().next().expect("one");
        let (flush, other) = (segment.flushes[0], segment.shards.iter().find(|place| place.drive != silent));
        let other = *other.expect("there are three");
        let units = driven.lane.slot_offset(other) + flush.offset_bytes + u64::from(flush.header_bytes);
        driven.drives.spoil(other.drive, units..units + 1);
        let (outcome, _, waited) = read_beside_a_silent_drive(driven, key, silent);
        assert_eq!(outcome, ReadOutcome::Unavailable, "two of three do not give the first row");
        assert!(waited < TIMEOUT * 2, "{waited:?} with {silent:?}");
    }
}

#[test]
fn a_start_for_reading_goes_on_without_a_drive_that_does_not_answer() {
    for silent in (0..DRIVES).map(DriveNumber) {
        let mut driven = Driven::new(|config| (config.cache_bytes, config.drive_timeout) = (0, TIMEOUT));
        for event in 0..100 {
            driven.put(EventKey::new(1, event), 1, 1, 50_000);
        }
        let (mut config, began) = (driven.lane.config.clone(), driven.now);
        (config.read_only, config.epoch) = (true, config.epoch + 1);
        driven.drives.hold(silent);
        driven.media = MemoryMedia::new(&driven.drives);
        driven.lane = Lane::new(config, driven.now);
        while driven.lane.serves_reads().is_err() {
            driven.pass(Duration::from_millis(50));
            assert!(driven.now.since(began) < TIMEOUT * 4, "without {silent:?}");
        }
        let told = std::iter::from_fn(|| driven.lane.next_event());
        assert!(told.into_iter().any(|event| matches!(event, LaneEvent::DriveFailed { drive, .. } if drive == silent)));
        for event in 0..100 {
            let (outcome, payload) = driven.read(EventKey::new(1, event), 1);
            assert_eq!((outcome, payload == vec![1; 50_000]), (ReadOutcome::Found, true), "event {event}");
        }
        assert_eq!(driven.lane.status().flushes_lost, 0);
    }
}
