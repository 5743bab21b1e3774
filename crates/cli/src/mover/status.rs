//! `forebay move status`: one screen about a mover, alive or dead: what waits is in its journal, and what only a running mover knows in the file beside that.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use forebay_mover::journal::{ConsignmentView, View};
use forebay_mover::machine::Amount;
use forebay_mover::monitor::{Clocks, DestinationReport, MoverAlarm, Report, RouteReport, ago};
use forebay_mover::status::{Life, life_of, path_of, read};
use forebay_telemetry::alarm::{Alarms, RaisedAlarm, Severity};
use serde_json::{Value, json};

use super::look::{at_work, time};
use super::{journal_failure, plain};
use crate::failure::Failure;
use crate::output::Output;
use crate::size::{human_bytes, human_count};
use crate::status::human_time;

/// So many names that are left alone are shown.
const LEFT_ALONE_SHOWN_MAX: usize = 3;

/// What is known of a mover.
struct Status<'a> {
    journal: &'a Path,
    now_unix_ms: u64,
    /// By state, those that are over too.
    counts: BTreeMap<String, (u64, u64)>,
    /// What waits, by route and state, as the journal has it.
    routes: BTreeMap<String, BTreeMap<String, Amount>>,
    clocks: Clocks,
    tape_since: Option<i64>,
    report: Option<Report>,
    life: Option<Life>,
    alarms: Vec<RaisedAlarm>,
}

/// Shows it.
///
/// # Errors
/// A journal that cannot be read.
pub fn show(view: &View, journal: &Path, output: &Output) -> Result<(), Failure> {
    let status = look(view, journal, output)?;
    output.line(screen(&status).trim_end());
    output.object(&object(&status));
    Ok(())
}

fn look<'a>(view: &View, journal: &'a Path, output: &Output) -> Result<Status<'a>, Failure> {
    let files = at_work(view, None)?;
    let counts = view.counts().map_err(|error| journal_failure(&error))?;
    let clocks = view.clocks().map_err(|error| journal_failure(&error))?;
    let waits = files.iter().filter(|file| file.state == "waiting").flat_map(|file| &file.deliveries);
    let tape_since = waits.filter_map(|delivery| delivery.waits_since_unix_ms).min();
    let report = read(journal).unwrap_or_else(|error| {
        output.note(&format!(
            "forebay: {} cannot be read ({error}); what a running mover knows is missing below",
            path_of(journal).display()
        ));
        None
    });
    let now_unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let life = report.as_ref().map(|report| life_of(report, now_unix_ms));
    let mut status = Status {
        journal,
        now_unix_ms,
        counts,
        routes: by_route(&files),
        clocks,
        tape_since,
        report,
        life,
        alarms: Vec::new(),
    };
    status.alarms = alarms(&status);
    Ok(status)
}

fn by_route(files: &[ConsignmentView]) -> BTreeMap<String, BTreeMap<String, Amount>> {
    let mut routes: BTreeMap<String, BTreeMap<String, Amount>> = BTreeMap::new();
    // What the source let go and only its leftovers are still taken away of does not wait.
    for file in files.iter().filter(|file| file.state != "released" && file.state != "withdrawn") {
        let states = routes.entry(file.route.clone()).or_default();
        states.entry(file.state.clone()).or_default().add(u64::try_from(file.bytes).unwrap_or(0));
    }
    routes
}

/// Those that a running mover raised; of one that is not there, that it is not. What it said last is old then.
fn alarms(status: &Status) -> Vec<RaisedAlarm> {
    if let (Some(Life::Runs), Some(report)) = (status.life, &status.report) {
        return report.alarms.clone();
    }
    let waiting = Amount::sum(status.routes.values().flat_map(BTreeMap::values));
    if waiting.files == 0 {
        return Vec::new();
    }
    let info = MoverAlarm::NoMover.info();
    let words = format!(
        "no mover is running with this journal ({}), and {} files of {} wait",
        life(status),
        human_count(waiting.files),
        human_bytes(waiting.bytes)
    );
    let silent_s = match status.life {
        Some(Life::Ended(silent) | Life::Gone(silent)) => silent.as_secs_f64(),
        Some(Life::Runs) | None => 0.0,
    };
    vec![RaisedAlarm::new(&info, info.command, words, silent_s)]
}

