//! What an alarm is, and how alarms come and go. Which there are, and what raises them, belongs to those who raise them.
//!
//! Codes are stable: a code that was given once keeps its meaning, and one that is not used any more is not given again. Each has a section in
//! `docs/runbook.md`.

use std::collections::BTreeMap;

use forebay_types::Time;
use serde::{Deserialize, Serialize};

/// How soon somebody has to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// During the day: nothing gets worse by the hour.
    Warning,
    /// Now.
    Critical,
}

impl Severity {
    /// As metrics and the runbook say it.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

/// What an alarm means for the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// All that is stored is as safe as ever, and new data are taken.
    Safe,
    /// Nothing is lost, and fewer drives may fail than the store was made for.
    LessProtected,
    /// Nothing is lost yet, and little more may happen.
    AtRisk,
    /// What is stored is safe, and new data are refused: their writers keep them.
    Refused,
    /// Something that was acknowledged is lost, or out of reach.
    Lost,
}

impl Effect {
    /// As `status`, the metrics and the runbook say it.
    pub fn word(self) -> &'static str {
        match self {
            Effect::Safe => "safe",
            Effect::LessProtected => "less protected",
            Effect::AtRisk => "at risk",
            Effect::Refused => "refused",
            Effect::Lost => "lost",
        }
    }
}

/// What is told of an alarm whenever it is raised.
#[derive(Clone, Copy, Debug)]
pub struct AlarmInfo {
    /// The stable code, `FB-` and three digits; the first one tells what it is about: 1 drives, 2 space, 3 clients, 4 the server, 5 the mover, 6 a cluster that it stands on.
    pub code: &'static str,
    /// The same in a word.
    pub name: &'static str,
    /// How soon somebody has to come.
    pub severity: Severity,
    /// What it means for the data.
    pub effect: Effect,
    /// What to type first.
    pub command: &'static str,
}

impl AlarmInfo {
    /// All that is to be told.
    pub const fn new(
        code: &'static str,
        name: &'static str,
        severity: Severity,
        effect: Effect,
        command: &'static str,
    ) -> AlarmInfo {
        AlarmInfo { code, name, severity, effect, command }
    }

    /// Where the runbook tells what to do.
    pub fn runbook(&self) -> String {
        format!("docs/runbook.md#{}-{}", self.code.to_lowercase(), self.name)
    }
}

/// The alarms that something may raise.
pub trait Alarms: Copy + Ord + 'static {
    /// All of them, by code.
    const ALL: &'static [Self];

    /// What is told of one.
    fn info(self) -> AlarmInfo;
}

/// An alarm that is raised.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RaisedAlarm {
    /// See [`AlarmInfo`].
    pub code: String,
    /// See [`AlarmInfo`].
    pub name: String,
    /// How soon somebody has to come.
    pub severity: Severity,
    /// What it means for the data.
    pub effect: Effect,
    /// What is so, with its numbers.
    pub words: String,
    /// What to type first.
    pub command: String,
    /// Where it is told what to do.
    pub runbook: String,
    /// For how long it has been raised.
    pub raised_s: f64,
}

impl RaisedAlarm {
    /// One of which this is so.
    pub fn new(info: &AlarmInfo, command: &str, words: String, raised_s: f64) -> RaisedAlarm {
        RaisedAlarm {
            code: info.code.to_owned(),
            name: info.name.to_owned(),
            severity: info.severity,
            effect: info.effect,
            words,
            command: command.to_owned(),
            runbook: info.runbook(),
            raised_s,
        }
    }
}

/// An alarm that came or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<A> {
    /// Which.
    pub alarm: A,
    /// What it says when it came.
    pub words: Option<String>,
}

/// Alarms that are to be raised now, with what is so.
pub type Wanted<A> = BTreeMap<A, String>;

/// The alarms that are raised.
#[derive(Clone, Debug)]
pub struct Raised<A>(BTreeMap<A, (Time, String)>);

impl<A> Default for Raised<A> {
    fn default() -> Self {
        Raised(BTreeMap::new())
    }
}

impl<A: Alarms> Raised<A> {
    /// What is so now; what came and went by it.
    pub fn set(&mut self, now: Time, mut wanted: Wanted<A>) -> Vec<Change<A>> {
        let mut changes = Vec::new();
        self.0.retain(|alarm, (_, words)| match wanted.remove(alarm) {
            Some(new) => {
                *words = new;
                true
            }
            None => {
                changes.push(Change { alarm: *alarm, words: None });
                false
            }
        });
        for (alarm, words) in wanted {
            changes.push(Change { alarm, words: Some(words.clone()) });
            self.0.insert(alarm, (now, words));
        }
        changes
    }

