//! What those who look on are told, compared with what is known.

use forebay_types::{EventKey, StreamName, Time};

use super::{Event, Fragment, Model, Moment};

impl Model {
    /// Somebody who asked at the moment `asked` was told that filters may have the event, which has so many sources. What is told counts: it stays.
    pub(crate) fn told(&mut self, key: EventKey, asked: Moment, incomplete: bool, sources: usize) {
        self.tell(|| format!("told {key}{}", if incomplete { " without all of its fragments" } else { "" }));
        self.answers.told += 1;
        let event = self.here(key, asked);
        if incomplete {
            return;
        }
        assert!(
            event.fragments.len() >= sources,
            "{key} was told as complete, and of some sources nobody asked for any"
        );
        for (source, fragment) in &mut event.fragments {
            assert!(!fragment.asked.is_empty(), "{key}/{source}");
            // Which of several contents it is, is seen by who reads it.
            if let (None, [variant]) = (fragment.durable, &Vec::from_iter(fragment.asked.iter().copied())[..]) {
                fragment.durable = Some(*variant);
            }
        }
    }

    /// Somebody who asked then was told that the event was accepted into the stream.
    pub(crate) fn told_accepted(&mut self, key: EventKey, asked: Moment, stream: &StreamName) {
        self.tell(|| format!("told {key} accepted into {stream}"));
        self.answers.told += 1;
        let event = self.here(key, asked);
        assert!(event.accept_asked.contains(stream), "{key} was told as accepted into {stream}, and nobody said so");
        if event.accepted.is_empty() && !event.over {
            // All filters say the same of an event.
            event.accepted = event.accept_asked.clone();
            event.released.clone().iter().for_each(|stream| event.release(stream));
        }
        self.note(key);
    }

    /// An event that was told: somebody asked for it, and it was not over before it was asked what happened.
    fn here(&mut self, key: EventKey, asked: Moment) -> &mut Event {
        let event = self.events.get_mut(&key);
        let event = event.unwrap_or_else(|| panic!("{key} was told, and nobody asked for it"));
        assert!(event.over_at.is_none_or(|at| at > asked), "{key} was told after it was over");
        event
    }

    /// Events that became complete since then, as far as writers know it: all of their sources were first asked for then or later, and acknowledged.
    pub(crate) fn completed_since(&self, since: Time, sources: usize) -> impl Iterator<Item = EventKey> {
        let is_new =
            move |fragment: &Fragment| fragment.acknowledged && fragment.asked_at.is_some_and(|at| at >= since);
        let completed = self
            .events
            .iter()
            .filter(move |(_, event)| event.fragments.len() >= sources && event.fragments.values().all(is_new));
        completed.map(|(key, _)| *key)
    }
}
