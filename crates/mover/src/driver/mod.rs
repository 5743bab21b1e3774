//! Drives the machine: writes its records to the journal, starts its jobs in threads, and tells it how they ended. It decides nothing.
#![expect(
    clippy::disallowed_methods,
    reason = "this module has the clock and the threads that the machine does without"
)]

mod job;
mod lookout;
mod routes;
mod space;
mod tell;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use forebay_types::{Time, WallTime};

use crate::audit::AuditLog;
use crate::custody::{Answer, Consignment, Failure};
use crate::endpoint::{Asked, Destination, Door, HasSpace, Origin, Registry};
use crate::journal::{Action, Journal, JournalError};
use crate::machine::{
    DestinationConfig, DestinationIndex, Done, End, Job, JobId, Kept, Mover, MoverConfig, Record, RouteConfig,
    RouteIndex, Task,
};

use job::{Tools, Watch};
pub use lookout::Lookout;
use lookout::{Looked, watch_spaces};
use space::SpaceWatch;
use tell::Failing;
pub use tell::{Progress, Transfer};

/// The driver looks at its clock so often.
const TICK: Duration = Duration::from_millis(100);

/// A route with what does its work.
pub struct Route {
    /// What the machine is told of it.
    pub config: RouteConfig,
    /// Where from.
    pub origin: Origin,
    /// Where its files are registered, if they are.
    pub registry: Option<Arc<dyn Registry>>,
    /// Where destinations can fetch its files, if they can.
    pub door: Option<Arc<dyn Door>>,
    /// The address of its source, for people.
    pub from: String,
    /// What its source lies on, where that can be told.
    pub space: Option<Arc<dyn HasSpace>>,
}

/// A destination with what does its work.
pub struct Target {
    /// What the machine is told of it.
    pub config: DestinationConfig,
    /// What does it.
    pub destination: Arc<dyn Destination>,
    /// Who says whether a file is on tape there, where that is not the destination itself.
    pub asked: Option<Arc<dyn Asked>>,
}

/// What a mover is to do.
pub struct Config {
    /// Its routes.
    pub routes: Vec<Route>,
    /// Those that come later, with nothing of them on its way yet.
    pub more_routes: Option<Receiver<Route>>,
    /// Their destinations.
    pub targets: Vec<Target>,
    /// Files that are read or sent at once, over all routes.
    pub streams_max: usize,
    /// End when what is there now was moved, or cannot be.
    pub once: bool,
    /// With `once`: so long nothing but failures, and it is given up.
    pub patience: Duration,
    /// A job that moves nothing for so long is taken for one that hangs: nobody knows what becomes of it.
    pub stall_after: Duration,
}

/// Why a mover ends before it should.
#[derive(Debug, thiserror::Error)]
pub enum MoverError {
    /// Its journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Its audit log.
    #[error(
        "the audit log {path} could not be written: {source}. Nothing more was moved or released; make room or another place for it, then start again"
    )]
    Audit {
        /// Its path.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The journal has files on their way for a route that is not configured.
    #[error(
        "the journal {journal} has {files} files on their way by route {route}, which is not one of those that this mover was started with. Nothing was moved or \
         released. Start it with that route too, or use another journal (--journal)"
    )]
    RouteMissing {
        /// The journal.
        journal: String,
        /// The route.
        route: String,
        /// How many.
        files: usize,
    },
    /// The journal has files on their way to a destination to which their route does not lead any more.
    #[error(
        "the journal {journal} has files on their way by route {route} to {destination}, {name} for one, and the route does not lead there any more. Nothing was moved or released. \
         Start it with that destination until these are over, or use another journal (--journal): what is at the other destinations is not sent again then, but for what is merged"
    )]
    DestinationMissing {
        /// The journal.
        journal: String,
        /// The route.
        route: String,
        /// The destination.
        destination: String,
        /// One of the files.
        name: String,
    },
}

