//! Making a file that is to be a drive.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::BLOCK_BYTES;
use crate::identity::directory_of;

/// Zeros written at once.
const CHUNK_BYTES: usize = 1 << 20;

/// How much is written between two flushes, so that progress is what the drive has and not what memory took.
const FLUSH_BYTES: u64 = 256 << 20;

/// Why a file could not be made. It is as it was before, but for what it held when that could go, unless [`PrepareError::Left`]
/// says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The size is not in whole blocks, or is zero.
    #[error("a drive of {bytes} bytes cannot be made: the size must be a multiple of {BLOCK_BYTES} and not zero")]
    Size {
        /// What was asked for.
        bytes: u64,
    },
    /// There is a file that is not empty, or something else than a file.
    #[error("{} exists and holds something; it was not touched; remove it, or name another place", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Another process works on the file.
    #[error("{} is in use: another process has locked it; it was not touched; stop the other user first", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file system is full.
    #[error(
        "the file system of {} is full: the drive needs {bytes} bytes, {available_bytes} were free; \
         free some space or make a smaller drive",
        path.display()
    )]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        bytes: u64,
        /// What the file system said it had before.
        available_bytes: u64,
    },
    /// The operating system refused or failed it.
    #[error("cannot {step} {} at byte {written_bytes} of {bytes}: {source}", path.display())]
    Os {
        /// What was being done: "create", "write" or "flush".
        step: &'static str,
        /// The file.
        path: PathBuf,
        /// How far it came.
        written_bytes: u64,
        /// What was asked for.
        bytes: u64,
        /// What the operating system said.
        source: io::Error,
    },
    /// It failed, and what was made until then could not be taken away again.
    #[error("{cause}; what was made of {} could not be removed again ({source}): remove it by hand", path.display())]
    Left {
        /// Why it failed.
        cause: Box<PrepareError>,
        /// The file.
        path: PathBuf,
        /// Why it is still there.
        source: io::Error,
    },
}

impl PrepareError {
    /// The kind of the operating system's error, when it was one.
    pub fn os_kind(&self) -> Option<io::ErrorKind> {
        match self {
            PrepareError::Os { source, .. } => Some(source.kind()),
            PrepareError::Left { cause, .. } => cause.os_kind(),
            _ => None,
        }
    }
}

/// A file that was made to be a drive, and what it was before.
#[derive(Debug)]
pub struct MadeFile {
    path: PathBuf,
    before: Before,
    takes_space: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Missing,
    /// So many zeros, perhaps none.
    Zeros(u64),
    /// Something that could go.
    Other,
}

impl MadeFile {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its file system keeps space for all of it. One that compresses does not, or that shares equal blocks: a drive there
    /// may find no space for what it was made for.
    pub fn takes_space(&self) -> bool {
        self.takes_space
    }

    /// Whether it held something that is gone.
    pub fn lost_its_contents(&self) -> bool {
        self.before == Before::Other
    }

    /// Makes it as it was before: removed, or so many zeros without space of their own. What could go is gone: the file is empty then.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn undo(&self) -> io::Result<()> {
        let Before::Zeros(bytes) = self.before else {
            return match self.before {
                Before::Missing => fs::remove_file(&self.path),
                _ => OpenOptions::new().write(true).open(&self.path)?.set_len(0),
            };
        };
        let file = OpenOptions::new().write(true).open(&self.path)?;
        file.set_len(0)?;
        file.set_len(bytes)
    }
}

/// Makes the file `path` of `bytes` bytes, all written as zeros and flushed with its directory, so that no later write
/// needs to allocate anything. `progress` is called with the bytes that are on the drive. An existing file is taken
/// only when it is empty. On failure it is made as it was.
///
/// # Errors
/// When the size is not in whole blocks, the file holds something, the file system is full, or the operating system
/// fails it.
pub fn create_zeroed(path: &Path, bytes: u64, progress: &mut dyn FnMut(u64)) -> Result<MadeFile, PrepareError> {
    make(path, bytes, progress, |step| {
        create(path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => PrepareError::Exists { path: path.to_owned() },
            _ => step.error("create", error),
        })
    })
}

