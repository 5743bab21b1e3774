//! The bytes of every structure as stores of this format hold them. A test that fails here means that
//! drives which exist could no longer be read, or that older programs would misread what is written.
//!
//! `FOREBAY_GOLDEN=write` writes the files anew; that is right only together with a new version number.
#![expect(clippy::disallowed_methods, reason = "the tests look at files")]

mod common;

use std::fmt::Write as _;
use std::path::PathBuf;

use common::*;
use forebay_format::*;
use forebay_types::SourceId;

/// Sixteen bytes a line behind their offset, lines of zeros left out, the length at the end.
fn drawn(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (line, chunk) in bytes.chunks(16).enumerate().filter(|(_, chunk)| chunk.iter().any(|byte| *byte != 0)) {
        write!(text, "{:08x} ", line * 16).expect("strings grow");
        for byte in chunk {
            write!(text, " {byte:02x}").expect("strings grow");
        }
        text.push('\n');
    }
    writeln!(text, "{} bytes", bytes.len()).expect("strings grow");
    text
}

/// The bytes that [`drawn`] drew.
fn read(text: &str) -> Vec<u8> {
    let (lines, length) = text.trim_end().rsplit_once('\n').expect("more than one line");
    let length = length.strip_suffix(" bytes").and_then(|length| length.parse().ok()).expect("a length");
    let mut bytes = vec![0; length];
    for line in lines.lines() {
        let (offset, values) = line.split_once("  ").expect("an offset and bytes");
        let offset = usize::from_str_radix(offset, 16).expect("an offset");
        for (byte, value) in bytes[offset..].iter_mut().zip(values.split(' ')) {
            *byte = u8::from_str_radix(value, 16).expect("a byte");
        }
    }
    bytes
}

/// Compares with the stored bytes and gives those back, to be decoded.
fn stored(name: &str, encoded: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata").join(format!("{name}.hex"));
    if std::env::var("FOREBAY_GOLDEN").as_deref() == Ok("write") {
        std::fs::write(&path, drawn(encoded)).expect("testdata can be written");
    }
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(drawn(encoded), text, "{name} is no longer what stores hold");
    read(&text)
}

#[test]
fn superblock_is_the_stored_one() {
    // Of each version: a program writes a store in the version that the store has.
    for (format_version, name) in [(1, "superblock"), (2, "superblock_version_2")] {
        let superblock = Superblock { format_version, ..superblock() };
        let bytes = stored(name, &superblock.encode());
        assert_eq!(Superblock::decode(&bytes), Ok(superblock));
    }
}

#[test]
fn checkpoint_is_the_stored_one() {
    let bytes = stored("checkpoint", &encode_checkpoint(&checkpoint_header(), &checkpoint_body().encode()));
    let header = CheckpointHeader::decode(&bytes).expect("a header");
    let expected = checkpoint_header();
    assert_eq!(CheckpointHeader { body_bytes: 0, body_crc: 0, ..header }, expected);
    let body = CheckpointBody::decode(&header, &bytes[CHECKPOINT_HEADER_BYTES..]);
    assert_eq!(body, Ok(checkpoint_body()));
}

#[test]
fn flush_header_with_its_table_is_the_stored_one() {
    let (header, table) = inline_flush();
    let bytes = stored("flush_inline_table", &encode(&header, Some(&table)));
    let decoded = FlushHeader::decode(&bytes).expect("a header");
    assert_eq!(decoded, header);
    assert_eq!(decoded.inline_table(&bytes), Some(&table[..]));
    assert_eq!(decoded.decode_table(&table), Ok(records(5, 1024)));
}

#[test]
fn flush_header_of_a_full_8_and_2_flush_is_the_stored_one() {
    let (header, table) = full_flush();
    assert_eq!(header.rows, 32);
    let bytes = stored("flush_8_and_2", &encode(&header, None));
    let decoded = FlushHeader::decode(&bytes).expect("a header");
    assert_eq!(decoded, header);
    assert_eq!(decoded.inline_table(&bytes), None);
    assert_eq!(decoded.decode_table(&table), Ok(records(800, 10 << 10)));
}

#[test]
fn closing_flush_is_the_stored_one() {
    let (header, table) = closing_flush();
    let bytes = stored("flush_closing", &encode(&header, None));
    let decoded = FlushHeader::decode(&bytes).expect("a header");
    assert_eq!(decoded, header);
    assert_eq!(decoded.check_table_crc(&table), Ok(()));
    assert_eq!(decoded.check_in_slot((17 << 20) + 60 * (64 << 20), 64 << 20), Ok(()));
}

#[test]
fn segment_table_is_the_stored_one() {
    let bytes = stored("segment_table", &segment_table().encode());
    assert_eq!(SegmentTable::decode(&bytes), Ok(segment_table()));
    assert_eq!(bytes.len(), SegmentTable::encoded_bytes(3, 5));
    let table = segment_table();
    assert_eq!(table.check_in_slot(64 << 20, 4, 32 << 10), Ok(()));
}

#[test]
fn directory_of_an_event_is_the_stored_one() {
    let fragment = |source| EventFragment { source: SourceId(source), bytes: source % 300, crc: 0xC0FF_EE00 ^ source };
    let fragments = [0, 7, 0x10_0000, u32::MAX].map(fragment);
    let bytes = stored("event_directory", &encode_event_directory(&fragments));
    let record_bytes = bytes.len() as u64 + fragments.iter().map(|fragment| u64::from(fragment.bytes)).sum::<u64>();
    assert_eq!(decode_event_directory(&bytes, record_bytes), Ok(fragments.to_vec()));
}
