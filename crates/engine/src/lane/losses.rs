//! What a lane knows to be lost: what recovery found at the start, what a read could not give, what a look at everything found damaged on more
//! drives than parity makes up for.
//!
//! A flush that a look found lost in part names nothing: the index does, in which every fragment stands with its place. It is walked once for all such
//! flushes, a slice at a time, and each fragment that lies where something is lost is read: only what cannot be given is lost. What can be given
//! again, as a drive came back, is forgotten, and so is what nobody misses any more, as its event is over.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use forebay_format::{SegmentId, ShardPlace};
use forebay_types::{DriveNumber, EventKey, FileNumber, FragmentId, ReadOutcome, SourceId};

use super::Lane;
use super::background::Stepped;
use super::files::record_of;
use crate::api::OutOfReach;
use crate::check::{FlushCheck, FlushPlace, HeaderCheck};
use crate::files::Extent;
use crate::hidden::Hidden;
use crate::index::FragmentEntry;
use crate::losses::{FoundBy, Loss, LossKind, LossPage, Losses, LostPart};
use crate::segments::{FlushSpan, POSITION_BYTES, SegmentIndex};
use crate::survey::{Findings, FlushFate, Found, SegmentFound};

/// Events, or pieces of files, that one step of the walk looks at.
const EVENTS_PER_STEP: usize = 1024;

/// Fragments that one step reads.
const FRAGMENTS_PER_STEP: usize = 64;

/// Flushes whose losses wait to be named, at most: what reads find beyond that, the next scrub finds again. A scrub waits before it is so many.
const SUSPECTS_MAX: usize = 4096;
const SUSPECTS_OF_SCRUB_MAX: usize = SUSPECTS_MAX / 2;

/// A flush of which something is lost.
struct Suspect {
    id: SegmentId,
    /// Its data that is lost; `None`: no drive has its header, and what is lost is not known.
    lost: Option<Vec<Range<u64>>>,
    damaged: Vec<DriveNumber>,
    found_by: FoundBy,
}

/// Where the walk through all that is stored goes on.
#[derive(Clone, Copy)]
enum Walk {
    Events(EventKey),
    /// In a file, from this byte on.
    Files(FileNumber, u64),
}

/// Something that lies where something is lost, and is to be read.
#[derive(Clone, Copy)]
enum ToRead {
    /// A fragment, or a whole event, which stands under the source 0.
    Fragment(FragmentId, FragmentEntry),
    /// What a piece gives of a file from this byte on.
    Piece(FileNumber, u64, Extent),
}

impl ToRead {
    fn record(&self) -> FragmentEntry {
        match self {
            ToRead::Fragment(_, record) => *record,
            ToRead::Piece(_, _, extent) => record_of(extent),
        }
    }
}

/// What is lost, and what is being found out about it.
pub(super) struct KnownLosses {
    pub(super) known: Losses,
    /// Of the segments that the start could not read, those that absent drives would bring.
    pub(super) segments_unavailable: u64,
    /// Flushes that were perhaps acknowledged, by a recovery that then began anew: this one may begin from a checkpoint of that one, which leaves them out.
    pub(super) left_out: Vec<Loss>,
    /// What that one could not name.
    pub(super) hidden_before: Hidden,
    suspects: BTreeMap<(SegmentIndex, u32), Suspect>,
    /// Those that the walk under way is for, and where it goes on.
    walked: BTreeMap<(SegmentIndex, u32), Suspect>,
    next: Option<Walk>,
    to_read: Vec<ToRead>,
    reading: bool,
}

impl KnownLosses {
    /// Nothing, in a lane that has so many bytes of memory for its index.
    pub(super) fn new(index_bytes: usize) -> KnownLosses {
        KnownLosses {
            known: Losses::new(index_bytes),
            segments_unavailable: 0,
            left_out: Vec::new(),
            hidden_before: Hidden::default(),
            suspects: BTreeMap::new(),
            walked: BTreeMap::new(),
            next: None,
            to_read: Vec::new(),
            reading: false,
        }
    }

