//! The plug-in of XRootD, compiled as `docs/xrootd.md` says, and stock servers with the configuration that is shipped.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use super::credentials::Credentials;
use super::installed::{Installed, run};
use super::needs;

pub const NOBODY: u32 = 65534;
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plugins/xrootd");

/// The plug-in, beside the library that it uses.
pub struct Door {
    installed: Installed,
}

/// Compiled once for all tests of this program.
static SHARED: OnceLock<Door> = OnceLock::new();

impl Door {
    /// The plug-in; none where something for that is missing, which is said.
    pub fn shared() -> Option<&'static Door> {
        let has_all = ["c++", "cmake", "xrdcp", "curl"].into_iter().all(needs) && has_headers() && is_root();
        has_all.then(|| SHARED.get_or_init(Door::new))
    }

    fn new() -> Door {
        // SAFETY: it is called when the tests are over, and only removes a directory.
        unsafe { libc::atexit(remove_shared) };
        let installed = Installed::new();
        let build = installed.prefix().join("build");
        let mut configure = Command::new("cmake");
        configure.arg("-S").arg(SOURCES).arg("-B").arg(&build).arg("-DCMAKE_INSTALL_LIBDIR=lib");
        for name in ["CMAKE_PREFIX_PATH", "CMAKE_INSTALL_PREFIX"] {
            configure.arg(format!("-D{name}={}", installed.prefix().display()));
        }
        run(&mut configure);
        run(Command::new("cmake").arg("--build").arg(&build).args(["--parallel", "2"]));
        run(Command::new("cmake").arg("--install").arg(&build));
        // The server is no user of this directory's owner.
        let prefix = installed.prefix();
        for directory in [installed.place(), &prefix, &prefix.join("lib"), &prefix.join("bin")] {
            fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("set");
        }
        Door { installed }
    }

    /// A server before a store, with options behind its address.
    pub fn serve(&self, store: &str, options: &str) -> Gate {
        self.serve_as(&Setup::new(store, options))
    }

    pub fn serve_as(&self, setup: &Setup) -> Gate {
        let mut gate = Gate::new();
        while gate.child.is_none() {
            let refused = self.begin(&mut gate, setup);
            assert!(refused.is_none_or(|said| said.contains("address already in use")), "{}", gate.said());
        }
        gate
    }

    /// What a server says that does not start.
    pub fn refused(&self, store: &str, options: &str) -> String {
        self.begin(&mut Gate::new(), &Setup::new(store, options)).expect("it does not start")
    }

    /// Starts it with ports of its own, and waits until it answers; what it says where it ends instead.
    fn begin(&self, gate: &mut Gate, setup: &Setup) -> Option<String> {
        (gate.port, gate.http) = (free_port(), free_port());
        gate.configure(&self.installed.prefix(), setup);
        gate.begin()
    }
}

/// What a server is to be.
pub struct Setup<'a> {
    store: &'a str,
    /// Behind the address of the store.
    options: &'a str,
    /// The configuration that it has of those that are shipped.
    shipped: &'a str,
    credentials: Option<&'a Credentials>,
    /// Whether tokens are taken by `root://`, too.
    takes_tokens: bool,
}

impl<'a> Setup<'a> {
    pub fn new(store: &'a str, options: &'a str) -> Setup<'a> {
        Setup { store, options, shipped: "forebay.cfg", credentials: None, takes_tokens: false }
    }

    /// One with a certificate, and what needs one.
    pub fn with_tls(store: &'a str, credentials: &'a Credentials) -> Setup<'a> {
        Setup { credentials: Some(credentials), ..Setup::new(store, "") }
    }

    /// One that asks who comes.
    pub fn secure(store: &'a str, credentials: &'a Credentials) -> Setup<'a> {
        Setup { shipped: "forebay-secure.cfg", ..Setup::with_tls(store, credentials) }
    }

    /// One that asks who comes, and takes tokens by `root://`, too.
    pub fn with_tokens(store: &'a str, credentials: &'a Credentials) -> Setup<'a> {
        Setup { takes_tokens: true, ..Setup::secure(store, credentials) }
    }

    /// The configuration as it is shipped; where there is a certificate, with the lines that need one.
    fn text(&self) -> String {
        let text = fs::read_to_string(Path::new(SOURCES).join(self.shipped)).expect("it is shipped");
        let Some(credentials) = self.credentials else { return text };
        // Lines that are put out of use have no space behind their sign, as comments have.
        let in_use = |line: &str| match line.strip_prefix('#') {
            Some("sec.protocol ztn") if !self.takes_tokens => line.to_owned(),
            Some(rest) if !rest.starts_with(' ') => rest.to_owned(),
            _ => line.to_owned(),
        };
        let mut text: String = text.lines().map(|line| in_use(line) + "\n").collect();
        let places = [
            ("/etc/grid-security/xrd/xrdcert.pem", credentials.text("certificate.pem")),
            ("/etc/grid-security/xrd/xrdkey.pem", credentials.text("key.pem")),
            ("certdir /etc/grid-security/certificates", format!("certfile {}", credentials.text("certificate.pem"))),
            ("/etc/xrootd/sss.keytab", credentials.text("sss.keytab")),
        ];
        for (shipped, own) in places {
            text = text.replace(shipped, &own);
        }
        text
    }
}

/// What is shared is dropped by nobody.
extern "C" fn remove_shared() {
    if let Some(door) = SHARED.get() {
        let _ = fs::remove_dir_all(door.installed.place());
    }
}

fn has_headers() -> bool {
    let is_there = Path::new("/usr/include/xrootd/XrdVersion.hh").exists();
    if !is_there {
        println!("skipped: needs libxrootd-server-dev");
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must have libxrootd-server-dev");
    }
    is_there
}

