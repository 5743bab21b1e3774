//! One word for the state of a store, with every reason for it. What is wrong the server decides (its alarms); here it gets its level.

use std::fmt;

use super::report::{Alarm, Report};
use crate::failure::Exit;

/// What was so at the start is told for so long, in seconds: as an unclean start is, until somebody had a working day to see it.
const START_TOLD_S: f64 = 86_400.0;

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

/// Why a store is not well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// How bad it is.
    pub level: Level,
    /// In the words of an operator; with the code of the alarm before them, if it is one.
    pub words: String,
    /// What to type, and where it is told what to do.
    pub advice: Option<String>,
}

/// The exit code that a script goes by, unless all is well or only something is to be done: 1 when data are lost or damaged, 3 when
/// nothing can be written for now, or something is out of reach and nothing lost.
pub fn exit(report: &Report) -> Option<Exit> {
    let is_only_out_of_reach = report.totals.is_out_of_reach() && !report.totals.has_losses();
    let lost = report.alarms.iter().any(|alarm| alarm.effect == "lost") && !is_only_out_of_reach;
    let error = level(&reasons(report)) == Level::Error;
    error.then_some(if lost { Exit::Data } else { Exit::Retry })
}

/// The reasons that there are, the worst first.
pub fn reasons(report: &Report) -> Vec<Reason> {
    let mut reasons: Vec<Reason> = report.alarms.iter().map(of_alarm).collect();
    let is_told = reasons.iter().any(|reason| reason.level == Level::Error);
    match report.state.as_str() {
        "serving" => {}
        "unavailable" | "not answering" if is_told => {}
        "unavailable" | "not answering" => {
            reasons.push(plain(Level::Error, format!("the server is {}", report.state)));
        }
        state => reasons.push(plain(Level::Warn, format!("the server is {state}"))),
    }
    let warn = |words| plain(Level::Warn, words);
    reasons.extend(narrow(report).map(warn));
    reasons.extend(less_parity(report).map(warn));
    if report.uptime_s < START_TOLD_S {
        reasons.extend(report.warnings.iter().map(|words| warn(format!("at the start: {words}"))));
    }
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.level));
    reasons
}

/// The worst of the reasons.
pub fn level(reasons: &[Reason]) -> Level {
    reasons.iter().map(|reason| reason.level).max().unwrap_or(Level::Ok)
}

fn plain(level: Level, words: String) -> Reason {
    Reason { level, words, advice: None }
}

fn of_alarm(alarm: &Alarm) -> Reason {
    let level = match alarm.effect.as_str() {
        "lost" | "refused" => Level::Error,
        _ => Level::Warn,
    };
    let words = format!("{} {}: {}", alarm.code, alarm.name, alarm.words);
    Reason { level, words, advice: Some(format!("{}; see {}", alarm.command, alarm.runbook)) }
}

fn narrow(report: &Report) -> Option<String> {
    let full = (report.data_shards, report.parity_shards);
    let (data, parity) = report.lanes.iter().filter_map(|lane| lane.width).find(|width| *width != full)?;
    Some(format!("new data are written {data}+{parity} instead of {}+{}", full.0, full.1))
}

fn less_parity(report: &Report) -> Option<String> {
    let less_parity = report.totals.counters.fragments_stored_less_parity;
    (less_parity > 0).then(|| {
        format!("{less_parity} fragments were stored since the start with less protection than the store has, as --parity-min allows")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn healthy() -> Report {
        let lane = |lane| serde_json::json!({"lane": lane, "state": "serving", "width": [4, 1]});
        serde_json::from_value(serde_json::json!({
            "state": "serving", "data_shards": 4, "parity_shards": 1, "lanes": [lane(0), lane(1)],
        }))
        .expect("a report")
    }

    fn alarm(effect: &str) -> Alarm {
        let word = |word: &str| word.to_owned();
        Alarm {
            code: word("FB-199"),
            name: word("made-up"),
            effect: word(effect),
            words: word("it is so"),
            command: word("ls"),
            runbook: word("docs/runbook.md#made-up"),
        }
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
        let faults: [Fault; 13] = [
            (warn, None, |r| r.alarms.push(alarm("safe"))),
            (warn, None, |r| r.alarms.push(alarm("less-protected"))),
            (warn, None, |r| r.alarms.push(alarm("at-risk"))),
            (error, Some(Exit::Retry), |r| r.alarms.push(alarm("refused"))),
            (error, Some(Exit::Data), |r| r.alarms.push(alarm("lost"))),
            (error, Some(Exit::Retry), |r| {
                r.alarms.push(alarm("lost"));
                r.totals.out_of_reach.segments = 8;
            }),
            (error, Some(Exit::Data), |r| {
                r.alarms.push(alarm("lost"));
                (r.totals.out_of_reach.segments, r.totals.fragments_known_lost) = (8, 1);
            }),
            (warn, None, |r| r.lanes[0].width = Some((3, 1))),
            (warn, None, |r| r.totals.counters.fragments_stored_less_parity = 7),
            (warn, None, |r| r.warnings.push("something".into())),
            (warn, None, |r| r.state = "recovering".into()),
            (error, Some(Exit::Retry), |r| r.state = "not answering".into()),
            (error, Some(Exit::Retry), |r| {
                r.state = "unavailable".into();
                r.alarms.push(alarm("refused"));
            }),
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
    fn an_alarm_is_told_with_its_code_and_what_to_do() {
        let mut report = healthy();
        report.alarms = vec![alarm("safe"), alarm("lost")];
        let reasons = reasons(&report);
        assert_eq!(reasons[0].level, Level::Error, "the worst first");
        assert_eq!(reasons[1].words, "FB-199 made-up: it is so");
        assert_eq!(reasons[1].advice.as_deref(), Some("ls; see docs/runbook.md#made-up"));
    }

    #[test]
    fn what_was_so_at_the_start_is_told_as_that_for_a_day() {
        let mut report = healthy();
        report.warnings.push("drive 3 was not found".into());
        assert_eq!(reasons(&report)[0].words, "at the start: drive 3 was not found");
        report.uptime_s = START_TOLD_S;
        assert_eq!(reasons(&report), []);
    }
}
