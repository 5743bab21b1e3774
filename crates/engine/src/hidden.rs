//! What a lane held and cannot name any more: the tables that named it are damaged on more drives than parity makes up for, or lie on drives that
//! do not answer. Whoever asks for an id that may be among it is told so, and not that there is no such thing.

use forebay_format::FlushHeader;
use forebay_types::{EventId, EventKey, ReadOutcome, RunId};

use crate::planted::{Planted, planted};

/// Ranges that are told apart; with more of them everything may be hidden.
const RANGES_MAX: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Range {
    outcome: ReadOutcome,
    runs: (RunId, RunId),
    events: (EventId, EventId),
}

impl Range {
    fn may_hold_run(&self, run: RunId) -> bool {
        (self.runs.0..=self.runs.1).contains(&run)
    }
}

/// Ids that flushes may hold whose tables cannot be read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hidden {
    ranges: Vec<Range>,
}

impl Hidden {
    /// A flush of which a header is left, which says between which runs and events its records lie.
    pub(crate) fn add(&mut self, outcome: ReadOutcome, header: &FlushHeader) {
        self.add_range(Range {
            outcome,
            runs: (header.run_min, header.run_max),
            events: (header.event_min, header.event_max),
        });
    }

    /// A flush of which it is known between which runs and events, the first and the last of them, its records lie.
    pub(crate) fn add_ids(&mut self, outcome: ReadOutcome, runs: (u32, u32), events: (u64, u64)) {
        let (runs, events) = ((RunId(runs.0), RunId(runs.1)), (EventId(events.0), EventId(events.1)));
        self.add_range(Range { outcome, runs, events });
    }

    /// An event of which more may be where nothing can be read now.
    pub(crate) fn add_event(&mut self, outcome: ReadOutcome, key: EventKey) {
        self.add_range(Range { outcome, runs: (key.run, key.run), events: (key.event, key.event) });
    }

    /// A flush of which nothing is left: any id may have been in it.
    pub(crate) fn add_any(&mut self, outcome: ReadOutcome) {
        self.ranges.retain(|range| range.outcome != outcome);
        let (runs, events) = ((RunId(0), RunId(u32::MAX)), (EventId(0), EventId(u64::MAX)));
        self.ranges.push(Range { outcome, runs, events });
    }

    /// What another one hides, too.
    pub(crate) fn extend(&mut self, other: Hidden) {
        other.ranges.into_iter().for_each(|range| self.add_range(range));
    }

    fn add_range(&mut self, range: Range) {
        if self.ranges.len() == RANGES_MAX {
            // All become one: what a drive that comes back may bring is not lost.
            let unavailable = |range: &Range| range.outcome == ReadOutcome::Unavailable;
            let any = self.ranges.iter().chain([&range]).any(unavailable);
            self.ranges.clear();
            self.add_any(if any { ReadOutcome::Unavailable } else { range.outcome });
        } else {
            self.ranges.push(range);
        }
    }

    /// Whether an id that is not known may be hidden, and how. Where a drive that comes back may bring it, that is said.
    pub(crate) fn outcome_of(&self, key: EventKey) -> Option<ReadOutcome> {
        if planted(Planted::LossUnreported) {
            return None;
        }
        self.outcome_where(|range| {
            range.may_hold_run(key.run) && (range.events.0..=range.events.1).contains(&key.event)
        })
    }

    /// Whether any event of a run may be hidden, and how.
    pub(crate) fn outcome_of_run(&self, run: RunId) -> Option<ReadOutcome> {
        self.outcome_where(|range| range.may_hold_run(run))
    }

    fn outcome_where(&self, holds: impl Fn(&Range) -> bool) -> Option<ReadOutcome> {
        let outcomes = self.ranges.iter().filter(|range| holds(range)).map(|range| range.outcome);
        outcomes.max_by_key(|outcome| *outcome == ReadOutcome::Unavailable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_ranges_become_one_that_hides_everything() {
        let mut hidden = Hidden::default();
        let range = |event| Range {
            outcome: ReadOutcome::Lost,
            runs: (RunId(1), RunId(1)),
            events: (EventId(event), EventId(event)),
        };
        (0..RANGES_MAX as u64).for_each(|event| hidden.add_range(range(event * 2)));
        assert_eq!(hidden.outcome_of(EventKey::new(1, 4)), Some(ReadOutcome::Lost));
        assert_eq!(hidden.outcome_of(EventKey::new(1, 5)), None);
        assert_eq!(hidden.outcome_of(EventKey::new(2, 4)), None);
        let of_run = |hidden: &Hidden, run| hidden.outcome_of_run(RunId(run));
        assert_eq!((of_run(&hidden, 1), of_run(&hidden, u32::MAX)), (Some(ReadOutcome::Lost), None));
        hidden.add_range(range(1));
        assert_eq!(hidden.outcome_of(EventKey::new(1, 5)), Some(ReadOutcome::Lost));
        hidden.add_range(Range { outcome: ReadOutcome::Unavailable, ..range(5) });
        assert_eq!(hidden.outcome_of(EventKey::new(1, 5)), Some(ReadOutcome::Unavailable));
        assert_eq!(hidden.outcome_of(EventKey::new(2, 6)), Some(ReadOutcome::Lost));
        assert_eq!(of_run(&hidden, u32::MAX), Some(ReadOutcome::Lost));
        (0..2 * RANGES_MAX as u64).for_each(|event| hidden.add_range(range(event * 2)));
        assert_eq!(
            hidden.outcome_of(EventKey::new(1, 5)),
            Some(ReadOutcome::Unavailable),
            "a drive may still bring it"
        );
    }
}
