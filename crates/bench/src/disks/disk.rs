//! A disk with a head, in virtual time: what its operations cost, and how often the head moved.
//!
//! The contents are kept but for blocks of zeros, so that many large disks fit in memory when what is written to them are zeros.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use forebay_media::{AlignedBuffer, BLOCK_BYTES, Completion, MediaError, Operation, OperationId};
use forebay_types::Time;

/// What a kind of disk needs for what.
#[derive(Clone, Copy, Debug)]
pub struct DiskModel {
    /// Moving the head to anywhere else, on average.
    pub seek: Duration,
    /// One turn of the platters.
    pub turn: Duration,
    /// What passes under the head.
    pub bytes_per_s: f64,
}

impl DiskModel {
    /// A disk of 7,200 turns a minute as data sheets have them: 8.5 ms for an average seek, 4.16 ms until the place comes by on average.
    /// 225 MB/s is the mean over the platters that the LHCb storage reckons with for its 18 TB disks.
    pub const NEARLINE: DiskModel =
        DiskModel { seek: Duration::from_micros(8500), turn: Duration::from_micros(8333), bytes_per_s: 225e6 };

    fn transfer(&self, bytes: usize) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.bytes_per_s)
    }
}

/// What a disk did.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskCounts {
    /// Operations, and the bytes that they moved.
    pub operations: u64,
    pub bytes: u64,
    /// Operations that began elsewhere than the one before ended.
    pub seeks: u64,
    /// Operations that came too late to begin where the one before ended: their place had gone by, and came again a turn later.
    pub turns_missed: u64,
    /// The longest that an operation took from when it was asked for.
    pub longest: Duration,
    /// Time in which it worked, and that part of it in which bytes moved.
    pub busy: Duration,
    pub moving: Duration,
}

impl DiskCounts {
    /// What was done since.
    pub fn since(&self, before: &DiskCounts) -> DiskCounts {
        DiskCounts {
            operations: self.operations - before.operations,
            bytes: self.bytes - before.bytes,
            seeks: self.seeks - before.seeks,
            turns_missed: self.turns_missed - before.turns_missed,
            longest: self.longest,
            busy: self.busy - before.busy,
            moving: self.moving - before.moving,
        }
    }

    /// Both together.
    pub fn and(&self, other: &DiskCounts) -> DiskCounts {
        DiskCounts {
            operations: self.operations + other.operations,
            bytes: self.bytes + other.bytes,
            seeks: self.seeks + other.seeks,
            turns_missed: self.turns_missed + other.turns_missed,
            longest: self.longest.max(other.longest),
            busy: self.busy + other.busy,
            moving: self.moving + other.moving,
        }
    }
}

/// An operation that waits for its turn, and whose it is.
struct Waiting {
    lane: usize,
    id: OperationId,
    operation: Operation,
    since: Time,
}

/// One disk. It takes operations in the order in which they come; one that begins where the one before ended needs no seek.
pub struct Disk {
    model: DiskModel,
    blocks: BTreeMap<u64, Box<[u8]>>,
    waiting: VecDeque<Waiting>,
    /// When the operation in front ends.
    ends: Option<Time>,
    head_bytes: u64,
    idle_since: Time,
    failed: bool,
    counts: DiskCounts,
}

impl Disk {
    /// One of zeros.
    pub fn new(model: DiskModel) -> Disk {
        Disk {
            model,
            blocks: BTreeMap::new(),
            waiting: VecDeque::new(),
            ends: None,
            head_bytes: 0,
            idle_since: Time(0),
            failed: false,
            counts: DiskCounts::default(),
        }
    }

    /// What it did so far.
    pub fn counts(&self) -> DiskCounts {
        self.counts
    }

    /// It fails every operation from now on, at once.
    pub fn fail(&mut self) {
        self.failed = true;
    }

    /// Takes an operation of a lane.
    pub fn submit(&mut self, now: Time, lane: usize, id: OperationId, operation: Operation) {
        self.waiting.push_back(Waiting { lane, id, operation, since: now });
        if self.ends.is_none() {
            self.begin(now, false);
        }
    }

    /// When its next operation ends.
    pub fn next_end(&self) -> Option<Time> {
        self.ends
    }

    /// The operation that ends now, and the lane that it belongs to.
    pub fn finish(&mut self, now: Time) -> (usize, Completion) {
        let Waiting { lane, id, operation, since } = self.waiting.pop_front().expect("one is in front");
        self.counts.longest = self.counts.longest.max(now.since(since));
        self.idle_since = now;
        let completion = if self.failed {
            Completion { id, result: Err(MediaError::Absent), buffer: buffer_of(operation) }
        } else {
            Completion { id, result: Ok(()), buffer: self.carry_out(operation) }
        };
        self.ends = None;
        if !self.waiting.is_empty() {
            self.begin(now, true);
        }
        (lane, completion)
    }

    /// `follows`: it was there when the one before it ended.
    fn begin(&mut self, now: Time, follows: bool) {
        let operation = &self.waiting.front().expect("one waits").operation;
        // A disk reads ahead: what is read late is there already.
        let in_time = follows || matches!(operation, Operation::Read { .. });
        let (offset_bytes, bytes) = extent(operation);
        let cost = if self.failed { Duration::ZERO } else { self.cost(now, offset_bytes, bytes, in_time) };
        self.ends = Some(now + cost);
    }

