//! Making a store.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use forebay_format::{
    CheckpointBody, CheckpointHeader, DriveEntry, DriveLayout, DriveState, Geometry, LayoutError, SUPERBLOCK_BYTES,
    Start, Superblock, UNIT_BYTES_MAX, encode_checkpoint, place_of,
};
use forebay_media::{
    Access, AlignedBuffer, Contents, DirectIo, DriveFile, DriveKind, InspectError, MAGIC_BYTES, MediaError,
    OpenDriveError, PrepareError, create_zeroed, inspect,
};
use forebay_types::limits::{BLOCK_BYTES, DRIVES_MAX, FRAGMENT_BYTES_MAX, LANES_MAX, SHARDS_MAX};
use forebay_types::{DriveNumber, DriveUuid, StoreUuid};

use crate::config::machine_memory_bytes;

/// What a drive of a store begins with.
pub(crate) const MAGIC: [u8; MAGIC_BYTES] = *b"FOREBAY1";

/// Index memory that a fragment takes at most.
const INDEX_BYTES_PER_FRAGMENT: u64 = 64;

const MIB: u64 = 1 << 20;

/// The generation of a new store's superblock; it lies at the drive's start.
const FIRST_GENERATION: u64 = 2;
const _: () = assert!(place_of(FIRST_GENERATION) == 0);

/// How a store is to be made. What is `None` is chosen by the kind and size of the drives.
#[derive(Clone, Debug)]
pub struct InitOptions {
    /// Data shards.
    pub data: u8,
    /// Parity shards.
    pub parity: u8,
    /// Data shards of the narrowest segment that is still written when drives are missing.
    pub data_min: Option<u8>,
    /// Lanes.
    pub lanes: Option<u16>,
    /// Size of drives that are files and do not exist yet.
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
    /// Bytes of fragments that it holds, about.
    pub capacity_bytes: u64,
    /// Index memory for that many bytes of fragments of the expected size, at most.
    pub index_bytes_needed: u64,
}

/// Why a store was not made. Unless said otherwise nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// Not enough drives, or too many.
    #[error(
        "{drives} drives were given and {data}+{parity} needs at least {needed} and takes at most {DRIVES_MAX}. Nothing was written"
    )]
    DriveCount {
        /// Drives given.
        drives: usize,
        /// Data shards.
        data: u8,
        /// Parity shards.
        parity: u8,
        /// Drives needed.
        needed: usize,
    },
    /// No such width.
    #[error(
        "{data}+{parity} is no width: take at least 1 data shard, and at most {SHARDS_MAX} shards together. Nothing was written"
    )]
    Width {
        /// Data shards.
        data: u8,
        /// Parity shards.
        parity: u8,
    },
    /// A path was given twice.
    #[error("{} was given twice. Nothing was written", .0.display())]
    Twice(PathBuf),
    /// A drive holds something.
    #[error("{} holds {what}. Nothing was written. Name another drive, or say --force to destroy what it holds", path.display())]
    NotEmpty {
        /// The drive.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// A drive does not exist and its size was not said.
    #[error("{} does not exist (or is empty). Nothing was written. Say --drive-bytes SIZE to make it a file of that size", .0.display())]
    NoSize(PathBuf),
    /// A drive cannot be looked at.
    #[error(transparent)]
    Inspect(#[from] InspectError),
    /// A drive is too small.
    #[error("{}: {source}. Nothing was written", path.display())]
    Layout {
        /// The drive.
        path: PathBuf,
        /// Why.
        source: LayoutError,
    },
    /// The index would not fit in memory.
    #[error(
        "the drives hold {capacity_bytes} bytes, which are {fragments} fragments of {mean_bytes} bytes on average, and their index takes up to \
         {needed_bytes} bytes of memory; {memory_bytes} are configured. Nothing was written. Raise --index-bytes (and index-bytes of the \
         server's configuration), or say a larger --fragment-bytes-mean if your fragments are larger"
    )]
    IndexMemory {
        /// Capacity for fragments.
        capacity_bytes: u64,
        /// How many fragments.
        fragments: u64,
        /// Their mean size.
        mean_bytes: u64,
        /// Memory needed.
        needed_bytes: u64,
        /// Memory there is.
        memory_bytes: u64,
    },
    /// Something else is wrong with the options.
    #[error("{0}. Nothing was written")]
    Options(String),
    /// A file could not be made.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// A drive could not be opened.
    #[error(transparent)]
    Open(#[from] OpenDriveError),
    /// A drive could not be written.
    #[error("{}: {source}. The store was not made; run the same command again with --force once the drive works", path.display())]
    Write {
        /// The drive.
        path: PathBuf,
        /// Why.
        source: MediaError,
    },
}

