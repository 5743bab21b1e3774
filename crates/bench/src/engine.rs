//! A lane on files, without a network.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forebay_engine::{Admission, Put, Reply, Token};
use forebay_store::{InitOptions, LaneRunner, OpenedStore, StoreConfig, init, open};
use forebay_types::{EventKey, FragmentId, crc32c};
use serde_json::{Value, json};

use crate::fio;
use crate::measure::{Cost, measured, median};

pub(crate) const DATA: u8 = 5;
pub(crate) const PARITY: u8 = 1;
/// Sources of an event.
const SOURCES: u64 = 100;

/// A store of files with one lane.
pub(crate) struct Bench {
    directory: tempfile::TempDir,
    paths: Vec<PathBuf>,
}

impl Bench {
    pub(crate) fn new(directory: &Path, drive_bytes: u64) -> Self {
        Bench::of_width(directory, drive_bytes, (DATA, PARITY))
    }

    /// With so many data and parity shards.
    pub(crate) fn of_width(directory: &Path, drive_bytes: u64, width: (u8, u8)) -> Self {
        Bench::made(directory, drive_bytes, width, None)
    }

    /// With slots of this size.
    pub(crate) fn with_slots(directory: &Path, drive_bytes: u64, slot_bytes: u64) -> Self {
        Bench::made(directory, drive_bytes, (DATA, PARITY), Some(slot_bytes))
    }

    fn made(directory: &Path, drive_bytes: u64, (data, parity): (u8, u8), slot_bytes: Option<u64>) -> Self {
        let directory = tempfile::TempDir::new_in(directory).expect("a directory can be made");
        let paths: Vec<PathBuf> = (0..data + parity).map(|n| directory.path().join(format!("drive{n}"))).collect();
        let mut options = InitOptions::new(data, parity);
        options.drive_bytes = Some(drive_bytes);
        options.lanes = Some(1);
        options.slot_bytes = slot_bytes;
        init(&paths, &options, &mut |_| {}).expect("a store can be made");
        Bench { directory, paths }
    }

    /// Has the file system give every byte of the drives a place, as after years of use: what is measured shall not depend on how much of a drive was never
    /// written to.
    pub(crate) fn touch_drives(&self) {
        let mut bytes = vec![0; 1 << 20];
        for path in &self.paths {
            let mut drive = File::options().read(true).write(true).open(path).expect("a drive was made");
            loop {
                let at = drive.stream_position().expect("a file has a position");
                let count = drive.read(&mut bytes).expect("a drive can be read");
                if count == 0 {
                    break;
                }
                drive.write_all_at(&bytes[..count], at).expect("a drive can be written");
            }
        }
    }

