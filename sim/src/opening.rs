//! What a start finds on the drives, and how it opens lanes.

use std::collections::BTreeSet;

use forebay_engine::{DriveInfo, FoundDrive, LaneConfig};
use forebay_format::{PLACES, SUPERBLOCK_BYTES, SUPERBLOCK_STRIDE_BYTES, Superblock};
use forebay_types::DriveNumber;

use crate::drives::{Drives, STRIPE_BYTES};
use crate::scenario::Scenario;

/// The newer one of a drive's superblocks, as whoever opens the drive finds it.
pub(crate) fn newest_superblock(drives: &mut Drives, drive: DriveNumber) -> Option<Superblock> {
    let mut newest: Option<Superblock> = None;
    for place in 0..PLACES {
        let bytes = drives.look(drive, place * SUPERBLOCK_STRIDE_BYTES, SUPERBLOCK_BYTES)?;
        if let Ok(superblock) = Superblock::decode(bytes)
            && newest.as_ref().is_none_or(|known| known.generation < superblock.generation)
        {
            newest = Some(superblock);
        }
    }
    newest
}

/// The drives that a start finds, without those of `without`.
pub(crate) fn found_drives(drives: &mut Drives, without: &BTreeSet<DriveNumber>) -> Vec<FoundDrive> {
    let numbers = drives.numbers().into_iter().filter(|number| !without.contains(number));
    let found = |number| {
        let superblock = newest_superblock(drives, number)?;
        Some(FoundDrive { path: format!("drive {number}"), superblock })
    };
    numbers.collect::<Vec<_>>().into_iter().filter_map(found).collect()
}

pub(crate) fn lane_config(
    scenario: &Scenario,
    superblock: &Superblock,
    lane: u16,
    drives: Vec<DriveInfo>,
    nonce: u64,
) -> LaneConfig {
    LaneConfig {
        store: superblock.store,
        lane,
        geometry: superblock.geometry,
        drives,
        epoch: superblock.epoch + 1,
        nonce,
        flush_bytes: scenario.flush_bytes,
        flush_depth: scenario.flush_depth,
        flush_interval: scenario.flush_interval,
        cache_bytes: scenario.cache_bytes,
        index_bytes: 4 << 20,
        drive_timeout: scenario.drive_timeout,
        incomplete_after: scenario.incomplete_after,
        background_percent: scenario.background_percent,
        rebuild_percent: scenario.rebuild_percent,
        background_read_bytes: u32::try_from(scenario.flush_bytes).unwrap_or(u32::MAX),
        // Both ways, whatever else a seed chose.
        read_through_bytes: if scenario.flush_depth.is_multiple_of(2) { 16 << 10 } else { 1 << 10 },
        scrub_period: scenario.scrub_period,
        lease_attempts_max: scenario.lease_attempts_max,
        parity_min: scenario.shape.parity,
        told_events: scenario.told_events,
        flush_multiple_bytes: if scenario.pool { STRIPE_BYTES } else { forebay_types::limits::BLOCK_BYTES },
        tells_freed: scenario.pool,
        blocked_after: scenario.blocked_after,
        read_only: false,
        has_files: superblock.has_files(),
    }
}
