//! Power cuts, also in the middle of a start: the server dies together with all that its drives had not flushed, and what it had acknowledged
//! is there.
//!
//! The drives are files of a file system of the test (FUSE) that keeps writes in a cache until they are flushed. At a power cut each block
//! of 4 KiB that was not flushed is dropped or survives, by itself, by chance. What the server acknowledged before the power went is read
//! back after the next start, and before that without any one drive, fragments and a file that is written beside them; what it had deleted must stay deleted. That this test can fail is seen on drives that lie about their flushes:
//! all of them lead to a loss that is noticed, a single one to none.
//!
//! All is seeded: `FOREBAY_KILL_SEED` chooses other moments and losses, `FOREBAY_KILL_ROUNDS` the cuts of each way to reach drives. The
//! short form has 3, the long one (`FOREBAY_TEST_ALL`) 20.

mod common;
#[path = "power_cut/mount.rs"]
mod mount;
#[path = "power_cut/volatile.rs"]
mod volatile;

use std::collections::VecDeque;
use std::fs::File;
use std::io::IoSlice;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use common::file_load::WrittenFile;
use common::load::{
    Random, compare, delete_run, expect_deleted, from_environment, long_form, payload, take_acknowledged, verify,
};
use common::{Drives, Ran, Server};
use forebay_client::Client;
use forebay_types::FragmentId;
use mount::{Mounted, Requests};
use rustix::io::{ReadWriteFlags, pwritev2};
use serde_json::Value;

/// Ways to reach drives, as `[store.media]` has them: io_uring where the machine lets it, and threads past and through the page cache.
const WAYS: [&str; 3] = [
    "backend = \"auto\"\ndirect = \"auto\"",
    "backend = \"thread-pool\"\ndirect = \"auto\"",
    "backend = \"thread-pool\"\ndirect = \"off\"",
];

/// Rounds whose fragments stay in the store.
const ROUNDS_KEPT: usize = 3;

/// What a run of the test did.
#[derive(Debug, Default)]
struct Totals {
    cuts: u64,
    cuts_at_start: u64,
    acknowledged: u64,
    unanswered: u64,
    verified: u64,
    verified_without_one: u64,
    file_bytes_verified: u64,
    seen_deleted: u64,
    blocks_dropped: u64,
    blocks_survived: u64,
}

/// What a round left that stays in the store.
struct Kept {
    ids: Vec<FragmentId>,
    file: WrittenFile,
}

/// What rounds left that was deleted since.
#[derive(Default)]
struct Deleted {
    ids: Vec<FragmentId>,
    files: Vec<WrittenFile>,
}

impl Deleted {
    fn expect(&self, server: &Server, client: &mut Client) {
        expect_deleted(client, &self.ids);
        self.files.iter().for_each(|file| file.expect_removed(server));
    }
}

/// A store on volatile drives.
struct Volatile {
    mounted: Mounted,
    store: Drives,
    config: String,
    random: Random,
    /// A drive that lies about its flushes.
    liar: Option<usize>,
    next_run: u32,
    totals: Totals,
}

impl Volatile {
    /// `None` where there is no FUSE.
    fn make(way: &str, seed: u64) -> Option<Volatile> {
        let store = Drives::five();
        let mounted = Mounted::files(&store.paths, seed, Requests::Asynchronous)?;
        let config = store.directory.path().join("forebay.toml");
        let patient = "[store]\ndrive-timeout-ms = 60000\ncache-bytes = 0\n";
        std::fs::write(&config, format!("{patient}[store.media]\n{way}\n")).expect("written");
        let config = config.display().to_string();
        let (random, totals) = (Random(seed), Totals::default());
        Some(Volatile { mounted, store, config, random, liar: None, next_run: 1, totals })
    }

    fn start(&self) -> Result<Server, Ran> {
        self.start_on(&[], &self.mounted.paths())
    }

    fn start_on(&self, more: &[&str], paths: &[PathBuf]) -> Result<Server, Ran> {
        let options: Vec<&str> = ["--config", self.config.as_str()].iter().chain(more).copied().collect();
        let mut server = Server::start_at("127.0.0.1:0", &options, paths)?;
        server.collect_log();
        Ok(server)
    }

