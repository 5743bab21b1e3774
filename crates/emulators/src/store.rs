//! What the emulators need from a store: the client of a server, or a pretended one in tests.

use std::time::Duration;

use forebay_client::{Client, ClientError, Decision, FetchedEvent, Lease, PutResult, RunInfo};
use forebay_types::{DecideOutcome, EventKey, FragmentId, PutOutcome, RunId, SourceId};

/// A store that did not answer as it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    /// What happened, what it means for the data, what to do.
    pub message: String,
    /// Whether the same call may succeed later.
    pub retryable: bool,
}

impl From<ClientError> for StoreError {
    fn from(error: ClientError) -> Self {
        StoreError { message: error.to_string(), retryable: error.is_retryable() }
    }
}

/// The calls of the readout. They block.
pub trait ReadoutStore {
    /// The largest fragment that the store takes, in bytes.
    fn fragment_bytes_max(&self) -> u64;

    /// The runs that the store knows.
    ///
    /// # Errors
    /// No answer.
    fn runs(&mut self) -> Result<Vec<RunInfo>, StoreError>;

    /// Whether a fragment of `event` is taken without a wait.
    fn has_room(&mut self, event: EventKey) -> bool;

    /// Takes a fragment to be stored; what becomes of it is told by [`ReadoutStore::wait_put_results`].
    /// Waits while there is no room.
    ///
    /// # Errors
    /// The fragment was not taken.
    fn put(&mut self, id: FragmentId, expected: u16, payload: &[u8]) -> Result<(), StoreError>;

    /// Waits until something became of a fragment, or for `longest`, then appends what became of fragments
    /// since the last call.
    ///
    /// # Errors
    /// The system refuses to wait.
    fn wait_put_results(&mut self, longest: Duration, into: &mut Vec<PutResult>) -> Result<(), StoreError>;

    /// Fragments that nothing became of yet.
    fn pending_puts(&self) -> usize;

    /// What the store last said of fragments that are tried again; `None` when there are none.
    fn puts_wait_for(&self) -> Option<PutOutcome>;
}

/// The calls of the filter. They block.
pub trait FilterStore {
    /// Undecided events, for this filter alone for so long.
    ///
    /// # Errors
    /// No answer.
    fn lease(
        &mut self,
        max_events: u32,
        duration: Duration,
        filter: u64,
        run: Option<RunId>,
    ) -> Result<Lease, StoreError>;

    /// The events, or some sources of them, in the order of `events`.
    ///
    /// # Errors
    /// No answer.
    fn get_events(
        &mut self,
        events: &[EventKey],
        sources: Option<&[SourceId]>,
    ) -> Result<Vec<FetchedEvent>, StoreError>;

    /// Tells decisions; an outcome for each, in their order.
    ///
    /// # Errors
    /// No answer; some may be durable then.
    fn decide(&mut self, decisions: &[Decision]) -> Result<Vec<DecideOutcome>, StoreError>;
}

impl ReadoutStore for Client {
    fn fragment_bytes_max(&self) -> u64 {
        self.info().fragment_bytes_max.into()
    }

    fn runs(&mut self) -> Result<Vec<RunInfo>, StoreError> {
        Ok(Client::runs(self)?)
    }

    fn put(&mut self, id: FragmentId, expected: u16, payload: &[u8]) -> Result<(), StoreError> {
        Ok(Client::put(self, id, expected, payload)?)
    }

    fn has_room(&mut self, event: EventKey) -> bool {
        Client::has_room(self, event)
    }

    fn wait_put_results(&mut self, longest: Duration, into: &mut Vec<PutResult>) -> Result<(), StoreError> {
        Ok(Client::wait_put_results(self, longest, into)?)
    }

    fn pending_puts(&self) -> usize {
        Client::pending_puts(self)
    }

    fn puts_wait_for(&self) -> Option<PutOutcome> {
        Client::puts_wait_for(self)
    }
}

impl FilterStore for Client {
    fn lease(
        &mut self,
        max_events: u32,
        duration: Duration,
        filter: u64,
        run: Option<RunId>,
    ) -> Result<Lease, StoreError> {
        Ok(Client::lease(self, max_events, duration, filter, run)?)
    }

    fn get_events(
        &mut self,
        events: &[EventKey],
        sources: Option<&[SourceId]>,
    ) -> Result<Vec<FetchedEvent>, StoreError> {
        Ok(Client::get_events(self, events, sources)?)
    }

    fn decide(&mut self, decisions: &[Decision]) -> Result<Vec<DecideOutcome>, StoreError> {
        Ok(Client::decide(self, decisions)?)
    }
}
