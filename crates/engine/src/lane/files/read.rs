//! Reading files: the records that a range is made of, each whole, as their sums demand, and zeros where there is none.

use std::ops::Range;

use forebay_types::limits::FRAGMENT_BYTES_MAX;
use forebay_types::{DriveNumber, FileNumber, ReadOutcome, crc32c};

use super::Lane;
use crate::api::{FetchFile, Reply, Token};
use crate::files::Extent;
use crate::index::FragmentEntry;
use crate::lane::Read;
use crate::lane::scrub::Mend;
use crate::losses::{FoundBy, Loss, LossKind, LostPart};
use crate::planted::{Planted, planted};
use crate::read::{ReadReport, Reader};
use crate::segments::{FlushSpan, SegmentIndex};

/// Someone who waits for a part of a file.
pub(in crate::lane) struct FileReading {
    token: Token,
    /// Segments that stay for as long.
    pinned: Vec<SegmentIndex>,
}

/// A part of a file that was read.
pub(in crate::lane) struct FileRead {
    pub(super) file: FileNumber,
    /// `Found` when the first byte is there.
    pub(super) outcome: ReadOutcome,
    /// Up to the first that is not.
    pub(super) payload: Vec<u8>,
    /// What reading each record came to.
    pub(super) reports: Vec<(PartOfFile, ReadReport)>,
}

/// What one record gives of a range.
#[derive(Clone, Copy)]
pub(super) struct PartOfFile {
    /// Where in the answer.
    at: usize,
    start: u64,
    extent: Extent,
    /// Of the readers, the one of its segment.
    reader: usize,
    span: FlushSpan,
}

impl PartOfFile {
    fn record(&self) -> FragmentEntry {
        record_of(&self.extent)
    }

    /// The bytes of the record that are wanted.
    fn wanted(&self) -> Range<usize> {
        self.extent.skip as usize..(self.extent.skip + self.extent.bytes) as usize
    }
}

/// The record of a piece, as fragments have theirs.
pub(in crate::lane) fn record_of(extent: &Extent) -> FragmentEntry {
    FragmentEntry {
        source: forebay_types::SourceId(0),
        segment: extent.segment,
        position: extent.position,
        bytes: extent.payload_bytes(),
        crc: extent.crc,
    }
}

impl Lane {
    /// Reads bytes of a file from `start` on, at most so many, at most 16 MiB, and none behind its end, appending them to `into` when they are in memory. When pending, a
    /// [`Reply::ReadFile`] follows.
    pub fn read_file(
        &mut self,
        token: Token,
        file: FileNumber,
        start: u64,
        bytes: u32,
        into: &mut Vec<u8>,
    ) -> FetchFile {
        match self.outcome_of_hidden_file(file) {
            ReadOutcome::NotFound => self.rescue_file(token, file, start, bytes, into),
            _ if self.serves_reads().is_err() => FetchFile::Done(ReadOutcome::Unavailable, 0),
            // Of what may be hidden, also what is known may be out of date.
            outcome => FetchFile::Done(outcome, 0),
        }
    }

    /// The same for whoever rescues what can be had: also when something newer of the file may be hidden ([`Lane::outcome_of_hidden_file`]).
    pub fn rescue_file(
        &mut self,
        token: Token,
        file: FileNumber,
        start: u64,
        bytes: u32,
        into: &mut Vec<u8>,
    ) -> FetchFile {
        match self.bytes_there(file, start, bytes) {
            Ok(bytes) => self.read_what_is_known(token, file, start..start + u64::from(bytes), into),
            Err(outcome) => FetchFile::Done(outcome, 0),
        }
    }

    /// Where that which was written together with a byte of a file ends, and whether it is a hole, which holds zeros that nobody wrote; `None` behind its end.
    pub fn piece_at(&self, file: FileNumber, offset: u64) -> Option<(u64, bool)> {
        let known = self.files.get(file).filter(|known| offset < known.length())?;
        let next = known.in_range(offset..known.length()).next();
        Some(match next {
            Some((start, extent)) if start <= offset => {
                ((start + u64::from(extent.bytes)).min(known.length()), extent.is_hole())
            }
            // Nothing was ever written there.
            Some((start, _)) => (start, true),
            None => (known.length(), true),
        })
    }

