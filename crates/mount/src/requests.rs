//! The requests that change a file, but for the bytes, which [`forebay_client::files::WriteBehind`] sends.

use forebay_client::Request;
use forebay_protocol::{Changer, FileClose, FileOpen, FileRead, FileSeal, FileSet, FileStat, NameLookup, Opener};
use forebay_types::FileNumber;

pub(crate) fn open(file: FileNumber, by: Opener, write: bool) -> Request {
    Request::FileOpen(FileOpen { file, by, write })
}

pub(crate) fn close(file: FileNumber, by: Opener) -> Request {
    Request::FileClose(FileClose { file, by })
}

pub(crate) fn set_length(file: FileNumber, by: Changer, length: u64) -> Request {
    Request::FileSet(FileSet { file, by: Some(by), length: Some(length), written_unix_ns: None })
}

/// `by`: who has the file open for writing, if somebody has.
pub(crate) fn set_written(file: FileNumber, by: Option<Changer>, written_unix_ns: i64) -> Request {
    Request::FileSet(FileSet { file, by, length: None, written_unix_ns: Some(written_unix_ns) })
}

/// Unless somebody writes to it.
pub(crate) fn seal(file: FileNumber) -> Request {
    Request::FileSeal(FileSeal { file, by: None, unless_written: true })
}

pub(crate) fn read(file: FileNumber, start: u64, bytes: u32) -> Request {
    Request::FileRead(FileRead { file, start, bytes })
}

pub(crate) fn stat(file: FileNumber) -> Request {
    Request::FileStat(FileStat { files: vec![file] })
}

/// What a number stands for.
pub(crate) fn node(number: FileNumber) -> Request {
    Request::NameLookup(NameLookup { directory: Some(number), name: Vec::new() })
}
