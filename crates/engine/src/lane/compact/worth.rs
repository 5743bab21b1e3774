//! Whether room is to be made, and which segment costs least for what it brings.

use std::collections::{BinaryHeap, VecDeque};

use forebay_format::{SegmentId, SegmentState, TABLE_ENTRY_BYTES};
use forebay_types::Time;
use forebay_types::limits::BLOCK_BYTES;

use super::super::Lane;
use super::super::close::closing_bytes;
use super::LOOK;
use super::append::RoomForCopies;
use crate::segments::{POSITION_BYTES, Segment, SegmentIndex};

/// With more of the lane free than this nothing is moved, in percent.
const FREE_PERCENT_ENOUGH: u64 = 50;

/// So much of a segment may live at most, in percent of its slots, when nothing is free.
const ALIVE_PERCENT_MAX: u64 = 90;

/// With fewer of its fragments in accepted events, in percent, it does not help an index that fills to write those as one record each.
const INDEX_PERCENT_JOINABLE: u64 = 10;

/// So much of what was written to a segment is dead at least when it is emptied, in percent,
const DEAD_PERCENT_MIN: u64 = 10;

/// or so much of its slots was never written to; of what copies alone were written to, where the next one may not have fitted,
const UNUSED_PERCENT_MIN: u64 = 20;
const UNUSED_PERCENT_MIN_PACKED: u64 = 50;

/// or what lives there would take so much less of the slots in full flushes: what came slowly lies in a flush of its own each, with a header and the rest of its blocks.
const SPARSE_PERCENT_MIN: u64 = 30;

/// What a record takes in the data beside its payload, at most.
pub(super) const RECORD_BYTES: u64 = TABLE_ENTRY_BYTES as u64 + POSITION_BYTES;

/// With less of the lane free, in percent, room is scarce: writers wait for it, or soon will, so that making it takes a larger share than what else
/// is done beside requests, and all of the time when nothing is free.
pub(super) const FREE_PERCENT_SCARCE: u64 = 20;

/// Which segments are worth being emptied, by the room that there is.
#[derive(Clone, Copy)]
struct Limit {
    /// So much of a segment's slots may live, in percent.
    alive_percent_max: u64,
    /// The index fills: what becomes one record takes less of it, wherever it lies.
    is_for_index: bool,
    room: RoomForCopies,
}

/// So many segments are chosen when all are compared: of a lane with very many that takes long.
const CHOSEN_AT_ONCE: usize = 16;

/// Segments that cost least for what they brought when all were compared, the first of them first.
#[derive(Default)]
pub(super) struct Chosen {
    segments: VecDeque<(SegmentIndex, SegmentId)>,
    at: Time,
}

impl Chosen {
    /// The next of them, unless others may cost less by now.
    fn next(&mut self, now: Time) -> Option<(SegmentIndex, SegmentId)> {
        self.segments.pop_front().filter(|_| now.since(self.at) < LOOK)
    }
}

impl Lane {
    /// What segments are emptied now; none while there is room enough, on the drives and in the index.
    fn limit(&self) -> Option<Limit> {
        let width = self.width()?;
        let space = self.space(width);
        let room = self.room_for_copies(&space, width);
        if room.is_none() {
            // There is nowhere to write them: reading them would be in vain.
            return None;
        }
        let index_free = self.index_percent_free();
        let missing = FREE_PERCENT_ENOUGH.checked_sub(space.percent_free().min(index_free))?;
        Some(Limit {
            alive_percent_max: missing * ALIVE_PERCENT_MAX / FREE_PERCENT_ENOUGH,
            is_for_index: index_free < FREE_PERCENT_ENOUGH,
            room,
        })
    }

    /// The share of the time for emptying segments, beside requests, in percent. While room is scarce it is more: else writers would wait for
    /// what rests.
    pub(in crate::lane) fn compaction_percent(&self) -> u8 {
        let percent = self.config.background_percent.min(100);
        let free = self.width().map(|width| self.space(width).percent_free());
        let scarce = free.map_or(0, |free| FREE_PERCENT_SCARCE.saturating_sub(free));
        percent + (u64::from(100 - percent) * scarce / FREE_PERCENT_SCARCE) as u8
    }

    /// How much of the index is free, as far as writing accepted events as one record may change it.
    fn index_percent_free(&self) -> u64 {
        let used = self.index_bytes() as u64 * 100 / (self.config.index_bytes as u64).max(1);
        let may_shrink = self.index.joinable_fragments() * 100 >= self.index.fragments() * INDEX_PERCENT_JOINABLE;
        if may_shrink && self.index.joinable_fragments() > 0 { 100u64.saturating_sub(used) } else { 100 }
    }

