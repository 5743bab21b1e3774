//! The blocking client.

use std::time::Duration;

use forebay_protocol::{RunInfo, StreamInfo};
use forebay_types::{
    DecideOutcome, DriveNumber, EventKey, FragmentId, ReadOutcome, RunId, SourceId, StreamName, crc32c,
};

use crate::answer::{AcceptedPage, Decision, FetchedEvent, Lease, PutResult};
use crate::config::{ClientConfig, ServerInfo};
use crate::error::ClientError;

/// A client of one server. It is `Send`: it may move between threads, and blocks the one that calls.
pub struct Client {
    config: ClientConfig,
    info: ServerInfo,
}

impl Client {
    /// Connects and greets, trying again until the deadline.
    ///
    /// # Errors
    /// When nothing answers, or what answers is no Forebay server of a version that fits.
    pub fn connect(config: ClientConfig) -> Result<Client, ClientError> {
        Err(unfinished(&config))
    }

    /// What the server said of itself in the last greeting.
    pub fn info(&self) -> &ServerInfo {
        &self.info
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

    /// [`Client::put`] for a caller who has the CRC32C already.
    ///
    /// # Errors
    /// As [`Client::put`].
    pub fn put_with_crc(&mut self, id: FragmentId, expected: u16, payload: &[u8], crc: u32) -> Result<(), ClientError> {
        let _ = (id, expected, payload, crc);
        Err(unfinished(&self.config))
    }

    /// Appends the results that are there after one turn of the sockets that does not wait. Each put is
    /// reported exactly once.
    pub fn take_put_results(&mut self, into: &mut Vec<PutResult>) {
        let _ = into;
    }

    /// Sends what is batched and waits until every put has its result; [`Client::take_put_results`]
    /// hands them out.
    ///
    /// # Errors
    /// When puts were given up without an answer since the last flush, or the server cannot be used;
    /// the puts have results then too.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        Err(unfinished(&self.config))
    }

    /// Puts without a result.
    pub fn pending_puts(&self) -> usize {
        0
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
        let _ = ids;
        Err(unfinished(&self.config))
    }

    /// Reads events, or some sources of them, over all lanes at once; the answers are in the order of
    /// `events`.
    ///
    /// # Errors
    /// When the server gives no answer at all.
    pub fn get_events(
        &mut self,
        events: &[EventKey],
        sources: Option<&[SourceId]>,
    ) -> Result<Vec<FetchedEvent>, ClientError> {
        let _ = (events, sources);
        Err(unfinished(&self.config))
    }

    /// Leases up to `max_events` undecided events, from all lanes in turn. An event that is not decided
    /// within `duration` goes to another filter.
    ///
    /// # Errors
    /// When the server gives no answer; leases of lanes that did answer run out by themselves.
    pub fn lease(
        &mut self,
        max_events: u32,
        duration: Duration,
        filter: u64,
        run: Option<RunId>,
    ) -> Result<Lease, ClientError> {
        let _ = (max_events, duration, filter, run);
        Err(unfinished(&self.config))
    }

    /// Tells decisions; the outcomes are in their order. Outcomes that may change are asked for again
    /// until the deadline.
    ///
    /// # Errors
    /// When the server gives no answer: some may be durable then; telling the same again is safe.
    pub fn decide(&mut self, decisions: &[Decision]) -> Result<Vec<DecideOutcome>, ClientError> {
        let _ = decisions;
        Err(unfinished(&self.config))
    }

    /// Drops events, whatever was decided; the outcomes are in their order.
    ///
    /// # Errors
    /// When the server gives no answer: some may be durable then; deleting the same again is safe.
    pub fn delete(&mut self, events: &[EventKey]) -> Result<Vec<DecideOutcome>, ClientError> {
        let _ = events;
        Err(unfinished(&self.config))
    }

    /// Accepted events of a stream that it has not released, behind `after`, at most `max`.
    ///
    /// # Errors
    /// When the server gives no answer.
    pub fn accepted(
        &mut self,
        stream: &StreamName,
        after: Option<EventKey>,
        max: u32,
    ) -> Result<AcceptedPage, ClientError> {
        let _ = (stream, after, max);
        Err(unfinished(&self.config))
    }

    /// Says that `stream` has these events safely elsewhere; the outcomes are in their order.
    ///
    /// # Errors
    /// When the server gives no answer: some may be durable then; releasing the same again is safe.
    pub fn release(&mut self, stream: &StreamName, events: &[EventKey]) -> Result<Vec<DecideOutcome>, ClientError> {
        let _ = (stream, events);
        Err(unfinished(&self.config))
    }

    /// The streams with their events that are accepted and not released, over all lanes, by name.
    ///
    /// # Errors
    /// When the server gives no answer.
    pub fn streams(&mut self) -> Result<Vec<StreamInfo>, ClientError> {
        Err(unfinished(&self.config))
    }

    /// The runs with their counts over all lanes, by number.
    ///
    /// # Errors
    /// When the server gives no answer.
    pub fn runs(&mut self) -> Result<Vec<RunInfo>, ClientError> {
        Err(unfinished(&self.config))
    }

    /// The state of the server as one JSON object.
    ///
    /// # Errors
    /// When the server gives no answer.
    pub fn status(&mut self) -> Result<String, ClientError> {
        Err(unfinished(&self.config))
    }

    /// Waits for a sign of life.
    ///
    /// # Errors
    /// When the server gives none.
    pub fn ping(&mut self) -> Result<(), ClientError> {
        Err(unfinished(&self.config))
    }

    /// Makes a drive fail; only servers started for tests do it.
    ///
    /// # Errors
    /// When the server refuses or gives no answer.
    pub fn inject_fault(&mut self, drive: DriveNumber) -> Result<(), ClientError> {
        let _ = drive;
        Err(unfinished(&self.config))
    }
}

fn unfinished(config: &ClientConfig) -> ClientError {
    ClientError::Broken { address: config.address.clone(), what: "this client cannot connect yet".to_owned() }
}
