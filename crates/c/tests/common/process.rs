//! The server of a test as a process of its own, so that it can be killed: the test program is run again, for the one test that serves.

use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::world::serve;

/// The name that the serving test has in each program that needs it.
const SERVING_TEST: &str = "a_server_that_can_be_killed";
/// Where the store lies, and where it is served.
const DIRECTORY: &str = "FOREBAY_TEST_SERVE";
const ADDRESS: &str = "FOREBAY_TEST_SERVE_AT";

/// A server; killed when it is dropped.
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts one, and waits until it serves.
    pub fn start(directory: &Path, listen: SocketAddr) -> Process {
        let ready = ready_file(directory);
        let _ = std::fs::remove_file(&ready);
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", SERVING_TEST, "--nocapture"]);
        command.env(DIRECTORY, directory).env(ADDRESS, listen.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
        while !ready.exists() {
            assert!(child.try_wait().expect("it can be asked").is_none(), "the server ended");
            std::thread::sleep(Duration::from_millis(10));
        }
        Process { child }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ready_file(directory: &Path) -> PathBuf {
    directory.join("ready")
}

/// The test that serves: nothing, unless another one has started it.
pub fn serve_when_asked() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let listen = std::env::var(ADDRESS).expect("said with it").parse().expect("an address");
    let server = serve(&directory, listen);
    std::fs::write(ready_file(&directory), "").expect("written");
    // Whoever started it holds its input for as long as it is wanted.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    server.stop().expect("a stop in order");
}