    fn cost(&mut self, now: Time, offset_bytes: u64, bytes: usize, in_time: bool) -> Duration {
        let until_there = if offset_bytes != self.head_bytes {
            self.counts.seeks += 1;
            self.model.seek + self.model.turn / 2
        } else if in_time {
            Duration::ZERO
        } else {
            self.counts.turns_missed += 1;
            let past = now.since(self.idle_since).as_nanos() % self.model.turn.as_nanos();
            self.model.turn - Duration::from_nanos(past as u64)
        };
        let moving = self.model.transfer(bytes);
        self.head_bytes = offset_bytes + bytes as u64;
        self.counts.operations += 1;
        self.counts.bytes += bytes as u64;
        self.counts.moving += moving;
        self.counts.busy += until_there + moving;
        until_there + moving
    }

    fn carry_out(&mut self, operation: Operation) -> Option<AlignedBuffer> {
        match operation {
            Operation::Write { offset_bytes, buffer, bytes, .. } => {
                self.write(offset_bytes, &buffer[..bytes]);
                None
            }
            Operation::Read { offset_bytes, mut buffer, bytes, .. } => {
                self.read(offset_bytes, &mut buffer[..bytes]);
                Some(buffer)
            }
        }
    }

    /// Lets it hold these blocks, at no cost.
    pub fn write(&mut self, offset_bytes: u64, bytes: &[u8]) {
        for (number, block) in (offset_bytes / BLOCK_BYTES as u64..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
            if block.iter().all(|byte| *byte == 0) {
                self.blocks.remove(&number);
            } else {
                self.blocks.insert(number, block.into());
            }
        }
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) {
        into.fill(0);
        let first = offset_bytes / BLOCK_BYTES as u64;
        let end = first + (into.len() / BLOCK_BYTES) as u64;
        for (number, block) in self.blocks.range(first..end) {
            let at = (number - first) as usize * BLOCK_BYTES;
            into[at..at + BLOCK_BYTES].copy_from_slice(block);
        }
    }
}

fn extent(operation: &Operation) -> (u64, usize) {
    match operation {
        Operation::Write { offset_bytes, bytes, .. } | Operation::Read { offset_bytes, bytes, .. } => {
            (*offset_bytes, *bytes)
        }
    }
}

fn buffer_of(operation: Operation) -> Option<AlignedBuffer> {
    match operation {
        Operation::Write { .. } => None,
        Operation::Read { buffer, .. } => Some(buffer),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_types::DriveNumber;

    use super::*;

    const MODEL: DiskModel =
        DiskModel { seek: Duration::from_millis(8), turn: Duration::from_millis(10), bytes_per_s: 4.096e6 };

    fn write(block: u64, fill: u8) -> Operation {
        let buffer = Arc::new(AlignedBuffer::copied(&[fill; BLOCK_BYTES]));
        let offset_bytes = block * BLOCK_BYTES as u64;
        Operation::Write { drive: DriveNumber(0), offset_bytes, buffer, bytes: BLOCK_BYTES }
    }

    fn at_ms(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    #[test]
    fn what_follows_costs_its_bytes_and_what_does_not_costs_a_seek() {
        let mut disk = Disk::new(MODEL);
        // Another place, the one behind it, the same place again: a block takes 1 ms, a seek 8 ms and half a turn.
        for (id, block) in [(0, 7), (1, 8), (2, 8)] {
            disk.submit(Time(0), 3, OperationId(id), write(block, id as u8));
        }
        let mut ends = Vec::new();
        while let Some(end) = disk.next_end() {
            let (lane, completion) = disk.finish(end);
            assert_eq!((lane, completion.result), (3, Ok(())));
            ends.push(end);
        }
        assert_eq!(ends, [at_ms(14), at_ms(15), at_ms(29)]);
        let counts = disk.counts();
        assert_eq!((counts.operations, counts.bytes, counts.seeks, counts.turns_missed), (3, 3 * 4096, 2, 0));
        assert_eq!((counts.busy, counts.moving), (Duration::from_millis(29), Duration::from_millis(3)));
    }

    #[test]
    fn what_comes_late_waits_for_its_place_to_come_by_again() {
        let mut disk = Disk::new(MODEL);
        disk.submit(Time(0), 0, OperationId(0), write(5, 1));
        assert_eq!(disk.next_end(), Some(at_ms(14)));
        disk.finish(at_ms(14));
        disk.submit(at_ms(27), 0, OperationId(1), write(6, 1));
        // 13 ms later it is three tenths of a turn past its place.
        assert_eq!(disk.next_end(), Some(at_ms(27 + 7 + 1)));
        disk.finish(at_ms(35));
        disk.submit(at_ms(35), 0, OperationId(2), write(7, 1));
        assert_eq!(disk.next_end(), Some(at_ms(35 + 10 + 1)), "whoever waits for the end comes too late");
        assert_eq!((disk.counts().seeks, disk.counts().turns_missed), (1, 2));
    }

    #[test]
    fn it_gives_back_what_was_written_and_nothing_when_it_failed() {
        let mut disk = Disk::new(MODEL);
        disk.write(4096, &[[5; BLOCK_BYTES], [0; BLOCK_BYTES], [6; BLOCK_BYTES]].concat());
        disk.write(3 * 4096, &[0; BLOCK_BYTES]);
        let read = || Operation::Read {
            drive: DriveNumber(0),
            offset_bytes: 0,
            buffer: AlignedBuffer::copied(&[9; 4 * BLOCK_BYTES]),
            bytes: 4 * BLOCK_BYTES,
        };
        disk.submit(Time(0), 0, OperationId(0), read());
        let buffer = disk.finish(at_ms(4)).1.buffer.expect("a read hands it back");
        let firsts: Vec<u8> = buffer.chunks(BLOCK_BYTES).map(|block| block[0]).collect();
        assert_eq!(firsts, [0, 5, 0, 0]);
        disk.fail();
        disk.submit(at_ms(5), 0, OperationId(1), read());
        let completion = disk.finish(at_ms(5)).1;
        assert_eq!((completion.result, completion.buffer.is_some()), (Err(MediaError::Absent), true));
    }
}
