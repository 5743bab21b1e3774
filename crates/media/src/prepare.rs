//! Making a file that is to be a drive.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::BLOCK_BYTES;

/// Zeros written at once.
const CHUNK_BYTES: usize = 1 << 20;

/// How much is written between two flushes, so that progress is what the drive has and not what memory took.
const FLUSH_BYTES: u64 = 256 << 20;

/// Why a file could not be made.
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
    /// The file system is full.
    #[error(
        "the file system of {} is full: the drive needs {bytes} bytes, {available_bytes} were free; \
         nothing was left behind; free some space or make a smaller drive",
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
    #[error("cannot {step} {} at byte {written_bytes} of {bytes}: {source}; nothing was left behind", path.display())]
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
}

/// Makes the file `path` of `bytes` bytes, all written as zeros and flushed with its directory, so that no later write
/// needs to allocate anything. `progress` is called with the bytes that are on the drive. An existing file is taken
/// only when it is empty. On failure the file is removed again (or emptied, when it existed).
///
/// # Errors
/// When the size is not in whole blocks, the file holds something, the file system is full, or the operating system
/// fails it.
pub fn create_zeroed(path: &Path, bytes: u64, progress: &mut dyn FnMut(u64)) -> Result<(), PrepareError> {
    if bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES as u64) {
        return Err(PrepareError::Size { bytes });
    }
    let mut step = Step { path, bytes, written_bytes: 0, available_bytes: 0 };
    let (file, is_new) = create(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => PrepareError::Exists { path: path.to_owned() },
        _ => step.error("create", error),
    })?;
    let filled = has_space(&file, &mut step).and_then(|()| fill(&file, &mut step, progress));
    filled.inspect_err(|_| {
        // The reason for the failure matters more than what becomes of this.
        let _ = if is_new { fs::remove_file(path) } else { file.set_len(0) };
    })
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

/// The file, and whether it was not there before.
fn create(path: &Path) -> io::Result<(File, bool)> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let metadata = fs::metadata(path)?;
            if !metadata.is_file() || metadata.len() > 0 {
                return Err(error);
            }
            Ok((OpenOptions::new().write(true).open(path)?, false))
        }
        created => Ok((created?, true)),
    }
}

/// Asks beforehand, so that a full file system is neither filled nor found out after an hour.
fn has_space(file: &File, step: &mut Step<'_>) -> Result<(), PrepareError> {
    let Ok(stat) = rustix::fs::fstatvfs(file) else { return Ok(()) };
    step.available_bytes = stat.f_bavail.saturating_mul(stat.f_frsize);
    // Some file systems do not count.
    if stat.f_blocks > 0 && step.available_bytes < step.bytes {
        return Err(step.error("write", Errno::NOSPC.into()));
    }
    Ok(())
}

fn fill(mut file: &File, step: &mut Step<'_>, progress: &mut dyn FnMut(u64)) -> Result<(), PrepareError> {
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
    let directory = step.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(|error| step.error("flush", error))?;
    progress(step.bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

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
        create_zeroed(&empty, 4096, &mut |_| {}).expect("empty files are taken");
        assert_eq!(fs::metadata(&empty).expect("there").len(), 4096);
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