/// Like [`create_zeroed`] for a file that exists: its length becomes `bytes`, and all of it is written as zeros. `holds_zeros` says
/// that nothing else is in it now, so that it can be made as it was when this fails; anything else is gone then, and the file empty.
///
/// # Errors
/// As for [`create_zeroed`], and when another process has locked the file.
pub fn overwrite_zeroed(
    path: &Path,
    bytes: u64,
    holds_zeros: bool,
    progress: &mut dyn FnMut(u64),
) -> Result<MadeFile, PrepareError> {
    make(path, bytes, progress, |step| {
        let open = || -> io::Result<(File, u64)> {
            let file = OpenOptions::new().write(true).open(path)?;
            let metadata = file.metadata()?;
            if metadata.is_file() { Ok((file, metadata.len())) } else { Err(Errno::INVAL.into()) }
        };
        let (file, old_bytes) = open().map_err(|error| step.error("open", error))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(PrepareError::InUse { path: path.to_owned() }),
            // Where there are no locks nobody holds one.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let before = if holds_zeros { Before::Zeros(old_bytes) } else { Before::Other };
        Ok((file, before))
    })
}

fn make(
    path: &Path,
    bytes: u64,
    progress: &mut dyn FnMut(u64),
    open: impl FnOnce(&Step<'_>) -> Result<(File, Before), PrepareError>,
) -> Result<MadeFile, PrepareError> {
    if bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES as u64) {
        return Err(PrepareError::Size { bytes });
    }
    let mut step = Step { path, bytes, written_bytes: 0, available_bytes: 0 };
    let (file, before) = open(&step)?;
    let mut made = MadeFile { path: path.to_owned(), before, takes_space: false };
    match has_space(&file, &mut step).and_then(|()| fill(&file, &mut step, progress)) {
        Ok(()) => {
            made.takes_space = file.metadata().is_ok_and(|metadata| metadata.blocks().saturating_mul(512) >= bytes);
            Ok(made)
        }
        Err(cause) => match made.undo() {
            Ok(()) => Err(cause),
            Err(source) => Err(PrepareError::Left { cause: Box::new(cause), path: made.path, source }),
        },
    }
}

/// How far it has come.
struct Step<'a> {
    path: &'a Path,
    bytes: u64,
    written_bytes: u64,
    available_bytes: u64,
}

impl Step<'_> {
    fn error(&self, step: &'static str, source: io::Error) -> PrepareError {
        let &Step { bytes, written_bytes, available_bytes, .. } = self;
        let path = self.path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                PrepareError::NoSpace { path, bytes, available_bytes }
            }
            _ => PrepareError::Os { step, path, written_bytes, bytes, source },
        }
    }
}

fn create(path: &Path) -> io::Result<(File, Before)> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let metadata = fs::metadata(path)?;
            if !metadata.is_file() || metadata.len() > 0 {
                return Err(error);
            }
            Ok((OpenOptions::new().write(true).open(path)?, Before::Zeros(0)))
        }
        created => Ok((created?, Before::Missing)),
    }
}

/// Asks beforehand, so that a full file system is neither filled nor found out after an hour.
fn has_space(file: &File, step: &mut Step<'_>) -> Result<(), PrepareError> {
    let Ok(stat) = rustix::fs::fstatvfs(file) else { return Ok(()) };
    // What the file has already it need not find.
    let own_bytes = file.metadata().map_or(0, |metadata| metadata.blocks().saturating_mul(512));
    step.available_bytes = stat.f_bavail.saturating_mul(stat.f_frsize).saturating_add(own_bytes);
    // Some file systems do not count.
    if stat.f_blocks > 0 && step.available_bytes < step.bytes {
        return Err(step.error("write", Errno::NOSPC.into()));
    }
    Ok(())
}

