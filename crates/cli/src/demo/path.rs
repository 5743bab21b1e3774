//! The path of the events: writers, filters and the recorder in this process, and the drive that dies.

use std::cell::Cell;
use std::fs::OpenOptions;
use std::io::{Seek, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_client::{Class, Client, ClientConfig};
use forebay_emulators::filter::{self, FilterConfig, FilterControl, FilterError, FilterProgress, Until};
use forebay_emulators::readout::{self, ReadoutConfig, ReadoutError, ReadoutProgress};
use forebay_emulators::{Choice, HashLedger, StreamRule};
use forebay_mover::driver::{Control, Counts};
use forebay_types::DriveNumber;

use super::half_way::HalfWay;
use super::place::Place;
use super::plan::{Part, Plan};
use super::server::ChildServer;
use super::{DemoCommand, VICTIM, go_on};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::mover;
use crate::output::{Output, Progress};
use crate::record::Recording;
use crate::size::{human_bytes, human_count};
use crate::status::Report;

const WRITERS: usize = 4;
const FILTERS: usize = 2;
/// The streams overlap, so that events that two streams hold are freed when both have them.
const STREAMS: [(&str, f64); 2] = [("physics", 0.10), ("calibration", 0.02)];
const SEED: u64 = 1;
/// Small files, so that some are shipped while the run goes on.
const FILE_BYTES: u64 = 8 << 20;
/// A file is open no longer, and an undecided event is waited for no longer.
const CLOSE_AFTER: Duration = Duration::from_secs(30);
const ORDER_WAIT: Duration = Duration::from_secs(10);
/// After so long without an undecided event the filters end, when the writers have.
const IDLE: Duration = Duration::from_millis(300);
/// A fragment that the store does not take for so long is given up: it is lost, and said so. Pools whose drives die may take no writes for a while.
const PUT_DEADLINE: Duration = Duration::from_secs(240);
const LOOK: Duration = Duration::from_millis(50);
/// Of so few events none is decided before the drive dies, so that there is something to be written after it.
const FEW_EVENTS: u64 = 200;
/// While so much of a drive's size is written, what is accepted waits for the recorder until the drive is dead: it was written when the drive was
/// alive, and is read when it is not. What waits keeps the space of all that was written beside it, so that it must not be too much.
const WAIT_FRACTION: f64 = 1.5;
/// How long threads may take to end when something went wrong.
const FAREWELL: Duration = Duration::from_secs(10);
/// How long it may take until the server has noticed that a drive is dead.
const NOTICE: Duration = Duration::from_secs(10);
const NOISE_BYTES: usize = 1 << 20;

/// What a run has counted.
pub struct Run {
    /// When the first writer started.
    pub start: Instant,
    /// The hash of every event, taken before it was written.
    pub ledger: Arc<HashLedger>,
    /// What the writers counted.
    pub readout: Arc<ReadoutProgress>,
    /// What the filters counted.
    pub filter: Arc<FilterProgress>,
    /// What the recorder counted.
    pub recorder: Counts,
    /// What the filters were to decide.
    pub choice: Choice,
    /// Why not all of the input was written.
    pub readout_failure: Option<Failure>,
}

/// Runs all events through the store; gives what was counted, and the server's status after that.
///
/// # Errors
/// What ended it early. What was counted until then is of no use.
pub fn run(
    command: &DemoCommand,
    plan: &Plan,
    place: &Place,
    server: &mut ChildServer,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<(Run, Report), Failure> {
    let client = ClientConfig::new(server.address(), "demo").class(Class::Monitor).deadline(Some(NOTICE));
    let mut client = Client::connect(client)?;
    let mut workers = Workers::start(plan, place, server.address(), command.has_a_half_way())?;
    let mut watch = Watch { plan, server, interrupt, progress: progress(plan, output), drive: "", output: *output };
    let result = drive(command, place, &mut workers, &mut watch, &mut client);
    let Watch { progress, .. } = watch;
    drop(progress);
    match result {
        Ok(readout_failure) => {
            let status = last_status(command, &mut client)?;
            Ok((workers.into_run(readout_failure), status))
        }
        Err(failure) => {
            workers.abandon();
            Err(failure)
        }
    }
}

fn progress(plan: &Plan, output: &Output) -> Progress {
    output.progress(plan.events_expected, "{bar:30} {percent:>3}% {msg}")
}

/// From the first put to the last file.
fn drive(
    command: &DemoCommand,
    place: &Place,
    workers: &mut Workers,
    watch: &mut Watch<'_>,
    client: &mut Client,
) -> Result<Option<Failure>, Failure> {
    let half = watch.plan.events_expected.div_ceil(2);
    let mut is_before_half = command.has_a_half_way();
    let wait_bytes = (command.drive_bytes as f64 * WAIT_FRACTION) as u64;
    while !workers.readout.is_finished() {
        watch.look(workers)?;
        if workers.readout_progress.bytes_written.load(Relaxed) > wait_bytes {
            workers.recorder_may_start.store(true, Relaxed);
        }
        if is_before_half && workers.events_acknowledged() >= half {
            be_half_way(command, place, workers, watch, client)?;
            is_before_half = false;
        }
    }
    let readout_failure = match workers.readout.take() {
        Ok(()) => None,
        Err(error @ (ReadoutError::Damaged { .. } | ReadoutError::NotStored { .. })) => {
            Some(crate::readout::failure(&error))
        }
        Err(error) => return Err(crate::readout::failure(&error)),
    };
    if is_before_half {
        // So few events, or so little good input, that the half way was not seen.
        be_half_way(command, place, workers, watch, client)?;
    }
    workers.let_all_start();
    workers.filter_control.input_is_finished();
    while !workers.filter.is_finished() {
        watch.look(workers)?;
    }
    workers.take_filter()?;
    workers.recorder_control.finish();
    while !workers.recorder.is_finished() {
        watch.look(workers)?;
    }
    workers.take_recorder()?;
    Ok(readout_failure)
}

/// Writes one input after the other. What is wrong with one is told when the others are written.
fn read_out(configs: &[ReadoutConfig], stop: &AtomicBool, progress: &ReadoutProgress) -> Result<(), ReadoutError> {
    let mut first = None;
    for config in configs {
        match readout::run(config, stop, progress) {
            Err(error @ (ReadoutError::Damaged { .. } | ReadoutError::NotStored { .. })) => {
                first.get_or_insert(error);
            }
            end => end?,
        }
    }
    first.map_or(Ok(()), Err)
}

/// What is to happen half way; all may start then.
fn be_half_way(
    command: &DemoCommand,
    place: &Place,
    workers: &mut Workers,
    watch: &mut Watch<'_>,
    client: &mut Client,
) -> Result<(), Failure> {
    if let Some(words) = &command.half_way {
        watch.output.event(&format!("half way  {words}"));
        let mut running = HalfWay::start(words, place, watch.server.address())?;
        while !running.is_done(place)? {
            watch.look(workers)?;
        }
        watch.drive = ", half way";
    } else {
        watch.drive = destroy_drive(place, client, watch.output)?;
    }
    workers.let_all_start();
    Ok(())
}

/// Overwrites the drive under the running server, then makes it refuse everything.
fn destroy_drive(place: &Place, client: &mut Client, output: Output) -> Result<&'static str, Failure> {
    let path = &place.drives()[VICTIM];
    let bytes =
        overwrite_with_noise(path).map_err(|error| Failure::file("overwrite", path, &error, "the demo ended"))?;
    client.inject_fault(DriveNumber(VICTIM as u16))?;
    let words = format!(
        "drive {VICTIM}   destroyed: {} overwritten with random bytes under the running server; it refuses everything now",
        human_bytes(bytes)
    );
    output.event(&words);
    Ok(", one drive dead")
}

fn overwrite_with_noise(path: &Path) -> std::io::Result<u64> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    let bytes = file.metadata()?.len();
    let mut noise = vec![0; NOISE_BYTES];
    getrandom::fill(&mut noise).map_err(std::io::Error::other)?;
    let mut left = bytes;
    while left > 0 {
        let part = left.min(NOISE_BYTES as u64);
        file.write_all(&noise[..part as usize])?;
        left -= part;
    }
    file.stream_position()
}

