//! Very many small files: what their index and their names take of memory, how long a start with them takes, and listing them.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use forebay_client::files::{Detail, Files, Owner, WriteOptions};
use serde_json::{Value, json};

use crate::files::{DATA, LANES, PARITY, connect};
use crate::measure::{measured, median};
use crate::process::{Drives, Server};
use crate::requests::status;

const CACHE_BYTES: u64 = 256 << 20;
/// Programs that make files at once.
const CLIENTS: usize = 64;
const OWNER: Owner = Owner { mode: 0o755, owner: 0, group: 0 };
/// A name of a file has so many bytes.
const NAME_BYTES: usize = 16;

/// What is made.
#[derive(Clone, Copy, Debug)]
pub struct ManyFiles {
    /// Files.
    pub files: usize,
    /// Of these, in one directory.
    pub directory_files: usize,
    /// Bytes of each.
    pub file_bytes: usize,
    /// Bytes of each drive.
    pub drive_bytes: u64,
}

/// What a server says, and what it takes.
#[derive(Clone, Copy, Debug)]
struct Memory {
    index_bytes: u64,
    names_bytes: u64,
    files: u64,
    resident_bytes: u64,
}

impl Memory {
    fn of(server: &Server) -> Memory {
        let status = status(&mut server.client());
        let number = |name: &str| status["totals"][name].as_u64().expect("the status has it");
        Memory {
            index_bytes: number("index_bytes"),
            names_bytes: number("names_bytes"),
            files: number("files"),
            resident_bytes: server.resident_bytes().0,
        }
    }

    /// Told memory of a file beside its name.
    fn per_file(&self, empty: &Memory, files: usize) -> f64 {
        let told = |memory: &Memory| memory.index_bytes + memory.names_bytes;
        (told(self) - told(empty)) as f64 / files as f64 - NAME_BYTES as f64
    }

    fn told(&self) -> Value {
        json!({
            "index_bytes": self.index_bytes,
            "names_bytes": self.names_bytes,
            "files": self.files,
            "resident_bytes": self.resident_bytes,
        })
    }
}

fn path_of(number: usize, shape: &ManyFiles) -> String {
    format!("/directory{:04}/{number:0NAME_BYTES$}", number / shape.directory_files)
}

fn make_all(server: &Server, shape: &ManyFiles) {
    let files = connect(server);
    for directory in 0..shape.files.div_ceil(shape.directory_files) {
        files.make_directory(format!("/directory{directory:04}"), &OWNER).expect("made");
    }
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let (files, bytes) = (connect(server), vec![7; shape.file_bytes]);
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= shape.files {
                        return;
                    }
                    let mut file = files.create(path_of(number, shape), &WriteOptions::default()).expect("made");
                    file.write(&bytes).and_then(|()| file.close()).expect("durable");
                }
            });
        }
    });
}

/// Seconds until all entries of a directory are there.
fn list(files: &Files, directory: &str, detail: Detail, expected: usize) -> f64 {
    let (found, cost) = measured(|| {
        let mut listing = files.list(directory, detail).expect("it is there");
        let mut found = 0;
        loop {
            match listing.next_page().expect("it is listed").len() {
                0 => break found,
                more => found += more,
            }
        }
    });
    assert_eq!(found, expected, "each name is listed once");
    cost.seconds
}

/// Makes them, starts the server anew some times after SIGKILL, and lists a directory.
pub fn many_files(directory: &Path, times: usize, shape: ManyFiles) -> Value {
    let drives = Drives::of_width(directory, (DATA, PARITY), shape.drive_bytes, LANES);
    let mut server = drives.serve(CACHE_BYTES);
    drop(connect(&server));
    let empty = Memory::of(&server);
    let ((), cost) = measured(|| make_all(&server, &shape));
    let made = Memory::of(&server);
    eprintln!("{} files made in {:.0} s: {made:?}", shape.files, cost.seconds);
    let last = path_of(shape.files - 1, &shape);
    let mut seconds = Vec::new();
    for _ in 0..times {
        drop(server);
        let begin = Instant::now();
        server = drives.serve(CACHE_BYTES);
        let files = connect(&server);
        let found = files.stat(&last).expect("what was acknowledged is there");
        seconds.push(begin.elapsed().as_secs_f64());
        assert_eq!(found.length(), Some(shape.file_bytes as u64));
    }
    let started = Memory::of(&server);
    let files = connect(&server);
    let count = shape.directory_files.min(shape.files);
    let (names_seconds, sizes_seconds) =
        (list(&files, "/directory0000", Detail::Names, count), list(&files, "/directory0000", Detail::Sizes, count));
    let result = json!({
        "benchmark": "many-files",
        "width": format!("{DATA}+{PARITY}"),
        "files": shape.files,
        "directory_files": shape.directory_files,
        "file_bytes": shape.file_bytes,
        "name_bytes": NAME_BYTES,
        "make_seconds": cost.seconds,
        "files_made_per_s": shape.files as f64 / cost.seconds,
        "empty": empty.told(),
        "made": made.told(),
        "started": started.told(),
        "bytes_per_file_beside_its_name": made.per_file(&empty, shape.files),
        "bytes_per_file_beside_its_name_after_a_start": started.per_file(&empty, shape.files),
        "start_seconds_median": median(seconds.clone()),
        "start_seconds": seconds,
        "list_seconds": names_seconds,
        "list_with_sizes_seconds": sizes_seconds,
    });
    eprintln!("{result}");
    result
}
