//! What the drives' bytes say of what was written, asked of nobody who serves it: which flushes have enough good shards, which of those that do
//! not are known to have been acknowledged, and what they held.
//!
//! The newest checkpoint that can be read says which segments there are. A flush of one counts when its table can be found: in the closing
//! flush of its segment, or by following the flushes from the first on. What is behind headers that are gone on every drive is found as far as
//! something says that it must be there.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use forebay_format::{
    CheckpointBody, CheckpointHeader, FinishedRun, FlushHeader, PLACES, PlannedSegment, RecordKind, SegmentId,
    SegmentState, Superblock,
};
use forebay_types::limits::BLOCK_BYTES;
use forebay_types::placement::{lane_of, lane_ordinal};
use forebay_types::{DriveNumber, EventKey, FragmentId, SourceId, crc32c};

use crate::drives::{Drives, FlushWritten};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    /// It looks like what a crash leaves of a flush that was never acknowledged, or everything that told of it is gone.
    Silent,
    /// It is lost or out of reach, and whoever looks at the drives can know that.
    Told,
    /// It can be read.
    Readable,
}

/// A record in a flush that the newest checkpoint leads to.
#[derive(Clone, Copy, Debug)]
struct Copy {
    kind: RecordKind,
    /// Of a fragment, in a record of its own or in that of its event.
    source: SourceId,
    segment: SegmentId,
    flush: u32,
    /// It can be read which records its flush has.
    tabled: bool,
    /// So many drives that it needs do not answer.
    lacks: usize,
    fate: Fate,
}

/// What there is of a lane.
#[derive(Default)]
pub(crate) struct LaneTruth {
    /// No checkpoint can be read.
    pub(crate) is_gone: bool,
    /// The newest checkpoint that can be read is not the newest that there was: the lane is as it was then, at best.
    pub(crate) is_old: bool,
    finished: Vec<FinishedRun>,
    copies: BTreeMap<EventKey, Vec<Copy>>,
    /// Acknowledged flushes whose tables cannot be read.
    pub(crate) flushes_missing: Vec<(SegmentId, u32)>,
}

/// All lanes.
pub(crate) struct Truth {
    pub(crate) lanes: Vec<LaneTruth>,
}

/// A way to the bytes of a segment.
struct Segment<'a> {
    drives: &'a Drives,
    id: SegmentId,
    data_shards: usize,
    slot_bytes: u64,
    /// Of each shard whose drive answers: drive, and where its slot begins.
    shards: Vec<Option<(DriveNumber, u64)>>,
    flushes: Vec<&'a FlushWritten>,
}

impl Truth {
    /// Of what lies on the drives of `present`, whose newest superblock this is.
    pub(crate) fn of(drives: &Drives, present: &BTreeSet<DriveNumber>, superblock: &Superblock) -> Truth {
        let lanes = superblock.geometry.lanes;
        Truth { lanes: (0..lanes).map(|lane| LaneTruth::of(drives, present, superblock, lane)).collect() }
    }

    pub(crate) fn lane(&self, key: EventKey) -> &LaneTruth {
        &self.lanes[usize::from(lane_of(key, self.lanes.len() as u16))]
    }

    /// What became of a fragment. Of two places that tell of it, as compaction leaves them for a while, the one counts that lacks fewer drives, else
    /// either; whoever tells of none cannot say that it is there.
    pub(crate) fn fragment(&self, id: FragmentId) -> Fate {
        let copies = self.lane(id.key()).copies.get(&id.key()).into_iter().flatten();
        let of_it = |copy: &&Copy| copy.kind.has_payload() && copy.source == id.source;
        let (told, untold): (Vec<&Copy>, Vec<&Copy>) = copies.filter(of_it).partition(|copy| copy.tabled);
        let lacks = told.iter().map(|copy| copy.lacks).min();
        let counts = told.iter().filter(|copy| Some(copy.lacks) == lacks).map(|copy| copy.fate).min();
        counts.or(untold.iter().map(|copy| copy.fate).max()).unwrap_or(Fate::Silent)
    }

