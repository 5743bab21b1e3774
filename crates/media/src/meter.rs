//! What goes to each drive and comes from it, and how long that takes.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use forebay_types::DriveNumber;
use serde::Serialize;

use crate::{Completion, DriveFile, Media, Operation, OperationId};

/// An operation that takes longer is counted as slow: no drive that is well takes so long.
pub const SLOW_OPERATION: Duration = Duration::from_millis(250);

/// What one drive did, since the meters were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DriveCounts {
    /// Bytes of writes that completed.
    pub bytes_written: u64,
    /// Bytes of reads that completed.
    pub bytes_read: u64,
    /// Writes that completed.
    pub writes: u64,
    /// Reads that completed.
    pub reads: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Operations that took longer than [`SLOW_OPERATION`], failed ones too.
    pub operations_slow: u64,
    /// Time of the writes that completed, from submission until they were handed back, in nanoseconds, added up.
    pub write_ns: u64,
    /// The same of reads.
    pub read_ns: u64,
}

/// The counters of one drive. Alone in its cache lines: the threads of all lanes count here.
#[derive(Default)]
#[repr(align(128))]
struct Meter {
    bytes_written: AtomicU64,
    bytes_read: AtomicU64,
    writes: AtomicU64,
    reads: AtomicU64,
    write_errors: AtomicU64,
    read_errors: AtomicU64,
    operations_slow: AtomicU64,
    write_ns: AtomicU64,
    read_ns: AtomicU64,
}

impl Meter {
    fn note(&self, operation: &InFlight, succeeded: bool, took: Duration) {
        let (bytes, count, ns, errors) = if operation.is_write {
            (&self.bytes_written, &self.writes, &self.write_ns, &self.write_errors)
        } else {
            (&self.bytes_read, &self.reads, &self.read_ns, &self.read_errors)
        };
        // Each number stands for itself: no order between them is relied on.
        let add = |counter: &AtomicU64, value: u64| counter.fetch_add(value, Ordering::Relaxed);
        if succeeded {
            add(bytes, operation.bytes);
            add(count, 1);
            add(ns, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        } else {
            add(errors, 1);
        }
        if took > SLOW_OPERATION {
            add(&self.operations_slow, 1);
        }
    }

    fn counts(&self) -> DriveCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DriveCounts {
            bytes_written: read(&self.bytes_written),
            bytes_read: read(&self.bytes_read),
            writes: read(&self.writes),
            reads: read(&self.reads),
            write_errors: read(&self.write_errors),
            read_errors: read(&self.read_errors),
            operations_slow: read(&self.operations_slow),
            write_ns: read(&self.write_ns),
            read_ns: read(&self.read_ns),
        }
    }
}

/// The meters of all drives of a store; its clones are the same meters. Reading them disturbs nobody.
#[derive(Clone, Default)]
pub struct DriveMeters(Arc<Mutex<BTreeMap<DriveNumber, Arc<Meter>>>>);

impl DriveMeters {
    /// Meters that have counted nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// What each drive did that was asked for something.
    pub fn counts(&self) -> BTreeMap<DriveNumber, DriveCounts> {
        let meters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        meters.iter().map(|(drive, meter)| (*drive, meter.counts())).collect()
    }

    fn meter(&self, drive: DriveNumber) -> Arc<Meter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(drive).or_default().clone()
    }
}

struct InFlight {
    meter: Arc<Meter>,
    is_write: bool,
    bytes: u64,
    since: Instant,
}

/// A media whose operations are counted and timed. It decides nothing and changes nothing.
pub struct MeteredMedia<M: Media> {
    inner: M,
    meters: DriveMeters,
    /// Those of the drives that were used, so that no operation waits for a lock.
    known: HashMap<DriveNumber, Arc<Meter>>,
    in_flight: HashMap<OperationId, InFlight>,
}

impl<M: Media> MeteredMedia<M> {
    /// `inner`, counted by `meters`.
    pub fn new(inner: M, meters: DriveMeters) -> Self {
        MeteredMedia { inner, meters, known: HashMap::new(), in_flight: HashMap::new() }
    }

    fn note(&mut self, completions: &[Completion]) {
        if completions.is_empty() {
            return;
        }
        let now = Instant::now();
        for completion in completions {
            if let Some(operation) = self.in_flight.remove(&completion.id) {
                let took = now.saturating_duration_since(operation.since);
                operation.meter.note(&operation, completion.result.is_ok(), took);
            }
        }
    }
}

impl<M: Media> Media for MeteredMedia<M> {
    fn drive_bytes(&self, drive: DriveNumber) -> Option<u64> {
        self.inner.drive_bytes(drive)
    }