    /// What is left without one drive; nothing is written.
    fn look_without_one(&mut self, kept: &VecDeque<Kept>, deleted: &Deleted) {
        let mut paths = self.mounted.paths();
        let drives = paths.len() as u64;
        // That drive has failed already.
        let gone = self.liar.unwrap_or(self.random.below(drives) as usize);
        paths.remove(gone);
        let server = self.start_on(&["--read-only"], &paths).expect("any number of drives will do");
        let mut client = server.client("test");
        for Kept { ids, file } in kept {
            self.totals.verified_without_one += verify(&mut client, ids);
            self.totals.file_bytes_verified += file.verify(&server);
        }
        deleted.expect(&server, &mut client);
        server.kill();
    }

    /// Puts until a random moment; then the power goes. What was acknowledged before.
    fn load_and_cut(&mut self, server: Server, mut client: Client) -> Kept {
        let mut acknowledged = Vec::new();
        let file = WrittenFile::begin(&server, self.next_run);
        let at_least = 50 + self.random.below(4_000);
        let mut put = 0;
        // A cut shows most while writes are on their way.
        while put < at_least || acknowledged.is_empty() || self.mounted.is_idle() {
            let id = FragmentId::new(self.next_run, put / 8, (put % 8) as u32);
            client.put(id, 8, &payload(id)).expect("the server takes it");
            put += 1;
            if put.is_multiple_of(32) {
                take_acknowledged(&mut client, &mut acknowledged);
            }
            if put == at_least {
                file.wait_until_begun();
            }
        }
        self.next_run += 1;
        self.die(server);
        // What it had said before is still on its way.
        while take_acknowledged(&mut client, &mut acknowledged) > 0 {}
        self.totals.unanswered += client.pending_puts() as u64;
        self.totals.acknowledged += acknowledged.len() as u64;
        Kept { ids: acknowledged, file }
    }

    /// The machine dies with its drives' caches.
    fn die(&mut self, mut server: Server) {
        self.mounted.power_goes();
        server.send_kill();
        self.mounted.let_go();
        server.kill();
        self.power_comes();
        self.totals.cuts += 1;
    }

    fn power_comes(&mut self) {
        let survive_percent = [0, 10, 50, 90][self.random.below(4) as usize];
        let cut = self.mounted.power_comes(survive_percent, &mut self.random);
        self.totals.blocks_dropped += cut.dropped;
        self.totals.blocks_survived += cut.survived;
    }

    /// The power goes while a server starts.
    fn cut_a_start(&mut self) {
        let mut child = Server::spawn("127.0.0.1:0", &["--config", &self.config], &self.mounted.paths());
        std::thread::sleep(Duration::from_micros(self.random.below(60_000)));
        self.mounted.power_goes();
        child.kill().expect("killed");
        self.mounted.let_go();
        child.wait().expect("it ends");
        self.power_comes();
        self.totals.cuts_at_start += 1;
    }

    /// So many cuts; nothing may be lost by any.
    fn survive(&mut self, cuts: u64) {
        let mut kept: VecDeque<Kept> = VecDeque::new();
        let mut deleted = Deleted::default();
        for _ in 0..cuts {
            if self.random.percent(40) {
                self.cut_a_start();
            }
            self.look_without_one(&kept, &deleted);
            let server = self.start().expect("it starts on what a power cut left");
            let mut client = server.client("test");
            for Kept { ids, file } in &kept {
                self.totals.verified += verify(&mut client, ids);
                self.totals.file_bytes_verified += file.verify(&server);
            }
            deleted.expect(&server, &mut client);
            see_no_loss(&mut client);
            self.totals.seen_deleted += deleted.ids.len() as u64;
            if kept.len() >= ROUNDS_KEPT {
                let oldest = kept.pop_front().expect("counted just now");
                delete_run(&mut client, oldest.ids[0].run);
                deleted.ids.extend(oldest.ids.iter().step_by(oldest.ids.len().div_ceil(20)));
                oldest.file.remove(&server);
                deleted.files.push(oldest.file);
            }
            let acknowledged = self.load_and_cut(server, client);
            kept.push_back(acknowledged);
        }
        self.look_without_one(&kept, &deleted);
        let server = self.start().expect("it starts on what a power cut left");
        let mut client = server.client("test");
        for Kept { ids, file } in &kept {
            self.totals.verified += verify(&mut client, ids);
            self.totals.file_bytes_verified += file.verify(&server);
        }
        deleted.expect(&server, &mut client);
        server.terminate().expect(0);
    }
}

