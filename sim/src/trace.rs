//! What happened, as one number: two runs of a seed must have the same.

use forebay_types::Time;

/// A running hash of everything that happened, and the same in words when somebody reads them.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    hash: u64,
    notes: u64,
    told: bool,
}

impl Trace {
    pub(crate) fn new(told: bool) -> Self {
        Trace { told, ..Trace::default() }
    }

    /// Something happened; `what` is made only when somebody reads it.
    pub(crate) fn note(&mut self, now: Time, numbers: &[u64], what: impl FnOnce() -> String) {
        self.notes += 1;
        self.mix(now.0);
        numbers.iter().for_each(|number| self.mix(*number));
        if self.told {
            println!("{:>12.6} {}", now.0 as f64 / 1e9, what());
        }
    }

    /// Something of which there is nothing to tell.
    pub(crate) fn mix(&mut self, number: u64) {
        let mixed = (self.hash ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.hash = mixed ^ mixed >> 29;
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}
