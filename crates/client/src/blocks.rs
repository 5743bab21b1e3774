//! Blocks of memory that bytes of files arrive in. A block is used again when nobody refers to its bytes any more: fresh memory of such sizes costs page faults.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::local::{LocalMemory, SLOT_BYTES, Slot};

/// A block begins at a page: a kernel takes what lies so in the fewest pieces.
const ALIGN_BYTES: usize = 4 << 10;

/// Fewer bytes have memory of their own.
pub(crate) const BLOCK_USE_BYTES_MIN: usize = 256 << 10;

/// Where blocks come from and go back to.
#[derive(Clone, Debug)]
pub struct Blocks {
    block_bytes: usize,
    kept_max: usize,
    /// What servers on this machine share: of that, if there is some.
    local: Option<LocalMemory>,
    free: Arc<Mutex<Free>>,
}

/// What nobody refers to.
#[derive(Debug)]
struct Free {
    memory: Vec<Memory>,
    /// More is not kept.
    kept_max: usize,
    /// So many were here all the time since [`Blocks::give_back_unused`].
    unused: usize,
}

/// Bytes that begin at a page, initialised when they were made.
#[derive(Debug)]
enum Memory {
    Own {
        bytes: Box<[u8]>,
        start: usize,
    },
    /// Shared with servers on this machine.
    Local(Slot),
}

impl Memory {
    fn own(bytes: usize) -> Memory {
        let bytes = vec![0; bytes + ALIGN_BYTES].into_boxed_slice();
        let start = bytes.as_ptr().align_offset(ALIGN_BYTES);
        // Where nothing can be aligned, nothing has to be.
        Memory::Own { start: if start > ALIGN_BYTES { 0 } else { start }, bytes }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Memory::Own { bytes, start } => &bytes[*start..],
            Memory::Local(slot) => slot.bytes(),
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Own { bytes, start } => &mut bytes[*start..],
            Memory::Local(slot) => slot.bytes_mut(),
        }
    }
}

impl Blocks {
    /// Blocks of so many bytes. So many that nobody refers to are kept, at most.
    pub fn new(block_bytes: usize, kept_max: usize) -> Blocks {
        let free = Free { memory: Vec::new(), kept_max, unused: 0 };
        Blocks { block_bytes, kept_max, local: None, free: Arc::new(Mutex::new(free)) }
    }

    /// The same of memory that a server on this machine takes without its being sent, as far as there is such.
    pub(crate) fn shared(block_bytes: usize, kept_max: usize, memory: LocalMemory) -> Blocks {
        assert!(block_bytes <= SLOT_BYTES, "a block of {block_bytes} bytes fits no slot");
        Blocks { local: Some(memory), ..Blocks::new(block_bytes, kept_max) }
    }

    /// Whether these bytes are better copied than shared: where they lie a server on this machine cannot take them.
    pub(crate) fn are_better_copied(&self, bytes: &[u8]) -> bool {
        self.local.as_ref().is_some_and(|memory| memory.is_taken() && memory.place_of(bytes).is_none())
    }

    /// Bytes of a block.
    pub(crate) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// A block that nobody else refers to, with nothing in it.
    pub(crate) fn take(&self) -> Block {
        let kept = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            free.kept_max = self.kept_max;
            let kept = free.memory.pop();
            free.unused = free.unused.min(free.memory.len());
            kept
        };
        let fresh = || self.local.as_ref().and_then(LocalMemory::take).map(Memory::Local);
        let memory = kept.or_else(fresh).unwrap_or_else(|| Memory::own(self.block_bytes));
        Block { memory: Some(memory), room: self.block_bytes, filled: 0, free: Arc::clone(&self.free) }
    }

    /// Copies bytes into a block. Few of them, or more than a block has, get memory that is not kept.
    pub fn copy(&self, bytes: &[u8]) -> Bytes {
        if !(BLOCK_USE_BYTES_MIN..=self.block_bytes).contains(&bytes.len()) {
            return Bytes::copy_from_slice(bytes);
        }
        let mut block = self.take();
        block.extend(bytes);
        block.share()
    }

    /// Gives the memory back to the system of all but `count` that nobody refers to, and of those that somebody does when he is done, until the next is taken.
    pub fn shrink(&self, count: usize) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.kept_max = count;
        free.memory.truncate(count);
        free.unused = free.unused.min(count);
    }

    /// Gives the memory back to the system of those that nobody referred to at any time since this was called last.
    pub(crate) fn give_back_unused(&self) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let used = free.memory.len() - free.unused;
        free.memory.truncate(used);
        free.unused = used;
    }
}

