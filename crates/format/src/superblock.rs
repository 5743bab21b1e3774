//! The superblock: which store and drive this is, who belongs to the store, and how it is laid out.

use forebay_types::limits::{BLOCK_BYTES, DRIVES_MAX, FRAGMENT_BYTES_MAX, LANES_MAX};
use forebay_types::{DriveNumber, DriveUuid, StoreUuid};

use crate::FormatError;
use crate::error::{ensure, within};
use crate::field::{Kind, check_width, header_layout, layout, prefix};
use crate::layout::{DriveLayout, SUPERBLOCK_BYTES};
use crate::version::{self, FORMAT_VERSION, FORMAT_VERSION_WITH_FILES, ProgramVersion};

/// Starts that a superblock remembers.
pub const HISTORY_MAX: usize = 32;

/// The largest stripe unit.
pub const UNIT_BYTES_MAX: u32 = 16 << 20;

const WHAT: &str = "superblock";

pub(crate) const KIND: Kind = Kind { what: WHAT, magic: *b"FOREBAY1", flags_known: 0 };

header_layout!(
    /// The fixed part.
    superblock, 256 {
        NUMBER: u16 = 56;
        CLEAN: u8 = 58;
        DATA_SHARDS: u8 = 59;
        PARITY_SHARDS: u8 = 60;
        DATA_SHARDS_MIN: u8 = 61;
        LANES: u16 = 62;
        GENERATION: u64 = 64;
        MEMBERSHIP: u64 = 72;
        EPOCH: u64 = 80;
        NONCE: u64 = 88;
        CREATED_UNIX_S: u64 = 96;
        SLOT_BYTES: u64 = 104;
        CHECKPOINT_BYTES: u64 = 112;
        UNIT_BYTES: u32 = 120;
        FRAGMENT_BYTES_MAX: u32 = 124;
        HISTORY_COUNT: u16 = 128;
        DRIVE_COUNT: u16 = 130;
        PROGRAM_MAJOR: u16 = 132;
        PROGRAM_MINOR: u16 = 134;
        PROGRAM_PATCH: u16 = 136;
        ROOM_2: [u8; 118] = 138;
    }
);

layout!(
    /// One start in the history.
    start, 16 {
        EPOCH: u64 = 0;
        NONCE: u64 = 8;
    }
);

layout!(
    /// One drive in the list.
    drive_entry, 48 {
        UUID: DriveUuid = 0;
        NUMBER: u16 = 16;
        STATE: u8 = 18;
        ROOM: [u8; 1] = 19;
        SLOTS: u32 = 20;
        CHANGED: u64 = 24;
        DRIVE_BYTES: u64 = 32;
        ROOM_2: [u8; 8] = 40;
    }
);

pub(crate) const HISTORY_OFFSET: usize = superblock::BYTES;
pub(crate) const DRIVES_OFFSET: usize = HISTORY_OFFSET + HISTORY_MAX * start::BYTES;
const _: () = assert!(DRIVES_OFFSET + DRIVES_MAX * drive_entry::BYTES <= SUPERBLOCK_BYTES);

/// How a store is laid out, the same on all of its drives and for its whole life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Lanes.
    pub lanes: u16,
    /// Data shards of a segment at full width.
    pub data_shards: u8,
    /// Parity shards of a segment.
    pub parity_shards: u8,
    /// Data shards that new segments have at least when drives are missing.
    pub data_shards_min: u8,
    /// Bytes of a stripe unit.
    pub unit_bytes: u32,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// Bytes of one place for a checkpoint of a lane.
    pub checkpoint_bytes: u64,
    /// Bytes of the largest fragment that the store takes.
    pub fragment_bytes_max: u32,
}

/// A writable start of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Its number.
    pub epoch: u64,
    /// Its random number: two starts with one epoch and different nonces are two histories.
    pub nonce: u64,
}

/// Whether a drive belongs to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DriveState {
    /// It holds what it should.
    Member = 1,
    /// It failed, was away or was replaced: nothing on it counts until it is admitted again.
    Out = 2,
}

impl DriveState {
    fn from_number(number: u8) -> Result<Self, FormatError> {
        match number {
            1 => Ok(DriveState::Member),
            2 => Ok(DriveState::Out),
            found => Err(FormatError::Limit { what: "state of a drive", found: u64::from(found), limit: 2 }),
        }
    }
}

