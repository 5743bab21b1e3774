//! Files of the pretended lane.

use std::collections::BTreeSet;

use forebay_engine::{
    Admission, FetchFile, FileAdmission, FileView, FileWrite, SharedBytes, SharedRange, Token, WriteAt, WriterNumber,
};
use forebay_server::FileRequests;
use forebay_types::{FileNumber, FileOutcome, ReadOutcome, crc32c};

use super::{FakeLane, Will};

/// A file of the pretended lane.
#[derive(Clone, Debug, Default)]
pub struct FakeFile {
    pub bytes: Vec<u8>,
    pub sealed: bool,
    pub written_unix_ns: i64,
    pub writers: BTreeSet<u64>,
}

impl FileRequests for FakeLane {
    fn file(&self, file: FileNumber) -> Option<FileView> {
        self.files.get(&file).map(|file| FileView {
            length: file.bytes.len() as u64,
            written_unix_ns: file.written_unix_ns,
            sealed: file.sealed,
            sums: file.sealed.then(|| (crc32c(&file.bytes), 1)),
        })
    }

    fn files_from(&self, first: FileNumber) -> impl Iterator<Item = FileNumber> + '_ {
        self.files.range(first..).map(|(file, _)| *file)
    }

    fn next_file_ordinal(&self) -> u64 {
        // Of one lane, the numbers are the ordinals.
        self.files.keys().chain(&self.ended).map(|file| file.0 + 1).max().unwrap_or(0)
    }

    fn outcome_of_unknown_file(&self, file: FileNumber) -> ReadOutcome {
        if self.ended.contains(&file) { ReadOutcome::Deleted } else { ReadOutcome::NotFound }
    }

    fn outcome_of_hidden_file(&self, file: FileNumber) -> ReadOutcome {
        self.outcome_of_unknown_file(file)
    }

    fn open_file(&mut self, file: FileNumber, writer: WriterNumber, _: bool) -> Admission<FileOutcome> {
        if self.not_serving {
            return Admission::Busy;
        }
        if self.ended.contains(&file) {
            return Admission::Done(FileOutcome::Removed);
        }
        if self.files.get(&file).is_some_and(|file| file.sealed) {
            return Admission::Done(FileOutcome::Sealed);
        }
        self.files.entry(file).or_default().writers.insert(writer.0);
        Admission::Done(FileOutcome::Done)
    }

    fn close_file(&mut self, file: FileNumber, writer: WriterNumber) {
        if let Some(file) = self.files.get_mut(&file) {
            file.writers.remove(&writer.0);
        }
    }

    fn write_file(&mut self, token: Token, write: &FileWrite, payload: &[u8]) -> FileAdmission {
        let will = self.will();
        let Some(file) = self.files.get_mut(&write.file) else { return FileAdmission::Done(FileOutcome::NotOpen) };
        if !file.writers.contains(&write.writer.0) {
            return FileAdmission::Done(FileOutcome::NotOpen);
        }
        match will {
            Will::BeBusy => return FileAdmission::Busy,
            Will::Refuse if write.writer.0 != 0 => return FileAdmission::Done(FileOutcome::Conflict),
            Will::BeFull if write.writer.0 != 0 => return FileAdmission::Done(FileOutcome::NoSpace),
            _ if self.is_full_of_files && !write.may_take_last => return FileAdmission::Done(FileOutcome::NoSpace),
            _ => {}
        }
        if crc32c(payload) != write.crc {
            return FileAdmission::Done(FileOutcome::ChecksumMismatch);
        }
        let start = match write.at {
            WriteAt::Offset(start) => start,
            WriteAt::End => file.bytes.len() as u64,
        };
        if start > 1 << 24 {
            return FileAdmission::Done(FileOutcome::TooLarge);
        }
        let end = start as usize + payload.len();
        file.bytes.resize(file.bytes.len().max(end), 0);
        file.bytes[start as usize..end].copy_from_slice(payload);
        self.pending.push(token);
        FileAdmission::Pending { start }
    }

    fn place_of_write(&mut self, write: &FileWrite, bytes: usize) -> Option<Vec<&mut [u8]>> {
        let may = self.will.is_empty() && !self.is_full_of_files;
        let file = self.files.get(&write.file).filter(|file| may && file.writers.contains(&write.writer.0));
        file?;
        self.placed.resize(bytes, 0);
        Some(self.placed.chunks_mut(999).collect())
    }

    fn write_placed(&mut self, token: Token, write: &FileWrite, bytes: usize) -> FileAdmission {
        let placed = std::mem::take(&mut self.placed);
        assert_eq!(placed.len(), bytes, "it was put there");
        self.placed_writes += 1;
        self.write_file(token, write, &placed)
    }

    fn set_file(
        &mut self,
        token: Token,
        file: FileNumber,
        length: Option<u64>,
        written_unix_ns: Option<i64>,
    ) -> Admission<FileOutcome> {
        if self.ended.contains(&file) {
            return Admission::Done(FileOutcome::Removed);
        }
        if length.is_some_and(|length| length > 1 << 24) {
            return Admission::Done(FileOutcome::TooLarge);
        }
        let file = self.files.entry(file).or_default();
        if let Some(length) = length {
            file.bytes.resize(length as usize, 0);
        }
        file.written_unix_ns = written_unix_ns.unwrap_or(file.written_unix_ns);
        self.changed.push(token);
        Admission::Pending
    }

    fn seal_file(&mut self, token: Token, file: FileNumber) -> Admission<FileOutcome> {
        if self.ended.contains(&file) {
            return Admission::Done(FileOutcome::Removed);
        }
        let file = self.files.entry(file).or_default();
        if std::mem::replace(&mut file.sealed, true) {
            return Admission::Done(FileOutcome::Sealed);
        }
        self.changed.push(token);
        Admission::Pending
    }

    fn end_file(&mut self, token: Token, file: FileNumber) -> Admission<FileOutcome> {
        if !self.ended.insert(file) {
            return Admission::Done(FileOutcome::Removed);
        }
        self.files.remove(&file);
        self.changed.push(token);
        Admission::Pending
    }

    fn share_file(&mut self, file: FileNumber, start: u64, bytes: u32) -> Option<SharedRange> {
        let known = self.files.get(&file).filter(|file| file.sealed)?;
        let from = (start as usize).min(known.bytes.len());
        let bytes = &known.bytes[from..known.bytes.len().min(from + bytes as usize)];
        let (first, second) = bytes.split_at(bytes.len() / 3);
        self.shared += 1;
        let pieces = [first, second].map(SharedBytes::copy_of).to_vec();
        Some(SharedRange { pieces, bytes: bytes.len(), crc: crc32c(bytes) })
    }

    fn read_file(&mut self, token: Token, file: FileNumber, start: u64, bytes: u32, into: &mut Vec<u8>) -> FetchFile {
        if self.ended.contains(&file) {
            return FetchFile::Done(ReadOutcome::Deleted, 0);
        }
        let Some(known) = self.files.get(&file) else { return FetchFile::Done(ReadOutcome::NotFound, 0) };
        let start = (start as usize).min(known.bytes.len());
        let reach = self.out_of_reach.filter(|(of, _)| *of == file).map_or(usize::MAX, |(_, reach)| reach);
        let outcome = if start < reach { ReadOutcome::Found } else { ReadOutcome::Unavailable };
        let end = (start + bytes as usize).min(known.bytes.len()).min(reach.max(start));
        if self.reads_files_later {
            self.file_reads.push((token, outcome, known.bytes[start..end].to_vec()));
            return FetchFile::Pending { bytes: (end - start) as u32 };
        }
        into.extend_from_slice(&known.bytes[start..end]);
        FetchFile::Done(outcome, end - start)
    }

    fn has_room_for_files(&self) -> bool {
        !self.is_full_of_files
    }

    fn capacity_bytes(&self) -> u64 {
        1 << 40
    }

    fn segment_bytes(&self) -> u64 {
        1 << 28
    }

    fn wall_unix_ns(&self) -> i64 {
        1_000_000_000
    }
}
