//! Whose drive it is that an operator names for a new one: what it holds may be needed.

use std::path::Path;

use forebay_format::Superblock;
use forebay_media::{Access, DriveFile, MediaConfig};
use forebay_types::DriveNumber;

use super::replacement::NotReplaced;
use crate::control::Shared;
use crate::superblocks::newest_superblock;

/// What a drive of a store says of itself. `None` when it is none, or cannot be read now: whoever prepares it says why then.
fn superblock_at(path: &Path, media: &MediaConfig) -> Option<Superblock> {
    let file = DriveFile::open(path, media.direct, Access::SharedReadOnly).ok()?;
    newest_superblock(&file).ok()
}

impl Shared {
    /// Refuses what is a drive of a store already: one of this store that is in `kept` always, any other one without `force`.
    pub(super) fn check_owner(&self, path: &Path, force: bool, kept: &[DriveNumber]) -> Result<(), NotReplaced> {
        let Some(found) = superblock_at(path, &self.media) else { return Ok(()) };
        let (number, shown) = (found.number, path.display());
        let (own, is_unknown) = {
            let status = self.status();
            let is_known = status.drives.iter().any(|drive| drive.uuid == found.drive);
            (found.store == status.store, !is_known && found.epoch <= status.epoch)
        };
        let reason = match (own, force) {
            (true, _) if kept.contains(&number) => format!(
                "{shown} is drive {number} of this store, and something may be out of reach that only what it holds brings back. Nothing was written, \
                 and --force does not change that. Start the server with it, so that it is read"
            ),
            (true, false) if is_unknown => format!(
                "{shown} says that it is drive {number} of this store, and the store knows of none that it could be: most likely it was to be put in \
                 once and did not become a member, so that nothing is stored on it. Nothing was written. Say --force to write over what was begun there"
            ),
            (true, false) => format!(
                "{shown} is drive {number} of this store. Nothing was written. Start the server with it, so that what it holds is read where that \
                 helps; or say --force: what it holds is destroyed then, and made anew from the other drives"
            ),
            (false, false) => format!(
                "{shown} is drive {number} of another store, {}. Nothing was written. Name another drive, or say --force to destroy what it holds \
                 of that store",
                found.store
            ),
            (_, true) => return Ok(()),
        };
        Err(NotReplaced { reason, is_retryable: false })
    }
}
