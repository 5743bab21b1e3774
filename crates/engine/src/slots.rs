//! The free slots of a lane and the segments that are planned on them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use forebay_format::{Geometry, PlannedSegment, SegmentId, ShardPlace};
use forebay_types::DriveNumber;

use crate::planted::{Planted, planted};

/// How wide new segments are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Width {
    pub(crate) data: u8,
    pub(crate) parity: u8,
}

impl Width {
    pub(crate) fn shards(self) -> usize {
        usize::from(self.data) + usize::from(self.parity)
    }
}

/// Free slots, drive by drive, and the window of planned segments.
pub(crate) struct Slots {
    lane: u16,
    lanes: u16,
    free: BTreeMap<DriveNumber, BTreeSet<u32>>,
    total: BTreeMap<DriveNumber, u32>,
    /// Planned segments; those of the durable window come first.
    planned: VecDeque<PlannedSegment>,
    /// Slots of each drive that are planned.
    planned_on: BTreeMap<DriveNumber, usize>,
    durable: usize,
    /// Segments opened so far.
    opened: u64,
    /// One more each time the plans are forgotten.
    generation: u64,
    turn: usize,
    /// One more each time a slot may have come free.
    changes: u64,
    /// Slots in which nothing lies that is needed, where the media wants to be told.
    freed: Option<VecDeque<(DriveNumber, u32)>>,
}

/// The window as a checkpoint on its way has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowMark {
    generation: u64,
    end: u64,
}

impl Slots {
    pub(crate) fn new(lane: u16, lanes: u16) -> Self {
        Slots {
            freed: None,
            lane,
            lanes,
            free: BTreeMap::new(),
            total: BTreeMap::new(),
            planned: VecDeque::new(),
            planned_on: BTreeMap::new(),
            durable: 0,
            opened: 0,
            generation: 0,
            turn: 0,
            changes: 0,
        }
    }

    /// As [`Slots::new`]; what comes free is told by [`Slots::next_freed`].
    pub(crate) fn telling(self, is_wanted: bool) -> Self {
        Slots { freed: is_wanted.then(VecDeque::new), ..self }
    }

    /// The next slot that came free, to be told to its media before it is written to again.
    pub(crate) fn next_freed(&mut self) -> Option<(DriveNumber, u32)> {
        self.freed.as_mut()?.pop_front()
    }

    /// Makes the lane's slots of a drive known, free but for `used`.
    pub(crate) fn add_drive(&mut self, drive: DriveNumber, slots: u32, used: &BTreeSet<u32>) {
        let of_lane = (u32::from(self.lane)..slots).step_by(usize::from(self.lanes));
        self.total.insert(drive, u32::try_from(of_lane.clone().count()).expect("counted in u32"));
        let free: BTreeSet<u32> = of_lane.filter(|slot| !used.contains(slot)).collect();
        if let Some(freed) = &mut self.freed {
            freed.extend(free.iter().map(|slot| (drive, *slot)));
        }
        self.free.insert(drive, free);
        self.changes += 1;
    }

    /// A drive is out: nothing is planned on it any more. The plans are made anew.
    pub(crate) fn remove_drive(&mut self, drive: DriveNumber) {
        self.forget_plans();
        self.free.remove(&drive);
        self.total.remove(&drive);
    }

    /// Nothing is planned any more.
    pub(crate) fn forget_plans(&mut self) {
        self.planned_on.clear();
        for plan in self.planned.drain(..) {
            for place in &plan.shards {
                if let Some(free) = self.free.get_mut(&place.drive) {
                    free.insert(place.slot);
                }
            }
        }
        self.durable = 0;
        self.generation += 1;
        self.changes += 1;
    }

    /// The slots of a dropped segment are free again.
    pub(crate) fn give_back(&mut self, shards: &[ShardPlace]) {
        self.changes += 1;
        for place in shards {
            if let Some(free) = self.free.get_mut(&place.drive) {
                let new = free.insert(place.slot);
                if let Some(freed) = &mut self.freed {
                    freed.push_back((place.drive, place.slot));
                }
                let new = new || planted(Planted::RebuildIntoFreedSlot);
                assert!(new, "slot {} of drive {} is given back once", place.slot, place.drive);
            }
        }
    }

