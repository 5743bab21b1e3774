//! A full lane: whatever crashes and lost drives it went through, decisions are taken, space comes back, and the lane starts.
#![allow(dead_code, reason = "the world has more than this needs")]

mod world;

use world::{PATIENT, Setup, Shape, World};

const SHAPES: [Shape; 5] =
    [Shape::of(5, 4, 1), Shape::of(3, 2, 1), Shape::of(7, 4, 2), Shape::of(4, 4, 0), Shape::of(1, 1, 0)];

/// Runs a story with many seeds; a failure says which.
fn with_seeds(story: impl Fn(&mut World) + std::panic::RefUnwindSafe) {
    with_seeds_on(|seed| 2 + seed % 3, story);
}

fn with_seeds_on(drive_mib: impl Fn(u64) -> u64, story: impl Fn(&mut World) + std::panic::RefUnwindSafe) {
    let one = std::env::var("FOREBAY_MODEL_SEED").ok().map(|seed| seed.parse::<u64>().expect("a seed"));
    let many = std::env::var("FOREBAY_MODEL_SEEDS").ok().map_or(30, |n| n.parse().expect("a number of seeds"));
    for seed in one.map_or(0..many, |seed| seed..seed + 1) {
        let shape = SHAPES[(seed % SHAPES.len() as u64) as usize];
        let setup = Setup { drive_bytes: drive_mib(seed) << 20, ..PATIENT };
        let told = std::panic::catch_unwind(|| {
            let mut world = World::new(seed, shape, setup);
            story(&mut world);
            world.finish();
        });
        if let Err(panic) = told {
            eprintln!("FOREBAY_MODEL_SEED={seed} fails ({shape:?}, {setup:?})");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn events_of_two_streams_half_released_can_be_released_rejected_and_deleted() {
    with_seeds(|world| {
        world.fill_up();
        world.accept_many();
        world.crash_and_start();
        world.release_half();
        world.crash_and_start();
        world.release_half();
        world.lose_one();
        world.crash_and_start();
        world.decide_everything();
    });
}

#[test]
fn killed_after_each_start_it_still_starts_and_can_be_emptied() {
    with_seeds(|world| {
        world.fill_up();
        for round in 0..60 {
            world.crash_and_start();
            match round % 4 {
                0 => world.put_few(3),
                1 => world.accept_one(),
                2 => world.release_one(),
                _ => {}
            }
            if round == 30 {
                world.lose_one();
            }
        }
        world.decide_everything();
    });
}

#[test]
fn a_lane_that_was_emptied_takes_puts_again() {
    with_seeds(|world| {
        for _ in 0..2 {
            world.fill_up();
            world.accept_many();
            world.decide_everything();
            let before = world.puts_durable();
            world.crash_and_start();
            world.put_few(5);
            world.wait();
            assert!(world.puts_durable() > before, "there is space again");
        }
    });
}

#[test]
fn a_full_lane_in_which_nothing_dies_comes_to_rest() {
    for bytes in [1, 40, 256, 3_000, 40_000, 50_000, 59_000] {
        with_seeds(|world| {
            world.fill_up_with(bytes);
            world.rest();
            let before = world.lane().status().compaction.bytes_moved;
            world.rest();
            let moved = world.lane().status().compaction.bytes_moved - before;
            assert_eq!(moved, 0, "copies take as much as what they stand for: fragments of {bytes} bytes");
            world.decide_everything();
        });
    }
}

#[test]
fn what_came_slowly_takes_less_room_when_there_is_none() {
    // Smaller lanes keep no segment for copies.
    with_seeds_on(
        |seed| 4 + seed % 3,
        |world| {
            world.fill_up_slowly();
            world.rest();
            world.rest();
            world.fill_up_slowly();
            let status = world.lane().status();
            // A header and a block each, on each drive.
            let alone = status.capacity_bytes / (u64::from(world.shape.data) * 8192);
            assert!(
                status.fragments > 3 * alone,
                "{} fragments, and each in a flush of its own {alone}",
                status.fragments
            );
            world.decide_everything();
        },
    );
}

#[test]
fn decisions_that_are_torn_twice_count_once() {
    with_seeds(|world| {
        for _ in 0..5 {
            world.put_few(4);
            world.wait();
            world.accept_many();
            world.release_half();
            world.lose_one();
            world.crash_and_start();
        }
        world.decide_everything();
    });
}

#[test]
fn killed_at_any_moment_while_it_is_as_full_as_it_may_be_it_still_starts() {
    with_seeds(|world| {
        world.fill_up();
        for round in 0..40 {
            world.free_a_little();
            world.put_until_refused();
            if round == 15 || round == 30 {
                world.lose_one();
            }
            world.crash_and_start();
        }
        world.decide_everything();
    });
}
