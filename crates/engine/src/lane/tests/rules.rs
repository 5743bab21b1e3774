//! Runs that are closed, discarded and held.

use forebay_types::{DecideOutcome, EventId, EventKey, PutOutcome, RunId, RunPuts, StreamName, Verdict, crc32c};

use super::Driven;
use crate::api::{Admission, Put, Token};

const RUN: RunId = RunId(1);

fn put(driven: &mut Driven, event: u64, source: u32, payload: &[u8]) -> Admission<PutOutcome> {
    let id = EventKey { run: RUN, event: EventId(event) }.fragment(forebay_types::SourceId(source));
    driven.lane.put(Token(900 + event), &Put { id, expected: 0, crc: crc32c(payload) }, payload)
}

impl Driven {
    fn decide_on(&mut self, key: EventKey, verdict: &Verdict) {
        let token = self.token();
        while let admission = self.lane.decide(token, key, verdict, false)
            && admission != Admission::Pending
        {
            assert_eq!(admission, Admission::Busy);
            self.turn();
        }
        self.reply();
    }
}

#[test]
fn a_closed_run_takes_nothing_new_and_answers_for_what_it_has() {
    let mut driven = Driven::new(|_| {});
    assert_eq!(put(&mut driven, 1, 1, b"one"), Admission::Pending);
    driven.replies_to(1);
    driven.lane.rule_run(RUN, RunPuts::Closed, false);
    assert_eq!(put(&mut driven, 1, 1, b"one"), Admission::Done(PutOutcome::Durable), "it was there before");
    assert_eq!(put(&mut driven, 1, 1, b"two"), Admission::Done(PutOutcome::Conflict));
    assert_eq!(put(&mut driven, 1, 2, b"one"), Admission::Done(PutOutcome::RunClosed));
    assert_eq!(put(&mut driven, 2, 1, b"one"), Admission::Done(PutOutcome::RunClosed));
    driven.lane.rule_run(RUN, RunPuts::Wait, false);
    assert_eq!(put(&mut driven, 2, 1, b"one"), Admission::Busy);
    driven.lane.rule_run(RUN, RunPuts::Discarded, false);
    assert_eq!(put(&mut driven, 1, 1, b"one"), Admission::Done(PutOutcome::RunDiscarded));
    driven.lane.rule_run(RUN, RunPuts::Taken, false);
    assert_eq!(put(&mut driven, 2, 1, b"one"), Admission::Pending);
    let mut events = Vec::new();
    driven.lane.events_of_run(RUN, EventId(2), 9, &mut events);
    assert_eq!(events, [EventKey::new(1, 2)]);
    events.clear();
    driven.lane.events_of_run(RunId(0), EventId(0), 9, &mut events);
    assert_eq!(events, []);
}

#[test]
fn nothing_of_a_held_run_is_freed_but_what_is_rejected() {
    let mut driven = Driven::new(|_| {});
    for event in 1..4 {
        assert_eq!(put(&mut driven, event, 1, b"one"), Admission::Pending);
        driven.replies_to(1);
    }
    let stream: StreamName = "physics".parse().expect("a name");
    let accept = Verdict::Accept(vec![stream.clone()]);
    let key = |event| EventKey { run: RUN, event: EventId(event) };
    driven.decide_on(key(1), &accept);
    driven.lane.rule_run(RUN, RunPuts::Taken, true);
    assert_eq!(driven.lane.release(Token(1), key(1), &stream), Admission::Done(DecideOutcome::Held));
    assert_eq!(driven.lane.delete(Token(1), key(1)), Admission::Done(DecideOutcome::Held));
    assert_eq!(driven.lane.delete(Token(1), key(2)), Admission::Done(DecideOutcome::Held));
    assert_eq!(driven.lane.delete(Token(1), key(9)), Admission::Done(DecideOutcome::NotFound));
    driven.decide_on(key(2), &Verdict::Reject);
    assert!(driven.lane.is_finished(key(2)), "a filter's word is heeded");
    assert_eq!(driven.lane.delete(Token(1), key(2)), Admission::Done(DecideOutcome::AlreadyDone));
    driven.lane.rule_run(RUN, RunPuts::Taken, false);
    assert_eq!(driven.lane.release(Token(1), key(1), &stream), Admission::Pending);
    driven.reply();
    assert!(driven.lane.is_finished(key(1)));
}
