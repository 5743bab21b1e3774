//! What drives the sessions of a client: a clock, and one nonblocking socket for each session. It
//! decides nothing.

mod connection;
mod way;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_protocol::LANE_CONTROL;
use forebay_types::{FragmentId, PutOutcome, Time};
use mio::{Events, Poll, Token, Waker};

use crate::answer::PutResult;
use crate::config::{ClientConfig, ServerInfo};
use crate::local::LocalMemory;
use crate::session::{Answer, PutBytes, Request, Session, SessionConfig, SessionError, SessionEvent};
use connection::{Connection, Wrote};
use way::Way;

/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;

/// Bytes read from one connection before the others have their turn.
const READ_TURN_BYTES: usize = 4 << 20;

/// A connection on which answers are awaited and nothing moves for so long is opened anew.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);

/// What wakes a turn that waits; no link has it.
const WAKER: Token = Token(usize::MAX);

/// The connections of a client: the control connection and one for each lane that was needed.
pub(crate) struct Driver {
    config: ClientConfig,
    start: Instant,
    poll: Poll,
    ready: Events,
    /// The control connection, then lane 0, 1, ...
    links: Vec<Link>,
    info: Option<ServerInfo>,
    /// The server that said it.
    greeted_by: Option<SocketAddr>,
    way: Way,
    memory: LocalMemory,
    answers: BTreeMap<Ticket, Result<Answer, SessionError>>,
    /// Nobody wants the answers to these any more.
    forgotten: BTreeSet<Ticket>,
    put_results: Vec<PutResult>,
    puts_failed: Option<(usize, SessionError)>,
    /// When a session has something to do.
    next_turn: Time,
    /// Kept so that what woke a turn last is not lost with whoever woke it.
    waker: Option<TurnWaker>,
}

/// A request that was made ([`crate::Client::start`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(usize, u64); // connection and number

/// Ends the wait of the turn that a client is in, or is in next, from any thread.
#[derive(Clone, Debug)]
pub struct TurnWaker(Arc<Waker>);

impl TurnWaker {
    /// Ends it.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn wake(&self) -> io::Result<()> {
        self.0.wake()
    }
}

/// How long a turn may wait for the sockets.
#[derive(Clone, Copy, Debug)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until something happens or is due.
    Yes,
    /// The same, not longer than then.
    Until(Time),
}

struct Link {
    session: Session,
    socket: Option<Connection>,
    /// The socket on this machine that its last connection went to.
    local: Option<String>,
    is_open: bool,
    readable: bool,
    writable: bool,
    /// Attempts that were refused since the last one that was not, as nothing listens there.
    refused: usize,
}

impl Driver {
    pub(crate) fn new(config: ClientConfig) -> io::Result<Driver> {
        let mut driver = Driver {
            start: Instant::now(),
            poll: Poll::new()?,
            ready: Events::with_capacity(128),
            links: Vec::new(),
            info: None,
            greeted_by: None,
            way: Way::new(config.local),
            memory: LocalMemory::default(),
            answers: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            put_results: Vec::new(),
            puts_failed: None,
            next_turn: Time::default(),
            waker: None,
            config,
        };
        driver.add_link(LANE_CONTROL);
        Ok(driver)
    }

