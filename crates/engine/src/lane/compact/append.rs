//! Writing copies. In a full lane they may take the last segment that there is, so what is begun must be ended: a segment of which only a part was moved
//! holds its slots, and what was moved holds others.
//!
//! - A segment is begun only when all that lives in it fits what is left of the open one, or a segment of its own beside those of the others that are being emptied.
//! - Of several only the first takes the last segment, and what the others have read waits for another time.
//! - Once it has, nothing else takes the room there that it still needs.
//! - What brings more than lives in a segment does (the other fragments of accepted events) leaves the last one alone.

use forebay_format::header_bytes_for;
use forebay_types::limits::BLOCK_BYTES;

use super::super::Lane;
use super::super::close::closing_bytes;
use super::super::space::Space;
use super::super::write::{Purpose, Refusal, Waiter};
use super::live::{Live, LiveRecord};
use super::worth::RECORD_BYTES;
use crate::flush::bytes_of;
use crate::planted::{Planted, planted};
use crate::segments::{Segment, SegmentIndex};

/// What is needed at most for the copies of segments: bytes of a slot, and flushes and records.
#[derive(Clone, Copy, Default)]
pub(super) struct Needed {
    shard_bytes: u64,
    flushes: usize,
    records: usize,
}

impl Needed {
    fn and(self, other: Needed) -> Needed {
        Needed {
            shard_bytes: self.shard_bytes + other.shard_bytes,
            flushes: self.flushes + other.flushes,
            records: self.records.saturating_add(other.records),
        }
    }
}

/// What the next segment that is emptied may take.
#[derive(Clone, Copy)]
pub(super) struct RoomForCopies {
    /// Segments that copies may open.
    segments: usize,
    has_open: bool,
    /// Segments that are being emptied, and what they need together.
    begun: usize,
    needed: Needed,
}

impl RoomForCopies {
    pub(super) fn is_none(self) -> bool {
        self.segments == 0 && !self.has_open
    }
}

impl Lane {
    pub(super) fn room_for_copies(&self, space: &Space) -> RoomForCopies {
        let begun = self.background.compaction.current.len();
        RoomForCopies {
            segments: space.free_for_copies(),
            has_open: self.writer.open.is_some(),
            begun,
            needed: self.needed_by_first(begun),
        }
    }

    /// Whether all that lives in a segment can be written elsewhere: to a segment of its own, or to one with what lives in those that are being emptied.
    pub(super) fn fits_room(&self, segment: &Segment, room: RoomForCopies) -> bool {
        let own = self.needed_for_copies(segment);
        room.segments > room.begun && self.fits_segment(own, segment.data_shards)
            || self.fit_together(own.and(room.needed), room.segments, segment.data_shards)
    }

    fn fit_together(&self, needed: Needed, segments: usize, data_shards: u8) -> bool {
        segments > 0 && self.fits_segment(needed, data_shards) || self.fits_open(needed, 0)
    }

    /// What the first of the segments need that are being emptied.
    fn needed_by_first(&self, count: usize) -> Needed {
        let first = self.background.compaction.current.iter().take(count);
        let segments = first.filter_map(|first| self.segments.find(first.segment).filter(|s| s.id == first.id));
        segments.fold(Needed::default(), |needed, segment| needed.and(self.needed_for_copies(segment)))
    }

    fn fits_segment(&self, needed: Needed, data_shards: u8) -> bool {
        let closing = closing_bytes(data_shards, needed.flushes, needed.records);
        needed.shard_bytes + closing <= self.config.geometry.slot_bytes
    }

    /// Each two flushes hold as much as one that is full, and the last may hold anything.
    fn needed_for_copies(&self, segment: &Segment) -> Needed {
        let (data_shards, shards) = (u64::from(segment.data_shards), segment.shards.len());
        let share_bytes = (segment.live_bytes + segment.live_records * RECORD_BYTES).div_ceil(data_shards);
        let flushes = 2 * share_bytes / self.config.flush_bytes.max(1) as u64 + 1;
        let rows = self.pool.buffer_bytes() / segment.unit_bytes as usize;
        let beside = (header_bytes_for(shards, rows) + BLOCK_BYTES) as u64;
        Needed {
            shard_bytes: share_bytes + flushes * beside,
            flushes: flushes as usize,
            records: segment.live_records.min(u64::from(u32::MAX)) as usize,
        }
    }

