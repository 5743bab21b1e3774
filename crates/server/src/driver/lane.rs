//! The thread of a lane: its drives, its connections.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_engine::Lane;
use forebay_store::{LaneRunner, LaneSeed, Licence};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll};

use super::inbox::{ClientName, ConnectionSlot, FIRST_CONNECTION, Greeted, Inbox, Message, READY, WAKE};
use super::socket::{Got, Socket};
use crate::limits::{FAREWELL, LINGER};
use crate::namespace::FilesMessage;
use crate::service::{Service, ServiceConfig, Step};

/// How often connections that stand still are looked for.
const LOOK_ROUND: Duration = Duration::from_secs(1);

/// How often is looked whether anybody may be answered again.
const LICENCE_LOOK: Duration = Duration::from_millis(20);

/// How often it is said that a stop takes long.
const STOP_TOLD: Duration = Duration::from_secs(10);

struct Peer {
    socket: Socket,
    client: ClientName,
    _slot: ConnectionSlot,
}

/// A connection that was told its end.
struct Leaving {
    peer: Peer,
    until: Instant,
}

/// A lane with its connections.
pub(crate) struct LaneThread {
    lane: u16,
    poll: Poll,
    inbox: Arc<Inbox>,
    /// Those of all lanes.
    lanes: Arc<[Arc<Inbox>]>,
    messages: Vec<(u16, FilesMessage)>,
    runner: LaneRunner,
    service: Service,
    peers: BTreeMap<u64, Peer>,
    leaving: BTreeMap<u64, Leaving>,
    next_id: u64,
    to_write: Vec<u64>,
    looked_round: Instant,
    stopping: Option<Stopping>,
    /// Until when anybody may be answered, where another server may come to own the store.
    licence: Option<Arc<Licence>>,
}

/// A stop under way.
struct Stopping {
    since: Instant,
    told: Instant,
    /// When the lane had stopped.
    lane_stopped: Option<Instant>,
}

impl Stopping {
    fn now() -> Stopping {
        let now = Instant::now();
        Stopping { since: now, told: now, lane_stopped: None }
    }
}

impl LaneThread {
    /// Starts the lane in the calling thread.
    ///
    /// # Errors
    /// When the system refuses to poll.
    pub(crate) fn new(
        seed: LaneSeed,
        config: ServiceConfig,
        poll: Poll,
        lanes: Arc<[Arc<Inbox>]>,
        licence: Option<Arc<Licence>>,
    ) -> io::Result<LaneThread> {
        let inbox = lanes[usize::from(config.lane)].clone();
        let mut runner = seed.start();
        let waker = inbox.clone();
        runner.set_waker(Arc::new(move || waker.wake()));
        if let Some(ready) = runner.ready() {
            poll.registry().register(&mut SourceFd(&ready.as_raw_fd()), READY, Interest::READABLE)?;
        }
        Ok(LaneThread {
            lane: config.lane,
            poll,
            inbox,
            lanes,
            messages: Vec::new(),
            runner,
            service: Service::new(config),
            peers: BTreeMap::new(),
            leaving: BTreeMap::new(),
            next_id: FIRST_CONNECTION,
            to_write: Vec::new(),
            looked_round: Instant::now(),
            stopping: None,
            licence,
        })
    }