/// Makes a store on `paths`. All drives are looked at before the first byte is written. `progress` is told the bytes written so far.
///
/// # Errors
/// [`InitError`].
pub fn init(paths: &[PathBuf], options: &InitOptions, progress: &mut dyn FnMut(u64)) -> Result<InitReport, InitError> {
    check_options(paths, options)?;
    let sizes = paths.iter().map(|path| drive_size(path, options)).collect::<Result<Vec<_>, _>>()?;
    let geometry = choose_geometry(paths, &sizes, options)?;
    let slots = slots_of(paths, &sizes, &geometry)?;
    let report = check_memory(&slots, geometry, options)?;
    let mut written = 0;
    for (path, size) in paths.iter().zip(&sizes) {
        if size.make {
            create_zeroed(path, size.bytes, &mut |bytes| progress(written + bytes))?;
            written += size.bytes;
        }
    }
    write_superblocks(paths, &sizes, &slots, &report)?;
    Ok(report)
}

/// What is known of a drive before anything is written.
struct DriveSize {
    bytes: u64,
    /// The file is to be made.
    make: bool,
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
    for (at, path) in paths.iter().enumerate() {
        let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
        if paths[..at].iter().any(|other| real(other) == real(path)) {
            return Err(InitError::Twice(path.clone()));
        }
    }
    if options.data_min.is_some_and(|min| min == 0 || min > data) {
        return Err(InitError::Options(format!("--data-min must be 1 to {data}")));
    }
    if options.fragment_bytes_mean == 0 {
        return Err(InitError::Options("--fragment-bytes-mean must be at least 1".to_owned()));
    }
    Ok(())
}

fn drive_size(path: &Path, options: &InitOptions) -> Result<DriveSize, InitError> {
    let block = BLOCK_BYTES as u64;
    let refuse = |what: String| InitError::NotEmpty { path: path.to_owned(), what };
    let wanted = options.drive_bytes.map(|bytes| bytes / block * block);
    let (bytes, what) = match inspect(path, &MAGIC)? {
        Contents::Missing | Contents::Empty => {
            let bytes = wanted.ok_or_else(|| InitError::NoSize(path.to_owned()))?;
            return Ok(DriveSize { bytes, make: true });
        }
        Contents::Zeroed { bytes } => (bytes, None),
        Contents::ForebayDrive { bytes } => (bytes, Some("a drive of a Forebay store".to_owned())),
        Contents::Known { what, bytes } => (bytes, Some(what)),
        Contents::Unknown { first_nonzero_offset, first_bytes, bytes } => {
            let shown: Vec<String> = first_bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            (bytes, Some(format!("unknown data (from byte {first_nonzero_offset}: {})", shown.join(" "))))
        }
    };
    if let Some(what) = what
        && !options.force
    {
        return Err(refuse(what));
    }
    let is_file = path.metadata().is_ok_and(|meta| meta.is_file());
    match wanted {
        // A file is made anew when another size is wanted and what it holds may go.
        Some(wanted) if is_file && wanted != bytes && options.force => Ok(DriveSize { bytes: wanted, make: true }),
        Some(wanted) if is_file && wanted != bytes => {
            Err(refuse(format!("{bytes} zero bytes, and --drive-bytes says {wanted}")))
        }
        _ => Ok(DriveSize { bytes: bytes / block * block, make: false }),
    }
}

