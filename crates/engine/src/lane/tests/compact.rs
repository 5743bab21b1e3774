//! What is written once more to make room.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_format::SegmentId;
use forebay_types::{EventKey, SourceId};

use super::Driven;

/// Together with it the lane is two thirds full.
const EVENTS: u64 = 1000;
/// One of so many survives.
const SURVIVES: u64 = 10;

fn survivors() -> impl Iterator<Item = EventKey> {
    (0..EVENTS).filter(|event| event % SURVIVES == 0).map(|event| EventKey::new(1, event))
}

/// In which segment the fragment of each event lies.
fn places(driven: &Driven) -> BTreeMap<EventKey, SegmentId> {
    let lane = &driven.lane;
    let fragment = |key| lane.index.event(key).and_then(|event| event.fragment(SourceId(1))).expect("it survives");
    let place = |key| lane.segments.get(fragment(key).segment).id;
    survivors().map(|key| (key, place(key))).collect()
}

/// A lane that has said of a copy that nothing needs the drives any more on which its original lies does not go back to that.
#[test]
fn what_was_copied_lies_where_it_was_copied_to_after_a_crash() {
    let mut driven = Driven::new(|config| config.cache_bytes = 0);
    for event in 0..EVENTS {
        driven.put(EventKey::new(1, event), 1, 1, 30_000);
    }
    for event in (0..EVENTS).filter(|event| event % SURVIVES != 0) {
        driven.delete(EventKey::new(1, event));
    }
    let mut crashes = 0;
    let mut before = places(&driven);
    for _ in 0..20_000 {
        driven.now = driven.now + Duration::from_millis(1);
        driven.turn();
        let now = places(&driven);
        if now == before {
            continue;
        }
        // Copies count, and their originals are there still, as long as no checkpoint has let go of them.
        driven.reopen(false);
        assert_eq!(places(&driven), now, "after crash {crashes}");
        (crashes, before) = (crashes + 1, now);
    }
    assert!(crashes > 2, "{:?}", driven.lane.status());
}
