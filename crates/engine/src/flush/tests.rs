//! What is written of a flush is what was added, and its sums and parity are of that.

use forebay_format::{SegmentId, TableEntry};
use forebay_types::limits::BLOCK_BYTES;
use forebay_types::{Adler32, DriveNumber, RunId};

use super::*;

const DATA: usize = 4;
const PARITY: usize = 2;
const UNIT: usize = 32 << 10;
const ROWS: usize = 9;

/// Numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.below(256) as u8).collect()
    }
}

fn flush(numbers: &mut Numbers) -> OpenFlush {
    let shards = (0..DATA + PARITY).map(|drive| ShardPlace { drive: DriveNumber(drive as u16), slot: 0 }).collect();
    let place = FlushPlace {
        store: StoreUuid::from_bytes([1; 16]),
        lane: 0,
        segment: SegmentId { epoch: 1, nonce: 2, counter: 3 },
        flush: 0,
        offset_bytes: 0,
        data_shards: DATA as u8,
        parity_shards: PARITY as u8,
        unit_bytes: UNIT as u32,
        multiple_bytes: BLOCK_BYTES,
        shards,
        first_sequence: 0,
    };
    let bytes = flush_buffer_bytes(DATA as u8, DATA + PARITY, UNIT as u32, ROWS * DATA * UNIT);
    let dirty = |_| {
        let mut buffer = AlignedBuffer::zeroed(bytes);
        buffer.fill(numbers.below(256) as u8);
        buffer
    };
    OpenFlush::new(place, (0..DATA + PARITY).map(dirty).collect())
}

fn record(source: u32, payload: &[u8], crc: u32) -> NewRecord {
    let (kind, run, event) = (RecordKind::Fragment, RunId(1), EventId(1));
    NewRecord { kind, flags: 0, expected: 0, run, event, source, crc, extra: payload.len() as u32 }
}

/// Lengths around those of parts, units and rows, and others.
fn length(numbers: &mut Numbers) -> usize {
    match numbers.below(4) {
        0 => 1 + numbers.below(300),
        1 => 1 + numbers.below(DATA * UNIT * 2),
        2 => [UNIT, UNIT / 2, DATA * UNIT, 3 * UNIT][numbers.below(4)],
        _ => [UNIT, DATA * UNIT][numbers.below(2)] + numbers.below(17) - 8,
    }
}

/// Adds records, some of which have other sums or are put half in their place, until there is no room, or earlier.
fn filled(numbers: &mut Numbers) -> (OpenFlush, Vec<Vec<u8>>, Adler32) {
    let (mut flush, mut added, mut adler32) = (flush(numbers), Vec::new(), Adler32::default());
    for _ in 0..1 + numbers.below(60) {
        let payload = {
            let count = length(numbers);
            numbers.bytes(count)
        };
        let entry = record(added.len() as u32, &payload, crc32c(&payload));
        if !flush.takes(RecordKind::Piece, payload.len()) {
            break;
        }
        let is_wrong = numbers.below(4) == 0;
        let entry = NewRecord { crc: entry.crc ^ u32::from(is_wrong), ..entry };
        let mut sum = adler32.clone();
        let (first, second) = payload.split_at(numbers.below(payload.len() + 1));
        let outcome = match numbers.below(2) {
            0 => flush.add(entry, &mut Payload::of(&[first, second]).summed_in(Some(&mut sum))),
            _ => {
                let mut rest = &payload[..];
                for part in flush.next_place(payload.len()) {
                    let (of_part, after) = rest.split_at(part.len());
                    part.copy_from_slice(of_part);
                    rest = after;
                }
                assert!(rest.is_empty(), "there is a place for all of it");
                flush.add(entry, &mut Payload::placed(payload.len()).summed_in(Some(&mut sum)))
            }
        };
        assert_eq!(outcome.is_err(), is_wrong, "{} bytes", payload.len());
        if outcome.is_ok() {
            adler32 = sum;
            added.push(payload);
        }
    }
    (flush, added, adler32)
}

/// That each unit has the sum that the header says, and that parity is that of the data.
fn check_units(sealed: &SealedFlush) {
    let header = FlushHeader::decode(&sealed.buffers[0][..sealed.header_bytes]).expect("it is a header");
    let rows = header.rows as usize;
    for row in 0..rows {
        let bytes = if row + 1 < rows { UNIT } else { header.last_unit_bytes as usize };
        let start = sealed.header_bytes + row * UNIT;
        let units: Vec<&[u8]> = sealed.buffers.iter().map(|buffer| &buffer[start..start + bytes]).collect();
        for (shard, unit) in units.iter().enumerate() {
            assert_eq!(header.unit_crcs[shard * rows + row], crc32c(unit), "row {row} of {rows}, shard {shard}");
        }
        let mut parity = vec![vec![0; bytes]; PARITY];
        let mut parity_of: Vec<&mut [u8]> = parity.iter_mut().map(|unit| &mut unit[..]).collect();
        codec(DATA as u8, PARITY as u8).encode(&units[..DATA], &mut parity_of);
        assert!(parity.iter().zip(&units[DATA..]).all(|(ours, unit)| ours == unit), "parity of row {row} of {rows}");
    }
}

#[test]
fn sums_and_parity_are_of_what_was_added() {
    for seed in 0..60 {
        let mut numbers = Numbers(seed);
        let (flush, added, adler32) = filled(&mut numbers);
        let sealed = flush.seal(0, WallTime(0), |_| (DriveUuid::default(), 0));
        check_units(&sealed);
        let entries: Vec<TableEntry> = sealed
            .table
            .chunks(TABLE_ENTRY_BYTES)
            .map(|bytes| TableEntry::decode(bytes.first_chunk().expect("an entry")).expect("it is one"))
            .collect();
        assert_eq!(entries.len(), added.len());
        let geometry =
            RowGeometry { data_shards: DATA as u8, unit_bytes: UNIT as u32, data_bytes: sealed.data_bytes as u64 };
        let mut expected = Adler32::default();
        for (entry, payload) in entries.iter().zip(&added) {
            assert!(sealed.payload(geometry, entry) == *payload, "seed {seed}, record {}", entry.source.0);
            expected.update(payload);
        }
        assert_eq!(adler32.finish(), expected.finish(), "seed {seed}");
    }
}
