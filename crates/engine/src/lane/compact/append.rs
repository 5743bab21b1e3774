//! Writing copies. In a full lane they may take the last segment that there is, so what is begun must be ended: a segment of which only a part was moved
//! holds its slots, and what was moved holds others.
//!
//! - A segment is begun only when all that lives in it fits what is left of the open one, or a segment of its own beside those of the others that are being emptied; or
//!   does so as a rule, when there is one more for what does not.
//! - When there is none at all, and nothing else is written, one is borrowed of the reserve: a drive that died, or a crash amid copies, may have left it so.
//! - Of several only the first takes the last segments, and what the others have read waits for another time.
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
use crate::flush::Payload;
use crate::planted::{Planted, planted};
use crate::segments::{Segment, SegmentIndex};
use crate::slots::Width;

/// What is to be written once more: bytes with what each record takes beside its payload, and records.
#[derive(Clone, Copy, Default)]
pub(super) struct ToWrite {
    bytes: u64,
    records: u64,
}

impl ToWrite {
    fn of(segment: &Segment) -> ToWrite {
        let records = segment.live_records;
        ToWrite { bytes: segment.live_bytes + records * RECORD_BYTES, records }
    }

    fn and(self, other: ToWrite) -> ToWrite {
        ToWrite { bytes: self.bytes + other.bytes, records: self.records + other.records }
    }
}

/// What the next segment that is emptied may take.
#[derive(Clone, Copy)]
pub(super) struct RoomForCopies {
    /// Segments that copies may open, and whether the only one is of the reserve.
    segments: usize,
    is_borrowed: bool,
    has_open: bool,
    /// Segments that are being emptied, and what of all of them is to be written.
    begun: usize,
    to_write: ToWrite,
    width: Width,
}

impl RoomForCopies {
    pub(super) fn is_none(self) -> bool {
        self.segments == 0 && !self.has_open
    }
}

impl Lane {
    pub(super) fn room_for_copies(&self, space: &Space, width: Width) -> RoomForCopies {
        let begun = self.background.compaction.current.len();
        let is_borrowed = self.may_borrow(space);
        RoomForCopies {
            segments: space.free_for_copies() + usize::from(is_borrowed),
            is_borrowed,
            has_open: self.writer.open.is_some(),
            begun,
            to_write: self.of_first(begun),
            width,
        }
    }

    /// Whether all that lives in a segment can be written elsewhere: to a segment of its own, or to one with what lives in those that are being emptied.
    pub(super) fn fits_room(&self, segment: &Segment, room: RoomForCopies) -> bool {
        let own = ToWrite::of(segment);
        let fits_own = || room.segments > room.begun && self.fits_segment(own, room.width);
        (room.segments > room.begun + 1 || room.is_borrowed) && self.fits_as_a_rule(own, segment, room.width)
            || planted(Planted::HalfEmptied)
            || fits_own()
            || self.fit_together(own.and(room.to_write), room.segments, room.width)
    }

    /// Whether it fits a segment if it is written in no more flushes than it was, by their width, or in such as are two thirds full.
    fn fits_as_a_rule(&self, own: ToWrite, segment: &Segment, width: Width) -> bool {
        let share_bytes = own.bytes.div_ceil(u64::from(width.data));
        let as_it_was = (segment.flushes.len() * usize::from(segment.data_shards)).div_ceil(usize::from(width.data));
        let flushes = count(share_bytes * 3 / (2 * self.config.flush_bytes.max(1) as u64) + 1).min(as_it_was);
        let beside = self.bytes_beside(width.shards(), self.config.geometry.unit_bytes) - BLOCK_BYTES as u64 / 2;
        let closing = closing_bytes(width.data, flushes, count(own.records));
        share_bytes + flushes as u64 * beside + closing <= self.config.geometry.slot_bytes
    }

    /// What a flush takes of a slot beside its share of the data, at most.
    fn bytes_beside(&self, shards: usize, unit_bytes: u32) -> u64 {
        let rows = self.pool.buffer_bytes() / unit_bytes as usize;
        (header_bytes_for(shards, rows) + self.config.flush_multiple_bytes) as u64
    }

    /// Whether copies may open a segment of the reserve: nothing else is written then until what they emptied is free.
    pub(in crate::lane) fn may_borrow(&self, space: &Space) -> bool {
        let is_closed = self.writer.retired.is_empty() && self.writer.closing.is_empty();
        let is_still = is_closed && self.writer.open.is_none() && self.is_quiet();
        space.free_for_copies() == 0 && space.lends_one() && is_still
    }

