//! After how long what is done.

use std::time::Duration;

/// After how long an owner counts as dead, and what follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    dead_after: Duration,
}

/// Times that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an owner cannot count as dead after {} ms: it may be 1 s to 1 hour. Nothing was done", .0.as_millis())]
pub struct TimingError(pub Duration);

impl Default for Timing {
    fn default() -> Self {
        Timing { dead_after: Duration::from_secs(9) }
    }
}

impl Timing {
    /// An owner whose pulse stands still for so long counts as dead. The same for all servers of a store.
    ///
    /// # Errors
    /// [`TimingError`].
    pub fn new(dead_after: Duration) -> Result<Self, TimingError> {
        let fits = (Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&dead_after);
        fits.then_some(Timing { dead_after }).ok_or(TimingError(dead_after))
    }

    /// A pulse that stands still for so long is that of a dead owner.
    pub fn dead_after(&self) -> Duration {
        self.dead_after
    }

    /// After it asked for a pulse that was written an owner may answer for so long.
    pub fn answers_for(&self) -> Duration {
        self.dead_after * 2 / 3
    }

    /// An owner asks for a pulse so often.
    pub fn pulse_every(&self) -> Duration {
        self.dead_after / 9
    }

    /// A standby looks so often.
    pub fn look_every(&self) -> Duration {
        self.dead_after / 18
    }
}
