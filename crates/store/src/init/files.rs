//! Making the files that are to be drives, and taking them away again.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use forebay_media::{MadeFile, create_zeroed, overwrite_zeroed};

use super::look::{Make, NewDrive};
use super::{InitError, InitProgress};

/// What the files need on one file system.
struct Need {
    directory: PathBuf,
    files: usize,
    bytes: u64,
}

/// Asks beforehand whether all files of each file system fit on it together.
pub(super) fn check_space(drives: &[NewDrive]) -> Result<(), InitError> {
    let mut needs: BTreeMap<u64, Need> = BTreeMap::new();
    for drive in drives.iter().filter(|drive| drive.make != Make::Nothing) {
        let parent = drive.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = parent.unwrap_or(".".as_ref()).to_owned();
        let found = drive.path.metadata();
        // What a file has already it need not find.
        let has_bytes = found.as_ref().map_or(0, |metadata| metadata.blocks().saturating_mul(512));
        // Where that cannot be found out, the making will tell.
        let Ok(file_system) = found.or_else(|_| directory.metadata()).map(|metadata| metadata.dev()) else { continue };
        let need = needs.entry(file_system).or_insert(Need { directory, files: 0, bytes: 0 });
        need.files += 1;
        need.bytes = need.bytes.saturating_add(drive.bytes.saturating_sub(has_bytes));
    }
    for Need { directory, files, bytes: needed_bytes } in needs.into_values() {
        let Ok(stat) = rustix::fs::statvfs(&directory) else { continue };
        let available_bytes = stat.f_bavail.saturating_mul(stat.f_frsize);
        // Some file systems do not count.
        if stat.f_blocks > 0 && available_bytes < needed_bytes {
            return Err(InitError::NoSpace { directory, files, needed_bytes, available_bytes });
        }
    }
    Ok(())
}

/// What this call has written.
#[derive(Default)]
pub(super) struct Made {
    files: Vec<MadeFile>,
    /// Drives, in their order, that may hold parts of the store.
    pub begun: usize,
}

/// Makes the files.
pub(super) fn make(
    drives: &[NewDrive],
    made: &mut Made,
    progress: &mut dyn FnMut(InitProgress),
) -> Result<(), InitError> {
    let files = || drives.iter().filter(|drive| drive.make != Make::Nothing);
    let total_bytes = files().map(|drive| drive.bytes).sum();
    let mut before = 0;
    for drive in files() {
        let mut tell = |bytes| progress(InitProgress::Zeroing { written_bytes: before + bytes, total_bytes });
        made.files.push(match drive.make {
            Make::Overwrite { holds_zeros } => overwrite_zeroed(&drive.path, drive.bytes, holds_zeros, &mut tell)?,
            _ => create_zeroed(&drive.path, drive.bytes, &mut tell)?,
        });
        before += drive.bytes;
    }
    Ok(())
}

impl Made {
    /// What an operator should know of the files.
    pub fn warnings(&self) -> Vec<String> {
        let spaceless = self.files.iter().filter(|file| !file.takes_space());
        let warn = |file: &MadeFile| {
            format!(
                "{} was written whole, and its file system keeps less space for it than that: it compresses, or shares equal blocks. When \
                 the file system fills up the drive fails, and those beside it too. Turn that off for this directory and make the store anew",
                file.path().display()
            )
        };
        spaceless.map(warn).collect()
    }

    /// Takes away what was made; says what is left.
    pub fn undo(&self, drives: &[NewDrive]) -> String {
        let mut left = Vec::new();
        for file in &self.files {
            let path = file.path().display();
            match file.undo() {
                Err(error) => left.push(format!("{path} could not be made as it was ({error}): see to it by hand")),
                Ok(()) if file.lost_its_contents() => {
                    left.push(format!("{path} is empty, what it held is gone as --force allowed"));
                }
                Ok(()) => {}
            }
        }
        let is_ours = |drive: &&NewDrive| drive.make == Make::Nothing;
        let begun: Vec<String> =
            drives.iter().take(self.begun).filter(is_ours).map(|drive| drive.path.display().to_string()).collect();
        if !begun.is_empty() {
            let begun = begun.join(", ");
            left.push(format!("{begun} may hold parts of the store that was not made: say --force the next time"));
        }
        let rest = if left.is_empty() { "everything is as it was" } else { "everything else is as it was" };
        left.push(rest.to_owned());
        left.join("; ")
    }
}
