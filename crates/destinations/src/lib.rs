//! Permanent storage that the mover reaches over the network: XRootD (`root://`), WebDAV (`https://`, `http://`) and S3 (`s3://`).
//!
//! Each of them does what the mover's machines ask for ([`forebay_mover::endpoint::Destination`]) and decides nothing. None believes a return code of its own: what is there is
//! asked for by size and checksum, and read back whole where the server cannot tell.

mod access;
mod address;
mod command;
mod door;
mod process;
mod runtime;
mod s3;
mod tls;
mod webdav;
mod words;
mod xrootd;

use std::sync::Arc;

use forebay_mover::endpoint::{Destination, Registry};

pub use access::{Access, Secret};
pub use address::{Address, AddressError, Scheme};
pub use command::{CommandError, OtherCommand};
pub use door::Door;

/// Why a destination cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file with a token, a key or certificates, or what stands in it.
    #[error("{0}")]
    Access(String),
    /// What is needed to reach it is not installed, or not built in.
    #[error("{0}")]
    Missing(String),
}

/// Makes a destination ready. Nothing is asked of the server yet: one that is away is waited for.
///
/// # Errors
/// What is missing on this side.
pub fn open(address: &Address, access: &Access) -> Result<Arc<dyn Destination>, OpenError> {
    match address.scheme() {
        Scheme::XRootD => xrootd::open(address, access),
        Scheme::S3 => Ok(Arc::new(s3::S3Destination::new(address, access)?)),
        Scheme::Web => Ok(Arc::new(webdav::WebDestination::new(address, access)?)),
    }
}

/// Makes a service ready at which files are registered, by its `http` address. Nothing is asked of it yet.
///
/// # Errors
/// What is no such address, and what is missing on this side.
pub fn open_registry(url: &str, access: &Access) -> Result<Arc<dyn Registry>, OpenError> {
    Ok(Arc::new(webdav::WebRegistry::new(url, access)?))
}
