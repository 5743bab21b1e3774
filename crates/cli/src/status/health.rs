//! One word for the state of a store, with every reason for it.

use std::fmt;

use super::report::{Lane, Report, Totals};
use super::screen::human_time;
use crate::failure::Exit;
use crate::size::human_bytes;

/// Below so many percent of the room something is to be done; for lanes of few segments below so many segments.
const FREE_PERCENT_LOW: u64 = 10;
const FREE_SEGMENTS_LOW: u64 = 4;

/// A store that is full within so many seconds should not wait until someone looks.
const TIME_LEFT_LOW_S: f64 = 3600.0;

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

/// The exit code that a script goes by, unless all is well or only something is to be done: 1 when data are lost or damaged, 3 when
/// nothing can be written for now.
pub fn exit(report: &Report) -> Option<Exit> {
    let lost = !losses(&report.totals).is_empty();
    let error = level(&reasons(report)) == Level::Error;
    error.then_some(if lost { Exit::Data } else { Exit::Retry })
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
    reasons.extend(space(report));
    reasons.extend(index(&report.totals));
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
    let less_parity = report.totals.counters.fragments_stored_less_parity;
    if less_parity > 0 {
        reasons.push((
            Level::Warn,
            format!("{less_parity} fragments were stored since the start with less protection than the store has, as --parity-min allows"),
        ));
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

/// Whether a lane has few segments left for fragments.
fn is_low(lane: &Lane, segments_total: u64) -> bool {
    let few = (segments_total * FREE_PERCENT_LOW / 100).max(FREE_SEGMENTS_LOW.min(segments_total / 4));
    lane.segments_free < few.max(1)
}

fn space(report: &Report) -> Option<(Level, String)> {
    let totals = &report.totals;
    if totals.capacity_bytes == 0 || report.state == "read-only" {
        return None;
    }
    let advice = "ship or delete events, and look whether the filters decide";
    let full: Vec<&Lane> =
        report.lanes.iter().filter(|lane| lane.capacity_bytes > 0 && lane.segments_free == 0).collect();
    let refuses = full.iter().any(|lane| lane.counters.puts_no_space > 0);
    if refuses {
        let lanes = list(full.iter().map(|lane| lane.lane));
        return Some((
            Level::Error,
            format!("{lanes} full: new fragments are refused until there is room; nothing is lost; {advice}"),
        ));
    }
    if !full.is_empty() {
        let lanes = list(full.iter().map(|lane| lane.lane));
        return Some((Level::Warn, format!("{lanes} on the last segment: soon new fragments are refused; {advice}")));
    }
    let free = human_bytes(totals.free_bytes);
    let percent = totals.free_bytes * 100 / totals.capacity_bytes;
    let time =
        totals.time_left_s.map(|seconds| format!(", full in {} at the rates of the last minute", human_time(seconds)));
    let time = time.unwrap_or_default();
    let low = report.lanes.iter().any(|lane| {
        let segment_bytes = totals.free_bytes.checked_div(totals.segments_free).unwrap_or(0).max(1);
        lane.capacity_bytes > 0 && is_low(lane, lane.capacity_bytes / segment_bytes)
    });
    if low {
        return Some((
            Level::Warn,
            format!("{free} ({percent} %) are free{time}: writers are asked to wait; {advice}"),
        ));
    }
    let soon = totals.time_left_s.is_some_and(|seconds| seconds < TIME_LEFT_LOW_S) && percent < 50;
    soon.then(|| (Level::Warn, format!("{free} ({percent} %) are free{time}: {advice}")))
}

/// Lanes in words.
fn list(lanes: impl Iterator<Item = u16>) -> String {
    let lanes: Vec<String> = lanes.map(|lane| lane.to_string()).collect();
    match &lanes[..] {
        [lane] => format!("lane {lane} is"),
        lanes => format!("lanes {} are", lanes.join(", ")),
    }
}

fn index(totals: &Totals) -> Option<(Level, String)> {
    let (used, most) = (totals.index_bytes, totals.index_bytes_max);
    let percent = (used * 100).checked_div(most)?;
    let words = format!("the index takes {} of {}", human_bytes(used), human_bytes(most));
    let advice = "ship or delete events, or raise index-bytes and start again";
    if totals.counters.puts_index_full > 0 && percent >= 95 {
        let puts = totals.counters.puts_index_full;
        return Some((Level::Error, format!("{words}: {puts} puts were refused; nothing is lost; {advice}")));
    }
    (percent >= 90).then(|| (Level::Warn, format!("{words}: soon new fragments are refused; {advice}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn healthy() -> Report {
        let lane = |lane| serde_json::json!({"lane": lane, "state": "serving", "width": [4, 1], "segments_free": 90, "capacity_bytes": 100_000});
        serde_json::from_value(serde_json::json!({
            "state": "serving", "data_shards": 4, "parity_shards": 1,
            "drives": [{"number": 0, "state": "member"}, {"number": 1, "state": "member"}],
            "lanes": [lane(0), lane(1)],
            "totals": {"segments_free": 180, "free_bytes": 180_000, "capacity_bytes": 200_000, "failures_left": 1,
                       "index_bytes": 10, "index_bytes_max": 100},
        }))
        .expect("a report")
    }

    fn fill(report: &mut Report, segments_free: u64) {
        report.lanes[1].segments_free = segments_free;
        report.totals.segments_free = 90 + segments_free;
        report.totals.free_bytes = 1000 * (90 + segments_free);
    }

    #[test]
    fn a_healthy_store_has_no_reasons() {
        assert_eq!(level(&reasons(&healthy())), Level::Ok);
        assert_eq!(reasons(&healthy()), []);
        assert_eq!(exit(&healthy()), None);
    }

    #[test]
    fn each_fault_has_its_reason_and_its_exit_code() {
        type Fault = (Level, Option<Exit>, fn(&mut Report));
        let (warn, error) = (Level::Warn, Level::Error);
        let faults: [Fault; 17] = [
            (warn, None, |r| r.drives[1].state = "failed".into()),
            (warn, None, |r| r.lanes[0].width = Some((3, 1))),
            (warn, None, |r| r.totals.failures_left = Some(0)),
            (warn, None, |r| fill(r, 9)),
            (warn, None, |r| fill(r, 0)),
            (warn, None, |r| {
                // Refused once, and there is room again.
                fill(r, 2);
                r.lanes[1].counters.puts_no_space = 7;
            }),
            (error, Some(Exit::Retry), |r| {
                fill(r, 0);
                r.lanes[1].counters.puts_no_space = 7;
            }),
            (warn, None, |r| {
                (r.totals.free_bytes, r.totals.time_left_s) = (90_000, Some(600.0));
            }),
            (warn, None, |r| r.totals.index_bytes = 91),
            (error, Some(Exit::Retry), |r| (r.totals.index_bytes, r.totals.counters.puts_index_full) = (99, 3)),
            (warn, None, |r| r.warnings.push("something".into())),
            (warn, None, |r| r.state = "recovering".into()),
            (error, Some(Exit::Retry), |r| r.failure = Some("no drives".into())),
            (error, Some(Exit::Retry), |r| r.state = "unavailable".into()),
            (error, Some(Exit::Data), |r| r.totals.flushes_lost = 1),
            (error, Some(Exit::Data), |r| r.totals.segments_unreadable = 1),
            (error, Some(Exit::Data), |r| r.totals.counters.fragments_lost = 1),
        ];
        for (number, (expected, code, fault)) in faults.into_iter().enumerate() {
            let mut report = healthy();
            fault(&mut report);
            let reasons = reasons(&report);
            assert_eq!((level(&reasons), reasons.len()), (expected, 1), "fault {number}: {reasons:?}");
            assert_eq!(exit(&report), code, "fault {number}");
        }
    }

    #[test]
    fn a_lane_of_few_segments_is_low_before_its_last_one() {
        let mut report = healthy();
        for lane in &mut report.lanes {
            (lane.capacity_bytes, lane.segments_free) = (13_000, 3);
        }
        (report.totals.capacity_bytes, report.totals.free_bytes, report.totals.segments_free) = (26_000, 6000, 6);
        assert_eq!(reasons(&report), []);
        report.lanes[0].segments_free = 2;
        (report.totals.free_bytes, report.totals.segments_free) = (5000, 5);
        assert_eq!(level(&reasons(&report)), Level::Warn);
    }
}
