//! Which objects of a pool hold what of a slot. No I/O.
//!
//! An erasure-coded pool takes appends alone, in multiples of its stripe. So a slot is one object that grows by one append a flush, and where a write does
//! not continue it (the closing flush at the slot's end, or what follows an append that was no multiple) a further object begins. Each is an *extent*:
//! its name says the slot, the owner that made it, and where in the slot it begins:
//!
//! ```text
//! SLOT.EPOCH.SERIAL.BEGIN          it ends where it ends, or where a later one begins
//! SLOT.EPOCH.SERIAL.BEGIN.END      written at once, over what older ones hold, or before them
//! ```
//!
//! all in hexadecimal. EPOCH and SERIAL say which is newer, so that a list of names is all that a new owner needs: nothing that an earlier owner still
//! writes has a name that counts for more, or one that the new owner gives to its own.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;

use crate::planted::{Planted, planted};

/// When an extent was begun: by the owner of which epoch, as its how-manieth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Birth {
    /// One more with each owner.
    pub epoch: u64,
    /// One more with each extent of an owner.
    pub serial: u64,
}

/// The name of an extent's object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentName {
    /// The slot.
    pub slot: u32,
    /// When it was begun.
    pub birth: Birth,
    /// In bytes from the slot's start.
    pub begin: u64,
    /// Where it ends, when that was known from the beginning.
    pub end: Option<u64>,
}

impl fmt::Display for ExtentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ExtentName { slot, birth: Birth { epoch, serial }, begin, end } = self;
        write!(f, "{slot:x}.{epoch:x}.{serial:x}.{begin:x}")?;
        end.map_or(Ok(()), |end| write!(f, ".{end:x}"))
    }
}

impl ExtentName {
    /// What a name says; `None` when it is not one of these.
    pub fn parse(name: &str) -> Option<ExtentName> {
        let number = |text: &str| {
            let is_plain = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            let is_short = text == "0" || !text.starts_with('0');
            (is_plain && is_short).then(|| u64::from_str_radix(text, 16).ok()).flatten()
        };
        let numbers: Vec<u64> = name.splitn(6, '.').map(number).collect::<Option<_>>()?;
        let (first, end) = match numbers[..] {
            [a, b, c, d] => ([a, b, c, d], None),
            [a, b, c, d, end] if end > d => ([a, b, c, d], Some(end)),
            _ => return None,
        };
        let [slot, epoch, serial, begin] = first;
        Some(ExtentName { slot: u32::try_from(slot).ok()?, birth: Birth { epoch, serial }, begin, end })
    }
}

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteTarget {
    /// The object.
    pub name: ExtentName,
    /// In bytes from the object's start.
    pub object_offset: u64,
    /// The object is made by this write.
    pub is_new: bool,
}

/// A part of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadPiece {
    /// The object.
    pub name: ExtentName,
    /// In bytes from the object's start.
    pub object_offset: u64,
    /// Where in the reader's buffer.
    pub at: Range<usize>,
}

struct Extent {
    name: ExtentName,
    /// Where what may be read ends.
    end: u64,
    /// Where it ends when all that is on its way has arrived.
    submitted_end: u64,
    /// What begins there is appended.
    takes_appends: bool,
}

/// The extents of all slots.
pub struct SlotMap {
    slot_bytes: u64,
    /// What an append must be a multiple of, unless it is the last one.
    append_bytes: u64,
    epoch: u64,
    next_serial: u64,
    slots: BTreeMap<u32, Vec<Extent>>,
}

impl SlotMap {
    /// No slot holds anything. What is begun from now on is of `epoch`.
    pub fn new(slot_bytes: u64, append_bytes: u64, epoch: u64) -> Self {
        let epoch = if planted(Planted::EpochNotInNames) { 0 } else { epoch };
        SlotMap { slot_bytes, append_bytes, epoch, next_serial: 0, slots: BTreeMap::new() }
    }

    /// Takes in what a list of all names says. Gives what nothing is read of any more.
    pub fn load(&mut self, names: impl IntoIterator<Item = ExtentName>) -> Vec<ExtentName> {
        let mut slots: HashMap<u32, Vec<ExtentName>> = HashMap::new();
        names.into_iter().for_each(|name| slots.entry(name.slot).or_default().push(name));
        let mut unneeded = Vec::new();
        for (slot, mut names) in slots {
            names.sort_unstable_by_key(|name| std::cmp::Reverse(name.birth));
            if planted(Planted::OlderObjectRead) {
                names.reverse();
            }
            let mut extents: Vec<Extent> = Vec::new();
            let mut open_end = self.slot_bytes;
            for name in names {
                let end = name.end.unwrap_or(open_end);
                if name.end.is_none() {
                    open_end = open_end.min(name.begin);
                }
                let hidden = end <= name.begin || is_covered(&extents, name.begin..end);
                if hidden {
                    unneeded.push(name);
                } else {
                    extents.push(Extent { name, end, submitted_end: end, takes_appends: false });
                }
            }
            extents.reverse();
            self.slots.insert(slot, extents);
        }
        unneeded
    }

