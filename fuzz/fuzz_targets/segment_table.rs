//! The table of a segment, and the entries of tables.
#![no_main]

use forebay_format::{RowGeometry, SegmentTable, TABLE_ENTRY_BYTES, TableEntry};
use forebay_fuzz::bounded;
use libfuzzer_sys::fuzz_target;

/// What recovery does with a table that lies in its slot: it finds each payload on the drives.
fn find_payloads(table: &SegmentTable, data_shards: u8, unit_bytes: u32) {
    let mut records = table.records.iter();
    for flush in &table.flushes {
        let geometry = RowGeometry { data_shards, unit_bytes, data_bytes: flush.data_bytes };
        for record in records.by_ref().take(flush.record_count as usize) {
            // A fragment of 16 MiB has 4096 pieces at most.
            let found: u64 = geometry.locate(record.payload_range()).map(|extent| extent.bytes as u64).sum();
            let bytes = if record.kind.has_payload() { record.bytes } else { 0 };
            assert_eq!(found, u64::from(bytes));
        }
    }
}

fuzz_target!(|input: &[u8]| {
    for entry in input.as_chunks::<TABLE_ENTRY_BYTES>().0 {
        if let Ok(record) = TableEntry::decode(entry) {
            let mut encoded = [0; TABLE_ENTRY_BYTES];
            record.encode_into(&mut encoded);
            assert_eq!(&encoded, entry, "an entry has no byte without a meaning");
        }
    }
    let Ok(table) = bounded(3 * input.len() + 4096, || SegmentTable::decode(input)) else { return };
    let encoded = table.encode();
    assert_eq!(encoded.len(), input.len());
    assert_eq!(SegmentTable::decode(&encoded), Ok(table.clone()));
    for (slot_bytes, data_shards, unit_bytes) in
        [(64 << 20, 4, 32 << 10), (8 << 20, 1, 4096), (u64::MAX, 32, 16 << 20), (1 << 40, 255, u32::MAX), (0, 0, 0)]
    {
        if table.check_in_slot(slot_bytes, data_shards, unit_bytes).is_ok() {
            find_payloads(&table, data_shards, unit_bytes);
        }
    }
});
