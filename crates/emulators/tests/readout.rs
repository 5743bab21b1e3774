//! The readout on a pretended store.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::Store;
use forebay_emulators::readout::{self, Generated, Input, ReadoutConfig, ReadoutError, ReadoutProgress};
use forebay_emulators::{EventHash, HashLedger, StoreError};
use forebay_rawdata::{Format, Generator, join, verify};
use forebay_types::{EventKey, RunId, SourceId};

fn generated(format: Format, run: u32, events: u64) -> Input {
    Input::Generated(Generated { format, compressed: false, seed: 3, run: RunId(run), events })
}

fn write(store: &Store, config: &ReadoutConfig, progress: &ReadoutProgress) -> Result<(), ReadoutError> {
    readout::run_with(config, &AtomicBool::new(false), progress, |_| Ok(store.clone()))
}

/// The events of the store, put together, with the run and number that their bytes hold.
fn events(store: &Store) -> Vec<(EventKey, Vec<u8>)> {
    let state = store.state();
    let joined = state.events.iter().map(|(key, event)| {
        let pieces: Vec<(SourceId, &[u8])> = event.fragments.iter().map(|(s, bytes)| (*s, bytes.as_slice())).collect();
        assert_eq!(pieces.len(), usize::from(event.expected), "event {key}");
        let (format, bytes) = join(&pieces).expect("a whole event");
        assert_eq!(verify(format, &bytes), Ok(*key), "the bytes hold the new numbers");
        (*key, bytes)
    });
    joined.collect()
}

#[test]
fn multiplied_events_have_new_numbers_and_their_hashes_are_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let (store, path) = (Store::default(), directory.path().join("ledger"));
    store.state().known_runs = vec![RunId(5), RunId(6)];
    let ledger = Arc::new(HashLedger::default());
    let config = ReadoutConfig {
        events: Some(25),
        ledger_path: Some(path.clone()),
        ledger: Some(Arc::clone(&ledger)),
        ..ReadoutConfig::new("", vec![generated(Format::Mdf, 5, 3), generated(Format::Mdf, 5, 3)])
    };
    let progress = ReadoutProgress::default();
    write(&store, &config, &progress).expect("everything is written");
    assert_eq!(progress.runs(), [RunId(7), RunId(8)]);
    let events = events(&store);
    let keys: Vec<EventKey> =
        (1..=13).map(|e| EventKey::new(7, e)).chain((1..=12).map(|e| EventKey::new(8, e))).collect();
    assert_eq!(events.iter().map(|(key, _)| *key).collect::<Vec<_>>(), keys);
    let loaded = HashLedger::load(&path).expect("a ledger");
    assert_eq!((loaded.len(), ledger.len()), (25, 25));
    for (key, bytes) in events {
        assert_eq!((loaded.get(key), ledger.get(key)), (Some(EventHash::of(&bytes)), Some(EventHash::of(&bytes))));
    }
}

#[test]
fn the_same_again_with_kept_runs_changes_nothing() {
    let store = Store::default();
    let config = ReadoutConfig { events: Some(7), ..ReadoutConfig::new("", vec![generated(Format::Faser, 5, 3)]) };
    write(&store, &config, &ReadoutProgress::default()).expect("everything is written");
    let before = events(&store);
    store.state().known_runs = vec![RunId(5)];
    let progress = ReadoutProgress::default();
    write(&store, &ReadoutConfig { keep_runs: true, ..config }, &progress).expect("everything is written");
    assert_eq!(progress.conflicts.load(Relaxed), 0);
    assert!(events(&store) == before);
}

#[test]
fn a_damaged_file_gives_its_good_events_and_an_error_with_the_place() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("damaged.raw");
    let mut generator = Generator::new(Format::Faser, 1, RunId(9));
    let good: Vec<Vec<u8>> = (0..5).map(|_| generator.next_event().bytes).collect();
    let offset: usize = good[..3].iter().map(Vec::len).sum();
    let mut bytes = good.concat();
    bytes[offset] = 0;
    std::fs::write(&path, bytes).expect("written");
    let store = Store::default();
    let inputs = vec![Input::File(path), generated(Format::Faser, 9, 2)];
    let progress = ReadoutProgress::default();
    let error = write(&store, &ReadoutConfig::new("", inputs), &progress).expect_err("a damaged file");
    assert!(!error.is_retryable());
    let text = error.to_string();
    assert!(text.contains("damaged.raw") && text.contains(&format!("byte {offset}")), "{text}");
    assert_eq!(progress.events_started.load(Relaxed), 5, "three good ones and the other input");
    assert!(events(&store)[..3].iter().zip(&good).all(|((_, written), read)| written == read));
}

