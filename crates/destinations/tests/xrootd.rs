//! What the mover asks of a destination, asked of a real XRootD server.

#[path = "common/xrootd.rs"]
mod server;

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use forebay_destinations::{Access, OpenError, open};
use forebay_mover::custody::{Answer, Failure, SourceAnswer};
use forebay_mover::endpoint::{Content, Destination, Moved, Sending};
use forebay_mover::{Name, Summer, Sums, Told};
use server::XRootDServer;

const ADLER32: &str = "xrootd.chksum max 2 adler32";
const NO_CHECKSUM: &str = "";
/// One that takes what is asked for, and would tell something else.
const OTHERS: &str = "xrootd.chksum chkcgi max 2 md5 crc32c";
/// One whose program for checksums fails.
const PROGRAM_FAILS: &str = "xrootd.chksum max 2 adler32 /bin/false";

/// Told how far a job is; it may go on so often while nothing moves.
#[derive(Default)]
struct Watcher {
    bytes: AtomicU64,
    stops: AtomicBool,
}

impl Moved for Watcher {
    fn moved(&self, bytes: u64) -> bool {
        self.bytes.fetch_add(bytes, Relaxed);
        self.goes_on()
    }

    fn goes_on(&self) -> bool {
        !self.stops.load(Relaxed)
    }
}

/// Bytes in blocks; before each, something is done.
struct Blocks<'a> {
    bytes: &'a [u8],
    begin: usize,
    given: usize,
    before: &'a mut dyn FnMut(usize) -> Result<(), SourceAnswer>,
}

const BLOCK_BYTES: usize = 1 << 20;

impl Content for Blocks<'_> {
    fn refill(&mut self) -> Result<bool, SourceAnswer> {
        (self.before)(self.given)?;
        self.begin = self.given;
        self.given = self.bytes.len().min(self.given + BLOCK_BYTES);
        Ok(self.begin < self.given)
    }

    fn block(&self) -> &[u8] {
        &self.bytes[self.begin..self.given]
    }
}

/// A file of this machine.
struct OneFile {
    file: File,
    block: Vec<u8>,
    /// What it is found to be behind its bytes.
    behind: Result<(), SourceAnswer>,
}

impl Content for OneFile {
    fn refill(&mut self) -> Result<bool, SourceAnswer> {
        self.block.resize(BLOCK_BYTES, 0);
        let read = self.file.read(&mut self.block).expect("read");
        self.block.truncate(read);
        if read == 0 { self.behind.clone().map(|()| false) } else { Ok(true) }
    }

    fn block(&self) -> &[u8] {
        &self.block
    }

    fn file(&mut self) -> Result<Option<BorrowedFd<'_>>, SourceAnswer> {
        Ok(Some(self.file.as_fd()))
    }

    fn compare_file(&self) -> Result<(), SourceAnswer> {
        self.behind.clone()
    }
}

/// What comes of a file that is sent: by the programs its bytes are not seen.
fn sent(bytes: &[u8]) -> Answer {
    if cfg!(feature = "xrootd") { Answer::Sent(sums(bytes)) } else { Answer::Pulled }
}

struct Remote {
    destination: Arc<dyn Destination>,
    watcher: Watcher,
}

impl Remote {
    fn open(address: &str) -> Remote {
        let destination = open(&address.parse().expect("an address"), &Access::default()).expect("opened");
        Remote { destination, watcher: Watcher::default() }
    }

    fn ask(&self, text: &str) -> Answer {
        self.destination.ask(&name(text), &self.watcher)
    }

    fn send(&self, temporary: &str, bytes: &[u8]) -> Answer {
        self.send_with(temporary, bytes, &mut |_| Ok(()))
    }

    fn send_with(
        &self,
        temporary: &str,
        bytes: &[u8],
        before: &mut dyn FnMut(usize) -> Result<(), SourceAnswer>,
    ) -> Answer {
        let (temporary, last) = (name(temporary), name("last"));
        let sending = Sending { temporary: &temporary, last: &last, bytes: bytes.len() as u64 };
        self.destination.send(&sending, &mut Blocks { bytes, begin: 0, given: 0, before }, &self.watcher)
    }

    fn send_file(&self, temporary: &str, bytes: &[u8], behind: Result<(), SourceAnswer>) -> Answer {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(bytes).expect("written");
        file.rewind().expect("rewound");
        let (temporary, last) = (name(temporary), name("last"));
        let sending = Sending { temporary: &temporary, last: &last, bytes: bytes.len() as u64 };
        self.destination.send(&sending, &mut OneFile { file, block: Vec::new(), behind }, &self.watcher)
    }

