//! Random bytes over any one drive of 4+1, and any two of 8+2: while the server is stopped, and while it serves. Every read is right, and the
//! server says what it met, and where. When all was looked at, it is mended: then the drives that were overwritten are relied upon.
//!
//! The short form overwrites some drives, the long one (`FOREBAY_TEST_ALL`) each one and each two. All is seeded; `FOREBAY_KILL_SEED`
//! chooses other bytes.

mod common;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use common::file_load::WrittenFile;
use common::load::{Random, from_environment, ids_of_run, long_form, put_all, verify};
use common::{Server, forebay, scratch};
use forebay_client::Client;
use forebay_types::FragmentId;
use serde_json::Value;
use tempfile::TempDir;

/// Fragments that are there before anything happens; over several segments.
const FRAGMENTS: u64 = 6_000;

/// And so many files.
const FILES: u32 = 4;

/// Fragments that are put by one client at a time.
const MORE: u64 = 1_000;

/// The superblocks lie before this, what a drive holds of the data behind it.
const SUPERBLOCKS_BYTES: u64 = 128 << 10;

/// What a run of the test did.
#[derive(Debug, Default)]
struct Totals {
    drives_overwritten: u64,
    acknowledged: u64,
    verified: u64,
    file_bytes_verified: u64,
    /// As the servers counted. Of a single drive nothing may be met: where it holds parity alone no read comes upon it.
    units_damaged_before: u64,
    units_damaged_serving: u64,
    read_degraded: u64,
    flushes_mended: u64,
    /// Read where drives that had been overwritten are needed.
    verified_mended: u64,
}

/// A store with data, and copies of its drives as they were.
struct Store {
    directory: TempDir,
    paths: Vec<PathBuf>,
    parity: u32,
    ids: Vec<FragmentId>,
    files: Vec<WrittenFile>,
    random: Random,
    totals: Totals,
}

fn status(client: &mut Client) -> Value {
    serde_json::from_str(&client.status().expect("answered")).expect("JSON")
}

