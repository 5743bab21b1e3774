//! Making the shards of a lost drive anew: in a lane, and through a server.

mod lane;
mod served;

use std::path::Path;
use std::time::{Duration, Instant};

use forebay_store::StoreConfig;
use serde_json::{Value, json};

use crate::engine::{DATA, PARITY};
use crate::fio;
use crate::measure::median;

const FRAGMENT_BYTES: u64 = 10 << 10;

/// Puts go on in parts of this size; before each, what was put two parts earlier is deleted, so that the store gets no fuller.
const PART_BYTES: u64 = 256 << 20;
const PART_FRAGMENTS: u64 = PART_BYTES / FRAGMENT_BYTES;

/// For so long puts go on while nothing is rebuilt; beside a rebuild, until it is over, or for so long.
const PUTS_ALONE: Duration = Duration::from_secs(2);
const PUTS_BESIDE: Duration = Duration::from_secs(6);

/// A store that loses drives.
trait Store {
    /// Puts so many fragments of this run as fast as they are taken, until all are durable.
    fn put(&mut self, run: u32, count: u64);
    fn delete(&mut self, run: u32, count: u64);
    /// Gives a drive up and puts an empty one in; comes back when its rebuild may begin.
    fn replace(&mut self, drive: u16);
    fn rebuilt(&mut self) -> Rebuilt;
    /// Lets the store work for a moment.
    fn wait(&mut self);
}

/// How far a rebuild is.
#[derive(Clone, Copy)]
struct Rebuilt {
    /// Read and written.
    bytes: u64,
    is_whole: bool,
}

/// How one round went, in bytes a second.
struct Round {
    /// Read and written by a rebuild that nothing disturbs.
    alone: f64,
    /// What it read and wrote, in bytes.
    alone_bytes: u64,
    /// Payload put while nothing is rebuilt, just before and just after, and while something is.
    puts_alone: [f64; 2],
    puts_beside: f64,
    /// Read and written by the rebuild meanwhile.
    beside: f64,
}

/// A drive is lost and replaced twice while nothing else happens, of which the second time counts, and once under puts at full rate.
pub fn rebuild(directory: &Path, rounds: usize, payload_bytes: u64) -> Value {
    let (mut all, mut fios) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let mut lane = lane::LaneStore::new(directory, drive_bytes(payload_bytes));
        let round = Round::of(&mut lane, payload_bytes);
        // While the store is there: to take gigabytes from the file system disturbs for seconds what comes next.
        let fio = fio_bytes_per_s(directory, round.alone_bytes);
        lane.crash();
        round.tell(&format!("in process (fio {:.2} GB/s)", fio / 1e9));
        fios.push(fio);
        all.push(round);
    }
    let ratio_to_fio = median(all.iter().zip(&fios).map(|(round, fio)| round.alone / fio).collect());
    let serve = |_| {
        let round = Round::of(&mut served::ServedStore::new(directory, drive_bytes(payload_bytes)), payload_bytes);
        round.tell("through a server");
        round
    };
    let served: Vec<Round> = (0..rounds).map(serve).collect();
    json!({
        "benchmark": "rebuild",
        "width": format!("{DATA}+{PARITY}"),
        "fragment_bytes": FRAGMENT_BYTES,
        "payload_bytes": payload_bytes,
        "rounds": rounds,
        "rebuild_percent": StoreConfig::default().rebuild_percent,
        "fio_same_mix_bytes_per_s": median(fios),
        "ratio_to_fio": ratio_to_fio,
        "in_process": summary(&all),
        "served": summary(&served),
    })
}

/// Bytes of each drive: for all that is kept and what is put meanwhile, and a third as much free.
fn drive_bytes(payload_bytes: u64) -> u64 {
    ((payload_bytes + 3 * PART_BYTES) / u64::from(DATA) * 4 / 3).next_multiple_of(1 << 20) + (256 << 20)
}

/// What `fio` comes to with the mix of reads and writes of a rebuild.
fn fio_bytes_per_s(directory: &Path, bytes: u64) -> f64 {
    let baseline = directory.join(format!("forebay-bench-{}", std::process::id()));
    forebay_media::create_zeroed(&baseline, bytes.next_multiple_of(1 << 20), &mut |_| {}).expect("a file can be made");
    let bytes_per_s = fio::mixed_bytes_per_s(&baseline, bytes, DATA);
    std::fs::remove_file(&baseline).expect("the baseline's file can go");
    bytes_per_s
}

