//! How patient the mover is with a destination.

use std::time::Duration;

/// The waits and bounds of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The time between the first and the second proof.
    pub recheck_after: Duration,
    /// A proof is believed for so long: when the last destination has proven a file later than that, the others are asked once more.
    pub proof_lasts: Duration,
    /// So often a file may come back other than it was sent, or be refused, before only a person starts it again.
    pub strikes_max: u32,
    /// The wait after the first failure; each further one in a row doubles it.
    pub backoff_min: Duration,
    /// The longest wait.
    pub backoff_max: Duration,
    /// The longest time between two questions whether a file is on tape.
    pub tape_wait_max: Duration,
}

impl Policy {
    /// The wait until it is asked once more whether a file is on tape, after so many questions in vain before the last one.
    pub fn tape_wait(&self, asked: u32) -> Duration {
        self.recheck_after.max(self.backoff_min).saturating_mul(1 << asked.min(20)).min(self.tape_wait_max)
    }

    /// The wait after so many failures in a row, at least one. Spread over half of itself by `salt`, so that what failed together does not come back together.
    pub fn backoff(&self, failures: u32, salt: u64) -> Duration {
        let doubled = self.backoff_min.saturating_mul(1 << failures.saturating_sub(1).min(20));
        let whole = doubled.min(self.backoff_max);
        // Finalizer of SplitMix64 (Steele, Lea, Flood 2014).
        let mut mixed = salt.wrapping_add(u64::from(failures)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        whole / 2 + whole / 2 * ((mixed >> 56) as u32) / 255
    }
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            recheck_after: Duration::from_secs(900),
            proof_lasts: Duration::from_secs(3600),
            strikes_max: 5,
            backoff_min: Duration::from_secs(1),
            backoff_max: Duration::from_secs(300),
            tape_wait_max: Duration::from_secs(600),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tape_is_asked_for_less_and_less_often() {
        let waits = |recheck_after| {
            let policy = Policy { recheck_after: Duration::from_secs(recheck_after), ..Policy::default() };
            [0, 1, 2, 5, u32::MAX].map(|asked| policy.tape_wait(asked).as_secs())
        };
        assert_eq!(waits(100), [100, 200, 400, 600, 600]);
        assert_eq!(waits(0), [1, 2, 4, 32, 600]);
        assert_eq!(waits(900), [600; 5]);
    }

    #[test]
    fn waits_grow_to_their_limit_and_are_spread() {
        let policy = Policy::default();
        for failures in 1..60 {
            let whole = Duration::from_secs(1 << (failures - 1).min(9)).min(policy.backoff_max);
            let waits: Vec<Duration> = (0..100).map(|salt| policy.backoff(failures, salt)).collect();
            assert!(waits.iter().all(|wait| *wait >= whole / 2 && *wait <= whole), "{failures}: {waits:?}");
            let spread = *waits.iter().max().expect("some") - *waits.iter().min().expect("some");
            assert!(spread > whole / 4, "{failures}: {spread:?}");
        }
    }
}
