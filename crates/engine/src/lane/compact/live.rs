//! What lives of a segment that is emptied, on its way to where it is written once more.

use forebay_format::{FileRecord, TableEntry};
use forebay_types::EventKey;
use smallvec::{SmallVec, smallvec};

use crate::flush::NewRecord;
use crate::pieces::Pieces;
use crate::planted::{Planted, planted};
use crate::read::Reader;
use crate::segments::FlushSpan;

/// What lives of a flush, and is to be written once more.
pub(in crate::lane) enum Live {
    /// A fragment, or a whole event that is one record.
    Record(LiveRecord),
    /// What was decided on an event: the acceptance.
    Acceptance(EventKey),
    /// And the releases so far, in one record behind the acceptance.
    Releases(EventKey),
    /// An accepted event, all of it, as the payload of its one record.
    Event(EventKey, Vec<u8>),
    /// A record of a file, or the part of a piece that counts, and its bytes.
    File(FileRecord, Pieces),
}

/// A record with its payload.
pub(in crate::lane) struct LiveRecord {
    pub(super) span: FlushSpan,
    pub(super) entry: TableEntry,
    /// `None` when it cannot be read.
    pub(super) payload: Option<Pieces>,
    /// It was compared with its sum. Else that is done when it is copied, while it is in the processor's cache for that.
    pub(super) is_checked: bool,
}

impl LiveRecord {
    /// The record once more. It keeps the sum that it has had from the beginning.
    pub(super) fn record(&self) -> NewRecord {
        let record = NewRecord::of(&self.entry);
        match &self.payload {
            Some(payload) if planted(Planted::CopyUnchecked) => NewRecord { crc: payload.crc32c(), ..record },
            _ => record,
        }
    }
}

impl Live {
    /// What is to be written, in pieces.
    pub(super) fn payload(&self) -> SmallVec<[&[u8]; 4]> {
        match self {
            Live::Record(LiveRecord { payload: Some(payload), .. }) | Live::File(_, payload) => {
                payload.iter().collect()
            }
            Live::Event(_, payload) => smallvec![payload.as_slice()],
            _ => SmallVec::new(),
        }
    }
}

impl Reader {
    /// A record that lives, compared with its sum.
    pub(super) async fn checked_record(&self, span: FlushSpan, entry: TableEntry, read: Option<Pieces>) -> Live {
        let payload = self.checked(span, entry.payload_range(), entry.crc, read).await;
        Live::Record(LiveRecord { span, entry, payload, is_checked: true })
    }
}
