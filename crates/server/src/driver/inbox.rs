//! Messages for a thread that waits in a poll.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use forebay_protocol::{Class, RunInfo, StreamInfo};
use mio::{Poll, Token, Waker};

use crate::status::LaneReport;

/// The token of wakers in every poll.
pub(crate) const WAKE: Token = Token(0);

/// The token of what else a thread has one of: the listener, the drives.
pub(crate) const READY: Token = Token(1);

/// The number of the first connection.
pub(crate) const FIRST_CONNECTION: u64 = 2;

/// A connection that said who it is.
pub(crate) struct Greeted {
    pub(crate) stream: std::net::TcpStream,
    pub(crate) class: Class,
    pub(crate) request: u64,
    pub(crate) slot: ConnectionSlot,
}

/// A connection counts as long as this lives.
pub(crate) struct ConnectionSlot(Arc<AtomicUsize>);

impl ConnectionSlot {
    /// One more, if there are fewer than `max`.
    pub(crate) fn take(connections: &Arc<AtomicUsize>, max: usize) -> Option<ConnectionSlot> {
        if connections.fetch_add(1, Ordering::Relaxed) >= max {
            connections.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(ConnectionSlot(connections.clone()))
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the control thread wants to know of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Query {
    Status,
    Streams,
    Runs,
}

/// What a lane tells of itself.
pub(crate) enum Told {
    Status(Box<LaneReport>),
    Streams(Vec<StreamInfo>),
    Runs(Vec<RunInfo>),
}

/// What a thread is told.
pub(crate) enum Message {
    /// A connection is for it.
    Greeted(Greeted),
    /// The control thread asks; it has one question at a time, so that nothing piles up.
    Query(Query, SyncSender<(u16, Told)>),
    /// Come to an end.
    Stop,
}

/// Messages for a thread. Connections in it are bounded by the limit on all connections.
pub(crate) struct Inbox {
    messages: Mutex<Vec<Message>>,
    waker: Waker,
}

impl Inbox {
    /// For the thread that waits in `poll`.
    pub(crate) fn new(poll: &Poll) -> io::Result<Arc<Inbox>> {
        Ok(Arc::new(Inbox { messages: Mutex::default(), waker: Waker::new(poll.registry(), WAKE)? }))
    }

    pub(crate) fn send(&self, message: Message) {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).push(message);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            // It is met again at the thread's next turn.
            tracing::warn!(%error, "a thread of the server could not be woken");
        }
    }

    pub(crate) fn take(&self) -> Vec<Message> {
        std::mem::take(&mut *self.messages.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