fn life(status: &Status) -> String {
    let since = |silent: std::time::Duration| human_time(silent.as_secs_f64());
    match status.life {
        None => "none ever said how it is".to_owned(),
        Some(Life::Runs) => "it runs".to_owned(),
        Some(Life::Ended(silent)) => format!("the last one ended {} ago", since(silent)),
        Some(Life::Gone(silent)) => format!("the last one was last heard of {} ago", since(silent)),
    }
}

/// Everything, as one object.
fn object(status: &Status) -> Value {
    let states: serde_json::Map<String, Value> = status
        .counts
        .iter()
        .map(|(state, (files, bytes))| (state.clone(), json!({ "files": files, "bytes": bytes })))
        .collect();
    let waiting = status.routes.iter().map(|(route, states)| {
        let oldest = status.clocks.0.get(route).and_then(|clocks| clocks.oldest());
        let oldest_s = oldest.map(|at| ago(status.now_unix_ms, at).as_secs_f64());
        let waiting = json!({ "states": states, "all": Amount::sum(states.values()), "oldest_s": oldest_s });
        (route.clone(), waiting)
    });
    json!({
        "journal": status.journal.display().to_string(),
        "running": status.life == Some(Life::Runs),
        "states": states,
        "waits_since_unix_ms": status.tape_since,
        "waiting": waiting.collect::<serde_json::Map<String, Value>>(),
        "alarms": status.alarms,
        "report": status.report,
        "report_age_s": status.report.as_ref().map(|report| ago(status.now_unix_ms, report.unix_ms as i64).as_secs_f64()),
    })
}

/// One screen.
fn screen(status: &Status) -> String {
    let mut text = String::new();
    let mut row = |name: &str, words: String| {
        // Writing to a String does not fail.
        let _ = writeln!(text, "  {name:<11} {}", plain(&words));
    };
    row("journal", status.journal.display().to_string());
    row("mover", mover(status));
    row("health", health(&status.alarms).to_owned());
    for alarm in &status.alarms {
        row("", format!("{}: {} {}: {}", health(std::slice::from_ref(alarm)), alarm.code, alarm.name, alarm.words));
        row("", format!("      {}; see {}", alarm.command, alarm.runbook));
    }
    let mut name = "files";
    for (state, (files, bytes)) in &status.counts {
        row(name, format!("{state:<12} {:>12} files {:>12}", human_count(*files), human_bytes(*bytes)));
        name = "";
    }
    if status.counts.is_empty() {
        row(name, "no file was found yet".to_owned());
    }
    if let Some(at) = status.tape_since {
        row("", format!("the first of those that wait for tape has waited since {}", time(at)));
    }
    let none = Report::default();
    // What a mover that is gone said of rates and destinations is not so any more.
    let report = status.report.as_ref().filter(|_| status.life == Some(Life::Runs)).unwrap_or(&none);
    let mut routes: Vec<&str> = report.routes.iter().map(|route| route.name.as_str()).collect();
    routes.extend(
        status.routes.keys().map(String::as_str).filter(|name| !report.routes.iter().any(|route| route.name == **name)),
    );
    for name in routes {
        of_route(status, name, report.routes.iter().find(|route| route.name == name), &mut row);
    }
    for destination in &report.destinations {
        of_destination(destination, &mut row);
    }
    text
}

fn health(alarms: &[RaisedAlarm]) -> &'static str {
    match alarms.iter().map(|alarm| alarm.severity).max() {
        None => "OK",
        Some(Severity::Warning) => "WARN",
        Some(Severity::Critical) => "ERR",
    }
}

fn mover(status: &Status) -> String {
    match (&status.report, status.life) {
        (Some(report), Some(Life::Runs)) => format!(
            "forebay {} on {}, process {}, up {}; {} of {} streams busy",
            report.version,
            report.machine,
            report.process,
            human_time(report.uptime_s),
            report.streams_running,
            report.streams_max
        ),
        _ => format!("none runs: {}", life(status)),
    }
}

