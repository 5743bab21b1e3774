//! One event of the index and its fragments.

use forebay_format::event_directory_bytes;
use forebay_types::memory::allocated_bytes;
use forebay_types::{EventId, SourceId, Time};
use thin_vec::ThinVec;

use crate::lease::Tick;
use crate::segments::SegmentIndex;

/// What a list of fragments takes beside them.
const LIST_HEAD_BYTES: usize = 16;

/// One fragment, or a whole event in one record: 20 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FragmentEntry {
    /// Of a whole event: how many fragments are in it.
    pub(crate) source: SourceId,
    pub(crate) segment: SegmentIndex,
    /// Where it begins in the segment's data, in units of 8 bytes.
    pub(crate) position: u32,
    pub(crate) bytes: u32,
    pub(crate) crc: u32,
}

const _: () = assert!(size_of::<FragmentEntry>() == 20);
const _: () = assert!(size_of::<EventEntry>() == 40);

/// The fragments of an event, by source.
#[derive(Clone, Debug)]
enum Fragments {
    One(FragmentEntry),
    Many(ThinVec<FragmentEntry>),
    /// All of them, in one record.
    Whole(FragmentEntry),
}

/// What is known of an event beside its fragments, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventFlags(u8);

impl EventFlags {
    /// A decision, deletion or release is on its way to the drives.
    pub(crate) const DECIDING: EventFlags = EventFlags(1);
    /// Accepted, durably.
    pub(crate) const ACCEPTED: EventFlags = EventFlags(2);
    /// Its timer runs: it may be offered then although fragments are missing, or its lease ends.
    pub(crate) const TIMED: EventFlags = EventFlags(4);
    /// Leased to a filter.
    pub(crate) const LEASED: EventFlags = EventFlags(8);
    /// Accepted without some of its sources.
    pub(crate) const INCOMPLETE: EventFlags = EventFlags(16);
    /// May be leased to a filter.
    pub(crate) const READY: EventFlags = EventFlags(32);

    pub(crate) fn has(self, flag: EventFlags) -> bool {
        self.0 & flag.0 != 0
    }

    /// The flags that the index counts are set by the index alone.
    pub(crate) fn set(&mut self, flag: EventFlags, on: bool) {
        assert!(flag == EventFlags::DECIDING, "the index counts the other flags");
        self.put(flag, on);
    }

    pub(super) fn put(&mut self, flag: EventFlags, on: bool) {
        if on { self.0 |= flag.0 } else { self.0 &= !flag.0 }
    }
}

/// One event.
#[derive(Clone, Debug)]
pub(crate) struct EventEntry {
    pub(crate) event: EventId,
    fragments: Fragments,
    /// Fragments that the event should have; 0 when nobody said.
    pub(crate) expected: u16,
    pub(crate) flags: EventFlags,
    /// How often it was leased; 255 and more are one.
    pub(crate) attempts: u8,
    /// When its timer is over, if it is timed.
    pub(super) timer: Tick,
}

impl EventEntry {
    pub(super) fn new(event: EventId, expected: u16, fragment: FragmentEntry) -> Self {
        EventEntry {
            event,
            fragments: Fragments::One(fragment),
            expected,
            flags: EventFlags::default(),
            attempts: 0,
            timer: Tick::default(),
        }
    }

    /// The records that hold its fragments: those of the fragments, ascending by source, or the one of the whole event.
    pub(crate) fn records(&self) -> &[FragmentEntry] {
        match &self.fragments {
            Fragments::One(one) | Fragments::Whole(one) => std::slice::from_ref(one),
            Fragments::Many(many) => many,
        }
    }

    /// Its one record, when all of its fragments are in that.
    pub(crate) fn whole(&self) -> Option<&FragmentEntry> {
        if let Fragments::Whole(whole) = &self.fragments { Some(whole) } else { None }
    }

    /// Its fragments, ascending by source; `None` when they are in one record.
    pub(crate) fn fragments(&self) -> Option<&[FragmentEntry]> {
        if self.whole().is_none() { Some(self.records()) } else { None }
    }

