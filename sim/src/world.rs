//! One run: a store, its server, its clients, and what befalls them, all from one seed.

mod beyond;
mod crash;
mod end;
mod trouble;

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_types::{DriveNumber, Time};

use crate::calendar::Calendar;
use crate::census::Asker;
use crate::drives::Drives;
use crate::faults::{Fault, FaultCounts};
use crate::files::{self, UsesFiles};
use crate::filter::{Filter, STREAMS, ServerTime, stream};
use crate::links::Links;
use crate::mistakes::Mistake;
use crate::model::{Answers, Model};
use crate::monitor::Monitor;
use crate::network::Network;
use crate::operator::Replacing;
use crate::play::Play;
use crate::random::Random;
use crate::recorder::Recorder;
use crate::runs;
use crate::scenario::Scenario;
use crate::server::{Process, Told};
use crate::store;
use crate::subscriber::{SUBSCRIBERS_MAX, Subscriber};
use crate::trace::Trace;
use crate::writer::Writer;
use crash::CrashWhen;
use end::Whole;

/// A run that has not come to its end after so long goes nowhere.
const TIME_MAX: Time = Time(300_000_000_000);
/// A drive that refuses a write is no member any more after so long.
const OUT_AFTER: Duration = Duration::from_millis(1200);
/// So long after the last event was written things go on going wrong at the most.
const TROUBLE_AFTER: Duration = Duration::from_secs(5);

/// As many record, each some of the streams.
const RECORDERS: usize = 3;

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// What clients asked and were answered.
    pub answers: Answers,
    /// What went wrong.
    pub faults: FaultCounts,
    /// Operations on drives.
    pub media_operations: u64,
    /// Processes that served.
    pub starts: u64,
    /// Virtual time in seconds.
    pub seconds: u64,
    /// How often a lane began to slow nobody, monitors, movers too, filters too.
    pub pressed: [u64; 4],
    /// Of everything that happened.
    pub trace: u64,
}

impl Totals {
    /// Adds another run's; the trace is mixed in.
    pub fn add(&mut self, other: &Totals) {
        self.answers.add(&other.answers);
        self.faults.add(&other.faults);
        self.media_operations += other.media_operations;
        self.starts += other.starts;
        self.seconds += other.seconds;
        self.pressed.iter_mut().zip(other.pressed).for_each(|(sum, more)| *sum += more);
        self.trace = self.trace.rotate_left(1) ^ other.trace;
    }
}

pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) random: Random,
    pub(crate) now: Time,
    pub(crate) trace: Trace,
    pub(crate) drives: Drives,
    network: Network,
    pub(crate) process: Option<Process>,
    processes: u64,
    start_at: Time,
    /// Drives that the next start does not find.
    away: BTreeSet<DriveNumber>,
    model: Model,
    pub(crate) counts: FaultCounts,
    pressed: [u64; 4],
    writers: Vec<Writer>,
    filters: Vec<Filter>,
    recorders: Vec<Recorder>,
    monitor: Monitor,
    file_clients: Vec<Box<dyn UsesFiles>>,
    subscribers: Vec<Subscriber>,
    next_crash: Option<Time>,
    next_fault: Option<Time>,
    /// The server was fenced, and ends then.
    fenced_end: Option<Time>,
    crash_when: CrashWhen,
    /// It is meant for a start.
    crash_hits_start: bool,
    /// Drives that had, at the last crash, what others had not yet, and no start has served since.
    ahead: BTreeSet<DriveNumber>,
    /// When the last event was handed to the writers.
    written_at: Option<Time>,
    filters_rest_until: Time,
    jumped_at: Time,
    /// Nothing goes wrong any more since then, and full protection is waited for: nobody ends anything meanwhile.
    mending_since: Option<Time>,
    /// That the store was whole after the last fault.
    whole: Option<Whole>,
    /// The status of all lanes is looked at next then.
    status_due: Time,
    /// Drives that were put in because the store said that it lacks space.
    enlarged: u8,
    /// When the last of them was.
    enlarged_at: Option<Time>,
    /// Who is a member, and since when.
    pub(crate) members: (BTreeSet<DriveNumber>, Time),
    /// The version of that list.
    membership: u64,
    calm: bool,
    pub(crate) replacing: Option<Replacing>,
    /// One more drive that was put in.
    pub(crate) spare: Option<DriveNumber>,
    /// Whoever asks after everything when the worst has come; nobody else asks then.
    asker: Option<Asker>,
    /// Why nothing can be written any more.
    failed: Option<String>,
}