/// A drive of the store, present or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveEntry {
    /// Which it is.
    pub uuid: DriveUuid,
    /// Its number in the store.
    pub number: DriveNumber,
    /// Whether it belongs.
    pub state: DriveState,
    /// Its slots.
    pub slots: u32,
    /// The membership version that changed its state last.
    pub changed: u64,
    /// Bytes of the whole drive.
    pub bytes: u64,
}

/// The superblock of one drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The format version of the store: what it was made or upgraded with, whatever newer program wrote this superblock.
    pub format_version: u16,
    /// The program of the newest writable start, or the one that made the store; not known when all zeros.
    pub program: ProgramVersion,
    /// The store.
    pub store: StoreUuid,
    /// The drive that it lies on.
    pub drive: DriveUuid,
    /// The number of that drive.
    pub number: DriveNumber,
    /// One more with each write of the superblock.
    pub generation: u64,
    /// Version of the list of drives.
    pub membership: u64,
    /// One more with each writable start.
    pub epoch: u64,
    /// Random number of that start.
    pub nonce: u64,
    /// The store was stopped in order: nothing needs recovery.
    pub clean: bool,
    /// When the store was made, in seconds since 1970.
    pub created_unix_s: u64,
    /// How the store is laid out.
    pub geometry: Geometry,
    /// The newest starts, oldest first, at most [`HISTORY_MAX`].
    pub history: Vec<Start>,
    /// All drives of the store, at most [`DRIVES_MAX`], each number once.
    pub drives: Vec<DriveEntry>,
}

impl Superblock {
    /// The 16 KiB as they lie on the drive.
    ///
    /// # Panics
    /// When [`Superblock::decode`] would refuse the result: a superblock that no start could read must
    /// never reach a drive.
    pub fn encode(&self) -> Vec<u8> {
        use superblock as field;
        if let Err(error) = self.check() {
            panic!("a superblock that could not be read must not be written: {error}");
        }
        let mut block = vec![0; SUPERBLOCK_BYTES];
        field::STORE.put(&mut block, self.store);
        field::DRIVE.put(&mut block, self.drive);
        field::NUMBER.put(&mut block, self.number.0);
        field::CLEAN.put(&mut block, u8::from(self.clean));
        field::GENERATION.put(&mut block, self.generation);
        field::MEMBERSHIP.put(&mut block, self.membership);
        field::EPOCH.put(&mut block, self.epoch);
        field::NONCE.put(&mut block, self.nonce);
        field::CREATED_UNIX_S.put(&mut block, self.created_unix_s);
        self.geometry.put(&mut block);
        field::HISTORY_COUNT.put(&mut block, self.history.len() as u16);
        field::DRIVE_COUNT.put(&mut block, self.drives.len() as u16);
        for (entry, past) in block[HISTORY_OFFSET..].chunks_exact_mut(start::BYTES).zip(&self.history) {
            start::EPOCH.put(entry, past.epoch);
            start::NONCE.put(entry, past.nonce);
        }
        for (entry, drive) in block[DRIVES_OFFSET..].chunks_exact_mut(drive_entry::BYTES).zip(&self.drives) {
            drive.put(entry);
        }
        put_program(&mut block, self.program);
        KIND.seal(&mut block, self.format_version, 0);
        block
    }

