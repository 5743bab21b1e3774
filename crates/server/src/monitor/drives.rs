//! How fast each drive is, and when it will be worn out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use forebay_store::DriveCounts;
use forebay_types::Time;
use serde::Serialize;

use super::history::History;
use super::limits::{
    LATENCY_AGE, LATENCY_OPERATIONS_MIN, LATENCY_SLOW, LATENCY_TIMES, LATENCY_TOO_SLOW, LOOK_EVERY, WEAR_LATE_S,
    WEAR_PERCENT_HIGH, WEAR_RATE_AGE, WEAR_RATE_AGE_MIN, WEAR_SOON_S,
};
use super::observation::{Observation, SeenDrive};
use super::protection::name;
use super::{Wanted, human};
use crate::alarm::Alarm;

/// What is found out about a drive.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct DriveFinding {
    /// How long a write took in the last minute, on the average; absent when there were too few.
    pub(crate) write_latency_s: Option<f64>,
    /// The same of reads.
    pub(crate) read_latency_s: Option<f64>,
    /// It is much slower than the others, or than any drive may be.
    pub(crate) is_slow: bool,
    /// Bytes written in a second, on the average of the last day or since the start.
    pub(crate) written_bytes_per_s: Option<f64>,
    /// Bytes that it was made for.
    pub(crate) rated_bytes: Option<u64>,
    /// Bytes that were ever written to it, as it says; when it does not, those since the start.
    pub(crate) lifetime_written_bytes: u64,
    /// The drive itself has counted them.
    pub(crate) is_lifetime_known: bool,
    /// How much of its life is over, as the drive says.
    pub(crate) used_percent: Option<u8>,
    /// Whether the drive thinks that it is well; absent when it does not say.
    pub(crate) is_well: Option<bool>,
    /// How long it was powered on, as the drive says.
    pub(crate) power_on_hours: Option<u64>,
    /// Seconds until it has written what it was made for, at this rate.
    pub(crate) worn_out_in_s: Option<f64>,
}

/// Rules about single drives.
#[derive(Default)]
pub(super) struct Drives {
    /// Of the last minute, oldest first.
    recent: VecDeque<(Time, BTreeMap<u16, DriveCounts>)>,
    written: BTreeMap<u16, History<u64>>,
    slow: BTreeSet<u16>,
    worn: BTreeSet<u16>,
    findings: BTreeMap<u16, DriveFinding>,
}

/// Mean times of one kind of operation, by drive.
type Means = BTreeMap<u16, Duration>;

impl Drives {
    pub(super) fn findings(&self) -> &BTreeMap<u16, DriveFinding> {
        &self.findings
    }

    pub(super) fn judge(&mut self, now: Time, seen: &Observation, wanted: &mut Wanted) {
        let counts: BTreeMap<u16, DriveCounts> =
            seen.drives.iter().filter(|drive| drive.in_use).map(|drive| (drive.number, drive.counts)).collect();
        let writes = self.means(&counts, |counts| (counts.writes, counts.write_ns));
        let reads = self.means(&counts, |counts| (counts.reads, counts.read_ns));
        self.slow = counts
            .keys()
            .filter(|drive| {
                let was_slow = self.slow.contains(drive);
                is_slow(**drive, &writes, was_slow) || is_slow(**drive, &reads, was_slow)
            })
            .copied()
            .collect();
        self.remember(now, counts);
        self.findings =
            seen.drives.iter().map(|drive| (drive.number, self.finding(now, drive, &writes, &reads))).collect();
        self.worn = seen
            .drives
            .iter()
            .filter(|drive| drive.in_use && self.is_worn(drive.number))
            .map(|drive| drive.number)
            .collect();
        wanted.extend(self.slow_words(seen).map(|words| (Alarm::DriveSlow, words)));
        wanted.extend(self.worn_words(seen).map(|words| (Alarm::DriveWorn, words)));
    }

    fn remember(&mut self, now: Time, counts: BTreeMap<u16, DriveCounts>) {
        if self.recent.back().is_some_and(|(last, _)| now < *last + LOOK_EVERY) {
            return;
        }
        for (drive, counts) in &counts {
            let written = self.written.entry(*drive).or_insert_with(|| History::new(WEAR_RATE_AGE));
            written.push(now, counts.bytes_written);
        }
        self.written.retain(|drive, _| counts.contains_key(drive));
        while self.recent.front().is_some_and(|(first, _)| now > *first + LATENCY_AGE) {
            self.recent.pop_front();
        }
        self.recent.push_back((now, counts));
    }

    /// Mean times since the oldest look that is remembered.
    fn means(&self, counts: &BTreeMap<u16, DriveCounts>, of: impl Fn(&DriveCounts) -> (u64, u64)) -> Means {
        let Some((_, first)) = self.recent.front() else { return Means::new() };
        let mean = |(drive, now): (&u16, &DriveCounts)| {
            let (then_count, then_ns) = of(first.get(drive)?);
            let (count, ns) = of(now);
            let operations = count.saturating_sub(then_count);
            (operations >= LATENCY_OPERATIONS_MIN)
                .then(|| (*drive, Duration::from_nanos(ns.saturating_sub(then_ns) / operations)))
        };
        counts.iter().filter_map(mean).collect()
    }