    pub(crate) fn now(&self) -> Time {
        let elapsed = Instant::now().duration_since(self.start);
        Time(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }

    pub(crate) fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// What the server said in its last greeting.
    pub(crate) fn info(&self) -> Option<&ServerInfo> {
        self.info.as_ref()
    }

    /// The server of the last greeting.
    pub(crate) fn greeted_by(&self) -> Option<SocketAddr> {
        self.greeted_by
    }

    /// The memory that servers of this machine share.
    pub(crate) fn memory(&self) -> &LocalMemory {
        &self.memory
    }

    fn add_link(&mut self, lane: u16) {
        let config = SessionConfig {
            lane,
            class: self.config.class,
            name: self.config.name.clone(),
            batch_bytes: self.config.batch_bytes,
            batch_delay: self.config.batch_delay,
            deadline: self.config.deadline,
            connect_timeout: self.config.connect_timeout,
            silence_timeout: SILENCE_TIMEOUT,
            seed: self.config.seed ^ u64::from(lane) << 48,
            store: self.info.as_ref().map(|info| (info.store, info.lanes)),
        };
        let session = Session::new(config, self.now());
        self.links.push(Link {
            session,
            socket: None,
            local: None,
            is_open: false,
            readable: false,
            writable: false,
            refused: 0,
        });
    }

    /// The link of a lane. Links without work hold no connection.
    fn link_of(&mut self, lane: u16) -> usize {
        if lane == LANE_CONTROL {
            return 0;
        }
        while self.links.len() <= 1 + usize::from(lane) {
            self.add_link((self.links.len() - 1) as u16);
        }
        1 + usize::from(lane)
    }

    /// Queues a request to a lane, or to the control connection.
    pub(crate) fn ask(&mut self, lane: u16, request: Request) -> Result<Ticket, SessionError> {
        let (now, link) = (self.now(), self.link_of(lane));
        Ok(Ticket(link, self.links[link].session.ask(now, request)?))
    }

    /// Waits for the answers to all these requests; while no server has greeted, not beyond the moment at which nothing listens at any of
    /// `addresses`, when these are given.
    pub(crate) fn wait(
        &mut self,
        tickets: &[Ticket],
        addresses: Option<usize>,
    ) -> io::Result<Vec<Result<Answer, SessionError>>> {
        while !tickets.iter().all(|ticket| self.answers.contains_key(ticket)) {
            self.turn(Wait::Yes)?;
            let refused = self.links[0].refused;
            if self.info.is_none() && addresses.is_some_and(|addresses| refused >= addresses) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
        }
        Ok(tickets.iter().map(|ticket| self.answers.remove(ticket).expect("it was just there")).collect())
    }

    /// What ends the wait of a turn.
    pub(crate) fn waker(&mut self) -> io::Result<TurnWaker> {
        if self.waker.is_none() {
            self.waker = Some(TurnWaker(Arc::new(Waker::new(self.poll.registry(), WAKER)?)));
        }
        Ok(self.waker.clone().expect("made above"))
    }

    /// The answer to one of the requests, if any is there.
    pub(crate) fn next_answer(&mut self) -> Option<(Ticket, Result<Answer, SessionError>)> {
        self.answers.pop_first()
    }

    /// The answer to a request, once it is there.
    pub(crate) fn take_answer(&mut self, ticket: Ticket) -> Option<Result<Answer, SessionError>> {
        self.answers.remove(&ticket)
    }

    /// Nobody wants the answer to this request any more.
    pub(crate) fn forget(&mut self, ticket: Ticket) {
        if self.answers.remove(&ticket).is_none() {
            self.forgotten.insert(ticket);
        }
    }

    /// Keeps the connections going for `time`.
    pub(crate) fn rest(&mut self, time: Duration) -> io::Result<()> {
        let until = self.now() + time;
        while self.now() < until {
            self.turn(Wait::Until(until))?;
        }
        Ok(())
    }

    /// Whether a put of this lane can be taken without waiting.
    pub(crate) fn has_room(&mut self, lane: u16) -> bool {
        let link = self.link_of(lane);
        let session = &self.links[link].session;
        session.has_room() || session.failure().is_some()
    }

    /// Queues a put, and sends when a batch is full or something is due.
    pub(crate) fn put(
        &mut self,
        lane: u16,
        id: FragmentId,
        expected: u16,
        payload: PutBytes<'_>,
        crc: u32,
    ) -> Result<io::Result<()>, SessionError> {
        let (now, link) = (self.now(), self.link_of(lane));
        let session = &mut self.links[link].session;
        let ready = session.ready_batches();
        session.put(now, id, expected, payload, crc)?;
        let filled = session.ready_batches() > ready;
        self.next_turn = self.next_turn.min(now + self.config.batch_delay);
        Ok(if filled || now >= self.next_turn { self.turn(Wait::No) } else { Ok(()) })
    }

    pub(crate) fn take_put_results(&mut self, into: &mut Vec<PutResult>) {
        into.append(&mut self.put_results);
    }

    /// Puts that were refused or given up without an answer since the last call, and why the first were.
    pub(crate) fn take_puts_failed(&mut self) -> Option<(usize, SessionError)> {
        self.puts_failed.take()
    }

    pub(crate) fn pending_puts(&self) -> usize {
        self.links.iter().map(|link| link.session.pending_puts()).sum()
    }

    pub(crate) fn puts_in_flight(&self) -> usize {
        self.links.iter().map(|link| link.session.puts_in_flight()).sum()
    }

    pub(crate) fn puts_wait_for(&self) -> Option<PutOutcome> {
        self.links.iter().find_map(|link| link.session.puts_wait_for())
    }

    /// Lets all batches go.
    pub(crate) fn flush(&mut self) {
        let now = self.now();
        self.links.iter_mut().for_each(|link| link.session.flush(now));
    }

    /// One turn: sends what there is, waits as told, takes what came.
    pub(crate) fn turn(&mut self, wait: Wait) -> io::Result<()> {
        for link in 0..self.links.len() {
            self.advance(link)?;
        }
        self.poll(wait)?;
        for link in 0..self.links.len() {
            // What came is read before deadlines are looked at: the caller may have been away for long
            // while the answers lay in the socket.
            self.read(link);
            let now = self.now();
            self.links[link].session.tick(now);
            self.advance(link)?;
            self.collect(link);
        }
        self.next_turn =
            self.links.iter().filter_map(|link| link.session.next_deadline()).min().unwrap_or(Time(u64::MAX));
        Ok(())
    }

    fn poll(&mut self, wait: Wait) -> io::Result<()> {
        let until = match wait {
            Wait::No => Some(Time::default()),
            Wait::Yes => None,
            Wait::Until(time) => Some(time),
        };
        let now = self.now();
        let busy = self.links.iter().any(|link| link.is_open && link.readable);
        let due = self.links.iter().filter_map(|link| link.session.next_deadline()).chain(until).min();
        let timeout = if busy { Some(Duration::ZERO) } else { due.map(|due| due.since(now)) };
        match self.poll.poll(&mut self.ready, timeout.map(round_up)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        for event in self.ready.iter().filter(|event| event.token() != WAKER) {
            let link = &mut self.links[event.token().0];
            link.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
            link.writable |= event.is_writable() || event.is_write_closed() || event.is_error();
        }
        Ok(())
    }

    /// Opens or closes the connection as its session wants, and sends.
    fn advance(&mut self, index: usize) -> io::Result<()> {
        let now = self.now();
        let link = &mut self.links[index];
        if link.socket.is_some() && !link.session.wants_connection() {
            link.close();
        }
        if link.socket.is_none() && link.session.should_connect(now) {
            link.session.connecting(now);
            self.connect(index, now)?;
        }
        let link = &mut self.links[index];
        link.finish_connecting(now);
        link.write(now);
        Ok(())
    }

    fn connect(&mut self, index: usize, now: Time) -> io::Result<()> {
        if let Some(lost) = self.links[index].local.take() {
            self.does_not_serve(lost);
        }
        let local = self.way.local().filter(|_| index > 0).map(str::to_owned);
        let local = local.and_then(|name| self.connect_locally(index, name));
        let link = &mut self.links[index];
        let attempt = link.session.connecting_attempts();
        match local.map_or_else(|| connect(&self.config.address, attempt), Ok) {
            Ok(mut socket) => {
                socket.register(index, self.poll.registry())?;
                link.socket = Some(socket);
            }
            Err(error) => link.not_connected(now, &error),
        }
        Ok(())
    }

    fn connect_locally(&mut self, index: usize, name: String) -> Option<Connection> {
        match Connection::local(&name, self.memory.clone()) {
            Ok(connection) => {
                self.links[index].local = Some(name);
                Some(connection)
            }
            Err(error) => {
                tracing::debug!(%error, "the server is not reached by its socket on this machine");
                self.does_not_serve(name);
                None
            }
        }
    }

    fn does_not_serve(&mut self, name: String) {
        self.way.does_not_serve(name);
        self.memory.want(self.way.local().is_some());
    }

    fn read(&mut self, index: usize) {
        let now = self.now();
        let link = &mut self.links[index];
        let was_up = link.session.is_up();
        link.finish_connecting(now);
        link.read(now);
        if !was_up && link.session.is_up() {
            self.greeted(index, now);
        }
    }

    /// A server greeted on a connection by the network: if it is on this machine, lanes are served by its other socket.
    fn greeted(&mut self, index: usize, now: Time) {
        let Link { session, socket, .. } = &mut self.links[index];
        // One on this machine has no address beside that of the connection by the network that came before.
        let Some(socket @ Connection::Network(_)) = socket else { return };
        self.greeted_by = socket.peer();
        let number = session.greeting().map_or(0, |greeting| greeting.local);
        self.way.greeted(socket.here(), self.greeted_by, number);
        let is_local = self.way.local().is_some();
        self.memory.want(is_local);
        if is_local && index > 0 {
            // Nothing was asked on this one yet.
            self.links[index].close();
            self.links[index].session.reconnect(now);
        }
    }

    fn collect(&mut self, index: usize) {
        let session = &mut self.links[index].session;
        session.take_put_results(&mut self.put_results);
        while let Some(event) = session.take_event() {
            match event {
                SessionEvent::Greeted(reply) => self.info = Some(ServerInfo::from(&reply)),
                SessionEvent::Answer { request, answer } => {
                    answered(&mut self.answers, &mut self.forgotten, Ticket(index, request), Ok(answer));
                }
                SessionEvent::Failed { request, error } => {
                    answered(&mut self.answers, &mut self.forgotten, Ticket(index, request), Err(error));
                }
                SessionEvent::PutsFailed { puts, error } => {
                    let failed = self.puts_failed.get_or_insert((0, error));
                    failed.0 += puts;
                }
            }
        }
    }
}

/// Keeps an answer for whoever wants it.
fn answered(
    answers: &mut BTreeMap<Ticket, Result<Answer, SessionError>>,
    forgotten: &mut BTreeSet<Ticket>,
    ticket: Ticket,
    answer: Result<Answer, SessionError>,
) {
    if !forgotten.remove(&ticket) {
        answers.insert(ticket, answer);
    }
}

impl Link {
    fn close(&mut self) {
        self.socket = None; // which takes it out of the poll too
        (self.is_open, self.readable, self.writable) = (false, false, false);
    }

    fn lost(&mut self, now: Time, why: &str) {
        self.close();
        self.session.disconnected(now, why);
    }

    fn not_connected(&mut self, now: Time, error: &io::Error) {
        // An address that this machine cannot reach at all says nothing about the others.
        self.refused += usize::from(error.kind() == io::ErrorKind::ConnectionRefused);
        self.lost(now, &error.to_string());
    }

    /// A socket that becomes writable has connected, or failed to.
    fn finish_connecting(&mut self, now: Time) {
        let Some(socket) = self.socket.as_ref().filter(|_| !self.is_open && self.writable) else { return };
        match socket.stands() {
            Ok(false) => {}
            Ok(true) => {
                (self.is_open, self.refused) = (true, 0);
                self.session.connected(now);
            }
            Err(error) => self.not_connected(now, &error),
        }
    }

    fn write(&mut self, now: Time) {
        while self.is_open && self.writable {
            let Some(socket) = &mut self.socket else { return };
            let mut pieces = self.session.pieces_to_send().peekable();
            if pieces.peek().is_none() && !socket.holds_some() {
                return;
            }
            match socket.write(pieces) {
                Ok(Wrote::Bytes(bytes)) => self.session.sent(now, bytes),
                Ok(Wrote::Nothing) => self.writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WriteZero => {
                    return self.lost(now, "the server closed the connection");
                }
                Err(error) => return self.lost(now, &error.to_string()),
            }
        }
    }

    fn read(&mut self, now: Time) {
        let mut taken = 0;
        while self.is_open && self.readable && taken < READ_TURN_BYTES {
            let Some(socket) = &mut self.socket else { return };
            match socket.read(self.session.read_space(READ_BYTES)) {
                Ok(0) => return self.lost(now, "the server closed the connection"),
                Ok(bytes) => {
                    taken += bytes;
                    self.session.received_in_place(now, bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.lost(now, &error.to_string()),
            }
        }
    }
}

/// Starts to connect, to another of the server's addresses with each attempt.
fn connect(address: &str, attempt: u32) -> io::Result<Connection> {
    let addresses = resolve(address)?;
    Connection::to(addresses[attempt as usize % addresses.len()])
}

/// The addresses of `HOST:PORT`, or of several with commas between them, at least one. One that cannot be resolved now is left out as long as others can.
pub(crate) fn resolve(address: &str) -> io::Result<Vec<SocketAddr>> {
    let (mut addresses, mut failed) = (Vec::new(), None);
    for one in address.split(',') {
        match one.trim().to_socket_addrs() {
            Ok(found) => addresses.extend(found),
            Err(error) => failed = Some(error),
        }
    }
    match (addresses.is_empty(), failed) {
        (false, _) => Ok(addresses),
        (true, Some(error)) => Err(error),
        (true, None) => Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address")),
    }
}

/// The poll counts whole milliseconds; rounding down would turn the last one into a busy loop.
fn round_up(timeout: Duration) -> Duration {
    Duration::from_millis(u64::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
}