/// Tells a mover to end.
#[derive(Clone, Debug, Default)]
pub struct Control {
    stop: Arc<AtomicBool>,
    drain: Arc<AtomicBool>,
}

impl Control {
    /// What is under way is cut off, and gone on with by the next start.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Nothing more is begun; what is under way comes to its end first.
    pub fn drain(&self) {
        self.drain.store(true, Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    fn is_drained(&self) -> bool {
        self.drain.load(Relaxed)
    }
}

/// How much was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Files that were found.
    pub found: u64,
    /// Those that were proven and released.
    pub released: u64,
    /// Bytes of those.
    pub released_bytes: u64,
    /// Those that changed before they were anywhere, and are found again.
    pub withdrawn: u64,
    /// Accepted events in those that were released.
    pub released_events: u64,
    /// Fragments of accepted events that the store lost: the events are moved without them.
    pub fragments_lost: u64,
    /// Bytes that were read, sent or read back.
    pub moved_bytes: u64,
}

impl Counts {
    /// Adds what was done before.
    pub fn add(&mut self, other: &Counts) {
        self.found += other.found;
        self.released += other.released;
        self.released_bytes += other.released_bytes;
        self.withdrawn += other.withdrawn;
        self.released_events += other.released_events;
        self.fragments_lost += other.fragments_lost;
        self.moved_bytes += other.moved_bytes;
    }
}

/// A file that was not moved to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Its name.
    pub name: String,
    /// How far it is.
    pub state: &'static str,
    /// Why.
    pub words: String,
}

/// How a mover ended.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// How much was done.
    pub counts: Counts,
    /// What was released, by the names of routes.
    pub by_route: BTreeMap<String, Counts>,
    /// With `once`: whether everything was done.
    pub end: Option<End>,
    /// It ended as events are to go where no destination was made ready.
    pub wants_destinations: bool,
    /// What is left, the first few.
    pub left: Vec<Left>,
    /// How much is left.
    pub left_files: usize,
}

/// So long the journal keeps what is over; the audit log keeps it for good.
const KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// What people ask for is looked for so often.
const REQUESTS_EVERY: Duration = Duration::from_secs(1);
/// A mover that events want other destinations of runs for so long first: it is not begun anew all the time.
const BEGUN_ANEW_AFTER: Duration = Duration::from_secs(10);
/// What is left is told of so many files.
const LEFT_TOLD_MAX: usize = 20;

/// Moves until it is over.
///
/// # Errors
/// What does not let it go on. Nothing is released then that is not proven, and the next start goes on.
pub fn run(
    config: &Config,
    journal: &mut Journal,
    control: &Control,
    lookout: &mut Lookout,
    told: &dyn Fn(&Progress),
) -> Result<Outcome, MoverError> {
    let start = Instant::now();
    let machine = make(config, journal, Time(0))?;
    let (sender, receiver) = channel();
    let path = AuditLog::path_of(journal.path());
    let mut audit = open_audit(&path, journal)?;
    journal.forget_before(WallTime(wall_time().0.saturating_sub(KEPT.as_millis() as u64)))?;
    let routes: Vec<String> = config.routes.iter().map(|route| route.config.name.clone()).collect();
    lookout.begin(journal)?;
    let mut driver = Driver {
        config,
        lookout,
        journal: journal.path().to_owned(),
        looked: vec![Looked::default(); routes.len()],
        spaces: watch_spaces(config.routes.iter().map(|route| &route.space)),
        added: Vec::new(),
        by_route: BTreeMap::new(),
        machine,
        routes,
        sender,
        jobs: BTreeMap::new(),
        start,
        counts: Counts::default(),
        requests_at: Time(0),
        told_alone: BTreeSet::new(),
        scan_fails: BTreeSet::new(),
        failures_told: BTreeMap::new(),
    };
    loop {
        driver.take_routes(journal)?;
        driver.take_requests(journal, &mut audit, &path)?;
        driver.write(journal, &mut audit, &path)?;
        if control.is_stopped() {
            break;
        }
        if let Some(end) = driver.machine.end(driver.now()) {
            driver.look(true);
            return Ok(driver.outcome(Some(end)));
        }
        if driver.machine.wants_destinations() && start.elapsed() >= BEGUN_ANEW_AFTER {
            control.drain();
        }
        if control.is_drained() {
            if driver.machine.running() == 0 {
                break;
            }
        } else {
            while let Some(job) = driver.machine.next_job(driver.now()) {
                driver.begin(job, control);
            }
        }
        driver.wait(&receiver);
        driver.look_for_stalls();
        if driver.lookout.is_due() {
            driver.see_spaces();
            driver.look(false);
        }
        told(&Progress(&driver));
    }
    // What is cut off ends soon; what does not is not waited for, as after a kill.
    let until = Instant::now() + Duration::from_secs(2);
    while driver.machine.running() > 0 && Instant::now() < until {
        driver.wait(&receiver);
    }
    driver.write(journal, &mut audit, &path)?;
    driver.look(true);
    Ok(driver.outcome(None))
}

