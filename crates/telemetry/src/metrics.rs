//! Numbers as Prometheus reads them: tables of what is told, and the text format of OpenMetrics.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::alarm::{Alarms, RaisedAlarm};

/// How a number behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, from 0 at the start.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A number with the values of its labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// In the order of [`Metric::labels`].
    pub labels: Vec<String>,
    /// The number.
    pub value: f64,
}

/// A line of a table of metrics, which are made of what was `Seen` last.
#[derive(Debug)]
pub struct Metric<Seen: 'static> {
    /// Its name, without the `_total` of counters.
    pub name: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it is.
    pub help: &'static str,
    /// Where it comes from.
    pub samples: fn(&Seen) -> Vec<Sample>,
}

impl<Seen> Metric<Seen> {
    /// Its row in the table of `docs/metrics.md`.
    pub fn row(&self) -> String {
        let (kind, end) = match self.kind {
            Kind::Counter => ("counter", "_total"),
            Kind::Gauge => ("gauge", ""),
        };
        format!("| `{}{end}` | {kind} | {} | {} |", self.name, self.labels.join(", "), self.help)
    }
}

/// One number without labels.
pub fn one(value: f64) -> Vec<Sample> {
    vec![Sample { labels: Vec::new(), value }]
}

/// One that may not be known.
pub fn perhaps(value: Option<f64>) -> Vec<Sample> {
    value.map_or_else(Vec::new, one)
}

/// A number with one label.
pub fn sample(label: impl ToString, value: f64) -> Sample {
    Sample { labels: vec![label.to_string()], value }
}

/// Labels of [`alarms`].
pub const ALARM_LABELS: &[&str] = &["code", "name", "severity"];

/// 1 for each alarm that is raised, 0 for each that is not.
pub fn alarms<A: Alarms>(raised: &[RaisedAlarm]) -> Vec<Sample> {
    let alarm = |alarm: &A| {
        let info = alarm.info();
        let labels = vec![info.code.to_owned(), info.name.to_owned(), info.severity.word().to_owned()];
        let value = f64::from(u8::from(raised.iter().any(|raised| raised.code == info.code)));
        Sample { labels, value }
    };
    A::ALL.iter().map(alarm).collect()
}

/// How often each word occurs.
pub fn count_words<'a>(words: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, u64> {
    let mut counts = BTreeMap::new();
    words.for_each(|word| *counts.entry(word).or_default() += 1);
    counts
}

struct Encoder<Seen: 'static> {
    table: &'static [Metric<Seen>],
    seen: Seen,
}

impl<Seen> fmt::Debug for Encoder<Seen> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encoder")
    }
}

impl<Seen: Send + Sync> Collector for Encoder<Seen> {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for metric in self.table {
            let metric_type = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
            };
            let mut family = encoder.encode_descriptor(metric.name, metric.help, None, metric_type)?;
            for sample in (metric.samples)(&self.seen) {
                encode_sample(&mut family, metric, &sample)?;
            }
        }
        Ok(())
    }
}

fn encode_sample<Seen>(family: &mut MetricEncoder<'_>, metric: &Metric<Seen>, sample: &Sample) -> fmt::Result {
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
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What was seen, by this table, in the text format of OpenMetrics.
pub fn text<Seen: Send + Sync>(table: &'static [Metric<Seen>], seen: Seen) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Encoder { table, seen }));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("a String takes all text");
    text
}

/// A table of metrics: `"name" Kind LABELS, "help" => |seen| samples;` for each.
#[macro_export]
macro_rules! metrics_table {
    ($visible:vis $table:ident: $seen:ty; $($name:literal $kind:ident $labels:expr, $help:literal => $samples:expr;)*) => {
        /// Every metric, in the order in which they are told.
        $visible const $table: &[$crate::metrics::Metric<$seen>] = &[$($crate::metrics::Metric {
            name: $name, kind: $crate::metrics::Kind::$kind, labels: $labels, help: $help, samples: $samples
        }),*];
    };
}

/// What is wrong with the names and words of a table: units stand last, names are those of Prometheus, and no two are the same.
pub fn check_table<Seen>(table: &[Metric<Seen>]) -> Result<(), String> {
    let mut names = std::collections::BTreeSet::new();
    for Metric { name, labels, help, .. } in table {
        let is_name = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        if !names.insert(*name) {
            return Err(format!("{name} is there twice"));
        }
        if !name.starts_with("forebay_") || !is_name(name) || !labels.iter().all(|label| is_name(label)) {
            return Err(format!("{name} is no name of a metric, or its labels are none"));
        }
        if ["_total", "_ms", "_ns"].iter().any(|end| name.ends_with(end)) {
            return Err(format!("{name} ends in what is no unit, or is added"));
        }
        if help.is_empty() || help.ends_with('.') || help.contains('|') {
            return Err(format!("{name}: {help}"));
        }
    }
    Ok(())
}

/// The rows of the tables of a page, of the section under this heading alone.
pub fn rows<'a>(page: &'a str, heading: &str) -> Vec<&'a str> {
    let section = page.split("\n## ").find(|section| section.starts_with(heading)).unwrap_or_default();
    section.lines().filter(|line| line.starts_with("| `forebay_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    metrics_table! { TABLE: u32;
        "forebay_made" Gauge &["of"], "What was made up" => |seen| vec![sample("one", f64::from(*seen))];
        "forebay_made_bytes" Counter &[], "Bytes of it" => |seen| one(f64::from(*seen) * 2.0);
    }

    #[test]
    fn a_table_is_told_as_prometheus_reads_it() {
        let told = text(TABLE, 7);
        for line in ["forebay_made{of=\"one\"} 7.0\n", "# TYPE forebay_made gauge\n", "forebay_made_bytes_total 14.0\n"]
        {
            assert!(told.contains(line), "{line:?} in\n{told}");
        }
        assert_eq!(TABLE[1].row(), "| `forebay_made_bytes_total` | counter |  | Bytes of it |");
        assert_eq!(check_table(TABLE), Ok(()));
    }

    #[test]
    fn rows_are_those_of_one_section() {
        let page = "# Page\n\n## Server\n\n| `forebay_a` |\n\n## The mover\n\n| `forebay_b` |\n";
        assert_eq!(rows(page, "Server"), ["| `forebay_a` |"]);
        assert_eq!(rows(page, "The mover"), ["| `forebay_b` |"]);
    }
}
