//! Writing what makes drives a store.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use forebay_format::{
    CheckpointBody, CheckpointHeader, DriveEntry, DriveLayout, DriveState, FORMAT_VERSION, ProgramVersion,
    SUPERBLOCK_BYTES, Start, Superblock, encode_checkpoint, place_of,
};
use forebay_media::{Access, AlignedBuffer, DirectIo, DriveFile, MediaError, OpenDriveError};
use forebay_types::limits::BLOCK_BYTES;
use forebay_types::{DriveNumber, DriveUuid};

use super::look::NewDrive;
use super::{InitError, InitReport, random};

/// The generation of a new store's superblock; it lies at the drive's start.
const FIRST_GENERATION: u64 = 2;
const _: () = assert!(place_of(FIRST_GENERATION) == 0);

/// Makes the drives a store; `begun` counts those that may have been written to.
pub(super) fn write_superblocks(
    new: &[NewDrive],
    slots: &[u32],
    report: &InitReport,
    begun: &mut usize,
) -> Result<(), InitError> {
    write_superblocks_with(new, slots, report, &mut |path, own, superblock| {
        *begun += 1;
        write_drive(path, own, superblock).map_err(|source| match source {
            WriteDriveError::Open(error) => InitError::Open(error),
            WriteDriveError::Media(source) => InitError::Write { path: path.to_owned(), source },
        })
    })
}

/// As [`write_superblocks`], each by `write`.
pub(super) fn write_superblocks_with(
    new: &[NewDrive],
    slots: &[u32],
    report: &InitReport,
    write: &mut dyn FnMut(&Path, &DriveEntry, &Superblock) -> Result<(), InitError>,
) -> Result<(), InitError> {
    let entry = |(number, (slots, drive)): (usize, (&u32, &NewDrive))| DriveEntry {
        uuid: DriveUuid::from_random_bytes(random()),
        number: DriveNumber(number as u16),
        state: DriveState::Member,
        slots: *slots,
        changed: 0,
        bytes: drive.bytes,
    };
    let drives: Vec<DriveEntry> = slots.iter().zip(new).enumerate().map(entry).collect();
    let created_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let nonce = u64::from_le_bytes(random());
    for (NewDrive { path, .. }, own) in new.iter().zip(&drives) {
        let superblock = Superblock {
            format_version: FORMAT_VERSION,
            program: ProgramVersion::OWN,
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
        write(path, own, &superblock)?;
    }
    Ok(())
}

enum WriteDriveError {
    Open(OpenDriveError),
    Media(MediaError),
}

/// Nothing counts on a drive whose places for superblocks, and those for the checkpoints of so many lanes, hold zeros.
pub(super) fn blank_places(drive: &DriveFile, layout: &DriveLayout, lanes: u16) -> Result<(), MediaError> {
    blank(layout, lanes, &|offset, buffer| drive.write_at(offset, buffer, buffer.len()))
}

/// How a whole buffer is written somewhere.
type Write<'a> = dyn Fn(u64, &AlignedBuffer) -> Result<(), MediaError> + 'a;

fn blank(layout: &DriveLayout, lanes: u16, write: &Write<'_>) -> Result<(), MediaError> {
    let superblock = AlignedBuffer::zeroed(SUPERBLOCK_BYTES);
    for place in 0..forebay_format::PLACES {
        write(layout.superblock_offset(place), &superblock)?;
    }
    let block = AlignedBuffer::zeroed(BLOCK_BYTES);
    for lane in 0..lanes {
        for place in 0..forebay_format::PLACES {
            write(layout.checkpoint_offset(lane, place), &block)?;
        }
    }
    Ok(())
}

/// Writes a drive's places, the superblock last: a drive without one is no drive of a store.
fn write_drive(path: &Path, own: &DriveEntry, superblock: &Superblock) -> Result<(), WriteDriveError> {
    let drive = DriveFile::open(path, DirectIo::Auto, Access::Exclusive).map_err(WriteDriveError::Open)?;
    write_places(own, superblock, &|offset, buffer| drive.write_at(offset, buffer, buffer.len()))
        .map_err(WriteDriveError::Media)
}

/// As [`write_drive`], to whatever drive it is.
pub(super) fn write_places(own: &DriveEntry, superblock: &Superblock, write: &Write<'_>) -> Result<(), MediaError> {
    let write_bytes = |offset: u64, bytes: &[u8]| write(offset, &AlignedBuffer::copied(bytes));
    let layout = superblock.geometry.layout(own.slots);
    blank(&layout, 0, write)?;
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
        write_bytes(layout.checkpoint_offset(lane, place_of(0)), &[0; BLOCK_BYTES])?;
        write_bytes(header.offset_bytes, &encode_checkpoint(&header, &body))?;
    }
    // Both places, the first one last: a drive of a store is known by its first bytes.
    let older = Superblock { generation: superblock.generation - 1, ..superblock.clone() };
    write_bytes(layout.superblock_offset(place_of(older.generation)), &older.encode())?;
    write_bytes(layout.superblock_offset(place_of(superblock.generation)), &superblock.encode())
}
