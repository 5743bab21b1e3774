//! The client's side of one connection to one lane, as a machine without clock, sockets or randomness.
//!
//! What drives it:
//! - opens a connection when [`Session::should_connect`], saying [`Session::connecting`] and then
//!   [`Session::connected`]; closes it when it is open and not [`Session::wants_connection`];
//! - writes [`Session::to_send`] and says [`Session::sent`]; reads into [`Session::read_space`] and says
//!   [`Session::received_in_place`], or hands bytes to [`Session::received`];
//! - says [`Session::disconnected`] when the connection is lost;
//! - calls [`Session::tick`] not later than [`Session::next_deadline`];
//! - takes [`Session::take_put_results`] and [`Session::take_event`].
//!
//! What it promises: each put is reported once, each request ends in one event; what is not answered is
//! sent again after a reconnect; requests end at their deadline, whatever the
//! server does.

mod answer;
mod error;
mod outbox;
mod payload;
mod puts;
mod random;
mod receiving;
mod replies;
mod request;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use forebay_protocol::{
    Class, FrameHeader, HEADER_BYTES, Hello, HelloReply, Kind, Message, PROTOCOL_VERSION, decode_header,
};
use forebay_types::{FragmentId, PutOutcome, StoreUuid, Time};

pub use answer::Answer;
use answer::Collector;
pub use error::{Part, SessionError};
use outbox::{FrameBytes, Outbox, Sending};
use payload::Payload;
pub use payload::PutBytes;
use puts::Puts;
pub(crate) use random::{Backoff, SplitMix64};
use receiving::{ReadBlocks, Receiving};
pub use request::Request;

use crate::answer::PutResult;

/// What went wrong last when nothing has happened yet.
const NEVER_TRIED: &str = "no connection was tried";

/// Connections in a row that brought nothing but nonsense before the server is given up.
const NONSENSE_MAX: u32 = 3;

/// How often an answer with wrong bytes is asked for again.
const DAMAGED_MAX: u32 = 3;

/// The waits between attempts to connect.
const RECONNECT: Backoff = Backoff { min: Duration::from_millis(10), max: Duration::from_secs(2) };

/// The waits before a request is sent again that the server could not serve for now.
const RESEND: Backoff = Backoff { min: Duration::from_millis(20), max: Duration::from_secs(2) };

/// Memory for answers that a session keeps while it waits for none.
const RECEIVE_KEPT_BYTES: usize = 4 << 20;

/// How a session behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// The lane, or [`forebay_protocol::LANE_CONTROL`].
    pub lane: u16,
    /// What the client is for.
    pub class: Class,
    /// The name in the server's log.
    pub name: String,
    /// A batch of puts leaves when it has so many bytes.
    pub batch_bytes: usize,
    /// A batch of puts leaves when its first put is so old and the credit allows.
    pub batch_delay: Duration,
    /// How long a request is repeated before it is given up, counted from the last part of its answer that came; `None`: for ever.
    pub deadline: Option<Duration>,
    /// How long connecting and greeting may take before they are tried again.
    pub connect_timeout: Duration,
    /// A connection on which requests wait and nothing moves for so long is opened anew.
    pub silence_timeout: Duration,
    /// Seeds the jitter of all waits.
    pub seed: u64,
    /// The store and the number of lanes that must greet; `None`: those of the first greeting.
    pub store: Option<(StoreUuid, u16)>,
}

/// What a session tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// The server greeted.
    Greeted(HelloReply),
    /// A request was answered.
    Answer {
        /// What [`Session::ask`] gave.
        request: u64,
        /// The answer.
        answer: Answer,
    },
    /// A request was given up.
    Failed {
        /// What [`Session::ask`] gave.
        request: u64,
        /// Why.
        error: SessionError,
    },
    /// Puts were refused or given up; their results say which. This says why.
    PutsFailed {
        /// How many.
        puts: usize,
        /// Why.
        error: SessionError,
    },
}

enum Link {
    Down { retry_at: Time },
    Connecting { since: Time },
    Greeting { since: Time, request: u64 },
    Up,
    Failed(SessionError),
}

