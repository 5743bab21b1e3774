//! `forebay record` as a library: accepted events become stream files, and only files that came back from
//! the disk as they were written let the store forget their events.
//!
//! Each stream has a directory, each file a sidecar:
//!
//! ```text
//! DIR/<stream>/run00001920_000000.raw        events of one run and format, ascending, with what the format puts around them
//! DIR/<stream>/run00001920_000000.raw.json   size, adler32, events: the file is complete and verified
//! DIR/<stream>/.forebay-record.journal       what was announced and released
//! DIR/<stream>/*.bad                         files that did not come back as they were written
//! ```
//!
//! What it promises:
//! - An event is released for a stream when, and only when, it is in a file of that stream that is durable,
//!   was read back past the page cache, compared (size, Adler-32, XXH3, each event) and announced by a
//!   durable sidecar.
//! - No file is ever replaced, and none is removed or renamed that the journal does not know.
//! - Killed at any point and started again, each accepted event ends up in exactly one announced file of
//!   each of its streams, also when announced files are moved away in the meantime.
//! - No accepted event is skipped: one without some of its sources is marked incomplete, one that cannot
//!   be put together is kept as its [`parts`].
//!
//! What it does not do: ship files anywhere. And it trusts its journal: a directory with files and without a
//! journal is refused, and files that are not in the journal are left alone.
//!
//! [`machine`] decides, without clock, files or sockets; `driver` does what it says.

mod config;
mod digest;
mod directory;
mod driver;
mod error;
mod find;
pub mod journal;
pub mod machine;
mod names;
mod planted;
mod read_back;
mod recorder;
mod sidecar;
mod store;

pub use config::{Counters, Counts, FileHook, Mode, RecorderConfig, RecorderControl, RecorderProgress, ShippedFile};
pub use digest::{Digest, Digester};
pub use directory::DirectoryError;
pub use error::RecorderError;
pub use find::{EventInFile, EventPlace, FileState, FoundInFiles, find_event};
pub use forebay_mover::events::parts;
pub use names::{Entry, FileName, JOURNAL_NAME, NotAFileName};
#[cfg(feature = "planted")]
pub use planted::{Planted, plant};
pub use read_back::{ReadMode, read_back_bytes};
pub use recorder::{run, run_with};
pub use sidecar::{SIDECAR_BYTES_MAX, Sidecar, SidecarError};
pub use store::{AcceptedStore, StoreError};
