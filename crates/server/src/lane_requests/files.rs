//! What the server asks a lane of files.

use forebay_engine::{
    Admission, FetchFile, FileAdmission, FileView, FileWrite, Lane, SharedRange, Token, WriterNumber,
};
use forebay_types::{FileNumber, FileOutcome, ReadOutcome};

/// The requests of a lane for files as the server makes them. The methods are those of [`Lane`].
#[expect(missing_docs, reason = "each is the method of the same name of the lane, which says what it does")]
pub trait FileRequests {
    fn file(&self, file: FileNumber) -> Option<FileView>;
    fn files_from(&self, first: FileNumber) -> impl Iterator<Item = FileNumber> + '_;
    fn next_file_ordinal(&self) -> u64;
    fn outcome_of_unknown_file(&self, file: FileNumber) -> ReadOutcome;
    fn outcome_of_hidden_file(&self, file: FileNumber) -> ReadOutcome;
    fn open_file(&mut self, file: FileNumber, writer: WriterNumber, is_new: bool) -> Admission<FileOutcome>;
    fn close_file(&mut self, file: FileNumber, writer: WriterNumber);
    fn write_file(&mut self, token: Token, write: &FileWrite, payload: &[u8]) -> FileAdmission;
    fn place_of_write(&mut self, write: &FileWrite, bytes: usize) -> Option<Vec<&mut [u8]>>;
    fn write_placed(&mut self, token: Token, write: &FileWrite, bytes: usize) -> FileAdmission;
    fn set_file(
        &mut self,
        token: Token,
        file: FileNumber,
        length: Option<u64>,
        written_unix_ns: Option<i64>,
    ) -> Admission<FileOutcome>;
    fn seal_file(&mut self, token: Token, file: FileNumber) -> Admission<FileOutcome>;
    fn end_file(&mut self, token: Token, file: FileNumber) -> Admission<FileOutcome>;
    fn read_file(&mut self, token: Token, file: FileNumber, start: u64, bytes: u32, into: &mut Vec<u8>) -> FetchFile;
    fn share_file(&mut self, file: FileNumber, start: u64, bytes: u32) -> Option<SharedRange>;
    fn has_room_for_files(&self) -> bool;
    fn capacity_bytes(&self) -> u64;
    fn segment_bytes(&self) -> u64;
    fn wall_unix_ns(&self) -> i64;
}

impl FileRequests for Lane {
    fn file(&self, file: FileNumber) -> Option<FileView> {
        Lane::file(self, file)
    }

    fn files_from(&self, first: FileNumber) -> impl Iterator<Item = FileNumber> + '_ {
        Lane::files_from(self, first)
    }

    fn next_file_ordinal(&self) -> u64 {
        Lane::next_file_ordinal(self)
    }

    fn outcome_of_unknown_file(&self, file: FileNumber) -> ReadOutcome {
        Lane::outcome_of_unknown_file(self, file)
    }

    fn outcome_of_hidden_file(&self, file: FileNumber) -> ReadOutcome {
        Lane::outcome_of_hidden_file(self, file)
    }

    fn open_file(&mut self, file: FileNumber, writer: WriterNumber, is_new: bool) -> Admission<FileOutcome> {
        Lane::open_file(self, file, writer, is_new)
    }

    fn close_file(&mut self, file: FileNumber, writer: WriterNumber) {
        Lane::close_file(self, file, writer);
    }

    fn write_file(&mut self, token: Token, write: &FileWrite, payload: &[u8]) -> FileAdmission {
        Lane::write_file(self, token, write, payload)
    }

    fn place_of_write(&mut self, write: &FileWrite, bytes: usize) -> Option<Vec<&mut [u8]>> {
        Lane::place_of_write(self, write, bytes)
    }

    fn write_placed(&mut self, token: Token, write: &FileWrite, bytes: usize) -> FileAdmission {
        Lane::write_placed(self, token, write, bytes)
    }

    fn set_file(
        &mut self,
        token: Token,
        file: FileNumber,
        length: Option<u64>,
        written_unix_ns: Option<i64>,
    ) -> Admission<FileOutcome> {
        Lane::set_file(self, token, file, length, written_unix_ns)
    }

    fn seal_file(&mut self, token: Token, file: FileNumber) -> Admission<FileOutcome> {
        Lane::seal_file(self, token, file)
    }

    fn end_file(&mut self, token: Token, file: FileNumber) -> Admission<FileOutcome> {
        Lane::end_file(self, token, file)
    }

    fn read_file(&mut self, token: Token, file: FileNumber, start: u64, bytes: u32, into: &mut Vec<u8>) -> FetchFile {
        Lane::read_file(self, token, file, start, bytes, into)
    }

    fn share_file(&mut self, file: FileNumber, start: u64, bytes: u32) -> Option<SharedRange> {
        Lane::share_file(self, file, start, bytes)
    }

    fn has_room_for_files(&self) -> bool {
        Lane::has_room_for_files(self)
    }

    fn capacity_bytes(&self) -> u64 {
        Lane::capacity_bytes(self)
    }

    fn segment_bytes(&self) -> u64 {
        Lane::segment_bytes(self)
    }

    fn wall_unix_ns(&self) -> i64 {
        Lane::wall_unix_ns(self)
    }
}
