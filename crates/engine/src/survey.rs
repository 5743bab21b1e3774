//! What recovery found, told to whoever looks at a store without starting it: which checkpoint counted, how each segment that it lists
//! was found, and what became of each flush that was followed.

use forebay_format::{
    CheckpointBody, CheckpointHeader, FlushHeader, FormatError, PLACES, PlannedSegment, SegmentId, SegmentState,
    ShardPlace,
};
use forebay_types::limits::BLOCK_BYTES;
use forebay_types::{DriveNumber, EventId, RunId};
use serde::Serialize;

use crate::api::{DriveInfo, LaneConfig};
use crate::io::Io;

/// What recovery found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The checkpoint that counts; `None` when none can be read.
    pub checkpoint: Option<CheckpointTaken>,
    /// Every segment that it lists, live ones first, then planned ones in the order in which they would be opened.
    pub segments: Vec<SegmentFound>,
}

/// The checkpoint that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CheckpointTaken {
    /// The drive that it was read from; other members hold the same.
    pub drive: DriveNumber,
    /// The start that wrote it.
    pub epoch: u64,
    /// Its number in the lane.
    pub sequence: u64,
}

/// How a checkpoint lists a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Listed {
    /// Live, and was being written.
    Open,
    /// Live and closed.
    Closed,
    /// Live, and to be followed flush after flush.
    Walk,
    /// It was to be opened next; it may have been since.
    Planned,
}

impl From<SegmentState> for Listed {
    fn from(state: SegmentState) -> Listed {
        match state {
            SegmentState::Open => Listed::Open,
            SegmentState::Closed => Listed::Closed,
            SegmentState::Walk => Listed::Walk,
        }
    }
}

/// How a segment was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Found {
    /// Its closing flush told all of it.
    Table,
    /// It was followed flush after flush.
    Walked,
    /// Nothing of it can be read, and there should be something.
    Unreadable,
    /// Nothing was written to it.
    Empty,
}

/// One segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFound {
    /// Its name.
    pub id: SegmentId,
    /// Data shards.
    pub data_shards: u8,
    /// Parity shards.
    pub parity_shards: u8,
    /// Bytes of a unit.
    pub unit_bytes: u32,
    /// Where its shards lie.
    pub shards: Vec<ShardPlace>,
    /// As what the checkpoint lists it.
    pub listed: Listed,
    /// Flushes that the checkpoint says are durable.
    pub flushes_listed: u32,
    /// How it was found.
    pub found: Found,
    /// The flushes that were followed; none when a table told all of them.
    pub flushes: Vec<FlushFound>,
    /// Flushes that were acknowledged and of which no drive that answers holds a header.
    pub flushes_without_header: u64,
}

/// A flush that was followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushFound {
    /// Its number in the segment.
    pub flush: u32,
    /// Where its header begins in the slot, in bytes.
    pub offset_bytes: u64,
    /// Its records.
    pub records: u32,
    /// Smallest and largest run of its records.
    pub runs: (RunId, RunId),
    /// Smallest and largest event of its records, of any run.
    pub events: (EventId, EventId),
    /// Whether it is known that it was acknowledged.
    pub durable: bool,
    /// What becomes of it.
    pub fate: FlushFate,
}

impl FlushFound {
    pub(crate) fn new(header: &FlushHeader, offset_bytes: u64, durable: bool, fate: FlushFate) -> FlushFound {
        FlushFound {
            flush: header.flush,
            offset_bytes,
            records: header.record_count,
            runs: (header.run_min, header.run_max),
            events: (header.event_min, header.event_max),
            durable,
            fate,
        }
    }
}

/// What becomes of a flush at a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlushFate {
    /// It stays where it is.
    Stays,
    /// Not all of its drives hold it, and enough of them do: its records are written again.
    Torn,
    /// Too few drives hold it and none is missing: it was never acknowledged.
    Discarded,
    /// Too few of the drives that answer hold it, and others could bring it. Unless it is known that it was acknowledged, it perhaps was.
    Unavailable,
    /// It is damaged beyond what parity can mend.
    Lost,
}

