//! Files in the FASER format: read, split, joined, renumbered.
#![no_main]

use forebay_fuzz::events::{check_event, check_file};
use forebay_fuzz::{put_u32, u32_at};
use forebay_rawdata::{Format, RawEvent};
use libfuzzer_sys::fuzz_target;

const HEADER_BYTES: usize = 44;
const PAYLOAD_BYTES_AT: usize = 8;

fuzz_target!(|input: &[u8]| {
    let _ = Format::detect(input);
    check_file(Format::Faser, input);
    check_event(&RawEvent { format: Format::Faser, key: Default::default(), bytes: input.to_vec() });
    // One event that is as long as it says.
    if input.len() >= HEADER_BYTES {
        let mut event = input.to_vec();
        let header_bytes = usize::from(u32_at(input, 6) as u16);
        put_u32(&mut event, PAYLOAD_BYTES_AT, input.len().saturating_sub(header_bytes) as u32);
        check_file(Format::Faser, &event);
        check_event(&RawEvent { format: Format::Faser, key: Default::default(), bytes: event });
    }
});