    /// Reads a superblock from the bytes of one of its places.
    ///
    /// # Errors
    /// [`FormatError`]: what is there instead, or which part of it cannot be.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, FormatError> {
        use superblock as field;
        let (block, _flags) = KIND.open(bytes, SUPERBLOCK_BYTES).map_err(|error| named_program(error, bytes))?;
        let wanted = SUPERBLOCK_BYTES as u64;
        ensure(block.len() == SUPERBLOCK_BYTES, WHAT, "it is 16 KiB long", block.len() as u64, wanted)?;
        let clean = field::CLEAN.get(block);
        within("mark of a clean stop", u64::from(clean), 1)?;
        let history_count = usize::from(field::HISTORY_COUNT.get(block));
        within("number of starts in the history", history_count as u64, HISTORY_MAX as u64)?;
        let drive_count = usize::from(field::DRIVE_COUNT.get(block));
        within("number of drives", drive_count as u64, DRIVES_MAX as u64)?;
        let history = block[HISTORY_OFFSET..].chunks_exact(start::BYTES).take(history_count);
        let drives = block[DRIVES_OFFSET..].chunks_exact(drive_entry::BYTES).take(drive_count);
        let superblock = Superblock {
            format_version: prefix::VERSION.get(block),
            program: program_of(block),
            store: field::STORE.get(block),
            drive: field::DRIVE.get(block),
            number: DriveNumber(field::NUMBER.get(block)),
            generation: field::GENERATION.get(block),
            membership: field::MEMBERSHIP.get(block),
            epoch: field::EPOCH.get(block),
            nonce: field::NONCE.get(block),
            clean: clean == 1,
            created_unix_s: field::CREATED_UNIX_S.get(block),
            geometry: Geometry::get(block),
            history: history
                .map(|entry| Start { epoch: start::EPOCH.get(entry), nonce: start::NONCE.get(entry) })
                .collect(),
            drives: drives.map(DriveEntry::get).collect::<Result<_, _>>()?,
        };
        superblock.check()?;
        Ok(superblock)
    }

    /// Whether the store has files, and so takes no fragments of the run that is kept for them.
    pub fn has_files(&self) -> bool {
        self.format_version >= FORMAT_VERSION_WITH_FILES
    }

    /// The drive that the superblock lies on.
    fn own_entry(&self) -> Option<&DriveEntry> {
        self.drives.iter().find(|entry| entry.uuid == self.drive)
    }

    fn check(&self) -> Result<(), FormatError> {
        let version = self.format_version;
        ensure(version::is_read(version), WHAT, "its version is known", version, FORMAT_VERSION)?;
        self.geometry.check()?;
        self.check_history()?;
        self.check_drives()
    }

    fn check_history(&self) -> Result<(), FormatError> {
        within("number of starts in the history", self.history.len() as u64, HISTORY_MAX as u64)?;
        for pair in self.history.windows(2) {
            let ascending = pair[0].epoch < pair[1].epoch;
            ensure(ascending, WHAT, "starts are listed oldest first", pair[1].epoch, pair[0].epoch)?;
        }
        if let Some(newest) = self.history.last() {
            let (epoch, nonce) = (self.epoch, self.nonce);
            ensure(newest.epoch <= epoch, WHAT, "no start is newer than the present one", newest.epoch, epoch)?;
            let one_history = newest.epoch < epoch || newest.nonce == nonce;
            ensure(one_history, WHAT, "the present start has one random number", newest.nonce, nonce)?;
        }
        Ok(())
    }

    fn check_drives(&self) -> Result<(), FormatError> {
        within("number of drives", self.drives.len() as u64, DRIVES_MAX as u64)?;
        for (index, drive) in self.drives.iter().enumerate() {
            let number = drive.number.0;
            let earlier = &self.drives[..index];
            let number_once = earlier.iter().all(|other| other.number != drive.number);
            ensure(number_once, WHAT, "each drive number is given once", number, number)?;
            let uuid_once = earlier.iter().all(|other| other.uuid != drive.uuid);
            ensure(uuid_once, WHAT, "each drive UUID is listed once", number, number)?;
            let known = drive.changed <= self.membership;
            ensure(known, WHAT, "no drive changed after the list's version", drive.changed, self.membership)?;
            let end = self.geometry.layout(drive.slots).checked_end_offset();
            let fits = end.is_some_and(|end| end <= drive.bytes);
            ensure(fits, WHAT, "all slots of a drive lie on it", end.unwrap_or(u64::MAX), drive.bytes)?;
        }
        let listed = self.own_entry().is_some_and(|own| own.number == self.number);
        ensure(listed, WHAT, "the drive itself is in the list under its number", self.number.0, self.number.0)
    }
}

impl Geometry {
    /// The layout of a drive with this many slots.
    pub fn layout(&self, slots: u32) -> DriveLayout {
        DriveLayout { lanes: self.lanes, checkpoint_bytes: self.checkpoint_bytes, slot_bytes: self.slot_bytes, slots }
    }

