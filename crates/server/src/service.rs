//! The server's side of all connections of one lane, as a machine without clock, threads or sockets.
//!
//! What drives it, in turns:
//! - [`Service::take_replies`] after each turn of the lane;
//! - then, while there is a [`Service::next_connection`], [`Service::work`] on it: when that says [`Step::Read`] the driver reads into
//!   [`Service::read_space`] and says [`Service::received`], and works on it again; or, when [`Service::awaited_of_piece`] bytes have arrived and there is a
//!   [`Service::place_of_piece`], it reads them there and says [`Service::piece_is_placed`], and works on it again;
//! - [`Service::readable`] when a connection has something to read, [`Service::pieces_to_send`] and [`Service::sent`] for those of
//!   [`Service::take_dirty`] and those that became writable, [`Service::close`] when a connection is gone;
//! - [`Service::stalled`] now and then: these are to be closed.
//!
//! What it promises: a connection that stands still, in either direction, holds a bounded share of memory for a bounded time, and
//! nobody waits for it; nothing a client sends makes it panic or allocate without a bound; each request is answered once.

mod begin;
mod files;
mod finish;
mod lists;
mod names;
mod placed;
mod puts;
mod reads;
mod runs;
mod stall;
mod tells;
mod waiting;

pub(crate) use begin::{greeted_already, unknown_kind};
pub use stall::Stall;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use forebay_engine::LaneStatus;
use forebay_protocol::limits::{FRAME_PAYLOAD_BYTES_MAX, FRAME_TABLE_BYTES_MAX};
use forebay_protocol::{
    Class, ErrorReply, FrameError, HEADER_BYTES, HelloReply, LANE_CONTROL, PROTOCOL_VERSION, PutEntry,
};
use forebay_types::{FileNumber, StoreUuid, StreamName, Time};
use std::time::Duration;

use crate::connection::{Connection, Place, Skip};
use crate::lane_requests::LaneRequests;
use crate::limits::{BUSY_RETRY, COUNTS_AGE, CREDIT_BYTES_FULL, CREDIT_BYTES_MIN, LANE_CREDIT_BYTES, WORK_BYTES};
use crate::namespace::{FilesMessage, Namespace};
use crate::openings::Openings;
use crate::outgoing::Chunks;
use crate::pressure::{Asked, Pressure};
use crate::rates::RateMeter;
use crate::request::{Body, Request};
use crate::schedule::{CLASSES, Schedule, class_place};
use crate::staging::Staging;
use crate::status::{LaneReport, StreamReport, ToldCounts};

/// What a service must know.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// The store.
    pub store: StoreUuid,
    /// The start that this is.
    pub epoch: u64,
    /// The lanes of the store.
    pub lanes: u16,
    /// The lane that is served.
    pub lane: u16,
    /// The largest fragment of the store, in bytes.
    pub fragment_bytes_max: u32,
    /// Whether the store is open for reading alone.
    pub read_only: bool,
    /// Whether it is of a version that has files.
    pub has_files: bool,
    /// Memory for receive buffers.
    pub staging_bytes: usize,
    /// A connection that has so many bytes of replies to take is not served further.
    pub out_buffer_bytes: usize,
    /// The credit of a writer that is alone.
    pub credit_bytes: u32,
    /// The rest of a frame is awaited for so long.
    pub stall_timeout: Duration,
    /// A write to a file of so many bytes, all of which have arrived, is read to where they are stored.
    pub placed_bytes_min: usize,
    /// The number of the socket for clients on this machine, as greetings say it.
    pub local: u64,
}

/// What a connection needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Bytes: [`Service::read_space`].
    Read,
    /// Another turn, which it is queued for.
    Again,
    /// Nothing: it waits for its peer, or for the lane.
    Wait,
}

/// How far a request came.
enum Advance {
    /// The lane was asked for all of it.
    Done,
    /// A unit of so many bytes must arrive whole first.
    Needs(usize),
    /// It must wait.
    Park(Place),
    /// The connection's share of this turn is used up.
    Again,
}