    /// Where the records of an event lie, and what became of each.
    pub(crate) fn tell(&self, key: EventKey) -> String {
        let copies = self.lane(key).copies.get(&key).into_iter().flatten();
        let tell = |copy: &Copy| {
            format!(
                "{:?} of source {} in flush {} of {}: {:?}",
                copy.kind, copy.source, copy.flush, copy.segment, copy.fate
            )
        };
        copies.map(tell).collect::<Vec<_>>().join("; ")
    }

    /// Whether something of what was written of an event cannot be read.
    pub(crate) fn is_hurt(&self, key: EventKey) -> bool {
        let lane = self.lane(key);
        let copies = lane.copies.get(&key).into_iter().flatten();
        lane.is_gone || lane.is_old || copies.into_iter().any(|copy| copy.fate != Fate::Readable)
    }

    /// Whether the newest checkpoint has the event among those that are over.
    pub(crate) fn is_finished(&self, key: EventKey) -> bool {
        let ordinal = lane_ordinal(key.event.0, self.lanes.len() as u16);
        let of_run = self.lane(key).finished.iter().filter(|run| run.run == key.run);
        let mut ranges = of_run.flat_map(|run| &run.ranges);
        ranges.any(|range| (range.start..range.start + range.length).contains(&ordinal))
    }

    /// Records that cannot be read, and how many of them in silence.
    pub(crate) fn lost(&self) -> (u64, u64) {
        let copies = || self.lanes.iter().flat_map(|lane| lane.copies.values().flatten());
        let count = |fate| copies().filter(|copy| copy.fate == fate).count() as u64;
        (count(Fate::Told) + count(Fate::Silent), count(Fate::Silent))
    }
}

impl LaneTruth {
    fn of(drives: &Drives, present: &BTreeSet<DriveNumber>, superblock: &Superblock, lane: u16) -> LaneTruth {
        let written = drives.written.as_deref().expect("it is kept what is written");
        let newest = newest_checkpoint(drives, present, superblock, lane);
        let Some((found, body)) = newest else { return LaneTruth { is_gone: true, ..LaneTruth::default() } };
        let mut truth = LaneTruth {
            is_old: written.checkpoints.get(&lane).is_some_and(|known| *known > found)
                || written.generation > superblock.generation,
            finished: body.finished,
            ..LaneTruth::default()
        };
        let planned = body.planned.into_iter().map(|plan| (plan, SegmentState::Open, 0));
        let live = body.live.into_iter().map(|entry| {
            let plan = PlannedSegment {
                id: entry.id,
                data_shards: entry.data_shards,
                parity_shards: entry.parity_shards,
                unit_bytes: entry.unit_bytes,
                shards: entry.shards,
            };
            (plan, entry.state, entry.flushes)
        });
        for (plan, state, flushes) in live.chain(planned) {
            let of_segment = written.flushes.range((plan.id, 0)..=(plan.id, u32::MAX));
            let segment = Segment {
                drives,
                id: plan.id,
                data_shards: usize::from(plan.data_shards),
                slot_bytes: superblock.geometry.slot_bytes,
                shards: plan.shards.iter().map(|place| slot_of(superblock, present, place)).collect(),
                flushes: of_segment.map(|(_, flush)| flush).collect(),
            };
            segment.enter(state, flushes, &mut truth);
        }
        truth
    }

    fn enter(&mut self, segment: &Segment<'_>, flush: &FlushWritten, tabled: bool, untabled: Fate) {
        let answering = segment.shards.iter().flatten().count();
        let lacks = segment.data_shards.saturating_sub(answering);
        let pieces =
            flush.records.iter().flat_map(|entry| flush.fragments_of(entry).into_iter().map(move |it| (entry, it)));
        for (entry, (source, ranges)) in pieces {
            let fate = match tabled {
                false => untabled,
                true if ranges.is_empty() || segment.has_rows(flush, Some(&ranges)) => Fate::Readable,
                true => Fate::Told,
            };
            self.copies.entry(entry.key()).or_default().push(Copy {
                kind: entry.kind,
                source,
                segment: segment.id,
                flush: flush.header.flush,
                tabled,
                lacks,
                fate,
            });
        }
    }
}

