//! Drives that fail on command. For tests and the demo; nothing in a production server creates one.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use forebay_types::DriveNumber;

use crate::{Completion, DriveFile, Media, MediaError, Operation, OperationId};

const WORDS: usize = (u16::MAX as usize + 1) / u64::BITS as usize;

/// Which drives are to fail, or to be slow; its clones are one switch.
#[derive(Clone, Debug)]
pub struct FaultSwitch {
    failed: Arc<[AtomicU64]>,
    slow: Arc<Mutex<BTreeMap<DriveNumber, Duration>>>,
}

impl Default for FaultSwitch {
    fn default() -> Self {
        FaultSwitch { failed: (0..WORDS).map(|_| AtomicU64::new(0)).collect(), slow: Arc::default() }
    }
}

impl FaultSwitch {
    /// A switch with which all drives are well.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on every operation of this drive fails, those in flight too.
    pub fn fail(&self, drive: DriveNumber) {
        let (word, bit) = self.place(drive);
        word.fetch_or(bit, Ordering::SeqCst);
    }

    /// From now on operations of this drive are told to be done so much later than they are.
    pub fn slow(&self, drive: DriveNumber, by: Duration) {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner).insert(drive, by);
    }

    fn delay(&self, drive: DriveNumber) -> Option<Duration> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner).get(&drive).copied()
    }

    /// From now on operations of this drive reach it again, and are as fast as it is.
    pub fn mend(&self, drive: DriveNumber) {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner).remove(&drive);
        let (word, bit) = self.place(drive);
        word.fetch_and(!bit, Ordering::SeqCst);
    }

    /// Whether the drive is to fail.
    pub fn is_failed(&self, drive: DriveNumber) -> bool {
        let (word, bit) = self.place(drive);
        word.load(Ordering::SeqCst) & bit != 0
    }

    fn place(&self, drive: DriveNumber) -> (&AtomicU64, u64) {
        let number = u32::from(drive.0);
        (&self.failed[(number / u64::BITS) as usize], 1 << (number % u64::BITS))
    }
}

/// A media whose drives are slow, or fail with [`MediaError::Injected`] when its switch says so.
pub struct FaultyMedia<M: Media> {
    inner: M,
    switch: FaultSwitch,
    in_flight: HashMap<OperationId, InFlight>,
    given_back: Vec<Completion>,
    /// Of slow drives, and when they are told.
    held: Vec<(Instant, Completion)>,
}

struct InFlight {
    drive: DriveNumber,
    failed: bool,
}

/// A drive that no media has. What is to fail is sent there, so that it completes, counts and wakes up as any other
/// operation.
const NOWHERE: DriveNumber = DriveNumber(u16::MAX);

impl<M: Media> FaultyMedia<M> {
    /// `inner`, failing as `switch` says.
    ///
    /// # Panics
    /// When `inner` has a drive with the number 65535, which no store has.
    pub fn new(inner: M, switch: FaultSwitch) -> Self {
        assert!(inner.drive_bytes(NOWHERE).is_none(), "drive {NOWHERE} must not exist");
        FaultyMedia { inner, switch, in_flight: HashMap::new(), given_back: Vec::new(), held: Vec::new() }
    }

    fn hand_over(&mut self, into: &mut Vec<Completion>) {
        for mut completion in self.given_back.drain(..) {
            let InFlight { drive, failed } = self.in_flight.remove(&completion.id).expect("submitted here");
            if failed || self.switch.is_failed(drive) {
                completion.result = Err(MediaError::Injected);
            }
            match self.switch.delay(drive) {
                Some(delay) => self.held.push((Instant::now() + delay, completion)),
                None => into.push(completion),
            }
        }
        let now = Instant::now();
        into.extend(self.held.extract_if(.., |(due, _)| *due <= now).map(|(_, completion)| completion));
    }

    /// When the first of those that are held is told.
    fn first_due(&self) -> Option<Instant> {
        self.held.iter().map(|(due, _)| *due).min()
    }
}

impl<M: Media> Media for FaultyMedia<M> {
    fn drive_bytes(&self, drive: DriveNumber) -> Option<u64> {
        self.inner.drive_bytes(drive)
    }

