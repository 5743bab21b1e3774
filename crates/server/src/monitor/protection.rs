//! How many drives may still fail, what is damaged or lost, and whether anything can be written.

use std::time::Duration;

use forebay_types::Time;

use super::limits::DAMAGE_TOLD;
use super::losses::data_lost;
use super::observation::{Observation, SeenDrive, SeenLane};
use super::{Wanted, list};
use crate::alarm::Alarm;

/// A lane that does not answer for so long is told of: for shorter it may have much to do.
const SILENT_TOLD: Duration = Duration::from_secs(5);

/// Rules about drives that are gone and data that are damaged.
#[derive(Default)]
pub(super) struct Protection {
    units_damaged: u64,
    damage_found: Option<Time>,
    silent_since: Option<Time>,
}

impl Protection {
    pub(super) fn judge(&mut self, now: Time, seen: &Observation, wanted: &mut Wanted) {
        let mut raise = |alarm, words: Option<String>| wanted.extend(words.map(|words| (alarm, words)));
        raise(Alarm::DriveLost, drive_lost(seen));
        raise(Alarm::ProtectionCritical, protection_critical(seen));
        raise(Alarm::DamageFound, self.damage_found(now, seen));
        raise(Alarm::DataLost, data_lost(seen));
        raise(Alarm::WritingStopped, self.writing_stopped(now, seen));
        raise(Alarm::UncleanStart, unclean_start(seen));
    }

    fn damage_found(&mut self, now: Time, seen: &Observation) -> Option<String> {
        let units = seen.sum(|lane| lane.units_damaged);
        if units > self.units_damaged {
            self.damage_found = Some(now);
        }
        // A lane that does not answer has not forgotten what it found.
        self.units_damaged = self.units_damaged.max(units);
        self.damage_found.filter(|found| now.since(*found) < DAMAGE_TOLD)?;
        let on = seen.drives.iter().filter(|drive| drive.units_damaged > 0);
        let on: Vec<String> = on.map(|drive| format!("{} of them on {}", drive.units_damaged, name(drive))).collect();
        let on = if on.is_empty() { String::new() } else { format!(", {}", on.join(", ")) };
        let mended = seen.sum(|lane| lane.units_mended);
        let stays = match seen.sum(|lane| lane.lost.fragments.saturating_add(lane.lost.flushes)) {
            0 => "",
            _ => ", and what is damaged on more drives than parity makes up for cannot be (FB-106)",
        };
        Some(format!(
            "damaged units were met {} times since the start{on}; {mended} units were written again{stays}. What stays damaged counts whenever it \
             is met, and nobody gets wrong bytes; a drive that gives back other bytes than it was given is to be replaced",
            self.units_damaged
        ))
    }

    fn writing_stopped(&mut self, now: Time, seen: &Observation) -> Option<String> {
        if seen.silent_lanes.is_empty() || seen.stopping {
            self.silent_since = None;
        } else {
            self.silent_since.get_or_insert(now);
        }
        if let Some(why) = &seen.failure {
            return Some(format!("nothing can be written: {why}"));
        }
        let stopped = seen.lanes.iter().find(|lane| lane.state == "unavailable");
        if let Some(lane) = stopped {
            let why = lane.reason.as_deref().unwrap_or("it is unavailable");
            return Some(format!("lane {} can write no more: {why}", lane.lane));
        }
        let silent = self.silent_since.is_some_and(|since| now.since(since) >= SILENT_TOLD);
        silent.then(|| {
            format!(
                "{} not answer: what is stored there is safe",
                list("lane", "lanes", &seen.silent_lanes) + if seen.silent_lanes.len() == 1 { " does" } else { " do" }
            )
        })
    }
}

/// A drive as an operator knows it.
pub(super) fn name(drive: &SeenDrive) -> String {
    match &drive.path {
        Some(path) => format!("drive {} ({path})", drive.number),
        None => format!("drive {} (not found)", drive.number),
    }
}

