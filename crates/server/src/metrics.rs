//! What is served at `/metrics`: every number once, with its name, what it is, and where it comes from.
//!
//! The list is a table, so that `docs/metrics.md` can be compared with it. Everything comes from the last look at the server: a scrape asks no lane.

mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use crate::status::Snapshot;
use table::METRICS;

/// What metrics are made of.
struct Seen {
    snapshot: Arc<Snapshot>,
    age: Duration,
}

/// The metrics of a look that lies so far back, in the text format of OpenMetrics, which Prometheus reads.
pub(crate) fn text(snapshot: Arc<Snapshot>, age: Duration) -> String {
    forebay_telemetry::metrics::text(METRICS, Seen { snapshot, age })
}
