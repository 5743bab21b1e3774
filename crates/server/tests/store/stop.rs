//! Stopping, and what is there afterwards.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use forebay_client::{Class, Client, ClientConfig};
use forebay_protocol::{LANE_CONTROL, Message as _, Status};
use forebay_types::{DriveNumber, FragmentId, ReadOutcome};

use crate::world::{Raw, World, payload};

#[test]
fn a_stop_under_load_loses_nothing_that_was_acknowledged() {
    let mut world = World::new(2);
    for round in 0..3u32 {
        let address = world.address().to_string();
        let acknowledged = AtomicUsize::new(0);
        let (stop, stopping) = (world.server().stop_handle(), AtomicBool::new(false));
        let ids = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3u32)
                .map(|writer| {
                    let (address, acknowledged, stopping) = (&address, &acknowledged, &stopping);
                    scope.spawn(move || write_until_the_end(address, (round, writer), acknowledged, stopping))
                })
                .collect();
            while acknowledged.load(Ordering::Relaxed) < 1000 {
                std::thread::yield_now();
            }
            stopping.store(true, Ordering::Relaxed);
            stop.stop();
            writers.into_iter().flat_map(|writer| writer.join().expect("no panic")).collect::<BTreeSet<FragmentId>>()
        });
        assert!(world.stop().clean, "the store is marked clean");
        assert!(ids.len() >= 1000);
        world.start();
        let mut reader = world.client(Class::Monitor);
        let status: serde_json::Value = serde_json::from_str(&reader.status().expect("answered")).expect("JSON");
        assert_eq!(status["started_clean"], true);
        let ids: Vec<FragmentId> = ids.into_iter().collect();
        for (id, (outcome, bytes)) in ids.iter().zip(reader.get_many(&ids).expect("answered")) {
            assert_eq!((outcome, bytes == payload(*id, 2000)), (ReadOutcome::Found, true), "{id} was acknowledged");
        }
    }
}

/// Writes until the server is gone; gives what was acknowledged. Before it is told to stop, a slow server is not one that is gone.
fn write_until_the_end(
    address: &str,
    (run, writer): (u32, u32),
    acknowledged: &AtomicUsize,
    stopping: &AtomicBool,
) -> Vec<FragmentId> {
    let config = ClientConfig::new(address, "writer").deadline(Some(Duration::from_millis(500)));
    let mut client = Client::connect(config).expect("connects");
    let (mut kept, mut results) = (Vec::new(), Vec::new());
    for event in 0.. {
        let id = FragmentId::new(run, event, writer);
        let put = client.put(id, 3, &payload(id, 2000));
        client.take_put_results(&mut results);
        let gone = results.iter().any(|result| !result.outcome.is_acknowledged());
        let durable = results.drain(..).filter(|result| result.outcome.is_acknowledged()).map(|result| result.id);
        let before = kept.len();
        kept.extend(durable);
        acknowledged.fetch_add(kept.len() - before, Ordering::Relaxed);
        if stopping.load(Ordering::Relaxed) && (put.is_err() || gone) {
            break;
        }
    }
    kept
}

#[test]
fn a_server_without_clients_stops_at_once_and_starts_again() {
    let mut world = World::new(3);
    for _ in 0..3 {
        assert!(world.stop().clean);
        world.start();
    }
    world.client(Class::Monitor).ping().expect("answered");
}

#[test]
fn control_clients_that_keep_asking_do_not_delay_a_stop() {
    let mut world = World::new(2);
    let stop = world.server().stop_handle();
    let mut asking: Vec<Raw> = (0..4).map(|_| world.raw(LANE_CONTROL, forebay_protocol::Class::Monitor)).collect();
    let mut requests = Vec::new();
    (0..128).for_each(|request| Status.encode(request, &mut requests));
    // None of them reads: all that the server takes is asked for.
    asking.iter_mut().for_each(|raw| raw.send(&requests));
    stop.stop();
    asking.iter_mut().for_each(|raw| drop(std::io::Write::write(&mut raw.stream, &requests)));
    // The lanes are gone when the last of these are answered: nobody waits for them.
    assert!(world.stop().clean);
}

#[test]
fn a_stop_ends_although_the_lanes_can_write_no_more() {
    for round in 0..4u32 {
        let mut world = World::new(2);
        let mut writer = world.client(Class::Readout);
        for event in 0..500 {
            let id = FragmentId::new(round, event, 1);
            writer.put(id, 1, &payload(id, 5000)).expect("taken");
        }
        // The last flushes and checkpoints meet drives that fail, too many to go on without them.
        let (control, stop) = (world.server().control().clone(), world.server().stop_handle());
        if round % 2 == 0 {
            stop.stop();
        }
        for drive in 0..3 {
            control.inject_fault(DriveNumber(drive)).expect("made to fail");
        }
        assert!(!world.stop().clean);
    }
}
