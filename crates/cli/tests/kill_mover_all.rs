//! kill -9 of the mover at random moments: nothing is let go by its source before it is whole at every destination, and in the end everything is there once,
//! and nothing besides.
//!
//! What lies in the directories is judged, by a program that shares nothing with the mover (`tools/judge-custody.py`), and nothing that it says itself. The moments are seeded; `FOREBAY_KILL_SEED` chooses others. The short form has
//! 10 kills, the long one (`FOREBAY_TEST_ALL`) 40 of single files, 10 of merged ones and 10 of those with sidecars that are registered, `FOREBAY_KILL_ROUNDS` another number. Where 40 and more of single files are wanted, it goes on until each
//! state of a file was met by at least 10 of them, and fails when five times as many do not come to that.
//! What is held or quarantined is met by 10 kills each, by so many as there are rounds, in a form of its own.

mod common;
#[path = "../../destinations/tests/support/stand_in.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod stand_in;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::judge::{self, Judge};
use common::load::{Random, from_environment, long_form};
use common::{Ran, forebay, scratch};
use serde_json::Value;
use stand_in::{Does, StandIn};

/// Files that are there when none is left.
const FILES: u64 = 20;

/// Those that each file comes through.
const STATES: [&str; 6] = ["found", "sending", "arrived", "verified", "proven", "released"];

struct Place {
    directory: tempfile::TempDir,
    judge: Judge,
    /// Files that were ever put into the source.
    files: u64,
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

    /// What is registered, a line for each.
    fn lines(&self) -> Vec<u8> {
        let taken = self.taken.lock().expect("no panic");
        taken
            .values()
            .flat_map(|body| {
                serde_json::from_slice::<Value>(body).map(|said| format!("{said}\n")).expect("JSON").into_bytes()
            })
            .collect()
    }
}

