//! Streams that are defined, on a real server.

mod common;

use common::noise;
use common::store::Store;
use forebay_client::{Client, Decision};
use forebay_types::{DecideOutcome, EventKey, RunId, SourceId, StreamName, Verdict};
use serde_json::Value;

impl Store {
    fn json(&self, words: &str) -> Value {
        self.ask(&format!("{words} --json")).expect(0).json()
    }
}

fn put_and_accept(client: &mut Client, run: u32, events: std::ops::Range<u64>, streams: &[&str]) {
    let streams: Vec<StreamName> = streams.iter().map(|name| name.parse().expect("a name")).collect();
    for event in events.clone() {
        client.put(EventKey::new(run, event).fragment(SourceId(0)), 1, &noise(event, 100)).expect("taken");
    }
    client.flush().expect("durable");
    let decision = |event| Decision {
        key: EventKey::new(run, event),
        verdict: Verdict::Accept(streams.clone()),
        incomplete: false,
    };
    let decisions: Vec<Decision> = events.map(decision).collect();
    // Said twice, as after a lost answer: a prescale is applied once.
    let done = client.decide(&decisions).expect("answered");
    assert!(done.iter().all(|outcome| *outcome == DecideOutcome::Done), "{done:?}");
    let again = client.decide(&decisions).expect("answered");
    assert!(again.iter().all(|outcome| *outcome == DecideOutcome::AlreadyDone), "{again:?}");
}

fn accepted(client: &mut Client, stream: &str) -> Vec<EventKey> {
    let page = client.accepted(&stream.parse().expect("a name"), None, 10_000).expect("answered");
    page.events.iter().map(|event| event.key).collect()
}

#[test]
fn definitions_have_versions_and_a_run_has_those_of_its_start() {
    let mut store = Store::start();
    let listed = String::from_utf8(store.ask("stream list").expect(0).stdout).expect("text");
    assert!(listed.contains("no stream is defined"), "{listed}");
    let first =
        store.json("stream define physics --destination root://eos.example//raw --format mdf --priority 10 --by kim");
    assert_eq!((&first["version"], &first["by"], &first["prescale"]), (&1.into(), &"kim".into(), &1.into()));
    store.ask("stream define calibration --sources 0-3,0x10 --prescale 10 --block-s 60").expect(0);
    store.restart();
    store.ask("run declare 7 --sources 0-31").expect(0);
    store.ask("run start 7").expect(0);
    store.ask("stream define calibration --prescale 2 --block 1000").expect(0);
    store.restart();
    let shown = store.json("stream show calibration");
    let versions = shown["streams"].as_array().expect("versions");
    assert_eq!((&versions[0]["sources"], &versions[0]["block"]["seconds"]), (&"0-3,16".into(), &60.into()));
    assert_eq!((&versions[1]["sources"], &versions[1]["block"]["events"]), (&"all".into(), &1000.into()));
    assert_eq!((&versions[0]["prescale"], &versions[1]["prescale"]), (&10.into(), &2.into()));
    let newest = store.json("stream list");
    let newest: Vec<_> = newest["streams"].as_array().expect("streams").iter().map(|s| s["version"].as_u64()).collect();
    assert_eq!(newest, [Some(2), Some(1)]);
    let run = store.json("run show 7");
    let of_run: Vec<_> = run["streams"].as_array().expect("streams").iter().map(|s| s["version"].as_u64()).collect();
    assert_eq!(of_run, [Some(1), Some(1)]);
    let mut client = store.server.client("mover");
    let told = client.streams_of_run(RunId(7)).expect("told");
    assert_eq!(
        told.iter().map(|of| (of.name.as_str(), of.definition.prescale)).collect::<Vec<_>>(),
        [("calibration", 10), ("physics", 1)]
    );
    assert_eq!(told[1].definition.destination, "root://eos.example//raw");
    let newest = client.streams_of_run(RunId(9)).expect("told");
    assert_eq!(newest[0].definition.prescale, 2, "a run that was not started would have the newest");
    let words = String::from_utf8(store.ask("run show 7").expect(0).stdout).expect("text");
    assert!(words.contains("calibration version 1, physics version 1"), "{words}");
}

#[test]
fn a_prescale_keeps_events_by_their_numbers_once_in_runs_that_were_started() {
    let mut store = Store::start();
    store.ask("stream define calibration --prescale 10").expect(0);
    store.ask("stream define physics").expect(0);
    for run in [7, 8] {
        store.ask(&format!("run declare {run} --sources 0")).expect(0);
        store.ask(&format!("run start {run}")).expect(0);
    }
    let mut client = store.server.client("filter");
    put_and_accept(&mut client, 7, 0..100, &["calibration"]);
    store.restart();
    let mut client = store.server.client("filter");
    put_and_accept(&mut client, 8, 0..100, &["calibration", "physics"]);
    put_and_accept(&mut client, 9, 0..100, &["calibration"]);
    let of = |run, step: usize| (0..100).step_by(step).map(move |event| EventKey::new(run, event));
    let calibration: Vec<EventKey> = of(7, 10).chain(of(8, 10)).chain(of(9, 1)).collect();
    assert_eq!(accepted(&mut client, "calibration"), calibration, "run 9, which nobody declared, has all");
    assert_eq!(accepted(&mut client, "physics"), of(8, 1).collect::<Vec<_>>());
    let known = client.runs().expect("answered");
    let finished: Vec<_> = known.iter().map(|info| (info.run.0, info.finished)).collect();
    assert_eq!(finished, [(7, 90), (8, 0), (9, 0)], "what is in no stream is rejected");
}

#[test]
fn definitions_that_mean_nothing_are_refused() {
    let store = Store::start();
    for (words, said) in [
        ("stream define physics --prescale 0", "a prescale of 0 keeps nothing"),
        ("stream define physics --sources 5-2", "5-2 goes backwards"),
        ("stream define physics --block 0", "a luminosity block of 0"),
        ("stream define physics --block 1 --block-s 1", "cannot be used with"),
        ("stream define .physics", "cannot name a stream"),
        ("stream define physics --prescale -1", "invalid value"),
    ] {
        store.ask(words).expect(2).says(said);
    }
    let long = "x".repeat(1025);
    store.server.run(&["stream", "define", "physics", "--destination", &long]).expect(2).says("at most 1024 bytes");
    store.ask("stream show physics").expect(1).says("stream physics is not defined");
    for stream in 0..64 {
        store.ask(&format!("stream define s{stream}")).expect(0);
    }
    store.ask("stream define s64").expect(2).says("64 streams at most");
    store.ask("stream define s63").expect(0);
}
