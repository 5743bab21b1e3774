//! Where it stands who owns a store of shared files: beside its first drive.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::record::{BYTES_MAX, Record, RecordError};

/// As many as the kernel follows.
const LINKS_MAX: usize = 40;

/// Why it cannot be seen, or said, who owns a store of shared files.
#[derive(Debug, thiserror::Error)]
pub enum OwnerFileError {
    /// The file system does not do something.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The owner file says nothing.
    #[error("{} {source}. The store is left alone. If no server has it, and only then, remove that file", path.display())]
    Record {
        /// The owner file.
        path: PathBuf,
        /// What is wrong with it.
        source: RecordError,
    },
    /// The file system has no locks that all of its machines respect.
    #[error("cannot lock {}: {source}; without locks two servers could take the store at once. Mount its file system with flock support", path.display())]
    NoLocks {
        /// What was to be locked.
        path: PathBuf,
        /// Why it was not.
        source: io::Error,
    },
    /// Beside a device other machines see no file.
    #[error("{} is not a file: only files on a file system that all servers of the store mount can be shared. Nothing was started", path.display())]
    NotAFile {
        /// The drive.
        path: PathBuf,
    },
}

impl OwnerFileError {
    /// Whether the file system has shut this machine out: what it is asked by us is never done any more.
    pub(crate) fn is_shut_out(&self) -> bool {
        matches!(self, OwnerFileError::Io { source, .. } if Errno::from_io_error(source) == Some(Errno::SHUTDOWN))
    }
}

/// The owner file and the lock of a store.
#[derive(Clone, Debug)]
pub(crate) struct OwnerPlace {
    drive: PathBuf,
    owner: PathBuf,
    part: PathBuf,
    lock: PathBuf,
}

/// Held until it is dropped, or the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl OwnerPlace {
    /// Beside the drive whose path comes first when they are sorted, so that their order does not matter.
    pub(crate) fn beside(drives: &[PathBuf]) -> Result<OwnerPlace, OwnerFileError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| OwnerFileError::Io { action: "find drive", path, source }
        };
        let mut found = Vec::new();
        for path in drives {
            let drive = fs::canonicalize(path).map_err(failed(path))?;
            if fs::metadata(&drive).map_err(failed(path))?.file_type().is_block_device() {
                return Err(OwnerFileError::NotAFile { path: drive });
            }
            found.push(drive);
        }
        Ok(OwnerPlace::of(found.into_iter().min().unwrap_or_default()))
    }

    /// Beside the first drive that has an owner file. First by the names alone: a drive that hangs holds up whoever looks what its name leads to.
    pub(crate) fn that_is_there(drives: &[PathBuf]) -> Option<OwnerPlace> {
        let named = drives.iter().cloned();
        let mut places = named.chain(drives.iter().flat_map(|path| links(path).skip(1))).map(OwnerPlace::of);
        places.find(|place| fs::symlink_metadata(&place.owner).is_ok())
    }

    fn of(drive: PathBuf) -> OwnerPlace {
        let beside = |end: &str| {
            let mut path = drive.clone().into_os_string();
            path.push(end);
            PathBuf::from(path)
        };
        let (owner, part, lock) = (beside(".owner"), beside(".owner.part"), beside(".lock"));
        OwnerPlace { drive, owner, part, lock }
    }

    /// The owner file.
    pub(crate) fn owner(&self) -> &Path {
        &self.owner
    }

    /// The first drive.
    pub(crate) fn drive(&self) -> &Path {
        &self.drive
    }

    /// The number of its file system, on this machine.
    pub(crate) fn file_system(&self) -> Result<u64, OwnerFileError> {
        fs::metadata(&self.drive).map(|found| found.dev()).map_err(|source| io_error("find drive", &self.drive, source))
    }

    /// What the owner wrote last; nothing when there never was one.
    pub(crate) fn read(&self) -> Result<Option<Record>, OwnerFileError> {
        let mut bytes = Vec::new();
        let read = File::open(&self.owner).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes));
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|source| io_error("read", &self.owner, source))?,
        };
        let wrong = |source| OwnerFileError::Record { path: self.owner.clone(), source };
        Record::decode(&bytes).map(Some).map_err(wrong)
    }

    /// Writes it whole, or not at all. A pulse need only be seen; whose the store is must be so after a crash, too (`is_durable`).
    pub(crate) fn write(&self, record: &Record, is_durable: bool) -> Result<(), OwnerFileError> {
        File::create(&self.part)
            .and_then(|mut file| file.write_all(&record.encode()).and_then(|()| file.sync_all()))
            .map_err(|source| io_error("write", &self.part, source))?;
        fs::rename(&self.part, &self.owner).map_err(|source| io_error("write", &self.owner, source))?;
        if is_durable {
            let directory = self.owner.parent().unwrap_or(Path::new("/"));
            let synced = File::open(directory).and_then(|directory| directory.sync_all());
            synced.map_err(|source| io_error("sync", directory, source))?;
        }
        Ok(())
    }

    /// Takes the lock; nothing when somebody has it.
    pub(crate) fn try_lock(&self) -> Result<Option<Lock>, OwnerFileError> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&self.lock);
        let file = file.map_err(|source| io_error("open", &self.lock, source))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(OwnerFileError::NoLocks { path: self.lock.clone(), source }),
        }
    }
}

/// A path, and what it leads to as a symbolic link.
fn links(path: &Path) -> impl Iterator<Item = PathBuf> {
    let target = |link: &PathBuf| {
        let target = fs::read_link(link).ok()?;
        Some(link.parent().unwrap_or(Path::new("")).join(target))
    };
    std::iter::successors(Some(path.to_owned()), target).take(LINKS_MAX)
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> OwnerFileError {
    OwnerFileError::Io { action, path: path.to_owned(), source }
}
