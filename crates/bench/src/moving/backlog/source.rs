//! Where the readout of the backlog writes.

use std::fs;
use std::path::Path;

use forebay_client::files::{Detail, WriteOptions};
use tempfile::TempDir;

use crate::files::{LANES, connect};
use crate::process::{Drives, Server};

/// A source that a readout writes and a mover empties.
pub trait Files: Sync {
    /// As `--from` says it.
    fn from(&self) -> String;

    /// What the mover is told besides.
    fn options(&self) -> Vec<String>;

    /// Writes the file of a number, whole.
    fn write(&self, number: u64, bytes: &[u8]);

    /// The numbers of those that are there, ascending.
    fn there(&self) -> Vec<u64>;
}

fn name(number: u64) -> String {
    format!("file{number:06}.dat")
}

/// The number of a file.
pub fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix("file")?.strip_suffix(".dat")?.parse().ok()
}

/// A directory.
pub struct DirectoryFiles(TempDir);

impl DirectoryFiles {
    /// An empty one.
    pub fn make(directory: &Path) -> DirectoryFiles {
        DirectoryFiles(TempDir::new_in(directory).expect("a directory can be made"))
    }
}

impl Files for DirectoryFiles {
    fn from(&self) -> String {
        self.0.path().display().to_string()
    }

    fn options(&self) -> Vec<String> {
        vec!["--remove".to_owned()]
    }

    fn write(&self, number: u64, bytes: &[u8]) {
        let hidden = self.0.path().join(".written");
        fs::write(&hidden, bytes).expect("there is room");
        fs::rename(hidden, self.0.path().join(name(number))).expect("renamed");
    }

    fn there(&self) -> Vec<u64> {
        let names = fs::read_dir(self.0.path()).expect("listed").map(|entry| entry.expect("listed").file_name());
        let mut numbers: Vec<u64> = names.filter_map(|name| number_of(name.to_str()?)).collect();
        numbers.sort_unstable();
        numbers
    }
}

/// Sealed files of a store, in memory.
pub struct StoreFiles {
    files: forebay_client::files::Files,
    server: Server,
    _drives: Drives,
}

const DIRECTORY: &str = "/raw";
const DRIVE_BYTES: u64 = 3 << 30;
/// The cache is for what follows closely: what waits is read from the drives.
const CACHE_BYTES: u64 = 256 << 20;

impl StoreFiles {
    /// A store with an empty directory.
    pub fn make(directory: &Path) -> StoreFiles {
        let drives = Drives::of_width(directory, (2, 1), DRIVE_BYTES, LANES);
        let server = drives.serve(CACHE_BYTES);
        let files = connect(&server);
        files.make_directory(DIRECTORY, &WriteOptions::default().owner).expect("made");
        StoreFiles { files, server, _drives: drives }
    }
}

impl Files for StoreFiles {
    fn from(&self) -> String {
        format!("forebay:{DIRECTORY}")
    }

    fn options(&self) -> Vec<String> {
        vec!["--server".to_owned(), self.server.address()]
    }

    fn write(&self, number: u64, bytes: &[u8]) {
        let path = format!("{DIRECTORY}/{}", name(number));
        let mut file = self.files.create(path, &WriteOptions::default()).expect("made");
        file.write(bytes).and_then(|()| file.close()).expect("there is room");
    }

    fn there(&self) -> Vec<u64> {
        let listing = self.files.list(DIRECTORY, Detail::Names).expect("listed");
        let names = listing.map(|entry| entry.expect("listed").name);
        names.filter_map(|name| number_of(std::str::from_utf8(&name).ok()?)).collect()
    }
}
