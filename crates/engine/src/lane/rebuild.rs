//! Making anew what lay on drives that are gone: the missing shards of segments in which something lives, nothing else.
//!
//! A segment that lost a shard gets a slot on a member that holds none of it. That slot is listed nowhere while it is filled: a crash leaves it
//! free, and the next start begins with this segment again. When every flush of the segment is there, the closing one last, the next checkpoint
//! lists the new place instead of the old, and when that is durable, the shard counts: for reads, for what may fail, for recovery. The
//! segment is pinned all the while, so that its new slot comes free only after nothing is written to it any more.
//!
//! Those segments come first that may lose least. With no more members than a segment has shards there is no drive to take what it lacks: it
//! waits for another one. What cannot be made from the drives that answer keeps its old place, so that a drive that comes back still helps; so does
//! a segment of which the start could not read everything, since nobody knows which flushes would have to be made.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use forebay_format::{SegmentId, SegmentState, ShardPlace};
use forebay_types::limits::BLOCK_BYTES;
use forebay_types::{DriveNumber, Time};

use super::Lane;
use super::background::Stepped;
use super::scrub::Mend;
use crate::api::RebuildStatus;
use crate::check::FlushPlace;
use crate::planted::{Planted, planted};
use crate::repair::{Repaired, Target, Wanted};
use crate::segments::{Segment, SegmentIndex};

/// What could not be made is tried again so often, if nothing was mended or changed before: reads may fail for a while.
const TRY_AGAIN: Duration = Duration::from_secs(600);

/// New places wait for a checkpoint until there are so many, or nothing else is to be rebuilt.
const MOVED_TOGETHER: usize = 4;

/// A segment that is being made whole.
struct Rebuilding {
    segment: SegmentIndex,
    /// The shards that it lacks, and where they are made.
    targets: Vec<(usize, ShardPlace)>,
    /// Flushes that are still to be made.
    left: VecDeque<FlushPlace>,
    running: usize,
    /// It cannot be ended; whether because something is missing that is needed for it.
    given_up: Option<bool>,
}

/// A segment that is whole again as soon as a checkpoint says where it lies.
struct Moved {
    segment: SegmentIndex,
    shards: Vec<ShardPlace>,
    /// The new places.
    targets: Vec<ShardPlace>,
    /// The checkpoint that is on its way lists it.
    listed: bool,
    /// One that did not become durable on all drives lists it: a start may find that, until there is a newer one.
    half_listed: bool,
}

/// What is to be made anew.
#[derive(Default)]
pub(super) struct Rebuild {
    /// Segments that lack shards, the most urgent first.
    queue: VecDeque<(SegmentIndex, SegmentId)>,
    /// The drives changed, or segments were closed or dropped: the queue is made anew.
    stale: bool,
    current: Option<Rebuilding>,
    moved: Vec<Moved>,
    /// New places that are not wanted any more, and that nothing else may have before the next checkpoint is durable.
    half_listed: Vec<Moved>,
    /// No slot was found for any of the queue when the slots had changed so often.
    no_slot_at: Option<u64>,
    /// Some segment, whether or not anything lives in it, lay on no member in part when it was last looked.
    lies_elsewhere: bool,
    /// Segments of which something is missing that could not be made.
    stuck: BTreeSet<SegmentId>,
    /// When the first of them was found to be.
    stuck_since: Option<Time>,
    /// Since the drives changed a checkpoint was begun, or has become durable, on those that are members now.
    listed: Listed,
    /// Of the shards that are missing, those for which there is a drive.
    shards_possible: usize,
    status: RebuildStatus,
}

/// Whether a checkpoint lies on the drives that are members now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Listed {
    #[default]
    No,
    OnItsWay,
    Yes,
}

#[cfg(test)]
impl Rebuild {
    /// The new places that the checkpoint on its way lists.
    pub(super) fn listed_places(&self) -> Vec<ShardPlace> {
        self.moved.iter().filter(|moved| moved.listed).flat_map(|moved| moved.targets.clone()).collect()
    }
}

impl Lane {
    /// A drive came or went, or a segment was closed, or dropped: what lacks shards is looked for anew.
    pub(super) fn look_for_missing_shards(&mut self) {
        self.background.rebuild.stale = true;
    }

