//! Every request, as clients make it.

use std::time::Duration;

use forebay_client::files::{Files, ReadOptions, WriteOptions};
use forebay_client::{Class, ClientError, Decision, EventState};
use forebay_types::{
    DecideOutcome, EventKey, FragmentId, PutOutcome, ReadOutcome, RunId, SourceId, StreamName, Verdict,
};

use crate::world::{World, payload, results};

fn stream(name: &str) -> StreamName {
    name.parse().expect("a name")
}

#[test]
fn fragments_are_stored_read_decided_and_released_over_several_lanes() {
    let world = World::new(3);
    let mut writer = world.client(Class::Readout);
    assert_eq!((writer.info().lanes, writer.info().read_only), (3, false));
    let ids: Vec<FragmentId> =
        (0..1000u64).flat_map(|event| (0..4).map(move |source| FragmentId::new(5, event, source))).collect();
    let size = |id: &FragmentId| (id.event.0 as usize * 37 + id.source.0 as usize * 901) % 5000;
    for id in &ids {
        writer.put(*id, 4, &payload(*id, size(id))).expect("taken");
    }
    let stored = results(&mut writer);
    assert_eq!(stored.len(), ids.len());
    assert!(stored.iter().all(|result| result.outcome == PutOutcome::Durable));

    let mut filter = world.client(Class::Filter);
    for (id, (outcome, bytes)) in ids.iter().zip(filter.get_many(&ids).expect("answered")) {
        assert_eq!((outcome, bytes == payload(*id, size(id))), (ReadOutcome::Found, true), "{id}");
    }
    let missing = filter.get(FragmentId::new(5, 0, 99));
    assert!(matches!(missing, Err(ClientError::Read { outcome: ReadOutcome::NotFound, .. })));

    let mut leased = Vec::new();
    while leased.len() < 1000 {
        let lease = filter.lease(400, Duration::from_secs(600), 1, Some(RunId(5))).expect("answered");
        assert!(lease.events.iter().all(|event| event.fragments == 4 && event.attempt == 1 && !event.incomplete));
        assert_eq!(lease.undecided, 1000);
        leased.extend(lease.events.into_iter().map(|event| event.key));
    }
    leased.sort_unstable();
    assert!(leased.iter().copied().eq((0..1000).map(|event| EventKey::new(5, event))), "each is leased once");

    let fetched = filter.get_events(&leased[..300], Some(&[SourceId(1), SourceId(3)])).expect("answered");
    for event in &fetched {
        assert_eq!(
            (event.outcome, event.state, event.expected, event.stored),
            (ReadOutcome::Found, EventState::Leased, 4, 4)
        );
        let sources: Vec<u32> = event.fragments.iter().map(|fragment| fragment.source.0).collect();
        assert_eq!(sources, [1, 3]);
    }

    let verdict = |key: &EventKey| match key.event.0 % 4 {
        0 => Verdict::Accept(vec![stream("physics"), stream("calibration")]),
        1 => Verdict::Accept(vec![stream("physics")]),
        _ => Verdict::Reject,
    };
    let decisions: Vec<_> =
        leased.iter().map(|key| Decision { key: *key, verdict: verdict(key), incomplete: false }).collect();
    assert!(filter.decide(&decisions).expect("answered").iter().all(|outcome| *outcome == DecideOutcome::Done));
    assert!(filter.decide(&decisions).expect("answered").iter().all(|outcome| *outcome == DecideOutcome::AlreadyDone));
    let other = Decision { key: leased[0], verdict: Verdict::Reject, incomplete: false };
    assert_eq!(filter.decide(&[other]).expect("answered"), [DecideOutcome::Conflict]);
    let gone = filter.get_events(&leased[2..3], None).expect("answered");
    assert_eq!((gone[0].outcome, gone[0].state), (ReadOutcome::Deleted, EventState::Finished));

    let mut mover = world.client(Class::Mover);
    let names: Vec<_> = mover.streams().expect("answered").into_iter().map(|s| (s.name, s.accepted)).collect();
    assert!(names.contains(&(stream("physics"), 500)) && names.contains(&(stream("calibration"), 250)), "{names:?}");
    let (mut shipped, mut after) = (Vec::new(), None);
    loop {
        let page = mover.accepted(&stream("physics"), after, 64).expect("answered");
        assert_eq!(page.undecided_floor, None);
        shipped.extend(page.events.iter().map(|event| event.key));
        after = shipped.last().copied();
        if !page.more {
            break;
        }
    }
    assert!(shipped.iter().map(|key| key.event.0).eq((0..1000).filter(|event| event % 4 < 2)));
    assert!(mover.release(&stream("physics"), &shipped).expect("answered").iter().all(|outcome| outcome.is_done()));
    assert!(mover.delete(&[EventKey::new(5, 0)]).expect("answered").iter().all(|outcome| outcome.is_done()));

    let runs = mover.runs().expect("answered");
    let counts: Vec<_> = runs.iter().map(|run| (run.run, run.events, run.undecided, run.finished)).collect();
    // 500 rejected, 250 released by their only stream, one deleted.
    assert_eq!(counts, [(RunId(5), 1000, 0, 751)]);
    let status: serde_json::Value = serde_json::from_str(&mover.status().expect("answered")).expect("JSON");
    assert_eq!((&status["state"], status["lanes"].as_array().map(Vec::len)), (&"serving".into(), Some(3)));
    assert_eq!(status["totals"]["counters"]["fragments_stored"], 4000);
    assert_eq!(status["totals"]["events"], 249);
    assert_eq!((&status["connections"]["readout"], &status["connections"]["mover"]), (&4.into(), &4.into()));
    assert_eq!(status["drives"].as_array().map(Vec::len), Some(4));
}

