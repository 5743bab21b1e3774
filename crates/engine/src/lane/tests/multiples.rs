//! A lane on a media that appends in multiples alone, and wants to know what is free.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_media::{Media, Operation};
use forebay_types::{EventKey, ReadOutcome, Time};

use super::Driven;
use crate::api::LaneConfig;
use crate::lane::Lane;

const MULTIPLE: usize = 32 << 10;

fn on_one_drive(config: &mut LaneConfig) {
    config.geometry.data_shards = 1;
    config.geometry.parity_shards = 0;
    config.parity_min = 0;
    config.geometry.unit_bytes = 32 << 10;
    config.drives.truncate(1);
    config.flush_multiple_bytes = MULTIPLE;
    config.tells_freed = true;
}

/// As [`Driven::turn`]; what is written to slots, and what is told to be free, is noted.
fn turn(driven: &mut Driven, writes: &mut Vec<(u64, usize)>, freed: &mut Vec<u64>) {
    let mut completions = Vec::new();
    driven.media.completions(&mut completions);
    completions.into_iter().for_each(|completion| driven.lane.complete(driven.now, completion));
    driven.lane.pump(driven.now);
    while let Some((_, offset, _)) = driven.lane.next_freed() {
        freed.push(offset);
    }
    let slots = driven.lane.config.geometry.layout(driven.lane.config.drives[0].slots).slots_offset();
    while let Some((id, operation)) = driven.lane.next_operation() {
        if let Operation::Write { offset_bytes, bytes, .. } = &operation
            && *offset_bytes >= slots
        {
            writes.push((*offset_bytes, *bytes));
        }
        driven.media.submit(id, operation);
    }
    driven.media.kick();
}

fn key(event: u64) -> EventKey {
    EventKey { run: forebay_types::RunId(1), event: forebay_types::EventId(event) }
}

#[test]
fn flushes_follow_each_other_in_whole_multiples_whatever_is_in_them() {
    follow_each_other(on_one_drive);
}

#[test]
fn also_when_a_multiple_is_larger_than_a_unit() {
    follow_each_other(|config| {
        on_one_drive(config);
        config.geometry.unit_bytes = 4096;
    });
}

fn follow_each_other(change: impl FnOnce(&mut LaneConfig)) {
    let mut driven = Driven::new(change);
    let (mut writes, mut freed) = (Vec::new(), Vec::new());
    let sizes = [1, 4000, 4096, 28_000, 32_768, 33_000, 60_000, 59_999, 7, 50_000, 100, 31_000];
    for (event, bytes) in sizes.into_iter().cycle().take(200).enumerate() {
        driven.begin_put(key(event as u64), 3, 1, bytes);
        let mut stored = false;
        while !stored {
            turn(&mut driven, &mut writes, &mut freed);
            stored = driven.lane.next_reply().is_some();
        }
    }
    let slot_bytes = driven.lane.config.geometry.slot_bytes;
    let begin = driven.lane.config.geometry.layout(driven.lane.config.drives[0].slots).slots_offset();
    let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
    for (offset, bytes) in writes {
        let (slot, in_slot) = ((offset - begin) / slot_bytes, (offset - begin) % slot_bytes);
        if in_slot + bytes as u64 == slot_bytes {
            continue; // what closes it
        }
        let end = ends.entry(slot).or_default();
        assert_eq!(in_slot, *end, "slot {slot}: each flush follows the one before");
        assert!(bytes.is_multiple_of(MULTIPLE), "{bytes} bytes");
        *end += bytes as u64;
    }
    assert!(ends.len() > 3, "{} segments", ends.len());
    // Another start reads them as any others.
    let config = LaneConfig { epoch: driven.lane.config.epoch + 1, ..driven.lane.config.clone() };
    driven.lane = Lane::new(config, Time(0));
    driven.start();
    for (event, bytes) in sizes.into_iter().cycle().take(200).enumerate() {
        assert_eq!(driven.read(key(event as u64), 3), (ReadOutcome::Found, vec![3; bytes]), "event {event}");
    }
}

#[test]
fn a_slot_is_told_to_be_free_when_nothing_in_it_lives_and_never_while_something_does() {
    let mut driven = Driven::new(on_one_drive);
    let slots = driven.lane.config.drives[0].slots as usize;
    let mut freed = Vec::new();
    while let Some((_, offset, _)) = driven.lane.next_freed() {
        freed.push(offset);
    }
    assert_eq!(freed.len(), slots, "a store without anything");
    for event in 0..100 {
        driven.put(key(event), 0, 1, 50_000);
    }
    assert_eq!(driven.lane.next_freed(), None);
    for event in 0..90 {
        driven.delete(key(event));
    }
    for _ in 0..1000 {
        driven.pass(Duration::from_millis(20));
    }
    let mut freed = Vec::new();
    while let Some((_, offset, _)) = driven.lane.next_freed() {
        freed.push(offset);
    }
    assert!(freed.len() >= 4, "{freed:?}");
    for event in 90..100 {
        assert_eq!(driven.read(key(event), 0).0, ReadOutcome::Found);
    }
}
