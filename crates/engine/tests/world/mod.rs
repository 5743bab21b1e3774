//! The world of the model test: drives in memory, a lane on them, a model of what must hold.

mod faults;
#[allow(dead_code, reason = "not every test has files")]
mod files;
#[allow(dead_code, reason = "not every test fills the lane")]
mod full;
mod model;
mod requests;
#[allow(dead_code, reason = "not every test silences drives")]
mod silence;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_engine::{
    Admission, DriveInfo, EventFragments, Fetch, FetchEvent, Lane, LaneConfig, LaneEvent, LeasedEvent, Membership, Put,
    Reply, Token,
};
use forebay_format::{CheckpointBody, CheckpointHeader, DriveLayout, Geometry, encode_checkpoint, place_of};
use forebay_media::{
    AlignedBuffer, Completion, Delivery, KeepPart, Media, MediaError, MemoryDrives, MemoryMedia, Operation, OperationId,
};
use forebay_types::{
    DriveNumber, DriveUuid, EventKey, FragmentId, ReadOutcome, SourceId, StoreUuid, StreamName, Time, Verdict, crc32c,
};
use std::sync::Arc;

use model::{Decided, Model};

/// Drives, widths, and how many drives may die.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub drives: u16,
    pub data: u8,
    pub parity: u8,
    pub losses: usize,
    pub data_min: u8,
    pub parity_min: u8,
}

impl Shape {
    /// As many drives may die as there are parities, which are never fewer.
    pub const fn of(drives: u16, data: u8, parity: u8) -> Shape {
        Shape { drives, data, parity, losses: parity as usize, data_min: 1, parity_min: parity }
    }
}

/// How often what happened.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    pub puts: u64,
    pub puts_durable: u64,
    pub puts_refused: u64,
    pub decisions: u64,
    pub reads: u64,
    pub crashes: u64,
    pub crashes_in_recovery: u64,
    pub torn_writes: u64,
    pub drives_lost: u64,
    pub drives_corrupted: u64,
    pub stops: u64,
    pub fills: u64,
    pub read_errors: u64,
    pub decisions_in_full: u64,
    pub stored_with_less_parity: u64,
    pub drives_replaced: u64,
    pub drives_made_up_for: u64,
    pub segments_rebuilt: u64,
    pub mended: u64,
    pub fragments_moved: u64,
    pub events_joined: u64,
    pub wholes: u64,
    pub file_changes: u64,
    pub file_conflicts: u64,
    pub file_reads: u64,
    pub file_reads_shared: u64,
    pub files_summed: u64,
    pub pieces_moved: u64,
}

impl Totals {
    pub fn add(&mut self, other: &Totals) {
        self.puts += other.puts;
        self.puts_durable += other.puts_durable;
        self.puts_refused += other.puts_refused;
        self.decisions += other.decisions;
        self.reads += other.reads;
        self.crashes += other.crashes;
        self.crashes_in_recovery += other.crashes_in_recovery;
        self.torn_writes += other.torn_writes;
        self.drives_lost += other.drives_lost;
        self.drives_corrupted += other.drives_corrupted;
        self.stops += other.stops;
        self.fills += other.fills;
        self.read_errors += other.read_errors;
        self.decisions_in_full += other.decisions_in_full;
        self.stored_with_less_parity += other.stored_with_less_parity;
        self.drives_replaced += other.drives_replaced;
        self.drives_made_up_for += other.drives_made_up_for;
        self.segments_rebuilt += other.segments_rebuilt;
        self.mended += other.mended;
        self.fragments_moved += other.fragments_moved;
        self.events_joined += other.events_joined;
        self.wholes += other.wholes;
        self.file_changes += other.file_changes;
        self.file_conflicts += other.file_conflicts;
        self.file_reads += other.file_reads;
        self.file_reads_shared += other.file_reads_shared;
        self.files_summed += other.files_summed;
        self.pieces_moved += other.pieces_moved;
    }

