//! What a lane knows to be lost.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_media::{Media, MemoryMedia, Operation};
use forebay_types::{DriveNumber, EventKey, FragmentId, ReadOutcome, SourceId};

use super::{DRIVE_BYTES, Driven};
use crate::api::{Admission, Fetch, OutOfReach, Reply, Token};
use crate::lane::Lane;
use crate::losses::{FoundBy, Loss, LossKind, LostPart};

const EVENTS: u64 = 60;

fn id(event: u64) -> FragmentId {
    EventKey::new(1, event).fragment(SourceId(1))
}

fn filled() -> Driven {
    let mut driven = Driven::new(|config| (config.cache_bytes, config.scrub_period) = (0, Duration::ZERO));
    for event in 0..EVENTS {
        // A small one lies in one unit of its row: it may be right where the row is lost.
        driven.put(EventKey::new(1, event), 1, 1, if event % 2 == 0 { 30_000 } else { 700 });
    }
    driven
}

impl Driven {
    /// What the fragment of an event is read as.
    fn read_one(&mut self, event: u64) -> ReadOutcome {
        self.read(id(event).key(), id(event).source.0).0
    }

    fn losses(&mut self) -> Vec<Loss> {
        let mut losses = Vec::new();
        let mut from = Some(0);
        while let Some(at) = from {
            let page = self.lane.losses(at, 7);
            assert!(page.losses.len() <= 7 && page.not_remembered == 0);
            losses.extend(page.losses);
            from = page.next;
        }
        losses
    }

    /// Looks at everything, and waits until what is lost has names.
    fn scrub(&mut self) {
        self.lane.scrub_all();
        while self.lane.status().scrub.segments_asked > 0 {
            self.pass(Duration::from_millis(10));
        }
    }
}

fn fragments(losses: &[Loss]) -> BTreeSet<FragmentId> {
    let fragment = |loss: &Loss| match loss.part {
        LostPart::Fragment { id, .. } if loss.kind == LossKind::Lost => id,
        _ => panic!("{loss:?}"),
    };
    losses.iter().map(fragment).collect()
}

#[test]
fn a_sound_lane_has_lost_nothing_whatever_one_drive_does() {
    let mut driven = filled();
    driven.scrub();
    assert_eq!(driven.losses(), []);
    driven.drives.corrupt(DriveNumber(1), 0..DRIVE_BYTES, 1);
    driven.scrub();
    assert_eq!(driven.losses(), []);
    let scrub = driven.lane.status().scrub;
    assert_eq!(scrub.round_segments, driven.lane.status().segments);
    assert!(scrub.round_ended_s.is_some(), "a round has ended: {scrub:?}");
}

/// Two drives of 2+1 are damaged, here whole and there in places: exactly what cannot be read is listed, whoever finds it.
#[test]
fn what_a_scrub_lists_as_lost_is_exactly_what_cannot_be_read() {
    for (part, drives) in [(1, [0, 2]), (1, [1, 2]), (1, [0, 1]), (2, [0, 2]), (5, [1, 2]), (9, [0, 1])] {
        let mut driven = filled();
        driven.scrub();
        for drive in drives {
            // Every part-th stretch of 20 KiB, so that some rows lose one unit and some two.
            let slots =
                driven.lane.stored_segments().iter().flat_map(|segment| segment.shards.clone()).collect::<Vec<_>>();
            for place in slots.into_iter().filter(|place| place.drive == DriveNumber(drive)) {
                let start = driven.lane.slot_offset(place);
                for at in
                    (0..1u64 << 20).step_by(20 << 10).filter(|at| (at / (20 << 10) + u64::from(drive)) % part == 0)
                {
                    driven.drives.corrupt(
                        DriveNumber(drive),
                        start + at..(start + at + (20 << 10)).min(start + (1 << 20)),
                        part,
                    );
                }
            }
        }
        driven.scrub();
        let listed = fragments(&driven.losses());
        let lost: BTreeSet<FragmentId> =
            (0..EVENTS).filter(|e| driven.read_one(*e) == ReadOutcome::Lost).map(id).collect();
        assert_eq!(listed, lost, "every {part}");
        assert!(!lost.is_empty() || part > 1);
        assert_eq!(driven.lane.status().fragments_known_lost, lost.len() as u64);
        for loss in driven.losses() {
            assert!(
                loss.drives_damaged.iter().all(|drive| drives.contains(drive)) && loss.drives_missing.is_empty(),
                "{loss:?}"
            );
            assert!(!loss.drives_damaged.is_empty() && loss.found_by == FoundBy::Scrub, "{loss:?}");
        }
        // Whose event is over is missed no more.
        for id in &lost {
            driven.delete(id.key());
        }
        assert_eq!(driven.lane.status().fragments_known_lost, 0);
        assert_eq!(driven.losses(), []);
    }
}

#[test]
fn a_read_that_meets_a_loss_lists_it() {
    let mut driven = filled();
    for drive in [0, 1] {
        driven.drives.corrupt(DriveNumber(drive), 0..DRIVE_BYTES, 1);
    }
    assert_eq!(driven.read_one(17), ReadOutcome::Lost);
    let losses = driven.losses();
    assert_eq!(fragments(&losses), BTreeSet::from([id(17)]));
    assert_eq!(losses[0].found_by, FoundBy::Read);
    assert!(driven.trace(17).fragments[0].is_lost && !driven.trace(18).fragments[0].is_lost);
}

