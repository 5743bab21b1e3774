//! `forebay init`: makes a store.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use forebay_store::{InitError, InitOptions, InitProgress, InitReport, Profile, Sampled};

use crate::failure::Failure;
use crate::output::Output;
use crate::pool::{PoolOptions, Pools};
use crate::size::{human_bytes, human_count, parse_bytes};

const AFTER_HELP: &str = "\
Examples:
  forebay init --data 4 --parity 1 --drive-bytes 1GiB /data/d0 /data/d1 /data/d2 /data/d3 /data/d4
      makes five files of 1 GiB and a store on them that survives the loss of any one
  forebay init --data 8 --parity 2 /dev/nvme{0,1,2,3,4,5,6,7,8,9}n1
      makes a store on ten devices that survives the loss of any two
  forebay init --data 1 --parity 0 --drive-bytes 10GB /mnt/cephfs/forebay/d0
      leaves the protection to the file system
  forebay init --media rados:ec,meta --name buffer1 --drive-bytes 50TiB --fragment-bytes-mean 1MiB
      makes a store in two pools of a Ceph cluster, which protects it (docs/ceph.md)

A drive that is not all zero is refused, and what was found, and where, is named. Files are read whole, but for their holes;
devices of up to 64 GiB too. Of larger devices these parts are read, which takes minutes on a disk: the first 4 GiB, the last
GiB and 16,384 places of 64 KiB spread evenly; the report says so. Nothing is written before all drives have been looked at.

Files are written with zeros from their first byte to the last, those with holes too, so that a file system that fills up
later takes no drive away. When something fails on the way, the files that were made are removed again.

Lanes and slots follow the kind of the drives: disks (as the kernel says of the device, or of that under the file system) get
large slots and as many lanes as can write to disks of their own at the same time, everything else a lane for each core.
Where the kernel does not know, as behind a RAID controller, say --drive-kind here and drive-kind in the server's configuration.

Sizes: 4096, 64KiB, 1GiB (powers of 1024), 10GB (powers of 1000).

Exit codes: 2 when a drive holds something, cannot be written or the options make no store; 3 when there is no space, a drive
is in use, or it fails.";

/// The options of `init`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct InitCommand {
    /// Data shards: a flush is cut into so many parts [default: none, but with --media, where the cluster protects what it holds]
    #[arg(long, value_name = "K", required_unless_present = "media", conflicts_with = "media")]
    data: Option<u8>,

    /// Parity shards: the store survives the loss of so many drives [default: as --data]
    #[arg(long, value_name = "M", required_unless_present = "media", conflicts_with = "media")]
    parity: Option<u8>,

    #[command(flatten)]
    pool: PoolOptions,

    /// Size of drives that are files; with --force those that exist get it too. With --media, what the store may hold [default: none, files that are not there
    /// yet are refused]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    drive_bytes: Option<u64>,

    /// What the drives are, by which lanes and slots are chosen: disk or solid-state [default: what the kernel says of them]
    #[arg(long, value_name = "KIND", value_parser = parse_drive_kind)]
    drive_kind: Option<Profile>,

    /// Lanes: independent logs, run by threads of their own; fixed for ever [default: by the drives and the cores]
    #[arg(long, value_name = "N")]
    lanes: Option<u16>,

    /// Size of a slot, the unit of allocation on a drive [default: by the kind and size of the drives, 1MiB to 64MiB, on disks to 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    slot_bytes: Option<u64>,

    /// Size of a stripe unit, a multiple of 4096 [default: 32KiB; in pools up to 256KiB, by the size of a slot]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    unit_bytes: Option<u64>,

    /// Data shards of the narrowest segments that are written while drives are missing [default: half of --data]
    #[arg(long, value_name = "K")]
    data_min: Option<u8>,

    /// Memory that the server will have for the index [default: a quarter of this machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    index_bytes: Option<u64>,

    /// The mean size of the fragments that will be stored, to see whether their index fits
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "10KiB")]
    fragment_bytes_mean: u64,

    /// Destroy what the drives hold [default: refuse drives that are not all zero]
    #[arg(long)]
    force: bool,

    /// The drives: block devices or files, at least data + parity of them
    #[arg(value_name = "DRIVE", required_unless_present = "media", conflicts_with = "media")]
    drives: Vec<PathBuf>,
}

