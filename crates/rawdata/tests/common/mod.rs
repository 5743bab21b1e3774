//! What the tests of this crate share.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::path::PathBuf;

use forebay_rawdata::{Container, EventReader, Format, Generator, InputError, Piece, RawEvent};
use forebay_types::{RunId, SourceId};
use proptest::prelude::*;

/// The recorded files: `FOREBAY_TESTDATA`, or `../shared/data` beside the workspace when it exists. Without them the test is skipped,
/// and says so, in CI too: no package brings them, and generated files have the same form. A directory that is named must be there.
pub fn test_data() -> Option<PathBuf> {
    let named = std::env::var_os("FOREBAY_TESTDATA").map(PathBuf::from);
    let beside = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data"));
    let directory = named.clone().unwrap_or(beside);
    if directory.is_dir() {
        return Some(directory);
    }
    assert!(named.is_none(), "FOREBAY_TESTDATA is {} and no directory", directory.display());
    println!("skipped: needs recorded files (set FOREBAY_TESTDATA)");
    None
}

pub fn read_all(format: Format, bytes: &[u8]) -> (Vec<RawEvent>, Option<InputError>) {
    let mut events = Vec::new();
    for event in EventReader::new(format, bytes) {
        match event {
            Ok(event) => events.push(event),
            Err(error) => return (events, Some(error)),
        }
    }
    (events, None)
}

pub fn borrowed(pieces: &[Piece]) -> Vec<(SourceId, &[u8])> {
    pieces.iter().map(|piece| (piece.source, piece.bytes.as_slice())).collect()
}

/// The kinds of events: FASER, MDF, MDF compressed, BESIII.
pub fn generators(seed: u64, run: u32) -> [Generator; 4] {
    [
        Generator::new(Format::Faser, seed, RunId(run)),
        Generator::new(Format::Mdf, seed, RunId(run)),
        Generator::new(Format::Mdf, seed, RunId(run)).compressed(true),
        Generator::new(Format::Besiii, seed, RunId(run)),
    ]
}

/// A fragment of a FASER event with a payload of its own length.
pub fn faser_fragment(source: u32, payload: &[u8]) -> Vec<u8> {
    let mut fragment = vec![0xAA, 0, 0, 0, 1, 0, 36, 0];
    fragment.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    fragment.extend_from_slice(&source.to_le_bytes());
    fragment.extend_from_slice(&[0; 20]);
    fragment.extend_from_slice(payload);
    fragment
}

/// A FASER event of run 5, number 77, with these fragments and then `rest`.
pub fn faser_event(fragments: &[Vec<u8>], rest: &[u8]) -> Vec<u8> {
    let payload = [fragments.concat(), rest.to_vec()].concat();
    let mut event = vec![0xBB, 0, 0, 0, 1, 0, 44, 0];
    event.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    event.push(fragments.len() as u8);
    event.extend_from_slice(&[5, 0, 0]);
    event.extend_from_slice(&77u64.to_le_bytes());
    event.extend_from_slice(&77u64.to_le_bytes());
    event.extend_from_slice(&[0; 12]);
    event.extend_from_slice(&payload);
    event
}

/// A bank with `padding` after it, whatever its length.
pub fn bank(bank_type: u8, version: u8, source_id: u16, body: &[u8], padding: &[u8]) -> Vec<u8> {
    let mut bank = vec![0xCB, 0xCB];
    bank.extend_from_slice(&(body.len() as u16 + 8).to_le_bytes());
    bank.extend_from_slice(&[bank_type, version]);
    bank.extend_from_slice(&source_id.to_le_bytes());
    bank.extend_from_slice(body);
    bank.extend_from_slice(padding);
    bank
}

/// An ODIN bank of run 5.
pub fn odin(version: u8, event: u64) -> Vec<u8> {
    let mut body = [0xEE; 40];
    body[..4].copy_from_slice(&5u32.to_le_bytes());
    body[12..16].copy_from_slice(&((event >> 32) as u32).to_le_bytes());
    body[16..20].copy_from_slice(&(event as u32).to_le_bytes());
    bank(16, version, 0, &body, &[])
}

