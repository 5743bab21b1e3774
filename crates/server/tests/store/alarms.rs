//! A real server is brought into trouble, and raises the alarm that says so.

use std::os::unix::fs::FileExt;

use forebay_client::{Class, Client, Decision};
use forebay_protocol::{PutEntry, PutReply, encode_put};
use forebay_types::{DecideOutcome, DriveNumber, EventKey, FragmentId, PutOutcome, Verdict, crc32c};
use serde_json::Value;

use crate::world::{World, payload, results};

fn status(client: &mut Client) -> Value {
    serde_json::from_str(&client.status().expect("answered")).expect("JSON")
}

/// The codes that are raised.
fn codes(status: &Value) -> Vec<String> {
    let alarms = status["alarms"].as_array().expect("a list");
    alarms.iter().map(|alarm| alarm["code"].as_str().expect("a code").to_owned()).collect()
}

fn has(status: &Value, code: &str) -> bool {
    codes(status).iter().any(|raised| raised == code)
}

/// Asks until the alarm is raised, or is not; the state then.
fn wait(client: &mut Client, code: &str, raised: bool) -> Value {
    loop {
        let status = status(client);
        if has(&status, code) == raised {
            return status;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Stores so many fragments of this size, each of an event of its own.
fn store(client: &mut Client, run: u32, events: u64, bytes: usize) -> Vec<FragmentId> {
    let ids: Vec<FragmentId> = (0..events).map(|event| FragmentId::new(run, event, 1)).collect();
    for id in &ids {
        client.put(*id, 1, &payload(*id, bytes)).expect("taken");
    }
    assert!(results(client).iter().all(|result| result.outcome == PutOutcome::Durable));
    ids
}

#[test]
fn a_server_that_is_well_raises_nothing_and_each_alarm_tells_all_of_itself() {
    let world = World::new(2);
    let mut client = world.client(Class::Readout);
    store(&mut client, 1, 100, 4000);
    assert_eq!(codes(&status(&mut client)), [""; 0]);
    client.inject_fault(DriveNumber(1)).expect("made to fail");
    store(&mut client, 2, 100, 4000);
    let status = wait(&mut client, "FB-101", true);
    let alarm = status["alarms"].as_array().expect("a list")[0].clone();
    assert_eq!((&alarm["name"], &alarm["severity"]), (&"drive-lost".into(), &"warning".into()));
    assert_eq!(
        (&alarm["effect"], &alarm["runbook"]),
        (&"less-protected".into(), &"docs/runbook.md#fb-101-drive-lost".into())
    );
    assert!(alarm["words"].as_str().expect("words").contains("drive 1 ("), "{alarm}");
    assert!(!alarm["command"].as_str().expect("a command").is_empty() && alarm["raised_s"].is_f64());
    // 3+1: no more may fail.
    assert!(has(&status, "FB-102"), "{:?}", codes(&status));
    assert!(status["drives"][1]["write_errors"].as_u64() > Some(0), "{}", status["drives"][1]);
}

#[test]
fn the_second_drive_that_is_lost_is_critical_and_too_few_stop_the_writing() {
    let world = World::with(1, |world| world.shards = (2, 2));
    let mut client = world.client(Class::Readout);
    store(&mut client, 1, 100, 4000);
    client.inject_fault(DriveNumber(0)).expect("made to fail");
    store(&mut client, 2, 100, 4000);
    let status = wait(&mut client, "FB-101", true);
    assert!(!has(&status, "FB-102") && !has(&status, "FB-402"), "{:?}", codes(&status));
    client.inject_fault(DriveNumber(3)).expect("made to fail");
    // It cannot be stored any more; what it comes to is of no interest here.
    client.put(FragmentId::new(3, 1, 1), 1, b"too much").expect("taken");
    let status = wait(&mut client, "FB-102", true);
    assert!(has(&status, "FB-101"));
    wait(&mut client, "FB-402", true);
}

/// Puts so many fragments of this size at once, with nobody's manners, until one is refused so.
fn put_until(world: &World, (count, bytes): (u64, usize), refusal: PutOutcome, mut look: impl FnMut()) {
    let mut raw = world.raw(0, Class::Readout);
    for request in 0..1_000_000 {
        let ids = (0..count).map(|at| FragmentId::new(9, request * count + at, 1));
        let payloads: Vec<Vec<u8>> = ids.clone().map(|id| payload(id, bytes)).collect();
        let entry = |(id, payload): (FragmentId, &Vec<u8>)| PutEntry {
            id,
            bytes: bytes as u32,
            crc: crc32c(payload),
            expected: 1,
        };
        let entries: Vec<PutEntry> = ids.zip(&payloads).map(entry).collect();
        let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
        let mut frame = Vec::new();
        encode_put(request, &entries, &payloads, &mut frame);
        raw.send(&frame);
        let outcomes = raw.receive().expect("answered").message::<PutReply>().outcomes;
        if outcomes.contains(&refusal) {
            return;
        }
        assert!(outcomes.iter().all(|outcome| *outcome == PutOutcome::Durable), "{outcomes:?}");
        look();
    }
    panic!("it never was refused");
}

#[test]
fn a_store_that_fills_says_so_before_it_is_full_and_after() {
    let world = World::new(1);
    let mut client = world.client(Class::Monitor);
    let mut seen = Vec::new();
    put_until(&world, (1, 300_000), PutOutcome::NoSpace, || seen.extend(codes(&status(&mut client))));
    assert!(seen.iter().any(|code| code == "FB-201"), "{seen:?}");
    assert!(!seen.iter().any(|code| code == "FB-202"), "{seen:?}");
    let full = wait(&mut client, "FB-202", true);
    assert!(!has(&full, "FB-201"), "what is full is not filling");
    let events: Vec<EventKey> = (0..1000).map(|event| EventKey::new(9, event)).collect();
    client.delete(&events).expect("answered");
    let status = wait(&mut client, "FB-202", false);
    assert!(status["totals"]["segments_free"].as_u64() > Some(0));
}

#[test]
fn an_index_that_fills_says_so() {
    let world = World::with(1, |world| world.store.index_bytes = 1 << 20);
    let mut client = world.client(Class::Monitor);
    let mut seen = Vec::new();
    put_until(&world, (100, 1), PutOutcome::IndexFull, || seen.extend(codes(&status(&mut client))));
    assert!(seen.iter().any(|code| code == "FB-203"), "{seen:?}");
    let status = wait(&mut client, "FB-204", true);
    assert!(!has(&status, "FB-203") && !has(&status, "FB-202"), "{:?}", codes(&status));
}

#[test]
fn filters_and_recorders_that_stand_still_are_told_until_they_go_on() {
    let world = World::with(2, |world| {
        world.config.filter_silent_s = 1;
        world.config.recorder_stuck_s = 1;
    });
    let mut client = world.client(Class::Filter);
    store(&mut client, 1, 10, 1000);
    let state = wait(&mut client, "FB-301", true);
    assert!(state["totals"]["oldest_undecided_s"].as_f64() >= Some(0.5), "{}", state["totals"]);
    let mut leased = Vec::new();
    while leased.len() < 10 {
        let lease = client.lease(10, std::time::Duration::from_secs(600), 7, None).expect("answered");
        leased.extend(lease.events);
    }
    wait(&mut client, "FB-301", false);
    let stream: forebay_types::StreamName = "physics".parse().expect("a name");
    let accept = |key| Decision { key, verdict: Verdict::Accept(vec![stream.clone()]), incomplete: false };
    let decisions: Vec<Decision> = leased.iter().map(|event| accept(event.key)).collect();
    assert!(client.decide(&decisions).expect("answered").iter().all(|outcome| *outcome == DecideOutcome::Done));
    let state = wait(&mut client, "FB-302", true);
    assert!(state["totals"]["oldest_accepted_s"].as_f64() >= Some(0.5), "{}", state["totals"]);
    assert_eq!(state["streams"][0], serde_json::json!({"name": "physics", "events_waiting": 10, "events_released": 0}));
    let keys: Vec<EventKey> = leased.iter().map(|event| event.key).collect();
    assert!(client.release(&stream, &keys).expect("answered").iter().all(|outcome| outcome.is_done()));
    wait(&mut client, "FB-302", false);
}

#[test]
fn a_drive_that_becomes_slow_is_named() {
    let world = World::new(1);
    let mut client = world.client(Class::Readout);
    world.server().control().inject_delay(DriveNumber(2), std::time::Duration::from_millis(300)).expect("made slow");
    let state = (1..).find_map(|run| {
        store(&mut client, run, 5, 1000);
        Some(status(&mut client)).filter(|status| has(status, "FB-103"))
    });
    let state = state.expect("raised");
    assert_eq!(state["drives"][2]["is_slow"], true, "{}", state["drives"]);
    assert!(state["drives"][2]["operations_slow"].as_u64() > Some(0), "{}", state["drives"][2]);
    let alarms = state["alarms"].as_array().expect("a list");
    let slow = alarms.iter().find(|alarm| alarm["code"] == "FB-103").expect("raised");
    assert!(slow["words"].as_str().expect("words").contains("drive 2 ("), "{slow}");
}

/// Overwrites what lies on a drive under the running server.
fn damage(world: &World, drive: usize) {
    let file = std::fs::OpenOptions::new().write(true).open(&world.drives()[drive]).expect("opened");
    let bytes = file.metadata().expect("a file").len();
    let noise: Vec<u8> = (0..bytes).map(|at| (at.wrapping_mul(0x9E37_79B9) >> 7) as u8).collect();
    file.write_all_at(&noise, 0).expect("written");
    file.sync_all().expect("durable");
}

#[test]
fn damage_is_found_by_readers_named_by_its_drive_and_told_when_it_is_too_much() {
    let world = World::with(1, |world| world.store.cache_bytes = 0);
    let mut client = world.client(Class::Readout);
    let ids = store(&mut client, 1, 200, 200_000);
    damage(&world, 2);
    let read = |client: &mut Client| client.get_many(&ids).expect("answered");
    assert!(read(&mut client).iter().zip(&ids).all(|((_, bytes), id)| *bytes == payload(*id, 200_000)));
    let mended = wait(&mut client, "FB-104", true);
    assert!(!has(&mended, "FB-106"));
    let units: Vec<u64> = mended["drives"]
        .as_array()
        .expect("drives")
        .iter()
        .map(|drive| drive["units_damaged"].as_u64().expect("a number"))
        .collect();
    assert!(units[2] > 0 && [0, 1, 3].iter().all(|drive| units[*drive] == 0), "{units:?}");
    damage(&world, 3);
    read(&mut client);
    wait(&mut client, "FB-106", true);
}
