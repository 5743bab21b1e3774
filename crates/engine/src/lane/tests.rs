//! A lane on drives in memory, step by step.

mod compact;
mod files;
mod kept_run;
mod losses;
mod memory;
mod multiples;
mod offers;
mod rebuild;
mod repair;
mod rules;
mod scrub;
mod space;
mod subscribe;
mod survey;
mod trace;
mod whole;

use std::sync::Arc;
use std::time::Duration;

use forebay_format::{CheckpointBody, CheckpointHeader, DriveLayout, Geometry, encode_checkpoint, place_of};
use forebay_media::{AlignedBuffer, Media, MemoryDrives, MemoryMedia, Operation, OperationId};
use forebay_types::limits::BLOCK_BYTES;
use forebay_types::{DriveNumber, DriveUuid, EventKey, ReadOutcome, SourceId, StoreUuid, Time, crc32c};

use super::Lane;
use crate::api::{Admission, DriveInfo, Fetch, LaneConfig, LeasedEvent, Put, Reply, Token};

const DRIVES: u16 = 3;
const DRIVE_BYTES: u64 = 32 << 20;
const STORE: StoreUuid = StoreUuid::from_bytes([7; 16]);

/// A lane and what drives it.
struct Driven {
    lane: Lane,
    media: MemoryMedia,
    drives: MemoryDrives,
    now: Time,
    next_token: u64,
    /// Reads from the drives.
    reads: u64,
    /// Reads of files that were answered without a copy.
    shared: u64,
}

impl Driven {
    fn new(change: impl FnOnce(&mut LaneConfig)) -> Driven {
        let geometry = Geometry {
            lanes: 1,
            data_shards: 2,
            parity_shards: 1,
            data_shards_min: 1,
            unit_bytes: 4096,
            slot_bytes: 1 << 20,
            checkpoint_bytes: 256 << 10,
            fragment_bytes_max: 60_000,
        };
        let layout =
            DriveLayout::plan(DRIVE_BYTES, 1, geometry.slot_bytes, geometry.checkpoint_bytes).expect("it fits");
        let info = |n: u16| DriveInfo {
            number: DriveNumber(n),
            uuid: DriveUuid::from_bytes([n as u8 + 1; 16]),
            slots: layout.slots,
            member: true,
            present: true,
        };
        let mut config = LaneConfig {
            store: STORE,
            lane: 0,
            geometry,
            drives: (0..DRIVES).map(info).collect(),
            epoch: 2,
            nonce: 5,
            flush_bytes: 64 << 10,
            flush_depth: 3,
            flush_interval: Duration::ZERO,
            cache_bytes: 1 << 20,
            index_bytes: 1 << 20,
            drive_timeout: Duration::from_secs(3600),
            incomplete_after: Duration::from_secs(5),
            lease_attempts_max: 3,
            parity_min: 1,
            background_percent: 50,
            rebuild_percent: 80,
            background_read_bytes: 64 << 10,
            read_through_bytes: 8 << 10,
            scrub_period: Duration::ZERO,
            told_events: 16,
            flush_multiple_bytes: BLOCK_BYTES,
            tells_freed: false,
            blocked_after: None,
            read_only: false,
            has_files: true,
        };
        change(&mut config);
        let drives = MemoryDrives::new(config.drives.len() as u16, DRIVE_BYTES);
        let mut media = MemoryMedia::new(&drives);
        make_store(&mut media, &config);
        let mut driven = Driven {
            lane: Lane::new(config, Time(0)),
            media,
            drives,
            now: Time(0),
            next_token: 0,
            reads: 0,
            shared: 0,
        };
        driven.start();
        driven
    }

    /// Goes on until the lane serves. Only drives and the lane's own time bring it on, as in a server of which nobody asks anything.
    fn start(&mut self) {
        while !self.lane.is_serving() {
            self.turn();
            let is_due = self.lane.next_wakeup().is_some_and(|at| at <= self.now);
            let goes_on = self.lane.is_serving() || self.lane.operations_in_flight() > 0 || is_due;
            assert!(goes_on, "the start waits, and nothing is on its way");
        }
    }

