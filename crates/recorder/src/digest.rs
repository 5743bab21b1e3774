//! What is computed over the bytes of a file while they are written, and again while they are read back.

use std::fmt;

use simd_adler32::Adler32;
use xxhash_rust::xxh3::Xxh3;

/// What identifies the bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// The size in bytes.
    pub bytes: u64,
    /// The checksum that the field's storage systems compare.
    pub adler32: u32,
    /// A hash that also finds what Adler-32 lets pass.
    pub xxh3_128: u128,
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes, adler32 {:08x}, xxh3 {:032x}", self.bytes, self.adler32, self.xxh3_128)
    }
}

/// Computes a [`Digest`] piece by piece.
#[derive(Clone, Default)]
pub struct Digester {
    bytes: u64,
    adler32: Adler32,
    xxh3: Xxh3,
}

impl Digester {
    /// Adds `bytes` to what was fed before.
    pub fn update(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.adler32.write(bytes);
        self.xxh3.update(bytes);
    }

    /// The digest of all that was fed.
    pub fn digest(&self) -> Digest {
        Digest { bytes: self.bytes, adler32: self.adler32.finish(), xxh3_128: self.xxh3.digest128() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_give_the_same_as_the_whole() {
        let bytes: Vec<u8> = (0..70_000u32).map(|i| ((i * 31) >> 2) as u8).collect();
        let mut whole = Digester::default();
        whole.update(&bytes);
        let mut pieces = Digester::default();
        bytes.chunks(4099).for_each(|piece| pieces.update(piece));
        assert_eq!(whole.digest(), pieces.digest());
        let mut known = Digester::default();
        known.update(b"Wikipedia");
        assert_eq!(known.digest().adler32, 0x11E6_0398);
    }
}
