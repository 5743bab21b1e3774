//! From bytes to requests.

use forebay_protocol::{
    Decide, Delete, ErrorCode, ErrorReply, FrameError, FrameHeader, Get, GetEvent, HEADER_BYTES, Kind, Message, Ping,
    Release, Trace, decode_header,
};
use forebay_types::EventKey;
use forebay_types::placement::lane_of;

use super::{Advance, Core};
use crate::connection::{Connection, Place, check_table};
use crate::lane_requests::LaneRequests;
use crate::limits::{LIST_WORK_BYTES, LOOK_AHEAD_BYTES, RECORD_WORK_BYTES};
use crate::put_table::read_put_table;
use crate::request::{Body, EventBody, GetBody, PutBody, Readings, Request, Tell, TellBody, TraceBody};

/// Entries of puts that are kept for the next ones.
const SPARE_ENTRIES_MAX: usize = 8;

impl Core {
    /// Takes the next frame of a connection that is at no request.
    pub(super) fn begin(
        &mut self,
        id: u64,
        connection: &mut Connection,
        lane: &mut impl LaneRequests,
        enter: impl FnOnce(Request) -> u64,
    ) -> Advance {
        if let Some(advance) = self.skip(connection) {
            return advance;
        }
        if connection.allowance == 0 && !connection.receive.is_empty() {
            return Advance::Again;
        }
        if self.is_full(connection) {
            return Advance::Park(Place::Out);
        }
        if connection.has_enough_to_do() {
            return Advance::Park(Place::Answers);
        }
        let header = match connection.receive.bytes().first_chunk::<HEADER_BYTES>().map(decode_header) {
            None => return needs(connection, HEADER_BYTES),
            Some(Ok(header)) => header,
            Some(Err(error)) => {
                // Where the next frame begins is not known any more.
                self.refuse_frame(connection, error.request().unwrap_or(0), &error, 0);
                connection.closing = true;
                return Advance::Done;
            }
        };
        if is_list(header.kind) && !self.has_room_for_replies() {
            return Advance::Park(Place::Replies);
        }
        let unit = HEADER_BYTES + header.table_bytes as usize;
        let Some(frame) = connection.receive.bytes().get(..unit) else { return needs(connection, unit) };
        let begun = self.read_request(&header, &frame[HEADER_BYTES..], lane);
        connection.receive.consume(unit);
        connection.moved_on();
        connection.allowance = connection.allowance.saturating_sub(unit + RECORD_WORK_BYTES);
        let payload_bytes = header.payload_bytes as usize;
        match begun {
            Ok(Begun::Waits(body)) => {
                let records = body.records();
                let class = connection.class;
                let request = Request { connection: id, class, number: header.request, waits: 0, offered: false, body };
                connection.current = Some(enter(request));
                connection.unanswered += 1;
                connection.records_unanswered += records;
            }
            Ok(Begun::Answer(answer)) => {
                let before = connection.out.len();
                answer(self, connection, header.request);
                let bytes = connection.out.len() - before;
                let work = bytes + if is_list(header.kind) { LIST_WORK_BYTES } else { 0 };
                connection.allowance = connection.allowance.saturating_sub(work);
            }
            Err(Refusal::Frame(error)) => self.refuse_frame(connection, header.request, &error, payload_bytes),
            Err(Refusal::Request(error)) => self.refuse(connection, header.request, error, payload_bytes),
        }
        Advance::Done
    }

    /// Drops the payload of a request that was refused; what to do next, unless it is over.
    fn skip(&mut self, connection: &mut Connection) -> Option<Advance> {
        let skip = connection.skip.as_mut()?;
        let dropped = skip.left.min(connection.receive.len());
        skip.left -= dropped;
        let left = skip.left;
        connection.receive.consume(dropped);
        connection.allowance = connection.allowance.saturating_sub(dropped);
        if left > 0 {
            return Some(Advance::Needs(1));
        }
        let skip = connection.skip.take().expect("looked at just now");
        connection.send(&mut self.chunks, skip.request, &skip.error);
        connection.moved_on();
        None
    }

