//! The lanes of a store on simulated disks, in virtual time: the engine has no clock, so that an hour of sixty disks passes in seconds. What the
//! processor does takes no time here; the disks alone are what is slow.

use std::collections::VecDeque;
use std::time::Duration;

use forebay_engine::{
    Admission, DriveInfo, Fetch, Lane, LaneConfig, LaneEvent, LaneStatus, Membership, Put, Reply, Token,
};
use forebay_format::{CheckpointBody, CheckpointHeader, DriveLayout, Geometry, encode_checkpoint, place_of};
use forebay_store::{Profile, StoreConfig};
use forebay_types::placement::EVENTS_PER_GROUP;
use forebay_types::{DriveNumber, DriveUuid, EventKey, FragmentId, PutOutcome, StoreUuid, Time, crc32c};

use super::disk::{Disk, DiskCounts, DiskModel};

const STORE: StoreUuid = StoreUuid::from_bytes([7; 16]);
const RUN: u32 = 0;
const EPOCH: u64 = 2;
/// Fragments of an event.
const SOURCES: u64 = 4;

/// What a store on disks is like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub drives: u16,
    pub data: u8,
    pub parity: u8,
    pub fragment_bytes: usize,
    /// Room for slots on each drive, in bytes.
    pub drive_bytes: u64,
    /// Cores of the server.
    pub cores: u16,
}

/// A lane and what it is asked for.
struct Asked {
    lane: Lane,
    /// Events that were put, in order, and of the last one how many fragments.
    events: VecDeque<u64>,
    next_event: u64,
    next_source: u64,
    stored: u64,
}

/// What is asked of all lanes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Fragments are put as fast as they are taken.
    pub puts: bool,
    /// Each event is read when so many more were put in its lane.
    pub reads_behind: Option<u64>,
    /// Nothing is put while fewer segments than this are free: a server asks writers to wait well before the store is full.
    pub segments_free_min: u64,
    /// Events are deleted when a lane holds more of them than this; every tenth is not.
    pub events_max: Option<usize>,
}

/// Everything.
pub struct World {
    shape: Shape,
    infos: Vec<DriveInfo>,
    disks: Vec<Disk>,
    lanes: Vec<Asked>,
    now: Time,
    payload: Vec<u8>,
    crc: u32,
    pub load: Load,
}

impl World {
    /// A new store of this profile. `change` may say otherwise.
    pub fn new(shape: Shape, profile: Profile, change: impl FnOnce(&mut LaneConfig)) -> World {
        let width = usize::from(shape.data) + usize::from(shape.parity);
        let lanes = profile.lanes(usize::from(shape.drives), width, usize::from(shape.cores));
        let geometry = Geometry {
            lanes,
            data_shards: shape.data,
            parity_shards: shape.parity,
            data_shards_min: shape.data.div_ceil(2),
            unit_bytes: 32 << 10,
            // As `init` has it: each lane has 32 slots on each drive at least.
            slot_bytes: profile.slot_bytes_max().min(shape.drive_bytes / 32 / u64::from(lanes)),
            checkpoint_bytes: 16 << 20,
            fragment_bytes_max: 16 << 20,
        };
        let slots = u32::try_from(shape.drive_bytes / geometry.slot_bytes).expect("slots are counted in u32");
        let info = |number| DriveInfo {
            number: DriveNumber(number),
            uuid: DriveUuid::from_bytes([number as u8 + 1; 16]),
            slots,
            member: true,
            present: true,
        };
        let infos: Vec<DriveInfo> = (0..shape.drives).map(info).collect();
        let layout = geometry.layout(slots);
        let disks = infos.iter().map(|info| formatted(info, &geometry, &layout)).collect();
        let (cache_bytes, flush_depth) = (64 << 20, profile.flush_depth());
        let flush_bytes = profile.flush_bytes(cache_bytes as u64, flush_depth);
        let mut config = LaneConfig {
            store: STORE,
            lane: 0,
            geometry,
            drives: infos.clone(),
            epoch: EPOCH,
            nonce: 77,
            flush_bytes: usize::try_from(flush_bytes).expect("flushes fit in memory"),
            flush_depth: flush_depth as usize,
            flush_interval: profile.flush_interval(),
            cache_bytes,
            index_bytes: 4 << 30,
            drive_timeout: Duration::from_secs(3600),
            incomplete_after: Duration::from_secs(3600),
            lease_attempts_max: 5,
            parity_min: shape.parity,
            background_percent: StoreConfig::default().background_percent,
            rebuild_percent: StoreConfig::default().rebuild_percent,
            background_read_bytes: profile.background_read_bytes(),
            read_through_bytes: profile.read_through_bytes(),
            scrub_period: Duration::ZERO,
            told_events: 0,
            flush_multiple_bytes: forebay_types::limits::BLOCK_BYTES,
            tells_freed: false,
            blocked_after: None,
            read_only: false,
            has_files: true,
        };
        change(&mut config);
        let asked = |lane| Asked {
            lane: Lane::new(LaneConfig { lane, ..config.clone() }, Time(0)),
            events: VecDeque::new(),
            next_event: u64::from(lane) * EVENTS_PER_GROUP,
            next_source: 0,
            stored: 0,
        };
        let payload = vec![0; shape.fragment_bytes];
        let crc = crc32c(&payload);
        let lanes = (0..lanes).map(asked).collect();
        let load = Load::default();
        let mut world = World { shape, infos, disks, lanes, now: Time(0), payload, crc, load };
        while !world.lanes.iter_mut().all(|asked| asked.lane.is_serving()) {
            world.turn();
        }
        world
    }

