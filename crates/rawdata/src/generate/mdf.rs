//! MDF events: the banks of the simulated LHCb upgrade detector.

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use forebay_types::EventKey;

use super::fill;
use crate::banks::{BANK_HEADER_BYTES, BANK_MARKER, ZLIB_HEADER_BYTES, ZLIB_MARKER};
use crate::bytes::{put, put_u24};
use crate::mdf::{HEADER_BYTES_RUN, checksum};
use crate::random::Random;

/// The banks of one type. Lengths are those of recorded events, with the bank's header.
struct Boards {
    bank_type: u8,
    version: u8,
    first: u16,
    count: u16,
    /// Least, median, most.
    lengths: (usize, usize, usize),
}

const fn boards(bank_type: u8, version: u8, first: u16, count: u16, lengths: (usize, usize, usize)) -> Boards {
    Boards { bank_type, version, first, count, lengths }
}

const ODIN: u8 = 16;
const TRUTH: u8 = 32;
const TRUTH_LENGTH: usize = 64_520;

/// In the order of the event.
const DETECTOR: [Boards; 8] = [
    boards(9, 3, 1000, 350, (8, 28, 1320)),
    boards(13, 2, 0, 10, (20, 92, 592)),
    boards(ODIN, 6, 0, 1, (48, 48, 48)),
    boards(21, 2, 0, 28, (180, 292, 476)),
    boards(22, 2, 0, 8, (152, 256, 448)),
    boards(63, 2, 0, 208, (12, 48, 324)),
    boards(64, 5, 0, 240, (12, 40, 192)),
    boards(66, 3, 0, 180, (12, 32, 358)),
];

/// Follow in events that are not compressed, after one to four banks of simulated truth.
const MORE: [Boards; 2] = [boards(33, 1, 0, 1, (124, 236, 292)), boards(73, 3, 0, 208, (12, 40, 212))];

pub(super) fn event(random: &mut Random, key: EventKey, compressed: bool) -> Vec<u8> {
    let mut bytes = header(key, compressed);
    if compressed {
        let mut payload = Vec::new();
        detector(random, &mut payload, key);
        append_compressed(&mut bytes, &payload);
    } else {
        detector(random, &mut bytes, key);
        truth(random, &mut bytes);
        for boards in &MORE {
            all(random, &mut bytes, boards);
        }
    }
    let record_bytes = (bytes.len() as u32).to_le_bytes();
    for at in [0, 4, 8] {
        put(&mut bytes, at, &record_bytes);
    }
    let sum = checksum(&bytes[16..]);
    put(&mut bytes, 12, &sum.to_le_bytes());
    bytes
}

/// Version 3, seven sub-header words, banks, all bits of the trigger mask set.
fn header(key: EventKey, compressed: bool) -> Vec<u8> {
    let mut header = vec![0; HEADER_BYTES_RUN];
    header[16] = u8::from(compressed);
    header[17] = 0x37;
    header[18] = 1;
    header[20..36].fill(0xFF);
    put(&mut header, 36, &key.run.0.to_le_bytes());
    header
}

fn detector(random: &mut Random, bytes: &mut Vec<u8>, key: EventKey) {
    for boards in &DETECTOR {
        let start = bytes.len();
        all(random, bytes, boards);
        if boards.bank_type == ODIN {
            let body = &mut bytes[start + BANK_HEADER_BYTES..];
            body.fill(0);
            put(body, 0, &key.run.0.to_le_bytes());
            put(body, 12, &((key.event.0 >> 32) as u32).to_le_bytes());
            put(body, 16, &(key.event.0 as u32).to_le_bytes());
            put(body, 32, &0x88C2_0000u32.to_le_bytes());
        }
    }
}

fn all(random: &mut Random, bytes: &mut Vec<u8>, boards: &Boards) {
    let (least, median, most) = boards.lengths;
    for source_id in boards.first..boards.first + boards.count {
        let length = random.skewed(least, median, most);
        // Nine in ten of the recorded ones need no padding.
        let length = if random.below(10) == 0 { length } else { length - length % 4 };
        bank(random, bytes, (boards.bank_type, boards.version, source_id), length);
    }
}

/// A long record cut into banks: all full but the last.
fn truth(random: &mut Random, bytes: &mut Vec<u8>) {
    let count = 1 + random.below(4) as u16;
    for source_id in 0..count {
        let full = source_id + 1 < count;
        let length = if full { TRUTH_LENGTH } else { 512 + random.below(TRUTH_LENGTH as u64 - 512) as usize };
        bank(random, bytes, (TRUTH, 2, source_id), length);
    }
}

fn bank(random: &mut Random, bytes: &mut Vec<u8>, (bank_type, version, source_id): (u8, u8, u16), length: usize) {
    bytes.extend_from_slice(&BANK_MARKER.to_le_bytes());
    bytes.extend_from_slice(&(length as u16).to_le_bytes());
    bytes.extend_from_slice(&[bank_type, version]);
    bytes.extend_from_slice(&source_id.to_le_bytes());
    fill(random, bytes, length - BANK_HEADER_BYTES);
    bytes.resize(bytes.len() + length.next_multiple_of(4) - length, 0);
}

fn append_compressed(bytes: &mut Vec<u8>, payload: &[u8]) {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    let stream = encoder.write_all(payload).and_then(|()| encoder.finish());
    let stream = stream.expect("writing to memory does not fail");
    let mut header = [0; ZLIB_HEADER_BYTES];
    header[..3].copy_from_slice(&ZLIB_MARKER);
    put_u24(&mut header, 3, stream.len() as u32);
    put_u24(&mut header, 6, payload.len() as u32);
    bytes.extend_from_slice(&header);
    bytes.extend_from_slice(&stream);
}
