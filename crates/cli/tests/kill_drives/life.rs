//! One store, from its making to when too few of its drives are left.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_client::Client;
use forebay_types::{FragmentId, RunId};
use serde_json::Value;
use tempfile::TempDir;

use super::Totals;
use super::common::file_load::WrittenFile;
use super::common::load::{Random, delete_run, expect_deleted, payload, take_acknowledged, verify};
use super::common::{Server, forebay, scratch};
use super::drives::{Drives, Shape};
use super::path::EventPath;

/// Rounds whose fragments stay in the store.
const ROUNDS_KEPT: usize = 4;

/// Of the fragments of a round so many are looked at after they were deleted, and so many of all rounds.
const DELETED_SAMPLED: usize = 20;
const DELETED_KEPT: usize = 500;

/// Of files that were removed, so many.
const REMOVED_KEPT: usize = 20;

/// Runs from here on hold what the test puts itself.
const FIRST_RUN: u32 = 1_000_000;

/// Fragments of an event that the test puts, and one more than that: such an event is never complete, and offered to no filter.
const SOURCES: u64 = 8;
const EXPECTED: u16 = 9;

/// No drive is judged by its speed on a machine that runs other tests too, no event is taken for incomplete, and none goes to `debug`.
const PATIENT: &str = "drive-timeout-ms = 60000\nincomplete-after-ms = 86400000\nlease-attempts-max = 255\n";

/// Widths and drives: with as many drives as a segment takes, and with more.
const SHAPES: [Shape; 4] = [
    Shape { data: 4, parity: 1, drives: 7, drive_mebibytes: 64 },
    Shape { data: 4, parity: 2, drives: 8, drive_mebibytes: 64 },
    Shape { data: 3, parity: 3, drives: 9, drive_mebibytes: 64 },
    Shape { data: 5, parity: 2, drives: 7, drive_mebibytes: 64 },
];

/// What was acknowledged in a round and stays in the store.
struct Kept {
    ids: Vec<FragmentId>,
    file: WrittenFile,
}

/// A store and those that use it.
pub struct Life<'a> {
    directory: TempDir,
    config: String,
    pub drives: Drives,
    /// A drive of another store.
    foreign: &'a Path,
    /// Where all its servers listen.
    address: String,
    path: Option<EventPath>,
    kept: VecDeque<Kept>,
    deleted: VecDeque<FragmentId>,
    removed: VecDeque<WrittenFile>,
    next_run: u32,
    /// No drive was out of order at the last start: then a server can tell what every flush is that was on its way at a kill.
    started_in_order: bool,
    /// How the last server ended; not known of one that was killed before it served.
    stopped_clean: Option<bool>,
}

