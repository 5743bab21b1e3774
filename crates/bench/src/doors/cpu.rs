//! What a client takes of the processors to read a GB of a store, and to write it, by each of the doors.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use forebay_client::files::{ReadOptions, WriteOptions};
use serde_json::{Value, json};

use super::clients::{CLIENTS, Client};
use super::prefix::Prefix;
use super::sides::{Sides, read_name, written_name};
use crate::files::mount::Mount;
use crate::files::{REQUEST_BYTES, connect};
use crate::measure::{children_cpu_seconds, measured, median};
use crate::process::{Server, cpu_seconds_of};

/// The sources of the programs that are measured.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/doors");

/// How a client comes to a store.
enum Way {
    Rust,
    Cpp(PathBuf),
    Mount,
    Python(PathBuf),
    Server(Client),
}

/// What one copy took.
#[derive(Clone, Copy)]
struct Cost {
    seconds: f64,
    cpu_seconds: f64,
}

struct World<'a> {
    sides: &'a Sides,
    server: &'a Server,
    read: String,
    written: String,
    source: PathBuf,
}

impl Way {
    fn name(&self) -> &'static str {
        match self {
            Way::Rust => "Rust",
            Way::Cpp(_) => "C++",
            Way::Mount => "mount",
            Way::Python(_) => "Python, fsspec",
            Way::Server(client) => client.name(),
        }
    }

    fn read(&self, world: &World<'_>) -> Cost {
        let path = format!("/{}", world.read);
        match self {
            Way::Rust => cost_of_this(|| {
                let mut file = connect(world.server).open_read(&path, &ReadOptions::default()).expect("it is there");
                each_block(|block| file.read(block).expect("it is read"), |_| {});
            }),
            Way::Cpp(program) => cost(Command::new(program).args(["read", &world.server.address(), &path])),
            Way::Mount => {
                let mounted = Mount::of(world.server, &world.read);
                through(&mounted, Command::new("dd").arg(option("if", &mounted.path(&world.read))).arg("of=/dev/null"))
            }
            Way::Python(python) => cost(script(python).args(["read", &world.server.address(), &path])),
            Way::Server(client) => cost(&mut client.get(&world.sides.store, &world.read)),
        }
    }

    fn write(&self, world: &World<'_>) -> Cost {
        let path = format!("/{}", world.written);
        let cost = match self {
            Way::Rust => cost_of_this(|| {
                let mut source = File::open(&world.source).expect("it was made");
                let mut file = connect(world.server).create(&path, &WriteOptions::default()).expect("made");
                let write = |block: &[u8]| file.write(block).expect("there is room");
                each_block(|block| source.read(block).expect("it is read"), write);
                file.close().expect("durable");
            }),
            Way::Cpp(program) => {
                cost(Command::new(program).args(["write", &world.server.address(), &path]).arg(&world.source))
            }
            Way::Mount => {
                let mounted = Mount::of(world.server, &world.read);
                let mut dd = Command::new("dd");
                dd.arg(option("if", &world.source)).arg(option("of", &mounted.path(&world.written))).arg("conv=fsync");
                through(&mounted, &mut dd)
            }
            Way::Python(python) => {
                cost(script(python).args(["write", &world.server.address(), &path]).arg(&world.source))
            }
            Way::Server(client) => cost(&mut client.put(&world.sides.store, &world.source, &world.written)),
        };
        world.sides.store.remove(&world.written, world.sides.payload_bytes);
        cost
    }
}

fn script(python: &Path) -> Command {
    let mut command = Command::new(python);
    command.arg("-B").arg(Path::new(SOURCES).join("client.py"));
    command
}

fn option(name: &str, path: &Path) -> String {
    format!("{name}={}", path.display())
}

fn each_block(mut read: impl FnMut(&mut [u8]) -> usize, mut write: impl FnMut(&[u8])) {
    let mut block = vec![0; REQUEST_BYTES];
    loop {
        match read(&mut block) {
            0 => break,
            count => write(&block[..count]),
        }
    }
}

fn cost_of_this(work: impl FnOnce()) -> Cost {
    let ((), cost) = measured(work);
    Cost { seconds: cost.seconds, cpu_seconds: cost.cpu_seconds }
}

/// Of a program, with its start.
fn cost(command: &mut Command) -> Cost {
    let (begin, cpu) = (Instant::now(), children_cpu_seconds());
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?} ended with {status}");
    Cost { seconds: begin.elapsed().as_secs_f64(), cpu_seconds: children_cpu_seconds() - cpu }
}

/// Of a program and the mount that it uses.
fn through(mounted: &Mount, command: &mut Command) -> Cost {
    command.arg(format!("bs={REQUEST_BYTES}")).arg("status=none");
    let before = cpu_seconds_of(mounted.process());
    let cost = cost(command);
    Cost { cpu_seconds: cost.cpu_seconds + cpu_seconds_of(mounted.process()) - before, ..cost }
}

/// One file at a time, by all ways in turn.
pub fn cpu(sides: &Sides, prefix: &Prefix, python: Option<&PathBuf>, rounds: usize) -> Value {
    sides.fill();
    let place = tempfile::tempdir().expect("a directory can be made");
    let program = place.path().join("client");
    prefix.compile(&Path::new(SOURCES).join("client.cpp"), &program);
    let mut ways = vec![Way::Rust, Way::Cpp(program), Way::Mount];
    ways.extend(CLIENTS.map(Way::Server));
    ways.extend(python.map(|python| Way::Python(python.clone())));
    let world = World {
        sides,
        server: sides.store.server().expect("one side has a store"),
        read: read_name(1, 0),
        written: written_name(0),
        source: sides.source(1, 0),
    };
    let read = in_turn(&ways, rounds, |way| way.read(&world));
    let write = in_turn(&ways, rounds, |way| way.write(&world));
    let row = |(way, (read, write)): (&Way, (Vec<Cost>, Vec<Cost>))| {
        let row = json!({ "way": way.name(), "read": summary(&read, sides), "write": summary(&write, sides) });
        eprintln!("{row}");
        row
    };
    Value::Array(ways.iter().zip(read.into_iter().zip(write)).map(row).collect())
}

/// What each way took in each round. The first one pays for the memory of all, and is not counted.
fn in_turn(ways: &[Way], rounds: usize, copy: impl Fn(&Way) -> Cost) -> Vec<Vec<Cost>> {
    let mut found = vec![Vec::new(); ways.len()];
    for round in 0..=rounds {
        for (way, costs) in ways.iter().zip(&mut found) {
            let cost = copy(way);
            if round > 0 {
                costs.push(cost);
            }
        }
    }
    found
}

fn summary(costs: &[Cost], sides: &Sides) -> Value {
    let bytes = sides.payload_bytes as f64;
    let per_gb: Vec<f64> = costs.iter().map(|cost| cost.cpu_seconds / (bytes / 1e9)).collect();
    json!({
        "cpu_seconds_per_gb": median(per_gb.clone()),
        "bytes_per_s": bytes / median(costs.iter().map(|cost| cost.seconds).collect()),
        "all": { "cpu_seconds_per_gb": per_gb },
    })
}
