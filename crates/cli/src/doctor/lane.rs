//! One lane: what recovery found, how its segments lie on the drives, what lives, and what of it these drives give.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::{CheckpointState, FlushFate, Found, SegmentFound, SegmentHandle, StoredEvent, StoredSegment};
use forebay_store::{LaneLook, ReadWanted};
use forebay_types::{DriveNumber, EventKey, FragmentId, ReadOutcome};

use super::export::Export;
use super::names::StoredNames;
use super::report::{
    Checkpoint, CheckpointDamage, Contents, LISTED_MAX, Lane, Readable, Run, Stream, UnavailableBy, Unknown,
};
use super::{files, segments};
use crate::output::Output;
use crate::size::{human_bytes, human_count};

/// Events that are held in memory at once.
const EVENTS_AT_ONCE: usize = 1024;

/// What a look at a lane needs to know.
pub struct Context<'a> {
    pub output: &'a Output,
    /// Drives of the store that are not there.
    pub absent: &'a [DriveNumber],
    /// Drives that are there and were taken out of the store: nothing but pieces of segments is expected of them.
    pub out: &'a [DriveNumber],
    /// Of files, as far as they are known.
    pub names: Option<&'a StoredNames>,
    /// Headers and tables alone are read.
    pub quick: bool,
}

/// Flushes whose fragments must be read to know whether they can be.
pub type Doubtful = BTreeSet<(SegmentHandle, Option<u32>)>;

/// Looks at one lane. It ends early when a drive turns out not to answer: what is told then does not count.
pub fn look(look: &mut LaneLook, number: u16, context: &Context<'_>) -> Lane {
    let mut report = Lane { lane: number, ..Lane::default() };
    if !look.silent().is_empty() {
        return report;
    }
    tell_checkpoints(look, &mut report, context.out);
    if let Err(reason) = look.lane().serves_reads() {
        let state = if context.absent.is_empty() { "lost" } else { "unavailable" };
        report.unreadable = Some(reason.to_owned());
        report.readable.unknown.push(Unknown { drives: numbers(context.absent), ..Unknown::of_lane(number, state) });
        return report;
    }
    let found = look.lane().findings().segments.clone();
    let stored = look.lane().stored_segments();
    report.contents = contents(look);
    files::count(look, &mut report.contents);
    tell_unknown(&mut report, &found, context.absent);
    let doubtful = check_segments(look, &mut report, &found, &stored, context);
    report.start = segments::start(&report.segments, &found, context.out);
    let by_handle: BTreeMap<SegmentHandle, &StoredSegment> = stored.iter().map(|s| (s.handle, s)).collect();
    read_doubtful(look, &mut report.readable, &doubtful, &by_handle, context);
    files::read_doubtful(look, &mut report.readable, &doubtful, context);
    report.readable.fragments = report.contents.fragments;
    let missing = report.readable.fragments_lost + report.readable.fragments_unavailable;
    report.readable.fragments_readable = report.contents.fragments.saturating_sub(missing);
    report
}

fn numbers(drives: &[DriveNumber]) -> Vec<u16> {
    drives.iter().map(|drive| drive.0).collect()
}

/// Those of a segment's drives that are not there, ascending.
fn missing_of(drives: impl Iterator<Item = DriveNumber>, absent: &[DriveNumber]) -> Vec<u16> {
    let mut missing: Vec<u16> = drives.filter(|drive| absent.contains(drive)).map(|drive| drive.0).collect();
    missing.sort_unstable();
    missing
}

