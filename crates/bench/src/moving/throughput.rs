//! Files from memory to a stock XRootD server on the same machine, beside `xrdcp`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Value, json};

use super::program::{BY_PROGRAMS, Mover, Ran, has_library, page_mode, take_back, xrdcp};
use super::xrootd::XRootDServer;
use crate::measure::{children_cpu_seconds, median};
use crate::process::cpu_seconds_of;

/// What is computed beside it: as an operator copies who wants a checksum compared.
const WITH_CHECKSUM: [&str; 2] = ["--cksum", "adler32:source"];

/// One way, one run.
struct Run {
    seconds: f64,
    cpu_seconds: f64,
    server_cpu_seconds: f64,
}

struct Setting<'a> {
    server: &'a XRootDServer,
    at: &'a Path,
    files: &'a [PathBuf],
    page_mode: bool,
    /// By XRootD's programs, or by its library.
    by_programs: bool,
}

impl Setting<'_> {
    /// All files at once, each by a program of its own.
    fn copied(&self, options: &[&str]) -> Run {
        let address = self.server.address("/copied");
        let (begin, cpu, server) = (Instant::now(), children_cpu_seconds(), cpu_seconds_of(self.server.process()));
        let copies: Vec<_> = (0..self.files.len())
            .map(|number| xrdcp(&self.files[number], &format!("{address}/{number}"), options, self.page_mode))
            .collect();
        for mut copy in copies {
            assert!(copy.wait().expect("it ran").success(), "xrdcp failed");
        }
        let run = Run {
            seconds: begin.elapsed().as_secs_f64(),
            cpu_seconds: children_cpu_seconds() - cpu,
            server_cpu_seconds: cpu_seconds_of(self.server.process()) - server,
        };
        fs::remove_dir_all(self.server.path("copied")).expect("removed");
        run
    }

    fn moved(&self) -> (Ran, f64) {
        let mover = Mover {
            directory: self.at,
            from: self.at.join("daq").display().to_string(),
            to: self.server.address("moved"),
            options: vec!["--streams".to_owned(), self.files.len().to_string()],
            environment: [page_mode(self.page_mode)]
                .into_iter()
                .chain(self.by_programs.then_some(BY_PROGRAMS))
                .collect(),
        };
        let server = cpu_seconds_of(self.server.process());
        let ran = mover.once();
        let server = cpu_seconds_of(self.server.process()) - server;
        fs::remove_dir_all(self.server.path("moved")).expect("removed");
        take_back(&self.at.join("daq"));
        (ran, server)
    }
}

/// So many bytes in one file and in eight, with sums of pages and without, by XRootD's programs and, where the mover has it, by its library.
pub fn throughput(directory: &Path, pairs: usize, payload_bytes: u64) -> Value {
    let server = XRootDServer::start().expect("needs xrootd-server: `make deps` installs it");
    let (mut rows, has_library) = (Vec::new(), has_library());
    for streams in [1, 8] {
        let at = tempfile::TempDir::new_in(directory).expect("a directory can be made");
        let files = make_files(at.path(), streams, payload_bytes);
        let ways = [true, false].into_iter().filter(|by_programs| *by_programs || has_library);
        for (by_programs, page_mode) in ways.flat_map(|by_programs| [(by_programs, true), (by_programs, false)]) {
            let setting = Setting { server: &server, at: at.path(), files: &files, page_mode, by_programs };
            let row = measure(&setting, pairs, payload_bytes);
            eprintln!("{row}");
            rows.push(row);
        }
    }
    Value::Array(rows)
}

fn make_files(at: &Path, streams: usize, payload_bytes: u64) -> Vec<PathBuf> {
    fs::create_dir(at.join("daq")).expect("made");
    let bytes = super::noise(1, payload_bytes as usize / streams);
    let make = |number: usize| {
        let path = at.join(format!("daq/file{number}.dat"));
        fs::write(&path, &bytes).expect("there is room");
        path
    };
    (0..streams).map(make).collect()
}

fn measure(setting: &Setting<'_>, pairs: usize, payload_bytes: u64) -> Value {
    let gb = payload_bytes as f64 / 1e9;
    let mut all: Vec<[f64; 11]> = Vec::new();
    // The first run pays for the memory of all.
    setting.copied(&[]);
    for _ in 0..pairs {
        let copied = setting.copied(&[]);
        let (moved, server) = setting.moved();
        let checked = setting.copied(&WITH_CHECKSUM);
        all.push([
            copied.seconds,
            moved.sending_seconds,
            copied.seconds / moved.sending_seconds,
            checked.seconds,
            moved.seconds,
            checked.seconds / moved.seconds,
            copied.cpu_seconds / gb,
            checked.cpu_seconds / gb,
            moved.cpu_seconds / gb,
            checked.server_cpu_seconds / gb,
            server / gb,
        ]);
    }
    let values = |at: usize| all.iter().map(|run| run[at]).collect::<Vec<f64>>();
    let of = |at: usize| median(values(at));
    json!({
        "by": if setting.by_programs { "programs" } else { "library" },
        "streams": setting.files.len(),
        "page_mode": setting.page_mode,
        "payload_bytes": payload_bytes,
        "pairs": pairs,
        "xrdcp_bytes_per_s": gb * 1e9 / of(0),
        "sending_bytes_per_s": gb * 1e9 / of(1),
        "sending_to_xrdcp": of(2),
        "xrdcp_with_checksum_bytes_per_s": gb * 1e9 / of(3),
        "whole_command_bytes_per_s": gb * 1e9 / of(4),
        "whole_command_to_xrdcp_with_checksum": of(5),
        "xrdcp_cpu_seconds_per_gb": of(6),
        "xrdcp_with_checksum_cpu_seconds_per_gb": of(7),
        "mover_cpu_seconds_per_gb": of(8),
        "server_cpu_seconds_per_gb_of_xrdcp_with_checksum": of(9),
        "server_cpu_seconds_per_gb_of_mover": of(10),
        "all": { "sending_to_xrdcp": values(2), "whole_command_to_xrdcp_with_checksum": values(5) },
    })
}
