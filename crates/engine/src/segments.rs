//! The segments of a lane: where their shards lie, what is alive in them, who reads them.

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use forebay_format::SegmentState;
use forebay_format::{RowGeometry, SegmentEntry, SegmentId, ShardPlace};
use forebay_types::limits::SHARDS_MAX;
use forebay_types::memory::allocated_bytes;
use forebay_types::{DriveNumber, Time, WallTime};

use crate::planted::{Planted, planted};

/// Positions in a segment's data are counted in units of so many bytes.
pub(crate) const POSITION_BYTES: u64 = 8;

/// The part of a segment's number that counts; the lane stands above it, so that no two lanes ever name a segment alike.
pub(crate) const SEGMENT_COUNTER_MASK: u64 = (1 << 48) - 1;

/// What is known of a segment takes so much memory at most.
const SEGMENT_BYTES: usize = 3 * size_of::<Segment>() + 16 * SHARDS_MAX;

/// A segment in the lane's table. Given again only after nothing points to the segment any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SegmentIndex(pub(crate) u32);

/// A flush that lies in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlushSpan {
    /// Its number in the segment.
    pub(crate) flush: u32,
    /// Of its header, from the slot's start.
    pub(crate) offset_bytes: u64,
    pub(crate) header_bytes: u32,
    pub(crate) record_count: u32,
    /// Where its data begin in the segment's positions.
    pub(crate) position: u32,
    /// Its data, the table included.
    pub(crate) data_bytes: u64,
    pub(crate) first_sequence: u64,
}

impl FlushSpan {
    /// Positions that the flush takes; one at least, so that what is durable can be told by position.
    pub(crate) fn positions(&self) -> u32 {
        u32::try_from(self.data_bytes.div_ceil(POSITION_BYTES)).expect("a segment's data fit its positions").max(1)
    }
}

/// One segment.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) id: SegmentId,
    pub(crate) state: SegmentState,
    pub(crate) data_shards: u8,
    pub(crate) parity_shards: u8,
    pub(crate) unit_bytes: u32,
    pub(crate) shards: Vec<ShardPlace>,
    pub(crate) flushes: Vec<FlushSpan>,
    /// Positions below this are durable.
    pub(crate) durable_position: u32,
    /// Flushes known durable.
    pub(crate) durable_flushes: u32,
    /// Records that must survive: fragments, acceptances and releases of events that are not finished.
    pub(crate) live_records: u64,
    pub(crate) live_bytes: u64,
    /// Reads under way.
    pub(crate) pins: u32,
    /// Whether it is being written, or flushes of it are on their way.
    pub(crate) writing: bool,
    /// When its last flush was written, as far as that is known.
    pub(crate) written: WallTime,
    /// Flushes below this number were acknowledged, and not all of them can be read: the segment stays, whatever lives in it, so that no start
    /// forgets that. 0: none is missing.
    pub(crate) misses_below: u32,
    /// When every byte of it is to be looked at next.
    pub(crate) scrub_at: Time,
    /// The round in which every byte of it was looked at, or in which it was written.
    pub(crate) scrub_round: u32,
    /// All that was written to it are copies, put together as closely as that goes; not known of what an earlier start wrote.
    pub(crate) is_packed: bool,
}

impl Segment {
    pub(crate) fn first_sequence(&self) -> u64 {
        self.flushes.first().map_or(0, |f| f.first_sequence)
    }

    /// Records of all its flushes, which were numbered one after the other: with those of flushes between that are gone.
    pub(crate) fn records(&self) -> usize {
        let end =
            self.flushes.last().map_or(0, |last| last.first_sequence.saturating_add(u64::from(last.record_count)));
        // Drives say these numbers.
        end.saturating_sub(self.first_sequence()).min(u64::from(u32::MAX)) as usize
    }

    /// The flush that holds a position.
    pub(crate) fn flush_at(&self, position: u32) -> Option<(usize, &FlushSpan)> {
        let after = self.flushes.partition_point(|f| f.position <= position);
        let at = after.checked_sub(1)?;
        let flush = &self.flushes[at];
        (position < flush.position + flush.positions()).then_some((at, flush))
    }

    /// What one of its flushes takes on each drive, its header included.
    pub(crate) fn flush_shard_bytes(&self, span: &FlushSpan) -> u64 {
        let (data_shards, unit_bytes) = (self.data_shards, self.unit_bytes);
        let geometry = RowGeometry { data_shards, unit_bytes, data_bytes: span.data_bytes };
        u64::from(span.header_bytes) + geometry.shard_bytes()
    }