impl Place {
    fn new(merged: bool, registry: Option<Registry>) -> Place {
        let directory = scratch();
        let path = |name: &str| directory.path().join(name);
        let judge = Judge::of_files(path("put"), &path("daq"), &[path("first"), path("second")]);
        let judge = if merged { judge.with(&["--archives"]) } else { judge };
        let registered = path("registered").display().to_string();
        let judge = if registry.is_some() { judge.with(&["--sidecars", "--registered", &registered]) } else { judge };
        fs::create_dir(path("daq")).expect("made");
        Place { directory, judge, files: 0, merged, registry }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// More files, in directories of runs.
    fn fill(&mut self, random: &mut Random) {
        for _ in 0..FILES {
            let number = self.files;
            let name = format!("run{}/file{number:05}.dat", number / 7);
            let count = if random.percent(20) { 0 } else { random.below(900_000) as usize };
            let bytes = random.bytes(count);
            let path = self.path("daq").join(&name);
            fs::create_dir_all(path.parent().expect("it has one")).expect("made");
            fs::write(&path, &bytes).expect("written");
            self.judge.note(&name, &bytes);
            self.files += 1;
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

    /// Moves; kills the mover after a while. Whether it ended by itself before, and then with this code.
    fn run(&self, kill_after: Option<Duration>, code: i32) -> bool {
        let mut child = self.command().spawn().expect("the mover starts");
        if let Some(after) = kill_after {
            std::thread::sleep(after);
            child.kill().expect("ours to kill");
        }
        let status = child.wait().expect("it ends");
        let killed = kill_after.is_some() && status.signal() == Some(9);
        assert!(killed || status.code() == Some(code), "the mover ended with {status}");
        !killed
    }

    /// Asks something of the journal.
    fn ask(&self, words: &[&str]) -> Ran {
        let journal = self.path("journal.sqlite").display().to_string();
        forebay([&["move"], words, &["--journal", &journal, "--json"]].concat())
    }

    /// A file that the source still has, and that is neither let go nor quarantined as far as the journal knows. One that a mover took
    /// away just before it died is proven in the journal, and can be held; but it cannot be kept.
    fn on_its_way(&self) -> Option<String> {
        let list = self.ask(&["list"]);
        let files = (list.exit == 0).then(|| list.json()["files"].as_array().cloned().unwrap_or_default())?;
        let on_its_way =
            |file: &&Value| !["released", "quarantined"].contains(&file["state"].as_str().expect("a state"));
        let mut names = files.iter().filter(on_its_way).map(|file| file["name"].as_str().expect("a name"));
        names.find(|name| self.path("daq").join(name).exists()).map(str::to_owned)
    }

    /// Judges what is there; how many files the source has let go.
    fn judge(&self, all: bool) -> u64 {
        if let Some(registry) = &self.registry {
            fs::write(self.path("registered"), registry.lines()).expect("written");
        }
        self.judge.judge(all)["let_go"].as_u64().expect("a number")
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

/// What people have to look at waits for them, however often the mover dies meanwhile, and holds up nothing else.
#[test]
fn what_is_held_or_quarantined_stays_so_whenever_the_mover_dies() {
    if !judge::is_here() {
        return;
    }
    let kills_wanted = from_environment("FOREBAY_KILL_ROUNDS").unwrap_or(10);
    let mut random = Random(from_environment("FOREBAY_KILL_SEED").unwrap_or(1));
    let mut place = Place::new(false, None);
    place.fill(&mut random);
    let in_the_way = place.path("first/run0/file00000.dat");
    fs::create_dir_all(in_the_way.parent().expect("it has one")).expect("made");
    fs::write(&in_the_way, b"of somebody else").expect("written");
    let (mut held, mut met, mut runs) = (None, BTreeMap::<String, u64>::new(), 0);
    while met.len() < 2 || met.values().any(|times| *times < kills_wanted) {
        if held.is_none() {
            held =
                place.on_its_way().filter(|name| place.ask(&["hold", name, "--reason", "to be looked at"]).exit == 0);
        }
        // On a machine that is busy with other things as well a mover does nothing in that time: they become longer.
        let is_over = place.run(Some(Duration::from_micros(1_000 + random.below(160_000 + 4_000 * runs))), 1);
        runs += 1;
        // What is quarantined is tried again for some seconds before a mover that moves once ends by itself.
        if random.percent(30) && place.files < 40 * FILES {
            place.fill(&mut random);
        }
        if is_over {
            continue;
        }
        for state in place.states().into_iter().filter(|state| ["held", "quarantined"].contains(&state.as_str())) {
            *met.entry(state).or_default() += 1;
        }
        assert_eq!(fs::read(&in_the_way).expect("nobody took it away"), b"of somebody else");
        for kept in held.iter().map(String::as_str).chain(["run0/file00000.dat"]) {
            assert!(place.path("daq").join(kept).exists(), "{kept} was let go");
        }
    }
    println!("kills with a state that waits for people: {met:?}, files {}", place.files);
    fs::remove_file(in_the_way).expect("it is there");
    place.ask(&["retry", "--all"]).expect(0);
    place.ask(&["go-on", &held.expect("one is held")]).expect(0);
    assert!(place.run(None, 0), "nobody kills it");
    assert_eq!(place.judge(true), place.files, "everything is let go");
}

fn kill_again_and_again(merged: bool, registry: Option<Registry>) {
    if !judge::is_here() {
        return;
    }
    let (long, is_plain) = (long_form(), !merged && registry.is_none());
    let kills_wanted = from_environment("FOREBAY_KILL_ROUNDS").unwrap_or(if long && is_plain { 40 } else { 10 });
    let mut random = Random(from_environment("FOREBAY_KILL_SEED").unwrap_or(1));
    let mut place = Place::new(merged, registry);
    place.fill(&mut random);
    // Few files are made of many: they are less often in each state.
    let often = if kills_wanted >= 40 && is_plain { 10 } else { 0 };
    let mut met: BTreeMap<String, u64> = STATES.iter().map(|state| ((*state).to_owned(), 0)).collect();
    let (mut kills, mut endings) = (0, 0);
    while kills < kills_wanted || met.values().any(|times| *times < often) {
        assert!(kills < 5 * kills_wanted, "a state was not met by {often} of {kills} kills: {met:?}");
        let after = Duration::from_micros(1_000 + random.below(160_000));
        if place.run(Some(after), 0) {
            endings += 1;
            place.fill(&mut random);
        } else {
            kills += 1;
            for state in place.states() {
                *met.entry(state).or_default() += 1;
            }
        }
        place.judge(false);
    }
    assert!(place.run(None, 0), "nobody kills it");
    assert_eq!(place.judge(true), place.files, "everything is let go");
    println!("kills {kills}, endings {endings}, files {}, states that were met: {met:?}", place.files);
}
