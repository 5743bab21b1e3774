//! `forebay move` to a real XRootD server.

mod common;
#[path = "../../destinations/tests/common/xrootd.rs"]
mod server;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Ran, forebay, noise, scratch};
use server::XRootDServer;
use tempfile::TempDir;

struct Place {
    directory: TempDir,
    server: XRootDServer,
}

impl Place {
    fn new() -> Option<Place> {
        let place = Place { directory: scratch(), server: XRootDServer::start()? };
        fs::create_dir(place.path("daq")).expect("made");
        Some(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path("daq").join(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("made");
        fs::write(path, bytes).expect("written");
    }

    fn arguments(&self, more: &[&str]) -> Vec<String> {
        let text = |path: &Path| path.display().to_string();
        let (from, journal) = (text(&self.path("daq")), text(&self.path("journal.sqlite")));
        let to = self.server.address("archive/2026");
        let arguments = ["move", "--from", &from, "--to", &to, "--journal", &journal, "--once", "--json"];
        arguments.iter().chain(more).map(|text| (*text).to_owned()).collect()
    }

    fn once(&self, more: &[&str]) -> Ran {
        forebay(self.arguments(&[&["--recheck-after", "1"], more].concat()))
    }

    /// With programs of ours in the place of XRootD's.
    fn once_with(&self, programs: &Path) -> (Option<i32>, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(self.arguments(&["--recheck-after", "0.1", "--patience", "1"]))
            .env("PATH", programs)
            .stdin(Stdio::null())
            .output()
            .expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

#[test]
fn files_are_moved_proven_and_released() {
    let Some(place) = Place::new() else { return };
    let files = [("a.dat", noise(1, 30_000_001)), ("run 7/ü.dat", noise(2, 4096)), ("run 7/empty", Vec::new())];
    for (name, bytes) in &files {
        place.write(name, bytes);
    }
    let json = place.once(&[]).expect(0).json();
    assert_eq!((&json["released"], &json["left_files"]), (&3.into(), &0.into()), "{json}");
    for (name, bytes) in &files {
        assert_eq!(&place.server.get(&format!("archive/2026/{name}")).expect("there"), bytes, "{name}");
        assert!(place.path(&format!("daq/{name}.copied")).exists(), "{name}");
    }
    assert_eq!(place.server.files().len(), files.len(), "nothing besides: {:?}", place.server.files());
    // What is there already is not sent again, and what is another's stays.
    place.write("b.dat", b"ours");
    place.write("a.dat", b"another");
    place.server.put("archive/2026/b.dat", b"ours");
    place.once(&["--remove"]).expect(1).says("1 files are quarantined");
    assert!(!place.path("daq/b.dat").exists() && place.path("daq/a.dat").exists());
    assert_eq!(place.server.get("archive/2026/a.dat").expect("there"), files[0].1);
}

#[test]
fn a_name_that_xrootd_does_not_take_is_told() {
    let Some(place) = Place::new() else { return };
    place.write("a?b.dat", b"bytes");
    place.write("c.dat", b"bytes");
    let json = place.once(&[]).expect(1).json();
    let words = json["left"][0]["words"].as_str().expect("words");
    assert!(words.contains("question mark") && words.contains("Rename it at the source"), "{words}");
    assert!(place.path("daq/a?b.dat").exists() && place.path("daq/c.dat.copied").exists());
    assert_eq!(place.server.files(), ["archive/2026/c.dat"]);
}

#[test]
fn a_server_that_is_away_is_told_and_waited_for() {
    let Some(mut place) = Place::new() else { return };
    place.write("a.dat", b"bytes");
    place.server.kill();
    place.once(&["--patience", "1"]).expect(3).says("Connection error").says("see that it runs");
    assert!(place.path("daq/a.dat").exists());
    place.server.begin();
    place.once(&[]).expect(0);
    assert_eq!(place.server.get("archive/2026/a.dat").expect("there"), b"bytes");
}

#[test]
fn without_the_programs_it_is_said_what_to_install() {
    let Some(place) = Place::new() else { return };
    place.write("a.dat", b"bytes");
    let (code, words) = place.once_with(Path::new("/nowhere"));
    assert!(code == Some(2) && words.contains("apt install xrootd-client"), "{code:?} {words}");
    assert!(place.path("daq/a.dat").exists());
}

#[test]
fn a_server_that_lies_is_not_believed() {
    for lie in ["adler32 00000000", "adler32 nonsense", ""] {
        let Some(place) = Place::new() else { return };
        place.write("a.dat", b"bytes");
        let programs = place.path("programs");
        fs::create_dir(&programs).expect("made");
        let real = |name: &str| {
            let all = std::env::var_os("PATH").expect("a path");
            std::env::split_paths(&all).map(|path| path.join(name)).find(|path| path.exists()).expect("it ran before")
        };
        let script =
            format!("#!/bin/sh\ncase $2 in query) echo '{lie}';; *) exec {} \"$@\";; esac\n", real("xrdfs").display());
        fs::write(programs.join("xrdfs"), script).expect("written");
        fs::set_permissions(programs.join("xrdfs"), fs::Permissions::from_mode(0o755)).expect("changed");
        std::os::unix::fs::symlink(real("xrdcp"), programs.join("xrdcp")).expect("made");
        let (code, words) = place.once_with(&programs);
        assert!(matches!(code, Some(1 | 3)), "{lie}: {words}");
        assert!(place.path("daq/a.dat").exists(), "{lie}");
        assert!(place.server.get("archive/2026/a.dat").is_err(), "{lie}");
    }
}
