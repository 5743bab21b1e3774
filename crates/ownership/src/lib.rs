//! Drives what decides who owns a store that several servers reach (`forebay_takeover`): [`own`] carries out the steps of who would own it, [`Pulse`] shows that an
//! owner lives.
//!
//! For a store of files that several machines mount, what the steps do is here too ([`SharedFiles`]): an owner file beside the first drive, a lock, and a fencing
//! command that the operator gives. `docs/ceph.md`, "Files on a mounted file system", says what rests on what.

mod command;
mod files;
mod place;
mod process;
mod pulse;
mod record;
mod wait;

pub use command::{FenceCommand, FenceError};
pub use files::{FilesOwnership, LastOwner, Progress, SharedFiles};
pub use place::OwnerFileError;
pub use pulse::{Beat, Pulse};
pub use record::{Holder, RecordError};
pub use wait::{NotOwned, own};
