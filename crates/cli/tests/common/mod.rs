//! The program itself, run as an operator runs it.
#![allow(dead_code, reason = "each test file uses its own part")]

pub mod between;
pub mod buffer;
pub mod file_load;
pub mod hanging;
pub mod judge;
pub mod load;
pub mod mounted;
pub mod owners;
pub mod place;
pub mod pools;
pub mod running;
pub mod store;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_client::{Client, ClientConfig};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde_json::Value;
use tempfile::TempDir;

/// Bytes that no other seed gives.
pub fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    // These tests are compiled without optimising: without a call for each byte it is fast all the same.
    let mut bytes = vec![0; count];
    for byte in &mut bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *byte = (state >> 56) as u8;
    }
    bytes
}

/// What a command came to.
#[derive(Debug)]
pub struct Ran {
    pub exit: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Ran {
    /// The same, once it is seen that it ended so.
    #[track_caller]
    pub fn expect(self, exit: i32) -> Ran {
        assert_eq!(self.exit, exit, "stdout: {}\nstderr: {}", String::from_utf8_lossy(&self.stdout), self.stderr);
        self
    }

    /// The one object on the one line of stdout.
    #[track_caller]
    pub fn json(&self) -> Value {
        let text = std::str::from_utf8(&self.stdout).expect("UTF-8");
        assert!(text.ends_with('\n') && text.matches('\n').count() == 1, "one line: {text:?}; stderr: {}", self.stderr);
        let value: Value = serde_json::from_str(text).expect("JSON");
        assert!(value.is_object(), "{value}");
        value
    }

    #[track_caller]
    pub fn says(&self, words: &str) -> &Ran {
        assert!(self.stderr.contains(words), "{words:?} is not in {:?}", self.stderr);
        self
    }
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    // What the tester's shell says does not matter.
    command.env_remove("FOREBAY_LOG").env_remove("FOREBAY_SERVER");
    command
}

/// Runs the program.
pub fn forebay<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    forebay_with(arguments, b"")
}

/// Runs the program with these bytes on stdin.
pub fn forebay_with<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>, stdin: &[u8]) -> Ran {
    let mut command = program();
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program runs");
    // A program that does not read its stdin closes it.
    let _ = child.stdin.take().expect("a pipe").write_all(stdin);
    let output = child.wait_with_output().expect("it ends");
    Ran {
        exit: output.status.code().unwrap_or(-1),
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Runs a command that ends late, or never: what it told on the one line of stdout within `limit`, if it did. Then `let_go` lets it end, and its
/// exit code is there, too.
pub fn told_within(arguments: &[&OsStr], limit: Duration, let_go: impl FnOnce()) -> Option<(Value, i32)> {
    let mut command = program();
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the program runs");
    let stdout = child.stdout.take().expect("a pipe");
    let (told, line) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = BufReader::new(stdout).read_line(&mut line);
        let _ = told.send(line);
    });
    let line = line.recv_timeout(limit);
    if line.is_err() {
        let _ = child.kill();
    }
    let_go();
    let exit = child.wait().expect("it ends").code().unwrap_or(-1);
    Some((serde_json::from_str(&line.ok()?).expect("JSON"), exit))
}

/// Runs the program with a stdout that is full.
pub fn forebay_full<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("opened");
    let output = program().args(arguments).stdin(Stdio::null()).stdout(full).output().expect("it runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Ran { exit: output.status.code().unwrap_or(-1), stdout: Vec::new(), stderr }
}

/// A directory in memory when there is room for some stores, else where temporary files go.
pub fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let room = rustix::fs::statvfs(memory).map_or(0, |fs| fs.f_bavail * fs.f_frsize);
    if room > 6 << 30 { TempDir::new_in(memory) } else { TempDir::new() }.expect("a directory")
}

/// Drives of a store, in a directory of their own.
pub struct Drives {
    pub directory: TempDir,
    pub paths: Vec<PathBuf>,
}

impl Drives {
    /// Five files that make a store of 4+1.
    pub fn five() -> Drives {
        let directory = scratch();
        let paths: Vec<PathBuf> = (0..5).map(|number| directory.path().join(format!("drive{number}"))).collect();
        let drives = Drives { directory, paths };
        drives.init(&[]).expect(0);
        drives
    }