/// A counter of all lanes.
fn counter(status: &Value, name: &str) -> u64 {
    status["totals"]["counters"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {status}"))
}

impl Store {
    fn make(data: u32, parity: u32, seed: u64) -> Store {
        let directory = scratch();
        let paths: Vec<PathBuf> =
            (0..data + parity).map(|number| directory.path().join(format!("drive{number}"))).collect();
        let (data_text, parity_text) = (data.to_string(), parity.to_string());
        let options =
            ["init", "--data", &data_text, "--parity", &parity_text, "--drive-bytes", "24MiB", "--slot-bytes", "1MiB"];
        let words = options.iter().map(std::ffi::OsStr::new).chain(["--lanes", "2"].iter().map(std::ffi::OsStr::new));
        forebay(words.chain(paths.iter().map(|path| path.as_os_str()))).expect(0);
        // All is read from the drives, and none is judged by its speed.
        let config = "[store]\ndrive-timeout-ms = 60000\ncache-bytes = 0\n";
        fs::write(directory.path().join("forebay.toml"), config).expect("written");
        let (ids, totals) = (ids_of_run(1, FRAGMENTS), Totals::default());
        let mut store = Store { directory, paths, parity, ids, files: Vec::new(), random: Random(seed), totals };
        let server = store.serve();
        put_all(&mut server.client("test"), &store.ids);
        store.files = (0..FILES).map(|number| WrittenFile::whole(&server, number)).collect();
        store.totals.acknowledged += FRAGMENTS;
        server.terminate().expect(0);
        for path in &store.paths {
            fs::copy(path, copy_of(path)).expect("copied");
        }
        store
    }

    /// All drives as they were.
    fn restore(&self) {
        for path in &self.paths {
            fs::copy(copy_of(path), path).expect("copied");
        }
    }

    fn serve(&self) -> Server {
        self.serve_on(&[], &self.paths)
    }

    fn serve_on(&self, options: &[&str], paths: &[PathBuf]) -> Server {
        let config = self.directory.path().join("forebay.toml").display().to_string();
        let options: Vec<&str> = ["--config", &config].into_iter().chain(options.iter().copied()).collect();
        let started = Server::start_at("127.0.0.1:0", &options, paths);
        let mut server = started.unwrap_or_else(|ran| panic!("it did not start: {ran:?}"));
        server.collect_log();
        server
    }

    /// Random bytes from here to the end of each of these drives.
    fn overwrite(&mut self, drives: &[usize], from_bytes: u64) {
        for drive in drives {
            let file = OpenOptions::new().write(true).open(&self.paths[*drive]).expect("opened");
            let drive_bytes = file.metadata().expect("a file").len();
            let mut offset_bytes = from_bytes;
            while offset_bytes < drive_bytes {
                let part = self.random.bytes((drive_bytes - offset_bytes).min(1 << 20) as usize);
                file.write_all_at(&part, offset_bytes).expect("written");
                offset_bytes += part.len() as u64;
            }
            self.totals.drives_overwritten += 1;
        }
    }

    /// Everything that was acknowledged is right, and nothing is told to be lost.
    fn verify(&mut self, server: &Server, more: &[FragmentId]) -> Value {
        let mut client = server.client("test");
        self.totals.verified += verify(&mut client, &self.ids) + verify(&mut client, more);
        self.totals.file_bytes_verified += self.files.iter().map(|file| file.verify(server)).sum::<u64>();
        let status = status(&mut client);
        assert_eq!((counter(&status, "fragments_lost"), &status["totals"]["flushes_lost"]), (0, &0.into()), "{status}");
        status
    }

    /// The drives are not there any more: the server names them, and computes what they held.
    fn expect_absent(&mut self, drives: &[usize], more: &[FragmentId]) {
        let server = self.serve();
        let warnings = server.ready["warnings"].to_string();
        let status = self.verify(&server, more);
        for drive in drives {
            let path = self.paths[*drive].display().to_string();
            assert!(warnings.contains(&path), "{path} is not in {warnings}");
            // The first start without it takes it out.
            let state = &status["drives"][drive]["state"];
            assert!(state == "absent" || state == "gone", "{status}");
        }
        self.totals.read_degraded += counter(&status, "fragments_read_degraded");
        server.kill();
    }

    fn while_stopped(&mut self, drives: &[usize]) {
        self.restore();
        self.overwrite(drives, 0);
        let server = self.serve();
        let mut client = server.client("test");
        self.verify(&server, &[]);
        let more = ids_of_run(2, MORE);
        put_all(&mut client, &more);
        self.totals.acknowledged += MORE;
        server.kill();
        self.expect_absent(drives, &more);
    }

    /// What identifies the drives is left, so that they are believed to be whole.
    fn while_stopped_but_for_superblocks(&mut self, drives: &[usize]) {
        self.restore();
        self.overwrite(drives, SUPERBLOCKS_BYTES);
        let server = self.serve();
        let mut client = server.client("test");
        let more = ids_of_run(2, MORE);
        put_all(&mut client, &more);
        self.totals.acknowledged += MORE;
        let status = self.verify(&server, &more);
        self.totals.units_damaged_before += counter(&status, "units_damaged");
        server.kill();
        let server = self.serve();
        self.verify(&server, &more);
        self.mend(&server, drives);
        server.terminate().expect(0);
        let words = ["doctor", "--json"].iter().map(std::ffi::OsStr::new);
        let ran = forebay(words.chain(self.paths.iter().map(|path| path.as_os_str()))).expect(0);
        assert_eq!(ran.json()["verdict"], "whole");
        self.rely_on(drives, &more);
    }

    /// Has the server look at everything: it finds damage on these drives, on no other, and mends all.
    fn mend(&mut self, server: &Server, drives: &[usize]) {
        let told = server.run(&["drive", "scrub", "--json"]).expect(0).json();
        assert_eq!((&told["flushes_not_mended"], &told["units_lost"]), (&0.into(), &0.into()), "{told}");
        self.totals.flushes_mended += told["flushes_mended"].as_u64().expect("a number");
        let list = server.run(&["drive", "list", "--json"]).expect(0).json();
        for (number, drive) in list["drives"].as_array().expect("a list").iter().enumerate() {
            let count = |name: &str| drive[name].as_u64().expect("a number");
            let damaged = count("units_damaged") + count("units_unreadable") + count("headers_damaged");
            assert_eq!(damaged > 0, drives.contains(&number), "drive {number}: {list}");
            assert_eq!(count("mended") > 0, drives.contains(&number), "drive {number}: {list}");
        }
        // Nothing is left to find.
        let again = server.run(&["drive", "scrub", "--json"]).expect(0).json();
        assert!(again["segments_checked"].as_u64() > Some(0), "{again}");
        assert_eq!(again["flushes_mended"], 0, "{again}");
    }

    /// Waits until a drive that was overwritten from its start says again what it is.
    fn wait_for_superblock(&self, drive: usize) {
        let magic = fs::read(copy_of(&self.paths[drive])).expect("read")[..8].to_vec();
        let is_there = || {
            let mut start = vec![0; SUPERBLOCKS_BYTES as usize];
            let file = fs::File::open(&self.paths[drive]).expect("opened");
            file.read_exact_at(&mut start, 0).expect("read");
            start.chunks(4096).any(|block| block[..8] == magic[..])
        };
        while !is_there() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Without as many others as may fail everything is right: these drives are as they were.
    fn rely_on(&mut self, drives: &[usize], more: &[FragmentId]) {
        let mut paths: Vec<PathBuf> = self.paths.clone();
        for _ in 0..self.parity {
            let others: Vec<PathBuf> =
                paths.iter().filter(|path| !drives.iter().any(|drive| self.paths[*drive] == **path)).cloned().collect();
            let other = &others[self.random.below(others.len() as u64) as usize];
            paths.retain(|path| path != other);
        }
        let server = self.serve_on(&["--read-only"], &paths);
        let before = self.totals.verified;
        let status = self.verify(&server, more);
        self.totals.verified_mended += self.totals.verified - before;
        assert_eq!((counter(&status, "units_damaged"), counter(&status, "reads_failed")), (0, 0), "{status}");
        server.kill();
    }

    /// Somebody reads, and somebody writes, all the time.
    fn while_it_serves(&mut self, drives: &[usize]) {
        self.restore();
        let server = self.serve();
        let (over, all, files) = (AtomicBool::new(false), self.ids.clone(), self.files.clone());
        let more = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let (mut client, mut verified) = (server.client("reader"), 0);
                while verified == 0 || !over.load(Relaxed) {
                    verified += verify(&mut client, &all);
                    assert!(files.iter().all(|file| file.verify(&server) > 0), "each is there");
                }
                verified
            });
            let writer = scope.spawn(|| {
                let mut client = server.client("writer");
                let (mut more, mut run) = (Vec::new(), 2);
                while more.is_empty() || !over.load(Relaxed) {
                    let ids = ids_of_run(run, MORE);
                    put_all(&mut client, &ids);
                    more.extend(ids);
                    run += 1;
                }
                more
            });
            self.overwrite(drives, 0);
            over.store(true, Relaxed);
            self.totals.verified += reader.join().expect("every read is right");
            writer.join().expect("every put is acknowledged")
        });
        self.totals.acknowledged += more.len() as u64;
        let status = self.verify(&server, &more);
        self.totals.units_damaged_serving += counter(&status, "units_damaged");
        self.mend(&server, drives);
        drives.iter().for_each(|drive| self.wait_for_superblock(*drive));
        server.kill();
        self.rely_on(drives, &more);
    }

    fn all(&mut self, drives: &[usize]) {
        self.while_stopped(drives);
        self.while_stopped_but_for_superblocks(drives);
        self.while_it_serves(drives);
    }

    fn finish(self) {
        println!("{:?}", self.totals);
        assert!(self.totals.file_bytes_verified > 0);
        let Totals {
            units_damaged_before, units_damaged_serving, read_degraded, flushes_mended, verified_mended, ..
        } = self.totals;
        assert!(units_damaged_before > 0 && units_damaged_serving > 0 && read_degraded > 0);
        assert!(flushes_mended > 0 && verified_mended > 0);
    }
}

