//! Reads, from memory and from drives.

use std::collections::{BTreeMap, BTreeSet};

use forebay_protocol::{
    Class, EventState, Get, GetEvent, GetEventReply, GetReply, Kind, Lease, LeaseReply, Losses, Message, RunsReply,
    StatusReply, Trace,
};
use forebay_types::{EventKey, FragmentId, ReadOutcome, SourceId};
use proptest::prelude::*;

use crate::fake::{Received, World, config, fragment};

/// What the frames of a request say, with the order of their flags checked.
fn of_request(frames: &[Received], request: u64, kind: Kind) -> Vec<&Received> {
    let frames: Vec<_> = frames.iter().filter(|frame| frame.request == request).collect();
    assert!(frames.iter().all(|frame| frame.kind == kind));
    let (last, before) = frames.split_last().expect("answered");
    assert!(!last.more && before.iter().all(|frame| frame.more), "only the last frame has none behind it");
    frames
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn every_fragment_is_answered_once_with_its_bytes(
        stored in prop::collection::btree_map(0..60u64, (0..80_000usize, prop::bool::weighted(0.7)), 0..40),
        requests in prop::collection::vec(prop::collection::vec(0..70u64, 0..50), 1..5),
        finish in prop::collection::vec(0..50usize, 0..40),
    ) {
        let mut world = World::new(config());
        let id = world.connect(Class::Filter);
        for (event, (bytes, cached)) in &stored {
            let (id, payload) = fragment(*event, 1, *bytes);
            world.lane.stored.insert(id, (payload, *cached));
        }
        for (number, events) in requests.iter().enumerate() {
            let ids = events.iter().map(|event| FragmentId::new(1, *event, 1)).collect();
            world.ask(id, 10 + number as u64, &Get { ids });
        }
        for at in finish {
            world.turn(false);
            if !world.lane.reads.is_empty() {
                let at = at % world.lane.reads.len();
                let (token, id) = world.lane.reads.remove(at);
                world.lane.finish_read(token, id);
            }
        }
        world.run();
        let frames = world.take(id);
        for (number, events) in requests.iter().enumerate() {
            let mut answered = BTreeSet::new();
            for frame in of_request(&frames, 10 + number as u64, Kind::GetReply) {
                for (entry, payload) in GetReply::decode(&frame.table, &frame.payload).expect("sound").entries() {
                    prop_assert!(answered.insert(entry.index));
                    let event = events[entry.index as usize];
                    match stored.get(&event) {
                        None => prop_assert_eq!(entry.outcome, ReadOutcome::NotFound),
                        Some((bytes, _)) => {
                            prop_assert_eq!(entry.outcome, ReadOutcome::Found);
                            let expected = fragment(event, 1, *bytes).1;
                            prop_assert!(payload == expected, "bytes of event {}", event);
                            prop_assert_eq!(entry.crc, forebay_types::crc32c(payload));
                        }
                    }
                }
            }
            prop_assert_eq!(answered.len(), events.len());
        }
        prop_assert_eq!(world.service.requests_pending(), 0);
    }

    #[test]
    fn every_event_has_one_line_and_its_fragments(
        stored in prop::collection::btree_map((0..12u64, 0..9u32), (0..300_000usize, prop::bool::weighted(0.7)), 0..40),
        events in prop::collection::vec(0..15u64, 0..30),
        sources in prop::option::of(prop::collection::vec(0..9u32, 0..6)),
        whole in prop::collection::btree_set(0..12u64, 0..8),
    ) {
        let mut world = World::new(config());
        let id = world.connect(Class::Mover);
        for ((event, source), (bytes, cached)) in &stored {
            let (id, payload) = fragment(*event, *source, *bytes);
            world.lane.stored.insert(id, (payload, *cached));
        }
        let is_stored = |event: &u64| stored.range((*event, 0)..=(*event, u32::MAX)).next().is_some();
        world.lane.whole = whole.into_iter().filter(is_stored).map(|event| EventKey::new(1, event)).collect();
        let finished = EventKey::new(1, 1000);
        let mut keys: Vec<_> = events.iter().map(|event| EventKey::new(1, *event)).collect();
        keys.push(finished);
        let wanted = sources.clone().map(|sources| sources.into_iter().map(SourceId).collect());
        world.ask(id, 77, &GetEvent { events: keys.clone(), sources: wanted });
        world.run();
        let frames = world.take(id);
        let (mut lines, mut fragments) = (BTreeMap::new(), BTreeSet::new());
        for frame in of_request(&frames, 77, Kind::GetEventReply) {
            let reply = GetEventReply::decode(&frame.table, &frame.payload).expect("sound");
            for line in reply.lines() {
                prop_assert!(lines.insert(line.index, line).is_none());
            }
            for (entry, payload) in reply.entries() {
                prop_assert!(fragments.insert((entry.index, entry.source)));
                let key = keys[entry.index as usize];
                let bytes = stored[&(key.event.0, entry.source.0)].0;
                prop_assert_eq!(entry.outcome, ReadOutcome::Found);
                prop_assert!(payload == fragment(key.event.0, entry.source.0, bytes).1);
            }
        }
        prop_assert_eq!(lines.len(), keys.len());
        for (index, key) in keys.iter().enumerate() {
            let here: Vec<u32> =
                stored.keys().filter(|(event, _)| *event == key.event.0).map(|(_, source)| *source).collect();
            let line = lines[&(index as u32)];
            let expected = match (here.is_empty(), *key == finished) {
                (false, _) => (ReadOutcome::Found, EventState::Undecided, 9),
                (true, false) => (ReadOutcome::NotFound, EventState::Unknown, 0),
                (true, true) => (ReadOutcome::Deleted, EventState::Finished, 0),
            };
            prop_assert_eq!((line.outcome, line.state, line.expected), expected);
            prop_assert_eq!(line.fragments as usize, here.len());
            let asked = here.iter().filter(|source| sources.as_ref().is_none_or(|sources| sources.contains(source)));
            let got = fragments.iter().filter(|(other, _)| *other == index as u32).count();
            prop_assert_eq!(asked.count(), got);
        }
    }
}

