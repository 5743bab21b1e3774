//! Values that every test of the format knows.

#![allow(dead_code, reason = "each test binary uses some of them")]

use forebay_format::*;
use forebay_types::{DriveNumber, DriveUuid, EventId, RunId, SourceId, StoreUuid, StreamName, WallTime, crc32c};

pub const STORE: StoreUuid = StoreUuid::from_bytes(*b"the store's uuid");

pub fn drive(number: u16) -> DriveUuid {
    let mut bytes = *b"drive number ..!";
    bytes[13..15].copy_from_slice(&number.to_le_bytes());
    DriveUuid::from_bytes(bytes)
}

pub fn places(count: u16, slot: u32) -> Vec<ShardPlace> {
    (0..count).map(|number| ShardPlace { drive: DriveNumber(number), slot: slot + u32::from(number) }).collect()
}

pub fn superblock() -> Superblock {
    let geometry = Geometry {
        lanes: 2,
        data_shards: 4,
        parity_shards: 1,
        data_shards_min: 2,
        unit_bytes: 32 << 10,
        slot_bytes: 64 << 20,
        checkpoint_bytes: 4 << 20,
        fragment_bytes_max: 1 << 20,
    };
    let slots = |number: u16| 100 + u32::from(number);
    let entry = |number: u16| DriveEntry {
        uuid: drive(number),
        number: DriveNumber(number),
        state: if number == 3 { DriveState::Out } else { DriveState::Member },
        slots: slots(number),
        changed: if number == 3 { 7 } else { 1 },
        bytes: (17 << 20) + u64::from(slots(number)) * (64 << 20),
    };
    Superblock {
        format_version: FORMAT_VERSION,
        program: ProgramVersion { major: 1, minor: 23, patch: 456 },
        store: STORE,
        drive: drive(1),
        number: DriveNumber(1),
        generation: 0x0102_0304_0506_0708,
        membership: 7,
        epoch: 12,
        nonce: 0xA1A2_A3A4_A5A6_A7A8,
        clean: true,
        created_unix_s: 1_790_000_000,
        geometry,
        history: vec![
            Start { epoch: 3, nonce: 0x33 },
            Start { epoch: 11, nonce: 0xBB },
            Start { epoch: 12, nonce: 0xA1A2_A3A4_A5A6_A7A8 },
        ],
        drives: [0, 1, 2, 3, 9].map(entry).to_vec(),
    }
}

pub fn segment(counter: u64) -> SegmentId {
    SegmentId { epoch: 12, nonce: 0xA5A6_A7A8, counter }
}

pub fn stream(name: &str) -> StreamName {
    name.parse().expect("a name of a stream")
}

pub fn checkpoint_header() -> CheckpointHeader {
    CheckpointHeader {
        store: STORE,
        drive: drive(1),
        offset_bytes: (128 << 10) + 3 * (4 << 20),
        lane: 1,
        epoch: 12,
        sequence: 0x1122_3344_5566_7788,
        body_bytes: 0,
        body_crc: 0,
    }
}

pub fn checkpoint_body() -> CheckpointBody {
    let live = |counter: u64, state: SegmentState, data_shards: u8| SegmentEntry {
        id: segment(counter),
        state,
        data_shards,
        parity_shards: 1,
        unit_bytes: 32 << 10,
        flushes: 17 + counter as u32,
        first_sequence: 1_000_000 * counter,
        shards: places(u16::from(data_shards) + 1, 10 * counter as u32),
    };
    CheckpointBody {
        next_record_sequence: 0x0A0B_0C0D_0E0F_1011,
        next_segment_counter: 8,
        live: vec![live(1, SegmentState::Closed, 4), live(5, SegmentState::Walk, 3), live(6, SegmentState::Open, 4)],
        planned: vec![PlannedSegment {
            id: segment(7),
            data_shards: 4,
            parity_shards: 1,
            unit_bytes: 32 << 10,
            shards: places(5, 70),
        }],
        finished: vec![
            FinishedRun {
                run: RunId(1920),
                closed: true,
                ranges: vec![OrdinalRange { start: 0, length: 10 }, OrdinalRange { start: 12, length: 1 }],
            },
            FinishedRun { run: RunId(6525), closed: false, ranges: vec![OrdinalRange { start: u64::MAX, length: 1 }] },
        ],
        streams: vec![stream("physics"), stream("debug-2"), stream(&"x".repeat(64))],
        decision_sets: vec![
            DecisionSet { accepted: 0b101, released: 0b100, incomplete: false },
            DecisionSet { accepted: 1 << 63 | 1, released: 0, incomplete: true },
        ],
        decided: vec![
            DecidedRun {
                run: RunId(1920),
                ranges: vec![
                    DecidedRange { first: 10, length: 2, set: 1 },
                    DecidedRange { first: 12, length: 0x0001_0203, set: 0 },
                ],
            },
            DecidedRun { run: RunId(6525), ranges: vec![DecidedRange { first: u64::MAX - 1, length: 2, set: 0 }] },
        ],
        counters: vec![(1, 5), (7, u64::MAX)],
    }
}