    /// What was perhaps acknowledged, and lies on drives that do not answer.
    pub(super) fn perhaps_acknowledged(self) -> Vec<Loss> {
        let perhaps = |loss: &&Loss| loss.kind == LossKind::PossiblyAcknowledged;
        self.known.parts().filter(perhaps).cloned().chain(self.left_out).collect()
    }

    /// Flushes of which it is not known yet what is lost.
    pub(super) fn being_named(&self) -> usize {
        self.suspects.len() + self.walked.len()
    }

    /// What a scrub would find more has to wait.
    pub(super) fn are_many_suspects(&self) -> bool {
        self.suspects.len() >= SUSPECTS_OF_SCRUB_MAX
    }
}

/// A fragment or a whole event that was read for its own sake.
pub(super) struct ReadSuspect {
    record: FragmentEntry,
    flush: u32,
    /// What of it is lost.
    lost: Vec<LostPart>,
}

impl Lane {
    /// What recovery found.
    pub(super) fn note_found(&mut self, findings: &Findings) {
        for segment in &findings.segments {
            let missing = self.missing_drives(&segment.shards);
            self.note_segment(segment, &missing);
        }
    }

    /// What a recovery that began anew left out, unless this one met it and says itself what becomes of it.
    pub(super) fn note_left_out(&mut self, findings: &Findings) {
        let before = std::mem::take(&mut self.losses.hidden_before);
        for loss in std::mem::take(&mut self.losses.left_out) {
            let LostPart::Flush { flush, runs, events, .. } = loss.part else { continue };
            if findings.met(loss.segment, flush) {
                continue;
            }
            if before.outcome_of(EventKey::new(runs.0, events.0)) == Some(ReadOutcome::Unavailable) {
                self.hidden.add_ids(ReadOutcome::Unavailable, runs, events);
            }
            self.flushes_possibly_lost += 1;
            self.losses.known.insert(loss);
        }
    }

    /// Of these shards' drives, those that are not there, ascending.
    pub(super) fn missing_drives(&self, shards: &[ShardPlace]) -> Vec<DriveNumber> {
        let drives: BTreeSet<DriveNumber> = shards.iter().map(|place| place.drive).collect();
        drives.into_iter().filter(|drive| !self.answers(*drive)).collect()
    }

    fn note_segment(&mut self, segment: &SegmentFound, missing: &[DriveNumber]) {
        let wall = self.wall;
        let unreadable = segment.found == Found::Unreadable;
        self.losses.segments_unavailable += u64::from(unreadable && !missing.is_empty());
        let mut note = |kind, part| {
            self.losses.known.insert(Loss::new(kind, segment.id, part, FoundBy::Start, wall).on(&[], missing));
        };
        let unsure = if missing.is_empty() { LossKind::LostOrUnknown } else { LossKind::Unavailable };
        if unreadable {
            return note(unsure, LostPart::Segment);
        }
        for flush in &segment.flushes {
            let part = LostPart::Flush {
                flush: flush.flush,
                records: flush.records,
                runs: (flush.runs.0.0, flush.runs.1.0),
                events: (flush.events.0.0, flush.events.1.0),
            };
            match flush.fate {
                FlushFate::Lost => note(LossKind::LostOrUnknown, part),
                FlushFate::Unavailable if flush.durable => note(LossKind::Unavailable, part),
                FlushFate::Unavailable => note(LossKind::PossiblyAcknowledged, part),
                FlushFate::Stays | FlushFate::Torn | FlushFate::Discarded => {}
            }
        }
        if segment.flushes_without_header > 0 {
            note(unsure, LostPart::Flushes { flushes: segment.flushes_without_header });
        }
    }

    /// A read found a fragment damaged beyond repair.
    pub(super) fn note_lost(
        &mut self,
        id: FragmentId,
        record: &FragmentEntry,
        bytes: u32,
        damaged: &[DriveNumber],
        by: FoundBy,
    ) {
        let flush = self.flush_of(record);
        self.note_part(record, LostPart::Fragment { flush, id, bytes }, damaged, by);
    }

