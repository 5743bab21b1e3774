//! An accepted event becomes one record: when one of its fragments is to be moved, all are read, wherever they lie, and written as one.
//!
//! From its acceptance on an event gets no further fragment, so that its one record says all. The index then has one place for it. Events that
//! are too large for one record, and those of which something might still be found on drives that are away, are moved by fragments.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use forebay_format::{EventFragment, RecordKind, TableEntry, event_directory_bytes};
use forebay_types::{EventKey, ReadOutcome, crc32c};

use super::Lane;
use super::background::Stepped;
use super::compact::{CopyOf, Live};
use crate::flush::NewRecord;
use crate::index::{EventEntry, EventFlags, FragmentEntry};
use crate::planted::{Planted, planted};
use crate::read::Reader;
use crate::segments::{FlushSpan, POSITION_BYTES, SegmentIndex};
use crate::whole::{JOINED_FRAGMENTS_MAX, joined};

/// Bytes of events that are read at once, at most, unless one is larger.
const JOINING_BYTES_MAX: u64 = 16 << 20;

/// Events that are known to have been read: what is met once more beyond them is written twice, and one counts.
const JOINED_KNOWN_MAX: usize = 1 << 16;

/// Events on their way to become one record.
#[derive(Default)]
pub(super) struct Joining {
    /// Those of the flush that was looked at last, and the segment that it lies in.
    waiting: VecDeque<EventKey>,
    of: Option<SegmentIndex>,
    /// Those of the segments that are emptied, until their copies are durable: many flushes name the same event.
    known: BTreeSet<EventKey>,
    /// Bytes of what is read now.
    reading_bytes: u64,
}

impl Joining {
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.reading_bytes == 0
    }

    pub(super) fn forget(&mut self) {
        self.waiting.clear();
        self.known.clear();
    }
}

/// Where a fragment lies that becomes a part of one record.
struct Part {
    fragment: FragmentEntry,
    /// Of the readers of the event, the one of its segment.
    reader: usize,
    span: FlushSpan,
}

impl Lane {
    /// Whether an event may become one record.
    pub(super) fn is_joinable(&self, event: &EventEntry) -> bool {
        let Some(fragments) = event.fragments() else { return false };
        let bytes = event_directory_bytes(fragments.len()) as u64 + event.record_bytes();
        (event.flags.has(EventFlags::ACCEPTED) || planted(Planted::UndecidedJoined))
            && (2..=JOINED_FRAGMENTS_MAX).contains(&fragments.len())
            && bytes <= u64::from(self.config.geometry.fragment_bytes_max)
            && self.is_durable(event)
            // Drives that come back might bring further fragments of it.
            && self.segments_unreadable == 0
            && self.flushes_possibly_lost + self.flushes_unavailable == 0
            && self.events_held == 0
    }

    /// The fragment belongs to an event that becomes one record: the event is read as a whole, once.
    pub(super) fn will_be_joined(&mut self, segment: SegmentIndex, entry: &TableEntry) -> bool {
        let key = entry.key();
        if !self.index.event(key).is_some_and(|event| self.is_joinable(event)) {
            return false;
        }
        self.has_copies(segment);
        let joining = &mut self.background.compaction.joining;
        joining.of = Some(segment);
        if joining.known.len() == JOINED_KNOWN_MAX {
            joining.known.clear();
        }
        if joining.known.insert(key) {
            joining.waiting.push_back(key);
        }
        true
    }

    /// Starts to read the next event that becomes one record; whether there was one.
    pub(super) fn join_on(&mut self) -> bool {
        while let Some(key) = self.background.compaction.joining.waiting.front().copied() {
            let event = self.index.event(key).filter(|event| self.is_joinable(event));
            let Some((bytes, fragments)) = event.map(|event| (event.record_bytes(), event.records().to_vec())) else {
                self.background.compaction.joining.waiting.pop_front();
                continue;
            };
            let joining = &mut self.background.compaction.joining;
            if joining.reading_bytes > 0 && joining.reading_bytes + bytes > JOINING_BYTES_MAX {
                return false;
            }
            joining.waiting.pop_front();
            let (segments, parts) = self.parts_of(fragments);
            let Some(parts) = parts else {
                // The table of its segment names no flush there: it is lost, and stays so.
                self.leave_what_is_joined();
                return false;
            };
            // No event is read for nothing: that something is read is seen by this.
            self.background.compaction.joining.reading_bytes += bytes.max(1);
            self.start_step_on(segments, move |readers| async move {
                Stepped::Joined(key, bytes.max(1), joined_from(&readers, parts).await)
            });
            return true;
        }
        false
    }

    /// The segments that hold fragments, each once, and where in them each lies.
    fn parts_of(&self, fragments: Vec<FragmentEntry>) -> (Vec<SegmentIndex>, Option<Vec<Part>>) {
        let mut segments: Vec<SegmentIndex> = Vec::new();
        let part = |fragment: FragmentEntry| {
            let reader = segments.iter().position(|segment| *segment == fragment.segment).unwrap_or_else(|| {
                segments.push(fragment.segment);
                segments.len() - 1
            });
            let (_, span) = self.segments.get(fragment.segment).flush_at(fragment.position)?;
            Some(Part { fragment, reader, span: *span })
        };
        let parts = fragments.into_iter().map(part).collect();
        (segments, parts)
    }

