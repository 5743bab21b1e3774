//! The events that are over: rejected, deleted, or released by all of their streams, as run-length sets.
//!
//! They are remembered until their run is closed, so that a fragment that comes late revives nothing. Every checkpoint holds the whole
//! set, which is why a deletion's own record is needed only until the next checkpoint.

use std::collections::BTreeMap;

use forebay_format::{FinishedRun, OrdinalRange};
use forebay_types::memory::tree_bytes;
use forebay_types::placement::lane_ordinal;
use forebay_types::{EventKey, RunId};

/// The finished events of a lane.
#[derive(Clone)]
pub(crate) struct Finished {
    lanes: u16,
    /// Start of a range to its last member. Ranges neither meet nor touch.
    runs: BTreeMap<RunId, FinishedEvents>,
    ranges: usize,
    events: u64,
}

/// The finished events of a run.
#[derive(Clone, Default)]
struct FinishedEvents {
    ranges: BTreeMap<u64, u64>,
    events: u64,
}

impl Finished {
    pub(crate) fn new(lanes: u16) -> Self {
        Finished { lanes, runs: BTreeMap::new(), ranges: 0, events: 0 }
    }

    pub(crate) fn from_checkpoint(lanes: u16, runs: &[FinishedRun]) -> Self {
        let mut finished = Finished::new(lanes);
        for run in runs {
            let ranges: BTreeMap<u64, u64> =
                run.ranges.iter().map(|r| (r.start, r.start.saturating_add(r.length.saturating_sub(1)))).collect();
            let events =
                ranges.iter().fold(0, |sum: u64, (start, last)| sum.saturating_add((last - start).saturating_add(1)));
            finished.ranges += ranges.len();
            finished.events = finished.events.saturating_add(events);
            finished.runs.insert(run.run, FinishedEvents { ranges, events });
        }
        finished
    }

    pub(crate) fn to_checkpoint(&self) -> Vec<FinishedRun> {
        let ranges = |ranges: &BTreeMap<u64, u64>| {
            ranges.iter().map(|(&start, &last)| OrdinalRange { start, length: last - start + 1 }).collect()
        };
        self.runs.iter().map(|(&run, set)| FinishedRun { run, closed: false, ranges: ranges(&set.ranges) }).collect()
    }

    /// Memory in use, never less than it is.
    pub(crate) fn bytes(&self) -> usize {
        let runs = tree_bytes(self.runs.len(), size_of::<(RunId, FinishedEvents)>());
        runs + tree_bytes(self.ranges, size_of::<(u64, u64)>()) + 2 * self.runs.len() * tree_bytes(0, 16)
    }

    pub(crate) fn ranges(&self) -> usize {
        self.ranges
    }

    pub(crate) fn run_count(&self) -> usize {
        self.runs.len()
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    pub(crate) fn events_of(&self, run: RunId) -> u64 {
        self.runs.get(&run).map_or(0, |set| set.events)
    }

    pub(crate) fn events_by_run(&self) -> impl Iterator<Item = (RunId, u64)> + '_ {
        self.runs.iter().map(|(run, set)| (*run, set.events))
    }

    /// The last of a run, by its place among those that the lane holds.
    pub(crate) fn last_ordinal(&self, run: RunId) -> Option<u64> {
        self.runs.get(&run)?.ranges.values().next_back().copied()
    }

    pub(crate) fn contains(&self, key: EventKey) -> bool {
        let ordinal = lane_ordinal(key.event.0, self.lanes);
        self.runs
            .get(&key.run)
            .and_then(|set| set.ranges.range(..=ordinal).next_back())
            .is_some_and(|(_, last)| *last >= ordinal)
    }

    pub(crate) fn insert(&mut self, key: EventKey) {
        if self.contains(key) {
            return;
        }
        let ordinal = lane_ordinal(key.event.0, self.lanes);
        let run = self.runs.entry(key.run).or_default();
        run.events = run.events.saturating_add(1);
        self.events = self.events.saturating_add(1);
        let set = &mut run.ranges;
        let mut start = ordinal;
        let mut last = ordinal;
        self.ranges += 1;
        if let Some((&below, &below_last)) = set.range(..ordinal).next_back()
            && below_last + 1 == ordinal
        {
            start = below;
            self.ranges -= 1;
        }
        if let Some(next) = ordinal.checked_add(1)
            && let Some(above_last) = set.remove(&next)
        {
            last = above_last;
            self.ranges -= 1;
        }
        set.insert(start, last);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::measured::allocated_in;

    proptest! {
        #[test]
        fn it_holds_what_a_set_holds(events in prop::collection::vec((0u32..2, 0u64..300), 0..400)) {
            let mut finished = Finished::new(1);
            let mut model = BTreeSet::new();
            for (run, event) in events {
                finished.insert(EventKey::new(run, event));
                model.insert(EventKey::new(run, event));
            }
            finished.insert(EventKey::new(7, u64::MAX));
            prop_assert!(finished.contains(EventKey::new(7, u64::MAX)));
            let again = Finished::from_checkpoint(1, &finished.to_checkpoint());
            prop_assert_eq!(again.ranges(), finished.ranges());
            for run in 0..2 {
                for event in 0..300 {
                    let key = EventKey::new(run, event);
                    prop_assert_eq!(finished.contains(key), model.contains(&key));
                    prop_assert_eq!(again.contains(key), model.contains(&key));
                }
            }
            prop_assert_eq!(finished.events(), model.len() as u64 + 1);
            prop_assert_eq!(again.events(), finished.events());
            let (copy, held) = allocated_in(|| Finished::from_checkpoint(1, &finished.to_checkpoint()));
            prop_assert!(held <= copy.bytes() as i64, "{} bytes are held, {} are told", held, copy.bytes());
            let by_run: Vec<_> = finished.events_by_run().map(|(run, events)| (run.0, events)).collect();
            let of_run = |run| model.iter().filter(|key| key.run.0 == run).count() as u64;
            let expected = [(0, of_run(0)), (1, of_run(1)), (7, 1)];
            prop_assert_eq!(by_run, expected.into_iter().filter(|(_, events)| *events > 0).collect::<Vec<_>>());
            let touching = model.iter().filter(|k| !model.contains(&EventKey::new(k.run.0, k.event.0.wrapping_sub(1)))).count();
            prop_assert_eq!(finished.ranges(), touching + 1);
        }
    }
}
