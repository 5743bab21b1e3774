//! Files of events that cannot be put together: their fragments, as they are.
//!
//! An accepted event is never skipped. When its frame is lost or damaged there is no event of its format
//! to write, so its fragments go into a `.parts` file of their own:
//!
//! ```text
//!  0        4         5      6              8           12    16      24         32
//! +--------+---------+------+--------------+-----------+-----+-------+----------+-- entries x 12 ---------+-- bytes --+
//! | "FBEP" | version | 0    | header bytes | fragments | run | event | bytes    | source | outcome | size | fragments |
//! |        | u8, 1   | u8   | u16, 32      | u32       | u32 | u64   | u64      | u32    | u8 + 0s | u32  | in order  |
//! +--------+---------+------+--------------+-----------+-----+-------+----------+-------------------------+-----------+
//! ```
//!
//! `bytes` is the sum of the sizes. `outcome` is what reading the fragment came to, as on the wire; only
//! found ones (0) have bytes. All numbers are little-endian.

use std::io::Read;

use forebay_types::{EventKey, ReadOutcome, SourceId};

/// The first bytes of an event.
pub const PARTS_MAGIC: [u8; 4] = *b"FBEP";
/// Bytes before the entries.
pub const PARTS_HEADER_BYTES: usize = 32;
/// Bytes of an entry.
pub const PARTS_ENTRY_BYTES: usize = 12;

const VERSION: u8 = 1;
/// As many as an event can have. What they sum up to has no limit: whatever was accepted must come back.
const FRAGMENTS_MAX: u32 = 1 << 16;

/// A fragment in a `.parts` file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its source.
    pub source: SourceId,
    /// What reading it came to.
    pub outcome: ReadOutcome,
    /// Its bytes; empty unless found.
    pub bytes: Vec<u8>,
}

/// Bytes that are no event of a `.parts` file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event at byte {event_offset}: expected {expected}, found {found}")]
pub struct PartsError {
    /// Where in the file the event starts, in bytes.
    pub event_offset: u64,
    /// What belongs there.
    pub expected: &'static str,
    /// What is there.
    pub found: String,
}

/// The bytes of an event.
pub fn encode<'a>(key: EventKey, parts: impl Iterator<Item = (SourceId, ReadOutcome, &'a [u8])> + Clone) -> Vec<u8> {
    let count = parts.clone().count();
    let sum: usize = parts.clone().map(|(_, _, bytes)| bytes.len()).sum();
    let mut event = Vec::with_capacity(PARTS_HEADER_BYTES + count * PARTS_ENTRY_BYTES + sum);
    event.extend_from_slice(&PARTS_MAGIC);
    event.extend_from_slice(&[VERSION, 0]);
    event.extend_from_slice(&(PARTS_HEADER_BYTES as u16).to_le_bytes());
    event.extend_from_slice(&(count as u32).to_le_bytes());
    event.extend_from_slice(&key.run.0.to_le_bytes());
    event.extend_from_slice(&key.event.0.to_le_bytes());
    event.extend_from_slice(&(sum as u64).to_le_bytes());
    for (source, outcome, bytes) in parts.clone() {
        event.extend_from_slice(&source.0.to_le_bytes());
        event.extend_from_slice(&[outcome.code(), 0, 0, 0]);
        event.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    }
    parts.for_each(|(_, _, bytes)| event.extend_from_slice(bytes));
    event
}

/// Reads the events of a `.parts` file, and ends for good after an error.
pub struct PartsReader<R> {
    reader: R,
    offset: u64,
    ended: bool,
}

impl<R: Read> PartsReader<R> {
    /// Reads from where `reader` stands.
    pub fn new(reader: R) -> Self {
        PartsReader { reader, offset: 0, ended: false }
    }