/// How many more drives may fail, by the lane that stands worst; `None` when nothing is stored.
fn failures_left(seen: &Observation) -> Option<u8> {
    seen.lanes.iter().filter_map(|lane| lane.failures_left).min()
}

/// Whether every lane has found out what it holds.
fn knows_what_is_stored(seen: &Observation) -> bool {
    seen.silent_lanes.is_empty() && seen.lanes.iter().all(|lane| matches!(lane.state, "serving" | "read-only"))
}

/// Whether something cannot be read now for want of drives.
fn is_out_of_reach(seen: &Observation) -> bool {
    let lost = |lane: &SeenLane| {
        let lost = &lane.lost;
        lost.out_of_reach.segments + lost.segments_unavailable + lost.flushes_unavailable
    };
    seen.sum(lost) > 0
}

fn what_may_fail(seen: &Observation, left: u8) -> String {
    match left {
        0 if is_out_of_reach(seen) => "part of what is stored is out of reach already (FB-106)".to_owned(),
        0 => "the loss of one more drive would put data out of reach".to_owned(),
        1 => "1 more drive may fail".to_owned(),
        left => format!("{left} more drives may fail"),
    }
}

fn drive_lost(seen: &Observation) -> Option<String> {
    let missed: Vec<&SeenDrive> = seen.drives.iter().filter(|drive| drive.is_missed()).collect();
    let in_use = seen.drives.iter().filter(|drive| drive.in_use).count();
    let too_few = in_use < usize::from(seen.shards);
    let left = failures_left(seen);
    let less = left.is_some_and(|left| left < seen.parity_shards);
    if !less && (missed.is_empty() && !too_few || are_made_up_for(seen, too_few)) {
        return None;
    }
    let what = match missed.len() {
        0 if too_few => format!("{} in use, and a segment at full width takes {}", drives_are(in_use), seen.shards),
        0 => "all drives are in use, but part of what is stored has not all of its shards".to_owned(),
        count => {
            let names: Vec<String> = missed.iter().map(|drive| name(drive)).collect();
            let are = if count == 1 { "is" } else { "are" };
            format!("{count} of {} drives {are} not in use: {}", in_use + count, names.join(", "))
        }
    };
    let left = match left {
        None if !knows_what_is_stored(seen) => {
            "how much may still fail is known when all lanes have recovered".to_owned()
        }
        None => "nothing is stored that could be concerned".to_owned(),
        Some(left) if !less => format!("all that is stored is whole, {}", what_may_fail(seen, left)),
        Some(left) => {
            format!("{} (the store was made for the loss of {})", what_may_fail(seen, left), seen.parity_shards)
        }
    };
    Some(format!("{what}; {left}"))
}

fn drives_are(count: usize) -> String {
    if count == 1 { "1 drive is".to_owned() } else { format!("{count} drives are") }
}

/// Whether nothing is missing for the drives that are out: there are enough others, and what is stored lies on them alone.
fn are_made_up_for(seen: &Observation, too_few: bool) -> bool {
    let whole = !seen.lanes.is_empty() && seen.silent_lanes.is_empty() && seen.lanes.iter().all(|lane| lane.is_whole);
    whole && seen.shards > 0 && !too_few
}

fn protection_critical(seen: &Observation) -> Option<String> {
    let left = failures_left(seen)?;
    let lost = seen.parity_shards.saturating_sub(left);
    let advice = match seen.read_only {
        true => "this server only reads; see to the drives before anything else",
        false => "ship what is accepted, and replace drives before anything else",
    };
    (lost >= 2 || lost > 0 && left == 0).then(|| {
        format!(
            "the protection against the loss of {lost} of {} drives is used up; {}: {advice}",
            seen.parity_shards,
            what_may_fail(seen, left)
        )
    })
}

fn unclean_start(seen: &Observation) -> Option<String> {
    seen.is_after_crash().then(|| {
        "the stop before this start was not in order (a crash, a kill or a power cut); everything that was acknowledged was looked for, and \
         what of it is missing would stand beside this"
            .to_owned()
    })
}
