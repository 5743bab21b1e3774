//! How long something is tried again that may succeed later, and when.

use std::time::Duration;

use forebay_types::{FileOutcome, NameOutcome, Time};

use crate::session::{Backoff, SplitMix64};

/// The waits before what was refused for now is tried again.
const AGAIN: Backoff = Backoff { min: Duration::from_millis(20), max: Duration::from_secs(2) };

/// Counts refusals in a row.
pub(super) struct Patience {
    /// How long it lasts; `None`: for ever.
    limit: Option<Duration>,
    since: Option<Time>,
    refusals: u32,
    random: SplitMix64,
}

impl Patience {
    pub(super) fn new(limit: Option<Duration>, seed: u64) -> Patience {
        Patience { limit, since: None, refusals: 0, random: SplitMix64(seed) }
    }

    /// It was refused: when to try again; `None` when that was long enough. Whoever goes on then has all patience again.
    pub(super) fn refused(&mut self, now: Time) -> Option<Time> {
        let since = *self.since.get_or_insert(now);
        let until = self.limit.map(|limit| since + limit);
        if until.is_some_and(|until| until <= now) {
            self.since = None;
            return None;
        }
        let again = now + AGAIN.delay(self.refusals, &mut self.random);
        self.refusals = self.refusals.saturating_add(1);
        Some(until.map_or(again, |until| again.min(until)))
    }

    /// It was not refused.
    pub(super) fn went_well(&mut self) {
        (self.since, self.refusals) = (None, 0);
    }

    /// Whether the last time it was refused.
    pub(super) fn is_tried(&self) -> bool {
        self.refusals > 0
    }
}

/// Whether the same may be done later.
pub(super) fn may_change(outcome: FileOutcome) -> bool {
    matches!(
        outcome,
        FileOutcome::NoSpace | FileOutcome::Unavailable | FileOutcome::ChecksumMismatch | FileOutcome::IndexFull
    )
}

/// The same of names.
pub(super) fn name_may_change(outcome: NameOutcome) -> bool {
    matches!(outcome, NameOutcome::NoSpace | NameOutcome::Unavailable | NameOutcome::IndexFull)
}
