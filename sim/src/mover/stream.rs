//! A stream of a store as a source: events that are accepted late, cannot be read, lose some of what they are made of, or are deleted.

use std::collections::{BTreeMap, BTreeSet};

use forebay_client::{AcceptedEvent, AcceptedPage};
use forebay_mover::Sums;
use forebay_mover::custody::SourceAnswer;
use forebay_mover::events::{EventKind, Events, Examined, Making};
use forebay_types::{EventKey, RunId, Time};

use super::runs::{kind_of, taken_of};

/// An event of the store.
#[derive(Clone, Debug)]
struct Event {
    bytes: Vec<u8>,
    taken_unix_us: Option<u64>,
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
    /// When each was taken, also of those that are gone.
    taken: BTreeMap<EventKey, u64>,
}

impl Stream {
    /// An event is put together, and not decided yet.
    pub(super) fn put(
        &mut self,
        key: EventKey,
        kind: EventKind,
        (bytes, taken_unix_us): (Vec<u8>, Option<u64>),
        is_kept: bool,
    ) {
        if let (Some(taken), false) = (taken_unix_us, self.events.contains_key(&key)) {
            self.taken.insert(key, taken);
        }
        let (incomplete, is_accepted, unreadable_until) = (false, false, Time(0));
        let event = Event { bytes, taken_unix_us, kind, incomplete, is_accepted, is_kept, unreadable_until };
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

    /// When an event was taken, as its bytes say.
    pub(super) fn taken(&self, key: EventKey) -> Option<u64> {
        self.taken.get(&key).copied()
    }

    /// Events of a run that were ever there.
    pub(super) fn of_run(&self, run: RunId) -> u64 {
        let gone = self.released.iter().chain(&self.gone).filter(|key| !self.events.contains_key(key));
        self.events.keys().chain(gone).filter(|key| key.run == run).count() as u64
    }

    pub(super) fn examine(&self, keys: &[EventKey], making: &Making, now: Time) -> Vec<Examined> {
        let examine = |key: &EventKey| match self.events.get(key) {
            None => Examined::Gone,
            Some(event) if event.unreadable_until > now => Examined::Unavailable,
            Some(event) => Examined::Event {
                kind: kind_of(event.kind, making),
                numbered: true,
                incomplete: event.incomplete,
                taken_unix_us: event.taken_unix_us,
                sums: Sums::of(&taken_of(&event.bytes, making)),
            },
        };
        keys.iter().map(examine).collect()
    }

    /// The file of these events, if all of them are still there and of its kind.
    pub(super) fn make(&self, events: &Events, now: Time) -> Result<Vec<u8>, SourceAnswer> {
        let container = events.container();
        let (mut file, mut event_bytes) = (container.head(), 0);
        for (sequence, key) in events.keys().enumerate() {
            let event = self.events.get(&key).filter(|event| kind_of(event.kind, &events.making) == events.kind);
            let event = event.ok_or_else(|| SourceAnswer::Changed(format!("{key} changed")))?;
            if event.unreadable_until > now {
                return Err(SourceAnswer::NotNow(format!("{key} cannot be read")));
            }
            let bytes = taken_of(&event.bytes, &events.making);
            file.extend(container.before_event(sequence as u64, bytes.len() as u64));
            event_bytes += bytes.len() as u64;
            file.extend(bytes);
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