    /// The segment that costs least for what it brings.
    pub(super) fn segment_worth(&mut self) -> Option<SegmentIndex> {
        let limit = self.limit()?;
        while let Some((index, id)) = self.background.compaction.chosen.next(self.now) {
            let segment = self.segments.find(index).filter(|segment| segment.id == id);
            if segment.is_some_and(|segment| self.is_worth(segment, limit)) {
                return Some(index);
            }
        }
        self.choose(limit);
        self.background.compaction.chosen.next(self.now).map(|(index, _)| index)
    }

    /// Compares all segments.
    fn choose(&mut self, limit: Limit) {
        let cost = |segment: &Segment| (segment.live_bytes * 10_000 / self.slots_bytes(segment), segment.id.counter);
        let mut cheapest = BinaryHeap::with_capacity(CHOSEN_AT_ONCE + 1);
        for (index, segment) in self.segments.iter() {
            let is_cheaper = |dearest: &(_, _, _)| cost(segment) < dearest.0;
            let may_count = cheapest.len() < CHOSEN_AT_ONCE || cheapest.peek().is_some_and(is_cheaper);
            if may_count && self.is_worth(segment, limit) {
                cheapest.push((cost(segment), index, segment.id));
                if cheapest.len() > CHOSEN_AT_ONCE {
                    cheapest.pop();
                }
            }
        }
        let segments = cheapest.into_sorted_vec().into_iter().map(|(_, index, id)| (index, id)).collect();
        self.background.compaction.chosen = Chosen { segments, at: self.now };
    }

    fn slots_bytes(&self, segment: &Segment) -> u64 {
        (u64::from(segment.data_shards) * self.config.geometry.slot_bytes).max(1)
    }

    /// Whether a segment is to be emptied of which so much may live.
    fn is_worth(&self, segment: &Segment, limit: Limit) -> bool {
        let compaction = &self.background.compaction;
        let rests = segment.state != SegmentState::Open && !segment.writing && !segment.flushes.is_empty();
        // One that misses something stays.
        rests
            && segment.misses_below == 0
            && segment.live_records > 0
            && segment.live_bytes * 100 <= limit.alive_percent_max * self.slots_bytes(segment)
            && !compaction.stuck.contains(&segment.id)
            && !compaction.current.iter().any(|current| current.id == segment.id)
            && !compaction.emptied.iter().any(|emptied| emptied.id == segment.id)
            && (limit.is_for_index || self.brings_room(segment))
            && self.fits_room(segment, limit.room)
    }

    /// Whether what lives in a segment would take less room elsewhere: much of what was written to it is dead, its slots were never filled, or its flushes were not.
    /// Else what is not payload in it is what flushes take beside their data, and tables, and a copy would look the same.
    fn brings_room(&self, segment: &Segment) -> bool {
        let slot_bytes = self.config.geometry.slot_bytes;
        let end = segment.flushes.last().map_or(0, |last| last.offset_bytes + segment.flush_shard_bytes(last));
        let taken = end + closing_bytes(segment.data_shards, segment.flushes.len(), segment.records());
        let unused = slot_bytes.saturating_sub(taken);
        let written = u64::from(segment.next_position()) * POSITION_BYTES;
        let dead = written.saturating_sub(segment.live_bytes + segment.live_records * RECORD_BYTES);
        let unused_percent_min = if segment.is_packed { UNUSED_PERCENT_MIN_PACKED } else { UNUSED_PERCENT_MIN };
        let is_sparse =
            || !segment.is_packed && self.packed_shard_bytes(segment) * 100 <= taken * (100 - SPARSE_PERCENT_MIN);
        dead * 100 >= written * DEAD_PERCENT_MIN || unused * 100 >= slot_bytes * unused_percent_min || is_sparse()
    }

    /// What lives in a segment takes so much of a slot in flushes that are full: its share of the data, a header each, and its table at the end.
    fn packed_shard_bytes(&self, segment: &Segment) -> u64 {
        let data_shards = u64::from(segment.data_shards);
        let share_bytes = (segment.live_bytes + segment.live_records * RECORD_BYTES).div_ceil(data_shards);
        let flushes = share_bytes.div_ceil(self.config.flush_bytes as u64);
        let records = segment.live_records.min(u64::from(u32::MAX)) as usize;
        share_bytes + flushes * BLOCK_BYTES as u64 + closing_bytes(segment.data_shards, flushes as usize, records)
    }
}
