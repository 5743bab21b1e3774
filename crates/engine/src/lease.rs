//! Which events the filters may work on: complete ones first, incomplete ones when they have waited long enough, those of a
//! filter that fell silent once more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use forebay_types::{EventKey, Time};

/// The queues of events that are not decided. The index says what has become of an event in the meantime; what is queued here may be out of
/// date and is checked when it is taken.
pub(crate) struct Leases {
    incomplete_after: Duration,
    /// Complete, in the order in which they became so.
    ready: VecDeque<EventKey>,
    /// Incomplete, in the order in which they may be offered all the same.
    waiting: VecDeque<(Time, EventKey)>,
    /// Offered and not decided, by the end of the lease.
    ends: BTreeSet<(Time, EventKey)>,
    holders: BTreeMap<EventKey, (Time, u64)>,
}

impl Leases {
    pub(crate) fn new(incomplete_after: Duration) -> Self {
        Leases {
            incomplete_after,
            ready: VecDeque::new(),
            waiting: VecDeque::new(),
            ends: BTreeSet::new(),
            holders: BTreeMap::new(),
        }
    }

    /// A new event came.
    pub(crate) fn arrived(&mut self, now: Time, key: EventKey) {
        self.waiting.push_back((now + self.incomplete_after, key));
    }

    /// An event has all of its fragments, or is to be offered again.
    pub(crate) fn ready(&mut self, key: EventKey) {
        self.ready.push_back(key);
    }

    /// The next event that may be offered.
    pub(crate) fn take(&mut self, now: Time) -> Option<EventKey> {
        if let Some(key) = self.ready.pop_front() {
            return Some(key);
        }
        match self.waiting.front() {
            Some((due, _)) if *due <= now => self.waiting.pop_front().map(|(_, key)| key),
            _ => None,
        }
    }

    pub(crate) fn hold(&mut self, key: EventKey, until: Time, filter: u64) {
        let before = self.holders.insert(key, (until, filter));
        assert!(before.is_none(), "event {key} is leased to one filter at a time");
        self.ends.insert((until, key));
    }

    /// The event is decided, or its lease is over.
    pub(crate) fn end(&mut self, key: EventKey) {
        if let Some((until, _)) = self.holders.remove(&key) {
            self.ends.remove(&(until, key));
        }
    }

    /// A lease that has run out; it is ended.
    pub(crate) fn take_expired(&mut self, now: Time) -> Option<EventKey> {
        let (until, key) = *self.ends.first()?;
        (until <= now).then(|| {
            self.end(key);
            key
        })
    }

    pub(crate) fn next_expiry(&self) -> Option<Time> {
        self.ends.first().map(|(until, _)| *until)
    }
}