/// An MDF record of run 5 with a header of this version and data type, this payload and no checksum.
pub fn mdf_event(header_version: u8, data_type: u8, payload: &[u8]) -> Vec<u8> {
    let mut event = vec![0; if header_version == 2 { 20 } else { 48 }];
    event[17] = header_version << 4 | if header_version == 2 { 0 } else { 7 };
    event[18] = data_type;
    if header_version != 2 {
        event[36..40].copy_from_slice(&5u32.to_le_bytes());
    }
    event.extend_from_slice(payload);
    let size = (event.len() as u32).to_le_bytes();
    for at in [0, 4, 8] {
        event[at..at + 4].copy_from_slice(&size);
    }
    event
}

/// Puts the right checksum into an MDF record.
pub fn seal(mut event: Vec<u8>) -> Vec<u8> {
    let sum = forebay_rawdata::mdf_checksum(&event[16..]);
    event[12..16].copy_from_slice(&sum.to_le_bytes());
    event
}

/// A file of these events, all of one format, as a writer of run 5 makes it.
pub fn file_of(format: Format, events: &[Vec<u8>]) -> Vec<u8> {
    write_file(&Container::new(format, RunId(5), 0), events)
}

/// A file of these events in this container.
pub fn write_file(container: &Container, events: &[Vec<u8>]) -> Vec<u8> {
    let mut file = container.head();
    for (sequence, event) in events.iter().enumerate() {
        file.extend(container.before_event(sequence as u64, event.len() as u64));
        file.extend(event);
    }
    let event_bytes = events.iter().map(|event| event.len() as u64).sum();
    file.extend(container.tail(events.len() as u64, event_bytes));
    assert_eq!(file.len() as u64, container.file_bytes(events.len() as u64, event_bytes));
    file
}

/// Words as bytes.
pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// An element of a BESIII event with these status and specific words.
pub fn besiii_element(marker: u32, source: u32, status: &[u32], specific: &[u32], body: &[u8]) -> Vec<u8> {
    let header_words = 7 + status.len() as u32 + specific.len() as u32;
    let size = header_words + body.len() as u32 / 4;
    let head = words(&[marker, size, header_words, 0x0300_0000, source, status.len() as u32]);
    let counted = [words(status), words(&[specific.len() as u32]), words(specific)].concat();
    [head, counted, body.to_vec()].concat()
}

/// A ROB without status words whose ROD has these words of data.
pub fn rob(source: u32, data: &[u32]) -> Vec<u8> {
    let head = words(&[0xee12_34ee, 9, 0x0301_0000, source, 0, 0, 0, 0, 0]);
    let tail = words(&[0x00ff_ffff, 1, data.len() as u32, 1]);
    besiii_element(0xdd12_34dd, source, &[], &[], &[head, words(data), tail].concat())
}

/// A BESIII event of run 5, number 77, with a sub-detector for each of `roses`, which holds a ROS with these ROBs.
pub fn besiii_event(roses: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let sub_detector = |(number, robs): (usize, &Vec<Vec<u8>>)| {
        let ros = besiii_element(0xcc12_34cc, number as u32, &[0], &[5, 77, 0], &robs.concat());
        besiii_element(0xbb12_34bb, number as u32, &[0, 0], &[], &ros)
    };
    let body: Vec<u8> = roses.iter().enumerate().flat_map(sub_detector).collect();
    besiii_element(0xaa12_34aa, 1, &[0], &[1_775_600_000, 77, 5, 77, 0], &body)
}

pub fn raw(format: Format, bytes: Vec<u8>) -> RawEvent {
    RawEvent { format, key: Default::default(), bytes }
}

/// Changes bytes, wherever the places lie, and cuts.
pub fn mutate(bytes: &mut Vec<u8>, changes: &[(usize, u8)], cut: Option<usize>) {
    for &(at, byte) in changes {
        let at = at % bytes.len();
        bytes[at] = byte;
    }
    if let Some(cut) = cut {
        bytes.truncate(cut % (bytes.len() + 1));
    }
}

/// Places and what is written there.
pub fn changes() -> impl Strategy<Value = Vec<(usize, u8)>> {
    let byte = prop_oneof![any::<u8>(), Just(0), Just(0xFF), Just(0xCB), Just(0xAA), Just(8)];
    prop::collection::vec((any::<usize>(), byte), 0..6)
}
