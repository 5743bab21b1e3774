//! What a server keeps of sealed files that are read again, and sends without asking the store.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};

use forebay::*;

use crate::clients::{PYTHON, has_bindings};
use crate::common::door::{Door, Gate, client, failed_client, good_client};
use crate::common::needs;
use crate::common::world::*;
use crate::until;

/// Opens a file, says so, waits for a word, and reads all of it, or the first so many bytes: at once, and in vectors.
const READ_LATER: &str = "
import sys
from XRootD import client
url, local, most = sys.argv[1], sys.argv[2], int(sys.argv[3])
expected = open(local, 'rb').read()[:most]
file = client.File()
status, _ = file.open(url)
assert status.ok, status.message
print('open', flush=True)
sys.stdin.readline()
for size in (len(expected), 77_777):
    status, data = file.read(offset=0, size=size)
    assert status.ok and data == expected[:size], status.message
places = [(at * 104_729 % (len(expected) - 5000), 1 + at % 4999) for at in range(500)]
status, read = file.vector_read(places)
assert status.ok, status.message
assert all(chunk.buffer == expected[at : at + size] for chunk, (at, size) in zip(read.chunks, places))
file.close()
print('all is as it should be')
";

fn put(files: &forebay_files, name: &[u8], bytes: &[u8]) {
    let writer = create(files, name, FOREBAY_WRITE_SEAL);
    good(pwrite(&writer, 0, bytes));
    good(forebay_writer_close(Some(&writer)));
}

/// Reads a file to its end by each of the ways that there are, and so keeps it.
fn read_all_ways(gate: &Gate, name: &str, bytes: &[u8]) {
    for pages in ["1", "0"] {
        let mut command = client("xrdcp");
        let read = command.env("XRD_CPUSEPGWRTRD", pages).args(["--nopbar", &gate.url(name), "-"]).output();
        assert!(read.expect("it runs").stdout == bytes, "{}", gate.said());
    }
    assert!(fetch(gate, name, &[]) == bytes, "{}", gate.said());
}

fn fetch(gate: &Gate, name: &str, words: &[&str]) -> Vec<u8> {
    let fetched = client("curl").args(["--silent", "--fail"]).args(words).arg(gate.http(name)).output();
    fetched.expect("it runs").stdout
}

/// Somebody who has opened a file.
fn open_later(gate: &Gate, words: [&str; 2]) -> Child {
    let mut command = client(PYTHON);
    command.args(["-c", READ_LATER, &gate.url("/file")]).args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut said = String::new();
    BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut said).expect("it says something");
    assert_eq!(said, "open\n", "{}", gate.said());
    child
}

fn read_now(mut child: Child, gate: &Gate) {
    child.stdin.take().expect("a pipe").write_all(b"now\n").expect("taken");
    let said = good_client(&child.wait_with_output().expect("it ends"));
    assert_eq!(said.trim(), "all is as it should be", "{}", gate.said());
}

#[test]
fn what_was_read_of_a_sealed_file_is_there_though_the_store_is_away() {
    let Some(door) = Door::shared() else { return };
    if !has_bindings() {
        return;
    }
    let (mut world, here) = (World::in_a_process(), tempfile::tempdir().expect("a directory"));
    let gate = door.serve(&world.address(), " deadline_s=2");
    let (bytes, local) = (content(3, 9_000_001), here.path().join("file"));
    fs::write(&local, &bytes).expect("written");
    let local = local.to_str().expect("text");
    put(&world.files(), b"/file", &bytes);
    // Nothing of what is read once; then a part of it, and then all.
    for kept in [0, 4_000_000] {
        assert!(fetch(&gate, "/file", &["--range", "0-3999999"]) == bytes[..4_000_000]);
        assert!((kept..=kept + 8192).contains(&gate.kept_bytes()), "{} bytes are kept", gate.kept_bytes());
    }
    let part = open_later(&gate, [local, "4000000"]);
    world.kill();
    read_now(part, &gate);
    world.start_process();
    read_all_ways(&gate, "/file", &bytes);
    let all = open_later(&gate, [local, "9000001"]);
    world.kill();
    read_now(all, &gate);
    // Whoever opens it is told that the store is away, as with any other file.
    assert!(
        !client("curl").args(["--silent", "--fail", &gate.http("/file")]).output().expect("it runs").status.success()
    );
    world.start_process();
    read_all_ways(&gate, "/file", &bytes);
}

/// Bytes that `sendfile` sent while something was done.
fn sent_by_sendfile(gate: &Gate, work: impl FnOnce()) -> u64 {
    let here = tempfile::tempdir().expect("a directory");
    let trace = here.path().join("trace");
    let mut command = client("strace");
    command.args(["-f", "-e", "trace=sendfile", "-p", &gate.process().to_string(), "-o"]).arg(&trace);
    let mut strace = command.stderr(Stdio::piped()).spawn().expect("it runs");
    let mut said = String::new();
    BufReader::new(strace.stderr.as_mut().expect("a pipe")).read_line(&mut said).expect("it says something");
    assert!(said.contains("attached"), "{said}");
    work();
    // SAFETY: it is ours, and was not waited for.
    assert_eq!(unsafe { libc::kill(strace.id().cast_signed(), libc::SIGINT) }, 0);
    strace.wait().expect("it ends");
    let trace = fs::read_to_string(&trace).expect("written");
    let sent = trace.lines().filter(|line| line.contains("sendfile"));
    sent.filter_map(|line| line.rsplit_once("= ")?.1.trim().parse::<u64>().ok()).sum()
}

