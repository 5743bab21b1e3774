//! Benchmarks of Forebay, each with its baseline beside it in the same run: machines are noisy and shared, so that ratios and medians
//! are what counts. Prints one JSON object; `make bench` keeps it in `bench/`.

mod acknowledgements;
mod bare;
mod ceph;
mod curves;
mod degraded;
mod disks;
mod doors;
mod endurance;
mod engine;
mod files;
mod fio;
mod iperf;
mod many_connections;
mod many_files;
mod many_writers;
mod measure;
mod memory;
mod moving;
mod occupancy;
mod open_files;
mod process;
mod rebuild;
mod recovery;
mod requests;
mod server;

use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Forebay's benchmarks, each with its baseline in the same run")]
struct Arguments {
    /// Where files are put: a directory on tmpfs with some GiB free.
    #[arg(long, default_value = "/dev/shm")]
    directory: PathBuf,
    /// Pairs of measurement and baseline.
    #[arg(long, default_value_t = 9)]
    pairs: usize,
    /// Keeps each result in this directory, as NAME.json.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Which one; all but `endurance`, which takes an hour, `doors`, which needs the plug-in of XRootD, and `ceph`, which needs Ceph, when not said.
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    /// One lane on files, 5+1, 10 KiB fragments, beside fio on the same file system.
    Engine {
        /// Bytes of a fragment.
        #[arg(long, default_value_t = 10 << 10)]
        fragment_bytes: usize,
        /// Bytes of fragments in each measurement.
        #[arg(long, default_value_t = 2 << 30)]
        payload_bytes: u64,
    },
    /// Bytes on media per byte of payload at low rates.
    Amplification,
    /// A server and a client over loopback, 10 KiB fragments, beside iperf3 and beside the bare path.
    Server,
    /// Puts, reads from memory and from the drives, and deletions, over sizes of fragments.
    Curves,
    /// Memory of a server under load, with several lanes and sizes of fragments.
    Memory,
    /// Making the shards of a lost drive anew: alone beside fio with the same mix, and beside puts at full rate.
    Rebuild {
        /// Bytes of fragments that are stored.
        #[arg(long, default_value_t = 3 << 29)]
        payload_bytes: u64,
    },
    /// How long acknowledgements take at half of the full rate: with all drives, when one is lost, after that, while what it held is made anew.
    Acknowledgements {
        /// Seconds of each state.
        #[arg(long, default_value_t = 10)]
        seconds: u64,
        /// Bytes of fragments that are stored all the while.
        #[arg(long, default_value_t = 4 << 30)]
        payload_bytes: u64,
    },
    /// Reads from the drives, with all drives there and with as many missing as the parity allows: 1 of 5+1, 2 of 8+2.
    Degraded {
        /// Bytes of fragments that are stored.
        #[arg(long, default_value_t = 1 << 30)]
        payload_bytes: u64,
    },
    /// Files of a GiB in all, written and read natively beside iperf3, and through a mount: in 1 and 8 streams.
    Files {
        /// Bytes of all files.
        #[arg(long, default_value_t = 1 << 30)]
        total_bytes: u64,
    },
    /// Names: a large directory, and small files made, looked at and removed, beside ext4.
    Names {
        /// Names in the large directory.
        #[arg(long, default_value_t = 100_000)]
        large: usize,
        /// Small files of each client.
        #[arg(long, default_value_t = 1000)]
        count: usize,
    },
    /// Slow writers of files beside four fast readers, against these readers alone.
    ManyWriters {
        /// Writers, each appending 32 kB a second to a file of its own.
        #[arg(long, default_value_t = 1000)]
        writers: usize,
        /// Seconds of each half of a pair.
        #[arg(long, default_value_t = 5.0)]
        seconds: f64,
    },
    /// Memory of a server for each open connection: idle, and having written a little.
    ManyConnections {
        /// Connections.
        #[arg(long, default_value_t = 10_000)]
        connections: usize,
    },
    /// Memory of a server for each file, a start with very many of them, and listing them.
    ManyFiles {
        /// Files.
        #[arg(long, default_value_t = 1_000_000)]
        files: usize,
        /// Of these, in one directory.
        #[arg(long, default_value_t = 100_000)]
        directory_files: usize,
        /// Bytes of each.
        #[arg(long, default_value_t = 4096)]
        file_bytes: usize,
        /// Bytes of each of the five drives.
        #[arg(long, default_value_t = 2 << 30)]
        drive_bytes: u64,
    },
    /// Puts at full rate, and how long their acknowledgements take, from 10 to 95 % occupancy.
    Occupancy,
    /// Memory of a server over an hour of puts, reads and deletions at 60 % occupancy, with fragments of all sizes.
    Endurance {
        /// How long.
        #[arg(long, default_value_t = 60.0)]
        minutes: f64,
    },
    /// How much the heads of simulated disks move, by the profile for disks and by that for flash: in virtual time, whatever the machine does.
    Disks {
        /// Disks; those of a server of the LHCb storage by default.
        #[arg(long, default_value_t = 60)]
        drives: u16,
        /// Data shards.
        #[arg(long, default_value_t = 8)]
        data: u8,
        /// Parity shards.
        #[arg(long, default_value_t = 2)]
        parity: u8,
        /// Bytes of fragments in each measurement.
        #[arg(long, default_value_t = 16 << 30)]
        payload_bytes: u64,
        /// Bytes of a fragment.
        #[arg(long, default_value_t = 256 << 10)]
        fragment_bytes: usize,
        /// Cores of the server, which the profile for flash goes by.
        #[arg(long, default_value_t = 32)]
        cores: u16,
        /// One scenario alone, by its name in the result.
        #[arg(long)]
        only: Option<String>,
    },
    /// The mover beside `xrdcp`: rates, what merging and sums cost, its journal, very many small files.
    Move {
        /// Bytes of each measurement of rates.
        #[arg(long, default_value_t = 1 << 30)]
        payload_bytes: u64,
        /// Files of one event each.
        #[arg(long, default_value_t = 10_000)]
        small_files: usize,
        /// Files of the large source.
        #[arg(long, default_value_t = 1_000_000)]
        source_files: usize,
        /// A directory on a disk, where the journal is measured, too.
        #[arg(long, default_value = "/var/tmp")]
        disk: PathBuf,
        /// One part alone, by its name in the result.
        #[arg(long)]
        only: Option<String>,
    },
    /// A stock XRootD server over a store beside one over a directory and a proxy before that, by `xrdcp` and `curl`; and what clients take of the processors by each door. Needs the plug-in installed.
    Doors {
        /// Bytes of each measurement. Some 17 times as much memory is taken: drives 8.75, the cache 5, the directory 3.
        #[arg(long, default_value_t = 1 << 30)]
        payload_bytes: u64,
        /// Where the plug-in and the library for C are installed (docs/xrootd.md).
        #[arg(long, default_value = "/usr/local")]
        xrootd_prefix: PathBuf,
        /// Further lines of configuration for the server over the directory alone.
        #[arg(long, default_value = "")]
        plain_lines: String,
        /// A Python that has the module `forebay`; without it that door is left out.
        #[arg(long)]
        python: Option<PathBuf>,
        /// One part alone: rates or cpu.
        #[arg(long)]
        only: Option<String>,
    },
    /// A store in the pools of a Ceph cluster beside `rados bench` and CephFS, slow writers beside readers on it, and takeovers. Needs Ceph, and the program with the feature `rados`.
    Ceph {
        /// Drives of the cluster, of 8+2.
        #[arg(long, default_value_t = 12)]
        drives: usize,
        /// Bytes of each of them. What is written is there 1.25 times, up to three times at once.
        #[arg(long, default_value_t = 3 << 29)]
        drive_bytes: u64,
        /// Bytes of each measurement of rates.
        #[arg(long, default_value_t = 1 << 30)]
        payload_bytes: u64,
        /// Fragments of the largest store that is taken over.
        #[arg(long, default_value_t = 1_000_000)]
        fragments: u64,
        /// One part alone: rates, slow_writers or takeover.
        #[arg(long)]
        only: Option<String>,
    },
    /// A destination of the mover that is away until the source is full to a high mark, and comes back.
    Backlog {
        /// What the readout writes a second.
        #[arg(long, default_value_t = 30_000_000)]
        bytes_per_s: u64,
        /// The destination comes back when so much waits.
        #[arg(long, default_value_t = 1_500_000_000)]
        high_mark_bytes: u64,
    },
    /// Opening a store after kill -9: of a million fragments of 10 KiB, and of ten million of 256 bytes, unless one of these is said.
    Recovery {
        /// Fragments.
        #[arg(long, requires = "fragment_bytes")]
        fragments: Option<u64>,
        /// Bytes of each.
        #[arg(long, requires = "fragments")]
        fragment_bytes: Option<usize>,
    },
}