    fn rename(&self, from: &str, to: &str) -> Answer {
        self.destination.rename(&name(from), &name(to))
    }

    fn replace(&self, from: &str, to: &str) -> Answer {
        self.destination.replace(&name(from), &name(to))
    }

    fn remove(&self, text: &str) -> Answer {
        self.destination.remove(&name(text))
    }

    #[track_caller]
    fn holds(&self, text: &str, bytes: &[u8]) {
        let Answer::Told(Some(told)) = self.ask(text) else { panic!("{text}: {:?}", self.ask(text)) };
        assert!(told.proves(&sums(bytes)), "{text}: {told}");
    }
}

/// Whether an answer would be taken for a proof.
fn proves(answer: &Answer, bytes: &[u8]) -> bool {
    matches!(answer, Answer::Told(Some(told)) if told.proves(&sums(bytes)))
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn sums(bytes: &[u8]) -> Sums {
    let mut summer = Summer::default();
    summer.update(bytes);
    summer.sums()
}

fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(count).collect()
}

#[track_caller]
fn refused(answer: Answer) -> String {
    match answer {
        Answer::Failed(Failure::Refused(words)) => words,
        answer => panic!("{answer:?}"),
    }
}

#[track_caller]
fn not_refused(answer: Answer) -> String {
    match answer {
        Answer::Failed(Failure::NotNow(words) | Failure::Unknown(words)) => words,
        answer => panic!("{answer:?}"),
    }
}

#[test]
fn files_are_sent_asked_for_renamed_replaced_and_removed() {
    for lines in [ADLER32, NO_CHECKSUM, OTHERS] {
        let Some(server) = XRootDServer::start_with(lines) else { return };
        let remote = Remote::open(&server.address("run7"));
        let (first, second) = (noise(1, 5_000_001), noise(2, 3000));
        assert_eq!(remote.ask("a/b.dat"), Answer::Told(None));
        assert_eq!(remote.send("a/.b.1", &first), Answer::Sent(sums(&first)));
        assert!(remote.watcher.bytes.load(Relaxed) >= first.len() as u64);
        remote.holds("a/.b.1", &first);
        assert_eq!(remote.rename("a/.b.1", "a/b.dat"), Answer::Done);
        assert_eq!(remote.ask("a/.b.1"), Answer::Told(None));
        remote.holds("a/b.dat", &first);
        assert_eq!(server.files(), ["run7/a/b.dat"]);
        assert_eq!(server.get("run7/a/b.dat").expect("there"), first);
        // A name that is taken.
        assert_eq!(remote.send("a/.b.2", &second), Answer::Sent(sums(&second)));
        assert_eq!(remote.rename("a/.b.2", "a/b.dat"), Answer::Taken);
        remote.holds("a/b.dat", &first);
        assert_eq!(remote.replace("a/.b.2", "a/b.dat"), Answer::Done);
        remote.holds("a/b.dat", &second);
        // What is gone.
        assert!(matches!(remote.rename("a/.b.2", "a/c.dat"), Answer::Failed(Failure::Unknown(_))));
        assert_eq!(remote.remove("a/b.dat"), Answer::Done);
        assert_eq!(remote.remove("a/b.dat"), Answer::Done);
        assert!(server.files().is_empty());
    }
}

#[test]
fn empty_files_and_files_at_the_top() {
    for lines in [ADLER32, NO_CHECKSUM] {
        let Some(server) = XRootDServer::start_with(lines) else { return };
        let remote = Remote::open(&server.address(""));
        assert_eq!(remote.send(".empty", b""), Answer::Sent(sums(b"")));
        remote.holds(".empty", b"");
        assert_eq!(remote.rename(".empty", "directory/empty"), Answer::Done);
        assert_eq!(server.files(), ["directory/empty"]);
    }
}

/// Sends a file of this name, and takes it away again.
fn round_trip(server: &XRootDServer, remote: &Remote, odd: &str) {
    let (first, last) = (format!("{odd}/.{odd}.1"), format!("{odd}/{odd}"));
    assert_eq!(remote.send(&first, odd.as_bytes()), Answer::Sent(sums(odd.as_bytes())), "{odd}");
    assert_eq!(server.files(), [format!("run7&8/{first}")]);
    assert_eq!(remote.rename(&first, &last), Answer::Done, "{odd}");
    assert_eq!(server.get(&format!("run7&8/{last}")).expect("there"), odd.as_bytes());
    remote.holds(&last, odd.as_bytes());
    assert_eq!(remote.remove(&last), Answer::Done, "{odd}");
    assert!(server.files().is_empty(), "{odd}");
}

