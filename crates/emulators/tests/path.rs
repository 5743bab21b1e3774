//! From the readout through the filter and the recorder to files that are compared: the whole path on a
//! pretended store.

mod common;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Store, Stream, test_data};
use forebay_emulators::filter::{self, FilterConfig, FilterControl, FilterProgress, StepSources, Steps, Until};
use forebay_emulators::readout::{self, Generated, Input, ReadoutConfig, ReadoutProgress};
use forebay_emulators::{CheckReport, Choice, HashLedger, StreamRule, check_files};
use forebay_mover::custody::Policy;
use forebay_mover::driver::{self, Config, Control, Counts, Lookout, Route, Target};
use forebay_mover::endpoint::Origin;
use forebay_mover::find::sidecars;
use forebay_mover::journal::Journal;
use forebay_mover::local::DirectoryDestination;
use forebay_mover::machine::{DestinationConfig, DestinationIndex, End, Merge, RouteConfig, StreamConfig};
use forebay_mover::monitor::MonitorConfig;
use forebay_rawdata::Format;
use forebay_types::{ReadOutcome, RunId, SourceId, StoreUuid, StreamName, Verdict};

fn generated(format: Format, compressed: bool, run: u32) -> Input {
    Input::Generated(Generated { format, compressed, seed: 3, run: RunId(run), events: 4 })
}

fn streams() -> Vec<StreamRule> {
    let rule = |name: &str, fraction| StreamRule { name: name.parse().expect("a name"), fraction };
    vec![rule("physics", 0.4), rule("calibration", 0.3)]
}

struct Path3 {
    store: Store,
    ledger: Arc<HashLedger>,
    readout: ReadoutProgress,
    filter: FilterProgress,
    recorded: Mutex<Counts>,
}

impl Path3 {
    fn new(store: Store) -> Path3 {
        Path3 {
            store,
            ledger: Arc::default(),
            readout: ReadoutProgress::default(),
            filter: FilterProgress::default(),
            recorded: Mutex::default(),
        }
    }

    fn write(&self, inputs: Vec<Input>, events: u64) {
        let config = ReadoutConfig {
            events: Some(events),
            writers: 3,
            producers: 2,
            ledger: Some(Arc::clone(&self.ledger)),
            ..ReadoutConfig::new("", inputs)
        };
        let written = readout::run_with(&config, &AtomicBool::new(false), &self.readout, |_| Ok(self.store.clone()));
        written.expect("everything is written");
        assert_eq!(self.readout.events_started.load(Relaxed), events);
        assert_eq!(self.ledger.len(), events, "each event has numbers of its own");
        let written = self.readout.fragments_written.load(Relaxed);
        assert_eq!(self.readout.fragments_acknowledged.load(Relaxed), written);
        assert_eq!(self.readout.latency.count(), written);
    }

    fn filter_config(&self) -> FilterConfig {
        FilterConfig {
            streams: streams(),
            until: Until::Idle(Duration::ZERO),
            lease: Duration::from_millis(300),
            ledger: Some(Arc::clone(&self.ledger)),
            ..FilterConfig::new("")
        }
    }

    fn filter(&self, config: &FilterConfig) -> Result<(), filter::FilterError> {
        let control = FilterControl::default();
        control.input_is_finished();
        filter::run_with(config, &control, &self.filter, |_| Ok(self.store.clone()))
    }

