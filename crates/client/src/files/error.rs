//! What can go wrong with files and names.

use std::io;

use forebay_types::{FileOutcome, NameOutcome, ReadOutcome};

use crate::error::ClientError;

/// What happened, what it means for the data, and what to do. Paths are shown as [`super::escape`] shows them.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the sentences say what each is; every `path` is what was asked for")]
pub enum FileError {
    /// Nothing has this name.
    #[error("{path}: there is no such file or directory; nothing was changed. See what is there (`forebay file ls`)")]
    NotFound { path: String },
    /// The name is taken.
    #[error("{path}: the name is taken; nothing was changed. Take another name, or remove what has it")]
    Exists { path: String },
    /// Something else stands where a directory must.
    #[error("{path}: something on the way is not a directory; nothing was changed. Check the path")]
    NotDirectory { path: String },
    /// A directory stands where none may.
    #[error("{path}: it is a directory; nothing was changed. Name a file in it, or use what is for directories")]
    IsDirectory { path: String },
    /// It is neither file nor directory.
    #[error(
        "{path}: it is a pipe, a socket or a device, of which the store has the name alone; nothing was read or changed. Name a file"
    )]
    NotFile { path: String },
    /// The directory has entries.
    #[error("{path}: the directory is not empty; nothing was changed. Remove what is in it first")]
    NotEmpty { path: String },
    /// What nothing can be called.
    #[error(
        "{path}: a name must not be empty, \".\" or \"..\", or have a slash or a zero byte in it; nothing was changed. Take another name"
    )]
    BadName { path: String },
    /// A name or a target that is too long.
    #[error(
        "{path}: names have at most 255 bytes, and targets of links at most 4095; nothing was changed. Take a shorter one"
    )]
    TooLong { path: String },
    /// Symbolic links that lead to links, without an end.
    #[error(
        "{path}: more than 40 symbolic links lie on the way, perhaps in a circle; nothing was changed. See where they lead"
    )]
    LinkLoop { path: String },
    /// A directory would lie in itself.
    #[error("{path}: a directory cannot be moved into itself; nothing was changed. Name another place")]
    IntoItself { path: String },
    /// More names than can be counted.
    #[error("{path}: there are too many links; nothing was changed. Copy the file instead")]
    TooManyLinks { path: String },
    /// The store has given all numbers away.
    #[error(
        "{path}: this store has given all numbers of files; nothing was changed. What is there stays; new files need another store"
    )]
    NoNumbers { path: String },
    /// The store is full. `acknowledged`: bytes that this writer wrote and that are safe.
    #[error("{path}: the store is full; {}", kept(*acknowledged))]
    NoSpace { path: String, acknowledged: Option<u64> },
    /// The store's memory for its index is used up.
    #[error("{path}: the memory of the server for its index is used up; {}", kept(*acknowledged))]
    IndexFull { path: String, acknowledged: Option<u64> },
    /// Too few drives to keep what is promised, or what is there is out of reach.
    #[error("{path}: drives of the store are missing (`forebay status`); {}", kept(*acknowledged))]
    Unavailable { path: String, acknowledged: Option<u64> },
    /// What was sent arrived damaged, again and again.
    #[error("{path}: what was sent arrived with other bytes, again and again: look at the network; {}", kept(*acknowledged))]
    Damaged { path: String, acknowledged: Option<u64> },
    /// The store says that this writer has not opened the file, though it did.
    #[error("{path}: the server takes this writer for one that has not opened the file; {}", kept(*acknowledged))]
    NotOpen { path: String, acknowledged: Option<u64> },
    /// The writer was closed.
    #[error(
        "{path}: this writer has closed the file; nothing more was written, and what it wrote before is safe. Open the file again"
    )]
    Closed { path: String },
    /// Another writer wrote there.
    #[error(
        "{path}: another writer that has the file open wrote some of the {bytes} bytes from byte {start} on; these were not written, and \
         nothing of the other's was changed. Write elsewhere, or when the other has closed the file"
    )]
    Conflict { path: String, start: u64, bytes: u64 },
    /// The file does not change any more.
    #[error(
        "{path}: the file is sealed and does not change any more; nothing was changed. Write a new file, and rename it over this one"
    )]
    Sealed { path: String },
    /// The file is gone.
    #[error(
        "{path}: the file was removed; its bytes are gone, as was asked, and nothing more was written. Write a new file"
    )]
    Removed { path: String },
    /// Longer than files can be.
    #[error(
        "{path}: beyond the longest file, 2^48 - 1 bytes; these bytes were not written, what was acknowledged stays. Write several files"
    )]
    TooLarge { path: String },
    /// The file changed as often as a file can.
    #[error(
        "{path}: a file changes about 4.29 billion times at most; what was acknowledged stays. Copy it, and go on with the copy"
    )]
    TooManyChanges { path: String },
    /// The store is of a version without files.
    #[error(
        "{path}: this store was made by a version without files; nothing was done. `forebay upgrade` gives it files, while its server is \
         stopped"
    )]
    NoFiles { path: String },
    /// The store takes no changes.
    #[error("{path}: the store was started read-only; nothing was changed. Start the server for writing")]
    ReadOnly { path: String },
    /// Bytes are damaged beyond parity.
    #[error(
        "{path}: what it holds from byte {offset} on is damaged beyond what parity can mend; what comes before and perhaps behind can be \
         read. `forebay lost` says why and what else is; look for another copy"
    )]
    Lost { path: String, offset: u64 },
    /// Bytes are out of reach.
    #[error(
        "{path}: what it holds from byte {offset} on is out of reach, as too few of its drives answer; nothing is lost. Try again when \
         they are back (`forebay status`)"
    )]
    OutOfReach { path: String, offset: u64 },
    /// What an append came to is not known.
    #[error(
        "{path}: nobody knows whether {bytes} bytes were appended: {last}. They are there once or not at all, and are not sent again. See how \
         the file ends before you write them again"
    )]
    AppendUnknown { path: String, bytes: u64, last: String },
    /// The server was started anew while a name was changed.
    #[error(
        "{path}: the server was started anew while a change of this name was on its way, and the change that was asked again was refused \
         ({outcome}), perhaps as it was done before. See what is there"
    )]
    ChangeUnknown { path: String, outcome: NameOutcome },
    /// The server could not be asked, or said what cannot be believed.
    #[error("{path}: {error}")]
    Client { path: String, error: ClientError },
}

