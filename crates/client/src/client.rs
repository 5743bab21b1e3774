//! The blocking client.

mod calls;
mod events;
mod runs;
pub(crate) mod scatter;
mod subscribe;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use forebay_protocol::{
    ChangeDrive, Get, InjectFault, LANE_CONTROL, Losses, Ping, RunInfo, Runs, Scrub, Status, StreamInfo, Streams, Trace,
};
use forebay_types::placement::lane_of;
use forebay_types::{DriveNumber, EventKey, FragmentId, PutOutcome, ReadOutcome, crc32c};

pub use runs::{KnownRun, RunPage, Signature};

use crate::answer::PutResult;
use crate::config::{ClientConfig, ServerInfo};
use crate::driver::{Driver, Ticket, Wait, resolve};
use crate::error::ClientError;
use crate::session::{Answer, PutBytes, Request, SessionError};
use scatter::{merge_runs, merge_streams, scatter};

/// A client of one server. It is `Send`: it may move between threads, and blocks the one that calls.
pub struct Client {
    driver: Driver,
    /// How many addresses are tried before it is said that nothing listens; until the deadline when not said.
    addresses: Option<usize>,
    /// The lane that the next lease asks first.
    next_lane: u16,
}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Client>();
};

impl Client {
    /// Connects and greets, trying again until the deadline; when [`ClientConfig::must_listen`] is set, not when nothing listens at the only
    /// server that was named.
    ///
    /// # Errors
    /// When nothing answers, or what answers is no Forebay server of a version that fits.
    pub fn connect(config: ClientConfig) -> Result<Client, ClientError> {
        let address = config.address.clone();
        let found = resolve(&address).map_err(|source| ClientError::Address { address: address.clone(), source })?;
        let addresses = (config.must_listen && !config.has_several_servers()).then_some(found.len());
        let driver = Driver::new(config).map_err(|source| ClientError::System { address, source })?;
        let mut client = Client { driver, addresses, next_lane: 0 };
        client.ping()?;
        Ok(client)
    }

    /// Where the server of the last greeting listens: of several that were named the one that has the store. None where the system does not
    /// say.
    pub fn greeted_by(&self) -> Option<SocketAddr> {
        self.driver.greeted_by()
    }

    /// What the server said of itself in the last greeting.
    pub fn info(&self) -> &ServerInfo {
        self.driver.info().expect("connect waits for the greeting")
    }

    /// Puts a fragment into the batch of its lane: computes its CRC32C, copies it, drives the sockets
    /// now and then, and waits while the server's credit is used up. `expected`: how many fragments
    /// the event should have; 0 when not known.
    ///
    /// What becomes of it is told by [`Client::take_put_results`].
    ///
    /// # Errors
    /// When the fragment was not taken: too large, or the server cannot be used. Puts before it keep
    /// their course.
    pub fn put(&mut self, id: FragmentId, expected: u16, payload: &[u8]) -> Result<(), ClientError> {
        self.put_with_crc(id, expected, payload, crc32c(payload))
    }

    /// [`Client::put`] without the copy: the bytes are shared until the put has its result. Worth it from
    /// a few KiB on; the buffer that they are a part of is kept as a whole meanwhile.
    ///
    /// # Errors
    /// As [`Client::put`].
    pub fn put_bytes(&mut self, id: FragmentId, expected: u16, payload: &Bytes) -> Result<(), ClientError> {
        self.put_with_crc(id, expected, payload, crc32c(payload))
    }