fn slot_of(
    superblock: &Superblock,
    present: &BTreeSet<DriveNumber>,
    place: &forebay_format::ShardPlace,
) -> Option<(DriveNumber, u64)> {
    let entry = superblock.drives.iter().find(|entry| entry.number == place.drive)?;
    let offset = superblock.geometry.layout(entry.slots).slot_offset(place.slot);
    present.contains(&place.drive).then_some((place.drive, offset))
}

/// Lanes whose newest checkpoint names a segment that has a shard on `drive`: a start looks for it there.
pub(crate) fn lanes_that_name(
    drives: &Drives,
    present: &BTreeSet<DriveNumber>,
    superblock: &Superblock,
    drive: DriveNumber,
) -> Vec<u16> {
    let names_it = |lane: &u16| {
        let Some((_, body)) = newest_checkpoint(drives, present, superblock, *lane) else { return false };
        let live = body.live.iter().flat_map(|entry| &entry.shards);
        live.chain(body.planned.iter().flat_map(|plan| &plan.shards)).any(|place| place.drive == drive)
    };
    (0..superblock.geometry.lanes).filter(names_it).collect()
}

/// Start and number of the newest checkpoint on a member, and what it says.
fn newest_checkpoint(
    drives: &Drives,
    present: &BTreeSet<DriveNumber>,
    superblock: &Superblock,
    lane: u16,
) -> Option<((u64, u64), CheckpointBody)> {
    let members = superblock.drives.iter().filter(|entry| entry.state == forebay_format::DriveState::Member);
    let mut newest: Option<((u64, u64), CheckpointBody)> = None;
    for entry in members.filter(|entry| present.contains(&entry.number)) {
        for place in 0..PLACES {
            let at = superblock.geometry.layout(entry.slots).checkpoint_offset(lane, place);
            let read = |from: u64, bytes: u64| drives.bytes_at(entry.number, from..from + bytes);
            let Some(header) = read(at, BLOCK).and_then(|block| CheckpointHeader::decode(block).ok()) else { continue };
            if header.drive != entry.uuid || header.lane != lane || header.offset_bytes != at {
                continue;
            }
            let Some(body) = read(at + BLOCK, header.body_bytes.next_multiple_of(BLOCK)) else { continue };
            let found = (header.epoch, header.sequence);
            if let Ok(body) = CheckpointBody::decode(&header, &body[..header.body_bytes as usize])
                && newest.as_ref().is_none_or(|(known, _)| *known < found)
            {
                newest = Some((found, body));
            }
        }
    }
    newest
}

