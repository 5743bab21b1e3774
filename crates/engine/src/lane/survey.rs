//! A look at what lies on the drives: what recovery found, what is stored where, and whether each flush lies as it was written. Nothing here
//! changes anything; a lane that serves answers it too.

use std::collections::{BTreeSet, VecDeque};

use forebay_format::{SegmentId, ShardPlace};
use forebay_types::limits::BLOCK_BYTES;
use forebay_types::{EventKey, FileNumber, SourceId, StreamName};

use super::files::record_of;
use super::{Lane, Read};
use crate::api::Token;
use crate::check::{FlushCheck, FlushPlace};
use crate::files::File;
use crate::index::EventFlags;
use crate::read::Reader;
use crate::segments::{Segment, SegmentIndex};
use crate::survey::{CheckpointPlace, Findings, checkpoint_places};

/// What a lane keeps for whoever looks at it.
#[derive(Default)]
pub(super) struct Survey {
    /// Of a lane that was started read-only.
    pub(super) findings: Findings,
    /// No drive is given up because reads of it fail: what it still gives is wanted.
    pub(super) keeps_drives: bool,
    looked: VecDeque<(Token, Looked)>,
}

/// What a look came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// The places for checkpoints, drive by drive.
    Checkpoints(Vec<CheckpointPlace>),
    /// A flush.
    Flush(FlushCheck),
}

/// A segment of a lane, as long as the lane has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentHandle {
    index: SegmentIndex,
    id: SegmentId,
}

/// A segment that the lane holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSegment {
    /// For [`Lane::check_flush`].
    pub handle: SegmentHandle,
    /// Its name.
    pub id: SegmentId,
    /// Data shards.
    pub data_shards: u8,
    /// Parity shards.
    pub parity_shards: u8,
    /// Where its shards lie.
    pub shards: Vec<ShardPlace>,
    /// Numbers of its flushes, ascending, without the closing one.
    pub flushes: Vec<u32>,
    /// Whether it has a closing flush.
    pub closed: bool,
    /// Records in it that must survive.
    pub live_records: u64,
    /// Bytes of the fragments among them.
    pub live_bytes: u64,
    /// Bytes of its flushes on each drive, headers included.
    pub shard_bytes: u64,
}

/// An event that is not finished, with where its fragments lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// The event.
    pub key: EventKey,
    /// How many fragments it should have; 0 unknown.
    pub expected: u16,
    /// Whether it is accepted.
    pub accepted: bool,
    /// Whether it was accepted without some of its sources.
    pub incomplete: bool,
    /// The streams that want it and have not released it.
    pub streams: Vec<StreamName>,
    /// Its fragments, ascending by source; none while they are in one record that was not read.
    pub fragments: Vec<StoredFragment>,
    /// That record, which [`Lane::get_whole`] reads.
    pub whole: Option<StoredWhole>,
}

/// The record that holds all fragments of an event, and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredWhole {
    /// Fragments in it.
    pub fragments: u32,
    /// Their bytes.
    pub bytes: u64,
    /// The segment that holds it.
    pub segment: SegmentHandle,
    /// The flush in the segment; `None` when the segment's table names none there.
    pub flush: Option<u32>,
}

/// A fragment and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredFragment {
    /// Its source.
    pub source: SourceId,
    /// Its size in bytes.
    pub bytes: u32,
    /// Its CRC32C.
    pub crc: u32,
    /// The segment that holds it.
    pub segment: SegmentHandle,
    /// The flush in the segment; `None` when the segment's table names none there.
    pub flush: Option<u32>,
}

/// A file that the lane holds, with where its bytes lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFile {
    /// Its number.
    pub file: FileNumber,
    /// How long it is.
    pub bytes: u64,
    /// The flushes that hold its bytes; of one that the segment's table does not name, `None`.
    pub flushes: BTreeSet<(SegmentHandle, Option<u32>)>,
}

impl Lane {
    /// What recovery found, when the lane was started read-only and has recovered.
    pub fn findings(&self) -> &Findings {
        &self.survey.findings
    }

    /// From now on no drive is given up because many reads of it fail in a row: a drive that was cut off, or has many bad places, still
    /// gives the rest. One that does not answer at all is given up all the same.
    pub fn keep_drives_that_fail_reads(&mut self) {
        self.survey.keeps_drives = true;
    }

    /// The segments that hold something, oldest first.
    pub fn stored_segments(&self) -> Vec<StoredSegment> {
        let mut segments: Vec<StoredSegment> =
            self.segments.iter().map(|(index, segment)| stored(index, segment)).collect();
        segments.sort_by_key(|segment| (segment.id.epoch, segment.id.counter));
        segments
    }

