//! Rows that were read from the drives a moment ago. Fragments of a few hundred bytes, as LHCb's banks are, lie by the hundred in one row: whoever
//! reads one of them reads its neighbours next, and one read serves them all.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use crate::read::Row;
use crate::segments::SegmentIndex;

/// Memory for such rows: a part of what there is for recent flushes, so that whoever reads old events, of which the fragments lie in many flushes, finds
/// the rows of the next one still here, and whoever follows closely finds new flushes for all that. Room for some rows at least.
const SHARE_OF_CACHE: usize = 2;
const LEAST_BYTES: usize = 1 << 20;
const LEAST_BYTES_MAX: usize = 8 << 20;
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
    /// What they may take however long ago they were read.
    least_bytes: usize,
    capacity_bytes: usize,
    rows: BTreeMap<RowKey, Rc<Row>>,
    /// How many flushes had been cached when it was read, and which.
    order: VecDeque<(u64, RowKey)>,
    bytes: usize,
}

impl RecentRows {
    /// For rows of up to `row_bytes`, out of a cache of `cache_bytes`.
    pub(crate) fn new(cache_bytes: usize, row_bytes: usize) -> Self {
        let least_bytes = LEAST_BYTES.max(ROWS_MIN * row_bytes).min(LEAST_BYTES_MAX);
        let capacity_bytes = (cache_bytes / SHARE_OF_CACHE).max(least_bytes);
        RecentRows { least_bytes, capacity_bytes, rows: BTreeMap::new(), order: VecDeque::new(), bytes: 0 }
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

    /// Takes a row in that was read when so many flushes had been cached.
    pub(crate) fn insert(&mut self, key: RowKey, row: Rc<Row>, flushes_cached: u64) {
        self.bytes += row.data.len();
        if let Some(before) = self.rows.insert(key, row) {
            self.bytes -= before.data.len();
        } else {
            self.order.push_back((flushes_cached, key));
        }
        while self.bytes > self.capacity_bytes && self.drop_oldest() {}
    }

    /// Drops the oldest row, unless it was read after that flush was cached, or the rows take no more than what is theirs however old they are. Whether
    /// it did.
    pub(crate) fn drop_older(&mut self, flush: u64) -> bool {
        let is_older = self.order.front().is_some_and(|(read, _)| *read <= flush);
        is_older && self.bytes > self.least_bytes && self.drop_oldest()
    }

    fn drop_oldest(&mut self) -> bool {
        let Some((_, oldest)) = self.order.pop_front() else { return false };
        self.bytes -= self.rows.remove(&oldest).map_or(0, |row| row.data.len());
        true
    }

    /// The segment is gone: so are its rows.
    pub(crate) fn remove_segment(&mut self, segment: SegmentIndex) {
        self.order.retain(|(_, key)| key.segment != segment);
        let bytes = &mut self.bytes;
        self.rows.retain(|key, row| {
            let keep = key.segment != segment;
            *bytes -= if keep { 0 } else { row.data.len() };
            keep
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW_BYTES: usize = 256 << 10;

    fn key(row: u64) -> RowKey {
        RowKey { segment: SegmentIndex(0), flush: 0, row }
    }

    fn row() -> Rc<Row> {
        Rc::new(Row { data: vec![0; ROW_BYTES], checked: false, damaged: Vec::new() })
    }

    fn here(rows: &RecentRows, of: u64) -> Vec<u64> {
        (0..of).filter(|number| rows.get(key(*number)).is_some()).collect()
    }

    #[test]
    fn rows_take_half_of_the_cache_and_the_oldest_goes_first() {
        let mut rows = RecentRows::new(16 * ROW_BYTES, ROW_BYTES);
        (0..20).for_each(|number| rows.insert(key(number), row(), 0));
        assert_eq!(here(&rows, 20), (12..20).collect::<Vec<_>>());
        assert_eq!(rows.bytes(), 8 * ROW_BYTES);
    }

    #[test]
    fn rows_make_room_for_what_is_newer_until_few_are_left() {
        let mut rows = RecentRows::new(16 * ROW_BYTES, ROW_BYTES);
        (0..8).for_each(|number| rows.insert(key(number), row(), 10 + number));
        assert!(!rows.drop_older(9), "all were read after flush 9 was cached");
        assert!(rows.drop_older(10) && rows.drop_older(11));
        assert!(!rows.drop_older(11), "the next was read after flush 11 was cached");
        while rows.drop_older(100) {}
        assert_eq!(here(&rows, 8), [4, 5, 6, 7]);
    }

    #[test]
    fn some_rows_are_kept_without_a_cache() {
        let mut rows = RecentRows::new(0, ROW_BYTES);
        (0..8).for_each(|number| rows.insert(key(number), row(), 0));
        assert_eq!(here(&rows, 8), [4, 5, 6, 7]);
        rows.remove_segment(SegmentIndex(0));
        assert_eq!((here(&rows, 8), rows.bytes()), (vec![], 0));
    }
}