    /// Where the next event starts, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    fn error<T>(&self, expected: &'static str, found: impl ToString) -> Result<T, PartsError> {
        Err(PartsError { event_offset: self.offset, expected, found: found.to_string() })
    }

    /// Up to `bytes` bytes, fewer only at the end. Memory grows only as bytes arrive.
    fn take(&mut self, bytes: u64) -> Result<Vec<u8>, PartsError> {
        let mut taken = Vec::new();
        match self.reader.by_ref().take(bytes).read_to_end(&mut taken) {
            Ok(_) => Ok(taken),
            Err(error) => self.error("bytes that can be read", error),
        }
    }

    fn event(&mut self) -> Result<Option<(EventKey, Vec<Part>)>, PartsError> {
        let header = self.take(PARTS_HEADER_BYTES as u64)?;
        if header.is_empty() {
            return Ok(None);
        }
        let Ok(header) = <[u8; PARTS_HEADER_BYTES]>::try_from(header.as_slice()) else {
            return self.error("a header of 32 bytes", format!("{} bytes", header.len()));
        };
        let u32_at = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        let header_bytes = u16::from_le_bytes([header[6], header[7]]);
        if header[..4] != PARTS_MAGIC || header[4] != VERSION || usize::from(header_bytes) != PARTS_HEADER_BYTES {
            return self.error("FBEP, version 1, header of 32 bytes", format!("{:02x?}", &header[..8]));
        }
        let (fragments, sum) = (u32_at(8), u64_at(24));
        if fragments > FRAGMENTS_MAX {
            return self.error("at most 65536 fragments", fragments);
        }
        let key = EventKey::new(u32_at(12), u64_at(16));
        let entries = self.take(u64::from(fragments) * PARTS_ENTRY_BYTES as u64)?;
        if entries.len() != fragments as usize * PARTS_ENTRY_BYTES {
            return self.error("an entry for each fragment", format!("{} bytes", entries.len()));
        }
        let bytes = self.take(sum)?;
        if bytes.len() as u64 != sum {
            return self.error("the bytes of all fragments", format!("{} of {sum}", bytes.len()));
        }
        let parts = self.parts(&entries, &bytes)?;
        self.offset += (PARTS_HEADER_BYTES + entries.len() + bytes.len()) as u64;
        Ok(Some((key, parts)))
    }

    fn parts(&self, entries: &[u8], mut bytes: &[u8]) -> Result<Vec<Part>, PartsError> {
        let mut parts = Vec::with_capacity(entries.len() / PARTS_ENTRY_BYTES);
        for entry in entries.chunks_exact(PARTS_ENTRY_BYTES) {
            let u32_at = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().expect("four bytes"));
            let Some(outcome) = ReadOutcome::from_code(entry[4]) else {
                return self.error("an outcome of 0 to 4", entry[4]);
            };
            let Some((own, rest)) = bytes.split_at_checked(u32_at(8) as usize) else {
                return self.error("sizes that sum up to the bytes", "a larger sum");
            };
            bytes = rest;
            parts.push(Part { source: SourceId(u32_at(0)), outcome, bytes: own.to_vec() });
        }
        if bytes.is_empty() { Ok(parts) } else { self.error("sizes that sum up to the bytes", "a smaller sum") }
    }
}

impl<R: Read> Iterator for PartsReader<R> {
    type Item = Result<(EventKey, Vec<Part>), PartsError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let event = self.event();
        self.ended = !matches!(event, Ok(Some(_)));
        event.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> (EventKey, Vec<Part>) {
        let part = |source, outcome, bytes: &[u8]| Part { source: SourceId(source), outcome, bytes: bytes.to_vec() };
        let parts = vec![part(5, ReadOutcome::Found, b"abc"), part(0xFFFF_FFFF, ReadOutcome::Lost, b"")];
        (EventKey::new(7, 9), parts)
    }

    fn encoded((key, parts): &(EventKey, Vec<Part>)) -> Vec<u8> {
        encode(*key, parts.iter().map(|part| (part.source, part.outcome, part.bytes.as_slice())))
    }

    /// Owns the drawing above.
    #[test]
    fn the_bytes_are_the_drawn_ones() {
        #[rustfmt::skip]
        let drawn = [
            b'F', b'B', b'E', b'P', 1, 0, 32, 0, 2, 0, 0, 0, 7, 0, 0, 0,
            9, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0,
            5, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0,
            0xFF, 0xFF, 0xFF, 0xFF, 4, 0, 0, 0, 0, 0, 0, 0,
            b'a', b'b', b'c',
        ];
        assert_eq!(encoded(&event()), drawn);
    }

    #[test]
    fn events_read_back_and_every_cut_is_an_error() {
        let one = encoded(&event());
        let two = [one.clone(), one.clone()].concat();
        let read: Result<Vec<_>, _> = PartsReader::new(two.as_slice()).collect();
        assert_eq!(read, Ok(vec![event(), event()]));
        for cut in one.len() + 1..two.len() {
            let mut reader = PartsReader::new(&two[..cut]);
            assert_eq!(reader.next(), Some(Ok(event())));
            let error = reader.next().expect("a cut event").expect_err("a cut event");
            assert_eq!(error.event_offset, one.len() as u64, "cut at {cut}");
            assert_eq!(reader.next(), None);
        }
    }

    /// Whatever was accepted must come back, so no size is refused; and none is believed before its bytes come.
    #[test]
    fn events_have_any_size() {
        let mut large = encoded(&event());
        large[24..32].copy_from_slice(&(1u64 << 40).to_le_bytes());
        let error = PartsReader::new(large.as_slice()).next().expect("an event").expect_err("it is cut");
        assert_eq!(error.found, format!("3 of {}", 1u64 << 40));
    }

    #[test]
    fn no_byte_makes_it_panic() {
        let good = encoded(&event());
        for at in 0..good.len() {
            for flip in [1, 0x80, 0xFF] {
                let mut damaged = good.clone();
                damaged[at] ^= flip;
                let _: Result<Vec<_>, _> = PartsReader::new(damaged.as_slice()).collect();
            }
        }
    }
}
