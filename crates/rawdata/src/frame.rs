//! The frame: the fragment of an event with source `0xFFFFFFFF`.
//!
//! It holds what is needed to put the event together from the other fragments, whatever its format: the
//! order and length of every stretch of the event, and the bytes of those that belong to no source.
//!
//! ```text
//!  0        4         5        6              8         12      16
//! +--------+---------+--------+--------------+---------+-------+-- entries x 8 --+-- the rest --+
//! | "FBEF" | version | format | header bytes | entries | flags | source | length | loose bytes  |
//! |        | u8, 1   | u8     | u16, 16      | u32     | u32, 0| u32    | u32    |              |
//! +--------+---------+--------+--------------+---------+-------+-----------------+--------------+
//! ```
//!
//! - format: 1 FASER, 2 MDF, 3 BESIII. Numbers are never given another meaning.
//! - header bytes: where the entries start; a reader skips what it does not know.
//! - flags: a reader refuses flags that it does not know.
//! - entries, in the order of the event: the next `length` bytes of the event are the next ones of
//!   `source`'s fragment; for source `0xFFFFFFFF`, the next loose bytes. Together they use up every
//!   fragment and all loose bytes exactly.
//!
//! A crash does nothing to a frame that it does not do to any other fragment: it is stored whole, with a
//! checksum, or not at all.

use std::collections::HashSet;

use forebay_types::SourceId;

use crate::EVENT_BYTES_MAX;
use crate::bytes::{u16_at, u32_at};
use crate::error::FrameError;
use crate::event::Format;

/// The first bytes of a frame.
pub const FRAME_MAGIC: [u8; 4] = *b"FBEF";
/// Bytes before the entries.
pub const FRAME_HEADER_BYTES: usize = 16;
/// Bytes of an entry.
pub const FRAME_ENTRY_BYTES: usize = 8;

const VERSION: u8 = 1;

/// A stretch of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Whose bytes; [`SourceId::EVENT_FRAME`] for loose ones.
    pub(crate) source: SourceId,
    pub(crate) length: u32,
}

impl Entry {
    pub(crate) fn is_loose(&self) -> bool {
        self.source == SourceId::EVENT_FRAME
    }
}

fn format_number(format: Format) -> u8 {
    match format {
        Format::Faser => 1,
        Format::Mdf => 2,
        Format::Besiii => 3,
    }
}

pub(crate) fn encode(format: Format, entries: &[Entry], loose: &[u8]) -> Vec<u8> {
    let count = u32::try_from(entries.len()).expect("an event of at most 512 MiB has fewer stretches");
    let mut frame = Vec::with_capacity(FRAME_HEADER_BYTES + entries.len() * FRAME_ENTRY_BYTES + loose.len());
    frame.extend_from_slice(&FRAME_MAGIC);
    frame.extend_from_slice(&[VERSION, format_number(format)]);
    frame.extend_from_slice(&(FRAME_HEADER_BYTES as u16).to_le_bytes());
    frame.extend_from_slice(&count.to_le_bytes());
    frame.extend_from_slice(&0u32.to_le_bytes());
    for entry in entries {
        frame.extend_from_slice(&entry.source.0.to_le_bytes());
        frame.extend_from_slice(&entry.length.to_le_bytes());
    }
    frame.extend_from_slice(loose);
    frame
}

/// A frame that was checked.
pub(crate) struct Frame<'a> {
    pub(crate) format: Format,
    entries: &'a [u8],
    pub(crate) loose: &'a [u8],
    /// Bytes of the whole event, at most [`EVENT_BYTES_MAX`].
    pub(crate) event_bytes: u64,
}

impl<'a> Frame<'a> {
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Frame<'a>, FrameError> {
        let found = bytes.len() as u64;
        if bytes.len() < FRAME_HEADER_BYTES {
            return Err(FrameError::Short { expected: FRAME_HEADER_BYTES as u64, found });
        }
        if bytes[..4] != FRAME_MAGIC {
            let found = [bytes[0], bytes[1], bytes[2], bytes[3]];
            return Err(FrameError::Magic { expected: FRAME_MAGIC, found });
        }
        let unknown = |what, expected, found| FrameError::Unknown { what, expected, found };
        if bytes[4] != VERSION {
            return Err(unknown("version", "1", bytes[4].into()));
        }
        let format = Format::ALL.into_iter().find(|format| format_number(*format) == bytes[5]);
        let format = format.ok_or_else(|| unknown("format", "1 to 3", bytes[5].into()))?;
        let flags = u32_at(bytes, 12);
        if flags != 0 {
            return Err(unknown("flags", "0", flags));
        }
        let start = usize::from(u16_at(bytes, 6));
        if start < FRAME_HEADER_BYTES {
            return Err(unknown("header bytes", "at least 16", start as u32));
        }
        let end = start as u64 + u64::from(u32_at(bytes, 8)) * FRAME_ENTRY_BYTES as u64;
        if end > found {
            return Err(FrameError::Short { expected: end, found });
        }
        let (entries, loose) = bytes[start..].split_at(end as usize - start);
        let frame = Frame { format, entries, loose, event_bytes: 0 };
        frame.sum_up()
    }

    fn sum_up(mut self) -> Result<Self, FrameError> {
        let mut loose_bytes = 0u64;
        for entry in self.entries() {
            self.event_bytes += u64::from(entry.length);
            loose_bytes += if entry.is_loose() { entry.length.into() } else { 0 };
        }
        if loose_bytes != self.loose.len() as u64 {
            return Err(FrameError::Loose { expected: loose_bytes, found: self.loose.len() as u64 });
        }
        if self.event_bytes > EVENT_BYTES_MAX {
            return Err(FrameError::TooLarge { found: self.event_bytes });
        }
        Ok(self)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> + use<'a> {
        self.entries
            .chunks_exact(FRAME_ENTRY_BYTES)
            .map(|entry| Entry { source: SourceId(u32_at(entry, 0)), length: u32_at(entry, 4) })
    }

    fn sources(&self) -> Vec<SourceId> {
        let mut seen = HashSet::new();
        self.entries().filter(|e| !e.is_loose() && seen.insert(e.source)).map(|e| e.source).collect()
    }
}

