//! What is encoded decodes to the same, whatever the values.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::*;
use forebay_format::*;
use forebay_types::limits::{PIECE_BYTES_MAX, STREAMS_MAX};
use forebay_types::{DriveNumber, EventId, FileNumber, RunId, SourceId, StreamName, WallTime};
use proptest::prelude::*;

fn any_record(data_bytes: u32) -> impl Strategy<Value = TableEntry> {
    let place = (0..data_bytes / 8).prop_flat_map(move |units| (Just(units), 0..=data_bytes - units * 8));
    (
        prop::sample::select(RecordKind::ALL.to_vec()),
        any::<bool>(),
        any::<u16>(),
        any::<u32>(),
        any::<u64>(),
        any::<u32>(),
        any::<u32>(),
        place,
    )
        .prop_map(|(kind, flag, expected, run, event, source, crc, (offset_units, bytes))| {
            let entry = TableEntry {
                kind: if kind == RecordKind::Event && bytes < 28 { RecordKind::Fragment } else { kind },
                flags: u8::from(flag && kind != RecordKind::End),
                expected,
                run: RunId(run),
                event: EventId(event),
                // Of an event: as many fragments as its directory has room for.
                source: SourceId(if kind == RecordKind::Event && bytes >= 28 {
                    1 + source % ((bytes - 16) / 12)
                } else {
                    source
                }),
                bytes,
                crc,
                offset_units,
            };
            if kind.is_of_file() { of_file(entry, flag) } else { entry }
        })
}

/// A record of a file that is made of any other.
fn of_file(entry: TableEntry, flag: bool) -> TableEntry {
    let (start, bytes) = (u64::from(entry.source.0), entry.bytes.clamp(1, PIECE_BYTES_MAX as u32));
    let change = match entry.kind {
        RecordKind::Piece if entry.bytes == 0 => FileChange::Hole { start, bytes },
        RecordKind::Piece => FileChange::Piece { start, bytes, crc: entry.crc, appended: flag },
        RecordKind::Hole => FileChange::Hole { start, bytes },
        RecordKind::State => {
            FileChange::State { length: start, written_unix_ns: -i64::from(entry.crc) * 77, sealed: flag }
        }
        _ => FileChange::Sums { crc: entry.crc, adler32: entry.source.0 },
    };
    let record = FileRecord { file: FileNumber(entry.event.0), version: entry.run.0.max(1), change };
    TableEntry { offset_units: entry.offset_units, ..record.entry() }
}

/// Widths with the number of drives that are used.
fn any_width() -> impl Strategy<Value = (u8, u8)> {
    (1..=28u8, 0..=4u8)
}

fn any_id() -> impl Strategy<Value = SegmentId> {
    (any::<u32>(), any::<u32>(), any::<u64>()).prop_map(|(epoch, nonce, counter)| SegmentId { epoch, nonce, counter })
}

/// Any order of different names: the order is what gives the numbers.
fn any_streams() -> impl Strategy<Value = Vec<StreamName>> {
    let names = prop::collection::btree_set("[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}", 0..=STREAMS_MAX);
    names.prop_map(|names| names.iter().map(|name| stream(name)).collect::<Vec<_>>()).prop_shuffle()
}

