//! What those who keep several requests of their own on their way need of a client.

use std::io;
use std::time::Duration;

use forebay_types::Time;
use forebay_types::limits::PIECE_BYTES_MAX;

use super::Client;
use crate::blocks::Blocks;
use crate::driver::{Ticket, TurnWaker, Wait};
use crate::error::ClientError;
use crate::session::{Answer, Request, SessionError};

impl Client {
    /// The time on the client's clock.
    pub fn now(&self) -> Time {
        self.driver.now()
    }

    /// How long a request is repeated.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.driver.config().deadline
    }

    /// Queues a request to a lane, or to [`forebay_protocol::LANE_CONTROL`]; it leaves in the next turns. Its answer comes with [`Client::next_answer`].
    ///
    /// # Errors
    /// When the connection can no longer be used.
    pub fn start(&mut self, lane: u16, request: Request) -> Result<Ticket, SessionError> {
        self.driver.ask(lane, request)
    }

    /// The answer to what was started, once it is there.
    pub(crate) fn take_answer(&mut self, ticket: Ticket) -> Option<Result<Answer, SessionError>> {
        self.driver.take_answer(ticket)
    }

    /// The answer to one of the requests that were started, if any is there.
    pub fn next_answer(&mut self) -> Option<(Ticket, Result<Answer, SessionError>)> {
        self.driver.next_answer()
    }

    /// One turn of the sockets: sends what there is, waits as told, and takes what came.
    ///
    /// # Errors
    /// When the system refuses to wait.
    pub fn turn(&mut self, wait: Wait) -> Result<(), ClientError> {
        self.driver.turn(wait).map_err(|error| self.system(error))
    }

    /// What ends the wait of a turn, for other threads.
    ///
    /// # Errors
    /// When the system refuses it.
    pub fn turn_waker(&mut self) -> io::Result<TurnWaker> {
        self.driver.waker()
    }

    /// Blocks of 1 MiB for bytes of files that are to be written, of which so many that nobody refers to are kept: a server on this machine takes them without their being sent.
    pub fn blocks(&self, kept_max: usize) -> Blocks {
        Blocks::shared(PIECE_BYTES_MAX, kept_max, self.driver.memory().clone())
    }

    /// Nobody wants this answer any more.
    pub fn forget(&mut self, ticket: Ticket) {
        self.driver.forget(ticket);
    }

    /// Keeps the connections going for `time`.
    pub(crate) fn rest(&mut self, time: Duration) -> Result<(), ClientError> {
        self.driver.rest(time).map_err(|error| self.system(error))
    }
}
