//! What holds for files of events, of whatever format.

use std::hash::{DefaultHasher, Hash, Hasher};

use forebay_rawdata::{
    Container, EVENT_BYTES_MAX, EventReader, Format, JoinError, RawEvent, SplitError, expected_pieces, frame_format,
    inspect, join, join_incomplete, renumber, sources, split, verify,
};
use forebay_types::{EventId, EventKey, RunId, SourceId};

use crate::bounded;

/// What inflating a payload may take: it says its size in 24 bits, and grows as it comes.
pub const INFLATED_BYTES_MAX: usize = 48 << 20;

/// Reads `file` to its end or to the first damage, and looks at each event.
pub fn check_file(format: Format, file: &[u8]) {
    let (mut events, mut starts, mut is_damaged) = (Vec::new(), Vec::new(), false);
    let mut container = None;
    // The reader reserves up to a MiB for an event before its bytes have come.
    bounded(4 * file.len() + (2 << 20) + INFLATED_BYTES_MAX, || {
        let mut reader = EventReader::new(format, file);
        while let Some(event) = reader.next() {
            match event {
                Ok(event) => {
                    starts.push(reader.offset() as usize - event.bytes.len());
                    events.push(event);
                }
                Err(error) => {
                    is_damaged = true;
                    assert_eq!(error.event_offset, reader.offset());
                }
            }
        }
        assert!(reader.offset() <= file.len() as u64);
        assert!(is_damaged || reader.offset() == file.len() as u64, "nothing is left out in silence");
        container = reader.container().cloned();
        assert!(reader.next().is_none(), "it ends for good");
    });
    let Some(container) = container else { return };
    let (mut sequence, mut event_bytes) = (0, 0);
    for (event, start) in events.iter().zip(starts) {
        assert!(file[start..].starts_with(&event.bytes), "events are the bytes of the file");
        assert_eq!(container.event_offset(sequence, event_bytes), start as u64, "it is known where each starts");
        sequence += 1;
        event_bytes += event.bytes.len() as u64;
        check_event(event);
    }
    assert!(file.starts_with(&container.head()), "what is before events can be written again");
    if !is_damaged && container == Container::Plain {
        assert_eq!(event_bytes, file.len() as u64);
    }
    if !is_damaged {
        assert_eq!(container.file_bytes(sequence, event_bytes), file.len() as u64);
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
            if event.format != Format::Mdf {
                assert!(inspect(format, &bytes).is_ok(), "what is left is well-formed");
            }
        }
        Err(error) => assert!(matches!(error, JoinError::Remainder { .. }), "{error}"),
    }
}

/// An event with another number holds that, unless its bytes cannot hold one, and is as it was with its own again.
fn renumbered(event: &RawEvent, number: u64) {
    let run = RunId(number as u32 % (event.format.run_max().0 / 2));
    let number = number % event.format.event_max().0;
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