/// What requests and connections share.
struct Core {
    config: ServiceConfig,
    now: Time,
    staging: Staging,
    chunks: Chunks,
    schedule: Schedule,
    /// Waiting for the lane: first those that it took nothing of, then those that it took something of.
    busy: [VecDeque<u64>; 2],
    /// The lane was too busy for one of them since it last moved: the others need not try.
    lane_is_busy: bool,
    busy_since: Time,
    /// Waiting for reads of their class, the first class first.
    for_reads: [VecDeque<u64>; 4],
    /// Waiting for memory to receive into and for memory for replies, in the order of arrival.
    for_staging: VecDeque<u64>,
    for_replies: VecDeque<u64>,
    /// Memory was wanted and not there; and whether it was asked back in this turn.
    wants_memory: bool,
    reclaimed: bool,
    dirty: Vec<u64>,
    /// Bytes that all connections have to send.
    out_bytes: usize,
    /// Reads from drives that are under way for each class, and bytes of them.
    reads: [usize; 4],
    reads_bytes: [usize; 4],
    connections: [usize; 4],
    stopping: bool,
    /// What the lane asks of its clients, and when it was looked at for that.
    asked: Asked,
    asked_at: Option<Time>,
    put_replies_busy: u64,
    lane_serves: bool,
    rates: RateMeter,
    /// Events that were lent to filters, and releases of each stream that the lane took.
    events_leased: u64,
    told: ToldCounts,
    events_released: BTreeMap<StreamName, u64>,
    undecided: lists::UndecidedCounts,
    spare_entries: Vec<Vec<PutEntry>>,
    /// Who has which file open, and the names of all files on lane 0.
    openings: Openings,
    names: Option<Namespace>,
    /// Requests for names whose answers wait: where the journals must be durable, and the request.
    name_waits: BTreeSet<(u64, u64)>,
    /// Of these, requests for runs and streams, which are answered when lanes have said something.
    run_waits: BTreeSet<u64>,
    rules: runs::Rules,
    /// Files whose end is on its way.
    ending: BTreeMap<u16, FileNumber>,
    messages: Vec<(u16, FilesMessage)>,
    /// When the lane began to serve, the first number behind all that it had seen.
    first_new_ordinal: Option<u64>,
}

/// All connections of a lane.
pub struct Service {
    core: Core,
    connections: BTreeMap<u64, Connection>,
    requests: BTreeMap<u64, Request>,
    next_request: u64,
}

impl Service {
    /// A service without connections.
    pub fn new(config: ServiceConfig) -> Self {
        let unit_max = (HEADER_BYTES + FRAME_TABLE_BYTES_MAX).max(config.fragment_bytes_max as usize);
        let has_names = config.has_files && config.lane == 0;
        let names = has_names.then(|| Namespace::new(config.lanes, config.read_only));
        let has_books = config.has_files;
        let core = Core {
            staging: Staging::new(config.staging_bytes, unit_max),
            config,
            now: Time::default(),
            chunks: Chunks::default(),
            schedule: Schedule::new(),
            busy: Default::default(),
            lane_is_busy: false,
            busy_since: Time::default(),
            for_reads: Default::default(),
            for_staging: VecDeque::new(),
            for_replies: VecDeque::new(),
            wants_memory: false,
            reclaimed: false,
            dirty: Vec::new(),
            out_bytes: 0,
            reads: [0; 4],
            reads_bytes: [0; 4],
            connections: [0; 4],
            stopping: false,
            asked: Asked::default(),
            asked_at: None,
            put_replies_busy: 0,
            lane_serves: false,
            rates: RateMeter::default(),
            events_leased: 0,
            told: ToldCounts::default(),
            events_released: BTreeMap::new(),
            undecided: lists::UndecidedCounts::default(),
            spare_entries: Vec::new(),
            openings: Openings::default(),
            names,
            name_waits: BTreeSet::new(),
            run_waits: BTreeSet::new(),
            rules: runs::Rules::new(has_books),
            ending: BTreeMap::new(),
            messages: Vec::new(),
            first_new_ordinal: None,
        };
        Service { core, connections: BTreeMap::new(), requests: BTreeMap::new(), next_request: runs::DISCARDS_REQUEST }
    }

