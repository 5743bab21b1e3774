//! The report for a person.

use std::fmt::Write;

use forebay_engine::{Found, Listed};

use super::report::{Drive, Exported, Lane, Readable, Report, Segment, Shard, Unknown, Verdict};
use crate::size::{counted, human_bytes, human_count};

/// Lines of one kind that a person reads; `--json` has all.
const LINES_MAX: usize = 6;

/// Rows of a name and words.
#[derive(Default)]
struct Rows(String);

impl Rows {
    fn row(&mut self, name: &str, words: &str) {
        // Writing to a String does not fail.
        let _ = writeln!(self.0, "  {name:<11} {words}");
    }

    /// Some lines, and how many more there are.
    fn some<T>(&mut self, items: &[T], words: impl Fn(&T) -> String) {
        self.some_of(items, items.len() as u64, words);
    }

    /// The same of items that are not all listed.
    fn some_of<T>(&mut self, items: &[T], all: u64, words: impl Fn(&T) -> String) {
        items.iter().take(LINES_MAX).for_each(|item| self.row("", &words(item)));
        let shown = items.len().min(LINES_MAX) as u64;
        if all > shown {
            self.row("", &format!("and {} more; --json tells more of them", human_count(all - shown)));
        }
    }
}

/// The whole screen, without a line end after it.
pub fn screen(report: &Report) -> String {
    let mut rows = Rows::default();
    rows.row("store", report.store.as_deref().unwrap_or("none was found on these drives"));
    rows.row("verdict", &verdict(report));
    drives(report, &mut rows);
    layout(report, &mut rows);
    for lane in &report.lanes {
        tell_lane(lane, &mut rows);
    }
    damage(report, &mut rows);
    stored(report, &mut rows);
    books(report, &mut rows);
    if report.store.is_some() {
        readable(&report.readable, report.quick, &mut rows);
        start(report, &mut rows);
    }
    if let Some(exported) = &report.export {
        export(exported, &mut rows);
    }
    for warning in &report.warnings {
        rows.row("warning", warning);
    }
    rows.0.truncate(rows.0.trim_end().len());
    rows.0
}

fn export(export: &Exported, rows: &mut Rows) {
    rows.row(
        "export",
        &format!(
            "{}{}, {}, of {} into {}; {} put together; {} could not be read",
            if export.stopped { "STOPPED: " } else { "" },
            counted(export.fragments, "fragment"),
            human_bytes(export.bytes),
            counted(export.events, "event"),
            export.directory,
            counted(export.events_joined, "event"),
            counted(export.fragments_missing, "fragment")
        ),
    );
    let missing = export.files_lost + export.files_unavailable;
    if export.files + missing > 0 {
        let (files, bytes) = (counted(export.files, "file"), human_bytes(export.file_bytes));
        rows.row("", &format!("{files} whole, {bytes} of files; {} could not be read whole", counted(missing, "file")));
    }
}

fn verdict(report: &Report) -> String {
    let words = match report.verdict {
        Verdict::NoStore => "NO STORE: none of the drives tells of one; name the drives of the store",
        Verdict::Whole => "WHOLE: all is there as it was written",
        Verdict::Repairable => "REPAIRABLE: all can be read, but not all drives hold what they should",
        Verdict::OutOfReach => "OUT OF REACH: something cannot be read as long as drives are missing",
        Verdict::Lost => "LOST: something is damaged on more drives than parity can mend",
    };
    let quick = if report.quick { " (as far as headers and tables tell: --quick)" } else { "" };
    format!("{words}{quick}")
}

fn drives(report: &Report, rows: &mut Rows) {
    let of_store = report.drives.iter().filter(|drive| matches!(drive.state, "member" | "out")).count();
    let all = of_store + report.drives_missing.len();
    rows.row("drives", &format!("{of_store} of the {all} drives of the store are here"));
    for drive in &report.drives {
        rows.row("", &drive_line(drive));
    }
    for missing in &report.drives_missing {
        let state = match (missing.member, missing.segments) {
            (true, _) => "a member",
            (false, 0) => "taken out earlier; what could not be read may lie on it, too",
            (false, _) => "taken out earlier; something that is stored lies on it",
        };
        rows.row("", &format!("{:>3} {:<13} {state}, UUID {}", missing.number, "MISSING", missing.uuid));
    }
    for left in &report.drives_left {
        let words = "taken out earlier, and nothing that is stored lies on it: it is not needed";
        rows.row("", &format!("{:>3} {:<13} {words}, UUID {}", left.number, "left", left.uuid));
    }
}

