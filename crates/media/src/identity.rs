//! Which drive a path means, however it is spelled.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What a path leads to. Equal identities are one drive: two spellings, a link of either kind, two nodes of one device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DriveIdentity {
    /// A block device, by its number.
    Device(u64),
    /// A file, or anything else that lies in a file system.
    File {
        /// The number of the file system.
        file_system: u64,
        /// Its number there.
        inode: u64,
    },
    /// Nothing yet: a name in a directory.
    Missing {
        /// The number of the directory's file system.
        file_system: u64,
        /// The directory's number there.
        directory_inode: u64,
        /// The name.
        name: OsString,
    },
}

impl DriveIdentity {
    /// What `path` leads to.
    ///
    /// # Errors
    /// When it cannot be found out; for a path that does not exist, when its directory does not either.
    pub fn of(path: &Path) -> io::Result<DriveIdentity> {
        match fs::metadata(path) {
            Ok(found) => Ok(DriveIdentity::from_metadata(&found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let directory = fs::metadata(directory_of(path))?;
                let name = path.file_name().unwrap_or_default().to_owned();
                let (file_system, directory_inode) = (directory.dev(), directory.ino());
                Ok(DriveIdentity::Missing { file_system, directory_inode, name })
            }
            Err(error) => Err(error),
        }
    }

    /// The same of what was found at a path.
    pub(crate) fn from_metadata(found: &Metadata) -> DriveIdentity {
        if found.file_type().is_block_device() {
            DriveIdentity::Device(found.rdev())
        } else {
            DriveIdentity::File { file_system: found.dev(), inode: found.ino() }
        }
    }
}

/// The first two of `paths` that are one drive. What cannot be found out is no drive yet, and equal to none. A drive that hangs is waited for.
pub fn given_twice(paths: &[PathBuf]) -> Option<(&Path, &Path)> {
    let identities: Vec<_> = paths.iter().map(|path| DriveIdentity::of(path).ok()).collect();
    first_equal(paths, &identities)
}

/// The first two of `paths` that have one identity, each having that which stands in its place.
pub fn first_equal<'p>(paths: &'p [PathBuf], identities: &[Option<DriveIdentity>]) -> Option<(&'p Path, &'p Path)> {
    (0..paths.len()).find_map(|at| {
        let own = identities[at].as_ref()?;
        let first = identities[..at].iter().position(|other| other.as_ref() == Some(own))?;
        Some((paths[first].as_path(), paths[at].as_path()))
    })
}

/// The directory in which a path names something.
pub(crate) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_a_drive_is_the_same_drive() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        for name in ["d0", "d1"] {
            fs::write(path(name), name).expect("written");
        }
        fs::hard_link(path("d0"), path("hard")).expect("linked");
        std::os::unix::fs::symlink("d0", path("soft")).expect("linked");
        std::os::unix::fs::symlink(".", path("here")).expect("linked");
        for other in ["d0", "./d0", "hard", "soft", "here/d0"] {
            let paths = [path("d1"), path("d0"), path(other)];
            assert_eq!(given_twice(&paths), Some((paths[1].as_path(), paths[2].as_path())), "{other}");
        }
        // What is not there yet has a place.
        for other in ["d3", "./d3", "here/d3"] {
            let paths = [path("d3"), path("d4"), path(other)];
            assert_eq!(given_twice(&paths), Some((paths[0].as_path(), paths[2].as_path())), "{other}");
        }
        let nowhere = path("no/d0");
        assert_eq!(given_twice(&[path("d0"), path("d1"), path("d3"), path("d4"), nowhere.clone(), nowhere]), None);
    }
}
