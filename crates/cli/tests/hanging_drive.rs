//! A drive that hangs in its file system holds up none of the others, whether that file system lets whoever submits a request go on or not; and it is noticed
//! although nobody asks for anything.

mod common;
#[path = "power_cut/mount.rs"]
mod mount;
#[path = "power_cut/volatile.rs"]
mod volatile;

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use common::load::{payload, verify};
use common::{Drives, Server};
use forebay_client::{Client, ClientConfig};
use forebay_types::FragmentId;
use mount::{ALL, Mounted, Requests};
use serde_json::Value;

/// Far more than the server needs to take a drive out: whoever waits so long waits for ever.
const HANG: Duration = Duration::from_secs(60);

const VICTIM: usize = 2;

fn put(client: &mut Client, run: u32) -> Vec<FragmentId> {
    let ids: Vec<FragmentId> = (0..200).map(|source| FragmentId::new(run, 1, source)).collect();
    for id in &ids {
        client.put(*id, 200, &payload(*id)).expect("taken");
    }
    client.flush().expect("answered");
    let mut results = Vec::new();
    client.take_put_results(&mut results);
    assert!(results.iter().all(|result| result.outcome.is_acknowledged()), "{:?}", results.first());
    ids
}

fn state_of_victim(client: &mut Client) -> String {
    let status: Value = serde_json::from_str(&client.status().expect("answered")).expect("JSON");
    status["drives"][VICTIM]["state"].as_str().expect("each has one").to_owned()
}

fn put_and_read(client: &mut Client, mut ids: Vec<FragmentId>) {
    ids.extend(put(client, 2));
    verify(client, &ids);
    assert_eq!(state_of_victim(client), "failed");
}

/// Stores something, then a drive hangs, and `then` something is done with what is stored.
fn serve_although_one_hangs(requests: Requests, then: impl Fn(&mut Client, Vec<FragmentId>)) {
    let drives = Drives::five();
    let Some(mounted) = Mounted::files(&drives.paths, 1, requests) else { return };
    let config = drives.directory.path().join("forebay.toml");
    std::fs::write(&config, "[store]\ncache-bytes = 0\n").expect("written");
    let options = ["--config", &config.display().to_string()];
    let mut server = Server::start_at("127.0.0.1:0", &options, &mounted.paths()).expect("it starts");
    server.collect_log();
    let config = ClientConfig::new(server.address.clone(), "test").deadline(Some(HANG));
    let mut client = Client::connect(config).expect("the server answers");
    let ids = put(&mut client, 1);
    mounted.hang(VICTIM);
    let after = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| then(&mut client, ids)));
    // A process ends when the last of what it asked for is answered.
    server.send_kill();
    mounted.hang_no_more();
    server.kill();
    after.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

#[test]
fn a_drive_that_hangs_is_taken_out() {
    serve_although_one_hangs(Requests::Asynchronous, put_and_read);
}

#[test]
fn a_drive_whose_file_system_waits_for_it_is_taken_out() {
    serve_although_one_hangs(Requests::Synchronous, put_and_read);
}

#[test]
fn a_drive_that_nobody_uses_is_taken_out() {
    serve_although_one_hangs(Requests::Asynchronous, |client, ids| {
        while state_of_victim(client) != "failed" {
            std::thread::sleep(Duration::from_millis(100));
        }
        put_and_read(client, ids);
    });
}

/// A server that is started on drives one of which hangs at these bytes.
fn start_although_one_hangs(bytes: Range<u64>, states: &[&str]) {
    let drives = Drives::five();
    drives.hold("1/1/1", b"from before");
    let Some(mounted) = Mounted::files(&drives.paths, 1, Requests::Asynchronous) else { return };
    let config = drives.directory.path().join("forebay.toml");
    std::fs::write(&config, "[store]\ndrive-timeout-ms = 100\n").expect("written");
    mounted.hang_at(VICTIM, bytes);
    let (options, paths) = (["--config".to_owned(), config.display().to_string()], mounted.paths());
    let (started, server) = std::sync::mpsc::channel();
    let start = std::thread::spawn(move || {
        let options = [options[0].as_str(), options[1].as_str()];
        let _ = started.send(Server::start_at("127.0.0.1:0", &options, &paths));
    });
    let server = server.recv_timeout(HANG);
    let after = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let server = server.as_ref().expect("it waits for ever").as_ref().expect("it starts");
        let config = ClientConfig::new(server.address.clone(), "test").deadline(Some(HANG));
        let mut client = Client::connect(config).expect("the server answers");
        assert_eq!(server.get("1/1/1").expect(0).stdout, b"from before");
        put(&mut client, 2);
        let state = state_of_victim(&mut client);
        assert!(states.contains(&state.as_str()), "{state}");
    }));
    let server = server.ok().and_then(Result::ok);
    if let Some(mut server) = server {
        server.send_kill();
        mounted.hang_no_more();
        server.kill();
    }
    mounted.hang_no_more();
    start.join().expect("it only waits");
    after.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

#[test]
fn a_server_starts_without_a_drive_that_does_not_say_what_it_is() {
    start_although_one_hangs(ALL, &["absent"]);
}

#[test]
fn a_server_starts_without_a_drive_that_hangs_behind_its_superblocks() {
    start_although_one_hangs(128 << 10..u64::MAX, &["failed"]);
}

/// A new drive hangs, at once or when it is read: it is given up, the server goes on meanwhile and after it, and another one may be named. What answers
/// late is not written to.
fn put_in_what_hangs(bytes: Range<u64>) {
    let drives = Drives::five();
    let new = drives.directory.path().join("new");
    std::fs::write(&new, vec![0; 32 << 20]).expect("written");
    let Some(mounted) = Mounted::files(&[new], 1, Requests::Asynchronous) else { return };
    let config = drives.directory.path().join("forebay.toml");
    std::fs::write(&config, "[store]\ndrive-timeout-ms = 100\n").expect("written");
    let options = ["--config", &config.display().to_string()];
    let mut server = Server::start_at("127.0.0.1:0", &options, &drives.paths).expect("it starts");
    server.collect_log();
    mounted.hang_at(0, bytes);
    let replace = |path: &Path| server.run(&["drive", "replace", "1", &path.display().to_string()]);
    let after = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let path = &mounted.paths()[0];
        replace(path).expect(3).says("hangs, and was given up").says("nothing that is stored was touched");
        let mut client = server.client("test");
        let ids = put(&mut client, 1);
        verify(&mut client, &ids);
        replace(&drives.directory.path().join("sound")).expect(0);
    }));
    mounted.hang_no_more();
    after.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    while is_still_put_in(&server) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let paths: Vec<Value> =
        server.status()["drives"].as_array().expect("a list").iter().map(|d| d["path"].clone()).collect();
    assert_eq!((paths.len(), mounted.asked().writes.load(Relaxed)), (6, 0), "{paths:?}");
}

/// Whether the thread of a server that puts a drive in is there.
fn is_still_put_in(server: &Server) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("a process");
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.into_iter().any(|name| name.trim_end() == "forebay-replace")
}

#[test]
fn a_new_drive_that_does_not_say_what_it_is_is_given_up() {
    put_in_what_hangs(ALL);
}

#[test]
fn a_new_drive_that_hangs_when_it_is_read_is_given_up() {
    put_in_what_hangs(4 << 20..5 << 20);
}