impl Segment<'_> {
    /// Enters what can be read of the segment, and what cannot.
    fn enter(&self, state: SegmentState, listed: u32, truth: &mut LaneTruth) {
        if state != SegmentState::Walk
            && let Some(told) = self.closing_table()
        {
            for flush in self.flushes.iter().filter(|flush| flush.header.flush < told) {
                truth.enter(self, flush, true, Fate::Told);
            }
            return;
        }
        let limit = (state != SegmentState::Open).then_some(listed);
        let (mut reached, mut durable) = (BTreeMap::new(), listed);
        for flush in &self.flushes {
            let number = flush.header.flush;
            if limit.is_some_and(|limit| number >= limit) {
                break;
            }
            match self.durable_in_headers(flush) {
                Some(known) => {
                    durable = durable.max(known);
                    reached.insert(number, flush);
                }
                // Nothing says that there is anything behind it.
                None if number >= durable => break,
                None => {}
            }
        }
        let durable = limit.unwrap_or(durable);
        let mut missing: BTreeSet<u32> = (0..durable).collect();
        for flush in self.flushes.iter().filter(|flush| limit.is_none_or(|limit| flush.header.flush < limit)) {
            let number = flush.header.flush;
            let is_durable = number < durable;
            let whole = reached.contains_key(&number) && self.has_rows(flush, None);
            let tabled = reached.contains_key(&number) && (whole || is_durable && self.has_table(flush));
            if tabled {
                missing.remove(&number);
            }
            truth.enter(self, flush, tabled, if is_durable { Fate::Told } else { Fate::Silent });
        }
        truth.flushes_missing.extend(missing.into_iter().map(|flush| (self.id, flush)));
    }

    /// The largest number of durable flushes that a header of this flush names; `None` when none is left.
    fn durable_in_headers(&self, flush: &FlushWritten) -> Option<u32> {
        let at = flush.header.units_offset_bytes - u64::from(flush.header.header_bytes);
        let headers = self.shards.iter().flatten().filter_map(|(drive, slot)| {
            let from = slot + at;
            let bytes = self.drives.bytes_at(*drive, from..from + u64::from(flush.header.header_bytes))?;
            let header = FlushHeader::decode(bytes).ok()?;
            (header.digest == flush.header.digest && header.offset_bytes == from).then_some(header.durable_flushes)
        });
        headers.max()
    }

    /// Whether the table of a flush that does not lie in its header can be put together.
    fn has_table(&self, flush: &FlushWritten) -> bool {
        let header = &flush.header;
        if header.has_inline_table() {
            return true;
        }
        let range = header.table_offset_bytes..header.table_offset_bytes + u64::from(header.table_bytes);
        let mut rows = header.geometry().locate(range.clone()).map(|extent| extent.row);
        rows.all(|row| self.has_row(header, row)) || self.has_bytes(header, range, header.table_crc)
    }

    /// Whether these bytes of the data lie there as they were written, whatever lies around them.
    fn has_bytes(&self, header: &FlushHeader, range: Range<u64>, crc: u32) -> bool {
        let mut bytes = Vec::new();
        for extent in header.geometry().locate(range) {
            let Some((drive, slot)) = self.shards[usize::from(extent.shard)] else { return false };
            let from = slot + header.units_offset_bytes + extent.offset_in_shard_bytes;
            let Some(part) = self.drives.bytes_at(drive, from..from + extent.bytes as u64) else { return false };
            bytes.extend_from_slice(part);
        }
        crc32c(&bytes) == crc
    }

    /// Whether the rows that hold these ranges, or all, have enough good units.
    fn has_rows(&self, flush: &FlushWritten, ranges: Option<&[Range<u64>]>) -> bool {
        let header = &flush.header;
        // Without a header nobody knows the sums.
        self.durable_in_headers(flush).is_some()
            && match ranges {
                Some(ranges) => {
                    let mut extents = ranges.iter().flat_map(|range| header.geometry().locate(range.clone()));
                    extents.all(|extent| self.has_row(header, extent.row))
                }
                None => (0..header.rows).all(|row| self.has_row(header, row)),
            }
    }

    fn has_row(&self, header: &FlushHeader, row: u32) -> bool {
        let geometry = header.geometry();
        let good = |(shard, place): (usize, &Option<(DriveNumber, u64)>)| {
            let Some((drive, slot)) = place else { return false };
            let begin = slot + header.units_offset_bytes;
            let from = begin + geometry.unit_offset_bytes(row);
            let unit = self.drives.bytes_at(*drive, from..from + u64::from(geometry.unit_bytes_of_row(row)));
            // A reader that wants several rows asks each drive for all of them at once.
            let readable = self.drives.bytes_at(*drive, begin..begin + geometry.shard_bytes()).is_some();
            readable
                && unit
                    .is_some_and(|unit| crc32c(unit) == header.unit_crcs[shard * header.rows as usize + row as usize])
        };
        self.shards.iter().enumerate().filter(|shard| good(*shard)).count() >= self.data_shards
    }

    /// How many flushes the closing flush tells of, when its table can be put together.
    fn closing_table(&self) -> Option<u32> {
        let at = self.slot_bytes - BLOCK;
        let found = self.shards.iter().flatten().filter_map(|(drive, slot)| {
            let bytes = self.drives.bytes_at(*drive, slot + at..slot + self.slot_bytes)?;
            let header = FlushHeader::decode(bytes).ok()?;
            let right = header.is_closing() && header.segment == self.id && header.offset_bytes == slot + at;
            right.then_some(header.digest)
        });
        let found: Vec<u128> = found.collect();
        let digest = found.iter().max_by_key(|digest| found.iter().filter(|other| other == digest).count())?;
        let written = self.drives.written.as_deref().expect("it is kept what is written");
        let closing = written.closings.get(&(self.id, *digest)).expect("whoever closed it handed it over");
        // All flushes that the segment had: one that misses some is not closed.
        self.has_row(closing, 0).then_some(closing.flush)
    }
}
