//! Checkpoints: which segments live, which slots are opened next, which events are over.

use std::sync::Arc;

use forebay_format::{
    CheckpointBody, CheckpointHeader, DECIDED_EVENTS_MAX, DECISION_SETS_MAX, SegmentEntry, SegmentId,
    encode_checkpoint_into, encoded_checkpoint_bytes, place_of,
};
use forebay_media::AlignedBuffer;
use forebay_types::limits::{BLOCK_BYTES, SHARDS_MAX, STREAM_NAME_BYTES_MAX, STREAMS_MAX};
use forebay_types::{DriveNumber, DriveUuid};

use super::{Lane, State};
use crate::api::LaneConfig;
use crate::io::{Failure, Owner};
use crate::planted::{Planted, planted};
use crate::segments::{SEGMENT_COUNTER_MASK, SegmentIndex};
use crate::slots::{Width, WindowMark};

/// Planned segments in a checkpoint, at least. More of them make checkpoints rarer and hold more slots ready.
const WINDOW_MIN: usize = 4;

/// And at most.
const WINDOW_MAX: usize = 32;

/// Between those a lane of so many segments plans one.
const SEGMENTS_PER_PLANNED: usize = 16;

/// Bytes that a range of finished events takes in a checkpoint; a run takes as many.
const RANGE_BYTES: u64 = 16;

/// Bytes that a segment takes in a checkpoint, at most.
const SEGMENT_BYTES_MAX: u64 = 64 + 8 * SHARDS_MAX as u64;

/// Bytes that the name of a stream takes in a checkpoint.
const STREAM_BYTES: usize = 8 + STREAM_NAME_BYTES_MAX;

/// Bytes that a set of decisions takes in a checkpoint.
const DECISION_SET_BYTES: usize = 24;

/// What the last one was written from is kept for the next when it is not more than so many bytes, on all drives together: a store with many segments writes one after the other at full
/// rate, and memory that is asked for anew costs more than what is written into it.
const SPARE_BYTES_MAX: usize = 4 << 20;

/// Bytes of the heads of its sections, and more.
const SECTIONS_BYTES: usize = 4096;

/// A checkpoint on its way.
struct Writing {
    serial: u64,
    pending: usize,
    failed: bool,
    buffers: Vec<Arc<AlignedBuffer>>,
    dropped: Vec<SegmentIndex>,
    window: WindowMark,
    streams: usize,
}

/// Which checkpoint is the newest, and what must be in the next.
#[derive(Default)]
pub(super) struct Checkpointer {
    pub(super) sequence: u64,
    /// Something waits for the next one.
    pub(super) wanted: bool,
    /// Names of streams in the newest durable one.
    pub(super) durable_streams: usize,
    /// Durable checkpoints of this start.
    pub(super) written: u64,
    /// The last one of this start was asked for.
    pub(super) last_wanted: bool,
    writing: Option<Writing>,
    /// From which the one before was written.
    spare: Vec<AlignedBuffer>,
}

impl Checkpointer {
    /// A buffer of at least so many bytes, in which something may stand. A new one has room to grow.
    fn buffer(&mut self, bytes: usize) -> AlignedBuffer {
        let spare = self.spare.pop().filter(|spare| spare.len() >= bytes);
        spare.unwrap_or_else(|| AlignedBuffer::zeroed(bytes + bytes / 8))
    }

    /// These are not written from any more.
    fn keep(&mut self, buffers: Vec<Arc<AlignedBuffer>>) {
        let bytes: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        if bytes <= SPARE_BYTES_MAX {
            self.spare = buffers.into_iter().filter_map(Arc::into_inner).collect();
        }
    }

    pub(super) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.writing.is_none() && !self.wanted
    }
}

impl Lane {
    /// Ranges of finished events, and of accepted ones that it keeps, that a checkpoint can always hold beside everything else.
    pub(super) fn ranges_max(&self) -> u64 {
        let slots: u64 = self.slots.total().max(1);
        let narrowest = (self.drives_needed() as u64).max(1);
        let segments = (slots / narrowest + WINDOW_MAX as u64) * SEGMENT_BYTES_MAX;
        let names = STREAMS_MAX * STREAM_BYTES + DECISION_SETS_MAX * DECISION_SET_BYTES;
        let fixed = (2 * BLOCK_BYTES + SECTIONS_BYTES + names) as u64;
        let ranges = self.config.geometry.checkpoint_bytes.saturating_sub(segments + fixed) / RANGE_BYTES;
        ranges.min(DECIDED_EVENTS_MAX)
    }

