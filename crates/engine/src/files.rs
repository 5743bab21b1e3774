//! The files of a lane: which bytes of which records they are, how long, when written, sealed or not.
//!
//! Here is what is durable. Changes may be met in any order and more than once: each says its version (`docs/files.md`). What is on its way, and who
//! writes, is in [`writing`].

mod extents;
mod open_files;
#[cfg(test)]
mod tests;
mod writing;

use std::collections::BTreeMap;
use std::ops::Range;

use forebay_format::{FileChange, FileRecord};
use forebay_types::{FileNumber, NumberMap, WallTime};

pub(crate) use extents::Extent;
use extents::Extents;
pub(crate) use open_files::OpenFiles;
pub use writing::WriterNumber;
pub(crate) use writing::{RunningSums, Writing};

use crate::planted::{Planted, planted};
use crate::segments::{SegmentIndex, Segments};

/// Where a record of a file lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordPlace {
    pub(crate) segment: SegmentIndex,
    /// Of its payload, in the data of its segment.
    pub(crate) position: u32,
    /// When it was written, nanoseconds since 1970, as far as that is known; 0 when it is not.
    pub(crate) written_unix_ns: i64,
}

/// The newest state of a file.
#[derive(Clone, Copy, Debug)]
struct State {
    version: u32,
    length: u64,
    sealed: bool,
    segment: SegmentIndex,
}

/// The sums of a sealed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) crc: u32,
    pub(crate) adler32: u32,
}

#[derive(Clone, Copy, Debug)]
struct SumsRecord {
    sums: Sums,
    segment: SegmentIndex,
}

/// Where what was cut off once ends is known to so many bytes.
const CUT_STEP_BYTES: u64 = 1 << 20;

/// A file. There may be very many: what it takes is counted.
#[derive(Debug, Default)]
pub(crate) struct File {
    written_unix_ns: i64,
    extents: Extents,
    /// Of the newest state; `state_version` is 0 when there is none.
    state_length: u64,
    state_version: u32,
    state_segment: SegmentIndex,
    version: u32,
    /// Of the sums, when there are some.
    sums_crc: u32,
    sums_adler32: u32,
    sums_segment: SegmentIndex,
    /// Behind so many steps no record says anything that does not count.
    cut_steps: u32,
    is_sealed: bool,
    has_sums: bool,
}

const _: () = assert!(size_of::<File>() <= 80);

impl File {
    pub(crate) fn length(&self) -> u64 {
        self.extents.end().max(self.state_length)
    }

    pub(crate) fn written_unix_ns(&self) -> i64 {
        self.written_unix_ns
    }

    /// Of its newest change.
    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// Of a sealed file, when they are known.
    pub(crate) fn sums(&self) -> Option<Sums> {
        self.sums_record().filter(|_| self.is_sealed).map(|sums| sums.sums)
    }

    fn state(&self) -> Option<State> {
        (self.state_version > 0).then_some(State {
            version: self.state_version,
            length: self.state_length,
            sealed: self.is_sealed,
            segment: self.state_segment,
        })
    }

    fn sums_record(&self) -> Option<SumsRecord> {
        let sums = Sums { crc: self.sums_crc, adler32: self.sums_adler32 };
        self.has_sums.then_some(SumsRecord { sums, segment: self.sums_segment })
    }

    fn cut_end(&self) -> u64 {
        u64::from(self.cut_steps) * CUT_STEP_BYTES
    }

