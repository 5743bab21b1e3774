//! What the store knows of an event, as far as the words need it. What an older server does not tell is empty.

use serde::Deserialize;

/// All of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Trace {
    /// The lane that the event belongs to.
    pub lane: u16,
    /// `unknown`, `undecided`, `leased`, `accepted` or `over`.
    pub state: String,
    /// `rejected`, `deleted` or `released`, when the event is over and that is remembered.
    pub end: Option<String>,
    /// Fragments that it should have; 0 unknown.
    pub expected: u16,
    /// Those that are here.
    pub fragments: Vec<Fragment>,
    /// How many are in one record, when compaction wrote them so.
    pub in_one_record: Option<u32>,
    /// Sources that are missing, when the neighbours tell.
    pub missing_sources: Vec<u32>,
    /// Where the fragments lie.
    pub flushes: Vec<Flush>,
    /// It is offered to filters.
    pub is_offered: bool,
    /// How often it was leased.
    pub attempts: u8,
    /// Seconds until its lease ends.
    pub lease_left_s: Option<f64>,
    /// A decision is on its way to the drives.
    pub is_deciding: bool,
    /// It was accepted without some of its sources.
    pub is_incomplete: bool,
    /// The streams that it was accepted into.
    pub streams: Vec<Stream>,
    /// Puts that came when it was decided.
    pub late_puts: Vec<LatePut>,
    /// What is known of its run.
    pub run_known: Option<Run>,
}

/// A fragment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Fragment {
    /// Its source.
    pub source: u32,
    /// Its size.
    pub bytes: u32,
    /// Its checksum.
    pub crc32c: u32,
    /// It is on stable media.
    pub is_durable: bool,
    /// It is known to be lost.
    pub is_lost: bool,
    /// Where it lies.
    pub segment: String,
    /// See `segment`.
    pub flush: Option<u32>,
}

/// A flush.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Flush {
    /// Its segment.
    pub segment: String,
    /// Its number there.
    pub flush: u32,
    /// When it was written.
    pub written_unix_ms: Option<u64>,
    /// Its width.
    pub data_shards: u8,
    /// See `data_shards`.
    pub parity_shards: u8,
    /// Each shard.
    pub shards: Vec<Shard>,
    /// How many more drives may fail; absent when too few are there.
    pub failures_left: Option<u8>,
}

/// A shard.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Shard {
    /// The drive.
    pub drive: u16,
    /// The slot on it.
    pub slot: u32,
    /// Where the flush begins on the drive.
    pub offset_bytes: u64,
    /// `there`, `drive-missing`, `unreadable`, `damaged` or `not-looked-at`.
    pub state: String,
}

/// A stream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Stream {
    /// Its name.
    pub name: String,
    /// It has the event elsewhere.
    pub is_released: bool,
}

/// A put that came too late.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LatePut {
    /// Its source.
    pub source: u32,
    /// Its size.
    pub bytes: u64,
    /// When it came.
    pub came_unix_ms: Option<u64>,
}

/// A run in the lane of the event.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Run {
    /// Events that are here.
    pub events: u64,
    /// Of these, not decided.
    pub undecided: u64,
    /// Events that are over.
    pub over: u64,
    /// Smallest and largest event here.
    pub range: Option<(u64, u64)>,
}
