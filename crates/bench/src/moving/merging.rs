//! What merging costs: a thousand files that become one on the way, beside the same bytes as one file. And what the sums cost.

use std::fs;
use std::hint::black_box;
use std::path::Path;

use forebay_rawdata::{Format, Generator};
use forebay_types::{Adler32, Crc32c, EventId, RunId};
use serde_json::{Value, json};

use super::program::{Mover, Ran, take_back};
use super::xrootd::XRootDServer;
use crate::measure::{measured, median};

const FILES: u64 = 1000;
/// More than all of them.
const ALL: &str = "100GB";

/// What files hold.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Anything: they become an archive.
    Any,
    /// Events, which are looked at one by one, and lie behind each other.
    Events,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Any => "archive",
            Kind::Events => "events",
        }
    }

    /// Many files, and one of their bytes in order; how many bytes these are.
    fn make(self, at: &Path, payload_bytes: u64) -> u64 {
        let each_bytes = (payload_bytes / FILES) as usize;
        let mut generator = Generator::new(Format::Faser, 1, RunId(7)).starting_at(EventId(1));
        let noise = super::noise(2, each_bytes);
        let mut whole = Vec::new();
        for directory in ["many", "one"] {
            fs::create_dir(at.join(directory)).expect("made");
        }
        for number in 0..FILES {
            let mut bytes = Vec::new();
            match self {
                Kind::Any => bytes.extend_from_slice(&noise),
                Kind::Events => {
                    while bytes.len() < each_bytes {
                        bytes.extend(generator.next_event().bytes);
                    }
                }
            }
            fs::write(at.join(format!("many/file{number:05}.{}", self.ending())), &bytes).expect("there is room");
            whole.extend(bytes);
        }
        fs::write(at.join(format!("one/file.{}", self.ending())), &whole).expect("there is room");
        whole.len() as u64
    }

    fn ending(self) -> &'static str {
        match self {
            Kind::Any => "dat",
            Kind::Events => "raw",
        }
    }
}

/// To a directory and to a server, both in memory.
pub fn merging(directory: &Path, pairs: usize, payload_bytes: u64) -> Value {
    let server = XRootDServer::start().expect("needs xrootd-server: `make deps` installs it");
    let mut rows = Vec::new();
    for kind in [Kind::Any, Kind::Events] {
        let at = tempfile::TempDir::new_in(directory).expect("a directory can be made");
        let bytes = kind.make(at.path(), payload_bytes);
        for to_server in [false, true] {
            let row = measure(at.path(), kind, to_server.then_some(&server), pairs, bytes);
            eprintln!("merging: {row}");
            rows.push(row);
        }
    }
    Value::Array(rows)
}

fn measure(at: &Path, kind: Kind, server: Option<&XRootDServer>, pairs: usize, bytes: u64) -> Value {
    let gb = bytes as f64 / 1e9;
    let mut all: Vec<[f64; 6]> = Vec::new();
    run(at, "one", server);
    for _ in 0..pairs {
        let (one, merged) = (run(at, "one", server), run(at, "many", server));
        let peaks = [one.resident_bytes_peak, merged.resident_bytes_peak].map(|bytes| bytes as f64);
        let ratio = one.seconds / merged.seconds;
        let cpu = [one.cpu_seconds / gb, merged.cpu_seconds / gb];
        all.push([gb * 1e9 / one.seconds, gb * 1e9 / merged.seconds, ratio, cpu[0], cpu[1], peaks[1]]);
    }
    let values = |at: usize| all.iter().map(|run| run[at]).collect::<Vec<f64>>();
    let of = |at: usize| median(values(at));
    json!({
        "files": FILES,
        "bytes": bytes,
        "becomes": kind.name(),
        "to": if server.is_some() { "xrootd" } else { "directory" },
        "pairs": pairs,
        "one_file_bytes_per_s": of(0),
        "merged_bytes_per_s": of(1),
        "merged_to_one_file": of(2),
        "one_file_cpu_seconds_per_gb": of(3),
        "merged_cpu_seconds_per_gb": of(4),
        "merged_resident_bytes_peak": of(5) as u64,
        "all": { "merged_to_one_file": values(2) },
    })
}

fn run(at: &Path, from: &str, server: Option<&XRootDServer>) -> Ran {
    let to = server.map_or_else(|| at.join("archive").display().to_string(), |server| server.address("archive"));
    let options = if from == "many" { vec!["--merge".to_owned(), ALL.to_owned()] } else { Vec::new() };
    let mover =
        Mover { directory: at, from: at.join(from).display().to_string(), to, options, environment: Vec::new() };
    let ran = mover.once();
    let kept = server.map_or_else(|| at.join("archive"), |server| server.path("archive"));
    let names = fs::read_dir(&kept).expect("listed").map(|entry| entry.expect("listed").file_name());
    let files = names.filter(|name| !name.as_encoded_bytes().starts_with(b"."));
    assert_eq!(files.count(), 1, "one file, besides what the place is known again by");
    fs::remove_dir_all(kept).expect("removed");
    take_back(&at.join(from));
    ran
}

/// What the sums take by themselves, of what the mover takes in all from one directory to another, where each byte is summed so often.
pub fn sums(directory: &Path, pairs: usize, payload_bytes: u64) -> Value {
    /// Looked at, sent, and read back by each name and once more.
    const PASSES: f64 = 5.0;
    let at = tempfile::TempDir::new_in(directory).expect("a directory can be made");
    Kind::Any.make(at.path(), payload_bytes);
    let bytes = super::noise(3, 1 << 20);
    let gb = payload_bytes as f64 / 1e9;
    let blocks = payload_bytes as usize / bytes.len();
    let mut all: Vec<[f64; 3]> = Vec::new();
    for _ in 0..pairs {
        let mover = run(at.path(), "one", None).cpu_seconds / gb;
        let (_, adler32) = measured(|| {
            let mut sum = Adler32::default();
            (0..blocks).for_each(|_| sum.update(black_box(&bytes)));
            black_box(sum.finish())
        });
        let (_, crc32c) = measured(|| {
            let mut sum = Crc32c::default();
            (0..blocks).for_each(|_| sum.update(black_box(&bytes)));
            black_box(sum.finish())
        });
        all.push([mover, adler32.cpu_seconds / gb, crc32c.cpu_seconds / gb]);
    }
    let of = |at: usize| median(all.iter().map(|run| run[at]).collect());
    json!({
        "mover_cpu_seconds_per_gb": of(0),
        "adler32_cpu_seconds_per_gb": of(1),
        "crc32c_cpu_seconds_per_gb": of(2),
        "passes": PASSES,
        "share_of_adler32": PASSES * of(1) / of(0),
        "share_of_crc32c": PASSES * of(2) / of(0),
    })
}
