//! `forebay move` to a real XRootD server.

use crate::common;
use crate::xrootd as server;

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

    /// An `xrdfs` that does this where `$2` is the request, `$xrdfs` the real one, and else what that does.
    fn programs(&self, cases: &str) -> PathBuf {
        let programs = self.path("programs");
        fs::create_dir(&programs).expect("made");
        let all = std::env::var_os("PATH").expect("a path");
        let real = |name: &str| {
            std::env::split_paths(&all).map(|path| path.join(name)).find(|path| path.exists()).expect("it ran before")
        };
        let xrdfs = real("xrdfs");
        let script = format!(
            "#!/bin/sh\nxrdfs={xrdfs}\ncase $2 in {cases} *) exec $xrdfs \"$@\";; esac\n",
            xrdfs = xrdfs.display()
        );
        fs::write(programs.join("xrdfs"), script).expect("written");
        fs::set_permissions(programs.join("xrdfs"), fs::Permissions::from_mode(0o755)).expect("changed");
        std::os::unix::fs::symlink(real("xrdcp"), programs.join("xrdcp")).expect("made");
        programs
    }

    /// With programs of ours before XRootD's.
    fn once_with(&self, programs: &Path, more: &[&str]) -> (Option<i32>, String) {
        let usual = ["--recheck-after", "0.1", "--patience", "1"];
        let path = format!("{}:/usr/bin:/bin", programs.display());
        let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(self.arguments(&[&usual, more].concat()))
            .env("PATH", if programs.exists() { path } else { programs.display().to_string() })
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
    let (code, words) = place.once_with(Path::new("/nowhere"), &[]);
    assert!(code == Some(2) && words.contains("apt install xrootd-client"), "{code:?} {words}");
    assert!(place.path("daq/a.dat").exists());
}

#[test]
fn a_server_that_lies_is_not_believed() {
    for lie in ["adler32 00000000", "adler32 nonsense", ""] {
        let Some(place) = Place::new() else { return };
        place.write("a.dat", b"bytes");
        let programs = place.programs(&format!("query) echo '{lie}';;"));
        let (code, words) = place.once_with(&programs, &[]);
        assert!(matches!(code, Some(1 | 3)), "{lie}: {words}");
        assert!(place.path("daq/a.dat").exists(), "{lie}");
        assert!(place.server.get("archive/2026/a.dat").is_err(), "{lie}");
    }
}

#[test]
fn a_file_is_let_go_when_the_server_says_that_it_is_on_tape() {
    let Some(place) = Place::new() else { return };
    place.write("run 7/ü.dat", &noise(1, 100_000));
    // No tape stands behind this server: so it is said in its place, as EOS says it, only when it was asked often enough.
    let asked = place.path("asked");
    let taped = "sed 's/^Flags:  *[0-9]* (/Flags:  176 (BackUpExists|/'";
    let cases = format!(
        "stat) $xrdfs \"$@\" > {0}.told || exit; case $3 in */.forebay*) ;; *) echo >> {0};; esac
         if [ $(grep -c '' {0} 2>/dev/null || echo 0) -gt 11 ]; then {taped} {0}.told; else cat {0}.told; fi;;",
        asked.display()
    );
    let programs = place.programs(&cases);
    let (code, words) = place.once_with(&programs, &["--sidecar", "--until", "on-tape"]);
    assert_eq!(code, Some(0), "{words}");
    assert!(place.path("daq/run 7/ü.dat.copied").exists());
    assert_eq!(place.server.get("archive/2026/run 7/ü.dat").expect("there"), noise(1, 100_000));
    let sidecar = place.server.get("archive/2026/run 7/ü.dat.json").expect("there");
    assert!(String::from_utf8_lossy(&sidecar).contains("\"bytes\":100000"));
    let log = fs::read_to_string(place.path("journal.sqlite.audit.jsonl")).expect("a log");
    assert!(log.matches("\"after\":\"waiting\"").count() >= 2, "{log}");
    assert!(fs::read_to_string(asked).expect("it was asked").lines().count() > 11);
}

#[test]
fn a_file_that_never_comes_to_tape_stays_at_the_source() {
    let Some(place) = Place::new() else { return };
    place.write("a.dat", b"bytes");
    let arguments = place.arguments(&["--until", "on-tape", "--recheck-after", "0.1"]);
    let mover = common::running::Running::start(arguments, Stdio::null());
    let log = || fs::read_to_string(place.path("journal.sqlite.audit.jsonl")).unwrap_or_default();
    common::running::until(|| log().contains("\"after\":\"waiting\""));
    mover.terminate();
    assert!(place.path("daq/a.dat").exists() && place.server.get("archive/2026/a.dat").is_ok());
    // Nobody waits for tape any more.
    place.once(&[]).expect(0);
}