    /// Notes what is lost of a record, unless nobody misses it any more: while it was read its event may have ended, or the record have moved.
    fn note_part(&mut self, record: &FragmentEntry, part: LostPart, damaged: &[DriveNumber], by: FoundBy) {
        let segment = self.segments.get(record.segment);
        let missing = self.missing_drives(&segment.shards);
        let loss = Loss::new(LossKind::Lost, segment.id, part, by, self.wall).on(damaged, &missing);
        let event = loss.event().and_then(|key| self.index.event(key));
        if event.is_some_and(|event| event.records().contains(record)) {
            self.losses.known.insert(loss);
        }
    }

    fn flush_of(&self, record: &FragmentEntry) -> u32 {
        let flush = self.segments.get(record.segment).flush_at(record.position);
        flush.map_or(0, |(_, span)| span.flush)
    }

    /// Something of what lies in a record's flush is lost: what, is found out.
    pub(super) fn suspect(&mut self, segment: SegmentIndex, flush: u32, damaged: &[DriveNumber], by: FoundBy) {
        if self.losses.suspects.len() < SUSPECTS_MAX {
            let id = self.segments.get(segment).id;
            let suspect = Suspect { id, lost: None, damaged: damaged.to_vec(), found_by: by };
            self.losses.suspects.entry((segment, flush)).or_insert(suspect);
        }
    }

    /// A fragment was read: what was lost is so no more, as a drive came back.
    pub(super) fn note_found_again(&mut self, id: FragmentId, record: &FragmentEntry, bytes: u32) {
        let (flush, segment) = (self.flush_of(record), self.segments.get(record.segment).id);
        let part = LostPart::Fragment { flush, id, bytes };
        self.losses.known.forget(segment, part);
    }

    /// A flush was looked at: what of it is lost is found out.
    pub(super) fn note_check(&mut self, segment: SegmentIndex, place: FlushPlace, check: &FlushCheck, by: FoundBy) {
        // Without its closing flush a segment is followed: nothing is lost by that.
        let Some(flush) = place.flush else { return };
        let id = self.segments.get(segment).id;
        let silent =
            |shard: &crate::check::ShardCheck| matches!(shard.header, HeaderCheck::Absent | HeaderCheck::Unreadable);
        let no_header = check.headers == 0 && !check.shards.iter().any(silent);
        if check.is_readable() {
            return self.losses.known.forget_flush(id, flush);
        }
        if check.rows_lost == 0 && !no_header || self.losses.suspects.len() >= SUSPECTS_MAX {
            return;
        }
        let wrong = |shard: &&crate::check::ShardCheck| {
            !shard.units.is_empty() || !matches!(shard.header, HeaderCheck::Right | HeaderCheck::Absent)
        };
        let damaged = check.shards.iter().filter(wrong).map(|shard| shard.place.drive).collect();
        let row_bytes = self.row_bytes(segment);
        let range = |rows: &Range<u32>| u64::from(rows.start) * row_bytes..u64::from(rows.end) * row_bytes;
        let lost = (!no_header).then(|| check.lost.iter().map(range).collect());
        self.losses.suspects.insert((segment, flush), Suspect { id, lost, damaged, found_by: by });
    }

    pub(super) fn has_losses_to_name(&self) -> bool {
        let losses = &self.losses;
        losses.being_named() > 0 && !losses.reading
    }

    /// Goes a step on with naming what is lost.
    pub(super) fn name_losses(&mut self) {
        if !self.has_losses_to_name() {
            return;
        }
        if self.losses.next.is_none() && self.losses.to_read.is_empty() {
            // What the last walk was for has its names.
            self.losses.walked = std::mem::take(&mut self.losses.suspects);
            self.losses.next = (!self.losses.walked.is_empty()).then(|| Walk::Events(EventKey::default()));
        }
        if self.losses.to_read.is_empty() {
            self.walk_on();
        }
        self.read_suspects();
    }

    /// Looks through what is stored next for what lies where something is lost.
    fn walk_on(&mut self) {
        let walked = match self.losses.next {
            None => return,
            Some(Walk::Events(from)) => self.walk_events(from),
            Some(Walk::Files(file, from)) => self.walk_files(file, from),
        };
        (self.losses.to_read, self.losses.next) = walked;
    }

