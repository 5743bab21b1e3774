//! A store on one drive that is no file and no device of this machine, and protects what it holds by itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::{FoundDrive, OpenRequest, plan_open};
use forebay_format::{SUPERBLOCK_BYTES, SUPERBLOCK_STRIDE_BYTES, Superblock};
use forebay_media::{AlignedBuffer, DriveKind, MediaError, RemoteDrive};

use crate::config::StoreConfig;
use crate::init::{InitError, InitOptions, InitReport, RemoteGeometry};
use crate::open::{Ground, OpenStoreError, OpenedStore, open_on};
use crate::profile::Profile;
use crate::superblocks::{NoSuperblock, is_newer, newest_of, words_of};

/// What is asked of such a drive is waited for so long: it is not taken out, since there is no other. A cluster that blocks goes on when it can.
pub(crate) const PATIENCE: Duration = Duration::from_secs(365 * 86_400);

/// And after so long without an answer writers are told that it is unavailable for now.
pub(crate) const BLOCKED_AFTER: Duration = Duration::from_secs(5);

/// A slot is one object.
const SLOT_BYTES_MAX: u64 = 128 << 20;

/// How a store on a remote drive is laid out, before anything is written.
pub struct RemotePlan {
    /// The store that is to be.
    pub report: InitReport,
    geometry: RemoteGeometry,
}

impl RemotePlan {
    /// Where the slots begin, bytes of a slot, and bytes of the whole drive.
    pub fn layout(&self) -> (u64, u64, u64) {
        self.geometry.layout(&self.report)
    }

    /// Makes the drive a store.
    ///
    /// # Errors
    /// [`InitError::Write`].
    pub fn write(self, drive: &dyn RemoteDrive) -> Result<InitReport, InitError> {
        self.geometry.write(&self.report, drive)?;
        Ok(self.report)
    }
}

/// Plans a store on a remote drive of so many bytes: one data shard, no parity.
///
/// # Errors
/// [`InitError`].
pub fn plan_remote(name: &str, bytes: u64, options: &InitOptions) -> Result<RemotePlan, InitError> {
    let options = InitOptions { data: 1, parity: 0, drive_kind: Some(Profile::Pool), ..options.clone() };
    if options.slot_bytes.is_some_and(|bytes| bytes > SLOT_BYTES_MAX) {
        return Err(InitError::Options(format!(
            "--slot-bytes: a slot is an object, and may have {SLOT_BYTES_MAX} bytes at most, as objects have where nobody changed `osd_max_object_size`"
        )));
    }
    let (report, geometry) = RemoteGeometry::plan(PathBuf::from(name), bytes, DriveKind::Unknown, &options)?;
    Ok(RemotePlan { report, geometry })
}

/// Where the slots of the store begin that `read` gives the beginning of, bytes of a slot, and bytes of the whole drive; `None` when there is no store.
///
/// # Errors
/// [`OpenStoreError::Remote`]: what is there cannot be read, or a newer version wrote it.
pub fn remote_layout(
    name: &str,
    read: impl Fn(u64, &mut AlignedBuffer) -> Result<(), MediaError>,
) -> Result<Option<(u64, u64, u64)>, OpenStoreError> {
    let places = read_places(&read);
    let is_empty = places.iter().all(|place| matches!(place, Ok(None)));
    if is_empty {
        return Ok(None);
    }
    let superblock = newest_of_places(name, places)?;
    let Some(own) = superblock.drives.iter().find(|entry| entry.uuid == superblock.drive) else {
        return Err(OpenStoreError::Remote { name: name.to_owned(), why: "does not list itself".to_owned() });
    };
    let layout = superblock.geometry.layout(own.slots);
    Ok(Some((layout.slots_offset(), layout.slot_bytes, own.bytes)))
}

/// Opens a store on a remote drive, whose owner this server is.
///
/// # Errors
/// [`OpenStoreError`].
pub fn open_remote(drive: Arc<dyn RemoteDrive>, config: &StoreConfig) -> Result<OpenedStore, OpenStoreError> {
    let name = drive.name();
    let superblock = newest_of_places(&name, places_of(&*drive))?;
    let found = [FoundDrive { path: name, superblock }];
    let plan = plan_open(&found, OpenRequest { read_only: config.read_only })?;
    open_on(Ground::Remote(drive), plan, Profile::Pool, config)
}

/// The places for a superblock of a drive.
pub(crate) fn places_of(drive: &dyn RemoteDrive) -> Vec<Place> {
    read_places(&|offset, buffer: &mut AlignedBuffer| drive.read_at(offset, buffer, SUPERBLOCK_BYTES))
}

/// A place that holds nothing but zeros was never written.
pub(crate) type Place = Result<Option<Superblock>, NoSuperblock>;

fn read_places(read: &impl Fn(u64, &mut AlignedBuffer) -> Result<(), MediaError>) -> Vec<Place> {
    let place = |place: u64| {
        let mut buffer = AlignedBuffer::zeroed(SUPERBLOCK_BYTES);
        read(place * SUPERBLOCK_STRIDE_BYTES, &mut buffer).map_err(NoSuperblock::Read)?;
        if buffer.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        Superblock::decode(&buffer).map(Some).map_err(NoSuperblock::Format)
    };
    (0..forebay_format::PLACES).map(place).collect()
}

pub(crate) fn newest_of_places(name: &str, places: Vec<Place>) -> Result<Superblock, OpenStoreError> {
    let refused = |why: String| OpenStoreError::Remote { name: name.to_owned(), why };
    newest_of(places.into_iter().filter_map(Result::transpose)).map_err(|reasons| {
        if reasons.is_empty() {
            return refused("holds no store: `forebay init` makes one".to_owned());
        }
        let newer = reasons.iter().find(|reason| is_newer(reason)).map(ToString::to_string);
        refused(newer.unwrap_or_else(|| words_of(&reasons)))
    })
}
