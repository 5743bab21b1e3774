//! A directory that files are moved to.
#![expect(clippy::disallowed_types, reason = "this module does what the machines ask for")]

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, fsync, mkdirat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::{ReadMode, Uncached, failure, rename_without_replacing};
use crate::custody::{Answer, Failure};
use crate::endpoint::{Content, Destination, Moved, Sending};
use crate::name::Name;
use crate::sums::{Summer, Sums};

/// So much is written before it is made durable, at most.
const SYNC_EVERY_BYTES: usize = 128 << 20;

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

    /// That the path still leads to the directory that was opened: what is proven there must be found there.
    fn check_root(&self) -> io::Result<()> {
        let (opened, now) = (self.root.metadata()?, fs::metadata(&self.path)?);
        if (opened.dev(), opened.ino()) == (now.dev(), now.ino()) {
            return Ok(());
        }
        Err(io::Error::other(
            "another directory has its path since the mover was started (something was mounted there?); start it again",
        ))
    }

    /// The directories that lead to a name, made durably.
    fn make_directories(&self, name: &Name) -> io::Result<()> {
        let Some(directory) = name.directory() else { return Ok(()) };
        let ends = directory.match_indices('/').map(|(at, _)| at).chain([directory.len()]);
        for end in ends {
            match mkdirat(&self.root, &directory[..end], Mode::from_raw_mode(0o777)) {
                Err(Errno::EXIST) => {}
                made => {
                    made?;
                    self.sync_directory_of(&directory[..end])?;
                }
            }
        }
        Ok(())
    }

    fn sync_directory_of(&self, name: &str) -> io::Result<()> {
        let directory = name.rsplit_once('/').map_or(".", |(directory, _)| directory);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
        Ok(fsync(openat(&self.root, directory, flags, Mode::empty())?)?)
    }

    fn read_back(&self, name: &Name, mode: ReadMode, moved: &dyn Moved) -> io::Result<Sums> {
        let flags = mode.flags() | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = File::from(openat(&self.root, name.as_str(), flags, Mode::empty())?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "what has the name is no file"));
        }
        let mut file = Uncached::new(file, mode)?;
        let mut summer = Summer::default();
        while file.refill()? {
            summer.update(file.block());
            if !moved.moved(file.block().len() as u64) {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "the mover ends"));
            }
        }
        Ok(summer.sums())
    }

    fn write(&self, temporary: &Name, content: &mut dyn Content, moved: &dyn Moved) -> Result<Sums, Answer> {
        let path = self.path_of(temporary);
        let failed = |action: &'static str| {
            let path = &path;
            move |error: io::Error| Answer::Failed(failure(action, path, &error))
        };
        self.check_root().and_then(|()| self.make_directories(temporary)).map_err(failed("make the directory of"))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let created = openat(&self.root, temporary.as_str(), flags, Mode::from_raw_mode(0o666));
        let mut file = File::from(created.map_err(|error| failed("create")(error.into()))?);
        let (mut summer, mut unsynced) = (Summer::default(), 0);
        while let Some(block) = content.next_block().map_err(Answer::Source)? {
            summer.update(block);
            file.write_all(block).map_err(failed("write"))?;
            unsynced += block.len();
            // So that the end does not take so long that it looks like one that hangs.
            if unsynced >= SYNC_EVERY_BYTES {
                file.sync_data().map_err(failed("synchronise"))?;
                unsynced = 0;
            }
            if !moved.moved(block.len() as u64) {
                return Err(Answer::Failed(Failure::NotNow("the mover ends".to_owned())));
            }
        }
        file.sync_all().map_err(failed("synchronise"))?;
        moved.moved(0);
        self.sync_directory_of(temporary.as_str()).map_err(failed("synchronise the directory of"))?;
        Ok(summer.sums())
    }

    fn renamed(&self, from: &Name, to: &Name, rename: impl FnOnce() -> io::Result<()>) -> Answer {
        let path = self.path_of(from);
        let done = self.check_root().and_then(|()| self.make_directories(to)).and_then(|()| rename());
        match done {
            Ok(()) => match self.sync_directory_of(to.as_str()).and_then(|()| self.sync_directory_of(from.as_str())) {
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
}

impl Destination for DirectoryDestination {
    fn ask(&self, name: &Name, moved: &dyn Moved) -> Answer {
        let sums = self.check_root().and_then(|()| match self.read_back(name, ReadMode::Direct, moved) {
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                self.read_back(name, ReadMode::CacheDropped, moved)
            }
            sums => sums,
        });
        match sums {
            Ok(sums) => Answer::Told(Some(sums.into())),
            // Of the file, as the directory itself was there just now.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.check_root().is_ok() => Answer::Told(None),
            Err(error) => Answer::Failed(failure("read back", &self.path_of(name), &error)),
        }
    }

    fn send(&self, sending: &Sending, content: &mut dyn Content, moved: &dyn Moved) -> Answer {
        self.write(sending.temporary, content, moved).map_or_else(|answer| answer, Answer::Sent)
    }

    fn rename(&self, from: &Name, to: &Name) -> Answer {
        self.renamed(from, to, || rename_without_replacing(&self.root, from.as_str(), to.as_str()))
    }

    fn replace(&self, from: &Name, to: &Name) -> Answer {
        self.renamed(from, to, || Ok(renameat(&self.root, from.as_str(), &self.root, to.as_str())?))
    }

    fn remove(&self, name: &Name) -> Answer {
        match unlinkat(&self.root, name.as_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Answer::Done,
            Err(error) => Answer::Failed(failure("remove", &self.path_of(name), &error.into())),
        }
    }

    fn on_tape(&self, _: &Name, _: &dyn Moved) -> Answer {
        Answer::Failed(Failure::Refused("a directory cannot say what is on tape".to_owned()))
    }

    fn address_of(&self, name: &Name) -> String {
        self.path_of(name).display().to_string()
    }

    fn place_of(&self, name: &Name) -> Option<(u64, u64)> {
        let found = statat(&self.root, name.as_str(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((found.st_dev, found.st_ino))
    }
}
