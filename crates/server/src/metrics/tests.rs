//! The metrics as they are told, and as the page about them says.

use forebay_telemetry::metrics::{Metric, check_table, rows};

use super::METRICS;

const PAGE: &str = include_str!("../../../../docs/metrics.md");

#[test]
fn the_page_has_each_metric_in_its_order_and_nothing_else() {
    let wanted: Vec<String> = METRICS.iter().map(Metric::row).collect();
    assert_eq!(rows(PAGE, "The server"), wanted, "the table of docs/metrics.md should be:\n{}", wanted.join("\n"));
}

#[test]
fn names_are_those_of_prometheus_with_units_at_their_end() {
    check_table(METRICS).unwrap_or_else(|wrong| panic!("{wrong}"));
}
