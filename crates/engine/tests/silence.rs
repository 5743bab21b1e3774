//! Drives that do not answer: one is taken out, several at once are waited for.
#![allow(dead_code, reason = "the world has more than this needs")]

mod world;

use std::time::Duration;

use world::{PATIENT, Setup, Shape, World};

const SHAPE: Shape = Shape { drives: 5, data: 4, parity: 1, losses: 1 };

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