fn tell_checkpoints(look: &mut LaneLook, report: &mut Lane, out: &[DriveNumber]) {
    let mut places = look.checkpoints();
    places.retain(|place| !out.contains(&place.drive));
    let taken = look.lane().findings().checkpoint;
    let mut newest: BTreeMap<u16, (u64, u64)> = BTreeMap::new();
    let mut whole = BTreeSet::new();
    for place in places {
        let (drive, offset_bytes) = (place.drive.0, place.offset_bytes);
        let damaged = |reason| CheckpointDamage { drive, place: place.place, offset_bytes, reason };
        match place.state {
            CheckpointState::Whole { epoch, sequence } => {
                whole.insert((epoch, sequence));
                let own = newest.entry(drive).or_default();
                *own = (*own).max((epoch, sequence));
            }
            CheckpointState::Empty => {}
            CheckpointState::Damaged(reason) | CheckpointState::Unreadable(reason) => {
                report.checkpoints_damaged.push(damaged(reason));
            }
        }
    }
    report.checkpoint = taken.map(|taken| {
        let own = (taken.epoch, taken.sequence);
        Checkpoint {
            drive: taken.drive.0,
            epoch: taken.epoch,
            sequence: taken.sequence,
            sequence_before: whole.range(..own).next_back().map(|(_, sequence)| *sequence),
            drives: newest.values().filter(|newest| **newest == own).count(),
            drives_behind: newest.iter().filter(|(_, newest)| **newest < own).map(|(drive, _)| *drive).collect(),
        }
    });
}

fn contents(look: &mut LaneLook) -> Contents {
    let lane = look.lane();
    let status = lane.status();
    let run = |run: forebay_engine::RunView| Run {
        run: run.run.0,
        events: run.events,
        events_undecided: run.undecided,
        events_finished: run.finished,
        first_event: run.range.map(|range| range.0),
        last_event: run.range.map(|range| range.1),
    };
    Contents {
        events: status.events,
        events_undecided: status.events_undecided,
        events_accepted: status.events_accepted,
        events_finished: status.events_finished,
        fragments: status.fragments,
        fragment_bytes: status.fragment_bytes,
        files: 0,
        file_bytes: 0,
        runs: lane.runs().into_iter().map(run).collect(),
        streams: lane
            .streams()
            .into_iter()
            .map(|stream| Stream { stream: stream.name.to_string(), events: stream.events })
            .collect(),
    }
}

impl Unknown {
    fn of_lane(lane: u16, state: &'static str) -> Unknown {
        let none = (None, None, None, None, None);
        let (segment, flush, records, runs, events) = none;
        Unknown { lane, segment, flush, state, flushes: 0, records, runs, events, drives: Vec::new() }
    }
}

/// What is gone and no table tells what it was. As long as a drive is missing nothing is called lost that it may bring.
fn tell_unknown(report: &mut Lane, found: &[SegmentFound], absent: &[DriveNumber]) {
    for segment in found {
        let missing = missing_of(segment.shards.iter().map(|place| place.drive), absent);
        let state = if missing.is_empty() { "lost" } else { "unavailable" };
        let of_segment =
            Unknown { segment: Some(segment.id.to_string()), drives: missing, ..Unknown::of_lane(report.lane, state) };
        for flush in &segment.flushes {
            let told = |state| Unknown {
                flush: Some(flush.flush),
                state,
                flushes: 1,
                records: Some(flush.records),
                runs: Some((flush.runs.0.0, flush.runs.1.0)),
                events: Some((flush.events.0.0, flush.events.1.0)),
                ..of_segment.clone()
            };
            match flush.fate {
                FlushFate::Lost => report.readable.unknown.push(told("lost")),
                FlushFate::Unavailable if flush.durable => report.readable.unknown.push(told("unavailable")),
                FlushFate::Unavailable => report.readable.possibly_acknowledged.push(told("unavailable")),
                FlushFate::Stays | FlushFate::Torn | FlushFate::Discarded => {}
            }
        }
        let flushes = segment.flushes_without_header;
        if flushes > 0 || segment.found == Found::Unreadable && segment.flushes.is_empty() {
            report.readable.unknown.push(Unknown { flushes, ..of_segment });
        }
    }
}

