//! Programs of others that test file systems, on the mount: pjdfstest (what POSIX says), fsx (random operations on one file), dbench (many clients) and fio (bytes that
//! are checked).
//!
//! The short form has a few thousand operations of fsx and seconds of dbench, the long one (`FOREBAY_TEST_ALL`) 100,000 of fsx. `FOREBAY_FSX_OPERATIONS` asks for as many
//! as it says.

mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::load::{Random, from_environment, long_form};
use common::mounted::{Mounted, has_fuse, has_peer, start_again};
use common::{Drives, Server, forebay};

/// Tests of pjdfstest that fail on the mount: these, and no others.
const PJDFSTEST_FAILURES: &[&str] = &[];

/// Nine tenths of those that pass on ext4.
const PJDFSTEST_PASSED_MIN: usize = 316;

/// The kernel tells the times of what is done in milliseconds.
const PJDFSTEST_CONFIG: &str = r#"
[features]
[settings]
naptime = 0.02
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"], ["bin", "bin"]]
"#;

/// Also what is copied by the kernel.
const FSX_CONFIG: &str = "[weights]\nsendfile = 1\ncopy_file_range = 1\n";

/// Operations of one run of fsx: it never unmaps what it mapped, and with 40,000 mappings each operation takes several times as long.
const FSX_AT_ONCE: u64 = 10_000;

/// A store of 1 GiB.
fn drives() -> Drives {
    let directory = common::scratch();
    let paths = (0..5).map(|number| directory.path().join(format!("drive{number}"))).collect();
    let drives = Drives { directory, paths };
    let options = ["init", "--data", "4", "--parity", "1", "--drive-bytes", "256MiB", "--json"].map(OsStr::new);
    forebay(options.into_iter().chain(drives.paths.iter().map(|path| path.as_os_str()))).expect(0);
    drives
}

#[track_caller]
fn succeeds(name: &str, output: &Output) -> String {
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let end = told.lines().rev().take(40).collect::<Vec<_>>();
    let end = end.into_iter().rev().collect::<Vec<_>>().join("\n");
    assert!(output.status.success(), "{name}: {}\n{end}", String::from_utf8_lossy(&output.stderr));
    told
}

#[test]
fn pjdfstest_finds_what_is_known_and_nothing_else() {
    if !has_fuse() || !has_peer("pjdfstest") {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root, for pjdfstest");
        return;
    }
    let drives = drives();
    let server = drives.serve();
    let mounted = Mounted::start(&server.address, &["--allow-other"]);
    let directory = mounted.join("pjdfstest");
    fs::create_dir(&directory).expect("made");
    // Its users come here, too.
    for path in [mounted.path(), &directory] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("set");
    }
    let config = drives.directory.path().join("pjdfstest.toml");
    fs::write(&config, PJDFSTEST_CONFIG).expect("written");
    let output = Command::new("pjdfstest").arg("-c").arg(&config).arg("-p").arg(&directory).output().expect("it runs");
    let told = String::from_utf8_lossy(&output.stdout);
    let results: Vec<(&str, &str)> = told.lines().filter_map(result_of).collect();
    let with = |wanted: &str| results.iter().filter(|(_, result)| *result == wanted).count();
    let is_failure = |result: &str| result != "ok" && result != "skipped";
    let mut failed: Vec<&str> =
        results.iter().filter(|(_, result)| is_failure(result)).map(|(name, _)| *name).collect();
    failed.sort_unstable();
    println!("pjdfstest: {} passed, {} skipped, {} failed", with("ok"), with("skipped"), failed.len());
    assert_eq!(failed, PJDFSTEST_FAILURES, "{told}");
    assert!(with("ok") >= PJDFSTEST_PASSED_MIN, "{told}");
    mounted.terminate().expect(0);
}

/// The name of a test and what it came to, of a line such as `chmod::eloop   ok`.
fn result_of(line: &str) -> Option<(&str, &str)> {
    let (name, result) = line.split_once(char::is_whitespace)?;
    name.contains("::").then_some((name, result.trim()))
}

