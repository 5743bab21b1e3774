//! Reading: from the cache, with the row of a small fragment, or from the drives.

use std::future::Future;
use std::ops::Range;
use std::rc::Rc;

use forebay_format::event_directory_bytes;
use forebay_types::{DriveNumber, EventKey, FragmentId, ReadOutcome, SourceId, crc32c};

use super::scrub::Mend;
use super::{Lane, Read, Reading};
use crate::api::{Fetch, FetchEvent, Reply, Token};
use crate::index::FragmentEntry;
use crate::losses::FoundBy;
use crate::planted::{Planted, planted};
use crate::read::{ReadReport, Reader, Row};
use crate::rows::{RecentRows, RowKey};
use crate::segments::{FlushSpan, POSITION_BYTES, SegmentIndex};
use crate::whole::{WholeRead, directory_of, part_of};

impl Lane {
    /// Reads a fragment, appending it to `into` when it is in memory. When pending, a [`crate::Reply::Read`] follows.
    pub fn get(&mut self, token: Token, id: FragmentId, into: &mut Vec<u8>) -> Fetch {
        if self.serves_reads().is_err() {
            return Fetch::Done(ReadOutcome::Unavailable, 0);
        }
        self.is_asked();
        let event = self.index.event(id.key());
        if let Some(whole) = event.and_then(|event| event.whole()).copied() {
            return self.get_part(token, whole, id, into);
        }
        let Some(fragment) = event.and_then(|event| event.fragment(id.source)).copied() else {
            return Fetch::Done(self.outcome_of_unknown(id.key()), 0);
        };
        let (span, range) = match self.place_of(id, &fragment, 1) {
            Ok(place) => place,
            Err(outcome) => return Fetch::Done(outcome, 0),
        };
        if fragment.bytes == 0 {
            return Fetch::Done(ReadOutcome::Found, fragment.crc);
        }
        let before = into.len();
        if self.cache.append(fragment.segment, span.flush, range.clone(), into) {
            if crc32c(&into[before..]) == fragment.crc {
                self.counters.fragments_read_cached += 1;
                return Fetch::Done(ReadOutcome::Found, fragment.crc);
            }
            // Damaged in memory: the drives still have it.
            into.truncate(before);
        }
        let reading = Reading { token, id, fragment, span, range };
        let row_bytes = self.row_bytes(fragment.segment);
        let shards = &self.segments.get(fragment.segment).shards;
        let degraded = shards.iter().any(|place| !self.answers(place.drive));
        let pending = Fetch::Pending { bytes: fragment.bytes };
        match RecentRows::row_of(&reading.range, row_bytes, degraded) {
            Some(row) => self.get_with_row(reading, row, row_bytes, into),
            None => {
                self.read_from_drives(reading);
                pending
            }
        }
    }

    /// Where a record lies that is asked for, and holds so many fragments: its flush, and its place in the data of that.
    fn place_of(
        &mut self,
        id: FragmentId,
        record: &FragmentEntry,
        fragments: u64,
    ) -> Result<(FlushSpan, Range<u64>), ReadOutcome> {
        let segment = self.segments.get(record.segment);
        if record.position >= segment.durable_position && !planted(Planted::DirtyRead) {
            // Reads show only what is durable.
            return Err(ReadOutcome::NotFound);
        }
        self.counters.fragments_read += fragments;
        let place = segment.flush_at(record.position).map(|(_, span)| {
            let start = u64::from(record.position - span.position) * POSITION_BYTES;
            (*span, start..start + u64::from(record.bytes))
        });
        place.filter(|(span, range)| range.end <= span.data_bytes).ok_or_else(|| {
            // The index points where there is nothing.
            self.counters.fragments_lost += fragments;
            self.note_lost(id, record, record.bytes, &[], FoundBy::Read);
            ReadOutcome::Lost
        })
    }

