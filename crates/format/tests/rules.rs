//! What a right CRC does not excuse: each rule that a structure must keep is checked when it is read,
//! and the error names the rule.

mod common;

use common::*;
use forebay_format::*;
use forebay_types::crc32c;

/// Bytes that replace others at an offset.
type Patch<'a> = &'a [(usize, &'a [u8])];

fn patched(bytes: &[u8], patch: Patch<'_>) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (at, value) in patch {
        bytes[*at..at + value.len()].copy_from_slice(value);
    }
    bytes
}

fn expect<T: std::fmt::Debug>(read: Result<T, FormatError>, words: &str) {
    let error = read.expect_err(words).to_string();
    assert!(error.contains(words), "{error:?} should say {words:?}");
}

#[test]
fn superblocks() {
    let bytes = superblock().encode();
    let drive_entry = |index: usize| 768 + 48 * index;
    let cases: [(Patch<'_>, &str); 23] = [
        (&[(58, &[2])], "mark of a clean stop is 2"),
        (&[(59, &[0])], "at least one data shard"),
        (&[(59, &[30]), (60, &[3])], "number of shards is 33"),
        (&[(61, &[0])], "fewest data shards"),
        (&[(61, &[5])], "fewest data shards"),
        (&[(62, &[0, 0])], "at least one lane"),
        (&[(62, &[65, 0])], "number of lanes is 65"),
        (&[(104, &4097u64.to_le_bytes())], "a slot is whole blocks"),
        (&[(112, &4096u64.to_le_bytes())], "a checkpoint's place is whole blocks"),
        (&[(120, &1000u32.to_le_bytes())], "a unit is whole blocks"),
        (&[(120, &0u32.to_le_bytes())], "a unit is whole blocks"),
        (&[(120, &(32u32 << 20).to_le_bytes())], "bytes of a unit"),
        (&[(124, &0u32.to_le_bytes())], "fragments may have bytes"),
        (&[(124, &u32::MAX.to_le_bytes())], "largest fragment"),
        (&[(128, &[33, 0])], "number of starts in the history is 33"),
        (&[(130, &[1, 1])], "number of drives is 257"),
        (&[(256, &[11])], "oldest first"),
        (&[(288, &[13])], "no start is newer"),
        (&[(296, &[0])], "one random number"),
        (&[(drive_entry(2) + 16, &[0, 0])], "each drive number is given once"),
        (&[(drive_entry(2) + 18, &[3])], "state of a drive is 3"),
        (&[(drive_entry(2) + 20, &u32::MAX.to_le_bytes())], "all slots of a drive lie on it"),
        (&[(drive_entry(2) + 24, &[8])], "no drive changed after"),
    ];
    for (patch, words) in cases {
        let mut bytes = patched(&bytes, patch);
        seal(&mut bytes);
        expect(Superblock::decode(&bytes), words);
    }
    // Checkpoints that end beyond all numbers lie on no drive, however large that is said to be and though it has no slots.
    let mut block = patched(&bytes, &[(112, &(1u64 << 63).to_le_bytes())]);
    for index in 0..5 {
        block[drive_entry(index) + 20..][..4].fill(0);
        block[drive_entry(index) + 32..][..8].fill(0xFF);
    }
    seal(&mut block);
    expect(Superblock::decode(&block), "all slots of a drive lie on it");
    let uuid = drive(1).to_bytes();
    let own: [(Patch<'_>, &str); 3] = [
        (&[(40, &[0; 16])], "the drive itself is in the list"),
        (&[(56, &[0, 0])], "the drive itself is in the list"),
        (&[(drive_entry(0), &uuid)], "each drive UUID is listed once"),
    ];
    for (patch, words) in own {
        let mut bytes = patched(&bytes, patch);
        seal(&mut bytes);
        expect(Superblock::decode(&bytes), words);
    }
}

#[test]
fn flush_headers() {
    let (header, table) = inline_flush();
    let inline = encode(&header, Some(&table));
    let full = encode(&full_flush().0, None);
    let closing = encode(&closing_flush().0, None);
    let cases: [(&[u8], Patch<'_>, &str); 21] = [
        (&inline, &[(20, &8192u32.to_le_bytes())], "needs 8192 bytes and 4096 are there"),
        (&inline, &[(20, &5000u32.to_le_bytes())], "length of a header is 5000"),
        (&inline, &[(20, &(2u32 << 20).to_le_bytes())], "length of a header is 2097152"),
        (&inline, &[(12, &[4])], "start the version of the program"),
        (&inline, &[(86, &[5])], "the shard is one of them"),
        (&inline, &[(87, &[0])], "at least one data shard"),
        (&inline, &[(88, &[200])], "number of shards is 204"),
        (&inline, &[(96, &[1])], "a unit is whole blocks"),
        (&inline, &[(100, &u32::MAX.to_le_bytes())], "rows of a flush"),
        (&inline, &[(100, &2u32.to_le_bytes())], "its rows hold its data"),
        (&inline, &[(104, &8192u32.to_le_bytes())], "the last row is as short"),
        (&inline, &[(108, &4u32.to_le_bytes())], "an entry for each record"),
        (&inline, &[(128, &[8])], "a table in the header has no place in the data"),
        (&inline, &[(136, &4000u32.to_le_bytes())], "needs 4316 bytes and 4096 are there"),
        (&inline, &[(144, &[0xFF; 8])], "sequences do not run over"),
        (&inline, &[(156, &[0; 4])], "runs go from the smallest"),
        (&inline, &[(168, &[0; 8])], "events go from the smallest"),
        (&inline, &[(256 + 12, &[0])], "no drive holds two shards"),
        (&full, &[(128, &u64::MAX.to_le_bytes())], "the table lies in the data"),
        (&full, &[(340, &[0x55])], "cannot be combined with others"),
        (&closing, &[(128, &[8])], "the data of a closing flush are its table"),
    ];
    for (bytes, patch, words) in cases {
        let mut bytes = patched(bytes, patch);
        seal(&mut bytes);
        expect(FlushHeader::decode(&bytes), words);
    }
    // The digest does not know the drive, the offset, the shard and what was durable.
    for patch in [&[(40, &[1][..])], &[(57, &[1][..])], &[(86, &[1][..])], &[(92, &[1][..])]] {
        let mut bytes = patched(&inline, patch);
        seal(&mut bytes);
        let other = FlushHeader::decode(&bytes).expect("fields that differ between shards");
        assert!(other != header && other.digest == header.digest);
    }
}

#[test]
fn tables_of_flushes() {
    let (header, table) = inline_flush();
    expect(header.decode_table(&table[..64]), "needs 160 bytes and 64 are there");
    let mut damaged = table.clone();
    damaged[3] ^= 1;
    expect(header.decode_table(&damaged), "its CRC32C should be");
    let record = |at: usize, value: &[u8]| {
        let bytes = patched(&table, &[(at, value)]);
        FlushHeader { table_crc: crc32c(&bytes), ..header.clone() }.decode_table(&bytes)
    };
    expect(record(32, &[12]), "a record of kind 12");
    // An event in one record: it has fragments, and room for their directory.
    expect(record(32, &[6]), "an event that is one record has fragments");
    let event = |fragments: u32| {
        let bytes = patched(&table, &[(32, &[6]), (32 + 16, &fragments.to_le_bytes())]);
        FlushHeader { table_crc: crc32c(&bytes), ..header.clone() }.decode_table(&bytes)
    };
    expect(event(1 << 20), "the directory of an event is in its record");
    expect(event(u32::MAX), "the directory of an event is in its record");
    assert_eq!(event(1).expect("there is room for one")[1].kind, RecordKind::Event);
    expect(record(32, &[0]), "a record of kind 0");
    expect(record(33, &[2]), "flags 0x2");
    expect(record(32 + 20, &(17u32 << 20).to_le_bytes()), "length of a record's payload");
    expect(record(32 + 28, &u32::MAX.to_le_bytes()), "a payload lies in the data of its flush");
}

#[test]
fn segment_tables() {
    let bytes = segment_table().encode();
    let record = 16 + 3 * 40;
    let cases: [(Patch<'_>, &str); 9] = [
        (&[(0, &[3])], "format version 3"),
        (&[(2, &[1])], "flags 0x1"),
        (&[(4, &[0xFF; 4])], "needs 171798691976 bytes"),
        (&[(8, &[0xFF; 4])], "needs 137438953576 bytes"),
        (&[(8, &[4])], "it ends after its last record"),
        (&[(16 + 32, &[2])], "each record belongs to a flush"),
        (&[(16 + 40 + 24, &[0])], "flushes are in their order"),
        (&[(16 + 36, &[1])], "flags 0x1"),
        (&[(record + 28, &[0xFF; 2])], "a payload lies in the data"),
    ];
    for (patch, words) in cases {
        expect(SegmentTable::decode(&patched(&bytes, patch)), words);
    }
    let table = segment_table();
    let with = |change: fn(&mut FlushEntry)| {
        let mut table = table.clone();
        change(&mut table.flushes[1]);
        table.check_in_slot(64 << 20, 4, 32 << 10)
    };
    expect(with(|flush| flush.offset_bytes += 1), "whole blocks at blocks");
    expect(with(|flush| flush.header_bytes = 0), "whole blocks at blocks");
    expect(with(|flush| flush.offset_bytes = 8192), "flushes do not overlap");
    expect(with(|flush| flush.data_bytes = u64::MAX), "flushes lie in their slot");
    expect(with(|flush| flush.offset_bytes = !4095), "flushes lie in their slot");
    expect(table.check_in_slot(3 << 20, 4, 32 << 10), "flushes lie in their slot");
    // More rows than there are numbers lie in no slot, however large that is said to be.
    let mut table = table;
    table.flushes[1].data_bytes = u64::MAX;
    expect(table.check_in_slot(u64::MAX, 4, 32 << 10), "flushes lie in their slot");
}

/// A section: kind, flags, count, bytes.
type Section<'a> = (u16, u16, u32, &'a [u8]);

/// Sections one after the other.
fn body(sections: &[Section<'_>]) -> Vec<u8> {
    let mut body = Vec::new();
    for (kind, flags, count, bytes) in sections {
        body.extend(kind.to_le_bytes());
        body.extend(flags.to_le_bytes());
        body.extend(count.to_le_bytes());
        body.extend((bytes.len() as u64).to_le_bytes());
        body.extend(*bytes);
    }
    body
}

fn read_body(body: &[u8]) -> Result<CheckpointBody, FormatError> {
    let blocks = encode_checkpoint(&checkpoint_header(), body);
    let header = CheckpointHeader::decode(&blocks)?;
    CheckpointBody::decode(&header, &blocks[CHECKPOINT_HEADER_BYTES..])
}

/// Every section that is needed, each without entries but the first.
const EMPTY: [Section<'_>; 8] = [
    (1, 0, 1, &[0; 16]),
    (2, 0, 0, &[]),
    (3, 0, 0, &[]),
    (4, 0, 0, &[]),
    (5, 0, 0, &[]),
    (6, 0, 0, &[]),
    (7, 0, 0, &[]),
    (8, 0, 0, &[]),
];

/// Reads [`EMPTY`] with another section at `index`.
fn with_section(index: usize, section: Section<'_>) -> Result<CheckpointBody, FormatError> {
    let mut sections = EMPTY;
    sections[index] = section;
    read_body(&body(&sections))
}

#[test]
fn sections_of_checkpoints() {
    let empty = EMPTY;
    assert_eq!(read_body(&body(&empty)), Ok(CheckpointBody::default()));
    let with = |more: Section<'_>| read_body(&[body(&empty), body(&[more])].concat());
    assert_eq!(with((77, 1, 9, b"what a later version adds")), Ok(CheckpointBody::default()));
    expect(with((77, 0, 0, &[])), "section of kind 77");
    expect(with((77, 2, 0, &[])), "flags 0x2");
    for section in empty {
        expect(with(section), "each section is there once");
    }
    for missing in 0..empty.len() {
        let others = [&empty[..missing], &empty[missing + 1..]].concat();
        expect(read_body(&body(&others)), "every section that is needed is there");
    }
    expect(read_body(&[body(&empty), vec![0; 7]].concat()), "needs 16 bytes and 7 are there");
    let only = with_section;
    expect(only(0, (1, 0, 2, &[0; 32])), "has one entry");
    expect(only(1, (2, 0, u32::MAX, &[0; 100])), "needs 171798691800 bytes and 100 are there");
    expect(only(3, (4, 0, 0, &[0])), "a section ends after its last entry");
    let run = |ranges: &[[u64; 2]]| {
        let mut bytes = [&7u32.to_le_bytes()[..], &[0; 4], &(ranges.len() as u32).to_le_bytes(), &[0; 4]].concat();
        bytes.extend(ranges.iter().flatten().flat_map(|number| number.to_le_bytes()));
        bytes
    };
    assert!(only(3, (4, 0, 1, &run(&[[0, 5], [6, 1]]))).is_ok());
    expect(only(3, (4, 0, 1, &run(&[[0, 5], [5, 1]]))), "do not touch");
    expect(only(3, (4, 0, 1, &run(&[[9, 1], [2, 1]]))), "ascending");
    expect(only(3, (4, 0, 1, &run(&[[9, 0]]))), "at least one ordinal");
    expect(only(3, (4, 0, 1, &run(&[[u64::MAX, 2]]))), "none above 2^64");
    expect(only(3, (4, 0, 2, &[run(&[]), run(&[])].concat())), "runs are ascending");
    let mut many = run(&[]);
    many[8..12].fill(0xFF);
    expect(only(3, (4, 0, 1, &many)), "needs 68719476720 bytes and 0 are there");
    expect(only(4, (5, 0, 2, &[0; 32])), "counters are ascending");
}

#[test]
fn segments_of_checkpoints() {
    let changed = |change: fn(&mut [u8])| {
        let mut bytes = checkpoint_body().encode();
        change(&mut bytes);
        read_body(&bytes)
    };
    // The first live segment begins behind the numbers and two heads of sections.
    const LIVE: usize = 16 + 16 + 16;
    const SECOND: usize = LIVE + 40 + 5 * 8;
    assert_eq!(changed(|_| ()), Ok(checkpoint_body()));
    expect(changed(|bytes| bytes[LIVE + 34] = 0), "state of a segment is 0");
    expect(changed(|bytes| bytes[LIVE + 35] = 1), "flags 0x1");
    expect(changed(|bytes| bytes[LIVE + 24] = 1), "a unit is whole blocks");
    expect(changed(|bytes| bytes[LIVE + 32] = 200), "number of shards is 201");
    expect(changed(|bytes| bytes[LIVE + 40 + 12] = 0), "no drive holds two shards");
    expect(changed(|bytes| bytes.copy_within(LIVE..LIVE + 16, SECOND)), "each segment is listed once");
    expect(changed(|bytes| bytes.copy_within(LIVE + 40..LIVE + 48, SECOND + 40)), "no slot belongs to two segments");
}

#[test]
fn streams_of_checkpoints() {
    let list = |count: u32, names: &[&[u8]]| {
        let mut bytes = Vec::new();
        for name in names {
            let mut entry = [0; 72];
            entry[0] = name.len() as u8;
            let kept = name.len().min(64);
            entry[8..8 + kept].copy_from_slice(&name[..kept]);
            bytes.extend(entry);
        }
        with_section(5, (6, 0, count, &bytes))
    };
    let names: Vec<String> = (0..65).map(|number| format!("stream-{number}")).collect();
    let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
    let read = list(64, &names[..64]).expect("as many as there are bits");
    assert_eq!(read.streams[63], stream("stream-63"));
    expect(list(65, &names), "number of streams is 65");
    expect(list(3, &[b"a", b"b", b"a"]), "each stream is listed once (numbers 2 and 0)");
    // The longest name fills its entry; one that reaches beyond it is none.
    assert_eq!(list(1, &[&[b'x'; 64]]).map(|body| body.streams), Ok(vec![stream(&"x".repeat(64))]));
    for wrong in [&[b'x'; 65][..], b"", b"../etc", b".hidden", b"a b", b"\xFF", b"end\0"] {
        expect(list(1, &[wrong]), "the name of a stream is 1 to 64 letters");
    }
    expect(list(2, &[b"physics"]), "needs 144 bytes and 72 are there");
    expect(list(1, &[b"a", b"b"]), "a section ends after its last entry");
    // What stands behind a name and in the room is not looked at.
    let mut untidy = [0xEE; 72];
    untidy[0] = 1;
    untidy[8] = b'a';
    assert_eq!(with_section(5, (6, 0, 1, &untidy)).map(|body| body.streams), Ok(vec![stream("a")]));
}

/// What could not be read again is never written.
#[test]
fn decisions_of_checkpoints() {
    let with = |change: fn(&mut CheckpointBody)| {
        let mut body = checkpoint_body();
        change(&mut body);
        std::panic::catch_unwind(move || body.encode()).map(|bytes| read_body(&bytes))
    };
    assert!(with(|_| ()).is_ok());
    assert!(with(|body| body.decision_sets[0].released = 0b101).is_err(), "nobody waits for the event");
    assert!(with(|body| body.decision_sets[0].released = 0b10).is_err(), "released by who does not want it");
    assert!(with(|body| body.decision_sets[1] = body.decision_sets[0]).is_err(), "a set twice");
    assert!(with(|body| body.decided[0].ranges[0].set = 2).is_err(), "no such set");
    assert!(with(|body| body.decided[0].ranges[0].length = 3).is_err(), "an event in two ranges");
    assert!(with(|body| body.decided[0].ranges[0].length = 0).is_err(), "a range of nothing");
    assert!(with(|body| body.decided[1].ranges[0].length = 3).is_err(), "beyond the last number");
    assert!(with(|body| body.decided[1].run = body.decided[0].run).is_err(), "a run twice");
    assert!(with(|body| body.decided[0].ranges[1].length = u32::MAX).is_err(), "more than memory is taken for");
    let many = |body: &mut CheckpointBody| {
        let set = |streams| DecisionSet { accepted: streams, released: 0, incomplete: false };
        body.decision_sets = (1..=257).map(set).collect();
    };
    assert!(with(many).is_err(), "more sets than there may be");
    expect(
        with_section(6, (7, 0, 1, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0])),
        "flags 0x2",
    );
}

#[test]
fn encoding_refuses_what_decoding_would() {
    fn refused(encode: impl FnOnce() + std::panic::UnwindSafe) -> bool {
        std::panic::catch_unwind(encode).is_err()
    }
    let mut clone = superblock();
    clone.drives[0].uuid = clone.drives[1].uuid;
    assert!(refused(move || drop(clone.encode())));
    for format_version in [FORMAT_VERSION_OLDEST - 1, FORMAT_VERSION + 1] {
        let unknown = Superblock { format_version, ..superblock() };
        assert!(refused(move || drop(unknown.encode())));
    }
    let mut touching = checkpoint_body();
    touching.finished[0].ranges[1].start = 10;
    assert!(refused(move || drop(touching.encode())));
    let mut twice = checkpoint_body();
    twice.streams.push(twice.streams[0].clone());
    assert!(refused(move || drop(twice.encode())));
    let mut many = checkpoint_body();
    many.streams = (0..65).map(|number| stream(&format!("stream-{number}"))).collect();
    assert!(refused(move || drop(many.encode())));
    let mut stale = inline_flush().0;
    stale.flush += 1;
    assert!(refused(move || drop(encode(&stale, Some(&inline_flush().1)))));
    assert!(refused(|| drop(encode(&inline_flush().0, None))));
    let mut overlong = segment_table();
    overlong.records.pop();
    assert!(refused(move || drop(overlong.encode())));
}

#[test]
fn stores_have_files_from_version_2_on() {
    let has_files = |format_version| Superblock { format_version, ..superblock() }.has_files();
    assert_eq!([1, 2].map(has_files), [false, true]);
}

#[test]
fn a_program_that_knows_less_is_told_who_wrote_a_superblock() {
    // As this program writes it, but for a version that it does not know itself.
    let mut bytes = superblock().encode();
    bytes[8] = FORMAT_VERSION as u8 + 1;
    let program = superblock().program;
    let found = FORMAT_VERSION + 1;
    assert_eq!(Superblock::decode(&bytes), Err(FormatError::Version { what: "superblock", found, program }));
}
