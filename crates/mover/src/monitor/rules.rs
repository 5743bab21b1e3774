//! What raises each alarm, and what ends it.

use std::time::Duration;

use forebay_telemetry::alarm::{Raised, Wanted};
use forebay_telemetry::words::human;
use forebay_types::Time;

use super::MonitorConfig;
use super::alarm::MoverAlarm;
use super::observation::{Observation, SeenRoute};
use super::report::{RouteReport, SpaceReport};

/// What takes its time by nature, and what people do on purpose, is told after so many times [`MonitorConfig::alarm_after`].
const LATE_TIMES: u32 = 12;
/// Tape, and whoever holds a file, has a day.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// A journal with less room than the first cannot be relied on, and can be again with the second.
const JOURNAL_FREE_LOW_BYTES: u64 = 256 << 20;
const JOURNAL_FREE_GOOD_BYTES: u64 = 512 << 20;
/// A source that is full within this is told whatever waits,
const FULL_SOON_S: f64 = 3600.0;
/// unless more than this part is free, in percent: then it may be a burst.
const FREE_PERCENT_PLENTY: u128 = 50;
/// One that is full within this is told when its backlog takes longer.
const FULL_LATER_S: f64 = 24.0 * 3600.0;
/// Once told, times must be so many times better.
const BETTER_TIMES: f64 = 2.0;

/// Since when something is so.
#[derive(Clone, Copy, Debug, Default)]
struct Lasting(Option<Time>);

impl Lasting {
    /// Whether it is now; for how long it has been.
    fn is(&mut self, now: Time, so: bool) -> Option<Duration> {
        if !so {
            self.0 = None;
            return None;
        }
        Some(now.since(*self.0.get_or_insert(now)))
    }
}

/// What is remembered of a route between two looks.
#[derive(Debug, Default)]
pub(super) struct RouteRules {
    proven: u64,
    unproven: Lasting,
    left_alone: Lasting,
    blocked: Lasting,
    refused: Lasting,
    filling: Lasting,
}

/// Alarms that are to be raised now, each with all that is so.
pub(super) struct Judgement<'a> {
    pub(super) now: Time,
    pub(super) config: &'a MonitorConfig,
    pub(super) raised: &'a Raised<MoverAlarm>,
    pub(super) wanted: Wanted<MoverAlarm>,
}

