//! A Ceph cluster on this machine, for as long as a benchmark takes.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::cpu_seconds_of;

/// Data and parity shards of the pool.
pub const WIDTH: &str = "8+2";
/// The erasure-coded pool.
pub const POOL: &str = "ec";
/// The replicated one.
pub const PLACES: &str = "meta";

/// Where the scripts are that start and end it.
const PEERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/peers");

/// So often it is tried to start one.
const TRIES: usize = 3;

/// A cluster that is ended when this is dropped.
pub struct Cluster {
    directory: tempfile::TempDir,
}

impl Cluster {
    /// Starts it with a file system, all below a directory.
    ///
    /// # Panics
    /// Where Ceph is not installed, or it does not come up.
    pub fn start(directory: &Path, drives: usize, drive_bytes: u64) -> Cluster {
        // Another program may take a port that was free.
        let mut tries = std::iter::repeat_with(|| Cluster::try_start(directory, drives, drive_bytes)).take(TRIES);
        tries.find_map(|cluster| cluster).expect("the cluster comes up: needs Ceph, which `make deps` installs")
    }

    fn try_start(directory: &Path, drives: usize, drive_bytes: u64) -> Option<Cluster> {
        let directory = tempfile::TempDir::with_prefix_in("ceph", directory).expect("a directory can be made");
        let cluster = Cluster { directory };
        let port = free_port();
        let status = Command::new(Path::new(PEERS).join("ceph-up.sh"))
            .arg(cluster.path())
            .args(["--osds", &drives.to_string(), "--osd-size", &drive_bytes.to_string()])
            .args(["--k", "8", "--m", "2", "--min-size", "8", "--cephfs", "--port", &port.to_string()])
            .stdout(std::io::stderr())
            .status()
            .expect("needs tests/peers/ceph-up.sh");
        status.success().then_some(cluster)
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Its configuration, which also names its keys.
    pub fn config(&self) -> PathBuf {
        self.path().join("ceph.conf")
    }

    /// A program that is told of it.
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.env("CEPH_CONF", self.config());
        command
    }

    /// User and system time that its drives' daemons have used, in seconds.
    pub fn drives_cpu_seconds(&self) -> f64 {
        let run = std::fs::read_dir(self.path().join("run")).expect("it was started");
        let names = run.map(|entry| entry.expect("it can be listed").path());
        let drives = names.filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with("osd.") && name.ends_with(".pid")
        });
        let process = |path: PathBuf| std::fs::read_to_string(path).expect("it runs").trim().parse().expect("a number");
        drives.map(|path| cpu_seconds_of(process(path))).sum()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let mut down = Command::new(Path::new(PEERS).join("ceph-down.sh"));
        let _ = down.arg(self.path()).args(["--purge", "--kill"]).stdout(std::io::stderr()).status();
    }
}

/// The first of two that follow each other.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port() & !1
}
