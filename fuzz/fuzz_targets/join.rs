//! Fragments that are to become an event: any, and such as fit a frame but for what an input changes. An input is the fragments, each behind
//! its source and its length.
#![no_main]

use forebay_fuzz::events::{INFLATED_BYTES_MAX, check_event};
use forebay_fuzz::{Parts, bounded};
use forebay_rawdata::{
    FRAME_MAGIC, Format, RawEvent, expected_pieces, frame_format, inspect, join, join_incomplete, sources,
};
use forebay_types::SourceId;
use libfuzzer_sys::fuzz_target;

type Pieces<'a> = Vec<(SourceId, &'a [u8])>;

/// What names a source in an input.
fn source(number: u8) -> SourceId {
    if number == 0 { SourceId::EVENT_FRAME } else { SourceId(u32::from(number)) }
}

fn check(pieces: &[(SourceId, &[u8])]) {
    let held: usize = pieces.iter().map(|piece| piece.1.len() + 256).sum();
    let whole = bounded(4 * held + 4096, || join(pieces));
    let incomplete = bounded(8 * held + 4096 + INFLATED_BYTES_MAX, || join_incomplete(pieces));
    let event_bytes: usize =
        pieces.iter().filter(|piece| piece.0 != SourceId::EVENT_FRAME).map(|piece| piece.1.len()).sum();
    match whole {
        Ok((format, bytes)) => {
            assert!(bytes.len() >= event_bytes, "all of the sources is in the event");
            assert_eq!(incomplete, Ok((format, bytes.clone(), Vec::new())));
            check_event(&RawEvent { format, key: Default::default(), bytes });
        }
        Err(_) => {
            if let Ok((format, bytes, missing)) = incomplete {
                assert!(!missing.is_empty(), "what lacks nothing can be joined");
                // What a record without its ODIN bank holds of a run may be missing; its structure is in order.
                if format != Format::Mdf {
                    assert!(inspect(format, &bytes).is_ok());
                }
                check_event(&RawEvent { format, key: Default::default(), bytes });
            }
        }
    }
}

/// A frame of the first half of the input, and pieces as it says of the second.
fn fitting(input: &[u8]) {
    let mut parts = Parts::of(input);
    let (format, count, drops, reversed) = (parts.byte(), parts.byte() % 32, parts.byte(), parts.byte());
    let entries: Vec<(SourceId, u32)> =
        (0..count).map(|_| (source(parts.byte() % 8), u32::from(parts.byte()))).collect();
    let (mut loose, mut own) = (Vec::new(), vec![Vec::new(); 8]);
    for (source, length) in &mut entries.clone() {
        let bytes = parts.bytes(*length as usize);
        let piece = if *source == SourceId::EVENT_FRAME { &mut loose } else { &mut own[source.0 as usize] };
        piece.extend_from_slice(bytes);
        piece.resize(piece.len() + *length as usize - bytes.len(), 0xCB);
    }
    let mut frame = [&FRAME_MAGIC[..], &[1, 1 + format % 3, 16, 0], &u32::from(count).to_le_bytes(), &[0; 4]].concat();
    for (source, length) in &entries {
        frame.extend_from_slice(&source.0.to_le_bytes());
        frame.extend_from_slice(&length.to_le_bytes());
    }
    frame.extend_from_slice(&loose);
    assert_eq!(frame_format(&frame), Ok(Format::ALL[usize::from(format % 3)]));
    let named = sources(&frame).expect("a frame");
    assert_eq!(expected_pieces(&frame), Ok(named.len() + 1));
    let mut pieces: Pieces = vec![(SourceId::EVENT_FRAME, &frame)];
    pieces.extend(named.iter().map(|source| (*source, own[source.0 as usize].as_slice())));
    if reversed & 1 == 1 {
        pieces.reverse();
    }
    assert!(join(&pieces).is_ok(), "pieces as the frame says");
    check(&pieces);
    pieces.retain(|(source, _)| source.0 > 7 || drops >> source.0 & 1 == 0);
    check(&pieces);
}

fuzz_target!(|input: &[u8]| {
    let mut parts = Parts::of(input);
    let mut pieces = Pieces::new();
    while !parts.is_empty() && pieces.len() < 100 {
        let source = source(parts.byte());
        pieces.push((source, parts.piece()));
    }
    check(&pieces);
    for (_, bytes) in &pieces {
        let _ = (expected_pieces(bytes), sources(bytes), frame_format(bytes));
    }
    fitting(input);
});
