//! Other stores, as somebody brought them up: small files in them beside ours.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::measure::measured;

/// Names peers: `NAME=PLACE`, with commas between them. A place is a directory in which a file system of the peer is mounted, or a `root://` URL.
const PEERS: &str = "FOREBAY_BENCH_PEERS";

/// The command that copies to `root://` URLs, with words before it when it must run elsewhere.
const XRDCP: &str = "FOREBAY_BENCH_XRDCP";

/// Where a peer's files are.
pub enum Place {
    Directory(PathBuf),
    /// Of an XRootD server.
    Url(String),
}

/// A store that is no file system of this machine alone.
pub struct Peer {
    pub name: String,
    pub place: Place,
}

/// The peers of this run; that there are none is said.
///
/// # Panics
/// When what names them cannot be read.
pub fn peers() -> Vec<Peer> {
    let words = std::env::var(PEERS).unwrap_or_default();
    let peer = |word: &str| {
        let (name, place) = word.split_once('=').unwrap_or_else(|| panic!("{PEERS}: {word:?} is not NAME=PLACE"));
        let place = match place.starts_with("root://") {
            true => Place::Url(place.trim_end_matches('/').to_owned()),
            false => Place::Directory(place.into()),
        };
        Peer { name: name.to_owned(), place }
    };
    let peers: Vec<Peer> = words.split(',').filter(|word| !word.is_empty()).map(peer).collect();
    if peers.is_empty() {
        eprintln!(
            "no other stores beside it: {PEERS} names none (NAME=DIRECTORY or NAME=root://HOST:PORT/, with commas between them)"
        );
    }
    peers
}

/// Copies so many small files a client to an XRootD server, each client by one run of `xrdcp`; files a second. The server does not make them durable.
///
/// # Panics
/// When they cannot be copied.
pub fn copied_per_s(directory: &Path, url: &str, run: &str, clients: usize, count: usize, bytes: &[u8]) -> f64 {
    let at = tempfile::TempDir::new_in(directory).expect("a directory can be made");
    let path = |client: usize| at.path().join(format!("{run}-{client}"));
    for client in 0..clients {
        fs::create_dir(path(client)).expect("made");
        for number in 0..count {
            fs::write(path(client).join(format!("w{number}")), bytes).expect("there is room");
        }
    }
    let words = std::env::var(XRDCP).unwrap_or_else(|_| "xrdcp".to_owned());
    let words: Vec<&str> = words.split_whitespace().collect();
    let (program, before) = words.split_first().unwrap_or_else(|| panic!("{XRDCP} names no program"));
    let copy = |client: usize| {
        let mut command = Command::new(program);
        command
            .args(before)
            .args(["--silent", "--path", "--recursive"])
            .arg(path(client))
            .arg(format!("{url}//{run}/"));
        command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}"))
    };
    let ((), cost) = measured(|| {
        let running: Vec<_> = (0..clients).map(copy).collect();
        for child in running {
            let output = child.wait_with_output().expect("it runs");
            assert!(output.status.success(), "xrdcp: {}", String::from_utf8_lossy(&output.stderr));
        }
    });
    (clients * count) as f64 / cost.seconds
}