/// Makes the store.
///
/// # Errors
/// Why none was made.
pub fn run(command: &InitCommand, output: &Output) -> Result<(), Failure> {
    let options = options(command)?;
    let start = Instant::now();
    let report = match command.pool.store() {
        Some(store) => in_pool(command, store, &options)?,
        None => with_progress(&command.drives, &options, output)?,
    };
    let seconds = start.elapsed().as_secs_f64();
    let geometry = report.geometry;
    output.object(&serde_json::json!({
        "store": report.store,
        "drives": command.drives.len().max(1),
        "data_shards": geometry.data_shards,
        "parity_shards": geometry.parity_shards,
        "data_shards_min": geometry.data_shards_min,
        "drive_kind": report.drive_kind,
        "lanes": geometry.lanes,
        "slot_bytes": geometry.slot_bytes,
        "unit_bytes": geometry.unit_bytes,
        "fragment_bytes_max": geometry.fragment_bytes_max,
        "capacity_bytes": report.capacity_bytes,
        "capacity_after_losses_bytes": report.capacity_after_losses_bytes,
        "segment_bytes": report.segment_bytes,
        "index_bytes_needed": report.index_bytes_needed,
        "drives_sampled": report.sampled.len(),
        "warnings": report.warnings,
        "seconds": seconds,
    }));
    output.line(&describe(command, &report, seconds));
    report.warnings.iter().for_each(|warning| output.note(&format!("warning: {warning}")));
    Ok(())
}

/// Makes a store and shows how far it is.
///
/// # Errors
/// Why none was made.
pub fn with_progress(drives: &[PathBuf], options: &InitOptions, output: &Output) -> Result<InitReport, Failure> {
    const LOOKING: &str = "{spinner} {msg}";
    const ZEROING: &str = "zeroing drives {bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    let (mut looking, mut zeroing) = (None, None);
    let mut tell = |progress| match progress {
        InitProgress::Looking { read_bytes, total_bytes } => {
            let (read, total) = (human_bytes(read_bytes), human_bytes(total_bytes));
            let words = || format!("looking at what the drives hold: {read} of {total} read");
            looking.get_or_insert_with(|| output.progress(total_bytes, LOOKING)).update(read_bytes, words);
        }
        InitProgress::Zeroing { written_bytes, total_bytes } => {
            drop(looking.take());
            let words = || format!("zeroing drives: {} written", human_bytes(written_bytes));
            zeroing.get_or_insert_with(|| output.progress(total_bytes, ZEROING)).update(written_bytes, words);
        }
    };
    forebay_store::init(drives, options, &mut tell).map_err(failure)
}

fn options(command: &InitCommand) -> Result<InitOptions, Failure> {
    let unit_bytes = match command.unit_bytes.map(u32::try_from) {
        Some(Err(_)) => {
            return Err(Failure::usage("--unit-bytes is too large. Nothing was written; take 64KiB or less"));
        }
        Some(Ok(bytes)) => Some(bytes),
        None => None,
    };
    Ok(InitOptions {
        data_min: command.data_min,
        drive_kind: command.drive_kind,
        lanes: command.lanes,
        drive_bytes: command.drive_bytes,
        slot_bytes: command.slot_bytes,
        unit_bytes,
        force: command.force,
        index_bytes: command.index_bytes,
        fragment_bytes_mean: command.fragment_bytes_mean,
        ..InitOptions::new(command.data.unwrap_or(1), command.parity.unwrap_or(0))
    })
}

#[cfg(feature = "rados")]
fn in_pool(command: &InitCommand, store: (&Pools, &str), options: &InitOptions) -> Result<InitReport, Failure> {
    let bytes = command.drive_bytes.ok_or_else(|| {
        Failure::usage("say with --drive-bytes how much the store may hold, for instance 10TiB. Nothing was written: space of the pool is used as data come in")
    })?;
    crate::rados::Place::open(store, None)?.init(bytes, options)
}

