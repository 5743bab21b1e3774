//! What happened to an event, in words.

use std::collections::BTreeMap;

use forebay_mover::find::{EventInFile, FoundInFiles};
use forebay_types::EventKey;

use super::report::{Flush, Fragment, Trace};
use crate::failure::Failure;
use crate::size::{date_time, hex, human_bytes, human_count};

/// The lines of the answer.
pub fn lines(key: EventKey, trace: &Trace, files: Option<&FoundInFiles>) -> Vec<String> {
    let mut lines = vec![format!("event {key}, lane {}: {}", trace.lane, decision(trace, files))];
    lines.extend(known_of_run(key, trace));
    lines.extend(arrivals(trace));
    lines.extend(missing(trace));
    lines.extend(trace.flushes.iter().flat_map(|flush| flush_lines(flush, &trace.fragments)));
    let late = trace.late_puts.iter().map(|put| {
        let came = put.came_unix_ms.map_or("at an unknown time".to_owned(), date_time);
        format!("  late put: source {} with {} bytes came {came}, was acknowledged and dropped", put.source, put.bytes)
    });
    lines.extend(late);
    lines.extend(file_lines(key, trace, files));
    lines
}

/// What was decided.
fn decision(trace: &Trace, files: Option<&FoundInFiles>) -> String {
    let on_its_way = if trace.is_deciding { "; a decision is on its way to the drives" } else { "" };
    let words = match trace.state.as_str() {
        "undecided" if trace.is_offered => format!("undecided, offered to filters{}", attempts(trace)),
        "undecided" => format!("undecided, it waits for fragments{}", attempts(trace)),
        "leased" => {
            let left = trace.lease_left_s.map_or(String::new(), |left| format!(" for {left:.0} s more"));
            format!("undecided, leased to a filter{left} (attempt {})", trace.attempts)
        }
        "accepted" => {
            let stream = |stream: &super::report::Stream| {
                format!("{} ({})", stream.name, if stream.is_released { "released" } else { "not released yet" })
            };
            let streams: Vec<String> = trace.streams.iter().map(stream).collect();
            let incomplete = if trace.is_incomplete { ", without some of its sources" } else { "" };
            format!("accepted{incomplete} into {}", streams.join(", "))
        }
        "over" => over(trace, files),
        _ => "nothing of it was ever seen here".to_owned(),
    };
    words + on_its_way
}

fn attempts(trace: &Trace) -> String {
    match trace.attempts {
        0 => String::new(),
        1 => " again: one filter had it and did not decide".to_owned(),
        many => format!(" again: {many} filters had it and did not decide"),
    }
}

fn over(trace: &Trace, files: Option<&FoundInFiles>) -> String {
    let is_in_files = files.is_some_and(|files| !files.files.is_empty());
    match trace.end.as_deref() {
        Some("rejected") => "deleted: rejected by the event filter".to_owned(),
        Some("deleted") => "deleted by an operator".to_owned(),
        Some("released") => "released: all of its streams have it elsewhere, its space is free".to_owned(),
        _ if is_in_files => "over: recorded, as the sidecars of its files say; its space is free".to_owned(),
        _ => "over: rejected, deleted, or released by all of its streams; which of these is not remembered any more"
            .to_owned(),
    }
}

/// Of an event of which nothing is known, what is known of its run.
fn known_of_run(key: EventKey, trace: &Trace) -> Option<String> {
    if trace.state != "unknown" {
        return None;
    }
    let Some(run) = &trace.run_known else {
        return Some(format!(
            "  nothing of run {} was ever seen in lane {}, where this event belongs",
            key.run, trace.lane
        ));
    };
    let range = run.range.map_or(String::new(), |(first, last)| format!(", from {first} to {last}"));
    Some(format!(
        "  of run {} this lane has {} {}{range}, {} of them undecided; {} more are over",
        key.run,
        human_count(run.events),
        if run.events == 1 { "event" } else { "events" },
        human_count(run.undecided),
        human_count(run.over)
    ))
}

fn arrivals(trace: &Trace) -> Vec<String> {
    let times: BTreeMap<(&str, u32), Option<u64>> =
        trace.flushes.iter().map(|flush| ((flush.segment.as_str(), flush.flush), flush.written_unix_ms)).collect();
    let mut lines = Vec::new();
    if !trace.fragments.is_empty() {
        let of = if trace.expected > 0 {
            format!(" of {}", trace.expected)
        } else {
            " (nobody said of how many)".to_owned()
        };
        let record = if trace.in_one_record.is_some() { ", in one record" } else { "" };
        lines.push(format!(
            "  {}{of} fragments are here{record}; times are those at which their flushes were written:",
            trace.fragments.len()
        ));
    }
    if let (Some(fragments), true) = (trace.in_one_record, trace.fragments.is_empty()) {
        lines.push(format!(
            "  {fragments} fragments are in one record, whose directory cannot be read now; `forebay lost` says why"
        ));
    }
    lines.extend(trace.fragments.iter().map(|fragment| arrival(fragment, &times)));
    lines
}

