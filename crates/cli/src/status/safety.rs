//! How safe what is stored is: what may still fail, what is made anew, looked at and moved, what is lost or out of reach.

use super::report::{Report, Totals};
use super::screen::human_time;
use crate::size::{human_bytes, human_count};

/// How many more drives may fail, and where it is the fewest when it is not the same everywhere.
pub(super) fn protection(report: &Report) -> String {
    let left = || report.lanes.iter().filter_map(|lane| Some((lane.failures_left?, lane.lane)));
    let Some((least, worst)) = left().min() else { return String::new() };
    if report.totals.is_out_of_reach() {
        return "; some of what is stored is OUT OF REACH".to_owned();
    }
    let drives = if least == 1 { "drive" } else { "drives" };
    let place = if left().all(|(other, _)| other == least) { String::new() } else { format!(" (lane {worst})") };
    format!("; {least} more {drives} may fail{place}")
}

/// Which drives to put back.
fn put_back(drives: &[u16]) -> String {
    match drives {
        [] => "put back the drives that are out".to_owned(),
        [drive] => format!("put back drive {drive}"),
        drives => format!("put back drives {}", drives.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// What is made anew of what lay on drives that are gone, and when that will be done.
pub(super) fn rebuild(report: &Report) -> String {
    let Totals { rebuild, rates, rebuild_left_s, .. } = &report.totals;
    if report.read_only {
        return "none: the server was started for reading alone".to_owned();
    }
    if rebuild.shards_missing == 0 && rebuild.segments_stuck == 0 {
        return "nothing is to be made anew".to_owned();
    }
    let waits = report.lanes.iter().find_map(|lane| Some((lane.lane, lane.rebuild.waits_for.as_deref()?)));
    let goes_on = report.lanes.iter().any(|lane| lane.rebuild.goes_on());
    let rate = human_bytes(rates.rebuilt_bytes_per_s);
    let progress = match (waits, rebuild_left_s) {
        (Some((_, what)), _) if !goes_on => format!("waits for {what}"),
        (Some((lane, what)), _) => format!("{rate}/s; lane {lane} waits for {what}"),
        (None, _) if rebuild.is_stuck() => "nothing more can be made now".to_owned(),
        (None, Some(left)) => format!("{rate}/s, done in about {}", human_time(*left)),
        (None, None) => format!("{rate}/s"),
    };
    let stuck = match rebuild.segments_stuck {
        0 => String::new(),
        stuck => {
            let segments = if stuck == 1 { "segment" } else { "segments" };
            format!("; {} {segments} cannot be made whole: {}", human_count(stuck), put_back(&report.drives_needed()))
        }
    };
    let (shards, left) = (human_count(rebuild.shards_missing), human_bytes(rebuild.bytes_left));
    let lie = if rebuild.shards_missing == 1 { "shard lies" } else { "shards lie" };
    format!("{shards} {lie} on no drive in use, {left} are left to make, {progress}{stuck}")
}

/// What was moved to make room, if anything was.
pub(super) fn compaction(report: &Report) -> Option<String> {
    let moved = &report.totals.compaction;
    let is_running = report.lanes.iter().any(|lane| lane.compaction.is_running);
    if !is_running && moved.bytes_moved == 0 && moved.segments_stuck == 0 {
        return None;
    }
    let runs = if is_running { "runs; " } else { "" };
    let stuck = match moved.segments_stuck {
        0 => String::new(),
        1 => "; 1 segment cannot be emptied, as something in it cannot be read".to_owned(),
        stuck => format!("; {} segments cannot be emptied, as something in them cannot be read", human_count(stuck)),
    };
    Some(format!(
        "{runs}since the start {} moved to make room: {} fragments, {} events{stuck}",
        human_bytes(moved.bytes_moved),
        human_count(moved.fragments_moved),
        human_count(moved.events_joined)
    ))
}

/// How much of the round is looked at, and when the last one ended.
pub(super) fn scrub(report: &Report) -> String {
    let Totals { scrub, rates, .. } = &report.totals;
    let period_s = report.lanes.iter().map(|lane| lane.scrub.period_s).max().unwrap_or(0);
    let damage = match (scrub.flushes_mended, scrub.flushes_not_mended) {
        (0, 0) => String::new(),
        (mended, 0) => format!("; damage in {} flushes was mended", human_count(mended)),
        (mended, not) => format!("; damage in {} flushes was mended, in {} not", human_count(mended), human_count(not)),
    };
    if report.read_only {
        return "none: the server was started for reading alone".to_owned();
    }
    if period_s == 0 {
        return format!("never by itself; `forebay drive scrub` does it{damage}");
    }
    let (done, all) = (scrub.round_segments_checked, scrub.round_segments);
    // Each segment has its turn within a period: at worst the rest comes evenly until its end.
    let left_s = (all - done.min(all)) as f64 / all.max(1) as f64 * period_s as f64;
    let left = if done >= all { String::new() } else { format!(", the rest within about {}", human_time(left_s)) };
    // The store has been looked at whole when its last lane has.
    let ended = report.lanes.iter().filter(|lane| lane.scrub.round_segments > 0).map(|lane| lane.scrub.round_ended_s);
    let ended = ended.reduce(|a, b| Some(a?.max(b?))).flatten();
    let ended =
        ended.map_or("none has ended since the start".to_owned(), |s| format!("the last ended {} ago", human_time(s)));
    format!(
        "round: {} of {} segments{left}, {}/s; {ended}; one each {}{damage}",
        human_count(done),
        human_count(all),
        human_bytes(rates.scrubbed_bytes_per_s),
        human_time(period_s as f64)
    )
}

/// What is lost or out of reach, and what brings it back.
pub(super) fn losses(report: &Report) -> String {
    let totals = &report.totals;
    let unreadable = totals.segments_unreadable.saturating_sub(totals.segments_unavailable);
    let reach = &totals.out_of_reach;
    let counts = [
        (totals.fragments_known_lost, "fragment is lost", "fragments are lost"),
        (totals.flushes_lost, "acknowledged flush is lost", "acknowledged flushes are lost"),
        (unreadable, "segment is lost", "segments are lost"),
        (
            totals.flushes_possibly_lost,
            "flush before the last stop was perhaps acknowledged",
            "flushes before the last stop were perhaps acknowledged",
        ),
        (reach.segments + totals.segments_unavailable, "segment is out of reach", "segments are out of reach"),
        (totals.flushes_unavailable, "acknowledged flush is out of reach", "acknowledged flushes are out of reach"),
    ];
    let told = counts.into_iter().filter(|(count, ..)| *count > 0);
    let told: Vec<String> = told
        .map(|(count, one, many)| format!("{} {}", human_count(count), if count == 1 { one } else { many }))
        .collect();
    if told.is_empty() {
        return "none is known since the start".to_owned();
    }
    let size = if reach.bytes > 0 { format!(" ({})", human_bytes(reach.bytes)) } else { String::new() };
    let back = match totals.is_out_of_reach() {
        true => format!("{size}: {}", put_back(&report.drives_needed())),
        false => String::new(),
    };
    format!("{}{back}; `forebay lost` says which", told.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::report::{Lane, OutOfReach, Rebuild};
    use super::*;

    #[test]
    fn the_lane_with_the_least_protection_is_named() {
        let lanes = |left: &[Option<u8>]| -> Report {
            let lane = |(lane, left): (usize, &Option<u8>)| Lane {
                lane: lane as u16,
                failures_left: *left,
                ..Lane::default()
            };
            Report { lanes: left.iter().enumerate().map(lane).collect(), ..Report::default() }
        };
        assert_eq!(protection(&lanes(&[None, None])), "");
        assert_eq!(protection(&lanes(&[None, Some(1), Some(1)])), "; 1 more drive may fail");
        assert_eq!(protection(&lanes(&[Some(2), Some(2), Some(0)])), "; 0 more drives may fail (lane 2)");
    }

    #[test]
    fn a_rebuild_that_waits_says_for_what_and_not_when_it_ends() {
        let rebuild = |waits_for: Option<&str>| Rebuild {
            shards_missing: 1,
            segments_waiting: 1,
            bytes_left: 1 << 20,
            waits_for: waits_for.map(str::to_owned),
            ..Rebuild::default()
        };
        let of = |lanes: &[Option<&str>], rebuild_left_s| {
            let mut report = Report::default();
            let lane = |(lane, waits): (usize, &Option<&str>)| Lane {
                lane: lane as u16,
                rebuild: rebuild(*waits),
                ..Lane::default()
            };
            report.lanes = lanes.iter().enumerate().map(lane).collect();
            report.totals.rebuild = rebuild(None);
            // It is the rate of the last minute: something was made in it.
            report.totals.rates.rebuilt_bytes_per_s = 1 << 20;
            report.totals.rebuild_left_s = rebuild_left_s;
            super::rebuild(&report)
        };
        let shard = "1 shard lies on no drive in use, 1.00 MiB are left to make";
        assert_eq!(of(&[Some("a drive")], None), format!("{shard}, waits for a drive"));
        assert_eq!(of(&[None, Some("space")], None), format!("{shard}, 1.00 MiB/s; lane 1 waits for space"));
        assert_eq!(of(&[None], Some(1.0)), format!("{shard}, 1.00 MiB/s, done in about 1 s"));
        assert_eq!(of(&[None], None), format!("{shard}, 1.00 MiB/s"));
    }

    #[test]
    fn what_is_out_of_reach_is_told_with_the_drives_that_bring_it() {
        let mut report = Report::default();
        let rebuild = Rebuild { shards_missing: 14, bytes_left: 1 << 20, segments_stuck: 7, ..Rebuild::default() };
        let out_of_reach = OutOfReach { segments: 8, bytes: 5 << 20, drives: vec![2, 3] };
        report.lanes = vec![Lane {
            failures_left: Some(0),
            rebuild: rebuild.clone(),
            out_of_reach: out_of_reach.clone(),
            ..Lane::default()
        }];
        (report.totals.rebuild, report.totals.out_of_reach) = (rebuild, out_of_reach);
        report.totals.flushes_unavailable = 1;
        assert_eq!(
            losses(&report),
            "8 segments are out of reach, 1 acknowledged flush is out of reach (5.00 MiB): put back drives 2, 3; `forebay lost` says which"
        );
        assert!(protection(&report).contains("OUT OF REACH"));
        // It has been quicker a while ago, and gets nowhere now.
        report.totals.rates.rebuilt_bytes_per_s = 3 << 10;
        assert_eq!(
            super::rebuild(&report),
            "14 shards lie on no drive in use, 1.00 MiB are left to make, nothing more can be made now; 7 segments cannot be made whole: put \
             back drives 2, 3"
        );
    }
}