    /// A connection that greeted with `request`. `id` was never used before.
    pub fn open(&mut self, id: u64, class: Class, request: u64) {
        let mut connection = Connection::new(class);
        self.core.connections[class_place(class)] += 1;
        let config = &self.core.config;
        let reply = HelloReply {
            protocol_version: PROTOCOL_VERSION,
            lanes: config.lanes,
            lane: config.lane,
            read_only: config.read_only,
            store: config.store,
            epoch: config.epoch,
            fragment_bytes_max: config.fragment_bytes_max,
            frame_payload_bytes_max: FRAME_PAYLOAD_BYTES_MAX as u32,
            credit_bytes: self.core.credit_bytes(),
            server: crate::SERVER_NAME.to_owned(),
            local: config.local,
        };
        debug_assert_ne!(config.lane, LANE_CONTROL);
        connection.send(&mut self.core.chunks, request, &reply);
        self.core.touch(id, &mut connection);
        let before = self.connections.insert(id, connection);
        assert!(before.is_none(), "connection {id} was opened twice");
    }

    /// A connection is gone. What it asked for takes its course.
    pub fn close(&mut self, id: u64) {
        let Some(mut connection) = self.connections.remove(&id) else { return };
        self.core.connections[class_place(connection.class)] -= 1;
        connection.receive.clear(&mut self.core.staging);
        self.core.openings.connection_is_gone(id, self.core.now);
        self.core.out_bytes -= connection.out_counted;
        self.core.wake_for_staging(&mut self.connections);
        self.core.wake_for_replies(&mut self.connections);
        if let Some(current) = connection.current {
            let request = self.requests.get_mut(&current).expect("what a connection is at is kept");
            request.offered = true;
            if request.waits == 0 {
                self.requests.remove(&current);
            }
        }
    }

    /// The state of the lane and of its connections.
    pub(crate) fn report(&mut self, lane: &impl LaneRequests, now: Time) -> LaneReport {
        self.core.now = now;
        self.core.report(lane)
    }

    /// Bytes of receive buffers in use.
    pub fn staging_bytes(&self) -> usize {
        self.core.staging.used()
    }

    /// Requests that are not answered.
    pub fn requests_pending(&self) -> usize {
        self.requests.len()
    }

    /// Whose reads from the drives are slowed, as the lane fills.
    pub fn pressure(&self) -> Pressure {
        self.core.asked.step
    }

    /// When the lane was looked at for that.
    pub fn looked_at(&self) -> Option<Time> {
        self.core.asked_at
    }

    /// How long writers are asked to wait after each put, in milliseconds.
    pub fn busy_ms(&self) -> u32 {
        self.core.asked.busy_ms
    }

    /// Bytes of puts that a writer may have unanswered from its next answer on.
    pub fn credit_bytes(&self) -> u32 {
        self.core.credit_bytes()
    }

    /// Answers to puts that asked the writer to wait, so far.
    pub fn put_replies_busy(&self) -> u64 {
        self.core.put_replies_busy
    }

    /// Whether readers wait that nothing will wake: there is room for reads, and none of their class is under way. Never so after a turn.
    pub fn has_stuck_readers(&self) -> bool {
        CLASSES.into_iter().any(|class| {
            let place = class_place(class);
            let waits = !self.core.for_reads[place].is_empty();
            waits && self.core.reads[place] == 0 && self.core.has_room_for_reads()
        })
    }

    /// No new requests are served from now on.
    pub fn stop(&mut self) {
        self.core.stopping = true;
    }

    /// A new turn: takes the lane's replies. `moved`: operations came back, so what it was too busy for is offered again.
    pub fn take_replies(&mut self, lane: &mut impl LaneRequests, now: Time, moved: bool) {
        self.core.now = now;
        self.core.schedule.begin_turn();
        self.core.reclaimed = false;
        if !self.core.for_staging.is_empty() {
            self.core.reclaim(&mut self.connections);
        }
        while let Some(reply) = lane.next_reply() {
            self.take_reply(reply);
        }
        // A lane that begins to serve may be full already.
        let serves = lane.serves_reads().is_ok();
        if self.core.lane_serves != serves || self.core.asked_at.is_none_or(|at| now >= at + COUNTS_AGE) {
            self.core.lane_serves = serves;
            let status = lane.status();
            if let Some(names) = &mut self.core.names {
                names.may_take(usize::try_from(status.index_bytes_max).unwrap_or(usize::MAX));
            }
            self.core.look_at(&status);
        }
        self.core.wake_for_reads(&mut self.connections);
        if moved || now >= self.core.busy_since + BUSY_RETRY {
            self.core.wake_busy(&mut self.connections);
        }
    }

