//! What a lane is told of runs that somebody declared: whether fragments are taken, and whether anything may be freed. It is told anew at each start, and keeps nothing of it.

use forebay_types::{EventId, EventKey, RunId, RunPuts};

use super::Lane;
use crate::planted::{Planted, planted};

/// What holds for a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rule {
    puts: RunPuts,
    is_held: bool,
}

impl Lane {
    /// From now on fragments of a run are taken or not, and releases and deletions free nothing of it when it is held. What is on its way takes its course.
    pub fn rule_run(&mut self, run: RunId, puts: RunPuts, is_held: bool) {
        let rule = Rule { puts, is_held };
        if rule == Rule::default() {
            self.run_rules.remove(&run);
        } else {
            self.run_rules.insert(run, rule);
        }
    }

    /// Events of a run that are here and have this number or a larger one, at most so many, ascending.
    pub fn events_of_run(&self, run: RunId, from: EventId, events_max: usize, into: &mut Vec<EventKey>) {
        let events = self.index.events_from(EventKey { run, event: from }).map(|(key, _)| key);
        into.extend(events.take_while(|key| key.run == run).take(events_max));
    }

    pub(super) fn puts_of(&self, run: RunId) -> RunPuts {
        // Most often nothing is ruled at all, and this is asked for each fragment.
        if self.run_rules.is_empty() || planted(Planted::ClosedRunTakes) {
            return RunPuts::Taken;
        }
        self.run_rules.get(&run).map_or(RunPuts::Taken, |rule| rule.puts)
    }

    pub(super) fn is_held(&self, run: RunId) -> bool {
        self.run_rules.get(&run).is_some_and(|rule| rule.is_held) && !planted(Planted::HeldRunFrees)
    }
}
