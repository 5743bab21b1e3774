//! Files through the native client and through a mount, beside iperf3 and the bare path, and names beside ext4: 4+1 on tmpfs.

pub mod mount;
mod names;
mod peers;

use std::io::Read;
use std::path::Path;

use bytes::Bytes;
use forebay_client::ClientConfig;
use forebay_client::files::{Files, ReadOptions, WriteOptions};
use serde_json::{Value, json};

use crate::bare;
use crate::iperf;
use crate::measure::{measured, median};
use crate::process::{Drives, Server};
use mount::Mount;
pub use names::names;

/// Of each store that holds files: its width, its lanes, the bytes of each drive and of the cache.
pub const DATA: u8 = 4;
/// See [`DATA`].
pub const PARITY: u8 = 1;
/// See [`DATA`].
pub const LANES: u16 = 2;
/// See [`DATA`].
pub const DRIVE_BYTES: u64 = 3 << 29;
/// See [`DATA`].
pub const CACHE_BYTES: u64 = 2 << 30;
/// What is read and written at once.
pub const REQUEST_BYTES: usize = 1 << 20;
const STREAMS: [usize; 2] = [1, 8];
const IPERF_SECONDS: u32 = 2;
/// What the bare path sums at once.
const BARE_BYTES: u64 = 10 << 10;

/// A client of the files of a server.
pub fn connect(server: &Server) -> Files {
    connect_by(server, Way::Best)
}

/// Bytes a second of each part of a round.
#[derive(Clone, Copy, Default)]
struct Round {
    iperf: f64,
    bare: f64,
    write: f64,
    write_shared: f64,
    write_network: f64,
    read_cached: f64,
    read_network: f64,
    read_drives: f64,
    mount_write: f64,
    mount_read: f64,
    mount_read_direct: f64,
}

/// So many streams at once, each with a connection and a file of its own.
fn each_stream(streams: usize, total_bytes: u64, work: impl Fn(usize, u64) + Sync) -> f64 {
    let bytes = total_bytes / streams as u64;
    let ((), cost) = measured(|| {
        std::thread::scope(|scope| {
            for stream in 0..streams {
                let work = &work;
                scope.spawn(move || work(stream, bytes));
            }
        });
    });
    total_bytes as f64 / cost.seconds
}

/// What is written is copied, as most callers have it written, or shared.
#[derive(Clone, Copy)]
enum Given {
    Copied,
    Shared,
}

/// How the client reaches its server: as it finds best, which on one machine is memory that both share, or by the network.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Best,
    Network,
}

fn connect_by(server: &Server, way: Way) -> Files {
    let config = ClientConfig { local: way == Way::Best, ..ClientConfig::new(server.address(), "bench") };
    Files::connect(config).expect("the server answers")
}

fn write_natively(server: &Server, streams: usize, total_bytes: u64, given: Given, way: Way) -> f64 {
    let block: Bytes = (0..REQUEST_BYTES).map(|at| (at * 7 + at / 251) as u8).collect();
    each_stream(streams, total_bytes, |stream, bytes| {
        let files = connect_by(server, way);
        let mut file = files.create(format!("/native{stream}"), &WriteOptions::default()).expect("made");
        for _ in 0..bytes / REQUEST_BYTES as u64 {
            match given {
                Given::Copied => file.write(&block),
                Given::Shared => file.write_shared(block.clone()),
            }
            .expect("there is room");
        }
        file.close().expect("durable");
    })
}

/// Removes what each stream wrote.
fn remove(server: &Server, streams: usize, by: &[&str]) {
    let files = connect(server);
    let names = (0..streams).flat_map(|stream| by.iter().map(move |by| format!("/{by}{stream}")));
    names.for_each(|name| files.remove(name).expect("it was made"));
}

fn read_natively(server: &Server, streams: usize, total_bytes: u64, way: Way) -> f64 {
    each_stream(streams, total_bytes, |stream, bytes| {
        let files = connect_by(server, way);
        let mut file = files.open_read(format!("/native{stream}"), &ReadOptions::default()).expect("it is there");
        read_all(&mut file, bytes);
    })
}

/// Reads so many bytes in requests.
fn read_all(file: &mut impl Read, bytes: u64) {
    let (mut block, mut found) = (vec![0; REQUEST_BYTES], 0);
    loop {
        match file.read(&mut block).expect("it is read") {
            0 => break,
            more => found += more as u64,
        }
    }
    assert_eq!(found, bytes, "all of it is there");
}

