//! Drives in memory, for tests: they fail, hang, rot, answer in any order and crash on command.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_types::DriveNumber;

use crate::request::{Memory, Request};
use crate::{BLOCK_BYTES, Completion, DriveFile, Media, MediaError, Operation, OperationId};

/// EIO, which Linux gives when a drive fails.
const IO_ERROR: i32 = rustix::io::Errno::IO.raw_os_error();

/// Drives that outlive the media over them, as real ones outlive a server. Clones are the same drives.
#[derive(Clone, Debug)]
pub struct MemoryDrives {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    drives: Mutex<BTreeMap<DriveNumber, MemoryDrive>>,
    released: Condvar,
}

#[derive(Debug)]
struct MemoryDrive {
    contents: Vec<u8>,
    /// Blocks that cannot be read until they are written.
    bad_blocks: BTreeSet<u64>,
    failed: bool,
    held: bool,
}

impl MemoryDrives {
    /// Drives 0 to `count` - 1 of `bytes` bytes each, all zero.
    ///
    /// # Panics
    /// When `bytes` is not a multiple of [`BLOCK_BYTES`].
    pub fn new(count: u16, bytes: u64) -> Self {
        Self::with_numbers((0..count).map(DriveNumber), bytes)
    }

    /// Drives with these numbers of `bytes` bytes each, all zero.
    ///
    /// # Panics
    /// When `bytes` is not a multiple of [`BLOCK_BYTES`].
    pub fn with_numbers(numbers: impl IntoIterator<Item = DriveNumber>, bytes: u64) -> Self {
        let shared = Shared { drives: Mutex::default(), released: Condvar::new() };
        let drives = MemoryDrives { shared: Arc::new(shared) };
        for number in numbers {
            drives.insert(number, bytes);
        }
        drives
    }

    /// Puts a new drive of zeros in, in place of the one with this number if there is one.
    ///
    /// # Panics
    /// When `bytes` is not a multiple of [`BLOCK_BYTES`].
    pub fn insert(&self, drive: DriveNumber, bytes: u64) {
        assert!(bytes.is_multiple_of(BLOCK_BYTES as u64), "a drive of {bytes} bytes is not in whole blocks");
        let bytes = usize::try_from(bytes).expect("a pretended drive fits in memory");
        let new = MemoryDrive::holding(vec![0; bytes]);
        self.locked().insert(drive, new);
        self.shared.released.notify_all();
    }

    /// Takes a drive out: it is absent from now on. Its contents, to put it back with [`MemoryDrives::restore`].
    pub fn remove(&self, drive: DriveNumber) -> Option<Vec<u8>> {
        let removed = self.locked().remove(&drive);
        self.shared.released.notify_all();
        removed.map(|drive| drive.contents)
    }

    /// The drives that there are.
    pub fn numbers(&self) -> Vec<DriveNumber> {
        self.locked().keys().copied().collect()
    }

    /// From now on every operation of the drive fails, as on a drive that died; those in flight too.
    ///
    /// # Panics
    /// Here and below: when there is no such drive.
    pub fn fail_drive(&self, drive: DriveNumber) {
        self.with(drive, |drive| drive.failed = true);
    }

    /// The drive works again, with what it held.
    pub fn mend_drive(&self, drive: DriveNumber) {
        self.with(drive, |drive| drive.failed = false);
    }

    /// Changes every byte of a range, the same for the same seed.
    ///
    /// # Panics
    /// When the range does not lie on the drive.
    pub fn corrupt(&self, drive: DriveNumber, range: Range<u64>, seed: u64) {
        let range = range.start as usize..range.end as usize;
        self.with(drive, |drive| {
            let mut random = Random(seed);
            for byte in &mut drive.contents[range] {
                *byte ^= 1 + (random.next() % 255) as u8;
            }
        });
    }

