//! What must hold of lists of accepted events, and of the files that they become.

use std::collections::BTreeSet;

use forebay_mover::events::parts::Part;
use forebay_types::{EventKey, ReadOutcome, SourceId, StreamName};

use super::{Model, Moment, payload};

/// A list that is asked for: what was known then.
pub(crate) struct Listing {
    after: Option<EventKey>,
    must: BTreeSet<EventKey>,
    asked: Moment,
}

impl Model {
    /// A stream's accepted events behind `after` are asked for now.
    pub(crate) fn listing(&self, stream: &StreamName, after: Option<EventKey>) -> Listing {
        let behind = |key: &EventKey| after.is_none_or(|after| *key > after);
        let must = self.open().filter(|(key, event)| behind(key) && event.waits_for(stream));
        Listing { after, must: must.map(|(key, _)| *key).collect(), asked: self.moment() }
    }

    /// The answer; `more`: the list may go on behind the last of `keys`.
    pub(crate) fn listed(&self, stream: &StreamName, listing: &Listing, keys: &[EventKey], more: bool) {
        assert!(keys.is_sorted_by(|a, b| a < b), "the list of {stream} is not in order: {keys:?}");
        assert!(listing.after < keys.first().copied() || keys.is_empty(), "the list of {stream} begins too early");
        let listed: BTreeSet<EventKey> = keys.iter().copied().collect();
        for key in &listing.must {
            let told = !more || keys.last().is_some_and(|last| key <= last);
            let waits = self.events.get(key).is_some_and(|event| event.waits_for(stream));
            assert!(!told || !waits || listed.contains(key), "{key} is accepted into {stream} and is not listed");
        }
        keys.iter().for_each(|key| self.may_be_listed(*key, stream, listing.asked));
    }

    fn may_be_listed(&self, key: EventKey, stream: &StreamName, asked: Moment) {
        let event = self.events.get(&key);
        let since = |at: Option<Moment>| at.is_none_or(|at| at > asked);
        assert!(since(event.and_then(|e| e.over_at)), "{key} is listed for {stream} and was over");
        let released = event.and_then(|e| e.released_at.get(stream)).copied();
        assert!(since(released), "{key} is listed for {stream} and was released by it");
        assert!(
            event.is_some_and(|e| e.accept_asked.contains(stream)),
            "{key} is listed for {stream}, and nobody said so"
        );
    }

    /// An event of a complete file: it was accepted into the stream, and these are its fragments.
    pub(crate) fn recorded(&self, key: EventKey, stream: &StreamName, parts: &[Part]) {
        let event = self.events.get(&key).unwrap_or_else(|| panic!("{key} is recorded, and nobody put it"));
        assert!(event.accept_asked.contains(stream), "{key} is recorded for {stream}, and nobody said so");
        for part in parts {
            let (id, fragment) = (key.fragment(part.source), event.fragments.get(&part.source));
            assert_eq!(part.outcome, ReadOutcome::Found, "{id} is recorded without its bytes");
            let asked = fragment.map(|fragment| &fragment.asked).into_iter().flatten().copied();
            let content = asked.into_iter().find(|variant| payload(id, *variant) == part.bytes);
            let content = content.unwrap_or_else(|| panic!("{id} is recorded with bytes that nobody put"));
            let durable = fragment.and_then(|fragment| fragment.durable);
            assert!(durable.is_none_or(|durable| durable == content), "{id} is recorded with other bytes");
        }
        let there: BTreeSet<SourceId> = parts.iter().map(|part| part.source).collect();
        for (source, fragment) in &event.fragments {
            let recorded = fragment.durable.is_none() || there.contains(source);
            assert!(recorded, "{key} is recorded for {stream} without its source {source}");
        }
    }

    /// At the end: these are the events of the complete files of a stream.
    pub(crate) fn all_is_recorded(&self, stream: &StreamName, recorded: impl Iterator<Item = EventKey>) {
        let mut once = BTreeSet::new();
        recorded.for_each(|key| assert!(once.insert(key), "{key} is recorded twice for {stream}"));
        for (key, event) in &self.events {
            let must = event.accepted.contains(stream) && !event.end_asked;
            assert!(!must || once.contains(key), "{key} was accepted into {stream} and is in no file of it");
        }
    }
}
