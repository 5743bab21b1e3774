//! Rows that were read from the drives a moment ago. Fragments of a few hundred bytes, as LHCb's banks are, lie by the hundred in one row: whoever
//! reads one of them reads its neighbours next, and one read serves them all.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use crate::segments::SegmentIndex;

/// Memory for such rows, in bytes.
const CAPACITY_BYTES: usize = 8 << 20;

/// A fragment is read with its whole row when the row could hold so many of its size.
const FRAGMENTS_PER_ROW_MIN: u64 = 16;

/// A row of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowKey {
    pub(crate) segment: SegmentIndex,
    pub(crate) flush: u32,
    pub(crate) row: u64,
}

/// Rows that were read, the oldest dropped first. Their bytes are not checked: each fragment is, by its own sum.
#[derive(Default)]
pub(crate) struct RecentRows {
    rows: BTreeMap<RowKey, Rc<Vec<u8>>>,
    order: VecDeque<RowKey>,
    bytes: usize,
}

impl RecentRows {
    /// The row that a fragment is to be read with: when it lies in one row, and is small or the row must be computed.
    pub(crate) fn row_of(range: &std::ops::Range<u64>, row_bytes: u64, degraded: bool) -> Option<u64> {
        let row = range.start / row_bytes;
        let small = (range.end - range.start) * FRAGMENTS_PER_ROW_MIN <= row_bytes;
        ((small || degraded) && (range.end - 1) / row_bytes == row).then_some(row)
    }

    pub(crate) fn get(&self, key: RowKey) -> Option<Rc<Vec<u8>>> {
        self.rows.get(&key).cloned()
    }

    pub(crate) fn insert(&mut self, key: RowKey, row: Rc<Vec<u8>>) {
        self.bytes += row.len();
        if let Some(before) = self.rows.insert(key, row) {
            self.bytes -= before.len();
        } else {
            self.order.push_back(key);
        }
        while self.bytes > CAPACITY_BYTES {
            let Some(oldest) = self.order.pop_front() else { break };
            self.bytes -= self.rows.remove(&oldest).map_or(0, |row| row.len());
        }
    }

    /// The segment is gone: so are its rows.
    pub(crate) fn remove_segment(&mut self, segment: SegmentIndex) {
        self.order.retain(|key| key.segment != segment);
        let bytes = &mut self.bytes;
        self.rows.retain(|key, row| {
            let keep = key.segment != segment;
            *bytes -= if keep { 0 } else { row.len() };
            keep
        });
    }
}