fn copy_of(path: &Path) -> PathBuf {
    path.with_extension("copy")
}

fn seed() -> u64 {
    from_environment("FOREBAY_KILL_SEED").unwrap_or(1)
}

#[test]
fn random_bytes_over_any_one_drive_of_4_and_1_change_no_answer() {
    println!("seed {}", seed());
    let mut store = Store::make(4, 1, seed());
    // Two that follow each other: one at least holds data.
    let few = [seed() % 5, (seed() + 1) % 5].map(|drive| drive as usize);
    (0..5).filter(|drive| long_form() || few.contains(drive)).for_each(|drive| store.all(&[drive]));
    store.finish();
}

#[test]
fn random_bytes_over_any_two_drives_of_8_and_2_change_no_answer() {
    println!("seed {}", seed());
    let mut store = Store::make(8, 2, seed());
    let pairs: Vec<[usize; 2]> = (0..10).flat_map(|second| (0..second).map(move |first| [first, second])).collect();
    // Two that have no drive in common: one at least holds data.
    let first = (seed() % 10) as usize;
    let few = [[first, (first + 1) % 10], [(first + 2) % 10, (first + 3) % 10]].map(|mut pair| {
        pair.sort_unstable();
        pair
    });
    let chosen = pairs.iter().filter(|pair| long_form() || few.contains(*pair));
    chosen.for_each(|pair| store.all(pair));
    store.finish();
}