fn fill(mut file: &File, step: &mut Step<'_>, progress: &mut dyn FnMut(u64)) -> Result<(), PrepareError> {
    // What is longer is cut off; what is shorter grows as it is written.
    let too_long = file.metadata().is_ok_and(|metadata| metadata.len() > step.bytes);
    let cut = if too_long { file.set_len(step.bytes) } else { Ok(()) };
    cut.and_then(|()| file.seek(SeekFrom::Start(0))).map_err(|error| step.error("write", error))?;
    // For space in one piece. Not enough alone: the first write to such space changes the file system's books.
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, step.bytes) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::INTR) => {}
        Err(errno) => return Err(step.error("write", errno.into())),
    }
    let zeros = vec![0; CHUNK_BYTES];
    while step.written_bytes < step.bytes {
        let chunk = (step.bytes - step.written_bytes).min(CHUNK_BYTES as u64);
        file.write_all(&zeros[..chunk as usize]).map_err(|error| step.error("write", error))?;
        step.written_bytes += chunk;
        if step.written_bytes.is_multiple_of(FLUSH_BYTES) {
            file.sync_data().map_err(|error| step.error("flush", error))?;
            progress(step.written_bytes);
        }
    }
    file.sync_all().map_err(|error| step.error("flush", error))?;
    let directory = directory_of(step.path);
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(|error| step.error("flush", error))?;
    progress(step.bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_is_zeros_that_take_their_space() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("drive");
        let bytes = 3 * (1 << 20) + 4096;
        let mut seen = Vec::new();
        create_zeroed(&path, bytes, &mut |done| seen.push(done)).expect("made");
        assert_eq!(seen, [bytes]);
        let metadata = fs::metadata(&path).expect("there");
        assert_eq!(metadata.len(), bytes);
        assert!(metadata.blocks() * 512 >= bytes, "{} blocks", metadata.blocks());
        assert!(fs::read(&path).expect("reads").iter().all(|&byte| byte == 0));

        let error = create_zeroed(&path, bytes, &mut |_| {}).expect_err("exists");
        assert!(matches!(error, PrepareError::Exists { .. }), "{error}");
        let empty = directory.path().join("empty");
        File::create(&empty).expect("made");
        let made = create_zeroed(&empty, 4096, &mut |_| {}).expect("empty files are taken");
        assert_eq!(fs::metadata(&empty).expect("there").len(), 4096);
        assert!(made.takes_space() && !made.lost_its_contents());
        made.undo().expect("as it was");
        assert_eq!(fs::metadata(&empty).expect("there").len(), 0);
    }

    #[test]
    fn a_file_that_is_there_gets_the_length_that_was_asked_for_and_space_for_all_of_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("drive");
        let blocks = || fs::metadata(&path).expect("there").blocks() * 512;
        for old_bytes in [8192, 1 << 20, 3 << 20] {
            File::create(&path).and_then(|file| file.set_len(old_bytes)).expect("made");
            assert!(blocks() < old_bytes, "nothing is written yet");
            let made = overwrite_zeroed(&path, 1 << 20, true, &mut |_| {}).expect("made");
            assert!(made.takes_space() && blocks() >= 1 << 20, "{} bytes", blocks());
            assert_eq!(fs::read(&path).expect("reads"), vec![0; 1 << 20]);
            made.undo().expect("as it was");
            assert_eq!((fs::metadata(&path).expect("there").len(), blocks()), (old_bytes, 0));

            fs::write(&path, vec![7; old_bytes as usize]).expect("written");
            let made = overwrite_zeroed(&path, 1 << 20, false, &mut |_| {}).expect("made");
            assert_eq!(fs::read(&path).expect("reads"), vec![0; 1 << 20]);
            assert!(made.lost_its_contents());
            made.undo().expect("emptied");
            assert_eq!(fs::metadata(&path).expect("there").len(), 0);
        }
        let server = File::open(&path).expect("opens");
        server.try_lock().expect("free");
        let error = overwrite_zeroed(&path, 4096, true, &mut |_| {}).expect_err("in use");
        assert!(matches!(error, PrepareError::InUse { .. }), "{error}");
        drop(server);
        let missing = overwrite_zeroed(&directory.path().join("no"), 4096, true, &mut |_| {}).expect_err("missing");
        assert_eq!(missing.os_kind(), Some(io::ErrorKind::NotFound), "{missing}");
    }

    #[test]
    fn sizes_that_no_drive_has_are_refused_before_anything_is_made() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("drive");
        for bytes in [0, 1, 4095, 4097] {
            let error = create_zeroed(&path, bytes, &mut |_| {}).expect_err("refused");
            assert!(matches!(error, PrepareError::Size { .. }), "{error}");
        }
        assert!(!path.exists());
    }

    #[test]
    fn a_full_file_system_is_told_with_numbers_and_leaves_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("drive");
        let stat = rustix::fs::statvfs(directory.path()).expect("a file system");
        // More than there is, and not more than files may have here.
        let bytes = (stat.f_blocks * stat.f_frsize * 2).next_multiple_of(4096);
        let error = create_zeroed(&path, bytes, &mut |_| {}).expect_err("cannot fit");
        let PrepareError::NoSpace { bytes: wanted, available_bytes, .. } = error else { panic!("{error}") };
        assert_eq!(wanted, bytes);
        assert!(available_bytes > 0 && available_bytes < bytes, "{available_bytes}");
        assert!(!path.exists());
    }
}
