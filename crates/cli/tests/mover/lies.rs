//! Destinations that lie, lose, hang and refuse, under a mover that runs: each is told by `forebay move show` in the destination's own words, and nothing is let go.

use crate::common;
use crate::stand_in;
use crate::xrootd;

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use common::hanging::Hanging;
use common::running::{Running, until};
use common::{forebay, noise, scratch};
use forebay_types::Adler32;
use stand_in::{Asked, Does, StandIn, answers};
use tempfile::TempDir;
use xrootd::XRootDServer;

const BYTES: usize = 300_000;

/// A source with one file, and a mover.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(scratch());
        fs::create_dir(place.path("daq")).expect("made");
        fs::write(place.path("daq/a.dat"), noise(1, BYTES)).expect("written");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn start(&self, to: &str, more: &[&str]) -> Running {
        let text = |name: &str| self.path(name).display().to_string();
        let (from, journal) = (text("daq"), text("journal.sqlite"));
        let all = ["move", "--from", &from, "--to", to, "--journal", &journal, "--settle", "0", "--recheck-after", "2"];
        Running::start(all.iter().chain(more).map(|word| (*word).to_owned()).collect(), Stdio::null())
    }

    /// State and words of the one delivery.
    fn shown(&self) -> (String, String) {
        let journal = self.path("journal.sqlite").display().to_string();
        let shown = forebay(["move", "show", "a.dat", "--journal", &journal, "--json"]);
        if shown.exit != 0 {
            return Default::default();
        }
        let json = shown.json();
        let delivery = &json["files"][0]["file"]["deliveries"][0];
        let text = |name: &str| delivery[name].as_str().expect("text").to_owned();
        (text("state"), text("words"))
    }

    /// Waits until it is told, and sees that the source has its file.
    fn is_told(&self, mover: Running, words: &[&str]) {
        until(|| words.iter().all(|word| self.shown().1.contains(word)));
        assert_eq!(mover.terminate(), Some(0));
        assert_eq!(fs::read(self.path("daq/a.dat")).expect("it is there"), noise(1, BYTES), "{words:?}");
        assert!(!self.path("daq/a.dat.copied").exists(), "{words:?}");
    }
}

/// What becomes of a file that a destination has proven once.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Dropped,
    Truncated,
    Flipped,
}

impl Damage {
    const ALL: [Damage; 3] = [Damage::Dropped, Damage::Truncated, Damage::Flipped];

    fn befall(self, path: &Path) {
        let file = || fs::File::options().write(true).open(path).expect("opened");
        match self {
            Damage::Dropped => fs::remove_file(path).expect("removed"),
            Damage::Truncated => file().set_len(BYTES as u64 / 2).expect("cut"),
            Damage::Flipped => {
                let flipped = noise(1, BYTES)[7] ^ 1;
                file().write_all_at(&[flipped], 7).expect("written");
                // XRootD tells the checksum of before as long as the second is the same.
                file().set_modified(SystemTime::now() + Duration::from_secs(5)).expect("set");
            }
        }
    }

    fn words(self) -> [&'static str; 2] {
        match self {
            Damage::Dropped => ["it was there, and is not", "300000 bytes"],
            Damage::Truncated => ["the destination holds 150000 bytes", "expected 300000 bytes"],
            Damage::Flipped => ["the destination holds 300000 bytes, adler32", "expected 300000 bytes"],
        }
    }
}

#[test]
fn what_a_directory_or_a_server_loses_or_damages_after_its_first_proof_is_not_let_go() {
    for damage in Damage::ALL {
        let place = Place::new();
        let archive = place.path("archive");
        let mover = place.start(&archive.display().to_string(), &[]);
        until(|| place.shown().0 == "verified");
        damage.befall(&archive.join("a.dat"));
        place.is_told(mover, &damage.words());
        let Some(server) = XRootDServer::start() else { continue };
        let place = Place::new();
        let mover = place.start(&server.address("raw"), &[]);
        until(|| place.shown().0 == "verified");
        damage.befall(&server.path("raw/a.dat"));
        place.is_told(mover, &damage.words());
    }
}

#[test]
fn a_server_that_hangs_or_refuses_is_told_and_nothing_is_let_go() {
    let Some(server) = XRootDServer::start() else { return };
    let place = Place::new();
    server.freeze();
    let mover = place.start(&server.address("raw"), &["--stall-after", "1"]);
    place.is_told(mover, &["nothing happened for 1 s"]);
    server.thaw();
    server.put("closed/b.dat", b"of somebody");
    fs::set_permissions(server.path("closed"), fs::Permissions::from_mode(0o555)).expect("changed");
    let place = Place::new();
    let mover = place.start(&server.address("closed"), &[]);
    place.is_told(mover, &["permission denied", "then retry"]);
    assert_eq!(server.files(), ["closed/b.dat"]);
}

