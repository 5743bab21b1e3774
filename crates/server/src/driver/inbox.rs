//! Messages for a thread that waits in a poll.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_protocol::Class;
use mio::{Poll, Token, Waker};

use super::socket::Socket;
use crate::namespace::FilesMessage;
use crate::status::LaneReport;

/// The token of wakers in every poll.
pub(crate) const WAKE: Token = Token(0);

/// The token of what else a thread has one of: the listener, the drives.
pub(crate) const READY: Token = Token(1);

/// The number of the first connection.
pub(crate) const FIRST_CONNECTION: u64 = 2;

/// Where a client is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whereabouts {
    Network(SocketAddr),
    /// On this machine. Which process it is, the system does not always know: not of one in another PID namespace.
    Local,
}

impl fmt::Display for Whereabouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Whereabouts::Network(address) => write!(f, "{address}"),
            Whereabouts::Local => write!(f, "a process of this machine"),
        }
    }
}

/// Who is at the other end of a connection, as far as it says.
pub(crate) struct ClientName {
    pub(crate) address: Whereabouts,
    pub(crate) name: Box<str>,
}

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.name {
            "" => write!(f, "{}", self.address),
            // A name comes from the network, and goes to a terminal.
            name => write!(f, "{} ({})", name.escape_debug(), self.address),
        }
    }
}

/// A connection that said who it is.
pub(crate) struct Greeted {
    /// In no poll.
    pub(crate) socket: Socket,
    pub(crate) client: ClientName,
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

/// What a thread is told.
pub(crate) enum Message {
    /// A connection is for it.
    Greeted(Greeted),
    /// The control thread asks a lane for its state; it has one question at a time, so that nothing piles up.
    Query(SyncSender<LaneReport>),
    /// What a lane tells another one of files.
    Files(FilesMessage),
    /// Everything that is stored is to be looked at.
    Scrub,
    /// Come to an end.
    Stop,
}

/// Messages for a thread. Connections in it are bounded by the limit on all connections.
pub(crate) struct Inbox {
    /// `None`: the thread has ended, and nobody waits for an answer of it.
    messages: Mutex<Option<Vec<Message>>>,
    waker: Waker,
}

/// Closes the inbox of a thread when that ends, however it does.
pub(crate) struct CloseAtEnd(pub(crate) Arc<Inbox>);

impl Drop for CloseAtEnd {
    fn drop(&mut self) {
        *self.0.messages() = None;
    }
}

impl Inbox {
    /// For the thread that waits in `poll`.
    pub(crate) fn new(poll: &Poll) -> io::Result<Arc<Inbox>> {
        Ok(Arc::new(Inbox { messages: Mutex::new(Some(Vec::new())), waker: Waker::new(poll.registry(), WAKE)? }))
    }

    fn messages(&self) -> MutexGuard<'_, Option<Vec<Message>>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a thread that has ended the message is dropped.
    pub(crate) fn send(&self, message: Message) {
        if let Some(messages) = &mut *self.messages() {
            messages.push(message);
        }
        self.wake();
    }

    pub(crate) fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            // It is met again at the thread's next turn.
            tracing::warn!(%error, "a thread of the server could not be woken");
        }
    }

    pub(crate) fn take(&self) -> Vec<Message> {
        self.messages().as_mut().map(std::mem::take).unwrap_or_default()
    }
}
