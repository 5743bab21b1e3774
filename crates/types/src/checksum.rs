//! CRC32C (Castagnoli), the checksum of everything that Forebay stores or sends, and adler32, that of what it ships.

use crc_fast::{CrcAlgorithm, Digest};

/// The polynomial of CRC32C (RFC 3720, 12.1) as it stands in the sums: the coefficient of x^0 is the highest bit.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// x^(2^n), by n: as many as the bits of a number of bytes, counted in bits, need.
const POWERS: [u32; 67] = {
    let mut powers = [1 << 30; 67];
    let mut n = 1;
    while n < powers.len() {
        powers[n] = product(powers[n - 1], powers[n - 1]);
        n += 1;
    }
    powers
};

/// The product of two polynomials, modulo that of CRC32C.
const fn product(a: u32, mut b: u32) -> u32 {
    let (mut sum, mut bit) = (0, 32);
    while bit > 0 {
        bit -= 1;
        sum ^= b & (a >> bit & 1).wrapping_neg();
        b = b >> 1 ^ POLYNOMIAL & (b & 1).wrapping_neg();
    }
    sum
}

/// CRC32C of `bytes`.
///
/// ```
/// assert_eq!(forebay_types::crc32c(b"123456789"), 0xE306_9283); // RFC 3720, B.4
/// ```
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The CRC32C of bytes with the CRC32C `first`, and of `second_bytes` more of them behind, with `second`.
///
/// A sum is a polynomial, and that of the first bytes moves up by as many bits as follow (M. Adler, zlib's `crc32_combine`). It is asked for with each write to a
/// file: what the crate of the sums has for this squares matrices, and takes as long as summing a MiB.
pub fn crc32c_of_both(first: u32, second: u32, second_bytes: u64) -> u32 {
    if first == 0 {
        // Zero stays zero, however far it moves up: as of no bytes, which is what it is most of the time.
        return second;
    }
    let bits = (0..u64::BITS as usize).filter(|bit| second_bytes >> bit & 1 == 1);
    bits.fold(first, |moved, bit| product(POWERS[bit + 3], moved)) ^ second
}

/// An adler32 (RFC 1950) that is fed piece by piece.
#[derive(Clone)]
pub struct Adler32(simd_adler32::Adler32);

impl Default for Adler32 {
    fn default() -> Self {
        Adler32(simd_adler32::Adler32::new())
    }
}

impl Adler32 {
    /// Adds `bytes` to what was fed before.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// The adler32 of all that was fed.
    pub fn finish(&self) -> u32 {
        self.0.finish()
    }
}

/// A CRC32C that is fed piece by piece.
pub struct Crc32c {
    /// Of what came before the bytes in the digest.
    before: u32,
    digest: Digest,
    digest_bytes: u64,
}

impl Default for Crc32c {
    fn default() -> Self {
        Crc32c { before: 0, digest: Digest::new(CrcAlgorithm::Crc32Iscsi), digest_bytes: 0 }
    }
}

impl Crc32c {
    /// Adds `bytes` to what was fed before.
    pub fn update(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        self.digest_bytes += bytes.len() as u64;
    }

    /// Adds so many bytes of which the CRC32C is known. It costs as much as summing a few KiB.
    pub fn update_summed(&mut self, crc: u32, bytes: u64) {
        self.before = crc32c_of_both(self.finish(), crc, bytes);
        self.digest.reset();
        self.digest_bytes = 0;
    }

    /// The CRC32C of all that was fed.
    pub fn finish(&self) -> u32 {
        match self.digest_bytes {
            0 => self.before,
            bytes => crc32c_of_both(self.before, self.digest.finalize() as u32, bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_give_the_same_as_the_whole() {
        let bytes: Vec<u8> = (0..100_000u32).map(|i| ((i * 7919) >> 3) as u8).collect();
        for cut in [0, 1, 63, 64, 4095, 65_537, bytes.len()] {
            let mut crc = Crc32c::default();
            crc.update(&bytes[..cut]);
            crc.update(&bytes[cut..]);
            assert_eq!(crc.finish(), crc32c(&bytes), "cut at {cut}");
            let mut crc = Crc32c::default();
            for (number, piece) in bytes.chunks(cut.max(777)).enumerate() {
                match number % 3 {
                    0 => crc.update(piece),
                    _ => crc.update_summed(crc32c(piece), piece.len() as u64),
                }
            }
            assert_eq!(crc.finish(), crc32c(&bytes), "some of it summed, by {cut}");
        }
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA); // RFC 3720, B.4
        let (first, second) = bytes.split_at(777);
        assert_eq!(crc32c_of_both(crc32c(first), crc32c(second), second.len() as u64), crc32c(&bytes));
        assert_eq!(crc32c_of_both(0, crc32c(&bytes), bytes.len() as u64), crc32c(&bytes));
        assert_eq!(crc32c_of_both(crc32c(&bytes), 0, 0), crc32c(&bytes));
        for length in [1, 2, 255, 1 << 20, (1 << 20) + 4097, 5 << 31, u64::MAX] {
            let theirs = crc_fast::checksum_combine(CrcAlgorithm::Crc32Iscsi, 0x1234_5678, 0x9ABC_DEF0, length);
            assert_eq!(u64::from(crc32c_of_both(0x1234_5678, 0x9ABC_DEF0, length)), theirs, "{length} bytes");
        }
        let mut adler = Adler32::default();
        adler.update(b"Wiki");
        adler.update(b"pedia");
        assert_eq!(adler.finish(), 0x11E6_0398);
    }
}
