//! `forebay drive list`: a line for each drive.

use std::collections::{BTreeMap, BTreeSet};

use forebay_client::Client;
use serde::Deserialize;

use crate::failure::Failure;
use crate::output::Output;
use crate::size::{human_bytes, started};
use crate::status::parse;
use crate::status::report::{OutOfReach, Rebuild, Totals};

use super::Replacement;

/// The part of the status that is about drives.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Drives {
    uptime_s: f64,
    drives: Vec<Drive>,
    replacement: Option<Replacement>,
    lanes: Vec<Lane>,
    totals: Totals,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Drive {
    number: u16,
    path: Option<String>,
    state: String,
    bytes: u64,
    reason: Option<String>,
    /// Absent as long as that is not known.
    segments_alive: Option<u64>,
}

impl Drive {
    /// It left before this start, is not there, and nothing lies on it.
    fn is_over(&self) -> bool {
        self.state == "gone" && self.segments_alive == Some(0)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Lane {
    out_of_reach: OutOfReach,
    rebuild: Rebuild,
    scrub: Scrub,
    drive_health: Vec<Health>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Scrub {
    segments_asked: u64,
}

/// What the lanes know of a drive; here summed over them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Health {
    drive: u16,
    segments_alive: u64,
    units_damaged: u64,
    units_unreadable: u64,
    headers_damaged: u64,
    mended: u64,
    reads_failed: u64,
}

impl Health {
    fn add(&mut self, other: &Health) {
        self.segments_alive += other.segments_alive;
        self.units_damaged += other.units_damaged;
        self.units_unreadable += other.units_unreadable;
        self.headers_damaged += other.headers_damaged;
        self.mended += other.mended;
        self.reads_failed += other.reads_failed;
    }

    fn damage(&self) -> u64 {
        self.units_damaged + self.units_unreadable + self.headers_damaged
    }
}

/// Shows the drives.
pub(super) fn list(client: &mut Client, output: &Output) -> Result<(), Failure> {
    let told: Drives = parse(&client.status()?)?;
    let mut health: BTreeMap<u16, Health> = BTreeMap::new();
    for found in told.lanes.iter().flat_map(|lane| &lane.drive_health) {
        health.entry(found.drive).or_default().add(found);
    }
    output.object(&object(&told, &health));
    let of = |drive: &Drive| health.get(&drive.number).cloned().unwrap_or_default();
    output.line(&format!("damaged and mended: since the start of the server, {}", started(told.uptime_s)));
    output.line(&format!(
        "{:>6}  {:<8}  {:>9}  {:>8}  {:>7}  {:>7}  {}",
        "drive", "state", "size", "segments", "damaged", "mended", "path"
    ));
    for drive in told.drives.iter().filter(|drive| !drive.is_over()) {
        let health = of(drive);
        output.line(&format!(
            "{:>6}  {:<8}  {:>9}  {:>8}  {:>7}  {:>7}  {}{}",
            drive.number,
            drive.state,
            human_bytes(drive.bytes),
            health.segments_alive,
            health.damage(),
            health.mended,
            drive.path.as_deref().unwrap_or("-"),
            drive.reason.as_ref().map_or(String::new(), |reason| format!("  ({reason})")),
        ));
    }
    for line in notes(&told, of) {
        output.line(&line);
    }
    Ok(())
}

/// What is under way, and what may be done next.
fn notes(told: &Drives, of: impl Fn(&Drive) -> Health) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(left_earlier(told));
    notes.extend(out_of_reach(told));
    let sum = |value: fn(&Rebuild) -> u64| told.lanes.iter().map(|lane| value(&lane.rebuild)).sum::<u64>();
    let missing = sum(|rebuild| rebuild.shards_missing);
    if missing > 0 {
        let left = human_bytes(sum(|rebuild| rebuild.bytes_left));
        let is_stuck = !told.lanes.iter().any(|lane| lane.rebuild.goes_on());
        let waits = told.lanes.iter().find_map(|lane| lane.rebuild.waits_for.as_deref());
        let shards = if missing == 1 { "1 shard lies".to_owned() } else { format!("{missing} shards lie") };
        notes.push(match waits.filter(|_| is_stuck) {
            Some(what) => format!("{shards} on no member, {left}: the rebuild waits for {what}"),
            None if is_stuck => format!("{shards} on no member, {left}: nothing more can be made anew now"),
            None => format!("{shards} on no member, {left} are left to be made anew"),
        });
    }
    let stuck = sum(|rebuild| rebuild.segments_stuck);
    if stuck > 0 {
        let segments = if stuck == 1 { "1 segment".to_owned() } else { format!("{stuck} segments") };
        notes.push(format!(
            "{segments} cannot be made whole from the drives that answer: put those back that are out, if they still work"
        ));
    }
    let asked: u64 = told.lanes.iter().map(|lane| lane.scrub.segments_asked).sum();
    if asked > 0 {
        let left = if asked == 1 { "1 segment is".to_owned() } else { format!("{asked} segments are") };
        notes.push(format!("all that is stored is looked at, {left} left"));
    }
    let is_whole = is_whole(told, &of);
    for drive in told.drives.iter().filter(|drive| matches!(drive.state.as_str(), "retired" | "out" | "failed")) {
        if is_whole {
            notes.push(format!("nothing lives on drive {} any more: it may be taken away", drive.number));
        }
    }
    if let Some(Replacement { drive, path, state, done_bytes, total_bytes, number, reason, .. }) = &told.replacement {
        let number = number.map_or(String::new(), |number| format!(" as drive {number}"));
        let how_far = if *total_bytes > 0 && state != "done" {
            format!(", {} of {}", human_bytes(*done_bytes), human_bytes(*total_bytes))
        } else {
            String::new()
        };
        let reason = reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
        notes.push(format!("{path} for drive {drive}{number}: {state}{how_far}{reason}"));
    }
    notes
}

/// Drives that are listed no more.
fn left_earlier(told: &Drives) -> Option<String> {
    let over: Vec<String> =
        told.drives.iter().filter(|drive| drive.is_over()).map(|drive| drive.number.to_string()).collect();
    match &over[..] {
        [] => None,
        [drive] => Some(format!("drive {drive} left earlier, and nothing lies on it any more: it is not shown")),
        drives => Some(format!(
            "drives {} left earlier, and nothing lies on them any more: they are not shown",
            drives.join(", ")
        )),
    }
}

/// What cannot be read now, and which drives bring it.
fn out_of_reach(told: &Drives) -> Option<String> {
    let drives = drives_needed(told);
    let Totals { out_of_reach: OutOfReach { segments, bytes, .. }, flushes_unavailable, segments_unavailable, .. } =
        &told.totals;
    let here = match segments {
        1 => format!("1 segment with {}", human_bytes(*bytes)),
        segments => format!("{segments} segments with {}", human_bytes(*bytes)),
    };
    let what = match (segments, flushes_unavailable + segments_unavailable) {
        (0, 0) => return None,
        (_, 0) => here,
        (0, _) => "what the start could not read for want of drives".to_owned(),
        (_, _) => format!("{here}, and what the start could not read for want of drives"),
    };
    let which: Vec<String> = drives.iter().map(u16::to_string).collect();
    let back = match &which[..] {
        [] => "put back the drives that are missing, as they are, and start the server with them".to_owned(),
        [drive] => format!("put back drive {drive}, as it is, and start the server with it"),
        drives => format!("put back drives {}, as they are, and start the server with them", drives.join(", ")),
    };
    Some(format!("OUT OF REACH: {what}: {back}; `forebay lost` lists what it is"))
}

fn drives_needed(told: &Drives) -> BTreeSet<u16> {
    told.lanes.iter().flat_map(|lane| lane.out_of_reach.drives.iter().copied()).collect()
}

/// Whether everything lies on members. Just after a drive was taken out a lane may not have heard of it.
fn is_whole(told: &Drives, of: impl Fn(&Drive) -> Health) -> bool {
    let lanes = !told.lanes.is_empty() && told.lanes.iter().all(|lane| lane.rebuild.is_whole);
    lanes && told.drives.iter().all(|drive| drive.state == "member" || of(drive).segments_alive == 0)
}

/// The same for scripts.
fn object(told: &Drives, health: &BTreeMap<u16, Health>) -> serde_json::Value {
    let of = |drive: &Drive| health.get(&drive.number).cloned().unwrap_or_default();
    let drive = |drive: &Drive| {
        let of = of(drive);
        serde_json::json!({
            "number": drive.number,
            "state": drive.state,
            "path": drive.path,
            "bytes": drive.bytes,
            "reason": drive.reason,
            "segments_alive": of.segments_alive,
            "units_damaged": of.units_damaged,
            "units_unreadable": of.units_unreadable,
            "headers_damaged": of.headers_damaged,
            "mended": of.mended,
            "reads_failed": of.reads_failed,
        })
    };
    let sum = |value: fn(&Lane) -> u64| told.lanes.iter().map(value).sum::<u64>();
    serde_json::json!({
        "drives": told.drives.iter().map(drive).collect::<Vec<_>>(),
        "whole": is_whole(told, of),
        "rebuild": {
            "shards_missing": sum(|lane| lane.rebuild.shards_missing),
            "bytes_left": sum(|lane| lane.rebuild.bytes_left),
            "segments_waiting": sum(|lane| lane.rebuild.segments_waiting),
            "segments_stuck": sum(|lane| lane.rebuild.segments_stuck),
            "waits_for": told.lanes.iter().find_map(|lane| lane.rebuild.waits_for.clone()),
        },
        "scrub": { "segments_asked": sum(|lane| lane.scrub.segments_asked) },
        "out_of_reach": {
            "segments": told.totals.out_of_reach.segments,
            "segments_unavailable": told.totals.segments_unavailable,
            "flushes_unavailable": told.totals.flushes_unavailable,
            "bytes": told.totals.out_of_reach.bytes,
            "drives": drives_needed(told),
        },
        "replacement": told.replacement,
    })
}