/// All drives are there: what a cut left torn was not acknowledged, and the server knows it.
fn see_no_loss(client: &mut Client) {
    let status: Value = serde_json::from_str(&client.status().expect("answered")).expect("JSON");
    for key in ["flushes_lost", "flushes_possibly_lost", "flushes_unavailable", "segments_unreadable"] {
        assert_eq!(status["totals"][key], 0, "{key}: {status}");
    }
    assert_eq!(status["totals"]["counters"]["fragments_lost"], 0, "{status}");
}

fn seed() -> u64 {
    from_environment("FOREBAY_KILL_SEED").unwrap_or(1)
}

#[test]
fn what_was_acknowledged_survives_power_cuts() {
    let cuts = from_environment("FOREBAY_KILL_ROUNDS").unwrap_or(if long_form() { 20 } else { 3 });
    println!("seed {}, {cuts} cuts for each way", seed());
    let mut blocks_met = 0;
    for way in WAYS {
        let Some(mut volatile) = Volatile::make(way, seed()) else { return };
        volatile.survive(cuts);
        println!("{}: {:?}, {:?}", way.replace('\n', ", "), volatile.totals, volatile.mounted.asked());
        let totals = &volatile.totals;
        assert!(totals.cuts == cuts && totals.verified > 0 && totals.file_bytes_verified > 0, "it shows nothing");
        blocks_met += totals.blocks_dropped + totals.blocks_survived;
    }
    assert!(blocks_met > 0, "no cut found anything on its way");
}

#[test]
fn one_drive_that_lies_about_its_flushes_loses_nothing() {
    let cuts = if long_form() { 10 } else { 2 };
    let Some(mut volatile) = Volatile::make(WAYS[0], seed() + 1) else { return };
    let liar = volatile.random.below(5) as usize;
    println!("seed {}, drive {liar} lies", seed() + 1);
    volatile.mounted.drive(liar).lie();
    volatile.liar = Some(liar);
    volatile.survive(cuts);
    println!("{:?}, {:?}", volatile.totals, volatile.mounted.asked());
}

/// What this file asserts would be seen if the server left its flushes out.
#[test]
fn drives_that_all_lie_about_their_flushes_are_found_out() {
    let stores = if long_form() { 6 } else { 2 };
    for seed in seed()..seed() + stores {
        let Some(mut volatile) = Volatile::make(WAYS[0], seed) else { return };
        (0..volatile.store.paths.len()).for_each(|drive| volatile.mounted.drive(drive).lie());
        let server = volatile.start().expect("nothing was lost yet");
        let client = server.client("test");
        let acknowledged = volatile.load_and_cut(server, client);
        match volatile.start() {
            Err(ran) => println!("seed {seed}: no server started, exit {}", ran.exit),
            Ok(server) => {
                let (found, missing) = compare(&mut server.client("test"), &acknowledged.ids);
                println!("seed {seed}: {found} found, {} missing", missing.len());
                assert!(!missing.is_empty(), "seed {seed}: lost flushes were not noticed");
            }
        }
    }
}

/// The drives of this file do what they are for.
#[test]
fn a_power_cut_takes_what_was_not_flushed_and_nothing_else() {
    let Some(volatile) = Volatile::make(WAYS[0], seed()) else { return };
    let (mounted, mut random) = (&volatile.mounted, Random(seed()));
    let block = |byte: u8| vec![byte; volatile::BLOCK_BYTES];
    let cut = |random: &mut Random| {
        mounted.power_goes();
        mounted.let_go();
        mounted.power_comes(0, random)
    };
    let read = |offset_bytes: u64| mounted.drive(0).read(offset_bytes, volatile::BLOCK_BYTES);
    let open = || File::options().read(true).write(true).open(&mounted.paths()[0]).expect("opened");

    let file = open();
    let before = read(0);
    file.write_all_at(&block(1), 0).expect("written");
    assert_eq!(read(0), block(1), "the newest is read");
    drop(file);
    assert_eq!(cut(&mut random).dropped, 1);
    assert_eq!(read(0), before, "not flushed");

    let file = open();
    file.write_all_at(&block(2), 0).expect("written");
    file.sync_data().expect("flushed");
    file.write_all_at(&block(3), 4096).expect("written");
    let dsync = pwritev2(&file, &[IoSlice::new(&block(4))], 8192, ReadWriteFlags::DSYNC).expect("written");
    drop(file);
    cut(&mut random);
    assert_eq!((dsync, read(0), read(8192)), (4096, block(2), block(4)), "flushed");
    let asked = mounted.asked();
    assert!(asked.writes.load(Relaxed) >= 4 && asked.durable_writes.load(Relaxed) + asked.flushes.load(Relaxed) >= 2);
}
