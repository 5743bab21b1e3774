//! How a store is laid out on its drives.

use forebay_engine::segments_after_losses;
use forebay_format::{DriveLayout, Geometry, UNIT_BYTES_MAX};
use forebay_types::StoreUuid;
use forebay_types::limits::{BLOCK_BYTES, FRAGMENT_BYTES_MAX, LANES_MAX};

use super::look::NewDrive;
use super::{InitError, InitOptions, InitReport, random};
use crate::config::machine_memory_bytes;
use crate::profile::{Profile, power_of_two_up_to};

/// Index memory that a fragment takes at most.
const INDEX_BYTES_PER_FRAGMENT: u64 = 64;

const MIB: u64 = 1 << 20;

/// What the options leave open is chosen by the kind, the number and the size of the drives.
pub(super) fn choose_geometry(
    drives: &[NewDrive],
    profile: Profile,
    options: &InitOptions,
) -> Result<Geometry, InitError> {
    let smallest = drives.iter().map(|drive| drive.bytes).min().unwrap_or(0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let width = usize::from(options.data) + usize::from(options.parity);
    let lanes = match options.lanes {
        Some(lanes) if lanes == 0 || usize::from(lanes) > LANES_MAX => {
            return Err(InitError::Options(format!("--lanes must be 1 to {LANES_MAX}")));
        }
        Some(lanes) => lanes,
        // Each lane wants some slots.
        None => {
            profile.lanes(drives.len(), width, cores).min((smallest / (256 * MIB)).clamp(1, LANES_MAX as u64) as u16)
        }
    };
    let share = smallest / u64::from(lanes) / 32;
    let slot_bytes =
        options.slot_bytes.unwrap_or_else(|| power_of_two_up_to(share).clamp(MIB, profile.slot_bytes_max()));
    let unit_bytes = options.unit_bytes.unwrap_or_else(|| profile.unit_bytes(slot_bytes));
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

/// The slots of each drive.
pub(super) fn slots_of(drives: &[NewDrive], geometry: &Geometry) -> Result<Vec<u32>, InitError> {
    let plan = |drive: &NewDrive| {
        DriveLayout::plan(drive.bytes, geometry.lanes, geometry.slot_bytes, geometry.checkpoint_bytes)
            .map(|layout| layout.slots)
            .map_err(|source| InitError::Layout { path: drive.path.clone(), source })
    };
    drives.iter().map(plan).collect()
}

/// The store, once it is known that its index fits in memory.
pub(super) fn check_memory(
    slots: &[u32],
    geometry: Geometry,
    drive_kind: Profile,
    options: &InitOptions,
) -> Result<InitReport, InitError> {
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
    // As a server counts it: the rest is for headers and tables.
    let slots_bytes = u64::from(geometry.data_shards) * geometry.slot_bytes;
    let segment_bytes = slots_bytes - slots_bytes / 32;
    let store = StoreUuid::from_random_bytes(random());
    Ok(InitReport {
        store,
        geometry,
        drive_kind,
        capacity_bytes,
        capacity_after_losses_bytes: segments_after_losses(slots, &geometry) * segment_bytes,
        segment_bytes,
        index_bytes_needed: needed_bytes,
        sampled: Vec::new(),
        warnings: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::look::Make;
    use super::*;
    use forebay_media::DriveKind;

    #[test]
    fn disks_get_as_many_lanes_as_write_to_disks_of_their_own_and_large_slots() {
        let drive = |number: usize| NewDrive {
            path: format!("disk{number}").into(),
            bytes: 18_000_000_000_000,
            make: Make::Nothing,
            kind: DriveKind::Rotational,
            sampled: None,
        };
        let drives: Vec<NewDrive> = (0..60).map(drive).collect();
        let chosen = |profile| {
            let geometry = choose_geometry(&drives, profile, &InitOptions::new(8, 2)).expect("a layout");
            (geometry.lanes, geometry.slot_bytes)
        };
        assert_eq!(chosen(Profile::Disk), (6, 1 << 30));
        let cores = std::thread::available_parallelism().map_or(1, usize::from).min(8) as u16;
        assert_eq!(chosen(Profile::SolidState), (cores, 64 << 20));
    }
}
