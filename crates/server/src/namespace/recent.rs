//! Changes of names that were answered, so that a client that did not get its answer may ask again on another connection.

use std::collections::{BTreeMap, VecDeque};

use forebay_types::{FileNumber, NameOutcome};

/// Changes that are remembered; the oldest are forgotten.
const REMEMBERED: usize = 1 << 16;

/// What a change came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) outcome: NameOutcome,
    /// What it was about, if that is still there.
    pub(super) number: Option<FileNumber>,
    /// Where in the journals it stands.
    pub(super) position: u64,
}

/// The changes of this start.
#[derive(Default)]
pub(super) struct Recent {
    answers: BTreeMap<(u64, u64), Answered>,
    order: VecDeque<(u64, u64)>,
}

impl Recent {
    pub(super) fn get(&self, client: u64, change: u64) -> Option<Answered> {
        self.answers.get(&(client, change)).copied()
    }

    pub(super) fn insert(&mut self, client: u64, change: u64, answered: Answered) {
        if self.answers.insert((client, change), answered).is_some() {
            return;
        }
        self.order.push_back((client, change));
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.answers.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten() {
        let mut recent = Recent::default();
        let answered = |position| Answered { outcome: NameOutcome::Done, number: None, position };
        for change in 0..REMEMBERED as u64 + 5 {
            recent.insert(7, change, answered(change));
        }
        assert_eq!((recent.get(7, 4), recent.get(7, 5)), (None, Some(answered(5))));
        assert_eq!((recent.answers.len(), recent.order.len()), (REMEMBERED, REMEMBERED));
        assert_eq!(recent.get(8, 5), None);
    }
}