#[test]
fn each_name_is_the_name_of_the_file_there() {
    let Some(server) = XRootDServer::start() else { return };
    let remote = Remote::open(&server.address("run7&8"));
    for odd in [
        " two  words ",
        "'a' \"b\" `id` $HOME *",
        "a&b=c#d",
        "%41%%3F%2e%2e",
        "ü\\+;,|<x>~",
        "root:",
        "a@b:1094",
        "[3011]",
        "--force",
        "-",
        "..a",
    ] {
        round_trip(&server, &remote, odd);
    }
    // Read back: what the client would take for a list of other files is a file.
    let Some(server) = XRootDServer::start_with(NO_CHECKSUM) else { return };
    let remote = Remote::open(&server.address("run7&8"));
    for odd in ["a b&c.meta4", "-.metalink", "%41.zip"] {
        round_trip(&server, &remote, odd);
    }
}

#[test]
fn a_name_that_would_say_something_to_the_server_is_refused() {
    let Some(server) = XRootDServer::start() else { return };
    let remote = Remote::open(&server.address("run7"));
    server.put("run7/a", b"of somebody");
    for odd in ["a?b", "a?cks.type=md5", "?", "d?x/a", "a?authz=Bearer"] {
        assert!(refused(remote.ask(odd)).contains("Rename it at the source"));
        assert!(refused(remote.send(odd, b"bytes")).contains("question mark"));
        refused(remote.rename("a", odd));
        refused(remote.rename(odd, "b"));
        refused(remote.replace(odd, "a"));
        refused(remote.remove(odd));
    }
    assert_eq!(server.files(), ["run7/a"]);
    assert_eq!(server.get("run7/a").expect("there"), b"of somebody");
}

#[test]
fn what_is_in_the_way_is_refused_and_stays() {
    let Some(server) = XRootDServer::start() else { return };
    let remote = Remote::open(&server.address("run7"));
    server.put("run7/directory/file", b"of somebody");
    server.put("run7/plain", b"of somebody");
    assert!(refused(remote.ask("directory")).contains("no file"));
    assert_eq!(remote.send(".a.1", b"bytes"), Answer::Sent(sums(b"bytes")));
    assert_eq!(remote.rename(".a.1", "directory"), Answer::Taken);
    refused(remote.replace(".a.1", "directory"));
    refused(remote.replace(".a.1", "plain/file"));
    refused(remote.send("plain/.b.1", b"bytes"));
    // Never under a name that something has.
    refused(remote.send("plain", b"bytes"));
    refused(remote.ask("plain/b"));
    refused(remote.remove("directory"));
    assert_eq!(server.files(), ["run7/.a.1", "run7/directory/file", "run7/plain"]);
    assert_eq!(server.get("run7/plain").expect("there"), b"of somebody");
}

#[test]
fn without_the_right_nothing_is_done() {
    let Some(server) = XRootDServer::start() else { return };
    let remote = Remote::open(&server.address("run7"));
    server.put("run7/closed/a", b"of somebody");
    server.put("run7/b", b"bytes");
    fs::set_permissions(server.path("run7/closed"), fs::Permissions::from_mode(0o555)).expect("changed");
    for answer in [remote.send("closed/.c.1", b"bytes"), remote.rename("b", "closed/b"), remote.remove("closed/a")] {
        let words = refused(answer);
        assert!(words.contains("permission denied") && words.contains("then retry"), "{words}");
    }
    fs::set_permissions(server.path("run7/closed"), fs::Permissions::from_mode(0o000)).expect("changed");
    refused(remote.ask("closed/a"));
    fs::set_permissions(server.path("run7/closed"), fs::Permissions::from_mode(0o755)).expect("changed");
    assert_eq!(server.files(), ["run7/b", "run7/closed/a"]);
}

