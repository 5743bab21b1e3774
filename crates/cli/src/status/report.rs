//! The server's status as far as the screen needs it. What an older server does not tell is zero.

use serde::Deserialize;

/// The state of a server.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Name and version.
    pub server: String,
    /// The store.
    pub store: String,
    /// Counts the starts of the store.
    pub epoch: u64,
    /// Seconds since the start.
    pub uptime_s: f64,
    /// One word for all lanes.
    pub state: String,
    /// Data shards at full width.
    pub data_shards: u8,
    /// Parity shards.
    pub parity_shards: u8,
    /// The drives.
    pub drives: Vec<Drive>,
    /// Drives that failed since the start.
    pub drives_failed: u64,
    /// Whether it was started for reading alone.
    pub read_only: bool,
    /// Whether the store was stopped in order before this start.
    pub started_clean: bool,
    /// What an operator should know.
    pub warnings: Vec<String>,
    /// The cluster that the store stands on, when it stands on one.
    pub cluster: Option<Cluster>,
    /// What is wrong, as the server finds.
    pub alarms: Vec<Alarm>,
    /// The lanes.
    pub lanes: Vec<Lane>,
    /// Sums over the lanes.
    pub totals: Totals,
    /// Runs that were declared; none of an older server.
    pub runs: Option<Runs>,
    /// Connections by what their clients are for.
    pub connections: Connections,
}

/// The cluster that a store stands on.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Cluster {
    /// Its own word.
    pub health: Option<String>,
    /// What is wrong, in its own words.
    pub checks: Vec<String>,
    /// Bytes that the pool still takes.
    pub available_bytes: Option<u64>,
    /// Bytes that it holds.
    pub stored_bytes: Option<u64>,
    /// Seconds since it answered.
    pub asked_s_ago: Option<f64>,
}

/// An alarm that is raised.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Alarm {
    /// Its stable code, and the same in a word.
    pub code: String,
    /// See `code`.
    pub name: String,
    /// What it means for the data: `safe`, `less-protected`, `at-risk`, `refused` or `lost`.
    pub effect: String,
    /// What is so.
    pub words: String,
    /// What to type first.
    pub command: String,
    /// Where it is told what to do.
    pub runbook: String,
}

/// Runs that were declared.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Runs {
    /// Those that were not started.
    pub declared: u64,
    /// Those that run.
    pub running: u64,
    /// Those that are stopped and not closed.
    pub stopped: u64,
    /// Those that are closed.
    pub closed: u64,
    /// Those that are discarded.
    pub discarded: u64,
    /// Of all of these, those that somebody holds.
    pub held: u64,
    /// The first that run.
    pub running_runs: Vec<u32>,
    /// The first that are stopped and not closed.
    pub stopped_runs: Vec<u32>,
    /// The first that are held.
    pub held_runs: Vec<u32>,
}

/// A drive.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Drive {
    /// Its number.
    pub number: u16,
    /// Where it is.
    pub path: Option<String>,
    /// `member`, `failed`, `retired`, `out`, `absent` or `gone`.
    pub state: String,
    /// Segments that have a shard on it; absent when that is not known yet.
    pub segments_alive: Option<u64>,
    /// Why it was taken out.
    pub reason: Option<String>,
    /// Bytes written to it since the start.
    pub bytes_written: u64,
    /// The same for each byte of payload.
    pub written_per_payload_byte: Option<f64>,
    /// Operations that failed.
    pub write_errors: u64,
    /// See `write_errors`.
    pub read_errors: u64,
    /// Units that were damaged on it, those that stay so once more whenever they were met.
    pub units_damaged: u64,
    /// Of what was damaged on it, written again.
    pub units_mended: u64,
    /// How long a write took in the last minute.
    pub write_latency_s: Option<f64>,
    /// How much of its life is over, as the drive says.
    pub used_percent: Option<u8>,
    /// Seconds until it has written what it was made for.
    pub worn_out_in_s: Option<f64>,
    /// The drive itself has counted what was ever written to it.
    pub is_lifetime_known: bool,
}

/// A lane.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Lane {
    /// Its number.
    pub lane: u16,
    /// What it does.
    pub state: String,
    /// Data and parity shards of new segments.
    pub width: Option<(u8, u8)>,
    /// How many more drives may fail before something stored in it is out of reach; absent when nothing is.
    pub failures_left: Option<u8>,
    /// What of it cannot be read now.
    pub out_of_reach: OutOfReach,
    /// Drives that it writes to, and reads from.
    pub drives_written: Vec<u16>,
    /// See `drives_written`.
    pub drives_read: Vec<u16>,
    /// What is made anew in it.
    pub rebuild: Rebuild,
    /// What is looked at in it.
    pub scrub: Scrub,
    /// What is moved in it to make room.
    pub compaction: Compaction,
}