/// What it means for the bytes of a writer, and what to do.
fn kept(acknowledged: Option<u64>) -> String {
    match acknowledged {
        None => "nothing was changed. Try again later".to_owned(),
        Some(bytes) => format!(
            "{bytes} bytes that were written are safe. The writer keeps the rest and sends it again with its next call: make room or mend what is \
             wrong, and go on"
        ),
    }
}

impl FileError {
    pub(super) fn client(path: &str, error: ClientError) -> FileError {
        FileError::Client { path: path.to_owned(), error }
    }

    /// Why something was not done with a name; `None` when it was.
    pub(super) fn of_name(path: &str, outcome: NameOutcome) -> Option<FileError> {
        let (path, acknowledged) = (path.to_owned(), None);
        Some(match outcome {
            NameOutcome::Done => return None,
            NameOutcome::NotFound => FileError::NotFound { path },
            NameOutcome::Exists => FileError::Exists { path },
            NameOutcome::NotDirectory => FileError::NotDirectory { path },
            NameOutcome::IsDirectory => FileError::IsDirectory { path },
            NameOutcome::NotEmpty => FileError::NotEmpty { path },
            NameOutcome::BadName => FileError::BadName { path },
            NameOutcome::TooLong => FileError::TooLong { path },
            NameOutcome::IntoItself => FileError::IntoItself { path },
            NameOutcome::TooManyLinks => FileError::TooManyLinks { path },
            NameOutcome::NoNumbers => FileError::NoNumbers { path },
            NameOutcome::NoSpace => FileError::NoSpace { path, acknowledged },
            NameOutcome::IndexFull => FileError::IndexFull { path, acknowledged },
            NameOutcome::Unavailable => FileError::Unavailable { path, acknowledged },
            NameOutcome::ReadOnly => FileError::ReadOnly { path },
            NameOutcome::Stale => FileError::ChangeUnknown { path, outcome },
        })
    }