    fn add_drive(&mut self, drive: DriveNumber, file: Arc<DriveFile>) -> io::Result<()> {
        self.inner.add_drive(drive, file)
    }

    fn remove_drive(&mut self, drive: DriveNumber) {
        self.inner.remove_drive(drive);
    }

    fn submit(&mut self, id: OperationId, mut operation: Operation) {
        let (Operation::Write { drive: target, .. } | Operation::Read { drive: target, .. }) = &mut operation;
        let drive = *target;
        let failed = self.switch.is_failed(drive);
        if failed {
            *target = NOWHERE;
        }
        self.in_flight.insert(id, InFlight { drive, failed });
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
        let due = self.first_due().map(|due| due.saturating_duration_since(Instant::now()));
        self.inner.wait(due.unwrap_or(timeout).min(timeout), &mut self.given_back);
        self.hand_over(into);
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.held.len()
    }

    fn ready(&self) -> Option<BorrowedFd<'_>> {
        self.inner.ready()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBuffer, BLOCK_BYTES, MemoryDrives, MemoryMedia};

    fn write(media: &mut impl Media, id: u64, drive: u16) {
        let operation = Operation::Write {
            drive: DriveNumber(drive),
            offset_bytes: 0,
            buffer: Arc::new(AlignedBuffer::copied(&[1; BLOCK_BYTES])),
            bytes: BLOCK_BYTES,
        };
        media.submit(OperationId(id), operation);
        media.kick();
    }

    fn results(media: &mut impl Media) -> Vec<(u64, Result<(), MediaError>)> {
        let mut done = Vec::new();
        media.completions(&mut done);
        done.into_iter().map(|completion| (completion.id.0, completion.result)).collect()
    }

    #[test]
    fn one_drive_fails_by_command_while_others_go_on() {
        let drives = MemoryDrives::new(2, BLOCK_BYTES as u64);
        let switch = FaultSwitch::new();
        let mut media = FaultyMedia::new(MemoryMedia::new(&drives), switch.clone());
        switch.fail(DriveNumber(1));
        write(&mut media, 1, 0);
        write(&mut media, 2, 1);
        assert_eq!(results(&mut media), [(1, Ok(())), (2, Err(MediaError::Injected))]);
        assert!(drives.contents(DriveNumber(1)).iter().all(|&b| b == 0), "nothing reached the drive");
        switch.mend(DriveNumber(1));
        write(&mut media, 3, 1);
        assert_eq!(results(&mut media), [(3, Ok(()))]);
        assert_eq!(media.in_flight(), 0);
    }

    #[test]
    fn a_slow_drive_is_told_later_and_loses_nothing() {
        const DELAY: Duration = Duration::from_millis(20);
        let drives = MemoryDrives::new(2, BLOCK_BYTES as u64);
        let switch = FaultSwitch::new();
        let mut media = FaultyMedia::new(MemoryMedia::new(&drives), switch.clone());
        switch.slow(DriveNumber(1), DELAY);
        let begin = Instant::now();
        write(&mut media, 1, 0);
        write(&mut media, 2, 1);
        let mut done = Vec::new();
        while done.len() < 2 {
            media.wait(Duration::from_secs(1), &mut done);
            assert_eq!(media.in_flight(), 2 - done.len());
        }
        assert!(begin.elapsed() >= DELAY && done.iter().all(|completion| completion.result.is_ok()));
        assert_eq!(done[1].id, OperationId(2));
        switch.mend(DriveNumber(1));
        write(&mut media, 3, 1);
        assert_eq!(results(&mut media), [(3, Ok(()))]);
    }

    #[test]
    fn what_is_in_flight_when_the_drive_fails_fails_too() {
        let drives = MemoryDrives::new(1, BLOCK_BYTES as u64);
        let switch = FaultSwitch::new();
        let mut media = FaultyMedia::new(MemoryMedia::new(&drives), switch.clone());
        drives.hold(DriveNumber(0));
        write(&mut media, 1, 0);
        assert_eq!((results(&mut media).len(), media.in_flight()), (0, 1));
        switch.fail(DriveNumber(0));
        drives.release(DriveNumber(0));
        assert_eq!(results(&mut media), [(1, Err(MediaError::Injected))]);
    }
}
