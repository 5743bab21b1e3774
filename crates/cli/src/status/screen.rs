//! The status for a person: one screen, or one line.

use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::health;
use super::report::{Cluster, Drive, Report, Runs, Totals};
use super::safety::{compaction, losses, protection, rebuild, scrub};
use crate::size::{human_bytes, human_count};

/// What changed in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    stored_bytes: f64,
    stored_fragments: f64,
    read_fragments: f64,
    decided_events: f64,
    released_events: f64,
    media_bytes: f64,
}

impl Rates {
    /// From two reports so far apart. Counters that went back (another start of the server) give zero.
    pub fn between(old: &Report, new: &Report, time: Duration) -> Rates {
        let (old, new) = (&old.totals.counters, &new.totals.counters);
        let seconds = time.as_secs_f64().max(0.001);
        let rate = |old: u64, new: u64| new.saturating_sub(old) as f64 / seconds;
        Rates {
            stored_bytes: rate(old.payload_bytes_stored(), new.payload_bytes_stored()),
            stored_fragments: rate(old.fragments_stored, new.fragments_stored),
            read_fragments: rate(old.fragments_read, new.fragments_read),
            decided_events: rate(old.events_accepted + old.events_rejected, new.events_accepted + new.events_rejected),
            released_events: rate(old.events_released, new.events_released),
            media_bytes: rate(old.media_bytes_written, new.media_bytes_written),
        }
    }
}

/// The whole screen, without a line end after it.
pub fn screen(server: &str, report: &Report, rates: Option<&Rates>) -> String {
    let mut text = String::new();
    let mut row = |name: &str, words: String| {
        // Writing to a String does not fail.
        let _ = writeln!(text, "  {name:<11} {words}");
    };
    row("store", report.store.clone());
    row("server", format!("{server}, {}, up {}, start {}", report.server, human_time(report.uptime_s), report.epoch));
    let reasons = health::reasons(report);
    row("health", health::level(&reasons).to_string());
    for reason in &reasons {
        row("", format!("{}: {}", reason.level, reason.words));
        if let Some(advice) = &reason.advice {
            row("", format!("      {advice}"));
        }
    }
    drives(report, &mut row);
    if let Some(found) = &report.cluster {
        cluster(found, &mut row);
    }
    lanes(report, &mut row);
    row("rebuild", rebuild(report));
    row("scrub", scrub(report));
    row("losses", losses(report));
    if let Some(words) = compaction(report) {
        row("compaction", words);
    }
    contents(&report.totals, &mut row);
    if let Some(words) = report.runs.as_ref().and_then(runs) {
        row("runs", words);
    }
    since_start(report, &mut row);
    if let Some(rates) = rates {
        rows_of_rates(rates, &mut row);
    }
    text.truncate(text.trim_end().len());
    text
}

fn drives(report: &Report, row: &mut impl FnMut(&str, String)) {
    let members = report.drives.iter().filter(|drive| drive.state == "member").count();
    // Of those that left long ago only the ones matter on which something lies.
    let is_over = |drive: &&Drive| drive.state == "gone" && drive.segments_alive == Some(0);
    let over = report.drives.iter().filter(is_over).count();
    let earlier = match over {
        0 => String::new(),
        1 => "; 1 more left earlier, and nothing lies on it any more".to_owned(),
        over => format!("; {over} more left earlier, and nothing lies on them any more"),
    };
    let all = report.drives.len() - over;
    row("drives", format!("{members} of {all} in use, {} failed since the start{earlier}", report.drives_failed));
    for drive in report.drives.iter().filter(|drive| !is_over(drive)) {
        let path = drive.path.as_deref().unwrap_or("(not found)");
        let reason = drive.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        row("", format!("{:>3} {:<7} {path}{reason}{}", drive.number, drive.state, work(drive)));
    }
}

/// How the cluster is that the store stands on.
fn cluster(cluster: &Cluster, row: &mut impl FnMut(&str, String)) {
    /// It is asked every few seconds.
    const LATE_S: f64 = 15.0;
    let Some(asked_s_ago) = cluster.asked_s_ago else {
        return row("cluster", "no monitor has answered yet: `ceph -s`".to_owned());
    };
    let mut words = vec![cluster.health.clone().unwrap_or_else(|| "its health is not known".to_owned())];
    let room = |bytes: Option<u64>| bytes.map_or("?".to_owned(), human_bytes);
    words.push(format!("{} in the pool, room for {}", room(cluster.stored_bytes), room(cluster.available_bytes)));
    if asked_s_ago > LATE_S {
        words.push(format!("no monitor has answered for {}: `ceph -s`", human_time(asked_s_ago)));
    }
    row("cluster", words.join("; "));
    cluster.checks.iter().for_each(|check| row("", format!("      {check}")));
}

