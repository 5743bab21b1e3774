//! A directory that files are moved to.
#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "this module does what the machines ask for")]

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::renameat;
use rustix::io::Errno;

use super::{ReadMode, Uncached, failure, rename_without_replacing};
use crate::custody::{Answer, Failure};
use crate::endpoint::{Content, Destination, Moved};
use crate::name::Name;
use crate::sums::{Summer, Sums};

/// A directory as a destination: what it says of a file is what is read back, all of it, past the page cache.
#[derive(Debug)]
pub struct DirectoryDestination {
    path: PathBuf,
    root: File,
}

impl DirectoryDestination {
    /// Opens the directory; one that is not there is made when its parent is.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn open(path: &Path) -> io::Result<DirectoryDestination> {
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => {
                made?;
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
                File::open(parent)?.sync_all()?;
            }
        }
        let root = File::open(path)?;
        if !root.metadata()?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(DirectoryDestination { path: path.to_owned(), root })
    }

    fn path_of(&self, name: &Name) -> PathBuf {
        self.path.join(name.as_str())
    }

    /// The directories that lead to a name, made durably.
    fn make_directories(&self, name: &Name) -> io::Result<()> {
        let Some(directory) = name.directory() else { return Ok(()) };
        let ends = directory.match_indices('/').map(|(at, _)| at).chain([directory.len()]);
        for end in ends {
            let path = self.path.join(&directory[..end]);
            match fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
                made => {
                    made?;
                    sync_parent(&path)?;
                }
            }
        }
        Ok(())
    }

    fn renamed(&self, from: &Name, to: &Name, rename: impl FnOnce() -> io::Result<()>) -> Answer {
        let path = self.path_of(from);
        match self.make_directories(to).and_then(|()| rename()) {
            Ok(()) => match sync_parent(&self.path_of(to)).and_then(|()| sync_parent(&path)) {
                Ok(()) => Answer::Done,
                Err(error) => Answer::Failed(Failure::Unknown(format!(
                    "synchronise the directory of {}: {error}",
                    path.display()
                ))),
            },
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Answer::Taken,
            // What has the temporary name no longer may have the other.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Answer::Failed(Failure::Unknown(format!("rename {}: {error}", path.display())))
            }
            Err(error) => Answer::Failed(failure("rename", &path, &error)),
        }
    }

    fn read_back(&self, name: &Name, mode: ReadMode, moved: &dyn Moved) -> io::Result<Sums> {
        let mut file = Uncached::open(&self.root, name.as_str(), mode)?;
        let mut summer = Summer::default();
        while file.refill()? {
            summer.update(file.block());
            if !moved.moved(file.block().len() as u64) {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "the mover ends"));
            }
        }
        Ok(summer.sums())
    }
}

fn sync_parent(path: &Path) -> io::Result<()> {
    File::open(path.parent().expect("it lies below a directory"))?.sync_all()
}

impl Destination for DirectoryDestination {
    fn ask(&self, name: &Name, moved: &dyn Moved) -> Answer {
        let sums = match self.read_back(name, ReadMode::Direct, moved) {
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                self.read_back(name, ReadMode::CacheDropped, moved)
            }
            sums => sums,
        };
        match sums {
            Ok(sums) => Answer::Told(Some(sums.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Answer::Told(None),
            Err(error) => Answer::Failed(failure("read back", &self.path_of(name), &error)),
        }
    }

    fn send(&self, temporary: &Name, content: &mut dyn Content, moved: &dyn Moved) -> Answer {
        let path = self.path_of(temporary);
        let failed = |action, error: &io::Error| Answer::Failed(failure(action, &path, error));
        if let Err(error) = self.make_directories(temporary) {
            return failed("make the directory of", &error);
        }
        let mut file = match File::options().write(true).create_new(true).open(&path) {
            Ok(file) => file,
            Err(error) => return failed("create", &error),
        };
        let mut summer = Summer::default();
        loop {
            match content.next_block() {
                Ok(None) => break,
                Ok(Some(block)) => {
                    summer.update(block);
                    if let Err(error) = file.write_all(block) {
                        return failed("write", &error);
                    }
                    if !moved.moved(block.len() as u64) {
                        return Answer::Failed(Failure::NotNow("the mover ends".to_owned()));
                    }
                }
                Err(answer) => return Answer::Source(answer),
            }
        }
        match file.sync_all().and_then(|()| sync_parent(&path)) {
            Ok(()) => Answer::Sent(summer.sums()),
            Err(error) => failed("synchronise", &error),
        }
    }

    fn rename(&self, from: &Name, to: &Name) -> Answer {
        self.renamed(from, to, || rename_without_replacing(&self.root, from.as_str(), to.as_str()))
    }

    fn replace(&self, from: &Name, to: &Name) -> Answer {
        self.renamed(from, to, || Ok(renameat(&self.root, from.as_str(), &self.root, to.as_str())?))
    }

    fn remove(&self, name: &Name) -> Answer {
        let path = self.path_of(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Answer::Done,
            Err(error) => Answer::Failed(failure("remove", &path, &error)),
            Ok(()) => Answer::Done,
        }
    }
}
