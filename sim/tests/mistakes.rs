//! The simulator finds mistakes: each one that is planted breaks a promise in one of the first seeds.
//!
//! Some are planted here; `make test-all` plants all of them (`forebay-sim --planted all`).

use forebay_sim::{Mistake, search};

/// Each is found in one of so many seeds.
const SEEDS: u64 = 1000;

/// Found in a seed or two.
const QUICK: [&str; 6] =
    ["tombstone-forgotten", "late-put-revives", "dirty-read", "sync-left-out", "loss-unreported", "loss-closed-over"];

#[test]
fn mistakes_are_found() {
    std::panic::set_hook(Box::new(|_| {}));
    let planted = QUICK.map(|name| Mistake::named(name).expect("a name of the list"));
    let missed = search(planted, 0..SEEDS, |mistake, seed, what| {
        println!("{mistake}: seed {seed}: {}", what.lines().next().unwrap_or_default());
    });
    drop(std::panic::take_hook());
    let names: Vec<&str> = missed.into_iter().map(Mistake::name).collect();
    assert!(names.is_empty(), "not found in {SEEDS} seeds: {names:?}");
}

#[test]
fn the_documentation_lists_every_mistake_and_no_other() {
    let documentation = include_str!("../../docs/mistakes.md");
    let listed = documentation.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let made = Mistake::all().map(Mistake::name);
    assert!(listed.eq(made), "docs/mistakes.md lists other mistakes than there are, or in another order");
}

#[test]
fn every_mistake_has_a_name_of_its_own() {
    let mut names: Vec<&str> = Mistake::all().map(Mistake::name).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|two| two[0] != two[1]), "{names:?}");
}
