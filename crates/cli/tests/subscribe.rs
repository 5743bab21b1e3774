//! Looking on at a real server, while events are written, decided and deleted, and while it is killed.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::Duration;

use common::{Drives, Server, noise, scratch};
use forebay_client::{Client, Decision};
use forebay_types::{EventKey, Fraction, RunId, SourceId, Verdict};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const LONG: Duration = Duration::from_secs(20);

/// A `forebay subscribe --json`.
struct Subscriber {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    stderr: BufReader<ChildStderr>,
}

impl Subscriber {
    /// One that has begun to look on.
    fn start(server: &Server, words: &[&str]) -> Subscriber {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.env_remove("FOREBAY_LOG").args(["subscribe", "--json", "--server", &server.address]).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program runs");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        stderr.read_line(&mut line).expect("a line");
        assert!(line.contains("from now on"), "{line}");
        Subscriber { child, stdout, stderr }
    }

    fn next(&mut self) -> Value {
        let line = self.stdout.next().expect("a line").expect("read");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// The numbers of the next so many events.
    fn events(&mut self, count: usize) -> BTreeSet<u64> {
        (0..count).map(|_| self.next()["event"].as_u64().expect("a number")).collect()
    }

    fn interrupt(&self) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a process");
        kill_process(pid, Signal::INT).expect("a signal");
    }

    /// The counts that it tells at its end, and its words.
    fn end(mut self) -> (Value, String) {
        let counts = self.next();
        assert!(counts["event"].is_null(), "{counts}");
        assert!(self.stdout.next().is_none(), "the counts come last");
        let mut words = String::new();
        while self.stderr.read_line(&mut words).expect("words") > 0 {}
        assert_eq!(self.child.wait().expect("it ends").code(), Some(0), "{words}");
        (counts, words)
    }
}

fn put(client: &mut Client, run: u32, events: impl IntoIterator<Item = u64>) {
    for event in events {
        for source in 0..2 {
            let id = EventKey::new(run, event).fragment(SourceId(source));
            client.put(id, 2, &noise(event << 8 | u64::from(source), 300)).expect("taken");
        }
    }
    client.flush().expect("durable");
}

#[test]
fn a_monitor_has_the_events_of_its_run_while_they_are_written() {
    let drives = Drives::five();
    let server = drives.serve();
    let (directory, mut client) = (scratch(), server.client("writer"));
    let out = directory.path().join("out");
    put(&mut client, 7, 0..10);
    let subscriber = &mut Subscriber::start(
        &server,
        &["--run", "7", "--count", "300", "--out", out.to_str().expect("a name in UTF-8")],
    );
    put(&mut client, 8, 0..50);
    put(&mut client, 7, 1000..1300);
    assert_eq!(subscriber.events(300), (1000..1300).collect());
    for event in [1000u64, 1131, 1299] {
        let of_event = out.join(format!("run00000007/event{event:012}"));
        for source in 0..2u64 {
            let bytes = fs::read(of_event.join(format!("{source:08x}.bin"))).expect("it is there");
            assert!(bytes == noise(event << 8 | source, 300), "{event}/{source}");
        }
    }
    let names = fs::read_dir(out.join("run00000007")).expect("read").map(|entry| entry.expect("read").file_name());
    assert!(names.into_iter().all(|name| !name.to_string_lossy().contains("part")), "nothing half written is left");
    server.run(&["subscribe", "--out", out.to_str().expect("a name")]).expect(2).says("not empty");
}

#[test]
fn a_fraction_is_what_anybody_computes_and_the_counts_come_last() {
    let drives = Drives::five();
    let server = drives.serve();
    let fraction: Fraction = "0.1".parse().expect("a part");
    let wanted: BTreeSet<u64> = (0..1500).filter(|event| fraction.has(EventKey::new(3, *event))).collect();
    let mut subscriber = Subscriber::start(&server, &["--fraction", "0.1"]);
    put(&mut server.client("writer"), 3, 0..1500);
    assert_eq!(subscriber.events(wanted.len()), wanted);
    subscriber.interrupt();
    let (counts, words) = subscriber.end();
    let count = wanted.len() as u64;
    assert_eq!((&counts["told"], &counts["read"], &counts["dropped"]), (&count.into(), &count.into(), &0.into()));
    assert!(words.contains(&format!("{count} events read")) && words.contains("0 dropped"), "{words}");
}

