//! What a path holds, before a store is made on it. Nothing here writes.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, OFlags};
use rustix::io::Errno;

use crate::drives::name_of;
use crate::signatures::{SAMPLE_BYTES, Sample, recognise};

/// The bytes that the caller's drives begin with.
pub const MAGIC_BYTES: usize = 8;

/// How much is read.
struct Extent {
    /// Up to so many bytes all are read.
    whole_bytes_max: u64,
    /// Of more: so many bytes at the start ..
    head_bytes: u64,
    /// .. so many at the end ..
    tail_bytes: u64,
    /// .. and between them so many places ..
    places: u64,
    /// .. of so many bytes.
    place_bytes: u64,
}

/// Minutes on a disk, seconds on flash. What a drive holds shows at its start; file systems and arrays also mark its end, and repeat
/// themselves in between.
const EXTENT: Extent = Extent {
    whole_bytes_max: 64 << 30,
    head_bytes: 4 << 30,
    tail_bytes: 1 << 30,
    places: 16_384,
    place_bytes: 64 << 10,
};

/// Read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Pieces of a file that are told apart; what comes behind them counts as one.
const PIECES_MAX: usize = 1 << 16;

/// What a path holds, and how that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// What it holds.
    pub contents: Contents,
    /// Its size in bytes.
    pub bytes: u64,
    /// Bytes that were read; the holes of a file need not be.
    pub read_bytes: u64,
    /// Every byte is known. Otherwise the start, the end and places between were read; of what was recognised the start alone.
    pub is_whole: bool,
    /// It is a file whose file system has no space for all of it yet.
    pub has_holes: bool,
}

