//! What a path holds, before a store is made on it. Nothing here writes.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::BLOCK_BYTES;
use crate::drives::name_of;
use crate::signatures::{SAMPLE_BYTES, Sample, recognise};

/// The bytes that the caller's drives begin with.
pub const MAGIC_BYTES: usize = 8;

/// Blocks looked at between the first and the last MiB of something that looks empty.
const SPOT_CHECKS: u64 = 256;

/// What a path holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// There is nothing at the path.
    Missing,
    /// A file of no bytes.
    Empty,
    /// The first and the last MiB, and single blocks between them, are zero.
    Zeroed {
        /// Its size.
        bytes: u64,
    },
    /// A drive of a store: it begins with the magic that was given.
    ForebayDrive {
        /// Its size.
        bytes: u64,
    },
    /// Something that is known.
    Known {
        /// What: "ext4 file system".
        what: String,
        /// Its size.
        bytes: u64,
    },
    /// Something else that is not zero.
    Unknown {
        /// Where the first byte was seen that is not zero.
        first_nonzero_offset: u64,
        /// The bytes there, at most 16.
        first_bytes: Vec<u8>,
        /// Its size.
        bytes: u64,
    },
}

/// Why nobody should even ask what a path holds.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The kernel, or another process, works on it.
    #[error("{} is in use: {by}; nothing was changed; release it first, or name another drive", path.display())]
    InUse {
        /// The path.
        path: PathBuf,
        /// By what.
        by: String,
    },
    /// Neither a file nor a block device.
    #[error("{} is {what}, not a file or a block device; nothing was changed", path.display())]
    Unsuitable {
        /// The path.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// It cannot be read.
    #[error("cannot look at {}: {source}; nothing was changed; check the path and its permissions", path.display())]
    Os {
        /// The path.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// Says what `path` holds; a file that begins with `magic` is a drive of a store. Never writes.
///
/// # Errors
/// When it is in use (mounted, swapped to, part of an array, behind a loop device, locked), cannot be a drive, or
/// cannot be read.
pub fn inspect(path: &Path, magic: &[u8; MAGIC_BYTES]) -> Result<Contents, InspectError> {
    let failed = |source| InspectError::Os { path: path.to_owned(), source };
    let metadata = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return match fs::symlink_metadata(path) {
                Ok(_) => Err(InspectError::Unsuitable { path: path.to_owned(), what: "a symbolic link to nothing" }),
                Err(_) => Ok(Contents::Missing),
            };
        }
        found => found.map_err(failed)?,
    };
    let kind = metadata.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(InspectError::Unsuitable { path: path.to_owned(), what: name_of(kind) });
    }
    if let Some(by) = user_of(path, &metadata) {
        return Err(InspectError::InUse { path: path.to_owned(), by });
    }
    let file = open(path, kind.is_block_device())?;
    look(&file, magic).map_err(failed)
}

