//! What an operator sees of a mover: its status, its metrics, its alarms.

use crate::common;
use crate::stand_in;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use common::running::{Running, until};
use common::{Drives, Ran, forebay, noise, scratch};
use forebay_client::ClientConfig;
use forebay_client::files::{Files, Owner, WriteOptions};
use forebay_telemetry::metrics::rows;
use forebay_types::Adler32;
use rustix::process::Signal;
use serde_json::Value;

use stand_in::{Asked, Does, StandIn, answers};
use tempfile::TempDir;

const PAGE: &str = include_str!("../../../../docs/metrics.md");

/// A second between both proofs.
const RECHECK: &[&str] = &["--recheck-after", "1"];

struct Place(TempDir);

impl Place {
    fn with(name: &str, bytes: &[u8]) -> Place {
        let place = Place(scratch());
        fs::create_dir(place.path("daq")).expect("made");
        fs::write(place.path("daq").join(name), bytes).expect("written");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// A mover that goes on, whose words go to a file.
    fn start(&self, from: &str, to: &str, more: &[&str]) -> Running {
        let journal = self.text("journal.sqlite");
        let usual = ["--settle", "0", "--metrics", "127.0.0.1:0", "--alarm-after", "1"];
        let arguments = ["move", "--from", from, "--to", to, "--journal", &journal];
        let arguments = arguments.iter().chain(&usual).chain(more).map(|word| (*word).to_owned()).collect();
        let log = fs::File::options().create(true).append(true).open(self.path("log")).expect("opened");
        Running::start(arguments, Stdio::from(log))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn ask(&self, more: &[&str]) -> Ran {
        forebay([&["move", "status", "--journal", &self.text("journal.sqlite")], more].concat())
    }

    /// What a mover says of itself, once one has.
    fn status(&self) -> Value {
        until(|| self.path("journal.sqlite.status.json").exists());
        self.ask(&["--json"]).expect(0).json()
    }

    fn alarms(&self) -> Vec<String> {
        let alarms = self.status()["alarms"].as_array().expect("a list").clone();
        alarms.iter().map(|alarm| alarm["code"].as_str().expect("a code").to_owned()).collect()
    }

    /// What the newest mover serves.
    fn metrics(&self) -> String {
        let address = || {
            let log = self.log();
            let at = log.lines().rev().find_map(|line| line.strip_prefix("metrics are served on http://"))?;
            at.strip_suffix("/metrics").map(str::to_owned)
        };
        until(|| address().is_some());
        loop {
            let mut stream = TcpStream::connect(address().expect("served")).expect("connects");
            write!(stream, "GET /metrics HTTP/1.0\r\n\r\n").expect("sent");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("UTF-8");
            if answer.starts_with("HTTP/1.0 200 ") {
                return answer;
            }
        }
    }
}

/// An honest server of one file, a.dat, that is away as long as it is told so.
fn server() -> (Arc<StandIn>, Arc<AtomicBool>) {
    let (own, away): (Arc<OnceLock<Arc<StandIn>>>, Arc<AtomicBool>) = Default::default();
    let (server, is_away) = (Arc::clone(&own), Arc::clone(&away));
    let started = Arc::new(StandIn::start(move |asked| match server.get() {
        Some(server) if !is_away.load(Relaxed) => answer(asked, server),
        _ => answers(503, &[]),
    }));
    assert!(own.set(Arc::clone(&started)).is_ok(), "once");
    (started, away)
}

fn answer(asked: &Asked, server: &StandIn) -> Does {
    match asked.method.as_str() {
        "HEAD" => {
            let sent = server.asked_with("PUT");
            let is_named = !server.asked_with("MOVE").is_empty();
            let is_last = asked.path.ends_with("/a.dat");
            let file = sent.iter().rfind(|put| if is_last { is_named } else { put.path == asked.path });
            let Some(file) = file else { return answers(404, &[]) };
            let mut sum = Adler32::default();
            sum.update(&file.body);
            let digest = format!("adler32={:08x}", sum.finish());
            answers(200, &[("content-length", &file.body.len().to_string()), ("digest", &digest)])
        }
        "DELETE" => answers(204, &[]),
        _ => answers(201, &[]),
    }
}

#[test]
fn a_destination_that_is_away_is_told_until_it_is_back() {
    let place = Place::with("a.dat", &noise(1, 50_000));
    let (server, away) = server();
    away.store(true, Relaxed);
    let mover = place.start(&place.text("daq"), &server.url(), RECHECK);
    until(|| place.alarms() == ["FB-502"]);
    let status = place.status();
    assert_eq!(status["running"], true);
    let destination = &status["report"]["destinations"][0];
    assert_eq!((&destination["away"], &destination["waiting"]["files"]), (&true.into(), &1.into()), "{status}");
    assert!(destination["failing_s"].as_f64().expect("a time") >= 1.0, "{status}");
    let screen = String::from_utf8(place.ask(&[]).expect(0).stdout).expect("UTF-8");
    for words in ["WARN: FB-502 destination-away: ", "docs/runbook.md#fb-502-destination-away", ": away for ", "503"] {
        assert!(screen.contains(words), "{words:?} is missing in\n{screen}");
    }
    let metrics = place.metrics();
    let at = server.url();
    for sample in [
        "forebay_alarm{code=\"FB-502\",name=\"destination-away\",severity=\"warning\"} 1.0".to_owned(),
        "forebay_alarm{code=\"FB-501\",name=\"file-quarantined\",severity=\"warning\"} 0.0".to_owned(),
        format!("forebay_mover_destination_away{{destination=\"{at}\"}} 1.0"),
        "forebay_mover_to_send_bytes{route=\"".to_owned(),
    ] {
        assert!(metrics.contains(&sample), "{sample:?} is missing in\n{metrics}");
    }
    // Every metric of the page is there.
    for row in rows(PAGE, "The mover") {
        let name = row.split('`').nth(1).expect("a name").trim_end_matches("_total");
        assert!(metrics.contains(&format!("# HELP {name} ")), "{name} is missing in\n{metrics}");
    }
    assert!(place.path("daq/a.dat").exists());
    away.store(false, Relaxed);
    until(|| place.path("daq/a.dat.copied").exists() && place.alarms().is_empty());
    let log = place.log();
    assert_eq!(log.matches("code=\"FB-502\"").count(), 2, "once when it came, once when it went:\n{log}");
    assert!(log.contains("the alarm is over"), "{log}");
    let ends = |metrics: &str, name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(&format!("{name}{{")));
        line.is_some_and(|line| line.ends_with(" 50000.0"))
    };
    // What the next look tells.
    until(|| ends(&place.metrics(), "forebay_mover_released_bytes_total"));
    let metrics = place.metrics();
    assert!(ends(&metrics, "forebay_mover_sent_bytes_total"), "{metrics}");
    assert!(metrics.contains(&format!("forebay_mover_destination_away{{destination=\"{at}\"}} 0.0")), "{metrics}");
    // It ended in order, and nothing waits: nobody is to come.
    mover.terminate();
    let status = place.status();
    assert_eq!((&status["running"], &status["alarms"]), (&false.into(), &Vec::<Value>::new().into()), "{status}");
}