#[test]
fn a_stream_is_told_what_a_filter_accepts_into_it_and_the_emulators_are_not_in_its_way() {
    let drives = Drives::five();
    let server = drives.serve();
    let mut physics = Subscriber::start(&server, &["--stream", "physics"]);
    let mut undecided = Subscriber::start(&server, &["--count", "1"]);
    server.run(&["readout", "--generate", "faser", "--events", "100"]).expect(0);
    let first = undecided.next();
    assert!(first["fragments"].as_u64().is_some_and(|count| count > 1) && first["bytes"].as_u64() > Some(0), "{first}");
    let filter = ["filter", "--json", "--until-idle", "0.2", "--stream", "physics=0.5", "--stream", "calibration=0.2"];
    server.run(&filter).expect(0);
    let streams = server.client("look").streams().expect("answered");
    let accepted = streams.iter().find(|stream| stream.name.as_str() == "physics").expect("some were").accepted;
    assert!(accepted > 10, "{streams:?}");
    for _ in 0..accepted {
        let event = physics.next();
        assert_eq!((&event["state"], event["fragments"].as_u64()), (&"accepted".into(), event["expected"].as_u64()));
    }
    physics.interrupt();
    let (counts, _) = physics.end();
    assert_eq!((&counts["read"], &counts["dropped"], &counts["gone"]), (&accepted.into(), &0.into(), &0.into()));
    undecided.end();
}

#[test]
fn who_looks_too_late_is_told_how_many_were_dropped() {
    let drives = Drives::five();
    let server = drives.serve();
    let (mut looks, mut writes) = (server.client("monitor"), server.client("writer"));
    let mut subscription = looks.subscribe(Some(RunId(1)), None, Fraction::ALL).expect("answered");
    // More than all lanes remember together.
    let lanes = u64::from(looks.info().lanes);
    let all = 8192 * lanes + 3000;
    for event in 0..all {
        writes.put(EventKey::new(1, event).fragment(SourceId(1)), 1, b"x").expect("taken");
    }
    writes.flush().expect("durable");
    while subscription.counts().told + subscription.counts().dropped < all {
        looks.next_told(&mut subscription, LONG).expect("answered");
    }
    let counts = subscription.counts();
    assert!(counts.dropped > 0, "{counts:?}");
    assert_eq!(counts.told + counts.dropped, all, "each was told or counted, once: {counts:?}");
    let metered = server.status();
    let lanes = metered["lanes"].as_array().expect("lanes");
    let dropped: u64 = lanes.iter().map(|lane| lane["told"]["dropped"].as_u64().expect("a number")).sum();
    assert_eq!(dropped, counts.dropped, "the server knows it, too");
}

#[test]
fn what_is_over_before_it_is_read_is_gone() {
    let drives = Drives::five();
    let server = drives.serve();
    let mut client = server.client("monitor");
    let mut told = client.subscribe(None, None, Fraction::ALL).expect("answered");
    put(&mut client, 1, 0..20);
    let keys: Vec<EventKey> = (0..20).map(|event| EventKey::new(1, event)).collect();
    let decide = |key: &EventKey| Decision { key: *key, verdict: Verdict::Reject, incomplete: false };
    client.decide(&keys[..19].iter().map(decide).collect::<Vec<_>>()).expect("decided");
    let left = client.next_events(&mut told, LONG).expect("answered");
    assert_eq!(left.iter().map(|event| event.key).collect::<Vec<_>>(), keys[19..]);
    let counts = told.counts();
    assert_eq!((counts.read, counts.gone, counts.dropped), (1, 19, 0));
}

#[test]
fn a_server_that_is_killed_is_waited_for_and_the_gap_is_told() {
    let drives = Drives::five();
    let mut server = drives.serve();
    let mut subscriber = Subscriber::start(&server, &["--run", "5"]);
    put(&mut server.client("writer"), 5, 0..30);
    assert_eq!(subscriber.events(30), (0..30).collect());
    server.replace_killed(&[], &drives.paths);
    put(&mut server.client("writer"), 5, 500..530);
    assert_eq!(subscriber.events(30), (500..530).collect(), "what happens now, and nothing twice");
    subscriber.interrupt();
    let (counts, words) = subscriber.end();
    assert_eq!((&counts["read"], &counts["restarts"]), (&60.into(), &1.into()), "{counts}");
    assert!(words.contains("started anew 1 time"), "{words}");
}
