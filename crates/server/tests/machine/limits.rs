//! Connections that stand still harm nobody.

use std::time::Duration;

use forebay_protocol::{Accepted, Class, Get, Kind, Ping};
use forebay_server::{ServiceConfig, Stall};
use forebay_types::{FragmentId, Time};

use crate::fake::{World, config, fragment, put_frame};

#[test]
fn half_a_frame_is_given_up_and_what_it_held_is_free_again() {
    let mut world = World::new(config());
    let stalled: Vec<u64> = (0..20).map(|_| world.connect(Class::Readout)).collect();
    let frame = put_frame(5, &[fragment(1, 1, 900_000)]);
    for id in &stalled {
        world.send(*id, &frame[..500_000]);
    }
    world.turn(false);
    world.turn(false);
    assert!(world.staging_most <= 4 << 20, "{} bytes of 4 MiB", world.staging_most);
    // A small writer goes on meanwhile.
    let writer = world.connect(Class::Readout);
    for request in 0..50 {
        world.send(writer, &put_frame(request, &[fragment(2, request as u32, 10_000)]));
    }
    for _ in 0..10 {
        world.lane.settle();
        world.turn(true);
    }
    assert_eq!(world.take(writer).len(), 50);
    // Those that hold memory are given up; the others have their turn then, and are given up too.
    let mut closed = 0;
    for round in 1..=20u64 {
        world.now = Time(0) + Duration::from_secs(11 * round);
        for (id, stall) in world.service.stalled(world.now) {
            assert!(stalled.contains(&id));
            assert!(stall.to_string().contains("put 5"), "{stall}");
            world.service.close(id);
            world.peers.remove(&id);
            closed += 1;
        }
        world.turn(true);
    }
    assert_eq!((closed, world.service.staging_bytes()), (20, 0));
    world.ask(writer, 99, &Ping);
    world.turn(true);
    assert_eq!(world.take(writer)[0].kind, Kind::Done);
}

#[test]
fn many_that_wait_for_memory_in_the_middle_of_a_frame_all_go_on() {
    for (bytes, first) in [(10_000, 5_000), (200_000, 100_000), (700_000, 300_000)] {
        let mut world = World::new(ServiceConfig { staging_bytes: 2 << 20, ..config() });
        let writers: Vec<u64> = (0..100).map(|_| world.connect(Class::Readout)).collect();
        let frame = |writer: u64| put_frame(5, &[fragment(writer, 1, bytes), fragment(writer, 2, bytes)]);
        for id in &writers {
            world.send(*id, &frame(*id)[..first]);
            world.turn(false);
        }
        assert!(world.staging_most <= 4 << 20, "{} bytes", world.staging_most);
        for id in &writers {
            world.send(*id, &frame(*id)[first..]);
        }
        // Each turn is as if all that had been read had come just now.
        for round in 1..200u64 {
            world.now = Time(0) + Duration::from_secs(round);
            world.lane.settle();
            world.turn(true);
            assert!(world.service.stalled(world.now).is_empty(), "bytes are there, but nobody reads them");
        }
        assert_eq!(world.lane.given.len(), 200);
        assert!(writers.iter().all(|id| world.take(*id).len() == 1));
        assert_eq!(world.service.staging_bytes(), 0);
    }
}

#[test]
fn a_larger_fragment_behind_a_large_one_gets_its_memory() {
    let mut world = World::new(config());
    let id = world.connect(Class::Readout);
    world.send(id, &put_frame(5, &[fragment(1, 1, 300_000)]));
    world.send(id, &put_frame(6, &[fragment(1, 2, 900_000)]));
    world.run();
    assert_eq!(world.take(id).len(), 2);
    assert_eq!(world.service.staging_bytes(), 0);
}

#[test]
fn writers_whose_fragments_grow_do_not_wait_for_each_other() {
    for count in [2, 4, 30] {
        let mut world = World::new(ServiceConfig { staging_bytes: 2 << 20, ..config() });
        let writers: Vec<u64> = (0..count).map(|_| world.connect(Class::Readout)).collect();
        for (writer, id) in writers.iter().enumerate() {
            for (source, bytes) in [(0, 500_000), (1, 600_000), (2, 10), (3, 300_000), (4, 1_000_000), (5, 270_000)] {
                world.send(*id, &put_frame(source.into(), &[fragment(writer as u64, source, bytes)]));
            }
        }
        world.run();
        for id in &writers {
            assert_eq!(world.take(*id).len(), 6, "of {count} writers");
        }
        assert_eq!(world.service.staging_bytes(), 0);
    }
}

