//! What `forebay doctor` tells, as the one object of `--json`; the screen is made from it. The words are explained in `docs/doctor.md`.

use forebay_types::{RunRecord, StreamVersion};
use serde::Serialize;

/// Ids that a report lists of each kind; the rest is counted.
pub const LISTED_MAX: usize = 10_000;

/// Damaged places that are listed of one shard.
pub const DAMAGE_LISTED_MAX: usize = 64;

/// The whole report.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub verdict: Verdict,
    /// The store; absent when no drive of one was found.
    pub store: Option<String>,
    /// Only headers and tables were read.
    pub quick: bool,
    pub drives: Vec<Drive>,
    pub drives_missing: Vec<MissingDrive>,
    /// Drives that were taken out earlier and are not there, and on which nothing that is stored lies: nobody misses them.
    pub drives_left: Vec<MissingDrive>,
    pub geometry: Option<Geometry>,
    pub last_start: Option<LastStart>,
    pub lanes: Vec<Lane>,
    /// Runs that were declared, as `forebay run show --json` has them.
    pub runs: Vec<RunRecord>,
    /// The newest version of each stream that was defined.
    pub streams: Vec<StreamVersion>,
    pub readable: Readable,
    pub start: Start,
    pub warnings: Vec<String>,
    pub export: Option<Exported>,
}

/// All in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// All is there, as it was written.
    #[default]
    Whole,
    /// All can be read; some of it only with the help of parity, or a copy of something is damaged.
    Repairable,
    /// Something is out of reach as long as drives are missing.
    OutOfReach,
    /// Something is lost.
    Lost,
    /// None of the drives belongs to a store that can be read.
    NoStore,
}

/// A drive that was named.
#[derive(Debug, Default, Serialize)]
pub struct Drive {
    pub path: String,
    /// `member`, `out`, `other-store`, `never-joined`, `copy`, `other-history`, `newer`, `no-superblock`, `not-opened` or `silent`.
    pub state: &'static str,
    pub number: Option<u16>,
    pub uuid: Option<String>,
    pub store: Option<String>,
    pub bytes: Option<u64>,
    /// How many it had when the store was made, when it has fewer now.
    pub cut_off_from_bytes: Option<u64>,
    /// Of its newest superblock.
    pub generation: Option<u64>,
    pub superblocks_damaged: Vec<SuperblockDamage>,
    /// What an operator should know of it.
    pub reason: Option<String>,
}

/// A place for a superblock that holds none.
#[derive(Debug, Serialize)]
pub struct SuperblockDamage {
    pub offset_bytes: u64,
    pub reason: String,
}

/// A drive of the store that was not named, or gave no superblock.
#[derive(Debug, Serialize)]
pub struct MissingDrive {
    pub number: u16,
    pub uuid: String,
    pub member: bool,
    pub bytes: u64,
    /// Segments that hold something and have a shard on it.
    pub segments: u64,
}

/// How the store is laid out.
#[derive(Debug, Serialize)]
pub struct Geometry {
    pub data_shards: u8,
    pub parity_shards: u8,
    pub data_shards_min: u8,
    pub lanes: u16,
    pub unit_bytes: u32,
    pub slot_bytes: u64,
    pub checkpoint_bytes: u64,
    pub fragment_bytes_max: u32,
    pub created_unix_s: u64,
    /// Of the format on its drives (`docs/format.md`).
    pub format_version: u16,
}

/// The newest start that the drives know.
#[derive(Debug, Serialize)]
pub struct LastStart {
    pub epoch: u64,
    pub generation: u64,
    pub membership: u64,
    /// The store was stopped in order.
    pub clean: bool,
    /// The version of the program that started it, when the drives tell.
    pub program: Option<String>,
}

/// One lane.
#[derive(Debug, Default, Serialize)]
pub struct Lane {
    pub lane: u16,
    /// Why nothing of it can be read; absent when it can.
    pub unreadable: Option<String>,
    pub checkpoint: Option<Checkpoint>,
    pub checkpoints_damaged: Vec<CheckpointDamage>,
    pub segments: Vec<Segment>,
    pub contents: Contents,
    pub readable: Readable,
    pub start: LaneStart,
}

/// The checkpoint of a lane that counts.
#[derive(Debug, Serialize)]
pub struct Checkpoint {
    pub drive: u16,
    pub epoch: u64,
    pub sequence: u64,
    /// The newest one before it that is whole on some drive.
    pub sequence_before: Option<u64>,
    /// Drives that hold it whole.
    pub drives: usize,
    /// Drives whose newest whole one is older.
    pub drives_behind: Vec<u16>,
}

/// A place for a checkpoint that gives none.
#[derive(Debug, Serialize)]
pub struct CheckpointDamage {
    pub drive: u16,
    pub place: u64,
    pub offset_bytes: u64,
    pub reason: String,
}

/// A segment that the checkpoint lists.
#[derive(Debug, Serialize)]
pub struct Segment {
    pub segment: String,
    /// As what the checkpoint lists it: `open`, `closed`, `walk` or `planned`.
    pub state: forebay_engine::Listed,
    /// `table`, `walked`, `unreadable` or `empty`.
    pub found: forebay_engine::Found,
    pub data_shards: u8,
    pub parity_shards: u8,
    /// Without the closing one.
    pub flushes: usize,
    /// Flushes that a start would write again.
    pub flushes_torn: Vec<u32>,
    /// What a start does with it: `stays`, `closed` (it gets its closing flush), `freed` (nothing lives in it), or `unused`.
    pub at_start: &'static str,
    pub live_records: u64,
    pub live_bytes: u64,
    pub shards: Vec<Shard>,
}

