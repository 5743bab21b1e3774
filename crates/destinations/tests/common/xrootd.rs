//! A real XRootD server, as a child of the test, on a port of this machine alone.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

/// As root the server is run by this user, as it refuses to be root's.
const NOBODY: u32 = 65_534;

/// A server and the directory that it serves.
pub struct XRootDServer {
    directory: TempDir,
    port: u16,
    child: Option<Child>,
}

impl XRootDServer {
    /// One that computes Adler-32; none when it is not installed.
    pub fn start() -> Option<XRootDServer> {
        XRootDServer::start_with("xrootd.chksum max 2 adler32")
    }

    /// One with other lines in its configuration.
    pub fn start_with(lines: &str) -> Option<XRootDServer> {
        for program in ["xrootd", "xrdcp", "xrdfs"] {
            let mut command = Command::new(program);
            command.arg("-h").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            if command.status().is_err() {
                println!("skipped: needs xrootd-server and xrootd-client");
                assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must have {program}");
                return None;
            }
        }
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.expect("a directory");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("changed");
        let mut server = XRootDServer { directory, port: 0, child: None };
        for name in ["data", "admin", "run"] {
            server.own(&server.make(name));
        }
        // A port that was free may not be any more.
        while server.child.is_none() {
            server.port = free_port();
            server.configure(lines);
            server.begin();
        }
        Some(server)
    }

    fn make(&self, name: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::create_dir(&path).expect("made");
        path
    }

    /// Gives a file to the user by whom the server is run.
    pub fn own(&self, path: &Path) {
        if geteuid().is_root() {
            chown(path, Some(NOBODY), Some(NOBODY)).expect("given");
        }
    }

    fn configure(&self, lines: &str) {
        let here = self.directory.path().display();
        let text = format!(
            "all.role server\nall.export /\nall.adminpath {here}/admin\nall.pidpath {here}/run\noss.localroot {here}/data\n\
             xrd.port {}\nxrd.network nodnr\n{lines}\n",
            self.port
        );
        fs::write(self.directory.path().join("xrootd.cfg"), text).expect("written");
    }

    /// Starts it (again), and waits until it answers.
    pub fn begin(&mut self) {
        let mut command = Command::new("xrootd");
        command.arg("-c").arg(self.directory.path().join("xrootd.cfg")).args(["-I", "v4"]);
        if geteuid().is_root() {
            command.args(["-R", "nobody"]);
        }
        let log = fs::File::create(self.directory.path().join("xrootd.log")).expect("a log");
        command.current_dir(self.directory.path().join("run")).stdin(Stdio::null());
        // It asks for the machine's own name, which not every name server answers.
        command.env("RES_OPTIONS", "timeout:1 attempts:1");
        command.stdout(log.try_clone().expect("a log")).stderr(log);
        let mut child = command.spawn().expect("it starts");
        // It is ready when it says so: a connection may meet somebody else who has taken its port.
        loop {
            let log = fs::read(self.directory.path().join("xrootd.log")).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            if log.lines().any(|line| line.starts_with("------ xrootd ") && line.ends_with("initialization completed."))
            {
                break;
            }
            if child.try_wait().expect("it can be asked").is_some() {
                assert!(log.contains("address already in use"), "the server does not start: {log}");
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.child = Some(child);
    }

    /// The number of its process.
    pub fn process(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// Whether it was started.
    pub fn runs(&self) -> bool {
        self.child.is_some()
    }

    /// As `kill -9` does.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("killed");
            child.wait().expect("it ends");
        }
    }

    /// It runs no more, and is there still.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// It runs again.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.child.as_ref().expect("it runs")), signal).expect("signalled");
    }

    /// The address of a directory there.
    pub fn address(&self, path: &str) -> String {
        format!("root://127.0.0.1:{}/{path}", self.port)
    }

    /// Where it keeps what has a path.
    pub fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join("data").join(path)
    }

    /// All files that it has, by their paths.
    pub fn files(&self) -> Vec<String> {
        let root = self.path("");
        let mut found = Vec::new();
        let mut directories = vec![root.clone()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).expect("a directory") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    directories.push(path);
                } else {
                    found.push(path.strip_prefix(&root).expect("below").display().to_string());
                }
            }
        }
        found.sort();
        found
    }

    /// Puts a file there past the server.
    pub fn put(&self, path: &str, bytes: &[u8]) {
        let at = self.path(path);
        let parent = at.parent().expect("it has one");
        fs::create_dir_all(parent).expect("made");
        fs::write(&at, bytes).expect("written");
        parent.ancestors().take_while(|above| above.starts_with(self.path(""))).for_each(|above| self.own(above));
        self.own(&at);
    }

    /// The bytes of a file.
    pub fn get(&self, path: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path(path))
    }
}

impl Drop for XRootDServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}
