//! `forebay move --door`: destinations fetch files themselves, and are believed no more than others.

use crate::common;
use crate::http_door;
use crate::stand_in;
use crate::xrootd as server;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use common::{Ran, forebay, noise, scratch};
use http_door::HttpDoor;
use server::XRootDServer;
use stand_in::{Does, StandIn, answers};

/// Moves all of a directory once, with a journal elsewhere.
fn once(from: &Path, journal: &Path, to: &str, door: &str, more: &[&str]) -> Ran {
    let text = |path: &Path| path.display().to_string();
    let (from, journal) = (text(from), text(journal));
    let usual = ["--once", "--recheck-after", "1", "--json"];
    let arguments = ["move", "--from", &from, "--to", to, "--journal", &journal, "--door", door];
    forebay([&arguments, &usual[..], more].concat())
}

/// What was said at each step of a file at its destinations.
fn words_of(journal: &Path, name: &str) -> String {
    let shown = forebay(["move", "show", name, "--journal", &journal.display().to_string(), "--json"]).expect(0).json();
    let steps = shown["files"][0]["steps"].as_array().cloned().unwrap_or_default();
    steps.iter().filter_map(|step| step["words"].as_str()).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_web_server_fetches_files_and_is_asked_for_what_it_has() {
    let Some(there) = HttpDoor::start_with_tls() else { return };
    let Some(here) = HttpDoor::start() else { return };
    let place = scratch();
    let (journal, ca) = (place.path().join("journal.sqlite"), there.ca_file().display().to_string());
    let from = here.data().join("daq");
    let files = [("a.raw", noise(1, 9_000_001)), ("run 7/ü #1.raw", noise(2, 4096)), ("run 7/empty", Vec::new())];
    for (name, bytes) in &files {
        let path = from.join(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("made");
        fs::write(path, bytes).expect("written");
    }
    let (to, door) = (format!("{}/archive/2026", there.url()), format!("{}/daq", here.url()));
    once(&from, &journal, &to, &door, &["--ca-file", &ca, "--patience", "5"]).expect(0);
    for (name, bytes) in &files {
        let path = there.data().join("archive/2026").join(name);
        assert_eq!(&fs::read(path).expect("it is there"), bytes, "{name}");
        assert!(from.join(format!("{name}.copied")).exists(), "{name}");
        assert!(!words_of(&journal, name).contains("could not fetch"), "{name} was sent");
    }
    // A door behind which the file is not: it is sent.
    fs::write(from.join("b.raw"), noise(3, 5000)).expect("written");
    once(&from, &journal, &to, &format!("{}/elsewhere", here.url()), &["--ca-file", &ca, "--patience", "5"]).expect(0);
    assert_eq!(fs::read(there.data().join("archive/2026/b.raw")).expect("it is there"), noise(3, 5000));
    assert!(words_of(&journal, "b.raw").contains("could not fetch the file itself"), "{}", words_of(&journal, "b.raw"));
}

#[test]
fn an_xrootd_server_fetches_files() {
    let lines = "xrootd.chksum max 2 adler32\nofs.tpc pgm /usr/bin/xrdcp --server";
    let Some(there) = XRootDServer::start_with(lines) else { return };
    let Some(here) = XRootDServer::start_with(lines) else { return };
    let place = scratch();
    let journal = place.path().join("journal.sqlite");
    let bytes = noise(4, 3_000_001);
    here.put("daq/run7/a.raw", &bytes);
    let from = here.path("daq");
    for directory in [from.clone(), from.join("run7")] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).expect("changed");
    }
    once(&from, &journal, &there.address("archive"), &here.address("daq"), &[]).expect(0);
    assert!(there.get("archive/run7/a.raw").expect("it is there") == bytes);
    assert!(!words_of(&journal, "run7/a.raw").contains("could not fetch"));
    assert_eq!(there.files(), ["archive/run7/a.raw"]);
}

#[test]
fn one_that_says_that_it_fetched_a_file_is_not_believed() {
    let place = scratch();
    let from = place.path().join("daq");
    fs::create_dir(&from).expect("made");
    fs::write(from.join("a.raw"), noise(5, 1000)).expect("written");
    let token = place.path().join("token");
    fs::write(&token, "ticket-of-the-door").expect("written");
    let there = StandIn::start(|asked| match asked.method.as_str() {
        "HEAD" if asked.path.contains("part") => {
            answers(200, &[("content-length", "1000"), ("digest", "adler32=12345678")])
        }
        "HEAD" => answers(404, &[]),
        "COPY" => Does::Answers(201, Vec::new(), b"Stripe Bytes Transferred: 1000\nEnd\nsuccess: Created".to_vec()),
        _ => answers(201, &[]),
    });
    let journal = place.path().join("journal.sqlite");
    let more = ["--door-token-file", &token.display().to_string(), "--patience", "0"];
    let ran = once(&from, &journal, &there.url(), "https://daq01.example.org/daq", &more);
    ran.expect(1).says("12345678").says("quarantined");
    let copies = there.asked_with("COPY");
    assert_eq!(copies[0].header("source"), Some("https://daq01.example.org/daq/a.raw"));
    assert_eq!(copies[0].header("transferheaderauthorization"), Some("Bearer ticket-of-the-door"));
    assert!(from.join("a.raw").exists(), "it is at its source");
    assert_eq!(there.asked_with("MOVE").len(), 0, "what is wrong gets no name");
}

#[test]
fn a_door_that_nobody_uses_is_refused() {
    let place = scratch();
    let (from, to) = (place.path().join("daq"), place.path().join("archive"));
    fs::create_dir(&from).expect("made");
    let journal = place.path().join("journal.sqlite");
    let to = to.display().to_string();
    once(&from, &journal, &to, "root://daq01//daq", &[]).expect(2).says("no destination fetches by it");
    once(&from, &journal, &to, "s3://daq", &[]).expect(2).says("nothing fetches files from S3");
    once(&from, &journal, &to, "daq01", &[]).expect(2).says("no scheme");
}