impl World {
    pub(crate) fn new(play: &Play, told: bool, mistake: Option<Mistake>) -> World {
        let mut random = Random::new(play.seed);
        let mut scenario = Scenario::of(&mut random);
        // What the second mode chooses moves nothing of what the first one does.
        scenario.leave_out(play, &mut Random::new(!play.seed));
        let now = Time(0);
        let victims = usize::from(scenario.shape.parity);
        let mut drives =
            Drives::new(scenario.shape.drives, scenario.drive_bytes, victims, &scenario.faults, random.fork());
        if mistake == Some(Mistake::SyncLeftOut) {
            drives.leave_sync_out();
        }
        if scenario.beyond_after_events.is_some() {
            drives.keep_what_is_written();
        }
        store::make(&mut drives, &scenario);
        let network = Network::new(&scenario.faults, random.fork());
        let writers = (0..scenario.writers).map(|n| Writer::new(n, &scenario, random.fork(), now)).collect();
        let filters = (0..scenario.filters).map(|n| Filter::new(n, &scenario, random.fork(), now)).collect();
        let recorders = STREAMS
            .chunks(STREAMS.len().div_ceil(RECORDERS))
            .map(|names| Recorder::new(names.iter().map(|name| stream(name)).collect(), &scenario, random.fork(), now))
            .collect();
        let monitor = Monitor::new(&scenario, random.fork(), now);
        let mut file_clients = files::clients(play.seed, &scenario, now);
        file_clients.extend(runs::clients(play.seed, &scenario, now));
        // Of its own stream, too.
        let mut of_subscribers = Random::new(play.seed.rotate_left(41));
        let subscribers = if scenario.subscribers { of_subscribers.within(1..SUBSCRIBERS_MAX + 1) } else { 0 };
        let subscribers = (0..subscribers).map(|n| Subscriber::new(n, &scenario, of_subscribers.fork(), now)).collect();
        let mut world = World {
            random,
            now,
            trace: Trace::new(told),
            drives,
            network,
            process: None,
            processes: 0,
            start_at: now,
            away: BTreeSet::new(),
            // Of its own stream: what it shows shifts nothing else.
            model: Model::new(told, Calendar::new(Random::new(play.seed.rotate_left(32)))),
            counts: FaultCounts::default(),
            pressed: [0; 4],
            writers,
            filters,
            recorders,
            monitor,
            file_clients,
            subscribers,
            next_crash: None,
            next_fault: None,
            fenced_end: None,
            crash_when: CrashWhen::AtOnce,
            crash_hits_start: false,
            ahead: BTreeSet::new(),
            written_at: None,
            filters_rest_until: now,
            jumped_at: now,
            mending_since: None,
            whole: None,
            status_due: now,
            enlarged: 0,
            enlarged_at: None,
            members: ((0..scenario.shape.drives).map(DriveNumber).collect(), now),
            membership: 0,
            calm: false,
            replacing: None,
            spare: None,
            asker: None,
            failed: None,
            scenario,
        };
        world.plan_crash();
        world.plan_fault();
        world
    }

    pub(crate) fn run(mut self) -> Totals {
        self.trace.note(self.now, &[], || "begins".to_owned());
        while !self.is_over() {
            if self.worst_is_due() {
                return self.beyond();
            }
            self.step();
            assert!(self.now < TIME_MAX, "it does not come to an end: {}", self.where_it_is());
        }
        self.end()
    }