    fn read_what_is_known(
        &mut self,
        token: Token,
        file: FileNumber,
        range: Range<u64>,
        into: &mut Vec<u8>,
    ) -> FetchFile {
        let bytes = (range.end - range.start) as u32;
        self.is_asked();
        if self.read_from_cache(file, range.clone(), into) {
            self.counters.file_bytes_read += u64::from(bytes);
            self.counters.file_bytes_read_cached += u64::from(bytes);
            return FetchFile::Done(ReadOutcome::Found, bytes as usize);
        }
        let Some((pinned, parts)) = self.parts_of_file(file, range) else {
            return FetchFile::Done(ReadOutcome::Lost, 0);
        };
        pinned.iter().for_each(|segment| self.segments.get_mut(*segment).pins += 1);
        let task = self.tasks.reserve();
        let reader = |segment: &_| Reader { io: self.io.clone(), task, segment: self.read_segment(*segment) };
        let readers: Vec<Reader> = pinned.iter().map(reader).collect();
        self.reading_files.insert(task, FileReading { token, pinned });
        let read = async move { Read::File(read_parts(&readers, file, parts, bytes as usize).await) };
        if let Some(over) = self.tasks.start(task, Box::pin(read)) {
            self.read_is_over(task, over);
        }
        FetchFile::Pending { bytes }
    }

    /// What is to be said of a file that is not stored as far as the lane knows, as [`Lane::outcome_of_unknown`] says it of an event. What is not
    /// "not found" goes before what is known of the file: of what cannot be read, a newer part may be missing.
    pub fn outcome_of_unknown_file(&self, file: FileNumber) -> ReadOutcome {
        // Without files, whatever stands under their run is of events.
        if self.config.has_files { self.outcome_of_unknown(file.key()) } else { ReadOutcome::NotFound }
    }

    /// What may be hidden of a file; "not found": nothing. Of one of which nothing is known, as [`Lane::outcome_of_unknown_file`] says. Of one of which something is, a start that may not
    /// write reads the same as one that may, for which what was torn never was.
    pub fn outcome_of_hidden_file(&self, file: FileNumber) -> ReadOutcome {
        match self.files.get(file) {
            Some(_) if self.config.has_files && !planted(Planted::TornHidesFiles) => self.outcome_of_hidden(file.key()),
            _ => self.outcome_of_unknown_file(file),
        }
    }

    /// How many bytes of a file are known from there on, of so many; the outcome when it cannot be said.
    pub(super) fn bytes_there(&self, file: FileNumber, start: u64, bytes: u32) -> Result<u32, ReadOutcome> {
        if self.serves_reads().is_err() {
            return Err(ReadOutcome::Unavailable);
        }
        let known = self.files.get(file).ok_or(ReadOutcome::NotFound)?;
        Ok(known.length().saturating_sub(start).min(u64::from(bytes)).min(FRAGMENT_BYTES_MAX as u64) as u32)
    }

    /// Appends a range when every record of it is in memory and sound; otherwise nothing.
    fn read_from_cache(&mut self, file: FileNumber, range: Range<u64>, into: &mut Vec<u8>) -> bool {
        let before = into.len();
        let Some(known) = self.files.get(file) else { return false };
        into.reserve((range.end - range.start) as usize);
        for (start, extent) in known.in_range(range.clone()).filter(|(_, extent)| !extent.is_hole()) {
            let (start, extent) = extent.part(start, &range).expect("it meets the range");
            into.resize(before + (start - range.start) as usize, 0);
            let at = into.len();
            // The whole record, as its sum demands; then what is wanted of it.
            let place = self.span_of(&record_of(&extent));
            let is_here =
                place.is_some_and(|(span, of_flush)| self.cache.append(extent.segment, span.flush, of_flush, into));
            if !is_here || crc32c(&into[at..]) != extent.crc {
                into.truncate(before);
                return false;
            }
            let (skip, bytes) = (extent.skip as usize, extent.bytes as usize);
            if skip > 0 {
                into.copy_within(at + skip..at + skip + bytes, at);
            }
            into.truncate(at + bytes);
        }
        into.resize(before + (range.end - range.start) as usize, 0);
        true
    }

    /// The segments that hold a range, each once, and what of it each record gives; `None` when the index points where there is nothing.
    fn parts_of_file(&self, file: FileNumber, range: Range<u64>) -> Option<(Vec<SegmentIndex>, Vec<PartOfFile>)> {
        let mut segments: Vec<SegmentIndex> = Vec::new();
        let mut parts = Vec::new();
        for (start, extent) in self.files.get(file)?.in_range(range.clone()).filter(|(_, extent)| !extent.is_hole()) {
            let (start, extent) = extent.part(start, &range).expect("it meets the range");
            let reader = segments.iter().position(|segment| *segment == extent.segment).unwrap_or_else(|| {
                segments.push(extent.segment);
                segments.len() - 1
            });
            let (span, of_flush) = self.span_of(&record_of(&extent))?;
            if of_flush.end > span.data_bytes {
                return None;
            }
            parts.push(PartOfFile { at: (start - range.start) as usize, start, extent, reader, span });
        }
        Some((segments, parts))
    }

