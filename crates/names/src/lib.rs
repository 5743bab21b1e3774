//! The name space: which number a name has, and what is known of it besides its bytes.
//!
//! A machine without I/O, as the engine's. It takes requests with the time and gives answers, and bytes that are to be appended to a journal; an answer counts when its
//! part of the journal is durable. From time to time it writes a snapshot, slice by slice, while requests go on, and a new journal begins with it. A start reads the newest
//! whole snapshot and the journals from there on ([`Loader`]). `docs/files.md` says why so.
//!
//! Beside names it keeps records for others, by a key, in the same journal and snapshots, and does not look into them.
//!
//! It knows nothing of lanes, connections or permissions: who may do what, a mount's kernel decides by the modes and owners that are kept here. The bytes of
//! files, how long they are and when they were written, are the lanes'.

mod change;
mod entries;
mod error;
mod load;
mod names;
mod node;
mod numbers;
mod snapshot;
#[cfg(test)]
mod tests;

pub use change::{FRAME_BYTES_MAX, JournalError, KEPT_BYTES_MAX};
pub use error::NamesError;
pub use load::{Loader, Loss};
pub use names::{Done, Entry, Found, Made, Names, Output, Rename};
pub use numbers::{KEPT_ORDINALS, ROOT_ORDINAL, journal_number, root_number, snapshot_number};