    /// A place for a further drive.
    pub(crate) fn further(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn open(&self, config: &StoreConfig) -> (LaneRunner, OpenedStoreRest) {
        let OpenedStore { runners, control, .. } = open(&self.paths, config).expect("the store opens");
        let mut runner = runners.into_iter().next().expect("one lane").start();
        while !runner.lane().is_serving() {
            runner.wait(Duration::from_millis(1));
        }
        (runner, OpenedStoreRest { control })
    }
}

/// What is left of an opened store beside its lane.
pub(crate) struct OpenedStoreRest {
    pub(crate) control: forebay_store::ControlHandle,
}

/// Ends a lane as a crash would, and waits until its drives are free again.
pub(crate) fn crash(runner: LaneRunner, rest: OpenedStoreRest) {
    drop(runner);
    assert!(rest.control.wait_until(Duration::from_secs(60), |status| status.ended), "the control thread ends");
}

fn fragment(number: u64, run: u32) -> FragmentId {
    FragmentId::new(run, number / SOURCES, (number % SOURCES) as u32)
}

/// Puts `count` fragments as fast as the lane takes them, until all are durable.
pub(crate) fn put_all(
    runner: &mut LaneRunner,
    run: u32,
    count: u64,
    payload: &[u8],
    pause: impl Fn(u64) -> Option<Duration>,
) {
    let crc = crc32c(payload);
    let mut stored = 0;
    for number in 0..count {
        if let Some(pause) = pause(number) {
            let until = Instant::now() + pause;
            while Instant::now() < until {
                runner.wait(until.saturating_duration_since(Instant::now()).min(Duration::from_millis(1)));
            }
        }
        let put = Put { id: fragment(number, run), expected: SOURCES as u16, crc };
        loop {
            match runner.lane().put(Token(1), &put, payload) {
                Admission::Pending => break,
                Admission::Busy => stored += wait(runner),
                Admission::Done(outcome) => panic!("{} came to {outcome:?}", put.id),
            }
        }
        if number % 128 == 127 {
            runner.turn();
            stored += replies(runner);
        }
    }
    while stored < count {
        stored += wait(runner);
    }
}

fn wait(runner: &mut LaneRunner) -> u64 {
    runner.wait(Duration::from_millis(100));
    replies(runner)
}

fn replies(runner: &mut LaneRunner) -> u64 {
    let mut stored = 0;
    while let Some(reply) = runner.lane().next_reply() {
        match reply {
            Reply::Stored { records, .. } => stored += u64::from(records),
            Reply::Decided { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    stored
}

/// Deletes the events of `count` fragments as fast as the lane takes it.
pub(crate) fn delete_events(runner: &mut LaneRunner, run: u32, count: u64) {
    for event in 0..count.div_ceil(SOURCES) {
        while let Admission::Busy = runner.lane().delete(Token::NONE, EventKey::new(run, event)) {
            runner.wait(Duration::from_millis(100));
        }
    }
}

fn delete_all(runner: &mut LaneRunner, run: u32, count: u64) {
    delete_events(runner, run, count);
    for _ in 0..200 {
        runner.wait(Duration::from_millis(1));
    }
}

/// Throughput at full rate beside fio.
pub fn throughput(directory: &Path, pairs: usize, fragment_bytes: usize, payload_bytes: u64) -> Value {
    let drive_bytes = (payload_bytes / u64::from(DATA) * 3 / 2).next_multiple_of(1 << 20) + (256 << 20);
    let bench = Bench::new(directory, drive_bytes);
    let baseline = directory.join(format!("forebay-bench-{}", std::process::id()));
    let media_bytes = (payload_bytes / u64::from(DATA) * u64::from(DATA + PARITY)).next_multiple_of(1 << 20);
    forebay_media::create_zeroed(&baseline, media_bytes, &mut |_| {}).expect("the baseline's file can be made");
    let config = StoreConfig { drive_timeout_ms: Some(60_000), ..StoreConfig::default() };
    let (mut runner, rest) = bench.open(&config);
    let payload: Vec<u8> = (0..fragment_bytes).map(|i| (i * 131 + i / 251) as u8).collect();
    let count = payload_bytes / fragment_bytes as u64;
    let (mut rates, mut baselines, mut ratios, mut per_cpu) = (vec![], vec![], vec![], vec![]);
    let mut amplification = 0.0;
    for pair in 0..pairs {
        let fio = fio::write_bytes_per_s(&baseline, media_bytes);
        let before = runner.lane().status().counters.media_bytes_written;
        let run = pair as u32 + 1;
        let ((), cost) = measured(|| put_all(&mut runner, run, count, &payload, |_| None));
        let Cost { seconds, cpu_seconds } = cost;
        let bytes = (count * fragment_bytes as u64) as f64;
        let written = (runner.lane().status().counters.media_bytes_written - before) as f64;
        amplification = written / bytes;
        rates.push(bytes / seconds);
        per_cpu.push(bytes / cpu_seconds);
        baselines.push(fio);
        ratios.push(bytes * f64::from(DATA + PARITY) / f64::from(DATA) / seconds / fio);
        delete_all(&mut runner, run, count);
        eprintln!("pair {}: {:.2} GB/s, fio {:.2} GB/s", pair + 1, bytes / seconds / 1e9, fio / 1e9);
    }
    std::fs::remove_file(&baseline).expect("the baseline's file can go");
    crash(runner, rest);
    json!({
        "benchmark": "engine",
        "width": format!("{DATA}+{PARITY}"),
        "fragment_bytes": fragment_bytes,
        "payload_bytes": payload_bytes,
        "pairs": pairs,
        "payload_bytes_per_s": median(rates.clone()),
        "payload_bytes_per_cpu_second": median(per_cpu.clone()),
        "fio_bytes_per_s": median(baselines.clone()),
        "ratio_to_fio_with_parity": median(ratios.clone()),
        "all": {
            "payload_bytes_per_s": rates,
            "payload_bytes_per_cpu_second": per_cpu,
            "fio_bytes_per_s": baselines,
            "ratio_to_fio_with_parity": ratios,
        },
        "media_bytes_per_payload_byte": amplification,
    })
}

/// Bytes on media per byte of payload when fragments come at 1, 10 and 100 MB/s.
pub fn amplification(directory: &Path) -> Value {
    let fragment_bytes = 10 << 10;
    let payload = vec![7; fragment_bytes];
    let mut rows = Vec::new();
    for rate_mb_per_s in [1u64, 10, 100] {
        let bench = Bench::new(directory, 512 << 20);
        let (mut runner, rest) = bench.open(&StoreConfig { drive_timeout_ms: Some(60_000), ..StoreConfig::default() });
        let before = runner.lane().status().counters.media_bytes_written;
        let count = (rate_mb_per_s * 3_000_000 / fragment_bytes as u64).max(50);
        let gap = Duration::from_secs_f64(fragment_bytes as f64 / (rate_mb_per_s as f64 * 1e6));
        put_all(&mut runner, 1, count, &payload, |_| Some(gap));
        let written = (runner.lane().status().counters.media_bytes_written - before) as f64;
        let factor = written / (count * fragment_bytes as u64) as f64;
        rows.push(json!({"payload_mb_per_s": rate_mb_per_s, "media_bytes_per_payload_byte": factor}));
        crash(runner, rest);
    }
    json!({"benchmark": "amplification", "width": format!("{DATA}+{PARITY}"), "fragment_bytes": fragment_bytes, "rates": rows})
}
