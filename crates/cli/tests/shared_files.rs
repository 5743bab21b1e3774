//! A store of a file that several servers reach: one owns it, and another takes it over only when a fencing command says that the owner is ended.

#[cfg(feature = "rados")]
#[path = "../../../tests/peers/ceph.rs"]
mod ceph;
#[cfg(feature = "rados")]
#[path = "shared_files/cephfs.rs"]
mod cephfs;
mod common;

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use common::owners::{DEAD_AFTER, FREE, assert_has, free_address, put, take_over_under_load};
use common::running::until;
use common::{Ran, Server, forebay, scratch};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const KILL: &str = "kill -9 $FOREBAY_OWNER_PID";

/// A store of one file.
struct Store {
    directory: TempDir,
    drive: PathBuf,
}

impl Store {
    fn new() -> Store {
        let directory = scratch();
        let drive = directory.path().join("drive0");
        init(&drive).expect(0);
        Store { directory, drive }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn serve(&self, fence: &str) -> Server {
        let server = serve_at(FREE, &self.drive, fence, &[]).unwrap_or_else(|ran| panic!("{ran:?}"));
        until(|| self.owner()["address"] == server.address);
        server
    }

    /// What the owner file says.
    fn owner(&self) -> Value {
        serde_json::from_slice(&fs::read(self.path("drive0.owner")).expect("read")).expect("JSON")
    }

    /// How often a command has said so in this file.
    fn calls(&self) -> usize {
        fs::read_to_string(self.path("calls")).map_or(0, |text| text.lines().count())
    }
}

fn init(drive: &Path) -> Ran {
    let words = ["init", "--data", "1", "--parity", "0", "--drive-bytes", "256MiB", "--lanes", "2", "--json"];
    forebay(words.into_iter().map(OsStr::new).chain([drive.as_os_str()]))
}

fn serve_at(listen: &str, drive: &Path, fence: &str, more: &[&str]) -> Result<Server, Ran> {
    let options = [&["--fence-command", fence, "--dead-after", DEAD_AFTER], more].concat();
    Server::start_at(listen, &options, &[drive.to_owned()])
}

/// A standby that has begun to wait; whoever joins it has it when it serves.
fn standby_at(listen: &str, drive: &Path, fence: &str) -> JoinHandle<Server> {
    let (listen, drive, fence) = (listen.to_owned(), drive.to_owned(), fence.to_owned());
    std::thread::spawn(move || {
        serve_at(&listen, &drive, &fence, &["--standby"]).unwrap_or_else(|ran| panic!("{ran:?}"))
    })
}

/// One that nobody waits for; killed when it is dropped.
fn begin_standby(drive: &Path, fence: &str) -> common::running::Running {
    let options = ["--fence-command", fence, "--dead-after", DEAD_AFTER, "--standby"];
    common::running::Running(Server::spawn(FREE, &options, &[drive.to_owned()]))
}

/// Reads its log up to these words.
fn until_it_says(standby: &mut common::running::Running, words: &str) {
    let log = standby.0.stderr.as_mut().expect("a pipe");
    let (mut text, mut bytes) = (String::new(), [0; 4096]);
    while !text.contains(words) {
        let count = log.read(&mut bytes).expect("read");
        assert!(count > 0, "it ended: {text}");
        text.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
}

fn wake(server: &Server) {
    kill_process(Pid::from_raw(server.pid().cast_signed()).expect("a process"), Signal::CONT).expect("a signal");
}

#[test]
fn one_server_has_the_store_and_gives_it_back_when_it_is_stopped() {
    let store = Store::new();
    let server = store.serve(KILL);
    put(&mut server.client("test"), 0..100);
    let owner = store.owner();
    assert_eq!(
        (owner["process"]["pid"].as_u64(), owner["given_back"].as_bool()),
        (Some(server.pid().into()), Some(false))
    );
    let second = serve_at(FREE, &store.drive, "false", &[]).err().expect("there is one that serves it");
    second.expect(3).says("which lives. Nothing was changed").says(&server.address);
    // A standby does not wait for a pulse that stands still when there is none.
    let next = standby_at(FREE, &store.drive, "false");
    server.terminate().expect(0).says("marked clean");
    let server = next.join().expect("it serves");
    assert_has(&mut server.client("test"), 0..100);
    server.terminate().expect(0);
    assert_eq!(store.owner()["given_back"], true);
}

#[test]
fn what_cannot_be_meant_is_refused_with_words() {
    let store = Store::new();
    let drive = store.drive.to_str().expect("text");
    let refused = |words: &[&str], says: &str| {
        forebay(words).expect(2).says(says).says("Nothing was");
    };
    refused(&["serve", "--standby", drive], "say with --fence-command how the other one is ended");
    refused(&["serve", "--dead-after", "5", drive], "--dead-after is for a store that another server may have");
    refused(&["serve", "--fence-command", KILL, "--read-only", drive], "--read-only writes nothing");
    refused(&["serve", "--fence-command", KILL, "--dead-after", "0", drive], "1 s to 1 hour");
    refused(&["takeover", drive], "say with --fence-command");
    refused(&["takeover", "--fence-command", KILL], "name its drives");
    // A server that would not know of the others.
    let server = store.serve(KILL);
    refused(&["serve", "--listen", FREE, drive], "has not given it back");
    server.terminate().expect(0);
    refused(&["serve", "--listen", FREE, drive], "none has it now");
    fs::write(store.path("drive0.owner"), "nonsense").expect("written");
    refused(&["serve", "--listen", FREE, drive], "is no owner file, or damaged");
    fs::remove_file(store.path("drive0.owner")).expect("removed");
    let server = Server::start_at(FREE, &[], std::slice::from_ref(&store.drive)).expect("it serves, alone");
    server.terminate().expect(0);
}

#[test]
fn a_standby_takes_over_from_a_server_that_is_killed_under_load() {
    let store = Store::new();
    let first = store.serve(KILL);
    let server = take_over_under_load(first, |first, other| {
        first.send_kill();
        standby_at(other, &store.drive, KILL)
    });
    server.terminate().expect(0);
}

#[test]
fn a_command_that_begins_while_nobody_has_the_store_waits_for_the_standby() {
    let store = Store::new();
    let mut first = store.serve(KILL);
    first.send_kill();
    let other = free_address();
    let ask = |servers: &str| forebay(["file", "ls", "--json", "--timeout", "60", "--server", servers]);
    ask(&other).expect(3).says("nothing listens");
    let servers = format!("{},{other}", first.address);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| ask(&servers));
        // Most probably it has found nobody by now.
        std::thread::sleep(std::time::Duration::from_millis(200));
        let standby = standby_at(&other, &store.drive, KILL).join().expect("it serves");
        waiting.join().expect("no panic").expect(0);
        let screen = forebay(["status", "--server", &servers]).expect(0).stdout;
        let row = format!("server      {other} (of {servers}), ");
        assert!(String::from_utf8_lossy(&screen).contains(&row), "{row:?}");
        assert_eq!(forebay(["status", "--json", "--server", &servers]).expect(0).json()["answers_from"], other);
        standby.terminate().expect(0);
    });
}

