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
        *begun += 1;
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

/// Nothing counts on a drive whose places for superblocks, and those for the checkpoints of so many lanes, hold zeros.
pub(super) fn blank_places(drive: &DriveFile, layout: &DriveLayout, lanes: u16) -> Result<(), MediaError> {
    let superblock = AlignedBuffer::zeroed(SUPERBLOCK_BYTES);
    for place in 0..forebay_format::PLACES {
        drive.write_at(layout.superblock_offset(place), &superblock, SUPERBLOCK_BYTES)?;
    }
    let block = AlignedBuffer::zeroed(BLOCK_BYTES);
    for lane in 0..lanes {
        for place in 0..forebay_format::PLACES {
            drive.write_at(layout.checkpoint_offset(lane, place), &block, BLOCK_BYTES)?;
        }
    }
    Ok(())
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
    blank_places(&drive, &layout, 0).map_err(WriteDriveError::Media)?;
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
