//! What was fenced comes back to life: its entry of the blocklist is removed before it goes on. It can do nothing that counts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use forebay_client::{Client, ClientConfig};
use forebay_types::{EventId, EventKey, RunId};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::ceph::Ceph;
use crate::common::load::{Random, from_environment};
use crate::common::owners::{FREE, assert_has, id, payload, put};
use crate::common::pools::{MEDIA, init, init_with, serve, serve_at, standby};
use crate::{CLUSTER, ask, ask_json};

/// Events that fill some slots.
const EVENTS: u64 = 1500;

/// The address by which a blocklist knows who has a store.
fn holder(name: &str) -> String {
    let info = ask_json("rados", &["-p", "meta", "-N", name, "lock", "info", "lock", "store", "--format", "json"]);
    let address = info["lockers"][0]["addr"].as_str().unwrap_or_else(|| panic!("nobody has it: {info}"));
    address.rsplit_once(']').map_or(address, |(_, rest)| rest).to_owned()
}

/// Removes the entry, before its time.
fn forgive(address: &str) {
    let fenced = ask("ceph", &["osd", "blocklist", "ls"]);
    let nonce = address.rsplit_once('/').expect("it has one").1;
    let ends = format!("/{nonce}");
    let entry = fenced.split_whitespace().find(|word| word.ends_with(&ends));
    ask("ceph", &["osd", "blocklist", "rm", entry.unwrap_or_else(|| panic!("{address} is not in {fenced}"))]);
}

fn go_on(pid: u32) {
    kill_process(Pid::from_raw(pid.cast_signed()).expect("a process"), Signal::CONT).expect("a signal");
}

fn keys(events: impl Iterator<Item = u64>) -> Vec<EventKey> {
    events.map(|event| EventKey { run: RunId(1), event: EventId(event) }).collect()
}

fn impatient(address: &str, name: &str) -> Client {
    let config = ClientConfig::new(address, name).deadline(Some(Duration::from_secs(20)));
    Client::connect(config).expect("connected")
}

#[test]
fn an_owner_that_comes_back_without_its_fence_does_nothing_that_counts() {
    let Some(_ceph) = Ceph::of_hosts() else { return };
    let _together = CLUSTER.read();
    init("back").expect(0);
    let mut random = Random(from_environment("FOREBAY_KILL_SEED").unwrap_or(1));
    let mut new = serve("back");
    let (mut first, mut next) = (0, 0);
    for _ in 0..3 {
        let mut old = new;
        old.collect_log();
        let fenced = holder("back");
        let mut client = old.client("test");
        put(&mut client, next..next + EVENTS);
        next += EVENTS;
        let (mut reads, mut writes) = (impatient(&old.address, "reads"), impatient(&old.address, "writes"));
        reads.get(id(next - 1)).expect("there");
        let mut raw = TcpStream::connect(&old.address).expect("the kernel takes it");
        // Slots that nothing lives in any more are about to be removed.
        client.delete(&keys(first..next - 100)).expect("deleted");
        first = next - 100;
        std::thread::sleep(Duration::from_millis(random.below(400)));
        for event in next..next + 50 {
            writes.put(id(event), 1, &payload(event)).expect("taken");
        }
        let waits = standby("back");
        old.freeze();
        let new_events = next + 10_000..next + 10_000 + EVENTS;
        let asks = std::thread::spawn(move || (reads.get(id(next - 1)).map(drop), writes));
        raw.write_all(b"nonsense").expect("sent");
        new = waits.join().expect("it serves");
        let mut client = new.client("test");
        assert_has(&mut client, first..next);
        // What it frees it uses again, and removes more.
        put(&mut client, new_events.clone());
        client.delete(&keys(first..first + 50)).expect("deleted");
        first += 50;
        forgive(&fenced);
        go_on(old.pid());
        old.wait().expect(3).says("ANOTHER SERVER HAS TAKEN THE STORE OVER");
        let mut told = Vec::new();
        let _ = raw.read_to_end(&mut told);
        assert!(told.is_empty(), "it told {told:?}");
        let (read, mut writes) = asks.join().expect("no panic");
        assert!(read.is_err(), "it answered a read");
        let mut results = Vec::new();
        writes.take_put_results(&mut results);
        let mut acknowledged: Vec<u64> = Vec::new();
        acknowledged.extend(results.iter().filter(|put| put.outcome.is_acknowledged()).map(|put| put.id.event.0));
        drop(writes);
        // Those that it acknowledged, it did before it stood still; then they are there.
        for _ in 0..2 {
            let mut client = new.client("compare");
            assert_has(&mut client, (first..next).chain(new_events.clone()).chain(acknowledged.iter().copied()));
            assert!((first - 50..first).all(|event| client.get(id(event)).is_err()), "what was deleted is back");
            drop(client);
            new.terminate().expect(0);
            new = serve("back");
        }
        let mut client = new.client("test");
        client.delete(&keys(new_events.clone().chain(next..next + 50))).expect("deleted");
        next = new_events.end;
        first = next;
        put(&mut client, first..first + 100);
        next += 100;
    }
    new.terminate().expect(0);
}

/// A command that makes the store anew, which stands still as soon as it has the store; nothing when it was through before.
fn init_that_stands_still(name: &str) -> Option<Child> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(["init", "--media", MEDIA, "--name", name, "--drive-bytes", "1GiB", "--lanes", "2", "--force"]);
    command.args(["--slot-bytes", "4MiB"]).env("FOREBAY_LOG", "info");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    let pid = Pid::from_child(&child);
    for line in stderr.lines().map_while(Result::ok) {
        if line.contains("the store is this server's") {
            kill_process(pid, Signal::STOP).expect("a signal");
            break;
        }
    }
    let status = waitpid(Some(pid), WaitOptions::UNTRACED).expect("it is ours").expect("it was waited for").1;
    status.stopped().then_some(child)
}

#[test]
fn an_init_that_comes_back_destroys_nothing_of_who_took_the_store_over() {
    let Some(_ceph) = Ceph::of_hosts() else { return };
    let _together = CLUSTER.read();
    // One that had begun to write when it was stopped has destroyed what was there, as it was told to.
    for _ in 0..20 {
        init_with("anew", &["--force"]).expect(0);
        let server = serve("anew");
        put(&mut server.client("test"), 0..500);
        server.terminate().expect(0);
        let Some(mut stopped) = init_that_stands_still("anew") else { continue };
        let fenced = holder("anew");
        // What is half written cannot be served.
        let server = serve_at(FREE, "anew", &["--standby"]).ok();
        let server = server.filter(|server| server.client("test").get(id(0)).is_ok());
        if let Some(server) = &server {
            assert_has(&mut server.client("test"), 0..500);
            put(&mut server.client("test"), 500..1000);
        }
        forgive(&fenced);
        go_on(stopped.id());
        let ended = stopped.wait().expect("ours");
        let Some(server) = server else { continue };
        assert!(!ended.success(), "{ended}");
        assert_has(&mut server.client("test"), 0..1000);
        server.terminate().expect(0);
        let server = serve("anew");
        assert_has(&mut server.client("test"), 0..1000);
        return;
    }
    panic!("it was never stopped before it had written");
}
