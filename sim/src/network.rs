//! Connections between clients and the server: bytes in order, late, in any pieces, and cut anywhere. On some of them messages are lost, arrive twice,
//! or overtake each other, as no connection of TCP does; what stands between two of them might.

mod messages;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use forebay_types::Time;

use crate::faults::{Fault, FaultCounts};
use crate::random::Random;

use messages::Messages;

/// What a socket takes before it says that it is full.
const PIPE_BYTES: usize = 96 << 10;

/// What is on its way.
struct Piece {
    due: Time,
    bytes: Vec<u8>,
    /// In the order in which they were sent.
    number: u64,
    is_copy: bool,
}

/// One direction of a connection.
#[derive(Default)]
struct Pipe {
    /// In the order in which they arrive.
    on_way: VecDeque<Piece>,
    on_way_bytes: usize,
    arrived: Vec<u8>,
    last_due: Time,
    /// When the other side learns that there is nothing more.
    end: Option<Time>,
    /// After so many more bytes nothing goes on.
    cut_after: Option<usize>,
    /// Something may happen to each message.
    messages: Option<Messages>,
    /// Pieces that were sent, and the last of those that have arrived.
    sent: u64,
    latest: u64,
}

impl Pipe {
    fn held(&self) -> usize {
        self.arrived.len() + self.on_way_bytes
    }

    /// Puts bytes on their way, behind those that arrive earlier or at the same time.
    fn push(&mut self, due: Time, bytes: Vec<u8>, is_copy: bool) {
        if bytes.is_empty() {
            return;
        }
        self.on_way_bytes += bytes.len();
        self.sent += 1;
        let at = self.on_way.partition_point(|piece| piece.due <= due);
        self.on_way.insert(at, Piece { due, bytes, number: self.sent, is_copy });
    }

    /// Nothing follows: what is there of a message goes as it is, behind everything.
    fn finish(&mut self) {
        let rest = self.messages.take().map(Messages::rest).unwrap_or_default();
        self.last_due = self.on_way.back().map_or(self.last_due, |piece| piece.due.max(self.last_due));
        self.push(self.last_due, rest, false);
    }

    fn deliver(&mut self, now: Time, counts: &mut FaultCounts) {
        while let Some(piece) = self.on_way.pop_front_if(|piece| piece.due <= now) {
            self.on_way_bytes -= piece.bytes.len();
            self.arrived.extend_from_slice(&piece.bytes);
            if piece.is_copy {
                counts.meet(Fault::RepeatedMessage);
            } else if piece.number < self.latest {
                counts.meet(Fault::OvertakenMessage);
            } else {
                self.latest = piece.number;
            }
        }
    }

    fn is_over(&self, now: Time) -> bool {
        self.on_way.is_empty() && self.arrived.is_empty() && self.end.is_some_and(|end| end <= now)
    }

    fn next_due(&self, now: Time) -> Option<Time> {
        let bytes = self.on_way.front().map(|piece| piece.due);
        bytes.or(self.end).filter(|due| *due > now)
    }
}

/// Which end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

#[derive(Default)]
struct Connection {
    to_server: Pipe,
    to_client: Pipe,
    client_gone: bool,
    server_gone: bool,
    /// The client went while something of it was on its way, and the server has not seen it yet.
    lands_late: bool,
}

impl Connection {
    fn incoming(&mut self, side: Side) -> &mut Pipe {
        match side {
            Side::Client => &mut self.to_client,
            Side::Server => &mut self.to_server,
        }
    }

    fn outgoing(&mut self, side: Side) -> &mut Pipe {
        match side {
            Side::Client => &mut self.to_server,
            Side::Server => &mut self.to_client,
        }
    }
}

/// Names a connection; never used again.
pub(crate) type ConnectionId = u64;

/// All connections.
pub(crate) struct Network {
    connections: BTreeMap<ConnectionId, Connection>,
    /// Opened and not yet seen by the server.
    opened: VecDeque<ConnectionId>,
    next: ConnectionId,
    random: Random,
    knows: BTreeSet<Fault>,
    pub(crate) counts: FaultCounts,
}

impl Network {
    /// A network that knows those of the faults that are its own.
    pub(crate) fn new(faults: &BTreeSet<Fault>, random: Random) -> Self {
        let (counts, knows) = (FaultCounts::default(), faults.clone());
        Network { connections: BTreeMap::new(), opened: VecDeque::new(), next: 0, random, knows, counts }
    }

    /// Nothing goes wrong from now on.
    pub(crate) fn calm(&mut self) {
        self.knows.clear();
        for connection in self.connections.values_mut() {
            connection.to_server.cut_after = None;
            connection.to_client.cut_after = None;
        }
    }

    pub(crate) fn connect(&mut self) -> ConnectionId {
        self.next += 1;
        let mut connection = Connection::default();
        if self.knows.contains(&Fault::Cut) && self.random.per_mille(250) {
            let after = self.random.below(40_000) as usize;
            let pipe = if self.random.per_mille(500) { &mut connection.to_server } else { &mut connection.to_client };
            pipe.cut_after = Some(after);
        }
        if self.random.per_mille(200) {
            connection.to_server.messages = Some(Messages::default());
            connection.to_client.messages = Some(Messages::default());
        }
        self.connections.insert(self.next, connection);
        self.opened.push_back(self.next);
        self.next
    }

