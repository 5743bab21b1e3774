//! The checkpoint of a lane: what exists, what will be opened next, and what is finished.

use forebay_types::limits::{BLOCK_BYTES, LANES_MAX};
use forebay_types::{DriveUuid, RunId, StoreUuid, StreamName, crc32c};

use crate::FormatError;
use crate::error::{ensure, within};
use crate::field::{Kind, check_width, header_layout, layout, only_known};
use crate::segment::{SegmentId, ShardPlace, check_places, shard_place};
use crate::version::LAYOUT_VERSION;

/// Bytes of a checkpoint's header; its body follows.
pub const CHECKPOINT_HEADER_BYTES: usize = BLOCK_BYTES;

const WHAT: &str = "checkpoint";

pub(crate) const KIND: Kind = Kind { what: "checkpoint header", magic: *b"FBCHECK1", flags_known: 0 };

header_layout!(
    /// The fixed part of the header.
    checkpoint, 128 {
        OFFSET_BYTES: u64 = 56;
        EPOCH: u64 = 64;
        SEQUENCE: u64 = 72;
        BODY_BYTES: u64 = 80;
        BODY_CRC: u32 = 88;
        LANE: u16 = 92;
        ROOM_2: [u8; 34] = 94;
    }
);

layout!(
    /// Before each section of the body.
    section, 16 {
        SECTION_KIND: u16 = 0;
        FLAGS: u16 = 2;
        COUNT: u32 = 4;
        SECTION_BYTES: u64 = 8;
    }
);

layout!(
    /// The one entry of the section of numbers.
    numbers, 16 {
        NEXT_RECORD_SEQUENCE: u64 = 0;
        NEXT_SEGMENT_COUNTER: u64 = 8;
    }
);

layout!(
    /// A live segment; the places of its shards follow.
    segment_entry, 40 {
        SEGMENT: [u8; 16] = 0;
        FIRST_SEQUENCE: u64 = 16;
        UNIT_BYTES: u32 = 24;
        FLUSHES: u32 = 28;
        DATA_SHARDS: u8 = 32;
        PARITY_SHARDS: u8 = 33;
        STATE: u8 = 34;
        FLAGS: u8 = 35;
        ROOM: [u8; 4] = 36;
    }
);

layout!(
    /// A segment that will be opened; the places of its shards follow.
    planned_segment, 24 {
        SEGMENT: [u8; 16] = 0;
        UNIT_BYTES: u32 = 16;
        DATA_SHARDS: u8 = 20;
        PARITY_SHARDS: u8 = 21;
        FLAGS: u16 = 22;
    }
);

layout!(
    /// The finished events of a run; its ranges follow.
    finished_run, 16 {
        RUN: u32 = 0;
        FLAGS: u32 = 4;
        RANGE_COUNT: u32 = 8;
        ROOM: [u8; 4] = 12;
    }
);

layout!(
    /// A range of ordinals.
    ordinal_range, 16 {
        START: u64 = 0;
        LENGTH: u64 = 8;
    }
);

layout!(
    /// What was decided on accepted events.
    decision_set, 24 {
        ACCEPTED: u64 = 0;
        RELEASED: u64 = 8;
        FLAGS: u32 = 16;
        ROOM: [u8; 4] = 20;
    }
);

layout!(
    /// The accepted events of a run that the checkpoint keeps; their ranges follow.
    decided_run, 16 {
        RUN: u32 = 0;
        FLAGS: u32 = 4;
        RANGE_COUNT: u32 = 8;
        ROOM: [u8; 4] = 12;
    }
);

layout!(
    /// Neighbouring events of which the same was decided.
    decided_range, 16 {
        FIRST_EVENT: u64 = 0;
        LENGTH: u32 = 8;
        SET: u32 = 12;
    }
);

layout!(
    /// The name of a stream; its number is its place in the section.
    stream, 72 {
        NAME_BYTES: u8 = 0;
        ROOM: [u8; 7] = 1;
        NAME: [u8; 64] = 8;
    }
);

layout!(
    /// A counter.
    counter, 16 {
        NUMBER: u16 = 0;
        ROOM: [u8; 6] = 2;
        VALUE: u64 = 8;
    }
);

/// Flag of a section: a reader that does not know its kind may skip it.
pub(crate) const SECTION_OPTIONAL: u16 = 1;

/// Flag of a finished run: no event of it will come any more.
pub(crate) const RUN_CLOSED: u32 = 1;

/// Flag of a set of decisions: accepted although fragments were missing.
pub(crate) const SET_INCOMPLETE: u32 = 1;

