//! The demo: events in, a drive dies, verified files out, nothing lost.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use common::{Ran, damaged_file, faser_file, forebay, scratch, test_data};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const KEYS: [&str; 13] = [
    "fragments_written",
    "fragments_acknowledged",
    "events_built",
    "events_incomplete",
    "events_rejected",
    "events_accepted",
    "events_shipped",
    "bytes_shipped",
    "lost",
    "mismatched",
    "drives_failed",
    "fragments_from_parity",
    "seconds",
];

/// A small demo with a scratch directory of its own, which must be empty after it.
fn demo(words: &[&str]) -> Ran {
    let directory = scratch();
    let dir = directory.path().display().to_string();
    let small = ["demo", "--json", "--drive-bytes", "128MiB", "--dir", &dir];
    let ran = forebay(small.iter().chain(words));
    let left: Vec<_> = fs::read_dir(directory.path()).expect("read").collect();
    assert!(left.is_empty(), "{left:?} is left; {ran:?}");
    ran
}

#[track_caller]
fn books(ran: &Ran, events: u64, drives_failed: u64) -> Value {
    let ledger = ran.json();
    let keys: BTreeSet<&str> = ledger.as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(keys, BTreeSet::from(KEYS), "exactly these keys");
    let number = |key: &str| ledger[key].as_u64().unwrap_or_else(|| panic!("{key} in {ledger}"));
    assert!(ledger["seconds"].is_f64(), "{ledger}");
    assert_eq!((number("lost"), number("mismatched"), number("events_incomplete")), (0, 0, 0), "{ledger}");
    assert_eq!(number("fragments_written"), number("fragments_acknowledged"), "{ledger}");
    assert_eq!(number("events_built"), events, "{ledger}");
    assert_eq!(number("events_accepted") + number("events_rejected"), events, "{ledger}");
    assert_eq!(number("events_accepted"), number("events_shipped"), "{ledger}");
    assert_eq!(number("drives_failed"), drives_failed, "{ledger}");
    assert!(drives_failed > 0 || number("fragments_from_parity") == 0, "{ledger}");
    ledger
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(directory).expect("a stream's directory").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

#[test]
fn generated_events_run_through_a_dying_drive() {
    let directory = scratch();
    let out = directory.path().join("out");
    let ran = demo(&["--events", "400", "--out", &out.display().to_string()]).expect(0);
    let ledger = books(&ran, 400, 1);
    ran.says("destroyed");
    assert!(ledger["fragments_from_parity"].as_u64() > Some(0), "what lay on the dead drive was read: {ledger}");
    let mut bytes = 0;
    for stream in ["physics", "calibration"] {
        let files = files(&out.join(stream));
        let data = files.iter().filter(|path| path.extension().is_some_and(|end| end == "raw" || end == "mdf"));
        for file in data {
            bytes += file.metadata().expect("a file").len();
            let sidecar = fs::read(format!("{}.json", file.display())).expect("a sidecar beside it");
            let sidecar: Value = serde_json::from_slice(&sidecar).expect("JSON");
            assert_eq!(sidecar["stream"], stream);
            assert_eq!(sidecar["bytes"].as_u64(), file.metadata().ok().map(|meta| meta.len()));
        }
    }
    assert_eq!(ledger["bytes_shipped"].as_u64(), Some(bytes), "an event in two streams is in two files");
}

#[test]
fn without_a_dying_drive_none_has_failed() {
    let ran = demo(&["--events", "40", "--no-fail-drive"]).expect(0);
    books(&ran, 40, 0);
}

#[test]
fn a_command_is_run_half_way_and_ends_the_demo_when_it_fails() {
    let directory = scratch();
    let (mark, out) = (directory.path().join("server"), directory.path().join("out"));
    let command = format!("echo \"$FOREBAY_SERVER\" > {}", mark.display());
    let ran = demo(&["--events", "40", "--half-way", &command, "--out", &out.display().to_string()]).expect(0);
    books(&ran, 40, 0);
    let server = fs::read_to_string(mark).expect("it was run");
    assert!(server.starts_with("127.0.0.1:"), "{server}");
    let ran = demo(&["--events", "40", "--half-way", "echo the ladder is gone; exit 7"]).expect(7);
    ran.says("exit status: 7").says("the ladder is gone");
    assert_eq!(ran.json()["exit"], 7);
}

#[cfg(not(feature = "rados"))]
#[test]
fn pools_need_a_program_that_was_built_with_ceph() {
    forebay(["demo", "--media", "rados:ec,meta", "--name", "demo"]).expect(2).says("was built without Ceph");
}

#[test]
fn one_event_is_enough() {
    books(&demo(&["--events", "1"]).expect(0), 1, 1);
}

#[test]
fn words_for_people_tell_the_same() {
    let directory = scratch();
    let dir = directory.path().display().to_string();
    let ran = forebay(["demo", "--events", "40", "--drive-bytes", "128MiB", "--dir", &dir, "--keep"]).expect(0);
    let text = String::from_utf8(ran.stdout).expect("UTF-8");
    for words in ["events shipped", "mismatched", "the books balance", "destroyed", "physics", "zeroed in"] {
        assert!(text.contains(words), "{words:?} is missing in\n{text}");
    }
    let kept = files(directory.path());
    assert_eq!(kept.len(), 1, "the scratch directory is kept: {kept:?}");
    assert!(kept[0].join("server.log").is_file() && kept[0].join("drive4").is_file());
}

#[test]
fn directories_that_cannot_be_used_are_refused_before_anything_starts() {
    let directory = scratch();
    fs::write(directory.path().join("thesis.tex"), b"dear").expect("written");
    let ran = demo(&["--events", "10", "--out", &directory.path().display().to_string()]).expect(2);
    ran.says("thesis.tex").says("nothing was started");
    assert_eq!(ran.json()["exit"], 2);
    assert_eq!(files(directory.path()).len(), 1, "nothing was made there");
    // No permissions keep the superuser out; below /proc nobody makes a directory.
    demo(&["--events", "10", "--out", "/proc/forebay"]).expect(2).says("/proc/forebay").says("nothing was started");
    let ran = forebay(["demo", "--json", "--dir", "/nonexistent"]).expect(2);
    ran.says("/nonexistent");
    let ran = forebay(["demo", "--json", "--drive-bytes", "1000TiB"]).expect(3);
    ran.says("--drive-bytes");
}

#[test]
fn a_damaged_input_runs_to_its_good_end() {
    let directory = scratch();
    let (bytes, offset) = damaged_file();
    let damaged = directory.path().join("damaged.raw").display().to_string();
    fs::write(&damaged, bytes).expect("written");
    let ran = demo(&["--events", "100", "--input", &damaged]).expect(1);
    books(&ran, 7, 1);
    ran.says(&format!("event at byte {offset}")).says("expected").says("found").says("7 good events");

    let good = directory.path().join("good.raw").display().to_string();
    fs::write(&good, faser_file().0).expect("written");
    let ran = demo(&["--events", "100", "--input", &damaged, &good]).expect(1);
    books(&ran, 57, 1);

    let junk = directory.path().join("junk").display().to_string();
    fs::write(&junk, b"this is no detector's").expect("written");
    let ran = demo(&["--input", &junk]).expect(1);
    ran.says("event at byte 0").says("expected").says("found");
    demo(&["--input", "/nonexistent/file"]).expect(2).says("/nonexistent/file");
}

#[test]
fn real_events_of_every_file_come_out_as_they_went_in() {
    let Some(data) = test_data() else { return };
    for name in [
        "faser/Faser-Physics-001920-filtered.raw",
        "faser/Faser-Physics-006525-filtered.raw",
        "faser/Faser-Physics-pilot_tracks-filtered.raw",
        "lhcb/MiniBrunel_2018_MinBias_FTv4_DIGI_retinacluster_v1.mdf",
        "lhcb/upgrade_mc_minbias_scifi_v5.mdf",
        "besiii/test_raw_data.raw",
    ] {
        let file = data.join(name).display().to_string();
        let ran = demo(&["--events", "150", "--input", &file]).expect(0);
        books(&ran, 150, 1);
    }
}

/// A demo in the middle of its work, the address of its server, and what it prints after that.
fn demo_under_way(directory: &Path) -> (Child, String, BufReader<ChildStdout>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(["demo", "--events", "3000", "--drive-bytes", "256MiB", "--dir"]).arg(directory);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut demo = command.spawn().expect("the demo starts");
    let mut stdout = BufReader::new(demo.stdout.take().expect("a pipe"));
    let mut line = String::new();
    while !line.starts_with("server") {
        line.clear();
        assert_ne!(stdout.read_line(&mut line).expect("read"), 0, "it tells its server's address");
    }
    let address = line.trim_end().rsplit(' ').next().expect("an address").to_owned();
    (demo, address, stdout)
}

/// Whether this process, and so what it starts, was told to outlive its terminal.
fn ignores_hangups() -> bool {
    let status = fs::read_to_string("/proc/self/status").expect("read");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("the kernel tells it");
    u64::from_str_radix(ignored.trim(), 16).expect("a mask") & 1 != 0
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        if signal == Signal::HUP && ignores_hangups() {
            println!("skipped: needs a terminal's hangup, which whoever runs this told programs to ignore (nohup)");
            continue;
        }
        let directory = scratch();
        let (mut demo, address, _stdout) = demo_under_way(directory.path());
        let pid = Pid::from_raw(demo.id().cast_signed()).expect("a process");
        kill_process(pid, signal).expect("a signal");
        assert_eq!(demo.wait().expect("it ends").code(), Some(3), "{signal:?}");
        assert_eq!(files(directory.path()), Vec::<PathBuf>::new(), "{signal:?}");
        assert!(TcpStream::connect(address).is_err(), "its server has ended before it");
    }
}