fn of_route(status: &Status, name: &str, report: Option<&RouteReport>, row: &mut impl FnMut(&str, String)) {
    row("route", report.map_or_else(|| name.to_owned(), |report| format!("{name} from {}", report.from)));
    let waiting = status.routes.get(name);
    let all = waiting.map(|states| Amount::sum(states.values())).unwrap_or_default();
    let oldest = status.clocks.0.get(name).and_then(|clocks| clocks.oldest());
    let oldest = oldest.map(|at| format!(", the oldest for {}", human_time(ago(status.now_unix_ms, at).as_secs_f64())));
    let states: Vec<String> =
        waiting.into_iter().flatten().map(|(state, amount)| format!("{} {state}", human_count(amount.files))).collect();
    row(
        "  waits",
        match all.files {
            0 => "nothing".to_owned(),
            files => format!(
                "{} files of {}{}: {}",
                human_count(files),
                human_bytes(all.bytes),
                oldest.unwrap_or_default(),
                states.join(", ")
            ),
        },
    );
    let Some(report) = report else { return };
    let rates = &report.rates;
    let of = |files: f64, bytes: f64| format!("{files:.1} files/s, {}/s", human_bytes(bytes as u64));
    row(
        "  last minute",
        format!(
            "found {}; sent {}/s; proven {}; released {}",
            of(rates.found_files, rates.found_bytes),
            human_bytes(rates.sent_bytes as u64),
            of(rates.proven_files, rates.proven_bytes),
            of(rates.released_files, rates.released_bytes)
        ),
    );
    match report.backlog_s {
        _ if report.oldest_unproven_s.is_none() => {}
        Some(seconds) => row("  backlog", format!("proven in about {} at this rate", human_time(seconds))),
        None => row("  backlog", format!("{} are to be sent, and nothing is", human_bytes(report.to_send_bytes))),
    }
    if let Some(space) = &report.space {
        let percent = space.free_bytes as f64 * 100.0 / space.capacity_bytes.max(1) as f64;
        let full = space
            .full_in_s
            .map_or("not filling".to_owned(), |seconds| format!("full in {} at this rate", human_time(seconds)));
        row(
            "  space",
            format!(
                "{} free of {} ({percent:.1} %); {full}",
                human_bytes(space.free_bytes),
                human_bytes(space.capacity_bytes)
            ),
        );
    }
    source(report, row);
}

/// What is not as it should be at the source, if anything is.
fn source(report: &RouteReport, row: &mut impl FnMut(&str, String)) {
    if let Some(seconds) = report.failing_s {
        let said = report.failing_words.as_deref().unwrap_or("nothing was said");
        row("  source", format!("gives no answer for {}: {said}", human_time(seconds)));
    }
    if report.left_alone > 0 {
        row("  left alone", format!("{} names with data", human_count(report.left_alone as u64)));
        for name in report.left_alone_names.iter().take(LEFT_ALONE_SHOWN_MAX) {
            row("", format!("  {name}"));
        }
    }
    if report.blocked > 0 {
        row("  blocked", format!("{} files wait for another of their name", human_count(report.blocked as u64)));
    }
    for (run, why) in report.refusals.iter().take(LEFT_ALONE_SHOWN_MAX) {
        row("  run", format!("{run} is left in the store: {why}"));
    }
    if let Some(seconds) = report.registering_fails_s {
        row("  registering", format!("fails for {}", human_time(seconds)));
    }
}