    /// [`Client::put`] or [`Client::put_bytes`] for a caller who has the CRC32C already.
    ///
    /// # Errors
    /// As [`Client::put`].
    pub fn put_with_crc<'a>(
        &mut self,
        id: FragmentId,
        expected: u16,
        payload: impl Into<PutBytes<'a>>,
        crc: u32,
    ) -> Result<(), ClientError> {
        let payload = payload.into();
        let info = self.info();
        let max = info.fragment_bytes_max.min(info.frame_payload_bytes_max) as usize;
        let max = max.min(forebay_types::limits::FRAGMENT_BYTES_MAX);
        if payload.len() > max {
            return Err(ClientError::TooLarge { id, bytes: payload.len(), max });
        }
        let lane = self.lane_of(id.key());
        while !self.driver.has_room(lane) {
            self.turn(Wait::Yes)?;
        }
        let turned = self.driver.put(lane, id, expected, payload, crc);
        turned.map_err(|error| self.error(error))?.map_err(|error| self.system(error))
    }

    /// Appends the results that are there after one turn of the sockets that does not wait. Each put is
    /// reported exactly once.
    pub fn take_put_results(&mut self, into: &mut Vec<PutResult>) {
        if let Err(error) = self.turn(Wait::No) {
            // The results that are there are true all the same; the next call that can fail will say it.
            tracing::warn!("{error}");
        }
        self.driver.take_put_results(into);
    }

    /// Waits until a put has its result, or until `longest` has passed, then appends what is there.
    ///
    /// # Errors
    /// When the system refuses to wait.
    pub fn wait_put_results(&mut self, longest: Duration, into: &mut Vec<PutResult>) -> Result<(), ClientError> {
        let (until, before) = (self.driver.now() + longest, into.len());
        self.turn(Wait::No)?;
        self.driver.take_put_results(into);
        while into.len() == before && self.driver.pending_puts() > 0 && self.driver.now() < until {
            self.turn(Wait::Until(until))?;
            self.driver.take_put_results(into);
        }
        Ok(())
    }

    /// Sends what is batched and waits until every put has its result; [`Client::take_put_results`]
    /// hands them out.
    ///
    /// # Errors
    /// When puts were refused as a whole or given up without an answer since the last flush, or the
    /// server cannot be used; the puts have results then too.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.driver.flush();
        while self.driver.pending_puts() > 0 {
            self.turn(Wait::Yes)?;
        }
        match self.driver.take_puts_failed() {
            None => Ok(()),
            Some((puts, SessionError::Deadline { last, .. })) => {
                Err(ClientError::PutsUnanswered { address: self.address(), puts, last })
            }
            Some((puts, error)) => Err(ClientError::PutsRefused { puts, reason: Box::new(self.error(error)) }),
        }
    }

    /// Puts without a result.
    pub fn pending_puts(&self) -> usize {
        self.driver.pending_puts()
    }

    /// Of these, the puts that have left for the server whole and have no answer yet: what a server that dies now leaves
    /// undecided. The others wait in this client. As of the last turn of the sockets.
    pub fn puts_in_flight(&self) -> usize {
        self.driver.puts_in_flight()
    }

    /// Whether a put of a fragment of `event` would be taken at once, without a wait for the server.
    pub fn has_room(&mut self, event: EventKey) -> bool {
        let lane = self.lane_of(event);
        self.driver.has_room(lane)
    }

    /// What the server last said of puts that wait to be tried again; `None` when there are none.
    pub fn puts_wait_for(&self) -> Option<PutOutcome> {
        self.driver.puts_wait_for()
    }

    /// Reads a fragment and checks its CRC32C.
    ///
    /// # Errors
    /// [`ClientError::Read`] when there is no such fragment for now or for ever.
    pub fn get(&mut self, id: FragmentId) -> Result<Vec<u8>, ClientError> {
        let (outcome, payload) = self.get_many(&[id])?.pop().expect("one answer for one id");
        if outcome == ReadOutcome::Found { Ok(payload) } else { Err(ClientError::Read { id, outcome }) }
    }

    /// Reads fragments, over all lanes at once; the answers are in the order of `ids`. Bytes are
    /// checked, and empty unless found.
    ///
    /// # Errors
    /// When the server gives no answer at all.
    pub fn get_many(&mut self, ids: &[FragmentId]) -> Result<Vec<(ReadOutcome, Vec<u8>)>, ClientError> {
        let parts = scatter(ids.len(), |index| self.lane_of(ids[index].key()));
        let request = |places: &[usize]| Request::Get(Get { ids: places.iter().map(|place| ids[*place]).collect() });
        let answers = self.ask(parts.iter().map(|(lane, places)| (*lane, request(places))).collect())?;
        let mut found = vec![(ReadOutcome::NotFound, Vec::new()); ids.len()];
        for ((_, places), answer) in parts.iter().zip(answers) {
            let Answer::Fragments(fragments) = answer else { unexpected(&answer) };
            for (place, fragment) in places.iter().zip(fragments) {
                found[*place] = fragment;
            }
        }
        Ok(found)
    }

    /// The streams with their events that are accepted and not released, over all lanes, by name.
    ///
    /// # Errors
    /// When the server gives no answer.
    pub fn streams(&mut self) -> Result<Vec<StreamInfo>, ClientError> {
        let answers = self.ask_all_lanes(|_| Request::Streams(Streams))?;
        Ok(merge_streams(answers.into_iter().flat_map(|answer| match answer {
            Answer::Streams(streams) => streams,
            other => unexpected(&other),
        })))
    }

    /// The runs with their counts over all lanes, by number.
    ///
    /// # Errors
    /// When the server gives no answer.
    pub fn runs(&mut self) -> Result<Vec<RunInfo>, ClientError> {
        let answers = self.ask_all_lanes(|_| Request::Runs(Runs))?;
        Ok(merge_runs(answers.into_iter().flat_map(|answer| match answer {
            Answer::Runs(runs) => runs,
            other => unexpected(&other),
        })))
    }

    /// The state of the server as one JSON object.
    ///
    /// # Errors
    /// When the server gives no answer.
    pub fn status(&mut self) -> Result<String, ClientError> {
        match self.ask_one(LANE_CONTROL, Request::Status(Status))? {
            Answer::Status(json) => Ok(json),
            other => unexpected(&other),
        }
    }

    /// All that the store knows of an event as one JSON object: what arrived when, where it lies, what was decided; also of one that is over, or
    /// that was never seen.
    ///
    /// # Errors
    /// When the server gives no answer, or its lane does not know yet what is stored.
    pub fn trace(&mut self, key: EventKey) -> Result<String, ClientError> {
        let lane = self.lane_of(key);
        match self.ask_one(lane, Request::Trace(Trace { key }))? {
            Answer::Status(json) => Ok(json),
            other => unexpected(&other),
        }
    }

    /// What a lane knows to be lost or out of reach, as one JSON object; `from` were told before, and 1000 at most are told at once.
    ///
    /// # Errors
    /// As [`Client::trace`].
    pub fn losses(&mut self, lane: u16, from: u32) -> Result<String, ClientError> {
        match self.ask_one(lane, Request::Losses(Losses { from, max: u32::MAX }))? {
            Answer::Status(json) => Ok(json),
            other => unexpected(&other),
        }
    }

    /// Waits for a sign of life.
    ///
    /// # Errors
    /// When the server gives none.
    pub fn ping(&mut self) -> Result<(), ClientError> {
        self.ask_one(LANE_CONTROL, Request::Ping(Ping)).map(drop)
    }

    /// Makes a drive fail; only servers started for tests do it.
    ///
    /// # Errors
    /// When the server refuses or gives no answer.
    pub fn inject_fault(&mut self, drive: DriveNumber) -> Result<(), ClientError> {
        self.ask_one(LANE_CONTROL, Request::InjectFault(InjectFault { drive })).map(drop)
    }

    /// Takes a drive out of the store, or begins to put one in for it.
    ///
    /// # Errors
    /// When the server refuses or gives no answer.
    pub fn change_drive(&mut self, change: ChangeDrive) -> Result<(), ClientError> {
        self.ask_one(LANE_CONTROL, Request::ChangeDrive(change)).map(drop)
    }

    /// Has every byte of what is stored looked at and mended where it is damaged; the status says how far that is.
    ///
    /// # Errors
    /// When the server refuses or gives no answer.
    pub fn scrub(&mut self) -> Result<(), ClientError> {
        self.ask_one(LANE_CONTROL, Request::Scrub(Scrub)).map(drop)
    }

    fn lane_of(&self, key: EventKey) -> u16 {
        lane_of(key, self.info().lanes)
    }

    fn ask_all_lanes(&mut self, request: impl Fn(u16) -> Request) -> Result<Vec<Answer>, ClientError> {
        self.ask((0..self.info().lanes).map(|lane| (lane, request(lane))).collect())
    }

    pub(crate) fn ask_one(&mut self, lane: u16, request: Request) -> Result<Answer, ClientError> {
        Ok(self.ask(vec![(lane, request)])?.pop().expect("one answer for one request"))
    }

    /// Asks all of these at once, and waits for all answers even if one of them fails.
    pub(crate) fn ask(&mut self, requests: Vec<(u16, Request)>) -> Result<Vec<Answer>, ClientError> {
        let mut tickets: Vec<Ticket> = Vec::with_capacity(requests.len());
        let mut failed = None;
        for (lane, request) in requests {
            match self.driver.ask(lane, request) {
                Ok(ticket) => tickets.push(ticket),
                Err(error) => failed = Some(error),
            }
        }
        let answers = self.driver.wait(&tickets, self.addresses).map_err(|error| self.system(error))?;
        let answers: Result<Vec<Answer>, SessionError> = answers.into_iter().collect();
        match (answers, failed) {
            (Ok(answers), None) => Ok(answers),
            (Err(error), _) | (_, Some(error)) => Err(self.error(error)),
        }
    }

    pub(crate) fn address(&self) -> String {
        self.driver.config().address.clone()
    }

    fn system(&self, source: io::Error) -> ClientError {
        let address = self.address();
        match source.kind() {
            io::ErrorKind::ConnectionRefused => ClientError::NobodyListens { address },
            _ => ClientError::System { address, source },
        }
    }

    /// What a caller is told when a session gave something up.
    pub fn error(&self, error: SessionError) -> ClientError {
        let address = self.address();
        match error {
            SessionError::Deadline { request, waited, last } => {
                ClientError::Deadline { address, request, waited, last }
            }
            SessionError::Refused { request, reply } => ClientError::Refused {
                address,
                request,
                code: reply.code,
                retryable: reply.retryable,
                sentence: reply.sentence,
            },
            SessionError::Protocol(error) => ClientError::Protocol { address, error },
            SessionError::Broken(what) => ClientError::Broken { address, what },
            SessionError::OtherStore { expected, found } => ClientError::OtherStore { address, expected, found },
            SessionError::Damaged { part, times, expected, found } => {
                ClientError::Damaged { part, times, expected, found }
            }
            SessionError::Unknown { request, last } => ClientError::Unknown { address, request, last },
        }
    }
}

/// The session gives each request an answer of its own kind.
pub(crate) fn unexpected(answer: &Answer) -> ! {
    unreachable!("the session answered with {answer:?}")
}