fn arrival(fragment: &Fragment, times: &BTreeMap<(&str, u32), Option<u64>>) -> String {
    let Fragment { source, bytes, crc32c, segment, .. } = fragment;
    let flush = fragment.flush.map_or(String::new(), |flush| format!(", flush {flush}"));
    let written = fragment.flush.and_then(|flush| *times.get(&(segment.as_str(), flush))?);
    let state = match (fragment.is_lost, fragment.is_durable) {
        (true, _) => "LOST: damaged on more drives than parity makes up for".to_owned(),
        (false, true) => format!("durable {}", written.map_or("at an unknown time".to_owned(), date_time)),
        (false, false) => "arrived, on its way to the drives".to_owned(),
    };
    format!("    source {source:>10}  {bytes:>9} bytes  CRC32C {}  {state}  segment {segment}{flush}", hex(*crc32c))
}

fn missing(trace: &Trace) -> Option<String> {
    let missing = usize::from(trace.expected).checked_sub(trace.fragments.len()).filter(|missing| *missing > 0)?;
    if trace.fragments.is_empty() {
        return None;
    }
    let sources: Vec<String> = trace.missing_sources.iter().map(ToString::to_string).collect();
    let which = match sources.len() {
        0 => String::new(),
        _ => format!("; its neighbours in the run also have {}", sources.join(", ")),
    };
    Some(format!("  {missing} expected {} not come{which}", if missing == 1 { "source has" } else { "sources have" }))
}

fn flush_lines(flush: &Flush, fragments: &[Fragment]) -> Vec<String> {
    let lies_there = |fragment: &&Fragment| fragment.segment == flush.segment && fragment.flush == Some(flush.flush);
    let is_lost = fragments.iter().filter(lies_there).any(|fragment| fragment.is_lost);
    let left = match flush.failures_left {
        _ if is_lost => "DAMAGED on more drives than parity makes up for; `forebay lost` says on which".to_owned(),
        Some(1) => "1 more drive may fail".to_owned(),
        Some(left) => format!("{left} more drives may fail"),
        None => "OUT OF REACH: too few of its drives are there".to_owned(),
    };
    let head = format!(
        "  segment {} flush {}, {}+{}: {left}",
        flush.segment, flush.flush, flush.data_shards, flush.parity_shards
    );
    let shard = |shard: &super::report::Shard| {
        let state = match shard.state.as_str() {
            "there" if is_lost => "  the header is there; what is behind it was not looked at now".to_owned(),
            "there" => String::new(),
            "drive-missing" => "  the drive is not there".to_owned(),
            "unreadable" => "  the drive does not give it".to_owned(),
            "damaged" => "  DAMAGED: something else lies there".to_owned(),
            other => format!("  {}", other.replace('-', " ")),
        };
        format!("    drive {:>3}  slot {:>6}  at byte {:>14}{state}", shard.drive, shard.slot, shard.offset_bytes)
    };
    [head].into_iter().chain(flush.shards.iter().map(shard)).collect()
}

/// In which files it is, or what to type to know it.
fn file_lines(key: EventKey, trace: &Trace, files: Option<&FoundInFiles>) -> Vec<String> {
    let may_be_in_files =
        trace.state == "accepted" || trace.state == "over" && matches!(trace.end.as_deref(), None | Some("released"));
    let Some(files) = files else {
        let advice = format!(
            "  files: `forebay trace {key} --files DIR` says in which files it is, where DIR is what was recorded to; `forebay move show {key} --journal FILE` tells of each step"
        );
        return if may_be_in_files { vec![advice] } else { Vec::new() };
    };
    let mut lines: Vec<String> = files.files.iter().map(file_line).collect();
    if lines.is_empty() {
        lines.push(match files.sidecars {
            0 => "  files: no file in that directory has a sidecar".to_owned(),
            sidecars => format!(
                "  files: none of the {sidecars} files with a sidecar there has it; files that were moved away are not known there"
            ),
        });
    }
    lines.extend(files.problems.iter().map(|problem| format!("  files: not looked at: {problem}")));
    lines
}

fn file_line(file: &EventInFile) -> String {
    let place = file.place.map_or("it cannot be read there now".to_owned(), |place| {
        format!("{} bytes at byte {}, CRC32C {}", place.bytes, place.offset_bytes, hex(place.crc32c))
    });
    let incomplete = if file.is_incomplete { ", without some of its fragments" } else { "" };
    let stream = file.stream.as_ref().map_or(String::new(), |stream| format!(" of stream {stream}"));
    let (path, bytes) = (file.path.display(), human_bytes(file.file_bytes));
    format!(
        "  file{stream}: {path}: {place}{incomplete}; the file: {bytes}, Adler-32 {}, came back as it was written",
        file.adler32
    )
}

/// Why the command does not end well, if it does not.
pub fn failure(key: EventKey, trace: &Trace, files: Option<&FoundInFiles>) -> Option<Failure> {
    let lost = trace.fragments.iter().filter(|fragment| fragment.is_lost).count();
    let is_in_files = files.is_some_and(|files| !files.files.is_empty());
    if lost > 0 {
        return Some(Failure::data(format!("{lost} fragments of event {key} are lost; `forebay lost` says why")));
    }
    if trace.state == "unknown" && !is_in_files {
        let words = format!(
            "nothing of event {key} was ever seen here, or it was never acknowledged: its writer knows whether it was"
        );
        return Some(Failure::data(words));
    }
    trace.flushes.iter().any(|flush| flush.failures_left.is_none()).then(|| {
        Failure::retry(format!("a part of event {key} is out of reach: put back the drives that are missing; nothing of it is known to be lost"))
    })
}
