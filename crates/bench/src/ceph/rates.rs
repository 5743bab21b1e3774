//! How fast fragments go into a store and come back, beside objects and beside files, all on the same cluster in turn.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use forebay_client::Client;
use forebay_types::{EventKey, FragmentId, ReadOutcome, SourceId};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::files::Mount;
use super::objects::Objects;
use super::store::Store;
use crate::measure::{children_cpu_seconds, measured, median};
use crate::process::Server;
use crate::requests::{payload, status};

/// Bytes of a fragment, and of a request to a file.
pub const FRAGMENT_BYTES: usize = 10 << 10;
/// Programs that write.
pub const WRITERS: usize = 100;
/// Events that sources are apart at the most: one trigger tells them all what to send.
const APART_EVENTS: u64 = 16;
/// Of the events that are measured.
const RUN: u32 = 1;
/// Of those that are put behind them.
const RUN_BEHIND: u32 = 2;
/// Programs that read.
pub const READERS: usize = 4;
/// As servers have it when nobody says anything.
const CACHE_BYTES: u64 = 256 << 20;

/// Runs so many at once, each with its number.
pub fn in_parallel(count: usize, work: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for number in 0..count {
            let work = &work;
            scope.spawn(move || work(number));
        }
    });
}

/// Each writer is a source of all events, as a readout is.
fn put_events(server: &Server, run: u32, events: u64) {
    let (payload, others) = (payload(FRAGMENT_BYTES), Barrier::new(WRITERS));
    in_parallel(WRITERS, |source| put_source(&mut server.client(), (run, source as u32), events, &payload, &others));
}

fn put_source(client: &mut Client, (run, source): (u32, u32), events: u64, payload: &Bytes, others: &Barrier) {
    let mut results = Vec::new();
    for event in 0..events {
        if event % APART_EVENTS == 0 {
            others.wait();
        }
        client.put_bytes(FragmentId::new(run, event, source), WRITERS as u16, payload).expect("the server takes it");
    }
    client.flush().expect("all is answered");
    client.take_put_results(&mut results);
    assert!(results.iter().all(|result| result.outcome.is_acknowledged()), "something was not stored");
}

fn read_event(client: &mut Client, event: EventKey) {
    let ids: Vec<FragmentId> = (0..WRITERS as u32).map(|source| event.fragment(SourceId(source))).collect();
    let found = client.get_many(&ids).expect("the server answers");
    let is_right =
        |(outcome, payload): &(ReadOutcome, Vec<u8>)| *outcome == ReadOutcome::Found && payload.len() == FRAGMENT_BYTES;
    assert!(found.iter().all(is_right), "event {event:?} is not whole");
}

/// One measurement: how long it took, and the processor time of the cluster's drives.
#[derive(Clone, Copy)]
struct Run {
    seconds: f64,
    drives_cpu_seconds: f64,
}

/// Reads from the pool that a server has made.
#[derive(Clone, Copy)]
struct PoolReads {
    operations: u64,
    bytes: u64,
}

impl PoolReads {
    fn since(self, before: PoolReads) -> PoolReads {
        PoolReads { operations: self.operations - before.operations, bytes: self.bytes - before.bytes }
    }
}

fn pool_reads(server: &Server) -> PoolReads {
    let status = status(&mut server.client());
    let of = |name: &str| status["drives"][0][name].as_u64().expect("the status says it");
    PoolReads { operations: of("reads"), bytes: of("bytes_read") }
}

/// What was found of one way, round by round.
#[derive(Default)]
struct Way {
    writes: Vec<Run>,
    reads: Vec<Run>,
    /// Of a store.
    pool_reads: Vec<PoolReads>,
}

struct World<'a> {
    cluster: &'a Cluster,
    payload_bytes: u64,
}

impl World<'_> {
    /// Of work that says how long it took, or else as long as it is seen to take.
    fn run(&self, work: impl FnOnce() -> Option<f64>) -> Run {
        let cpu = self.cluster.drives_cpu_seconds();
        let (said, cost) = measured(work);
        let drives_cpu_seconds = self.cluster.drives_cpu_seconds() - cpu;
        Run { seconds: said.unwrap_or(cost.seconds), drives_cpu_seconds }
    }

    fn objects(&self, way: &mut Way, object_bytes: u64, at_once: usize) {
        let objects = self.payload_bytes / object_bytes;
        let objects = Objects { cluster: self.cluster, object_bytes, objects, at_once };
        way.writes.push(self.run(|| Some(objects.write())));
        way.reads.push(self.run(|| Some(objects.read())));
        objects.remove();
    }

    /// Each reader reads some of the events whole. Others are put behind these, so that nothing of what is read is in memory any more.
    fn fragments(&self, way: &mut Way, server: &Server) {
        let events = self.payload_bytes / (WRITERS * FRAGMENT_BYTES) as u64;
        let behind = 2 * CACHE_BYTES / (WRITERS * FRAGMENT_BYTES) as u64;
        way.writes.push(self.run(|| {
            put_events(server, RUN, events);
            None
        }));
        put_events(server, RUN_BEHIND, behind);
        let before = pool_reads(server);
        let next = AtomicU64::new(0);
        way.reads.push(self.run(|| {
            in_parallel(READERS, |_| {
                let mut client = server.client();
                let next = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|event| *event < events);
                while let Some(event) = next() {
                    read_event(&mut client, EventKey::new(RUN, event));
                }
            });
            None
        }));
        way.pool_reads.push(pool_reads(server).since(before));
    }

    fn files(&self, way: &mut Way) {
        let mount = Mount::of(self.cluster);
        way.writes.push(self.run(|| {
            mount.write(self.payload_bytes);
            None
        }));
        drop(mount);
        // What is read comes from the cluster: this one has nothing in memory.
        let mount = Mount::of(self.cluster);
        way.reads.push(self.run(|| {
            mount.read();
            None
        }));
        mount.remove();
    }
}

