//! Real drives: block devices and preallocated files, opened once and shared by all lanes.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, IoSlice, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags, pread, pwrite, pwritev2};
use serde::{Deserialize, Serialize};

use crate::file_system::submitting_may_wait;
use crate::identity::{DriveIdentity, directory_of};
use crate::request::Transfer;
use crate::{AlignedBuffer, BLOCK_BYTES, MediaError};

/// Whether drives are read and written past the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirectIo {
    /// Past the page cache (`O_DIRECT`) where the drive takes it, else through it.
    #[default]
    Auto,
    /// Past the page cache, or the drive is refused.
    On,
    /// Through the page cache. Completed writes are durable all the same.
    Off,
}

/// What a drive is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading and writing, by one process alone.
    Exclusive,
    /// Reading a stopped store, by any number of processes, while nobody has it open exclusively.
    SharedReadOnly,
}

/// What kind of drive it is, as far as the operating system says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriveKind {
    /// A disk with heads that move.
    Rotational,
    /// Flash, or anything else without heads.
    SolidState,
    /// The operating system does not say: memory, network and pooled file systems.
    Unknown,
}

impl DriveKind {
    /// The kind of what `path` lies on; of the directory when there is no such file yet.
    pub fn of(path: &Path) -> DriveKind {
        let found = fs::metadata(path).or_else(|_| fs::metadata(directory_of(path)));
        found.map_or(DriveKind::Unknown, |metadata| {
            let device = metadata.file_type().is_block_device();
            kind_of(if device { metadata.rdev() } else { metadata.dev() })
        })
    }
}

/// An opened drive.
#[derive(Debug)]
pub struct DriveFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    direct: bool,
    submitting_may_wait: bool,
    kind: DriveKind,
    identity: DriveIdentity,
    /// Set when the kernel turned out not to know `RWF_DSYNC`.
    no_write_flags: AtomicBool,
}