    /// Reads one fragment of an event that is one record.
    fn get_part(&mut self, token: Token, whole: FragmentEntry, id: FragmentId, into: &mut Vec<u8>) -> Fetch {
        let (span, range) = match self.place_of(id, &whole, 1) {
            Ok(place) => place,
            Err(outcome) => return Fetch::Done(outcome, 0),
        };
        let mut head = Vec::new();
        let directory = range.start..range.start + event_directory_bytes(whole.source.0 as usize) as u64;
        if self.cache.append(whole.segment, span.flush, directory, &mut head)
            && let Some(directory) = directory_of(&whole, &head)
        {
            let Some((at, fragment)) = part_of(&directory, id.source) else {
                return Fetch::Done(self.outcome_of_unknown(id.key()), 0);
            };
            let (before, at) = (into.len(), range.start + at.start..range.start + at.end);
            if self.cache.append(whole.segment, span.flush, at, into) && crc32c(&into[before..]) == fragment.crc {
                self.counters.fragments_read_cached += 1;
                return Fetch::Done(ReadOutcome::Found, fragment.crc);
            }
            into.truncate(before);
        }
        let at = range.clone();
        self.start_reading(Reading { token, id, fragment: whole, span, range }, move |reader| async move {
            let (report, part) = reader.part(span, at, whole, id.source).await;
            Read::Part(report, part)
        });
        Fetch::Pending { bytes: whole.bytes }
    }

    /// Reads a whole event that is one record ([`EventFragments::Whole`](crate::EventFragments::Whole)), appending the bytes of its fragments
    /// to `into` when they are in memory. When pending, a [`Reply::ReadEvent`] follows.
    pub fn get_whole(&mut self, token: Token, key: EventKey, into: &mut Vec<u8>) -> FetchEvent {
        let done = |outcome| FetchEvent::Done(outcome, Vec::new());
        if self.serves_reads().is_err() {
            return done(ReadOutcome::Unavailable);
        }
        self.is_asked();
        let Some(event) = self.index.event(key) else { return done(ReadOutcome::NotFound) };
        let (Some(whole), bytes) = (event.whole().copied(), event.bytes()) else { return done(ReadOutcome::NotFound) };
        let (id, fragments) = (key.fragment(SourceId(0)), u64::from(whole.source.0));
        let (span, range) = match self.place_of(id, &whole, fragments) {
            Ok(place) => place,
            Err(outcome) => return done(outcome),
        };
        let before = into.len();
        if self.cache.append(whole.segment, span.flush, range.clone(), into) {
            let directory = directory_of(&whole, &into[before..]).filter(|_| crc32c(&into[before..]) == whole.crc);
            if let Some(directory) = directory {
                into.drain(before..before + event_directory_bytes(directory.len()));
                self.counters.fragments_read_cached += fragments;
                return FetchEvent::Done(ReadOutcome::Found, directory);
            }
            into.truncate(before);
        }
        let at = range.clone();
        self.start_reading(Reading { token, id, fragment: whole, span, range }, move |reader| async move {
            Read::Event(reader.whole(span, at, whole).await)
        });
        FetchEvent::Pending { bytes: u32::try_from(bytes).expect("less than its record") }
    }

    /// What is to be said of an id that is not stored as far as the lane knows: deleted, not found, or, where it may be among what cannot be read,
    /// unavailable or lost.
    pub fn outcome_of_unknown(&self, key: EventKey) -> ReadOutcome {
        match self.outcome_of_hidden(key) {
            // What was never acknowledged, and what the drives that are missing bring back, look the same.
            ReadOutcome::NotFound if self.config.read_only && self.flushes_possibly_lost > 0 => {
                ReadOutcome::Unavailable
            }
            outcome => outcome,
        }
    }

    /// What may be hidden of an event of which something is known, or nothing: `NotFound` when all that was acknowledged of it is known, as far as the drives that are
    /// here can tell.
    pub(in crate::lane) fn outcome_of_hidden(&self, key: EventKey) -> ReadOutcome {
        match self.finished.contains(key) {
            true => ReadOutcome::Deleted,
            // It may be where nothing can be read.
            false if self.segments_unreadable > 0 => ReadOutcome::Unavailable,
            false => self.hidden.outcome_of(key).unwrap_or(ReadOutcome::NotFound),
        }
    }

    /// Reads a small fragment with the row that it lies in, or takes it from there when the row is here.
    fn get_with_row(&mut self, reading: Reading, row: u64, row_bytes: u64, into: &mut Vec<u8>) -> Fetch {
        let key = RowKey { segment: reading.fragment.segment, flush: reading.span.flush, row };
        let pending = Fetch::Pending { bytes: reading.fragment.bytes };
        let Some(known) = self.rows.get(key) else {
            self.wait_for_row(reading, key, false);
            return pending;
        };
        if let Some(payload) = fragment_in_row(&known.data, &reading, row * row_bytes) {
            into.extend_from_slice(payload);
            return Fetch::Done(ReadOutcome::Found, reading.fragment.crc);
        }
        self.read_again(reading, key, &known);
        pending
    }

