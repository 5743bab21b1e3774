//! LHCb MDF: records back to back; a header, then raw banks.
//!
//! ```text
//!  0 u32 x 3  record size with header, three equal copies
//! 12 u32      checksum over [16, size), 0 = none
//! 16 u8       compression: low nibble the level (0 none), high nibble + 1 the expansion
//! 17 u8       header version << 4, sub-header words
//! 18 u8, u8   data type (1 banks, 2 MEP), spare
//! 20 u32 x 4  trigger mask            | versions 1 and 3 (48 bytes);
//! 36 u32 x 3  run, orbit, bunch id    | version 2 ends at byte 20
//! ```
//!
//! The length of the header follows from its version, as in the experiment's own reader; the sub-header
//! words are not used. Headers of versions 1 and 2 know no data type and hold banks unless it says MEP.

use std::ops::Range;

use forebay_types::{EventId, RunId, SourceId};

use crate::banks::{self, Banks, Payload};
use crate::bytes::{put, u32_at};
use crate::error::{NumberUnknown, Problem, RenumberError};
use crate::event::{EventInfo, Format, check_length};

pub(crate) const HEADER_BYTES_MIN: usize = 20;
pub(crate) const HEADER_BYTES_RUN: usize = 48;

pub(crate) const ODIN: u8 = 16;
/// ODIN's words, versions 2 to 6: run 0, event number high 3, low 4; GPS time high 5, low 6, in microseconds since 1970 (0 in simulated data).
const ODIN_RUN: usize = 0;
const ODIN_EVENT_HIGH: usize = 12;
const ODIN_EVENT_LOW: usize = 16;
const ODIN_TIME_HIGH: usize = 20;
const ODIN_TIME_LOW: usize = 24;
const ODIN_TIME_END: usize = 28;
const ODIN_BODY_BYTES_MIN: usize = 20;

/// The header of a record.
pub(crate) struct Header {
    pub(crate) record_bytes: u64,
    checksum: u32,
    pub(crate) header_bytes: usize,
    pub(crate) compressed: bool,
    pub(crate) mep: bool,
}

impl Header {
    /// Reads the header of the record that starts with `bytes`, at least [`HEADER_BYTES_MIN`] of them.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Header, Problem> {
        let sizes = [u32_at(bytes, 0), u32_at(bytes, 4), u32_at(bytes, 8)];
        if sizes[0] != sizes[1] || sizes[0] != sizes[2] {
            return Err(Problem::SizeCopies { found: sizes });
        }
        let version = bytes[17] >> 4;
        let header_bytes = match version {
            1 | 3 => HEADER_BYTES_RUN,
            2 => HEADER_BYTES_MIN,
            _ => {
                let expected = "1, 2 or 3";
                return Err(Problem::Version { what: "record header", at: 17, expected, found: version.into() });
            }
        };
        let record_bytes = u64::from(sizes[0]);
        if record_bytes < header_bytes as u64 {
            return Err(Problem::TooSmall { expected: header_bytes as u64, found: record_bytes });
        }
        let mep = match (bytes[18], version) {
            (2, _) => true,
            (1, _) | (_, 1 | 2) => false,
            (found, _) => return Err(Problem::DataType { found }),
        };
        let compressed = bytes[16] & 0x0F != 0;
        Ok(Header { record_bytes, checksum: u32_at(bytes, 12), header_bytes, compressed, mep })
    }

    /// Compares the checksum of a record that has one.
    fn compare(&self, found: u32) -> Result<(), Problem> {
        if found == self.checksum {
            return Ok(());
        }
        Err(Problem::Checksum { expected: self.checksum, found })
    }

    fn run(&self, bytes: &[u8]) -> Option<RunId> {
        (self.header_bytes >= HEADER_BYTES_RUN).then(|| RunId(u32_at(bytes, 36)))
    }
}

/// The checksum of MDF records: Jenkins's one-at-a-time hash over *signed* bytes.
///
/// ```
/// assert_eq!(forebay_rawdata::mdf_checksum(b"a"), 0xca2e_9442);
/// ```
pub fn checksum(bytes: &[u8]) -> u32 {
    finish(bytes.iter().fold(0, |hash, byte| step(hash, *byte)))
}

/// The checksums of two records of the same length in the time of one: each byte waits for the one
/// before it, so that one chain leaves most of a core idle.
fn checksum_both(one: &[u8], other: &[u8]) -> (u32, u32) {
    assert_eq!(one.len(), other.len(), "records of the same length");
    let pairs = one.iter().zip(other);
    let (one, other) = pairs.fold((0, 0), |(one, other), (a, b)| (step(one, *a), step(other, *b)));
    (finish(one), finish(other))
}

fn step(hash: u32, byte: u8) -> u32 {
    let hash = hash.wrapping_add_signed(i32::from(byte as i8));
    let hash = hash.wrapping_add(hash << 10);
    hash ^ (hash >> 6)
}

fn finish(hash: u32) -> u32 {
    let hash = hash.wrapping_add(hash << 3);
    let hash = hash ^ (hash >> 11);
    hash.wrapping_add(hash << 15)
}

