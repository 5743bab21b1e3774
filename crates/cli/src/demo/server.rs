//! The server as a process of its own, which never outlives the demo.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::ground::Ground;
use super::place::Place;
use crate::failure::Failure;

/// How long the server may take until it serves an empty store.
const START: Duration = Duration::from_secs(60);
/// How long an orderly stop may take.
const STOP: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// What the demo's server is told beyond its defaults: a machine that is busy with everything at once must not take a slow
/// drive for a dead one, nor a slow writer for a missing one. With hardly a cache filters and recorder read from the drives, so that the
/// dead one is felt: what lay on it is computed from the others.
const CONFIG: &str = "\
[store]
cache-bytes = 1048576
drive-timeout-ms = 15000
incomplete-after-ms = 300000
";

/// The running server. Dropped, it is killed.
pub struct ChildServer {
    child: Child,
    address: String,
    /// The server stops when this is closed, however the demo ends.
    stdin: Option<ChildStdin>,
    ended: bool,
}

impl ChildServer {
    /// Starts it on the store and waits until it serves.
    ///
    /// # Errors
    /// Why it does not serve.
    pub fn start(place: &Place, ground: &Ground) -> Result<ChildServer, Failure> {
        let failed =
            |what: &str, error: std::io::Error| Failure::retry(format!("{what}: {error}; nothing was written"));
        std::fs::write(place.config(), CONFIG).map_err(|error| failed("the configuration cannot be written", error))?;
        let log = File::create(place.log()).map_err(|error| failed("the server's log cannot be written", error))?;
        let program = std::env::current_exe().map_err(|error| failed("the program does not find itself", error))?;
        let mut command = Command::new(program);
        command.args(["serve", "--json", "--allow-fault-injection", "--stop-at-stdin-end", "--listen", "127.0.0.1:0"]);
        command.arg("--config").arg(place.config()).args(ground.arguments());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        // Ctrl-C is for the demo, which then stops the server in order.
        command.process_group(0);
        let mut child = command.spawn().map_err(|error| failed("the server cannot be started", error))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let mut server = ChildServer { child, address: String::new(), stdin, ended: false };
        let stdout = stdout.expect("its stdout is a pipe");
        server.address = server.wait_until_ready(stdout)?;
        Ok(server)
    }

    fn wait_until_ready(&mut self, stdout: ChildStdout) -> Result<String, Failure> {
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            // An error or an end without a line is a line without an address.
            let _ = BufReader::new(stdout).read_line(&mut line);
            let _ = sender.send(line);
        });
        let line = receiver.recv_timeout(START).unwrap_or_default();
        let ready: Option<serde_json::Value> = serde_json::from_str(&line).ok();
        let address = ready.as_ref().and_then(|ready| ready.get("address")?.as_str().map(str::to_owned));
        address.ok_or_else(|| {
            let words = ready.as_ref().and_then(|ready| ready.get("error")?.as_str());
            let message = format!("the demo's server did not start: {}", words.unwrap_or("it said nothing"));
            // Whatever its reason is: the store was made for it just now, and nothing is in it.
            Failure::retry(message)
        })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().ok().flatten();
        self.ended |= status.is_some();
        status
    }

    /// Asks for an orderly stop and waits for it.
    ///
    /// # Errors
    /// How it ended instead.
    pub fn stop(&mut self) -> Result<(), String> {
        if let Some(pid) = Pid::from_raw(self.pid().cast_signed()).filter(|_| self.ended().is_none()) {
            // It may end by itself in this moment; the wait below tells.
            let _ = kill_process(pid, Signal::TERM);
        }
        let start = Instant::now();
        while start.elapsed() < STOP {
            match self.ended() {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("the server did not stop in order: {status}")),
                None => std::thread::sleep(LOOK),
            }
        }
        Err(format!("the server did not stop within {} s and was killed", STOP.as_secs()))
    }
}

impl Drop for ChildServer {
    fn drop(&mut self) {
        drop(self.stdin.take());
        if !self.ended {
            // By its own id, and only as long as nobody has waited for it.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
