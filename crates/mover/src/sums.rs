//! What identifies the bytes of a file to a destination: the sums that permanent storage computes itself.

use std::fmt;

use forebay_types::{Adler32, Crc32c, crc32c_of_both};

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

/// What Adler-32 counts up to.
const ADLER: u64 = 65_521;

impl Sums {
    /// Of no bytes.
    pub const NOTHING: Sums = Sums { bytes: 0, adler32: 1, crc32c: 0 };

    /// Those of these bytes.
    pub fn of(bytes: &[u8]) -> Sums {
        let mut summer = Summer::default();
        summer.update(bytes);
        summer.sums()
    }

    /// The sums of what has these and then `more`.
    ///
    /// The first sum of an Adler-32 is one more than that of all bytes, the second that of all first sums (RFC 1950): behind the first bytes each of the others
    /// adds what the first came to, but for the one that it began with.
    #[must_use]
    pub fn then(&self, more: &Sums) -> Sums {
        let halves = |sum: u32| (u64::from(sum & 0xFFFF), u64::from(sum >> 16));
        let ((first, second), (more_first, more_second)) = (halves(self.adler32), halves(more.adler32));
        let without_one = (first + ADLER - 1) % ADLER;
        let first = (without_one + more_first) % ADLER;
        let second = (second + more_second + without_one * (more.bytes % ADLER)) % ADLER;
        Sums {
            bytes: self.bytes + more.bytes,
            adler32: (second << 16 | first) as u32,
            crc32c: crc32c_of_both(self.crc32c, more.crc32c, more.bytes),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_both_are_those_of_one_behind_the_other() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let bytes: Vec<u8> = (0..random.usize(..200_000)).map(|_| random.u8(..) | 0xF0).collect();
            let (first, second) = bytes.split_at(random.usize(..=bytes.len()));
            assert_eq!(Sums::of(first).then(&Sums::of(second)), Sums::of(&bytes), "seed {seed}");
            assert_eq!(Sums::NOTHING.then(&Sums::of(&bytes)), Sums::of(&bytes));
        }
        assert_eq!(Sums::of(&[]), Sums::NOTHING);
    }
}
