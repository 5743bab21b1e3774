//! Why a store was not made.

use std::io::ErrorKind;
use std::path::PathBuf;

use forebay_format::LayoutError;
use forebay_media::{InspectError, MediaError, OpenDriveError, PrepareError};
use forebay_types::limits::{DRIVES_MAX, SHARDS_MAX};

/// Why a store was not made. Unless said otherwise nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// A drive that was to come to a store answers after it was given up.
    #[error("it was given up meanwhile. Nothing was written")]
    GivenUp,
    /// Not enough drives, or too many.
    #[error(
        "{drives} drives were given and {data}+{parity} needs at least {needed} and takes at most {DRIVES_MAX}. Nothing was written"
    )]
    DriveCount {
        /// Drives given.
        drives: usize,
        /// Data shards.
        data: u8,
        /// Parity shards.
        parity: u8,
        /// Drives needed.
        needed: usize,
    },
    /// No such width.
    #[error(
        "{data}+{parity} is no width: take at least 1 data shard, and at most {SHARDS_MAX} shards together. Nothing was written"
    )]
    Width {
        /// Data shards.
        data: u8,
        /// Parity shards.
        parity: u8,
    },
    /// Two paths are one drive.
    #[error(
        "{} and {} are one drive, given twice. Nothing was written. Name each drive once",
        first.display(), second.display()
    )]
    Twice {
        /// One of them.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// A path where no drive can be.
    #[error("{} cannot become a drive: {why}. Nothing was written. {advice}", path.display())]
    Place {
        /// The path.
        path: PathBuf,
        /// Why not.
        why: String,
        /// What to do.
        advice: String,
    },
    /// The files do not fit on their file system.
    #[error(
        "the file system of {} has no room for the {files} drives that are to be made on it: they need {needed_bytes} bytes, \
         {available_bytes} are free, {} are missing. Nothing was written. Free some space, give a smaller --drive-bytes, or place the drives \
         on several file systems",
        directory.display(), needed_bytes - available_bytes
    )]
    NoSpace {
        /// Where one of them was to be.
        directory: PathBuf,
        /// How many.
        files: usize,
        /// What they need, beyond what they have.
        needed_bytes: u64,
        /// What there is.
        available_bytes: u64,
    },
    /// A drive holds something.
    #[error("{} holds {what}. Nothing was written. Name another drive, or say --force to destroy what it holds", path.display())]
    NotEmpty {
        /// The drive.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// A drive does not exist and its size was not said.
    #[error("{} does not exist (or is empty). Nothing was written. Say --drive-bytes SIZE to make it a file of that size", .0.display())]
    NoSize(PathBuf),
    /// A drive cannot be looked at.
    #[error(transparent)]
    Inspect(#[from] InspectError),
    /// A drive is too small.
    #[error("{}: {source}. Nothing was written", path.display())]
    Layout {
        /// The drive.
        path: PathBuf,
        /// Why.
        source: LayoutError,
    },
    /// The index would not fit in memory.
    #[error(
        "the drives hold {capacity_bytes} bytes, which are {fragments} fragments of {mean_bytes} bytes on average, and their index takes up to \
         {needed_bytes} bytes of memory; {memory_bytes} are configured. Nothing was written. Raise --index-bytes (and index-bytes of the \
         server's configuration), or say a larger --fragment-bytes-mean if your fragments are larger"
    )]
    IndexMemory {
        /// Capacity for fragments.
        capacity_bytes: u64,
        /// How many fragments.
        fragments: u64,
        /// Their mean size.
        mean_bytes: u64,
        /// Memory needed.
        needed_bytes: u64,
        /// Memory there is.
        memory_bytes: u64,
    },
    /// Something else is wrong with the options.
    #[error("{0}. Nothing was written")]
    Options(String),
    /// A file could not be made.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// A drive could not be opened.
    #[error(transparent)]
    Open(#[from] OpenDriveError),
    /// A drive could not be written.
    #[error("{}: {source}", path.display())]
    Write {
        /// The drive.
        path: PathBuf,
        /// Why.
        source: MediaError,
    },
    /// It failed after something had been written.
    #[error("{cause}. No store was made; {left}")]
    Undone {
        /// Why.
        cause: Box<InitError>,
        /// What became of that which was written.
        left: String,
    },
}

impl InitError {
    /// Whether the same command may succeed later: a drive or file system was full, in use or failing. Otherwise the command is wrong.
    pub fn is_retryable(&self) -> bool {
        match self {
            InitError::NoSpace { .. } | InitError::Write { .. } => true,
            InitError::Undone { cause, .. } => cause.is_retryable(),
            InitError::Inspect(InspectError::InUse { .. }) | InitError::Open(OpenDriveError::InUse { .. }) => true,
            InitError::Inspect(InspectError::Os { source, .. })
            | InitError::Open(OpenDriveError::Open { source, .. }) => !is_lasting(source.kind()),
            InitError::Prepare(error) => is_retryable(error),
            _ => false,
        }
    }
}

fn is_retryable(error: &PrepareError) -> bool {
    match error {
        PrepareError::InUse { .. } | PrepareError::NoSpace { .. } => true,
        PrepareError::Os { source, .. } => !is_lasting(source.kind()),
        PrepareError::Left { cause, .. } => is_retryable(cause),
        PrepareError::Size { .. } | PrepareError::Exists { .. } => false,
    }
}

/// What does not pass by waiting.
fn is_lasting(kind: ErrorKind) -> bool {
    use ErrorKind::*;
    matches!(
        kind,
        NotFound
            | PermissionDenied
            | AlreadyExists
            | NotADirectory
            | IsADirectory
            | ReadOnlyFilesystem
            | InvalidInput
            | InvalidFilename
            | FileTooLarge
            | Unsupported
    )
}
