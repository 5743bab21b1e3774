//! Snapshots and journals of names: frames as they come, and with their sums put right; what is made of them answers, whatever it is.
#![no_main]

use forebay_fuzz::{Parts, bounded, padded, put_u32};
use forebay_names::{Loader, Names, Rename};
use forebay_types::{NewNode, NodeKind, SetAttributes, crc32c};
use libfuzzer_sys::fuzz_target;

/// Bytes of a frame before its parts.
const HEAD_BYTES: usize = 8;

/// Asks for everything, and changes something everywhere.
fn ask(mut names: Names) {
    let numbers: Vec<_> = names.numbers().collect();
    let file = NewNode { kind: NodeKind::File, mode: 0o644, owner: 0, group: 0, device: 0, target: Vec::new() };
    for (number, kind) in &numbers {
        assert_eq!(names.node(*number).expect("it is listed").found.kind, *kind);
        let _ = names.set(*number, SetAttributes::default(), 1);
        if *kind != NodeKind::Directory {
            continue;
        }
        for entry in names.list(*number, None, 100).expect("a directory").found {
            let (to_directory, from) = (numbers[0].0, &entry.name[..]);
            let rename = Rename { from_directory: *number, from, to_directory, to: b"x", replace: true };
            let _ = names.rename(rename, 2);
            let _ = names.remove(*number, &entry.name, 3);
            let _ = names.remove_directory(*number, &entry.name, 3);
        }
        let _ = names.make(*number, b"new", &file, 4);
    }
    let _ = names.begin_snapshot();
    while names.go_on_with_snapshot(1000) {}
    while names.next_output().is_some() {}
}

fuzz_target!(|input: &[u8]| {
    let mut parts = Parts::of(input);
    let lanes = u16::from(parts.byte() % 4) + 1;
    let raw = Parts::of(input).rest();
    bounded(64 * input.len() + (1 << 20), || {
        let mut loader = Loader::new(lanes);
        let _ = loader.read(raw);
        // Each piece as the body of a frame with a right sum.
        while !parts.is_empty() {
            let body = parts.piece();
            let mut frame = padded(&[], HEAD_BYTES);
            frame.extend_from_slice(body);
            put_u32(&mut frame, 0, body.len() as u32);
            put_u32(&mut frame, 4, crc32c(body));
            let _ = loader.read(&frame);
        }
        let is_whole = loader.is_whole();
        let (names, _losses) = loader.finish(u64::from(is_whole));
        ask(names);
    });
});
