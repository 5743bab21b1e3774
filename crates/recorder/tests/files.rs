//! The recorder on a real directory and a pretended store.
#![expect(clippy::disallowed_methods, reason = "the tests look at the files")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_client::{AcceptedEvent, AcceptedPage, EventState, FetchedEvent, FetchedFragment};
use forebay_rawdata::{Format, Generator, RawEvent, open, split};
use forebay_recorder::{
    AcceptedStore, DirectoryError, Mode, RecorderConfig, RecorderControl, RecorderError, RecorderProgress, Sidecar,
    StoreError, run_with,
};
use forebay_types::{DecideOutcome, EventKey, ReadOutcome, RunId, SourceId, StoreUuid, StreamName};

/// All events are accepted into each of the streams.
#[derive(Clone)]
struct Store {
    events: Arc<BTreeMap<EventKey, RawEvent>>,
    unreleased: Arc<Mutex<BTreeMap<StreamName, BTreeSet<EventKey>>>>,
    /// The first fragment of this event is lost.
    lost: Option<EventKey>,
    /// After so many calls the store refuses everything: the recorder ends where it stands.
    calls_left: Arc<AtomicU64>,
}

fn stream(name: &str) -> StreamName {
    name.parse().expect("a name")
}

impl Store {
    fn new(events: usize, streams: &[&str]) -> Store {
        let mut faser = Generator::new(Format::Faser, 1, RunId(7));
        let mut mdf = Generator::new(Format::Mdf, 1, RunId(8)).compressed(true);
        let mut besiii = Generator::new(Format::Besiii, 1, RunId(9));
        let events: BTreeMap<EventKey, RawEvent> = (0..events)
            .map(|number| match number % 4 {
                0 => mdf.next_event(),
                1 => besiii.next_event(),
                _ => faser.next_event(),
            })
            .map(|event| (event.key, event))
            .collect();
        let keys: BTreeSet<EventKey> = events.keys().copied().collect();
        let unreleased = streams.iter().map(|name| (stream(name), keys.clone())).collect();
        Store {
            events: Arc::new(events),
            unreleased: Arc::new(Mutex::new(unreleased)),
            lost: None,
            calls_left: Arc::new(AtomicU64::new(u64::MAX)),
        }
    }

    fn call(&self) -> Result<(), StoreError> {
        match self.calls_left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => Ok(()),
            Err(_) => Err(StoreError { message: "the store refuses".into(), retryable: false }),
        }
    }

    fn is_empty(&self) -> bool {
        self.unreleased.lock().expect("no panic").values().all(BTreeSet::is_empty)
    }
}

impl AcceptedStore for Store {
    fn store(&self) -> StoreUuid {
        StoreUuid::from_bytes([9; 16])
    }

    fn streams(&mut self) -> Result<Vec<StreamName>, StoreError> {
        Ok(self.unreleased.lock().expect("no panic").keys().cloned().collect())
    }

    fn accepted(&mut self, stream: &StreamName, after: Option<EventKey>, max: u32) -> Result<AcceptedPage, StoreError> {
        self.call()?;
        let unreleased = self.unreleased.lock().expect("no panic");
        let mut keys = unreleased[stream].iter().filter(|key| after.is_none_or(|after| **key > after));
        let event = |key: &EventKey| AcceptedEvent {
            key: *key,
            fragments: 1,
            bytes: self.events[key].bytes.len() as u64,
            incomplete: false,
        };
        let events = keys.by_ref().take(max as usize).map(event).collect();
        Ok(AcceptedPage { events, more: keys.next().is_some(), undecided_floor: None })
    }

    fn fetch(&mut self, events: &[EventKey]) -> Result<Vec<FetchedEvent>, StoreError> {
        self.call()?;
        let fetch = |key: &EventKey| {
            let pieces = split(&self.events[key]).expect("a good event");
            let found = |(source, payload)| FetchedFragment { source, outcome: ReadOutcome::Found, payload };
            let mut event = FetchedEvent {
                key: *key,
                outcome: ReadOutcome::Found,
                state: EventState::Accepted,
                expected: pieces.len() as u16,
                stored: pieces.len() as u32,
                fragments: pieces.into_iter().map(|piece| found((piece.source, piece.bytes))).collect(),
            };
            if self.lost == Some(*key) {
                let first = event.fragments.iter_mut().find(|fragment| fragment.source != SourceId::EVENT_FRAME);
                let first = first.expect("a fragment");
                first.outcome = ReadOutcome::Lost;
                first.payload.clear();
            }
            event
        };
        Ok(events.iter().map(fetch).collect())
    }

    fn release(&mut self, stream: &StreamName, events: &[EventKey]) -> Result<Vec<DecideOutcome>, StoreError> {
        let mut unreleased = self.unreleased.lock().expect("no panic");
        let keys = unreleased.get_mut(stream).expect("a stream");
        // The last call that is answered does its work, and its answer is lost.
        let release = |key| if keys.remove(key) { DecideOutcome::Done } else { DecideOutcome::AlreadyDone };
        let outcomes = events.iter().map(release).collect();
        self.call()?;
        Ok(outcomes)
    }
}