fn wall_time() -> WallTime {
    WallTime(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64)
}

fn open_audit(path: &Path, journal: &Journal) -> Result<AuditLog, MoverError> {
    let failed = |source| MoverError::Audit { path: path.display().to_string(), source };
    let mut audit = AuditLog::open(path, journal.token()).map_err(failed)?;
    // What a kill kept from it.
    audit.append(&journal.transitions_after(audit.last())?).map_err(failed)?;
    Ok(audit)
}

/// The machine, as the journal has it.
fn make(config: &Config, journal: &Journal, now: Time) -> Result<Mover, MoverError> {
    let at_work = journal.at_work()?;
    let mut missing: BTreeMap<String, usize> = BTreeMap::new();
    let mut kept = Kept { next_consignment: at_work.next, ..Kept::default() };
    let path = || journal.path().display().to_string();
    for (route, consignment) in at_work.consignments {
        let Some(index) = config.routes.iter().position(|known| known.config.name == route) else {
            *missing.entry(route).or_default() += 1;
            continue;
        };
        let destinations = &config.routes[index].config.destinations;
        let leads_to =
            |address: &str| destinations.iter().any(|(to, _)| config.targets[to.0].config.address == address);
        if let Some(delivery) = consignment.deliveries.iter().find(|delivery| !leads_to(&delivery.destination)) {
            let (destination, name) = (delivery.destination.clone(), consignment.name.to_string());
            return Err(MoverError::DestinationMissing { journal: path(), route, destination, name });
        }
        kept.consignments.push((RouteIndex(index), consignment));
    }
    for (route, run, events) in at_work.events {
        let index = config.routes.iter().position(|known| known.config.name == route);
        kept.events.extend(index.map(|index| (RouteIndex(index), run, events)));
    }
    if let Some((route, files)) = missing.pop_first() {
        return Err(MoverError::RouteMissing { journal: path(), route, files });
    }
    kept.series = at_work.series.into_iter().map(|(_, series, next)| (series, next)).collect();
    let machine = MoverConfig {
        routes: config.routes.iter().map(|route| route.config.clone()).collect(),
        destinations: config.targets.iter().map(|target| target.config.clone()).collect(),
        streams_max: config.streams_max,
        once: config.once,
        patience: config.patience,
        token: journal.token(),
    };
    Ok(Mover::new(machine, kept, now))
}

struct Driver<'a> {
    config: &'a Config,
    lookout: &'a mut Lookout,
    journal: PathBuf,
    /// By the places of routes.
    looked: Vec<Looked>,
    spaces: Vec<Option<SpaceWatch>>,
    /// Routes that came later.
    added: Vec<Route>,
    machine: Mover,
    routes: Vec<String>,
    sender: Sender<(JobId, Done)>,
    jobs: BTreeMap<JobId, (Job, Arc<Watch>)>,
    start: Instant,
    counts: Counts,
    /// What was released, by the names of routes.
    by_route: BTreeMap<String, Counts>,
    requests_at: Time,
    /// Told of already: not with every look.
    told_alone: BTreeSet<String>,
    scan_fails: BTreeSet<RouteIndex>,
    /// When it was last told where something fails.
    failures_told: BTreeMap<Failing, Time>,
}