    pub(crate) fn fragment_count(&self) -> usize {
        self.whole().map_or(self.records().len(), |whole| whole.source.0 as usize)
    }

    fn position(&self, source: SourceId) -> Result<usize, usize> {
        let fragments = self.fragments().unwrap_or_default();
        // Writers send the sources of an event in order.
        match fragments.last() {
            Some(last) if last.source < source => Err(fragments.len()),
            _ => fragments.binary_search_by_key(&source, |f| f.source),
        }
    }

    pub(crate) fn fragment(&self, source: SourceId) -> Option<&FragmentEntry> {
        self.position(source).ok().map(|at| &self.records()[at])
    }

    pub(crate) fn fragment_mut(&mut self, source: SourceId) -> Option<&mut FragmentEntry> {
        let at = self.position(source).ok()?;
        Some(match &mut self.fragments {
            Fragments::One(one) => one,
            Fragments::Many(many) => &mut many[at],
            Fragments::Whole(_) => unreachable!("no fragment of it has a place of its own"),
        })
    }

    /// When its lease ends, if a filter has it.
    pub(crate) fn lease_ends(&self) -> Option<Time> {
        let leased = self.flags.has(EventFlags::LEASED) && self.flags.has(EventFlags::TIMED);
        leased.then(|| self.timer.time())
    }

    /// Bytes of its fragments.
    pub(crate) fn bytes(&self) -> u64 {
        let directory = self.whole().map_or(0, |whole| event_directory_bytes(whole.source.0 as usize) as u64);
        self.record_bytes() - directory
    }

    /// Bytes of its records.
    pub(crate) fn record_bytes(&self) -> u64 {
        self.records().iter().map(|record| u64::from(record.bytes)).sum()
    }

    /// Whether as many fragments are here as the event should have.
    pub(crate) fn is_complete(&self) -> bool {
        self.expected > 0 && self.fragment_count() >= usize::from(self.expected)
    }

    pub(super) fn start_timer(&mut self, timer: Tick) {
        self.flags.put(EventFlags::TIMED, true);
        self.timer = timer;
    }

    /// Memory that it takes outside of its page.
    pub(super) fn heap_bytes(&self) -> usize {
        match &self.fragments {
            Fragments::One(_) | Fragments::Whole(_) => 0,
            Fragments::Many(many) => allocated_bytes(LIST_HEAD_BYTES + many.capacity() * size_of::<FragmentEntry>()),
        }
    }

    /// # Panics
    /// When the fragment is there, or all are in one record.
    pub(super) fn add(&mut self, fragment: FragmentEntry, expected: u16) {
        self.expected = self.expected.max(expected);
        let at = self.position(fragment.source).expect_err("a fragment is entered once");
        if let Fragments::One(one) = &self.fragments {
            let mut many = ThinVec::with_capacity(2);
            many.push(*one);
            self.fragments = Fragments::Many(many);
        }
        let Fragments::Many(many) = &mut self.fragments else { unreachable!("made so just now") };
        if many.len() == many.capacity() {
            many.reserve_exact(growth(many.len(), usize::from(self.expected)));
        }
        many.insert(at, fragment);
    }

    /// All of its fragments are in one record from now on.
    pub(super) fn join(&mut self, whole: FragmentEntry) {
        self.fragments = Fragments::Whole(whole);
    }

    /// Takes one of several fragments away.
    pub(super) fn take(&mut self, source: SourceId) -> Option<FragmentEntry> {
        let at = self.position(source).ok()?;
        let Fragments::Many(many) = &mut self.fragments else { return None };
        let taken = many.remove(at);
        if let [last] = many[..] {
            self.fragments = Fragments::One(last);
        } else if many.capacity() > 2 * many.len() {
            many.shrink_to_fit();
        }
        Some(taken)
    }
}

/// By how many places a full list of `len` grows: doubled up to what the event should have; nobody knowing that, by half.
fn growth(len: usize, expected: usize) -> usize {
    if expected > len { len.min(expected - len) } else { (len / 2).max(1) }
}
