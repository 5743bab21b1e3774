//! A stock XRootD server with its HTTP door, for as long as a test needs it.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

/// The server; killed when it is dropped.
pub struct HttpDoor {
    directory: TempDir,
    server: Child,
    port: u16,
    has_tls: bool,
}

/// Whether the programs are installed. CI has them.
pub fn has_programs(names: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &&&str| std::env::split_paths(&path).any(|directory| directory.join(name).is_file());
    let missing = names.iter().find(|name| !is_there(name));
    if let Some(name) = missing {
        println!("skipped: needs {name}");
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must have {name}");
    }
    missing.is_none()
}

/// Two ports that nobody listened on just now.
pub fn free_ports() -> (u16, u16) {
    let listeners = [0; 2].map(|port| TcpListener::bind(("127.0.0.1", port)).expect("a port"));
    let [one, other] = listeners.map(|listener| listener.local_addr().expect("it listens").port());
    (one, other)
}

impl HttpDoor {
    /// Starts one, or says that it is not installed.
    pub fn start() -> Option<HttpDoor> {
        has_programs(&["xrootd"]).then(|| HttpDoor::with(false))
    }

    /// One that is reached by `https`; its certificate vouches for itself.
    pub fn start_with_tls() -> Option<HttpDoor> {
        has_programs(&["xrootd", "openssl"]).then(|| HttpDoor::with(true))
    }

    fn with(has_tls: bool) -> HttpDoor {
        let directory = tempfile::tempdir().expect("a directory");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("permitted");
        for name in ["data", "admin", "run"] {
            fs::create_dir(directory.path().join(name)).expect("made");
        }
        if has_tls {
            make_certificate(directory.path());
        }
        give_to_its_user(directory.path());
        // Another test may have taken the ports meanwhile.
        loop {
            if let Some((server, port)) = start(directory.path(), has_tls) {
                return HttpDoor { directory, server, port, has_tls };
            }
        }
    }

    /// Where it is reached.
    pub fn url(&self) -> String {
        let (scheme, host) = if self.has_tls { ("https", "localhost") } else { ("http", "127.0.0.1") };
        format!("{scheme}://{host}:{}", self.port)
    }

    /// The certificate of who vouches for it.
    pub fn ca_file(&self) -> PathBuf {
        self.directory.path().join("certificate.pem")
    }

    /// Where its files lie.
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Kills it at once.
    pub fn kill(&mut self) {
        self.server.kill().expect("it runs");
        self.server.wait().expect("it ends");
    }

    /// Starts it again, where it was.
    pub fn begin(&mut self) {
        // A connection of somebody else may have its port for a moment.
        self.server = loop {
            if let Some(server) = spawn(self.directory.path()) {
                break server;
            }
        };
    }
}

impl Drop for HttpDoor {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// It refuses to run as root.
fn is_root(directory: &Path) -> bool {
    fs::metadata(directory).expect("it is there").uid() == 0
}

fn give_to_its_user(directory: &Path) {
    if !is_root(directory) {
        return;
    }
    let id = |option: &str| {
        let output = Command::new("id").args([option, "xrootd"]).output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).trim().parse().expect("the package makes this user")
    };
    let (user, group) = (id("-u"), id("-g"));
    for entry in fs::read_dir(directory).expect("listed") {
        chown(entry.expect("listed").path(), Some(user), Some(group)).expect("given");
    }
}

const CERTIFICATE: &str = "[req]
distinguished_name = name
x509_extensions = extensions
prompt = no
[name]
CN = localhost
[extensions]
basicConstraints = critical,CA:FALSE
subjectAltName = DNS:localhost,IP:127.0.0.1
";

fn make_certificate(directory: &Path) {
    fs::write(directory.join("openssl.cfg"), CERTIFICATE).expect("written");
    let output = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
        .args(["-config", "openssl.cfg", "-keyout", "key.pem", "-out", "certificate.pem"])
        .current_dir(directory)
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::set_permissions(directory.join("key.pem"), fs::Permissions::from_mode(0o400)).expect("permitted");
}

/// Nothing when it ended because a port is taken.
fn start(directory: &Path, has_tls: bool) -> Option<(Child, u16)> {
    let (port, http_port) = free_ports();
    let shown = directory.display();
    let tls = if has_tls {
        // It fetches files from others only where it has a certificate.
        format!(
            "xrd.tls {shown}/certificate.pem {shown}/key.pem\nxrd.tlsca certfile {shown}/certificate.pem\nhttp.exthandler xrdtpc libXrdHttpTPC.so\n"
        )
    } else {
        String::new()
    };
    let config = format!(
        "all.role server\nall.export /\nall.adminpath {shown}/admin\nall.pidpath {shown}/run\noss.localroot {shown}/data\nxrd.port {port}\n\
         xrd.network nodnr\nxrootd.async off\nxrootd.chksum max 2 adler32\n{tls}xrd.protocol http:{http_port} libXrdHttp.so\n\
         http.selfhttps2http no\nhttp.desthttps no\n"
    );
    fs::write(directory.join("xrootd.cfg"), config).expect("written");
    spawn(directory).map(|server| (server, http_port))
}

/// Nothing when it ended because a port is taken. It is ready when it says so: a connection may meet somebody else who has taken its port.
fn spawn(directory: &Path) -> Option<Child> {
    let log = fs::File::create(directory.join("log")).expect("made");
    let mut command = Command::new("xrootd");
    if is_root(directory) {
        command.args(["-R", "xrootd"]);
    }
    command.args(["-I", "v4", "-c"]).arg(directory.join("xrootd.cfg")).current_dir(directory);
    // It asks for the machine's own name, which not every name server answers.
    command.env("RES_OPTIONS", "timeout:1 attempts:1");
    let errors = log.try_clone().expect("another");
    let mut server = command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().expect("it starts");
    loop {
        let said =
            fs::read(directory.join("log")).map(|log| String::from_utf8_lossy(&log).into_owned()).unwrap_or_default();
        if said.lines().any(|line| line.starts_with("------ xrootd ") && line.ends_with("initialization completed.")) {
            return Some(server);
        }
        if let Some(status) = server.try_wait().expect("looked at") {
            assert!(said.contains("address already in use"), "{status}: {said}");
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
