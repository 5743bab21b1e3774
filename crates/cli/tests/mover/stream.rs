//! `forebay move --from stream:NAME`: the accepted events of a stream, in files of their format.
//!
//! The moments of kills are seeded; `FOREBAY_KILL_SEED` chooses others. There are 8 kills, with `FOREBAY_TEST_ALL` 40, `FOREBAY_KILL_ROUNDS` another number.

use crate::common;

use std::process::Stdio;
use std::time::Duration;

use common::between::{Between, Passing};
use common::buffer::{Buffer, decide};
use common::forebay;
use common::judge::{self, Judge};
use common::load::{Random, from_environment, long_form};
use common::running::{Running, files_below, until};
use forebay_client::Client;
use forebay_rawdata::{EventReader, Format, Generator};
use forebay_types::{EventId, EventKey, RunId};

#[test]
fn accepted_events_become_files_of_their_format_and_are_released() {
    let mut buffer = Buffer::new();
    let mut client = buffer.server.client("filter");
    let mut accepted = Vec::new();
    for (number, format) in Format::ALL.into_iter().enumerate() {
        let mut generator = Generator::new(format, 9, RunId(1920 + number as u32));
        let keys = buffer.put(&mut generator, 60);
        let (wanted, unwanted): (Vec<_>, Vec<_>) = keys.into_iter().partition(|key| key.event.0 % 3 > 0);
        decide(&mut client, &wanted, &["physics"]);
        decide(&mut client, &unwanted, &[]);
        accepted.extend(wanted);
    }
    let json = buffer.once(&["--merge", "200kB"]).expect(0).json();
    assert_eq!((&json["found"], &json["left_files"]), (&json["released"], &0.into()), "{json}");
    let archived = buffer.archived();
    assert!(archived.keys().eq(accepted.iter()) && archived.values().all(|times| *times == 1));
    let names: Vec<String> = files_below(&buffer.path("archive")).into_keys().collect();
    for (run, ending) in [(1920, "raw"), (1921, "mdf"), (1922, "besiii")] {
        let of_run = |name: &&String| name.starts_with(&format!("physics/run{run:06}-")) && name.ends_with(ending);
        assert!(names.iter().filter(of_run).count() > 1, "{names:?}");
    }
    // The store has forgotten them.
    let runs = client.runs().expect("answered");
    assert!(runs.iter().filter(|run| run.run.0 >= 1920).all(|run| run.finished == run.events), "{runs:?}");
    // Each is found by its number.
    let journal = buffer.path("journal.sqlite").display().to_string();
    let key = accepted[50];
    let shown = forebay(["move", "show", &key.to_string(), "--journal", &journal, "--json"]).expect(0).json();
    let file = &shown["files"][0]["file"];
    assert_eq!((&file["state"], &file["events"]["run"]), (&"released".into(), &key.run.0.into()), "{shown}");
    forebay(["move", "show", "1920/999999", "--journal", &journal]).expect(1).says("knows no file");
    // Nothing is left.
    let json = buffer.once(&[]).expect(0).json();
    assert_eq!(json["found"], 0);
}

#[test]
fn undecided_events_hold_those_behind_them_and_each_stream_has_its_files() {
    let mut buffer = Buffer::new();
    let mut client = buffer.server.client("filter");
    let keys = buffer.put(&mut Generator::new(Format::Mdf, 3, RunId(7)), 40);
    decide(&mut client, &keys[..10], &["physics", "express"]);
    decide(&mut client, &keys[20..], &["physics"]);
    let options = ["--recheck-after", "0.1", "--merge-wait", "0.2", "--order-wait", "3600"];
    let physics = Running::start(buffer.arguments("journal.sqlite", "physics", &options), Stdio::null());
    until(|| buffer.path("archive").exists() && buffer.archived().len() == 10);
    decide(&mut client, &keys[10..20], &["physics"]);
    until(|| buffer.archived().len() == 40);
    assert_eq!(physics.terminate(), Some(0));
    // The others are held for another stream.
    let finished = |client: &mut Client| client.runs().expect("answered").iter().map(|run| run.finished).sum::<u64>();
    assert!(finished(&mut client) <= 30);
    let express = buffer.arguments("express.sqlite", "express", &["--once", "--recheck-after", "0.1"]);
    forebay(express).expect(0);
    buffer.once(&[]).expect(0);
    assert_eq!(finished(&mut client), 40);
    let archived = buffer.archived();
    assert!(keys.iter().enumerate().all(|(at, key)| archived[key] == if at < 10 { 2 } else { 1 }));
    // In order: no file of the first stream begins before the end of another.
    let files = files_below(&buffer.path("archive").join("physics"));
    let numbers = files.values().flat_map(|bytes| EventReader::new(Format::Mdf, bytes.as_slice()));
    let numbers: Vec<EventKey> = numbers.map(|event| event.expect("whole").key).collect();
    assert_eq!(numbers, keys);
}

