//! The mover keeps its promises, whatever sources and destinations do.

use forebay_sim::{Mistake, MoverFault, MoverTotals, search, try_play_mover};

const SEEDS: u64 = 1000;

#[test]
fn seeds_of_the_mover_end_well_and_the_same_each_time() {
    let mut totals = MoverTotals::default();
    for seed in 0..SEEDS {
        let of_seed = try_play_mover(seed, false, None).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        if seed % 10 == 0 {
            assert_eq!(try_play_mover(seed, false, None), Ok(of_seed.clone()), "seed {seed} is another run each time");
        }
        totals.add(&of_seed);
    }
    let MoverTotals { steps, released, starts, .. } = totals;
    println!("{SEEDS} seeds of the mover, {steps} steps, {released} files released, {starts} starts");
    for fault in MoverFault::ALL {
        let (fired, met) = totals.faults.get(&fault).copied().unwrap_or_default();
        println!("{fired:>8} fired {met:>8} met  {fault}");
        assert!(fired > 0 && met > 0, "{fault} never happens, or nobody notices");
    }
}

#[test]
fn mistakes_of_the_mover_are_found() {
    std::panic::set_hook(Box::new(|_| {}));
    let missed = search(Mistake::all().filter(|mistake| mistake.is_of_the_mover()), 0..SEEDS, |mistake, seed, what| {
        println!("{mistake}: seed {seed}: {}", what.lines().next().unwrap_or_default());
    });
    drop(std::panic::take_hook());
    let names: Vec<&str> = missed.into_iter().map(Mistake::name).collect();
    assert!(names.is_empty(), "not found in {SEEDS} seeds: {names:?}");
}