fn drive_line(drive: &Drive) -> String {
    let number = drive.number.map_or("-".to_owned(), |number| number.to_string());
    let bytes = drive.bytes.map_or(String::new(), |bytes| format!(", {}", human_bytes(bytes)));
    let generation = drive.generation.map_or(String::new(), |generation| format!(", generation {generation}"));
    format!("{number:>3} {:<13} {}{bytes}{generation}", drive.state, drive.path)
}

fn layout(report: &Report, rows: &mut Rows) {
    if let Some(geometry) = &report.geometry {
        rows.row(
            "layout",
            &format!(
                "{}+{} (at least {}+{} with drives missing), {}, slots of {}, units of {}, format {}",
                geometry.data_shards,
                geometry.parity_shards,
                geometry.data_shards_min,
                geometry.parity_shards,
                counted(geometry.lanes.into(), "lane"),
                human_bytes(geometry.slot_bytes),
                human_bytes(geometry.unit_bytes.into()),
                geometry.format_version
            ),
        );
    }
    if let Some(start) = &report.last_start {
        let end = if start.clean { "stopped in order" } else { "not stopped in order" };
        let by = start.program.as_ref().map_or(String::new(), |program| format!(" by Forebay {program}"));
        rows.row("last start", &format!("{}{by}, {end}; member list {}", start.epoch, start.membership));
    }
}

fn tell_lane(lane: &Lane, rows: &mut Rows) {
    let name = format!("lane {}", lane.lane);
    match &lane.checkpoint {
        Some(checkpoint) => {
            let before = checkpoint
                .sequence_before
                .map_or("none before it is whole".to_owned(), |sequence| format!("the one before it is {sequence}"));
            let (sequence, epoch, drives) = (checkpoint.sequence, checkpoint.epoch, checkpoint.drives);
            rows.row(&name, &format!("checkpoint {sequence} of start {epoch} counts, on {drives} drives; {before}"));
            if !checkpoint.drives_behind.is_empty() {
                rows.row("", &format!("an older one is the newest on drives {}", list(&checkpoint.drives_behind)));
            }
        }
        None => rows.row(&name, "no checkpoint counts"),
    }
    rows.some(&lane.checkpoints_damaged, |place| {
        format!("drive {} has no checkpoint at byte {}: {}", place.drive, place.offset_bytes, place.reason)
    });
    if let Some(reason) = &lane.unreadable {
        return rows.row("", &format!("NOTHING CAN BE READ: {reason}"));
    }
    rows.row("", &segment_counts(lane));
    let closed: Vec<&Segment> =
        lane.segments.iter().filter(|s| s.at_start == "closed" || !s.flushes_torn.is_empty()).collect();
    rows.some(&closed, |segment| unclosed_line(segment));
    let harmed: Vec<&Segment> = lane.segments.iter().filter(|segment| segment.is_harmed()).collect();
    rows.some(&harmed, |segment| segment_line(segment));
    let damaged: Vec<(&Segment, &Shard)> = harmed
        .iter()
        .flat_map(|segment| segment.shards.iter().map(|shard| (*segment, shard)))
        .filter(|(_, shard)| !shard.damage.is_empty())
        .collect();
    rows.some(&damaged, |(segment, shard)| damage_line(segment, shard));
}

fn segment_counts(lane: &Lane) -> String {
    let count = |listed| lane.segments.iter().filter(|segment| segment.state == listed).count();
    let opened = lane.segments.iter().filter(|s| s.state == Listed::Planned && s.found != Found::Empty).count();
    format!(
        "segments: {} closed, {} open, {} to be walked, {} planned ({opened} of these opened since)",
        count(Listed::Closed),
        count(Listed::Open),
        count(Listed::Walk),
        count(Listed::Planned)
    )
}

/// How much of each drive is not as it was written.
fn damage(report: &Report, rows: &mut Rows) {
    let mut sums: std::collections::BTreeMap<u16, (u64, u64)> = Default::default();
    for shard in report.lanes.iter().flat_map(|lane| &lane.segments).flat_map(|segment| &segment.shards) {
        if !shard.damage.is_empty() {
            let sum = sums.entry(shard.drive).or_default();
            *sum = (sum.0 + 1, sum.1 + shard.damage.len() as u64 + shard.damage_left_out);
        }
    }
    for (drive, (shards, places)) in sums {
        let (segments, places) = (counted(shards, "segment"), counted(places, "place"));
        rows.row("damage", &format!("drive {drive}: not as it was written: {places} in {segments}"));
    }
}

