//! What a seed plays: its store, its clients, and which faults it knows.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_format::Geometry;
use forebay_types::{RunId, Time};

use crate::faults::Fault;
use crate::model::LARGE;
use crate::play::Play;
use crate::random::Random;

/// The distance between two events: 128 neighbours are of one lane, steps over some of them bring all lanes in.
pub(crate) const EVENT_STEP: u64 = 37;

/// After so long nothing goes wrong any more, however little was written: where everything goes wrong all the time nobody comes far.
const TROUBLE_MAX: Time = Time(90_000_000_000);

/// Drives and widths. As many drives as there are parities may be victims: all that may go wrong is within what is promised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) drives: u16,
    pub(crate) data: u8,
    pub(crate) parity: u8,
}

const SHAPES: [Shape; 6] = [
    Shape { drives: 5, data: 4, parity: 1 },
    Shape { drives: 7, data: 4, parity: 1 },
    Shape { drives: 6, data: 3, parity: 2 },
    Shape { drives: 10, data: 8, parity: 2 },
    Shape { drives: 3, data: 2, parity: 1 },
    Shape { drives: 1, data: 1, parity: 0 },
];

/// Everything that is the same throughout a run.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) shape: Shape,
    pub(crate) lanes: u16,
    pub(crate) drive_bytes: u64,
    pub(crate) geometry: Geometry,
    pub(crate) flush_bytes: usize,
    pub(crate) flush_depth: usize,
    pub(crate) flush_interval: Duration,
    pub(crate) cache_bytes: usize,
    pub(crate) drive_timeout: Duration,
    pub(crate) incomplete_after: Duration,
    pub(crate) background_percent: u8,
    pub(crate) rebuild_percent: u8,
    pub(crate) scrub_period: Duration,
    pub(crate) lease_attempts_max: u16,
    pub(crate) lease: Duration,
    pub(crate) writers: usize,
    pub(crate) filters: usize,
    pub(crate) sources_per_writer: u32,
    pub(crate) events: u64,
    /// So long writers wait at the most between two events.
    pub(crate) pace_micros: u64,
    pub(crate) faults: BTreeSet<Fault>,
    /// Clients write files, too.
    pub(crate) files: bool,
    /// Some look on, too.
    pub(crate) subscribers: bool,
    /// What happened to so many events is remembered for those who look on.
    pub(crate) told_events: usize,
    /// Clients append to files and cut them, with much of that on its way at once.
    pub(crate) appends: bool,
    /// Clients fill lanes with files.
    pub(crate) full: bool,
    /// Clients declare, close, hold and discard runs.
    pub(crate) runs: bool,
    /// Its one drive stands for pools of a cluster: flushes are whole multiples, what is free is taken away, and at times others fill the pool.
    pub(crate) pool: bool,
    /// Writes to files of so many bytes are read to where they are stored, when they have arrived.
    pub(crate) placed_bytes_min: usize,
    /// Writers are told after so long that it answers nothing.
    pub(crate) blocked_after: Option<Duration>,
    /// Until then drives do what they should.
    pub(crate) drives_fail_from: Time,
    /// Then nothing goes wrong any more.
    pub(crate) trouble_until: Time,
    /// In the second mode: after so many events the worst comes.
    pub(crate) beyond_after_events: Option<u64>,
    /// After that everything is looked at before anybody asks for anything.
    pub(crate) scrubbed_before_asked: bool,
    /// The mean time between two crashes, and between two faults of the other kinds that come by the clock.
    pub(crate) crash_millis: u64,
    pub(crate) fault_millis: u64,
}

/// A cluster is waited for however long it takes, and writers are told when that is long.
const PATIENCE: Duration = Duration::from_secs(365 * 86_400);
const BLOCKED_AFTER: Duration = Duration::from_millis(300);

