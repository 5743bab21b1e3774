//! What those who keep several requests of their own on their way need of a client.

use std::time::Duration;

use forebay_types::Time;

use super::Client;
use crate::driver::Ticket;
use crate::error::ClientError;
use crate::session::{Answer, Request, SessionError};

impl Client {
    /// The time on the client's clock.
    pub(crate) fn now(&self) -> Time {
        self.driver.now()
    }

    /// How long a request is repeated.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.driver.config().deadline
    }

    /// Queues a request to a lane; it leaves in the next turns.
    pub(crate) fn start(&mut self, lane: u16, request: Request) -> Result<Ticket, SessionError> {
        self.driver.ask(lane, request)
    }

    /// The answer to what was started, once it is there.
    pub(crate) fn take_answer(&mut self, ticket: Ticket) -> Option<Result<Answer, SessionError>> {
        self.driver.take_answer(ticket)
    }

    /// Nobody wants this answer any more.
    pub(crate) fn forget(&mut self, ticket: Ticket) {
        self.driver.forget(ticket);
    }

    /// Keeps the connections going for `time`.
    pub(crate) fn rest(&mut self, time: Duration) -> Result<(), ClientError> {
        self.driver.rest(time).map_err(|error| self.system(error))
    }
}