impl Findings {
    /// A segment whose turn it is.
    pub(crate) fn begin(&mut self, plan: &PlannedSegment, listed: Listed, flushes_listed: u32) {
        self.segments.push(SegmentFound {
            id: plan.id,
            data_shards: plan.data_shards,
            parity_shards: plan.parity_shards,
            unit_bytes: plan.unit_bytes,
            shards: plan.shards.clone(),
            listed,
            flushes_listed,
            found: Found::Empty,
            flushes: Vec::new(),
            flushes_without_header: 0,
        });
    }

    /// How the segment whose turn it is was found.
    pub(crate) fn found(&mut self, found: Found) {
        if let Some(segment) = self.segments.last_mut() {
            segment.found = found;
        }
    }

    /// Whether it is known what became of a flush.
    pub(crate) fn met(&self, segment: SegmentId, flush: u32) -> bool {
        let of = self.segments.iter().find(|found| found.id == segment);
        of.is_some_and(|of| of.found == Found::Table || of.flushes.iter().any(|found| found.flush == flush))
    }

    /// What following the segment whose turn it is gave.
    pub(crate) fn walked(&mut self, flushes: Vec<FlushFound>, without_header: u64) {
        if let Some(segment) = self.segments.last_mut() {
            (segment.flushes, segment.flushes_without_header) = (flushes, without_header);
        }
    }
}

/// A place for a checkpoint, on one drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointPlace {
    /// The drive.
    pub drive: DriveNumber,
    /// Which of its two places, 0 or 1.
    pub place: u64,
    /// Where it begins on the drive, in bytes.
    pub offset_bytes: u64,
    /// What is there.
    pub state: CheckpointState,
}

/// What a place for a checkpoint holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointState {
    /// A checkpoint, whole.
    Whole {
        /// The start that wrote it.
        epoch: u64,
        /// Its number in the lane.
        sequence: u64,
    },
    /// Zeros: never written.
    Empty,
    /// None that counts; why.
    Damaged(String),
    /// The drive does not give it; why.
    Unreadable(String),
}

/// Whether the header of a checkpoint belongs where it was found.
pub(crate) fn belongs(config: &LaneConfig, drive: &DriveInfo, offset_bytes: u64, header: &CheckpointHeader) -> bool {
    header.store == config.store
        && header.drive == drive.uuid
        && header.lane == config.lane
        && header.offset_bytes == offset_bytes
        && header.body_bytes <= config.geometry.checkpoint_bytes
}

/// Looks at every place for a checkpoint of the lane, on every drive that is there.
pub(crate) async fn checkpoint_places(io: Io, task: usize, config: LaneConfig) -> Vec<CheckpointPlace> {
    let mut places = Vec::new();
    for drive in config.drives.iter().filter(|drive| drive.present) {
        for place in 0..PLACES {
            let offset_bytes = config.geometry.layout(drive.slots).checkpoint_offset(config.lane, place);
            let state = checkpoint_place(&io, task, &config, drive, offset_bytes).await;
            places.push(CheckpointPlace { drive: drive.number, place, offset_bytes, state });
        }
    }
    places
}

async fn checkpoint_place(
    io: &Io,
    task: usize,
    config: &LaneConfig,
    drive: &DriveInfo,
    offset: u64,
) -> CheckpointState {
    let read = |offset, bytes| io.result(io.read(task, drive.number, offset, bytes));
    let block = match read(offset, BLOCK_BYTES).await {
        Ok(block) => block,
        Err(failure) => return CheckpointState::Unreadable(failure.to_string()),
    };
    let header = match CheckpointHeader::decode(&block) {
        Ok(header) => header,
        Err(FormatError::Magic { found: [0, 0, 0, 0, 0, 0, 0, 0], .. }) => return CheckpointState::Empty,
        Err(error) => return CheckpointState::Damaged(error.to_string()),
    };
    if !belongs(config, drive, offset, &header) {
        return CheckpointState::Damaged("it is one of another drive, lane or place".to_owned());
    }
    let bytes = (header.body_bytes as usize).next_multiple_of(BLOCK_BYTES).max(BLOCK_BYTES);
    match read(offset + BLOCK_BYTES as u64, bytes).await {
        Err(failure) => CheckpointState::Unreadable(failure.to_string()),
        Ok(body) => match CheckpointBody::decode(&header, &body[..header.body_bytes as usize]) {
            Ok(_) => CheckpointState::Whole { epoch: header.epoch, sequence: header.sequence },
            Err(error) => CheckpointState::Damaged(error.to_string()),
        },
    }
}
