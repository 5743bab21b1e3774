//! Journal and snapshots as files of the lane: one write at a time, of all that has come meanwhile.

use std::collections::{BTreeSet, VecDeque};

use forebay_engine::{Admission, FileAdmission, FileWrite, Reply, WriteAt, WriterNumber};
use forebay_names::{Names, Output, journal_number, snapshot_number};
use forebay_types::limits::PIECE_BYTES_MAX;
use forebay_types::placement::lane_ordinal;
use forebay_types::{DecideOutcome, FileNumber, FileOutcome, crc32c};

use super::{NAMES_REQUEST, keeps_names};
use crate::lane_requests::LaneRequests;
use crate::request::token;

/// Bytes of a snapshot that are made at once.
const SNAPSHOT_SLICE_BYTES: usize = 256 << 10;

/// A snapshot is made when the journal has more bytes than the last one, and than this,
const JOURNAL_BYTES_MIN: u64 = 1 << 20;

/// or than one part in so many of the lane, which a small one would be filled by.
const JOURNAL_SHARE: u64 = 16;

/// In a full lane a snapshot takes at most one part in so many of a segment.
const FULL_SHARE: u64 = 4;

/// What the lane was asked and has not answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// To write so many bytes of the journal.
    Journal(usize),
    /// To write so many bytes of the snapshot.
    Snapshot(usize),
    /// To seal a snapshot.
    Seal,
    /// To cut a journal.
    Cut,
    /// To end a file that nobody needs.
    End,
}

/// Bytes on their way to a file.
struct Stream {
    file: FileNumber,
    bytes: Vec<u8>,
    /// So many of them are durable.
    done: usize,
}

/// Writes what the names give.
pub(super) struct Writer {
    lanes: u16,
    asked: Option<Asked>,
    opened: BTreeSet<FileNumber>,
    journals: VecDeque<Stream>,
    snapshots: VecDeque<Stream>,
    /// A snapshot of which all was given: its generation, and where the journals must be durable before it counts.
    whole: Option<(u64, u64)>,
    /// It was sealed.
    is_sealed: bool,
    /// Bytes of journals that are durable, since the start.
    durable: u64,
    cut: Option<(FileNumber, u64)>,
    obsolete: VecDeque<FileNumber>,
    is_full: bool,
    /// The lane takes nothing any more.
    is_over: bool,
}

impl Writer {
    pub(super) fn new(lanes: u16, cut: Option<(FileNumber, u64)>, obsolete: Vec<FileNumber>) -> Writer {
        Writer {
            lanes,
            asked: None,
            opened: BTreeSet::new(),
            journals: VecDeque::new(),
            snapshots: VecDeque::new(),
            whole: None,
            is_sealed: false,
            durable: 0,
            cut,
            obsolete: obsolete.into(),
            is_full: false,
            is_over: false,
        }
    }

    /// There is room for what takes room away alone.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether nothing can be written before the next start.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether there is something to do, and the lane would not take it when it was asked.
    pub(super) fn waits(&self) -> bool {
        let idle = self.journals.is_empty() && self.snapshots.is_empty() && self.obsolete.is_empty();
        let has_work = !idle || self.whole.is_some() || self.cut.is_some();
        self.asked.is_none() && has_work
    }

    /// Asks the lane for the next thing; whether it did.
    pub(super) fn tend(&mut self, names: &mut Names, lane: &mut impl LaneRequests) -> bool {
        while let Some(output) = names.next_output() {
            self.take_output(output);
        }
        if self.asked.is_some() {
            return false;
        }
        self.is_full = self.is_full && !lane.has_room_for_files();
        self.asked = self.ask(names, lane);
        self.asked.is_some()
    }

    fn take_output(&mut self, output: Output) {
        let lanes = self.lanes;
        match output {
            Output::Journal { generation, bytes } => {
                let file = journal_number(generation, lanes).expect("the names give generations that have files");
                match self.journals.back_mut().filter(|last| last.file == file) {
                    Some(last) => last.bytes.extend_from_slice(&bytes),
                    None => self.journals.push_back(Stream { file, bytes, done: 0 }),
                }
            }
            Output::Snapshot { generation, bytes, whole_at } => {
                let file = snapshot_number(generation, lanes).expect("the names give generations that have files");
                self.snapshots.push_back(Stream { file, bytes, done: 0 });
                self.whole = whole_at.map(|whole_at| (generation, whole_at));
            }
        }
    }

    fn ask(&mut self, names: &mut Names, lane: &mut impl LaneRequests) -> Option<Asked> {
        if let Some((journal, bytes)) = self.cut {
            return self.cut_journal(journal, bytes, lane);
        }
        if !self.journals.is_empty() {
            let admission = self.write(true, false, lane)?;
            self.is_full |= admission == Err(FileOutcome::NoSpace);
            let admission =
                if admission == Err(FileOutcome::NoSpace) { self.write(true, true, lane)? } else { admission };
            // Unlike a file that cannot be opened, a lane that takes nothing of an open one takes nothing any more.
            self.is_over = admission == Err(FileOutcome::Unavailable);
            return admission.map(Asked::Journal).ok();
        }
        if !self.snapshots.is_empty() {
            return self.write(false, self.is_full, lane)?.map(Asked::Snapshot).ok();
        }
        if self.is_sealed {
            self.forget_older(lane);
        }
        if let Some((generation, whole_at)) = self.whole {
            return if self.durable >= whole_at { self.seal(generation, lane) } else { None };
        }
        if let Some(file) = self.obsolete.front() {
            return match lane.end_file(token(NAMES_REQUEST, 0), *file) {
                Admission::Pending => Some(Asked::End),
                Admission::Busy => None,
                Admission::Done(_) => {
                    self.obsolete.pop_front();
                    None
                }
            };
        }
        let journal_bytes_min = JOURNAL_BYTES_MIN.min(lane.capacity_bytes() / JOURNAL_SHARE);
        // In a full lane there is one segment more for what keeps the names, and the journal needs it as well.
        let has_room = !self.is_full || names.bytes() as u64 <= lane.segment_bytes() / FULL_SHARE;
        if has_room && names.wants_snapshot(journal_bytes_min) {
            names.begin_snapshot();
        }
        if names.go_on_with_snapshot(SNAPSHOT_SLICE_BYTES) || self.has_output(names) {
            return self.ask_again(names, lane);
        }
        None
    }

