//! Drives that do not answer: one is taken out, several at once are waited for.
#![allow(dead_code, reason = "the world has more than this needs")]

mod world;

use std::time::Duration;

use forebay_types::ReadOutcome;
use world::{PATIENT, Setup, Shape, World};

const SHAPE: Shape = Shape::of(5, 4, 1);

fn world() -> World {
    World::new(11, SHAPE, Setup { drive_timeout: Duration::from_secs(1), ..PATIENT })
}

#[test]
fn a_silent_drive_is_taken_out_and_what_waited_is_written_without_it() {
    let mut world = world();
    world.put_new();
    world.pass(Duration::from_millis(200));
    assert_eq!((world.puts_durable(), world.members()), (1, 5));
    world.silence(&[2], true);
    world.put_new();
    world.pass(Duration::from_millis(500));
    assert_eq!((world.puts_durable(), world.members()), (1, 5), "it has half a second more");
    world.pass(Duration::from_secs(3));
    assert_eq!((world.puts_durable(), world.members()), (2, 4));
}

#[test]
fn when_more_are_silent_than_parity_covers_nobody_is_blamed() {
    let mut world = world();
    world.silence(&[1, 3], false);
    world.put_new();
    world.pass(Duration::from_secs(30));
    assert_eq!((world.puts_durable(), world.members()), (0, 5));
    world.end_silence(&[1, 3]);
    world.pass(Duration::from_secs(1));
    assert_eq!((world.puts_durable(), world.members()), (1, 5));
}

#[test]
fn a_driver_that_stood_still_blames_no_drive() {
    let mut world = world();
    world.silence(&[4], false);
    world.put_new();
    world.stand_still(Duration::from_secs(60));
    world.end_silence(&[4]);
    world.pass(Duration::from_secs(1));
    assert_eq!((world.puts_durable(), world.members()), (1, 5));
}

#[test]
fn a_drive_that_falls_silent_while_the_lane_recovers_is_out_for_good() {
    let mut world = world();
    world.put_new();
    world.pass(Duration::from_millis(200));
    world.put_new();
    world.crash();
    world.silence(&[2], true);
    world.open_lane();
    world.pass(Duration::from_secs(3));
    assert!(world.lane().is_serving(), "{:?}", world.lane().status());
    assert_eq!(world.members(), 4);
    world.after_start();
    let before = world.puts_durable();
    world.put_new();
    world.pass(Duration::from_secs(1));
    assert_eq!(world.puts_durable(), before + 1, "segments do not lie on it");
}

#[test]
fn a_drive_that_falls_silent_while_torn_flushes_are_written_again_is_out_for_good() {
    for turns in 0..60 {
        let mut world = World::new(turns, SHAPE, Setup { drive_timeout: Duration::from_secs(1), ..PATIENT });
        world.put_new();
        world.pass(Duration::from_millis(200));
        world.put_new();
        world.turn();
        world.crash();
        world.open_lane();
        (0..turns).for_each(|_| world.turn());
        world.silence(&[2], true);
        world.pass(Duration::from_secs(5));
        assert!(world.lane().is_serving(), "{:?}", world.lane().status());
        world.after_start();
        world.put_new();
        world.pass(Duration::from_secs(5));
        assert_eq!(world.members(), 4);
        assert_eq!(world.read(1), ReadOutcome::Found);
        assert_eq!(world.read(3), ReadOutcome::Found);
    }
}

#[test]
fn reads_that_fail_are_made_up_for_and_take_no_drive_out_that_is_needed() {
    let mut world = world();
    for _ in 0..4 {
        world.put_new();
        world.pass(Duration::from_millis(200));
    }
    world.kill_drive(0);
    world.put_new();
    world.pass(Duration::from_millis(500));
    assert_eq!(world.members(), 4);
    world.make_unreadable(1, false);
    world.crash_and_start();
    for _ in 0..50 {
        // With one parity, and one drive dead, what lies on the other cannot be read for now.
        let outcome = world.read(1);
        assert!(matches!(outcome, ReadOutcome::Found | ReadOutcome::Unavailable), "{outcome:?}");
    }
    world.put_new();
    world.pass(Duration::from_millis(500));
    assert_eq!((world.members(), world.puts_durable()), (4, 6), "it takes writes");
    assert!(world.lane().status().counters.reads_failed > 0);
    world.make_readable();
    assert_eq!(world.read(1), ReadOutcome::Found);
}

#[test]
fn a_drive_of_which_many_reads_in_a_row_fail_is_taken_out() {
    let mut world = world();
    for _ in 0..4 {
        world.put_new();
        world.pass(Duration::from_millis(200));
    }
    world.crash_and_start();
    world.make_unreadable(1, true);
    for event in 1..=4 {
        for _ in 0..3 {
            assert_eq!(world.read(event), ReadOutcome::Found, "parity stands in");
        }
    }
    world.pass(Duration::from_millis(500));
    assert_eq!(world.members(), 4);
}