    /// Whether decisions may open the segment that is kept for copies: there is nothing to copy that it would bring room for.
    pub(in crate::lane) fn may_take_last(&self, space: &Space) -> bool {
        let free = space.free_for_copies();
        free > 0 && self.background.compaction.none_worth_with == Some(free) && !self.more_copies_follow()
    }

    fn fit_together(&self, all: ToWrite, segments: usize, width: Width) -> bool {
        segments > 0 && self.fits_segment(all, width) || self.fits_open(all, 0)
    }

    /// What is to be written of the first of the segments that are being emptied.
    fn of_first(&self, count: usize) -> ToWrite {
        let first = self.background.compaction.current.iter().take(count);
        let segments = first.filter_map(|first| self.segments.find(first.segment).filter(|s| s.id == first.id));
        segments.fold(ToWrite::default(), |all, segment| all.and(ToWrite::of(segment)))
    }

    fn fits_segment(&self, all: ToWrite, width: Width) -> bool {
        let (bytes, flushes) = self.shard_bytes_of(all, width.data, width.shards(), self.config.geometry.unit_bytes);
        bytes + closing_bytes(width.data, flushes, count(all.records)) <= self.config.geometry.slot_bytes
    }

    /// Bytes of a slot that it takes at most, and flushes: each two of these hold as much as one that is full, the last may hold anything, and none holds nothing.
    fn shard_bytes_of(&self, all: ToWrite, data_shards: u8, shards: usize, unit_bytes: u32) -> (u64, usize) {
        let share_bytes = all.bytes.div_ceil(u64::from(data_shards));
        let flushes = (2 * share_bytes / self.config.flush_bytes.max(1) as u64 + 1).min(all.records);
        (share_bytes + flushes * self.bytes_beside(shards, unit_bytes), count(flushes))
    }

    /// Whether it fits the open segment behind what is filling and one more record of so many bytes.
    fn fits_open(&self, all: ToWrite, payload_bytes: usize) -> bool {
        let Some(open) = &self.writer.open else { return false };
        let filling = self.writer.filling.as_ref().map(|filling| &filling.flush);
        let Segment { data_shards, unit_bytes, ref shards, .. } = *self.segments.get(open.index);
        let (bytes, flushes) = self.shard_bytes_of(all, data_shards, shards.len(), unit_bytes);
        let flushes = open.flushes as usize + 1 + flushes;
        let in_flush = filling.map_or(0, |flush| flush.record_count() as usize);
        let records = open.records + in_flush + 1 + count(all.records);
        let end = open.offset_bytes + filling.map_or(0, |flush| flush.shard_bytes_with(payload_bytes));
        end + bytes + closing_bytes(data_shards, flushes, records) <= self.config.geometry.slot_bytes
    }

    /// Whether a record of so many bytes leaves the first of the segments that are emptied the room in the open one that it needs, when there is none elsewhere.
    pub(in crate::lane) fn leaves_room_for_copies(&self, payload_bytes: usize) -> bool {
        let is_free = self.background.compaction.current.is_empty() || !self.takes_last() || self.free_for_copies() > 0;
        is_free || planted(Planted::HalfEmptied) || self.fits_open(self.of_first(1), payload_bytes)
    }

    /// Whether the open segment may be the last that copies can take: one that fragments might have opened is not.
    fn takes_last(&self) -> bool {
        self.writer.open.as_ref().is_some_and(|open| open.is_kept)
    }

    pub(super) fn free_for_copies(&self) -> usize {
        self.width().map_or(0, |width| self.space(width).free_for_copies())
    }

    /// Whether events may be written as one record, whose fragments lie in other segments, too.
    pub(super) fn has_room_to_join(&self) -> bool {
        self.free_for_copies() > 2
    }

    /// So many segments are left to those of the emptied ones that come before it, when there is not room for all.
    fn turn_of(&self, segment: SegmentIndex, live: &Live) -> usize {
        let current = &self.background.compaction.current;
        let before = current.iter().position(|current| current.segment == segment).unwrap_or(current.len());
        let fit = || {
            let width = self.width();
            width.is_some_and(|width| self.fit_together(self.of_first(before + 1), self.free_for_copies(), width))
        };
        let is_first = before == 0 || planted(Planted::HalfEmptied) || self.takes_last() && fit();
        // The first may need one more than it seems.
        let before = if is_first { 0 } else { before + 1 };
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
            let bytes = Payload::of(&payload).bytes() as u64;
            let appended = self.append(Purpose::Copy { turn }, record, Payload::of(&payload), Waiter::Copy(copy));
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
                Err(Refusal::NoSpace) if turn == 0 && self.emptied_will_be_free() && !planted(Planted::HalfEmptied) => {
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

/// What drives say is not trusted.
fn count(number: u64) -> usize {
    number.min(u64::from(u32::MAX)) as usize
}
