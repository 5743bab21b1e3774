//! The thread of control connections: those that name no lane. It asks the lanes' threads and puts their answers together, for whoever asks and
//! once a second for the monitor (`look.rs`).
//!
//! Requests of all control connections are served one after the other: each asks all lanes at once and waits for them, briefly; when a
//! lane was waited for in vain, the other requests of that turn do not wait. Lanes never wait for this thread.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_protocol::limits::FRAME_PAYLOAD_BYTES_MAX;
use forebay_protocol::{
    ChangeDrive, Class, Done, DriveChange, ErrorCode, ErrorReply, Frame, FrameBuffer, FrameError, HelloReply,
    InjectFault, Kind, LANE_CONTROL, Message as _, PROTOCOL_VERSION, Ping, Scrub, Status, StatusReply,
};
use forebay_store::StoreInfo;
use forebay_types::DriveNumber;
use mio::{Events, Poll};

use super::inbox::{ClientName, ConnectionSlot, FIRST_CONNECTION, Greeted, Inbox, Message};
use super::look::Looker;
use super::socket::{Got, Socket};
use crate::changes;
use crate::limits::{CONTROL_FRAME_BYTES_MAX, CONTROL_OUT_BYTES_MAX, CONTROL_TURN_REQUESTS, LINGER, UNREAD_TIMES};
use crate::schedule::class_place;
use crate::service::{greeted_already, unknown_kind};
use crate::status::server_status;

/// Bytes that are read at once.
const READ_BYTES: usize = 4 << 10;

/// The time between two looks at connections that stand still or leave.
const LOOK: Duration = Duration::from_millis(500);

struct Peer {
    socket: Socket,
    client: ClientName,
    class: Class,
    received: FrameBuffer,
    out: Vec<u8>,
    sent: usize,
    /// Since when it takes nothing of what it is sent, and since when the rest of a frame is awaited.
    unread_since: Option<Instant>,
    half_since: Option<Instant>,
    /// It was told its end; until then it may read it.
    closing: Option<Instant>,
    ended: bool,
    _slot: ConnectionSlot,
}

/// What the control thread knows of the server.
pub(crate) struct ControlThread {
    pub(crate) poll: Poll,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) looker: Looker,
    pub(crate) info: StoreInfo,
    pub(crate) stall_timeout: Duration,
    /// The number of the socket for clients on this machine.
    pub(crate) local: u64,
}

/// The control thread at work.
struct Control {
    thread: ControlThread,
    peers: BTreeMap<u64, Peer>,
}

/// What a connection needs after it was served.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Served {
    /// It waits for its peer.
    Rests,
    /// There is more to answer.
    Again,
    Gone,
}

impl ControlThread {
    /// Serves until the stop.
    pub(crate) fn run(self) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        let mut control = Control { thread: self, peers: BTreeMap::new() };
        let mut next_id = FIRST_CONNECTION;
        // In order: who was served in this turn comes behind who was not.
        let mut ready: Vec<u64> = Vec::new();
        loop {
            let waits = control.peers.values().any(Peer::is_timed).then_some(LOOK);
            let timeout = waits.unwrap_or(Duration::MAX).min(control.thread.looker.due_in());
            let timeout = if ready.is_empty() { timeout } else { Duration::ZERO };
            match control.thread.poll.poll(&mut events, Some(timeout)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            }
            for event in events.iter() {
                let id = event.token().0 as u64;
                if let Some(peer) = control.peers.get_mut(&id) {
                    peer.socket.note(event);
                    if !ready.contains(&id) {
                        ready.push(id);
                    }
                }
            }
            for message in control.thread.inbox.take() {
                match message {
                    Message::Greeted(greeted) => {
                        control.open(next_id, greeted);
                        ready.push(next_id);
                        next_id += 1;
                    }
                    Message::Stop => return Ok(()),
                    Message::Query(..) | Message::Scrub | Message::Files(_) => unreachable!("only lanes are asked"),
                }
            }
            control.thread.looker.begin_turn();
            ready = control.serve_all(ready);
            if control.thread.looker.due_in().is_zero() {
                control.thread.looker.look(control.connections());
            }
            control.see_off();
        }
    }
}

impl Control {
    fn open(&mut self, id: u64, greeted: Greeted) {
        let Greeted { mut socket, client, class, request, slot } = greeted;
        if let Err(error) = socket.register(id, self.thread.poll.registry()) {
            return tracing::warn!(%error, "the control connection of {client} could not be taken: it connects again");
        }
        let info = &self.thread.info;
        let hello = HelloReply {
            protocol_version: PROTOCOL_VERSION,
            lanes: info.lanes,
            lane: LANE_CONTROL,
            read_only: info.read_only,
            store: info.store,
            epoch: info.epoch,
            fragment_bytes_max: info.fragment_bytes_max,
            frame_payload_bytes_max: FRAME_PAYLOAD_BYTES_MAX as u32,
            credit_bytes: 0,
            server: crate::SERVER_NAME.to_owned(),
            local: self.thread.local,
        };
        let mut out = Vec::new();
        hello.encode(request, &mut out);
        let received = FrameBuffer::new();
        let peer = Peer {
            socket,
            client,
            class,
            received,
            out,
            sent: 0,
            unread_since: None,
            half_since: None,
            closing: None,
            ended: false,
            _slot: slot,
        };
        self.peers.insert(id, peer);
    }