#[test]
fn conflicts_and_fragments_that_are_too_large_are_named() {
    let store = Store::default();
    let config = ReadoutConfig::new("", vec![generated(Format::Faser, 5, 3)]);
    write(&store, &config, &ReadoutProgress::default()).expect("everything is written");
    let changed = {
        let mut state = store.state();
        let (key, event) = state.events.iter_mut().next().expect("events");
        let (source, payload) = event.fragments.iter_mut().next().expect("fragments");
        payload[0] ^= 1;
        key.fragment(*source)
    };
    let progress = ReadoutProgress::default();
    let error = write(&store, &ReadoutConfig { keep_runs: true, ..config.clone() }, &progress).expect_err("a conflict");
    assert!(error.to_string().contains(&changed.to_string()), "{error}");
    let counts = [&progress.conflicts, &progress.errors].map(|count| count.load(Relaxed));
    assert_eq!(counts, [1, 1]);

    let small = Store { fragment_bytes_max: 1000, ..Store::default() };
    let progress = ReadoutProgress::default();
    let error = write(&small, &config, &progress).expect_err("large fragments");
    assert!(error.to_string().contains("at most 1000"), "{error}");
    assert_eq!(progress.events_refused.load(Relaxed), 3);
    assert!(small.state().events.is_empty(), "no part of an event is written");
}

#[test]
fn a_store_that_pushes_back_is_waited_for_and_one_that_refuses_ends_it() {
    let store = Store::default();
    store.state().puts_in_a_row_refused = 2;
    let config = ReadoutConfig::new("", vec![generated(Format::Faser, 5, 3)]);
    write(&store, &config, &ReadoutProgress::default()).expect("everything is written");
    assert_eq!(events(&store).len(), 3);

    let refuse = |writer| match writer {
        0 => Ok(Store::default()),
        _ => Err(StoreError { message: "refused".into(), retryable: false }),
    };
    let many = ReadoutConfig { events: Some(100_000), ..config };
    let error = readout::run_with(&many, &AtomicBool::new(false), &ReadoutProgress::default(), refuse);
    assert!(matches!(error, Err(ReadoutError::Store(_))), "{error:?}");
}

#[test]
fn events_come_no_faster_than_the_rate_and_stop_when_told() {
    let config = ReadoutConfig {
        events: Some(21),
        rate: Some(100.0),
        ..ReadoutConfig::new("", vec![generated(Format::Faser, 5, 3)])
    };
    let start = Instant::now();
    write(&Store::default(), &config, &ReadoutProgress::default()).expect("everything is written");
    assert!(start.elapsed().as_secs_f64() >= 0.2);

    let stop = AtomicBool::new(true);
    let endless = ReadoutConfig { events: Some(u64::MAX), rate: Some(1e-9), ..config.clone() };
    readout::run_with(&endless, &stop, &ReadoutProgress::default(), |_| Ok(Store::default())).expect("stopped");
    for rate in [0.0, -1.0, f64::NAN] {
        let error = write(
            &Store::default(),
            &ReadoutConfig { rate: Some(rate), ..config.clone() },
            &ReadoutProgress::default(),
        );
        assert!(matches!(error, Err(ReadoutError::Rate { .. })));
    }
    let error = write(&Store::default(), &ReadoutConfig::new("", Vec::new()), &ReadoutProgress::default());
    assert!(matches!(error, Err(ReadoutError::NoInput)));
}

#[test]
fn a_full_store_is_waited_for_and_given_up_at_the_deadline() {
    let store = Store { deadline: Some(Duration::from_millis(30)), ..Store::default() };
    store.state().is_full = true;
    let config = ReadoutConfig { events: Some(1000), ..ReadoutConfig::new("", vec![generated(Format::Faser, 5, 3)]) };
    let progress = ReadoutProgress::default();
    let error = write(&store, &config, &progress).expect_err("nothing is stored");
    assert!(matches!(error, ReadoutError::NotStored { .. }) && error.is_retryable(), "{error}");
    assert!(error.to_string().contains("no space"), "{error}");
    assert_eq!(progress.fragments_acknowledged.load(Relaxed), 0);
    assert!(progress.events_started.load(Relaxed) < 1000, "what comes behind fares no better");
    assert_eq!(progress.fragments_waiting(), 0);
}

#[test]
fn a_readout_that_waits_for_a_full_store_can_be_stopped() {
    let store = Store::default();
    store.state().is_full = true;
    let config = ReadoutConfig { events: Some(1000), ..ReadoutConfig::new("", vec![generated(Format::Faser, 5, 3)]) };
    let (progress, stop) = (ReadoutProgress::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let readout = scope.spawn(|| readout::run_with(&config, &stop, &progress, |_| Ok(store.clone())));
        while progress.fragments_waiting() == 0 {
            std::thread::yield_now();
        }
        stop.store(true, Relaxed);
        let error = readout.join().expect("no panic").expect_err("nothing is stored");
        assert!(matches!(error, ReadoutError::NotStored { .. }) && error.is_retryable(), "{error}");
        assert!(error.to_string().contains("stopped; the store last said: no space"), "{error}");
    });
    assert_eq!(progress.abandoned.load(Relaxed), progress.fragments_written.load(Relaxed));
}