    /// Serves until the stop, and until what was taken is durable and answered.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        loop {
            self.wait(&mut events)?;
            for message in self.inbox.take() {
                self.take_message(message);
            }
            if self.stopping.is_some() {
                // Every time: a lane that became unavailable while it stopped ends by being told so once more.
                self.runner.lane().stop();
            }
            let moved = self.runner.turn() > 0;
            self.take_replies(moved);
            // Nobody who has an answer waits for the work of others.
            self.write();
            let worked = self.work();
            if self.service.tend_files(self.runner.lane()) || worked {
                // What was put must get on its way before the thread sleeps.
                let moved = self.runner.turn() > 0;
                self.take_replies(moved);
            }
            self.send_messages();
            self.write();
            self.look_round();
            if self.is_over() {
                return Ok(());
            }
        }
    }

    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        match self.poll.poll(events, self.timeout()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            result => result?,
        }
        for event in events.iter() {
            if event.token() == WAKE || event.token() == READY {
                continue;
            }
            let id = event.token().0 as u64;
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.socket.note(event);
                if event.is_error() || (event.is_read_closed() && event.is_write_closed()) {
                    // Whatever it waits for, and though nothing is read from it meanwhile: it takes no answer any more.
                    self.close(id);
                    continue;
                }
                if event.is_writable() && self.service.has_to_send(id) {
                    self.to_write.push(id);
                }
                if peer.socket.readable {
                    self.service.readable(id);
                }
            } else if let Some(leaving) = self.leaving.get_mut(&id) {
                leaving.peer.socket.note(event);
            }
        }
        Ok(())
    }

    fn timeout(&self) -> Option<Duration> {
        if self.service.has_work() {
            return Some(Duration::ZERO);
        }
        let now = self.runner.now();
        let retry = self.service.next_retry().map(|at| at.since(now));
        let held_back = (!self.to_write.is_empty() && !self.may_answer()).then_some(LICENCE_LOOK);
        let round = match self.stopping {
            Some(_) => Some(LOOK_ROUND / 50),
            None => (!self.peers.is_empty() || !self.leaving.is_empty()).then_some(LOOK_ROUND),
        };
        [self.runner.next_wakeup(), retry, round, held_back].into_iter().flatten().min()
    }

    fn take_replies(&mut self, moved: bool) {
        let now = self.runner.now();
        self.service.take_replies(self.runner.lane(), now, moved);
    }

    fn take_message(&mut self, message: Message) {
        match message {
            Message::Greeted(greeted) => self.open(greeted),
            Message::Query(answer) => {
                let now = self.runner.now();
                let report = self.service.report(self.runner.lane(), now);
                // Who asked may have stopped waiting.
                let _ = answer.try_send(report);
            }
            Message::Files(message) => self.service.message(message, self.runner.lane()),
            Message::Scrub => self.runner.lane().scrub_all(),
            Message::Stop => {
                self.stopping.get_or_insert_with(Stopping::now);
                self.service.stop();
            }
        }
    }

    /// Tells the other lanes, and this one in its next turn, what they must know of files.
    fn send_messages(&mut self) {
        let mut messages = std::mem::take(&mut self.messages);
        self.service.take_messages(&mut messages);
        for (lane, message) in messages.drain(..) {
            if let Some(inbox) = self.lanes.get(usize::from(lane)) {
                inbox.send(Message::Files(message));
            }
        }
        self.messages = messages;
    }

    fn open(&mut self, greeted: Greeted) {
        let Greeted { mut socket, client, class, request, slot } = greeted;
        let id = self.next_id;
        self.next_id += 1;
        match socket.register(id, self.poll.registry()) {
            Ok(()) => {
                self.peers.insert(id, Peer { socket, client, _slot: slot });
                self.service.open(id, class, request);
                self.service.readable(id);
            }
            Err(error) => {
                tracing::warn!(lane = self.lane, %error, "the connection of {client} could not be taken: it connects again")
            }
        }
    }

    /// Serves those that have something to do, as far as this turn goes; whether there were any.
    fn work(&mut self) -> bool {
        let mut worked = false;
        while let Some(id) = self.service.next_connection() {
            worked = true;
            let Some(peer) = self.peers.get_mut(&id) else { continue };
            let gone = loop {
                if self.service.work(id, self.runner.lane(), peer.socket.readable) != Step::Read {
                    break false;
                }
                match read_piece(id, &mut peer.socket, &mut self.service, self.runner.lane()) {
                    Some(true) => continue,
                    Some(false) => break true,
                    None => {}
                }
                match peer.socket.read(self.service.read_space(id)) {
                    Got::Bytes(bytes) => self.service.received(id, bytes),
                    Got::Nothing => {}
                    Got::Gone => break true,
                }
            };
            if gone {
                self.close(id);
            }
        }
        worked
    }

    fn write(&mut self) {
        let mut ids = std::mem::take(&mut self.to_write);
        self.service.take_dirty(&mut ids);
        if !self.may_answer() {
            // They are answered when it is known again whose the store is.
            ids.sort_unstable();
            ids.dedup();
        } else {
            ids.drain(..).for_each(|id| self.write_to(id));
        }
        // Its memory is used again.
        ids.append(&mut self.to_write);
        self.to_write = ids;
    }

    /// Whether anybody may be told anything: not while another server may own the store.
    fn may_answer(&self) -> bool {
        self.licence.as_ref().is_none_or(|licence| licence.is_valid())
    }

    fn write_to(&mut self, id: u64) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        while self.service.has_to_send(id) {
            // Time may have passed since it was asked, and any amount of it.
            if self.licence.as_ref().is_some_and(|licence| !licence.is_valid()) {
                return self.to_write.push(id);
            }
            match peer.socket.write(self.service.pieces_to_send(id)) {
                Some(0) => break,
                Some(bytes) => self.service.sent(id, bytes),
                None => return self.close(id),
            }
        }
        if self.service.is_closing(id) && !self.service.has_to_send(id) {
            self.service.close(id);
            let mut peer = self.peers.remove(&id).expect("looked at just now");
            peer.socket.end();
            self.leaving.insert(id, Leaving { peer, until: Instant::now() + LINGER });
        }
    }

    fn close(&mut self, id: u64) {
        self.service.close(id);
        if let Some(mut peer) = self.peers.remove(&id) {
            peer.socket.deregister(self.poll.registry());
            peer.socket.tell_trouble(&peer.client);
        }
    }

    /// Closes connections that stand still and those that had time enough to leave.
    fn look_round(&mut self) {
        if self.leaving.is_empty() && self.looked_round.elapsed() < LOOK_ROUND {
            return;
        }
        let now = Instant::now();
        self.leaving.retain(|_, leaving| !leaving.peer.socket.drain() && now < leaving.until);
        if self.looked_round.elapsed() < LOOK_ROUND {
            return;
        }
        self.looked_round = now;
        for (id, stall) in self.service.stalled(self.runner.now()) {
            let Some(peer) = self.peers.get(&id) else { continue };
            tracing::warn!(
                lane = self.lane,
                "{} {stall}; its connection is closed, which frees what it held. Nothing that was acknowledged is concerned: the client \
                 connects again and repeats what was not answered",
                peer.client
            );
            self.close(id);
        }
    }

    /// Whether the stop has come to its end: all is durable, and answered as far as peers read.
    fn is_over(&mut self) -> bool {
        let Some(stopping) = &mut self.stopping else { return false };
        let lane = self.runner.lane();
        if !lane.is_stopped() {
            if stopping.told.elapsed() >= STOP_TOLD {
                stopping.told = Instant::now();
                tracing::warn!(
                    lane = self.lane,
                    "the stop has taken {:.0?}: {} operations are on their way to the drives. What was acknowledged is safe; a second signal \
                     ends the server at once",
                    stopping.since.elapsed(),
                    lane.operations_in_flight()
                );
            }
            return false;
        }
        let lane_stopped = *stopping.lane_stopped.get_or_insert_with(Instant::now);
        let answered =
            self.service.requests_pending() == 0 && self.peers.keys().all(|id| !self.service.has_to_send(*id));
        answered || lane_stopped.elapsed() > FAREWELL
    }
}

/// Reads the rest of a piece of a file to where it is stored, if all of it has arrived and has a place; whether it could be read then.
fn read_piece(id: u64, socket: &mut Socket, service: &mut Service, lane: &mut Lane) -> Option<bool> {
    let awaited = service.awaited_of_piece(id)?;
    let parts = (socket.arrived() >= awaited).then(|| service.place_of_piece(id, lane)).flatten()?;
    let is_read = socket.read_arrived(parts);
    if is_read {
        service.piece_is_placed(id);
    }
    Some(is_read)
}
