//! Put and its reply.

use forebay_types::limits::BATCH_RECORDS_MAX;
use forebay_types::{FragmentId, PutOutcome};

use super::Message;
use super::fragments::{Entry, Fragments};
use crate::error::FrameError;
use crate::frame::encode_frame;
use crate::kind::Kind;
use crate::wire::{Reader, Write};

/// Bytes of a [`PutEntry`] on the wire.
pub(crate) const PUT_ENTRY_BYTES: usize = 32;

/// One fragment of a put; its bytes lie in the payload, one behind the other in the order of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutEntry {
    /// The fragment.
    pub id: FragmentId,
    /// Its bytes.
    pub bytes: u32,
    /// The CRC32C of its bytes, computed where they were made.
    pub crc: u32,
    /// How many fragments its event should have; 0 when not known.
    pub expected: u16,
}

impl PutEntry {
    fn write(&self, table: &mut Vec<u8>) {
        table.put_id(self.id);
        table.put_u32(self.bytes);
        table.put_u32(self.crc);
        table.put_u16(self.expected);
        table.put_u16(0);
        table.put_u32(0);
    }
}

impl Entry for PutEntry {
    const KIND: Kind = Kind::Put;
    const BYTES: usize = PUT_ENTRY_BYTES;

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(PutEntry { id: reader.id()?, bytes: reader.u32()?, crc: reader.u32()?, expected: reader.u16()? })
    }

    fn payload_bytes(&self) -> u32 {
        self.bytes
    }
}

/// Fragments to store, borrowed from their frame. The sizes of the entries add up to the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put<'a>(Fragments<'a, PutEntry>);

impl<'a> Put<'a> {
    /// The kind of its frames.
    pub const KIND: Kind = Kind::Put;

    /// Reads it from the table and payload of a frame. Checksums are not verified here.
    pub fn decode(table: &'a [u8], payload: &'a [u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let count = reader.count("fragments", BATCH_RECORDS_MAX)?;
        reader.u32()?;
        Ok(Put(Fragments::decode(&mut reader, count, payload)?))
    }

    /// How many fragments.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all fragments.
    pub fn payload_bytes(&self) -> usize {
        self.0.payload_bytes()
    }

    /// The entries without their bytes.
    pub fn table_entries(&self) -> impl ExactSizeIterator<Item = PutEntry> + use<'a> {
        self.0.table_entries()
    }

    /// Each entry with its bytes.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (PutEntry, &'a [u8])> + use<'a> {
        self.0.entries()
    }
}

/// The table of a put, for [`crate::encode_head`]; the payloads follow in the same order.
pub fn put_table(entries: &[PutEntry]) -> Vec<u8> {
    assert!(entries.len() <= BATCH_RECORDS_MAX, "{} puts exceed a batch", entries.len());
    let mut table = Vec::with_capacity(8 + entries.len() * PUT_ENTRY_BYTES);
    table.put_count(entries.len());
    table.put_u32(0);
    entries.iter().for_each(|entry| entry.write(&mut table));
    table
}

/// Appends a put to `into`; `payloads` has the bytes of each entry, in whatever pieces.
///
/// # Panics
/// When there are more than [`BATCH_RECORDS_MAX`] or the sizes do not add up.
pub fn encode_put(request: u64, entries: &[PutEntry], payloads: &[&[u8]], into: &mut Vec<u8>) {
    let expected: u64 = entries.iter().map(|entry| u64::from(entry.bytes)).sum();
    assert_eq!(expected, payloads.iter().map(|piece| piece.len() as u64).sum(), "entries and payload must agree");
    encode_frame(Kind::Put, 0, request, &put_table(entries), payloads, into);
}

/// What became of each fragment of a put, and how much more may come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutReply {
    /// Bytes of puts that this connection may have unanswered from now on. A put that would exceed it
    /// waits for replies; a single put larger than it goes alone.
    pub credit_bytes: u32,
    /// 0, or: the store is filling, so long no put may be sent; at most
    /// [`crate::limits::BUSY_MS_MAX`].
    pub busy_ms: u32,
    /// One for each entry, in their order.
    pub outcomes: Vec<PutOutcome>,
}

impl Message for PutReply {
    const KIND: Kind = Kind::PutReply;

    fn write_table(&self, table: &mut Vec<u8>) {
        assert!(self.outcomes.len() <= BATCH_RECORDS_MAX, "a reply answers one batch");
        table.put_u32(self.credit_bytes);
        table.put_u32(self.busy_ms);
        table.put_count(self.outcomes.len());
        table.put_u32(0);
        table.extend(self.outcomes.iter().map(|outcome| outcome.code()));
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let (credit_bytes, busy_ms) = (reader.u32()?, reader.u32()?);
        let count = reader.count("outcomes", BATCH_RECORDS_MAX)?;
        reader.u32()?;
        let outcomes = reader.list(count, 1, |entry| {
            let code = entry.u8()?;
            entry.coded("outcome", code, PutOutcome::from_code(code))
        })?;
        Ok(PutReply { credit_bytes, busy_ms, outcomes })
    }
}
