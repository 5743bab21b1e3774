//! The table of a put, read before its payload is there.
//!
//! [`forebay_protocol::Put`] borrows a frame that has arrived whole. A server gives each fragment to the lane as soon as that one is
//! there, so it needs the table alone.

use forebay_protocol::{FrameError, Kind, PutEntry};
use forebay_types::FragmentId;
use forebay_types::limits::BATCH_RECORDS_MAX;

const ENTRY_BYTES: usize = 32;

/// Appends the entries of a put with `payload_bytes` of payload to `entries`.
pub(crate) fn read_put_table(
    table: &[u8],
    payload_bytes: usize,
    entries: &mut Vec<PutEntry>,
) -> Result<(), FrameError> {
    let message = Kind::Put.name();
    let Some((head, rest)) = table.split_first_chunk::<8>() else {
        return Err(FrameError::Truncated { message, wanted: 8, left: table.len() });
    };
    let count = u32_at(head, 0);
    if count as usize > BATCH_RECORDS_MAX {
        let max = BATCH_RECORDS_MAX;
        return Err(FrameError::TooMany { message, what: "fragments", count: u64::from(count), max });
    }
    let wanted = count as usize * ENTRY_BYTES;
    let Some(rest) = rest.get(..wanted) else {
        return Err(FrameError::Truncated { message, wanted, left: rest.len() });
    };
    entries.extend(rest.chunks_exact(ENTRY_BYTES).map(read_entry));
    let expected: u64 = entries.iter().map(|entry| u64::from(entry.bytes)).sum();
    if expected != payload_bytes as u64 {
        return Err(FrameError::PayloadLength { message, expected, found: payload_bytes });
    }
    Ok(())
}

fn read_entry(entry: &[u8]) -> PutEntry {
    let event = u64::from(u32_at(entry, 8)) | u64::from(u32_at(entry, 12)) << 32;
    PutEntry {
        id: FragmentId::new(u32_at(entry, 0), event, u32_at(entry, 4)),
        bytes: u32_at(entry, 16),
        crc: u32_at(entry, 20),
        expected: u16::from_le_bytes([entry[24], entry[25]]),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use forebay_protocol::{Put, put_table};
    use proptest::prelude::*;

    use super::*;

    fn entry() -> impl Strategy<Value = PutEntry> {
        (any::<(u32, u64, u32)>(), 0..1000u32, any::<(u32, u16)>()).prop_map(|((run, event, source), bytes, rest)| {
            PutEntry { id: FragmentId::new(run, event, source), bytes, crc: rest.0, expected: rest.1 }
        })
    }

    proptest! {
        /// What the protocol's own reader takes from a whole frame.
        #[test]
        fn reads_what_the_protocol_writes(entries in prop::collection::vec(entry(), 0..50), extension in 0..40usize) {
            let payload = vec![0; entries.iter().map(|entry| entry.bytes as usize).sum()];
            let mut table = put_table(&entries);
            table.resize(table.len() + extension, 0xEE);
            let mut read = Vec::new();
            prop_assert_eq!(read_put_table(&table, payload.len(), &mut read), Ok(()));
            prop_assert_eq!(&read, &entries);
            let whole = Put::decode(&table, &payload).expect("sound");
            prop_assert!(whole.table_entries().eq(read));
        }

        #[test]
        fn refuses_what_the_protocol_refuses(table in prop::collection::vec(any::<u8>(), 0..200), small in any::<bool>()) {
            let mut table = table;
            if small && table.len() >= 4 {
                table[1..4].fill(0);
            }
            let mut read = Vec::new();
            let ours = read_put_table(&table, 0, &mut read);
            prop_assert_eq!(ours.is_ok(), Put::decode(&table, &[]).is_ok());
        }
    }
}
