//! Filling flushes, sealing them, and giving them to the drives.

use std::collections::VecDeque;
use std::sync::Arc;

use forebay_format::{FileRecord, PlannedSegment, RecordKind, SegmentState, TableEntry};
use forebay_types::Time;
use forebay_types::limits::BLOCK_BYTES;

use super::space::Space;
use super::{Lane, State};
use crate::api::Token;
use crate::flush::{FlushPlace, NewRecord, OpenFlush, Payload, SealedFlush, flush_buffer_bytes};
use crate::io::Owner;
use crate::lane::checkpoint::next_segment_id;
use crate::lane::close::{Closing, closing_bytes};
use crate::lane::compact::CopyOf;
use crate::segments::{FlushSpan, Segment, SegmentIndex};
use crate::slots::Width;

/// What a record is for; see [`super::space`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Fragment,
    Decision,
    /// It is written once more, after a crash or the loss of a drive.
    Again,
    /// It is moved, to make room; it stays where it is until it is durable. So many segments of those that may be opened are left to others that are being emptied.
    Copy {
        turn: usize,
    },
}

/// Why a record cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Busy,
    NoSpace,
    Unavailable,
    ChecksumMismatch,
}

/// Who waits for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiter {
    Put(Token),
    Decision(Token),
    /// Nobody: the record is a copy.
    Copy(CopyOf),
}

/// A flush that takes records.
pub(super) struct Filling {
    pub(super) flush: OpenFlush,
    pub(super) segment: SegmentIndex,
    /// Where its data begin in the segment's positions.
    pub(super) position: u32,
    /// In the order of its records: who waits for how many of them.
    pub(super) waiters: Vec<(Waiter, u32)>,
    /// Writers who put again what is in it.
    pub(super) repeated: Vec<Token>,
}

/// A flush on its way.
pub(super) struct InFlight {
    pub(super) serial: u64,
    pub(super) segment: SegmentIndex,
    pub(super) span: FlushSpan,
    pub(super) sealed: SealedFlush,
    pub(super) waiters: Vec<(Waiter, u32)>,
    pub(super) repeated: Vec<Token>,
    /// Shards that have not come back.
    pub(super) pending: usize,
    pub(super) failed: bool,
}

/// The segment that takes flushes.
pub(super) struct OpenSegment {
    pub(super) index: SegmentIndex,
    /// Where the next flush goes, from the slot's start.
    pub(super) offset_bytes: u64,
    /// The tables of its flushes so far.
    pub(super) table: Vec<u8>,
    pub(super) records: usize,
    pub(super) flushes: u32,
    /// Copies or decisions opened it when fragments might not have: none goes into it.
    pub(super) is_kept: bool,
    /// It is of the reserve, for copies: nothing else goes into it until what they emptied is free.
    pub(super) is_borrowed: bool,
}

/// A record that is to be written once more.
pub(super) struct Replay {
    pub(super) record: NewRecord,
    pub(super) payload: Vec<u8>,
    /// Where the index has it now.
    pub(super) old: Option<SegmentIndex>,
    pub(super) waiter: Waiter,
    pub(super) repeated: Vec<Token>,
}

/// What is being written.
#[derive(Default)]
pub(super) struct Writer {
    pub(super) open: Option<OpenSegment>,
    pub(super) filling: Option<Filling>,
    pub(super) in_flight: VecDeque<InFlight>,
    /// Segments that take no more flushes and wait for their closing flush.
    pub(super) retired: Vec<OpenSegment>,
    pub(super) closing: Vec<Closing>,
    pub(super) replay: VecDeque<Replay>,
    /// A drive failed: nothing is written until its loss is durable.
    pub(super) frozen: bool,
    pub(super) next_serial: u64,
    pub(super) last_seal: Time,
    /// What the drives stand on has no room: nothing new is taken in.
    pub(super) is_media_full: bool,
}

impl Lane {
    /// Adds a record to the flush that is filling, and says where it will lie.
    pub(super) fn append(
        &mut self,
        purpose: Purpose,
        record: NewRecord,
        mut payload: Payload<'_>,
        waiter: Waiter,
    ) -> Result<(SegmentIndex, u32), Refusal> {
        self.make_room(purpose, record.kind, payload.bytes())?;
        let filling = self.writer.filling.as_mut().expect("it has room");
        let Ok(position) = filling.flush.add(record, &mut payload) else { return Err(Refusal::ChecksumMismatch) };
        self.segments.get_mut(filling.segment).is_packed &= matches!(purpose, Purpose::Copy { .. });
        match filling.waiters.last_mut() {
            Some((last, records)) if *last == waiter && !matches!(waiter, Waiter::Decision(_)) => *records += 1,
            _ => filling.waiters.push((waiter, 1)),
        }
        Ok((filling.segment, filling.position + position))
    }