    pub fn now(&self) -> Time {
        self.now
    }

    /// Its disks.
    pub fn drives(&self) -> u16 {
        self.shape.drives
    }

    /// Payload that the lanes say they take, in bytes.
    pub fn capacity_bytes(&mut self) -> u64 {
        self.statuses().iter().map(|status| status.capacity_bytes).sum()
    }

    /// Events that fit each lane, about.
    pub fn events_that_fit(&mut self) -> usize {
        let lanes = self.lanes.len() as u64;
        let events = self.capacity_bytes() / lanes / (SOURCES * self.shape.fragment_bytes as u64);
        usize::try_from(events).expect("events are counted in memory")
    }

    /// Payload that is durable, in bytes.
    pub fn stored_bytes(&self) -> u64 {
        self.lanes.iter().map(|asked| asked.stored).sum::<u64>() * self.shape.fragment_bytes as u64
    }

    /// What all disks did.
    pub fn counts(&self) -> DiskCounts {
        self.disks.iter().fold(DiskCounts::default(), |sum, disk| sum.and(&disk.counts()))
    }

    /// The states of the lanes.
    pub fn statuses(&mut self) -> Vec<LaneStatus> {
        self.lanes.iter_mut().map(|asked| asked.lane.status()).collect()
    }

    /// Everything that is stored is looked at, as when an operator asks for it.
    pub fn scrub_all(&mut self) {
        self.lanes.iter_mut().for_each(|asked| asked.lane.scrub_all());
    }

    /// A disk dies, and the control part takes it out.
    pub fn lose(&mut self, drive: u16) {
        let place = usize::from(drive);
        self.disks[place].fail();
        (self.infos[place].member, self.infos[place].present) = (false, false);
        let drives = Membership::Drives(self.infos.clone());
        self.lanes.iter_mut().for_each(|asked| asked.lane.membership(&drives));
    }

    /// Goes on until `done` says so, which is asked ten times a second.
    pub fn run_until_seen(&mut self, mut done: impl FnMut(&mut World) -> bool) {
        while !done(self) {
            let next = self.now + Duration::from_millis(100);
            self.run_until(|world| world.now >= next);
        }
    }

    /// Goes on until `done`.
    pub fn run_until(&mut self, mut done: impl FnMut(&mut World) -> bool) {
        while !done(self) {
            self.turn();
        }
    }

    /// The lanes are asked and decide, then the time goes to the next thing that happens.
    fn turn(&mut self) {
        for lane in 0..self.lanes.len() {
            self.ask(lane);
            self.decide(lane);
        }
        let ends = self.disks.iter().filter_map(Disk::next_end);
        let wakeups = self.lanes.iter().filter_map(|asked| asked.lane.next_wakeup());
        let Some(next) = ends.chain(wakeups).min() else { panic!("nothing will ever happen") };
        // A lane that wants to be called at once is called a moment later.
        self.now = next.max(self.now + Duration::from_nanos(1));
        for disk in &mut self.disks {
            while disk.next_end().is_some_and(|end| end <= self.now) {
                let (lane, completion) = disk.finish(self.now);
                self.lanes[lane].lane.complete(self.now, completion);
            }
        }
    }