#[test]
fn when_there_is_room_again_everything_is_written() {
    let store = Store::default();
    store.state().is_full = true;
    let config = ReadoutConfig { events: Some(50), ..ReadoutConfig::new("", vec![generated(Format::Faser, 5, 3)]) };
    let progress = ReadoutProgress::default();
    std::thread::scope(|scope| {
        let readout = scope.spawn(|| write(&store, &config, &progress));
        while progress.fragments_waiting() == 0 {
            std::thread::yield_now();
        }
        store.state().is_full = false;
        readout.join().expect("no panic").expect("everything is written");
    });
    assert_eq!(events(&store).len(), 50);
    assert_eq!(progress.fragments_acknowledged.load(Relaxed), progress.fragments_written.load(Relaxed));
}

#[test]
fn options_that_leave_nothing_to_be_done_are_refused() {
    let input = || vec![generated(Format::Faser, 5, 3)];
    let config = || ReadoutConfig::new("", input());
    for config in [
        ReadoutConfig { writers: 0, ..config() },
        ReadoutConfig { writers: 1_000_000, ..config() },
        ReadoutConfig { producers: 0, ..config() },
        ReadoutConfig { rate: Some(0.0), ..config() },
        ReadoutConfig { deadline: Some(Duration::ZERO), ..config() },
        ReadoutConfig::new("", vec![generated(Format::Mdf, 5, 0)]),
        ReadoutConfig::new("", vec![generated(Format::Faser, 1 << 24, 3)]),
        ReadoutConfig::new("", Vec::new()),
    ] {
        let store = Store::default();
        let error = write(&store, &config, &ReadoutProgress::default()).expect_err("refused");
        assert!(error.is_usage() && !error.is_retryable(), "{error}");
        assert!(store.state().events.is_empty());
    }
}

#[test]
fn hashes_are_kept_before_anything_is_put() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger");
    let store = Store::default();
    store.state().ledger = Some(path.clone());
    let config = ReadoutConfig {
        events: Some(60),
        producers: 2,
        ledger_path: Some(path),
        ..ReadoutConfig::new("", vec![generated(Format::Faser, 5, 3)])
    };
    write(&store, &config, &ReadoutProgress::default()).expect("everything is written");
    assert_eq!(store.state().events.len(), 60);
}

#[test]
fn of_several_bad_inputs_the_damaged_one_decides() {
    let directory = tempfile::tempdir().expect("a directory");
    let (missing, damaged) = (directory.path().join("typo.raw"), directory.path().join("damaged.raw"));
    std::fs::write(&damaged, b"no detector wrote this").expect("written");
    let run = |inputs: &[&std::path::Path]| {
        let inputs = inputs.iter().map(|path| Input::File(path.to_path_buf())).collect();
        write(&Store::default(), &ReadoutConfig::new("", inputs), &ReadoutProgress::default()).expect_err("bad input")
    };
    let error = run(&[&missing]);
    assert!(error.is_usage() && !error.to_string().contains("at byte"), "{error}");
    let error = run(&[&missing, &damaged]);
    assert!(!error.is_usage() && !error.is_retryable(), "{error}");
    assert!(error.to_string().starts_with(&damaged.display().to_string()), "{error}");
    assert!(error.to_string().contains("typo.raw"), "{error}");
}

/// The first event of the file has no number, so that position numbers all; the bytes of the second say 500.
#[test]
fn events_numbered_by_position_hold_their_new_numbers() {
    let mut generator = Generator::new(Format::Mdf, 1, RunId(5));
    let mut first = generator.next_event().bytes;
    let mut second = generator.next_event();
    forebay_rawdata::renumber(&mut second, RunId(5), forebay_types::EventId(500)).expect("renumbered");
    // The version of the ODIN bank: unknown from here on.
    let view = forebay_rawdata::banks::BankView::of(&first).expect("banks");
    let odin = view.iter().find(|bank| bank.bank_type == 16).expect("an ODIN bank").range.start;
    drop(view);
    first[odin + 5] = 9;
    first[12..16].fill(0);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("mixed.mdf");
    std::fs::write(&path, [first, second.bytes].concat()).expect("written");
    let store = Store::default();
    write(&store, &ReadoutConfig::new("", vec![Input::File(path)]), &ReadoutProgress::default()).expect("written");
    let state = store.state();
    let numbers = state.events.iter().map(|(key, event)| {
        let pieces: Vec<(SourceId, &[u8])> = event.fragments.iter().map(|(s, b)| (*s, b.as_slice())).collect();
        let (format, bytes) = join(&pieces).expect("a whole event");
        (key.event.0, forebay_rawdata::inspect(format, &bytes).expect("good").event.ok().map(|event| event.0))
    });
    assert_eq!(numbers.collect::<Vec<_>>(), [(0, None), (1, Some(1))]);
}