#[test]
fn a_demo_that_nobody_reads_ends_and_leaves_nothing() {
    let directory = scratch();
    let (mut demo, address, stdout) = demo_under_way(directory.path());
    // As `forebay demo | head` does. The next line comes when half of the events are acknowledged.
    drop(stdout);
    assert_eq!(demo.wait().expect("it ends").code(), Some(3));
    assert_eq!(files(directory.path()), Vec::<PathBuf>::new());
    assert!(TcpStream::connect(address).is_err(), "its server has ended before it");

    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(["demo", "--drive-bytes", "128MiB", "--dir"]).arg(directory.path());
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("opened");
    let output = command.stdin(Stdio::null()).stdout(full).output().expect("it runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(3) && stderr.contains("stdout cannot be written"), "{output:?}");
    assert_eq!(files(directory.path()), Vec::<PathBuf>::new());
}

#[test]
fn what_a_killed_demo_leaves_is_removed_by_the_next_one() {
    let directory = scratch();
    let (mut demo, address, _stdout) = demo_under_way(directory.path());
    let own = files(directory.path());
    // One that lives keeps its directory. It is stopped, as it would end by itself while another one starts on a machine with much to do.
    let process = Pid::from_child(&demo);
    kill_process(process, Signal::STOP).expect("it is stopped");
    let dir = directory.path().display().to_string();
    let next = ["demo", "--json", "--events", "5", "--drive-bytes", "128MiB", "--dir", &dir];
    forebay(next).expect(0);
    assert_eq!(files(directory.path()), own);
    demo.kill().expect("killed");
    demo.wait().expect("it ends");
    // No server outlives it: it sees it, makes durable what it has, and ends.
    while TcpStream::connect(&address).is_ok() {
        std::thread::yield_now();
    }
    assert_eq!(files(directory.path()), own);
    forebay(next).expect(0).says(&own[0].display().to_string());
    assert_eq!(files(directory.path()), Vec::<PathBuf>::new());
}