    pub(super) fn checkpoint_if_needed(&mut self) {
        let is_over = self.is_quiet() && self.files.is_settled();
        let recovering = matches!(self.state, State::Preparing) && !is_over;
        if recovering || self.checkpointer.writing.is_some() || self.writer.frozen || !self.checkpoint_is_due() {
            return;
        }
        self.write_checkpoint();
    }

    fn checkpoint_is_due(&self) -> bool {
        if self.checkpointer.wanted {
            return true;
        }
        if matches!(self.state, State::Stopping) {
            return false;
        }
        let Some(width) = self.width() else { return false };
        let window = self.window(width);
        let window_is_low = self.slots.durable_window() <= window / 2;
        let is_planned = || self.slots.planned() > self.slots.durable_window();
        let window_can_grow = || is_planned() || self.slots.plannable(width.shards()) > 0;
        let idle = self.writer.in_flight.is_empty() && self.writer.filling.is_none() && !self.has_requests();
        // Whoever is refused because of what they take asks again and again: that is not quiet.
        let scarce = || {
            let index_is_full = self.index_bytes() / 7 >= self.config.index_bytes / 8;
            index_is_full || self.space(width).free_for_fragments() < 2 * WINDOW_MIN
        };
        let enough = |count| self.segments.are_droppable(count);
        let dropping_is_due = || idle || enough(window) || scarce() || self.rebuild_waits_for_checkpoint();
        window_is_low && window_can_grow() || enough(1) && dropping_is_due()
    }

    /// Planned segments in a checkpoint.
    fn window(&self, width: Width) -> usize {
        let segments = self.slots.total() as usize / width.shards();
        (segments / SEGMENTS_PER_PLANNED).clamp(WINDOW_MIN, WINDOW_MAX)
    }

    fn write_checkpoint(&mut self) {
        self.checkpointer.wanted = false;
        if planted(Planted::SlotReusedEarly) {
            self.drop_segments(self.segments.droppable());
        }
        if let Some(width) = self.width()
            && (!matches!(self.state, State::Stopping) || !self.writer.replay.is_empty())
        {
            let window = self.window(width);
            let (config, counter) = (&self.config, &mut self.next_segment_counter);
            self.slots.plan(window, width, config.geometry.unit_bytes, || next_segment_id(config, counter));
        }
        if matches!(self.state, State::Preparing) {
            self.forget_emptied();
        }
        let dropped = self.segments.droppable();
        let body = self.checkpoint_body(&dropped).encode();
        let bytes = encoded_checkpoint_bytes(body.len());
        if bytes as u64 > self.config.geometry.checkpoint_bytes {
            self.checkpoint_decisions_failed();
            let places = self.config.geometry.checkpoint_bytes;
            self.become_unavailable(format!("a checkpoint of {bytes} bytes does not fit its place of {places} bytes"));
            return;
        }
        self.checkpointer.sequence += 1;
        let sequence = self.checkpointer.sequence;
        let serial = self.next_serial();
        let members = self.members();
        let header = CheckpointHeader {
            store: self.config.store,
            drive: DriveUuid::default(),
            offset_bytes: 0,
            lane: self.config.lane,
            epoch: self.config.epoch,
            sequence,
            body_bytes: 0,
            body_crc: 0,
        }
        .with_body(&body);
        let mut buffers = Vec::with_capacity(members.len());
        for number in &members {
            let drive = self.config.drives.iter().find(|d| d.number == *number).expect("members are known drives");
            let layout = self.config.geometry.layout(drive.slots);
            let offset_bytes = layout.checkpoint_offset(self.config.lane, place_of(sequence));
            let mut buffer = self.checkpointer.buffer(bytes);
            let header = CheckpointHeader { drive: drive.uuid, offset_bytes, ..header };
            encode_checkpoint_into(&header, &body, &mut buffer[..bytes]);
            let (owner, buffer) = (Owner::Checkpoint { serial, drive: *number }, Arc::new(buffer));
            self.io.write(owner, *number, offset_bytes, Arc::clone(&buffer), bytes);
            buffers.push(buffer);
            self.counters.media_bytes_written += bytes as u64;
        }
        if planted(Planted::WindowIgnored) || planted(Planted::SlotReusedEarly) {
            self.slots.window_is_durable(self.slots.window_mark());
        }
        self.checkpointer.writing = Some(Writing {
            serial,
            pending: members.len(),
            failed: members.is_empty(),
            buffers,
            dropped,
            window: self.slots.window_mark(),
            streams: self.accepted.names().len(),
        });
    }

