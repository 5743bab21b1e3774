//! Directories with all that is in them, and the arguments of the command.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;

use forebay_client::files::{Detail, FileError, escape};
use forebay_types::NodeKind;
use walkdir::WalkDir;

use super::Copier;
use super::place::{Place, to_path};
use super::sink::{parent, taken, temporary_file, temporary_path};
use crate::failure::Failure;
use crate::file::entry::kind_word;
use crate::file::owner;
use crate::file::path::directory_of;
use crate::file::told::Trouble;
use crate::file::tree::{Step, Tree};

/// Directories on the way from one to the root.
const ANCESTORS_MAX: usize = 1 << 16;

/// Something in a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
    Link,
    Other(&'static str),
}

impl From<NodeKind> for Kind {
    fn from(kind: NodeKind) -> Kind {
        match kind {
            NodeKind::File => Kind::File,
            NodeKind::Directory => Kind::Directory,
            NodeKind::Link => Kind::Link,
            other => Kind::Other(kind_word(other)),
        }
    }
}

impl From<fs::FileType> for Kind {
    fn from(kind: fs::FileType) -> Kind {
        match kind {
            _ if kind.is_file() => Kind::File,
            _ if kind.is_dir() => Kind::Directory,
            _ if kind.is_symlink() => Kind::Link,
            _ if kind.is_fifo() => Kind::Other("pipe"),
            _ if kind.is_socket() => Kind::Other("socket"),
            _ => Kind::Other("device"),
        }
    }
}