/// Compares every flush with what was written; gives those whose fragments may be out of reach.
fn check_segments(
    look: &mut LaneLook,
    report: &mut Lane,
    found: &[SegmentFound],
    stored: &[StoredSegment],
    context: &Context<'_>,
) -> Doubtful {
    const TEMPLATE: &str = "checking {bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta} {msg}";
    let stored: BTreeMap<_, _> = stored.iter().map(|segment| (segment.id, segment)).collect();
    let there = |segment: &StoredSegment| {
        segment.shards.iter().filter(|place| !context.absent.contains(&place.drive)).count() as u64
    };
    let total = stored.values().map(|segment| segment.shard_bytes * there(segment)).sum();
    let mut progress = context.output.progress(total, TEMPLATE);
    let (mut done, lane) = (0, report.lane);
    let mut doubtful = Doubtful::new();
    for segment in found {
        if !look.silent().is_empty() {
            return doubtful;
        }
        let stored = stored.get(&segment.id).copied();
        let mut told = segments::segment(segment, stored, context.absent);
        if let Some(stored) = stored {
            look.check(stored, !context.quick, &mut |check| {
                done += check.bytes_read;
                let read = human_bytes(done);
                progress.update(done, || format!("lane {lane}: {read} of {} compared", human_bytes(total)));
                // Nobody reads a closing flush for its fragments.
                if check.flush.is_some() && segments::is_doubtful(&check, stored.data_shards) {
                    doubtful.insert((stored.handle, check.flush));
                }
                told.take(&check);
            });
        }
        told.sort();
        report.segments.push(told);
    }
    doubtful
}

/// The events of a lane, some at a time.
fn for_each_event<E>(
    look: &mut LaneLook,
    mut each: impl FnMut(&mut LaneLook, Vec<(StoredEvent, ReadOutcome)>) -> Result<(), E>,
) -> Result<(), E> {
    let mut from = Some(EventKey::default());
    while let Some(first) = from {
        let events = look.stored_events(first, EVENTS_AT_ONCE);
        from = events.last().and_then(|(last, _)| behind(last.key));
        each(look, events)?;
    }
    Ok(())
}

/// The event that may come next.
fn behind(key: EventKey) -> Option<EventKey> {
    match key.event.0.checked_add(1) {
        Some(event) => Some(EventKey::new(key.run.0, event)),
        None => key.run.0.checked_add(1).map(|run| EventKey::new(run, 0)),
    }
}

/// Reads every fragment that may be out of reach, as a server would: what it cannot read is not there.
fn read_doubtful(
    look: &mut LaneLook,
    readable: &mut Readable,
    doubtful: &Doubtful,
    segments: &BTreeMap<SegmentHandle, &StoredSegment>,
    context: &Context<'_>,
) {
    let mut progress = context.output.progress(0, "reading {spinner} {msg}");
    let mut read = 0u64;
    let mut unavailable_by: BTreeMap<(usize, Vec<u16>), (u64, u64)> = BTreeMap::new();
    let mut count_unavailable = |segment: &SegmentHandle, fragments: u64, bytes: u64| {
        let by = segments.get(segment).map(|segment| who_brings(segment, context.absent));
        let by = unavailable_by.entry(by.unwrap_or_default()).or_default();
        *by = (by.0 + fragments, by.1 + bytes);
    };
    let tally = |look: &mut LaneLook,
                 events: Vec<(StoredEvent, ReadOutcome)>|
     -> Result<(), std::convert::Infallible> {
        for (event, outcome) in &events {
            // Which fragments they are stands in the record alone.
            let Some(whole) = event.whole.filter(|_| event.fragments.is_empty()) else { continue };
            let fragments = u64::from(whole.fragments);
            if *outcome == ReadOutcome::Unavailable {
                count_unavailable(&whole.segment, fragments, whole.bytes);
            }
            let what = format!("{} (all {fragments} fragments, in one record)", event.key);
            readable.note(what, (fragments, whole.bytes), *outcome);
        }
        let fragments =
            events.iter().flat_map(|(event, _)| event.fragments.iter().map(|f| (event.key.fragment(f.source), f)));
        let wanted: BTreeMap<FragmentId, _> = fragments
            .filter(|(_, fragment)| fragment.flush.is_none() || doubtful.contains(&(fragment.segment, fragment.flush)))
            .collect();
        let reads = wanted.iter().map(|(id, fragment)| ReadWanted { id: *id, bytes: fragment.bytes });
        look.read(reads, &mut |id, outcome, _| {
            read += 1;
            progress.update(0, || format!("{} fragments of damaged flushes read", human_count(read)));
            let fragment = wanted[&id];
            let bytes = u64::from(fragment.bytes);
            if outcome == ReadOutcome::Unavailable {
                count_unavailable(&fragment.segment, 1, bytes);
            }
            readable.note(id.to_string(), (1, bytes), outcome);
            Ok(())
        })
    };
    let Ok(()) = for_each_event(look, tally);
    readable.unavailable_by = unavailable_by
        .into_iter()
        .map(|((needed, drives), (fragments, bytes))| UnavailableBy { needed, drives, fragments, bytes })
        .collect();
}

