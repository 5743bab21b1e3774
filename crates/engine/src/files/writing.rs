//! Who writes a file, and what of it is on its way: in memory alone.
//!
//! Bytes that a writer wrote are its own as long as it has the file open: another writer does not write over them. Of a writer that left, nothing is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use forebay_types::memory::tree_bytes;
use forebay_types::{Adler32, crc32c_of_both};

use super::{File, Sums};
use crate::segments::SegmentIndex;

/// A writer of a file, as the server numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriterNumber(pub u64);

impl WriterNumber {
    /// The server itself, which writes the journal and the snapshots of names; no client has this number.
    pub const SERVER: WriterNumber = WriterNumber(0);
}

/// The sums of a file that was written from its beginning, in order, so far.
#[derive(Clone, Default)]
pub(crate) struct RunningSums {
    /// Bytes that were summed.
    pub(crate) bytes: u64,
    crc: u32,
    adler32: Adler32,
}

impl RunningSums {
    /// Adds what follows, of which the CRC is known.
    pub(crate) fn add(&mut self, payload: &[u8], crc: u32) {
        self.adler32.update(payload);
        self.add_crc(crc, payload.len() as u64);
    }

    /// Where what follows is to be added, if that is done elsewhere; with [`RunningSums::add_crc`].
    pub(crate) fn adler32(&mut self) -> &mut Adler32 {
        &mut self.adler32
    }

    /// Adds so many bytes of this CRC, which were added to the adler32.
    pub(crate) fn add_crc(&mut self, crc: u32, bytes: u64) {
        self.crc = crc32c_of_both(self.crc, crc, bytes);
        self.bytes += bytes;
    }

    pub(crate) fn sums(&self) -> Sums {
        Sums { crc: self.crc, adler32: self.adler32.finish() }
    }
}

/// A file that is open for writing, or to which something is on its way.
pub(crate) struct Writing {
    writers: BTreeSet<WriterNumber>,
    /// Who wrote what: where each range begins, and where it ends. Neighbours of one writer are one.
    written: BTreeMap<u64, (u64, WriterNumber)>,
    /// Behind all that was there before the first of them came, and that those wrote who left since.
    others_end: u64,
    /// The newest version that was given.
    pub(crate) version: u32,
    /// Of the file when all that is on its way is there.
    pub(crate) length: u64,
    /// Records on their way.
    undurable: u32,
    /// The flush that holds the first of them, as long as nothing before it came back.
    first_flush: Option<(SegmentIndex, u32)>,
    /// A state is on its way: nothing else comes before it is durable.
    pub(crate) waits: bool,
    /// Its end is on its way: nothing else comes.
    pub(crate) ends: bool,
    /// As long as it is written in order.
    pub(crate) sums: Option<RunningSums>,
}

impl Writing {
    /// Nothing is on its way yet. `sums` are of all that is durable, if they are known.
    pub(crate) fn of(file: Option<&File>, sums: Option<RunningSums>) -> Writing {
        let (version, length) = file.map_or((0, 0), |file| (file.version(), file.length()));
        Writing {
            writers: BTreeSet::new(),
            written: BTreeMap::new(),
            others_end: length,
            version,
            length,
            undurable: 0,
            first_flush: None,
            waits: false,
            ends: false,
            sums: if length == 0 { Some(RunningSums::default()) } else { sums },
        }
    }

    pub(crate) fn open(&mut self, writer: WriterNumber) {
        self.writers.insert(writer);
    }

    pub(crate) fn is_open_by(&self, writer: WriterNumber) -> bool {
        self.writers.contains(&writer)
    }

    /// A writer is done, or was given up.
    pub(crate) fn close(&mut self, writer: WriterNumber) {
        self.writers.remove(&writer);
        let others_end = &mut self.others_end;
        self.written.retain(|_, (end, by)| {
            if *by == writer {
                *others_end = (*others_end).max(*end);
            }
            *by != writer
        });
    }

    /// The file has this length. What was cut off is nobody's any more.
    pub(crate) fn has_length(&mut self, length: u64) {
        (self.length, self.others_end) = (length, length);
        self.written.split_off(&length);
        if let Some((_, (end, _))) = self.written.iter_mut().next_back() {
            *end = length.min(*end);
        }
    }

    /// Whether nobody needs to know anything of it any more.
    pub(crate) fn is_idle(&self) -> bool {
        self.writers.is_empty() && self.undurable == 0 && !self.ends
    }

    /// Whether a change must wait until others are durable.
    pub(crate) fn is_held_up(&self) -> bool {
        self.waits || self.ends
    }

    pub(crate) fn is_on_its_way(&self) -> bool {
        self.undurable > 0
    }

    /// Whether all that is on its way is in this flush.
    pub(crate) fn is_all_in(&self, flush: Option<(SegmentIndex, u32)>) -> bool {
        self.undurable == 0 || flush.is_some() && self.first_flush == flush
    }

    /// Whether another writer wrote some of these bytes.
    pub(crate) fn is_anothers(&self, range: &Range<u64>, writer: WriterNumber) -> bool {
        self.met(range).any(|(_, (_, by))| by != writer)
    }

