//! Jitter from a seed, and waits that grow.

use std::time::Duration;

/// SplitMix64: enough for jitter, the same everywhere.
pub(crate) struct SplitMix64(pub(crate) u64);

impl SplitMix64 {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// Waits that double from `min` to `max`, each shortened by up to half at random, so that those who
/// lost the same server do not all come back at once.
pub(crate) struct Backoff {
    pub(crate) min: Duration,
    pub(crate) max: Duration,
}

impl Backoff {
    /// The wait after `failures` earlier ones.
    pub(crate) fn delay(&self, failures: u32, random: &mut SplitMix64) -> Duration {
        let full = self.min.saturating_mul(1 << failures.min(16)).min(self.max);
        let half = full / 2;
        let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX - 1);
        half + Duration::from_nanos(random.next() % (nanos + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_limit_and_differ_by_seed() {
        let backoff = Backoff { min: Duration::from_millis(10), max: Duration::from_secs(1) };
        let (mut one, mut other) = (SplitMix64(1), SplitMix64(2));
        let mut differ = false;
        for failures in 0..100 {
            let full = Duration::from_millis(10 << failures.min(10)).min(backoff.max);
            let waits = [backoff.delay(failures, &mut one), backoff.delay(failures, &mut other)];
            assert!(waits.iter().all(|wait| (full / 2..=full).contains(wait)), "{failures}: {waits:?}");
            differ |= waits[0] != waits[1];
        }
        assert!(differ);
    }
}