/// Segments that share no slot: segment number `i` uses slot `i` on drives that start anywhere.
fn any_body() -> impl Strategy<Value = CheckpointBody> {
    let states = vec![SegmentState::Open, SegmentState::Closed, SegmentState::Walk];
    let fields =
        (any_width(), 1..=64u32, any::<u32>(), any::<u64>(), 0..224u16, prop::sample::select(states), any::<bool>());
    let segments = prop::collection::btree_map(any_id(), fields, 0..20);
    let ranges = prop::collection::vec((2..1u64 << 40, 1..1u64 << 20), 0..10);
    let finished = prop::collection::btree_map(any::<u32>(), (any::<bool>(), ranges), 0..5);
    let counters: BoxedStrategy<BTreeMap<u16, u64>> =
        prop::collection::btree_map(any::<u16>(), any::<u64>(), 0..10).boxed();
    let sets = prop::collection::btree_set((1..u64::MAX, any::<u64>(), any::<bool>()), 1..20);
    let decided = prop::collection::vec((1..1u64 << 40, 1..1u32 << 10, any::<u32>()), 0..10);
    let decided = (sets, prop::collection::btree_map(any::<u32>(), decided, 0..5));
    (any::<u64>(), any::<u64>(), segments, finished, any_streams(), counters, decided).prop_map(
        |(next_record_sequence, next_segment_counter, segments, finished, streams, counters, decided)| {
            let mut body = CheckpointBody { next_record_sequence, next_segment_counter, streams, ..Default::default() };
            for (
                slot,
                (id, ((data_shards, parity_shards), blocks, flushes, first_sequence, first_drive, state, planned)),
            ) in segments.into_iter().enumerate()
            {
                let width = u16::from(data_shards) + u16::from(parity_shards);
                let place = |number| ShardPlace { drive: DriveNumber(number), slot: slot as u32 };
                let shards = (first_drive..first_drive + width).map(place).collect();
                let unit_bytes = blocks * 4096;
                if planned {
                    body.planned.push(PlannedSegment { id, data_shards, parity_shards, unit_bytes, shards });
                } else {
                    body.live.push(SegmentEntry {
                        id,
                        state,
                        data_shards,
                        parity_shards,
                        unit_bytes,
                        flushes,
                        first_sequence,
                        shards,
                    });
                }
            }
            for (run, (closed, steps)) in finished {
                let mut start = 0;
                let mut ranges = Vec::new();
                for (gap, length) in steps {
                    start += gap;
                    ranges.push(OrdinalRange { start, length });
                    start += length;
                }
                body.finished.push(FinishedRun { run: RunId(run), closed, ranges });
            }
            let set = |(accepted, released, incomplete): (u64, u64, bool)| {
                // One stream at least has not released.
                let released = released & accepted & (accepted - 1);
                DecisionSet { accepted, released, incomplete }
            };
            body.decision_sets = decided.0.into_iter().map(set).collect();
            body.decision_sets.sort();
            body.decision_sets.dedup();
            for (run, steps) in decided.1 {
                let mut free = 0;
                let mut ranges = Vec::new();
                for (gap, length, set) in steps {
                    let set = set % body.decision_sets.len() as u32;
                    ranges.push(DecidedRange { first: free + gap - 1, length, set });
                    free += gap - 1 + u64::from(length);
                }
                body.decided.push(DecidedRun { run: RunId(run), ranges });
            }
            body.counters = counters.into_iter().collect();
            body
        },
    )
}

