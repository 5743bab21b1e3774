//! kill -9 of the mover at random moments: nothing is let go by its source before it is whole at every destination, and in the end everything is there once,
//! and nothing besides.
//!
//! What is judged is what lies in the directories, and nothing that the mover says. The moments are seeded; `FOREBAY_KILL_SEED` chooses others. The short form has
//! 10 kills, the long one (`FOREBAY_TEST_ALL`) 40 of single files, 10 of merged ones and 10 of those with sidecars that are registered, `FOREBAY_KILL_ROUNDS` another number. Where 40 and more of single files are wanted, it goes on until each
//! state of a file was met by at least 10 of them, and fails when five times as many do not come to that.

mod common;
#[path = "../../destinations/tests/support/stand_in.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod stand_in;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::load::{Random, from_environment, long_form};
use common::scratch;
use serde_json::Value;
use stand_in::{Does, StandIn};

/// Files that are there when none is left.
const FILES: u64 = 20;

/// Those that each file comes through.
const STATES: [&str; 6] = ["found", "sending", "arrived", "verified", "proven", "released"];

struct Place {
    directory: tempfile::TempDir,
    /// Everything that was ever put into the source, by name.
    originals: BTreeMap<String, Vec<u8>>,
    /// Whether files are merged into archives.
    merged: bool,
    /// Where files are registered; with it they have sidecars.
    registry: Option<Registry>,
}

/// A registry that counts what it took, by the key.
struct Registry {
    server: StandIn,
    taken: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
}

impl Registry {
    /// One that takes everything once, and of which every third answer is lost.
    fn start() -> Registry {
        let taken = Arc::new(Mutex::new(BTreeMap::<String, Vec<u8>>::new()));
        let (all, asked) = (Arc::clone(&taken), AtomicUsize::new(0));
        let server = StandIn::start(move |request| {
            let key = request.header("idempotency-key").expect("a key").to_owned();
            let all = Arc::clone(&all);
            let loses = asked.fetch_add(1, Relaxed) % 3 == 2;
            Does::Takes(Arc::new(move |body| {
                let first = all.lock().expect("no panic").entry(key.clone()).or_insert_with(|| body.to_vec()).clone();
                assert_eq!(first, body, "{key} is registered with two contents");
                (!loses).then_some(201)
            }))
        });
        Registry { server, taken }
    }

    /// What is registered, by the names of files.
    fn names(&self) -> BTreeMap<String, Value> {
        let taken = self.taken.lock().expect("no panic");
        let mut names = BTreeMap::new();
        for body in taken.values() {
            let said: Value = serde_json::from_slice(body).expect("JSON");
            let name = said["name"].as_str().expect("a name").to_owned();
            assert!(names.insert(name.clone(), said).is_none(), "{name} is registered twice");
        }
        names
    }
}

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// More files, in directories of runs.
    fn fill(&mut self, random: &mut Random) {
        for _ in 0..FILES {
            let number = self.originals.len();
            let name = format!("run{}/file{number:05}.dat", number / 7);
            let count = if random.percent(20) { 0 } else { random.below(900_000) as usize };
            let bytes = random.bytes(count);
            let path = self.path("daq").join(&name);
            fs::create_dir_all(path.parent().expect("it has one")).expect("made");
            fs::write(&path, &bytes).expect("written");
            self.originals.insert(name, bytes);
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(["move", "--once", "--recheck-after", "0.03", "--streams", "3", "--from"]).arg(self.path("daq"));
        command.arg("--to").arg(self.path("first")).arg("--to").arg(self.path("second"));
        command.arg("--journal").arg(self.path("journal.sqlite"));
        if self.merged {
            command.args(["--merge", "2MB"]);
        }
        if let Some(registry) = &self.registry {
            command.args(["--sidecar", "--register", &format!("http://127.0.0.1:{}/", registry.server.port)]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Moves; kills the mover after a while. Whether it ended by itself before.
    fn run(&self, kill_after: Option<Duration>) -> bool {
        let mut child = self.command().spawn().expect("the mover starts");
        if let Some(after) = kill_after {
            std::thread::sleep(after);
            child.kill().expect("ours to kill");
        }
        let status = child.wait().expect("it ends");
        let killed = kill_after.is_some() && status.signal() == Some(9);
        assert!(killed || status.success(), "the mover ended with {status}");
        !killed
    }

    /// What the source has let go is whole at both destinations; how many that are.
    fn judge(&self) -> usize {
        let mut released = 0;
        let registered = self.registry.as_ref().map(Registry::names);
        let copies = ["first", "second"].map(|destination| (destination, self.copies(destination)));
        for (name, bytes) in &self.originals {
            let there = self.path("daq").join(name);
            if fs::read(&there).is_ok_and(|now| now == *bytes) {
                continue;
            }
            assert!(!there.exists(), "{name} changed");
            assert_eq!(&fs::read(self.path("daq").join(format!("{name}.copied"))).expect("renamed"), bytes, "{name}");
            for (destination, copies) in &copies {
                assert!(copies.get(name) == Some(&sum(bytes)), "{name} was let go and is not whole at {destination}");
                if let Some(registered) = &registered {
                    let sidecar = fs::read(self.path(destination).join(format!("{name}.json"))).expect("a sidecar");
                    let said: Value = serde_json::from_slice(&sidecar).expect("JSON");
                    assert_eq!(registered.get(name), Some(&said), "{name} was let go and is not registered");
                    assert_eq!(said["crc32c"], format!("{:08x}", forebay_types::crc32c(bytes)), "{name}");
                }
            }
            released += 1;
        }
        released
    }

    /// What is at a destination under names that last, by length and sum: nothing is there twice.
    fn copies(&self, destination: &str) -> BTreeMap<String, (usize, u32)> {
        let root = self.path(destination);
        let mut copies = BTreeMap::new();
        for name in if root.exists() { files_below(&root) } else { BTreeSet::new() } {
            let bytes = || fs::read(root.join(&name)).expect("it can be read");
            let is_sidecar = self.registry.is_some() && name.ends_with(".json");
            if is_sidecar || name.rsplit('/').next().is_some_and(|last| last.starts_with('.')) {
                continue;
            }
            if self.merged {
                for (part, bytes) in parts_of(&bytes()) {
                    assert!(copies.insert(part.clone(), sum(&bytes)).is_none(), "{part} is at {destination} twice");
                }
            } else {
                copies.insert(name.clone(), sum(&bytes()));
            }
        }
        copies
    }

    /// The states that deliveries, and files as a whole, are in.
    fn states(&self) -> BTreeSet<String> {
        let log = fs::read_to_string(self.path("journal.sqlite.audit.jsonl")).unwrap_or_default();
        let mut states = BTreeMap::new();
        for line in log.lines() {
            let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
            let of = (line["consignment"].as_i64().expect("a number"), line["destination"].as_str().map(str::to_owned));
            states.insert(of, line["after"].as_str().expect("a state").to_owned());
        }
        let released: BTreeSet<i64> = states
            .iter()
            .filter(|((_, to), state)| to.is_none() && *state == "released")
            .map(|((id, _), _)| *id)
            .collect();
        // What is over for all of its files is met only as that.
        states
            .into_iter()
            .filter(|((id, to), _)| to.is_none() || !released.contains(id))
            .map(|(_, state)| state)
            .collect()
    }
}

fn sum(bytes: &[u8]) -> (usize, u32) {
    (bytes.len(), forebay_types::crc32c(bytes))
}

fn parts_of(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut archive = tar::Archive::new(archive);
    let part = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
        let mut entry = entry.expect("an archive");
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).expect("whole");
        (entry.path().expect("a name").display().to_string(), bytes)
    };
    archive.entries().expect("an archive").map(part).collect()
}

fn files_below(directory: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut left = vec![directory.to_owned()];
    while let Some(at) = left.pop() {
        for entry in fs::read_dir(at).expect("it can be listed") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                left.push(path);
            } else {
                found.insert(path.strip_prefix(directory).expect("it is below").display().to_string());
            }
        }
    }
    found
}

