//! The data of recent flushes in memory, so that a filter that follows closely touches no drive.
//!
//! A full flush stays in the buffers that it was written from. Of one that left much of them empty the data move together with others' ([`packed`]).
//! Either way the memory is that of the [`BufferPool`], and goes back there.

mod packed;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use forebay_format::RowGeometry;
use forebay_media::AlignedBuffer;

use self::packed::Packed;
use crate::flush::{gather, pieces, places};
use crate::pool::BufferPool;
use crate::segments::SegmentIndex;
use crate::shared::SharedBytes;

/// What a flush takes beside its data, about: its places in the map and in the queue.
const FLUSH_BYTES: usize = 128;

/// A flush that fills at least half of its buffers keeps them; of others the data are copied together.
const KEPT_FILL_DIVISOR: usize = 2;

/// A flush that is durable, as it was written: one buffer a data shard, header, then units.
pub(crate) struct WrittenFlush {
    pub(crate) shards: Vec<Arc<AlignedBuffer>>,
    pub(crate) header_bytes: usize,
    pub(crate) geometry: RowGeometry,
}

impl WrittenFlush {
    fn buffer_bytes(&self) -> usize {
        self.shards.iter().map(|buffer| buffer.len()).sum()
    }
}

enum CachedFlush {
    Written(WrittenFlush),
    Packed(Range<u64>),
}

type Key = (SegmentIndex, u32);

/// Recent flushes. Whoever keeps them says when the oldest must go.
#[derive(Default)]
pub(crate) struct Cache {
    flushes: BTreeMap<Key, CachedFlush>,
    /// Each with how many came before it.
    order: VecDeque<(u64, Key)>,
    inserted: u64,
    packed: Packed,
    /// Of buffers that flushes keep.
    written_bytes: usize,
}

impl Cache {
    /// Memory in use.
    pub(crate) fn bytes(&self) -> usize {
        self.written_bytes + self.packed.bytes() + self.flushes.len() * FLUSH_BYTES
    }

    /// Appends a range of a flush's data to `into`; whether the flush is here.
    pub(crate) fn append(&self, segment: SegmentIndex, flush: u32, range: Range<u64>, into: &mut Vec<u8>) -> bool {
        match self.flushes.get(&(segment, flush)) {
            None => return false,
            Some(CachedFlush::Written(written)) => {
                gather(&written.shards, written.header_bytes, written.geometry, range, into);
            }
            Some(CachedFlush::Packed(place)) => {
                self.packed.append(place.start + range.start..place.start + range.end, into);
            }
        }
        true
    }

    /// Whether a range of a flush's data is here, where nothing else is written any more.
    pub(crate) fn can_share(&self, segment: SegmentIndex, flush: u32, range: &Range<u64>) -> bool {
        match self.flushes.get(&(segment, flush)) {
            None => false,
            Some(CachedFlush::Written(_)) => true,
            Some(CachedFlush::Packed(place)) => self.packed.can_share(place.start + range.end),
        }
    }

    /// Adds a range of a flush's data to `into`, where it lies; whether [`Cache::can_share`].
    pub(crate) fn share(
        &self,
        segment: SegmentIndex,
        flush: u32,
        range: Range<u64>,
        into: &mut Vec<SharedBytes>,
    ) -> bool {
        match self.flushes.get(&(segment, flush)) {
            Some(CachedFlush::Written(written)) => {
                let places = places(written.header_bytes, written.geometry, range);
                into.extend(places.map(|(shard, place)| SharedBytes::new(Arc::clone(&written.shards[shard]), place)));
                true
            }
            Some(CachedFlush::Packed(place)) if self.packed.can_share(place.start + range.end) => {
                self.packed.share(place.start + range.start..place.start + range.end, into);
                true
            }
            _ => false,
        }
    }

    pub(crate) fn insert(&mut self, segment: SegmentIndex, flush: u32, written: WrittenFlush, pool: &mut BufferPool) {
        let cached = if written.geometry.data_bytes as usize >= written.buffer_bytes() / KEPT_FILL_DIVISOR {
            self.written_bytes += written.buffer_bytes();
            CachedFlush::Written(written)
        } else {
            let WrittenFlush { shards, header_bytes, geometry } = written;
            let place = self.packed.insert(pieces(&shards, header_bytes, geometry, 0..geometry.data_bytes), pool);
            pool.give_back_shared(shards);
            CachedFlush::Packed(place)
        };
        self.order.push_back((self.inserted, (segment, flush)));
        self.inserted += 1;
        let before = self.flushes.insert((segment, flush), cached);
        assert!(before.is_none(), "a flush becomes durable once");
    }

    /// How many flushes have come in.
    pub(crate) fn inserted(&self) -> u64 {
        self.inserted
    }

    /// How many flushes came before the oldest that is here.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.order.front().map(|(number, _)| *number)
    }

    /// Drops the oldest flush; `false` when there is none.
    pub(crate) fn drop_oldest(&mut self, pool: &mut BufferPool) -> bool {
        let Some((_, key)) = self.order.pop_front() else { return false };
        self.remove(key, pool);
        true
    }

    /// The segment is gone: so are its flushes.
    pub(crate) fn remove_segment(&mut self, segment: SegmentIndex, pool: &mut BufferPool) {
        let keys: Vec<Key> = self.flushes.range((segment, 0)..=(segment, u32::MAX)).map(|(key, _)| *key).collect();
        for key in keys {
            self.remove(key, pool);
        }
        self.order.retain(|(_, (of, _))| *of != segment);
    }

    fn remove(&mut self, key: Key, pool: &mut BufferPool) {
        match self.flushes.remove(&key).expect("what is queued is here") {
            CachedFlush::Written(written) => {
                self.written_bytes -= written.buffer_bytes();
                pool.give_back_shared(written.shards);
            }
            CachedFlush::Packed(place) => self.packed.remove(place, pool),
        }
    }
}
