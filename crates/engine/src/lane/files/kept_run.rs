//! What stands under the run of files in a store that has none: whether it may get some.

use forebay_types::{ReadOutcome, RunId};

use crate::lane::Lane;

/// What a lane of a store without files knows of [`RunId::FILES`]. The store may get files when no lane knows anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptRun {
    /// Nothing was stored under it.
    Unused,
    /// Events of it are stored, or were.
    Used {
        /// Events that are not over.
        stored: u64,
        /// Events that were rejected, deleted or released.
        finished: u64,
    },
    /// Something that was stored cannot be read, and may be of it: out of reach as long as drives are missing, or lost.
    Hidden(ReadOutcome),
}

impl Lane {
    /// What the lane knows of the run that is kept for files. It has recovered ([`Lane::serves_reads`]), and was opened for reading alone, so that nothing comes
    /// meanwhile.
    pub fn kept_run(&self) -> KeptRun {
        let here = self.index.runs().find(|summary| summary.run == RunId::FILES).map_or(0, |summary| summary.events);
        // Of an event whose fragments are gone there may be no more than its acceptance.
        let accepted = self.accepted.last().filter(|key| key.run == RunId::FILES);
        let stored = here.max(u64::from(accepted.is_some()));
        let finished = self.finished.events_of(RunId::FILES);
        if stored > 0 || finished > 0 {
            return KeptRun::Used { stored, finished };
        }
        let everywhere = self.segments_unreadable > 0 || self.flushes_possibly_lost > 0;
        match self.hidden.outcome_of_run(RunId::FILES) {
            Some(outcome) => KeptRun::Hidden(outcome),
            None if everywhere => KeptRun::Hidden(ReadOutcome::Unavailable),
            None => KeptRun::Unused,
        }
    }
}