#[test]
fn everything_is_moved_once_and_let_go_late_whenever_the_mover_dies() {
    kill_again_and_again(false, None);
}

#[test]
fn everything_is_merged_once_and_let_go_late_whenever_the_mover_dies() {
    kill_again_and_again(true, None);
}

#[test]
fn everything_has_its_sidecar_and_is_registered_once_whenever_the_mover_dies() {
    kill_again_and_again(false, Some(Registry::start()));
}

fn kill_again_and_again(merged: bool, registry: Option<Registry>) {
    let (long, is_plain) = (long_form(), !merged && registry.is_none());
    let kills_wanted = from_environment("FOREBAY_KILL_ROUNDS").unwrap_or(if long && is_plain { 40 } else { 10 });
    let mut random = Random(from_environment("FOREBAY_KILL_SEED").unwrap_or(1));
    let mut place = Place { directory: scratch(), originals: BTreeMap::new(), merged, registry };
    fs::create_dir(place.path("daq")).expect("made");
    place.fill(&mut random);
    // Few files are made of many: they are less often in each state.
    let often = if kills_wanted >= 40 && is_plain { 10 } else { 0 };
    let mut met: BTreeMap<String, u64> = STATES.iter().map(|state| ((*state).to_owned(), 0)).collect();
    let (mut kills, mut endings) = (0, 0);
    while kills < kills_wanted || met.values().any(|times| *times < often) {
        assert!(kills < 5 * kills_wanted, "a state was not met by {often} of {kills} kills: {met:?}");
        let after = Duration::from_micros(1_000 + random.below(160_000));
        if place.run(Some(after)) {
            endings += 1;
            place.fill(&mut random);
        } else {
            kills += 1;
            for state in place.states() {
                *met.entry(state).or_default() += 1;
            }
        }
        place.judge();
    }
    assert!(place.run(None), "nobody kills it");
    assert_eq!(place.judge(), place.originals.len(), "everything is let go");
    let names: BTreeSet<String> = place.originals.keys().cloned().collect();
    for destination in ["first", "second"] {
        let there: BTreeSet<String> = place.copies(destination).into_keys().collect();
        assert_eq!(there, names, "what is at {destination}, and nothing besides");
        let hidden: Vec<String> =
            files_below(&place.path(destination)).into_iter().filter(|name| name.contains("/.")).collect();
        assert!(hidden.is_empty(), "{hidden:?} lie about at {destination}");
    }
    if let Some(registry) = &place.registry {
        let registered: BTreeSet<String> = registry.names().into_keys().collect();
        assert_eq!(registered, names, "what is registered, and nothing besides");
    }
    println!("kills {kills}, endings {endings}, files {}, states that were met: {met:?}", names.len());
}
