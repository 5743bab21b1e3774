//! What is served at `/metrics`: every number once, with its name, what it is, and where it comes from.
//!
//! The list is a table, so that `docs/metrics.md` can be compared with it. Everything comes from the last look at the server: a scrape asks no lane.

mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::status::Snapshot;
use table::METRICS;

/// How a number behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It only grows, from 0 at the start of the server.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A number with the values of its labels.
struct Sample {
    labels: Vec<String>,
    value: f64,
}

/// One line of the table.
struct Metric {
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    help: &'static str,
    samples: fn(&Seen) -> Vec<Sample>,
}

/// What metrics are made of.
struct Seen {
    snapshot: Arc<Snapshot>,
    age: Duration,
}

struct Encoder(Seen);

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encoder")
    }
}

impl Collector for Encoder {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for metric in METRICS {
            let metric_type = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
            };
            let mut family = encoder.encode_descriptor(metric.name, metric.help, None, metric_type)?;
            for sample in (metric.samples)(&self.0) {
                encode_sample(&mut family, metric, &sample)?;
            }
        }
        Ok(())
    }
}

fn encode_sample(family: &mut MetricEncoder<'_>, metric: &Metric, sample: &Sample) -> fmt::Result {
    assert_eq!(metric.labels.len(), sample.labels.len(), "{} has a value for each label", metric.name);
    if metric.labels.is_empty() {
        return encode_value(family, metric.kind, sample.value);
    }
    let labels: Vec<(&str, &str)> =
        metric.labels.iter().copied().zip(sample.labels.iter().map(String::as_str)).collect();
    encode_value(&mut family.encode_family(&labels)?, metric.kind, sample.value)
}

fn encode_value(encoder: &mut MetricEncoder<'_>, kind: Kind, value: f64) -> fmt::Result {
    match kind {
        Kind::Counter => encoder.encode_counter::<NoLabelSet, f64, f64>(&value, None),
        Kind::Gauge => encoder.encode_gauge(&value),
    }
}

/// The media type of [`text`].
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics of a look that lies so far back, in the text format of OpenMetrics, which Prometheus reads.
pub(crate) fn text(snapshot: Arc<Snapshot>, age: Duration) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Encoder(Seen { snapshot, age })));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("a String takes all text");
    text
}

/// How often each word occurs.
fn count_words<'a>(words: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, u64> {
    let mut counts = BTreeMap::new();
    words.for_each(|word| *counts.entry(word).or_default() += 1);
    counts
}
