//! Bringing the lists of lanes together.

use std::collections::BTreeMap;

use forebay_protocol::{RunInfo, StreamInfo};
use forebay_types::limits::STREAMS_MAX;
use forebay_types::{RunId, StreamName};

/// The counts of each stream, added up, by name. Lanes know their streams apart; of more than a message takes, the first by name.
pub(crate) fn merge_streams(streams: impl IntoIterator<Item = StreamInfo>) -> Vec<StreamInfo> {
    let mut merged: BTreeMap<StreamName, u64> = BTreeMap::new();
    for stream in streams {
        *merged.entry(stream.name).or_default() += stream.accepted;
    }
    merged.into_iter().map(|(name, accepted)| StreamInfo { name, accepted }).take(STREAMS_MAX).collect()
}

/// The counts of each run, added up, by number.
pub(crate) fn merge_runs(runs: impl IntoIterator<Item = RunInfo>) -> Vec<RunInfo> {
    let mut merged: BTreeMap<RunId, RunInfo> = BTreeMap::new();
    for run in runs {
        let Some(sum) = merged.get_mut(&run.run) else {
            merged.insert(run.run, run);
            continue;
        };
        // A lane whose events of the run are all over tells no range.
        let told = |run: &RunInfo| run.events > run.finished;
        (sum.first_event, sum.last_event) = match (told(sum), told(&run)) {
            (true, true) => (sum.first_event.min(run.first_event), sum.last_event.max(run.last_event)),
            (false, true) => (run.first_event, run.last_event),
            (_, false) => (sum.first_event, sum.last_event),
        };
        sum.events += run.events;
        sum.undecided += run.undecided;
        sum.finished += run.finished;
    }
    merged.into_values().collect()
}

#[cfg(test)]
mod tests {
    use forebay_types::EventId;

    use super::*;

    #[test]
    fn runs_and_streams_add_up() {
        let run = |events, finished, first, last| RunInfo {
            run: RunId(3),
            events,
            undecided: events - finished,
            finished,
            first_event: EventId(first),
            last_event: EventId(last),
        };
        let merged = merge_runs([run(4, 4, 0, 0), run(5, 1, 100, 200), run(2, 0, 90, 91), run(1, 1, 0, 0)]);
        assert_eq!(merged, [RunInfo { undecided: 6, ..run(12, 6, 90, 200) }]);
        let stream = |name: &str, accepted| StreamInfo { name: name.parse().expect("a name"), accepted };
        let merged = merge_streams([stream("b", 1), stream("a", 2), stream("b", 40)]);
        assert_eq!(merged, [stream("a", 2), stream("b", 41)]);
    }
}
