//! Accepted events: which streams want them, which have released them.

use std::collections::BTreeMap;

use forebay_format::{DecisionSet, TableEntry};
use forebay_types::limits::STREAMS_MAX;
use forebay_types::memory::{allocated_bytes, tree_bytes};
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

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    pub(crate) fn from_bits(bits: u64) -> StreamSet {
        StreamSet(bits)
    }

    pub(crate) fn is_empty(self) -> bool {
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
    /// The segment that holds the record that was met first.
    first: Option<SegmentIndex>,
    /// Those of the others; most events have none as long as they are here.
    others: ThinVec<SegmentIndex>,
}

impl Accepted {
    /// Segments that hold the acceptance and the releases so far.
    pub(crate) fn records(&self) -> impl Iterator<Item = SegmentIndex> + '_ {
        self.first.into_iter().chain(self.others.iter().copied())
    }

    fn add_record(&mut self, segment: Option<SegmentIndex>) {
        match (self.first, segment) {
            (None, _) => self.first = segment,
            (Some(_), segment) => self.others.extend(segment),
        }
    }

    /// Memory outside of the map.
    fn heap_bytes(&self) -> usize {
        match self.others.capacity() {
            0 => 0,
            places => allocated_bytes(16 + places * size_of::<SegmentIndex>()),
        }
    }

    /// Whether every stream has released the event.
    pub(crate) fn is_over(&self) -> bool {
        !self.streams.is_empty() && self.released.covers(self.streams)
    }
}

impl Accepted {
    /// What was decided, as a checkpoint holds it.
    pub(crate) fn decision_set(&self) -> DecisionSet {
        let released = self.released.0 & self.streams.0;
        DecisionSet { accepted: self.streams.0, released, incomplete: self.incomplete }
    }
}

/// All accepted events of a lane.
pub(crate) struct AcceptedEvents {
    names: Vec<StreamName>,
    /// Events that each stream has not released.
    waiting: Vec<u64>,
    events: BTreeMap<EventKey, Accepted>,
    heap_bytes: usize,
}