    /// Why something was not done with a file; `None` when it was. `acknowledged`: of a writer, what it wrote.
    pub(super) fn of_file(
        path: &str,
        outcome: FileOutcome,
        start: u64,
        bytes: u64,
        acknowledged: Option<u64>,
    ) -> Option<FileError> {
        let path = path.to_owned();
        Some(match outcome {
            FileOutcome::Done => return None,
            FileOutcome::Removed => FileError::Removed { path },
            FileOutcome::Sealed => FileError::Sealed { path },
            FileOutcome::Conflict => FileError::Conflict { path, start, bytes },
            FileOutcome::NoSpace => FileError::NoSpace { path, acknowledged },
            FileOutcome::ChecksumMismatch => FileError::Damaged { path, acknowledged },
            FileOutcome::TooLarge => FileError::TooLarge { path },
            FileOutcome::Unavailable => FileError::Unavailable { path, acknowledged },
            FileOutcome::IndexFull => FileError::IndexFull { path, acknowledged },
            FileOutcome::ReadOnly => FileError::ReadOnly { path },
            FileOutcome::NotOpen => FileError::NotOpen { path, acknowledged },
            FileOutcome::TooManyChanges => FileError::TooManyChanges { path },
            FileOutcome::NoFiles => FileError::NoFiles { path },
        })
    }

    /// Why bytes could not be read from there on; `None` when they could.
    pub(super) fn of_read(path: &str, outcome: ReadOutcome, offset: u64) -> Option<FileError> {
        let path = path.to_owned();
        match outcome {
            ReadOutcome::Found | ReadOutcome::NotFound => None,
            ReadOutcome::Deleted => Some(FileError::Removed { path }),
            ReadOutcome::Unavailable => Some(FileError::OutOfReach { path, offset }),
            ReadOutcome::Lost => Some(FileError::Lost { path, offset }),
        }
    }

    /// Whether the same call may be made again, and may succeed then. A writer that says so keeps what was not acknowledged, and goes on with its next call; after any other
    /// refusal it has given up, and says the same each time.
    pub fn is_retryable(&self) -> bool {
        match self {
            FileError::NoSpace { .. }
            | FileError::IndexFull { .. }
            | FileError::Unavailable { .. }
            | FileError::Damaged { .. }
            | FileError::NotOpen { .. }
            | FileError::OutOfReach { .. } => true,
            FileError::Client { error, .. } => error.is_retryable(),
            _ => false,
        }
    }
}

impl From<FileError> for io::Error {
    fn from(error: FileError) -> io::Error {
        let kind = match &error {
            FileError::NotFound { .. } | FileError::Removed { .. } => io::ErrorKind::NotFound,
            FileError::Exists { .. } => io::ErrorKind::AlreadyExists,
            FileError::NotDirectory { .. } => io::ErrorKind::NotADirectory,
            FileError::IsDirectory { .. } => io::ErrorKind::IsADirectory,
            FileError::NotEmpty { .. } => io::ErrorKind::DirectoryNotEmpty,
            FileError::BadName { .. } | FileError::TooLong { .. } => io::ErrorKind::InvalidFilename,
            FileError::TooManyLinks { .. } => io::ErrorKind::TooManyLinks,
            FileError::NoSpace { .. } => io::ErrorKind::StorageFull,
            FileError::TooLarge { .. } => io::ErrorKind::FileTooLarge,
            FileError::Sealed { .. } => io::ErrorKind::PermissionDenied,
            FileError::ReadOnly { .. } => io::ErrorKind::ReadOnlyFilesystem,
            FileError::Conflict { .. } => io::ErrorKind::ResourceBusy,
            FileError::NoFiles { .. } => io::ErrorKind::Unsupported,
            FileError::Client { error: ClientError::Deadline { .. }, .. } => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
