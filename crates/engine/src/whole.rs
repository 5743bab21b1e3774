//! Whole events in one record: put together, taken apart, and one fragment read out of one.
//!
//! The index has the sum of the whole record, its directory those of the fragments; the directory alone has a sum that says nothing of whose it is.
//! So whoever reads no more than that asks the flush's header whether it is what was written there.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use forebay_format::{
    EventFragment, Extent, FlushHeader, decode_event_directory, encode_event_directory, event_directory_bytes,
};
use forebay_types::{ReadOutcome, SourceId, crc32c};

use crate::api::EventPart;
use crate::direct::Unchecked;
use crate::index::FragmentEntry;
use crate::pieces::Pieces;
use crate::read::{ReadReport, Reader, RowsError, agreed};
use crate::segments::FlushSpan;
use crate::units::Unit;

/// Fragments of an event that is written as one record, at most; an answer of the server names them in one frame.
pub const JOINED_FRAGMENTS_MAX: usize = 4096;

/// The payload of the record of an event, of its fragments ascending by source.
pub(crate) fn joined(parts: &[(EventFragment, Pieces)]) -> Vec<u8> {
    let fragments: Vec<EventFragment> = parts.iter().map(|(fragment, _)| *fragment).collect();
    let mut payload = encode_event_directory(&fragments);
    payload.reserve_exact(parts.iter().map(|(_, bytes)| bytes.bytes()).sum());
    parts.iter().for_each(|(_, bytes)| bytes.append_to(&mut payload));
    payload
}

/// The directory of the payload of an event's record, whose sum was found right.
pub(crate) fn directory_of(whole: &FragmentEntry, payload: &[u8]) -> Option<Vec<EventFragment>> {
    let directory = payload.get(..event_directory_bytes(whole.source.0 as usize))?;
    decode_event_directory(directory, u64::from(whole.bytes)).ok()
}

/// Where a fragment lies in the record of its event, and what it is.
pub(crate) fn part_of(directory: &[EventFragment], source: SourceId) -> Option<(Range<u64>, EventFragment)> {
    let at = directory.binary_search_by_key(&source, |fragment| fragment.source).ok()?;
    let before: u64 = directory[..at].iter().map(|fragment| u64::from(fragment.bytes)).sum();
    let start = event_directory_bytes(directory.len()) as u64 + before;
    Some((start..start + u64::from(directory[at].bytes), directory[at]))
}

/// What reading a whole event came to.
#[derive(Debug)]
pub(crate) struct WholeRead {
    /// Of its record as a whole; the payload is that of the fragments that could be read.
    pub(crate) report: ReadReport,
    /// Its fragments; `None` when it cannot be read which there are.
    pub(crate) parts: Option<Vec<EventPart>>,
}

impl WholeRead {
    /// How many fragments of `all` are lost.
    pub(crate) fn lost(&self, all: u64) -> u64 {
        match &self.parts {
            Some(parts) => parts.iter().filter(|part| part.outcome == ReadOutcome::Lost).count() as u64,
            None if self.report.is_lost() => all,
            None => 0,
        }
    }
}

impl Reader {
    /// The directory of an event that lies in `range` of a flush's data, if it can be read, and what reading it came to.
    async fn directory(
        &self,
        span: FlushSpan,
        range: &Range<u64>,
        whole: FragmentEntry,
    ) -> (Option<Vec<EventFragment>>, ReadReport) {
        let head = range.start..range.start + event_directory_bytes(whole.source.0 as usize) as u64;
        if let Some(bytes) = self.attested(span, head.clone()).await
            && let Some(directory) = directory_of(&whole, &bytes)
        {
            return (Some(directory), ReadReport::of(ReadOutcome::Found));
        }
        let report = self.repaired(span, head, |bytes| directory_of(&whole, bytes).is_some()).await;
        (directory_of(&whole, &report.payload), report)
    }

