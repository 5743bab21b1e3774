//! What a lane says of itself while it starts, stops, or cannot go on.
#![allow(dead_code, reason = "the world has more than this needs")]

mod world;

use std::time::Duration;

use forebay_engine::{Admission, Fetch, Membership, Token};
use forebay_types::{DecideOutcome, EventKey, ReadOutcome, SourceId, StreamName, Verdict};
use world::{PATIENT, Setup, Shape, World};

const SHAPE: Shape = Shape::of(5, 4, 1);

fn no_quorum() -> Membership {
    Membership::NoQuorum { reason: "two drives are left".to_owned() }
}

#[test]
fn a_lane_that_can_write_no_more_while_it_stops_ends_all_the_same() {
    let mut world = World::new(3, SHAPE, PATIENT);
    world.put_new();
    world.lane().stop();
    world.lane().stop();
    world.lane().membership(&no_quorum());
    world.expect_failure();
    world.lane().stop();
    assert!(world.lane().is_stopped());
    world.turn();
    assert_eq!(world.stopped_whole(), Some(false), "a put was on its way");
}

#[test]
fn a_lane_that_stops_before_it_has_recovered_does_not_call_that_whole() {
    let mut world = World::new(4, SHAPE, PATIENT);
    world.put_new();
    world.crash();
    world.open_lane();
    world.lane().stop();
    assert!(world.lane().is_stopped());
    world.turn();
    assert_eq!(world.stopped_whole(), Some(false));
}

#[test]
fn a_lane_that_could_not_recover_never_says_not_found() {
    let mut world = World::new(5, SHAPE, PATIENT);
    world.put_new();
    world.pass(Duration::from_millis(200));
    world.crash();
    world.corrupt_checkpoints();
    world.open_lane();
    assert_eq!(world.lane().serves_reads(), Err("it is still recovering what was stored"));
    world.expect_failure();
    world.pass(Duration::from_millis(200));
    let reason = world.lane().serves_reads().expect_err("nothing is known").to_owned();
    assert!(reason.contains("checkpoint"), "{reason}");
    let id = EventKey::new(1, 1).fragment(SourceId(0));
    let fetch = world.lane().get(Token(1), id, &mut Vec::new());
    assert_eq!(fetch, Fetch::Done(ReadOutcome::Unavailable, 0));
}

#[test]
fn a_lane_that_can_write_no_more_still_answers_for_what_it_has() {
    let mut world = World::new(6, SHAPE, PATIENT);
    world.put_new();
    world.pass(Duration::from_millis(200));
    world.lane().membership(&no_quorum());
    world.expect_failure();
    assert_eq!(world.lane().serves_reads(), Ok(()));
    let other = EventKey::new(1, 77).fragment(SourceId(0));
    assert_eq!(world.lane().get(Token(1), other, &mut Vec::new()), Fetch::Done(ReadOutcome::NotFound, 0));
}

fn stream(number: u32) -> Verdict {
    Verdict::Accept(vec![format!("stream-{number}").parse::<StreamName>().expect("a name")])
}

/// What a decision comes to when the lane is not busy.
fn decide(world: &mut World, event: u64, verdict: &Verdict) -> Admission<DecideOutcome> {
    for _ in 0..10_000 {
        match world.lane().decide(Token::NONE, EventKey::new(1, event), verdict, false) {
            Admission::Busy => world.turn(),
            taken => return taken,
        }
    }
    panic!("a decision is never taken: {:?}", world.lane().status());
}

#[test]
fn streams_of_events_that_are_not_here_get_no_number() {
    let mut world = World::new(7, SHAPE, PATIENT);
    world.put_new();
    world.pass(Duration::from_millis(200));
    for number in 0..100 {
        let admission = decide(&mut world, 1000 + u64::from(number), &stream(number));
        assert_eq!(admission, Admission::Done(DecideOutcome::NotFound));
    }
    assert!(world.lane().streams().is_empty());
    assert_eq!(decide(&mut world, 1, &stream(0)), Admission::Pending);
}

#[test]
fn with_too_few_drives_an_operator_may_let_writing_go_on_with_less_parity() {
    let shape = Shape { data_min: 4, ..SHAPE };
    let mut world = World::new(10, shape, PATIENT);
    world.put_new();
    world.pass(Duration::from_millis(20));
    world.expect_failure();
    world.kill_drive(3);
    world.pass(Duration::from_millis(20));
    world.put_new();
    world.pass(Duration::from_millis(200));
    assert_eq!(world.lane().status().width, None);
    let reason = world.lane().status().reason.expect("four drives are too few");
    assert!(reason.contains("4 drives are left and at least 5") && reason.contains("--parity-min 0"), "{reason}");
    assert_eq!(world.read(1), ReadOutcome::Found, "what is stored is read all the same");

    world.crash();
    world.open_lane();
    for _ in 0..1000 {
        world.turn();
    }
    let reason = world.lane().status().reason.expect("four drives are too few at a start, too");
    assert!(reason.contains("--parity-min 0"), "{reason}");

    world.crash();
    world.allow_less_parity();
    world.open_lane();
    for _ in 0..1000 {
        world.turn();
    }
    assert!(world.lane().is_serving(), "{:?}", world.lane().status());
    assert_eq!(world.lane().status().width, Some((4, 0)));
    for _ in 0..3 {
        world.put_new();
    }
    world.pass(Duration::from_millis(200));
    let counters = world.lane().status().counters;
    assert!(counters.fragments_stored_less_parity >= 3, "{counters:?}");
    assert_eq!(counters.fragments_stored_less_parity, counters.fragments_stored);
    assert_eq!(world.read(1), ReadOutcome::Found);
}

/// A store in which no stream can be added, and one event more than streams.
fn without_streams(seed: u64, setup: Setup) -> World {
    let mut world = World::new(seed, SHAPE, setup);
    for event in 1..=65 {
        world.put_new();
        world.pass(Duration::from_millis(20));
        let admission = decide(&mut world, event, &stream(event as u32));
        let expected = if event <= 64 { Admission::Pending } else { Admission::Done(DecideOutcome::TooManyStreams) };
        assert_eq!(admission, expected);
    }
    // The last one is written behind what is looked at beside it.
    for _ in 0..500 {
        if world.puts_durable() == 65 {
            break;
        }
        world.pass(Duration::from_millis(20));
    }
    assert_eq!(world.puts_durable(), 65, "{:?}", world.lane().status());
    world.pass(Duration::from_millis(500));
    world
}

#[test]
fn an_event_whose_leases_are_used_up_is_not_forgotten_when_it_can_go_nowhere() {
    let mut world = without_streams(8, Setup { lease_attempts_max: 3, ..PATIENT });
    for round in 0..10 {
        let mut leased = Vec::new();
        world.lane().lease(10, Duration::from_millis(1), None, &mut leased);
        assert_eq!(leased.len(), 1, "round {round}");
        world.pass(Duration::from_millis(100));
    }
}

#[test]
fn leases_are_used_up_however_many_are_allowed() {
    let mut world = World::new(9, SHAPE, Setup { lease_attempts_max: 300, ..PATIENT });
    world.put_new();
    world.pass(Duration::from_millis(20));
    let mut rounds = 0;
    while world.lane().streams().is_empty() {
        world.lane().lease(10, Duration::from_millis(1), None, &mut Vec::new());
        world.pass(Duration::from_millis(100));
        rounds += 1;
        assert!(rounds < 1000, "an event is leased for ever");
    }
}