    /// Whether they fit the open segment behind what is filling and one more record of so many bytes.
    fn fits_open(&self, needed: Needed, payload_bytes: usize) -> bool {
        let Some(open) = &self.writer.open else { return false };
        let filling = self.writer.filling.as_ref().map(|filling| &filling.flush);
        let data_shards = self.segments.get(open.index).data_shards;
        let flushes = open.flushes as usize + 1 + needed.flushes;
        let records = open.records + filling.map_or(0, |flush| flush.record_count() as usize) + 1 + needed.records;
        let end = open.offset_bytes + filling.map_or(0, |flush| flush.shard_bytes_with(payload_bytes));
        end + needed.shard_bytes + closing_bytes(data_shards, flushes, records) <= self.config.geometry.slot_bytes
    }

    /// Whether a record of so many bytes leaves the first of the segments that are emptied the room in the open one that it needs, when there is none elsewhere.
    pub(in crate::lane) fn leaves_room_for_copies(&self, payload_bytes: usize) -> bool {
        let is_free = self.background.compaction.current.is_empty() || !self.takes_last() || self.free_for_copies() > 0;
        is_free || self.fits_open(self.needed_by_first(1), payload_bytes)
    }

    /// Whether the open segment may be the last that copies can take: one that fragments might have opened is not.
    fn takes_last(&self) -> bool {
        self.writer.open.as_ref().is_some_and(|open| open.is_kept)
    }

    fn free_for_copies(&self) -> usize {
        self.width().map_or(0, |width| self.space(width).free_for_copies())
    }

    /// Whether events may be written as one record, whose fragments lie in other segments, too.
    pub(super) fn has_room_to_join(&self) -> bool {
        self.free_for_copies() > 1
    }

    /// So many segments come before it, of those that are emptied, when there is not room for all.
    fn turn_of(&self, segment: SegmentIndex, live: &Live) -> usize {
        let current = &self.background.compaction.current;
        let before = current.iter().position(|current| current.segment == segment).unwrap_or(current.len());
        let data_shards = self.config.geometry.data_shards;
        let fit = || self.fit_together(self.needed_by_first(before + 1), self.free_for_copies(), data_shards);
        let before = if before > 0 && self.takes_last() && fit() { 0 } else { before };
        before + usize::from(matches!(live, Live::Event(..)))
    }

    fn is_its_turn(&self, turn: usize) -> bool {
        turn == 0 || !self.takes_last() || self.free_for_copies() >= turn
    }

    /// Appends what was read, as far as there is room.
    pub(in crate::lane) fn write_copies(&mut self) {
        while let Some((old, id, live)) = self.background.compaction.ready.pop_front() {
            if self.segments.find(old).is_none_or(|segment| segment.id != id) {
                continue;
            }
            let Some((record, copy)) = self.copy_of(old, &live) else { continue };
            let turn = self.turn_of(old, &live);
            if !self.is_its_turn(turn) {
                self.leave_for_now(old, turn);
                continue;
            }
            let payload = live.payload();
            let bytes = bytes_of(&payload) as u64;
            let appended = self.append(Purpose::Copy { turn }, record, &payload, Waiter::Copy(copy));
            drop(payload);
            match appended {
                Ok((segment, position)) => {
                    self.background.compaction.copies += 1;
                    self.has_copies(old);
                    self.background.compaction.status.bytes_moved += bytes;
                    if let (true, Live::Record(LiveRecord { entry, .. })) = (planted(Planted::CopyBeforeDurable), &live)
                    {
                        self.copy_counts(copy, segment, position, entry);
                    }
                }
                Err(Refusal::ChecksumMismatch) => self.is_damaged(old, live),
                Err(Refusal::NoSpace) if turn == 0 && self.emptied_will_be_free() => {
                    self.background.compaction.ready.push_front((old, id, live));
                    return;
                }
                Err(Refusal::Busy) => {
                    self.background.compaction.ready.push_front((old, id, live));
                    return;
                }
                Err(Refusal::NoSpace | Refusal::Unavailable) => self.leave_for_now(old, turn),
            }
        }
    }

    /// Whether segments that were emptied come free without anything that is to be copied.
    fn emptied_will_be_free(&self) -> bool {
        let is_durable_soon = !self.background.compaction.emptied.is_empty();
        is_durable_soon || self.segments.are_droppable(1) || self.checkpointer.is_writing()
    }

    /// What was read of a segment is not written now, nor of any behind the first. It is not lost by that: it lies where it lay.
    fn leave_for_now(&mut self, segment: SegmentIndex, turn: usize) {
        if turn > 0 {
            self.background.compaction.ready.retain(|(of, _, _)| *of != segment);
            return self.stop_compacting(segment);
        }
        let compaction = &mut self.background.compaction;
        compaction.ready.clear();
        compaction.current.clear();
        compaction.joining.forget();
    }
}