pub fn records(count: u32, payload_bytes: u32) -> Vec<TableEntry> {
    // Those that the first stores had.
    let kind = |i: u32| RecordKind::ALL[i as usize % 5];
    let entry = |i: u32| TableEntry {
        kind: kind(i),
        flags: if kind(i) == RecordKind::Accept { RECORD_INCOMPLETE } else { 0 },
        expected: 11,
        run: RunId(1920 + i / 4),
        event: EventId(100 + u64::from(i)),
        source: if kind(i) == RecordKind::Fragment { SourceId(0x10_0000 + i) } else { SourceId(0) },
        bytes: payload_bytes - 3,
        crc: 0xC0FF_EE00 + i,
        offset_units: i * payload_bytes / 8,
    };
    (0..count).map(entry).collect()
}

pub fn table_bytes(records: &[TableEntry]) -> Vec<u8> {
    let mut bytes = vec![0; records.len() * TABLE_ENTRY_BYTES];
    for (record, entry) in records.iter().zip(bytes.as_chunks_mut().0) {
        record.encode_into(entry);
    }
    bytes
}

/// A header for `data_bytes` of data with everything filled in that can be derived.
pub fn flush(data_shards: u8, parity_shards: u8, unit_bytes: u32, data_bytes: u64) -> FlushHeader {
    let geometry = RowGeometry { data_shards, unit_bytes, data_bytes };
    let shards = u16::from(data_shards) + u16::from(parity_shards);
    let rows = geometry.rows();
    let header_bytes = header_bytes_for(usize::from(shards), rows as usize) as u32;
    let units = u32::from(shards) * rows;
    FlushHeader {
        flags: 0,
        header_bytes,
        store: STORE,
        drive: drive(2),
        offset_bytes: (17 << 20) + (9 << 12),
        lane: 1,
        segment: segment(6),
        flush: 3,
        shard: 2,
        data_shards,
        parity_shards,
        units_offset_bytes: (9 << 12) + u64::from(header_bytes),
        unit_bytes,
        rows,
        last_unit_bytes: geometry.last_unit_bytes(),
        data_bytes,
        table_offset_bytes: 0,
        table_bytes: 0,
        table_crc: 0,
        record_count: 0,
        run_min: RunId(0),
        run_max: RunId(0),
        event_min: EventId(0),
        event_max: EventId(0),
        first_sequence: 6_000_123,
        durable_flushes: 2,
        shards: places(shards, 60),
        unit_crcs: (0..units).map(|unit| unit.wrapping_mul(0x9E37_79B9)).collect(),
        written: WallTime(0x0196_A1B2_C3D4),
        digest: 0,
    }
}

/// Says of `header` what it holds, and seals it.
pub fn with_table(
    mut header: FlushHeader,
    flags: u32,
    offset_bytes: u64,
    table: &[u8],
    records: &[TableEntry],
) -> FlushHeader {
    header.flags = flags;
    header.table_offset_bytes = offset_bytes;
    header.table_bytes = table.len() as u32;
    header.table_crc = crc32c(table);
    header.record_count = records.len() as u32;
    header.run_min = records.iter().map(|record| record.run).min().unwrap_or_default();
    header.run_max = records.iter().map(|record| record.run).max().unwrap_or_default();
    header.event_min = records.iter().map(|record| record.event).min().unwrap_or_default();
    header.event_max = records.iter().map(|record| record.event).max().unwrap_or_default();
    header.digest = header.compute_digest();
    header
}

/// A small flush, 4+1, with its table in the header.
pub fn inline_flush() -> (FlushHeader, Vec<u8>) {
    let records = records(5, 1024);
    let table = table_bytes(&records);
    (with_table(flush(4, 1, 32 << 10, 5 * 1024), FLUSH_INLINE_TABLE, 0, &table, &records), table)
}

/// A full flush, 8+2, with its table at the end of its data.
pub fn full_flush() -> (FlushHeader, Vec<u8>) {
    let records = records(800, 10 << 10);
    let table = table_bytes(&records);
    let payload_bytes = 800 * (10 << 10);
    let header = flush(8, 2, 32 << 10, payload_bytes + table.len() as u64);
    (with_table(header, 0, payload_bytes, &table, &records), table)
}

pub fn segment_table() -> SegmentTable {
    let entry = |flush: u32, record_count: u32| FlushEntry {
        flush,
        offset_bytes: u64::from(flush) * (1 << 20),
        header_bytes: 4096,
        data_bytes: 64 << 10,
        record_count,
        first_sequence: 6_000_000 + 100 * u64::from(flush),
    };
    SegmentTable {
        flushes: vec![entry(0, 3), entry(1, 0), entry(3, 2)],
        records: [records(3, 1024), records(2, 1024)].concat(),
    }
}

/// The closing flush of a segment with slots of 64 MiB, at its place in slot 60.
pub fn closing_flush() -> (FlushHeader, Vec<u8>) {
    let table = segment_table();
    let bytes = table.encode();
    let mut header = flush(4, 1, 4096, bytes.len() as u64);
    header.flush = 4;
    header.units_offset_bytes = (64 << 20) - 2 * 4096;
    header.offset_bytes = (17 << 20) + 61 * (64 << 20) - 4096;
    (with_table(header, FLUSH_CLOSING, 0, &bytes, &table.records), bytes)
}

pub fn encode(header: &FlushHeader, table: Option<&[u8]>) -> Vec<u8> {
    let mut block = vec![0xA5; header.header_bytes as usize];
    header.encode_into(table, &mut block);
    block
}

/// Makes the CRC of a changed header right again, as a faulty program would.
pub fn seal(header: &mut [u8]) {
    header[16..20].fill(0);
    let crc = crc32c(header);
    header[16..20].copy_from_slice(&crc.to_le_bytes());
}