#[test]
fn a_server_that_is_away_is_waited_for() {
    let Some(mut server) = XRootDServer::start() else { return };
    let remote = Remote::open(&server.address("run7"));
    server.kill();
    for answer in [
        remote.ask("a"),
        remote.send(".a.1", &noise(1, 5_000_000)),
        remote.rename(".a.1", "a"),
        remote.replace(".a.1", "a"),
        remote.remove("a"),
    ] {
        let Answer::Failed(Failure::NotNow(words)) = answer else { panic!("{answer:?}") };
        assert!(words.contains("Connection error") && words.contains("see that it runs"), "{words}");
    }
    server.begin();
    assert_eq!(remote.send(".a.1", b"bytes"), Answer::Sent(sums(b"bytes")));
}

#[test]
fn a_server_killed_in_the_middle_leaves_nothing_that_proves() {
    let Some(mut server) = XRootDServer::start() else { return };
    let remote = Remote::open(&server.address("run7"));
    let bytes = noise(3, 64 << 20);
    let answer = remote.send_with("a/.a.1", &bytes, &mut |given| {
        if given == bytes.len() / 2 {
            server.kill();
        }
        Ok(())
    });
    not_refused(answer);
    server.begin();
    assert!(!proves(&remote.ask("a/.a.1"), &bytes));
    assert_eq!(remote.remove("a/.a.1"), Answer::Done);
    assert_eq!(remote.send("a/.a.2", &bytes), Answer::Sent(sums(&bytes)));
    remote.holds("a/.a.2", &bytes);
    assert_eq!(server.files(), ["run7/a/.a.2"]);
}

#[test]
fn what_is_cut_off_here_does_not_look_whole_there() {
    let Some(server) = XRootDServer::start() else { return };
    let remote = Remote::open(&server.address("run7"));
    let bytes = noise(4, 64 << 20);
    let answer = remote.send_with(".a.1", &bytes, &mut |given| match given < bytes.len() / 2 {
        true => Ok(()),
        false => Err(SourceAnswer::Changed("somebody wrote it".to_owned())),
    });
    assert_eq!(answer, Answer::Source(SourceAnswer::Changed("somebody wrote it".to_owned())));
    let answer = remote.send_with(".a.2", &bytes, &mut |given| {
        remote.watcher.stops.store(given >= bytes.len() / 2, Relaxed);
        Ok(())
    });
    not_refused(answer);
    remote.watcher.stops.store(false, Relaxed);
    for cut in [".a.1", ".a.2"] {
        assert!(!proves(&remote.ask(cut), &bytes), "{cut}");
        assert_eq!(remote.remove(cut), Answer::Done);
    }
    assert!(server.files().is_empty());
}

#[test]
fn a_file_is_read_where_it_lies() {
    let Some(server) = XRootDServer::start() else { return };
    let remote = Remote::open(&server.address("run7"));
    let bytes = noise(7, (20 << 20) + 1);
    for (to, bytes) in [(".a.1", &bytes[..]), ("b/.none.1", b"")] {
        assert_eq!(remote.send_file(to, bytes, Ok(())), sent(bytes));
        remote.holds(to, bytes);
    }
    assert_eq!(remote.watcher.bytes.load(Relaxed), bytes.len() as u64, "all of it was told of");
    // What somebody wrote meanwhile is for the source to say.
    let changed = SourceAnswer::Changed("somebody wrote it".to_owned());
    assert_eq!(remote.send_file(".a.2", &bytes, Err(changed.clone())), Answer::Source(changed));
    let mode = Command::new("chmod").arg("0555").arg(server.path("run7/b")).status().expect("chmod runs");
    assert!(mode.success());
    refused(remote.send_file("b/.c.1", &bytes, Ok(())));
}

#[test]
fn a_file_is_cut_off_when_nobody_waits_or_the_server_is_killed() {
    let Some(mut server) = XRootDServer::start() else { return };
    let remote = Remote::open(&server.address("run7"));
    let bytes = noise(8, 64 << 20);
    server.freeze();
    let answer = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(300));
            remote.watcher.stops.store(true, Relaxed);
        });
        remote.send_file(".a.1", &bytes, Ok(()))
    });
    not_refused(answer);
    remote.watcher.stops.store(false, Relaxed);
    let answer = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(300));
            server.kill();
        });
        remote.send_file(".a.2", &bytes, Ok(()))
    });
    not_refused(answer);
    server.begin();
    for cut in [".a.1", ".a.2"] {
        assert!(!proves(&remote.ask(cut), &bytes), "{cut}");
        assert_eq!(remote.remove(cut), Answer::Done);
    }
    assert_eq!(remote.send_file(".a.3", &bytes, Ok(())), sent(&bytes));
    remote.holds(".a.3", &bytes);
}

