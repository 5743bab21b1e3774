//! The header of a flush, with its table: in the header, in the data, or that of a whole segment. An input is the header, up to where
//! the zeros begin, behind its length in two bytes; then the data.
#![no_main]

use forebay_format::{FLUSH_HEADER_BYTES_MAX, FlushHeader, FormatError, SegmentTable};
use forebay_fuzz::{Parts, bounded, padded, put_u32, seal_header};
use forebay_types::crc32c;
use libfuzzer_sys::fuzz_target;

/// Headers of fuzzed inputs are not longer; the decoder allows more.
const HEADER_BYTES_MAX: usize = 64 << 10;
const TABLE_BYTES_AT: usize = 136;
const TABLE_CRC_AT: usize = 140;
const DIGEST_AT: usize = 176;

fn decode(bytes: &[u8]) -> Result<FlushHeader, FormatError> {
    bounded(4 * bytes.len() + 4096, || FlushHeader::decode(bytes))
}

fn check(bytes: &[u8], table_in_data: &[u8]) -> Option<FormatError> {
    let header = match decode(bytes) {
        Ok(header) => header,
        Err(error) => return Some(error),
    };
    assert_eq!(FlushHeader::peek_header_bytes(bytes), Ok(header.header_bytes as usize));
    assert!(header.header_bytes as usize <= FLUSH_HEADER_BYTES_MAX);
    let inline = header.inline_table(bytes);
    assert_eq!(inline.is_some(), header.has_inline_table());
    let mut encoded = vec![0xA5; header.header_bytes as usize];
    header.encode_into(inline, &mut encoded);
    assert_eq!(decode(&encoded), Ok(header.clone()));
    let geometry = header.geometry();
    let units: u64 = (0..header.rows).map(|row| u64::from(geometry.unit_bytes_of_row(row))).sum();
    assert_eq!(units, geometry.shard_bytes());
    let begin = header.offset_bytes.saturating_sub(header.units_offset_bytes);
    for slot_bytes in [64 << 20, 0, u64::MAX] {
        for slot_offset in [begin, 17 << 20, 0] {
            let _ = header.check_in_slot(slot_offset, slot_bytes);
        }
    }
    let table = inline.unwrap_or(table_in_data);
    if header.is_closing() {
        if header.check_table_crc(table).is_ok()
            && let Ok(table) = bounded(3 * table.len() + 4096, || SegmentTable::decode(table))
        {
            let _ = table.check_in_slot(64 << 20, header.data_shards, header.unit_bytes);
        }
    } else if let Ok(records) = bounded(2 * table.len() + 4096, || header.decode_table(table)) {
        assert_eq!(records.len(), header.record_count as usize);
        for record in records {
            let found: u64 = geometry.locate(record.payload_range()).map(|extent| extent.bytes as u64).sum();
            let bytes = if record.kind.has_payload() { record.bytes } else { 0 };
            assert_eq!(found, u64::from(bytes));
        }
    }
    None
}

fuzz_target!(|input: &[u8]| {
    check(input, &[]);
    let mut parts = Parts::of(input);
    let header = parts.piece();
    let table = parts.rest();
    let Ok(length @ ..=HEADER_BYTES_MAX) = FlushHeader::peek_header_bytes(header) else { return };
    let mut header = padded(header, length);
    if table.len() == forebay_fuzz::u32_at(&header, TABLE_BYTES_AT) as usize {
        put_u32(&mut header, TABLE_CRC_AT, crc32c(table));
    }
    // What the error says that should be there is put there: the CRC of a table in the header, which the digest is computed over.
    for _ in 0..4 {
        seal_header(&mut header);
        match check(&header, table) {
            Some(FormatError::Digest { found, .. }) => {
                header[DIGEST_AT..DIGEST_AT + 16].copy_from_slice(&found.to_le_bytes())
            }
            Some(FormatError::Crc { what: "table of records", found, .. }) => put_u32(&mut header, TABLE_CRC_AT, found),
            _ => return,
        }
    }
});