fn round(directory: &Path, streams: usize, total_bytes: u64) -> Round {
    let iperf = iperf::bytes_per_s_of(IPERF_SECONDS, streams);
    let (data, parity) = (usize::from(DATA), usize::from(PARITY));
    let bare = bare::bytes_per_s(directory, data, parity, BARE_BYTES as usize, total_bytes / BARE_BYTES);
    let drives = Drives::of_width(directory, (DATA, PARITY), DRIVE_BYTES, LANES);
    let server = drives.serve(CACHE_BYTES);
    // The first time the system has to find the memory of the server's cache, and of the kernel's, which costs as much as all else: as much is written before
    // anything is measured as then, and is there together.
    for _ in 0..2 {
        write_natively(&server, streams, total_bytes, Given::Copied, Way::Best);
        let mounted = Mount::of(&server, "native0");
        mounted.read(streams, total_bytes);
        mounted.write(streams, total_bytes);
        drop(mounted);
        remove(&server, streams, &["native", "mount"]);
    }
    let write_shared = write_natively(&server, streams, total_bytes, Given::Shared, Way::Best);
    remove(&server, streams, &["native"]);
    let write_network = write_natively(&server, streams, total_bytes, Given::Copied, Way::Network);
    remove(&server, streams, &["native"]);
    let write = write_natively(&server, streams, total_bytes, Given::Copied, Way::Best);
    let read_cached = read_natively(&server, streams, total_bytes, Way::Best);
    let read_network = read_natively(&server, streams, total_bytes, Way::Network);
    // The kernel's cache gets the memory back that it had here.
    Mount::of(&server, "native0").read(streams, total_bytes);
    let mounted = Mount::of(&server, "native0");
    let mount_read = mounted.read(streams, total_bytes);
    let mount_read_direct = Mount::with(&server, "native0", &["--direct-io"]).read(streams, total_bytes);
    let mount_write = mounted.write(streams, total_bytes);
    drop(mounted);
    drop(server);
    let server = drives.serve(0);
    let read_drives = read_natively(&server, streams, total_bytes, Way::Best);
    Round {
        iperf,
        bare,
        write,
        write_shared,
        write_network,
        read_cached,
        read_network,
        read_drives,
        mount_write,
        mount_read,
        mount_read_direct,
    }
}

/// Files of `total_bytes` in all, written and read in requests of a MiB.
pub fn files(directory: &Path, rounds: usize, total_bytes: u64) -> Value {
    let streams: Vec<Value> = STREAMS
        .into_iter()
        .map(|streams| {
            let rounds: Vec<Round> = (0..rounds)
                .map(|number| {
                    let round = round(directory, streams, total_bytes);
                    let gb = |bytes_per_s: f64| bytes_per_s / 1e9;
                    eprintln!(
                        "{streams} streams, round {number}: iperf3 {:.2} GB/s, bare path {:.2}; native write {:.2}, shared {:.2}, by the network {:.2}, read {:.2}, by the network {:.2}, from the drives {:.2}; mount write {:.2}, read {:.2}, past the kernel's cache {:.2}",
                        gb(round.iperf), gb(round.bare), gb(round.write), gb(round.write_shared), gb(round.write_network), gb(round.read_cached), gb(round.read_network), gb(round.read_drives), gb(round.mount_write), gb(round.mount_read), gb(round.mount_read_direct)
                    );
                    round
                })
                .collect();
            summary(streams, &rounds)
        })
        .collect();
    json!({
        "benchmark": "files",
        "width": format!("{DATA}+{PARITY}"),
        "request_bytes": REQUEST_BYTES,
        "total_bytes": total_bytes,
        "rounds": rounds,
        "streams": streams,
    })
}

fn summary(streams: usize, rounds: &[Round]) -> Value {
    let speed = |of: fn(&Round) -> f64| median(rounds.iter().map(of).collect());
    let ratios = |of: fn(&Round) -> f64, to: fn(&Round) -> f64| -> Value {
        let all: Vec<f64> = rounds.iter().map(|round| of(round) / to(round)).collect();
        json!({ "median": median(all.clone()), "rounds": all })
    };
    json!({
        "streams": streams,
        "iperf3_bytes_per_s": speed(|round| round.iperf),
        "bare_path_bytes_per_s": speed(|round| round.bare),
        "native_write_bytes_per_s": speed(|round| round.write),
        "native_write_shared_bytes_per_s": speed(|round| round.write_shared),
        "native_write_network_bytes_per_s": speed(|round| round.write_network),
        "native_read_network_bytes_per_s": speed(|round| round.read_network),
        "native_read_cached_bytes_per_s": speed(|round| round.read_cached),
        "native_read_drives_bytes_per_s": speed(|round| round.read_drives),
        "mount_write_bytes_per_s": speed(|round| round.mount_write),
        "mount_read_bytes_per_s": speed(|round| round.mount_read),
        "mount_read_direct_bytes_per_s": speed(|round| round.mount_read_direct),
        "native_write_to_iperf3": ratios(|round| round.write, |round| round.iperf),
        "native_write_shared_to_iperf3": ratios(|round| round.write_shared, |round| round.iperf),
        "native_write_network_to_iperf3": ratios(|round| round.write_network, |round| round.iperf),
        "native_read_network_to_iperf3": ratios(|round| round.read_network, |round| round.iperf),
        "native_write_to_bare_path": ratios(|round| round.write, |round| round.bare),
        "native_write_shared_to_bare_path": ratios(|round| round.write_shared, |round| round.bare),
        "native_read_cached_to_iperf3": ratios(|round| round.read_cached, |round| round.iperf),
        "native_read_drives_to_iperf3": ratios(|round| round.read_drives, |round| round.iperf),
        "mount_write_to_native": ratios(|round| round.mount_write, |round| round.write),
        "mount_read_to_native": ratios(|round| round.mount_read, |round| round.read_cached),
        "mount_write_to_native_network": ratios(|round| round.mount_write, |round| round.write_network),
        "mount_read_to_native_network": ratios(|round| round.mount_read, |round| round.read_network),
        "mount_read_direct_to_native": ratios(|round| round.mount_read_direct, |round| round.read_cached),
    })
}
