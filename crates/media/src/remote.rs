//! A drive that is no file and no device of this machine.

use std::io;
use std::sync::Arc;

use forebay_types::{DriveNumber, Time};

use crate::{AlignedBuffer, Licence, Media, MediaError};

/// How what a remote drive stands on is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteReport {
    /// In its own words: `HEALTH_OK`.
    pub health: Option<String>,
    /// What is wrong, each in its own words.
    pub checks: Vec<String>,
    /// Bytes that may still be stored.
    pub available_bytes: Option<u64>,
    /// Bytes that are.
    pub stored_bytes: Option<u64>,
    /// When it was asked last, and answered.
    pub asked_at: Option<Time>,
}

/// The one drive of a store that stands on something that protects what it holds by itself, and that several servers reach.
pub trait RemoteDrive: Send + Sync {
    /// What operators know it by.
    fn name(&self) -> String;

    /// Its size, whole blocks.
    fn bytes(&self) -> u64;

    /// What a flush should be a multiple of, in bytes; whole blocks.
    fn flush_multiple_bytes(&self) -> usize;

    /// Reads before the slots, and waits for it.
    ///
    /// # Errors
    /// [`MediaError`].
    fn read_at(&self, offset_bytes: u64, buffer: &mut AlignedBuffer, bytes: usize) -> Result<(), MediaError>;

    /// Writes before the slots, durably, and waits for it.
    ///
    /// # Errors
    /// [`MediaError`].
    fn write_at(&self, offset_bytes: u64, buffer: &AlignedBuffer, bytes: usize) -> Result<(), MediaError>;

    /// Until when this server may answer what it is asked of it.
    fn licence(&self) -> Arc<Licence>;

    /// How what it stands on is, as far as it was asked lately. Nothing is waited for.
    fn report(&self) -> RemoteReport;

    /// A lane's way to it, as the drive of this number.
    ///
    /// # Errors
    /// When the process may have no more descriptors.
    fn media(self: Arc<Self>, number: DriveNumber) -> io::Result<Box<dyn Media + Send>>;
}