impl Scenario {
    pub(crate) fn of(random: &mut Random) -> Scenario {
        let shape = *random.one_of(&SHAPES).expect("there are some");
        let lanes = random.within(1..4) as u16;
        let small = random.per_mille(400);
        let drive_bytes = if small { 6 << 20 } else { 11 << 20 };
        let geometry = Geometry {
            lanes,
            data_shards: shape.data,
            parity_shards: shape.parity,
            data_shards_min: 1,
            unit_bytes: 4096,
            slot_bytes: if random.per_mille(500) { 96 << 10 } else { 192 << 10 },
            checkpoint_bytes: 256 << 10,
            fragment_bytes_max: 60_000,
        };
        // While no drive has failed, any may be the one that a crash takes away.
        let drives_fail_from = match random.below(8) {
            0 | 1 => Time(random.within(500..20_000) * 1_000_000),
            2 => Time(u64::MAX),
            _ => Time(0),
        };
        // Each seed knows some of the faults: what one hides another shows.
        let known = random.within(200..1001);
        let of_drives = Fault::ALL.iter().copied().filter(|fault| !fault.is_of_numbers());
        let faults: BTreeSet<Fault> = of_drives.filter(|_| random.per_mille(known)).collect();
        Scenario {
            shape,
            lanes,
            drive_bytes,
            geometry,
            flush_bytes: 16 << 10,
            flush_depth: random.within(1..5) as usize,
            flush_interval: if random.per_mille(500) { Duration::ZERO } else { Duration::from_micros(300) },
            cache_bytes: if random.per_mille(500) { 0 } else { 1 << 20 },
            drive_timeout: Duration::from_secs(1),
            incomplete_after: Duration::from_millis(random.within(20..2000)),
            background_percent: random.within(5..101) as u8,
            rebuild_percent: random.within(5..101) as u8,
            scrub_period: Duration::from_millis(random.within(100..5000)),
            lease_attempts_max: 200,
            lease: Duration::from_millis(random.within(200..3000)),
            writers: random.within(1..4) as usize,
            filters: random.within(1..4) as usize,
            sources_per_writer: random.within(1..4) as u32,
            events: random.within(100..if faults.contains(&Fault::FullStore) { 500 } else { 1200 }),
            pace_micros: *random.one_of(&[1500, 8000, 30_000]).expect("there are some"),
            faults,
            files: false,
            subscribers: false,
            told_events: 64,
            appends: false,
            full: false,
            runs: false,
            pool: false,
            placed_bytes_min: usize::MAX,
            blocked_after: None,
            drives_fail_from,
            trouble_until: TROUBLE_MAX,
            beyond_after_events: None,
            scrubbed_before_asked: false,
            crash_millis: random.within(200..2500),
            fault_millis: random.within(50..1200),
        }
    }

    /// Leaves out what is not to be played.
    pub(crate) fn leave_out(&mut self, play: &Play, random: &mut Random) {
        self.files = play.files && !play.beyond;
        self.subscribers = play.subscribers && !play.beyond;
        self.appends = play.appends && !play.beyond;
        self.full = play.full && !play.beyond;
        self.runs = play.runs && !play.beyond;
        self.pool = play.pool && !play.beyond;
        // Units that are longer than a block are cut at the end of a flush.
        self.geometry.unit_bytes = match play.seed % 8 {
            6 if !play.beyond => 16 << 10,
            7 if !play.beyond => 8 << 10,
            _ => self.geometry.unit_bytes,
        };
        // Lanes that are full get there by another way with it: half as often, for what shows there.
        let one_in = if self.full { 4 } else { 2 };
        if play.seed % one_in == one_in - 1 {
            self.placed_bytes_min = 1 + (play.seed % 7) as usize * 500;
            self.faults.insert(Fault::HalfPlaced);
        }
        if self.pool {
            self.shape = Shape { drives: 1, data: 1, parity: 0 };
            (self.geometry.data_shards, self.geometry.parity_shards) = (1, 0);
            (self.drive_timeout, self.blocked_after) = (PATIENCE, Some(BLOCKED_AFTER));
            let of_pools = Fault::ALL.iter().copied().filter(|fault| fault.is_of_pools());
            self.faults.extend(of_pools.filter(|_| random.per_mille(700)));
        }
        self.faults.retain(|fault| !play.without.contains(fault));
        if play.beyond {
            // So that as much happens before the worst as in a run of the first mode.
            self.events += 200;
            self.scrubbed_before_asked = play.seed % 3 == 2;
            // As seldom as a store starts without more drives than parity makes up for.
            self.faults.extend([Fault::BackBeyond].into_iter().filter(|fault| !play.without.contains(fault)));
        }
        if self.full {
            // What is over makes room: lanes stay full that hold little but files.
            self.events = 20 + self.events % 60;
        }
        self.events = self.events.min(play.events.unwrap_or(u64::MAX)).max(1);
        self.writers = self.writers.min(play.writers.unwrap_or(usize::MAX)).max(1);
        self.filters = self.filters.min(play.filters.unwrap_or(usize::MAX)).max(1);
        if play.beyond {
            self.beyond_after_events = Some((self.events * random.within(600..1000) / 1000).max(1));
        }
        if let Some(millis) = play.trouble_ms {
            self.trouble_until = Time(millis.saturating_mul(1_000_000)).min(self.trouble_until);
        }
    }

    pub(crate) fn run(&self) -> RunId {
        if self.knows(Fault::FullStore) { LARGE } else { RunId(1) }
    }

    pub(crate) fn sources(&self) -> u32 {
        self.sources_per_writer * self.writers as u32
    }

    pub(crate) fn knows(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }
}
