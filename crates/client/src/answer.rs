//! What the client gives back.

use std::time::Duration;

use forebay_protocol::{AcceptedEvent, EventState, LeasedEvent};
use forebay_types::{EventKey, FragmentId, PutOutcome, ReadOutcome, SourceId, Verdict};

/// What became of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutResult {
    /// The fragment.
    pub id: FragmentId,
    /// What the server last said; [`PutOutcome::Unavailable`] when it never answered. Only with
    /// [`PutOutcome::is_acknowledged`] may the writer forget the fragment.
    pub outcome: PutOutcome,
    /// Whether the server said so of every attempt. If not, the fragment may or may not be stored; putting
    /// it again is safe.
    pub answered: bool,
    /// From the call of put to the answer.
    pub latency: Duration,
}

/// An event that was fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedEvent {
    /// The event.
    pub key: EventKey,
    /// Found when the server knows the event and has not finished it; its fragments have outcomes of
    /// their own.
    pub outcome: ReadOutcome,
    /// How far it is.
    pub state: EventState,
    /// How many fragments it should have, as its writers said; 0 when not known.
    pub expected: u16,
    /// How many fragments of it are stored, whatever sources were asked for.
    pub stored: u32,
    /// Its fragments (of the sources that were asked for), ascending by source.
    pub fragments: Vec<FetchedFragment>,
}

impl FetchedEvent {
    /// The fragments whose bytes are here.
    pub fn found(&self) -> Vec<(SourceId, &[u8])> {
        let found = self.fragments.iter().filter(|fragment| fragment.outcome == ReadOutcome::Found);
        found.map(|fragment| (fragment.source, fragment.payload.as_slice())).collect()
    }
}

/// A fragment of a fetched event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedFragment {
    /// The source.
    pub source: SourceId,
    /// What the read found.
    pub outcome: ReadOutcome,
    /// Its bytes, checked; empty unless found.
    pub payload: Vec<u8>,
}

/// Events leased to a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The events.
    pub events: Vec<LeasedEvent>,
    /// Events without a decision, leased or not, over all lanes (and of the run, if one was asked for).
    pub undecided: u64,
    /// When it is worth to ask again for those that are missing; zero when there are as many as were asked for.
    pub retry_after: Duration,
}

/// The filter's word on one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The event.
    pub key: EventKey,
    /// Rejected, or accepted into streams.
    pub verdict: Verdict,
    /// Whether the filter decided without all fragments.
    pub incomplete: bool,
}

/// Accepted events of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedPage {
    /// The events, ascending by run and event over all lanes, none left out between them.
    pub events: Vec<AcceptedEvent>,
    /// Whether there are more behind the last one now.
    pub more: bool,
    /// The smallest undecided event of the store: no event below it that is there now will still be accepted.
    /// `None`: there is no undecided event.
    pub undecided_floor: Option<EventKey>,
}