fn main() {
    let arguments = Arguments::parse();
    let all = [
        What::Engine { fragment_bytes: 10 << 10, payload_bytes: 2 << 30 },
        What::Amplification,
        What::Recovery { fragments: None, fragment_bytes: None },
        What::Rebuild { payload_bytes: 3 << 29 },
        What::Degraded { payload_bytes: 1 << 30 },
        What::Acknowledgements { seconds: 10, payload_bytes: 4 << 30 },
        What::Server,
        What::Memory,
        What::Occupancy,
        What::Files { total_bytes: 1 << 30 },
        What::Names { large: 100_000, count: 1000 },
        What::ManyWriters { writers: 1000, seconds: 5.0 },
        What::ManyConnections { connections: 10_000 },
        What::ManyFiles { files: 1_000_000, directory_files: 100_000, file_bytes: 4096, drive_bytes: 2 << 30 },
        What::Curves,
        What::Move {
            payload_bytes: 1 << 30,
            small_files: 10_000,
            source_files: 1_000_000,
            disk: "/var/tmp".into(),
            only: None,
        },
        What::Backlog { bytes_per_s: 30_000_000, high_mark_bytes: 1_500_000_000 },
        What::Disks {
            drives: 60,
            data: 8,
            parity: 2,
            payload_bytes: 16 << 30,
            fragment_bytes: 256 << 10,
            cores: 32,
            only: None,
        },
    ];
    let chosen = arguments.what.as_ref().map_or(&all[..], std::slice::from_ref);
    for what in chosen {
        let result = run(what, &arguments.directory, arguments.pairs);
        println!("{result}");
        if let Some(out) = &arguments.out {
            let name = result["benchmark"].as_str().expect("each result has a name");
            keep(out, &format!("{name}.json"), &format!("{result:#}\n"));
            if let What::Backlog { .. } = what {
                keep(out, &format!("{name}.svg"), &moving::backlog::drawn(&result));
            }
        }
    }
}