    /// What all of them take on each drive.
    pub(crate) fn shard_bytes(&self) -> u64 {
        self.flushes.iter().map(|span| self.flush_shard_bytes(span)).sum()
    }

    /// Where the next flush's data begin.
    pub(crate) fn next_position(&self) -> u32 {
        self.flushes.last().map_or(0, |f| f.position + f.positions())
    }

    /// Flushes that following it finds when it is closed: one more than the number of its last, those included that are missing.
    pub(crate) fn flushes_to_walk(&self) -> u32 {
        self.flushes.last().map_or(0, |last| last.flush + 1).max(self.misses_below)
    }

    /// Whether its closing flush is known to stand. Of one that misses something nobody could read it when the store started.
    pub(crate) fn has_closing_flush(&self) -> bool {
        self.state == SegmentState::Closed && !self.flushes.is_empty() && self.misses_below == 0
    }

    /// Data shards, and the drives that hold shards, ascending.
    fn needs(&self) -> (u8, Vec<DriveNumber>) {
        let mut drives: Vec<DriveNumber> = self.shards.iter().map(|place| place.drive).collect();
        drives.sort_unstable();
        (self.data_shards, drives)
    }

    fn flushes_bytes(&self) -> usize {
        allocated_bytes(self.flushes.capacity() * size_of::<FlushSpan>())
    }

    /// Whether nothing needs the segment any more.
    fn is_droppable(&self) -> bool {
        let idle = !self.writing && self.state != SegmentState::Open;
        idle && self.live_records == 0 && self.pins == 0 && self.misses_below == 0
    }

    pub(crate) fn entry(&self) -> SegmentEntry {
        SegmentEntry {
            id: self.id,
            state: self.state,
            data_shards: self.data_shards,
            parity_shards: self.parity_shards,
            unit_bytes: self.unit_bytes,
            flushes: match self.state {
                SegmentState::Open => self.durable_flushes,
                SegmentState::Closed | SegmentState::Walk => self.flushes_to_walk(),
            },
            first_sequence: self.first_sequence(),
            shards: self.shards.clone(),
        }
    }
}

/// The table of segments.
#[derive(Default)]
pub(crate) struct Segments {
    table: BTreeMap<SegmentIndex, Segment>,
    free: Vec<SegmentIndex>,
    next: u32,
    /// Segments without a live record: those that may be dropped are among them.
    dead: BTreeSet<SegmentIndex>,
    /// How many of the others need so many of these drives.
    alive: BTreeMap<(u8, Vec<DriveNumber>), u64>,
    /// Memory of the lists of flushes.
    flushes_bytes: usize,
    /// Of all segments.
    live_bytes: u64,
}

