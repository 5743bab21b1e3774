//! The data of recent flushes in memory, so that a filter that follows closely touches no drive.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use forebay_media::AlignedBuffer;

use crate::segments::SegmentIndex;

/// The data shards of one flush.
pub(crate) struct CachedFlush {
    /// One buffer a data shard: header, then units.
    pub(crate) shards: Vec<Arc<AlignedBuffer>>,
    pub(crate) header_bytes: usize,
}

type Key = (SegmentIndex, u32);

/// Recent flushes, the oldest dropped first.
pub(crate) struct Cache {
    capacity_bytes: usize,
    bytes: usize,
    flushes: BTreeMap<Key, CachedFlush>,
    order: VecDeque<Key>,
}

impl Cache {
    pub(crate) fn new(capacity_bytes: usize) -> Self {
        Cache { capacity_bytes, bytes: 0, flushes: BTreeMap::new(), order: VecDeque::new() }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get(&self, segment: SegmentIndex, flush: u32) -> Option<&CachedFlush> {
        self.flushes.get(&(segment, flush))
    }

    /// Keeps a flush; gives back the buffers that had to go.
    pub(crate) fn insert(&mut self, segment: SegmentIndex, flush: u32, cached: CachedFlush) -> Vec<Arc<AlignedBuffer>> {
        self.bytes += bytes_of(&cached);
        self.order.push_back((segment, flush));
        self.flushes.insert((segment, flush), cached);
        let mut freed = Vec::new();
        while self.bytes > self.capacity_bytes {
            let Some(key) = self.order.pop_front() else { break };
            if let Some(flush) = self.flushes.remove(&key) {
                self.bytes -= bytes_of(&flush);
                freed.extend(flush.shards);
            }
        }
        freed
    }

    /// The segment is gone: so are its flushes.
    pub(crate) fn remove_segment(&mut self, segment: SegmentIndex) -> Vec<Arc<AlignedBuffer>> {
        let keys: Vec<Key> = self.flushes.range((segment, 0)..=(segment, u32::MAX)).map(|(key, _)| *key).collect();
        let mut freed = Vec::new();
        for key in keys {
            let flush = self.flushes.remove(&key).expect("listed just now");
            self.bytes -= bytes_of(&flush);
            freed.extend(flush.shards);
        }
        self.order.retain(|(of, _)| *of != segment);
        freed
    }
}

fn bytes_of(flush: &CachedFlush) -> usize {
    flush.shards.iter().map(|buffer| buffer.len()).sum()
}