    /// The drives of the store are others than before.
    pub(super) fn drives_changed(&mut self) {
        let rebuild = &mut self.background.rebuild;
        rebuild.stuck.clear();
        (rebuild.stale, rebuild.listed) = (true, Listed::No);
        self.compaction_may_try_all_again();
        if self.background.rebuild.current.as_ref().is_some_and(|c| !self.all_home(c.targets.iter().map(|t| t.1)))
            && let Some(current) = &mut self.background.rebuild.current
        {
            current.given_up = Some(false);
        }
        let moved = std::mem::take(&mut self.background.rebuild.moved);
        for one in moved {
            if one.listed || self.all_home(one.targets.iter().copied()) {
                self.background.rebuild.moved.push(one);
            } else if one.half_listed {
                self.background.rebuild.half_listed.push(one);
            } else {
                self.let_go(one.segment, &one.targets);
            }
        }
    }

    /// A drive that is written to.
    fn is_home(&self, drive: DriveNumber) -> bool {
        self.is_member(drive) && self.answers(drive)
    }

    fn all_home(&self, mut places: impl Iterator<Item = ShardPlace>) -> bool {
        places.all(|place| self.is_home(place.drive))
    }

    fn missing_shards(&self, segment: &Segment) -> Vec<usize> {
        let gone = |(_, place): &(usize, &ShardPlace)| !self.is_home(place.drive);
        segment.shards.iter().enumerate().filter(gone).map(|(shard, _)| shard).collect()
    }

    /// Whether a shard of a segment lies on no member.
    pub(super) fn lacks_shards(&self, segment: SegmentIndex) -> bool {
        !self.missing_shards(self.segments.get(segment)).is_empty()
    }

    /// A segment was looked at and what was damaged is being mended: what could not be made of it may be possible now.
    pub(super) fn try_stuck_again(&mut self, segment: SegmentIndex) {
        let id = self.segments.get(segment).id;
        self.compaction_may_try_again(id);
        if self.background.rebuild.stuck.remove(&id) {
            self.look_for_missing_shards();
        }
    }

    /// When what could not be made is tried again, whether or not anybody knows of a reason.
    pub(super) fn next_try(&self) -> Option<Time> {
        self.background.rebuild.stuck_since.map(|since| since + TRY_AGAIN)
    }

    pub(super) fn try_all_stuck_again(&mut self) {
        if self.next_try().is_some_and(|at| at <= self.now) {
            let rebuild = &mut self.background.rebuild;
            rebuild.stuck_since = None;
            rebuild.stale |= !rebuild.stuck.is_empty();
            rebuild.stuck.clear();
        }
    }

    pub(super) fn has_to_rebuild(&self) -> bool {
        let rebuild = &self.background.rebuild;
        let waits = rebuild.no_slot_at == Some(self.slots.changes());
        rebuild.stale || rebuild.current.is_some() || !rebuild.queue.is_empty() && !waits
    }

    fn queue_missing_shards(&mut self) {
        self.background.rebuild.stale = false;
        let listed: BTreeSet<SegmentIndex> = self.background.rebuild.moved.iter().map(|moved| moved.segment).collect();
        // One that was given up, as when the drives changed, is to be begun anew.
        let current = self.background.rebuild.current.as_ref().filter(|current| current.given_up.is_none());
        let current = current.map(|current| current.segment);
        let (mut queue, mut bytes, mut shards, mut possible) = (Vec::new(), 0, 0, 0);
        let members = self.members().len();
        let (mut lies_elsewhere, mut unreadable) = (false, Vec::new());
        for (index, segment) in self.segments.iter() {
            let missing = self.missing_shards(segment).len();
            lies_elsewhere |= missing > 0;
            let rests = segment.live_records > 0 && !segment.writing && segment.state != SegmentState::Open;
            if !rests || missing == 0 || listed.contains(&index) || current == Some(index) {
                continue;
            }
            shards += missing as u64;
            if segment.misses_below > 0 {
                unreadable.push(segment.id);
            } else {
                let left = segment.shards.len()
                    - missing
                    - usize::from(segment.data_shards).min(segment.shards.len() - missing);
                queue.push((left, segment.id.epoch, segment.id.counter, index, segment.id));
                possible += missing.min((members + missing).saturating_sub(segment.shards.len()));
                bytes += missing as u64 * segment.shard_bytes();
            }
        }
        queue.sort_unstable_by_key(|(left, epoch, counter, ..)| (*left, *epoch, *counter));
        let rebuild = &mut self.background.rebuild;
        (rebuild.shards_possible, rebuild.lies_elsewhere) = (possible, lies_elsewhere);
        if !unreadable.is_empty() {
            rebuild.stuck_since.get_or_insert(self.now);
            rebuild.stuck.extend(unreadable);
        }
        rebuild.queue = queue.into_iter().map(|(_, _, _, index, id)| (index, id)).collect();
        (rebuild.status.shards_missing, rebuild.status.bytes_left, rebuild.no_slot_at) = (shards, bytes, None);
    }