/// Sets of decisions in a checkpoint.
pub const DECISION_SETS_MAX: usize = 256;

/// Accepted events that a checkpoint keeps: as many as have room in the largest place of one, so that what a checkpoint says
/// bounds the memory that reading it takes.
pub const DECIDED_EVENTS_MAX: u64 = 1 << 24;

/// Kinds of sections; stored, never given another meaning.
pub(crate) mod section_kind {
    pub(crate) const NUMBERS: u16 = 1;
    pub(crate) const LIVE: u16 = 2;
    pub(crate) const PLANNED: u16 = 3;
    pub(crate) const FINISHED: u16 = 4;
    pub(crate) const COUNTERS: u16 = 5;
    pub(crate) const STREAMS: u16 = 6;
    pub(crate) const DECISION_SETS: u16 = 7;
    pub(crate) const DECIDED: u16 = 8;
}

/// The header of a checkpoint on one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointHeader {
    /// The store.
    pub store: StoreUuid,
    /// The drive that it lies on.
    pub drive: DriveUuid,
    /// Where it begins on that drive.
    pub offset_bytes: u64,
    /// The lane.
    pub lane: u16,
    /// The writable start that wrote it.
    pub epoch: u64,
    /// One more with each checkpoint of the lane.
    pub sequence: u64,
    /// Bytes of the body, without padding.
    pub body_bytes: u64,
    /// CRC32C of the body.
    pub body_crc: u32,
}

impl CheckpointHeader {
    /// Reads a header from the first block of a checkpoint.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn decode(block: &[u8]) -> Result<CheckpointHeader, FormatError> {
        use checkpoint as field;
        let (block, _flags) = KIND.open(block, CHECKPOINT_HEADER_BYTES)?;
        let header = CheckpointHeader {
            store: field::STORE.get(block),
            drive: field::DRIVE.get(block),
            offset_bytes: field::OFFSET_BYTES.get(block),
            lane: field::LANE.get(block),
            epoch: field::EPOCH.get(block),
            sequence: field::SEQUENCE.get(block),
            body_bytes: field::BODY_BYTES.get(block),
            body_crc: field::BODY_CRC.get(block),
        };
        within("lane of a checkpoint", u64::from(header.lane), LANES_MAX as u64 - 1)?;
        Ok(header)
    }

    /// The header of a checkpoint with this body.
    pub fn with_body(self, body: &[u8]) -> CheckpointHeader {
        CheckpointHeader { body_bytes: body.len() as u64, body_crc: crc32c(body), ..self }
    }

    fn encode_into(&self, block: &mut [u8]) {
        use checkpoint as field;
        field::STORE.put(block, self.store);
        field::DRIVE.put(block, self.drive);
        field::OFFSET_BYTES.put(block, self.offset_bytes);
        field::LANE.put(block, self.lane);
        field::EPOCH.put(block, self.epoch);
        field::SEQUENCE.put(block, self.sequence);
        field::BODY_BYTES.put(block, self.body_bytes);
        field::BODY_CRC.put(block, self.body_crc);
        KIND.seal(block, LAYOUT_VERSION, 0);
    }
}

/// Bytes of a checkpoint with a body of `body_bytes`: header and body in whole blocks. Must fit the
/// place on the drive.
pub fn encoded_checkpoint_bytes(body_bytes: usize) -> usize {
    CHECKPOINT_HEADER_BYTES + body_bytes.next_multiple_of(BLOCK_BYTES)
}

/// The blocks of a checkpoint. `body_bytes` and `body_crc` are computed from `body`, whatever `header`
/// says there, so that one body can be written to many drives.
///
/// # Panics
/// When the lane is none that a store has.
pub fn encode_checkpoint(header: &CheckpointHeader, body: &[u8]) -> Vec<u8> {
    let mut blocks = vec![0; encoded_checkpoint_bytes(body.len())];
    encode_checkpoint_into(&header.with_body(body), body, &mut blocks);
    blocks
}

/// As [`encode_checkpoint`], over whatever is in `blocks`, with a header that [`CheckpointHeader::with_body`] made: the body that is written to many drives is
/// summed once.
///
/// # Panics
/// When the header is that of another body, by its length, or `blocks` is not as long as the checkpoint.
pub fn encode_checkpoint_into(header: &CheckpointHeader, body: &[u8], blocks: &mut [u8]) {
    assert!(usize::from(header.lane) < LANES_MAX, "lane {}", header.lane);
    assert_eq!(header.body_bytes, body.len() as u64, "the header is that of the body");
    assert_eq!(blocks.len(), encoded_checkpoint_bytes(body.len()), "the checkpoint fills its blocks");
    let (first, rest) = blocks.split_at_mut(CHECKPOINT_HEADER_BYTES);
    first.fill(0);
    header.encode_into(first);
    let (of_body, padding) = rest.split_at_mut(body.len());
    of_body.copy_from_slice(body);
    padding.fill(0);
}

