//! The mover: from the buffer to permanent storage, with proof before anything is freed.
//!
//! [`custody`] says what is done with one file and on whose word its source lets it go; [`machine`] does so for all routes, in order and within limits. Both are
//! without I/O, clock, threads and random numbers. What drives them: a journal, sources and destinations.

pub mod about;
pub mod audit;
pub mod custody;
pub mod driver;
pub mod endpoint;
pub mod events;
pub mod journal;
pub mod local;
pub mod machine;
pub mod metrics;
pub mod monitor;
mod name;
mod planted;
pub mod recipe;
pub mod sidecar;
pub mod status;
pub mod store;
mod sums;

pub use name::{NAME_BYTES_MAX, Name, NameError};
pub use planted::Planted;
#[cfg(feature = "planted")]
pub use planted::plant;
pub use sums::{Summer, Sums, Told};