/// Calls `part` for every stretch of a whole record in order: banks with their source, the header, the
/// padding and what follows the last bank with none.
pub(crate) fn walk(bytes: &[u8], mut part: impl FnMut(Option<SourceId>, Range<usize>)) -> Result<(), Problem> {
    let header = Header::parse(bytes)?;
    if header.compressed || header.mep {
        part(None, 0..bytes.len());
        return Ok(());
    }
    part(None, 0..header.header_bytes);
    let mut end = header.header_bytes;
    for bank in Banks::new(bytes, header.header_bytes) {
        let bank = bank?;
        part(Some(bank.source()), bank.range.clone());
        end = bank.padded_end(bytes.len());
        if bank.range.end < end {
            part(None, bank.range.end..end);
        }
    }
    if end < bytes.len() {
        part(None, end..bytes.len());
    }
    Ok(())
}

/// What an ODIN bank says, and where its body starts in the payload.
struct Odin {
    run: RunId,
    event: EventId,
    taken_unix_us: Option<u64>,
    body: usize,
}

impl Odin {
    /// Finds the first ODIN bank; walks all banks, so that none is left unchecked.
    fn find(payload: &[u8], start: usize) -> Result<(Result<Odin, NumberUnknown>, usize), Problem> {
        let mut odin = Err(NumberUnknown::NoOdin);
        let mut count = 0;
        for bank in Banks::new(payload, start) {
            let bank = bank?;
            count += 1;
            if bank.bank_type == ODIN && odin.as_ref().err() == Some(&NumberUnknown::NoOdin) {
                odin = Odin::read(payload, &bank);
            }
        }
        Ok((odin, count))
    }

    fn read(payload: &[u8], bank: &banks::Bank) -> Result<Odin, NumberUnknown> {
        if !(2..=6).contains(&bank.version) {
            return Err(NumberUnknown::OdinVersion { found: bank.version });
        }
        let range = bank.body();
        let body = &payload[range.clone()];
        if body.len() < ODIN_BODY_BYTES_MIN {
            return Err(NumberUnknown::OdinShort { expected: ODIN_BODY_BYTES_MIN as u64, found: body.len() as u64 });
        }
        let number = |high, low| u64::from(u32_at(body, high)) << 32 | u64::from(u32_at(body, low));
        let taken_unix_us = (body.len() >= ODIN_TIME_END).then(|| number(ODIN_TIME_HIGH, ODIN_TIME_LOW));
        Ok(Odin {
            run: RunId(u32_at(body, ODIN_RUN)),
            event: EventId(number(ODIN_EVENT_HIGH, ODIN_EVENT_LOW)),
            taken_unix_us: taken_unix_us.filter(|taken| *taken > 0),
            body: range.start,
        })
    }
}

pub(crate) fn inspect(bytes: &[u8]) -> Result<EventInfo, Problem> {
    let header = Header::parse(bytes)?;
    if header.checksum != 0 {
        header.compare(checksum(&bytes[16..]))?;
    }
    let whole = header.compressed || header.mep;
    let (odin, fragments) = match banks::payload(bytes, &header)? {
        Payload::Plain => Odin::find(bytes, header.header_bytes)?,
        Payload::Inflated(payload) => Odin::find(&payload, 0).map_err(|problem| problem.in_payload(payload.len()))?,
        Payload::Unseen(unknown) => (Err(unknown), 0),
    };
    let run = match (header.run(bytes), &odin) {
        (Some(run), _) => run,
        (None, Ok(odin)) => odin.run,
        (None, Err(_)) => return Err(Problem::Run),
    };
    let taken_unix_us = odin.as_ref().ok().and_then(|odin| odin.taken_unix_us);
    Ok(EventInfo { run, event: odin.map(|odin| odin.event), fragments, whole, taken_unix_us })
}

pub(crate) fn renumber(bytes: &mut Vec<u8>, run: RunId, event: EventId) -> Result<(), RenumberError> {
    check_length(Format::Mdf, bytes)?;
    let header = Header::parse(bytes)?;
    if header.compressed || header.mep {
        inspect(bytes)?;
        return Ok(());
    }
    let (Ok(odin), _) = Odin::find(bytes, header.header_bytes)? else {
        inspect(bytes)?;
        return Ok(());
    };
    let mut renumbered = bytes.clone();
    if header.run(bytes).is_some() {
        put(&mut renumbered, 36, &run.0.to_le_bytes());
    }
    put(&mut renumbered, odin.body + ODIN_RUN, &run.0.to_le_bytes());
    put(&mut renumbered, odin.body + ODIN_EVENT_HIGH, &((event.0 >> 32) as u32).to_le_bytes());
    put(&mut renumbered, odin.body + ODIN_EVENT_LOW, &(event.0 as u32).to_le_bytes());
    if header.checksum != 0 {
        // The old one is compared first: a new one over damaged bytes would hide the damage.
        let (old, new) = checksum_both(&bytes[16..], &renumbered[16..]);
        header.compare(old)?;
        put(&mut renumbered, 12, &new.to_le_bytes());
    }
    *bytes = renumbered;
    Ok(())
}

/// Adapts the header of a record that lost some of its banks: the three sizes, the checksum.
pub(crate) fn remake_header(bytes: &mut [u8]) -> Result<(), Problem> {
    if bytes.len() < HEADER_BYTES_MIN {
        return Err(Problem::Truncated { expected: HEADER_BYTES_MIN as u64, found: bytes.len() as u64 });
    }
    let record_bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    for at in [0, 4, 8] {
        put(bytes, at, &record_bytes.to_le_bytes());
    }
    remake_checksum(bytes);
    Ok(())
}

/// 0 stays 0: it means that the record has no checksum.
fn remake_checksum(bytes: &mut [u8]) {
    if u32_at(bytes, 12) != 0 {
        let remade = checksum(&bytes[16..]);
        put(bytes, 12, &remade.to_le_bytes());
    }
}
