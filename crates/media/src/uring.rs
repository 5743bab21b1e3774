//! Drives through io_uring: one system call starts any number of operations, none is needed to see them finish.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::mem::ManuallyDrop;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_types::DriveNumber;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode, squeue};
use rustix::io::{Errno, ReadWriteFlags};

use crate::drives::DriveFile;
use crate::ready::{wait_by, wait_readable};
use crate::request::{Memory, Request};
use crate::{Completion, Media, MediaError, Operation, OperationId};

/// Operations of one drive that the kernel holds at once, about; more wait here. Each drive has its share of the ring
/// to itself, so that one that hangs takes no room from the others.
const SHARE: usize = 64;

/// Operations that the kernel holds at once, for few drives and for many.
const DEPTH: RangeInclusive<usize> = 256..=4096;

/// The most that one entry moves; longer operations are continued.
const ENTRY_BYTES_MAX: usize = 1 << 30;

/// Longer waits are made of several, so that no time is too long for the kernel.
const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// How long a dropped media waits for its drives before it leaves its memory to them.
const DROP_WAIT: Duration = Duration::from_secs(30);

/// How often it looks meanwhile whether the kernel now takes what it could not take before.
const DROP_POLL: Duration = Duration::from_millis(100);

/// A lane's own ring over its drives.
pub struct UringMedia {
    ring: IoUring,
    /// What the ring has been given, by the user data of its entry. There are as many as the ring has entries, so
    /// that neither of its queues can overflow. Freed only when the kernel has given everything back.
    slots: ManuallyDrop<Box<[Option<InRing>]>>,
    free: Vec<usize>,
    /// One for each drive, and [`NOWHERE`].
    queues: Vec<Queue>,
    queue_of: BTreeMap<DriveNumber, usize>,
    /// Slots that one queue may fill.
    share: usize,
    /// In all queues.
    waiting: usize,
    /// There are entries that the kernel could not take last time.
    stuck: bool,
}

/// The queue of operations that go to no drive. They pass through the ring too, as entries that do nothing, so that
/// everything that finishes is seen in one place and wakes up whoever waits.
const NOWHERE: usize = 0;

/// The way to one drive.
struct Queue {
    file: Option<Arc<DriveFile>>,
    waiting: VecDeque<InRing>,
    in_ring: usize,
    /// The drive was removed: its file goes when nothing of it is in the ring.
    removed: bool,
}

impl Queue {
    fn new(file: Option<Arc<DriveFile>>) -> Self {
        Queue { file, waiting: VecDeque::new(), in_ring: 0, removed: false }
    }

    /// Lets go of the file of a drive that was removed, when no entry of the ring names its descriptor any more.
    fn let_go(&mut self) {
        if self.removed && self.in_ring == 0 {
            self.file = None;
        }
    }
}

/// An operation, on its way.
struct InRing {
    request: Request,
    queue: usize,
    /// Why it goes nowhere.
    refused: Option<MediaError>,
}

impl UringMedia {
    /// A ring of its own over these drives; `None` is a drive that is not there.
    ///
    /// # Errors
    /// When the kernel has no io_uring, or not the operations that are needed (Linux 5.6), or refuses it (seccomp,
    /// `kernel.io_uring_disabled`, locked memory).
    pub fn new(drives: &[(DriveNumber, Option<Arc<DriveFile>>)]) -> io::Result<Self> {
        let mut queues = vec![Queue::new(None)];
        let mut queue_of = BTreeMap::new();
        for (number, file) in drives {
            if let Some(file) = file {
                queue_of.insert(*number, queues.len());
                queues.push(Queue::new(Some(Arc::clone(file))));
            }
        }
        let depth = (queues.len() * SHARE).next_power_of_two().clamp(*DEPTH.start(), *DEPTH.end());
        let ring = ring_of(depth)?;
        let depth = ring.params().sq_entries() as usize;
        Ok(UringMedia {
            ring,
            slots: ManuallyDrop::new((0..depth).map(|_| None).collect()),
            free: (0..depth).rev().collect(),
            share: (depth / queues.len()).max(1),
            queues,
            queue_of,
            waiting: 0,
            stuck: false,
        })
    }