#[test]
fn a_run_that_is_held_holds_up_no_other() {
    let mut buffer = Buffer::new();
    let mut client = buffer.server.client("filter");
    // More files of the run that is held, and before those of the other, than one mover works on at a time.
    for (run, count) in [(1920, 40), (1921, 20)] {
        let (number, server) = (run.to_string(), ["--server", &buffer.server.address]);
        forebay([&["run", "declare", &number, "--sources", "0-1000000"][..], &server].concat()).expect(0);
        forebay([&["run", "start", &number][..], &server].concat()).expect(0);
        let keys = buffer.put(&mut Generator::new(Format::Faser, 9, RunId(run)), count);
        decide(&mut client, &keys, &["physics"]);
    }
    let address = buffer.server.address.clone();
    let hold = ["run", "hold", "1920", "--server", &address];
    forebay([&hold[..], &["--reason", "to be looked at"]].concat()).expect(0);
    let finished = |client: &mut Client, run: u32| {
        let runs = client.runs().expect("answered");
        runs.iter().find(|of| of.run.0 == run).map_or(0, |of| of.finished)
    };
    let arguments = ["--recheck-after", "0.1", "--merge", "100kB", "--merge-wait", "0", "--streams", "1"];
    let mover = Running::start(buffer.arguments("journal.sqlite", "physics", &arguments), Stdio::null());
    until(|| finished(&mut client, 1921) == 20);
    assert_eq!(finished(&mut client, 1920), 0, "what is held is kept");
    // What comes while it is held, too.
    let mut generator = Generator::new(Format::Faser, 9, RunId(1921)).starting_at(EventId(100));
    let later = buffer.put(&mut generator, 5);
    decide(&mut client, &later, &["physics"]);
    until(|| finished(&mut client, 1921) == 25);
    forebay([&hold[..], &["--end"]].concat()).expect(0);
    until(|| finished(&mut client, 1920) == 40);
    assert_eq!(mover.terminate(), Some(0));
    let archived = buffer.archived();
    assert!(archived.len() == 65 && archived.values().all(|times| *times == 1), "{}", archived.len());
}