    /// Everything that lives lies on members, and what the newest checkpoint names does not: segments that were emptied since. A drive that is to be
    /// taken away waits for the next one.
    pub(super) fn rebuild_waits_for_checkpoint(&self) -> bool {
        let rebuild = &self.background.rebuild;
        if !rebuild.lies_elsewhere || rebuild.stale || rebuild.current.is_some() {
            return false;
        }
        let is_emptied = |index| self.segments.find(index).is_none_or(|segment| segment.live_records == 0);
        let is_done = rebuild.queue.iter().all(|(index, _)| is_emptied(*index));
        is_done && self.segments.droppable().into_iter().any(|index| self.lacks_shards(index))
    }

    /// Shards that are to be made anew on the members that there are.
    pub(super) fn shards_to_make(&self) -> usize {
        self.background.rebuild.shards_possible
    }

    /// Starts one step of a rebuild; whether there was one to start.
    pub(super) fn rebuild_on(&mut self) -> bool {
        if self.background.rebuild.stale {
            self.queue_missing_shards();
        }
        if self.background.rebuild.current.is_none() && !self.begin_rebuilding() {
            return false;
        }
        let current = self.background.rebuild.current.as_mut().expect("begun just now");
        let dead = self.segments.get(current.segment).live_records == 0;
        if dead && current.given_up.is_none() {
            current.given_up = Some(false);
        }
        let next = if current.given_up.is_none() { current.left.pop_front() } else { None };
        let Some(place) = next else {
            return self.end_rebuilding();
        };
        current.running += 1;
        let (segment, targets) = (current.segment, current.targets.clone());
        let targets: Vec<Target> = targets
            .into_iter()
            .map(|(shard, at)| Target {
                shard,
                drive: at.drive,
                uuid: self.drive_uuid(at.drive),
                slot_offset_bytes: self.slot_offset(at),
                units: Wanted::All,
                header: true,
            })
            .collect();
        self.start_step(segment, move |reader| async move {
            let repaired = reader.repair(place, &targets).await;
            Stepped::Rebuilt(place, repaired)
        });
        true
    }

    /// Takes the first segment for which there are slots.
    fn begin_rebuilding(&mut self) -> bool {
        if self.background.rebuild.no_slot_at == Some(self.slots.changes()) {
            return false;
        }
        // Those for which there is no slot go round: when there is none for any, the order is as it was.
        for _ in 0..self.background.rebuild.queue.len() {
            let Some((index, id)) = self.background.rebuild.queue.pop_front() else { break };
            let Some(segment) = self.segments.find(index).filter(|s| s.id == id && s.live_records > 0) else {
                continue;
            };
            if self.background.rebuild.stuck.contains(&id) || segment.writing {
                continue;
            }
            let missing = self.missing_shards(segment);
            let targets = self.slots_for(index, &missing);
            if targets.is_empty() {
                if !missing.is_empty() {
                    self.background.rebuild.queue.push_back((index, id));
                }
                continue;
            }
            self.segments.get_mut(index).pins += 1;
            if planted(Planted::RebuildIntoFreedSlot) {
                targets.iter().for_each(|(_, place)| self.slots.put_back(*place));
            }
            let mut left: VecDeque<FlushPlace> = self.flush_places(index).into();
            if planted(Planted::RebuildHalf) {
                left.truncate(left.len().div_ceil(2));
            }
            let current = Rebuilding { segment: index, targets, left, running: 0, given_up: None };
            self.background.rebuild.current = Some(current);
            break;
        }
        let rebuild = &mut self.background.rebuild;
        let begun = rebuild.current.is_some();
        // What is given back meanwhile is found by its number.
        rebuild.no_slot_at = (!begun && !rebuild.queue.is_empty()).then(|| self.slots.changes());
        begun
    }

