//! What a lane holds, and that it stays within what it may.

use std::time::Duration;

use forebay_types::{EventKey, PutOutcome, ReadOutcome, SourceId};

use super::Driven;
use crate::api::{Admission, Fetch, Put, Token};

impl Driven {
    fn held_bytes(&self) -> u64 {
        let status = self.lane.status();
        status.memory_bytes - status.index_bytes
    }

    fn is_cached(&mut self, key: EventKey) -> bool {
        match self.lane.get(Token(1 << 40), key.fragment(SourceId(0)), &mut Vec::new()) {
            Fetch::Done(outcome, _) => outcome == ReadOutcome::Found,
            Fetch::Pending { bytes } => {
                assert!(bytes > 0);
                self.reply();
                false
            }
        }
    }
}

#[test]
fn the_cache_holds_what_was_written_and_not_the_buffers_that_it_came_in() {
    let mut driven = Driven::new(|config| config.cache_bytes = 2 << 20);
    let put: u64 = 120;
    for event in 0..put {
        driven.put(EventKey::new(1, event), 0, 1, 10_000);
        assert!(driven.held_bytes() <= 2 << 20, "{}", driven.held_bytes());
    }
    let cached = (0..put).filter(|event| driven.is_cached(EventKey::new(1, *event))).count();
    assert_eq!(cached as u64, put, "1.2 MB in flushes of their own and 2 MiB of cache");
    assert!(driven.lane.cache.bytes() < 12_000 * put as usize, "{}", driven.lane.cache.bytes());
}

#[test]
fn buffers_and_cache_share_a_budget_at_any_rate() {
    for cache_bytes in [1 << 20, 3 << 20] {
        let mut driven = Driven::new(|config| config.cache_bytes = cache_bytes);
        let payload = vec![7; 10_000];
        let crc = forebay_types::crc32c(&payload);
        for event in 0..600 {
            let put = Put { id: EventKey::new(1, event).fragment(SourceId(0)), expected: 1, crc };
            while driven.lane.put(Token(1), &put, &payload) == Admission::Busy {
                driven.turn();
                while driven.lane.next_reply().is_some() {}
            }
            assert!(driven.held_bytes() <= cache_bytes as u64, "{} at event {event}", driven.held_bytes());
        }
        driven.pass(Duration::from_secs(2));
        let newest = (500..600).filter(|event| driven.is_cached(EventKey::new(1, *event))).count();
        assert!(newest >= 20, "{newest} of the newest are cached");
        assert!(driven.held_bytes() <= cache_bytes as u64);
    }
}

#[test]
fn whatever_is_remembered_of_events_counts_as_index() {
    let mut driven = Driven::new(|config| config.index_bytes = 40 << 10);
    let mut refused = None;
    for event in 0..4000 {
        let key = EventKey::new(1, 2 * event);
        let put = Put { id: key.fragment(SourceId(0)), expected: 1, crc: forebay_types::crc32c(b"x") };
        let admission = loop {
            match driven.lane.put(Token(1), &put, b"x") {
                Admission::Busy => driven.turn(),
                admission => break admission,
            }
        };
        if admission == Admission::Done(PutOutcome::IndexFull) {
            refused = Some(key);
            break;
        }
        driven.reply();
        // Each leaves a range of its own behind.
        driven.delete(key);
        assert_eq!(driven.lane.status().events, 0);
    }
    assert!(refused.is_some(), "{:?}", driven.lane.status());
    assert!(driven.lane.index.bytes() < 4096);
    let bytes = driven.lane.status().index_bytes;
    assert!((40 << 10..48 << 10).contains(&bytes), "{bytes}");
    // What makes room is taken all the same.
    assert_eq!(
        driven.lane.delete(Token(2), EventKey::new(1, 0)),
        Admission::Done(forebay_types::DecideOutcome::AlreadyDone)
    );
}

/// Files are written in pieces of a MiB, two of which are the payload of a flush on solid-state drives.
#[test]
fn records_that_are_a_part_of_a_flush_fill_it_beside_their_table() {
    let mut driven = Driven::new(|_| {});
    driven.put(EventKey::new(1, 0), 0, 1, 100);
    let before = driven.lane.status().counters.flushes;
    let payload_bytes = driven.lane.config.flush_bytes * usize::from(driven.lane.config.geometry.data_shards);
    for event in 1..9 {
        driven.begin_put(EventKey::new(1, event), 0, 1, payload_bytes / 8);
    }
    driven.replies_to(8);
    assert_eq!(driven.lane.status().counters.flushes - before, 1);
}
