//! kill -9 of the server at random moments, with at least a thousand puts in flight each time: all that was acknowledged is there.
//!
//! In flight is what has left the client whole and is not answered. So that nothing is answered while it is counted, the server is stopped
//! (SIGSTOP) before it is killed; what it had answered by then counts as acknowledged.
//!
//! The moments are seeded; `FOREBAY_KILL_SEED` chooses others. The short form has 6 rounds, the long one (`FOREBAY_TEST_ALL`) 50.

mod common;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::load::{
    Random, delete_run, expect_deleted, from_environment, long_form, payload, take_acknowledged, verify,
};
use forebay_client::{Client, ClientConfig};
use forebay_types::FragmentId;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// Puts that must have been sent and not answered when the server dies.
const IN_FLIGHT_MIN: usize = 1000;

/// Rounds whose fragments stay in the store.
const ROUNDS_KEPT: usize = 5;

/// Longer than any start or answer takes: only a hang comes here.
const HANG: Duration = Duration::from_secs(120);

struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(directory: &Path, drives: &[PathBuf]) -> Self {
        let ready = directory.join("ready");
        let _ = std::fs::remove_file(&ready);
        // No drive is judged by its speed on a machine that runs other tests too.
        let config = directory.join("forebay.toml");
        std::fs::write(&config, "[store]\ndrive-timeout-ms = 60000\n").expect("the configuration can be written");
        let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["serve", "--listen", "127.0.0.1:0", "--ready-file"])
            .arg(&ready)
            .arg("--config")
            .arg(&config)
            .args(drives)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let log = BufReader::new(child.stderr.take().expect("piped"));
        std::thread::spawn(move || log.lines().map_while(Result::ok).for_each(|line| eprintln!("server: {line}")));
        let start = Instant::now();
        let address = loop {
            match std::fs::read_to_string(&ready) {
                Ok(address) if !address.trim().is_empty() => break address.trim().to_owned(),
                _ => std::thread::sleep(Duration::from_millis(10)),
            }
            assert!(child.try_wait().expect("a child").is_none(), "the server ended before it served");
            assert!(start.elapsed() < HANG, "the server does not come up");
        };
        Server { child, address }
    }

    fn client(&self, name: &str) -> Client {
        Client::connect(ClientConfig::new(self.address.clone(), name)).expect("the server answers")
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed()).expect("a process")
    }

    /// SIGSTOP; gives when no thread of it runs any more.
    fn freeze(&self) {
        kill_process(self.pid(), Signal::STOP).expect("a signal");
        let status =
            waitpid(Some(self.pid()), WaitOptions::UNTRACED).expect("it is ours").expect("it was waited for").1;
        assert!(status.stopped(), "{status:?}");
    }

    fn thaw(&self) {
        kill_process(self.pid(), Signal::CONT).expect("a signal");
    }

    /// SIGKILL.
    fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is ours");
    }
}

/// Puts until a random moment at which enough are in flight; what was acknowledged before the server died.
fn load_and_kill(server: Server, round: u32, random: &mut Random) -> (Vec<FragmentId>, u64) {
    let mut client = server.client("writer");
    let mut acknowledged = Vec::new();
    let at_least = 2_000 + random.next() % 20_000;
    let mut put = 0u64;
    loop {
        let id = FragmentId::new(round, put / 8, (put % 8) as u32);
        client.put(id, 8, &payload(id)).expect("the server takes it");
        put += 1;
        if put.is_multiple_of(64) {
            take_acknowledged(&mut client, &mut acknowledged);
        }
        if put >= at_least && acknowledged.len() > 100 && client.puts_in_flight() >= IN_FLIGHT_MIN {
            server.freeze();
            while take_acknowledged(&mut client, &mut acknowledged) > 0 {}
            let in_flight = client.puts_in_flight();
            if in_flight >= IN_FLIGHT_MIN {
                server.kill();
                return (acknowledged, in_flight as u64);
            }
            // It had answered before it was stopped.
            server.thaw();
        }
        assert!(put < 5_000_000, "there are never {IN_FLIGHT_MIN} puts in flight");
    }
}

#[test]
fn what_was_acknowledged_survives_the_server() {
    let rounds = if long_form() { 50 } else { 6 };
    let seed = from_environment("FOREBAY_KILL_SEED").unwrap_or(1);
    let mut random = Random(seed);
    let memory = PathBuf::from("/dev/shm");
    let room = rustix::fs::statvfs(&memory).map_or(0, |fs| fs.f_bavail * fs.f_frsize);
    let directory = if room > 6 << 30 { tempfile::TempDir::new_in(memory) } else { tempfile::TempDir::new() };
    let directory = directory.expect("a directory can be made");
    let drives: Vec<PathBuf> = (0..5).map(|n| directory.path().join(format!("drive{n}"))).collect();
    let init = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["init", "--data", "4", "--parity", "1", "--drive-bytes", "640MiB", "--lanes", "2"])
        .args(&drives)
        .stdout(Stdio::null())
        .status()
        .expect("init runs");
    assert!(init.success(), "init: {init}");
    let (mut acknowledged, mut in_flight, mut verified) = (0, 0, 0);
    let mut kept: VecDeque<Vec<FragmentId>> = VecDeque::new();
    for round in 1..=rounds {
        let server = Server::start(directory.path(), &drives);
        let (ids, unanswered) = load_and_kill(server, round, &mut random);
        assert!(!ids.is_empty() && unanswered >= IN_FLIGHT_MIN as u64, "round {round} shows nothing");
        let server = Server::start(directory.path(), &drives);
        let mut client = server.client("reader");
        verified += verify(&mut client, &ids);
        acknowledged += ids.len() as u64;
        in_flight += unanswered;
        kept.push_back(ids);
        // Each start begins new segments: old rounds make room, and must stay deleted.
        if kept.len() > ROUNDS_KEPT {
            let old = kept.pop_front().expect("counted just now");
            delete_run(&mut client, old[0].run);
            expect_deleted(&mut client, &old[..1]);
        }
        // Killed again right after its recovery.
        server.kill();
    }
    let server = Server::start(directory.path(), &drives);
    let mut client = server.client("reader");
    kept.iter().for_each(|ids| {
        verify(&mut client, ids);
    });
    server.kill();
    println!("kills {rounds}, acknowledged {acknowledged}, in flight {in_flight}, verified {verified}");
    assert!(acknowledged > 0 && in_flight > 0 && verified == acknowledged);
}