fn choose_geometry(paths: &[PathBuf], sizes: &[DriveSize], options: &InitOptions) -> Result<Geometry, InitError> {
    let smallest = sizes.iter().map(|s| s.bytes).min().unwrap_or(0);
    let rotational = paths.iter().any(|path| kind_of(path) == DriveKind::Rotational);
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let lanes = match options.lanes {
        Some(lanes) if lanes == 0 || usize::from(lanes) > LANES_MAX => {
            return Err(InitError::Options(format!("--lanes must be 1 to {LANES_MAX}")));
        }
        Some(lanes) => lanes,
        // The heads of disks shall stream: few lanes. Each lane wants some slots.
        None if rotational => 1,
        None => cores.min(8).min((smallest / (256 * MIB)).max(1)) as u16,
    };
    let share = smallest / u64::from(lanes) / 32;
    let largest_slot = if rotational { 256 * MIB } else { 64 * MIB };
    let slot_bytes = options.slot_bytes.unwrap_or_else(|| previous_power_of_two(share).clamp(MIB, largest_slot));
    let unit_bytes = options.unit_bytes.unwrap_or(32 << 10);
    let data_shards_min = options.data_min.unwrap_or(options.data.div_ceil(2));
    let place = smallest / 64 / (2 * u64::from(lanes));
    let checkpoint_bytes = (place.clamp(256 << 10, 256 * MIB) / BLOCK_BYTES as u64) * BLOCK_BYTES as u64;
    let narrowest = slot_bytes / 2 * u64::from(data_shards_min);
    let geometry = Geometry {
        lanes,
        data_shards: options.data,
        parity_shards: options.parity,
        data_shards_min,
        unit_bytes,
        slot_bytes,
        checkpoint_bytes,
        fragment_bytes_max: u32::try_from(narrowest.min(FRAGMENT_BYTES_MAX as u64)).expect("bounded just now"),
    };
    let block = BLOCK_BYTES as u64;
    let blocks = u64::from(unit_bytes).is_multiple_of(block) && slot_bytes.is_multiple_of(block);
    if unit_bytes > UNIT_BYTES_MAX {
        let wrong = format!("--unit-bytes is {unit_bytes} and may be at most {UNIT_BYTES_MAX}");
        return Err(InitError::Options(wrong));
    }
    if !blocks || unit_bytes == 0 || slot_bytes < 4 * u64::from(unit_bytes) + 8 * BLOCK_BYTES as u64 {
        let wrong =
            format!("a slot of {slot_bytes} bytes with units of {unit_bytes}: both must be multiples of {BLOCK_BYTES}");
        return Err(InitError::Options(format!("{wrong}, and a slot must hold some units")));
    }
    if slot_bytes.saturating_mul(u64::from(options.data)) > 32 << 30 {
        return Err(InitError::Options(format!(
            "{} slots of {slot_bytes} bytes: a segment holds at most 32 GiB",
            options.data
        )));
    }
    Ok(geometry)
}

fn previous_power_of_two(bytes: u64) -> u64 {
    if bytes == 0 { 0 } else { 1 << bytes.ilog2() }
}

/// The kind of the drive, or of the file system that a file will lie on.
fn kind_of(path: &Path) -> DriveKind {
    DriveFile::open(path, DirectIo::Off, Access::SharedReadOnly).map_or(DriveKind::Unknown, |drive| drive.kind())
}

fn slots_of(paths: &[PathBuf], sizes: &[DriveSize], geometry: &Geometry) -> Result<Vec<u32>, InitError> {
    let plan = |(path, size): (&PathBuf, &DriveSize)| {
        DriveLayout::plan(size.bytes, geometry.lanes, geometry.slot_bytes, geometry.checkpoint_bytes)
            .map(|layout| layout.slots)
            .map_err(|source| InitError::Layout { path: path.clone(), source })
    };
    paths.iter().zip(sizes).map(plan).collect()
}

