//! BESIII events: the read-out units of the recorded file, in their order.

use forebay_types::EventKey;

use super::fill;
use crate::besiii::{
    EVENT_MARKER, FORMAT, ROB_MARKER, ROD_HEADER_WORDS, ROD_MARKER, ROD_TRAILER_WORDS, ROS_MARKER, SUB_DETECTOR_MARKER,
};
use crate::bytes::put;
use crate::random::Random;

/// A ROS: its source, and its ROBs with the least, median and most words of data of each.
struct Ros {
    source: u32,
    robs: &'static [(u32, (usize, usize, usize))],
}

const fn ros(source: u32, robs: &'static [(u32, (usize, usize, usize))]) -> Ros {
    Ros { source, robs }
}

const DRIFT: (usize, usize, usize) = (1, 18, 240);
const FLIGHT: (usize, usize, usize) = (3, 11, 53);
const CALORIMETER: (usize, usize, usize) = (10, 31, 120);

/// Drift chamber, time of flight, calorimeter, muon chambers, trigger, zero-degree detector, run control, event filter.
const DETECTOR: [(u32, &[Ros]); 8] = [
    (
        0xA1_5001,
        &[
            ros(0xA1_0020, &[(0xA1_0000, DRIFT)]),
            ros(0xA1_0033, &[(0xA1_0013, DRIFT)]),
            ros(0xA1_0031, &[(0xA1_0011, DRIFT)]),
            ros(0xA1_0022, &[(0xA1_0002, DRIFT)]),
            ros(0xA1_0037, &[(0xA1_0017, DRIFT)]),
            ros(0xA1_0030, &[(0xA1_0010, DRIFT)]),
            ros(0xA1_0035, &[(0xA1_0015, DRIFT)]),
            ros(0xA1_0025, &[(0xA1_0005, DRIFT)]),
            ros(0xA1_0027, &[(0xA1_0007, DRIFT)]),
            ros(0xA1_0034, &[(0xA1_0014, DRIFT)]),
            ros(0xA1_0024, &[(0xA1_0004, DRIFT)]),
            ros(0xA1_0032, &[(0xA1_0012, DRIFT)]),
            ros(0xA1_0036, &[(0xA1_0016, DRIFT)]),
            ros(0xA1_0021, &[(0xA1_0001, DRIFT)]),
            ros(0xA1_0023, &[(0xA1_0003, DRIFT)]),
            ros(0xA1_0026, &[(0xA1_0006, DRIFT)]),
        ],
    ),
    (0xA2_5001, &[ros(0xA2_0040, &[(0xA2_0000, FLIGHT), (0xA2_0001, FLIGHT)])]),
    (
        0xA3_5001,
        &[
            ros(
                0xA3_0064,
                &[
                    (0xA3_0004, CALORIMETER),
                    (0xA3_0005, CALORIMETER),
                    (0xA3_0006, CALORIMETER),
                    (0xA3_0007, CALORIMETER),
                ],
            ),
            ros(
                0xA3_0074,
                &[
                    (0xA3_0014, CALORIMETER),
                    (0xA3_0015, CALORIMETER),
                    (0xA3_0016, CALORIMETER),
                    (0xA3_0017, CALORIMETER),
                ],
            ),
            ros(
                0xA3_0060,
                &[
                    (0xA3_0000, CALORIMETER),
                    (0xA3_0001, CALORIMETER),
                    (0xA3_0002, CALORIMETER),
                    (0xA3_0003, CALORIMETER),
                ],
            ),
            ros(
                0xA3_0070,
                &[
                    (0xA3_0010, CALORIMETER),
                    (0xA3_0011, CALORIMETER),
                    (0xA3_0012, CALORIMETER),
                    (0xA3_0013, CALORIMETER),
                ],
            ),
        ],
    ),
    (0xA4_5001, &[ros(0xA4_0080, &[(0xA4_0000, (10, 12, 30))])]),
    (
        0xA5_5001,
        &[ros(0xA5_00A0, &[(0xA5_0000, (14, 14, 14)), (0xA5_0001, (235, 235, 235)), (0xA5_0002, (76, 76, 76))])],
    ),
    (0xA7_5001, &[ros(0xA7_00E0, &[(0xA7_0000, (0, 4, 12)), (0xA7_0001, (0, 4, 32))])]),
    (0x7C_0000, &[ros(0x7C_0000, &[(0x7C_0000, (1, 20, 38))])]),
    (0xA8_0010, &[ros(0xA8_0010, &[(0xA8_0010, (138, 300, 460))])]),
];

/// 2026-04-08, in seconds since 1970: some time after which the events seem recorded.
const EPOCH_S: u32 = 1_775_600_000;
const EVENTS_PER_SECOND: u64 = 1000;

pub(super) fn event(random: &mut Random, key: EventKey) -> Vec<u8> {
    let (run, number) = (key.run.0, key.event.0 as u32);
    let time = EPOCH_S.wrapping_add((key.event.0 / EVENTS_PER_SECOND) as u32);
    let trigger = 1 << random.below(16);
    let mut bytes = Vec::new();
    let specific = [time, number, run, number, 0, 0, trigger, 0x33, 0x1_0000, random.next() as u32];
    let event = open(&mut bytes, EVENT_MARKER, 0x79_5001, &specific);
    for (source, roses) in &DETECTOR {
        // Those of the detector itself have a specific word.
        let specific: &[u32] = if *source & 0x5000 == 0 { &[] } else { &[0] };
        let sub_detector = open(&mut bytes, SUB_DETECTOR_MARKER, *source, specific);
        for ros in *roses {
            let start = open(&mut bytes, ROS_MARKER, ros.source, &[run, number, 0]);
            for &(source, (least, median, most)) in ros.robs {
                let words = random.skewed(least, median, most);
                rob(random, &mut bytes, source, number, words);
            }
            close(&mut bytes, start);
        }
        close(&mut bytes, sub_detector);
    }
    close(&mut bytes, event);
    bytes
}

/// Appends a header with one status word, 0; where it starts.
fn open(bytes: &mut Vec<u8>, marker: u32, source: u32, specific: &[u32]) -> usize {
    let start = bytes.len();
    let count = specific.len() as u32;
    words(bytes, &[marker, 0, 8 + count, FORMAT, source, 1, 0, count]);
    words(bytes, specific);
    start
}

fn close(bytes: &mut [u8], start: usize) {
    let size = ((bytes.len() - start) / 4) as u32;
    put(bytes, start + 4, &size.to_le_bytes());
}

/// In the ROD the run is 0, as in recorded events.
fn rob(random: &mut Random, bytes: &mut Vec<u8>, source: u32, number: u32, data_words: usize) {
    let start = open(bytes, ROB_MARKER, source, &[]);
    words(bytes, &[ROD_MARKER, ROD_HEADER_WORDS, FORMAT, source, 0, number, 0, 0, 0]);
    fill(random, bytes, data_words * 4);
    let trailer = [1, data_words as u32, 1];
    words(bytes, &[0xFF_FFFF]);
    words(bytes, &trailer[..ROD_TRAILER_WORDS as usize]);
    close(bytes, start);
}

fn words(into: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| into.extend_from_slice(&word.to_le_bytes()));
}
