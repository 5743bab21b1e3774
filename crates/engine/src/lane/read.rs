//! Reading: from the cache, with the row of a small fragment, or from the drives.

use std::rc::Rc;

use forebay_types::{DriveNumber, EventKey, FragmentId, ReadOutcome, crc32c};

use super::{Lane, Read, Reading};
use crate::api::{Fetch, Reply, Token};
use crate::planted::{Planted, planted};
use crate::read::{ReadReport, Reader, Row};
use crate::rows::{RecentRows, RowKey};
use crate::segments::{POSITION_BYTES, SegmentIndex};

impl Lane {
    /// Reads a fragment, appending it to `into` when it is in memory. When pending, a [`crate::Reply::Read`] follows.
    pub fn get(&mut self, token: Token, id: FragmentId, into: &mut Vec<u8>) -> Fetch {
        if self.serves_reads().is_err() {
            return Fetch::Done(ReadOutcome::Unavailable, 0);
        }
        self.is_asked();
        let Some(fragment) = self.index.event(id.key()).and_then(|e| e.fragment(id.source)).copied() else {
            return Fetch::Done(self.outcome_of_unknown(id.key()), 0);
        };
        let segment = self.segments.get(fragment.segment);
        if fragment.position >= segment.durable_position && !planted(Planted::DirtyRead) {
            // Reads show only what is durable.
            return Fetch::Done(ReadOutcome::NotFound, 0);
        }
        self.counters.fragments_read += 1;
        if fragment.bytes == 0 {
            return Fetch::Done(ReadOutcome::Found, fragment.crc);
        }
        let Some((_, span)) = segment.flush_at(fragment.position) else {
            self.counters.fragments_lost += 1;
            return Fetch::Done(ReadOutcome::Lost, 0);
        };
        let (span, start) = (*span, u64::from(fragment.position - span.position) * POSITION_BYTES);
        let range = start..start + u64::from(fragment.bytes);
        if range.end > span.data_bytes {
            self.counters.fragments_lost += 1;
            return Fetch::Done(ReadOutcome::Lost, 0);
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
        let reading = Reading { token, fragment, span, range };
        let row_bytes = self.row_bytes(fragment.segment);
        let degraded = segment.shards.iter().any(|place| !self.answers(place.drive));
        let pending = Fetch::Pending { bytes: fragment.bytes };
        match RecentRows::row_of(&reading.range, row_bytes, degraded) {
            Some(row) => self.get_with_row(reading, row, row_bytes, into),
            None => {
                self.read_from_drives(reading);
                pending
            }
        }
    }

    /// What is to be said of an id that is not stored as far as the lane knows: deleted, not found, or, where it may be among what cannot be read,
    /// unavailable or lost.
    pub fn outcome_of_unknown(&self, key: EventKey) -> ReadOutcome {
        match self.finished.contains(key) {
            true => ReadOutcome::Deleted,
            // It may be where nothing can be read.
            false if self.segments_unreadable > 0 => ReadOutcome::Unavailable,
            false if self.config.read_only && self.flushes_possibly_lost > 0 => ReadOutcome::Unavailable,
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

    fn row_bytes(&self, segment: SegmentIndex) -> u64 {
        let segment = self.segments.get(segment);
        u64::from(segment.data_shards) * u64::from(segment.unit_bytes)
    }

    fn read_from_drives(&mut self, reading: Reading) {
        let Reading { fragment, span, ref range, .. } = reading;
        let range = range.clone();
        self.segments.get_mut(fragment.segment).pins += u32::from(!planted(Planted::FreedDuringRead));
        let task = self.tasks.reserve();
        let reader = Reader { io: self.io.clone(), task, segment: self.read_segment(fragment.segment) };
        self.reading.insert(task, reading);
        let read = async move { Read::Fragment(reader.record(span, range, fragment.crc).await) };
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
            Read::Fragment(report) => self.fragment_is_read(task, report),
            Read::Row(key, row) => self.row_is_read(key, row),
            Read::Looked(token, looked) => self.has_looked(token, looked),
            Read::Checked(token, segment, check) => self.has_checked(token, segment, check),
            Read::Stepped(step) => self.step_is_over(step),
        }
    }

    fn fragment_is_read(&mut self, task: usize, report: ReadReport) {
        let Reading { token, fragment, span, .. } = self.reading.remove(&task).expect("a reading task was entered");
        if !planted(Planted::FreedDuringRead) {
            self.segments.get_mut(fragment.segment).pins -= 1;
            if report.degraded {
                self.read_met_damage(fragment.segment, span.flush);
            }
        }
        report.damaged.iter().for_each(|drive| self.count_damaged(*drive, 1));
        self.counters.fragments_read_degraded += u64::from(report.degraded);
        self.counters.fragments_lost += u64::from(report.outcome == ReadOutcome::Lost);
        let ReadReport { outcome, payload, .. } = report;
        self.replies.push_back(Reply::Read { token, outcome, payload, crc: fragment.crc });
    }

    /// A read needed more than the bytes that it was for: if it is not for want of a drive, what lies there is to be mended.
    fn read_met_damage(&mut self, segment: SegmentIndex, flush: u32) {
        if self.segments.get(segment).shards.iter().all(|place| self.answers(place.drive)) {
            self.mend_soon(segment, Some(flush));
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
        self.rows.insert(key, Rc::clone(&row));
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
