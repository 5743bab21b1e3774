//! Looking at everything because an operator asks for it.

use std::time::Duration;

use forebay_types::{DriveNumber, EventKey};

use super::{DRIVE_BYTES, Driven};

/// Asks, and goes on until it is over; segments that were looked at, and flushes that were mended.
fn scrub(driven: &mut Driven) -> (u64, u64) {
    let before = driven.lane.status().scrub;
    driven.lane.scrub_all();
    assert!(driven.lane.status().scrub.segments_asked > 0, "it has only begun");
    while driven.lane.status().scrub.segments_asked > 0 {
        driven.pass(Duration::from_millis(10));
    }
    let after = driven.lane.status().scrub;
    assert_eq!((after.flushes_not_mended, after.units_lost), (0, 0));
    (after.segments_checked - before.segments_checked, after.flushes_mended - before.flushes_mended)
}

#[test]
fn everything_is_looked_at_when_an_operator_asks_though_there_is_no_period() {
    for damaged in 0..3 {
        let mut driven = Driven::new(|config| config.scrub_period = Duration::ZERO);
        for event in 0..40 {
            driven.put(EventKey::new(1, event), 1, 1, 50_000);
        }
        driven.pass(Duration::from_secs(3600));
        assert_eq!(driven.lane.status().scrub.segments_checked, 0, "there is no period");
        let alive = driven.lane.status().segments;
        assert!(alive > 1, "{alive} segments");
        // What is written to now is looked at as well.
        assert_eq!(scrub(&mut driven), (alive, 0), "nothing is damaged");
        driven.drives.corrupt(DriveNumber(damaged), 0..DRIVE_BYTES, 1);
        let (looked_at, mended) = scrub(&mut driven);
        assert!(looked_at == alive && mended >= alive, "{mended} flushes of {alive} segments were mended");
        let health = driven.lane.status().drive_health;
        let on: Vec<u16> = health.iter().filter(|drive| drive.mended > 0).map(|drive| drive.drive).collect();
        assert_eq!(on, [damaged]);
        assert_eq!(scrub(&mut driven), (alive, 0), "all is mended");
    }
}

#[test]
fn what_is_asked_for_ends_though_it_is_deleted_meanwhile() {
    let mut driven = Driven::new(|config| config.scrub_period = Duration::ZERO);
    for event in 0..40 {
        driven.put(EventKey::new(1, event), 1, 1, 50_000);
    }
    driven.lane.scrub_all();
    for event in 0..40 {
        driven.delete(EventKey::new(1, event));
    }
    while driven.lane.status().scrub.segments_asked > 0 {
        driven.pass(Duration::from_millis(10));
    }
    // An empty lane has nothing to look at.
    driven.lane.scrub_all();
    driven.pass(Duration::from_millis(10));
    assert_eq!(driven.lane.status().scrub.segments_asked, 0);
}