    /// Slots for shards that a segment lacks, as far as there are some that nothing else needs more.
    fn slots_for(&mut self, index: SegmentIndex, missing: &[usize]) -> Vec<(usize, ShardPlace)> {
        let home = self.segments.get(index).shards.iter().map(|place| place.drive).filter(|drive| self.is_home(*drive));
        let mut others: Vec<DriveNumber> = home.collect();
        let mut targets = Vec::new();
        for shard in missing {
            let Some(before) = self.width().map(|width| self.space(width)) else { break };
            let Some(place) = self.slots.take_one(&others) else { break };
            // On a drive that has more free slots than the others, as one that has just come, a slot takes nothing from anybody.
            let left = self.width().map(|width| self.space(width));
            if !left.is_some_and(|left| left.has_reserve() || left.leaves_as_much_as(&before)) {
                self.slots.put_back(place);
                break;
            }
            others.push(place.drive);
            targets.push((*shard, place));
        }
        targets
    }

    /// The flushes of a segment in their order, the closing one last.
    pub(super) fn flush_places(&self, index: SegmentIndex) -> Vec<FlushPlace> {
        let segment = self.segments.get(index);
        let place = |span: &crate::segments::FlushSpan| FlushPlace {
            flush: Some(span.flush),
            offset_bytes: span.offset_bytes,
            header_bytes: span.header_bytes as usize,
        };
        let mut places: Vec<FlushPlace> = segment.flushes.iter().map(place).collect();
        if segment.has_closing_flush() {
            let offset_bytes = self.config.geometry.slot_bytes - BLOCK_BYTES as u64;
            places.push(FlushPlace { flush: None, offset_bytes, header_bytes: BLOCK_BYTES });
        }
        places
    }

    pub(super) fn flush_is_rebuilt(&mut self, segment: SegmentIndex, place: FlushPlace, repaired: Repaired) {
        let something_missing = (repaired.no_header || repaired.units_missing > 0) && !repaired.write_failed;
        // The flushes say what a closing flush does: where that cannot be made, a start reads them.
        let is_dispensable = place.flush.is_none() && something_missing;
        if is_dispensable {
            self.segments.get_mut(segment).state = SegmentState::Walk;
        } else if repaired.met_damage || repaired.no_header {
            self.mend_soon(segment, place.flush, Mend::Rebuild);
        }
        let rebuild = &mut self.background.rebuild;
        rebuild.status.bytes_read += repaired.bytes_read;
        rebuild.status.bytes_written += repaired.bytes_written;
        rebuild.status.bytes_left = rebuild.status.bytes_left.saturating_sub(repaired.bytes_written);
        self.counters.media_bytes_written += repaired.bytes_written;
        let current = rebuild.current.as_mut().expect("its steps come back before it ends");
        current.running -= 1;
        if !repaired.is_whole() && !is_dispensable {
            current.given_up = Some(something_missing && current.given_up != Some(false));
        }
        if current.running == 0 && (current.left.is_empty() || current.given_up.is_some()) {
            self.end_rebuilding();
        }
    }

    /// Ends the current segment when nothing of it is on its way; whether it did.
    fn end_rebuilding(&mut self) -> bool {
        let rebuild = &mut self.background.rebuild;
        let Some(current) = rebuild.current.take_if(|current| current.running == 0) else { return false };
        let Rebuilding { segment, targets, given_up, .. } = current;
        let places: Vec<ShardPlace> = targets.iter().map(|(_, place)| *place).collect();
        if let Some(something_missing) = given_up {
            if something_missing {
                rebuild.stuck_since.get_or_insert(self.now);
                rebuild.stuck.insert(self.segments.get(segment).id);
            }
            self.let_go(segment, &places);
            return true;
        }
        let mut shards = self.segments.get(segment).shards.clone();
        targets.iter().for_each(|(shard, place)| shards[*shard] = *place);
        if planted(Planted::RebuildUnlisted) {
            self.segments.move_shards(segment, shards.clone());
        }
        self.background.rebuild.moved.push(Moved {
            segment,
            shards,
            targets: places,
            listed: false,
            half_listed: false,
        });
        true
    }