#[test]
fn a_lease_tells_how_many_events_are_undecided() {
    let mut world = World::new(config());
    let id = world.connect(Class::Filter);
    world.ask(id, 5, &Lease { max_events: 10, duration_ms: 100, filter: 1, run: None });
    world.ask(id, 6, &Lease { max_events: 2, duration_ms: 100, filter: 1, run: Some(forebay_types::RunId(9)) });
    world.ask(id, 7, &forebay_protocol::Runs);
    world.run();
    let frames = world.take(id);
    let few: LeaseReply = frames[0].message();
    assert_eq!((few.events.len(), few.undecided), (3, 40));
    assert!(few.retry_after_ms > 0);
    let enough: LeaseReply = frames[1].message();
    assert_eq!((enough.events.len(), enough.undecided, enough.retry_after_ms), (2, 2, 0));
    let runs = frames[2].message::<RunsReply>().runs;
    assert_eq!((runs[0].events, runs[0].undecided, runs[0].finished, runs[0].last_event.0), (57, 40, 7, 60));
}

#[test]
fn leases_that_no_filter_can_use_are_refused() {
    let mut world = World::new(config());
    let id = world.connect(Class::Filter);
    let lease = |max_events, duration_ms| Lease { max_events, duration_ms, filter: 1, run: None };
    for (request, (max_events, duration_ms)) in
        [(5, 0), (5, 99), (5, u32::MAX), (0, 0), (5, 100), (5, 3_600_000)].iter().enumerate()
    {
        world.ask(id, request as u64, &lease(*max_events, *duration_ms));
    }
    world.run();
    let kinds: Vec<_> = world.take(id).iter().map(|frame| frame.kind).collect();
    let (refused, leased) = (Kind::Error, Kind::LeaseReply);
    assert_eq!(kinds, [refused, refused, refused, leased, leased, leased]);
}

#[test]
fn traces_and_losses_are_answered_once_with_one_object() {
    let mut world = World::new(config());
    let id = world.connect(Class::Monitor);
    world.ask(id, 1, &Trace { key: EventKey::new(1, 7) });
    world.ask(id, 2, &Losses { from: 10, max: u32::MAX });
    world.run();
    let frames = world.take(id);
    let json = |request| {
        let frame = of_request(&frames, request, Kind::StatusReply)[0];
        let text = StatusReply::decode(&frame.table, &frame.payload).expect("sound").json;
        serde_json::from_str::<serde_json::Value>(&text).expect("JSON")
    };
    assert_eq!((&json(1)["run"], &json(1)["event"], &json(1)["state"]), (&1.into(), &7.into(), &"unknown".into()));
    assert_eq!((&json(2)["next"], &json(2)["not_remembered"]), (&1010.into(), &3.into()), "a page is bounded");

    // A lane that does not know yet what is stored says nothing of an event.
    world.lane.not_serving = true;
    world.ask(id, 3, &Trace { key: EventKey::new(1, 7) });
    world.ask(id, 4, &Losses { from: 0, max: 1 });
    world.run();
    let kinds: Vec<_> = world.take(id).iter().map(|frame| (frame.request, frame.kind)).collect();
    assert_eq!(kinds, [(3, Kind::Error), (4, Kind::Error)]);
    assert_eq!(world.service.requests_pending(), 0);
}
