//! A Ceph of one monitor and one drive in memory, with its S3 gateway, for as long as tests need it.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tempfile::TempDir;

use super::http_door::{free_ports, has_programs};

const PROGRAMS: [&str; 9] =
    ["ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "curl", "monmaptool", "openssl", "radosgw", "radosgw-admin"];
const STARTS_MAX: u32 = 5;
const ID: &str = "9a5b1f9e-53d9-4d51-8c2c-6cf3c7a0f1a1";

/// The gateway and what it stands on; killed when it is dropped.
pub struct Gateway {
    directory: TempDir,
    daemons: Vec<Child>,
    port: u16,
}

static SHARED: Mutex<Weak<Gateway>> = Mutex::new(Weak::new());

impl Gateway {
    /// The one that the tests of a program share; nothing where it is not installed.
    pub fn shared() -> Option<Arc<Gateway>> {
        if !has_programs(&PROGRAMS) {
            return None;
        }
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let gateway = shared.upgrade().unwrap_or_else(|| Arc::new(Gateway::start()));
        *shared = Arc::downgrade(&gateway);
        Some(gateway)
    }

    /// One that a test may kill.
    pub fn own() -> Option<Gateway> {
        has_programs(&PROGRAMS).then(Gateway::start)
    }

    /// A port that was free may be taken before its daemon has it: then once more, with others.
    fn start() -> Gateway {
        let started = (0..STARTS_MAX).find_map(|_| Gateway::try_start());
        started.expect("a Ceph comes up")
    }

    fn try_start() -> Option<Gateway> {
        let directory = tempfile::tempdir().expect("a directory");
        let (monitor_port, port) = free_ports();
        let mut gateway = Gateway { directory, daemons: Vec::new(), port };
        for name in ["mon", "osd", "rgw", "run"] {
            fs::create_dir(gateway.path(name)).expect("made");
        }
        fs::write(gateway.path("ceph.conf"), config(gateway.directory.path(), monitor_port, port)).expect("written");
        gateway.make_keys();
        let monitor = format!("[v2:127.0.0.1:{monitor_port}]");
        let map = gateway.path("map").display().to_string();
        gateway.run("monmaptool", &["--create", "--fsid", ID, "--addv", "a", &monitor, &map]);
        let keys = gateway.path("keyring").display().to_string();
        gateway.run("ceph-mon", &["-i", "a", "--mkfs", "--monmap", &map, "--keyring", &keys]);
        gateway.spawn("ceph-mon", &["-i", "a", "-f"]);
        let told = gateway.command("ceph", &["--connect-timeout", "20", "osd", "new", ID]).output().expect("it runs");
        if !told.status.success() {
            eprintln!("a Ceph did not come up: {}", String::from_utf8_lossy(&told.stderr));
            return None;
        }
        gateway.run("ceph-osd", &["-i", "0", "--mkfs", "--osd-uuid", ID, "--no-mon-config"]);
        gateway.spawn("ceph-osd", &["-i", "0", "-f"]);
        gateway.spawn("radosgw", &["-n", "client.rgw", "-f"]);
        gateway.make_user("tester", "AKID", "SECRET");
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if gateway.daemons.iter_mut().any(|daemon| daemon.try_wait().expect("looked at").is_some()) {
                return None;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(gateway)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).env("CEPH_CONF", self.path("ceph.conf")).env_remove("CEPH_ARGS").stdin(Stdio::null());
        command
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let output = self.command(program, arguments).output().expect("it runs");
        assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn spawn(&mut self, program: &str, arguments: &[&str]) {
        let log = fs::File::create(self.path(&format!("{program}.log"))).expect("made");
        let errors = log.try_clone().expect("another");
        self.daemons.push(self.command(program, arguments).stdout(log).stderr(errors).spawn().expect("it starts"));
    }

    fn make_keys(&self) {
        let keys = self.path("keyring").display().to_string();
        self.run("ceph-authtool", &[&keys, "--create-keyring", "--gen-key", "-n", "mon.", "--cap", "mon", "allow *"]);
        for name in ["client.admin", "client.rgw", "osd.0"] {
            let rights = ["--cap", "mon", "allow *", "--cap", "osd", "allow *"];
            self.run("ceph-authtool", &[&[keys.as_str(), "--gen-key", "-n", name], &rights[..]].concat());
        }
    }

    fn make_user(&self, name: &str, key: &str, secret: &str) {
        let keys = ["--access-key", key, "--secret-key", secret];
        let user = ["-n", "client.rgw", "user", "create", "--uid", name, "--display-name", name];
        self.run("radosgw-admin", &[&user[..], &keys].concat());
    }

    /// A user who may keep no more than so much.
    pub fn make_user_with_quota(&self, name: &str, bytes: u64) {
        self.make_user(name, name, "SECRET");
        let bytes = bytes.to_string();
        let of = ["-n", "client.rgw", "--uid", name, "--quota-scope", "user"];
        self.run("radosgw-admin", &[&of[..], &["quota", "set", "--max-size", &bytes]].concat());
        self.run("radosgw-admin", &[&of[..], &["quota", "enable"]].concat());
    }

    /// Where the service is.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// A file with keys.
    pub fn credentials_file(&self, key: &str, secret: &str) -> PathBuf {
        let path = self.path(&format!("credentials-{key}-{secret}"));
        fs::write(&path, format!("[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n"))
            .expect("written");
        path
    }

    /// Makes a bucket.
    pub fn make_bucket(&self, key: &str, bucket: &str) {
        self.ask(key, "PUT", &["-X", "PUT"], bucket);
    }

    /// The bytes of an object, or what a bucket says.
    pub fn get(&self, path: &str) -> Vec<u8> {
        self.ask("AKID", "GET", &[], path)
    }

    /// Puts an object there, as somebody else does.
    pub fn put(&self, path: &str, bytes: &[u8]) {
        let file = self.path("put");
        fs::write(&file, bytes).expect("written");
        self.ask("AKID", "PUT", &["-T", &file.display().to_string()], path);
    }

    /// Takes an object away.
    pub fn remove(&self, path: &str) {
        self.ask("AKID", "DELETE", &["-X", "DELETE"], path);
    }

    /// By an address that is signed (version 2, which needs no more than HMAC).
    fn ask(&self, key: &str, method: &str, options: &[&str], path: &str) -> Vec<u8> {
        // What stands behind a `?` belongs to it only when it names something below.
        let signed = path.split("?list-type").next().unwrap_or(path).trim_end_matches('=');
        let signature = self.signature(&format!("{method}\n\n\n{EXPIRES_S}\n/{signed}"));
        let joined = if path.contains('?') { '&' } else { '?' };
        let url =
            format!("{}/{path}{joined}AWSAccessKeyId={key}&Expires={EXPIRES_S}&Signature={signature}", self.endpoint());
        let mut command = Command::new("curl");
        command.args(["-sS", "--fail-with-body", "--noproxy", "*"]).args(options).arg(&url);
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{url}: {}", String::from_utf8_lossy(&output.stdout));
        output.stdout
    }

    fn signature(&self, text: &str) -> String {
        let file = tempfile::NamedTempFile::new_in(self.directory.path()).expect("a file");
        fs::write(file.path(), text).expect("written");
        let options = ["dgst", "-sha1", "-mac", "HMAC", "-macopt", "key:SECRET", "-r"];
        let output = Command::new("openssl").args(options).arg(file.path()).output().expect("it runs");
        let hex = String::from_utf8_lossy(&output.stdout);
        let digits = hex.split_whitespace().next().expect("a digest");
        let bytes: Vec<u8> = (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("digits"))
            .collect();
        percent_encoded(&base64(&bytes))
    }

    /// Starts the gateway again where it was, and waits until it takes connections.
    pub fn begin(&mut self) {
        self.daemons.pop();
        self.spawn("radosgw", &["-n", "client.rgw", "-f"]);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let gateway = self.daemons.last_mut().expect("it was started last");
            assert!(gateway.try_wait().expect("looked at").is_none(), "it ended");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills the gateway at once.
    pub fn kill(&mut self) {
        let gateway = self.daemons.last_mut().expect("it was started last");
        gateway.kill().expect("it runs");
        gateway.wait().expect("it ends");
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

const EXPIRES_S: &str = "4000000000";

/// The base64 of a few bytes.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |group: &[u8]| {
        let all = group.iter().chain(&[0, 0]).take(3).fold(0, |all, byte| all << 8 | usize::from(*byte));
        let digit = |at: usize| if at > group.len() { '=' } else { DIGITS[all >> (18 - 6 * at) & 63] as char };
        (0..4).map(digit).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

fn percent_encoded(text: &str) -> String {
    text.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D")
}

/// A gateway that was killed while it completed an upload keeps others from that until its lock is over, ten minutes by default.
fn config(directory: &Path, monitor_port: u16, port: u16) -> String {
    let shown = directory.display();
    format!(
        "[global]\nfsid = {ID}\nmon_host = [v2:127.0.0.1:{monitor_port}]\npublic_addr = 127.0.0.1\ncluster_addr = 127.0.0.1\n\
         run_dir = {shown}/run\nadmin_socket =\nlog_file = {shown}/$name.log\ncrash_dir = {shown}\nkeyring = {shown}/keyring\n\
         osd_crush_chooseleaf_type = 0\nosd_pool_default_size = 1\nosd_pool_default_min_size = 1\nosd_pool_default_pg_num = 4\n\
         osd_pool_default_pg_autoscale_mode = off\nmon_allow_pool_size_one = true\nmon_max_pg_per_osd = 2000\nmon_data = {shown}/mon/a\n\
         mon_data_avail_crit = 0\npaxos_propose_interval = 0.1\nosd_data = {shown}/osd\nosd_objectstore = memstore\n\
         memstore_device_bytes = 2147483648\nosd_class_update_on_start = false\nrgw_data = {shown}/rgw\n\
         rgw_frontends = beast endpoint=127.0.0.1:{port}\nrgw_bucket_quota_ttl = 0\nrgw_user_quota_bucket_sync_interval = 1\n\
         rgw_mp_lock_max_time = 3\n"
    )
}
