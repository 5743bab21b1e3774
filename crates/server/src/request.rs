//! Requests that are not answered yet.

use forebay_engine::{Token, WriteAt, WriterNumber};
use forebay_protocol::{
    Class, Decide, EventLine, FileClose, FileOpen, FileRead, FileSeal, FileSet, FileWrite, PutEntry,
};
use forebay_types::{
    DecideOutcome, EventKey, FileNumber, FileOutcome, FragmentId, PutOutcome, SourceId, StreamName, Verdict,
};

use crate::limits::LOOK_AHEAD_BYTES;
use crate::namespace::{NameAnswer, NameRequest};

/// A request whose answer waits for the lane.
pub(crate) struct Request {
    /// The connection, which may be gone.
    pub(crate) connection: u64,
    /// What its client is for.
    pub(crate) class: Class,
    /// Its number there.
    pub(crate) number: u64,
    /// Replies of the lane that are to come.
    pub(crate) waits: usize,
    /// The lane was asked for all of it.
    pub(crate) offered: bool,
    pub(crate) body: Body,
}

pub(crate) enum Body {
    Put(PutBody),
    Tell(TellBody),
    Get(GetBody),
    GetEvent(EventBody),
    Trace(TraceBody),
    File(FileBody),
    FileWrite(FileWriteBody),
    FileRead(FileReadBody),
    Name(NameBody),
}

impl Body {
    /// How many records it counts for.
    pub(crate) fn records(&self) -> usize {
        match self {
            Body::Put(put) => put.entries.len(),
            Body::Tell(tell) => tell.what.len(),
            Body::Get(get) => get.ids.len(),
            Body::GetEvent(events) => events.keys.len(),
            Body::Trace(_) | Body::File(_) | Body::FileWrite(_) | Body::FileRead(_) | Body::Name(_) => 1,
        }
    }
}

/// Fragments to store.
pub(crate) struct PutBody {
    pub(crate) entries: Vec<PutEntry>,
    /// The next one to be offered.
    pub(crate) next: usize,
    /// Bytes of the next one that were skipped because it is too large.
    pub(crate) skipped: usize,
    /// Of those offered; `None`: the lane will say.
    pub(crate) outcomes: Vec<Option<PutOutcome>>,
    /// What the lane said of records that it could not store after all.
    pub(crate) refused: Option<PutOutcome>,
}

impl PutBody {
    pub(crate) fn new(entries: Vec<PutEntry>) -> Self {
        let outcomes = Vec::with_capacity(entries.len());
        PutBody { entries, next: 0, skipped: 0, outcomes, refused: None }
    }

    /// What became of each. The lane counts durable and refused records without naming them: when it refused any, all that it had
    /// pending are told to the writer as refused. Those that are durable all the same are acknowledged when they come again.
    pub(crate) fn take_outcomes(&mut self) -> Vec<PutOutcome> {
        let pending = self.refused.unwrap_or(PutOutcome::Durable);
        self.outcomes.iter().map(|outcome| outcome.unwrap_or(pending)).collect()
    }
}

/// Something to be told of events.
pub(crate) enum Tell {
    Delete(Vec<EventKey>),
    Release(StreamName, Vec<EventKey>),
    /// The decisions as they came, and the verdict that was made last, with its streams: most decisions share a few verdicts, and those
    /// that do not are made one by one, not all at once.
    Decide(Decide, Option<(u64, Verdict)>),
}

impl Tell {
    pub(crate) fn len(&self) -> usize {
        match self {
            Tell::Delete(events) | Tell::Release(_, events) => events.len(),
            Tell::Decide(decide, _) => decide.entries.len(),
        }
    }

    /// The events.
    pub(crate) fn keys(&self) -> impl Iterator<Item = EventKey> {
        (0..self.len()).map(|at| match self {
            Tell::Delete(events) | Tell::Release(_, events) => events[at],
            Tell::Decide(decide, _) => decide.entries[at].key,
        })
    }
}

pub(crate) struct TellBody {
    pub(crate) what: Tell,
    pub(crate) next: usize,
    pub(crate) outcomes: Vec<DecideOutcome>,
}

/// An event of which all is to be told.
pub(crate) struct TraceBody {
    pub(crate) key: EventKey,
    /// What it knows, as JSON.
    pub(crate) json: String,
}

/// What is asked of a file without bytes.
pub(crate) enum FileAsk {
    Open(FileOpen),
    Close(FileClose),
    Set(FileSet),
    Seal(FileSeal),
}

impl FileAsk {
    pub(crate) fn file(&self) -> FileNumber {
        match self {
            FileAsk::Open(open) => open.file,
            FileAsk::Close(close) => close.file,
            FileAsk::Set(set) => set.file,
            FileAsk::Seal(seal) => seal.file,
        }
    }
}

pub(crate) struct FileBody {
    pub(crate) asked: FileAsk,
    pub(crate) outcome: FileOutcome,
}