    /// A test that never met a fault has shown nothing.
    pub fn assert_everything_happened(&self) {
        let counted = [
            self.puts_durable,
            self.puts_refused,
            self.decisions,
            self.reads,
            self.crashes,
            self.crashes_in_recovery,
            self.torn_writes,
            self.drives_lost,
            self.drives_corrupted,
            self.stops,
            self.fills,
            self.read_errors,
            self.decisions_in_full,
            self.stored_with_less_parity,
            self.drives_replaced,
            self.drives_made_up_for,
            self.segments_rebuilt,
            self.mended,
            self.fragments_moved,
            self.events_joined,
            self.wholes,
            self.file_changes,
            self.file_conflicts,
            self.file_reads,
            self.file_reads_shared,
            self.files_summed,
            self.pieces_moved,
        ];
        assert!(counted.iter().all(|count| *count > 0), "something never happened: {self:?}");
    }
}

/// SplitMix64.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What differs from test to test.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub drive_bytes: u64,
    pub drive_timeout: Duration,
    pub lease_attempts_max: u16,
    /// Of a thousand reads while the lane serves so many fail, of any drive.
    pub read_errors_per_mille: u64,
}

/// Nothing here is slow: only an error takes a drive out.
pub const PATIENT: Setup = Setup {
    drive_bytes: 6 << 20,
    drive_timeout: Duration::from_secs(3600),
    lease_attempts_max: 200,
    read_errors_per_mille: 0,
};

const STORE: StoreUuid = StoreUuid::from_bytes([7; 16]);

/// Everything.
pub struct World {
    random: Random,
    pub shape: Shape,
    geometry: Geometry,
    drives: MemoryDrives,
    infos: Vec<DriveInfo>,
    lost: Vec<DriveNumber>,
    /// Of these, what lay on them lies elsewhere.
    made_up_for: BTreeSet<DriveNumber>,
    corrupted: Option<DriveNumber>,
    epoch: u64,
    now: Time,
    lane: Option<(Lane, MemoryMedia)>,
    /// What the control part has been told and has not yet made durable.
    leaving: Vec<DriveNumber>,
    model: Model,
    next_token: u64,
    totals: Totals,
    setup: Setup,
    /// The lane said that it has stopped, and whether everything is durable and closed.
    stopped_whole: Option<bool>,
    may_fail: bool,
    /// Reads on their way.
    reads: BTreeMap<OperationId, DriveNumber>,
    /// Drives that take writes and fail every read.
    unreadable: Vec<DriveNumber>,
    files: files::Files,
    /// A read of a file for which the world waits, and its answer.
    awaited: Option<files::Awaited>,
}

impl World {
    pub fn new(seed: u64, shape: Shape, setup: Setup) -> Self {
        let geometry = Geometry {
            lanes: 1,
            data_shards: shape.data,
            parity_shards: shape.parity,
            data_shards_min: shape.data_min,
            unit_bytes: 4096,
            slot_bytes: 192 << 10,
            checkpoint_bytes: 128 << 10,
            fragment_bytes_max: 60_000,
        };
        let layout =
            DriveLayout::plan(setup.drive_bytes, 1, geometry.slot_bytes, geometry.checkpoint_bytes).expect("it fits");
        let drives = MemoryDrives::new(shape.drives, setup.drive_bytes);
        let infos: Vec<DriveInfo> = (0..shape.drives)
            .map(|n| DriveInfo {
                number: DriveNumber(n),
                uuid: DriveUuid::from_bytes([n as u8 + 1; 16]),
                slots: layout.slots,
                member: true,
                present: true,
            })
            .collect();
        make_store(&drives, &infos, &geometry);
        let mut world = World {
            random: Random(seed),
            shape,
            geometry,
            drives,
            infos,
            lost: Vec::new(),
            made_up_for: BTreeSet::new(),
            corrupted: None,
            epoch: 1,
            now: Time(0),
            lane: None,
            leaving: Vec::new(),
            model: Model::default(),
            next_token: 0,
            totals: Totals::default(),
            setup,
            stopped_whole: None,
            may_fail: false,
            reads: BTreeMap::new(),
            unreadable: Vec::new(),
            files: files::Files::default(),
            awaited: None,
        };
        world.start(false);
        world
    }

    pub fn run(mut self, steps: usize) -> Totals {
        for _ in 0..steps {
            self.step();
        }
        self.crash();
        self.start(false);
        self.settle();
        self.setup.read_errors_per_mille = 0;
        self.read_everything();
        self.end_all_files();
        self.empty_the_store();
        self.totals
    }