/// A request other than a put that has no answer yet.
struct Call {
    /// The number that whoever asked was given.
    asked_as: u64,
    name: &'static str,
    /// Its frame but for the payload, sent as it is however often, but for its number.
    head: Vec<u8>,
    payload: Payload,
    is_repeatable: bool,
    /// It left whole by a connection that is gone, and is not repeatable: it may have been done. Only the server that it went to knows, as long as it runs.
    is_doubtful: bool,
    /// It went to the outbox of the connection that is open, and was not answered there.
    is_out: bool,
    since: Time,
    /// Not in the outbox and not sent: to be sent again then.
    resend_at: Option<Time>,
    resends: u32,
    damaged: u32,
    collector: Collector,
}

impl Call {
    fn bytes(&self) -> FrameBytes<'_> {
        FrameBytes { head: &self.head, payload: Some(&self.payload) }
    }
}

/// One connection of the client. See the module's description.
pub struct Session {
    config: SessionConfig,
    link: Link,
    greeting: Option<HelloReply>,
    received: Receiving,
    blocks: ReadBlocks,
    outbox: Outbox,
    next_request: u64,
    puts: Puts,
    calls: BTreeMap<u64, Call>,
    put_results: Vec<PutResult>,
    events: VecDeque<SessionEvent>,
    random: SplitMix64,
    /// Connections that failed since the last answer.
    failures: u32,
    nonsense: u32,
    last_problem: String,
    /// When something last moved on the connection.
    moved: Time,
}

impl Session {
    /// A session that has not connected.
    pub fn new(config: SessionConfig, now: Time) -> Self {
        Session {
            link: Link::Down { retry_at: now },
            greeting: None,
            received: Receiving::default(),
            blocks: ReadBlocks::new(now),
            outbox: Outbox::default(),
            next_request: 1,
            puts: Puts::new(config.batch_bytes, config.batch_delay, config.deadline),
            calls: BTreeMap::new(),
            put_results: Vec::new(),
            events: VecDeque::new(),
            random: SplitMix64(config.seed),
            failures: 0,
            nonsense: 0,
            last_problem: NEVER_TRIED.to_owned(),
            moved: now,
            config,
        }
    }

    /// The last greeting of the server.
    pub fn greeting(&self) -> Option<&HelloReply> {
        self.greeting.as_ref()
    }

