//! The closing flush: the table of the whole segment, at the fixed end of its slots.

use std::sync::Arc;

use forebay_format::{FLUSH_CLOSING, FlushEntry, FlushHeader, SegmentState, SegmentTable, TABLE_ENTRY_BYTES};
use forebay_media::AlignedBuffer;
use forebay_types::limits::BLOCK_BYTES;
use forebay_types::{DriveNumber, EventId, RunId, crc32c};

use super::write::OpenSegment;
use super::{Lane, State};
use crate::flush::codec;
use crate::io::{Failure, Owner};
use crate::recovery::decode_table;
use crate::segments::{FlushSpan, SegmentIndex};

/// A closing flush on its way.
pub(super) struct Closing {
    serial: u64,
    segment: SegmentIndex,
    pending: usize,
    written: usize,
    /// A drive that is read, and written to no more, does not get it.
    left_out: bool,
}

/// Bytes at the end of each slot that the closing flush of so many flushes and records takes.
pub(super) fn closing_bytes(data_shards: u8, flushes: usize, records: usize) -> u64 {
    (BLOCK_BYTES + closing_unit_bytes(data_shards, SegmentTable::encoded_bytes(flushes, records))) as u64
}

fn closing_unit_bytes(data_shards: u8, table_bytes: usize) -> usize {
    table_bytes.div_ceil(usize::from(data_shards)).next_multiple_of(BLOCK_BYTES)
}

impl Lane {
    /// Closes segments whose every flush is durable.
    pub(super) fn close_retired(&mut self) {
        if self.writer.frozen || matches!(self.state, State::Preparing) {
            // A closing flush hides what is torn: first a checkpoint must list where that was written again.
            return;
        }
        let waiting = std::mem::take(&mut self.writer.retired);
        for open in waiting {
            let segment = self.segments.get(open.index);
            if segment.durable_flushes >= open.flushes {
                self.close(open);
            } else {
                self.writer.retired.push(open);
            }
        }
    }

    fn close(&mut self, open: OpenSegment) {
        if open.flushes == 0 {
            // Nothing durable ever came to it.
            let segment = self.segments.get_mut(open.index);
            (segment.state, segment.writing) = (SegmentState::Walk, false);
            return;
        }
        let table = self.segment_table(&open).encode();
        let shards = self.closing_shards(open.index, open.flushes, &table);
        let serial = self.next_serial();
        let places = self.segments.get(open.index).shards.clone();
        let (mut pending, mut left_out) = (0, false);
        for (shard, (place, buffer)) in places.iter().zip(shards).enumerate() {
            if !self.answers(place.drive) || !self.is_member(place.drive) {
                left_out |= self.answers(place.drive);
                continue;
            }
            let bytes = buffer.len();
            let offset = self.slot_offset(*place) + self.config.geometry.slot_bytes - bytes as u64;
            self.io.write(Owner::Close { serial, shard: shard as u8 }, place.drive, offset, Arc::new(buffer), bytes);
            self.counters.media_bytes_written += bytes as u64;
            pending += 1;
        }
        let closing = Closing { serial, segment: open.index, pending, written: 0, left_out };
        if pending == 0 {
            self.closed(&closing);
        } else {
            self.writer.closing.push(closing);
        }
    }

    fn segment_table(&self, open: &OpenSegment) -> SegmentTable {
        assert_eq!(open.table.len(), open.records * TABLE_ENTRY_BYTES, "the table has every record");
        let flush = |span: &FlushSpan| FlushEntry {
            flush: span.flush,
            offset_bytes: span.offset_bytes,
            header_bytes: span.header_bytes,
            data_bytes: span.data_bytes,
            record_count: span.record_count,
            first_sequence: span.first_sequence,
        };
        let flushes = self.segments.get(open.index).flushes.iter().map(flush).collect();
        SegmentTable { flushes, records: decode_table(&open.table).collect() }
    }

