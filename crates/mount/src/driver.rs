//! The thread of the machine: it has the client, the clock and the calls that come. It decides nothing.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use forebay_client::{Client, ClientError, Ticket, Wait};
use forebay_types::Time;

use crate::kernel::{Call, now_unix_ns};
use crate::machine::Machine;

/// So long, once the mount has ended, the server has to hear of what changes nothing that is stored.
const FAREWELL: Duration = Duration::from_secs(1);

/// What the thread has.
pub(crate) struct Driver {
    pub(crate) client: Client,
    pub(crate) machine: Machine,
    pub(crate) calls: Receiver<Call>,
    /// So long after the end of the mount what is left is tried.
    pub(crate) patience: Duration,
}

impl Driver {
    /// Serves until the mount has ended and nothing is left to be done, or cannot be done in time. Gives the bytes that were taken and are not known to be durable.
    ///
    /// # Errors
    /// When the system refuses to wait for sockets.
    pub(crate) fn run(mut self) -> Result<usize, ClientError> {
        let mut asked: BTreeMap<Ticket, u64> = BTreeMap::new();
        let mut tickets: BTreeMap<u64, Ticket> = BTreeMap::new();
        let (mut began_to_end, mut ends): (Option<Time>, Option<Time>) = (None, None);
        loop {
            self.set_now();
            self.take_calls();
            self.machine.tick();
            while let Some((number, lane, request)) = self.machine.next_request() {
                match self.client.start(lane, request) {
                    Ok(ticket) => {
                        asked.insert(ticket, number);
                        tickets.insert(number, ticket);
                    }
                    Err(error) => self.machine.answered(number, Err(error)),
                }
            }
            for number in self.machine.take_forgotten() {
                if let Some(ticket) = tickets.remove(&number) {
                    asked.remove(&ticket);
                    self.client.forget(ticket);
                }
            }
            let mut has_news = false;
            while let Some((ticket, answer)) = self.client.next_answer() {
                has_news = true;
                if let Some(number) = asked.remove(&ticket) {
                    tickets.remove(&number);
                    self.machine.answered(number, answer);
                }
            }
            if has_news {
                continue;
            }
            if self.machine.is_ending {
                let began = *began_to_end.get_or_insert(self.client.now());
                let until = began + if self.machine.is_settled() { self.patience.min(FAREWELL) } else { self.patience };
                if self.machine.is_over() || self.client.now() >= until {
                    return Ok(self.machine.unanswered_bytes());
                }
                ends = Some(until);
            }
            let due = self.machine.next_due().into_iter().chain(ends).min();
            self.client.turn(due.map_or(Wait::Yes, Wait::Until))?;
        }
    }

    fn set_now(&mut self) {
        let epoch = self.client.info().epoch;
        self.machine.set_now(self.client.now(), now_unix_ns(), epoch);
    }

    fn take_calls(&mut self) {
        loop {
            match self.calls.try_recv() {
                Ok(call) => call(&mut self.machine),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    if !self.machine.is_ending {
                        self.machine.end();
                    }
                    return;
                }
            }
        }
    }
}