impl Segments {
    pub(crate) fn add(&mut self, segment: Segment) -> SegmentIndex {
        assert_eq!(segment.live_records, 0, "a new segment holds nothing alive");
        let index = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            SegmentIndex(self.next - 1)
        });
        self.flushes_bytes += segment.flushes_bytes();
        self.dead.insert(index);
        let before = self.table.insert(index, segment);
        assert!(before.is_none(), "a place in the table is given once");
        index
    }

    /// # Panics
    /// When there is no such segment: whoever holds an index holds something alive in its segment.
    pub(crate) fn get(&self, index: SegmentIndex) -> &Segment {
        self.table.get(&index).expect("an index is held only while its segment lives")
    }

    /// The segment, if there is one at this place.
    pub(crate) fn find(&self, index: SegmentIndex) -> Option<&Segment> {
        self.table.get(&index)
    }

    /// As [`Segments::get`].
    pub(crate) fn get_mut(&mut self, index: SegmentIndex) -> &mut Segment {
        self.table.get_mut(&index).expect("an index is held only while its segment lives")
    }

    pub(crate) fn remove(&mut self, index: SegmentIndex) -> Segment {
        let segment = self.table.remove(&index).expect("an index is held only while its segment lives");
        assert!(segment.live_records == 0 && segment.pins == 0, "a segment in use is not dropped");
        self.flushes_bytes -= segment.flushes_bytes();
        self.dead.remove(&index);
        self.free.push(index);
        segment
    }

    /// A flush lies in a segment.
    pub(crate) fn add_flush(&mut self, index: SegmentIndex, span: FlushSpan) {
        let segment = self.table.get_mut(&index).expect("an index is held only while its segment lives");
        let before = segment.flushes_bytes();
        segment.flushes.push(span);
        self.flushes_bytes = self.flushes_bytes + segment.flushes_bytes() - before;
    }

    /// No more flushes come to a segment.
    pub(crate) fn has_all_flushes(&mut self, index: SegmentIndex) {
        let segment = self.table.get_mut(&index).expect("an index is held only while its segment lives");
        let before = segment.flushes_bytes();
        segment.flushes.shrink_to_fit();
        self.flushes_bytes = self.flushes_bytes + segment.flushes_bytes() - before;
    }

    /// Memory in use: what is known of each flush and each segment.
    pub(crate) fn bytes(&self) -> usize {
        self.flushes_bytes + self.table.len() * SEGMENT_BYTES
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SegmentIndex, &Segment)> + '_ {
        self.table.iter().map(|(index, segment)| (*index, segment))
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Bytes of all records that must survive.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Segments that the next checkpoint may leave out.
    pub(crate) fn droppable(&self) -> Vec<SegmentIndex> {
        self.dead.iter().copied().filter(|index| self.table[index].is_droppable()).collect()
    }

    /// Whether there are so many of them.
    pub(crate) fn are_droppable(&self, count: usize) -> bool {
        self.dead.len() >= count
            && self.dead.iter().filter(|at| self.table[at].is_droppable()).take(count).count() == count
    }

    /// A record of an event came to life in `index`.
    pub(crate) fn revive(&mut self, index: SegmentIndex, bytes: u32) {
        let segment = self.table.get_mut(&index).expect("an index is held only while its segment lives");
        segment.live_records += 1;
        segment.live_bytes += u64::from(bytes);
        self.live_bytes += u64::from(bytes);
        if segment.live_records == 1 {
            *self.alive.entry(segment.needs()).or_default() += 1;
            self.dead.remove(&index);
        }
    }

    /// A record in `index` is needed no more.
    pub(crate) fn bury(&mut self, index: SegmentIndex, bytes: u32) {
        let segment = self.table.get_mut(&index).expect("an index is held only while its segment lives");
        segment.live_records = segment.live_records.checked_sub(1).expect("a record dies once");
        segment.live_bytes -= u64::from(bytes);
        self.live_bytes -= u64::from(bytes);
        if segment.live_records == 0 {
            let needs = segment.needs();
            uncount(&mut self.alive, &needs);
            self.dead.insert(index);
        }
    }

    /// The segment's shards lie elsewhere from now on.
    pub(crate) fn move_shards(&mut self, index: SegmentIndex, shards: Vec<ShardPlace>) {
        let segment = self.table.get_mut(&index).expect("an index is held only while its segment lives");
        assert_eq!(segment.shards.len(), shards.len(), "a segment keeps its width");
        let before = segment.needs();
        segment.shards = shards;
        if segment.live_records > 0 {
            let after = segment.needs();
            uncount(&mut self.alive, &before);
            *self.alive.entry(after).or_default() += 1;
        }
    }

    /// How many segments have a shard on each drive: those in which something lives, and those that were emptied, which the newest checkpoint
    /// may still name. A start that finds none of their shards cannot know that nothing lived there.
    pub(crate) fn by_drive(&self) -> BTreeMap<DriveNumber, u64> {
        let mut segments = BTreeMap::new();
        for ((_, drives), count) in &self.alive {
            drives.iter().for_each(|drive| *segments.entry(*drive).or_default() += count);
        }
        let emptied = if planted(Planted::EmptiedForgotten) { None } else { Some(&self.dead) };
        for index in emptied.into_iter().flatten() {
            self.table[index].shards.iter().for_each(|place| *segments.entry(place.drive).or_default() += 1);
        }
        segments
    }

    /// Segments in which something lives and of which too few drives answer. They are looked for only when there are some.
    pub(crate) fn out_of_reach(&self, answers: impl Fn(DriveNumber) -> bool) -> impl Iterator<Item = &Segment> + '_ {
        let lack = |(data_shards, drives): &(u8, Vec<DriveNumber>)| {
            drives.iter().filter(|drive| answers(**drive)).count() < usize::from(*data_shards)
        };
        let lacking: BTreeSet<(u8, Vec<DriveNumber>)> =
            self.alive.keys().filter(|needs| lack(needs)).cloned().collect();
        let table = if lacking.is_empty() { None } else { Some(self.table.values()) };
        let is_among = move |segment: &&Segment| segment.live_records > 0 && lacking.contains(&segment.needs());
        table.into_iter().flatten().filter(is_among)
    }

    /// How many more drives may fail before an acknowledged record is out of reach, given the drives that answer.
    pub(crate) fn failures_left(&self, answers: impl Fn(DriveNumber) -> bool) -> Option<u8> {
        let left = |(data_shards, drives): &(u8, Vec<DriveNumber>)| {
            let up = drives.iter().filter(|drive| answers(**drive)).count();
            u8::try_from(up.saturating_sub(usize::from(*data_shards))).unwrap_or(u8::MAX)
        };
        self.alive.keys().map(left).min()
    }
}

