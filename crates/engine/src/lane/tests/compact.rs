//! What is written once more to make room.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_format::SegmentId;
use forebay_types::{DriveNumber, EventKey, ReadOutcome, SourceId, crc32c};

use super::{DRIVE_BYTES, Driven};
use crate::api::Reply;

/// Together with it the lane is two thirds full.
const EVENTS: u64 = 1000;
/// One of so many survives.
const SURVIVES: u64 = 10;

fn survivors() -> impl Iterator<Item = EventKey> {
    (0..EVENTS).filter(|event| event % SURVIVES == 0).map(|event| EventKey::new(1, event))
}

/// In which segment the fragment of each event lies.
fn places(driven: &Driven) -> BTreeMap<EventKey, SegmentId> {
    let lane = &driven.lane;
    let fragment = |key| lane.index.event(key).and_then(|event| event.fragment(SourceId(1))).expect("it survives");
    let place = |key| lane.segments.get(fragment(key).segment).id;
    survivors().map(|key| (key, place(key))).collect()
}

/// A lane that has said of a copy that nothing needs the drives any more on which its original lies does not go back to that.
#[test]
fn what_was_copied_lies_where_it_was_copied_to_after_a_crash() {
    let mut driven = Driven::new(|config| config.cache_bytes = 0);
    for event in 0..EVENTS {
        driven.put(EventKey::new(1, event), 1, 1, 30_000);
    }
    for event in (0..EVENTS).filter(|event| event % SURVIVES != 0) {
        driven.delete(EventKey::new(1, event));
    }
    let mut crashes = 0;
    let mut before = places(&driven);
    for _ in 0..20_000 {
        driven.now = driven.now + Duration::from_millis(1);
        driven.turn();
        let now = places(&driven);
        if now == before {
            continue;
        }
        // Copies count, and their originals are there still, as long as no checkpoint has let go of them.
        driven.reopen(false);
        assert_eq!(places(&driven), now, "after crash {crashes}");
        (crashes, before) = (crashes + 1, now);
    }
    assert!(crashes > 2, "{:?}", driven.lane.status());
}

/// What is copied is compared with its sum when it is: what a drive damaged is made from the others first, and no segment stays where it is for that.
#[test]
fn what_was_damaged_is_made_anew_before_it_is_copied() {
    let mut driven = Driven::new(|config| config.cache_bytes = 0);
    for event in 0..EVENTS {
        driven.put(EventKey::new(1, event), 1, 1, 30_000);
    }
    driven.drives.corrupt(DriveNumber(1), 0..DRIVE_BYTES, 1);
    for event in (0..EVENTS).filter(|event| event % SURVIVES != 0) {
        driven.delete(EventKey::new(1, event));
    }
    for _ in 0..2000 {
        driven.pass(Duration::from_millis(1));
    }
    let status = driven.lane.status();
    assert!(status.compaction.fragments_moved > 50 && status.compaction.segments_stuck == 0, "{status:?}");
    for key in survivors() {
        let (outcome, payload) = driven.read(key, 1);
        assert_eq!((outcome, payload.len()), (ReadOutcome::Found, 30_000), "{key:?}");
        assert_eq!(
            driven.lane.index.event(key).and_then(|event| event.fragment(SourceId(1))).map(|f| f.crc),
            Some(crc32c(&payload))
        );
    }
}

/// The lane is as full of small fragments, twenty to a flush, of which every third survives; gives how often drives were read until that much was
/// copied.
fn reads_to_make_room(read_through_bytes: u32) -> u64 {
    const SMALL: u64 = 10_000;
    let mut driven = Driven::new(|config| {
        config.cache_bytes = 0;
        config.index_bytes = 16 << 20;
        config.read_through_bytes = read_through_bytes;
    });
    let keys: Vec<EventKey> = (0..SMALL).map(|event| EventKey::new(1, event)).collect();
    for flush in keys.chunks(20) {
        for key in flush {
            driven.begin_put(*key, 1, 1, 3000);
        }
        let mut stored = 0;
        while stored < flush.len() as u32 {
            match driven.reply() {
                Reply::Stored { records, .. } => stored += records,
                other => panic!("{other:?}"),
            }
        }
    }
    for key in keys.iter().filter(|key| key.event.0 % 3 != 0) {
        driven.delete(*key);
    }
    let before = driven.reads;
    for _ in 0..2000 {
        driven.pass(Duration::from_millis(10));
    }
    let moved = driven.lane.status().compaction.bytes_moved;
    assert!(moved > 3_000_000, "{:?}", driven.lane.status());
    (driven.reads - before) * 1_000_000 / moved
}