fn check_memory(slots: &[u32], geometry: Geometry, options: &InitOptions) -> Result<InitReport, InitError> {
    let raw_bytes: u64 = slots.iter().map(|slots| u64::from(*slots) * geometry.slot_bytes).sum();
    let shards = u64::from(geometry.data_shards) + u64::from(geometry.parity_shards);
    let capacity_bytes = raw_bytes / shards * u64::from(geometry.data_shards);
    let fragments = capacity_bytes / options.fragment_bytes_mean;
    let needed_bytes = fragments.saturating_mul(INDEX_BYTES_PER_FRAGMENT);
    let memory_bytes = options.index_bytes.unwrap_or_else(|| machine_memory_bytes() / 4);
    if needed_bytes > memory_bytes {
        let mean_bytes = options.fragment_bytes_mean;
        return Err(InitError::IndexMemory { capacity_bytes, fragments, mean_bytes, needed_bytes, memory_bytes });
    }
    let store = StoreUuid::from_random_bytes(random());
    Ok(InitReport { store, geometry, capacity_bytes, index_bytes_needed: needed_bytes })
}

fn write_superblocks(
    paths: &[PathBuf],
    sizes: &[DriveSize],
    slots: &[u32],
    report: &InitReport,
) -> Result<(), InitError> {
    let drives: Vec<DriveEntry> = slots
        .iter()
        .zip(sizes)
        .enumerate()
        .map(|(number, (slots, size))| DriveEntry {
            uuid: DriveUuid::from_random_bytes(random()),
            number: DriveNumber(number as u16),
            state: DriveState::Member,
            slots: *slots,
            changed: 0,
            bytes: size.bytes,
        })
        .collect();
    let created_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let nonce = u64::from_le_bytes(random());
    for (path, own) in paths.iter().zip(&drives) {
        let superblock = Superblock {
            store: report.store,
            drive: own.uuid,
            number: own.number,
            generation: FIRST_GENERATION,
            membership: 1,
            epoch: 1,
            nonce,
            clean: true,
            created_unix_s,
            geometry: report.geometry,
            history: vec![Start { epoch: 1, nonce }],
            drives: drives.clone(),
        };
        write_drive(path, own, &superblock).map_err(|source| match source {
            WriteDriveError::Open(error) => InitError::Open(error),
            WriteDriveError::Media(source) => InitError::Write { path: path.clone(), source },
        })?;
    }
    Ok(())
}

enum WriteDriveError {
    Open(OpenDriveError),
    Media(MediaError),
}

/// Writes a drive's places, the superblock last: a drive without one is no drive of a store.
fn write_drive(path: &Path, own: &DriveEntry, superblock: &Superblock) -> Result<(), WriteDriveError> {
    let drive = DriveFile::open(path, DirectIo::Auto, Access::Exclusive).map_err(WriteDriveError::Open)?;
    let write = |offset: u64, bytes: &[u8]| {
        let buffer = AlignedBuffer::copied(bytes);
        let length = buffer.len();
        drive.write_at(offset, &buffer, length).map_err(WriteDriveError::Media)
    };
    let layout = superblock.geometry.layout(own.slots);
    let blank = vec![0; SUPERBLOCK_BYTES];
    for place in 0..forebay_format::PLACES {
        write(layout.superblock_offset(place), &blank)?;
    }
    let body = CheckpointBody::default().encode();
    for lane in 0..superblock.geometry.lanes {
        let header = CheckpointHeader {
            store: superblock.store,
            drive: own.uuid,
            offset_bytes: layout.checkpoint_offset(lane, place_of(1)),
            lane,
            epoch: superblock.epoch,
            sequence: 1,
            body_bytes: 0,
            body_crc: 0,
        };
        write(layout.checkpoint_offset(lane, place_of(0)), &[0; BLOCK_BYTES])?;
        write(header.offset_bytes, &encode_checkpoint(&header, &body))?;
    }
    // Both places, the first one last: a drive of a store is known by its first bytes.
    let older = Superblock { generation: superblock.generation - 1, ..superblock.clone() };
    write(layout.superblock_offset(place_of(older.generation)), &older.encode())?;
    write(layout.superblock_offset(place_of(superblock.generation)), &superblock.encode())
}

/// Random bytes from the operating system.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random numbers");
    bytes
}