    pub fn init(&self, more: &[&str]) -> Ran {
        let options = ["init", "--data", "4", "--parity", "1", "--drive-bytes", "32MiB", "--json"];
        let words = options.iter().chain(more).map(OsStr::new);
        forebay(words.chain(self.paths.iter().map(|path| path.as_os_str())))
    }

    pub fn serve(&self) -> Server {
        self.serve_with(&[], &self.paths)
    }

    /// Stores one fragment, with a server of its own.
    pub fn hold(&self, id: &str, payload: &[u8]) {
        let server = self.serve();
        server.put(id, payload).expect(0);
        server.terminate().expect(0);
    }

    pub fn serve_with(&self, options: &[&str], paths: &[PathBuf]) -> Server {
        Server::start(options, paths)
    }

    /// A server that does not come up.
    pub fn fail_to_serve(&self, options: &[&str], paths: &[PathBuf]) -> Ran {
        let words = ["serve", "--listen", "127.0.0.1:0"].into_iter().chain(options.iter().copied()).map(OsStr::new);
        forebay(words.chain(paths.iter().map(|path| path.as_os_str())))
    }
}

/// A running server; killed when dropped.
pub struct Server {
    child: Child,
    pub address: String,
    pub ready: Value,
    stdin: Option<ChildStdin>,
    log: Option<JoinHandle<String>>,
}

impl Server {
    fn start(options: &[&str], paths: &[PathBuf]) -> Server {
        Server::start_at("127.0.0.1:0", options, paths)
            .unwrap_or_else(|ran| panic!("the server ended before it served: {ran:?}"))
    }

