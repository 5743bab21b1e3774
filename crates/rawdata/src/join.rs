//! Fragments become an event again.

use std::collections::{HashMap, HashSet};

use forebay_types::SourceId;

use crate::error::{JoinError, Problem};
use crate::event::{Format, inspect_event};
use crate::frame::{Entry, Frame};
use crate::{besiii, faser, mdf};

/// Puts an event together from all of its pieces, given in any order. The bytes are those that were
/// [`split`](crate::split()); their content is not checked again.
///
/// # Errors
/// No frame or a damaged one; a source that is missing, there twice, of another length than the frame
/// says, or not named by the frame.
pub fn join(pieces: &[(SourceId, &[u8])]) -> Result<(Format, Vec<u8>), JoinError> {
    let parts = Parts::check(pieces)?;
    if !parts.missing.is_empty() {
        return Err(JoinError::Missing { sources: parts.missing });
    }
    let (bytes, _) = parts.assemble();
    Ok((parts.frame.format, bytes))
}

/// Puts an event together without the sources whose pieces are missing, and names them. With none
/// missing the event is that of [`join`]. Otherwise it is a well-formed event of its format again:
///
/// - FASER: the missing fragments are left out; in the event header the number of fragments and the
///   payload size are adapted, and status bit 7 (a fragment is missing) is set.
/// - MDF: the missing banks and their padding are left out; the three record sizes are adapted, and the
///   checksum is remade unless it was 0. Without the ODIN bank the bytes hold no event number any more.
/// - BESIII: the missing ROBs are left out; the words of their ROSes, sub-detectors and the event are adapted, and the generic
///   status bit *timeout* (0x4) of the event is set.
///
/// An event without its frame cannot be put together at all.
///
/// # Errors
/// As [`join`], except that sources may be missing; [`JoinError::Remainder`] when what is left fails the
/// checks of its format.
pub fn join_incomplete(pieces: &[(SourceId, &[u8])]) -> Result<(Format, Vec<u8>, Vec<SourceId>), JoinError> {
    let parts = Parts::check(pieces)?;
    let format = parts.frame.format;
    let (mut bytes, fragments) = parts.assemble();
    if !parts.missing.is_empty() {
        let remade = match format {
            Format::Faser => faser::remake_header(&mut bytes, fragments),
            Format::Mdf => mdf::remake_header(&mut bytes),
            Format::Besiii => besiii::remake_headers(&mut bytes),
        };
        // An MDF event that took its run from the bank that is missing is well-formed all the same.
        match remade.and_then(|()| inspect_event(format, &bytes)) {
            Ok(_) | Err(Problem::Run) => {}
            Err(problem) => return Err(JoinError::Remainder { format, problem }),
        }
    }
    Ok((format, bytes, parts.missing))
}

/// The pieces of an event, checked against its frame.
struct Parts<'a> {
    frame: Frame<'a>,
    pieces: HashMap<SourceId, &'a [u8]>,
    /// In the order of the event.
    missing: Vec<SourceId>,
}

impl<'a> Parts<'a> {
    fn check(given: &[(SourceId, &'a [u8])]) -> Result<Parts<'a>, JoinError> {
        let mut pieces = HashMap::with_capacity(given.len());
        for &(source_id, bytes) in given {
            if pieces.insert(source_id, bytes).is_some() {
                return Err(JoinError::Duplicate { source_id });
            }
        }
        let frame = pieces.remove(&SourceId::EVENT_FRAME).ok_or(JoinError::NoFrame { pieces: given.len() })?;
        let frame = Frame::decode(frame)?;

        let mut lengths: HashMap<SourceId, u64> = HashMap::with_capacity(given.len());
        let mut missing = Vec::new();
        for entry in frame.entries().filter(|entry| !entry.is_loose()) {
            let length = lengths.entry(entry.source).or_insert_with(|| {
                if !pieces.contains_key(&entry.source) {
                    missing.push(entry.source);
                }
                0
            });
            *length += u64::from(entry.length);
        }
        for &(source_id, bytes) in given.iter().filter(|(source, _)| *source != SourceId::EVENT_FRAME) {
            let found = bytes.len() as u64;
            match lengths.get(&source_id) {
                None => return Err(JoinError::Unexpected { source_id }),
                Some(&expected) if expected != found => {
                    return Err(JoinError::Length { source_id, expected, found });
                }
                Some(_) => {}
            }
        }
        Ok(Parts { frame, pieces, missing })
    }

    /// The bytes of the event, and how many stretches of sources they hold.
    fn assemble(&self) -> (Vec<u8>, usize) {
        let missing: HashSet<SourceId> = self.missing.iter().copied().collect();
        // No more than the pieces hold: a frame alone cannot make this allocate what it claims.
        let held = self.frame.loose.len() + self.pieces.values().map(|piece| piece.len()).sum::<usize>();
        debug_assert!(held as u64 <= self.frame.event_bytes);
        let mut event = Vec::with_capacity(held);
        let mut rest = self.pieces.clone();
        let mut loose = self.frame.loose;
        let mut stretches = 0;
        let mut dropped: Option<Entry> = None;
        for entry in self.frame.entries() {
            let length = entry.length as usize;
            if entry.is_loose() {
                let (stretch, after) = loose.split_at(length);
                loose = after;
                let padding = dropped.take().is_some_and(|bank| self.is_padding(bank, entry));
                event.extend_from_slice(if padding { &[] } else { stretch });
                continue;
            }
            dropped = missing.contains(&entry.source).then_some(entry);
            if let Some(bytes) = rest.get_mut(&entry.source) {
                let (stretch, after) = bytes.split_at(length);
                *bytes = after;
                event.extend_from_slice(stretch);
                stretches += 1;
            }
        }
        (event, stretches)
    }

    /// Whether the loose bytes right after a bank are what pads it to a multiple of four.
    fn is_padding(&self, bank: Entry, loose: Entry) -> bool {
        self.frame.format == Format::Mdf && !bank.length.is_multiple_of(4) && loose.length <= 4 - bank.length % 4
    }
}