    fn add_drive(&mut self, drive: DriveNumber, file: Arc<DriveFile>) -> io::Result<()> {
        self.inner.add_drive(drive, file)
    }

    fn remove_drive(&mut self, drive: DriveNumber) {
        self.inner.remove_drive(drive);
    }

    fn submit(&mut self, id: OperationId, operation: Operation) {
        let (drive, is_write, bytes) = match &operation {
            Operation::Write { drive, bytes, .. } => (*drive, true, *bytes as u64),
            Operation::Read { drive, bytes, .. } => (*drive, false, *bytes as u64),
        };
        let meter = self.known.entry(drive).or_insert_with(|| self.meters.meter(drive)).clone();
        self.in_flight.insert(id, InFlight { meter, is_write, bytes, since: Instant::now() });
        self.inner.submit(id, operation);
    }

    fn discard(&mut self, drive: DriveNumber, offset_bytes: u64, bytes: u64) {
        self.inner.discard(drive, offset_bytes, bytes);
    }

    fn is_full(&self) -> bool {
        self.inner.is_full()
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn completions(&mut self, into: &mut Vec<Completion>) {
        let before = into.len();
        self.inner.completions(into);
        self.note(&into[before..]);
    }

    fn wait(&mut self, timeout: Duration, into: &mut Vec<Completion>) {
        let before = into.len();
        self.inner.wait(timeout, into);
        self.note(&into[before..]);
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn ready(&self) -> Option<BorrowedFd<'_>> {
        self.inner.ready()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBuffer, BLOCK_BYTES, FaultSwitch, FaultyMedia, MemoryDrives, MemoryMedia};

    const BLOCK: u64 = BLOCK_BYTES as u64;

    fn write(media: &mut impl Media, id: u64, drive: u16) {
        let buffer = Arc::new(AlignedBuffer::copied(&[1; 2 * BLOCK_BYTES]));
        let drive = DriveNumber(drive);
        media.submit(OperationId(id), Operation::Write { drive, offset_bytes: 0, buffer, bytes: 2 * BLOCK_BYTES });
        media.kick();
    }

    fn read(media: &mut impl Media, id: u64, drive: u16) {
        let buffer = AlignedBuffer::zeroed(BLOCK_BYTES);
        let drive = DriveNumber(drive);
        media.submit(OperationId(id), Operation::Read { drive, offset_bytes: 0, buffer, bytes: BLOCK_BYTES });
        media.kick();
    }

    #[test]
    fn what_each_drive_moves_and_fails_is_counted() {
        let drives = MemoryDrives::new(2, 4 * BLOCK);
        let (switch, meters) = (FaultSwitch::new(), DriveMeters::new());
        let faulty = FaultyMedia::new(MemoryMedia::new(&drives), switch.clone());
        let mut media = MeteredMedia::new(faulty, meters.clone());
        let mut done = Vec::new();
        write(&mut media, 1, 0);
        write(&mut media, 2, 1);
        read(&mut media, 3, 1);
        media.completions(&mut done);
        switch.fail(DriveNumber(1));
        write(&mut media, 4, 1);
        read(&mut media, 5, 1);
        media.completions(&mut done);
        assert_eq!((done.len(), media.in_flight.len()), (5, 0));
        let counts = meters.counts();
        let (first, second) = (counts[&DriveNumber(0)], counts[&DriveNumber(1)]);
        assert_eq!((first.bytes_written, first.writes, first.reads, first.write_errors), (2 * BLOCK, 1, 0, 0));
        assert_eq!((second.bytes_written, second.bytes_read), (2 * BLOCK, BLOCK));
        assert_eq!((second.writes, second.reads, second.write_errors, second.read_errors), (1, 1, 1, 1));
    }

    #[test]
    fn a_slow_drive_shows_in_its_time_and_not_in_that_of_others() {
        let drives = MemoryDrives::new(2, 4 * BLOCK);
        let meters = DriveMeters::new();
        let mut media = MeteredMedia::new(MemoryMedia::new(&drives), meters.clone());
        let mut done = Vec::new();
        drives.hold(DriveNumber(1));
        write(&mut media, 1, 0);
        write(&mut media, 2, 1);
        let begin = Instant::now();
        media.completions(&mut done);
        assert_eq!(done.len(), 1);
        while begin.elapsed() <= SLOW_OPERATION {
            std::thread::yield_now();
        }
        drives.release(DriveNumber(1));
        media.completions(&mut done);
        let counts = meters.counts();
        let (first, second) = (counts[&DriveNumber(0)], counts[&DriveNumber(1)]);
        assert!(u128::from(second.write_ns) > SLOW_OPERATION.as_nanos() && second.write_ns > first.write_ns);
        assert_eq!((second.operations_slow, second.writes), (1, 1));
    }
}