/// What recovery does with a live segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SegmentState {
    /// It may have more flushes than the checkpoint knows: recovery looks for its closing flush, else walks it, and
    /// closes it.
    Open = 1,
    /// A closing flush with its whole table stands at the end of its slots. One that recovery could not read, and without which something is missing, is
    /// looked for again at each start: drives that come back may have it.
    Closed = 2,
    /// It has no closing flush and exactly `flushes` flushes, which are found by walking.
    Walk = 3,
}

impl SegmentState {
    fn from_number(number: u8) -> Result<Self, FormatError> {
        match number {
            1 => Ok(SegmentState::Open),
            2 => Ok(SegmentState::Closed),
            3 => Ok(SegmentState::Walk),
            found => Err(FormatError::Limit { what: "state of a segment", found: u64::from(found), limit: 3 }),
        }
    }
}

/// A segment that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentEntry {
    /// Which it is.
    pub id: SegmentId,
    /// What recovery does with it.
    pub state: SegmentState,
    /// Data shards.
    pub data_shards: u8,
    /// Parity shards.
    pub parity_shards: u8,
    /// Bytes of a unit.
    pub unit_bytes: u32,
    /// Its flushes that are durable, without the closing one: all of them, but of an open segment more may have followed.
    pub flushes: u32,
    /// Sequence of its first record.
    pub first_sequence: u64,
    /// Where its shards are now; one for each, on different drives.
    pub shards: Vec<ShardPlace>,
}

/// A segment that may be opened after the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedSegment {
    /// Which it will be.
    pub id: SegmentId,
    /// Data shards.
    pub data_shards: u8,
    /// Parity shards.
    pub parity_shards: u8,
    /// Bytes of a unit.
    pub unit_bytes: u32,
    /// Where its shards will be; one for each, on different drives.
    pub shards: Vec<ShardPlace>,
}

/// Neighbouring ordinals of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrdinalRange {
    /// The first.
    pub start: u64,
    /// How many; at least 1.
    pub length: u64,
}

/// The events of a run in this lane that are rejected, deleted or released by all streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedRun {
    /// The run.
    pub run: RunId,
    /// No event of it will come any more.
    pub closed: bool,
    /// Ordinals of its finished events, ascending, never touching.
    pub ranges: Vec<OrdinalRange>,
}

/// What was decided on accepted events whose records no segment needs to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DecisionSet {
    /// The streams that want the events, as bits by number.
    pub accepted: u64,
    /// Those of them that are done with the events: not all.
    pub released: u64,
    /// Accepted although fragments were missing.
    pub incomplete: bool,
}

/// Neighbouring events of which the same was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecidedRange {
    /// The number of the first.
    pub first: u64,
    /// How many; at least 1.
    pub length: u32,
    /// What was decided: the place in [`CheckpointBody::decision_sets`].
    pub set: u32,
}

/// The accepted events of a run that the checkpoint keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecidedRun {
    /// The run.
    pub run: RunId,
    /// Ascending, none in two.
    pub ranges: Vec<DecidedRange>,
}

/// The state of a lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointBody {
    /// Sequence of the record that is written next.
    pub next_record_sequence: u64,
    /// No segment with a higher number in the lane was planned; see [`SegmentId::counter`].
    pub next_segment_counter: u64,
    /// Segments that exist.
    pub live: Vec<SegmentEntry>,
    /// Segments that may be opened before the next checkpoint.
    pub planned: Vec<PlannedSegment>,
    /// Finished events; runs ascending.
    pub finished: Vec<FinishedRun>,
    /// Names of the streams. The number of a stream is its place in here, for the whole life of the lane:
    /// names are only ever added at the end. Records hold sets of streams as bits by number, so a name must
    /// stand in a durable checkpoint before any record uses its number.
    pub streams: Vec<StreamName>,
    /// What [`CheckpointBody::decided`] speaks of; each once.
    pub decision_sets: Vec<DecisionSet>,
    /// Accepted events that are known from here alone; runs ascending. Records in segments may add releases.
    pub decided: Vec<DecidedRun>,
    /// Counters of the operator's statistics; numbers ascending.
    pub counters: Vec<(u16, u64)>,
}

mod body;