    /// Has a flush filling that takes a record.
    fn make_room(&mut self, purpose: Purpose, kind: RecordKind, payload_bytes: usize) -> Result<(), Refusal> {
        if self.writer.frozen {
            return Err(Refusal::Busy);
        }
        if self.writer.is_media_full && purpose == Purpose::Fragment {
            return Err(Refusal::NoSpace);
        }
        loop {
            self.open_segment(purpose)?;
            self.open_flush(payload_bytes)?;
            let is_other = matches!(purpose, Purpose::Fragment | Purpose::Decision);
            if is_other && !self.leaves_room_for_copies(payload_bytes) {
                return Err(Refusal::Busy);
            }
            if !self.fits_slot(payload_bytes) {
                if self.is_fresh() {
                    // `init` bounds fragments so that each fits the narrowest segment: never met on a sound store.
                    return Err(Refusal::NoSpace);
                }
                self.retire_segment();
                continue;
            }
            let filling = self.writer.filling.as_ref().expect("opened just now");
            if filling.flush.takes(kind, payload_bytes) {
                return Ok(());
            }
            self.seal();
        }
    }

    /// Where the payload of a piece of a file of so many bytes will lie if it is appended next; nowhere when it cannot be appended now.
    pub(super) fn place_of_piece(&mut self, purpose: Purpose, payload_bytes: usize) -> Option<Vec<&mut [u8]>> {
        self.make_room(purpose, RecordKind::Piece, payload_bytes).ok()?;
        let filling = self.writer.filling.as_mut().expect("it has room");
        Some(filling.flush.next_place(payload_bytes))
    }

    fn open_segment(&mut self, purpose: Purpose) -> Result<(), Refusal> {
        if let Some(open) = &self.writer.open {
            let may = |space: Space| match purpose {
                Purpose::Fragment => !open.is_kept || space.admits(purpose),
                Purpose::Decision => !open.is_borrowed || space.has_reserve(),
                Purpose::Again | Purpose::Copy { .. } => true,
            };
            let is_asked = open.is_kept || open.is_borrowed;
            let may = !is_asked || self.width().is_some_and(|width| may(self.space(width)));
            return if may { Ok(()) } else { Err(Refusal::NoSpace) };
        }
        let width = self.width().ok_or(Refusal::Unavailable)?;
        let space = self.space(width);
        let is_kept = matches!(purpose, Purpose::Copy { .. } | Purpose::Decision) && !space.admits(Purpose::Fragment);
        let takes_last = purpose == Purpose::Decision && self.may_take_last(&space);
        let is_borrowed = purpose == Purpose::Copy { turn: 0 } && self.may_borrow(&space);
        if !(space.admits(purpose) || takes_last || is_borrowed) {
            self.checkpointer.wanted |= self.segments.are_droppable(1);
            return Err(Refusal::NoSpace);
        }
        let plan = self.next_segment(width)?;
        let index = self.segments.add(Segment {
            id: plan.id,
            state: SegmentState::Open,
            data_shards: plan.data_shards,
            parity_shards: plan.parity_shards,
            unit_bytes: plan.unit_bytes,
            shards: plan.shards,
            flushes: Vec::new(),
            durable_position: 0,
            durable_flushes: 0,
            live_records: 0,
            live_bytes: 0,
            pins: 0,
            writing: true,
            written: self.wall,
            misses_below: 0,
            scrub_at: self.now + self.config.scrub_period,
            scrub_round: self.background.scrub.round(),
            is_packed: true,
        });
        self.writer.open = Some(OpenSegment {
            index,
            offset_bytes: 0,
            table: Vec::new(),
            records: 0,
            flushes: 0,
            is_kept,
            is_borrowed,
        });
        Ok(())
    }

    /// The segment that is opened next: of the durable window, but in recovery one that no checkpoint lists.
    fn next_segment(&mut self, width: Width) -> Result<PlannedSegment, Refusal> {
        if matches!(self.state, State::Preparing) {
            let (config, counter) = (&self.config, &mut self.next_segment_counter);
            let unlisted =
                self.slots.open_unlisted(width, config.geometry.unit_bytes, || next_segment_id(config, counter));
            return unlisted.ok_or(Refusal::NoSpace);
        }
        if let Some(plan) = self.slots.open_next() {
            return Ok(plan);
        }
        let hope = self.slots.planned() > 0
            || self.slots.plannable(width.shards()) > 0
            || self.segments.are_droppable(1)
            || !self.checkpointer.is_idle();
        self.checkpointer.wanted |= hope;
        Err(if hope { Refusal::Busy } else { Refusal::NoSpace })
    }

