//! What is made anew, and what had better stay where it is.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_format::SegmentState;
use forebay_media::{Delivery, Media, MemoryMedia, Operation};
use forebay_types::limits::BLOCK_BYTES;
use forebay_types::{DriveNumber, DriveUuid, EventKey, ReadOutcome, SourceId};

use super::{DRIVES, Driven, Lane};
use crate::api::{DriveInfo, LaneConfig, Membership, RebuildStatus};

/// Of the store's two more than a segment has shards.
const SPARE: u16 = 2;

fn with_spare(config: &mut LaneConfig) {
    for number in DRIVES..DRIVES + SPARE {
        let uuid = DriveUuid::from_bytes([number as u8 + 1; 16]);
        config.drives.push(DriveInfo { number: DriveNumber(number), uuid, ..config.drives[0] });
    }
    config.cache_bytes = 0;
}

impl Driven {
    /// The drives of the first segment.
    fn drives_of_first(&self) -> Vec<DriveNumber> {
        let (_, segment) = self.lane.segments.iter().next().expect("one");
        segment.shards.iter().map(|place| place.drive).collect()
    }

    fn change_drives(&mut self, change: impl Fn(&mut DriveInfo)) {
        let mut drives = self.lane.config.drives.clone();
        drives.iter_mut().for_each(change);
        self.lane.membership(&Membership::Drives(drives));
    }

    /// As long as it takes.
    fn rebuild(&mut self) -> RebuildStatus {
        for _ in 0..2000 {
            self.pass(Duration::from_millis(10));
        }
        self.lane.status().rebuild
    }

    /// The lane after a crash, with these drives alone. One that is not there is out of use, also when it is there again.
    fn reopen_with(&mut self, present: impl Fn(DriveNumber) -> bool) {
        let mut config = self.lane.config.clone();
        for drive in &mut config.drives {
            drive.present = present(drive.number);
            drive.member &= drive.present;
        }
        config.epoch += 1;
        self.media = MemoryMedia::new(&self.drives);
        self.lane = Lane::new(config, self.now);
        while !self.lane.is_serving() {
            self.turn();
        }
    }
}

#[test]
fn drives_that_can_still_be_read_help_though_more_are_taken_out_at_once_than_parity_makes_up_for() {
    let mut driven = Driven::new(with_spare);
    let key = EventKey::new(1, 1);
    driven.put(key, 1, 1, 50_000);
    let out = driven.drives_of_first()[..2].to_vec();
    driven.change_drives(|drive| drive.member = !out.contains(&drive.number));
    let rebuild = driven.rebuild();
    assert!(rebuild.is_whole && rebuild.segments_stuck == 0, "{rebuild:?}");
    driven.reopen_with(|drive| !out.contains(&drive));
    assert_eq!(driven.read(key, 1), (ReadOutcome::Found, vec![1; 50_000]));
}

#[test]
fn a_store_that_is_whole_stays_so_while_another_checkpoint_is_written() {
    let mut driven = Driven::new(with_spare);
    driven.put(EventKey::new(1, 1), 1, 1, 50_000);
    let out = driven.drives_of_first()[0];
    driven.change_drives(|drive| drive.member = drive.number != out);
    assert!(driven.rebuild().is_whole);
    driven.lane.checkpointer.wanted = true;
    driven.lane.pump(driven.now);
    assert!(driven.lane.operations_in_flight() > 0, "one is on its way");
    assert!(driven.lane.status().rebuild.is_whole, "{:?}", driven.lane.status().rebuild);
}

#[test]
fn what_is_emptied_before_its_turn_is_not_missing_any_more() {
    let mut driven = Driven::new(|_| {});
    let keys = [EventKey::new(1, 1), EventKey::new(1, 2)];
    keys.iter().for_each(|key| driven.put(*key, 1, 1, 50_000));
    let out = driven.drives_of_first()[0];
    driven.change_drives(|drive| drive.member = drive.number != out);
    let rebuild = driven.rebuild();
    assert!(rebuild.waits_for == Some("a drive") && rebuild.shards_missing > 0, "{rebuild:?}");
    keys.iter().for_each(|key| driven.delete(*key));
    let rebuild = driven.rebuild();
    assert_eq!((rebuild.shards_missing, rebuild.bytes_left, rebuild.is_whole), (0, 0, true), "{rebuild:?}");
    assert_eq!(driven.lane.shards_to_make(), 0, "no room is kept for them");
}