#[test]
fn each_event_is_in_one_file_whenever_mover_and_server_die() {
    if !judge::is_here() {
        return;
    }
    let kills_wanted = from_environment("FOREBAY_KILL_ROUNDS").unwrap_or(if long_form() { 40 } else { 8 });
    let mut random = Random(from_environment("FOREBAY_KILL_SEED").unwrap_or(1));
    let mut buffer = Buffer::new();
    // A server that is started again may have another address.
    let judge =
        |buffer: &Buffer| Judge::of_events(buffer.path("put"), &buffer.server.address, &[buffer.path("archive")]);
    let mut generator = Generator::new(Format::Faser, 5, RunId(1920));
    let mut accepted = Vec::new();
    for kill in 0..kills_wanted {
        let mut client = buffer.server.client("filter");
        let keys = buffer.put(&mut generator, 150);
        let bytes: Vec<u8> = keys.iter().flat_map(|key| &buffer.events[key]).copied().collect();
        judge(&buffer).note(&format!("physics/{kill}.raw"), &bytes);
        decide(&mut client, &keys, &["physics"]);
        accepted.extend(keys);
        drop(client);
        let options = ["--once", "--recheck-after", "0.05", "--merge", "300kB", "--patience", "60"];
        let mut mover = Running::start(buffer.arguments("journal.sqlite", "physics", &options), Stdio::null());
        std::thread::sleep(Duration::from_micros(20_000 + random.below(500_000)));
        if kill % 4 == 3 {
            let paths = buffer.drives.paths.clone();
            buffer.server.send_kill();
            buffer.server.replace_killed(&[], &paths);
        }
        mover.kill();
        judge(&buffer).judge(false);
    }
    buffer.once(&["--merge", "300kB"]).expect(0);
    judge(&buffer).judge(true);
    let archived = buffer.archived();
    assert!(archived.keys().eq(accepted.iter()), "{} of {}", archived.len(), accepted.len());
    let twice: Vec<&EventKey> = archived.iter().filter(|(_, times)| **times != 1).map(|(key, _)| key).collect();
    assert!(twice.is_empty(), "{twice:?}");
    let hidden: Vec<String> =
        files_below(&buffer.path("archive")).into_keys().filter(|name| name.contains("/.")).collect();
    assert!(hidden.is_empty(), "{hidden:?} lie about");
    let runs = buffer.server.client("filter").runs().expect("answered");
    assert_eq!(
        runs.iter().map(|run| (run.events, run.finished)).next(),
        Some((accepted.len() as u64, accepted.len() as u64))
    );
}

#[test]
fn a_mover_whose_server_died_before_it_said_that_the_stream_is_leased_has_it() {
    let mut buffer = Buffer::new();
    let keys = buffer.put(&mut Generator::new(Format::Mdf, 3, RunId(7)), 5);
    decide(&mut buffer.server.client("filter"), &keys, &["physics"]);
    let address = buffer.server.address.clone();
    let port = address.rsplit_once(':').expect("with a port").1.parse().expect("a port");
    // What a lease says of its mover is in no other request.
    let between = Between::start(port, Passing::CutsAnswerTo(b", process "));
    buffer.server.address = format!("127.0.0.1:{}", between.port);
    let mut mover = Running::start(
        buffer.arguments("journal.sqlite", "physics", &["--once", "--recheck-after", "0.1"]),
        Stdio::null(),
    );
    between.wait_for_cut();
    buffer.server.address = address;
    let paths = buffer.drives.paths.clone();
    buffer.server.replace_killed(&[], &paths);
    between.go_on();
    assert_eq!(mover.0.wait().expect("it ends").code(), Some(0));
    assert!(buffer.archived().keys().eq(keys.iter()));
}

#[test]
fn what_cannot_be_moved_from_is_said() {
    let mut buffer = Buffer::new();
    let keys = buffer.put(&mut Generator::new(Format::Mdf, 3, RunId(7)), 5);
    decide(&mut buffer.server.client("filter"), &keys, &["physics"]);
    let first = Running::start(buffer.arguments("journal.sqlite", "physics", &["--merge-wait", "0"]), Stdio::null());
    let files = || files_below(&buffer.path("")).keys().any(|name| name.contains("physics/"));
    until(files);
    forebay(buffer.arguments("other.sqlite", "physics", &["--once"]))
        .expect(3)
        .says("another mover has stream physics");
    drop(first);
    let refused = |stream: &str, more: &[&str], words: &str| {
        forebay(buffer.arguments("more.sqlite", stream, more)).expect(2).says(words);
    };
    refused("../physics", &["--once"], "cannot name a stream");
    refused("physics", &["--once", "--remove"], "always removed");
    refused("physics", &["--once", "--name", "{run}"], "one name");
    let long = format!("{}{{sequence}}", "x".repeat(250));
    refused("physics", &["--once", "--name", &long], "too long");
    // A stream that nobody accepted into has nothing: that is no failure, as it may come.
    let json = forebay(buffer.arguments("more.sqlite", "nothing", &["--once", "--json"])).expect(0).json();
    assert_eq!(json["found"], 0);
}