    fn open_flush(&mut self, payload_bytes: usize) -> Result<(), Refusal> {
        if self.writer.filling.is_some() {
            return Ok(());
        }
        if self.writer.in_flight.len() >= self.config.flush_depth {
            return Err(Refusal::Busy);
        }
        let open = self.writer.open.as_ref().expect("a segment is open");
        let segment = self.segments.get(open.index);
        let place = FlushPlace {
            store: self.config.store,
            lane: self.config.lane,
            segment: segment.id,
            flush: open.flushes,
            offset_bytes: open.offset_bytes,
            data_shards: segment.data_shards,
            parity_shards: segment.parity_shards,
            unit_bytes: segment.unit_bytes,
            multiple_bytes: self.config.flush_multiple_bytes,
            shards: segment.shards.clone(),
            first_sequence: self.next_sequence,
        };
        // A fragment that is larger than a flush at full rate gets a flush of its own size.
        let row_bytes = usize::from(segment.data_shards) * segment.unit_bytes as usize;
        // What is lost of its end, where a flush must be a whole multiple, is no room either.
        let data_bytes = payload_bytes + row_bytes + self.config.flush_multiple_bytes - BLOCK_BYTES;
        let bytes = flush_buffer_bytes(segment.data_shards, segment.shards.len(), segment.unit_bytes, data_bytes);
        let (index, position) = (open.index, segment.next_position());
        let width = Width { data: segment.data_shards, parity: segment.parity_shards };
        let undurable: usize = self.writer.in_flight.iter().map(|flight| flight.sealed.shard_bytes).sum();
        let with_this = undurable + bytes.max(self.pool.buffer_bytes());
        if undurable > 0 && with_this > self.space(width).undurable_bytes_max {
            return Err(Refusal::Busy);
        }
        let shards = segment.shards.len();
        self.reuse_buffers(shards);
        let buffers = (0..shards).map(|_| self.pool.take(bytes)).collect();
        let flush = OpenFlush::new(place, buffers);
        self.writer.filling =
            Some(Filling { flush, segment: index, position, waiters: Vec::new(), repeated: Vec::new() });
        self.keep_in_budget();
        Ok(())
    }

    /// Adds bytes to the piece of a file that was appended last, if they follow it; whether they did.
    pub(super) fn extend(
        &mut self,
        record: &FileRecord,
        payload: &mut Payload<'_>,
        token: Token,
    ) -> Result<bool, Refusal> {
        let may = self.writer.filling.as_ref().is_some_and(|filling| {
            let last_is_new = filling.waiters.last().is_some_and(|(waiter, _)| matches!(waiter, Waiter::Put(_)));
            last_is_new && !self.writer.frozen
        });
        if !may || !self.fits_slot(payload.bytes()) || !self.leaves_room_for_copies(payload.bytes()) {
            return Ok(false);
        }
        let filling = self.writer.filling.as_mut().expect("looked at above");
        match filling.flush.extend_piece(record, payload) {
            Ok(true) => {
                filling.repeated.push(token);
                Ok(true)
            }
            Ok(false) => Ok(false),
            Err(_) => Err(Refusal::ChecksumMismatch),
        }
    }

    /// Whether the slots have room for the filling flush with one more record, and for the closing flush after it.
    pub(super) fn fits_slot(&self, payload_bytes: usize) -> bool {
        let (Some(open), Some(filling)) = (&self.writer.open, &self.writer.filling) else {
            unreachable!("a flush is filling in an open segment")
        };
        let records = open.records + filling.flush.record_count() as usize + 1;
        let data_shards = self.segments.get(open.index).data_shards;
        let closing = closing_bytes(data_shards, open.flushes as usize + 1, records);
        let end = open.offset_bytes + filling.flush.shard_bytes_with(payload_bytes);
        end + closing <= self.config.geometry.slot_bytes
    }

    fn is_fresh(&self) -> bool {
        let empty = self.writer.filling.as_ref().is_none_or(|f| f.flush.record_count() == 0);
        empty && self.writer.open.as_ref().is_none_or(|open| open.flushes == 0)
    }

    /// The open segment takes no more: what is filling goes out, the closing flush follows when all are durable.
    pub(super) fn retire_segment(&mut self) {
        self.seal();
        if let Some(open) = self.writer.open.take() {
            self.writer.retired.push(open);
        }
    }

