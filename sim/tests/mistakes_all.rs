//! The simulator finds mistakes: each one that is planted breaks a promise in one of the first seeds.
//!
//! The short form plants some; the long form (`FOREBAY_TEST_ALL`) all of them.
#![expect(clippy::disallowed_methods, reason = "mistakes are looked for on all processors")]

use std::sync::Mutex;

use forebay_sim::{Mistake, find};

/// Each is found in one of so many seeds.
const SEEDS: u64 = 400;

/// Found in a seed or two.
const QUICK: [&str; 6] =
    ["tombstone-forgotten", "late-put-revives", "dirty-read", "sync-left-out", "loss-unreported", "loss-closed-over"];

#[test]
fn mistakes_are_found() {
    let all = std::env::var_os("FOREBAY_TEST_ALL").is_some();
    let wanted = |mistake: &Mistake| all || QUICK.contains(&mistake.to_string().as_str());
    let planted: Vec<Mistake> = Mistake::all().filter(wanted).collect();
    let (left, missed) = (Mutex::new(planted.iter()), Mutex::new(Vec::new()));
    std::panic::set_hook(Box::new(|_| {}));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(|| {
                while let Some(mistake) = { left.lock().expect("nobody fails").next() } {
                    match (0..SEEDS).find_map(|seed| find(*mistake, seed).map(|what| (seed, what))) {
                        Some((seed, what)) => {
                            println!("{mistake}: seed {seed}: {}", what.lines().next().unwrap_or_default());
                        }
                        None => missed.lock().expect("nobody fails").push(mistake.to_string()),
                    }
                }
            });
        }
    });
    drop(std::panic::take_hook());
    let missed = missed.into_inner().expect("nobody fails");
    println!("planted {}, found {}", planted.len(), planted.len() - missed.len());
    assert!(!planted.is_empty() && missed.is_empty(), "not found in {SEEDS} seeds: {missed:?}");
}

#[test]
fn the_documentation_lists_every_mistake_and_no_other() {
    let documentation = include_str!("../../docs/mistakes.md");
    let listed = documentation.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let made = Mistake::all().map(Mistake::name);
    assert!(listed.eq(made), "docs/mistakes.md lists other mistakes than there are, or in another order");
}
