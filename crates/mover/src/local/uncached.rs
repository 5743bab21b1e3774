//! Reads a file as the disk holds it, not as the page cache remembers it.
#![expect(clippy::disallowed_types, reason = "this module does the reading that the machines ask for")]

use std::fs::File;
use std::io::{self, Read};

use rustix::fs::{Advice, OFlags, fadvise};

/// What O_DIRECT wants offsets, lengths and addresses to be multiples of.
const ALIGNMENT_BYTES: usize = 4096;
const BLOCK_BYTES: usize = 1 << 20;

/// How the page cache was kept out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// `O_DIRECT`: the bytes came from the drive.
    Direct,
    /// The file system refuses `O_DIRECT`: the cache was told to forget the file before it was read. A
    /// file system in memory has nowhere else to read from.
    CacheDropped,
}

impl ReadMode {
    /// How the file is to be opened.
    pub fn flags(self) -> OFlags {
        let direct = if self == ReadMode::Direct { OFlags::DIRECT } else { OFlags::empty() };
        OFlags::RDONLY | OFlags::CLOEXEC | direct
    }
}

impl std::fmt::Display for ReadMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ReadMode::Direct => "O_DIRECT",
            ReadMode::CacheDropped => "page cache dropped",
        })
    }
}

/// A file that is read block by block past the page cache.
#[derive(Debug)]
pub struct Uncached {
    file: File,
    buffer: Vec<u8>,
    /// Where in the buffer the aligned part starts.
    start: usize,
    /// Of the block that was read last.
    block_bytes: usize,
    file_bytes: u64,
    offset: u64,
}

impl Uncached {
    /// Reads a file that was opened with the flags of `mode`.
    ///
    /// # Errors
    /// What the operating system says. Some file systems refuse `O_DIRECT` (`EINVAL`) only with the first read.
    pub fn new(file: File, mode: ReadMode) -> io::Result<Uncached> {
        if mode == ReadMode::CacheDropped {
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
        let file_bytes = file.metadata()?.len();
        let buffer = vec![0; BLOCK_BYTES + ALIGNMENT_BYTES];
        let start = buffer.as_ptr().align_offset(ALIGNMENT_BYTES);
        assert!(start < ALIGNMENT_BYTES, "a buffer of bytes can be aligned");
        Ok(Uncached { file, buffer, start, block_bytes: 0, file_bytes, offset: 0 })
    }

    /// Reads the next block; whether there was one before the end of the file.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn refill(&mut self) -> io::Result<bool> {
        self.block_bytes = 0;
        // A read behind the end, from where the last block ended, would not be aligned.
        if self.offset >= self.file_bytes {
            return Ok(false);
        }
        let block = &mut self.buffer[self.start..self.start + BLOCK_BYTES];
        self.block_bytes = loop {
            match self.file.read(block) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.offset += self.block_bytes as u64;
        Ok(self.block_bytes > 0)
    }

    /// The block that was read last.
    pub fn block(&self) -> &[u8] {
        &self.buffer[self.start..self.start + self.block_bytes]
    }
}
