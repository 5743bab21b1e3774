//! The directory of an event that lies in one record: with its CRC as it is, and with the right one.
#![no_main]

use forebay_format::{decode_event_directory, encode_event_directory, event_directory_bytes};
use forebay_fuzz::bounded;
use forebay_types::crc32c;
use libfuzzer_sys::fuzz_target;

fn check(bytes: &[u8], record_bytes: u64) {
    let Ok(fragments) = bounded(2 * bytes.len() + 4096, || decode_event_directory(bytes, record_bytes)) else { return };
    assert_eq!(bytes.len(), event_directory_bytes(fragments.len()));
    let data_bytes: u64 = fragments.iter().map(|fragment| u64::from(fragment.bytes)).sum();
    assert_eq!(bytes.len() as u64 + data_bytes, record_bytes, "each fragment lies in the record");
    assert_eq!(decode_event_directory(&encode_event_directory(&fragments), record_bytes), Ok(fragments));
}

fuzz_target!(|input: &[u8]| {
    let Some((record_bytes, directory)) = input.split_first_chunk() else { return };
    let record_bytes = u64::from(u32::from_le_bytes(*record_bytes));
    check(directory, record_bytes);
    if directory.len() >= 4 {
        let mut sealed = directory.to_vec();
        let crc = crc32c(&sealed[4..]);
        sealed[..4].copy_from_slice(&crc.to_le_bytes());
        check(&sealed, record_bytes);
    }
});