    /// A fragment is not right in its row: the row is put right, once for all who want it; when that was of no help, the fragment is read alone.
    fn read_again(&mut self, reading: Reading, key: RowKey, row: &Row) {
        if row.checked { self.read_from_drives(reading) } else { self.wait_for_row(reading, key, true) }
    }

    /// Reads the row, unless it is on its way; `checked`: each of its units.
    fn wait_for_row(&mut self, reading: Reading, key: RowKey, checked: bool) {
        self.segments.get_mut(key.segment).pins += 1;
        let span = reading.span;
        let waiting = self.rows_awaited.entry(key).or_default();
        waiting.push(reading);
        if waiting.len() > 1 {
            return;
        }
        let row_bytes = self.row_bytes(key.segment);
        let range = key.row * row_bytes..((key.row + 1) * row_bytes).min(span.data_bytes);
        let task = self.tasks.reserve();
        let reader = Reader { io: self.io.clone(), task, segment: self.read_segment(key.segment) };
        let number = u32::try_from(key.row).expect("a flush has few rows");
        let read = async move {
            let row = match checked {
                true => reader.checked_row(span, number, range).await,
                false => reader.row(span, number, range).await,
            };
            Read::Row(key, row)
        };
        if let Some(over) = self.tasks.start(task, Box::pin(read)) {
            self.read_is_over(task, over);
        }
    }

    pub(super) fn row_bytes(&self, segment: SegmentIndex) -> u64 {
        let segment = self.segments.get(segment);
        u64::from(segment.data_shards) * u64::from(segment.unit_bytes)
    }

    fn read_from_drives(&mut self, reading: Reading) {
        let Reading { fragment, span, ref range, .. } = reading;
        let range = range.clone();
        self.start_reading(reading, move |reader| async move {
            Read::Fragment(reader.record(span, range, fragment.crc).await)
        });
    }

    /// Starts to read for someone; the segment stays for as long.
    fn start_reading<F>(&mut self, reading: Reading, read: impl FnOnce(Reader) -> F)
    where
        F: Future<Output = Read> + 'static,
    {
        let segment = reading.fragment.segment;
        self.segments.get_mut(segment).pins += u32::from(!planted(Planted::FreedDuringRead));
        let task = self.tasks.reserve();
        let read = read(Reader { io: self.io.clone(), task, segment: self.read_segment(segment) });
        self.reading.insert(task, reading);
        if let Some(over) = self.tasks.start(task, Box::pin(read)) {
            self.read_is_over(task, over);
        }
    }

    pub(super) fn poll_task(&mut self, task: usize) {
        if task == crate::recovery::RECOVERY_TASK {
            self.recover_on();
        } else if let Some(over) = self.tasks.poll(task) {
            self.read_is_over(task, over);
        }
    }

    pub(super) fn read_is_over(&mut self, task: usize, over: Read) {
        match over {
            Read::Fragment(report) => {
                let lost = u64::from(report.is_lost());
                let reading = self.reading_is_over(task, &report, (1, lost));
                self.note_outcome(&reading, reading.fragment.bytes, &report);
                let (token, crc, ReadReport { outcome, payload, .. }) = (reading.token, reading.fragment.crc, report);
                self.replies.push_back(Reply::Read { token, outcome, payload, crc });
            }
            Read::Part(report, part) => {
                let lost = u64::from(report.is_lost());
                let reading = self.reading_is_over(task, &report, (1, lost));
                match part {
                    Some(part) => self.note_outcome(&reading, part.bytes, &report),
                    None if report.is_lost() => {
                        self.suspect(reading.fragment.segment, reading.span.flush, &report.damaged, FoundBy::Read);
                    }
                    None => {}
                }
                let crc = part.map_or(0, |part| part.crc);
                let (token, ReadReport { outcome, payload, .. }) = (reading.token, report);
                // What was lost before the event became one record is not in it, and has to be told lost for all that.
                let outcome =
                    if outcome == ReadOutcome::NotFound { self.outcome_of_unknown(reading.id.key()) } else { outcome };
                self.replies.push_back(Reply::Read { token, outcome, payload, crc });
            }
            Read::Event(read) => self.event_was_read(task, read),
            Read::File(read) => self.file_is_read(task, read),
            Read::Row(key, row) => self.row_is_read(key, row),
            Read::Looked(token, looked) => self.has_looked(token, looked),
            Read::Checked(token, segment, check) => self.has_checked(token, segment, check),
            Read::Traced(token, trace, pinned) => self.is_traced(token, trace, pinned),
            Read::Stepped(step) => self.step_is_over(step),
        }
    }

