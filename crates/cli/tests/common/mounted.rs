//! The files of a store, mounted by the program itself.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{Drives, Ran, Server, program};

/// A mount; taken away and killed when dropped.
pub struct Mounted {
    child: Child,
    directory: TempDir,
    log: Option<JoinHandle<String>>,
}

/// Whether something is mounted there, as the kernel says; nobody who serves it is asked.
pub fn is_mounted(directory: &Path) -> bool {
    let directory = directory.to_str().expect("UTF-8");
    std::fs::read_to_string("/proc/self/mounts").expect("read").contains(directory)
}

/// Whether there is FUSE, for whoever runs the tests; says so when there is not.
pub fn has_fuse() -> bool {
    // A kernel without FUSE, or a container that hides it.
    if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        println!("skipped: needs /dev/fuse ({error})");
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must have /dev/fuse");
        return false;
    }
    let can_mount = rustix::process::geteuid().is_root() || has_program("fusermount3");
    if !can_mount {
        println!("skipped: needs fuse3, or root");
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must have fuse3");
    }
    can_mount
}

/// Whether a program that `make deps` installs is there; says so when it is not.
pub fn has_peer(name: &str) -> bool {
    let is_there = has_program(name);
    if !is_there {
        println!("skipped: needs {name}");
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must have {name}");
    }
    is_there
}

fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
}

impl Mounted {
    /// Mounts what a server has.
    pub fn start(address: &str, options: &[&str]) -> Mounted {
        Mounted::start_at(TempDir::new().expect("a directory"), address, options)
    }

    /// Mounts it there.
    pub fn start_at(directory: TempDir, address: &str, options: &[&str]) -> Mounted {
        let mut command = program();
        command.args(["mount", "--foreground", "--json"]).args(options).arg(address).arg(directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let mut stderr = child.stderr.take().expect("a pipe");
        let log = std::thread::spawn(move || {
            let mut log = Vec::new();
            let _ = stderr.read_to_end(&mut log);
            String::from_utf8_lossy(&log).into_owned()
        });
        let mounted = Mounted { child, directory, log: Some(log) };
        assert!(line.contains("\"directory\""), "it is mounted: {line:?}");
        mounted
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn join(&self, path: &str) -> PathBuf {
        self.path().join(path)
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed()).expect("a process")
    }

    /// SIGTERM, which unmounts.
    pub fn ask_to_end(&self) {
        kill_process(self.pid(), Signal::TERM).expect("a signal");
    }

    /// SIGTERM, and how it ended.
    pub fn terminate(self) -> Ran {
        self.ask_to_end();
        self.end().0
    }

    /// How it ended; and the directory, which may be mounted on again.
    pub fn end(mut self) -> (Ran, TempDir) {
        let status = self.child.wait().expect("it is ours");
        let stderr = self.log.take().expect("it is read").join().unwrap_or_default();
        let directory = std::mem::replace(&mut self.directory, TempDir::new().expect("a directory"));
        (Ran { exit: status.code().unwrap_or(-1), stdout: Vec::new(), stderr }, directory)
    }

    /// SIGKILL: the mount stands without anybody behind it. Gives the directory.
    pub fn kill(mut self) -> TempDir {
        self.child.kill().expect("killed");
        self.end().1
    }
}

/// Takes a mount away, as whoever may.
pub fn take_away(directory: &Path) {
    if unmount(directory, UnmountFlags::DETACH).is_err() {
        let _ = Command::new("fusermount3").args(["-u", "-q", "-z"]).arg(directory).status();
    }
}

/// Starts a server where one was killed, which a mount looks for. The port is free again when the process that had it is gone.
pub fn start_again(address: &str, drives: &Drives) -> Server {
    loop {
        match Server::start_at(address, &[], &drives.paths) {
            Ok(server) => return server,
            Err(ran) => assert!(ran.stderr.contains("in use"), "{ran:?}"),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        take_away(self.directory.path());
        if let Some(log) = self.log.take().filter(|_| std::thread::panicking()) {
            eprintln!("the log of the mount:\n{}", log.join().unwrap_or_default());
        }
    }
}
