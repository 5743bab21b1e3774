//! Runs on a real server, which is killed between any two steps.

mod common;

use std::fs;
use std::path::PathBuf;

use common::running::{Running, files_below, until};
use common::store::Store;
use common::{Ran, forebay, noise};
use forebay_client::{Client, Decision, Signature};
use forebay_types::{DecideOutcome, EventKey, PutOutcome, RunChange, RunId, RunState, SourceId, StreamName, Verdict};
use serde_json::Value;

impl Store {
    fn run(&self, words: &str) -> Ran {
        self.ask(&format!("run {words}"))
    }

    /// What is known of a run.
    fn show(&self, run: u32) -> Value {
        self.run(&format!("show {run} --json")).expect(0).json()
    }

    fn put(&self, id: &str) -> Ran {
        self.server.put(id, id.as_bytes())
    }
}

fn physics() -> StreamName {
    "physics".parse().expect("a name")
}

fn put_events(client: &mut Client, run: u32, events: std::ops::Range<u64>) -> Vec<PutOutcome> {
    for event in events {
        client.put(EventKey::new(run, event).fragment(SourceId(0)), 1, &noise(event, 100)).expect("taken");
    }
    client.flush().expect("answered");
    let mut results = Vec::new();
    client.take_put_results(&mut results);
    results.into_iter().map(|result| result.outcome).collect()
}

fn decide(client: &mut Client, run: u32, events: std::ops::Range<u64>, verdict: &Verdict) -> Vec<DecideOutcome> {
    let decisions: Vec<Decision> = events
        .map(|event| Decision { key: EventKey::new(run, event), verdict: verdict.clone(), incomplete: false })
        .collect();
    client.decide(&decisions).expect("answered")
}

#[test]
fn a_run_goes_its_way_through_kills_between_any_two_steps() {
    let mut store = Store::start();
    store.run("declare 7 --sources 0-15,32 --by kim").expect(0);
    store.restart();
    store.run("declare 7 --sources 0").expect(2).says("run 7 was declared before and is declared");
    store.run("stop 7").expect(2).says("not started: `forebay run start 7`");
    store.run("close 7").expect(2).says("run 7 is declared and cannot be closed");
    store.run("start 7").expect(0);
    store.restart();
    store.run("start 7").expect(2).says("run 7 is running and cannot be started");
    for event in 0..3 {
        store.put(&format!("7/{event}/1")).expect(0);
    }
    store.run("stop 7 --events 4").expect(0);
    store.restart();
    store
        .run("close 7")
        .expect(2)
        .says("counted 4 events, the store knows 3 of them, 3 of these undecided")
        .says("1 have not arrived");
    store.put("7/3/1").expect(0);
    store.run("close 7").expect(2).says("4 wait for filters");
    let mut client = store.server.client("filter");
    let done = decide(&mut client, 7, 0..4, &Verdict::Accept(vec![physics()]));
    assert_eq!(done, [DecideOutcome::Done; 4]);
    store.run("close 7").expect(0);
    store.restart();
    store.put("7/9/1").expect(2).says("run closed");
    assert_eq!(store.get("7/3/1"), b"7/3/1", "what is there stays");
    store.put("8/9/1").expect(0);
    store.run("declare 7 --sources 0").expect(2).says("is closed");
    store.run("stop 7").expect(2).says("run 7 is closed and cannot be stopped");
    let shown = store.show(7);
    assert_eq!(
        (&shown["state"], &shown["changes"], &shown["sources"]),
        (&"closed".into(), &4.into(), &"0-15,32".into())
    );
    assert_eq!((&shown["declared"]["by"], &shown["counted"]["events"]), (&"kim".into(), &4.into()));
    assert_eq!((&shown["known"]["events"], &shown["expected_events"]), (&4.into(), &4.into()));
    let words = String::from_utf8(store.run("show 7").expect(0).stdout).expect("text");
    for word in ["run 7: closed", "0-15,32 (17 sources)", "by kim", "run control counted  4 events", "closed with"] {
        assert!(words.contains(word), "{word:?} is not in {words}");
    }
}

