//! Operations on their way to the drives: who asked for them, since when, and what became of them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use forebay_media::{AlignedBuffer, Completion, MediaError, Operation, OperationId};
use forebay_types::{DriveNumber, Time};

/// Who waits for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The shard of a flush.
    Flush { serial: u64, shard: u8 },
    /// The shard of a closing flush.
    Close { serial: u64, shard: u8 },
    /// A checkpoint on a drive.
    Checkpoint { serial: u64, drive: DriveNumber },
    /// A task that reads.
    Task(usize),
    /// A task that writes what it made anew.
    TaskWrite(usize),
}

/// Buffers of tasks that are kept to be used again, and the largest of them, in bytes.
const SPARE_BUFFERS_MAX: usize = 64;
const SPARE_BYTES_MAX: usize = 64 << 10;

struct InFlight {
    drive: DriveNumber,
    owner: Owner,
    since: Time,
}

/// What an operation came to.
pub(crate) struct Finished {
    pub(crate) id: OperationId,
    pub(crate) owner: Owner,
    pub(crate) drive: DriveNumber,
    pub(crate) result: Result<(), Failure>,
    pub(crate) buffer: Option<AlignedBuffer>,
}

/// Why an operation did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The media said so.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// No answer came in time; the operation may still reach the drive.
    #[error("no answer for {waited_ms} ms")]
    TimedOut {
        /// How long it was waited for.
        waited_ms: u64,
    },
    /// The drive was given up before it was asked.
    #[error("the drive was given up before")]
    GivenUp,
}

/// All operations of a lane that are not at their end.
#[derive(Default)]
pub(crate) struct IoQueue {
    next: u64,
    now: Time,
    outgoing: VecDeque<(OperationId, Operation)>,
    in_flight: BTreeMap<OperationId, InFlight>,
    /// Operations that were given up; their drive may come back only when they have returned.
    given_up: BTreeMap<OperationId, DriveNumber>,
    /// Drives that were given up: what tasks that began before still ask them for is answered at once.
    silent: BTreeSet<DriveNumber>,
    refused: VecDeque<Finished>,
    results: BTreeMap<OperationId, (Result<(), Failure>, Option<AlignedBuffer>)>,
    /// Of reads and writes of tasks that are over.
    spare: Vec<AlignedBuffer>,
}

/// The queue, shared by a lane and its reading tasks.
#[derive(Clone, Default)]
pub(crate) struct Io(Rc<RefCell<IoQueue>>);

impl Io {
    pub(crate) fn set_now(&self, now: Time) {
        let mut queue = self.0.borrow_mut();
        queue.now = queue.now.max(now);
    }

    pub(crate) fn write(
        &self,
        owner: Owner,
        drive: DriveNumber,
        offset_bytes: u64,
        buffer: Arc<AlignedBuffer>,
        bytes: usize,
    ) -> OperationId {
        self.0.borrow_mut().submit(owner, drive, Operation::Write { drive, offset_bytes, buffer, bytes })
    }

    /// Starts a read for a task; its result is waited for with [`Io::result`].
    pub(crate) fn read(&self, task: usize, drive: DriveNumber, offset_bytes: u64, bytes: usize) -> OperationId {
        self.read_into(AlignedBuffer::zeroed(bytes), task, drive, offset_bytes, bytes)
    }

    /// As [`Io::read`], into a buffer that was used before: it may be longer, and what stands behind `bytes` is something else. It goes back with
    /// [`Io::give_back`].
    pub(crate) fn read_reusing(&self, task: usize, drive: DriveNumber, offset_bytes: u64, bytes: usize) -> OperationId {
        self.read_into(self.buffer(bytes), task, drive, offset_bytes, bytes)
    }

    /// A buffer of at least so many bytes, in which something may stand.
    pub(crate) fn buffer(&self, bytes: usize) -> AlignedBuffer {
        let spare = self.0.borrow_mut().take_spare(bytes);
        spare.unwrap_or_else(|| AlignedBuffer::zeroed(bytes))
    }

    /// A buffer may be used again. Of more than are kept the smallest go.
    pub(crate) fn give_back(&self, buffer: AlignedBuffer) {
        let spare = &mut self.0.borrow_mut().spare;
        if buffer.len() > SPARE_BYTES_MAX {
            return;
        }
        if spare.len() < SPARE_BUFFERS_MAX {
            return spare.push(buffer);
        }
        if let Some(smallest) = spare.iter_mut().min_by_key(|spare| spare.len()).filter(|s| s.len() < buffer.len()) {
            *smallest = buffer;
        }
    }

    fn read_into(
        &self,
        buffer: AlignedBuffer,
        task: usize,
        drive: DriveNumber,
        offset_bytes: u64,
        bytes: usize,
    ) -> OperationId {
        self.0.borrow_mut().submit(Owner::Task(task), drive, Operation::Read { drive, offset_bytes, buffer, bytes })
    }

    /// Starts a write for a task; its end is waited for with [`Io::written`].
    pub(crate) fn write_for(
        &self,
        task: usize,
        drive: DriveNumber,
        offset_bytes: u64,
        buffer: Arc<AlignedBuffer>,
        bytes: usize,
    ) -> OperationId {
        self.write(Owner::TaskWrite(task), drive, offset_bytes, buffer, bytes)
    }

    /// Waits for a write that [`Io::write_for`] started.
    pub(crate) fn written(&self, id: OperationId) -> WriteResult {
        WriteResult { io: self.clone(), id }
    }

    /// Waits for a read that [`Io::read`] started.
    pub(crate) fn result(&self, id: OperationId) -> ReadResult {
        ReadResult { io: self.clone(), id }
    }

