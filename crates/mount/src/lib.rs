//! The files of a store as a mounted file system, by FUSE.
//!
//! [`mount`] connects and mounts; [`Mounted`] stands until somebody unmounts it. A thread takes the kernel's requests from `/dev/fuse` and hands each to the thread of
//! the machine, which has the client; what was read goes to the kernel by further threads, as that is a copy. Neither of the first two waits for a lock or for an answer, however
//! many requests are on their way.
//!
//! # What it promises
//! - What `fsync` and `close` say to be written is durable, names are so when they are made. `docs/mount.md` says what is and what is not as in a local file system.
//! - No request waits longer than [`MountConfig::patience`] for a server that is away, and no unmount waits for one.
//! - When the process dies the kernel tells whoever uses the mount that it is gone; nobody hangs.
//!
//! # What it does not do
//! It decides nothing about permissions: the kernel does (`default_permissions`). Locks hold within one mount.

mod attributes;
mod calls;
mod directories;
mod driver;
mod errors;
mod file;
#[expect(
    clippy::disallowed_methods,
    reason = "what takes the kernel's requests: the times that it leaves to the file system"
)]
mod kernel;
mod machine;
mod memory;
mod names;
mod read;
#[expect(clippy::disallowed_methods, reason = "what sets the kernel: its files")]
mod read_ahead;
#[expect(clippy::disallowed_methods, reason = "what gives the kernel what was read: its threads")]
mod replies;
mod requests;
mod seal;
#[expect(clippy::disallowed_methods, reason = "what drives the machine: its threads")]
mod session;
#[cfg(test)]
mod tests;

pub use session::{MountConfig, MountError, Mounted, ServeError, Unmounter, mount};
