//! A stream of a store as a source: events that are accepted late, cannot be read, lose some of what they are made of, or are deleted.

use std::collections::{BTreeMap, BTreeSet};

use forebay_client::{AcceptedEvent, AcceptedPage};
use forebay_mover::Sums;
use forebay_mover::custody::SourceAnswer;
use forebay_mover::events::{EventKind, Events, Examined};
use forebay_types::{EventKey, Time};

/// An event of the store.
#[derive(Clone, Debug)]
struct Event {
    bytes: Vec<u8>,
    kind: EventKind,
    incomplete: bool,
    is_accepted: bool,
    /// It was accepted into another stream, too, which keeps it in the store.
    is_kept: bool,
    unreadable_until: Time,
}

#[derive(Debug, Default)]
pub(super) struct Stream {
    events: BTreeMap<EventKey, Event>,
    released: BTreeSet<EventKey>,
    /// Somebody deleted them.
    gone: BTreeSet<EventKey>,
}

impl Stream {
    /// An event is put together, and not decided yet.
    pub(super) fn put(&mut self, key: EventKey, kind: EventKind, bytes: Vec<u8>, is_kept: bool) {
        let event = Event { bytes, kind, incomplete: false, is_accepted: false, is_kept, unreadable_until: Time(0) };
        self.events.entry(key).or_insert(event);
    }

    pub(super) fn decide(&mut self, key: EventKey, is_accepted: bool) {
        match self.events.get_mut(&key) {
            Some(event) if is_accepted => event.is_accepted = true,
            _ => drop(self.events.remove(&key)),
        }
    }

    /// Whether all that was accepted into it was let go.
    pub(super) fn is_empty(&self) -> bool {
        self.events.keys().all(|key| self.released.contains(key))
    }

    /// Whether something of it can go wrong.
    pub(super) fn has(&self, key: EventKey) -> bool {
        self.events.contains_key(&key) && !self.released.contains(&key)
    }

    /// It loses fragments: what is left of it is of its kind, or of none.
    pub(super) fn lose(&mut self, key: EventKey, keeps_kind: bool) {
        let event = self.events.get_mut(&key).expect("it is there");
        event.bytes.push(7);
        event.incomplete = true;
        if !keeps_kind {
            event.kind = EventKind::Parts;
        }
    }

    pub(super) fn delete(&mut self, key: EventKey) {
        self.events.remove(&key);
        self.gone.insert(key);
    }

    pub(super) fn hide(&mut self, key: EventKey, until: Time) {
        self.events.get_mut(&key).expect("it is there").unreadable_until = until;
    }

    pub(super) fn list(&self, after: Option<EventKey>, max: usize) -> AcceptedPage {
        let is_listed = |key: &EventKey, event: &Event| event.is_accepted && !self.released.contains(key);
        let behind = self.events.iter().filter(|(key, event)| is_listed(key, event) && Some(**key) > after);
        let (mut events, mut more) = (Vec::new(), false);
        for (key, event) in behind {
            if events.len() == max {
                more = true;
                break;
            }
            let bytes = event.bytes.len() as u64;
            events.push(AcceptedEvent { key: *key, fragments: 1, bytes, incomplete: event.incomplete });
        }
        let undecided_floor = self.events.iter().find(|(_, event)| !event.is_accepted).map(|(key, _)| *key);
        AcceptedPage { events, more, undecided_floor }
    }

    pub(super) fn examine(&self, keys: &[EventKey], now: Time) -> Vec<Examined> {
        let examine = |key: &EventKey| match self.events.get(key) {
            None => Examined::Gone,
            Some(event) if event.unreadable_until > now => Examined::Unavailable,
            Some(event) => Examined::Event {
                kind: event.kind,
                numbered: true,
                incomplete: event.incomplete,
                sums: Sums::of(&event.bytes),
            },
        };
        keys.iter().map(examine).collect()
    }

    /// The file of these events, if all of them are still there and of its kind.
    pub(super) fn make(&self, events: &Events, now: Time) -> Result<Vec<u8>, SourceAnswer> {
        let container = events.container();
        let (mut file, mut event_bytes) = (container.head(), 0);
        for (sequence, key) in events.keys().enumerate() {
            let event = self.events.get(&key).filter(|event| event.kind == events.kind);
            let event = event.ok_or_else(|| SourceAnswer::Changed(format!("{key} changed")))?;
            if event.unreadable_until > now {
                return Err(SourceAnswer::NotNow(format!("{key} cannot be read")));
            }
            file.extend(container.before_event(sequence as u64, event.bytes.len() as u64));
            file.extend(&event.bytes);
            event_bytes += event.bytes.len() as u64;
        }
        if event_bytes != events.event_bytes {
            return Err(SourceAnswer::Changed("events lost something".to_owned()));
        }
        file.extend(container.tail(events.list.len(), event_bytes));
        Ok(file)
    }

    /// The stream lets some of them go; how many were there.
    pub(super) fn release(&mut self, keys: impl Iterator<Item = EventKey>) -> u64 {
        let mut released = 0;
        for key in keys {
            if !self.has(key) {
                let before = self.released.contains(&key) || self.gone.contains(&key);
                assert!(before, "{key} is released and was never there");
                continue;
            }
            self.released.insert(key);
            released += 1;
            self.events.retain(|of, event| *of != key || event.is_kept);
        }
        released
    }
}
