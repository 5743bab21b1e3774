//! The pure function from an event to the lane that holds it.
//!
//! Groups of neighbouring events stay together, so that batches stay large; all fragments of an event
//! lie in one lane, so that a filter builds an event with one request.

use crate::EventKey;

/// How many neighbouring events lie in one lane.
pub const EVENTS_PER_GROUP: u64 = 128;

/// The lane of an event in a store with `lanes` lanes.
///
/// The run shifts the group, so that the first events of short runs do not all meet lane 0.
///
/// # Panics
/// When `lanes` is 0, which no store has.
pub fn lane_of(key: EventKey, lanes: u16) -> u16 {
    assert!(lanes > 0, "a store has at least one lane");
    let group = key.event.0 / EVENTS_PER_GROUP;
    let lanes = u64::from(lanes);
    ((group % lanes + u64::from(key.run.0) % lanes) % lanes) as u16
}

/// The number of the event among those of its run that its lane holds: neighbours in a lane are
/// neighbours in this number too, so that the finished events of a lane form few ranges.
pub fn lane_ordinal(event: u64, lanes: u16) -> u64 {
    let group = event / EVENTS_PER_GROUP;
    group / u64::from(lanes) * EVENTS_PER_GROUP + event % EVENTS_PER_GROUP
}

/// The number of the event of a run that a lane holds as its `ordinal`: what [`lane_of`] and [`lane_ordinal`] undo. `None` when there is no such number.
///
/// # Panics
/// When the store has no such lane.
pub fn event_at(run: u32, lane: u16, ordinal: u64, lanes: u16) -> Option<u64> {
    assert!(lane < lanes, "a store has the lane");
    let lanes = u64::from(lanes);
    let of_lane = (u64::from(lane) + lanes - u64::from(run) % lanes) % lanes;
    let group = (ordinal / EVENTS_PER_GROUP).checked_mul(lanes)?.checked_add(of_lane)?;
    group.checked_mul(EVENTS_PER_GROUP)?.checked_add(ordinal % EVENTS_PER_GROUP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_by_lane_and_ordinal() {
        for lanes in [1, 2, 3, 5, 64] {
            for run in [0, 1, 9, u32::MAX] {
                for event in (0..3000).chain([u64::MAX / 2, 1 << 60]) {
                    let (lane, ordinal) = (lane_of(EventKey::new(run, event), lanes), lane_ordinal(event, lanes));
                    assert_eq!(event_at(run, lane, ordinal, lanes), Some(event), "{run}/{event} of {lanes}");
                }
            }
        }
        assert_eq!(event_at(0, 1, u64::MAX, 2), None);
    }

    /// Other languages must compute the same; a change of a line here is a change of the format.
    #[test]
    fn lanes_are_the_stored_ones() {
        let vectors = [
            ((0, 0), 1, 0, 0),
            ((0, 127), 4, 0, 127),
            ((0, 128), 4, 1, 0),
            ((1, 128), 4, 2, 0),
            ((3, 512), 4, 3, 128),
            ((6525, 130_000), 3, 1, 43_344),
            ((u32::MAX, u64::MAX), 7, 3, 2_635_249_153_387_078_911),
        ];
        for ((run, event), lanes, lane, ordinal) in vectors {
            assert_eq!(lane_of(EventKey::new(run, event), lanes), lane, "{run}/{event} of {lanes}");
            assert_eq!(lane_ordinal(event, lanes), ordinal, "{run}/{event} of {lanes}");
        }
    }

    #[test]
    fn no_two_events_of_a_run_and_lane_share_an_ordinal() {
        for lanes in 1..6u16 {
            let mut seen = std::collections::BTreeSet::new();
            for event in 0..5_000 {
                let lane = lane_of(EventKey::new(9, event), lanes);
                assert!(seen.insert((lane, lane_ordinal(event, lanes))), "event {event}, {lanes} lanes");
            }
        }
    }
}
