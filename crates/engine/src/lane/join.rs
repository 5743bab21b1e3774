//! An accepted event becomes one record: when one of its fragments is to be moved, all are read, wherever they lie, and written as one.
//!
//! From its acceptance on an event gets no further fragment, so that its one record says all. The index then has one place for it. Events that
//! are too large for one record, and those of which something might still be found on drives that are away, are moved by fragments.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use forebay_format::{EventFragment, RecordKind, TableEntry, event_directory_bytes};
use forebay_types::{EventKey, ReadOutcome, crc32c};

use super::Lane;
use super::background::Stepped;
use super::compact::{CopyOf, Live};
use crate::flush::NewRecord;
use crate::index::{EventEntry, EventFlags, FragmentEntry};
use crate::pieces::Pieces;
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
        let records: Vec<_> = flush.iter().map(|part| part.in_flush()).collect();
        for (part, payload) in flush.iter().zip(reader.unchecked(span, &records).await) {
            let FragmentEntry { source, bytes, crc, .. } = part.fragment;
            let payload = reader.checked(span, part.in_flush(), crc, payload).await?;
            read.push((EventFragment { source, bytes, crc }, payload));
        }
    }
    read.sort_by_key(|(fragment, _)| fragment.source);
    Some(joined(&read))
}

impl Part {
    /// Where it lies in the data of its flush.
    fn in_flush(&self) -> Range<u64> {
        let start = u64::from(self.fragment.position - self.span.position) * POSITION_BYTES;
        start..start + u64::from(self.fragment.bytes)
    }
}

impl Reader {
    /// What lies in these ranges of a flush's data, which ascend; `None` for what cannot be read as it lies there. Neighbours are read together, up to what is
    /// read at once, and what lies between them with them when it is little. Nothing is compared with its sum.
    pub(super) async fn unchecked(&self, span: FlushSpan, ranges: &[Range<u64>]) -> Vec<Option<Pieces>> {
        let data_shards = u64::from(self.segment.data_shards);
        let gap_bytes = u64::from(self.segment.read_through_bytes) * data_shards;
        let at_once_bytes = u64::from(self.segment.step_bytes) * data_shards;
        let mut payloads = Vec::with_capacity(ranges.len());
        while let Some(first) = ranges.get(payloads.len()) {
            let (mut all, begin) = (first.clone(), payloads.len());
            let mut end = begin + 1;
            while let Some(next) = ranges.get(end)
                && next.start <= all.end + gap_bytes
                && next.end.max(all.end) - all.start <= at_once_bytes
            {
                (all.end, end) = (next.end.max(all.end), end + 1);
            }
            let read = if all.is_empty() { Some(Pieces::default()) } else { self.pieces(span, all.clone()).await };
            let place = |range: &Range<u64>| (range.start - all.start) as usize..(range.end - all.start) as usize;
            payloads.extend(ranges[begin..end].iter().map(|range| read.as_ref()?.slice(place(range))));
        }
        payloads
    }

    /// What was read of a range, when that is right; else it is read once more, and made from what the other drives have where it must be.
    pub(super) async fn checked(
        &self,
        span: FlushSpan,
        range: Range<u64>,
        crc: u32,
        read: Option<Pieces>,
    ) -> Option<Pieces> {
        if let Some(read) = read.filter(|read| read.crc32c() == crc) {
            return Some(read);
        }
        let report = self.record(span, range, crc).await;
        (report.outcome == ReadOutcome::Found).then_some(report.payload.into())
    }
}