#[test]
fn what_brings_protection_back_does_not_wait_for_the_rest_of_a_scrub() {
    let mut driven = Driven::new(|config| {
        with_spare(config);
        config.background_percent = 1;
    });
    driven.put(EventKey::new(1, 1), 1, 1, 50_000);
    let beside_puts = |driven: &mut Driven, events: std::ops::Range<u64>| {
        for event in events {
            // Nothing is waited for, so that each step takes some time.
            driven.begin_put(EventKey::new(2, event), 1, 1, 100);
            driven.pass(Duration::from_millis(10));
        }
    };
    driven.lane.scrub_all();
    let mut events = 0;
    while driven.lane.status().scrub.bytes_read == 0 {
        beside_puts(&mut driven, events..events + 1);
        events += 1;
        assert!(events < 1000, "{:?}", driven.lane.status().scrub);
    }
    let out = driven.drives_of_first()[0];
    driven.change_drives(|drive| drive.member = drive.number != out);
    beside_puts(&mut driven, events..events + 20);
    let rebuild = driven.lane.status().rebuild;
    assert!(rebuild.segments_rebuilt > 0, "{rebuild:?}");
}

#[test]
fn what_is_read_wrong_for_a_rebuild_is_left_out_and_mended() {
    let mut driven = Driven::new(with_spare);
    let key = EventKey::new(1, 1);
    driven.put(key, 1, 1, 50_000);
    let drives = driven.drives_of_first();
    let (_, segment) = driven.lane.segments.iter().next().expect("one");
    let start = driven.lane.slot_offset(segment.shards[1]) + u64::from(segment.flushes[0].header_bytes);
    driven.drives.corrupt(drives[1], start..start + u64::from(segment.unit_bytes), 1);
    driven.change_drives(|drive| drive.member = drive.number != drives[0]);
    let rebuild = driven.rebuild();
    assert!(rebuild.is_whole && rebuild.segments_stuck == 0, "{rebuild:?}");
    let health = driven.lane.status().drive_health;
    let damaged: Vec<_> = health.iter().filter(|drive| drive.units_damaged > 0).collect();
    assert!(damaged.len() == 1 && damaged[0].drive == drives[1].0 && damaged[0].mended > 0, "{health:?}");
    driven.reopen_with(|drive| drive != drives[0] && drive != drives[2]);
    assert_eq!(driven.read(key, 1), (ReadOutcome::Found, vec![1; 50_000]));
}

#[test]
fn what_could_not_be_made_as_a_drive_read_wrong_for_a_while_is_made_later() {
    let mut driven = Driven::new(with_spare);
    let key = EventKey::new(1, 1);
    driven.put(key, 1, 1, 50_000);
    let drives = driven.drives_of_first();
    let (_, segment) = driven.lane.segments.iter().next().expect("one");
    let start = driven.lane.slot_offset(segment.shards[1]);
    // The same bytes change back when they are changed once more; a header could be mended meanwhile.
    let (header, unit) = (u64::from(segment.flushes[0].header_bytes), u64::from(segment.unit_bytes));
    let first_unit = start + header..start + header + unit;
    driven.drives.corrupt(drives[1], first_unit.clone(), 1);
    driven
        .change_drives(|drive| (drive.member, drive.present) = (drive.number != drives[0], drive.number != drives[0]));
    for _ in 0..100 {
        driven.turn();
    }
    assert_eq!(driven.lane.status().rebuild.segments_stuck, 1, "{:?}", driven.lane.status());
    driven.drives.corrupt(drives[1], first_unit, 1);
    driven.pass(Duration::from_secs(900));
    let rebuild = driven.rebuild();
    assert!(rebuild.is_whole && rebuild.segments_rebuilt > 0, "{rebuild:?}");
}

/// With so many fragments in a flush that their table has no room in its header, and so many in all that a segment is full: events and sources, 200 bytes each.
fn with_long_tables() -> (Driven, Vec<(EventKey, u32)>) {
    const EVENTS: u64 = 15;
    const SOURCES: u32 = 1000;
    let mut driven = Driven::new(with_spare);
    let of_event = |event| (0..SOURCES).map(move |source| (EventKey::new(1, event), source));
    let fragments: Vec<(EventKey, u32)> = (0..EVENTS).flat_map(of_event).collect();
    for (key, source) in &fragments {
        driven.begin_put(*key, *source, SOURCES as u16, 200);
    }
    driven.replies_to(fragments.len());
    (driven, fragments)
}