    /// Gives the ring what it has room for and tells the kernel, with one system call or none. The kernel then also makes the completions for which
    /// it does not interrupt this thread.
    fn start(&mut self) {
        let mut added = false;
        if self.waiting > 0 {
            let mut entries = self.ring.submission();
            for queue in &mut self.queues {
                while queue.in_ring < self.share && !queue.waiting.is_empty() {
                    let Some(slot) = self.free.pop() else { break };
                    let operation = queue.waiting.pop_front().expect("it is not empty");
                    queue.in_ring += 1;
                    self.waiting -= 1;
                    // It stays in its slot until its completion is seen, also when this media is dropped.
                    let entry = self.slots[slot].insert(operation).entry(queue.file.as_deref());
                    // SAFETY: the entry's memory is owned by the slot, which is emptied only when the kernel has given
                    // the entry back; `drop` waits for that or leaks the slot. Memory of reads is referred to by
                    // nobody else meanwhile, memory of writes is only read. The descriptor is open until then or
                    // until the ring, and with it an entry that the kernel did not take, is gone.
                    unsafe { entries.push(&entry.user_data(slot as u64)) }.expect("a free slot is room in the ring");
                    added = true;
                }
            }
        }
        if added || self.stuck || self.ring.submission().taskrun() {
            let taken = self.enter();
            self.stuck = !taken.unwrap_or_else(|error| panic!("io_uring_enter refused a well-formed call: {error}"));
        }
    }

    /// Tells the kernel of all entries. False when it could not take all of them now.
    fn enter(&mut self) -> io::Result<bool> {
        loop {
            match self.ring.submit() {
                Ok(_) => return Ok(self.ring.submission().is_empty()),
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::INTR) => {}
                    // No memory now, or completions not yet fetched: tried again with the next call.
                    Some(Errno::AGAIN | Errno::BUSY | Errno::NOMEM) => return Ok(false),
                    _ => return Err(error),
                },
            }
        }
    }

    /// Takes back what the kernel is done with.
    fn reap(&mut self, into: &mut Vec<Completion>) {
        for entry in self.ring.completion() {
            let slot = usize::try_from(entry.user_data()).expect("ours");
            let mut operation = self.slots[slot].take().expect("the kernel completes what it was given, once");
            self.free.push(slot);
            let result = entry.result();
            let result = if result < 0 { Err(-result) } else { Ok(result as usize) };
            let queue = &mut self.queues[operation.queue];
            queue.in_ring -= 1;
            queue.let_go();
            let outcome = match &operation.refused {
                None => operation.request.transfer.advance(result),
                Some(reason) => Some(Err(reason.clone())),
            };
            // What is left of it cannot be moved any more.
            let outcome = outcome.or_else(|| queue.removed.then_some(Err(MediaError::Absent)));
            match outcome {
                Some(result) => into.push(operation.request.complete(result)),
                None => {
                    queue.waiting.push_front(operation);
                    self.waiting += 1;
                }
            }
        }
    }

    /// Waits in the ring, where completions are made at once; a poll is interrupted to make them.
    fn pause(&self, timeout: Duration) {
        if self.ring.params().is_feature_ext_arg() {
            let timeout = Timespec::from(timeout.min(PAUSE_MAX));
            // Whatever it answers, the caller looks for itself, and at the clock.
            let _ = self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout));
        } else {
            wait_readable(self.ready().expect("a ring has a descriptor"), timeout);
        }
    }

    fn forget_waiting(&mut self) {
        self.queues.iter_mut().for_each(|queue| queue.waiting.clear());
        self.waiting = 0;
    }

    fn in_ring(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

/// A ring with the operations that are needed.
fn ring_of(depth: usize) -> io::Result<IoUring> {
    let depth = u32::try_from(depth).expect("the depth is bounded");
    // The kernel makes completions when this thread calls it the next time, and says that there are some, instead of interrupting it for each: that took
    // a seventh of the processor time at full rate. Linux before 5.19 cannot be told.
    let uninterrupted = IoUring::builder().setup_coop_taskrun().setup_taskrun_flag().build(depth);
    let ring = match uninterrupted {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => IoUring::new(depth)?,
        ring => ring?,
    };
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::Nop::CODE];
    if !needed.iter().all(|&code| probe.is_supported(code)) {
        return Err(Errno::NOSYS.into());
    }
    // What would block in the kernel goes to threads of the kernel, four for each processor if nothing is said. A file
    // system that hangs would hold them all, and with them every other drive. Linux before 5.15 cannot be told.
    let threads = ring.submitter().register_iowq_max_workers(&mut [depth, 0]);
    threads.inspect_err(|error| tracing::debug!(%error, "kernel threads of the ring stay bounded")).ok();
    Ok(ring)
}

