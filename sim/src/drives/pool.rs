//! What slots lie on when the one drive of a store stands for the pools of a cluster: objects that grow by whole appends, and are found again by their names alone. Which objects hold what
//! is the product's own (`forebay-media-rados`); here is what a cluster does with them.

use std::collections::BTreeMap;

use forebay_media::{Completion, MediaError, OperationId};
use forebay_media_rados::{Birth, ExtentName, SlotMap, WriteTarget};
use forebay_types::{DriveNumber, Time};

use super::{Drives, Memory};
use crate::faults::Fault;
use crate::random::Random;

/// What an append is a multiple of.
pub(crate) const STRIPE_BYTES: usize = 8 << 10;
/// So long an operation may take that nobody waits for any more.
const LATE_MILLIS: std::ops::Range<u64> = 1..3000;
/// Of a thousand objects that are taken away so many go a while later.
const REMOVED_LATE_PER_MILLE: u64 = 300;

struct Object {
    name: ExtentName,
    bytes: Vec<u8>,
}

/// An operation that nobody waits for.
enum Late {
    Write { target: WriteTarget, bytes: Vec<u8> },
    Remove(Birth),
}

/// The objects of a store's slots, and what its present owner knows of them.
pub(super) struct Pool {
    slots_offset: u64,
    slot_bytes: u64,
    /// The present owner's.
    map: SlotMap,
    epoch: u64,
    objects: BTreeMap<Birth, Object>,
    /// When the last operation on an object is over: they come in their order.
    last_due: BTreeMap<Birth, Time>,
    late: Vec<(Time, Late)>,
    /// Until then nothing is answered.
    pub(super) blocked_until: Time,
    /// The present owner is on the blocklist.
    is_fenced: bool,
    /// Others fill it.
    is_filled: bool,
    /// Operations of a fenced owner that came when there was another.
    pub(super) landed: u64,
}

impl Pool {
    pub(super) fn new(slots_offset: u64, slot_bytes: u64) -> Pool {
        Pool {
            slots_offset,
            slot_bytes,
            map: SlotMap::new(slot_bytes, STRIPE_BYTES as u64, 1),
            epoch: 1,
            objects: BTreeMap::new(),
            last_due: BTreeMap::new(),
            late: Vec::new(),
            blocked_until: Time(0),
            is_fenced: false,
            is_filled: false,
            landed: 0,
        }
    }

    fn place(&self, offset: u64) -> (u32, u64) {
        let in_slots = offset - self.slots_offset;
        ((in_slots / self.slot_bytes) as u32, in_slots % self.slot_bytes)
    }

    /// Where a write goes, and when it is over at the soonest; nothing of what lies before the slots.
    pub(super) fn submit(&mut self, offset: u64, bytes: usize, due: Time) -> (Option<WriteTarget>, Time) {
        if offset < self.slots_offset {
            return (None, due);
        }
        let (slot, in_slot) = self.place(offset);
        let target = self.map.plan_write(slot, in_slot, bytes as u64);
        let last = self.last_due.entry(target.name.birth).or_default();
        *last = (*last).max(due);
        (Some(target), *last)
    }

    /// Nothing is over before then.
    pub(super) fn wait_until(&mut self, until: Time) {
        self.last_due.values_mut().for_each(|last| *last = (*last).max(until));
    }

    /// A write of the present owner is over.
    pub(super) fn write(&mut self, target: WriteTarget, bytes: &[u8]) {
        let arrived = self.arrive(target, bytes);
        assert!(arrived, "{} of {} bytes is no append at {}", target.name, bytes.len(), target.object_offset);
        self.map.written(target.name, target.name.begin + target.object_offset + bytes.len() as u64);
    }

    /// It came to nothing.
    pub(super) fn failed(&mut self, target: WriteTarget) {
        self.map.failed(target.name);
    }

    /// An erasure-coded pool takes appends alone.
    fn arrive(&mut self, target: WriteTarget, bytes: &[u8]) -> bool {
        let size = self.objects.get(&target.name.birth).map_or(0, |object| object.bytes.len() as u64);
        if size != target.object_offset {
            return false;
        }
        let object = self.objects.entry(target.name.birth);
        object.or_insert_with(|| Object { name: target.name, bytes: Vec::new() }).bytes.extend_from_slice(bytes);
        true
    }

