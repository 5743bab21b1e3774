//! How long things took, in powers of two.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const BUCKETS: usize = 40;

/// Counts of durations, bucket `i` those of less than 2^i microseconds and not in the one before. Any
/// number of threads may add to it.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { buckets: [const { AtomicU64::new(0) }; BUCKETS] }
    }
}

impl Histogram {
    /// Counts one.
    pub fn add(&self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - us.leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)].fetch_add(1, Relaxed);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum()
    }

    /// A duration that `fraction` (0 to 1) of those counted did not exceed, rounded up to a power of two
    /// microseconds; zero when none was counted.
    pub fn quantile(&self, fraction: f64) -> Duration {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect();
        let all: u64 = counts.iter().sum();
        let wanted = (all as f64 * fraction.clamp(0.0, 1.0)).ceil() as u64;
        let mut below = 0;
        for (bucket, count) in counts.iter().enumerate() {
            below += count;
            if below >= wanted && all > 0 {
                return Duration::from_micros(1 << bucket);
            }
        }
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_bounds() {
        let histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), Duration::ZERO);
        for us in 0..1000 {
            histogram.add(Duration::from_micros(us));
        }
        histogram.add(Duration::from_secs(1 << 40));
        assert_eq!(histogram.count(), 1001);
        assert_eq!(histogram.quantile(0.5), Duration::from_micros(512));
        assert_eq!(histogram.quantile(0.99), Duration::from_micros(1024));
        assert!(histogram.quantile(1.0) > Duration::from_secs(3600));
    }
}
