//! Accepted events that compaction wrote as one record: read by fragments and at once, while the server serves, after it was killed, without a
//! drive, and by `forebay doctor`.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{Drives, Server, forebay, noise};
use forebay_client::{Client, Decision};
use forebay_types::{EventKey, FragmentId, ReadOutcome, SourceId, StreamName, Verdict, crc32c};

/// Sources of an event; their fragments come some events apart, so that they lie in different flushes.
const SOURCES: u32 = 5;
const FRAGMENT_BYTES: usize = 30_000;

/// One of so many events is accepted.
const ACCEPTED_OF: u64 = 8;

type Accepted = BTreeMap<EventKey, BTreeMap<SourceId, Vec<u8>>>;

fn physics() -> StreamName {
    "physics".parse().expect("a name")
}

fn payload(id: FragmentId) -> Vec<u8> {
    // One of them is empty, others are short.
    let bytes = FRAGMENT_BYTES >> (id.source.0 * 4);
    noise(id.event.0 << 8 | u64::from(id.source.0), if id.source.0 == SOURCES - 1 { 0 } else { bytes })
}

/// Some events, of which a few are accepted and the others rejected.
fn pass_through(client: &mut Client, first: u64, count: u64, accepted: &mut Accepted) {
    let mut decisions = Vec::new();
    for source in 0..SOURCES {
        for event in first..first + count {
            let id = FragmentId::new(5, event, source);
            client.put(id, SOURCES as u16, &payload(id)).expect("taken");
            if event % ACCEPTED_OF == 0 {
                accepted.entry(id.key()).or_default().insert(id.source, payload(id));
            }
        }
        client.flush().expect("durable");
    }
    for event in first..first + count {
        let accept = event % ACCEPTED_OF == 0;
        let verdict = if accept { Verdict::Accept(vec![physics()]) } else { Verdict::Reject };
        decisions.push(Decision { key: EventKey::new(5, event), verdict, incomplete: false });
    }
    let outcomes = client.decide(&decisions).expect("answered");
    assert!(outcomes.iter().all(|outcome| outcome.is_done()), "{outcomes:?}");
}

fn joined(server: &Server) -> u64 {
    let status = server.status();
    let lanes = status["lanes"].as_array().expect("lanes").clone();
    lanes.iter().map(|lane| lane["compaction"]["events_joined"].as_u64().expect("a number")).sum()
}

fn trace(server: &Server, key: EventKey) -> serde_json::Value {
    server.run(&["trace", &format!("{}/{}", key.run.0, key.event.0), "--json"]).expect(0).json()
}

/// Every accepted event at once, some of its sources, and each fragment by itself.
fn read_all(client: &mut Client, accepted: &Accepted) {
    let keys: Vec<EventKey> = accepted.keys().copied().collect();
    let some = [SourceId(1), SourceId(3), SourceId(99)];
    for sources in [None, Some(&some[..])] {
        for event in client.get_events(&keys, sources).expect("answered") {
            assert_eq!((event.outcome, event.stored, event.expected), (ReadOutcome::Found, SOURCES, SOURCES as u16));
            let wanted = |source: &SourceId| sources.is_none_or(|sources| sources.contains(source));
            let expected: Vec<_> = accepted[&event.key].iter().filter(|(source, _)| wanted(source)).collect();
            let got: Vec<_> = event.fragments.iter().map(|fragment| (&fragment.source, &fragment.payload)).collect();
            assert!(got == expected, "{}: {sources:?}", event.key);
        }
    }
    for (key, fragments) in accepted {
        let ids: Vec<FragmentId> = fragments.keys().map(|source| key.fragment(*source)).collect();
        let read = client.get_many(&ids).expect("answered");
        for ((outcome, bytes), expected) in read.iter().zip(fragments.values()) {
            assert!(*outcome == ReadOutcome::Found && bytes == expected, "{key}: {outcome:?}");
        }
        let other = client.get_many(&[key.fragment(SourceId(77))]).expect("answered");
        assert_eq!(other[0].0, ReadOutcome::NotFound);
    }
}

#[test]
fn they_are_read_by_fragments_and_at_once_whatever_happens() {
    let drives = Drives::five();
    let server = drives.serve();
    let mut client = server.client("test");
    let mut accepted = Accepted::new();
    let mut next = 0;
    // Until half of the store is full nothing is moved.
    while joined(&server) < 20 {
        pass_through(&mut client, next, 40, &mut accepted);
        next += 40;
        assert!(next < 20_000, "nothing was joined: {}", server.status());
        std::thread::sleep(Duration::from_millis(1));
    }
    read_all(&mut client, &accepted);
    // What happened to each is told, and where it lies.
    let traces: Vec<_> = accepted.keys().map(|key| trace(&server, *key)).collect();
    assert!(traces.iter().any(|trace| trace["in_one_record"] == SOURCES), "{}", traces[0]);
    for (fragments, trace) in accepted.values().zip(&traces) {
        let told = trace["fragments"].as_array().expect("fragments");
        let told: Vec<_> =
            told.iter().map(|f| (f["source"].as_u64(), f["bytes"].as_u64(), f["crc32c"].to_string())).collect();
        let right = fragments.iter().map(|(source, bytes)| {
            let crc = format!("\"{:08x}\"", crc32c(bytes));
            (Some(u64::from(source.0)), Some(bytes.len() as u64), crc)
        });
        assert_eq!(told, right.collect::<Vec<_>>(), "{trace}");
        assert!(trace["flushes"][0]["written_unix_ms"].as_u64() > Some(1 << 40), "{trace}");
    }
    // A fragment that comes after all, and one that comes once more, are late and change nothing.
    let first = *accepted.keys().next().expect("many");
    for source in [0, 77] {
        let id = first.fragment(SourceId(source));
        server
            .put(&format!("{}/{}/{source}", id.run.0, id.event.0), &payload(FragmentId::new(5, first.event.0, 0)))
            .expect(0);
    }
    drop(client);
    server.kill();

    let server = drives.serve_with(&[], &drives.paths[1..]);
    let mut client = server.client("test");
    read_all(&mut client, &accepted);
    let gone: Vec<EventKey> = accepted.keys().copied().step_by(2).collect();
    let outcomes = client.release(&physics(), &gone).expect("answered");
    assert!(outcomes.iter().all(|outcome| outcome.is_done()), "{outcomes:?}");
    gone.iter().for_each(|key| drop(accepted.remove(key)));
    drop(client);
    server.kill();

    let directory = drives.directory.path().join("export");
    let export = directory.display().to_string();
    let words = ["doctor", "--json", "--export", &export].map(Into::into).into_iter();
    let report =
        forebay(words.chain(drives.paths[1..].iter().map(|path| path.as_os_str().to_owned()))).expect(0).json();
    assert_eq!(report["export"]["fragments"], accepted.len() as u64 * u64::from(SOURCES), "{report}");
    for (key, fragments) in &accepted {
        for (source, bytes) in fragments {
            let name = format!("run{:08}/event{:012}/{:08x}.bin", key.run.0, key.event.0, source.0);
            assert!(std::fs::read(directory.join(&name)).expect("exported") == *bytes, "{name}");
        }
    }
}
