//! One connection: what arrived, what goes out, and what it waits for.

use forebay_protocol::{Class, ErrorReply, FrameError, FrameHeader, Message};
use forebay_types::{Time, crc32c};

use crate::limits::{PROGRESS_BYTES, PROGRESS_PART, RECORDS_MAX, REQUESTS_MAX};
use crate::outgoing::{Chunks, Outgoing};
use crate::staging::Receive;

/// The flags that a reader must know; of these a request has none.
const FLAGS_TO_UNDERSTAND: u16 = 0x00FF & !forebay_protocol::FLAG_MORE;

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// For its peer.
    Idle,
    /// For its turn.
    Queued,
    /// For the lane, which was too busy for a request.
    Busy,
    /// For other reads from drives to end.
    Reads,
    /// For memory to receive into.
    Staging,
    /// For memory for replies, which others do not read.
    Replies,
    /// For its peer to read.
    Out,
    /// For the answers to what it asked.
    Answers,
}

/// Bytes of a payload that nobody takes, and what is answered behind them.
pub(crate) struct Skip {
    pub(crate) left: usize,
    pub(crate) request: u64,
    pub(crate) error: ErrorReply,
}

/// One connection of a lane.
pub(crate) struct Connection {
    pub(crate) class: Class,
    pub(crate) place: Place,
    pub(crate) receive: Receive,
    pub(crate) out: Outgoing,
    /// Its frames were cut off for good: what is to be sent is sent, then it is closed.
    pub(crate) closing: bool,
    /// Something was added to `out` since it was last looked at.
    pub(crate) dirty: bool,
    /// What of `out` is counted for the lane, and since when the peer took nothing of it.
    pub(crate) out_counted: usize,
    pub(crate) out_since: Option<Time>,
    /// The request whose records are offered to the lane.
    pub(crate) current: Option<u64>,
    pub(crate) skip: Option<Box<Skip>>,
    pub(crate) unanswered: usize,
    pub(crate) records_unanswered: usize,
    /// Bytes of reads from drives that are under way for it.
    pub(crate) reads_bytes: usize,
    /// Bytes of work that are left in this turn.
    pub(crate) allowance: usize,
    /// Bytes of work that were done in this turn.
    pub(crate) worked: usize,
    /// How far from the first byte not taken the next read may go.
    pub(crate) read_limit: usize,
    /// Since when the rest of a frame is awaited, and how much of it came since.
    awaits_since: Option<Time>,
    arrived: usize,
}

impl Connection {
    pub(crate) fn new(class: Class) -> Self {
        Connection {
            class,
            place: Place::Idle,
            receive: Receive::default(),
            out: Outgoing::default(),
            closing: false,
            dirty: false,
            out_counted: 0,
            out_since: None,
            current: None,
            skip: None,
            unanswered: 0,
            records_unanswered: 0,
            reads_bytes: 0,
            allowance: 0,
            worked: 0,
            read_limit: 0,
            awaits_since: None,
            arrived: 0,
        }
    }

    /// Whether so much is unanswered that nothing more is read.
    pub(crate) fn has_enough_to_do(&self) -> bool {
        self.unanswered >= REQUESTS_MAX || self.records_unanswered >= RECORDS_MAX
    }

    /// Appends a message.
    pub(crate) fn send(&mut self, chunks: &mut Chunks, request: u64, message: &impl Message) {
        self.out.append(chunks, |chunk| message.encode(request, chunk));
    }

    /// `bytes` arrived.
    pub(crate) fn filled(&mut self, bytes: usize) {
        self.receive.filled(bytes);
        self.arrived += bytes;
        if self.arrived >= PROGRESS_BYTES.max(self.receive.grown_bytes() / PROGRESS_PART) {
            self.moved_on();
        }
    }

    /// A part of a frame was taken, or the wait is not the peer's.
    pub(crate) fn moved_on(&mut self) {
        (self.awaits_since, self.arrived) = (None, 0);
    }

    /// The peer is waited for: in the middle of a frame only for so long.
    pub(crate) fn awaits_peer(&mut self, now: Time) {
        if self.receive.is_empty() && self.current.is_none() && self.skip.is_none() {
            self.moved_on();
        } else {
            self.awaits_since.get_or_insert(now);
        }
    }

    /// Since when the rest of a frame is awaited.
    pub(crate) fn awaits_since(&self) -> Option<Time> {
        self.awaits_since
    }
}

/// Whether the table of a frame is what its writer sent and this version understands.
pub(crate) fn check_table(header: &FrameHeader, table: &[u8]) -> Result<(), FrameError> {
    let request = header.request;
    if header.flags & FLAGS_TO_UNDERSTAND != 0 {
        return Err(FrameError::UnknownFlags { request, flags: header.flags });
    }
    let (expected, found) = (header.table_crc32c, crc32c(table));
    if expected != found {
        return Err(FrameError::TableChecksum { request, expected, found });
    }
    Ok(())
}

const _: () = assert!(std::mem::size_of::<Connection>() <= 256, "an idle connection costs little");
