//! Making a store.

mod add;
mod error;
mod files;
mod geometry;
mod look;
mod remote;
mod write;

use std::path::PathBuf;

pub(crate) use add::{AddedDrive, prepare_drive};
pub use error::InitError;
use forebay_format::Geometry;
use forebay_media::{MAGIC_BYTES, given_twice};
use forebay_types::StoreUuid;
use forebay_types::limits::{DRIVES_MAX, SHARDS_MAX};
pub(crate) use remote::RemoteGeometry;

use crate::profile::Profile;

/// What a drive of a store begins with.
pub(crate) const MAGIC: [u8; MAGIC_BYTES] = *b"FOREBAY1";

/// How a store is to be made. What is `None` is chosen by the kind and size of the drives.
#[derive(Clone, Debug)]
pub struct InitOptions {
    /// Data shards.
    pub data: u8,
    /// Parity shards.
    pub parity: u8,
    /// Data shards of the narrowest segment that is still written when drives are missing.
    pub data_min: Option<u8>,
    /// What the drives are; what the operating system says of them when not said.
    pub drive_kind: Option<Profile>,
    /// Lanes.
    pub lanes: Option<u16>,
    /// Size of drives that are files; one that exists has this size, or gets it when what it holds may go.
    pub drive_bytes: Option<u64>,
    /// Size of a slot.
    pub slot_bytes: Option<u64>,
    /// Size of a stripe unit.
    pub unit_bytes: Option<u32>,
    /// Whatever a drive holds may be destroyed.
    pub force: bool,
    /// Memory that `serve` will have for the index; a quarter of the machine's when not said.
    pub index_bytes: Option<u64>,
    /// The mean size of fragments that is expected, in bytes.
    pub fragment_bytes_mean: u64,
}

impl InitOptions {
    /// `data` + `parity`, everything else chosen.
    pub fn new(data: u8, parity: u8) -> Self {
        InitOptions {
            data,
            parity,
            data_min: None,
            drive_kind: None,
            lanes: None,
            drive_bytes: None,
            slot_bytes: None,
            unit_bytes: None,
            force: false,
            index_bytes: None,
            fragment_bytes_mean: 10 << 10,
        }
    }
}

/// The store that was made.
#[derive(Clone, Debug)]
pub struct InitReport {
    /// Its UUID.
    pub store: StoreUuid,
    /// How it is laid out.
    pub geometry: Geometry,
    /// What its drives are, by which lanes and slots were chosen where nothing else was said.
    pub drive_kind: Profile,
    /// Bytes of fragments that all of its drives hold, about.
    pub capacity_bytes: u64,
    /// Of these, what there is room for also when the drives fail that may. A server counts that without the reserve of each lane.
    pub capacity_after_losses_bytes: u64,
    /// Bytes of fragments in a segment, about.
    pub segment_bytes: u64,
    /// Index memory for that many bytes of fragments of the expected size, at most.
    pub index_bytes_needed: u64,
    /// Drives that were too large to be read whole.
    pub sampled: Vec<Sampled>,
    /// What an operator should know.
    pub warnings: Vec<String>,
}

/// A drive of which it is not known that every byte was zero.
#[derive(Clone, Debug)]
pub struct Sampled {
    /// The drive.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Bytes that were read: its start, its end, and places between.
    pub read_bytes: u64,
}

/// How far the making of a store is.
#[derive(Clone, Copy, Debug)]
pub enum InitProgress {
    /// What the drives hold is looked at.
    Looking {
        /// Bytes read.
        read_bytes: u64,
        /// Bytes that will be, as far as is known.
        total_bytes: u64,
    },
    /// Files are written with zeros.
    Zeroing {
        /// Bytes written.
        written_bytes: u64,
        /// Bytes that will be.
        total_bytes: u64,
    },
}

/// Makes a store on `paths`. All drives are looked at before the first byte is written. When it fails, the files that it made are removed
/// again.
///
/// # Errors
/// [`InitError`].
pub fn init(
    paths: &[PathBuf],
    options: &InitOptions,
    progress: &mut dyn FnMut(InitProgress),
) -> Result<InitReport, InitError> {
    check_options(paths, options)?;
    let drives = look::look(paths, options, progress)?;
    let profile = options.drive_kind.unwrap_or_else(|| Profile::of(drives.iter().map(|drive| drive.kind)));
    let geometry = geometry::choose_geometry(&drives, profile, options)?;
    let slots = geometry::slots_of(&drives, &geometry)?;
    let mut report = geometry::check_memory(&slots, geometry, profile, options)?;
    files::check_space(&drives)?;
    let mut made = files::Made::default();
    match files::make(&drives, &mut made, progress)
        .and_then(|()| write::write_superblocks(&drives, &slots, &report, &mut made.begun))
    {
        Ok(()) => {
            report.sampled = drives.iter().filter_map(|drive| drive.sampled.clone()).collect();
            report.warnings = made.warnings();
            Ok(report)
        }
        Err(cause) => Err(InitError::Undone { left: made.undo(&drives), cause: Box::new(cause) }),
    }
}

fn check_options(paths: &[PathBuf], options: &InitOptions) -> Result<(), InitError> {
    let InitOptions { data, parity, .. } = *options;
    let needed = usize::from(data) + usize::from(parity);
    if data == 0 || needed > SHARDS_MAX {
        return Err(InitError::Width { data, parity });
    }
    if paths.len() < needed || paths.len() > DRIVES_MAX {
        return Err(InitError::DriveCount { drives: paths.len(), data, parity, needed });
    }
    if let Some((first, second)) = given_twice(paths) {
        return Err(InitError::Twice { first: first.to_owned(), second: second.to_owned() });
    }
    if options.data_min.is_some_and(|min| min == 0 || min > data) {
        return Err(InitError::Options(format!("--data-min must be 1 to {data}")));
    }
    if options.fragment_bytes_mean == 0 {
        return Err(InitError::Options("--fragment-bytes-mean must be at least 1".to_owned()));
    }
    Ok(())
}

/// Random bytes from the operating system.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random numbers");
    bytes
}
