//! What every [`Media`] must do, as tests that any implementation runs.
//!
//! A factory opens the same drives at every call: [`DRIVES`], of one size of at least [`DRIVE_BYTES_MIN`], and not
//! [`ABSENT`]. [`run_all`] writes all over them and panics at the first thing that is not as the contract says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_types::DriveNumber;

use crate::ready::wait_readable;
use crate::{AlignedBuffer, BLOCK_BYTES, Completion, Media, MediaError, Operation, OperationId};

/// The drives that the factory opens.
pub const DRIVES: [DriveNumber; 3] = [DriveNumber(0), DriveNumber(1), DriveNumber(2)];

/// A drive that the factory does not have.
pub const ABSENT: DriveNumber = DriveNumber(3);

/// How large each drive is at least.
pub const DRIVE_BYTES_MIN: u64 = 4 << 20;

/// Far longer than any drive takes: only a hung test waits for it.
const HUNG: Duration = Duration::from_secs(120);

/// One block.
const BLOCK: u64 = BLOCK_BYTES as u64;

/// Everything below, one after the other.
pub fn run_all(mut open: impl FnMut() -> Box<dyn Media>) {
    sizes_are_known(&mut open);
    writes_read_back_at_many_offsets_and_sizes(&mut open);
    buffers_are_handed_back_as_they_were(&mut open);
    many_in_flight_complete_once_each(&mut open);
    past_the_end_moves_nothing(&mut open);
    absent_drives_answer(&mut open);
    readiness_follows_completions(&mut open);
    waiting_for_nothing_ends(&mut open);
    dropping_lets_go_of_all_memory(&mut open);
    completed_writes_are_seen_by_others(&mut open);
}

/// A media with what was submitted to it and what came back.
struct Lane {
    media: Box<dyn Media>,
    next_id: u64,
    done: BTreeMap<OperationId, Completion>,
}

impl Lane {
    fn new(media: Box<dyn Media>) -> Self {
        Lane { media, next_id: 0, done: BTreeMap::new() }
    }