/// A drive whose head would have to move reads what lies between two that survive as well.
#[test]
fn what_lies_between_is_read_with_what_survives_when_that_is_quicker() {
    let (apart, through) = (reads_to_make_room(1 << 10), reads_to_make_room(64 << 10));
    assert!(through * 3 < apart, "{apart} reads a megabyte one by one, {through} together");
}

/// Bytes that are copied in some turns of a lane that holds so many events, of which most were deleted: while somebody asks for something all the time, and while
/// nobody does.
fn moved(events: u64) -> [u64; 2] {
    [true, false].map(|is_asked| {
        let mut driven = Driven::new(|config| config.cache_bytes = 0);
        for event in 0..events {
            driven.put(EventKey::new(1, event), 1, 1, 30_000);
        }
        for event in (0..events).filter(|event| event % SURVIVES != 0) {
            driven.delete(EventKey::new(1, event));
        }
        driven.now = driven.now + Duration::from_secs(1);
        for _ in 0..30 {
            if is_asked {
                driven.lane.is_asked();
            }
            driven.pass(Duration::from_micros(100));
        }
        driven.lane.status().compaction.bytes_moved
    })
}

#[test]
fn beside_requests_room_is_made_more_slowly_until_it_is_short() {
    let [beside, alone] = moved(900);
    assert!(beside * 3 < alone * 2, "with two thirds taken {beside} bytes beside requests, {alone} without");
    let [when_full, _] = moved(1300);
    assert!(when_full > beside * 3 / 2, "with all taken {when_full} bytes beside requests, with two thirds {beside}");
}

/// Several segments are chosen when all are compared: they come in the order of what lives in each.
#[test]
fn segments_with_least_alive_are_emptied_first() {
    let mut driven = Driven::new(|config| config.cache_bytes = 0);
    for event in 0..EVENTS {
        driven.put(EventKey::new(1, event), 1, 1, 30_000);
    }
    let mut by_segment: BTreeMap<SegmentId, Vec<EventKey>> = BTreeMap::new();
    for key in (0..EVENTS).map(|event| EventKey::new(1, event)) {
        let fragment = driven.lane.index.event(key).and_then(|event| event.fragment(SourceId(1))).expect("it lives");
        by_segment.entry(driven.lane.segments.get(fragment.segment).id).or_default().push(key);
    }
    // The later a segment, the less of it lives.
    let count = by_segment.len();
    let mut order: Vec<SegmentId> = Vec::new();
    for (at, (id, keys)) in by_segment.iter().enumerate() {
        let left = if at + 1 == count { keys.len() } else { keys.len() * (count - at) / (2 * count) };
        keys[left..].iter().for_each(|key| driven.delete(*key));
        if (1..keys.len()).contains(&left) {
            order.push(*id);
        }
    }
    let mut emptied: Vec<SegmentId> = Vec::new();
    for _ in 0..5000 {
        driven.pass(Duration::from_millis(1));
        let alive: Vec<SegmentId> =
            driven.lane.segments.iter().filter(|(_, segment)| segment.live_records > 0).map(|(_, s)| s.id).collect();
        emptied.extend(
            order.iter().rev().filter(|id| !alive.contains(id) && !emptied.contains(id)).copied().collect::<Vec<_>>(),
        );
    }
    order.reverse();
    order.truncate(emptied.len());
    assert!(emptied.len() > 3, "{} of {count}", emptied.len());
    assert_eq!(emptied, order);
}