fn keep(out: &Path, name: &str, text: &str) {
    let path = out.join(name);
    let written = std::fs::create_dir_all(out).and_then(|()| std::fs::write(&path, text));
    written.unwrap_or_else(|error| panic!("{} cannot be written: {error}", path.display()));
}

fn run(what: &What, directory: &Path, pairs: usize) -> serde_json::Value {
    match *what {
        What::Engine { fragment_bytes, payload_bytes } => {
            engine::throughput(directory, pairs, fragment_bytes, payload_bytes)
        }
        What::Amplification => engine::amplification(directory),
        What::Rebuild { payload_bytes } => rebuild::rebuild(directory, pairs.min(5), payload_bytes),
        What::Degraded { payload_bytes } => degraded::degraded(directory, pairs.min(5), payload_bytes),
        What::Acknowledgements { seconds, payload_bytes } => {
            acknowledgements::acknowledgements(directory, pairs.min(3), seconds, payload_bytes)
        }
        What::Recovery { fragments, fragment_bytes } => {
            let only = fragments.zip(fragment_bytes);
            let only = only.map(|(fragments, fragment_bytes)| recovery::Shape { fragments, fragment_bytes });
            recovery::recovery(directory, pairs, only)
        }
        What::Disks { drives, data, parity, payload_bytes, fragment_bytes, cores, ref only } => {
            let options = disks::Disks { drives, data, parity, payload_bytes, fragment_bytes, cores };
            disks::disks(options, only.as_deref())
        }
        What::Files { total_bytes } => files::files(directory, pairs.min(5), total_bytes),
        What::Names { large, count } => files::names(directory, pairs.min(3), large, count),
        What::ManyWriters { writers, seconds } => many_writers::many_writers(directory, pairs, writers, seconds),
        What::ManyConnections { connections } => many_connections::many_connections(directory, connections),
        What::ManyFiles { files, directory_files, file_bytes, drive_bytes } => {
            let shape = many_files::ManyFiles { files, directory_files, file_bytes, drive_bytes };
            many_files::many_files(directory, pairs.min(3), shape)
        }
        What::Move { payload_bytes, small_files, source_files, ref disk, ref only } => {
            let options = moving::Moving { payload_bytes, small_files, source_files, disk, only: only.as_deref() };
            moving::moving(directory, pairs.min(5), options)
        }
        What::Backlog { bytes_per_s, high_mark_bytes } => {
            moving::backlog::backlog(directory, moving::backlog::Backlog { bytes_per_s, high_mark_bytes })
        }
        What::Doors { payload_bytes, ref xrootd_prefix, ref plain_lines, ref python, ref only } => {
            let (python, only) = (python.as_ref(), only.as_deref());
            let options = doors::Doors { payload_bytes, xrootd_prefix, plain_lines, python, only };
            doors::doors(directory, pairs.min(5), options)
        }
        What::Ceph { drives, drive_bytes, payload_bytes, fragments, ref only } => {
            let options = ceph::Ceph { drives, drive_bytes, payload_bytes, fragments, only: only.as_deref() };
            ceph::ceph(directory, pairs.min(3), options)
        }
        What::Server => server::throughput(directory, pairs),
        What::Occupancy => occupancy::occupancy(directory, pairs),
        What::Memory => memory::resident(directory),
        What::Endurance { minutes } => endurance::endurance(directory, minutes),
        What::Curves => curves::curves(directory, pairs.min(3)),
    }
}
