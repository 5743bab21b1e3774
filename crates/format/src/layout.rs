//! Where things lie on a drive.

use forebay_types::limits::{BLOCK_BYTES, LANES_MAX};

/// Bytes of a superblock.
pub const SUPERBLOCK_BYTES: usize = 16 << 10;

/// Places that a superblock, and each lane's checkpoint, is written to alternately.
pub const PLACES: u64 = 2;

/// From the start of one superblock's place to that of the next.
pub const SUPERBLOCK_STRIDE_BYTES: u64 = 64 << 10;

/// Where the places of the checkpoints begin.
pub const CHECKPOINTS_OFFSET: u64 = PLACES * SUPERBLOCK_STRIDE_BYTES;

/// Slots begin at a multiple of this.
pub const SLOTS_ALIGNMENT_BYTES: u64 = 1 << 20;

/// Slots that each lane has at least on every drive.
pub const SLOTS_PER_LANE_MIN: u32 = 4;

const _: () = assert!(SUPERBLOCK_BYTES as u64 <= SUPERBLOCK_STRIDE_BYTES);
const _: () = assert!(SUPERBLOCK_BYTES.is_multiple_of(BLOCK_BYTES));
const _: () = assert!(CHECKPOINTS_OFFSET == 128 << 10);

/// Where things lie on one drive. All offsets are bytes from the drive's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveLayout {
    /// Lanes of the store.
    pub lanes: u16,
    /// Bytes of one place for a checkpoint, its header included.
    pub checkpoint_bytes: u64,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// Slots on this drive.
    pub slots: u32,
}

impl DriveLayout {
    /// The layout of a drive of `drive_bytes`: as many slots as fit.
    ///
    /// # Errors
    /// [`LayoutError`] when fewer than [`SLOTS_PER_LANE_MIN`] slots per lane fit, or a number is not
    /// one that a drive can be laid out with.
    pub fn plan(
        drive_bytes: u64,
        lanes: u16,
        slot_bytes: u64,
        checkpoint_bytes: u64,
    ) -> Result<DriveLayout, LayoutError> {
        if lanes == 0 || usize::from(lanes) > LANES_MAX {
            return Err(LayoutError::Lanes { lanes });
        }
        for (what, bytes) in [("slot", slot_bytes), ("place of a checkpoint", checkpoint_bytes)] {
            if bytes < 2 * BLOCK_BYTES as u64 || !bytes.is_multiple_of(BLOCK_BYTES as u64) {
                return Err(LayoutError::NotBlocks { what, bytes });
            }
        }
        let slots_min = u64::from(SLOTS_PER_LANE_MIN) * u64::from(lanes);
        let slots_offset = slots_offset(lanes, checkpoint_bytes);
        let needed_bytes = slots_min.saturating_mul(slot_bytes).saturating_add(slots_offset);
        let slots = drive_bytes.saturating_sub(slots_offset) / slot_bytes;
        if needed_bytes > drive_bytes || slots < slots_min {
            return Err(LayoutError::TooSmall { drive_bytes, needed_bytes, lanes, slot_bytes, checkpoint_bytes });
        }
        let slots = u32::try_from(slots).unwrap_or(u32::MAX);
        Ok(DriveLayout { lanes, checkpoint_bytes, slot_bytes, slots })
    }

    /// Where the superblock's place 0 or 1 begins.
    pub fn superblock_offset(&self, place: u64) -> u64 {
        assert!(place < PLACES, "superblocks have two places");
        place * SUPERBLOCK_STRIDE_BYTES
    }

    /// Where place 0 or 1 of the checkpoint of `lane` begins.
    pub fn checkpoint_offset(&self, lane: u16, place: u64) -> u64 {
        assert!(lane < self.lanes && place < PLACES, "lane {lane} of {}, place {place} of two", self.lanes);
        CHECKPOINTS_OFFSET + (PLACES * u64::from(lane) + place) * self.checkpoint_bytes
    }

    /// Where the slots begin.
    pub fn slots_offset(&self) -> u64 {
        slots_offset(self.lanes, self.checkpoint_bytes)
    }

    /// Where a slot begins.
    pub fn slot_offset(&self, slot: u32) -> u64 {
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        self.slots_offset() + u64::from(slot) * self.slot_bytes
    }

    /// The lane that a slot belongs to.
    pub fn lane_of_slot(&self, slot: u32) -> u16 {
        (slot % u32::from(self.lanes)) as u16
    }

    /// Where the last slot ends, or `None` when that lies beyond every drive.
    pub fn checked_end_offset(&self) -> Option<u64> {
        let slots_offset = checked_slots_offset(self.lanes, self.checkpoint_bytes)?;
        u64::from(self.slots).checked_mul(self.slot_bytes)?.checked_add(slots_offset)
    }
}

/// The place that the superblock of a generation, or the checkpoint of a sequence, is written to: never
/// the one that holds the newest before it.
pub const fn place_of(generation: u64) -> u64 {
    generation % PLACES
}

/// Where the slots begin, or beyond every drive.
fn slots_offset(lanes: u16, checkpoint_bytes: u64) -> u64 {
    checked_slots_offset(lanes, checkpoint_bytes).unwrap_or(u64::MAX)
}

fn checked_slots_offset(lanes: u16, checkpoint_bytes: u64) -> Option<u64> {
    let places = PLACES * u64::from(lanes);
    let end = places.checked_mul(checkpoint_bytes)?.checked_add(CHECKPOINTS_OFFSET)?;
    end.checked_next_multiple_of(SLOTS_ALIGNMENT_BYTES)
}

/// Why a drive cannot be laid out. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The drive has no room for the slots that every lane needs.
    #[error(
        "a drive of {drive_bytes} bytes is too small: {lanes} lanes with at least 4 slots of {slot_bytes} bytes and \
         two checkpoints of {checkpoint_bytes} bytes each need {needed_bytes}; take a larger drive, fewer lanes or \
         smaller slots"
    )]
    TooSmall {
        /// Bytes of the drive.
        drive_bytes: u64,
        /// Bytes that it would need.
        needed_bytes: u64,
        /// Lanes asked for.
        lanes: u16,
        /// Bytes of a slot.
        slot_bytes: u64,
        /// Bytes of a checkpoint's place.
        checkpoint_bytes: u64,
    },
    /// No store has this number of lanes.
    #[error("{lanes} lanes are not possible: take 1 to {LANES_MAX}")]
    Lanes {
        /// Lanes asked for.
        lanes: u16,
    },
    /// A length that is not whole blocks, at least two of them.
    #[error("a {what} of {bytes} bytes is not possible: take a multiple of {BLOCK_BYTES}, at least twice that")]
    NotBlocks {
        /// What has the length.
        what: &'static str,
        /// The length asked for.
        bytes: u64,
    },
}
