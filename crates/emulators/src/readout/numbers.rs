//! New run and event numbers.

use std::collections::{BTreeSet, HashMap, HashSet};

use forebay_rawdata::Format;
use forebay_types::{EventId, EventKey, RunId};

use super::ReadoutError;

/// The runs that are taken and the event numbers that are used in them.
pub(super) struct Runs {
    taken: BTreeSet<RunId>,
    keep: bool,
    /// What the runs of the present input become.
    renamed: HashMap<RunId, RunId>,
    used: HashMap<RunId, Used>,
}

#[derive(Default)]
struct Used {
    largest: Option<u64>,
    /// The largest before the present input.
    before: Option<u64>,
    /// Those of the first pass over the present input.
    first_pass: HashSet<u64>,
}

impl Runs {
    /// `known` are the runs that the server knows, beside which that of files is never taken; with `keep` they do not matter.
    pub(super) fn new(mut known: BTreeSet<RunId>, keep: bool) -> Runs {
        known.insert(RunId::FILES);
        let taken = if keep { BTreeSet::new() } else { known };
        Runs { taken, keep, renamed: HashMap::new(), used: HashMap::new() }
    }

    /// Another input begins.
    pub(super) fn next_input(&mut self) {
        self.renamed.clear();
        for used in self.used.values_mut() {
            used.before = used.largest;
            used.first_pass = HashSet::new();
        }
    }

    /// The run and number under which an event of the present input is written.
    pub(super) fn rename(
        &mut self,
        format: Format,
        original: EventKey,
        first_pass: bool,
    ) -> Result<EventKey, ReadoutError> {
        let run = match self.renamed.get(&original.run) {
            Some(run) => *run,
            None => {
                let run = self.free_run(format, original.run)?;
                self.taken.insert(run);
                self.renamed.insert(original.run, run);
                run
            }
        };
        let event = self.used.entry(run).or_default().next(original.event.0, first_pass);
        let event = event.filter(|event| *event <= format.event_max().0).ok_or(ReadoutError::NoFreeEvent { run })?;
        Ok(EventKey { run, event: EventId(event) })
    }

    fn free_run(&self, format: Format, run: RunId) -> Result<RunId, ReadoutError> {
        if self.keep {
            return Ok(run);
        }
        let max = format.run_max();
        let above = (run.0..=max.0).map(RunId).find(|run| !self.taken.contains(run));
        let below = || (1..run.0).map(RunId).find(|run| !self.taken.contains(run));
        above.or_else(below).ok_or(ReadoutError::NoFreeRun { format, run })
    }
}

impl Used {
    fn next(&mut self, original: u64, first_pass: bool) -> Option<u64> {
        let free = self.before.is_none_or(|before| original > before);
        let number = if first_pass && free && !self.first_pass.contains(&original) {
            original
        } else {
            self.largest.map_or(Some(0), |largest| largest.checked_add(1))?
        };
        if first_pass {
            self.first_pass.insert(number);
        }
        self.largest = self.largest.max(Some(number));
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rename(runs: &mut Runs, run: u32, event: u64, first_pass: bool) -> (u32, u64) {
        let key = runs.rename(Format::Faser, EventKey::new(run, event), first_pass).expect("a free number");
        (key.run.0, key.event.0)
    }

    #[test]
    fn the_first_pass_keeps_its_numbers_and_the_others_go_on_above() {
        let mut runs = Runs::new(BTreeSet::new(), false);
        runs.next_input();
        for event in [10, 5, 7] {
            assert_eq!(rename(&mut runs, 3, event, true), (3, event), "out of order is no problem");
        }
        assert_eq!(rename(&mut runs, 3, 10, false), (3, 11));
        assert_eq!(rename(&mut runs, 3, 5, false), (3, 12));
        assert_eq!(rename(&mut runs, 3, 5, true), (3, 13), "a number that its file has twice");
    }

    #[test]
    fn a_run_that_is_taken_becomes_the_next_free_one() {
        let mut runs = Runs::new(BTreeSet::from([RunId(3), RunId(4)]), false);
        runs.next_input();
        assert_eq!(rename(&mut runs, 3, 1, true), (5, 1));
        assert_eq!(rename(&mut runs, 3, 2, true), (5, 2));
        runs.next_input();
        assert_eq!(rename(&mut runs, 3, 1, true), (6, 1));
        runs.next_input();
        assert_eq!(rename(&mut runs, 5, 1, true), (7, 1));
        let max = Format::Faser.run_max().0;
        assert_eq!(rename(&mut runs, max, 1, true), (max, 1));
        runs.next_input();
        assert_eq!(rename(&mut runs, max, 1, true), (1, 1), "after the largest run come the small ones");
    }

    #[test]
    fn the_run_of_files_becomes_another_one() {
        let mut runs = Runs::new(BTreeSet::new(), false);
        runs.next_input();
        let key = |run: RunId| EventKey { run, event: EventId(5) };
        let renamed = runs.rename(Format::Mdf, key(RunId::FILES), true).expect("a free run");
        assert_eq!(renamed, key(RunId(1)));
    }

    #[test]
    fn inputs_that_keep_the_same_run_share_its_numbers() {
        let mut runs = Runs::new(BTreeSet::from([RunId(3)]), true);
        runs.next_input();
        assert_eq!(rename(&mut runs, 3, 6001, true), (3, 6001));
        assert_eq!(rename(&mut runs, 3, 6002, true), (3, 6002));
        runs.next_input();
        assert_eq!(rename(&mut runs, 3, 6001, true), (3, 6003));
        assert_eq!(rename(&mut runs, 3, 9000, true), (3, 9000));
    }

    #[test]
    fn without_a_free_number_there_is_an_error() {
        let mut runs = Runs::new(BTreeSet::new(), false);
        assert_eq!(rename(&mut runs, 3, u64::MAX, true), (3, u64::MAX));
        let error = runs.rename(Format::Faser, EventKey::new(3, 1), false);
        assert!(matches!(error, Err(ReadoutError::NoFreeEvent { run: RunId(3) })));
        let last = EventKey { run: RunId(4), event: Format::Besiii.event_max() };
        assert_eq!(runs.rename(Format::Besiii, last, true).expect("a free number"), last);
        let error = runs.rename(Format::Besiii, last, false);
        assert!(matches!(error, Err(ReadoutError::NoFreeEvent { run: RunId(4) })), "a format of smaller numbers");
    }
}