/// What a start does with a segment that was being written.
fn unclosed_line(segment: &Segment) -> String {
    let again = match segment.flushes_torn.as_slice() {
        [] => String::new(),
        [flush] => format!("; flush {flush} is torn and would be written again"),
        [first, .., last] => format!("; flushes {first} to {last} are torn and would be written again"),
    };
    format!("{} has {} flushes and no end that can be read: a start closes it{again}", segment.segment, segment.flushes)
}

fn segment_line(segment: &Segment) -> String {
    let numbers = |state| {
        let shards = segment.shards.iter().filter(|shard| shard.state == state);
        let mut drives: Vec<u16> = shards.map(|shard| shard.drive).collect();
        drives.sort_unstable();
        drives
    };
    let mut words = format!(
        "{} {}+{}, {} flushes, {} alive:",
        segment.segment,
        segment.data_shards,
        segment.parity_shards,
        segment.flushes,
        human_bytes(segment.live_bytes)
    );
    for state in ["whole", "damaged", "missing", "unreadable"] {
        let drives = numbers(state);
        if !drives.is_empty() {
            let _ = write!(words, " {state} on {};", list(&drives));
        }
    }
    words.truncate(words.len() - 1);
    words
}

fn damage_line(segment: &Segment, shard: &Shard) -> String {
    let first = &shard.damage[0];
    let flush = first.flush.map_or("the closing flush".to_owned(), |flush| format!("flush {flush}"));
    let what = match first.what {
        "units" => format!("{} units from row {}", first.rows, first.row),
        what => what.to_owned(),
    };
    let how = if first.read_failed { "not given" } else { "differs" };
    let more = shard.damage.len() as u64 - 1 + shard.damage_left_out;
    let more = if more > 0 { format!(", and {more} more places") } else { String::new() };
    let (drive, offset, bytes) = (shard.drive, first.offset_bytes, first.bytes);
    format!("drive {drive}, {}, {flush}: {what} at byte {offset}, {bytes} bytes, {how}{more}", segment.segment)
}

fn stored(report: &Report, rows: &mut Rows) {
    if report.lanes.is_empty() {
        return;
    }
    let sum = |of: fn(&Lane) -> u64| report.lanes.iter().map(of).sum::<u64>();
    rows.row(
        "stored",
        &format!(
            "{} events: {} undecided, {} accepted; {} fragments, {}",
            human_count(sum(|lane| lane.contents.events)),
            human_count(sum(|lane| lane.contents.events_undecided)),
            human_count(sum(|lane| lane.contents.events_accepted)),
            human_count(sum(|lane| lane.contents.fragments)),
            human_bytes(sum(|lane| lane.contents.fragment_bytes))
        ),
    );
    let files = sum(|lane| lane.contents.files);
    if files > 0 {
        let bytes = human_bytes(sum(|lane| lane.contents.file_bytes));
        rows.row("", &format!("{}, {bytes}, with those that keep the names", counted(files, "file")));
    }
    let mut runs: std::collections::BTreeMap<u32, (u64, u64, u64)> = Default::default();
    let mut streams: std::collections::BTreeMap<&str, u64> = Default::default();
    for lane in &report.lanes {
        for run in &lane.contents.runs {
            let sums = runs.entry(run.run).or_default();
            *sums = (sums.0 + run.events, sums.1 + run.events_undecided, sums.2 + run.events_finished);
        }
        for stream in &lane.contents.streams {
            *streams.entry(&stream.stream).or_default() += stream.events;
        }
    }
    let runs: Vec<_> = runs.into_iter().collect();
    rows.some(&runs, |(run, (events, undecided, finished))| {
        let [events, undecided, finished] = [events, undecided, finished].map(|count| human_count(*count));
        format!("run {run}: {events} events, {undecided} of them undecided; {finished} are over")
    });
    let streams: Vec<_> = streams.into_iter().collect();
    rows.some(&streams, |(stream, events)| format!("stream {stream}: {} wait to be shipped", human_count(*events)));
}

/// What the books say, which run control and operators keep.
fn books(report: &Report, rows: &mut Rows) {
    if report.runs.is_empty() && report.streams.is_empty() {
        return;
    }
    let (runs, streams) = (report.runs.len() as u64, report.streams.len() as u64);
    rows.row("books", &format!("{}, {}", counted(runs, "run"), counted(streams, "stream")));
    rows.some(&report.runs, |run| {
        let held = if run.is_held() { ", held" } else { "" };
        format!("run {}: {}{held}; sources {}", run.run, run.state, run.sources)
    });
    rows.some(&report.streams, |stream| {
        format!("stream {} version {}: prescale {}", stream.name, stream.version, stream.definition.prescale)
    });
}