#[test]
fn a_server_that_hangs_is_waited_for_as_long_as_anybody_waits() {
    let Some(server) = XRootDServer::start() else { return };
    let remote = Remote::open(&server.address("run7"));
    let bytes = noise(5, 64 << 20);
    server.put("run7/there", b"bytes");
    let stops_soon = || {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(300));
                remote.watcher.stops.store(true, Relaxed);
            });
            // One that says nothing, and one that takes nothing.
            not_refused(remote.ask("there"));
        });
        remote.watcher.stops.store(false, Relaxed);
    };
    server.freeze();
    stops_soon();
    server.thaw();
    let answer = std::thread::scope(|scope| {
        remote.send_with(".a.1", &bytes, &mut |given| {
            if given == BLOCK_BYTES {
                server.freeze();
                scope.spawn(|| {
                    std::thread::sleep(std::time::Duration::from_millis(300));
                    remote.watcher.stops.store(true, Relaxed);
                });
            }
            Ok(())
        })
    });
    not_refused(answer);
    remote.watcher.stops.store(false, Relaxed);
    server.thaw();
    remote.holds("there", b"bytes");
    assert!(!proves(&remote.ask(".a.1"), &bytes));
    assert_eq!(remote.remove(".a.1"), Answer::Done);
}

#[test]
fn a_server_that_is_full_is_waited_for() {
    let Some(server) = XRootDServer::start() else { return };
    let small = server.path("small");
    fs::create_dir(&small).expect("made");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m,mode=777", "none"]).arg(&small).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        println!("skipped: needs the right to mount");
        return;
    }
    let remote = Remote::open(&server.address("small"));
    let answer = remote.send(".a.1", &noise(6, 16 << 20));
    let removed = remote.remove(".a.1");
    // As soon as the server has closed what was cut off.
    let mut attempt = 2;
    while remote.send(&format!(".a.{attempt}"), b"bytes") != Answer::Sent(sums(b"bytes")) {
        std::thread::sleep(std::time::Duration::from_secs(1));
        attempt += 1;
    }
    while !Command::new("umount").arg(&small).output().expect("it runs").status.success() {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let Answer::Failed(Failure::NotNow(words)) = answer else { panic!("{answer:?}") };
    assert!(words.contains("no space") && words.contains("Make room"), "{words}");
    assert_eq!(removed, Answer::Done);
}

#[test]
fn what_changes_there_is_told() {
    for lines in [ADLER32, NO_CHECKSUM, OTHERS] {
        let Some(server) = XRootDServer::start_with(lines) else { return };
        let remote = Remote::open(&server.address(""));
        let bytes = noise(7, 100_000);
        assert_eq!(remote.send(".a.1", &bytes), Answer::Sent(sums(&bytes)));
        remote.holds(".a.1", &bytes);
        let at = server.path(".a.1");
        let mut other = bytes.clone();
        other[50_000] ^= 1;
        fs::write(&at, &other).expect("written");
        // A server that keeps checksums takes a file for changed by its time, in seconds.
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(10);
        fs::File::options().write(true).open(&at).and_then(|file| file.set_modified(later)).expect("set");
        let Answer::Told(Some(told)) = remote.ask(".a.1") else { panic!("{:?}", remote.ask(".a.1")) };
        assert!(!told.proves(&sums(&bytes)) && told.proves(&sums(&other)), "{told}");
        fs::write(&at, &bytes[..50_000]).expect("written");
        assert!(matches!(remote.ask(".a.1"), Answer::Told(Some(Told { bytes: 50_000, .. }))));
    }
}

#[test]
fn a_server_that_comes_to_no_checksum_is_read_back() {
    let Some(server) = XRootDServer::start_with(PROGRAM_FAILS) else { return };
    let remote = Remote::open(&server.address("run7"));
    let bytes = noise(23, 5_000_000);
    assert_eq!(remote.send(".t", &bytes), Answer::Sent(sums(&bytes)));
    remote.holds(".t", &bytes);
}

#[test]
fn a_token_that_is_not_there_is_said_at_once() {
    if XRootDServer::start().is_none() {
        return;
    }
    let access = Access { token_file: Some("/nowhere/token".into()), ..Access::default() };
    let error = open(&"root://127.0.0.1/a".parse().expect("an address"), &access).err().expect("no token");
    assert!(matches!(&error, OpenError::Access(words) if words.contains("/nowhere/token")), "{error}");
}