fn config(directory: &Path) -> RecorderConfig {
    RecorderConfig {
        mode: Mode::Once,
        file_bytes: 150_000,
        fetch_bytes: 100_000,
        poll: Duration::from_millis(1),
        ..RecorderConfig::new("", directory)
    }
}

fn record(store: &Store, config: &RecorderConfig, progress: &RecorderProgress) -> Result<(), RecorderError> {
    run_with(config, &RecorderControl::default(), progress, || Ok(store.clone()))
}

/// Every event of every announced file, compared with what was written.
fn check(directory: &Path, store: &Store, streams: &[&str]) {
    for name in streams {
        let mut seen = BTreeSet::new();
        for entry in std::fs::read_dir(directory.join(name)).expect("a directory") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_str().expect("text");
            assert!(!name.ends_with(".part"), "{name} is left");
            if !name.ends_with(".json") {
                continue;
            }
            let sidecar = Sidecar::parse(&std::fs::read(&path).expect("read")).expect("a sidecar");
            let data = path.with_file_name(&sidecar.file);
            assert_eq!(std::fs::metadata(&data).expect("a file").len(), sidecar.size);
            assert!(sidecar.events == 1 || sidecar.size <= 150_000, "{name} has {} bytes", sidecar.size);
            let mut reader = open(&data).expect("a file");
            let events: Vec<RawEvent> = reader.by_ref().collect::<Result<_, _>>().expect("good events");
            assert_eq!(events.len() as u64, sidecar.events);
            assert_eq!(
                reader.container(),
                Some(&sidecar.file_name().container()),
                "what is around events is that of {name}"
            );
            for (key, event) in sidecar.keys().zip(events) {
                assert!(seen.insert(key), "event {key} is there once");
                assert!(store.events[&key].bytes == event.bytes, "event {key} is what was written");
            }
        }
        assert!(seen.iter().eq(store.events.keys()), "all events are in {name}");
    }
    assert!(store.is_empty(), "all events are released");
}

#[test]
fn every_stream_gets_its_files_and_the_hook_is_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::new(60, &["physics", "calibration"]);
    let told = Arc::new(Mutex::new(Vec::new()));
    let hook = {
        let told = Arc::clone(&told);
        move |file: &forebay_recorder::ShippedFile| told.lock().expect("no panic").push(file.clone())
    };
    let config = RecorderConfig { hook: Some(Arc::new(hook)), ..config(directory.path()) };
    let progress = RecorderProgress::default();
    record(&store, &config, &progress).expect("recorded");
    check(directory.path(), &store, &["physics", "calibration"]);
    let told = told.lock().expect("no panic");
    assert_eq!(told.len() as u64, progress.all.counts().files);
    assert!(told.iter().all(|file| file.path.is_file() && file.read_mode.is_some()));
    let counts = progress.streams();
    assert_eq!(counts[&stream("physics")].events_shipped, 60);
    assert_eq!(progress.all.counts().events_shipped, 120);
    // Once more: nothing is left, nothing changes.
    record(&store, &config, &RecorderProgress::default()).expect("nothing to do");
    check(directory.path(), &store, &["physics", "calibration"]);
}

#[test]
fn ended_after_any_call_and_started_again_each_event_is_in_one_file() {
    for calls in 0.. {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::new(14, &["physics"]);
        store.calls_left.store(calls, Relaxed);
        let ended = record(&store, &config(directory.path()), &RecorderProgress::default());
        store.calls_left.store(u64::MAX, Relaxed);
        if ended.is_ok() {
            assert!(calls > 8, "only {calls} calls");
            break;
        }
        assert!(matches!(ended, Err(RecorderError::Store(_))), "{ended:?}");
        record(&store, &config(directory.path()), &RecorderProgress::default()).expect("recorded");
        check(directory.path(), &store, &["physics"]);
    }
}

#[test]
fn what_the_store_lost_is_recorded_without_it_and_said_at_the_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut store = Store::new(20, &["physics"]);
    let lost = *store.events.keys().find(|key| key.run == RunId(7)).expect("events");
    store.lost = Some(lost);
    let progress = RecorderProgress::default();
    let error = record(&store, &config(directory.path()), &progress).expect_err("a fragment is lost");
    assert!(matches!(error, RecorderError::Lost { fragments: 1, .. }) && !error.is_retryable(), "{error}");
    assert!(error.to_string().contains(&format!("event {lost}: 1 fragments")), "{error}");
    let counts = progress.all.counts();
    assert_eq!((counts.events_shipped, counts.events_incomplete, counts.fragments_lost), (20, 1, 1));
    assert!(store.is_empty(), "everything is recorded all the same");
}

