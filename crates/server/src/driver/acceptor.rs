//! The thread that accepts connections and finds out which lane they are for.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use forebay_protocol::{ErrorCode, ErrorReply, Hello, LANE_CONTROL, Message as _};
use mio::net::{TcpListener, UnixListener};
use mio::{Events, Interest, Poll};

use super::inbox::{ClientName, ConnectionSlot, FIRST_CONNECTION, Greeted, Inbox, Message, READY, WAKE, Whereabouts};
use super::local;
use super::socket::{Got, Socket};
use crate::config::ServerConfig;
use crate::greeting::{Greeting, NotGreeted};
use crate::limits::{GREETING_TIMEOUT, GREETINGS_MAX, LINGER};
use crate::open_files::open_files_max;

/// After so long accepting is tried again when the system could give no socket.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The same is said again after so long.
const TOLD: Duration = Duration::from_secs(10);

/// Something that may happen often and is said seldom.
#[derive(Default)]
struct Seldom {
    told: Option<Instant>,
    since: u64,
}

impl Seldom {
    /// It happened; how often since it was last said, if it is to be said now.
    fn happened(&mut self) -> Option<u64> {
        self.since += 1;
        if self.told.is_some_and(|told| told.elapsed() < TOLD) {
            return None;
        }
        self.told = Some(Instant::now());
        Some(std::mem::take(&mut self.since))
    }
}

struct Guest {
    socket: Socket,
    peer: Whereabouts,
    greeting: Greeting,
    until: Instant,
    /// It was told why it is not taken.
    leaving: bool,
}

/// Accepts, greets, hands over.
pub(crate) struct Acceptor {
    poll: Poll,
    inbox: Arc<Inbox>,
    listener: TcpListener,
    /// Takes clients on this machine.
    local: Option<UnixListener>,
    config: ServerConfig,
    lanes: Vec<Arc<Inbox>>,
    control: Arc<Inbox>,
    connections: Arc<AtomicUsize>,
    guests: BTreeMap<u64, Guest>,
    next_id: u64,
    /// There may be connections that were not accepted.
    backlog: bool,
    /// The system gave no socket.
    failed: bool,
    failures: Seldom,
    refusals: Seldom,
}

impl Acceptor {
    /// Hands the connections that come by the network, and those of clients on this machine, to `lanes` and `control`.
    ///
    /// # Errors
    /// When the system refuses to poll.
    pub(crate) fn new(
        (listener, mut local): (std::net::TcpListener, Option<UnixListener>),
        config: ServerConfig,
        lanes: Vec<Arc<Inbox>>,
        control: Arc<Inbox>,
        poll: Poll,
        inbox: Arc<Inbox>,
    ) -> io::Result<Acceptor> {
        listener.set_nonblocking(true)?;
        let mut listener = TcpListener::from_std(listener);
        poll.registry().register(&mut listener, READY, Interest::READABLE)?;
        if let Some(local) = &mut local {
            poll.registry().register(local, READY, Interest::READABLE)?;
        }
        Ok(Acceptor {
            poll,
            inbox,
            listener,
            local,
            config,
            lanes,
            control,
            connections: Arc::default(),
            guests: BTreeMap::new(),
            next_id: FIRST_CONNECTION,
            backlog: true,
            failed: false,
            failures: Seldom::default(),
            refusals: Seldom::default(),
        })
    }