    /// Why the session can no longer be used, if so: every put and request fails at once then.
    pub fn failure(&self) -> Option<&SessionError> {
        match &self.link {
            Link::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// Whether the server greeted and the connection stands.
    pub fn is_up(&self) -> bool {
        matches!(self.link, Link::Up)
    }

    /// Whether an open connection is still wanted; if not, it is to be closed.
    pub fn wants_connection(&self) -> bool {
        matches!(self.link, Link::Connecting { .. } | Link::Greeting { .. } | Link::Up)
    }

    /// Whether a connection is to be opened now.
    pub fn should_connect(&self, now: Time) -> bool {
        matches!(self.link, Link::Down { retry_at } if retry_at <= now) && self.has_work()
    }

    /// Whether puts or requests wait for something.
    pub fn has_work(&self) -> bool {
        !self.calls.is_empty() || self.puts.pending() > 0
    }

    /// Attempts to connect that failed since the last answer.
    pub fn connecting_attempts(&self) -> u32 {
        self.failures
    }

    /// A connection is being opened.
    pub fn connecting(&mut self, now: Time) {
        self.link = Link::Connecting { since: now };
    }

    /// The connection is open; the greeting goes first.
    pub fn connected(&mut self, now: Time) {
        let request = self.take_request();
        let hello = Hello {
            protocol_version: PROTOCOL_VERSION,
            lane: self.config.lane,
            class: self.config.class,
            name: self.config.name.clone(),
        };
        let mut frame = Vec::new();
        hello.encode(request, &mut frame);
        self.outbox.clear();
        self.received.clear();
        self.outbox.push(Sending::Bytes(frame));
        self.link = Link::Greeting { since: now, request };
        self.moved = now;
        // What an operator is told when nothing else goes wrong before the deadline.
        if self.last_problem == NEVER_TRIED {
            self.last_problem = "the connection stands, and the server is still busy with it".to_owned();
        }
    }

    /// The connection was lost, or could not be opened.
    pub fn disconnected(&mut self, now: Time, why: &str) {
        if self.wants_connection() {
            self.reset(now, why.to_owned());
        }
    }

    /// The connection was closed to go on by another one to the same server: nothing went wrong.
    pub fn reconnect(&mut self, now: Time) {
        let failures = self.failures;
        self.reset(now, "the connection was given up for another one".to_owned());
        (self.failures, self.link) = (failures, Link::Down { retry_at: now });
    }

    /// Queues a put; its result comes with [`Session::take_put_results`]. Whoever calls waits for
    /// [`Session::has_room`] first, which is how the server's backpressure reaches the writer.
    ///
    /// # Errors
    /// When the session can no longer be used.
    pub fn put<'a>(
        &mut self,
        now: Time,
        id: FragmentId,
        expected: u16,
        payload: impl Into<PutBytes<'a>>,
        crc: u32,
    ) -> Result<(), SessionError> {
        if let Link::Failed(error) = &self.link {
            return Err(error.clone());
        }
        self.puts.push(now, id, expected, payload.into(), crc, &mut self.next_request);
        Ok(())
    }

    /// Whether fewer bytes of puts wait to be sent than two batches.
    pub fn has_room(&self) -> bool {
        self.puts.has_room()
    }

    /// Batches that are complete and wait to leave.
    pub fn ready_batches(&self) -> usize {
        self.puts.ready_batches()
    }

    /// Puts without a result.
    pub fn pending_puts(&self) -> usize {
        self.puts.pending()
    }

    /// Of these, the puts that have left whole on the connection that is open, and are not answered.
    pub fn puts_in_flight(&self) -> usize {
        self.puts.sent(|request| !self.outbox.holds(request))
    }

    /// What the server last said of a put that waits to be tried again; `None` when there is none.
    pub fn puts_wait_for(&self) -> Option<PutOutcome> {
        self.puts.wait_for()
    }

    /// Lets the batch go that is being filled.
    pub fn flush(&mut self, now: Time) {
        self.puts.close_batch(&mut self.next_request);
        self.pump(now);
    }

    /// Appends the results of puts that are there.
    pub fn take_put_results(&mut self, into: &mut Vec<PutResult>) {
        into.append(&mut self.put_results);
    }

    /// Queues a request; the number returned comes back in its event.
    ///
    /// # Errors
    /// When the session can no longer be used.
    pub fn ask(&mut self, now: Time, request: Request) -> Result<u64, SessionError> {
        if let Link::Failed(error) = &self.link {
            return Err(error.clone());
        }
        self.silence_starts(now);
        let number = self.take_request();
        let mut head = Vec::new();
        request.encode(number, &mut head);
        let call = Call {
            asked_as: number,
            name: request.name(),
            head,
            payload: request.payload(),
            is_repeatable: request.is_repeatable(),
            is_doubtful: false,
            is_out: self.is_up(),
            since: now,
            resend_at: None,
            resends: 0,
            damaged: 0,
            collector: Collector::new(request),
        };
        self.calls.insert(number, call);
        if self.is_up() {
            self.outbox.push(Sending::Call(number));
        }
        Ok(number)
    }

    /// What happened, in order.
    pub fn take_event(&mut self) -> Option<SessionEvent> {
        self.events.pop_front()
    }

    /// The next bytes for the connection; empty when there is nothing to send.
    pub fn to_send(&self) -> &[u8] {
        self.pieces_to_send().next().unwrap_or_default()
    }

    /// All bytes for the connection, in order, where they lie.
    pub fn pieces_to_send(&self) -> impl Iterator<Item = &[u8]> {
        self.outbox.pieces(|sending| match sending {
            Sending::Bytes(head) => FrameBytes { head, payload: None },
            Sending::Call(request) => self.calls.get(request).map_or(FrameBytes::default(), Call::bytes),
            Sending::Put(request) => self.puts.frame(*request),
        })
    }

    /// That the first `bytes` of what was to be sent were sent.
    pub fn sent(&mut self, now: Time, bytes: usize) {
        let (calls, puts) = (&self.calls, &self.puts);
        self.outbox.advance(bytes, |sending| match sending {
            Sending::Bytes(bytes) => bytes.len(),
            Sending::Call(request) => calls.get(request).map_or(0, |call| call.bytes().len()),
            Sending::Put(request) => puts.frame(*request).len(),
        });
        if bytes > 0 {
            self.moved = now;
        }
    }

    /// Room to read into: for `bytes` or more, unless fewer are best.
    pub fn read_space(&mut self, bytes: usize) -> &mut [u8] {
        self.received.space(bytes)
    }

    /// That `bytes` were read into [`Session::read_space`].
    pub fn received_in_place(&mut self, now: Time, bytes: usize) {
        self.received.filled(bytes);
        self.moved = now;
        self.take_frames(now);
        self.pump(now);
        if self.calls.is_empty() {
            self.received.shrink(RECEIVE_KEPT_BYTES);
        }
        self.blocks.give_back_unused(now);
    }

    /// Bytes that arrived.
    pub fn received(&mut self, now: Time, mut bytes: &[u8]) {
        loop {
            let space = self.received.space(bytes.len());
            let (arrived, behind) = bytes.split_at(bytes.len().min(space.len()));
            space[..arrived.len()].copy_from_slice(arrived);
            self.received_in_place(now, arrived.len());
            if behind.is_empty() {
                return;
            }
            bytes = behind;
        }
    }

    /// When [`Session::tick`] or a connection is due; `None`: nothing is waited for but bytes.
    pub fn next_deadline(&self) -> Option<Time> {
        let link = match &self.link {
            Link::Down { retry_at } => self.has_work().then_some(*retry_at),
            Link::Connecting { since } | Link::Greeting { since, .. } => Some(*since + self.config.connect_timeout),
            Link::Up => self.awaits_answers().then_some(self.moved + self.config.silence_timeout),
            Link::Failed(_) => None,
        };
        let calls = self.calls.values().flat_map(|call| [self.expiry(call), call.resend_at]).flatten().min();
        [link, calls, self.puts.next_deadline(self.is_up())].into_iter().flatten().min()
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Time) {
        match self.link {
            Link::Connecting { since } | Link::Greeting { since, .. } if now >= since + self.config.connect_timeout => {
                self.reset(now, format!("no greeting within {:?}", self.config.connect_timeout));
            }
            Link::Up if self.awaits_answers() && now >= self.moved + self.config.silence_timeout => {
                self.reset(now, format!("the server was silent for {:?}", self.config.silence_timeout));
            }
            _ => {}
        }
        self.tick_calls(now);
        let given_up = self.puts.expire(now, &mut self.put_results);
        if given_up > 0 {
            let waited = self.config.deadline.unwrap_or_default();
            let error = SessionError::Deadline { request: Kind::Put.name(), waited, last: self.last_problem.clone() };
            self.events.push_back(SessionEvent::PutsFailed { puts: given_up, error });
        }
        self.pump(now);
    }

    /// What went wrong last on the connection.
    pub fn last_problem(&self) -> &str {
        &self.last_problem
    }

    fn take_request(&mut self) -> u64 {
        self.next_request += 1;
        self.next_request - 1
    }

    fn awaits_answers(&self) -> bool {
        self.puts.in_flight() > 0 || self.calls.values().any(|call| call.resend_at.is_none())
    }

    /// Silence counts from when the first answer is waited for.
    fn silence_starts(&mut self, now: Time) {
        if !self.awaits_answers() {
            self.moved = now;
        }
    }

    fn expiry(&self, call: &Call) -> Option<Time> {
        self.config.deadline.map(|deadline| call.since + deadline)
    }

    /// Moves puts on: retries that are due, batches that are old enough, batches that have credit.
    fn pump(&mut self, now: Time) {
        self.puts.advance(now, self.is_up(), &mut self.next_request, &mut self.put_results);
        if self.is_up() {
            self.silence_starts(now);
            while let Some(request) = self.puts.start_next(now) {
                self.outbox.push(Sending::Put(request));
            }
        }
    }

    fn tick_calls(&mut self, now: Time) {
        let late: Vec<u64> = self
            .calls
            .iter()
            .filter(|(_, call)| self.expiry(call).is_some_and(|at| at <= now))
            .map(|(n, _)| *n)
            .collect();
        for request in late {
            let call = &self.calls[&request];
            let error = SessionError::Deadline {
                request: call.name,
                waited: now.since(call.since),
                last: self.last_problem.clone(),
            };
            self.fail_call(request, error);
        }
        if self.is_up() {
            self.silence_starts(now);
            let is_due = |call: &Call| call.resend_at.is_some_and(|at| at <= now);
            let due: Vec<u64> = self.calls.iter().filter(|(_, call)| is_due(call)).map(|(n, _)| *n).collect();
            due.into_iter().for_each(|request| self.send_again(request));
        }
    }

    /// On the same connection under another number: a request that arrived twice may be refused once and answered once, and what still comes of
    /// that answer is no part of the next one.
    fn send_again(&mut self, request: u64) {
        let number = self.take_request();
        let mut call = self.calls.remove(&request).expect("it waits for that");
        let header = call.head.first_chunk_mut::<HEADER_BYTES>().expect("a whole header");
        *header = FrameHeader { request: number, ..decode_header(header).expect("encoded here") }.encode();
        (call.resend_at, call.is_out) = (None, true);
        self.calls.insert(number, call);
        self.outbox.push(Sending::Call(number));
    }

    fn fail_call(&mut self, request: u64, error: SessionError) {
        if let Some(call) = self.calls.remove(&request) {
            self.outbox.forget_frame(request, call.head, &call.payload);
            // Whatever is said of it now says nothing of what became of it before.
            let error = match error {
                SessionError::Unknown { .. } => error,
                error if call.is_doubtful => SessionError::Unknown { request: call.name, last: error.to_string() },
                error => error,
            };
            self.events.push_back(SessionEvent::Failed { request: call.asked_as, error });
        }
    }

    /// The connection is given up; what was not answered will be sent again.
    fn reset(&mut self, now: Time, problem: String) {
        self.last_problem = problem;
        self.received.clear();
        let outbox = &self.outbox;
        for (request, call) in &mut self.calls {
            call.is_doubtful |= call.is_out && !call.is_repeatable && !outbox.holds(*request);
        }
        self.outbox.clear();
        self.puts.connection_lost();
        for call in self.calls.values_mut() {
            (call.resend_at, call.is_out) = (None, false);
            call.collector.restart();
        }
        let retry_at = now + RECONNECT.delay(self.failures, &mut self.random);
        self.failures = self.failures.saturating_add(1);
        self.link = Link::Down { retry_at };
    }

    /// Nobody knows any more what became of a request that may have been done.
    fn fail_unknown(&mut self, request: u64, last: &str) {
        let name = self.calls.get(&request).map_or("", |call| call.name);
        self.fail_call(request, SessionError::Unknown { request: name, last: last.to_owned() });
    }

    /// Another start of the server must not be asked for what may have been done by the one before.
    fn fail_doubtful(&mut self) {
        let doubtful = self.calls.iter().filter(|(_, call)| call.is_doubtful).map(|(request, _)| *request);
        for request in doubtful.collect::<Vec<u64>>() {
            self.fail_unknown(request, "the server was started anew before it had answered");
        }
    }

    /// The session is given up: all that waits fails.
    fn fail(&mut self, now: Time, error: SessionError) {
        self.reset(now, error.to_string());
        let puts = self.puts.give_up(now, &mut self.put_results);
        if puts > 0 {
            self.events.push_back(SessionEvent::PutsFailed { puts, error: error.clone() });
        }
        while let Some((request, _)) = self.calls.first_key_value() {
            self.fail_call(*request, error.clone());
        }
        self.link = Link::Failed(error);
    }
}
