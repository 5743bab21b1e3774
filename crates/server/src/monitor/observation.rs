//! What the monitor looks at: plain numbers, gathered by whoever drives it.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_engine::OutOfReach;
use forebay_store::{ControlStatus, DriveCounts};

use super::limits::UNCLEAN_START_TOLD;
use crate::pressure::Pressure;
use crate::smart::SmartReport;
use crate::status::LaneReport;

/// A drive of the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenDrive {
    pub(crate) number: u16,
    /// Where it is, if it is there.
    pub(crate) path: Option<String>,
    /// It is written to and trusted.
    pub(crate) in_use: bool,
    /// It was taken out before this start.
    pub(crate) left_earlier: bool,
    /// Segments that have a shard on it, as far as lanes know.
    pub(crate) segments_alive: u64,
    pub(crate) counts: DriveCounts,
    pub(crate) units_damaged: u64,
    /// What it says of itself, and what it was made for.
    pub(crate) smart: Option<SmartReport>,
    pub(crate) rated_bytes: Option<u64>,
}

/// A stream of accepted events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeenStream {
    /// Events that it has not released.
    pub(crate) waiting: u64,
    /// Events that it released since the start.
    pub(crate) released: u64,
}

impl SeenDrive {
    /// Whether it is missed: it is not in use, and it left since the start, or something lies on it still.
    pub(crate) fn is_missed(&self) -> bool {
        !self.in_use && (!self.left_earlier || self.segments_alive > 0)
    }
}

/// What is lost or out of reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeenLosses {
    pub(crate) flushes: u64,
    /// Segments that the start could not read though all of their drives are there.
    pub(crate) segments: u64,
    pub(crate) fragments: u64,
    /// Flushes that were perhaps acknowledged.
    pub(crate) flushes_possibly: u64,
    /// Segments and flushes that the start could not read for want of drives.
    pub(crate) segments_unavailable: u64,
    pub(crate) flushes_unavailable: u64,
    /// What is out of reach now beside these, and the drives that would bring all of it.
    pub(crate) out_of_reach: OutOfReach,
}

/// What a lane says of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenLane {
    pub(crate) lane: u16,
    pub(crate) state: &'static str,
    pub(crate) reason: Option<String>,
    pub(crate) failures_left: Option<u8>,
    /// What is stored lies on members alone.
    pub(crate) is_whole: bool,
    pub(crate) capacity_bytes: u64,
    pub(crate) free_bytes: u64,
    /// Segments that fragments may take, and those of them that are free.
    pub(crate) segments: u64,
    pub(crate) segments_free: u64,
    pub(crate) time_left_s: Option<f64>,
    pub(crate) pressure: Pressure,
    pub(crate) put_wait_ms: u32,
    pub(crate) puts_no_space: u64,
    pub(crate) puts_index_full: u64,
    pub(crate) index_bytes: u64,
    pub(crate) index_bytes_max: u64,
    pub(crate) undecided: u64,
    pub(crate) accepted: u64,
    /// How long an undecided event, and one that is accepted and not shipped, has waited at least, as the drives tell.
    pub(crate) oldest_undecided: Option<Duration>,
    pub(crate) oldest_accepted: Option<Duration>,
    /// Since the start: decisions, deletions, and events that were lent to filters.
    pub(crate) accepted_since: u64,
    pub(crate) ended_since: u64,
    pub(crate) leased_since: u64,
    pub(crate) streams: BTreeMap<String, SeenStream>,
    pub(crate) units_damaged: u64,
    /// Of the damaged units, those that were written again.
    pub(crate) units_mended: u64,
    pub(crate) lost: SeenLosses,
}

/// What a store stands on, when that is a cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenCluster {
    pub(crate) name: String,
    /// In its own words.
    pub(crate) health: Option<String>,
    /// What is wrong, each with its name before a colon.
    pub(crate) checks: Vec<String>,
    /// Bytes that the pool still takes, and those that it holds.
    pub(crate) available_bytes: Option<u64>,
    pub(crate) stored_bytes: Option<u64>,
    /// How long nothing has been heard of it.
    pub(crate) silent: Duration,
}

/// A look at the whole server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observation {
    /// Drives that a segment at full width takes; 0 when not known.
    pub(crate) shards: u8,
    pub(crate) parity_shards: u8,
    pub(crate) started_clean: bool,
    /// How long the server has run.
    pub(crate) uptime: Duration,
    /// The server is being stopped: what stands still does so on purpose.
    pub(crate) stopping: bool,
    /// The server was started for reading alone.
    pub(crate) read_only: bool,
    /// Why nothing can be written.
    pub(crate) failure: Option<String>,
    pub(crate) drives: Vec<SeenDrive>,
    pub(crate) lanes: Vec<SeenLane>,
    /// Lanes that did not answer in time.
    pub(crate) silent_lanes: Vec<u16>,
    pub(crate) cluster: Option<SeenCluster>,
}