    /// A mover with a route for each stream.
    fn record(&self, directory: &Path) {
        let streams: Vec<StreamName> = self.store.state().streams.iter().cloned().collect();
        let route = |stream: &StreamName| Route {
            config: RouteConfig {
                name: stream.to_string(),
                destinations: vec![(DestinationIndex(0), true)],
                policy: Policy { recheck_after: Duration::ZERO, ..Policy::default() },
                settle: Duration::ZERO,
                merge: Some(Merge { bytes: 300_000, wait: Duration::from_secs(60), name: None }),
                events: Some(StreamConfig {
                    store: StoreUuid::from_bytes([7; 16]),
                    stream: stream.clone(),
                    order_wait: Duration::from_secs(10),
                    kind: None,
                    defined: None,
                }),
                zstd: None,
                sidecar: true,
                register: false,
                pulls: Vec::new(),
                scan_every: Duration::from_millis(1),
                priority: 0,
                streams_max: 2,
            },
            origin: Origin::Events(Arc::new(Stream {
                store: self.store.clone(),
                stream: stream.clone(),
                fragments_lost: AtomicU64::new(0),
            })),
            registry: None,
            door: None,
            from: stream.to_string(),
            space: None,
        };
        let destination = DirectoryDestination::open(directory).expect("a directory");
        let address = directory.display().to_string();
        let config = Config {
            routes: streams.iter().map(route).collect(),
            more_routes: None,
            targets: vec![Target {
                config: DestinationConfig { address, streams_max: 2, until_tape: false },
                destination: Arc::new(destination),
                asked: None,
            }],
            streams_max: 4,
            once: true,
            patience: Duration::from_secs(600),
            stall_after: Duration::from_secs(600),
        };
        let beside = tempfile::tempdir().expect("a directory");
        let mut journal = Journal::open(&beside.path().join("journal.sqlite")).expect("a journal");
        let mut lookout = Lookout::new(MonitorConfig { alarm_after: Duration::from_secs(300) });
        let moved = driver::run(&config, &mut journal, &Control::default(), &mut lookout, &|_| ()).expect("recorded");
        assert_eq!((moved.end, moved.left_files), (Some(End::default()), 0), "{:?}", moved.left);
        *self.recorded.lock().expect("no test panics with it") = moved.counts;
    }

    fn check(&self, directory: &Path) -> CheckReport {
        let report = check_files(directory, &self.ledger).expect("files that can be read");
        assert!(self.store.state().events.values().all(|event| event.finished), "nothing is left in the store");
        let total = report.total();
        let recorded = self.recorded.lock().expect("no test panics with it");
        assert_eq!((recorded.released_events, recorded.released_bytes), (total.shipped, total.bytes));
        assert_eq!((recorded.released, recorded.withdrawn), (total.files, 0));
        assert_eq!(self.filter.events_built.load(Relaxed), self.ledger.len());
        assert_eq!(self.filter.accepted.load(Relaxed), report.events_shipped);
        assert_eq!(self.filter.rejected.load(Relaxed), report.not_shipped);
        report
    }
}

/// Events in files of this format, as their sidecars say.
fn of_format(directory: &Path, format: &str) -> u64 {
    let all = sidecars(directory).expect("a directory").map(|sidecar| sidecar.expect("a sidecar").1);
    all.filter(|sidecar| sidecar.format == format).filter_map(|sidecar| sidecar.events).sum()
}

fn whole_path(inputs: Vec<Input>, events: u64) {
    let path = Path3::new(Store::default());
    path.write(inputs, events);
    path.filter(&path.filter_config()).expect("everything is good");
    let directory = tempfile::tempdir().expect("a directory");
    path.record(directory.path());
    let report = path.check(directory.path());
    assert!(report.is_good(), "{:?}", report.reports.first());
    let total = report.total();
    assert_eq!((total.identical, total.incomplete), (total.shipped, 0));
    let choice = Choice::new(1, &streams(), 0.0).expect("good rules");
    for (name, stream) in &report.streams {
        let takes = |verdict| matches!(verdict, Verdict::Accept(names) if names.contains(name));
        let expected = path.ledger.keys().into_iter().filter(|key| takes(choice.verdict(*key))).count();
        assert_eq!(stream.shipped, expected as u64, "{name}");
    }
    assert_eq!(report.streams.len(), 2);
}

