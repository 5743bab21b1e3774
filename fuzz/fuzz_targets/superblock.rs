//! The superblock, of which an input is the part that is not zero.
#![no_main]

use forebay_format::{FormatError, HISTORY_MAX, PLACES, SUPERBLOCK_BYTES, Superblock};
use forebay_fuzz::{bounded, padded, seal_header};
use forebay_types::limits::DRIVES_MAX;
use libfuzzer_sys::fuzz_target;

fn check(bytes: &[u8]) {
    let decoded: Result<Superblock, FormatError> = bounded(64 << 10, || Superblock::decode(bytes));
    let Ok(superblock) = decoded else { return };
    assert!(superblock.history.len() <= HISTORY_MAX && superblock.drives.len() <= DRIVES_MAX);
    let encoded = superblock.encode();
    assert_eq!(encoded.len(), SUPERBLOCK_BYTES);
    assert_eq!(Superblock::decode(&encoded), Ok(superblock.clone()));
    // Where things lie is computed from what was read: all of it lies on the drive.
    for drive in &superblock.drives {
        let layout = superblock.geometry.layout(drive.slots);
        for lane in 0..superblock.geometry.lanes {
            let end = layout.checkpoint_offset(lane, PLACES - 1).checked_add(superblock.geometry.checkpoint_bytes);
            assert!(end.is_some_and(|end| end <= drive.bytes), "a checkpoint lies on its drive");
        }
        if let Some(last) = drive.slots.checked_sub(1) {
            let end = layout.slot_offset(last).checked_add(superblock.geometry.slot_bytes);
            assert!(end.is_some_and(|end| end <= drive.bytes), "a slot lies on its drive");
        }
    }
}

fuzz_target!(|input: &[u8]| {
    check(input);
    let mut block = padded(input, SUPERBLOCK_BYTES);
    check(&block);
    seal_header(&mut block);
    check(&block);
});