/// What a path holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// There is nothing at the path.
    Missing,
    /// A file of no bytes.
    Empty,
    /// What was read of it is zero.
    Zeroed,
    /// A drive of a store: it begins with the magic that was given.
    ForebayDrive,
    /// Something that is known.
    Known {
        /// What: "ext4 file system".
        what: String,
        /// The byte at which the mark of it lies.
        offset: u64,
    },
    /// Something else that is not zero.
    Unknown {
        /// Where the first byte was seen that is not zero.
        first_nonzero_offset: u64,
        /// The bytes there, at most 16.
        first_bytes: Vec<u8>,
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
    /// Looking was stopped by whoever wanted to know.
    #[error("{} was not looked at to its end; nothing was changed", path.display())]
    Stopped {
        /// The path.
        path: PathBuf,
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
/// Files are read whole, but for their holes; devices up to 64 GiB. Of larger devices these are: the first 4 GiB, the last GiB, and 16,384
/// evenly spread places of 64 KiB. `progress` is told the bytes that were read and those that will be, and says whether to go on.
///
/// # Errors
/// When it is in use (mounted, swapped to, part of an array, behind a loop device, locked), cannot be a drive,
/// cannot be read, or `progress` said to stop.
pub fn inspect(
    path: &Path,
    magic: &[u8; MAGIC_BYTES],
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Inspection, InspectError> {
    let failed = |source| InspectError::Os { path: path.to_owned(), source };
    let metadata = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return match fs::symlink_metadata(path) {
                Ok(_) => Err(InspectError::Unsuitable { path: path.to_owned(), what: "a symbolic link to nothing" }),
                Err(_) => Ok(Inspection::without_bytes(Contents::Missing)),
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
    // A file was written by somebody, at the cost of reading it; a device comes with its size.
    let whole_bytes_max = if kind.is_file() { u64::MAX } else { EXTENT.whole_bytes_max };
    let found = look(&file, magic, &Extent { whole_bytes_max, ..EXTENT }, progress).map_err(failed)?;
    let mut found = found.ok_or_else(|| InspectError::Stopped { path: path.to_owned() })?;
    found.has_holes |= kind.is_file() && metadata.blocks().saturating_mul(512) < found.bytes;
    Ok(found)
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

impl Inspection {
    fn without_bytes(contents: Contents) -> Self {
        Inspection { contents, bytes: 0, read_bytes: 0, is_whole: true, has_holes: false }
    }
}

/// Looks at an opened file or device; `None` when `progress` said to stop.
fn look(
    file: &File,
    magic: &[u8; MAGIC_BYTES],
    extent: &Extent,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> io::Result<Option<Inspection>> {
    let bytes = { file }.seek(SeekFrom::End(0))?;
    if bytes == 0 {
        return Ok(Some(Inspection::without_bytes(Contents::Empty)));
    }
    let pieces = pieces_with_data(file, bytes);
    let data_bytes: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
    let is_whole = data_bytes <= extent.whole_bytes_max;
    let found = |contents, read_bytes, is_whole| {
        Ok(Some(Inspection { contents, bytes, read_bytes, is_whole, has_holes: data_bytes < bytes }))
    };
    let sample_bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(SAMPLE_BYTES);
    let mut sample = Sample { bytes, head: vec![0; sample_bytes], tail: vec![0; sample_bytes] };
    file.read_exact_at(&mut sample.head, 0)?;
    file.read_exact_at(&mut sample.tail, bytes - sample_bytes as u64)?;
    if sample.head.starts_with(magic) {
        return found(Contents::ForebayDrive, sample_bytes as u64, false);
    }
    if let Some((what, offset)) = recognise(&sample) {
        return found(Contents::Known { what, offset }, 2 * sample_bytes as u64, false);
    }
    let pieces = if is_whole { pieces } else { places(bytes, extent) };
    let total: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
    let mut read_bytes = 0;
    let (zeros, mut chunk) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    for piece in pieces {
        let mut offset = piece.start;
        while offset < piece.end {
            let chunk = &mut chunk[..(piece.end - offset).min(CHUNK_BYTES as u64) as usize];
            file.read_exact_at(chunk, offset)?;
            // What is read once shall not drive out of memory what others use; where that cannot be said it does not matter.
            let _ = rustix::fs::fadvise(file, offset, NonZeroU64::new(chunk.len() as u64), Advice::DontNeed);
            read_bytes += chunk.len() as u64;
            if chunk != &zeros[..chunk.len()] {
                let at = chunk.iter().position(|&byte| byte != 0).expect("it differs from zeros");
                let first_bytes = chunk[at..].iter().take(16).copied().collect();
                let contents = Contents::Unknown { first_nonzero_offset: offset + at as u64, first_bytes };
                return found(contents, read_bytes, is_whole);
            }
            offset += chunk.len() as u64;
            if progress(read_bytes, total).is_break() {
                return Ok(None);
            }
        }
    }
    found(Contents::Zeroed, total, is_whole)
}

/// The pieces that hold data, as far as the file system says; all of it where it does not.
fn pieces_with_data(file: &File, bytes: u64) -> Vec<Range<u64>> {
    let seek = |from| rustix::fs::seek(file, from);
    let mut pieces = Vec::new();
    let mut offset = 0;
    while offset < bytes {
        let start = match seek(rustix::fs::SeekFrom::Data(offset)) {
            Ok(start) => start,
            // Only holes from here on.
            Err(Errno::NXIO) => break,
            Err(_) => offset,
        };
        let end = match seek(rustix::fs::SeekFrom::Hole(start)) {
            Ok(end) if end > start && pieces.len() < PIECES_MAX => end.min(bytes),
            _ => bytes,
        };
        if start < end {
            pieces.push(start..end);
        }
        offset = end;
    }
    pieces
}

/// What is read of something large.
fn places(bytes: u64, extent: &Extent) -> Vec<Range<u64>> {
    let (first, last) = (extent.head_bytes.min(bytes), bytes.saturating_sub(extent.tail_bytes));
    let distance = last.saturating_sub(first) / (extent.places + 1);
    let between = (1..=extent.places).map(|place| {
        let start = (first + place * distance) / extent.place_bytes * extent.place_bytes;
        start.max(first)..(start + extent.place_bytes).min(last)
    });
    let all = std::iter::once(0..first).chain(between.filter(|_| distance > 0)).chain(std::iter::once(last..bytes));
    all.filter(|place| place.start < place.end).collect()
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
        let found = inspect(&path, &MAGIC, &mut go_on).expect("readable");
        let after = fs::metadata(&path).and_then(|metadata| metadata.modified()).expect("a time");
        assert_eq!((before, fs::metadata(&path).expect("there").len()), (after, bytes), "touched");
        assert_eq!(found.bytes, bytes);
        found.contents
    }

    fn go_on(_read: u64, _total: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn contents_of(path: &Path) -> Contents {
        inspect(path, &MAGIC, &mut go_on).expect("readable").contents
    }

    #[test]
    fn nothing_zeros_and_own_drives_are_told_apart() {
        let (directory, path) = file_with(0, &[]);
        assert_eq!(contents_of(&path), Contents::Empty);
        assert_eq!(contents_of(&directory.path().join("no")), Contents::Missing);
        for bytes in [1, 4096, 1 << 20, (2 << 20) + 1, 64 << 20] {
            assert_eq!(contents(bytes, &[]), Contents::Zeroed);
        }
        assert_eq!(contents(8192, &[(0, &MAGIC)]), Contents::ForebayDrive);
        let known = Contents::Known { what: "ext2 file system".into(), offset: 1080 };
        assert_eq!(contents(8192, &[(1080, &[0x53, 0xef])]), known);
    }

    #[test]
    fn what_is_not_known_is_shown_wherever_it_is_seen() {
        let bytes = 64 << 20;
        for offset in [0, 5, (1 << 20) - 1, 1 << 20, (10 << 20) + 5000, (63 << 20) + 77, bytes - 1] {
            let found = contents(bytes, &[(offset, &[0xC3])]);
            let Contents::Unknown { first_nonzero_offset, first_bytes } = found else {
                panic!("{found:?} at {offset}");
            };
            assert_eq!((first_nonzero_offset, first_bytes[0]), (offset, 0xC3));
            assert!(first_bytes.len() <= 16);
        }
        let one = Contents::Unknown { first_nonzero_offset: 0, first_bytes: vec![0xC3] };
        assert_eq!(contents(1, &[(0, &[0xC3])]), one);
    }

    #[test]
    fn files_with_holes_are_known_and_their_data_is_read_whole() {
        let (_directory, path) = file_with(64 << 20, &[(10 << 20, &[0; 100])]);
        let mut told = Vec::new();
        let found = inspect(&path, &MAGIC, &mut |read, total| {
            told.push((read, total));
            ControlFlow::Continue(())
        })
        .expect("readable");
        assert_eq!((found.contents, found.is_whole, found.has_holes), (Contents::Zeroed, true, true));
        // Some file systems call everything data.
        assert!(told.last().is_none_or(|(read, total)| read == total), "{told:?}");
        fs::write(&path, vec![0; 3 << 20]).expect("written");
        let found = inspect(&path, &MAGIC, &mut go_on).expect("readable");
        assert_eq!((found.has_holes, found.read_bytes), (false, 3 << 20));
        let mut told = 0;
        let stopped = inspect(&path, &MAGIC, &mut |_, _| {
            told += 1;
            ControlFlow::Break(())
        });
        assert!(matches!(stopped, Err(InspectError::Stopped { .. })) && told == 1, "{stopped:?}");
    }

    #[test]
    fn of_what_is_too_large_the_ends_and_places_between_are_read() {
        let extent = Extent {
            whole_bytes_max: 1 << 20,
            head_bytes: 64 << 10,
            tail_bytes: 32 << 10,
            places: 16,
            place_bytes: 4096,
        };
        let bytes = 4 << 20;
        let look_at = |at: u64| {
            let (_directory, path) = file_with(bytes, &[]);
            fs::write(&path, vec![0; bytes as usize]).expect("written");
            let file = File::options().read(true).write(true).open(&path).expect("opens");
            file.write_all_at(&[0xC3], at).expect("writes");
            look(&file, &MAGIC, &extent, &mut go_on).expect("readable").expect("not stopped")
        };
        let read: Vec<Range<u64>> = places(bytes, &extent);
        assert_eq!((read.len(), &read[0], &read[17]), (18, &(0..64 << 10), &(bytes - (32 << 10)..bytes)));
        let read_bytes = (64 << 10) + (32 << 10) + 16 * 4096;
        for (at, piece) in read.iter().enumerate() {
            for offset in [piece.start, piece.end - 1] {
                let Contents::Unknown { first_nonzero_offset, .. } = look_at(offset).contents else {
                    panic!("nothing seen in place {at}");
                };
                assert_eq!(first_nonzero_offset, offset);
            }
        }
        let unseen = look_at(read[3].end);
        assert_eq!((unseen.contents, unseen.is_whole, unseen.read_bytes), (Contents::Zeroed, false, read_bytes));
        // No size between is a special case.
        for bytes in [(64 << 10) - 1, 64 << 10, (96 << 10) + 1, (96 << 10) + 17, 1 << 20, 123_456_789] {
            let read = places(bytes, &extent);
            assert!(read.iter().all(|piece| piece.start < piece.end && piece.end <= bytes), "{read:?}");
            assert!(read.windows(2).all(|pair| pair[0].start <= pair[1].start), "{read:?}");
        }
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
            let error = inspect(path, &MAGIC, &mut go_on).expect_err(wanted);
            assert!(matches!(&error, InspectError::Unsuitable { what, .. } if *what == wanted), "{error}");
            assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        }
    }

    #[test]
    fn what_a_server_has_locked_is_in_use() {
        let (_directory, path) = file_with(8192, &[]);
        let server = File::open(&path).expect("opens");
        server.try_lock().expect("free");
        let error = inspect(&path, &MAGIC, &mut go_on).expect_err("in use");
        assert!(matches!(error, InspectError::InUse { .. }), "{error}");
        drop(server);
        assert_eq!(contents_of(&path), Contents::Zeroed);
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
        let error = inspect(Path::new(device), &MAGIC, &mut go_on).expect_err("mounted");
        assert!(error.to_string().contains("mounted"), "{error}");
    }

    #[test]
    fn names_in_the_kernel_tables_are_read_back() {
        assert_eq!(unescape(r"/mnt/a\040b\134c"), r"/mnt/a b\c");
    }
}