/// What a drive has done, and how it is, as far as it is known.
fn work(drive: &Drive) -> String {
    let mut words = Vec::new();
    if drive.bytes_written > 0 {
        let ratio = drive.written_per_payload_byte.map(|ratio| format!(" ({ratio:.2} a byte of payload)"));
        words.push(format!("{} written{}", human_bytes(drive.bytes_written), ratio.unwrap_or_default()));
    }
    words.extend(drive.write_latency_s.map(|seconds| format!("{:.1} ms a write", seconds * 1000.0)));
    for (count, what) in [(drive.write_errors + drive.read_errors, "errors"), (drive.units_damaged, "damaged units")] {
        if count > 0 {
            words.push(format!("{} {what}", human_count(count)));
        }
    }
    words.extend(drive.used_percent.map(|percent| format!("{percent} % worn")));
    if let Some(date) = drive.worn_out_in_s.and_then(date_in) {
        let since = if drive.is_lifetime_known { "" } else { " if it was new at this start" };
        words.push(format!("worn out about {date} at this rate{since}"));
    }
    if words.is_empty() { String::new() } else { format!(", {}", words.join(", ")) }
}

/// The day that comes in so many seconds.
fn date_in(seconds: f64) -> Option<time::Date> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
    Some(time::OffsetDateTime::from_unix_timestamp((now + seconds) as i64).ok()?.date())
}

fn lanes(report: &Report, row: &mut impl FnMut(&str, String)) {
    let full = (report.data_shards, report.parity_shards);
    let nothing = if report.read_only { "nothing is written" } else { "no segment can be written" };
    let width = report.lanes.iter().filter_map(|lane| lane.width).min().map_or_else(
        || nothing.to_owned(),
        |(data, parity)| {
            let degraded = if (data, parity) == full { "" } else { " (degraded)" };
            format!("writing {data}+{parity}{degraded}")
        },
    );
    row("lanes", format!("{} {}, {width}{}", report.lanes.len(), report.state, protection(report)));
}

/// Who is slowed because the store, or its index, fills.
fn pressed(totals: &Totals) -> Option<String> {
    let wait_ms = totals.put_wait_ms.filter(|ms| *ms > 0);
    let writers = wait_ms.map(|ms| format!("writers are asked to wait {ms} ms after each put"));
    let readers = match totals.pressure.as_str() {
        "" | "none" => None,
        "monitors-slowed" => Some("reads of monitors are slowed".to_owned()),
        "movers-slowed" => Some("reads of monitors and movers are slowed".to_owned()),
        "filters-slowed" => Some("reads of monitors, movers and filters are slowed".to_owned()),
        other => Some(other.to_owned()),
    };
    let words: Vec<String> = writers.into_iter().chain(readers).collect();
    (!words.is_empty()).then(|| format!("{}: docs/space.md", words.join(", ")))
}

fn contents(totals: &Totals, row: &mut impl FnMut(&str, String)) {
    let percent = |part: u64, all: u64| if all == 0 { 0.0 } else { part as f64 * 100.0 / all as f64 };
    let free = format!(
        "{} free of {} ({:.1} %)",
        human_bytes(totals.free_bytes),
        human_bytes(totals.capacity_bytes),
        percent(totals.free_bytes, totals.capacity_bytes)
    );
    let time_left = match totals.time_left_s {
        _ if totals.capacity_bytes > 0 && totals.free_bytes == 0 => "full, or on the last segment".to_owned(),
        Some(seconds) => format!("full in {} at this rate", human_time(seconds)),
        None => "not filling".to_owned(),
    };
    row("space", format!("{free}, payload; {time_left}"));
    if let Some(words) = pressed(totals) {
        row("", words);
    }
    row(
        "",
        format!(
            "{} segments hold data, {} are free, {} are kept for recovery and deletions",
            human_count(totals.segments),
            human_count(totals.segments_free),
            human_count(totals.segments_reserved)
        ),
    );
    let rates = &totals.rates;
    row(
        "last minute",
        format!(
            "in {}/s, out {}/s, {}/s to drives, {} fragments/s read",
            human_bytes(rates.stored_bytes_per_s),
            human_bytes(rates.freed_bytes_per_s),
            human_bytes(rates.media_bytes_per_s),
            human_count(rates.fragments_read_per_s)
        ),
    );
    row(
        "events",
        format!(
            "{} undecided, {} accepted and not shipped, {} finished",
            human_count(totals.events_undecided),
            human_count(totals.events_accepted),
            human_count(totals.events_finished)
        ),
    );
    let waits = |age: Option<f64>| age.map_or("-".to_owned(), |seconds| format!("{} or more", human_time(seconds)));
    if totals.oldest_undecided_s.or(totals.oldest_accepted_s).is_some() {
        let (undecided, accepted) = (waits(totals.oldest_undecided_s), waits(totals.oldest_accepted_s));
        row("oldest", format!("undecided {undecided}, accepted and not shipped {accepted}"));
    }
    row("fragments", format!("{} of {}", human_count(totals.fragments), human_bytes(totals.fragment_bytes)));
    if totals.files > 0 {
        row(
            "files",
            format!(
                "{} of {}, {} not sealed, with those that keep the names; {} open; {} names",
                human_count(totals.files),
                human_bytes(totals.file_bytes),
                human_count(totals.files_unsealed),
                human_count(totals.files_open),
                human_count(totals.names)
            ),
        );
    }
    let of = |used: u64, most: u64| format!("{} of {}", human_bytes(used), human_bytes(most));
    row(
        "memory",
        format!(
            "index {}, names {}, cache {}, staging {}",
            of(totals.index_bytes, totals.index_bytes_max),
            of(totals.names_bytes, totals.names_bytes_max),
            of(totals.cache_bytes, totals.cache_bytes_max),
            of(totals.staging_bytes, totals.staging_bytes_max)
        ),
    );
}