#[test]
fn who_does_not_read_its_answers_keeps_no_large_buffer_from_others() {
    let mut world = World::new(config());
    let (deaf, writer) = (world.connect(Class::Readout), world.connect(Class::Readout));
    let (id, payload) = fragment(9, 9, 900_000);
    world.lane.stored.insert(id, (payload, true));
    world.peers.get_mut(&deaf).expect("open").deaf = true;
    world.send(deaf, &put_frame(5, &[fragment(1, 1, 1_000_000)]));
    for request in 6..30 {
        world.ask(deaf, request, &Get { ids: vec![id] });
    }
    for _ in 0..10 {
        world.lane.settle();
        world.turn(true);
    }
    assert!(world.service.staging_bytes() <= 8 << 10, "{} bytes are held", world.service.staging_bytes());
    world.send(writer, &put_frame(5, &[fragment(2, 1, 1_000_000)]));
    world.run();
    assert_eq!(world.take(writer).len(), 1);
}

#[test]
fn small_fragments_behind_a_large_one_do_not_keep_its_memory_from_others() {
    let mut world = World::new(config());
    let writers: Vec<u64> = (0..3).map(|_| world.connect(Class::Readout)).collect();
    for (writer, id) in writers.iter().enumerate().take(2) {
        world.send(*id, &put_frame(1, &[fragment(1, writer as u32, 500_000)]));
        for event in 2..1000 {
            world.send(*id, &put_frame(event, &[fragment(event, writer as u32, 10_000)]));
        }
    }
    world.turn(true);
    world.send(writers[2], &put_frame(1, &[fragment(1, 2, 1_000_000)]));
    for _ in 0..4 {
        world.lane.settle();
        world.turn(true);
    }
    assert!(!world.peers[&writers[0]].wire.is_empty(), "the others have more to send all the while");
    assert_eq!(world.take(writers[2]).len(), 1);
}

#[test]
fn a_peer_that_is_gone_while_it_waits_for_memory_leaves_nothing_behind() {
    let mut world = World::new(config());
    let (first, second) = (world.connect(Class::Readout), world.connect(Class::Readout));
    let frame = put_frame(5, &[fragment(1, 1, 1_000_000)]);
    for id in [first, second] {
        world.send(id, &frame[..600_000]);
        world.turn(false);
    }
    world.service.close(second);
    world.peers.remove(&second);
    world.turn(false);
    world.service.close(first);
    world.peers.remove(&first);
    world.turn(false);
    assert_eq!((world.service.staging_bytes(), world.service.requests_pending()), (0, 0));
}

#[test]
fn a_frame_that_comes_in_drops_is_given_up_and_a_slow_one_is_not() {
    for (bytes_each, gives_up) in [(10, true), (20_000, false)] {
        let mut world = World::new(config());
        let id = world.connect(Class::Readout);
        let frame = put_frame(5, &[fragment(1, 1, 900_000)]);
        world.send(id, &frame[..100]);
        world.turn(false);
        let mut at = 100;
        let mut given_up = false;
        for round in 1..30u64 {
            world.now = Time(0) + Duration::from_secs(round);
            world.turn(false);
            world.send(id, &frame[at..at + bytes_each]);
            at += bytes_each;
            world.turn(false);
            given_up |= !world.service.stalled(world.now).is_empty();
        }
        assert_eq!(given_up, gives_up, "{bytes_each} bytes a second");
    }
}

#[test]
fn idle_connections_are_never_given_up_and_hold_no_buffers() {
    let mut world = World::new(config());
    let id = world.connect(Class::Readout);
    world.send(id, &put_frame(5, &[fragment(1, 1, 1000)]));
    world.run();
    world.now = Time(0) + Duration::from_secs(100_000);
    assert_eq!((world.service.stalled(world.now).len(), world.service.staging_bytes()), (0, 0));
}

#[test]
fn a_reader_that_does_not_read_is_not_served_further_and_delays_nobody() {
    let mut world = World::new(ServiceConfig { out_buffer_bytes: 512 << 10, ..config() });
    let (deaf, reader) = (world.connect(Class::Filter), world.connect(Class::Monitor));
    for event in 0..100 {
        let (id, payload) = fragment(event, 1, 100_000);
        world.lane.stored.insert(id, (payload, event % 2 == 0));
    }
    world.peers.get_mut(&deaf).expect("open").deaf = true;
    for request in 0..50 {
        let ids = (0..100).map(|event| FragmentId::new(1, event, 1)).collect();
        world.ask(deaf, request, &Get { ids });
    }
    world.ask(reader, 7, &Get { ids: (0..100).map(|event| FragmentId::new(1, event, 1)).collect() });
    for _ in 0..200 {
        world.lane.settle();
        world.turn(true);
    }
    let held: usize = world.service.pieces_to_send(deaf).map(<[u8]>::len).sum();
    assert!(held < (512 << 10) + (2 << 20), "{held} bytes wait for who does not read");
    let answer = world.take(reader);
    assert!(!answer.last().expect("answered").more, "the other reader has its answer");
    // When it reads at last, it gets everything.
    world.peers.get_mut(&deaf).expect("open").deaf = false;
    world.run();
    let frames = world.take(deaf);
    assert_eq!(frames.iter().filter(|frame| !frame.more).count(), 50);
    let payload: usize = frames.iter().map(|frame| frame.payload.len()).sum();
    assert_eq!(payload, 50 * 100 * 100_000);
}

