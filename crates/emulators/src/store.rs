//! What the emulators need from a store: the client of a server, or a pretended one in tests.

use std::time::Duration;

use forebay_client::{Client, Decision, FetchedEvent, Lease, PutResult, RunInfo};
use forebay_recorder::StoreError;
use forebay_types::{DecideOutcome, EventKey, FragmentId, RunId, SourceId};

/// The calls of the readout. They block.
pub trait ReadoutStore {
    /// The largest fragment that the store takes, in bytes.
    fn fragment_bytes_max(&self) -> u64;

    /// The runs that the store knows.
    ///
    /// # Errors
    /// No answer.
    fn runs(&mut self) -> Result<Vec<RunInfo>, StoreError>;

    /// Takes a fragment to be stored; what becomes of it is told by [`ReadoutStore::take_put_results`].
    /// Waits while the store cannot take more.
    ///
    /// # Errors
    /// The fragment was not taken.
    fn put(&mut self, id: FragmentId, expected: u16, payload: &[u8]) -> Result<(), StoreError>;

    /// Appends what became of fragments since the last call, without waiting.
    fn take_put_results(&mut self, into: &mut Vec<PutResult>);

    /// Waits until something became of every fragment.
    ///
    /// # Errors
    /// Fragments were given up; they have results all the same.
    fn flush(&mut self) -> Result<(), StoreError>;
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

    fn take_put_results(&mut self, into: &mut Vec<PutResult>) {
        Client::take_put_results(self, into);
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        Ok(Client::flush(self)?)
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
