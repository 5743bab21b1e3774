//! `forebay serve`: serves a store until a signal.

use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use forebay_engine::OpenError;
use forebay_media::{OpenDriveError, OpenMediaError};
use forebay_server::{Listener, RatedWrites, Server, ServerConfig, ServerError, StartError, StopHandle};
use forebay_store::{OpenStoreError, OpenedStore, StoreConfig};
use forebay_takeover::Patience;
use signal_hook::iterator::Signals;

use crate::arguments::{parse_address, parse_networks};
use crate::config::{self, FileConfig};
use crate::failure::Failure;
use crate::interrupt::{self, Interrupt};
use crate::output::{self, Output};
use crate::owned::Owned;
use crate::pool::{PoolOptions, Pools};
use crate::shared::{self, FenceOptions};

/// The time between two looks whether all lanes serve.
const LOOK: Duration = Duration::from_millis(50);

const AFTER_HELP: &str = "\
Examples:
  forebay serve /data/d0 /data/d1 /data/d2 /data/d3 /data/d4
      serves the store on these five drives to programs on this machine
  forebay serve --listen 10.1.0.5:7420 --insecure-network 10.1.0.0/16 /dev/nvme?n1
      serves the machines of a private network. Nobody checks who they are: they can read, write and delete everything
  forebay serve --metrics 127.0.0.1:9420 --rated-writes-tb 1200 /dev/nvme?n1
      serves metrics too, and tells when the drives will be worn out
  forebay serve --read-only /data/d0 /data/d1 /data/d2
      reads what too few drives for writing still give; nothing is written to them
  forebay serve --media rados:ec,meta --name buffer1 --standby --listen 10.1.0.6:7420 --insecure-network 10.1.0.0/16
      takes the store over when the server that has it dies (docs/ceph.md)
  forebay serve --standby --fence-command '/etc/forebay/fence' --listen 10.1.0.6:7420 --insecure-network 10.1.0.0/16 /mnt/cephfs/store/drive0
      the same for a file that both machines mount: the command makes sure that the other server is dead (docs/ceph.md)
  forebay serve --print-config > forebay.toml
      writes a configuration with every key, its default and what it means
  forebay serve --config forebay.toml /data/d?
      serves as a configuration says; a file may hold only the keys that it changes

When the store is served, one line on stdout says so (with --json one object with the address). SIGTERM or Ctrl-C: what is
new is refused, what was taken is made durable and answered, the drives are marked clean, exit code 0. A second signal
ends the server at once; what was acknowledged is safe then too.

Exit codes: 1 when the drives are damaged, copies of each other or have two histories; 2 when a drive belongs to another
store, is given twice or is a directory, or the configuration is wrong; 3 when drives are missing, in use or do not answer, the
address is taken, or the server ended by itself: what was acknowledged is on the drives.";

/// The options of `serve`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ServeCommand {
    /// Where to listen, IP:PORT; port 0 takes any free port [default: the configuration's, else 127.0.0.1:7420]
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    listen: Option<SocketAddr>,

    /// The configuration, a TOML file [default: none, every key has its default]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Write nothing; any number of the store's drives will do [default: read and write]
    #[arg(long)]
    read_only: bool,

    /// Go on writing when too few drives are left for the store's protection: new data have at least so many parities, as many more as the
    /// drives allow [default: as many as the store was made with, and puts are refused with fewer drives]
    #[arg(long, value_name = "N")]
    parity_min: Option<u8>,

    /// Let machines of this network in without asking who they are, IP/BITS; repeatable [default: this machine alone]
    #[arg(long, value_name = "CIDR")]
    insecure_network: Vec<String>,

    /// Serve metrics for Prometheus over HTTP at /metrics of this address, IP:PORT; port 0 takes any free port [default: the configuration's,
    /// else none]
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    metrics: Option<SocketAddr>,

    /// How much may be written to a drive in its life, in units of 10^12 bytes: TB for all drives, DRIVE:TB for the drive of that number;
    /// repeatable. `status` tells from it when a drive is worn out [default: the configuration's, else not known]
    #[arg(long, value_name = "[DRIVE:]TB")]
    rated_writes_tb: Vec<RatedWrites>,

    /// Write the address into this file while the store is served, for scripts; one that is there is removed first [default: none]
    #[arg(long, value_name = "PATH")]
    ready_file: Option<PathBuf>,

    /// Let clients make drives fail; for tests and the demo
    #[arg(long, hide = true)]
    allow_fault_injection: bool,

    /// Ask files for their wear as block devices are; for tests
    #[arg(long, hide = true)]
    smart_of_files: bool,

    /// Stop when stdin ends, so that no server outlives the program that started it
    #[arg(long, hide = true)]
    stop_at_stdin_end: bool,

    #[command(flatten)]
    pool: PoolOptions,

    #[command(flatten)]
    fence: FenceOptions,

    /// With --media or --fence-command: wait until the server that has the store is gone, and take it over then [default: when a server has it that lives, end]
    #[arg(long, conflicts_with = "read_only")]
    standby: bool,

    /// With --media or --fence-command: a server that shows no life for so many seconds counts as dead; the same for all servers of a store [default: 9; with --media as the last owner had it]
    #[arg(long, value_name = "SECONDS")]
    dead_after: Option<u64>,

    /// Print a configuration with every key, its default and what it means, and end
    #[arg(long)]
    print_config: bool,

    /// The drives of the store, in any order
    #[arg(value_name = "DRIVE", required_unless_present_any = ["print_config", "media"], conflicts_with = "media")]
    drives: Vec<PathBuf>,
}

