//! What the fuzz targets share: how much memory a decoder may take, checksums that are put right so that what lies behind them is
//! reached, and how the bytes of an input become the parts of a case.
//!
//! Every target looks at its input as it is first: that is what a damaged drive or a stranger's connection brings. Then it puts right
//! the checksums (and, where it says so, lengths) and looks again: that is what a faulty program brings, and nearly all of a decoder is
//! behind the checksum.

pub mod events;
mod file;
mod memory;
mod wire;

pub use file::file_of;
pub use memory::bounded;
pub use wire::{mend_frame, mend_frames};

use forebay_types::crc32c;

/// Takes parts of an input from its front; when it is used up, zeros and nothing.
pub struct Parts<'a> {
    rest: &'a [u8],
}

impl<'a> Parts<'a> {
    /// The parts of `input`.
    pub fn of(input: &'a [u8]) -> Self {
        Parts { rest: input }
    }

    /// Whether the input is used up.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or_default()
    }

    /// The next two bytes, little-endian.
    pub fn u16(&mut self) -> u16 {
        let (low, high) = (self.byte(), self.byte());
        u16::from_le_bytes([low, high])
    }

    /// Up to `bytes` bytes.
    pub fn bytes(&mut self, bytes: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(bytes.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// As many bytes as the next two say, or what is left.
    pub fn piece(&mut self) -> &'a [u8] {
        let bytes = self.u16();
        self.bytes(usize::from(bytes))
    }

    /// What is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }
}

/// `bytes` with zeros up to `length`, cut there: headers are long, and nearly all of them is zero.
pub fn padded(bytes: &[u8], length: usize) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.resize(length, 0);
    padded
}

/// Puts right the CRC of a header on a drive, which counts as zero in itself (`docs/format.md`, `prefix`).
pub fn seal_header(header: &mut [u8]) {
    put_u32(header, 16, 0);
    let crc = crc32c(header);
    put_u32(header, 16, crc);
}

/// Writes a number of 32 bits over `bytes`.
pub fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// The number of 32 bits at `at`.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