impl Driver<'_> {
    fn now(&self) -> Time {
        Time(0) + self.start.elapsed()
    }

    fn write(&mut self, journal: &mut Journal, audit: &mut AuditLog, path: &Path) -> Result<(), MoverError> {
        let records = self.machine.take_records();
        if records.is_empty() {
            return Ok(());
        }
        let transitions = journal.write(&records, &self.routes, wall_time())?;
        audit.append(&transitions).map_err(|source| MoverError::Audit { path: path.display().to_string(), source })?;
        self.lookout.committed(&transitions);
        for transition in &transitions {
            let of = transition.destination.as_deref().unwrap_or("the source");
            match transition.after.as_str() {
                "quarantined" => tracing::warn!("{} is quarantined ({of}): {}", transition.name, transition.words),
                "released" => {
                    let released = Counts {
                        released: 1,
                        released_bytes: transition.bytes.unwrap_or(0) as u64,
                        released_events: transition.events.unwrap_or(0) as u64,
                        ..Counts::default()
                    };
                    self.counts.add(&released);
                    self.by_route.entry(transition.route.clone()).or_default().add(&released);
                }
                "withdrawn" => {
                    self.counts.withdrawn += 1;
                    tracing::warn!("{} is withdrawn: {}", transition.name, transition.words);
                }
                "renamed" => tracing::info!("{}", transition.words),
                after => tracing::debug!("{}: {after} ({of}) {}", transition.name, transition.words),
            }
        }
        for record in &records {
            if let Record::Planned { route, recipe, .. } = record {
                self.counts.found += 1;
                self.lookout.found(&self.routes[route.0], recipe.bytes());
            }
        }
        Ok(())
    }

    fn see_spaces(&mut self) {
        for (route, watch) in self.spaces.iter().enumerate() {
            if let Some(space) = watch.as_ref().and_then(SpaceWatch::last) {
                self.machine.see_space(RouteIndex(route), space.free_bytes, space.capacity_bytes);
            }
        }
    }

    /// What people asked for since the last look, which is a second ago at least.
    fn take_requests(&mut self, journal: &mut Journal, audit: &mut AuditLog, path: &Path) -> Result<(), MoverError> {
        let now = self.now();
        if self.requests_at > now {
            return Ok(());
        }
        self.requests_at = now + REQUESTS_EVERY;
        let requests = journal.requests()?;
        let Some((last, ..)) = requests.last() else { return Ok(()) };
        for (_, id, action, reason) in &requests {
            match action {
                Action::Retry => self.machine.retry(*id, now),
                Action::Hold => self.machine.hold(*id, true, reason, now),
                Action::GoOn => self.machine.hold(*id, false, reason, now),
                Action::Release => self.machine.let_go(*id, reason, now),
            }
        }
        self.write(journal, audit, path)?;
        journal.requests_done(*last).map_err(MoverError::from)
    }

    fn begin(&mut self, job: Job, control: &Control) {
        let watch = Arc::new(Watch::new(control.clone(), self.start));
        let route = self.route(job.route);
        let target = match &job.task {
            Task::Destination { destination: DestinationIndex(at), .. } => Some(&self.config.targets[*at]),
            _ => None,
        };
        let tools = Tools {
            origin: route.origin.clone(),
            registry: route.registry.clone(),
            door: route.door.clone(),
            destination: target.map(|target| Arc::clone(&target.destination)),
            asked: target.and_then(|target| target.asked.clone()),
        };
        let (id, task, sender) = (job.id, job.task.clone(), self.sender.clone());
        self.jobs.insert(id, (job, Arc::clone(&watch)));
        let done = std::thread::Builder::new().name("mover job".to_owned()).spawn(move || {
            let done = job::run(&task, &tools, watch.as_ref());
            // Whoever ends when all jobs ended is then the last one that has it, and gives it back.
            drop(tools);
            // Nobody listens any more when the mover ended.
            drop(sender.send((id, done)));
        });
        if let Err(error) = done {
            let failure = Failure::NotNow(format!("no thread could be started: {error}"));
            drop(self.sender.send((id, job::failed(&self.jobs[&id].0.task, failure))));
        }
    }

    /// Waits until a job is done, or something is due.
    fn wait(&mut self, receiver: &Receiver<(JobId, Done)>) {
        let due = self.machine.due().map_or(TICK, |due| due.since(self.now()));
        let mut next = receiver.recv_timeout(due.min(TICK));
        loop {
            match next {
                Ok((id, done)) => self.done(id, done),
                Err(RecvTimeoutError::Timeout) => return,
                Err(RecvTimeoutError::Disconnected) => unreachable!("this has a sender"),
            }
            next = receiver.recv_timeout(Duration::ZERO);
        }
    }

    fn done(&mut self, id: JobId, done: Done) {
        // One that was given up may still come to its end.
        if let Some((job, watch)) = self.jobs.remove(&id) {
            self.counts.moved_bytes += watch.bytes();
            self.count(&job, &watch, &done);
            match (&job.task, &done) {
                (_, Done::Scanned(scanned)) => {
                    self.tell_looked(job.route, scanned.as_ref().err());
                    scanned.iter().for_each(|scanned| self.tell_left_alone(job.route, scanned));
                }
                (_, Done::Listed(Err(words)) | Done::Examined(Err(words)) | Done::OfRun(Err(words))) => {
                    self.tell_looked(job.route, Some(words));
                }
                (_, Done::Listed(Ok(_))) => self.tell_looked(job.route, None),
                (_, Done::Examined(Ok(_))) => self.count_losses(),
                (Task::Destination { destination, .. }, Done::Destination(Answer::Failed(failure))) => {
                    self.tell_failure(Failing::Destination(*destination), failure);
                }
                (_, Done::Registered(Err(failure))) => self.tell_failure(Failing::Registry(job.route), failure),
                _ => {}
            }
            let of_run = matches!(done, Done::OfRun(Ok(_)));
            self.machine.done(id, done, self.now());
            if of_run {
                self.tell_refusals();
            }
        }
    }

    fn look_for_stalls(&mut self) {
        let stalled = |(_, (_, watch)): &(&JobId, &(Job, Arc<Watch>))| watch.idle() >= self.config.stall_after;
        let stalled: Vec<JobId> = self.jobs.iter().filter(stalled).map(|(id, _)| *id).collect();
        for id in stalled {
            let seconds = self.config.stall_after.as_secs();
            let failure = Failure::Unknown(format!("nothing happened for {seconds} s"));
            self.lookout.stalled();
            let done = job::failed(&self.jobs[&id].0.task, failure);
            self.jobs[&id].1.give_up();
            self.done(id, done);
        }
    }

    fn outcome(&self, end: Option<End>) -> Outcome {
        let left = || self.machine.consignments().filter(|(_, consignment)| !consignment.stage().is_over());
        let now = self.now();
        let tell = |(_, consignment): (RouteIndex, &Consignment)| {
            let (state, mut words) = consignment.standing_in_words();
            if let Some(wait) = consignment.asked_again_in(now).filter(|_| words.is_empty()) {
                words = format!("to be asked for once more in {} s (--recheck-after), then let go", wait.as_secs());
            }
            Left { name: consignment.name.to_string(), state, words }
        };
        Outcome {
            counts: self.counts,
            by_route: self.by_route.clone(),
            end,
            wants_destinations: self.machine.wants_destinations(),
            left: left().take(LEFT_TOLD_MAX).map(tell).collect(),
            left_files: left().count(),
        }
    }
}
