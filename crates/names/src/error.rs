//! Why something cannot be done with a name.

use forebay_types::NameOutcome;

/// Why something cannot be done with a name; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamesError {
    /// There is no such name, or no such number.
    #[error("there is no such file or directory")]
    NotFound,
    /// The name is taken.
    #[error("the name is taken")]
    Exists,
    /// Something else stands where a directory must.
    #[error("it is not a directory")]
    NotDirectory,
    /// A directory stands where none may.
    #[error("it is a directory")]
    IsDirectory,
    /// The directory has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// A name is empty, `.` or `..`, or has a `/` or a zero byte in it.
    #[error("a name must not be empty, \".\" or \"..\", or have a slash or a zero byte in it")]
    BadName,
    /// A name has more than [`forebay_types::NAME_BYTES_MAX`] bytes, or the target of a link more than [`forebay_types::TARGET_BYTES_MAX`].
    #[error("the name is too long: names have at most 255 bytes, targets of links at most 4095")]
    TooLong,
    /// A directory cannot become one of its own descendants.
    #[error("a directory cannot be moved into itself")]
    IntoItself,
    /// More names of one file, or entries of one directory, than can be counted.
    #[error("there are too many links")]
    TooManyLinks,
    /// Every number was given.
    #[error("all numbers of files were given")]
    NoNumbers,
}

impl From<NamesError> for NameOutcome {
    fn from(error: NamesError) -> NameOutcome {
        match error {
            NamesError::NotFound => NameOutcome::NotFound,
            NamesError::Exists => NameOutcome::Exists,
            NamesError::NotDirectory => NameOutcome::NotDirectory,
            NamesError::IsDirectory => NameOutcome::IsDirectory,
            NamesError::NotEmpty => NameOutcome::NotEmpty,
            NamesError::BadName => NameOutcome::BadName,
            NamesError::TooLong => NameOutcome::TooLong,
            NamesError::IntoItself => NameOutcome::IntoItself,
            NamesError::TooManyLinks => NameOutcome::TooManyLinks,
            NamesError::NoNumbers => NameOutcome::NoNumbers,
        }
    }
}
