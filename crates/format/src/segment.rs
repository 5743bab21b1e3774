//! What names a segment and where its shards lie.

use std::fmt;

use forebay_types::DriveNumber;

use crate::FormatError;
use crate::error::ensure;
use crate::field::layout;

layout!(
    /// A segment's id.
    segment_id, 16 {
        EPOCH: u32 = 0;
        NONCE: u32 = 4;
        COUNTER: u64 = 8;
    }
);

layout!(
    /// The place of one shard.
    shard_place, 8 {
        SLOT: u32 = 0;
        DRIVE: u16 = 4;
        ROOM: [u8; 2] = 6;
    }
);

/// Names a segment; never used again. Written `epoch-nonce-counter` in hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId {
    /// The writable start of the store in which it was made.
    pub epoch: u32,
    /// Half of that start's random number, so that two histories never share an id.
    pub nonce: u32,
    /// The lane in the upper 16 bits, its number in the lane below: no two lanes name a segment alike.
    pub counter: u64,
}

impl SegmentId {
    pub(crate) fn put(self, bytes: &mut [u8]) {
        segment_id::EPOCH.put(bytes, self.epoch);
        segment_id::NONCE.put(bytes, self.nonce);
        segment_id::COUNTER.put(bytes, self.counter);
    }

    pub(crate) fn get(bytes: &[u8]) -> Self {
        SegmentId {
            epoch: segment_id::EPOCH.get(bytes),
            nonce: segment_id::NONCE.get(bytes),
            counter: segment_id::COUNTER.get(bytes),
        }
    }
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{:08x}-{:016x}", self.epoch, self.nonce, self.counter)
    }
}

/// The slot that holds one shard of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardPlace {
    /// The drive.
    pub drive: DriveNumber,
    /// The slot on it.
    pub slot: u32,
}

impl ShardPlace {
    pub(crate) fn put(self, bytes: &mut [u8]) {
        shard_place::SLOT.put(bytes, self.slot);
        shard_place::DRIVE.put(bytes, self.drive.0);
        shard_place::ROOM.put(bytes, [0; 2]);
    }

    pub(crate) fn get(bytes: &[u8]) -> Self {
        ShardPlace { drive: DriveNumber(shard_place::DRIVE.get(bytes)), slot: shard_place::SLOT.get(bytes) }
    }
}

/// `Ok` when there is one place for each shard and no drive holds two of them.
pub(crate) fn check_places(what: &'static str, places: &[ShardPlace], shards: usize) -> Result<(), FormatError> {
    ensure(places.len() == shards, what, "each shard has one place", places.len() as u64, shards as u64)?;
    for (index, place) in places.iter().enumerate() {
        let twice = places[..index].iter().any(|other| other.drive == place.drive);
        ensure(!twice, what, "no drive holds two shards of a segment", place.drive.0, place.drive.0)?;
    }
    Ok(())
}
