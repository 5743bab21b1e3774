//! What becomes of a file when the store's server, or XRootD's, is killed on the way: it comes to be whole, or the client is told, and nobody takes a part of it for all of it.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use forebay::*;

use crate::common::door::{Door, client, failed_client, good_client};
use crate::common::world::*;
use crate::{local, until};

const PAUSE: Duration = Duration::from_millis(300);

fn start(command: &mut Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs")
}

/// `xrdcp` that does not have all of a file on its way at once.
fn slow_reader() -> Command {
    let mut command = client("xrdcp");
    command.env("XRD_CPPARALLELCHUNKS", "1").env("XRD_CPCHUNKSIZE", "1000000");
    command
}

/// `xrdcp` that looks so often for its server, every so many seconds, and for so many seconds more where it was connected.
fn impatient(patience: [&str; 3]) -> Command {
    let mut command = client("xrdcp");
    command.envs(["XRD_CONNECTIONRETRY", "XRD_CONNECTIONWINDOW", "XRD_STREAMERRORWINDOW"].into_iter().zip(patience));
    command
}

/// Whether something is in a file of this name.
fn has_bytes(files: &forebay_files, path: &str) -> bool {
    stat(files, path.as_bytes()).is_ok_and(|known| known.length > 0)
}

#[test]
fn a_copy_goes_on_when_the_server_of_the_store_is_killed() {
    let Some(door) = Door::shared() else { return };
    let mut world = World::in_a_process();
    let (gate, files) = (door.serve(&world.address(), ""), world.files());
    let bytes = content(11, 30_000_000);
    let mut copy = start(client("xrdcp").args(["--nopbar", "-", &gate.url("/file")]));
    let mut pipe = copy.stdin.take().expect("a pipe");
    pipe.write_all(&bytes[..20_000_000]).expect("taken");
    until(|| has_bytes(&files, "/file"));
    world.kill();
    let rest = bytes[20_000_000..].to_vec();
    let writes = std::thread::spawn(move || pipe.write_all(&rest).expect("taken"));
    std::thread::sleep(PAUSE);
    world.start_process();
    writes.join().expect("written");
    good_client(&copy.wait_with_output().expect("it ends"));
    assert!(stat(&world.files(), b"/file").expect("there").is_sealed);
    assert!(pread(&open_read(&world.files(), b"/file"), 0, 31_000_000) == bytes);
    // And back, with the pipe so full that it waits in the middle.
    let copy = start(slow_reader().args(["--nopbar", &gate.url("/file"), "-"]));
    assert!(read_over_a_kill(&mut world, copy) == bytes);
}

/// What a client prints that is in the middle of a file, and waits as nobody takes what it has, when the server of the store is killed and started again.
fn read_over_a_kill(world: &mut World, mut client: Child) -> Vec<u8> {
    let mut pipe = client.stdout.take().expect("a pipe");
    let mut back = vec![0; 100_000];
    pipe.read_exact(&mut back).expect("it comes");
    world.kill();
    let reads = std::thread::spawn(move || pipe.read_to_end(&mut back).map(|_| back).expect("it comes"));
    std::thread::sleep(PAUSE);
    world.start_process();
    let back = reads.join().expect("read");
    good_client(&client.wait_with_output().expect("it ends"));
    back
}

#[test]
fn a_copy_by_the_web_goes_on_when_the_server_of_the_store_is_killed() {
    let Some(door) = Door::shared() else { return };
    let (mut world, here) = (World::in_a_process(), tempfile::tempdir().expect("a directory"));
    let (gate, files) = (door.serve(&world.address(), ""), world.files());
    let (bytes, url) = (content(12, 30_000_000), gate.http("/file"));
    let from = local(&here, "from", &bytes);
    let put = start(client("curl").args(["-sS", "--fail", "--limit-rate", "20M", "-T", &from, &url]));
    until(|| has_bytes(&files, "/file"));
    world.kill();
    std::thread::sleep(PAUSE);
    world.start_process();
    good_client(&put.wait_with_output().expect("it ends"));
    assert!(stat(&world.files(), b"/file").expect("there").is_sealed);
    let get = start(client("curl").args(["-sS", "--fail", &url]));
    assert!(read_over_a_kill(&mut world, get) == bytes);
}

