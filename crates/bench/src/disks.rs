//! Disks: how much the heads move, and what share of what they could stream is left, by the profile for disks and by that for flash, on the
//! same simulated disks.

mod disk;
mod world;

use std::time::Duration;

use forebay_engine::LaneConfig;
use forebay_store::Profile;
use serde_json::{Value, json};

use disk::{DiskCounts, DiskModel};
use world::{Load, Shape, World};

/// Room on each disk, and on those of a store that is to be nearly full.
const DRIVE_BYTES: u64 = 1 << 40;
const SMALL_DRIVE_BYTES: u64 = 4 << 30;

/// For so long nothing may be stored while something is put: it would never come to an end.
const STUCK: Duration = Duration::from_secs(600);

/// Puts so many bytes while something else happens; gives what was measured.
type Scenario = fn(&mut World, u64) -> Value;

/// What is measured.
const SCENARIOS: &[(&str, Scenario)] = &[
    ("write", write),
    ("write_and_read_behind", write_and_read_behind),
    ("write_and_rebuild", write_and_rebuild),
    ("write_and_scrub", write_and_scrub),
    ("write_and_compaction", write_and_compaction),
];

/// Options of the benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Disks {
    pub drives: u16,
    pub data: u8,
    pub parity: u8,
    pub payload_bytes: u64,
    pub fragment_bytes: usize,
    pub cores: u16,
}

/// Every scenario with both profiles.
pub fn disks(options: Disks, only: Option<&str>) -> Value {
    let profiles = [("disk", Profile::Disk), ("solid-state", Profile::SolidState)];
    let of = |profile: Profile| {
        let wanted = SCENARIOS.iter().filter(|(name, _)| only.is_none_or(|only| only == *name));
        let measured = wanted.map(|(name, scenario)| {
            let result = one(options, profile, name, *scenario);
            eprintln!("{profile:?} {name}: {result}");
            ((*name).to_owned(), result)
        });
        Value::Object(measured.collect())
    };
    let measured = profiles.map(|(name, profile)| (name.to_owned(), of(profile)));
    let model = DiskModel::NEARLINE;
    json!({
        "benchmark": "disks",
        "drives": options.drives,
        "width": format!("{}+{}", options.data, options.parity),
        "fragment_bytes": options.fragment_bytes,
        "payload_bytes": options.payload_bytes,
        "disk": {
            "seek_s": model.seek.as_secs_f64(),
            "turn_s": model.turn.as_secs_f64(),
            "bytes_per_s": model.bytes_per_s,
        },
        "profiles": Value::Object(measured.into_iter().collect()),
    })
}

fn one(options: Disks, profile: Profile, name: &str, scenario: Scenario) -> Value {
    // What is compacted is a store that is nearly full: of as many disks as a segment has shards, and small.
    let is_small = name == "write_and_compaction";
    let shape = Shape {
        drives: if is_small { u16::from(options.data + options.parity) } else { options.drives },
        data: options.data,
        parity: options.parity,
        fragment_bytes: options.fragment_bytes,
        drive_bytes: if is_small { SMALL_DRIVE_BYTES } else { DRIVE_BYTES },
        cores: options.cores,
    };
    let mut world = World::new(shape, profile, |config: &mut LaneConfig| {
        if name == "write_and_read_behind" {
            config.cache_bytes = 1 << 30;
        }
    });
    scenario(&mut world, options.payload_bytes)
}

/// What went to the disks meanwhile.
struct Meter {
    counts: DiskCounts,
    seconds: f64,
    stored_bytes: u64,
}

impl Meter {
    fn of(world: &World) -> Meter {
        Meter { counts: world.counts(), seconds: world.now().0 as f64 / 1e9, stored_bytes: world.stored_bytes() }
    }

    fn since(&self, world: &World, drives: u16) -> Value {
        let counts = world.counts().since(&self.counts);
        let seconds = world.now().0 as f64 / 1e9 - self.seconds;
        let all = f64::from(drives) * seconds;
        json!({
            "seconds": seconds,
            "payload_bytes_per_s": (world.stored_bytes() - self.stored_bytes) as f64 / seconds,
            "media_bytes_per_s": counts.bytes as f64 / seconds,
            "share_of_streaming": counts.moving.as_secs_f64() / all,
            "share_busy": counts.busy.as_secs_f64() / all,
            "bytes_per_seek": counts.bytes / counts.seeks.max(1),
            "seeks": counts.seeks,
            "turns_missed": counts.turns_missed,
            "operations": counts.operations,
            "longest_operation_s": counts.longest.as_secs_f64(),
        })
    }
}

