//! Making a store on a drive that is no file and no device.

use std::path::PathBuf;

use forebay_media::{DriveKind, MediaError, RemoteDrive};

use super::look::{Make, NewDrive};
use super::{InitError, InitOptions, InitReport, geometry, write};
use crate::profile::Profile;

/// The drive, and its slots.
pub(crate) struct RemoteGeometry {
    drive: NewDrive,
    slots: u32,
}

impl RemoteGeometry {
    pub(crate) fn plan(
        name: PathBuf,
        bytes: u64,
        kind: DriveKind,
        options: &InitOptions,
    ) -> Result<(InitReport, RemoteGeometry), InitError> {
        let drive = NewDrive { path: name, bytes, make: Make::Nothing, kind, sampled: None };
        let drives = [drive];
        let chosen = geometry::choose_geometry(&drives, Profile::Pool, options)?;
        let slots = geometry::slots_of(&drives, &chosen)?;
        let report = geometry::check_memory(&slots, chosen, Profile::Pool, options)?;
        let [drive] = drives;
        Ok((report, RemoteGeometry { drive, slots: slots[0] }))
    }

    pub(crate) fn layout(&self, report: &InitReport) -> (u64, u64, u64) {
        let layout = report.geometry.layout(self.slots);
        (layout.slots_offset(), layout.slot_bytes, self.drive.bytes)
    }

    pub(crate) fn write(&self, report: &InitReport, drive: &dyn RemoteDrive) -> Result<(), InitError> {
        let mut write_all = |_: &_, own: &_, superblock: &_| {
            write::write_places(own, superblock, &|offset, buffer| drive.write_at(offset, buffer, buffer.len()))
                .map_err(|source: MediaError| InitError::Write { path: self.drive.path.clone(), source })
        };
        write::write_superblocks_with(std::slice::from_ref(&self.drive), &[self.slots], report, &mut write_all)
    }
}