    /// What was made for a segment is not wanted any more, and no checkpoint ever listed it.
    fn let_go(&mut self, segment: SegmentIndex, places: &[ShardPlace]) {
        self.segments.get_mut(segment).pins -= 1;
        self.slots.give_back(places);
    }

    /// Has a checkpoint list the new places, some together.
    pub(super) fn list_what_moved(&mut self) {
        let unlisted = self.background.rebuild.moved.iter().filter(|moved| !moved.listed).count();
        let last = self.background.rebuild.current.is_none();
        if unlisted >= MOVED_TOGETHER || unlisted > 0 && last {
            self.checkpointer.wanted = true;
        }
    }

    /// Where the shards of segments lie by the checkpoint that is written now, as far as they moved.
    pub(super) fn moved_shards(&mut self) -> BTreeMap<SegmentIndex, Vec<ShardPlace>> {
        let list = |moved: &mut Moved| {
            moved.listed = true;
            (moved.segment, moved.shards.clone())
        };
        let listed = &mut self.background.rebuild.listed;
        // What an earlier one lists is not in doubt while another is written.
        if *listed == Listed::No || planted(Planted::WholeTakenBack) {
            *listed = Listed::OnItsWay;
        }
        self.background.rebuild.moved.iter_mut().map(list).collect()
    }

    /// The checkpoint is durable, or it is not.
    pub(super) fn moves_are_durable(&mut self, durable: bool) {
        let moved = std::mem::take(&mut self.background.rebuild.moved);
        for mut one in moved {
            if !one.listed || !durable {
                one.half_listed |= one.listed;
                one.listed = false;
                self.background.rebuild.moved.push(one);
                continue;
            }
            let status = &mut self.background.rebuild.status;
            status.segments_rebuilt += 1;
            status.shards_missing = status.shards_missing.saturating_sub(one.targets.len() as u64);
            let possible = &mut self.background.rebuild.shards_possible;
            *possible = possible.saturating_sub(one.targets.len());
            self.segments.move_shards(one.segment, one.shards);
            self.segments.get_mut(one.segment).pins -= 1;
            if self.lacks_shards(one.segment) {
                self.look_for_missing_shards();
            }
        }
        if durable {
            // Those that are wanted again by now are listed by it, or stand in `moved` still.
            let gone = std::mem::take(&mut self.background.rebuild.half_listed);
            gone.into_iter().for_each(|one| self.let_go(one.segment, &one.targets));
        }
        let rebuild = &mut self.background.rebuild;
        if durable && rebuild.listed == Listed::OnItsWay {
            rebuild.listed = Listed::Yes;
        }
        if !durable {
            // Of those that are not listed any more, some may have lost their new place.
            self.drives_changed();
        }
    }

    /// What is missing and what is done about it.
    pub(super) fn rebuild_status(&self) -> RebuildStatus {
        let rebuild = &self.background.rebuild;
        let mut status = rebuild.status.clone();
        status.segments_waiting = rebuild.queue.len() as u64 + u64::from(rebuild.current.is_some());
        // One that was emptied, or mended, since it was found to be stuck lacks nothing any more.
        let is_stuck =
            |segment: &Segment| rebuild.stuck.contains(&segment.id) && !self.missing_shards(segment).is_empty();
        status.segments_stuck = match rebuild.stuck.is_empty() {
            true => 0,
            false => {
                self.segments.iter().filter(|(_, segment)| segment.live_records > 0 && is_stuck(segment)).count() as u64
            }
        };
        let none_waits = !rebuild.stale && status.segments_waiting == 0 && status.segments_stuck == 0;
        let lies_on_members = self.segments.by_drive().keys().all(|drive| self.is_home(*drive));
        let listed = rebuild.listed == Listed::Yes || planted(Planted::RebuildUnlisted);
        status.is_whole = self.is_serving() && none_waits && lies_on_members && listed;
        status.waits_for = match rebuild.queue.front() {
            Some((index, _)) if rebuild.no_slot_at.is_some() => {
                let shards = self.segments.find(*index).map_or(0, |segment| segment.shards.len());
                Some(if self.members().len() < shards { "a drive" } else { "space" })
            }
            _ => None,
        };
        status
    }
}
