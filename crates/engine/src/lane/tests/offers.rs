//! Which events filters get, and when.

use std::time::Duration;

use forebay_types::{EventKey, Verdict};

use super::Driven;
use crate::api::{Admission, Reply, Token};

fn keys(run: u32, events: impl IntoIterator<Item = u64>) -> Vec<EventKey> {
    events.into_iter().map(|event| EventKey::new(run, event)).collect()
}

#[test]
fn an_event_of_which_nobody_said_how_large_it_is_is_offered_once_it_has_waited() {
    let mut driven = Driven::new(|_| {});
    let key = EventKey::new(1, 1);
    driven.put(key, 0, 0, 100);
    assert!(driven.lease(10, None).is_empty(), "more of it may come");
    driven.pass(Duration::from_millis(5100));
    let leased = driven.lease(10, None);
    assert_eq!(leased.iter().map(|e| (e.key, e.expected, e.attempt)).collect::<Vec<_>>(), [(key, 0, 1)]);
    // A filter that cannot put it together must be allowed to decide it now, or it waits for all of its leases to run out.
    assert!(leased[0].incomplete);
}

#[test]
fn an_overdue_event_does_not_wait_for_the_complete_ones_to_end() {
    let mut driven = Driven::new(|_| {});
    let overdue = EventKey::new(1, 50);
    driven.put(overdue, 0, 2, 100);
    driven.pass(Duration::from_millis(5100));
    for event in 100..200 {
        driven.put(EventKey::new(1, event), 0, 1, 100);
    }
    let leased = driven.lease(10, None);
    assert_eq!(leased.len(), 10);
    assert_eq!(leased.iter().filter(|e| e.incomplete).map(|e| e.key).collect::<Vec<_>>(), [overdue]);
}

#[test]
fn a_lease_of_one_run_leaves_the_others_as_they_are() {
    let mut driven = Driven::new(|_| {});
    for event in 0..30 {
        driven.put(EventKey::new(1 + event as u32 % 3, event), 0, 1, 100);
    }
    let of = |leased: Vec<crate::LeasedEvent>| leased.into_iter().map(|e| e.key).collect::<Vec<_>>();
    assert_eq!(of(driven.lease(4, Some(2))), keys(2, [1, 4, 7, 10]));
    assert_eq!(of(driven.lease(100, Some(3))), keys(3, (2..30).step_by(3)));
    assert_eq!(of(driven.lease(4, Some(1))), keys(1, [0, 3, 6, 9]));
    // Each run has its turn when any will do.
    assert_eq!(of(driven.lease(2, None)), keys(1, [12, 15]));
    assert_eq!(of(driven.lease(2, None)), keys(2, [13, 16]));
}

#[test]
fn what_nobody_leases_costs_nothing_when_it_is_gone() {
    let mut driven = Driven::new(|_| {});
    for round in 0..20 {
        for event in 0..50 {
            driven.put(EventKey::new(1, round * 50 + event), 0, event as u16 % 3, 10);
        }
        for event in 0..50 {
            driven.delete(EventKey::new(1, round * 50 + event));
        }
    }
    assert_eq!(driven.lane.index.next_timer(), None);
    assert!(driven.lane.index.bytes() < 2048, "{} bytes for nothing", driven.lane.index.bytes());
}

#[test]
fn an_event_whose_leases_are_used_up_stays_with_the_filters_when_it_cannot_be_put_aside() {
    let mut driven = Driven::new(|config| config.lease_attempts_max = 1);
    let key = EventKey::new(1, 1);
    driven.put(key, 0, 1, 100);
    // All names of streams are given: there is none left for `debug`.
    for number in 0..forebay_types::limits::STREAMS_MAX {
        let other = EventKey::new(2, number as u64);
        driven.put(other, 0, 1, 10);
        let verdict = Verdict::Accept(vec![format!("stream{number}").parse().expect("a stream")]);
        while let Admission::Busy = driven.lane.decide(Token(1 << 40), other, &verdict, false) {
            driven.turn();
        }
        assert!(matches!(driven.reply(), Reply::Decided { .. }));
    }
    for attempt in 1..4 {
        let leased = driven.lease(10, Some(1));
        assert_eq!(leased.iter().map(|e| (e.key, e.attempt)).collect::<Vec<_>>(), [(key, attempt)]);
        assert!(driven.lane.event(key).expect("it is here").leased);
        driven.pass(Duration::from_secs(31));
    }
    assert!(!driven.lane.event(key).expect("it is here").leased);
}

#[test]
fn a_lease_that_ran_out_goes_to_another_filter_and_then_to_the_stream_for_people() {
    let mut driven = Driven::new(|_| {});
    let key = EventKey::new(1, 1);
    driven.put(key, 0, 1, 100);
    for attempt in 1..=3 {
        let leased = driven.lease(10, None);
        assert_eq!(leased.iter().map(|e| (e.key, e.attempt)).collect::<Vec<_>>(), [(key, attempt)]);
        assert!(driven.lease(10, None).is_empty(), "leased to one filter at a time");
        driven.pass(Duration::from_secs(31));
    }
    for _ in 0..100 {
        driven.turn();
        for leased in driven.lease(10, None) {
            // The name of the stream had to become durable first.
            assert_eq!(leased.key, key);
            driven.pass(Duration::from_secs(31));
        }
    }
    assert_eq!(driven.lane.status().events_accepted, 1);
    assert_eq!(driven.lane.index.undecided_floor(), None);
}
