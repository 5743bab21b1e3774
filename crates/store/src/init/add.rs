//! Making a drive that is to come to a store that runs.

use std::path::Path;

use forebay_format::{DriveLayout, Geometry};
use forebay_media::{Access, DriveFile, MediaConfig};
use forebay_types::DriveUuid;

use super::look::look;
use super::write::blank_places;
use super::{InitError, InitOptions, InitProgress, files, random};

/// A drive on which nothing lies.
pub(crate) struct AddedDrive {
    pub(crate) file: DriveFile,
    pub(crate) uuid: DriveUuid,
}

/// Makes `path` a drive with `slots` slots, for which it must have `bytes` bytes; a file that is not there yet gets that size. Before the first byte is
/// written `is_wanted` is asked once more: it may have taken long to see what the path holds.
///
/// # Errors
/// [`InitError`]: when it holds something and `force` is not said, is too small, or cannot be written.
pub(crate) fn prepare_drive(
    path: &Path,
    (slots, bytes): (u32, u64),
    geometry: &Geometry,
    force: bool,
    media: &MediaConfig,
    is_wanted: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(InitProgress),
) -> Result<AddedDrive, InitError> {
    let mut options = InitOptions::new(geometry.data_shards, geometry.parity_shards);
    options.force = force;
    options.drive_bytes = size_of_new_file(path, bytes);
    let drives = look(&[path.to_owned()], &options, progress)?;
    let layout = layout_with(path, drives[0].bytes, slots, geometry)?;
    files::check_space(&drives)?;
    if !is_wanted() {
        return Err(InitError::GivenUp);
    }
    let mut made = files::Made::default();
    let opened = files::make(&drives, &mut made, progress).and_then(|()| {
        made.begun = 1;
        let file = DriveFile::open(path, media.direct, Access::Exclusive)?;
        blank_places(&file, &layout, geometry.lanes)
            .map_err(|source| InitError::Write { path: path.to_owned(), source })?;
        Ok(file)
    });
    match opened {
        Ok(file) => Ok(AddedDrive { file, uuid: DriveUuid::from_random_bytes(random()) }),
        Err(cause) => Err(InitError::Undone { left: made.undo(&drives), cause: Box::new(cause) }),
    }
}

/// A file that is empty or not there gets a size; anything else keeps its own.
fn size_of_new_file(path: &Path, bytes: u64) -> Option<u64> {
    let holds_something = path.metadata().is_ok_and(|metadata| !metadata.is_file() || metadata.len() > 0);
    (!holds_something).then_some(bytes)
}

fn layout_with(path: &Path, bytes: u64, slots: u32, geometry: &Geometry) -> Result<DriveLayout, InitError> {
    let layout = geometry.layout(slots);
    let found = DriveLayout::plan(bytes, geometry.lanes, geometry.slot_bytes, geometry.checkpoint_bytes);
    if found.is_ok_and(|found| found.slots >= slots) {
        return Ok(layout);
    }
    let needed = layout.checked_end_offset().map_or(String::new(), |bytes| format!(", and {bytes} are needed"));
    Err(InitError::Options(format!(
        "{} has {bytes} bytes{needed}: it must have room for the {slots} slots of the drive that it replaces, and is too small",
        path.display()
    )))
}