fn put(world: &mut World, payload_bytes: u64) {
    let end = world.stored_bytes() + payload_bytes;
    world.load.puts = true;
    let (mut stored, mut since) = (world.stored_bytes(), world.now());
    world.run_until(|world| {
        if world.stored_bytes() > stored {
            (stored, since) = (world.stored_bytes(), world.now());
        }
        assert!(world.now().since(since) < STUCK, "nothing is stored any more: {:?}", world.statuses());
        stored >= end
    });
}

fn measured(world: &mut World, work: impl FnOnce(&mut World)) -> Value {
    let meter = Meter::of(world);
    work(world);
    meter.since(world, world.drives())
}

/// Puts at full rate.
fn write(world: &mut World, payload_bytes: u64) -> Value {
    put(world, payload_bytes / 8);
    measured(world, |world| put(world, payload_bytes))
}

/// The same, and each event is read when 100 more were put: what is in memory moves no head.
fn write_and_read_behind(world: &mut World, payload_bytes: u64) -> Value {
    world.load.reads_behind = Some(100);
    put(world, payload_bytes / 8);
    let mut result = measured(world, |world| put(world, payload_bytes));
    let counters = world.statuses().into_iter().map(|status| status.counters);
    let (read, cached) = counters.fold((0, 0), |sum, c| (sum.0 + c.fragments_read, sum.1 + c.fragments_read_cached));
    result["share_of_reads_from_memory"] = json!(cached as f64 / read as f64);
    result
}

/// A disk is lost after as much was stored as is put then.
fn write_and_rebuild(world: &mut World, payload_bytes: u64) -> Value {
    put(world, payload_bytes);
    world.lose(0);
    let rebuilt =
        |world: &mut World| -> u64 { world.statuses().iter().map(|status| status.rebuild.bytes_written).sum() };
    let whole = |world: &mut World| world.statuses().iter().all(|status| status.rebuild.is_whole);
    let (begin, before) = (world.now(), rebuilt(world));
    let mut result = measured(world, |world| {
        let end = world.stored_bytes() + payload_bytes;
        world.run_until_seen(|world| whole(world) || world.stored_bytes() >= end);
    });
    let bytes = rebuilt(world) - before;
    result["rebuilt_bytes_per_s"] = json!(bytes as f64 / world.now().since(begin).as_secs_f64());
    // The rest while nothing is put.
    world.load = Load::default();
    if !whole(world) {
        let (begin, before) = (world.now(), rebuilt(world));
        world.run_until_seen(whole);
        let bytes = rebuilt(world) - before;
        result["rebuilt_bytes_per_s_alone"] = json!(bytes as f64 / world.now().since(begin).as_secs_f64());
    }
    result
}

/// Everything that is stored is looked at meanwhile.
fn write_and_scrub(world: &mut World, payload_bytes: u64) -> Value {
    put(world, payload_bytes);
    world.scrub_all();
    let read = |world: &mut World| -> u64 { world.statuses().iter().map(|status| status.scrub.bytes_read).sum() };
    let (begin, before) = (world.now(), read(world));
    let mut result = measured(world, |world| put(world, payload_bytes));
    let bytes = read(world) - before;
    result["scrubbed_bytes_per_s"] = json!(bytes as f64 / world.now().since(begin).as_secs_f64());
    result
}

/// Of a store that is nearly full all events but every tenth are deleted, oldest first, so that segments have to be emptied.
fn write_and_compaction(world: &mut World, payload_bytes: u64) -> Value {
    world.load.segments_free_min = 3;
    world.load.events_max = Some(world.events_that_fit() * 6 / 10);
    let capacity_bytes = world.capacity_bytes();
    put(world, capacity_bytes);
    let moved =
        |world: &mut World| -> u64 { world.statuses().iter().map(|status| status.compaction.bytes_moved).sum() };
    let (begin, before) = (world.now(), moved(world));
    let mut result = measured(world, |world| put(world, payload_bytes));
    let bytes = moved(world) - before;
    let seconds = world.now().since(begin).max(Duration::from_nanos(1)).as_secs_f64();
    result["moved_bytes_per_s"] = json!(bytes as f64 / seconds);
    result
}
