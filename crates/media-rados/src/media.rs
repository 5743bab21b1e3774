//! The media of one lane: operations become operations on objects, many at once, without a thread for each.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use forebay_media::{
    Completion, CompletionQueue, DriveFile, Licence, Media, MediaError, Memory, Operation, OperationId, Request,
    wait_for,
};
use forebay_types::DriveNumber;
use rustix::io::Errno;

use crate::drive::{RadosDrive, locked, os_error, places_of};
use crate::operation::{Steps, start_read};

/// How long a dropped media waits for the cluster.
const DROP_WAIT: Duration = Duration::from_secs(30);

/// A lane's way to a store's objects.
pub struct RadosMedia {
    drives: BTreeMap<DriveNumber, Arc<RadosDrive>>,
    queue: Arc<CompletionQueue>,
    /// Submitted and not yet kicked.
    submitted: Vec<Request>,
    in_flight: usize,
    started: Arc<Started>,
}

/// How much of what was started has not come back.
#[derive(Default)]
struct Started {
    parts: Mutex<usize>,
    changed: Condvar,
}

impl Started {
    fn add(&self, parts: usize) {
        *self.parts.lock().unwrap_or_else(PoisonError::into_inner) += parts;
    }

    fn end_one(&self) {
        *self.parts.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.changed.notify_all();
    }

    /// Whether all has come back within the time.
    fn wait(&self, timeout: Duration) -> bool {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(parts, timeout, |parts| *parts > 0);
        *waited.unwrap_or_else(PoisonError::into_inner).0 == 0
    }
}

/// An operation of which parts are on their way.
struct Flight {
    state: Mutex<FlightState>,
    queue: Arc<CompletionQueue>,
    started: Arc<Started>,
    licence: Arc<Licence>,
}

struct FlightState {
    request: Option<Request>,
    left: usize,
    failed: Option<MediaError>,
}

impl Flight {
    /// One of its parts is over.
    fn part_is_done(&self, result: Result<(), i32>) {
        let finished = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(errno) = result {
                self.note_fence(errno);
                let request = state.request.as_ref().expect("parts are on their way");
                let operation = if matches!(request.memory, Memory::Write(_)) { "write" } else { "read" };
                let error = os_error(operation, request.transfer.offset_bytes, request.transfer.bytes, errno);
                state.failed.get_or_insert(error);
            }
            state.left -= 1;
            (state.left == 0).then(|| {
                let request = state.request.take().expect("it is finished once");
                request.complete(state.failed.take().map_or(Ok(()), Err))
            })
        };
        if let Some(completion) = finished {
            self.queue.push(completion);
        }
        self.started.end_one();
    }

    fn note_fence(&self, errno: i32) {
        let is = |known: Errno| errno == known.raw_os_error();
        if is(Errno::SHUTDOWN) || is(Errno::CANCELED) {
            self.licence.revoke();
        }
    }
}

/// A part of an operation, ready to be started.
enum Part {
    /// To an object before the slots.
    Place { object: String, in_object: u64, range: std::ops::Range<usize> },
    /// Of a slot.
    Slot { slot: u32, in_slot: u64, range: std::ops::Range<usize> },
}

impl RadosMedia {
    /// A way to these drives.
    ///
    /// # Errors
    /// When the process may have no more descriptors.
    pub fn new(drives: &[(DriveNumber, Arc<RadosDrive>)]) -> io::Result<Self> {
        Ok(RadosMedia {
            drives: drives.iter().cloned().collect(),
            queue: Arc::new(CompletionQueue::new()?),
            submitted: Vec::new(),
            in_flight: 0,
            started: Arc::default(),
        })
    }

