//! FASER raw: an event header of 44 bytes, then fragments of a 36-byte header and a payload each.
//!
//! ```text
//! event     0 marker 0xBB u8 | 1 tag u8 | 2 trigger bits u16 | 4 version u8 | 5 compression u8
//!           6 header size u16 | 8 payload size u32 | 12 fragments u8 | 13 run u24 | 16 event id u64
//!          24 event counter u64 | 32 bc id u16 | 34 status u16 | 36 timestamp (us) u64
//! fragment  0 marker 0xAA u8 | 1 tag u8 | 2 trigger bits u16 | 4 version u16 | 6 header size u16
//!           8 payload size u32 | 12 source id u32 | 16 event id u64 | 24 bc id u16 | 26 status u16
//!          28 timestamp (us) u64
//! ```

use std::ops::Range;

use forebay_types::{EventId, RunId, SourceId};

use crate::bytes::{put, put_u24, u16_at, u24_at, u32_at, u64_at};
use crate::error::{Problem, RenumberError};
use crate::event::{EventInfo, Format, inspect_event};

pub(crate) const EVENT_MARKER: u8 = 0xBB;
pub(crate) const FRAGMENT_MARKER: u8 = 0xAA;
pub(crate) const HEADER_BYTES: usize = 44;
pub(crate) const FRAGMENT_HEADER_BYTES: usize = 36;
pub(crate) const RUN_MAX: u32 = 0x00FF_FFFF;

/// Bit of the event's status: the payload is compressed, so its fragments cannot be seen.
const TIMESTAMP_AT: usize = 36;
const STATUS_COMPRESSED: u16 = 1 << 11;
/// Bit of the event's status: a fragment that should be there is not.
const STATUS_MISSING_FRAGMENT: u16 = 1 << 7;

/// The header of an event.
pub(crate) struct Header {
    pub(crate) header_bytes: usize,
    pub(crate) payload_bytes: u32,
    fragments: u8,
    run: u32,
    event: u64,
    compressed: bool,
}

impl Header {
    /// Reads the header of the event that starts with `bytes`, at least [`HEADER_BYTES`] of them.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Header, Problem> {
        let marker = bytes[0];
        if marker != EVENT_MARKER {
            return Err(Problem::Marker { what: "event", at: 0, expected: EVENT_MARKER.into(), found: marker.into() });
        }
        if bytes[4] != 1 {
            return Err(Problem::Version { what: "event header", at: 4, expected: "1", found: bytes[4].into() });
        }
        let header_bytes = usize::from(u16_at(bytes, 6));
        if header_bytes < HEADER_BYTES {
            return Err(Problem::Short {
                what: "event header",
                at: 0,
                expected: HEADER_BYTES as u64,
                found: header_bytes as u64,
            });
        }
        Ok(Header {
            header_bytes,
            payload_bytes: u32_at(bytes, 8),
            fragments: bytes[12],
            run: u24_at(bytes, 13),
            event: u64_at(bytes, 16),
            compressed: u16_at(bytes, 34) & STATUS_COMPRESSED != 0,
        })
    }

    pub(crate) fn event_bytes(&self) -> u64 {
        self.header_bytes as u64 + u64::from(self.payload_bytes)
    }
}

/// Calls `part` for every stretch of a whole event in order: fragments with their source, the rest with
/// none.
pub(crate) fn walk(bytes: &[u8], mut part: impl FnMut(Option<SourceId>, Range<usize>)) -> Result<(), Problem> {
    let header = Header::parse(bytes)?;
    if header.compressed {
        part(None, 0..bytes.len());
        return Ok(());
    }
    part(None, 0..header.header_bytes);
    let mut at = header.header_bytes;
    for _ in 0..header.fragments {
        let end = fragment_end(bytes, at)?;
        part(Some(SourceId(u32_at(bytes, at + 12))), at..end);
        at = end;
    }
    if bytes.get(at) == Some(&FRAGMENT_MARKER) {
        return Err(Problem::FragmentCount { expected: header.fragments.into(), at: at as u64 });
    }
    if at < bytes.len() {
        part(None, at..bytes.len());
    }
    Ok(())
}

