//! `forebay move` to servers that speak WebDAV.

use crate::common;
use crate::http_door;
use crate::stand_in;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Ran, forebay, noise, scratch};
use http_door::HttpDoor;
use stand_in::{Does, StandIn, answers};
use tempfile::TempDir;

struct Place(TempDir);

impl Place {
    fn with(files: &[(&str, Vec<u8>)]) -> Place {
        let place = Place(scratch());
        for (name, bytes) in files {
            let path = place.0.path().join("daq").join(name);
            fs::create_dir_all(path.parent().expect("it has one")).expect("made");
            fs::write(path, bytes).expect("written");
        }
        place
    }

    fn arguments(&self, to: &str, more: &[&str]) -> Vec<String> {
        let of = |name: &str| self.0.path().join(name).display().to_string();
        let (from, journal) = (of("daq"), of("journal.sqlite"));
        let all =
            ["move", "--from", &from, "--to", to, "--journal", &journal, "--once", "--recheck-after", "1", "--json"];
        all.iter().chain(more).map(|word| (*word).to_owned()).collect()
    }

    fn once(&self, to: &str, more: &[&str]) -> Ran {
        forebay(self.arguments(to, more))
    }

    fn is_released(&self, name: &str) -> bool {
        self.0.path().join("daq").join(format!("{name}.copied")).exists()
    }
}

/// Every file below a directory.
fn walk(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("listed").map(|entry| entry.expect("listed")) {
        if entry.path().is_dir() {
            found.extend(walk(&entry.path()));
        } else {
            found.push(entry.path().display().to_string());
        }
    }
    found
}

#[test]
fn files_go_to_an_xrootd_server_whole_and_are_released_when_it_has_proven_them() {
    let Some(door) = HttpDoor::start() else { return };
    let files = [("a.dat", noise(1, 30_000_001)), ("run 7/ü #1.dat", noise(2, 4096)), ("run 7/empty", Vec::new())];
    let place = Place::with(&files);
    let to = format!("{}/archive/2026", door.url());
    let json = place.once(&to, &[]).expect(0).json();
    assert_eq!((&json["released"], &json["left_files"]), (&3.into(), &0.into()), "{json}");
    for (name, bytes) in &files {
        assert_eq!(&fs::read(door.data().join("archive/2026").join(name)).expect("it is there"), bytes, "{name}");
        assert!(place.is_released(name), "{name}");
    }
    assert_eq!(walk(&door.data()).len(), files.len(), "nothing besides: {:?}", walk(&door.data()));
    // What another has put there is left alone.
    fs::write(door.data().join("archive/2026/b.dat"), b"another's").expect("written");
    fs::write(place.0.path().join("daq/b.dat"), b"ours").expect("written");
    place.once(&to, &[]).expect(1).says("quarantined");
    assert_eq!(fs::read(door.data().join("archive/2026/b.dat")).expect("it is there"), b"another's");
    assert!(!place.is_released("b.dat"));
}

#[test]
fn a_mover_that_is_killed_in_the_middle_leaves_one_whole_file_in_the_end() {
    let Some(door) = HttpDoor::start() else { return };
    let files = [("a.dat", noise(3, 200 << 20))];
    let place = Place::with(&files);
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(place.arguments(&door.url(), &[])).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut mover = command.spawn().expect("it starts");
    while walk(&door.data()).is_empty() {
        assert_eq!(mover.try_wait().expect("looked at"), None, "it ended before it sent anything");
    }
    mover.kill().expect("killed");
    mover.wait().expect("it ends");
    place.once(&door.url(), &[]).expect(0);
    assert_eq!(fs::read(door.data().join("a.dat")).expect("it is there"), files[0].1);
    assert_eq!(walk(&door.data()).len(), 1, "{:?}", walk(&door.data()));
}

#[test]
fn a_server_that_hangs_or_is_away_is_given_up_and_nothing_is_released() {
    let place = Place::with(&[("a.dat", noise(4, 1000))]);
    let hangs = StandIn::start(|_| Does::Hangs);
    place.once(&hangs.url(), &["--stall-after", "0.2", "--patience", "0.5"]).expect(3).says("nothing happened");
    let place = Place::with(&[("a.dat", noise(4, 1000))]);
    let away = format!("http://127.0.0.1:{}/a", http_door::free_ports().0);
    place.once(&away, &["--patience", "0.5"]).expect(3).says("away");
    assert!(!place.is_released("a.dat"));
}

#[test]
fn a_server_that_tells_another_checksum_than_it_should_gets_no_file_released() {
    let place = Place::with(&[("a.dat", noise(5, 1000))]);
    let server = StandIn::start(|asked| match (asked.method.as_str(), asked.path.contains("part")) {
        ("HEAD", true) => answers(200, &[("content-length", "1000"), ("digest", "adler32=12345678")]),
        ("HEAD", false) => answers(404, &[]),
        _ => answers(201, &[]),
    });
    place.once(&server.url(), &["--patience", "0"]).expect(1).says("12345678").says("quarantined");
    assert!(!place.is_released("a.dat"));
    assert_eq!(server.asked_with("MOVE").len(), 0, "what is wrong gets no name");
}

#[test]
fn a_token_is_not_sent_in_the_clear() {
    let place = Place::with(&[("a.dat", noise(6, 10))]);
    let token = place.0.path().join("token");
    fs::write(&token, "abc").expect("written");
    let token = token.display().to_string();
    let ran = place.once("http://host.example/a", &["--token-file", &token]).expect(2);
    ran.says("https://").says("nothing was moved");
}