impl InRing {
    /// The entry for what is left to move.
    fn entry(&mut self, file: Option<&DriveFile>) -> squeue::Entry {
        let Some(drive) = file else { return opcode::Nop::new().build() };
        let descriptor = Fd(drive.as_fd().as_raw_fd());
        let transfer = &self.request.transfer;
        let left = transfer.moved..transfer.bytes.min(transfer.moved + ENTRY_BYTES_MAX);
        let offset_bytes = transfer.offset_bytes + transfer.moved as u64;
        let bytes = left.len() as u32;
        // Threads of the kernel do what would wait: for the drive, inside of the system call, the lane and all other drives with it.
        let in_thread = |entry: squeue::Entry, may_wait| match may_wait {
            true => entry.flags(squeue::Flags::ASYNC),
            false => entry,
        };
        match &mut self.request.memory {
            Memory::Write(buffer) => {
                let entry = opcode::Write::new(descriptor, buffer[left].as_ptr(), bytes)
                    .offset(offset_bytes)
                    .rw_flags(ReadWriteFlags::DSYNC.bits().cast_signed())
                    .build();
                // A write through the page cache copies, besides.
                in_thread(entry, !drive.is_direct() || drive.submitting_may_wait())
            }
            Memory::Read(buffer) => {
                let entry =
                    opcode::Read::new(descriptor, buffer[left].as_mut_ptr(), bytes).offset(offset_bytes).build();
                in_thread(entry, drive.submitting_may_wait())
            }
        }
    }
}

impl Media for UringMedia {
    fn drive_bytes(&self, drive: DriveNumber) -> Option<u64> {
        self.queues[*self.queue_of.get(&drive)?].file.as_ref().map(|file| file.bytes())
    }

    fn add_drive(&mut self, drive: DriveNumber, file: Arc<DriveFile>) -> io::Result<()> {
        self.queue_of.insert(drive, self.queues.len());
        self.queues.push(Queue::new(Some(file)));
        self.share = (self.slots.len() / self.queues.len()).max(1);
        Ok(())
    }

    fn remove_drive(&mut self, drive: DriveNumber) {
        let Some(number) = self.queue_of.remove(&drive) else { return };
        let queue = &mut self.queues[number];
        queue.removed = true;
        queue.let_go();
        let waiting = std::mem::take(&mut queue.waiting);
        let refused = |operation| InRing { queue: NOWHERE, refused: Some(MediaError::Absent), ..operation };
        self.queues[NOWHERE].waiting.extend(waiting.into_iter().map(refused));
    }

    fn submit(&mut self, id: OperationId, operation: Operation) {
        let request = Request::new(id, operation);
        let drive_bytes = self.drive_bytes(request.drive).ok_or(MediaError::Absent);
        let refused = drive_bytes.and_then(|bytes| request.transfer.check(bytes)).err();
        let queue = if refused.is_some() { NOWHERE } else { self.queue_of[&request.drive] };
        self.queues[queue].waiting.push_back(InRing { request, queue, refused });
        self.waiting += 1;
    }

    fn kick(&mut self) {
        self.start();
    }

    fn completions(&mut self, into: &mut Vec<Completion>) {
        self.start();
        self.reap(into);
        // Continues short transfers, and fills the room that there is now.
        self.start();
    }

    fn wait(&mut self, timeout: Duration, into: &mut Vec<Completion>) {
        wait_by(self, timeout, into, Self::pause);
    }

    fn in_flight(&self) -> usize {
        self.in_ring() + self.waiting
    }

    /// The ring itself: readable while there are completions to fetch.
    fn ready(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the descriptor is the ring's and open as long as it, which is borrowed as long as the result.
        Some(unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) })
    }
}

impl Drop for UringMedia {
    fn drop(&mut self) {
        self.forget_waiting();
        let start = Instant::now();
        let mut finished = Vec::new();
        while self.in_ring() > 0 && start.elapsed() < DROP_WAIT {
            if let Err(error) = self.enter() {
                tracing::error!(%error, "io_uring_enter failed at the end");
                break;
            }
            self.reap(&mut finished);
            // Not continued: an operation that is dropped promises nothing.
            self.forget_waiting();
            finished.clear();
            if self.in_ring() > 0 {
                wait_readable(self.ready().expect("a ring has a descriptor"), DROP_POLL);
            }
        }
        let stuck = self.in_ring();
        if stuck == 0 {
            // SAFETY: taken once, at the end of the only owner's life.
            drop(unsafe { ManuallyDrop::take(&mut self.slots) });
        } else {
            tracing::error!(
                stuck,
                "drives did not answer for {DROP_WAIT:?}; \
                 the memory of their operations stays theirs until the process ends"
            );
        }
    }
}