    /// Bytes of a flush's data from the drives that hold them, where the flush's headers on these say that they are what was written; `None` when a
    /// drive has something else, or does not answer.
    async fn attested(&self, span: FlushSpan, range: Range<u64>) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        for Extent { shard, row, offset_in_shard_bytes, bytes: wanted, .. } in
            self.geometry(span.data_bytes).locate(range)
        {
            let shard = usize::from(shard);
            let header = self.header(span, shard).await?;
            let start = header.geometry().unit_offset_bytes(row);
            let rows = row..row + 1;
            let unit = self.units(self.start_units(&header, shard, rows.clone())?, &header, shard, rows).await;
            let right = unit.found == [Unit::Right];
            if right {
                let from = (offset_in_shard_bytes - start) as usize;
                bytes.extend_from_slice(&unit.bytes[from..from + wanted]);
            }
            self.io.give_back(unit.bytes);
            right.then_some(())?;
        }
        Some(bytes)
    }

    /// The header of a flush on the drive of one shard.
    async fn header(&self, span: FlushSpan, shard: usize) -> Option<FlushHeader> {
        let place = &self.segment.shards[shard];
        let (offset, bytes) = (place.slot_offset_bytes + span.offset_bytes, span.header_bytes as usize);
        let read = place.answers.then(|| self.io.read(self.task, place.place.drive, offset, bytes))?;
        let buffer = self.io.result(read).await.ok()?;
        let (header, _) = self.check_header(shard, Some(span.flush), span.offset_bytes, buffer)?;
        (header.data_bytes == span.data_bytes).then_some(header)
    }

    /// Reads an event that lies in `range` of a flush's data. When not all of it is right, what of it is.
    pub(crate) async fn whole(&self, span: FlushSpan, range: Range<u64>, whole: FragmentEntry) -> WholeRead {
        let mut report = self.record(span, range.clone(), whole.crc).await;
        if report.outcome == ReadOutcome::Found {
            let Some(directory) = directory_of(&whole, &report.payload) else {
                // Its sum is right, so that it was written so.
                return WholeRead {
                    report: ReadReport { outcome: ReadOutcome::Lost, payload: Vec::new(), ..report },
                    parts: None,
                };
            };
            report.payload.drain(..event_directory_bytes(directory.len()));
            return WholeRead { report, parts: Some(directory.into_iter().map(EventPart::found).collect()) };
        }
        let Some(directory) = self.contents(span, range.clone(), whole).await else {
            return WholeRead { report, parts: None };
        };
        let headers = self.headers(Some(span.flush), span.offset_bytes, span.header_bytes as usize).await;
        let header = agreed(&headers).cloned();
        drop(headers);
        let (mut rows, mut parts) = (BTreeMap::new(), Vec::with_capacity(directory.len()));
        let mut start = range.start + event_directory_bytes(directory.len()) as u64;
        for fragment in directory {
            let at = start..start + u64::from(fragment.bytes);
            start = at.end;
            let read = match self.direct(span, at.clone()).await {
                Some(Unchecked { bytes, .. }) if crc32c(&bytes) == fragment.crc => Ok(bytes),
                _ => self.part_of_rows(header.as_ref(), &mut rows, at).await,
            };
            let outcome = match read {
                Ok(bytes) if crc32c(&bytes) == fragment.crc => {
                    report.payload.extend_from_slice(&bytes);
                    ReadOutcome::Found
                }
                Ok(_) | Err(RowsError::Lost) => ReadOutcome::Lost,
                Err(RowsError::Unavailable { .. }) => ReadOutcome::Unavailable,
            };
            parts.push(EventPart { fragment, outcome });
        }
        WholeRead { report, parts: Some(parts) }
    }

    /// A part of a flush's data from whole rows, each of which is read once for all parts.
    async fn part_of_rows(
        &self,
        header: Option<&FlushHeader>,
        rows: &mut BTreeMap<u32, Result<Vec<u8>, RowsError>>,
        range: Range<u64>,
    ) -> Result<Vec<u8>, RowsError> {
        // It was there for the directory: a read of it fails now.
        let header = header.ok_or(RowsError::Unavailable { silent: self.segment.shards.len() })?;
        if range.end > header.data_bytes {
            return Err(RowsError::Lost);
        }
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        for Extent { row, data_offset, bytes: wanted, .. } in self.geometry(header.data_bytes).locate(range) {
            let data = match rows.entry(row) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => unknown.insert(self.rows(header, row..row + 1).await.map(|rows| rows.data)),
            };
            let data = data.as_ref().map_err(|error| *error)?;
            let row_bytes = u64::from(self.segment.data_shards) * u64::from(header.unit_bytes);
            let from = (data_offset - u64::from(row) * row_bytes) as usize;
            bytes.extend_from_slice(&data[from..from + wanted]);
        }
        Ok(bytes)
    }

    /// Reads one fragment of an event that lies in `range` of a flush's data, and gives what its directory says of it.
    pub(crate) async fn part(
        &self,
        span: FlushSpan,
        range: Range<u64>,
        whole: FragmentEntry,
        source: SourceId,
    ) -> (ReadReport, Option<EventFragment>) {
        let (directory, head) = self.directory(span, &range, whole).await;
        let Some(directory) = directory else { return (ReadReport { payload: Vec::new(), ..head }, None) };
        let Some((at, fragment)) = part_of(&directory, source) else {
            return (ReadReport::of(ReadOutcome::NotFound), None);
        };
        let mut report = self.record(span, range.start + at.start..range.start + at.end, fragment.crc).await;
        report.degraded |= head.degraded;
        report.damaged.extend(head.damaged);
        (report, Some(fragment))
    }

    /// What an event holds that lies in `range` of a flush's data; `None` when that cannot be read.
    pub(crate) async fn contents(
        &self,
        span: FlushSpan,
        range: Range<u64>,
        whole: FragmentEntry,
    ) -> Option<Vec<EventFragment>> {
        self.directory(span, &range, whole).await.0
    }

    /// The fragments of an event that are lost; `None` when it is its directory, and nobody knows which there were.
    pub(crate) async fn lost_parts(
        &self,
        span: FlushSpan,
        range: Range<u64>,
        whole: FragmentEntry,
    ) -> Option<Vec<EventFragment>> {
        let (directory, report) = self.directory(span, &range, whole).await;
        let Some(directory) = directory else { return if report.is_lost() { None } else { Some(Vec::new()) } };
        let mut lost = Vec::new();
        for fragment in &directory {
            let (at, _) = part_of(&directory, fragment.source).expect("it is in it");
            let range = range.start + at.start..range.start + at.end;
            if !range.is_empty() && self.record(span, range, fragment.crc).await.is_lost() {
                lost.push(*fragment);
            }
        }
        Some(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::SegmentIndex;

    #[test]
    fn what_was_joined_is_taken_apart() {
        let part = |(source, bytes): (u32, &[u8])| {
            let fragment = EventFragment { source: SourceId(source), bytes: bytes.len() as u32, crc: crc32c(bytes) };
            (fragment, Pieces::from(bytes.to_vec()))
        };
        let parts: Vec<_> = [(1, &b"abc"[..]), (5, b""), (9, b"de"), (u32::MAX, b"f")].map(part).to_vec();
        let payload = joined(&parts);
        assert_eq!(payload.len(), event_directory_bytes(4) + 6);
        let (bytes, crc) = (payload.len() as u32, crc32c(&payload));
        let whole = FragmentEntry { source: SourceId(4), segment: SegmentIndex(1), position: 0, bytes, crc };
        let directory = directory_of(&whole, &payload).expect("just made");
        for (fragment, bytes) in &parts {
            let (range, found) = part_of(&directory, fragment.source).expect("it is in it");
            assert_eq!((&payload[range.start as usize..range.end as usize], found), (&bytes.to_vec()[..], *fragment));
        }
        assert_eq!(part_of(&directory, SourceId(2)), None);
        assert_eq!(directory_of(&whole, &payload[..20]), None);
        assert_eq!(directory_of(&FragmentEntry { bytes: bytes + 1, ..whole }, &payload), None);
    }
}