#[test]
fn nothing_can_be_done_with_files_of_no_bytes() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::new(1, &["physics"]);
    for config in [
        RecorderConfig { file_bytes: 0, ..config(directory.path()) },
        RecorderConfig { fetch_bytes: 0, ..config(directory.path()) },
    ] {
        let error = record(&store, &config, &RecorderProgress::default()).expect_err("refused");
        assert!(matches!(error, RecorderError::Zero { .. }), "{error}");
    }
}

/// A server that starts again while the recorder begins with a stream.
#[test]
fn a_server_that_is_silent_for_a_while_is_waited_for() {
    for mode in [Mode::Once, Mode::Continuous] {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::new(8, &["physics", "calibration"]);
        let close_after = Duration::from_millis(20);
        let config = RecorderConfig { mode, close_after, ..config(directory.path()) };
        let (control, progress) = (RecorderControl::default(), RecorderProgress::default());
        let calls = AtomicU64::new(0);
        let connect = || match calls.fetch_add(1, Relaxed) {
            0 | 2 | 3 => Err(StoreError { message: "no answer".into(), retryable: true }),
            _ => Ok(store.clone()),
        };
        std::thread::scope(|scope| {
            let recorder = scope.spawn(|| run_with(&config, &control, &progress, connect).map_err(|e| e.to_string()));
            while progress.all.counts().events_shipped < 16 && !recorder.is_finished() {
                std::thread::yield_now();
            }
            control.drain();
            recorder.join().expect("no panic").expect("recorded");
        });
        check(directory.path(), &store, &["physics", "calibration"]);
    }
}

#[test]
fn a_server_that_stays_silent_is_given_up_when_all_is_to_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = RecorderConfig { patience: Duration::from_millis(50), ..config(directory.path()) };
    let silent = || Err::<Store, _>(StoreError { message: "no answer".into(), retryable: true });
    let ended = run_with(&config, &RecorderControl::default(), &RecorderProgress::default(), silent);
    assert!(matches!(&ended, Err(error @ RecorderError::Store(_)) if error.is_retryable()), "{ended:?}");
}

#[test]
fn a_second_recorder_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::new(5, &["physics"]);
    let continuous = RecorderConfig { mode: Mode::Continuous, ..config(directory.path()) };
    let (control, progress) = (RecorderControl::default(), RecorderProgress::default());
    std::thread::scope(|scope| {
        let first = scope.spawn(|| run_with(&continuous, &control, &progress, || Ok(store.clone())));
        while !directory.path().join("physics").exists() {
            std::thread::yield_now();
        }
        let error = record(&store, &config(directory.path()), &RecorderProgress::default());
        let error = error.expect_err("the directory is taken");
        assert!(
            matches!(error, RecorderError::Directory(DirectoryError::Locked { .. })) && error.is_retryable(),
            "{error}"
        );
        control.drain();
        first.join().expect("no panic").expect("recorded");
    });
    check(directory.path(), &store, &["physics"]);
}

#[test]
fn a_directory_that_cannot_be_used_ends_once_and_is_tried_again_by_continuous() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::new(5, &["physics"]);
    let in_the_way = directory.path().join("physics");
    std::fs::write(&in_the_way, b"").expect("written");
    let error = record(&store, &config(directory.path()), &RecorderProgress::default()).expect_err("no directory");
    assert!(!error.is_retryable() && error.to_string().contains("the store still holds them"), "{error}");
    assert_eq!(store.unreleased.lock().expect("no panic")[&stream("physics")].len(), 5);

    let continuous =
        RecorderConfig { mode: Mode::Continuous, retry: Duration::from_millis(1), ..config(directory.path()) };
    let (control, progress) = (RecorderControl::default(), RecorderProgress::default());
    std::thread::scope(|scope| {
        let recorder = scope.spawn(|| run_with(&continuous, &control, &progress, || Ok(store.clone())));
        while progress.all.counts().troubles == 0 {
            std::thread::yield_now();
        }
        std::fs::remove_file(&in_the_way).expect("removed");
        while !in_the_way.exists() {
            std::thread::yield_now();
        }
        control.drain();
        recorder.join().expect("no panic").expect("recorded");
    });
    check(directory.path(), &store, &["physics"]);
}

#[test]
fn a_damaged_journal_is_refused_and_nothing_is_released() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::new(30, &["physics"]);
    record(&store, &config(directory.path()), &RecorderProgress::default()).expect("recorded");
    let journal = directory.path().join("physics").join(forebay_recorder::JOURNAL_NAME);
    let mut bytes = std::fs::read(&journal).expect("read");
    bytes[100] ^= 1;
    std::fs::write(&journal, &bytes).expect("written");
    let store = Store::new(30, &["physics"]);
    let error = record(&store, &config(directory.path()), &RecorderProgress::default()).expect_err("damage");
    assert!(error.to_string().contains("line 3"), "{error}");
    assert!(!store.is_empty());
    assert!(std::fs::read(&journal).expect("read") == bytes, "the journal is left as it is");
}
