//! What became of a request. The numbers are those of the wire and are never given another meaning.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::limits::STREAM_NAME_BYTES_MAX;

macro_rules! coded {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal, $text:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant = $code,)+ }

        impl $name {
            /// Every outcome, in the order of their codes.
            pub const ALL: &[$name] = &[$($name::$variant),+];

            /// The number on the wire.
            pub const fn code(self) -> u8 {
                self as u8
            }

            /// The outcome with this number on the wire.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some($name::$variant),)+
                    _ => None,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($name::$variant => $text,)+ })
            }
        }
    };
}

coded!(
    /// What became of a fragment that was put.
    PutOutcome {
        /// On stable media at the stated width: the writer may forget it.
        Durable = 0, "durable";
        /// The event was decided before: acknowledged, dropped, counted.
        Late = 1, "late: the event was already decided, the fragment was dropped and counted";
        /// The id exists with other content; nothing was changed.
        Conflict = 2, "conflict: this id is already stored with other content; nothing was changed";
        /// No space now; the writer keeps the fragment and tries again.
        NoSpace = 3, "no space: the store is full; keep the fragment and try again";
        /// The bytes that arrived do not have the checksum that the writer computed.
        ChecksumMismatch = 4, "checksum mismatch: the bytes were damaged on the way; send them again";
        /// Larger than this store takes.
        TooLarge = 5, "too large: the fragment exceeds what this store takes";
        /// Too few drives to keep what is promised; the writer keeps the fragment and tries again.
        Unavailable = 6, "unavailable: too few drives are up to keep the promised protection; keep the fragment and try again";
        /// The index memory is used up; the writer keeps the fragment and tries again.
        IndexFull = 7, "index full: the configured index memory is used up; keep the fragment and try again";
        /// The store is open for reading alone.
        ReadOnly = 8, "read-only: the store was started read-only";
        /// The run is kept for files, in stores that have some.
        KeptRun = 9, "kept run: run 4294967295 is kept for files; nothing was stored, give the fragment another run";
        /// The run is closed, and this fragment is none that was there before.
        RunClosed = 10, "run closed: no fragments of this run are taken any more, as it was closed; nothing was stored, `forebay run show` says who closed it and why";
        /// The run is discarded.
        RunDiscarded = 11, "run discarded: nothing of this run is kept; nothing was stored, drop the fragment";
    }
);

coded!(
    /// What became of a change of a file.
    FileOutcome {
        /// On stable media at the stated width.
        Done = 0, "done";
        /// The file was removed.
        Removed = 1, "removed: the file is not there any more; nothing was changed";
        /// The file is sealed, which is for ever.
        Sealed = 2, "sealed: the file does not change any more; nothing was changed";
        /// Another writer, which still has the file open, wrote there.
        Conflict = 3, "conflict: another writer that has the file open wrote these bytes; nothing was changed";
        /// No space now; the writer keeps the bytes and tries again.
        NoSpace = 4, "no space: the store is full; what was acknowledged stays";
        /// The bytes that arrived do not have the checksum that the writer computed.
        ChecksumMismatch = 5, "checksum mismatch: the bytes were damaged on the way; send them again";
        /// More than a piece may have, or beyond the longest file.
        TooLarge = 6, "too large: more than is taken at once, or beyond the longest file";
        /// Too few drives to keep what is promised, or what the file holds is out of reach.
        Unavailable = 7, "unavailable: drives are missing, for writing or for what the file holds";
        /// The index memory is used up.
        IndexFull = 8, "index full: the configured index memory is used up; try again later";
        /// The store is open for reading alone.
        ReadOnly = 9, "read-only: the store was started read-only";
        /// The writer has not opened the file.
        NotOpen = 10, "not open: this writer has not opened the file, or was taken for dead";
        /// All versions of the file are used up.
        TooManyChanges = 11, "too many changes: a file changes about 4.29 billion times at most; copy it";
        /// The store is of a version without files.
        NoFiles = 12, "no files: the store was made by a version without files; `forebay upgrade` gives it files";
    }
);

coded!(
    /// What became of what was asked of a name. Whatever is not done has changed nothing.
    NameOutcome {
        /// Durable, or found.
        Done = 0, "done";
        /// There is no such name, or no such number.
        NotFound = 1, "there is no such file or directory";
        /// The name is taken.
        Exists = 2, "the name is taken";
        /// Something else stands where a directory must.
        NotDirectory = 3, "it is not a directory";
        /// A directory stands where none may.
        IsDirectory = 4, "it is a directory";
        /// The directory has entries.
        NotEmpty = 5, "the directory is not empty";
        /// A name is empty, `.` or `..`, or has a `/` or a zero byte in it.
        BadName = 6, "a name must not be empty, \".\" or \"..\", or have a slash or a zero byte in it";
        /// A name has more than 255 bytes, or the target of a link more than 4095.
        TooLong = 7, "the name is too long: names have at most 255 bytes, targets of links at most 4095";
        /// A directory cannot become one of its own descendants.
        IntoItself = 8, "a directory cannot be moved into itself";
        /// More names of one file, or entries of one directory, than can be counted.
        TooManyLinks = 9, "there are too many links";
        /// Every number was given.
        NoNumbers = 10, "all numbers of files were given";
        /// No space now for the journal of names.
        NoSpace = 11, "no space: the store is full; nothing was changed";
        /// The memory for files and names is used up.
        IndexFull = 12, "index full: the configured index memory is used up; nothing was changed";
        /// Too few drives to keep what is promised.
        Unavailable = 13, "unavailable: too few drives are up to keep the promised protection; nothing was changed";
        /// The store is open for reading alone.
        ReadOnly = 14, "read-only: the store was started read-only";
        /// The client has asked for something newer since.
        Stale = 15, "stale: its client has asked for something newer since; whether this was done before is not known";
    }
);