    /// Whether one is.
    pub fn is(&self, alarm: A) -> bool {
        self.0.contains_key(&alarm)
    }

    /// All of them, by code, with what is to be typed first for each.
    pub fn all(&self, now: Time, command: impl Fn(A) -> &'static str) -> Vec<RaisedAlarm> {
        let raised = |(alarm, (since, words)): (&A, &(Time, String))| {
            RaisedAlarm::new(&alarm.info(), command(*alarm), words.clone(), now.since(*since).as_secs_f64())
        };
        self.0.iter().map(raised).collect()
    }
}

/// Writes to the log that an alarm came or went.
pub fn log<A: Alarms>(Change { alarm, words }: &Change<A>, command: &str) {
    let info = alarm.info();
    let AlarmInfo { code, name, severity, effect, .. } = info;
    let runbook = info.runbook();
    match (words, severity) {
        (Some(words), Severity::Critical) => {
            tracing::error!(code, name, data = effect.word(), command, runbook, "{words}");
        }
        (Some(words), Severity::Warning) => {
            tracing::warn!(code, name, data = effect.word(), command, runbook, "{words}");
        }
        (None, _) => tracing::info!(code, name, "the alarm is over"),
    }
}

/// What is wrong with a runbook, of which the sections whose codes begin so belong to these alarms: each must have one, in their order, with what is told of it.
pub fn compare_with_runbook<A: Alarms>(runbook: &str, is_of_these: impl Fn(&str) -> bool) -> Result<(), String> {
    let heads = runbook.lines().filter_map(|line| line.strip_prefix("## "));
    let heads: Vec<&str> = heads.filter(|head| head.starts_with("FB-") && is_of_these(head)).collect();
    let wanted: Vec<String> =
        A::ALL.iter().map(|alarm| format!("{} {}", alarm.info().code, alarm.info().name)).collect();
    if heads != wanted {
        return Err(format!("the sections are {heads:?}, and the alarms {wanted:?}"));
    }
    for alarm in A::ALL {
        let AlarmInfo { code, name, severity, effect, command } = alarm.info();
        let section = runbook.split("\n## ").find(|section| section.starts_with(&format!("{code} {name}\n")));
        let section = section.ok_or_else(|| format!("{code} has no section"))?;
        for words in [
            format!("**{}**", severity.word()),
            format!("data: **{}**", effect.word()),
            format!("    {command}\n"),
            "\n1. ".to_owned(),
        ] {
            if !section.contains(&words) {
                return Err(format!("{code}: {words:?} is missing in\n{section}"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum Made {
        Up,
    }

    impl Alarms for Made {
        const ALL: &'static [Made] = &[Made::Up];

        fn info(self) -> AlarmInfo {
            AlarmInfo::new("FB-999", "made-up", Severity::Critical, Effect::Safe, "ls")
        }
    }

    #[test]
    fn an_alarm_is_told_once_when_it_comes_and_once_when_it_goes() {
        let mut raised = Raised::default();
        let wanted = |words: &str| Wanted::from([(Made::Up, words.to_owned())]);
        let came = raised.set(Time(0), wanted("one"));
        assert_eq!(came, [Change { alarm: Made::Up, words: Some("one".to_owned()) }]);
        let later = Time(0) + Duration::from_secs(7);
        assert_eq!(raised.set(later, wanted("two")), [], "it is raised already");
        let all = raised.all(later, |_| "ls -l");
        assert_eq!((all[0].words.as_str(), all[0].command.as_str(), all[0].raised_s), ("two", "ls -l", 7.0));
        assert_eq!(all[0].runbook, "docs/runbook.md#fb-999-made-up");
        assert_eq!(raised.set(later, Wanted::new()), [Change { alarm: Made::Up, words: None }]);
        assert!(!raised.is(Made::Up));
    }

    #[test]
    fn a_runbook_is_held_against_the_alarms() {
        let page = |name: &str, data: &str| {
            format!(
                "# Runbook\n\n## FB-999 {name}\n\n**critical** · data: **{data}**\n\nWords.\n\n    ls\n\n1. Look.\n"
            )
        };
        let compare = |page: &str| compare_with_runbook::<Made>(page, |_| true);
        assert_eq!(compare(&page("made-up", "safe")), Ok(()));
        assert!(compare(&page("made-up", "lost")).expect_err("other data").contains("data: **safe**"));
        assert!(compare(&page("made", "safe")).expect_err("another name").contains("FB-999 made-up"));
        assert!(compare(&(page("made-up", "safe") + "\n## FB-998 else\n")).is_err(), "one too many");
    }
}
