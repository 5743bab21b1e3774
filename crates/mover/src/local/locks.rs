//! The locks of directories that are moved from.
#![expect(clippy::disallowed_types, reason = "this module does what a start asks for")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// The locks that a mover has. They are handed on when its configuration is read again: a step that hangs keeps what it works on, and a lock that was taken anew would be
/// refused to the very process that has it.
#[derive(Debug, Default)]
pub struct Locks(BTreeMap<PathBuf, File>);

impl Locks {
    /// Opens a directory and locks it, unless it is locked by this already.
    ///
    /// # Errors
    /// What the operating system says; `WouldBlock` when another mover has it.
    pub(super) fn lock(&mut self, path: &Path) -> io::Result<File> {
        let now = fs::metadata(path)?;
        if !now.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        if let Some(held) = self.0.get(path) {
            let held_metadata = held.metadata()?;
            if (held_metadata.dev(), held_metadata.ino()) == (now.dev(), now.ino()) {
                return held.try_clone();
            }
        }
        let root = File::open(path)?;
        flock(&root, FlockOperation::NonBlockingLockExclusive)?;
        self.0.insert(path.to_owned(), root.try_clone()?);
        Ok(root)
    }

    /// Gives back those of all other directories, as soon as nothing works on them any more.
    pub fn keep_only(&mut self, paths: &[&Path]) {
        self.0.retain(|path, _| paths.contains(&path.as_path()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_handed_on_while_something_has_it_and_given_back_when_nothing_has() {
        let place = tempfile::tempdir().expect("made");
        let (mut ours, mut theirs) = (Locks::default(), Locks::default());
        let hanging = ours.lock(place.path()).expect("nobody has it");
        let next = ours.lock(place.path()).expect("it is ours");
        assert_eq!(theirs.lock(place.path()).expect_err("it is taken").kind(), io::ErrorKind::WouldBlock);
        ours.keep_only(&[]);
        drop(next);
        assert!(theirs.lock(place.path()).is_err(), "what hangs has it still");
        drop(hanging);
        theirs.lock(place.path()).expect("it was given back");
    }
}
