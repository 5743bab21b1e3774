//! kill -9 of destinations at random moments, while the mover runs on: nothing is let go by its source before it is whole at every destination, and in the end
//! everything is there once, and nothing besides. Then the same with the mover killed, too.
//!
//! What is judged is what lies in the directories of source and servers, all the time here and after each kill by a program that shares nothing with the mover
//! (`tools/judge-custody.py`), and nothing that mover or servers say; how far files were is told by the audit log, and only counted. A stock XRootD by its own protocol and one by its HTTP door must both have each file; either is killed, or both. What a server had taken and not
//! yet on disk survives this, as the machine goes on: destinations that lose it are played in the simulator and by the stand-ins.
//!
//! The moments are seeded; `FOREBAY_KILL_SEED` chooses others. Each kill waits for a state of a delivery that was drawn, and a moment more. The short form has 6 rounds of kills, the long
//! one (`FOREBAY_TEST_ALL`) 40, `FOREBAY_KILL_ROUNDS` another number; in one world of three the mover dies, too, at most kills. Where 40 and more are wanted, it goes on until each state was met by at least 10 of
//! them at the server that died, and fails when five times as many do not come to that.

mod common;
#[path = "../../destinations/tests/support/http_door.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod http_door;
#[path = "../../destinations/tests/common/xrootd.rs"]
mod xrootd;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::judge::{self, Judge};
use common::load::{Random, from_environment, long_form};
use common::running::Running;
use common::{forebay, scratch};
use http_door::HttpDoor;
use serde_json::Value;
use tempfile::TempDir;
use xrootd::XRootDServer;

/// Files that are added when fewer than half as many are left.
const FILES: u64 = 16;
/// Those that each file comes through at each destination.
const STATES: [&str; 5] = ["found", "sending", "arrived", "verified", "proven"];
const DIRECTORY: &str = "raw";
/// Source, mover and servers, so many at a time; in the first one the mover dies, too.
const WORLDS: u64 = 3;

/// Servers that die together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Root,
    Web,
    Both,
}

struct Place {
    directory: TempDir,
    root: XRootDServer,
    web: HttpDoor,
    judge: Judge,
    /// Everything that was ever put into the source, by name: length and sum.
    originals: BTreeMap<String, (usize, u32)>,
    /// What the source had let go when it was looked at last.
    released: BTreeSet<String>,
    /// Of the audit log, what was read, and how far deliveries of files are that are not over.
    log_bytes: usize,
    states: BTreeMap<(i64, String), String>,
    /// How many steps were done at each destination.
    steps: BTreeMap<String, u64>,
}

/// Over all worlds.
#[derive(Debug, Default)]
struct Counts {
    rounds: u64,
    /// Of the server that speaks XRootD, and of the HTTP door.
    kills: [u64; 2],
    kills_of_mover: u64,
    files: usize,
    met: BTreeMap<String, u64>,
}

struct Shared {
    counts: Mutex<Counts>,
    rounds_wanted: u64,
    often: u64,
}

impl Shared {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, victim: Victim, mover_died: bool, met: BTreeSet<String>) {
        let mut counts = self.counts();
        counts.rounds += 1;
        counts.kills[0] += u64::from(victim != Victim::Web);
        counts.kills[1] += u64::from(victim != Victim::Root);
        counts.kills_of_mover += u64::from(mover_died);
        met.into_iter().for_each(|state| *counts.met.entry(state).or_default() += 1);
    }

    fn goes_on(&self) -> bool {
        let counts = self.counts();
        let goes_on = counts.rounds < self.rounds_wanted || counts.met.values().any(|times| *times < self.often);
        let enough = counts.rounds < 5 * self.rounds_wanted;
        assert!(!goes_on || enough, "a state was not met {} times: {counts:?}", self.often);
        goes_on
    }
}

