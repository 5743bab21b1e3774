//! One word for the state of a store, with every reason for it.

use std::fmt;

use super::report::{Report, Totals};

/// Below so many percent of free slots writers are asked to wait.
const FREE_PERCENT_LOW: u64 = 10;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing is to be done.
    Ok,
    /// Nothing is lost, and something is to be done.
    Warn,
    /// Data are lost or cannot be written.
    Error,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Ok => "OK",
            Level::Warn => "WARN",
            Level::Error => "ERR",
        })
    }
}

/// The reasons that there are, the worst first.
pub fn reasons(report: &Report) -> Vec<(Level, String)> {
    let mut reasons = losses(&report.totals);
    reasons.extend(report.failure.iter().map(|why| (Level::Error, format!("nothing can be written: {why}"))));
    match report.state.as_str() {
        "serving" => {}
        "unavailable" | "not answering" => reasons.push((Level::Error, format!("the server is {}", report.state))),
        state => reasons.push((Level::Warn, format!("the server is {state}"))),
    }
    for lane in &report.lanes {
        let known = report.failure.as_deref();
        if let Some(why) = lane.reason.as_deref().filter(|why| Some(*why) != known) {
            reasons.push((Level::Error, format!("lane {}: {why}", lane.lane)));
        }
    }
    reasons.extend(protection(report));
    reasons.extend(space(&report.totals));
    reasons.extend(report.warnings.iter().map(|warning| (Level::Warn, warning.clone())));
    reasons.sort_by_key(|(level, _)| std::cmp::Reverse(*level));
    reasons
}

/// The worst of the reasons.
pub fn level(reasons: &[(Level, String)]) -> Level {
    reasons.iter().map(|(level, _)| *level).max().unwrap_or(Level::Ok)
}

fn losses(totals: &Totals) -> Vec<(Level, String)> {
    let counts = [
        (
            totals.flushes_lost,
            "acknowledged flushes are damaged on more drives than parity can mend: what they held is lost",
        ),
        (totals.segments_unreadable, "segments could not be read at start: their fragments are lost or out of reach"),
        (totals.counters.fragments_lost, "fragments were found damaged beyond repair since the start"),
        (
            totals.flushes_possibly_lost,
            "flushes of the last moments before an unclean stop need drives that are absent: perhaps acknowledged",
        ),
    ];
    let told = counts.into_iter().filter(|(count, _)| *count > 0);
    told.map(|(count, words)| (Level::Error, format!("{count} {words}"))).collect()
}

fn protection(report: &Report) -> Vec<(Level, String)> {
    let mut reasons = Vec::new();
    let missing = report.drives.iter().filter(|drive| drive.state != "member").count();
    if missing > 0 {
        let drives = report.drives.len();
        reasons
            .push((Level::Warn, format!("{missing} of {drives} drives are not in use: see to them, or replace them")));
    }
    let full = (report.data_shards, report.parity_shards);
    let narrow = report.lanes.iter().filter_map(|lane| lane.width).find(|width| *width != full);
    if let Some((data, parity)) = narrow {
        reasons.push((Level::Warn, format!("new data are written {data}+{parity} instead of {}+{}", full.0, full.1)));
    }
    if report.totals.failures_left == Some(0) && report.parity_shards > 0 {
        reasons.push((Level::Warn, "the loss of one more drive would put data out of reach".to_owned()));
    }
    let mended = report.totals.counters.units_damaged;
    if mended > 0 {
        reasons.push((
            Level::Warn,
            format!("{mended} damaged units were put right from the other drives: look at the drives"),
        ));
    }
    reasons
}

fn space(totals: &Totals) -> Vec<(Level, String)> {
    let mut reasons = Vec::new();
    if totals.slots_total > 0 && totals.slots_free * 100 < totals.slots_total * FREE_PERCENT_LOW {
        let free = totals.slots_free * 100 / totals.slots_total;
        reasons.push((
            Level::Warn,
            format!("{free} % of the space is free: writers are asked to wait; ship or delete events"),
        ));
    }
    if totals.counters.puts_index_full > 0 {
        let puts = totals.counters.puts_index_full;
        reasons.push((Level::Warn, format!("{puts} puts were refused because the index is full: raise index-bytes")));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    fn healthy() -> Report {
        serde_json::from_value(serde_json::json!({
            "state": "serving", "data_shards": 4, "parity_shards": 1,
            "drives": [{"number": 0, "state": "member"}, {"number": 1, "state": "member"}],
            "lanes": [{"lane": 0, "state": "serving", "width": [4, 1]}],
            "totals": {"slots_free": 90, "slots_total": 100, "failures_left": 1},
        }))
        .expect("a report")
    }

    #[test]
    fn a_healthy_store_has_no_reasons() {
        assert_eq!(level(&reasons(&healthy())), Level::Ok);
        assert_eq!(reasons(&healthy()), []);
    }

    #[test]
    fn each_fault_has_its_reason() {
        type Fault = (Level, fn(&mut Report));
        let faults: [Fault; 9] = [
            (Level::Warn, |r| r.drives[1].state = "failed".into()),
            (Level::Warn, |r| r.lanes[0].width = Some((3, 1))),
            (Level::Warn, |r| r.totals.failures_left = Some(0)),
            (Level::Warn, |r| r.totals.slots_free = 3),
            (Level::Warn, |r| r.warnings.push("something".into())),
            (Level::Error, |r| r.failure = Some("no drives".into())),
            (Level::Error, |r| r.totals.flushes_lost = 1),
            (Level::Error, |r| r.totals.counters.fragments_lost = 1),
            (Level::Error, |r| r.state = "unavailable".into()),
        ];
        for (number, (expected, fault)) in faults.into_iter().enumerate() {
            let mut report = healthy();
            fault(&mut report);
            let reasons = reasons(&report);
            assert_eq!((level(&reasons), reasons.len()), (expected, 1), "fault {number}: {reasons:?}");
        }
    }
}
