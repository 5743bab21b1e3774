//! The metrics as they are told, and as the page about them says.

use std::collections::BTreeSet;

use super::*;

const PAGE: &str = include_str!("../../../../docs/metrics.md");

/// The lines of the table in the page.
fn rows() -> Vec<&'static str> {
    PAGE.lines().filter(|line| line.starts_with("| `forebay_")).collect()
}

/// A metric as the page must have it; counters end in `_total` when they are told.
fn row(metric: &Metric) -> String {
    let (kind, end) = match metric.kind {
        Kind::Counter => ("counter", "_total"),
        Kind::Gauge => ("gauge", ""),
    };
    format!("| `{}{end}` | {kind} | {} | {} |", metric.name, metric.labels.join(", "), metric.help)
}

#[test]
fn the_page_has_each_metric_in_its_order_and_nothing_else() {
    let wanted: Vec<String> = METRICS.iter().map(row).collect();
    assert_eq!(rows(), wanted, "the table of docs/metrics.md should be:\n{}", wanted.join("\n"));
}

#[test]
fn names_are_those_of_prometheus_with_units_at_their_end() {
    let mut names = BTreeSet::new();
    for metric in METRICS {
        let Metric { name, labels, help, .. } = metric;
        assert!(names.insert(*name), "{name} is there twice");
        assert!(name.starts_with("forebay_") && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
        assert!(!name.ends_with("_total") && !name.ends_with("_ms") && !name.ends_with("_ns"), "{name}");
        assert!(labels.iter().all(|label| label.bytes().all(|b| b.is_ascii_lowercase())), "{name}");
        assert!(!help.is_empty() && !help.ends_with('.') && !help.contains('|'), "{name}: {help}");
    }
}