/// The status when all is over; a drive that died must have been noticed by then.
fn last_status(command: &DemoCommand, client: &mut Client) -> Result<Report, Failure> {
    let start = Instant::now();
    loop {
        let report: Report = serde_json::from_str(&client.status()?)
            .map_err(|error| Failure::data(format!("the server's status cannot be read: {error}")))?;
        if !command.destroys_a_drive() || report.drives_failed > 0 || start.elapsed() > NOTICE {
            return Ok(report);
        }
        std::thread::sleep(LOOK);
    }
}

/// What is looked at while the threads work.
struct Watch<'a> {
    plan: &'a Plan,
    server: &'a mut ChildServer,
    interrupt: &'a Interrupt,
    progress: Progress,
    /// What became of the drive, for the progress.
    drive: &'static str,
    output: Output,
}

impl Watch<'_> {
    /// Waits a little, shows how far it is, and sees whether it can go on.
    fn look(&mut self, workers: &mut Workers) -> Result<(), Failure> {
        std::thread::sleep(LOOK);
        let done = workers.events_done();
        let (drive, expected) = (self.drive, self.plan.events_expected);
        self.progress.update(done, || workers.words(expected, drive));
        go_on(self.interrupt)?;
        if let Some(status) = self.server.ended() {
            return Err(Failure::data(format!("the server ended in the middle of the run: {status}")));
        }
        // Until they are asked to, these two end for a bad reason alone. What is taken here is good when it is taken again.
        if workers.filter.is_finished() {
            workers.take_filter()?;
        }
        if workers.recorder.is_finished() {
            workers.take_recorder()?;
        }
        Ok(())
    }
}