    /// The blocks that hold a range cannot be read any more until they are written: latent sector errors.
    pub fn spoil(&self, drive: DriveNumber, range: Range<u64>) {
        let blocks = range.start / BLOCK_BYTES as u64..range.end.div_ceil(BLOCK_BYTES as u64);
        self.with(drive, |drive| drive.bad_blocks.extend(blocks));
    }

    /// From now on operations of the drive stay in flight.
    pub fn hold(&self, drive: DriveNumber) {
        self.with(drive, |drive| drive.held = true);
    }

    /// What was held may finish.
    pub fn release(&self, drive: DriveNumber) {
        self.with(drive, |drive| drive.held = false);
        self.shared.released.notify_all();
    }

    /// What the drive holds now.
    pub fn contents(&self, drive: DriveNumber) -> Vec<u8> {
        self.with(drive, |drive| drive.contents.clone())
    }

    /// Lets the drive hold this, from an earlier [`MemoryDrives::contents`]: a drive that was away, or a copy of
    /// another. A drive that was removed is put back.
    ///
    /// # Panics
    /// When it is not in whole blocks.
    pub fn restore(&self, drive: DriveNumber, contents: &[u8]) {
        assert!(contents.len().is_multiple_of(BLOCK_BYTES), "{} bytes are not whole blocks", contents.len());
        let new = MemoryDrive::holding(Vec::new());
        self.locked().entry(drive).or_insert(new).contents = contents.to_vec();
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<DriveNumber, MemoryDrive>> {
        self.shared.drives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<R>(&self, number: DriveNumber, act: impl FnOnce(&mut MemoryDrive) -> R) -> R {
        act(self.locked().get_mut(&number).unwrap_or_else(|| panic!("there is no drive {number}")))
    }

    fn is_held(&self, drive: DriveNumber) -> bool {
        self.locked().get(&drive).is_some_and(|drive| drive.held)
    }

    /// Does what is asked, at once and as a whole.
    fn carry_out(&self, mut request: Request) -> Completion {
        let mut drives = self.locked();
        let result = match drives.get_mut(&request.drive) {
            None => Err(MediaError::Absent),
            Some(drive) => drive.carry_out(&mut request),
        };
        request.complete(result)
    }
}

impl MemoryDrive {
    fn holding(contents: Vec<u8>) -> Self {
        MemoryDrive { contents, bad_blocks: BTreeSet::new(), failed: false, held: false }
    }

    fn carry_out(&mut self, request: &mut Request) -> Result<(), MediaError> {
        if self.failed {
            return Err(request.transfer.os_error(IO_ERROR));
        }
        request.transfer.check(self.contents.len() as u64)?;
        let bytes = request.transfer.bytes;
        let start = request.transfer.offset_bytes as usize;
        let place = &mut self.contents[start..start + bytes];
        let blocks = (start / BLOCK_BYTES) as u64..(start + bytes).div_ceil(BLOCK_BYTES) as u64;
        match &mut request.memory {
            Memory::Write(buffer) => {
                place.copy_from_slice(&buffer[..bytes]);
                self.bad_blocks.retain(|block| !blocks.contains(block));
            }
            Memory::Read(_) if self.bad_blocks.range(blocks).next().is_some() => {
                return Err(request.transfer.os_error(IO_ERROR));
            }
            Memory::Read(buffer) => buffer[..bytes].copy_from_slice(place),
        }
        Ok(())
    }
}

/// In which order and how many at a time operations finish.
pub enum Delivery {
    /// All that can, in the order in which they were submitted.
    All,
    /// One with each call of [`Media::completions`], the oldest first.
    OneAtATime,
    /// Those that this chooses: it is given those that could finish, oldest first, and answers with the place of the
    /// next in that list, until it answers `None` (or with a place that is not there).
    Chosen(Choose),
}

/// The place of the operation that finishes next, among those given.
pub type Choose = Box<dyn FnMut(&[OperationId]) -> Option<usize> + Send>;

/// What a crash leaves of a write in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepPart {
    /// All of it, as if it had completed.
    Whole,
    /// Nothing of it.
    Nothing,
    /// The first blocks of it.
    First {
        /// How many.
        blocks: usize,
    },
    /// Some blocks of it, the same for the same seed.
    Some {
        /// Chooses them.
        seed: u64,
    },
}

/// An operation in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingOperation {
    /// Its name.
    pub id: OperationId,
    /// The drive.
    pub drive: DriveNumber,
    /// Whether it writes.
    pub is_write: bool,
    /// Where on the drive.
    pub offset_bytes: u64,
    /// How much.
    pub bytes: usize,
}