#[test]
fn generated_events_of_all_kinds_come_out_as_they_went_in() {
    whole_path(
        vec![
            generated(Format::Faser, false, 5),
            generated(Format::Mdf, false, 5),
            generated(Format::Mdf, true, 5),
            generated(Format::Besiii, false, 5),
        ],
        120,
    );
}

#[test]
fn recorded_events_come_out_as_they_went_in() {
    let Some(data) = test_data() else { return };
    let inputs = [
        "faser/Faser-Physics-001920-filtered.raw",
        "faser/Faser-Physics-006525-filtered.raw",
        "lhcb/MiniBrunel_2018_MinBias_FTv4_DIGI_retinacluster_v1.mdf",
        "lhcb/upgrade_mc_minbias_scifi_v5.mdf",
        "besiii/test_raw_data.raw",
    ];
    whole_path(inputs.iter().map(|name| Input::File(data.join(name))).collect(), 150);
}

#[test]
fn events_without_a_source_are_decided_and_shipped_as_incomplete() {
    let store = Store { incomplete_after: Duration::ZERO, ..Store::default() };
    let path = Path3::new(store);
    // A tracker plane that every generated event has, see the sources of the first event.
    path.write(vec![generated(Format::Faser, false, 5)], 1);
    let missing = {
        let state = path.store.state();
        let event = state.events.values().next().expect("an event");
        *event.fragments.keys().nth(1).expect("sources")
    };
    path.store.state().events.clear();
    let path = Path3::new(path.store);
    path.store.state().never_arrives.insert(missing);
    path.write(vec![generated(Format::Faser, false, 5)], 60);
    path.filter(&path.filter_config()).expect("incomplete events are no damage");
    assert_eq!(path.filter.incomplete.load(Relaxed), 60);
    let directory = tempfile::tempdir().expect("a directory");
    path.record(directory.path());
    let report = path.check(directory.path());
    let total = report.total();
    assert!(report.is_good() && total.shipped > 10);
    assert_eq!((total.incomplete, total.identical), (total.shipped, 0));
    let in_faser = of_format(directory.path(), "faser");
    assert_eq!(in_faser, total.shipped);
}

#[test]
fn events_without_their_frame_are_kept_in_parts() {
    let store = Store { incomplete_after: Duration::ZERO, ..Store::default() };
    store.state().never_arrives.insert(SourceId::EVENT_FRAME);
    let path = Path3::new(store);
    path.write(vec![generated(Format::Faser, false, 5)], 40);
    path.filter(&path.filter_config()).expect("incomplete events are no damage");
    let directory = tempfile::tempdir().expect("a directory");
    path.record(directory.path());
    let report = path.check(directory.path());
    let total = report.total();
    assert!(report.is_good() && total.shipped > 5);
    let in_parts = of_format(directory.path(), "parts");
    assert_eq!((total.incomplete, in_parts), (total.shipped, total.shipped));
}

#[test]
fn lost_and_damaged_events_go_to_debug_and_are_named() {
    let path = Path3::new(Store::default());
    path.write(vec![generated(Format::Faser, false, 5)], 30);
    let damaged = {
        let mut state = path.store.state();
        let (key, event) = state.events.iter().nth(7).expect("events");
        let id = key.fragment(*event.fragments.keys().nth(2).expect("sources"));
        state.damages.insert(id);
        id
    };
    let error = path.filter(&path.filter_config()).expect_err("an event is damaged");
    assert!(error.to_string().contains(&damaged.key().to_string()), "{error}");
    assert_eq!(path.filter.mismatched.load(Relaxed), 1);
    assert_eq!(path.filter.events_built.load(Relaxed), 30);
    let verdict = path.store.state().events[&damaged.key()].verdict.clone();
    assert_eq!(verdict, Some(Verdict::Accept(vec!["debug".parse().expect("a name")])));

    let path = Path3::new(Store::default());
    path.write(vec![generated(Format::Faser, false, 5)], 10);
    let source = *path.store.state().events.values().next().expect("events").fragments.keys().next().expect("one");
    path.store.state().reads.insert(source, ReadOutcome::Lost);
    path.filter(&path.filter_config()).expect_err("fragments are lost");
    let counts = [&path.filter.lost, &path.filter.incomplete, &path.filter.accepted].map(|count| count.load(Relaxed));
    assert_eq!(counts, [10, 10, 10]);
    let directory = tempfile::tempdir().expect("a directory");
    path.record(directory.path());
    let report = path.check(directory.path());
    assert_eq!(report.streams.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["debug"]);
    assert_eq!(
        (report.total().incomplete, path.recorded.lock().expect("no test panics with it").fragments_lost),
        (10, 10)
    );
}

