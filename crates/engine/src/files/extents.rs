//! Of which records the bytes of a file are: ranges that do not overlap, by where they begin.
//!
//! Of what several records say of a byte, that with the highest version counts, in whatever order they are met. Each range that counts is one live record of
//! its segment; a record of which two parts count is two.

use std::collections::BTreeMap;
use std::ops::Range;

use forebay_types::memory::{allocated_bytes, tree_bytes};

use crate::segments::{SegmentIndex, Segments};

/// The piece was written where the file ended.
const APPENDED: u32 = 1 << 31;

/// A range of a file that one record gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) bytes: u32,
    pub(crate) version: u32,
    pub(crate) segment: SegmentIndex,
    /// Of the record's payload, in the data of its segment.
    pub(crate) position: u32,
    /// Bytes of the payload before those of this range.
    pub(crate) skip: u32,
    /// Of the payload; 0 for a hole.
    payload_bytes: u32,
    /// Of the payload.
    pub(crate) crc: u32,
}

impl Extent {
    pub(crate) fn piece(segment: SegmentIndex, position: u32, version: u32, bytes: u32, crc: u32) -> Extent {
        Extent { bytes, version, segment, position, skip: 0, payload_bytes: bytes, crc }
    }

    pub(crate) fn hole(segment: SegmentIndex, version: u32, bytes: u32) -> Extent {
        Extent { bytes, version, segment, position: 0, skip: 0, payload_bytes: 0, crc: 0 }
    }

    pub(crate) fn appended(self, appended: bool) -> Extent {
        let flag = if appended { APPENDED } else { 0 };
        Extent { payload_bytes: self.payload_bytes | flag, ..self }
    }

    pub(crate) fn is_hole(&self) -> bool {
        self.payload_bytes == 0
    }

    /// Whether its first byte was written where the file ended.
    pub(crate) fn is_appended(&self) -> bool {
        self.payload_bytes & APPENDED != 0 && self.skip == 0
    }

    /// Bytes of the record that it is in.
    pub(crate) fn payload_bytes(&self) -> u32 {
        self.payload_bytes & !APPENDED
    }

    /// What it takes of the live bytes of its segment.
    fn live_bytes(&self) -> u32 {
        if self.is_hole() { 0 } else { self.bytes }
    }

    /// The part of it, which begins at `start`, that lies in `range`.
    pub(crate) fn part(&self, start: u64, range: &Range<u64>) -> Option<(u64, Extent)> {
        let (from, to) = (start.max(range.start), (start + u64::from(self.bytes)).min(range.end));
        let skip = if self.is_hole() { 0 } else { self.skip + from.saturating_sub(start) as u32 };
        (from < to).then(|| (from, Extent { bytes: (to - from) as u32, skip, ..*self }))
    }
}

/// The ranges of a file.
#[derive(Debug, Default)]
pub(super) enum Extents {
    #[default]
    None,
    /// Most files have one, from their first byte on.
    First(Extent),
    Many(Box<Ranges>),
}

/// By where they begin.
type Ranges = BTreeMap<u64, Extent>;

impl Extents {
    pub(super) fn len(&self) -> usize {
        match self {
            Extents::None => 0,
            Extents::First(_) => 1,
            Extents::Many(many) => many.len(),
        }
    }

