//! A whole event in one record: a directory of its fragments, then their bytes, one after the other.

use forebay_types::limits::FRAGMENT_BYTES_MAX;
use forebay_types::{SourceId, crc32c};

use crate::FormatError;
use crate::error::{ensure, within};
use crate::field::layout;

const WHAT: &str = "directory of an event";

layout!(
    /// Before the entries of a directory.
    event_directory, 16 {
        DIRECTORY_CRC: u32 = 0;
        FRAGMENT_COUNT: u32 = 4;
        ROOM: [u8; 8] = 8;
    }
);

layout!(
    /// One fragment of an event.
    event_fragment, 12 {
        SOURCE: u32 = 0;
        PAYLOAD_BYTES: u32 = 4;
        PAYLOAD_CRC: u32 = 8;
    }
);

/// One fragment of an event that lies in one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventFragment {
    /// Its source.
    pub source: SourceId,
    /// Its bytes.
    pub bytes: u32,
    /// CRC32C of its bytes.
    pub crc: u32,
}

/// Bytes of the directory of an event with so many fragments; the first fragment's bytes follow.
pub const fn event_directory_bytes(fragments: usize) -> usize {
    event_directory::BYTES + fragments * event_fragment::BYTES
}

/// The directory of an event. The bytes of the fragments are to follow in the same order, with nothing between them.
///
/// # Panics
/// When [`decode_event_directory`] would refuse the result.
pub fn encode_event_directory(fragments: &[EventFragment]) -> Vec<u8> {
    let mut bytes = vec![0; event_directory_bytes(fragments.len())];
    let (head, entries) = bytes.split_at_mut(event_directory::BYTES);
    event_directory::FRAGMENT_COUNT.put(head, fragments.len() as u32);
    for (entry, fragment) in entries.chunks_exact_mut(event_fragment::BYTES).zip(fragments) {
        event_fragment::SOURCE.put(entry, fragment.source.0);
        event_fragment::PAYLOAD_BYTES.put(entry, fragment.bytes);
        event_fragment::PAYLOAD_CRC.put(entry, fragment.crc);
    }
    let crc = crc32c(&bytes[4..]);
    event_directory::DIRECTORY_CRC.put(&mut bytes, crc);
    let data_bytes: u64 = fragments.iter().map(|fragment| u64::from(fragment.bytes)).sum();
    if let Err(error) = decode_event_directory(&bytes, bytes.len() as u64 + data_bytes) {
        panic!("a directory that could not be read must not be written: {error}");
    }
    bytes
}

/// Reads the directory at the beginning of an event's record, which has `record_bytes` bytes in all. `bytes` is exactly the directory.
///
/// # Errors
/// [`FormatError::Crc`] when it is damaged, [`FormatError::Inconsistent`] when it is not one of a record of this length,
/// [`FormatError::Limit`] for one that no store takes.
pub fn decode_event_directory(bytes: &[u8], record_bytes: u64) -> Result<Vec<EventFragment>, FormatError> {
    let count = bytes.len().saturating_sub(event_directory::BYTES) / event_fragment::BYTES;
    let length = event_directory_bytes(count);
    ensure(
        count >= 1 && bytes.len() == length,
        WHAT,
        "its length is that of its entries",
        bytes.len() as u64,
        length as u64,
    )?;
    let (expected, found) = (event_directory::DIRECTORY_CRC.get(bytes), crc32c(&bytes[4..]));
    if expected != found {
        return Err(FormatError::Crc { what: WHAT, expected, found });
    }
    let named = u64::from(event_directory::FRAGMENT_COUNT.get(bytes));
    ensure(named == count as u64, WHAT, "it counts its entries", named, count as u64)?;
    within("length of an event's record", record_bytes, FRAGMENT_BYTES_MAX as u64)?;
    let entry = |entry: &[u8]| EventFragment {
        source: SourceId(event_fragment::SOURCE.get(entry)),
        bytes: event_fragment::PAYLOAD_BYTES.get(entry),
        crc: event_fragment::PAYLOAD_CRC.get(entry),
    };
    let fragments: Vec<_> = bytes[event_directory::BYTES..].chunks_exact(event_fragment::BYTES).map(entry).collect();
    if let Some(pair) = fragments.windows(2).find(|pair| pair[0].source >= pair[1].source) {
        ensure(false, WHAT, "sources ascend", u64::from(pair[0].source.0), u64::from(pair[1].source.0))?;
    }
    let data_bytes: u64 = fragments.iter().map(|fragment| u64::from(fragment.bytes)).sum();
    let whole = length as u64 + data_bytes;
    ensure(whole == record_bytes, WHAT, "its fragments fill the record", whole, record_bytes)?;
    Ok(fragments)
}
