//! A server as a process of its own, with what it costs.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_client::{Client, ClientConfig};
use forebay_store::{InitError, InitOptions, init};

/// Data and parity shards of every store that is measured.
pub const DATA: u8 = 5;
/// See [`DATA`].
pub const PARITY: u8 = 1;

/// The drives of a store, in a directory that goes with them.
pub struct Drives {
    directory: tempfile::TempDir,
    paths: Vec<PathBuf>,
}

/// The program that is measured, built beside this one.
pub fn binary() -> PathBuf {
    std::env::current_exe().expect("this program has a path").with_file_name("forebay")
}

/// Times that room is waited for.
const ROOM_TRIES: u32 = 100;

/// Makes a store. The kernel gives the memory of files that are gone back when the rings of a process that was killed are, which it takes its time for.
fn make(paths: &[PathBuf], options: &InitOptions) {
    for _ in 0..ROOM_TRIES {
        match init(paths, options, &mut |_| {}) {
            Err(InitError::NoSpace { .. }) => std::thread::sleep(Duration::from_millis(100)),
            made => return drop(made.expect("a store can be made")),
        }
    }
    panic!("there is no room for the drives of a store");
}

impl Drives {
    /// Makes a store of `lanes` lanes on files of `drive_bytes` each.
    pub fn new(directory: &Path, drive_bytes: u64, lanes: u16) -> Self {
        Drives::with_slots(directory, drive_bytes, lanes, None)
    }

    /// The same with slots of a size that is not chosen by that of the drives.
    pub fn with_slots(directory: &Path, drive_bytes: u64, lanes: u16, slot_bytes: Option<u64>) -> Self {
        Drives::with(directory, (DATA, PARITY), drive_bytes, lanes, slot_bytes)
    }

    /// The same of another width: data and parity shards.
    pub fn of_width(directory: &Path, width: (u8, u8), drive_bytes: u64, lanes: u16) -> Self {
        Drives::with(directory, width, drive_bytes, lanes, None)
    }

    fn with(directory: &Path, (data, parity): (u8, u8), drive_bytes: u64, lanes: u16, slot_bytes: Option<u64>) -> Self {
        let directory = tempfile::TempDir::new_in(directory).expect("a directory can be made");
        let paths: Vec<PathBuf> = (0..data + parity).map(|n| directory.path().join(format!("drive{n}"))).collect();
        let mut options = InitOptions::new(data, parity);
        options.drive_bytes = Some(drive_bytes);
        options.lanes = Some(lanes);
        options.slot_bytes = slot_bytes;
        make(&paths, &options);
        Drives { directory, paths }
    }

    /// A place for a further drive.
    pub fn further(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts a server on them and waits until it serves.
    pub fn serve(&self, cache_bytes: u64) -> Server {
        let paths = self.paths.iter().map(|path| path.as_os_str());
        Starting::start(self.directory.path(), cache_bytes, paths, &[]).wait()
    }
}

/// A server that has been started and is waited for.
pub struct Starting {
    child: Child,
    ready: tempfile::TempDir,
    lines: Arc<Mutex<Vec<Line>>>,
}

/// What a server wrote to its log, and when it came here.
pub type Line = (Instant, String);

impl Starting {
    /// Starts `forebay serve` with these arguments, its files in a directory, with further variables.
    pub fn start(
        directory: &Path,
        cache_bytes: u64,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        environment: &[(&str, &Path)],
    ) -> Starting {
        let ready = tempfile::TempDir::new_in(directory).expect("a directory can be made");
        let config = ready.path().join("forebay.toml");
        let text = format!("[store]\ncache-bytes = {cache_bytes}\ndrive-timeout-ms = 60000\n");
        std::fs::write(&config, text).expect("the configuration can be written");
        let binary = binary();
        let mut child = Command::new(&binary)
            .args(["serve", "--listen", "127.0.0.1:0", "--ready-file"])
            .arg(ready.path().join("ready"))
            .arg("--config")
            .arg(&config)
            .args(arguments)
            .envs(environment.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("needs {}: `cargo build --release` makes it ({error})", binary.display()));
        let log = BufReader::new(child.stderr.take().expect("piped"));
        let lines: Arc<Mutex<Vec<Line>>> = Arc::default();
        let kept = Arc::clone(&lines);
        // Someone must read the log, or the server would wait.
        std::thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                kept.lock().expect("no panic").push((Instant::now(), line));
            }
        });
        Starting { child, ready, lines }
    }

    /// Waits until it serves, however long that takes.
    ///
    /// # Panics
    /// When it ends instead.
    pub fn wait(mut self) -> Server {
        let ready = self.ready.path().join("ready");
        loop {
            match std::fs::read_to_string(&ready) {
                Ok(address) if !address.trim().is_empty() => {
                    let address = address.trim().to_owned();
                    return Server { child: self.child, address, lines: self.lines };
                }
                _ => std::thread::sleep(Duration::from_millis(2)),
            }
            let ended = self.child.try_wait().expect("it can be asked");
            assert!(ended.is_none(), "the server ended: {:?}", self.lines.lock());
        }
    }
}

/// A server that is killed when this is dropped.
pub struct Server {
    child: Child,
    address: String,
    lines: Arc<Mutex<Vec<Line>>>,
}

impl Server {
    /// Where it listens.
    pub fn address(&self) -> String {
        self.address.clone()
    }

    /// A client of it.
    pub fn client(&self) -> Client {
        Client::connect(ClientConfig::new(self.address.clone(), "bench")).expect("the server answers")
    }

    /// User and system time that it has used, its kernel workers included, in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        cpu_seconds_of(self.child.id())
    }

    /// When it wrote a line with these words to its log.
    pub fn said(&self, words: &str) -> Option<Instant> {
        let lines = self.lines.lock().expect("no panic");
        lines.iter().find(|(_, line)| line.contains(words)).map(|(at, _)| *at)
    }

    /// Its memory in RAM, in bytes: now, and the most there was.
    pub fn resident_bytes(&self) -> (u64, u64) {
        resident_bytes_of(self.child.id()).expect("the server runs")
    }
}

/// User and system time that a process has used, in seconds.
///
/// # Panics
/// When it does not run.
pub fn cpu_seconds_of(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    // The name, in parentheses, may hold anything; user and system time are the 12th and 13th number behind it.
    let (_, numbers) = stat.rsplit_once(')').expect("the kernel writes a name");
    let ticks = |at: usize| numbers.split_whitespace().nth(at).and_then(|n| n.parse::<f64>().ok()).expect("a number");
    (ticks(11) + ticks(12)) / rustix::param::clock_ticks_per_second() as f64
}

/// The memory in RAM of a process, in bytes: now, and the most there was; nothing when it has ended.
pub fn resident_bytes_of(process: u32) -> Option<(u64, u64)> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some((kib("VmRSS:")? << 10, kib("VmHWM:")? << 10))
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGKILL; the kernel then lets go of the drives.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