fn open(path: &Path, device: bool) -> Result<File, InspectError> {
    let in_use = |by: &str| InspectError::InUse { path: path.to_owned(), by: by.to_owned() };
    // Without O_CREAT, O_EXCL on a block device asks the kernel whether it uses the device itself.
    let claim = if device { OFlags::EXCL } else { OFlags::empty() };
    let file = OpenOptions::new().read(true).custom_flags(claim.bits().cast_signed()).open(path);
    let file = file.map_err(|source| match Errno::from_io_error(&source) {
        Some(Errno::BUSY) => in_use("the kernel has it, as a mounted file system, an array, a volume or swap space"),
        _ => InspectError::Os { path: path.to_owned(), source },
    })?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Err(in_use("another process has locked it, such as a running server")),
        // Where there are no locks nobody holds one.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}

fn look(file: &File, magic: &[u8; MAGIC_BYTES]) -> io::Result<Contents> {
    let bytes = { file }.seek(SeekFrom::End(0))?;
    if bytes == 0 {
        return Ok(Contents::Empty);
    }
    let sample_bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(SAMPLE_BYTES);
    let mut sample = Sample { bytes, head: vec![0; sample_bytes], tail: vec![0; sample_bytes] };
    file.read_exact_at(&mut sample.head, 0)?;
    file.read_exact_at(&mut sample.tail, bytes - sample_bytes as u64)?;
    if sample.head.starts_with(magic) {
        return Ok(Contents::ForebayDrive { bytes });
    }
    if let Some(what) = recognise(&sample) {
        return Ok(Contents::Known { what, bytes });
    }
    let unknown = |part: &[u8], part_offset: u64| {
        let at = part.iter().position(|&byte| byte != 0)?;
        let first_bytes = part[at..].iter().take(16).copied().collect();
        Some(Contents::Unknown { first_nonzero_offset: part_offset + at as u64, first_bytes, bytes })
    };
    if let Some(found) = unknown(&sample.head, 0) {
        return Ok(found);
    }
    let mut block = vec![0; BLOCK_BYTES];
    for offset in spots(bytes) {
        file.read_exact_at(&mut block, offset)?;
        if let Some(found) = unknown(&block, offset) {
            return Ok(found);
        }
    }
    Ok(unknown(&sample.tail, bytes - sample_bytes as u64).unwrap_or(Contents::Zeroed { bytes }))
}

/// Starts of blocks spread evenly over what the samples leave out.
fn spots(bytes: u64) -> impl Iterator<Item = u64> {
    let first = SAMPLE_BYTES as u64;
    let span = bytes.saturating_sub(2 * first);
    let distance = (span / SPOT_CHECKS).next_multiple_of(BLOCK_BYTES as u64).max(BLOCK_BYTES as u64);
    (first..first + span).step_by(usize::try_from(distance).unwrap_or(usize::MAX))
}

/// Who uses it, as far as the kernel's tables tell. A device that is in use in another way still answers EBUSY.
fn user_of(path: &Path, metadata: &Metadata) -> Option<String> {
    let is_same = |other: &str| {
        let Ok(other) = fs::metadata(unescape(other)) else { return false };
        if metadata.file_type().is_block_device() {
            other.file_type().is_block_device() && other.rdev() == metadata.rdev()
        } else {
            (other.dev(), other.ino()) == (metadata.dev(), metadata.ino())
        }
    };
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    for mount in mounts.lines() {
        let mut fields = mount.split(' ');
        let (Some(source), Some(place)) = (fields.next(), fields.next()) else { continue };
        if source.starts_with('/') && is_same(source) {
            return Some(format!("it is mounted on {}", unescape(place)));
        }
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    if swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next()).any(is_same) {
        return Some("it is swap space in use".to_owned());
    }
    if metadata.is_file() { loop_device_of(path) } else { None }
}

/// The loop device that a file lies behind.
fn loop_device_of(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    for entry in fs::read_dir("/sys/block").ok()?.flatten() {
        let backing = fs::read_to_string(entry.path().join("loop/backing_file"));
        if backing.is_ok_and(|backing| Path::new(backing.trim_end_matches('\n')) == path) {
            return Some(format!("it is behind /dev/{}", entry.file_name().to_string_lossy()));
        }
    }
    None
}

/// The kernel writes blanks, tabs, line ends and backslashes in these tables as three octal digits.
fn unescape(field: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(field.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: [u8; MAGIC_BYTES] = *b"A DRIVE\n";

    fn file_with(bytes: u64, parts: &[(u64, &[u8])]) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("drive");
        let file = File::create(&path).expect("a file");
        file.set_len(bytes).expect("grows");
        for (offset, part) in parts {
            file.write_all_at(part, *offset).expect("writes");
        }
        (directory, path)
    }

    fn contents(bytes: u64, parts: &[(u64, &[u8])]) -> Contents {
        let (_directory, path) = file_with(bytes, parts);
        let before = fs::metadata(&path).and_then(|metadata| metadata.modified()).expect("a time");
        let contents = inspect(&path, &MAGIC).expect("readable");
        let after = fs::metadata(&path).and_then(|metadata| metadata.modified()).expect("a time");
        assert_eq!((before, fs::metadata(&path).expect("there").len()), (after, bytes), "touched");
        contents
    }

    #[test]
    fn nothing_zeros_and_own_drives_are_told_apart() {
        let (directory, path) = file_with(0, &[]);
        assert_eq!(inspect(&path, &MAGIC).expect("readable"), Contents::Empty);
        assert_eq!(inspect(&directory.path().join("no"), &MAGIC).expect("readable"), Contents::Missing);
        for bytes in [1, 4096, 1 << 20, (2 << 20) + 1, 64 << 20] {
            assert_eq!(contents(bytes, &[]), Contents::Zeroed { bytes });
        }
        assert_eq!(contents(8192, &[(0, &MAGIC)]), Contents::ForebayDrive { bytes: 8192 });
        let known = Contents::Known { what: "ext2 file system".into(), bytes: 8192 };
        assert_eq!(contents(8192, &[(1080, &[0x53, 0xef])]), known);
    }

    #[test]
    fn what_is_not_known_is_shown_wherever_it_is_seen() {
        let bytes = 8 << 20;
        for offset in [0, 5, (1 << 20) - 1, 1 << 20, 4 << 20, (7 << 20) + 77, bytes - 1] {
            let found = contents(bytes, &[(offset, &[0xC3])]);
            let Contents::Unknown { first_nonzero_offset, first_bytes, .. } = found else {
                panic!("{found:?} at {offset}");
            };
            assert_eq!((first_nonzero_offset, first_bytes[0]), (offset, 0xC3));
            assert!(first_bytes.len() <= 16);
        }
        let one = Contents::Unknown { first_nonzero_offset: 0, first_bytes: vec![0xC3], bytes: 1 };
        assert_eq!(contents(1, &[(0, &[0xC3])]), one);
    }

    #[test]
    fn what_is_no_drive_is_refused_by_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        let pipe = directory.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
        let dangling = directory.path().join("dangling");
        std::os::unix::fs::symlink("nowhere", &dangling).expect("a link");
        let cases = [
            (directory.path(), "a directory"),
            (&socket, "a socket"),
            (&pipe, "a named pipe"),
            (&dangling, "a symbolic link to nothing"),
            (Path::new("/dev/zero"), "a character device"),
        ];
        for (path, wanted) in cases {
            let error = inspect(path, &MAGIC).expect_err(wanted);
            assert!(matches!(&error, InspectError::Unsuitable { what, .. } if *what == wanted), "{error}");
            assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        }
    }

    #[test]
    fn what_a_server_has_locked_is_in_use() {
        let (_directory, path) = file_with(8192, &[]);
        let server = File::open(&path).expect("opens");
        server.try_lock().expect("free");
        let error = inspect(&path, &MAGIC).expect_err("in use");
        assert!(matches!(error, InspectError::InUse { .. }), "{error}");
        drop(server);
        assert_eq!(inspect(&path, &MAGIC).expect("free"), Contents::Zeroed { bytes: 8192 });
    }

    #[test]
    fn the_device_of_the_root_file_system_is_in_use() {
        let mounts = fs::read_to_string("/proc/mounts").expect("mounts");
        let devices = mounts.lines().filter_map(|line| line.split(' ').next());
        let device = devices.filter(|name| name.starts_with("/dev/")).find(|name| Path::new(name).exists());
        let Some(device) = device else {
            println!("skipped: needs a mounted block device, and the kernel shows none here");
            return;
        };
        let error = inspect(Path::new(device), &MAGIC).expect_err("mounted");
        assert!(error.to_string().contains("mounted"), "{error}");
    }

    #[test]
    fn names_in_the_kernel_tables_are_read_back() {
        assert_eq!(unescape(r"/mnt/a\040b\134c"), r"/mnt/a b\c");
    }
}
