//! The checkpoint of a lane: an input is the fixed part of its header, then its body.
#![no_main]

use forebay_format::{
    CHECKPOINT_HEADER_BYTES, CheckpointBody, CheckpointHeader, encode_checkpoint, encoded_checkpoint_bytes,
};
use forebay_fuzz::{bounded, padded, put_u32, seal_header};
use forebay_types::crc32c;
use libfuzzer_sys::fuzz_target;

const FIXED_BYTES: usize = 128;
const BODY_BYTES_AT: usize = 80;
const BODY_CRC_AT: usize = 88;

fn check(bytes: &[u8]) {
    let Ok(header) = bounded(4096, || CheckpointHeader::decode(bytes)) else { return };
    let body = &bytes[CHECKPOINT_HEADER_BYTES..];
    // Entries are larger in memory than on drives, and so are the sets that look for what is there twice.
    let Ok(decoded) = bounded(12 * body.len() + (16 << 10), || CheckpointBody::decode(&header, body)) else { return };
    let encoded = encode_checkpoint(&header, &decoded.encode());
    let header_again = CheckpointHeader::decode(&encoded).expect("what was encoded");
    assert_eq!(encoded.len(), encoded_checkpoint_bytes(header_again.body_bytes as usize));
    assert_eq!(CheckpointBody::decode(&header_again, &encoded[CHECKPOINT_HEADER_BYTES..]), Ok(decoded));
    let same = CheckpointHeader { body_bytes: header.body_bytes, body_crc: header.body_crc, ..header_again };
    assert_eq!(same, header);
}

fuzz_target!(|input: &[u8]| {
    check(input);
    let (fixed, body) = input.split_at(input.len().min(FIXED_BYTES));
    let mut blocks = padded(fixed, CHECKPOINT_HEADER_BYTES);
    blocks[BODY_BYTES_AT..BODY_BYTES_AT + 8].copy_from_slice(&(body.len() as u64).to_le_bytes());
    put_u32(&mut blocks, BODY_CRC_AT, crc32c(body));
    seal_header(&mut blocks);
    blocks.extend_from_slice(body);
    check(&blocks);
});