    /// Sends the filling flush out.
    pub(super) fn seal(&mut self) {
        let Some(filling) = self.writer.filling.take() else { return };
        if filling.flush.record_count() == 0 {
            for buffer in filling.flush.into_buffers() {
                self.pool.give_back(buffer);
            }
            return;
        }
        let Filling { flush, segment: index, position, waiters, repeated } = filling;
        let shards = self.segments.get(index).shards.clone();
        let offsets: Vec<u64> =
            shards.iter().map(|place| self.slot_offset(*place) + flush.place.offset_bytes).collect();
        let open = self.writer.open.as_mut().expect("a flush fills in an open segment");
        assert_eq!(open.index, index, "a flush goes to the segment that it was filled for");
        let segment = self.segments.get(index);
        let drives = &self.config.drives;
        let uuid = |shard: usize| {
            let drive = drives.iter().find(|d| d.number == shards[shard].drive).expect("segments lie on known drives");
            (drive.uuid, offsets[shard])
        };
        let (flush_number, first_sequence) = (flush.place.flush, flush.place.first_sequence);
        let sealed = flush.seal(segment.durable_flushes, self.wall, uuid);
        let span = FlushSpan {
            flush: flush_number,
            offset_bytes: open.offset_bytes,
            header_bytes: u32::try_from(sealed.header_bytes).expect("headers are small"),
            record_count: sealed.record_count,
            position,
            data_bytes: sealed.data_bytes as u64,
            first_sequence,
        };
        open.offset_bytes += sealed.shard_bytes as u64;
        open.table.extend_from_slice(&sealed.table);
        open.records += sealed.record_count as usize;
        open.flushes += 1;
        self.next_sequence += u64::from(sealed.record_count);
        self.segments.add_flush(index, span);
        self.segments.get_mut(index).written = self.wall;
        let serial = self.next_serial();
        for (shard, buffer) in sealed.buffers.iter().enumerate() {
            let owner = Owner::Flush { serial, shard: shard as u8 };
            self.io.write(owner, shards[shard].drive, offsets[shard], Arc::clone(buffer), sealed.shard_bytes);
        }
        self.counters.flushes += 1;
        self.counters.media_bytes_written += (sealed.shard_bytes * shards.len()) as u64;
        self.writer.last_seal = self.now;
        self.writer.in_flight.push_back(InFlight {
            serial,
            segment: index,
            span,
            pending: shards.len(),
            failed: false,
            sealed,
            waiters,
            repeated,
        });
    }

    pub(super) fn next_serial(&mut self) -> u64 {
        self.writer.next_serial += 1;
        self.writer.next_serial
    }

    /// Group commit: what is filling goes out when nothing is on its way and the drives' interval has passed.
    pub(super) fn seal_if_due(&mut self) {
        let due = self.next_seal().is_some_and(|due| due <= self.now) || matches!(self.state, State::Stopping);
        if due && self.writer.in_flight.is_empty() && !self.writer.frozen {
            self.seal();
        }
    }

    /// When the filling flush goes out although it is not full.
    pub(super) fn next_seal(&self) -> Option<Time> {
        let filling = self.writer.filling.as_ref()?;
        let nobody_waits = filling.waiters.iter().all(|(waiter, _)| matches!(waiter, Waiter::Copy(_)));
        if nobody_waits && self.more_copies_follow() {
            return None;
        }
        let waits = filling.flush.record_count() > 0 && self.writer.in_flight.is_empty();
        waits.then(|| self.writer.last_seal + self.config.flush_interval)
    }

    /// Appends once more what a failed drive or a crash left at less than its width.
    pub(super) fn replay(&mut self) {
        if self.writer.replay.is_empty() {
            return;
        }
        while let Some(replay) = self.writer.replay.pop_front() {
            let key = replay.record.key();
            match self.append(Purpose::Again, replay.record, Payload::of(&[&replay.payload]), replay.waiter) {
                Ok((segment, position)) => {
                    if let Some(filling) = &mut self.writer.filling {
                        filling.repeated.extend(replay.repeated);
                    }
                    let bytes = replay.payload.len();
                    match replay.record.kind {
                        RecordKind::Fragment => {
                            self.move_fragment(key, &replay.record, replay.old, segment, position, bytes);
                        }
                        RecordKind::Event => {
                            let bytes = u32::try_from(bytes).expect("a payload fits a flush");
                            let entry = TableEntry { bytes, ..replay.record.without_payload() };
                            self.event_counts(segment, position, &entry);
                        }
                        // They take effect when they are durable.
                        _ => {}
                    }
                }
                Err(Refusal::ChecksumMismatch) => unreachable!("the payload was checked when it came"),
                Err(refusal) => {
                    self.writer.replay.push_front(replay);
                    if refusal == Refusal::NoSpace {
                        self.cannot_write_again();
                    }
                    return;
                }
            }
        }
        if self.files.is_settled() {
            self.keep_reserve();
        }
    }

    /// The reserve is there so that this never happens; see [`super::space`].
    fn cannot_write_again(&mut self) {
        let records = self.writer.replay.len();
        self.become_unavailable(format!(
            "{records} records that were on their way must be written once more and no slot is free for them; what was acknowledged is on \
             the drives as it was, and this is a fault of the program"
        ));
    }
}
