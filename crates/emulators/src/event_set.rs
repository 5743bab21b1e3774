//! A set of events, compact where their numbers follow each other.

use std::collections::BTreeMap;

use forebay_types::{EventKey, RunId};

/// A set of events as ranges of neighbouring numbers. Events of a run that follow each other cost next to
/// nothing, scattered ones about 40 bytes each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventSet {
    /// For each run: first number to last number, both included, neither overlapping nor touching.
    runs: BTreeMap<RunId, BTreeMap<u64, u64>>,
    events: u64,
}

impl EventSet {
    /// Adds an event; whether it is new.
    pub fn insert(&mut self, key: EventKey) -> bool {
        let ranges = self.runs.entry(key.run).or_default();
        let number = key.event.0;
        let (mut first, mut last) = (number, number);
        if let Some((&before, &end)) = ranges.range(..=number).next_back() {
            if number <= end {
                return false;
            }
            if end.checked_add(1) == Some(number) {
                first = before;
            }
        }
        if let Some(next) = number.checked_add(1)
            && let Some(end) = ranges.remove(&next)
        {
            last = end;
        }
        ranges.insert(first, last);
        self.events += 1;
        true
    }

    /// Whether the event is in the set.
    pub fn contains(&self, key: EventKey) -> bool {
        let range = self.runs.get(&key.run).and_then(|ranges| ranges.range(..=key.event.0).next_back());
        range.is_some_and(|(_, &last)| key.event.0 <= last)
    }

    /// How many events are in the set.
    pub fn len(&self) -> u64 {
        self.events
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn neighbours_become_one_range() {
        let mut set = EventSet::default();
        for number in [5, 7, 6, u64::MAX, u64::MAX - 1, 0] {
            assert!(set.insert(EventKey::new(1, number)), "{number} is new");
            assert!(!set.insert(EventKey::new(1, number)), "{number} is there");
        }
        assert_eq!(set.runs[&RunId(1)], BTreeMap::from([(0, 0), (5, 7), (u64::MAX - 1, u64::MAX)]));
    }

    proptest! {
        #[test]
        fn it_is_a_set(numbers in prop::collection::vec((0u32..3, 0u64..50), 0..200)) {
            let (mut set, mut model) = (EventSet::default(), BTreeSet::new());
            for (run, number) in numbers {
                let key = EventKey::new(run, number);
                prop_assert_eq!(set.insert(key), model.insert(key));
            }
            prop_assert_eq!(set.len(), model.len() as u64);
            for run in 0..3 {
                for number in 0..50 {
                    let key = EventKey::new(run, number);
                    prop_assert_eq!(set.contains(key), model.contains(&key));
                }
            }
        }
    }
}
