//! `forebay trace` and `forebay lost`: through the program, against a real server.

mod common;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use common::{Drives, Ran, Server, noise, scratch};
use serde_json::Value;

fn trace(server: &Server, words: &[&str]) -> Value {
    server.run(&[&["trace", "--json"], words].concat()).expect(0).json()
}

fn text(ran: &Ran) -> String {
    String::from_utf8(ran.stdout.clone()).expect("UTF-8")
}

#[track_caller]
fn has(text: &str, words: &[&str]) {
    for words in words {
        assert!(text.contains(words), "{words:?} is missing in\n{text}");
    }
}

#[test]
fn an_event_is_traced_from_its_arrival_to_its_file() {
    let drives = Drives::five();
    let server = drives.serve();
    let directory = scratch();
    let (ledger, out) = (directory.path().join("hashes"), directory.path().join("out"));
    let (ledger, out) = (ledger.display().to_string(), out.display().to_string());
    let readout = ["readout", "--generate", "faser", "--events", "20", "--run", "77", "--ledger", &ledger];
    server.run(&readout).expect(0);
    let status = server.status();
    let some = |status: &Value| status["totals"]["events_undecided"].as_u64().expect("a count");
    assert_eq!(some(&status), 20);

    // Every event of the run, found by asking for the first numbers: the generator numbers as it likes.
    let of_run = |server: &Server| -> Vec<String> {
        let mut client = server.client("test");
        let stream = "physics".parse().expect("a name");
        let page = client.accepted(&stream, None, 100).expect("an answer");
        page.events.into_iter().map(|event| event.key.to_string()).collect()
    };
    server.run(&["filter", "--until-idle", "0.2", "--stream", "physics=1"]).expect(0);
    let events = of_run(&server);
    assert_eq!(events.len(), 20);
    let event = events[3].as_str();

    let told = trace(&server, &[event]);
    assert_eq!((&told["state"], &told["files"]), (&"accepted".into(), &Value::Null));
    assert_eq!(told["streams"][0]["name"], "physics");
    assert_eq!(told["expected"].as_u64(), Some(told["fragments"].as_array().expect("a list").len() as u64));
    assert_eq!(told["flushes"][0]["shards"].as_array().expect("a list").len(), 5);
    assert_eq!(told["flushes"][0]["failures_left"], 1);
    let written = told["flushes"][0]["written_unix_ms"].as_u64().expect("known");
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_millis() as u64;
    assert!(written <= now && now - written < 3_600_000, "{written} is a moment ago, {now}");
    let words = text(&server.run(&["trace", event]).expect(0));
    let advice = format!("`forebay trace {event} --files DIR`");
    has(&words, &["accepted into physics (not released yet)", " durable 20", "1 more drive may fail", &advice]);

    // Recorded in three files, so that the event lies somewhere in one of them.
    let journal = drives.directory.path().join("record.sqlite").display().to_string();
    server.run(&["record", "--out", &out, "--once", "--file-bytes", "300kB", "--journal", &journal]).expect(0);
    for event in &events {
        let told = trace(&server, &[event, "--files", &out]);
        assert_eq!((&told["state"], &told["end"]), (&"over".into(), &"released".into()));
        let files = told["files"]["files"].as_array().expect("a list");
        assert_eq!((files.len(), &files[0]["stream"]), (1, &"physics".into()), "{told}");
        // The very bytes of the event: of the right number, in the format that it has.
        let place = &files[0]["place"];
        let (offset, bytes) = (place["offset_bytes"].as_u64().expect("told"), place["bytes"].as_u64().expect("told"));
        let file = std::fs::read(files[0]["path"].as_str().expect("a path")).expect("read");
        let found = &file[offset as usize..(offset + bytes) as usize];
        let key = forebay_rawdata::verify(forebay_rawdata::Format::Faser, found).expect("an event");
        let crc = format!("{:08x}", forebay_types::crc32c(found));
        assert_eq!((&key.to_string(), &place["crc32c"]), (event, &crc.into()));
        assert_eq!(files[0]["file_bytes"].as_u64(), Some(file.len() as u64));
    }
    let words = text(&server.run(&["trace", event, "--files", &out]).expect(0));
    has(&words, &["released: all of its streams have it elsewhere", "came back as it was written", "Adler-32 "]);

    // What is over stays so after a start; how it ended is told by what is still there, or by the files.
    server.terminate().expect(0);
    let server = drives.serve();
    assert_eq!(trace(&server, &[event])["state"], "over");
    has(&text(&server.run(&["trace", event, "--files", &out]).expect(0)), &["over: recorded"]);
}

