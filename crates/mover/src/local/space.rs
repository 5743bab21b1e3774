//! What the file system of a directory takes still.

use std::path::{Path, PathBuf};

use rustix::fs::statvfs;

use crate::endpoint::HasSpace;
use crate::monitor::{Space, Told};

/// The file system that a directory lies on, as it is for those who are not root.
#[derive(Clone, Debug)]
pub struct DirectorySpace(PathBuf);

impl DirectorySpace {
    /// That of this directory.
    pub fn new(path: &Path) -> DirectorySpace {
        DirectorySpace(path.to_owned())
    }
}

impl HasSpace for DirectorySpace {
    fn space(&self) -> Result<Space, String> {
        let stat = statvfs(&self.0).map_err(|error| format!("{}: {error}", self.0.display()))?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        // What is kept for root is neither free nor part of what can be filled.
        let kept = stat.f_bfree.saturating_sub(stat.f_bavail);
        Ok(Space {
            free_bytes: bytes(stat.f_bavail),
            capacity_bytes: bytes(stat.f_blocks.saturating_sub(kept)),
            told: Told::Nothing,
        })
    }
}
