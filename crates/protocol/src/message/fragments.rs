//! Entries of fragments, with the bytes of all of them behind the table: what puts and the replies to reads have in common.

use std::marker::PhantomData;

use forebay_types::ReadOutcome;

use crate::error::FrameError;
use crate::kind::Kind;
use crate::wire::{Reader, Write};

/// What a table says of one fragment.
pub(super) trait Entry: Sized {
    /// The kind of the frames that have such entries.
    const KIND: Kind;
    /// Bytes of an entry in the table.
    const BYTES: usize;

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError>;

    /// Bytes of the fragment in the payload.
    fn payload_bytes(&self) -> u32;
}

/// The fragments of a frame, borrowed from it. The sizes of the entries add up to the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fragments<'a, E> {
    entries: &'a [u8],
    payload: &'a [u8],
    entry: PhantomData<E>,
}

impl<'a, E: Entry> Fragments<'a, E> {
    /// Reads `count` entries; each of them can be read, from then on.
    pub(super) fn decode(reader: &mut Reader<'a>, count: usize, payload: &'a [u8]) -> Result<Self, FrameError> {
        let message = E::KIND.name();
        let entries = reader.entries(count, E::BYTES)?;
        let mut expected = 0;
        for entry in entries.chunks_exact(E::BYTES) {
            expected += u64::from(E::read(&mut Reader::new(entry, message))?.payload_bytes());
        }
        if expected != payload.len() as u64 {
            return Err(FrameError::PayloadLength { message, expected, found: payload.len() });
        }
        Ok(Fragments { entries, payload, entry: PhantomData })
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() / E::BYTES
    }

    pub(super) fn payload_bytes(&self) -> usize {
        self.payload.len()
    }

    /// The entries without their bytes.
    pub(super) fn table_entries(&self) -> impl ExactSizeIterator<Item = E> + use<'a, E> {
        self.entries
            .chunks_exact(E::BYTES)
            .map(|entry| E::read(&mut Reader::new(entry, E::KIND.name())).expect("checked by decode"))
    }

    /// Each entry with its bytes.
    pub(super) fn entries(&self) -> impl ExactSizeIterator<Item = (E, &'a [u8])> + use<'a, E> {
        let mut rest = self.payload;
        self.table_entries().map(move |entry| {
            let (bytes, behind) = rest.split_at(entry.payload_bytes() as usize);
            rest = behind;
            (entry, bytes)
        })
    }
}

/// Appends what a read found of a fragment (the end of its entry) or of a file.
pub(super) fn put_found(table: &mut Vec<u8>, outcome: ReadOutcome, bytes: u32, crc: u32) {
    table.put_u8(outcome.code());
    table.extend_from_slice(&[0; 3]);
    table.put_u32(bytes);
    table.put_u32(crc);
}

/// What a read found of a fragment or a file: its outcome, its bytes in the payload, their CRC32C.
pub(super) fn read_found(reader: &mut Reader<'_>) -> Result<(ReadOutcome, u32, u32), FrameError> {
    let outcome = reader.u8()?;
    let outcome = reader.coded("outcome", outcome, ReadOutcome::from_code(outcome))?;
    reader.take(3)?;
    let (bytes, crc) = (reader.u32()?, reader.u32()?);
    if outcome != ReadOutcome::Found && bytes != 0 {
        return reader.bad("bytes of what was not found", bytes);
    }
    Ok((outcome, bytes, crc))
}
