//! The messages: what tables and payloads of each kind of frame say.

mod control;
mod decide;
mod event;
mod file;
mod fragments;
mod get;
mod greeting;
mod hand_out;
mod list;
mod name;
mod put;
mod run;
mod subscribe;

pub use control::{
    ChangeDrive, Done, DriveChange, ErrorReply, InjectFault, Losses, Ping, Scrub, Status, StatusReply, Trace,
};
pub use decide::{Decide, DecideEntry, DecideReply, Delete, Release, decide_from_verdicts};
pub use event::{EventLine, GetEvent, GetEventReply, SourceEntry, encode_get_event_reply, get_event_table};
pub(crate) use file::FILE_INFO_BYTES;
pub use file::{
    Changer, FileClose, FileInfo, FileOpen, FileRead, FileReadReply, FileReply, FileSeal, FileSet, FileStat,
    FileStatReply, FileWrite, Opener,
};
pub use get::{Get, GetEntry, GetReply, encode_get_reply, get_reply_table};
pub use greeting::{Hello, HelloReply};
pub use hand_out::{Accepted, AcceptedEvent, AcceptedReply, Lease, LeaseReply, LeasedEvent};
pub(crate) use hand_out::{EVENT_BYTES, LEASED_EVENT_BYTES};
pub(crate) use list::RUN_INFO_BYTES;
pub use list::{RunInfo, Runs, RunsReply, StreamInfo, Streams, StreamsReply};
pub use name::{ChangeName, ListReply, NameChange, NameEntry, NameList, NameLookup, Node, NodeReply};
pub(crate) use put::PUT_ENTRY_BYTES;
pub use put::{Put, PutEntry, PutReply, encode_put, put_table};
pub use run::{ChangeRun, DefineStream, RunList, StreamList};
pub use subscribe::{Subscribe, SubscribeReply, ToldEvent};

use crate::error::FrameError;
use crate::frame::encode_frame;
use crate::kind::Kind;
use crate::wire::no_payload;

/// A message that owns what it says. Those that carry fragments are views instead: [`Put`],
/// [`GetReply`], [`GetEventReply`]; those that carry bytes of files have them beside: [`FileWrite`], [`FileReadReply`].
pub trait Message: Sized {
    /// The kind of its frames.
    const KIND: Kind;

    /// Appends its table.
    fn write_table(&self, table: &mut Vec<u8>);

    /// Reads it from its table; bytes behind the fields that this version knows are skipped.
    fn read_table(table: &[u8]) -> Result<Self, FrameError>;

    /// Appends its frame to `into`.
    ///
    /// # Panics
    /// When a list is longer than the limits allow: senders cut their lists.
    fn encode(&self, request: u64, into: &mut Vec<u8>) {
        self.encode_with(request, 0, into);
    }

    /// Appends its frame with `flags` to `into`.
    fn encode_with(&self, request: u64, flags: u16, into: &mut Vec<u8>) {
        let mut table = Vec::new();
        self.write_table(&mut table);
        encode_frame(Self::KIND, flags, request, &table, &[], into);
    }

    /// Reads it from the table and payload of a frame of its kind.
    fn decode(table: &[u8], payload: &[u8]) -> Result<Self, FrameError> {
        no_payload(Self::KIND.name(), payload)?;
        Self::read_table(table)
    }
}