#[cfg(not(feature = "rados"))]
fn in_pool(_: &InitCommand, _: (&Pools, &str), _: &InitOptions) -> Result<InitReport, Failure> {
    Err(crate::pool::not_built())
}

fn parse_drive_kind(word: &str) -> Result<Profile, String> {
    match word {
        "disk" => Ok(Profile::Disk),
        "solid-state" => Ok(Profile::SolidState),
        _ => Err("say disk or solid-state".to_owned()),
    }
}

/// How a command ends that cannot make a store.
pub fn failure(error: InitError) -> Failure {
    if error.is_retryable() { Failure::retry(error) } else { Failure::usage(error) }
}

fn describe(command: &InitCommand, report: &InitReport, seconds: f64) -> String {
    let geometry = report.geometry;
    let drives: Vec<String> = command.drives.iter().map(|path| path.display().to_string()).collect();
    let protection = match geometry.parity_shards {
        0 if report.drive_kind == Profile::Pool => "protected by the cluster".to_owned(),
        0 => "survives the loss of no drive".to_owned(),
        1 => "survives the loss of any drive".to_owned(),
        parity => format!("survives the loss of any {parity} drives"),
    };
    let sampled: String = report.sampled.iter().map(describe_sampled).collect();
    format!(
        "made store {store} on {on} in {seconds:.1} s\n\
         \x20 protection  {data}+{parity}, {protection}\n\
         \x20 capacity    {capacity}\n\
         \x20 reserve     {reserve}\n\
         \x20 lanes       {lanes} on {kind}, slots of {slot}, fragments of at most {fragment}\n\
         \x20 index       at most {index} of memory for fragments of {mean} on average\n\
         {sampled}\
         serve it with:  forebay serve {paths}",
        store = report.store,
        on = match command.drives.len() {
            0 => "a cluster".to_owned(),
            count => format!("{count} drives"),
        },
        data = geometry.data_shards,
        parity = geometry.parity_shards,
        capacity = describe_capacity(report),
        reserve = describe_reserve(report),
        kind = match report.drive_kind {
            Profile::Disk => "disks",
            Profile::SolidState => "drives without heads",
            Profile::Pool => "a pool",
        },
        lanes = geometry.lanes,
        slot = human_bytes(geometry.slot_bytes),
        fragment = human_bytes(geometry.fragment_bytes_max.into()),
        index = human_bytes(report.index_bytes_needed),
        mean = human_bytes(command.fragment_bytes_mean),
        paths = match command.pool.store() {
            Some((pools, name)) => format!("--media rados:{},{} --name {name}", pools.slots, pools.places),
            None => drives.join(" "),
        },
    )
}

/// What there is room for, and what of the drives is held back.
fn describe_capacity(report: &InitReport) -> String {
    let InitReport { capacity_bytes, capacity_after_losses_bytes: left, .. } = *report;
    let (all, held, bytes) =
        (human_bytes(capacity_bytes), human_bytes(capacity_bytes.saturating_sub(left)), human_count(left));
    let left = human_bytes(left);
    let lost = match report.geometry.parity_shards {
        0 => "for headers and tables".to_owned(),
        1 => "for the loss of a drive, and for headers and tables".to_owned(),
        parity => format!("for the loss of {parity} drives, and for headers and tables"),
    };
    format!("about {left} of fragments ({bytes} bytes); of {all} on all drives, {held} are held back {lost}")
}

/// What of that a server leaves out when it counts.
fn describe_reserve(report: &InitReport) -> String {
    let more = u64::from(report.geometry.parity_shards) + 2;
    format!(
        "each lane keeps an eighth of its segments (of {}) at most, and {more} more, for recovery and deletions: `forebay status` tells how many, \
         and counts without them",
        human_bytes(report.segment_bytes)
    )
}

fn describe_sampled(drive: &Sampled) -> String {
    format!(
        "  looked at   {}: {} of {} were read and are zero, not the rest\n",
        drive.path.display(),
        human_bytes(drive.read_bytes),
        human_bytes(drive.bytes)
    )
}
