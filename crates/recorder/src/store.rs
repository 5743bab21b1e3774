//! What the recorder needs from a store: the client of a server, or a pretended one in tests.

use forebay_client::{AcceptedPage, Client, ClientError, FetchedEvent};
use forebay_types::{DecideOutcome, EventKey, StoreUuid, StreamName};

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

/// The calls of the recorder. They block.
pub trait AcceptedStore {
    /// Which store it is.
    fn store(&self) -> StoreUuid;

    /// The streams that the store knows.
    ///
    /// # Errors
    /// No answer.
    fn streams(&mut self) -> Result<Vec<StreamName>, StoreError>;

    /// Accepted events of a stream that it has not released, ascending, behind `after`, at most `max`.
    ///
    /// # Errors
    /// No answer.
    fn accepted(&mut self, stream: &StreamName, after: Option<EventKey>, max: u32) -> Result<AcceptedPage, StoreError>;

    /// The events whole, in the order of `events`.
    ///
    /// # Errors
    /// No answer.
    fn fetch(&mut self, events: &[EventKey]) -> Result<Vec<FetchedEvent>, StoreError>;

    /// Ends the claim of `stream` on `events`; an outcome for each, in their order.
    ///
    /// # Errors
    /// No answer; some may be released then.
    fn release(&mut self, stream: &StreamName, events: &[EventKey]) -> Result<Vec<DecideOutcome>, StoreError>;
}

impl AcceptedStore for Client {
    fn store(&self) -> StoreUuid {
        self.info().store
    }

    fn streams(&mut self) -> Result<Vec<StreamName>, StoreError> {
        Ok(Client::streams(self)?.into_iter().map(|stream| stream.name).collect())
    }

    fn accepted(&mut self, stream: &StreamName, after: Option<EventKey>, max: u32) -> Result<AcceptedPage, StoreError> {
        Ok(Client::accepted(self, stream, after, max)?)
    }

    fn fetch(&mut self, events: &[EventKey]) -> Result<Vec<FetchedEvent>, StoreError> {
        Ok(self.get_events(events, None)?)
    }

    fn release(&mut self, stream: &StreamName, events: &[EventKey]) -> Result<Vec<DecideOutcome>, StoreError> {
        Ok(Client::release(self, stream, events)?)
    }
}
