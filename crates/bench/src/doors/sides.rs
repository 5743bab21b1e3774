//! Stock XRootD servers that differ in their storage system alone: a store, a directory in the same memory, and XRootD's own proxy before the server of that directory.

use std::fs;
use std::path::{Path, PathBuf};

use forebay_client::files::WriteOptions;

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

/// A stock XRootD server, and what is behind it.
pub struct Side {
    gate: XRootDServer,
    behind: Behind,
}

enum Behind {
    /// The server of a store, on these drives.
    Store(Server, #[expect(dead_code, reason = "they are there as long as their server")] Drives),
    /// The server's own directory.
    Directory,
    /// Another stock server, of that number, over this directory.
    Origin(u32, PathBuf),
}

/// All of them, with the same files in them.
pub struct Sides {
    /// Before a store of 4+1.
    pub store: Side,
    /// Over a directory.
    pub plain: Side,
    /// Before the server over the directory: two servers pass all bytes on, as with the store.
    pub proxy: Side,
    /// So long are all files that are read or written at once together.
    pub payload_bytes: u64,
}

impl Side {
    fn new(lines: &str, behind: Behind) -> Side {
        // Both protocols at one port, as in the configuration that is shipped.
        let lines = format!("{lines}\nxrd.protocol http libXrdHttp.so");
        let gate = XRootDServer::start_with(&lines).expect("needs xrootd-server: `make deps` installs it");
        Side { gate, behind }
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
        let behind = match &self.behind {
            Behind::Store(server, _) => server.cpu_seconds(),
            Behind::Directory => 0.0,
            Behind::Origin(process, _) => cpu_seconds_of(*process),
        };
        cpu_seconds_of(self.gate.process()) + behind
    }

    /// The store's server, if there is one.
    pub fn server(&self) -> Option<&Server> {
        match &self.behind {
            Behind::Store(server, _) => Some(server),
            Behind::Directory | Behind::Origin(..) => None,
        }
    }

    /// Puts another file of the same bytes in the place of one of a store, past the server before it, which then knows nothing of it.
    fn renew(&self, name: &str, source: &Path) {
        let Behind::Store(server, _) = &self.behind else { return };
        let (files, path) = (connect(server), format!("/{name}"));
        files.remove(&path).expect("removed");
        let mut file = files.create(&path, &WriteOptions::default()).expect("made");
        file.write(&fs::read(source).expect("it was made")).expect("there is room");
        file.close().expect("durable");
    }

    /// Takes a file away that has to have so many bytes.
    ///
    /// # Panics
    /// When it has not.
    pub fn remove(&self, name: &str, bytes: u64) {
        let length = match &self.behind {
            Behind::Store(server, _) => {
                let files = connect(server);
                let length = files.stat(format!("/{name}")).expect("it was written").length().expect("it is known");
                files.remove(format!("/{name}")).expect("removed");
                length
            }
            Behind::Directory => remove_file(&self.gate.path(name)),
            Behind::Origin(_, directory) => remove_file(&directory.join(name)),
        };
        assert_eq!(length, bytes, "{name} is there, whole");
    }
}

/// Its length.
fn remove_file(path: &Path) -> u64 {
    let length = fs::metadata(path).expect("it was written").len();
    fs::remove_file(path).expect("removed");
    length
}

impl Sides {
    /// Starts them.
    pub fn start(directory: &Path, prefix: &Prefix, plain_lines: &str, payload_bytes: u64) -> Sides {
        // Two sets of files that are read, one that is written, and as much again several times that is gone and was not cleared away yet.
        let drive_bytes = (payload_bytes * 9 / u64::from(DATA)).next_multiple_of(64 << 20);
        let drives = Drives::of_width(directory, (DATA, PARITY), drive_bytes, LANES);
        // A file lies in one of the two lanes, which have half of the cache each: whatever is read fits there, as all of the directory does in memory.
        let server = drives.serve(payload_bytes * 5);
        let (plugin, address) = (prefix.plugin(), server.address());
        // As in the configuration that is shipped.
        let shipped = "xrootd.chksum max 64 adler32 crc32c\nofs.persist auto hold 0";
        let lines = format!("ofs.osslib {plugin} {address}\nofs.ckslib * {plugin} {address}\n{shipped}");
        let store = Side::new(&lines, Behind::Store(server, drives));
        let plain = Side::new(&format!("{plain_lines}\n{shipped}"), Behind::Directory);
        let origin = plain.gate.address("").replace("root://", "");
        let lines = format!("ofs.osslib libXrdPss.so\npss.origin {}", origin.trim_end_matches('/'));
        let proxy = Side::new(&lines, Behind::Origin(plain.gate.process(), plain.gate.path("")));
        Sides { store, plain, proxy, payload_bytes }
    }

    /// The file of the directory that is the source of what is written.
    pub fn source(&self, streams: usize, stream: usize) -> PathBuf {
        self.plain.gate.path(&read_name(streams, stream))
    }

    /// Bytes of each file of so many.
    pub fn file_bytes(&self, streams: usize) -> u64 {
        self.payload_bytes / streams as u64
    }

    /// Of so many files that are read, as [`Side::renew`].
    pub fn renew(&self, side: &Side, streams: usize) {
        (0..streams).for_each(|stream| side.renew(&read_name(streams, stream), &self.source(streams, stream)));
    }

    /// Has the files that are read written to store and directory, by the doors: a part that reads them then finds them in the caches, whatever was written before it.
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
