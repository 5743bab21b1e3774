//! A lane against a model: random requests, completions in any order, crashes at any moment with writes torn in any way, drives that
//! die. What was acknowledged must hold; what was not may or may not have happened, and then stays so.
//!
//! A failure prints its seed; `FOREBAY_MODEL_SEED=N` runs that one alone, `FOREBAY_MODEL_SEEDS=N` runs more of them,
//! beginning with `FOREBAY_MODEL_FIRST=N`.

mod world;

use world::{PATIENT, Setup, Shape, World};

const SEEDS: u64 = 60;

const SHAPES: [Shape; 7] = [
    Shape::of(5, 4, 1),
    Shape::of(7, 4, 1),
    Shape::of(10, 8, 2),
    Shape::of(3, 2, 1),
    Shape::of(1, 1, 0),
    // After losses an operator lets writing go on with less parity.
    Shape { data_min: 2, parity_min: 0, ..Shape::of(3, 2, 1) },
    Shape { data_min: 8, parity_min: 0, ..Shape::of(10, 8, 2) },
];

#[test]
fn what_is_acknowledged_holds_through_crashes_and_lost_drives() {
    let one = std::env::var("FOREBAY_MODEL_SEED").ok().map(|seed| seed.parse::<u64>().expect("a seed"));
    let many = std::env::var("FOREBAY_MODEL_SEEDS").ok().map_or(SEEDS, |n| n.parse().expect("a number of seeds"));
    let first = std::env::var("FOREBAY_MODEL_FIRST").ok().map_or(0, |n| n.parse().expect("a seed"));
    let seeds = one.map_or(first..first + many, |seed| seed..seed + 1);
    let mut totals = world::Totals::default();
    for seed in seeds {
        let shape = SHAPES[(seed % SHAPES.len() as u64) as usize];
        let setup = Setup {
            // Every second store is full most of the time.
            drive_bytes: if seed % 2 == 0 { 6 << 20 } else { 3 << 20 },
            read_errors_per_mille: if seed % 3 == 0 { 10 } else { 0 },
            ..PATIENT
        };
        let result = std::panic::catch_unwind(|| World::new(seed, shape, setup).run(700));
        match result {
            Ok(world) => totals.add(&world),
            Err(panic) => {
                eprintln!("FOREBAY_MODEL_SEED={seed} fails ({shape:?})");
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("{totals:?}");
    if one.is_none() {
        totals.assert_everything_happened();
    }
}