#[test]
fn many_that_do_not_read_hold_no_more_together_than_a_few_and_are_given_up_for_others() {
    let out_buffer_bytes = 1 << 20;
    let mut world = World::new(ServiceConfig { out_buffer_bytes, ..config() });
    for event in 0..100 {
        let (id, payload) = fragment(event, 1, 100_000);
        world.lane.stored.insert(id, (payload, event % 2 == 0));
    }
    let all = || Get { ids: (0..100).map(|event| FragmentId::new(1, event, 1)).collect() };
    let deaf: Vec<u64> = (0..100).map(|_| world.connect(Class::Filter)).collect();
    for id in &deaf {
        world.peers.get_mut(id).expect("open").deaf = true;
        world.ask(*id, 5, &all());
    }
    for _ in 0..100 {
        world.lane.settle();
        world.turn(true);
    }
    let held: usize = deaf.iter().flat_map(|id| world.service.pieces_to_send(*id)).map(<[u8]>::len).sum();
    let bound = 4 * out_buffer_bytes + (2 << 20) + (16 << 20);
    assert!(held < bound, "{held} bytes wait for who does not read");
    // Writers and those who look are served all the same; another reader when the first of these are given up.
    let (reader, writer) = (world.connect(Class::Filter), world.connect(Class::Readout));
    world.ask(reader, 6, &all());
    world.ask(reader, 7, &forebay_protocol::Status);
    world.send(writer, &put_frame(7, &[fragment(200, 1, 1000)]));
    for _ in 0..10 {
        world.lane.settle();
        world.turn(true);
    }
    assert_eq!((world.take(writer).len(), world.take(reader).len()), (1, 0));
    let mut given_up = 0;
    for round in 1..150u64 {
        world.now = Time(0) + Duration::from_secs(3 * round);
        for (id, _) in world.service.stalled(world.now) {
            assert!(deaf.contains(&id), "{id} reads");
            world.service.close(id);
            world.peers.remove(&id);
            given_up += 1;
        }
        world.lane.settle();
        world.turn(true);
    }
    assert_eq!(given_up, 100);
    let frames = world.take(reader);
    let read = frames.iter().filter(|frame| frame.kind == Kind::GetReply).map(|frame| frame.payload.len());
    assert_eq!((read.sum::<usize>(), frames.last().map(|frame| frame.kind)), (10_000_000, Some(Kind::StatusReply)));
}

#[test]
fn lists_take_their_share_of_a_turn() {
    let mut world = World::new(config());
    let (monitor, writer) = (world.connect(Class::Monitor), world.connect(Class::Readout));
    let stream: forebay_types::StreamName = "physics".parse().expect("a name");
    for request in 0..2000 {
        world.ask(monitor, request, &Accepted { stream: stream.clone(), after: None, max: 16_384 });
    }
    world.send(writer, &put_frame(7, &[fragment(1, 1, 1000)]));
    world.turn(false);
    assert!((1..=17).contains(&world.lane.lists.get()), "{} lists in a turn", world.lane.lists.get());
    world.run();
    assert_eq!((world.take(monitor).len(), world.take(writer).len()), (2000, 1));
}

#[test]
fn who_never_reads_is_given_up_in_the_end() {
    let mut world = World::new(config());
    let deaf = world.connect(Class::Filter);
    world.peers.get_mut(&deaf).expect("open").deaf = true;
    world.ask(deaf, 5, &Ping);
    world.turn(false);
    assert!(world.service.stalled(Time(0) + Duration::from_secs(59)).is_empty());
    let stalled = world.service.stalled(Time(0) + Duration::from_secs(60));
    assert!(matches!(stalled[..], [(id, Stall::Unread { bytes: 32, .. })] if id == deaf), "{stalled:?}");
}

#[test]
fn puts_come_before_the_reads_of_monitors() {
    let mut world = World::new(ServiceConfig { out_buffer_bytes: 64 << 20, ..config() });
    let (writer, monitor) = (world.connect(Class::Readout), world.connect(Class::Monitor));
    for event in 0..100 {
        let (id, payload) = fragment(event, 1, 50_000);
        world.lane.stored.insert(id, (payload, true));
    }
    for request in 0..20 {
        world.ask(monitor, request, &Get { ids: (0..100).map(|event| FragmentId::new(1, event, 1)).collect() });
        world.send(writer, &put_frame(request, &[fragment(request, 2, 1_000_000)]));
    }
    world.turn(true);
    let read: usize = world.take(monitor).iter().map(|frame| frame.payload.len()).sum();
    assert!(world.lane.given.len() >= 4, "{} puts were taken in the turn", world.lane.given.len());
    assert!((1..3 << 20).contains(&read), "{read} bytes were read in the turn");
    world.run();
    assert_eq!(world.lane.given.len(), 20);
}