/// Where the fragment at `at` ends.
fn fragment_end(bytes: &[u8], at: usize) -> Result<usize, Problem> {
    let left = bytes.len() - at;
    let place = at as u64;
    if left < FRAGMENT_HEADER_BYTES {
        let expected = FRAGMENT_HEADER_BYTES as u64;
        return Err(Problem::Overrun { what: "fragment header", at: place, expected, found: left as u64 });
    }
    let marker = bytes[at];
    if marker != FRAGMENT_MARKER {
        let expected = FRAGMENT_MARKER.into();
        return Err(Problem::Marker { what: "fragment", at: place, expected, found: marker.into() });
    }
    // 0x0101 is a fragment whose payload is compressed; its header is the same.
    let version = u16_at(bytes, at + 4);
    if version != 0x0001 && version != 0x0101 {
        let expected = "1 or 0x101";
        return Err(Problem::Version { what: "fragment", at: place + 4, expected, found: version.into() });
    }
    let header_bytes = u64::from(u16_at(bytes, at + 6));
    if header_bytes < FRAGMENT_HEADER_BYTES as u64 {
        let expected = FRAGMENT_HEADER_BYTES as u64;
        return Err(Problem::Short { what: "fragment header", at: place, expected, found: header_bytes });
    }
    let needed = header_bytes + u64::from(u32_at(bytes, at + 8));
    if needed > left as u64 {
        return Err(Problem::Overrun { what: "fragment", at: place, expected: needed, found: left as u64 });
    }
    Ok(at + needed as usize)
}

pub(crate) fn inspect(bytes: &[u8]) -> Result<EventInfo, Problem> {
    let header = Header::parse(bytes)?;
    let mut fragments = 0;
    walk(bytes, |source, _| fragments += usize::from(source.is_some()))?;
    Ok(EventInfo {
        run: RunId(header.run),
        event: Ok(EventId(header.event)),
        fragments,
        whole: header.compressed,
        taken_unix_us: Some(u64_at(bytes, TIMESTAMP_AT)).filter(|taken| *taken > 0),
    })
}

pub(crate) fn renumber(bytes: &mut [u8], run: RunId, event: EventId) -> Result<(), RenumberError> {
    let whole = inspect_event(Format::Faser, bytes)?.whole;
    if whole {
        return Ok(());
    }
    if run.0 > RUN_MAX {
        return Err(RenumberError::RunTooLarge { run, format: Format::Faser, largest: RUN_MAX });
    }
    let mut starts = Vec::new();
    walk(bytes, |source, range| starts.extend(source.map(|_| range.start)))?;
    put_u24(bytes, 13, run.0);
    put(bytes, 16, &event.0.to_le_bytes());
    put(bytes, 24, &event.0.to_le_bytes());
    for start in starts {
        put(bytes, start + 16, &event.0.to_le_bytes());
    }
    Ok(())
}

/// Adapts the header of an event that lost some of its fragments: count, payload size, status.
pub(crate) fn remake_header(bytes: &mut [u8], fragments: usize) -> Result<(), Problem> {
    let found = bytes.len() as u64;
    if bytes.len() < HEADER_BYTES {
        return Err(Problem::Truncated { expected: HEADER_BYTES as u64, found });
    }
    let header_bytes = Header::parse(bytes)?.header_bytes as u64;
    let payload_bytes = u32::try_from(found.saturating_sub(header_bytes)).unwrap_or(u32::MAX);
    let status = u16_at(bytes, 34) | STATUS_MISSING_FRAGMENT;
    put(bytes, 8, &payload_bytes.to_le_bytes());
    bytes[12] = u8::try_from(fragments).unwrap_or(u8::MAX);
    put(bytes, 34, &status.to_le_bytes());
    Ok(())
}
