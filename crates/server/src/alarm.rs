//! The alarms that there are: what each is called, what it means for the data, what is to be typed.
//!
//! Codes are stable: a code that was given once keeps its meaning, and one that is not used any more is not given again. Each has a section in
//! `docs/runbook.md`. What raises and clears them is in `monitor`.

use forebay_telemetry::alarm::Alarms;
pub use forebay_telemetry::alarm::{AlarmInfo, Effect, Severity};

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
    ClusterUnwell,
    ClusterSilent,
    PoolFilling,
}

impl Alarms for Alarm {
    const ALL: &'static [Alarm] = &[
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
        Alarm::ClusterUnwell,
        Alarm::ClusterSilent,
        Alarm::PoolFilling,
    ];

    fn info(self) -> AlarmInfo {
        use Severity::{Critical, Warning};
        let info = AlarmInfo::new;
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
            Alarm::ClusterUnwell => {
                info("FB-601", "cluster-unwell", Warning, Effect::LessProtected, "ceph health detail")
            }
            Alarm::ClusterSilent => info("FB-602", "cluster-silent", Warning, Effect::Safe, "ceph -s"),
            Alarm::PoolFilling => info("FB-603", "pool-filling", Warning, Effect::Safe, "ceph df"),
        }
    }
}

impl Alarm {
    /// What to type first on this server; one that only reads has nothing to ship.
    pub fn command(self, read_only: bool) -> &'static str {
        match self {
            Alarm::ProtectionCritical if read_only => Alarm::DriveLost.info().command,
            alarm => alarm.info().command,
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_telemetry::alarm::compare_with_runbook;

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
    fn the_runbook_has_a_section_for_each_alarm_that_says_what_the_server_says() {
        let is_the_movers = |head: &str| head.starts_with("FB-5");
        compare_with_runbook::<Alarm>(RUNBOOK, |head| !is_the_movers(head)).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}