/// A thread and what it came to.
struct Worker<E>(Option<JoinHandle<Result<(), E>>>);

impl<E: Send + 'static> Worker<E> {
    fn start(name: &str, run: impl FnOnce() -> Result<(), E> + Send + 'static) -> Result<Worker<E>, Failure> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        let thread = thread.map_err(|error| Failure::retry(format!("a thread cannot be started: {error}")))?;
        Ok(Worker(Some(thread)))
    }

    fn is_finished(&self) -> bool {
        self.0.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl<E> Worker<E> {
    /// What it came to; good when that was taken before.
    fn take(&mut self) -> Result<(), E> {
        match self.0.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        }
    }
}

fn wait_for(flag: &AtomicBool) {
    while !flag.load(Relaxed) {
        std::thread::sleep(LOOK);
    }
}

/// Ends the recorder, and knows how far it is.
#[derive(Default)]
struct RecorderControl {
    /// As long as there may be more, and when all is there.
    controls: [Control; 2],
    counts: Mutex<Counts>,
}

impl RecorderControl {
    /// Nothing more is accepted: what is left is recorded, then it ends.
    fn finish(&self) {
        self.controls[0].drain();
    }

    fn stop(&self) {
        self.controls.iter().for_each(Control::stop);
    }

    fn counts(&self) -> Counts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records every stream until all is recorded.
fn record(server: &str, out: &Path, journal: &Path, recorder: &RecorderControl) -> Result<(), Failure> {
    let recording = Recording {
        server,
        out,
        streams: &[],
        file_bytes: FILE_BYTES,
        close_after: CLOSE_AFTER,
        order_wait: ORDER_WAIT,
        recheck_after: Duration::ZERO,
        journal: Some(journal),
    };
    let mut earlier = Counts::default();
    for (once, control) in [false, true].into_iter().zip(&recorder.controls) {
        let told = |counts: &Counts| {
            let mut all = *counts;
            all.add(&earlier);
            *recorder.counts.lock().unwrap_or_else(PoisonError::into_inner) = all;
        };
        let outcome = mover::move_beside(&recording.options(once)?, control, &told)?;
        told(&outcome.counts);
        earlier.add(&outcome.counts);
        // What is lost in the store is counted, and told by the ledger.
        if let (Some(_), Some(left)) = (outcome.end, outcome.left.first()) {
            let words = format!(
                "{} files were not recorded, {} for one: {} {}",
                outcome.left_files, left.name, left.state, left.words
            );
            return Err(Failure::data(words));
        }
    }
    Ok(())
}

struct Workers {
    start: Instant,
    /// About how many events were acknowledged when that was asked last.
    acknowledged: Cell<u64>,
    ledger: Arc<HashLedger>,
    choice: Choice,
    readout: Worker<ReadoutError>,
    readout_stop: Arc<AtomicBool>,
    readout_progress: Arc<ReadoutProgress>,
    filter: Worker<FilterError>,
    filter_may_start: Arc<AtomicBool>,
    filter_control: Arc<FilterControl>,
    filter_progress: Arc<FilterProgress>,
    recorder: Worker<Failure>,
    recorder_may_start: Arc<AtomicBool>,
    recorder_control: Arc<RecorderControl>,
}

impl Workers {
    fn start(plan: &Plan, place: &Place, address: &str, has_a_half_way: bool) -> Result<Workers, Failure> {
        let ledger = Arc::new(HashLedger::default());
        let streams: Vec<StreamRule> = STREAMS
            .iter()
            .map(|(name, fraction)| StreamRule { name: name.parse().expect("a good name"), fraction: *fraction })
            .collect();
        let choice = Choice::new(SEED, &streams, 0.0).expect("good rules");
        let filter_config = FilterConfig {
            readers: FILTERS,
            seed: SEED,
            streams,
            until: Until::Idle(IDLE),
            ledger: Some(ledger.clone()),
            ..FilterConfig::new(address)
        };
        let config_of = |part: &Part| ReadoutConfig {
            events: Some(part.events),
            writers: WRITERS,
            rate: Some(part.rate),
            ledger: Some(ledger.clone()),
            deadline: Some(PUT_DEADLINE),
            ..ReadoutConfig::new(address, vec![part.input.clone()])
        };
        let readout_configs: Vec<ReadoutConfig> = plan.parts.iter().map(config_of).collect();
        let (readout_stop, readout_progress) = (Arc::new(AtomicBool::new(false)), Arc::new(ReadoutProgress::default()));
        let waits = has_a_half_way && plan.events_expected < FEW_EVENTS;
        let filter_may_start = Arc::new(AtomicBool::new(!waits));
        let (filter_control, filter_progress) = (Arc::<FilterControl>::default(), Arc::<FilterProgress>::default());
        let recorder_may_start = Arc::new(AtomicBool::new(!has_a_half_way));
        let recorder_control = Arc::<RecorderControl>::default();
        let recorder = {
            let (control, may_start) = (Arc::clone(&recorder_control), Arc::clone(&recorder_may_start));
            let (address, out, journal) = (address.to_owned(), place.out(), place.scratch().join("record.sqlite"));
            Worker::start("demo-recorder", move || {
                wait_for(&may_start);
                record(&address, &out, &journal, &control)
            })?
        };
        let filter = {
            let (control, progress) = (Arc::clone(&filter_control), Arc::clone(&filter_progress));
            let may_start = Arc::clone(&filter_may_start);
            Worker::start("demo-filter", move || {
                wait_for(&may_start);
                filter::run(&filter_config, &control, &progress)
            })?
        };
        let start = Instant::now();
        let readout = {
            let (stop, progress) = (Arc::clone(&readout_stop), Arc::clone(&readout_progress));
            Worker::start("demo-readout", move || read_out(&readout_configs, &stop, &progress))?
        };
        Ok(Workers {
            start,
            acknowledged: Cell::new(0),
            ledger,
            choice,
            readout,
            readout_stop,
            readout_progress,
            filter,
            filter_may_start,
            filter_control,
            filter_progress,
            recorder,
            recorder_may_start,
            recorder_control,
        })
    }

