//! How the cluster is, asked every few seconds: a monitor that does not answer holds nobody up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay_media::{Licence, RemoteReport};
use serde::Deserialize;

use crate::cluster::Cluster;
use crate::error::RadosError;

/// The time between two questions.
const EVERY: Duration = Duration::from_secs(3);

/// What is known of a cluster.
pub(crate) struct Watch {
    report: Mutex<RemoteReport>,
    is_full: AtomicBool,
    is_over: AtomicBool,
    /// Whether it was said that it does not answer.
    is_silent: AtomicBool,
}

impl Watch {
    /// Starts to ask. The pool counts as full when less than `reserve_bytes` fit in it.
    pub(crate) fn start(cluster: Arc<Cluster>, pool: String, reserve_bytes: u64) -> Arc<Watch> {
        let watch = Arc::new(Watch {
            report: Mutex::default(),
            is_full: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            is_silent: AtomicBool::new(false),
        });
        let of_thread = Arc::downgrade(&watch);
        let look_on = move || {
            loop {
                let asked_at = Licence::now();
                let found = look(&cluster, &pool);
                let Some(watch) = of_thread.upgrade() else { return };
                if watch.is_over.load(Ordering::Acquire) {
                    return;
                }
                watch.take(found, asked_at, reserve_bytes);
                drop(watch);
                std::thread::sleep(EVERY);
            }
        };
        // Without a thread nothing is known, and nothing else is lost.
        drop(std::thread::Builder::new().name("forebay-watch".to_owned()).spawn(look_on));
        watch
    }

    fn take(&self, found: Result<RemoteReport, RadosError>, asked_at: forebay_types::Time, reserve_bytes: u64) {
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Ok(found) => {
                self.is_silent.store(false, Ordering::Release);
                let is_full = found.available_bytes.is_some_and(|available| available < reserve_bytes);
                if is_full != self.is_full.swap(is_full, Ordering::AcqRel) {
                    tell_full(is_full);
                }
                *report = RemoteReport { asked_at: Some(asked_at), ..found };
            }
            Err(error) if !self.is_silent.swap(true, Ordering::AcqRel) => {
                tracing::warn!("{error}: how the cluster is, and how full, is not known until it answers");
            }
            Err(_) => {}
        }
    }

    pub(crate) fn report(&self) -> RemoteReport {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }
}

fn tell_full(is_full: bool) {
    if is_full {
        tracing::error!(
            "THE POOL IS FULL: what is new is refused (`no space`), what is stored stays, deciding and releasing go on and make room. `ceph df` says who fills it"
        );
    } else {
        tracing::info!("the pool has room again");
    }
}

#[derive(Deserialize)]
struct Df {
    pools: Vec<PoolDf>,
}

#[derive(Deserialize)]
struct PoolDf {
    name: String,
    stats: PoolStats,
}

#[derive(Deserialize)]
struct PoolStats {
    max_avail: u64,
    stored: u64,
}

#[derive(Deserialize)]
struct Health {
    status: String,
    #[serde(default)]
    checks: std::collections::BTreeMap<String, Check>,
}

#[derive(Deserialize)]
struct Check {
    summary: Summary,
}

#[derive(Deserialize)]
struct Summary {
    message: String,
}

fn look(cluster: &Cluster, pool: &str) -> Result<RemoteReport, RadosError> {
    let df = cluster.ask_monitor(r#"{"prefix":"df","format":"json"}"#)?;
    let health = cluster.ask_monitor(r#"{"prefix":"health","format":"json"}"#)?;
    Ok(understand(&df, &health, pool))
}

/// What the monitor's words say; what is not understood is left out.
fn understand(df: &str, health: &str, pool: &str) -> RemoteReport {
    let df: Option<Df> = serde_json::from_str(df).ok();
    let stats = df.and_then(|df| df.pools.into_iter().find(|found| found.name == pool)).map(|found| found.stats);
    let health: Option<Health> = serde_json::from_str(health).ok();
    let (health, checks) = health.map_or((None, Vec::new()), |health| {
        let checks = health.checks.into_iter().map(|(name, check)| format!("{name}: {}", check.summary.message));
        (Some(health.status), checks.collect())
    });
    RemoteReport {
        health,
        checks,
        available_bytes: stats.as_ref().map(|stats| stats.max_avail),
        stored_bytes: stats.map(|stats| stats.stored),
        asked_at: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_monitors_say_is_understood_as_far_as_it_is_there() {
        let df = r#"{"stats":{"total_bytes":1},"pools":[{"name":"x","id":1,"stats":{"max_avail":1,"stored":2}},{"name":"ec","id":2,"stats":{"max_avail":77,"stored":5,"objects":3}}]}"#;
        let health = r#"{"status":"HEALTH_WARN","checks":{"OSD_DOWN":{"severity":"HEALTH_WARN","summary":{"message":"1 osds down","count":1},"muted":false}},"mutes":[]}"#;
        let report = understand(df, health, "ec");
        assert_eq!((report.available_bytes, report.stored_bytes), (Some(77), Some(5)));
        assert_eq!(report.health.as_deref(), Some("HEALTH_WARN"));
        assert_eq!(report.checks, ["OSD_DOWN: 1 osds down"]);
        assert_eq!(understand("", "{}", "ec"), RemoteReport::default());
    }
}