/// Why a drive could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenDriveError {
    /// The path cannot be opened.
    #[error(
        "cannot open drive {}: {source}; \
         its data were not touched; check the path, its permissions and the cabling",
        path.display()
    )]
    Open {
        /// The drive.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Neither a file nor a block device.
    #[error("{} is {what}, not a file or a block device; name the file or device that holds the drive", path.display())]
    NotADrive {
        /// The path that was given.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// Smaller than one block.
    #[error(
        "drive {} has {bytes} bytes, less than one block of {BLOCK_BYTES}; \
         it was never initialised or has been cut off",
        path.display()
    )]
    TooSmall {
        /// The drive.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// Another process has it open.
    #[error("drive {} is in use: {by}; nothing was changed; stop the other user first", path.display())]
    InUse {
        /// The drive.
        path: PathBuf,
        /// Who has it, as far as is known.
        by: &'static str,
    },
    /// The file system has no locks, so that nothing would keep two servers from writing to it.
    #[error(
        "cannot lock drive {}: {source}; \
         without a lock two servers could write to it; mount its file system with flock support",
        path.display()
    )]
    Lock {
        /// The drive.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// `O_DIRECT` was demanded and is refused.
    #[error(
        "drive {} refuses O_DIRECT: {source}; \
         set direct = \"auto\" to let it go through the page cache",
        path.display()
    )]
    DirectRefused {
        /// The drive.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

impl OpenDriveError {
    /// Whether the path leads nowhere.
    pub fn is_missing(&self) -> bool {
        matches!(self, OpenDriveError::Open { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

impl DriveFile {
    /// Opens and locks the drive at `path`, and logs how.
    ///
    /// # Errors
    /// When it is no drive, cannot be opened, is in use, or refuses the `O_DIRECT` that was demanded.
    pub fn open(path: &Path, direct: DirectIo, access: Access) -> Result<Self, OpenDriveError> {
        let open_error = |source| OpenDriveError::Open { path: path.to_owned(), source };
        let metadata = fs::metadata(path).map_err(open_error)?;
        let kind = metadata.file_type();
        let device = kind.is_block_device();
        if !device && !kind.is_file() {
            return Err(OpenDriveError::NotADrive { path: path.to_owned(), what: name_of(kind) });
        }
        let (mut file, direct) = open_file(path, device, direct, access)?;
        lock(&file, path, device, access)?;

        // A block device has a length of 0; both have an end.
        let end = file.seek(SeekFrom::End(0)).map_err(open_error)?;
        let bytes = end - end % BLOCK_BYTES as u64;
        if bytes == 0 {
            return Err(OpenDriveError::TooSmall { path: path.to_owned(), bytes: end });
        }
        let drive_kind = kind_of(if device { metadata.rdev() } else { metadata.dev() });
        tracing::info!(path = %path.display(), bytes, direct, kind = ?drive_kind, "opened drive");
        let no_write_flags = AtomicBool::new(false);
        let submitting_may_wait = !device && submitting_may_wait(&file);
        Ok(DriveFile {
            path: path.to_owned(),
            file,
            bytes,
            direct,
            submitting_may_wait,
            kind: drive_kind,
            identity: DriveIdentity::from_metadata(&metadata),
            no_write_flags,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What its path led to when it was opened.
    pub fn identity(&self) -> &DriveIdentity {
        &self.identity
    }

    /// Its size in bytes, whole blocks.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it goes past the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Whether a request may wait for the drive in the thread that submits it.
    pub(crate) fn submitting_may_wait(&self) -> bool {
        self.submitting_may_wait
    }

    /// What kind of drive it is.
    pub fn kind(&self) -> DriveKind {
        self.kind
    }

    /// Reads the first `bytes` bytes of `buffer` from `offset_bytes`, blocking: for what comes before a
    /// [`Media`](crate::Media) can be opened, such as finding out which drive this is.
    ///
    /// # Errors
    /// When the drive ends before, or fails.
    ///
    /// # Panics
    /// When the operation is not in whole blocks or longer than the buffer.
    pub fn read_at(&self, offset_bytes: u64, buffer: &mut AlignedBuffer, bytes: usize) -> Result<(), MediaError> {
        self.read_blocking(&mut Transfer::new("read", offset_bytes, bytes, buffer), buffer)
    }

    /// Writes the first `bytes` bytes of `buffer` at `offset_bytes`, durably, blocking.
    ///
    /// # Errors
    /// When the drive ends before, or fails.
    ///
    /// # Panics
    /// When the operation is not in whole blocks or longer than the buffer.
    pub fn write_at(&self, offset_bytes: u64, buffer: &AlignedBuffer, bytes: usize) -> Result<(), MediaError> {
        self.write_blocking(&mut Transfer::new("write", offset_bytes, bytes, buffer), buffer)
    }

    /// Moves the whole of a read.
    pub(crate) fn read_blocking(&self, transfer: &mut Transfer, buffer: &mut AlignedBuffer) -> Result<(), MediaError> {
        transfer.check(self.bytes)?;
        loop {
            let memory = &mut buffer[transfer.moved..transfer.bytes];
            let result = pread(&self.file, memory, transfer.offset_bytes + transfer.moved as u64);
            if let Some(result) = transfer.advance(result.map_err(Errno::raw_os_error)) {
                return result;
            }
        }
    }

    /// Moves the whole of a write.
    pub(crate) fn write_blocking(&self, transfer: &mut Transfer, buffer: &AlignedBuffer) -> Result<(), MediaError> {
        transfer.check(self.bytes)?;
        loop {
            let memory = &buffer[transfer.moved..transfer.bytes];
            let result = self.write_once(memory, transfer.offset_bytes + transfer.moved as u64);
            if let Some(result) = transfer.advance(result.map_err(Errno::raw_os_error)) {
                return result;
            }
        }
    }

    /// One write, of as much as the kernel likes; what it says was moved is durable.
    fn write_once(&self, memory: &[u8], offset_bytes: u64) -> Result<usize, Errno> {
        if !self.no_write_flags.load(Ordering::Relaxed) {
            match pwritev2(&self.file, &[IoSlice::new(memory)], offset_bytes, ReadWriteFlags::DSYNC) {
                // Linux before 4.7 and some sandboxes.
                Err(Errno::NOSYS | Errno::OPNOTSUPP) => {
                    let path = self.path.display();
                    tracing::info!(%path, "no RWF_DSYNC here: every write is followed by fdatasync");
                    self.no_write_flags.store(true, Ordering::Relaxed);
                }
                result => return result,
            }
        }
        let bytes = pwrite(&self.file, memory, offset_bytes)?;
        rustix::fs::fdatasync(&self.file)?;
        Ok(bytes)
    }
}

impl AsFd for DriveFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// What a path is that is no drive.
pub(crate) fn name_of(kind: fs::FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_char_device() {
        "a character device"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_fifo() {
        "a named pipe"
    } else {
        "something unknown"
    }
}

/// Opens it, past the page cache when wanted and possible; says which.
fn open_file(path: &Path, device: bool, direct: DirectIo, access: Access) -> Result<(File, bool), OpenDriveError> {
    let exclusive = access == Access::Exclusive;
    // On a block device O_EXCL (without O_CREAT) keeps it from being mounted, and fails while it is.
    let claim = if device && exclusive { OFlags::EXCL } else { OFlags::empty() };
    let open = |flags: OFlags| {
        OpenOptions::new().read(true).write(exclusive).custom_flags((claim | flags).bits().cast_signed()).open(path)
    };
    let failed = |source: io::Error| match Errno::from_io_error(&source) {
        Some(Errno::BUSY) => {
            OpenDriveError::InUse { path: path.to_owned(), by: "it is mounted, part of an array, or another server's" }
        }
        _ => OpenDriveError::Open { path: path.to_owned(), source },
    };
    if direct == DirectIo::Off {
        return Ok((open(OFlags::empty()).map_err(failed)?, false));
    }
    let refused = match open(OFlags::DIRECT) {
        Ok(file) => match direct_read_refused(&file) {
            None => return Ok((file, true)),
            Some(error) => error,
        },
        Err(error) if is_refusal(&error) => error,
        Err(error) => return Err(failed(error)),
    };
    if direct == DirectIo::On {
        return Err(OpenDriveError::DirectRefused { path: path.to_owned(), source: refused });
    }
    tracing::info!(path = %path.display(), %refused, "no O_DIRECT here: going through the page cache");
    Ok((open(OFlags::empty()).map_err(failed)?, false))
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INVAL | Errno::OPNOTSUPP))
}

/// Some file systems take the flag and refuse the first transfer, or want more than our alignment.
/// Any other failure is the drive's, and is met again when it matters.
fn direct_read_refused(file: &File) -> Option<io::Error> {
    let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
    let error = io::Error::from(pread(file, &mut block[..], 0).err()?);
    is_refusal(&error).then_some(error)
}

fn lock(file: &File, path: &Path, device: bool, access: Access) -> Result<(), OpenDriveError> {
    // udev locks a block device for a moment whenever it looks at it.
    let mut attempts_left = if device { 40 } else { 1 };
    loop {
        let locked = match access {
            Access::Exclusive => file.try_lock(),
            Access::SharedReadOnly => file.try_lock_shared(),
        };
        attempts_left -= 1;
        match locked {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if attempts_left > 0 => thread::sleep(Duration::from_millis(50)),
            Err(TryLockError::WouldBlock) => {
                return Err(OpenDriveError::InUse { path: path.to_owned(), by: "another process has locked it" });
            }
            Err(TryLockError::Error(source)) => return Err(OpenDriveError::Lock { path: path.to_owned(), source }),
        }
    }
}

/// The kind of the block device with this number.
fn kind_of(device: u64) -> DriveKind {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let directory = format!("/sys/dev/block/{major}:{minor}");
    // A partition has no queue of its own; the kernel follows the link before the "..".
    let answer = ["queue/rotational", "../queue/rotational"]
        .iter()
        .find_map(|name| fs::read_to_string(format!("{directory}/{name}")).ok());
    match answer.as_deref().map(str::trim) {
        Some("1") => DriveKind::Rotational,
        Some("0") => DriveKind::SolidState,
        _ => DriveKind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: u64) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("drive");
        File::create(&path).and_then(|file| file.set_len(bytes)).expect("a file");
        (directory, path)
    }

    #[test]
    fn one_writer_or_many_readers() {
        let (_directory, path) = file(3 * 4096 + 17);
        let writer = DriveFile::open(&path, DirectIo::Auto, Access::Exclusive).expect("free");
        assert_eq!(writer.bytes(), 3 * 4096);
        for access in [Access::Exclusive, Access::SharedReadOnly] {
            let error = DriveFile::open(&path, DirectIo::Auto, access).expect_err("in use");
            assert!(matches!(error, OpenDriveError::InUse { .. }), "{error}");
            assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        }
        drop(writer);
        let readers = [(); 2].map(|()| DriveFile::open(&path, DirectIo::Auto, Access::SharedReadOnly).expect("shared"));
        assert!(DriveFile::open(&path, DirectIo::Auto, Access::Exclusive).is_err());
        let error = readers[0].write_at(0, &AlignedBuffer::zeroed(1), 4096).expect_err("read-only");
        assert!(matches!(error, MediaError::Os { operation: "write", .. }), "{error}");
        drop(readers);
        DriveFile::open(&path, DirectIo::Auto, Access::Exclusive).expect("free again");
    }

    #[test]
    fn blocking_transfers_read_back_and_stop_at_the_end() {
        for direct in [DirectIo::Auto, DirectIo::Off] {
            let (_directory, path) = file(2 * 4096);
            let drive = DriveFile::open(&path, direct, Access::Exclusive).expect("opens");
            let written = AlignedBuffer::copied(&[9; 4096]);
            drive.write_at(4096, &written, 4096).expect("fits");
            let past = MediaError::Short { offset_bytes: 8192, bytes: 4096, moved: 0 };
            assert_eq!(drive.write_at(8192, &written, 4096), Err(past));
            let mut read = AlignedBuffer::zeroed(8192);
            drive.read_at(0, &mut read, 8192).expect("reads");
            assert!(read[..4096].iter().all(|&b| b == 0) && read[4096..].iter().all(|&b| b == 9));
            assert_eq!(fs::metadata(&path).expect("there").len(), 8192);
        }
    }

    #[test]
    fn without_write_flags_a_write_is_synced_by_itself() {
        let (_directory, path) = file(4096);
        let drive = DriveFile::open(&path, DirectIo::Off, Access::Exclusive).expect("opens");
        drive.no_write_flags.store(true, Ordering::Relaxed);
        drive.write_at(0, &AlignedBuffer::copied(&[5; 4096]), 4096).expect("fits");
        assert_eq!(fs::read(&path).expect("there"), [5; 4096]);
    }

    #[test]
    fn what_is_no_drive_is_named() {
        let (directory, path) = file(100);
        let open = |path: &Path| DriveFile::open(path, DirectIo::Auto, Access::Exclusive).expect_err("no drive");
        assert!(matches!(open(&path), OpenDriveError::TooSmall { bytes: 100, .. }));
        assert!(matches!(open(directory.path()), OpenDriveError::NotADrive { what: "a directory", .. }));
        assert!(matches!(open(Path::new("/dev/null")), OpenDriveError::NotADrive { what: "a character device", .. }));
        let missing = open(&directory.path().join("missing"));
        assert!(matches!(missing, OpenDriveError::Open { .. }), "{missing}");
    }
}