    fn start(&self, drive: &RadosDrive, mut request: Request) {
        let (offset, bytes) = (request.transfer.offset_bytes, request.transfer.bytes);
        let parts = parts_of(drive, offset, bytes);
        let begin = |request: Request, parts: usize| {
            self.started.add(parts);
            Arc::new(Flight {
                state: Mutex::new(FlightState { request: Some(request), left: parts, failed: None }),
                queue: Arc::clone(&self.queue),
                started: Arc::clone(&self.started),
                licence: Arc::clone(&drive.licence),
            })
        };
        match &mut request.memory {
            Memory::Write(buffer) => {
                let buffer = Arc::clone(buffer);
                let flight = begin(request, parts.len());
                for part in parts {
                    start_write(drive, part, &buffer, &flight);
                }
            }
            Memory::Read(buffer) => {
                let reads: Vec<ObjectRead> = parts.into_iter().flat_map(|part| reads_of(drive, part)).collect();
                if reads.iter().map(|read| read.at.len()).sum::<usize>() < bytes {
                    // What no object has was never written.
                    buffer[..bytes].fill(0);
                }
                let memory = buffer.as_mut_ptr();
                if reads.is_empty() {
                    return self.queue.push(request.complete(Ok(())));
                }
                let flight = begin(request, reads.len());
                for read in reads {
                    // SAFETY: the flight holds the buffer, which does not move, until every part was told of; the parts do not overlap.
                    unsafe { start_object_read(drive, read, memory, &flight) };
                }
            }
        }
    }
}

fn parts_of(drive: &RadosDrive, offset: u64, bytes: usize) -> Vec<Part> {
    let layout = drive.layout;
    let before = layout.slots_offset.saturating_sub(offset).min(bytes as u64) as usize;
    let places = places_of(offset, before);
    let mut parts: Vec<Part> =
        places.map(|(object, in_object, range)| Part::Place { object, in_object, range }).collect();
    let mut at = before;
    while at < bytes {
        let into = offset + at as u64 - layout.slots_offset;
        let (slot, in_slot) = (into / layout.slot_bytes, into % layout.slot_bytes);
        let until = bytes.min(at + (layout.slot_bytes - in_slot) as usize);
        let slot = u32::try_from(slot).expect("a drive has fewer than 2^32 slots");
        parts.push(Part::Slot { slot, in_slot, range: at..until });
        at = until;
    }
    parts
}

fn start_write(drive: &RadosDrive, part: Part, buffer: &[u8], flight: &Arc<Flight>) {
    let flight = Arc::clone(flight);
    match part {
        Part::Place { object, in_object, range } => {
            let steps = drive.place_steps(&buffer[range], in_object);
            let then = move |returned: i32| flight.part_is_done(failure(returned));
            steps.start(&drive.places, &object, Box::new(then));
        }
        Part::Slot { slot, in_slot, range } => {
            let end = in_slot + range.len() as u64;
            // Held until it is started: appends to an object are done in the order in which they are started.
            let mut map = locked(&drive.map);
            let target = map.plan_write(slot, in_slot, range.len() as u64);
            let steps = if target.is_new { Steps::new().create_new() } else { Steps::new() };
            let steps = steps.write(&buffer[range], target.object_offset);
            let shared = Arc::clone(&drive.map);
            let then = move |returned: i32| {
                let result = failure(returned);
                match result {
                    Ok(()) => locked(&shared).written(target.name, end),
                    Err(_) => locked(&shared).failed(target.name),
                }
                flight.part_is_done(result);
            };
            steps.start(&drive.slots, &target.name.to_string(), Box::new(then));
            drop(map);
        }
    }
}

/// A read of one object into a part of a buffer.
struct ObjectRead {
    is_place: bool,
    object: String,
    in_object: u64,
    at: std::ops::Range<usize>,
}

fn reads_of(drive: &RadosDrive, part: Part) -> Vec<ObjectRead> {
    match part {
        Part::Place { object, in_object, range } => {
            vec![ObjectRead { is_place: true, object, in_object, at: range }]
        }
        Part::Slot { slot, in_slot, range } => {
            let pieces = locked(&drive.map).plan_read(slot, in_slot..in_slot + range.len() as u64);
            let shift = range.start;
            let read = |piece: crate::slots::ReadPiece| ObjectRead {
                is_place: false,
                object: piece.name.to_string(),
                in_object: piece.object_offset,
                at: piece.at.start + shift..piece.at.end + shift,
            };
            pieces.into_iter().map(read).collect()
        }
    }
}