    fn walk_events(&self, from: EventKey) -> (Vec<ToRead>, Option<Walk>) {
        let mut events = self.index.events_from(from);
        let mut found = Vec::new();
        for (key, event) in events.by_ref().take(EVENTS_PER_STEP) {
            let suspect = |fragment: &&FragmentEntry| self.is_suspect(fragment);
            let of_event = event.records().iter().filter(suspect);
            let source = |record: &FragmentEntry| if event.whole().is_some() { SourceId(0) } else { record.source };
            found.extend(of_event.map(|record| ToRead::Fragment(key.fragment(source(record)), *record)));
        }
        let next = events.next().map_or(Walk::Files(FileNumber(0), 0), |(key, _)| Walk::Events(key));
        (found, Some(next))
    }

    fn walk_files(&self, first: FileNumber, from: u64) -> (Vec<ToRead>, Option<Walk>) {
        let mut found = Vec::new();
        let mut looked_at = 0;
        for (number, file) in self.files.from(first) {
            let from = if number == first { from } else { 0 };
            for (start, extent) in file.in_range(from..u64::MAX) {
                if looked_at == EVENTS_PER_STEP {
                    return (found, Some(Walk::Files(number, start)));
                }
                looked_at += 1;
                if !extent.is_hole() && self.is_suspect(&record_of(&extent)) {
                    found.push(ToRead::Piece(number, start, extent));
                }
            }
        }
        (found, None)
    }

    fn is_suspect(&self, fragment: &FragmentEntry) -> bool {
        let Some((span, range)) = self.span_of(fragment) else { return false };
        let Some(suspect) = self.losses.walked.get(&(fragment.segment, span.flush)) else { return false };
        let overlaps = |lost: &Range<u64>| lost.start < range.end && range.start < lost.end;
        self.segments.get(fragment.segment).id == suspect.id
            && suspect.lost.as_ref().is_none_or(|lost| lost.iter().any(overlaps))
    }

    /// The durable flush that holds a fragment, and where in its data that lies.
    pub(super) fn span_of(&self, fragment: &FragmentEntry) -> Option<(FlushSpan, Range<u64>)> {
        let segment = self.segments.get(fragment.segment);
        let (_, span) = segment.flush_at(fragment.position).filter(|_| fragment.position < segment.durable_position)?;
        let start = u64::from(fragment.position - span.position) * POSITION_BYTES;
        Some((*span, start..start + u64::from(fragment.bytes)))
    }

    /// Reads some of the fragments that lie where something is lost.
    fn read_suspects(&mut self) {
        let Some(first) = self.losses.to_read.last() else { return };
        let segment = first.record().segment;
        let mut batch = Vec::new();
        while batch.len() < FRAGMENTS_PER_STEP
            && let Some(next) = self.losses.to_read.pop_if(|next| next.record().segment == segment)
        {
            let record = next.record();
            if let Some(is_whole) = self.is_there_still(&next)
                && let Some((span, range)) = self.span_of(&record)
            {
                batch.push((next, is_whole, record, span, range));
            }
        }
        if batch.is_empty() {
            return;
        }
        self.losses.reading = true;
        self.start_step(segment, move |reader| async move {
            let mut read = Vec::with_capacity(batch.len());
            for (of, is_whole, record, span, range) in batch {
                let flush = span.flush;
                let id = match of {
                    ToRead::Fragment(id, _) => id,
                    ToRead::Piece(file, start, Extent { bytes, .. }) => {
                        let is_lost = reader.record(span, range, record.crc).await.is_lost();
                        let lost = is_lost.then_some(LostPart::Piece { flush, file, start, bytes });
                        read.push(ReadSuspect { record, flush, lost: lost.into_iter().collect() });
                        continue;
                    }
                };
                let fragment = |source, bytes| {
                    let id = FragmentId { source, ..id };
                    LostPart::Fragment { flush, id, bytes }
                };
                let lost = if is_whole {
                    match reader.lost_parts(span, range, record).await {
                        Some(lost) => lost.into_iter().map(|lost| fragment(lost.source, lost.bytes)).collect(),
                        None => vec![LostPart::Event { flush, key: id.key(), fragments: record.source.0 }],
                    }
                } else {
                    let is_lost = reader.record(span, range, record.crc).await.is_lost();
                    is_lost.then(|| fragment(id.source, record.bytes)).into_iter().collect()
                };
                read.push(ReadSuspect { record, flush, lost });
            }
            Stepped::Suspected(read)
        });
    }