impl<'a> Life<'a> {
    /// Makes a store.
    pub fn begin(foreign: &'a Path, random: &mut Random, totals: &mut Totals) -> Life<'a> {
        totals.stores += 1;
        let directory = scratch();
        let shape = SHAPES[random.below(SHAPES.len() as u64) as usize];
        let cache_bytes = if random.percent(50) { 0 } else { 64 << 20 };
        let config = directory.path().join("forebay.toml");
        std::fs::write(&config, format!("[store]\n{PATIENT}cache-bytes = {cache_bytes}\n")).expect("written");
        println!("store {}: {shape:?}, cache of {cache_bytes} bytes", totals.stores);
        Life {
            config: config.display().to_string(),
            drives: Drives::make(&directory.path().join("drives"), shape),
            directory,
            foreign,
            address: own_address(),
            path: None,
            kept: VecDeque::new(),
            deleted: VecDeque::new(),
            removed: VecDeque::new(),
            next_run: FIRST_RUN,
            started_in_order: true,
            stopped_clean: Some(true),
        }
    }

    /// From a start to the next kill, and what is done to the drives after that.
    pub fn round(&mut self, random: &mut Random, totals: &mut Totals) {
        if random.percent(20) {
            let after = Duration::from_micros(random.below(150_000));
            Server::start_and_kill(&self.address, &["--config", &self.config], &self.drives.paths(), after);
            totals.kills_at_start += 1;
            self.stopped_clean = self.stopped_clean.filter(|clean| !clean);
        }
        self.look_without(random, totals);
        if random.percent(20) {
            self.ask_doctor(totals);
        }
        let server = self.start(totals);
        self.look_back(&server, totals);
        if random.percent(if self.drives.failures_left() == 0 { 40 } else { 5 }) {
            self.drain(server, totals);
        } else {
            self.path
                .get_or_insert_with(|| EventPath::start(&server.address, self.directory.path().join("files")))
                .keep_going();
            if random.percent(60) {
                self.drives.operate(&server, random, totals);
                self.look_back_at_data(&server, totals);
            }
            self.load_and_kill(server, random, totals);
        }
        self.drives.harm(self.foreign, random, totals);
    }

    /// Starts a server on all that is where a drive is or was; what keeps it from starting is taken away after it was refused.
    fn start(&mut self, totals: &mut Totals) -> Server {
        self.started_in_order = self.drives.out_of_order() == 0;
        loop {
            let started = Server::start_at(&self.address, &["--config", &self.config], &self.drives.paths());
            match (started, self.drives.take_refused()) {
                (Ok(mut server), None) => {
                    server.collect_log();
                    self.address.clone_from(&server.address);
                    totals.starts += 1;
                    return server;
                }
                (Err(ran), None) => panic!("{}: {ran:?}", self.drives.describe()),
                (Err(ran), Some(stand_in)) => {
                    let words = stand_in.refused().expect("it was taken away for that");
                    assert!(ran.stderr.contains(words), "{stand_in:?}: {words:?} is not in {ran:?}");
                    totals.refused += 1;
                }
                (Ok(_), Some(stand_in)) => panic!("a server started with {stand_in:?}"),
            }
        }
    }

    /// All that is acknowledged is there without as many more drives as may fail. Nothing is written, so that none of them is out afterwards.
    fn look_without(&self, random: &mut Random, totals: &mut Totals) {
        let paths = self.drives.without_some(random);
        let options = ["--read-only", "--config", &self.config];
        let mut server = Server::start_at("127.0.0.1:0", &options, &paths)
            .unwrap_or_else(|ran| panic!("{}: {ran:?}", self.drives.describe()));
        server.collect_log();
        let (kept, deleted) = (self.kept_ids(), self.deleted_ids());
        let mut client = server.client("test");
        totals.verified_without += verify(&mut client, &kept);
        expect_deleted(&mut client, &deleted);
        self.look_at_files(&server, totals);
        server.kill();
    }

    /// What is there is all that is needed.
    fn ask_doctor(&self, totals: &mut Totals) {
        let paths = self.drives.paths_there();
        let ran = forebay(["doctor", "--json"].iter().map(OsStr::new).chain(paths.iter().map(|path| path.as_os_str())));
        let report: Value = serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
        let verdict = report["verdict"].as_str().unwrap_or_default();
        // A flush that was on its way at the kill may have pieces on a drive that is away now: nobody can tell that it was not acknowledged.
        let unknown = self.drives.out_of_order() > 0 && verdict == "out-of-reach";
        assert!(unknown || ["whole", "repairable"].contains(&verdict), "{}: {report}", self.drives.describe());
        totals.doctor_asked += 1;
    }

    fn kept_ids(&self) -> Vec<FragmentId> {
        self.kept.iter().flat_map(|kept| &kept.ids).copied().collect()
    }

    fn deleted_ids(&self) -> Vec<FragmentId> {
        self.deleted.iter().copied().collect()
    }

    /// What the server says of itself, and whether all that it should hold is there.
    fn look_back(&mut self, server: &Server, totals: &mut Totals) {
        let status = status(&mut server.client("test"));
        self.drives.compare(&status);
        assert!(self.stopped_clean.is_none_or(|clean| status["started_clean"] == clean), "{status}");
        self.look_back_at_data(server, totals);
    }

    fn look_back_at_data(&self, server: &Server, totals: &mut Totals) {
        let mut client = server.client("test");
        totals.verified += verify(&mut client, &self.kept_ids());
        let deleted = self.deleted_ids();
        expect_deleted(&mut client, &deleted);
        totals.seen_deleted += deleted.len() as u64;
        self.look_at_files(server, totals);
        self.see_no_loss(&mut client, totals);
    }

    fn look_at_files(&self, server: &Server, totals: &mut Totals) {
        totals.file_bytes_verified += self.kept.iter().map(|kept| kept.file.verify(server)).sum::<u64>();
        self.removed.iter().for_each(|file| file.expect_removed(server));
    }

    /// Nothing is lost, and the server promises no less than it should.
    fn see_no_loss(&self, client: &mut Client, totals: &mut Totals) {
        let status = status(client);
        let sums = &status["totals"];
        let out = self.drives.out_of_order();
        assert_eq!(sums["out_of_reach"]["segments"], 0, "{}; {status}", self.drives.describe());
        for key in ["flushes_lost", "segments_unreadable", "flushes_possibly_lost", "flushes_unavailable"] {
            // As for the doctor.
            let unknown = !self.started_in_order && key == "flushes_possibly_lost";
            assert!(unknown || sums[key] == 0, "{key}: {}; {status}", self.drives.describe());
        }
        totals.flushes_possibly_lost += sums["flushes_possibly_lost"].as_u64().expect("a number");
        assert_eq!(sums["counters"]["fragments_lost"], 0, "{}; {status}", self.drives.describe());
        let left = sums["failures_left"].as_u64();
        assert!(
            left.is_none_or(|left| left >= self.drives.failures_left()),
            "{out} drives are out of order ({}), and the server says that {left:?} more may fail: {status}",
            self.drives.describe()
        );
        totals.units_damaged += sums["counters"]["units_damaged"].as_u64().expect("a number");
        totals.read_degraded += sums["counters"]["fragments_read_degraded"].as_u64().expect("a number");
    }

    /// Puts until a random moment; what was acknowledged before the server died is kept.
    fn load_and_kill(&mut self, server: Server, random: &mut Random, totals: &mut Totals) {
        let mut client = server.client("test");
        let mut acknowledged = Vec::new();
        let at_least = 100 + random.below(10_000);
        let run = self.next_run;
        self.next_run += 1;
        let file = WrittenFile::begin(&server, run - FIRST_RUN);
        let mut put = 0;
        while put < at_least || acknowledged.is_empty() {
            let id = FragmentId::new(run, put / SOURCES, (put % SOURCES) as u32);
            client.put(id, EXPECTED, &payload(id)).expect("the server takes it");
            put += 1;
            if put.is_multiple_of(64) {
                take_acknowledged(&mut client, &mut acknowledged);
            }
            if put == at_least / 2 {
                if self.kept.len() >= ROUNDS_KEPT {
                    self.delete_oldest(&server, &mut client);
                }
                if random.percent(15) {
                    self.drives.harm_while_used(random, totals);
                }
            }
            if put == at_least {
                file.wait_until_begun();
            }
        }
        // Stopped first, nothing is on its way any more when it dies: neither to its drives nor to its clients.
        if random.percent(30) {
            server.freeze();
        }
        server.kill();
        // What it had said before is still on its way.
        while take_acknowledged(&mut client, &mut acknowledged) > 0 {}
        totals.acknowledged += acknowledged.len() as u64;
        totals.unanswered += client.pending_puts() as u64;
        totals.kills += 1;
        self.stopped_clean = Some(false);
        self.kept.push_back(Kept { ids: acknowledged, file });
        if random.percent(25) {
            self.path.as_mut().expect("it was started before the load").kill_recorder();
        }
    }

    fn delete_oldest(&mut self, server: &Server, client: &mut Client) {
        let Some(Kept { ids: oldest, file }) = self.kept.pop_front() else { return };
        file.remove(server);
        self.removed.push_back(file);
        if self.removed.len() > REMOVED_KEPT {
            self.removed.pop_front();
        }
        delete_run(client, oldest[0].run);
        let step = oldest.len().div_ceil(DELETED_SAMPLED);
        self.deleted.extend(oldest.iter().step_by(step));
        while self.deleted.len() > DELETED_KEPT {
            self.deleted.pop_front();
        }
    }

    /// Lets all fragments and events come to their end, and stops in order: what is left are the books of the runs.
    fn drain(&mut self, server: Server, totals: &mut Totals) {
        let mut client = server.client("test");
        while !self.kept.is_empty() {
            self.delete_oldest(&server, &mut client);
        }
        self.delete_leftovers(&mut client);
        loop {
            let ended = self.path.as_mut().is_none_or(|path| {
                path.keep_recording();
                path.readout_has_ended()
            });
            let sums = status(&mut client)["totals"].clone();
            if ended && sums["events_undecided"] == 0 && sums["events_accepted"] == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        if let Some(path) = &self.path {
            path.expect_finished(&mut client);
        }
        self.see_no_loss(&mut client, totals);
        server.terminate().expect(0).says("marked clean");
        self.stopped_clean = Some(true);
        totals.drains += 1;
    }

    /// What came without an acknowledgement, when a run has nothing else.
    fn delete_leftovers(&self, client: &mut Client) {
        let runs =
            client.runs().expect("answered").into_iter().filter(|run| run.run.0 >= FIRST_RUN && run.undecided > 0);
        let runs: Vec<RunId> = runs.map(|run| run.run).collect();
        runs.into_iter().for_each(|run| delete_run(client, run));
    }

    /// Too few drives are left for more harm.
    pub fn is_over(&self) -> bool {
        self.drives.is_worn()
    }

    /// The books of a store whose time is over.
    pub fn end(mut self, totals: &mut Totals) {
        let server = self.start(totals);
        self.look_back(&server, totals);
        self.drain(server, totals);
        // Empty, whatever happened to its drives.
        let server = self.start(totals);
        let mut client = server.client("test");
        self.look_back(&server, totals);
        let sums = status(&mut client)["totals"].clone();
        assert_eq!((&sums["fragments"], &sums["events_undecided"]), (&0.into(), &0.into()), "{sums}");
        if let Some(path) = self.path.take() {
            path.expect_finished(&mut client);
            let shipped = path.finish();
            totals.events += shipped.events;
            totals.events_accepted += shipped.accepted;
            totals.recorder_kills += shipped.recorder_kills;
        }
        server.terminate().expect(0);
    }
}

/// An address of this machine that no other process uses: while no server listens, nobody else is given its port, and meets its clients.
fn own_address() -> String {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    format!("127.{}.{middle}.{low}:0", 1 + high)
}

/// What the server says of itself.
pub(super) fn status(client: &mut Client) -> Value {
    serde_json::from_str(&client.status().expect("the server answers")).expect("JSON")
}

/// A drive of a store that has nothing to do with the others.
pub fn foreign_drive(directory: &Path) -> PathBuf {
    let shape = Shape { data: 2, parity: 1, drives: 3, drive_mebibytes: 32 };
    Drives::make(directory, shape).paths().swap_remove(0)
}