    /// A server that finds the programs that it runs in this directory first.
    pub fn start_in(programs: &Path, options: &[&str], paths: &[PathBuf]) -> Server {
        let mut command = Server::command("127.0.0.1:0", options, paths);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let all = std::iter::once(programs.to_owned()).chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(all).expect("a path"));
        Server::until_ready(command.spawn().expect("the program runs"))
            .unwrap_or_else(|ran| panic!("the server ended before it served: {ran:?}"))
    }

    /// Starts one that listens here; how it ended when it does not come up.
    pub fn start_at(listen: &str, options: &[&str], paths: &[PathBuf]) -> Result<Server, Ran> {
        Server::until_ready(Server::spawn(listen, options, paths))
    }

    fn until_ready(mut child: Child) -> Result<Server, Ran> {
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let ready = serde_json::from_str::<Value>(&line).unwrap_or_default();
        let address = ready["address"].as_str().unwrap_or_default().to_owned();
        let stdin = child.stdin.take();
        let mut server = Server { child, address, ready, stdin, log: None };
        if server.address.is_empty() { Err(Ran { stdout: line.into_bytes(), ..server.end() }) } else { Ok(server) }
    }

    /// Starts one and kills it (SIGKILL) so soon that it may not serve yet.
    pub fn start_and_kill(listen: &str, options: &[&str], paths: &[PathBuf], after: Duration) {
        let mut child = Server::spawn(listen, options, paths);
        std::thread::sleep(after);
        child.kill().expect("killed");
        child.wait().expect("it ends");
    }

    /// Starts one, and waits for nothing.
    pub fn spawn(listen: &str, options: &[&str], paths: &[PathBuf]) -> Child {
        Server::command(listen, options, paths).spawn().expect("the program runs")
    }

    fn command(listen: &str, options: &[&str], paths: &[PathBuf]) -> Command {
        let mut command = program();
        command.args(["serve", "--json", "--listen", listen]).args(options).args(paths);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// A client that tries for as long as it takes.
    pub fn client(&self, name: &str) -> Client {
        let config = ClientConfig::new(self.address.clone(), name).deadline(None);
        Client::connect(config).expect("the server answers")
    }

    /// SIGSTOP; gives when no thread of it runs any more.
    pub fn freeze(&self) {
        let pid = Pid::from_raw(self.pid().cast_signed()).expect("a process");
        kill_process(pid, Signal::STOP).expect("a signal");
        let waited = waitpid(Some(pid), WaitOptions::UNTRACED).expect("it is ours");
        assert!(waited.expect("it was waited for").1.stopped(), "it ended by itself");
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs a command on this server.
    pub fn run(&self, words: &[&str]) -> Ran {
        self.run_with(words, b"")
    }

    pub fn run_with(&self, words: &[&str], stdin: &[u8]) -> Ran {
        let (command, rest) = words.split_first().expect("a command");
        forebay_with([command, &"--server", &self.address.as_str()].into_iter().chain(rest), stdin)
    }

    /// Runs a command on this server with a stdout that is full.
    pub fn run_full(&self, words: &[&str]) -> Ran {
        let (command, rest) = words.split_first().expect("a command");
        forebay_full([command, &"--server", &self.address.as_str()].into_iter().chain(rest))
    }

    /// Takes its log as it comes, so that it may be long; a test that fails shows it.
    pub fn collect_log(&mut self) {
        let mut stderr = self.child.stderr.take().expect("a pipe");
        self.log = Some(std::thread::spawn(move || {
            let mut log = Vec::new();
            let _ = stderr.read_to_end(&mut log);
            String::from_utf8_lossy(&log).into_owned()
        }));
    }

    /// Nobody reads its log any more.
    pub fn close_stderr(&mut self) {
        drop(self.child.stderr.take());
    }

    pub fn put(&self, id: &str, bytes: &[u8]) -> Ran {
        self.run_with(&["put", id, "-"], bytes)
    }

    pub fn get(&self, id: &str) -> Ran {
        self.run(&["get", id, "-"])
    }

    pub fn status(&self) -> Value {
        self.run(&["status", "--json"]).expect(0).json()
    }

    /// SIGTERM, and how it ended.
    pub fn terminate(mut self) -> Ran {
        let pid = Pid::from_raw(self.pid().cast_signed()).expect("a process");
        kill_process(pid, Signal::TERM).expect("a signal");
        self.end()
    }

    /// Closes the stdin of the server, and how it ended.
    pub fn leave(mut self) -> Ran {
        drop(self.stdin.take());
        self.end()
    }

    /// How it ended, by itself.
    pub fn wait(mut self) -> Ran {
        self.end()
    }

    fn end(&mut self) -> Ran {
        let mut stderr = String::new();
        if let Some(mut log) = self.child.stderr.take() {
            let _ = log.read_to_string(&mut stderr);
        }
        if let Some(log) = self.log.take() {
            stderr = log.join().expect("it only reads");
        }
        let status = self.child.wait().expect("it ends");
        Ran { exit: status.code().unwrap_or(-1), stdout: Vec::new(), stderr }
    }

    /// SIGKILL, without waiting for its end.
    pub fn send_kill(&mut self) {
        self.child.kill().expect("killed");
    }

    /// SIGKILL, and another one on these drives that listens at the same address.
    pub fn replace_killed(&mut self, options: &[&str], paths: &[PathBuf]) {
        self.send_kill();
        self.end();
        let address = self.address.clone();
        let started = Server::start_at(&address, options, paths);
        *self = started.unwrap_or_else(|ran| panic!("it did not start: {ran:?}"));
    }

    /// SIGKILL; gives what it had logged.
    pub fn kill(mut self) -> String {
        self.child.kill().expect("killed");
        self.end().stderr
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(log) = self.log.take().filter(|_| std::thread::panicking()) {
            eprintln!("the server's log:\n{}", log.join().unwrap_or_default());
        }
    }
}

/// The recorded files: `FOREBAY_TESTDATA`, or `../shared/data` beside the workspace when it exists. Without them the test is skipped,
/// and says so, in CI too: no package brings them, and generated files have the same form. A directory that is named must be there.
pub fn test_data() -> Option<PathBuf> {
    let named = std::env::var_os("FOREBAY_TESTDATA").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let directory = named.clone().unwrap_or(beside);
    if directory.is_dir() {
        return Some(directory);
    }
    assert!(named.is_none(), "FOREBAY_TESTDATA is {} and no directory", directory.display());
    println!("skipped: needs recorded files (set FOREBAY_TESTDATA)");
    None
}

/// Ten FASER events, the eighth with a broken marker; and where that one starts.
pub fn damaged_file() -> (Vec<u8>, usize) {
    let (mut bytes, starts) = faser_file();
    bytes[starts[7]] ^= 0xFF;
    (bytes, starts[7])
}

/// Ten FASER events, and where each starts.
pub fn faser_file() -> (Vec<u8>, Vec<usize>) {
    let mut generator = forebay_rawdata::Generator::new(forebay_rawdata::Format::Faser, 5, forebay_types::RunId(77));
    let (mut bytes, mut starts) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        starts.push(bytes.len());
        bytes.extend_from_slice(&generator.next_event().bytes);
    }
    (bytes, starts)
}