    /// The next connection that the server has not seen.
    pub(crate) fn accept(&mut self) -> Option<ConnectionId> {
        self.opened.pop_front()
    }

    /// When bytes, or the end of them, arrive next; what has arrived waits for whoever reads it.
    pub(crate) fn next_due(&self, now: Time) -> Option<Time> {
        let due = |connection: &Connection| [connection.to_server.next_due(now), connection.to_client.next_due(now)];
        self.connections.values().flat_map(due).flatten().min()
    }

    /// Gives bytes to a connection; how many it took.
    pub(crate) fn send(&mut self, now: Time, id: ConnectionId, side: Side, bytes: &[u8]) -> usize {
        let Network { connections, random, knows, counts, .. } = self;
        let Some(connection) = connections.get_mut(&id) else { return bytes.len() };
        let pipe = connection.outgoing(side);
        let mut taken = bytes.len().min(PIPE_BYTES.saturating_sub(pipe.held()));
        if taken == 0 {
            return 0;
        }
        // Not all at once.
        if random.per_mille(200) {
            taken = random.within(1..taken as u64 + 1) as usize;
        }
        let mut through = taken;
        let mut cut = false;
        if let Some(left) = &mut pipe.cut_after {
            through = through.min(*left);
            *left -= through;
            cut = through < taken;
        }
        let mut latency = random.micros(10..200);
        if knows.contains(&Fault::LateMessage) && random.per_mille(2) {
            counts.fire_and_meet(Fault::LateMessage);
            latency = random.millis(50..9000);
        }
        let due = pipe.last_due.max(now + latency);
        pipe.last_due = due;
        match &mut pipe.messages {
            None => pipe.push(due, bytes[..through].to_vec(), false),
            Some(messages) => {
                let sent = messages.split(&bytes[..through]);
                sent.into_iter().for_each(|message| message.send(pipe, due, knows, random, counts));
            }
        }
        if cut {
            self.counts.fire_and_meet(Fault::Cut);
            self.cut(now, id);
        }
        taken
    }

    /// Both sides learn of it, each in its time, one of them perhaps only when it gives up waiting.
    fn cut(&mut self, now: Time, id: ConnectionId) {
        let deaf = self.random.per_mille(200);
        let (first, second) = (self.random.micros(10..5000), self.random.micros(10..5000));
        let connection = self.connections.get_mut(&id).expect("looked at just now");
        connection.to_server.finish();
        connection.to_client.finish();
        let never = now + Duration::from_secs(3600);
        connection.to_server.end = Some(connection.to_server.last_due.max(now + first));
        connection.to_client.end = Some(if deaf { never } else { connection.to_client.last_due.max(now + second) });
    }

    /// Whether the client's side has something to read, or has come to the end.
    pub(crate) fn has_news(&self, now: Time, id: ConnectionId) -> bool {
        let Some(connection) = self.connections.get(&id) else { return true };
        let pipe = &connection.to_client;
        let bytes = pipe.on_way.front().is_some_and(|piece| piece.due <= now);
        bytes || !pipe.arrived.is_empty() || pipe.is_over(now)
    }

    /// Whether the client's side can send something.
    pub(crate) fn has_room(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_none_or(|connection| connection.to_server.held() < PIPE_BYTES)
    }

    /// What arrived at one side; what is used is drained by the caller.
    pub(crate) fn arrived(&mut self, now: Time, id: ConnectionId, side: Side) -> Option<&mut Vec<u8>> {
        let connection = self.connections.get_mut(&id)?;
        connection.incoming(side).deliver(now, &mut self.counts);
        if side == Side::Server && connection.lands_late && !connection.to_server.arrived.is_empty() {
            connection.lands_late = false;
            self.counts.meet(Fault::LateRequest);
        }
        Some(&mut connection.incoming(side).arrived)
    }

    /// Whether one side has come to the end of what the other one sent.
    pub(crate) fn is_over(&self, now: Time, id: ConnectionId, side: Side) -> bool {
        let Some(connection) = self.connections.get(&id) else { return true };
        match side {
            Side::Client => connection.to_client.is_over(now),
            Side::Server => connection.to_server.is_over(now),
        }
    }

    /// One side closes. What the server sent still arrives, and what the client sent where that is known.
    pub(crate) fn close(&mut self, now: Time, id: ConnectionId, side: Side) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.outgoing(side).finish();
        match side {
            Side::Client => connection.client_gone = true,
            Side::Server => connection.server_gone = true,
        }
        if side == Side::Client && !connection.server_gone && !connection.to_server.on_way.is_empty() {
            if self.knows.contains(&Fault::LateRequest) {
                self.counts.fire(Fault::LateRequest);
                connection.lands_late = true;
            } else {
                connection.to_server.on_way.clear();
                connection.to_server.on_way_bytes = 0;
            }
        }
        let out = connection.outgoing(side);
        let end = out.last_due.max(now) + Duration::from_micros(50);
        out.end = Some(out.end.map_or(end, |known| known.min(end)));
        if connection.client_gone && connection.server_gone {
            self.connections.remove(&id);
        }
    }

    /// The server's process is gone: its ends of all connections too.
    pub(crate) fn server_is_gone(&mut self, now: Time) {
        self.opened.clear();
        let ids: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for id in ids {
            self.close(now, id, Side::Server);
        }
    }
}
