//! The files of a store as a mounted file system, by the program itself and by tools that know nothing of it.

#[path = "../common/mod.rs"]
mod common;
mod machines;
mod sealed;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;

use common::mounted::{Mounted, has_fuse, has_peer, is_mounted, start_again, take_away};
use common::{Drives, Server, noise};
use forebay_client::ClientConfig;
use forebay_client::files::Files;
use rustix::io::Errno;

fn files_of(server: &Server) -> Files {
    Files::connect(ClientConfig::new(server.address.clone(), "test")).expect("the server answers")
}

/// Runs a tool that must succeed.
#[track_caller]
fn run(program: &str, arguments: &[&str], directory: &Path) {
    let output = Command::new(program).args(arguments).current_dir(directory).output().expect("it runs");
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("listed");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

/// The number of an error, whatever kind the library makes of it.
#[track_caller]
fn errno_of<T>(result: std::io::Result<T>) -> i32 {
    match result {
        Ok(_) => panic!("it was done"),
        Err(error) => error.raw_os_error().expect("an error of the system"),
    }
}

#[test]
fn tools_that_know_nothing_of_it_work() {
    if !has_fuse() {
        return;
    }
    let drives = Drives::five();
    let server = drives.serve();
    let mounted = Mounted::start(&server.address, &[]);
    let outside = common::scratch();
    let bytes = noise(1, 3_000_000);
    fs::write(outside.path().join("a"), &bytes).expect("written");
    fs::write(outside.path().join("b"), b"short").expect("written");
    let (there, here) = (mounted.path(), outside.path().to_str().expect("UTF-8"));

    run("cp", &["-a", here, "copied"], there);
    assert!(fs::read(mounted.join("copied/a")).expect("read") == bytes);
    run("tar", &["cf", "all.tar", "copied"], there);
    run("mkdir", &["-p", "out/deep/er"], there);
    run("tar", &["xf", "all.tar", "-C", "out"], there);
    run("diff", &["-r", "copied", "out/copied"], there);
    run("dd", &["if=copied/a", "of=dd", "bs=64k", "conv=fsync"], there);
    run("cmp", &["dd", "copied/a"], there);
    run("mv", &["dd", "out/moved"], there);
    run("truncate", &["-s", "1M", "out/moved"], there);
    run("ln", &["out/moved", "linked"], there);
    run("ln", &["-s", "out/moved", "symbolic"], there);
    assert!(fs::read(mounted.join("symbolic")).expect("read") == bytes[..1 << 20]);
    assert_eq!(fs::metadata(mounted.join("linked")).expect("there").nlink(), 2);
    run("sh", &["-c", "echo more >> copied/b && test \"$(cat copied/b)\" = \"shortmore\""], there);
    run("sed", &["-i", "s/more/less/", "copied/b"], there);
    assert_eq!(fs::read(mounted.join("copied/b")).expect("read"), b"shortless\n");
    run("touch", &["-d", "2001-02-03 04:05:06 UTC", "copied/b"], there);
    assert_eq!(fs::metadata(mounted.join("copied/b")).expect("there").mtime(), 981_173_106);
    run("df", &["."], there);
    run("rm", &["-r", "copied", "out", "all.tar", "linked", "symbolic"], there);
    assert!(names_in(there).is_empty());
    mounted.terminate().expect(0);
}

#[test]
fn rsync_copies_what_changed_and_finds_nothing_to_do_then() {
    if !has_fuse() || !has_peer("rsync") {
        return;
    }
    let drives = Drives::five();
    let server = drives.serve();
    let mounted = Mounted::start(&server.address, &[]);
    let outside = common::scratch();
    for number in 0..40 {
        fs::write(outside.path().join(format!("file{number}")), noise(number, 10_000)).expect("written");
    }
    let from = format!("{}/", outside.path().display());
    run("rsync", &["-a", &from, "there"], mounted.path());
    fs::write(outside.path().join("file7"), noise(77, 12_000)).expect("written");
    let again = Command::new("rsync")
        .args(["-ai", "--omit-dir-times", &from, "there"])
        .current_dir(mounted.path())
        .output()
        .expect("it runs");
    let told = String::from_utf8(again.stdout).expect("UTF-8");
    assert!(again.status.success() && told.lines().count() == 1 && told.ends_with("file7\n"), "{told}");
    assert!(fs::read(mounted.join("there/file7")).expect("read") == noise(77, 12_000));
    mounted.terminate().expect(0);
}

#[test]
fn what_one_handle_wrote_another_one_reads() {
    if !has_fuse() {
        return;
    }
    let drives = Drives::five();
    let server = drives.serve();
    what_one_wrote_another_reads(&Mounted::start(&server.address, &[]));
    let past_cache = Mounted::start(&server.address, &["--direct-io", "--seal-after-s", "0"]);
    fs::remove_file(past_cache.join("file")).expect("it is there");
    what_one_wrote_another_reads(&past_cache);
    // What is sealed, by a program that maps it.
    let bytes = noise(4, 3_000_001);
    fs::write(past_cache.join("mapped"), &bytes).expect("written");
    let program = "import mmap; f = open('mapped', 'rb'); open('copy', 'wb').write(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ))";
    run("python3", &["-c", program], past_cache.path());
    assert!(fs::read(past_cache.join("copy")).expect("read") == bytes);
    past_cache.terminate().expect(0);
}

fn what_one_wrote_another_reads(mounted: &Mounted) {
    let path = mounted.join("file");
    let mut writer = File::create(&path).expect("made");
    let mut reader = File::open(&path).expect("opened");
    let bytes = noise(3, 5_000_000);
    for (number, part) in bytes.chunks(70_001).enumerate() {
        writer.write_all(part).expect("taken");
        let mut read = vec![0; part.len()];
        reader.read_exact(&mut read).expect("read");
        assert!(read == part, "part {number}");
    }
    // Over what is on its way, behind the end, and cut.
    writer.write_all_at(b"over", 1_000_000).expect("taken");
    writer.write_all_at(b"behind", 6_000_000).expect("taken");
    let mut read = [0; 6];
    reader.read_exact_at(&mut read[..4], 1_000_000).expect("read");
    assert_eq!(&read[..4], b"over");
    reader.read_exact_at(&mut read, 5_500_000).expect("read");
    assert_eq!(read, [0; 6], "what nobody wrote holds zeros");
    writer.set_len(1_000_002).expect("cut");
    assert_eq!(reader.metadata().expect("there").len(), 1_000_002);
    writer.set_len(2_000_000).expect("longer");
    reader.seek(SeekFrom::Start(1_000_000)).expect("a place");
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).expect("read");
    assert!(rest.len() == 1_000_000 && &rest[..2] == b"ov" && rest[2..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_file_without_a_name_is_read_until_it_is_closed() {
    if !has_fuse() {
        return;
    }
    let drives = Drives::five();
    let server = drives.serve();
    let mounted = Mounted::start(&server.address, &[]);
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(mounted.join("file")).expect("made");
    file.write_all(b"still here").expect("taken");
    fs::remove_file(mounted.join("file")).expect("removed");
    assert_eq!(errno_of(fs::metadata(mounted.join("file"))), Errno::NOENT.raw_os_error());
    file.write_all(b", and more").expect("taken");
    file.sync_all().expect("durable");
    let mut read = String::new();
    file.seek(SeekFrom::Start(0)).expect("a place");
    file.read_to_string(&mut read).expect("read");
    assert_eq!((read.as_str(), file.metadata().expect("there").nlink()), ("still here, and more", 0));
    drop(file);
    mounted.terminate().expect(0);
}

#[test]
fn a_closed_file_is_sealed_after_a_while_unless_it_is_opened_again() {
    if !has_fuse() {
        return;
    }
    let drives = Drives::five();
    let server = drives.serve();
    let files = files_of(&server);
    let is_sealed = |path: &str| files.stat(path).expect("there").is_sealed();
    let mounted = Mounted::start(&server.address, &["--seal-after-s", "0.3"]);
    fs::write(mounted.join("early"), b"early").expect("written");
    let open = File::create(mounted.join("open")).expect("made");
    drop(File::create(mounted.join("again")).expect("made"));
    let again = OpenOptions::new().append(true).open(mounted.join("again")).expect("opened before it is sealed");
    while !is_sealed("/early") {
        std::thread::yield_now();
    }
    assert!(!is_sealed("/open") && !is_sealed("/again"), "somebody writes to these");
    let denied = OpenOptions::new().write(true).open(mounted.join("early"));
    assert_eq!(errno_of(denied), Errno::PERM.raw_os_error());
    fs::rename(mounted.join("early"), mounted.join("renamed")).expect("names change");
    fs::set_permissions(mounted.join("renamed"), fs::Permissions::from_mode(0o400)).expect("and modes");
    assert_eq!(fs::read(mounted.join("renamed")).expect("read"), b"early");
    fs::remove_file(mounted.join("renamed")).expect("removed");
    drop((open, again));
    while !is_sealed("/open") || !is_sealed("/again") {
        std::thread::yield_now();
    }
    mounted.terminate().expect(0);
}

#[test]
fn what_waits_to_be_sealed_is_sealed_when_it_is_unmounted() {
    if !has_fuse() {
        return;
    }
    let drives = Drives::five();
    let server = drives.serve();
    let mounted = Mounted::start(&server.address, &[]);
    fs::write(mounted.join("file"), b"bytes").expect("written");
    assert!(!files_of(&server).stat("/file").expect("there").is_sealed());
    mounted.terminate().expect(0);
    assert!(files_of(&server).stat("/file").expect("there").is_sealed());
}

#[test]
fn names_are_any_bytes_but_slashes_and_nothing_is_longer_than_255() {
    if !has_fuse() {
        return;
    }
    let drives = Drives::five();
    let server = drives.serve();
    let mounted = Mounted::start(&server.address, &[]);
    let name = OsStr::from_bytes(b"na\xffme \n\\ \xc3");
    fs::write(mounted.path().join(name), b"bytes").expect("made");
    let listed: Vec<_> =
        fs::read_dir(mounted.path()).expect("listed").map(|entry| entry.expect("one").file_name()).collect();
    assert_eq!(listed, [name]);
    files_of(&server).lookup(name.as_bytes()).expect("there under the same bytes");
    let longest = "x".repeat(255);
    fs::rename(mounted.path().join(name), mounted.join(&longest)).expect("renamed");
    assert_eq!(fs::read(mounted.join(&longest)).expect("read"), b"bytes");
    let longer = fs::rename(mounted.join(&longest), mounted.join(&"x".repeat(256)));
    assert_eq!(errno_of(longer), Errno::NAMETOOLONG.raw_os_error());
    mounted.terminate().expect(0);
}

/// Blocks that each writer writes, and their bytes.
const BLOCKS: usize = 60;
const BLOCK_BYTES: usize = 20_000;

/// Starts a process that copies a file block by block, and tells of each when it is synchronised. It is one of its own: a process with files of a mount open
/// starts no other while the server is away, as these are flushed then.
fn write_blocks(from: &Path, to: &Path) -> Child {
    let script = format!(
        "for block in $(seq 0 {}); do dd if=\"$0\" of=\"$1\" bs={BLOCK_BYTES} count=1 skip=$block seek=$block conv=notrunc,fdatasync status=none || exit 1; \
         echo $block; done",
        BLOCKS - 1
    );
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(from).arg(to).stdout(Stdio::piped());
    command.spawn().expect("it runs")
}

#[test]
fn what_was_synchronised_outlives_kills_and_writers_go_on() {
    if !has_fuse() {
        return;
    }
    let drives = Drives::five();
    let outside = common::scratch();
    let mut server = Some(drives.serve());
    let address = server.as_ref().expect("started").address.clone();
    let mounted = Mounted::start(&address, &[]);
    let (told, safe) = channel();
    let mut writers = Vec::new();
    for writer in 0..3 {
        let from = outside.path().join(format!("file{writer}"));
        fs::write(&from, noise(writer, BLOCKS * BLOCK_BYTES)).expect("written");
        let mut child = write_blocks(&from, &mounted.join(&format!("file{writer}")));
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let told = told.clone();
        writers.push((child, std::thread::spawn(move || lines.for_each(|_| told.send(()).unwrap_or_default()))));
    }
    drop(told);
    for count in 1..=3 * BLOCKS {
        safe.recv().expect("the writers go on");
        if count == 40 || count == 120 {
            drop(server.take()); // SIGKILL
            server = Some(start_again(&address, &drives));
        }
    }
    for (mut child, lines) in writers {
        lines.join().expect("read");
        assert!(child.wait().expect("it is ours").success(), "no writer was told of an error");
    }
    drop(server);
    take_away(mounted.kill().path());
    let server = drives.serve();
    let mounted = Mounted::start(&server.address, &["--read-only"]);
    for writer in 0..3 {
        let read = fs::read(mounted.join(&format!("file{writer}"))).expect("read");
        assert!(read == noise(writer, BLOCKS * BLOCK_BYTES), "file{writer}");
    }
    assert_eq!(errno_of(File::create(mounted.join("no"))), Errno::ROFS.raw_os_error());
    mounted.terminate().expect(0);
}

#[test]
fn what_was_synchronised_is_there_when_server_and_mount_die_under_writers() {
    if !has_fuse() {
        return;
    }
    let drives = Drives::five();
    let outside = common::scratch();
    for (round, server_first) in [true, false].into_iter().enumerate() {
        let server = drives.serve();
        let mounted = Mounted::start(&server.address, &[]);
        let (told, safe) = channel();
        let writers = (0..3).map(|writer| {
            let from = outside.path().join(format!("file{writer}"));
            fs::write(&from, noise(writer, BLOCKS * BLOCK_BYTES)).expect("written");
            let mut child = write_blocks(&from, &mounted.join(&format!("file{round}-{writer}")));
            let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
            let told = told.clone();
            let count = move || lines.inspect(|_| told.send(()).unwrap_or_default()).count();
            (child, std::thread::spawn(count))
        });
        let writers: Vec<_> = writers.collect();
        (0..25 * (round + 1)).for_each(|_| safe.recv().expect("the writers go on"));
        let directory = if server_first {
            drop(server); // SIGKILL
            mounted.kill()
        } else {
            let directory = mounted.kill();
            drop(server);
            directory
        };
        let server = drives.serve();
        take_away(directory.path());
        let mounted = Mounted::start(&server.address, &[]);
        for (writer, (mut child, lines)) in writers.into_iter().enumerate() {
            child.wait().expect("it is ours");
            let (written, safe) =
                (noise(writer as u64, BLOCKS * BLOCK_BYTES), lines.join().expect("read") * BLOCK_BYTES);
            let read = fs::read(mounted.join(&format!("file{round}-{writer}"))).unwrap_or_default();
            assert!(read.len() >= safe && read[..safe] == written[..safe], "{writer}: {safe} bytes of {}", read.len());
        }
        mounted.terminate().expect(0);
    }
}

#[test]
fn a_killed_mount_hangs_nobody_and_can_be_mounted_again() {
    if !has_fuse() {
        return;
    }
    let drives = Drives::five();
    let server = drives.serve();
    let mounted = Mounted::start(&server.address, &[]);
    let file = File::create(mounted.join("file")).expect("made");
    file.write_all_at(b"safe", 0).expect("taken");
    file.sync_all().expect("durable");
    let directory = mounted.kill();
    assert_eq!(errno_of(fs::metadata(directory.path().join("file"))), Errno::NOTCONN.raw_os_error());
    assert!(file.write_all_at(b"lost", 0).and_then(|()| file.sync_all()).is_err());
    let again = common::forebay(["mount", &server.address, directory.path().to_str().expect("UTF-8")]);
    again.expect(2).says("whose process is gone").says("fusermount3 -u");
    drop(file);
    take_away(directory.path());
    let mounted = Mounted::start_at(directory, &server.address, &[]);
    assert_eq!(fs::read(mounted.join("file")).expect("read"), b"safe");
    mounted.terminate().expect(0);
}

#[test]
fn while_the_server_is_away_requests_fail_in_time_and_an_unmount_does_not_wait() {
    if !has_fuse() {
        return;
    }
    let drives = Drives::five();
    let server = drives.serve();
    let patient = Mounted::start(&server.address, &["--patience-s", "100000"]);
    let mounted = Mounted::start(&server.address, &["--patience-s", "0.5"]);
    let _open = File::create(patient.join("file")).expect("made");
    drop(server);
    assert_eq!(errno_of(fs::metadata(mounted.join("file"))), Errno::IO.raw_os_error());
    mounted.terminate().expect(0);
    let path = patient.join("other");
    let (asks, asked) = channel();
    let waits = std::thread::spawn(move || {
        let _ = asks.send(());
        fs::metadata(path)
    });
    asked.recv().expect("it is about to ask");
    // With a file open it is in use, and is taken away all the same; a second signal ends it though the server never heard of the end.
    patient.ask_to_end();
    let directory = patient.path().to_owned();
    while is_mounted(&directory) {
        std::thread::yield_now();
    }
    patient.ask_to_end();
    patient.end();
    let error = waits.join().expect("it does not hang").expect_err("nobody is there");
    assert!(
        matches!(error.kind(), ErrorKind::NotConnected | ErrorKind::ConnectionAborted | ErrorKind::NotFound),
        "{error}"
    );
}

#[test]
fn a_full_store_says_so_and_can_be_emptied() {
    if !has_fuse() {
        return;
    }
    let drives = Drives::five();
    let server = drives.serve();
    let mounted = Mounted::start(&server.address, &["--patience-s", "1"]);
    let bytes = noise(9, 1 << 20);
    let mut safe = 0;
    let full = loop {
        let mut file = File::create(mounted.join(&format!("file{safe}"))).expect("made");
        match file.write_all(&bytes).and_then(|()| file.sync_all()) {
            Ok(()) => safe += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(full.raw_os_error(), Some(Errno::NOSPC.raw_os_error()), "after {safe} files");
    for number in 0..safe {
        assert!(fs::read(mounted.join(&format!("file{number}"))).expect("read") == bytes, "file{number}");
    }
    for number in 0..=safe {
        fs::remove_file(mounted.join(&format!("file{number}"))).expect("removed from a full store");
    }
    // Room comes back when what was removed has left the drives.
    while fs::write(mounted.join("again"), &bytes).is_err() {}
    assert!(fs::read(mounted.join("again")).expect("read") == bytes);
    mounted.terminate().expect(0);
}

#[test]
fn a_mount_in_the_background_stands_when_the_command_returns() {
    if !has_fuse() {
        return;
    }
    let drives = Drives::five();
    let server = drives.serve();
    let directory = tempfile::TempDir::new().expect("a directory");
    let path = directory.path().to_str().expect("UTF-8");
    let ran = common::forebay(["mount", "--json", &server.address, path]).expect(0);
    assert_eq!(ran.json()["directory"], path);
    fs::write(directory.path().join("file"), b"bytes").expect("written");
    take_away(directory.path());
    while !files_of(&server).stat("/file").expect("there").is_sealed() {
        std::thread::yield_now();
    }
    // Without a server nothing is mounted, and the command says so.
    drop(server);
    common::forebay(["mount", "127.0.0.1:1", path]).expect(3).says("nothing listens");
    assert!(names_in(directory.path()).is_empty());
}

/// What a user who is not root does, in a mount namespace where `/dev/fuse` is open to all, as it is where udev makes it.
const AS_ANOTHER_USER: &str = r#"
mknod fuse c 10 229; chmod 666 fuse; mount --bind fuse /dev/fuse
as="setpriv --reuid 65534 --regid 65534 --clear-groups"
mkdir mounted; chown 65534 mounted
trap '$as fusermount3 -u mounted 2> /dev/null || true' EXIT
$as ./forebay mount "$1" "$PWD/mounted"
$as sh -ec 'echo bytes > mounted/own/a; mv mounted/own/a mounted/own/b; cat mounted/own/b; stat -c %u mounted/own/b'
$as touch mounted/a 2> /dev/null && echo "writes to what is another's"
ls mounted 2> /dev/null && echo "another user sees it"
$as fusermount3 -u mounted
"#;

#[test]
fn a_user_who_is_not_root_mounts_and_unmounts() {
    if !has_fuse() || !has_peer("fusermount3") || !has_peer("setpriv") {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root to become another user; all other tests here mount without it");
        return;
    }
    let drives = Drives::five();
    let server = drives.serve();
    let own = forebay_client::files::Owner { mode: 0o755, owner: 65534, group: 65534 };
    files_of(&server).make_directory("/own", &own).expect("made");
    let directory = tempfile::TempDir::new().expect("a directory");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("it may be entered");
    fs::copy(env!("CARGO_BIN_EXE_forebay"), directory.path().join("forebay")).expect("copied");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-ec", AS_ANOTHER_USER, "sh", &server.address]).current_dir(directory.path());
    let output = command.output().expect("it runs");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{errors}");
    let said: Vec<&str> = said.lines().filter(|line| !line.contains("shows the files of")).collect();
    assert_eq!(said, ["bytes", "65534"], "{errors}");
    assert_eq!(files_of(&server).stat("/own/b").expect("there").length(), Some(6));
}
