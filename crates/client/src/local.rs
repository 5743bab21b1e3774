//! A server on this machine: memory that is shared with it, so that bytes that lie there are not sent (`docs/protocol.md`, "On one machine").

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create};
use rustix::process::{Resource, getrlimit};

/// Bytes of a slot: a piece of a file.
pub(crate) const SLOT_BYTES: usize = forebay_types::limits::PIECE_BYTES_MAX;

/// Bytes of all slots: more than usually are on their way; what finds none is sent. Those that nobody has take no memory.
const SHARED_BYTES: u64 = 256 << 20;

/// The memory that a client shares with servers of this machine, once it has met one.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalMemory(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    is_wanted: AtomicBool,
    /// Made when the first slot is wanted; `None`: the system gives none.
    memory: OnceLock<Option<Arc<SharedMemory>>>,
}

impl LocalMemory {
    /// Whether a server of this machine takes it.
    pub(crate) fn want(&self, is_wanted: bool) {
        self.0.is_wanted.store(is_wanted, Ordering::Relaxed);
    }

    /// The memory, made when it is first wanted; `None` while no server takes it, and where the system gives none.
    fn wanted(&self) -> Option<&Arc<SharedMemory>> {
        if !self.0.is_wanted.load(Ordering::Relaxed) {
            return None;
        }
        self.0.memory.get_or_init(|| SharedMemory::new().map(Arc::new).ok()).as_ref()
    }

    /// Whether a server takes bytes that lie in it without their being sent.
    pub(crate) fn is_taken(&self) -> bool {
        self.wanted().is_some()
    }

    /// A slot that nobody has; `None`: there is none.
    pub(crate) fn take(&self) -> Option<Slot> {
        self.wanted()?.take()
    }

    fn memory(&self) -> Option<&Arc<SharedMemory>> {
        self.0.memory.get()?.as_ref()
    }

    /// What names it to another process.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.memory().map(|memory| memory.file.as_fd())
    }

    /// Where in it these bytes lie, if they do.
    pub(crate) fn place_of(&self, bytes: &[u8]) -> Option<u64> {
        let slots = self.memory()?.slots();
        let (slot, offset) = slots.taken.range(..=bytes.as_ptr().addr()).next_back()?;
        let before = bytes.as_ptr().addr() - slot;
        (before + bytes.len() <= SLOT_BYTES).then(|| offset + before as u64)
    }
}

/// Memory that has a descriptor, in slots.
#[derive(Debug)]
struct SharedMemory {
    file: File,
    slots: Mutex<Slots>,
    /// The process that made it: one that it forked shares the slots, and must take none.
    process: u32,
}

#[derive(Debug, Default)]
struct Slots {
    /// Where those begin that somebody has, here and in the file.
    taken: BTreeMap<usize, u64>,
    /// Where those begin that were given back.
    free: Vec<u64>,
    /// Behind the last that was ever taken.
    end: u64,
}

impl SharedMemory {
    fn new() -> io::Result<SharedMemory> {
        // Beyond this limit a file that grows ends the process.
        if getrlimit(Resource::Fsize).current.is_some_and(|most| most < SHARED_BYTES) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let file = File::from(memfd_create(c"forebay-client", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        ftruncate(&file, SHARED_BYTES)?;
        // Nobody else can take away what is mapped here.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(SharedMemory { file, slots: Mutex::default(), process: std::process::id() })
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(self: &Arc<Self>) -> Option<Slot> {
        if self.process != std::process::id() {
            return None;
        }
        let mut slots = self.slots();
        let fresh = Some(slots.end).filter(|end| *end < SHARED_BYTES);
        let offset = slots.free.last().copied().or(fresh)?;
        // Each by itself: a process that locks all of its memory locks no more than it uses.
        let map = MmapOptions::new().offset(offset).len(SLOT_BYTES).map_raw(&self.file).ok()?;
        if slots.free.pop().is_none() {
            slots.end += SLOT_BYTES as u64;
        }
        slots.taken.insert(map.as_ptr().addr(), offset);
        drop(slots);
        Some(Slot { memory: self.clone(), map, offset })
    }
}

/// [`SLOT_BYTES`] of shared memory that nobody else of this process has. Its memory goes back to the system with it.
#[derive(Debug)]
pub(crate) struct Slot {
    memory: Arc<SharedMemory>,
    map: MmapRaw,
    offset: u64,
}

impl Slot {
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the map has so many bytes, lives as long as the slot and cannot be cut; this process writes to them through this slot alone, and servers only
        // read them.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr(), SLOT_BYTES) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; and nobody else has this slot.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr(), SLOT_BYTES) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut slots = self.memory.slots();
        slots.taken.remove(&self.map.as_ptr().addr());
        if self.memory.process == std::process::id() {
            // Where it cannot be given back it is used again as it is.
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(&self.memory.file, mode, self.offset, SLOT_BYTES as u64);
            slots.free.push(self.offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> LocalMemory {
        let memory = LocalMemory::default();
        assert!(memory.take().is_none() && memory.descriptor().is_none(), "nobody asked for any");
        memory.want(true);
        memory
    }

    #[test]
    fn slots_are_apart_and_their_places_are_those_of_the_descriptor() {
        let memory = wanted();
        let mut slots: Vec<Slot> = (0..5).map(|_| memory.take().expect("there are some")).collect();
        for (number, slot) in slots.iter_mut().enumerate() {
            assert!(slot.bytes().iter().all(|byte| *byte == 0));
            slot.bytes_mut().fill(number as u8 + 1);
        }
        for (number, slot) in slots.iter().enumerate() {
            let place = memory.place_of(&slot.bytes()[7..100]).expect("it lies there");
            let mut read = [0; 93];
            let file = memory.descriptor().expect("it is there");
            assert_eq!(rustix::io::pread(file, &mut read, place).expect("read"), 93);
            assert_eq!(read, [number as u8 + 1; 93]);
        }
        let elsewhere = vec![0; 100];
        assert_eq!(memory.place_of(&elsewhere), None);
    }

    #[test]
    fn what_was_given_back_takes_no_memory_and_comes_again_as_zeros() {
        let memory = wanted();
        let all: Vec<Slot> =
            (0..SHARED_BYTES / SLOT_BYTES as u64).map(|_| memory.take().expect("so many there are")).collect();
        assert!(memory.take().is_none(), "more there are not");
        drop(all);
        let mut slot = memory.take().expect("they came back");
        slot.bytes_mut().fill(7);
        let blocks = || rustix::fs::fstat(memory.descriptor().expect("there")).expect("stated").st_blocks;
        assert!(blocks() > 0);
        drop(slot);
        assert_eq!(blocks(), 0);
        assert_eq!(memory.take().expect("one").bytes()[..3], [0; 3]);
    }
}
