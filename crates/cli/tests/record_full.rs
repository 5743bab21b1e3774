//! The recorder on a file system that has no room, and on one that cannot be written: it says so, releases nothing that is not in a
//! complete file, and goes on when there is room again. Each event ends up in exactly one file.
//!
//! The file system is a small one in memory, in a mount namespace of the recorder.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Drives, Server, forebay};
use forebay_client::{Client, ClientConfig, Decision};
use forebay_emulators::{EventHash, HashLedger, check_files};
use forebay_mover::sidecar::Sidecar;
use forebay_rawdata::{Format, Generator, split};
use forebay_types::{RunId, StreamName, Verdict};

/// About 6 MB of events, on 12 MiB that are nearly full.
const EVENTS: usize = 300;
const FILE_SYSTEM: &str = "size=12m";
const FILLER_KIB: &str = "11000";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// As the user of the test may make namespaces.
fn namespaces() -> &'static [&'static str] {
    if is_root() { &["--mount"] } else { &["--mount", "--map-root-user"] }
}

/// Whether file systems can be mounted here.
fn can_mount() -> bool {
    let directory = tempfile::tempdir().expect("a directory");
    let mount = format!("mount -t tmpfs -o {FILE_SYSTEM} tmpfs '{}'", directory.path().display());
    let tried = Command::new("unshare").args(namespaces()).args(["sh", "-c", &mount]).stderr(Stdio::null()).status();
    let can = tried.is_ok_and(|status| status.success());
    if !can {
        println!("skipped: needs mount namespaces (unshare --mount)");
    }
    can
}

/// A recorder with its own small file system.
struct Recorder {
    child: Child,
    /// The directory as the recorder sees it.
    out: PathBuf,
    journal: PathBuf,
    /// What it says.
    log: PathBuf,
}

impl Recorder {
    fn start(server: &Server, out: &Path, log: &Path) -> Recorder {
        let script = "mount -t tmpfs -o $3 tmpfs \"$1\" && head -c ${4}K /dev/zero > \"$1/filler\" && \
                      exec \"$0\" record --server \"$2\" --file-bytes 500kB --close-after 0.1 --journal \"$5\" --out \"$1/files\"";
        let journal = log.with_file_name("journal.sqlite");
        let child = Command::new("unshare")
            .args(namespaces())
            .args(["sh", "-c", script, env!("CARGO_BIN_EXE_forebay")])
            .arg(out)
            .args([&server.address, FILE_SYSTEM, FILLER_KIB])
            .arg(&journal)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(log).expect("a log"))
            .spawn()
            .expect("the recorder starts");
        Recorder { child, out: out.to_owned(), journal, log: log.to_owned() }
    }

    /// A path of the recorder's file system, as the test sees it.
    fn path(&self, name: &str) -> PathBuf {
        let out = self.out.strip_prefix("/").expect("an absolute path");
        Path::new("/proc").join(self.child.id().to_string()).join("root").join(out).join(name)
    }

    fn remount(&self, how: &str) {
        let user: &[&str] = if is_root() { &[] } else { &["--user", "--preserve-credentials"] };
        let pid = self.child.id().to_string();
        let enter = Command::new("nsenter")
            .args(["--target", &pid, "--mount"])
            .args(user)
            .args(["mount", "-o", how])
            .arg(&self.out)
            .status();
        assert!(enter.expect("nsenter is beside unshare").success(), "{how}");
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).expect("a log")
    }

    /// Waits until it is so; a recorder that ends before never makes it so.
    fn until(&mut self, mut is_so: impl FnMut(&Recorder) -> bool) {
        while !is_so(self) {
            let ended = self.child.try_wait().expect("a child");
            assert_eq!(ended, None, "the recorder ended: {}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asks it to end in order.
    fn end(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("ours to end");
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}: {}", self.said());
    }
}

fn physics() -> StreamName {
    "physics".parse().expect("a name")
}

fn accept_events(client: &mut Client, ledger: &HashLedger) {
    let mut generator = Generator::new(Format::Faser, 7, RunId(1920));
    let mut decisions = Vec::new();
    for _ in 0..EVENTS {
        let event = generator.next_event();
        ledger.insert(event.key, EventHash::of(&event.bytes));
        let pieces = split(&event).expect("a generated event");
        for piece in &pieces {
            client.put(event.key.fragment(piece.source), pieces.len() as u16, &piece.bytes).expect("taken");
        }
        decisions.push(Decision { key: event.key, verdict: Verdict::Accept(vec![physics()]), incomplete: false });
    }
    client.flush().expect("all is answered");
    let outcomes = client.decide(&decisions).expect("answered");
    assert!(outcomes.iter().all(|outcome| outcome.is_done()), "{outcomes:?}");
}

fn left(client: &mut Client) -> u64 {
    client.streams().expect("answered").iter().map(|stream| stream.accepted).sum()
}

/// What is released is in complete files: looked at while the recorder is in trouble.
fn events_in_files(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory.join("physics")) else { return 0 };
    let sidecars = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "json"));
    let events = sidecars.map(|path| {
        let text = std::fs::read(&path).expect("a sidecar");
        Sidecar::parse(&text).expect("a whole sidecar").events.expect("a number")
    });
    events.sum()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("made");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).expect("copied");
        }
    }
}

/// Runs into `trouble`, out of it, and looks at what came out.
fn through(trouble: impl Fn(&Recorder), over: impl Fn(&Recorder), words: &str) {
    if !can_mount() {
        return;
    }
    let drives = Drives::five();
    let server = drives.serve();
    let mut client = Client::connect(ClientConfig::new(server.address.clone(), "test")).expect("the server answers");
    let ledger = HashLedger::default();
    let (out, more) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let mut recorder = Recorder::start(&server, out.path(), &more.path().join("log"));
    recorder.until(|recorder| recorder.path("files").is_dir());
    trouble(&recorder);
    accept_events(&mut client, &ledger);
    recorder.until(|recorder| recorder.said().contains(words));
    let (files, left_now) = (events_in_files(&recorder.path("files")), left(&mut client));
    assert!(left_now > 0, "there was no room for all of it");
    assert!(EVENTS as u64 - left_now <= files, "{left_now} of {EVENTS} are left, and {files} are in complete files");
    over(&recorder);
    recorder.until(|_| left(&mut client) == 0);
    let copied = more.path().join("files");
    copy(&recorder.path("files"), &copied);
    recorder.end();
    let report = check_files(&copied, &ledger).expect("the files can be read");
    assert!(report.is_good(), "{:?} {:?}", report.total(), report.reports);
    assert_eq!(report.total().identical, EVENTS as u64);
    assert_eq!(ledger.len(), EVENTS as u64);
}

#[test]
fn without_room_it_waits_for_room_and_records_each_event_once() {
    let make_room = |recorder: &Recorder| std::fs::remove_file(recorder.path("filler")).expect("removed");
    through(|_| (), make_room, "Make room there");
}

#[test]
fn a_directory_that_cannot_be_written_is_told_and_gone_on_with_when_it_can() {
    let read_only = |recorder: &Recorder| {
        std::fs::remove_file(recorder.path("filler")).expect("removed");
        recorder.remount("remount,ro");
    };
    let writable = |recorder: &Recorder| {
        recorder.remount("remount,rw");
        // What was refused too often is tried again when a person says so.
        let journal = recorder.journal.display().to_string();
        forebay(["move", "retry", "--all", "--journal", &journal]).expect(0);
    };
    through(read_only, writable, "Mount it writable");
}
