//! Which numbers are given: each lane's in turn, so that files lie on all lanes alike.

use forebay_types::placement::{event_at, lane_of, lane_ordinal};
use forebay_types::{FileNumber, RunId};

/// So many of the first numbers of lane 0 are for journals and snapshots, and for the root. Number 0, in whatever lane, is nobody's either.
pub const KEPT_ORDINALS: u64 = 1 << 20;

/// The root is the last of those.
pub const ROOT_ORDINAL: u64 = KEPT_ORDINALS - 1;

fn kept(ordinal: u64, lanes: u16) -> FileNumber {
    let number = event_at(RunId::FILES.0, 0, ordinal, lanes);
    FileNumber(number.expect("numbers that are kept are small"))
}

/// The number of the root in a store of so many lanes.
pub fn root_number(lanes: u16) -> FileNumber {
    kept(ROOT_ORDINAL, lanes)
}

/// The file that holds the snapshot of a generation; `None` when all that there may be were made.
pub fn snapshot_number(generation: u64, lanes: u16) -> Option<FileNumber> {
    let ordinal = generation.checked_mul(2).filter(|ordinal| ordinal + 1 < ROOT_ORDINAL)?;
    Some(kept(ordinal, lanes))
}

/// The file that holds the journal that begins with the snapshot of a generation.
pub fn journal_number(generation: u64, lanes: u16) -> Option<FileNumber> {
    let ordinal = generation.checked_mul(2)? + 1;
    (ordinal < ROOT_ORDINAL).then(|| kept(ordinal, lanes))
}

/// The next number of each lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// By lane, the next ordinal.
    next: Vec<u64>,
    lane: usize,
}

impl Numbers {
    pub(crate) fn new(lanes: u16) -> Numbers {
        let mut next = vec![0; usize::from(lanes)];
        // Number 0 is kept too: on the wire it is the root, and kernels take it for nothing.
        next[usize::from(lane_of(FileNumber(0).key(), lanes))] = 1;
        next[0] = KEPT_ORDINALS;
        Numbers { next, lane: 0 }
    }

    pub(crate) fn lanes(&self) -> u16 {
        self.next.len() as u16
    }

    pub(crate) fn next_ordinals(&self) -> &[u64] {
        &self.next
    }

    /// A number was given: no other is that comes before it in its lane.
    pub(crate) fn was_given(&mut self, number: FileNumber) {
        let lane = lane_of(number.key(), self.lanes());
        self.begin_at(usize::from(lane), lane_ordinal(number.0, self.lanes()).saturating_add(1));
    }

    pub(crate) fn begin_at(&mut self, lane: usize, ordinal: u64) {
        if let Some(next) = self.next.get_mut(lane) {
            *next = (*next).max(ordinal);
        }
    }

    /// The next number, of the next lane. It is given when [`Numbers::was_given`] says so.
    pub(crate) fn take(&mut self) -> Option<FileNumber> {
        self.lane = (self.lane + 1) % self.next.len();
        let number = event_at(RunId::FILES.0, self.lane as u16, self.next[self.lane], self.lanes());
        // The last number is kept, so that there is one behind each.
        number.filter(|number| *number < u64::MAX).map(FileNumber)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_once_and_go_to_all_lanes_alike() {
        for lanes in [1, 2, 3, 7, 64] {
            let mut numbers = Numbers::new(lanes);
            let mut by_lane = vec![0; usize::from(lanes)];
            let mut seen = std::collections::BTreeSet::from([root_number(lanes)]);
            for generation in 0..300 {
                assert!(seen.insert(snapshot_number(generation, lanes).expect("few")));
                assert!(seen.insert(journal_number(generation, lanes).expect("few")));
            }
            assert!(seen.iter().all(|number| lane_of(number.key(), lanes) == 0));
            for _ in 0..1000 {
                let number = numbers.take().expect("there are many");
                numbers.was_given(number);
                by_lane[usize::from(lane_of(number.key(), lanes))] += 1;
                assert!(seen.insert(number) && number != FileNumber(0), "{number} of {lanes} lanes");
            }
            let (least, most) = (by_lane.iter().min().expect("a lane"), by_lane.iter().max().expect("a lane"));
            assert!(most - least <= 1, "{by_lane:?}");
        }
        assert_eq!((snapshot_number(1 << 19, 1), journal_number((1 << 19) - 1, 1)), (None, None));
    }
}
