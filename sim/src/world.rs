//! One run: a store, its server, its clients, and what befalls them, all from one seed.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_engine::OpenError;
use forebay_format::DriveState;
use forebay_types::{DriveNumber, Time};

use crate::autopsy::{self, Promised};
use crate::drives::Drives;
use crate::faults::{Fault, FaultCounts};
use crate::filter::{Filter, STREAMS, ServerTime, stream};
use crate::links::Links;
use crate::mistakes::Mistake;
use crate::model::{Answers, Model};
use crate::monitor::Monitor;
use crate::network::Network;
use crate::operator::Replacing;
use crate::random::Random;
use crate::recorder::Recorder;
use crate::scenario::Scenario;
use crate::server::{Process, Told, newest_superblock};
use crate::store;
use crate::trace::Trace;
use crate::writer::Writer;

/// A run that has not come to its end after so long goes nowhere.
const TIME_MAX: Time = Time(900_000_000_000);
/// After so long nothing goes wrong any more, however little was written: where everything goes wrong all the time nobody comes far.
const TROUBLE_MAX: Time = Time(90_000_000_000);
/// A drive that refuses a write is no member any more after so long.
const OUT_AFTER: Duration = Duration::from_millis(300);
/// A crash waits so long for a write that is on its way.
const CRASH_WAITS: Duration = Duration::from_millis(50);
/// So long after the last event was written things go on going wrong at the most.
const TROUBLE_AFTER: Duration = Duration::from_secs(5);

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
    writers: Vec<Writer>,
    filters: Vec<Filter>,
    recorders: Vec<Recorder>,
    monitor: Monitor,
    next_crash: Option<Time>,
    next_fault: Option<Time>,
    crash_at_once: bool,
    /// When the last event was handed to the writers.
    written_at: Option<Time>,
    filters_rest_until: Time,
    /// Who is a member, and since when.
    pub(crate) members: (BTreeSet<DriveNumber>, Time),
    /// The version of that list.
    membership: u64,
    calm: bool,
    pub(crate) replacing: Option<Replacing>,
}