    /// Where a write to a slot goes. It is read from there once [`SlotMap::written`] was told.
    pub fn plan_write(&mut self, slot: u32, offset: u64, bytes: u64) -> WriteTarget {
        let extents = self.slots.entry(slot).or_default();
        let end = offset + bytes;
        // Only what lies behind all else may end where a name does not say: so a list of names says what is where.
        let is_behind_all = extents.iter().all(|extent| extent.submitted_end <= offset);
        let whole = |begin: u64| is_behind_all && (end - begin).is_multiple_of(self.append_bytes);
        let continues = |extent: &&mut Extent| is_behind_all && extent.takes_appends && extent.submitted_end == offset;
        if let Some(last) = extents.last_mut().filter(continues) {
            (last.submitted_end, last.takes_appends) = (end, whole(last.name.begin));
            return WriteTarget { name: last.name, object_offset: offset - last.name.begin, is_new: false };
        }
        let birth = Birth { epoch: self.epoch, serial: self.next_serial };
        self.next_serial += 1;
        let name = ExtentName { slot, birth, begin: offset, end: (!is_behind_all).then_some(end) };
        extents.push(Extent { name, end: offset, submitted_end: end, takes_appends: whole(offset) });
        WriteTarget { name, object_offset: 0, is_new: true }
    }

    /// A write that went to `name` is durable up to `end` of the slot.
    pub fn written(&mut self, name: ExtentName, end: u64) {
        if let Some(extent) = self.extent(name) {
            extent.end = extent.end.max(end);
        }
    }

    /// A write that went to `name` failed: nothing more is appended there, since nobody knows where that would come to lie.
    pub fn failed(&mut self, name: ExtentName) {
        if let Some(extent) = self.extent(name) {
            extent.takes_appends = false;
        }
    }

    /// The objects that hold a range of a slot. What none holds was never written.
    pub fn plan_read(&self, slot: u32, range: Range<u64>) -> Vec<ReadPiece> {
        let mut pieces = Vec::new();
        let mut missing = vec![range.clone()];
        for extent in self.slots.get(&slot).into_iter().flatten().rev() {
            let has = extent.name.begin..extent.end;
            let mut rest = Vec::new();
            for part in missing {
                let common = part.start.max(has.start)..part.end.min(has.end);
                if common.is_empty() {
                    rest.push(part);
                    continue;
                }
                rest.extend([part.start..common.start, common.end..part.end].into_iter().filter(|r| !r.is_empty()));
                let at = (common.start - range.start) as usize..(common.end - range.start) as usize;
                pieces.push(ReadPiece { name: extent.name, object_offset: common.start - extent.name.begin, at });
            }
            missing = rest;
            if missing.is_empty() {
                break;
            }
        }
        pieces
    }

    /// Forgets what a slot holds; gives the objects that held it.
    pub fn discard(&mut self, slot: u32) -> Vec<ExtentName> {
        self.slots.remove(&slot).into_iter().flatten().map(|extent| extent.name).collect()
    }

    /// Forgets what all slots hold; gives the objects that held it.
    pub fn discard_all(&mut self) -> Vec<ExtentName> {
        std::mem::take(&mut self.slots).into_values().flatten().map(|extent| extent.name).collect()
    }

    fn extent(&mut self, name: ExtentName) -> Option<&mut Extent> {
        self.slots.get_mut(&name.slot)?.iter_mut().find(|extent| extent.name.birth == name.birth)
    }
}