    fn where_it_is(&self) -> String {
        let writing = self.writers.iter().filter(|writer| !writer.is_done()).count();
        let status = self.process.as_ref().map(Process::status);
        let files = self.file_clients.iter().map(|client| client.where_it_is()).collect::<Vec<_>>().join("; ");
        let unfinished = self.model.unfinished();
        format!("{writing} writers write, {unfinished} events are not over, files: {files}, lanes: {status:?}")
    }

    fn is_over(&self) -> bool {
        self.calm
            && self.mending_since.is_none()
            && self.writers.iter().all(Writer::is_done)
            && self.file_clients.iter().all(|client| client.is_done())
            && self.model.unfinished() == 0
    }

    // ---- time ----

    fn step(&mut self) {
        self.advance();
        self.befall();
        let mut done = Vec::new();
        self.drives.take_due(self.now, &mut done);
        for (queue, drive, completion) in done {
            let numbers = [1, completion.id.0, u64::from(drive.0), u64::from(completion.result.is_ok())];
            self.trace.note(self.now, &numbers, || format!("drive {drive} {queue:?} {completion:?}"));
            self.process.as_mut().expect("operations end with their process").take_completion(queue, completion);
        }
        self.serve();
        self.go_on_replacing();
        if let Some(since) = self.mending_since {
            self.await_protection(since);
        } else {
            self.assert_stays_whole();
        }
        self.clients();
    }

    /// The next moment at which anything may happen.
    fn advance(&mut self) {
        let process = match &self.process {
            Some(process) => process.next_wakeup(self.now),
            None => Some(self.start_at),
        };
        let at_last = self.asker.as_ref().map(Asker::next_at);
        let clients = [self.monitor.next_at()]
            .into_iter()
            .chain(self.writers.iter().map(Writer::next_at))
            .chain(self.filters.iter().map(|filter| self.when_filters_act(filter.next_at())))
            .chain(self.recorders.iter().map(|recorder| recorder.next_at().filter(|_| self.mending_since.is_none())));
        let files = self.file_clients.iter().map(|client| client.next_at().filter(|_| self.mending_since.is_none()));
        let clients = clients.chain(files).chain(self.subscribers.iter().map(Subscriber::next_at));
        let world = [
            self.crash_comes_at(),
            self.next_fault,
            self.fenced_end,
            self.drives.next_due(),
            self.network.next_due(self.now),
            process,
        ];
        let next = match at_last {
            Some(asker) => world.into_iter().chain([asker]).flatten().min(),
            None => world.into_iter().chain(clients).flatten().min(),
        };
        let next = next.unwrap_or(self.now + Duration::from_millis(1));
        // Never twice at one moment: what waits for nothing else waits for that.
        self.now = next.max(self.now + Duration::from_micros(1));
    }

    fn when_filters_act(&self, at: Option<Time>) -> Option<Time> {
        if self.mending_since.is_some() {
            return None;
        }
        if self.calm { at } else { at.map(|at| at.max(self.filters_rest_until)) }
    }

    fn serve(&mut self) {
        let Some(process) = &mut self.process else {
            if self.now >= self.start_at {
                self.start();
            }
            return;
        };
        let wall = self.model.calendar.at(self.now);
        let all_told = process.turn(self.now, wall, &mut self.drives, &mut self.network, &self.scenario);
        // What a fenced server thinks of its drives is nobody's business: it ends.
        let is_fenced = self.drives.is_fenced();
        for told in all_told.into_iter().filter(|told| !is_fenced || matches!(told, Told::Pressed { .. })) {
            match told {
                Told::DriveFailed { drive, reason } => {
                    self.trace.note(self.now, &[2, u64::from(drive.0)], || format!("drive {drive} failed: {reason}"));
                    let is_sound = !self.drives.is_victim(drive) && !self.drives.is_dead(drive);
                    let may = !is_sound || self.scenario.beyond_after_events.is_some() && self.calm;
                    assert!(may, "drive {drive} is sound and was taken out: {reason}");
                }
                Told::Pressed { step } => self.pressed[step as usize] += 1,
                Told::Failed { reason } => {
                    let may = self.scenario.beyond_after_events.is_some() && self.calm;
                    assert!(may, "nothing can be written any more: {reason}");
                    self.failed = Some(reason);
                }
            }
        }
        if let Some(process) = &self.process {
            if self.failed.is_none()
                && let Some(then) = self.now.0.checked_sub(OUT_AFTER.as_nanos() as u64)
            {
                for drive in self.drives.refused_before(Time(then)) {
                    assert!(!process.is_member(drive), "drive {drive} refuses writes, and is a member still");
                }
            }
            if process.membership() != self.membership {
                self.membership = process.membership();
                let members = process.members();
                if members != self.members.0 {
                    self.members = (members, self.now);
                }
            }
        }
        if let Some(whole) = self.process.as_ref().and_then(Process::has_stopped) {
            self.trace.note(self.now, &[3, u64::from(whole)], || format!("stopped, whole: {whole}"));
            self.counts.meet(Fault::Stop);
            self.end_process();
        }
    }

