//! Memory of a server that very many programs are connected to: idle, and each with a file that it has written a little of.

use std::path::Path;
use std::time::{Duration, Instant};

use forebay_client::files::{FileWriter, Files, WriteOptions};
use serde_json::{Value, json};

use crate::files::{DATA, DRIVE_BYTES, PARITY, connect};
use crate::measure::measured;
use crate::open_files;
use crate::process::{Drives, Server};
use crate::requests::{percentiles, status};

/// What was written is not kept: it would be counted for the connections.
const CACHE_BYTES: u64 = 0;
const WRITE_BYTES: usize = 4096;
/// Threads that the programs are shared out to.
const THREADS: usize = 8;
/// A program has one connection to the server, and one to its only lane.
const CONNECTIONS_PER_PROGRAM: usize = 2;
const LANES: u16 = 1;
/// For so long it is looked what a server does for whom nobody asks anything.
const IDLE: Duration = Duration::from_secs(3);

/// A program that is connected, with what it has open.
struct Program {
    files: Files,
    file: Option<FileWriter>,
}

/// Has each of them do something; how long each took, in milliseconds.
fn each(programs: &mut [Program], work: impl Fn(usize, &mut Program) + Sync) -> Vec<f64> {
    let share = programs.len().div_ceil(THREADS).max(1);
    std::thread::scope(|scope| {
        let shares: Vec<_> = programs
            .chunks_mut(share)
            .enumerate()
            .map(|(nth, programs)| {
                let work = &work;
                scope.spawn(move || -> Vec<f64> {
                    let timed = |(at, program): (usize, &mut Program)| {
                        let begin = Instant::now();
                        work(nth * share + at, program);
                        begin.elapsed().as_secs_f64() * 1e3
                    };
                    programs.iter_mut().enumerate().map(timed).collect()
                })
            })
            .collect();
        shares.into_iter().flat_map(|share| share.join().expect("none fails")).collect()
    })
}

fn connections(server: &Server) -> u64 {
    let mut client = server.client();
    let status = status(&mut client);
    let classes = status["connections"].as_object().expect("the status has connections");
    classes.values().filter_map(Value::as_u64).sum()
}

/// So many connections.
pub fn many_connections(directory: &Path, wanted: usize) -> Value {
    let drives = Drives::of_width(directory, (DATA, PARITY), DRIVE_BYTES, LANES);
    // Before the limit of this program is raised: the server raises its own.
    let server = drives.serve(CACHE_BYTES);
    let programs = wanted.div_ceil(CONNECTIONS_PER_PROGRAM);
    open_files::raise(programs * (CONNECTIONS_PER_PROGRAM + 1) + 100);
    // What one client costs is not what the first one does.
    drop(one_program(&server, 0));
    let resident = || server.resident_bytes().0;
    let before = resident();
    let (mut connected, cost) =
        measured(|| (0..programs).map(|_| Program { files: connect(&server), file: None }).collect::<Vec<_>>());
    let connect_seconds = cost.seconds;
    each(&mut connected, |_, program| drop(program.files.stat("/").expect("it answers")));
    let idle = (connections(&server), resident());
    let cpu = server.cpu_seconds();
    std::thread::sleep(IDLE);
    let idle_cpu = (server.cpu_seconds() - cpu) / IDLE.as_secs_f64();
    let wrote = each(&mut connected, |number, program| program.file = Some(write_a_little(&program.files, number)));
    let written = (connections(&server), resident());
    let again = each(&mut connected, |number, program| {
        let file = program.file.as_mut().expect("made before");
        file.write(&[number as u8; WRITE_BYTES]).and_then(|()| file.sync()).expect("durable");
    });
    let again_resident = resident();
    let index_bytes = status(&mut server.client())["totals"]["index_bytes"].as_u64();
    let each_bytes = |now: (u64, u64)| now.1.saturating_sub(before) as f64 / now.0.max(1) as f64;
    drop(connected);
    let result = json!({
        "benchmark": "many-connections",
        "width": format!("{DATA}+{PARITY}"),
        "connections": idle.0,
        "programs": programs,
        "connect_seconds": connect_seconds,
        "resident_bytes_before": before,
        "resident_bytes_idle": idle.1,
        "bytes_per_connection_idle": each_bytes(idle),
        "server_cpu_per_s_idle": idle_cpu,
        "write_bytes": WRITE_BYTES,
        "connections_written": written.0,
        "resident_bytes_written": written.1,
        "resident_bytes_written_again": again_resident,
        "index_bytes_written": index_bytes,
        "bytes_per_connection_written": each_bytes((written.0, again_resident)),
        "first_write_latency": percentiles(wrote),
        "next_write_latency": percentiles(again),
    });
    eprintln!("{result}");
    result
}

fn one_program(server: &Server, number: usize) -> Program {
    let files = connect(server);
    let mut file = write_a_little(&files, number);
    file.close().expect("durable");
    files.remove(file.path()).expect("it was made");
    Program { files, file: None }
}

fn write_a_little(files: &Files, number: usize) -> FileWriter {
    let mut file = files.create(format!("/file{number}"), &WriteOptions::default()).expect("made");
    file.write(&[number as u8; WRITE_BYTES]).and_then(|()| file.sync()).expect("durable");
    file
}