#[test]
fn a_directory_that_hangs_is_told_and_holds_up_no_other() {
    let Some(hanging) = Hanging::mount() else { return };
    let place = Place::new();
    let archive = place.path("archive");
    let mover = place
        .start(&hanging.path().display().to_string(), &["--stall-after", "1", "--to", &archive.display().to_string()]);
    until(|| archive.join("a.dat").exists());
    let words = ["nothing happened for 1 s"];
    until(|| place.shown().1.contains(words[0]));
    // The kernel lets no process end that waits for an answer.
    drop(hanging);
    place.is_told(mover, &[]);
}

#[test]
fn what_is_full_is_told_and_waited_for() {
    let Some(server) = XRootDServer::start() else { return };
    let place = Place::new();
    let (archive, small) = (place.path("archive"), server.path("small"));
    for full in [&archive, &small] {
        fs::create_dir(full).expect("made");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k,mode=777", "none"]).arg(full);
        if !mount.output().is_ok_and(|output| output.status.success()) {
            println!("skipped: needs the right to mount");
            return;
        }
    }
    let both = [(archive.display().to_string(), "Make room there"), (server.address("small"), "no space left")];
    for (to, words) in both {
        let place = Place::new();
        let mover = place.start(&to, &[]);
        place.is_told(mover, &[words]);
    }
    for full in [&archive, &small] {
        assert!(Command::new("umount").arg("-l").arg(full).status().expect("it runs").success());
    }
}

/// What a web server does that is not what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    Drops,
    Truncates,
    Flips,
    WrongChecksum,
    TellsLate,
    Hangs,
    CutsHalfWay,
    IsFull,
    Refuses,
}

impl Lie {
    /// With what words it is told.
    const ALL: [(Lie, &'static [&'static str]); 9] = [
        (Lie::Drops, &["it was there, and is not 2 s later"]),
        (Lie::Truncates, &["the destination holds 150000 bytes", "expected 300000 bytes"]),
        (Lie::Flips, &["the destination holds 300000 bytes, adler32", "expected 300000 bytes"]),
        (Lie::WrongChecksum, &["adler32 12345678"]),
        (Lie::TellsLate, &["nothing happened for 1 s"]),
        (Lie::Hangs, &["nothing happened for 1 s"]),
        (Lie::CutsHalfWay, &["cut"]),
        (Lie::IsFull, &["507", "no room"]),
        (Lie::Refuses, &["403", "not for you"]),
    ];

    /// The bytes that it keeps of those that it was sent.
    fn kept(self, mut bytes: Vec<u8>) -> Vec<u8> {
        match self {
            Lie::Truncates => bytes.truncate(BYTES / 2),
            Lie::Flips => bytes[7] ^= 1,
            _ => {}
        }
        bytes
    }

    /// A server that is honest but for this; what it was asked before says what it has.
    fn serve(self) -> Arc<StandIn> {
        let own: Arc<OnceLock<Arc<StandIn>>> = Arc::default();
        let server = Arc::clone(&own);
        let started = Arc::new(StandIn::start(move |asked| match server.get() {
            Some(server) => self.answer(asked, server),
            None => answers(503, &[]),
        }));
        assert!(own.set(Arc::clone(&started)).is_ok(), "once");
        started
    }

    fn answer(self, asked: &Asked, server: &StandIn) -> Does {
        match (asked.method.as_str(), self) {
            ("PUT", Lie::CutsHalfWay) => Does::CutsAfter(BYTES / 2),
            ("PUT", Lie::IsFull) => Does::AnswersAfter(BYTES / 2, 507),
            ("PUT", Lie::Refuses) => Does::Answers(403, Vec::new(), b"not for you".to_vec()),
            ("PUT", Lie::Hangs) => Does::Hangs,
            ("HEAD", _) => self.head(asked, server),
            ("DELETE", _) => answers(204, &[]),
            _ => answers(201, &[]),
        }
    }

    fn head(self, asked: &Asked, server: &StandIn) -> Does {
        let (sent, named) = (server.asked_with("PUT"), server.asked_with("MOVE"));
        let is_last = asked.path.ends_with("/a.dat");
        let looks = server.asked_with("HEAD").iter().filter(|before| before.path == asked.path).count();
        let file = match is_last {
            // Two looks were before it had its name: one before anything was sent, one before the renaming.
            true => sent.last().filter(|_| !named.is_empty() && (self != Lie::Drops || looks < 3)),
            false => sent.iter().rfind(|put| put.path == asked.path),
        };
        let Some(file) = file else { return answers(404, &[]) };
        if self == Lie::TellsLate && is_last {
            std::thread::sleep(Duration::from_secs(3));
        }
        let kept = self.kept(file.body.clone());
        let mut sum = Adler32::default();
        sum.update(&kept);
        let told = if self == Lie::WrongChecksum { 0x1234_5678 } else { sum.finish() };
        answers(200, &[("content-length", &kept.len().to_string()), ("digest", &format!("adler32={told:08x}"))])
    }
}

#[test]
fn a_web_server_that_lies_is_caught_whatever_it_lies_about() {
    for (lie, words) in Lie::ALL {
        let (place, server) = (Place::new(), lie.serve());
        let mover = place.start(&server.url(), &["--stall-after", "1"]);
        place.is_told(mover, words);
        println!("{lie:?} is told");
    }
}