    /// The events that are not finished, ascending from `from` on, `events_max` of them at most.
    pub fn stored_events(&self, from: EventKey, events_max: usize) -> Vec<StoredEvent> {
        let event = |(key, entry): (EventKey, &crate::index::EventEntry)| StoredEvent {
            key,
            expected: entry.expected,
            accepted: entry.flags.has(EventFlags::ACCEPTED),
            incomplete: entry.flags.has(EventFlags::INCOMPLETE),
            streams: self.accepted.streams_waiting(key),
            fragments: entry.fragments().unwrap_or_default().iter().map(|f| self.stored_fragment(f)).collect(),
            whole: entry.whole().map(|whole| {
                let StoredFragment { segment, flush, .. } = self.stored_fragment(whole);
                StoredWhole { fragments: whole.source.0, bytes: entry.bytes(), segment, flush }
            }),
        };
        self.index.events_from(from).take(events_max).map(event).collect()
    }

    /// The files that are stored, ascending from `from` on, `files_max` of them at most.
    pub fn stored_files(&self, from: FileNumber, files_max: usize) -> Vec<StoredFile> {
        let flushes = |file: &File| {
            let pieces = file.in_range(0..file.length()).filter(|(_, extent)| !extent.is_hole());
            let place = |(_, extent)| self.stored_fragment(&record_of(&extent));
            pieces.map(place).map(|piece| (piece.segment, piece.flush)).collect()
        };
        let file = |(number, file): (FileNumber, &File)| StoredFile {
            file: number,
            bytes: file.length(),
            flushes: flushes(file),
        };
        self.files.from(from).take(files_max).map(file).collect()
    }

    fn stored_fragment(&self, fragment: &crate::index::FragmentEntry) -> StoredFragment {
        let segment = self.segments.get(fragment.segment);
        StoredFragment {
            source: fragment.source,
            bytes: fragment.bytes,
            crc: fragment.crc,
            segment: SegmentHandle { index: fragment.segment, id: segment.id },
            flush: segment.flush_at(fragment.position).map(|(_, span)| span.flush),
        }
    }

    /// Looks at every place for a checkpoint, on every drive that is there. [`Lane::next_looked`] has the answer when the drives have answered.
    pub fn check_checkpoints(&mut self, token: Token) {
        let task = self.tasks.reserve();
        let places = checkpoint_places(self.io.clone(), task, self.config.clone());
        let look = async move { Read::Looked(token, Looked::Checkpoints(places.await)) };
        if let Some(over) = self.tasks.start(task, Box::pin(look)) {
            self.read_is_over(task, over);
        }
    }

    /// Checks a flush of a segment on every drive that answers: its headers and, with `units`, every unit of every shard; `None` is the closing
    /// flush. [`Lane::next_looked`] has the answer when the drives have answered. Up to 256 KiB of each drive, or one unit, are in memory at once.
    ///
    /// Returns whether the segment has such a flush; else no answer comes.
    pub fn check_flush(&mut self, token: Token, segment: SegmentHandle, flush: Option<u32>, units: bool) -> bool {
        let Some(place) = self.flush_place(segment, flush) else { return false };
        self.segments.get_mut(segment.index).pins += 1;
        let task = self.tasks.reserve();
        let reader = Reader { io: self.io.clone(), task, segment: self.read_segment(segment.index) };
        let look = async move {
            let check = reader.check_flush(place, units).await;
            Read::Checked(token, segment.index, check)
        };
        if let Some(over) = self.tasks.start(task, Box::pin(look)) {
            self.read_is_over(task, over);
        }
        true
    }

    fn flush_place(&self, handle: SegmentHandle, flush: Option<u32>) -> Option<FlushPlace> {
        let segment = self.segments.find(handle.index).filter(|segment| segment.id == handle.id)?;
        let Some(number) = flush else {
            let offset_bytes = self.config.geometry.slot_bytes - BLOCK_BYTES as u64;
            return segment.has_closing_flush().then_some(FlushPlace {
                flush,
                offset_bytes,
                header_bytes: BLOCK_BYTES,
            });
        };
        let at = segment.flushes.binary_search_by_key(&number, |span| span.flush).ok()?;
        let span = &segment.flushes[at];
        Some(FlushPlace { flush, offset_bytes: span.offset_bytes, header_bytes: span.header_bytes as usize })
    }

    /// The next answer to [`Lane::check_flush`] or [`Lane::check_checkpoints`].
    pub fn next_looked(&mut self) -> Option<(Token, Looked)> {
        self.survey.looked.pop_front()
    }

    pub(super) fn has_looked(&mut self, token: Token, looked: Looked) {
        self.survey.looked.push_back((token, looked));
    }

    pub(super) fn has_checked(&mut self, token: Token, segment: SegmentIndex, check: FlushCheck) {
        self.segments.get_mut(segment).pins -= 1;
        self.has_looked(token, Looked::Flush(check));
    }
}

fn stored(index: SegmentIndex, segment: &Segment) -> StoredSegment {
    StoredSegment {
        handle: SegmentHandle { index, id: segment.id },
        id: segment.id,
        data_shards: segment.data_shards,
        parity_shards: segment.parity_shards,
        shards: segment.shards.clone(),
        flushes: segment.flushes.iter().map(|span| span.flush).collect(),
        closed: segment.has_closing_flush(),
        live_records: segment.live_records,
        live_bytes: segment.live_bytes,
        shard_bytes: segment.shard_bytes(),
    }
}
