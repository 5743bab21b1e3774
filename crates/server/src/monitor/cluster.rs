//! How the cluster is that a store stands on, where it matters to the store.

use std::time::Duration;

use super::limits::{CLUSTER_SILENT, POOL_ROOM_PERCENT_GOOD, POOL_ROOM_PERCENT_LOW};
use super::observation::{Observation, SeenCluster};
use super::{Wanted, human};
use crate::alarm::Alarm;

/// The checks of a cluster that tell of less protection, of operations that wait, or of less room. Others are between it and whoever runs it.
const CHECKS: &[&str] = &[
    "MON_DOWN",
    "OBJECT_UNFOUND",
    "OSD_BACKFILLFULL",
    "OSD_DATACENTER_DOWN",
    "OSD_DOWN",
    "OSD_FULL",
    "OSD_HOST_DOWN",
    "OSD_NEARFULL",
    "OSD_RACK_DOWN",
    "OSD_ROOT_DOWN",
    "OSD_SCRUB_ERRORS",
    "PG_AVAILABILITY",
    "PG_BACKFILL_FULL",
    "PG_DAMAGED",
    "PG_DEGRADED",
    "PG_RECOVERY_FULL",
    "POOL_BACKFILLFULL",
    "POOL_FULL",
    "POOL_NEARFULL",
    "POOL_NEAR_FULL",
    "SLOW_OPS",
];
/// What it says when all is well, and when somebody has to come.
const OK: &str = "HEALTH_OK";
const ERROR: &str = "HEALTH_ERR";
/// So many of its checks are told.
const TOLD_MAX: usize = 4;

/// Rules about what a store stands on.
#[derive(Default)]
pub(super) struct Cluster {
    is_short: bool,
}

impl Cluster {
    pub(super) fn judge(&mut self, seen: &Observation, wanted: &mut Wanted) {
        let Some(cluster) = &seen.cluster else { return };
        if cluster.silent >= CLUSTER_SILENT {
            // What it said before is not so any more.
            self.is_short = false;
            return wanted.extend([(Alarm::ClusterSilent, silent(cluster))]);
        }
        let short = short(cluster, self.is_short);
        self.is_short = short.is_some();
        wanted.extend(short.map(|words| (Alarm::PoolFilling, words)));
        wanted.extend(unwell(cluster).map(|words| (Alarm::ClusterUnwell, words)));
    }
}

fn silent(cluster: &SeenCluster) -> String {
    format!(
        "{}: no monitor has answered for {}: what is stored is read and written as long as its drives are where they were, and no standby can take the store over",
        cluster.name,
        human(cluster.silent)
    )
}

fn unwell(cluster: &SeenCluster) -> Option<String> {
    let health = cluster.health.as_deref().filter(|health| *health != OK)?;
    let matters = |check: &&String| {
        let name = check.split(':').next().unwrap_or_default();
        health == ERROR || CHECKS.contains(&name)
    };
    let checks: Vec<&str> = cluster.checks.iter().filter(matters).map(String::as_str).collect();
    if checks.is_empty() && health != ERROR {
        return None;
    }
    let more = match checks.len().saturating_sub(TOLD_MAX) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let told = checks[..checks.len().min(TOLD_MAX)].join("; ");
    Some(format!(
        "{}: {health}: {told}{more}: the cluster mends itself as it is set up to; see that it does",
        cluster.name
    ))
}

/// Whether the pool has so little room that the store may find none.
fn short(cluster: &SeenCluster, raised: bool) -> Option<String> {
    let (available, stored) = (cluster.available_bytes?, cluster.stored_bytes?);
    let percent = (u128::from(available) * 100).checked_div(u128::from(available) + u128::from(stored))?;
    let bound = if raised { POOL_ROOM_PERCENT_GOOD } else { POOL_ROOM_PERCENT_LOW };
    (percent < u128::from(bound)).then(|| {
        format!(
            "{}: the pool has room for {:.1} GiB more, {percent} % of it, whoever fills it; without room new fragments are refused",
            cluster.name,
            available as f64 / f64::from(1 << 30)
        )
    })
}

impl SeenCluster {
    /// Of what the store says; until a monitor has answered it is silent since the start.
    pub(super) fn of(status: &forebay_store::ClusterStatus, uptime: Duration) -> SeenCluster {
        let silent = status.asked_s_ago.map_or(Some(uptime), |seconds| Duration::try_from_secs_f64(seconds).ok());
        SeenCluster {
            name: status.name.clone(),
            health: status.health.clone(),
            checks: status.checks.clone(),
            available_bytes: status.available_bytes,
            stored_bytes: status.stored_bytes,
            silent: silent.unwrap_or(Duration::MAX),
        }
    }
}
