//! The machine in a pretended world that crashes after every single step.

mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_recorder::Kind;
use forebay_recorder::machine::{Found, Machine, MachineConfig, MachineError, Notice, StartError, Step};
use forebay_types::{EventKey, StoreUuid};
use proptest::prelude::*;
use world::{Accepted, World, config};

fn accepted(run: u32, event: u64) -> Accepted {
    let kind = if event % 11 == 5 { Kind::Parts } else { Kind::Mdf };
    Accepted { key: EventKey::new(run, event), kind, bytes: 30 + event % 50, incomplete: event % 7 == 3 }
}

/// Three runs, with gaps, one event larger than a file.
fn some_events() -> Vec<Accepted> {
    let mut events: Vec<Accepted> = (0..24).map(|event| accepted(5, event * 2)).collect();
    events.extend((0..9).map(|event| accepted(6, event)));
    events.push(accepted(9, u64::MAX));
    events[7].bytes = 1000;
    events
}

#[test]
fn without_trouble_files_are_full_and_in_order() {
    let events = some_events();
    let mut world = World::new(1, events.clone());
    assert_eq!(world.live(config(), usize::MAX), Some(Ok(())));
    world.check_exactly_once(&events);
    let mdf: Vec<_> =
        world.announced().into_iter().filter(|(file, _)| (file.run.0, file.kind) == (5, Kind::Mdf)).collect();
    assert!(mdf.windows(2).all(|pair| pair[0].1.last() < pair[1].1.first()), "the files of a run follow each other");
    assert!(mdf.len() > 3 && mdf.len() < 10, "{} files", mdf.len());
    let shipped: u64 = world.notices.iter().map(|n| if let Notice::Shipped(s) = n { s.events } else { 0 }).sum();
    assert_eq!(shipped, events.len() as u64);
}

#[test]
fn a_crash_after_every_step_leaves_each_event_in_one_file() {
    let events = some_events();
    let mut steps = 0;
    loop {
        let mut over = false;
        for seed in 0..4 {
            let mut world = World::new(seed * 1000 + steps as u64, events.clone());
            over = world.live(config(), steps).is_some();
            if !over {
                if seed % 2 == 1 {
                    world.take_away();
                }
                assert_eq!(world.live(config(), usize::MAX), Some(Ok(())), "after a crash at step {steps}");
            }
            world.check_exactly_once(&events);
        }
        if over {
            break;
        }
        steps += 1;
    }
    assert!(steps > 100, "only {steps} steps");
}

#[test]
fn a_file_that_comes_back_different_is_kept_and_its_events_come_again() {
    let events = some_events();
    let mut world = World::new(3, events.clone());
    world.rotten = 2;
    assert_eq!(world.live(config(), usize::MAX), Some(Ok(())));
    world.check_exactly_once(&events);
    assert_eq!(world.bad_files(), 2);
    let mismatches = world.notices.iter().filter(|notice| matches!(notice, Notice::Mismatch { .. })).count();
    assert_eq!(mismatches, 2);
}

#[test]
fn a_disk_that_never_gives_back_what_was_written_is_given_up() {
    let mut world = World::new(4, some_events());
    world.rotten = usize::MAX;
    let Some(Err(error @ MachineError::Mismatch { files: 4, .. })) = world.live(config(), usize::MAX) else {
        panic!("it must end with a mismatch");
    };
    assert!(!error.is_retryable());
    assert!(error.to_string().contains("adler32"), "{error}");
    assert!(world.released.is_empty(), "nothing is released");
    assert_eq!(world.bad_files(), 4);
}

#[test]
fn a_file_that_rots_before_its_events_are_released_is_withdrawn() {
    let events = some_events();
    for steps in 0..200 {
        let mut world = World::new(steps as u64, events.clone());
        if world.live(config(), steps).is_some() {
            break;
        }
        world.rotten = 1;
        let again = 3 + world.random.below(12) as usize;
        if world.live(config(), again).is_none() {
            world.rotten = 0;
            assert_eq!(world.live(config(), usize::MAX), Some(Ok(())), "crash at {steps}, then at {again}");
        }
        world.check_exactly_once(&events);
    }
}

#[test]
fn undecided_events_hold_the_others_back_but_not_for_ever() {
    let events = some_events();
    let mut world = World::new(5, events.clone());
    world.floor = Some(EventKey::new(5, 11));
    let start = world.now;
    assert_eq!(world.live(config(), usize::MAX), Some(Ok(())));
    world.check_exactly_once(&events);
    let took = world.now.since(start);
    assert!(took >= config().order_wait * 7 / 8, "they waited: {took:?}");
    assert!(took < config().order_wait * 2, "not for ever: {took:?}");
}