#[test]
fn what_cannot_be_read_now_is_left_until_it_can() {
    let path = Path3::new(Store::default());
    path.write(vec![generated(Format::Faser, false, 5)], 20);
    let source = *path.store.state().events.values().next().expect("events").fragments.keys().next().expect("one");
    path.store.state().reads.insert(source, ReadOutcome::Unavailable);
    std::thread::scope(|scope| {
        let filter = scope.spawn(|| path.filter(&path.filter_config()));
        while path.filter.left.load(Relaxed) < 20 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(path.filter.events_built.load(Relaxed), 0);
        path.store.state().reads.clear();
        filter.join().expect("no panic").expect("everything is good");
    });
    assert_eq!(path.filter.events_built.load(Relaxed), 20);
}

#[test]
fn a_filter_that_dies_loses_no_event_and_silence_is_waited_out() {
    let path = Path3::new(Store::default());
    path.write(vec![generated(Format::Faser, false, 5)], 50);
    // A filter leases events and is never heard of again.
    let mut dead = path.store.clone();
    let lease = forebay_emulators::FilterStore::lease(&mut dead, 10, Duration::from_millis(50), 99, None);
    assert_eq!(lease.expect("a lease").events.len(), 10);
    path.store.state().silent = 3;
    path.filter(&path.filter_config()).expect("everything is good");
    assert_eq!(path.filter.events_built.load(Relaxed), 50);
}

#[test]
fn steps_read_less_and_decide_the_same() {
    let decide = |steps: Option<Steps>| {
        let path = Path3::new(Store::default());
        path.write(vec![generated(Format::Faser, false, 5), generated(Format::Mdf, false, 6)], 100);
        let config = FilterConfig { steps: steps.clone(), ..path.filter_config() };
        path.filter(&config).expect("everything is good");
        assert_eq!(path.filter.bytes_read.load(Relaxed), path.store.state().bytes_read);
        let verdicts: Vec<_> = path.store.state().events.values().map(|event| event.verdict.clone()).collect();
        let early = config.steps.map_or(0.0, |steps| steps.early_fraction);
        let choice = Choice::new(config.seed, &config.streams, early).expect("good rules");
        let expected = path.ledger.keys().into_iter().filter(|key| choice.rejects_early(*key)).count() as u64;
        assert_eq!(path.filter.rejected_early.load(Relaxed), expected);
        (verdicts, path.filter.bytes_read.load(Relaxed), expected)
    };
    let (whole, whole_bytes, _) = decide(None);
    for first in [StepSources::Share(0.2), StepSources::Listed(vec![SourceId(0x30000), SourceId(77)])] {
        let (verdicts, bytes, early) = decide(Some(Steps { first, early_fraction: 0.8 }));
        assert_eq!(verdicts, whole);
        assert!(early > 20 && bytes < whole_bytes * 9 / 10, "{early} early, {bytes} of {whole_bytes} bytes");
    }
}

#[test]
fn the_filter_ends_after_a_number_of_events() {
    let path = Path3::new(Store::default());
    path.write(vec![generated(Format::Faser, false, 5)], 200);
    path.filter(&FilterConfig { until: Until::Events(30), readers: 1, ..path.filter_config() }).expect("good");
    let built = path.filter.events_built.load(Relaxed);
    assert!((30..200).contains(&built), "{built}");
}