    /// Serves each of `ready` for a while; gives those that have more to be answered.
    fn serve_all(&mut self, ready: Vec<u64>) -> Vec<u64> {
        let mut again = Vec::new();
        for id in ready {
            let Some(mut peer) = self.peers.remove(&id) else { continue };
            let served = self.serve(&mut peer);
            if served != Served::Gone {
                self.peers.insert(id, peer);
            }
            if served == Served::Again {
                again.push(id);
            }
        }
        again
    }

    /// Closes those that left, and those that stand still in the middle of a frame or do not read.
    fn see_off(&mut self) {
        let (now, stall_timeout) = (Instant::now(), self.thread.stall_timeout);
        self.peers.retain(|_, peer| {
            if peer.closing.is_some_and(|until| now >= until || (peer.ended && peer.socket.drain())) {
                return false;
            }
            let over = |since: Option<Instant>, limit| since.is_some_and(|since| now >= since + limit);
            let stalled = over(peer.half_since, stall_timeout) || over(peer.unread_since, stall_timeout * UNREAD_TIMES);
            if stalled {
                tracing::warn!(
                    "the control connection of {} stood still in the middle of a request, or did not read its answers, for too long, and \
                     is closed: no data are concerned",
                    peer.client
                );
            }
            !stalled
        });
    }

    /// Reads, answers some requests and writes.
    fn serve(&self, peer: &mut Peer) -> Served {
        let mut left = CONTROL_TURN_REQUESTS;
        loop {
            let Some(read) = peer.write().and_then(|()| peer.read()) else { return Served::Gone };
            let before = left;
            while left > 0 && peer.has_room() && self.answer(peer) {
                left -= 1;
            }
            if peer.write().is_none() {
                return Served::Gone;
            }
            let waits = left > 0 && peer.has_room() && !peer.received.is_empty();
            peer.half_since = waits.then(|| peer.half_since.filter(|_| left == before).unwrap_or_else(Instant::now));
            match left {
                0 => return Served::Again,
                _ if read && peer.has_room() => {}
                _ => return Served::Rests,
            }
        }
    }

    /// Answers one request that has arrived; whether there was one.
    fn answer(&self, peer: &mut Peer) -> bool {
        let mut received = std::mem::take(&mut peer.received);
        let taken = match received.next_frame() {
            Ok(None) => {
                // What a frame announces is checked before it is waited for.
                let header = received.peek_header().ok().flatten();
                let large = header.filter(|header| header.frame_bytes() > CONTROL_FRAME_BYTES_MAX);
                if let Some(header) = large {
                    peer.refuse(&FrameError::TooLarge {
                        request: header.request,
                        part: "frame on a control connection",
                        bytes: u32::try_from(header.frame_bytes()).unwrap_or(u32::MAX),
                        max: CONTROL_FRAME_BYTES_MAX,
                    });
                    peer.closing = Some(Instant::now() + LINGER);
                }
                false
            }
            Ok(Some(frame)) => {
                self.answer_frame(&frame, peer);
                true
            }
            Err(error) => {
                peer.refuse(&error);
                if error.closes_connection() {
                    peer.closing = Some(Instant::now() + LINGER);
                }
                true
            }
        };
        received.shrink(0);
        peer.received = received;
        taken
    }

    fn answer_frame(&self, frame: &Frame<'_>, peer: &mut Peer) {
        let request = frame.header.request;
        match self.answer_request(frame, (&peer.client, peer.class), &mut peer.out) {
            Ok(()) => {}
            Err(error) => error.encode(request, &mut peer.out),
        }
    }

