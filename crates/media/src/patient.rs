//! Drives that are waited for only so long, for whoever looks at a store with no control part that takes one out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use forebay_types::DriveNumber;

use crate::{Completion, DriveFile, Media, MediaError, Operation, OperationId};

/// The most that counts as passed between two looks: a process that was stopped has not waited for its drives.
const STEP_MAX: Duration = Duration::from_millis(200);

/// The drives that a [`PatientMedia`] gave up; its clones tell the same.
#[derive(Clone, Default)]
pub struct SilentDrives(Arc<Mutex<BTreeSet<DriveNumber>>>);

impl SilentDrives {
    /// Them, ascending.
    pub fn list(&self) -> Vec<DriveNumber> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    fn add(&self, drive: DriveNumber) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(drive);
    }
}

/// A media that gives a drive up when an operation on it is not answered within a limit: that one and all others on it, now and later, complete with
/// [`MediaError::Silent`]. Time passes for it while [`Media::completions`] or [`Media::wait`] is called, at least once in 200 ms.
///
/// It is for reading. A write that was given up may still reach the drive.
pub struct PatientMedia<M: Media> {
    /// Not dropped while a drive holds operations that were given up: that would be waiting for it once more.
    inner: ManuallyDrop<M>,
    limit: Duration,
    silent: SilentDrives,
    in_flight: HashMap<OperationId, InFlight>,
    /// Operations of silent drives that have not come back.
    given_up: BTreeSet<OperationId>,
    given_back: Vec<Completion>,
    refused: Vec<Completion>,
    passed: Duration,
    looked: Instant,
}

struct InFlight {
    drive: DriveNumber,
    since: Duration,
}

impl<M: Media> PatientMedia<M> {
    /// `inner`, whose drives are waited for up to `limit`; those that were given up are told by `silent`.
    pub fn new(inner: M, limit: Duration, silent: SilentDrives) -> Self {
        PatientMedia {
            inner: ManuallyDrop::new(inner),
            limit,
            silent,
            in_flight: HashMap::new(),
            given_up: BTreeSet::new(),
            given_back: Vec::new(),
            refused: Vec::new(),
            passed: Duration::ZERO,
            looked: Instant::now(),
        }
    }

    fn refuse(&mut self, id: OperationId) {
        let result = Err(MediaError::Silent { limit_ms: u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX) });
        self.refused.push(Completion { id, result, buffer: None });
    }

    fn hand_over(&mut self, into: &mut Vec<Completion>) {
        for completion in self.given_back.drain(..) {
            if self.in_flight.remove(&completion.id).is_some() {
                into.push(completion);
            } else {
                self.given_up.remove(&completion.id);
            }
        }
        let now = Instant::now();
        self.passed += (now - self.looked).min(STEP_MAX);
        self.looked = now;
        self.judge();
        into.append(&mut self.refused);
    }

    /// Gives the drives up that hold an operation for too long.
    fn judge(&mut self) {
        let mut late: BTreeMap<DriveNumber, Vec<OperationId>> = BTreeMap::new();
        let is_late = |operation: &InFlight| self.passed - operation.since > self.limit;
        for operation in self.in_flight.values().filter(|operation| is_late(operation)) {
            late.entry(operation.drive).or_default();
        }
        for (id, operation) in &self.in_flight {
            late.entry(operation.drive).and_modify(|ids| ids.push(*id));
        }
        for (drive, ids) in late {
            self.silent.add(drive);
            for id in ids {
                self.in_flight.remove(&id);
                self.given_up.insert(id);
                self.refuse(id);
            }
        }
    }
}

impl<M: Media> Media for PatientMedia<M> {
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
        let (Operation::Write { drive, .. } | Operation::Read { drive, .. }) = &operation;
        if self.silent.0.lock().unwrap_or_else(PoisonError::into_inner).contains(drive) {
            return self.refuse(id);
        }
        self.in_flight.insert(id, InFlight { drive: *drive, since: self.passed });
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
        self.inner.completions(&mut self.given_back);
        self.hand_over(into);
    }

    fn wait(&mut self, timeout: Duration, into: &mut Vec<Completion>) {
        let timeout = if self.refused.is_empty() { timeout } else { Duration::ZERO };
        self.inner.wait(timeout, &mut self.given_back);
        self.hand_over(into);
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len() + self.refused.len()
    }

    fn ready(&self) -> Option<BorrowedFd<'_>> {
        self.inner.ready()
    }
}

impl<M: Media> Drop for PatientMedia<M> {
    fn drop(&mut self) {
        if self.given_up.is_empty() {
            // SAFETY: dropped once, at the end of the only owner's life, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.inner) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBuffer, BLOCK_BYTES, MemoryDrives, MemoryMedia};

    const LIMIT: Duration = Duration::from_millis(50);
    const PAUSE: Duration = Duration::from_millis(5);

    fn read(media: &mut impl Media, id: u64, drive: u16) {
        let (drive, buffer) = (DriveNumber(drive), AlignedBuffer::zeroed(BLOCK_BYTES));
        media.submit(OperationId(id), Operation::Read { drive, offset_bytes: 0, buffer, bytes: BLOCK_BYTES });
        media.kick();
    }

    /// What comes back until nothing is out, or for much longer than the limit.
    fn results(media: &mut impl Media) -> Vec<(u64, Result<(), MediaError>)> {
        let (begin, mut done) = (Instant::now(), Vec::new());
        while media.in_flight() > 0 && begin.elapsed() < LIMIT * 20 {
            media.completions(&mut done);
            std::thread::sleep(PAUSE);
        }
        let mut results: Vec<_> = done.into_iter().map(|completion| (completion.id.0, completion.result)).collect();
        results.sort_by_key(|(id, _)| *id);
        results
    }

    #[test]
    fn a_drive_that_does_not_answer_is_given_up_and_the_others_go_on() {
        let (drives, silent) = (MemoryDrives::new(2, BLOCK_BYTES as u64), SilentDrives::default());
        let mut media = PatientMedia::new(MemoryMedia::new(&drives), LIMIT, silent.clone());
        drives.hold(DriveNumber(1));
        for (id, drive) in [(1, 0), (2, 1), (3, 1)] {
            read(&mut media, id, drive);
        }
        let gone = Err(MediaError::Silent { limit_ms: 50 });
        assert_eq!(results(&mut media), [(1, Ok(())), (2, gone.clone()), (3, gone.clone())]);
        assert_eq!(silent.list(), [DriveNumber(1)]);
        // It is not asked any more, and what comes from it late is nobody's.
        read(&mut media, 4, 1);
        assert_eq!(results(&mut media), [(4, gone)]);
        drives.release(DriveNumber(1));
        read(&mut media, 5, 0);
        assert_eq!(results(&mut media), [(5, Ok(()))]);
        assert!(media.given_up.is_empty());
    }

    #[test]
    fn a_process_that_was_stopped_has_not_waited() {
        let (drives, silent) = (MemoryDrives::new(1, BLOCK_BYTES as u64), SilentDrives::default());
        let mut media = PatientMedia::new(MemoryMedia::new(&drives), STEP_MAX * 2, silent.clone());
        drives.hold(DriveNumber(0));
        read(&mut media, 1, 0);
        std::thread::sleep(STEP_MAX * 3);
        media.completions(&mut Vec::new());
        assert_eq!(silent.list(), []);
        drives.release(DriveNumber(0));
        assert_eq!(results(&mut media), [(1, Ok(()))]);
    }
}