    /// What the present owner reads; what was never written is zero.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) {
        into.fill(0);
        let (slot, in_slot) = self.place(offset);
        let end = in_slot + into.len() as u64;
        assert!(end <= self.slot_bytes, "a read within a slot");
        for piece in self.map.plan_read(slot, in_slot..end) {
            let Some(object) = self.objects.get(&piece.name.birth) else { continue };
            let from = (piece.object_offset as usize).min(object.bytes.len());
            let to = (from + piece.at.len()).min(object.bytes.len());
            into[piece.at.start..][..to - from].copy_from_slice(&object.bytes[from..to]);
        }
    }

    /// The present owner needs nothing of a slot any more.
    pub(super) fn discard(&mut self, offset: u64, now: Time, random: &mut Random) {
        let (slot, _) = self.place(offset);
        for name in self.map.discard(slot) {
            if random.per_mille(REMOVED_LATE_PER_MILLE) {
                self.late.push((now + random.millis(LATE_MILLIS), Late::Remove(name.birth)));
            } else {
                self.objects.remove(&name.birth);
            }
        }
    }

    /// A write of an owner that is gone: it came, or it did not, or, where `late`, it comes when there is another owner. Whether it comes late.
    pub(super) fn leave(
        &mut self,
        target: WriteTarget,
        bytes: &[u8],
        (now, late): (Time, bool),
        random: &mut Random,
    ) -> bool {
        match random.below(if late { 3 } else { 2 }) {
            0 => false,
            1 => {
                self.arrive(target, bytes);
                false
            }
            _ => {
                // In the order of the object.
                let others = self
                    .late
                    .iter()
                    .filter(|(_, late)| matches!(late, Late::Write { target: other, .. } if other.name == target.name));
                let after = others.map(|(at, _)| *at).max().unwrap_or(now);
                let write = Late::Write { target, bytes: bytes.to_vec() };
                self.late.push((after.max(now + random.millis(LATE_MILLIS)), write));
                true
            }
        }
    }

    /// The owner is gone, and so are some of the removals that it had begun; how many are left.
    pub(super) fn owner_is_gone(&mut self, random: &mut Random) -> usize {
        self.late.retain(|(_, late)| matches!(late, Late::Write { .. }) || random.per_mille(500));
        let left = self.late.iter().filter(|(_, late)| matches!(late, Late::Remove(_))).count();
        self.last_due.clear();
        self.is_fenced = false;
        left
    }

    /// Another owner has the store: all that it knows is the names.
    pub(super) fn own_anew(&mut self, now: Time) {
        self.deliver(now);
        self.epoch += 1;
        self.map = SlotMap::new(self.slot_bytes, STRIPE_BYTES as u64, self.epoch);
        let names: Vec<ExtentName> = self.objects.values().map(|object| object.name).collect();
        for unneeded in self.map.load(names) {
            self.objects.remove(&unneeded.birth);
        }
    }

    /// What comes late comes.
    pub(super) fn deliver(&mut self, now: Time) {
        let mut due: Vec<(Time, Late)> = self.late.extract_if(.., |(at, _)| *at <= now).collect();
        due.sort_by_key(|(at, _)| *at);
        for (_, late) in due {
            let of = match &late {
                Late::Write { target, .. } => target.name.birth,
                Late::Remove(birth) => *birth,
            };
            self.landed += u64::from(of.epoch < self.epoch);
            match late {
                Late::Write { target, bytes } => drop(self.arrive(target, &bytes)),
                Late::Remove(birth) => drop(self.objects.remove(&birth)),
            }
        }
    }
}

impl Drives {
    /// The one drive stands for the pools of a cluster, with slots of so many bytes.
    pub(crate) fn are_a_pool(&mut self, slot_bytes: u64) {
        self.pool = Some(Pool::new(self.slots_offset, slot_bytes));
    }

    /// Another process has the store.
    pub(crate) fn own_anew(&mut self, now: Time) {
        if let Some(pool) = &mut self.pool {
            pool.own_anew(now);
        }
    }

    /// Nothing is answered until then.
    pub(crate) fn block(&mut self, until: Time) {
        let Some(pool) = &mut self.pool else { return };
        pool.blocked_until = pool.blocked_until.max(until);
        self.counts.fire_and_meet(Fault::PoolBlocks);
        for (due, serial) in std::mem::take(&mut self.due) {
            self.due.insert((due.max(until), serial));
        }
        let pool = self.pool.as_mut().expect("there is one");
        pool.wait_until(until);
    }

    /// Everything of the present owner is refused from now on.
    pub(crate) fn fence(&mut self) {
        if let Some(pool) = &mut self.pool {
            pool.is_fenced = true;
            self.counts.fire(Fault::Fenced);
        }
    }

    /// Whether that is so: then nothing is answered to anybody.
    pub(crate) fn is_fenced(&self) -> bool {
        self.pool.as_ref().is_some_and(|pool| pool.is_fenced)
    }

    /// Whether others fill the pool: for a while, and then they make room again.
    pub(crate) fn is_filled_by_others(&mut self, now: Time) -> bool {
        let is_filled = self.enabled.contains(&Fault::PoolFull) && (now.0 / 300_000_000).is_multiple_of(7);
        let Some(pool) = &mut self.pool else { return false };
        if is_filled && !std::mem::replace(&mut pool.is_filled, is_filled) {
            self.counts.fire_and_meet(Fault::PoolFull);
        }
        pool.is_filled = is_filled;
        is_filled
    }

    /// A cluster takes away what lies in a slot that is free.
    pub(crate) fn discard(&mut self, now: Time, offset: u64) {
        let pool = self.pool.as_mut().expect("who tells what is free stands on one");
        pool.discard(offset, now, &mut self.random);
    }

    /// What a cluster answers whoever is on its blocklist.
    pub(super) fn refused(&mut self, id: OperationId, memory: Memory, target: Option<WriteTarget>) -> Completion {
        if let (Some(pool), Some(target)) = (&mut self.pool, target) {
            pool.failed(target);
        }
        let buffer = if let Memory::Read(buffer) = memory { Some(buffer) } else { None };
        Completion { id, result: Err(MediaError::Injected), buffer }
    }

    /// What lies there.
    pub(super) fn read(&self, drive: DriveNumber, offset: u64, into: &mut [u8]) {
        match self.pool.as_ref().filter(|_| offset >= self.slots_offset) {
            Some(pool) => pool.read(offset, into),
            None => into.copy_from_slice(&self.drives[&drive].contents[offset as usize..][..into.len()]),
        }
    }
}
