//! The state of a lane, for an operator.

use serde::Serialize;

use super::LaneCounters;

/// What lay on drives that are gone, and how far it is made anew.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RebuildStatus {
    /// Shards that segments with something alive in them lack.
    pub shards_missing: u64,
    /// Bytes that are to be written for them, about.
    pub bytes_left: u64,
    /// Segments that are worked on or wait.
    pub segments_waiting: u64,
    /// Nothing is missing: what is stored, and the checkpoint that says where, lies on members alone.
    pub is_whole: bool,
    /// Segments of which something is missing that the drives that answer do not give: a drive that comes back may.
    pub segments_stuck: u64,
    /// What those that wait are waiting for, when it is not their turn: `a drive`, when no member is left that holds none of a segment, or `space`.
    pub waits_for: Option<&'static str>,
    /// Segments made whole since the start.
    pub segments_rebuilt: u64,
    /// Bytes read for it since the start.
    pub bytes_read: u64,
    /// Bytes written for it since the start.
    pub bytes_written: u64,
}

/// What was looked at since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ScrubStatus {
    /// Every closed segment is looked at once in so many seconds; 0: never.
    pub period_s: u64,
    /// Segments looked at.
    pub segments_checked: u64,
    /// Bytes read for it.
    pub bytes_read: u64,
    /// Flushes in which everything damaged was written again.
    pub flushes_mended: u64,
    /// Flushes in which something damaged could not be.
    pub flushes_not_mended: u64,
    /// Rows that are damaged on more drives than parity can mend.
    pub units_lost: u64,
    /// Segments that an operator wants looked at and that are not yet; one more until all is mended, and what of it is lost listed.
    pub segments_asked: u64,
    /// Closed segments that hold something alive, all of which this round looks at.
    pub round_segments: u64,
    /// Of these, looked at in this round, or written since it began.
    pub round_segments_checked: u64,
    /// Seconds since the last whole round ended; absent when none has since the start.
    pub round_ended_s: Option<f64>,
}

/// What was moved to make room since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CompactionStatus {
    /// Whether a segment is being emptied.
    pub is_running: bool,
    /// Fragments that lie elsewhere now, as records of their own.
    pub fragments_moved: u64,
    /// Records of files that lie elsewhere now.
    pub pieces_moved: u64,
    /// Accepted events that lie elsewhere now, each as one record.
    pub events_joined: u64,
    /// Their bytes, and those of copies that were not needed any more when they were durable.
    pub bytes_moved: u64,
    /// Segments that are not emptied because something in them cannot be read.
    pub segments_stuck: u64,
}

/// What is stored and cannot be read now, as too few of its drives answer. Nothing is known to be wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OutOfReach {
    /// Segments in which something lives, without those that could not be read at the start.
    pub segments: u64,
    /// Bytes of the fragments in them.
    pub bytes: u64,
    /// Drives that do not answer and hold shards of them, or of what the start could not read: these would bring it back.
    pub drives: Vec<u16>,
}

/// What a lane knows of a drive: what it has there, and what was found wrong since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DriveHealth {
    /// The number of the drive.
    pub drive: u16,
    /// Segments that have a shard on it: with something alive, or emptied and named by the newest checkpoint still.
    pub segments_alive: u64,
    /// Units that were not what was written.
    pub units_damaged: u64,
    /// Units that the drive did not give.
    pub units_unreadable: u64,
    /// Headers of flushes that were not what was written, or not given.
    pub headers_damaged: u64,
    /// Of all these, written again.
    pub mended: u64,
    /// Reads that failed.
    pub reads_failed: u64,
}