    fn step(&mut self) {
        match self.random.below(1000) {
            0..400 => self.put(),
            400..500 => self.decide(),
            500..560 => self.release(),
            560..580 => self.delete(),
            580..700 => self.get(),
            700..720 => self.lease(),
            720..735 => self.fill(),
            735..750 => {
                self.crash();
                let crash_again = self.random.chance(30);
                self.start(crash_again);
            }
            750..754 => self.stop(),
            754..757 => self.lose_a_drive(),
            757..760 => self.corrupt_a_drive(),
            760..763 => self.replace_a_drive(),
            763..950 => self.file_step(),
            _ => {}
        }
        let turns = self.random.below(4);
        for _ in 0..turns {
            self.turn();
        }
    }

    // ---- starting ----

    fn start(&mut self, crash_in_recovery: bool) {
        self.open_lane();
        let mut turns = 0;
        let crash_at = if crash_in_recovery { self.random.below(60) } else { u64::MAX };
        while !self.lane().is_serving() {
            self.turn();
            turns += 1;
            if turns > crash_at {
                self.totals.crashes_in_recovery += 1;
                self.crash();
                let once_more = self.random.chance(60);
                return self.start(once_more);
            }
            assert!(turns < 100_000, "the lane does not start: {:?}", self.lane().status());
        }
        self.after_start();
        let status = self.lane().status();
        assert_eq!((status.flushes_lost, status.segments_unreadable), (0, 0), "nothing may be lost: {status:?}");
    }

    pub fn after_start(&mut self) {
        self.model.after_crash();
        self.files_after_crash();
    }

    /// A process begins; the lane finds out what is there.
    pub fn open_lane(&mut self) {
        self.epoch += 1;
        for drive in std::mem::take(&mut self.leaving) {
            // The control part had heard of it and the crash came before it was durable: it may be a member still.
            let dead = self.lost.contains(&drive);
            self.info(drive).member &= !dead;
        }
        for drive in self.lost.clone() {
            let info = self.info(drive);
            (info.member, info.present) = (false, false);
        }
        let config = LaneConfig {
            store: STORE,
            lane: 0,
            geometry: self.geometry,
            drives: self.infos.clone(),
            epoch: self.epoch,
            nonce: self.epoch * 77,
            flush_bytes: 16 << 10,
            flush_depth: 3,
            flush_interval: Duration::ZERO,
            cache_bytes: if self.random.chance(50) { 0 } else { 1 << 20 },
            index_bytes: 1 << 20,
            drive_timeout: self.setup.drive_timeout,
            incomplete_after: Duration::from_millis(1),
            lease_attempts_max: self.setup.lease_attempts_max,
            parity_min: self.shape.parity_min,
            background_percent: 50,
            rebuild_percent: 80,
            background_read_bytes: if self.epoch.is_multiple_of(2) { 4096 } else { 1 << 20 },
            read_through_bytes: if self.epoch.is_multiple_of(3) { 256 << 10 } else { 4096 },
            scrub_period: Duration::from_millis(30),
            told_events: 16,
            flush_multiple_bytes: forebay_types::limits::BLOCK_BYTES,
            tells_freed: false,
            blocked_after: None,
            read_only: false,
            has_files: true,
        };
        self.reads.clear();
        let mut media = MemoryMedia::new(&self.drives);
        let mut choose = Random(self.random.next());
        media.set_delivery(Delivery::Chosen(Box::new(move |ready: &[OperationId]| {
            if ready.is_empty() || choose.chance(40) { None } else { Some(choose.below(ready.len() as u64) as usize) }
        })));
        self.lane = Some((Lane::new(config, self.now), media));
    }

    fn info(&mut self, drive: DriveNumber) -> &mut DriveInfo {
        self.infos.iter_mut().find(|d| d.number == drive).expect("a drive of the store")
    }

    // ---- the driver ----

    pub fn lane(&mut self) -> &mut Lane {
        &mut self.lane.as_mut().expect("the lane runs").0
    }