fn of_destination(report: &DestinationReport, row: &mut impl FnMut(&str, String)) {
    let away = match (report.away, report.failing_s) {
        (true, Some(seconds)) => {
            let next =
                report.next_try_s.map_or(String::new(), |seconds| format!(", tried again in {}", human_time(seconds)));
            format!("away for {}{next}", human_time(seconds))
        }
        _ => format!("{} of {} streams busy", report.streams_running, report.streams_max),
    };
    let rate = human_bytes(report.sent_bytes_per_s as u64);
    row("to", format!("{}: {away}; {rate}/s; {} files wait for it", report.address, human_count(report.waiting.files)));
    let failures: u64 = report.failures.values().sum();
    if let (Some(words), Some(seconds)) = (&report.last_words, report.last_words_s) {
        row(
            "",
            format!(
                "{} failures since the start, the last {} ago: {words}",
                human_count(failures),
                human_time(seconds)
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use forebay_mover::monitor::{Rates, SpaceReport};

    use super::*;

    fn status(life: Option<Life>) -> Status<'static> {
        let amount = Amount { files: 3, bytes: 3 << 20 };
        let route = RouteReport {
            name: "daq".to_owned(),
            from: "/data".to_owned(),
            oldest_unproven_s: Some(90.0),
            rates: Rates { found_files: 2.5, sent_bytes: 2048.0, ..Rates::default() },
            backlog_s: Some(3700.0),
            space: Some(SpaceReport { free_bytes: 1 << 30, capacity_bytes: 4 << 30, full_in_s: Some(7200.0) }),
            left_alone: 1,
            left_alone_names: vec!["\"a\": it is a link".to_owned()],
            ..RouteReport::default()
        };
        let destination = DestinationReport {
            address: "root://eos//raw".to_owned(),
            waiting: amount,
            away: true,
            failing_s: Some(600.0),
            next_try_s: Some(42.0),
            failures: BTreeMap::from([("not-now".to_owned(), 7)]),
            last_words: Some("no route to host".to_owned()),
            last_words_s: Some(5.0),
            ..DestinationReport::default()
        };
        let info = MoverAlarm::DestinationAway.info();
        let alarms = vec![RaisedAlarm::new(&info, info.command, "it is away".to_owned(), 1.0)];
        let report = Report { routes: vec![route], destinations: vec![destination], alarms, ..Report::default() };
        let mut clocks = Clocks::default();
        clocks.0.entry("daq".to_owned()).or_default().found.insert(1, 10_000);
        let mut status = Status {
            journal: Path::new("/var/move.sqlite"),
            now_unix_ms: 100_000,
            counts: BTreeMap::from([("found".to_owned(), (3, 3 << 20))]),
            routes: BTreeMap::from([("daq".to_owned(), BTreeMap::from([("found".to_owned(), amount)]))]),
            clocks,
            tape_since: None,
            report: Some(report),
            life,
            alarms: Vec::new(),
        };
        status.alarms = super::alarms(&status);
        status
    }

    #[test]
    fn the_screen_tells_what_an_operator_must_know() {
        let screen = screen(&status(Some(Life::Runs)));
        for words in [
            "health      WARN",
            "WARN: FB-502 destination-away: it is away",
            "docs/runbook.md#fb-502-destination-away",
            "route       daq from /data",
            "waits     3 files of 3.00 MiB, the oldest for 1 min 30 s: 3 found",
            "last minute found 2.5 files/s, 0 B/s; sent 2.00 KiB/s",
            "backlog   proven in about 1 h 1 min at this rate",
            "space     1.00 GiB free of 4.00 GiB (25.0 %); full in 2 h 0 min at this rate",
            "root://eos//raw: away for 10 min 0 s, tried again in 42 s",
            "7 failures since the start, the last 5 s ago: no route to host",
            "\"a\": it is a link",
        ] {
            assert!(screen.contains(words), "{words:?} is missing in\n{screen}");
        }
    }

    #[test]
    fn of_a_mover_that_is_gone_only_what_its_journal_has_is_told() {
        let status = status(Some(Life::Gone(Duration::from_secs(180))));
        let screen = screen(&status);
        for words in [
            "none runs: the last one was last heard of 3 min 0 s ago",
            "ERR: FB-511 no-mover: no mover is running with this journal",
            "3 files of 3.00 MiB, the oldest for 1 min 30 s: 3 found",
        ] {
            assert!(screen.contains(words), "{words:?} is missing in\n{screen}");
        }
        assert!(!screen.contains("away") && !screen.contains("last minute"), "{screen}");
        let object = object(&status);
        assert_eq!((&object["running"], &object["alarms"][0]["code"]), (&false.into(), &"FB-511".into()));
    }
}