    /// An event was read: it is written as one record as soon as there is room.
    pub(super) fn event_is_read(&mut self, segment: SegmentIndex, key: EventKey, bytes: u64, payload: Option<Vec<u8>>) {
        self.background.compaction.joining.reading_bytes -= bytes;
        match payload {
            Some(payload) => self.copy_soon(segment, Live::Event(key, payload)),
            None => self.leave_what_is_joined(),
        }
    }

    /// An event that something in a segment that is emptied belongs to cannot be read: the segment stays where it is.
    fn leave_what_is_joined(&mut self) {
        if let Some(segment) = self.background.compaction.joining.of {
            self.cannot_compact(segment);
        }
    }

    /// The record of a whole event, if it is still to become one.
    pub(super) fn record_of_event(&self, key: EventKey, payload: &[u8]) -> Option<(NewRecord, CopyOf)> {
        let event = self.index.event(key).filter(|event| self.is_joinable(event))?;
        let record = NewRecord {
            kind: RecordKind::Event,
            flags: 0,
            expected: event.expected,
            run: key.run,
            event: key.event,
            source: event.fragment_count() as u32,
            crc: crc32c(payload),
            extra: 0,
        };
        Some((record, CopyOf::Event))
    }

    /// The record of an event has a place: it stands for every other record of its fragments.
    pub(super) fn event_counts(&mut self, new: SegmentIndex, position: u32, entry: &TableEntry) {
        let key = entry.key();
        let whole = FragmentEntry { source: entry.source, segment: new, position, bytes: entry.bytes, crc: entry.crc };
        let gone = self.index.join(key, entry.expected, whole);
        self.segments.revive(new, entry.bytes);
        self.fragment_bytes += u64::from(entry.bytes);
        for record in gone {
            self.segments.bury(record.segment, record.bytes);
            self.fragment_bytes -= u64::from(record.bytes);
        }
    }
}

/// The payload of the record of an event; `None` when a part of it cannot be read. Neighbours are read together.
async fn joined_from(readers: &[Reader], parts: Vec<Part>) -> Option<Vec<u8>> {
    let mut by_place: Vec<&Part> = parts.iter().collect();
    by_place.sort_by_key(|part| (part.reader, part.fragment.position));
    let mut read = Vec::with_capacity(parts.len());
    for flush in by_place.chunk_by(|a, b| a.reader == b.reader && a.span.flush == b.span.flush) {
        let (reader, span) = (&readers[flush[0].reader], flush[0].span);
        let records = flush.iter().map(|part| part.in_flush()).collect();
        for (part, payload) in flush.iter().zip(reader.payloads(span, records).await) {
            let FragmentEntry { source, bytes, crc, .. } = part.fragment;
            read.push((EventFragment { source, bytes, crc }, payload?));
        }
    }
    read.sort_by_key(|(fragment, _)| fragment.source);
    Some(joined(&read))
}

impl Part {
    /// Where it lies in the data of its flush, and its sum.
    fn in_flush(&self) -> (std::ops::Range<u64>, u32) {
        let start = u64::from(self.fragment.position - self.span.position) * POSITION_BYTES;
        (start..start + u64::from(self.fragment.bytes), self.fragment.crc)
    }
}

impl Reader {
    /// What lies in these ranges of a flush's data, ascending, each with its sum; `None` for what cannot be read. Neighbours are read together, up to
    /// what is read at once, and what lies between them with them when it is little.
    pub(super) async fn payloads(
        &self,
        span: FlushSpan,
        records: Vec<(std::ops::Range<u64>, u32)>,
    ) -> Vec<Option<Bytes>> {
        let data_shards = u64::from(self.segment.data_shards);
        let gap_bytes = u64::from(self.segment.read_through_bytes) * data_shards;
        let piece_bytes = u64::from(self.segment.step_bytes) * data_shards;
        let mut payloads = Vec::with_capacity(records.len());
        let mut at = 0;
        while at < records.len() {
            let (mut range, mut end) = (records[at].0.clone(), at + 1);
            while let Some((next, _)) = records.get(end)
                && next.start <= range.end + gap_bytes
                && next.end.max(range.end) - range.start <= piece_bytes
            {
                (range.end, end) = (next.end.max(range.end), end + 1);
            }
            let piece = if range.is_empty() { None } else { self.direct(span, range.clone()).await };
            let piece = piece.map(|piece| Bytes::from(piece.bytes));
            for (record, crc) in &records[at..end] {
                payloads.push(self.one_of(span, piece.as_ref(), range.start, record.clone(), *crc).await);
            }
            at = end;
        }
        payloads
    }

    async fn one_of(
        &self,
        span: FlushSpan,
        piece: Option<&Bytes>,
        start: u64,
        range: std::ops::Range<u64>,
        crc: u32,
    ) -> Option<Bytes> {
        if range.is_empty() {
            return Some(Bytes::new());
        }
        let place = (range.start - start) as usize..(range.end - start) as usize;
        if let Some(piece) = piece
            && piece.get(place.clone()).is_some_and(|bytes| crc32c(bytes) == crc)
        {
            return Some(piece.slice(place));
        }
        let report = self.record(span, range, crc).await;
        (report.outcome == ReadOutcome::Found).then_some(report.payload.into())
    }
}
