//! FASER events: trigger logic board, tracker planes, digitizer.

use forebay_types::EventKey;

use super::fill;
use crate::bytes::put;
use crate::faser::{EVENT_MARKER, FRAGMENT_HEADER_BYTES, FRAGMENT_MARKER, HEADER_BYTES};
use crate::random::Random;

const TRIGGER: u32 = 0x0002_0000;
const TRACKER: u32 = 0x0003_0000;
const DIGITIZER: u32 = 0x0004_0000;

/// Tracker planes and their usual payload bytes; the last three came later.
const PLANES: [(u32, usize); 12] = [
    (0x0, 208),
    (0x1, 212),
    (0x2, 204),
    (0x3, 220),
    (0x4, 200),
    (0x5, 204),
    (0x6, 220),
    (0x7, 212),
    (0x8, 224),
    (0xB, 204),
    (0xC, 204),
    (0xD, 204),
];
const BUNCHES: u64 = 3564;
/// 2022-04-15, in microseconds since 1970: some time after which the events seem recorded.
const EPOCH_US: u64 = 1_650_000_000_000_000;
const EVENT_INTERVAL_US: u64 = 1_000;

pub(super) fn event(random: &mut Random, key: EventKey, extended: bool) -> Vec<u8> {
    let bunch = random.below(BUNCHES) as u16;
    let trigger_bits = 1u16 << random.below(5);
    let timestamp = EPOCH_US.wrapping_add(key.event.0.wrapping_mul(EVENT_INTERVAL_US));
    let planes = &PLANES[..if extended { 12 } else { 9 }];

    let mut bytes = vec![0; HEADER_BYTES];
    let mut fragment = |random: &mut Random, source: u32, length: usize, bits: u16| {
        let start = bytes.len();
        bytes.resize(start + FRAGMENT_HEADER_BYTES, 0);
        let header = &mut bytes[start..];
        header[0] = FRAGMENT_MARKER;
        put(header, 2, &bits.to_le_bytes());
        put(header, 4, &1u16.to_le_bytes());
        put(header, 6, &(FRAGMENT_HEADER_BYTES as u16).to_le_bytes());
        put(header, 8, &(length as u32).to_le_bytes());
        put(header, 12, &source.to_le_bytes());
        put(header, 16, &key.event.0.to_le_bytes());
        put(header, 24, &bunch.to_le_bytes());
        put(header, 28, &timestamp.wrapping_add(random.below(100_000)).to_le_bytes());
        fill(random, &mut bytes, length);
    };
    fragment(random, TRIGGER, 24, trigger_bits);
    for &(plane, usual) in planes {
        let length = random.skewed(0, 1, 25) * 4 + usual - 4;
        fragment(random, TRACKER | plane, length, 0);
    }
    fragment(random, DIGITIZER, if extended { 19_216 } else { 18_016 }, 0);

    let payload_bytes = (bytes.len() - HEADER_BYTES) as u32;
    bytes[0] = EVENT_MARKER;
    put(&mut bytes, 2, &trigger_bits.to_le_bytes());
    bytes[4] = 1;
    put(&mut bytes, 6, &(HEADER_BYTES as u16).to_le_bytes());
    put(&mut bytes, 8, &payload_bytes.to_le_bytes());
    bytes[12] = planes.len() as u8 + 2;
    put(&mut bytes, 13, &key.run.0.to_le_bytes()[..3]);
    put(&mut bytes, 16, &key.event.0.to_le_bytes());
    put(&mut bytes, 24, &key.event.0.to_le_bytes());
    put(&mut bytes, 32, &bunch.to_le_bytes());
    put(&mut bytes, 36, &timestamp.to_le_bytes());
    bytes
}