    /// What gives the bytes of a range, ascending; what no extent gives is zeros.
    pub(crate) fn in_range(&self, range: Range<u64>) -> impl Iterator<Item = (u64, Extent)> + '_ {
        self.extents.in_range(range)
    }

    /// What of a range no record gives although records that do not count may say something of it. It needs holes before a state comes that does not cut it off.
    pub(crate) fn uncovered(&self, range: Range<u64>) -> Vec<Range<u64>> {
        self.gaps(range.start..range.end.min(self.cut_end()))
    }

    /// What of a range no record gives.
    fn gaps(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let (mut from, end) = (range.start, range.end);
        let mut gaps = Vec::new();
        for (start, extent) in self.extents.in_range(range) {
            if start > from {
                gaps.push(from..start);
            }
            from = from.max(start + u64::from(extent.bytes));
        }
        if from < end {
            gaps.push(from..end);
        }
        gaps
    }

    /// How long it is as far as its newest state says.
    pub(crate) fn stated_length(&self) -> u64 {
        self.state_length
    }

    /// Whether a record, of which the payload lies at `position` if it has one, is one that counts.
    pub(crate) fn lives_in(&self, segment: SegmentIndex, position: u32, record: &FileRecord) -> bool {
        let version = record.version;
        match record.change {
            FileChange::Piece { .. } | FileChange::Hole { .. } => {
                self.parts_of(segment, position, record).next().is_some()
            }
            FileChange::State { .. } => {
                self.state().is_some_and(|known| (known.segment, known.version) == (segment, version))
            }
            FileChange::Sums { .. } => self.sums_record().is_some_and(|known| known.segment == segment),
        }
    }

    /// Whether what a record says stands in records that are here, in segments that can be read, or newer ones say other things of all of it.
    pub(crate) fn says(&self, record: &FileRecord, can_be_read: impl Fn(SegmentIndex) -> bool) -> bool {
        let version = record.version;
        let range = match record.change {
            FileChange::Piece { start, bytes, .. } | FileChange::Hole { start, bytes } => {
                start..start.saturating_add(bytes.into())
            }
            FileChange::State { .. } => {
                return self.state().is_some_and(|known| known.version == version && can_be_read(known.segment));
            }
            FileChange::Sums { crc, adler32 } => {
                let is_same = |known: &SumsRecord| known.sums == Sums { crc, adler32 };
                return self.sums_record().filter(is_same).is_some_and(|known| can_be_read(known.segment));
            }
        };
        let counts = |extent: &Extent| extent.version >= version && can_be_read(extent.segment);
        self.gaps(range.clone()).is_empty() && self.extents.in_range(range).all(|(_, extent)| counts(&extent))
    }

    /// The parts of a piece or a hole that count.
    pub(crate) fn parts_of(
        &self,
        segment: SegmentIndex,
        position: u32,
        record: &FileRecord,
    ) -> impl Iterator<Item = (u64, Extent)> + '_ {
        let (range, is_hole) = match record.change {
            FileChange::Piece { start, bytes, .. } => (start..start + u64::from(bytes), false),
            FileChange::Hole { start, bytes } => (start..start + u64::from(bytes), true),
            FileChange::State { .. } | FileChange::Sums { .. } => (0..0, true),
        };
        let version = record.version;
        self.extents.in_range(range).filter(move |(_, extent)| {
            let is_there = extent.segment == segment && extent.version == version && extent.is_hole() == is_hole;
            is_there && (is_hole || extent.position == position)
        })
    }

    /// Takes a record in, and gives the ranges that states cut off by that.
    fn take(
        &mut self,
        record: &FileRecord,
        place: RecordPlace,
        stays: impl Fn(&Segments, &Extent) -> bool,
        segments: &mut Segments,
    ) -> Vec<Range<u64>> {
        let version = record.version;
        let cut = match record.change {
            FileChange::Piece { start, bytes, crc, appended } => {
                let piece = Extent::piece(place.segment, place.position, version, bytes, crc).appended(appended);
                self.insert(start, piece, stays, segments)
            }
            FileChange::Hole { start, bytes } => {
                self.insert(start, Extent::hole(place.segment, version, bytes), stays, segments)
            }
            FileChange::State { length, sealed, written_unix_ns } => {
                let state = State { version, length, sealed, segment: place.segment };
                self.set_state(state, written_unix_ns, segments)
            }
            FileChange::Sums { crc, adler32 } => {
                self.set_sums(SumsRecord { sums: Sums { crc, adler32 }, segment: place.segment }, segments);
                Vec::new()
            }
        };
        let is_state = matches!(record.change, FileChange::State { .. });
        if version > self.version && !is_state && place.written_unix_ns != 0 {
            self.written_unix_ns = place.written_unix_ns;
        }
        self.version = self.version.max(version);
        cut
    }

    /// What lies behind the state's length counts only if it came after the state.
    fn insert(
        &mut self,
        start: u64,
        extent: Extent,
        stays: impl Fn(&Segments, &Extent) -> bool,
        segments: &mut Segments,
    ) -> Vec<Range<u64>> {
        self.extents.insert(start, extent, stays, segments);
        match self.state().filter(|state| state.version > extent.version) {
            Some(state) => self.cut_at(state.length, state.version, segments),
            None => Vec::new(),
        }
    }

    /// What records with a lower version say of the bytes from `length` on does not count.
    fn cut_at(&mut self, length: u64, version: u32, segments: &mut Segments) -> Vec<Range<u64>> {
        let cut = self.extents.cut(length, |extent| extent.version < version, segments);
        let end = cut.last().map_or(0, |last| last.end);
        self.cut_steps = self.cut_steps.max(end.div_ceil(CUT_STEP_BYTES) as u32);
        cut
    }

    fn set_state(&mut self, state: State, written_unix_ns: i64, segments: &mut Segments) -> Vec<Range<u64>> {
        // Of two in one version, which are the same, the copy counts.
        let known = self.state();
        if known.is_none_or(|known| known.version <= state.version) {
            if let Some(known) = known {
                segments.bury(known.segment, 0);
            }
            segments.revive(state.segment, 0);
            (self.state_version, self.state_length) = (state.version, state.length);
            (self.state_segment, self.is_sealed) = (state.segment, state.sealed);
            if state.version >= self.version {
                self.written_unix_ns = written_unix_ns;
            }
        }
        self.cut_at(state.length, state.version, segments)
    }

    /// Whatever states came after the seal, the sums of a file stay what they are: what is met last counts.
    fn set_sums(&mut self, sums: SumsRecord, segments: &mut Segments) {
        if let Some(known) = self.sums_record() {
            segments.bury(known.segment, 0);
        }
        segments.revive(sums.segment, 0);
        (self.sums_crc, self.sums_adler32) = (sums.sums.crc, sums.sums.adler32);
        (self.sums_segment, self.has_sums) = (sums.segment, true);
    }

    fn end(mut self, segments: &mut Segments) {
        self.extents.end_all(segments);
        let records = [self.state().map(|state| state.segment), self.sums_record().map(|sums| sums.segment)];
        records.into_iter().flatten().for_each(|segment| segments.bury(segment, 0));
    }
}