    /// The shards of a closing flush: the unit, then the header in the last block.
    fn closing_shards(&self, index: SegmentIndex, flushes: u32, table: &[u8]) -> Vec<AlignedBuffer> {
        let segment = self.segments.get(index);
        let unit = closing_unit_bytes(segment.data_shards, table.len());
        let mut buffers: Vec<AlignedBuffer> =
            segment.shards.iter().map(|_| AlignedBuffer::zeroed(unit + BLOCK_BYTES)).collect();
        for (buffer, bytes) in buffers.iter_mut().zip(table.chunks(unit)) {
            buffer[..bytes.len()].copy_from_slice(bytes);
        }
        let (data, parity) = buffers.split_at_mut(usize::from(segment.data_shards));
        let data: Vec<&[u8]> = data.iter().map(|buffer| &buffer[..unit]).collect();
        let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(|buffer| &mut buffer[..unit]).collect();
        codec(segment.data_shards, segment.parity_shards).encode(&data, &mut parity);
        let records = segment.flushes.iter().map(|span| span.record_count).sum();
        let slot_bytes = self.config.geometry.slot_bytes;
        let mut header = FlushHeader {
            flags: FLUSH_CLOSING,
            header_bytes: BLOCK_BYTES as u32,
            store: self.config.store,
            drive: forebay_types::DriveUuid::default(),
            offset_bytes: 0,
            lane: self.config.lane,
            segment: segment.id,
            flush: flushes,
            shard: 0,
            data_shards: segment.data_shards,
            parity_shards: segment.parity_shards,
            units_offset_bytes: slot_bytes - (BLOCK_BYTES + unit) as u64,
            unit_bytes: u32::try_from(unit).expect("a table is smaller than a slot"),
            rows: 1,
            last_unit_bytes: u32::try_from(unit).expect("as before"),
            data_bytes: table.len() as u64,
            table_offset_bytes: 0,
            table_bytes: u32::try_from(table.len()).expect("a table is smaller than a segment"),
            table_crc: crc32c(table),
            record_count: records,
            run_min: RunId(0),
            run_max: RunId(u32::MAX),
            event_min: EventId(0),
            event_max: EventId(u64::MAX),
            first_sequence: segment.first_sequence(),
            durable_flushes: segment.durable_flushes,
            shards: segment.shards.clone(),
            unit_crcs: buffers.iter().map(|buffer| crc32c(&buffer[..unit])).collect(),
            written: segment.written,
            digest: 0,
        };
        header.digest = header.compute_digest();
        for (shard, buffer) in buffers.iter_mut().enumerate() {
            let place = segment.shards[shard];
            let drive = self.config.drives.iter().find(|d| d.number == place.drive);
            header.drive = drive.expect("segments lie on known drives").uuid;
            header.offset_bytes = self.slot_offset(place) + slot_bytes - BLOCK_BYTES as u64;
            header.shard = shard as u8;
            header.encode_into(None, &mut buffer[unit..]);
        }
        buffers
    }

    pub(super) fn close_shard_done(
        &mut self,
        serial: u64,
        _shard: u8,
        drive: DriveNumber,
        result: Result<(), Failure>,
    ) {
        let Some(at) = self.writer.closing.iter().position(|c| c.serial == serial) else { return };
        self.writer.closing[at].pending -= 1;
        match result {
            Ok(()) => self.writer.closing[at].written += 1,
            Err(failure) => self.fail_drive(drive, &format!("a write failed: {failure}")),
        }
        let at = self.writer.closing.iter().position(|c| c.serial == serial);
        if let Some(at) = at
            && self.writer.closing[at].pending == 0
        {
            let closing = self.writer.closing.swap_remove(at);
            self.closed(&closing);
        }
    }

    /// The table is on as many shards as the data need: recovery reads it instead of following the flushes. Unless the data have a drive more than
    /// the table: a loss of which that drive makes up for the data would leave no table, and what is not there would count as damage.
    fn closed(&mut self, closing: &Closing) {
        self.segments.has_all_flushes(closing.segment);
        let segment = self.segments.get_mut(closing.segment);
        let enough = closing.written >= usize::from(segment.data_shards) && !closing.left_out;
        segment.state = if enough { SegmentState::Closed } else { SegmentState::Walk };
        segment.writing = false;
        if self.lacks_shards(closing.segment) {
            self.look_for_missing_shards();
        }
    }
}
