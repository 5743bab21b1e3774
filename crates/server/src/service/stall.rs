//! Connections that stand still.

use std::fmt;
use std::time::Duration;

use forebay_types::Time;

use super::Service;
use crate::connection::Connection;
use crate::limits::{UNREAD_PART, UNREAD_TIMES};

/// Why a connection stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// The rest of a frame does not come.
    HalfFrame {
        /// Bytes that came of what is awaited.
        arrived_bytes: usize,
        /// The put whose fragments are awaited; `None`: the header or table of a request.
        request: Option<u64>,
        /// How long nothing, or next to nothing, came.
        limit: Duration,
    },
    /// The peer takes nothing of what it is sent.
    Unread {
        /// Bytes that wait for it.
        bytes: usize,
        /// How long it took nothing.
        limit: Duration,
    },
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stall::HalfFrame { arrived_bytes, request: Some(request), limit } => write!(
                f,
                "stopped in the middle of put {request}: {arrived_bytes} bytes of the next fragment came, then too little for {limit:?}"
            ),
            Stall::HalfFrame { arrived_bytes, request: None, limit } => {
                write!(
                    f,
                    "stopped in the middle of a request: {arrived_bytes} bytes of it came, then too little for {limit:?}"
                )
            }
            Stall::Unread { bytes, limit } => {
                write!(f, "did not read for {limit:?}: {bytes} bytes of answers wait for it")
            }
        }
    }
}

impl Service {
    /// Connections that stopped in the middle of a frame, or do not read, for too long; and which it is.
    pub fn stalled(&self, now: Time) -> Vec<(u64, Stall)> {
        let limit = self.core.config.stall_timeout;
        // Where others wait for the memory of its answers, a peer has less time to take them.
        let are_awaited = !self.core.for_replies.is_empty();
        let unread_limit = if are_awaited { limit / UNREAD_PART } else { limit * UNREAD_TIMES };
        let over = |since: Option<Time>, limit| since.is_some_and(|since| now >= since + limit);
        let stall = |connection: &Connection| {
            if over(connection.awaits_since(), limit) {
                let current = connection.current.and_then(|current| self.requests.get(&current));
                let request = current.map(|request| request.number);
                Some(Stall::HalfFrame { arrived_bytes: connection.receive.len(), request, limit })
            } else if over(connection.out_since, unread_limit) {
                Some(Stall::Unread { bytes: connection.out.len(), limit: unread_limit })
            } else {
                None
            }
        };
        self.connections.iter().filter_map(|(id, connection)| Some((*id, stall(connection)?))).collect()
    }
}
