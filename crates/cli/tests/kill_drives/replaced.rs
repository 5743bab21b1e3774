//! What is found where a drive was, and is not that drive.
//!
//! A server takes none of these in. It starts without a file that holds no store, and says so; it refuses to start with a drive of another
//! store, or with two copies of one drive, and is started again without it. A command that takes a new drive in has its place here: a
//! [`StandIn`] that holds no store is what it would be given.

use std::fs;
use std::path::{Path, PathBuf};

use super::common::load::Random;
use super::drives::Shape;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// No byte.
    Empty,
    /// As large as the drive, nothing in it.
    Zeros,
    /// As large as the drive, random bytes.
    Noise,
    /// A drive of another store.
    Foreign,
    /// A copy of another drive of this store.
    Copy,
}

/// A file where a drive was; removed when dropped.
#[derive(Debug)]
pub struct StandIn {
    path: PathBuf,
    kind: Kind,
}

impl StandIn {
    /// Puts one there; `foreign` is a drive of another store, `other` another drive of this one.
    pub fn put(path: &Path, shape: Shape, foreign: &Path, other: &Path, random: &mut Random) -> StandIn {
        let kinds = [Kind::Empty, Kind::Zeros, Kind::Noise, Kind::Foreign, Kind::Copy];
        let kind = kinds[random.below(kinds.len() as u64) as usize];
        let drive_bytes = shape.drive_mebibytes << 20;
        let file = |bytes| fs::File::create_new(path).and_then(|file| file.set_len(bytes));
        match kind {
            Kind::Empty => file(0).expect("made"),
            Kind::Zeros => file(drive_bytes).expect("made"),
            Kind::Noise => fs::write(path, random.bytes(drive_bytes as usize)).expect("written"),
            Kind::Foreign => drop(fs::copy(foreign, path).expect("copied")),
            Kind::Copy => drop(fs::copy(other, path).expect("copied")),
        }
        StandIn { path: path.to_owned(), kind }
    }

    /// What a server says that does not start with it; `None`: it starts without it.
    pub fn refused(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Empty | Kind::Zeros | Kind::Noise => None,
            Kind::Foreign => Some("belongs to store"),
            Kind::Copy => Some("copies of one drive"),
        }
    }

    /// What a server says that starts without it.
    pub fn ignored(&self) -> &'static str {
        match self.kind {
            Kind::Empty => "less than one block",
            Kind::Zeros | Kind::Noise | Kind::Foreign | Kind::Copy => "holds no superblock of a store",
        }
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        // The directory may be gone before.
        let _ = fs::remove_file(&self.path);
    }
}
