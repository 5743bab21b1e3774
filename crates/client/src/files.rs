//! Files with paths: a blocking layer over [`Client`], for programs that want names and bytes.
//!
//! [`Files`] looks names up and changes them, [`FileWriter`] writes behind, [`FileReader`] reads ahead. What decides is in machines without I/O and clock, for
//! whoever has other connections ([`Walk`], [`WriteBehind`], [`ReadAhead`]).
//!
//! ```no_run
//! use std::io::Write;
//!
//! use forebay_client::ClientConfig;
//! use forebay_client::files::{Files, WriteOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let files = Files::connect(ClientConfig::new("127.0.0.1:7420", "example"))?;
//! let mut file = files.create("/run17/raw.dat", &WriteOptions::default())?;
//! file.write_all(b"what the detector said")?;
//! file.close()?; // durable, and sealed: it never changes again
//! assert_eq!(files.stat("/run17/raw.dat")?.length(), Some(22));
//! # Ok(())
//! # }
//! ```
//!
//! # What it promises
//! - A change is durable when the call that made it is over: of names each call, of bytes [`FileWriter::sync`] and [`FileWriter::close`].
//! - Bytes that are read have the checksum that they were sent with, or the call says that they do not.
//! - Every call survives a restart of the server. What must not be done twice is not: the error says so then.
//!
//! # What it does not do
//! It has no thread: writes leave and bytes arrive while one of its methods runs. All that one [`Files`] gave share its connections: they may be moved to
//! other threads, and wait for each other there. Threads that are to work at the same time have a [`Files`] each.

mod change;
mod error;
mod escape;
mod list;
mod look;
mod opening;
mod patience;
mod read;
mod reader;
mod walk;
mod write;
mod writer;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_protocol::lane_of;
use forebay_types::FileNumber;

pub use forebay_protocol::{FileInfo, Node};

pub use error::FileError;
pub use escape::escape;
pub use list::{Detail, ListedName, Listing};
pub use look::{FileStatus, length_of};
pub use read::{ReadAhead, ReadFailure, Taken};
pub use reader::{FileReader, ReadOptions};
pub use walk::{LINKS_MAX, Walk, WalkError, WalkStep};
pub use write::{WriteBehind, WriteConfig, WriteFailure};
pub use writer::{FileWriter, Owner, WriteOptions};

use crate::blocks::Blocks;
use crate::client::Client;
use crate::config::{ClientConfig, ServerInfo};
use crate::error::ClientError;
use crate::session::{Answer, Request};
use opening::Openings;

/// The lane of all names.
const NAMES_LANE: u16 = 0;

/// The files of a store. Clones share one client.
#[derive(Clone)]
pub struct Files {
    core: Arc<Mutex<Core>>,
}

/// What all files of a client have in common.
struct Core {
    client: Client,
    /// Memory for what is written.
    written: Blocks,
    openings: Openings,
    /// The next change of a name.
    next_change: u64,
    /// It never changes; asked for when it is needed.
    root: Option<FileNumber>,
}

impl Files {
    /// Connects as [`Client::connect`] does.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect(config: ClientConfig) -> Result<Files, ClientError> {
        Client::connect(config).and_then(Files::new)
    }

    /// Over a client that is connected.
    ///
    /// # Errors
    /// When the system has no random numbers: a client needs one of its own.
    pub fn new(client: Client) -> Result<Files, ClientError> {
        let number = getrandom::u64().map_err(|error| ClientError::System {
            address: client.address(),
            source: std::io::Error::other(format!("no random numbers: {error}")),
        })?;
        let written = client.blocks(writer::WRITTEN_BLOCKS_MAX);
        let core = Core { client, written, openings: Openings::new(number), next_change: 1, root: None };
        Ok(Files { core: Arc::new(Mutex::new(core)) })
    }

    /// What the server said of itself in the last greeting.
    pub fn info(&self) -> ServerInfo {
        self.lock().client.info().clone()
    }

    /// Uses the client underneath, for what it does besides files.
    pub fn with_client<T>(&self, with: impl FnOnce(&mut Client) -> T) -> T {
        with(&mut self.lock().client)
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        // Nothing of what it guards is left half changed by a panic of a caller's.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Core {
    fn lane(&self, file: FileNumber) -> u16 {
        lane_of(file.key(), self.client.info().lanes)
    }

    fn ask(&mut self, path: &str, lane: u16, request: Request) -> Result<Answer, FileError> {
        self.client.ask_one(lane, request).map_err(|error| FileError::client(path, error))
    }
}