impl Round {
    fn of(store: &mut impl Store, payload_bytes: u64) -> Round {
        store.put(0, payload_bytes / FRAGMENT_BYTES);
        let mut parts = Parts { store, next: 1 };
        let always = |_: &mut _| false;
        parts.put_for(PUTS_ALONE, always);

        // A first one brings memory to where the files are: where the machine is a virtual one, a rebuild into new files takes up to three times as long.
        parts.store.replace(1);
        parts.until_whole();
        parts.store.replace(2);
        let (before, begin) = (parts.store.rebuilt(), Instant::now());
        let whole = parts.until_whole();
        let alone_bytes = whole.bytes - before.bytes;
        let alone = alone_bytes as f64 / begin.elapsed().as_secs_f64();

        let first = parts.put_for(PUTS_ALONE, always);
        parts.store.replace(3);
        let (before, begin) = (parts.store.rebuilt(), Instant::now());
        let (mut now, mut seconds) = (before, 0.0);
        let puts_beside = parts.put_for(PUTS_BESIDE, |store| {
            (now, seconds) = (store.rebuilt(), begin.elapsed().as_secs_f64());
            now.is_whole
        });
        let beside = (now.bytes - before.bytes) as f64 / seconds;
        parts.until_whole();
        let last = parts.put_for(PUTS_ALONE, always);
        Round { alone, alone_bytes, puts_alone: [first, last], puts_beside, beside }
    }

    fn puts_ratio(&self) -> f64 {
        self.puts_beside * 2.0 / self.puts_alone.iter().sum::<f64>()
    }

    fn rebuild_ratio(&self) -> f64 {
        self.beside / self.alone
    }

    fn tell(&self, what: &str) {
        let giga = |bytes_per_s: f64| bytes_per_s / 1e9;
        eprintln!(
            "{what}: rebuild {:.2} GB/s, beside puts {:.2} GB/s ({:.2}); puts {:.2} and {:.2} GB/s, beside rebuild {:.2} GB/s ({:.2})",
            giga(self.alone),
            giga(self.beside),
            self.rebuild_ratio(),
            giga(self.puts_alone[0]),
            giga(self.puts_alone[1]),
            giga(self.puts_beside),
            self.puts_ratio()
        );
    }
}

/// Puts that go on.
struct Parts<'a, S> {
    store: &'a mut S,
    /// The run that is put next.
    next: u32,
}

impl<S: Store> Parts<'_, S> {
    /// Puts parts for as long, or until `is_over` says so after one of them; bytes of payload a second.
    fn put_for(&mut self, time: Duration, mut is_over: impl FnMut(&mut S) -> bool) -> f64 {
        let (begin, mut parts) = (Instant::now(), 0);
        loop {
            if self.next > 2 {
                self.store.delete(self.next - 2, PART_FRAGMENTS);
            }
            self.store.put(self.next, PART_FRAGMENTS);
            (self.next, parts) = (self.next + 1, parts + 1);
            if is_over(self.store) || begin.elapsed() >= time {
                return (parts * PART_FRAGMENTS * FRAGMENT_BYTES) as f64 / begin.elapsed().as_secs_f64();
            }
        }
    }

    fn until_whole(&mut self) -> Rebuilt {
        loop {
            let now = self.store.rebuilt();
            if now.is_whole {
                return now;
            }
            self.store.wait();
        }
    }
}

/// What the rounds came to: medians, and the ratios of each.
fn summary(rounds: &[Round]) -> Value {
    let of = |value: fn(&Round) -> f64| -> Vec<f64> { rounds.iter().map(value).collect() };
    let (puts, rebuilds) = (of(Round::puts_ratio), of(Round::rebuild_ratio));
    json!({
        "rebuild_bytes_per_s": median(of(|round| round.alone)),
        "puts_bytes_per_s": median(of(|round| round.puts_alone[0])),
        "puts_beside_rebuild_ratio": median(puts.clone()),
        "puts_beside_rebuild_ratios": puts,
        "rebuild_beside_puts_ratio": median(rebuilds.clone()),
        "rebuild_beside_puts_ratios": rebuilds,
    })
}