/// A block that fills.
#[derive(Debug)]
pub(crate) struct Block {
    /// There until it is dropped.
    memory: Option<Memory>,
    room: usize,
    filled: usize,
    free: Arc<Mutex<Free>>,
}

impl Block {
    /// What is not filled.
    pub(crate) fn rest(&mut self) -> &mut [u8] {
        let memory = self.memory.as_mut().expect("there until it is dropped");
        &mut memory.bytes_mut()[self.filled..self.room]
    }

    /// That so many bytes of [`Block::rest`] were filled.
    ///
    /// # Panics
    /// When there was room for less.
    pub(crate) fn fill(&mut self, bytes: usize) {
        assert!(bytes <= self.room - self.filled, "{bytes} bytes cannot have been written to less");
        self.filled += bytes;
    }

    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.rest()[..bytes.len()].copy_from_slice(bytes);
        self.fill(bytes.len());
    }

    /// What is filled.
    pub(crate) fn filled_mut(&mut self) -> &mut [u8] {
        let memory = self.memory.as_mut().expect("there until it is dropped");
        &mut memory.bytes_mut()[..self.filled]
    }

    /// Bytes that are filled.
    pub(crate) fn len(&self) -> usize {
        self.filled
    }

    /// The bytes, for whoever wants to refer to them.
    pub(crate) fn share(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        let memory = self.memory.as_ref().expect("there until it is dropped");
        &memory.bytes()[..self.filled]
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.memory.len() < free.kept_max {
            free.memory.extend(self.memory.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(blocks: &Blocks) -> usize {
        blocks.free.lock().expect("nobody panicked").memory.len()
    }

    #[test]
    fn memory_is_used_again_when_nobody_has_it_and_is_bounded() {
        let (blocks, bytes) = (Blocks::new(1 << 20, 4), vec![7; BLOCK_USE_BYTES_MIN]);
        let mut places = std::collections::BTreeSet::new();
        for _ in 0..100 {
            let copy = blocks.copy(&bytes);
            assert_eq!(copy, bytes);
            assert_eq!(copy.as_ptr().align_offset(ALIGN_BYTES), 0);
            places.insert(copy.as_ptr() as usize);
        }
        assert_eq!(places.len(), 1, "one at a time needs one block");
        let held: Vec<Bytes> = (0..20u8).map(|number| blocks.copy(&vec![number; BLOCK_USE_BYTES_MIN + 1])).collect();
        for (number, copy) in held.iter().enumerate() {
            assert!(copy.iter().all(|byte| usize::from(*byte) == number), "what somebody holds stays as it is");
        }
        // A part is enough to hold all.
        let part = held[3].slice(5..9);
        drop(held);
        assert_eq!((kept(&blocks), &part[..]), (4, &[3; 4][..]));
        blocks.shrink(1);
        assert_eq!(kept(&blocks), 1);
        drop(part);
        assert_eq!(kept(&blocks), 1, "what comes back later is not kept either");
        drop([blocks.take(), blocks.take()]);
        assert_eq!(kept(&blocks), 2);
    }

    #[test]
    fn what_was_not_needed_for_a_while_is_given_back() {
        let blocks = Blocks::new(1 << 20, 8);
        let take = |count| (0..count).map(|_| blocks.take()).collect::<Vec<_>>();
        drop(take(6));
        blocks.give_back_unused();
        assert_eq!(kept(&blocks), 6, "all were needed");
        drop(take(2));
        let held = take(4);
        blocks.give_back_unused();
        assert_eq!(kept(&blocks), 0, "two were not, and four are held");
        drop(held);
        assert_eq!(kept(&blocks), 4, "these are used again");
        blocks.give_back_unused();
        assert_eq!(kept(&blocks), 4);
        blocks.give_back_unused();
        assert_eq!(kept(&blocks), 0, "nothing was taken in between");
    }

    #[test]
    fn few_bytes_and_more_than_a_block_has_take_none() {
        let blocks = Blocks::new(1 << 20, 4);
        for bytes in [0, 1, BLOCK_USE_BYTES_MIN - 1, (1 << 20) + 1] {
            assert_eq!(blocks.copy(&vec![5; bytes]).len(), bytes);
        }
        assert_eq!(kept(&blocks), 0);
    }
}
