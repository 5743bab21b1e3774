//! Accepted events: which streams want them, which have released them.

use std::collections::BTreeMap;

use forebay_format::TableEntry;
use forebay_types::limits::STREAMS_MAX;
use forebay_types::{EventKey, StreamName};
use thin_vec::ThinVec;

use crate::segments::SegmentIndex;

/// The number of a stream in this lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamIndex(u8);

/// A set of streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamSet(u64);

const _: () = assert!(STREAMS_MAX <= u64::BITS as usize);

impl StreamSet {
    pub(crate) fn insert(&mut self, stream: StreamIndex) {
        self.0 |= 1 << stream.0;
    }

    fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn contains(self, stream: StreamIndex) -> bool {
        self.0 & 1 << stream.0 != 0
    }

    /// Whether every stream of `other` is in here.
    pub(crate) fn covers(self, other: StreamSet) -> bool {
        self.0 & other.0 == other.0
    }

    /// The set of a record of an acceptance or a release: the low half stands in its source, the high half in its sum.
    pub(crate) fn of_record(entry: &TableEntry) -> StreamSet {
        StreamSet(u64::from(entry.source.0) | u64::from(entry.crc) << 32)
    }

    /// The halves for a record; see [`StreamSet::of_record`].
    pub(crate) fn to_record(self) -> (u32, u32) {
        (self.0 as u32, (self.0 >> 32) as u32)
    }

    pub(crate) fn one(stream: StreamIndex) -> StreamSet {
        StreamSet(1 << stream.0)
    }

    fn iter(self) -> impl Iterator<Item = usize> {
        (0..STREAMS_MAX).filter(move |bit| self.0 & 1 << bit != 0)
    }
}

/// One accepted event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accepted {
    pub(crate) streams: StreamSet,
    pub(crate) released: StreamSet,
    pub(crate) incomplete: bool,
    /// Segments that hold the acceptance and the releases so far.
    pub(crate) records: ThinVec<SegmentIndex>,
}

impl Accepted {
    /// Whether every stream has released the event.
    pub(crate) fn is_over(&self) -> bool {
        !self.streams.is_empty() && self.released.covers(self.streams)
    }
}

/// All accepted events of a lane.
pub(crate) struct AcceptedEvents {
    names: Vec<StreamName>,
    /// Events that each stream has not released.
    waiting: Vec<u64>,
    events: BTreeMap<EventKey, Accepted>,
}

impl AcceptedEvents {
    /// No events yet, with the streams that a checkpoint names.
    pub(crate) fn from_checkpoint(names: &[StreamName]) -> Self {
        // Records name streams by number: even what the list does not name is counted.
        AcceptedEvents { names: names.to_vec(), waiting: vec![0; STREAMS_MAX], events: BTreeMap::new() }
    }

    pub(crate) fn names(&self) -> &[StreamName] {
        &self.names
    }

    /// The number of a stream, given now if need be; `None` when there are too many.
    pub(crate) fn intern(&mut self, name: &StreamName) -> Option<StreamIndex> {
        if let Some(stream) = self.stream(name) {
            return Some(stream);
        }
        if self.names.len() == STREAMS_MAX {
            return None;
        }
        self.names.push(name.clone());
        Some(StreamIndex((self.names.len() - 1) as u8))
    }

    pub(crate) fn stream(&self, name: &StreamName) -> Option<StreamIndex> {
        self.names.iter().position(|n| n == name).map(|at| StreamIndex(at as u8))
    }

    pub(crate) fn get(&self, key: EventKey) -> Option<&Accepted> {
        self.events.get(&key)
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    pub(crate) fn streams(&self) -> impl Iterator<Item = (&StreamName, u64)> + '_ {
        self.names.iter().zip(self.waiting.iter().copied())
    }

    /// The acceptance of an event, as a record in `segment`. Gives back whether the record is needed.
    pub(crate) fn accept(
        &mut self,
        key: EventKey,
        streams: StreamSet,
        incomplete: bool,
        segment: SegmentIndex,
    ) -> bool {
        let accepted = self.events.entry(key).or_default();
        if !accepted.streams.is_empty() {
            return false;
        }
        accepted.streams = streams;
        accepted.incomplete = incomplete;
        accepted.records.push(segment);
        for stream in StreamSet(streams.0 & !accepted.released.0).iter() {
            self.waiting[stream] += 1;
        }
        true
    }

    /// The release of an event by streams, as a record in `segment`. Gives back whether the record is needed.
    pub(crate) fn release(&mut self, key: EventKey, streams: StreamSet, segment: SegmentIndex) -> bool {
        let accepted = self.events.entry(key).or_default();
        let new = StreamSet(streams.0 & !accepted.released.0);
        if new.is_empty() {
            return false;
        }
        for stream in StreamSet(new.0 & accepted.streams.0).iter() {
            self.waiting[stream] -= 1;
        }
        accepted.released.0 |= new.0;
        accepted.records.push(segment);
        true
    }

    pub(crate) fn remove(&mut self, key: EventKey) -> Option<Accepted> {
        let accepted = self.events.remove(&key)?;
        for stream in StreamSet(accepted.streams.0 & !accepted.released.0).iter() {
            self.waiting[stream] -= 1;
        }
        Some(accepted)
    }

    /// Events of a stream that it has not released, after `after`, ascending.
    pub(crate) fn of_stream(
        &self,
        stream: StreamIndex,
        after: Option<EventKey>,
    ) -> impl Iterator<Item = EventKey> + '_ {
        use std::ops::Bound;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.events
            .range((from, Bound::Unbounded))
            .filter(move |(_, a)| a.streams.contains(stream) && !a.released.contains(stream))
            .map(|(key, _)| *key)
    }

    /// Events whose every stream has released them; recovery meets them when the last release was not yet in a checkpoint.
    pub(crate) fn all_released(&self) -> Vec<EventKey> {
        self.events.iter().filter(|(_, a)| a.is_over()).map(|(key, _)| *key).collect()
    }

    /// All accepted events, and whether they are incomplete.
    pub(crate) fn keys(&self) -> Vec<(EventKey, bool)> {
        self.events.iter().map(|(key, a)| (*key, a.incomplete)).collect()
    }
}