#[test]
fn what_is_kept_whole_is_sent_as_it_lies_in_memory() {
    let Some(door) = Door::shared() else { return };
    if !needs("strace") {
        return;
    }
    let (world, bytes) = (World::new(), content(7, 5_000_003));
    let gate = door.serve(&world.address(), "");
    put(&world.files(), b"/file", &bytes);
    let read_by_curl = || assert!(fetch(&gate, "/file", &[]) == bytes, "{}", gate.said());
    let read_by_xrdcp = || {
        let mut command = client("xrdcp");
        let read = command.env("XRD_CPUSEPGWRTRD", "0").args(["--nopbar", &gate.url("/file"), "-"]).output();
        assert!(read.expect("it runs").stdout == bytes, "{}", gate.said());
    };
    // The first one is not kept, and the second one is while it is read.
    assert_eq!([sent_by_sendfile(&gate, read_by_curl), sent_by_sendfile(&gate, read_by_xrdcp)], [0, 0]);
    for read in [&read_by_curl as &dyn Fn(), &read_by_xrdcp] {
        assert_eq!(sent_by_sendfile(&gate, read), bytes.len() as u64);
    }
}

#[test]
fn a_file_that_is_removed_or_replaced_or_written_is_what_the_store_says() {
    let Some(door) = Door::shared() else { return };
    let world = World::new();
    let (gate, files) = (door.serve(&world.address(), ""), world.files());
    for seed in 1..4 {
        let bytes = content(seed, 3_000_000 + seed as usize);
        put(&files, b"/new", &bytes);
        good(rename(&files, b"/new", b"/file"));
        read_all_ways(&gate, "/file", &bytes);
        assert!(fetch(&gate, "/file", &["--range", "1000-1999999"]) == bytes[1000..2_000_000]);
        good(remove(&files, b"/file"));
        failed_client(&gate.xrdcp(&[&gate.url("/file"), "-"]));
    }
    let kept = gate.kept_bytes();
    assert!(kept >= 9_000_006, "{kept} bytes are kept");
    // Nothing is kept of what may change.
    let (writer, bytes) = (create(&files, b"/file", 0), content(9, 4_000_000));
    for end in [1_000_000, 2_500_000, 4_000_000] {
        good(pwrite(&writer, end as u64 - 1_000_000, &bytes[end - 1_000_000..end]));
        good(forebay_writer_sync(Some(&writer)));
        assert!(fetch(&gate, "/file", &["--range", &format!("{}-{}", end - 1000, end - 1)]) == bytes[end - 1000..end]);
    }
    assert_eq!(gate.kept_bytes(), kept);
}

#[test]
fn no_more_is_kept_than_there_is_room_for() {
    let Some(door) = Door::shared() else { return };
    let world = World::new();
    let files = world.files();
    let contents: Vec<Vec<u8>> = (0..4).map(|seed| content(seed, 3_000_000)).collect();
    for (number, bytes) in contents.iter().enumerate() {
        put(&files, format!("/file{number}").as_bytes(), bytes);
    }
    for (option, least, most) in [(" kept_mib=8", 6_000_000, 8 << 20), (" kept_mib=1", 0, 0), (" kept_mib=0", 0, 0)] {
        let gate = door.serve(&world.address(), option);
        for _ in 0..2 {
            for (number, bytes) in contents.iter().enumerate() {
                read_all_ways(&gate, &format!("/file{number}"), bytes);
            }
        }
        // Together they do not fit while they are open.
        let copies: Vec<Child> = (0..4).map(|number| slowly(&gate, number)).collect();
        for (copy, bytes) in copies.into_iter().zip(&contents) {
            assert!(copy.wait_with_output().expect("it ends").stdout == *bytes, "{option}: {}", gate.said());
        }
        let kept = gate.kept_bytes();
        assert!((least..=most).contains(&kept), "{option}: {kept} bytes are kept");
    }
}

/// What is still on its way to a client stays as it is, though the file is let go for others meanwhile.
#[test]
fn what_is_being_sent_is_not_changed_when_others_take_its_place() {
    let Some(door) = Door::shared() else { return };
    let world = World::new();
    let (gate, files) = (door.serve(&world.address(), " kept_mib=4"), world.files());
    let contents: Vec<Vec<u8>> = (0..4).map(|seed| content(seed, 3_000_000)).collect();
    for (number, bytes) in contents.iter().enumerate() {
        put(&files, format!("/file{number}").as_bytes(), bytes);
    }
    for round in 0..4 {
        let number = round % contents.len();
        read_all_ways(&gate, &format!("/file{number}"), &contents[number]);
        let slow = slowly(&gate, number);
        for other in 1..contents.len() {
            let other = (number + other) % contents.len();
            read_all_ways(&gate, &format!("/file{other}"), &contents[other]);
        }
        assert!(slow.wait_with_output().expect("it ends").stdout == contents[number], "{}", gate.said());
    }
    until(|| gate.kept_bytes() <= 4 << 20);
}

/// Takes a file at a rate at which it is on its way for a while.
fn slowly(gate: &Gate, number: usize) -> Child {
    let mut command = client("curl");
    command.args(["--silent", "--fail", "--limit-rate", "3M"]).arg(gate.http(&format!("/file{number}")));
    command.stdout(Stdio::piped()).spawn().expect("it runs")
}
