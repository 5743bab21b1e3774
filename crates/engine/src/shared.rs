//! Bytes in memory that several have at once, each for as long as it wants.

use std::ops::{Deref, Range};
use std::sync::Arc;

use forebay_media::AlignedBuffer;

/// Bytes of a flush that is in memory, for whoever sends them on without copying them. They stay as they are as long as somebody has this: the memory is only used
/// again when nobody does.
#[derive(Clone, Debug)]
pub struct SharedBytes {
    of: Arc<AlignedBuffer>,
    range: Range<usize>,
}

impl SharedBytes {
    /// A range of a buffer.
    ///
    /// # Panics
    /// When the buffer is shorter.
    pub fn new(of: Arc<AlignedBuffer>, range: Range<usize>) -> SharedBytes {
        assert!(range.start <= range.end && range.end <= of.len(), "{range:?} of {} bytes", of.len());
        SharedBytes { of, range }
    }

    /// A copy in memory of its own, for a lane that is only pretended.
    pub fn copy_of(bytes: &[u8]) -> SharedBytes {
        let mut buffer = AlignedBuffer::zeroed(bytes.len());
        buffer[..bytes.len()].copy_from_slice(bytes);
        SharedBytes::new(Arc::new(buffer), 0..bytes.len())
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.of[self.range.clone()]
    }
}