    fn answer_request(
        &self,
        frame: &Frame<'_>,
        (client, class): (&ClientName, Class),
        out: &mut Vec<u8>,
    ) -> Result<(), ErrorReply> {
        let Frame { header, table, payload } = frame;
        let request = header.request;
        let of_frame = |error: FrameError| ErrorReply::from(&error);
        match frame.kind() {
            Some(Kind::Ping) => {
                Ping::decode(table, payload).map_err(of_frame)?;
                Done.encode(request, out);
            }
            Some(Kind::Status) => {
                Status::decode(table, payload).map_err(of_frame)?;
                StatusReply { json: self.status(class) }.encode(request, out);
            }
            Some(Kind::InjectFault) => {
                let InjectFault { drive } = InjectFault::decode(table, payload).map_err(of_frame)?;
                let refused = |sentence| ErrorReply { code: ErrorCode::Refused, retryable: false, sentence };
                self.thread.looker.store.inject_fault(drive).map_err(refused)?;
                tracing::warn!(%drive, "a client made a drive fail");
                Done.encode(request, out);
            }
            Some(Kind::ChangeDrive) => {
                let ChangeDrive { drive, change } = ChangeDrive::decode(table, payload).map_err(of_frame)?;
                self.change_drive(client, drive, change)?;
                Done.encode(request, out);
            }
            Some(Kind::Scrub) => {
                Scrub::decode(table, payload).map_err(of_frame)?;
                if self.thread.info.read_only {
                    let sentence =
                        "this server was started read-only and mends nothing: `forebay doctor` looks at a stopped store".to_owned();
                    return Err(ErrorReply { code: ErrorCode::ReadOnly, retryable: false, sentence });
                }
                tracing::info!("an operator has everything looked at that is stored");
                self.thread.looker.scrub();
                Done.encode(request, out);
            }
            Some(Kind::Hello) => {
                return Err(greeted_already());
            }
            Some(kind) if !kind.is_reply() => {
                let sentence = format!(
                    "{kind} is a request for a lane, and this connection names none: nothing was done; ask on a connection that names one"
                );
                return Err(ErrorReply { code: ErrorCode::WrongLane, retryable: false, sentence });
            }
            _ => return Err(unknown_kind(header.kind)),
        }
        Ok(())
    }

    /// The state of the server, asked for by a connection of `class`, which is not among the others meanwhile.
    fn status(&self, class: Class) -> String {
        let mut connections = self.connections();
        connections[class_place(class)] += 1;
        server_status(&self.thread.looker.look(connections))
    }

    /// Does what an operator wants with a drive, and tells the log who wanted it and what came of it.
    fn change_drive(&self, client: &ClientName, drive: DriveNumber, change: DriveChange) -> Result<(), ErrorReply> {
        let wanted = changes::words(&change);
        let done = self.try_to_change(drive, change);
        match &done {
            Ok(()) => tracing::warn!(%drive, "an operator changes a drive: {wanted}, as {client} asked"),
            Err(ErrorReply { sentence, .. }) => {
                tracing::info!(%drive, "an operator wanted to change a drive ({wanted}), as {client} asked, and was refused: {sentence}");
            }
        }
        done
    }

    fn try_to_change(&self, drive: DriveNumber, change: DriveChange) -> Result<(), ErrorReply> {
        let looker = &self.thread.looker;
        changes::may_be_tried(&looker.store.status(), drive, &change)?;
        let done = match change {
            DriveChange::Fail { force } => {
                if !force {
                    changes::may_be_given_up(drive, looker.ask_all(), looker.store.may_lose_a_member())?;
                }
                looker.store.fail_drive(drive)
            }
            DriveChange::Retire => looker.store.retire_drive(drive),
            DriveChange::Replace { path, force } => {
                looker.store.replace_drive(drive, Path::new(&path), force, looker.drives_to_keep())
            }
        };
        done.map_err(changes::refused)
    }

    fn connections(&self) -> [usize; 4] {
        let mut connections = [0; 4];
        self.peers.values().for_each(|peer| connections[class_place(peer.class)] += 1);
        connections
    }
}

impl Peer {
    fn has_room(&self) -> bool {
        self.closing.is_none() && self.out.len() - self.sent < CONTROL_OUT_BYTES_MAX
    }

    /// Whether its time may run out.
    fn is_timed(&self) -> bool {
        self.closing.is_some() || self.unread_since.is_some() || self.half_since.is_some()
    }

    fn refuse(&mut self, error: &FrameError) {
        ErrorReply::from(error).encode(error.request().unwrap_or(0), &mut self.out);
    }

    /// Reads once; whether something came, `None` when the connection is gone.
    fn read(&mut self) -> Option<bool> {
        if !self.socket.readable || !self.has_room() {
            return Some(false);
        }
        match self.socket.read(&mut self.received.spare(READ_BYTES)[..READ_BYTES]) {
            Got::Bytes(bytes) => {
                self.received.filled(bytes);
                Some(true)
            }
            Got::Nothing => {
                self.received.shrink(0);
                Some(false)
            }
            Got::Gone => {
                self.socket.tell_trouble(&self.client);
                None
            }
        }
    }

    /// Writes what the socket takes; `None` when the connection is gone.
    fn write(&mut self) -> Option<()> {
        while self.sent < self.out.len() {
            match self.socket.write(std::iter::once(&self.out[self.sent..]))? {
                0 => {
                    self.unread_since.get_or_insert_with(Instant::now);
                    return Some(());
                }
                bytes => (self.sent, self.unread_since) = (self.sent + bytes, None),
            }
        }
        (self.out, self.sent, self.unread_since) = (Vec::new(), 0, None);
        if self.closing.is_some() && !self.ended {
            self.ended = true;
            self.socket.end();
        }
        Some(())
    }
}