impl PutOutcome {
    /// Whether the writer may forget the fragment.
    pub const fn is_acknowledged(self) -> bool {
        matches!(self, PutOutcome::Durable | PutOutcome::Late)
    }

    /// Whether the same put may succeed later.
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            PutOutcome::NoSpace | PutOutcome::ChecksumMismatch | PutOutcome::Unavailable | PutOutcome::IndexFull
        )
    }
}

coded!(
    /// What a read found.
    ReadOutcome {
        /// The right bytes.
        Found = 0, "found";
        /// No such fragment was ever acknowledged here.
        NotFound = 1, "not found";
        /// The event was rejected, deleted, or released by all of its streams.
        Deleted = 2, "deleted: the event was rejected, deleted or released";
        /// The bytes exist but too few of their drives answer now.
        Unavailable = 3, "unavailable for now: too few of the drives that hold it answer";
        /// The bytes are damaged beyond what parity can mend.
        Lost = 4, "lost: damaged on more drives than parity can mend";
    }
);

coded!(
    /// What became of a decision, a deletion or a release.
    DecideOutcome {
        /// Durable.
        Done = 0, "done";
        /// The same was already durable; nothing was changed.
        AlreadyDone = 1, "already done";
        /// The event was decided otherwise before; nothing was changed.
        Conflict = 2, "conflict: the event was already decided otherwise; nothing was changed";
        /// No such event, or it does not belong to that stream.
        NotFound = 3, "not found";
        /// No space now, even in the reserve; try again.
        NoSpace = 4, "no space: try again";
        /// Too few drives to make it durable; try again.
        Unavailable = 5, "unavailable: too few drives are up; try again";
        /// The store is open for reading alone.
        ReadOnly = 6, "read-only: the store was started read-only";
        /// The lane has given all numbers of streams away; the event stays as it is.
        TooManyStreams = 7, "too many streams: the store knows as many as it can already and none is ever forgotten; the event stays \
                             as it is, name streams that the store knows";
        /// The run is held: nothing of it is freed.
        Held = 8, "held: nothing of this run is freed until its hold ends; nothing was changed, `forebay run show` says who holds it and why";
    }
);

impl DecideOutcome {
    /// Whether what was asked for is durable.
    pub const fn is_done(self) -> bool {
        matches!(self, DecideOutcome::Done | DecideOutcome::AlreadyDone)
    }
}

/// The event filter's word on an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not wanted: the event is dropped.
    Reject,
    /// Wanted by these streams, at least one.
    Accept(Vec<StreamName>),
}

/// The name of a stream: 1 to 64 bytes of ASCII letters, digits, `_`, `-` and `.`, not starting with a
/// dot, so that it can name a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StreamName(Box<str>);

impl StreamName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for StreamName {
    type Err = StreamNameError;

    fn from_str(name: &str) -> Result<Self, StreamNameError> {
        let fits = (1..=STREAM_NAME_BYTES_MAX).contains(&name.len());
        let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
        if fits && plain && !name.starts_with('.') {
            Ok(StreamName(name.into()))
        } else {
            Err(StreamNameError { name: name.chars().take(80).collect() })
        }
    }
}

impl TryFrom<String> for StreamName {
    type Error = StreamNameError;

    fn try_from(name: String) -> Result<Self, StreamNameError> {
        name.parse()
    }
}

impl From<StreamName> for String {
    fn from(name: StreamName) -> String {
        name.0.into()
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name that no stream may have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} cannot name a stream: use 1 to 64 ASCII letters, digits, '_', '-' or '.', not starting with a dot")]
pub struct StreamNameError {
    /// What was given.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_read_back_and_are_the_stored_ones() {
        for (code, outcome) in PutOutcome::ALL.iter().enumerate() {
            assert_eq!(usize::from(outcome.code()), code);
            assert_eq!(PutOutcome::from_code(code as u8), Some(*outcome));
        }
        assert_eq!(PutOutcome::from_code(200), None);
        assert_eq!((PutOutcome::KeptRun.code(), FileOutcome::NoFiles.code()), (9, 12));
        assert_eq!((PutOutcome::RunClosed.code(), PutOutcome::RunDiscarded.code()), (10, 11));
        assert!(PutOutcome::KeptRun.to_string().contains(&crate::RunId::FILES.to_string()), "it names the run");
        assert_eq!(ReadOutcome::Lost.code(), 4);
        assert_eq!(DecideOutcome::ReadOnly.code(), 6);
        assert_eq!((DecideOutcome::TooManyStreams.code(), DecideOutcome::Held.code()), (7, 8));
    }

    #[test]
    fn stream_names_that_could_leave_their_directory_are_refused() {
        for name in ["", ".", "..", "a/b", "a\0", "é", &"x".repeat(65)] {
            assert!(name.parse::<StreamName>().is_err(), "{name:?}");
        }
        for name in ["physics", "debug-2", "A_1.v2", &"x".repeat(64)] {
            assert_eq!(name.parse::<StreamName>().map(String::from), Ok(name.to_owned()));
        }
    }
}