    /// Whether these bytes are behind all that others wrote who left, or are this writer's own: it sends them again.
    pub(crate) fn may_append(&self, range: &Range<u64>, writer: WriterNumber) -> bool {
        let before = self.written.range(..=range.start).next_back();
        range.start >= self.others_end || before.is_some_and(|(_, (end, by))| *end >= range.end && *by == writer)
    }

    /// Ranges that meet this one.
    fn met(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, (u64, WriterNumber))> + '_ {
        let before = self.written.range(..range.start).next_back().map(|(start, end)| (*start, *end));
        let within = self.written.range(range.clone()).map(|(start, end)| (*start, *end));
        let from = range.start;
        before.filter(move |(_, (end, _))| *end > from).into_iter().chain(within)
    }

    /// A writer wrote these bytes, which nobody else did.
    pub(crate) fn wrote(&mut self, range: Range<u64>, writer: WriterNumber) {
        let (mut start, mut end) = (range.start, range.end);
        let own = |(_, (_, by)): &(u64, (u64, WriterNumber))| *by == writer;
        let touching = range.start.saturating_sub(1)..range.end.saturating_add(1);
        let joined: Vec<_> = self.met(&touching).filter(own).collect();
        for (from, (to, _)) in joined {
            self.written.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.written.insert(start, (end, writer));
    }

    /// A record was appended to a flush.
    pub(crate) fn is_appended(&mut self, flush: (SegmentIndex, u32)) {
        if self.undurable == 0 {
            self.first_flush = Some(flush);
        }
        self.undurable += 1;
    }

    /// One that was appended is durable.
    pub(crate) fn is_durable(&mut self) {
        self.undurable = self.undurable.saturating_sub(1);
        self.first_flush = None;
        if self.undurable == 0 {
            self.waits = false;
        }
    }

    /// Ranges that are kept apart, each about so many bytes of memory.
    pub(crate) fn ranges(&self) -> usize {
        self.written.len()
    }

    pub(crate) const RANGE_BYTES: usize = tree_bytes(100, size_of::<(u64, (u64, WriterNumber))>()) / 100;
}

#[cfg(test)]
mod tests {
    use forebay_types::crc32c;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_byte_has_one_writer(steps in prop::collection::vec((0..4u64, 0..60u64, 1..20u64, any::<bool>()), 1..60)) {
            let mut writing = Writing::of(None, None);
            let mut model = [None; 80];
            let mut left = 0;
            for (writer, start, bytes, closes) in steps {
                let (by, range) = (WriterNumber(writer), start..start + bytes);
                if closes && bytes == 1 {
                    writing.close(by);
                    for (at, owner) in (1..).zip(&mut model).filter(|(_, owner)| **owner == Some(writer)) {
                        (left, *owner) = (left.max(at), None);
                    }
                    continue;
                }
                if closes && bytes == 2 {
                    writing.has_length(start);
                    left = start;
                    model[start as usize..].fill(None);
                    continue;
                }
                writing.open(by);
                let is_own = range.clone().all(|at| model[at as usize] == Some(writer));
                prop_assert_eq!(writing.may_append(&range, by), start >= left || is_own);
                let bytes = &mut model[start as usize..(start + bytes) as usize];
                let anothers = bytes.iter().any(|owner| owner.is_some_and(|owner| owner != writer));
                prop_assert_eq!(writing.is_anothers(&range, by), anothers);
                if !anothers {
                    writing.wrote(range, by);
                    bytes.fill(Some(writer));
                }
            }
            let ranges: Vec<_> = writing.written.iter().map(|(start, (end, by))| (*start, *end, *by)).collect();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0 || pair[0].1 == pair[1].0 && pair[0].2 != pair[1].2));
            let owned = model.iter().flatten().count() as u64;
            prop_assert_eq!(ranges.iter().map(|(start, end, _)| end - start).sum::<u64>(), owned);
        }
    }

    #[test]
    fn sums_of_parts_are_those_of_the_whole() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i * 7919 % 251) as u8).collect();
        let mut sums = RunningSums::default();
        bytes.chunks(777).for_each(|part| sums.add(part, crc32c(part)));
        let mut adler32 = Adler32::default();
        adler32.update(&bytes);
        assert_eq!(sums.sums(), Sums { crc: crc32c(&bytes), adler32: adler32.finish() });
        assert_eq!(RunningSums::default().sums(), Sums { crc: 0, adler32: 1 }, "of no bytes");
    }

    #[test]
    fn what_waits_for_those_before_it_goes_with_them_in_one_flush() {
        let (first, second) = (Some((SegmentIndex(1), 3)), Some((SegmentIndex(1), 4)));
        let mut writing = Writing::of(None, None);
        assert!(writing.is_all_in(None) && writing.is_idle());
        writing.is_appended(first.expect("a flush"));
        assert!(writing.is_all_in(first) && !writing.is_all_in(second) && !writing.is_all_in(None));
        writing.is_appended(second.expect("a flush"));
        assert!(!writing.is_all_in(second));
        writing.is_durable();
        assert!(!writing.is_all_in(second), "what is left may lie anywhere");
        writing.is_durable();
        assert!(writing.is_all_in(None) && writing.is_idle());
    }
}