#[test]
fn outcomes_of_puts_reach_the_writer() {
    let world = World::new(1);
    let mut writer = world.client(Class::Readout);
    let id = FragmentId::new(1, 1, 1);
    writer.put(id, 0, b"the bytes").expect("taken");
    writer.put(FragmentId::new(1, 2, 1), 0, b"rejected").expect("taken");
    assert_eq!(results(&mut writer).len(), 2);
    let reject = Decision { key: EventKey::new(1, 2), verdict: Verdict::Reject, incomplete: false };
    assert_eq!(writer.decide(&[reject]).expect("answered"), [DecideOutcome::Done]);
    writer.put(id, 0, b"the bytes").expect("taken");
    writer.put(id, 0, b"others").expect("taken");
    writer.put(FragmentId::new(1, 2, 7), 0, b"too late").expect("taken");
    let outcomes: Vec<_> = results(&mut writer).iter().map(|result| result.outcome).collect();
    assert_eq!(outcomes, [PutOutcome::Durable, PutOutcome::Conflict, PutOutcome::Late]);
    assert_eq!(writer.get(id).expect("found"), b"the bytes");

    // Damage on the way is met by a raw writer; the client would send again.
    let mut raw = world.raw(0, forebay_protocol::Class::Readout);
    let entry =
        |source, crc| forebay_protocol::PutEntry { id: FragmentId::new(1, 9, source), bytes: 4, crc, expected: 0 };
    let entries = [entry(1, forebay_types::crc32c(b"good")), entry(2, 12345)];
    let mut bytes = Vec::new();
    forebay_protocol::encode_put(50, &entries, &[b"good", b"hurt"], &mut bytes);
    raw.send(&bytes);
    let reply: forebay_protocol::PutReply = raw.receive().expect("answered").message();
    assert_eq!(reply.outcomes, [PutOutcome::Durable, PutOutcome::ChecksumMismatch]);
}

#[test]
fn what_is_not_in_memory_is_read_from_the_drives() {
    let world = World::with(2, |world| world.store.cache_bytes = 1 << 20);
    let mut writer = world.client(Class::Readout);
    let ids: Vec<FragmentId> = (0..1500).map(|event| FragmentId::new(9, event, 1)).collect();
    for id in &ids {
        writer.put(*id, 1, &payload(*id, 20_000)).expect("taken");
    }
    assert!(results(&mut writer).iter().all(|result| result.outcome == PutOutcome::Durable));
    let mut reader = world.client(Class::Monitor);
    for (id, (outcome, bytes)) in ids.iter().zip(reader.get_many(&ids).expect("answered")) {
        assert_eq!((outcome, bytes == payload(*id, 20_000)), (ReadOutcome::Found, true), "{id}");
    }
    let keys: Vec<EventKey> = ids.iter().map(|id| id.key()).collect();
    let events = reader.get_events(&keys, None).expect("answered");
    assert!(events.iter().zip(&ids).all(|(event, id)| event.fragments[0].payload == payload(*id, 20_000)));
    let status: serde_json::Value = serde_json::from_str(&reader.status().expect("answered")).expect("JSON");
    let counters = &status["totals"]["counters"];
    assert!(counters["fragments_read"].as_u64() > counters["fragments_read_cached"].as_u64(), "{counters}");
}

