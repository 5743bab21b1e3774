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
    /// The newest change of each client, and clients in the order in which they came.
    newest: BTreeMap<u64, u64>,
    clients: VecDeque<u64>,
}

impl Recent {
    pub(super) fn get(&self, client: u64, change: u64) -> Option<Answered> {
        self.answers.get(&(client, change)).copied()
    }

    /// Whether the client has asked for something newer: what comes under an older number was given up, and changes nothing any more.
    pub(super) fn is_stale(&self, client: u64, change: u64) -> bool {
        self.newest.get(&client).is_some_and(|newest| *newest > change)
    }

    fn note(&mut self, client: u64, change: u64) {
        let newest = self.newest.entry(client).or_insert_with(|| {
            self.clients.push_back(client);
            change
        });
        *newest = change.max(*newest);
        if self.clients.len() > REMEMBERED
            && let Some(oldest) = self.clients.pop_front()
        {
            self.newest.remove(&oldest);
        }
    }

    pub(super) fn insert(&mut self, client: u64, change: u64, answered: Answered) {
        self.note(client, change);
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
        assert!(recent.is_stale(7, 4) && !recent.is_stale(7, REMEMBERED as u64 + 4) && !recent.is_stale(8, 0));
    }
}
