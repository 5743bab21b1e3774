//! A store that is looked at.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::Value;

use crate::common::{Drives, Ran, forebay, noise};

/// What is never to change.
fn state_of(path: &Path) -> Option<(Vec<u8>, SystemTime)> {
    let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some((fs::read(path).expect("read"), metadata.modified().expect("a time")))
}

/// Looks at drives, and sees that not a byte of them and no time of change became another.
pub fn doctor(options: &[&str], paths: &[PathBuf]) -> Ran {
    let before: Vec<_> = paths.iter().map(|path| state_of(path)).collect();
    let words = ["doctor"].into_iter().chain(options.iter().copied()).map(Into::into);
    let ran = forebay(words.chain(paths.iter().map(|path| path.as_os_str().to_owned())));
    let after: Vec<_> = paths.iter().map(|path| state_of(path)).collect();
    assert!(before == after, "a look changed a drive");
    ran
}

/// What `--json` tells.
pub fn told(exit: i32, paths: &[PathBuf]) -> Value {
    doctor(&["--json"], paths).expect(exit).json()
}

/// Drives with fragments in a store that was stopped in order: `1/EVENT/1` of 20,000 bytes each, event 0 to `count`.
pub fn stopped(count: u64) -> Drives {
    let drives = Drives::five();
    let server = drives.serve();
    for event in 0..count {
        server.put(&format!("1/{event}/1"), &payload(event)).expect(0);
    }
    server.terminate().expect(0);
    drives
}

/// The payload of an event of [`stopped`].
pub fn payload(event: u64) -> Vec<u8> {
    noise(event + 1, 20_000)
}

/// Where pieces of some bytes that are stored lie: drive and byte.
pub fn places(drives: &Drives, payload: &[u8]) -> Vec<(usize, u64)> {
    let mut found = Vec::new();
    for (drive, path) in drives.paths.iter().enumerate() {
        // Few fragments lie in the first slots, at multiples of eight bytes.
        let mut bytes = vec![0; 4 << 20];
        std::fs::File::open(path).and_then(|file| file.read_exact_at(&mut bytes, 0)).expect("read");
        let begins: Vec<&[u8]> = payload.chunks(1000).map(|piece| &piece[..64]).collect();
        let at = (0..bytes.len() - 64).step_by(8).filter(|at| begins.contains(&&bytes[*at..at + 64]));
        found.extend(at.map(|at| (drive, at as u64)));
    }
    assert!(!found.is_empty(), "the payload lies on the drives as it is");
    found
}

/// The drives that hold pieces of an event, each with a byte of one.
pub fn drives_of(drives: &Drives, event: u64) -> Vec<(usize, u64)> {
    drives_with(drives, &payload(event))
}

/// The drives that hold pieces of some bytes that are stored, each with a byte of one.
pub fn drives_with(drives: &Drives, payload: &[u8]) -> Vec<(usize, u64)> {
    let mut places = places(drives, payload);
    places.dedup_by_key(|(drive, _)| *drive);
    places
}

pub fn overwrite(path: &Path, offset_bytes: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).expect("a drive");
    file.write_all_at(bytes, offset_bytes).expect("written");
}

/// The shards of all segments that hold something.
pub fn shards(report: &Value) -> Vec<&Value> {
    let lanes = report["lanes"].as_array().expect("lanes");
    let segments = lanes.iter().flat_map(|lane| lane["segments"].as_array().expect("segments"));
    let used = segments.filter(|segment| segment["found"] != "empty");
    used.flat_map(|segment| segment["shards"].as_array().expect("shards")).collect()
}

pub fn drive_states(report: &Value) -> Vec<&str> {
    let drives = report["drives"].as_array().expect("drives");
    drives.iter().map(|drive| drive["state"].as_str().expect("a word")).collect()
}