impl SeenLane {
    fn of(report: &LaneReport) -> SeenLane {
        let status = &report.status;
        let counters = &status.counters;
        let stream = |stream: &crate::status::StreamReport| SeenStream {
            waiting: stream.events_waiting,
            released: stream.events_released,
        };
        SeenLane {
            lane: status.lane,
            state: status.state,
            reason: status.reason.clone(),
            failures_left: status.failures_left,
            is_whole: status.rebuild.is_whole,
            capacity_bytes: status.capacity_bytes,
            free_bytes: status.free_bytes,
            segments: status.segments_total.saturating_sub(status.segments_reserved),
            segments_free: status.segments_free,
            time_left_s: report.time_left_s,
            pressure: report.pressure,
            put_wait_ms: report.put_wait_ms,
            puts_no_space: counters.puts_no_space,
            puts_index_full: counters.puts_index_full,
            index_bytes: status.index_bytes,
            index_bytes_max: status.index_bytes_max,
            undecided: status.events_undecided,
            accepted: status.events_accepted,
            oldest_undecided: status.oldest_undecided_s.and_then(|s| Duration::try_from_secs_f64(s).ok()),
            oldest_accepted: status.oldest_accepted_s.and_then(|s| Duration::try_from_secs_f64(s).ok()),
            accepted_since: counters.events_accepted,
            ended_since: counters.events_accepted + counters.events_rejected + counters.events_deleted,
            leased_since: report.events_leased,
            streams: report.streams.iter().map(|one| (one.name.to_string(), stream(one))).collect(),
            units_damaged: counters.units_damaged,
            units_mended: status.drive_health.iter().map(|health| health.mended).sum(),
            lost: SeenLosses {
                flushes: status.flushes_lost,
                segments: status.segments_unreadable.saturating_sub(status.segments_unavailable),
                fragments: status.fragments_known_lost,
                flushes_possibly: status.flushes_possibly_lost,
                segments_unavailable: status.segments_unavailable,
                flushes_unavailable: status.flushes_unavailable,
                out_of_reach: status.out_of_reach.clone(),
            },
        }
    }
}

/// What else is known of drives, by their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownOfDrives {
    pub(crate) counts: BTreeMap<u16, DriveCounts>,
    pub(crate) smart: BTreeMap<u16, SmartReport>,
    pub(crate) rated_bytes: BTreeMap<u16, u64>,
}

impl Observation {
    /// Puts together what the lanes, the control part and the drives say.
    pub(crate) fn of(
        control: &ControlStatus,
        lanes: &[Option<LaneReport>],
        known: &KnownOfDrives,
        uptime: Duration,
        stopping: bool,
    ) -> Observation {
        let damaged = |number: u16| {
            let on = |report: &LaneReport| report.status.counters.units_damaged_by_drive.get(&number).copied();
            lanes.iter().flatten().filter_map(on).sum()
        };
        let alive = |number: u16| {
            let health = lanes.iter().flatten().flat_map(|report| &report.status.drive_health);
            health.filter(|health| health.drive == number).map(|health| health.segments_alive).sum()
        };
        let drive = |drive: &forebay_store::DriveStatus| SeenDrive {
            number: drive.number,
            path: drive.path.clone(),
            in_use: drive.state == "member",
            left_earlier: matches!(drive.state, "out" | "gone"),
            segments_alive: alive(drive.number),
            counts: known.counts.get(&drive.number).copied().unwrap_or_default(),
            units_damaged: damaged(drive.number),
            smart: known.smart.get(&drive.number).cloned(),
            rated_bytes: known.rated_bytes.get(&drive.number).copied(),
        };
        let silent = |(lane, report): (usize, &Option<LaneReport>)| report.is_none().then_some(lane as u16);
        Observation {
            shards: control.data_shards + control.parity_shards,
            parity_shards: control.parity_shards,
            started_clean: control.started_clean,
            uptime,
            stopping,
            read_only: control.read_only,
            failure: control.failure.clone(),
            drives: control.drives.iter().map(drive).collect(),
            lanes: lanes.iter().flatten().map(SeenLane::of).collect(),
            cluster: control.cluster.as_ref().map(|cluster| SeenCluster::of(cluster, uptime)),
            silent_lanes: lanes.iter().enumerate().filter_map(silent).collect(),
        }
    }

    /// Whether every lane answered and serves: only then do sums over lanes mean something.
    pub(crate) fn is_whole(&self) -> bool {
        self.silent_lanes.is_empty() && !self.lanes.is_empty() && self.lanes.iter().all(|lane| lane.state == "serving")
    }

    /// Whether the last stop is to be told.
    pub(crate) fn is_after_crash(&self) -> bool {
        !self.started_clean && self.uptime < UNCLEAN_START_TOLD
    }

    pub(crate) fn sum(&self, of: impl Fn(&SeenLane) -> u64) -> u64 {
        self.lanes.iter().map(of).fold(0, u64::saturating_add)
    }
}
