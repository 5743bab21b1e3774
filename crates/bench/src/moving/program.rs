//! `forebay move` as a process of its own, and what its audit log says of when.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::measure::children_cpu_seconds;
use crate::process::{binary, resident_bytes_of};

/// XRootD's client sums each page of 4 KiB on its way unless this is 0.
const PAGE_MODE: &str = "XRD_CPUSEPGWRTRD";

/// Whether it does.
pub fn page_mode(is_on: bool) -> (&'static str, &'static str) {
    (PAGE_MODE, if is_on { "1" } else { "0" })
}

/// Where it is told anything of this kind, the mover goes by XRootD's programs, also if it has the library.
pub const BY_PROGRAMS: (&str, &str) = ("XRD_REQUESTTIMEOUT", "35");

/// Whether the mover has XRootD's library.
pub fn has_library() -> bool {
    let program = fs::read(binary()).expect("`cargo build --release -p forebay` makes it");
    program.windows(11).any(|bytes| bytes == b"libXrdCl.so")
}

/// What one run came to.
pub struct Ran {
    /// Wall time of the whole command.
    pub seconds: f64,
    /// From the first file of which sending began to the last that had arrived.
    pub sending_seconds: f64,
    /// User and system time, programs that it started included.
    pub cpu_seconds: f64,
    /// The most memory that the mover itself had in RAM.
    pub resident_bytes_peak: u64,
    /// Transitions that its journal has.
    pub transitions: u64,
}

/// Where from, where to, and how.
pub struct Mover<'a> {
    /// Where its journal lies.
    pub directory: &'a Path,
    /// Where from.
    pub from: String,
    /// Where to.
    pub to: String,
    /// Further options.
    pub options: Vec<String>,
    /// What XRootD's client is told.
    pub environment: Vec<(&'static str, &'static str)>,
}

impl Mover<'_> {
    fn journal(&self) -> PathBuf {
        self.directory.join("journal.sqlite")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(binary());
        command.args(["move", "--from", &self.from, "--to", &self.to, "--journal"]).arg(self.journal());
        command.args(&self.options).envs(self.environment.iter().copied());
        let words = fs::File::create(self.words()).expect("beside its journal");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(words);
        command
    }

    /// What it says.
    fn words(&self) -> PathBuf {
        self.directory.join("mover.log")
    }

    /// Moves what is there, with a new journal.
    ///
    /// # Panics
    /// When not all of it is proven and released.
    pub fn once(&self) -> Ran {
        forget(&self.journal());
        let mut command = self.command();
        command.args(["--once", "--recheck-after", "0"]);
        let (begin, cpu) = (Instant::now(), children_cpu_seconds());
        let mut child = command.spawn().expect("`cargo build --release -p forebay` makes it");
        let mut resident_bytes_peak = 0;
        let status = loop {
            if let Some((_, peak)) = resident_bytes_of(child.id()) {
                resident_bytes_peak = resident_bytes_peak.max(peak);
            }
            match child.try_wait().expect("it can be asked") {
                Some(status) => break status,
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        let (seconds, cpu_seconds) = (begin.elapsed().as_secs_f64(), children_cpu_seconds() - cpu);
        let words = || fs::read_to_string(self.words()).unwrap_or_default();
        assert!(status.success(), "the mover ended with {status}, and said: {}", words());
        let log = audit(&self.journal());
        let at = |state: &str| {
            let of = move |line: &&Value| line["after"] == state && !line["destination"].is_null();
            log.iter().filter(of).map(|line| line["unix_ms"].as_u64().expect("a time")).collect::<Vec<_>>()
        };
        let (first, last) = (at("sending").into_iter().min(), at("arrived").into_iter().max());
        let sending_seconds = last.zip(first).map_or(0.0, |(last, first)| (last - first) as f64 / 1e3);
        Ran { seconds, sending_seconds, cpu_seconds, resident_bytes_peak, transitions: log.len() as u64 }
    }

    /// Starts one that goes on until it is killed.
    pub fn start(&self) -> Child {
        forget(&self.journal());
        self.command().spawn().expect("`cargo build --release -p forebay` makes it")
    }

    /// Every transition until now.
    pub fn audit(&self) -> Vec<Value> {
        audit(&self.journal())
    }
}

fn audit(journal: &Path) -> Vec<Value> {
    let path = format!("{}.audit.jsonl", journal.display());
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn forget(journal: &Path) {
    for behind in ["", "-wal", "-shm", ".lock", ".audit.jsonl"] {
        let _ = fs::remove_file(format!("{}{behind}", journal.display()));
    }
}

/// Copies a file by `xrdcp`, with options before it.
pub fn xrdcp(from: &Path, to: &str, options: &[&str], sums_pages: bool) -> Child {
    let mut command = Command::new("xrdcp");
    command.args(["--nopbar", "--silent"]).args(options).arg(from).arg(to);
    command.envs([page_mode(sums_pages)]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
    command.spawn().expect("needs xrootd-client: `make deps` installs it")
}

/// Gives files that were moved their names again.
pub fn take_back(directory: &Path) {
    for entry in fs::read_dir(directory).expect("listed") {
        let path = entry.expect("listed").path();
        if path.is_dir() {
            take_back(&path);
        } else if let Some(name) = path.to_str().and_then(|path| path.strip_suffix(".copied")) {
            fs::rename(&path, name).expect("renamed");
        }
    }
}
