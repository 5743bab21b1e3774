//! The wire protocol of Forebay: frames, messages and their bytes. `docs/protocol.md` draws them.
//!
//! - [`decode_header`] and [`encode_frame`] read and write one [`Frame`]: 32 bytes of header, a table,
//!   a payload; [`FrameBuffer`] finds frames in bytes that arrive in pieces.
//! - Every message is a struct with [`Message::encode`] and [`Message::decode`]; those that carry
//!   fragments ([`Put`], [`GetReply`], [`GetEventReply`]) are read as views that borrow the frame, and
//!   written with a function of the same name (`encode_put`, ...) or, without a copy of the payload,
//!   with [`encode_head`].
//! - [`Part`]: what a client on the server's own machine sends, instead of the bytes of its frames one behind the other.
//!
//! # What it is not
//! It does no I/O, keeps no state of a connection and decides nothing: the machines of client and
//! server do.
//!
//! # What it promises
//! Arbitrary bytes never panic here and never make it allocate more than a small multiple of what
//! arrived. Numbers on the wire are never given another meaning. It does not verify the checksums of
//! fragments: who takes them does, in the same pass that copies them.

mod error;
mod frame;
mod kind;
pub mod limits;
mod local;
mod message;
mod wire;

pub use error::FrameError;
pub use frame::{
    FLAG_MORE, Frame, FrameBuffer, FrameHead, FrameHeader, HEADER_BYTES, MAGIC, decode_header, encode_frame,
    encode_head,
};
pub use kind::{Class, ErrorCode, EventState, Kind};
pub use local::{BadPart, PART_HEADER_BYTES, Part, local_socket_name};
pub use message::{
    Accepted, AcceptedEvent, AcceptedReply, ChangeDrive, ChangeName, ChangeRun, Changer, Decide, DecideEntry,
    DecideReply, DefineStream, Delete, Done, DriveChange, ErrorReply, EventLine, FileClose, FileInfo, FileOpen,
    FileRead, FileReadReply, FileReply, FileSeal, FileSet, FileStat, FileStatReply, FileWrite, Get, GetEntry, GetEvent,
    GetEventReply, GetReply, Hello, HelloReply, InjectFault, Lease, LeaseReply, LeasedEvent, ListReply, Losses,
    Message, NameChange, NameEntry, NameList, NameLookup, Node, NodeReply, Opener, Ping, Put, PutEntry, PutReply,
    Release, RunInfo, RunList, Runs, RunsReply, Scrub, SourceEntry, Status, StatusReply, StreamInfo, StreamList,
    Streams, StreamsReply, Subscribe, SubscribeReply, ToldEvent, Trace, decide_from_verdicts, encode_get_event_reply,
    encode_get_reply, encode_put, get_event_table, get_reply_table, put_table,
};

/// Which lane an event belongs to: what names the connection of a request.
pub use forebay_types::placement::lane_of;

/// The version of the protocol that this crate speaks; [`Hello`] and [`HelloReply`] carry it.
pub const PROTOCOL_VERSION: u16 = 1;

/// The lane of a control connection: one that names none.
pub const LANE_CONTROL: u16 = 0xFFFF;
