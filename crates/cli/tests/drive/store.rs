//! A store of 4+1 whose drives are changed.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_types::FragmentId;
use serde_json::Value;
use tempfile::TempDir;

use super::common::load::{ids_of_run, put_all, verify};
use super::common::{Ran, Server, forebay, scratch};

/// The time between two looks at the server.
const LOOK: Duration = Duration::from_millis(10);

/// All is read from the drives, and none is judged by its speed.
const PATIENT: &str = "drive-timeout-ms = 60000\ncache-bytes = 0\n";

/// A store, its drives, and what is in it.
pub struct Store {
    directory: TempDir,
    pub paths: Vec<PathBuf>,
    pub ids: Vec<FragmentId>,
}

impl Store {
    /// Makes one on so many drives, each a file of so many MiB. `more` stands in the configuration beside what the tests need.
    pub fn make(drives: usize, drive_mebibytes: u64, more: &str) -> Store {
        let directory = scratch();
        let paths: Vec<PathBuf> = (0..drives).map(|number| directory.path().join(format!("drive{number}"))).collect();
        let size = format!("{drive_mebibytes}MiB");
        let options =
            ["init", "--data", "4", "--parity", "1", "--lanes", "2", "--slot-bytes", "1MiB", "--drive-bytes", &size];
        let words = options.iter().map(OsStr::new);
        forebay(words.chain(paths.iter().map(|path| path.as_os_str()))).expect(0);
        fs::write(directory.path().join("forebay.toml"), format!("[store]\n{PATIENT}{more}")).expect("written");
        Store { directory, paths, ids: Vec::new() }
    }

    /// Puts fragments of a run.
    pub fn fill(&mut self, server: &Server, run: u32, count: u64) {
        let ids = ids_of_run(run, count);
        put_all(&mut server.client("test"), &ids);
        self.ids.extend(ids);
    }

    /// Where a drive may be made.
    pub fn place(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// All drives but these.
    pub fn without(&self, gone: &[&Path]) -> Vec<PathBuf> {
        self.paths.iter().filter(|path| !gone.contains(&path.as_path())).cloned().collect()
    }

    pub fn serve(&self) -> Server {
        self.serve_on(&[], &self.paths)
    }

    pub fn serve_on(&self, options: &[&str], paths: &[PathBuf]) -> Server {
        let config = self.place("forebay.toml").display().to_string();
        let options: Vec<&str> = ["--config", &config].into_iter().chain(options.iter().copied()).collect();
        let started = Server::start_at("127.0.0.1:0", &options, paths);
        let mut server = started.unwrap_or_else(|ran| panic!("it did not start: {ran:?}"));
        server.collect_log();
        server
    }

    /// Everything that was put is right, read from the drives.
    #[track_caller]
    pub fn verify(&self, server: &Server) {
        assert_eq!(verify(&mut server.client("test"), &self.ids), self.ids.len() as u64);
    }

    /// Puts a new drive in and waits until it is a member; its path is one of the store's from then on. Gives its number.
    #[track_caller]
    pub fn replace(&mut self, server: &Server, drive: u16, name: &str) -> u16 {
        let path = self.place(name);
        let ran = drive_command(server, &["replace", &drive.to_string(), &path.display().to_string(), "--json"]);
        let told = ran.expect(0).json();
        assert_eq!((&told["done"], &told["drive"]), (&"replaced".into(), &drive.into()), "{told}");
        self.paths.push(path);
        told["number"].as_u64().and_then(|number| number.try_into().ok()).expect("a number")
    }
}

/// `forebay drive` on this server.
pub fn drive_command(server: &Server, words: &[&str]) -> Ran {
    let words: Vec<&str> = ["drive"].into_iter().chain(words.iter().copied()).collect();
    server.run(&words)
}

/// What `forebay drive list` tells scripts.
pub fn list(server: &Server) -> Value {
    drive_command(server, &["list", "--json"]).expect(0).json()
}

/// What it shows people.
pub fn screen(server: &Server) -> String {
    String::from_utf8(drive_command(server, &["list"]).expect(0).stdout).expect("UTF-8")
}

/// A drive in the list.
#[track_caller]
pub fn drive(list: &Value, number: u16) -> &Value {
    let drives = list["drives"].as_array().expect("a list");
    drives.iter().find(|drive| drive["number"] == number).unwrap_or_else(|| panic!("no drive {number} in {list}"))
}

/// Waits until nothing is missing; gives the list.
pub fn wait_until_whole(server: &Server) -> Value {
    wait_until(server, |list| list["whole"] == true)
}

/// Waits until the list is as it is to be.
pub fn wait_until(server: &Server, done: impl Fn(&Value) -> bool) -> Value {
    loop {
        let list = list(server);
        if done(&list) {
            return list;
        }
        std::thread::sleep(LOOK);
    }
}

/// A number of all lanes together.
#[track_caller]
pub fn total(server: &Server, pointer: &str) -> u64 {
    let status = server.status();
    let found = status["totals"].pointer(pointer).and_then(Value::as_u64);
    found.unwrap_or_else(|| panic!("no {pointer} in {status}"))
}