/// A lane's way to drives in memory. Operations are carried out as a whole when they are handed back.
pub struct MemoryMedia {
    drives: MemoryDrives,
    /// In the order of submission; the first `started` of them have been kicked.
    operations: Vec<Request>,
    started: usize,
    delivery: Delivery,
}

impl MemoryMedia {
    /// A media over these drives that finishes everything at once.
    pub fn new(drives: &MemoryDrives) -> Self {
        MemoryMedia { drives: drives.clone(), operations: Vec::new(), started: 0, delivery: Delivery::All }
    }

    /// From now on operations finish like this.
    pub fn set_delivery(&mut self, delivery: Delivery) {
        self.delivery = delivery;
    }

    /// What is in flight, in the order of submission.
    pub fn pending(&self) -> Vec<PendingOperation> {
        let pending = |request: &Request| PendingOperation {
            id: request.id,
            drive: request.drive,
            is_write: matches!(request.memory, Memory::Write(_)),
            offset_bytes: request.transfer.offset_bytes,
            bytes: request.transfer.bytes,
        };
        self.operations.iter().map(pending).collect()
    }

    /// The machine goes down: of every operation in flight `keep` says what is left, by its place in
    /// [`MemoryMedia::pending`]; of reads nothing is. Nothing is in flight afterwards and nothing is handed back.
    /// Writes to absent or failed drives, and those past the end, leave nothing.
    pub fn crash(&mut self, mut keep: impl FnMut(usize) -> KeepPart) {
        self.started = 0;
        for (place, request) in self.operations.drain(..).enumerate() {
            let Memory::Write(buffer) = &request.memory else { continue };
            let transfer = &request.transfer;
            let mut drives = self.drives.locked();
            let Some(drive) = drives.get_mut(&request.drive).filter(|drive| !drive.failed) else { continue };
            if transfer.check(drive.contents.len() as u64).is_err() {
                continue;
            }
            let start = transfer.offset_bytes as usize;
            let old = drive.contents[start..start + transfer.bytes].chunks_exact_mut(BLOCK_BYTES);
            let new = buffer[..transfer.bytes].chunks_exact(BLOCK_BYTES);
            let part = keep(place);
            let mut random = Random(if let KeepPart::Some { seed } = part { seed } else { 0 });
            for (block, (old, new)) in old.zip(new).enumerate() {
                let kept = match part {
                    KeepPart::Whole => true,
                    KeepPart::Nothing => false,
                    KeepPart::First { blocks } => block < blocks,
                    KeepPart::Some { .. } => random.next() & 1 == 1,
                };
                if kept {
                    old.copy_from_slice(new);
                }
            }
        }
    }

    /// The places of what could finish now.
    fn finishable(&self) -> Vec<usize> {
        (0..self.started).filter(|&place| !self.drives.is_held(self.operations[place].drive)).collect()
    }

    fn finish(&mut self, place: usize, into: &mut Vec<Completion>) {
        self.started -= 1;
        let request = self.operations.remove(place);
        into.push(self.drives.carry_out(request));
    }

    fn finish_all(&mut self, into: &mut Vec<Completion>) {
        let later = self.operations.split_off(self.started);
        for request in std::mem::replace(&mut self.operations, Vec::with_capacity(later.len())) {
            if self.drives.is_held(request.drive) {
                self.operations.push(request);
            } else {
                into.push(self.drives.carry_out(request));
            }
        }
        self.started = self.operations.len();
        self.operations.extend(later);
    }

