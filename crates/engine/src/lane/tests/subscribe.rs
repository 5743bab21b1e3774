//! What those who look on are told.

use std::time::Duration;

use forebay_types::{Cursor, EventKey, Fraction, RunId, Verdict};

use super::Driven;
use crate::api::{Admission, Subscription, ToldPage};

/// More than ever happens.
const ALL: usize = 1000;

fn wanted(after: Cursor) -> Subscription {
    Subscription { run: None, stream: None, fraction: Fraction::ALL, after: Some(after) }
}

fn of_stream(stream: &str, after: Cursor) -> Subscription {
    Subscription { stream: Some(stream.parse().expect("a name")), ..wanted(after) }
}

fn events(page: &ToldPage) -> Vec<u64> {
    page.events.iter().map(|event| event.key.event.0).collect()
}

impl Driven {
    fn now_on(&self) -> Cursor {
        let page = self.lane.told(&Subscription { after: None, ..wanted(Cursor::default()) }, ALL);
        assert!(page.events.is_empty() && !page.restarted && page.dropped == 0);
        page.next
    }

    fn told_behind(&self, after: Cursor) -> ToldPage {
        self.lane.told(&wanted(after), ALL)
    }

    fn put_events(&mut self, events: std::ops::Range<u64>) {
        events.for_each(|event| self.put(EventKey::new(1, event), 0, 1, 100));
    }

    fn accept(&mut self, event: u64, streams: &[&str]) {
        let verdict = Verdict::Accept(streams.iter().map(|name| name.parse().expect("a name")).collect());
        let token = self.token();
        while let admission = self.lane.decide(token, EventKey::new(1, event), &verdict, false)
            && admission != Admission::Pending
        {
            assert_eq!(admission, Admission::Busy);
            self.turn();
        }
        self.reply();
    }
}

#[test]
fn an_event_is_told_once_all_of_it_is_durable() {
    let mut driven = Driven::new(|_| {});
    driven.put_events(0..3);
    let begin = driven.now_on();
    let key = EventKey::new(1, 7);
    driven.put(key, 0, 2, 100);
    assert!(events(&driven.told_behind(begin)).is_empty(), "half of it is missing");
    driven.begin_put(key, 1, 2, 50);
    assert!(events(&driven.told_behind(begin)).is_empty(), "the other half is on its way");
    driven.replies_to(1);
    let page = driven.told_behind(begin);
    assert_eq!(events(&page), [7]);
    assert_eq!((page.events[0].fragments, page.events[0].bytes, page.events[0].incomplete), (2, 150, false));
    assert_eq!((page.dropped, page.gone, page.more, page.restarted), (0, 0, false, false));
    // Once, whatever is put again.
    driven.put(EventKey::new(1, 8), 0, 1, 10);
    let next = driven.told_behind(page.next);
    assert_eq!(events(&next), [8]);
    assert_eq!(events(&driven.told_behind(next.next)), []);
    assert_eq!(driven.told_behind(next.next).next, next.next);
}

#[test]
fn an_event_that_waited_for_its_fragments_is_told_without_them() {
    let mut driven = Driven::new(|_| {});
    let begin = driven.now_on();
    driven.put(EventKey::new(1, 1), 0, 2, 100);
    driven.put(EventKey::new(1, 2), 0, 0, 100);
    driven.pass(Duration::from_millis(5100));
    let page = driven.told_behind(begin);
    assert_eq!(events(&page), [1, 2]);
    assert!(page.events.iter().all(|event| event.incomplete));
    // What comes late tells nobody anew, nor does a lease that runs out.
    driven.put(EventKey::new(1, 1), 1, 2, 100);
    assert_eq!(driven.lease(10, None).len(), 2);
    driven.pass(Duration::from_secs(40));
    assert_eq!(driven.lease(10, None).len(), 2);
    assert_eq!(events(&driven.told_behind(page.next)), []);
}

#[test]
fn who_asks_for_a_stream_is_told_what_was_accepted_into_it() {
    let mut driven = Driven::new(|_| {});
    driven.put_events(0..4);
    let begin = driven.lane.told(&Subscription { after: None, ..of_stream("physics", Cursor::default()) }, ALL).next;
    driven.accept(1, &["physics"]);
    driven.accept(2, &["calibration"]);
    driven.accept(3, &["calibration", "physics"]);
    let page = driven.lane.told(&of_stream("physics", begin), ALL);
    assert_eq!(events(&page), [1, 3]);
    assert_eq!(events(&driven.lane.told(&of_stream("calibration", begin), ALL)), [2, 3]);
    let none = driven.lane.told(&of_stream("cosmics", begin), ALL);
    assert_eq!((events(&none), none.next), (vec![], page.next), "nothing is held back for a stream that is not there");
}

#[test]
fn a_run_and_a_part_are_chosen_by_the_event_alone() {
    let mut driven = Driven::new(|config| config.told_events = ALL);
    let begin = driven.now_on();
    for event in 0..200 {
        driven.put(EventKey::new(1 + event as u32 % 2, event), 0, 1, 10);
    }
    let fraction: Fraction = "0.2".parse().expect("a part");
    let of_two = Subscription { run: Some(RunId(2)), fraction, ..wanted(begin) };
    let expected: Vec<u64> =
        (0..200).filter(|event| event % 2 == 1 && fraction.has(EventKey::new(2, *event))).collect();
    assert!(expected.len() > 5);
    assert_eq!(events(&driven.lane.told(&of_two, ALL)), expected);
}

#[test]
fn who_comes_late_is_told_how_much_was_forgotten() {
    let mut driven = Driven::new(|config| config.told_events = 16);
    let begin = driven.now_on();
    driven.put_events(0..16);
    assert_eq!((events(&driven.told_behind(begin)), driven.told_behind(begin).dropped), ((0..16).collect(), 0));
    driven.put_events(16..50);
    let page = driven.told_behind(begin);
    assert_eq!((events(&page), page.dropped), ((34..50).collect(), 34));
    assert_eq!(page.next.sequence - begin.sequence, 50, "told and forgotten are all that happened");
    assert_eq!(driven.told_behind(page.next).dropped, 0, "it is said once");
}

#[test]
fn pages_come_one_behind_the_other() {
    let mut driven = Driven::new(|_| {});
    let begin = driven.now_on();
    driven.put_events(0..10);
    driven.delete(EventKey::new(1, 1));
    let (mut at, mut told, mut gone) = (begin, Vec::new(), 0);
    loop {
        let page = driven.lane.told(&wanted(at), 3);
        assert!(page.events.len() + page.gone as usize <= 3);
        told.extend(events(&page));
        (at, gone) = (page.next, gone + page.gone);
        if !page.more {
            break;
        }
    }
    assert_eq!((told, gone), (vec![0, 2, 3, 4, 5, 6, 7, 8, 9], 1), "what is over by then is counted");
}

#[test]
fn a_place_of_an_earlier_start_is_known_as_one() {
    let mut driven = Driven::new(|_| {});
    driven.put_events(0..5);
    let now = driven.now_on();
    let earlier = Cursor { start: now.start - 1, sequence: 2 };
    let page = driven.told_behind(earlier);
    assert_eq!((events(&page), page.restarted, page.dropped), ((0..5).collect(), true, 0));
    assert_eq!(page.next, now);
    let beyond = Cursor { sequence: now.sequence + 1, ..now };
    assert!(driven.told_behind(beyond).restarted);
    assert!(!driven.told_behind(now).restarted);
}