/// What is stored and cannot be read now, as too few of its drives answer; of a lane, or summed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct OutOfReach {
    /// Segments that were read at the start.
    pub segments: u64,
    /// Bytes of the fragments in them.
    pub bytes: u64,
    /// Of a lane: drives that would bring it.
    pub drives: Vec<u16>,
}

/// What is moved to make room; of a lane, or summed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Compaction {
    /// Of a lane: a segment is emptied.
    pub is_running: bool,
    /// Fragments that were moved.
    pub fragments_moved: u64,
    /// Accepted events that were moved, each as one record.
    pub events_joined: u64,
    /// Bytes that were written for it.
    pub bytes_moved: u64,
    /// Segments that cannot be emptied.
    pub segments_stuck: u64,
}

/// What lay on drives that are gone; of a lane, or summed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Rebuild {
    /// Shards that lie on no member.
    pub shards_missing: u64,
    /// Bytes that are to be written for them.
    pub bytes_left: u64,
    /// Segments that are worked on or wait.
    pub segments_waiting: u64,
    /// Segments of which something is missing that cannot be made.
    pub segments_stuck: u64,
    /// What is waited for.
    pub waits_for: Option<String>,
    /// Of a lane: nothing is missing, and nothing is named on a drive that is out.
    pub is_whole: bool,
}

impl Rebuild {
    /// Whether something is missing, and nothing needed to make it.
    pub fn goes_on(&self) -> bool {
        self.shards_missing > 0 && self.waits_for.is_none() && !self.is_stuck()
    }

    /// Whether all that is missing cannot be made.
    pub fn is_stuck(&self) -> bool {
        self.segments_stuck > 0 && self.segments_waiting == 0
    }
}

/// What is looked at; of a lane, or summed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Scrub {
    /// Everything is looked at once in so many seconds; 0: never.
    pub period_s: u64,
    /// Segments that this round looks at.
    pub round_segments: u64,
    /// Of these, those that were.
    pub round_segments_checked: u64,
    /// Seconds since the last whole round.
    pub round_ended_s: Option<f64>,
    /// Flushes that were mended, and that could not be.
    pub flushes_mended: u64,
    /// See `flushes_mended`.
    pub flushes_not_mended: u64,
}

/// Sums over the lanes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Events that no filter has decided.
    pub events_undecided: u64,
    /// Events that are accepted and not released.
    pub events_accepted: u64,
    /// Events that are over.
    pub events_finished: u64,
    /// The oldest undecided event has waited for at least so long.
    pub oldest_undecided_s: Option<f64>,
    /// The same of accepted events that are not shipped.
    pub oldest_accepted_s: Option<f64>,
    /// Fragments.
    pub fragments: u64,
    /// Their bytes.
    pub fragment_bytes: u64,
    /// Files, those included that keep the names of all others.
    pub files: u64,
    /// Of these, not sealed.
    pub files_unsealed: u64,
    /// Bytes of files.
    pub file_bytes: u64,
    /// Files that clients have open.
    pub files_open: u64,
    /// Names of files, directories and links.
    pub names: u64,
    /// Memory of the names.
    pub names_bytes: u64,
    /// What that may become.
    pub names_bytes_max: u64,
    /// Memory of the index.
    pub index_bytes: u64,
    /// What that may become.
    pub index_bytes_max: u64,
    /// Memory of the cache.
    pub cache_bytes: u64,
    /// What that may become.
    pub cache_bytes_max: u64,
    /// Memory of what arrived and no lane has taken yet.
    pub staging_bytes: u64,
    /// What that may become.
    pub staging_bytes_max: u64,
    /// Payload that fits the segments that fragments may take altogether; 0 when not known.
    pub capacity_bytes: u64,
    /// Payload that fits those of them that are free.
    pub free_bytes: u64,
    /// Segments that fragments may still take.
    pub segments_free: u64,
    /// Segments that fragments may not take.
    pub segments_reserved: u64,
    /// Seconds until a lane is full at the rates of the last minute.
    pub time_left_s: Option<f64>,
    /// Whose reads from the drives are slowed in the fullest lane: `none`, `monitors-slowed`, `movers-slowed` or `filters-slowed`.
    pub pressure: String,
    /// How long writers are asked to wait after each put.
    pub put_wait_ms: Option<u64>,
    /// Over the last minute.
    pub rates: Rates,
    /// Segments that hold data.
    pub segments: u64,
    /// What cannot be read now.
    pub out_of_reach: OutOfReach,
    /// Flushes of the last moments before an unclean stop that could not be put together because drives were absent.
    pub flushes_possibly_lost: u64,
    /// Acknowledged flushes that could not, for the same reason.
    pub flushes_unavailable: u64,
    /// Acknowledged flushes that are damaged beyond repair.
    pub flushes_lost: u64,
    /// Segments that could not be read at start.
    pub segments_unreadable: u64,
    /// Of these, those of which drives were absent.
    pub segments_unavailable: u64,
    /// Fragments that are known to be lost.
    pub fragments_known_lost: u64,
    /// What lay on drives that are gone.
    pub rebuild: Rebuild,
    /// Seconds until all that can be made anew is.
    pub rebuild_left_s: Option<f64>,
    /// What is looked at.
    pub scrub: Scrub,
    /// What is moved to make room.
    pub compaction: Compaction,
    /// Counters since the start.
    pub counters: Counters,
}

