//! `forebay drive list`: a line for each drive.

use std::collections::BTreeMap;

use forebay_client::Client;
use serde::Deserialize;

use crate::failure::Failure;
use crate::output::Output;
use crate::size::human_bytes;
use crate::status::parse;
use crate::status::report::Rebuild;

use super::Replacement;

/// The part of the status that is about drives.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Drives {
    drives: Vec<Drive>,
    replacement: Option<Replacement>,
    lanes: Vec<Lane>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Drive {
    number: u16,
    path: Option<String>,
    state: String,
    bytes: u64,
    reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Lane {
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
    output.line(&format!(
        "{:>6}  {:<8}  {:>9}  {:>8}  {:>7}  {:>7}  {}",
        "drive", "state", "size", "segments", "damaged", "mended", "path"
    ));
    for drive in &told.drives {
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
    let sum = |value: fn(&Rebuild) -> u64| told.lanes.iter().map(|lane| value(&lane.rebuild)).sum::<u64>();
    let missing = sum(|rebuild| rebuild.shards_missing);
    if missing > 0 {
        let left = human_bytes(sum(|rebuild| rebuild.bytes_left));
        let waits = told.lanes.iter().find_map(|lane| lane.rebuild.waits_for.as_deref());
        let shards = if missing == 1 { "1 shard lies".to_owned() } else { format!("{missing} shards lie") };
        notes.push(match waits.filter(|_| !told.lanes.iter().any(|lane| lane.rebuild.goes_on())) {
            Some(what) => format!("{shards} on no member, {left}: the rebuild waits for {what}"),
            None => format!("{shards} on no member, {left} are left to be made anew"),
        });
    }
    let stuck = sum(|rebuild| rebuild.segments_stuck);
    if stuck > 0 {
        notes.push(format!(
            "{stuck} segments cannot be made whole without the drives that are out: put those back if they still work"
        ));
    }
    let asked: u64 = told.lanes.iter().map(|lane| lane.scrub.segments_asked).sum();
    if asked > 0 {
        notes.push(format!("all that is stored is looked at, {asked} segments are left"));
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
    serde_json::json!({
        "drives": told.drives.iter().map(drive).collect::<Vec<_>>(),
        "whole": is_whole(told, of),
    })
}
