//! What a lane tells those who look on while events arrive and are decided.
//!
//! It costs a put or a decision one entry in a ring of fixed size, and nothing waits for whoever reads it.

use forebay_types::{Cursor, EventKey};

use super::Lane;
use crate::accepted::StreamSet;
use crate::api::{Subscription, ToldEvent, ToldPage};
use crate::planted::{Planted, planted};
use crate::told::{Ring, Told};

/// What happened to events, by what it was.
pub(super) struct Happened {
    /// Filters may have them.
    offered: Ring,
    accepted: Ring,
}

impl Happened {
    pub(super) fn new(events_max: usize) -> Happened {
        Happened { offered: Ring::new(events_max), accepted: Ring::new(events_max) }
    }
}

impl Lane {
    /// From now on filters may have an event.
    pub(super) fn tell_offered(&mut self, key: EventKey, incomplete: bool) {
        self.happened.offered.push(Told { key, streams: StreamSet::default(), incomplete });
    }

    /// An event was accepted, durably.
    pub(super) fn tell_accepted(&mut self, key: EventKey, streams: StreamSet, incomplete: bool) {
        self.happened.accepted.push(Told { key, streams, incomplete });
    }

    /// What happened behind a place, at most so many events; those among them that are over by now are counted alone.
    pub fn told(&self, wanted: &Subscription, events_max: usize) -> ToldPage {
        let ring = match &wanted.stream {
            None => &self.happened.offered,
            Some(_) => &self.happened.accepted,
        };
        let mut page = ToldPage {
            events: Vec::new(),
            next: Cursor { start: self.config.epoch, sequence: ring.sequence() },
            restarted: false,
            dropped: 0,
            gone: 0,
            more: false,
        };
        let Some(after) = wanted.after else { return page };
        // A place that this start has not come to is one of another start, too.
        page.restarted = after.start != page.next.start || after.sequence > ring.sequence();
        let behind = if page.restarted { 0 } else { after.sequence };
        let (forgotten, told) = ring.behind(behind);
        if !planted(Planted::DropsUncounted) {
            page.dropped = forgotten;
        }
        page.next.sequence = behind + forgotten;
        // Nothing was accepted into a stream that the lane does not know.
        let stream = wanted.stream.as_ref().map(|name| self.accepted.stream(name));
        let is_wanted = |told: &Told| {
            wanted.run.is_none_or(|run| run == told.key.run)
                && wanted.fraction.has(told.key)
                && stream.is_none_or(|known| known.is_some_and(|stream| told.streams.contains(stream)))
        };
        for told in told {
            if page.events.len() + page.gone as usize == events_max {
                page.more = true;
                break;
            }
            page.next.sequence += 1;
            if is_wanted(told) {
                match self.index.event(told.key) {
                    Some(event) => page.events.push(ToldEvent {
                        key: told.key,
                        fragments: event.fragment_count() as u32,
                        bytes: event.bytes(),
                        incomplete: told.incomplete,
                    }),
                    None => page.gone += 1,
                }
            }
        }
        page
    }
}