#[test]
fn filter_options_that_leave_nothing_to_be_done_are_refused() {
    let path = Path3::new(Store::default());
    let config = || path.filter_config();
    for config in [
        FilterConfig { readers: 0, ..config() },
        FilterConfig { readers: 1_000_000, ..config() },
        FilterConfig { batch_events: 0, ..config() },
        FilterConfig { batch_bytes: 0, ..config() },
        FilterConfig { lease: Duration::ZERO, ..config() },
    ] {
        let error = path.filter(&config).expect_err("refused");
        assert!(error.is_usage() && !error.is_retryable(), "{error}");
    }
}

/// A plain put says nothing of how many fragments there will be, and what is put has no frame.
#[test]
fn events_that_nobody_knows_the_size_of_are_decided_as_incomplete() {
    let path = Path3::new(Store::default());
    let key = forebay_types::EventKey::new(9, 1);
    let mut writer = path.store.clone();
    forebay_emulators::ReadoutStore::put(&mut writer, key.fragment(SourceId(7)), 0, b"alone").expect("taken");
    path.filter(&path.filter_config()).expect("an incomplete event is no damage");
    assert_eq!((path.filter.events_built.load(Relaxed), path.filter.incomplete.load(Relaxed)), (1, 1));
}

#[test]
fn a_stray_fragment_is_seen_in_steps_too() {
    let decide = |steps: Option<Steps>| {
        let path = Path3::new(Store::default());
        path.write(vec![generated(Format::Faser, false, 5)], 20);
        let key = {
            let mut state = path.store.state();
            let (key, event) = state.events.iter_mut().nth(4).expect("events");
            event.fragments.insert(SourceId(0x77_0000), b"of another event".to_vec());
            *key
        };
        path.filter(&FilterConfig { steps, ..path.filter_config() }).expect_err("an event is not what was written");
        assert_eq!(path.filter.mismatched.load(Relaxed), 1);
        let verdicts: Vec<_> = path.store.state().events.values().map(|event| event.verdict.clone()).collect();
        assert_eq!(
            path.store.state().events[&key].verdict,
            Some(Verdict::Accept(vec!["debug".parse().expect("a name")]))
        );
        verdicts
    };
    let steps = Steps { first: StepSources::Share(0.2), early_fraction: 0.0 };
    assert_eq!(decide(Some(steps)), decide(None));
}

/// The lease ran out on a slow filter, another one accepted, and the recorder shipped it before the first one decides.
#[test]
fn an_acceptance_of_an_event_that_is_shipped_already_is_no_trouble() {
    let path = Path3::new(Store::default());
    path.write(vec![generated(Format::Faser, false, 5)], 30);
    path.store.state().ships_at_decision = true;
    let all = StreamRule { name: "physics".parse().expect("a name"), fraction: 1.0 };
    path.filter(&FilterConfig { streams: vec![all], ..path.filter_config() }).expect("nothing is wrong");
    assert_eq!(path.filter.decided_before.load(Relaxed), 30);
    assert_eq!((path.filter.undecided.load(Relaxed), path.filter.reports.count()), (0, 0));
}

#[test]
fn the_first_damage_is_named_whatever_else_went_wrong_before() {
    let path = Path3::new(Store::default());
    path.write(vec![generated(Format::Faser, false, 5)], 30);
    let damaged = {
        let mut state = path.store.state();
        let (key, event) = state.events.iter().nth(25).expect("events");
        let id = key.fragment(*event.fragments.keys().nth(2).expect("sources"));
        state.damages.insert(id);
        state.decisions_refused = 20;
        id.key()
    };
    let error = path.filter(&path.filter_config()).expect_err("an event is damaged");
    assert!(error.to_string().contains(&format!("The first: event {damaged}")), "{error}");
    assert!(path.filter.reports.count() > 0);
}