/// How many pieces the event of this frame has, the frame included.
///
/// # Errors
/// Bytes that are no frame.
pub fn expected_pieces(frame: &[u8]) -> Result<usize, FrameError> {
    Ok(Frame::decode(frame)?.sources().len() + 1)
}

/// Every source that this frame names, in the order of the event, without the frame itself.
///
/// # Errors
/// Bytes that are no frame.
pub fn sources(frame: &[u8]) -> Result<Vec<SourceId>, FrameError> {
    Ok(Frame::decode(frame)?.sources())
}

/// The format of the event of this frame.
///
/// # Errors
/// Bytes that are no frame.
pub fn frame_format(frame: &[u8]) -> Result<Format, FrameError> {
    Ok(Frame::decode(frame)?.format)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOSE: SourceId = SourceId::EVENT_FRAME;

    /// Owns the drawing above: frames that are stored must stay readable.
    #[test]
    fn the_bytes_are_the_drawn_ones() {
        let entries = [(LOOSE, 3), (SourceId(0x0010_0002), 9), (LOOSE, 1)];
        let entries = entries.map(|(source, length)| Entry { source, length });
        let frame = encode(Format::Mdf, &entries, &[0xA0, 0xA1, 0xA2, 0xB0]);
        #[rustfmt::skip]
        let drawn = [
            b'F', b'B', b'E', b'F', 1, 2, 16, 0, 3, 0, 0, 0, 0, 0, 0, 0,
            0xFF, 0xFF, 0xFF, 0xFF, 3, 0, 0, 0,
            0x02, 0x00, 0x10, 0x00, 9, 0, 0, 0,
            0xFF, 0xFF, 0xFF, 0xFF, 1, 0, 0, 0,
            0xA0, 0xA1, 0xA2, 0xB0,
        ];
        assert_eq!(frame, drawn);
        assert_eq!(expected_pieces(&drawn), Ok(2));
        assert_eq!(sources(&drawn), Ok(vec![SourceId(0x0010_0002)]));
        assert_eq!(frame_format(&drawn), Ok(Format::Mdf));
        assert_eq!([Format::Faser, Format::Besiii].map(|format| encode(format, &[], &[])[5]), [1, 3]);
    }

    #[test]
    fn a_longer_header_is_skipped() {
        let mut frame = encode(Format::Faser, &[Entry { source: SourceId(5), length: 7 }], &[]);
        frame[6] = 20;
        frame.splice(16..16, [1, 2, 3, 4]);
        assert_eq!(sources(&frame), Ok(vec![SourceId(5)]));
    }

    #[test]
    fn damaged_frames_say_what_was_expected() {
        let good = encode(Format::Faser, &[Entry { source: LOOSE, length: 2 }], &[1, 2]);
        let with = |at: usize, byte: u8| {
            let mut frame = good.clone();
            frame[at] = byte;
            expected_pieces(&frame).unwrap_err()
        };
        assert_eq!(with(0, 0), FrameError::Magic { expected: FRAME_MAGIC, found: [0, b'B', b'E', b'F'] });
        assert_eq!(with(4, 9), FrameError::Unknown { what: "version", expected: "1", found: 9 });
        assert_eq!(with(5, 4), FrameError::Unknown { what: "format", expected: "1 to 3", found: 4 });
        assert_eq!(with(6, 8), FrameError::Unknown { what: "header bytes", expected: "at least 16", found: 8 });
        assert_eq!(with(12, 1), FrameError::Unknown { what: "flags", expected: "0", found: 1 });
        assert_eq!(with(8, 200), FrameError::Short { expected: 1616, found: 26 });
        assert_eq!(with(20, 3), FrameError::Loose { expected: 3, found: 2 });
        assert_eq!(expected_pieces(&good[..25]), Err(FrameError::Loose { expected: 2, found: 1 }));
        assert_eq!(expected_pieces(&good[..9]), Err(FrameError::Short { expected: 16, found: 9 }));
        let huge = [1, 2].map(|source| Entry { source: SourceId(source), length: u32::MAX });
        let huge = encode(Format::Faser, &huge, &[]);
        assert_eq!(expected_pieces(&huge), Err(FrameError::TooLarge { found: 2 * u64::from(u32::MAX) }));
    }
}
