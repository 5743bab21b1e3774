//! Files: what a lane does when bytes are written to one, when it is cut, sealed or ends. `docs/files.md` says why so.

mod copy;
mod kept_run;
mod read;
mod settle;
mod share;
mod sums;

use forebay_format::{FileChange, FileRecord, RecordKind, TableEntry};
use forebay_types::limits::{FILE_BYTES_MAX, PIECE_BYTES_MAX};
use forebay_types::placement::lane_ordinal;
use forebay_types::{FileNumber, FileOutcome, ReadOutcome, RunId};

pub(super) use copy::live_record;
pub use kept_run::KeptRun;
pub(super) use read::{FileRead, FileReading, record_of};
pub use share::SharedRange;
pub(super) use sums::Summing;

use super::write::{Purpose, Refusal, Waiter};
use super::{Lane, State};
use crate::api::{Admission, FileAdmission, FileView, FileWrite, Token};
use crate::files::{File, RecordPlace, RunningSums, WriterNumber, Writing, holes, unix_ns};
use crate::flush::{NewRecord, Payload};
use crate::planted::{Planted, planted};
use crate::segments::SegmentIndex;

/// Versions of a file that writers leave, for holes, seals and what a start mends.
const VERSIONS_KEPT: u32 = 1 << 20;

impl Lane {
    /// What is known of a file that has been written to, as far as it is durable; `None` when nothing is.
    pub fn file(&self, file: FileNumber) -> Option<FileView> {
        let known = self.files.get(file)?;
        // A full lane has no room for them, which is no reason not to say them.
        let computed = self.summing.computed(file, known.length()).filter(|_| known.is_sealed());
        let sums = known.sums().or(computed);
        Some(FileView {
            length: known.length(),
            written_unix_ns: known.written_unix_ns(),
            sealed: known.is_sealed(),
            sums: sums.map(|sums| (sums.crc, sums.adler32)),
        })
    }