    /// Whether it lies there still, and is a whole event: it may have moved, or be over, since it was seen.
    fn is_there_still(&self, of: &ToRead) -> Option<bool> {
        match of {
            ToRead::Fragment(id, record) => {
                let event = self.index.event(id.key())?;
                let is_whole = event.whole() == Some(record);
                (is_whole || event.fragment(id.source) == Some(record)).then_some(is_whole)
            }
            ToRead::Piece(file, start, extent) => {
                let range = *start..start + u64::from(extent.bytes);
                let there =
                    self.files.get(*file)?.in_range(range).any(|(_, known)| record_of(&known) == record_of(extent));
                there.then_some(false)
            }
        }
    }

    /// What lies where something is lost was read.
    pub(super) fn suspects_are_read(&mut self, read: Vec<ReadSuspect>) {
        self.losses.reading = false;
        for ReadSuspect { record, flush, lost } in read {
            let suspect = self.losses.walked.get(&(record.segment, flush));
            let (by, damaged) =
                suspect.map_or((FoundBy::Scrub, Vec::new()), |suspect| (suspect.found_by, suspect.damaged.clone()));
            for part in lost {
                match part {
                    LostPart::Piece { .. } => self.note_piece(&record, part, &damaged, by),
                    part => self.note_part(&record, part, &damaged, by),
                }
            }
        }
    }

    /// What is known to be lost, and what is out of reach now, from the place `from` on, `max` at most.
    pub fn losses(&mut self, from: u32, max: u32) -> LossPage {
        let unavailable = self.out_of_reach();
        let (index, files, segments) = (&self.index, &self.files, &self.segments);
        self.losses.known.keep_pieces(|file, range, segment| {
            let there = |(_, extent): (u64, Extent)| segments.get(extent.segment).id == segment;
            files.get(file).is_some_and(|file| file.in_range(range).any(there))
        });
        let missed = |key, segment| {
            let records = index.event(key).map_or(&[][..], |event| event.records());
            records.iter().any(|record| segments.get(record.segment).id == segment)
        };
        let (losses, next) = self.losses.known.page(from, max, &unavailable, missed);
        let (not_remembered, being_named) = (self.losses.known.not_remembered(), self.losses.being_named() as u64);
        LossPage { losses, next, not_remembered, being_named }
    }

    /// Segments of which too few drives answer.
    fn out_of_reach(&self) -> Vec<Loss> {
        let mut found = Vec::new();
        // What has no flush that is known is told as recovery found it.
        for segment in self.segments.out_of_reach(|drive| self.answers(drive)).filter(|s| !s.flushes.is_empty()) {
            let part = LostPart::Live { records: segment.live_records, bytes: segment.live_bytes };
            let loss = Loss::new(LossKind::Unavailable, segment.id, part, FoundBy::Look, self.wall);
            found.push(loss.on(&[], &self.missing_drives(&segment.shards)));
        }
        found
    }

    /// How much that is, and which drives would bring it.
    pub(super) fn out_of_reach_status(&self) -> OutOfReach {
        let mut status = OutOfReach::default();
        let mut drives = BTreeSet::new();
        for segment in self.segments.out_of_reach(|drive| self.answers(drive)) {
            status.segments += u64::from(!segment.flushes.is_empty());
            status.bytes += segment.live_bytes;
            drives.extend(self.missing_drives(&segment.shards));
        }
        let unavailable = self.losses.known.parts().filter(|loss| loss.kind == LossKind::Unavailable);
        let missing = unavailable.flat_map(|loss| loss.drives_missing.iter().map(|drive| DriveNumber(*drive)));
        drives.extend(missing.filter(|drive| !self.answers(*drive)));
        status.drives = drives.into_iter().map(|drive| drive.0).collect();
        status
    }
}
