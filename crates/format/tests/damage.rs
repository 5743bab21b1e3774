//! Bytes that are damaged, or were never ours: always an error that says so, never a panic, never more
//! memory than a few times the bytes.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::*;
use forebay_format::*;
use forebay_types::{SourceId, crc32c};
use proptest::prelude::*;

/// Counts what this thread allocates.
struct Counting;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator with the same arguments; counting touches a
// thread-local number that needs no allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get() + layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System.alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Decodes `bytes` as everything; the results do not matter, that they come and what they cost does.
fn decode_as_everything(bytes: &[u8]) {
    let before = ALLOCATED.get();
    let _ = Superblock::decode(bytes);
    let _ = decode_event_directory(bytes, bytes.len() as u64);
    let _ = FlushHeader::peek_header_bytes(bytes);
    if let Ok(header) = FlushHeader::decode(bytes) {
        let table = header.inline_table(bytes).unwrap_or(bytes);
        let _ = header.decode_table(table);
        let _ = header.check_in_slot(17 << 20, 64 << 20);
    }
    if let Ok(header) = CheckpointHeader::decode(bytes) {
        let _ = CheckpointBody::decode(&header, &bytes[CHECKPOINT_HEADER_BYTES..]);
    }
    if let Ok(table) = SegmentTable::decode(bytes) {
        let _ = table.check_in_slot(64 << 20, 4, 32 << 10);
    }
    let allocated = ALLOCATED.get() - before;
    let limit = 8 * bytes.len() + (64 << 10);
    assert!(allocated <= limit, "{allocated} bytes allocated for {} bytes", bytes.len());
}

fn structures() -> Vec<(&'static str, Vec<u8>)> {
    let (inline, table) = inline_flush();
    vec![
        ("superblock", superblock().encode()),
        ("checkpoint", encode_checkpoint(&checkpoint_header(), &checkpoint_body().encode())),
        ("flush with table", encode(&inline, Some(&table))),
        ("flush 8+2", encode(&full_flush().0, None)),
        ("closing flush", encode(&closing_flush().0, None)),
    ]
}

/// Whether a structure of that name still decodes.
fn decodes(name: &str, bytes: &[u8]) -> bool {
    match name {
        "superblock" => Superblock::decode(bytes).is_ok(),
        "checkpoint" => CheckpointHeader::decode(bytes)
            .and_then(|header| CheckpointBody::decode(&header, &bytes[CHECKPOINT_HEADER_BYTES..]))
            .is_ok(),
        _ => FlushHeader::decode(bytes).is_ok(),
    }
}