#[test]
fn a_copy_fails_and_leaves_nothing_that_is_sealed_when_the_store_stays_away() {
    let Some(door) = Door::shared() else { return };
    let (mut world, here) = (World::in_a_process(), tempfile::tempdir().expect("a directory"));
    let (gate, files) = (door.serve(&world.address(), " deadline_s=2"), world.files());
    let bytes = content(13, 30_000_000);
    good_client(&gate.xrdcp(&[&local(&here, "from", &bytes), &gate.url("/there")]));
    // One that reads, and waits in the middle of it as nobody takes what it has.
    let mut read = start(slow_reader().args(["--nopbar", &gate.url("/there"), "-"]));
    let mut back = vec![0; 100_000];
    read.stdout.as_mut().expect("a pipe").read_exact(&mut back).expect("it comes");
    let mut copy = start(client("xrdcp").args(["--nopbar", "-", &gate.url("/file")]));
    let mut pipe = copy.stdin.take().expect("a pipe");
    pipe.write_all(&bytes[..20_000_000]).expect("taken");
    until(|| has_bytes(&files, "/file"));
    world.kill();
    let rest = bytes[20_000_000..].to_vec();
    let writes = std::thread::spawn(move || pipe.write_all(&rest).is_ok());
    let said = failed_client(&copy.wait_with_output().expect("it ends"));
    assert!(said.contains("network is unreachable"), "{said}");
    writes.join().expect("over");
    let output = read.wait_with_output().expect("it ends");
    back.extend(&output.stdout);
    assert!(bytes.starts_with(&back), "what came is what there was");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && back.len() < bytes.len() && said.contains("network is unreachable"), "{said}");
    // Nor is a file said not to be there, nor one to be stored.
    let small = local(&here, "small", b"some bytes");
    let asked = [(vec!["-I"], "/there"), (vec![], "/there"), (vec!["-T", &small], "/new")].map(|(words, path)| {
        let mut command = client("curl");
        let child = start(command.args(["-sS", "--fail-with-body"]).args(&words).arg(gate.http(path)));
        (words, child)
    });
    assert!(failed_client(&gate.xrdfs(&["stat", "/there"])).contains("network is unreachable"));
    for (words, child) in asked {
        let said = failed_client(&child.wait_with_output().expect("it ends"));
        assert!(said.contains("500"), "{words:?}: {said}");
    }
    world.start_process();
    assert!(stat(&world.files(), b"/file").is_ok_and(|known| !known.is_sealed) || !has_bytes(&world.files(), "/file"));
    until(|| gate.xrdfs(&["ls", "/"]).status.success());
    let said = failed_client(&gate.xrdfs(&["query", "checksum", "/file"]));
    assert!(said.contains("text file busy") || said.contains("no such file"), "{said}");
}

#[test]
fn a_server_of_xrootd_that_is_killed_leaves_nothing_that_is_sealed() {
    let Some(door) = Door::shared() else { return };
    let (world, here) = (World::new(), tempfile::tempdir().expect("a directory"));
    let (mut gate, files) = (door.serve(&world.address(), ""), world.files());
    let other = door.serve(&world.address(), "");
    let bytes = content(14, 40_000_000);
    // It does not try for minutes to find its server again.
    let mut command = impatient(["1", "1", "0"]);
    let mut copy = start(command.args(["--nopbar", "-", &gate.url("/file")]));
    let mut pipe = copy.stdin.take().expect("a pipe");
    pipe.write_all(&bytes[..30_000_000]).expect("taken");
    let (from, by_web) = (local(&here, "from", &bytes), gate.http("/web"));
    let put = start(client("curl").args(["-sS", "--fail", "--limit-rate", "2M", "-T", &from, &by_web]));
    until(|| has_bytes(&files, "/file") && has_bytes(&files, "/web"));
    gate.kill();
    let rest = bytes[30_000_000..].to_vec();
    let writes = std::thread::spawn(move || pipe.write_all(&rest).is_ok());
    failed_client(&copy.wait_with_output().expect("it ends"));
    failed_client(&put.wait_with_output().expect("it ends"));
    writes.join().expect("over");
    for path in ["/file", "/web"] {
        assert!(!stat(&files, path.as_bytes()).expect("there").is_sealed, "{path}");
    }
    // Meanwhile another server takes one of the names. What the first one knows from its journal when it is started again is the other.
    good_client(&other.xrdcp(&["-f", &from, &other.url("/web")]));
    gate.start();
    until(|| stat(&files, b"/file").err() == Some(FOREBAY_NOT_FOUND));
    good_client(&gate.xrdcp(&[&from, &gate.url("/file")]));
    for path in ["/file", "/web"] {
        assert!(stat(&files, path.as_bytes()).expect("there").is_sealed, "{path}: {}", gate.said());
        assert!(pread(&open_read(&files, path.as_bytes()), 0, bytes.len() + 1) == bytes, "{path} is another file");
    }
}

#[test]
fn what_was_open_when_all_servers_died_is_taken_away_before_anybody_writes_on() {
    let Some(door) = Door::shared() else { return };
    let mut world = World::in_a_process();
    let mut gate = door.serve(&world.address(), " deadline_s=2");
    let bytes = content(15, 40_000_000);
    // It looks for its server until that is there again, and would go on where it was.
    let mut copy = start(impatient(["10", "3", "3"]).args(["--nopbar", "-", &gate.url("/file")]));
    let mut pipe = copy.stdin.take().expect("a pipe");
    pipe.write_all(&bytes[..30_000_000]).expect("taken");
    let files = world.files();
    until(|| has_bytes(&files, "/file"));
    gate.kill();
    world.kill();
    let said = gate.does_not_start();
    assert!(said.contains("Unable to unpersist /file; network is unreachable"), "{said}");
    world.start_process();
    gate.start();
    let writes = std::thread::spawn(move || pipe.write_all(&bytes[30_000_000..]).is_ok());
    failed_client(&copy.wait_with_output().expect("it ends"));
    writes.join().expect("over");
    assert_eq!(stat(&world.files(), b"/file").err(), Some(FOREBAY_NOT_FOUND), "{}", gate.said());
}