#[test]
fn one_of_which_nothing_can_be_read_stays_where_it_is_so_that_drives_that_come_back_help() {
    let (mut driven, fragments) = with_long_tables();
    let (first, _) = driven.lane.segments.iter().next().expect("one");
    let in_first = |(key, source): &(EventKey, u32)| {
        let event = driven.lane.index.event(*key).expect("it is stored");
        event.fragment(SourceId(*source)).is_some_and(|fragment| fragment.segment == first)
    };
    // But for its last flush, which was perhaps never acknowledged for all that a start without two drives can know.
    let in_first: Vec<_> = fragments.into_iter().filter(in_first).step_by(100).take(60).collect();
    let away = driven.drives_of_first()[..2].to_vec();
    driven.reopen_with(|drive| !away.contains(&drive));
    assert!(driven.lane.status().segments_unreadable > 0, "{:?}", driven.lane.status());
    let rebuild = driven.rebuild();
    assert_eq!((rebuild.is_whole, rebuild.segments_stuck, rebuild.shards_missing), (false, 1, 2), "{rebuild:?}");
    // The other one was a loose cable.
    driven.reopen_with(|drive| drive != away[0]);
    assert_eq!(in_first.len(), 60);
    for (key, source) in in_first {
        assert_eq!(driven.read(key, source), (ReadOutcome::Found, vec![source as u8; 200]), "{key} {source}");
    }
    let rebuild = driven.rebuild();
    assert!(rebuild.is_whole && rebuild.segments_rebuilt > 0, "{rebuild:?}");
}

#[test]
fn a_closing_flush_is_looked_for_until_drives_that_come_back_bring_it() {
    let (mut driven, fragments) = with_long_tables();
    let (index, segment) = driven.lane.segments.iter().next().expect("one");
    assert_eq!(segment.state, SegmentState::Closed);
    let (span, places) = (segment.flushes[0], segment.shards.clone());
    let shard_end = span.offset_bytes + segment.flush_shard_bytes(&span);
    let at_the_beginning = |(key, source): &(EventKey, u32)| {
        let fragment = driven.lane.index.event(*key).and_then(|event| event.fragment(SourceId(*source)));
        fragment.is_some_and(|fragment| fragment.segment == index && fragment.position < span.positions() / 2)
    };
    let told_by_closing: Vec<_> = fragments.into_iter().filter(at_the_beginning).take(20).collect();
    assert_eq!(told_by_closing.len(), 20);
    // The end of the flush's own table is gone for good, and of the closing flush one shard of three.
    let slots: Vec<_> = places.iter().map(|place| (place.drive, driven.lane.slot_offset(*place))).collect();
    for (drive, slot) in &slots[..2] {
        driven.drives.corrupt(*drive, slot + shard_end - 1..slot + shard_end, 1);
    }
    let slot_bytes = driven.lane.config.geometry.slot_bytes;
    let (drive, slot) = slots[0];
    driven.drives.corrupt(drive, slot + slot_bytes - 2 * BLOCK_BYTES as u64..slot + slot_bytes, 1);
    let away = slots[1].0;
    driven.reopen_with(|drive| drive != away);
    let status = driven.lane.status();
    assert!(status.flushes_lost + status.flushes_unavailable > 0, "{status:?}");
    let (key, source) = told_by_closing[0];
    assert_ne!(driven.read(key, source).0, ReadOutcome::Found, "nothing that is there tells of it");
    driven.rebuild();
    driven.reopen_with(|_| true);
    for (key, source) in told_by_closing {
        assert_eq!(driven.read(key, source), (ReadOutcome::Found, vec![source as u8; 200]), "{key} {source}");
    }
}

/// A lane of 2+2 on six drives whose checkpoints can be kept on their way.
fn with_two_parities(config: &mut LaneConfig) {
    with_spare(config);
    config.drives.push(DriveInfo {
        number: DriveNumber(DRIVES + SPARE),
        uuid: DriveUuid::from_bytes([99; 16]),
        ..config.drives[0]
    });
    config.geometry.parity_shards = 2;
}

