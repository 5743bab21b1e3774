//! Get and its replies.

use forebay_types::limits::BATCH_RECORDS_MAX;
use forebay_types::{FragmentId, ReadOutcome};

use super::Message;
use super::fragments::{Entry, Fragments, put_found, read_found};
use crate::error::FrameError;
use crate::frame::encode_frame;
use crate::kind::Kind;
use crate::wire::{Reader, Write};

const GET_ENTRY_BYTES: usize = 16;

/// Fragments to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Get {
    /// Which; at most [`BATCH_RECORDS_MAX`].
    pub ids: Vec<FragmentId>,
}

impl Message for Get {
    const KIND: Kind = Kind::Get;

    fn write_table(&self, table: &mut Vec<u8>) {
        assert!(self.ids.len() <= BATCH_RECORDS_MAX, "{} ids exceed a batch", self.ids.len());
        table.put_count(self.ids.len());
        table.put_u32(0);
        self.ids.iter().for_each(|id| table.put_id(*id));
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let count = reader.count("fragments", BATCH_RECORDS_MAX)?;
        reader.u32()?;
        Ok(Get { ids: reader.list(count, 16, |entry| entry.id())? })
    }
}

/// What was found of one fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetEntry {
    /// The place of the fragment in the request.
    pub index: u32,
    /// What the read found; only [`ReadOutcome::Found`] comes with bytes.
    pub outcome: ReadOutcome,
    /// Its bytes in the payload.
    pub bytes: u32,
    /// The CRC32C that its writer computed.
    pub crc: u32,
}

impl GetEntry {
    fn write(&self, table: &mut Vec<u8>) {
        table.put_u32(self.index);
        put_found(table, self.outcome, self.bytes, self.crc);
    }
}

impl Entry for GetEntry {
    const KIND: Kind = Kind::GetReply;
    const BYTES: usize = GET_ENTRY_BYTES;

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        let index = reader.u32()?;
        let (outcome, bytes, crc) = read_found(reader)?;
        Ok(GetEntry { index, outcome, bytes, crc })
    }

    fn payload_bytes(&self) -> u32 {
        self.bytes
    }
}

/// Fragments that were read, borrowed from their frame. With [`crate::FLAG_MORE`] more frames follow;
/// over all frames of a request each index comes once, in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetReply<'a>(Fragments<'a, GetEntry>);

impl<'a> GetReply<'a> {
    /// The kind of its frames.
    pub const KIND: Kind = Kind::GetReply;

    /// Reads it from the table and payload of a frame. Checksums are not verified here.
    pub fn decode(table: &'a [u8], payload: &'a [u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let count = reader.count("fragments", BATCH_RECORDS_MAX)?;
        reader.u32()?;
        Ok(GetReply(Fragments::decode(&mut reader, count, payload)?))
    }

    /// How many entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Each entry with its bytes.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (GetEntry, &'a [u8])> + use<'a> {
        self.0.entries()
    }
}

/// The table of a reply to Get, for [`crate::encode_head`]; the payloads follow in the same order.
pub fn get_reply_table(entries: &[GetEntry]) -> Vec<u8> {
    assert!(entries.len() <= BATCH_RECORDS_MAX, "{} entries exceed a batch", entries.len());
    let mut table = Vec::with_capacity(8 + entries.len() * GET_ENTRY_BYTES);
    table.put_count(entries.len());
    table.put_u32(0);
    entries.iter().for_each(|entry| entry.write(&mut table));
    table
}

/// Appends a reply to Get to `into`; `payloads` has the bytes of each entry, in whatever pieces.
pub fn encode_get_reply(request: u64, flags: u16, entries: &[GetEntry], payloads: &[&[u8]], into: &mut Vec<u8>) {
    encode_frame(Kind::GetReply, flags, request, &get_reply_table(entries), payloads, into);
}