fn fsx(directory: &Path, config: &Path, seed: u64, operations: u64) -> Command {
    fs::write(config, FSX_CONFIG).expect("written");
    let mut command = Command::new("fsx");
    command.args(["-S", &seed.to_string(), "-N", &operations.to_string(), "-f"]).arg(config);
    command.arg(directory.join("fsx")).current_dir(config.parent().expect("a directory"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn fsx_reads_what_it_wrote() {
    if !has_fuse() || !has_peer("fsx") {
        return;
    }
    let drives = drives();
    let server = drives.serve();
    let mounted = Mounted::start(&server.address, &[]);
    let seed = from_environment("FOREBAY_KILL_SEED").unwrap_or(1);
    let operations = from_environment("FOREBAY_FSX_OPERATIONS");
    let operations = operations.unwrap_or(if long_form() { 100_000 } else { 2_000 });
    let (mut left, mut seeds) = (operations, seed..);
    while left > 0 {
        let (some, seed) = (left.min(FSX_AT_ONCE), seeds.next().expect("numbers are many"));
        let output = fsx(mounted.path(), &drives.directory.path().join("fsx.toml"), seed, some).output();
        succeeds(&format!("fsx, seed {seed}"), &output.expect("it runs"));
        left -= some;
    }
    println!("fsx: {operations} operations, seeds {seed} to {}", seeds.start - 1);
    mounted.terminate().expect(0);
}

#[test]
fn fsx_reads_what_it_wrote_though_the_server_is_killed() {
    if !has_fuse() || !has_peer("fsx") {
        return;
    }
    let drives = drives();
    let mut server = drives.serve();
    let address = server.address.clone();
    let mounted = Mounted::start(&address, &[]);
    let seed = from_environment("FOREBAY_KILL_SEED").unwrap_or(1);
    let (kills, operations) = if long_form() { (10, 20_000) } else { (2, 4_000) };
    let child = fsx(mounted.path(), &drives.directory.path().join("fsx.toml"), seed, operations).spawn();
    let mut child = child.expect("it runs");
    let (mut random, mut killed) = (Random(seed), 0);
    while killed < kills && child.try_wait().expect("it is ours").is_none() {
        // Seeded, and as many writes as that, however fast the machine is.
        let target = writes(&server) + 50 + random.below(400);
        while writes(&server) < target && child.try_wait().expect("it is ours").is_none() {
            std::thread::yield_now();
        }
        drop(server); // SIGKILL
        server = start_again(&address, &drives);
        killed += 1;
    }
    succeeds("fsx", &child.wait_with_output().expect("it ends"));
    println!("fsx: {operations} operations, the server was killed {killed} times, seed {seed}");
    assert!(killed > 0, "it ended before the server was killed");
    mounted.terminate().expect(0);
}

/// How often a server has written to its drives: it says how far whoever writes is.
fn writes(server: &Server) -> u64 {
    let status = server.status();
    status["drives"].as_array().map_or(0, |drives| drives.iter().filter_map(|drive| drive["writes"].as_u64()).sum())
}

#[test]
fn dbench_runs_with_few_and_many_clients() {
    if !has_fuse() || !has_peer("dbench") {
        return;
    }
    let drives = drives();
    let server = drives.serve();
    let mounted = Mounted::start(&server.address, &[]);
    let seconds = if long_form() { "20" } else { "2" };
    for clients in ["4", "16"] {
        let mut command = Command::new("dbench");
        command.args(["-t", seconds, "-D"]).arg(mounted.path()).arg(clients);
        let told = succeeds("dbench", &command.output().expect("it runs"));
        let throughput = told.lines().find(|line| line.starts_with("Throughput")).expect("it says how fast it was");
        println!("dbench: {throughput}");
    }
    mounted.terminate().expect(0);
}

#[test]
fn fio_reads_the_bytes_that_it_wrote() {
    if !has_fuse() || !has_peer("fio") {
        return;
    }
    let drives = drives();
    let server = drives.serve();
    let mounted = Mounted::start(&server.address, &[]);
    let size = if long_form() { "--size=100M" } else { "--size=8M" };
    for how in
        [&["--rw=write", "--bs=1M"][..], &["--rw=randwrite", "--bs=4k", "--fsync=100"], &["--rw=randrw", "--bs=16k"]]
    {
        let mut command = Command::new("fio");
        command.args([
            "--name=verified",
            "--numjobs=2",
            "--verify=crc32c",
            "--do_verify=1",
            "--verify_fatal=1",
            "--verify_state_save=0",
            size,
        ]);
        command.arg(format!("--directory={}", mounted.path().display())).args(how);
        succeeds("fio", &command.output().expect("it runs"));
    }
    mounted.terminate().expect(0);
}