#[test]
fn a_server_that_stands_still_under_load_is_ended_before_it_is_replaced() {
    let store = Store::new();
    let first = store.serve(KILL);
    let (pid, address) = (Pid::from_raw(first.pid().cast_signed()).expect("a process"), first.address.clone());
    let mut raw = None;
    let server = take_over_under_load(first, |first, other| {
        first.freeze();
        let mut asks = TcpStream::connect(&address).expect("the kernel takes it");
        asks.write_all(b"nonsense").expect("sent");
        raw = Some(asks);
        // It is started now: a server that is only slow must not be taken for dead before.
        standby_at(other, &store.drive, KILL)
    });
    // Whatever it is told now, it is no more.
    assert!(kill_process(pid, Signal::CONT).is_err(), "it was killed, and its end was asked for");
    let mut told = Vec::new();
    let _ = raw.expect("connected").read_to_end(&mut told);
    assert!(told.is_empty(), "it told {told:?}");
    server.terminate().expect(0);
}

#[test]
fn nothing_is_taken_until_the_fencing_command_succeeds() {
    let store = Store::new();
    let (calls, mended) = (store.path("calls"), store.path("mended"));
    let fence = format!("echo x >> {}; test -e {} || exit 7; {KILL}", calls.display(), mended.display());
    let old = store.serve(&fence);
    let mut client = old.client("test");
    put(&mut client, 0..50);
    let epoch = store.owner()["epoch"].clone();
    old.freeze();
    let next = standby_at(FREE, &store.drive, &fence);
    until(|| store.calls() >= 3);
    assert_eq!(store.owner()["epoch"], epoch, "it is still the old one's");
    // And serves, when it goes on.
    wake(&old);
    assert_has(&mut client, 0..50);
    put(&mut client, 50..100);
    assert_eq!(store.owner()["epoch"], epoch);
    old.freeze();
    let before = store.calls();
    until(|| store.calls() > before);
    fs::write(&mended, "").expect("written");
    let server = next.join().expect("it serves");
    assert_has(&mut server.client("test"), 0..100);
    let ran = server.terminate().expect(0);
    assert_eq!(
        ran.stderr.matches("ended with exit code 7").count(),
        1,
        "said once, though it was run again: {}",
        ran.stderr
    );
    ran.says("nothing is taken, and nobody serves the store unless").says("is fenced, as the fencing command says");
}

#[test]
fn a_fencing_command_that_hangs_is_killed_and_takes_nothing() {
    let store = Store::new();
    let (calls, mended) = (store.path("calls"), store.path("mended"));
    let fence = format!("echo x >> {}; test -e {} || sleep 1000; {KILL}", calls.display(), mended.display());
    let old = store.serve(&fence);
    put(&mut old.client("test"), 0..50);
    old.freeze();
    let next = standby_at(FREE, &store.drive, &fence);
    until(|| store.calls() >= 1);
    fs::write(&mended, "").expect("written");
    let server = next.join().expect("it serves");
    assert_has(&mut server.client("test"), 0..50);
    server.terminate().expect(0).says("did not end within 20 s, and was killed");
}