    fn read_request<L: LaneRequests>(
        &mut self,
        header: &FrameHeader,
        table: &[u8],
        lane: &mut L,
    ) -> Result<Begun, Refusal> {
        check_table(header, table)?;
        let kind = Kind::from_code(header.kind).filter(|kind| !kind.is_reply());
        let Some(kind) = kind else { return Err(unknown_kind(header.kind).into()) };
        if self.stopping && kind != Kind::Ping && kind != Kind::Status {
            return Err(shutting_down().into());
        }
        if kind == Kind::Put {
            return self.read_put(header, table);
        }
        if Core::is_of_files(kind) && (kind == Kind::FileWrite || header.payload_bytes == 0) {
            return self.read_files_request(kind, header, table, lane);
        }
        if header.payload_bytes > 0 {
            let found = header.payload_bytes as usize;
            return Err(FrameError::PayloadLength { message: kind.name(), expected: 0, found }.into());
        }
        match kind {
            Kind::Delete => {
                let Delete { events } = Delete::read_table(table)?;
                self.tell(Tell::Delete(events))
            }
            Kind::Release => {
                let Release { stream, events } = Release::read_table(table)?;
                self.tell(Tell::Release(stream, events))
            }
            Kind::Decide => self.tell(Tell::Decide(Decide::read_table(table)?, None)),
            Kind::Get => {
                self.check_reads(lane)?;
                let Get { ids } = Get::read_table(table)?;
                self.check_lane(ids.iter().map(|id| id.key()))?;
                Ok(Begun::Waits(Body::Get(GetBody { ids, next: 0, found: (0, 0), readings: Readings::default() })))
            }
            Kind::GetEvent => {
                self.check_reads(lane)?;
                let GetEvent { events: keys, mut sources } = GetEvent::read_table(table)?;
                self.check_lane(keys.iter().copied())?;
                if let Some(sources) = &mut sources {
                    sources.sort_unstable();
                }
                let body = EventBody { keys, sources, next: 0, rest: None, readings: Readings::default() };
                Ok(Begun::Waits(Body::GetEvent(body)))
            }
            Kind::Ping => {
                Ping::read_table(table)?;
                Ok(Begun::Answer(Box::new(|core, connection, request| {
                    connection.send(&mut core.chunks, request, &forebay_protocol::Done);
                })))
            }
            Kind::Trace => {
                self.check_reads(lane)?;
                let Trace { key } = Trace::read_table(table)?;
                self.check_lane([key].into_iter())?;
                Ok(Begun::Waits(Body::Trace(TraceBody { key, json: String::new() })))
            }
            Kind::Lease | Kind::Accepted | Kind::Subscribe | Kind::Streams | Kind::Runs | Kind::Status | Kind::Losses => {
                self.read_list(kind, table, lane)
            }
            Kind::Hello => Err(greeted_already().into()),
            Kind::InjectFault | Kind::ChangeDrive | Kind::Scrub => Err(error(
                ErrorCode::Refused,
                "drives are changed and looked at on a control connection (lane 65535), not on that of a lane: nothing was done",
            )
            .into()),
            _ => Err(unknown_kind(header.kind).into()),
        }
    }

    fn read_put(&mut self, header: &FrameHeader, table: &[u8]) -> Result<Begun, Refusal> {
        let mut entries = self.spare_entries.pop().unwrap_or_default();
        read_put_table(table, header.payload_bytes as usize, &mut entries)?;
        self.check_lane(entries.iter().map(|entry| entry.id.key()))?;
        Ok(Begun::Waits(Body::Put(PutBody::new(entries))))
    }

    /// Keeps the memory of a put that was answered.
    pub(super) fn recycle(&mut self, put: PutBody) {
        let mut entries = put.entries;
        if self.spare_entries.len() < SPARE_ENTRIES_MAX && entries.capacity() <= 4096 {
            entries.clear();
            self.spare_entries.push(entries);
        }
    }