#[test]
fn a_quarantine_is_told_by_the_mover_and_a_mover_that_was_killed_by_the_status() {
    let place = Place::with("a.dat", &noise(2, 3000));
    fs::create_dir(place.path("archive")).expect("made");
    fs::write(place.path("archive/a.dat"), b"in the way").expect("written");
    let mut mover = place.start(&place.text("daq"), &place.text("archive"), RECHECK);
    until(|| place.alarms() == ["FB-501"]);
    let words = place.status()["alarms"][0]["words"].as_str().expect("words").to_owned();
    assert!(words.contains("a.dat is quarantined") && words.contains("another file has its name there"), "{words}");
    let metrics = place.metrics();
    assert!(metrics.contains("code=\"FB-501\",name=\"file-quarantined\",severity=\"warning\"} 1.0"), "{metrics}");
    assert!(metrics.contains("state=\"quarantined\"} 1.0"), "{metrics}");
    mover.kill();
    let status = place.status();
    assert_eq!((&status["running"], &status["states"]["quarantined"]["files"]), (&false.into(), &1.into()), "{status}");
    assert_eq!(place.alarms(), ["FB-511"]);
    let screen = String::from_utf8(place.ask(&[]).expect(0).stdout).expect("UTF-8");
    for words in ["ERR: FB-511 no-mover", "1 files of 2.93 KiB", "none runs: the last one was last heard of "] {
        assert!(screen.contains(words), "{words:?} is missing in\n{screen}");
    }
    let _mover = place.start(&place.text("daq"), &place.text("archive"), RECHECK);
    until(|| place.alarms() == ["FB-501"]);
    fs::remove_file(place.path("archive/a.dat")).expect("removed");
    forebay(["move", "retry", "--all", "--journal", &place.text("journal.sqlite")]).expect(0);
    until(|| place.path("daq/a.dat.copied").exists() && place.alarms().is_empty());
}