#[test]
fn a_fencing_command_that_lies_takes_nothing_from_a_server_that_has_its_lock() {
    let store = Store::new();
    let lie = format!("echo x >> {}", store.path("calls").display());
    let old = store.serve(&lie);
    let mut client = old.client("test");
    put(&mut client, 0..50);
    let epoch = store.owner()["epoch"].clone();
    old.freeze();
    // It is killed where it believes that the other is fenced, and cannot take the lock.
    let mut killed = begin_standby(&store.drive, &lie);
    until_it_says(&mut killed, "the file system still keeps its lock");
    drop(killed);
    let mut next = begin_standby(&store.drive, &lie);
    until_it_says(&mut next, "the file system still keeps its lock");
    assert_eq!((store.owner()["epoch"].clone(), store.calls()), (epoch.clone(), 2));
    wake(&old);
    until_it_says(&mut next, "IS FENCED, AND IT LIVES");
    assert_has(&mut client, 0..50);
    put(&mut client, 50..60);
    assert_eq!(store.owner()["epoch"], epoch);
    drop(next);
    old.kill();
    let server = store.serve("false");
    assert_has(&mut server.client("test"), 0..60);
    server.terminate().expect(0);
}

#[test]
fn a_standby_may_be_killed_at_any_step() {
    let store = Store::new();
    let (calls, go) = (store.path("calls"), store.path("go"));
    let fence = format!("echo x >> {}; while ! test -e {}; do sleep 0.1; done; {KILL}", calls.display(), go.display());
    let old = store.serve(&fence);
    put(&mut old.client("test"), 0..50);
    old.freeze();
    // While the command runs, which goes on without it.
    let killed = begin_standby(&store.drive, &fence);
    until(|| store.calls() >= 1);
    drop(killed);
    fs::write(&go, "").expect("written");
    // As soon as the store is its own, before it serves.
    for _ in 0..3 {
        let epoch = store.owner()["epoch"].as_u64();
        let killed = begin_standby(&store.drive, &fence);
        until(|| store.owner()["epoch"].as_u64() > epoch);
        drop(killed);
    }
    let server = standby_at(FREE, &store.drive, &fence).join().expect("it serves");
    assert_has(&mut server.client("test"), 0..50);
    server.terminate().expect(0);
}

#[test]
fn an_operator_takes_a_store_from_a_server_that_lives() {
    let store = Store::new();
    let drive = store.drive.to_str().expect("text");
    let old = store.serve(KILL);
    old.put("1/7/3", b"hello").expect(0);
    let refused = forebay(["takeover", "--fence-command", "exit 9", drive]).expect(3);
    refused.says("ended with exit code 9").says("still has the store, and nothing was taken");
    assert_eq!(old.get("1/7/3").expect(0).stdout, b"hello");
    let told = forebay(["takeover", "--fence-command", KILL, drive, "--json"]).expect(0).json();
    assert!(told["seconds"].is_f64());
    assert_eq!(old.wait().exit, -1, "it was killed");
    assert_eq!(store.owner()["given_back"], true);
    let new = store.serve("false");
    assert_eq!(new.get("1/7/3").expect(0).stdout, b"hello");
    new.terminate().expect(0);
}

#[test]
fn a_server_that_finds_another_owner_written_down_ends() {
    let store = Store::new();
    let mut server = store.serve(KILL);
    server.collect_log();
    server.put("1/7/3", b"hello").expect(0);
    let mut owner = store.owner();
    owner["epoch"] = 1000.into();
    fs::write(store.path("other"), owner.to_string()).expect("written");
    fs::rename(store.path("other"), store.path("drive0.owner")).expect("renamed");
    server.wait().expect(3).says("ANOTHER SERVER HAS TAKEN THE STORE OVER");
    assert_eq!(store.owner()["epoch"], 1000, "it wrote nothing more");
}

#[test]
fn a_standby_that_would_not_wait_long_enough_takes_nothing() {
    let store = Store::new();
    let lie = format!("echo x >> {}", store.path("calls").display());
    let options = ["--fence-command", &lie, "--dead-after", "600"];
    let mut old = Server::start_at(FREE, &options, std::slice::from_ref(&store.drive)).expect("it serves");
    old.send_kill();
    // Not known to be gone: as from another machine.
    let mut owner = store.owner();
    owner["process"]["boot_id"] = "another".into();
    owner["process"]["host"] = "elsewhere".into();
    fs::write(store.path("drive0.owner"), owner.to_string()).expect("written");
    let mut standby = begin_standby(&store.drive, &lie);
    until_it_says(&mut standby, "counts as dead after 600 s");
    assert_eq!(store.calls(), 0, "nobody was fenced");
}