/// Rates of runs of so many bytes, and against those of objects.
fn told(payload_bytes: u64, runs: &[Run], of: &[Run]) -> Value {
    let bytes = payload_bytes as f64;
    let rate = |run: &Run| bytes / run.seconds;
    let per_cpu = |run: &Run| bytes / run.drives_cpu_seconds;
    let ratios = |value: &dyn Fn(&Run) -> f64| -> Vec<f64> {
        runs.iter().zip(of).map(|(run, of)| value(run) / value(of)).collect()
    };
    json!({
        "bytes_per_s": median(runs.iter().map(rate).collect()),
        "bytes_per_drives_cpu_second": median(runs.iter().map(per_cpu).collect()),
        "to_objects": median(ratios(&rate)),
        "to_objects_per_drives_cpu_second": median(ratios(&per_cpu)),
        "all": { "to_objects": ratios(&rate), "to_objects_per_drives_cpu_second": ratios(&per_cpu) },
    })
}

/// Slots, and objects, of so many bytes. Each round has a cluster of its own, in which nothing was written and removed before: space that is free again is that of a drive only after a while.
pub fn rates(
    start: impl Fn() -> Cluster,
    rounds: usize,
    payload_bytes: u64,
    object_bytes: u64,
    at_once: usize,
) -> Value {
    let (mut objects, mut fragments, mut files) = (Way::default(), Way::default(), Way::default());
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let cluster = start();
        let world = World { cluster: &cluster, payload_bytes };
        let before = children_cpu_seconds();
        world.objects(&mut objects, object_bytes, at_once);
        clients.push(children_cpu_seconds() - before);
        let store = Store::make(&cluster, "rates", Some(object_bytes));
        let server = store.serve(CACHE_BYTES, &[]).wait();
        world.fragments(&mut fragments, &server);
        servers.push(server.cpu_seconds());
        drop(server);
        world.files(&mut files);
        let rate = |runs: &[Run]| runs.last().map_or(0.0, |run| payload_bytes as f64 / run.seconds / 1e6);
        eprintln!(
            "round {}, objects of {object_bytes}: rados bench writes {:.0} and reads {:.0} MB/s, Forebay {:.0} and {:.0}, CephFS {:.0} and {:.0}",
            round + 1,
            rate(&objects.writes),
            rate(&objects.reads),
            rate(&fragments.writes),
            rate(&fragments.reads),
            rate(&files.writes),
            rate(&files.reads)
        );
    }
    let of_way = |way: &Way| json!({ "write": told(payload_bytes, &way.writes, &objects.writes), "read": told(payload_bytes, &way.reads, &objects.reads) });
    let to_files = |runs: &[Run], of: &[Run]| -> Vec<f64> {
        runs.iter().zip(of).map(|(run, of)| of.seconds / run.seconds).collect()
    };
    let (writes, reads) = (to_files(&fragments.writes, &files.writes), to_files(&fragments.reads, &files.reads));
    json!({
        "object_bytes": object_bytes,
        "objects_at_once": at_once,
        "fragment_bytes": FRAGMENT_BYTES,
        "writers": WRITERS,
        "readers": READERS,
        "rounds": rounds,
        "rados_bench": of_way(&objects),
        "forebay": of_way(&fragments),
        "cephfs": of_way(&files),
        "forebay_read_operations": median(fragments.pool_reads.iter().map(|reads| reads.operations as f64).collect()),
        "forebay_bytes_read_per_byte": median(fragments.pool_reads.iter().map(|reads| reads.bytes as f64 / payload_bytes as f64).collect()),
        "forebay_to_cephfs": { "write": median(writes.clone()), "read": median(reads.clone()), "all": { "write": writes, "read": reads } },
        "rados_bench_client_cpu_seconds": median(clients),
        "forebay_server_cpu_seconds": median(servers),
    })
}
