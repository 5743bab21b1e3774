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
    /// From which of its changes on each client waits for answers, and clients in the order in which they came.
    waits_from: BTreeMap<u64, u64>,
    clients: VecDeque<u64>,
}

impl Recent {
    pub(super) fn get(&self, client: u64, change: u64) -> Option<Answered> {
        self.answers.get(&(client, change)).copied()
    }

    /// A client asks for a change, and waits for none below `waits_from` any more; whether it has said before that it waits for this one no more.
    pub(super) fn is_stale(&mut self, client: u64, change: u64, waits_from: u64) -> bool {
        let clients = &mut self.clients;
        let known = self.waits_from.entry(client).or_insert_with(|| {
            clients.push_back(client);
            waits_from
        });
        *known = waits_from.max(*known);
        let is_stale = change < *known;
        if self.clients.len() > REMEMBERED
            && let Some(oldest) = self.clients.pop_front()
        {
            self.waits_from.remove(&oldest);
        }
        is_stale
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

    #[test]
    fn what_was_given_up_is_not_done_any_more() {
        let mut recent = Recent::default();
        assert!(!recent.is_stale(7, 5, 5) && !recent.is_stale(7, 6, 5) && !recent.is_stale(7, 9, 8));
        assert!(recent.is_stale(7, 6, 5), "it came late");
        assert!(!recent.is_stale(8, 1, 1) && !recent.is_stale(7, 8, 5));
        for client in 100..100 + REMEMBERED as u64 {
            recent.is_stale(client, 1, 1);
        }
        assert_eq!((recent.waits_from.len(), recent.clients.len()), (REMEMBERED, REMEMBERED));
    }
}