    fn finish_chosen(&mut self, into: &mut Vec<Completion>) {
        loop {
            let places = self.finishable();
            let ids: Vec<OperationId> = places.iter().map(|&place| self.operations[place].id).collect();
            let Delivery::Chosen(choose) = &mut self.delivery else { return };
            if ids.is_empty() {
                return;
            }
            let Some(&place) = choose(&ids).and_then(|choice| places.get(choice)) else { return };
            self.finish(place, into);
        }
    }
}

impl Media for MemoryMedia {
    fn drive_bytes(&self, drive: DriveNumber) -> Option<u64> {
        self.drives.locked().get(&drive).map(|drive| drive.contents.len() as u64)
    }

    /// Its drives are those of its [`MemoryDrives`], which it sees as they come: a file is none of them.
    fn add_drive(&mut self, _: DriveNumber, _: Arc<DriveFile>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// None was added.
    fn remove_drive(&mut self, _: DriveNumber) {}

    fn submit(&mut self, id: OperationId, operation: Operation) {
        self.operations.push(Request::new(id, operation));
    }

    fn kick(&mut self) {
        self.started = self.operations.len();
    }

    fn completions(&mut self, into: &mut Vec<Completion>) {
        match self.delivery {
            Delivery::All => self.finish_all(into),
            Delivery::OneAtATime => {
                if let Some(&oldest) = self.finishable().first() {
                    self.finish(oldest, into);
                }
            }
            Delivery::Chosen(_) => self.finish_chosen(into),
        }
    }

    fn wait(&mut self, timeout: Duration, into: &mut Vec<Completion>) {
        let before = into.len();
        let start = Instant::now();
        self.kick();
        loop {
            self.completions(into);
            let left = timeout.saturating_sub(start.elapsed());
            if into.len() > before || left.is_zero() {
                return;
            }
            let drives = self.drives.locked();
            // A release between the look above and here is not missed for long.
            let look_again = left.min(Duration::from_millis(10));
            drop(self.drives.shared.released.wait_timeout(drives, look_again));
        }
    }

    fn in_flight(&self) -> usize {
        self.operations.len()
    }

    fn ready(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// SplitMix64: a few lines, and the same bytes for ever.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AlignedBuffer;

    const DRIVE: DriveNumber = DriveNumber(0);

    fn write(media: &mut MemoryMedia, id: u64, blocks: Range<u64>, fill: u8) {
        let bytes = (blocks.end - blocks.start) as usize * BLOCK_BYTES;
        let buffer = Arc::new(AlignedBuffer::copied(&vec![fill; bytes]));
        let offset_bytes = blocks.start * BLOCK_BYTES as u64;
        media.submit(OperationId(id), Operation::Write { drive: DRIVE, offset_bytes, buffer, bytes });
    }

    fn finished(media: &mut MemoryMedia) -> Vec<u64> {
        let mut done = Vec::new();
        media.completions(&mut done);
        done.iter().map(|completion| completion.id.0).collect()
    }

    /// The first byte of each block.
    fn blocks(drives: &MemoryDrives) -> Vec<u8> {
        drives.contents(DRIVE).chunks(BLOCK_BYTES).map(|block| block[0]).collect()
    }

    #[test]
    fn held_operations_stay_in_flight_and_move_nothing() {
        let drives = MemoryDrives::new(1, 8192);
        let mut media = MemoryMedia::new(&drives);
        drives.hold(DRIVE);
        write(&mut media, 1, 0..2, 7);
        media.kick();
        let mut done = Vec::new();
        media.wait(Duration::from_millis(1), &mut done);
        assert_eq!((done.len(), media.in_flight(), blocks(&drives)), (0, 1, vec![0, 0]));
        drives.release(DRIVE);
        assert_eq!(finished(&mut media), [1]);
        assert_eq!((media.in_flight(), blocks(&drives)), (0, vec![7, 7]));
    }

    #[test]
    fn operations_finish_one_at_a_time_or_as_chosen() {
        let drives = MemoryDrives::new(1, 4 * 4096);
        let mut media = MemoryMedia::new(&drives);
        media.set_delivery(Delivery::OneAtATime);
        for id in 0..4 {
            write(&mut media, id, id..id + 1, 1);
        }
        assert!(finished(&mut media).is_empty(), "not kicked");
        media.kick();
        assert_eq!(finished(&mut media), [0]);
        let mut left = 2;
        media.set_delivery(Delivery::Chosen(Box::new(move |ids| {
            left -= 1;
            (left >= 0).then_some(ids.len() - 1)
        })));
        assert_eq!(finished(&mut media), [3, 2]);
        assert_eq!(blocks(&drives), [1, 0, 1, 1]);
        media.set_delivery(Delivery::All);
        assert_eq!(finished(&mut media), [1]);
    }

    #[test]
    fn a_crash_keeps_what_the_test_says_and_forgets_the_rest() {
        let drives = MemoryDrives::new(1, 128 * 4096);
        let mut media = MemoryMedia::new(&drives);
        write(&mut media, 0, 0..4, 1);
        write(&mut media, 1, 4..8, 2);
        write(&mut media, 2, 8..12, 3);
        write(&mut media, 3, 12..128, 4);
        write(&mut media, 4, 126..130, 5);
        assert_eq!(media.pending()[2].offset_bytes, 8 * 4096);
        let parts = [KeepPart::Whole, KeepPart::Nothing, KeepPart::First { blocks: 1 }, KeepPart::Some { seed: 5 }];
        media.crash(|place| parts[place]);
        assert_eq!(media.in_flight(), 0);
        let after = blocks(&drives);
        assert_eq!(after[..12], [1, 1, 1, 1, 0, 0, 0, 0, 3, 0, 0, 0]);
        let kept = after[12..].iter().filter(|&&block| block == 4).count();
        assert!((20..100).contains(&kept), "{kept} of 116 blocks");
        assert!(after[12..].iter().all(|&block| block == 0 || block == 4));
        assert!(finished(&mut MemoryMedia::new(&drives)).is_empty());
    }

    #[test]
    fn drives_fail_rot_leave_and_come_back_stale() {
        let drives = MemoryDrives::new(1, 4096);
        let mut media = MemoryMedia::new(&drives);
        let stale = drives.contents(DRIVE);
        write(&mut media, 1, 0..1, 9);
        media.kick();
        assert_eq!(finished(&mut media), [1]);
        drives.corrupt(DRIVE, 10..20, 3);
        let rotten = drives.contents(DRIVE);
        let changed: Vec<usize> = (0..4096).filter(|&at| rotten[at] != 9).collect();
        assert_eq!(changed, (10..20).collect::<Vec<_>>());

        drives.spoil(DRIVE, 10..20);
        media.submit(
            OperationId(7),
            Operation::Read { drive: DRIVE, offset_bytes: 0, buffer: AlignedBuffer::zeroed(4096), bytes: 4096 },
        );
        let mut spoilt = Vec::new();
        media.wait(Duration::ZERO, &mut spoilt);
        assert!(matches!(spoilt[0].result, Err(MediaError::Os { errno: 5, .. })), "{spoilt:?}");
        write(&mut media, 3, 0..1, 9);
        media.kick();
        assert_eq!((finished(&mut media), blocks(&drives)), (vec![3], vec![9]));
        drives.restore(DRIVE, &rotten);

        drives.fail_drive(DRIVE);
        write(&mut media, 2, 0..1, 8);
        let mut done = Vec::new();
        media.wait(Duration::ZERO, &mut done);
        assert!(matches!(done[0].result, Err(MediaError::Os { errno: 5, .. })), "{done:?}");
        drives.mend_drive(DRIVE);

        assert_eq!(drives.remove(DRIVE).as_ref(), Some(&rotten));
        assert_eq!(media.drive_bytes(DRIVE), None);
        drives.restore(DRIVE, &stale);
        assert_eq!((media.drive_bytes(DRIVE), blocks(&drives)), (Some(4096), vec![0]));
    }
}