    /// Memory outside of the value.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Extents::None | Extents::First(_) => 0,
            Extents::Many(many) => {
                allocated_bytes(size_of::<Ranges>()) + tree_bytes(many.len(), size_of::<(u64, Extent)>())
            }
        }
    }

    /// Where the last one ends.
    pub(super) fn end(&self) -> u64 {
        let last = match self {
            Extents::None => None,
            Extents::First(extent) => Some((0, extent)),
            Extents::Many(many) => many.last_key_value().map(|(start, extent)| (*start, extent)),
        };
        last.map_or(0, |(start, extent)| start + u64::from(extent.bytes))
    }

    /// Those that meet a range, ascending, whole.
    pub(super) fn in_range(&self, range: Range<u64>) -> impl Iterator<Item = (u64, Extent)> + '_ {
        let (one, many) = match self {
            Extents::None => (None, None),
            Extents::First(extent) => (Some((0, *extent)), None),
            Extents::Many(many) => {
                // One that begins before may reach into it.
                let first = many.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
                let behind = range.end.max(first);
                (None, Some(many.range(first..behind).map(|(start, extent)| (*start, *extent))))
            }
        };
        let meets = move |(start, extent): &(u64, Extent)| {
            let end = start + u64::from(extent.bytes);
            !range.is_empty() && *start < range.end && end > range.start
        };
        one.into_iter().chain(many.into_iter().flatten()).filter(meets)
    }

    fn put(&mut self, start: u64, extent: Extent, segments: &mut Segments) {
        segments.revive(extent.segment, extent.live_bytes());
        match self {
            Extents::None if start == 0 => *self = Extents::First(extent),
            Extents::None => *self = Extents::Many(Box::new(BTreeMap::from([(start, extent)]))),
            Extents::First(first) => {
                assert!(start > 0, "ranges do not overlap");
                *self = Extents::Many(Box::new(BTreeMap::from([(0, *first), (start, extent)])));
            }
            Extents::Many(many) => assert!(many.insert(start, extent).is_none(), "ranges do not overlap"),
        }
    }

    fn take(&mut self, start: u64, segments: &mut Segments) {
        let extent = match self {
            Extents::None => None,
            Extents::First(extent) => {
                let extent = *extent;
                *self = Extents::None;
                Some(extent)
            }
            Extents::Many(many) => many.remove(&start),
        };
        let extent = extent.expect("it was found there");
        segments.bury(extent.segment, extent.live_bytes());
        let Extents::Many(many) = self else { return };
        match (many.len(), many.get(&0)) {
            (0, _) => *self = Extents::None,
            (1, Some(first)) => *self = Extents::First(*first),
            _ => {}
        }
    }

    /// A record says something of a range: it counts where no other does that `stays`.
    pub(super) fn insert(
        &mut self,
        start: u64,
        extent: Extent,
        stays: impl Fn(&Segments, &Extent) -> bool,
        segments: &mut Segments,
    ) {
        let range = start..start + u64::from(extent.bytes);
        let stay = |(at, old)| (at, old, stays(segments, &old));
        let there: Vec<(u64, Extent, bool)> = self.in_range(range.clone()).map(stay).collect();
        let mut from = range.start;
        for (at, old, stays) in there {
            let end = at + u64::from(old.bytes);
            if stays {
                if let Some((at, part)) = extent.part(start, &(from..at)) {
                    self.put(at, part, segments);
                }
                from = end;
                continue;
            }
            self.take(at, segments);
            for rest in [at..range.start, range.end..end] {
                if let Some((at, part)) = old.part(at, &rest) {
                    self.put(at, part, segments);
                }
            }
        }
        if let Some((at, part)) = extent.part(start, &(from..range.end)) {
            self.put(at, part, segments);
        }
    }

    /// No record gives a range any more.
    pub(super) fn clear(&mut self, range: Range<u64>, segments: &mut Segments) {
        for (at, old) in self.in_range(range.clone()).collect::<Vec<_>>() {
            self.take(at, segments);
            for rest in [at..range.start, range.end..at + u64::from(old.bytes)] {
                if let Some((at, part)) = old.part(at, &rest) {
                    self.put(at, part, segments);
                }
            }
        }
    }

    /// What `goes` of the bytes from `from` on counts no more. Gives these ranges, ascending.
    pub(super) fn cut(
        &mut self,
        from: u64,
        goes: impl Fn(&Extent) -> bool,
        segments: &mut Segments,
    ) -> Vec<Range<u64>> {
        let gone: Vec<(u64, Extent)> = self.in_range(from..u64::MAX).filter(|(_, extent)| goes(extent)).collect();
        for (at, old) in &gone {
            self.take(*at, segments);
            if let Some((at, part)) = old.part(*at, &(*at..from)) {
                self.put(at, part, segments);
            }
        }
        gone.iter().map(|(at, old)| from.max(*at)..at + u64::from(old.bytes)).collect()
    }

    /// All of them count no more.
    pub(super) fn end_all(&mut self, segments: &mut Segments) {
        for (_, extent) in self.in_range(0..u64::MAX) {
            segments.bury(extent.segment, extent.live_bytes());
        }
        *self = Extents::None;
    }
}