    /// A connection has bytes to read.
    pub fn readable(&mut self, id: u64) {
        if let Some(connection) = self.connections.get_mut(&id)
            && connection.place == Place::Idle
        {
            self.core.queue(id, connection);
        }
    }

    /// The next connection that has something to do in this turn.
    pub fn next_connection(&mut self) -> Option<u64> {
        loop {
            let id = self.core.schedule.pop()?;
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.allowance = WORK_BYTES.min(self.core.schedule.left(connection.class));
                connection.worked = 0;
                return Some(id);
            }
        }
    }

    /// Whether a connection has something to do, in this turn or the next.
    pub fn has_work(&self) -> bool {
        !self.core.schedule.is_empty()
    }

    /// When requests are to be offered again that the lane was too busy for.
    pub fn next_retry(&self) -> Option<Time> {
        let busy = self.core.has_busy().then(|| self.core.busy_since + BUSY_RETRY);
        busy.into_iter().chain(self.files_due()).min()
    }

    /// Works on a connection. `readable`: whether more bytes can be read from it now.
    pub fn work(&mut self, id: u64, lane: &mut impl LaneRequests, readable: bool) -> Step {
        let Some(connection) = self.connections.get_mut(&id) else { return Step::Wait };
        let before = connection.allowance;
        let advance = loop {
            if connection.closing {
                connection.receive.clear(&mut self.core.staging);
                break Advance::Park(Place::Idle);
            }
            let advance = match connection.current {
                Some(current) => {
                    let request = self.requests.get_mut(&current).expect("what a connection is at is kept");
                    let advance = self.core.advance(current, connection, request, lane);
                    if matches!(advance, Advance::Done) {
                        connection.current = None;
                        request.offered = true;
                        if request.waits == 0 {
                            let request = self.requests.remove(&current).expect("looked at just now");
                            self.core.finish(id, connection, request);
                        }
                    }
                    advance
                }
                None => self.core.begin(id, connection, lane, |request| {
                    self.next_request += 1;
                    self.requests.insert(self.next_request, request);
                    self.next_request
                }),
            };
            if !matches!(advance, Advance::Done) {
                break advance;
            }
        };
        let class = connection.class;
        self.core.touch(id, connection);
        let worked = before.saturating_sub(connection.allowance);
        connection.worked += worked;
        self.core.schedule.worked(class, worked);
        let step = self.core.settle(id, connection, advance, readable);
        if self.core.wants_memory {
            self.core.reclaim(&mut self.connections);
        }
        if step == Step::Read {
            let limit = self.read_limit(id);
            self.connections.get_mut(&id).expect("worked on just now").read_limit = limit;
        }
        self.core.wake_for_staging(&mut self.connections);
        step
    }

    /// Where bytes of a connection are to be read to, after [`Step::Read`]; never empty then.
    pub fn read_space(&mut self, id: u64) -> &mut [u8] {
        let connection = self.connections.get_mut(&id).expect("only open connections are read");
        connection.receive.space(connection.read_limit)
    }

    /// That so many bytes were read into [`Service::read_space`].
    pub fn received(&mut self, id: u64, bytes: usize) {
        self.connections.get_mut(&id).expect("only open connections are read").filled(bytes);
    }

    /// Connections that have more to send than when this was last asked.
    pub fn take_dirty(&mut self, into: &mut Vec<u64>) {
        into.append(&mut self.core.dirty);
        for id in into.iter() {
            if let Some(connection) = self.connections.get_mut(id) {
                connection.dirty = false;
            }
        }
    }

    /// What a connection is to be sent, in order.
    pub fn pieces_to_send(&self, id: u64) -> impl Iterator<Item = &[u8]> {
        self.connections.get(&id).into_iter().flat_map(|connection| connection.out.pieces())
    }

    /// That the first `bytes` of [`Service::pieces_to_send`] were sent.
    pub fn sent(&mut self, id: u64, bytes: usize) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.out.advance(bytes, &mut self.core.chunks);
        connection.out_since = (!connection.out.is_empty()).then_some(self.core.now);
        self.core.count_out(connection);
        self.core.wake_for_out(id, connection);
        self.core.wake_for_replies(&mut self.connections);
    }

    /// Whether nothing more is served to a connection: when all is sent it is to be closed.
    pub fn is_closing(&self, id: u64) -> bool {
        self.connections.get(&id).is_none_or(|connection| connection.closing)
    }

    /// Whether a connection has something to be sent.
    pub fn has_to_send(&self, id: u64) -> bool {
        self.connections.get(&id).is_some_and(|connection| !connection.out.is_empty())
    }

    /// How far the next read of a connection may go: to the end of a fragment that the buffer holds, so that none of them is moved.
    fn read_limit(&self, id: u64) -> usize {
        let connection = &self.connections[&id];
        let capacity = connection.receive.capacity();
        let body = connection.current.and_then(|current| self.requests.get(&current)).map(|request| &request.body);
        match (body, &connection.skip) {
            (Some(Body::Put(put)), _) => put.read_limit(capacity, self.core.config.fragment_bytes_max),
            (Some(Body::FileWrite(write)), _) => write.read_limit(capacity, self.core.piece_bytes_max()),
            (_, Some(skip)) => skip.left.min(capacity),
            _ => connection.read_limit.min(capacity),
        }
    }
}

