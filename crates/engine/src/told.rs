//! What happened to events lately, for those who look on.
//!
//! A ring of fixed size: whoever does not look in time is told how much was forgotten, and nobody waits for anybody. It is kept in memory alone and
//! begins anew with each start.

use std::collections::VecDeque;

use forebay_types::EventKey;

use crate::accepted::StreamSet;

/// Something that happened to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) key: EventKey,
    /// The streams that it was accepted into.
    pub(crate) streams: StreamSet,
    /// Fragments were missing then.
    pub(crate) incomplete: bool,
}

const _: () = assert!(size_of::<Told>() == 32);

/// The newest things that happened.
pub(crate) struct Ring {
    newest: VecDeque<Told>,
    max: usize,
    /// So many happened since the start.
    sequence: u64,
}

impl Ring {
    /// One that remembers so many; its memory is taken now.
    pub(crate) fn new(max: usize) -> Ring {
        Ring { newest: VecDeque::with_capacity(max), max, sequence: 0 }
    }

    pub(crate) fn push(&mut self, told: Told) {
        if self.newest.len() == self.max {
            self.newest.pop_front();
        }
        if self.max > 0 {
            self.newest.push_back(told);
        }
        self.sequence += 1;
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// What happened behind the first `sequence` things, as far as it is remembered, and how many were forgotten.
    pub(crate) fn behind(&self, sequence: u64) -> (u64, impl Iterator<Item = &Told>) {
        let first = self.sequence - self.newest.len() as u64;
        let known = sequence.saturating_sub(first).min(self.newest.len() as u64);
        (first.saturating_sub(sequence), self.newest.range(known as usize..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(ring: &Ring, sequence: u64) -> (u64, Vec<u64>) {
        let (forgotten, told) = ring.behind(sequence);
        (forgotten, told.map(|told| told.key.event.0).collect())
    }

    #[test]
    fn it_remembers_the_newest_and_counts_the_others() {
        let mut ring = Ring::new(3);
        let capacity = ring.newest.capacity();
        assert_eq!(events(&ring, 0), (0, vec![]));
        for event in 0..5 {
            ring.push(Told { key: EventKey::new(1, event), streams: StreamSet::default(), incomplete: false });
        }
        assert_eq!(ring.sequence(), 5);
        assert_eq!(events(&ring, 0), (2, vec![2, 3, 4]));
        assert_eq!(events(&ring, 1), (1, vec![2, 3, 4]));
        assert_eq!(events(&ring, 4), (0, vec![4]));
        assert_eq!(events(&ring, 5), (0, vec![]));
        assert_eq!(ring.newest.capacity(), capacity, "it takes no more memory than at first");
    }

    #[test]
    fn one_that_remembers_nothing_counts() {
        let mut ring = Ring::new(0);
        ring.push(Told { key: EventKey::new(1, 1), streams: StreamSet::default(), incomplete: false });
        assert_eq!(events(&ring, 0), (1, vec![]));
    }
}