/// All files of a lane.
#[derive(Default)]
pub(crate) struct Files {
    files: NumberMap<File>,
    sealed: usize,
    extents: u64,
    /// Bytes that pieces give.
    piece_bytes: u64,
    heap_bytes: usize,
    /// Every record that a start meets was met.
    is_settled: bool,
    /// Until then: states that are not the newest of their files, version and length. What they cut may be met later.
    older_states: BTreeMap<FileNumber, Vec<(u32, u64)>>,
    /// Until then: what states cut off. Something says something of it that does not count.
    cut_off: BTreeMap<FileNumber, Vec<Range<u64>>>,
}

impl Files {
    pub(crate) fn get(&self, file: FileNumber) -> Option<&File> {
        self.files.get(file)
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// Of these, those that nobody writes any more.
    pub(crate) fn sealed(&self) -> usize {
        self.sealed
    }

    /// Memory in use, never less than it is.
    pub(crate) fn bytes(&self) -> usize {
        self.heap_bytes + self.files.bytes()
    }

    /// Bytes that pieces give, of all files.
    pub(crate) fn piece_bytes(&self) -> u64 {
        self.piece_bytes
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// The largest number.
    pub(crate) fn last(&self) -> Option<FileNumber> {
        self.files.last()
    }

    /// All numbers from one on, ascending.
    pub(crate) fn from(&self, first: FileNumber) -> impl Iterator<Item = (FileNumber, &File)> + '_ {
        self.files.range_from(first)
    }

    /// A record that is durable says something of a file. Of two that say the same, as one is a copy of the other, that in the other segment than the known one counts
    /// if `prefers` says so of the known one.
    pub(crate) fn take(
        &mut self,
        record: &FileRecord,
        place: RecordPlace,
        prefers: impl Fn(&Segments, SegmentIndex) -> bool,
        segments: &mut Segments,
    ) {
        let version = record.version;
        let keeps = |segments: &Segments, known: SegmentIndex| known != place.segment && !prefers(segments, known);
        let stays = |segments: &Segments, known: &Extent| {
            let is_newer = known.version > version && !planted(Planted::PieceByArrival);
            is_newer || known.version == version && keeps(segments, known.segment)
        };
        if let FileChange::State { length, .. } = record.change {
            let known = self.files.get(record.file).and_then(File::state);
            if known.is_some_and(|known| known.version == version && keeps(segments, known.segment)) {
                return;
            }
            if let Some(known) = known.filter(|known| known.version != version && !self.is_settled) {
                let older = (known.version, known.length).min((version, length));
                self.older_states.entry(record.file).or_default().push(older);
            }
        }
        let file = self.files.get_or_insert_with(record.file, File::default);
        let before = (file.extents.heap_bytes(), file.extents.len() as u64, segments.live_bytes());
        let was_sealed = file.is_sealed;
        let mut cut = file.take(record, place, stays, segments);
        self.sealed = self.sealed + usize::from(file.is_sealed) - usize::from(was_sealed);
        if let Some(older) = self.older_states.get(&record.file) {
            let outrank = older.iter().filter(|(at, _)| *at > version);
            cut.extend(outrank.flat_map(|(at, length)| file.cut_at(*length, *at, segments)));
        }
        if !self.is_settled && !cut.is_empty() {
            self.cut_off.entry(record.file).or_default().extend(cut);
        }
        self.heap_bytes = self.heap_bytes + file.extents.heap_bytes() - before.0;
        self.extents = self.extents + file.extents.len() as u64 - before.1;
        self.piece_bytes = self.piece_bytes + segments.live_bytes() - before.2;
    }

    /// Nothing is left of a file.
    pub(crate) fn end(&mut self, number: FileNumber, segments: &mut Segments) -> bool {
        self.older_states.remove(&number);
        self.cut_off.remove(&number);
        let Some(file) = self.files.remove(number) else { return false };
        self.sealed -= usize::from(file.is_sealed);
        self.heap_bytes -= file.extents.heap_bytes();
        self.extents -= file.extents.len() as u64;
        let before = segments.live_bytes();
        file.end(segments);
        self.piece_bytes -= before - segments.live_bytes();
        true
    }

    /// Every record was met. Gives what is to be written so that the next start finds the same: `may_cut` says of which files all that was acknowledged was met.
    pub(crate) fn settle(&mut self, may_cut: impl Fn(FileNumber) -> bool) -> Vec<FileRecord> {
        self.is_settled = true;
        self.older_states.clear();
        let cut_off = std::mem::take(&mut self.cut_off);
        let mut mends = Vec::new();
        for (number, file) in self.files.iter() {
            let cuts = if file.is_sealed() || !may_cut(number) { Vec::new() } else { file.never_acknowledged() };
            let cut_off = cut_off.get(&number).map_or(&[][..], |cut_off| cut_off);
            mends.extend(file.mend(number, &cuts, cut_off));
        }
        mends
    }
}

impl Files {
    /// Sealed files of which the sums are not known.
    pub(crate) fn without_sums(&self) -> Vec<FileNumber> {
        let lacks = |(_, file): &(FileNumber, &File)| file.is_sealed() && !file.has_sums;
        self.files.iter().filter(lacks).map(|(number, _)| number).collect()
    }

