//! `forebay move` between verified and released: sidecars, registering, and what is waited for besides.

use crate::common;
use crate::stand_in;

use std::fs;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use common::place::{Place, adler32};
use common::running::{Running, files_below, until};
use common::{forebay, noise};
use forebay_rawdata::{Container, Format, Generator};
use forebay_types::{EventId, RunId, crc32c};
use serde_json::{Value, json};
use stand_in::{Asked, Does, StandIn, answers};

fn events(format: Format, run: u32, first: u64, count: u64) -> Vec<u8> {
    let mut generator = Generator::new(format, first, RunId(run)).starting_at(EventId(first));
    (0..count).flat_map(|_| generator.next_event().bytes).collect()
}

#[test]
fn a_sidecar_lies_beside_each_file_and_says_what_it_is() {
    let place = Place::new();
    let faser = [events(Format::Faser, 1920, 5, 4), events(Format::Faser, 1920, 20, 2)].concat();
    let other = noise(1, 100_000);
    place.write("daq/run 7/ü.raw", &faser);
    place.write("daq/other.dat", &other);
    place.write("daq/empty", b"");
    let json = place.once(&["--sidecar"]).expect(0).json();
    assert_eq!((&json["released"], &json["left_files"]), (&3.into(), &0.into()), "{json}");
    let there = files_below(&place.path("archive"));
    assert_eq!(there.len(), 6, "each with its sidecar, and nothing besides: {:?}", there.keys());
    for (name, bytes) in [("run 7/ü.raw", &faser), ("other.dat", &other), ("empty", &Vec::new())] {
        let said = place.sidecar(name);
        assert_eq!(said["name"], name);
        assert_eq!(said["bytes"], bytes.len());
        assert_eq!(
            (&said["adler32"], &said["crc32c"]),
            (&json!(adler32(bytes)), &json!(format!("{:08x}", crc32c(bytes))))
        );
        assert_eq!(said["parts"], json!([{ "name": name, "bytes": bytes.len(), "adler32": adler32(bytes), "at": 0 }]));
    }
    let said = place.sidecar("run 7/ü.raw");
    let of_events = ["format", "run", "events", "event_ranges"].map(|key| said[key].clone());
    assert_eq!(of_events, [json!("faser"), json!(1920), json!(6), json!([[5, 8], [20, 21]])]);
    assert_eq!(
        (&place.sidecar("other.dat")["format"], &place.sidecar("other.dat")["run"]),
        (&json!("file"), &Value::Null)
    );
    // It is shown, and its steps are told apart in the log.
    let shown = place.show("other.dat");
    assert_eq!(shown["deliveries"][1]["what"], "sidecar", "{shown}");
    let log = fs::read_to_string(place.path("journal.sqlite.audit.jsonl")).expect("a log");
    let of_sidecars = log.lines().filter(|line| line.contains(r#""sidecar":true"#)).count();
    assert_eq!(of_sidecars, 3 * 4, "sending, arrived, verified, proven of each: {log}");
}

#[test]
fn sidecars_of_merged_files_say_where_each_part_lies() {
    let place = Place::new();
    let faser: Vec<Vec<u8>> = (0..5).map(|number| events(Format::Faser, 7, 10 * number, 3)).collect();
    let small: Vec<Vec<u8>> = (0..5).map(|number| noise(number, 1000 + number as usize)).collect();
    let container = Container::new(Format::Besiii, RunId(9), 0);
    for number in 0..5 {
        place.write(&format!("daq/faser/part{number}.raw"), &faser[number]);
        place.write(&format!("daq/small/{}{number}", "n".repeat(60 * number)), &small[number]);
        let mut generator =
            Generator::new(Format::Besiii, number as u64, RunId(9)).starting_at(EventId(2 * number as u64));
        let (mut file, mut event_bytes) = (container.head(), 0);
        for sequence in 0..2 {
            let event = generator.next_event().bytes;
            file.extend(container.before_event(sequence, event.len() as u64));
            event_bytes += event.len() as u64;
            file.extend(event);
        }
        file.extend(container.tail(2, event_bytes));
        place.write(&format!("daq/besiii/part{number}.besiii"), &file);
    }
    place.once(&["--sidecar", "--merge", "5MB"]).expect(0);
    for (name, parts) in [("faser/run000007-00001.raw", &faser), ("small/files-00001.tar", &small)] {
        let (whole, said) = (place.read(&format!("archive/{name}")).expect("there"), place.sidecar(name));
        assert_eq!((&said["bytes"], &said["adler32"]), (&json!(whole.len()), &json!(adler32(&whole))), "{name}");
        for (part, told) in parts.iter().zip(said["parts"].as_array().expect("parts")) {
            let at = told["at"].as_u64().expect("a place") as usize;
            assert!(whole[at..].starts_with(part), "{name}: {told}");
            assert_eq!((&told["bytes"], &told["adler32"]), (&json!(part.len()), &json!(adler32(part))), "{name}");
        }
    }
    let said = place.sidecar("faser/run000007-00001.raw");
    assert_eq!(said["event_ranges"], json!([[0, 2], [10, 12], [20, 22], [30, 32], [40, 42]]), "{said}");
    assert_eq!(place.sidecar("small/files-00001.tar")["format"], "tar");
    // Of a format with something around its events: where those of a part begin, with what stands before the first.
    let (name, said) = ("besiii/run000009-00001.besiii", place.sidecar("besiii/run000009-00001.besiii"));
    let whole = place.read(&format!("archive/{name}")).expect("there");
    assert_eq!(
        (&said["format"], &said["events"], &said["event_ranges"]),
        (&json!("besiii"), &json!(10), &json!([[0, 9]]))
    );
    let parts = said["parts"].as_array().expect("parts");
    assert_eq!((parts.len(), &parts[0]["at"]), (5, &json!(0)));
    for (number, told) in parts.iter().enumerate().skip(1) {
        let at = told["at"].as_u64().expect("a place") as usize;
        let before = container.before_event(2 * number as u64, 0).len();
        let part = place.read(&format!("daq/besiii/part{number}.besiii.copied")).expect("there");
        let first = container.head().len() + before;
        assert_eq!(whole[at + before..at + before + 100], part[first..first + 100], "{told}");
    }
}

#[test]
fn a_sidecar_that_is_lost_or_damaged_is_made_again_byte_by_byte() {
    for damage in [None, Some(b"{}".as_slice())] {
        let place = Place::new();
        place.write("daq/a.mdf", &events(Format::Mdf, 7, 1, 3));
        let forever = ["--settle", "0", "--sidecar", "--recheck-after", "3600"];
        let mut mover = Running::start(place.arguments(&forever), Stdio::null());
        let verified = || place.show("a.mdf")["deliveries"][1]["state"] == "verified";
        until(verified);
        mover.kill();
        let before = place.read("archive/a.mdf.json").expect("there");
        match damage {
            None => fs::remove_file(place.path("archive/a.mdf.json")).expect("removed"),
            Some(bytes) => place.write("archive/a.mdf.json", bytes),
        }
        place.once(&["--sidecar"]).expect(0);
        assert_eq!(place.read("archive/a.mdf.json"), Some(before), "{damage:?}");
        assert_eq!(files_below(&place.path("archive")).len(), 2, "nothing besides");
        let log = fs::read_to_string(place.path("journal.sqlite.audit.jsonl")).expect("a log");
        assert!(log.contains("3600") || log.contains("0.1 s later"), "{log}");
    }
}

#[test]
fn a_sidecar_of_somebody_else_is_left_alone() {
    let place = Place::new();
    place.write("daq/a.dat", b"bytes");
    place.write("archive/a.dat.json", b"of somebody else");
    place.once(&["--sidecar"]).expect(1).says("another file has its name");
    assert_eq!(place.read("archive/a.dat.json").as_deref(), Some(b"of somebody else".as_slice()));
    assert!(place.path("daq/a.dat").exists(), "it is not let go");
    assert_eq!(place.ask(&["list"]).expect(0).json()["files"][0]["state"], "quarantined");
    fs::remove_file(place.path("archive/a.dat.json")).expect("removed");
    place.ask(&["retry", "--all"]).expect(0);
    place.once(&["--sidecar"]).expect(0);
    assert_eq!(place.sidecar("a.dat")["bytes"], 5);
    // A name that has no room for it.
    let long = "n".repeat(252);
    place.write(&format!("daq/{long}"), b"bytes");
    place.once(&["--sidecar", "--remove"]).expect(1).says("no room");
    assert!(!place.path(&format!("archive/{long}")).exists() && place.path(&format!("daq/{long}")).exists());
    // Somebody answers for it, unchecked as it is.
    place.ask(&["release", "--name", &long, "--reason", "it is on two tapes"]).expect(0);
    place.once(&["--sidecar", "--remove"]).expect(0);
    assert!(!place.path(&format!("daq/{long}")).exists());
}

/// A registry that answers as it is told, by how often it was asked.
fn registry(does: impl Fn(usize, &Asked) -> Does + Send + Sync + 'static) -> StandIn {
    let asked = AtomicUsize::new(0);
    StandIn::start(move |request| does(asked.fetch_add(1, Relaxed), request))
}

fn url(registry: &StandIn) -> String {
    format!("http://127.0.0.1:{}/catalogue/files?of=raw", registry.port)
}

#[test]
fn a_file_is_registered_once_whatever_the_registry_answers_first() {
    let place = Place::new();
    place.write("daq/a.raw", &events(Format::Faser, 7, 1, 3));
    // It fails, takes it and says nothing, and then says that it has that already.
    let taken = Arc::new(std::sync::Mutex::new(Vec::new()));
    let there = Arc::clone(&taken);
    let server = registry(move |number, _| match number {
        0 => answers(500, &[]),
        1 => Does::CutsAfter(usize::MAX),
        _ => Does::Answers(409, Vec::new(), there.lock().expect("no panic").clone()),
    });
    let mover = place.start_at_once(&["--sidecar", "--register", &url(&server)]);
    until(|| server.asked().len() >= 2);
    // However it is written.
    let text: Value = serde_json::from_slice(&server.asked()[1].body).expect("JSON");
    *taken.lock().expect("no panic") = serde_json::to_vec_pretty(&text).expect("JSON");
    until(|| place.path("daq/a.raw.copied").exists());
    assert_eq!(mover.terminate(), Some(0));
    let asked = server.asked();
    let sidecar = place.read("archive/a.raw.json").expect("there");
    let key = asked[0].header("idempotency-key").expect("a key").to_owned();
    for request in &asked {
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/catalogue/files?of=raw"));
        assert_eq!((&request.body, request.header("idempotency-key")), (&sidecar, Some(key.as_str())));
        assert_eq!(request.header("content-type"), Some("application/json"));
    }
    assert_eq!(key, format!("\"{}-1\"", text["journal"].as_str().expect("a number")));
    assert_eq!(place.show("a.raw")["registered"], true);
    let log = fs::read_to_string(place.path("journal.sqlite.audit.jsonl")).expect("a log");
    let after: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let at = |state: &str| after.iter().rposition(|line| line["after"] == state).expect("it was");
    assert!(at("proven") < at("registered") && at("registered") < at("released"), "{log}");
}

#[test]
fn what_the_registry_refuses_stays_at_the_source_until_somebody_looks() {
    let place = Place::new();
    place.write("daq/a.dat", b"bytes");
    let mended = Arc::new(AtomicBool::new(false));
    let is_mended = Arc::clone(&mended);
    let server = registry(move |number, _| match number {
        _ if is_mended.load(Relaxed) => answers(201, &[]),
        0 => Does::Answers(409, Vec::new(), b"{\"name\":\"another\"}".to_vec()),
        _ => answers(422, &[]),
    });
    // Without a sidecar, too.
    let mover = place.start_at_once(&["--register", &url(&server)]);
    let words = || place.show("a.dat")["words"].as_str().unwrap_or_default().to_owned();
    until(|| words().contains("something else is registered under this key"));
    assert!(place.path("archive/a.dat").exists() && place.path("daq/a.dat").exists());
    until(|| place.show("a.dat")["state"] == "quarantined");
    assert!(words().contains("422"), "{}", words());
    let asked = server.asked().len();
    assert_eq!(asked, 5, "a bounded number of times");
    mended.store(true, Relaxed);
    place.ask(&["retry", "a.dat"]).expect(0);
    until(|| place.path("daq/a.dat.copied").exists());
    assert_eq!((mover.terminate(), server.asked().len()), (Some(0), asked + 1));
    assert!(!place.path("archive/a.dat.json").exists());
}

#[test]
fn a_registry_that_is_away_or_hangs_is_waited_for() {
    let place = Place::new();
    place.write("daq/a.dat", b"bytes");
    let server = registry(|_, _| Does::Hangs);
    let hangs = place.once(&["--register", &url(&server), "--stall-after", "0.3", "--patience", "0.5"]).expect(3);
    hangs.says("cannot be registered").says("nothing happened");
    place.once(&["--register", "http://127.0.0.1:1/", "--patience", "0.5"]).expect(3).says("away");
    assert!(place.path("daq/a.dat").exists());
    place.once(&["--register", "ftp://host/a"]).expect(2).says("http");
    place.once(&["--register", "https://me:secret@host/a"]).expect(2).says("a user or a password");
    place.once(&["--register", "http://host/a", "--register-command", "/bin/true"]).expect(2);
    place.write("token", b"abc");
    let token = place.text("token");
    place.once(&["--register", "http://host.example/a", "--register-token-file", &token]).expect(2).says("https://");
    let server = registry(|_, _| answers(204, &[]));
    place.once(&["--register", &url(&server), "--register-token-file", &token]).expect(0);
    assert_eq!(server.asked()[0].header("authorization"), Some("Bearer abc"));
}

#[test]
fn a_program_registers_too_and_its_last_words_are_told() {
    let place = Place::new();
    place.write("daq/a.dat", b"bytes");
    let taken = place.text("taken");
    let program = place.program(&format!("cat > {taken}; echo words >&2; echo the database is full >&2; exit 75"));
    let mover = place.start_at_once(&["--sidecar", "--register-command", &program]);
    let words = || place.show("a.dat")["words"].as_str().unwrap_or_default().to_owned();
    until(|| words().ends_with("the database is full"));
    place.program("echo it is no file of ours >&2; exit 1");
    until(|| words().ends_with("it is no file of ours"));
    assert!(place.path("daq/a.dat").exists());
    place.program(&format!("cat > {taken}"));
    until(|| place.path("daq/a.dat.copied").exists());
    mover.terminate();
    assert_eq!(place.read("taken"), place.read("archive/a.dat.json"));
    place
        .once(&["--register-command", &place.text("none")])
        .expect(2)
        .says("--register-command")
        .says("nothing was moved");
}

#[test]
fn a_program_that_hangs_is_ended_and_run_again() {
    let place = Place::new();
    place.write("daq/a.dat", b"bytes");
    let begun = place.text("begun");
    let program = place.program(&format!("test -e {begun} && exit 0; touch {begun}; sleep 1000"));
    place.once(&["--register-command", &program, "--stall-after", "0.5"]).expect(0);
    assert!(place.path("daq/a.dat.copied").exists() && place.path("begun").exists());
}

#[test]
fn what_is_waited_for_besides_takes_as_long_as_it_takes() {
    let place = Place::new();
    place.write("daq/a.dat", b"bytes");
    let (asked, there) = (place.text("asked"), place.text("there"));
    let program = place.program(&format!("echo $1 >> {asked}; test -e {there} || exit 75"));
    let mover = place.start_at_once(&["--sidecar", "--until-command", &program]);
    let state = || place.show("a.dat")["state"].as_str().unwrap_or_default().to_owned();
    until(|| state() == "waiting");
    let delivery = place.show("a.dat")["deliveries"][0].clone();
    let since = delivery["waits_since_unix_ms"].as_i64().expect("a time");
    let status = place.ask(&["status"]).expect(0).json();
    assert!(status["waits_since_unix_ms"].as_i64().is_some_and(|first| first <= since), "{status}");
    assert_eq!(status["states"]["waiting"]["files"], 1, "{status}");
    // It is asked again, and that is no strike.
    until(|| fs::read_to_string(&asked).is_ok_and(|asked| asked.lines().count() >= 6));
    assert_eq!((state().as_str(), &place.show("a.dat")["deliveries"][0]["strikes"]), ("waiting", &json!(0)));
    assert!(place.path("daq/a.dat").exists());
    assert_eq!(mover.terminate(), Some(0));
    place.write("there", b"");
    place.once(&["--sidecar", "--until-command", &program]).expect(0);
    let asked = fs::read_to_string(&asked).expect("it was asked");
    let (file, sidecar) = (place.text("archive/a.dat"), place.text("archive/a.dat.json"));
    assert!(asked.lines().all(|line| line == file || line == sidecar), "{asked}");
    assert!(asked.contains(&format!("{file}\n")) && asked.contains(&sidecar), "{asked}");
}

#[test]
fn who_loses_it_on_the_way_to_tape_is_not_believed() {
    let place = Place::new();
    place.write("daq/a.dat", b"bytes");
    // By the time that it is on tape it is another one.
    let once = place.text("once");
    let program = place.program(&format!("test -e {once} || printf byteS > $1; touch {once}"));
    place.once(&["--until-command", &program]).expect(0);
    assert_eq!(place.read("archive/a.dat").as_deref(), Some(b"bytes".as_slice()));
    let log = fs::read_to_string(place.path("journal.sqlite.audit.jsonl")).expect("a log");
    assert!(log.contains("the destination holds 5 bytes") && log.contains("quarantined"), "{log}");
    // One that refuses.
    place.write("daq/b.dat", b"bytes");
    let program = place.program("echo never >&2; exit 1");
    let mover = place.start_at_once(&["--until-command", &program]);
    until(|| place.show("b.dat")["state"] == "quarantined");
    assert!(place.show("b.dat")["deliveries"][0]["words"].as_str().is_some_and(|words| words.contains("never")));
    mover.terminate();
}

#[test]
fn those_that_cannot_tell_of_tape_refuse_to_wait_for_it() {
    let place = Place::new();
    place.write("daq/a.dat", b"bytes");
    place
        .once(&["--until", "on-tape"])
        .expect(2)
        .says("--until: ")
        .says("cannot say whether a file is on tape")
        .says("--until-command");
    for to in ["https://host/a", "s3://bucket/a"] {
        let ran = forebay([
            "move",
            "--from",
            &place.text("daq"),
            "--to",
            to,
            "--journal",
            &place.text("journal.sqlite"),
            "--until",
            "on-tape",
        ]);
        ran.expect(2).says("root:// alone can").says("nothing was moved");
    }
    place.once(&["--until", "on-moon"]).expect(2);
    place.once(&["--until-command", &place.text("none")]).expect(2).says("--until-command");
    assert!(!place.path("archive").exists());
    // The same in a file, by its keys.
    let config = format!(
        "journal = '{0}/j'\n[destination.a]\naddress = '{0}/archive'\nKEY\n[route.r]\nfrom = '{0}/daq'\nto = ['a']\nrecheck-after-s = 0.1\nsidecar = true\nROUTE\n",
        place.0.path().display()
    );
    let program = place.program("cat > /dev/null");
    for (key, route, exit, words) in [
        ("until = 'on-tape'", "", 2, "destination.a.until: "),
        ("until = 'moon'", "", 2, "nothing that is waited for"),
        ("until-command = '/none'", "", 2, "destination.a.until-command"),
        ("", "register-token-file = 'a'", 2, "route.r.register is missing"),
        (
            "",
            "register = 'http://h/'\nregister-command = '/bin/true'",
            2,
            "route.r.register and route.r.register-command",
        ),
        (&format!("until-command = '{program}'"), &format!("register-command = '{program}'"), 0, ""),
    ] {
        place.write("move.toml", config.replace("KEY", key).replace("ROUTE", route).as_bytes());
        forebay(["move", "--config", &place.text("move.toml"), "--once", "--json"]).expect(exit).says(words);
    }
    assert_eq!(place.sidecar("a.dat")["bytes"], 5);
    let shown = forebay(["move", "show", "a.dat", "--journal", &place.text("j"), "--json"]).expect(0).json();
    assert_eq!(shown["files"][0]["file"]["registered"], true, "{shown}");
}