proptest! {
    #[test]
    fn table_entries(record in any_record(1 << 24)) {
        let mut bytes = [0xA5; TABLE_ENTRY_BYTES];
        record.encode_into(&mut bytes);
        prop_assert_eq!(TableEntry::decode(&bytes), Ok(record));
    }

    #[test]
    fn flush_headers(
        (data_shards, parity_shards) in any_width(),
        unit_blocks in 1..=16u32,
        data_bytes in 0..4u64 << 20,
        records in prop::collection::vec(any_record(8192), 0..40),
        numbers in (any::<u32>(), any::<u32>(), any::<u64>(), any::<u16>()),
        in_header in any::<bool>(),
    ) {
        let table = table_bytes(&records);
        let data_bytes = data_bytes.max(8192) + if in_header { 0 } else { table.len() as u64 };
        let mut header = flush(data_shards, parity_shards, unit_blocks * 4096, data_bytes);
        (header.flush, header.durable_flushes, header.first_sequence, header.lane) = numbers;
        header.first_sequence /= 2;
        header.shard = (header.flush % (u32::from(data_shards) + u32::from(parity_shards))) as u8;
        let (shards, rows) = (header.shard_count(), header.rows as usize);
        let flags = if in_header { FLUSH_INLINE_TABLE } else { 0 };
        if in_header && space_for_inline_table(header.header_bytes as usize, shards, rows) < table.len() {
            header.header_bytes += 4096;
        }
        let offset = if in_header { 0 } else { data_bytes - table.len() as u64 };
        let header = with_table(header, flags, offset, &table, &records);
        let mut bytes = encode(&header, in_header.then_some(&table[..]));
        bytes.extend([0xEE; 100]);
        let decoded = FlushHeader::decode(&bytes).expect("what was encoded");
        prop_assert_eq!(&decoded, &header);
        prop_assert_eq!(decoded.inline_table(&bytes), in_header.then_some(&table[..]));
        prop_assert_eq!(decoded.decode_table(&table), Ok(records));
        prop_assert_eq!(FlushHeader::peek_header_bytes(&bytes[..4096]), Ok(header.header_bytes as usize));
    }

    #[test]
    fn checkpoints(body in any_body()) {
        let bytes = encode_checkpoint(&checkpoint_header(), &body.encode());
        prop_assert_eq!(bytes.len(), encoded_checkpoint_bytes(body.encode().len()));
        let mut used = vec![0xA5; bytes.len()];
        encode_checkpoint_into(&checkpoint_header().with_body(&body.encode()), &body.encode(), &mut used);
        prop_assert!(used == bytes, "whatever was there before");
        let header = CheckpointHeader::decode(&bytes[..CHECKPOINT_HEADER_BYTES]).expect("what was encoded");
        prop_assert_eq!(CheckpointBody::decode(&header, &bytes[CHECKPOINT_HEADER_BYTES..]), Ok(body));
    }

    #[test]
    fn superblocks(
        numbers in prop::collection::btree_set(any::<u16>(), 1..=256),
        epochs in prop::collection::btree_set(0..1_000_000u64, 0..=32),
        values in (any::<u64>(), any::<u64>(), any::<u64>(), any::<bool>()),
    ) {
        let mut superblock = superblock();
        let template = superblock.drives[0];
        superblock.membership = 7;
        superblock.drives = numbers
            .iter()
            .map(|&number| DriveEntry { uuid: drive(number), number: DriveNumber(number), ..template })
            .collect();
        let own = superblock.drives[superblock.drives.len() / 2];
        (superblock.drive, superblock.number) = (own.uuid, own.number);
        (superblock.generation, superblock.nonce, superblock.created_unix_s, superblock.clean) = values;
        superblock.epoch = 1_000_000;
        let epochs: BTreeSet<u64> = epochs;
        superblock.history = epochs.iter().map(|&epoch| Start { epoch, nonce: epoch ^ 0x55 }).collect();
        prop_assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock));
    }

    #[test]
    fn segment_tables(flushes in prop::collection::vec(prop::collection::vec(any_record(1 << 16), 0..6), 0..12)) {
        let entry = |(number, records): (usize, &Vec<TableEntry>)| FlushEntry {
            flush: number as u32 * 2,
            offset_bytes: number as u64 * (1 << 20),
            header_bytes: 8192,
            data_bytes: 1 << 16,
            record_count: records.len() as u32,
            first_sequence: number as u64 * 1000,
        };
        let table = SegmentTable { flushes: flushes.iter().enumerate().map(entry).collect(), records: flushes.concat() };
        let bytes = table.encode();
        prop_assert_eq!(bytes.len(), SegmentTable::encoded_bytes(table.flushes.len(), table.records.len()));
        let decoded = SegmentTable::decode(&bytes).expect("what was encoded");
        prop_assert_eq!(decoded.check_in_slot(16 << 20, 4, 32 << 10), Ok(()));
        prop_assert_eq!(decoded, table);
    }

    #[test]
    fn directories_of_events(fragments in prop::collection::btree_map(any::<u32>(), (0..1u32 << 14, any::<u32>()), 1..300)) {
        let fragment = |(&source, &(bytes, crc)): (&u32, &(u32, u32))| EventFragment { source: SourceId(source), bytes, crc };
        let fragments: Vec<EventFragment> = fragments.iter().map(fragment).collect();
        let bytes = encode_event_directory(&fragments);
        prop_assert_eq!(bytes.len(), event_directory_bytes(fragments.len()));
        let record_bytes = bytes.len() as u64 + fragments.iter().map(|fragment| u64::from(fragment.bytes)).sum::<u64>();
        prop_assert_eq!(decode_event_directory(&bytes, record_bytes), Ok(fragments));
        prop_assert!(decode_event_directory(&bytes, record_bytes + 1).is_err());
        prop_assert!(decode_event_directory(&bytes[..bytes.len() - 1], record_bytes).is_err());
    }
}

#[test]
fn the_time_of_a_flush_is_for_people_alone() {
    let (header, table) = inline_flush();
    let bytes = encode(&header, Some(&table));
    let read = FlushHeader::decode(&bytes).expect("sound");
    assert_eq!(read.written, WallTime(0x0196_A1B2_C3D4));
    // What an older version wrote has zeros there: the time is not known, and all else counts as before.
    let mut old = bytes.clone();
    old[192..200].fill(0);
    seal(&mut old);
    let old = FlushHeader::decode(&old).expect("sound");
    assert_eq!((old.written.unix_ms(), old.digest), (None, read.digest));
    assert_eq!(FlushHeader { written: read.written, ..old }, read);
}