impl Judgement<'_> {
    fn want(&mut self, alarm: MoverAlarm, words: String) {
        let said = self.wanted.entry(alarm).or_default();
        if !said.is_empty() {
            said.push_str("; ");
        }
        said.push_str(&words);
    }

    fn is_late(&self, lasts: Option<Duration>) -> Option<Duration> {
        lasts.filter(|lasts| *lasts >= self.config.alarm_after * LATE_TIMES)
    }

    fn is_due(&self, lasts: Option<Duration>) -> Option<Duration> {
        lasts.filter(|lasts| *lasts >= self.config.alarm_after)
    }

    /// What concerns no route alone.
    pub(super) fn of_all(&mut self, seen: &Observation) {
        for destination in &seen.destinations {
            let (survey, place) = (&destination.survey, &destination.survey.place);
            let due = self.is_due(place.failing_for).filter(|_| place.away && survey.waiting.files > 0);
            if let Some(for_so_long) = due {
                let said = destination.last_words.as_ref().map_or(String::new(), |(words, _)| format!(" ({words})"));
                let words = format!(
                    "{} has not answered for {}{said}: {} files wait for it, and stay at their source",
                    destination.address,
                    human(for_so_long),
                    survey.waiting.files
                );
                self.want(MoverAlarm::DestinationAway, words);
            }
        }
        let journal = &seen.journal;
        if let Some(failure) = &journal.failure {
            self.want(MoverAlarm::JournalAtRisk, format!("nothing can be written beside the journal: {failure}"));
        }
        let enough =
            if self.raised.is(MoverAlarm::JournalAtRisk) { JOURNAL_FREE_GOOD_BYTES } else { JOURNAL_FREE_LOW_BYTES };
        if let Some(free) = journal.free_bytes.filter(|free| *free < enough) {
            let words = format!(
                "{} MiB are free where the journal lies: a mover that cannot write it ends, and nothing is released",
                free >> 20
            );
            self.want(MoverAlarm::JournalAtRisk, words);
        }
    }

    /// What concerns a route.
    pub(super) fn of_route(&mut self, rules: &mut RouteRules, seen: &SeenRoute, report: &RouteReport) {
        let (name, survey) = (&seen.name, &seen.survey);
        if let Some((file, words)) = &survey.first_quarantined {
            let (are, more) = match survey.quarantined {
                1 => ("is", String::new()),
                more => ("are", format!(" and {} more", more - 1)),
            };
            let said = if words.is_empty() { String::new() } else { format!(": {words}") };
            self.want(MoverAlarm::FileQuarantined, format!("route {name}: {file}{more} {are} quarantined{said}"));
        }
        self.nothing_proven(rules, seen);
        if let Some(for_so_long) = self.is_due(survey.failing_for) {
            let said = seen.failing_words.as_ref().map_or(String::new(), |words| format!(": {words}"));
            let words = format!("route {name}: {} could not be looked at for {}{said}", seen.from, human(for_so_long));
            self.want(MoverAlarm::SourceSilent, words);
        }
        if let Some(for_so_long) = seen.tape.filter(|waits| *waits >= DAY) {
            self.want(
                MoverAlarm::TapeLate,
                format!("route {name}: a file has waited for tape for {}", human(for_so_long)),
            );
        }
        self.left_alone(rules, seen);
        if let Some(words) = self.filling(rules, report) {
            self.want(MoverAlarm::SourceFilling, format!("route {name}: {} {words}", seen.from));
        }
        let fails = self.is_due(survey.registry.failing_for).filter(|_| survey.unregistered > 0);
        if let Some(for_so_long) = fails {
            let words = format!(
                "route {name}: {} proven files could not be registered for {}, and stay at their source",
                survey.unregistered,
                human(for_so_long)
            );
            self.want(MoverAlarm::RegisteringFails, words);
        }
        if let Some(for_so_long) = seen.held.filter(|held| *held >= DAY) {
            self.want(
                MoverAlarm::HeldForLong,
                format!("route {name}: a file has been held for {}", human(for_so_long)),
            );
        }
    }

    fn nothing_proven(&mut self, rules: &mut RouteRules, seen: &SeenRoute) {
        let moving = ["found", "sending", "arrived", "verified"];
        let files: u64 =
            moving.iter().filter_map(|state| seen.survey.states.get(state)).map(|amount| amount.files).sum();
        if seen.tally.proven.files != rules.proven {
            (rules.proven, rules.unproven) = (seen.tally.proven.files, Lasting::default());
        }
        let lasts = rules.unproven.is(self.now, files > 0);
        let lasts = lasts.filter(|lasts| *lasts >= seen.recheck_after + self.config.alarm_after * LATE_TIMES);
        if let Some(for_so_long) = lasts {
            let words =
                format!("route {}: {files} files wait, and none was proven for {}", seen.name, human(for_so_long));
            self.want(MoverAlarm::NothingProven, words);
        }
    }

    fn left_alone(&mut self, rules: &mut RouteRules, seen: &SeenRoute) {
        let (name, survey) = (&seen.name, &seen.survey);
        let left_alone = rules.left_alone.is(self.now, survey.left_alone > 0);
        if self.is_due(left_alone).is_some() {
            let first = seen.left_alone_names.first().map_or(String::new(), |first| format!(", {first} for one"));
            let words = format!("route {name}: {} names are left alone{first}", survey.left_alone);
            self.want(MoverAlarm::NamesLeftAlone, words);
        }
        let refused = rules.refused.is(self.now, !survey.refusals.is_empty());
        if let (Some(_), Some((run, why))) = (self.is_due(refused), survey.refusals.first()) {
            let more = match survey.refusals.len() {
                1 => String::new(),
                more => format!(", and those of {} more runs", more - 1),
            };
            self.want(
                MoverAlarm::NamesLeftAlone,
                format!("route {name}: events of run {run} are left in the store: {why}{more}"),
            );
        }
        let blocked = rules.blocked.is(self.now, survey.blocked > 0);
        if let Some(for_so_long) = self.is_late(blocked) {
            let words = format!(
                "route {name}: {} files have waited for {} for others of their names to be over",
                survey.blocked,
                human(for_so_long)
            );
            self.want(MoverAlarm::NamesLeftAlone, words);
        }
    }

    /// Whether a source is full before anybody would look, or before what waits is gone; in words.
    fn filling(&mut self, rules: &mut RouteRules, report: &RouteReport) -> Option<String> {
        let SpaceReport { free_bytes, capacity_bytes, full_in_s } = report.space?;
        if free_bytes < capacity_bytes / 100 {
            return Some("is full: less than 1 % is free".to_owned());
        }
        let better = if self.raised.is(MoverAlarm::SourceFilling) { BETTER_TIMES } else { 1.0 };
        let full_in_s = full_in_s.unwrap_or(f64::INFINITY);
        let plenty = u128::from(free_bytes) * 100 > u128::from(capacity_bytes) * FREE_PERCENT_PLENTY;
        let soon = full_in_s < FULL_SOON_S * better && !plenty;
        let backlog_s = report.backlog_s.unwrap_or(f64::INFINITY);
        let too_late = report.waiting.files > 0 && full_in_s < FULL_LATER_S * better && backlog_s * better > full_in_s;
        let lasts = rules.filling.is(self.now, soon || too_late)?;
        let full_in = Duration::from_secs_f64(full_in_s.clamp(0.0, 1e9));
        (better > 1.0 || lasts >= self.config.alarm_after.min(full_in / 4)).then(|| {
            let backlog = match report.backlog_s {
                _ if report.waiting.files == 0 => "nothing waits to be moved".to_owned(),
                Some(seconds) => {
                    format!("what waits takes {}", human(Duration::from_secs_f64(seconds.clamp(0.0, 1e9))))
                }
                None => format!("{} files wait, and none is sent", report.waiting.files),
            };
            format!("is full in {} at this rate, and {backlog}", human(full_in))
        })
    }
}
