//! The whole path of events through a server that dies again and again: a readout, a filter and a recorder that go on after each start.
//!
//! The readout writes portion after portion, the filter compares each event with the hash that was taken before it was written, the
//! recorder is a process of its own and is killed now and then. At the end every event is in a file of each of its streams, once, as it was
//! written, or was rejected.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_client::{Class, Client, ClientConfig, EventState};
use forebay_emulators::filter::{self, FilterConfig, FilterControl, FilterError, FilterProgress};
use forebay_emulators::readout::{self, Generated, Input, ReadoutConfig, ReadoutProgress};
use forebay_emulators::{Choice, HashLedger, StreamRule, check_files};
use forebay_rawdata::Format;
use forebay_types::{RunId, SourceId, StreamName, Verdict};
use rustix::process::{Pid, Signal, kill_process};

/// Events of a portion, and how many of them a second at most, so that the path goes on while servers come and go.
const PORTION_EVENTS: u64 = 60;
const EVENTS_PER_S: f64 = 400.0;

/// How long a client waits for a server before it looks whether it is still to wait.
const PATIENCE: Duration = Duration::from_secs(2);

const SEED: u64 = 1;

/// What all events came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shipped {
    pub events: u64,
    pub accepted: u64,
    pub recorder_kills: u64,
}

/// The running path.
pub struct EventPath {
    address: String,
    out: PathBuf,
    ledger: Arc<HashLedger>,
    rules: Vec<StreamRule>,
    next_run: Arc<AtomicU32>,
    readout: Option<JoinHandle<()>>,
    readout_is_to_end: Arc<AtomicBool>,
    filter: JoinHandle<Result<(), FilterError>>,
    filter_control: Arc<FilterControl>,
    recorder: Option<Recorder>,
    recorder_kills: u64,
}

impl EventPath {
    /// Starts filter and recorder; their server is there.
    pub fn start(address: &str, out: PathBuf) -> EventPath {
        let rule = |name: &str, fraction| StreamRule { name: name.parse().expect("a name"), fraction };
        let rules = vec![rule("physics", 0.3), rule("calibration", 0.1)];
        let (ledger, control) = (Arc::<HashLedger>::default(), Arc::<FilterControl>::default());
        let config = FilterConfig {
            readers: 1,
            seed: SEED,
            streams: rules.clone(),
            lease: Duration::from_secs(2),
            ledger: Some(ledger.clone()),
            ..FilterConfig::new(address)
        };
        let filter_control = control.clone();
        let filter = std::thread::spawn(move || filter_events(&config, &control));
        let mut path = EventPath {
            address: address.to_owned(),
            out,
            ledger,
            rules,
            next_run: Arc::new(AtomicU32::new(1)),
            readout: None,
            readout_is_to_end: Arc::default(),
            filter,
            filter_control,
            recorder: None,
            recorder_kills: 0,
        };
        path.keep_going();
        path
    }

    /// Starts readout and recorder when they do not run.
    pub fn keep_going(&mut self) {
        self.keep_recording();
        if self.readout.is_none() {
            self.readout_is_to_end.store(false, Relaxed);
            let (address, ledger) = (self.address.clone(), self.ledger.clone());
            let (next_run, end) = (self.next_run.clone(), self.readout_is_to_end.clone());
            self.readout = Some(std::thread::spawn(move || {
                while !end.load(Relaxed) {
                    write_portion(&address, &ledger, RunId(next_run.fetch_add(1, Relaxed)));
                }
            }));
        }
        assert!(!self.filter.is_finished(), "the filter ended by itself");
    }

    /// Starts the recorder when it does not run. That one ended because it saw no server is no failure.
    pub fn keep_recording(&mut self) {
        if let Some(status) = self.recorder.as_mut().and_then(|recorder| recorder.0.try_wait().expect("ours")) {
            assert_eq!(status.code(), Some(3), "the recorder ended by itself: {}", self.recorder_log());
            self.recorder = None;
        }
        self.recorder.get_or_insert_with(|| start_recorder(&self.address, &self.out));
    }

    /// SIGKILL.
    pub fn kill_recorder(&mut self) {
        self.recorder_kills += u64::from(self.recorder.take().is_some());
    }

    fn recorder_log(&self) -> String {
        std::fs::read_to_string(self.out.join("recorder.log")).unwrap_or_default()
    }

    /// The readout ends with its portion; whether it has.
    pub fn readout_has_ended(&mut self) -> bool {
        self.readout_is_to_end.store(true, Relaxed);
        if self.readout.as_ref().is_some_and(|readout| !readout.is_finished()) {
            return false;
        }
        if let Some(readout) = self.readout.take() {
            readout.join().expect("all was written");
        }
        true
    }