#[test]
fn what_is_rejected_deleted_incomplete_or_unknown_is_told_so() {
    let drives = Drives::five();
    let server = drives.serve();
    server.put("5/1/1", b"one").expect(0);
    server.put("5/2/1", b"two").expect(0);
    let mut client = server.client("test");
    let key = |event| forebay_types::EventKey::new(5, event);
    client.put(key(3).fragment(forebay_types::SourceId(7)), 3, b"of three").expect("taken");
    client.flush().expect("stored");
    let reject = forebay_client::Decision { key: key(1), verdict: forebay_types::Verdict::Reject, incomplete: false };
    client.decide(&[reject]).expect("decided");
    server.run(&["delete", "5/2"]).expect(0);

    has(
        &text(&server.run(&["trace", "5/1"]).expect(0)),
        &["event 5/1, lane ", "deleted: rejected by the event filter"],
    );
    has(&text(&server.run(&["trace", "5/2"]).expect(0)), &["deleted by an operator"]);
    let incomplete = text(&server.run(&["trace", "5/3"]).expect(0));
    has(
        &incomplete,
        &["undecided, it waits for fragments", "1 of 3 fragments are here", "2 expected sources have not come"],
    );
    let unknown = server.run(&["trace", "5/4"]).expect(1);
    unknown.says("nothing of event 5/4 was ever seen here");
    has(&text(&unknown), &["of run 5 this lane has 1 event, from 3 to 3, 1 of them undecided; 2 more are over"]);
    has(&text(&server.run(&["trace", "6/4"]).expect(1)), &["nothing of run 6 was ever seen"]);
    server.put("5/1/2", b"late").expect(0);
    has(&text(&server.run(&["trace", "5/1"]).expect(0)), &["late put: source 2 with 4 bytes came 20"]);
    server.run(&["trace", "5"]).expect(2);
    server.run(&["trace", "5/1", "--files", "/nowhere/at/all"]).expect(2).says("--out");
}

#[test]
fn exactly_what_is_lost_is_listed() {
    let drives = Drives::five();
    let server = drives.serve();
    for event in 0..12 {
        server.put(&format!("1/{event}/1"), &noise(event, 100_000)).expect(0);
    }
    let sound = server.run(&["lost"]).expect(0);
    has(&text(&sound), &["all that is stored is within reach, and nothing was found to be lost since this start (20"]);
    server.terminate().expect(0);

    // A store of 4+1 that misses two drives serves what it can for reading alone.
    let server = drives.serve_with(&["--read-only"], &drives.paths[..3]);
    let out_of_reach = server.run(&["lost"]).expect(3);
    has(&text(&out_of_reach), &["OUT OF REACH: ", "drives 3, 4 are missing"]);
    out_of_reach.says("put back the drives that are missing");
    server.run(&["drive", "scrub"]).expect(2).says("started read-only and mends nothing");
    // The stop was in order: all of it was acknowledged, and nothing is lost.
    let status = server.run(&["status", "--json"]).expect(3).json();
    assert_eq!((&status["totals"]["flushes_possibly_lost"], &status["totals"]["flushes_lost"]), (&0.into(), &0.into()));
    let screen = text(&server.run(&["status"]).expect(3));
    has(&screen, &["FB-106 data-lost: out of reach, and not lost: ", "put back drives 3, 4", "nothing is written"]);
    for words in ["perhaps", "new data are written", "1 (degraded)", "forebay record", "the rest within about"] {
        assert!(!screen.contains(words), "{words:?} is in\n{screen}");
    }
    server.terminate().expect(0);

    // Two drives are written over while the server runs, from the first byte of data on, as a trace tells it.
    let server = drives.serve();
    let start = trace(&server, &["1/0"])["flushes"][0]["shards"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|shard| shard["offset_bytes"].as_u64())
        .min()
        .expect("told");
    for path in &drives.paths[1..3] {
        let file = OpenOptions::new().write(true).open(path).expect("opened");
        let bytes = file.metadata().expect("a file").len();
        file.write_all_at(&noise(9, (bytes - start) as usize), start).expect("written");
    }
    let scrubbed = server.run(&["drive", "scrub"]).expect(1);
    scrubbed.says("what lay there is lost. `forebay lost` names it");
    assert!(!scrubbed.stderr.contains("put it back"), "no drive is out: {scrubbed:?}");
    let read: Vec<bool> = (0..12).map(|event| server.get(&format!("1/{event}/1")).exit == 0).collect();
    let listed = server.run(&["lost", "--json"]);
    let lost: Vec<u64> =
        listed.json()["losses"].as_array().expect("a list").iter().filter_map(|l| l["event"].as_u64()).collect();
    let expected: Vec<u64> = (0..12).filter(|event| !read[*event as usize]).collect();
    assert_eq!(lost, expected);
    assert!(!lost.is_empty(), "two of five drives are gone");
    server.get(&format!("1/{}/1", lost[0])).expect(1).says("`forebay lost`");
    // What else the same damage took may still be looked for.
    let words = loop {
        let words = server.run(&["lost"]).expect(1);
        if !words.stderr.contains("is being found out") {
            break words;
        }
    };
    words.says("of what was stored, parts that are lost: ");
    has(&text(&words), &[&format!("LOST: fragment 1/{}/1 (97.7 KiB)", lost[0]), "damaged on drives 1, 2"]);
    let traced = server.run(&["trace", &format!("1/{}", lost[0])]).expect(1);
    traced.says("`forebay lost` says why");
    has(
        &text(&traced),
        &["4+1: DAMAGED on more drives than parity makes up for", "the header is there; what is behind it"],
    );
    assert!(!text(&traced).contains("may fail"), "{}", text(&traced));
    let screen = text(&server.run(&["status"]).expect(1));
    has(&screen, &["losses      ", "FB-106 data-lost", "forebay lost; see docs/runbook.md"]);
    assert!(screen.lines().count() < 40, "it fits a screen:\n{screen}");
    // A start knows nothing of what was found before it, and says how little it has looked at.
    server.terminate().expect(0);
    let server = drives.serve();
    has(
        &text(&server.run(&["lost"]).expect(0)),
        &["were looked at or written since: `forebay drive scrub` looks at all"],
    );
    server.run(&["drive", "scrub"]).expect(1);
    server.run(&["lost"]).expect(1).says("full segments were looked at or written since");
    for event in lost {
        server.run(&["delete", &format!("1/{event}")]).expect(0);
    }
    server.run(&["lost"]).expect(0);
}