impl Copier<'_> {
    /// Copies what an argument names.
    pub(super) fn argument(&mut self, from: &Place, target: &Place, recursive: bool) -> Result<(), Trouble> {
        let to = match from.last_name() {
            Some(name) if target.is_directory(self.files)? => target.join(name),
            _ => target.clone(),
        };
        if from.kind(self.files)? != Some(true) {
            if to.ends_with_slash() {
                let message = format!(
                    "{to}: there is no such directory; nothing was copied. Make it first, or leave the slash out"
                );
                return Err(Failure::usage(message).into());
            }
            return self.file(from, &to);
        }
        if !recursive {
            let message =
                format!("{from}: it is a directory; nothing was copied. Give -r to copy it with all that is in it");
            return Err(Failure::usage(message).into());
        }
        if let (Place::Store(from), Place::Store(to)) = (from, &to) {
            self.check_lies_elsewhere(from, to)?;
        }
        self.directory(&to, true)?;
        match from {
            Place::Local(path) => self.local_tree(path, from, &to),
            Place::Store(path) => self.store_tree(path, from, &to),
            Place::Standard => {}
        }
        Ok(())
    }

    /// A directory that is copied into itself would never end.
    fn check_lies_elsewhere(&self, from: &[u8], to: &[u8]) -> Result<(), FileError> {
        let directory = self.files.lookup(from)?.number;
        let mut at = match self.files.lookup(to) {
            Err(FileError::NotFound { .. }) => self.files.lookup([directory_of(to), b"/"].concat())?,
            found => found?,
        };
        for _ in 0..ANCESTORS_MAX {
            if at.number == directory {
                return Err(FileError::IntoItself { path: escape(from) });
            }
            if at.parent == at.number || at.parent.0 == 0 {
                break;
            }
            at = self.files.lookup_in(Some(at.parent), b"")?;
        }
        Ok(())
    }

    fn local_tree(&mut self, path: &Path, from: &Place, to: &Place) {
        let mut walk = WalkDir::new(path).min_depth(1).into_iter();
        while let Some(step) = walk.next() {
            if self.is_over() {
                return;
            }
            let found = step.map_err(|error| {
                let what = error.path().unwrap_or(path).to_owned();
                Failure::file("read", &what, &io::Error::from(error), "nothing of it was copied")
            });
            let Some(found) = self.troubles.take(found) else { continue };
            let relative = found.path().strip_prefix(path).unwrap_or(found.path()).as_os_str().as_bytes();
            let kind = found.file_type().into();
            if !self.entry(kind, &from.join(relative), &to.join(relative)) && kind == Kind::Directory {
                walk.skip_current_dir();
            }
        }
    }

    fn store_tree(&mut self, path: &[u8], from: &Place, to: &Place) {
        let mut tree = Tree::new(self.files, path, Detail::Names);
        while let Some(step) = tree.next_step() {
            if self.is_over() {
                return;
            }
            let (Some(Step::Entry(entry)) | Some(Step::Enter(entry))) = self.troubles.take(step) else { continue };
            let relative = entry.path.strip_prefix(path).unwrap_or(&entry.path);
            let relative = relative.strip_prefix(b"/").unwrap_or(relative);
            if !self.entry(entry.kind.into(), &from.join(relative), &to.join(relative))
                && entry.kind == NodeKind::Directory
            {
                tree.skip();
            }
        }
    }

    /// Whether nothing more is to be copied.
    fn is_over(&mut self) -> bool {
        if let Some(failure) = self.interrupted() {
            self.troubles.take(Err::<(), _>(failure));
        }
        self.troubles.is_over()
    }

    /// Copies what is in a directory; whether that went well.
    fn entry(&mut self, kind: Kind, from: &Place, to: &Place) -> bool {
        let copied = match kind {
            Kind::File => self.file(from, to),
            Kind::Directory => self.directory(to, false),
            Kind::Link => self.link(from, to),
            Kind::Other(what) => {
                let message = format!(
                    "{from}: it is a {what} and no file; it was left out. What is read from it can be copied as -"
                );
                Err(Failure::usage(message).into())
            }
        };
        self.troubles.take(copied).is_some()
    }

    /// Makes a directory if it is not there. Below the one that was named no link is followed: what is copied stays in it.
    fn directory(&mut self, to: &Place, is_named: bool) -> Result<(), Trouble> {
        match to {
            Place::Local(path) => {
                let made = fs::create_dir(path);
                let is_there = |path: &Path| if is_named { fs::metadata(path) } else { fs::symlink_metadata(path) };
                match made {
                    Ok(()) => self.counts.directories += 1,
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                        if !is_there(path).is_ok_and(|found| found.is_dir()) {
                            return Err(taken_by_other(to).into());
                        }
                    }
                    Err(error) => {
                        return Err(Failure::file("make", path, &error, "nothing was copied to it").into());
                    }
                }
            }
            Place::Store(path) => match self.files.make_directory(path, &owner(0o755)) {
                Ok(_) => self.counts.directories += 1,
                // The root has no name.
                Err(FileError::Exists { .. } | FileError::BadName { .. }) => {
                    let found = if is_named { self.files.lookup(path) } else { self.files.lookup_link(path) };
                    if found?.view.kind != NodeKind::Directory {
                        return Err(taken_by_other(to).into());
                    }
                }
                Err(error) => return Err(error.into()),
            },
            Place::Standard => {}
        }
        Ok(())
    }

    /// Copies a link as a link.
    fn link(&mut self, from: &Place, to: &Place) -> Result<(), Trouble> {
        let target = match from {
            Place::Local(path) => fs::read_link(path)
                .map_err(|error| Failure::file("read", path, &error, "nothing of it was copied"))?
                .into_os_string()
                .into_vec(),
            Place::Store(path) => self.files.lookup_link(path)?.view.target,
            Place::Standard => return Ok(()),
        };
        match to {
            Place::Local(path) => self.local_link(target, path)?,
            Place::Store(path) => self.store_link(&target, path)?,
            Place::Standard => {}
        }
        self.counts.links += 1;
        Ok(())
    }

    fn local_link(&self, target: Vec<u8>, path: &Path) -> Result<(), Failure> {
        let target = to_path(target);
        let failed = |error: &io::Error| Failure::file("make", path, error, "what has that name is as it was");
        if !self.force {
            return match symlink(target, path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(taken(path)),
                made => made.map_err(|error| failed(&error)),
            };
        }
        let made =
            temporary_file().make_in(parent(path), |path| symlink(&target, path)).map_err(|error| failed(&error))?;
        made.into_temp_path().persist(path).map_err(|error| failed(&error.error))
    }

    fn store_link(&self, target: &[u8], path: &[u8]) -> Result<(), Trouble> {
        match self.files.symlink(target, path, &owner(0o777)) {
            Err(FileError::Exists { .. }) if self.force => {
                let temporary = temporary_path(path)?;
                self.files.symlink(target, &temporary, &owner(0o777))?;
                let renamed = self.files.rename(&temporary, path, true);
                if renamed.is_err() {
                    let _ = self.files.remove(&temporary);
                }
                Ok(renamed?)
            }
            made => Ok(made.map(drop)?),
        }
    }
}

fn taken_by_other(to: &Place) -> Failure {
    Failure::usage(format!(
        "{to}: something else than a directory has this name, or a link; nothing was copied to it. Remove it, or copy to another place"
    ))
}
