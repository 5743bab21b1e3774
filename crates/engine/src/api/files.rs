//! What a lane is asked of files, and what it says of them.

use forebay_types::{FileNumber, FileOutcome, ReadOutcome};

use crate::files::WriterNumber;

/// Bytes that are to be written to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileWrite {
    /// The file.
    pub file: FileNumber,
    /// Where in it.
    pub at: WriteAt,
    /// The CRC32C that the writer computed.
    pub crc: u32,
    /// Who writes: a writer that has the file open.
    pub writer: WriterNumber,
    /// They are appended: at a place where others wrote who left since it is a conflict.
    pub appends: bool,
    /// It may take room that is kept for decisions: so does the journal of names, as without it nothing could be removed from a full store.
    pub may_take_last: bool,
}

impl FileWrite {
    /// Where in a file of this length they begin.
    pub(crate) fn start(&self, length: u64) -> u64 {
        match self.at {
            WriteAt::Offset(start) => start,
            WriteAt::End => length,
        }
    }
}

/// Where in a file bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAt {
    /// Behind so many bytes.
    Offset(u64),
    /// Where it ends when they come, what is on its way included.
    End,
}

/// Whether bytes for a file were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum FileAdmission {
    /// Answered at once.
    Done(FileOutcome),
    /// A [`Reply::Stored`](super::Reply::Stored) with the token comes when they are durable.
    Pending {
        /// Where in the file they begin.
        start: u64,
    },
    /// As [`Admission::Busy`](super::Admission::Busy).
    Busy,
}

/// What is known of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileView {
    /// Bytes.
    pub length: u64,
    /// When it was written last, nanoseconds since 1970.
    pub written_unix_ns: i64,
    /// Nothing of it changes any more.
    pub sealed: bool,
    /// CRC32C and adler32 of all of it, once it is sealed and they are known.
    pub sums: Option<(u32, u32)>,
}

/// What a read of a file came to at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum FetchFile {
    /// Answered: when the outcome is `Found`, so many bytes were appended; none behind the end.
    Done(ReadOutcome, usize),
    /// A [`Reply::ReadFile`](super::Reply::ReadFile) with the token comes, of so many bytes.
    Pending {
        /// How many.
        bytes: u32,
    },
}