    /// An id that says nothing about the order.
    fn id(&mut self) -> OperationId {
        self.next_id += 1;
        OperationId(self.next_id.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn write(&mut self, drive: DriveNumber, offset_bytes: u64, buffer: &Arc<AlignedBuffer>) -> OperationId {
        let id = self.id();
        let operation = Operation::Write { drive, offset_bytes, buffer: Arc::clone(buffer), bytes: buffer.len() };
        self.media.submit(id, operation);
        id
    }

    fn read(&mut self, drive: DriveNumber, offset_bytes: u64, bytes: usize) -> OperationId {
        let id = self.id();
        let buffer = AlignedBuffer::zeroed(bytes);
        self.media.submit(id, Operation::Read { drive, offset_bytes, buffer, bytes });
        id
    }

    fn take_back(&mut self, completions: Vec<Completion>) {
        for completion in completions {
            let id = completion.id;
            assert!(self.done.insert(id, completion).is_none(), "{id:?} completed twice");
        }
    }

    /// Runs until nothing is in flight.
    fn finish(&mut self) {
        let start = Instant::now();
        self.media.kick();
        while self.media.in_flight() > 0 {
            assert!(start.elapsed() < HUNG, "{} operations never finished", self.media.in_flight());
            let before = self.media.in_flight();
            let mut completions = Vec::new();
            self.media.wait(Duration::from_secs(1), &mut completions);
            assert_eq!(self.media.in_flight(), before - completions.len(), "every completion is counted once");
            self.take_back(completions);
        }
    }

    fn result(&mut self, id: OperationId) -> Completion {
        self.done.remove(&id).unwrap_or_else(|| panic!("{id:?} did not complete"))
    }

    /// The bytes of a read that must have succeeded.
    fn bytes(&mut self, id: OperationId) -> AlignedBuffer {
        let completion = self.result(id);
        assert_eq!(completion.result, Ok(()), "{id:?}");
        completion.buffer.expect("a read hands its buffer back")
    }

    fn written(&mut self, id: OperationId) {
        let completion = self.result(id);
        assert_eq!(completion.result, Ok(()), "{id:?}");
        assert!(completion.buffer.is_none(), "a write has no buffer of its own");
    }

    fn write_now(&mut self, drive: DriveNumber, offset_bytes: u64, buffer: &Arc<AlignedBuffer>) {
        let id = self.write(drive, offset_bytes, buffer);
        self.finish();
        self.written(id);
    }

    fn read_now(&mut self, drive: DriveNumber, offset_bytes: u64, bytes: usize) -> AlignedBuffer {
        let id = self.read(drive, offset_bytes, bytes);
        self.finish();
        self.bytes(id)
    }

    fn drive_bytes(&self) -> u64 {
        self.media.drive_bytes(DRIVES[0]).expect("the drive is there")
    }
}

/// Blocks that differ from each other and from those of another seed.
fn pattern(seed: u64, blocks: usize) -> Arc<AlignedBuffer> {
    let mut buffer = AlignedBuffer::zeroed(blocks * BLOCK_BYTES);
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for word in buffer.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    Arc::new(buffer)
}

fn assert_same(found: &[u8], expected: &[u8], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let difference = found.iter().zip(expected).position(|(found, expected)| found != expected);
    assert_eq!(difference, None, "{what}: differs at this byte");
}

/// Drives have whole blocks; absent ones have no size.
pub fn sizes_are_known(open: &mut impl FnMut() -> Box<dyn Media>) {
    let media = open();
    let sizes = DRIVES.map(|drive| media.drive_bytes(drive).expect("the drive is there"));
    assert!(sizes[0] >= DRIVE_BYTES_MIN && sizes[0].is_multiple_of(BLOCK), "{sizes:?}");
    assert_eq!(sizes, [sizes[0]; 3]);
    assert_eq!(media.drive_bytes(ABSENT), None);
    assert_eq!(media.in_flight(), 0);
}

/// From one block to more than a MiB, at the start, at the end and between; neighbours are not touched.
pub fn writes_read_back_at_many_offsets_and_sizes(open: &mut impl FnMut() -> Box<dyn Media>) {
    let mut lane = Lane::new(open());
    let drive_blocks = lane.drive_bytes() / BLOCK;
    for (seed, blocks) in [1, 2, 3, 7, 64, 256, 257].into_iter().enumerate() {
        for (place, start) in [0, 1, 5, drive_blocks / 2 - 1, drive_blocks - blocks].into_iter().enumerate() {
            let drive = DRIVES[(seed + place) % 3];
            let (first, last) = (start.saturating_sub(1), (start + blocks + 1).min(drive_blocks));
            let around = ((last - first) * BLOCK) as usize;
            let mut expected = lane.read_now(drive, first * BLOCK, around);
            let written = pattern(100 + (seed * 10 + place) as u64, blocks as usize);
            let from = ((start - first) * BLOCK) as usize;
            expected[from..from + written.len()].copy_from_slice(&written);
            lane.write_now(drive, start * BLOCK, &written);
            let found = lane.read_now(drive, first * BLOCK, around);
            assert_same(&found, &expected, &format!("{blocks} blocks at block {start} of drive {drive}"));
        }
    }
}

/// A write leaves its buffer as it was; operations shorter than their buffers use its start alone.
pub fn buffers_are_handed_back_as_they_were(open: &mut impl FnMut() -> Box<dyn Media>) {
    let mut lane = Lane::new(open());
    let old = pattern(1, 4);
    lane.write_now(DRIVES[0], 0, &old);
    let new = pattern(2, 4);
    let id = lane.id();
    let operation =
        Operation::Write { drive: DRIVES[0], offset_bytes: BLOCK, buffer: Arc::clone(&new), bytes: 2 * BLOCK_BYTES };
    lane.media.submit(id, operation);
    lane.finish();
    lane.written(id);
    assert_same(&new, &pattern(2, 4), "the buffer of a write");
    assert_eq!(Arc::strong_count(&new), 1, "a finished write has let go of its buffer");

    let mut buffer = AlignedBuffer::zeroed(6 * BLOCK_BYTES);
    buffer.fill(0xEE);
    let address = buffer.as_ptr();
    let id = lane.id();
    lane.media.submit(id, Operation::Read { drive: DRIVES[0], offset_bytes: 0, buffer, bytes: 4 * BLOCK_BYTES });
    lane.finish();
    let read = lane.bytes(id);
    assert_eq!((read.as_ptr(), read.len()), (address, 6 * BLOCK_BYTES), "the same buffer");
    assert_same(&read[..BLOCK_BYTES], &old[..BLOCK_BYTES], "before the write");
    assert_same(&read[BLOCK_BYTES..3 * BLOCK_BYTES], &new[..2 * BLOCK_BYTES], "the write");
    assert_same(&read[3 * BLOCK_BYTES..4 * BLOCK_BYTES], &old[3 * BLOCK_BYTES..], "after the write");
    assert!(read[4 * BLOCK_BYTES..].iter().all(|&byte| byte == 0xEE), "the rest of a reader's buffer");
}

/// More than any queue holds, submitted at once and in several goes, each with its own bytes.
pub fn many_in_flight_complete_once_each(open: &mut impl FnMut() -> Box<dyn Media>) {
    let mut lane = Lane::new(open());
    let blocks = 1000;
    for round in 0..2 {
        let mut writes = Vec::new();
        for block in 0..blocks {
            let block = (block * 7 + round) % blocks;
            for drive in DRIVES {
                let buffer = pattern(block * 10 + u64::from(drive.0) + round * 50_000, 1);
                writes.push((lane.write(drive, block * BLOCK, &buffer), drive, block, buffer));
            }
            if block % 100 == 0 {
                lane.media.kick();
            }
        }
        assert_eq!(lane.media.in_flight(), writes.len(), "nothing is given back unasked");
        lane.finish();
        let reads: Vec<_> = writes
            .into_iter()
            .map(|(id, drive, block, buffer)| {
                lane.written(id);
                (lane.read(drive, block * BLOCK, BLOCK_BYTES), buffer)
            })
            .collect();
        lane.finish();
        for (id, expected) in reads {
            assert_same(&lane.bytes(id), &expected, "one of many");
        }
        assert!(lane.done.is_empty(), "{} completions of nothing", lane.done.len());
    }
}

/// An operation that does not lie on the drive as a whole fails alone; the drive keeps its size and bytes.
pub fn past_the_end_moves_nothing(open: &mut impl FnMut() -> Box<dyn Media>) {
    let mut lane = Lane::new(open());
    let end = lane.drive_bytes();
    let last = pattern(7, 1);
    lane.write_now(DRIVES[1], end - BLOCK, &last);
    let beyond = pattern(8, 2);
    let good = lane.write(DRIVES[1], 0, &beyond);
    let highest = u64::MAX - u64::MAX % BLOCK;
    for (offset_bytes, there) in [(end - BLOCK, BLOCK_BYTES), (end, 0), (end + 9 * BLOCK, 0), (highest, 0)] {
        for id in [lane.write(DRIVES[1], offset_bytes, &beyond), lane.read(DRIVES[1], offset_bytes, 2 * BLOCK_BYTES)] {
            lane.finish();
            let error = lane.result(id).result.expect_err("past the end");
            assert_eq!(error, MediaError::Short { offset_bytes, bytes: 2 * BLOCK_BYTES, moved: there });
        }
    }
    lane.written(good);
    assert_same(&lane.read_now(DRIVES[1], end - BLOCK, BLOCK_BYTES), &last, "the last block");
    assert_same(&lane.read_now(DRIVES[1], 0, 2 * BLOCK_BYTES), &beyond, "the first blocks");
    assert_eq!(open().drive_bytes(DRIVES[1]), Some(end), "the drive has not grown");
}

/// Operations of an absent drive complete as such, and hand buffers back.
pub fn absent_drives_answer(open: &mut impl FnMut() -> Box<dyn Media>) {
    let mut lane = Lane::new(open());
    let buffer = pattern(9, 1);
    let (write, read, good) =
        (lane.write(ABSENT, 0, &buffer), lane.read(ABSENT, BLOCK, BLOCK_BYTES), lane.read(DRIVES[2], 0, BLOCK_BYTES));
    assert_eq!(lane.media.in_flight(), 3);
    lane.finish();
    assert_eq!(lane.result(write).result, Err(MediaError::Absent));
    let completion = lane.result(read);
    assert_eq!(completion.result, Err(MediaError::Absent));
    assert_eq!(completion.buffer.map(|buffer| buffer.len()), Some(BLOCK_BYTES));
    lane.bytes(good);
    assert_eq!(Arc::strong_count(&buffer), 1);
}

/// The descriptor, where there is one, is readable when there is something to fetch, and only then.
pub fn readiness_follows_completions(open: &mut impl FnMut() -> Box<dyn Media>) {
    let mut lane = Lane::new(open());
    let is_ready = |lane: &Lane, timeout| lane.media.ready().is_none_or(|ready| wait_readable(ready, timeout));
    let buffer = pattern(10, 16);
    for drive in [DRIVES[0], ABSENT, DRIVES[2]] {
        if lane.media.ready().is_some() {
            assert!(!is_ready(&lane, Duration::ZERO), "nothing has finished");
        }
        for place in 0..5 {
            lane.write(drive, place * 16 * BLOCK, &buffer);
        }
        lane.media.kick();
        let start = Instant::now();
        while lane.media.in_flight() > 0 {
            assert!(start.elapsed() < HUNG, "{} never became ready", lane.media.in_flight());
            if is_ready(&lane, Duration::from_secs(1)) {
                let mut completions = Vec::new();
                lane.media.completions(&mut completions);
                lane.take_back(completions);
            }
        }
        assert_eq!(std::mem::take(&mut lane.done).len(), 5);
    }
}

/// With nothing in flight `wait` takes as long as it was told and gives nothing.
pub fn waiting_for_nothing_ends(open: &mut impl FnMut() -> Box<dyn Media>) {
    let mut media = open();
    let timeout = Duration::from_millis(20);
    let start = Instant::now();
    let mut completions = Vec::new();
    media.wait(timeout, &mut completions);
    assert!(start.elapsed() >= timeout, "waited {:?} of {timeout:?}", start.elapsed());
    media.wait(Duration::ZERO, &mut completions);
    media.kick();
    media.completions(&mut completions);
    assert!(completions.is_empty());
}

/// A media that is dropped waits for its drives: nobody refers to the memory any more, and every block is old or new.
pub fn dropping_lets_go_of_all_memory(open: &mut impl FnMut() -> Box<dyn Media>) {
    let (old, new) = (pattern(20, 64), pattern(21, 64));
    let mut lane = Lane::new(open());
    for drive in DRIVES {
        lane.write_now(drive, 0, &old);
    }
    for kicked in [true, false] {
        for _ in 0..200 {
            for drive in DRIVES {
                lane.write(drive, 0, &new);
                lane.read(drive, 64 * BLOCK, 16 * BLOCK_BYTES);
            }
        }
        if kicked {
            lane.media.kick();
        }
        drop(lane);
        assert_eq!(Arc::strong_count(&new), 1, "a dropped media keeps nothing");
        lane = Lane::new(open());
        for drive in DRIVES {
            let found = lane.read_now(drive, 0, old.len());
            for (block, (found, (old, new))) in found
                .chunks_exact(BLOCK_BYTES)
                .zip(old.chunks_exact(BLOCK_BYTES).zip(new.chunks_exact(BLOCK_BYTES)))
                .enumerate()
            {
                assert!(found == old || found == new, "block {block} of drive {drive} is neither old nor new");
            }
        }
    }
}

/// Lanes over the same drives see what the others have completed.
pub fn completed_writes_are_seen_by_others(open: &mut impl FnMut() -> Box<dyn Media>) {
    let mut lanes = [Lane::new(open()), Lane::new(open()), Lane::new(open())];
    for round in 0..9 {
        let (writer, drive) = (round % 3, DRIVES[round / 3]);
        let buffer = pattern(30 + round as u64, 8);
        lanes[writer].write_now(drive, 32 * BLOCK, &buffer);
        for lane in &mut lanes {
            assert_same(&lane.read_now(drive, 32 * BLOCK, buffer.len()), &buffer, "what another lane wrote");
        }
    }
}