    fn tell(&mut self, what: Tell) -> Result<Begun, Refusal> {
        self.check_lane(what.keys())?;
        Ok(Begun::Waits(Body::Tell(TellBody { what, next: 0, outcomes: Vec::new() })))
    }

    fn check_lane(&self, mut keys: impl Iterator<Item = EventKey>) -> Result<(), Refusal> {
        let (lane, lanes) = (self.config.lane, self.config.lanes);
        let Some(key) = keys.find(|key| lane_of(*key, lanes) != lane) else { return Ok(()) };
        let other = lane_of(key, lanes);
        let sentence = format!(
            "event {key} belongs to lane {other} of {lanes}, this connection is for lane {lane}: nothing of the request was done; \
             send it on a connection for lane {other}"
        );
        Err(error(ErrorCode::WrongLane, &sentence).into())
    }

    /// A lane that does not know what is stored says nothing of it.
    pub(super) fn check_reads(&self, lane: &impl LaneRequests) -> Result<(), Refusal> {
        let Err(why) = lane.serves_reads() else { return Ok(()) };
        let sentence = format!(
            "lane {} cannot be read now: {why}. What was acknowledged is on the drives; try again, and see `forebay status` if it stays so",
            self.config.lane
        );
        Err(ErrorReply { code: ErrorCode::NotServing, retryable: true, sentence }.into())
    }
}

/// Whether a request is answered at once with what may be much, and takes a walk through what the lane knows.
fn is_list(kind: u16) -> bool {
    use Kind::{
        Accepted, FileStat, Lease, Losses, NameList, RunList, Runs, Status, StreamList, Streams, Subscribe, Trace,
    };
    let kind = Kind::from_code(kind);
    matches!(
        kind,
        Some(
            Lease
                | Accepted
                | Subscribe
                | Streams
                | Runs
                | Status
                | Trace
                | Losses
                | FileStat
                | NameList
                | RunList
                | StreamList
        )
    )
}

fn needs(connection: &mut Connection, unit: usize) -> Advance {
    connection.read_limit = unit.max(LOOK_AHEAD_BYTES);
    Advance::Needs(unit)
}

/// Writes the answer to the request of that number.
type WriteAnswer = Box<dyn FnOnce(&mut Core, &mut Connection, u64)>;

/// What a request came to at once.
pub(super) enum Begun {
    /// Its records are to be offered to the lane.
    Waits(Body),
    /// What writes its answer.
    Answer(WriteAnswer),
}

/// Why a request is not served.
pub(super) enum Refusal {
    Frame(FrameError),
    Request(ErrorReply),
}

impl From<FrameError> for Refusal {
    fn from(error: FrameError) -> Self {
        Refusal::Frame(error)
    }
}

impl From<ErrorReply> for Refusal {
    fn from(error: ErrorReply) -> Self {
        Refusal::Request(error)
    }
}

fn error(code: ErrorCode, sentence: &str) -> ErrorReply {
    ErrorReply { code, retryable: false, sentence: sentence.to_owned() }
}

/// The answer to a second greeting.
pub(crate) fn greeted_already() -> ErrorReply {
    let sentence =
        "this connection has greeted already, and keeps its lane and class: nothing was done; connect anew for others";
    error(ErrorCode::NotGreeted, sentence)
}

/// The answer to a kind of frame that this version does not know.
pub(crate) fn unknown_kind(kind: u16) -> ErrorReply {
    let sentence =
        format!("kind {kind:#06x} is no request that this server knows; is the client newer? Nothing was done");
    error(ErrorCode::UnknownKind, &sentence)
}

/// The answer to what comes after the stop.
pub(crate) fn shutting_down() -> ErrorReply {
    ErrorReply {
        code: ErrorCode::ShuttingDown,
        retryable: true,
        sentence: "the server is going away; nothing of this request was done: connect and ask again".to_owned(),
    }
}
