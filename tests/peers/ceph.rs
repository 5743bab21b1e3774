//! A real Ceph cluster for tests, in a file of its own that the tests of several crates include.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A cluster, with pools `meta` (three copies) and `ec`.
pub struct Ceph {
    directory: PathBuf,
}

/// What a cluster takes.
const PROGRAMS: [&str; 3] = ["ceph-mon", "ceph-mgr", "ceph-osd"];

/// The monitor has the first two, the other daemons find theirs from 100 to 500 behind.
const PORTS_OF_CLUSTER: u16 = 501;
const PORT_FIRST: u16 = 12_000;
const PORT_BLOCKS: u16 = 40;

static SHARED: OnceLock<Option<Ceph>> = OnceLock::new();

impl Ceph {
    /// The one of this process, of three drives and 2+1, of which `CEPH_CONF` says where it is; it is ended with the process. Nothing where Ceph is not
    /// installed.
    #[allow(dead_code, reason = "each test file uses its own part")]
    pub fn shared() -> Option<&'static Ceph> {
        SHARED.get_or_init(|| Ceph::start(&PROGRAMS, &[])).as_ref()
    }

    /// The same with a file system. A process has one or the other.
    #[allow(dead_code, reason = "each test file uses its own part")]
    pub fn with_files() -> Option<&'static Ceph> {
        let programs = [&PROGRAMS[..], &["ceph-mds", "ceph-fuse"]].concat();
        SHARED.get_or_init(|| Ceph::start(&programs, &["--cephfs"])).as_ref()
    }

    /// As [`Ceph::shared`], of twelve drives in a host each and 8+2, both pools of which go on with two of the hosts lost. Only one of the two is in a process.
    #[allow(dead_code, reason = "each test file uses its own part")]
    pub fn of_hosts() -> Option<&'static Ceph> {
        let drives = ["--osds", "12", "--hosts", "--osd-size", "3G"];
        let pools = ["--k", "8", "--m", "2", "--min-size", "8", "--copies", "4", "--pgs", "16"];
        SHARED.get_or_init(|| Ceph::start(&PROGRAMS, &[&drives[..], &pools[..]].concat())).as_ref()
    }

    /// Starts the daemons that were killed, and waits until all is as it was.
    #[allow(dead_code, reason = "each test file uses its own part")]
    pub fn heal(&self) {
        let output = Command::new(peers().join("ceph-up.sh")).arg(&self.directory).output().expect("it runs");
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    }

    fn start(programs: &[&str], options: &[&str]) -> Option<Ceph> {
        let missing = programs.iter().find(|name| !is_installed(name));
        if let Some(name) = missing {
            println!("skipped: needs {name}");
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must have {name}");
            return None;
        }
        let directory = tempfile::Builder::new().prefix("forebay-ceph").tempdir().expect("a directory").keep();
        let stores = tempfile::Builder::new().prefix("forebay-ceph").tempdir_in(memory()).expect("a directory").keep();
        end_with_this_process(&directory, &stores);
        let output = Command::new(peers().join("ceph-up.sh"))
            .arg(&directory)
            .args(["--osds", "3", "--k", "2", "--m", "1", "--pgs", "8", "--osd-size", "3G"])
            .args(options)
            .args(["--port", &own_ports().to_string()])
            .arg("--osd-dir")
            .arg(stores.join("osd"))
            .output()
            .expect("it runs");
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
        // SAFETY: every other test of this process waits for this one value, and asks for nothing else of the environment meanwhile.
        unsafe { std::env::set_var("CEPH_CONF", directory.join("ceph.conf")) };
        Some(Ceph { directory })
    }

    /// The file that says where it is.
    #[allow(dead_code, reason = "each test file uses its own part")]
    pub fn configuration(&self) -> PathBuf {
        self.directory.join("ceph.conf")
    }

    /// The process of a daemon: `osd.0`, `mon.a`.
    #[allow(dead_code, reason = "each test file uses its own part")]
    pub fn process(&self, daemon: &str) -> i32 {
        let file = self.directory.join("run").join(format!("{daemon}.pid"));
        std::fs::read_to_string(file).expect("it runs").trim().parse().expect("a number")
    }
}

/// Whoever ends this process, the cluster goes with it: a shell waits for that.
fn end_with_this_process(directory: &Path, stores: &Path) {
    let script =
        "while kill -0 \"$1\" 2>/dev/null; do sleep 1; done; \"$2\" \"$3\" --purge --kill; rm -rf \"$3\" \"$4\"";
    let started = Command::new("setsid")
        .args(["--fork", "sh", "-c", script, "sh", &std::process::id().to_string()])
        .arg(peers().join("ceph-down.sh"))
        .args([directory, stores])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .expect("it runs");
    assert!(started.success(), "{started}");
}

fn peers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/peers")
}

fn memory() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// The first of the ports that are this cluster's alone. They are below those that the kernel gives to whoever asks for any, one of which could be taken between
/// the look and the start; the lock, which goes with the process, keeps them from clusters of other tests.
fn own_ports() -> u16 {
    for block in 0..PORT_BLOCKS {
        let first = PORT_FIRST + block * PORTS_OF_CLUSTER;
        let path = std::env::temp_dir().join(format!("forebay-ceph-ports-{first}"));
        // It may be another user's.
        let Ok(lock) = std::fs::File::create(path) else { continue };
        let is_free = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
        if lock.try_lock().is_ok() && (first..first + PORTS_OF_CLUSTER).all(is_free) {
            std::mem::forget(lock);
            return first;
        }
    }
    panic!("none of {PORT_BLOCKS} blocks of {PORTS_OF_CLUSTER} ports from {PORT_FIRST} on is free");
}