    /// Accepts until the stop.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        loop {
            match self.poll.poll(&mut events, self.timeout()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            }
            let mut ready = Vec::new();
            for event in events.iter() {
                match event.token() {
                    WAKE => {}
                    READY => self.backlog = true,
                    token => {
                        let id = token.0 as u64;
                        if let Some(guest) = self.guests.get_mut(&id) {
                            guest.socket.note(event);
                            ready.push(id);
                        }
                    }
                }
            }
            if self.inbox.take().iter().any(|message| matches!(message, Message::Stop)) {
                return Ok(());
            }
            self.accept(&mut ready);
            for id in ready {
                self.serve(id);
            }
            self.see_off();
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let first = self.guests.values().map(|guest| guest.until).min();
        let guests = first.map(|until| until.saturating_duration_since(Instant::now()));
        let pause = if self.failed { ACCEPT_RETRY } else { Duration::ZERO };
        let retry = (self.backlog && self.guests.len() < GREETINGS_MAX).then_some(pause);
        [guests, retry].into_iter().flatten().min()
    }

    fn accept(&mut self, ready: &mut Vec<u64>) {
        self.failed = false;
        while self.backlog && self.guests.len() < GREETINGS_MAX {
            match self.accept_one() {
                Ok((socket, peer)) => self.welcome(socket, peer, ready),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.backlog = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failed = true;
                    if let Some(times) = self.failures.happened() {
                        tracing::warn!(
                            times,
                            "a connection could not be accepted: {error}. New clients wait, those that are connected go on; the process may \
                             have {} files open (LimitNOFILE= of systemd, ulimit -n): connections-max and some more are needed",
                            open_files_max()
                        );
                    }
                    return;
                }
            }
        }
    }

    /// The next connection from somewhere.
    fn accept_one(&mut self) -> io::Result<(Socket, Whereabouts)> {
        match self.listener.accept() {
            Ok((stream, peer)) => {
                // Answers are small and awaited: they do not wait for more. A socket that cannot be told so is gone, which a read says.
                let _ = stream.set_nodelay(true);
                return Ok((Socket::of_network(stream), Whereabouts::Network(peer)));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let (stream, _) = self.local.as_ref().ok_or(io::ErrorKind::WouldBlock)?.accept()?;
        if let Err(error) = local::widen(&stream) {
            tracing::debug!(%error, "a socket holds no more than it did");
        }
        Ok((Socket::of_this_machine(stream), Whereabouts::Local))
    }

    fn welcome(&mut self, mut socket: Socket, peer: Whereabouts, ready: &mut Vec<u64>) {
        // Who knows the number of the other socket was let in by this one before.
        if let Whereabouts::Network(address) = peer
            && !self.config.admits(address.ip())
        {
            if let Some(times) = self.refusals.happened() {
                tracing::warn!(
                    %peer,
                    times,
                    "a connection from outside of the networks named with --insecure-network was refused"
                );
            }
            return;
        }
        let id = self.next_id;
        self.next_id += 1;
        match socket.register(id, self.poll.registry()) {
            Ok(()) => {
                let until = Instant::now() + GREETING_TIMEOUT;
                let guest = Guest { socket, peer, greeting: Greeting::default(), until, leaving: false };
                self.guests.insert(id, guest);
                ready.push(id);
            }
            Err(error) => tracing::debug!(%peer, %error, "a connection was lost at once"),
        }
    }

    fn serve(&mut self, id: u64) {
        let lanes = self.lanes.len() as u16;
        let Some(guest) = self.guests.get_mut(&id) else { return };
        if guest.leaving {
            if guest.socket.drain() {
                self.guests.remove(&id);
            }
            return;
        }
        let result = loop {
            match guest.socket.read(guest.greeting.space()) {
                Got::Bytes(bytes) => match guest.greeting.filled(bytes, lanes) {
                    Ok(None) => {}
                    Ok(Some(greeted)) => break Ok(greeted),
                    Err(refusal) => break Err(refusal),
                },
                Got::Nothing => return,
                Got::Gone => {
                    guest.socket.tell_trouble(&guest.peer);
                    self.guests.remove(&id);
                    return;
                }
            }
        };
        match result {
            Ok((hello, request)) => self.hand_over(id, hello, request),
            Err(refusal) => self.refuse(id, &refusal),
        }
    }

    fn hand_over(&mut self, id: u64, hello: Hello, request: u64) {
        let Some(slot) = ConnectionSlot::take(&self.connections, self.config.connections_max) else {
            let sentence = format!(
                "this server has {} connections, which is all it takes (connections-max): nothing was done; try again",
                self.config.connections_max
            );
            let error = ErrorReply { code: ErrorCode::Overloaded, retryable: true, sentence };
            return self.refuse(id, &NotGreeted { request, error });
        };
        let mut guest = self.guests.remove(&id).expect("it greeted just now");
        let Hello { lane, class, name, .. } = hello;
        let client = ClientName { address: guest.peer, name: name.into() };
        tracing::debug!(%client, lane, %class, "connected");
        guest.socket.deregister(self.poll.registry());
        let socket = guest.socket;
        let inbox = if lane == LANE_CONTROL { &self.control } else { &self.lanes[usize::from(lane)] };
        inbox.send(Message::Greeted(Greeted { socket, client, class, request, slot }));
    }

    fn refuse(&mut self, id: u64, refusal: &NotGreeted) {
        let Some(guest) = self.guests.get_mut(&id) else { return };
        tracing::debug!(peer = %guest.peer, reason = refusal.error.sentence, "a connection was refused");
        let mut bytes = Vec::new();
        refusal.error.encode(refusal.request, &mut bytes);
        // A fresh socket takes so little at once; one that does not is not told.
        guest.socket.write(std::iter::once(&bytes[..]));
        guest.socket.end();
        guest.leaving = true;
        guest.until = Instant::now() + LINGER;
    }

    /// Closes those whose time is over.
    fn see_off(&mut self) {
        let now = Instant::now();
        self.guests.retain(|_, guest| {
            if now >= guest.until && !guest.leaving {
                tracing::debug!(peer = %guest.peer, "a connection did not say in time who it is and is closed");
            }
            now < guest.until
        });
    }
}
