//! What identifies the bytes of a file to a destination: the sums that permanent storage computes itself.

use std::fmt;

use forebay_types::{Adler32, Crc32c};

/// The size and checksums of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sums {
    /// The size in bytes.
    pub bytes: u64,
    /// Adler-32, which XRootD, dCache, EOS and CTA compare.
    pub adler32: u32,
    /// CRC32C, which finds what Adler-32 lets pass.
    pub crc32c: u32,
}

impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes, adler32 {:08x}, crc32c {:08x}", self.bytes, self.adler32, self.crc32c)
    }
}

/// Computes [`Sums`] piece by piece.
#[derive(Default)]
pub struct Summer {
    bytes: u64,
    adler32: Adler32,
    crc32c: Crc32c,
}

impl Summer {
    /// Adds `bytes` to what was fed before.
    pub fn update(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.adler32.update(bytes);
        self.crc32c.update(bytes);
    }

    /// The sums of all that was fed.
    pub fn sums(&self) -> Sums {
        Sums { bytes: self.bytes, adler32: self.adler32.finish(), crc32c: self.crc32c.finish() }
    }
}

/// What a destination says of a file that it holds. It may compute one of the checksums alone; a size without any proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The size in bytes.
    pub bytes: u64,
    /// Its Adler-32, where it was told.
    pub adler32: Option<u32>,
    /// Its CRC32C, where it was told.
    pub crc32c: Option<u32>,
}

impl Told {
    /// Whether this proves that the destination holds a file with these sums: the size is right, each checksum that was told is, and one was.
    pub fn proves(&self, sums: &Sums) -> bool {
        let agrees = |told: Option<u32>, sum: u32| told.is_none_or(|told| told == sum);
        let summed = self.adler32.is_some() || self.crc32c.is_some();
        summed && self.bytes == sums.bytes && agrees(self.adler32, sums.adler32) && agrees(self.crc32c, sums.crc32c)
    }
}

impl From<Sums> for Told {
    fn from(sums: Sums) -> Told {
        Told { bytes: sums.bytes, adler32: Some(sums.adler32), crc32c: Some(sums.crc32c) }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes)?;
        if let Some(adler32) = self.adler32 {
            write!(f, ", adler32 {adler32:08x}")?;
        }
        if let Some(crc32c) = self.crc32c {
            write!(f, ", crc32c {crc32c:08x}")?;
        }
        Ok(())
    }
}
