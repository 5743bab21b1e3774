//! Whole events in one record: put together, taken apart, and one fragment read out of one.

use std::ops::Range;

use forebay_format::{EventFragment, decode_event_directory, encode_event_directory, event_directory_bytes};
use forebay_types::{ReadOutcome, SourceId};

use crate::index::FragmentEntry;
use crate::read::{ReadReport, Reader};
use crate::segments::FlushSpan;

/// Fragments of an event that is written as one record, at most; an answer of the server names them in one frame.
pub const JOINED_FRAGMENTS_MAX: usize = 4096;

/// The payload of the record of an event, of its fragments ascending by source.
pub(crate) fn joined(parts: Vec<(EventFragment, Vec<u8>)>) -> Vec<u8> {
    let fragments: Vec<EventFragment> = parts.iter().map(|(fragment, _)| *fragment).collect();
    let mut payload = encode_event_directory(&fragments);
    payload.reserve_exact(parts.iter().map(|(_, bytes)| bytes.len()).sum());
    parts.iter().for_each(|(_, bytes)| payload.extend_from_slice(bytes));
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

impl Reader {
    /// Reads one fragment of an event that lies in `range` of a flush's data, and gives its sum with it.
    pub(crate) async fn part(
        &self,
        span: FlushSpan,
        range: Range<u64>,
        whole: FragmentEntry,
        source: SourceId,
    ) -> (ReadReport, u32) {
        let head = range.start..range.start + event_directory_bytes(whole.source.0 as usize) as u64;
        let direct = self.direct(span, head).await;
        if let Some(directory) = direct.and_then(|bytes| directory_of(&whole, &bytes)) {
            let Some((at, fragment)) = part_of(&directory, source) else { return (ReadReport::not_found(), 0) };
            let range = range.start + at.start..range.start + at.end;
            return (self.record(span, range, fragment.crc).await, fragment.crc);
        }
        // The directory cannot be read by itself: all of the record, with parity.
        let mut report = self.record(span, range, whole.crc).await;
        if report.outcome != ReadOutcome::Found {
            return (report, 0);
        }
        let payload = std::mem::take(&mut report.payload);
        let Some(directory) = directory_of(&whole, &payload) else {
            return (ReadReport { outcome: ReadOutcome::Lost, ..report }, 0);
        };
        let Some((at, fragment)) = part_of(&directory, source) else { return (ReadReport::not_found(), 0) };
        report.payload = payload[at.start as usize..at.end as usize].to_vec();
        (report, fragment.crc)
    }
}

#[cfg(test)]
mod tests {
    use forebay_types::crc32c;

    use super::*;
    use crate::segments::SegmentIndex;

    #[test]
    fn what_was_joined_is_taken_apart() {
        let part = |(source, bytes): (u32, &[u8])| {
            let fragment = EventFragment { source: SourceId(source), bytes: bytes.len() as u32, crc: crc32c(bytes) };
            (fragment, bytes.to_vec())
        };
        let parts: Vec<_> = [(1, &b"abc"[..]), (5, b""), (9, b"de"), (u32::MAX, b"f")].map(part).to_vec();
        let payload = joined(parts.clone());
        assert_eq!(payload.len(), event_directory_bytes(4) + 6);
        let (bytes, crc) = (payload.len() as u32, crc32c(&payload));
        let whole = FragmentEntry { source: SourceId(4), segment: SegmentIndex(1), position: 0, bytes, crc };
        let directory = directory_of(&whole, &payload).expect("just made");
        for (fragment, bytes) in &parts {
            let (range, found) = part_of(&directory, fragment.source).expect("it is in it");
            assert_eq!((&payload[range.start as usize..range.end as usize], found), (&bytes[..], *fragment));
        }
        assert_eq!(part_of(&directory, SourceId(2)), None);
        assert_eq!(directory_of(&whole, &payload[..20]), None);
        assert_eq!(directory_of(&FragmentEntry { bytes: bytes + 1, ..whole }, &payload), None);
    }
}