impl Totals {
    /// Whether something is lost, or perhaps.
    pub fn has_losses(&self) -> bool {
        let unreadable = self.segments_unreadable.saturating_sub(self.segments_unavailable);
        self.fragments_known_lost + self.flushes_lost + self.flushes_possibly_lost + unreadable > 0
    }

    /// Whether something is out of reach, and not lost.
    pub fn is_out_of_reach(&self) -> bool {
        self.out_of_reach.segments + self.flushes_unavailable + self.segments_unavailable > 0
    }
}

impl Report {
    /// Drives that would bring what is out of reach.
    pub fn drives_needed(&self) -> Vec<u16> {
        let mut drives: Vec<u16> = self.lanes.iter().flat_map(|lane| lane.out_of_reach.drives.clone()).collect();
        drives.sort_unstable();
        drives.dedup();
        drives
    }
}

/// What comes and goes, over the last minute.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Rates {
    /// Payload that became durable, in bytes a second.
    pub stored_bytes_per_s: u64,
    /// Payload of events that are over, in bytes a second.
    pub freed_bytes_per_s: u64,
    /// Bytes written to drives, in bytes a second.
    pub media_bytes_per_s: u64,
    /// Fragments read a second.
    pub fragments_read_per_s: u64,
    /// Bytes written to make shards anew, a second.
    pub rebuilt_bytes_per_s: u64,
    /// Bytes read to look at what is stored, a second.
    pub scrubbed_bytes_per_s: u64,
}

/// Counters since the start.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Fragments made durable.
    pub fragments_stored: u64,
    /// Their bytes.
    pub fragment_bytes_stored: u64,
    /// Of these, at less than the full width.
    pub fragments_stored_degraded: u64,
    /// Fragments stored with fewer parities than the store was made with, as an operator allowed.
    pub fragments_stored_less_parity: u64,
    /// Bytes of files made durable.
    pub file_bytes_stored: u64,
    /// Bytes of files read.
    pub file_bytes_read: u64,
    /// Of these, from memory.
    pub file_bytes_read_cached: u64,
    /// Puts for an event that was already decided.
    pub puts_late: u64,
    /// Puts refused because the id holds other content.
    pub puts_conflict: u64,
    /// Puts refused for want of space.
    pub puts_no_space: u64,
    /// Puts refused because the index is full.
    pub puts_index_full: u64,
    /// Events rejected.
    pub events_rejected: u64,
    /// Events accepted.
    pub events_accepted: u64,
    /// Events decided without all of their fragments.
    pub events_incomplete: u64,
    /// Events deleted.
    pub events_deleted: u64,
    /// Events that all of their streams have released.
    pub events_released: u64,
    /// Fragments read.
    pub fragments_read: u64,
    /// Of these, from memory.
    pub fragments_read_cached: u64,
    /// Of these, with the help of parity.
    pub fragments_read_degraded: u64,
    /// Fragments found damaged beyond repair.
    pub fragments_lost: u64,
    /// Units that were damaged.
    pub units_damaged: u64,
    /// Bytes written to drives.
    pub media_bytes_written: u64,
}

impl Counters {
    /// Bytes of fragments and of files made durable.
    pub fn payload_bytes_stored(&self) -> u64 {
        self.fragment_bytes_stored + self.file_bytes_stored
    }
}

/// Connections by class.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Connections {
    /// Writers of fragments.
    pub readout: u64,
    /// Filters.
    pub filter: u64,
    /// Recorders and movers.
    pub mover: u64,
    /// Those that look.
    pub monitor: u64,
}
