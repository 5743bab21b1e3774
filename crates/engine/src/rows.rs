//! Rows that were read from the drives a moment ago. Fragments of a few hundred bytes, as LHCb's banks are, lie by the hundred in one row: whoever
//! reads one of them reads its neighbours next, and one read serves them all.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use crate::read::Row;
use crate::segments::SegmentIndex;

/// Memory for such rows: a part of what there is for recent flushes, but room for some rows at least.
const SHARE_OF_CACHE: usize = 16;
const CAPACITY_BYTES_MAX: usize = 8 << 20;
const CAPACITY_BYTES_MIN: usize = 1 << 20;
const ROWS_MIN: usize = 4;

/// A fragment is read with its whole row when the row could hold so many of its size.
const FRAGMENTS_PER_ROW_MIN: u64 = 16;

/// A row of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowKey {
    pub(crate) segment: SegmentIndex,
    pub(crate) flush: u32,
    pub(crate) row: u64,
}

/// Rows that were read, the oldest dropped first. Most of their bytes are not checked: each fragment is, by its own sum.
pub(crate) struct RecentRows {
    capacity_bytes: usize,
    rows: BTreeMap<RowKey, Rc<Row>>,
    order: VecDeque<RowKey>,
    bytes: usize,
}

impl RecentRows {
    /// For rows of up to `row_bytes`, beside a cache of `cache_bytes`.
    pub(crate) fn new(cache_bytes: usize, row_bytes: usize) -> Self {
        let least = CAPACITY_BYTES_MIN.max(ROWS_MIN * row_bytes).min(CAPACITY_BYTES_MAX);
        let capacity_bytes = (cache_bytes / SHARE_OF_CACHE).clamp(least, CAPACITY_BYTES_MAX);
        RecentRows { capacity_bytes, rows: BTreeMap::new(), order: VecDeque::new(), bytes: 0 }
    }

    /// Memory in use.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The row that a fragment is to be read with: when it lies in one row, and is small or the row must be computed.
    pub(crate) fn row_of(range: &std::ops::Range<u64>, row_bytes: u64, degraded: bool) -> Option<u64> {
        let row = range.start / row_bytes;
        let small = (range.end - range.start) * FRAGMENTS_PER_ROW_MIN <= row_bytes;
        ((small || degraded) && (range.end - 1) / row_bytes == row).then_some(row)
    }

    pub(crate) fn get(&self, key: RowKey) -> Option<Rc<Row>> {
        self.rows.get(&key).cloned()
    }

    pub(crate) fn insert(&mut self, key: RowKey, row: Rc<Row>) {
        self.bytes += row.data.len();
        if let Some(before) = self.rows.insert(key, row) {
            self.bytes -= before.data.len();
        } else {
            self.order.push_back(key);
        }
        while self.bytes > self.capacity_bytes {
            let Some(oldest) = self.order.pop_front() else { break };
            self.bytes -= self.rows.remove(&oldest).map_or(0, |row| row.data.len());
        }
    }

    /// The segment is gone: so are its rows.
    pub(crate) fn remove_segment(&mut self, segment: SegmentIndex) {
        self.order.retain(|key| key.segment != segment);
        let bytes = &mut self.bytes;
        self.rows.retain(|key, row| {
            let keep = key.segment != segment;
            *bytes -= if keep { 0 } else { row.data.len() };
            keep
        });
    }
}
