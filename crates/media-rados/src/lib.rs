//! What slots lie on: objects in the pools of a Ceph cluster, by librados (`docs/ceph.md`).
//!
//! A store has a namespace of its own in two pools. What lies before the slots of a drive (superblocks, checkpoints) is cut into objects of a replicated pool,
//! which take writes anywhere and compare, with each write, who owns the store. Slots are objects of an erasure-coded pool, to which whole flushes are
//! appended, each in one operation (`slots.rs`). Ceph codes over hosts, rebuilds and scrubs: the engine stands on one drive, with one data shard and no parity.
//!
//! Empty without the feature `link`, which needs Debian's `librados-dev`, but for what has no I/O.

#[cfg(feature = "link")]
mod cluster;
#[cfg(feature = "link")]
mod drive;
#[cfg(feature = "link")]
mod error;
#[cfg(feature = "link")]
mod media;
#[cfg(feature = "link")]
mod operation;
#[cfg(feature = "link")]
mod owner;
#[cfg(feature = "link")]
mod ownership;
mod planted;
mod slots;
#[cfg(feature = "link")]
mod sys;
#[cfg(feature = "link")]
mod watch;

#[cfg(feature = "link")]
pub use cluster::{Cluster, Fullness, Pool};
#[cfg(feature = "link")]
pub use drive::{Layout, OpenRadosError, Pools, RadosDrive};
#[cfg(feature = "link")]
pub use error::RadosError;
#[cfg(feature = "link")]
pub use media::RadosMedia;
#[cfg(feature = "link")]
pub use owner::{Holder, OwnerToken, Owners};
#[cfg(feature = "link")]
pub use ownership::{NotOwned, Owned, Ownership, Progress, own};
pub use planted::Planted;
#[cfg(feature = "planted")]
pub use planted::plant;
pub use slots::{Birth, ExtentName, ReadPiece, SlotMap, WriteTarget};
