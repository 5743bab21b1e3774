//! By what a directory is known again: a small hidden file in it, whose number the journal keeps. What is mounted there says nothing of itself that stays the same: not the
//! number of the device, and not that of the file system everywhere. A directory whose mount is missing looks like an empty one: what was to be moved from it would be taken
//! for gone, and what is moved to it would fill the file system below.
#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "this module does what a start asks for")]

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::rename_without_replacing;

/// The name of the file.
const MARK_FILE: &str = ".forebay-place";
/// It holds no more.
const MARK_BYTES_MAX: u64 = 1000;

/// A directory that is not the one that it was.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// It has no mark, or is not there.
    #[error(
        "{path} is not the directory that this journal moved from or to before: there is no {MARK_FILE} in it. Is its file system not mounted? Nothing was moved or released. Mount it, \
         then start again. If it is another one on purpose: echo {mark:016x} > {path}/{MARK_FILE}", path = .path.display()
    )]
    Missing {
        /// Its path.
        path: PathBuf,
        /// The mark that it should have.
        mark: u64,
    },
    /// It has another one's mark.
    #[error(
        "{path} is not the directory that this journal moved from or to before: {MARK_FILE} in it says {found:?}, and not {mark:016x}. Is another file system mounted there? Nothing was moved \
         or released. Mount the right one, then start again. If it is another one on purpose: echo {mark:016x} > {path}/{MARK_FILE}", path = .path.display()
    )]
    Other {
        /// Its path.
        path: PathBuf,
        /// The mark that it should have.
        mark: u64,
        /// What it has.
        found: String,
    },
    /// Nobody can tell.
    #[error("{MARK_FILE} of {path} could not be read: {source}. Nothing was moved or released. Let this user read it, then start again", path = .path.display())]
    Io {
        /// Its path.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// That a directory is the one with this mark.
///
/// # Errors
/// When it is not, or nobody can tell.
pub fn check_mark(path: &Path, mark: u64) -> Result<(), MarkError> {
    let path = || path.to_owned();
    match read(&path().join(MARK_FILE)) {
        Ok(found) if parse(&found) == Some(mark) => Ok(()),
        Ok(found) => Err(MarkError::Other { path: path(), mark, found: found.trim().chars().take(40).collect() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(MarkError::Missing { path: path(), mark }),
        Err(source) => Err(MarkError::Io { path: path(), source }),
    }
}

/// The mark of a directory; one that has none gets one, durably. Several movers may share it.
///
/// # Errors
/// What the operating system says.
pub fn mark_of(path: &Path) -> io::Result<u64> {
    let file = path.join(MARK_FILE);
    loop {
        match read(&file) {
            Ok(found) => {
                let words = || format!("{MARK_FILE} in it is none of a mover's: {:?}", found.trim());
                return parse(&found).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, words()));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        match make(path) {
            // Another mover was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made,
        }
    }
}

fn make(path: &Path) -> io::Result<u64> {
    let mut number = [0; 8];
    getrandom::fill(&mut number).map_err(|error| io::Error::other(error.to_string()))?;
    let mark = u64::from_le_bytes(number);
    let temporary = format!("{MARK_FILE}.{mark:016x}");
    let mut file = File::options().write(true).create_new(true).open(path.join(&temporary))?;
    let written = file.write_all(format!("{mark:016x}\n").as_bytes()).and_then(|()| file.sync_all());
    let directory = File::open(path)?;
    let made = written.and_then(|()| rename_without_replacing(&directory, &temporary, MARK_FILE));
    if made.is_err() {
        drop(fs::remove_file(path.join(&temporary)));
    }
    made.and_then(|()| directory.sync_all()).map(|()| mark)
}

fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MARK_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_known_again_and_no_other_is_taken_for_it() {
        let place = tempfile::tempdir().expect("made");
        let mark = mark_of(place.path()).expect("marked");
        assert_eq!(mark_of(place.path()).expect("it has one"), mark);
        check_mark(place.path(), mark).expect("it is the one");
        assert!(matches!(check_mark(place.path(), mark ^ 1), Err(MarkError::Other { .. })));
        let other = tempfile::tempdir().expect("made");
        let words = check_mark(other.path(), mark).expect_err("another one").to_string();
        let command = words.split("on purpose: ").nth(1).expect("it says what to do");
        let done = std::process::Command::new("sh").args(["-c", command]).status().expect("it runs");
        assert!(done.success());
        check_mark(other.path(), mark).expect("somebody said so");
        assert!(matches!(check_mark(&other.path().join("gone"), mark), Err(MarkError::Missing { .. })));
        fs::write(place.path().join(MARK_FILE), "").expect("written");
        assert!(mark_of(place.path()).is_err() && check_mark(place.path(), mark).is_err());
    }
}
