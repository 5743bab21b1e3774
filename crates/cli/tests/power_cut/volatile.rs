//! A drive with a cache that does not survive a power cut: what was written is read at once, and lasts only when it was flushed.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::common::load::Random;

/// What a power cut leaves or takes as a whole.
pub const BLOCK_BYTES: usize = 4096;

/// What became of blocks that were not flushed when the power went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cut {
    pub survived: u64,
    pub dropped: u64,
}

/// A drive in memory.
pub struct VolatileDrive {
    contents: Mutex<Contents>,
}

struct Contents {
    durable: Vec<u8>,
    /// Newer blocks that a power cut may take.
    pending: BTreeMap<usize, Vec<u8>>,
    /// It says that it has flushed, and has not.
    lies: bool,
}

impl VolatileDrive {
    pub fn new(durable: Vec<u8>) -> VolatileDrive {
        assert!(durable.len().is_multiple_of(BLOCK_BYTES), "whole blocks");
        VolatileDrive { contents: Mutex::new(Contents { durable, pending: BTreeMap::new(), lies: false }) }
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on it lies about flushes.
    pub fn lie(&self) {
        self.contents().lies = true;
    }

    pub fn bytes(&self) -> u64 {
        self.contents().durable.len() as u64
    }

    pub fn is_flushed(&self) -> bool {
        self.contents().pending.is_empty()
    }

    /// The newest bytes; fewer at the end of the drive.
    pub fn read(&self, offset_bytes: u64, bytes: usize) -> Vec<u8> {
        let contents = self.contents();
        let end = contents.durable.len();
        let from = usize::try_from(offset_bytes).unwrap_or(end).min(end);
        let to = from.saturating_add(bytes).min(end);
        let mut read = contents.durable[from..to].to_vec();
        for (block, newer) in contents.pending.range(from / BLOCK_BYTES..to.div_ceil(BLOCK_BYTES)) {
            let start = block * BLOCK_BYTES;
            let (first, last) = (from.max(start), to.min(start + BLOCK_BYTES));
            read[first - from..last - from].copy_from_slice(&newer[first - start..last - start]);
        }
        read
    }

    /// Takes bytes into the cache; false when they do not fit the drive.
    pub fn write(&self, offset_bytes: u64, data: &[u8]) -> bool {
        let mut contents = self.contents();
        let Contents { durable, pending, .. } = &mut *contents;
        let Some(from) = usize::try_from(offset_bytes).ok().filter(|from| from + data.len() <= durable.len()) else {
            return false;
        };
        let to = from + data.len();
        for block in from / BLOCK_BYTES..to.div_ceil(BLOCK_BYTES) {
            let start = block * BLOCK_BYTES;
            let newer = pending.entry(block).or_insert_with(|| durable[start..start + BLOCK_BYTES].to_vec());
            let (first, last) = (from.max(start), to.min(start + BLOCK_BYTES));
            newer[first - start..last - start].copy_from_slice(&data[first - from..last - from]);
        }
        true
    }

    /// Makes so many bytes from here durable; all that is pending for a flush of the whole drive.
    pub fn flush(&self, offset_bytes: u64, bytes: u64) {
        let mut contents = self.contents();
        if contents.lies {
            return;
        }
        let last = usize::try_from(offset_bytes.saturating_add(bytes)).unwrap_or(usize::MAX).div_ceil(BLOCK_BYTES);
        let Contents { durable, pending, .. } = &mut *contents;
        let from = usize::try_from(offset_bytes).expect("a place on a drive in memory") / BLOCK_BYTES;
        let flushed: Vec<usize> = pending.range(from..last).map(|(block, _)| *block).collect();
        for block in flushed {
            let newer = pending.remove(&block).expect("listed just now");
            durable[block * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(&newer);
        }
    }

    /// The power goes: each block that was not flushed survives by itself in so many of a hundred cases.
    pub fn cut(&self, survive_percent: u64, random: &mut Random) -> Cut {
        let mut contents = self.contents();
        let mut cut = Cut::default();
        for (block, newer) in std::mem::take(&mut contents.pending) {
            if random.percent(survive_percent) {
                contents.durable[block * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(&newer);
                cut.survived += 1;
            } else {
                cut.dropped += 1;
            }
        }
        cut
    }
}