    fn decide(&mut self, lane: usize) {
        let asked = &mut self.lanes[lane];
        asked.lane.pump(self.now);
        while let Some((id, operation)) = asked.lane.next_operation() {
            let (forebay_media::Operation::Write { drive, .. } | forebay_media::Operation::Read { drive, .. }) =
                &operation;
            self.disks[usize::from(drive.0)].submit(self.now, lane, id, operation);
        }
        while let Some(event) = asked.lane.next_event() {
            assert!(!matches!(event, LaneEvent::Failed { .. }), "{event:?}");
        }
        while let Some(reply) = asked.lane.next_reply() {
            match reply {
                Reply::Stored { records, .. } => asked.stored += u64::from(records),
                Reply::Decided { .. }
                | Reply::Read { .. }
                | Reply::ReadEvent { .. }
                | Reply::ReadFile { .. }
                | Reply::Traced { .. } => {}
                Reply::Refused { outcome, .. } => panic!("a put was refused: {outcome}"),
            }
        }
    }

    fn ask(&mut self, lane: usize) {
        let least = self.load.segments_free_min;
        let may_put = least == 0 || self.lanes[lane].lane.status().segments_free >= least;
        if self.load.puts && may_put {
            while self.put_one(lane) {}
        }
        if let Some(max) = self.load.events_max {
            self.lanes[lane].delete_down_to(max);
        }
    }

    /// Puts the lane's next fragment, if it takes it.
    fn put_one(&mut self, lane: usize) -> bool {
        let lanes = self.lanes.len() as u64;
        let asked = &mut self.lanes[lane];
        let id = FragmentId::new(RUN, asked.next_event, asked.next_source as u32);
        let put = Put { id, expected: SOURCES as u16, crc: self.crc };
        match asked.lane.put(Token(1), &put, &self.payload) {
            Admission::Pending => {}
            Admission::Busy | Admission::Done(PutOutcome::NoSpace) => return false,
            Admission::Done(outcome) => panic!("{id} came to {outcome}"),
        }
        asked.next_source += 1;
        if asked.next_source == SOURCES {
            asked.put_event(lanes);
            asked.read_behind(self.load.reads_behind);
        }
        true
    }
}

impl Asked {
    /// An event is whole: the next one of the lane.
    fn put_event(&mut self, lanes: u64) {
        self.events.push_back(self.next_event);
        self.next_source = 0;
        self.next_event += 1;
        if self.next_event.is_multiple_of(EVENTS_PER_GROUP) {
            self.next_event += (lanes - 1) * EVENTS_PER_GROUP;
        }
    }

    fn read_behind(&mut self, behind: Option<u64>) {
        let Some(at) = behind.and_then(|behind| self.events.len().checked_sub(behind as usize + 1)) else { return };
        for source in 0..SOURCES {
            let id = FragmentId::new(RUN, self.events[at], source as u32);
            let mut payload = Vec::new();
            // What is not in memory comes from the disks, which count it.
            let (Fetch::Done(..) | Fetch::Pending { .. }) = self.lane.get(Token(2), id, &mut payload);
        }
    }

    /// Deletes the oldest events but for every tenth; those stay.
    fn delete_down_to(&mut self, max: usize) {
        while self.events.len() > max {
            let event = self.events[0];
            if !event.is_multiple_of(10) && self.lane.delete(Token::NONE, EventKey::new(RUN, event)) == Admission::Busy
            {
                return;
            }
            self.events.pop_front();
        }
    }
}

/// A disk with an empty checkpoint of each lane.
fn formatted(info: &DriveInfo, geometry: &Geometry, layout: &DriveLayout) -> Disk {
    let mut disk = Disk::new(DiskModel::NEARLINE);
    let body = CheckpointBody::default().encode();
    for lane in 0..geometry.lanes {
        let header = CheckpointHeader {
            store: STORE,
            drive: info.uuid,
            offset_bytes: layout.checkpoint_offset(lane, place_of(1)),
            lane,
            epoch: 1,
            sequence: 1,
            body_bytes: 0,
            body_crc: 0,
        };
        disk.write(header.offset_bytes, &encode_checkpoint(&header, &body));
    }
    disk
}
