//! Two stock XRootD servers that differ in their storage system alone: a store, and a directory in the same memory.

use std::fs;
use std::path::{Path, PathBuf};

use super::clients::{XRDCP, all};
use super::prefix::Prefix;
use crate::files::connect;
use crate::moving::noise;
use crate::moving::xrootd::XRootDServer;
use crate::process::{Drives, Server, cpu_seconds_of};

const DATA: u8 = 4;
const PARITY: u8 = 1;
const LANES: u16 = 2;
/// So many files are read or written at once.
pub const STREAMS: [usize; 2] = [1, 8];

/// The name of a file that is read, by how many there are.
pub fn read_name(streams: usize, stream: usize) -> String {
    format!("read{streams}-{stream}")
}

/// The name of a file that is written.
pub fn written_name(stream: usize) -> String {
    format!("written{stream}")
}

/// A stock XRootD server, and the store behind it if it is not a directory.
pub struct Side {
    gate: XRootDServer,
    store: Option<(Server, Drives)>,
}

/// Both, with the same files in them.
pub struct Sides {
    /// Before a store of 4+1.
    pub store: Side,
    /// Over a directory.
    pub plain: Side,
    /// So long are all files that are read or written at once together.
    pub payload_bytes: u64,
}

impl Side {
    fn new(lines: &str, store: Option<(Server, Drives)>) -> Side {
        // As in the configuration that is shipped; both protocols at one port.
        let lines = format!(
            "{lines}\nxrootd.chksum max 64 adler32 crc32c\nofs.persist auto hold 0\nxrd.protocol http libXrdHttp.so"
        );
        let gate = XRootDServer::start_with(&lines).expect("needs xrootd-server: `make deps` installs it");
        Side { gate, store }
    }

    /// Where `xrdcp` finds a file.
    pub fn root(&self, name: &str) -> String {
        self.gate.address(&format!("/{name}"))
    }

    /// Where `curl` finds it.
    pub fn http(&self, name: &str) -> String {
        self.gate.address(name).replace("root://", "http://")
    }

    /// User and system time of the servers until now, in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        cpu_seconds_of(self.gate.process()) + self.server().map_or(0.0, Server::cpu_seconds)
    }

    /// The store's server, if there is one.
    pub fn server(&self) -> Option<&Server> {
        self.store.as_ref().map(|(server, _)| server)
    }

    /// Takes a file away that has to have so many bytes.
    ///
    /// # Panics
    /// When it has not.
    pub fn remove(&self, name: &str, bytes: u64) {
        let length = match self.server() {
            Some(server) => {
                let files = connect(server);
                let length = files.stat(format!("/{name}")).expect("it was written").length().expect("it is known");
                files.remove(format!("/{name}")).expect("removed");
                length
            }
            None => {
                let path = self.gate.path(name);
                let length = fs::metadata(&path).expect("it was written").len();
                fs::remove_file(path).expect("removed");
                length
            }
        };
        assert_eq!(length, bytes, "{name} is there, whole");
    }
}

impl Sides {
    /// Starts both.
    pub fn start(directory: &Path, prefix: &Prefix, plain_lines: &str, payload_bytes: u64) -> Sides {
        // Two sets of files that are read, one that is written, and as much again several times that is gone and was not cleared away yet.
        let drive_bytes = (payload_bytes * 7 / u64::from(DATA)).next_multiple_of(64 << 20);
        let drives = Drives::of_width(directory, (DATA, PARITY), drive_bytes, LANES);
        let server = drives.serve(payload_bytes * 5 / 2);
        let (plugin, address) = (prefix.plugin(), server.address());
        let lines = format!("ofs.osslib {plugin} {address}\nofs.ckslib * {plugin} {address}");
        let store = Side::new(&lines, Some((server, drives)));
        let plain = Side::new(plain_lines, None);
        Sides { store, plain, payload_bytes }
    }

    /// The file of the directory that is the source of what is written.
    pub fn source(&self, streams: usize, stream: usize) -> PathBuf {
        self.plain.gate.path(&read_name(streams, stream))
    }

    /// Bytes of each file of so many.
    pub fn file_bytes(&self, streams: usize) -> u64 {
        self.payload_bytes / streams as u64
    }

    /// Has the files that are read written to both, by the doors: a part that reads them then finds them in the caches, whatever was written before it.
    pub fn fill(&self) {
        for streams in STREAMS {
            let bytes = noise(streams as u64, self.file_bytes(streams) as usize);
            for stream in 0..streams {
                self.plain.gate.put(&read_name(streams, stream), &bytes);
            }
            let put = |stream| XRDCP.put(&self.store, &self.source(streams, stream), &read_name(streams, stream));
            all((0..streams).map(put));
        }
    }
}
