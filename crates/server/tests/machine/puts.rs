//! Puts and decisions, whatever the lane does.

use forebay_engine::Reply;
use forebay_protocol::{Class, Decide, DecideEntry, DecideReply, Delete, ErrorCode, Kind, PutReply, Release};
use forebay_types::{DecideOutcome, EventKey, FragmentId, PutOutcome};
use proptest::prelude::*;

use crate::fake::{FRAGMENT_BYTES_MAX, Will, World, config, fragment, put_frame};

fn will() -> impl Strategy<Value = Will> {
    prop_oneof![6 => Just(Will::Take), 1 => Just(Will::Refuse), 1 => Just(Will::BeBusy)]
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Store(usize),
    Refuse(usize),
    Nothing,
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![4 => (0..40usize).prop_map(Answer::Store), 1 => (0..40usize).prop_map(Answer::Refuse), 1 => Just(Answer::Nothing)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Each put is answered once, each of its fragments has an outcome, and none is called durable that the lane did not make durable.
    #[test]
    fn puts_are_answered_as_the_lane_says(
        batches in prop::collection::vec(prop::collection::vec(0..40_000usize, 0..12), 1..8),
        wills in prop::collection::vec(will(), 0..60),
        answers in prop::collection::vec(answer(), 0..60),
        pieces in prop::collection::vec(0..70_000usize, 0..80),
    ) {
        let mut world = World::new(config());
        let id = world.connect(Class::Readout);
        world.peers.get_mut(&id).expect("open").pieces = pieces.into();
        world.lane.will = wills.into();
        let mut sent: Vec<Vec<(FragmentId, Vec<u8>)>> = Vec::new();
        for (event, sizes) in batches.iter().enumerate() {
            let fragments: Vec<_> =
                sizes.iter().enumerate().map(|(source, size)| fragment(event as u64, source as u32, *size)).collect();
            world.send(id, &put_frame(100 + event as u64, &fragments));
            sent.push(fragments);
        }
        let mut refused = std::collections::BTreeSet::new();
        for answer in answers {
            world.turn(true);
            let pending = &mut world.lane.pending;
            match answer {
                Answer::Store(at) if !pending.is_empty() => {
                    let token = pending.remove(at % pending.len());
                    world.lane.replies.push_back(Reply::Stored { token, records: 1 });
                }
                Answer::Refuse(at) if !pending.is_empty() => {
                    // All that is pending of a request, as the lane does it.
                    let token = pending[at % pending.len()];
                    let records = pending.iter().filter(|other| **other == token).count() as u32;
                    pending.retain(|other| *other != token);
                    refused.insert(token.0 >> 16);
                    let outcome = PutOutcome::Unavailable;
                    world.lane.replies.push_back(Reply::Refused { token, records, outcome });
                }
                _ => {}
            }
        }
        world.run();
        let frames = world.take(id);
        prop_assert_eq!(frames.len(), sent.len());
        for (event, fragments) in sent.iter().enumerate() {
            let frame = frames.iter().find(|frame| frame.request == 100 + event as u64).expect("answered");
            let reply: PutReply = frame.message();
            prop_assert_eq!(reply.outcomes.len(), fragments.len());
            for ((fragment, payload), outcome) in fragments.iter().zip(&reply.outcomes) {
                let given: Vec<_> = world.lane.given.iter().filter(|(_, other, _)| other == fragment).collect();
                prop_assert!(given.len() <= 1, "{} was given {} times", fragment, given.len());
                match given.first() {
                    None => prop_assert_eq!(*outcome, PutOutcome::Late),
                    Some((token, _, bytes)) => {
                        prop_assert_eq!(bytes, payload);
                        let was_refused = refused.contains(&(token.0 >> 16));
                        let expected = if was_refused { PutOutcome::Unavailable } else { PutOutcome::Durable };
                        prop_assert_eq!(*outcome, expected);
                    }
                }
            }
        }
        let given: Vec<_> = world.lane.given.iter().map(|(_, id, _)| *id).collect();
        prop_assert!(given.is_sorted(), "fragments reach the lane in the order in which they were sent");
        prop_assert_eq!((world.service.staging_bytes(), world.service.requests_pending()), (0, 0));
    }

    /// Decisions, deletions and releases: each event has the outcome that the lane gave for it.
    #[test]
    fn decisions_are_answered_one_by_one(
        counts in prop::collection::vec(0..20usize, 1..6),
        wills in prop::collection::vec(will(), 0..60),
        order in prop::collection::vec(0..100usize, 0..60),
    ) {
        let mut world = World::new(config());
        let id = world.connect(Class::Filter);
        world.lane.will = wills.into();
        let stream: forebay_types::StreamName = "physics".parse().expect("a name");
        for (request, count) in counts.iter().enumerate() {
            let events: Vec<_> = (0..*count as u64).map(|event| EventKey::new(request as u32, event)).collect();
            let number = 10 + request as u64;
            match request % 3 {
                0 => world.ask(id, number, &Delete { events }),
                1 => world.ask(id, number, &Release { stream: stream.clone(), events }),
                _ => {
                    let entry = |(at, key)| DecideEntry { key, streams: at as u64 % 2, incomplete: false };
                    let entries = events.into_iter().enumerate().map(entry).collect();
                    world.ask(id, number, &Decide { streams: vec![stream.clone()], entries });
                }
            }
        }
        let mut done = std::collections::BTreeSet::new();
        for at in order {
            world.turn(true);
            let decided = &mut world.lane.decided;
            if !decided.is_empty() {
                let (token, key) = decided.remove(at % decided.len());
                let outcome = if at % 2 == 0 { DecideOutcome::Done } else { DecideOutcome::NoSpace };
                if at % 2 == 1 {
                    done.insert(key);
                }
                world.lane.replies.push_back(Reply::Decided { token, outcome });
            }
        }
        let refused_so_far = world.lane.offers;
        world.run();
        prop_assert!(world.lane.offers >= refused_so_far);
        let frames = world.take(id);
        prop_assert_eq!(frames.len(), counts.len());
        for (request, count) in counts.iter().enumerate() {
            let frame = frames.iter().find(|frame| frame.request == 10 + request as u64).expect("answered");
            let outcomes = frame.message::<DecideReply>().outcomes;
            prop_assert_eq!(outcomes.len(), *count);
            for (event, outcome) in outcomes.iter().enumerate() {
                let no_space = done.contains(&EventKey::new(request as u32, event as u64));
                prop_assert_eq!(*outcome == DecideOutcome::NoSpace, no_space);
                prop_assert_ne!(*outcome, DecideOutcome::Unavailable);
            }
        }
    }
}

#[test]
fn each_decision_has_the_verdict_that_it_names() {
    let mut world = World::new(config());
    let id = world.connect(Class::Filter);
    let streams: Vec<forebay_types::StreamName> =
        (0..64).map(|stream| format!("stream{stream}").parse().expect("a name")).collect();
    let masks: Vec<u64> =
        (0..3000u64).map(|n| if n % 5 == 0 { 0 } else { (n / 2).wrapping_mul(0x9E37_79B9_7F4A_7C15) }).collect();
    let entry = |(event, streams): (usize, &u64)| DecideEntry {
        key: EventKey::new(1, event as u64),
        streams: *streams,
        incomplete: false,
    };
    let decide = Decide { streams, entries: masks.iter().enumerate().map(entry).collect() };
    world.ask(id, 5, &decide);
    world.run();
    assert_eq!(world.take(id)[0].message::<DecideReply>().outcomes.len(), 3000);
    let expected: Vec<_> = decide.entries.iter().map(|entry| decide.verdict(entry)).collect();
    assert_eq!(world.lane.verdicts, expected);
}

#[test]
fn a_fragment_that_the_store_does_not_take_costs_no_memory_and_harms_no_other() {
    let mut world = World::new(config());
    let id = world.connect(Class::Readout);
    let large = FRAGMENT_BYTES_MAX as usize + 1;
    let fragments = [fragment(1, 0, 5000), fragment(1, 1, large), fragment(1, 2, 5000), fragment(1, 3, large)];
    world.send(id, &put_frame(7, &fragments));
    world.send(id, &put_frame(8, &fragments[..1]));
    world.run();
    let frames = world.take(id);
    let reply: PutReply = frames[0].message();
    let (durable, too_large) = (PutOutcome::Durable, PutOutcome::TooLarge);
    assert_eq!(reply.outcomes, [durable, too_large, durable, too_large]);
    assert_eq!((frames[1].request, frames[1].message::<PutReply>().outcomes), (8, vec![durable]));
    assert!(world.staging_most <= 256 << 10, "{} bytes", world.staging_most);
}

#[test]
fn writers_take_turns_when_the_lane_is_busy() {
    let mut world = World::new(config());
    let writers: Vec<u64> = (0..4).map(|_| world.connect(Class::Readout)).collect();
    for (writer, id) in writers.iter().enumerate() {
        for event in 0..20 {
            world.send(*id, &put_frame(event, &[fragment(event, writer as u32, 1000)]));
        }
    }
    // The lane takes one fragment a turn.
    for _ in 0..400 {
        world.lane.will = [Will::Take, Will::BeBusy].into();
        world.lane.settle();
        world.turn(true);
    }
    assert_eq!(world.lane.given.len(), 80);
    let mut counts = [0i32; 4];
    for (_, id, _) in &world.lane.given {
        counts[id.source.0 as usize] += 1;
        let (least, most) = (counts.iter().min().expect("four"), counts.iter().max().expect("four"));
        assert!(most - least <= 2, "writers went on by {counts:?} fragments");
    }
}

#[test]
fn a_busy_lane_is_asked_again_without_a_completion_too() {
    let mut world = World::new(config());
    let id = world.connect(Class::Readout);
    world.send(id, &put_frame(5, &[fragment(1, 1, 10)]));
    world.lane.will = [Will::BeBusy].into();
    world.turn(false);
    let retry = world.service.next_retry().expect("something waits");
    world.turn(false);
    assert_eq!(world.lane.offers, 1);
    world.now = retry;
    world.turn(false);
    assert_eq!((world.lane.offers, world.lane.given.len()), (2, 1));
    assert_eq!(world.service.next_retry(), None);
}

#[test]
fn writers_are_told_to_wait_before_the_store_is_full() {
    const CREDIT: u32 = 16 << 20;
    for (segments_free, busy_ms, credit) in
        [(100, 0, CREDIT), (6, 0, CREDIT), (5, 1, CREDIT), (4, 8, CREDIT), (2, 72, CREDIT), (0, 200, 16 << 10)]
    {
        let mut world = World::new(config());
        world.lane.segments_free = segments_free;
        world.now = forebay_types::Time(1 << 40);
        let id = world.connect(Class::Readout);
        world.send(id, &put_frame(5, &[fragment(1, 1, 10)]));
        world.run();
        let reply: PutReply = world.take(id)[0].message();
        assert_eq!((reply.busy_ms, reply.credit_bytes), (busy_ms, credit), "{segments_free} segments are free");
    }
}

#[test]
fn after_the_stop_nothing_new_is_done_and_what_was_taken_is_answered() {
    let mut world = World::new(config());
    let id = world.connect(Class::Readout);
    world.send(id, &put_frame(5, &[fragment(1, 1, 10)]));
    world.turn(false);
    world.service.stop();
    world.send(id, &put_frame(6, &[fragment(2, 1, 100_000)]));
    world.run();
    let frames = world.take(id);
    let kinds: Vec<_> = frames.iter().map(|frame| (frame.request, frame.kind)).collect();
    assert_eq!(kinds, [(5, Kind::PutReply), (6, Kind::Error)]);
    let error = frames[1].error();
    assert_eq!((error.code, error.retryable), (ErrorCode::ShuttingDown, true));
    assert_eq!(world.lane.given.len(), 1);
}