#[test]
fn nothing_is_missed_of_an_event_that_ended_while_it_was_read() {
    let mut driven = filled();
    for drive in [0, 1] {
        driven.drives.corrupt(DriveNumber(drive), 0..DRIVE_BYTES, 1);
    }
    let mut into = Vec::new();
    assert!(matches!(driven.lane.get(Token(901), id(17), &mut into), Fetch::Pending { .. }));
    assert_eq!(driven.lane.delete(Token(902), id(17).key()), Admission::Pending);
    assert!(matches!(driven.reply(), Reply::Decided { token: Token(902), .. }));
    assert!(matches!(driven.reply(), Reply::Read { token: Token(901), outcome: ReadOutcome::Lost, .. }));
    assert_eq!(driven.lane.status().fragments_known_lost, 0);
}

#[test]
fn what_only_lacks_drives_is_told_apart() {
    let mut driven = filled();
    driven.lane.scrub_all();
    driven.pass(Duration::from_millis(10));
    for drive in &mut driven.lane.config.drives[..2] {
        drive.present = false;
    }
    driven.reopen(true);
    let losses = driven.losses();
    assert!(!losses.is_empty());
    for loss in &losses {
        let apart = matches!(loss.kind, LossKind::Unavailable | LossKind::PossiblyAcknowledged);
        assert!(apart && loss.drives_missing == [0, 1] && loss.drives_damaged.is_empty(), "{loss:?}");
    }
    assert!(losses.iter().any(|loss| loss.kind == LossKind::Unavailable));
    // The numbers say the same.
    let count = |is: fn(&Loss) -> u64| losses.iter().map(is).sum::<u64>();
    let flushes = |loss: &Loss| match loss.part {
        LostPart::Flush { .. } => 1,
        LostPart::Flushes { flushes } => flushes,
        _ => 0,
    };
    let acknowledged: u64 = losses.iter().filter(|loss| loss.kind == LossKind::Unavailable).map(flushes).sum();
    let perhaps: u64 = losses.iter().filter(|loss| loss.kind == LossKind::PossiblyAcknowledged).map(flushes).sum();
    let status = driven.lane.status();
    assert_eq!((status.flushes_unavailable, status.flushes_possibly_lost), (acknowledged, perhaps));
    assert_eq!(status.segments_unavailable, count(|loss| u64::from(loss.part == LostPart::Segment)));
    assert_eq!((status.segments_unavailable, status.flushes_lost), (status.segments_unreadable, 0));
    assert_eq!(status.out_of_reach.segments, count(|loss| u64::from(matches!(loss.part, LostPart::Live { .. }))));
    assert_eq!((status.out_of_reach.drives, status.width), (vec![0, 1], None));
    assert_eq!((status.drives_written, status.drives_read), (vec![2], vec![2]));
}

#[test]
fn what_comes_out_of_reach_while_a_lane_serves_is_counted_at_once() {
    let mut driven = filled();
    assert_eq!(driven.lane.status().out_of_reach, OutOfReach::default());
    driven.lane.failing.insert(DriveNumber(0));
    assert_eq!(driven.lane.status().out_of_reach, OutOfReach::default(), "one may fail");
    driven.lane.failing.insert(DriveNumber(1));
    let status = driven.lane.status();
    let live: Vec<u64> = driven
        .losses()
        .iter()
        .filter_map(|loss| match loss.part {
            LostPart::Live { bytes, .. } => Some(bytes),
            _ => None,
        })
        .collect();
    assert!(!live.is_empty());
    let OutOfReach { segments, bytes, drives } = status.out_of_reach;
    assert_eq!((segments, bytes, drives), (live.len() as u64, live.iter().sum(), vec![0, 1]));
    assert_eq!((status.flushes_unavailable, status.flushes_possibly_lost), (0, 0));
}

#[test]
fn what_one_drive_has_of_a_torn_deletion_is_not_taken_for_a_loss_when_it_reads_wrong_later() {
    let mut driven = filled();
    driven.delete(EventKey::new(1, 3));
    let (_, segment) = driven.lane.segments.iter().last().expect("there is one");
    let header_in_slot = segment.flushes.last().expect("the deletion").offset_bytes;
    let headers: Vec<(DriveNumber, u64)> =
        segment.shards.iter().map(|place| (place.drive, driven.lane.slot_offset(*place) + header_in_slot)).collect();
    let ([first, second, last], block) =
        (headers[..].try_into().expect("2+1"), forebay_types::limits::BLOCK_BYTES as u64);
    for (drive, offset) in [first, second] {
        driven.drives.corrupt(drive, offset..offset + block, 1);
    }
    let mut config = driven.lane.config.clone();
    (config.epoch, config.nonce) = (config.epoch + 1, config.nonce + 1);
    driven.media = MemoryMedia::new(&driven.drives);
    driven.lane = Lane::new(config, driven.now);
    // Its first block tells how long the header is; then the header is read.
    let mut reads_left = 2;
    while !driven.lane.is_serving() {
        let mut completions = Vec::new();
        driven.media.completions(&mut completions);
        completions.into_iter().for_each(|completion| driven.lane.complete(driven.now, completion));
        driven.lane.pump(driven.now);
        while let Some((id, operation)) = driven.lane.next_operation() {
            if let Operation::Read { drive, offset_bytes, .. } = &operation
                && (*drive, *offset_bytes) == last
            {
                if reads_left == 0 {
                    driven.drives.corrupt(last.0, last.1..last.1 + block, 1);
                }
                reads_left -= 1;
            }
            driven.media.submit(id, operation);
        }
        driven.media.kick();
    }
    assert_eq!(driven.lane.status().flushes_lost, 0);
    assert_eq!(driven.read_one(3), ReadOutcome::Deleted);
}
