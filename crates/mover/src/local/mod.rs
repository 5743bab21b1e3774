//! Directories of this machine, as sources and as destinations, whatever is mounted there.

mod destination;
mod locks;
mod mark;
mod source;
mod space;
mod uncached;

use std::io;

use rustix::fs::{AtFlags, RenameFlags, linkat, renameat_with, unlinkat};
use rustix::io::Errno;

pub use destination::DirectoryDestination;
pub use locks::Locks;
pub use mark::{MarkError, check_mark, mark_of};
pub use source::{DirectorySource, Disposal};
pub use space::DirectorySpace;
pub use uncached::{ReadMode, Uncached};

use crate::custody::Failure;

/// Renames below a directory; a name that is taken stays with what has it (`EEXIST`).
///
/// # Errors
/// What the operating system says.
pub fn rename_without_replacing(directory: impl std::os::fd::AsFd, from: &str, to: &str) -> io::Result<()> {
    let directory = directory.as_fd();
    Ok(match renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE) {
        // Not every file system can: the second name first, which takes none away, then without the first.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => linkat(directory, from, directory, to, AtFlags::empty())
            .and_then(|()| unlinkat(directory, from, AtFlags::empty())),
        renamed => renamed,
    }?)
}

/// What an error of the operating system says of a destination.
fn failure(action: &str, path: &std::path::Path, error: &io::Error) -> Failure {
    let words = format!("{action} {}: {error}{}", path.display(), advice(error));
    // A link that leads round, or one where a file should be.
    if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) {
        return Failure::Refused(words);
    }
    match error.kind() {
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::InvalidFilename
        | io::ErrorKind::AlreadyExists => Failure::Refused(words),
        io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => Failure::Unknown(words),
        _ => Failure::NotNow(words),
    }
}

/// What somebody can do about it.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => ". Let this user write there, then retry",
        io::ErrorKind::ReadOnlyFilesystem => ". Mount it writable, then retry",
        io::ErrorKind::NotADirectory => ". A file is where a directory should be: move it away, then retry",
        io::ErrorKind::IsADirectory | io::ErrorKind::AlreadyExists => ". Move what is there away, then retry",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ". Make room there; it goes on by itself then",
        _ => "",
    }
}