/// The runs that somebody may have to do something with; nothing where none was declared.
fn runs(runs: &Runs) -> Option<String> {
    let Runs { declared, running, stopped, closed, discarded, held, .. } = runs;
    if declared + running + stopped + closed + discarded == 0 {
        return None;
    }
    let which = |count: u64, named: &[u32]| {
        let more = if count > named.len() as u64 { ", .." } else { "" };
        let named: Vec<String> = named.iter().map(u32::to_string).collect();
        if count == 0 { String::new() } else { format!(" ({}{more})", named.join(", ")) }
    };
    let (running_ones, stopped_ones) = (which(*running, &runs.running_runs), which(*stopped, &runs.stopped_runs));
    let held_ones = which(*held, &runs.held_runs);
    Some(format!(
        "{running} running{running_ones}, {stopped} stopped and not closed{stopped_ones}, {held} held{held_ones}; {declared} declared, {closed} closed, {discarded} discarded"
    ))
}

fn since_start(report: &Report, row: &mut impl FnMut(&str, String)) {
    let counters = &report.totals.counters;
    let clients = &report.connections;
    row(
        "clients",
        format!(
            "{} readout, {} filter, {} mover, {} monitor",
            clients.readout, clients.filter, clients.mover, clients.monitor
        ),
    );
    row(
        "activity",
        format!(
            "since the start: stored {} fragments of {} ({} degraded), {} late, {} refused for space",
            human_count(counters.fragments_stored),
            human_bytes(counters.fragment_bytes_stored),
            human_count(counters.fragments_stored_degraded),
            human_count(counters.puts_late),
            human_count(counters.puts_no_space)
        ),
    );
    row(
        "",
        format!(
            "accepted {} events, rejected {}, incomplete {}, deleted {}, shipped {}",
            human_count(counters.events_accepted),
            human_count(counters.events_rejected),
            human_count(counters.events_incomplete),
            human_count(counters.events_deleted),
            human_count(counters.events_released)
        ),
    );
    row(
        "",
        format!(
            "read {} fragments ({} from memory, {} with parity), {} conflicts",
            human_count(counters.fragments_read),
            human_count(counters.fragments_read_cached),
            human_count(counters.fragments_read_degraded),
            human_count(counters.puts_conflict)
        ),
    );
    if counters.file_bytes_stored + counters.file_bytes_read > 0 {
        row(
            "",
            format!(
                "files: stored {}, read {} ({} from memory)",
                human_bytes(counters.file_bytes_stored),
                human_bytes(counters.file_bytes_read),
                human_bytes(counters.file_bytes_read_cached)
            ),
        );
    }
    if !report.started_clean {
        row("", "the stop before this start was not clean".to_owned());
    }
}

fn rows_of_rates(rates: &Rates, row: &mut impl FnMut(&str, String)) {
    row(
        "rates",
        format!("in   {}/s, {:.0} fragments/s", human_bytes(rates.stored_bytes as u64), rates.stored_fragments),
    );
    row(
        "",
        format!("out  {:.0} fragments/s read, {:.0} events/s shipped", rates.read_fragments, rates.released_events),
    );
    row(
        "",
        format!(
            "     {:.0} events/s decided, {}/s to drives",
            rates.decided_events,
            human_bytes(rates.media_bytes as u64)
        ),
    );
}