#[test]
fn the_status_tells_how_full_the_store_is_and_what_memory_it_may_take() {
    let world = World::new(1);
    let mut writer = world.client(Class::Readout);
    let status = |writer: &mut forebay_client::Client| -> serde_json::Value {
        serde_json::from_str(&writer.status().expect("answered")).expect("JSON")
    };
    let empty = status(&mut writer)["totals"].clone();
    let (capacity, reserved) = (empty["capacity_bytes"].as_u64(), empty["segments_reserved"].as_u64());
    // 3 of 4 drives of 32 MiB hold data.
    assert!(capacity.is_some_and(|bytes| (60 << 20..96 << 20).contains(&bytes)), "{empty}");
    assert!(reserved.is_some_and(|segments| segments > 0), "{empty}");
    assert_eq!((empty["free_bytes"].as_u64(), &empty["time_left_s"]), (capacity, &serde_json::Value::Null));
    assert_eq!(
        (empty["cache_bytes_max"].as_u64(), empty["index_bytes_max"].as_u64()),
        (Some(16 << 20), Some(64 << 20))
    );
    assert!(empty["staging_bytes_max"].as_u64() >= Some(16 << 20), "{empty}");
    let mut stored = 0;
    for event in 0..400 {
        let id = FragmentId::new(1, event, 1);
        writer.put(id, 1, &payload(id, 100_000)).expect("taken");
        stored += 100_000;
    }
    assert_eq!(results(&mut writer).len(), 400);
    let half = status(&mut writer)["totals"].clone();
    let free = half["free_bytes"].as_u64().expect("a number");
    assert_eq!(half["fragment_bytes"].as_u64(), Some(stored));
    let expected = capacity.expect("a number") - stored;
    assert!(free <= expected && free + (16 << 20) > expected, "{free} bytes are free, {expected} are expected, about");
}

#[test]
fn the_status_tells_of_files_and_names() {
    let world = World::new(2);
    let files = Files::new(world.client(Class::Readout)).expect("random numbers");
    let totals = || {
        let status = files.with_client(|client| client.status().expect("answered"));
        serde_json::from_str::<serde_json::Value>(&status).expect("JSON")["totals"].clone()
    };
    let before = totals();
    let number = |totals: &serde_json::Value, name: &str| totals[name].as_u64().unwrap_or_else(|| panic!("{name}"));
    let mut open = files.create("/open", &WriteOptions::default()).expect("made");
    open.write(&[1; 1000]).and_then(|()| open.sync()).expect("durable");
    let mut sealed = files.create("/sealed", &WriteOptions::default()).expect("made");
    sealed.write(&[2; 500]).and_then(|()| sealed.close()).expect("sealed");
    let mut found = [0; 1000];
    let bytes = files.open_read("/open", &ReadOptions::default()).and_then(|mut file| file.read(&mut found));
    assert_eq!((bytes.expect("read"), found), (1000, [1; 1000]));
    let after = totals();
    let more = |name: &str| number(&after, name) - number(&before, name);
    assert_eq!(more("names"), 2, "{after}");
    assert!(number(&after, "files_open") >= 1, "one is being written: {after}");
    assert!(more("names_bytes") > 0 && number(&after, "names_bytes_max") == 32 << 20, "{after}");
    // With those that keep the names.
    assert!(more("files") >= 2 && number(&after, "files_unsealed") < number(&after, "files"), "{after}");
    assert!(more("file_bytes") >= 1500, "{after}");
    let counters = &after["counters"];
    assert!(number(counters, "file_bytes_stored") >= 1500 && number(counters, "file_bytes_read") >= 1000, "{counters}");
    assert_eq!(number(counters, "fragment_bytes_stored"), 0);
    drop(open);
}
