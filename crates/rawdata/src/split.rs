//! An event becomes fragments.

use std::collections::HashMap;
use std::ops::Range;

use forebay_types::SourceId;

use crate::error::SplitError;
use crate::event::{Format, RawEvent, check_length};
use crate::frame::{self, Entry};
use crate::{besiii, faser, mdf};

/// One fragment of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its source.
    pub source: SourceId,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Splits an event into its fragments. The first is the frame ([`SourceId::EVENT_FRAME`]); the others
/// follow in the order in which their sources appear.
///
/// - FASER: a fragment with its header is a piece; the event header, and bytes after the last fragment,
///   are in the frame.
/// - MDF: a bank with its header and without its padding is a piece, under type << 16 | source id.
/// - BESIII: a ROB with all that it holds is a piece; the headers of the event, of sub-detectors and of ROSes are in the frame.
/// - Stretches of the same source form one piece, one after the other.
/// - A compressed event, and an MDF event that holds no banks (MEP), is one piece, the frame.
///
/// The checksum of an MDF event is not looked at again; [`crate::EventReader`] and [`crate::verify`] do.
///
/// # Errors
/// A damaged event, or one with a source `0xFFFFFFFF`.
pub fn split(event: &RawEvent) -> Result<Vec<Piece>, SplitError> {
    let bytes = &event.bytes;
    check_length(event.format, bytes)?;
    let mut cut = Cut { pieces: vec![Piece { source: SourceId::EVENT_FRAME, bytes: Vec::new() }], ..Cut::default() };
    let part = |source, range| cut.add(bytes, source, range);
    match event.format {
        Format::Faser => faser::walk(bytes, part)?,
        Format::Mdf => mdf::walk(bytes, part)?,
        Format::Besiii => besiii::walk(bytes, part)?,
    }
    if let Some(at) = cut.reserved_at {
        return Err(SplitError::ReservedSource { at });
    }
    let Cut { mut pieces, entries, loose, .. } = cut;
    pieces[0].bytes = frame::encode(event.format, &entries, &loose);
    Ok(pieces)
}

#[derive(Default)]
struct Cut {
    pieces: Vec<Piece>,
    places: HashMap<SourceId, usize>,
    entries: Vec<Entry>,
    loose: Vec<u8>,
    reserved_at: Option<u64>,
}

impl Cut {
    fn add(&mut self, event: &[u8], source: Option<SourceId>, range: Range<usize>) {
        let stretch = &event[range.clone()];
        let length = u32::try_from(stretch.len()).expect("an event has at most 512 MiB");
        self.entries.push(Entry { source: source.unwrap_or(SourceId::EVENT_FRAME), length });
        match source {
            None => self.loose.extend_from_slice(stretch),
            Some(SourceId::EVENT_FRAME) => {
                self.reserved_at.get_or_insert(range.start as u64);
            }
            Some(source) => {
                let new = self.pieces.len();
                let place = *self.places.entry(source).or_insert(new);
                if place == new {
                    self.pieces.push(Piece { source, bytes: stretch.to_vec() });
                } else {
                    self.pieces[place].bytes.extend_from_slice(stretch);
                }
            }
        }
    }
}