    /// The files of which something is stored, from a number on, ascending.
    pub fn files_from(&self, first: FileNumber) -> impl Iterator<Item = FileNumber> + '_ {
        self.files.from(first).map(|(number, _)| number)
    }

    /// By [`lane_ordinal`], the first number behind all that the lane has seen, those included that ended: none of these may be given again.
    pub fn next_file_ordinal(&self) -> u64 {
        let lanes = self.config.geometry.lanes;
        let last = self.files.last().map(|number| lane_ordinal(number.0, lanes));
        let ended = self.finished.last_ordinal(RunId::FILES);
        last.max(ended).map_or(0, |last| last.saturating_add(1))
    }

    /// Whether there is room that fragments and files may take.
    pub fn has_room_for_files(&self) -> bool {
        self.width().is_some_and(|width| {
            let space = self.space(width);
            space.holds_files() && space.free_for_fragments() > 0
        })
    }

    /// Lets a writer write to a file, which need not have been written to before. `is_new`: its number was given since this start, so that nothing of it can be out
    /// of reach. It is never pending.
    pub fn open_file(&mut self, file: FileNumber, writer: WriterNumber, is_new: bool) -> Admission<FileOutcome> {
        if let Err(outcome) = self.may_write(file) {
            return Admission::Done(outcome);
        }
        if !matches!(self.state, State::Serving) {
            return Admission::Busy;
        }
        if self.width().is_some_and(|width| !self.space(width).holds_files()) {
            return Admission::Done(FileOutcome::NoSpace);
        }
        if !is_new && self.outcome_of_unknown_file(file) != ReadOutcome::NotFound {
            return Admission::Done(FileOutcome::Unavailable);
        }
        if self.open_files.get(file).is_some_and(Writing::is_held_up) {
            // A seal that was taken before comes before it.
            return Admission::Busy;
        }
        let known = self.files.get(file);
        self.open_files.enter(file, known).open(writer);
        Admission::Done(FileOutcome::Done)
    }

    /// A writer is done, or was taken for dead: what it wrote may be written over.
    pub fn close_file(&mut self, file: FileNumber, writer: WriterNumber) {
        self.open_files.change_ranges(file, |writing| writing.close(writer));
        self.open_files.drop_idle(file);
    }

    /// Whether a file may be changed, by what is durable.
    fn may_write(&self, file: FileNumber) -> Result<(), FileOutcome> {
        if !self.config.has_files {
            return Err(FileOutcome::NoFiles);
        }
        match self.state {
            State::ReadOnly => return Err(FileOutcome::ReadOnly),
            State::Unavailable(_) | State::Stopping | State::Stopped => return Err(FileOutcome::Unavailable),
            State::Serving | State::Recovering(_) | State::Preparing => {}
        }
        if self.finished.contains(file.key()) {
            return Err(FileOutcome::Removed);
        }
        if self.files.get(file).is_some_and(File::is_sealed) && !planted(Planted::SealedChanges) {
            return Err(FileOutcome::Sealed);
        }
        let given = self.open_files.get(file).map(|writing| writing.version);
        let version = given.or_else(|| self.files.get(file).map(File::version)).unwrap_or(0);
        if version >= u32::MAX - VERSIONS_KEPT { Err(FileOutcome::TooManyChanges) } else { Ok(()) }
    }

    /// Whether nothing new is taken just now.
    fn is_busy(&self) -> bool {
        !matches!(self.state, State::Serving) || self.writer.frozen || !self.writer.replay.is_empty()
    }

    /// Writes bytes to a file. When pending, one record of `token` is answered later, as of a put.
    pub fn write_file(&mut self, token: Token, write: &FileWrite, payload: &[u8]) -> FileAdmission {
        self.write_payload(token, write, Payload::of(&[payload]))
    }

    /// Where the bytes of a write may be put, part by part, before [`Lane::write_placed`]: nowhere when it is not taken now, or not by this way. Whatever is put there
    /// without being written, or not all of it, is nothing that anybody sees.
    pub fn place_of_write(&mut self, write: &FileWrite, bytes: usize) -> Option<Vec<&mut [u8]>> {
        self.begin_write(write, bytes as u64).ok()?;
        if bytes == 0 { None } else { self.place_of_piece(purpose_of(write), bytes) }
    }

    /// The same as [`Lane::write_file`], of so many bytes that were put where [`Lane::place_of_write`] said. Nothing else may have been asked of the lane since: else they
    /// are not those of `write`, and it is refused for their checksum.
    pub fn write_placed(&mut self, token: Token, write: &FileWrite, bytes: usize) -> FileAdmission {
        self.write_payload(token, write, Payload::placed(bytes))
    }

    fn write_payload(&mut self, token: Token, write: &FileWrite, payload: Payload<'_>) -> FileAdmission {
        let (file, bytes) = (write.file, payload.bytes() as u64);
        let start = match self.begin_write(write, bytes) {
            Ok(start) => start,
            Err(admission) => return admission,
        };
        if bytes == 0 {
            return FileAdmission::Done(FileOutcome::Done);
        }
        let writing = self.open_files.get(file).expect("it has it open");
        let appended = start == writing.length;
        let change = FileChange::Piece { start, bytes: bytes as u32, crc: write.crc, appended };
        let mut sums = writing.sums.clone().filter(|sums| sums.bytes == start);
        let adler32 = sums.as_mut().map(RunningSums::adler32);
        match self.write_piece(token, write, change, payload.summed_in(adler32)) {
            Ok(()) => {}
            Err(Refusal::Busy) => return FileAdmission::Busy,
            Err(refusal) => return FileAdmission::Done(outcome_of(refusal)),
        }
        self.open_files.change_ranges(file, |writing| writing.wrote(start..start + bytes, write.writer));
        let writing = self.open_files.get_mut(file).expect("looked at above");
        if let Some(sums) = &mut sums {
            sums.add_crc(write.crc, bytes);
        }
        writing.sums = sums;
        writing.length = writing.length.max(start + bytes);
        FileAdmission::Pending { start }
    }

    /// Whether so many bytes may be written now, and where they begin in the file.
    fn begin_write(&mut self, write: &FileWrite, bytes: u64) -> Result<u64, FileAdmission> {
        self.may_write(write.file).map_err(FileAdmission::Done)?;
        self.is_asked();
        let writing = self.open_files.get(write.file).filter(|writing| writing.is_open_by(write.writer));
        let writing = writing.ok_or(FileAdmission::Done(FileOutcome::NotOpen))?;
        if self.is_busy() || writing.is_held_up() {
            return Err(FileAdmission::Busy);
        }
        let start = write.start(writing.length);
        self.check_write(write, start, bytes).map_err(FileAdmission::Done)?;
        Ok(start)
    }

    /// A piece of its own, or a part of the one before it in the flush that fills.
    fn write_piece(
        &mut self,
        token: Token,
        write: &FileWrite,
        change: FileChange,
        mut payload: Payload<'_>,
    ) -> Result<(), Refusal> {
        let file = write.file;
        let version = self.open_files.get(file).expect("looked at above").version + 1;
        // What is in its place already is a piece of its own.
        if payload.is_placed() || !self.extend(&FileRecord { file, version, change }, &mut payload, token)? {
            return self.change_file(file, change, payload, Waiter::Put(token), purpose_of(write));
        }
        let writing = self.open_files.get_mut(file).expect("looked at above");
        writing.version = version;
        Ok(())
    }

    fn check_write(&self, write: &FileWrite, start: u64, bytes: u64) -> Result<(), FileOutcome> {
        let writing = self.open_files.get(write.file).expect("looked at above");
        let end = start.checked_add(bytes).filter(|end| *end <= FILE_BYTES_MAX);
        let bytes_max = (PIECE_BYTES_MAX as u64).min(u64::from(self.config.geometry.fragment_bytes_max));
        let Some(end) = end.filter(|_| bytes <= bytes_max) else { return Err(FileOutcome::TooLarge) };
        if writing.is_anothers(&(start..end), write.writer) && !planted(Planted::ConflictLetThrough) {
            return Err(FileOutcome::Conflict);
        }
        let is_behind = !write.appends || writing.may_append(&(start..end), write.writer);
        if !is_behind && !planted(Planted::AppendOverOthers) {
            return Err(FileOutcome::Conflict);
        }
        if self.index_is_full(|| self.files.get(write.file).is_some()) {
            return Err(FileOutcome::IndexFull);
        }
        Ok(())
    }

    /// Appends a change of a file to the log, as its next version.
    fn change_file(
        &mut self,
        file: FileNumber,
        change: FileChange,
        payload: Payload<'_>,
        waiter: Waiter,
        purpose: Purpose,
    ) -> Result<(), Refusal> {
        let known = self.files.get(file);
        let given = self.open_files.enter(file, known).version;
        let version = given.checked_add(1).ok_or(Refusal::Unavailable)?;
        let appended = self.append_record_of_file(FileRecord { file, version, change }, payload, waiter, purpose);
        if appended.is_ok() {
            let writing = self.open_files.get_mut(file).expect("entered just now");
            writing.version = version;
        }
        self.open_files.drop_idle(file);
        appended
    }

    /// Each of these records keeps its segment, as fragments do and decisions do not: none takes what is kept for those, but for the journal of names, without which
    /// no file would go from a full lane. Decisions that find nothing left are made durable by checkpoints.
    fn append_record_of_file(
        &mut self,
        record: FileRecord,
        payload: Payload<'_>,
        waiter: Waiter,
        purpose: Purpose,
    ) -> Result<(), Refusal> {
        self.append(purpose, NewRecord::of(&record.entry()), payload, waiter)?;
        let flush = self.filling_flush().expect("it was appended to one");
        let known = self.files.get(record.file);
        self.open_files.enter(record.file, known).is_appended(flush);
        Ok(())
    }

    /// The flush that is filling.
    fn filling_flush(&self) -> Option<(SegmentIndex, u32)> {
        self.writer.filling.as_ref().map(|filling| (filling.segment, filling.flush.place.flush))
    }

    /// Changes the length of a file, or says when it was written, or both. When pending, a [`crate::Reply::Decided`] follows.
    pub fn set_file(
        &mut self,
        token: Token,
        file: FileNumber,
        length: Option<u64>,
        written_unix_ns: Option<i64>,
    ) -> Admission<FileOutcome> {
        if length.is_some_and(|length| length > FILE_BYTES_MAX) {
            return Admission::Done(FileOutcome::TooLarge);
        }
        match self.may_write(file) {
            // When it was written may be said of what does not change any more, too.
            Err(FileOutcome::Sealed) if length.is_none() => {}
            Err(outcome) => return Admission::Done(outcome),
            Ok(()) => {}
        }
        self.is_asked();
        if self.is_busy() {
            return Admission::Busy;
        }
        let known = self.files.get(file);
        let sealed = known.is_some_and(File::is_sealed);
        let (length, written_unix_ns) = (
            length.unwrap_or_else(|| known.map_or(0, File::length)),
            written_unix_ns.unwrap_or_else(|| unix_ns(self.wall)),
        );
        // It says the length of what is durable, and outranks what comes before it: so nothing may be on its way.
        let waits = |writing: &Writing| writing.is_held_up() || writing.is_on_its_way();
        if self.open_files.get(file).is_some_and(waits) && !planted(Planted::LengthOvertakes) {
            return Admission::Busy;
        }
        if let Err(refusal) = self.write_holes(file, length) {
            return refused(refusal);
        }
        self.write_state(token, file, FileChange::State { length, written_unix_ns, sealed })
    }

    /// Before a state that is longer than the one before it: holes where records that do not count would show. Nothing of the file may be on its way but
    /// holes, as these outrank it.
    fn write_holes(&mut self, file: FileNumber, length: u64) -> Result<(), Refusal> {
        for hole in self.holes_before(file, length) {
            self.change_file(file, hole, Payload::NONE, Waiter::Put(Token::NONE), self.purpose_of(file))?;
        }
        Ok(())
    }

    /// What keeps the names may be cut and sealed in a full lane, or no file would go from it.
    fn purpose_of(&self, file: FileNumber) -> Purpose {
        let is_of_names = self.open_files.get(file).is_some_and(|writing| writing.is_open_by(WriterNumber::SERVER));
        if is_of_names { Purpose::Decision } else { Purpose::Fragment }
    }

    fn holes_before(&self, file: FileNumber, length: u64) -> Vec<FileChange> {
        let Some(known) = self.files.get(file).filter(|_| !planted(Planted::HolesLeftOut)) else { return Vec::new() };
        known.uncovered(known.stated_length()..length).into_iter().flat_map(holes).collect()
    }

    /// Writes a state, behind which nothing comes until it is durable.
    fn write_state(&mut self, token: Token, file: FileNumber, state: FileChange) -> Admission<FileOutcome> {
        let FileChange::State { length, .. } = state else { unreachable!("a state is written") };
        if let Err(refusal) =
            self.change_file(file, state, Payload::NONE, Waiter::Decision(token), self.purpose_of(file))
        {
            return refused(refusal);
        }
        let writing = self.open_files.get_mut(file).expect("a state is on its way");
        writing.waits = true;
        if writing.length != length {
            writing.sums = (length == 0).then(Default::default);
            self.open_files.change_ranges(file, |writing| writing.has_length(length));
        }
        Admission::Pending
    }

    /// Seals a file: nothing of it changes any more. When pending, a [`crate::Reply::Decided`] follows; its sums are known then if it was written in order, else
    /// when all of it was read once ([`FileView::sums`]).
    pub fn seal_file(&mut self, token: Token, file: FileNumber) -> Admission<FileOutcome> {
        if let Err(outcome) = self.may_write(file) {
            return Admission::Done(outcome);
        }
        self.is_asked();
        if self.is_busy() {
            return Admission::Busy;
        }
        let known = self.files.get(file);
        let fresh = self.open_files.pretended(file, known);
        let writing = self.open_files.get(file).unwrap_or(&fresh);
        if writing.is_held_up() || !writing.is_all_in(self.flush_with_room()) {
            // What is on its way is durable before, or with it.
            return Admission::Busy;
        }
        let written = known.map_or(0, File::written_unix_ns);
        let written_unix_ns = if writing.is_on_its_way() || written == 0 { unix_ns(self.wall) } else { written };
        let (length, sums) = (writing.length, writing.sums.clone());
        if writing.is_on_its_way() && !self.holes_before(file, length).is_empty() {
            return Admission::Busy;
        }
        if let Err(refusal) = self.write_holes(file, length) {
            return refused(refusal);
        }
        let state = FileChange::State { length, written_unix_ns, sealed: true };
        let admission = self.write_state(token, file, state);
        if admission == Admission::Pending {
            self.open_files.get_mut(file).expect("its seal is on its way").sums = None;
            self.summing.begin(file, sums.filter(|sums| sums.bytes == length));
            // In the same flush, if there is room.
            self.write_sums(file);
        }
        admission
    }

    /// The flush that is filling, if a record without payload still goes into it.
    fn flush_with_room(&self) -> Option<(SegmentIndex, u32)> {
        let filling = self.writer.filling.as_ref()?;
        let has_room = filling.flush.has_room() && self.fits_slot(0);
        has_room.then(|| self.filling_flush()).flatten()
    }

    /// A file has no name any more, and nobody reads it: it ends. When pending, a [`crate::Reply::Decided`] follows.
    pub fn end_file(&mut self, token: Token, file: FileNumber) -> Admission<FileOutcome> {
        match self.may_write(file) {
            Ok(()) | Err(FileOutcome::Sealed | FileOutcome::TooManyChanges) => {}
            Err(outcome) => return Admission::Done(outcome),
        }
        let on_its_way = |writing: &Writing| writing.is_held_up() || writing.is_on_its_way();
        if self.is_busy() || self.open_files.get(file).is_some_and(on_its_way) {
            return Admission::Busy;
        }
        let key = file.key();
        let record = NewRecord {
            kind: RecordKind::End,
            flags: 0,
            expected: 0,
            run: key.run,
            event: key.event,
            source: 0,
            crc: 0,
            extra: 0,
        };
        match self.append(Purpose::Decision, record, Payload::NONE, Waiter::Decision(token)) {
            Ok(_) => {}
            Err(Refusal::NoSpace) if self.decide_by_checkpoint(token, record.without_payload()) => {}
            Err(refusal) => return refused(refusal),
        }
        let known = self.files.get(file);
        self.open_files.enter(file, known).ends = true;
        Admission::Pending
    }

    /// A record of a file is durable.
    pub(super) fn record_of_file_is_durable(
        &mut self,
        segment: SegmentIndex,
        position: u32,
        entry: &TableEntry,
        is_copy: bool,
    ) {
        let record = FileRecord::of(entry).expect("its kind is of a file");
        if !is_copy && let Some(writing) = self.open_files.get_mut(record.file) {
            writing.is_durable();
        }
        self.open_files.drop_idle(record.file);
        if !is_copy && entry.kind == RecordKind::Piece {
            self.counters.file_bytes_stored += u64::from(entry.bytes);
        }
        let is_over = self.files.get(record.file).is_none() && is_copy;
        if is_copy {
            self.background.compaction.piece_is_moved();
        }
        if is_over || self.finished.contains(entry.key()) {
            return;
        }
        let written_unix_ns = unix_ns(self.segments.get(segment).written);
        let place = RecordPlace { segment, position, written_unix_ns };
        self.files.take(&record, place, |_, _| true, &mut self.segments);
    }

    /// A file is over.
    pub(super) fn file_is_over(&mut self, file: FileNumber) {
        self.finished.insert(file.key());
        self.losses.known.forget_file(file);
        self.files.end(file, &mut self.segments);
        self.open_files.forget(file);
        self.summing.forget(file);
    }
}

fn purpose_of(write: &FileWrite) -> Purpose {
    if write.may_take_last { Purpose::Decision } else { Purpose::Fragment }
}

fn outcome_of(refusal: Refusal) -> FileOutcome {
    match refusal {
        Refusal::NoSpace => FileOutcome::NoSpace,
        Refusal::ChecksumMismatch => FileOutcome::ChecksumMismatch,
        Refusal::Unavailable | Refusal::Busy => FileOutcome::Unavailable,
    }
}

fn refused(refusal: Refusal) -> Admission<FileOutcome> {
    match refusal {
        Refusal::Busy => Admission::Busy,
        refusal => Admission::Done(outcome_of(refusal)),
    }
}