    /// A part of a sealed file for its sums.
    pub(super) fn start_summing(&mut self, file: FileNumber, range: Range<u64>) -> bool {
        let Some((segments, parts)) = self.parts_of_file(file, range.clone()) else { return false };
        let bytes = (range.end - range.start) as usize;
        // Holes alone are in no segment.
        let segments =
            if segments.is_empty() { self.segments.iter().map(|(at, _)| at).take(1).collect() } else { segments };
        self.start_step_on(segments, move |readers| async move {
            crate::lane::background::Stepped::Summed(file, read_parts(&readers, file, parts, bytes).await)
        });
        true
    }

    pub(in crate::lane) fn file_is_read(&mut self, task: usize, read: FileRead) {
        let FileReading { token, pinned } = self.reading_files.remove(&task).expect("a reading task was entered");
        pinned.iter().for_each(|segment| self.segments.get_mut(*segment).pins -= 1);
        self.note_file_read(&read);
        let FileRead { outcome, payload, .. } = read;
        self.counters.file_bytes_read += payload.len() as u64;
        self.replies.push_back(Reply::ReadFile { token, outcome, payload });
    }

    /// What reading came to is counted, and what is damaged mended or told lost.
    pub(super) fn note_file_read(&mut self, read: &FileRead) {
        for (part, report) in &read.reports {
            let (segment, flush) = (part.extent.segment, part.span.flush);
            if report.degraded {
                self.mend_soon(segment, Some(flush), Mend::Read);
            }
            let lost = LostPart::Piece { flush, file: read.file, start: part.start, bytes: part.extent.bytes };
            match report.outcome {
                ReadOutcome::Found => {
                    report.damaged.iter().for_each(|drive| self.count_damaged(*drive, 1));
                    let id = self.segments.get(segment).id;
                    self.losses.known.forget(id, lost);
                }
                ReadOutcome::Lost => self.note_piece(&part.record(), lost, &report.damaged, FoundBy::Read),
                _ => {}
            }
        }
    }

    /// Notes bytes of a file as lost, unless nobody misses them any more.
    pub(in crate::lane) fn note_piece(
        &mut self,
        record: &FragmentEntry,
        part: LostPart,
        damaged: &[DriveNumber],
        by: FoundBy,
    ) {
        let LostPart::Piece { file, start, bytes, .. } = part else { unreachable!("a piece of a file") };
        let there = |(_, extent): (u64, Extent)| (extent.segment, extent.position) == (record.segment, record.position);
        let range = start..start + u64::from(bytes);
        if self.files.get(file).is_some_and(|file| file.in_range(range).any(there)) {
            let segment = self.segments.get(record.segment);
            let missing = self.missing_drives(&segment.shards);
            let loss = Loss::new(LossKind::Lost, segment.id, part, by, self.wall).on(damaged, &missing);
            self.losses.known.insert(loss);
        }
    }
}

/// Reads what records give of a range, up to the first that cannot be read.
async fn read_parts(readers: &[Reader], file: FileNumber, parts: Vec<PartOfFile>, bytes: usize) -> FileRead {
    let mut read = FileRead { file, outcome: ReadOutcome::Found, payload: vec![0; bytes], reports: Vec::new() };
    for part in parts {
        let record = part.record();
        let start = u64::from(record.position - part.span.position) * crate::segments::POSITION_BYTES;
        let range = start..start + u64::from(record.bytes);
        let mut report = readers[part.reader].record(part.span, range, record.crc).await;
        let outcome = report.outcome;
        if outcome == ReadOutcome::Found {
            let place = part.at..part.at + part.extent.bytes as usize;
            read.payload[place].copy_from_slice(&report.payload[part.wanted()]);
        }
        report.payload = Vec::new();
        read.reports.push((part, report));
        if outcome != ReadOutcome::Found {
            read.payload.truncate(part.at);
            read.outcome = if part.at == 0 { outcome } else { ReadOutcome::Found };
            break;
        }
    }
    read
}
