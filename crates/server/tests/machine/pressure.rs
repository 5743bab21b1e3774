//! A lane that fills: whose reads are slowed, in which order, and what is not.

use std::time::Duration;

use forebay_protocol::{Class, DecideReply, Delete, Get, Kind, PutReply};
use forebay_server::Pressure;
use forebay_types::{DecideOutcome, EventKey, FragmentId, PutOutcome};

use crate::fake::{Will, World, config, fragment, put_frame};

const BYTES: usize = 64 << 10;
/// Fragments that each reader asks for: more than one connection is served at once.
const ASKED: u64 = 32;
/// So many readers of one class want more than all reads that a lane has under way.
const READERS: u64 = 20;

/// The lane has so many of a hundred segments free, and it is seen.
fn free(world: &mut World, segments: u64) {
    world.lane.segments_free = segments;
    world.now = world.now + Duration::from_millis(50);
    world.turn(false);
}

/// Readers of a class, each of which asks for fragments that lie on the drives.
fn readers(world: &mut World, class: Class, count: u64) -> Vec<u64> {
    let first = world.peers.len() as u64 * ASKED;
    let reader = |reader: u64| {
        let events = first + reader * ASKED..first + (reader + 1) * ASKED;
        let ids: Vec<FragmentId> = events
            .map(|event| {
                let (id, payload) = fragment(event, 1, BYTES);
                world.lane.stored.insert(id, (payload, false));
                id
            })
            .collect();
        let id = world.connect(class);
        world.ask(id, 5, &Get { ids });
        id
    };
    (0..count).map(reader).collect()
}

/// Bytes that the drives are asked for.
fn under_way(world: &World) -> usize {
    world.lane.reads.len() * BYTES
}

#[test]
fn readers_are_slowed_class_by_class_and_none_is_stopped() {
    let slowed = [(Class::Monitor, 20, 1 << 20), (Class::Mover, 15, 4 << 20), (Class::Filter, 5, 8 << 20)];
    for (class, mark, left) in slowed {
        for (segments_free, expected) in [(mark, 16 << 20), (mark - 1, left), (0, left)] {
            let mut world = World::new(config());
            free(&mut world, segments_free);
            readers(&mut world, class, READERS);
            world.turn(false);
            assert_eq!(under_way(&world), expected, "{class:?} with {segments_free} segments free");
        }
    }
}

#[test]
fn who_waits_goes_on_as_reads_end_and_at_once_when_there_is_room() {
    let mut world = World::new(config());
    free(&mut world, 0);
    let ids = readers(&mut world, Class::Monitor, READERS);
    world.turn(false);
    assert_eq!((world.service.pressure(), under_way(&world)), (Pressure::FiltersSlowed, 1 << 20));
    // Nothing is to be done until a read ends: nobody turns in vain meanwhile.
    world.turn(false);
    assert!(!world.service.has_work());
    world.lane.settle();
    world.turn(true);
    assert_eq!(under_way(&world), 1 << 20);
    free(&mut world, 100);
    assert_eq!((world.service.pressure(), under_way(&world)), (Pressure::None, 16 << 20));
    world.run();
    let answered: usize = ids.iter().flat_map(|id| world.take(*id)).map(|frame| frame.payload.len()).sum();
    assert_eq!(answered, (READERS * ASKED) as usize * BYTES);
}

#[test]
fn a_filter_is_served_at_every_turn_however_many_others_read() {
    for segments_free in [100, 19, 14, 9, 4, 0] {
        let mut world = World::new(config());
        free(&mut world, segments_free);
        for class in [Class::Monitor, Class::Mover] {
            readers(&mut world, class, READERS);
        }
        world.turn(false);
        let filter = readers(&mut world, Class::Filter, 1)[0];
        let mut turns = 0;
        while world.take(filter).is_empty() {
            // The drives answer what they were asked first, a read a turn.
            let (token, id) = world.lane.reads.remove(0);
            world.lane.finish_read(token, id);
            world.turn(true);
            assert!(!world.service.has_stuck_readers(), "{segments_free} segments free");
            turns += 1;
        }
        // When nobody is slowed all that was asked before comes first; then only what those may have who are slowed more.
        let others = if segments_free < 15 { 5 << 20 } else { 16 << 20 };
        assert!(turns <= others / BYTES + 2, "{turns} turns with {segments_free} segments free");
    }
}

#[test]
fn what_frees_space_is_not_slowed() {
    let mut world = World::new(config());
    free(&mut world, 0);
    readers(&mut world, Class::Monitor, READERS);
    world.turn(false);
    let monitor = world.connect(Class::Monitor);
    let events: Vec<EventKey> = (0..500).map(|event| EventKey::new(1, event)).collect();
    world.ask(monitor, 7, &Delete { events });
    world.turn(false);
    assert_eq!(world.lane.decided.len(), 500, "all of them are with the lane after one turn");
    let decided = std::mem::take(&mut world.lane.decided);
    let done = |(token, _)| forebay_engine::Reply::Decided { token, outcome: DecideOutcome::Done };
    world.lane.replies.extend(decided.into_iter().map(done));
    world.turn(true);
    let reply: DecideReply = world.take(monitor)[0].message();
    assert!(reply.outcomes.iter().all(|outcome| *outcome == DecideOutcome::Done));
}

#[test]
fn who_is_refused_is_asked_to_wait_even_when_nobody_saw_it_come() {
    let mut world = World::new(config());
    let id = world.connect(Class::Readout);
    world.send(id, &put_frame(5, &[fragment(1, 1, 10), fragment(2, 1, 10)]));
    world.lane.will = [Will::Take, Will::BeFull].into();
    world.run();
    let frames = world.take(id);
    let reply: PutReply = frames[0].message();
    assert_eq!((frames[0].kind, reply.busy_ms, reply.credit_bytes), (Kind::PutReply, 200, 16 << 10));
    assert_eq!(reply.outcomes, [PutOutcome::Durable, PutOutcome::NoSpace]);
    assert_eq!(world.service.put_replies_busy(), 1);
    free(&mut world, 100);
    assert_eq!(world.service.busy_ms(), 0, "there was room all the same");
}