/// One line, for logs and pipes.
pub fn line(report: &Report, rates: Option<&Rates>) -> String {
    let reasons = health::reasons(report);
    let totals = &report.totals;
    let free = (totals.free_bytes * 100).checked_div(totals.capacity_bytes).unwrap_or(0);
    let rates = rates.copied().unwrap_or_default();
    format!(
        "{} {} | {free} % free | in {}/s | {} undecided, {} accepted, {} finished | {} drives failed{}",
        health::level(&reasons),
        report.state,
        human_bytes(rates.stored_bytes as u64),
        totals.events_undecided,
        totals.events_accepted,
        totals.events_finished,
        report.drives_failed,
        reasons.first().map(|reason| format!(" | {}", reason.words)).unwrap_or_default()
    )
}

/// A time for a person.
pub fn human_time(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..60 => format!("{seconds:.0} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        3600..86_400 => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
        _ => format!("{} d {} h", whole / 86_400, whole % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = r#"{"store":"0190b3a4-0000-4000-8000-000000000000","epoch":3,"data_shards":4,"parity_shards":1,
        "drives":[{"number":0,"uuid":"u","path":"/d0","state":"member","reason":null,"bytes_written":3221225472,"written_per_payload_byte":0.3125,
                   "write_latency_s":0.0123,"read_errors":2,"units_damaged":4,"used_percent":7,"worn_out_in_s":86400000.0},
                  {"number":1,"uuid":"u","path":"/d1","state":"failed","reason":"write failed"},
                  {"number":2,"uuid":"u","path":null,"state":"absent","reason":null}],
        "drives_failed":1,"lanes_serving":1,"lanes_stopped":0,"clean":false,"started_clean":false,"warnings":["look here"],
        "alarms":[{"code":"FB-101","name":"drive-lost","severity":"warning","effect":"less-protected","words":"2 of 3 drives are not in use",
                   "command":"dmesg","runbook":"docs/runbook.md#fb-101-drive-lost"}],
        "failure":null,"ended":false,"server":"forebay 0.1.0","uptime_s":7325.2,"state":"serving",
        "lanes":[{"lane":0,"state":"serving","reason":null,"width":[3,1],"failures_left":0,
                  "scrub":{"period_s":86400,"round_segments":40,"round_segments_checked":30,"round_ended_s":3600.0}}],
        "totals":{"events_undecided":12,"oldest_undecided_s":75.0,"rebuild":{"shards_missing":7,"bytes_left":1073741824},"rebuild_left_s":90.0,"fragments_known_lost":3,
                  "scrub":{"round_segments":40,"round_segments_checked":30,"flushes_mended":2},"flushes_possibly_lost":1,"free_bytes":1073741824,"capacity_bytes":2147483648,"segments_free":8,"segments_reserved":2,
                  "time_left_s":7200.0,"failures_left":0,"fragment_bytes":1048576,"files":1234,"files_unsealed":5,"file_bytes":5242880,"files_open":6,"names":1240,
                  "names_bytes":2048,"names_bytes_max":4096,"index_bytes":1024,"index_bytes_max":2048,
                  "rates":{"stored_bytes_per_s":3145728,"freed_bytes_per_s":1048576,"rebuilt_bytes_per_s":2097152,"scrubbed_bytes_per_s":4096},
                  "counters":{"fragments_stored":1000,"fragment_bytes_stored":2097152,"file_bytes_stored":4194304,"file_bytes_read":8388608}},
        "connections":{"readout":4,"filter":2,"mover":1,"monitor":1}}"#;

    #[test]
    fn the_screen_tells_what_an_operator_must_know() {
        let report: Report = serde_json::from_str(STATUS).expect("a status");
        let screen = screen("127.0.0.1:7420", &report, Some(&Rates::default()));
        let wanted = [
            "health      WARN",
            "WARN: FB-101 drive-lost: 2 of 3 drives are not in use",
            "dmesg; see docs/runbook.md#fb-101-drive-lost",
            "written 3+1 instead of 4+1",
            "3.00 GiB written (0.31 a byte of payload), 12.3 ms a write, 2 errors, 4 damaged units, 7 % worn, worn out about 20",
            "if it was new at this start",
            "undecided 1 min 15 s or more, accepted and not shipped -",
            "look here",
            "1 failed  /d1: write failed",
            "2 absent  (not found)",
            "writing 3+1 (degraded); 0 more drives may fail",
            "rebuild     7 shards lie on no drive in use, 1.00 GiB are left to make, 2.00 MiB/s, done in about 1 min 30 s",
            "scrub       round: 30 of 40 segments, the rest within about 6 h 0 min, 4.00 KiB/s; the last ended 1 h 0 min ago; one each 1 d 0 h",
            "losses      3 fragments are lost, 1 flush before the last stop was perhaps acknowledged; `forebay lost` says which",
            "1.00 GiB free of 2.00 GiB (50.0 %)",
            "full in 2 h 0 min",
            "8 are free, 2 are kept",
            "in 3.00 MiB/s, out 1.00 MiB/s",
            "files       1,234 of 5.00 MiB, 5 not sealed, with those that keep the names; 6 open; 1,240 names",
            "index 1.00 KiB of 2.00 KiB, names 2.00 KiB of 4.00 KiB",
            "12 undecided",
            "up 2 h 2 min, start 3",
            "not clean",
            "4 readout",
            "files: stored 4.00 MiB, read 8.00 MiB (0 B from memory)",
            "rates",
        ];
        for words in wanted {
            assert!(screen.contains(words), "{words:?} is missing in\n{screen}");
        }
        assert!(screen.lines().count() < 40, "it fits a screen");
    }

    #[test]
    fn runs_that_wait_for_somebody_are_named() {
        assert_eq!(runs(&Runs::default()), None, "nobody declares any");
        let told = Runs {
            running: 1,
            running_runs: vec![7],
            stopped: 3,
            stopped_runs: vec![4, 5],
            closed: 9,
            ..Runs::default()
        };
        assert_eq!(
            runs(&told).as_deref(),
            Some("1 running (7), 3 stopped and not closed (4, 5, ..), 0 held; 0 declared, 9 closed, 0 discarded")
        );
    }

    #[test]
    fn who_is_slowed_is_told() {
        let of = |pressure: &str, put_wait_ms| {
            pressed(&Totals { pressure: pressure.to_owned(), put_wait_ms, ..Totals::default() })
        };
        assert_eq!((of("none", Some(0)), of("", None)), (None, None));
        let told = of("movers-slowed", Some(38)).expect("it is told");
        assert_eq!(
            told,
            "writers are asked to wait 38 ms after each put, reads of monitors and movers are slowed: docs/space.md"
        );
        assert_eq!(of("monitors-slowed", None).as_deref(), Some("reads of monitors are slowed: docs/space.md"));
    }

    #[test]
    fn drives_that_left_long_ago_are_summed_up() {
        let drive = |number, state: &str, segments_alive| Drive {
            number,
            state: state.to_owned(),
            segments_alive,
            ..Drive::default()
        };
        let told = |drives| {
            let mut rows = Vec::new();
            super::drives(&Report { drives, ..Report::default() }, &mut |_: &str, words: String| rows.push(words));
            rows
        };
        let rows = told(vec![drive(0, "gone", Some(0)), drive(1, "gone", Some(3)), drive(2, "member", Some(3))]);
        assert_eq!(rows.len(), 3, "{rows:?}");
        assert_eq!(
            rows[0],
            "1 of 2 in use, 0 failed since the start; 1 more left earlier, and nothing lies on it any more"
        );
        assert_eq!(told(vec![drive(0, "gone", None)]).len(), 2, "what lies there is not known yet");
    }

    #[test]
    fn a_server_that_only_reads_promises_nothing_else() {
        let mut report: Report = serde_json::from_str(STATUS).expect("a status");
        (report.read_only, report.state, report.lanes[0].width) = (true, "read-only".to_owned(), None);
        let screen = screen("127.0.0.1:7420", &report, None);
        for words in ["1 read-only, nothing is written", "rebuild     none: ", "scrub       none: "] {
            assert!(screen.contains(words), "{words:?} is missing in\n{screen}");
        }
        assert!(!screen.contains("new data are written") && !screen.contains("degraded)\n"), "{screen}");
    }

    #[test]
    fn rates_are_differences_by_time() {
        let old: Report = serde_json::from_str(STATUS).expect("a status");
        let mut new = old.clone();
        new.totals.counters.fragments_stored += 500;
        new.totals.counters.fragment_bytes_stored += 1 << 20;
        let rates = Rates::between(&old, &new, Duration::from_millis(500));
        assert_eq!((rates.stored_fragments, rates.stored_bytes), (1000.0, 2.0 * 1048576.0));
        assert_eq!(Rates::between(&new, &old, Duration::from_secs(1)), Rates::default());
        assert!(line(&new, Some(&rates)).contains("in 2.00 MiB/s"));
    }
}
