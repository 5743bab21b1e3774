//! Drives through blocking calls in threads, for kernels that refuse io_uring.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use forebay_types::DriveNumber;

use crate::drives::DriveFile;
use crate::request::{Memory, Request};
use crate::{Completion, CompletionQueue, Media, MediaError, Operation, OperationId, wait_for};

/// Threads of one drive. Each drive has its own, so that one that hangs holds up no other; two keep the drive busy
/// while a result is handed over.
const THREADS_PER_DRIVE: usize = 2;

/// They call the kernel and little else.
const STACK_BYTES: usize = 128 << 10;

/// How long a dropped media waits for its drives.
const DROP_WAIT: Duration = Duration::from_secs(30);

/// A lane's own threads over its drives.
pub struct PoolMedia {
    drives: BTreeMap<DriveNumber, Arc<DriveQueue>>,
    finished: Arc<Finished>,
    /// Submitted and not yet kicked.
    submitted: Vec<Request>,
    in_flight: usize,
}

/// What the threads of a drive have to do.
struct DriveQueue {
    drive_bytes: u64,
    state: Mutex<QueueState>,
    wake: Condvar,
}

struct QueueState {
    requests: VecDeque<Request>,
    closed: bool,
}

/// What has been done, and by how many threads more will be.
struct Finished {
    completions: CompletionQueue,
    threads: Mutex<usize>,
    thread_ended: Condvar,
}

/// A panic of a thread leaves nothing half done behind these locks.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DriveQueue {
    fn push(&self, request: Request) {
        locked(&self.state).requests.push_back(request);
        self.wake.notify_one();
    }

    /// Waits for something to do; `None` when there will be nothing more.
    fn pop(&self) -> Option<Request> {
        let state = locked(&self.state);
        let mut state = self
            .wake
            .wait_while(state, |state| state.requests.is_empty() && !state.closed)
            .unwrap_or_else(PoisonError::into_inner);
        state.requests.pop_front()
    }

    /// Ends the threads; gives what has not been started.
    fn close(&self) -> VecDeque<Request> {
        let mut state = locked(&self.state);
        state.closed = true;
        self.wake.notify_all();
        std::mem::take(&mut state.requests)
    }
}

fn work(drive: Arc<DriveFile>, queue: &DriveQueue, finished: &Finished) {
    while let Some(mut request) = queue.pop() {
        let result = match &mut request.memory {
            Memory::Write(buffer) => drive.write_blocking(&mut request.transfer, buffer),
            Memory::Read(buffer) => drive.read_blocking(&mut request.transfer, buffer),
        };
        finished.completions.push(request.complete(result));
    }
    // Before the count goes down, so that a drive is closed when its media is gone.
    drop(drive);
    *locked(&finished.threads) -= 1;
    finished.thread_ended.notify_all();
}

impl PoolMedia {
    /// Threads of its own over these drives; `None` is a drive that is not there.
    ///
    /// # Errors
    /// When the process may have no more threads or descriptors.
    pub fn new(drives: &[(DriveNumber, Option<Arc<DriveFile>>)]) -> io::Result<Self> {
        let completions = CompletionQueue::new()?;
        let finished = Arc::new(Finished { completions, threads: Mutex::new(0), thread_ended: Condvar::new() });
        let mut media = PoolMedia { drives: BTreeMap::new(), finished, submitted: Vec::new(), in_flight: 0 };
        for (number, drive) in drives {
            if let Some(drive) = drive {
                media.start_threads(*number, drive)?;
            }
        }
        Ok(media)
    }

    fn start_threads(&mut self, number: DriveNumber, drive: &Arc<DriveFile>) -> io::Result<()> {
        let state = Mutex::new(QueueState { requests: VecDeque::new(), closed: false });
        let queue = Arc::new(DriveQueue { drive_bytes: drive.bytes(), state, wake: Condvar::new() });
        for _ in 0..THREADS_PER_DRIVE {
            self.start_thread(number, drive, &queue).inspect_err(|_| drop(queue.close()))?;
        }
        self.drives.insert(number, queue);
        Ok(())
    }

    fn start_thread(&self, number: DriveNumber, drive: &Arc<DriveFile>, queue: &Arc<DriveQueue>) -> io::Result<()> {
        let (drive, queue, finished) = (Arc::clone(drive), Arc::clone(queue), Arc::clone(&self.finished));
        // Counted before it can end.
        *locked(&self.finished.threads) += 1;
        let builder = thread::Builder::new().name(format!("drive-{number}")).stack_size(STACK_BYTES);
        let started = builder.spawn(move || work(drive, &queue, &finished));
        started.map(drop).inspect_err(|_| *locked(&self.finished.threads) -= 1)
    }
}

impl Media for PoolMedia {
    fn drive_bytes(&self, drive: DriveNumber) -> Option<u64> {
        self.drives.get(&drive).map(|queue| queue.drive_bytes)
    }

    fn add_drive(&mut self, drive: DriveNumber, file: Arc<DriveFile>) -> io::Result<()> {
        self.start_threads(drive, &file)
    }

    fn remove_drive(&mut self, drive: DriveNumber) {
        let Some(queue) = self.drives.remove(&drive) else { return };
        for request in queue.close() {
            self.finished.completions.push(request.complete(Err(MediaError::Absent)));
        }
    }

    fn submit(&mut self, id: OperationId, operation: Operation) {
        self.submitted.push(Request::new(id, operation));
        self.in_flight += 1;
    }

    fn kick(&mut self) {
        for request in self.submitted.drain(..) {
            let queue = self.drives.get(&request.drive).ok_or(MediaError::Absent);
            match queue.and_then(|queue| request.transfer.check(queue.drive_bytes).map(|()| queue)) {
                Ok(queue) => queue.push(request),
                Err(reason) => self.finished.completions.push(request.complete(Err(reason))),
            }
        }
    }

    fn completions(&mut self, into: &mut Vec<Completion>) {
        self.in_flight -= self.finished.completions.take(into);
    }

    fn wait(&mut self, timeout: Duration, into: &mut Vec<Completion>) {
        wait_for(self, timeout, into);
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn ready(&self) -> Option<BorrowedFd<'_>> {
        Some(self.finished.completions.ready())
    }
}

impl Drop for PoolMedia {
    fn drop(&mut self) {
        for queue in self.drives.values() {
            drop(queue.close());
        }
        let threads = locked(&self.finished.threads);
        let (threads, _) = self
            .finished
            .thread_ended
            .wait_timeout_while(threads, DROP_WAIT, |threads| *threads > 0)
            .unwrap_or_else(PoisonError::into_inner);
        if *threads > 0 {
            // They own the memory of their operations, which lives until the drives answer.
            let stuck = *threads;
            tracing::error!(
                stuck,
                "drives did not answer for {DROP_WAIT:?}; their threads are left to end by themselves"
            );
        }
    }
}