    /// Plans segments until `window` are planned, as far as there are slots.
    pub(crate) fn plan(
        &mut self,
        window: usize,
        width: Width,
        unit_bytes: u32,
        mut next_id: impl FnMut() -> SegmentId,
    ) {
        while self.planned.len() < window {
            let Some(shards) = self.take(width.shards()) else { return };
            shards.iter().for_each(|place| *self.planned_on.entry(place.drive).or_default() += 1);
            self.planned.push_back(PlannedSegment {
                id: next_id(),
                data_shards: width.data,
                parity_shards: width.parity,
                unit_bytes,
                shards,
            });
        }
    }

    /// One slot on each of the `count` drives with the most free ones; among equals the turn goes round, so that each drive
    /// holds data and parity shards in turn. Each lane begins at other drives, so that as far as there are drives no two lanes write to one at the
    /// same time.
    fn take(&mut self, count: usize) -> Option<Vec<ShardPlace>> {
        let mut drives: Vec<_> = self.free.iter().map(|(drive, free)| (*drive, free.len())).collect();
        if drives.is_empty() {
            return None;
        }
        let own_part = usize::from(self.lane) * drives.len() / usize::from(self.lanes);
        let start = (self.turn + own_part) % drives.len();
        drives.rotate_left(start);
        drives.sort_by_key(|(_, free)| std::cmp::Reverse(*free));
        drives.truncate(count);
        if drives.len() < count || drives.iter().any(|(_, free)| *free == 0) {
            return None;
        }
        self.turn += 1;
        let mut shards = Vec::with_capacity(count);
        for (drive, _) in drives {
            let slot = self.free.get_mut(&drive).and_then(BTreeSet::pop_first).expect("counted just now");
            shards.push(ShardPlace { drive, slot });
        }
        Some(shards)
    }

    /// The window as a checkpoint lists it.
    pub(crate) fn window(&self) -> Vec<PlannedSegment> {
        self.planned.iter().cloned().collect()
    }

    /// Remembers what a checkpoint lists.
    pub(crate) fn window_mark(&self) -> WindowMark {
        WindowMark { generation: self.generation, end: self.opened + self.planned.len() as u64 }
    }

    /// The checkpoint with this window is durable.
    pub(crate) fn window_is_durable(&mut self, mark: WindowMark) {
        if mark.generation == self.generation {
            self.durable = (mark.end - self.opened) as usize;
        }
    }

    /// The next segment of the durable window.
    pub(crate) fn open_next(&mut self) -> Option<PlannedSegment> {
        if self.durable == 0 {
            return None;
        }
        self.durable -= 1;
        self.opened += 1;
        let next = self.planned.pop_front()?;
        for place in &next.shards {
            *self.planned_on.get_mut(&place.drive).expect("counted when it was planned") -= 1;
        }
        Some(next)
    }

    /// A segment that no checkpoint lists.
    pub(crate) fn open_unlisted(
        &mut self,
        width: Width,
        unit_bytes: u32,
        next_id: impl FnOnce() -> SegmentId,
    ) -> Option<PlannedSegment> {
        let shards = self.take(width.shards())?;
        Some(PlannedSegment { id: next_id(), data_shards: width.data, parity_shards: width.parity, unit_bytes, shards })
    }

    /// A slot for a shard that is made anew, on the drive with the most free ones that is none of `others`.
    pub(crate) fn take_one(&mut self, others: &[DriveNumber]) -> Option<ShardPlace> {
        let drives = self.free.iter_mut().filter(|(drive, free)| !others.contains(drive) && !free.is_empty());
        let (drive, free) = drives.max_by_key(|(_, free)| free.len())?;
        free.pop_first().map(|slot| ShardPlace { drive: *drive, slot })
    }

    /// A slot that was taken just now is not needed.
    pub(crate) fn put_back(&mut self, place: ShardPlace) {
        self.free.entry(place.drive).or_default().insert(place.slot);
    }

