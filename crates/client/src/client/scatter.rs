//! Spreading lists over lanes, and bringing the answers of lanes together again.

use std::collections::BTreeMap;

use forebay_protocol::{AcceptedReply, RunInfo, StreamInfo};
use forebay_types::limits::BATCH_RECORDS_MAX;
use forebay_types::{RunId, StreamName};

use crate::answer::AcceptedPage;

/// The places 0..`count` by the lane of each, in pieces that one request takes.
pub(crate) fn scatter(count: usize, lane_of: impl Fn(usize) -> u16) -> Vec<(u16, Vec<usize>)> {
    let mut by_lane: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
    for place in 0..count {
        by_lane.entry(lane_of(place)).or_default().push(place);
    }
    let cut = |(lane, places): (u16, Vec<usize>)| -> Vec<(u16, Vec<usize>)> {
        places.chunks(BATCH_RECORDS_MAX).map(|part| (lane, part.to_vec())).collect()
    };
    by_lane.into_iter().flat_map(cut).collect()
}

/// `total` in `parts` as equal parts, the larger ones from `first` on.
pub(super) fn share(total: u32, parts: u16, first: u16) -> Vec<u32> {
    let (parts, first) = (u32::from(parts), u32::from(first));
    (0..parts).map(|part| total / parts + u32::from((part + parts - first % parts) % parts < total % parts)).collect()
}

/// The counts of each stream, added up over lanes.
pub(super) fn merge_streams(streams: impl IntoIterator<Item = StreamInfo>) -> Vec<StreamInfo> {
    let mut merged: BTreeMap<StreamName, u64> = BTreeMap::new();
    for stream in streams {
        let accepted = merged.entry(stream.name).or_default();
        *accepted = accepted.saturating_add(stream.accepted);
    }
    merged.into_iter().map(|(name, accepted)| StreamInfo { name, accepted }).collect()
}

/// The counts of each run, added up over lanes.
pub(super) fn merge_runs(runs: impl IntoIterator<Item = RunInfo>) -> Vec<RunInfo> {
    // A lane whose events of the run are all finished tells no range.
    let tells_range = |run: &RunInfo| run.events > run.finished;
    let mut merged: BTreeMap<RunId, RunInfo> = BTreeMap::new();
    for run in runs {
        let Some(total) = merged.get_mut(&run.run) else {
            merged.insert(run.run, run);
            continue;
        };
        (total.first_event, total.last_event) = match (tells_range(total), tells_range(&run)) {
            (true, true) => (total.first_event.min(run.first_event), total.last_event.max(run.last_event)),
            (false, true) => (run.first_event, run.last_event),
            (_, false) => (total.first_event, total.last_event),
        };
        total.events = total.events.saturating_add(run.events);
        total.undecided = total.undecided.saturating_add(run.undecided);
        total.finished = total.finished.saturating_add(run.finished);
    }
    merged.into_values().collect()
}

/// One ascending list of at most `max` from the lists of all lanes. What a lane has not told yet (it has
/// more) may lie anywhere behind its last event, so the page ends there.
pub(crate) fn merge_accepted(replies: Vec<AcceptedReply>, max: u32) -> AcceptedPage {
    let undecided_floor = replies.iter().filter_map(|reply| reply.undecided_floor).min();
    let untold = replies.iter().filter(|reply| reply.more);
    let known_to = untold.map(|reply| reply.events.last().map(|event| event.key)).min();
    let mut more = known_to.is_some();
    let mut events: Vec<_> = replies.into_iter().flat_map(|reply| reply.events).collect();
    events.sort_by_key(|event| event.key);
    match known_to {
        Some(Some(last)) => events.retain(|event| event.key <= last),
        Some(None) => events.clear(),
        None => {}
    }
    if events.len() > max as usize {
        events.truncate(max as usize);
        more = true;
    }
    AcceptedPage { events, more, undecided_floor }
}

#[cfg(test)]
mod tests {
    use forebay_protocol::AcceptedEvent;
    use forebay_types::{EventId, EventKey};

    use super::*;

    fn reply(events: &[u64], more: bool, floor: Option<u64>) -> AcceptedReply {
        let event =
            |event: &u64| AcceptedEvent { key: EventKey::new(1, *event), fragments: 1, bytes: 1, incomplete: false };
        let undecided_floor = floor.map(|event| EventKey::new(1, event));
        AcceptedReply { events: events.iter().map(event).collect(), more, undecided_floor }
    }

    fn numbers(page: &AcceptedPage) -> Vec<u64> {
        page.events.iter().map(|event| event.key.event.0).collect()
    }

    #[test]
    fn a_page_leaves_out_nothing_that_a_lane_has_not_told() {
        let page = merge_accepted(vec![reply(&[1, 5, 9], true, Some(40)), reply(&[2, 3, 20], false, Some(30))], 100);
        assert_eq!((numbers(&page), page.more), (vec![1, 2, 3, 5, 9], true));
        assert_eq!(page.undecided_floor, Some(EventKey::new(1, 30)));
        let page = merge_accepted(vec![reply(&[1, 5], false, None), reply(&[2], false, None)], 2);
        assert_eq!((numbers(&page), page.more, page.undecided_floor), (vec![1, 2], true, None));
        let page = merge_accepted(vec![reply(&[], true, None), reply(&[2], false, None)], 2);
        assert_eq!((numbers(&page), page.more), (vec![], true));
    }

    #[test]
    fn lists_are_cut_by_lane_and_by_size() {
        let parts = scatter(3 * BATCH_RECORDS_MAX, |place| u16::from(place % 3 == 0));
        let sizes: Vec<_> = parts.iter().map(|(lane, places)| (*lane, places.len())).collect();
        assert_eq!(sizes, [(0, BATCH_RECORDS_MAX), (0, BATCH_RECORDS_MAX), (1, BATCH_RECORDS_MAX)]);
        let mut all: Vec<usize> = parts.into_iter().flat_map(|(_, places)| places).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..3 * BATCH_RECORDS_MAX));
    }

    #[test]
    fn shares_add_up_and_the_larger_ones_turn() {
        assert_eq!(share(10, 4, 0), [3, 3, 2, 2]);
        assert_eq!(share(10, 4, 3), [3, 2, 2, 3]);
        assert_eq!(share(1, 3, 2), [0, 0, 1]);
        assert_eq!(share(0, 3, 2), [0, 0, 0]);
    }

    #[test]
    fn runs_of_lanes_whose_events_are_all_finished_do_not_spoil_the_range() {
        let run = |events, finished, first, last| RunInfo {
            run: RunId(3),
            events,
            undecided: events - finished,
            finished,
            first_event: EventId(first),
            last_event: EventId(last),
        };
        let lanes = [run(4, 4, 0, 0), run(5, 1, 100, 200), run(2, 0, 90, 91), run(1, 1, 0, 0)];
        for turn in 0..4 {
            let mut lanes = lanes;
            lanes.rotate_left(turn);
            assert_eq!(merge_runs(lanes), [RunInfo { undecided: 6, ..run(12, 6, 90, 200) }]);
        }
    }

    #[test]
    fn streams_add_up() {
        let stream = |name: &str, accepted| StreamInfo { name: name.parse().expect("a name"), accepted };
        let merged = merge_streams([stream("b", 1), stream("a", 2), stream("b", 40)]);
        assert_eq!(merged, [stream("a", 2), stream("b", 41)]);
    }
}
