//! The programs of the field that copy a file from or to a server.

use std::path::Path;
use std::process::{Command, Stdio};

use super::sides::Side;
use crate::moving::program::page_mode;

/// How a file is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// By `root://`, each page of 4 KiB with its sum or not.
    Xrdcp {
        /// With.
        page_mode: bool,
    },
    /// By `http://`.
    Curl,
}

/// `xrdcp` as it goes by default.
pub const XRDCP: Client = Client::Xrdcp { page_mode: true };
/// All of them.
pub const CLIENTS: [Client; 3] = [XRDCP, Client::Xrdcp { page_mode: false }, Client::Curl];

impl Client {
    /// What it is called in the results.
    pub fn name(self) -> &'static str {
        match self {
            Client::Xrdcp { page_mode: true } => "xrdcp, sums of pages",
            Client::Xrdcp { page_mode: false } => "xrdcp",
            Client::Curl => "curl",
        }
    }

    fn command(self) -> Command {
        let mut command = match self {
            Client::Xrdcp { page_mode: is_on } => {
                let mut xrdcp = Command::new("xrdcp");
                xrdcp.args(["--nopbar", "--silent", "--force"]).envs([page_mode(is_on)]);
                xrdcp
            }
            Client::Curl => {
                let mut curl = Command::new("curl");
                curl.args(["--silent", "--show-error", "--fail"]);
                curl
            }
        };
        command.env("RES_OPTIONS", "timeout:1 attempts:1").stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Reads a file, and keeps nothing of it.
    pub fn get(self, side: &Side, name: &str) -> Command {
        let mut command = self.command();
        match self {
            Client::Xrdcp { .. } => command.arg(side.root(name)).arg("/dev/null"),
            Client::Curl => command.args(["--output", "/dev/null"]).arg(side.http(name)),
        };
        command
    }

    /// Writes a file.
    pub fn put(self, side: &Side, source: &Path, name: &str) -> Command {
        let mut command = self.command();
        match self {
            Client::Xrdcp { .. } => command.arg(source).arg(side.root(name)),
            Client::Curl => command.arg("--upload-file").arg(source).arg(side.http(name)),
        };
        command
    }
}

/// Runs programs at the same time.
///
/// # Panics
/// When one of them fails.
pub fn all(commands: impl Iterator<Item = Command>) {
    let started: Vec<_> = commands
        .map(|mut command| {
            let child = command.spawn();
            (child.unwrap_or_else(|error| panic!("{command:?}: {error}; `make deps` installs it")), command)
        })
        .collect();
    for (mut child, command) in started {
        let status = child.wait().expect("it ran");
        assert!(status.success(), "{command:?} ended with {status}");
    }
}
