//! The alarms that there are: what each is called, what it means for the data, what is to be typed.
//!
//! Codes are stable: a code that was given once keeps its meaning, and one that is not used any more is not given again. Each has a section in
//! `docs/runbook.md`. What raises and clears them is in `monitor`.

use serde::Serialize;

/// How soon somebody has to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// During the day: nothing gets worse by the hour.
    Warning,
    /// Now.
    Critical,
}

/// What an alarm means for the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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

/// One of the alarms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each has its name; what it is stands in the table below and in the runbook")]
pub enum Alarm {
    DriveLost,
    ProtectionCritical,
    DriveSlow,
    DamageFound,
    DriveWorn,
    DataLost,
    Filling,
    Full,
    IndexNearFull,
    IndexFull,
    FilterSilent,
    RecorderStuck,
    UncleanStart,
    WritingStopped,
}

/// What is told of an alarm whenever it is raised.
#[derive(Clone, Copy, Debug)]
pub struct AlarmInfo {
    /// The stable code, `FB-` and three digits; the first one tells what it is about: 1 drives, 2 space, 3 clients, 4 the server.
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

const fn info(
    code: &'static str,
    name: &'static str,
    severity: Severity,
    effect: Effect,
    command: &'static str,
) -> AlarmInfo {
    AlarmInfo { code, name, severity, effect, command }
}

impl Alarm {
    /// All of them, by code.
    pub const ALL: [Alarm; 14] = [
        Alarm::DriveLost,
        Alarm::ProtectionCritical,
        Alarm::DriveSlow,
        Alarm::DamageFound,
        Alarm::DriveWorn,
        Alarm::DataLost,
        Alarm::Filling,
        Alarm::Full,
        Alarm::IndexNearFull,
        Alarm::IndexFull,
        Alarm::FilterSilent,
        Alarm::RecorderStuck,
        Alarm::UncleanStart,
        Alarm::WritingStopped,
    ];

    /// What is told of it.
    pub fn info(self) -> AlarmInfo {
        use Severity::{Critical, Warning};
        match self {
            Alarm::DriveLost => {
                info("FB-101", "drive-lost", Warning, Effect::LessProtected, "dmesg --level=err,warn | tail -n 50")
            }
            Alarm::ProtectionCritical => {
                info("FB-102", "protection-critical", Critical, Effect::AtRisk, "forebay record --out DIR")
            }
            Alarm::DriveSlow => info("FB-103", "drive-slow", Warning, Effect::Safe, "iostat -x 5 3"),
            Alarm::DamageFound => info("FB-104", "damage-found", Warning, Effect::LessProtected, "smartctl -a DEVICE"),
            Alarm::DriveWorn => info("FB-105", "drive-worn", Warning, Effect::Safe, "smartctl -a DEVICE"),
            Alarm::DataLost => info("FB-106", "data-lost", Critical, Effect::Lost, "forebay lost"),
            Alarm::Filling => info("FB-201", "filling", Warning, Effect::Safe, "forebay status --watch"),
            Alarm::Full => info("FB-202", "full", Critical, Effect::Refused, "forebay record --out DIR"),
            Alarm::IndexNearFull => info("FB-203", "index-near-full", Warning, Effect::Safe, "forebay status --watch"),
            Alarm::IndexFull => info("FB-204", "index-full", Critical, Effect::Refused, "forebay record --out DIR"),
            Alarm::FilterSilent => info("FB-301", "filter-silent", Warning, Effect::Safe, "forebay status --watch"),
            Alarm::RecorderStuck => info("FB-302", "recorder-stuck", Warning, Effect::Safe, "df -h DIR"),
            Alarm::UncleanStart => info(
                "FB-401",
                "unclean-start",
                Warning,
                Effect::Safe,
                "journalctl --boot=all --reverse | grep -E 'forebay|oom|panic'",
            ),
            Alarm::WritingStopped => {
                info("FB-402", "writing-stopped", Critical, Effect::Refused, "forebay status --json")
            }
        }
    }

    /// What to type first on this server; one that only reads has nothing to ship.
    pub fn command(self, read_only: bool) -> &'static str {
        match self {
            Alarm::ProtectionCritical if read_only => Alarm::DriveLost.info().command,
            alarm => alarm.info().command,
        }
    }

    /// Where the runbook tells what to do.
    pub fn runbook(self) -> String {
        let AlarmInfo { code, name, .. } = self.info();
        format!("docs/runbook.md#{}-{name}", code.to_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNBOOK: &str = include_str!("../../../docs/runbook.md");

    #[test]
    fn codes_and_names_are_unique_and_in_order() {
        let codes: Vec<&str> = Alarm::ALL.iter().map(|alarm| alarm.info().code).collect();
        assert!(codes.is_sorted_by(|a, b| a < b), "{codes:?}");
        let names: std::collections::BTreeSet<&str> = Alarm::ALL.iter().map(|alarm| alarm.info().name).collect();
        assert_eq!(names.len(), codes.len());
    }

    #[test]
    fn the_runbook_has_a_section_for_each_alarm_and_for_nothing_else() {
        let sections: Vec<&str> = RUNBOOK.lines().filter_map(|line| line.strip_prefix("## FB-")).collect();
        let wanted: Vec<String> = Alarm::ALL
            .iter()
            .map(|alarm| format!("{} {}", alarm.info().code.trim_start_matches("FB-"), alarm.info().name))
            .collect();
        assert_eq!(sections, wanted);
    }

    #[test]
    fn the_runbook_says_of_each_alarm_what_the_server_says() {
        for alarm in Alarm::ALL {
            let AlarmInfo { code, name, severity, effect, command } = alarm.info();
            let start = RUNBOOK.find(&format!("## {code} {name}\n")).expect("a section");
            let section = &RUNBOOK[start + 3..];
            let section = &section[..section.find("\n## ").unwrap_or(section.len())];
            let severity = format!("{severity:?}").to_lowercase();
            for words in [format!("**{severity}**"), format!("data: **{}**", effect.word()), format!("    {command}\n")]
            {
                assert!(section.contains(&words), "{code}: {words:?} is missing in\n{section}");
            }
        }
    }
}
