//! Files in the MDF format: read, split, joined, renumbered, their banks looked at; also with the payload compressed.
#![no_main]

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use forebay_fuzz::events::{INFLATED_BYTES_MAX, check_event, check_file};
use forebay_fuzz::{bounded, put_u32, u32_at};
use forebay_rawdata::banks::BankView;
use forebay_rawdata::{Format, RawEvent, mdf_checksum};
use libfuzzer_sys::fuzz_target;

const CHECKSUM_AT: usize = 12;
const CHECKED_FROM: usize = 16;
const HEADER_BYTES_MIN: usize = 20;
const HEADER_BYTES_RUN: usize = 48;

/// Sizes and checksum (unless it is 0) as they are to be.
fn seal(event: &mut [u8]) {
    for at in [0, 4, 8] {
        put_u32(event, at, event.len() as u32);
    }
    if u32_at(event, CHECKSUM_AT) != 0 {
        let sum = mdf_checksum(&event[CHECKED_FROM..]);
        put_u32(event, CHECKSUM_AT, sum);
    }
}

/// The event with its payload compressed.
fn compressed(event: &[u8]) -> Option<Vec<u8>> {
    let header_bytes = if event[17] >> 4 == 2 { HEADER_BYTES_MIN } else { HEADER_BYTES_RUN };
    let (header, payload) = event.split_at_checked(header_bytes)?;
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(payload).expect("memory takes all");
    let stream = encoder.finish().expect("memory takes all");
    let size = |bytes: usize| (bytes as u32).to_le_bytes();
    let mut event = [header, b"ZL\x08", &size(stream.len())[..3], &size(payload.len())[..3], &stream].concat();
    event[16] |= 1;
    seal(&mut event);
    Some(event)
}

fn check(bytes: &[u8]) {
    check_file(Format::Mdf, bytes);
    check_event(&RawEvent { format: Format::Mdf, key: Default::default(), bytes: bytes.to_vec() });
    if let Ok(view) = bounded(INFLATED_BYTES_MAX, || BankView::of(bytes)) {
        for bank in view.iter() {
            assert!(view.bytes().get(bank.body()).is_some(), "a bank lies in the payload");
        }
    }
}

fuzz_target!(|input: &[u8]| {
    check(input);
    if input.len() >= HEADER_BYTES_MIN {
        let mut event = input.to_vec();
        seal(&mut event);
        check(&event);
        if let Some(event) = compressed(&event) {
            check(&event);
        }
    }
});