/// A part of a reader's buffer, on its way through the library.
struct Target(*mut u8, usize);

// SAFETY: it is used by one thread after the other.
unsafe impl Send for Target {}

impl Target {
    /// What an object did not have was never written.
    ///
    /// # Safety
    /// The memory is alive, and nobody else's.
    unsafe fn zero_from(&self, read: usize) {
        let read = read.min(self.1);
        // SAFETY: as the caller promises; the rest lies within the part.
        unsafe { self.0.add(read).write_bytes(0, self.1 - read) };
    }
}

/// # Safety
/// The memory holds all of the read until the flight is over, and the range is no other read's.
unsafe fn start_object_read(drive: &RadosDrive, read: ObjectRead, memory: *mut u8, flight: &Arc<Flight>) {
    let flight = Arc::clone(flight);
    let is_place = read.is_place;
    let pool = if is_place { &drive.places } else { &drive.slots };
    // SAFETY: as the caller promises.
    let target = Target(unsafe { memory.add(read.at.start) }, read.at.len());
    let into = (target.0, target.1);
    let then = move |returned: i32| {
        let is_missing = is_place && -returned == Errno::NOENT.raw_os_error();
        let result = if is_missing { Ok(()) } else { failure(returned) };
        if result.is_ok() {
            // SAFETY: the flight holds the buffer still, and nobody else writes to this part of it.
            unsafe { target.zero_from(usize::try_from(returned).unwrap_or(0)) };
        }
        flight.part_is_done(result);
    };
    // SAFETY: as the caller promises.
    unsafe { start_read(pool, &read.object, read.in_object, into, Box::new(then)) };
}

fn failure(returned: i32) -> Result<(), i32> {
    if returned < 0 { Err(-returned) } else { Ok(()) }
}

impl Media for RadosMedia {
    fn drive_bytes(&self, drive: DriveNumber) -> Option<u64> {
        self.drives.get(&drive).map(|drive| drive.layout.bytes)
    }

    fn add_drive(&mut self, _: DriveNumber, _: Arc<DriveFile>) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "a store in the pools of a cluster has one drive for ever"))
    }

    fn remove_drive(&mut self, drive: DriveNumber) {
        self.drives.remove(&drive);
    }

    fn submit(&mut self, id: OperationId, operation: Operation) {
        self.submitted.push(Request::new(id, operation));
        self.in_flight += 1;
    }

    fn discard(&mut self, drive: DriveNumber, offset_bytes: u64, bytes: u64) {
        // What was submitted before goes before.
        self.kick();
        if let Some(drive) = self.drives.get(&drive) {
            drive.discard(offset_bytes..offset_bytes.saturating_add(bytes));
        }
    }

    fn is_full(&self) -> bool {
        self.drives.values().any(|drive| drive.watch.is_full())
    }

    fn kick(&mut self) {
        for request in std::mem::take(&mut self.submitted) {
            let drive = self.drives.get(&request.drive).ok_or(MediaError::Absent);
            match drive.and_then(|drive| request.transfer.check(drive.layout.bytes).map(|()| drive)) {
                Ok(drive) => self.start(drive, request),
                Err(reason) => self.queue.push(request.complete(Err(reason))),
            }
        }
    }

    fn completions(&mut self, into: &mut Vec<Completion>) {
        self.in_flight -= self.queue.take(into);
    }

    fn wait(&mut self, timeout: Duration, into: &mut Vec<Completion>) {
        wait_for(self, timeout, into);
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn ready(&self) -> Option<BorrowedFd<'_>> {
        Some(self.queue.ready())
    }
}

impl Drop for RadosMedia {
    fn drop(&mut self) {
        if !self.started.wait(DROP_WAIT) {
            tracing::error!(
                "the cluster did not answer for {DROP_WAIT:?}: the connection to it is left as it is until the process ends"
            );
            // What was begun may still write to memory that the connection's end would give back.
            self.drives.values().cloned().for_each(std::mem::forget);
        }
    }
}
