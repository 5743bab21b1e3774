//! The sums of sealed files: known when a file was written in order, else computed by reading it once.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_format::{FileChange, FileRecord};
use forebay_types::limits::PIECE_BYTES_MAX;
use forebay_types::{FileNumber, ReadOutcome, Time, crc32c};

use super::{FileRead, Lane};
use crate::api::Token;
use crate::files::{File, RunningSums, Sums};
use crate::flush::Payload;
use crate::lane::write::{Purpose, Waiter};

/// After a read that failed for now nothing is read for so long.
const RETRY: Duration = Duration::from_millis(100);

/// Sealed files of which the sums are not stored yet.
#[derive(Default)]
pub(in crate::lane) struct Summing {
    files: BTreeMap<FileNumber, RunningSums>,
    /// One that is read now.
    reading: Option<FileNumber>,
    /// Files are read again from the first on when all were tried.
    next: FileNumber,
    rests_until: Time,
}

impl Summing {
    /// A file is sealed; its sums may be known.
    pub(super) fn begin(&mut self, file: FileNumber, sums: Option<RunningSums>) {
        self.files.insert(file, sums.unwrap_or_default());
    }

    /// Files that were sealed before this start.
    pub(super) fn begin_all(&mut self, files: Vec<FileNumber>) {
        self.files.extend(files.into_iter().map(|file| (file, RunningSums::default())));
    }

    /// The sums of a file of this length, if all of it was summed.
    pub(super) fn computed(&self, file: FileNumber, length: u64) -> Option<Sums> {
        self.files.get(&file).filter(|sums| sums.bytes == length).map(RunningSums::sums)
    }

    pub(super) fn forget(&mut self, file: FileNumber) {
        self.files.remove(&file);
    }

    /// When there is something to read, or to write.
    pub(in crate::lane) fn next(&self) -> Option<Time> {
        (self.reading.is_none() && !self.files.is_empty()).then_some(self.rests_until)
    }
}

impl Lane {
    /// Writes the sums of a file if they are known, in the version of the state that seals it.
    pub(super) fn write_sums(&mut self, file: FileNumber) -> bool {
        let length = match self.open_files.get(file) {
            Some(writing) => writing.length,
            None => self.files.get(file).map_or(0, File::length),
        };
        if self.open_files.get(file).is_some_and(|writing| writing.ends) {
            return false;
        }
        let Some(sums) = self.summing.files.get(&file).filter(|sums| sums.bytes == length) else { return false };
        let sums = sums.sums();
        let on_its_way = self.open_files.get(file).map(|writing| writing.version);
        let Some(version) = on_its_way.or_else(|| self.files.get(file).map(File::version)) else { return false };
        let record = FileRecord { file, version, change: FileChange::Sums { crc: sums.crc, adler32: sums.adler32 } };
        let written =
            self.append_record_of_file(record, Payload::NONE, Waiter::Put(Token::NONE), Purpose::Fragment).is_ok();
        if written {
            self.summing.files.remove(&file);
        }
        written
    }

    /// Starts to read the next part of a file that has no sums yet, or writes them; whether there was something to do.
    pub(in crate::lane) fn sum_on(&mut self) -> bool {
        if self.summing.next().is_none_or(|at| at > self.now) {
            return false;
        }
        let from = self.summing.next;
        let Some((&file, sums)) = self.summing.files.range(from..).next().or(self.summing.files.iter().next()) else {
            return false;
        };
        let read = sums.bytes;
        let Some(known) = self.files.get(file).filter(|known| known.is_sealed()) else {
            // Its seal is on its way.
            self.summing.next = FileNumber(file.0.saturating_add(1));
            return false;
        };
        let end = known.length().min(read + PIECE_BYTES_MAX as u64);
        if read == known.length() {
            self.summing.next = FileNumber(file.0.saturating_add(1));
            return self.write_sums(file);
        }
        // It may be read at once.
        self.summing.reading = Some(file);
        if !self.start_summing(file, read..end) {
            // It is lost in part, and has no sums.
            self.summing.reading = None;
            self.summing.forget(file);
        }
        true
    }

    /// A part of a file was read, to sum it.
    pub(in crate::lane) fn part_is_summed(&mut self, file: FileNumber, read: FileRead) {
        self.summing.reading = None;
        self.note_file_read(&read);
        let Some(sums) = self.summing.files.get_mut(&file) else { return };
        let wanted = self.files.get(file).map_or(0, |known| (known.length() - sums.bytes).min(PIECE_BYTES_MAX as u64));
        let is_whole = read.payload.len() as u64 == wanted;
        match read.outcome {
            ReadOutcome::Found if is_whole => sums.add(&read.payload, crc32c(&read.payload)),
            // What is lost has no sums.
            _ if read.reports.iter().any(|(_, report)| report.is_lost()) => self.summing.forget(file),
            _ => {
                self.summing.next = FileNumber(file.0.saturating_add(1));
                self.summing.rests_until = self.now + RETRY;
            }
        }
    }
}
