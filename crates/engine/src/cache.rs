//! The data of recent flushes in memory, so that a filter that follows closely touches no drive.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use forebay_format::RowGeometry;
use forebay_media::AlignedBuffer;

use crate::flush::gather;
use crate::index::allocated_bytes;
use crate::segments::SegmentIndex;

/// What a flush takes beside its data, about: its places in the map and in the queue.
const FLUSH_BYTES: usize = 128;

/// The data of one flush.
pub(crate) enum CachedFlush {
    /// As it was written, one buffer a data shard: header, then units.
    Shards { shards: Vec<Arc<AlignedBuffer>>, header_bytes: usize, geometry: RowGeometry },
    /// Of a flush that left much of its buffers empty: the data alone.
    Data(Box<[u8]>),
}

impl CachedFlush {
    /// A flush as it was written, and its buffers as far as it does not keep them: most of them empty, they would take the place of the data of
    /// many flushes. Full ones are never copied.
    pub(crate) fn new(
        shards: Vec<Arc<AlignedBuffer>>,
        header_bytes: usize,
        geometry: RowGeometry,
    ) -> (CachedFlush, Vec<Arc<AlignedBuffer>>) {
        let buffers: usize = shards.iter().map(|buffer| buffer.len()).sum();
        let bytes = geometry.data_bytes as usize;
        if bytes >= buffers / 4 * 3 {
            return (CachedFlush::Shards { shards, header_bytes, geometry }, Vec::new());
        }
        let mut data = Vec::with_capacity(bytes);
        gather(&shards, header_bytes, geometry, 0..geometry.data_bytes, &mut data);
        (CachedFlush::Data(data.into_boxed_slice()), shards)
    }

    /// Appends a range of the flush's data to `into`.
    pub(crate) fn append(&self, range: Range<u64>, into: &mut Vec<u8>) {
        match self {
            CachedFlush::Shards { shards, header_bytes, geometry } => {
                gather(shards, *header_bytes, *geometry, range, into);
            }
            CachedFlush::Data(data) => into.extend_from_slice(&data[range.start as usize..range.end as usize]),
        }
    }

    fn bytes(&self) -> usize {
        FLUSH_BYTES
            + match self {
                CachedFlush::Shards { shards, .. } => shards.iter().map(|buffer| allocated_bytes(buffer.len())).sum(),
                CachedFlush::Data(data) => allocated_bytes(data.len()),
            }
    }

    fn into_buffers(self) -> Vec<Arc<AlignedBuffer>> {
        match self {
            CachedFlush::Shards { shards, .. } => shards,
            CachedFlush::Data(_) => Vec::new(),
        }
    }
}

type Key = (SegmentIndex, u32);

/// Recent flushes. Whoever keeps them says when the oldest must go.
#[derive(Default)]
pub(crate) struct Cache {
    bytes: usize,
    flushes: BTreeMap<Key, CachedFlush>,
    order: VecDeque<Key>,
}

impl Cache {
    /// Memory in use.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get(&self, segment: SegmentIndex, flush: u32) -> Option<&CachedFlush> {
        self.flushes.get(&(segment, flush))
    }

    pub(crate) fn insert(&mut self, segment: SegmentIndex, flush: u32, cached: CachedFlush) {
        self.bytes += cached.bytes();
        self.order.push_back((segment, flush));
        let before = self.flushes.insert((segment, flush), cached);
        assert!(before.is_none(), "a flush becomes durable once");
    }

    /// Drops the oldest flush; gives back its buffers, `None` when there is none.
    pub(crate) fn drop_oldest(&mut self) -> Option<Vec<Arc<AlignedBuffer>>> {
        let key = self.order.pop_front()?;
        let flush = self.flushes.remove(&key).expect("what is queued is here");
        self.bytes -= flush.bytes();
        Some(flush.into_buffers())
    }

    /// The segment is gone: so are its flushes.
    pub(crate) fn remove_segment(&mut self, segment: SegmentIndex) -> Vec<Arc<AlignedBuffer>> {
        let keys: Vec<Key> = self.flushes.range((segment, 0)..=(segment, u32::MAX)).map(|(key, _)| *key).collect();
        let mut freed = Vec::new();
        for key in keys {
            let flush = self.flushes.remove(&key).expect("listed just now");
            self.bytes -= flush.bytes();
            freed.extend(flush.into_buffers());
        }
        self.order.retain(|(of, _)| *of != segment);
        freed
    }
}