impl Store {
    fn get(&self, id: &str) -> Vec<u8> {
        self.server.get(id).expect(0).stdout
    }
}

#[test]
fn a_difference_is_signed_off_by_a_person_with_a_reason() {
    let mut store = Store::start();
    store.run("declare 7 --sources 0-3").expect(0);
    store.run("start 7").expect(0);
    put_events(&mut store.server.client("writer"), 7, 0..5);
    let counts = store.drives.directory.path().join("counts.json");
    fs::write(&counts, r#"{"0": 5, "1": 5, "2": 4, "0x10": 1}"#).expect("written");
    let counts = counts.to_str().expect("text");
    store.run(&format!("stop 7 --events 4 --fragments {counts}")).expect(0);
    store.run("close 7").expect(2).says("1 more arrived than were counted");
    store.run("close 7 --accept-difference").expect(2);
    let words = ["run", "close", "7", "--accept-difference", "a late trigger", "--by", "kim", "--json"];
    let closed = store.server.run(&words).expect(0).json();
    assert_eq!((&closed["closed"]["reason"], &closed["closed"]["by"]), (&"a late trigger".into(), &"kim".into()));
    assert_eq!((&closed["counted"]["events"], &closed["counted"]["undecided"]), (&5.into(), &5.into()));
    store.restart();
    let shown = store.show(7);
    assert_eq!(shown["closed"]["reason"], "a late trigger");
    let ranges = shown["expected_fragments"].as_array().expect("ranges");
    assert_eq!(ranges.len(), 3, "{ranges:?}");
    assert_eq!((&ranges[0]["first"], &ranges[0]["last"], &ranges[0]["fragments"]), (&0.into(), &1.into(), &5.into()));
    // What is undecided stays, and may be decided.
    let mut client = store.server.client("filter");
    assert_eq!(decide(&mut client, 7, 0..5, &Verdict::Reject), [DecideOutcome::Done; 5]);
    assert_eq!(put_events(&mut client, 7, 20..21), [PutOutcome::RunClosed]);
}

#[test]
fn what_means_nothing_is_refused_with_words() {
    let store = Store::start();
    for (words, said) in [
        ("declare 7 --sources 5-2", "5-2 goes backwards"),
        ("declare 7 --sources a-b", "not the number of a source"),
        ("declare 7 --sources 1,,2", "empty"),
        ("declare 7", "--sources"),
        ("declare 0 --sources 1", "0 stands for no run"),
        ("declare 4294967295 --sources 1", "kept for files"),
        ("declare 4294967296 --sources 1", "32 bits"),
        ("declare -1 --sources 1", "not the number of a run"),
        ("start 7", "run 7 was never declared"),
        ("hold 7", "--reason"),
        ("discard 7 --reason test --name 8", "Type the same number twice"),
        ("discard 7 --reason test", "--name"),
        ("stop 7 --fragments /nowhere/counts.json", "cannot read /nowhere/counts.json"),
    ] {
        store.run(words).expect(2).says(said);
    }
    store.run("show 7").expect(1).says("run 7 was never declared");
    store.put("9/1/1").expect(0);
    store.run("declare 9 --sources 1").expect(2).says("knows 1 events of run 9 already");
    store.server.run(&["delete", "9/1"]).expect(0);
    store.run("declare 9 --sources 1").expect(2).says("(1 of them over)");
    let counts = store.drives.directory.path().join("counts.json");
    for text in ["[1]", "{\"a\": 1}", "{\"1\": -1}", "{"] {
        fs::write(&counts, text).expect("written");
        store.run(&format!("stop 7 --fragments {}", counts.display())).expect(2).says("nothing was changed");
    }
    let long = "x".repeat(1025);
    store.run("declare 7 --sources 1").expect(0);
    store.server.run(&["run", "hold", "7", "--reason", &long]).expect(2).says("at most 1024 bytes");
    store.server.run(&["run", "hold", "7", "--reason", "a\u{1b}[31m"]).expect(2).says("control characters");
    assert_eq!(store.show(7)["changes"], 1);
    let listed = String::from_utf8(store.run("list").expect(0).stdout).expect("text");
    assert!(listed.contains("declared") && listed.lines().count() == 2, "{listed}");
}

#[test]
fn nothing_of_a_held_run_is_freed_and_the_recorder_waits() {
    let mut store = Store::start();
    store.run("declare 7 --sources 0").expect(0);
    store.run("start 7").expect(0);
    let mut client = store.server.client("filter");
    put_events(&mut client, 7, 0..20);
    decide(&mut client, 7, 0..10, &Verdict::Accept(vec![physics()]));
    store.server.run(&["run", "hold", "7", "--reason", "to be looked at", "--by", "kim"]).expect(0);
    store.restart();
    store.run("hold 7 --reason again").expect(2).says("run 7 is held by kim");
    store.server.run(&["delete", "7/0"]).expect(3).says("held");
    store.run("discard 7 --reason test --name 7").expect(2).says("Stop it first");
    store.run("stop 7").expect(0);
    store.run("discard 7 --reason test --name 7").expect(2).says("is held by kim");
    let mut client = store.server.client("filter");
    assert_eq!(decide(&mut client, 7, 10..12, &Verdict::Reject), [DecideOutcome::Done; 2], "filters are heeded");
    let out = store.drives.directory.path().join("recorded");
    let arguments = ["record", "--server", &store.server.address, "--close-after", "0.1", "--out"].map(str::to_owned);
    let recorder =
        Running::start(arguments.into_iter().chain([out.display().to_string()]).collect(), std::process::Stdio::null());
    // It has written them into a file, and is told for each release that the run is held.
    let has_sidecar = |out: &PathBuf| out.is_dir() && files_below(out).keys().any(|name| name.ends_with(".json"));
    until(|| has_sidecar(&out));
    let released = |store: &Store| {
        let of = store.show(7)["known"]["finished"].as_u64().expect("a count");
        of - 2
    };
    let key = EventKey::new(7, 3);
    assert_eq!(client.release(&physics(), &[key]).expect("answered"), [DecideOutcome::Held]);
    assert_eq!(released(&store), 0, "nothing is freed");
    store.restart();
    assert_eq!(released(&store), 0);
    store.run("hold 7 --end").expect(0);
    until(|| released(&store) == 10);
    assert_eq!(recorder.terminate(), Some(0), "it waited, and did not fail");
    let shown = store.show(7);
    assert_eq!(shown["hold"]["begun"]["reason"], "to be looked at");
    assert!(shown["hold"]["ended"]["at_unix_ns"].as_i64() > shown["hold"]["begun"]["at_unix_ns"].as_i64());
    store.run("hold 7 --end").expect(2).says("run 7 is not held");
}

#[test]
fn a_discard_ends_whatever_kills_the_server_meanwhile() {
    let mut store = Store::start();
    store.run("declare 7 --sources 0").expect(0);
    store.run("start 7").expect(0);
    let mut client = store.server.client("writer");
    for part in 0..20 {
        put_events(&mut client, 7, part * 300..part * 300 + 300);
        put_events(&mut client, 8, part * 10..part * 10 + 10);
    }
    decide(&mut client, 7, 0..100, &Verdict::Accept(vec![physics()]));
    store.run("discard 7 --reason test --name 7").expect(2).says("Stop it first");
    store.run("stop 7 --events 6000").expect(0);
    store.server.run(&["run", "discard", "7", "--reason", "a test", "--name", "7"]).expect(0);
    let left = |store: &Store| {
        let known = &store.show(7)["known"];
        known["events"].as_u64().expect("a count") - known["finished"].as_u64().expect("a count")
    };
    for _ in 0..3 {
        store.restart();
        store.put("7/1/0").expect(2).says("run discarded");
    }
    until(|| left(&store) == 0);
    let mut client = store.server.client("writer");
    assert_eq!(put_events(&mut client, 7, 30_000..30_001), [PutOutcome::RunDiscarded]);
    store.server.get("7/1/0").expect(1).says("deleted");
    let known = client.runs().expect("answered");
    let other = known.iter().find(|info| info.run == RunId(8)).expect("it is there");
    assert_eq!((other.events, other.finished), (200, 0), "nothing of another run went");
    store.restart();
    assert_eq!(store.show(7)["state"], "discarded");
    store.run("declare 7 --sources 0").expect(2).says("run 7 was declared before and is discarded");
    store.run("hold 7 --reason late").expect(2).says("That is for ever");
}

#[test]
fn a_run_of_ten_thousand_is_found_and_none_is_forgotten() {
    let mut store = Store::start();
    let mut client = store.server.client("run control");
    let nobody = Signature::default();
    let sources: forebay_types::SourceSet = "0-99,200-299".parse().expect("sources");
    for run in 1..=10_000 {
        let declared = client.change_run(RunId(run), RunChange::Declare { sources: sources.clone() }, &nobody);
        assert_eq!(declared.expect("declared").state, RunState::Declared);
        if run == 5_000 {
            store.restart();
        }
    }
    store.restart();
    let used = client.change_run(RunId(77), RunChange::Declare { sources: sources.clone() }, &nobody);
    assert!(used.expect_err("used").to_string().contains("run 77 was declared before"));
    let listed = store.run("list --json").expect(0).json();
    let runs = listed["runs"].as_array().expect("a list");
    let numbers: Vec<u64> = runs.iter().map(|run| run["run"].as_u64().expect("a number")).collect();
    assert!(numbers.iter().copied().eq(1..=10_000), "{} runs", numbers.len());
    let from = store.run("list --from 9999 --json").expect(0).json();
    assert_eq!(from["runs"].as_array().expect("a list").len(), 2);
    assert_eq!(store.show(10_000)["sources"], "0-99,200-299");
}

#[test]
fn status_names_the_runs_that_wait_for_somebody_and_the_doctor_those_of_a_stopped_store() {
    let store = Store::start();
    for run in [7, 8, 9] {
        store.run(&format!("declare {run} --sources 0-3")).expect(0);
    }
    store.run("start 7").expect(0);
    store.run("start 8").expect(0);
    store.run("stop 8").expect(0);
    store.run("hold 9 --reason inquiry").expect(0);
    store.ask("stream define physics --prescale 3").expect(0);
    let told = || store.server.status()["runs"].clone();
    until(|| told()["held"] == 1);
    let runs = told();
    assert_eq!(
        (&runs["declared"], &runs["running_runs"][0], &runs["stopped_runs"][0]),
        (&1.into(), &7.into(), &8.into())
    );
    let screen = String::from_utf8(store.server.run(&["status"]).expect(0).stdout).expect("UTF-8");
    assert!(screen.contains("1 running (7), 1 stopped and not closed (8), 1 held (9); 1 declared"), "{screen}");
    let Store { server, drives, .. } = store;
    server.terminate().expect(0);
    let paths: Vec<String> = drives.paths.iter().map(|path| path.display().to_string()).collect();
    let doctor = |json: &[&str]| {
        let words = ["doctor"].iter().chain(json).map(|word| (*word).to_owned());
        forebay(words.chain(paths.clone())).expect(0)
    };
    let report = doctor(&["--json"]).json();
    let states: Vec<&str> = (0..3).filter_map(|at| report["runs"][at]["state"].as_str()).collect();
    assert_eq!((states, &report["streams"][0]["prescale"]), (vec!["running", "stopped", "declared"], &3.into()));
    let screen = String::from_utf8(doctor(&[]).stdout).expect("UTF-8");
    for words in ["run 8: stopped", "run 9: declared, held; sources 0-3", "stream physics version 1: prescale 3"] {
        assert!(screen.contains(words), "{words:?} is missing in\n{screen}");
    }
}