    /// Counts what a read of so many fragments, of which so many are lost, came to.
    fn reading_is_over(&mut self, task: usize, report: &ReadReport, (fragments, lost): (u64, u64)) -> Reading {
        let reading = self.reading.remove(&task).expect("a reading task was entered");
        if !planted(Planted::FreedDuringRead) {
            self.segments.get_mut(reading.fragment.segment).pins -= 1;
            if report.degraded {
                self.read_met_damage(reading.fragment.segment, reading.span.flush);
            }
        }
        if report.outcome == ReadOutcome::Found {
            report.damaged.iter().for_each(|drive| self.count_damaged(*drive, 1));
        }
        self.counters.fragments_read_degraded += if report.degraded { fragments } else { 0 };
        self.counters.fragments_lost += lost;
        reading
    }

    /// What is lost is noted, and what is not any more, of a fragment of so many bytes that was read.
    fn note_outcome(&mut self, reading: &Reading, bytes: u32, report: &ReadReport) {
        match report.outcome {
            ReadOutcome::Found => self.note_found_again(reading.id, &reading.fragment, bytes),
            ReadOutcome::Lost => self.note_lost(reading.id, &reading.fragment, bytes, &report.damaged, FoundBy::Read),
            _ => {}
        }
    }

    fn event_was_read(&mut self, task: usize, read: WholeRead) {
        let count = u64::from(self.reading.get(&task).expect("a reading task was entered").fragment.source.0);
        let lost = read.lost(count);
        let Reading { token, fragment: whole, span, .. } = self.reading_is_over(task, &read.report, (count, lost));
        if lost > 0 {
            // Which they are is found out.
            self.suspect(whole.segment, span.flush, &read.report.damaged, FoundBy::Read);
        }
        let WholeRead { report: ReadReport { outcome, payload, .. }, parts } = read;
        let outcome = if parts.is_some() { ReadOutcome::Found } else { outcome };
        self.replies.push_back(Reply::ReadEvent { token, outcome, parts: parts.unwrap_or_default(), payload });
    }

    /// A read needed more than the bytes that it was for: if it is not for want of a drive, what lies there is to be mended.
    fn read_met_damage(&mut self, segment: SegmentIndex, flush: u32) {
        if self.segments.get(segment).shards.iter().all(|place| self.answers(place.drive)) {
            self.mend_soon(segment, Some(flush), Mend::Read);
        }
    }

    /// Units of this drive were found damaged.
    pub(super) fn count_damaged(&mut self, drive: DriveNumber, units: u64) {
        self.counters.units_damaged += units;
        *self.counters.units_damaged_by_drive.entry(drive.0).or_default() += units;
    }

    /// Whoever waited for a fragment of the row gets it.
    fn row_is_read(&mut self, key: RowKey, row: Option<Row>) {
        let waiting = self.rows_awaited.remove(&key).expect("a row is read for someone");
        let start = key.row * self.row_bytes(key.segment);
        let segment = self.segments.get_mut(key.segment);
        segment.pins -= u32::try_from(waiting.len()).expect("as many as were pinned");
        let Some(row) = row else {
            return waiting.into_iter().for_each(|reading| self.read_from_drives(reading));
        };
        let shards = segment.shards.clone();
        if !row.damaged.is_empty() || shards.iter().any(|place| !self.answers(place.drive)) {
            self.counters.fragments_read_degraded += waiting.len() as u64;
        }
        if row.checked {
            self.read_met_damage(key.segment, key.flush);
        }
        row.damaged.iter().for_each(|drive| self.count_damaged(*drive, 1));
        let row = Rc::new(row);
        self.rows.insert(key, Rc::clone(&row), self.cache.inserted());
        self.keep_in_budget();
        for reading in waiting {
            match fragment_in_row(&row.data, &reading, start) {
                Some(payload) => {
                    let (token, crc, payload) = (reading.token, reading.fragment.crc, payload.to_vec());
                    self.replies.push_back(Reply::Read { token, outcome: ReadOutcome::Found, payload, crc });
                }
                None => self.read_again(reading, key, &row),
            }
        }
    }
}

/// A fragment's bytes in its row, which begins at `start` in the flush's data, when they are right.
fn fragment_in_row<'a>(row: &'a [u8], reading: &Reading, start: u64) -> Option<&'a [u8]> {
    let bytes = row.get((reading.range.start - start) as usize..(reading.range.end - start) as usize)?;
    (crc32c(bytes) == reading.fragment.crc).then_some(bytes)
}