/// A server that root starts becomes another user, to whom its directories are given here.
fn is_root() -> bool {
    let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if !is_root {
        println!("skipped: needs root, for the server's user");
    }
    is_root
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("an address").port()
}

/// A stock XRootD server.
pub struct Gate {
    place: tempfile::TempDir,
    port: u16,
    http: u16,
    environment: Vec<(&'static str, PathBuf)>,
    child: Option<Child>,
}

impl Gate {
    fn new() -> Gate {
        let place = tempfile::tempdir().expect("a directory");
        let gate = Gate { place, port: 0, http: 0, environment: Vec::new(), child: None };
        fs::set_permissions(gate.place.path(), fs::Permissions::from_mode(0o755)).expect("set");
        for name in ["admin", "run"] {
            fs::create_dir(gate.place.path().join(name)).expect("made");
            chown(gate.place.path().join(name), Some(NOBODY), Some(NOBODY)).expect("given");
        }
        gate
    }

    /// The configuration that is shipped, with the places of this test.
    fn configure(&mut self, prefix: &Path, setup: &Setup) {
        let here = self.place.path().display().to_string();
        let mut text = setup.text();
        let places = [
            ("127.0.0.1:7420", setup.store.to_owned()),
            ("libXrdForebay.so $store\nofs.ckslib", format!("libXrdForebay.so $store{}\nofs.ckslib", setup.options)),
            ("/var/spool/xrootd", format!("{here}/admin")),
            ("/run/xrootd", format!("{here}/run")),
            ("xrd.port 1094", format!("xrd.port {}\nxrd.network nodnr", self.port)),
            ("/usr/local/bin", prefix.join("bin").display().to_string()),
            ("http:8094", format!("http:{}", self.http)),
        ];
        for (shipped, own) in places {
            assert!(text.contains(shipped), "{shipped} is in what is shipped");
            text = text.replace(shipped, &own);
        }
        let text = text.replace("/usr/local/etc", &prefix.join("etc").display().to_string());
        fs::write(self.place.path().join("xrootd.cfg"), text).expect("written");
        self.environment = vec![("LD_LIBRARY_PATH", prefix.join("lib"))];
        if let Some(credentials) = setup.credentials {
            self.environment
                .extend([("XDG_CACHE_HOME", credentials.cache()), ("X509_CERT_DIR", credentials.vouching())]);
        }
    }

    /// Starts it, and waits until it answers; what it says where it ends instead.
    fn begin(&mut self) -> Option<String> {
        let log = File::create(self.log()).expect("a log");
        let mut command = Command::new("xrootd");
        command.args(["-R", "nobody", "-I", "v4", "-c"]).arg(self.place.path().join("xrootd.cfg"));
        command.envs(self.environment.iter().cloned()).env("RES_OPTIONS", "timeout:1 attempts:1").stdin(Stdio::null());
        command.current_dir(self.place.path().join("run")).stdout(log.try_clone().expect("a log")).stderr(log);
        let mut child = command.spawn().expect("it starts");
        // It is ready when it says so: a connection may meet somebody else who has taken its port.
        while !self
            .said()
            .lines()
            .any(|line| line.starts_with("------ xrootd ") && line.ends_with("initialization completed."))
        {
            if child.try_wait().expect("it can be asked").is_some() {
                return Some(self.said());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.child = Some(child);
        None
    }

    /// Kills it at once.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("ours to end");
        child.wait().expect("it ends");
    }

    /// Starts it again, where it was.
    pub fn start(&mut self) {
        // A connection of somebody else may have its port for a moment.
        while let Some(said) = self.begin() {
            assert!(said.contains("address already in use"), "{said}");
        }
    }

    /// What it says when it does not start again.
    pub fn does_not_start(&mut self) -> String {
        self.begin().expect("it ends")
    }

    fn log(&self) -> PathBuf {
        self.place.path().join("log")
    }

    /// What it has said until now.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.log()).unwrap_or_default()).into_owned()
    }

    pub fn url(&self, path: &str) -> String {
        format!("root://127.0.0.1:{}/{path}", self.port)
    }

    pub fn tls_url(&self, path: &str) -> String {
        format!("roots://localhost:{}/{path}", self.port)
    }

    pub fn http(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.http)
    }

    pub fn https(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.http)
    }

    /// The process.
    pub fn process(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// Memory of the files that it keeps.
    pub fn kept_bytes(&self) -> u64 {
        let process = self.process();
        let descriptors = fs::read_dir(format!("/proc/{process}/fd")).expect("it runs").flatten();
        let is_kept = |path: &PathBuf| {
            fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:forebay-kept"))
        };
        let kept = descriptors.map(|entry| entry.path()).filter(is_kept).filter_map(|path| fs::metadata(path).ok());
        kept.map(|memory| memory.blocks() * 512).sum()
    }

    /// `xrdcp` with these words.
    pub fn xrdcp(&self, words: &[&str]) -> Output {
        client("xrdcp").arg("--nopbar").args(words).output().expect("it runs")
    }

    /// `xrdfs` with these words.
    pub fn xrdfs(&self, words: &[&str]) -> Output {
        client("xrdfs").arg(format!("root://127.0.0.1:{}", self.port)).args(words).output().expect("it runs")
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A client of the field that asks no name server for long.
pub fn client(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("RES_OPTIONS", "timeout:1 attempts:1").stdin(Stdio::null());
    command
}

/// What a client said, when it went well.
#[track_caller]
pub fn good_client(output: &Output) -> String {
    let (said, words) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {said}{words}", output.status);
    said.into_owned()
}

/// What a client said, when it did not.
#[track_caller]
pub fn failed_client(output: &Output) -> String {
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!output.status.success(), "it should not go well: {said}");
    said
}