/// Serves until it is stopped.
///
/// # Errors
/// Why the store is not served, or not any more.
pub fn run(command: &ServeCommand, output: &Output) -> Result<(), Failure> {
    if command.print_config {
        return print_config(output);
    }
    let FileConfig { mut store, mut server } = match &command.config {
        Some(path) => FileConfig::load(path)?,
        None => FileConfig::default(),
    };
    store.read_only = command.read_only;
    store.parity_min = command.parity_min;
    store.fault_injection = command.allow_fault_injection;
    server.listen = command.listen.unwrap_or(server.listen);
    server.metrics = command.metrics.or(server.metrics);
    server.rated_writes_tb.extend(&command.rated_writes_tb);
    server.smart_of_files = command.smart_of_files;
    server.insecure_network.extend(parse_networks(&command.insecure_network)?);
    if command.allow_fault_injection {
        tracing::warn!(
            "FAULT INJECTION IS ON: any client can make drives fail. This is for tests; never run a store that matters so"
        );
    }
    let ready_file = ReadyFile::new(command.ready_file.as_deref())?;
    let signals = interrupt::signals();
    let interrupt = Interrupt::catch()?;
    let signals = Signals::new(signals)
        .map_err(|error| Failure::retry(format!("signals cannot be caught: {error}; nothing was started")))?;
    let Some(Ground { opened, listener, owned }) = open(command, &store, &server, &interrupt)? else { return Ok(()) };
    opened.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let ready = Ready::of(&opened);
    let server = Server::start(opened, listener).map_err(start_failure)?;
    owned.listens_at(server.local_addr());
    watch_signals(interrupt, signals, server.stop_handle())?;
    if command.stop_at_stdin_end {
        watch_stdin(server.stop_handle())?;
    }
    let stop = server.stop_handle();
    match wait_until_serving(&server, &ready) {
        Ok(true) => {
            let addresses = (server.local_addr(), server.metrics_addr());
            if let Err(failure) = tell_ready(&ready_file, &ready, addresses, output) {
                stop.stop();
                let _ = server.wait();
                return Err(failure);
            }
        }
        Ok(false) => {}
        Err(failure) => {
            stop.stop();
            let _ = server.wait();
            return Err(failure);
        }
    }
    let end = server.wait().map_err(|error @ ServerError::Thread { .. }| Failure::retry(error))?;
    owned.give_back();
    if end.clean {
        tracing::info!("stopped; the drives are marked clean");
    } else if !command.read_only {
        tracing::warn!(
            "stopped without the mark of a clean stop: nothing acknowledged is lost, the next start looks for torn flushes"
        );
    }
    Ok(())
}

/// What a server stands on, and where it listens.
struct Ground {
    opened: OpenedStore,
    listener: Listener,
    owned: Owned,
}

/// Opens the store, and listens; nothing when a standby was stopped while it waited.
fn open(
    command: &ServeCommand,
    store: &StoreConfig,
    server: &ServerConfig,
    interrupt: &Interrupt,
) -> Result<Option<Ground>, Failure> {
    if let Some(place) = command.pool.store() {
        return open_in_pool(command, place, store, server, interrupt);
    }
    if let Some(fence) = command.fence.command() {
        return open_shared(command, fence, store, server, interrupt);
    }
    refuse_alone(command)?;
    let listener = Server::bind(server).map_err(start_failure)?;
    let opened = forebay_store::open(&command.drives, store).map_err(open_failure)?;
    Ok(Some(Ground { opened, listener, owned: Owned::Alone }))
}