    /// What a start for reading alone makes of what others would write: it does not show.
    pub(crate) fn hide(&mut self, mend: &FileRecord, segments: &mut Segments) {
        let Some(file) = self.files.get_mut(mend.file) else { return };
        let before = (file.extents.heap_bytes(), file.extents.len() as u64, segments.live_bytes());
        match mend.change {
            FileChange::Hole { start, bytes } => file.extents.clear(start..start + u64::from(bytes), segments),
            FileChange::State { length, .. } => {
                file.extents.cut(length, |_| true, segments);
            }
            FileChange::Piece { .. } | FileChange::Sums { .. } => {}
        }
        self.heap_bytes = self.heap_bytes + file.extents.heap_bytes() - before.0;
        self.extents = self.extents + file.extents.len() as u64 - before.1;
        self.piece_bytes = self.piece_bytes + segments.live_bytes() - before.2;
    }
}

impl File {
    /// Ranges that were appended behind something that is missing.
    fn never_acknowledged(&self) -> Vec<Range<u64>> {
        let mut cuts: Vec<Range<u64>> = Vec::new();
        let mut end = 0;
        let length = self.stated_length();
        for (start, extent) in self.extents.in_range(0..u64::MAX) {
            let extent_end = start + u64::from(extent.bytes);
            let follows_cut = cuts.last().is_some_and(|cut| cut.end == start);
            if extent.is_appended() && start > length && (start != end || follows_cut) {
                cuts.push(start..extent_end);
            }
            end = extent_end;
        }
        cuts
    }