/// How many of which drives a segment lacks.
fn who_brings(segment: &StoredSegment, absent: &[DriveNumber]) -> (usize, Vec<u16>) {
    let missing = missing_of(segment.shards.iter().map(|place| place.drive), absent);
    let there = segment.shards.len() - missing.len();
    let needed = usize::from(segment.data_shards).saturating_sub(there).max(1).min(missing.len());
    (needed, missing)
}

impl Readable {
    /// What reading so many fragments and bytes came to.
    fn note(&mut self, what: String, (count, bytes): (u64, u64), outcome: ReadOutcome) {
        let (list, fragments, all_bytes) = match outcome {
            ReadOutcome::Found => return,
            ReadOutcome::Unavailable => {
                (&mut self.unavailable, &mut self.fragments_unavailable, &mut self.bytes_unavailable)
            }
            ReadOutcome::Lost | ReadOutcome::NotFound | ReadOutcome::Deleted => {
                (&mut self.lost, &mut self.fragments_lost, &mut self.bytes_lost)
            }
        };
        (*fragments, *all_bytes) = (*fragments + count, *all_bytes + bytes);
        if list.len() < LISTED_MAX {
            list.push(what);
        } else {
            self.left_out += 1;
        }
    }

    /// Adds what another lane gives.
    pub fn add(&mut self, other: &Readable) {
        self.fragments += other.fragments;
        self.fragments_readable += other.fragments_readable;
        self.fragments_unavailable += other.fragments_unavailable;
        self.bytes_unavailable += other.bytes_unavailable;
        self.fragments_lost += other.fragments_lost;
        self.bytes_lost += other.bytes_lost;
        self.files_unavailable += other.files_unavailable;
        self.files_lost += other.files_lost;
        self.unknown.extend_from_slice(&other.unknown);
        self.possibly_acknowledged.extend_from_slice(&other.possibly_acknowledged);
        for by in &other.unavailable_by {
            match self.unavailable_by.iter_mut().find(|own| (own.needed, &own.drives) == (by.needed, &by.drives)) {
                Some(own) => (own.fragments, own.bytes) = (own.fragments + by.fragments, own.bytes + by.bytes),
                None => self.unavailable_by.push(by.clone()),
            }
        }
        self.left_out += other.left_out;
        for (own, other) in [(&mut self.unavailable, &other.unavailable), (&mut self.lost, &other.lost)] {
            let room = LISTED_MAX.saturating_sub(own.len()).min(other.len());
            own.extend_from_slice(&other[..room]);
            self.left_out += (other.len() - room) as u64;
        }
    }
}

/// Exports what a lane holds of which this was told.
pub fn export(look: &mut LaneLook, told: &Lane, names: Option<&StoredNames>, export: &mut Export, output: &Output) {
    let mut progress = output.progress(told.contents.fragments, "exporting {bar:40} {pos}/{len} fragments {eta} {msg}");
    let Ok(()) = for_each_event(look, |look, events| -> Result<(), std::convert::Infallible> {
        export.events(look, events, &mut |done, bytes| {
            progress.update(done, || format!("{} fragments, {} exported", human_count(done), human_bytes(bytes)));
        });
        Ok(())
    });
    drop(progress);
    if let Some(names) = names.filter(|_| told.lane == 0) {
        export.names(names);
    }
    let mut progress = output.progress(0, "exporting {spinner} {msg}");
    export.files(look, told.lane, names, &mut |bytes| {
        progress.update(0, || format!("{} of files exported", human_bytes(bytes)));
    });
}