/// Bytes for a file.
pub(crate) struct FileWriteBody {
    pub(crate) write: FileWrite,
    /// Bytes that were skipped because there are too many.
    pub(crate) skipped: usize,
    /// The bytes are where the lane has a place for them.
    pub(crate) is_placed: bool,
    pub(crate) outcome: FileOutcome,
    /// Where they begin in the file.
    pub(crate) start: u64,
}

impl FileWriteBody {
    pub(crate) fn new(write: FileWrite) -> FileWriteBody {
        FileWriteBody { write, skipped: 0, is_placed: false, outcome: FileOutcome::Done, start: 0 }
    }

    /// What the lane is asked.
    pub(crate) fn asked(&self) -> forebay_engine::FileWrite {
        let FileWrite { file, by, start, crc, appends, .. } = self.write;
        let at = start.map_or(WriteAt::End, WriteAt::Offset);
        let writer = WriterNumber(by.opener.client);
        forebay_engine::FileWrite { file, at, crc, writer, appends, may_take_last: false }
    }

    /// How far to read into a buffer of `capacity` bytes.
    pub(crate) fn read_limit(&self, capacity: usize, piece_bytes_max: usize) -> usize {
        let left = self.write.bytes as usize - self.skipped;
        // Of what is too large any part will do; behind what is not the next request may be there already.
        let behind = if self.write.bytes as usize > piece_bytes_max { 0 } else { LOOK_AHEAD_BYTES };
        (left + behind).min(capacity)
    }
}

/// Bytes of a file to read.
pub(crate) struct FileReadBody {
    pub(crate) read: FileRead,
    /// Bytes that drives were asked for.
    pub(crate) reading_bytes: usize,
}

/// A name to look up or to change.
pub(crate) struct NameBody {
    pub(crate) request: NameRequest,
    /// The answer, unless there are no names any more.
    pub(crate) answer: Option<NameAnswer>,
}

/// A read from drives that is under way.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    /// The place of the fragment or event in the request.
    pub(crate) index: u32,
    pub(crate) what: Piece,
    /// What it may take of memory.
    pub(crate) bytes: usize,
}

/// The reads of a request that are under way, by number.
#[derive(Default)]
pub(crate) struct Readings {
    slots: Vec<Reading>,
    free: Vec<u16>,
}

impl Readings {
    /// The number that the next read gets.
    pub(crate) fn next(&self) -> u16 {
        self.free.last().copied().unwrap_or(self.slots.len() as u16)
    }

    /// Enters the read that got [`Readings::next`].
    pub(crate) fn insert(&mut self, reading: Reading) {
        match self.free.pop() {
            Some(slot) => self.slots[usize::from(slot)] = reading,
            None => self.slots.push(reading),
        }
    }

    pub(crate) fn remove(&mut self, slot: u16) -> Reading {
        self.free.push(slot);
        self.slots[usize::from(slot)]
    }
}

/// Fragments to read.
pub(crate) struct GetBody {
    pub(crate) ids: Vec<FragmentId>,
    pub(crate) next: usize,
    /// Bytes of those that were found so far, and how many: what the next ones may need.
    pub(crate) found: (usize, usize),
    pub(crate) readings: Readings,
}

/// What is read at once of an event.
#[derive(Clone, Copy)]
pub(crate) enum Piece {
    /// A fragment of so many bytes.
    Fragment(SourceId, u32),
    /// All fragments, of so many bytes together: they lie in one record. The event's line goes with them.
    Whole(EventLine, u32),
}

impl Piece {
    pub(crate) fn bytes(&self) -> u32 {
        let (Piece::Fragment(_, bytes) | Piece::Whole(_, bytes)) = self;
        *bytes
    }

    /// Entries that it may have in the table of a reply.
    pub(crate) fn entries(&self) -> usize {
        match self {
            Piece::Fragment(..) => 1,
            Piece::Whole(line, _) => line.fragments as usize,
        }
    }
}

/// Events to read.
pub(crate) struct EventBody {
    pub(crate) keys: Vec<EventKey>,
    /// Ascending; `None`: all.
    pub(crate) sources: Option<Vec<SourceId>>,
    pub(crate) next: usize,
    /// An event whose fragments do not fit one reply: its place, and what is left to read of it, last first.
    pub(crate) rest: Option<(u32, Vec<Piece>)>,
    pub(crate) readings: Readings,
}

impl EventBody {
    /// Whether nothing is left to be looked for.
    pub(crate) fn is_done(&self) -> bool {
        self.next == self.keys.len() && self.rest.is_none()
    }

    /// Whether fragments of a source are asked for.
    pub(crate) fn wants(&self, source: SourceId) -> bool {
        self.sources.as_ref().is_none_or(|sources| sources.binary_search(&source).is_ok())
    }
}

/// The token of a record of a request.
pub(crate) fn token(request: u64, record: usize) -> Token {
    Token(request << 16 | record as u64)
}

/// The request and the record that a token names.
pub(crate) fn of_token(token: Token) -> (u64, usize) {
    (token.0 >> 16, (token.0 & 0xFFFF) as usize)
}