    fn turn(&mut self) {
        let mut completions = Vec::new();
        self.media.completions(&mut completions);
        for completion in completions {
            self.lane.complete(self.now, completion);
        }
        self.lane.pump(self.now);
        while let Some((id, operation)) = self.lane.next_operation() {
            self.reads += u64::from(matches!(operation, Operation::Read { .. }));
            self.media.submit(id, operation);
        }
        self.media.kick();
    }

    fn reply(&mut self) -> Reply {
        loop {
            if let Some(reply) = self.lane.next_reply() {
                return reply;
            }
            self.turn();
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.turn();
    }

    fn token(&mut self) -> Token {
        self.next_token += 1;
        Token(self.next_token)
    }

    fn put(&mut self, key: EventKey, source: u32, expected: u16, bytes: usize) {
        let token = self.begin_put(key, source, expected, bytes);
        assert!(matches!(self.reply(), Reply::Stored { token: of, records: 1 } if of == token));
    }

    /// What was put is answered later.
    fn begin_put(&mut self, key: EventKey, source: u32, expected: u16, bytes: usize) -> Token {
        let payload = vec![source as u8; bytes];
        let put = Put { id: key.fragment(SourceId(source)), expected, crc: crc32c(&payload) };
        let token = self.token();
        while let admission = self.lane.put(token, &put, &payload)
            && admission != Admission::Pending
        {
            assert_eq!(admission, Admission::Busy);
            self.turn();
        }
        token
    }

    /// Waits until so many puts are stored.
    fn replies_to(&mut self, mut puts: usize) {
        while puts > 0 {
            let Reply::Stored { records, .. } = self.reply() else { panic!("a put was refused") };
            puts -= records as usize;
        }
    }

    /// What a fragment is read as.
    fn read(&mut self, key: EventKey, source: u32) -> (ReadOutcome, Vec<u8>) {
        let (token, mut into) = (self.token(), Vec::new());
        match self.lane.get(token, key.fragment(SourceId(source)), &mut into) {
            Fetch::Done(outcome, _) => (outcome, into),
            Fetch::Pending { .. } => match self.reply() {
                Reply::Read { outcome, payload, .. } => (outcome, payload),
                other => panic!("{other:?}"),
            },
        }
    }

    fn delete(&mut self, key: EventKey) {
        let token = self.token();
        while let Admission::Busy = self.lane.delete(token, key) {
            self.turn();
        }
        assert!(matches!(self.reply(), Reply::Decided { token: of, .. } if of == token));
    }

    fn lease(&mut self, max_events: usize, run: Option<u32>) -> Vec<LeasedEvent> {
        let mut events = Vec::new();
        let run = run.map(forebay_types::RunId);
        self.lane.lease(max_events, Duration::from_secs(30), run, &mut events);
        events
    }
}

/// A checkpoint that lists nothing.
fn make_store(media: &mut MemoryMedia, config: &LaneConfig) {
    for (at, drive) in config.drives.iter().enumerate() {
        let offset_bytes = config.geometry.layout(drive.slots).checkpoint_offset(0, place_of(1));
        let header = CheckpointHeader {
            store: STORE,
            drive: drive.uuid,
            offset_bytes,
            lane: 0,
            epoch: 1,
            sequence: 1,
            body_bytes: 0,
            body_crc: 0,
        };
        let buffer = AlignedBuffer::copied(&encode_checkpoint(&header, &CheckpointBody::default().encode()));
        let bytes = buffer.len();
        let write = Operation::Write { drive: drive.number, offset_bytes, buffer: Arc::new(buffer), bytes };
        media.submit(OperationId(at as u64), write);
    }
    media.kick();
    let mut completions = Vec::new();
    media.completions(&mut completions);
    assert!(completions.len() == config.drives.len() && completions.iter().all(|c| c.result.is_ok()));
}
