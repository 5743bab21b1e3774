//! What suits which kind of drives.

use std::time::Duration;

use forebay_media::DriveKind;
use serde::{Deserialize, Serialize};

const MIB: u64 = 1 << 20;

/// The kind of a store's drives, and what is chosen by it where nobody says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Disks with heads, which shall stream: a drive is written in few places at once, in large pieces, and what is small waits for more.
    Disk,
    /// Flash, memory, and what the operating system does not know: nothing is lost by many small writes in many places.
    SolidState,
    /// Objects in the pools of a cluster: each operation costs the processors of many machines, so that few large ones are wanted, many at once.
    Pool,
}

impl Profile {
    /// Of drives of these kinds: one disk among them makes it a store on disks.
    pub fn of(kinds: impl IntoIterator<Item = DriveKind>) -> Profile {
        let rotational = kinds.into_iter().any(|kind| kind == DriveKind::Rotational);
        if rotational { Profile::Disk } else { Profile::SolidState }
    }

    /// Lanes of a store on so many drives whose segments have `width` shards, served by so many cores. On disks as many as write to drives of
    /// their own at the same time; else one for each core, up to 8.
    pub fn lanes(self, drives: usize, width: usize, cores: usize) -> u16 {
        let lanes = match self {
            Profile::Disk => drives / width.max(1),
            Profile::SolidState | Profile::Pool => cores.min(8),
        };
        u16::try_from(lanes.max(1)).unwrap_or(u16::MAX)
    }

    /// The largest slot that is chosen, in bytes.
    pub fn slot_bytes_max(self) -> u64 {
        match self {
            Profile::Disk => 1024 * MIB,
            // An object may have 128 MiB where nobody configured something else.
            Profile::SolidState | Profile::Pool => 64 * MIB,
        }
    }

    /// Bytes that lie one after the other on a drive, when its slots have so many. Of a pool they are read in one operation with what is asked for of
    /// them (`RecentRows` in the engine): an operation costs its cluster the work of eight hosts, however few bytes it is for; where
    /// what is asked for lies scattered more would be read in vain.
    pub fn unit_bytes(self, slot_bytes: u64) -> u32 {
        const LEAST: u64 = 32 << 10;
        let unit_bytes = match self {
            Profile::Disk | Profile::SolidState => LEAST,
            Profile::Pool => power_of_two_up_to(slot_bytes / 16).clamp(LEAST, MIB / 4),
        };
        u32::try_from(unit_bytes).expect("less than a MiB")
    }

    /// Flushes of a lane on their way at once.
    pub fn flush_depth(self) -> u32 {
        match self {
            Profile::Disk | Profile::SolidState => 4,
            // Few, so that there is memory for large ones.
            Profile::Pool => 2,
        }
    }

    /// Payload of a full flush on each drive, in bytes, of a lane with so much memory for data, with so many flushes on their way and one that fills.
    /// In a pool as many as half of that memory has room for: with 16 MiB the drives of the cluster need a sixth less of their processors for a byte
    /// than with 4.
    pub fn flush_bytes(self, lane_cache_bytes: u64, flush_depth: u32) -> u64 {
        match self {
            Profile::Disk => 4 * MIB,
            Profile::SolidState => MIB / 2,
            Profile::Pool => {
                let room_bytes = lane_cache_bytes / 2 / (u64::from(flush_depth) + 1);
                power_of_two_up_to(room_bytes).clamp(4 * MIB, 16 * MIB)
            }
        }
    }

    /// Bytes that rebuild and scrub read from each drive at once. Of disks a whole flush, as a head that has moved shall read as much as there is; else
    /// pieces of memory that are not asked of the system one by one, as those of 128 KiB and more are (`forebay_media::return_large_memory`):
    /// that would cost more than what is done with them.
    pub fn background_read_bytes(self) -> u32 {
        match self {
            Profile::Disk | Profile::Pool => 4 << 20,
            Profile::SolidState => 64 << 10,
        }
    }

    /// Bytes that are read rather than left out, when they lie between two that compaction wants of a drive. A disk reads some 3 MB in the time that
    /// its head takes to go elsewhere.
    pub fn read_through_bytes(self) -> u32 {
        match self {
            Profile::Disk => 2 << 20,
            Profile::Pool => 64 << 10,
            Profile::SolidState => 8 << 10,
        }
    }

    /// A drive that does not answer for so long is taken out. A disk tries for seconds to read a sector that is hard to read, before it says that
    /// it cannot, and is no lost disk for that.
    pub fn drive_timeout(self) -> Duration {
        match self {
            Profile::Disk => Duration::from_secs(10),
            Profile::SolidState => Duration::from_secs(1),
            // A start asks for so long; what is served waits as long as it takes.
            Profile::Pool => Duration::from_secs(10),
        }
    }

    /// The least time between two flushes that are not full.
    pub fn flush_interval(self) -> Duration {
        match self {
            Profile::Disk => Duration::from_millis(20),
            Profile::SolidState => Duration::ZERO,
            Profile::Pool => Duration::from_millis(5),
        }
    }
}

/// The largest power of two that is no more than this; 0 of 0.
pub(crate) fn power_of_two_up_to(bytes: u64) -> u64 {
    if bytes == 0 { 0 } else { 1 << bytes.ilog2() }
}
