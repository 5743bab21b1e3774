//! What is told to those who look on.

use forebay_protocol::{Class, Delete, ErrorCode, ErrorReply, Kind, Message, Subscribe, SubscribeReply};
use forebay_types::{Cursor, EventKey, Fraction};

use crate::fake::{Received, World, config, fragment, put_frame};

fn behind(sequence: u64) -> Subscribe {
    let after = Some(Cursor { start: 7, sequence });
    Subscribe { max: u32::MAX, fraction: Fraction::ALL, run: None, after, stream: None }
}

fn reply(frame: &Received) -> SubscribeReply {
    assert_eq!((frame.kind, frame.more), (Kind::SubscribeReply, false));
    SubscribeReply::decode(&frame.table, &frame.payload).expect("sound")
}

#[test]
fn a_page_is_bounded_and_says_when_to_ask_again() {
    let mut world = World::new(config());
    let id = world.connect(Class::Monitor);
    world.ask(id, 1, &Subscribe { after: None, ..behind(0) });
    world.run();
    let first = reply(&world.take(id)[0]);
    assert_eq!((first.events.len(), first.next, first.retry_after_ms), (0, Cursor { start: 7, sequence: 0 }, 50));

    world.lane.told_events = 10_000;
    world.ask(id, 2, &behind(0));
    world.ask(id, 3, &Subscribe { max: 5, ..behind(1024) });
    world.run();
    let frames = world.take(id);
    let (full, asked) = (reply(&frames[0]), reply(&frames[1]));
    assert_eq!((full.events.len(), full.next.sequence, full.retry_after_ms), (1024, 1024, 0));
    assert_eq!((asked.events.len(), asked.events[0].key.event.0), (5, 1024));

    world.lane.told_events = 3;
    world.ask(id, 4, &behind(20));
    world.run();
    let last = reply(&world.take(id)[0]);
    assert_eq!((last.events.len(), last.retry_after_ms, last.restarted), (3, 50, false), "there was no more");
}

#[test]
fn a_place_of_another_start_is_told_and_is_no_error() {
    let mut world = World::new(config());
    let id = world.connect(Class::Monitor);
    world.ask(id, 1, &Subscribe { after: Some(Cursor { start: 6, sequence: 9 }), ..behind(0) });
    world.run();
    assert!(reply(&world.take(id)[0]).restarted);
}

#[test]
fn more_than_all_events_are_refused_and_so_is_a_lane_that_does_not_serve() {
    let mut world = World::new(config());
    let id = world.connect(Class::Monitor);
    let mut frame = Vec::new();
    behind(0).encode(1, &mut frame);
    let mut table = frame.split_off(forebay_protocol::HEADER_BYTES);
    table[4..8].copy_from_slice(&1_000_001u32.to_le_bytes());
    frame.clear();
    forebay_protocol::encode_frame(Kind::Subscribe, 0, 1, &table, &[], &mut frame);
    world.send(id, &frame);
    world.run();
    world.lane.not_serving = true;
    world.ask(id, 2, &behind(0));
    world.run();
    let errors: Vec<_> = world.take(id).iter().map(|frame| ErrorReply::decode(&frame.table, &frame.payload)).collect();
    let codes: Vec<_> = errors.into_iter().map(|error| error.expect("an error").code).collect();
    assert_eq!(codes, [ErrorCode::BadFrame, ErrorCode::NotServing]);
}

#[test]
fn however_many_subscribers_ask_puts_and_decisions_do_not_wait_for_them() {
    let mut world = World::new(config());
    let monitors: Vec<u64> = (0..20).map(|_| world.connect(Class::Monitor)).collect();
    let (writer, filter) = (world.connect(Class::Readout), world.connect(Class::Filter));
    world.lane.told_events = 10_000;
    for request in 0..200 {
        monitors.iter().for_each(|monitor| world.ask(*monitor, request, &behind(request)));
    }
    for round in 0..5u64 {
        world.send(writer, &put_frame(round, &[fragment(round, 1, 1000)]));
        let events = vec![EventKey::new(1, round)];
        world.ask(filter, round, &Delete { events });
        let (puts, lists) = (world.lane.given.len(), world.lane.lists.get());
        world.turn(true);
        assert_eq!((world.lane.given.len(), world.lane.decided.len()), (puts + 1, 1), "both are taken in this turn");
        assert!((1..=17).contains(&(world.lane.lists.get() - lists)), "{} answers in a turn", world.lane.lists.get());
        world.lane.settle();
        world.turn(true);
        assert_eq!((world.take(writer).len(), world.take(filter).len()), (1, 1), "and told in the next one");
        assert!(world.service.has_work(), "subscribers wait still");
    }
    world.run();
    assert!(monitors.iter().all(|monitor| world.take(*monitor).len() == 200));
}
