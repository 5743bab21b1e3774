//! A store with files.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use forebay_client::files::Files;
use serde_json::Value;
use tempfile::TempDir;

use super::common::{Drives, Ran, Server, forebay, scratch};

/// The time between two looks at something that is waited for.
const LOOK: Duration = Duration::from_millis(10);

/// A store of 4+1, and its server.
pub struct Store {
    drives: Drives,
    pub server: Server,
}

impl Store {
    /// About 480 MiB in two lanes.
    pub fn start() -> Store {
        Store::start_with("2", "128MiB")
    }

    /// As small as one can be that has room for what removing takes: about 100 MiB.
    pub fn start_small() -> Store {
        Store::start_with("1", "32MiB")
    }

    fn start_with(lanes: &str, drive_bytes: &str) -> Store {
        let directory = scratch();
        let paths: Vec<PathBuf> = (0..5).map(|number| directory.path().join(format!("drive{number}"))).collect();
        let options = ["init", "--data", "4", "--parity", "1", "--slot-bytes", "1MiB", "--lanes", lanes];
        let words = options.into_iter().chain(["--drive-bytes", drive_bytes]).map(OsStr::new);
        forebay(words.chain(paths.iter().map(|path| path.as_os_str()))).expect(0);
        let drives = Drives { directory, paths };
        let mut server = drives.serve();
        server.collect_log();
        Store { drives, server }
    }

    /// SIGKILL, and a new server at the same address.
    pub fn restart(&mut self) {
        self.server.replace_killed(&[], &self.drives.paths);
        self.server.collect_log();
    }

    /// `forebay file` on this server.
    pub fn file(&self, words: &[&str]) -> Ran {
        self.file_with(words, b"")
    }

    pub fn file_with(&self, words: &[&str], stdin: &[u8]) -> Ran {
        let words: Vec<&str> = ["file"].into_iter().chain(words.iter().copied()).collect();
        self.server.run_with(&words, stdin)
    }

    /// The same with words that are any bytes.
    pub fn file_bytes(&self, words: &[&[u8]]) -> Ran {
        let begin = ["file", "--server", &self.server.address].map(OsStr::new);
        forebay(begin.into_iter().chain(words.iter().map(|word| OsStr::from_bytes(word))))
    }

    /// Copies bytes to a file that is not there yet.
    #[track_caller]
    pub fn put(&self, path: &str, bytes: &[u8]) {
        self.file_with(&["cp", "-", &format!("forebay:{path}")], bytes).expect(0);
    }

    /// The bytes of a file.
    #[track_caller]
    pub fn cat(&self, path: &str) -> Vec<u8> {
        self.file(&["cat", path]).expect(0).stdout
    }

    /// What `stat` tells scripts.
    #[track_caller]
    pub fn stat(&self, path: &str) -> Value {
        self.file(&["stat", "--json", path]).expect(0).json()["entries"][0].clone()
    }

    /// Lines of `ls`.
    #[track_caller]
    pub fn list(&self, words: &[&str]) -> Vec<String> {
        let words: Vec<&str> = ["ls"].into_iter().chain(words.iter().copied()).collect();
        let text = String::from_utf8(self.file(&words).expect(0).stdout).expect("UTF-8");
        text.lines().map(str::to_owned).collect()
    }

    /// The library, on this server.
    pub fn files(&self) -> Files {
        Files::new(self.server.client("test")).expect("a client")
    }

    /// Starts a command that is written to and read from while it runs.
    pub fn begin(&self, words: &[&str]) -> Running {
        let (command, rest) = words.split_first().expect("a command");
        let mut program = Command::new(env!("CARGO_BIN_EXE_forebay"));
        program.env_remove("FOREBAY_LOG").env_remove("FOREBAY_SERVER");
        program.args([command, "--server", &self.server.address, "--timeout", "100000"]).args(rest);
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(program.spawn().expect("the program runs"))
    }

    /// Waits until so much of a file is acknowledged, or more; how much that is.
    pub fn until_acknowledged(&self, path: &str, bytes: u64) -> u64 {
        let files = self.files();
        loop {
            let length = files.stat(path).ok().and_then(|status| status.length());
            if let Some(length) = length.filter(|length| *length >= bytes) {
                return length;
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// A command that runs; killed when dropped.
pub struct Running(pub Child);

impl Running {
    /// Gives it bytes.
    pub fn write(&mut self, bytes: &[u8]) {
        self.0.stdin.as_mut().expect("a pipe").write_all(bytes).expect("it reads");
    }

    /// What it prints next.
    pub fn read(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.stdout.as_mut().expect("a pipe").read_exact(&mut bytes).expect("it prints");
        bytes
    }

    /// Ends its input, and how it ended.
    pub fn end(mut self) -> Ran {
        drop(self.0.stdin.take());
        let (mut stdout, mut stderr) = (Vec::new(), String::new());
        self.0.stdout.take().expect("a pipe").read_to_end(&mut stdout).expect("read");
        self.0.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("read");
        let exit = self.0.wait().expect("it ends").code().unwrap_or(-1);
        Ran { exit, stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory for local files.
pub fn place() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

/// A path as a word.
pub fn word(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}