    pub fn turn(&mut self) {
        self.now = self.now + Duration::from_micros(self.random.below(300));
        let (lane, media) = self.lane.as_mut().expect("the lane runs");
        let mut completions: Vec<Completion> = Vec::new();
        media.completions(&mut completions);
        for mut completion in completions {
            let read_of = self.reads.remove(&completion.id).filter(|_| completion.result.is_ok());
            let by_chance = lane.is_serving() && self.random.below(1000) < self.setup.read_errors_per_mille;
            if read_of.is_some_and(|drive| by_chance || self.unreadable.contains(&drive)) {
                completion.result = Err(MediaError::Injected);
                self.totals.read_errors += 1;
            }
            lane.complete(self.now, completion);
        }
        if !self.leaving.is_empty() && self.random.chance(30) {
            let leaving = std::mem::take(&mut self.leaving);
            for info in self.infos.iter_mut().filter(|info| leaving.contains(&info.number)) {
                (info.member, info.present) = (false, false);
            }
            lane.membership(&Membership::Drives(self.infos.clone()));
        }
        lane.pump(self.now);
        while let Some((id, operation)) = lane.next_operation() {
            if let Operation::Read { drive, .. } = operation {
                self.reads.insert(id, drive);
            }
            media.submit(id, operation);
        }
        media.kick();
        while let Some(event) = lane.next_event() {
            match event {
                LaneEvent::DriveFailed { drive, reason } => {
                    assert!(self.lost.contains(&drive), "drive {drive} is sound, and taken out: {reason}");
                    self.leaving.push(drive);
                }
                LaneEvent::Failed { reason } => assert!(self.may_fail, "the lane failed: {reason}"),
                LaneEvent::Stopped { whole } => self.stopped_whole = Some(whole),
                LaneEvent::Serving | LaneEvent::DamageFound { .. } => {}
            }
        }
        while let Some(reply) = lane.next_reply() {
            let unsure = self.setup.read_errors_per_mille > 0;
            if let Reply::ReadFile { token, outcome, payload } = &reply
                && let Some((_, answer)) = self.awaited.as_mut().filter(|(awaited, _)| awaited == token)
            {
                *answer = Some((*outcome, payload.clone()));
                continue;
            }
            if self.files.reply(&reply, unsure, &mut self.totals) {
                continue;
            }
            self.model.reply(reply, unsure, &mut self.totals);
        }
        self.read_again();
    }

    fn settle(&mut self) {
        for turn in 0.. {
            self.turn();
            if turn >= 2000 && self.model.is_answered() && self.files.is_answered() {
                return;
            }
            assert!(turn < 100_000, "operations do not end: {:?}", self.lane().status());
        }
    }
}

fn make_store(drives: &MemoryDrives, infos: &[DriveInfo], geometry: &Geometry) {
    let mut media = MemoryMedia::new(drives);
    let body = CheckpointBody::default().encode();
    for (at, info) in infos.iter().enumerate() {
        let offset_bytes = geometry.layout(info.slots).checkpoint_offset(0, place_of(1));
        let header = CheckpointHeader {
            store: STORE,
            drive: info.uuid,
            offset_bytes,
            lane: 0,
            epoch: 1,
            sequence: 1,
            body_bytes: 0,
            body_crc: 0,
        };
        let buffer = AlignedBuffer::copied(&encode_checkpoint(&header, &body));
        let bytes = buffer.len();
        let write = Operation::Write { drive: info.number, offset_bytes, buffer: Arc::new(buffer), bytes };
        media.submit(OperationId(at as u64), write);
    }
    media.kick();
    let mut completions = Vec::new();
    media.completions(&mut completions);
    assert!(completions.iter().all(|c| c.result.is_ok()) && completions.len() == infos.len());
}

/// Bytes that belong to an id; `other` gives different ones of the same length.
fn payload(id: FragmentId, bytes: usize, other: bool) -> Vec<u8> {
    let mut random = Random(id.event.0 << 8 ^ u64::from(id.source.0) ^ u64::from(other) << 60);
    (0..bytes.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).take(bytes).collect()
}

/// What a read may say.
pub fn is_answer(outcome: ReadOutcome) -> bool {
    matches!(outcome, ReadOutcome::Found | ReadOutcome::NotFound | ReadOutcome::Deleted)
}