#[test]
fn a_late_event_gets_a_file_of_its_own_instead_of_breaking_the_order() {
    let late = accepted(5, 4);
    let mut events: Vec<Accepted> = (6..10).map(|event| accepted(5, event)).collect();
    let mut world = World::new(6, events.clone());
    let mut machine = world.machine(MachineConfig { once: false, ..config() });
    let mut appended = 0;
    loop {
        world.now = world.now + Duration::from_millis(1);
        match machine.next(world.now) {
            Step::Finish => break,
            Step::Wait { until } => world.now = until,
            step => {
                if let Step::Append { events, .. } = &step {
                    appended += events.len();
                }
                let reply = world.take(step);
                machine.complete(world.now, reply);
            }
        }
        if appended == 4 {
            // The files are open, and an event with a smaller number is decided at last.
            world.accepted.insert(late.key, late);
        }
        if appended == 5 {
            machine.stop();
        }
    }
    events.push(late);
    world.check_exactly_once(&events);
    let mut files = world.announced();
    files.sort_by_key(|(file, _)| file.sequence);
    let last = files.last().expect("files");
    assert_eq!(last.1, [late.key], "the late event is alone");
}

#[test]
fn a_silent_store_is_waited_for_and_given_up_only_with_once() {
    let events = some_events();
    let mut world = World::new(7, events.clone());
    world.silent = 5;
    assert_eq!(world.live(config(), usize::MAX), Some(Ok(())));
    world.check_exactly_once(&events);

    let mut world = World::new(7, events.clone());
    world.silent = usize::MAX;
    let ended = world.live(config(), usize::MAX);
    assert!(matches!(&ended, Some(Err(error @ MachineError::Silent { .. })) if error.is_retryable()), "{ended:?}");
}

#[test]
fn events_that_cannot_be_read_stay_in_the_store() {
    let events = some_events();
    let mut world = World::new(8, events.clone());
    world.unavailable = BTreeSet::from([events[3].key, events[20].key]);
    let ended = world.live(config(), usize::MAX);
    assert_eq!(ended, Some(Err(MachineError::Unavailable { events: 2 })));
    assert!(world.unavailable.iter().all(|key| world.accepted.contains_key(key)));
    world.unavailable.clear();
    assert_eq!(world.live(config(), usize::MAX), Some(Ok(())));
    world.check_exactly_once(&events);
}

#[test]
fn a_directory_of_another_store_or_without_a_journal_is_refused() {
    // A crash right after the first announcement.
    let crashed = |steps| {
        let mut world = World::new(9, some_events());
        assert!(world.live(config(), steps).is_none(), "a crash comes");
        world
    };
    let world = (0..).map(crashed).find(|world| world.journal_lines().len() == 2).expect("an announcement");
    let found = || Found { journal: Some(world.journal_lines()), journal_bytes: 0, names: world.all_names() };
    let other = MachineConfig { store: StoreUuid::from_bytes([2; 16]), ..config() };
    assert!(matches!(Machine::new(other, found()), Err(StartError::OtherStore { .. })));
    assert!(Machine::new(config(), found()).is_ok());
    let without = Found { journal: None, ..found() };
    assert!(matches!(Machine::new(config(), without), Err(StartError::NoJournal { .. })));
    let foreign = Found { journal: None, journal_bytes: 0, names: vec!["notes.txt".into()] };
    assert!(Machine::new(config(), foreign).is_ok(), "files of others do not matter");
}

#[test]
fn stopping_finishes_the_files_that_are_open() {
    let events = some_events();
    let mut world = World::new(10, events);
    let continuous = MachineConfig { once: false, ..config() };
    let mut machine = world.machine(continuous);
    let mut appended = false;
    loop {
        world.now = world.now + Duration::from_millis(1);
        match machine.next(world.now) {
            Step::Finish => break,
            Step::Wait { until } => world.now = until,
            step => {
                appended |= matches!(step, Step::Append { .. });
                let reply = world.take(step);
                machine.complete(world.now, reply);
            }
        }
        if appended {
            machine.stop();
        }
    }
    assert_eq!(machine.end(), Some(&Ok(())));
    assert!(!world.released.is_empty() && !world.accepted.is_empty());
    let in_files: BTreeSet<EventKey> = world.announced().into_iter().flat_map(|(_, keys)| keys).collect();
    assert_eq!(in_files, world.released);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_happens_each_event_ends_in_one_file(
        seed: u64,
        numbers in prop::collection::btree_set((1u32..4, 0u64..40), 1..60),
        lives in prop::collection::vec((0usize..120, prop::bool::weighted(0.3), 0usize..2, 0usize..3), 0..8),
        floor in prop::option::of((1u32..4, 0u64..40)),
    ) {
        let mut later: Vec<Accepted> = numbers.iter().map(|(run, event)| accepted(*run, *event)).collect();
        let events = later.clone();
        let first = later.split_off(later.len() / 2);
        let mut world = World::new(seed, first);
        world.floor = floor.map(|(run, event)| EventKey::new(run, event));
        for (steps, taken_away, rotten, silent) in lives {
            world.rotten = rotten;
            world.silent = silent;
            if world.live(config(), steps).is_none() && taken_away {
                world.take_away();
            }
            if let Some(event) = later.pop() {
                world.accepted.insert(event.key, event);
            }
        }
        world.accepted.extend(later.into_iter().map(|event| (event.key, event)));
        (world.rotten, world.silent) = (0, 0);
        prop_assert_eq!(world.live(config(), usize::MAX), Some(Ok(())));
        world.check_exactly_once(&events);
    }
}