    fn check(&self) -> Result<(), FormatError> {
        check_width(WHAT, self.data_shards, self.parity_shards, self.unit_bytes)?;
        within("bytes of a unit", u64::from(self.unit_bytes), u64::from(UNIT_BYTES_MAX))?;
        let (least, most) = (self.data_shards_min, self.data_shards);
        ensure((1..=most).contains(&least), WHAT, "fewest data shards are 1 to all", least, most)?;
        ensure(self.lanes >= 1, WHAT, "there is at least one lane", self.lanes, 1u8)?;
        within("number of lanes", u64::from(self.lanes), LANES_MAX as u64)?;
        for (rule, bytes) in [
            ("a slot is whole blocks, at least two", self.slot_bytes),
            ("a checkpoint's place is whole blocks, at least two", self.checkpoint_bytes),
        ] {
            let blocks = bytes >= 2 * BLOCK_BYTES as u64 && bytes.is_multiple_of(BLOCK_BYTES as u64);
            ensure(blocks, WHAT, rule, bytes, BLOCK_BYTES as u64)?;
        }
        ensure(self.fragment_bytes_max >= 1, WHAT, "fragments may have bytes", self.fragment_bytes_max, 1u8)?;
        within("largest fragment", u64::from(self.fragment_bytes_max), FRAGMENT_BYTES_MAX as u64)
    }

    fn put(&self, block: &mut [u8]) {
        use superblock as field;
        field::LANES.put(block, self.lanes);
        field::DATA_SHARDS.put(block, self.data_shards);
        field::PARITY_SHARDS.put(block, self.parity_shards);
        field::DATA_SHARDS_MIN.put(block, self.data_shards_min);
        field::UNIT_BYTES.put(block, self.unit_bytes);
        field::SLOT_BYTES.put(block, self.slot_bytes);
        field::CHECKPOINT_BYTES.put(block, self.checkpoint_bytes);
        field::FRAGMENT_BYTES_MAX.put(block, self.fragment_bytes_max);
    }

    fn get(block: &[u8]) -> Self {
        use superblock as field;
        Geometry {
            lanes: field::LANES.get(block),
            data_shards: field::DATA_SHARDS.get(block),
            parity_shards: field::PARITY_SHARDS.get(block),
            data_shards_min: field::DATA_SHARDS_MIN.get(block),
            unit_bytes: field::UNIT_BYTES.get(block),
            slot_bytes: field::SLOT_BYTES.get(block),
            checkpoint_bytes: field::CHECKPOINT_BYTES.get(block),
            fragment_bytes_max: field::FRAGMENT_BYTES_MAX.get(block),
        }
    }
}

fn put_program(block: &mut [u8], program: ProgramVersion) {
    superblock::PROGRAM_MAJOR.put(block, program.major);
    superblock::PROGRAM_MINOR.put(block, program.minor);
    superblock::PROGRAM_PATCH.put(block, program.patch);
}

fn program_of(block: &[u8]) -> ProgramVersion {
    ProgramVersion {
        major: superblock::PROGRAM_MAJOR.get(block),
        minor: superblock::PROGRAM_MINOR.get(block),
        patch: superblock::PROGRAM_PATCH.get(block),
    }
}

/// A version that is not known, with the program that wrote it, which lies in the same bytes in every version.
fn named_program(error: FormatError, bytes: &[u8]) -> FormatError {
    match error {
        FormatError::Version { what, found, .. } if bytes.len() >= superblock::BYTES => {
            FormatError::Version { what, found, program: program_of(bytes) }
        }
        other => other,
    }
}

impl DriveEntry {
    fn put(&self, entry: &mut [u8]) {
        use drive_entry as field;
        field::UUID.put(entry, self.uuid);
        field::NUMBER.put(entry, self.number.0);
        field::STATE.put(entry, self.state as u8);
        field::SLOTS.put(entry, self.slots);
        field::CHANGED.put(entry, self.changed);
        field::DRIVE_BYTES.put(entry, self.bytes);
    }

    fn get(entry: &[u8]) -> Result<Self, FormatError> {
        use drive_entry as field;
        Ok(DriveEntry {
            uuid: field::UUID.get(entry),
            number: DriveNumber(field::NUMBER.get(entry)),
            state: DriveState::from_number(field::STATE.get(entry))?,
            slots: field::SLOTS.get(entry),
            changed: field::CHANGED.get(entry),
            bytes: field::DRIVE_BYTES.get(entry),
        })
    }
}

const _: () = assert!(HISTORY_MAX <= u16::MAX as usize);
const _: () = assert!(DRIVES_MAX <= u16::MAX as usize);