#[test]
fn what_is_left_alone_and_what_cannot_be_registered_is_told_until_somebody_came() {
    let place = Place::with("a.dat", &noise(3, 3000));
    fs::write(place.path("daq/two\nlines"), b"more").expect("written");
    let program = place.path("register");
    let registers = |exit: u8| {
        // Renamed over the old one: that may be running.
        let new = place.path("register.new");
        fs::write(&new, format!("#!/bin/sh\nexit {exit}\n")).expect("written");
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).expect("executable");
        fs::rename(&new, &program).expect("renamed");
    };
    registers(75);
    let register = place.text("register");
    let more = [RECHECK, &["--register-command", &register]].concat();
    let _mover = place.start(&place.text("daq"), &place.text("archive"), &more);
    until(|| place.alarms() == ["FB-506", "FB-509"]);
    let status = place.status();
    let words = |at: usize| status["alarms"][at]["words"].as_str().expect("words").to_owned();
    assert!(words(0).contains("1 names are left alone") && words(0).contains("two\\nlines"), "{status}");
    assert!(words(1).contains("1 proven files could not be registered for "), "{status}");
    registers(0);
    fs::rename(place.path("daq/two\nlines"), place.path("daq/one line")).expect("renamed");
    until(|| place.path("daq/one line.copied").exists() && place.alarms().is_empty());
    assert!(place.path("daq/a.dat.copied").exists());
}

#[test]
fn how_long_a_directory_lasts_is_told_of_its_file_system() {
    let place = Place::with("a.dat", b"bytes");
    let _mover = place.start(&place.text("daq"), &place.text("archive"), RECHECK);
    until(|| place.status()["report"]["routes"][0]["space"].is_object());
    let space = place.status()["report"]["routes"][0]["space"].clone();
    let stat = rustix::fs::statvfs(place.0.path()).expect("a file system");
    let (free, capacity) = (space["free_bytes"].as_u64(), space["capacity_bytes"].as_u64());
    let all = (stat.f_blocks - (stat.f_bfree - stat.f_bavail)) * stat.f_frsize;
    assert!(capacity.is_some_and(|bytes| bytes.abs_diff(all) <= all / 10), "{space} of {all}");
    assert!(free <= capacity, "{space}");
}