/// What one drive holds of a segment.
#[derive(Debug, Serialize)]
pub struct Shard {
    pub drive: u16,
    pub slot: u32,
    /// `whole`, `damaged`, `missing` (its drive is), `unreadable` (nothing of the segment can be read) or `unused`.
    pub state: &'static str,
    pub damage: Vec<Damage>,
    pub damage_left_out: u64,
}

/// A place on a drive that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Damage {
    /// Absent in the closing flush.
    pub flush: Option<u32>,
    /// `header` or `units`.
    pub what: &'static str,
    /// The first row, of units.
    pub row: u32,
    pub rows: u32,
    /// On the drive.
    pub offset_bytes: u64,
    pub bytes: u64,
    /// The drive does not give it; else it gives something else.
    pub read_failed: bool,
}

/// What lives.
#[derive(Debug, Default, Serialize)]
pub struct Contents {
    pub events: u64,
    pub events_undecided: u64,
    pub events_accepted: u64,
    pub events_finished: u64,
    pub fragments: u64,
    pub fragment_bytes: u64,
    /// Those included that keep the names of all others.
    pub files: u64,
    pub file_bytes: u64,
    pub runs: Vec<Run>,
    pub streams: Vec<Stream>,
}

/// A run.
#[derive(Debug, Default, Serialize)]
pub struct Run {
    pub run: u32,
    pub events: u64,
    pub events_undecided: u64,
    pub events_finished: u64,
    pub first_event: Option<u64>,
    pub last_event: Option<u64>,
}

/// Accepted events that wait for being shipped.
#[derive(Debug, Serialize)]
pub struct Stream {
    pub stream: String,
    pub events: u64,
}

/// What these drives give, if they were all there is.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Readable {
    pub fragments: u64,
    pub fragments_readable: u64,
    /// Out of reach as long as drives are missing.
    pub fragments_unavailable: u64,
    pub bytes_unavailable: u64,
    pub fragments_lost: u64,
    pub bytes_lost: u64,
    /// Files of which a part is out of reach as long as drives are missing.
    pub files_unavailable: u64,
    /// Files of which a part is lost.
    pub files_lost: u64,
    /// What of the names of files cannot be read, in words.
    pub names_damaged: Vec<String>,
    pub unavailable: Vec<String>,
    pub unavailable_by: Vec<UnavailableBy>,
    pub lost: Vec<String>,
    /// Ids that are not listed for want of room.
    pub left_out: u64,
    /// What is out of reach or lost, and no table tells what it was.
    pub unknown: Vec<Unknown>,
    /// What was perhaps acknowledged.
    pub possibly_acknowledged: Vec<Unknown>,
}

/// Which drives would bring back how much.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UnavailableBy {
    /// So many of `drives` are needed.
    pub needed: usize,
    pub drives: Vec<u16>,
    pub fragments: u64,
    pub bytes: u64,
}

/// Records of which only the header of their flush, or nothing, is known.
#[derive(Clone, Debug, Serialize)]
pub struct Unknown {
    pub lane: u16,
    pub segment: Option<String>,
    pub flush: Option<u32>,
    /// `lost` or `unavailable`.
    pub state: &'static str,
    /// Flushes, when it is more than one.
    pub flushes: u64,
    /// Absent when not known.
    pub records: Option<u32>,
    pub runs: Option<(u32, u32)>,
    pub events: Option<(u64, u64)>,
    /// Missing drives that may bring it.
    pub drives: Vec<u16>,
}

/// What a start for writing with these drives would do now; when it is refused, what it would do if it were not.
#[derive(Debug, Default, Serialize)]
pub struct Start {
    /// Why it would be refused; empty when it would not.
    pub refused: Vec<String>,
    /// Members that it would take out.
    pub members_taken_out: Vec<u16>,
    pub segments_closed: u64,
    pub segments_freed: u64,
    pub flushes_written_again: u64,
    pub records_written_again: u64,
    pub flushes_discarded: u64,
    /// Shards of live segments on drives that were taken out: it would make them anew on members, when there are enough.
    pub shards_made_anew: u64,
}

/// What it would do in one lane.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LaneStart {
    /// Segments that it would close.
    pub segments_closed: u64,
    /// Segments in which nothing lives: the next checkpoint leaves them out.
    pub segments_freed: u64,
    pub flushes_written_again: u64,
    /// In them, at most.
    pub records_written_again: u64,
    /// Flushes that were never acknowledged.
    pub flushes_discarded: u64,
    /// Shards of live segments on drives that were taken out.
    pub shards_made_anew: u64,
}

/// What was written to the directory.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Exported {
    pub directory: String,
    /// In the index.
    pub events_listed: u64,
    /// Of which at least one fragment was written.
    pub events: u64,
    /// Of which every fragment that is stored was written.
    pub events_whole: u64,
    /// That were put together, too.
    pub events_joined: u64,
    pub fragments: u64,
    pub bytes: u64,
    /// Fragments that could not be read.
    pub fragments_missing: u64,
    /// Of these, lost; the others are unavailable.
    pub fragments_lost: u64,
    /// Files that were written as they are in the store, and bytes of all that were written.
    pub files: u64,
    pub file_bytes: u64,
    /// Files of which a part is lost or may be, and those of which a part is out of reach or may be.
    pub files_lost: u64,
    pub files_unavailable: u64,
    /// It stopped before all was written.
    pub stopped: bool,
}