    /// The records that make the cuts hold, and that what older states cut off stays so without these.
    fn mend(&self, file: FileNumber, cuts: &[Range<u64>], cut_off: &[Range<u64>]) -> Vec<FileRecord> {
        let mut mends = Vec::new();
        let mut record = |change| {
            // Writers leave some.
            let version = self.version.saturating_add(1 + mends.len() as u32);
            mends.push(FileRecord { file, version, change });
        };
        // What lies behind its length the newest state cuts off itself.
        let stated = self.stated_length();
        let shown: BTreeMap<u64, u64> = cut_off
            .iter()
            .flat_map(|range| self.gaps(range.start..range.end.min(stated)))
            .map(|gap| (gap.start, gap.end))
            .collect();
        shown.into_iter().flat_map(|(start, end)| holes(start..end)).for_each(&mut record);
        if !cuts.is_empty() {
            let kept =
                |(start, extent): &(u64, Extent)| !cuts.iter().any(|cut| cut.start == *start && !extent.is_hole());
            let ends = self.extents.in_range(0..u64::MAX).filter(kept);
            let end = ends.map(|(start, extent)| start + u64::from(extent.bytes)).max().unwrap_or(0);
            cuts.iter().filter(|cut| cut.start < end).cloned().flat_map(holes).for_each(&mut record);
            let (length, sealed) = (end.max(self.stated_length()), false);
            record(FileChange::State { length, written_unix_ns: self.written_unix_ns, sealed });
        }
        mends
    }
}

/// Nanoseconds since 1970; 0 when the time is not known.
pub(crate) fn unix_ns(wall: WallTime) -> i64 {
    wall.unix_ms().map_or(0, |ms| i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000_000))
}

/// A range as holes, none longer than a record can say.
pub(crate) fn holes(range: Range<u64>) -> impl Iterator<Item = FileChange> {
    let step = u64::from(u32::MAX);
    (range.start..range.end)
        .step_by(u32::MAX as usize)
        .map(move |start| FileChange::Hole { start, bytes: (range.end - start).min(step) as u32 })
}