#[test]
fn every_flipped_bit_of_a_header_is_noticed() {
    let body_bytes = checkpoint_body().encode().len();
    for (name, bytes) in structures() {
        let covered = if name == "checkpoint" { CHECKPOINT_HEADER_BYTES + body_bytes } else { bytes.len() };
        let mut damaged = bytes.clone();
        assert!(decodes(name, &damaged), "{name}");
        for bit in 0..covered * 8 {
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!decodes(name, &damaged), "{name}: bit {} of byte {}", bit % 8, bit / 8);
            damaged[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn every_torn_write_is_noticed() {
    let body_bytes = checkpoint_body().encode().len();
    for (name, bytes) in structures() {
        let covered = if name == "checkpoint" { CHECKPOINT_HEADER_BYTES + body_bytes } else { bytes.len() };
        for kept in 0..covered {
            assert!(!decodes(name, &bytes[..kept]), "{name}: the first {kept} bytes");
        }
        // The tail of an older structure, or of a new slot, behind the head of this one.
        let written = bytes.iter().rposition(|byte| *byte != 0).expect("not all zeros");
        for kept in (0..written).step_by(512) {
            let mut torn = bytes.clone();
            torn[kept..].fill(0);
            assert!(!decodes(name, &torn), "{name}: zeros from {kept}");
        }
    }
}

#[test]
fn the_wrong_structure_a_newer_version_and_unknown_flags_are_told_apart() {
    for (name, bytes) in structures() {
        let read = |bytes: &[u8]| match name {
            "superblock" => Superblock::decode(bytes).map(|_| ()),
            "checkpoint" => CheckpointHeader::decode(bytes).map(|_| ()),
            _ => FlushHeader::decode(bytes).map(|_| ()),
        };
        let header_bytes = u32::from_le_bytes([bytes[20], bytes[21], bytes[22], bytes[23]]) as usize;
        let zeros = vec![0; bytes.len()];
        assert!(matches!(read(&zeros), Err(FormatError::Magic { found: [0, ..], .. })), "{name}");
        let mut newer = bytes.clone();
        let version = FORMAT_VERSION + 1;
        newer[8..10].copy_from_slice(&version.to_le_bytes());
        let program = if name == "superblock" { superblock().program } else { ProgramVersion::default() };
        let refused = read(&newer).expect_err("no program of this version wrote it");
        assert!(matches!(refused, FormatError::Version { found, .. } if found == version), "{name}: {refused:?}");
        assert!(
            matches!(refused, FormatError::Version { program: told, .. } if told == program),
            "{name}: {refused:?}"
        );
        let mut flagged = bytes.clone();
        flagged[13] |= 0x80;
        seal(&mut flagged[..header_bytes]);
        assert!(matches!(read(&flagged), Err(FormatError::UnknownFlags { .. })), "{name}");
        let mut extended = bytes.clone();
        extended[15] |= 0x80;
        extended[10] = 0x55;
        seal(&mut extended[..header_bytes]);
        assert_eq!(read(&extended), Ok(()), "{name}: what may be ignored is");
    }
}

#[test]
fn what_a_lost_or_misplaced_write_leaves_is_seen_by_the_caller_s_checks() {
    let (header, _) = closing_flush();
    let slot_offset = (17 << 20) + 60 * (64 << 20);
    assert!(header.check_in_slot(slot_offset, 64 << 20).is_ok());
    assert!(header.check_in_slot(slot_offset + (64 << 20), 64 << 20).is_err());
    assert!(header.check_in_slot(slot_offset - (64 << 20), 64 << 20).is_err());
    let (header, _) = inline_flush();
    assert!(header.check_in_slot(17 << 20, 64 << 20).is_ok());
    assert!(header.check_in_slot(17 << 20, 11 << 12).is_ok());
    assert!(header.check_in_slot(17 << 20, 10 << 12).is_err());
    // Header or units that end beyond all numbers lie in no slot, however large that is said to be.
    let misplaced = FlushHeader { offset_bytes: !4095, ..header.clone() };
    assert!(misplaced.check_in_slot(0, u64::MAX).is_err());
    let offset_bytes = !4095 - u64::from(header.header_bytes);
    let misplaced = FlushHeader { offset_bytes, units_offset_bytes: !4095, ..header };
    assert!(misplaced.check_in_slot(0, u64::MAX).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..20_000)) {
        decode_as_everything(&bytes);
    }

    /// Damage under a right CRC, as a faulty program would write it.
    #[test]
    fn sealed_nonsense_never_panics(
        which in 0..5usize,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        near_start in any::<bool>(),
    ) {
        let (name, mut bytes) = structures().swap_remove(which);
        let reach = if near_start { 256 } else { bytes.len() };
        for (at, value) in changes {
            bytes[at.index(reach)] = value;
        }
        if name == "checkpoint" {
            let body_bytes = checkpoint_body().encode().len();
            let crc = forebay_types::crc32c(&bytes[CHECKPOINT_HEADER_BYTES..][..body_bytes]);
            bytes[88..92].copy_from_slice(&crc.to_le_bytes());
        }
        let header_bytes = if name == "superblock" { SUPERBLOCK_BYTES } else { 4096.min(bytes.len()) };
        seal(&mut bytes[..header_bytes]);
        decode_as_everything(&bytes);
    }

    /// A directory with any bytes under a CRC that is right.
    #[test]
    fn changed_directories_never_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        record_bytes in any::<u64>(),
        sealed in any::<bool>(),
    ) {
        let fragment = |source| EventFragment { source: SourceId(source), bytes: 100, crc: source };
        let mut bytes = encode_event_directory(&[1, 2, 3].map(fragment));
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if sealed {
            let crc = crc32c(&bytes[4..]);
            bytes[..4].copy_from_slice(&crc.to_le_bytes());
        }
        let right = decode_event_directory(&bytes, record_bytes);
        prop_assert!(right.is_err() || record_bytes <= 16 << 20);
        decode_as_everything(&bytes);
    }

    /// A table whose counts and entries are any: the CRC is in another place.
    #[test]
    fn changed_tables_never_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = segment_table().encode();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        decode_as_everything(&bytes);
        decode_as_everything(&bytes[..cut.index(bytes.len())]);
    }
}