    fn checkpoint_body(&mut self, dropped: &[SegmentIndex]) -> CheckpointBody {
        let (mut finished, decision_sets, decided) = self.decisions_for_checkpoint();
        if planted(Planted::TombstoneForgotten)
            && let Some(run) = finished.last_mut()
        {
            run.ranges.pop();
        }
        let moved = self.moved_shards();
        let entry = |(index, segment): (SegmentIndex, &crate::segments::Segment)| {
            let entry = segment.entry();
            match moved.get(&index) {
                Some(shards) => SegmentEntry { shards: shards.clone(), ..entry },
                None => entry,
            }
        };
        let live = self.segments.iter().filter(|(index, _)| !dropped.contains(index));
        CheckpointBody {
            next_record_sequence: self.next_sequence,
            next_segment_counter: self.next_segment_counter,
            live: live.map(entry).collect(),
            planned: self.slots.window(),
            finished,
            streams: self.accepted.names().to_vec(),
            decision_sets,
            decided,
            counters: Vec::new(),
        }
    }

    pub(super) fn checkpoint_done(&mut self, serial: u64, drive: DriveNumber, result: Result<(), Failure>) {
        if let Err(failure) = &result {
            self.fail_drive(drive, &format!("a write of a checkpoint failed: {failure}"));
        }
        let Some(writing) = &mut self.checkpointer.writing else { return };
        if writing.serial != serial {
            return;
        }
        writing.pending -= 1;
        writing.failed |= result.is_err();
        if writing.pending > 0 && !planted(Planted::CheckpointHalf) {
            return;
        }
        let writing = self.checkpointer.writing.take().expect("looked at just now");
        self.checkpointer.keep(writing.buffers);
        if writing.failed {
            self.checkpointer.wanted = true;
            self.checkpoint_decisions_failed();
            self.moves_are_durable(false);
            return;
        }
        self.counters.checkpoints += 1;
        self.checkpointer.written += 1;
        self.checkpointer.durable_streams = writing.streams;
        self.slots.window_is_durable(writing.window);
        self.drop_segments(writing.dropped);
        self.moves_are_durable(true);
        self.checkpoint_decisions_are_durable();
    }

    /// No durable checkpoint lists them any more: their slots may be used again.
    fn drop_segments(&mut self, dropped: Vec<SegmentIndex>) {
        for index in dropped {
            self.rows.remove_segment(index);
            self.cache.remove_segment(index, &mut self.pool);
            if self.lacks_shards(index) && !planted(Planted::EmptiedStillMissing) {
                self.look_for_missing_shards();
            }
            let segment = self.segments.remove(index);
            self.slots.give_back(&segment.shards);
        }
    }
}

/// The name of a further segment.
pub(super) fn next_segment_id(config: &LaneConfig, counter: &mut u64) -> SegmentId {
    *counter += 1;
    let number = u64::from(config.lane) << 48 | (*counter & SEGMENT_COUNTER_MASK);
    SegmentId { epoch: config.epoch as u32, nonce: config.nonce as u32, counter: number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_a_checkpoint_serve_the_next_while_they_are_large_enough_and_few() {
        let write = |checkpointer: &mut Checkpointer, drives: usize, bytes: usize| -> Vec<*const u8> {
            let buffers: Vec<_> = (0..drives).map(|_| Arc::new(checkpointer.buffer(bytes))).collect();
            assert!(checkpointer.spare.is_empty() && buffers.iter().all(|buffer| buffer.len() >= bytes));
            let mut at: Vec<_> = buffers.iter().map(|buffer| buffer.as_ptr()).collect();
            at.sort_unstable();
            checkpointer.keep(buffers);
            at
        };
        let mut checkpointer = Checkpointer::default();
        let first = write(&mut checkpointer, 6, 80 << 10);
        assert_eq!(write(&mut checkpointer, 6, 84 << 10), first, "it has grown a little");
        write(&mut checkpointer, 6, 500 << 10);
        assert_eq!(checkpointer.spare.len(), 6);
        write(&mut checkpointer, 6, SPARE_BYTES_MAX / 6);
        assert_eq!(checkpointer.spare.len(), 0, "with its eighth that is too much");
    }
}
