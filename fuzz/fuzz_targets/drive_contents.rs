//! What a path holds before a store is made on it: an input is the size, then pieces, each behind where it lies.
#![no_main]

use std::ops::ControlFlow;

use forebay_fuzz::{Parts, bounded, file_of};
use forebay_media::{Contents, inspect};
use libfuzzer_sys::fuzz_target;

/// Where file systems, arrays and partition tables have their marks, besides the first bytes.
const PLACES: [u64; 16] = [
    0, 512, 1024, 2048, 4096, 8192, 0x4000, 0x8000, 0x10000, 0x10034, 0x20000, 0x40000, 0x60000, 0x80000, 0xFF000,
    0xFF6,
];

fuzz_target!(|input: &[u8]| {
    let mut parts = Parts::of(input);
    // Up to some MiB: larger ones are read in the same way.
    let size = parts.u16();
    let bytes = u64::from(size >> 6) * 4096 + u64::from(size & 63);
    let mut pieces = Vec::new();
    while !parts.is_empty() && pieces.len() < 16 {
        let place = parts.byte();
        let at = PLACES[usize::from(place & 15)];
        // From the start, or from the end.
        let at = if place & 16 == 0 { at } else { bytes.saturating_sub(at) } + u64::from(place >> 5) * 8;
        let piece = parts.piece();
        let length = bytes.saturating_sub(at).min(piece.len() as u64);
        pieces.push((at, &piece[..length as usize]));
    }
    pieces.retain(|(_, piece)| !piece.is_empty());
    let path = file_of(&pieces, bytes);
    // Both ends, what is read at once, and as many zeros.
    let found = bounded(6 << 20, || inspect(&path, b"FOREBAY1", &mut |_, _| ControlFlow::Continue(())));
    let found = found.expect("the file can be read");
    assert_eq!(found.bytes, bytes);
    let is_zero = pieces.iter().all(|(_, piece)| piece.iter().all(|byte| *byte == 0));
    match found.contents {
        Contents::Missing => panic!("the file is there"),
        Contents::Empty => assert_eq!(bytes, 0),
        Contents::Zeroed => assert!(bytes > 0),
        Contents::ForebayDrive => assert!(!is_zero),
        Contents::Known { offset, .. } => assert!(offset < bytes && !is_zero),
        Contents::Unknown { first_nonzero_offset, .. } => assert!(first_nonzero_offset < bytes && !is_zero),
    }
});