impl AcceptedEvents {
    /// No events yet, with the streams that a checkpoint names.
    pub(crate) fn from_checkpoint(names: &[StreamName]) -> Self {
        // Records name streams by number: even what the list does not name is counted.
        AcceptedEvents { names: names.to_vec(), waiting: vec![0; STREAMS_MAX], events: BTreeMap::new(), heap_bytes: 0 }
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

    /// Memory in use, never less than it is.
    pub(crate) fn bytes(&self) -> usize {
        self.heap_bytes + tree_bytes(self.events.len(), size_of::<(EventKey, Accepted)>())
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    pub(crate) fn streams(&self) -> impl Iterator<Item = (&StreamName, u64)> + '_ {
        self.names.iter().zip(self.waiting.iter().copied())
    }

    /// The smallest event: it waits for one of its streams.
    pub(crate) fn first(&self) -> Option<EventKey> {
        self.events.first_key_value().map(|(key, _)| *key)
    }

    /// The largest event.
    pub(crate) fn last(&self) -> Option<EventKey> {
        self.events.last_key_value().map(|(key, _)| *key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (EventKey, &Accepted)> + '_ {
        self.events.iter().map(|(key, accepted)| (*key, accepted))
    }

    /// Takes the first `count` records of an event out: they are needed no more.
    pub(crate) fn take_records(&mut self, key: EventKey, count: usize) -> Vec<SegmentIndex> {
        let Some(accepted) = self.events.get_mut(&key) else { return Vec::new() };
        let before = accepted.heap_bytes();
        let mut taken: Vec<SegmentIndex> = accepted.records().collect();
        let kept = taken.split_off(count.min(taken.len()));
        (accepted.first, accepted.others) = (None, ThinVec::new());
        kept.into_iter().for_each(|segment| accepted.add_record(Some(segment)));
        self.heap_bytes = self.heap_bytes + accepted.heap_bytes() - before;
        taken
    }

    /// What `old` says of an event is said by a record in `new` too, and with `rest` by nothing in `old` any more. Gives how many records in
    /// `old` are needed no longer; `None` when there were none, and nothing is entered.
    pub(crate) fn copy_record(
        &mut self,
        key: EventKey,
        old: SegmentIndex,
        new: SegmentIndex,
        rest: bool,
    ) -> Option<usize> {
        let accepted = self.events.get_mut(&key)?;
        let there = accepted.records().filter(|segment| *segment == old).count();
        if there == 0 {
            return None;
        }
        let before = accepted.heap_bytes();
        let gone = if rest { there } else { 0 };
        let kept: Vec<SegmentIndex> = accepted.records().filter(|segment| gone == 0 || *segment != old).collect();
        (accepted.first, accepted.others) = (None, ThinVec::new());
        kept.into_iter().chain([new]).for_each(|segment| accepted.add_record(Some(segment)));
        self.heap_bytes = self.heap_bytes + accepted.heap_bytes() - before;
        Some(gone)
    }

    /// The acceptance of an event, as a record in `segment` unless a checkpoint has it. Gives back whether the record is needed.
    pub(crate) fn accept(
        &mut self,
        key: EventKey,
        streams: StreamSet,
        incomplete: bool,
        segment: Option<SegmentIndex>,
    ) -> bool {
        let accepted = self.events.entry(key).or_default();
        if !accepted.streams.is_empty() {
            return false;
        }
        accepted.streams = streams;
        accepted.incomplete = incomplete;
        let before = accepted.heap_bytes();
        accepted.add_record(segment);
        self.heap_bytes = self.heap_bytes + accepted.heap_bytes() - before;
        for stream in StreamSet(streams.0 & !accepted.released.0).iter() {
            self.waiting[stream] += 1;
        }
        true
    }

    /// The release of an event by streams, as a record in `segment` unless a checkpoint has it. Gives back whether the record is needed.
    pub(crate) fn release(&mut self, key: EventKey, streams: StreamSet, segment: Option<SegmentIndex>) -> bool {
        let accepted = self.events.entry(key).or_default();
        let new = StreamSet(streams.0 & !accepted.released.0);
        if new.is_empty() {
            return false;
        }
        for stream in StreamSet(new.0 & accepted.streams.0).iter() {
            self.waiting[stream] -= 1;
        }
        accepted.released.0 |= new.0;
        let before = accepted.heap_bytes();
        accepted.add_record(segment);
        self.heap_bytes = self.heap_bytes + accepted.heap_bytes() - before;
        true
    }

    pub(crate) fn remove(&mut self, key: EventKey) -> Option<Accepted> {
        let accepted = self.events.remove(&key)?;
        self.heap_bytes -= accepted.heap_bytes();
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
            // Behind the last of them there is nothing to look for.
            .take(usize::try_from(self.waiting[usize::from(stream.0)]).unwrap_or(usize::MAX))
    }

    /// The streams that an event was accepted into, and whether each has released it.
    pub(crate) fn streams_of(&self, key: EventKey) -> impl Iterator<Item = (&StreamName, bool)> + '_ {
        let (streams, released) = self.events.get(&key).map_or((0, 0), |a| (a.streams.0, a.released.0));
        let named = StreamSet(streams).iter().filter_map(|stream| Some((self.names.get(stream)?, stream)));
        named.map(move |(name, stream)| (name, released & 1 << stream != 0))
    }

    /// The streams that want an event and have not released it.
    pub(crate) fn streams_waiting(&self, key: EventKey) -> Vec<StreamName> {
        let waiting = self.events.get(&key).map_or(0, |accepted| accepted.streams.0 & !accepted.released.0);
        StreamSet(waiting).iter().filter_map(|stream| self.names.get(stream).cloned()).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::allocated_in;

    #[test]
    fn memory_is_told_as_it_is() {
        let mut accepted = AcceptedEvents::from_checkpoint(&[]);
        let (first, both) = (StreamSet(1), StreamSet(3));
        let (_, held) = allocated_in(|| {
            for event in 0..5000u64 {
                let key = EventKey::new(1, event * 7 % 5003);
                assert!(accepted.accept(key, both, false, Some(SegmentIndex(3))));
                if event % 3 == 0 {
                    assert!(accepted.release(key, first, Some(SegmentIndex(4))));
                }
            }
        });
        assert!(held > 5000 * 40 && held <= accepted.bytes() as i64, "{held} of {}", accepted.bytes());
        let (_, more) = allocated_in(|| {
            for event in (0..5003).filter(|event| event % 10 != 0) {
                accepted.remove(EventKey::new(1, event));
            }
        });
        assert!(held + more <= accepted.bytes() as i64);
        assert!(accepted.bytes() < accepted.len() * 180 + 1000, "{} for {}", accepted.bytes(), accepted.len());
    }

    #[test]
    fn every_record_is_kept_whichever_came_first() {
        let mut accepted = AcceptedEvents::from_checkpoint(&[]);
        let key = EventKey::new(1, 1);
        assert!(accepted.release(key, StreamSet(2), Some(SegmentIndex(5))));
        assert!(accepted.accept(key, StreamSet(3), true, Some(SegmentIndex(4))));
        assert!(!accepted.accept(key, StreamSet(3), true, Some(SegmentIndex(4))), "once");
        assert!(!accepted.get(key).expect("it is here").is_over());
        assert!(accepted.release(key, StreamSet(1), Some(SegmentIndex(6))));
        let over = accepted.remove(key).expect("it is here");
        assert!(over.is_over());
        assert_eq!(over.records().map(|s| s.0).collect::<Vec<_>>(), [5, 4, 6]);
    }
    #[test]
    fn records_that_a_checkpoint_replaces_are_taken_out_first_ones_first() {
        let mut accepted = AcceptedEvents::from_checkpoint(&[]);
        let key = EventKey::new(1, 1);
        assert!(accepted.accept(key, StreamSet(7), false, Some(SegmentIndex(4))));
        assert!(accepted.release(key, StreamSet(1), Some(SegmentIndex(5))));
        assert!(accepted.release(key, StreamSet(2), Some(SegmentIndex(6))));
        assert_eq!(accepted.take_records(key, 2), [SegmentIndex(4), SegmentIndex(5)]);
        let records = |accepted: &AcceptedEvents| accepted.get(key).expect("it stays").records().collect::<Vec<_>>();
        assert_eq!(records(&accepted), [SegmentIndex(6)]);
        assert_eq!(accepted.take_records(key, usize::MAX), [SegmentIndex(6)]);
        assert_eq!((records(&accepted), accepted.heap_bytes), (vec![], 0));
        assert!(accepted.take_records(EventKey::new(1, 2), 1).is_empty());
    }
}