    pub(crate) fn next_outgoing(&self) -> Option<(OperationId, Operation)> {
        self.0.borrow_mut().outgoing.pop_front()
    }

    /// Takes a completion; `None` when nobody waits for it any more.
    pub(crate) fn complete(&self, completion: Completion) -> Option<Finished> {
        let mut queue = self.0.borrow_mut();
        if queue.given_up.remove(&completion.id).is_some() {
            return None;
        }
        let InFlight { drive, owner, .. } = queue.in_flight.remove(&completion.id)?;
        let result = completion.result.map_err(Failure::from);
        Some(Finished { id: completion.id, owner, drive, result, buffer: completion.buffer })
    }

    /// What was asked of a drive that had been given up.
    pub(crate) fn next_refused(&self) -> Option<Finished> {
        self.0.borrow_mut().refused.pop_front()
    }

    /// The oldest operation in flight of each drive that is older than `limit`.
    pub(crate) fn overdue(&self, limit: Duration) -> Vec<DriveNumber> {
        let queue = self.0.borrow();
        let mut drives: Vec<_> =
            queue.in_flight.values().filter(|op| queue.now.since(op.since) > limit).map(|op| op.drive).collect();
        drives.sort_unstable();
        drives.dedup();
        drives
    }

    /// Everything in flight is as if it had been submitted now.
    pub(crate) fn forgive(&self) {
        let mut queue = self.0.borrow_mut();
        let now = queue.now;
        queue.in_flight.values_mut().for_each(|op| op.since = now);
    }

    /// Gives up everything in flight on `drive`, and asks it for nothing more.
    pub(crate) fn give_up(&self, drive: DriveNumber) -> Vec<Finished> {
        let mut queue = self.0.borrow_mut();
        queue.silent.insert(drive);
        let now = queue.now;
        let ids: Vec<_> = queue.in_flight.iter().filter(|(_, op)| op.drive == drive).map(|(id, _)| *id).collect();
        let mut finished = Vec::with_capacity(ids.len());
        for id in ids {
            let op = queue.in_flight.remove(&id).expect("listed just now");
            // What has not left yet never will; the rest may still land.
            let before = queue.outgoing.len();
            queue.outgoing.retain(|(outgoing, _)| *outgoing != id);
            if queue.outgoing.len() == before {
                queue.given_up.insert(id, drive);
            }
            let waited_ms = u64::try_from(now.since(op.since).as_millis()).unwrap_or(u64::MAX);
            let result = Err(Failure::TimedOut { waited_ms });
            finished.push(Finished { id, owner: op.owner, drive, result, buffer: None });
        }
        finished
    }

    pub(crate) fn deliver(&self, finished: Finished) {
        self.0.borrow_mut().results.insert(finished.id, (finished.result, finished.buffer));
    }

    /// Whether writes of a task are on their way.
    pub(crate) fn is_writing_for(&self, task: usize) -> bool {
        self.0.borrow().in_flight.values().any(|op| op.owner == Owner::TaskWrite(task))
    }

    /// Drops results and interest of a task that ended.
    pub(crate) fn forget_task(&self, task: usize) {
        let mut queue = self.0.borrow_mut();
        let ids: Vec<_> = queue
            .in_flight
            .iter()
            .filter(|(_, op)| matches!(op.owner, Owner::Task(of) | Owner::TaskWrite(of) if of == task))
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            let op = queue.in_flight.remove(&id).expect("listed just now");
            queue.given_up.insert(id, op.drive);
        }
        queue.refused.retain(|refused| !matches!(refused.owner, Owner::Task(of) | Owner::TaskWrite(of) if of == task));
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.0.borrow().in_flight.len()
    }

    pub(crate) fn oldest(&self) -> Option<Time> {
        self.0.borrow().in_flight.values().map(|op| op.since).min()
    }
}

impl IoQueue {
    fn take_spare(&mut self, bytes: usize) -> Option<AlignedBuffer> {
        let at = self.spare.iter().rposition(|buffer| buffer.len() >= bytes)?;
        Some(self.spare.swap_remove(at))
    }

    fn submit(&mut self, owner: Owner, drive: DriveNumber, operation: Operation) -> OperationId {
        let id = OperationId(self.next);
        self.next += 1;
        if self.silent.contains(&drive) && matches!(owner, Owner::Task(_) | Owner::TaskWrite(_)) {
            self.refused.push_back(Finished { id, owner, drive, result: Err(Failure::GivenUp), buffer: None });
            return id;
        }
        self.in_flight.insert(id, InFlight { drive, owner, since: self.now });
        self.outgoing.push_back((id, operation));
        id
    }
}

/// The future of a read.
pub(crate) struct ReadResult {
    io: Io,
    id: OperationId,
}

impl Future for ReadResult {
    type Output = Result<AlignedBuffer, Failure>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        match self.io.0.borrow_mut().results.remove(&self.id) {
            None => Poll::Pending,
            Some((Ok(()), Some(buffer))) => Poll::Ready(Ok(buffer)),
            Some((Ok(()), None)) => unreachable!("a media hands the buffer of a read back"),
            Some((Err(failure), _)) => Poll::Ready(Err(failure)),
        }
    }
}

/// The future of a write.
pub(crate) struct WriteResult {
    io: Io,
    id: OperationId,
}

impl Future for WriteResult {
    type Output = Result<(), Failure>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let result = self.io.0.borrow_mut().results.remove(&self.id);
        result.map_or(Poll::Pending, |(result, _)| Poll::Ready(result))
    }
}