    fn finding(&self, now: Time, drive: &SeenDrive, writes: &Means, reads: &Means) -> DriveFinding {
        let seconds = |means: &Means| means.get(&drive.number).map(Duration::as_secs_f64);
        let written_bytes_per_s = self.rate(now, drive);
        let smart = drive.smart.clone().unwrap_or_default();
        let mut finding = DriveFinding {
            write_latency_s: seconds(writes),
            read_latency_s: seconds(reads),
            is_slow: self.slow.contains(&drive.number),
            written_bytes_per_s,
            rated_bytes: drive.rated_bytes,
            lifetime_written_bytes: smart.written_bytes.unwrap_or(drive.counts.bytes_written),
            is_lifetime_known: smart.written_bytes.is_some(),
            used_percent: smart.used_percent,
            is_well: smart.is_well,
            power_on_hours: smart.power_on_hours,
            worn_out_in_s: None,
        };
        finding.worn_out_in_s = worn_out_in_s(&finding);
        finding
    }

    /// Bytes a second, over the last day or since the start.
    fn rate(&self, now: Time, drive: &SeenDrive) -> Option<f64> {
        let (then, bytes) = self.written.get(&drive.number)?.oldest_within(now, WEAR_RATE_AGE)?;
        let time = now.since(*then);
        (time >= WEAR_RATE_AGE_MIN)
            .then(|| drive.counts.bytes_written.saturating_sub(*bytes) as f64 / time.as_secs_f64())
    }

    fn is_worn(&self, drive: u16) -> bool {
        let Some(finding) = self.findings.get(&drive) else { return false };
        let soon_s = if self.worn.contains(&drive) { WEAR_LATE_S } else { WEAR_SOON_S };
        finding.is_well == Some(false)
            || finding.used_percent.is_some_and(|percent| u64::from(percent) >= WEAR_PERCENT_HIGH)
            || finding.worn_out_in_s.is_some_and(|seconds| seconds < soon_s)
    }

    fn slow_words(&self, seen: &Observation) -> Option<String> {
        let words = seen.drives.iter().filter(|drive| self.slow.contains(&drive.number)).map(|drive| {
            let finding = &self.findings[&drive.number];
            let ms =
                |seconds: Option<f64>| seconds.map_or("-".to_owned(), |seconds| format!("{:.0} ms", seconds * 1000.0));
            format!("{}: {} a write, {} a read", name(drive), ms(finding.write_latency_s), ms(finding.read_latency_s))
        });
        let words: Vec<String> = words.collect();
        (!words.is_empty()).then(|| {
            format!("{}, much more than the other drives take: all writing waits for the slowest", words.join("; "))
        })
    }

    fn worn_words(&self, seen: &Observation) -> Option<String> {
        let words = seen.drives.iter().filter(|drive| self.worn.contains(&drive.number)).map(|drive| {
            let finding = &self.findings[&drive.number];
            let failing = (finding.is_well == Some(false)).then(|| " says of itself that it fails".to_owned());
            let used = finding.used_percent.map(|percent| format!(" has used {percent} % of its life"));
            let left = finding.worn_out_in_s.map(|seconds| match seconds {
                0.0 => " has written what it was made for".to_owned(),
                _ => format!(" will have written what it was made for in {}", human(Duration::from_secs_f64(seconds))),
            });
            format!("{}{}", name(drive), [failing, used, left].into_iter().flatten().collect::<Vec<_>>().join(" and"))
        });
        let words: Vec<String> = words.collect();
        (!words.is_empty()).then(|| format!("{}: have a replacement ready", words.join("; ")))
    }
}

/// Whether a drive's operations take much longer than those of the others. One that was slow must be twice as fast to be slow no more.
fn is_slow(drive: u16, means: &Means, was_slow: bool) -> bool {
    let Some(mean) = means.get(&drive) else { return false };
    let mean = if was_slow { *mean * 2 } else { *mean };
    if mean >= LATENCY_TOO_SLOW {
        return true;
    }
    let mut others: Vec<Duration> = means.iter().filter(|(other, _)| **other != drive).map(|(_, mean)| *mean).collect();
    others.sort_unstable();
    let median = others.get(others.len() / 2).filter(|_| others.len() >= 2);
    median.is_some_and(|median| mean >= LATENCY_SLOW && mean >= *median * LATENCY_TIMES)
}

/// From what the drive was made for, or, when nobody said, from how much of its life it says is over.
fn worn_out_in_s(finding: &DriveFinding) -> Option<f64> {
    let rate = finding.written_bytes_per_s.filter(|rate| *rate > 0.0)?;
    let written = finding.lifetime_written_bytes as f64;
    let by_itself = || {
        let percent = f64::from(finding.used_percent.filter(|percent| *percent > 0)?);
        finding.is_lifetime_known.then(|| written * (100.0 / percent))
    };
    let made_for = finding.rated_bytes.map(|bytes| bytes as f64).or_else(by_itself)?;
    let seconds = ((made_for - written) / rate).max(0.0);
    // Whatever is further away than a person plans is no date.
    (seconds < 100.0 * 366.0 * 86_400.0).then_some(seconds)
}