    fn let_all_start(&self) {
        self.filter_may_start.store(true, Relaxed);
        self.recorder_may_start.store(true, Relaxed);
    }

    fn take_filter(&mut self) -> Result<(), Failure> {
        match self.filter.take() {
            // Counted, and told by the ledger.
            Ok(()) | Err(FilterError::Damaged { .. }) => Ok(()),
            Err(error) => Err(crate::filter::failure(&error)),
        }
    }

    fn take_recorder(&mut self) -> Result<(), Failure> {
        self.recorder.take()
    }

    /// About how many events are acknowledged: as many of those begun as of their fragments, and those that are decided. It never
    /// becomes less.
    fn events_acknowledged(&self) -> u64 {
        let progress = &self.readout_progress;
        let written = progress.fragments_written.load(Relaxed).max(1);
        let acknowledged = progress.fragments_acknowledged.load(Relaxed).min(written);
        let events = u128::from(progress.events_started.load(Relaxed));
        let about = (events * u128::from(acknowledged) / u128::from(written)) as u64;
        self.acknowledged.set(about.max(self.events_done()).max(self.acknowledged.get()));
        self.acknowledged.get()
    }

    fn events_done(&self) -> u64 {
        self.filter_progress.events_built.load(Relaxed)
    }

    fn words(&self, expected: u64, drive: &str) -> String {
        let shipped = self.recorder_control.counts();
        let bytes = self.readout_progress.bytes_written.load(Relaxed) as f64;
        format!(
            "{} of {} events in ({}/s), {} decided, {} shipped in {} files{drive}",
            human_count(self.events_acknowledged()),
            human_count(expected),
            human_bytes((bytes / self.start.elapsed().as_secs_f64().max(0.001)) as u64),
            human_count(self.events_done()),
            human_count(shipped.released_events),
            shipped.released
        )
    }

    /// Asks all threads to end, and does not wait for ever.
    fn abandon(&mut self) {
        self.readout_stop.store(true, Relaxed);
        self.filter_control.stop();
        self.recorder_control.stop();
        self.let_all_start();
        let start = Instant::now();
        while start.elapsed() < FAREWELL {
            if self.readout.is_finished() && self.filter.is_finished() && self.recorder.is_finished() {
                break;
            }
            std::thread::sleep(LOOK);
        }
    }

    fn into_run(self, readout_failure: Option<Failure>) -> Run {
        Run {
            start: self.start,
            ledger: self.ledger,
            readout: self.readout_progress,
            filter: self.filter_progress,
            recorder: self.recorder_control.counts(),
            choice: self.choice,
            readout_failure,
        }
    }
}
