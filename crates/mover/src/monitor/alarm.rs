//! The alarms of a mover: what each is called, what it means for the data, what is to be typed. Each has a section in `docs/runbook.md`.

use forebay_telemetry::alarm::{AlarmInfo, Alarms, Effect, Severity};

/// One of the alarms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each has its name; what it is stands in the table below and in the runbook")]
pub enum MoverAlarm {
    FileQuarantined,
    DestinationAway,
    NothingProven,
    SourceSilent,
    TapeLate,
    NamesLeftAlone,
    JournalAtRisk,
    SourceFilling,
    RegisteringFails,
    HeldForLong,
    NoMover,
}

impl Alarms for MoverAlarm {
    const ALL: &'static [MoverAlarm] = &[
        MoverAlarm::FileQuarantined,
        MoverAlarm::DestinationAway,
        MoverAlarm::NothingProven,
        MoverAlarm::SourceSilent,
        MoverAlarm::TapeLate,
        MoverAlarm::NamesLeftAlone,
        MoverAlarm::JournalAtRisk,
        MoverAlarm::SourceFilling,
        MoverAlarm::RegisteringFails,
        MoverAlarm::HeldForLong,
        MoverAlarm::NoMover,
    ];

    fn info(self) -> AlarmInfo {
        use Severity::{Critical, Warning};
        const STATUS: &str = "forebay move status --journal FILE";
        let (code, name, severity, effect, command) = match self {
            MoverAlarm::FileQuarantined => (
                "FB-501",
                "file-quarantined",
                Warning,
                Effect::Safe,
                "forebay move list --state quarantined --journal FILE",
            ),
            MoverAlarm::DestinationAway => ("FB-502", "destination-away", Warning, Effect::Safe, STATUS),
            MoverAlarm::NothingProven => ("FB-503", "nothing-proven", Warning, Effect::Safe, STATUS),
            MoverAlarm::SourceSilent => ("FB-504", "source-silent", Warning, Effect::Safe, STATUS),
            MoverAlarm::TapeLate => {
                ("FB-505", "tape-late", Warning, Effect::Safe, "forebay move list --state waiting --journal FILE")
            }
            MoverAlarm::NamesLeftAlone => ("FB-506", "names-left-alone", Warning, Effect::Safe, STATUS),
            MoverAlarm::JournalAtRisk => ("FB-507", "journal-at-risk", Critical, Effect::Safe, "df -h FILE"),
            MoverAlarm::SourceFilling => ("FB-508", "source-filling", Critical, Effect::AtRisk, STATUS),
            MoverAlarm::RegisteringFails => ("FB-509", "registering-fails", Warning, Effect::Safe, STATUS),
            MoverAlarm::HeldForLong => {
                ("FB-510", "held-for-long", Warning, Effect::Safe, "forebay move list --state held --journal FILE")
            }
            MoverAlarm::NoMover => ("FB-511", "no-mover", Critical, Effect::Safe, STATUS),
        };
        AlarmInfo::new(code, name, severity, effect, command)
    }
}

#[cfg(test)]
mod tests {
    use forebay_telemetry::alarm::compare_with_runbook;

    use super::*;

    const RUNBOOK: &str = include_str!("../../../../docs/runbook.md");

    #[test]
    fn the_runbook_has_a_section_for_each_alarm_that_says_what_the_mover_says() {
        compare_with_runbook::<MoverAlarm>(RUNBOOK, |head| head.starts_with("FB-5"))
            .unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}