    /// Sees that the store is through with all events of the readout.
    pub fn expect_finished(&self, client: &mut Client) {
        for batch in self.ledger.keys().chunks(1000) {
            for event in client.get_events(batch, Some(&[SourceId::EVENT_FRAME])).expect("answered") {
                assert_eq!(event.state, EventState::Finished, "{}", event.key);
            }
        }
    }

    /// Ends all and compares what was shipped with what was written. The readout has ended, and the store is through with its events.
    pub fn finish(mut self) -> Shipped {
        assert!(self.readout_has_ended());
        self.filter_control.stop();
        self.filter.join().expect("no panic").expect("every event was read as it was written");
        let mut recorder = self.recorder.take().expect("it runs");
        let pid = Pid::from_raw(recorder.0.id().cast_signed()).expect("a process");
        kill_process(pid, Signal::INT).expect("a signal");
        let status = recorder.0.wait().expect("it ends");
        let log = std::fs::read_to_string(self.out.join("recorder.log")).unwrap_or_default();
        assert!(status.success() || status.code() == Some(3), "the recorder ended with {status}: {log}");

        let choice = Choice::new(SEED, &self.rules, 0.0).expect("good rules");
        let (mut expected, mut accepted) = (BTreeMap::<StreamName, u64>::new(), 0);
        for key in self.ledger.keys() {
            if let Verdict::Accept(streams) = choice.verdict(key) {
                accepted += 1;
                streams.into_iter().for_each(|stream| *expected.entry(stream).or_default() += 1);
            }
        }
        let report = check_files(&self.out, &self.ledger).expect("the files can be read");
        assert!(report.is_good(), "{:?} {:?}", report.total(), report.reports);
        let identical: BTreeMap<StreamName, u64> =
            report.streams.iter().map(|(name, stream)| (name.clone(), stream.identical)).collect();
        assert_eq!(identical, expected, "each accepted event is in a file of each of its streams");
        Shipped { events: self.ledger.len(), accepted, recorder_kills: self.recorder_kills }
    }
}

/// A client that comes when there is a server.
fn connect(address: &str, name: &str, class: Class, deadline: Option<Duration>) -> Client {
    let config = ClientConfig::new(address, name).class(class);
    let seed = config.seed.wrapping_add(name.len() as u64);
    loop {
        if let Ok(client) = Client::connect(ClientConfig { deadline, seed, ..config.clone() }) {
            return client;
        }
    }
}

fn filter_events(config: &FilterConfig, control: &FilterControl) -> Result<(), FilterError> {
    filter::run_with(config, control, &FilterProgress::default(), |number| {
        Ok(connect(&config.address, &format!("filter {number}"), Class::Filter, Some(PATIENCE)))
    })
}

fn write_portion(address: &str, ledger: &Arc<HashLedger>, run: RunId) {
    let format = if run.0.is_multiple_of(3) { Format::Mdf } else { Format::Faser };
    let made = Generated { format, compressed: false, seed: run.0.into(), run, events: PORTION_EVENTS };
    let config = ReadoutConfig {
        writers: 2,
        rate: Some(EVENTS_PER_S),
        ledger: Some(ledger.clone()),
        ..ReadoutConfig::new(address, vec![Input::Generated(made)])
    };
    let (stop, progress) = (AtomicBool::new(false), ReadoutProgress::default());
    // It tries for as long as it takes.
    let written = readout::run_with(&config, &stop, &progress, |writer| {
        Ok(connect(address, &format!("readout {writer}"), Class::Readout, None))
    });
    written.expect("all is written");
    let (written, acknowledged) =
        (progress.fragments_written.load(Relaxed), progress.fragments_acknowledged.load(Relaxed));
    assert_eq!(written, acknowledged, "every fragment is acknowledged in the end");
}

/// The process of a recorder; killed (SIGKILL) when dropped.
struct Recorder(Child);

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_recorder(address: &str, out: &Path) -> Recorder {
    std::fs::create_dir_all(out).expect("made");
    let log = OpenOptions::new().create(true).append(true).open(out.join("recorder.log")).expect("opened");
    let started = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["record", "--server", address, "--file-bytes", "2MB", "--close-after", "0.05", "--order-wait", "0.1"])
        .arg("--out")
        .arg(out)
        .arg("--journal")
        .arg(out.with_extension("sqlite"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("the recorder starts");
    Recorder(started)
}