impl Place {
    fn new() -> Option<Place> {
        // What was cut off, or was closed a moment before a kill, is marked: it goes so soon after a start, rather than after 10 min.
        let root = XRootDServer::start_with("xrootd.chksum max 2 adler32\nofs.persist auto hold 1")?;
        let web = HttpDoor::start()?;
        let (originals, released, states) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        let directory = scratch();
        let path = |name: &str| directory.path().join(name);
        let kept = [root.path(DIRECTORY), web.data().join(DIRECTORY)];
        let judge = Judge::of_files(path("put"), &path("daq"), &kept);
        let place =
            Place { directory, root, web, judge, originals, released, log_bytes: 0, states, steps: BTreeMap::new() };
        fs::create_dir(place.path("daq")).expect("made");
        Some(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn addresses(&self) -> [String; 2] {
        [self.root.address(DIRECTORY), format!("{}/{DIRECTORY}", self.web.url())]
    }

    /// Where the servers keep what they were sent.
    fn kept(&self) -> [PathBuf; 2] {
        [self.root.path(DIRECTORY), self.web.data().join(DIRECTORY)]
    }

    fn start(&self) -> Running {
        let text = |path: PathBuf| path.display().to_string();
        let [root, web] = self.addresses();
        let (from, journal) = (text(self.path("daq")), text(self.path("journal.sqlite")));
        let arguments = ["move", "--settle", "0", "--recheck-after", "0.3", "--streams", "3", "--from", &from, "--to"];
        let more = [root.as_str(), "--to", &web, "--journal", &journal];
        let log = fs::File::options().create(true).append(true).open(self.path("log")).expect("a log");
        Running::start(arguments.iter().chain(&more).map(|word| (*word).to_owned()).collect(), Stdio::from(log))
    }

    /// More files, in directories of runs, when few are left.
    fn fill(&mut self, random: &mut Random) {
        if self.originals.len() - self.released.len() >= FILES as usize / 2 {
            return;
        }
        for _ in 0..FILES {
            let number = self.originals.len();
            let name = format!("run{}/file{number:05}.dat", number / 7);
            let bytes_max = if random.percent(10) { 6_000_000 } else { 300_000 };
            let count = if random.percent(10) { 0 } else { random.below(bytes_max) as usize };
            let bytes = random.bytes(count);
            let path = self.path("daq").join(&name);
            fs::create_dir_all(path.parent().expect("it has one")).expect("made");
            self.judge.note(&name, &bytes);
            // Whole when it has its name: the mover looks on.
            let hidden = path.with_file_name(".being-written");
            fs::write(&hidden, &bytes).and_then(|()| fs::rename(&hidden, &path)).expect("written");
            self.originals.insert(name, sum(&bytes));
        }
    }

    /// What the source has let go since the last look is whole at both servers.
    fn look(&mut self) {
        for (name, expected) in &self.originals {
            let (there, copied) = (self.path("daq").join(name), self.path("daq").join(format!("{name}.copied")));
            if self.released.contains(name) {
                continue;
            }
            // A renaming may be under way: never neither, as it is one step.
            let has_it = if there.exists() { &there } else { &copied };
            if has_it == &there {
                continue;
            }
            assert_eq!(sum(&fs::read(has_it).unwrap_or_else(|error| panic!("{name} is gone: {error}"))), *expected);
            for kept in self.kept() {
                let found = fs::read(kept.join(name)).map(|bytes| sum(&bytes));
                assert!(
                    found.as_ref().is_ok_and(|found| found == expected),
                    "{name} was let go and is not whole at {}: {found:?}, expected {expected:?}",
                    kept.display()
                );
            }
            self.released.insert(name.clone());
        }
    }

    /// How far deliveries to some of the destinations are, of files that are not over.
    fn states(&mut self, of: &[String]) -> BTreeSet<String> {
        let log = fs::read(self.path("journal.sqlite.audit.jsonl")).unwrap_or_default();
        let new = &log[self.log_bytes.min(log.len())..];
        let whole = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        self.log_bytes += whole;
        for line in new[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let line: Value = serde_json::from_slice(line).expect("JSON");
            let (id, after) = (line["consignment"].as_i64().expect("a number"), line["after"].as_str().expect("text"));
            match (line["destination"].as_str(), after) {
                (None, "released" | "withdrawn") => self.states.retain(|(of, _), _| *of != id),
                // A delivery has no line of its own before something is sent.
                (None, "found") => {
                    for to in self.addresses() {
                        self.states.insert((id, to), after.to_owned());
                    }
                }
                (Some(to), after) => {
                    self.states.insert((id, to.to_owned()), after.to_owned());
                    *self.steps.entry(to.to_owned()).or_default() += 1;
                }
                (None, _) => {}
            }
        }
        let there = self.states.iter().filter(|((_, to), _)| of.contains(to));
        there.map(|(_, state)| state.clone()).collect()
    }

    /// Waits until something goes on at each of these destinations again: before that no failure ends a row.
    fn wait_for_steps(&mut self, of: &[String], random: &mut Random) {
        self.states(of);
        let before = self.steps.clone();
        while of.iter().any(|to| self.steps.get(to) == before.get(to)) {
            self.go_on(random);
            self.states(of);
        }
    }

    /// Waits until something is so far there.
    fn wait_for(&mut self, state: &str, of: &[String], random: &mut Random) {
        while !self.states(of).contains(state) {
            self.go_on(random);
        }
    }

    /// What was let go meanwhile makes room for more.
    fn go_on(&mut self, random: &mut Random) {
        self.look();
        self.fill(random);
        std::thread::sleep(Duration::from_millis(5));
    }

    fn kill(&mut self, victim: Victim) {
        if victim != Victim::Web {
            self.root.kill();
        }
        if victim != Victim::Root {
            self.web.kill();
        }
    }

    fn begin(&mut self, victim: Victim) {
        if victim != Victim::Web {
            // A connection of somebody else may have its port for a moment.
            while !self.root.runs() {
                self.root.begin();
            }
        }
        if victim != Victim::Root {
            self.web.begin();
        }
    }

    /// Waits until the source has let everything go; what waits for a person never is.
    fn wait_until_all_is_released(&mut self) {
        let journal = self.path("journal.sqlite").display().to_string();
        while self.released.len() < self.originals.len() {
            std::thread::sleep(Duration::from_millis(200));
            self.look();
            let list = forebay(["move", "list", "--state", "quarantined", "--journal", &journal, "--json"]);
            let rests = list.expect(0).json()["files"].as_array().expect("files").iter().find_map(|file| {
                let strikes = file["deliveries"].as_array()?.iter().map(|to| to["strikes"].as_u64().unwrap_or(0)).max();
                (strikes >= Some(5)).then(|| file.to_string())
            });
            assert_eq!(rests, None, "that a server dies is no fault of a file");
        }
    }
}

fn sum(bytes: &[u8]) -> (usize, u32) {
    (bytes.len(), forebay_types::crc32c(bytes))
}

#[test]
fn everything_is_moved_once_and_let_go_late_whenever_a_destination_dies() {
    if !judge::is_here() {
        return;
    }
    let rounds_wanted = from_environment("FOREBAY_KILL_ROUNDS").unwrap_or(if long_form() { 40 } else { 6 });
    let seed = from_environment("FOREBAY_KILL_SEED").unwrap_or(1);
    let met = STATES.iter().map(|state| ((*state).to_owned(), 0)).collect();
    let shared = Shared {
        counts: Mutex::new(Counts { met, ..Counts::default() }),
        rounds_wanted,
        often: if rounds_wanted >= 40 { 10 } else { 0 },
    };
    // Most of a world is waiting.
    std::thread::scope(|scope| {
        for world in 0..WORLDS {
            let shared = &shared;
            scope.spawn(move || kill_again_and_again(seed * WORLDS + world, world == 0, shared));
        }
    });
    println!("seed {seed}: {:?}", shared.counts());
}

fn kill_again_and_again(seed: u64, with_mover: bool, shared: &Shared) {
    let Some(mut place) = Place::new() else { return };
    let mut random = Random(seed);
    let addresses = place.addresses();
    place.fill(&mut random);
    let mut mover = place.start();
    while shared.goes_on() {
        let victim = [Victim::Root, Victim::Web, Victim::Both][random.below(3) as usize];
        let of = match victim {
            Victim::Root => &addresses[..1],
            Victim::Web => &addresses[1..],
            Victim::Both => &addresses[..],
        };
        let mover_dies = with_mover && random.percent(60);
        place.wait_for(STATES[random.below(STATES.len() as u64) as usize], of, &mut random);
        std::thread::sleep(Duration::from_micros(random.below(60_000)));
        place.kill(victim);
        if mover_dies {
            mover.kill();
        }
        let met = place.states(of);
        shared.count(victim, mover_dies, met);
        place.judge.judge(false);
        place.fill(&mut random);
        std::thread::sleep(Duration::from_millis(if random.percent(10) { 2000 } else { random.below(300) }));
        // Where both died, the mover finds them away, or not.
        let mover_first = random.percent(50);
        if mover_dies && mover_first {
            mover = place.start();
        }
        place.begin(victim);
        if mover_dies && !mover_first {
            mover = place.start();
        }
        place.wait_for_steps(of, &mut random);
        assert!(mover.0.try_wait().expect("looked at").is_none(), "seed {seed}: the mover ended by itself");
    }
    place.wait_until_all_is_released();
    assert_eq!(mover.terminate(), Some(0), "seed {seed}");
    // Nothing is on its way any more, and what is left over at a server was taken away before its file counted as proven.
    place.judge.judge(true);
    shared.counts().files += place.originals.len();
}