/// What cannot be meant by a server that shares its drives with no other.
fn refuse_alone(command: &ServeCommand) -> Result<(), Failure> {
    if command.standby || command.dead_after.is_some() {
        let option = if command.standby { "--standby" } else { "--dead-after" };
        return Err(Failure::usage(format!(
            "{option} is for a store that another server may have, and on drives nothing keeps a server away that is taken for dead and lives. Nothing was started.              When the drives are files that both machines mount, say with --fence-command how the other one is ended for certain (docs/ceph.md, \"Files on a mounted file \
             system\")"
        )));
    }
    if command.read_only { Ok(()) } else { shared::refuse_without_fence(&command.drives) }
}

fn patience(command: &ServeCommand) -> Patience {
    if command.standby { Patience::ForEver } else { Patience::UntilSeenAlive }
}

/// A standby listens when it serves: until then its clients go to the other.
fn listen_early(command: &ServeCommand, server: &ServerConfig) -> Result<Option<Listener>, Failure> {
    (!command.standby).then(|| Server::bind(server)).transpose().map_err(start_failure)
}

/// Files that other servers mount.
fn open_shared(
    command: &ServeCommand,
    fence: &str,
    store: &StoreConfig,
    server: &ServerConfig,
    interrupt: &Interrupt,
) -> Result<Option<Ground>, Failure> {
    if command.read_only {
        return Err(Failure::usage(
            "--read-only writes nothing, and has nobody to fence. Nothing was started. Leave --fence-command out; it reads a store that no server has",
        ));
    }
    let place = shared::Place::find(&command.drives, fence, command.dead_after.map(Duration::from_secs))?;
    let early = listen_early(command, server)?;
    let Some(ownership) = place.own(patience(command), server.listen, &|| interrupt.is_set())? else { return Ok(None) };
    let listener = early.map_or_else(|| Server::bind(server), Ok).map_err(start_failure)?;
    let store = StoreConfig { licence: Some(Arc::clone(ownership.licence())), ..store.clone() };
    let opened = forebay_store::open(&command.drives, &store).map_err(open_failure)?;
    Ok(Some(Ground { opened, listener, owned: Owned::Shared(ownership) }))
}

#[cfg(feature = "rados")]
fn open_in_pool(
    command: &ServeCommand,
    place: (&Pools, &str),
    store: &StoreConfig,
    server: &ServerConfig,
    interrupt: &Interrupt,
) -> Result<Option<Ground>, Failure> {
    if command.read_only {
        return Err(Failure::usage(
            "--read-only is for drives: a store in a cluster has one server that reads and writes. Nothing was started",
        ));
    }
    let place = crate::rados::Place::open(place, command.dead_after.map(Duration::from_secs))?;
    let early = listen_early(command, server)?;
    let served = place.serve(store, patience(command), &|| interrupt.is_set())?;
    let Some((opened, ownership)) = served else { return Ok(None) };
    let listener = early.map_or_else(|| Server::bind(server), Ok).map_err(start_failure)?;
    Ok(Some(Ground { opened, listener, owned: Owned::Pool(ownership) }))
}

#[cfg(not(feature = "rados"))]
fn open_in_pool(
    _: &ServeCommand,
    _: (&Pools, &str),
    _: &StoreConfig,
    _: &ServerConfig,
    _: &Interrupt,
) -> Result<Option<Ground>, Failure> {
    Err(crate::pool::not_built())
}

/// What the ready line tells.
struct Ready {
    store: String,
    lanes: u16,
    epoch: u64,
    read_only: bool,
    warnings: Vec<String>,
}

impl Ready {
    fn of(opened: &OpenedStore) -> Ready {
        let info = opened.info;
        Ready {
            store: info.store.to_string(),
            lanes: info.lanes,
            epoch: info.epoch,
            read_only: info.read_only,
            warnings: opened.warnings.clone(),
        }
    }
}

/// Waits until all lanes serve; whether they do, or the server was stopped before.
fn wait_until_serving(server: &Server, ready: &Ready) -> Result<bool, Failure> {
    let control = server.control();
    loop {
        let over = control.wait_until(LOOK, |status| {
            status.lanes_serving >= ready.lanes || status.lanes_stopped > 0 || status.failure.is_some() || status.ended
        });
        if !over {
            continue;
        }
        let status = control.status();
        return match status.failure {
            Some(why) => Err(Failure::retry(format!(
                "the store cannot be served: {why}. What was acknowledged is on the drives; see to them and start again, or read what is there with --read-only"
            ))),
            None => Ok(status.lanes_serving >= ready.lanes && status.lanes_stopped == 0),
        };
    }
}