/// Whether newer extents hold all of a range.
fn is_covered(extents: &[Extent], range: Range<u64>) -> bool {
    let mut missing = vec![range];
    for extent in extents {
        missing = missing
            .into_iter()
            .flat_map(|part| [part.start..part.end.min(extent.name.begin), part.start.max(extent.end)..part.end])
            .filter(|part| !part.is_empty())
            .collect();
    }
    missing.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SLOT_BYTES: u64 = 64;
    const STRIPE: u64 = 8;

    /// A pool whose objects take appends alone, and a slot as it should be.
    struct World {
        map: SlotMap,
        objects: BTreeMap<String, Vec<u8>>,
        expected: Vec<u8>,
        writes: u8,
    }

    impl World {
        fn new() -> Self {
            let map = SlotMap::new(SLOT_BYTES, STRIPE, 1);
            World { map, objects: BTreeMap::new(), expected: vec![0; SLOT_BYTES as usize], writes: 0 }
        }

        fn write(&mut self, offset: u64, bytes: u64, arrives: bool) {
            self.writes += 1;
            let target = self.map.plan_write(7, offset, bytes);
            if !arrives {
                return self.map.failed(target.name);
            }
            let object = self.objects.entry(target.name.to_string()).or_default();
            assert_eq!(object.is_empty(), target.is_new, "made once");
            assert_eq!(object.len() as u64, target.object_offset, "an append");
            assert!(target.object_offset.is_multiple_of(STRIPE), "whole stripes before it");
            object.resize(object.len() + bytes as usize, self.writes);
            self.expected[offset as usize..(offset + bytes) as usize].fill(self.writes);
            self.map.written(target.name, offset + bytes);
        }

        fn read(&self, range: Range<u64>) -> Vec<u8> {
            let mut found = vec![0; (range.end - range.start) as usize];
            for piece in self.map.plan_read(7, range) {
                let object = &self.objects[&piece.name.to_string()];
                let from = (piece.object_offset as usize).min(object.len());
                let to = (from + piece.at.len()).min(object.len());
                found[piece.at.start..][..to - from].copy_from_slice(&object[from..to]);
            }
            found
        }

        /// Another owner begins with the names alone.
        fn restart(&mut self) {
            let names = self.objects.keys().map(|name| ExtentName::parse(name).expect("one of ours"));
            let mut map = SlotMap::new(SLOT_BYTES, STRIPE, self.map.epoch + 1);
            for unneeded in map.load(names.collect::<Vec<_>>()) {
                self.objects.remove(&unneeded.to_string());
            }
            self.map = map;
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write { offset: u64, bytes: u64, arrives: bool },
        Append { bytes: u64, arrives: bool },
        Discard,
        DiscardHalf,
        Restart,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (1..=3 * STRIPE, prop::bool::weighted(0.9)).prop_map(|(bytes, arrives)| Step::Append { bytes, arrives }),
            3 => (0..SLOT_BYTES, 1..=3 * STRIPE, prop::bool::weighted(0.9))
                .prop_map(|(offset, bytes, arrives)| Step::Write { offset, bytes, arrives }),
            1 => Just(Step::Discard),
            1 => Just(Step::DiscardHalf),
            2 => Just(Step::Restart),
        ]
    }

    proptest! {
        #[test]
        fn a_slot_reads_as_it_was_written_whatever_its_objects(steps in prop::collection::vec(step(), 1..40)) {
            let mut world = World::new();
            let mut end = 0;
            // After a discard whose objects are still there, what was never written anew may be old.
            let mut is_sure = [true; SLOT_BYTES as usize];
            for step in steps {
                match step {
                    Step::Write { offset, bytes, arrives } => {
                        let bytes = bytes.min(SLOT_BYTES - offset);
                        world.write(offset, bytes, arrives);
                        if arrives {
                            is_sure[offset as usize..(offset + bytes) as usize].fill(true);
                        }
                        end = end.max(offset + bytes);
                    }
                    Step::Append { bytes, arrives } => {
                        let bytes = bytes.min(SLOT_BYTES - end);
                        if bytes > 0 {
                            world.write(end, bytes, arrives);
                            if arrives {
                                is_sure[end as usize..(end + bytes) as usize].fill(true);
                            }
                            end += bytes;
                        }
                    }
                    Step::Discard | Step::DiscardHalf => {
                        let names = world.map.discard(7);
                        let kept = if matches!(step, Step::Discard) { 0 } else { names.len() / 2 };
                        for name in &names[kept..] {
                            world.objects.remove(&name.to_string());
                        }
                        world.expected.fill(0);
                        is_sure.fill(world.objects.is_empty());
                        end = 0;
                    }
                    Step::Restart => world.restart(),
                }
                let found = world.read(0..SLOT_BYTES);
                for at in (0..SLOT_BYTES as usize).filter(|at| is_sure[*at]) {
                    prop_assert_eq!(found[at], world.expected[at], "byte {}", at);
                }
                prop_assert_eq!(&world.read(5..50)[..], &found[5..50]);
            }
        }

        #[test]
        fn names_say_what_they_were_made_of(slot: u32, epoch: u64, serial: u64, begin in 0..u64::MAX, longer in proptest::option::of(1u64..1000)) {
            let end = longer.map(|longer| begin.saturating_add(longer));
            let name = ExtentName { slot, birth: Birth { epoch, serial }, begin, end };
            prop_assert_eq!(ExtentName::parse(&name.to_string()), Some(name));
        }

        #[test]
        fn other_names_are_nobodys(name in ".{0,40}") {
            if let Some(parsed) = ExtentName::parse(&name) {
                prop_assert_eq!(parsed.to_string(), name);
            }
        }
    }

    #[test]
    fn flushes_of_whole_stripes_share_one_object_and_the_closing_one_has_its_own() {
        let mut world = World::new();
        for flush in 0..4 {
            world.write(flush * STRIPE, STRIPE, true);
        }
        world.write(SLOT_BYTES - STRIPE, STRIPE, true);
        assert_eq!(world.objects.keys().map(String::as_str).collect::<Vec<_>>(), ["7.1.0.0", "7.1.1.38"]);
    }
}