    /// Another number than before when a slot may have come free since.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn durable_window(&self) -> usize {
        self.durable
    }

    pub(crate) fn planned(&self) -> usize {
        self.planned.len()
    }

    /// Segments of `shards` shards that the free slots allow beside the planned ones.
    pub(crate) fn plannable(&self, shards: usize) -> usize {
        segments_on(self.free.values().map(BTreeSet::len), shards)
    }

    /// Segments that can be opened although the drives fail that may: as many as `width` has parities. What is planned counts as free,
    /// and segments grow narrower when there are not enough drives for their width, down to `data_min`.
    pub(crate) fn left_after_losses(&self, width: Width, data_min: u8) -> usize {
        after_losses(self.free_with_plans().map(|(_, free)| free).collect(), width, data_min)
    }

    /// Segments that can be opened so that what lies on any one drive could still be made anew on the others, `missing` more shards being to be
    /// made anyway. With no more drives than a segment has shards that needs a further drive, which brings its own slots: nothing is kept for it.
    pub(crate) fn left_after_rebuild(&self, width: Width, missing: usize) -> usize {
        // What is planned is not used yet.
        let drive = |(drive, free): (&DriveNumber, usize)| (self.total[drive] as usize - free, free);
        let mut drives: Vec<(usize, usize)> = self.free_with_plans().map(drive).collect();
        let mut to_make = missing;
        if drives.len() > width.shards() {
            drives.sort_unstable();
            to_make += drives.pop().expect("there are drives").0;
        }
        let free = drives.iter().map(|(_, free)| *free);
        let room = free.clone().sum::<usize>().saturating_sub(to_make) / width.shards();
        segments_on(free, width.shards()).min(room)
    }

    /// Free slots of each drive, those that are planned among them.
    fn free_with_plans(&self) -> impl Iterator<Item = (&DriveNumber, usize)> + '_ {
        let planned = |drive| self.planned_on.get(drive).copied().unwrap_or_default();
        self.free.iter().map(move |(drive, free)| (drive, free.len() + planned(drive)))
    }

    /// The same of a lane in which nothing is stored.
    pub(crate) fn total_after_losses(&self, width: Width, data_min: u8) -> usize {
        after_losses(self.total.values().map(|slots| *slots as usize).collect(), width, data_min)
    }

    /// All slots of the lane.
    pub(crate) fn total(&self) -> u64 {
        self.total.values().map(|t| u64::from(*t)).sum()
    }

    /// Slots of the lane that are free or planned, and all of them.
    pub(crate) fn occupancy(&self) -> (u64, u64) {
        let free: u64 = self.free.values().map(|f| f.len() as u64).sum();
        let planned: u64 = self.planned.iter().map(|p| p.shards.len() as u64).sum();
        (free + planned, self.total())
    }
}

/// Segments of full width for which an empty store has room on drives with so many slots, whichever of them fail that may; the reserve of each
/// lane is among them.
pub fn segments_after_losses(slots: &[u32], geometry: &Geometry) -> u64 {
    let width = Width { data: geometry.data_shards, parity: geometry.parity_shards };
    let of_lane = |lane: u16| {
        let mut all = Slots::new(lane, geometry.lanes);
        for (drive, slots) in (0..).zip(slots) {
            all.add_drive(DriveNumber(drive), *slots, &BTreeSet::new());
        }
        all.total_after_losses(width, geometry.data_shards_min) as u64
    };
    (0..geometry.lanes).map(of_lane).sum()
}

/// Segments on drives with so many free slots, whichever of them fail that may.
fn after_losses(mut free: Vec<usize>, width: Width, data_min: u8) -> usize {
    free.sort_unstable_by_key(|free| std::cmp::Reverse(*free));
    let left = |losses: usize| {
        let free = free.get(losses..)?;
        let data = free.len().checked_sub(usize::from(width.parity))?.min(usize::from(width.data));
        (data >= usize::from(data_min)).then(|| segments_on(free.iter().copied(), data + usize::from(width.parity)))
    };
    (0..=usize::from(width.parity)).map_while(left).min().unwrap_or(0)
}