#[test]
fn how_long_a_store_lasts_is_what_it_says_itself() {
    let drives = Drives::five();
    let server = drives.serve();
    let place = Place(scratch());
    let files = Files::connect(ClientConfig::new(&server.address, "test")).expect("connected");
    files.make_directories("/daq", &Owner { mode: 0o755, owner: 0, group: 0 }).expect("made");
    // Nothing is let go while it is looked.
    let _mover =
        place.start("forebay:/daq", &place.text("archive"), &["--server", &server.address, "--recheck-after", "3600"]);
    let space = || place.status()["report"]["routes"][0]["space"].clone();
    until(|| space().is_object());
    let (told, totals) = (space(), server.status()["totals"].clone());
    assert_eq!(told["capacity_bytes"], totals["capacity_bytes"]);
    assert!(told["full_in_s"].is_null(), "{told}");
    let mut number = 0;
    until(|| {
        number += 1;
        let mut file = files
            .create(format!("/daq/{number}"), &WriteOptions { seal: true, ..WriteOptions::default() })
            .expect("made");
        file.write(&noise(number, 20_000)).expect("written");
        file.close().expect("closed");
        space()["full_in_s"].is_f64()
    });
    // The store was asked a few seconds ago at most, and fills evenly.
    let (told, own) =
        (space()["full_in_s"].as_f64().expect("it fills"), server.status()["totals"]["time_left_s"].clone());
    let own = own.as_f64().expect("it fills");
    assert!(told > own / 3.0 && told < own * 3.0, "{told} s, and the store says {own} s");
}

fn streams(place: &Place) -> u64 {
    place.status()["report"]["streams_max"].as_u64().expect("a number")
}

#[test]
fn other_machines_see_nothing_unless_they_are_named() {
    let place = Place::with("a.dat", b"bytes");
    let refused = |more: &[&str]| {
        let (from, to, journal) = (place.text("daq"), place.text("archive"), place.text("journal.sqlite"));
        forebay([&["move", "--from", &from, "--to", &to, "--journal", &journal, "--once"], more].concat()).expect(2)
    };
    refused(&["--metrics", "0.0.0.0:0"]).says("--metrics 0.0.0.0:0 can be reached").says("--insecure-network");
    refused(&["--metrics", "0.0.0.0:0", "--insecure-network", "all"]).says("IP/BITS");
    assert!(place.path("daq/a.dat").exists(), "nothing was moved");
    // The same in a file, and what it says is served.
    let (from, to, journal) = (place.text("daq"), place.text("archive"), place.text("journal.sqlite"));
    let write = |first: &str| {
        let text = format!(
            "{first}\njournal = \"{journal}\"\n[destination.archive]\naddress = \"{to}\"\n[route.daq]\nfrom = \"{from}\"\nto = [\"archive\"]\nrecheck-after-s = 3600\nsettle-s = 0\n"
        );
        fs::write(place.path("move.toml"), text).expect("written");
    };
    let config = place.text("move.toml");
    write("metrics = \"0.0.0.0:0\"");
    forebay(["move", "--config", &config]).expect(2).says("--insecure-network");
    write("alarm-after-s = 0");
    forebay(["move", "--config", &config]).expect(2).says("alarm-after-s");
    write("metrics = \"127.0.0.1:0\"\nalarm-after-s = 60");
    let log = fs::File::create(place.path("log")).expect("made");
    let mover = Running::start(["move", "--config", &config].map(str::to_owned).to_vec(), Stdio::from(log));
    until(|| place.metrics().contains("forebay_mover_files{route=\"daq\",state=\"verified\"} 1.0"));
    // A new configuration: it is served as before, and counters go on.
    write("metrics = \"127.0.0.1:0\"\nalarm-after-s = 60\nstreams = 7");
    mover.signal(Signal::HUP);
    until(|| streams(&place) == 7);
    assert!(place.metrics().contains("forebay_mover_files_found_total{route=\"daq\"} 1.0"));
    // How it is served is not changed so.
    write("metrics = \"127.0.0.1:0\"\nalarm-after-s = 61");
    mover.signal(Signal::HUP);
    until(|| place.log().contains("that needs a new start"));
    assert_eq!(streams(&place), 7, "it goes on as before");
}
