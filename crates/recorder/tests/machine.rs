//! The machine in a pretended world that crashes after every single step.

mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_mover::events::EventKind;
use forebay_recorder::journal::Line;
use forebay_recorder::machine::{Found, Machine, MachineConfig, MachineError, Notice, StartError, Step};
use forebay_types::{DecideOutcome, EventKey, StoreUuid};
use proptest::prelude::*;
use world::{Accepted, World, config};

fn accepted(run: u32, event: u64) -> Accepted {
    let kind = if event % 11 == 5 { EventKind::Parts } else { EventKind::Mdf };
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
        world.announced().into_iter().filter(|(file, _)| (file.run.0, file.kind) == (5, EventKind::Mdf)).collect();
    assert!(mdf.windows(2).all(|pair| pair[0].1.last() < pair[1].1.first()), "the files of a run follow each other");
    assert!(mdf.len() > 3 && mdf.len() < 10, "{} files", mdf.len());
    let shipped: u64 =
        world.notices.iter().map(|n| if let Notice::Shipped { sidecar, .. } = n { sidecar.events } else { 0 }).sum();
    assert_eq!(shipped, events.len() as u64);
}

#[test]
fn a_crash_after_every_step_leaves_each_event_in_one_file() {
    let events = some_events();
    let mut steps = 0;
    loop {
        let mut over = false;
        for seed in 0..8 {
            let mut world = World::new(seed * 1000 + steps as u64, events.clone());
            over = world.live(config(), steps).is_some();
            if !over {
                match seed % 4 {
                    1 => world.take_away(),
                    2 => world.delete_unfinished(),
                    _ => {}
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
    let world = (0..).map(crashed).find(|world| world.journal_lines().len() == 3).expect("an announcement");
    let found = || Found { journal: Some(world.journal_lines()), torn_bytes: 0, names: world.all_names() };
    let other = MachineConfig { store: StoreUuid::from_bytes([2; 16]), ..config() };
    assert!(matches!(Machine::new(other, found()), Err(StartError::OtherStore { .. })));
    assert!(Machine::new(config(), found()).is_ok());
    let without = Found { journal: None, ..found() };
    assert!(matches!(Machine::new(config(), without), Err(StartError::NoJournal { .. })));
    let foreign = Found { journal: None, torn_bytes: 0, names: vec!["notes.txt".into()] };
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

#[test]
fn a_file_of_others_is_left_as_it_is() {
    let events = some_events();
    let names = ["run00000005_000001.mdf", "run00000005_000003.mdf", "run00000006_000009.raw"];
    for steps in 0..250 {
        let mut world = World::new(steps as u64, events.clone());
        assert_eq!(world.live(config(), 1), None);
        let begun = world.live(config(), steps);
        for name in names {
            // With a sidecar and without.
            if world.put_foreign(name) && steps % 2 == 0 {
                world.put_foreign(&format!("{name}.json"));
            }
        }
        if begun.is_none() {
            world.rotten = usize::from(steps % 3 == 0);
            assert_eq!(world.live(config(), usize::MAX), Some(Ok(())), "after {steps} steps");
        }
        world.check_exactly_once(&events);
        assert!(world.notices.iter().any(|notice| matches!(notice, Notice::Unknown(_))) || begun.is_some());
    }
}

#[test]
fn a_name_that_is_taken_while_the_recorder_runs_is_left_to_who_took_it() {
    let events = some_events();
    for steps in 0..250 {
        let mut world = World::new(steps as u64, events.clone());
        let mut machine = world.machine(config());
        let mut over = false;
        for _ in 0..steps {
            world.now = world.now + Duration::from_millis(1);
            match machine.next(world.now) {
                Step::Finish => over = true,
                Step::Wait { until } => world.now = world.now.max(until),
                step => {
                    let reply = world.take(step);
                    machine.complete(world.now, reply);
                }
            }
        }
        if over {
            break;
        }
        for number in 0..9 {
            world.put_foreign(&format!("run00000005_{number:06}.mdf"));
        }
        // The same machine goes on until a name is in the way, then another one.
        loop {
            world.now = world.now + Duration::from_millis(1);
            match machine.next(world.now) {
                Step::Finish => break,
                Step::Wait { until } => world.now = world.now.max(until),
                step if world.is_in_the_way(&step) => {
                    assert_eq!(world.live(config(), usize::MAX), Some(Ok(())));
                    break;
                }
                step => {
                    let reply = world.take(step);
                    machine.complete(world.now, reply);
                }
            }
        }
        world.check_exactly_once(&events);
    }
}

#[test]
fn an_announced_file_that_vanishes_before_its_sidecar_was_seen_is_recorded_again() {
    let events = some_events();
    let mut seen = 0;
    for steps in 0..400 {
        let mut world = World::new(steps as u64, events.clone());
        if world.live(config(), steps).is_some() {
            break;
        }
        let lines = world.journal_lines();
        seen += usize::from(matches!(lines.last(), Some(Line::Announced(_))));
        world.delete_unfinished();
        assert_eq!(world.live(config(), usize::MAX), Some(Ok(())), "after {steps} steps");
        world.check_exactly_once(&events);
        assert_eq!(world.bad_files(), 0);
    }
    assert!(seen > 5, "only {seen} crashes behind an announcement");
}

#[test]
fn a_sync_of_the_journal_that_failed_is_not_believed() {
    let events = some_events();
    for steps in 0..300 {
        for again in 0..6 {
            let mut world = World::new(steps as u64 * 7 + again as u64, events.clone());
            if world.live(config(), steps).is_some() {
                break;
            }
            // Started again on what the page cache shows; then the power goes.
            if world.live(config(), again * 5).is_none() {
                world.crash();
                assert_eq!(world.live(config(), usize::MAX), Some(Ok(())), "{steps} steps, then {}", again * 5);
            }
            world.check_exactly_once(&events);
        }
    }
}

#[test]
fn draining_looks_once_more() {
    let mut world = World::new(11, []);
    let mut machine = world.machine(MachineConfig { once: false, ..config() });
    let mut waited = false;
    loop {
        world.now = world.now + Duration::from_millis(1);
        match machine.next(world.now) {
            Step::Finish => break,
            Step::Wait { until } if waited => world.now = world.now.max(until),
            Step::Wait { .. } => {
                // Between two looks an event is accepted, and then all is to be recorded.
                waited = true;
                world.accepted.insert(EventKey::new(5, 1), accepted(5, 1));
                machine.drain();
            }
            step => {
                let reply = world.take(step);
                machine.complete(world.now, reply);
            }
        }
    }
    assert!(waited);
    world.check_exactly_once(&[accepted(5, 1)]);
}

#[test]
fn a_run_without_a_number_left_ends_with_a_word_and_takes_no_name() {
    let mut world = World::new(12, some_events());
    assert_eq!(world.live(config(), 0), None);
    assert_eq!(world.live(config(), 1), None);
    world.put_foreign("run00000006_4294967295.mdf");
    let ended = world.live(config(), usize::MAX);
    let Some(Err(error @ MachineError::NoNumberLeft { .. })) = &ended else { panic!("{ended:?}") };
    assert!(error.is_usage() && error.to_string().contains("run 6"), "{error}");
}

#[test]
fn a_store_that_takes_no_release_is_named() {
    let refusing = |outcome| {
        let mut world = World::new(13, some_events());
        world.refuses = Some(outcome);
        let ended = world.live(config(), usize::MAX);
        assert!(world.released.is_empty());
        let told = world.notices.iter().filter(|notice| matches!(notice, Notice::NotTaken { .. })).count();
        world.refuses = None;
        assert_eq!(world.live(config(), usize::MAX), Some(Ok(())));
        world.check_exactly_once(&some_events());
        (ended, told)
    };
    let (ended, told) = refusing(DecideOutcome::ReadOnly);
    assert!(matches!(&ended, Some(Err(error @ MachineError::ReadOnly { .. })) if error.is_usage()), "{ended:?}");
    assert_eq!(told, 0, "it ends with it");
    let (ended, told) = refusing(DecideOutcome::NoSpace);
    assert!(matches!(&ended, Some(Err(error @ MachineError::NotTaken { .. })) if error.is_retryable()), "{ended:?}");
    assert_eq!(told, 1, "once, not every second");
}

#[test]
fn what_the_store_does_not_know_or_has_forgotten_is_told() {
    let events = some_events();
    for (forgotten, unknown) in [(true, false), (false, true)] {
        let mut world = World::new(14, events.clone());
        let mut machine = world.machine(config());
        loop {
            world.now = world.now + Duration::from_millis(1);
            match machine.next(world.now) {
                Step::Finish => break,
                Step::Wait { until } => world.now = world.now.max(until),
                step => {
                    if let Step::Publish { .. } = step {
                        // The store loses an event of each file, or another recorder releases it.
                        let key = *world.accepted.keys().next().expect("events");
                        world.accepted.remove(&key);
                        if forgotten {
                            world.released.insert(key);
                        }
                    }
                    let reply = world.take(step);
                    machine.complete(world.now, reply);
                }
            }
            world.notices.extend(machine.take_notices());
        }
        world.notices.extend(machine.take_notices());
        assert_eq!(machine.end(), Some(&Ok(())));
        assert_eq!(forgotten, world.notices.iter().any(|n| matches!(n, Notice::ReleasedBefore { .. })));
        assert_eq!(unknown, world.notices.iter().any(|n| matches!(n, Notice::NotKnown { .. })));
    }
}

#[test]
fn the_end_tells_which_bad_file_may_be_the_only_copy() {
    let events = some_events();
    for steps in 0..400 {
        let mut world = World::new(steps as u64, events.clone());
        if world.live(config(), steps).is_some() {
            break;
        }
        world.rotten = usize::MAX;
        let Some(Err(error)) = world.live(config(), usize::MAX) else { continue };
        let MachineError::Mismatch { announced, .. } = &error else { panic!("{error}") };
        let in_bad: Vec<_> = announced.iter().map(|file| file.bad()).collect();
        assert_eq!(in_bad.is_empty(), error.to_string().contains("None of their events was released"), "{error}");
        assert!(in_bad.iter().all(|name| error.to_string().contains(name)), "{error}");
        assert!(!world.released_only_in_bad() || !in_bad.is_empty(), "after {steps} steps: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_happens_each_event_ends_in_one_file(
        seed: u64,
        numbers in prop::collection::btree_set((1u32..4, 0u64..40), 1..60),
        lives in prop::collection::vec((0usize..120, 0usize..6, 0usize..2, 0usize..3), 0..8),
        floor in prop::option::of((1u32..4, 0u64..40)),
    ) {
        let mut later: Vec<Accepted> = numbers.iter().map(|(run, event)| accepted(*run, *event)).collect();
        let events = later.clone();
        let first = later.split_off(later.len() / 2);
        let mut world = World::new(seed, first);
        world.floor = floor.map(|(run, event)| EventKey::new(run, event));
        for (steps, done_by_others, rotten, silent) in lives {
            world.rotten = rotten;
            world.silent = silent;
            if world.live(config(), steps).is_none() {
                match done_by_others {
                    0 => world.take_away(),
                    1 => world.delete_unfinished(),
                    2 if !world.journal_lines().is_empty() => {
                        let number = world.random.below(12);
                        world.put_foreign(&format!("run00000002_{number:06}.mdf"));
                    }
                    _ => {}
                }
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

/// A life ends between two releases of a file, the next one in the middle of setting that file aside, and somebody deletes what looks unfinished: the file
/// is all that is left of the event that was released.
#[test]
fn a_bad_file_never_looks_unfinished() {
    let run = |run: u32, events: &[u64]| events.iter().map(|e| accepted(run, *e)).collect::<Vec<_>>();
    let events = [
        run(1, &[0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 13, 14, 15, 16, 17, 21, 22]),
        run(2, &[0, 1, 2, 3, 4, 8, 9, 10, 16, 17, 18, 20, 22, 23, 38]),
        run(3, &[0, 3, 6, 7, 8, 9, 11, 17, 18, 21, 22]),
    ]
    .concat();
    let mut later = events.clone();
    let first = later.split_off(later.len() / 2);
    let mut world = World::new(11_863_763_213_413_296_792, first);
    for (steps, rotten, silent) in [(78, 0, 2), (5, 1, 0)] {
        (world.rotten, world.silent) = (rotten, silent);
        assert_eq!(world.live(config(), steps), None);
        world.delete_unfinished();
        let event = later.pop().expect("there are more");
        world.accepted.insert(event.key, event);
    }
    world.accepted.extend(later.into_iter().map(|event| (event.key, event)));
    (world.rotten, world.silent) = (0, 0);
    assert_eq!(world.live(config(), usize::MAX), Some(Ok(())));
    world.check_exactly_once(&events);
}