/// Segments of `shards` shards on drives with so many free slots: the largest s for which the drives have s * shards slots when each
/// gives at most s.
fn segments_on(free: impl Iterator<Item = usize> + Clone, shards: usize) -> usize {
    let fits = |s: usize| free.clone().map(|free| free.min(s)).sum::<usize>() >= s * shards;
    let (mut low, mut high) = (0, free.clone().sum::<usize>() / shards.max(1));
    while low < high {
        let middle = (low + high).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(drives: u16, each: u32) -> Slots {
        let mut slots = Slots::new(0, 1);
        for drive in 0..drives {
            slots.add_drive(DriveNumber(drive), each, &BTreeSet::new());
        }
        slots
    }

    fn ids() -> impl FnMut() -> SegmentId {
        let mut counter = 0;
        move || {
            counter += 1;
            SegmentId { epoch: 1, nonce: 2, counter }
        }
    }

    #[test]
    fn only_the_durable_window_is_opened() {
        let mut slots = slots(5, 10);
        slots.plan(2, Width { data: 4, parity: 1 }, 4096, ids());
        assert!(slots.open_next().is_none(), "no checkpoint lists it yet");
        let mark = slots.window_mark();
        slots.plan(4, Width { data: 4, parity: 1 }, 4096, ids());
        slots.window_is_durable(mark);
        assert!(slots.open_next().is_some() && slots.open_next().is_some());
        assert!(slots.open_next().is_none());
        assert_eq!(slots.planned(), 2);
    }

    #[test]
    fn every_slot_is_planned_once_and_the_first_shard_goes_round() {
        let mut slots = slots(6, 5);
        assert_eq!(slots.plannable(5), 6);
        slots.plan(100, Width { data: 4, parity: 1 }, 4096, ids());
        let plans = slots.window();
        assert_eq!(plans.len(), 6, "30 slots in segments of 5");
        let places: BTreeSet<_> = plans.iter().flat_map(|p| &p.shards).map(|p| (p.drive, p.slot)).collect();
        assert_eq!(places.len(), 30);
        let firsts: BTreeSet<_> = plans.iter().map(|p| p.shards[0].drive).collect();
        assert!(firsts.len() > 1, "parity does not lie on one drive alone");
        assert_eq!(slots.plannable(5), 0);
    }

    #[test]
    fn losing_a_drive_gives_the_planned_slots_of_the_others_back() {
        let mut slots = slots(5, 4);
        slots.plan(4, Width { data: 4, parity: 1 }, 4096, ids());
        let mark = slots.window_mark();
        slots.remove_drive(DriveNumber(2));
        slots.window_is_durable(mark);
        assert_eq!((slots.planned(), slots.durable_window()), (0, 0));
        assert_eq!(slots.plannable(4), 4);
    }

    #[test]
    fn what_is_left_counts_the_drives_that_may_fail() {
        let width = Width { data: 4, parity: 1 };
        let mut five = slots(5, 6);
        assert_eq!(five.left_after_losses(width, 2), 6, "without a drive, six of four shards");
        five.plan(4, width, 4096, ids());
        assert_eq!(five.left_after_losses(width, 2), 6, "what is planned is not used");
        assert_eq!(five.left_after_losses(width, 4), 6, "fewer drives than that write nothing");
        let mut ten = Slots::new(0, 1);
        for drive in 0..10 {
            ten.add_drive(DriveNumber(drive), 1, &BTreeSet::new());
        }
        assert_eq!((ten.plannable(5), ten.left_after_losses(width, 2)), (2, 1));
    }

    #[test]
    fn room_is_kept_for_what_lies_on_one_drive() {
        let width = Width { data: 4, parity: 1 };
        let mut five = slots(5, 10);
        assert_eq!(five.left_after_rebuild(width, 0), 10, "a further drive brings its own slots");
        assert_eq!(five.left_after_rebuild(width, 12), 7, "what is missing takes room");
        five.plan(4, width, 4096, ids());
        assert_eq!(five.left_after_rebuild(width, 0), 10, "what is planned is not used");
        let mut six = slots(6, 10);
        let mut taken = 0;
        while six.left_after_rebuild(width, 0) > 0 {
            assert!(six.open_unlisted(width, 4096, || SegmentId { epoch: 1, nonce: 2, counter: 3 }).is_some());
            taken += 1;
        }
        // Of 60 slots those of one drive are kept.
        assert!((9..=10).contains(&taken), "{taken} segments of 5 shards");
    }

    #[test]
    fn lanes_write_to_drives_of_their_own_as_far_as_there_are() {
        const LANES: u16 = 6;
        let mut lanes: Vec<Slots> = (0..LANES).map(|lane| Slots::new(lane, LANES)).collect();
        for slots in &mut lanes {
            (0..60).for_each(|drive| slots.add_drive(DriveNumber(drive), 60, &BTreeSet::new()));
            slots.plan(4, Width { data: 8, parity: 2 }, 4096, ids());
        }
        // The first segments of all lanes, then the second ones.
        for turn in 0..4 {
            let drives: BTreeSet<_> =
                lanes.iter().flat_map(|slots| slots.window()[turn].shards.clone()).map(|place| place.drive).collect();
            assert_eq!(drives.len(), 60, "in turn {turn}");
        }
    }

    #[test]
    fn lanes_share_no_slot() {
        let mut seen = BTreeSet::new();
        for lane in 0..3 {
            let mut slots = Slots::new(lane, 3);
            slots.add_drive(DriveNumber(0), 10, &BTreeSet::new());
            slots.plan(100, Width { data: 1, parity: 0 }, 4096, ids());
            for plan in slots.window() {
                assert!(seen.insert(plan.shards[0].slot));
            }
        }
        assert_eq!(seen.len(), 10);
    }
}