/// Tells that the store is served, where, and where its metrics are.
fn tell_ready(
    file: &ReadyFile<'_>,
    ready: &Ready,
    (address, metrics): (SocketAddr, Option<SocketAddr>),
    output: &Output,
) -> Result<(), Failure> {
    let mode = if ready.read_only { ", read-only" } else { "" };
    let lanes = if ready.lanes == 1 { "1 lane".to_owned() } else { format!("{} lanes", ready.lanes) };
    let warnings = match ready.warnings.len() {
        0 => String::new(),
        1 => ", 1 warning".to_owned(),
        count => format!(", {count} warnings"),
    };
    let metrics_at = metrics.map(|address| format!(", metrics on http://{address}/metrics")).unwrap_or_default();
    output.line(&format!(
        "serving store {} on {address}, {lanes}, start {}{mode}{metrics_at}{warnings}",
        ready.store, ready.epoch
    ));
    output.object(&serde_json::json!({
        "store": ready.store,
        "address": address.to_string(),
        "metrics_address": metrics.map(|address| address.to_string()),
        "lanes": ready.lanes,
        "epoch": ready.epoch,
        "read_only": ready.read_only,
        "warnings": ready.warnings,
    }));
    if output::stdout_failure().is_some() {
        return Err(Failure::retry(
            "whoever started the server cannot be told that it serves; it was stopped in order",
        ));
    }
    file.write(address)
}

/// The file with the address, which is there only while the store is served.
struct ReadyFile<'a>(Option<&'a Path>);

impl<'a> ReadyFile<'a> {
    /// Removes what an earlier server left: whoever waits for the file would go to its address.
    fn new(path: Option<&'a Path>) -> Result<ReadyFile<'a>, Failure> {
        match path.map(|path| (path, std::fs::remove_file(path))) {
            Some((path, Err(error))) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Failure::file("remove", path, &error, "nothing was started; give another --ready-file"))
            }
            _ => Ok(ReadyFile(path)),
        }
    }

    /// Whoever waits for the file never sees half of it.
    fn write(&self, address: SocketAddr) -> Result<(), Failure> {
        let Some(path) = self.0 else { return Ok(()) };
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        std::fs::write(&part, format!("{address}\n"))
            .and_then(|()| std::fs::rename(&part, path))
            .map_err(|error| Failure::file("write", path, &error, "the server was stopped in order"))
    }
}

impl Drop for ReadyFile<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            // Where it could not be written, there is none.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn print_config(output: &Output) -> Result<(), Failure> {
    if output.json {
        return Err(Failure::usage("--print-config prints TOML, not JSON; leave one of the two options out"));
    }
    output.line(config::EXAMPLE.trim_end());
    Ok(())
}

fn watch_signals(interrupt: Interrupt, mut signals: Signals, stop: StopHandle) -> Result<(), Failure> {
    spawn("forebay-signals", move || {
        // A signal that came before the server was there has set the flag.
        if interrupt.is_set() || signals.forever().next().is_some() {
            tracing::info!("stopping: what was taken is made durable; another signal ends the server at once");
            stop.stop();
        }
    })
}

fn watch_stdin(stop: StopHandle) -> Result<(), Failure> {
    spawn("forebay-stdin", move || {
        let mut bytes = [0; 64];
        while std::io::stdin().read(&mut bytes).is_ok_and(|count| count > 0) {}
        tracing::info!("stopping: the program that started this server is gone");
        stop.stop();
    })
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    thread
        .map(drop)
        .map_err(|error| Failure::retry(format!("a thread cannot be started: {error}; the server is not served")))
}

/// How a command ends that cannot open the drives.
pub fn open_failure(error: OpenStoreError) -> Failure {
    let words = error.to_string();
    match error {
        OpenStoreError::Plan(OpenError::TooFewMembers { .. }) | OpenStoreError::Start(_) => Failure::retry(words),
        OpenStoreError::Plan(OpenError::ForeignDrive { .. })
        | OpenStoreError::Twice { .. }
        | OpenStoreError::Remote { .. }
        | OpenStoreError::Directory { .. }
        | OpenStoreError::ParityMin { .. }
        | OpenStoreError::Newer { .. } => Failure::usage(words),
        OpenStoreError::Plan(_) => Failure::data(words),
        OpenStoreError::Drive(OpenDriveError::DirectRefused { .. } | OpenDriveError::NotADrive { .. })
        | OpenStoreError::Media(OpenMediaError::IoUring(_)) => Failure::usage(words),
        OpenStoreError::Drive(_) | OpenStoreError::Media(_) => Failure::retry(words),
        OpenStoreError::NoDrives { is_any_there, .. } => {
            let advice = "Nothing was written. Check the paths, or make a store with `forebay init`";
            let words = format!("{words}\n{advice}");
            if is_any_there { Failure::data(words) } else { Failure::retry(words) }
        }
    }
}

fn start_failure(error: StartError) -> Failure {
    match &error {
        StartError::Listen(listen) if !listen.is_in_use() => Failure::usage(error),
        StartError::Listen(_) | StartError::System { .. } => Failure::retry(error),
    }
}
