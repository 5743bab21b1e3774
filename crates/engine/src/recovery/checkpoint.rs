//! The checkpoint that a start begins from.

use std::sync::Arc;

use forebay_format::{CheckpointBody, CheckpointHeader, encode_checkpoint, place_of};
use forebay_media::AlignedBuffer;
use forebay_types::limits::BLOCK_BYTES;

use super::{RECOVERY_TASK, RecoveryError};
use crate::api::{DriveInfo, LaneConfig};
use crate::io::Io;
use crate::survey::{CheckpointTaken, belongs};

/// Writes the checkpoint that was found, as it is, to its place on every member. The crash may have come when it was whole on one drive alone, and
/// what follows takes it for durable: slots that only older ones list are written to, and the next checkpoint goes to the place of the one
/// before. Where it is whole already nothing changes, wherever a further crash tears this write.
pub(super) async fn confirm_checkpoint(io: &Io, config: &LaneConfig, taken: CheckpointTaken, body: &[u8]) {
    let mut writes = Vec::new();
    for drive in config.drives.iter().filter(|d| d.member && d.present) {
        let layout = config.geometry.layout(drive.slots);
        let header = CheckpointHeader {
            store: config.store,
            drive: drive.uuid,
            offset_bytes: layout.checkpoint_offset(config.lane, place_of(taken.sequence)),
            lane: config.lane,
            epoch: taken.epoch,
            sequence: taken.sequence,
            body_bytes: 0,
            body_crc: 0,
        };
        let buffer = AlignedBuffer::copied(&encode_checkpoint(&header, body));
        let bytes = buffer.len();
        writes.push(io.write_for(RECOVERY_TASK, drive.number, header.offset_bytes, Arc::new(buffer), bytes));
    }
    for write in writes {
        // A drive that does not take it is taken out, and recovery begins anew.
        let _ = io.written(write).await;
    }
}

/// The newest checkpoint: where it was found, its body as it lies there, and that decoded.
pub(super) async fn newest_checkpoint(
    io: &Io,
    config: &LaneConfig,
) -> Result<(CheckpointTaken, Vec<u8>, CheckpointBody), RecoveryError> {
    let mut found = Vec::new();
    let drives: Vec<&DriveInfo> = config.drives.iter().filter(|d| d.member && d.present).collect();
    let mut reads = Vec::new();
    for drive in &drives {
        for place in 0..forebay_format::PLACES {
            let offset = config.geometry.layout(drive.slots).checkpoint_offset(config.lane, place);
            reads.push((*drive, offset, io.read(RECOVERY_TASK, drive.number, offset, BLOCK_BYTES)));
        }
    }
    for (drive, offset, id) in reads {
        let Ok(block) = io.result(id).await else { continue };
        let Ok(header) = CheckpointHeader::decode(&block) else { continue };
        if belongs(config, drive, offset, &header) {
            found.push((header, drive.number, offset));
        }
    }
    found.sort_by_key(|(header, ..)| std::cmp::Reverse((header.epoch, header.sequence)));
    for (header, drive, offset) in found {
        let bytes = (header.body_bytes as usize).next_multiple_of(BLOCK_BYTES).max(BLOCK_BYTES);
        let id = io.read(RECOVERY_TASK, drive, offset + BLOCK_BYTES as u64, bytes);
        let Ok(buffer) = io.result(id).await else { continue };
        let bytes = &buffer[..header.body_bytes as usize];
        if let Ok(body) = CheckpointBody::decode(&header, bytes) {
            let taken = CheckpointTaken { drive, epoch: header.epoch, sequence: header.sequence };
            return Ok((taken, bytes.to_vec(), body));
        }
    }
    Err(RecoveryError::NoCheckpoint { lane: config.lane, drives: drives.len() })
}