fn readable(readable: &Readable, quick: bool, rows: &mut Rows) {
    let all = readable.fragments_readable == readable.fragments;
    let assumed = if quick { ", if their units are right: these were not read" } else { "" };
    rows.row(
        "readable",
        &format!(
            "{}{} of {} fragments{assumed}",
            if all { "all, " } else { "" },
            human_count(readable.fragments_readable),
            human_count(readable.fragments)
        ),
    );
    for by in &readable.unavailable_by {
        let which = match by.drives.len() {
            0 => "drives do not give what they hold of them".to_owned(),
            _ => format!("{} of the missing drives {} would bring them", by.needed, list(&by.drives)),
        };
        rows.row(
            "",
            &format!("out of reach: {} fragments, {}; {which}", human_count(by.fragments), human_bytes(by.bytes)),
        );
    }
    if readable.files_unavailable > 0 {
        rows.row("", &format!("out of reach: a part of {}", counted(readable.files_unavailable, "file")));
    }
    let unavailable = readable.fragments_unavailable + readable.files_unavailable;
    rows.some_of(&readable.unavailable, unavailable, |id| format!("out of reach: {id}"));
    if readable.fragments_lost > 0 {
        let (fragments, bytes) = (human_count(readable.fragments_lost), human_bytes(readable.bytes_lost));
        rows.row("", &format!("LOST: {fragments} fragments, {bytes}"));
    }
    if readable.files_lost > 0 {
        rows.row("", &format!("LOST: a part of {}", counted(readable.files_lost, "file")));
    }
    rows.some_of(&readable.lost, readable.fragments_lost + readable.files_lost, |id| format!("lost: {id}"));
    rows.some(&readable.names_damaged, |why| format!("names of files: {why}"));
    rows.some(&readable.unknown, |unknown| {
        let state = if unknown.state == "lost" { "LOST OR UNKNOWN" } else { "out of reach, unknown" };
        format!("{state}: {}", unknown_words(unknown))
    });
    rows.some(&readable.possibly_acknowledged, |unknown| format!("perhaps acknowledged: {}", unknown_words(unknown)));
}

fn unknown_words(unknown: &Unknown) -> String {
    let mut words = format!("lane {}", unknown.lane);
    match (&unknown.segment, unknown.flush) {
        (Some(segment), Some(flush)) => {
            let _ = write!(words, ", segment {segment}, flush {flush}");
        }
        (Some(segment), None) if unknown.flushes > 0 => {
            let _ = write!(words, ", segment {segment}, {} flushes without a header", unknown.flushes);
        }
        (Some(segment), None) => {
            let _ = write!(words, ", segment {segment}, all of it");
        }
        (None, _) => words += ", all of it",
    }
    if let (Some(records), Some(runs), Some(events)) = (unknown.records, unknown.runs, unknown.events) {
        let _ =
            write!(words, ": {records} records of runs {} to {}, events {} to {}", runs.0, runs.1, events.0, events.1);
    }
    if !unknown.drives.is_empty() {
        let _ = write!(words, "; drives {} may bring it", list(&unknown.drives));
    }
    words
}

fn start(report: &Report, rows: &mut Rows) {
    let start = &report.start;
    if let Some(first) = start.refused.first() {
        rows.row("a start", &format!("would be refused: {first}"));
        return start.refused[1..].iter().for_each(|reason| rows.row("", reason));
    }
    let mut words = Vec::new();
    if start.segments_closed > 0 {
        words.push(format!("close {}", counted(start.segments_closed, "segment")));
    }
    if start.flushes_written_again > 0 {
        let (flushes, records) = (start.flushes_written_again, human_count(start.records_written_again));
        words.push(format!("write {flushes} torn flushes again ({records} records at most)"));
    }
    if start.flushes_discarded > 0 {
        words.push(format!("drop {} flushes that were never acknowledged", start.flushes_discarded));
    }
    if start.segments_freed > 0 {
        words.push(format!("free {} in which nothing lives", counted(start.segments_freed, "segment")));
    }
    if start.shards_made_anew > 0 {
        let shards = counted(start.shards_made_anew, "shard");
        words.push(format!("make {shards} anew of drives that were taken out, as far as there are members for it"));
    }
    if !start.members_taken_out.is_empty() {
        words.push(format!("take drives {} out of the store", list(&start.members_taken_out)));
    }
    if words.is_empty() {
        words.push("find nothing to close or to write again".to_owned());
    }
    rows.row("a start", &format!("would {}", words.join(", ")));
}

fn list(numbers: &[u16]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
