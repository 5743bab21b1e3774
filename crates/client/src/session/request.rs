//! Requests other than puts.

use bytes::Bytes;
use forebay_protocol::{
    Accepted, ChangeDrive, ChangeName, ChangeRun, Decide, DefineStream, Delete, FileClose, FileOpen, FileRead,
    FileSeal, FileSet, FileStat, FileWrite, Get, GetEvent, InjectFault, Kind, Lease, Losses, Message, NameList,
    NameLookup, Ping, Release, RunList, Runs, Scrub, Status, StreamList, Streams, Subscribe, Trace, encode_head,
};

use super::payload::Payload;

/// A request other than a put.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each holds the message of the same name, which says what it is")]
pub enum Request {
    Get(Get),
    GetEvent(GetEvent),
    Delete(Delete),
    Decide(Decide),
    Release(Release),
    Lease(Lease),
    Accepted(Accepted),
    Subscribe(Subscribe),
    Streams(Streams),
    Runs(Runs),
    Status(Status),
    Ping(Ping),
    InjectFault(InjectFault),
    ChangeDrive(ChangeDrive),
    Scrub(Scrub),
    Trace(Trace),
    Losses(Losses),
    FileOpen(FileOpen),
    FileClose(FileClose),
    FileSet(FileSet),
    FileSeal(FileSeal),
    /// With its bytes, which are shared until it is answered.
    FileWrite(FileWrite, Bytes),
    FileRead(FileRead),
    FileStat(FileStat),
    NameLookup(NameLookup),
    NameList(NameList),
    ChangeName(ChangeName),
    ChangeRun(ChangeRun),
    RunList(RunList),
    DefineStream(DefineStream),
    StreamList(StreamList),
}

impl Request {
    /// Its name in errors.
    pub const fn name(&self) -> &'static str {
        self.kind().name()
    }

    const fn kind(&self) -> Kind {
        match self {
            Request::Get(_) => Kind::Get,
            Request::GetEvent(_) => Kind::GetEvent,
            Request::Delete(_) => Kind::Delete,
            Request::Decide(_) => Kind::Decide,
            Request::Release(_) => Kind::Release,
            Request::Lease(_) => Kind::Lease,
            Request::Accepted(_) => Kind::Accepted,
            Request::Subscribe(_) => Kind::Subscribe,
            Request::Streams(_) => Kind::Streams,
            Request::Runs(_) => Kind::Runs,
            Request::Status(_) => Kind::Status,
            Request::Ping(_) => Kind::Ping,
            Request::InjectFault(_) => Kind::InjectFault,
            Request::ChangeDrive(_) => Kind::ChangeDrive,
            Request::Scrub(_) => Kind::Scrub,
            Request::Trace(_) => Kind::Trace,
            Request::Losses(_) => Kind::Losses,
            Request::FileOpen(_) => Kind::FileOpen,
            Request::FileClose(_) => Kind::FileClose,
            Request::FileSet(_) => Kind::FileSet,
            Request::FileSeal(_) => Kind::FileSeal,
            Request::FileWrite(..) => Kind::FileWrite,
            Request::FileRead(_) => Kind::FileRead,
            Request::FileStat(_) => Kind::FileStat,
            Request::NameLookup(_) => Kind::NameLookup,
            Request::NameList(_) => Kind::NameList,
            Request::ChangeName(_) => Kind::ChangeName,
            Request::ChangeRun(_) => Kind::ChangeRun,
            Request::RunList(_) => Kind::RunList,
            Request::DefineStream(_) => Kind::DefineStream,
            Request::StreamList(_) => Kind::StreamList,
        }
    }

    /// Whether it may be sent again when nobody knows whether it was done. An append whose place the server chooses would be there twice.
    pub(super) const fn is_repeatable(&self) -> bool {
        !matches!(self, Request::FileWrite(FileWrite { start: None, .. }, _))
    }

    /// The bytes that follow its frame's table.
    pub(super) fn payload(&self) -> Payload {
        match self {
            Request::FileWrite(_, bytes) => Payload::of(bytes.clone()),
            _ => Payload::default(),
        }
    }

    /// Its frame, without the payload.
    ///
    /// # Panics
    /// When a list is longer than the limits allow, or a write says another number of bytes than it has: callers see to that.
    pub(super) fn encode(&self, number: u64, into: &mut Vec<u8>) {
        match self {
            Request::Get(message) => message.encode(number, into),
            Request::GetEvent(message) => message.encode(number, into),
            Request::Delete(message) => message.encode(number, into),
            Request::Decide(message) => message.encode(number, into),
            Request::Release(message) => message.encode(number, into),
            Request::Lease(message) => message.encode(number, into),
            Request::Accepted(message) => message.encode(number, into),
            Request::Subscribe(message) => message.encode(number, into),
            Request::Streams(message) => message.encode(number, into),
            Request::Runs(message) => message.encode(number, into),
            Request::Status(message) => message.encode(number, into),
            Request::Ping(message) => message.encode(number, into),
            Request::InjectFault(message) => message.encode(number, into),
            Request::ChangeDrive(message) => message.encode(number, into),
            Request::Scrub(message) => message.encode(number, into),
            Request::Trace(message) => message.encode(number, into),
            Request::Losses(message) => message.encode(number, into),
            Request::FileOpen(message) => message.encode(number, into),
            Request::FileClose(message) => message.encode(number, into),
            Request::FileSet(message) => message.encode(number, into),
            Request::FileSeal(message) => message.encode(number, into),
            Request::FileWrite(message, bytes) => {
                assert_eq!(message.bytes as usize, bytes.len(), "a write says how many bytes it has");
                encode_head(FileWrite::KIND, 0, number, &message.table(), bytes.len(), into);
            }
            Request::FileRead(message) => message.encode(number, into),
            Request::FileStat(message) => message.encode(number, into),
            Request::NameLookup(message) => message.encode(number, into),
            Request::NameList(message) => message.encode(number, into),
            Request::ChangeName(message) => message.encode(number, into),
            Request::ChangeRun(message) => message.encode(number, into),
            Request::RunList(message) => message.encode(number, into),
            Request::DefineStream(message) => message.encode(number, into),
            Request::StreamList(message) => message.encode(number, into),
        }
    }
}
