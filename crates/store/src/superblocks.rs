//! A drive, before anything is decided: it is opened, and asked what it says of itself.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use forebay_format::{FormatError, SUPERBLOCK_BYTES, SUPERBLOCK_STRIDE_BYTES, Superblock};
use forebay_media::{Access, AlignedBuffer, DirectIo, DriveFile, MediaError, OpenDriveError};

/// How long a drive may be locked by someone else before that is an error, and how often is looked.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
const LOCK_RETRY: Duration = Duration::from_millis(20);

/// The least time that a drive gets to say what it is: somebody else may have it for a moment.
pub(crate) const OPEN_PATIENCE_MIN: Duration = LOCK_PATIENCE.saturating_mul(2);

/// What the two places for a superblock hold, each with where it begins.
pub(crate) type Superblocks = Vec<(u64, Result<Superblock, NoSuperblock>)>;

/// Opens a drive and reads what it says of itself; `None` when it does not answer within `patience`. It is asked in a thread of its own, which is left to
/// itself then: when the drive answers late, it is closed.
pub(crate) fn open_within(
    path: &Path,
    direct: DirectIo,
    access: Access,
    patience: Duration,
) -> Option<Result<(DriveFile, Superblocks), OpenDriveError>> {
    let (answer, answered) = sync_channel(1);
    let owned = path.to_owned();
    let ask = move || {
        let opened = open_drive(&owned, direct, access);
        // Nobody may wait any more.
        let _ = answer.send(opened.map(|drive| {
            let superblocks = read_superblocks(&drive);
            (drive, superblocks)
        }));
    };
    let open_error = |source| OpenDriveError::Open { path: path.to_owned(), source };
    if let Err(error) = std::thread::Builder::new().name("forebay-open".to_owned()).spawn(ask) {
        return Some(Err(open_error(error)));
    }
    match answered.recv_timeout(patience) {
        Ok(opened) => Some(opened),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => panic!("the thread that opens a drive panicked"),
    }
}

/// Opens a drive. The kernel lets go of the drives of a server that was killed only when its last operations are over, which
/// may be a moment after its process is gone: whoever starts it again at once shall not be refused for that.
fn open_drive(path: &Path, direct: DirectIo, access: Access) -> Result<DriveFile, OpenDriveError> {
    let begin = Instant::now();
    loop {
        match DriveFile::open(path, direct, access) {
            Err(OpenDriveError::InUse { .. }) if begin.elapsed() < LOCK_PATIENCE => std::thread::sleep(LOCK_RETRY),
            result => return result,
        }
    }
}

/// Why a place gave no superblock.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum NoSuperblock {
    #[error(transparent)]
    Read(MediaError),
    #[error(transparent)]
    Format(FormatError),
}

impl NoSuperblock {
    pub(crate) fn format(self) -> Option<FormatError> {
        match self {
            NoSuperblock::Format(error) => Some(error),
            NoSuperblock::Read(_) => None,
        }
    }
}

pub(crate) fn is_newer(reason: &NoSuperblock) -> bool {
    matches!(reason, NoSuperblock::Format(FormatError::Version { .. } | FormatError::UnknownFlags { .. }))
}

/// What a path is that gave no superblock, in words that follow its name.
pub(crate) fn words_of(reasons: &[NoSuperblock]) -> String {
    if reasons.iter().all(|reason| matches!(reason, NoSuperblock::Format(FormatError::Magic { .. }))) {
        return "holds no superblock of a store: it is no drive of Forebay, or its beginning was overwritten"
            .to_owned();
    }
    let reasons: Vec<String> = reasons.iter().map(ToString::to_string).collect();
    format!("holds no superblock of a store that can be read ({})", reasons.join("; "))
}

/// The newer one of the two superblocks of a drive. One that a newer version wrote is never passed over.
pub(crate) fn newest_superblock(drive: &DriveFile) -> Result<Superblock, Vec<NoSuperblock>> {
    newest_of(read_superblocks(drive).into_iter().map(|(_, read)| read))
}

fn read_superblocks(drive: &DriveFile) -> Superblocks {
    let read = |place: u64| {
        let mut buffer = AlignedBuffer::zeroed(SUPERBLOCK_BYTES);
        let offset_bytes = place * SUPERBLOCK_STRIDE_BYTES;
        let read = drive.read_at(offset_bytes, &mut buffer, SUPERBLOCK_BYTES);
        let decoded =
            read.map_err(NoSuperblock::Read).and_then(|()| Superblock::decode(&buffer).map_err(NoSuperblock::Format));
        (offset_bytes, decoded)
    };
    (0..forebay_format::PLACES).map(read).collect()
}

pub(crate) fn newest_of(
    places: impl Iterator<Item = Result<Superblock, NoSuperblock>>,
) -> Result<Superblock, Vec<NoSuperblock>> {
    let mut newest: Option<Superblock> = None;
    let mut reasons = Vec::new();
    for place in places {
        match place {
            Ok(superblock) if newest.as_ref().is_none_or(|n| n.generation < superblock.generation) => {
                newest = Some(superblock);
            }
            Ok(_) => {}
            Err(reason) => reasons.push(reason),
        }
    }
    newest.filter(|_| !reasons.iter().any(is_newer)).ok_or(reasons)
}