    fn has_output(&mut self, names: &mut Names) -> bool {
        while let Some(output) = names.next_output() {
            self.take_output(output);
        }
        !self.journals.is_empty() || !self.snapshots.is_empty()
    }

    fn ask_again(&mut self, names: &mut Names, lane: &mut impl LaneRequests) -> Option<Asked> {
        if self.has_output(names) { self.ask(names, lane) } else { None }
    }

    fn cut_journal(&mut self, journal: FileNumber, bytes: u64, lane: &mut impl LaneRequests) -> Option<Asked> {
        if !is_open(&mut self.opened, journal, lane) {
            return None;
        }
        match lane.set_file(token(NAMES_REQUEST, 0), journal, Some(bytes), None) {
            Admission::Pending => Some(Asked::Cut),
            Admission::Busy => None,
            Admission::Done(outcome) => {
                tracing::warn!(%outcome, "the end of the journal of names could not be cut yet: names cannot be changed until it is");
                None
            }
        }
    }

    /// Writes the next bytes of the journals or of the snapshot; `None`: not now.
    fn write(
        &mut self,
        is_journal: bool,
        may_take_last: bool,
        lane: &mut impl LaneRequests,
    ) -> Option<Result<usize, FileOutcome>> {
        let stream = if is_journal { self.journals.front() } else { self.snapshots.front() }?;
        if !is_open(&mut self.opened, stream.file, lane) {
            return None;
        }
        let left = &stream.bytes[stream.done..];
        let payload = &left[..left.len().min(PIECE_BYTES_MAX)];
        let write = FileWrite {
            file: stream.file,
            at: WriteAt::End,
            crc: crc32c(payload),
            writer: WriterNumber::SERVER,
            appends: false,
            may_take_last,
        };
        match lane.write_file(token(NAMES_REQUEST, 0), &write, payload) {
            FileAdmission::Pending { .. } => Some(Ok(payload.len())),
            FileAdmission::Busy => None,
            FileAdmission::Done(outcome) => Some(Err(outcome)),
        }
    }

    fn seal(&mut self, generation: u64, lane: &mut impl LaneRequests) -> Option<Asked> {
        let file = snapshot_number(generation, self.lanes).expect("it was written");
        match lane.seal_file(token(NAMES_REQUEST, 0), file) {
            Admission::Pending => Some(Asked::Seal),
            Admission::Busy => None,
            Admission::Done(outcome) => {
                self.is_sealed = outcome == FileOutcome::Sealed;
                None
            }
        }
    }

    /// A snapshot counts: what came before it is needed no more.
    fn forget_older(&mut self, lane: &impl LaneRequests) {
        self.is_sealed = false;
        let Some((generation, _)) = self.whole.take() else { return };
        let lanes = self.lanes;
        let older = |number: &FileNumber| lane_ordinal(number.0, lanes) / 2 < generation;
        let kept = lane.files_from(FileNumber(0)).filter(|number| keeps_names(*number, lanes));
        self.obsolete = kept.filter(older).collect();
    }

    /// The lane answered.
    ///
    /// # Errors
    /// Why nothing more can be written before the next start.
    pub(super) fn take_reply(&mut self, reply: Reply, names: &mut Names) -> Result<(), String> {
        match (self.asked.take(), reply) {
            (Some(Asked::Journal(bytes)), Reply::Stored { .. }) => {
                self.durable += bytes as u64;
                names.is_durable(self.durable);
                take_durable(&mut self.journals, bytes);
            }
            (Some(Asked::Snapshot(bytes)), Reply::Stored { .. }) => take_durable(&mut self.snapshots, bytes),
            (Some(Asked::Seal), Reply::Decided { outcome: DecideOutcome::Done, .. }) => self.is_sealed = true,
            (Some(Asked::Cut), Reply::Decided { outcome: DecideOutcome::Done, .. }) => self.cut = None,
            (Some(Asked::End), Reply::Decided { .. }) => drop(self.obsolete.pop_front()),
            (Some(_), Reply::Refused { outcome, .. }) => {
                return Err(format!("their journal could not be written ({outcome})"));
            }
            // Tried again.
            _ => {}
        }
        Ok(())
    }
}

/// Opens a file of the names unless it is; whether it is now.
fn is_open(opened: &mut BTreeSet<FileNumber>, file: FileNumber, lane: &mut impl LaneRequests) -> bool {
    // A file that nothing was written to yet cannot have anything out of reach.
    let is_new = lane.file(file).is_none();
    if !opened.contains(&file)
        && lane.open_file(file, WriterNumber::SERVER, is_new) == Admission::Done(FileOutcome::Done)
    {
        opened.insert(file);
    }
    opened.contains(&file)
}

fn take_durable(streams: &mut VecDeque<Stream>, bytes: usize) {
    let Some(first) = streams.front_mut() else { return };
    first.done += bytes;
    if first.done == first.bytes.len() {
        streams.pop_front();
    }
}