#[test]
fn a_place_that_a_failed_checkpoint_lists_is_not_written_to_before_the_next_one_is_durable() {
    // As many segments as need the slots that are free besides, and some of the others.
    const EVENTS: u64 = 360;
    let mut driven = Driven::new(with_two_parities);
    for event in 0..EVENTS {
        driven.put(EventKey::new(1, event), 1, 1, 50_000);
    }
    let retired = driven.drives_of_first()[..2].to_vec();
    driven.change_drives(|drive| drive.member = !retired.contains(&drive.number));
    while driven.lane.background.rebuild.listed_places().is_empty() {
        driven.turn();
    }
    let listed = driven.lane.background.rebuild.listed_places();
    let geometry = driven.lane.config.geometry;
    let layout = geometry.layout(driven.lane.config.drives[0].slots);
    let slots: BTreeSet<(DriveNumber, u64)> =
        listed.iter().map(|place| (place.drive, driven.lane.slot_offset(*place))).collect();
    let failing = listed[0].drive;
    driven.drives.fail_drive(failing);
    // Checkpoints that begin from now on do not end.
    let late = Arc::new(Mutex::new(BTreeSet::new()));
    let is_late = Arc::clone(&late);
    driven.media.set_delivery(Delivery::Chosen(Box::new(move |ready| {
        ready.iter().position(|id| !is_late.lock().expect("one thread").contains(id))
    })));
    let (durable, mut rebuilt) = (driven.lane.status().counters.checkpoints, 0);
    for turn in 0..2000 {
        if turn == 3 {
            driven.change_drives(|drive| {
                drive.member &= drive.number != failing;
                drive.present = drive.number != failing;
            });
        }
        driven.lane.pump(driven.now);
        while let Some((id, operation)) = driven.lane.next_operation() {
            if let Operation::Write { drive, offset_bytes, .. } = &operation {
                if *offset_bytes < layout.slot_offset(0) {
                    late.lock().expect("one thread").insert(id);
                } else {
                    let slot = offset_bytes - (offset_bytes - layout.slot_offset(0)) % geometry.slot_bytes;
                    assert!(!slots.contains(&(*drive, slot)), "a checkpoint may say what lies there");
                    rebuilt += 1;
                }
            }
            driven.media.submit(id, operation);
        }
        driven.media.kick();
        let mut completions = Vec::new();
        driven.media.completions(&mut completions);
        completions.into_iter().for_each(|completion| driven.lane.complete(driven.now, completion));
    }
    assert_eq!((driven.lane.status().counters.checkpoints, rebuilt > 0), (durable, true));
    late.lock().expect("one thread").clear();
    let rebuild = driven.rebuild();
    assert!(rebuild.segments_rebuilt > 0, "{rebuild:?}");
    for event in 0..EVENTS {
        let (outcome, payload) = driven.read(EventKey::new(1, event), 1);
        assert_eq!((outcome, payload == vec![1; 50_000]), (ReadOutcome::Found, true), "event {event}");
    }
}

#[test]
fn what_closes_while_a_drive_is_taken_out_of_use_is_made_anew_also_when_another_one_fails() {
    let mut driven = Driven::new(with_spare);
    let key = EventKey::new(1, 1);
    driven.put(key, 1, 1, 50_000);
    let drives = driven.drives_of_first();
    driven.change_drives(|drive| drive.member &= drive.number != drives[0]);
    let is_closed = |driven: &Driven| driven.lane.segments.iter().all(|(_, segment)| !segment.writing);
    while !is_closed(&driven) {
        driven.turn();
    }
    driven.change_drives(|drive| {
        let fails = drive.number == drives[1];
        (drive.member, drive.present) = (drive.member && !fails, drive.present && !fails);
    });
    let rebuild = driven.rebuild();
    assert!(rebuild.is_whole && rebuild.segments_stuck == 0, "{rebuild:?}");
    let health = driven.lane.status().drive_health;
    assert!(
        health.iter().all(|drive| drive.units_damaged + drive.headers_damaged == 0),
        "nothing is wrong: {health:?}"
    );
    driven.reopen_with(|drive| !drives[..2].contains(&drive));
    assert_eq!(driven.read(key, 1), (ReadOutcome::Found, vec![1; 50_000]));
}

#[test]
fn a_segment_is_whole_without_a_closing_flush_that_cannot_be_made() {
    let mut driven = Driven::new(with_spare);
    let mut event = 0;
    let closed =
        |driven: &Driven| driven.lane.segments.iter().find(|(_, s)| s.state == SegmentState::Closed).map(|(at, _)| at);
    let segment = loop {
        event += 1;
        driven.put(EventKey::new(1, event), 1, 1, 50_000);
        if let Some(segment) = closed(&driven) {
            break segment;
        }
    };
    let shards = driven.lane.segments.get(segment).shards.clone();
    for place in &shards[1..] {
        let end = driven.lane.slot_offset(*place) + driven.lane.config.geometry.slot_bytes;
        driven.drives.corrupt(place.drive, end - BLOCK_BYTES as u64..end, 1);
    }
    let lost = shards[0].drive;
    driven.change_drives(|drive| {
        let fails = drive.number == lost;
        (drive.member, drive.present) = (drive.member && !fails, drive.present && !fails);
    });
    let rebuild = driven.rebuild();
    assert!(rebuild.is_whole && rebuild.segments_stuck == 0, "{rebuild:?}");
    // Also for a start, which finds it by its flushes, and with one drive less.
    driven.reopen_with(|drive| drive != lost && drive != shards[1].drive);
    for event in 1..=event {
        assert_eq!(driven.read(EventKey::new(1, event), 1), (ReadOutcome::Found, vec![1; 50_000]));
    }
}
