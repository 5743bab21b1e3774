//! How events ended: rejected, deleted, or released by all of their streams. For people; that an event is over is in [`crate::finished`].
//!
//! Only what fits a small part of the index's memory is remembered, the newest runs and events. After a start it is known again of events whose
//! last record is still on the drives.

use std::collections::BTreeMap;

use forebay_types::memory::tree_bytes;
use forebay_types::placement::lane_ordinal;
use forebay_types::{EventKey, RunId};
use serde::Serialize;

/// Of the memory of the index such a part is for how events ended.
const INDEX_SHARE: usize = 64;

/// Ranges that are remembered in any case.
const RANGES_MIN: usize = 16;

/// How an event ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventEnd {
    /// The event filter did not want it.
    Rejected,
    /// An operator deleted it.
    Deleted,
    /// All of its streams have it elsewhere.
    Released,
}

/// How the newest of the finished events of a lane ended, neighbours that ended alike together.
pub(crate) struct Ends {
    lanes: u16,
    ranges_max: usize,
    /// Run and first ordinal to the last one.
    ranges: BTreeMap<(RunId, u64), (u64, EventEnd)>,
}

impl Ends {
    /// For a lane whose index may take so much.
    pub(crate) fn new(lanes: u16, index_bytes: usize) -> Ends {
        let range = tree_bytes(64, size_of::<((RunId, u64), (u64, EventEnd))>()) / 64;
        Ends { lanes, ranges_max: (index_bytes / INDEX_SHARE / range).max(RANGES_MIN), ranges: BTreeMap::new() }
    }

    /// Memory in use, never less than it is.
    pub(crate) fn bytes(&self) -> usize {
        tree_bytes(self.ranges.len(), size_of::<((RunId, u64), (u64, EventEnd))>())
    }

    /// How an event ended, when that is remembered.
    pub(crate) fn get(&self, key: EventKey) -> Option<EventEnd> {
        self.range_of((key.run, lane_ordinal(key.event.0, self.lanes))).map(|(_, end)| end)
    }

    /// Where the range begins that holds an ordinal, and how its events ended.
    fn range_of(&self, at: (RunId, u64)) -> Option<(u64, EventEnd)> {
        let (&(run, first), &(last, end)) = self.ranges.range(..=at).next_back()?;
        (run == at.0 && at.1 <= last).then_some((first, end))
    }

    /// An event ended. What is known of it already stays: an event ends once.
    pub(crate) fn insert(&mut self, key: EventKey, end: EventEnd) {
        let (run, ordinal) = (key.run, lane_ordinal(key.event.0, self.lanes));
        if self.range_of((run, ordinal)).is_some() {
            return;
        }
        let (mut first, mut last) = (ordinal, ordinal);
        if let Some(before) = ordinal.checked_sub(1)
            && let Some((start, ended)) = self.range_of((run, before))
            && ended == end
        {
            first = start;
        }
        if let Some(next) = ordinal.checked_add(1)
            && let Some(&(behind, ended)) = self.ranges.get(&(run, next))
            && ended == end
        {
            self.ranges.remove(&(run, next));
            last = behind;
        }
        self.ranges.insert((run, first), (last, end));
        if self.ranges.len() > self.ranges_max {
            // The oldest: runs and events are counted up.
            self.ranges.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::measured::allocated_in;

    const ENDS: [EventEnd; 3] = [EventEnd::Rejected, EventEnd::Deleted, EventEnd::Released];

    proptest! {
        #[test]
        fn what_is_remembered_is_true(events in prop::collection::vec((0u32..2, 0u64..200, 0usize..3), 0..400)) {
            let mut model = BTreeMap::new();
            let (ends, held) = allocated_in(|| {
                let mut ends = Ends::new(1, 1 << 24);
                for (run, event, end) in &events {
                    ends.insert(EventKey::new(*run, *event), ENDS[*end]);
                }
                ends
            });
            for (run, event, end) in events {
                model.entry(EventKey::new(run, event)).or_insert(ENDS[end]);
            }
            for key in (0..2).flat_map(|run| (0..200).map(move |event| EventKey::new(run, event))) {
                prop_assert_eq!(ends.get(key), model.get(&key).copied());
            }
            prop_assert!(held <= ends.bytes() as i64, "{} bytes are held, {} are told", held, ends.bytes());
        }
    }

    #[test]
    fn neighbours_take_one_range_and_the_newest_stay() {
        let mut ends = Ends::new(1, 0);
        (0..1000).for_each(|event| ends.insert(EventKey::new(1, event), EventEnd::Rejected));
        assert_eq!(ends.ranges.len(), 1);
        (0..1000).for_each(|event| ends.insert(EventKey::new(2, 2 * event), EventEnd::Released));
        assert_eq!(ends.ranges.len(), RANGES_MIN);
        assert_eq!(ends.get(EventKey::new(1, 3)), None, "forgotten");
        assert_eq!(ends.get(EventKey::new(2, 1998)), Some(EventEnd::Released));
        assert_eq!(ends.get(EventKey::new(2, 1997)), None, "never told");
    }
}