fn uncount(alive: &mut BTreeMap<(u8, Vec<DriveNumber>), u64>, needs: &(u8, Vec<DriveNumber>)) {
    let segments = alive.get_mut(needs).expect("counted when it came to life");
    *segments -= 1;
    if *segments == 0 {
        alive.remove(needs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(drives: impl IntoIterator<Item = u16>) -> Segment {
        let place = |drive| ShardPlace { drive: DriveNumber(drive), slot: 0 };
        Segment {
            id: SegmentId { epoch: 1, nonce: 2, counter: 3 },
            state: SegmentState::Closed,
            data_shards: 2,
            parity_shards: 1,
            unit_bytes: 4096,
            shards: drives.into_iter().map(place).collect(),
            flushes: Vec::new(),
            durable_position: 0,
            durable_flushes: 0,
            live_records: 0,
            live_bytes: 0,
            pins: 0,
            writing: false,
            written: WallTime::default(),
            misses_below: 0,
            scrub_at: Time::default(),
            scrub_round: 0,
            is_packed: false,
        }
    }

    #[test]
    fn what_lives_and_what_may_go_is_known_without_a_walk() {
        let mut segments = Segments::default();
        assert_eq!(segments.failures_left(|_| true), None);
        let [a, b, c] = [[0, 1, 2], [2, 1, 0], [1, 2, 3]].map(|drives| segments.add(segment(drives)));
        assert_eq!(segments.droppable(), [a, b, c]);
        segments.revive(a, 5);
        segments.revive(a, 5);
        segments.revive(b, 5);
        assert_eq!(
            (segments.droppable(), segments.are_droppable(1), segments.are_droppable(2)),
            (vec![c], true, false)
        );
        assert_eq!(segments.failures_left(|_| true), Some(1));
        assert_eq!(segments.failures_left(|drive| drive.0 != 3), Some(1), "nothing lives there");
        let out_of_reach = |segments: &Segments, gone: &[u16]| {
            let answers = |drive: DriveNumber| !gone.contains(&drive.0);
            segments.out_of_reach(answers).map(|segment| segment.live_bytes).collect::<Vec<_>>()
        };
        assert_eq!(out_of_reach(&segments, &[0]), [0; 0], "one may be missing");
        assert_eq!(out_of_reach(&segments, &[0, 1]), [10, 5]);
        assert_eq!(out_of_reach(&segments, &[2, 3]), [0; 0], "nothing lives in the third");
        segments.revive(c, 1);
        assert_eq!(segments.failures_left(|drive| drive.0 != 3), Some(0));
        segments.bury(c, 1);
        segments.bury(a, 5);
        segments.bury(b, 5);
        assert_eq!(segments.failures_left(|drive| drive.0 != 0), Some(0));
        segments.bury(a, 5);
        assert_eq!(segments.failures_left(|_| true), None);
        segments.revive(a, 5);
        segments.move_shards(a, segment([0, 1, 4]).shards);
        assert_eq!(segments.failures_left(|drive| drive.0 != 2), Some(1), "it lies elsewhere now");
        segments.bury(a, 5);
        segments.get_mut(b).pins = 1;
        assert_eq!(segments.droppable(), [a, c]);
        let span = FlushSpan {
            flush: 0,
            offset_bytes: 0,
            header_bytes: 4096,
            record_count: 1,
            position: 0,
            data_bytes: 8,
            first_sequence: 0,
        };
        let before = segments.bytes();
        segments.add_flush(c, span);
        assert!(segments.bytes() >= before + size_of::<FlushSpan>());
        segments.remove(c);
        assert!(segments.bytes() < before);
    }
}