    fn clients(&mut self) {
        let up = self.process.is_some();
        let server = ServerTime {
            process: up.then_some(self.processes),
            clock: self.process.as_ref().map_or(self.now, |process| process.clock(self.now)),
        };
        let mut drive = |links: &mut Links| links.drive(self.now, &mut self.network, up);
        if let Some(asker) = &mut self.asker {
            drive(asker.links());
            asker.act(self.now);
            self.trace.mix(asker.answered.fragments.len() as u64);
            return;
        }
        self.writers.iter_mut().for_each(|writer| drive(writer.links()));
        self.filters.iter_mut().for_each(|filter| drive(filter.links()));
        self.recorders.iter_mut().for_each(|recorder| drive(recorder.links()));
        drive(self.monitor.links());
        self.file_clients.iter_mut().for_each(|client| drive(client.links()));
        self.subscribers.iter_mut().for_each(|subscriber| drive(subscriber.links()));
        for writer in &mut self.writers {
            writer.act(self.now, &mut self.model, &mut self.counts);
        }
        if self.mending_since.is_none() && (self.calm || self.now >= self.filters_rest_until) {
            for filter in &mut self.filters {
                filter.act(self.now, server, &mut self.model, &mut self.counts);
            }
        }
        for recorder in self.recorders.iter_mut().filter(|_| self.mending_since.is_none()) {
            recorder.act(self.now, &mut self.model, &mut self.counts);
        }
        for client in self.file_clients.iter_mut().filter(|_| self.mending_since.is_none()) {
            if self.calm {
                client.end();
            }
            client.act(self.now);
        }
        for subscriber in &mut self.subscribers {
            subscriber.act(self.now, &mut self.model);
        }
        if self.file_clients.iter().any(|client| client.wants_crash()) {
            self.crash_soon(6);
        }
        let newest = self.writers.iter().map(Writer::next_event).max().unwrap_or(0);
        self.monitor.act(self.now, newest, &mut self.model, &mut self.counts);
        self.trace.mix(self.model.answers.operations());
        self.model.answers.files = self.file_clients.iter().map(|client| client.operations()).sum();
        if newest == self.scenario.events && self.written_at.is_none() {
            self.written_at = Some(self.now);
        }
        let late = self.written_at.is_some_and(|at| self.now >= at + TROUBLE_AFTER);
        if !self.calm && (late || self.now >= self.scenario.trouble_until) {
            self.calm_down();
        }
    }

    /// From now on nothing goes wrong.
    fn calm_down(&mut self) {
        self.trace.note(self.now, &[5], || "nothing goes wrong any more".to_owned());
        self.calm = true;
        (self.next_crash, self.next_fault) = (None, None);
        self.drives.calm();
        self.network.calm();
        self.monitor.calm();
        self.filters.iter_mut().for_each(Filter::calm);
        self.recorders.iter_mut().for_each(Recorder::calm);
        self.away.clear();
        self.mending_since = Some(self.now);
    }
}