impl World {
    pub(crate) fn new(seed: u64, told: bool, mistake: Option<Mistake>) -> World {
        let mut random = Random::new(seed);
        let scenario = Scenario::of(&mut random);
        let now = Time(0);
        let victims = usize::from(scenario.shape.parity);
        let mut drives =
            Drives::new(scenario.shape.drives, scenario.drive_bytes, victims, &scenario.faults, random.fork());
        if mistake == Some(Mistake::SyncLeftOut) {
            drives.leave_sync_out();
        }
        store::make(&mut drives, &scenario);
        let network = Network::new(scenario.knows(Fault::Cut), scenario.knows(Fault::LateBytes), random.fork());
        let writers = (0..scenario.writers).map(|n| Writer::new(n, &scenario, random.fork(), now)).collect();
        let filters = (0..scenario.filters).map(|n| Filter::new(n, &scenario, random.fork(), now)).collect();
        let recorders = STREAMS.iter().map(|name| Recorder::new(stream(name), &scenario, random.fork(), now)).collect();
        let monitor = Monitor::new(&scenario, random.fork(), now);
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
            model: Model::new(told),
            counts: FaultCounts::default(),
            writers,
            filters,
            recorders,
            monitor,
            next_crash: None,
            next_fault: None,
            crash_at_once: false,
            written_at: None,
            filters_rest_until: now,
            members: ((0..scenario.shape.drives).map(DriveNumber).collect(), now),
            membership: 0,
            calm: false,
            replacing: None,
            scenario,
        };
        world.plan_crash();
        world.plan_fault();
        world
    }

    pub(crate) fn run(mut self) -> Totals {
        self.trace.note(self.now, &[], || "begins".to_owned());
        while !self.is_over() {
            self.step();
            assert!(self.now < TIME_MAX, "it does not come to an end: {}", self.where_it_is());
        }
        self.end()
    }

    fn where_it_is(&self) -> String {
        let writing = self.writers.iter().filter(|writer| !writer.is_done()).count();
        let status = self.process.as_ref().map(Process::status);
        format!("{writing} writers write, {} events are not over, lanes: {status:?}", self.model.unfinished())
    }

    fn is_over(&self) -> bool {
        self.calm && self.writers.iter().all(Writer::is_done) && self.model.unfinished() == 0
    }

    fn plan_crash(&mut self) {
        let crashes = [Fault::Crash, Fault::CrashInRecovery, Fault::Stop].iter().any(|f| self.scenario.knows(*f));
        let millis = 1..self.scenario.crash_millis * 2;
        self.next_crash = crashes.then(|| self.now + self.random.millis(millis));
        self.crash_at_once = self.random.per_mille(300);
    }

    fn plan_fault(&mut self) {
        let millis = 1..self.scenario.fault_millis * 2;
        self.next_fault = Some(self.now + self.random.millis(millis));
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
        self.clients();
    }

    /// The next moment at which anything may happen.
    fn advance(&mut self) {
        let process = match &self.process {
            Some(process) => process.next_wakeup(self.now),
            None => Some(self.start_at),
        };
        let clients = [self.monitor.next_at()]
            .into_iter()
            .chain(self.writers.iter().map(Writer::next_at))
            .chain(self.filters.iter().map(|filter| self.when_filters_act(filter.next_at())))
            .chain(self.recorders.iter().map(Recorder::next_at));
        let world =
            [self.next_crash, self.next_fault, self.drives.next_due(), self.network.next_due(self.now), process];
        let next = world.into_iter().chain(clients).flatten().min().expect("clients always have something to do");
        // Never twice at one moment: what waits for nothing else waits for that.
        self.now = next.max(self.now + Duration::from_micros(1));
    }

    fn when_filters_act(&self, at: Option<Time>) -> Option<Time> {
        if self.calm { at } else { at.map(|at| at.max(self.filters_rest_until)) }
    }

    fn serve(&mut self) {
        let Some(process) = &mut self.process else {
            if self.now >= self.start_at {
                self.start();
            }
            return;
        };
        for told in process.turn(self.now, &mut self.drives, &mut self.network, &self.scenario) {
            match told {
                Told::DriveFailed { drive, reason } => {
                    self.trace.note(self.now, &[2, u64::from(drive.0)], || format!("drive {drive} failed: {reason}"));
                    assert!(self.drives.is_victim(drive), "drive {drive} is sound and was taken out: {reason}");
                }
                Told::Failed { reason } => panic!("nothing can be written any more: {reason}"),
            }
        }
        if let Some(process) = &self.process {
            if let Some(then) = self.now.0.checked_sub(OUT_AFTER.as_nanos() as u64) {
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
            process: self.processes,
            clock: self.process.as_ref().map_or(self.now, |process| process.clock(self.now)),
        };
        let mut drive = |links: &mut Links| links.drive(self.now, &mut self.network, up);
        self.writers.iter_mut().for_each(|writer| drive(writer.links()));
        self.filters.iter_mut().for_each(|filter| drive(filter.links()));
        self.recorders.iter_mut().for_each(|recorder| drive(recorder.links()));
        drive(self.monitor.links());
        for writer in &mut self.writers {
            writer.act(self.now, &mut self.model, &mut self.counts);
        }
        if self.calm || self.now >= self.filters_rest_until {
            for filter in &mut self.filters {
                filter.act(self.now, server, &mut self.model, &mut self.counts);
            }
        }
        for recorder in &mut self.recorders {
            recorder.act(self.now, &mut self.model);
        }
        let newest = self.writers.iter().map(Writer::next_event).max().unwrap_or(0);
        self.monitor.act(self.now, newest, &mut self.model, &mut self.counts);
        self.trace.mix(self.model.answers.operations());
        if newest == self.scenario.events && self.written_at.is_none() {
            self.written_at = Some(self.now);
        }
        let late = self.written_at.is_some_and(|at| self.now >= at + TROUBLE_AFTER);
        if !self.calm && (late || self.now >= TROUBLE_MAX) {
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
        self.away.clear();
    }

    // ---- what befalls ----

    fn befall(&mut self) {
        // Most crashes come while something is being written, if something is soon.
        let awaited =
            |at: Time| !self.crash_at_once && !self.drives.writes_on_their_way() && self.now < at + CRASH_WAITS;
        if self.next_crash.is_some_and(|at| at <= self.now && !awaited(at)) {
            self.end_somehow();
            self.plan_crash();
        }
        if self.next_fault.is_some_and(|at| at <= self.now) {
            self.fault();
            self.plan_fault();
        }
    }

    fn end_somehow(&mut self) {
        let Some(process) = &mut self.process else { return };
        let serving = process.is_serving();
        if serving && self.scenario.knows(Fault::Stop) && self.random.per_mille(200) {
            self.counts.fire(Fault::Stop);
            process.stop();
            return;
        }
        let fault = if serving { Fault::Crash } else { Fault::CrashInRecovery };
        if self.scenario.knows(fault) {
            self.counts.fire_and_meet(fault);
            self.trace.note(self.now, &[6], || format!("{fault}"));
            self.end_process();
        }
    }

    fn end_process(&mut self) {
        self.process = None;
        self.drives.crash();
        self.look_at_what_is_left();
        self.network.server_is_gone(self.now);
        self.start_at = self.now + self.random.millis(1..400);
        self.choose_who_is_away();
        // A start is often hit itself.
        if self.scenario.knows(Fault::CrashInRecovery) && !self.calm && self.random.per_mille(300) {
            self.next_crash = Some(self.start_at + self.random.micros(50..8000));
        }
    }

    /// What was promised is there without any drives that may be gone.
    fn look_at_what_is_left(&mut self) {
        let parity = usize::from(self.scenario.shape.parity);
        // Whatever was acknowledged: with all drives that something happened to, and others, as many as there are parities.
        let gone = self.some_more(self.drives.spoiled(), parity);
        let promised = Promised {
            fragments: self.model.must_be_there(Time(0)),
            over: self.model.must_be_over(),
            accepted: self.model.must_be_accepted(),
            everything: true,
        };
        autopsy::look(&mut self.drives, &self.scenario, &gone, &promised);
        // What was acknowledged since the last loss stands as many losses more.
        let (members, since) = self.members.clone();
        let spoiled: BTreeSet<DriveNumber> = self.drives.spoiled().intersection(&members).copied().collect();
        let out = self.drives.numbers().into_iter().filter(|drive| !members.contains(drive));
        let gone = self.some_more(spoiled, parity).into_iter().chain(out).collect();
        let fragments = self.model.must_be_there(since);
        let promised = Promised { fragments, over: Vec::new(), accepted: Vec::new(), everything: false };
        autopsy::look(&mut self.drives, &self.scenario, &gone, &promised);
    }

    /// These drives and, of the members, some more, `count` in all.
    fn some_more(&mut self, mut drives: BTreeSet<DriveNumber>, count: usize) -> BTreeSet<DriveNumber> {
        let members: Vec<DriveNumber> =
            self.members.0.iter().copied().filter(|drive| !drives.contains(drive)).collect();
        let mut left = members;
        while drives.len() < count && !left.is_empty() {
            let at = self.random.below(left.len() as u64) as usize;
            drives.insert(left.swap_remove(at));
        }
        drives
    }

    fn choose_who_is_away(&mut self) {
        self.away.clear();
        if self.calm {
            return;
        }
        for number in self.drives.numbers() {
            if !self.drives.is_victim(number) {
                continue;
            }
            if self.scenario.knows(Fault::DriveReturns) && self.random.per_mille(300) {
                self.counts.fire_and_meet(Fault::DriveReturns);
                self.drives.spoil(number);
                self.away.insert(number);
            } else if self.scenario.knows(Fault::EmptyDrive) && self.random.per_mille(20) {
                self.counts.fire_and_meet(Fault::EmptyDrive);
                self.drives.empty(number);
            }
        }
    }

    fn fault(&mut self) {
        match self.random.below(4) {
            0 if self.scenario.knows(Fault::DriveDies) && self.random.per_mille(400) => {
                if let Some(victim) = self.drives.some_victim()
                    && !self.drives.is_dead(victim)
                {
                    self.trace.note(self.now, &[7, u64::from(victim.0)], || format!("drive {victim} dies"));
                    self.drives.kill(victim);
                }
            }
            1 if self.scenario.knows(Fault::ClockJump) => {
                if let Some(process) = &mut self.process {
                    self.counts.fire_and_meet(Fault::ClockJump);
                    let by = self.random.millis(100..20_000);
                    self.trace.note(self.now, &[8], || format!("the server's clock jumps by {by:?}"));
                    process.jump(by);
                }
            }
            2 if self.scenario.knows(Fault::FullStore) => {
                // Nobody decides: what is written stays.
                self.counts.fire(Fault::FullStore);
                self.filters_rest_until = self.now + self.random.millis(100..4000);
            }
            3 => self.operate(),
            _ => {}
        }
    }

    fn start(&mut self) {
        self.processes += 1;
        let nonce = self.random.next();
        for stranger in [Fault::ForeignDrive, Fault::Clone, Fault::TooFewDrives] {
            let can = stranger != Fault::TooFewDrives || self.away.is_empty() && self.all_are_members();
            if self.scenario.knows(stranger) && can && !self.calm && self.random.per_mille(100) {
                self.counts.fire(stranger);
                self.refuse(stranger, nonce);
            }
        }
        let process = Process::start(&mut self.drives, &self.scenario, &self.away, None, nonce);
        let process = process.unwrap_or_else(|error| panic!("the store does not start: {error}"));
        self.trace.note(self.now, &[9, self.processes], || format!("start {} without {:?}", self.processes, self.away));
        self.process = Some(process);
    }

    /// Nobody was taken out, so that half of the drives are half of the members.
    fn all_are_members(&mut self) -> bool {
        let numbers = self.drives.numbers();
        numbers.len() == usize::from(self.scenario.shape.drives)
            && numbers.into_iter().all(|drive| {
                let superblock = newest_superblock(&mut self.drives, drive);
                superblock.is_some_and(|s| s.drives.iter().all(|entry| entry.state == DriveState::Member))
            })
    }

    /// With a drive among them that does not belong there nothing starts.
    fn refuse(&mut self, stranger: Fault, nonce: u64) {
        let mut without = self.away.clone();
        if stranger == Fault::TooFewDrives {
            // One more is away than there may be.
            let drives = self.drives.numbers();
            let first = self.random.below(drives.len() as u64) as usize;
            let gone = (0..drives.len()).map(|n| drives[(first + n) % drives.len()]);
            without = gone.take(drives.len() / 2 + drives.len() % 2).collect();
        }
        let refused = Process::start(&mut self.drives, &self.scenario, &without, Some(stranger), nonce).err();
        let right = match refused {
            Some(OpenError::ForeignDrive { .. }) => stranger == Fault::ForeignDrive,
            Some(OpenError::DuplicateDrive { .. }) => stranger == Fault::Clone,
            Some(OpenError::TooFewMembers { .. } | OpenError::NoDrives) => stranger == Fault::TooFewDrives,
            _ => false,
        };
        assert!(right, "{stranger}: {refused:?}");
        self.counts.meet(stranger);
    }

    // ---- the end ----

    fn end(mut self) -> Totals {
        self.model.calm = true;
        self.wait_for_space();
        self.model.assert_all_is_over();
        let status = self.process.as_ref().expect("it serves").status();
        for lane in &status {
            let left = (lane.events, lane.fragments, lane.flushes_lost, lane.segments_unreadable);
            assert_eq!(left, (0, 0, 0, 0), "something is left: {lane:?}");
        }
        let process = self.process.as_ref().expect("it serves");
        for drive in process.members() {
            assert!(!self.drives.is_dead(drive), "drive {drive} is dead, and a member still");
        }
        let mut faults = self.counts;
        faults.add(&self.drives.counts);
        faults.add(&self.network.counts);
        Totals {
            answers: self.model.answers,
            faults,
            media_operations: self.drives.operations,
            starts: self.processes,
            seconds: self.now.0 / 1_000_000_000,
            trace: self.trace.hash(),
        }
    }

    /// All space comes back, if need be after a stop in order.
    fn wait_for_space(&mut self) {
        let is_back = |process: &Process| {
            let status = process.status();
            !status.is_empty()
                && status.iter().all(|lane| lane.slots_free == lane.slots_total && lane.state == "serving")
        };
        for attempt in 0..3 {
            let until = self.now + Duration::from_secs(20);
            while self.now < until {
                if self.process.as_ref().is_some_and(is_back) {
                    return;
                }
                self.step();
            }
            if attempt < 2
                && let Some(process) = &mut self.process
            {
                process.stop();
            }
        }
        panic!("space does not come back: {:?}", self.process.as_ref().map(Process::status));
    }
}