/// The state of a lane, for an operator.
#[derive(Clone, Debug, Serialize)]
pub struct LaneStatus {
    /// The number of the lane.
    pub lane: u16,
    /// One of `recovering`, `serving`, `stopping`, `stopped`, `unavailable`, `read-only`.
    pub state: &'static str,
    /// Why it is unavailable.
    pub reason: Option<String>,
    /// Events that are here.
    pub events: u64,
    /// Of these, not decided.
    pub events_undecided: u64,
    /// Of these, accepted and not released by all of their streams.
    pub events_accepted: u64,
    /// Events that are over.
    pub events_finished: u64,
    /// Fragments that are here.
    pub fragments: u64,
    /// Their bytes.
    pub fragment_bytes: u64,
    /// Files that are here, those included in which the server keeps the names of all others.
    pub files: u64,
    /// Of these, not sealed.
    pub files_unsealed: u64,
    /// Bytes that were written of files and count.
    pub file_bytes: u64,
    /// Memory of the index: of all that the lane knows of fragments, events, files, flushes and segments.
    pub index_bytes: u64,
    /// Memory of the cache.
    pub cache_bytes: u64,
    /// Memory of index, cache, and buffers of flushes and reads together.
    pub memory_bytes: u64,
    /// Segments that hold data.
    pub segments: u64,
    /// Free slots of the lane over all member drives.
    pub slots_free: u64,
    /// Slots of the lane over all member drives.
    pub slots_total: u64,
    /// Segments that the slots make even when the drives fail that may; none when nothing can be written.
    pub segments_total: u64,
    /// Segments that fragments may still take, the one that is being filled not counted.
    pub segments_free: u64,
    /// Segments that fragments may not take: a full lane can be emptied, and can start.
    pub segments_reserved: u64,
    /// Payload that fits the segments that fragments may take altogether, about.
    pub capacity_bytes: u64,
    /// Payload that fits those of them that are free, about.
    pub free_bytes: u64,
    /// What `index_bytes` may become.
    pub index_bytes_max: u64,
    /// What `cache_bytes` may become.
    pub cache_bytes_max: u64,
    /// Drives that it writes to.
    pub drives_written: Vec<u16>,
    /// Drives that it reads from, those that it writes to among them.
    pub drives_read: Vec<u16>,
    /// Data and parity shards of new segments; absent when nothing can be written, and when nothing is, as the lane was started for reading alone.
    pub width: Option<(u8, u8)>,
    /// How many more drives may fail before something acknowledged is out of reach; absent when nothing is stored.
    pub failures_left: Option<u8>,
    /// What is stored and cannot be read now, as too few of its drives answer.
    pub out_of_reach: OutOfReach,
    /// Flushes that were found after an unclean stop and could not be put together because drives were absent: perhaps acknowledged.
    pub flushes_possibly_lost: u64,
    /// Flushes that were acknowledged and that the start could not put together because drives were absent: out of reach, and not lost.
    pub flushes_unavailable: u64,
    /// Flushes that were acknowledged and are damaged on more drives than parity can mend: what they held is lost.
    pub flushes_lost: u64,
    /// Segments that could not be read at start: all of their records are lost or out of reach.
    pub segments_unreadable: u64,
    /// Of these, segments of which drives were absent: out of reach, and not lost as far as that can be known.
    pub segments_unavailable: u64,
    /// Fragments that are known to be lost, of events that are not over; [`Lane::losses`](crate::Lane::losses) names them.
    pub fragments_known_lost: u64,
    /// The event that has waited longest for a decision was whole at least so long ago, in seconds; absent when there is none, or when it was
    /// written is not known.
    pub oldest_undecided_s: Option<f64>,
    /// The same of the accepted event that was not shipped for longest.
    pub oldest_accepted_s: Option<f64>,
    /// What lay on drives that are gone.
    pub rebuild: RebuildStatus,
    /// What was looked at.
    pub scrub: ScrubStatus,
    /// What was moved to make room.
    pub compaction: CompactionStatus,
    /// Drives that hold something alive, or on which something was found wrong since the start.
    pub drive_health: Vec<DriveHealth>,
    /// Counters since the start.
    pub counters: LaneCounters,
}