impl Core {
    /// What the lane asks of its clients from now on.
    fn look_at(&mut self, status: &LaneStatus) {
        let before = self.asked.step;
        self.asked = self.asked.after(status);
        self.asked_at = Some(self.now);
        self.rates.look(self.now, status);
        let step = self.asked.step;
        if step != before {
            let (lane, free, segments) = (self.config.lane, status.segments_free, status.segments_total);
            let words = step.words().unwrap_or("nobody's reads are slowed any more");
            tracing::info!(lane, segments_free = free, segments, "the lane has another step of pressure: {words}");
        }
    }

    fn report(&mut self, lane: &impl LaneRequests) -> LaneReport {
        let status = lane.status();
        let (rates, time_left_s) = self.rates.rates(self.now, &status);
        let rebuild_left_s = rates.rebuild_left_s(&status);
        self.rates.look(self.now, &status);
        let streams = lane.streams().into_iter().map(|view| StreamReport {
            events_released: self.events_released.get(&view.name).copied().unwrap_or(0),
            events_waiting: view.events,
            name: view.name,
        });
        LaneReport {
            status,
            streams: streams.collect(),
            events_leased: self.events_leased,
            told: self.told,
            time_left_s,
            rebuild_left_s,
            rates,
            pressure: self.asked.step,
            put_wait_ms: self.asked.busy_ms,
            put_replies_busy: self.put_replies_busy,
            connections: self.connections.into(),
            files_open: self.openings.len(),
            names: self.names.as_ref().map(Namespace::report).unwrap_or_default(),
            runs: self.names.as_ref().map(Namespace::runs).unwrap_or_default(),
            staging_bytes: self.staging.used(),
            staging_bytes_max: self.staging.max(),
            reply_bytes: self.out_bytes,
        }
    }

    /// Refuses a request whose payload, if it has one, is not taken.
    fn refuse(&mut self, connection: &mut Connection, request: u64, error: ErrorReply, payload_bytes: usize) {
        if payload_bytes == 0 {
            connection.send(&mut self.chunks, request, &error);
        } else {
            connection.skip = Some(Box::new(Skip { left: payload_bytes, request, error }));
        }
    }

    fn refuse_frame(&mut self, connection: &mut Connection, request: u64, error: &FrameError, payload_bytes: usize) {
        tracing::debug!(request, %error, "a frame was refused");
        self.refuse(connection, request, error.into(), payload_bytes);
    }

    /// Bytes of puts that a connection may have unanswered.
    fn credit_bytes(&self) -> u32 {
        let most = u64::from(self.config.credit_bytes);
        let writers = self.connections[class_place(Class::Readout)].max(1) as u64;
        let share = (LANE_CREDIT_BYTES / writers).clamp(CREDIT_BYTES_MIN.min(most), most);
        let credit = if self.asked.is_full() {
            share.min(CREDIT_BYTES_FULL)
        } else if self.staging.is_tight() {
            (share / 4).max(CREDIT_BYTES_MIN / 4).min(share)
        } else {
            share
        };
        u32::try_from(credit).unwrap_or(u32::MAX)
    }
}
