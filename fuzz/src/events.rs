//! What holds for files of events, of whatever format.

use std::hash::{DefaultHasher, Hash, Hasher};

use forebay_rawdata::{
    EVENT_BYTES_MAX, EventReader, Format, JoinError, RawEvent, SplitError, expected_pieces, frame_format, inspect,
    join, join_incomplete, renumber, sources, split, verify,
};
use forebay_types::{EventId, EventKey, RunId, SourceId};

use crate::bounded;

/// What inflating a payload may take: it says its size in 24 bits, and grows as it comes.
pub const INFLATED_BYTES_MAX: usize = 48 << 20;

/// Reads `file` to its end or to the first damage, and looks at each event.
pub fn check_file(format: Format, file: &[u8]) {
    let (mut events, mut is_damaged) = (Vec::new(), false);
    // The reader reserves up to a MiB for an event before its bytes have come.
    bounded(4 * file.len() + (2 << 20) + INFLATED_BYTES_MAX, || {
        let mut reader = EventReader::new(format, file);
        for event in reader.by_ref() {
            match event {
                Ok(event) => events.push(event),
                Err(_) => is_damaged = true,
            }
        }
        let read: usize = events.iter().map(|event| event.bytes.len()).sum();
        assert_eq!(reader.offset(), read as u64);
        assert!(reader.next().is_none(), "it ends for good");
    });
    let read = events.iter().map(|event| event.bytes.as_slice()).collect::<Vec<_>>().concat();
    assert_eq!(file[..read.len()], read, "events are the bytes of the file");
    assert!(is_damaged || read.len() == file.len(), "nothing is left out in silence");
    for event in &events {
        check_event(event);
    }
}

/// A number that depends on the bytes alone.
fn number_from(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

fn borrowed(pieces: &[forebay_rawdata::Piece]) -> Vec<(SourceId, &[u8])> {
    pieces.iter().map(|piece| (piece.source, piece.bytes.as_slice())).collect()
}

/// Looks at a whole event, which may be damaged.
pub fn check_event(event: &RawEvent) {
    let info = inspect(event.format, &event.bytes);
    let pieces = match split(event) {
        Ok(pieces) => pieces,
        Err(SplitError::ReservedSource { .. }) => return,
        Err(_) => {
            assert!(info.is_err(), "what is in order can be split");
            return;
        }
    };
    let mut given = borrowed(&pieces);
    assert_eq!(given[0].0, SourceId::EVENT_FRAME);
    assert_eq!(expected_pieces(given[0].1), Ok(given.len()));
    assert_eq!(frame_format(given[0].1), Ok(event.format));
    assert_eq!(sources(given[0].1), Ok(given[1..].iter().map(|piece| piece.0).collect()));
    given.reverse();
    assert_eq!(join(&given), Ok((event.format, event.bytes.clone())), "what was split joins byte for byte");
    let number = number_from(&event.bytes);
    without_one(event, &given, number);
    if info.is_ok() {
        renumbered(event, number);
    }
}

/// Without one of its sources an event is a well-formed event all the same, or it is said why not.
fn without_one(event: &RawEvent, given: &[(SourceId, &[u8])], number: u64) {
    // The frame is the last.
    let Some(missing) = number.checked_rem(given.len() as u64 - 1) else { return };
    let mut left = given.to_vec();
    let (source, _) = left.remove(missing as usize);
    assert_eq!(join(&left), Err(JoinError::Missing { sources: vec![source] }));
    match join_incomplete(&left) {
        Ok((format, bytes, sources)) => {
            assert_eq!((format, sources), (event.format, vec![source]));
            assert!(bytes.len() <= event.bytes.len());
            // An MDF event without its ODIN bank holds no number, and perhaps no run.
            if event.format == Format::Faser {
                assert!(inspect(format, &bytes).is_ok(), "what is left is well-formed");
            }
        }
        Err(error) => assert!(matches!(error, JoinError::Remainder { .. }), "{error}"),
    }
}

/// An event with another number holds that, unless its bytes cannot hold one, and is as it was with its own again.
fn renumbered(event: &RawEvent, number: u64) {
    let run = RunId(number as u32 % (event.format.run_max().0 / 2));
    let mut other = event.clone();
    renumber(&mut other, run, EventId(number)).expect("what is in order can be renumbered");
    let key = EventKey { run, event: EventId(number) };
    assert_eq!(other.key, key);
    assert_eq!(other.bytes.len(), event.bytes.len());
    assert!(other.bytes.len() as u64 <= EVENT_BYTES_MAX);
    if other.bytes != event.bytes {
        assert_eq!(verify(event.format, &other.bytes), Ok(key));
    }
}
